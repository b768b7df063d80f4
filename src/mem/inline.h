/* The inlined paths of mem.h, which includes this.
 *
 * A thread's cache holds one stack of block pointers per class. The pointers lie outside the
 * blocks, so that freeing a block does not touch it and a batch can be given back without following
 * links. A bin whose thread was never seen has base = top = limit = NULL: both paths then take the
 * slow way, which sets the thread up; so the fast ways need no further test.
 *
 * Threads: everything here belongs to the calling thread; other threads read `top`, `hits` and the
 * counters for reports, hence the relaxed accesses, which are plain moves.
 */
#ifndef KV_MEM_INLINE_H
#define KV_MEM_INLINE_H

#include "mem/mem.h"

/* Blocks with a header (debug and sanitizer builds) are too large a matter to be inlined. */
#if defined(KV_DEBUG) || defined(KV_MEM_SYSTEM) || defined(KV_MEM_HEADERS)
#define KV_MEM_INLINED 0
#else
#define KV_MEM_INLINED 1
#endif

struct kv_mem_bin {
    void **top;   /* one past the last cached block */
    void **base;  /* the stack's bottom: top == base is empty */
    void **limit; /* top == limit is full */
    kv_stat hits; /* blocks handed out */
};

struct kv_mem_slot {
    struct kv_mem_bin bins[KV_MEM_CLASS_COUNT];
    kv_gauge used_bytes[KV_MEM_OWNER_COUNT]; /* below zero when others' blocks were freed here */
};

/* initial-exec: one instruction reaches it, no call. */
extern _Thread_local struct kv_mem_slot kv_mem_slot __attribute__((tls_model("initial-exec")));

/* Slabs are chosen; relaxed. */
extern _Atomic(bool) kv_mem_evacuation_runs;

/* Slow ways: an empty or a full cache, large blocks, debug builds. Whole effect, counting included.
 * `may_fail`: NULL instead of the end of the process. */
void *kv_mem_alloc_slow(size_t size, enum kv_mem_owner owner, bool may_fail);
void *kv_mem_alloc_large(size_t size, enum kv_mem_owner owner, bool may_fail);
void kv_mem_free_slow(void *ptr, size_t size, enum kv_mem_owner owner);
void kv_mem_free_large(void *ptr, size_t size, enum kv_mem_owner owner);
void *kv_mem_zero_large(size_t size, enum kv_mem_owner owner, bool may_fail);

/* True when the block was one of a slab that is evacuated, and is free now. */
bool kv_mem_free_evacuated(void *ptr, size_t size, enum kv_mem_owner owner);

KV_INLINE unsigned kv_mem_class_of(size_t size)
{
    if (__builtin_constant_p(size))
        return kv_mem_class_formula(size);
    return kv_mem_class_table[(size + 7) >> 3];
}

KV_INLINE int64_t kv_mem_class_size(unsigned class_index, size_t size)
{
    if (__builtin_constant_p(size))
        return (int64_t)kv_mem_block_size(size);
    return kv_mem_class_bytes[class_index];
}

#if KV_MEM_INLINED

KV_INLINE void *kv_mem_take(size_t size, enum kv_mem_owner owner, bool may_fail)
{
    if (KV_UNLIKELY(size > KV_MEM_SMALL_MAX))
        return kv_mem_alloc_large(size, owner, may_fail);
    unsigned class_index = kv_mem_class_of(size);
    struct kv_mem_bin *bin = &kv_mem_slot.bins[class_index];
    void **top = __atomic_load_n(&bin->top, __ATOMIC_RELAXED);
    if (KV_UNLIKELY(top == bin->base))
        return kv_mem_alloc_slow(size, owner, may_fail);
    __atomic_store_n(&bin->top, top - 1, __ATOMIC_RELAXED);
    kv_stat_add(&bin->hits, 1);
    kv_gauge_add(&kv_mem_slot.used_bytes[owner], kv_mem_class_size(class_index, size));
    return top[-1];
}

KV_INLINE void *kv_mem_alloc(size_t size, enum kv_mem_owner owner)
{
    void *ptr = kv_mem_take(size, owner, false);
    if (ptr == NULL)
        __builtin_unreachable();
    return ptr;
}

KV_INLINE void *kv_mem_try_alloc(size_t size, enum kv_mem_owner owner)
{
    return kv_mem_take(size, owner, true);
}

KV_INLINE void *kv_mem_zalloc(size_t size, enum kv_mem_owner owner)
{
    if (size > KV_MEM_SMALL_MAX)
        return kv_mem_zero_large(size, owner, false);
    return memset(kv_mem_alloc(size, owner), 0, size);
}

KV_INLINE void *kv_mem_try_zalloc(size_t size, enum kv_mem_owner owner)
{
    if (size > KV_MEM_SMALL_MAX)
        return kv_mem_zero_large(size, owner, true);
    void *ptr = kv_mem_try_alloc(size, owner);
    return ptr != NULL ? memset(ptr, 0, size) : NULL;
}

KV_INLINE void kv_mem_free(void *ptr, size_t size, enum kv_mem_owner owner)
{
    if (KV_UNLIKELY(ptr == NULL))
        return;
    if (KV_UNLIKELY(size > KV_MEM_SMALL_MAX)) {
        kv_mem_free_large(ptr, size, owner);
        return;
    }
    unsigned class_index = kv_mem_class_of(size);
    struct kv_mem_bin *bin = &kv_mem_slot.bins[class_index];
    void **top = __atomic_load_n(&bin->top, __ATOMIC_RELAXED);
    if (KV_UNLIKELY(top == bin->limit)) {
        kv_mem_free_slow(ptr, size, owner);
        return;
    }
    *top = ptr;
    __atomic_store_n(&bin->top, top + 1, __ATOMIC_RELAXED);
    kv_gauge_add(&kv_mem_slot.used_bytes[owner], -kv_mem_class_size(class_index, size));
}

#else

void *kv_mem_alloc_checked(size_t size, enum kv_mem_owner owner, bool zero)
    __attribute__((malloc, returns_nonnull));
void *kv_mem_try_alloc_checked(size_t size, enum kv_mem_owner owner, bool zero) KV_MUST_CHECK;
void kv_mem_free_checked(void *ptr, size_t size, enum kv_mem_owner owner);

KV_INLINE void *kv_mem_alloc(size_t size, enum kv_mem_owner owner)
{
    return kv_mem_alloc_checked(size, owner, false);
}

KV_INLINE void *kv_mem_zalloc(size_t size, enum kv_mem_owner owner)
{
    return kv_mem_alloc_checked(size, owner, true);
}

KV_INLINE void *kv_mem_try_alloc(size_t size, enum kv_mem_owner owner)
{
    return kv_mem_try_alloc_checked(size, owner, false);
}

KV_INLINE void *kv_mem_try_zalloc(size_t size, enum kv_mem_owner owner)
{
    return kv_mem_try_alloc_checked(size, owner, true);
}

KV_INLINE void kv_mem_free(void *ptr, size_t size, enum kv_mem_owner owner)
{
    kv_mem_free_checked(ptr, size, owner);
}

#endif

KV_INLINE void kv_mem_free_movable(void *ptr, size_t size, enum kv_mem_owner owner)
{
    if (KV_UNLIKELY(atomic_load_explicit(&kv_mem_evacuation_runs, memory_order_relaxed)) &&
        kv_mem_free_evacuated(ptr, size, owner))
        return;
    kv_mem_free(ptr, size, owner);
}

#endif
