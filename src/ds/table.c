/* The keyspace's hash table: extendible hashing over segments of cache-line buckets.
 *
 * Layout. The directory is one block: 2^depth segment words, then 2^depth item counts, of which the
 * one at a segment's first index is in use. A segment of own depth d stands at 2^(depth - d)
 * neighbouring indexes, since all its items share d directory bits. A segment is nothing but its
 * buckets; address, size and own depth are packed into the word, so that a search costs one load
 * before the bucket.
 *
 * Within a segment items are placed by linear probing over buckets, with the tag alone. A bucket's
 * slots are filled from the front, so its last slot tells whether it is full.
 *
 * Invariants
 *   - an item lies in its home bucket, or all buckets from its home to its own are full
 *   - a segment of own depth above 0 has 32 buckets or more, in steps of 8
 *   - equal words stand at all indexes of a segment and nowhere else
 *   - deepest_count counts the segments with own depth = depth; it is above 0 unless depth is 0
 *
 * Growth. An insertion that finds 7/8 of the slots taken gives the segment 8 more buckets: one
 * pass over the tags. At 64 buckets it splits. To know each item's side before memory is taken, the
 * side is noted in bit 0 of its slot (items are 8-aligned). Splitting can fail to help when many
 * items share their directory bits; then the directory would double for nothing, so it may only
 * double while it has an index per 64 items, and the segment grows beyond 64 buckets instead. Keyed
 * hashes make that a matter of a broken hash function, but it must end, and be correct.
 *
 * Shrinking. A segment less than 3/8 full takes a size that is at most 3/4 full; at 32 buckets it
 * joins its sibling when both together fill at most half of a large segment. No item is touched.
 * The distance between 3/8 and 7/8 is what keeps a table from flapping.
 *
 * Threads: the caller serialises.
 *
 * Rejected: growing at 15/16 (0.6 bytes an item less, but a search for an absent key then reads 7
 * buckets in a full segment instead of 3.5, and 3.2 instead of 2.2 on average); an array of segment
 * structures (one more dependent load, often a miss, per search); doubling
 * segments (half-empty after every step, 12 bytes an item instead of 10); storing 8 more hash bits
 * to split without the items (a byte an item for ever, to save what an item pays once in its life);
 * order of scan by directory first (a group is then a whole segment, and a SCAN with COUNT 10
 * visits 400).
 */
#include "ds/table.h"
#include "base/random.h"

#include <string.h>

#define LOW_BITS (16 - KV_TABLE_CHUNK_BITS) /* tag bits below the chunk */
#define CHUNK_COUNT ((uint64_t)1 << KV_TABLE_CHUNK_BITS)
#define DIRECTORY_END ((uint64_t)1 << KV_TABLE_DEPTH_MAX)

#define BUCKETS_MIN 32u    /* of a segment with own depth above 0 */
#define BUCKETS_SPLIT 64u  /* a segment of this size splits when it is full */
#define BUCKETS_MAX 65528u /* what 16 bits can say, a multiple of 8 */

#define FILL_FULL 7u  /* items per bucket at which a segment grows */
#define FILL_SPLIT 6u /* items per bucket at most that a half gets room for */
#define FILL_SHRUNK 6u
#define FILL_LOW 3u /* items per bucket below which a segment shrinks */
#define MERGED_MAX (BUCKETS_SPLIT * KV_TABLE_SLOTS / 2)
#define ITEMS_PER_INDEX_MIN 64u /* below, the directory does not double */

/* In a slot, while its segment splits: the item goes to the upper half. */
#define SIDE_MARK ((uint64_t)1)

#define SCAN_BUCKETS 1024u /* a scan's allowance beyond `count` */
#define RANDOM_TRIES 128
#define ITEM_BYTES 48 /* behind an item's first byte, where most end */
#define AHEAD_GROUPS                                                                               \
    3u                   /* from now, the group whose buckets are requested; items of the next one \
                          */
#define AHEAD_BUCKETS 3u /* of a group, at most */

static_assert(sizeof(struct kv_table_bucket) == KV_CACHE_LINE, "a bucket is a cache line");
static_assert(KV_TABLE_DEPTH_MAX < KV_CACHE_LINE, "a depth fits the low bits of an address");
static_assert(BUCKETS_MAX <= UINT16_MAX && BUCKETS_MAX % 8 == 0, "a word has 16 bits for a size");
static_assert(KV_TABLE_POSITION_BITS == 41, "the expiry index stores 41 bits");

/* --- words --- */

static uint32_t word_depth(uint64_t word)
{
    return (uint32_t)(word & (KV_CACHE_LINE - 1));
}

static uint64_t make_word(struct kv_table_bucket *buckets, uint32_t bucket_count, uint32_t depth)
{
    KV_DASSERT(((uintptr_t)buckets & (KV_CACHE_LINE - 1)) == 0);
    KV_DASSERT(((uintptr_t)buckets >> 48) == 0);
    return (uint64_t)bucket_count << 48 | (uintptr_t)buckets | depth;
}

static uint64_t slot_of(uint64_t hash, const void *item)
{
    KV_DASSERT(((uintptr_t)item & 7) == 0);
    KV_DASSERT(((uintptr_t)item >> 48) == 0);
    return hash >> 48 << 48 | (uintptr_t)item;
}

static size_t directory_bytes(uint32_t depth)
{
    return (sizeof(uint64_t) + sizeof(uint32_t)) << depth;
}

static uint32_t *item_counts(const struct kv_table *t)
{
    return (uint32_t *)(t->directory + ((size_t)1 << t->depth));
}

static size_t index_of(const struct kv_table *t, uint64_t hash)
{
    return (size_t)(((hash << 16) >> 1) >> (63 - t->depth));
}

/* How many indexes a segment of this own depth has. */
static size_t index_span(const struct kv_table *t, uint32_t own_depth)
{
    KV_DASSERT(own_depth <= t->depth);
    return (size_t)1 << (t->depth - own_depth);
}

static size_t first_index(const struct kv_table *t, size_t index)
{
    return index & ~(index_span(t, word_depth(t->directory[index])) - 1);
}

/* Writes a word, whose depth says how often, from its first index on. */
static void store_word(struct kv_table *t, size_t first, uint64_t word)
{
    size_t span = index_span(t, word_depth(word));
    KV_DASSERT((first & (span - 1)) == 0);
    for (size_t i = 0; i < span; i++)
        t->directory[first + i] = word;
}

