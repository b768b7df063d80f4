/* Records in order: a counted B+-tree of 1,024-byte nodes.
 *
 * Layout. A leaf holds 72 records of 14 bytes: the scores, and the items' addresses in 32 and 16
 * bits, each in an array of its own. An inner node holds 31 children, with the smallest record
 * below each of them and the number of records there. Scores come first in both, so that a search
 * touches nothing else as long as they differ.
 *
 * Invariants
 *   - records of a node are in ascending order
 *   - record i of an inner node is exactly the smallest in child i, total i its number of records
 *   - all leaves have the same depth; no node is empty; the root has two children or is a leaf
 *
 * Insertion. A full leaf first gives half of what a neighbour under the same parent lacks. Else it
 * splits: at its end when the new record comes last, in the middle otherwise. Inner nodes split
 * only. All nodes that an insertion may need are taken before anything changes.
 *
 * Removal. A node at most 3/5 full joins a neighbour when both fill at most 6/7 of one; a node that
 * becomes empty goes. Nothing is allocated, so removal cannot fail.
 *
 * Rejected: scores in the items alone (each step of a search is then a miss); separators that are
 * no records any more (they would point to freed items where scores are equal); leaf links (a
 * cursor that keeps its way needs none); larger inner nodes (one level less for a million records,
 * but a set of 200 pays for it).
 *
 * Threads: the caller serialises.
 */
#include "ds/order.h"

#define NODE_BYTES 1024
#define LEAF_MAX 72
#define INNER_MAX 31
#define ADDRESS_LOW_BITS 32

struct kv_order_node {
    uint16_t count; /* records, or children */
    uint8_t is_leaf;
    uint8_t unused[5];
    union {
        struct {
            double score[LEAF_MAX];
            uint32_t low[LEAF_MAX]; /* addresses of the items, bits 0 to 31 and 32 to 47 */
            uint16_t high[LEAF_MAX];
        } leaf;
        struct {
            double score[INNER_MAX]; /* smallest record below each child */
            void *item[INNER_MAX];
            struct kv_order_node *child[INNER_MAX];
            uint64_t total[INNER_MAX]; /* records below each child */
        } inner;
        struct kv_order_node *next_spare;
    };
};
static_assert(sizeof(struct kv_order_node) <= NODE_BYTES, "a node fits its block");
static_assert(offsetof(struct kv_order_node, leaf.score) ==
                  offsetof(struct kv_order_node, inner.score),
              "scores are found without knowing the kind of node");

/* --- records --- */

static const double *scores(const struct kv_order_node *n)
{
    return n->leaf.score;
}

static void *item_at(const struct kv_order_node *n, unsigned i)
{
    KV_DASSERT(i < n->count);
    if (!n->is_leaf)
        return n->inner.item[i];
    return (void *)((uintptr_t)n->leaf.high[i] << ADDRESS_LOW_BITS | n->leaf.low[i]);
}

static void set_item(struct kv_order_node *n, unsigned i, void *item)
{
    uintptr_t address = (uintptr_t)item;
    KV_DASSERT(address >> 48 == 0 && address % 8 == 0);
    if (!n->is_leaf) {
        n->inner.item[i] = item;
        return;
    }
    n->leaf.low[i] = (uint32_t)address;
    n->leaf.high[i] = (uint16_t)(address >> ADDRESS_LOW_BITS);
}

static unsigned max_count(const struct kv_order_node *n)
{
    return n->is_leaf ? LEAF_MAX : INNER_MAX;
}

static bool has_room(const struct kv_order_node *n)
{
    return n->count < max_count(n);
}

/* How many of `count` ascending scores are below one. The halving has no branch on what is
 * compared: which way it goes is not predictable. */
static unsigned scores_below(const double *score, unsigned count, double than)
{
    const double *from = score;
    for (unsigned len = count; len > 1;) {
        unsigned half = len / 2;
        from += half & -(size_t)(from[half - 1] < than);
        len -= half;
    }
    return (unsigned)(from - score) + (*from < than);
}

