/* engine/worker.c, client.c and cron.c with real sockets: connections are accepted, served, limited
 * and closed by rounds that the test runs; slow readers, hang-ups, idle connections, moving to
 * another worker; expiry. */
#include "fixture.h"
#include <errno.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* The other end of a connection of `w`; not blocking. */
static int connect_to(struct kv_worker *w)
{
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    kv_worker_accept(w, fds[0], true);
    return fds[1];
}

static void send_text(int fd, const char *text)
{
    ck_assert_int_eq((int)write(fd, text, strlen(text)), (int)strlen(text));
}

/* Runs rounds until `text` has come; anything else is a failure. */
static void expect_text(struct kv_worker *w, int fd, const char *text)
{
    char bytes[4096];
    size_t len = 0, want = strlen(text);
    for (int i = 0; i < 1000 && len < want; i++) {
        poll_worker(w);
        ssize_t n = read(fd, bytes + len, sizeof(bytes) - len);
        len += n > 0 ? (size_t)n : 0;
    }
    ck_assert_uint_eq(len, want);
    ck_assert_mem_eq(bytes, text, want);
}

/* Runs rounds until the other side has closed; what comes before is dropped. */
static void expect_end(struct kv_worker *w, int fd)
{
    char bytes[65536];
    for (int i = 0; i < 1000; i++) {
        poll_worker(w);
        ssize_t n;
        while ((n = read(fd, bytes, sizeof(bytes))) > 0)
            continue;
        if (n == 0 || errno == ECONNRESET)
            return;
    }
    ck_abort_msg("the connection does not end");
}

START_TEST(a_connection_is_served_and_ends)
{
    start(1);
    int fd = connect_to(w0);
    ck_assert_uint_eq(w0->client_count, 1);
    send_text(fd, "args a\r\nset k v\r\nget k\r\n");
    expect_text(w0, fd, "*2\r\n$4\r\nargs\r\n$1\r\na\r\n+OK\r\n$1\r\nv\r\n");
    ck_assert_uint_eq(STAT(net_input_bytes), 24);
    close(fd);
    for (int i = 0; i < 3; i++)
        kv_worker_poll(w0, 0);
    ck_assert_uint_eq(w0->client_count, 0);
}
END_TEST

START_TEST(quit_is_answered_before_the_end)
{
    start(1);
    int fd = connect_to(w0);
    send_text(fd, "quit\r\n");
    expect_text(w0, fd, "+OK\r\n");
    expect_end(w0, fd);
    close(fd);
}
END_TEST

START_TEST(too_many_connections_are_refused)
{
    char bytes[128];
    options.maxclients = 2;
    start(1);
    int fds[3];
    for (int i = 0; i < 3; i++)
        fds[i] = connect_to(w0);
    ssize_t n = read(fds[2], bytes, sizeof(bytes));
    ck_assert_int_gt((int)n, 0);
    ck_assert_mem_eq(bytes, "-ERR max number of clients reached\r\n", (size_t)n);
    ck_assert_uint_eq(STAT(rejected_connections), 1);
    ck_assert_uint_eq(STAT(connections), 2);
    for (int i = 0; i < 3; i++)
        close(fds[i]);
}
END_TEST

/* The socket takes no more: the rest follows when the reader reads, and nothing is read from it
 * meanwhile beyond what the limits allow. */
START_TEST(a_slow_reader_gets_everything)
{
    start(1);
    static char chunk[200000];
    int fd = connect_to(w0);
    struct kv_client *c = w0->clients;
    struct library_bytes value = {0};
    library_append(&value, "set k ", 6);
    for (int i = 0; i < 50000; i++)
        library_append(&value, "abcdefg" + i % 7, 1);
    library_append(&value, "\r\n", 2);
    for (size_t pos = 0; pos < value.len; pos += 10000) {
        ck_assert_int_gt((int)write(fd, value.bytes + pos, KV_MIN(value.len - pos, 10000u)), 0);
        kv_worker_poll(w0, 0);
    }
    expect_text(w0, fd, "+OK\r\n");
    for (int i = 0; i < 100; i++)
        send_text(fd, "get k\r\n");
    for (int i = 0; i < 10; i++)
        kv_worker_poll(w0, 0);
    ck_assert(c->flags & KV_CLIENT_WRITE_WAIT);
    size_t sum = 0;
    for (int i = 0; i < 10000 && sum < 100 * (8 + 50000 + 2); i++) {
        ssize_t n = read(fd, chunk, sizeof(chunk));
        sum += n > 0 ? (size_t)n : 0;
        kv_worker_poll(w0, 0);
    }
    ck_assert_uint_eq(sum, 100 * (8 + 50000 + 2));
    kv_worker_poll(w0, 0);
    ck_assert_uint_eq(c->flags & KV_CLIENT_WRITE_WAIT, 0);
    ck_assert_uint_eq(c->out.chunk_bytes, 0);
    send_text(fd, "args\r\n");
    expect_text(w0, fd, "*1\r\n$4\r\nargs\r\n");
    library_release(&value);
    close(fd);
}
END_TEST

