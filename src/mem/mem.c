/* The allocator front: sized frees, owners, counters with one writer.
 *
 * Layout. In release builds a block is a plain jemalloc allocation and carries nothing; its size is
 * known because kv_mem_block_size is a pure function that kv_mem_init compares with the allocator
 * over all small sizes and around every class boundary. Allocation goes through malloc (jemalloc
 * inlines a shorter path there than in mallocx) and release through sdallocx, which never looks a
 * size up. Debug builds and builds on the C library (KV_MEM_SYSTEM, for sanitizers) put a header of
 * 16 bytes before the block:
 *
 *     base ... | size 8 | magic 4 | owner 1 | log2 of align 1 | 0 0 | block of block_size bytes
 *
 * It keeps what the caller asked for, so that a wrong size, a wrong owner, a second free or a write
 * in front of the block ends the process with both numbers. Nothing follows the block, so that
 * AddressSanitizer sees the first byte behind it.
 *
 * Counting. Each thread has a slot of its own, found through an initial-exec thread-local pointer
 * and filled with load, add, store. A slot may go negative: blocks are freed by other threads than
 * their makers. Readers sum all slots under `list_mutex` and add what ended threads left in
 * `ended_used`. The slot is made at the thread's first allocation.
 *
 * Invariants: the sum over slots and ended_used per owner is the number of bytes of live blocks,
 * whole blocks counted. Slots themselves and allocator metadata are not counted.
 *
 * Threads: everything here may be called by any thread, after kv_mem_init.
 *
 * Rejected: counting by thread.allocated of jemalloc (no owners, and a call per reading); a count
 * in a shared atomic with batching (it loses exactness to the byte); asking sallocx at free (a
 * cache miss per free, which is what this layer exists to avoid); mallocx throughout (3 ns more
 * than malloc for a pair of calls that costs 7, since it decodes flags).
 */
#include "mem/mem.h"
#include "base/lock.h"
#include "base/stat.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef KV_MEM_SYSTEM
#include <jemalloc/jemalloc.h>
#endif

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)

#if defined(KV_DEBUG) || defined(KV_MEM_SYSTEM)
#define HAVE_HEADER 1
#else
#define HAVE_HEADER 0
#endif

#define ALIGN_PLAIN ((size_t)8) /* what every block has, told or not */
#define ALIGN_FREE ((size_t)16) /* what blocks of 16 bytes and more have by themselves */
#define ALIGN_MAX ((size_t)4096)
#define LARGE_MIN ((size_t)16384) /* jemalloc's first class that is not cut from a slab */

#ifndef KV_MEM_SYSTEM
/* Read by jemalloc before main. Few arenas, since a small server should stay small and the tcache
 * takes most contention away; no background thread, since kv_mem_sample drives the decay. Slabs of
 * small classes are eight pages instead of one: jemalloc keeps 128 bytes about each slab, which is
 * 2 bytes a block of 64 with one page. */
const char *malloc_conf __attribute__((visibility("default"), used)) =
    "narenas:4,background_thread:false,dirty_decay_ms:1000,muzzy_decay_ms:0,"
    "slab_sizes:1-1024:8";
#endif

struct slot {
    kv_gauge used_bytes[KV_MEM_OWNER_COUNT]; /* written by the owning thread alone */
    struct slot *next;                       /* list of live slots; list_mutex */
    struct slot *prev;
} KV_ALIGNED(KV_CACHE_LINE);

static_assert(sizeof(struct slot) % KV_CACHE_LINE == 0, "slots of two threads share no line");
static_assert(KV_MEM_OWNER_COUNT < 256, "an owner fits the debug header's byte");

static struct kv_mutex list_mutex = KV_MUTEX_INIT(KV_RANK_MEM);
static struct slot *slot_list;                 /* live slots; list_mutex */
static int64_t ended_used[KV_MEM_OWNER_COUNT]; /* bytes, left by ended threads; list_mutex */
static _Atomic(uint64_t) peak_bytes;           /* highest total sampled */
static bool ready;                             /* kv_mem_init has run; constant afterwards */
static _Thread_local struct slot *thread_slot  /* NULL before the first allocation */
    __attribute__((tls_model("initial-exec")));

