/* Hash table of the keyspace: pointers to items, found by a 64-bit hash.
 *
 * Terms
 *   tag       hash bits 63..48, kept in the upper 16 bits of the slot beside the 48-bit pointer
 *   bucket    one cache line: 8 slots, filled from the front; a zero slot is free
 *   segment   32, 40, 48, 56 or 64 buckets in one block; home bucket = (tag * buckets) >> 16
 *   directory array of 2^depth segment words, indexed by the upper `depth` of the hash's directory
 *             bits (bits 47..23); a word holds a segment's address, size and own depth
 *   chunk     the upper 5 bits of the tag
 *   position  41 bits: chunk, directory bits, the tag's lower 11 bits. It depends on the hash
 * alone, never on the table's state, which makes SCAN stateless and exact (kv_table_scan).
 *
 * An item whose home bucket is full goes to the next bucket of its segment (wrapping); a search
 * ends at the first bucket with a free slot, and removal moves later items back so that this stays
 * true. Since the home bucket depends on the tag alone, growing or shrinking a segment touches no
 * item. A segment beyond 64 buckets splits in two by one more directory bit; only then items'
 * hashes are asked for again (hook `hash_of`), 448 at a time, prefetched. So no moment exists at
 * which a whole table doubles; a segment grows at 7/8 full. The lower 16 hash bits are free for
 * the caller (shard number). Only where splitting cannot help, because hundreds of items share
 * their directory bits, does a segment grow beyond 64 buckets (up to 65,528).
 *
 * Memory per item: 8 bytes / fill (0.7 to 0.875). Threads: the caller serialises (shard
 * lock). Items are at least 8-aligned and lie below 2^48.
 */
#ifndef KV_DS_TABLE_H
#define KV_DS_TABLE_H

#include "base/err.h"
#include "ds/move.h"
#include "mem/mem.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define KV_TABLE_DEPTH_MAX 25
#define KV_TABLE_CHUNK_BITS 5
#define KV_TABLE_POSITION_BITS (KV_TABLE_DEPTH_MAX + 16)
#define KV_TABLE_POSITION_END ((uint64_t)1 << KV_TABLE_POSITION_BITS)
#define KV_TABLE_SLOTS 8

struct kv_table_bucket {
    uint64_t slot[KV_TABLE_SLOTS]; /* tag << 48 | pointer; free ones are 0 and come last */
} KV_ALIGNED(KV_CACHE_LINE);

/* A segment word: bucket count << 48 | address of the buckets (64-aligned) | own depth, which is
 * the number of directory bits that all items of the segment share. */
struct kv_table {
    uint64_t *directory; /* 1 << depth segment words, then as many item counts (uint32_t); NULL
                            while the table is empty */
    uint64_t count;      /* items */
    uint32_t depth;
    enum kv_mem_owner owner;                          /* who pays */
    uint32_t segment_count;                           /* at most 1 << depth */
    uint32_t deepest_count;                           /* segments whose own depth is `depth` */
    uint64_t segment_bytes;                           /* blocks of all segments */
    uint64_t (*hash_of)(const void *item, void *arg); /* full hash of an item */
    void *arg;
};

/* Costs no memory before the first insertion. */
void kv_table_init(struct kv_table *t, uint64_t (*hash_of)(const void *item, void *arg), void *arg,
                   enum kv_mem_owner owner);

/* Gives a table that has never had an item the size that it will have with `count` of them, so that
 * it does not grow on the way there. Fewer cost memory until items are removed, more let it grow as
 * ever. KV_ERR_NOMEM: nothing has changed. */
enum kv_err kv_table_reserve(struct kv_table *t, uint64_t count) KV_MUST_CHECK;

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
    uint64_t low_bits = 16 - KV_TABLE_CHUNK_BITS;
    uint64_t chunk = hash >> (64 - KV_TABLE_CHUNK_BITS);
    uint64_t low = hash >> 48 & ((1u << low_bits) - 1);
    return chunk << (KV_TABLE_DEPTH_MAX + low_bits) | directory_bits << low_bits | low;
}

