/* engine/gate.h: one command alone, plain ones parked meanwhile, neither side starving the other,
 * and nobody left behind when a connection vanishes. */
#include "fixture.h"

START_TEST(plain_commands_enter_an_open_gate)
{
    start(2);
    ck_assert(kv_gate_enter(w0));
    ck_assert(kv_gate_enter(w1));
    kv_gate_leave(w0);
    kv_gate_leave(w1);
    ck_assert(kv_inbox_empty(&w0->inbox));
    ck_assert(kv_inbox_empty(&w1->inbox));
}
END_TEST

START_TEST(nobody_enters_a_closed_gate)
{
    start(2);
    struct kv_client *c = kv_client_create_virtual(w1);
    ck_assert(kv_gate_close(w1, c));
    ck_assert_uint_eq(c->flags & KV_CLIENT_PARKED, 0);
    ck_assert(!kv_gate_enter(w0));
    ck_assert_uint_eq(atomic_load(&w0->inside), 0);
    kv_gate_open(w1);
    ck_assert(kv_gate_enter(w0));
    kv_gate_leave(w0);
}
END_TEST

START_TEST(an_exclusive_command_waits_for_those_inside)
{
    start(2);
    struct kv_client *c = client_new();
    ck_assert(kv_gate_enter(w1));
    assert_reply(c, "size", "");
    ck_assert_int_eq(c->park, KV_PARK_ALONE);
    kv_worker_poll(w0, 0);
    assert_answered(c, "");
    kv_gate_leave(w1);
    kv_worker_poll(w0, 0);
    assert_answered(c, ":0\r\n");
    ck_assert_uint_eq(STAT(gate_parks), 1);
    ck_assert_uint_eq(STAT(gate_closes), 1);
}
END_TEST

START_TEST(plain_commands_wait_for_an_exclusive_one)
{
    start(2);
    struct kv_client *other = kv_client_create_virtual(w1), *c = client_new();
    ck_assert(kv_gate_close(w1, other));
    assert_reply(c, "set a 1", "");
    ck_assert_int_eq(c->park, KV_PARK_GATE);
    assert_reply(c, "get a", "");
    /* What needs no keys goes on. */
    struct kv_client *d = client_new();
    assert_reply(d, "args", "*1\r\n$4\r\nargs\r\n");
    kv_worker_poll(w0, 0);
    assert_answered(c, "");
    kv_gate_open(w1);
    kv_worker_poll(w0, 0);
    assert_answered(c, "+OK\r\n$1\r\n1\r\n");
}
END_TEST

START_TEST(exclusive_commands_run_in_order_of_arrival)
{
    start(2);
    struct kv_client *other = kv_client_create_virtual(w1);
    struct kv_client *first = client_new(), *second = client_new();
    ck_assert(kv_gate_close(w1, other));
    assert_reply(first, "size", "");
    assert_reply(second, "size", "");
    ck_assert_ptr_eq(engine->gate.exclusive.first, first);
    ck_assert_ptr_eq(engine->gate.exclusive.last, second);
    kv_gate_open(w1);
    ck_assert_ptr_eq(engine->gate.owner, first);
    /* A late one does not overtake. */
    struct kv_client *late = client_new();
    assert_reply(late, "size", "");
    kv_worker_poll(w0, 0);
    assert_answered(first, ":0\r\n");
    for (int i = 0; i < 3; i++)
        kv_worker_poll(w0, 0);
    assert_answered(second, ":0\r\n");
    assert_answered(late, ":0\r\n");
    ck_assert_ptr_null(engine->gate.owner);
}
END_TEST

