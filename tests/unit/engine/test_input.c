/* engine/input.c, dispatch.c and batch.c through virtual clients: order, errors, large arguments,
 * limits, muted replies; and transactions (engine/transaction.h). */
#include "fixture.h"

START_TEST(a_pipeline_is_answered_in_order)
{
    for (uint32_t lookahead = 1; lookahead <= 64; lookahead *= 4) {
        options.lookahead = lookahead;
        start(1);
        struct kv_client *c = client_new();
        struct library_bytes request = {0}, expected = {0};
        char line[64];
        for (int i = 0; i < 200; i++) {
            sprintf(line, "set k%d v%d", i % 7, i);
            library_request(&request, line);
            library_append(&expected, "+OK\r\n", 5);
            sprintf(line, i % 10 == 0 ? "fail" : "get k%d", i % 7);
            library_request(&request, line);
            int n = i % 10 == 0 ? sprintf(line, "-ERR as you wish\r\n")
                                : sprintf(line, "$%d\r\nv%d\r\n",
                                          i < 10    ? 2
                                          : i < 100 ? 3
                                                    : 4,
                                          i);
            library_append(&expected, line, (size_t)n);
        }
        kv_client_feed(c, request.bytes, request.len);
        assert_answered(c, expected.bytes);
        if (lookahead > 1)
            ck_assert_uint_lt(STAT(batches), STAT(batch_commands));
        ck_assert_uint_eq(STAT(commands), 400);
        ck_assert_uint_eq(STAT(error_replies), 20);
        ck_assert_ptr_null(c->in);
        library_release(&request);
        library_release(&expected);
        if (lookahead < 64)
            engine_teardown();
    }
}
END_TEST

START_TEST(an_idle_connection_keeps_only_its_leftover)
{
    start(1);
    struct kv_client *c = client_new();
    size_t idle = kv_client_memory(c);
    kv_client_feed(c, "*2\r\n$3\r\nget", 11);
    ck_assert_uint_eq(c->in_len, 11);
    ck_assert_uint_gt(kv_client_memory(c), idle);
    kv_client_feed(c, "\r\n$1\r\na\r\n", 9);
    assert_answered(c, "$-1\r\n");
    ck_assert_uint_eq(kv_client_memory(c), idle);
}
END_TEST

START_TEST(unknown_names_and_arities_are_refused)
{
    start(1);
    struct kv_client *c = client_new();
    assert_reply(c, "nosuch a b",
                 "-ERR unknown command 'nosuch', with args beginning with: 'a' 'b' \r\n");
    assert_reply(c, "get", "-ERR wrong number of arguments for 'get' command\r\n");
    assert_reply(c, "GeT a b", "-ERR wrong number of arguments for 'get' command\r\n");
    assert_reply(c, "count", "-ERR wrong number of arguments for 'count' command\r\n");
    assert_reply(c, "ARGS", "*1\r\n$4\r\nARGS\r\n");
}
END_TEST

START_TEST(a_protocol_error_ends_the_connection)
{
    start(1);
    struct kv_client *c = client_new();
    const char *bytes = "args\r\n*1\r\n:\r\nargs\r\n";
    kv_client_feed(c, bytes, strlen(bytes));
    assert_answered(c, "*1\r\n$4\r\nargs\r\n-ERR Protocol error: expected '$', got ':'\r\n");
    ck_assert(c->flags & KV_CLIENT_CLOSE_AFTER);
    assert_reply(c, "args", "");
    ck_assert_ptr_null(c->in);
}
END_TEST

START_TEST(quit_ignores_what_follows)
{
    start(1);
    struct kv_client *c = client_new();
    kv_client_feed(c, "quit\r\nargs\r\n", 12);
    assert_answered(c, "+OK\r\n");
    ck_assert(c->flags & KV_CLIENT_CLOSE_AFTER);
    ck_assert_ptr_null(c->in);
}
END_TEST

START_TEST(strangers_are_refused_and_limited)
{
    options.requirepass = "secret";
    start(1);
    struct kv_client *c = client_new();
    assert_reply(c, "get a", "-NOAUTH Authentication required.\r\n");
    assert_reply(c, "nosuch", "-ERR unknown command 'nosuch', with args beginning with: \r\n");
    assert_reply(c, "count a b c d e f g h i j",
                 "-ERR Protocol error: unauthenticated multibulk length\r\n");
    ck_assert(c->flags & KV_CLIENT_CLOSE_AFTER);
}
END_TEST

