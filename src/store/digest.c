/* Digests: 160 bits that tell whether two keyspaces (or values) are equal.
 *
 *   value digest   H(type, bytes) of a string                         DEBUG DIGEST-VALUE
 *                  XOR over H(type, index, H(member), H(value or score), due time) of a collection,
 *                  the index being 0 but in lists, whose order counts
 *   key digest     H(database, expiry, H(key), value digest)
 *   store digest   XOR of the key digests of all keys that are not due
 *
 * XOR makes the sum independent of the order of visits, and the key within each term keeps equal
 * values of two keys from cancelling each other. H is XXH3 with 128 bits and, seeded differently,
 * 64 more of which 32 are kept: fast and well spread, no protection against somebody who forges
 * (a digest answers a test or an operator). A string counts by its bytes however it is encoded, an
 * integer by its text; access clocks do not count.
 *
 * Rejected: SHA-1, as long and much slower, for a property that nobody here needs.
 *
 * Threads: kv_store_digest alone; kv_entry_digest under the shard's lock.
 */
#include "store/store_priv.h"
#include <xxhash.h>

#define DIGEST_BYTES 20
#define SECOND_SEED UINT64_C(0x6b76696b) /* makes the last four bytes independent of the first */

struct digest {
    uint8_t bytes[DIGEST_BYTES];
};

/* What a key digest is taken of. Packed: padding would be hashed too. */
struct key_record {
    struct digest key, value;
    uint32_t db;
    int64_t expiry;
} __attribute__((packed));

static struct digest digest_bytes(const void *bytes, size_t len, uint64_t seed)
{
    struct digest d;
    XXH128_canonical_t wide;
    XXH64_canonical_t narrow;
    XXH128_canonicalFromHash(&wide, XXH3_128bits_withSeed(bytes, len, seed));
    XXH64_canonicalFromHash(&narrow, XXH3_64bits_withSeed(bytes, len, seed ^ SECOND_SEED));
    static_assert(sizeof(wide) == 16, "the first part has 128 bits");
    memcpy(d.bytes, &wide, sizeof(wide));
    memcpy(d.bytes + sizeof(wide), &narrow, DIGEST_BYTES - sizeof(wide));
    return d;
}

/* What the digest of a member is taken of. */
struct member_record {
    struct digest name, value;
    uint64_t index;
    int64_t due;
} __attribute__((packed));

struct member_sum {
    struct digest total;
    enum kv_type type;
    uint64_t index;
};

static void add_member(const struct kv_member *m, void *arg)
{
    struct member_sum *sum = arg;
    struct member_record record = {
        .name = digest_bytes(m->name.ptr, m->name.len, 0),
        .value = digest_bytes(m->value.ptr, m->value.len, 0),
        .index = sum->type == KV_TYPE_LIST ? sum->index++ : 0,
        .due = m->due,
    };
    struct digest d = digest_bytes(&record, sizeof(record), sum->type);
    for (int i = 0; i < DIGEST_BYTES; i++)
        sum->total.bytes[i] ^= d.bytes[i];
}

static struct digest value_digest(const struct kv_entry *e)
{
    char scratch[KV_INT_TEXT_MAX];
    struct member_sum sum = {.type = kv_entry_type(e)};
    if (kv_entry_type(e) == KV_TYPE_STRING) {
        struct kv_slice string = kv_entry_string(e, scratch);
        return digest_bytes(string.ptr, string.len, KV_TYPE_STRING);
    }
    if (kv_entry_encoding(e) == KV_ENC_FOREIGN) {
        size_t len;
        const uint8_t *bytes = kv_entry_bytes(e, &len);
        return digest_bytes(bytes, len, kv_entry_type(e));
    }
    kv_entry_each_member(e, add_member, &sum);
    return sum.total;
}

void kv_entry_digest(const struct kv_entry *e, uint8_t out[20])
{
    struct digest d = value_digest(e);
    memcpy(out, d.bytes, DIGEST_BYTES);
}

struct sum {
    struct digest total;
    uint32_t db;
};

static void add_entry(struct kv_entry *e, void *arg)
{
    struct sum *sum = arg;
    struct kv_slice key = kv_entry_key(e);
    struct key_record record = {
        .key = digest_bytes(key.ptr, key.len, 0),
        .value = value_digest(e),
        .db = sum->db,
        .expiry = kv_entry_expiry(e),
    };
    struct digest d = digest_bytes(&record, sizeof(record), 0);
    for (int i = 0; i < DIGEST_BYTES; i++)
        sum->total.bytes[i] ^= d.bytes[i];
}

void kv_store_digest(struct kv_view *v, uint8_t out[20])
{
    struct sum sum = {.db = 0};
    uint32_t selected = v->db;
    for (uint32_t db = 0; db < v->store->database_count; db++) {
        v->db = db;
        sum.db = db;
        kv_store_each(v, add_entry, &sum);
    }
    v->db = selected;
    memcpy(out, sum.total.bytes, DIGEST_BYTES);
}
