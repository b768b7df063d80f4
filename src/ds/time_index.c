/* Due times in order: a B+-tree of 512-byte nodes.
 *
 * Layout. A record has 89 bits: `when` in the upper 48 and the upper 16 bits of the position make
 * the 64-bit `high`, the lower 25 bits of the position the 32-bit `low`. Nodes keep the two in
 * separate arrays, so that nothing is unaligned and a search touches `high` alone as long as times
 * differ. A leaf is the two arrays with 42 records; an inner node adds child pointers and holds 25
 * children, each with the smallest record below it.
 *
 * Invariants
 *   - records of a node are in ascending order, equal ones allowed
 *   - an inner node's record i is exactly the smallest record in child i; so the root's first
 *     record is the smallest of all, and a record that is present lies in the last child whose
 *     smallest is not above it
 *   - all leaves have the same depth; no node is empty; the root has two children or is a leaf
 *
 * Insertion. A full leaf first gives half of what a neighbour under the same parent lacks. Else it
 * splits: at its end when the new record comes last (times to live of one length arrive in
 * ascending order and would leave half-empty leaves behind), in the middle otherwise. Inner nodes
 * split only. All nodes that an insertion may need are taken before anything changes.
 *
 * Removal. A node at most 3/5 full joins a neighbour when both fill at most 6/7 of one; a node that
 * becomes empty goes. Nothing is ever allocated, so removal cannot fail. Keys whose times are
 * refreshed at random for ever then take 19.8 bytes a record (with 1/2 and 3/4 it is 21.8), at the
 * same speed within what can be measured.
 *
 * Threads: the caller serialises.
 *
 * Rejected: a heap (removing a record needs its place, 8 bytes in each entry); a wheel (exact order
 * costs a sort per slot, and far times cascade); a radix tree over time (a node per lone
 * millisecond); 16-byte records (a third more memory for nothing); leaf links (only
 * kv_time_index_move_nodes walks, and it changes the parents anyway).
 */
#include "ds/time_index.h"
#include "base/random.h"

#include <string.h>

#define LEAF_MAX 42
#define INNER_MAX 25
#define HEIGHT_MAX 16 /* levels; neighbours have 18 children together, so 9^14 leaves would fit */
#define LOW_BITS 25   /* position bits in `low` */
#define POSITION_BITS 41 /* of kv_table_position */
#define HIGH_BITS (POSITION_BITS - LOW_BITS)
#define NODE_BYTES 512
#define RANDOM_TRIES 16 /* ways down before an unequal one is taken */

struct record {
    uint64_t high; /* when << 16 | position >> 25 */
    uint32_t low;  /* position's lower 25 bits */
};

struct kv_time_index_node {
    uint16_t count; /* records, or children */
    uint8_t is_leaf;
    uint8_t unused[5];
    union {
        struct {
            uint64_t high[LEAF_MAX];
            uint32_t low[LEAF_MAX];
        } leaf;
        struct {
            uint64_t high[INNER_MAX]; /* smallest record below each child */
            struct kv_time_index_node *child[INNER_MAX];
            uint32_t low[INNER_MAX];
        } inner;
    };
};
static_assert(sizeof(struct kv_time_index_node) == NODE_BYTES, "a node is a block of 512 bytes");
static_assert(HIGH_BITS + 48 == 64, "when and the upper position bits fill a word");

/* The way from the root to a leaf: node[0] is the root, index[i] the child taken in node[i]. */
struct path {
    struct kv_time_index_node *node[HEIGHT_MAX];
    unsigned index[HEIGHT_MAX];
};

/* --- records --- */

static struct record make_record(uint64_t when, uint64_t position)
{
    KV_ASSERT(when <= KV_TIME_INDEX_WHEN_MAX);
    KV_ASSERT(position >> POSITION_BITS == 0);
    return (struct record){when << HIGH_BITS | position >> LOW_BITS,
                           (uint32_t)(position & ((1u << LOW_BITS) - 1))};
}

static void read_record(struct record r, uint64_t *when, uint64_t *position)
{
    *when = r.high >> HIGH_BITS;
    *position = (r.high & ((1u << HIGH_BITS) - 1)) << LOW_BITS | r.low;
}

static bool record_less(struct record a, struct record b)
{
    return a.high != b.high ? a.high < b.high : a.low < b.low;
}

static bool record_equal(struct record a, struct record b)
{
    return a.high == b.high && a.low == b.low;
}