static const char *const owner_names[] = {
    [KV_MEM_ENTRY] = "entry",
    [KV_MEM_VALUE] = "value",
    [KV_MEM_TABLE] = "table",
    [KV_MEM_EXPIRY] = "expiry",
    [KV_MEM_CLIENT] = "client",
    [KV_MEM_CLIENT_INPUT] = "client_input",
    [KV_MEM_CLIENT_OUTPUT] = "client_output",
    [KV_MEM_WATCH] = "watch",
    [KV_MEM_STREAM] = "stream",
    [KV_MEM_ARENA] = "arena",
    [KV_MEM_SCRIPT] = "script",
    [KV_MEM_CONFIG] = "config",
    [KV_MEM_SLOWLOG] = "slowlog",
    [KV_MEM_OTHER] = "other",
};
static_assert(KV_ARRAY_LEN(owner_names) == KV_MEM_OWNER_COUNT, "every owner has a name");

const char *kv_mem_owner_name(enum kv_mem_owner owner)
{
    KV_ASSERT((unsigned)owner < KV_MEM_OWNER_COUNT);
    return owner_names[owner];
}

/* --- the allocator underneath --- */

/* What an aligned request is rounded to, so that its class has the alignment by itself. */
static size_t aligned_size(size_t size, size_t align)
{
    KV_DASSERT(align != 0 && (align & (align - 1)) == 0);
    return (size + (size == 0) + align - 1) & ~(align - 1);
}

#ifdef KV_MEM_SYSTEM

static void *raw_alloc(size_t bytes, size_t align, bool zero)
{
    if (align <= ALIGN_FREE)
        return zero ? calloc(1, bytes) : malloc(bytes);
    void *p = NULL;
    if (posix_memalign(&p, align, bytes) != 0)
        return NULL;
    if (zero)
        memset(p, 0, bytes);
    return p;
}

static void raw_free(void *p, size_t bytes, size_t align)
{
    (void)bytes;
    (void)align;
    free(p);
}

#else

static inline void *raw_alloc(size_t bytes, size_t align, bool zero)
{
    if (KV_LIKELY(align <= ALIGN_FREE))
        return zero ? calloc(1, bytes) : malloc(bytes);
    return mallocx(bytes, MALLOCX_ALIGN(align) | (zero ? MALLOCX_ZERO : 0));
}

static inline void raw_free(void *p, size_t bytes, size_t align)
{
    sdallocx(p, bytes, KV_LIKELY(align <= ALIGN_FREE) ? 0 : MALLOCX_ALIGN(align));
}

#endif

/* --- slots --- */

static KV_COLD struct slot *slot_create(void)
{
    KV_ASSERT(ready);
    struct slot *s = raw_alloc(sizeof *s, KV_CACHE_LINE, true);
    if (s == NULL)
        kv_panic("out of memory: no %zu bytes for the counters of a thread", sizeof *s);
    kv_mutex_lock(&list_mutex);
    s->next = slot_list;
    if (slot_list != NULL)
        slot_list->prev = s;
    slot_list = s;
    kv_mutex_unlock(&list_mutex);
    thread_slot = s;
    return s;
}

static inline void count(enum kv_mem_owner owner, int64_t bytes)
{
    KV_DASSERT((unsigned)owner < KV_MEM_OWNER_COUNT);
    struct slot *s = thread_slot;
    if (KV_UNLIKELY(s == NULL))
        s = slot_create();
    kv_gauge_add(&s->used_bytes[owner], bytes);
}

void kv_mem_thread_exit(void)
{
    struct slot *s = thread_slot;
    if (s == NULL)
        return;
    thread_slot = NULL;
    kv_mutex_lock(&list_mutex);
    for (unsigned owner = 0; owner < KV_MEM_OWNER_COUNT; owner++)
        ended_used[owner] += kv_gauge_read(&s->used_bytes[owner]);
    if (s->next != NULL)
        s->next->prev = s->prev;
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        slot_list = s->next;
    kv_mutex_unlock(&list_mutex);
    raw_free(s, sizeof *s, KV_CACHE_LINE);
}

