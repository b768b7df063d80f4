/* Saving large collections in slices: see sliced.h.
 *
 * What is left is told by a position that depends on nothing but the member itself, so that tables
 * and trees may grow, shrink and turn in any way between two slices:
 *   table   sets and hashes, by the position of the name's hash (kv_table_scan visits each item
 *           that stays exactly once)
 *   order   sorted sets, by score and name: files then have them in order, which loads faster
 *   nodes   lists, as a range of nodes from `first` to `last`. Nodes at the ends leave the range
 *           before they change; the others do not change without kv_sliced_finish.
 *
 * Invariants
 *   - A member whose name is not noted is as it was at the moment; it was given to the hook if and
 *     only if the walk has passed it. So whoever changes it gives it to the hook unless it is
 *     passed, and notes the name; from then on the member is nobody's concern, wherever it goes.
 *   - In a table a passed member stays passed, so its name need not be noted. In an order it does
 *     not: a new score may lie before the walk.
 *   - `left` counts down to 0; the file begins with the number of members.
 *
 * Rejected: an epoch in each element (it would have to be brought to one value again after a
 * snapshot that was given up); a copy of the table's buckets (8 bytes per member whether it changes
 * or not).
 *
 * Threads: as sliced.h.
 */
#include "store/sliced.h"
#include "base/clock.h"
#include "store/store_priv.h"
#include "value/zset.h"

#define STEP_ELEMENTS 8u /* of a table, between two looks at the clock */
#define STEP_MEMBERS 16u /* of an order */

/* A name in `noted`. */
struct name {
    uint32_t len;
    char bytes[];
};

KV_INLINE struct kv_sliced *of_guard(struct kv_guard *g)
{
    static_assert(offsetof(struct kv_sliced, guard) == 0, "a guard begins its record");
    return (struct kv_sliced *)(void *)g;
}

/* --- names --- */

static size_t name_size(const struct name *n)
{
    return sizeof(*n) + n->len;
}

static bool is_name(const void *item, const void *key)
{
    const struct name *n = item;
    return kv_slice_equal(kv_slice(n->bytes, n->len), *(const struct kv_slice *)key);
}

static uint64_t hash_of_name(const void *item, void *arg)
{
    const struct name *n = item;
    return kv_hash_bytes(arg, n->bytes, n->len);
}

static bool is_noted(const struct kv_sliced *s, struct kv_slice name, uint64_t hash)
{
    return s->noted.count != 0 && kv_table_find(&s->noted, hash, is_name, &name) != NULL;
}

/* The walk leaves the name out from now on. */
static void note(struct kv_view *v, struct kv_sliced *s, struct kv_slice name, uint64_t hash)
{
    size_t before = kv_table_memory(&s->noted);
    struct name *n =
        name.len <= UINT32_MAX ? kv_mem_try_alloc(sizeof(*n) + name.len, KV_MEM_SNAPSHOT) : NULL;
    if (n != NULL) {
        n->len = (uint32_t)name.len;
        if (name.len != 0)
            memcpy(n->bytes, name.ptr, name.len);
        if (kv_table_insert(&s->noted, hash, n) == KV_OK) {
            s->hooks->grown(v, s,
                            kv_mem_block_size(name_size(n)) + kv_table_memory(&s->noted) - before);
            return;
        }
        kv_mem_free(n, name_size(n), KV_MEM_SNAPSHOT);
    }
    s->broken = true;
    s->hooks->fail(v);
}

static void free_name(void *item, void *arg)
{
    struct name *n = item;
    (void)arg;
    kv_mem_free(n, name_size(n), KV_MEM_SNAPSHOT);
}

/* --- life --- */

static struct kv_guard **guard_slot(const struct kv_sliced *s)
{
    switch (s->encoding) {
    case KV_ENC_HASHTABLE:
        return &((struct kv_dict *)s->large)->guard;
    case KV_ENC_SKIPLIST:
        return &((struct kv_zset *)s->large)->guard;
    case KV_ENC_QUICKLIST:
        return &((struct kv_list *)s->large)->guard;
    default:
        KV_UNREACHABLE();
    }
}

void kv_sliced_open(struct kv_sliced *s, const struct kv_snapshot_hooks *hooks,
                    const struct kv_view *v, const struct kv_entry *e, uint32_t shard)
{
    KV_ASSERT(kv_entry_is_large(e) && kv_entry_guard(e) == NULL);
    *s = (struct kv_sliced){
        .guard = {.permit = UINT64_MAX},
        .hooks = hooks,
        .large = kv_entry_large(e),
        .type = (uint8_t)kv_entry_type(e),
        .encoding = (uint8_t)kv_entry_encoding(e),
        .left = kv_entry_elements(e),
    };
    atomic_init(&s->shard, shard);
    kv_table_init(&s->noted, hash_of_name, (void *)(uintptr_t)&v->store->hash_key, KV_MEM_SNAPSHOT);
    if (s->encoding == KV_ENC_QUICKLIST) {
        const struct kv_list *l = s->large;
        s->at.first = l->head;
        s->at.last = l->tail;
        s->left = l->node_count;
    }
    *guard_slot(s) = &s->guard;
}

