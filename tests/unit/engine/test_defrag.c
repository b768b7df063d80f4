/* engine/defrag.c: when an evacuation begins and ends, what share of a worker's time it takes, and
 * that the workers' slices move blocks while content stays. */
#include "fixture.h"

#define KEYS 60000

static uint64_t figure(size_t offset)
{
    return kv_engine_store_stat(engine, offset);
}

#define HITS figure(offsetof(struct kv_store_stats, defrag_hits))
#define MISSES figure(offsetof(struct kv_store_stats, defrag_misses))

static void eager(void)
{
    options.active_defrag = true;
    options.defrag_ignore_bytes = 1;
    options.defrag_threshold_lower = 0;
    options.defrag_threshold_upper = 1;
    options.defrag_cycle_max = 90;
}

/* Many keys of which one in ten stays: thin slabs. */
static void fill_and_thin_out(void)
{
    struct kv_view *v = &w0->call.view;
    char text[32], value[120];
    memset(value, 'v', sizeof(value));
    v->now_ms = kv_clock_wall_ms();
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < KEYS; i++) {
            int len = snprintf(text, sizeof(text), "key:%012d", i);
            struct kv_key k = kv_store_key(engine->store, kv_slice(text, (size_t)len));
            if (round == 0)
                ck_assert_int_eq(
                    kv_store_set(v, &k, kv_slice(value, sizeof(value)), KV_NO_EXPIRY, NULL), KV_OK);
            else if (i % 10 != 0)
                kv_store_delete(v, &k, kv_store_peek(v, &k));
        }
    }
}

static void digest(uint8_t out[20])
{
    kv_store_digest(&w0->call.view, out);
}

/* A round of periodic work, as if `ms` had passed since the last. */
static int64_t fake_ms;

static void cron_after(int64_t ms)
{
    fake_ms += ms;
    kv_defrag_cron(engine, fake_ms);
}

/* Slices of one worker until it is done; returns how many there were. */
static int work(struct kv_worker *w)
{
    int slices = 0;
    struct kv_worker *before = kv_this_worker;
    kv_this_worker = w;
    while (kv_defrag_pending(w)) {
        w->defrag.resume_ticks = 0;
        kv_worker_defrag(w);
        ck_assert_int_lt(++slices, 1000000);
    }
    kv_this_worker = before;
    return slices;
}

START_TEST(effort_grows_with_the_waste_between_the_thresholds)
{
    struct kv_options o;
    kv_options_default(&o);
    uint64_t mib = 1 << 20, used = 1000 * mib;
    start(1);
    ck_assert_uint_eq(kv_defrag_effort(&o, used, 99 * mib), 0);
    ck_assert_uint_eq(kv_defrag_effort(&o, used, 100 * mib), 1);
    ck_assert_uint_eq(kv_defrag_effort(&o, used, 550 * mib), 13);
    ck_assert_uint_eq(kv_defrag_effort(&o, used, 1000 * mib), 25);
    ck_assert_uint_eq(kv_defrag_effort(&o, used, 9000 * mib), 25);
    ck_assert_uint_eq(kv_defrag_effort(&o, 10 * mib, 99 * mib), 0);
    ck_assert_uint_eq(kv_defrag_effort(&o, 0, 101 * mib), 25);
    o.defrag_threshold_upper = o.defrag_threshold_lower = 50;
    ck_assert_uint_eq(kv_defrag_effort(&o, used, 499 * mib), 0);
    ck_assert_uint_eq(kv_defrag_effort(&o, used, 500 * mib), 25);
    o.defrag_threshold_upper = 10; /* below the lower one */
    ck_assert_uint_eq(kv_defrag_effort(&o, used, 500 * mib), 25);
    o = (struct kv_options){.defrag_cycle_min = 40, .defrag_cycle_max = 30};
    ck_assert_uint_eq(kv_defrag_effort(&o, used, 0), 30);
}
END_TEST

START_TEST(nothing_happens_while_it_is_off)
{
    eager();
    options.active_defrag = false;
    start(1);
    fill_and_thin_out();
    for (int i = 0; i < 5; i++)
        cron_after(2000);
    ck_assert(!kv_defrag_pending(w0));
    ck_assert_uint_eq(kv_engine_defrag_effort(engine), 0);
    ck_assert_uint_eq(HITS + MISSES, 0);
}
END_TEST

START_TEST(an_evacuation_runs_to_its_end)
{
    uint8_t before[20], after[20];
    eager();
    start(1);
    fill_and_thin_out();
    digest(before);
    cron_after(2000);
    ck_assert(kv_defrag_pending(w0));
    ck_assert_uint_eq(kv_engine_defrag_effort(engine), 90);
    ck_assert_int_eq(kv_worker_timeout_ms(w0, w0->mono_ms), 0);
    work(w0);
    ck_assert_uint_gt(HITS, 0);
    ck_assert_uint_ge(HITS + MISSES, KEYS / 10);
    ck_assert(engine->defrag.open);
    cron_after(1);
    ck_assert(!engine->defrag.open);
    ck_assert_uint_eq(kv_engine_defrag_effort(engine), 0);
    uint64_t total_ms, current_ms;
    kv_engine_defrag_times(engine, &total_ms, &current_ms);
    ck_assert_uint_eq(current_ms, 0);
    digest(after);
    ck_assert_mem_eq(before, after, sizeof(before));
    kv_store_check(engine->store);
    uint64_t hits = HITS;
    cron_after(1000); /* too soon for the next */
    ck_assert(!kv_defrag_pending(w0));
    ck_assert_uint_eq(HITS, hits);
}
END_TEST

