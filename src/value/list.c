/* Large lists: doubly linked nodes of packed items. The node is drawn in list.h.
 *
 * A packed list may begin anywhere in its node's room. What is pushed to the head goes before it,
 * what is pushed to the tail behind it, and only the six bytes of its head move along. When the
 * room on one side is used up:
 *   - with enough of it on the other side, all items are shifted, three quarters of the spare room
 *     going to the side that is wanted;
 *   - else the block is doubled, up to the limit;
 *   - a block at the limit that is nearly full counts as full, and a new node begins.
 * Each of these pays for itself over the pushes that the room then takes.
 *
 * Invariants (kv_list_check): no node is empty; count, bytes and links agree with what is there; a
 * node with room for more than 64 KiB holds one item and starts at 0, since `start` has 16 bits.
 *
 * Rejected: the packed list in a block of its own beside the node (one more miss on each walk, 16
 * bytes more); a ring of items in a node (the bytes could not be saved as they are).
 *
 * Threads: none of its own.
 */
#include "value/list.h"
#include "base/assert.h"

#define HEADER offsetof(struct kv_list_node, room)
#define NODE_MIN ((size_t)128)     /* bytes of the smallest block */
#define SHARED_MAX ((size_t)65536) /* bytes of a block with more than one item */
#define SHRINK_FACTOR 4u           /* a block with less than this part in use is halved */
#define SAFE_BYTES 8192u           /* of a node whose items are counted */
#define CUT_NODES 64u              /* fewer are freed at once */
#define ITEMS_MAX 32767u           /* per node, whatever the directive says */

static_assert(HEADER == 24, "240 items of 32 bytes fit into 8 KiB");
static_assert(SHARED_MAX / 2 <= UINT16_MAX, "the number of items has 16 bits");

struct kv_list_limit kv_list_limit(int64_t directive)
{
    if (directive < 0) {
        unsigned step = directive < -5 ? 5 : (unsigned)-directive;
        return (struct kv_list_limit){2048u << step, UINT32_MAX};
    }
    uint32_t items = directive > ITEMS_MAX ? ITEMS_MAX : (uint32_t)directive;
    return (struct kv_list_limit){SAFE_BYTES, KV_MAX(items, 1u)};
}

/* --- nodes --- */

KV_INLINE size_t used(const struct kv_list_node *node)
{
    return kv_packed_bytes(kv_list_packed(node));
}

KV_INLINE size_t room(const struct kv_list_node *node)
{
    return node->block_size - HEADER;
}

KV_INLINE size_t room_behind(const struct kv_list_node *node)
{
    return room(node) - node->start - used(node);
}

/* True when a node may take an item of `bytes` more. */
KV_INLINE bool accepts(const struct kv_list_node *node, size_t bytes, struct kv_list_limit limit)
{
    return HEADER + used(node) + bytes <= limit.bytes && node->count < limit.items;
}

static void count_in(struct kv_list *l, const struct kv_list_node *node)
{
    l->block_bytes += node->block_size;
    l->used_bytes += HEADER + used(node);
    l->count += node->count;
    l->node_count++;
}

static void count_out(struct kv_list *l, const struct kv_list_node *node)
{
    l->block_bytes -= node->block_size;
    l->used_bytes -= HEADER + used(node);
    l->count -= node->count;
    l->node_count--;
}

/* A block with room for a packed list of `bytes`, which the caller writes; NULL: no memory. */
static struct kv_list_node *node_create(size_t bytes)
{
    size_t size = KV_MAX(HEADER + bytes, NODE_MIN);
    size_t block_size = 0;
    if (bytes > KV_PACKED_MAX)
        return NULL;
    struct kv_list_node *node = kv_mem_try_alloc_usable(size, KV_MEM_VALUE, &block_size);
    if (node == NULL)
        return NULL;
    KV_DASSERT(block_size >= size && block_size <= UINT32_MAX);
    node->block_size = (uint32_t)block_size;
    node->start = 0;
    node->count = 0;
    return node;
}

static void node_free(struct kv_list_node *node)
{
    kv_mem_free_movable(node, node->block_size, KV_MEM_VALUE);
}

