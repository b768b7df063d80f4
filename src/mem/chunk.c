/* Chunks: memory of the system in pieces of 2 MiB, handed out as slabs of 64 KiB.
 *
 * Layout of a chunk, which is aligned to its size:
 *
 *     at 0           descriptors of 32 slabs
 *     at LOW_AT      free bits of 1,024 blocks per slab, one page
 *     at HIGH_AT     free bits of 3,072 more per slab, three pages
 *     at HEAD_BYTES  slab 0, then 1 to 31
 *
 * So a block's slab is found from its address by masking, descriptors lie densely (a flush of
 * scattered blocks touches few lines) and blocks need no space for anything. Slab 0 is shorter by
 * the head. Only classes below 64 bytes have more than 1,024 blocks and touch the third part.
 *
 * Which chunk serves: the one with fewest free slabs, so that chunks fill up and empty ones appear.
 * A slab that becomes empty keeps its pages for a second (kv_chunk_sample counts), then they go
 * back; a chunk whose slabs are all empty is unmapped then, but for one. Chunks with such slabs
 * queue in the order in which the first one became empty, so that a sample looks at those alone
 * whose time has come, however large the heap is.
 *
 * Huge pages. From the 17th chunk on (32 MiB) a chunk asks for a huge page when it is mapped: a
 * heap of that size fills the chunk anyway, and random accesses to millions of entries save page
 * walks. Before pages are returned the wish is withdrawn, else the kernel would make the chunk
 * whole again and resident memory would not fall. Smaller heaps stay on small pages, so that a
 * small server is small.
 *
 * Locks: one mutex for the lists and masks. No system call is made under it: the slab or chunk
 * concerned is taken out first.
 *
 * Rejected: descriptors inside the slabs (all of them would share a few cache sets); giving back
 * single pages inside slabs in use (evacuation empties the slabs instead).
 */
#include "base/clock.h"
#include "mem/mem_priv.h"

#if MEM_SLABS

#include <sys/mman.h>

#define HEAD_BYTES ((size_t)20 << 10)
#define HUGE_FROM_CHUNKS 16
#define PURGE_NS 1000000 /* a sample returns pages for this long, then leaves the rest */
#define LIST_FULL 3
#define LIST_COUNT 4

static_assert(sizeof(struct slab) == 64, "one cache line a descriptor");
static_assert(sizeof(struct chunk) <= LOW_AT, "descriptors fit their page");
static_assert(LOW_AT + CHUNK_SLABS * LOW_BYTES <= HIGH_AT, "low free bits fit");
static_assert(HIGH_AT + CHUNK_SLABS * HIGH_BYTES <= HEAD_BYTES, "high free bits fit");
static_assert((LOW_BYTES + HIGH_BYTES) * 8 == SLAB_CAPACITY_MAX, "a bit per block");
static_assert(HEAD_BYTES % ALIGN_SLAB == 0 && HEAD_BYTES % PAGE_BYTES == 0, "slab 0 is aligned");
static_assert(CHUNK_BYTES == CHUNK_SLABS * SLAB_BYTES, "slabs fill a chunk");

static struct kv_mutex pool_mutex = KV_MUTEX_INIT(KV_RANK_MEM_CHUNK);
/* All below: pool_mutex. Lists: few free slabs, some, all but few; then chunks without any. */
static struct chunk *lists[LIST_COUNT];
static struct chunk *dirty_first, *dirty_last; /* by dirty_tick */
static struct chunk_totals totals;             /* but for metadata_bytes */
static uint32_t tick;                          /* samples so far */

static uint8_t list_for(uint32_t free_slabs)
{
    int n = __builtin_popcount(free_slabs);
    if (n == 0)
        return LIST_FULL;
    return n <= 4 ? 0 : n <= 16 ? 1 : 2;
}

static void list_remove(struct chunk *c)
{
    if (c->next != NULL)
        c->next->prev = c->prev;
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        lists[c->list] = c->next;
}

static void list_insert(struct chunk *c)
{
    c->list = list_for(c->free_slabs);
    c->prev = NULL;
    c->next = lists[c->list];
    if (c->next != NULL)
        c->next->prev = c;
    lists[c->list] = c;
}

