/* engine/lockset.h: all or none, in ascending order; parking and waking at a busy shard; counters
 * that only locks protect, from several threads. */
#include "fixture.h"
#include <sched.h>

static struct kv_lockset set;

static void want(const uint32_t *shards, size_t count)
{
    kv_lockset_init(&set, engine->shard_count);
    for (size_t i = 0; i < count; i++)
        kv_lockset_add(&set, shards[i]);
}

static uint32_t word(uint32_t shard)
{
    return atomic_load(&engine->locks[shard].word);
}

static uint32_t held_count(void)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < engine->shard_count; i++)
        n += word(i) != 0;
    return n;
}

START_TEST(a_set_is_locked_whole)
{
    static const uint32_t shards[] = {0, 5, 63, 5};
    start(2);
    ck_assert_uint_eq(engine->shard_count, 64);
    want(shards, KV_ARRAY_LEN(shards));
    ck_assert(kv_lockset_try(engine, &set));
    ck_assert(set.held);
    ck_assert_uint_eq(held_count(), 3);
    kv_lockset_unlock(engine, &set);
    ck_assert(!set.held);
    ck_assert_uint_eq(held_count(), 0);
    ck_assert_uint_eq(set.bits[0], 0);
}
END_TEST

START_TEST(a_busy_shard_leaves_none_locked)
{
    static const uint32_t shards[] = {3, 9, 20, 63};
    start(2);
    for (size_t busy = 0; busy < KV_ARRAY_LEN(shards); busy++) {
        ck_assert(kv_shard_try_lock(engine, shards[busy]));
        want(shards, KV_ARRAY_LEN(shards));
        ck_assert(!kv_lockset_try(engine, &set));
        ck_assert_uint_eq(set.busy, shards[busy]);
        ck_assert(!set.held);
        ck_assert_uint_eq(held_count(), 1);
        kv_shard_unlock(engine, shards[busy]);
        ck_assert(kv_lockset_try(engine, &set));
        kv_lockset_unlock(engine, &set);
    }
}
END_TEST

START_TEST(sets_may_span_many_words)
{
    options.shards = 4096;
    start(2);
    kv_lockset_init(&set, 4096);
    ck_assert_uint_eq(set.words, 64);
    for (uint32_t i = 0; i < 4096; i += 61)
        kv_lockset_add(&set, i);
    ck_assert(kv_shard_try_lock(engine, 61 * 60));
    ck_assert(!kv_lockset_try(engine, &set));
    ck_assert_uint_eq(held_count(), 1);
    kv_shard_unlock(engine, 61 * 60);
    ck_assert(kv_lockset_try(engine, &set));
    ck_assert_uint_eq(held_count(), 68);
    kv_lockset_unlock(engine, &set);
}
END_TEST

START_TEST(nobody_parks_at_a_free_shard)
{
    start(2);
    struct kv_client *c = client_new();
    ck_assert(!kv_shard_park(engine, 7, c));
    ck_assert_uint_eq(c->flags & KV_CLIENT_PARKED, 0);
    ck_assert_uint_eq(word(7), 0);
}
END_TEST

/* One message for each worker with waiters, however many wait. */
START_TEST(unlocking_tells_the_workers_of_those_that_wait)
{
    start(2);
    struct kv_client *clients[3] = {client_new(), client_new(), kv_client_create_virtual(w1)};
    ck_assert(kv_shard_try_lock(engine, 7));
    for (size_t i = 0; i < 3; i++) {
        ck_assert(kv_shard_park(engine, 7, clients[i]));
        ck_assert(atomic_load(&clients[i]->park_listed));
        ck_assert_uint_eq(clients[i]->park_shard, 7);
    }
    ck_assert_uint_eq(word(7), 2);
    kv_shard_unlock(engine, 7);
    ck_assert_uint_eq(word(7), 0);
    struct kv_worker *workers[] = {w0, w1};
    for (size_t i = 0; i < 2; i++) {
        struct kv_message *m = kv_inbox_take(&workers[i]->inbox);
        ck_assert_ptr_nonnull(m);
        ck_assert_int_eq(m->kind, KV_MSG_SHARD_FREE);
        ck_assert_uint_eq(m->number, 7);
        ck_assert_ptr_null(m->next);
        kv_inbox_free(m);
    }
    for (size_t i = 0; i < 3; i++) {
        ck_assert(!atomic_load(&clients[i]->park_listed));
        clients[i]->flags &= ~(uint32_t)KV_CLIENT_PARKED;
        clients[i]->park = KV_PARK_NONE;
    }
}
END_TEST