/* Between two exclusive commands those that were parked get their turn. */
START_TEST(parked_plain_commands_come_before_the_next_exclusive_one)
{
    start(2);
    struct kv_client *other = kv_client_create_virtual(w1);
    struct kv_client *plain = client_new(), *exclusive = client_new();
    ck_assert(kv_gate_close(w1, other));
    assert_reply(exclusive, "size", "");
    assert_reply(plain, "set a 1", "");
    kv_gate_open(w1);
    ck_assert_uint_eq(engine->gate.phase_pending, 1);
    ck_assert_ptr_null(engine->gate.owner);
    for (int i = 0; i < 3; i++)
        kv_worker_poll(w0, 0);
    assert_answered(plain, "+OK\r\n");
    assert_answered(exclusive, ":1\r\n");
    ck_assert_uint_eq(engine->gate.phase_pending, 0);
}
END_TEST

START_TEST(a_vanishing_owner_opens_the_gate)
{
    start(2);
    struct kv_client *owner = client_new(), *plain = client_new();
    ck_assert(kv_gate_enter(w1));
    assert_reply(owner, "size", "");
    ck_assert_ptr_eq(engine->gate.owner, owner);
    assert_reply(plain, "set a 1", "");
    kv_client_destroy(owner);
    ck_assert_ptr_null(engine->gate.owner);
    kv_worker_poll(w0, 0);
    kv_worker_poll(w0, 0);
    assert_answered(plain, "+OK\r\n");
    kv_gate_leave(w1);
}
END_TEST

START_TEST(those_that_queue_may_vanish)
{
    start(2);
    struct kv_client *other = kv_client_create_virtual(w1), *c[4];
    ck_assert(kv_gate_close(w1, other));
    for (int i = 0; i < 4; i++) {
        c[i] = client_new();
        assert_reply(c[i], i == 3 ? "get a" : "size", "");
    }
    kv_client_destroy(c[1]);
    kv_client_destroy(c[3]);
    kv_client_destroy(c[2]);
    ck_assert_ptr_eq(engine->gate.exclusive.first, c[0]);
    ck_assert_ptr_eq(engine->gate.exclusive.last, c[0]);
    kv_gate_open(w1);
    for (int i = 0; i < 3; i++)
        kv_worker_poll(w0, 0);
    assert_answered(c[0], ":0\r\n");
    ck_assert_ptr_null(engine->gate.owner);
    ck_assert_uint_eq(engine->gate.phase_pending, 0);
}
END_TEST

START_TEST(a_command_that_turns_out_plain_gives_the_gate_back)
{
    start(2);
    struct kv_client *c = client_new();
    ck_assert(kv_gate_enter(w1));
    assert_reply(c, "multi", "+OK\r\n");
    assert_reply(c, "size", "+QUEUED\r\n");
    assert_reply(c, "exec", "");
    ck_assert_ptr_eq(engine->gate.owner, c);
    /* The transaction can no longer run: its reply needs no gate. */
    c->flags |= KV_CLIENT_DIRTY_EXEC;
    kv_gate_leave(w1);
    kv_worker_poll(w0, 0);
    assert_answered(c, "-EXECABORT Transaction discarded because of previous errors.\r\n");
    ck_assert_ptr_null(engine->gate.owner);
    ck_assert_uint_eq(atomic_load(&engine->gate.closed), 0);
}
END_TEST

START_TEST(the_world_stops_when_nobody_else_runs)
{
    start(2);
    struct kv_client *c = client_new();
    (void)kv_client_create_virtual(w1);
    assert_reply(c, "world", ":2\r\n");
    ck_assert_uint_eq(STAT(world_stops), 1);
    ck_assert_uint_eq(atomic_load(&engine->gate.stop), 0);
}
END_TEST

START_TEST(one_worker_needs_no_gate)
{
    start(1);
    struct kv_client *c = client_new();
    assert_reply(c, "size", ":0\r\n");
    assert_reply(c, "world", ":1\r\n");
    assert_reply(c, "set a 1", "+OK\r\n");
    assert_reply(c, "visit", ":1\r\n");
    ck_assert_uint_eq(STAT(gate_closes), 0);
    ck_assert_uint_eq(STAT(world_stops), 0);
}
END_TEST