/* --- sizes of segments --- */

/* Items that a segment takes before it grows. A single bucket may be full. */
static uint32_t capacity_of(uint32_t bucket_count)
{
    return bucket_count == 1 ? KV_TABLE_SLOTS : bucket_count * FILL_FULL;
}

static uint32_t next_size(uint32_t bucket_count)
{
    if (bucket_count < BUCKETS_MIN)
        return bucket_count * 2;
    if (bucket_count < BUCKETS_SPLIT)
        return bucket_count + 8;
    return KV_MIN((bucket_count + bucket_count / 8 + 7) & ~7u, BUCKETS_MAX);
}

/* Smallest size in which `count` items fill at most `fill` slots of a bucket on average. */
static uint32_t size_for(uint32_t count, uint32_t fill, uint32_t own_depth)
{
    uint32_t size = own_depth == 0 ? 1 : BUCKETS_MIN;
    while (count > size * fill && size < BUCKETS_MAX)
        size = next_size(size);
    return size;
}

static struct kv_table_bucket *make_buckets(struct kv_table *t, uint32_t bucket_count)
{
    size_t bytes = bucket_count * sizeof(struct kv_table_bucket);
    struct kv_table_bucket *buckets = kv_mem_try_alloc_aligned(bytes, KV_CACHE_LINE, t->owner);
    if (buckets == NULL)
        return NULL;
    memset(buckets, 0, bytes);
    t->segment_bytes += kv_mem_block_size(bytes);
    return buckets;
}

static void free_buckets(struct kv_table *t, struct kv_table_bucket *buckets, uint32_t bucket_count)
{
    if (buckets == NULL)
        return;
    size_t bytes = bucket_count * sizeof(struct kv_table_bucket);
    KV_ASSERT(t->segment_bytes >= kv_mem_block_size(bytes));
    t->segment_bytes -= kv_mem_block_size(bytes);
    kv_mem_free_aligned(buckets, bytes, KV_CACHE_LINE, t->owner);
}

/* --- placing items --- */

/* Used slots of a bucket. Counted without branches: where it ends is not predictable. */
static unsigned bucket_used(const struct kv_table_bucket *b)
{
    unsigned used = 0;
    for (unsigned i = 0; i < KV_TABLE_SLOTS; i++)
        used += b->slot[i] != 0;
    return used;
}

static void place(struct kv_table_bucket *buckets, uint32_t bucket_count, uint64_t slot)
{
    uint32_t bucket = (uint32_t)(((slot >> 48) * bucket_count) >> 16);
    for (uint32_t probe = 0; probe < bucket_count; probe++) {
        struct kv_table_bucket *b = &buckets[bucket];
        if (KV_LIKELY(!kv_table_bucket_full(b))) {
            b->slot[bucket_used(b)] = slot;
            return;
        }
        if (++bucket == bucket_count)
            bucket = 0;
    }
    kv_panic("hash table: no free slot in a segment of %u buckets", bucket_count);
}

/* A segment being filled: for usual sizes the used slots are counted beside the buckets, which
 * makes moving an item a matter of 2 ns (every item moves about seven times while a segment
 * fills). Larger segments are rare and go the slow way. */
struct filling {
    struct kv_table_bucket *buckets;
    uint32_t bucket_count;
    uint8_t used[BUCKETS_SPLIT];
};

static void filling_init(struct filling *f, struct kv_table_bucket *buckets, uint32_t bucket_count)
{
    f->buckets = buckets;
    f->bucket_count = bucket_count;
    memset(f->used, 0, sizeof f->used);
}

static inline void filling_put(struct filling *f, uint64_t slot)
{
    if (KV_UNLIKELY(f->bucket_count > BUCKETS_SPLIT)) {
        place(f->buckets, f->bucket_count, slot);
        return;
    }
    uint32_t bucket = (uint32_t)(((slot >> 48) * f->bucket_count) >> 16);
    while (KV_UNLIKELY(f->used[bucket] == KV_TABLE_SLOTS))
        bucket = bucket + 1 == f->bucket_count ? 0 : bucket + 1;
    f->buckets[bucket].slot[f->used[bucket]++] = slot;
}

static void filling_put_all(struct filling *f, uint64_t word)
{
    const struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    uint32_t bucket_count = kv_table_word_count(word);
    KV_DASSERT(buckets != f->buckets);
    for (uint32_t bucket = 0; bucket < bucket_count; bucket++) {
        const uint64_t *slot = buckets[bucket].slot;
        for (unsigned i = 0; i < KV_TABLE_SLOTS && slot[i] != 0; i++)
            filling_put(f, slot[i]);
    }
}

/* Gives the segment at `first` another number of buckets. False: no memory, nothing changed. */
static bool resize_segment(struct kv_table *t, size_t first, uint32_t new_count)
{
    uint64_t word = t->directory[first];
    uint32_t old_count = kv_table_word_count(word);
    KV_DASSERT(new_count != old_count);
    KV_ASSERT(item_counts(t)[first] <= new_count * KV_TABLE_SLOTS);
    struct kv_table_bucket *buckets = make_buckets(t, new_count);
    if (buckets == NULL)
        return false;
    struct filling filling;
    filling_init(&filling, buckets, new_count);
    filling_put_all(&filling, word);
    store_word(t, first, make_word(buckets, new_count, word_depth(word)));
    free_buckets(t, kv_table_word_buckets(word), old_count);
    return true;
}

/* --- the directory --- */

void kv_table_init(struct kv_table *t, uint64_t (*hash_of)(const void *item, void *arg), void *arg,
                   enum kv_mem_owner owner)
{
    KV_ASSERT(hash_of != NULL);
    KV_ASSERT((unsigned)owner < KV_MEM_OWNER_COUNT);
    *t = (struct kv_table){.hash_of = hash_of, .arg = arg, .owner = owner};
}

void kv_table_release(struct kv_table *t)
{
    if (t->directory != NULL) {
        size_t end = (size_t)1 << t->depth;
        for (size_t i = 0; i < end;) {
            uint64_t word = t->directory[i];
            i += index_span(t, word_depth(word));
            free_buckets(t, kv_table_word_buckets(word), kv_table_word_count(word));
            t->segment_count--;
        }
        kv_mem_free(t->directory, directory_bytes(t->depth), t->owner);
    }
    KV_ASSERT(t->segment_count == 0);
    KV_ASSERT(t->segment_bytes == 0);
    kv_table_init(t, t->hash_of, t->arg, t->owner);
}