/* --- blocks: with a header in debug and sanitizer builds, bare in release --- */

#if HAVE_HEADER

#define MAGIC_LIVE 0x6b76b10cu
#define MAGIC_DEAD 0xdeadb10cu
#define POISON_FRESH 0xa5
#define POISON_FREED 0xdd
#define POISON_MAX ((size_t)1 << 20) /* bytes; more would make large tests crawl */

struct header {
    uint64_t size; /* bytes asked for */
    uint32_t magic;
    uint8_t owner;
    uint8_t align_log2;
    uint8_t zero[2];
};
static_assert(sizeof(struct header) == 16, "the header keeps blocks 16-aligned");

static struct header *header_of(void *ptr)
{
    return (struct header *)((char *)ptr - sizeof(struct header));
}

static size_t lead_of(size_t align)
{
    return KV_MAX(align, ALIGN_FREE);
}

static void *block_alloc(size_t size, size_t align, bool zero, enum kv_mem_owner owner)
{
    size_t block = kv_mem_block_size(size);
    char *base = raw_alloc(lead_of(align) + block, align, zero);
    if (base == NULL)
        return NULL;
    char *ptr = base + lead_of(align);
    struct header *h = header_of(ptr);
    *h = (struct header){.size = size, .magic = MAGIC_LIVE, .owner = (uint8_t)owner};
    h->align_log2 = (uint8_t)__builtin_ctzl(align);
    if (!zero)
        memset(ptr, POISON_FRESH, KV_MIN(block, POISON_MAX));
    return ptr;
}

/* Ends the process unless the block is live and is what the caller says. */
static void block_verify(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    const struct header *h = header_of(ptr);
    if (h->magic == MAGIC_DEAD)
        kv_panic("memory: block %p of %s was freed before", ptr, kv_mem_owner_name(owner));
    if (h->magic != MAGIC_LIVE || h->owner >= KV_MEM_OWNER_COUNT)
        kv_panic("memory: %p of %s is no block, or the bytes before it were overwritten", ptr,
                 kv_mem_owner_name(owner));
    const char *true_name = kv_mem_owner_name((enum kv_mem_owner)h->owner);
    if (h->align_log2 != __builtin_ctzl(align))
        kv_panic("memory: block of %s aligned to %zu bytes is told to be aligned to %zu", true_name,
                 (size_t)1 << h->align_log2, align);
    if (kv_mem_block_size(size) != kv_mem_block_size(h->size))
        kv_panic("memory: block of %s has %zu bytes (class %zu), told %zu (class %zu)", true_name,
                 (size_t)h->size, kv_mem_block_size(h->size), size, kv_mem_block_size(size));
    if (h->owner != owner)
        kv_panic("memory: block of %zu bytes belongs to %s, told %s", (size_t)h->size, true_name,
                 kv_mem_owner_name(owner));
}

static void block_free(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    block_verify(ptr, size, align, owner);
    size_t block = kv_mem_block_size(size);
    header_of(ptr)->magic = MAGIC_DEAD;
    memset(ptr, POISON_FREED, KV_MIN(block, POISON_MAX));
    raw_free((char *)ptr - lead_of(align), lead_of(align) + block, align);
}

#else

static inline void *block_alloc(size_t size, size_t align, bool zero, enum kv_mem_owner owner)
{
    (void)owner;
    return raw_alloc(size + (size == 0), align, zero);
}

static inline void block_verify(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    (void)ptr, (void)size, (void)align, (void)owner;
}

static inline void block_free(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    (void)owner;
    raw_free(ptr, size + (size == 0), align);
}

#endif

/* --- failing on purpose --- */

#ifdef KV_DEBUG

static _Thread_local uint64_t try_fail_in; /* try allocations until one fails; 0 = none will */
static _Thread_local uint64_t try_count;   /* try allocations since kv_mem_fail_try */

