/* Counters with one writer. The owner thread does load+add+store (no locked instruction); any
 * thread may read. A sum over several owners is exact once they are quiet and never torn meanwhile.
 */
#ifndef KV_BASE_STAT_H
#define KV_BASE_STAT_H

#include "base/compiler.h"
#include <stdatomic.h>

typedef _Atomic(uint64_t) kv_stat; /* monotonic counter or unsigned gauge */
typedef _Atomic(int64_t) kv_gauge; /* signed: may fall below zero in one slot */

/* Load, add and store in one instruction without the lock prefix, which compilers do not make of
 * relaxed atomics. ThreadSanitizer has to see the accesses. */
#if defined(__x86_64__) && !defined(KV_TSAN)
#define KV_STAT_ADD(s, n) __asm__("addq %1, %0" : "+m"(*(s)) : "er"(n) : "cc")
#else
#define KV_STAT_ADD(s, n)                                                                          \
    atomic_store_explicit(s, atomic_load_explicit(s, memory_order_relaxed) + (n),                  \
                          memory_order_relaxed)
#endif

KV_INLINE void kv_stat_add(kv_stat *s, uint64_t n)
{
    KV_STAT_ADD(s, n);
}

KV_INLINE uint64_t kv_stat_read(const kv_stat *s)
{
    return atomic_load_explicit(s, memory_order_relaxed);
}

KV_INLINE void kv_stat_set(kv_stat *s, uint64_t n)
{
    atomic_store_explicit(s, n, memory_order_relaxed);
}

KV_INLINE void kv_stat_max(kv_stat *s, uint64_t n)
{
    if (n > atomic_load_explicit(s, memory_order_relaxed))
        atomic_store_explicit(s, n, memory_order_relaxed);
}

KV_INLINE void kv_gauge_add(kv_gauge *s, int64_t n)
{
    KV_STAT_ADD(s, n);
}

KV_INLINE int64_t kv_gauge_read(const kv_gauge *s)
{
    return atomic_load_explicit(s, memory_order_relaxed);
}

#endif