static enum kv_err create_directory(struct kv_table *t)
{
    KV_DASSERT(t->count == 0);
    struct kv_table_bucket *buckets = make_buckets(t, 1);
    if (buckets == NULL)
        return KV_ERR_NOMEM;
    t->directory = kv_mem_try_alloc(directory_bytes(0), t->owner);
    if (t->directory == NULL) {
        free_buckets(t, buckets, 1);
        return KV_ERR_NOMEM;
    }
    t->depth = 0;
    t->segment_count = 1;
    t->deepest_count = 1;
    t->directory[0] = make_word(buckets, 1, 0);
    item_counts(t)[0] = 0;
    return KV_OK;
}

/* Items are spread by chance: room for three deviations more than the mean keeps all but one in 700
 * segments from growing. */
static uint64_t with_deviation(uint64_t mean)
{
    uint64_t root = 0;
    while ((root + 1) * (root + 1) <= mean)
        root++;
    return mean + 3 * root;
}

static void free_segments(struct kv_table *t, const uint64_t *directory, size_t len)
{
    for (size_t i = 0; i < len; i++)
        free_buckets(t, kv_table_word_buckets(directory[i]), kv_table_word_count(directory[i]));
}

enum kv_err kv_table_reserve(struct kv_table *t, uint64_t count)
{
    KV_ASSERT(t->count == 0);
    uint32_t depth = 0;
    if (t->directory != NULL || count == 0)
        return KV_OK;
    while (depth < KV_TABLE_DEPTH_MAX &&
           with_deviation(KV_MIN(count >> depth, UINT32_MAX)) > BUCKETS_SPLIT * FILL_FULL)
        depth++;
    size_t len = (size_t)1 << depth;
    uint32_t items = (uint32_t)with_deviation(count >> depth);
    uint32_t bucket_count = size_for(items, FILL_FULL, depth);
    uint64_t *directory = kv_mem_try_alloc(directory_bytes(depth), t->owner);
    if (directory == NULL)
        return KV_ERR_NOMEM;
    for (size_t i = 0; i < len; i++) {
        struct kv_table_bucket *buckets = make_buckets(t, bucket_count);
        if (buckets == NULL) {
            free_segments(t, directory, i);
            kv_mem_free(directory, directory_bytes(depth), t->owner);
            return KV_ERR_NOMEM;
        }
        directory[i] = make_word(buckets, bucket_count, depth);
    }
    memset(directory + len, 0, len * sizeof(uint32_t));
    t->directory = directory;
    t->depth = depth;
    t->segment_count = t->deepest_count = (uint32_t)len;
    return KV_OK;
}

static bool double_directory(struct kv_table *t)
{
    KV_ASSERT(t->depth < KV_TABLE_DEPTH_MAX);
    size_t old_len = (size_t)1 << t->depth;
    uint64_t *doubled = kv_mem_try_alloc(directory_bytes(t->depth + 1), t->owner);
    if (doubled == NULL)
        return false;
    const uint32_t *old_counts = item_counts(t);
    uint32_t *counts = (uint32_t *)(doubled + 2 * old_len);
    for (size_t i = 0; i < old_len; i++) {
        doubled[2 * i] = t->directory[i];
        doubled[2 * i + 1] = t->directory[i];
        counts[2 * i] = old_counts[i];
        counts[2 * i + 1] = 0;
    }
    kv_mem_free(t->directory, directory_bytes(t->depth), t->owner);
    t->directory = doubled;
    t->depth++;
    t->deepest_count = 0;
    return true;
}

/* No segment needs the last directory bit: drops it. False when memory is short. */
static bool halve_directory(struct kv_table *t)
{
    KV_ASSERT(t->depth > 0);
    KV_ASSERT(t->deepest_count == 0);
    size_t len = (size_t)1 << (t->depth - 1);
    uint64_t *halved = kv_mem_try_alloc(directory_bytes(t->depth - 1), t->owner);
    if (halved == NULL)
        return false;
    const uint32_t *old_counts = item_counts(t);
    uint32_t *counts = (uint32_t *)(halved + len);
    for (size_t i = 0; i < len; i++) {
        KV_DASSERT(t->directory[2 * i] == t->directory[2 * i + 1]);
        halved[i] = t->directory[2 * i];
        counts[i] = old_counts[2 * i];
        t->deepest_count += word_depth(halved[i]) == t->depth - 1;
    }
    kv_mem_free(t->directory, directory_bytes(t->depth), t->owner);
    t->directory = halved;
    t->depth--;
    return true;
}

/* --- growing --- */

/* The directory bit that tells the two halves of a segment of this own depth apart. */
static uint64_t side_of(uint64_t hash, uint32_t own_depth)
{
    return hash >> (47 - own_depth) & 1;
}

static void prefetch_items(const struct kv_table_bucket *b)
{
    for (unsigned i = 0; i < KV_TABLE_SLOTS; i++)
        KV_PREFETCH(kv_table_slot_item(b->slot[i]));
}

/* What a visitor reads of an item that is copied: the line in which it begins, and the next one
 * when it goes on there. */
KV_INLINE void prefetch_whole(const void *item)
{
    KV_PREFETCH(item);
    KV_PREFETCH((const char *)item + ITEM_BYTES);
}

/* Notes in each slot the half it goes to; returns how many go to the upper one. */
static uint32_t mark_sides(struct kv_table *t, uint64_t word)
{
    struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    uint32_t bucket_count = kv_table_word_count(word);
    uint32_t upper = 0;
    prefetch_items(&buckets[0]);
    for (uint32_t bucket = 0; bucket < bucket_count; bucket++) {
        if (bucket + 1 < bucket_count)
            prefetch_items(&buckets[bucket + 1]);
        uint64_t *slot = buckets[bucket].slot;
        for (unsigned i = 0; i < KV_TABLE_SLOTS && slot[i] != 0; i++) {
            uint64_t hash = t->hash_of(kv_table_slot_item(slot[i]), t->arg);
            KV_DASSERT(hash >> 48 == slot[i] >> 48);
            uint64_t side = side_of(hash, word_depth(word));
            slot[i] |= side * SIDE_MARK;
            upper += (uint32_t)side;
        }
    }
    return upper;
}

