/* Several sorted sets and sets together: ZUNION, ZINTER, ZDIFF, their STORE forms, ZINTERCARD.
 *
 * A source is a sorted set, or a set whose members count 1 each. The result is an array of pairs in
 * the arena, sorted at the end, which is replied or stored.
 *
 *   union         a hash table over all members, in the arena: name to score
 *   intersection  the members of the smallest source, looked up in the others
 *   difference    the members of the first source that no other has; they are in order already
 *
 * Scores are added up source by source from the smallest on, as Redis does: the sum of three
 * doubles depends on the order. A weighted score or a sum that is no number counts 0.
 *
 * Invariants
 *   - Sources are read before options, so that a wrong type is the error that wins.
 *   - A key that is named twice is opened once: opening may remove due members, and with them what
 *     an earlier look at the key has found.
 *   - Names stay where they are, but for numbers, which are printed into the arena.
 *
 * Threads: under the locks of all keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/zset_priv.h"
#include "store/set.h"
#include <stdlib.h>

#define MAP_MIN 16u

enum operation { OP_UNION, OP_INTER, OP_DIFF };
enum aggregate { AGGREGATE_SUM, AGGREGATE_MIN, AGGREGATE_MAX, AGGREGATE_COUNT };

struct source {
    const struct kv_entry *set; /* a set; NULL: see ranking */
    struct kv_ranking ranking;
    struct kv_ranking_cursor cursor;
    double weight;
    uint64_t count;
};

struct combine {
    struct kv_call *call;
    enum operation op;
    enum aggregate aggregate;
    bool store, card, with_scores;
    uint64_t limit; /* ZINTERCARD: where it stops */
    struct source *sources;
    size_t source_count;
    struct kv_zset_pair *pairs; /* the result */
    size_t pair_count;
    bool failed; /* memory was short */
};

/* --- scores --- */

static double weighted(const struct combine *c, const struct source *s, double score)
{
    double value = c->aggregate == AGGREGATE_COUNT ? s->weight : s->weight * score;
    return value != value ? 0 : value;
}

static double join_scores(const struct combine *c, double a, double b)
{
    if (c->aggregate == AGGREGATE_MIN)
        return b < a ? b : a;
    if (c->aggregate == AGGREGATE_MAX)
        return b > a ? b : a;
    double sum = a + b;
    return sum != sum ? 0 : sum;
}

/* --- sources --- */

static bool open_source(struct combine *c, int key, struct source *s)
{
    struct kv_call *call = c->call;
    const struct kv_key *k = &call->keys[key];
    struct kv_entry *e = kv_store_read(&call->view, k);
    *s = (struct source){.weight = 1};
    if (e != NULL && kv_entry_type(e) == KV_TYPE_SET) {
        s->set = kv_set_purge(&call->view, k, e);
        s->count = s->set != NULL ? kv_set_count(s->set, call->view.now_ms) : 0;
        return true;
    }
    if (!kv_zset_open(call, k, &e, &s->ranking))
        return false;
    s->count = kv_ranking_count(&s->ranking);
    return true;
}

static bool same_key(const struct kv_key *a, const struct kv_key *b)
{
    return a->hash == b->hash && kv_slice_equal(kv_slice(a->ptr, a->len), kv_slice(b->ptr, b->len));
}

static bool open_sources(struct combine *c, int first_key)
{
    const struct kv_key *keys = c->call->keys + first_key;
    c->sources = kv_arena_try_alloc(c->call->arena, c->source_count * sizeof(*c->sources));
    if (c->sources == NULL) {
        kv_call_no_memory(c->call);
        return false;
    }
    for (size_t i = 0; i < c->source_count; i++) {
        size_t same = 0;
        while (same < i && !same_key(&keys[same], &keys[i]))
            same++;
        if (same < i)
            c->sources[i] = c->sources[same];
        else if (!open_source(c, first_key + (int)i, &c->sources[i]))
            return false;
    }
    return true;
}

/* The score of a name in a source; `hash` is that of large sets of either kind. */
static bool source_find(const struct combine *c, struct source *s, struct kv_slice name,
                        double *score)
{
    int64_t due;
    if (s->count == 0)
        return false;
    if (s->set == NULL)
        return kv_ranking_find_on(&s->ranking, &s->cursor, name, score, &due);
    *score = 1;
    return kv_set_has(s->set, name, c->call->view.now_ms);
}

/* --- walks over a source --- */

struct visit {
    struct combine *c;
    struct source *source;
    bool (*fn)(struct combine *c, struct source *s, struct kv_slice name, double score);
    bool stable, stopped;
};

static void visit_set_member(struct kv_slice member, void *arg)
{
    struct visit *v = arg;
    if (v->stopped)
        return;
    if (!v->stable) {
        char *copy = kv_arena_try_alloc(v->c->call->arena, member.len);
        if (copy == NULL) {
            v->c->failed = v->stopped = true;
            return;
        }
        if (member.len != 0)
            memcpy(copy, member.ptr, member.len);
        member.ptr = copy;
    }
    v->stopped = !v->fn(v->c, v->source, member, 1);
}

