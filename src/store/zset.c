/* Sorted sets: what is asked of them, and how large ones change. Packed ones change in
 * zset_packed.c.
 *
 * Reading goes through a ranking, which is the list or the structure without members that are due:
 * opening it removes them, or, in a view that must not remove anything, copies the list without
 * them. So ranks and counts are right in either case, and nothing behind it knows of due times.
 *
 * A large set takes the pairs of one command in two rounds: first those that are new, which can be
 * taken back, then new scores of those that are there, for which memory was reserved. So a command
 * that runs out of memory has changed nothing. A set that becomes large is built aside.
 *
 * Threads: as zset.h.
 */
#include "store/store_priv.h"
#include "store/zset_priv.h"

/* --- opening --- */

static void open_entry(const struct kv_entry *e, struct kv_ranking *out)
{
    *out = (struct kv_ranking){.stride = 2};
    if (kv_entry_is_large(e))
        out->large = kv_entry_large(e);
    else
        out->list = kv_zpacked_list(e, &out->stride);
}

static const uint8_t *list_without_due(const struct kv_zset *z, int64_t now_ms,
                                       struct kv_arena *arena)
{
    struct kv_order_cursor c;
    struct kv_needle n;
    char text[KV_DOUBLE_TEXT_MAX];
    size_t len = KV_PACKED_EMPTY;
    uint8_t *bytes = NULL, *to = NULL;
    uint32_t items = 0;
    for (int pass = 0; pass < 2; pass++) {
        for (bool more = kv_order_at(&z->order, 0, &c); more; more = kv_order_next(&c)) {
            const struct kv_scored *m = kv_zset_at(&c);
            int64_t due = kv_scored_due(m);
            if (due != KV_NOT_DUE && due <= now_ms)
                continue;
            kv_needle_init(&n, kv_scored_name(m));
            len += pass == 0 ? kv_needle_bytes(&n) : 0;
            to = pass == 0 ? NULL : kv_packed_put(to, &n);
            kv_zpacked_score_needle(&n, m->score, text);
            len += pass == 0 ? kv_needle_bytes(&n) : 0;
            to = pass == 0 ? NULL : kv_packed_put(to, &n);
            items += pass == 0 ? 2 : 0;
        }
        if (pass == 0 && (len > KV_PACKED_MAX || (bytes = kv_arena_try_alloc(arena, len)) == NULL))
            return NULL;
        to = bytes + KV_PACKED_HEAD;
    }
    kv_packed_seal(bytes, len, items);
    return bytes;
}

enum kv_err kv_ranking_open(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                            struct kv_arena *arena, struct kv_ranking *out)
{
    *out = (struct kv_ranking){.stride = 2};
    if (*e == NULL)
        return KV_OK;
    KV_DASSERT(kv_entry_type(*e) == KV_TYPE_ZSET);
    if (KV_UNLIKELY(kv_entry_may_be_due(*e, v->now_ms))) {
        if (!(v->flags & KV_VIEW_NO_EXPIRE)) {
            kv_store_purge_due(v, k, e, UINT64_MAX);
            if (*e == NULL)
                return KV_OK;
        } else {
            open_entry(*e, out);
            out->list = out->large != NULL ? list_without_due(out->large, v->now_ms, arena)
                                           : kv_zpacked_without_due(*e, v->now_ms, arena);
            out->stride = out->large != NULL ? 2 : out->stride;
            out->large = NULL;
            return out->list != NULL ? KV_OK : KV_ERR_NOMEM;
        }
    }
    open_entry(*e, out);
    return KV_OK;
}

uint64_t kv_ranking_count(const struct kv_ranking *r)
{
    if (r->large != NULL)
        return kv_zset_count(r->large);
    return r->list != NULL ? kv_packed_count(r->list) / r->stride : 0;
}

/* --- members by name --- */

double kv_ranked_score(const struct kv_ranked *m)
{
    double score = m->score;
    if (KV_UNLIKELY(m->score_text.ptr != NULL)) {
        bool valid = kv_double_parse(m->score_text, &score);
        KV_ASSERT(valid);
    }
    return score;
}