START_TEST(who_has_left_is_not_woken)
{
    start(2);
    struct kv_client *clients[3] = {client_new(), client_new(), client_new()};
    for (size_t first = 0; first < 3; first++) {
        ck_assert(kv_shard_try_lock(engine, 7));
        for (size_t i = 0; i < 3; i++)
            ck_assert(kv_shard_park(engine, 7, clients[i]));
        for (size_t i = 0; i < 3; i++)
            kv_shard_unpark(engine, 7, clients[(first + i) % 3]);
        ck_assert_ptr_null(engine->locks[7].waiters);
        kv_shard_unpark(engine, 7, clients[0]);
        kv_shard_unlock(engine, 7);
        ck_assert(kv_inbox_empty(&w0->inbox));
    }
    for (size_t i = 0; i < 3; i++) {
        clients[i]->flags &= ~(uint32_t)KV_CLIENT_PARKED;
        clients[i]->park = KV_PARK_NONE;
    }
}
END_TEST

/* --- a connection that meets a busy shard --- */

START_TEST(a_connection_parks_and_goes_on_in_order)
{
    start(2);
    struct kv_client *c = client_new();
    uint32_t shard = shard_of_key("a");
    assert_reply(c, "set a 0", "+OK\r\n");
    ck_assert(kv_shard_try_lock(engine, shard));
    assert_reply(c, "keep a 1", "");
    ck_assert(c->flags & KV_CLIENT_PARKED);
    /* What comes meanwhile waits behind it. */
    assert_reply(c, "args x", "");
    assert_reply(c, "get a", "");
    kv_worker_poll(w0, 0);
    assert_answered(c, "");
    kv_shard_unlock(engine, shard);
    kv_worker_poll(w0, 0);
    assert_answered(c, "+OK\r\n*2\r\n$4\r\nargs\r\n$1\r\nx\r\n$1\r\n1\r\n");
    ck_assert_uint_eq(STAT(lock_parks), 1);
    ck_assert_uint_eq(c->flags & KV_CLIENT_PARKED, 0);
}
END_TEST

START_TEST(other_shards_are_not_concerned)
{
    start(2);
    struct kv_client *c = client_new();
    uint32_t shard = shard_of_key("a");
    ck_assert(kv_shard_try_lock(engine, (shard + 1) % engine->shard_count));
    assert_reply(c, "set a 1", "+OK\r\n");
    kv_shard_unlock(engine, (shard + 1) % engine->shard_count);
}
END_TEST

/* After eight rounds the command takes the gate, which the holder of a shard does not pass. */
START_TEST(after_eight_rounds_the_gate_is_taken)
{
    start(2);
    struct kv_client *c = client_new();
    uint32_t shard = shard_of_key("a");
    for (int round = 0; round < KV_PARK_ROUNDS_MAX; round++) {
        ck_assert(kv_gate_enter(w1));
        ck_assert(kv_shard_try_lock(engine, shard));
        if (round == 0)
            assert_reply(c, "keep a 1", "");
        else
            kv_worker_poll(w0, 0);
        ck_assert_int_eq(c->park, KV_PARK_SHARD);
        kv_shard_unlock(engine, shard);
        kv_gate_leave(w1);
    }
    ck_assert(kv_gate_enter(w1));
    ck_assert(kv_shard_try_lock(engine, shard));
    kv_worker_poll(w0, 0);
    ck_assert_int_eq(c->park, KV_PARK_ALONE);
    ck_assert(!kv_gate_enter(w0));
    kv_shard_unlock(engine, shard);
    kv_gate_leave(w1);
    kv_worker_poll(w0, 0);
    assert_answered(c, "+OK\r\n");
    ck_assert(kv_gate_enter(w1));
    kv_gate_leave(w1);
}
END_TEST

