/* ds/order.h: a random series of changes beside a sorted array, ranks, walks, failures, moves. */
#include "base/random.h"
#include "ds/order.h"
#include "unit.h"

#define ITEMS 3000u

/* Items are addresses in this array, which are never looked at: their order is that of numbers. */
static uint64_t items[ITEMS];

struct model {
    bool present[ITEMS];
    double score[ITEMS];
};

static bool before(const void *item, const void *arg)
{
    return item < arg;
}

static bool less(const void *a, const void *b)
{
    return a < b;
}

static struct kv_order_place place_of(double score, unsigned i)
{
    return (struct kv_order_place){score, before, &items[i]};
}

static uint64_t model_rank(const struct model *m, double score, unsigned item)
{
    uint64_t rank = 0;
    for (unsigned i = 0; i < ITEMS; i++)
        rank += m->present[i] && (m->score[i] < score || (m->score[i] == score && i < item));
    return rank;
}

static void check_ranks(const struct kv_order *o, const struct model *m, struct kv_random *r)
{
    for (unsigned tries = 0; tries < 20; tries++) {
        unsigned i = (unsigned)kv_random_below(r, ITEMS);
        double score = m->present[i] ? m->score[i] : (double)kv_random_below(r, 50);
        struct kv_order_place p = place_of(score, i);
        struct kv_order_cursor seek, at;
        uint64_t rank = model_rank(m, score, i);
        ck_assert_uint_eq(kv_order_rank(o, &p), rank);
        bool found = kv_order_seek(o, &p, &seek);
        ck_assert_int_eq(found, rank < o->count);
        ck_assert_int_eq(kv_order_at(o, rank, &at), found);
        if (!found)
            continue;
        ck_assert_ptr_eq(kv_order_item(&seek), kv_order_item(&at));
        if (m->present[i])
            ck_assert_ptr_eq(kv_order_item(&seek), &items[i]);
        ck_assert_int_eq(kv_order_prev(&seek), rank > 0);
    }
}

static void check_walks(const struct kv_order *o)
{
    struct kv_order_cursor c;
    uint64_t count = 0;
    for (bool more = kv_order_at(o, 0, &c); more; more = kv_order_next(&c))
        count++;
    ck_assert_uint_eq(count, o->count);
    for (bool more = o->count != 0 && kv_order_at(o, o->count - 1, &c); more;
         more = kv_order_prev(&c))
        count--;
    ck_assert_uint_eq(count, 0);
}

static void change(struct kv_order *o, struct model *m, struct kv_random *r, unsigned spread)
{
    unsigned i = (unsigned)kv_random_below(r, ITEMS);
    double score = (double)kv_random_below(r, spread) - 3;
    struct kv_order_place from = place_of(m->score[i], i), to = place_of(score, i);
    if (!m->present[i]) {
        ck_assert_int_eq(kv_order_insert(o, &to, &items[i]), KV_OK);
    } else if (kv_random_below(r, 3) == 0) {
        kv_order_remove(o, &from, &items[i]);
        m->present[i] = false;
        return;
    } else if (score != m->score[i]) {
        ck_assert_int_eq(kv_order_change(o, &from, &to, &items[i]), KV_OK);
    }
    m->present[i] = true;
    m->score[i] = score;
}

static void empty(struct kv_order *o, struct model *m, struct kv_random *r)
{
    while (o->count != 0) {
        struct kv_order_cursor c;
        ck_assert(kv_order_at(o, kv_random_below(r, o->count), &c));
        unsigned i = (unsigned)((uint64_t *)kv_order_item(&c) - items);
        struct kv_order_place p = place_of(m->score[i], i);
        kv_order_remove(o, &p, &items[i]);
        m->present[i] = false;
        if (o->count % 100 == 0)
            kv_order_check(o, less);
    }
}

START_TEST(it_does_what_a_sorted_array_does)
{
    static const unsigned spreads[] = {1, 7, 1000, 1u << 30};
    static struct model m;
    kv_mem_init();
    struct kv_random r;
    kv_random_init(&r, unit_seed("order"));
    struct kv_order o;
    kv_order_init(&o, KV_MEM_VALUE);
    for (unsigned s = 0; s < KV_ARRAY_LEN(spreads); s++) {
        memset(&m, 0, sizeof(m));
        for (unsigned step = 0; step < 20000; step++) {
            change(&o, &m, &r, spreads[s]);
            if (step % 1000 == 999) {
                kv_order_check(&o, less);
                check_ranks(&o, &m, &r);
                check_walks(&o);
                ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), (int64_t)kv_order_memory(&o));
            }
        }
        empty(&o, &m, &r);
    }
    ck_assert_ptr_null(o.root);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(appending_leaves_leaves_full_and_random_order_nearly_so)
{
    kv_mem_init();
    struct kv_random r;
    kv_random_init(&r, 5);
    struct kv_order o;
    kv_order_init(&o, KV_MEM_VALUE);
    for (unsigned i = 0; i < ITEMS; i++)
        ck_assert_int_eq(kv_order_append(&o, i / 10, &items[i]), KV_OK);
    kv_order_check(&o, less);
    ck_assert_uint_le(kv_order_memory(&o) / ITEMS, 15);
    kv_order_release(&o);
    for (unsigned i = 0; i < 100000; i++) {
        struct kv_order_place p = {.score = (double)kv_random_next(&r)};
        ck_assert_int_eq(kv_order_insert(&o, &p, &items[i % ITEMS]), KV_OK);
    }
    kv_order_check(&o, NULL);
    ck_assert_uint_le(kv_order_memory(&o) / 100000, 17);
    kv_order_release(&o);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

#ifdef KV_DEBUG
START_TEST(a_failure_changes_nothing_and_what_is_reserved_cannot_fail)
{
    kv_mem_init();
    struct kv_order o;
    kv_order_init(&o, KV_MEM_VALUE);
    for (unsigned i = 0; i < ITEMS; i += 2) {
        struct kv_order_place p = place_of(i, i);
        kv_mem_fail_try(1);
        enum kv_err err = kv_order_insert(&o, &p, &items[i]);
        kv_mem_fail_try(0);
        kv_order_check(&o, less);
        if (err != KV_OK)
            ck_assert_int_eq(kv_order_insert(&o, &p, &items[i]), KV_OK);
    }
    ck_assert_int_eq(kv_order_reserve(&o, ITEMS / 2), KV_OK);
    for (unsigned i = 1; i < ITEMS; i += 2) {
        struct kv_order_place p = place_of(i / 2, i);
        kv_mem_fail_try(1);
        ck_assert_int_eq(kv_order_insert(&o, &p, &items[i]), KV_OK);
        kv_mem_fail_try(0);
    }
    kv_order_unreserve(&o);
    kv_order_check(&o, less);
    kv_order_release(&o);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST
#endif

int main(void)
{
    struct unit u;
    unit_begin(&u, "order");
    unit_add(&u, it_does_what_a_sorted_array_does);
    unit_add(&u, appending_leaves_leaves_full_and_random_order_nearly_so);
#ifdef KV_DEBUG
    unit_add(&u, a_failure_changes_nothing_and_what_is_reserved_cannot_fail);
#endif
    return unit_run(&u);
}