START_TEST(output_beyond_the_hard_limit_ends_the_connection)
{
    options.output_limit[KV_CLASS_NORMAL] = (struct kv_output_limit){.hard_bytes = 1 << 20};
    start(1);
    int fd = connect_to(w0);
    char line[2100] = "args ";
    memset(line + 5, 'x', 2000);
    memcpy(line + 2005, "\r\n", 3);
    /* Nobody reads: the socket's buffer fills first, then ours. */
    for (int i = 0; i < 3000 && w0->client_count > 0; i++) {
        (void)!write(fd, line, strlen(line));
        kv_worker_poll(w0, 0);
    }
    ck_assert_uint_eq(STAT(output_limit_disconnections), 1);
    expect_end(w0, fd);
    close(fd);
}
END_TEST

START_TEST(idle_connections_are_closed)
{
    options.timeout_seconds = 10;
    options.hz = 500;
    int64_t now = kv_clock_wall_ms();
    kv_clock_set_fake_ms(now);
    start(1);
    int idle = connect_to(w0), busy = connect_to(w0);
    kv_clock_set_fake_ms(now + 8000);
    send_text(busy, "args\r\n");
    expect_text(w0, busy, "*1\r\n$4\r\nargs\r\n");
    kv_clock_set_fake_ms(now + 11000);
    for (int i = 0; i < 200 && w0->client_count > 1; i++)
        kv_worker_poll(w0, 3);
    expect_end(w0, idle);
    ck_assert_uint_eq(w0->client_count, 1);
    ck_assert_uint_eq(STAT(timeouts), 1);
    close(idle);
    close(busy);
    kv_clock_set_fake_ms(0);
}
END_TEST

START_TEST(a_parked_connection_is_not_read)
{
    start(2);
    int fd = connect_to(w0);
    struct kv_client *c = w0->clients;
    uint32_t shard = shard_of_key("a");
    ck_assert(kv_shard_try_lock(engine, shard));
    send_text(fd, "keep a 1\r\n");
    poll_worker(w0);
    ck_assert_int_eq(c->park, KV_PARK_SHARD);
    for (int i = 0; i < 5; i++) {
        send_text(fd, "get a\r\n");
        poll_worker(w0);
    }
    ck_assert(c->flags & KV_CLIENT_READ_OFF);
    ck_assert_uint_lt(c->in_len, 12);
    kv_shard_unlock(engine, shard);
    expect_text(w0, fd, "+OK\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n$1\r\n1\r\n");
    ck_assert_uint_eq(c->flags & KV_CLIENT_READ_OFF, 0);
    close(fd);
}
END_TEST

START_TEST(a_parked_connection_that_hangs_up_is_freed)
{
    start(2);
    int fd = connect_to(w0);
    uint32_t shard = shard_of_key("a");
    ck_assert(kv_shard_try_lock(engine, shard));
    send_text(fd, "keep a 1\r\n");
    poll_worker(w0);
    close(fd);
    for (int i = 0; i < 5; i++)
        poll_worker(w0);
    ck_assert_uint_eq(w0->client_count, 0);
    ck_assert_ptr_null(w0->shard_waiters);
    kv_shard_unlock(engine, shard);
    poll_worker(w0);
}
END_TEST

START_TEST(a_connection_moves_with_all_it_has)
{
    start(2);
    int fd = connect_to(w0);
    struct kv_client *c = w0->clients;
    send_text(fd, "select 3\r\nmulti\r\nset a 1\r\n*1\r\n$4");
    expect_text(w0, fd, "+OK\r\n+OK\r\n+QUEUED\r\n");
    kv_client_move(c, w1);
    ck_assert_uint_eq(w0->client_count, 0);
    send_text(fd, "\r\nexec\r\n");
    expect_text(w1, fd, "*1\r\n+OK\r\n");
    ck_assert_uint_eq(w1->client_count, 1);
    ck_assert_uint_eq(c->db, 3);
    ck_assert_uint_eq(STAT(moved_clients), 1);
    /* One that is underway at the end is freed with its receiver. */
    struct kv_worker *before = kv_this_worker;
    kv_this_worker = w1;
    kv_client_move(c, w0);
    kv_this_worker = before;
    close(fd);
}
END_TEST