KV_INLINE void *kv_table_slot_item(uint64_t slot)
{
    return (void *)(uintptr_t)(slot & (((uint64_t)1 << 48) - 1));
}

KV_INLINE uint64_t kv_table_word(const struct kv_table *t, uint64_t hash)
{
    /* Shifting in two steps keeps depth 0 defined. */
    return t->directory[((hash << 16) >> 1) >> (63 - t->depth)];
}

KV_INLINE struct kv_table_bucket *kv_table_word_buckets(uint64_t word)
{
    return (struct kv_table_bucket *)(uintptr_t)(word & (((uint64_t)1 << 48) - KV_CACHE_LINE));
}

KV_INLINE uint32_t kv_table_word_count(uint64_t word)
{
    return (uint32_t)(word >> 48);
}

KV_INLINE uint32_t kv_table_home(uint64_t word, uint64_t tag)
{
    return (uint32_t)((tag * (word >> 48)) >> 16);
}

KV_INLINE bool kv_table_bucket_full(const struct kv_table_bucket *b)
{
    return b->slot[KV_TABLE_SLOTS - 1] != 0;
}

/* The slots of a bucket that carry the tag, as a set of bits: take one with kv_table_match_slot,
 * remove it with `set &= set - 1`. A free slot matches tag 0. Budget: 14 instructions. */
KV_INLINE unsigned kv_table_match(const struct kv_table_bucket *b, uint64_t tag)
{
#ifdef __SSE2__
    /* The tag is the upper 16-bit lane of each slot. Packing with saturation keeps the sign of the
     * upper half of each pair, so after two rounds every other byte's sign is a tag's verdict. */
    const __m128i *pair = (const __m128i *)b->slot;
    __m128i wanted = _mm_set1_epi16((short)tag);
    __m128i lower = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_load_si128(&pair[0]), wanted),
                                    _mm_cmpeq_epi16(_mm_load_si128(&pair[1]), wanted));
    __m128i upper = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_load_si128(&pair[2]), wanted),
                                    _mm_cmpeq_epi16(_mm_load_si128(&pair[3]), wanted));
    return (unsigned)_mm_movemask_epi8(_mm_packs_epi16(lower, upper)) & 0xaaaau;
#else
    unsigned set = 0;
    for (unsigned i = 0; i < KV_TABLE_SLOTS; i++)
        set |= (unsigned)(b->slot[i] >> 48 == tag) << (2 * i + 1);
    return set;
#endif
}

KV_INLINE unsigned kv_table_match_slot(unsigned set)
{
    return (unsigned)__builtin_ctz(set) >> 1;
}

/* Two-stage prefetch of a batch: first the bucket's line, a few items later the item that carries
 * the tag. Both are harmless on absent items; the second reads the bucket. */
