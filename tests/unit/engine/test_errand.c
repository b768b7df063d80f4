/* Errands: clients that wait, keys that are held, turns under locks, ends without a client and
 * without an end. */
#include "engine/errand.h"
#include "fixture.h"

/* An errand of these tests: out until a test lets it return, for `rounds` times. */
struct trip {
    struct kv_errand errand;
    struct kv_key key;
    uint64_t hash;
    char bytes[16];
    int rounds;
};

static atomic_int out_count;   /* so many times one went out */
static atomic_bool may_return; /* and comes back */
static atomic_bool cancelled_seen;
static int turn_count, release_count, rounds;
static bool holds;

static void trip_work(struct kv_errand *x)
{
    atomic_fetch_add(&out_count, 1);
    while (!atomic_load(&may_return) && !atomic_load(&x->cancelled))
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    if (atomic_load(&x->cancelled))
        atomic_store(&cancelled_seen, true);
}

static bool trip_turn(struct kv_errand *x, struct kv_call *call)
{
    struct trip *t = KV_CONTAINER_OF(x, struct trip, errand);
    turn_count++;
    ck_assert(call->client == NULL);
    ck_assert(!engine->multi || call->hold_all ||
              kv_lockset_has(&w0->locks, shard_of_key(t->bytes)));
    if (t->rounds-- > 0)
        return false;
    struct kv_entry *e = kv_store_peek(&call->view, &t->key);
    if (e != NULL) {
        kv_store_delete(&call->view, &t->key, e);
        kv_store_changed(&call->view, &t->key, KV_EVENT_GENERIC, "del");
    }
    kv_reply_int(call->out, e != NULL);
    return true;
}

static void trip_release(struct kv_errand *x, struct kv_store *store)
{
    (void)store;
    release_count++;
    kv_mem_free(KV_CONTAINER_OF(x, struct trip, errand), sizeof(struct trip), KV_MEM_OTHER);
}

static void tiny_errand(struct kv_call *call)
{
    if (!kv_call_may_errand(call)) {
        kv_call_error(call, "ERR nobody waits");
        return;
    }
    struct trip *t = kv_mem_zalloc(sizeof(*t), KV_MEM_OTHER);
    ck_assert_uint_lt(call->keys[0].len, sizeof(t->bytes));
    memcpy(t->bytes, call->keys[0].ptr, call->keys[0].len);
    t->key = (struct kv_key){t->bytes, call->keys[0].len, call->keys[0].hash};
    t->rounds = rounds;
    t->errand = (struct kv_errand){.turn = trip_turn,
                                   .work = trip_work,
                                   .release = trip_release,
                                   .keys = &t->key,
                                   .hashes = &t->hash,
                                   .key_count = 1,
                                   .holds = holds};
    ck_assert_int_eq(kv_call_errand(call, &t->errand), KV_OK);
}

static struct kv_command commands[KV_ARRAY_LEN(tiny_commands) + 1];
static const struct kv_command_table table = {.commands = commands,
                                              .command_count = KV_ARRAY_LEN(commands),
                                              .id_count = KV_ARRAY_LEN(commands)};

/* The tiny table with "errand KEY" at the place that its name has. */
static void start_with_errands(uint32_t threads)
{
    const struct kv_command errand = {TINY(0, errand, 2, KV_MODE_KEYS, KV_CMD_WRITE),
                                      TINY_KEYS(tiny_first)};
    size_t n = 0;
    bool there = false;
    for (size_t i = 0; i < KV_ARRAY_LEN(tiny_commands); i++) {
        if (!there && strcmp(tiny_commands[i].name, "errand") > 0) {
            memcpy(&commands[n++], &errand, sizeof(errand));
            there = true;
        }
        memcpy(&commands[n++], &tiny_commands[i], sizeof(errand));
    }
    for (size_t i = 0; i < n; i++)
        commands[i].id = (uint16_t)i;
    options.threads = threads;
    engine = kv_engine_create(&options, &table);
    w0 = kv_engine_worker(engine, 0);
    w1 = threads > 1 ? kv_engine_worker(engine, 1) : NULL;
    kv_worker_attach(w0);
    atomic_store(&out_count, 0);
    atomic_store(&may_return, false);
    turn_count = release_count = 0;
    rounds = 1;
    holds = true;
    atomic_store(&cancelled_seen, false);
}

