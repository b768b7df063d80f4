/* ds/table.h: random operations against a naive model, with the guarantee of scan checked at every
 * step; and what the model cannot see: fill, uniformity, bounds of a scan call. */
#include "fuzz/ops_table.h"
#include "unit.h"

struct number {
    uint64_t hash;
    uint64_t hits;
};

static uint64_t number_hash(const void *item, void *arg)
{
    (void)arg;
    return ((const struct number *)item)->hash;
}

static bool number_same(const void *item, const void *key)
{
    return item == key;
}

static struct number *numbers;
static size_t number_count;
static struct kv_table table;

/* A table of n random items. */
static void fill(size_t n, uint64_t seed)
{
    struct kv_random random;
    kv_random_init(&random, seed);
    number_count = n;
    numbers = kv_mem_zalloc(n * sizeof *numbers, KV_MEM_OTHER);
    kv_table_init(&table, number_hash, NULL, KV_MEM_TABLE);
    for (size_t i = 0; i < n; i++) {
        numbers[i].hash = kv_random_next(&random);
        if (kv_table_insert(&table, numbers[i].hash, &numbers[i]) != KV_OK)
            ck_abort();
    }
}

static void empty(void)
{
    kv_table_release(&table);
    ck_assert_int_eq(kv_mem_used(KV_MEM_TABLE), 0);
    kv_mem_free(numbers, number_count * sizeof *numbers, KV_MEM_OTHER);
}

static void run_random(const char *name, unsigned rounds, unsigned steps, const uint8_t *ops,
                       size_t op_count)
{
    struct kv_random random;
    kv_random_init(&random, unit_seed(name));
    kv_mem_init();
    uint8_t *bytes = kv_mem_alloc(2 * steps + 2, KV_MEM_OTHER);
    for (unsigned round = 0; round < UNIT_ROUNDS(rounds); round++) {
        bytes[0] = (uint8_t)kv_random_next(&random);
        bytes[1] = (uint8_t)kv_random_next(&random);
        for (unsigned i = 0; i < steps; i++) {
            bytes[2 + 2 * i] = ops[kv_random_below(&random, op_count)];
            bytes[3 + 2 * i] = (uint8_t)kv_random_next(&random);
        }
        table_model_run((struct input){bytes, bytes + 2 * steps + 2});
    }
    kv_mem_free(bytes, 2 * steps + 2, KV_MEM_OTHER);
}

START_TEST(random_operations_agree_with_the_model)
{
    static const uint8_t ops[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 13};
    run_random("random_operations_agree_with_the_model", 15, 200, ops, sizeof ops);
}
END_TEST

START_TEST(small_tables_agree_with_the_model)
{
    static const uint8_t ops[] = {3, 5, 6, 7, 8, 9, 10, 11, 12, 13, 13, 13};
    run_random("small_tables_agree_with_the_model", 150, 40, ops, sizeof ops);
}
END_TEST

/* Grows to tens of thousands of items and back while one scan after the other runs. */
START_TEST(scan_is_exact_while_the_table_grows_and_shrinks)
{
    enum { STEPS = 600 };
    uint8_t bytes[2 + 4 * STEPS];
    struct kv_random random;
    kv_random_init(&random, unit_seed("scan_is_exact_while_the_table_grows_and_shrinks"));
    kv_mem_init();
    for (unsigned round = 0; round < UNIT_ROUNDS(2); round++) {
        for (unsigned i = 0; i < STEPS; i++) {
            bool growing = i % 300 < 150;
            uint8_t *step = &bytes[2 + 4 * i];
            step[0] = kv_random_below(&random, 3) == 0 ? (growing ? 4 : 0) : (growing ? 0 : 4);
            step[1] = (uint8_t)(kv_random_next(&random) % 64);
            step[2] = 13;
            step[3] = (uint8_t)kv_random_next(&random);
        }
        bytes[0] = (uint8_t)kv_random_next(&random);
        bytes[1] = (uint8_t)kv_random_next(&random);
        table_model_run((struct input){bytes, bytes + sizeof bytes});
    }
}
END_TEST

static void never_visit(void *item, void *arg)
{
    (void)item;
    (void)arg;
    abort();
}

