/* Collections in the keyspace: how the bytes of a small one and the structure of a large one get
 * into an entry and change there. What the bytes mean is the business of the types (hash.h, set.h,
 * zset.h, list.h of this folder), which are written upon these functions.
 *
 * A small collection is a run of bytes beside its key, or in a block of its own once the entry
 * would pass KV_ENTRY_EMBED_MAX. Bytes that keep their length are changed where they are
 * (kv_entry_bytes); kv_store_splice makes room or takes it away. A large collection changes within
 * its structure, between kv_store_large_begin and kv_store_large_end, which count what it costs.
 *
 * None of these announces; none leaves an empty collection behind unless the caller does.
 * kv_store_delete removes, kv_store_move and kv_store_copy treat collections like all values.
 *
 * Failure: KV_ERR_NOMEM has changed nothing. Threads: under the lock of the key's shard.
 */
#ifndef KV_STORE_COLLECTION_H
#define KV_STORE_COLLECTION_H

#include "ds/packed.h"
#include "store/store.h"
#include "value/dict.h"

/* How large a small collection may be: the directives of these names. Items are members, fields
 * (not fields and values), elements. */
struct kv_collection_limits {
    uint64_t hash_max_listpack_entries, hash_max_listpack_value;
    uint64_t set_max_intset_entries, set_max_listpack_entries, set_max_listpack_value;
    uint64_t zset_max_listpack_entries, zset_max_listpack_value;
    int64_t list_max_listpack_size; /* positive: items; -1 to -5: 4, 8, 16, 32, 64 KiB */
};

/* Redis 8's; what a store starts with. */
extern const struct kv_collection_limits kv_collection_limits_default;

/* [alone] Collections take another form when they are changed next. */
void kv_store_set_limits(struct kv_store *s, const struct kv_collection_limits *limits);
const struct kv_collection_limits *kv_store_limits(const struct kv_store *s);

/* The key of the store's hashes, for structures that hash (value/dict.h). */
const struct kv_hash_key *kv_store_hash_key(const struct kv_store *s);

/* Makes `k` a small collection of `len` bytes, whatever it was: *e is what the caller has found
 * there (NULL: nothing) and then the entry with it. `expiry` as for kv_store_set. The bytes are for
 * the caller to write before anything else happens; those of the old value are gone. */
enum kv_err kv_store_put_bytes(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_type type, enum kv_encoding encoding, size_t len,
                               int64_t expiry, uint8_t **bytes) KV_MUST_CHECK KV_HOT;

/* The same for KV_ENC_LISTPACKEX, whose head is written and registered: `due` is no later than the
 * due time of any member that the caller will write, or KV_NOT_DUE. */
enum kv_err kv_store_put_due_bytes(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                   enum kv_type type, size_t len, int64_t expiry, int64_t due,
                                   uint8_t **bytes) KV_MUST_CHECK;

/* Replaces `remove` bytes at offset `at` of a small collection by `insert` bytes that the caller
 * writes; what lies before and behind stays. *bytes: the first byte of all; *e may be another entry
 * than before. Grows greedily where the bytes have a block of their own. */
enum kv_err kv_store_splice(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                            size_t at, size_t remove, size_t insert,
                            uint8_t **bytes) KV_MUST_CHECK KV_HOT;

/* Changes the encoding of a small collection whose bytes the caller has changed accordingly. */
void kv_entry_set_encoding(struct kv_entry *e, enum kv_encoding encoding);

/* Makes `k` a large collection, whatever it was; `large` is the structure that goes with the
 * encoding and is the entry's on success. *e and expiry as for kv_store_put_bytes. */
enum kv_err kv_store_put_large(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_type type, enum kv_encoding encoding, void *large,
                               int64_t expiry) KV_MUST_CHECK;

/* Around a change of a large collection's structure: counts its bytes to the database. Begins by
 * finishing what a snapshot saves of it in slices; who says which members change (store_priv.h)
 * begins with kv_store_members_begin. */
struct kv_footprint kv_store_large_begin(struct kv_view *v, const struct kv_entry *e);
struct kv_footprint kv_store_members_begin(const struct kv_entry *e);
void kv_store_large_end(struct kv_view *v, const struct kv_key *k, struct kv_entry *e,
                        struct kv_footprint before);

/* --- members that are due at some time ---
 *
 * Sets, hashes and sorted sets may give their members due times (KV_ENC_LISTPACKEX, or the elements
 * of a large one). The shard's index has one record for such a collection: a time no later than the
 * earliest due time in it. Slices of expiry find it there and remove what is due; a record that was
 * too early is then brought to the true time, so removing or prolonging members costs the index
 * nothing. A member that is due but not removed yet is not seen by commands: the types skip it. */

/* What the record of a collection says; KV_NOT_DUE: it has none. */
int64_t kv_entry_member_due(const struct kv_entry *e);

/* Before a member of collection e, whose encoding can hold due times, gets this one. */
enum kv_err kv_store_register_due(struct kv_view *v, const struct kv_key *k, struct kv_entry *e,
                                  int64_t due) KV_MUST_CHECK;

/* Brings the record of a collection that can hold due times to the true time, for those who would
 * rather not wait for the slice that finds it too early. */
void kv_store_refresh_due(struct kv_view *v, const struct kv_key *k, struct kv_entry *e);

/* Removes due members, at most `limit`, announcing them (events hexpired, sexpired, zexpired); the
 * key goes with its last member (event del), then *e is NULL. Returns how many. Not in a view that
 * keeps due entries. Pointers into the collection are void afterwards. */
uint64_t kv_store_purge_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                            uint64_t limit);

/* A type's look-up calls this first: true when a member may be due now. */
KV_INLINE bool kv_entry_may_be_due(const struct kv_entry *e, int64_t now_ms)
{
    if (KV_LIKELY(kv_entry_encoding(e) < KV_ENC_LISTPACKEX))
        return false;
    int64_t due = kv_entry_member_due(e);
    return due != KV_NOT_DUE && due <= now_ms;
}

/* A member of any collection, as text: a hash's value, a sorted set's score in its shortest form
 * ("inf", "-inf" included); empty for sets and lists. */
struct kv_member {
    struct kv_slice name, value;
    int64_t due; /* ms of Unix time, or KV_NOT_DUE */
};

/* Visits all members, due ones included: of a list and a sorted set in order. For what treats all
 * types alike (digest, dump); the types have their own, faster ways. */
void kv_entry_each_member(const struct kv_entry *e,
                          void (*visit)(const struct kv_member *m, void *arg), void *arg);

/* The structure itself has another address now (it was built anew). Between begin and end. */
void kv_entry_set_large(struct kv_entry *e, void *large);

#endif