static void until_out(int count)
{
    while (atomic_load(&out_count) < count)
        kv_worker_poll(w0, 1);
}

static void until_released(int count)
{
    while (release_count < count)
        kv_worker_poll(w0, 1);
    kv_worker_poll(w0, 0); /* who waited goes on */
    kv_worker_poll(w0, 0);
}

static const uint32_t thread_counts[] = {1, 2};

START_TEST(a_client_waits_while_others_go_on)
{
    start_with_errands(thread_counts[_i]);
    struct kv_client *c = client_new(), *d = client_new();
    assert_reply(d, "set k 1", "+OK\r\n");
    assert_reply(c, "errand k", "");
    assert_reply(c, "args later", "");
    until_out(1);
    assert_answered(c, "");
    ck_assert(c->flags & KV_CLIENT_BLOCKED);
    ck_assert(!kv_client_unblock(c, false));
    assert_reply(d, "get k", "$1\r\n1\r\n");
    assert_reply(d, "set other 2", "+OK\r\n");
    assert_reply(d, "size", ":2\r\n");
    atomic_store(&may_return, true);
    until_released(1);
    assert_answered(c, ":1\r\n*2\r\n$4\r\nargs\r\n$5\r\nlater\r\n");
    assert_reply(d, "get k", "$-1\r\n");
    ck_assert_int_eq(turn_count, 2);
    ck_assert(!(c->flags & KV_CLIENT_BLOCKED));
}
END_TEST

START_TEST(who_may_write_to_a_held_key_waits)
{
    start_with_errands(thread_counts[_i]);
    struct kv_client *c = client_new(), *d = client_new(), *e = client_new(), *f = client_new();
    assert_reply(d, "set k 1", "+OK\r\n");
    assert_reply(c, "errand k", "");
    until_out(1);
    assert_reply(d, "set k 2", "");
    assert_reply(e, "multi", "+OK\r\n");
    assert_reply(e, "keep k 3", "+QUEUED\r\n");
    assert_reply(e, "exec", "");
    assert_reply(f, "multi", "+OK\r\n");
    assert_reply(f, "get k", "+QUEUED\r\n");
    assert_reply(f, "keep other 4", "+QUEUED\r\n");
    assert_reply(f, "exec", "*2\r\n$1\r\n1\r\n+OK\r\n");
    kv_worker_poll(w0, 0);
    assert_answered(d, "");
    assert_answered(e, "");
    atomic_store(&may_return, true);
    until_released(1);
    assert_answered(c, ":1\r\n");
    assert_answered(d, "+OK\r\n");
    assert_answered(e, "*1\r\n+OK\r\n");
    ck_assert_int_eq(engine->pause_until_ms, 0);
}
END_TEST

START_TEST(an_errand_that_holds_nothing_delays_nobody)
{
    start_with_errands(thread_counts[_i]);
    holds = false;
    struct kv_client *c = client_new(), *d = client_new();
    assert_reply(c, "errand k", "");
    until_out(1);
    assert_reply(d, "set k 2", "+OK\r\n");
    atomic_store(&may_return, true);
    until_released(1);
    assert_answered(c, ":1\r\n");
}
END_TEST

START_TEST(several_hold_keys_and_each_lets_go_of_its_own)
{
    start_with_errands(thread_counts[_i]);
    struct kv_client *a = client_new(), *b = client_new(), *d = client_new(), *e = client_new();
    rounds = 2;
    assert_reply(a, "errand a", "");
    until_out(1);
    rounds = 0; /* over with its first turn */
    assert_reply(b, "errand b", "");
    assert_reply(d, "set a 1", "");
    assert_reply(e, "errand a", "");
    until_released(1);
    assert_answered(b, ":0\r\n");
    assert_answered(d, "");
    assert_answered(e, "");
    assert_reply(b, "set b 1", "+OK\r\n");
    atomic_store(&may_return, true);
    until_released(3);
    assert_answered(a, ":0\r\n");
    assert_answered(d, "+OK\r\n");
    assert_answered(e, ":1\r\n");
    ck_assert(engine->errands.held == NULL);
}
END_TEST