/* --- large arguments --- */

static void feed_set(struct kv_client *c, const char *name, size_t len, size_t step)
{
    struct library_bytes request = {0};
    char header[64];
    int n = sprintf(header, "*3\r\n$%zu\r\n%s\r\n$1\r\na\r\n$%zu\r\n", strlen(name), name, len);
    library_append(&request, header, (size_t)n);
    for (size_t i = 0; i < len; i++)
        library_append(&request, "abcdefg" + i % 7, 1);
    library_append(&request, "\r\n", 2);
    for (size_t pos = 0; pos < request.len; pos += step)
        kv_client_feed(c, request.bytes + pos, KV_MIN(step, request.len - pos));
    library_release(&request);
}

START_TEST(a_large_value_is_stored_from_where_it_was_read)
{
    start(1);
    struct kv_client *c = client_new();
    feed_set(c, "set", 100000, 10000);
    assert_answered(c, "+OK\r\n");
    ck_assert_ptr_null(c->partial);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_INPUT), 0);
    ck_assert_int_ge(kv_mem_used(KV_MEM_VALUE), 100000);
    /* And is sent from there: the output holds a reference. */
    int64_t before = kv_mem_used(KV_MEM_VALUE);
    kv_client_feed(c, "get a\r\n", 7);
    ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), before);
    ck_assert_uint_ge(c->out.chunk_bytes, 100000);
    /* The value may go while it is on its way. */
    kv_client_feed(c, "set a 1\r\n", 9);
    library_clear(&reply);
    library_take(c, &reply);
    ck_assert_uint_eq(reply.len, 9 + 100000 + 2 + 5);
    ck_assert_mem_eq(reply.bytes, "$100000\r\nabcdefg", 16);
    ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), 0);
}
END_TEST

START_TEST(a_block_that_nobody_takes_is_released)
{
    start(1);
    struct kv_client *c = client_new();
    feed_set(c, "args", 50000, 7000);
    library_take(c, &reply);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_INPUT), 0);
    feed_set(c, "nosuch", 50000, 7000);
    library_take(c, &reply);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_INPUT), 0);
    feed_set(c, "multi", 50000, 7000);
    library_take(c, &reply);
    feed_set(c, "set", 50000, 100000);
    kv_client_feed(c, "*3\r\n$3\r\nset\r\n$1\r\nb\r\n$20000\r\nabc", 32);
    ck_assert_ptr_nonnull(c->partial);
}
END_TEST

/* A large command parks as a whole and keeps its block. */
START_TEST(a_large_command_waits_with_its_block)
{
    start(2);
    struct kv_client *c = client_new();
    uint32_t shard = shard_of_key("a");
    ck_assert(kv_shard_try_lock(engine, shard));
    feed_set(c, "set", 60000, 8000);
    kv_client_feed(c, "args\r\n", 6);
    ck_assert_int_eq(c->park, KV_PARK_SHARD);
    assert_answered(c, "");
    kv_shard_unlock(engine, shard);
    kv_worker_poll(w0, 0);
    assert_answered(c, "+OK\r\n*1\r\n$4\r\nargs\r\n");
    ck_assert_ptr_null(c->partial);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_INPUT), 0);
}
END_TEST

START_TEST(a_long_command_is_limited)
{
    options.client_query_buffer_limit = 1 << 20;
    start(1);
    struct kv_client *c = client_new();
    kv_client_feed(c, "*3\r\n$3\r\nset\r\n$1\r\na\r\n$900000\r\n", 30);
    feed_set(c, "set", 0, 10);
    ck_assert_uint_eq(c->flags & KV_CLIENT_CLOSE_NOW, 0);
    struct kv_client *d = client_new();
    kv_client_feed(d, "*3\r\n$3\r\nset\r\n$1\r\na\r\n$1100000\r\n", 31);
    ck_assert(d->flags & KV_CLIENT_CLOSE_NOW);
    ck_assert_uint_eq(STAT(query_buffer_limit_disconnections), 1);
}
END_TEST

START_TEST(a_long_transaction_is_limited)
{
    options.client_query_buffer_limit = 100000;
    start(1);
    struct kv_client *c = client_new();
    assert_reply(c, "multi", "+OK\r\n");
    for (int i = 0; i < 9; i++) {
        feed_set(c, "set", 10000, 20000);
        ck_assert_uint_eq(c->flags & KV_CLIENT_CLOSE_NOW, 0);
    }
    feed_set(c, "set", 10000, 20000);
    ck_assert(c->flags & KV_CLIENT_CLOSE_NOW);
    ck_assert_uint_eq(STAT(query_buffer_limit_disconnections), 1);
}
END_TEST