/* Between two neighbours; `before` NULL: at the head. */
static void link_behind(struct kv_list *l, struct kv_list_node *before, struct kv_list_node *node)
{
    KV_DASSERT(node->count != 0);
    node->prev = before;
    node->next = before != NULL ? before->next : l->head;
    *(node->prev != NULL ? &node->prev->next : &l->head) = node;
    *(node->next != NULL ? &node->next->prev : &l->tail) = node;
    count_in(l, node);
}

static void unlink_node(struct kv_list *l, struct kv_list_node *node)
{
    *(node->prev != NULL ? &node->prev->next : &l->head) = node->next;
    *(node->next != NULL ? &node->next->prev : &l->tail) = node->prev;
}

static void drop_node(struct kv_list *l, struct kv_list_node *node)
{
    unlink_node(l, node);
    count_out(l, node);
    node_free(node);
}

/* Neighbours and list point to where the node is now. */
static void relink(struct kv_list *l, struct kv_list_node *node)
{
    *(node->prev != NULL ? &node->prev->next : &l->head) = node;
    *(node->next != NULL ? &node->next->prev : &l->tail) = node;
}

/* A node of one item behind `before`. An item that others may join gets room for a second one. */
static enum kv_err add_node(struct kv_list *l, struct kv_list_node *before, enum kv_list_end end,
                            const struct kv_needle *n, struct kv_list_limit limit)
{
    size_t bytes = KV_PACKED_EMPTY + kv_needle_bytes(n);
    if (n->len > KV_LIST_ITEM_MAX)
        return KV_ERR_NOMEM;
    bool shared = limit.items > 1 && HEADER + bytes <= limit.bytes / 2;
    struct kv_list_node *node = node_create(shared ? 2 * bytes : bytes);
    if (node == NULL)
        return KV_ERR_NOMEM;
    if (shared && end == KV_LIST_HEAD)
        node->start = (uint16_t)(room(node) - bytes);
    uint8_t *list = kv_list_packed(node);
    kv_packed_put(list + KV_PACKED_HEAD, n);
    kv_packed_seal(list, bytes, 1);
    node->count = 1;
    link_behind(l, before, node);
    return KV_OK;
}

/* --- room in a node --- */

/* The packed list moves within its room. */
static void shift(struct kv_list_node *node, size_t start)
{
    KV_DASSERT(start + used(node) <= room(node));
    memmove(node->room + start, kv_list_packed(node), used(node));
    node->start = (uint16_t)start;
}

/* Gives a node a block of another size, the packed list at its beginning, or at its end when the
 * room is wanted towards the head. NULL: no memory, nothing changed. */
static struct kv_list_node *resize(struct kv_list *l, struct kv_list_node *node, size_t size,
                                   enum kv_list_end wanted)
{
    size_t bytes = used(node);
    struct kv_list_node *to = node_create(size - HEADER);
    if (to == NULL)
        return NULL;
    to->prev = node->prev;
    to->next = node->next;
    to->count = node->count;
    if (wanted == KV_LIST_HEAD && room(to) <= SHARED_MAX)
        to->start = (uint16_t)(room(to) - bytes);
    memcpy(kv_list_packed(to), kv_list_packed(node), bytes);
    l->block_bytes += (size_t)to->block_size - node->block_size;
    relink(l, to);
    node_free(node);
    return to;
}

/* Makes room for `bytes` at one side of a node that accepts them. Returns where the node is now;
 * NULL with *full set: it is not worth it, without: no memory. */
static struct kv_list_node *make_room(struct kv_list *l, struct kv_list_node *node, size_t bytes,
                                      enum kv_list_end side, struct kv_list_limit limit, bool *full)
{
    size_t have = used(node);
    size_t spare = room(node) - have;
    size_t size = HEADER + have + bytes;
    KV_DASSERT(size <= limit.bytes);
    *full = false;
    if (spare >= bytes + have / 4) {
        size_t other = (spare - bytes) / 4;
        shift(node, side == KV_LIST_HEAD ? spare - other : other);
        return node;
    }
    size_t doubled = KV_MIN((size_t)node->block_size * 2, (size_t)limit.bytes);
    size = KV_MAX(size, doubled);
    if (kv_mem_block_size(size) > node->block_size)
        return resize(l, node, size, side);
    *full = spare < bytes + have / 16;
    if (*full)
        return NULL;
    shift(node, side == KV_LIST_HEAD ? spare : 0);
    return node;
}