static uint64_t *highs(struct kv_time_index_node *n)
{
    return n->is_leaf ? n->leaf.high : n->inner.high;
}

static uint32_t *lows(struct kv_time_index_node *n)
{
    return n->is_leaf ? n->leaf.low : n->inner.low;
}

static struct record record_at(struct kv_time_index_node *n, unsigned i)
{
    KV_DASSERT(i < n->count);
    return (struct record){highs(n)[i], lows(n)[i]};
}

static unsigned max_count(const struct kv_time_index_node *n)
{
    return n->is_leaf ? LEAF_MAX : INNER_MAX;
}

/* How many records of the node are not above r. The halving has no branch on what is compared:
 * which way it goes is not predictable. */
static unsigned upper_bound(struct kv_time_index_node *n, struct record r)
{
    const uint64_t *high = highs(n);
    const uint32_t *low = lows(n);
    KV_DASSERT(n->count > 0);
    /* The usual ways are well predicted: appending, and taking the first. */
    if (high[n->count - 1] < r.high)
        return n->count;
    if (n->count > 1 && r.high < high[1])
        return !record_less(r, (struct record){high[0], low[0]});
    const uint64_t *from = high;
    for (unsigned len = n->count; len > 1;) {
        unsigned half = len / 2;
        from += half & -(size_t)(from[half - 1] < r.high);
        len -= half;
    }
    unsigned i = (unsigned)(from - high) + (*from < r.high);
    while (i < n->count && high[i] == r.high && low[i] <= r.low)
        i++;
    return i;
}

/* All lines of `high` at once, since the search jumps among them. */
static void prefetch_node(const struct kv_time_index_node *n)
{
    for (unsigned line = 0; line < 6; line++)
        KV_PREFETCH((const char *)n + line * KV_CACHE_LINE);
}

/* --- nodes --- */

static struct kv_time_index_node *take_node(const struct kv_time_index *x)
{
    return kv_mem_try_alloc(NODE_BYTES, (enum kv_mem_owner)x->owner);
}

static void free_node(struct kv_time_index *x, struct kv_time_index_node *n)
{
    KV_ASSERT(x->node_count > 0);
    x->node_count--;
    kv_mem_free_movable(n, NODE_BYTES, (enum kv_mem_owner)x->owner);
}

static void start_node(struct kv_time_index *x, struct kv_time_index_node *n, bool is_leaf)
{
    n->count = 0;
    n->is_leaf = is_leaf;
    memset(n->unused, 0, sizeof n->unused);
    x->node_count++;
}

/* Opens `len` places at `at`; the caller fills them. */
static void open_gap(struct kv_time_index_node *n, unsigned at, unsigned len)
{
    KV_DASSERT(at <= n->count);
    KV_ASSERT(n->count + len <= max_count(n));
    unsigned behind = n->count - at;
    memmove(highs(n) + at + len, highs(n) + at, behind * sizeof(uint64_t));
    memmove(lows(n) + at + len, lows(n) + at, behind * sizeof(uint32_t));
    if (!n->is_leaf)
        memmove(&n->inner.child[at + len], &n->inner.child[at], behind * sizeof(n));
    n->count = (uint16_t)(n->count + len);
}

static void close_gap(struct kv_time_index_node *n, unsigned at, unsigned len)
{
    KV_ASSERT(at + len <= n->count);
    unsigned behind = n->count - at - len;
    memmove(highs(n) + at, highs(n) + at + len, behind * sizeof(uint64_t));
    memmove(lows(n) + at, lows(n) + at + len, behind * sizeof(uint32_t));
    if (!n->is_leaf)
        memmove(&n->inner.child[at], &n->inner.child[at + len], behind * sizeof(n));
    n->count = (uint16_t)(n->count - len);
}

/* Moves `len` records from `from` at from_at into an opened gap of `to` at to_at. */
static void move_records(struct kv_time_index_node *to, unsigned to_at,
                         struct kv_time_index_node *from, unsigned from_at, unsigned len)
{
    KV_DASSERT(to->is_leaf == from->is_leaf);
    open_gap(to, to_at, len);
    memcpy(highs(to) + to_at, highs(from) + from_at, len * sizeof(uint64_t));
    memcpy(lows(to) + to_at, lows(from) + from_at, len * sizeof(uint32_t));
    if (!to->is_leaf)
        memcpy(&to->inner.child[to_at], &from->inner.child[from_at], len * sizeof(to));
    close_gap(from, from_at, len);
}