/* Whoever stands alone may end one that nobody has yet (CLIENT KILL, ACL DELUSER); its receiver,
 * too, may be the one. */
START_TEST(a_connection_that_is_ended_while_it_moves_is_closed)
{
    start(2);
    int moving = connect_to(w0), other = connect_to(w1);
    struct kv_client *c = w0->clients, *stays = w1->clients;
    kv_client_move(c, w1);
    kv_this_worker = w1;
    kv_client_close_soon(c);
    kv_this_worker = w0;
    expect_end(w1, moving);
    ck_assert_uint_eq(w1->client_count, 1);
    ck_assert_ptr_eq(w1->clients, stays);
    send_text(other, "args\r\n");
    expect_text(w1, other, "*1\r\n$4\r\nargs\r\n");
    close(moving);
    close(other);
}
END_TEST

START_TEST(a_large_argument_is_read_in_place)
{
    start(1);
    int fd = connect_to(w0);
    struct kv_client *c = w0->clients;
    static char bytes[300000];
    memset(bytes, 'z', sizeof(bytes));
    send_text(fd, "*3\r\n$3\r\nset\r\n$1\r\na\r\n$300000\r\n");
    poll_worker(w0);
    ck_assert_ptr_nonnull(c->partial);
    size_t sent = 0;
    for (int i = 0; i < 10000 && sent < sizeof(bytes); i++) {
        ssize_t n = write(fd, bytes + sent, sizeof(bytes) - sent);
        sent += n > 0 ? (size_t)n : 0;
        poll_worker(w0);
        ck_assert_ptr_null(c->in);
    }
    send_text(fd, "\r\ncount a\r\n");
    expect_text(w0, fd, "+OK\r\n:1\r\n");
    ck_assert_int_ge(kv_mem_used(KV_MEM_VALUE), 300000);
    close(fd);
}
END_TEST

/* --- expiry --- */

START_TEST(due_keys_go_by_themselves)
{
    int64_t now = kv_clock_wall_ms();
    kv_clock_set_fake_ms(now);
    start(1);
    struct kv_view view = {
        .store = engine->store, .stats = &w0->store_stats, .now_ms = now, .owner = w0};
    char name[32];
    for (int i = 0; i < 1000; i++) {
        struct kv_key k =
            kv_store_key(engine->store, kv_slice(name, (size_t)sprintf(name, "key:%d", i)));
        ck_assert_int_eq(kv_store_set(&view, &k, KV_SLICE("v"), now + 50 + i % 10, NULL), KV_OK);
    }
    kv_worker_poll(w0, 0);
    ck_assert_uint_eq(kv_store_size(engine->store, 0), 1000);
    kv_clock_set_fake_ms(now + 100);
    for (int i = 0; i < 1000 && kv_store_size(engine->store, 0) > 0; i++)
        kv_worker_poll(w0, 1);
    ck_assert_uint_eq(kv_store_size(engine->store, 0), 0);
    ck_assert_uint_eq(kv_engine_store_stat(engine, offsetof(struct kv_store_stats, expired_keys)),
                      1000);
    kv_clock_set_fake_ms(0);
}
END_TEST

/* --- listening --- */

START_TEST(a_listening_engine_accepts)
{
    static char path[64];
    char what[256];
    snprintf(path, sizeof(path), "/tmp/kvik-unit-worker-%d", (int)getpid());
    options.port = 0;
    options.unixsocket = path;
    start(2);
    ck_assert_int_eq(kv_engine_listen(engine, what), KV_OK);
    ck_assert_uint_eq(kv_engine_listener_count(engine), 1);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path));
    int fds[4];
    for (int i = 0; i < 4; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
        ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&a, sizeof(a)), 0);
    }
    for (int i = 0; i < 5; i++) {
        poll_worker(w0);
        poll_worker(w1);
    }
    /* Each goes to the worker with the fewest. */
    ck_assert_uint_eq(w0->client_count, 2);
    ck_assert_uint_eq(w1->client_count, 2);
    for (int i = 0; i < 4; i++)
        send_text(fds[i], "args\r\n");
    for (int i = 0; i < 5; i++) {
        poll_worker(w0);
        poll_worker(w1);
    }
    for (int i = 0; i < 4; i++) {
        char bytes[32];
        ck_assert_int_eq((int)read(fds[i], bytes, sizeof(bytes)), 14);
        close(fds[i]);
    }
}
END_TEST