static void clear_marks(uint64_t word)
{
    struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    for (uint32_t bucket = 0; bucket < kv_table_word_count(word); bucket++) {
        for (unsigned i = 0; i < KV_TABLE_SLOTS; i++)
            buckets[bucket].slot[i] &= ~SIDE_MARK;
    }
}

/* Divides the segment at index `first`; the directory has a bit to spare. */
static void divide(struct kv_table *t, size_t first, const uint64_t half[2],
                   const uint32_t items[2])
{
    uint64_t word = t->directory[first];
    const struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    struct filling filling[2];
    for (unsigned side = 0; side < 2; side++)
        filling_init(&filling[side], kv_table_word_buckets(half[side]),
                     kv_table_word_count(half[side]));
    for (uint32_t bucket = 0; bucket < kv_table_word_count(word); bucket++) {
        const uint64_t *slot = buckets[bucket].slot;
        for (unsigned i = 0; i < KV_TABLE_SLOTS && slot[i] != 0; i++)
            filling_put(&filling[slot[i] & SIDE_MARK], slot[i] & ~SIDE_MARK);
    }
    size_t upper_first = first + index_span(t, word_depth(half[1]));
    store_word(t, first, half[0]);
    store_word(t, upper_first, half[1]);
    item_counts(t)[first] = items[0];
    item_counts(t)[upper_first] = items[1];
    free_buckets(t, kv_table_word_buckets(word), kv_table_word_count(word));
}

static enum kv_err split_segment(struct kv_table *t, uint64_t hash)
{
    size_t first = first_index(t, index_of(t, hash));
    uint64_t word = t->directory[first];
    uint32_t own_depth = word_depth(word) + 1;
    KV_ASSERT(own_depth <= KV_TABLE_DEPTH_MAX);
    uint32_t upper = mark_sides(t, word);
    uint32_t items[2] = {item_counts(t)[first] - upper, upper};
    uint32_t sizes[2] = {size_for(items[0], FILL_SPLIT, own_depth),
                         size_for(items[1], FILL_SPLIT, own_depth)};
    struct kv_table_bucket *lower_buckets = make_buckets(t, sizes[0]);
    struct kv_table_bucket *upper_buckets = make_buckets(t, sizes[1]);
    bool room = lower_buckets != NULL && upper_buckets != NULL;
    if (!room || (own_depth > t->depth && !double_directory(t))) {
        free_buckets(t, lower_buckets, sizes[0]);
        free_buckets(t, upper_buckets, sizes[1]);
        clear_marks(word);
        return KV_ERR_NOMEM;
    }
    uint64_t half[2] = {make_word(lower_buckets, sizes[0], own_depth),
                        make_word(upper_buckets, sizes[1], own_depth)};
    divide(t, first_index(t, index_of(t, hash)), half, items);
    t->segment_count++;
    if (own_depth == t->depth)
        t->deepest_count += 2;
    return KV_OK;
}

static bool may_split(const struct kv_table *t, uint64_t word)
{
    if (kv_table_word_count(word) < BUCKETS_SPLIT)
        return false;
    if (word_depth(word) < t->depth)
        return true;
    return t->depth < KV_TABLE_DEPTH_MAX && t->count >= (uint64_t)ITEMS_PER_INDEX_MIN
                                                            << (t->depth + 1);
}

/* Makes room in the segment of `hash`, which is at its capacity. One call may not be enough. */
static KV_COLD enum kv_err grow_segment(struct kv_table *t, uint64_t hash)
{
    size_t first = first_index(t, index_of(t, hash));
    uint64_t word = t->directory[first];
    if (may_split(t, word))
        return split_segment(t, hash);
    uint32_t bucket_count = kv_table_word_count(word);
    if (bucket_count == BUCKETS_MAX)
        return KV_ERR_LIMIT;
    return resize_segment(t, first, next_size(bucket_count)) ? KV_OK : KV_ERR_NOMEM;
}

enum kv_err kv_table_insert(struct kv_table *t, uint64_t hash, void *item)
{
    KV_ASSERT(item != NULL);
    KV_DASSERT(t->hash_of(item, t->arg) == hash);
    if (KV_UNLIKELY(t->directory == NULL)) {
        enum kv_err err = create_directory(t);
        if (err != KV_OK)
            return err;
    }
    size_t first = first_index(t, index_of(t, hash));
    uint64_t word = t->directory[first];
    while (KV_UNLIKELY(item_counts(t)[first] >= capacity_of(kv_table_word_count(word)))) {
        enum kv_err err = grow_segment(t, hash);
        first = first_index(t, index_of(t, hash));
        word = t->directory[first];
        if (err == KV_OK)
            continue;
        if (item_counts(t)[first] == kv_table_word_count(word) * KV_TABLE_SLOTS)
            return err;
        break; /* slower to search, but there is a free slot */
    }
    place(kv_table_word_buckets(word), kv_table_word_count(word), slot_of(hash, item));
    item_counts(t)[first]++;
    t->count++;
    return KV_OK;
}

/* --- finding what is known to be there --- */

static uint64_t *find_slot(const struct kv_table *t, uint64_t hash, const void *item)
{
    KV_ASSERT(t->directory != NULL);
    uint64_t word = kv_table_word(t, hash);
    struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    uint64_t wanted = slot_of(hash, item);
    uint32_t bucket = kv_table_home(word, hash >> 48);
    for (uint32_t probe = 0; probe < kv_table_word_count(word); probe++) {
        struct kv_table_bucket *b = &buckets[bucket];
        for (unsigned i = 0; i < KV_TABLE_SLOTS; i++) {
            if (b->slot[i] == wanted)
                return &b->slot[i];
        }
        if (!kv_table_bucket_full(b))
            break;
        if (++bucket == kv_table_word_count(word))
            bucket = 0;
    }
    kv_panic("hash table: item %p is not in the table", item);
}

void kv_table_replace(struct kv_table *t, uint64_t hash, const void *old_item, void *new_item)
{
    KV_ASSERT(new_item != NULL);
    *find_slot(t, hash, old_item) = slot_of(hash, new_item);
}

