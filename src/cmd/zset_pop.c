/* Sorted sets: ZPOPMIN, ZPOPMAX, ZMPOP, ZRANDMEMBER, ZSCAN.
 *
 * A pop replies what lies at one end and removes it as a span of ranks. kv_zset_pop is also what a
 * client that waited gets, from whoever changed the key.
 *
 * Random members: one, or several with repetition, are each chosen by rank. Several distinct ones
 * are chosen by Floyd's method, which needs as many random numbers as members and keeps the chosen
 * ranks in a small hash table in the arena; a packed set is walked with them in ascending order. So
 * every subset is as likely, whatever the sizes are.
 *
 * Change stream: pops go as ZPOPMIN and ZPOPMAX, which do the same to the same set. ZRANDMEMBER
 * changes nothing.
 *
 * Threads: under the locks of all keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "cmd/member_scan.h"
#include "cmd/string_priv.h"
#include "cmd/zset_priv.h"
#include <stdlib.h>

/* --- pops --- */

bool kv_zset_pop(struct kv_call *call, const struct kv_key *k, struct kv_entry *e, bool max,
                 uint64_t count, enum kv_zset_form form)
{
    struct kv_ranking z;
    struct kv_ranking_walk w;
    struct kv_out_mark mark = kv_out_mark(call->out);
    enum kv_err err = kv_ranking_open(&call->view, k, &e, call->arena, &z);
    uint64_t members = err == KV_OK ? kv_ranking_count(&z) : 0;
    count = KV_MIN(count, members);
    if (err == KV_OK) {
        struct kv_span s = {max ? members - count : 0, count};
        kv_ranking_walk(&z, max && members != 0 ? members - 1 : 0, max, &w);
        kv_zset_reply_walk(call, &w, count, form);
        if (count != 0)
            err = kv_store_zset_remove_span(&call->view, k, &e, s);
    }
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
        return false;
    }
    if (count != 0)
        kv_zset_shrunk(call, k, e, max ? "zpopmax" : "zpopmin");
    return true;
}

static void pop_command(struct kv_call *call, bool max)
{
    int64_t count = 1;
    if (call->argc > 3) {
        kv_call_syntax_error(call);
        return;
    }
    if (call->argc == 3 && (!kv_int_parse(call->argv[2], &count) || count < 0)) {
        kv_call_error(call, "ERR value is out of range, must be positive");
        return;
    }
    struct kv_entry *e = kv_store_write(&call->view, &call->keys[0]);
    if (!kv_zset_is(call, e))
        return;
    if (e == NULL || count == 0)
        kv_reply_array(call->out, 0);
    else if (call->argc == 3)
        kv_zset_pop(call, &call->keys[0], e, max, (uint64_t)count, KV_ZSET_SCORES);
    else
        kv_zset_pop(call, &call->keys[0], e, max, 1, KV_ZSET_FLAT);
}

void kv_cmd_zpopmin(struct kv_call *call)
{
    pop_command(call, false);
}

void kv_cmd_zpopmax(struct kv_call *call)
{
    pop_command(call, true);
}

bool kv_zset_mpop_options(struct kv_call *call, int first, bool *max, uint64_t *count)
{
    int64_t numkeys, number = -1;
    if (!kv_int_parse(call->argv[first], &numkeys) || numkeys <= 0) {
        kv_call_error(call, "ERR numkeys should be greater than 0");
        return false;
    }
    int64_t arg = numkeys < call->argc ? first + 1 + numkeys : call->argc;
    bool valid = arg < call->argc;
    if (valid) {
        *max = kv_call_arg_is(call, (int)arg, "max");
        valid = *max || kv_call_arg_is(call, (int)arg, "min");
    }
    for (arg++; valid && arg < call->argc; arg += 2) {
        valid = number < 0 && arg + 1 < call->argc && kv_call_arg_is(call, (int)arg, "count");
        if (valid && (!kv_int_parse(call->argv[arg + 1], &number) || number <= 0)) {
            kv_call_error(call, "ERR count should be greater than 0");
            return false;
        }
    }
    if (!valid) {
        kv_call_syntax_error(call);
        return false;
    }
    *count = number < 0 ? 1 : (uint64_t)number;
    return true;
}