/* Shards are visited one by one; a busy one ends the visit, the first parks. */
START_TEST(a_visit_parks_at_its_first_shard)
{
    start(2);
    struct kv_client *c = client_new();
    ck_assert(kv_shard_try_lock(engine, 0));
    assert_reply(c, "visit", "");
    ck_assert_int_eq(c->park, KV_PARK_SHARD);
    kv_shard_unlock(engine, 0);
    kv_worker_poll(w0, 0);
    assert_answered(c, ":0\r\n");
    ck_assert(kv_shard_try_lock(engine, 9));
    assert_reply(c, "visit", ":0\r\n");
    kv_shard_unlock(engine, 9);
    ck_assert_uint_eq(atomic_load(&w0->inside), 0);
}
END_TEST

/* --- threads: plain, exclusive and stopping commands at once --- */

#define WORKERS 3
static atomic_int running;
static int commands;

static bool waits(const struct kv_client *c)
{
    return (c->flags & (KV_CLIENT_PARKED | KV_CLIENT_RESUMING)) != 0;
}

static void *mixed_load(void *arg)
{
    struct kv_worker *w = arg;
    struct library_bytes answer = {0};
    struct kv_random r;
    kv_random_init(&r, w->index + 1);
    kv_worker_attach(w);
    struct kv_client *c[3];
    for (int i = 0; i < 3; i++)
        c[i] = kv_client_create_virtual(w);
    for (int i = 0; i < commands; i++) {
        static const char *const lines[] = {"keep a 1",    "set b 2", "get a",    "size",
                                            "count a b c", "visit",   "keep c 3", "world"};
        struct kv_client *to = c[kv_random_below(&r, 3)];
        if (!waits(to))
            library_send(to, lines[kv_random_below(&r, i % 8 == 0 ? 8 : 3)], &answer);
        kv_worker_poll(w, 0);
    }
    bool waiting = true;
    while (waiting) {
        kv_worker_poll(w, 1);
        waiting = waits(c[0]) || waits(c[1]) || waits(c[2]);
    }
    /* Others may still need this worker to come to its stop point. */
    atomic_fetch_sub(&running, 1);
    while (atomic_load(&running) > 0)
        kv_worker_poll(w, 1);
    for (int i = 0; i < 3; i++)
        kv_client_destroy(c[i]);
    library_release(&answer);
    kv_worker_detach(w);
    kv_mem_thread_exit();
    return NULL;
}

START_TEST(nobody_waits_for_ever)
{
    pthread_t threads[WORKERS];
    start(WORKERS);
    kv_worker_detach(w0);
    commands = UNIT_ROUNDS(3000);
    atomic_store(&running, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, mixed_load, kv_engine_worker(engine, i)),
                         0);
    for (uint32_t i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    kv_worker_attach(w0);
    ck_assert_ptr_null(engine->gate.owner);
    ck_assert_ptr_null(engine->gate.exclusive.first);
    ck_assert_uint_eq(atomic_load(&engine->gate.closed), 0);
}
END_TEST

START_TEST(an_upgrade_comes_before_an_exclusive_command_that_waits)
{
    start(2);
    struct kv_client *c = client_new();
    ck_assert(kv_gate_enter(w1));
    assert_reply(c, "size", "");
    /* w1 is inside, so the command cannot run; now it is alone. */
    kv_gate_upgrade(w1);
    kv_worker_poll(w0, 0);
    assert_answered(c, "");
    struct kv_client *plain = client_new();
    assert_reply(plain, "set a 1", "");
    ck_assert_int_eq(plain->park, KV_PARK_GATE);
    kv_gate_downgrade(w1);
    ck_assert_uint_eq(atomic_load(&engine->gate.closed), 1);
    kv_gate_leave(w1);
    kv_worker_poll(w0, 0);
    assert_answered(c, ":0\r\n");
    kv_worker_poll(w0, 0);
    assert_answered(plain, "+OK\r\n");
}
END_TEST