void kv_table_prefetch_item(const struct kv_table *t, uint64_t hash)
{
    if (KV_UNLIKELY(t->directory == NULL))
        return;
    uint64_t word = kv_table_word(t, hash);
    uint32_t home = kv_table_home(word, hash >> 48);
    const struct kv_table_bucket *b = &kv_table_word_buckets(word)[home];
    unsigned set = kv_table_match(b, hash >> 48);
    if (KV_LIKELY(set != 0))
        KV_PREFETCH(kv_table_slot_item(b->slot[kv_table_match_slot(set)]));
    else if (kv_table_bucket_full(b))
        KV_PREFETCH(b + 1);
}

void *kv_table_find_position(const struct kv_table *t, uint64_t position,
                             bool (*visit)(void *item, void *arg), void *arg)
{
    KV_ASSERT(position < KV_TABLE_POSITION_END);
    if (t->directory == NULL)
        return NULL;
    uint64_t chunk = position >> (KV_TABLE_DEPTH_MAX + LOW_BITS);
    uint64_t low = position & ((1u << LOW_BITS) - 1);
    uint64_t directory_bits = position >> LOW_BITS & (DIRECTORY_END - 1);
    uint64_t tag = chunk << LOW_BITS | low;
    uint64_t word = kv_table_word(t, tag << 48 | directory_bits << (48 - KV_TABLE_DEPTH_MAX));
    const struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    uint32_t bucket = kv_table_home(word, tag);
    for (uint32_t probe = 0; probe < kv_table_word_count(word); probe++) {
        const struct kv_table_bucket *b = &buckets[bucket];
        for (unsigned set = kv_table_match(b, tag); set != 0; set &= set - 1) {
            void *item = kv_table_slot_item(b->slot[kv_table_match_slot(set)]);
            if (item != NULL && kv_table_position(t->hash_of(item, t->arg)) == position &&
                visit(item, arg))
                return item;
        }
        if (!kv_table_bucket_full(b))
            break;
        if (++bucket == kv_table_word_count(word))
            bucket = 0;
    }
    return NULL;
}

/* --- removing --- */

/* Takes a slot out of its bucket; the last one fills the hole. True when the bucket was full. */
static bool take_out(struct kv_table_bucket *b, unsigned i)
{
    KV_DASSERT(b->slot[i] != 0);
    bool was_full = kv_table_bucket_full(b);
    unsigned last = bucket_used(b) - 1;
    b->slot[i] = b->slot[last];
    b->slot[last] = 0;
    return was_full;
}

/* The slot number in bucket `at` of an item whose way leads over bucket `hole`, or -1. */
static int find_mover(const struct kv_table_bucket *buckets, uint32_t bucket_count, uint32_t hole,
                      uint32_t at)
{
    uint32_t hole_distance = at >= hole ? at - hole : at + bucket_count - hole;
    for (int i = 0; i < KV_TABLE_SLOTS && buckets[at].slot[i] != 0; i++) {
        uint32_t home = (uint32_t)(((buckets[at].slot[i] >> 48) * bucket_count) >> 16);
        uint32_t home_distance = at >= home ? at - home : at + bucket_count - home;
        if (home_distance >= hole_distance)
            return i;
    }
    return -1;
}

/* Bucket `hole` was full and has a free slot now: moves later items back until every item can be
 * reached again. */
static void shift_back(struct kv_table_bucket *buckets, uint32_t bucket_count, uint32_t hole)
{
    uint32_t at = hole;
    for (uint32_t step = 1; step < bucket_count; step++) {
        if (++at == bucket_count)
            at = 0;
        bool was_full = kv_table_bucket_full(&buckets[at]);
        int i = find_mover(buckets, bucket_count, hole, at);
        if (i >= 0) {
            buckets[hole].slot[KV_TABLE_SLOTS - 1] = buckets[at].slot[i];
            take_out(&buckets[at], (unsigned)i);
            hole = at;
            step = 0;
        }
        if (!was_full)
            return;
    }
}

/* Joins the segment at `first` with its sibling when both are small. */
static bool merge_segment(struct kv_table *t, size_t first)
{
    uint64_t word = t->directory[first];
    uint32_t own_depth = word_depth(word);
    if (own_depth == 0)
        return false;
    size_t sibling = first ^ index_span(t, own_depth);
    uint64_t sibling_word = t->directory[sibling];
    if (word_depth(sibling_word) != own_depth)
        return false;
    uint32_t items = item_counts(t)[first] + item_counts(t)[sibling];
    if (items > MERGED_MAX)
        return false;
    uint32_t size = size_for(items, FILL_SHRUNK, own_depth - 1);
    struct kv_table_bucket *buckets = make_buckets(t, size);
    if (buckets == NULL)
        return false;
    struct filling filling;
    filling_init(&filling, buckets, size);
    filling_put_all(&filling, word);
    filling_put_all(&filling, sibling_word);
    size_t merged = KV_MIN(first, sibling);
    store_word(t, merged, make_word(buckets, size, own_depth - 1));
    item_counts(t)[merged] = items;
    free_buckets(t, kv_table_word_buckets(word), kv_table_word_count(word));
    free_buckets(t, kv_table_word_buckets(sibling_word), kv_table_word_count(sibling_word));
    t->segment_count--;
    if (own_depth == t->depth)
        t->deepest_count -= 2;
    return true;
}

/* The segment of `hash` is less than 3/8 full. */
static KV_COLD void shrink_segment(struct kv_table *t, uint64_t hash)
{
    size_t first = first_index(t, index_of(t, hash));
    uint64_t word = t->directory[first];
    uint32_t size = size_for(item_counts(t)[first], FILL_SHRUNK, word_depth(word));
    if (size < kv_table_word_count(word)) {
        resize_segment(t, first, size);
        return;
    }
    if (!merge_segment(t, first))
        return;
    while (t->deepest_count == 0 && t->depth > 0 && halve_directory(t))
        continue;
}

void kv_table_remove(struct kv_table *t, uint64_t hash, const void *item)
{
    uint64_t *slot = find_slot(t, hash, item);
    size_t first = first_index(t, index_of(t, hash));
    uint64_t word = t->directory[first];
    struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    uint32_t bucket_count = kv_table_word_count(word);
    uint32_t bucket = (uint32_t)(slot - buckets->slot) / KV_TABLE_SLOTS;
    KV_ASSERT(item_counts(t)[first] > 0);
    if (take_out(&buckets[bucket], (unsigned)(slot - buckets[bucket].slot)))
        shift_back(buckets, bucket_count, bucket);
    uint32_t left = --item_counts(t)[first];
    if (--t->count == 0)
        kv_table_release(t);
    else if (left < bucket_count * FILL_LOW && bucket_count > 1)
        shrink_segment(t, hash);
}

