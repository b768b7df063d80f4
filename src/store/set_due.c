/* Sets: due times of members.
 *
 * A set whose members have no due times has no room for them either. The first that is given turns
 * a set of integers or a packed list into a packed list with due times, where every member is
 * followed by its own (0: none), or into a hash table when the packed form may not hold as much.
 * The way back is not taken: who gave one due time is likely to give more.
 *
 * Order: form, record (kv_store_register_due), then the due time itself. When memory ends between
 * two of them, the set has another form or an early record, and the same members and due times.
 *
 * Invariants: the record of a set is no later than the earliest due time in it.
 *
 * Threads: under the lock of the key's shard.
 */
#include "store/set_priv.h"
#include "store/store_priv.h"

/* Makes the set one that can hold due times. */
static enum kv_err make_room(struct kv_set *s)
{
    const struct kv_collection_limits *limits = kv_store_limits(s->view->store);
    enum kv_encoding encoding = kv_entry_encoding(s->entry);
    size_t count;
    uint64_t added;
    if (encoding == KV_ENC_LISTPACKEX || encoding == KV_ENC_HASHTABLE)
        return KV_OK;
    if (kv_set_count(s->entry, s->view->now_ms) > limits->set_max_listpack_entries)
        return kv_set_make_large(s, NULL, 0, &added);
    struct set_member *members = kv_set_small_members(s->entry, s->arena, &count);
    if (members == NULL)
        return KV_ERR_NOMEM;
    return kv_set_put_packed(s, members, count, true);
}

static enum kv_err set_packed(struct kv_set *s, struct kv_slice member, int64_t due)
{
    struct set_list l = set_list(s->entry);
    struct kv_needle n;
    uint8_t *bytes;
    kv_needle_init(&n, member);
    const uint8_t *at = kv_packed_find(l.list, kv_packed_first(l.list), &n, l.stride);
    KV_ASSERT(at != NULL);
    at = kv_packed_next(at);
    kv_needle_init_int(&n, due != KV_NOT_DUE ? due : 0);
    size_t offset = (size_t)(at - l.list), old = kv_packed_item_bytes(at),
           more = kv_needle_bytes(&n), total = kv_packed_bytes(l.list) - old + more;
    enum kv_err err =
        kv_store_splice(s->view, s->key, &s->entry, l.head + offset, old, more, &bytes);
    if (err != KV_OK)
        return err;
    kv_packed_put(bytes + l.head + offset, &n);
    kv_packed_resized(bytes + l.head, total, 0);
    return KV_OK;
}

static enum kv_err set_large(struct kv_set *s, struct kv_slice member, int64_t due)
{
    struct kv_dict *d = kv_entry_large(s->entry);
    struct kv_footprint before = kv_store_members_begin(s->entry);
    uint64_t hash = kv_dict_hash(d, member);
    struct kv_element *e = kv_dict_find(d, member, hash);
    KV_ASSERT(e != NULL);
    large_keep_member(s->view, d->guard, member, hash);
    enum kv_err err = kv_dict_set(d, e, hash, NULL, due);
    kv_store_large_end(s->view, s->key, s->entry, before);
    return err;
}

enum kv_err kv_set_set_due(struct kv_set *s, struct kv_slice member, int64_t due)
{
    enum kv_err err = due != KV_NOT_DUE ? make_room(s) : KV_OK;
    if (err == KV_OK && due != KV_NOT_DUE)
        err = kv_store_register_due(s->view, s->key, s->entry, due);
    if (err != KV_OK)
        return err;
    switch (kv_entry_encoding(s->entry)) {
    case KV_ENC_LISTPACKEX:
        return set_packed(s, member, due);
    case KV_ENC_HASHTABLE:
        return set_large(s, member, due);
    default:
        return KV_OK; /* there is none to take away */
    }
}