static void put_record(struct kv_time_index_node *n, unsigned at, struct record r)
{
    open_gap(n, at, 1);
    highs(n)[at] = r.high;
    lows(n)[at] = r.low;
}

/* --- paths --- */

static void descend(const struct kv_time_index *x, struct record r, struct path *p)
{
    KV_ASSERT(x->height >= 1 && x->height <= HEIGHT_MAX);
    struct kv_time_index_node *n = x->root;
    for (unsigned level = 0;; level++) {
        p->node[level] = n;
        unsigned bound = upper_bound(n, r);
        p->index[level] = bound == 0 ? 0 : bound - 1;
        if (n->is_leaf) {
            KV_DASSERT(level + 1 == x->height);
            p->index[level] = bound; /* in the leaf: where the record would be inserted */
            return;
        }
        n = n->inner.child[p->index[level]];
        prefetch_node(n);
    }
}

static void copy_smallest(struct kv_time_index_node *parent, unsigned i)
{
    struct record r = record_at(parent->inner.child[i], 0);
    parent->inner.high[i] = r.high;
    parent->inner.low[i] = r.low;
}

/* The first record of the node at `level` changed: tells the nodes above. */
static void update_smallest(struct path *p, unsigned level)
{
    while (level-- > 0) {
        copy_smallest(p->node[level], p->index[level]);
        if (p->index[level] != 0)
            return;
    }
}

static void update_first_when(struct kv_time_index *x)
{
    x->first_when = x->root == NULL ? UINT64_MAX : record_at(x->root, 0).high >> HIGH_BITS;
}

void kv_time_index_init(struct kv_time_index *x, enum kv_mem_owner owner)
{
    *x = (struct kv_time_index){.first_when = UINT64_MAX, .owner = (uint16_t)owner};
}

static void free_tree(struct kv_time_index *x, struct kv_time_index_node *n)
{
    if (!n->is_leaf) {
        for (unsigned i = 0; i < n->count; i++)
            free_tree(x, n->inner.child[i]);
    }
    free_node(x, n);
}

void kv_time_index_release(struct kv_time_index *x)
{
    if (x->root != NULL)
        free_tree(x, x->root);
    KV_ASSERT(x->node_count == 0);
    kv_time_index_init(x, (enum kv_mem_owner)x->owner);
}

/* --- inserting --- */

static bool has_room(const struct kv_time_index_node *n)
{
    return n->count < max_count(n);
}

/* The full leaf of the path gives records to a neighbour with room, and the new record goes where
 * it belongs. False: no neighbour under the same parent has room. */
static bool insert_by_sharing(struct kv_time_index *x, struct path *p, struct record r)
{
    unsigned level = x->height - 1;
    if (level == 0)
        return false;
    struct kv_time_index_node *leaf = p->node[level];
    struct kv_time_index_node *parent = p->node[level - 1];
    unsigned i = p->index[level - 1];
    unsigned at = p->index[level];
    struct kv_time_index_node *right = i + 1 < parent->count ? parent->inner.child[i + 1] : NULL;
    struct kv_time_index_node *left = i > 0 ? parent->inner.child[i - 1] : NULL;
    if (right != NULL && has_room(right)) {
        unsigned give = (LEAF_MAX - right->count + 1u) / 2;
        if (at == LEAF_MAX) { /* the new record alone is enough: appending keeps leaves full */
            put_record(right, 0, r);
        } else {
            give = KV_MIN(give, LEAF_MAX - at);
            move_records(right, 0, leaf, LEAF_MAX - give, give);
            put_record(leaf, at, r);
        }
        copy_smallest(parent, i + 1);
    } else if (left != NULL && has_room(left) && at > 0) {
        unsigned give = KV_MIN((LEAF_MAX - left->count + 1u) / 2, at);
        give = KV_MIN(give, LEAF_MAX - 1u);
        move_records(left, left->count, leaf, 0, give);
        put_record(leaf, at - give, r);
        copy_smallest(parent, i);
    } else {
        return false;
    }
    if (at == 0)
        update_smallest(p, level);
    return true;
}

/* Takes the nodes that splitting along the path needs. */
static bool take_spares(const struct kv_time_index *x, const struct path *p,
                        struct kv_time_index_node **spare)
{
    unsigned needed = 0;
    unsigned level = x->height;
    while (level > 0 && !has_room(p->node[level - 1])) {
        needed++;
        level--;
    }
    if (level == 0)
        needed++; /* a new root */
    KV_ASSERT(x->height + (level == 0) <= HEIGHT_MAX);
    for (unsigned i = 0; i < needed; i++) {
        spare[i] = take_node(x);
        if (spare[i] == NULL) {
            while (i-- > 0)
                kv_mem_free(spare[i], NODE_BYTES, (enum kv_mem_owner)x->owner);
            return false;
        }
    }
    return true;
}

