/* Sorted sets, members one by one: ZADD, ZINCRBY, ZREM, ZCARD, ZSCORE, ZMSCORE, ZRANK, ZREVRANK,
 * and what all families of these commands share. Ranges are in zset_range.c, pops and random
 * members in zset_pop.c, unions and the like in zset_combine.c, due times of members in
 * zset_expire.c.
 *
 * Data layout: none of its own, see store/zset.h. The pairs of a ZADD are made in the arena.
 *
 * Invariants
 *   - All scores of a ZADD are checked before the key is looked up, so that a bad one changes
 *     nothing; a score is never NaN.
 *   - A set goes with its last member.
 *
 * Change stream: ZADD and ZREM go as they came. With INCR, and as ZINCRBY, the score goes that came
 * out, since the arithmetic of another machine may round differently.
 *
 * Threads: under the lock of the key's shard.
 */
#include "cmd/functions.h"
#include "cmd/string_priv.h"
#include "cmd/zset_priv.h"

#define NOT_A_NUMBER "ERR resulting score is not a number (NaN)"

/* --- shared --- */

void kv_zset_shrunk(struct kv_call *call, const struct kv_key *k, const struct kv_entry *e,
                    const char *event)
{
    kv_store_changed(&call->view, k, KV_EVENT_ZSET, event);
    if (e == NULL)
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
}

void kv_zset_reply_score(struct kv_call *call, const struct kv_ranked *m)
{
    if (KV_LIKELY(m->score_text.ptr == NULL)) {
        kv_reply_double(call->out, m->score);
        return;
    }
    if (call->out->resp == 2) {
        kv_reply_slice(call->out, m->score_text);
        return;
    }
    KV_REPLY_RAW(call->out, ",");
    kv_reply_raw(call->out, m->score_text.ptr, m->score_text.len);
    KV_REPLY_RAW(call->out, "\r\n");
}

void kv_zset_reply_header(struct kv_call *call, uint64_t count, enum kv_zset_form form)
{
    if (form == KV_ZSET_BARE)
        return;
    bool flat = form == KV_ZSET_FLAT || (form == KV_ZSET_SCORES && call->out->resp == 2);
    kv_reply_array(call->out, flat ? 2 * count : count);
}

void kv_zset_reply_member(struct kv_call *call, const struct kv_ranked *m, enum kv_zset_form form)
{
    if (form == KV_ZSET_PAIRS || (form == KV_ZSET_SCORES && call->out->resp != 2))
        kv_reply_array(call->out, 2);
    kv_reply_slice(call->out, m->name);
    if (form != KV_ZSET_NAMES)
        kv_zset_reply_score(call, m);
}

void kv_zset_reply_walk(struct kv_call *call, struct kv_ranking_walk *w, uint64_t count,
                        enum kv_zset_form form)
{
    struct kv_ranked m;
    kv_zset_reply_header(call, count, form);
    for (uint64_t i = 0; i < count; i++) {
        bool more = kv_ranking_next(w, &m);
        KV_ASSERT(more);
        kv_zset_reply_member(call, &m, form);
    }
}

bool kv_zset_store(struct kv_call *call, int key, const struct kv_zset_pair *pairs, size_t count,
                   const char *event)
{
    const struct kv_key *k = &call->keys[key];
    struct kv_entry *e = kv_store_write(&call->view, k);
    bool replaces = e != NULL;
    enum kv_type type = replaces ? kv_entry_type(e) : KV_TYPE_ZSET;
    if (count == 0) {
        if (e == NULL)
            return true;
        kv_store_delete(&call->view, k, e);
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
        return true;
    }
    enum kv_err err = kv_store_zset_store(&call->view, k, &e, pairs, count, call->arena);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return false;
    }
    if (replaces)
        kv_store_replaced(&call->view, k, type, KV_TYPE_ZSET);
    kv_store_changed(&call->view, k, KV_EVENT_ZSET, event);
    return true;
}

/* --- adding --- */

struct zadd {
    uint32_t flags; /* enum kv_zadd_flags */
    bool changed;   /* CH: changed scores count */
    size_t count;
    struct kv_zset_pair *pairs;
};