/* --- running as the server does --- */

static void *run_engine(void *arg)
{
    (void)arg;
    kv_engine_run(engine);
    kv_mem_thread_exit();
    return NULL;
}

static void round_trip(int fd, const char *text, const char *expected)
{
    char bytes[256];
    size_t len = 0;
    send_text(fd, text);
    while (len < strlen(expected)) {
        ssize_t n = read(fd, bytes + len, sizeof(bytes) - len);
        if (n > 0)
            len += (size_t)n;
        else
            usleep(200);
    }
    ck_assert_mem_eq(bytes, expected, len);
}

START_TEST(an_engine_runs_and_stops)
{
    static char path[64];
    char what[256];
    snprintf(path, sizeof(path), "/tmp/kvik-unit-run-%d", (int)getpid());
    options.port = 0;
    options.unixsocket = path;
    start(3);
    kv_worker_detach(w0);
    ck_assert_int_eq(kv_engine_listen(engine, what), KV_OK);
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, run_engine, NULL), 0);
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, path, strlen(path));
    int fds[6];
    for (int i = 0; i < 6; i++) {
        fds[i] = socket(AF_UNIX, SOCK_STREAM, 0);
        ck_assert_int_eq(connect(fds[i], (struct sockaddr *)&a, sizeof(a)), 0);
    }
    /* A connection counts once its worker has taken it. */
    for (int i = 0; i < 6; i++)
        round_trip(fds[i], "set a 1\r\n", "+OK\r\n");
    for (int round = 0; round < UNIT_ROUNDS(50); round++) {
        for (int i = 0; i < 6; i++) {
            round_trip(fds[i], "set a 1\r\nget a\r\n", "+OK\r\n$1\r\n1\r\n");
            round_trip(fds[i], "size\r\nvisit\r\nworld\r\n", ":1\r\n:1\r\n:6\r\n");
        }
    }
    kv_engine_stop(engine);
    pthread_join(thread, NULL);
    kv_worker_attach(w0);
    for (int i = 0; i < 6; i++)
        close(fds[i]);
}
END_TEST

/* --- the slow log --- */

struct seen {
    int count;
    uint64_t first_id;
    int argc;
    size_t last_len, second_len;
};

static void see(const struct kv_command_log_entry *entry, void *arg)
{
    struct seen *s = arg;
    if (s->count++ == 0) {
        s->first_id = entry->id;
        s->argc = entry->argc;
        s->last_len = entry->argv[entry->argc - 1].len;
        s->second_len = entry->argc > 1 ? entry->argv[1].len : 0;
    }
}

START_TEST(slow_commands_are_kept_newest_first)
{
    options.command_log[KV_COMMAND_LOG_SLOW].limit = 0;
    options.command_log[KV_COMMAND_LOG_SLOW].max_len = 5;
    start(1);
    kv_worker_poll(w0, 0);
    struct kv_client *c = client_new();
    struct library_bytes line = {0};
    for (int i = 0; i < 9; i++)
        assert_reply(c, "args", "*1\r\n$4\r\nargs\r\n");
    ck_assert_uint_eq(kv_engine_command_log_len(engine, KV_COMMAND_LOG_SLOW), 5);
    library_append(&line, "args ", 5);
    for (int i = 0; i < 1000; i++)
        library_append(&line, "x", 1);
    for (int i = 0; i < 100; i++)
        library_append(&line, " y", 2);
    library_send(c, line.bytes, &reply);
    struct seen s = {0};
    kv_engine_command_log_each(engine, KV_COMMAND_LOG_SLOW, 100, see, &s);
    ck_assert_int_eq(s.count, 5);
    ck_assert_uint_eq(s.first_id, 9);
    ck_assert_int_eq(s.argc, KV_COMMAND_LOG_ARGS_MAX);
    ck_assert_uint_eq(s.last_len, strlen("... (71 more arguments)"));
    ck_assert_uint_eq(s.second_len, 128 + strlen("... (872 more bytes)"));
    s = (struct seen){0};
    kv_engine_command_log_each(engine, KV_COMMAND_LOG_SLOW, 2, see, &s);
    ck_assert_int_eq(s.count, 2);
    kv_engine_options(engine)->command_log[KV_COMMAND_LOG_SLOW].max_len = 1;
    kv_engine_command_log_trim(engine);
    ck_assert_uint_eq(kv_engine_command_log_len(engine, KV_COMMAND_LOG_SLOW), 1);
    kv_engine_command_log_reset(engine, KV_COMMAND_LOG_SLOW);
    ck_assert_uint_eq(kv_engine_command_log_len(engine, KV_COMMAND_LOG_SLOW), 0);
    ck_assert_int_eq(kv_mem_used(KV_MEM_SLOWLOG), 0);
    library_release(&line);
}
END_TEST