/* After items have gone: a block that is nearly empty is halved. A wish. Returns where it is now.
 */
static struct kv_list_node *give_back(struct kv_list *l, struct kv_list_node *node)
{
    size_t need = HEADER + used(node);
    if (KV_LIKELY(need >= node->block_size / SHRINK_FACTOR) || node->block_size <= NODE_MIN)
        return node;
    size_t size = KV_MAX(need * 2, NODE_MIN);
    if (kv_mem_block_size(size) >= node->block_size)
        return node;
    /* What comes next is most likely what came last: pushes where the room was. */
    enum kv_list_end wanted = room_behind(node) >= node->start ? KV_LIST_TAIL : KV_LIST_HEAD;
    struct kv_list_node *smaller = resize(l, node, size, wanted);
    return smaller != NULL ? smaller : node;
}

/* --- life --- */

struct kv_list *kv_list_create(void)
{
    struct kv_list *l = kv_mem_try_alloc(sizeof(*l), KV_MEM_VALUE);
    if (l != NULL)
        *l = (struct kv_list){0};
    return l;
}

/* Appends a node with `count` items of `bytes` in all, behind its last. */
static bool append_run(struct kv_list *l, const uint8_t *items, size_t bytes, unsigned count)
{
    size_t size = KV_PACKED_EMPTY + bytes;
    struct kv_list_node *node = node_create(size);
    if (node == NULL)
        return false;
    uint8_t *list = kv_list_packed(node);
    memcpy(list + KV_PACKED_HEAD, items, bytes);
    kv_packed_seal(list, size, count);
    node->count = (uint16_t)count;
    link_behind(l, l->tail, node);
    return true;
}

struct kv_list *kv_list_create_from(const uint8_t *packed, struct kv_list_limit limit)
{
    struct kv_list *l = kv_list_create();
    const uint8_t *at = kv_packed_first(packed), *run = at;
    unsigned count = 0;
    bool done = l != NULL;
    while (done && !kv_packed_at_end(at)) {
        size_t run_bytes = HEADER + KV_PACKED_EMPTY + (size_t)(at - run);
        size_t bytes = kv_packed_item_bytes(at);
        if (count != 0 && (run_bytes + bytes > limit.bytes || count >= limit.items)) {
            done = append_run(l, run, (size_t)(at - run), count);
            run = at;
            count = 0;
        }
        count++;
        at += bytes;
    }
    if (done && count != 0)
        done = append_run(l, run, (size_t)(at - run), count);
    if (!done && l != NULL) {
        kv_list_free(l);
        l = NULL;
    }
    return l;
}

void kv_list_free(struct kv_list *l)
{
    KV_ASSERT(l->guard == NULL);
    struct kv_list_node *node = l->head;
    while (node != NULL) {
        struct kv_list_node *next = node->next;
        node_free(node);
        node = next;
    }
    kv_mem_free_movable(l, sizeof(*l), KV_MEM_VALUE);
}

struct kv_list *kv_list_copy(const struct kv_list *l)
{
    struct kv_list *copy = kv_list_create();
    if (copy == NULL)
        return NULL;
    for (const struct kv_list_node *node = l->head; node != NULL; node = node->next) {
        const uint8_t *list = kv_list_packed(node);
        if (!append_run(copy, list + KV_PACKED_HEAD, used(node) - KV_PACKED_EMPTY, node->count)) {
            kv_list_free(copy);
            return NULL;
        }
    }
    return copy;
}

/* --- finding --- */

