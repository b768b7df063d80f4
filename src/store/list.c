/* Lists in the keyspace. Each function has a packed and a large way; collection.h puts either into
 * the entry.
 *
 * A packed list is spliced in place. What takes items out of several places is built beside it in
 * the arena first, so that one splice, which may fail, does all. A list that becomes large is built
 * whole, the new items included, before it takes the place of the bytes; one that becomes packed
 * again is a wish that is not granted when memory is short.
 *
 * Invariants: a large list is never empty, and is larger than a packed one may be or was so before
 * it shrank; items of a list in the keyspace are in their shortest form, as ds/packed.h has them.
 *
 * A list counts as too large by the bytes of its items' texts, not counting the few bytes that
 * encode each: so the encoding that clients are told changes where Redis changes it.
 *
 * Threads: under the lock of the key's shard.
 */
#include "store/list.h"
#include "base/assert.h"
#include "store/store_priv.h"

static struct kv_list_limit limit_of(const struct kv_view *v)
{
    return kv_list_limit(kv_store_limits(v->store)->list_max_listpack_size);
}

/* Behind a change of a large list: counts its bytes to the database. The short way of
 * kv_store_large_end for one encoding. */
KV_INLINE void count_change(struct kv_view *v, const struct kv_key *k, const struct kv_list *l,
                            struct kv_footprint before)
{
    struct kv_database *database = shard_database(shard_of(v->store, k->hash), v->db);
    database_count(database, KV_TYPE_LIST, before, kv_list_footprint(l));
}

/* --- reading --- */

uint64_t kv_store_list_count(const struct kv_entry *e)
{
    size_t len;
    if (e == NULL)
        return 0;
    KV_DASSERT(kv_entry_type(e) == KV_TYPE_LIST);
    if (kv_entry_is_large(e))
        return ((const struct kv_list *)kv_entry_large(e))->count;
    return kv_packed_count(kv_entry_bytes(e, &len));
}

struct kv_item kv_store_list_seek(const struct kv_entry *e, int64_t index)
{
    KV_DASSERT(kv_entry_type(e) == KV_TYPE_LIST);
    if (kv_entry_is_large(e)) {
        struct kv_list_pos p = kv_list_seek(kv_entry_large(e), index);
        return (struct kv_item){p.at, p.node != NULL ? kv_list_packed(p.node) : NULL, p.node};
    }
    size_t len;
    const uint8_t *list = kv_entry_bytes(e, &len);
    return (struct kv_item){kv_packed_seek(list, index), list, NULL};
}

void kv_item_prev(struct kv_item *i)
{
    i->at = kv_packed_prev(i->list, i->at);
    if (i->at != NULL || i->node == NULL)
        return;
    i->node = i->node->prev;
    if (i->node != NULL) {
        i->list = kv_list_packed(i->node);
        i->at = kv_packed_prev(i->list, kv_packed_end(i->list));
    }
}

/* --- from one form to the other --- */

/* The key's last item is gone. */
static void remove_key(struct kv_view *v, const struct kv_key *k, struct kv_entry **e)
{
    kv_store_delete(v, k, *e);
    *e = NULL;
}

/* `l`, built anew, becomes the value, or is freed. */
static enum kv_err become_large(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                struct kv_list *l, int64_t expiry)
{
    enum kv_err err = kv_store_put_large(v, k, e, KV_TYPE_LIST, KV_ENC_QUICKLIST, l, expiry);
    if (err != KV_OK)
        kv_list_free(l);
    return err;
}

/* A large list of which items were removed: gone, packed again, or as it is. */
static void settle_large(struct kv_view *v, const struct kv_key *k, struct kv_entry **e)
{
    struct kv_list *l = kv_entry_large(*e);
    struct kv_list_limit limit = limit_of(v);
    uint8_t *bytes;
    if (l->count == 0) {
        remove_key(v, k, e);
        return;
    }
    const uint8_t *packed = kv_list_only(l);
    if (KV_LIKELY(packed == NULL))
        return;
    if (KV_UNLIKELY(l->guard != NULL))
        kv_sliced_finish(v, l->guard);
    size_t len = kv_packed_bytes(packed);
    if (len > limit.bytes / 2 || l->count > KV_MAX(limit.items / 2, 1u))
        return;
    /* The old value goes before the bytes of the new one can be written. */
    struct kv_footprint before = kv_list_footprint(l);
    struct kv_list_node *node = kv_list_detach_only(l);
    count_change(v, k, l, before);
    enum kv_err err =
        kv_store_put_bytes(v, k, e, KV_TYPE_LIST, KV_ENC_LISTPACK, len, KV_KEEP_EXPIRY, &bytes);
    if (err != KV_OK) {
        before = kv_list_footprint(l);
        kv_list_attach_only(l, node);
        count_change(v, k, l, before);
        return;
    }
    memcpy(bytes, kv_list_packed(node), len);
    kv_list_node_free(node);
}