/* --- muted replies --- */

START_TEST(replies_can_be_switched_off)
{
    start(1);
    struct kv_client *c = client_new();
    c->flags |= KV_CLIENT_REPLY_OFF;
    assert_reply(c, "set a 1", "");
    assert_reply(c, "nosuch", "");
    assert_reply(c, "multi", "");
    assert_reply(c, "get a", "");
    assert_reply(c, "exec", "");
    c->flags &= ~(uint32_t)KV_CLIENT_REPLY_OFF;
    assert_reply(c, "get a", "$1\r\n1\r\n");
}
END_TEST

START_TEST(one_reply_can_be_skipped)
{
    start(1);
    struct kv_client *c = client_new();
    c->flags |= KV_CLIENT_REPLY_SKIP;
    struct library_bytes request = {0};
    library_request(&request, "set a 1");
    library_request(&request, "get a");
    library_request(&request, "get a");
    kv_client_feed(c, request.bytes, request.len);
    assert_answered(c, "$1\r\n1\r\n$1\r\n1\r\n");
    library_release(&request);
}
END_TEST

/* --- transactions --- */

START_TEST(a_transaction_runs_as_one)
{
    for (uint32_t threads = 1; threads <= 2; threads++) {
        start(threads);
        struct kv_client *c = client_new();
        assert_reply(c, "multi", "+OK\r\n");
        assert_reply(c, "set a 1", "+QUEUED\r\n");
        assert_reply(c, "get a", "+QUEUED\r\n");
        assert_reply(c, "fail", "+QUEUED\r\n");
        assert_reply(c, "count a b", "+QUEUED\r\n");
        ck_assert_int_eq(kv_client_multi_length(c), 4);
        assert_reply(c, "exec", "*4\r\n+OK\r\n$1\r\n1\r\n-ERR as you wish\r\n:1\r\n");
        ck_assert_ptr_null(c->tx);
        assert_reply(c, "exec", "-ERR EXEC without MULTI\r\n");
        /* The strongest of its modes is taken. */
        assert_reply(c, "multi", "+OK\r\n");
        assert_reply(c, "size", "+QUEUED\r\n");
        assert_reply(c, "visit", "+QUEUED\r\n");
        assert_reply(c, "world", "+QUEUED\r\n");
        assert_reply(c, "exec", "*3\r\n:1\r\n:1\r\n:1\r\n");
        if (threads == 1)
            engine_teardown();
    }
}
END_TEST

START_TEST(a_wrong_command_aborts_the_transaction)
{
    start(1);
    struct kv_client *c = client_new();
    assert_reply(c, "multi", "+OK\r\n");
    assert_reply(c, "set a", "-ERR wrong number of arguments for 'set' command\r\n");
    assert_reply(c, "set a 1", "+QUEUED\r\n");
    assert_reply(c, "exec", "-EXECABORT Transaction discarded because of previous errors.\r\n");
    assert_reply(c, "get a", "$-1\r\n");
    assert_reply(c, "multi", "+OK\r\n");
    assert_reply(c, "multi", "-ERR nested\r\n");
    assert_reply(c, "discard", "+OK\r\n");
    ck_assert_ptr_null(c->tx);
}
END_TEST

START_TEST(a_changed_watched_key_aborts)
{
    for (uint32_t threads = 1; threads <= 2; threads++) {
        start(threads);
        struct kv_client *c = client_new(), *d = client_new();
        assert_reply(c, "watch a b", "+OK\r\n");
        ck_assert_int_eq(kv_client_watch_count(c), 2);
        assert_reply(c, "multi", "+OK\r\n");
        assert_reply(c, "set x 1", "+QUEUED\r\n");
        assert_reply(d, "set b 1", "+OK\r\n");
        assert_reply(c, "exec", "*-1\r\n");
        ck_assert_int_eq(kv_client_watch_count(c), 0);
        assert_reply(c, "watch a b", "+OK\r\n");
        assert_reply(c, "unwatch", "+OK\r\n");
        assert_reply(d, "set b 2", "+OK\r\n");
        assert_reply(c, "multi", "+OK\r\n");
        assert_reply(c, "get x", "+QUEUED\r\n");
        assert_reply(c, "exec", "*1\r\n$-1\r\n");
        if (threads == 1)
            engine_teardown();
    }
}
END_TEST