START_TEST(two_of_one_round_hold_a_key_in_turn)
{
    start_with_errands(thread_counts[_i]);
    struct kv_client *a = client_new(), *b = client_new(), *d = client_new();
    assert_reply(d, "set k 1", "+OK\r\n");
    assert_reply(a, "errand k", "");
    assert_reply(b, "errand k", "");
    until_out(1);
    for (int i = 0; i < 20; i++)
        kv_worker_poll(w0, 1);
    ck_assert_int_eq(atomic_load(&out_count), 1);
    ck_assert_int_eq(turn_count, 1);
    atomic_store(&may_return, true);
    until_released(2);
    assert_answered(a, ":1\r\n");
    assert_answered(b, ":0\r\n");
    ck_assert(engine->errands.held == NULL);
}
END_TEST

START_TEST(a_client_may_vanish_and_its_errand_ends)
{
    start_with_errands(thread_counts[_i]);
    struct kv_client *c = client_new(), *d = client_new();
    assert_reply(d, "set k 1", "+OK\r\n");
    assert_reply(c, "errand k", "");
    until_out(1);
    kv_client_destroy(c);
    assert_reply(d, "set k 2", "");
    atomic_store(&may_return, true);
    until_released(1);
    assert_answered(d, "+OK\r\n");
    ck_assert_int_eq(turn_count, 2);
}
END_TEST

/* One that holds, one that waits for its key, one more than there are threads: none comes back. */
START_TEST(an_engine_may_end_before_its_errands)
{
    start_with_errands(thread_counts[_i]);
    char line[32];
    for (int i = 0; i < KV_ERRAND_THREADS + 2; i++) {
        snprintf(line, sizeof(line), "errand k%d", i);
        assert_reply(client_new(), line, "");
    }
    until_out(KV_ERRAND_THREADS);
    assert_reply(client_new(), "errand k0", "");
    kv_engine_leave(engine);
    ck_assert_int_eq(atomic_load(&out_count), KV_ERRAND_THREADS);
    ck_assert_int_eq(release_count, KV_ERRAND_THREADS + 2);
    ck_assert(atomic_load(&cancelled_seen));
}
END_TEST

START_TEST(a_turn_waits_for_its_lock_and_for_the_gate)
{
    start_with_errands(2);
    struct kv_client *c = client_new();
    uint32_t shard = shard_of_key("k");
    assert_reply(c, "errand k", "");
    until_out(1);
    ck_assert(kv_gate_enter(w1));
    ck_assert(kv_shard_try_lock(engine, shard));
    atomic_store(&may_return, true);
    for (int i = 0; i < 20; i++)
        kv_worker_poll(w0, 1);
    ck_assert_int_eq(turn_count, 1);
    kv_shard_unlock(engine, shard);
    /* It lets go of its keys behind the gate. */
    for (int i = 0; i < 20; i++)
        kv_worker_poll(w0, 1);
    ck_assert_int_eq(turn_count, 2);
    ck_assert_int_eq(release_count, 0);
    kv_gate_leave(w1);
    until_released(1);
    assert_answered(c, ":0\r\n");
}
END_TEST

START_TEST(nobody_goes_on_an_errand_in_a_transaction)
{
    start_with_errands(1);
    struct kv_client *c = client_new();
    assert_reply(c, "multi", "+OK\r\n");
    assert_reply(c, "errand k", "+QUEUED\r\n");
    assert_reply(c, "exec", "*1\r\n-ERR nobody waits\r\n");
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "errand");
    int threads = (int)KV_ARRAY_LEN(thread_counts);
    tcase_add_loop_test(u.tcase, a_client_waits_while_others_go_on, 0, threads);
    tcase_add_loop_test(u.tcase, who_may_write_to_a_held_key_waits, 0, threads);
    tcase_add_loop_test(u.tcase, an_errand_that_holds_nothing_delays_nobody, 0, threads);
    tcase_add_loop_test(u.tcase, several_hold_keys_and_each_lets_go_of_its_own, 0, threads);
    tcase_add_loop_test(u.tcase, two_of_one_round_hold_a_key_in_turn, 0, threads);
    tcase_add_loop_test(u.tcase, a_client_may_vanish_and_its_errand_ends, 0, threads);
    tcase_add_loop_test(u.tcase, an_engine_may_end_before_its_errands, 0, threads);
    unit_add(&u, a_turn_waits_for_its_lock_and_for_the_gate);
    unit_add(&u, nobody_goes_on_an_errand_in_a_transaction);
    return unit_run(&u);
}