static void list_update(struct chunk *c)
{
    if (list_for(c->free_slabs) == c->list)
        return;
    list_remove(c);
    list_insert(c);
}

static void dirty_insert(struct chunk *c, uint32_t since)
{
    c->dirty_tick = since;
    c->dirty_next = NULL;
    c->dirty_prev = dirty_last;
    if (dirty_last != NULL)
        dirty_last->dirty_next = c;
    else
        dirty_first = c;
    dirty_last = c;
}

static void dirty_remove(struct chunk *c)
{
    KV_DASSERT(dirty_first != NULL && dirty_last != NULL);
    if (c->dirty_next != NULL)
        c->dirty_next->dirty_prev = c->dirty_prev;
    else
        dirty_last = c->dirty_prev;
    if (c->dirty_prev != NULL)
        c->dirty_prev->dirty_next = c->dirty_next;
    else
        dirty_first = c->dirty_next;
}

static void *map_aligned(void)
{
    const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *p = mmap(NULL, CHUNK_BYTES, prot, flags, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if ((uintptr_t)p % CHUNK_BYTES == 0) {
        MEM_ROOTS_ADD(p, CHUNK_BYTES);
        return p;
    }
    munmap(p, CHUNK_BYTES);
    p = mmap(NULL, 2 * CHUNK_BYTES, prot, flags, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    size_t before = CHUNK_BYTES - (uintptr_t)p % CHUNK_BYTES;
    if (before != CHUNK_BYTES)
        munmap(p, before);
    else
        before = 0;
    munmap(p + before + CHUNK_BYTES, CHUNK_BYTES - before);
    MEM_ROOTS_ADD(p + before, CHUNK_BYTES);
    return p + before;
}

static char *slab_start(const struct chunk *c, unsigned i)
{
    return (char *)(uintptr_t)c + (i == 0 ? HEAD_BYTES : i * SLAB_BYTES);
}

static size_t slab_space(unsigned i)
{
    return i == 0 ? SLAB_BYTES - HEAD_BYTES : SLAB_BYTES;
}

static unsigned slab_index(const struct slab *s)
{
    return (unsigned)(s - chunk_of(s)->slabs);
}

/* The page has memory. Asked right after the first write to its chunk: then it tells whether that
 * one was given a huge page, which may be switched off for the process or have run out. */
static bool is_resident(void *page)
{
    unsigned char state = 0;
    return mincore(page, PAGE_BYTES, &state) == 0 && (state & 1);
}

static struct chunk *chunk_map(bool huge)
{
    struct chunk *c = map_aligned();
    if (c == NULL)
        return NULL;
    KV_ASSERT((uintptr_t)c % CHUNK_BYTES == 0);
    /* Where the system has no huge pages the call fails and nothing is lost. The other way round
     * it matters where they are given unasked. */
    bool advised = madvise(c, CHUNK_BYTES, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE) == 0;
    c->huge = huge && advised;
    c->free_slabs = UINT32_MAX;
    bool whole = c->huge && is_resident((char *)c + CHUNK_BYTES - PAGE_BYTES);
    for (unsigned i = 0; i < CHUNK_SLABS; i++) {
        struct slab *s = &c->slabs[i];
        s->first = slab_start(c, i);
        s->low_words = slab_word(c, i, 0);
        s->high_words = slab_word(c, i, LOW_WORDS);
        s->list = FULLNESS_COUNT;
        s->resident_bytes = whole ? (uint32_t)slab_space(i) : 0;
    }
    return c;
}

/* Slabs of a chunk enter (1) or leave (-1) the empty ones. */
static void count_empty(const struct chunk *c, uint32_t slabs, int sign)
{
    for (; slabs != 0; slabs &= slabs - 1) {
        totals.slabs_empty += (uint64_t)(int64_t)sign;
        totals.unused_bytes +=
            (uint64_t)(sign * (int64_t)c->slabs[__builtin_ctz(slabs)].resident_bytes);
    }
}

/* A chunk with a free slab. pool_mutex held, but released while the system is asked. */
static struct chunk *chunk_with_room(void)
{
    for (unsigned i = 0; i < LIST_FULL; i++)
        if (lists[i] != NULL)
            return lists[i];
    bool huge = totals.chunks >= HUGE_FROM_CHUNKS;
    kv_mutex_unlock(&pool_mutex);
    struct chunk *c = chunk_map(huge);
    kv_mutex_lock(&pool_mutex);
    if (c != NULL) {
        list_insert(c);
        totals.chunks++;
        totals.huge_chunks += c->huge;
        count_empty(c, UINT32_MAX, 1);
    }
    return c;
}

static void slab_prepare(struct slab *s, unsigned class_index)
{
    size_t size = kv_mem_class_bytes[class_index];
    size_t capacity = KV_MIN(slab_space(slab_index(s)) / size, (size_t)SLAB_CAPACITY_MAX);
    KV_ASSERT(capacity > FULLNESS_COUNT);
    s->class_index = (uint8_t)class_index;
    s->capacity = s->free_count = (uint16_t)capacity;
    s->free_word = 0;
    s->list_factor = (uint16_t)((FULLNESS_COUNT << 16) / capacity);
    s->reciprocal = slab_reciprocal(size);
    for (unsigned word = 0; word * 64 < capacity; word++) {
        size_t left = capacity - word * 64;
        uint64_t bits = left >= 64 ? UINT64_MAX : ((uint64_t)1 << left) - 1;
        *slab_word(chunk_of(s), slab_index(s), word) = bits;
    }
}

struct slab *kv_chunk_slab_take(unsigned class_index)
{
    KV_ASSERT(class_index < KV_MEM_CLASS_COUNT);
    kv_mutex_lock(&pool_mutex);
    struct chunk *c = chunk_with_room();
    if (c == NULL) {
        kv_mutex_unlock(&pool_mutex);
        return NULL;
    }
    /* One with pages first, then the lowest. */
    uint32_t choice = c->dirty_slabs != 0 ? c->dirty_slabs : c->free_slabs;
    KV_ASSERT(choice != 0);
    unsigned i = (unsigned)__builtin_ctz(choice);
    struct slab *s = &c->slabs[i];
    c->free_slabs &= ~(1u << i);
    if (c->dirty_slabs == 1u << i)
        dirty_remove(c);
    c->dirty_slabs &= ~(1u << i);
    list_update(c);
    count_empty(c, 1u << i, -1);
    kv_mutex_unlock(&pool_mutex);
    KV_ASSERT(s->capacity == 0);
    slab_prepare(s, class_index);
    return s;
}

void kv_chunk_slab_give(struct slab *s)
{
    struct chunk *c = chunk_of(s);
    uint32_t bit = 1u << slab_index(s);
    KV_ASSERT(s->free_count == s->capacity && s->capacity != 0);
    s->capacity = s->free_count = 0;
    s->list = FULLNESS_COUNT;
    atomic_store_explicit(&s->flags, 0, memory_order_relaxed);
    kv_mutex_lock(&pool_mutex);
    KV_ASSERT(!(c->free_slabs & bit));
    c->free_slabs |= bit;
    s->freed_tick = tick;
    if (s->resident_bytes != 0) {
        if (c->dirty_slabs == 0)
            dirty_insert(c, tick);
        c->dirty_slabs |= bit;
    }
    list_update(c);
    count_empty(c, bit, 1);
    kv_mutex_unlock(&pool_mutex);
}

/* --- giving back --- */

/* Slabs of a chunk that have been empty for long; they leave the free mask meanwhile. The chunk is
 * out of the queue before, and in it afterwards if it has younger ones. */
static uint32_t take_old(struct chunk *c, uint32_t age)
{
    KV_ASSERT((c->dirty_slabs & ~c->free_slabs) == 0);
    uint32_t old = 0, rest_age = 0;
    for (uint32_t bits = c->dirty_slabs; bits != 0; bits &= bits - 1) {
        unsigned i = (unsigned)__builtin_ctz(bits);
        uint32_t empty_for = tick - c->slabs[i].freed_tick;
        if (empty_for >= age)
            old |= 1u << i;
        else
            rest_age = KV_MAX(rest_age, empty_for);
    }
    c->free_slabs &= ~old;
    c->dirty_slabs &= ~old;
    if (c->dirty_slabs != 0)
        dirty_insert(c, tick - rest_age);
    list_update(c);
    return old;
}

/* A chunk of which pages are to be returned; what is concerned is out of its masks. */
struct victim {
    struct chunk *chunk;
    uint32_t slabs;
    bool huge;  /* it was one huge page: the wish has to be withdrawn */
    bool whole; /* all of it goes; it is out of every list */
};

/* True when there is something to return. */
static bool choose(struct chunk *c, uint32_t age, struct victim *v)
{
    *v = (struct victim){.chunk = c, .slabs = take_old(c, age)};
    if (v->slabs == 0)
        return false;
    count_empty(c, v->slabs, -1);
    totals.huge_chunks -= c->huge;
    v->huge = c->huge;
    c->huge = false;
    v->whole = (c->free_slabs | v->slabs) == UINT32_MAX && c->dirty_slabs == 0 && totals.chunks > 1;
    if (v->whole) {
        count_empty(c, c->free_slabs, -1);
        list_remove(c);
        totals.chunks--;
    }
    return true;
}

/* The queue is in order of dirty_tick, or nearly so: what is behind a young one can wait. */
static bool choose_first(uint32_t age, struct victim *v)
{
    while (dirty_first != NULL && tick - dirty_first->dirty_tick >= age) {
        struct chunk *c = dirty_first;
        dirty_remove(c);
        if (choose(c, age, v))
            return true;
    }
    return false;
}

/* Neighbouring slabs in one call. */
static void return_pages(struct chunk *c, uint32_t slabs, bool huge)
{
    KV_ASSERT(slabs != 0);
    if (huge)
        madvise(c, CHUNK_BYTES, MADV_NOHUGEPAGE);
    for (unsigned first = 0, end; first < CHUNK_SLABS; first = end + 1) {
        end = first;
        while (end < CHUNK_SLABS && slabs >> end & 1)
            end++;
        char *start = slab_start(c, first);
        size_t bytes = (size_t)((char *)c + end * SLAB_BYTES - start);
        if (end == first || madvise(start, bytes, MADV_DONTNEED) != 0)
            continue;
        for (unsigned i = first; i < end; i++)
            c->slabs[i].resident_bytes = 0;
    }
}

static void return_victim(const struct victim *v)
{
    if (v->whole) {
        MEM_UNPOISON(v->chunk, CHUNK_BYTES);
        MEM_ROOTS_REMOVE(v->chunk, CHUNK_BYTES);
        munmap(v->chunk, CHUNK_BYTES);
    } else {
        return_pages(v->chunk, v->slabs, v->huge);
    }
}

/* The slabs without pages are free again. pool_mutex held. */
static void rejoin(const struct victim *v)
{
    struct chunk *c = v->chunk;
    KV_ASSERT((c->free_slabs & v->slabs) == 0);
    c->free_slabs |= v->slabs;
    list_update(c);
    count_empty(c, v->slabs, 1);
}

void kv_chunk_sample(uint32_t age)
{
    struct victim v;
    uint64_t end_ns = age == 0 ? UINT64_MAX : kv_clock_mono_ns() + PURGE_NS;
    kv_mutex_lock(&pool_mutex);
    tick++;
    while (choose_first(age, &v)) {
        kv_mutex_unlock(&pool_mutex);
        return_victim(&v);
        bool in_time = kv_clock_mono_ns() < end_ns;
        kv_mutex_lock(&pool_mutex);
        if (!v.whole)
            rejoin(&v);
        if (!in_time)
            break;
    }
    kv_mutex_unlock(&pool_mutex);
}

void kv_chunk_totals(struct chunk_totals *out)
{
    kv_mutex_lock(&pool_mutex);
    *out = totals;
    kv_mutex_unlock(&pool_mutex);
    KV_ASSERT(out->huge_chunks <= out->chunks);
    KV_ASSERT(out->slabs_empty <= out->chunks * CHUNK_SLABS);
    out->metadata_bytes =
        (out->chunks - out->huge_chunks) * HIGH_AT + out->huge_chunks * HEAD_BYTES;
}

#endif
