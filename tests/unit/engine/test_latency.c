/* Buckets of latencies, sums over them, series of the monitor. */
#include "base/clock.h"
#include "engine/latency.h"
#include "fixture.h"

START_TEST(buckets_are_in_order_and_narrow)
{
    uint64_t from = 0;
    start(1);
    for (uint32_t i = 0; i < KV_LATENCY_BUCKETS; i++) {
        uint64_t end = kv_latency_bucket_end(i);
        ck_assert_uint_ge(end, from);
        ck_assert_uint_eq(kv_latency_bucket(from), i);
        ck_assert_uint_eq(kv_latency_bucket(end), i);
        ck_assert_uint_le(end - from, from / (1u << KV_LATENCY_SUB_BITS));
        from = end + 1;
    }
    ck_assert_uint_eq(kv_latency_bucket(from), KV_LATENCY_BUCKETS - 1);
    ck_assert_uint_eq(kv_latency_bucket(UINT64_MAX), KV_LATENCY_BUCKETS - 1);
}
END_TEST

START_TEST(percentiles_and_counts)
{
    static struct kv_latency_sum sum;
    start(1);
    memset(&sum, 0, sizeof(sum));
    for (uint64_t us = 1; us <= 1000; us++) {
        sum.counts[kv_latency_bucket(kv_clock_ns_to_ticks(us * 1000))]++;
        sum.total++;
    }
    static const double percents[] = {0, 1, 50, 99, 99.9, 100};
    for (size_t i = 0; i < KV_ARRAY_LEN(percents); i++) {
        double ns = (double)kv_latency_percentile(&sum, percents[i]);
        double exact = KV_MAX(percents[i] * 10, 1.0) * 1000;
        ck_assert_double_ge(ns, exact * 0.999 - 1);
        ck_assert_double_le(ns, exact * 1.04 + 1000);
    }
    ck_assert_uint_eq(kv_latency_below(&sum, 0), 0);
    uint64_t half = kv_latency_below(&sum, 500 * 1000);
    ck_assert(half > 470 && half <= 500);
    ck_assert_uint_eq(kv_latency_below(&sum, 2000 * 1000), 1000);
}
END_TEST

START_TEST(a_series_keeps_the_last_160_seconds)
{
    struct kv_latency_series s;
    start(1);
    kv_clock_set_fake_ms(1000000);
    for (uint32_t i = 0; i < 200; i++) {
        kv_latency_add(&engine->latency, KV_LATENCY_EXPIRE, (uint64_t)(i + 1) * 1000000);
        kv_latency_add(&engine->latency, KV_LATENCY_EXPIRE, 1000000);
        kv_clock_set_fake_ms(1000000 + (int64_t)(i + 1) * 1000);
    }
    ck_assert(kv_engine_latency_series(engine, KV_LATENCY_EXPIRE, &s));
    ck_assert_uint_eq(s.count, KV_LATENCY_SAMPLES);
    ck_assert_uint_eq(s.max_ms, 200);
    for (uint32_t i = 0; i < s.count; i++) {
        ck_assert_uint_eq(kv_latency_sample(&s, i).ms, 41 + i);
        ck_assert_uint_eq(kv_latency_sample(&s, i).time_s, 1040 + i);
    }
    ck_assert(!kv_engine_latency_series(engine, KV_LATENCY_COMMAND, &s));
    ck_assert(kv_engine_latency_reset(engine, KV_LATENCY_EXPIRE));
    ck_assert(!kv_engine_latency_reset(engine, KV_LATENCY_EXPIRE));
    kv_clock_set_fake_ms(0);
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "latency");
    unit_add(&u, buckets_are_in_order_and_narrow);
    unit_add(&u, percentiles_and_counts);
    unit_add(&u, a_series_keeps_the_last_160_seconds);
    return unit_run(&u);
}
