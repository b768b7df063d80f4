/* base/lock.h and base/stat.h: mutual exclusion, the rank check of debug builds, and counters that
 * lose nothing with one writer. */
#include "base/lock.h"
#include "base/stat.h"
#include "unit.h"

enum { THREADS = 4, STEPS = 20000 };

static struct kv_mutex low = KV_MUTEX_INIT(KV_RANK_GATE);
static struct kv_mutex high = KV_MUTEX_INIT(KV_RANK_LOG);
static uint64_t shared; /* guarded by low */
static kv_stat counters[THREADS];
static kv_gauge balance;

static void *add(void *arg)
{
    kv_stat *own = arg;

    for (int i = 0; i < STEPS; i++) {
        kv_mutex_lock(&low);
        shared++;
        kv_mutex_unlock(&low);
        kv_stat_add(own, 2);
    }
    return NULL;
}

START_TEST(a_mutex_excludes_and_counters_lose_nothing)
{
    pthread_t threads[THREADS];
    uint64_t sum = 0;

    for (int i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, add, &counters[i]), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        sum += kv_stat_read(&counters[i]);
    ck_assert_uint_eq(shared, THREADS * STEPS);
    ck_assert_uint_eq(sum, 2 * THREADS * STEPS);
}
END_TEST

START_TEST(gauges_go_below_zero_and_maxima_only_rise)
{
    kv_stat highest = 0;

    kv_gauge_add(&balance, -5);
    kv_gauge_add(&balance, 3);
    ck_assert_int_eq(kv_gauge_read(&balance), -2);
    kv_stat_max(&highest, 7);
    kv_stat_max(&highest, 3);
    ck_assert_uint_eq(kv_stat_read(&highest), 7);
    kv_stat_set(&highest, 1);
    ck_assert_uint_eq(kv_stat_read(&highest), 1);
}
END_TEST

START_TEST(ascending_ranks_may_be_held_together)
{
    kv_mutex_lock(&low);
    kv_mutex_lock(&high);
    kv_mutex_unlock(&low); /* in another order than taken */
    kv_mutex_unlock(&high);
    kv_mutex_lock(&low);
    kv_mutex_lock(&high);
    kv_mutex_unlock(&high);
    kv_mutex_unlock(&low);
}
END_TEST

START_TEST(a_mutex_can_be_made_and_released)
{
    struct kv_mutex m;

    for (int i = 0; i < 3; i++) {
        kv_mutex_init(&m, KV_RANK_STREAM);
        kv_mutex_lock(&m);
        kv_mutex_unlock(&m);
        kv_mutex_release(&m);
    }
}
END_TEST

#ifdef KV_DEBUG
START_TEST(descending_ranks_are_a_mistake)
{
    kv_mutex_lock(&high);
    kv_mutex_lock(&low);
}
END_TEST

START_TEST(two_of_one_rank_are_a_mistake)
{
    struct kv_mutex a, b;
    kv_mutex_init(&a, KV_RANK_STREAM);
    kv_mutex_init(&b, KV_RANK_STREAM);
    kv_mutex_lock(&a);
    kv_mutex_lock(&b);
}
END_TEST

START_TEST(unlocking_what_is_not_held_is_a_mistake)
{
    kv_mutex_unlock(&low);
}
END_TEST
#endif

int main(void)
{
    struct unit u;

    unit_begin(&u, "lock");
    unit_add(&u, a_mutex_excludes_and_counters_lose_nothing);
    unit_add(&u, gauges_go_below_zero_and_maxima_only_rise);
    unit_add(&u, ascending_ranks_may_be_held_together);
    unit_add(&u, a_mutex_can_be_made_and_released);
#ifdef KV_DEBUG
    unit_add_abort(&u, descending_ranks_are_a_mistake);
    unit_add_abort(&u, two_of_one_rank_are_a_mistake);
    unit_add_abort(&u, unlocking_what_is_not_held_is_a_mistake);
#endif
    return unit_run(&u);
}