KV_INLINE void kv_table_prefetch_bucket(const struct kv_table *t, uint64_t hash)
{
    if (KV_LIKELY(t->directory != NULL)) {
        uint64_t word = kv_table_word(t, hash);
        KV_PREFETCH(&kv_table_word_buckets(word)[kv_table_home(word, hash >> 48)]);
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
    uint64_t word = kv_table_word(t, hash);
    uint64_t tag = hash >> 48;
    const struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    uint32_t bucket_count = kv_table_word_count(word);
    uint32_t bucket = kv_table_home(word, tag);
    for (uint32_t probe = 0; probe < bucket_count; probe++) {
        const struct kv_table_bucket *b = &buckets[bucket];
        for (unsigned set = kv_table_match(b, tag); set != 0; set &= set - 1) {
            void *item = kv_table_slot_item(b->slot[kv_table_match_slot(set)]);
            if (KV_LIKELY(item != NULL) && same(item, key))
                return item;
        }
        if (KV_LIKELY(!kv_table_bucket_full(b)))
            return NULL;
        if (++bucket == bucket_count)
            bucket = 0;
    }
    return NULL;
}

/* Adds an item that is known to be absent. KV_ERR_NOMEM: nothing changed; it comes only when the
 * segment has no free slot at all. KV_ERR_LIMIT: over 524,000 items share their directory bits, so
 * the hash is broken. */
enum kv_err kv_table_insert(struct kv_table *t, uint64_t hash, void *item) KV_MUST_CHECK;

/* The item moved: replaces its pointer. The old item must be present (asserted). */
void kv_table_replace(struct kv_table *t, uint64_t hash, const void *old_item, void *new_item);

/* Removes an item that must be present (asserted). Shrinks segments below 3/8 full and merges
 * sibling segments; never fails (when memory is short it just does not shrink). */
void kv_table_remove(struct kv_table *t, uint64_t hash, const void *item);

/* Visits items from `position` on, in whole groups (the items of one segment with the same chunk,
 * about a home bucket), until at least `count` items were visited or the end is reached; returns
 * the position to go on from, or KV_TABLE_POSITION_END. Groups come in order of position, items
 * within a group in no order. What a call visits is exactly what has a position from its start to
 * before its result, so every item that is present during a whole walk from 0 to the end is visited
 * exactly once, whatever is inserted, removed, grown, split or merged between the calls. The
 * visitor must not change the table. A call looks at no more than `count` + 1,024 buckets and the
 * rest of a group. */
uint64_t kv_table_scan(const struct kv_table *t, uint64_t position, uint64_t count,
                       void (*visit)(void *item, void *arg), void *arg);

/* Requests from memory what a scan from `position` on will meet behind its first group: the items
 * of the next one, and the buckets of one further away, of which the items are requested when the
 * scan has come nearer. For a walk that calls it before each group that it scans (count 1), so that
 * it hardly waits for memory. Costs about as much as looking at the group again. */
void kv_table_scan_ahead(const struct kv_table *t, uint64_t position);

/* Visits all items; the visitor must not change the table but may free items when the table is
 * released right afterwards. */
void kv_table_each(const struct kv_table *t, void (*visit)(void *item, void *arg), void *arg);

/* Moves blocks out of slabs that are evacuated: the table's own, and the items through `move`,
 * which returns where the item is now. Walks on from `cursor` (0: the start) over at least
 * `bucket_limit` buckets and to the end of a run of full ones; returns the cursor to go on from, or
 * KV_TABLE_MOVE_END. Every item that is present during a whole walk meets `move` at least once,
 * whatever is inserted, removed, grown, split or merged between the calls. Items are prefetched a
 * bucket ahead. `move` must not change the table otherwise; m counts the table's own blocks. */
#define KV_TABLE_MOVE_END ((uint64_t)1 << (KV_TABLE_DEPTH_MAX + 21))
uint64_t kv_table_move(struct kv_table *t, uint64_t cursor, uint32_t bucket_limit,
                       void *(*move)(void *item, void *arg), void *arg, struct kv_moves *m);

/* Visits the items that carry a position (there may be several with it): how an index that knows
 * only the hash's upper 41 bits finds its item. The visitor returns true to stop; then that item is
 * returned, else NULL. */
void *kv_table_find_position(const struct kv_table *t, uint64_t position,
                             bool (*visit)(void *item, void *arg), void *arg);

/* A random item, close to uniform (segment by directory, then slot); NULL when empty. `r` is 64
 * random bits, `step` yields more. */
struct kv_random;
void *kv_table_random(const struct kv_table *t, struct kv_random *r);

/* The items of one random bucket, all prefetched, so that looking at them costs one miss and not
 * one each; returns how many (0: the table is empty). Buckets are as likely as one another, items
 * nearly so. `items` stay good while they are not freed, whatever happens to the table. */
unsigned kv_table_sample(const struct kv_table *t, struct kv_random *r,
                         void *items[KV_TABLE_SLOTS]);

/* Bytes of directory and segments, as accounted. */
size_t kv_table_memory(const struct kv_table *t);

/* Debug: walks everything and asserts the invariants above. */
void kv_table_check(const struct kv_table *t);

#endif