/* Among the records from `first` on that have the place's score, the first not before it. */
static unsigned skip_equals(const struct kv_order_node *n, const struct kv_order_place *p,
                            unsigned first)
{
    const double *score = scores(n);
    unsigned end = first;
    while (end < n->count && score[end] == p->score)
        end++;
    while (first < end) {
        unsigned middle = first + (end - first) / 2;
        if (p->before(item_at(n, middle), p->arg))
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

/* How many records of the node lie before the place. */
static unsigned records_before(const struct kv_order_node *n, const struct kv_order_place *p)
{
    const double *score = scores(n);
    KV_DASSERT(n->count > 0);
    /* Appending is well predicted. */
    if (score[n->count - 1] < p->score)
        return n->count;
    unsigned i = scores_below(score, n->count, p->score);
    if (p->before != NULL && score[i] == p->score)
        return skip_equals(n, p, i);
    return i;
}

/* --- nodes --- */

static struct kv_order_node *take_node(struct kv_order *o)
{
    struct kv_order_node *n = o->spare;
    if (n == NULL)
        return kv_mem_try_alloc(NODE_BYTES, (enum kv_mem_owner)o->owner);
    o->spare = n->next_spare;
    o->spare_count--;
    return n;
}

static void give_spare(struct kv_order *o, struct kv_order_node *n)
{
    n->next_spare = o->spare;
    o->spare = n;
    o->spare_count++;
}

static void free_node(struct kv_order *o, struct kv_order_node *n)
{
    KV_ASSERT(o->node_count > 0);
    o->node_count--;
    kv_mem_free_movable(n, NODE_BYTES, (enum kv_mem_owner)o->owner);
}

static void start_node(struct kv_order *o, struct kv_order_node *n, bool is_leaf)
{
    n->count = 0;
    n->is_leaf = is_leaf;
    memset(n->unused, 0, sizeof(n->unused));
    o->node_count++;
}

/* Copies `len` records between nodes or within one; counts stay. */
static void copy_records(struct kv_order_node *to, unsigned to_at, const struct kv_order_node *from,
                         unsigned from_at, unsigned len)
{
    KV_DASSERT(to->is_leaf == from->is_leaf);
    if (from->is_leaf) {
        memmove(&to->leaf.score[to_at], &from->leaf.score[from_at], len * sizeof(double));
        memmove(&to->leaf.low[to_at], &from->leaf.low[from_at], len * sizeof(uint32_t));
        memmove(&to->leaf.high[to_at], &from->leaf.high[from_at], len * sizeof(uint16_t));
        return;
    }
    memmove(&to->inner.score[to_at], &from->inner.score[from_at], len * sizeof(double));
    memmove(&to->inner.item[to_at], &from->inner.item[from_at], len * sizeof(void *));
    memmove(&to->inner.child[to_at], &from->inner.child[from_at], len * sizeof(void *));
    memmove(&to->inner.total[to_at], &from->inner.total[from_at], len * sizeof(uint64_t));
}

/* Opens `len` places at `at`; the caller fills them. */
static void open_gap(struct kv_order_node *n, unsigned at, unsigned len)
{
    KV_DASSERT(at <= n->count);
    KV_ASSERT(n->count + len <= max_count(n));
    copy_records(n, at + len, n, at, n->count - at);
    n->count = (uint16_t)(n->count + len);
}

static void close_gap(struct kv_order_node *n, unsigned at, unsigned len)
{
    KV_ASSERT(at + len <= n->count);
    copy_records(n, at, n, at + len, n->count - at - len);
    n->count = (uint16_t)(n->count - len);
}

/* Moves `len` records from `from` at from_at into an opened gap of `to` at to_at. */
static void move_records(struct kv_order_node *to, unsigned to_at, struct kv_order_node *from,
                         unsigned from_at, unsigned len)
{
    open_gap(to, to_at, len);
    copy_records(to, to_at, from, from_at, len);
    close_gap(from, from_at, len);
}

static void put_record(struct kv_order_node *n, unsigned at, double score, void *item)
{
    open_gap(n, at, 1);
    n->leaf.score[at] = score;
    set_item(n, at, item);
}

static uint64_t total_of(const struct kv_order_node *n)
{
    if (n->is_leaf)
        return n->count;
    uint64_t total = 0;
    for (unsigned i = 0; i < n->count; i++)
        total += n->inner.total[i];
    return total;
}

/* What an inner node says of child i: its smallest record and how many there are. */
static void copy_smallest(struct kv_order_node *parent, unsigned i)
{
    const struct kv_order_node *child = parent->inner.child[i];
    parent->inner.score[i] = scores(child)[0];
    parent->inner.item[i] = item_at(child, 0);
}

static void describe_child(struct kv_order_node *parent, unsigned i)
{
    copy_smallest(parent, i);
    parent->inner.total[i] = total_of(parent->inner.child[i]);
}

/* --- ways down --- */

/* All lines of the scores at once, since the search jumps among them. */
static void prefetch_node(const struct kv_order_node *n, bool is_leaf)
{
    unsigned lines = is_leaf ? 10 : 4;
    for (unsigned line = 0; line < lines; line++)
        KV_PREFETCH((const char *)n + line * KV_CACHE_LINE);
}

/* To the leaf where a record of the place belongs; there the index may be the leaf's count. */
static void descend(const struct kv_order *o, const struct kv_order_place *p,
                    struct kv_order_cursor *c)
{
    struct kv_order_node *n = o->root;
    KV_ASSERT(o->height >= 1 && o->height <= KV_ORDER_HEIGHT_MAX);
    c->height = o->height;
    for (unsigned level = 0;; level++) {
        unsigned bound = records_before(n, p);
        c->step[level].node = n;
        if (n->is_leaf) {
            KV_DASSERT(level + 1 == o->height);
            c->step[level].index = bound;
            return;
        }
        c->step[level].index = bound == 0 ? 0 : bound - 1;
        n = n->inner.child[c->step[level].index];
        prefetch_node(n, level + 2 == o->height);
    }
}

/* From a level on down along the first or the last children. */
static void descend_edge(struct kv_order_cursor *c, unsigned level, bool last)
{
    for (; level + 1 < c->height; level++) {
        struct kv_order_node *n = c->step[level].node->inner.child[c->step[level].index];
        c->step[level + 1].node = n;
        c->step[level + 1].index = last ? n->count - 1u : 0;
    }
}

static bool next_leaf(struct kv_order_cursor *c)
{
    for (unsigned level = c->height - 1; level-- > 0;) {
        if (c->step[level].index + 1 < c->step[level].node->count) {
            c->step[level].index++;
            descend_edge(c, level, false);
            return true;
        }
    }
    return false;
}

/* The first record of the node at `level` changed: tells the nodes above. */
static void update_smallest(struct kv_order_cursor *c, unsigned level)
{
    while (level-- > 0) {
        copy_smallest(c->step[level].node, c->step[level].index);
        if (c->step[level].index != 0)
            return;
    }
}

static void add_totals(struct kv_order_cursor *c, unsigned levels, int64_t more)
{
    for (unsigned level = 0; level < levels; level++)
        c->step[level].node->inner.total[c->step[level].index] += (uint64_t)more;
}

/* --- life --- */

void kv_order_init(struct kv_order *o, enum kv_mem_owner owner)
{
    *o = (struct kv_order){.owner = (uint16_t)owner};
}

static void free_tree(struct kv_order *o, struct kv_order_node *n)
{
    if (!n->is_leaf) {
        for (unsigned i = 0; i < n->count; i++)
            free_tree(o, n->inner.child[i]);
    }
    free_node(o, n);
}

void kv_order_release(struct kv_order *o)
{
    if (o->root != NULL)
        free_tree(o, o->root);
    kv_order_unreserve(o);
    KV_ASSERT(o->node_count == 0);
    kv_order_init(o, (enum kv_mem_owner)o->owner);
}

/* An insertion splits at most one node of each level. A node that is full now may split at its end
 * and once more in the middle; what comes of that has room for many. */
enum kv_err kv_order_reserve(struct kv_order *o, uint64_t insertions)
{
    uint64_t splits = KV_MIN(insertions * o->height, 2 * (uint64_t)o->node_count + insertions / 4);
    uint64_t needed = splits + o->height + 2u;
    while (o->spare_count < needed) {
        struct kv_order_node *n = kv_mem_try_alloc(NODE_BYTES, (enum kv_mem_owner)o->owner);
        if (n == NULL) {
            kv_order_unreserve(o);
            return KV_ERR_NOMEM;
        }
        give_spare(o, n);
    }
    return KV_OK;
}

void kv_order_unreserve(struct kv_order *o)
{
    while (o->spare != NULL)
        kv_mem_free(take_node(o), NODE_BYTES, (enum kv_mem_owner)o->owner);
    KV_ASSERT(o->spare_count == 0);
}

/* --- inserting --- */

/* The full leaf of the way gives records to a neighbour with room, and the new record goes where it
 * belongs. False: no neighbour under the same parent has room. */
static bool insert_by_sharing(struct kv_order *o, struct kv_order_cursor *c, double score,
                              void *item)
{
    unsigned level = o->height - 1u;
    if (level == 0)
        return false;
    struct kv_order_node *leaf = c->step[level].node;
    struct kv_order_node *parent = c->step[level - 1].node;
    unsigned i = c->step[level - 1].index, at = c->step[level].index;
    struct kv_order_node *right = i + 1 < parent->count ? parent->inner.child[i + 1] : NULL;
    struct kv_order_node *left = i > 0 ? parent->inner.child[i - 1] : NULL;
    if (right != NULL && has_room(right)) {
        unsigned give = (LEAF_MAX - right->count + 1u) / 2;
        if (at == LEAF_MAX) { /* the new record alone is enough: appending keeps leaves full */
            put_record(right, 0, score, item);
        } else {
            give = KV_MIN(give, LEAF_MAX - at);
            move_records(right, 0, leaf, LEAF_MAX - give, give);
            put_record(leaf, at, score, item);
        }
        describe_child(parent, i + 1);
    } else if (left != NULL && has_room(left) && at > 0) {
        unsigned give = KV_MIN((LEAF_MAX - left->count + 1u) / 2, at);
        give = KV_MIN(give, LEAF_MAX - 1u);
        move_records(left, left->count, leaf, 0, give);
        put_record(leaf, at - give, score, item);
        describe_child(parent, i - 1);
    } else {
        return false;
    }
    describe_child(parent, i);
    add_totals(c, level - 1, 1);
    if (at == 0 && i == 0)
        update_smallest(c, level - 1);
    return true;
}

/* Takes the nodes that splitting along the way needs. */
static bool take_spares(struct kv_order *o, const struct kv_order_cursor *c,
                        struct kv_order_node **spare)
{
    unsigned needed = 0, level = o->height;
    while (level > 0 && !has_room(c->step[level - 1].node)) {
        needed++;
        level--;
    }
    if (level == 0)
        needed++; /* a new root */
    KV_ASSERT(o->height + (level == 0) <= KV_ORDER_HEIGHT_MAX);
    for (unsigned i = 0; i < needed; i++) {
        spare[i] = take_node(o);
        if (spare[i] == NULL) {
            while (i-- > 0)
                kv_mem_free(spare[i], NODE_BYTES, (enum kv_mem_owner)o->owner);
            return false;
        }
    }
    return true;
}

/* Splits a full node before something is put at `at`; *at and the returned node tell where it goes
 * then: the node itself or `fresh`, which becomes its right neighbour. */
static struct kv_order_node *split_node(struct kv_order *o, struct kv_order_node *n,
                                        struct kv_order_node *fresh, unsigned *at)
{
    KV_DASSERT(!has_room(n));
    start_node(o, fresh, n->is_leaf);
    unsigned keep = *at == n->count ? n->count : n->count / 2u;
    move_records(fresh, 0, n, keep, n->count - keep);
    if (*at < keep || (*at == keep && fresh->count != 0))
        return n;
    *at -= keep;
    return fresh;
}

static void grow_root(struct kv_order *o, struct kv_order_node *fresh, struct kv_order_node *right)
{
    struct kv_order_node *old = o->root;
    start_node(o, fresh, false);
    fresh->count = 2;
    fresh->inner.child[0] = old;
    fresh->inner.child[1] = right;
    describe_child(fresh, 0);
    describe_child(fresh, 1);
    o->root = fresh;
    o->height++;
}

/* Puts the record into the full leaf of the way, splitting upwards with the spare nodes. Below the
 * last split node all descriptions are made anew; above it one record is added. */
static void insert_by_splitting(struct kv_order *o, struct kv_order_cursor *c, double score,
                                void *item, struct kv_order_node **spare)
{
    unsigned level = o->height - 1u;
    unsigned at = c->step[level].index;
    struct kv_order_node *right = *spare++;
    bool new_smallest = at == 0;
    struct kv_order_node *leaf = split_node(o, c->step[level].node, right, &at);
    put_record(leaf, at, score, item);
    while (right != NULL) {
        if (level == 0) {
            grow_root(o, *spare, right);
            return;
        }
        level--;
        struct kv_order_node *n = c->step[level].node;
        struct kv_order_node *fresh = NULL;
        describe_child(n, c->step[level].index);
        at = c->step[level].index + 1;
        if (!has_room(n)) {
            fresh = *spare++;
            n = split_node(o, n, fresh, &at);
        }
        open_gap(n, at, 1);
        n->inner.child[at] = right;
        describe_child(n, at);
        right = fresh;
    }
    add_totals(c, level, 1);
    if (new_smallest)
        update_smallest(c, level);
}

static enum kv_err insert_first(struct kv_order *o, double score, void *item)
{
    struct kv_order_node *n = take_node(o);
    if (n == NULL)
        return KV_ERR_NOMEM;
    start_node(o, n, true);
    put_record(n, 0, score, item);
    o->root = n;
    o->height = 1;
    o->count = 1;
    return KV_OK;
}

/* At the end of a way down to a leaf. */
static enum kv_err insert_at(struct kv_order *o, struct kv_order_cursor *c, double score,
                             void *item)
{
    unsigned level = o->height - 1u;
    unsigned at = c->step[level].index;
    if (KV_LIKELY(has_room(c->step[level].node))) {
        put_record(c->step[level].node, at, score, item);
        add_totals(c, level, 1);
        if (at == 0)
            update_smallest(c, level);
    } else if (!insert_by_sharing(o, c, score, item)) {
        struct kv_order_node *spare[KV_ORDER_HEIGHT_MAX + 1] = {NULL};
        if (!take_spares(o, c, spare))
            return KV_ERR_NOMEM;
        insert_by_splitting(o, c, score, item, spare);
    }
    o->count++;
    return KV_OK;
}

enum kv_err kv_order_insert(struct kv_order *o, const struct kv_order_place *p, void *item)
{
    struct kv_order_cursor c;
    if (KV_UNLIKELY(o->root == NULL))
        return insert_first(o, p->score, item);
    descend(o, p, &c);
    return insert_at(o, &c, p->score, item);
}

enum kv_err kv_order_append(struct kv_order *o, double score, void *item)
{
    struct kv_order_cursor c;
    if (KV_UNLIKELY(o->root == NULL))
        return insert_first(o, score, item);
    c.height = o->height;
    c.step[0].node = o->root;
    c.step[0].index = o->root->count - 1u;
    descend_edge(&c, 0, true);
    c.step[c.height - 1].index++;
    return insert_at(o, &c, score, item);
}

/* --- removing --- */

/* Joins child i of a node with a neighbour when both fit one node well. */
static bool join_child(struct kv_order *o, struct kv_order_node *parent, unsigned i)
{
    struct kv_order_node *n = parent->inner.child[i];
    unsigned room = max_count(n) * 6u / 7;
    unsigned left = i;
    if (i + 1 < parent->count && parent->inner.child[i + 1]->count + n->count <= room)
        left = i;
    else if (i > 0 && parent->inner.child[i - 1]->count + n->count <= room)
        left = i - 1;
    else
        return false;
    struct kv_order_node *to = parent->inner.child[left];
    struct kv_order_node *from = parent->inner.child[left + 1];
    move_records(to, to->count, from, 0, from->count);
    parent->inner.total[left] += parent->inner.total[left + 1];
    close_gap(parent, left + 1, 1);
    free_node(o, from);
    return true;
}

/* From the leaf upwards: empty nodes go, thin ones join a neighbour, a root with one child goes. */
static void shrink(struct kv_order *o, struct kv_order_cursor *c)
{
    for (unsigned level = o->height - 1u; level > 0; level--) {
        struct kv_order_node *n = c->step[level].node, *parent = c->step[level - 1].node;
        if (n->count == 0) {
            unsigned i = c->step[level - 1].index;
            close_gap(parent, i, 1);
            free_node(o, n);
            if (i == 0 && parent->count != 0)
                update_smallest(c, level - 1);
        } else if (n->count > max_count(n) * 3u / 5 ||
                   !join_child(o, parent, c->step[level - 1].index)) {
            break;
        }
    }
    while (!o->root->is_leaf && o->root->count == 1) {
        struct kv_order_node *only = o->root->inner.child[0];
        free_node(o, o->root);
        o->root = only;
        o->height--;
    }
    if (o->root->count == 0) {
        KV_ASSERT(o->count == 0 && o->root->is_leaf);
        free_node(o, o->root);
        o->root = NULL;
        o->height = 0;
    }
}

static void remove_at(struct kv_order *o, struct kv_order_cursor *c)
{
    unsigned level = o->height - 1u;
    struct kv_order_node *leaf = c->step[level].node;
    unsigned at = c->step[level].index;
    KV_ASSERT(at < leaf->count);
    close_gap(leaf, at, 1);
    add_totals(c, level, -1);
    o->count--;
    if (at == 0 && leaf->count != 0)
        update_smallest(c, level);
    if (leaf->count <= LEAF_MAX * 3 / 5)
        shrink(o, c);
}

static void find(const struct kv_order *o, const struct kv_order_place *p, const void *item,
                 struct kv_order_cursor *c)
{
    bool found = kv_order_seek(o, p, c);
    KV_ASSERT(found);
    KV_ASSERT(kv_order_item(c) == item);
}

void kv_order_remove(struct kv_order *o, const struct kv_order_place *p, const void *item)
{
    struct kv_order_cursor c;
    find(o, p, item, &c);
    remove_at(o, &c);
}

/* Where both places lie in one leaf, not at an end of it that another leaf might claim, the records
 * between them make way. */
static bool change_in_leaf(struct kv_order_cursor *c, const struct kv_order_place *to, void *item)
{
    unsigned level = c->height - 1;
    struct kv_order_node *leaf = c->step[level].node;
    unsigned at = c->step[level].index;
    unsigned bound = records_before(leaf, to);
    bool whole = level == 0;
    if (!whole && (bound == 0 || bound == leaf->count))
        return false;
    unsigned end = bound > at ? bound - 1 : bound;
    if (end > at)
        copy_records(leaf, at, leaf, at + 1, end - at);
    else if (end < at)
        copy_records(leaf, end + 1, leaf, end, at - end);
    leaf->leaf.score[end] = to->score;
    set_item(leaf, end, item);
    if (at == 0 || end == 0)
        update_smallest(c, level);
    return true;
}

enum kv_err kv_order_change(struct kv_order *o, const struct kv_order_place *from,
                            const struct kv_order_place *to, void *item)
{
    struct kv_order_cursor c;
    find(o, from, item, &c);
    if (change_in_leaf(&c, to, item))
        return KV_OK;
    enum kv_err err = kv_order_insert(o, to, item);
    if (err != KV_OK)
        return err;
    find(o, from, item, &c);
    remove_at(o, &c);
    return KV_OK;
}

/* --- asking --- */

uint64_t kv_order_rank(const struct kv_order *o, const struct kv_order_place *p)
{
    const struct kv_order_node *n = o->root;
    uint64_t rank = 0;
    if (n == NULL)
        return 0;
    for (unsigned height = o->height; height > 1; height--) {
        unsigned bound = records_before(n, p);
        unsigned child = bound == 0 ? 0 : bound - 1;
        const struct kv_order_node *below = n->inner.child[child];
        prefetch_node(below, height == 2);
        for (unsigned i = 0; i < child; i++)
            rank += n->inner.total[i];
        n = below;
    }
    return rank + records_before(n, p);
}

bool kv_order_seek(const struct kv_order *o, const struct kv_order_place *p,
                   struct kv_order_cursor *c)
{
    if (o->root == NULL)
        return false;
    descend(o, p, c);
    return c->step[c->height - 1].index < c->step[c->height - 1].node->count || next_leaf(c);
}

bool kv_order_at(const struct kv_order *o, uint64_t rank, struct kv_order_cursor *c)
{
    struct kv_order_node *n = o->root;
    if (rank >= o->count)
        return false;
    c->height = o->height;
    for (unsigned level = 0;; level++) {
        c->step[level].node = n;
        if (n->is_leaf) {
            KV_DASSERT(rank < n->count);
            c->step[level].index = (unsigned)rank;
            return true;
        }
        unsigned i = 0;
        while (rank >= n->inner.total[i])
            rank -= n->inner.total[i++];
        KV_DASSERT(i < n->count);
        c->step[level].index = i;
        n = n->inner.child[i];
    }
}

bool kv_order_next(struct kv_order_cursor *c)
{
    unsigned level = c->height - 1;
    if (KV_LIKELY(++c->step[level].index < c->step[level].node->count))
        return true;
    return next_leaf(c);
}

bool kv_order_prev(struct kv_order_cursor *c)
{
    for (unsigned level = c->height; level-- > 0;) {
        if (c->step[level].index > 0) {
            c->step[level].index--;
            descend_edge(c, level, true);
            return true;
        }
    }
    return false;
}

void *kv_order_item(const struct kv_order_cursor *c)
{
    return item_at(c->step[c->height - 1].node, c->step[c->height - 1].index);
}

double kv_order_score(const struct kv_order_cursor *c)
{
    return scores(c->step[c->height - 1].node)[c->step[c->height - 1].index];
}

void kv_order_replace(struct kv_order_cursor *c, void *item)
{
    unsigned level = c->height - 1;
    set_item(c->step[level].node, c->step[level].index, item);
    if (c->step[level].index == 0)
        update_smallest(c, level);
}

/* --- moving blocks, checking --- */

static struct kv_order_node *move_tree(struct kv_order *o, struct kv_order_node *n,
                                       struct kv_moves *m)
{
    if (!n->is_leaf) {
        for (unsigned i = 0; i < n->count; i++)
            n->inner.child[i] = move_tree(o, n->inner.child[i], m);
    }
    return kv_move_block(n, NODE_BYTES, (enum kv_mem_owner)o->owner, m);
}

void kv_order_move_nodes(struct kv_order *o, struct kv_moves *m)
{
    if (o->root != NULL)
        o->root = move_tree(o, o->root, m);
}

size_t kv_order_memory(const struct kv_order *o)
{
    KV_DASSERT(o->spare_count == 0);
    return (size_t)o->node_count * kv_mem_block_size(NODE_BYTES);
}

struct check {
    bool (*less)(const void *a, const void *b);
    uint64_t records, nodes;
    double last_score;
    const void *last_item; /* NULL before the first */
};

static void check_record(double score, const void *item, struct check *c)
{
    KV_ASSERT(score == score && item != NULL);
    if (c->last_item != NULL) {
        KV_ASSERT(score >= c->last_score);
        if (score == c->last_score && c->less != NULL)
            KV_ASSERT(c->less(c->last_item, item));
    }
    c->last_score = score;
    c->last_item = item;
    c->records++;
}

static void check_tree(const struct kv_order_node *n, uint32_t height, struct check *c)
{
    KV_ASSERT(height >= 1);
    KV_ASSERT(n->is_leaf == (height == 1));
    KV_ASSERT(n->count >= 1 && n->count <= max_count(n));
    c->nodes++;
    for (unsigned i = 0; i < n->count; i++) {
        if (n->is_leaf) {
            check_record(scores(n)[i], item_at(n, i), c);
            continue;
        }
        const struct kv_order_node *child = n->inner.child[i];
        uint64_t before = c->records;
        KV_ASSERT(scores(n)[i] == scores(child)[0]);
        KV_ASSERT(item_at(n, i) == item_at(child, 0));
        check_tree(child, height - 1, c);
        KV_ASSERT(n->inner.total[i] == c->records - before);
    }
}

void kv_order_check(const struct kv_order *o, bool (*less)(const void *a, const void *b))
{
    struct check c = {.less = less};
    KV_ASSERT(o->spare_count == 0 && o->spare == NULL);
    if (o->root == NULL) {
        KV_ASSERT(o->count == 0 && o->height == 0);
    } else {
        check_tree(o->root, o->height, &c);
        KV_ASSERT(o->root->is_leaf || o->root->count >= 2);
    }
    KV_ASSERT(c.records == o->count);
    KV_ASSERT(c.nodes == o->node_count);
}
