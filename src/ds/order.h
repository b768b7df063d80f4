/* Records {score, item} in order, counted: a B+-tree of 1,024-byte nodes that knows how many
 * records lie before any of them. The order of large sorted sets.
 *
 * Terms
 *   record  a score and a pointer to an item that others own; items are at least 8-aligned and lie
 *           below 2^48
 *   place   a point between records: {score, before, arg}. Records with a smaller score lie before
 *           it, of those with its score the ones for which before(item, arg) is true. Without
 *           `before` none of these does. `before` must be true for a prefix of them
 *   rank    how many records lie before
 *
 * Records are ordered by score, which is never NaN (-0 and 0 are equal), then as the places say
 * that they are inserted at. Appending leaves leaves full, random order about 85 % full, since a
 * full leaf first gives to a neighbour: 16 to 17 bytes a record. Removal merges neighbours.
 *
 * Failure: KV_ERR_NOMEM has changed nothing. Threads: the caller serialises.
 */
#ifndef KV_DS_ORDER_H
#define KV_DS_ORDER_H

#include "base/err.h"
#include "ds/move.h"
#include "mem/mem.h"

#define KV_ORDER_HEIGHT_MAX 16

struct kv_order_node;

struct kv_order {
    struct kv_order_node *root;  /* NULL while empty: costs nothing */
    struct kv_order_node *spare; /* nodes of kv_order_reserve */
    uint64_t count;              /* records */
    uint32_t node_count;         /* in the tree */
    uint32_t spare_count;
    uint16_t height;
    uint16_t owner; /* enum kv_mem_owner that pays for the nodes */
};

struct kv_order_place {
    double score;
    bool (*before)(const void *item, const void *arg); /* or NULL */
    const void *arg;
};

/* Where a walk stands: the way from the root to a record. It ends with the next change. */
struct kv_order_cursor {
    uint32_t height;
    struct {
        struct kv_order_node *node;
        uint32_t index; /* of the child, in the leaf of the record */
    } step[KV_ORDER_HEIGHT_MAX];
};

void kv_order_init(struct kv_order *o, enum kv_mem_owner owner);
void kv_order_release(struct kv_order *o); /* frees all nodes; items are the caller's */

/* --- changing --- */

/* Puts a record in at a place with its score. */
enum kv_err kv_order_insert(struct kv_order *o, const struct kv_order_place *p,
                            void *item) KV_MUST_CHECK KV_HOT;

/* Puts a record in behind all others. */
enum kv_err kv_order_append(struct kv_order *o, double score, void *item) KV_MUST_CHECK;

/* Removes the first record that does not lie before a place; it must be `item` (asserted). */
void kv_order_remove(struct kv_order *o, const struct kv_order_place *p, const void *item) KV_HOT;

/* Takes the record at `from` (as for kv_order_remove) out and puts it in at `to`. */
enum kv_err kv_order_change(struct kv_order *o, const struct kv_order_place *from,
                            const struct kv_order_place *to, void *item) KV_MUST_CHECK KV_HOT;

/* Takes memory for so many insertions and changes to come, which then cannot fail; and gives back
 * what they did not need. */
enum kv_err kv_order_reserve(struct kv_order *o, uint64_t insertions) KV_MUST_CHECK;
void kv_order_unreserve(struct kv_order *o);

/* --- asking --- */

/* Records that lie before a place. */
uint64_t kv_order_rank(const struct kv_order *o, const struct kv_order_place *p) KV_HOT;

/* The first record that does not lie before a place; false: all do. */
bool kv_order_seek(const struct kv_order *o, const struct kv_order_place *p,
                   struct kv_order_cursor *c);

/* The record of a rank; false: there are not so many. */
bool kv_order_at(const struct kv_order *o, uint64_t rank, struct kv_order_cursor *c);

/* One record on or back; false: there is none, and the cursor is used up. */
bool kv_order_next(struct kv_order_cursor *c);
bool kv_order_prev(struct kv_order_cursor *c);

void *kv_order_item(const struct kv_order_cursor *c);
double kv_order_score(const struct kv_order_cursor *c);

/* The cursor's item has another address now; it may still be used. */
void kv_order_replace(struct kv_order_cursor *c, void *item);

/* --- moving blocks, checking --- */

/* Moves nodes out of slabs that are evacuated; works on all of it. */
void kv_order_move_nodes(struct kv_order *o, struct kv_moves *m);

size_t kv_order_memory(const struct kv_order *o);

/* Asserts all invariants; `less` (or NULL) tells the order of items with one score. */
void kv_order_check(const struct kv_order *o, bool (*less)(const void *a, const void *b));

#endif