bool kv_ranking_find_on(const struct kv_ranking *r, struct kv_ranking_cursor *c,
                        struct kv_slice name, double *score, int64_t *due)
{
    if (r->large != NULL) {
        const struct kv_scored *m = kv_zset_find(r->large, name, kv_zset_hash(r->large, name));
        if (m == NULL)
            return false;
        *score = m->score;
        *due = kv_scored_due(m);
        return true;
    }
    if (r->list == NULL)
        return false;
    struct kv_needle n;
    kv_needle_init(&n, name);
    const uint8_t *from = c->at != NULL ? c->at : kv_packed_first(r->list);
    const uint8_t *at = kv_packed_find(r->list, from, &n, r->stride);
    if (at == NULL)
        return false;
    *score = kv_zpacked_score(kv_packed_next(at));
    *due = kv_zpacked_due(at, r->stride);
    c->at = kv_packed_skip(at, r->stride);
    return true;
}

bool kv_ranking_find(const struct kv_ranking *r, struct kv_slice name, double *score, int64_t *due)
{
    struct kv_ranking_cursor c = {NULL};
    return kv_ranking_find_on(r, &c, name, score, due);
}

bool kv_ranking_rank(const struct kv_ranking *r, struct kv_slice name, uint64_t *rank,
                     double *score)
{
    if (r->large != NULL) {
        const struct kv_scored *m = kv_zset_find(r->large, name, kv_zset_hash(r->large, name));
        if (m == NULL)
            return false;
        *rank = kv_zset_rank(r->large, m);
        *score = m->score;
        return true;
    }
    if (r->list == NULL)
        return false;
    struct kv_needle n;
    kv_needle_init(&n, name);
    *rank = 0;
    for (const uint8_t *at = kv_packed_first(r->list); !kv_packed_at_end(at);
         at = kv_packed_skip(at, r->stride), ++*rank) {
        if (kv_needle_is_at(&n, at)) {
            *score = kv_zpacked_score(kv_packed_next(at));
            return true;
        }
    }
    return false;
}

/* --- spans --- */

static struct kv_span span_between(uint64_t first, uint64_t end)
{
    return (struct kv_span){first, end > first ? end - first : 0};
}

static struct kv_span packed_by_score(const struct kv_ranking *r,
                                      const struct kv_score_range *range)
{
    uint64_t rank = 0, first = UINT64_MAX;
    for (const uint8_t *at = kv_packed_first(r->list); !kv_packed_at_end(at);
         at = kv_packed_skip(at, r->stride), rank++) {
        double score = kv_zpacked_score(kv_packed_next(at));
        if (score > range->max || (range->max_open && score == range->max))
            break;
        if (first == UINT64_MAX && (range->min_open ? score > range->min : score >= range->min))
            first = rank;
    }
    return span_between(first, rank);
}

struct kv_span kv_ranking_by_score(const struct kv_ranking *r, const struct kv_score_range *range)
{
    if (r->list != NULL)
        return packed_by_score(r, range);
    if (r->large == NULL)
        return (struct kv_span){0, 0};
    struct kv_order_place min =
        range->min_open ? kv_zset_behind_score(range->min) : kv_zset_before_score(range->min);
    struct kv_order_place max =
        range->max_open ? kv_zset_before_score(range->max) : kv_zset_behind_score(range->max);
    const struct kv_order *o = &r->large->order;
    uint64_t first = kv_order_rank(o, &min);
    return span_between(first, kv_order_rank(o, &max));
}

static bool above_min(const struct kv_lex_range *range, struct kv_slice name)
{
    if (range->min_kind >= KV_LEX_LOWEST)
        return range->min_kind == KV_LEX_LOWEST;
    int order = kv_slice_compare(name, range->min);
    return range->min_kind == KV_LEX_OPEN ? order > 0 : order >= 0;
}

static bool below_max(const struct kv_lex_range *range, struct kv_slice name)
{
    if (range->max_kind >= KV_LEX_LOWEST)
        return range->max_kind == KV_LEX_HIGHEST;
    int order = kv_slice_compare(name, range->max);
    return range->max_kind == KV_LEX_OPEN ? order < 0 : order <= 0;
}

static struct kv_span packed_by_lex(const struct kv_ranking *r, const struct kv_lex_range *range)
{
    char scratch[KV_INT_TEXT_MAX];
    const uint8_t *at = kv_packed_first(r->list);
    uint64_t first = 0;
    while (!kv_packed_at_end(at) && !above_min(range, kv_packed_text(at, scratch))) {
        at = kv_packed_skip(at, r->stride);
        first++;
    }
    uint64_t end = first;
    while (!kv_packed_at_end(at) && below_max(range, kv_packed_text(at, scratch))) {
        at = kv_packed_skip(at, r->stride);
        end++;
    }
    return span_between(first, end);
}

