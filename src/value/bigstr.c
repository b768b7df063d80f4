/* Large strings with a reference count.
 *
 * Layout. One block: a header of 24 bytes (len, block_size, refs, owner), then the bytes, so that
 * they begin on a word. block_size is the whole class that the allocator gave; what lies between
 * len and it is spare room for appends.
 *
 * Invariants: len <= block_size - 24; block_size is a class of the allocator; refs >= 1 while
 * anybody can see the block; bytes, len and block_size change only while refs is 1, by the holder
 * of the shard lock.
 *
 * Threads. The entry's reference is used under the shard's lock, references in output queues by
 * their workers. Letting go is a release, the last one acquires: whoever frees sees all uses done.
 * A reader that finds the block unshared has acquired too and may write. New references come only
 * from somebody who holds one, so "unshared" cannot become false behind the holder's back.
 *
 * Rejected: a count of 16 bits in the entry's pointer (a popular value in 70,000 output queues);
 * copying for each queued reply (that is what costs others the bandwidth of large values).
 */
#include "value/bigstr.h"

static_assert(offsetof(struct kv_bigstr, data) == 24, "data begin on a word");

#define HEADER_BYTES offsetof(struct kv_bigstr, data)
#define LEN_MAX (KV_MEM_SIZE_MAX - HEADER_BYTES)
#define GREEDY_DOUBLE_MAX ((size_t)1 << 20) /* bytes; larger strings grow by a quarter */

static void check(const struct kv_bigstr *b)
{
    KV_ASSERT(b->block_size == kv_mem_block_size(b->block_size));
    KV_ASSERT(b->len <= kv_bigstr_capacity(b));
    KV_ASSERT(b->owner < KV_MEM_OWNER_COUNT);
}

struct kv_bigstr *kv_bigstr_try_create(size_t len, enum kv_mem_owner owner)
{
    KV_ASSERT((unsigned)owner < KV_MEM_OWNER_COUNT);
    if (len > LEN_MAX)
        return NULL;
    size_t block_size = 0;
    struct kv_bigstr *b = kv_mem_try_alloc_usable(HEADER_BYTES + len, owner, &block_size);
    if (b == NULL)
        return NULL;
    b->len = len;
    b->block_size = block_size;
    b->owner = (uint32_t)owner;
    atomic_init(&b->refs, 1);
    check(b);
    return b;
}

void kv_bigstr_unref(struct kv_bigstr *b)
{
    unsigned before = atomic_fetch_sub_explicit(&b->refs, 1, memory_order_acq_rel);
    KV_ASSERT(before != 0);
    if (before != 1)
        return;
    check(b);
    kv_mem_free_movable(b, b->block_size, (enum kv_mem_owner)b->owner);
}

static size_t greedy_capacity(size_t capacity)
{
    size_t extra = capacity <= GREEDY_DOUBLE_MAX ? capacity : capacity / 4;
    return KV_MIN(capacity + extra, LEN_MAX);
}

/* The reference held by *b passes to a copy with room for `capacity` bytes. */
static bool replace_by_copy(struct kv_bigstr **b, size_t capacity)
{
    struct kv_bigstr *old = *b;
    KV_DASSERT(capacity >= old->len);
    struct kv_bigstr *copy = kv_bigstr_try_create(capacity, (enum kv_mem_owner)old->owner);
    if (copy == NULL)
        return false;
    memcpy(copy->data, old->data, old->len);
    copy->len = old->len;
    *b = copy;
    kv_bigstr_unref(old);
    return true;
}

static bool enlarge(struct kv_bigstr **b, size_t capacity)
{
    struct kv_bigstr *old = *b;
    KV_DASSERT(!kv_bigstr_shared(old));
    size_t size = HEADER_BYTES + capacity;
    struct kv_bigstr *moved =
        kv_mem_try_realloc(old, old->block_size, size, (enum kv_mem_owner)old->owner);
    if (moved == NULL)
        return false;
    moved->block_size = kv_mem_block_size(size);
    *b = moved;
    return true;
}

enum kv_err kv_bigstr_reserve(struct kv_bigstr **b, size_t capacity, bool greedy)
{
    struct kv_bigstr *old = *b;
    check(old);
    if (capacity > LEN_MAX)
        return KV_ERR_NOMEM;
    bool shared = kv_bigstr_shared(old);
    if (!shared && capacity <= kv_bigstr_capacity(old))
        return KV_OK;
    bool (*step)(struct kv_bigstr **, size_t) = shared ? replace_by_copy : enlarge;
    capacity = KV_MAX(capacity, old->len);
    /* Spare room is a wish: without memory for it the exact size will do. */
    if (greedy && capacity > old->len && step(b, greedy_capacity(capacity)))
        return KV_OK;
    return step(b, capacity) ? KV_OK : KV_ERR_NOMEM;
}

struct kv_bigstr *kv_bigstr_move(struct kv_bigstr *b, struct kv_moves *m)
{
    check(b);
    if (kv_bigstr_shared(b)) {
        m->kept++;
        return b;
    }
    struct kv_bigstr *moved = kv_move_block(b, b->block_size, (enum kv_mem_owner)b->owner, m);
    KV_DASSERT(!kv_bigstr_shared(moved));
    return moved;
}

void kv_bigstr_set_owner(struct kv_bigstr *b, enum kv_mem_owner owner)
{
    check(b);
    KV_ASSERT((unsigned)owner < KV_MEM_OWNER_COUNT);
    if (b->owner == (uint32_t)owner)
        return;
    kv_mem_reattribute(b, b->block_size, (enum kv_mem_owner)b->owner, owner);
    b->owner = (uint32_t)owner;
}