/* Reads the option words from argument 2 on; *arg is then the first score. */
static void zadd_options(const struct kv_call *call, struct zadd *z, int *arg)
{
    static const struct {
        const char *word;
        uint32_t flag;
    } words[] = {{"nx", KV_ZADD_NX}, {"xx", KV_ZADD_XX}, {"gt", KV_ZADD_GT},
                 {"lt", KV_ZADD_LT}, {"ch", 0},          {"incr", KV_ZADD_INCR}};
    for (*arg = 2; *arg < call->argc; ++*arg) {
        struct kv_slice word = call->argv[*arg];
        size_t i = 0;
        /* A score does not begin like an option, but for "inf" and what is no number anyway. */
        if (KV_LIKELY(word.len == 0 || word.len > 4 || (unsigned char)word.ptr[0] < 'A'))
            return;
        while (i < KV_ARRAY_LEN(words) && !kv_slice_is(word, words[i].word))
            i++;
        if (i == KV_ARRAY_LEN(words))
            return;
        z->flags |= words[i].flag;
        z->changed |= words[i].flag == 0;
    }
}

static bool zadd_compatible(struct kv_call *call, const struct zadd *z)
{
    uint32_t flags = z->flags;
    if (flags & KV_ZADD_NX && flags & KV_ZADD_XX) {
        kv_call_error(call, "ERR XX and NX options at the same time are not compatible");
        return false;
    }
    uint32_t exclusive = flags & (KV_ZADD_NX | KV_ZADD_GT | KV_ZADD_LT);
    if ((exclusive & (exclusive - 1)) != 0) {
        kv_call_error(call, "ERR GT, LT, and/or NX options at the same time are not compatible");
        return false;
    }
    if (flags & KV_ZADD_INCR && z->count > 1) {
        kv_call_error(call, "ERR INCR option supports a single increment-element pair");
        return false;
    }
    return true;
}

static bool zadd_pairs(struct kv_call *call, struct zadd *z, int arg)
{
    z->pairs = kv_arena_try_alloc(call->arena, z->count * sizeof(*z->pairs));
    if (z->pairs == NULL) {
        kv_call_no_memory(call);
        return false;
    }
    for (size_t i = 0; i < z->count; i++, arg += 2) {
        if (KV_UNLIKELY(!kv_double_parse(call->argv[arg], &z->pairs[i].score))) {
            kv_call_not_float(call);
            return false;
        }
        z->pairs[i].name = call->argv[arg + 1];
    }
    return true;
}

/* Gives ZADD key score member to the change stream. */
static void propagate_score(struct kv_call *call, double score, struct kv_slice member)
{
    char *text = kv_arena_alloc(call->arena, KV_DOUBLE_TEXT_MAX);
    struct kv_slice argv[4] = {KV_SLICE("ZADD"), kv_key_slice(&call->keys[0]),
                               kv_slice(text, kv_double_print(score, text)), member};
    kv_call_propagate(call, argv, 4);
}

static void zadd_reply(struct kv_call *call, const struct zadd *z, const struct kv_zadd_result *r)
{
    if (!(z->flags & KV_ZADD_INCR))
        kv_reply_int(call->out, (int64_t)(z->changed ? r->added + r->updated : r->added));
    else if (r->skipped)
        kv_reply_null(call->out);
    else
        kv_reply_double(call->out, r->score);
}

static void zadd(struct kv_call *call, const struct zadd *z)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_zadd_result result;
    struct kv_entry *e;
    struct kv_ranking r;
    if (!kv_zset_write(call, 0, &e, &r))
        return;
    enum kv_err err =
        kv_store_zset_add(&call->view, k, &e, z->pairs, z->count, z->flags, call->arena, &result);
    if (KV_UNLIKELY(err != KV_OK)) {
        kv_call_failed(call, err);
        return;
    }
    if (KV_UNLIKELY(result.nan)) {
        kv_call_error(call, NOT_A_NUMBER);
        return;
    }
    if (result.added + result.updated != 0) {
        bool incr = z->flags & KV_ZADD_INCR;
        kv_store_changed(&call->view, k, KV_EVENT_ZSET, incr ? "zincr" : "zadd");
        if (incr)
            propagate_score(call, result.score, z->pairs[0].name);
    }
    zadd_reply(call, z, &result);
}