/* --- statistics --- */

static void add_error(void *arg, const char *code, uint64_t count)
{
    struct library_bytes *text = arg;
    char line[64];
    library_append(
        text, line,
        (size_t)snprintf(line, sizeof(line), "%s=%llu ", code, (unsigned long long)count));
}

START_TEST(errors_and_calls_are_counted)
{
    uint64_t calls, usec, rejected, failed;
    struct library_bytes text = {0};
    start(2);
    struct kv_client *c = client_new();
    for (int i = 0; i < 3; i++)
        assert_reply(c, "fail", "-ERR as you wish\r\n");
    assert_reply(c, "get", "-ERR wrong number of arguments for 'get' command\r\n");
    assert_reply(c, "get a", "$-1\r\n");
    kv_engine_command_stat(engine, 4, &calls, &usec, &rejected, &failed);
    ck_assert_uint_eq(calls, 3);
    ck_assert_uint_eq(failed, 3);
    kv_engine_command_stat(engine, 5, &calls, &usec, &rejected, &failed);
    ck_assert_uint_eq(calls, 1);
    ck_assert_uint_eq(rejected, 1);
    kv_engine_each_error(engine, add_error, &text);
    ck_assert_str_eq(text.bytes, "ERR=4 ");
    kv_engine_reset_stats(engine);
    ck_assert_uint_eq(STAT(commands), 0);
    ck_assert_uint_eq(STAT(clients), 1);
    library_release(&text);
}
END_TEST

static uint64_t cached_bytes(void)
{
    struct kv_mem_report report;
    kv_mem_report_read(&report);
    return report.cached_bytes;
}

/* Leaves freed blocks in the cache of this thread. */
static void fill_cache(void)
{
    void *blocks[200];
    for (size_t i = 0; i < KV_ARRAY_LEN(blocks); i++)
        blocks[i] = kv_mem_alloc(200, KV_MEM_OTHER);
    for (size_t i = 0; i < KV_ARRAY_LEN(blocks); i++)
        kv_mem_free(blocks[i], 200, KV_MEM_OTHER);
}

START_TEST(a_purge_reaches_the_caches_of_all_workers)
{
    const uint64_t little = 2048;
    start(2);
    fill_cache();
    if (cached_bytes() < 10000)
        return; /* sanitizer builds have no caches */
    kv_engine_purge(engine);
    ck_assert_uint_lt(cached_bytes(), little);
    /* This thread plays the other worker too: its cache is purged again by the message. */
    fill_cache();
    ck_assert_uint_ge(cached_bytes(), 10000);
    poll_worker(w1);
    ck_assert_uint_lt(cached_bytes(), little);
}
END_TEST

int main(void)
{
    struct unit u;
    signal(SIGPIPE, SIG_IGN);
    engine_begin(&u, "worker");
    unit_add(&u, a_connection_is_served_and_ends);
    unit_add(&u, quit_is_answered_before_the_end);
    unit_add(&u, too_many_connections_are_refused);
    unit_add(&u, a_slow_reader_gets_everything);
    unit_add(&u, output_beyond_the_hard_limit_ends_the_connection);
    unit_add(&u, idle_connections_are_closed);
    unit_add(&u, a_parked_connection_is_not_read);
    unit_add(&u, a_parked_connection_that_hangs_up_is_freed);
    unit_add(&u, a_connection_moves_with_all_it_has);
    unit_add(&u, a_connection_that_is_ended_while_it_moves_is_closed);
    unit_add(&u, a_large_argument_is_read_in_place);
    unit_add(&u, due_keys_go_by_themselves);
    unit_add(&u, a_listening_engine_accepts);
    unit_add(&u, an_engine_runs_and_stops);
    unit_add(&u, slow_commands_are_kept_newest_first);
    unit_add(&u, errors_and_calls_are_counted);
    unit_add(&u, a_purge_reaches_the_caches_of_all_workers);
    return unit_run(&u);
}