/* --- pushing --- */

/* Texts that are pushed, and what they take. */
struct batch {
    const struct kv_slice *items;
    size_t count;
    size_t text_bytes;   /* of the texts alone */
    size_t packed_bytes; /* of the items */
};

static struct batch batch_of(const struct kv_slice *items, size_t count)
{
    struct batch b = {items, count, 0, 0};
    for (size_t i = 0; i < count; i++) {
        struct kv_needle n;
        kv_needle_init(&n, items[i]);
        b.text_bytes += items[i].len;
        b.packed_bytes += kv_needle_bytes(&n);
    }
    return b;
}

/* Writes the items of a batch one behind the other, the last one first if they go to the head. */
static void write_batch(uint8_t *to, const struct batch *b, enum kv_list_end end)
{
    for (size_t i = 0; i < b->count; i++) {
        struct kv_needle n;
        kv_needle_init(&n, b->items[end == KV_LIST_HEAD ? b->count - 1 - i : i]);
        to = kv_packed_put(to, &n);
    }
}

/* Pushes all or nothing. */
static enum kv_err push_all(struct kv_view *v, struct kv_list *l, enum kv_list_end end,
                            const struct kv_slice *items, size_t count, struct kv_list_limit limit)
{
    large_keep_end(v, l->guard, end, 0);
    for (size_t i = 0; i < count; i++) {
        struct kv_needle n;
        kv_needle_init(&n, items[i]);
        enum kv_err err = kv_list_push(l, end, &n, limit);
        if (KV_UNLIKELY(err != KV_OK)) {
            kv_list_drop(l, end, i);
            return err;
        }
    }
    return KV_OK;
}

static enum kv_err push_large(struct kv_view *v, const struct kv_key *k, struct kv_entry *e,
                              enum kv_list_end end, const struct kv_slice *items, size_t count)
{
    struct kv_list *l = kv_entry_large(e);
    struct kv_footprint before = kv_list_footprint(l);
    enum kv_err err = push_all(v, l, end, items, count, limit_of(v));
    count_change(v, k, l, before);
    return err;
}