bool kv_mem_try_refused(void)
{
    try_count++;
    return try_fail_in != 0 && --try_fail_in == 0;
}

uint64_t kv_mem_fail_try(uint64_t n)
{
    uint64_t happened = try_count;
    try_count = 0;
    try_fail_in = n;
    return happened;
}

#else

bool kv_mem_try_refused(void)
{
    return false;
}

uint64_t kv_mem_fail_try(uint64_t n)
{
    (void)n;
    return 0;
}

#endif

static inline bool refused(size_t size)
{
#ifdef KV_DEBUG
    if (kv_mem_try_refused())
        return true;
#endif
    return size > KV_MEM_SIZE_MAX;
}

/* --- allocating and freeing --- */

static KV_COLD KV_NORETURN void out_of_memory(size_t size, enum kv_mem_owner owner)
{
    kv_panic("out of memory: %zu bytes for %s, %lld bytes in use", size, kv_mem_owner_name(owner),
             (long long)kv_mem_used_total());
}

/* Budget in release: 12 instructions beside malloc's. */
static inline void *alloc_counted(size_t size, bool zero, enum kv_mem_owner owner)
{
    void *ptr = block_alloc(size, ALIGN_PLAIN, zero, owner);
    if (KV_LIKELY(ptr != NULL))
        count(owner, (int64_t)kv_mem_block_size(size));
    return ptr;
}

void *kv_mem_alloc(size_t size, enum kv_mem_owner owner)
{
    void *ptr = KV_LIKELY(size <= KV_MEM_SIZE_MAX) ? alloc_counted(size, false, owner) : NULL;
    if (KV_UNLIKELY(ptr == NULL))
        out_of_memory(size, owner);
    return ptr;
}

void *kv_mem_zalloc(size_t size, enum kv_mem_owner owner)
{
    void *ptr = KV_LIKELY(size <= KV_MEM_SIZE_MAX) ? alloc_counted(size, true, owner) : NULL;
    if (KV_UNLIKELY(ptr == NULL))
        out_of_memory(size, owner);
    return ptr;
}

void *kv_mem_try_alloc(size_t size, enum kv_mem_owner owner)
{
    if (KV_UNLIKELY(refused(size)))
        return NULL;
    return alloc_counted(size, false, owner);
}

void *kv_mem_try_zalloc(size_t size, enum kv_mem_owner owner)
{
    if (KV_UNLIKELY(refused(size)))
        return NULL;
    return alloc_counted(size, true, owner);
}

void *kv_mem_try_alloc_usable(size_t size, enum kv_mem_owner owner, size_t *usable)
{
    void *ptr = kv_mem_try_alloc(size, owner);
    if (KV_LIKELY(ptr != NULL))
        *usable = kv_mem_block_size(size);
    return ptr;
}

static void *alloc_aligned_counted(size_t size, size_t align, enum kv_mem_owner owner)
{
    KV_ASSERT(align != 0 && (align & (align - 1)) == 0);
    KV_ASSERT(align <= ALIGN_MAX);
    size = aligned_size(size, align);
    void *ptr = block_alloc(size, align, false, owner);
    if (ptr == NULL)
        return NULL;
    KV_ASSERT(((uintptr_t)ptr & (align - 1)) == 0);
    count(owner, (int64_t)kv_mem_block_size(size));
    return ptr;
}

void *kv_mem_alloc_aligned(size_t size, size_t align, enum kv_mem_owner owner)
{
    void *ptr = size <= KV_MEM_SIZE_MAX ? alloc_aligned_counted(size, align, owner) : NULL;
    if (KV_UNLIKELY(ptr == NULL))
        out_of_memory(size, owner);
    return ptr;
}

void *kv_mem_try_alloc_aligned(size_t size, size_t align, enum kv_mem_owner owner)
{
    if (KV_UNLIKELY(refused(size)))
        return NULL;
    return alloc_aligned_counted(size, align, owner);
}

void kv_mem_free_aligned(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    KV_ASSERT(align != 0 && (align & (align - 1)) == 0);
    if (ptr == NULL)
        return;
    size = aligned_size(size, align);
    block_free(ptr, size, align, owner);
    count(owner, -(int64_t)kv_mem_block_size(size));
}