struct kv_list_pos kv_list_seek(const struct kv_list *l, int64_t index)
{
    int64_t count = (int64_t)l->count;
    struct kv_list_node *node;
    if (index < 0)
        index += count;
    if (index < 0 || index >= count)
        return (struct kv_list_pos){NULL, NULL};
    if (index < count / 2) {
        node = l->head;
        for (; index >= node->count; node = node->next)
            index -= node->count;
    } else {
        int64_t behind = count - index;
        node = l->tail;
        for (; behind > node->count; node = node->prev)
            behind -= node->count;
        index = node->count - behind;
    }
    return (struct kv_list_pos){node, kv_packed_seek(kv_list_packed(node), index)};
}

static struct kv_list_pos last_of(struct kv_list_node *node)
{
    if (node == NULL)
        return (struct kv_list_pos){NULL, NULL};
    const uint8_t *list = kv_list_packed(node);
    return (struct kv_list_pos){node, kv_packed_prev(list, kv_packed_end(list))};
}

static struct kv_list_pos first_of(struct kv_list_node *node)
{
    if (node == NULL)
        return (struct kv_list_pos){NULL, NULL};
    return (struct kv_list_pos){node, kv_packed_first(kv_list_packed(node))};
}

struct kv_list_pos kv_list_prev(struct kv_list_pos p)
{
    uint8_t *at = kv_packed_prev(kv_list_packed(p.node), p.at);
    return at != NULL ? (struct kv_list_pos){p.node, at} : last_of(p.node->prev);
}

/* --- ends --- */

KV_INLINE void count_item(struct kv_list *l, struct kv_list_node *node, size_t bytes)
{
    node->count++;
    l->count++;
    l->used_bytes += bytes;
}

enum kv_err kv_list_push(struct kv_list *l, enum kv_list_end end, const struct kv_needle *n,
                         struct kv_list_limit limit)
{
    struct kv_list_node *node = end == KV_LIST_HEAD ? l->head : l->tail;
    struct kv_list_node *before = end == KV_LIST_HEAD ? NULL : l->tail;
    size_t bytes = kv_needle_bytes(n);
    KV_DASSERT(kv_guard_permits(l->guard, end));
    if (KV_UNLIKELY(node == NULL || !accepts(node, bytes, limit)))
        return add_node(l, before, end, n, limit);
    if (KV_UNLIKELY((end == KV_LIST_HEAD ? node->start : room_behind(node)) < bytes)) {
        bool full;
        node = make_room(l, node, bytes, end, limit, &full);
        if (node == NULL)
            return full ? add_node(l, before, end, n, limit) : KV_ERR_NOMEM;
    }
    uint8_t *list = kv_list_packed(node);
    size_t have = kv_packed_bytes(list);
    if (end == KV_LIST_HEAD) {
        node->start = (uint16_t)(node->start - bytes);
        list -= bytes;
        kv_packed_put(list + KV_PACKED_HEAD, n);
    } else {
        kv_packed_put(list + have - 1, n);
    }
    count_item(l, node, bytes);
    kv_packed_seal(list, have + bytes, node->count);
    return KV_OK;
}

/* Takes some items, but not all, out of the node at an end. */
static void drop_within(struct kv_list *l, struct kv_list_node *node, enum kv_list_end end,
                        unsigned items)
{
    uint8_t *list = kv_list_packed(node);
    size_t have = kv_packed_bytes(list), gone;
    KV_DASSERT(items < node->count);
    if (end == KV_LIST_HEAD) {
        const uint8_t *first = kv_packed_first(list);
        gone = (size_t)(kv_packed_skip(first, items) - first);
        node->start = (uint16_t)(node->start + gone);
        list += gone;
    } else {
        const uint8_t *at = kv_packed_end(list);
        for (unsigned i = 0; i < items; i++)
            at = kv_packed_prev(list, at);
        gone = (size_t)(list + have - 1 - at);
    }
    node->count = (uint16_t)(node->count - items);
    l->count -= items;
    l->used_bytes -= gone;
    kv_packed_seal(list, have - gone, node->count);
    give_back(l, node);
}

