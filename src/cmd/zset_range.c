/* Ranges of sorted sets: ZRANGE in all its forms, ZRANGESTORE, ZREVRANGE, ZRANGEBYSCORE,
 * ZREVRANGEBYSCORE, ZRANGEBYLEX, ZREVRANGEBYLEX, ZCOUNT, ZLEXCOUNT, ZREMRANGEBYRANK,
 * ZREMRANGEBYSCORE, ZREMRANGEBYLEX.
 *
 * Every range, of ranks, scores or names, becomes a span of ranks; LIMIT cuts a piece out of it,
 * and a walk from one of its ends replies it. So the number of members is known before the first.
 *
 * Invariants
 *   - Options are read first, then bounds, then the key is looked up, as in Redis: the first error
 *     is the same one, and a bad bound is an error even when there is no such key.
 *   - Going down, the bounds of scores and names come in the other order, maximum first; ranks
 *     count from the high end.
 *
 * Threads: under the locks of all keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/zset_priv.h"
#include <errno.h>
#include <stdlib.h>

#define BOUND_COPY 256 /* bytes of a bound that are read on the stack */

enum range_kind { BY_RANK, BY_SCORE, BY_LEX };

enum range_words { /* option words that a command knows */
                   WORD_SCORES = 1,
                   WORD_LIMIT = 2,
                   WORD_KIND = 4, /* REV, BYSCORE, BYLEX */
};

struct range {
    enum range_kind kind;
    bool down, with_scores;
    int64_t offset, limit; /* limit < 0: none */
    int min_arg, max_arg;
    struct kv_score_range scores;
    struct kv_lex_range names;
    int64_t start, end; /* ranks, negative from the end */
};

/* --- bounds --- */

/* A bound is what strtod reads to its end, a NUL being one as well: more than a score may be. */
static bool parse_bound(struct kv_call *call, struct kv_slice text, double *value, bool *open)
{
    char stack[BOUND_COPY], *copy = stack, *end;
    *open = text.len > 0 && text.ptr[0] == '(';
    if (*open)
        text = kv_slice(text.ptr + 1, text.len - 1);
    if (KV_LIKELY(kv_double_parse(text, value)))
        return true;
    if (text.len >= BOUND_COPY && (copy = kv_arena_try_alloc(call->arena, text.len + 1)) == NULL)
        return false;
    if (text.len != 0)
        memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    *value = strtod(copy, &end);
    return *end == '\0' && *value == *value;
}

bool kv_zset_score_range(struct kv_call *call, int min_arg, int max_arg,
                         struct kv_score_range *range)
{
    if (parse_bound(call, call->argv[min_arg], &range->min, &range->min_open) &&
        parse_bound(call, call->argv[max_arg], &range->max, &range->max_open))
        return true;
    kv_call_error(call, "ERR min or max is not a float");
    return false;
}

static bool parse_name(struct kv_slice text, struct kv_slice *name, enum kv_lex_kind *kind)
{
    char first = text.len > 0 ? text.ptr[0] : '\0';
    *name = text.len > 0 ? kv_slice(text.ptr + 1, text.len - 1) : text;
    switch (first) {
    case '-':
        *kind = KV_LEX_LOWEST;
        return text.len == 1;
    case '+':
        *kind = KV_LEX_HIGHEST;
        return text.len == 1;
    case '(':
        *kind = KV_LEX_OPEN;
        return true;
    case '[':
        *kind = KV_LEX_CLOSED;
        return true;
    default:
        return false;
    }
}

bool kv_zset_lex_range(struct kv_call *call, int min_arg, int max_arg, struct kv_lex_range *range)
{
    if (parse_name(call->argv[min_arg], &range->min, &range->min_kind) &&
        parse_name(call->argv[max_arg], &range->max, &range->max_kind))
        return true;
    kv_call_error(call, "ERR min or max not valid string range item");
    return false;
}

static bool parse_bounds(struct kv_call *call, struct range *r)
{
    switch (r->kind) {
    case BY_RANK:
        return kv_call_int(call, r->min_arg, &r->start) && kv_call_int(call, r->max_arg, &r->end);
    case BY_SCORE:
        return kv_zset_score_range(call, r->min_arg, r->max_arg, &r->scores);
    case BY_LEX:
        return kv_zset_lex_range(call, r->min_arg, r->max_arg, &r->names);
    }
    KV_UNREACHABLE();
}

/* --- spans --- */

