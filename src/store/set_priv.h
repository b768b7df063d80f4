/* What the files of sets share: where the members of a packed set lie. For src/store alone. */
#ifndef KV_STORE_SET_PRIV_H
#define KV_STORE_SET_PRIV_H

#include "ds/intset.h"
#include "store/set.h"

/* A packed set's list. */
struct set_list {
    uint8_t *list;   /* the packed list */
    size_t head;     /* bytes of the entry before it */
    unsigned stride; /* items per member: its due time follows it, or not */
};

KV_INLINE struct set_list set_list(const struct kv_entry *e)
{
    size_t len;
    bool dues = kv_entry_encoding(e) == KV_ENC_LISTPACKEX;
    struct set_list l = {.head = dues ? KV_LISTPACKEX_HEAD : 0, .stride = dues ? 2 : 1};
    l.list = kv_entry_bytes(e, &len) + l.head;
    return l;
}

/* Due time of the member at a position, or KV_NOT_DUE. */
KV_INLINE int64_t set_list_due(const struct set_list *l, const uint8_t *at)
{
    if (KV_LIKELY(l->stride == 1))
        return KV_NOT_DUE;
    int64_t due = kv_packed_get(kv_packed_next(at)).number;
    return due != 0 ? due : KV_NOT_DUE;
}

KV_INLINE bool set_list_is_due(const struct set_list *l, const uint8_t *at, int64_t now_ms)
{
    int64_t due = set_list_due(l, at);
    return due != KV_NOT_DUE && due <= now_ms;
}

KV_INLINE const uint8_t *set_intset(const struct kv_entry *e)
{
    size_t len;
    return kv_entry_bytes(e, &len);
}

/* Most integers that an integer set may hold. */
KV_INLINE uint64_t set_intset_limit(const struct kv_collection_limits *limits)
{
    return KV_MIN(limits->set_max_intset_entries, KV_INTSET_MAX);
}

/* Replaces the whole set by a large one of its members and of `members`, of which *added were not
 * there; keeps due times and the key's time to live. */
enum kv_err kv_set_make_large(struct kv_set *s, const struct kv_slice *members, size_t count,
                              uint64_t *added) KV_MUST_CHECK;

/* Members of a small set and their due times, in a row. */
struct set_member {
    struct kv_needle needle;
    int64_t due;
};

/* All members of a small set; *count. NULL: no memory. Strings lie in the set. */
struct set_member *kv_set_small_members(const struct kv_entry *e, struct kv_arena *arena,
                                        size_t *count) KV_MUST_CHECK;

/* Replaces the whole set by a packed one of these members, with due times or without. */
enum kv_err kv_set_put_packed(struct kv_set *s, const struct set_member *members, size_t count,
                              bool dues) KV_MUST_CHECK;

#endif