void kv_list_drop(struct kv_list *l, enum kv_list_end end, uint64_t items)
{
    KV_DASSERT(kv_guard_permits(l->guard, end));
    while (items != 0) {
        struct kv_list_node *node = end == KV_LIST_HEAD ? l->head : l->tail;
        if (node == NULL)
            return;
        if (items < node->count) {
            drop_within(l, node, end, (unsigned)items);
            return;
        }
        items -= node->count;
        drop_node(l, node);
    }
}

static struct kv_list_node *inwards(const struct kv_list_node *node, enum kv_list_end end)
{
    return end == KV_LIST_HEAD ? node->next : node->prev;
}

/* Sums up nodes from an end on: as long as all their items are among the first `items` (inner
 * false), or until those are reached (inner true). Returns the node behind them. */
static struct kv_list_node *sum_nodes(const struct kv_list *l, enum kv_list_end end, uint64_t items,
                                      bool inner, struct kv_list *sum)
{
    struct kv_list_node *node = end == KV_LIST_HEAD ? l->head : l->tail;
    while (node != NULL && (inner ? sum->count < items : sum->count + node->count <= items)) {
        count_in(sum, node);
        node = inwards(node, end);
    }
    return node;
}

struct kv_list *kv_list_cut(struct kv_list *l, enum kv_list_end end, uint64_t *items)
{
    enum kv_list_end other = end == KV_LIST_HEAD ? KV_LIST_TAIL : KV_LIST_HEAD;
    struct kv_list part = {0};
    struct kv_list_node *last, *first = end == KV_LIST_HEAD ? l->head : l->tail;
    KV_DASSERT(kv_guard_permits(l->guard, end));
    if (l->node_count < CUT_NODES || *items >= l->count)
        return NULL;
    uint64_t kept = l->count - *items;
    if (kept < *items) {
        /* The node behind what is kept is the innermost one that goes. */
        last = sum_nodes(l, other, kept, true, &part);
        part.count = l->count - part.count;
        part.node_count = l->node_count - part.node_count;
        part.block_bytes = l->block_bytes - part.block_bytes;
        part.used_bytes = l->used_bytes - part.used_bytes;
    } else {
        last = sum_nodes(l, end, *items, false, &part);
        last = last == NULL ? NULL : inwards(last, other);
    }
    struct kv_list *cut = part.node_count >= CUT_NODES ? kv_list_create() : NULL;
    if (cut == NULL)
        return NULL;
    struct kv_list_node *edge = inwards(last, end);
    KV_ASSERT(edge != NULL);
    *cut = part;
    cut->head = end == KV_LIST_HEAD ? first : last;
    cut->tail = end == KV_LIST_HEAD ? last : first;
    *(end == KV_LIST_HEAD ? &l->head : &l->tail) = edge;
    *(end == KV_LIST_HEAD ? &edge->prev : &edge->next) = NULL;
    *(end == KV_LIST_HEAD ? &last->next : &last->prev) = NULL;
    l->count -= part.count;
    l->node_count -= part.node_count;
    l->block_bytes -= part.block_bytes;
    l->used_bytes -= part.used_bytes;
    *items -= part.count;
    return cut;
}

/* --- the middle --- */

/* Opens a gap of `bytes` at an offset of a node's packed list, on the side where less has to move.
 * The node has room for it on one side at least. */
static uint8_t *open_gap(struct kv_list_node *node, size_t offset, size_t bytes)
{
    uint8_t *list = kv_list_packed(node);
    size_t have = used(node);
    bool front = node->start >= bytes && (offset < have / 2 || room_behind(node) < bytes);
    if (front) {
        memmove(list - bytes, list, offset);
        node->start = (uint16_t)(node->start - bytes);
        return list - bytes + offset;
    }
    KV_DASSERT(room_behind(node) >= bytes);
    memmove(list + offset + bytes, list + offset, have - offset);
    return list + offset;
}

/* Closes one likewise. */
static void close_gap(struct kv_list_node *node, size_t offset, size_t bytes)
{
    uint8_t *list = kv_list_packed(node);
    size_t have = used(node);
    if (offset < have / 2 && room(node) <= SHARED_MAX) {
        memmove(list + bytes, list, offset);
        node->start = (uint16_t)(node->start + bytes);
        return;
    }
    memmove(list + offset, list + offset + bytes, have - offset - bytes);
}