/* Gives all members of a source to fn until it returns false. */
static void visit_source(struct combine *c, struct source *s,
                         bool (*fn)(struct combine *c, struct source *s, struct kv_slice name,
                                    double score))
{
    struct visit v = {c, s, fn, false, false};
    struct kv_ranking_walk w;
    struct kv_ranked m;
    if (s->set != NULL) {
        v.stable = kv_entry_encoding(s->set) == KV_ENC_HASHTABLE;
        kv_set_each(s->set, c->call->view.now_ms, visit_set_member, &v);
        return;
    }
    kv_ranking_walk(&s->ranking, 0, false, &w);
    while (kv_ranking_next(&w, &m)) {
        struct kv_slice name = kv_zset_stable_name(c->call, &m);
        if (name.ptr == NULL) {
            c->failed = true;
            return;
        }
        if (!fn(c, s, name, kv_ranked_score(&m)))
            return;
    }
}

/* --- union --- */

/* Pairs by name: open addressing, at most half full. */
struct map {
    uint32_t *slots; /* index of the pair + 1; 0: free */
    uint64_t mask;
};

static bool map_init(struct map *m, struct kv_arena *arena, uint64_t most)
{
    uint64_t size = MAP_MIN;
    while (size < 2 * most)
        size *= 2;
    m->mask = size - 1;
    m->slots = most < UINT32_MAX ? kv_arena_try_alloc(arena, size * sizeof(*m->slots)) : NULL;
    if (m->slots != NULL)
        memset(m->slots, 0, size * sizeof(*m->slots));
    return m->slots != NULL;
}

struct uniting {
    struct combine c; /* first: it is what the visitor gets */
    struct map map;
};

static bool unite(struct combine *c, struct source *s, struct kv_slice name, double score)
{
    struct uniting *u = (struct uniting *)c;
    const struct kv_hash_key *key = kv_store_hash_key(c->call->view.store);
    uint64_t at = kv_hash_bytes(key, name.ptr, name.len) & u->map.mask;
    double value = weighted(c, s, score);
    for (; u->map.slots[at] != 0; at = (at + 1) & u->map.mask) {
        struct kv_zset_pair *p = &c->pairs[u->map.slots[at] - 1];
        if (kv_slice_equal(p->name, name)) {
            p->score = join_scores(c, p->score, value);
            return true;
        }
    }
    c->pairs[c->pair_count++] = (struct kv_zset_pair){name, value};
    u->map.slots[at] = (uint32_t)c->pair_count;
    return true;
}

static bool run_union(struct combine *c)
{
    struct uniting u = {.c = *c};
    uint64_t most = 0;
    for (size_t i = 0; i < c->source_count; i++)
        most += c->sources[i].count;
    u.c.pairs = kv_arena_try_alloc(c->call->arena, most * sizeof(*c->pairs));
    if (u.c.pairs == NULL || !map_init(&u.map, c->call->arena, most))
        return false;
    for (size_t i = 0; i < c->source_count && !u.c.failed; i++)
        visit_source(&u.c, &c->sources[i], unite);
    *c = u.c;
    return !c->failed;
}

/* --- intersection and difference --- */

static bool intersect(struct combine *c, struct source *s, struct kv_slice name, double score)
{
    double total = weighted(c, s, score);
    for (size_t i = 1; i < c->source_count; i++) {
        if (!source_find(c, &c->sources[i], name, &score))
            return true;
        total = join_scores(c, total, weighted(c, &c->sources[i], score));
    }
    if (!c->card)
        c->pairs[c->pair_count] = (struct kv_zset_pair){name, total};
    c->pair_count++;
    return c->pair_count < c->limit;
}

static bool subtract(struct combine *c, struct source *s, struct kv_slice name, double score)
{
    double other;
    (void)s;
    for (size_t i = 1; i < c->source_count; i++)
        if (source_find(c, &c->sources[i], name, &other))
            return true;
    c->pairs[c->pair_count++] = (struct kv_zset_pair){name, score};
    return true;
}

static bool run_from_first(struct combine *c)
{
    uint64_t most = c->sources[0].count;
    if (most == 0)
        return true;
    if (!c->card) {
        c->pairs = kv_arena_try_alloc(c->call->arena, most * sizeof(*c->pairs));
        if (c->pairs == NULL)
            return false;
    }
    visit_source(c, &c->sources[0], c->op == OP_DIFF ? subtract : intersect);
    return !c->failed;
}

/* --- arguments --- */

static bool parse_weights(struct combine *c, int arg)
{
    for (size_t i = 0; i < c->source_count; i++) {
        if (!kv_double_parse(c->call->argv[arg + (int)i], &c->sources[i].weight)) {
            kv_call_error(c->call, "ERR weight value is not a float");
            return false;
        }
    }
    return true;
}

static bool parse_aggregate(struct combine *c, int arg)
{
    static const char *const words[] = {"sum", "min", "max", "count"};
    for (size_t i = 0; i < KV_ARRAY_LEN(words); i++) {
        if (kv_call_arg_is(c->call, arg, words[i])) {
            c->aggregate = (enum aggregate)i;
            return true;
        }
    }
    kv_call_syntax_error(c->call);
    return false;
}

