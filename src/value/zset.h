/* A large sorted set: members in blocks of their own, found by name through a hash table
 * (ds/table.h) and by score or rank through a counted B+-tree (ds/order.h).
 *
 *   member    one block: score, flags, [due time], length, name
 *   order     by score, then by name as memcmp sorts it; ranks count from 0 at the lowest
 *   due time  ms of Unix time from which a member counts as gone, as in value/dict.h
 *
 *   byte 0   score: a double, never NaN
 *        8   flags, see below
 *   then     [due time: 8 bytes]       if KV_SCORED_DUE
 *            name length: 1 byte, or 4 if KV_SCORED_LONG_NAME
 *            name
 *
 * A member of 16 bytes costs a block of 32, about 10 bytes of table and 17 of order.
 *
 * Failure: KV_ERR_NOMEM, and NULL of what creates, means that nothing changed. Pointers to members
 * last until that member is changed or removed, or blocks are moved.
 *
 * Threads: the caller serialises (shard lock); kv_zset_free on any thread that alone has it.
 */
#ifndef KV_VALUE_ZSET_H
#define KV_VALUE_ZSET_H

#include "base/hash.h"
#include "base/slice.h"
#include "ds/order.h"
#include "ds/table.h"
#include "ds/time_index.h"
#include "value/dict.h"
#include "value/footprint.h"
#include "value/guard.h"

#define KV_SCORED_DUE 1u
#define KV_SCORED_LONG_NAME 2u

struct kv_scored {
    double score;
    uint8_t flags;
    uint8_t data[];
};

struct kv_zset {
    struct kv_table table;
    struct kv_order order;
    const struct kv_hash_key *hash_key; /* outlives the set's use */
    struct kv_time_index *due;          /* records of members with a due time; NULL without any */
    int64_t registered_due;             /* for the owner: what it told others of them */
    struct kv_guard *guard;             /* the owner's; NULL: nobody saves it in slices */
    size_t member_block_bytes, member_used_bytes;
};

KV_INLINE int64_t kv_scored_due(const struct kv_scored *m)
{
    int64_t ms = KV_NOT_DUE;
    if (KV_UNLIKELY(m->flags & KV_SCORED_DUE))
        memcpy(&ms, m->data, sizeof(ms));
    return ms;
}

KV_INLINE struct kv_slice kv_scored_name(const struct kv_scored *m)
{
    const uint8_t *p = m->data + (m->flags & KV_SCORED_DUE ? 8 : 0);
    if (KV_LIKELY(!(m->flags & KV_SCORED_LONG_NAME)))
        return kv_slice((const char *)p + 1, p[0]);
    uint32_t len;
    memcpy(&len, p, sizeof(len));
    return kv_slice((const char *)p + sizeof(len), len);
}

/* Bytes in use; the block is kv_mem_block_size of it. */
KV_INLINE size_t kv_scored_size(const struct kv_scored *m)
{
    struct kv_slice name = kv_scored_name(m);
    return (size_t)(name.ptr + name.len - (const char *)m);
}

/* --- life --- */

/* Empty; NULL when memory is short. `hash_key` is borrowed until the set is freed. */
struct kv_zset *kv_zset_create(const struct kv_hash_key *hash_key) KV_MUST_CHECK;
void kv_zset_free(struct kv_zset *z);

/* All members in a set of its own; NULL: no memory. */
struct kv_zset *kv_zset_copy(const struct kv_zset *z) KV_MUST_CHECK;

KV_INLINE uint64_t kv_zset_count(const struct kv_zset *z)
{
    return z->order.count;
}

/* All blocks of it. */
struct kv_footprint kv_zset_footprint(const struct kv_zset *z);

/* --- members --- */

KV_INLINE uint64_t kv_zset_hash(const struct kv_zset *z, struct kv_slice name)
{
    return kv_hash_bytes(z->hash_key, name.ptr, name.len);
}

/* The member with a name, due or not, or NULL. `hash` is kv_zset_hash of it. */
struct kv_scored *kv_zset_find(const struct kv_zset *z, struct kv_slice name, uint64_t hash) KV_HOT;

/* Adds a member that is known to be absent. `last`: it is also known to come behind all others,
 * which spares the search. */
enum kv_err kv_zset_add(struct kv_zset *z, struct kv_slice name, uint64_t hash, double score,
                        int64_t due, bool last) KV_MUST_CHECK;

/* Gives a member another score. */
enum kv_err kv_zset_set_score(struct kv_zset *z, struct kv_scored *m, double score) KV_MUST_CHECK;

/* Gives a member another due time, or none; the member may then have another address. */
enum kv_err kv_zset_set_due(struct kv_zset *z, struct kv_scored *m, uint64_t hash,
                            int64_t due) KV_MUST_CHECK;

void kv_zset_remove(struct kv_zset *z, struct kv_scored *m, uint64_t hash);

/* Takes memory for so many calls of kv_zset_set_score, which then cannot fail; and gives back what
 * is left. */
enum kv_err kv_zset_reserve(struct kv_zset *z, uint64_t changes) KV_MUST_CHECK;
void kv_zset_unreserve(struct kv_zset *z);

/* --- order --- */

uint64_t kv_zset_rank(const struct kv_zset *z, const struct kv_scored *m);

/* Places for kv_order_rank and kv_order_seek: before or behind all members with a score; before or
 * behind the member with a score and name, which need not be there. The name is borrowed. */
struct kv_order_place kv_zset_before_score(double score);
struct kv_order_place kv_zset_behind_score(double score);
struct kv_order_place kv_zset_before_name(double score, const struct kv_slice *name);
struct kv_order_place kv_zset_behind_name(double score, const struct kv_slice *name);

/* The member at a cursor (kv_order_at, kv_order_seek on z->order). */
KV_INLINE struct kv_scored *kv_zset_at(const struct kv_order_cursor *c)
{
    return kv_order_item(c);
}

/* SCAN: see kv_table_scan. */
uint64_t kv_zset_scan(const struct kv_zset *z, uint64_t position, uint64_t count,
                      void (*visit)(struct kv_scored *m, void *arg), void *arg);

/* --- due times --- */

/* Earliest due time of all members, or KV_NOT_DUE. */
KV_INLINE int64_t kv_zset_first_due(const struct kv_zset *z)
{
    return KV_LIKELY(z->due == NULL) ? KV_NOT_DUE : (int64_t)z->due->first_when;
}

/* A member with the earliest due time, or NULL when none has one. */
struct kv_scored *kv_zset_first_due_member(const struct kv_zset *z);

/* --- moving blocks, checking --- */

/* Moves blocks out of slabs that are evacuated, the set's own included; returns where it is now.
 * Works on all of it: callers bound what they ask for. */
struct kv_zset *kv_zset_move(struct kv_zset *z, struct kv_moves *m) KV_MUST_CHECK;

/* Asserts all invariants. */
void kv_zset_check(const struct kv_zset *z);

#endif