bool kv_zset_mpop_from(struct kv_call *call, int key, bool max, uint64_t count, bool *failed)
{
    const struct kv_key *k = &call->keys[key];
    struct kv_entry *e;
    struct kv_ranking z;
    *failed = !kv_zset_write(call, key, &e, &z);
    if (*failed || e == NULL)
        return false;
    struct kv_out_mark mark = kv_out_mark(call->out);
    kv_reply_array(call->out, 2);
    kv_reply_bulk(call->out, k->ptr, k->len);
    if (!kv_zset_pop(call, k, e, max, count, KV_ZSET_PAIRS)) {
        kv_out_rewind(call->out, &mark);
        kv_call_no_memory(call);
        *failed = true;
        return false;
    }
    struct kv_slice argv[3] = {max ? KV_SLICE("ZPOPMAX") : KV_SLICE("ZPOPMIN"), kv_key_slice(k),
                               kv_call_int_text(call, (int64_t)KV_MIN(count, (uint64_t)INT64_MAX))};
    kv_call_propagate(call, argv, 3);
    return true;
}

/* ZMPOP numkeys key [key ...] MIN | MAX [COUNT count] */
void kv_cmd_zmpop(struct kv_call *call)
{
    bool max = false, failed = false;
    uint64_t count;
    if (!kv_zset_mpop_options(call, 1, &max, &count))
        return;
    for (int i = 0; i < call->key_count; i++)
        if (kv_zset_mpop_from(call, i, max, count, &failed) || failed)
            return;
    kv_reply_null_array(call->out);
}

/* --- random members --- */

/* Ranks that were chosen already: open addressing, at most half full. */
struct chosen {
    uint64_t *slots; /* rank + 1; 0: free */
    uint64_t mask;
};

static bool chosen_init(struct chosen *c, struct kv_arena *arena, uint64_t count)
{
    uint64_t size = 16;
    while (size < 2 * count)
        size *= 2;
    c->mask = size - 1;
    c->slots = kv_arena_try_alloc(arena, size * sizeof(*c->slots));
    if (c->slots != NULL)
        memset(c->slots, 0, size * sizeof(*c->slots));
    return c->slots != NULL;
}

/* False: the rank was there. */
static bool chosen_add(struct chosen *c, uint64_t rank)
{
    uint64_t at = (rank * UINT64_C(0x9e3779b97f4a7c15)) >> 20 & c->mask;
    while (c->slots[at] != 0) {
        if (c->slots[at] == rank + 1)
            return false;
        at = (at + 1) & c->mask;
    }
    c->slots[at] = rank + 1;
    return true;
}