/* Budget in release: 12 instructions beside sdallocx's. */
void kv_mem_free(void *ptr, size_t size, enum kv_mem_owner owner)
{
    if (KV_UNLIKELY(ptr == NULL))
        return;
    KV_DASSERT(size <= KV_MEM_SIZE_MAX);
    block_free(ptr, size, ALIGN_PLAIN, owner);
    count(owner, -(int64_t)kv_mem_block_size(size));
}

/* Gives a block another class. Large blocks are left to the allocator, which can grow them in place
 * or move their pages; small ones are copied, so that no size is looked up. */
static void *resize(void *ptr, size_t old_size, size_t new_size, enum kv_mem_owner owner)
{
    size_t old_block = kv_mem_block_size(old_size);
    size_t new_block = kv_mem_block_size(new_size);
    KV_DASSERT(old_block != new_block);
#if !HAVE_HEADER
    if (old_block >= LARGE_MIN && new_block >= LARGE_MIN) {
        void *moved = rallocx(ptr, new_size, 0);
        if (moved != NULL)
            count(owner, (int64_t)new_block - (int64_t)old_block);
        return moved;
    }
#endif
    void *fresh = alloc_counted(new_size, false, owner);
    if (fresh == NULL)
        return NULL;
    memcpy(fresh, ptr, KV_MIN(old_block, new_block));
    kv_mem_free(ptr, old_size, owner);
    return fresh;
}

/* The block keeps its class; the debug header learns the new size. */
static inline void *resize_in_class(void *ptr, size_t old_size, size_t new_size,
                                    enum kv_mem_owner owner)
{
    block_verify(ptr, old_size, ALIGN_PLAIN, owner);
    (void)new_size;
#if HAVE_HEADER
    header_of(ptr)->size = new_size;
#endif
    return ptr;
}

void *kv_mem_realloc(void *ptr, size_t old_size, size_t new_size, enum kv_mem_owner owner)
{
    if (ptr == NULL)
        return kv_mem_alloc(new_size, owner);
    if (kv_mem_block_size(old_size) == kv_mem_block_size(new_size))
        return resize_in_class(ptr, old_size, new_size, owner);
    block_verify(ptr, old_size, ALIGN_PLAIN, owner);
    void *moved = new_size <= KV_MEM_SIZE_MAX ? resize(ptr, old_size, new_size, owner) : NULL;
    if (KV_UNLIKELY(moved == NULL))
        out_of_memory(new_size, owner);
    return moved;
}

void *kv_mem_try_realloc(void *ptr, size_t old_size, size_t new_size, enum kv_mem_owner owner)
{
    if (ptr == NULL)
        return kv_mem_try_alloc(new_size, owner);
    if (new_size <= KV_MEM_SIZE_MAX && kv_mem_block_size(old_size) == kv_mem_block_size(new_size))
        return resize_in_class(ptr, old_size, new_size, owner);
    block_verify(ptr, old_size, ALIGN_PLAIN, owner);
    if (KV_UNLIKELY(refused(new_size)))
        return NULL;
    return resize(ptr, old_size, new_size, owner);
}

void kv_mem_reattribute(void *ptr, size_t size, enum kv_mem_owner from, enum kv_mem_owner to)
{
    KV_ASSERT(ptr != NULL);
    KV_ASSERT((unsigned)to < KV_MEM_OWNER_COUNT);
    block_verify(ptr, size, ALIGN_PLAIN, from);
#if HAVE_HEADER
    header_of(ptr)->owner = (uint8_t)to;
#endif
    int64_t block = (int64_t)kv_mem_block_size(size);
    count(from, -block);
    count(to, block);
}

char *kv_mem_strdup(const char *bytes, size_t len, enum kv_mem_owner owner)
{
    KV_ASSERT(bytes != NULL || len == 0);
    char *copy = kv_mem_alloc(len + 1, owner);
    if (len != 0)
        memcpy(copy, bytes, len);
    copy[len] = '\0';
    return copy;
}

