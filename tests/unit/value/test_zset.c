/* value/zset.h: a random series of changes beside a naive model, due times, exact bytes. */
#include "base/random.h"
#include "unit.h"
#include "value/zset.h"
#include <stdlib.h>

#define NAMES 600u

static const struct kv_hash_key hash_key = {1, 2};

struct model {
    bool present[NAMES];
    double score[NAMES];
    int64_t due[NAMES];
};

static struct kv_slice name_of(unsigned i, char *buffer)
{
    /* Some names need four bytes for their length. */
    int len = sprintf(buffer, "name:%04u", i);
    if (i % 7 == 0) {
        memset(buffer + len, 'n', 300);
        len += 300;
    }
    return kv_slice(buffer, (size_t)len);
}

static uint64_t model_rank(const struct model *m, unsigned of)
{
    uint64_t rank = 0;
    for (unsigned i = 0; i < NAMES; i++)
        rank += m->present[i] &&
                (m->score[i] < m->score[of] || (m->score[i] == m->score[of] && i < of));
    return rank;
}

static void check_same(const struct kv_zset *z, const struct model *m)
{
    char buffer[400];
    uint64_t count = 0;
    int64_t first = KV_NOT_DUE;
    for (unsigned i = 0; i < NAMES; i++) {
        struct kv_slice name = name_of(i, buffer);
        struct kv_scored *s = kv_zset_find(z, name, kv_zset_hash(z, name));
        ck_assert_int_eq(s != NULL, m->present[i]);
        if (s == NULL)
            continue;
        count++;
        ck_assert(s->score == m->score[i]);
        ck_assert_int_eq(kv_scored_due(s), m->due[i]);
        if (i % 10 == 0)
            ck_assert_uint_eq(kv_zset_rank(z, s), model_rank(m, i));
        if (m->due[i] != KV_NOT_DUE && (first == KV_NOT_DUE || m->due[i] < first))
            first = m->due[i];
    }
    ck_assert_uint_eq(kv_zset_count(z), count);
    ck_assert_int_eq(kv_zset_first_due(z), first);
    kv_zset_check(z);
}

static void change(struct kv_zset *z, struct model *m, unsigned i, struct kv_random *r)
{
    char buffer[400];
    struct kv_slice name = name_of(i, buffer);
    uint64_t hash = kv_zset_hash(z, name);
    double score = (double)kv_random_below(r, 40) / 4 - 5;
    int64_t due = kv_random_below(r, 3) == 0 ? (int64_t)kv_random_below(r, 1000) : KV_NOT_DUE;
    struct kv_scored *s = kv_zset_find(z, name, hash);
    if (s == NULL) {
        ck_assert_int_eq(kv_zset_add(z, name, hash, score, due, false), KV_OK);
        m->present[i] = true;
        m->score[i] = score;
        m->due[i] = due;
        return;
    }
    switch (kv_random_below(r, 4)) {
    case 0:
        kv_zset_remove(z, s, hash);
        m->present[i] = false;
        return;
    case 1:
        ck_assert_int_eq(kv_zset_set_due(z, s, hash, due), KV_OK);
        m->due[i] = due;
        return;
    default:
        ck_assert_int_eq(kv_zset_set_score(z, s, score), KV_OK);
        m->score[i] = score;
    }
}

START_TEST(it_does_what_a_naive_ranking_does)
{
    kv_mem_init();
    struct kv_random r;
    kv_random_init(&r, unit_seed("zset"));
    static struct model m;
    memset(&m, 0, sizeof(m));
    struct kv_zset *z = kv_zset_create(&hash_key);
    for (unsigned step = 0; step < 8000; step++) {
        change(z, &m, (unsigned)kv_random_below(&r, NAMES), &r);
        if (step % 200 == 0) {
            check_same(z, &m);
            ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), (int64_t)kv_zset_footprint(z).block_bytes);
        }
    }
    struct kv_zset *copy = kv_zset_copy(z);
    check_same(copy, &m);
    kv_zset_free(z);
    check_same(copy, &m);
    struct kv_scored *s;
    int64_t last = 0;
    while ((s = kv_zset_first_due_member(copy)) != NULL) {
        ck_assert_int_ge(kv_scored_due(s), last);
        last = kv_scored_due(s);
        kv_zset_remove(copy, s, kv_zset_hash(copy, kv_scored_name(s)));
    }
    kv_zset_check(copy);
    kv_zset_free(copy);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(places_tell_scores_and_names_apart)
{
    kv_mem_init();
    struct kv_zset *z = kv_zset_create(&hash_key);
    char buffer[400];
    for (unsigned i = 0; i < 500; i++) {
        struct kv_slice name = name_of(i, buffer);
        ck_assert_int_eq(kv_zset_add(z, name, kv_zset_hash(z, name), i / 100, KV_NOT_DUE, true),
                         KV_OK);
    }
    kv_zset_check(z);
    struct kv_slice name = name_of(250, buffer);
    struct kv_order_place before = kv_zset_before_score(2), behind = kv_zset_behind_score(2),
                          at = kv_zset_before_name(2, &name), past = kv_zset_behind_name(2, &name);
    ck_assert_uint_eq(kv_order_rank(&z->order, &before), 200);
    ck_assert_uint_eq(kv_order_rank(&z->order, &behind), 300);
    ck_assert_uint_eq(kv_order_rank(&z->order, &at), 250);
    ck_assert_uint_eq(kv_order_rank(&z->order, &past), 251);
    kv_zset_free(z);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

#ifdef KV_DEBUG
START_TEST(a_failure_changes_nothing)
{
    kv_mem_init();
    static struct model m;
    char buffer[400];
    memset(&m, 0, sizeof(m));
    struct kv_zset *z = kv_zset_create(&hash_key);
    for (unsigned i = 0; i < NAMES; i++) {
        struct kv_slice name = name_of(i, buffer);
        uint64_t hash = kv_zset_hash(z, name);
        int64_t due = i % 3 == 0 ? 1000 - (int64_t)i : KV_NOT_DUE;
        enum kv_err err = KV_ERR_NOMEM;
        for (unsigned n = 1; err != KV_OK; n++) {
            kv_mem_fail_try(n);
            err = kv_zset_add(z, name, hash, i % 17, due, false);
            kv_mem_fail_try(0);
            if (err != KV_OK)
                kv_zset_check(z);
        }
        m.present[i] = true;
        m.score[i] = i % 17;
        m.due[i] = due;
        struct kv_scored *s = kv_zset_find(z, name, hash);
        for (unsigned n = 1; n < 4 && i % 5 == 0; n++) {
            int64_t other = due == KV_NOT_DUE ? 7 : KV_NOT_DUE;
            kv_mem_fail_try(n);
            err = kv_zset_set_due(z, s, hash, other);
            kv_mem_fail_try(0);
            s = kv_zset_find(z, name, hash);
            if (err == KV_OK)
                ck_assert_int_eq(kv_zset_set_due(z, s, hash, due), KV_OK);
            s = kv_zset_find(z, name, hash);
            kv_zset_check(z);
        }
    }
    check_same(z, &m);
    kv_zset_free(z);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST
#endif

int main(void)
{
    struct unit u;
    unit_begin(&u, "zset");
    unit_add(&u, it_does_what_a_naive_ranking_does);
    unit_add(&u, places_tell_scores_and_names_apart);
#ifdef KV_DEBUG
    unit_add(&u, a_failure_changes_nothing);
#endif
    return unit_run(&u);
}