/* Puts an item into a node that accepts it. *full: it does not after all. */
static enum kv_err insert_within(struct kv_list *l, struct kv_list_node *node, size_t offset,
                                 const struct kv_needle *n, struct kv_list_limit limit, bool *full)
{
    size_t bytes = kv_needle_bytes(n);
    *full = false;
    if (node->start < bytes && room_behind(node) < bytes) {
        node = make_room(l, node, bytes, KV_LIST_TAIL, limit, full);
        if (node == NULL)
            return KV_ERR_NOMEM;
    }
    size_t have = used(node);
    kv_packed_put(open_gap(node, offset, bytes), n);
    count_item(l, node, bytes);
    kv_packed_seal(kv_list_packed(node), have + bytes, node->count);
    return KV_OK;
}

/* Moves the items from an offset on, which are not all, into a node of their own, which is
 * returned; the node before it may have another block. NULL: no memory. */
static struct kv_list_node *split(struct kv_list *l, struct kv_list_node *node, size_t offset)
{
    uint8_t *list = kv_list_packed(node);
    size_t have = used(node), moved = have - 1 - offset;
    unsigned count = 0;
    for (const uint8_t *at = list + offset; !kv_packed_at_end(at); at = kv_packed_next(at))
        count++;
    KV_DASSERT(count != 0 && count < node->count);
    struct kv_list_node *right = node_create(KV_PACKED_EMPTY + moved);
    if (right == NULL)
        return NULL;
    memcpy(right->room + KV_PACKED_HEAD, list + offset, moved);
    kv_packed_seal(right->room, KV_PACKED_EMPTY + moved, count);
    right->count = (uint16_t)count;
    node->count = (uint16_t)(node->count - count);
    l->count -= count;
    l->used_bytes -= moved;
    kv_packed_seal(list, have - moved, node->count);
    link_behind(l, node, right);
    give_back(l, node);
    return right;
}

/* Between two nodes: into the one before, the one behind, or a new one. */
static enum kv_err insert_between(struct kv_list *l, struct kv_list_node *before,
                                  const struct kv_needle *n, struct kv_list_limit limit)
{
    struct kv_list_node *behind = before != NULL ? before->next : l->head;
    size_t bytes = kv_needle_bytes(n);
    bool full = true;
    enum kv_err err = KV_ERR_NOMEM;
    if (before != NULL && accepts(before, bytes, limit))
        err = insert_within(l, before, used(before) - 1, n, limit, &full);
    if (full && behind != NULL && accepts(behind, bytes, limit))
        err = insert_within(l, behind, KV_PACKED_HEAD, n, limit, &full);
    return full ? add_node(l, before, KV_LIST_TAIL, n, limit) : err;
}

enum kv_err kv_list_insert(struct kv_list *l, struct kv_list_pos p, bool behind,
                           const struct kv_needle *n, struct kv_list_limit limit)
{
    struct kv_list_node *node = p.node;
    uint8_t *at = behind ? kv_packed_next(p.at) : p.at;
    size_t offset = (size_t)(at - kv_list_packed(node));
    KV_DASSERT(l->guard == NULL);
    if (n->len > KV_LIST_ITEM_MAX)
        return KV_ERR_NOMEM;
    if (accepts(node, kv_needle_bytes(n), limit)) {
        bool full;
        enum kv_err err = insert_within(l, node, offset, n, limit, &full);
        if (!full)
            return err;
    }
    if (offset == KV_PACKED_HEAD)
        return insert_between(l, node->prev, n, limit);
    if (!kv_packed_at_end(at)) {
        struct kv_list_node *right = split(l, node, offset);
        if (right == NULL)
            return KV_ERR_NOMEM;
        node = right->prev;
    }
    return insert_between(l, node, n, limit);
}