/* Rank of the first member that is not below the range, taking all to have one score. */
static uint64_t lex_min_rank(const struct kv_zset *z, const struct kv_lex_range *range,
                             double score)
{
    struct kv_order_place p;
    if (range->min_kind >= KV_LEX_LOWEST)
        return range->min_kind == KV_LEX_LOWEST ? 0 : kv_zset_count(z);
    p = range->min_kind == KV_LEX_OPEN ? kv_zset_behind_name(score, &range->min)
                                       : kv_zset_before_name(score, &range->min);
    return kv_order_rank(&z->order, &p);
}

static uint64_t lex_max_rank(const struct kv_zset *z, const struct kv_lex_range *range,
                             double score)
{
    struct kv_order_place p;
    if (range->max_kind >= KV_LEX_LOWEST)
        return range->max_kind == KV_LEX_HIGHEST ? kv_zset_count(z) : 0;
    p = range->max_kind == KV_LEX_OPEN ? kv_zset_before_name(score, &range->max)
                                       : kv_zset_behind_name(score, &range->max);
    return kv_order_rank(&z->order, &p);
}

struct kv_span kv_ranking_by_lex(const struct kv_ranking *r, const struct kv_lex_range *range)
{
    struct kv_order_cursor c;
    if (r->list != NULL)
        return packed_by_lex(r, range);
    if (r->large == NULL || !kv_order_at(&r->large->order, 0, &c))
        return (struct kv_span){0, 0};
    double score = kv_order_score(&c);
    uint64_t first = lex_min_rank(r->large, range, score);
    return span_between(first, lex_max_rank(r->large, range, score));
}

/* --- walks --- */

void kv_ranking_walk(const struct kv_ranking *r, uint64_t rank, bool down,
                     struct kv_ranking_walk *w)
{
    w->ranking = r;
    w->down = down;
    w->at = NULL;
    w->more = false;
    if (r->list != NULL) {
        w->at = rank <= INT64_MAX / 3 ? kv_packed_seek(r->list, (int64_t)rank * r->stride) : NULL;
        w->more = w->at != NULL;
    } else if (r->large != NULL) {
        w->more = kv_order_at(&r->large->order, rank, &w->cursor);
    }
}

static void ranked_of_scored(const struct kv_scored *s, struct kv_ranked *m)
{
    m->name = kv_scored_name(s);
    m->score_text.ptr = NULL;
    m->score = s->score;
    m->due = kv_scored_due(s);
}

/* Reads a member of a list; returns what follows it. */
static const uint8_t *ranked_of_packed(const struct kv_ranking *r, const uint8_t *at,
                                       struct kv_ranked *m)
{
    m->name = kv_packed_text(at, m->scratch);
    at = kv_packed_next(at);
    m->score_text.ptr = NULL;
    m->due = KV_NOT_DUE;
    if (KV_LIKELY(at[0] < 0x80)) {
        m->score = at[0];
    } else {
        struct kv_packed_item item = kv_packed_get(at);
        m->score_text = kv_slice(item.ptr, item.len);
        m->score = (double)item.number;
    }
    at = kv_packed_next(at);
    if (KV_UNLIKELY(r->stride == 3)) {
        int64_t due = kv_packed_get(at).number;
        m->due = due != 0 ? due : KV_NOT_DUE;
        at = kv_packed_next(at);
    }
    return at;
}

static void packed_next(struct kv_ranking_walk *w, struct kv_ranked *m)
{
    const struct kv_ranking *r = w->ranking;
    const uint8_t *next = ranked_of_packed(r, w->at, m);
    if (!w->down) {
        w->at = next;
        w->more = !kv_packed_at_end(next);
        return;
    }
    const uint8_t *at = w->at;
    for (unsigned i = 0; i < r->stride && at != NULL; i++)
        at = kv_packed_prev(r->list, at);
    w->at = at;
    w->more = at != NULL;
}

