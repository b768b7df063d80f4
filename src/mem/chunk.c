/* Chunks: memory of the system in pieces of 2 MiB, handed out as slabs of 64 KiB.
 *
 * Layout of a chunk, which is aligned to its size:
 *
 *     descriptors of 32 slabs | free bits: 1,024 per slab | 3,072 more per slab | slab 0 | 1 | ...
 * 31 0                         LOW_AT (one page)           HIGH_AT (three)       HEAD_BYTES
 *
 * So a block's slab is found from its address by masking, descriptors lie densely (a flush of
 * scattered blocks touches few lines) and blocks need no space for anything. Slab 0 is shorter by
 * the head. Only classes below 64 bytes have more than 1,024 blocks and touch the third part.
 *
 * Which chunk serves: the one with fewest free slabs, so that chunks fill up and empty ones appear.
 * A slab that becomes empty keeps its pages for a second (kv_chunk_sample counts), then they go
 * back; a chunk whose slabs are all empty is unmapped then, but for one.
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

#define LOW_AT PAGE_BYTES
#define LOW_BYTES 128 /* free bits of 1,024 blocks */
#define HIGH_AT (2 * PAGE_BYTES)
#define HIGH_BYTES 384 /* of 3,072 blocks */
#define HEAD_BYTES ((size_t)20 << 10)
#define HUGE_FROM_CHUNKS 16
#define PURGE_NS 1000000 /* a sample returns pages for this long, then leaves the rest */
#define VICTIMS 16       /* chunks that are worked on between two looks at the lists */
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
static struct chunk *all_chunks;
static uint64_t chunk_count;
static uint64_t dirty_count; /* empty slabs whose pages are still there */
static uint32_t tick;        /* samples so far */

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