/* Splits a full node before something is put at `at`; *at and the returned node tell where it goes
 * then: the node itself or `fresh`, which becomes its right neighbour. */
static struct kv_time_index_node *split_node(struct kv_time_index *x, struct kv_time_index_node *n,
                                             struct kv_time_index_node *fresh, unsigned *at)
{
    KV_DASSERT(!has_room(n));
    start_node(x, fresh, n->is_leaf);
    unsigned keep = *at == n->count ? n->count : n->count / 2u;
    move_records(fresh, 0, n, keep, n->count - keep);
    if (*at < keep || (*at == keep && fresh->count != 0))
        return n;
    *at -= keep;
    return fresh;
}

static void grow_root(struct kv_time_index *x, struct kv_time_index_node *fresh,
                      struct kv_time_index_node *right)
{
    struct kv_time_index_node *old = x->root;
    start_node(x, fresh, false);
    fresh->count = 2;
    fresh->inner.child[0] = old;
    fresh->inner.child[1] = right;
    copy_smallest(fresh, 0);
    copy_smallest(fresh, 1);
    x->root = fresh;
    x->height++;
}

/* Puts the record into the full leaf of the path, splitting upwards with the spare nodes. */
static void insert_by_splitting(struct kv_time_index *x, struct path *p, struct record r,
                                struct kv_time_index_node **spare)
{
    unsigned level = x->height - 1;
    unsigned at = p->index[level];
    struct kv_time_index_node *right = *spare++;
    bool new_smallest = at == 0;
    struct kv_time_index_node *leaf = split_node(x, p->node[level], right, &at);
    put_record(leaf, at, r);
    if (new_smallest)
        update_smallest(p, level);
    while (right != NULL) {
        if (level == 0) {
            grow_root(x, *spare, right);
            return;
        }
        level--;
        struct kv_time_index_node *n = p->node[level];
        struct kv_time_index_node *fresh = NULL;
        at = p->index[level] + 1;
        KV_DASSERT(at > 0);
        if (!has_room(n)) {
            fresh = *spare++;
            n = split_node(x, n, fresh, &at);
        }
        put_record(n, at, record_at(right, 0));
        n->inner.child[at] = right;
        right = fresh;
    }
}

/* *leaf becomes the leaf that took the record, or NULL when records or nodes moved for it. */
static enum kv_err insert_record(struct kv_time_index *x, struct record r,
                                 struct kv_time_index_node **leaf)
{
    struct kv_time_index_node *spare[HEIGHT_MAX + 1] = {NULL};
    struct path p;
    descend(x, r, &p);
    unsigned level = x->height - 1;
    *leaf = NULL;
    if (KV_LIKELY(has_room(p.node[level]))) {
        *leaf = p.node[level];
        put_record(p.node[level], p.index[level], r);
        if (p.index[level] == 0)
            update_smallest(&p, level);
    } else if (!insert_by_sharing(x, &p, r)) {
        if (!take_spares(x, &p, spare))
            return KV_ERR_NOMEM;
        insert_by_splitting(x, &p, r, spare);
    }
    x->count++;
    x->when_sum += r.high >> HIGH_BITS;
    update_first_when(x);
    return KV_OK;
}

enum kv_err kv_time_index_insert(struct kv_time_index *x, uint64_t when, uint64_t position)
{
    struct record r = make_record(when, position);
    struct kv_time_index_node *leaf = NULL;
    if (KV_LIKELY(x->root != NULL))
        return insert_record(x, r, &leaf);
    x->root = take_node(x);
    if (x->root == NULL)
        return KV_ERR_NOMEM;
    start_node(x, x->root, true);
    x->height = 1;
    put_record(x->root, 0, r);
    x->count = 1;
    x->when_sum = when;
    update_first_when(x);
    return KV_OK;
}

/* --- removing --- */

/* The child at i of the parent has become small: joins it with a neighbour when both fit one node
 * with room to spare, or takes it out when it is empty. True when the parent lost a child. */
