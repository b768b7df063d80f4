/* Lists in the keyspace, packed (KV_ENC_LISTPACK) or large (KV_ENC_QUICKLIST): what commands, and
 * whoever serves a blocked client, do with them. A list becomes large when it passes what
 * list-max-listpack-size allows, and packed again when it has shrunk to half of that in one node.
 *
 * Terms
 *   end     KV_LIST_HEAD (left) or KV_LIST_TAIL (right)
 *   item    an item where it lies; ends with the next change of its list
 *
 * `e` is always the entry at key `k` in the view, which kv_store_write (or _read) has found; where
 * it is a pointer to the caller's, it may be another one afterwards, NULL: the key is gone with its
 * last item. A missing key is an empty list. The type of e has been checked.
 *
 * Nothing here knows a client, replies or announces: the caller does, with kv_store_changed, once
 * per key and event. Failure: KV_ERR_NOMEM, and nothing has changed. Threads: lock of the key's
 * shard.
 */
#ifndef KV_STORE_LIST_H
#define KV_STORE_LIST_H

#include "mem/arena.h"
#include "store/collection.h"
#include "value/list.h"

struct kv_item {
    uint8_t *at;               /* NULL: there is none */
    const uint8_t *list;       /* the packed list in which it lies */
    struct kv_list_node *node; /* whose that is; NULL: of a packed list as a whole */
};

/* --- reading --- */

/* Items of e, which may be NULL. */
uint64_t kv_store_list_count(const struct kv_entry *e);

/* The item at an index, negative ones counted from the tail. */
struct kv_item kv_store_list_seek(const struct kv_entry *e, int64_t index) KV_HOT;

/* Goes to the neighbour towards the tail. */
KV_INLINE void kv_item_next(struct kv_item *i)
{
    i->at = kv_packed_next(i->at);
    if (KV_LIKELY(!kv_packed_at_end(i->at)))
        return;
    i->at = NULL;
    if (i->node == NULL)
        return;
    i->node = i->node->next;
    if (i->node != NULL) {
        i->list = kv_list_packed(i->node);
        i->at = kv_packed_first(i->list);
    }
}

/* And towards the head. */
void kv_item_prev(struct kv_item *i);

/* The item's text; a number is printed into scratch. */
KV_INLINE struct kv_slice kv_item_text(const struct kv_item *i, char scratch[KV_INT_TEXT_MAX])
{
    return kv_packed_text(i->at, scratch);
}

/* --- ends --- */

/* Pushes items one after the other, so that the last one is outermost; makes the list if *e is
 * NULL. The texts must not lie in the list itself. */
enum kv_err kv_store_list_push(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_list_end end, const struct kv_slice *items,
                               size_t count) KV_MUST_CHECK KV_HOT;

/* Removes items from an end, as many as there are at most. */
enum kv_err kv_store_list_drop(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_list_end end, uint64_t count) KV_MUST_CHECK KV_HOT;

/* Copies items from an end into an arena, the outermost first: `count` of them, which must be
 * there. NULL: no memory. */
struct kv_slice *kv_store_list_copy_out(const struct kv_entry *e, enum kv_list_end end,
                                        uint64_t count, struct kv_arena *arena) KV_MUST_CHECK;

/* Takes items away from an end: kv_store_list_copy_out, then kv_store_list_drop. */
enum kv_err kv_store_list_pop(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              enum kv_list_end end, uint64_t count, struct kv_arena *arena,
                              struct kv_slice **items) KV_MUST_CHECK;

/* Moves `count` items from an end of list `from` to an end of list `to`, which is another key and
 * may be missing. `items` are their texts, copied out, in the order in which they are pushed. Only
 * a second failure, while the first is undone, leaves the items in both lists. */
enum kv_err kv_store_list_transfer(struct kv_view *v, const struct kv_key *from,
                                   struct kv_entry **from_entry, enum kv_list_end from_end,
                                   const struct kv_key *to, struct kv_entry **to_entry,
                                   enum kv_list_end to_end, const struct kv_slice *items,
                                   uint64_t count) KV_MUST_CHECK;

/* Takes `count` items from one end of a list and pushes `items`, their texts, copied out, at an end
 * of the same list. */
enum kv_err kv_store_list_turn(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_list_end from_end, enum kv_list_end to_end,
                               const struct kv_slice *items, uint64_t count) KV_MUST_CHECK;

/* --- the middle --- */

/* Puts an item before the one at `index`, or behind it. */
enum kv_err kv_store_list_insert(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                 uint64_t index, bool behind, struct kv_slice item) KV_MUST_CHECK;

/* Puts an item in the place of the one at `index`, which exists. */
enum kv_err kv_store_list_replace(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                  int64_t index, struct kv_slice item) KV_MUST_CHECK;

/* Removes items that equal a text: the first `limit` from the head, or from the tail; 0: all. */
enum kv_err kv_store_list_remove(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                 enum kv_list_end from, uint64_t limit, struct kv_slice text,
                                 struct kv_arena *arena, uint64_t *removed) KV_MUST_CHECK;

/* Keeps `count` items from index `first` on and removes the others; count 0 removes all. */
enum kv_err kv_store_list_trim(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               uint64_t first, uint64_t count,
                               struct kv_arena *arena) KV_MUST_CHECK;

/* --- as a whole --- */

/* Makes `k` a list of these items (at least one), whatever it was, without a time to live. */
enum kv_err kv_store_list_put(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              const struct kv_slice *items, size_t count) KV_MUST_CHECK;

#endif