static void *map_aligned(void)
{
    const int prot = PROT_READ | PROT_WRITE, flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *p = mmap(NULL, CHUNK_BYTES, prot, flags, -1, 0);
    if (p == MAP_FAILED)
        return NULL;
    if ((uintptr_t)p % CHUNK_BYTES == 0)
        return p;
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

static struct chunk *chunk_map(bool huge)
{
    struct chunk *c = map_aligned();
    if (c == NULL)
        return NULL;
    /* Where the system has no huge pages the call fails and nothing is lost. */
    c->huge = huge && madvise(c, CHUNK_BYTES, MADV_HUGEPAGE) == 0;
    c->free_slabs = UINT32_MAX;
    for (unsigned i = 0; i < CHUNK_SLABS; i++) {
        struct slab *s = &c->slabs[i];
        s->first = slab_start(c, i);
        s->low_words = (uint64_t *)((char *)c + LOW_AT + i * LOW_BYTES);
        s->high_words = (uint64_t *)((char *)c + HIGH_AT + i * HIGH_BYTES);
        s->list = FULLNESS_COUNT;
        s->resident_bytes = c->huge ? (uint32_t)slab_space(i) : 0;
    }
    return c;
}

static void all_link(struct chunk *c)
{
    c->all_prev = NULL;
    c->all_next = all_chunks;
    if (all_chunks != NULL)
        all_chunks->all_prev = c;
    all_chunks = c;
    chunk_count++;
}

static void all_unlink(struct chunk *c)
{
    if (c->all_next != NULL)
        c->all_next->all_prev = c->all_prev;
    if (c->all_prev != NULL)
        c->all_prev->all_next = c->all_next;
    else
        all_chunks = c->all_next;
    chunk_count--;
}

/* A chunk with a free slab. pool_mutex held, but released while the system is asked. */
static struct chunk *chunk_with_room(void)
{
    for (unsigned i = 0; i < LIST_FULL; i++)
        if (lists[i] != NULL)
            return lists[i];
    bool huge = chunk_count >= HUGE_FROM_CHUNKS;
    kv_mutex_unlock(&pool_mutex);
    struct chunk *c = chunk_map(huge);
    kv_mutex_lock(&pool_mutex);
    if (c != NULL) {
        all_link(c);
        list_insert(c);
    }
    return c;
}

static void slab_prepare(struct slab *s, unsigned class_index)
{
    size_t size = kv_mem_class_bytes[class_index];
    size_t capacity = KV_MIN(slab_space(slab_index(s)) / size, (size_t)SLAB_CAPACITY_MAX);
    s->class_index = (uint8_t)class_index;
    s->capacity = s->free_count = (uint16_t)capacity;
    s->free_word = 0;
    s->reciprocal = (uint32_t)((((uint64_t)1 << 32) + size - 1) / size);
    for (unsigned word = 0; word * 64 < capacity; word++) {
        size_t left = capacity - word * 64;
        uint64_t bits = left >= 64 ? UINT64_MAX : ((uint64_t)1 << left) - 1;
        *(word < 16 ? &s->low_words[word] : &s->high_words[word - 16]) = bits;
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
    dirty_count -= c->dirty_slabs >> i & 1;
    c->free_slabs &= ~(1u << i);
    c->dirty_slabs &= ~(1u << i);
    list_update(c);
    kv_mutex_unlock(&pool_mutex);
    struct slab *s = &c->slabs[i];
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
        c->dirty_slabs |= bit;
        dirty_count++;
    }
    list_update(c);
    kv_mutex_unlock(&pool_mutex);
}

/* --- giving back --- */

/* Slabs of a chunk that have been empty for long; they leave the free mask meanwhile. */
static uint32_t take_old(struct chunk *c, uint32_t age)
{
    uint32_t old = 0;
    for (uint32_t bits = c->dirty_slabs; bits != 0; bits &= bits - 1) {
        unsigned i = (unsigned)__builtin_ctz(bits);
        if (tick - c->slabs[i].freed_tick >= age)
            old |= 1u << i;
    }
    c->free_slabs &= ~old;
    c->dirty_slabs &= ~old;
    dirty_count -= (uint64_t)__builtin_popcount(old);
    list_update(c);
    return old;
}

static void return_pages(struct chunk *c, uint32_t slabs, bool huge)
{
    if (huge)
        madvise(c, CHUNK_BYTES, MADV_NOHUGEPAGE);
    for (; slabs != 0; slabs &= slabs - 1) {
        unsigned i = (unsigned)__builtin_ctz(slabs);
        if (madvise(slab_start(c, i), slab_space(i), MADV_DONTNEED) == 0)
            c->slabs[i].resident_bytes = 0;
    }
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
    if (c->dirty_slabs == 0 && c->free_slabs != UINT32_MAX)
        return false;
    *v = (struct victim){.chunk = c, .slabs = take_old(c, age)};
    v->whole = (c->free_slabs | v->slabs) == UINT32_MAX && c->dirty_slabs == 0 && chunk_count > 1;
    if (v->whole) {
        list_remove(c);
        all_unlink(c);
    } else if (v->slabs != 0) {
        v->huge = c->huge;
        c->huge = false;
    }
    return v->whole || v->slabs != 0;
}

static unsigned choose_batch(uint32_t age, struct victim *victims)
{
    unsigned n = 0;
    for (unsigned i = 0; i < LIST_FULL && dirty_count > 0; i++) {
        struct chunk *next;
        for (struct chunk *c = lists[i]; c != NULL && n < VICTIMS; c = next) {
            next = c->next;
            n += choose(c, age, &victims[n]);
        }
    }
    return n;
}

static void return_batch(const struct victim *victims, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct chunk *c = victims[i].chunk;
        if (victims[i].whole) {
            MEM_UNPOISON(c, CHUNK_BYTES);
            munmap(c, CHUNK_BYTES);
        } else {
            return_pages(c, victims[i].slabs, victims[i].huge);
        }
    }
}

void kv_chunk_sample(uint32_t age)
{
    struct victim victims[VICTIMS];
    uint64_t end_ns = age == 0 ? UINT64_MAX : kv_clock_mono_ns() + PURGE_NS;
    unsigned n;
    kv_mutex_lock(&pool_mutex);
    tick++;
    do {
        n = choose_batch(age, victims);
        kv_mutex_unlock(&pool_mutex);
        return_batch(victims, n);
        kv_mutex_lock(&pool_mutex);
        for (unsigned i = 0; i < n; i++) {
            if (victims[i].whole)
                continue;
            victims[i].chunk->free_slabs |= victims[i].slabs;
            list_update(victims[i].chunk);
        }
    } while (n == VICTIMS && kv_clock_mono_ns() < end_ns);
    kv_mutex_unlock(&pool_mutex);
}

void kv_chunk_totals(struct chunk_totals *out)
{
    *out = (struct chunk_totals){0};
    kv_mutex_lock(&pool_mutex);
    out->chunks = chunk_count;
    for (const struct chunk *c = all_chunks; c != NULL; c = c->all_next) {
        out->huge_chunks += c->huge;
        out->metadata_bytes += c->huge ? HEAD_BYTES : HIGH_AT;
        for (uint32_t bits = c->free_slabs; bits != 0; bits &= bits - 1) {
            out->slabs_empty++;
            out->unused_bytes += c->slabs[__builtin_ctz(bits)].resident_bytes;
        }
    }
    kv_mutex_unlock(&pool_mutex);
}

#endif