/* The shard is busy when the watch ends: the worker ends it later. */
START_TEST(watches_of_busy_shards_are_ended_later)
{
    start(2);
    struct kv_client *c = client_new();
    uint32_t shard = shard_of_key("a");
    assert_reply(c, "watch a b", "+OK\r\n");
    ck_assert(kv_shard_try_lock(engine, shard));
    kv_client_destroy(c);
    /* Two when both keys happen to be in that shard. */
    uint32_t left = shard == shard_of_key("b") ? 2 : 1;
    ck_assert_uint_eq(w0->orphan_len, left);
    kv_worker_poll(w0, 0);
    ck_assert_uint_eq(w0->orphan_len, left);
    kv_shard_unlock(engine, shard);
    kv_worker_poll(w0, 0);
    ck_assert_uint_eq(w0->orphan_len, 0);
    ck_assert_int_eq(kv_mem_used(KV_MEM_WATCH), 0);
}
END_TEST

START_TEST(a_transaction_parks_at_a_busy_shard)
{
    start(2);
    struct kv_client *c = client_new();
    uint32_t shard = shard_of_key("a");
    assert_reply(c, "watch b", "+OK\r\n");
    assert_reply(c, "multi", "+OK\r\n");
    assert_reply(c, "set a 1", "+QUEUED\r\n");
    ck_assert(kv_shard_try_lock(engine, shard));
    assert_reply(c, "exec", "");
    ck_assert_int_eq(kv_client_multi_length(c), 1);
    kv_shard_unlock(engine, shard);
    kv_worker_poll(w0, 0);
    assert_answered(c, "*1\r\n+OK\r\n");
}
END_TEST

/* --- pause --- */

START_TEST(a_pause_holds_commands_and_ends)
{
    start(1);
    struct kv_client *c = client_new();
    int64_t now = kv_clock_wall_ms();
    kv_clock_set_fake_ms(now);
    kv_engine_pause(engine, now + 1000, false);
    assert_reply(c, "get a", "$-1\r\n");
    assert_reply(c, "set a 1", "");
    assert_reply(c, "get a", "");
    ck_assert(c->flags & KV_CLIENT_PAUSED);
    kv_worker_poll(w0, 0);
    assert_answered(c, "");
    kv_clock_set_fake_ms(now + 1000);
    kv_worker_poll(w0, 0);
    assert_answered(c, "+OK\r\n$1\r\n1\r\n");
    kv_engine_pause(engine, now + 5000, true);
    assert_reply(c, "get a", "");
    kv_engine_unpause(engine);
    kv_worker_poll(w0, 0);
    assert_answered(c, "$1\r\n1\r\n");
    kv_clock_set_fake_ms(0);
}
END_TEST

START_TEST(a_paused_connection_may_vanish)
{
    start(1);
    struct kv_client *c = client_new(), *d = client_new();
    kv_engine_pause(engine, kv_clock_wall_ms() + 100000, true);
    assert_reply(c, "get a", "");
    assert_reply(d, "get a", "");
    kv_client_destroy(c);
    kv_engine_unpause(engine);
    kv_worker_poll(w0, 0);
    assert_answered(d, "$-1\r\n");
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "input");
    unit_add(&u, a_pipeline_is_answered_in_order);
    unit_add(&u, an_idle_connection_keeps_only_its_leftover);
    unit_add(&u, unknown_names_and_arities_are_refused);
    unit_add(&u, a_protocol_error_ends_the_connection);
    unit_add(&u, quit_ignores_what_follows);
    unit_add(&u, strangers_are_refused_and_limited);
    unit_add(&u, a_large_value_is_stored_from_where_it_was_read);
    unit_add(&u, a_block_that_nobody_takes_is_released);
    unit_add(&u, a_large_command_waits_with_its_block);
    unit_add(&u, a_long_command_is_limited);
    unit_add(&u, a_long_transaction_is_limited);
    unit_add(&u, replies_can_be_switched_off);
    unit_add(&u, one_reply_can_be_skipped);
    unit_add(&u, a_transaction_runs_as_one);
    unit_add(&u, a_wrong_command_aborts_the_transaction);
    unit_add(&u, a_changed_watched_key_aborts);
    unit_add(&u, watches_of_busy_shards_are_ended_later);
    unit_add(&u, a_transaction_parks_at_a_busy_shard);
    unit_add(&u, a_pause_holds_commands_and_ends);
    unit_add(&u, a_paused_connection_may_vanish);
    return unit_run(&u);
}
