/* A large list: nodes in a row, each a packed list (ds/packed.h) with spare room around it.
 *
 *   node       one block: links, sizes, then room in which a packed list lies anywhere
 *   limit      what a node may hold when several items share it; a larger item has a node of its
 * own position   an item in a node; ends with the next change, unless the function gives a new one
 *
 *   node   | prev next block_size start count | spare | packed list | spare |
 *                                               start ^
 *
 * Items go in and out at both ends of a node without moving the others; blocks grow in steps of two
 * up to the limit, and shrink when three quarters are empty, so a push and a pop cost O(1) over
 * time. A million items of 32 bytes take 34.2 bytes each.
 *
 * Failure: KV_ERR_NOMEM, and NULL of what creates, means that no item has changed (a node may have
 * been split). Removing never fails. Threads: the caller serialises (shard lock); kv_list_free on
 * any thread that alone has it.
 */
#ifndef KV_VALUE_LIST_H
#define KV_VALUE_LIST_H

#include "base/err.h"
#include "ds/move.h"
#include "ds/packed.h"
#include "value/footprint.h"
#include "value/guard.h"

enum kv_list_end { KV_LIST_HEAD, KV_LIST_TAIL };

struct kv_list_node {
    struct kv_list_node *prev; /* towards the head; NULL: this is the first */
    struct kv_list_node *next; /* towards the tail; NULL: this is the last */
    uint32_t block_size;       /* of this allocation, header included */
    uint16_t start;            /* where the packed list begins in `room` */
    uint16_t count;            /* items; at least 1 */
    uint8_t room[];
};

struct kv_list {
    struct kv_list_node *head, *tail; /* NULL when empty */
    uint64_t count;                   /* items */
    uint64_t node_count;
    size_t block_bytes, used_bytes; /* of all nodes */
    struct kv_guard *guard;         /* the owner's; NULL: nobody saves it in slices. Permits are
                                       ends: enum kv_list_end */
};

/* How much a packed list may hold, and a node that several items share (header included). */
struct kv_list_limit {
    uint32_t bytes;
    uint32_t items;
};

/* What the directive list-max-listpack-size means: a number of items (and at most 8 KiB), or -1 to
 * -5 for 4, 8, 16, 32, 64 KiB. */
struct kv_list_limit kv_list_limit(int64_t directive);

KV_INLINE bool kv_list_limit_holds(struct kv_list_limit limit, uint64_t bytes, uint64_t items)
{
    return bytes <= limit.bytes && items <= limit.items;
}

/* Longest item; longer ones are refused as KV_ERR_NOMEM. */
#define KV_LIST_ITEM_MAX (KV_PACKED_MAX - 64)

struct kv_list_pos {
    struct kv_list_node *node; /* NULL: no such item */
    uint8_t *at;
};

KV_INLINE uint8_t *kv_list_packed(const struct kv_list_node *node)
{
    return (uint8_t *)(uintptr_t)node->room + node->start;
}

/* --- life --- */

/* Empty; NULL when memory is short. */
struct kv_list *kv_list_create(void) KV_MUST_CHECK;

/* With the items of a packed list; NULL: no memory. */
struct kv_list *kv_list_create_from(const uint8_t *packed,
                                    struct kv_list_limit limit) KV_MUST_CHECK;

void kv_list_free(struct kv_list *l);

/* All items in a list of its own, its nodes without spare room; NULL: no memory. */
struct kv_list *kv_list_copy(const struct kv_list *l) KV_MUST_CHECK;

/* All blocks of it. */
KV_INLINE struct kv_footprint kv_list_footprint(const struct kv_list *l)
{
    return (struct kv_footprint){
        .block_bytes = l->block_bytes + kv_mem_block_size(sizeof(*l)),
        .used_bytes = l->used_bytes + sizeof(*l),
    };
}

/* --- finding --- */

/* The item at an index, counted from the nearer end: 0 is the first, -1 the last. */
struct kv_list_pos kv_list_seek(const struct kv_list *l, int64_t index);

/* The item behind and before one; node NULL: none. */
KV_INLINE struct kv_list_pos kv_list_next(struct kv_list_pos p)
{
    p.at = kv_packed_next(p.at);
    if (KV_LIKELY(!kv_packed_at_end(p.at)))
        return p;
    p.node = p.node->next;
    if (p.node != NULL)
        p.at = kv_packed_first(kv_list_packed(p.node));
    return p;
}

struct kv_list_pos kv_list_prev(struct kv_list_pos p);

/* --- changing --- */

enum kv_err kv_list_push(struct kv_list *l, enum kv_list_end end, const struct kv_needle *n,
                         struct kv_list_limit limit) KV_MUST_CHECK KV_HOT;

/* Removes items from an end: as many as there are at most. */
void kv_list_drop(struct kv_list *l, enum kv_list_end end, uint64_t items) KV_HOT;

/* Takes the nodes of which all items would be dropped into a list of its own, for somebody to free
 * it later: what takes long is then one walk over the nodes on the shorter side. *items becomes
 * what is still to be dropped. NULL: there are few, or no memory for that list. */
struct kv_list *kv_list_cut(struct kv_list *l, enum kv_list_end end, uint64_t *items);

/* Puts an item before the one at p, or behind it. */
enum kv_err kv_list_insert(struct kv_list *l, struct kv_list_pos p, bool behind,
                           const struct kv_needle *n, struct kv_list_limit limit) KV_MUST_CHECK;

/* Puts an item in the place of the one at p. */
enum kv_err kv_list_replace(struct kv_list *l, struct kv_list_pos p, const struct kv_needle *n,
                            struct kv_list_limit limit) KV_MUST_CHECK;

/* Removes the item at p; returns its neighbour towards the end that is named. Nodes that have
 * become small are joined. */
struct kv_list_pos kv_list_remove(struct kv_list *l, struct kv_list_pos p, enum kv_list_end towards,
                                  struct kv_list_limit limit);

/* --- becoming a packed list again --- */

/* The items as one packed list when all are in one node, else NULL. */
const uint8_t *kv_list_only(const struct kv_list *l);

/* Takes that node out, so that the list can go before its items are copied; and puts it back. */
struct kv_list_node *kv_list_detach_only(struct kv_list *l);
void kv_list_attach_only(struct kv_list *l, struct kv_list_node *node);
void kv_list_node_free(struct kv_list_node *node);

/* --- moving blocks, checking --- */

/* Moves blocks out of slabs that are evacuated, the list's own included; returns where it is now.
 */
struct kv_list *kv_list_move(struct kv_list *l, struct kv_moves *m) KV_MUST_CHECK;

/* Asserts all invariants. */
void kv_list_check(const struct kv_list *l);

#endif