static bool join_child(struct kv_time_index *x, struct kv_time_index_node *parent, unsigned i)
{
    struct kv_time_index_node *n = parent->inner.child[i];
    unsigned fits = max_count(n) * 6 / 7;
    for (unsigned side = 0; side < 2 && n->count != 0; side++) {
        if (side == 0 ? i + 1 >= parent->count : i == 0)
            continue;
        unsigned left_index = side == 0 ? i : i - 1;
        struct kv_time_index_node *left = parent->inner.child[left_index];
        struct kv_time_index_node *right = parent->inner.child[left_index + 1];
        if (left->count + right->count > fits)
            continue;
        move_records(left, left->count, right, 0, right->count);
        close_gap(parent, left_index + 1, 1);
        free_node(x, right);
        return true;
    }
    if (n->count != 0)
        return false;
    close_gap(parent, i, 1);
    free_node(x, n);
    return true;
}

/* Repairs the tree after the leaf of the path lost a record. */
static void shrink_path(struct kv_time_index *x, struct path *p)
{
    unsigned level = x->height - 1;
    while (level > 0) {
        struct kv_time_index_node *n = p->node[level];
        struct kv_time_index_node *parent = p->node[level - 1];
        unsigned i = p->index[level - 1];
        if (n->count > max_count(n) * 3 / 5)
            break;
        if (!join_child(x, parent, i))
            break;
        if (i == 0 && parent->count != 0)
            update_smallest(p, level - 1);
        level--;
    }
    while (x->root->count == 1 && !x->root->is_leaf) {
        struct kv_time_index_node *only = x->root->inner.child[0];
        free_node(x, x->root);
        x->root = only;
        x->height--;
    }
    if (x->root->count == 0) {
        KV_ASSERT(x->count == 0);
        free_node(x, x->root);
        x->root = NULL;
        x->height = 0;
    }
}

/* Finds the record, which must be there: index of the leaf becomes its place. */
static void find_record(const struct kv_time_index *x, struct record r, struct path *p)
{
    KV_ASSERT(x->root != NULL);
    descend(x, r, p);
    unsigned level = x->height - 1;
    KV_ASSERT(p->index[level] > 0);
    p->index[level]--;
    KV_ASSERT(record_equal(record_at(p->node[level], p->index[level]), r));
}

/* Removes the record to which the path leads. */
static void remove_at(struct kv_time_index *x, struct path *p)
{
    unsigned level = x->height - 1;
    struct kv_time_index_node *leaf = p->node[level];
    x->count--;
    x->when_sum -= record_at(leaf, p->index[level]).high >> HIGH_BITS;
    close_gap(leaf, p->index[level], 1);
    if (p->index[level] == 0 && leaf->count != 0)
        update_smallest(p, level);
    if (leaf->count <= LEAF_MAX * 3 / 5)
        shrink_path(x, p);
    update_first_when(x);
}

void kv_time_index_remove(struct kv_time_index *x, uint64_t when, uint64_t position)
{
    struct path p;
    find_record(x, make_record(when, position), &p);
    remove_at(x, &p);
}

/* Exchanges the path's record for one that stays between its neighbours in the same leaf. */
static bool move_in_leaf(struct kv_time_index *x, struct path *p, struct record new)
{
    unsigned level = x->height - 1;
    struct kv_time_index_node *leaf = p->node[level];
    unsigned at = p->index[level];
    unsigned bound = upper_bound(leaf, new);
    bool last_leaf = true;
    for (unsigned i = 0; i < level; i++)
        last_leaf = last_leaf && p->index[i] + 1u == p->node[i]->count;
    if (bound == 0 || (bound == leaf->count && !last_leaf))
        return false; /* it may belong to a neighbour */
    x->when_sum -= record_at(leaf, at).high >> HIGH_BITS;
    x->when_sum += new.high >> HIGH_BITS;
    close_gap(leaf, at, 1);
    unsigned to = bound > at ? bound - 1 : bound;
    put_record(leaf, to, new);
    if (at == 0 || to == 0)
        update_smallest(p, level);
    update_first_when(x);
    return true;
}

enum kv_err kv_time_index_move(struct kv_time_index *x, uint64_t old_when, uint64_t new_when,
                               uint64_t position)
{
    struct record old = make_record(old_when, position);
    struct record new = make_record(new_when, position);
    struct kv_time_index_node *leaf = NULL;
    struct path p;
    find_record(x, old, &p);
    if (old_when == new_when || move_in_leaf(x, &p, new))
        return KV_OK;
    enum kv_err err = insert_record(x, new, &leaf);
    if (err != KV_OK)
        return err;
    /* The path still leads to the old record unless the insertion moved something. */
    if (leaf == NULL || leaf == p.node[x->height - 1])
        find_record(x, old, &p);
    remove_at(x, &p);
    return KV_OK;
}

