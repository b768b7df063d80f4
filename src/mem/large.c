/* The allocator below: what exceeds KV_MEM_SMALL_MAX, or asks for more alignment than slabs have.
 *
 * It is jemalloc, whose classes kv_mem_block_size knows (kv_large_init compares them over every
 * class), or the C library in sanitizer builds and in the library for other programs, which must
 * not bring another malloc along. Allocation goes through malloc (jemalloc inlines a shorter path
 * there than in mallocx), release through sdallocx, which never looks a size up.
 *
 * Its own slabs serve 1,280 to 14,336 bytes; those too can be nearly empty after many deletions. An
 * evacuation asks jemalloc about each such block (its introspection call tells how full the block's
 * slab is and how full all of the class are) and moves those in the emptier ones.
 *
 * Dirty pages go back a second after they became free. By itself jemalloc would do that inside some
 * later free: one that came after the deletion of 600 MB in blocks of up to 60 KB took 600 ms of
 * processor time, 2 ms with its background thread, which the first kv_large_sample starts (not
 * kv_large_init: a server that goes into the background forks after that). Where no thread can be
 * had, samples pass the time on.
 *
 * Threads: any.
 *
 * Rejected: extents of our own for large blocks (jemalloc's decay, coalescing and in-place growth
 * would have to be built again for no gain in the path of a command).
 *
 * Blocks from PAGED_MIN on are asked for page-aligned. By itself jemalloc starts them at a random
 * line of their first page, for the sake of cache sets, and reserves one page more for it: 16 KiB
 * would touch five pages. Aligned they touch four; the fifth is reserved and never resident, which
 * the report takes into account by counting these blocks.
 */
#include "mem/mem_priv.h"

#include <errno.h>
#include <stdlib.h>

#if MEM_JEMALLOC

#include <jemalloc/jemalloc.h>
#include <stdio.h>

#define STRING_OF(x) #x
#define STRING(x) STRING_OF(x)
#define SLAB_CLASS_MAX ((size_t)14336) /* its largest class that is cut from slabs */
#define PAGED_MIN ((size_t)16384)      /* and its first one that is not */
#define WASTE_MIN ((uint64_t)8 << 20)  /* less inside its slabs is not worth asking */

/* Read by jemalloc before main. Few arenas, since a small server should stay small and the tcache
 * takes most contention away. One background thread serves them. */
const char *malloc_conf __attribute__((visibility("default"), used)) =
    "narenas:4,background_thread:false,max_background_threads:1,dirty_decay_ms:1000,"
    "muzzy_decay_ms:0";

static int flags_for(size_t bytes, size_t align)
{
    if (bytes >= PAGED_MIN)
        return MALLOCX_ALIGN(PAGE_BYTES);
    return align <= ALIGN_FREE ? 0 : MALLOCX_ALIGN(align);
}

void *kv_large_alloc(size_t bytes, size_t align, bool zero)
{
    KV_DASSERT(bytes > 0 && align <= ALIGN_MAX);
    int flags = flags_for(bytes, align);
    if (flags == 0)
        return zero ? calloc(1, bytes) : malloc(bytes);
    void *ptr = mallocx(bytes, flags | (zero ? MALLOCX_ZERO : 0));
    if (ptr != NULL && bytes >= PAGED_MIN)
        kv_cache_count_paged(1);
    return ptr;
}

void kv_large_free(void *ptr, size_t bytes, size_t align)
{
    KV_DASSERT(ptr != NULL);
    sdallocx(ptr, bytes, flags_for(bytes, align));
    if (bytes >= PAGED_MIN)
        kv_cache_count_paged(-1);
}

void *kv_large_resize(void *ptr, size_t old_bytes, size_t new_bytes)
{
    void *moved = rallocx(ptr, new_bytes, flags_for(new_bytes, ALIGN_PLAIN));
    if (moved != NULL)
        kv_cache_count_paged((new_bytes >= PAGED_MIN) - (old_bytes >= PAGED_MIN));
    return moved;
}