/* --- reading the counters --- */

/* Sum over the owners from `first` to before `end`. */
static int64_t used_between(unsigned first, unsigned end)
{
    KV_DASSERT(first < end && end <= KV_MEM_OWNER_COUNT);
    int64_t sum = 0;
    kv_mutex_lock(&list_mutex);
    for (unsigned owner = first; owner < end; owner++)
        sum += ended_used[owner];
    for (const struct slot *s = slot_list; s != NULL; s = s->next) {
        for (unsigned owner = first; owner < end; owner++)
            sum += kv_gauge_read(&s->used_bytes[owner]);
    }
    kv_mutex_unlock(&list_mutex);
    return sum;
}

int64_t kv_mem_used(enum kv_mem_owner owner)
{
    KV_ASSERT((unsigned)owner < KV_MEM_OWNER_COUNT);
    return used_between(owner, (unsigned)owner + 1);
}

int64_t kv_mem_used_total(void)
{
    return used_between(0, KV_MEM_OWNER_COUNT);
}

static_assert(KV_MEM_ENTRY == 0 && KV_MEM_VALUE == 1 && KV_MEM_TABLE == 2 && KV_MEM_EXPIRY == 3,
              "the dataset's owners come first");

int64_t kv_mem_used_dataset(void)
{
    return used_between(KV_MEM_ENTRY, KV_MEM_EXPIRY + 1);
}

uint64_t kv_mem_peak(void)
{
    return atomic_load_explicit(&peak_bytes, memory_order_relaxed);
}

void kv_mem_peak_reset(void)
{
    int64_t total = kv_mem_used_total();
    atomic_store_explicit(&peak_bytes, (uint64_t)KV_MAX(total, 0), memory_order_relaxed);
}

void kv_mem_sample(void)
{
    int64_t total = kv_mem_used_total();
    if (total > 0)
        kv_stat_max(&peak_bytes, (uint64_t)total);
#ifndef KV_MEM_SYSTEM
    /* Without a background thread an idle arena would keep its dirty pages: pass its time on. */
    char name[32];
    snprintf(name, sizeof name, "arena.%u.decay", MALLCTL_ARENAS_ALL);
    mallctl(name, NULL, NULL, NULL, 0);
#endif
}

/* --- what the allocator and the system say --- */

static uint64_t read_rss_bytes(void)
{
    char text[128];
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0)
        return 0;
    text[got] = '\0';
    unsigned long long total_pages = 0, resident_pages = 0;
    if (sscanf(text, "%llu %llu", &total_pages, &resident_pages) != 2)
        return 0;
    return resident_pages * (uint64_t)sysconf(_SC_PAGESIZE);
}

#ifndef KV_MEM_SYSTEM

static uint64_t read_size_stat(const char *name)
{
    size_t value = 0;
    size_t len = sizeof value;
    if (mallctl(name, &value, &len, NULL, 0) != 0)
        return 0;
    return value;
}

void kv_mem_system_read(struct kv_mem_system *out)
{
    KV_ASSERT(out != NULL);
    uint64_t epoch = 1;
    mallctl("epoch", NULL, NULL, &epoch, sizeof epoch); /* refreshes the statistics */
    *out = (struct kv_mem_system){
        .allocated = read_size_stat("stats.allocated"),
        .active = read_size_stat("stats.active"),
        .resident = read_size_stat("stats.resident"),
        .retained = read_size_stat("stats.retained"),
        .metadata = read_size_stat("stats.metadata"),
        .rss = read_rss_bytes(),
    };
}

void kv_mem_purge(void)
{
    char name[32];
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    snprintf(name, sizeof name, "arena.%u.purge", MALLCTL_ARENAS_ALL);
    mallctl(name, NULL, NULL, NULL, 0);
}

const char *kv_mem_allocator_name(void)
{
    return "jemalloc-" STRING(JEMALLOC_VERSION_MAJOR) "." STRING(JEMALLOC_VERSION_MINOR) "." STRING(
        JEMALLOC_VERSION_BUGFIX);
}

