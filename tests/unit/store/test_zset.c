/* store/zset.h: packed and large sorted sets beside a naive model, every allocation failing in
 * turn, views that keep due members. */
#include "base/random.h"
#include "fixture.h"
#include "store/zset.h"

#define NAMES 200u

static struct kv_arena arena;
static struct kv_key key;

static void setup(uint64_t entries)
{
    kv_mem_init();
    store_setup();
    struct kv_collection_limits limits = kv_collection_limits_default;
    limits.zset_max_listpack_entries = entries;
    kv_store_set_limits(store, &limits);
    kv_arena_init(&arena, 16384, KV_MEM_ARENA);
    key = kv_store_key(store, KV_SLICE("key"));
}

static void teardown(void)
{
    kv_arena_release(&arena);
    store_teardown();
}

static char names[NAMES][24];

static struct kv_slice name_of(unsigned i)
{
    /* Some are integers in a list. */
    int len = i % 4 == 0 ? sprintf(names[i], "%u", i * 37) : sprintf(names[i], "member:%u", i);
    return kv_slice(names[i], (size_t)len);
}

struct model {
    bool present[NAMES];
    double score[NAMES];
};

static double random_score(struct kv_random *r)
{
    static const double scores[] = {0, 1, 2, 2.5, -3, 0.1, 1e17, 100000, -1e300};
    return scores[kv_random_below(r, KV_ARRAY_LEN(scores))];
}

static void check_same(struct kv_entry *e, const struct model *m)
{
    struct kv_ranking r;
    struct kv_ranking_walk w;
    struct kv_ranked ranked;
    struct kv_zset_pair last = {0}, now;
    uint64_t count = 0, rank;
    double score;
    int64_t due;
    static char last_name[64];
    ck_assert_int_eq(kv_ranking_open(&view, &key, &e, &arena, &r), KV_OK);
    for (unsigned i = 0; i < NAMES; i++) {
        ck_assert_int_eq(kv_ranking_find(&r, name_of(i), &score, &due), m->present[i]);
        if (!m->present[i])
            continue;
        ck_assert(score == m->score[i]);
        ck_assert(kv_ranking_rank(&r, name_of(i), &rank, &score));
        count++;
    }
    ck_assert_uint_eq(kv_ranking_count(&r), count);
    kv_ranking_walk(&r, 0, false, &w);
    for (; kv_ranking_next(&w, &ranked); count--) {
        now = (struct kv_zset_pair){ranked.name, kv_ranked_score(&ranked)};
        if (last.name.ptr != NULL)
            ck_assert_int_lt(kv_zset_pair_compare(&last, &now), 0);
        memcpy(last_name, now.name.ptr, now.name.len);
        last = (struct kv_zset_pair){kv_slice(last_name, now.name.len), now.score};
    }
    ck_assert_uint_eq(count, 0);
    kv_store_check(store);
    assert_accounted();
}

static size_t random_pairs(struct kv_random *r, struct kv_zset_pair *pairs, unsigned *which)
{
    size_t count = kv_random_below(r, 3) == 0 ? 1 : 1 + kv_random_below(r, 12);
    for (size_t i = 0; i < count; i++) {
        which[i] = (unsigned)kv_random_below(r, NAMES);
        pairs[i] = (struct kv_zset_pair){name_of(which[i]), random_score(r)};
    }
    return count;
}

/* What a ZADD without INCR does to the model; returns how many members were added. */
static uint64_t add_to_model(struct model *m, const struct kv_zset_pair *pairs,
                             const unsigned *which, size_t count, uint32_t flags)
{
    uint64_t added = 0;
    for (size_t i = 0; i < count; i++) {
        bool *present = &m->present[which[i]];
        double *score = &m->score[which[i]], wanted = pairs[i].score;
        if (!*present && !(flags & KV_ZADD_XX)) {
            *present = true;
            *score = wanted;
            added++;
        } else if (*present && !(flags & KV_ZADD_NX) && !(flags & KV_ZADD_GT && wanted <= *score) &&
                   !(flags & KV_ZADD_LT && wanted >= *score)) {
            *score = wanted;
        }
    }
    return added;
}