START_TEST(an_empty_table_costs_nothing)
{
    kv_mem_init();
    struct number one = {.hash = 7};
    struct kv_random random;
    kv_random_init(&random, 1);
    kv_table_init(&table, number_hash, NULL, KV_MEM_TABLE);
    ck_assert_uint_eq(kv_table_memory(&table), 0);
    ck_assert_ptr_null(kv_table_find(&table, 7, number_same, &one));
    ck_assert_ptr_null(kv_table_random(&table, &random));
    kv_table_scan_ahead(&table, 0);
    ck_assert(kv_table_scan(&table, 0, 10, never_visit, NULL) == KV_TABLE_POSITION_END);
    ck_assert_int_eq(kv_table_insert(&table, 7, &one), KV_OK);
    ck_assert_uint_eq(kv_table_memory(&table), 64 + 16);
    kv_table_remove(&table, 7, &one);
    ck_assert_uint_eq(kv_table_memory(&table), 0);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(segments_stay_well_filled)
{
    kv_mem_init();
    for (size_t n = 20000; n < 200000; n = n * 5 / 4) {
        fill(n, n);
        double bytes_per_item = (double)kv_table_memory(&table) / (double)n;
        ck_assert_msg(bytes_per_item < 11.9, "%zu items: %.2f bytes an item", n, bytes_per_item);
        kv_table_check(&table);
        empty();
    }
}
END_TEST

START_TEST(removal_gives_memory_back)
{
    kv_mem_init();
    fill(100000, 3);
    size_t full = kv_table_memory(&table);
    for (size_t i = 0; i < 95000; i++)
        kv_table_remove(&table, numbers[i].hash, &numbers[i]);
    kv_table_check(&table);
    ck_assert_uint_lt(kv_table_memory(&table), full / 5);
    for (size_t i = 0; i < 95000; i++)
        ck_assert_int_eq(kv_table_insert(&table, numbers[i].hash, &numbers[i]), KV_OK);
    kv_table_check(&table);
    ck_assert_uint_lt(kv_table_memory(&table), full + full / 5);
    empty();
}
END_TEST

/* A hash that gives one value only: slow, but everything is found and everything can go. */
START_TEST(equal_hashes_are_kept_apart_by_identity)
{
    kv_mem_init();
    enum { N = 3000 };
    static struct number same[N];
    kv_table_init(&table, number_hash, NULL, KV_MEM_TABLE);
    for (int i = 0; i < N; i++) {
        same[i].hash = UINT64_C(0xfedcba9876543210);
        ck_assert_int_eq(kv_table_insert(&table, same[i].hash, &same[i]), KV_OK);
    }
    kv_table_check(&table);
    ck_assert_uint_lt(kv_table_memory(&table), 2000000);
    for (int i = 0; i < N; i++) {
        ck_assert_ptr_eq(kv_table_find(&table, same[i].hash, number_same, &same[i]), &same[i]);
        if (i % 2 == 0)
            kv_table_remove(&table, same[i].hash, &same[i]);
    }
    kv_table_check(&table);
    for (int i = 1; i < N; i += 2)
        kv_table_remove(&table, same[i].hash, &same[i]);
    ck_assert_uint_eq(kv_table_memory(&table), 0);
}
END_TEST

static void count_visit(void *item, void *arg)
{
    (void)item;
    ++*(uint64_t *)arg;
}

START_TEST(a_scan_call_visits_about_what_was_asked)
{
    kv_mem_init();
    fill(100000, 5);
    uint64_t calls = 0, visited = 0;
    for (uint64_t position = 0; position < KV_TABLE_POSITION_END; calls++) {
        uint64_t before = visited;
        kv_table_scan_ahead(&table, position); /* changes nothing, wherever it is called */
        position = kv_table_scan(&table, position, 10, count_visit, &visited);
        ck_assert_uint_lt(visited - before, 10 + 60);
    }
    ck_assert_uint_eq(visited, 100000);
    ck_assert_uint_gt(calls, 100000 / 20);
    /* A cursor from nowhere: everything from it on, nothing before. */
    visited = 0;
    uint64_t end =
        kv_table_scan(&table, UINT64_C(0x12345678901), UINT64_MAX / 2, count_visit, &visited);
    ck_assert(end == KV_TABLE_POSITION_END);
    uint64_t expected = 0;
    for (size_t i = 0; i < number_count; i++)
        expected += kv_table_position(numbers[i].hash) >= UINT64_C(0x12345678901);
    ck_assert_uint_eq(visited, expected);
    ck_assert(kv_table_scan(&table, UINT64_MAX, 1, count_visit, &visited) == KV_TABLE_POSITION_END);
    kv_table_scan_ahead(&table, UINT64_MAX);
    kv_table_check(&table);
    empty();
}
END_TEST

START_TEST(positions_of_scan_fit_53_bits_with_4096_shards)
{
    ck_assert_uint_le(KV_TABLE_POSITION_BITS + 12, 53);
    ck_assert(kv_table_position(UINT64_MAX) == KV_TABLE_POSITION_END - 1);
    ck_assert(kv_table_position(UINT64_C(0x7fffff)) == 0);
}
END_TEST

static void check_uniform(size_t n, unsigned draws_per_item)
{
    struct kv_random random;
    kv_random_init(&random, unit_seed("random_items_are_uniform"));
    uint64_t draws = n * draws_per_item;
    for (uint64_t i = 0; i < draws; i++)
        ((struct number *)kv_table_random(&table, &random))->hits++;
    double chi_square = 0, mean = (double)draws_per_item;
    size_t present = 0;
    for (size_t i = 0; i < number_count; i++) {
        double distance = (double)numbers[i].hits - mean;
        present += numbers[i].hash != 0;
        if (numbers[i].hash != 0)
            chi_square += distance * distance / mean;
        numbers[i].hits = 0;
    }
    ck_assert_uint_eq(present, n);
    /* Mean n, deviation sqrt(2 n): 8 deviations are as good as never. */
    double excess = chi_square - (double)n;
    ck_assert_msg(excess * excess < 64.0 * 2.0 * (double)n, "%zu items: chi square %.0f", n,
                  chi_square);
}

START_TEST(random_items_are_uniform)
{
    kv_mem_init();
    static const size_t sizes[] = {1, 3, 9, 100, 300, 700, 5000};
    for (size_t i = 0; i < KV_ARRAY_LEN(sizes); i++) {
        fill(sizes[i], sizes[i]);
        check_uniform(sizes[i], UNIT_ROUNDS(60));
        empty();
    }
}
END_TEST

/* Items of a bucket come together, hence the wider bound. */
START_TEST(samples_are_buckets_and_meet_every_item_equally)
{
    static const size_t sizes[] = {1, 3, 9, 100, 300, 700, 5000};
    struct kv_random random;
    kv_random_init(&random, unit_seed("samples_are_buckets_and_meet_every_item_equally"));
    kv_mem_init();
    for (size_t s = 0; s < KV_ARRAY_LEN(sizes); s++) {
        void *items[KV_TABLE_SLOTS];
        size_t n = sizes[s], drawn = 0;
        fill(n, n);
        while (drawn < n * 40) {
            unsigned count = kv_table_sample(&table, &random, items);
            ck_assert_uint_ge(count, 1);
            ck_assert_uint_le(count, KV_TABLE_SLOTS);
            for (unsigned i = 0; i < count; i++) {
                ((struct number *)items[i])->hits++;
                for (unsigned j = 0; j < i; j++)
                    ck_assert_ptr_ne(items[i], items[j]);
            }
            drawn += count;
        }
        double chi_square = 0, mean = (double)drawn / (double)n;
        for (size_t i = 0; i < number_count; i++) {
            double distance = (double)numbers[i].hits - mean;
            if (numbers[i].hash != 0)
                chi_square += distance * distance / mean;
            numbers[i].hits = 0;
        }
        ck_assert_msg(chi_square < 2.0 * (double)n + 200, "%zu items: chi square %.0f", n,
                      chi_square);
        empty();
    }
    ck_assert_uint_eq(kv_table_sample(&table, &random, (void *[KV_TABLE_SLOTS]){NULL}), 0);
}
END_TEST

START_TEST(removing_what_is_absent_aborts)
{
    kv_mem_init();
    fill(10, 1);
    struct number stranger = {.hash = 99};
    kv_table_remove(&table, stranger.hash, &stranger);
}
END_TEST

START_TEST(a_reserved_table_does_not_grow)
{
    static const size_t counts[] = {1, 7, 10, 300, 400, 449, 5000, 100000};
    kv_mem_init();
    for (size_t i = 0; i < KV_ARRAY_LEN(counts); i++) {
        fill(counts[i], 77 + i);
        size_t grown = kv_table_memory(&table);
        kv_table_release(&table);
        ck_assert_int_eq(kv_table_reserve(&table, counts[i]), KV_OK);
        size_t reserved = kv_table_memory(&table);
        uint32_t segments = table.segment_count;
        for (size_t j = 0; j < counts[i]; j++)
            ck_assert_int_eq(kv_table_insert(&table, numbers[j].hash, &numbers[j]), KV_OK);
        ck_assert_uint_eq(table.segment_count, segments);
        ck_assert_uint_le(kv_table_memory(&table), reserved + reserved / 50);
        ck_assert_uint_le(reserved, grown * 2);
        kv_table_check(&table);
        for (size_t j = 0; j < counts[i]; j++)
            ck_assert_ptr_eq(kv_table_find(&table, numbers[j].hash, number_same, &numbers[j]),
                             &numbers[j]);
        empty();
    }
}
END_TEST

START_TEST(a_reserved_table_shrinks_and_grows_as_ever)
{
    kv_mem_init();
    fill(20000, 5);
    kv_table_release(&table);
    ck_assert_int_eq(kv_table_reserve(&table, 5000), KV_OK);
    for (size_t j = 0; j < number_count; j++)
        ck_assert_int_eq(kv_table_insert(&table, numbers[j].hash, &numbers[j]), KV_OK);
    kv_table_check(&table);
    for (size_t j = 100; j < number_count; j++)
        kv_table_remove(&table, numbers[j].hash, &numbers[j]);
    kv_table_check(&table);
    ck_assert_uint_le(kv_table_memory(&table), 32 * 1024);
    empty();
}
END_TEST

START_TEST(nothing_is_reserved_when_memory_is_short)
{
    kv_mem_init();
    kv_table_init(&table, number_hash, NULL, KV_MEM_TABLE);
    uint64_t n = 1;
    for (;; n++) {
        kv_mem_fail_try(n);
        enum kv_err err = kv_table_reserve(&table, 3000);
        kv_mem_fail_try(0);
        if (err == KV_OK)
            break;
        ck_assert_int_eq(err, KV_ERR_NOMEM);
        ck_assert_uint_eq(kv_table_memory(&table), 0);
        ck_assert_int_eq(kv_mem_used(KV_MEM_TABLE), 0);
    }
#ifdef KV_DEBUG
    ck_assert_uint_ge(n, 9); /* directory and segments; other builds never fail */
#endif
    ck_assert_uint_ge(table.segment_count, 8);
    kv_table_release(&table);
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "table");
    unit_add(&u, random_operations_agree_with_the_model);
    unit_add(&u, small_tables_agree_with_the_model);
    unit_add(&u, scan_is_exact_while_the_table_grows_and_shrinks);
    unit_add(&u, an_empty_table_costs_nothing);
    unit_add(&u, segments_stay_well_filled);
    unit_add(&u, removal_gives_memory_back);
    unit_add(&u, equal_hashes_are_kept_apart_by_identity);
    unit_add(&u, a_scan_call_visits_about_what_was_asked);
    unit_add(&u, positions_of_scan_fit_53_bits_with_4096_shards);
    unit_add(&u, random_items_are_uniform);
    unit_add(&u, samples_are_buckets_and_meet_every_item_equally);
    unit_add(&u, a_reserved_table_does_not_grow);
    unit_add(&u, a_reserved_table_shrinks_and_grows_as_ever);
    unit_add(&u, nothing_is_reserved_when_memory_is_short);
    unit_add_abort(&u, removing_what_is_absent_aborts);
    return unit_run(&u);
}