/* Nothing points to the record any more. */
static void let_go(struct kv_sliced *s)
{
    KV_ASSERT(!s->done && *guard_slot(s) == &s->guard);
    *guard_slot(s) = NULL;
    s->done = true;
}

static void free_dict(void *large)
{
    kv_dict_free(large);
}

static void free_zset(void *large)
{
    kv_zset_free(large);
}

static void free_list(void *large)
{
    kv_list_free(large);
}

/* Frees an orphan's structure: on another thread, if there is one for that. */
static void free_orphan(struct kv_view *v, const struct kv_sliced *s)
{
    if (v->store->hooks.free_later == NULL) {
        kv_entry_large_free((enum kv_encoding)s->encoding, s->large);
        return;
    }
    v->store->hooks.free_later(v,
                               s->encoding == KV_ENC_HASHTABLE  ? free_dict
                               : s->encoding == KV_ENC_SKIPLIST ? free_zset
                                                                : free_list,
                               s->large);
}

static void complete(struct kv_view *v, struct kv_sliced *s)
{
    KV_ASSERT(s->broken || s->left == 0);
    let_go(s);
    if (s->orphan)
        free_orphan(v, s);
}

void kv_sliced_cancel(struct kv_sliced *s)
{
    if (s->done)
        return;
    let_go(s);
    if (s->orphan)
        kv_entry_large_free((enum kv_encoding)s->encoding, s->large);
}

void kv_sliced_release(struct kv_sliced *s)
{
    KV_ASSERT(s->done);
    kv_table_each(&s->noted, free_name, NULL);
    kv_table_release(&s->noted);
    if (s->at.name != NULL)
        kv_mem_free(s->at.name, s->at.name_capacity, KV_MEM_SNAPSHOT);
}

/* --- giving members to the hook --- */

static void give(struct kv_view *v, struct kv_sliced *s, const struct kv_sliced_item *item)
{
    KV_ASSERT(s->left != 0);
    s->left--;
    s->hooks->item(v, s, item);
}

static void give_element(struct kv_view *v, struct kv_sliced *s, const struct kv_element *e)
{
    struct kv_element_parts parts = kv_element_parts(e);
    struct kv_sliced_item item = {parts.name, parts.value, 0, kv_element_due(e), false};
    give(v, s, &item);
}

static void give_scored(struct kv_view *v, struct kv_sliced *s, const struct kv_scored *m)
{
    struct kv_sliced_item item = {
        .name = kv_scored_name(m), .score = m->score, .due = kv_scored_due(m)};
    give(v, s, &item);
}

/* The first or last node that is left. */
static void give_node(struct kv_view *v, struct kv_sliced *s, enum kv_list_end end)
{
    struct kv_sliced_cursor *at = &s->at;
    const struct kv_list_node *node = end == KV_LIST_HEAD ? at->first : at->last;
    const uint8_t *list = kv_list_packed(node);
    struct kv_sliced_item item = {.name = kv_slice((const char *)list, kv_packed_bytes(list)),
                                  .due = KV_NOT_DUE,
                                  .from_end = end == KV_LIST_TAIL};
    give(v, s, &item);
    if (at->first == at->last)
        at->first = at->last = NULL;
    else if (end == KV_LIST_HEAD)
        at->first = at->first->next;
    else
        at->last = at->last->prev;
}

/* --- the walk --- */

struct visit {
    struct kv_view *view;
    struct kv_sliced *sliced;
};

static void visit_element(struct kv_element *e, void *arg)
{
    const struct visit *x = arg;
    struct kv_sliced *s = x->sliced;
    if (KV_UNLIKELY(s->noted.count != 0)) {
        struct kv_slice name = kv_element_name(e);
        if (is_noted(s, name, kv_dict_hash(s->large, name)))
            return;
    }
    give_element(x->view, s, e);
}

static bool walk_table(struct kv_view *v, struct kv_sliced *s, uint64_t deadline_ticks)
{
    struct visit x = {v, s};
    while (s->at.position != KV_TABLE_POSITION_END) {
        s->at.position = kv_dict_scan(s->large, s->at.position, STEP_ELEMENTS, visit_element, &x);
        if (kv_clock_ticks() >= deadline_ticks)
            break;
    }
    return s->at.position == KV_TABLE_POSITION_END;
}

