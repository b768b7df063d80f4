/* engine/commit.h: with output held, a connection sees nothing that is not durable, and everything
 * once it is. The log is played by the test: a reader of the stream and kv_commit_advance. */
#include "fixture.h"
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define PEERS_MAX 8

static struct kv_stream_reader *reader;
static int peers[PEERS_MAX];
static int peer_count;

static void begin(uint32_t threads)
{
    start(threads);
    reader = kv_stream_open(engine);
    kv_commit_set(engine, true, true);
}

/* A connection of the worker; returns the peer's end. */
static int connect_to(struct kv_worker *w)
{
    int ends[2];
    struct kv_worker *before = kv_this_worker;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    kv_this_worker = w;
    kv_worker_accept(w, ends[0], true);
    kv_this_worker = before;
    peers[peer_count++] = ends[1];
    return ends[1];
}

static void ask(struct kv_worker *w, int peer, const char *line)
{
    char text[128];
    int len = snprintf(text, sizeof(text), "%s\r\n", line);
    ck_assert_int_eq(write(peer, text, (size_t)len), len);
    poll_worker(w);
}

/* What came since. "" nothing, "closed" the end. */
static const char *heard(int peer)
{
    static char text[4096];
    ssize_t n = read(peer, text, sizeof(text) - 1);
    if (n == 0 || (n < 0 && errno == ECONNRESET))
        return "closed";
    text[n > 0 ? n : 0] = '\0';
    return text;
}

static uint64_t tail(void)
{
    return kv_stream_tail(engine);
}

static void drain(void)
{
    char bytes[4096];
    while (kv_stream_read(reader, bytes, sizeof(bytes)) > 0)
        continue;
}

static void durable_now(void)
{
    drain();
    kv_commit_advance(engine, tail());
    poll_worker(w0);
    if (w1 != NULL)
        poll_worker(w1);
}

static void teardown(void)
{
    for (int i = 0; i < peer_count; i++)
        close(peers[i]);
    poll_worker(w0);
    if (w1 != NULL)
        poll_worker(w1);
    kv_stream_close(reader);
}

START_TEST(a_reply_waits_until_the_write_is_durable)
{
    begin(1);
    int a = connect_to(w0);
    ask(w0, a, "set k 1");
    ck_assert_str_eq(heard(a), "");
    kv_commit_advance(engine, tail() - 1);
    poll_worker(w0);
    ck_assert_str_eq(heard(a), "");
    durable_now();
    ck_assert_str_eq(heard(a), "+OK\r\n");
    ask(w0, a, "get k");
    ck_assert_str_eq(heard(a), "$1\r\n1\r\n"); /* nothing is underway: at once */
    teardown();
}
END_TEST

START_TEST(a_read_waits_for_what_others_have_written)
{
    begin(2);
    int a = connect_to(w0), b = connect_to(w1), c = connect_to(w1);
    ask(w1, c, "args");
    ck_assert_str_eq(heard(c), "*1\r\n$4\r\nargs\r\n");
    ask(w0, a, "set k 1");
    ask(w1, b, "get k");
    ask(w1, c, "args");
    ck_assert_str_eq(heard(b), "");
    ck_assert_str_eq(heard(c), "");
    durable_now();
    ck_assert_str_eq(heard(a), "+OK\r\n");
    ck_assert_str_eq(heard(b), "$1\r\n1\r\n");
    ck_assert_str_eq(heard(c), "*1\r\n$4\r\nargs\r\n");
    teardown();
}
END_TEST

START_TEST(a_steady_flow_is_answered_part_by_part)
{
    begin(1);
    int a = connect_to(w0);
    ask(w0, a, "set k 1");
    uint64_t first = tail();
    ask(w0, a, "set k 22");
    uint64_t second = tail();
    ask(w0, a, "get k");
    drain();
    ck_assert_str_eq(heard(a), "");
    kv_commit_advance(engine, first);
    poll_worker(w0);
    ck_assert_str_eq(heard(a), "+OK\r\n");
    ask(w0, a, "set k 333"); /* more comes in while the rest is held anew */
    kv_commit_advance(engine, second);
    poll_worker(w0);
    poll_worker(w0);
    ck_assert_str_eq(heard(a), "+OK\r\n$2\r\n22\r\n");
    durable_now();
    ck_assert_str_eq(heard(a), "+OK\r\n");
    teardown();
}
END_TEST

START_TEST(a_failure_closes_who_waits_and_denies_writes)
{
    begin(2);
    int a = connect_to(w0), b = connect_to(w1), c = connect_to(w1), d = connect_to(w0);
    ask(w0, a, "set k 1");
    ask(w1, b, "get k");
    kv_commit_deny(engine, EIO);
    kv_commit_fail(engine);
    poll_worker(w0);
    poll_worker(w1);
    poll_worker(w0);
    poll_worker(w1);
    ck_assert_str_eq(heard(a), "closed");
    ck_assert_str_eq(heard(b), "closed");
    ask(w1, c, "get k");
    ck_assert_str_eq(heard(c), "$1\r\n1\r\n");
    ask(w0, d, "set k 2");
    ck_assert_str_eq(heard(d), "-MISCONF Errors writing to the AOF file: Input/output error\r\n");
    ask(w0, d, "multi");
    ask(w0, d, "keep k 2");
    ask(w0, d, "exec");
    ck_assert_ptr_nonnull(strstr(heard(d), "EXECABORT"));
    /* A fresh base holds everything. */
    kv_commit_recover(engine, tail());
    kv_commit_deny(engine, 0);
    ask(w0, d, "set k 2");
    ck_assert_str_eq(heard(d), "");
    durable_now();
    ck_assert_str_eq(heard(d), "+OK\r\n");
    teardown();
}
END_TEST

