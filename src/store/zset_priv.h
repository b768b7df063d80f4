/* The packed form of sorted sets, for zset.c and zset_packed.c. A list here is the packed list
 * alone, without the head of KV_ENC_LISTPACKEX; `stride` is how many items a member has in it. */
#ifndef KV_STORE_ZSET_PRIV_H
#define KV_STORE_ZSET_PRIV_H

#include "store/zset.h"

/* What stands at a score's position. */
double kv_zpacked_score(const uint8_t *at);

/* The due time behind the score of a member, or KV_NOT_DUE. */
int64_t kv_zpacked_due(const uint8_t *member, unsigned stride);

/* The needle of a score; its text, if it needs one, lies in scratch. */
void kv_zpacked_score_needle(struct kv_needle *n, double score, char scratch[KV_DOUBLE_TEXT_MAX]);

/* An entry's list and stride. */
KV_INLINE uint8_t *kv_zpacked_list(const struct kv_entry *e, unsigned *stride)
{
    size_t len;
    bool dues = kv_entry_encoding(e) == KV_ENC_LISTPACKEX;
    *stride = dues ? 3 : 2;
    return kv_entry_bytes(e, &len) + (dues ? KV_LISTPACKEX_HEAD : 0);
}

/* What a member would change in a list, decided in a series of pairs. */
enum kv_zadd_step { KV_ZADD_STAYS, KV_ZADD_INSERT, KV_ZADD_UPDATE };

/* Whether a pair changes a present member with score `have`; *score is what it then gets. Writes
 * nan, skipped and score of the result when flags ask for them. */
enum kv_zadd_step kv_zadd_decide(uint32_t flags, double have, double *score,
                                 struct kv_zadd_result *result);

/* kv_store_zset_add for packed sets and new keys. KV_ERR_LIMIT: the set has to become large,
 * nothing was done. */
enum kv_err kv_zpacked_add(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                           const struct kv_zset_pair *pairs, size_t count, uint32_t flags,
                           struct kv_arena *arena, struct kv_zadd_result *result);
enum kv_err kv_zpacked_create(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              const struct kv_zset_pair *pairs, size_t count, uint32_t flags,
                              struct kv_arena *arena, struct kv_zadd_result *result);

/* Writes a whole set of distinct pairs in order. */
enum kv_err kv_zpacked_put(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                           const struct kv_zset_pair *pairs, size_t count, struct kv_arena *arena);

enum kv_err kv_zpacked_remove(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              const struct kv_slice *names, size_t count, struct kv_arena *arena,
                              uint64_t *removed);
enum kv_err kv_zpacked_remove_span(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                   struct kv_span span);
enum kv_err kv_zpacked_set_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               struct kv_slice name, int64_t due, struct kv_arena *arena,
                               bool *found);

/* A list with the members of a set that are not due, in the arena; NULL: no memory. */
const uint8_t *kv_zpacked_without_due(const struct kv_entry *e, int64_t now_ms,
                                      struct kv_arena *arena);

/* True when a set of so many members, the longest name having so many bytes, is packed. */
KV_INLINE bool kv_zset_fits(const struct kv_view *v, uint64_t members, size_t name_len)
{
    const struct kv_collection_limits *limits = kv_store_limits(v->store);
    return members <= limits->zset_max_listpack_entries &&
           name_len <= limits->zset_max_listpack_value;
}

#endif