/* A packed list, or none, that becomes large with what is pushed. */
static enum kv_err push_converting(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                   enum kv_list_end end, const struct kv_slice *items, size_t count)
{
    size_t len;
    struct kv_list_limit limit = limit_of(v);
    struct kv_list *l =
        *e != NULL ? kv_list_create_from(kv_entry_bytes(*e, &len), limit) : kv_list_create();
    if (l == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = push_all(v, l, end, items, count, limit);
    if (err != KV_OK) {
        kv_list_free(l);
        return err;
    }
    return become_large(v, k, e, l, KV_KEEP_EXPIRY);
}

static enum kv_err put_packed(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              enum kv_list_end end, const struct batch *b, int64_t expiry)
{
    uint8_t *list;
    size_t len = KV_PACKED_EMPTY + b->packed_bytes;
    enum kv_err err =
        kv_store_put_bytes(v, k, e, KV_TYPE_LIST, KV_ENC_LISTPACK, len, expiry, &list);
    if (err != KV_OK)
        return err;
    write_batch(list + KV_PACKED_HEAD, b, end);
    kv_packed_seal(list, len, (uint32_t)b->count);
    return KV_OK;
}

enum kv_err kv_store_list_push(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_list_end end, const struct kv_slice *items, size_t count)
{
    KV_DASSERT(count != 0);
    if (*e != NULL && kv_entry_is_large(*e))
        return push_large(v, k, *e, end, items, count);
    struct batch b = batch_of(items, count);
    size_t len = KV_PACKED_EMPTY;
    uint8_t *list = *e != NULL ? kv_entry_bytes(*e, &len) : NULL;
    uint64_t have = list != NULL ? kv_packed_count(list) : 0;
    if (!kv_list_limit_holds(limit_of(v), len + b.text_bytes, have + count))
        return push_converting(v, k, e, end, items, count);
    if (list == NULL)
        return put_packed(v, k, e, end, &b, KV_NO_EXPIRY);
    size_t at = end == KV_LIST_HEAD ? KV_PACKED_HEAD : len - 1;
    enum kv_err err = kv_store_splice(v, k, e, at, 0, b.packed_bytes, &list);
    if (err != KV_OK)
        return err;
    write_batch(list + at, &b, end);
    kv_packed_resized(list, len + b.packed_bytes, (int64_t)count);
    return KV_OK;
}

enum kv_err kv_store_list_put(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              const struct kv_slice *items, size_t count)
{
    struct batch b = batch_of(items, count);
    struct kv_list_limit limit = limit_of(v);
    KV_ASSERT(count != 0);
    if (kv_list_limit_holds(limit, KV_PACKED_EMPTY + b.text_bytes, count))
        return put_packed(v, k, e, KV_LIST_TAIL, &b, KV_NO_EXPIRY);
    struct kv_list *l = kv_list_create();
    if (l == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = push_all(v, l, KV_LIST_TAIL, items, count, limit);
    if (err != KV_OK) {
        kv_list_free(l);
        return err;
    }
    return become_large(v, k, e, l, KV_NO_EXPIRY);
}

/* --- taking from an end --- */

/* Bytes of the first or last `count` items of a packed list that has more. */
static size_t end_bytes(const uint8_t *list, enum kv_list_end end, uint64_t count)
{
    if (end == KV_LIST_HEAD) {
        const uint8_t *first = kv_packed_first(list);
        return (size_t)(kv_packed_skip(first, (unsigned)count) - first);
    }
    const uint8_t *at = kv_packed_end(list);
    for (; count > 0; count--)
        at = kv_packed_prev(list, at);
    return (size_t)(kv_packed_end(list) - at);
}

static enum kv_err drop_packed(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_list_end end, uint64_t count)
{
    size_t len;
    uint8_t *list = kv_entry_bytes(*e, &len);
    if (count >= kv_packed_count(list)) {
        remove_key(v, k, e);
        return KV_OK;
    }
    size_t bytes = end_bytes(list, end, count);
    size_t at = end == KV_LIST_HEAD ? KV_PACKED_HEAD : len - 1 - bytes;
    enum kv_err err = kv_store_splice(v, k, e, at, bytes, 0, &list);
    if (err == KV_OK)
        kv_packed_resized(list, len - bytes, -(int64_t)count);
    return err;
}

static void free_list(void *list)
{
    kv_list_free(list);
}

/* Many nodes are freed beside the work, when somebody does that. */
static void drop_large(struct kv_view *v, struct kv_list *l, enum kv_list_end end, uint64_t count)
{
    const struct kv_store_hooks *hooks = &v->store->hooks;
    large_keep_end(v, l->guard, end, count);
    struct kv_list *cut = hooks->free_later != NULL ? kv_list_cut(l, end, &count) : NULL;
    if (KV_UNLIKELY(cut != NULL))
        hooks->free_later(v, free_list, cut);
    kv_list_drop(l, end, count);
}

enum kv_err kv_store_list_drop(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_list_end end, uint64_t count)
{
    if (count == 0)
        return KV_OK;
    if (!kv_entry_is_large(*e))
        return drop_packed(v, k, e, end, count);
    struct kv_list *l = kv_entry_large(*e);
    struct kv_footprint before = kv_list_footprint(l);
    drop_large(v, l, end, count);
    count_change(v, k, l, before);
    settle_large(v, k, e);
    return KV_OK;
}

/* A copy of an item's text in the arena; false: no memory. */
static bool copy_text(const struct kv_item *i, struct kv_arena *arena, struct kv_slice *out)
{
    char scratch[KV_INT_TEXT_MAX];
    struct kv_slice text = kv_item_text(i, scratch);
    char *copy = kv_arena_try_alloc(arena, text.len);
    if (copy == NULL)
        return false;
    if (text.len != 0)
        memcpy(copy, text.ptr, text.len);
    *out = kv_slice(copy, text.len);
    return true;
}

struct kv_slice *kv_store_list_copy_out(const struct kv_entry *e, enum kv_list_end end,
                                        uint64_t count, struct kv_arena *arena)
{
    KV_DASSERT(count <= kv_store_list_count(e));
    struct kv_slice *items = kv_arena_try_alloc(arena, count * sizeof(*items));
    if (items == NULL)
        return NULL;
    struct kv_item i = kv_store_list_seek(e, end == KV_LIST_HEAD ? 0 : -1);
    for (uint64_t n = 0; n < count; n++) {
        if (!copy_text(&i, arena, &items[n]))
            return NULL;
        if (end == KV_LIST_HEAD)
            kv_item_next(&i);
        else
            kv_item_prev(&i);
    }
    return items;
}

enum kv_err kv_store_list_pop(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              enum kv_list_end end, uint64_t count, struct kv_arena *arena,
                              struct kv_slice **items)
{
    *items = kv_store_list_copy_out(*e, end, count, arena);
    return *items != NULL ? kv_store_list_drop(v, k, e, end, count) : KV_ERR_NOMEM;
}

enum kv_err kv_store_list_transfer(struct kv_view *v, const struct kv_key *from,
                                   struct kv_entry **from_entry, enum kv_list_end from_end,
                                   const struct kv_key *to, struct kv_entry **to_entry,
                                   enum kv_list_end to_end, const struct kv_slice *items,
                                   uint64_t count)
{
    enum kv_err err = kv_store_list_push(v, to, to_entry, to_end, items, count);
    if (err != KV_OK)
        return err;
    err = kv_store_list_drop(v, from, from_entry, from_end, count);
    if (KV_LIKELY(err == KV_OK))
        return KV_OK;
    enum kv_err undone = kv_store_list_drop(v, to, to_entry, to_end, count);
    return undone != KV_OK ? undone : err;
}

/* The packed list keeps its length: the items move over to the other place. */
static void turn_packed(struct kv_entry *e, enum kv_list_end from_end, enum kv_list_end to_end,
                        const struct batch *b)
{
    size_t len;
    uint8_t *list = kv_entry_bytes(e, &len);
    size_t rest = len - KV_PACKED_EMPTY - b->packed_bytes;
    uint8_t *first = kv_packed_first(list);
    if (from_end == KV_LIST_HEAD)
        memmove(first, first + b->packed_bytes, rest);
    if (to_end == KV_LIST_HEAD)
        memmove(first + b->packed_bytes, first, rest);
    write_batch(to_end == KV_LIST_HEAD ? first : first + rest, b, to_end);
}

/* The same for a large list: the items are pushed once more, then the old ones go. */
static enum kv_err turn_large(struct kv_view *v, struct kv_list *l, enum kv_list_end from_end,
                              enum kv_list_end to_end, const struct kv_slice *items, uint64_t count,
                              struct kv_list_limit limit)
{
    if (KV_UNLIKELY(l->guard != NULL && from_end == to_end))
        kv_sliced_finish(v, l->guard);
    enum kv_err err = push_all(v, l, to_end, items, count, limit);
    if (err != KV_OK)
        return err;
    if (from_end != to_end) {
        large_keep_end(v, l->guard, from_end, count);
        kv_list_drop(l, from_end, count);
        return KV_OK;
    }
    enum kv_list_end inwards = to_end == KV_LIST_HEAD ? KV_LIST_TAIL : KV_LIST_HEAD;
    int64_t index = to_end == KV_LIST_HEAD ? (int64_t)count : -1 - (int64_t)count;
    struct kv_list_pos p = kv_list_seek(l, index);
    for (; count > 0; count--)
        p = kv_list_remove(l, p, inwards, limit);
    return KV_OK;
}

enum kv_err kv_store_list_turn(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_list_end from_end, enum kv_list_end to_end,
                               const struct kv_slice *items, uint64_t count)
{
    if (from_end == to_end && count == 1)
        return KV_OK;
    if (!kv_entry_is_large(*e)) {
        struct batch b = batch_of(items, count);
        turn_packed(*e, from_end, to_end, &b);
        return KV_OK;
    }
    struct kv_list *l = kv_entry_large(*e);
    struct kv_footprint before = kv_list_footprint(l);
    enum kv_err err = turn_large(v, l, from_end, to_end, items, count, limit_of(v));
    count_change(v, k, l, before);
    return err;
}

/* --- the middle --- */

/* A packed list that becomes large because of an item in its middle: before, behind or in the place
 * of the one at `index`. */
enum way { BEFORE, BEHIND, INSTEAD };

static enum kv_err change_large(struct kv_list *l, int64_t index, enum way way,
                                const struct kv_needle *n, struct kv_list_limit limit)
{
    struct kv_list_pos p = kv_list_seek(l, index);
    KV_ASSERT(p.node != NULL);
    if (way == INSTEAD)
        return kv_list_replace(l, p, n, limit);
    return kv_list_insert(l, p, way == BEHIND, n, limit);
}

static enum kv_err change_converting(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                     int64_t index, enum way way, const struct kv_needle *n)
{
    size_t len;
    struct kv_list_limit limit = limit_of(v);
    struct kv_list *l = kv_list_create_from(kv_entry_bytes(*e, &len), limit);
    if (l == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = change_large(l, index, way, n, limit);
    if (err != KV_OK) {
        kv_list_free(l);
        return err;
    }
    return become_large(v, k, e, l, KV_KEEP_EXPIRY);
}

static enum kv_err change_middle(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                 int64_t index, enum way way, struct kv_slice item)
{
    struct kv_needle n;
    size_t len;
    kv_needle_init(&n, item);
    if (kv_entry_is_large(*e)) {
        struct kv_list *l = kv_entry_large(*e);
        struct kv_footprint before = kv_store_large_begin(v, *e);
        enum kv_err err = change_large(l, index, way, &n, limit_of(v));
        count_change(v, k, l, before);
        return err;
    }
    uint8_t *list = kv_entry_bytes(*e, &len);
    uint8_t *at = kv_packed_seek(list, index);
    KV_ASSERT(at != NULL);
    size_t old = way == INSTEAD ? kv_packed_item_bytes(at) : 0;
    size_t bytes = kv_needle_bytes(&n);
    uint64_t count = kv_packed_count(list) + (way != INSTEAD);
    if (!kv_list_limit_holds(limit_of(v), len - old + item.len, count))
        return change_converting(v, k, e, index, way, &n);
    size_t offset = (size_t)((way == BEHIND ? kv_packed_next(at) : at) - list);
    enum kv_err err = kv_store_splice(v, k, e, offset, old, bytes, &list);
    if (err != KV_OK)
        return err;
    kv_packed_put(list + offset, &n);
    kv_packed_resized(list, len - old + bytes, way != INSTEAD);
    return KV_OK;
}

enum kv_err kv_store_list_insert(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                 uint64_t index, bool behind, struct kv_slice item)
{
    return change_middle(v, k, e, (int64_t)index, behind ? BEHIND : BEFORE, item);
}

enum kv_err kv_store_list_replace(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                  int64_t index, struct kv_slice item)
{
    enum kv_err err = change_middle(v, k, e, index, INSTEAD, item);
    if (err == KV_OK && kv_entry_is_large(*e))
        settle_large(v, k, e);
    return err;
}

/* --- removing from several places --- */

/* Replaces all items of a packed list by those at `bytes`, which are not in it. */
static enum kv_err rewrite_packed(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                  const uint8_t *bytes, size_t size, uint32_t count)
{
    size_t len;
    uint8_t *list = kv_entry_bytes(*e, &len);
    enum kv_err err = kv_store_splice(v, k, e, KV_PACKED_HEAD, len - KV_PACKED_EMPTY, size, &list);
    if (err != KV_OK)
        return err;
    memcpy(list + KV_PACKED_HEAD, bytes, size);
    kv_packed_seal(list, KV_PACKED_EMPTY + size, count);
    return KV_OK;
}

static uint64_t count_equal(const uint8_t *list, const struct kv_needle *n)
{
    uint64_t count = 0;
    for (const uint8_t *at = kv_packed_first(list); !kv_packed_at_end(at); at = kv_packed_next(at))
        count += kv_needle_is_at(n, at);
    return count;
}

/* Copies a packed list's items but for `take` of those that equal n, the first `skip` of which
 * stay. Returns what follows the copy. */
static uint8_t *copy_without(uint8_t *to, const uint8_t *list, const struct kv_needle *n,
                             uint64_t skip, uint64_t take)
{
    const uint8_t *at = kv_packed_first(list), *run = at;
    for (; !kv_packed_at_end(at); at = kv_packed_next(at)) {
        if (!kv_needle_is_at(n, at))
            continue;
        if (skip > 0) {
            skip--;
            continue;
        }
        if (take == 0)
            break;
        take--;
        memcpy(to, run, (size_t)(at - run));
        to += at - run;
        run = kv_packed_next(at);
    }
    size_t rest = (size_t)(kv_packed_end(list) - run);
    memcpy(to, run, rest);
    return to + rest;
}

static enum kv_err remove_packed(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                 enum kv_list_end from, uint64_t limit, const struct kv_needle *n,
                                 struct kv_arena *arena, uint64_t *removed)
{
    size_t len;
    const uint8_t *list = kv_entry_bytes(*e, &len);
    uint64_t equal = count_equal(list, n), count = kv_packed_count(list);
    uint64_t take = limit == 0 ? equal : KV_MIN(limit, equal);
    *removed = take;
    if (take == 0)
        return KV_OK;
    if (take == count) {
        remove_key(v, k, e);
        return KV_OK;
    }
    uint8_t *kept = kv_arena_try_alloc(arena, len);
    if (kept == NULL)
        return KV_ERR_NOMEM;
    uint64_t skip = from == KV_LIST_HEAD ? 0 : equal - take;
    uint8_t *end = copy_without(kept, list, n, skip, take);
    return rewrite_packed(v, k, e, kept, (size_t)(end - kept), (uint32_t)(count - take));
}

enum kv_err kv_store_list_remove(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                 enum kv_list_end from, uint64_t limit, struct kv_slice text,
                                 struct kv_arena *arena, uint64_t *removed)
{
    struct kv_needle n;
    kv_needle_init(&n, text);
    *removed = 0;
    if (!kv_entry_is_large(*e))
        return remove_packed(v, k, e, from, limit, &n, arena, removed);
    struct kv_list *l = kv_entry_large(*e);
    struct kv_list_limit node_limit = limit_of(v);
    enum kv_list_end towards = from == KV_LIST_HEAD ? KV_LIST_TAIL : KV_LIST_HEAD;
    struct kv_footprint before = kv_store_large_begin(v, *e);
    struct kv_list_pos p = kv_list_seek(l, from == KV_LIST_HEAD ? 0 : -1);
    while (p.node != NULL && (limit == 0 || *removed < limit)) {
        if (kv_needle_is_at(&n, p.at)) {
            p = kv_list_remove(l, p, towards, node_limit);
            ++*removed;
        } else {
            p = towards == KV_LIST_TAIL ? kv_list_next(p) : kv_list_prev(p);
        }
    }
    count_change(v, k, l, before);
    if (*removed != 0)
        settle_large(v, k, e);
    return KV_OK;
}

static enum kv_err trim_packed(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               uint64_t first, uint64_t count, struct kv_arena *arena)
{
    size_t len;
    const uint8_t *list = kv_entry_bytes(*e, &len);
    uint64_t have = kv_packed_count(list);
    if (first == 0)
        return kv_store_list_drop(v, k, e, KV_LIST_TAIL, have - count);
    if (first + count == have)
        return kv_store_list_drop(v, k, e, KV_LIST_HEAD, first);
    const uint8_t *from = kv_packed_seek(list, (int64_t)first);
    size_t size = (size_t)(kv_packed_skip(from, (unsigned)count) - from);
    uint8_t *kept = kv_arena_try_alloc(arena, size);
    if (kept == NULL)
        return KV_ERR_NOMEM;
    memcpy(kept, from, size);
    return rewrite_packed(v, k, e, kept, size, (uint32_t)count);
}

enum kv_err kv_store_list_trim(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               uint64_t first, uint64_t count, struct kv_arena *arena)
{
    uint64_t have = kv_store_list_count(*e);
    if (count == 0) {
        remove_key(v, k, e);
        return KV_OK;
    }
    KV_ASSERT(first < have && count <= have - first);
    if (!kv_entry_is_large(*e))
        return trim_packed(v, k, e, first, count, arena);
    struct kv_list *l = kv_entry_large(*e);
    struct kv_footprint before = kv_list_footprint(l);
    drop_large(v, l, KV_LIST_TAIL, have - first - count);
    drop_large(v, l, KV_LIST_HEAD, first);
    count_change(v, k, l, before);
    settle_large(v, k, e);
    return KV_OK;
}