/* --- walking --- */

struct scan {
    const struct kv_table *t;
    void (*visit)(void *item, void *arg);
    void *arg;
    uint64_t from;    /* position below which items of the group were visited before */
    uint64_t visited; /* items */
    uint64_t looked;  /* buckets */
};

static void scan_bucket(struct scan *s, const struct kv_table_bucket *b, uint64_t chunk,
                        bool filter)
{
    for (unsigned i = 0; i < KV_TABLE_SLOTS && b->slot[i] != 0; i++) {
        if (b->slot[i] >> (64 - KV_TABLE_CHUNK_BITS) == chunk)
            KV_PREFETCH(kv_table_slot_item(b->slot[i]));
    }
    for (unsigned i = 0; i < KV_TABLE_SLOTS && b->slot[i] != 0; i++) {
        if (b->slot[i] >> (64 - KV_TABLE_CHUNK_BITS) != chunk)
            continue;
        void *item = kv_table_slot_item(b->slot[i]);
        if (filter && kv_table_position(s->t->hash_of(item, s->t->arg)) < s->from)
            continue;
        s->visit(item, s->arg);
        s->visited++;
    }
}

/* The items of a chunk in one segment. */
struct group {
    uint64_t word, chunk;
    uint64_t begin, end;         /* positions */
    uint32_t bucket, home_count; /* the first home bucket; how many there are */
};

/* The one to which a position belongs. */
KV_INLINE struct group group_at(const struct kv_table *t, uint64_t position)
{
    uint64_t chunk = position >> (KV_TABLE_DEPTH_MAX + LOW_BITS);
    uint64_t directory_bits = position >> LOW_BITS & (DIRECTORY_END - 1);
    uint64_t word = t->directory[directory_bits >> (KV_TABLE_DEPTH_MAX - t->depth)];
    uint64_t span = DIRECTORY_END >> word_depth(word);
    uint64_t begin = (chunk << KV_TABLE_DEPTH_MAX) + (directory_bits & ~(span - 1));
    uint32_t bucket = kv_table_home(word, chunk << LOW_BITS);
    uint32_t last = kv_table_home(word, ((chunk + 1) << LOW_BITS) - 1);
    return (struct group){
        .word = word,
        .chunk = chunk,
        .begin = begin << LOW_BITS,
        .end = (begin + span) << LOW_BITS, /* carries into the chunk */
        .bucket = bucket,
        .home_count = last - bucket + 1,
    };
}

/* Visits the items of a group: in its home buckets, and on while they overflow. */
static void scan_group(struct scan *s, const struct group *g, bool filter)
{
    const struct kv_table_bucket *buckets = kv_table_word_buckets(g->word);
    uint32_t bucket_count = kv_table_word_count(g->word);
    uint32_t bucket = g->bucket;
    for (uint32_t step = 1; step <= bucket_count; step++) {
        const struct kv_table_bucket *b = &buckets[bucket];
        scan_bucket(s, b, g->chunk, filter);
        s->looked++;
        if (step >= g->home_count && !kv_table_bucket_full(b))
            return;
        if (++bucket == bucket_count)
            bucket = 0;
    }
}

uint64_t kv_table_scan(const struct kv_table *t, uint64_t position, uint64_t count,
                       void (*visit)(void *item, void *arg), void *arg)
{
    KV_ASSERT(visit != NULL);
    struct scan s = {.t = t, .visit = visit, .arg = arg};
    if (t->directory == NULL || position >= KV_TABLE_POSITION_END)
        return KV_TABLE_POSITION_END;
    do {
        struct group g = group_at(t, position);
        s.from = position;
        /* A cursor within a group: the segment has merged since, or the client made it up. */
        scan_group(&s, &g, position != g.begin);
        position = g.end;
    } while (s.visited < count && s.looked < count + SCAN_BUCKETS &&
             position < KV_TABLE_POSITION_END);
    KV_DASSERT(position <= KV_TABLE_POSITION_END);
    return position;
}

/* What lies in the home buckets of a group, whose lines are here already. */
static void prefetch_group(const struct group *g)
{
    const struct kv_table_bucket *b = kv_table_word_buckets(g->word) + g->bucket;
    for (uint32_t left = KV_MIN(g->home_count, AHEAD_BUCKETS); left > 0; left--, b++) {
        for (unsigned i = 0; i < KV_TABLE_SLOTS && b->slot[i] != 0; i++) {
            if (b->slot[i] >> (64 - KV_TABLE_CHUNK_BITS) == g->chunk)
                prefetch_whole(kv_table_slot_item(b->slot[i]));
        }
    }
}

void kv_table_scan_ahead(const struct kv_table *t, uint64_t position)
{
    for (unsigned ahead = 0; ahead <= AHEAD_GROUPS; ahead++) {
        if (t->directory == NULL || position >= KV_TABLE_POSITION_END)
            return;
        struct group g = group_at(t, position);
        const struct kv_table_bucket *b = kv_table_word_buckets(g.word) + g.bucket;
        if (ahead == 1)
            prefetch_group(&g);
        for (uint32_t i = 0; ahead == AHEAD_GROUPS && i < KV_MIN(g.home_count, AHEAD_BUCKETS); i++)
            KV_PREFETCH(&b[i]);
        position = g.end;
    }
}

static void prefetch_bucket(const struct kv_table_bucket *b)
{
    for (unsigned i = 0; i < KV_TABLE_SLOTS && b->slot[i] != 0; i++)
        prefetch_whole(kv_table_slot_item(b->slot[i]));
}

void kv_table_each(const struct kv_table *t, void (*visit)(void *item, void *arg), void *arg)
{
    KV_ASSERT(visit != NULL);
    if (t->directory == NULL)
        return;
    size_t end = (size_t)1 << t->depth;
    for (size_t index = 0; index < end;) {
        uint64_t word = t->directory[index];
        const struct kv_table_bucket *buckets = kv_table_word_buckets(word);
        uint32_t bucket_count = kv_table_word_count(word);
        size_t next = index + index_span(t, word_depth(word));
        prefetch_bucket(&buckets[0]);
        if (next < end)
            KV_PREFETCH(kv_table_word_buckets(t->directory[next]));
        for (uint32_t bucket = 0; bucket < bucket_count; bucket++) {
            if (bucket + 1 < bucket_count)
                prefetch_bucket(&buckets[bucket + 1]);
            const uint64_t *slot = buckets[bucket].slot;
            for (unsigned i = 0; i < KV_TABLE_SLOTS && slot[i] != 0; i++)
                visit(kv_table_slot_item(slot[i]), arg);
        }
        index = next;
    }
}