START_TEST(an_upgrade_survives_that_who_waited_vanishes)
{
    start(2);
    struct kv_client *c = client_new();
    ck_assert(kv_gate_enter(w1));
    assert_reply(c, "size", "");
    kv_gate_upgrade(w1);
    kv_client_destroy(c);
    ck_assert_uint_eq(atomic_load(&engine->gate.closed), 1);
    ck_assert(!kv_gate_enter(w0));
    kv_gate_downgrade(w1);
    ck_assert_uint_eq(atomic_load(&engine->gate.closed), 0);
    kv_gate_leave(w1);
    ck_assert(kv_gate_enter(w0));
    kv_gate_leave(w0);
}
END_TEST

/* A script that upgrades within a phase begins another one when it ends: a worker that finds both
 * messages in one round has had both. */
START_TEST(an_upgrade_within_a_phase_begins_another)
{
    start(2);
    struct kv_client *other = kv_client_create_virtual(w1);
    struct kv_client *first = client_new(), *second = client_new(), *exclusive = client_new();
    ck_assert(kv_gate_close(w1, other));
    assert_reply(first, "set a 1", "");
    kv_gate_open(w1);
    ck_assert(kv_gate_enter(w1));
    kv_gate_upgrade(w1);
    assert_reply(second, "set b 1", "");
    kv_gate_downgrade(w1);
    kv_gate_leave(w1);
    ck_assert_uint_eq(engine->gate.phase_pending, 2);
    assert_reply(exclusive, "size", "");
    for (int i = 0; i < 3; i++)
        kv_worker_poll(w0, 0);
    assert_answered(first, "+OK\r\n");
    assert_answered(second, "+OK\r\n");
    assert_answered(exclusive, ":2\r\n");
    ck_assert_uint_eq(engine->gate.phase_pending, 0);
}
END_TEST

/* Another text may take the place of a script's among those that are known to upgrade. */
START_TEST(what_was_exclusive_when_it_began_to_wait_stays_so)
{
    start(2);
    struct kv_client *c = client_new(), *other = client_new();
    c->park_rounds = KV_PARK_ROUNDS_MAX;
    ck_assert(kv_gate_enter(w1));
    assert_reply(c, "visit", "");
    ck_assert_int_eq(c->park, KV_PARK_ALONE);
    c->park_rounds = 0; /* the reason is gone */
    assert_reply(other, "set a 1", "");
    kv_gate_leave(w1);
    for (int i = 0; i < 2; i++)
        kv_worker_poll(w0, 0);
    assert_answered(c, ":0\r\n");
    assert_answered(other, "+OK\r\n");
    ck_assert_ptr_null(engine->gate.owner);
    ck_assert_uint_eq(atomic_load(&engine->gate.closed), 0);
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "gate");
    unit_add(&u, plain_commands_enter_an_open_gate);
    unit_add(&u, nobody_enters_a_closed_gate);
    unit_add(&u, an_exclusive_command_waits_for_those_inside);
    unit_add(&u, plain_commands_wait_for_an_exclusive_one);
    unit_add(&u, exclusive_commands_run_in_order_of_arrival);
    unit_add(&u, parked_plain_commands_come_before_the_next_exclusive_one);
    unit_add(&u, a_vanishing_owner_opens_the_gate);
    unit_add(&u, those_that_queue_may_vanish);
    unit_add(&u, a_command_that_turns_out_plain_gives_the_gate_back);
    unit_add(&u, the_world_stops_when_nobody_else_runs);
    unit_add(&u, one_worker_needs_no_gate);
    unit_add(&u, a_visit_parks_at_its_first_shard);
    unit_add(&u, nobody_waits_for_ever);
    unit_add(&u, an_upgrade_comes_before_an_exclusive_command_that_waits);
    unit_add(&u, an_upgrade_survives_that_who_waited_vanishes);
    unit_add(&u, an_upgrade_within_a_phase_begins_another);
    unit_add(&u, what_was_exclusive_when_it_began_to_wait_stays_so);
    return unit_run(&u);
}
