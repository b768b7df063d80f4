/* Hash table of the keyspace: pointers to items, found by a 64-bit hash.
 *
 * Terms
 *   position  41 bits that order all items: directory bits (hash bits 47..23, most significant
 *             first), then the tag. It depends on the hash alone, never on the table's state, which
 *             makes SCAN stateless and exact (see kv_table_scan).
 *   tag       hash bits 63..48, kept in the upper 16 bits of the slot beside the 48-bit pointer
 *   bucket    one cache line: 8 slots; a zero slot is free
 *   segment   32, 40, 48, 56 or 64 buckets in one block; bucket = (tag * buckets) >> 16
 *   directory array of 2^depth segment pointers indexed by the upper `depth` directory bits
 *
 * An item whose home bucket is full goes to the next bucket of its segment (wrapping); a search
 * ends at the first bucket with a free slot, and removal moves later items back so that this stays
 * true. Since the home bucket depends on the tag alone, growing or shrinking a segment touches no
 * item. A segment beyond 64 buckets splits in two by one more directory bit; only then items'
 * hashes are asked for again (hook `hash_of`), 450 at a time, prefetched. So no moment exists at
 * which a whole table doubles; a segment grows at 15/16 full. The lower 16 hash bits are free for
 * the caller (shard number).
 *
 * Memory per item: 8 bytes / fill (about 0.8 to 0.9). Threads: the caller serialises (shard lock).
 * Items are at least 8-aligned and lie below 2^48.
 */
#ifndef KV_DS_TABLE_H
#define KV_DS_TABLE_H

#include "base/err.h"
#include "mem/mem.h"

#define KV_TABLE_DEPTH_MAX 25
#define KV_TABLE_POSITION_BITS (KV_TABLE_DEPTH_MAX + 16)
#define KV_TABLE_POSITION_END ((uint64_t)1 << KV_TABLE_POSITION_BITS)
#define KV_TABLE_SLOTS 8

struct kv_table_bucket {
    uint64_t slot[KV_TABLE_SLOTS]; /* tag << 48 | pointer; 0 is free */
} KV_ALIGNED(KV_CACHE_LINE);

struct kv_table_segment {
    struct kv_table_bucket *buckets; /* one block of bucket_count * 64 bytes, 64-aligned */
    uint32_t bucket_count; /* 32, 40, 48, 56 or 64; smaller (1, 2, 4, 8, 16) only at depth 0 */
    uint16_t item_count;   /* items stored */
    uint8_t depth;         /* directory bits that all its items share */
};

struct kv_table {
    struct kv_table_segment **directory; /* 1 << depth pointers; NULL while the table is empty */
    uint64_t count;                      /* items */
    uint64_t segment_count;
    uint32_t depth;
    enum kv_mem_owner owner;                          /* who pays */
    uint64_t (*hash_of)(const void *item, void *arg); /* full hash of an item */
    void *arg;
};

/* Costs no memory before the first insertion. */
void kv_table_init(struct kv_table *t, uint64_t (*hash_of)(const void *item, void *arg), void *arg,
                   enum kv_mem_owner owner);

/* Frees the table's own memory; the items are the caller's (walk with kv_table_each first). */
void kv_table_release(struct kv_table *t);

KV_INLINE uint64_t kv_table_tag(uint64_t hash)
{
    return hash >> 48;
}

KV_INLINE uint64_t kv_table_position(uint64_t hash)
{
    uint64_t directory_bits =
        (hash >> (48 - KV_TABLE_DEPTH_MAX)) & ((1u << KV_TABLE_DEPTH_MAX) - 1);
    return directory_bits << 16 | hash >> 48;
}

KV_INLINE void *kv_table_slot_item(uint64_t slot)
{
    return (void *)(uintptr_t)(slot & (((uint64_t)1 << 48) - 1));
}

KV_INLINE struct kv_table_segment *kv_table_segment_of(const struct kv_table *t, uint64_t hash)
{
    /* Shifting in two steps keeps depth 0 defined. */
    return t->directory[((hash << 16) >> 1) >> (63 - t->depth)];
}

