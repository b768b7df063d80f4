/* One allocator behind three inline functions, chosen by a macro of the build, so that each program
 * is compiled as its user would be: what can be inlined is inlined, nothing goes through a pointer.
 *
 *     CONTENDER_KVIK      mem/mem.h
 *     CONTENDER_POOL      the limit: one singly linked list a size and thread, no accounting
 *     CONTENDER_JEMALLOC  malloc and free
 *     CONTENDER_SIZED     jemalloc, malloc and sdallocx
 *     CONTENDER_COUNTED   jemalloc, with malloc_usable_size and an atomic add at both ends
 *     CONTENDER_MIMALLOC  mi_malloc and mi_free
 *     CONTENDER_GLIBC     malloc and free
 *     CONTENDER_NONE      allocates nothing: what the loops themselves cost
 *
 * contender_cache_bytes is what threads' caches hold now, or -1 where the allocator does not tell.
 */
#ifndef KV_TESTS_BENCH_MEM_CONTENDER_H
#define KV_TESTS_BENCH_MEM_CONTENDER_H

#include "base/compiler.h"
#include <stdlib.h>

#define SIZE_LARGEST ((size_t)512) /* bytes that contenders with one list a size must serve */

#if defined(CONTENDER_KVIK)

#include "mem/mem.h"

KV_INLINE void contender_init(void)
{
    kv_mem_init();
}

KV_INLINE void *contender_alloc(size_t size)
{
    return kv_mem_alloc(size, KV_MEM_ENTRY);
}

KV_INLINE void contender_free(void *ptr, size_t size)
{
    kv_mem_free(ptr, size, KV_MEM_ENTRY);
}

KV_INLINE void contender_thread_exit(void)
{
    kv_mem_thread_exit();
}

KV_INLINE int64_t contender_cache_bytes(void)
{
    struct kv_mem_report report;
    kv_mem_report_read(&report);
    return (int64_t)report.cached_bytes;
}

#elif defined(CONTENDER_POOL)

#define POOL_CHUNK_BYTES ((size_t)65536)

struct pool_object {
    struct pool_object *next;
};

static _Thread_local struct pool_object *pools[SIZE_LARGEST / 8 + 1]; /* by size in words */

KV_INLINE void contender_init(void)
{
}

static KV_COLD void pool_refill(size_t size)
{
    size_t step = (size + 7) & ~(size_t)7;
    char *chunk = malloc(POOL_CHUNK_BYTES);
    if (chunk == NULL)
        abort();
    for (size_t at = POOL_CHUNK_BYTES / step; at-- > 0;) {
        struct pool_object *object = (struct pool_object *)(void *)(chunk + at * step);
        object->next = pools[step / 8];
        pools[step / 8] = object;
    }
}

KV_INLINE void *contender_alloc(size_t size)
{
    struct pool_object **pool = &pools[(size + 7) / 8];
    if (KV_UNLIKELY(*pool == NULL))
        pool_refill(size);
    struct pool_object *object = *pool;
    *pool = object->next;
    return object;
}

KV_INLINE void contender_free(void *ptr, size_t size)
{
    struct pool_object **pool = &pools[(size + 7) / 8], *object = ptr;
    object->next = *pool;
    *pool = object;
}

KV_INLINE void contender_thread_exit(void)
{
}

KV_INLINE int64_t contender_cache_bytes(void)
{
    return -1;
}

#elif defined(CONTENDER_NONE)

#define NONE_BLOCKS 4096 /* distinct ones where a pattern wants them */

static char none_blocks[NONE_BLOCKS][SIZE_LARGEST] KV_ALIGNED(KV_CACHE_LINE);

KV_INLINE void contender_init(void)
{
}

KV_INLINE void *contender_alloc(size_t size)
{
    (void)size;
    return none_blocks[0];
}

KV_INLINE void contender_free(void *ptr, size_t size)
{
    (void)ptr;
    (void)size;
}

KV_INLINE void contender_thread_exit(void)
{
}

KV_INLINE int64_t contender_cache_bytes(void)
{
    return -1;
}

#elif defined(CONTENDER_MIMALLOC)

#include <mimalloc.h>

KV_INLINE void contender_init(void)
{
}

KV_INLINE void *contender_alloc(size_t size)
{
    return mi_malloc(size);
}

KV_INLINE void contender_free(void *ptr, size_t size)
{
    (void)size;
    mi_free(ptr);
}

KV_INLINE void contender_thread_exit(void)
{
}

KV_INLINE int64_t contender_cache_bytes(void)
{
    return -1;
}

#elif defined(CONTENDER_GLIBC)

KV_INLINE void contender_init(void)
{
}

KV_INLINE void *contender_alloc(size_t size)
{
    return malloc(size);
}

KV_INLINE void contender_free(void *ptr, size_t size)
{
    (void)size;
    free(ptr);
}

KV_INLINE void contender_thread_exit(void)
{
}

KV_INLINE int64_t contender_cache_bytes(void)
{
    return -1;
}

#else /* jemalloc in three ways */

#include <jemalloc/jemalloc.h>

#include <stdio.h>

/* jemalloc itself must be behind malloc, else the figures would be the C library's. */
KV_INLINE void contender_init(void)
{
    uint64_t before = 0, after = 0;
    size_t len = sizeof before;
    mallctl("thread.allocated", &before, &len, NULL, 0);
    void *volatile probe = malloc(40);
    mallctl("thread.allocated", &after, &len, NULL, 0);
    free(probe);
    if (after == before)
        abort();
}

KV_INLINE void contender_thread_exit(void)
{
}

KV_INLINE int64_t contender_cache_bytes(void)
{
    char name[64];
    uint64_t epoch = 1;
    size_t bytes = 0, len = sizeof bytes;
    mallctl("epoch", NULL, NULL, &epoch, sizeof epoch);
    snprintf(name, sizeof name, "stats.arenas.%u.tcache_bytes", MALLCTL_ARENAS_ALL);
    return mallctl(name, &bytes, &len, NULL, 0) == 0 ? (int64_t)bytes : -1;
}

#if defined(CONTENDER_COUNTED)

static size_t counted_bytes KV_ALIGNED(KV_CACHE_LINE);

KV_INLINE void *contender_alloc(size_t size)
{
    void *ptr = malloc(size);
    __atomic_add_fetch(&counted_bytes, malloc_usable_size(ptr), __ATOMIC_RELAXED);
    return ptr;
}

KV_INLINE void contender_free(void *ptr, size_t size)
{
    (void)size;
    __atomic_sub_fetch(&counted_bytes, malloc_usable_size(ptr), __ATOMIC_RELAXED);
    free(ptr);
}

#else

KV_INLINE void *contender_alloc(size_t size)
{
    return malloc(size);
}

KV_INLINE void contender_free(void *ptr, size_t size)
{
#if defined(CONTENDER_SIZED)
    sdallocx(ptr, size, 0);
#elif defined(CONTENDER_JEMALLOC)
    (void)size;
    free(ptr);
#else
#error "no contender is chosen"
#endif
}

#endif
#endif
#endif
