/* Building a collection from members that are read one by one: packed while they are few and short,
 * then large. Nothing is in the keyspace before kv_rdb_build_finish.
 *
 * Each function: false when the loader's reader has a fault. Threads as rdb_value.h. */
#ifndef KV_PERSIST_RDB_BUILD_H
#define KV_PERSIST_RDB_BUILD_H

#include "persist/rdb_value.h"

struct kv_rdb_build {
    struct kv_rdb_loader *loader;
    const struct kv_collection_limits *limits;
    enum kv_type type;
    bool dues;         /* members may have due times: the packed form has a place for them */
    bool integers;     /* a set of integers so far */
    bool unordered;    /* a packed sorted set whose members did not come in order */
    uint64_t count;    /* members */
    size_t longest;    /* bytes of the longest name or value */
    int64_t first_due; /* earliest due time, or KV_NOT_DUE */
    double last_score; /* of the member before */
    size_t last_at;    /* where it lies in the packed list */
    void *large;       /* the structure, once there is one */
};

void kv_rdb_build_init(struct kv_rdb_build *b, struct kv_rdb_loader *l, enum kv_type type,
                       bool dues);
void kv_rdb_build_release(struct kv_rdb_build *b); /* also after a finish */

/* Hash: name and value; set: name alone. */
bool kv_rdb_build_add(struct kv_rdb_build *b, struct kv_slice name, struct kv_slice value,
                      int64_t due) KV_MUST_CHECK;

/* Sorted set: name and score, which must be a number. */
bool kv_rdb_build_add_scored(struct kv_rdb_build *b, struct kv_slice name, double score,
                             int64_t due) KV_MUST_CHECK;

/* List: the next item towards the tail. */
bool kv_rdb_build_push(struct kv_rdb_build *b, struct kv_slice item) KV_MUST_CHECK;

/* Puts the collection under the target's key. Without members: KV_RDB_EMPTY. */
enum kv_rdb_result kv_rdb_build_finish(struct kv_rdb_build *b,
                                       struct kv_rdb_target *t) KV_MUST_CHECK;

/* --- for the folder --- */

/* One item behind the others of the packed list. */
bool kv_rdb_build_append(struct kv_rdb_build *b, const struct kv_needle *n) KV_MUST_CHECK;

/* Items that a member has in the packed list. */
unsigned kv_rdb_build_stride(const struct kv_rdb_build *b);

/* Head and end around the items so far; the list. */
uint8_t *kv_rdb_build_seal(struct kv_rdb_build *b);

/* True when the collection may still be packed with one more member. */
bool kv_rdb_build_stays_packed(struct kv_rdb_build *b, struct kv_slice name, struct kv_slice value);

/* True when a canonical packed list of names and scores is as sorted sets keep it: in order, and
 * each score in the one form that it has. */
bool kv_rdb_scores_canonical(const uint8_t *list);

/* Brings a packed sorted set into order. */
bool kv_rdb_build_sort(struct kv_rdb_build *b) KV_MUST_CHECK;

/* --- packed lists that come whole --- */

/* Limits of a type's packed form. */
struct kv_rdb_packed_limits {
    uint64_t entries, value_bytes;
};
struct kv_rdb_packed_limits kv_rdb_packed_limits(const struct kv_collection_limits *limits,
                                                 enum kv_type type);

/* Puts a packed list of a collection, its items being as kv_packed_valid wants them. */
enum kv_rdb_result kv_rdb_put_packed(struct kv_rdb_loader *l, struct kv_rdb_target *t,
                                     enum kv_type type, const uint8_t *list) KV_MUST_CHECK;

/* Puts a set of integers (ds/intset.h). */
enum kv_rdb_result kv_rdb_put_intset(struct kv_rdb_loader *l, struct kv_rdb_target *t,
                                     const uint8_t *set, size_t len) KV_MUST_CHECK;

/* Faults when a name comes twice among every `stride`-th item of a packed list. */
bool kv_rdb_check_distinct(struct kv_rdb_loader *l, const uint8_t *list,
                           unsigned stride) KV_MUST_CHECK;

#endif