KV_INLINE uint32_t kv_table_home(const struct kv_table_segment *s, uint64_t hash)
{
    return (uint32_t)(((hash >> 48) * s->bucket_count) >> 16);
}

/* Two-stage prefetch of a batch: first the bucket's line, a few items later the item that carries
 * the tag. Both are harmless on absent items; the second reads the bucket. */
KV_INLINE void kv_table_prefetch_bucket(const struct kv_table *t, uint64_t hash)
{
    if (KV_LIKELY(t->directory != NULL)) {
        const struct kv_table_segment *s = kv_table_segment_of(t, hash);
        KV_PREFETCH(&s->buckets[kv_table_home(s, hash)]);
    }
}
void kv_table_prefetch_item(const struct kv_table *t, uint64_t hash);

/* Finds an item: walks candidates with the same tag and asks `same(item, key)` until true. Returns
 * the item or NULL. Forced inline so that `same` is inlined too (pass a static function). */
KV_INLINE void *kv_table_find(const struct kv_table *t, uint64_t hash,
                              bool (*same)(const void *item, const void *key), const void *key)
{
    if (KV_UNLIKELY(t->directory == NULL))
        return NULL;
    const struct kv_table_segment *s = kv_table_segment_of(t, hash);
    uint32_t bucket = kv_table_home(s, hash);
    uint64_t tag = hash >> 48;
    for (uint32_t probe = 0; probe < s->bucket_count; probe++) {
        const struct kv_table_bucket *b = &s->buckets[bucket];
        bool full = true;
        for (int i = 0; i < KV_TABLE_SLOTS; i++) {
            uint64_t slot = b->slot[i];
            if (slot >> 48 == tag && slot != 0) {
                void *item = kv_table_slot_item(slot);
                if (same(item, key))
                    return item;
            }
            full &= slot != 0;
        }
        if (KV_LIKELY(!full))
            return NULL;
        if (++bucket == s->bucket_count)
            bucket = 0;
    }
    return NULL;
}

/* Adds an item that is known to be absent. KV_ERR_NOMEM: nothing changed. (KV_ERR_LIMIT never
 * happens below 2^25 segments.) */
enum kv_err kv_table_insert(struct kv_table *t, uint64_t hash, void *item) KV_MUST_CHECK;

/* The item moved: replaces its pointer. The old item must be present (asserted). */
void kv_table_replace(struct kv_table *t, uint64_t hash, const void *old_item, void *new_item);

/* Removes an item that must be present (asserted). Shrinks segments below 3/8 full and merges
 * sibling segments; never fails (when memory is short it just does not shrink). */
void kv_table_remove(struct kv_table *t, uint64_t hash, const void *item);

/* Visits items in order of position, starting at `position`, in whole home buckets, until at least
 * `count` items were visited or the end is reached; returns the position to go on from, or
 * KV_TABLE_POSITION_END. Every item that is present during a whole walk from 0 to the end is
 * visited exactly once, whatever is inserted, removed, grown or shrunk between the calls. The
 * visitor must not change the table. At most `count` + 1,024 buckets are looked at per call. */
uint64_t kv_table_scan(const struct kv_table *t, uint64_t position, uint64_t count,
                       void (*visit)(void *item, void *arg), void *arg);

/* Visits all items; the visitor must not change the table but may free items when the table is
 * released right afterwards. */
void kv_table_each(const struct kv_table *t, void (*visit)(void *item, void *arg), void *arg);

/* Visits the items that carry a position (there may be several with it): how an index that knows
 * only the hash's upper 41 bits finds its item. The visitor returns true to stop; then that item is
 * returned, else NULL. */
void *kv_table_find_position(const struct kv_table *t, uint64_t position,
                             bool (*visit)(void *item, void *arg), void *arg);

/* A random item, close to uniform (segment by directory, then slot); NULL when empty. `r` is 64
 * random bits, `step` yields more. */
struct kv_random;
void *kv_table_random(const struct kv_table *t, struct kv_random *r);

/* Bytes of directory and segments, as accounted. */
size_t kv_table_memory(const struct kv_table *t);

/* Debug: walks everything and asserts the invariants above. */
void kv_table_check(const struct kv_table *t);

#endif