/* Notes that the walk has passed a member. False: no memory. */
static bool set_passed(struct kv_view *v, struct kv_sliced *s, const struct kv_scored *m)
{
    struct kv_sliced_cursor *at = &s->at;
    struct kv_slice name = kv_scored_name(m);
    if (at->name == NULL || at->name_capacity < name.len) {
        size_t capacity = name.len + 64;
        char *bytes = kv_mem_try_alloc(capacity, KV_MEM_SNAPSHOT);
        if (bytes == NULL) {
            s->broken = true;
            s->hooks->fail(v);
            return false;
        }
        if (at->name != NULL)
            kv_mem_free(at->name, at->name_capacity, KV_MEM_SNAPSHOT);
        at->name = bytes;
        at->name_capacity = capacity;
    }
    if (name.len != 0)
        memcpy(at->name, name.ptr, name.len);
    at->name_len = name.len;
    at->score = m->score;
    return true;
}

static bool is_passed(const struct kv_sliced *s, const struct kv_scored *m)
{
    const struct kv_sliced_cursor *at = &s->at;
    if (at->name == NULL || m->score != at->score)
        return at->name != NULL && m->score < at->score;
    return kv_slice_compare(kv_scored_name(m), kv_slice(at->name, at->name_len)) <= 0;
}

static bool walk_order(struct kv_view *v, struct kv_sliced *s, uint64_t deadline_ticks)
{
    const struct kv_zset *z = s->large;
    struct kv_slice name = kv_slice(s->at.name, s->at.name_len);
    struct kv_order_place place = kv_zset_behind_name(s->at.score, &name);
    struct kv_order_cursor c;
    unsigned steps = 0;
    bool more =
        s->at.name != NULL ? kv_order_seek(&z->order, &place, &c) : kv_order_at(&z->order, 0, &c);
    while (more) {
        const struct kv_scored *m = kv_zset_at(&c);
        struct kv_slice own = kv_scored_name(m);
        if (s->noted.count == 0 || !is_noted(s, own, kv_zset_hash(z, own)))
            give_scored(v, s, m);
        if (++steps % STEP_MEMBERS == 0 && kv_clock_ticks() >= deadline_ticks)
            return !set_passed(v, s, m);
        more = kv_order_next(&c);
    }
    return true;
}

static bool walk_nodes(struct kv_view *v, struct kv_sliced *s, uint64_t deadline_ticks)
{
    while (s->at.first != NULL) {
        give_node(v, s, KV_LIST_HEAD);
        if (kv_clock_ticks() >= deadline_ticks)
            break;
    }
    return s->at.first == NULL;
}

void kv_sliced_walk(struct kv_view *v, struct kv_sliced *s, uint64_t deadline_ticks)
{
    bool all = s->broken;
    KV_ASSERT(!s->done);
    if (!all && s->encoding == KV_ENC_HASHTABLE)
        all = walk_table(v, s, deadline_ticks);
    else if (!all && s->encoding == KV_ENC_SKIPLIST)
        all = walk_order(v, s, deadline_ticks);
    else if (!all)
        all = walk_nodes(v, s, deadline_ticks);
    if (all)
        complete(v, s);
}

/* --- before changes --- */

void kv_sliced_keep_member(struct kv_view *v, struct kv_guard *g, struct kv_slice name,
                           uint64_t hash)
{
    struct kv_sliced *s = of_guard(g);
    bool table = s->encoding == KV_ENC_HASHTABLE;
    g->permit = hash;
    if (s->broken || (table && kv_table_position(hash) < s->at.position) || is_noted(s, name, hash))
        return;
    if (table) {
        const struct kv_element *e = kv_dict_find(s->large, name, hash);
        if (e != NULL)
            give_element(v, s, e);
    } else {
        const struct kv_scored *m = kv_zset_find(s->large, name, hash);
        if (m != NULL && !is_passed(s, m))
            give_scored(v, s, m);
    }
    note(v, s, name, hash);
}

void kv_sliced_keep_end(struct kv_view *v, struct kv_guard *g, enum kv_list_end end, uint64_t items)
{
    struct kv_sliced *s = of_guard(g);
    const struct kv_list *l = s->large;
    const struct kv_list_node *node = end == KV_LIST_HEAD ? l->head : l->tail;
    uint64_t covered = 0;
    KV_ASSERT(s->encoding == KV_ENC_QUICKLIST);
    g->permit = end;
    /* The node behind the items changes too when some of its own go; one more than needed does no
     * harm. */
    while (node != NULL && s->at.first != NULL && covered <= items) {
        const struct kv_list_node *inner = end == KV_LIST_HEAD ? node->next : node->prev;
        if (node == (end == KV_LIST_HEAD ? s->at.first : s->at.last))
            give_node(v, s, end);
        covered += node->count;
        node = inner;
    }
}

void kv_sliced_finish(struct kv_view *v, struct kv_guard *g)
{
    struct kv_sliced *s = of_guard(g);
    while (!s->done)
        kv_sliced_walk(v, s, UINT64_MAX);
}

void kv_sliced_hand_over(struct kv_guard *g)
{
    struct kv_sliced *s = of_guard(g);
    KV_ASSERT(!s->orphan && !s->done);
    s->orphan = true;
}

void kv_sliced_rehome(struct kv_guard *g, uint32_t shard)
{
    atomic_store(&of_guard(g)->shard, shard);
}