static int compare_ranks(const void *a, const void *b)
{
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* `count` distinct ranks below `members`, ascending, in the arena; NULL: no memory. */
static uint64_t *choose_ranks(struct kv_call *call, uint64_t members, uint64_t count)
{
    struct chosen c;
    uint64_t *ranks = kv_arena_try_alloc(call->arena, count * sizeof(*ranks)), found = 0;
    if (ranks == NULL || !chosen_init(&c, call->arena, count))
        return NULL;
    for (uint64_t last = members - count; last < members; last++) {
        uint64_t rank = kv_random_below(kv_cmd_random(), last + 1);
        if (!chosen_add(&c, rank)) {
            rank = last;
            chosen_add(&c, rank);
        }
        ranks[found++] = rank;
    }
    qsort(ranks, count, sizeof(*ranks), compare_ranks);
    return ranks;
}

static void reply_rank(struct kv_call *call, const struct kv_ranking *z, uint64_t rank,
                       enum kv_zset_form form)
{
    struct kv_ranking_walk w;
    struct kv_ranked m;
    kv_ranking_walk(z, rank, false, &w);
    bool there = kv_ranking_next(&w, &m);
    KV_ASSERT(there);
    kv_zset_reply_member(call, &m, form);
}

static void reply_distinct(struct kv_call *call, const struct kv_ranking *z, uint64_t count,
                           enum kv_zset_form form)
{
    uint64_t members = kv_ranking_count(z);
    struct kv_ranking_walk w;
    struct kv_ranked m;
    if (count >= members) {
        kv_ranking_walk(z, 0, false, &w);
        kv_zset_reply_walk(call, &w, members, form);
        return;
    }
    uint64_t *ranks = choose_ranks(call, members, count);
    if (ranks == NULL) {
        kv_call_no_memory(call);
        return;
    }
    kv_zset_reply_header(call, count, form);
    if (z->list == NULL) {
        for (uint64_t i = 0; i < count; i++)
            reply_rank(call, z, ranks[i], form);
        return;
    }
    kv_ranking_walk(z, 0, false, &w);
    for (uint64_t i = 0, rank = 0; i < count && kv_ranking_next(&w, &m); rank++) {
        if (ranks[i] != rank)
            continue;
        kv_zset_reply_member(call, &m, form);
        i++;
    }
}

/* ZRANDMEMBER key [count [WITHSCORES]] */
void kv_cmd_zrandmember(struct kv_call *call)
{
    struct kv_ranking z;
    int64_t count;
    enum kv_zset_form form = call->argc == 4 ? KV_ZSET_SCORES : KV_ZSET_NAMES;
    if (call->argc == 2) {
        if (!kv_zset_read(call, 0, &z))
            return;
        uint64_t members = kv_ranking_count(&z);
        if (members == 0)
            kv_reply_null(call->out);
        else
            reply_rank(call, &z, kv_random_below(kv_cmd_random(), members), KV_ZSET_NAMES);
        return;
    }
    if (!kv_call_int_range(call, 2, -INT64_MAX, INT64_MAX, &count))
        return;
    if (call->argc > 4 || (call->argc == 4 && !kv_call_arg_is(call, 3, "withscores"))) {
        kv_call_syntax_error(call);
        return;
    }
    if (form == KV_ZSET_SCORES && (count < -INT64_MAX / 2 || count > INT64_MAX / 2)) {
        kv_call_error(call, "ERR value is out of range");
        return;
    }
    if (!kv_zset_read(call, 0, &z))
        return;
    uint64_t members = kv_ranking_count(&z);
    if (count >= 0 || members == 0) {
        reply_distinct(call, &z, members == 0 ? 0 : (uint64_t)count, form);
        return;
    }
    kv_zset_reply_header(call, (uint64_t)-count, form);
    for (int64_t i = 0; i < -count; i++)
        reply_rank(call, &z, kv_random_below(kv_cmd_random(), members), form);
}

/* --- ZSCAN --- */

static void scan_member(const struct kv_ranked *m, void *arg)
{
    struct kv_member_scan *s = arg;
    char text[KV_DOUBLE_TEXT_MAX];
    if (!kv_member_scan_matches(s, m->name))
        return;
    kv_member_scan_add(s, m->name, m->name.ptr != m->scratch);
    if (m->score_text.ptr != NULL)
        kv_member_scan_add(s, m->score_text, true);
    else
        kv_member_scan_add(s, kv_slice(text, kv_double_print(m->score, text)), false);
}

/* ZSCAN key cursor [MATCH pattern] [COUNT count] */
void kv_cmd_zscan(struct kv_call *call)
{
    struct kv_member_scan s;
    struct kv_ranking z;
    struct kv_entry *e;
    uint64_t next = KV_TABLE_POSITION_END;
    if (!kv_member_scan_init(&s, call))
        return;
    e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_zset_open(call, &call->keys[0], &e, &z))
        return;
    if (e != NULL) {
        if (!kv_member_scan_options(&s, 0))
            return;
        if (s.cursor < KV_TABLE_POSITION_END)
            next = kv_ranking_scan(&z, s.cursor, s.count, scan_member, &s);
    }
    kv_member_scan_reply(&s, next < KV_TABLE_POSITION_END ? next : 0);
}
