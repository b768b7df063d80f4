/* ds/time_index.h: random operations against a sorted array, and the memory of usual patterns. */
#include "fuzz/ops_time_index.h"
#include "unit.h"

static struct kv_time_index times;

static void run_random(const char *name, unsigned rounds, unsigned steps, const uint8_t *ops,
                       size_t op_count)
{
    struct kv_random random;
    kv_random_init(&random, unit_seed(name));
    kv_mem_init();
    uint8_t *bytes = kv_mem_alloc(2 * steps + 2, KV_MEM_OTHER);
    for (unsigned round = 0; round < UNIT_ROUNDS(rounds); round++) {
        for (unsigned i = 0; i < 2 * steps + 2; i++)
            bytes[i] = (uint8_t)kv_random_next(&random);
        for (unsigned i = 0; i < steps; i++)
            bytes[2 + 2 * i] = ops[bytes[2 + 2 * i] % op_count];
        time_model_run((struct input){bytes, bytes + 2 * steps + 2});
    }
    kv_mem_free(bytes, 2 * steps + 2, KV_MEM_OTHER);
}

START_TEST(random_operations_agree_with_the_model)
{
    static const uint8_t ops[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    run_random("random_operations_agree_with_the_model", 40, 120, ops, sizeof ops);
}
END_TEST

START_TEST(deep_trees_agree_with_the_model)
{
    static const uint8_t ops[] = {0, 0, 0, 0, 1, 1, 2, 2, 3, 4, 6, 7, 8, 9, 10, 11};
    run_random("deep_trees_agree_with_the_model", 3, 400, ops, sizeof ops);
}
END_TEST

START_TEST(refreshing_agrees_with_the_model)
{
    static const uint8_t ops[] = {0, 7, 7, 7, 2, 6};
    run_random("refreshing_agrees_with_the_model", 8, 200, ops, sizeof ops);
}
END_TEST

static double bytes_per_record(void)
{
    return (double)kv_time_index_memory(&times) / (double)times.count;
}

START_TEST(ascending_times_fill_leaves)
{
    kv_mem_init();
    kv_time_index_init(&times, KV_MEM_EXPIRY);
    for (uint64_t i = 0; i < 100000; i++)
        ck_assert_int_eq(kv_time_index_insert(&times, 1000000 + i / 3, i * 7919 % 100003), KV_OK);
    kv_time_index_check(&times);
    printf("ascending: %.2f bytes a record\n", bytes_per_record());
    ck_assert(bytes_per_record() < 13.2);
    kv_time_index_release(&times);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

/* Two lengths of time to live: two places at which records are appended. */
START_TEST(two_ascending_series_fill_leaves)
{
    kv_mem_init();
    kv_time_index_init(&times, KV_MEM_EXPIRY);
    for (uint64_t i = 0; i < 100000; i++) {
        uint64_t when = i + (i % 2 == 0 ? 0 : 10000000);
        ck_assert_int_eq(kv_time_index_insert(&times, when, i), KV_OK);
    }
    kv_time_index_check(&times);
    printf("two series: %.2f bytes a record\n", bytes_per_record());
    ck_assert(bytes_per_record() < 13.5);
    kv_time_index_release(&times);
}
END_TEST

START_TEST(random_times_share_before_they_split)
{
    kv_mem_init();
    struct kv_random random;
    kv_random_init(&random, unit_seed("random_times_share_before_they_split"));
    kv_time_index_init(&times, KV_MEM_EXPIRY);
    for (uint64_t i = 0; i < 100000; i++)
        ck_assert_int_eq(kv_time_index_insert(&times, kv_random_below(&random, 1u << 30), i),
                         KV_OK);
    kv_time_index_check(&times);
    printf("random: %.2f bytes a record\n", bytes_per_record());
    ck_assert(bytes_per_record() < 16.5);
    kv_time_index_release(&times);
}
END_TEST

START_TEST(refreshing_for_ever_does_not_grow)
{
    kv_mem_init();
    enum { KEYS = 5000 };
    static uint64_t due[KEYS];
    struct kv_random random;
    kv_random_init(&random, unit_seed("refreshing_for_ever_does_not_grow"));
    kv_time_index_init(&times, KV_MEM_EXPIRY);
    for (uint64_t i = 0; i < KEYS; i++) {
        due[i] = 1000000 + i;
        ck_assert_int_eq(kv_time_index_insert(&times, due[i], i), KV_OK);
    }
    for (uint64_t i = 0; i < UNIT_ROUNDS(200000); i++) {
        uint64_t key = kv_random_below(&random, KEYS);
        uint64_t when = 2000000 + i / 10;
        ck_assert_int_eq(kv_time_index_move(&times, due[key], when, key), KV_OK);
        due[key] = when;
    }
    kv_time_index_check(&times);
    ck_assert_uint_eq(times.count, KEYS);
    printf("refreshed: %.2f bytes a record\n", bytes_per_record());
    ck_assert(bytes_per_record() < 22);
    kv_time_index_release(&times);
}
END_TEST

START_TEST(the_largest_values_are_kept)
{
    kv_mem_init();
    uint64_t when = 0, position = 0;
    uint64_t last = (UINT64_C(1) << 41) - 1;
    kv_time_index_init(&times, KV_MEM_EXPIRY);
    ck_assert(!kv_time_index_first(&times, &when, &position));
    ck_assert_int_eq(kv_time_index_insert(&times, KV_TIME_INDEX_WHEN_MAX, last), KV_OK);
    ck_assert(kv_time_index_first(&times, &when, &position));
    ck_assert(when == KV_TIME_INDEX_WHEN_MAX && position == last);
    ck_assert_int_eq(kv_time_index_move(&times, when, 0, position), KV_OK);
    ck_assert(times.first_when == 0 && times.when_sum == 0);
    kv_time_index_remove(&times, 0, last);
    ck_assert_uint_eq(kv_time_index_memory(&times), 0);
}
END_TEST

START_TEST(random_records_are_uniform)
{
    enum { RECORDS = 3000, DRAWS = 60 };
    static uint32_t drawn[RECORDS];
    struct kv_random random;
    uint64_t when, position;
    kv_random_init(&random, unit_seed("random_records_are_uniform"));
    kv_mem_init();
    kv_time_index_init(&times, KV_MEM_EXPIRY);
    ck_assert(!kv_time_index_random(&times, &random, &when, &position));
    /* Ascending and then at random: leaves are full at one end and thin at the other. */
    for (uint64_t i = 0; i < RECORDS; i++)
        ck_assert_int_eq(
            kv_time_index_insert(&times,
                                 i < RECORDS / 2 ? i : RECORDS + kv_random_below(&random, 9999), i),
            KV_OK);
    for (int i = 0; i < RECORDS * DRAWS; i++) {
        ck_assert(kv_time_index_random(&times, &random, &when, &position));
        ck_assert(position >= RECORDS / 2 || when == position);
        drawn[position]++;
    }
    double chi_square = 0;
    for (int i = 0; i < RECORDS; i++)
        chi_square += ((double)drawn[i] - DRAWS) * ((double)drawn[i] - DRAWS) / DRAWS;
    ck_assert_msg(chi_square < RECORDS + 12 * 78, "chi square %.0f", chi_square);
    kv_time_index_release(&times);
}
END_TEST

START_TEST(removing_what_is_absent_aborts)
{
    kv_mem_init();
    kv_time_index_init(&times, KV_MEM_EXPIRY);
    (void)!kv_time_index_insert(&times, 5, 5);
    kv_time_index_remove(&times, 5, 6);
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "time_index");
    unit_add(&u, random_operations_agree_with_the_model);
    unit_add(&u, deep_trees_agree_with_the_model);
    unit_add(&u, refreshing_agrees_with_the_model);
    unit_add(&u, ascending_times_fill_leaves);
    unit_add(&u, two_ascending_series_fill_leaves);
    unit_add(&u, random_times_share_before_they_split);
    unit_add(&u, refreshing_for_ever_does_not_grow);
    unit_add(&u, the_largest_values_are_kept);
    unit_add(&u, random_records_are_uniform);
    unit_add_abort(&u, removing_what_is_absent_aborts);
    return unit_run(&u);
}