/* An item that its node has no room for: it gets a node of its own, split off on both sides. */
static enum kv_err replace_alone(struct kv_list *l, struct kv_list_pos p, const struct kv_needle *n,
                                 struct kv_list_limit limit)
{
    struct kv_list_node *node = p.node;
    size_t offset = (size_t)(p.at - kv_list_packed(node));
    const uint8_t *next = kv_packed_next(p.at);
    if (!kv_packed_at_end(next)) {
        struct kv_list_node *right = split(l, node, (size_t)(next - kv_list_packed(node)));
        if (right == NULL)
            return KV_ERR_NOMEM;
        node = right->prev;
    }
    if (offset != KV_PACKED_HEAD) {
        node = split(l, node, offset);
        if (node == NULL)
            return KV_ERR_NOMEM;
    }
    KV_DASSERT(node->count == 1);
    enum kv_err err = add_node(l, node, KV_LIST_TAIL, n, limit);
    if (err == KV_OK)
        drop_node(l, node);
    return err;
}

enum kv_err kv_list_replace(struct kv_list *l, struct kv_list_pos p, const struct kv_needle *n,
                            struct kv_list_limit limit)
{
    struct kv_list_node *node = p.node;
    size_t have = used(node), old = kv_packed_item_bytes(p.at), bytes = kv_needle_bytes(n);
    size_t offset = (size_t)(p.at - kv_list_packed(node));
    KV_DASSERT(l->guard == NULL);
    if (n->len > KV_LIST_ITEM_MAX)
        return KV_ERR_NOMEM;
    if (bytes > old && HEADER + have + (bytes - old) > limit.bytes)
        return replace_alone(l, p, n, limit);
    if (bytes < old && room(node) > SHARED_MAX)
        return replace_alone(l, p, n, limit);
    if (bytes < old) {
        close_gap(node, offset, old - bytes);
    } else if (bytes > old) {
        size_t more = bytes - old;
        if (node->start < more && room_behind(node) < more) {
            bool full;
            struct kv_list_node *roomy = make_room(l, node, more, KV_LIST_TAIL, limit, &full);
            if (roomy == NULL)
                return full ? replace_alone(l, p, n, limit) : KV_ERR_NOMEM;
            node = roomy;
        }
        open_gap(node, offset, more);
    }
    uint8_t *list = kv_list_packed(node);
    kv_packed_put(list + offset, n);
    l->used_bytes += bytes - old;
    kv_packed_seal(list, have + bytes - old, node->count);
    give_back(l, node);
    return KV_OK;
}

/* --- removing in the middle --- */

/* Moves the items of `b`, the node behind `a`, to the end of `a`; returns where that is now. NULL:
 * no memory, nothing changed. */
static struct kv_list_node *join(struct kv_list *l, struct kv_list_node *a, struct kv_list_node *b)
{
    size_t have = used(a), moved = used(b) - KV_PACKED_EMPTY;
    KV_DASSERT(a->next == b);
    if (room_behind(a) < moved) {
        a = resize(l, a, HEADER + have + moved, KV_LIST_TAIL);
        if (a == NULL)
            return NULL;
    }
    uint8_t *list = kv_list_packed(a);
    memcpy(list + have - 1, kv_list_packed(b) + KV_PACKED_HEAD, moved);
    a->count = (uint16_t)(a->count + b->count);
    l->count += b->count;
    l->used_bytes += moved;
    kv_packed_seal(list, have + moved, a->count);
    drop_node(l, b);
    return a;
}

/* True when two neighbours are small enough to be one node. */
static bool joinable(const struct kv_list_node *a, const struct kv_list_node *b,
                     struct kv_list_limit limit)
{
    return a != NULL && b != NULL && HEADER + used(a) + used(b) <= limit.bytes / 2 &&
           (uint32_t)a->count + b->count <= limit.items;
}

/* Joins a node that has become small with a neighbour. A wish. Returns the node with its items;
 * *offset, a place in its packed list, is moved along. */