/* The end comes when the last worker is done, and not before. */
START_TEST(all_workers_do_their_share)
{
    eager();
    start(2);
    fill_and_thin_out();
    cron_after(2000);
    ck_assert(kv_defrag_pending(w0) && kv_defrag_pending(w1));
    work(w0);
    uint64_t first = HITS + MISSES;
    cron_after(1000);
    ck_assert(engine->defrag.open);
    work(w1);
    ck_assert_uint_gt(HITS + MISSES, first);
    cron_after(1);
    ck_assert(!engine->defrag.open);
}
END_TEST

START_TEST(a_taken_shard_or_gate_is_not_waited_for)
{
    eager();
    start(2);
    fill_and_thin_out();
    cron_after(2000);
    ck_assert(kv_shard_try_lock(engine, 0));
    for (int i = 0; i < 3; i++) {
        w0->defrag.resume_ticks = 0;
        kv_worker_defrag(w0);
    }
    ck_assert_uint_eq(HITS + MISSES, 0);
    ck_assert_uint_gt(w0->defrag.resume_ticks, kv_clock_ticks() - kv_clock_ns_to_ticks(100000000));
    kv_shard_unlock(engine, 0);
    struct kv_client *c = client_new();
    while (!kv_gate_close(w1, c))
        continue;
    w0->defrag.resume_ticks = 0;
    kv_worker_defrag(w0);
    ck_assert_uint_eq(HITS + MISSES, 0);
    kv_gate_open(w1);
    work(w0);
    work(w1);
    ck_assert_uint_gt(HITS + MISSES, 0);
    kv_client_destroy(c);
}
END_TEST

START_TEST(switching_it_off_stops_at_once)
{
    eager();
    start(2);
    fill_and_thin_out();
    cron_after(2000);
    w0->defrag.resume_ticks = 0;
    kv_stat_add(&w0->stats.commands, 1); /* a short slice */
    kv_worker_defrag(w0);
    uint64_t seen = HITS + MISSES;
    ck_assert_uint_gt(seen, 0);
    ck_assert(kv_defrag_pending(w0)); /* one slice is not enough for its shards */
    engine->options.active_defrag = false;
    w0->defrag.resume_ticks = 0;
    kv_worker_defrag(w0);
    ck_assert(!kv_defrag_pending(w0));
    cron_after(100);
    ck_assert(engine->defrag.open); /* the other worker may be asking still */
    kv_worker_defrag(w1);
    cron_after(100);
    ck_assert(!engine->defrag.open);
    ck_assert_uint_eq(HITS + MISSES, seen);
    engine->options.active_defrag = true;
    cron_after(2000);
    ck_assert(engine->defrag.open);
}
END_TEST

START_TEST(slices_leave_time_for_commands)
{
    eager();
    options.defrag_cycle_max = 20;
    start(1);
    fill_and_thin_out();
    cron_after(2000);
    uint64_t before = kv_clock_ticks();
    kv_worker_defrag(w0);
    uint64_t spent = kv_clock_ns_to_ticks(STAT(defrag_ns));
    ck_assert_uint_gt(spent, 0);
    /* Five times as long as the slice took passes from its start to the next one's. */
    ck_assert_uint_ge(w0->defrag.resume_ticks, before + 4 * spent);
    uint64_t seen = HITS + MISSES;
    w0->defrag.resume_ticks = kv_clock_ticks() + kv_clock_ns_to_ticks(1000000000);
    kv_worker_defrag(w0);
    ck_assert_uint_eq(HITS + MISSES, seen);
    ck_assert_int_gt(kv_defrag_wait_ms(w0), 0);
}
END_TEST

/* What promises much and gives nothing back is tried less and less often. */
START_TEST(pauses_grow_while_nothing_comes_back)
{
    eager();
    start(1);
    uint32_t last = 0;
    for (int i = 0; i < 4; i++) {
        fill_and_thin_out();
        fake_ms = engine->defrag.look_ms;
        cron_after(0);
        ck_assert(engine->defrag.open);
        engine->defrag.wanted_bytes = (uint64_t)1 << 40;
        work(w0);
        cron_after(1);
        ck_assert_uint_ge(engine->defrag.pause_ms, last);
        last = engine->defrag.pause_ms;
    }
    ck_assert_uint_ge(last, 16000);
}
END_TEST

START_TEST(the_end_of_the_engine_ends_an_evacuation)
{
    eager();
    start(1);
    fill_and_thin_out();
    cron_after(2000);
    ck_assert(engine->defrag.open);
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "defrag");
    unit_add(&u, effort_grows_with_the_waste_between_the_thresholds);
    unit_add(&u, nothing_happens_while_it_is_off);
    unit_add(&u, an_evacuation_runs_to_its_end);
    unit_add(&u, all_workers_do_their_share);
    unit_add(&u, a_taken_shard_or_gate_is_not_waited_for);
    unit_add(&u, switching_it_off_stops_at_once);
    unit_add(&u, slices_leave_time_for_commands);
    unit_add(&u, pauses_grow_while_nothing_comes_back);
    unit_add(&u, the_end_of_the_engine_ends_an_evacuation);
    return unit_run(&u);
}
