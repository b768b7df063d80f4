/* engine/snapshot.c: how long slices are, what a snapshot holds while commands run between them. */
#include "fixture.h"
#include <pthread.h>

#define KEYS 20000
#define ENTRY_BYTES 100 /* what is put for each */

START_TEST(slices_are_a_quarter_of_rounds_with_commands)
{
    start(1);
    ck_assert_uint_eq(kv_snapshot_slice_ns(false, 0), 200000);
    ck_assert_uint_eq(kv_snapshot_slice_ns(false, 100000000), 200000);
    ck_assert_uint_eq(kv_snapshot_slice_ns(true, 0), 40000);
    ck_assert_uint_eq(kv_snapshot_slice_ns(true, 160000), 40000);
    ck_assert_uint_eq(kv_snapshot_slice_ns(true, 400000), 100000);
    ck_assert_uint_eq(kv_snapshot_slice_ns(true, 100000000), 200000);
}
END_TEST

/* Takes all buffers on a thread of its own and counts the entries in them. */
struct taker {
    pthread_t thread;
    uint64_t keys, bytes;
    bool failed;
};

static void *take_all(void *arg)
{
    struct taker *t = arg;
    struct kv_snapshot_buffer *b;
    while ((b = kv_snapshot_take(engine, &t->failed)) != NULL) {
        t->keys += b->keys;
        t->bytes += b->len;
        kv_snapshot_free(b);
    }
    kv_snapshot_finish(engine);
    kv_mem_thread_exit();
    return NULL;
}

/* Each entry has its value of the moment. */
static bool put_entry(void *arg, uint32_t worker, struct kv_snapshot_buffer **b,
                      const struct kv_view *v, const struct kv_entry *e)
{
    char scratch[KV_INT_TEXT_MAX];
    (void)arg, (void)worker, (void)v;
    if (!kv_snapshot_room(b, ENTRY_BYTES))
        return false;
    ck_assert(kv_slice_equal(kv_entry_string(e, scratch), KV_SLICE("before")));
    memset((*b)->bytes + (*b)->len, (int)kv_entry_key(e).len, ENTRY_BYTES);
    (*b)->len += ENTRY_BYTES;
    return true;
}

static void fill(struct kv_client *c)
{
    char line[64];
    for (int i = 0; i < KEYS; i++) {
        snprintf(line, sizeof(line), "set key:%d before", i);
        assert_reply(c, line, "+OK\r\n");
    }
}

static void begin(struct taker *t, uint64_t limit_bytes)
{
    struct kv_snapshot_ops ops = {.entry = put_entry, .limit_bytes = limit_bytes};
    *t = (struct taker){0};
    ck_assert(kv_snapshot_start(engine, &ops));
    ck_assert_int_eq(pthread_create(&t->thread, NULL, take_all, t), 0);
}

static void end(struct taker *t)
{
    while (atomic_load(&engine->snapshot.phase) == KV_SNAPSHOT_WALK ||
           atomic_load(&engine->snapshot.phase) == KV_SNAPSHOT_FLUSH)
        poll_worker(w0);
    pthread_join(t->thread, NULL);
    ck_assert(!t->failed);
    ck_assert_uint_eq(t->keys, KEYS);
    ck_assert_uint_eq(t->bytes, KEYS * ENTRY_BYTES);
    struct kv_snapshot_figures f;
    kv_engine_snapshot_figures(engine, &f);
    ck_assert_uint_eq(f.keys_done, KEYS);
    ck_assert_uint_eq(f.keys_total, KEYS);
    ck_assert_uint_eq(f.buffered_bytes, 0);
}

START_TEST(a_snapshot_is_of_its_moment_whatever_runs_between_slices)
{
    struct taker t;
    char line[64];
    start(1);
    struct kv_client *c = client_new();
    fill(c);
    begin(&t, 0);
    for (int i = 0; i < KEYS; i += 7) {
        snprintf(line, sizeof(line), "set key:%d behind", i);
        assert_reply(c, line, "+OK\r\n");
        snprintf(line, sizeof(line), "set new:%d behind", i);
        assert_reply(c, line, "+OK\r\n");
        if (i % 100 == 0)
            poll_worker(w0);
    }
    end(&t);
    kv_client_destroy(c);
}
END_TEST

/* The walk pauses until the taker, which is woken for few bytes then, has taken enough. */
START_TEST(a_small_limit_does_not_stop_a_snapshot)
{
    struct taker t;
    start(1);
    struct kv_client *c = client_new();
    fill(c);
    for (uint64_t limit = 1; limit < 4 << 20; limit *= 16) {
        begin(&t, limit);
        end(&t);
    }
    kv_client_destroy(c);
}
END_TEST

START_TEST(a_worker_is_busy_while_it_runs_commands_and_calm_some_time_after)
{
    struct taker t;
    start(1);
    struct kv_client *c = client_new();
    fill(c);
    begin(&t, 0);
    poll_worker(w0); /* it has not run a command since the start */
    ck_assert_uint_eq(w0->snapshot.calm_ticks, 0);
    if (w0->snapshot.walking) {
        assert_reply(c, "args", "*1\r\n$4\r\nargs\r\n");
        poll_worker(w0);
        ck_assert_uint_gt(w0->snapshot.calm_ticks, w0->snapshot.end_ticks);
    }
    end(&t);
    uint64_t calm = w0->snapshot.calm_ticks;
    begin(&t, 0);
    poll_worker(w0);
    ck_assert_uint_eq(w0->snapshot.calm_ticks, 0); /* each one begins anew */
    ck_assert_uint_gt(calm, 0);
    end(&t);
    kv_client_destroy(c);
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "snapshot");
    unit_add(&u, slices_are_a_quarter_of_rounds_with_commands);
    unit_add(&u, a_snapshot_is_of_its_moment_whatever_runs_between_slices);
    unit_add(&u, a_small_limit_does_not_stop_a_snapshot);
    unit_add(&u, a_worker_is_busy_while_it_runs_commands_and_calm_some_time_after);
    return unit_run(&u);
}