/* --- moving blocks --- */

/* Inner nodes are asked about on the way to each of their leaves: a node that has moved does not
 * want to move again, and asking is cheap. Only leaves count as kept, lest nodes count twice. */
static void move_path(struct kv_time_index *x, struct path *p, struct kv_moves *m)
{
    struct kv_moves inner = {0};
    for (unsigned level = 0; level < x->height; level++) {
        struct kv_time_index_node *n = p->node[level];
        bool is_leaf = level + 1 == x->height;
        KV_DASSERT(n->is_leaf == is_leaf);
        n = kv_move_block(n, NODE_BYTES, (enum kv_mem_owner)x->owner, is_leaf ? m : &inner);
        if (level == 0)
            x->root = n;
        else
            p->node[level - 1]->inner.child[p->index[level - 1]] = n;
        p->node[level] = n;
    }
    m->moved += inner.moved;
    m->bytes += inner.bytes;
}

bool kv_time_index_move_nodes(struct kv_time_index *x, uint64_t *when, uint64_t *position,
                              struct kv_moves *m)
{
    if (x->root == NULL)
        return false;
    struct path p;
    descend(x, make_record(*when, *position), &p);
    move_path(x, &p, m);
    for (unsigned level = x->height - 1; level-- > 0;) {
        unsigned next = p.index[level] + 1;
        if (next == p.node[level]->count)
            continue;
        read_record(record_at(p.node[level], next), when, position);
        return true;
    }
    return false;
}

/* --- reading --- */

bool kv_time_index_first(const struct kv_time_index *x, uint64_t *when, uint64_t *position)
{
    if (x->root == NULL)
        return false;
    read_record(record_at(x->root, 0), when, position);
    return true;
}

/* Going down by an index below what a node may hold, and starting anew when there is no such child,
 * makes all records equally likely: the fuller of two nodes is not preferred. The root is the same
 * for all and may be thin. */
bool kv_time_index_random(const struct kv_time_index *x, struct kv_random *r, uint64_t *when,
                          uint64_t *position)
{
    struct kv_time_index_node *n = x->root;
    if (n == NULL)
        return false;
    for (int i = 0;; i++) {
        bool even = i < RANDOM_TRIES && n != x->root;
        unsigned at = (unsigned)kv_random_below(r, even ? max_count(n) : n->count);
        if (at >= n->count) {
            n = x->root;
            continue;
        }
        if (n->is_leaf) {
            struct record found = record_at(n, at);
            *when = found.high >> HIGH_BITS;
            *position = (found.high & ((1u << HIGH_BITS) - 1)) << LOW_BITS | found.low;
            return true;
        }
        n = n->inner.child[at];
    }
}

size_t kv_time_index_memory(const struct kv_time_index *x)
{
    return (size_t)x->node_count * kv_mem_block_size(NODE_BYTES);
}

struct check {
    uint64_t records, nodes;
    unsigned __int128 when_sum;
    struct record last;
};

static void check_tree(struct kv_time_index_node *n, uint32_t height, struct check *c)
{
    KV_ASSERT(height >= 1);
    KV_ASSERT(n->is_leaf == (height == 1));
    KV_ASSERT(n->count >= 1 && n->count <= max_count(n));
    c->nodes++;
    for (unsigned i = 0; i < n->count; i++) {
        struct record r = record_at(n, i);
        KV_ASSERT(!record_less(r, c->last));
        if (!n->is_leaf) {
            KV_ASSERT(record_equal(r, record_at(n->inner.child[i], 0)));
            check_tree(n->inner.child[i], height - 1, c);
            continue;
        }
        c->last = r;
        c->records++;
        c->when_sum += r.high >> HIGH_BITS;
    }
}

void kv_time_index_check(const struct kv_time_index *x)
{
    struct check c = {0};
    if (x->root == NULL) {
        KV_ASSERT(x->count == 0 && x->height == 0);
        KV_ASSERT(x->first_when == UINT64_MAX);
    } else {
        check_tree(x->root, x->height, &c);
        KV_ASSERT(x->root->is_leaf || x->root->count >= 2);
        KV_ASSERT(x->first_when == record_at(x->root, 0).high >> HIGH_BITS);
    }
    KV_ASSERT(c.records == x->count);
    KV_ASSERT(c.nodes == x->node_count);
    KV_ASSERT(c.when_sum == x->when_sum);
}