/* Its write was published before the failure and its round ends after it. */
START_TEST(a_write_that_met_the_failure_is_not_acknowledged)
{
    begin(1);
    int a = connect_to(w0);
    ask(w0, a, "get k");
    ck_assert_str_eq(heard(a), "$-1\r\n");
    kv_commit_fail(engine);
    ask(w0, a, "set k 1");
    poll_worker(w0);
    ck_assert_str_eq(heard(a), "closed");
    kv_commit_recover(engine, tail());
    teardown();
}
END_TEST

START_TEST(switched_off_what_is_held_still_waits)
{
    begin(1);
    int a = connect_to(w0), b = connect_to(w0);
    ask(w0, a, "set k 1");
    kv_commit_set(engine, true, false);
    ask(w0, b, "get k");
    ck_assert_str_eq(heard(b), "$1\r\n1\r\n");
    ask(w0, a, "get k");
    ck_assert_str_eq(heard(a), "");
    durable_now();
    ck_assert_str_eq(heard(a), "+OK\r\n$1\r\n1\r\n");
    teardown();
}
END_TEST

START_TEST(a_connection_may_vanish_while_it_is_held)
{
    begin(1);
    int a = connect_to(w0);
    connect_to(w0);
    ask(w0, a, "set k 1");
    ask(w0, peers[1], "set k 2");
    close(peers[0]);
    peers[0] = dup(peers[1]);
    poll_worker(w0);
    poll_worker(w0);
    durable_now();
    ck_assert_str_eq(heard(peers[1]), "+OK\r\n");
    teardown();
}
END_TEST

START_TEST(a_large_output_stops_the_pipeline_until_it_is_sent)
{
    static char got[4 << 20];
    begin(1);
    int a = connect_to(w0);
    char line[700];
    memset(line, 'x', sizeof(line));
    memcpy(line, "set k ", 6);
    strcpy(line + sizeof(line) - 3, "\r\n");
    ck_assert_int_gt(write(a, line, strlen(line)), 0);
    char *gets = got; /* not needed yet */
    for (int i = 0; i < 3000; i++)
        memcpy(gets + (size_t)i * 7, "get k\r\n", 7);
    ck_assert_int_eq(write(a, gets, 3000 * 7), 3000 * 7);
    for (int i = 0; i < 10; i++)
        poll_worker(w0);
    ck_assert_str_eq(heard(a), "");
    ck_assert_int_lt(kv_mem_used(KV_MEM_CLIENT_OUTPUT), 512 * 1024);
    size_t total = 0;
    for (int i = 0; i < 200; i++) {
        durable_now();
        ssize_t n;
        while ((n = read(a, got + total, sizeof(got) - total)) > 0)
            total += (size_t)n;
    }
    size_t value = strlen(line) - 8;
    ck_assert_uint_eq(total, 5 + 3000 * (value + 4 + 2 + 2));
    teardown();
}
END_TEST

/* The oracle: which replies end before which offset. A connection may have got those whose round's
 * tail is durable, and must have got the first of them after two syncs. */
struct script {
    struct kv_worker *w;
    int peer;
    uint64_t tails[4096];
    uint32_t sent, got;
};

static void take(struct script *s, uint64_t durable)
{
    char bytes[4096];
    ssize_t n = read(s->peer, bytes, sizeof(bytes));
    for (ssize_t i = 0; i < n; i++)
        s->got += bytes[i] == '\n';
    uint32_t allowed = 0;
    while (allowed < s->sent && s->tails[allowed] <= durable)
        allowed++;
    ck_assert_uint_le(s->got, allowed);
}

START_TEST(nobody_hears_of_what_is_not_durable)
{
    static struct script scripts[4];
    struct kv_random r;
    uint64_t durable = 0;
    kv_random_init(&r, unit_seed("commit"));
    begin(2);
    for (int i = 0; i < 4; i++)
        scripts[i] =
            (struct script){.w = i % 2 == 0 ? w0 : w1, .peer = connect_to(i % 2 == 0 ? w0 : w1)};
    for (int step = 0; step < UNIT_ROUNDS(4000); step++) {
        struct script *s = &scripts[kv_random_below(&r, 4)];
        switch (kv_random_below(&r, 6)) {
        case 0:
        case 1:
        case 2:
            ask(s->w, s->peer, kv_random_below(&r, 3) == 0 ? "fail" : "set k 1");
            s->tails[s->sent++] = tail();
            break;
        case 3:
            durable += kv_random_below(&r, tail() - durable + 1);
            kv_commit_advance(engine, durable);
            break;
        case 4:
            poll_worker(s->w);
            break;
        default:
            drain();
        }
        for (int i = 0; i < 4; i++)
            take(&scripts[i], durable);
    }
    for (int i = 0; i < 4; i++)
        durable_now();
    for (int i = 0; i < 4; i++) {
        take(&scripts[i], tail());
        ck_assert_uint_eq(scripts[i].got, scripts[i].sent);
    }
    teardown();
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "commit");
    unit_add(&u, a_reply_waits_until_the_write_is_durable);
    unit_add(&u, a_read_waits_for_what_others_have_written);
    unit_add(&u, a_steady_flow_is_answered_part_by_part);
    unit_add(&u, a_failure_closes_who_waits_and_denies_writes);
    unit_add(&u, a_write_that_met_the_failure_is_not_acknowledged);
    unit_add(&u, switched_off_what_is_held_still_waits);
    unit_add(&u, a_connection_may_vanish_while_it_is_held);
    unit_add(&u, a_large_output_stops_the_pipeline_until_it_is_sent);
    unit_add(&u, nobody_hears_of_what_is_not_durable);
    return unit_run(&u);
}
