/* Hashes in the keyspace: fields with values, and due times of fields.
 *
 *   packed   KV_ENC_LISTPACK: field, value, field, value ... in one packed list (ds/packed.h).
 *            KV_ENC_LISTPACKEX: field, value, due time (0: none), behind 8 bytes (store/entry.h).
 *   large    KV_ENC_HASHTABLE: a kv_dict (value/dict.h). A hash becomes large when a field or value
 *            is longer than hash-max-listpack-value or there are more fields than
 *            hash-max-listpack-entries, and stays so.
 *
 * A packed hash gets the form with due times with the first of them and keeps it.
 *
 * A field that is due is not there for any function of this header, though its bytes may be. A
 * command first removes what is due (kv_hash_settle); beyond what one command removes, and in a
 * view that keeps due fields, they are skipped one by one.
 *
 * Nothing here announces; that is the command's. Failure: KV_ERR_NOMEM has changed nothing, but for
 * series of fields of a large hash, of which *done were changed. Threads: the lock of the key's
 * shard.
 */
#ifndef KV_STORE_HASH_H
#define KV_STORE_HASH_H

#include "mem/arena.h"
#include "store/collection.h"

#define KV_HASH_KEEP_DUE (-2)    /* due time argument: as it is */
#define KV_HASH_PURGE_LIMIT 128u /* due fields that one command removes */

/* --- looking --- */

/* A hash that is looked at; good until it changes. */
struct kv_hash {
    const struct kv_dict *dict; /* large; NULL: packed */
    const uint8_t *list;        /* packed; NULL: large, or no hash at all */
    const uint8_t *at;          /* packed: where the next search begins */
    int64_t now_ms;
    size_t hint;     /* packed: offset of what was looked up last, or KV_HASH_ABSENT */
    uint32_t stride; /* items per field in the list: 2, or 3 with due times */
    bool may_hide;   /* fields may be due */
};

#define KV_HASH_ABSENT SIZE_MAX

/* What a look-up finds. Borrows the hash; a value that lies there as a number is in `scratch`. */
struct kv_hash_field {
    struct kv_slice value;
    int64_t due; /* ms of Unix time or KV_NOT_DUE */
    bool hidden; /* not found: its bytes are there, but it is due */
    char scratch[KV_INT_TEXT_MAX];
};

/* Removes due fields of an entry that may have some; the entry that is left, or NULL. */
KV_INLINE struct kv_entry *kv_hash_settle(struct kv_view *v, const struct kv_key *k,
                                          struct kv_entry *e)
{
    if (KV_UNLIKELY(kv_entry_may_be_due(e, v->now_ms)))
        kv_store_purge_due(v, k, &e, KV_HASH_PURGE_LIMIT);
    return e;
}

/* e may be NULL: a hash without fields. */
void kv_hash_open(struct kv_hash *h, const struct kv_view *v, const struct kv_entry *e) KV_HOT;

/* Looks a field up. Series in the order in which the fields lie cost one comparison each. */
bool kv_hash_find(struct kv_hash *h, struct kv_slice name, struct kv_hash_field *out) KV_HOT;

/* Asks for what kv_hash_find will read of a large hash, for series of look-ups. */
void kv_hash_prefetch(const struct kv_hash *h, struct kv_slice name);

/* Fields; walks the hash when some may be due. */
uint64_t kv_hash_count(const struct kv_hash *h) KV_HOT;

/* Visits all fields. The member's slices last for the visit when the hash is packed. */
void kv_hash_each(const struct kv_hash *h, void (*visit)(const struct kv_member *m, void *arg),
                  void *arg);

/* A large hash: visits about `count` fields from a position of its table on (ds/table.h); returns
 * the next position or KV_TABLE_POSITION_END. A packed one: visits all. */
uint64_t kv_hash_scan(const struct kv_hash *h, uint64_t position, uint64_t count,
                      void (*visit)(const struct kv_member *m, void *arg), void *arg);

/* A random field; false: there is none. Close to uniform. The slices last until a change, a packed
 * number's until the next call with the same scratch. */
bool kv_hash_random(const struct kv_hash *h, struct kv_random *r, struct kv_member *out,
                    char scratch[2][KV_INT_TEXT_MAX]);

/* --- changing --- */

/* Fields that get values. */
struct kv_hash_pairs {
    const struct kv_slice *words; /* name, value, name, value ...; must not lie in the hash */
    size_t count; /* pairs, at least 1; a name may come again: the last value stays */
    int64_t due;  /* for all: ms, KV_NOT_DUE or KV_HASH_KEEP_DUE */
    size_t hint;  /* of one pair: kv_hash's hint after it was looked up; else 0 */
    struct kv_arena *arena;
    uint64_t created; /* out: names that were not there */
    size_t done;      /* out: pairs that took effect, on failure as well */
};

/* Sets fields; makes the hash when *e is NULL (no time to live). *e: the entry then. */
enum kv_err kv_hash_set(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                        struct kv_hash_pairs *p) KV_MUST_CHECK KV_HOT;

/* Fields that are named; one that comes again counts once. */
struct kv_hash_names {
    const struct kv_slice *names;
    size_t count;
    struct kv_arena *arena;
    size_t done; /* out: names that were found and changed, on failure as well */
};

/* Removes fields; the entry goes with the last one (*e is NULL then). */
enum kv_err kv_hash_delete(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                           struct kv_hash_names *n) KV_MUST_CHECK;

/* Gives fields a due time (ms, later than now), or takes it away (KV_NOT_DUE). */
enum kv_err kv_hash_set_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                            struct kv_hash_names *n, int64_t due) KV_MUST_CHECK;

/* --- names in a command --- */

/* For each of `count` words, `step` apart, the index of the first equal one: first[i] == i means
 * that it comes for the first time. False: no memory. */
bool kv_hash_first_names(const struct kv_slice *words, size_t count, size_t step, uint32_t *first,
                         struct kv_arena *arena) KV_MUST_CHECK;

/* Asserts what a hash promises beyond its encoding: names are distinct, due times are in order. */
void kv_hash_check(const struct kv_entry *e);

#endif