/* Ranks as a command gives them. */
static struct kv_span span_of_ranks(int64_t start, int64_t end, uint64_t count)
{
    int64_t size = (int64_t)count;
    start = start < 0 ? KV_MAX(start + size, (int64_t)0) : start;
    end = end < 0 ? end + size : KV_MIN(end, size - 1);
    if (start > end || start >= size)
        return (struct kv_span){0, 0};
    return (struct kv_span){(uint64_t)start, (uint64_t)(end - start) + 1};
}

/* The span of a range, LIMIT not looked at. */
static struct kv_span span_of(const struct kv_ranking *z, const struct range *r)
{
    uint64_t count = kv_ranking_count(z);
    if (r->kind == BY_SCORE)
        return kv_ranking_by_score(z, &r->scores);
    if (r->kind == BY_LEX)
        return kv_ranking_by_lex(z, &r->names);
    struct kv_span s = span_of_ranks(r->start, r->end, count);
    if (r->down && s.count != 0)
        s.first = count - s.first - s.count;
    return s;
}

/* Cuts what LIMIT wants out of a span, at the end from where the walk goes. */
static struct kv_span limit_span(struct kv_span s, const struct range *r)
{
    uint64_t offset = (uint64_t)r->offset;
    if (r->offset < 0 || offset >= s.count)
        return (struct kv_span){0, 0};
    uint64_t count = s.count - offset;
    if (r->limit >= 0)
        count = KV_MIN(count, (uint64_t)r->limit);
    s.first += r->down ? s.count - offset - count : offset;
    s.count = count;
    return s;
}

static void start_walk(const struct kv_ranking *z, struct kv_span s, bool down,
                       struct kv_ranking_walk *w)
{
    kv_ranking_walk(z, down && s.count != 0 ? s.first + s.count - 1 : s.first, down, w);
}

/* --- reading --- */

/* Reads the options from argument `arg` on. Of words of one kind only one may come. */
static bool parse_words(struct kv_call *call, int arg, unsigned words, struct range *r)
{
    bool limited = false;
    for (; arg < call->argc; arg++) {
        int left = call->argc - arg - 1;
        if (words & WORD_SCORES && kv_call_arg_is(call, arg, "withscores")) {
            r->with_scores = true;
        } else if (words & WORD_LIMIT && left >= 2 && kv_call_arg_is(call, arg, "limit")) {
            if (!kv_call_int(call, arg + 1, &r->offset) || !kv_call_int(call, arg + 2, &r->limit))
                return false;
            limited = r->limit != -1;
            arg += 2;
        } else if (words & WORD_KIND && !r->down && kv_call_arg_is(call, arg, "rev")) {
            r->down = true;
        } else if (words & WORD_KIND && r->kind == BY_RANK && kv_call_arg_is(call, arg, "bylex")) {
            r->kind = BY_LEX;
        } else if (words & WORD_KIND && r->kind == BY_RANK &&
                   kv_call_arg_is(call, arg, "byscore")) {
            r->kind = BY_SCORE;
        } else {
            kv_call_syntax_error(call);
            return false;
        }
    }
    if (limited && r->kind == BY_RANK) {
        kv_call_error(call, "ERR syntax error, LIMIT is only supported in combination with either "
                            "BYSCORE or BYLEX");
        return false;
    }
    if (r->with_scores && r->kind == BY_LEX) {
        kv_call_error(call, "ERR syntax error, WITHSCORES not supported in combination with BYLEX");
        return false;
    }
    if (r->kind == BY_RANK)
        r->offset = 0;
    return true;
}

/* Reads options and bounds; `first` is the argument of the first bound. */
static bool parse_range(struct kv_call *call, int first, unsigned words, struct range *r)
{
    if (!parse_words(call, first + 2, words, r))
        return false;
    bool swapped = r->down && r->kind != BY_RANK;
    r->min_arg = first + swapped;
    r->max_arg = first + !swapped;
    return parse_bounds(call, r);
}

static void reply_range(struct kv_call *call, enum range_kind kind, bool down, unsigned words)
{
    struct range r = {.kind = kind, .down = down, .limit = -1};
    struct kv_ranking z;
    struct kv_ranking_walk w;
    if (!parse_range(call, 2, words, &r) || !kv_zset_read(call, 0, &z))
        return;
    struct kv_span s = limit_span(span_of(&z, &r), &r);
    start_walk(&z, s, r.down, &w);
    kv_zset_reply_walk(call, &w, s.count, r.with_scores ? KV_ZSET_SCORES : KV_ZSET_NAMES);
}