static void call_arenas(const char *what)
{
    char name[32];
    snprintf(name, sizeof(name), "arena.%u.%s", MALLCTL_ARENAS_ALL, what);
    mallctl(name, NULL, NULL, NULL, 0);
}

/* One thread at a time. */
void kv_large_sample(void)
{
    static enum { UNTRIED, RUNS, FAILED } background;
    if (background == UNTRIED) {
        bool on = true;
        int result = mallctl("background_thread", NULL, NULL, &on, sizeof(on));
        background = result == 0 ? RUNS : FAILED;
    }
    if (background == FAILED)
        call_arenas("decay");
}

void kv_large_purge(void)
{
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    call_arenas("purge");
}

static uint64_t read_size_stat(const char *name)
{
    size_t value = 0;
    size_t len = sizeof(value);
    return mallctl(name, &value, &len, NULL, 0) == 0 ? value : 0;
}

void kv_large_totals(struct large_totals *out)
{
    uint64_t epoch = 1;
    mallctl("epoch", NULL, NULL, &epoch, sizeof(epoch)); /* refreshes the statistics */
    *out = (struct large_totals){
        .allocated = read_size_stat("stats.allocated"),
        .active = read_size_stat("stats.active"),
        .resident = read_size_stat("stats.resident"),
        .retained = read_size_stat("stats.retained"),
        .metadata = read_size_stat("stats.metadata"),
    };
    uint64_t reserved = (uint64_t)KV_MAX(kv_cache_paged_blocks(), (int64_t)0) * PAGE_BYTES;
    out->active -= KV_MIN(reserved, out->active);
    out->resident -= KV_MIN(reserved, out->resident);
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

/* --- evacuation --- */

static _Atomic(bool) evacuating;
static size_t query_mib[3], lookup_mib[2];
static size_t query_mib_len; /* 0: this jemalloc cannot tell */

struct utilization { /* what experimental.utilization.query writes */
    void *current;   /* the slab of the class and arena that serves now */
    size_t slab_free, slab_blocks, slab_bytes;
    size_t class_free, class_blocks; /* over all slabs of the arena's class */
};

uint64_t kv_large_evacuation_begin(void)
{
    struct large_totals t;
    kv_large_totals(&t);
    bool worth = query_mib_len != 0 && t.active > t.allocated + WASTE_MIN;
    atomic_store_explicit(&evacuating, worth, memory_order_relaxed);
    return worth ? t.active - t.allocated : 0;
}

void kv_large_evacuation_end(void)
{
    atomic_store_explicit(&evacuating, false, memory_order_relaxed);
}

bool kv_large_evacuates(const void *ptr, size_t bytes)
{
    if (bytes > SLAB_CLASS_MAX || !atomic_load_explicit(&evacuating, memory_order_relaxed))
        return false;
    struct utilization u;
    size_t len = sizeof(u);
    if (mallctlbymib(query_mib, query_mib_len, &u, &len, &ptr, sizeof(ptr)) != 0)
        return false;
    /* Emptier than its class is on the whole, not nearly full, and with somewhere to go. Blocks of
     * the slab that serves would be moved within it, again and again. */
    size_t slab_used = u.slab_blocks - u.slab_free, class_used = u.class_blocks - u.class_free;
    if (u.slab_free * 4 < u.slab_blocks || u.class_free <= u.slab_free)
        return false;
    if ((uintptr_t)ptr - (uintptr_t)u.current < u.slab_bytes)
        return false;
    return slab_used * u.class_blocks < class_used * u.slab_blocks;
}

/* In the arena of the old block, whose other slabs have the room that was found. */
void *kv_large_alloc_dense(size_t bytes, size_t align, const void *old)
{
    unsigned arena;
    size_t len = sizeof(arena);
    int flags = flags_for(bytes, align) | MALLOCX_TCACHE_NONE;
    if (query_mib_len != 0 &&
        mallctlbymib(lookup_mib, KV_ARRAY_LEN(lookup_mib), &arena, &len, &old, sizeof(old)) == 0)
        flags |= MALLOCX_ARENA(arena);
    void *ptr = mallocx(bytes, flags);
    if (ptr != NULL && bytes >= PAGED_MIN)
        kv_cache_count_paged(1);
    return ptr;
}

void kv_large_free_dense(void *ptr, size_t bytes, size_t align)
{
    sdallocx(ptr, bytes, flags_for(bytes, align) | MALLOCX_TCACHE_NONE);
    if (bytes >= PAGED_MIN)
        kv_cache_count_paged(-1);
}

/* --- start --- */

/* One size: the formula must be the allocator's answer. */
static void verify_size(size_t size)
{
    size_t truth = nallocx(size, 0);
    if (truth != kv_mem_block_size(size))
        kv_panic("jemalloc gives %zu bytes for %zu where %zu are expected: another build of it?",
                 truth, size, kv_mem_block_size(size));
}

static void verify_malloc_is_ours(void)
{
    uint64_t before = 0, after = 0;
    size_t len = sizeof(before);
    mallctl("thread.allocated", &before, &len, NULL, 0);
    void *volatile probe = malloc(40);
    mallctl("thread.allocated", &after, &len, NULL, 0);
    free(probe);
    KV_ASSERT(after != before);
}

void kv_large_init(void)
{
    for (size_t size = KV_MEM_SMALL_MAX; size < KV_MEM_SIZE_MAX;
         size = kv_mem_block_size(size + 1)) {
        if (size > KV_MEM_SMALL_MAX) {
            verify_size(size - 1);
            verify_size(size);
        }
        verify_size(size + 1);
    }
    for (size_t align = ALIGN_FREE; align <= ALIGN_MAX; align *= 2) {
        for (size_t size = KV_MEM_SMALL_MAX + 1; size <= 32768; size += 61)
            KV_ASSERT(nallocx(size, MALLOCX_ALIGN(align)) ==
                      kv_mem_block_size(aligned_size(size, align)));
    }
    /* sdallocx on a block of another malloc would be ruin. */
    verify_malloc_is_ours();
    size_t len = KV_ARRAY_LEN(query_mib), lookup_len = KV_ARRAY_LEN(lookup_mib);
    if (mallctlnametomib("arenas.lookup", lookup_mib, &lookup_len) == 0 &&
        mallctlnametomib("experimental.utilization.query", query_mib, &len) == 0)
        query_mib_len = len;
}

#else

void *kv_large_alloc(size_t bytes, size_t align, bool zero)
{
    if (align <= ALIGN_FREE)
        return zero ? calloc(1, bytes) : malloc(bytes);
    void *p = NULL;
    if (posix_memalign(&p, align, bytes) != 0)
        return NULL;
    return zero ? memset(p, 0, bytes) : p;
}

void kv_large_free(void *ptr, size_t bytes, size_t align)
{
    (void)bytes;
    (void)align;
    free(ptr);
}

void *kv_large_resize(void *ptr, size_t old_bytes, size_t new_bytes)
{
    (void)old_bytes;
    return realloc(ptr, new_bytes);
}

void kv_large_sample(void)
{
}

void kv_large_purge(void)
{
}

void kv_large_totals(struct large_totals *out)
{
    *out = (struct large_totals){0};
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

uint64_t kv_large_evacuation_begin(void)
{
    return 0;
}

void kv_large_evacuation_end(void)
{
}

/* Nothing is known about fullness: a share of all blocks moves, so that sanitizers see moves. */
bool kv_large_evacuates(const void *ptr, size_t bytes)
{
    (void)bytes;
#ifdef KV_MEM_SYSTEM
    return ((uintptr_t)ptr >> 4) % 8 == 0;
#else
    (void)ptr;
    return false;
#endif
}

void *kv_large_alloc_dense(size_t bytes, size_t align, const void *old)
{
    (void)old;
    return kv_large_alloc(bytes, align, false);
}

void kv_large_free_dense(void *ptr, size_t bytes, size_t align)
{
    kv_large_free(ptr, bytes, align);
}

void kv_large_init(void)
{
}

#endif