bool kv_ranking_next(struct kv_ranking_walk *w, struct kv_ranked *m)
{
    if (!w->more)
        return false;
    if (w->at != NULL) {
        packed_next(w, m);
        return true;
    }
    ranked_of_scored(kv_zset_at(&w->cursor), m);
    w->more = w->down ? kv_order_prev(&w->cursor) : kv_order_next(&w->cursor);
    return true;
}

struct scanning {
    void (*visit)(const struct kv_ranked *m, void *arg);
    void *arg;
};

static void visit_scored(struct kv_scored *s, void *arg)
{
    const struct scanning *scan = arg;
    struct kv_ranked m;
    ranked_of_scored(s, &m);
    scan->visit(&m, scan->arg);
}

uint64_t kv_ranking_scan(const struct kv_ranking *r, uint64_t position, uint64_t count,
                         void (*visit)(const struct kv_ranked *m, void *arg), void *arg)
{
    struct scanning scan = {visit, arg};
    if (r->large != NULL)
        return kv_zset_scan(r->large, position, count, visit_scored, &scan);
    struct kv_ranking_walk w;
    struct kv_ranked m;
    for (kv_ranking_walk(r, 0, false, &w); kv_ranking_next(&w, &m);)
        visit(&m, arg);
    return KV_TABLE_POSITION_END;
}

/* --- adding to large sets --- */

struct large_adding {
    struct kv_view *view;
    struct kv_zset *z;
    const struct kv_zset_pair *pairs;
    size_t count;
    uint32_t flags;
    struct kv_zadd_result *result;
    bool *added; /* by pair; of more than one */
};

static void take_back(struct large_adding *a, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct kv_slice name = a->pairs[i].name;
        uint64_t hash = kv_zset_hash(a->z, name);
        if (!a->added[i])
            continue;
        large_keep_member(a->view, a->z->guard, name, hash);
        kv_zset_remove(a->z, kv_zset_find(a->z, name, hash), hash);
    }
}

/* Adds the pairs that are new; *changes: how many others may get another score. */
static enum kv_err add_new(struct large_adding *a, size_t *changes)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct kv_zset_pair *p = &a->pairs[i];
        uint64_t hash = kv_zset_hash(a->z, p->name);
        const struct kv_scored *m = kv_zset_find(a->z, p->name, hash);
        a->added[i] = false;
        if (m != NULL) {
            *changes += m->score != p->score && !(a->flags & KV_ZADD_NX);
            continue;
        }
        if (a->flags & KV_ZADD_XX)
            continue;
        large_keep_member(a->view, a->z->guard, p->name, hash);
        enum kv_err err = kv_zset_add(a->z, p->name, hash, p->score, KV_NOT_DUE, false);
        if (err != KV_OK) {
            take_back(a, i);
            return err;
        }
        a->added[i] = true;
        a->result->added++;
    }
    return KV_OK;
}

static void change_scores(struct large_adding *a)
{
    for (size_t i = 0; i < a->count; i++) {
        const struct kv_zset_pair *p = &a->pairs[i];
        double score = p->score;
        if (a->added[i])
            continue;
        uint64_t hash = kv_zset_hash(a->z, p->name);
        struct kv_scored *m = kv_zset_find(a->z, p->name, hash);
        if (m == NULL || kv_zadd_decide(a->flags, m->score, &score, a->result) != KV_ZADD_UPDATE)
            continue;
        large_keep_member(a->view, a->z->guard, p->name, hash);
        enum kv_err err = kv_zset_set_score(a->z, m, score);
        KV_ASSERT(err == KV_OK);
        a->result->updated++;
    }
}