/* --- moving blocks ---
 *
 * The walk goes segment by segment, since a segment's buckets lie side by side. A cursor names the
 * directory bits of the segment (25), the own depth that it had (5) and the first tag that is still
 * to be visited (16). Items lie at or behind the home bucket of their tag, and a call ends behind a
 * bucket that is not full, over which no item has overflowed: so what has a smaller tag was
 * visited. A segment that has another size meanwhile is gone on with from the tag's home there; the
 * upper half of one that has split is walked from its start; one that has merged (its own depth is
 * smaller) starts anew, for its sibling's items were not visited. */

#define MOVE_DEPTH_SHIFT 16
#define MOVE_BITS_SHIFT 21

static_assert(KV_TABLE_DEPTH_MAX < 1 << (MOVE_BITS_SHIFT - MOVE_DEPTH_SHIFT), "a depth fits");
static_assert(KV_TABLE_MOVE_END == DIRECTORY_END << MOVE_BITS_SHIFT, "cursors end there");

struct mover {
    void *(*move)(void *item, void *arg);
    void *arg;
    struct kv_moves *moves;
    uint32_t buckets_left; /* that the call looks at */
};

static void move_directory(struct kv_table *t, struct kv_moves *m)
{
    t->directory = kv_move_block(t->directory, directory_bytes(t->depth), t->owner, m);
}

/* The buckets of the segment at `first`; its word may change. */
static void move_buckets(struct kv_table *t, size_t first, struct kv_moves *m)
{
    uint64_t word = t->directory[first];
    uint32_t bucket_count = kv_table_word_count(word);
    size_t bytes = bucket_count * sizeof(struct kv_table_bucket);
    struct kv_table_bucket *old = kv_table_word_buckets(word);
    if (!kv_move_wanted(old, bytes, m))
        return;
    struct kv_table_bucket *moved = kv_mem_try_move_aligned(old, bytes, KV_CACHE_LINE, t->owner);
    if (moved == NULL) {
        m->kept++;
        return;
    }
    store_word(t, first, make_word(moved, bucket_count, word_depth(word)));
    m->moved++;
    m->bytes += bytes;
}

static void move_items(struct kv_table_bucket *b, struct mover *m)
{
    for (unsigned i = 0; i < KV_TABLE_SLOTS && b->slot[i] != 0; i++) {
        void *item = kv_table_slot_item(b->slot[i]);
        void *moved = m->move(item, m->arg);
        KV_DASSERT(((uintptr_t)moved & 7) == 0 && ((uintptr_t)moved >> 48) == 0);
        if (moved != item)
            b->slot[i] = b->slot[i] >> 48 << 48 | (uintptr_t)moved;
    }
}

/* Visits a segment from the home of `tag` on. Returns the tag to go on from; 2^16: all is done. */
static uint32_t move_segment_items(uint64_t word, uint32_t tag, struct mover *m)
{
    struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    uint32_t bucket_count = kv_table_word_count(word);
    uint32_t bucket = kv_table_home(word, tag);
    bool full = false;
    prefetch_items(&buckets[bucket]);
    for (; bucket < bucket_count; bucket++) {
        if (!full && m->buckets_left == 0) /* the first tag whose home is this bucket */
            return (uint32_t)((((uint64_t)bucket << 16) + bucket_count - 1) / bucket_count);
        if (bucket + 1 < bucket_count)
            prefetch_items(&buckets[bucket + 1]);
        move_items(&buckets[bucket], m);
        m->buckets_left -= m->buckets_left != 0;
        full = kv_table_bucket_full(&buckets[bucket]);
    }
    /* What has wrapped since an earlier call visited the first buckets. */
    for (bucket = 0; tag != 0 && full && bucket < bucket_count; bucket++) {
        move_items(&buckets[bucket], m);
        full = kv_table_bucket_full(&buckets[bucket]);
    }
    return 1u << 16;
}

uint64_t kv_table_move(struct kv_table *t, uint64_t cursor, uint32_t bucket_limit,
                       void *(*move)(void *item, void *arg), void *arg, struct kv_moves *m)
{
    KV_ASSERT(bucket_limit > 0 && cursor <= KV_TABLE_MOVE_END);
    struct mover mover = {move, arg, m, bucket_limit};
    if (t->directory == NULL)
        return KV_TABLE_MOVE_END;
    if (cursor == 0)
        move_directory(t, m);
    while (cursor < KV_TABLE_MOVE_END && mover.buckets_left > 0) {
        uint64_t directory_bits = cursor >> MOVE_BITS_SHIFT;
        size_t first = first_index(t, (size_t)(directory_bits >> (KV_TABLE_DEPTH_MAX - t->depth)));
        uint64_t own_depth = word_depth(t->directory[first]);
        uint64_t span = DIRECTORY_END >> own_depth;
        uint64_t begin = directory_bits & ~(span - 1);
        uint32_t tag = (uint32_t)(cursor & ((1u << MOVE_DEPTH_SHIFT) - 1));
        if (own_depth < (cursor >> MOVE_DEPTH_SHIFT & ((1u << 5) - 1)))
            tag = 0;
        if (tag == 0)
            move_buckets(t, first, m);
        tag = move_segment_items(t->directory[first], tag, &mover);
        if (tag >> 16 != 0)
            cursor = (begin + span) << MOVE_BITS_SHIFT;
        else
            cursor = begin << MOVE_BITS_SHIFT | own_depth << MOVE_DEPTH_SHIFT | tag;
    }
    KV_DASSERT(cursor <= KV_TABLE_MOVE_END);
    return cursor;
}

/* --- chance --- */

/* A random item of the first segment at or after a random index: for tables so thin that taking
 * slots by chance finds none. */