/* Adds pairs, or removes their names, with each allocation failing in turn until all goes well. */
static void change(struct kv_entry **e, struct model *m, struct kv_random *r)
{
    static const uint32_t flags[] = {0, 0, 0, KV_ZADD_NX, KV_ZADD_XX, KV_ZADD_GT, KV_ZADD_LT};
    struct kv_zset_pair pairs[16];
    struct kv_slice gone[16];
    unsigned which[16];
    size_t count = random_pairs(r, pairs, which);
    uint32_t flag = flags[kv_random_below(r, KV_ARRAY_LEN(flags))];
    bool removes = kv_random_below(r, 4) == 0;
    enum kv_err err = KV_ERR_NOMEM;
    for (uint64_t n = 1; err != KV_OK; n++) {
        struct kv_zadd_result result = {0};
        uint64_t removed = 0, missing = 0;
        for (size_t i = 0; i < count; i++)
            gone[i] = pairs[i].name;
        kv_mem_fail_try(kv_random_below(r, 3) == 0 ? n : 0);
        if (!removes)
            err = kv_store_zset_add(&view, &key, e, pairs, count, flag, &arena, &result);
        else
            err = *e != NULL ? kv_store_zset_remove(&view, &key, e, gone, count, &arena, &removed)
                             : KV_OK;
        kv_mem_fail_try(0);
        if (err != KV_OK) {
            check_same(*e, m);
            continue;
        }
        for (size_t i = 0; removes && i < count; i++) {
            missing += m->present[which[i]];
            m->present[which[i]] = false;
        }
        if (removes)
            ck_assert_uint_eq(removed, missing);
        else
            ck_assert_uint_eq(result.added, add_to_model(m, pairs, which, count, flag));
    }
    kv_arena_reset(&arena);
}

START_TEST(both_forms_do_what_a_naive_set_does)
{
    static const uint64_t entries[] = {0, 20, 1000};
    static struct model m;
    struct kv_random r;
    setup(entries[_i]);
    kv_random_init(&r, unit_seed("zset"));
    memset(&m, 0, sizeof(m));
    struct kv_entry *e = NULL;
    for (unsigned step = 0; step < 3000; step++) {
        change(&e, &m, &r);
        if (step % 50 == 0)
            check_same(e, &m);
    }
    check_same(e, &m);
    if (e != NULL)
        kv_store_delete(&view, &key, e);
    teardown();
}
END_TEST

START_TEST(a_view_that_keeps_due_members_does_not_show_them)
{
    struct kv_zset_pair pairs[] = {
        {KV_SLICE("a"), 1}, {KV_SLICE("b"), 2}, {KV_SLICE("30"), 3}, {KV_SLICE("d"), 4.5}};
    struct kv_zadd_result result;
    struct kv_ranking r;
    struct kv_entry *e = NULL;
    uint64_t rank;
    double score;
    bool found;
    setup(_i == 0 ? 100 : 0);
    ck_assert_int_eq(kv_store_zset_add(&view, &key, &e, pairs, 4, 0, &arena, &result), KV_OK);
    ck_assert_int_eq(
        kv_store_zset_set_due(&view, &key, &e, pairs[1].name, FIXTURE_NOW + 5, &arena, &found),
        KV_OK);
    ck_assert(found);
    view.now_ms += 10;
    view.flags |= KV_VIEW_NO_EXPIRE;
    ck_assert_int_eq(kv_ranking_open(&view, &key, &e, &arena, &r), KV_OK);
    ck_assert_uint_eq(kv_ranking_count(&r), 3);
    ck_assert(!kv_ranking_rank(&r, pairs[1].name, &rank, &score));
    ck_assert(kv_ranking_rank(&r, pairs[3].name, &rank, &score));
    ck_assert_uint_eq(rank, 2);
    ck_assert(score == 4.5);
    view.flags &= ~(uint32_t)KV_VIEW_NO_EXPIRE;
    ck_assert_int_eq(kv_ranking_open(&view, &key, &e, &arena, &r), KV_OK);
    ck_assert_uint_eq(kv_ranking_count(&r), 3);
    ck_assert_uint_eq(kv_stat_read(&stats.expired_members), 1);
    kv_store_delete(&view, &key, e);
    teardown();
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "zset");
    tcase_add_loop_test(u.tcase, both_forms_do_what_a_naive_set_does, 0, 3);
    tcase_add_loop_test(u.tcase, a_view_that_keeps_due_members_does_not_show_them, 0, 2);
    return unit_run(&u);
}