static bool parse_limit(struct combine *c, int arg)
{
    int64_t limit;
    if (!kv_int_parse(c->call->argv[arg], &limit) || limit < 0) {
        kv_call_error(c->call, "ERR LIMIT can't be negative");
        return false;
    }
    c->limit = limit == 0 ? UINT64_MAX : (uint64_t)limit;
    return true;
}

static bool parse_options(struct combine *c, int arg)
{
    struct kv_call *call = c->call;
    bool scored = c->op != OP_DIFF && !c->card;
    while (arg < call->argc) {
        int left = call->argc - arg - 1;
        if (scored && (size_t)left >= c->source_count && kv_call_arg_is(call, arg, "weights")) {
            if (!parse_weights(c, arg + 1))
                return false;
            arg += 1 + (int)c->source_count;
        } else if (scored && left >= 1 && kv_call_arg_is(call, arg, "aggregate")) {
            if (!parse_aggregate(c, arg + 1))
                return false;
            arg += 2;
        } else if (!c->store && !c->card && kv_call_arg_is(call, arg, "withscores")) {
            c->with_scores = true;
            arg++;
        } else if (c->card && left >= 1 && kv_call_arg_is(call, arg, "limit")) {
            if (!parse_limit(c, arg + 1))
                return false;
            arg += 2;
        } else {
            kv_call_syntax_error(call);
            return false;
        }
    }
    return true;
}

/* Reads numkeys, sources and options. */
static bool parse(struct combine *c)
{
    struct kv_call *call = c->call;
    int first = c->store ? 2 : 1;
    int64_t count;
    if (!kv_call_int(call, first, &count))
        return false;
    if (count < 1) {
        kv_call_errorf(call, "ERR at least 1 input key is needed for '%s' command",
                       call->cmd->full_name);
        return false;
    }
    if (count > call->argc - first - 1) {
        kv_call_syntax_error(call);
        return false;
    }
    c->source_count = (size_t)count;
    KV_ASSERT(call->key_count == count + c->store);
    return open_sources(c, c->store) && parse_options(c, first + 1 + (int)count);
}

/* --- results --- */

static int compare_pairs(const void *a, const void *b)
{
    return kv_zset_pair_compare(a, b);
}

/* Fewest members first; the order of equals stays. */
static void sort_sources(struct combine *c)
{
    for (size_t i = 1; i < c->source_count; i++) {
        struct source s = c->sources[i];
        size_t at = i;
        for (; at > 0 && c->sources[at - 1].count > s.count; at--)
            c->sources[at] = c->sources[at - 1];
        c->sources[at] = s;
    }
}

static void reply_pairs(const struct combine *c)
{
    enum kv_zset_form form = c->with_scores ? KV_ZSET_SCORES : KV_ZSET_NAMES;
    kv_zset_reply_header(c->call, c->pair_count, form);
    for (size_t i = 0; i < c->pair_count; i++) {
        struct kv_ranked m = {.name = c->pairs[i].name, .score = c->pairs[i].score};
        kv_zset_reply_member(c->call, &m, form);
    }
}

static void combine(struct kv_call *call, enum operation op, bool card, const char *event)
{
    struct combine c = {
        .call = call, .op = op, .store = event != NULL, .card = card, .limit = UINT64_MAX};
    if (!parse(&c))
        return;
    if (op != OP_DIFF)
        sort_sources(&c);
    if (!(op == OP_UNION ? run_union(&c) : run_from_first(&c))) {
        kv_call_no_memory(call);
        return;
    }
    /* Members of a set have one score, but no order. */
    if (!card && (op != OP_DIFF || c.sources[0].set != NULL) && c.pair_count > 1)
        qsort(c.pairs, c.pair_count, sizeof(*c.pairs), compare_pairs);
    if (event == NULL && !card)
        reply_pairs(&c);
    else if (card || kv_zset_store(call, 0, c.pairs, c.pair_count, event))
        kv_reply_int(call->out, (int64_t)c.pair_count);
}

/* numkeys key [key ...] [WEIGHTS w [w ...]] [AGGREGATE SUM | MIN | MAX | COUNT] [WITHSCORES] */
void kv_cmd_zunion(struct kv_call *call)
{
    combine(call, OP_UNION, false, NULL);
}

void kv_cmd_zinter(struct kv_call *call)
{
    combine(call, OP_INTER, false, NULL);
}

void kv_cmd_zdiff(struct kv_call *call)
{
    combine(call, OP_DIFF, false, NULL);
}

void kv_cmd_zunionstore(struct kv_call *call)
{
    combine(call, OP_UNION, false, "zunionstore");
}

void kv_cmd_zinterstore(struct kv_call *call)
{
    combine(call, OP_INTER, false, "zinterstore");
}

void kv_cmd_zdiffstore(struct kv_call *call)
{
    combine(call, OP_DIFF, false, "zdiffstore");
}

/* numkeys key [key ...] [LIMIT limit] */
void kv_cmd_zintercard(struct kv_call *call)
{
    combine(call, OP_INTER, true, NULL);
}