static enum kv_err large_add_many(struct large_adding *a, struct kv_arena *arena)
{
    size_t changes = 0;
    a->added = kv_arena_try_alloc(arena, a->count * sizeof(*a->added));
    if (a->added == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = add_new(a, &changes);
    if (err != KV_OK || changes == 0)
        return err;
    err = kv_zset_reserve(a->z, changes);
    if (err != KV_OK) {
        take_back(a, a->count);
        return err;
    }
    change_scores(a);
    kv_zset_unreserve(a->z);
    return KV_OK;
}

static enum kv_err large_add_one(struct large_adding *a)
{
    const struct kv_zset_pair *p = a->pairs;
    uint64_t hash = kv_zset_hash(a->z, p->name);
    struct kv_scored *m = kv_zset_find(a->z, p->name, hash);
    double score = p->score;
    if (m == NULL) {
        if (a->flags & KV_ZADD_XX) {
            a->result->skipped = true;
            return KV_OK;
        }
        a->result->score = score;
        a->result->added = 1;
        large_keep_member(a->view, a->z->guard, p->name, hash);
        return kv_zset_add(a->z, p->name, hash, score, KV_NOT_DUE, false);
    }
    if (kv_zadd_decide(a->flags, m->score, &score, a->result) != KV_ZADD_UPDATE)
        return KV_OK;
    a->result->updated = 1;
    large_keep_member(a->view, a->z->guard, p->name, hash);
    return kv_zset_set_score(a->z, m, score);
}

static enum kv_err large_add(struct kv_view *v, struct kv_zset *z, const struct kv_zset_pair *pairs,
                             size_t count, uint32_t flags, struct kv_arena *arena,
                             struct kv_zadd_result *result)
{
    struct large_adding a = {v, z, pairs, count, flags, result, NULL};
    *result = (struct kv_zadd_result){0};
    return count == 1 ? large_add_one(&a) : large_add_many(&a, arena);
}

/* A large set with the members of a packed one, which may be none; NULL: no memory. */
static struct kv_zset *large_of_packed(struct kv_view *v, const struct kv_entry *e)
{
    struct kv_zset *z = kv_zset_create(kv_store_hash_key(v->store));
    struct kv_ranking r;
    struct kv_ranking_walk w;
    struct kv_ranked m;
    if (z == NULL || e == NULL)
        return z;
    open_entry(e, &r);
    for (kv_ranking_walk(&r, 0, false, &w); kv_ranking_next(&w, &m);) {
        uint64_t hash = kv_zset_hash(z, m.name);
        if (kv_zset_add(z, m.name, hash, kv_ranked_score(&m), m.due, true) != KV_OK) {
            kv_zset_free(z);
            return NULL;
        }
    }
    z->registered_due = kv_entry_member_due(e);
    return z;
}

static enum kv_err become_large(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                const struct kv_zset_pair *pairs, size_t count, uint32_t flags,
                                struct kv_arena *arena, struct kv_zadd_result *result)
{
    struct kv_zset *z = large_of_packed(v, *e);
    if (z == NULL)
        return KV_ERR_NOMEM;
    int64_t expiry = *e != NULL ? KV_KEEP_EXPIRY : KV_NO_EXPIRY;
    enum kv_err err = large_add(v, z, pairs, count, flags, arena, result);
    if (err == KV_OK)
        err = kv_store_put_large(v, k, e, KV_TYPE_ZSET, KV_ENC_SKIPLIST, z, expiry);
    if (err != KV_OK)
        kv_zset_free(z);
    return err;
}

enum kv_err kv_store_zset_add(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              const struct kv_zset_pair *pairs, size_t count, uint32_t flags,
                              struct kv_arena *arena, struct kv_zadd_result *result)
{
    enum kv_err err;
    *result = (struct kv_zadd_result){0};
    KV_DASSERT(count > 0 && (count == 1 || !(flags & KV_ZADD_INCR)));
    if (*e == NULL) {
        if (flags & KV_ZADD_XX) {
            result->skipped = true;
            return KV_OK;
        }
        err = kv_zpacked_create(v, k, e, pairs, count, flags, arena, result);
    } else if (!kv_entry_is_large(*e)) {
        err = kv_zpacked_add(v, k, e, pairs, count, flags, arena, result);
    } else {
        struct kv_footprint before = kv_store_members_begin(*e);
        err = large_add(v, kv_entry_large(*e), pairs, count, flags, arena, result);
        kv_store_large_end(v, k, *e, before);
        return err;
    }
    return KV_LIKELY(err != KV_ERR_LIMIT)
               ? err
               : become_large(v, k, e, pairs, count, flags, arena, result);
}

/* --- removing --- */

static void delete_if_empty(struct kv_view *v, const struct kv_key *k, struct kv_entry **e)
{
    if (kv_entry_elements(*e) != 0)
        return;
    kv_store_delete(v, k, *e);
    *e = NULL;
}

enum kv_err kv_store_zset_remove(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                 const struct kv_slice *names, size_t count, struct kv_arena *arena,
                                 uint64_t *removed)
{
    if (!kv_entry_is_large(*e))
        return kv_zpacked_remove(v, k, e, names, count, arena, removed);
    struct kv_zset *z = kv_entry_large(*e);
    struct kv_footprint before = kv_store_members_begin(*e);
    *removed = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t hash = kv_zset_hash(z, names[i]);
        struct kv_scored *m = kv_zset_find(z, names[i], hash);
        if (m == NULL)
            continue;
        large_keep_member(v, z->guard, names[i], hash);
        kv_zset_remove(z, m, hash);
        ++*removed;
    }
    kv_store_large_end(v, k, *e, before);
    delete_if_empty(v, k, e);
    return KV_OK;
}

