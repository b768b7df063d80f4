/* What hash.c and hash_packed.c share; for these two files alone. Threads as hash.h. */
#ifndef KV_STORE_HASH_PRIV_H
#define KV_STORE_HASH_PRIV_H

#include "store/hash.h"

/* One field of a packed hash. */
struct packed_field {
    const uint8_t *name, *value, *next; /* where its items and the next field lie */
    int64_t due;                        /* ms or KV_NOT_DUE */
};

/* Takes the field at `at`, which is not the end, apart. */
KV_INLINE void packed_field_at(const uint8_t *at, uint32_t stride, struct packed_field *f)
{
    f->name = at;
    f->value = kv_packed_next(at);
    f->next = kv_packed_next(f->value);
    f->due = KV_NOT_DUE;
    if (KV_UNLIKELY(stride == 3)) {
        int64_t due = kv_packed_get(f->next).number;
        if (due != 0)
            f->due = due;
        f->next = kv_packed_next(f->next);
    }
}

KV_INLINE bool due_is_over(int64_t due, int64_t now_ms)
{
    return KV_UNLIKELY(due != KV_NOT_DUE) && due <= now_ms;
}

/* The packed list of an entry, and how many bytes come before it. */
KV_INLINE const uint8_t *packed_list_of(const struct kv_entry *e, size_t *head)
{
    size_t len;
    const uint8_t *bytes = kv_entry_bytes(e, &len);
    *head = kv_entry_encoding(e) == KV_ENC_LISTPACKEX ? KV_LISTPACKEX_HEAD : 0;
    return bytes + *head;
}

/* hash_packed.c: what hash.h says, for a hash that is packed. The functions that put something in
 * return KV_ERR_LIMIT, with nothing changed, when the result may not be packed. */
enum kv_err kv_hash_packed_create(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                  struct kv_hash_pairs *p) KV_MUST_CHECK;
enum kv_err kv_hash_packed_set(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               struct kv_hash_pairs *p) KV_MUST_CHECK KV_HOT;
enum kv_err kv_hash_packed_delete(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                  struct kv_hash_names *n) KV_MUST_CHECK;
enum kv_err kv_hash_packed_set_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                   struct kv_hash_names *n, int64_t due) KV_MUST_CHECK;

#endif