static void *random_by_walk(const struct kv_table *t, struct kv_random *r)
{
    size_t end = (size_t)1 << t->depth;
    size_t index = first_index(t, (size_t)kv_random_below(r, end));
    while (item_counts(t)[index] == 0) {
        index += index_span(t, word_depth(t->directory[index]));
        if (index == end)
            index = 0;
    }
    uint64_t word = t->directory[index];
    const struct kv_table_bucket *b = kv_table_word_buckets(word);
    uint64_t skip = kv_random_below(r, item_counts(t)[index]);
    for (;; b++) {
        KV_DASSERT(b < kv_table_word_buckets(word) + kv_table_word_count(word));
        for (unsigned i = 0; i < KV_TABLE_SLOTS && b->slot[i] != 0; i++) {
            if (skip-- == 0)
                return kv_table_slot_item(b->slot[i]);
        }
    }
}

/* Every slot of a table in which all segments had the deepest depth and 64 buckets is as likely as
 * any other; tries that meet a slot that is not there, or is free, are repeated. */
void *kv_table_random(const struct kv_table *t, struct kv_random *r)
{
    if (t->count == 0)
        return NULL;
    size_t end = (size_t)1 << t->depth;
    for (int i = 0; i < RANDOM_TRIES; i++) {
        size_t index = (size_t)kv_random_below(r, end);
        uint64_t word = t->directory[index];
        if (index != first_index(t, index))
            continue;
        uint32_t bucket_count = kv_table_word_count(word);
        uint32_t range = t->depth == 0 ? bucket_count : KV_MAX(bucket_count, BUCKETS_SPLIT);
        uint64_t number = kv_random_below(r, (uint64_t)range * KV_TABLE_SLOTS);
        if (number >= (uint64_t)bucket_count * KV_TABLE_SLOTS)
            continue;
        uint64_t slot =
            kv_table_word_buckets(word)[number / KV_TABLE_SLOTS].slot[number % KV_TABLE_SLOTS];
        if (slot != 0)
            return kv_table_slot_item(slot);
    }
    return random_by_walk(t, r);
}

unsigned kv_table_sample(const struct kv_table *t, struct kv_random *r, void *items[KV_TABLE_SLOTS])
{
    unsigned count = 0;
    if (t->count == 0)
        return 0;
    size_t end = (size_t)1 << t->depth;
    for (int i = 0; i < RANDOM_TRIES && count == 0; i++) {
        size_t index = (size_t)kv_random_below(r, end);
        uint64_t word = t->directory[index];
        if (index != first_index(t, index))
            continue;
        uint32_t bucket_count = kv_table_word_count(word);
        uint32_t range = t->depth == 0 ? bucket_count : KV_MAX(bucket_count, BUCKETS_SPLIT);
        uint64_t number = kv_random_below(r, range);
        if (number >= bucket_count)
            continue;
        const struct kv_table_bucket *b = &kv_table_word_buckets(word)[number];
        for (; count < KV_TABLE_SLOTS && b->slot[count] != 0; count++) {
            items[count] = kv_table_slot_item(b->slot[count]);
            KV_PREFETCH(items[count]);
        }
    }
    if (count == 0)
        items[count++] = random_by_walk(t, r);
    return count;
}

/* --- memory and checks --- */

size_t kv_table_memory(const struct kv_table *t)
{
    if (t->directory == NULL)
        return 0;
    return t->segment_bytes + kv_mem_block_size(directory_bytes(t->depth));
}

static void check_item(const struct kv_table *t, size_t first, uint32_t bucket, uint64_t slot)
{
    uint64_t word = t->directory[first];
    const struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    KV_ASSERT((slot & 7) == 0);
    KV_ASSERT(kv_table_slot_item(slot) != NULL);
    uint64_t hash = t->hash_of(kv_table_slot_item(slot), t->arg);
    KV_ASSERT(hash >> 48 == slot >> 48);
    KV_ASSERT(first_index(t, index_of(t, hash)) == first);
    for (uint32_t b = kv_table_home(word, hash >> 48); b != bucket;) {
        KV_ASSERT(kv_table_bucket_full(&buckets[b]));
        b = b + 1 == kv_table_word_count(word) ? 0 : b + 1;
    }
}

static void check_segment(const struct kv_table *t, size_t first)
{
    uint64_t word = t->directory[first];
    uint32_t bucket_count = kv_table_word_count(word);
    const struct kv_table_bucket *buckets = kv_table_word_buckets(word);
    KV_ASSERT(word_depth(word) <= t->depth);
    KV_ASSERT(first == first_index(t, first));
    for (size_t i = 0; i < index_span(t, word_depth(word)); i++)
        KV_ASSERT(t->directory[first + i] == word);
    if (bucket_count < BUCKETS_MIN)
        KV_ASSERT(t->depth == 0 && (bucket_count & (bucket_count - 1)) == 0 && bucket_count != 0);
    else
        KV_ASSERT(bucket_count % 8 == 0 && bucket_count <= BUCKETS_MAX);
    uint32_t items = 0;
    for (uint32_t bucket = 0; bucket < bucket_count; bucket++) {
        const uint64_t *slot = buckets[bucket].slot;
        for (unsigned i = 0; i < KV_TABLE_SLOTS; i++) {
            KV_ASSERT(i == 0 || slot[i] == 0 || slot[i - 1] != 0);
            if (slot[i] == 0)
                continue;
            items++;
            check_item(t, first, bucket, slot[i]);
        }
    }
    KV_ASSERT(items == item_counts(t)[first]);
}

void kv_table_check(const struct kv_table *t)
{
    if (t->directory == NULL) {
        KV_ASSERT(t->count == 0 && t->depth == 0);
        KV_ASSERT(t->segment_count == 0 && t->segment_bytes == 0);
        return;
    }
    KV_ASSERT(t->depth <= KV_TABLE_DEPTH_MAX);
    uint64_t items = 0, segments = 0, bytes = 0, deepest = 0;
    for (size_t index = 0; index < (size_t)1 << t->depth;) {
        uint64_t word = t->directory[index];
        check_segment(t, index);
        segments++;
        items += item_counts(t)[index];
        bytes += kv_mem_block_size(kv_table_word_count(word) * sizeof(struct kv_table_bucket));
        deepest += word_depth(word) == t->depth;
        index += index_span(t, word_depth(word));
    }
    KV_ASSERT(items == t->count && items != 0);
    KV_ASSERT(segments == t->segment_count);
    KV_ASSERT(bytes == t->segment_bytes);
    KV_ASSERT(deepest == t->deepest_count);
}