static struct kv_list_node *tidy(struct kv_list *l, struct kv_list_node *node, size_t *offset,
                                 struct kv_list_limit limit)
{
    node = give_back(l, node);
    if (joinable(node, node->next, limit)) {
        struct kv_list_node *joined = join(l, node, node->next);
        node = joined != NULL ? joined : node;
    }
    if (joinable(node->prev, node, limit)) {
        size_t before = used(node->prev) - KV_PACKED_EMPTY;
        struct kv_list_node *joined = join(l, node->prev, node);
        if (joined != NULL) {
            node = joined;
            *offset += before;
        }
    }
    return node;
}

struct kv_list_pos kv_list_remove(struct kv_list *l, struct kv_list_pos p, enum kv_list_end towards,
                                  struct kv_list_limit limit)
{
    struct kv_list_node *node = p.node;
    size_t offset = (size_t)(p.at - kv_list_packed(node));
    size_t bytes = kv_packed_item_bytes(p.at), have = used(node);
    KV_DASSERT(l->guard == NULL);
    if (node->count == 1) {
        p = towards == KV_LIST_TAIL ? first_of(node->next) : last_of(node->prev);
        drop_node(l, node);
        return p;
    }
    close_gap(node, offset, bytes);
    node->count--;
    l->count--;
    l->used_bytes -= bytes;
    kv_packed_seal(kv_list_packed(node), have - bytes, node->count);
    node = tidy(l, node, &offset, limit);
    p = (struct kv_list_pos){node, kv_list_packed(node) + offset};
    if (towards == KV_LIST_HEAD)
        return kv_list_prev(p);
    return kv_packed_at_end(p.at) ? first_of(node->next) : p;
}

/* --- from and to a packed list --- */

const uint8_t *kv_list_only(const struct kv_list *l)
{
    return l->node_count == 1 ? kv_list_packed(l->head) : NULL;
}

struct kv_list_node *kv_list_detach_only(struct kv_list *l)
{
    struct kv_list_node *node = l->head;
    KV_ASSERT(l->guard == NULL);
    KV_ASSERT(l->node_count == 1);
    unlink_node(l, node);
    count_out(l, node);
    KV_DASSERT(l->head == NULL && l->count == 0);
    return node;
}

void kv_list_attach_only(struct kv_list *l, struct kv_list_node *node)
{
    KV_ASSERT(l->node_count == 0);
    link_behind(l, NULL, node);
}

void kv_list_node_free(struct kv_list_node *node)
{
    node_free(node);
}

/* --- moving blocks, checking --- */

struct kv_list *kv_list_move(struct kv_list *l, struct kv_moves *m)
{
    KV_DASSERT(l->guard == NULL);
    struct kv_list_node *node = l->head;
    while (node != NULL) {
        node = kv_move_block(node, node->block_size, KV_MEM_VALUE, m);
        relink(l, node);
        node = node->next;
    }
    return kv_move_block(l, sizeof(*l), KV_MEM_VALUE, m);
}

static void check_node(const struct kv_list *l, const struct kv_list_node *node)
{
    const uint8_t *list = kv_list_packed(node);
    KV_ASSERT(node->block_size == kv_mem_block_size(node->block_size));
    KV_ASSERT(node->count != 0);
    KV_ASSERT(node->start + used(node) <= room(node));
    KV_ASSERT(room(node) <= SHARED_MAX || (node->count == 1 && node->start == 0));
    KV_ASSERT(kv_packed_valid(list, used(node)) == KV_PACKED_GOOD);
    KV_ASSERT(kv_packed_count(list) == node->count);
    KV_ASSERT((node->prev != NULL ? node->prev->next : l->head) == node);
    KV_ASSERT((node->next != NULL ? node->next->prev : l->tail) == node);
}

void kv_list_check(const struct kv_list *l)
{
    struct kv_list sum = {0};
    for (const struct kv_list_node *node = l->head; node != NULL; node = node->next) {
        check_node(l, node);
        count_in(&sum, node);
    }
    KV_ASSERT((l->head == NULL) == (l->tail == NULL));
    KV_ASSERT(sum.count == l->count);
    KV_ASSERT(sum.node_count == l->node_count);
    KV_ASSERT(sum.block_bytes == l->block_bytes);
    KV_ASSERT(sum.used_bytes == l->used_bytes);
}