void kv_mem_malloc_stats(void (*write)(void *arg, const char *text), void *arg)
{
    KV_ASSERT(write != NULL);
    malloc_stats_print(write, arg, NULL);
}

/* One size: the formula must be the allocator's answer. */
static void verify_size(size_t size)
{
    size_t truth = nallocx(size, 0);
    if (truth != kv_mem_block_size(size))
        kv_panic("jemalloc gives %zu bytes for %zu where %zu are expected: another build of it?",
                 truth, size, kv_mem_block_size(size));
}

static void verify_classes(void)
{
    for (size_t size = 1; size <= 4096; size++)
        verify_size(size);
    for (size_t size = 4096; size < KV_MEM_SIZE_MAX; size = kv_mem_block_size(size + 1)) {
        verify_size(size - 1);
        verify_size(size);
        verify_size(size + 1);
    }
    for (size_t align = 16; align <= ALIGN_MAX; align *= 2) {
        for (size_t size = 1; size <= 32768; size += 61)
            KV_ASSERT(nallocx(size, MALLOCX_ALIGN(align)) ==
                      kv_mem_block_size(aligned_size(size, align)));
    }
    /* sdallocx on a block of another malloc would be ruin: malloc must be jemalloc's. */
    uint64_t before = 0, after = 0;
    size_t len = sizeof before;
    mallctl("thread.allocated", &before, &len, NULL, 0);
    void *volatile probe = malloc(40);
    mallctl("thread.allocated", &after, &len, NULL, 0);
    free(probe);
    KV_ASSERT(after != before);
}

#else

void kv_mem_system_read(struct kv_mem_system *out)
{
    KV_ASSERT(out != NULL);
    uint64_t used = (uint64_t)KV_MAX(kv_mem_used_total(), 0);
    uint64_t rss = read_rss_bytes();
    *out = (struct kv_mem_system){.allocated = used, .active = used, .resident = rss, .rss = rss};
}

void kv_mem_purge(void)
{
}

const char *kv_mem_allocator_name(void)
{
    return "libc";
}

void kv_mem_malloc_stats(void (*write)(void *arg, const char *text), void *arg)
{
    KV_ASSERT(write != NULL);
    write(arg, "The C library's allocator keeps no statistics.\n");
}

static void verify_classes(void)
{
}

#endif

void kv_mem_thread_name(const char *name)
{
    (void)name;
}

void kv_mem_trim(void)
{
}

void kv_mem_publish(void)
{
}

int64_t kv_mem_used_published(void)
{
    return kv_mem_used_total() - kv_mem_used(KV_MEM_STREAM);
}

void kv_mem_report_read(struct kv_mem_report *out)
{
    *out = (struct kv_mem_report){0};
    for (unsigned i = 0; i < KV_MEM_OWNER_COUNT; i++)
        out->used[i] = kv_mem_used((enum kv_mem_owner)i);
    out->used_total = kv_mem_used_total();
    out->rss_bytes = read_rss_bytes();
}

void kv_mem_cache_each(void (*visit)(void *arg, const char *thread,
                                     const struct kv_mem_cache_stats *stats),
                       void *arg)
{
    (void)visit;
    (void)arg;
}

uint64_t kv_mem_evacuation_begin(void)
{
    return 0;
}

void kv_mem_evacuation_end(void)
{
}

bool kv_mem_evacuates(const void *ptr, size_t size)
{
    return kv_mem_block_size(size) != 0 && ((uintptr_t)ptr >> 4) % 8 == 0;
}

void *kv_mem_try_move(void *ptr, size_t size, enum kv_mem_owner owner)
{
    void *moved = kv_mem_try_alloc(size, owner);
    if (moved == NULL)
        return NULL;
    memcpy(moved, ptr, kv_mem_block_size(size));
    kv_mem_free(ptr, size, owner);
    return moved;
}

void kv_mem_init(void)
{
    KV_ASSERT(!ready);
    verify_classes();
    ready = true;
    if (thread_slot == NULL)
        slot_create();
}
