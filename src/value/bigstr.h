/* A large string in a block of its own: what an entry points to when its value does not fit beside
 * the key, and what a bulk of 16 KiB and more is read into straight from the socket. The bytes may
 * be in an entry and in output queues at once; a reference count, the only atomic of the value
 * path, says so. Bytes change in place only while the count is 1.
 *
 * Capacity is block size minus header, as 64 bits: never clamped, so the block's exact size is
 * always known. */
#ifndef KV_VALUE_BIGSTR_H
#define KV_VALUE_BIGSTR_H

#include "base/err.h"
#include "base/slice.h"
#include "ds/move.h"
#include "mem/mem.h"
#include <stdatomic.h>

struct kv_bigstr {
    size_t len;        /* bytes in use */
    size_t block_size; /* of this allocation, header included */
    atomic_uint refs;  /* holders; freed when the last lets go */
    uint32_t owner;    /* enum kv_mem_owner that pays now */
    char data[];
};

KV_INLINE size_t kv_bigstr_capacity(const struct kv_bigstr *b)
{
    return b->block_size - offsetof(struct kv_bigstr, data);
}

/* One reference, len bytes uninitialised; NULL when memory is short. */
struct kv_bigstr *kv_bigstr_try_create(size_t len, enum kv_mem_owner owner) KV_MUST_CHECK;

KV_INLINE void kv_bigstr_ref(struct kv_bigstr *b)
{
    atomic_fetch_add_explicit(&b->refs, 1, memory_order_relaxed);
}

/* Lets one reference go; the last one frees. Any thread. */
void kv_bigstr_unref(struct kv_bigstr *b);

KV_INLINE bool kv_bigstr_shared(const struct kv_bigstr *b)
{
    return atomic_load_explicit(&b->refs, memory_order_acquire) != 1;
}

/* Makes *b unshared with room for `capacity` bytes (keeping len and content); may move it, growing
 * geometrically when `greedy`. KV_ERR_NOMEM: nothing changed. */
enum kv_err kv_bigstr_reserve(struct kv_bigstr **b, size_t capacity, bool greedy) KV_MUST_CHECK;

/* Moves the block out of a slab that is evacuated, unless somebody else holds a reference (then it
 * counts as kept); returns where it is now. Caller holds a reference and the shard lock. */
struct kv_bigstr *kv_bigstr_move(struct kv_bigstr *b, struct kv_moves *m) KV_MUST_CHECK;

/* Accounts the block to another owner. Caller holds the only reference or the shard lock. */
void kv_bigstr_set_owner(struct kv_bigstr *b, enum kv_mem_owner owner);

#endif
