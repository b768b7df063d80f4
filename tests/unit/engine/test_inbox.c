/* engine/inbox.h and engine/background.h: messages arrive once and in order of their sender; jobs
 * run in the order they were given. */
#include "engine/background.h"
#include "fixture.h"
#include <sched.h>

START_TEST(messages_come_oldest_first)
{
    start(2);
    ck_assert(kv_inbox_empty(&w1->inbox));
    ck_assert_ptr_null(kv_inbox_take(&w1->inbox));
    for (uint32_t i = 0; i < 5; i++)
        kv_inbox_post(w1, KV_MSG_SHARD_FREE, i, i * i, &reply);
    ck_assert(!kv_inbox_empty(&w1->inbox));
    struct kv_message *m = kv_inbox_take(&w1->inbox);
    ck_assert(kv_inbox_empty(&w1->inbox));
    for (uint32_t i = 0; i < 5; i++) {
        struct kv_message *next = m->next;
        ck_assert_int_eq(m->kind, KV_MSG_SHARD_FREE);
        ck_assert_uint_eq(m->number, i);
        ck_assert_uint_eq(m->number2, i * i);
        ck_assert_ptr_eq(m->pointer, &reply);
        kv_inbox_free(m);
        m = next;
    }
    ck_assert_ptr_null(m);
}
END_TEST

START_TEST(a_message_ends_waiting)
{
    start(2);
    kv_inbox_post(w0, KV_MSG_SHARD_FREE, 1, 0, NULL);
    uint64_t before = kv_clock_mono_ns();
    kv_worker_poll(w0, 5000);
    ck_assert_uint_lt(kv_clock_mono_ns() - before, 4000000000u);
    ck_assert(kv_inbox_empty(&w0->inbox));
}
END_TEST

/* A message of a moment at which nothing waits any more does no harm. */
START_TEST(late_messages_are_harmless)
{
    start(2);
    kv_inbox_post(w0, KV_MSG_SHARD_FREE, 1, 0, NULL);
    kv_inbox_post(w0, KV_MSG_GATE_RECHECK, 0, 0, NULL);
    kv_inbox_post(w0, KV_MSG_STREAM_SPACE, 0, 0, NULL);
    kv_worker_poll(w0, 0);
    ck_assert(kv_inbox_empty(&w0->inbox));
}
END_TEST

#define PRODUCERS 3
static int posts;

static void *post_many(void *arg)
{
    uint32_t index = *(uint32_t *)arg;
    for (int i = 0; i < posts; i++)
        kv_inbox_post(w1, KV_MSG_SHARD_FREE, index, (uint32_t)i, NULL);
    kv_mem_thread_exit();
    return NULL;
}

START_TEST(every_sender_keeps_its_order)
{
    pthread_t threads[PRODUCERS];
    uint32_t indexes[PRODUCERS], next[PRODUCERS] = {0};
    start(2);
    posts = UNIT_ROUNDS(20000);
    for (uint32_t i = 0; i < PRODUCERS; i++) {
        indexes[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, post_many, &indexes[i]), 0);
    }
    for (int seen = 0; seen < PRODUCERS * posts;) {
        struct kv_message *m = kv_inbox_take(&w1->inbox);
        if (m == NULL)
            sched_yield();
        while (m != NULL) {
            struct kv_message *after = m->next;
            ck_assert_uint_eq(m->number2, next[m->number]);
            next[m->number]++;
            seen++;
            kv_inbox_free(m);
            m = after;
        }
    }
    for (uint32_t i = 0; i < PRODUCERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert(kv_inbox_empty(&w1->inbox));
}
END_TEST

static int order[100], order_len; /* written by the background thread alone */

static void note(void *arg)
{
    order[order_len++] = (int)(intptr_t)arg;
}

START_TEST(jobs_run_in_order_and_all)
{
    start(1);
    for (int i = 0; i < 100; i++)
        kv_engine_background(engine, note, (void *)(intptr_t)i);
    library_background_wait(engine);
    ck_assert_uint_eq(kv_engine_background_done(engine), 100);
    ck_assert_int_eq(order_len, 100);
    for (int i = 0; i < 100; i++)
        ck_assert_int_eq(order[i], i);
}
END_TEST

START_TEST(the_end_waits_for_all_jobs)
{
    start(1);
    struct kv_background *b = kv_background_create();
    for (int i = 0; i < 50; i++)
        kv_background_submit(b, note, (void *)(intptr_t)i);
    kv_background_destroy(b);
    ck_assert_int_eq(order_len, 50);
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "inbox");
    unit_add(&u, messages_come_oldest_first);
    unit_add(&u, a_message_ends_waiting);
    unit_add(&u, late_messages_are_harmless);
    unit_add(&u, every_sender_keeps_its_order);
    unit_add(&u, jobs_run_in_order_and_all);
    unit_add(&u, the_end_waits_for_all_jobs);
    return unit_run(&u);
}