/* ZADD key [NX | XX] [GT | LT] [CH] [INCR] score member [score member ...] */
void kv_cmd_zadd(struct kv_call *call)
{
    struct zadd z = {0};
    int arg;
    zadd_options(call, &z, &arg);
    z.count = (size_t)(call->argc - arg) / 2;
    if (z.count == 0 || (call->argc - arg) % 2 != 0) {
        kv_call_syntax_error(call);
        return;
    }
    if (zadd_compatible(call, &z) && zadd_pairs(call, &z, arg))
        zadd(call, &z);
}

void kv_cmd_zincrby(struct kv_call *call)
{
    struct zadd z = {.flags = KV_ZADD_INCR, .count = 1};
    if (zadd_pairs(call, &z, 2))
        zadd(call, &z);
}

/* --- removing --- */

void kv_cmd_zrem(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_entry *e;
    struct kv_ranking r;
    uint64_t removed = 0;
    if (!kv_zset_write(call, 0, &e, &r))
        return;
    if (e != NULL) {
        enum kv_err err = kv_store_zset_remove(&call->view, k, &e, call->argv + 2,
                                               (size_t)call->argc - 2, call->arena, &removed);
        if (err != KV_OK) {
            kv_call_failed(call, err);
            return;
        }
    }
    if (removed != 0)
        kv_zset_shrunk(call, k, e, "zrem");
    kv_reply_int(call->out, (int64_t)removed);
}

/* --- asking --- */

void kv_cmd_zcard(struct kv_call *call)
{
    struct kv_ranking r;
    if (kv_zset_read(call, 0, &r))
        kv_reply_int(call->out, (int64_t)kv_ranking_count(&r));
}

void kv_cmd_zscore(struct kv_call *call)
{
    struct kv_ranking r;
    double score;
    int64_t due;
    if (!kv_zset_read(call, 0, &r))
        return;
    if (kv_ranking_find(&r, call->argv[2], &score, &due))
        kv_reply_double(call->out, score);
    else
        kv_reply_null(call->out);
}

void kv_cmd_zmscore(struct kv_call *call)
{
    struct kv_ranking r;
    struct kv_ranking_cursor c = {NULL};
    double score;
    int64_t due;
    if (!kv_zset_read(call, 0, &r))
        return;
    kv_reply_array(call->out, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) {
        if (kv_ranking_find_on(&r, &c, call->argv[i], &score, &due))
            kv_reply_double(call->out, score);
        else
            kv_reply_null(call->out);
    }
}

/* key member [WITHSCORE] */
static void rank_command(struct kv_call *call, bool down)
{
    bool with_score = call->argc > 3;
    struct kv_ranking r;
    uint64_t rank;
    double score;
    if (call->argc > 4) {
        kv_call_errorf(call, "ERR wrong number of arguments for '%s' command",
                       call->cmd->full_name);
        return;
    }
    if (with_score && !kv_call_arg_is(call, 3, "withscore")) {
        kv_call_syntax_error(call);
        return;
    }
    if (!kv_zset_read(call, 0, &r))
        return;
    if (!kv_ranking_rank(&r, call->argv[2], &rank, &score)) {
        if (with_score)
            kv_reply_null_array(call->out);
        else
            kv_reply_null(call->out);
        return;
    }
    if (down)
        rank = kv_ranking_count(&r) - 1 - rank;
    if (with_score)
        kv_reply_array(call->out, 2);
    kv_reply_int(call->out, (int64_t)rank);
    if (with_score)
        kv_reply_double(call->out, score);
}

void kv_cmd_zrank(struct kv_call *call)
{
    rank_command(call, false);
}

void kv_cmd_zrevrank(struct kv_call *call)
{
    rank_command(call, true);
}