START_TEST(a_parked_connection_may_vanish)
{
    start(2);
    struct kv_client *c = client_new();
    uint32_t shard = shard_of_key("a");
    ck_assert(kv_shard_try_lock(engine, shard));
    assert_reply(c, "keep a 1", "");
    kv_client_destroy(c);
    kv_shard_unlock(engine, shard);
    kv_worker_poll(w0, 0);
    ck_assert_ptr_null(w0->shard_waiters);
}
END_TEST

/* It vanishes between the unlock and the message. */
START_TEST(a_woken_connection_may_vanish)
{
    start(2);
    struct kv_client *c = client_new();
    uint32_t shard = shard_of_key("a");
    ck_assert(kv_shard_try_lock(engine, shard));
    assert_reply(c, "keep a 1", "");
    kv_shard_unlock(engine, shard);
    kv_client_destroy(c);
    kv_worker_poll(w0, 0);
    ck_assert_ptr_null(w0->shard_waiters);
}
END_TEST

/* --- threads --- */

#define THREADS 3
static uint64_t counters[64]; /* each under its shard's lock */
static uint64_t sums[THREADS];
static int rounds;

static void *count_under_locks(void *arg)
{
    uint32_t index = *(uint32_t *)arg;
    struct kv_random r;
    struct kv_lockset own;
    kv_random_init(&r, index + 1);
    kv_lockset_init(&own, 64);
    for (int i = 0; i < rounds; i++) {
        uint32_t n = 1 + (uint32_t)kv_random_below(&r, 5);
        for (uint32_t j = 0; j < n; j++)
            kv_lockset_add(&own, (uint32_t)kv_random_below(&r, 64));
        uint64_t bits = own.bits[0];
        while (!kv_lockset_try(engine, &own))
            sched_yield();
        for (uint32_t s = 0; s < 64; s++) {
            if (bits >> s & 1) {
                counters[s]++;
                sums[index]++;
            }
        }
        kv_lockset_unlock(engine, &own);
    }
    kv_mem_thread_exit();
    return NULL;
}

START_TEST(locks_exclude_each_other)
{
    pthread_t threads[THREADS];
    uint32_t indexes[THREADS];
    uint64_t sum = 0, counted = 0;
    start(2);
    rounds = UNIT_ROUNDS(20000);
    for (uint32_t i = 0; i < THREADS; i++) {
        indexes[i] = i;
        ck_assert_int_eq(pthread_create(&threads[i], NULL, count_under_locks, &indexes[i]), 0);
    }
    for (uint32_t i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        sum += sums[i];
    }
    for (uint32_t s = 0; s < 64; s++)
        counted += counters[s];
    ck_assert_uint_eq(sum, counted);
    ck_assert_uint_eq(held_count(), 0);
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "lockset");
    unit_add(&u, a_set_is_locked_whole);
    unit_add(&u, a_busy_shard_leaves_none_locked);
    unit_add(&u, sets_may_span_many_words);
    unit_add(&u, nobody_parks_at_a_free_shard);
    unit_add(&u, unlocking_tells_the_workers_of_those_that_wait);
    unit_add(&u, who_has_left_is_not_woken);
    unit_add(&u, a_connection_parks_and_goes_on_in_order);
    unit_add(&u, other_shards_are_not_concerned);
    unit_add(&u, after_eight_rounds_the_gate_is_taken);
    unit_add(&u, a_parked_connection_may_vanish);
    unit_add(&u, a_woken_connection_may_vanish);
    unit_add(&u, locks_exclude_each_other);
    return unit_run(&u);
}