enum kv_err kv_store_zset_remove_span(struct kv_view *v, const struct kv_key *k,
                                      struct kv_entry **e, struct kv_span span)
{
    if (!kv_entry_is_large(*e))
        return kv_zpacked_remove_span(v, k, e, span);
    struct kv_zset *z = kv_entry_large(*e);
    KV_ASSERT(span.first <= kv_zset_count(z) && span.count <= kv_zset_count(z) - span.first);
    if (span.count == kv_zset_count(z)) {
        kv_store_delete(v, k, *e);
        *e = NULL;
        return KV_OK;
    }
    struct kv_footprint before = kv_store_members_begin(*e);
    for (uint64_t i = 0; i < span.count; i++) {
        struct kv_order_cursor c;
        bool found = kv_order_at(&z->order, span.first, &c);
        KV_ASSERT(found);
        struct kv_scored *m = kv_zset_at(&c);
        uint64_t hash = kv_zset_hash(z, kv_scored_name(m));
        large_keep_member(v, z->guard, kv_scored_name(m), hash);
        kv_zset_remove(z, m, hash);
    }
    kv_store_large_end(v, k, *e, before);
    return KV_OK;
}

/* --- storing --- */

static enum kv_err store_large(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               const struct kv_zset_pair *pairs, size_t count)
{
    struct kv_zset *z = kv_zset_create(kv_store_hash_key(v->store));
    enum kv_err err = z != NULL ? KV_OK : KV_ERR_NOMEM;
    if (z == NULL)
        return err;
    for (size_t i = 0; i < count && err == KV_OK; i++) {
        uint64_t hash = kv_zset_hash(z, pairs[i].name);
        err = kv_zset_add(z, pairs[i].name, hash, pairs[i].score, KV_NOT_DUE, true);
    }
    if (err == KV_OK)
        err = kv_store_put_large(v, k, e, KV_TYPE_ZSET, KV_ENC_SKIPLIST, z, KV_NO_EXPIRY);
    if (err != KV_OK)
        kv_zset_free(z);
    return err;
}

enum kv_err kv_store_zset_store(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                const struct kv_zset_pair *pairs, size_t count,
                                struct kv_arena *arena)
{
    size_t longest = 0;
    for (size_t i = 0; i < count; i++)
        longest = KV_MAX(longest, pairs[i].name.len);
    KV_DASSERT(count > 0);
    enum kv_err err = KV_ERR_LIMIT;
    if (kv_zset_fits(v, count, longest))
        err = kv_zpacked_put(v, k, e, pairs, count, arena);
    return err != KV_ERR_LIMIT ? err : store_large(v, k, e, pairs, count);
}

/* --- due times --- */

enum kv_err kv_store_zset_set_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                  struct kv_slice name, int64_t due, struct kv_arena *arena,
                                  bool *found)
{
    if (!kv_entry_is_large(*e))
        return kv_zpacked_set_due(v, k, e, name, due, arena, found);
    struct kv_zset *z = kv_entry_large(*e);
    uint64_t hash = kv_zset_hash(z, name);
    struct kv_scored *m = kv_zset_find(z, name, hash);
    *found = m != NULL;
    if (m == NULL || kv_scored_due(m) == due)
        return KV_OK;
    if (due != KV_NOT_DUE) {
        enum kv_err err = kv_store_register_due(v, k, *e, due);
        if (err != KV_OK)
            return err;
    }
    struct kv_footprint before = kv_store_members_begin(*e);
    large_keep_member(v, z->guard, name, hash);
    enum kv_err err = kv_zset_set_due(z, m, hash, due);
    kv_store_large_end(v, k, *e, before);
    if (err != KV_OK)
        kv_store_refresh_due(v, k, *e);
    return err;
}