/* ZRANGE key start stop [BYSCORE | BYLEX] [REV] [LIMIT offset count] [WITHSCORES] */
void kv_cmd_zrange(struct kv_call *call)
{
    reply_range(call, BY_RANK, false, WORD_SCORES | WORD_LIMIT | WORD_KIND);
}

void kv_cmd_zrevrange(struct kv_call *call)
{
    reply_range(call, BY_RANK, true, WORD_SCORES | WORD_LIMIT);
}

void kv_cmd_zrangebyscore(struct kv_call *call)
{
    reply_range(call, BY_SCORE, false, WORD_SCORES | WORD_LIMIT);
}

void kv_cmd_zrevrangebyscore(struct kv_call *call)
{
    reply_range(call, BY_SCORE, true, WORD_SCORES | WORD_LIMIT);
}

void kv_cmd_zrangebylex(struct kv_call *call)
{
    reply_range(call, BY_LEX, false, WORD_SCORES | WORD_LIMIT);
}

void kv_cmd_zrevrangebylex(struct kv_call *call)
{
    reply_range(call, BY_LEX, true, WORD_SCORES | WORD_LIMIT);
}

void kv_cmd_zcount(struct kv_call *call)
{
    struct kv_score_range range;
    struct kv_ranking z;
    if (kv_zset_score_range(call, 2, 3, &range) && kv_zset_read(call, 0, &z))
        kv_reply_int(call->out, (int64_t)kv_ranking_by_score(&z, &range).count);
}

void kv_cmd_zlexcount(struct kv_call *call)
{
    struct kv_lex_range range;
    struct kv_ranking z;
    if (kv_zset_lex_range(call, 2, 3, &range) && kv_zset_read(call, 0, &z))
        kv_reply_int(call->out, (int64_t)kv_ranking_by_lex(&z, &range).count);
}

/* --- storing --- */

/* The members of a span as pairs; NULL: no memory. */
static struct kv_zset_pair *pairs_of(struct kv_call *call, const struct kv_ranking *z,
                                     struct kv_span s)
{
    struct kv_zset_pair *pairs = kv_arena_try_alloc(call->arena, s.count * sizeof(*pairs));
    struct kv_ranking_walk w;
    struct kv_ranked m;
    if (pairs == NULL)
        return NULL;
    kv_ranking_walk(z, s.first, false, &w);
    for (uint64_t i = 0; i < s.count; i++) {
        bool more = kv_ranking_next(&w, &m);
        KV_ASSERT(more);
        pairs[i] = (struct kv_zset_pair){kv_zset_stable_name(call, &m), kv_ranked_score(&m)};
        if (pairs[i].name.ptr == NULL)
            return NULL;
    }
    return pairs;
}

/* ZRANGESTORE dst src min max [BYSCORE | BYLEX] [REV] [LIMIT offset count] */
void kv_cmd_zrangestore(struct kv_call *call)
{
    struct range r = {.kind = BY_RANK, .limit = -1};
    struct kv_ranking z;
    if (!parse_range(call, 3, WORD_LIMIT | WORD_KIND, &r) || !kv_zset_read(call, 1, &z))
        return;
    struct kv_span s = limit_span(span_of(&z, &r), &r);
    struct kv_zset_pair *pairs = pairs_of(call, &z, s);
    if (pairs == NULL)
        kv_call_no_memory(call);
    else if (kv_zset_store(call, 0, pairs, s.count, "zrangestore"))
        kv_reply_int(call->out, (int64_t)s.count);
}

/* --- removing --- */

static void remove_range(struct kv_call *call, enum range_kind kind, const char *event)
{
    const struct kv_key *k = &call->keys[0];
    struct range r = {.kind = kind, .min_arg = 2, .max_arg = 3};
    struct kv_entry *e;
    struct kv_ranking z;
    if (!parse_bounds(call, &r) || !kv_zset_write(call, 0, &e, &z))
        return;
    struct kv_span s = span_of(&z, &r);
    if (s.count != 0) {
        enum kv_err err = kv_store_zset_remove_span(&call->view, k, &e, s);
        if (err != KV_OK) {
            kv_call_failed(call, err);
            return;
        }
        kv_zset_shrunk(call, k, e, event);
    }
    kv_reply_int(call->out, (int64_t)s.count);
}

void kv_cmd_zremrangebyrank(struct kv_call *call)
{
    remove_range(call, BY_RANK, "zremrangebyrank");
}

void kv_cmd_zremrangebyscore(struct kv_call *call)
{
    remove_range(call, BY_SCORE, "zremrangebyscore");
}

void kv_cmd_zremrangebylex(struct kv_call *call)
{
    remove_range(call, BY_LEX, "zremrangebylex");
}
