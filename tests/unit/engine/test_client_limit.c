/* engine/client_limit.c: what connections hold is counted to the byte whatever they do, and above
 * maxmemory-clients the largest go, whichever worker they belong to. */
#include "fixture.h"
#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

#define KIB ((size_t)1024)

struct peer {
    int fd; /* the other end; -1: closed by us */
    struct kv_client *c;
};

static struct peer connect_to(struct kv_worker *w)
{
    int fds[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    kv_worker_accept(w, fds[0], true);
    return (struct peer){fds[1], w->clients};
}

static void send_bytes(struct kv_worker *w, struct peer *p, const char *bytes, size_t len)
{
    for (size_t done = 0; done < len;) {
        ssize_t n = write(p->fd, bytes + done, KV_MIN(len - done, 32 * KIB));
        ck_assert_int_gt((int)n, 0);
        done += (size_t)n;
        poll_worker(w);
    }
    poll_worker(w);
}

static void send_text(struct kv_worker *w, struct peer *p, const char *text)
{
    send_bytes(w, p, text, strlen(text));
}

static void send_line(struct kv_worker *w, struct peer *p, const char *line)
{
    struct library_bytes request = {0};
    library_request(&request, line);
    send_bytes(w, p, request.bytes, request.len);
    library_release(&request);
}

/* Begins a command whose argument of `bytes` bytes has not arrived. */
static void hold(struct kv_worker *w, struct peer *p, size_t bytes)
{
    char text[64];
    sprintf(text, "*3\r\n$3\r\nset\r\n$1\r\nk\r\n$%zu\r\nab", bytes);
    send_text(w, p, text);
}

/* True when the other side has closed; what had come before is dropped. */
static bool ended(struct peer *p)
{
    char bytes[65536];
    ssize_t n;
    while ((n = read(p->fd, bytes, sizeof(bytes))) > 0)
        continue;
    return n == 0 || errno == ECONNRESET;
}

/* Of all that are not being closed. */
static uint64_t fresh_sum(void)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < kv_engine_worker_count(engine); i++)
        for (const struct kv_client *c = kv_engine_worker(engine, i)->clients; c; c = c->next)
            sum += c->flags & KV_CLIENT_CLOSE_NOW ? 0 : kv_client_memory(c);
    return sum;
}

static void set_limit(int64_t bytes)
{
    kv_engine_options(engine)->maxmemory_clients = bytes;
}

static void check_all(void)
{
    for (uint32_t i = 0; i < kv_engine_worker_count(engine); i++)
        kv_client_limit_check(kv_engine_worker(engine, i));
}

START_TEST(all_that_a_connection_holds_is_counted)
{
    start(1);
    ck_assert_uint_eq(kv_engine_client_bytes(engine), 0);
    struct peer p = connect_to(w0);
    uint64_t idle = kv_engine_client_bytes(engine);
    ck_assert_uint_eq(idle, kv_client_memory(p.c));
    ck_assert_uint_ge(idle, sizeof(struct kv_client));

    send_text(w0, &p, "*2\r\n$3\r\nget");
    ck_assert_uint_eq(kv_engine_client_bytes(engine), idle + 16);
    send_text(w0, &p, "\r\n$1\r\na\r\n");
    ck_assert_uint_eq(kv_engine_client_bytes(engine), idle);

    hold(w0, &p, 100000);
    ck_assert_uint_ge(kv_engine_client_bytes(engine), idle + 100000);
    ck_assert_uint_le(kv_engine_client_bytes(engine), idle + 150000);
    static char rest[99998];
    send_bytes(w0, &p, rest, sizeof(rest));
    send_text(w0, &p, "\r\n");
    ck_assert_uint_eq(kv_engine_client_bytes(engine), idle);

    send_line(w0, &p, "watch some-key-of-thirty-two-bytes-x");
    ck_assert_uint_ge(kv_engine_client_bytes(engine), idle + 32 + 32 + 32);
    send_line(w0, &p, "unwatch");
    ck_assert_uint_eq(kv_engine_client_bytes(engine), idle);

    send_line(w0, &p, "multi");
    for (int i = 0; i < 100; i++)
        send_line(w0, &p, "set a some-value-of-forty-bytes-some-value-of-f");
    ck_assert_uint_ge(kv_engine_client_bytes(engine), idle + 100 * 44);
    send_line(w0, &p, "discard");
    ck_assert_uint_eq(kv_engine_client_bytes(engine), idle);

    ck_assert(kv_client_set_text(p.c, &p.c->name, kv_slice_cstr("a name of twenty letters")));
    send_line(w0, &p, "args");
    ck_assert_uint_eq(kv_engine_client_bytes(engine), idle + 32);
    kv_client_set_no_evict(p.c, true);
    ck_assert_uint_eq(kv_engine_client_bytes(engine), idle + 32);
    check_all();
    close(p.fd);
    poll_worker(w0);
    poll_worker(w0);
    ck_assert_uint_eq(kv_engine_client_bytes(engine), 0);
}
END_TEST

START_TEST(the_largest_go_until_it_is_enough)
{
    start(1);
    struct peer p[4];
    for (int i = 0; i < 4; i++)
        p[i] = connect_to(w0);
    hold(w0, &p[0], 20 * KIB);
    hold(w0, &p[1], 400 * KIB);
    hold(w0, &p[2], 100 * KIB);
    poll_worker(w0);
    ck_assert_uint_eq(STAT(evicted_clients), 0);

    /* A limit counts from the next round on. */
    set_limit(300 * KIB);
    poll_worker(w0);
    ck_assert_uint_eq(STAT(evicted_clients), 1);
    poll_worker(w0);
    ck_assert(ended(&p[1]) && !ended(&p[0]) && !ended(&p[2]) && !ended(&p[3]));
    set_limit(2 * KIB);
    for (int i = 0; i < 4; i++)
        poll_worker(w0);
    ck_assert(ended(&p[0]) && ended(&p[2]) && !ended(&p[3]));
    ck_assert_uint_eq(STAT(evicted_clients), 3);
    ck_assert_uint_eq(w0->client_count, 1);
    ck_assert_uint_eq(kv_engine_client_bytes(engine), fresh_sum());
    for (int i = 0; i < 4; i++)
        close(p[i].fd);
}
END_TEST

START_TEST(the_largest_of_a_bucket_goes_first)
{
    start(1);
    struct peer p[3];
    for (int i = 0; i < 3; i++) {
        p[i] = connect_to(w0);
        hold(w0, &p[i], i == 1 ? 24 * KIB : 20 * KIB);
        ck_assert_uint_eq(p[i].c->bucket, p[0].c->bucket);
    }
    set_limit((int64_t)kv_engine_client_bytes(engine) - 1);
    poll_worker(w0);
    poll_worker(w0);
    ck_assert(!ended(&p[0]) && ended(&p[1]) && !ended(&p[2]));
    ck_assert_uint_eq(STAT(evicted_clients), 1);
    for (int i = 0; i < 3; i++)
        close(p[i].fd);
}
END_TEST

/* What is dropped is dropped at once: not even the rest of the round keeps it. */
START_TEST(a_connection_falls_for_its_own_command)
{
    start(1);
    set_limit(1024 * (int64_t)KIB);
    struct peer p = connect_to(w0);
    int64_t before = kv_mem_used(KV_MEM_CLIENT_INPUT);
    hold(w0, &p, 8 * KIB * KIB);
    ck_assert_uint_eq(STAT(evicted_clients), 1);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_INPUT), before);
    poll_worker(w0);
    ck_assert(ended(&p));
    ck_assert_uint_eq(w0->client_count, 0);
    close(p.fd);
}
END_TEST

/* Nothing but a queue that grows: neither output nor one large argument. */
START_TEST(a_queue_that_grows_has_an_end)
{
    start(1);
    set_limit(512 * (int64_t)KIB);
    struct peer p = connect_to(w0);
    struct library_bytes lines = {0};
    send_line(w0, &p, "multi");
    for (int i = 0; i < 3000; i++)
        library_request(&lines, "args a");
    uint64_t most = 0;
    for (int i = 0; i < 100 && STAT(evicted_clients) == 0; i++) {
        ssize_t n = write(p.fd, lines.bytes, lines.len);
        poll_worker(w0);
        ck_assert(n > 0 || STAT(evicted_clients) == 1);
        most = KV_MAX(most, kv_engine_client_bytes(engine));
    }
    ck_assert_uint_eq(STAT(evicted_clients), 1);
    ck_assert_uint_gt(most, 256 * KIB);
    ck_assert_uint_le(most, 512 * KIB);
    library_release(&lines);
    close(p.fd);
}
END_TEST

/* A reader that does not read: its output stops at the limit, within one read of requests. */
START_TEST(output_that_nobody_reads_has_an_end)
{
    start(1);
    set_limit(2048 * (int64_t)KIB);
    struct peer p = connect_to(w0), other = connect_to(w0);
    struct library_bytes lines = {0};
    library_append(&lines, "set k ", 6);
    for (int i = 0; i < 15000; i++)
        library_append(&lines, "x", 1);
    library_append(&lines, "\r\n", 2);
    send_bytes(w0, &p, lines.bytes, lines.len);
    library_clear(&lines);
    for (int i = 0; i < 1000; i++)
        library_append(&lines, "get k\r\n", 7);
    int64_t most = 0;
    for (int i = 0; i < 100 && STAT(evicted_clients) == 0; i++) {
        ck_assert_int_gt((int)write(p.fd, lines.bytes, lines.len), 0);
        poll_worker(w0);
        most = KV_MAX(most, kv_mem_used(KV_MEM_CLIENT_OUTPUT));
    }
    ck_assert_uint_eq(STAT(evicted_clients), 1);
    poll_worker(w0);
    ck_assert(ended(&p) && !ended(&other));
    ck_assert_uint_eq(kv_stat_read(&w0->stats.commands), STAT(commands));
    /* Far fewer commands ran than one read had brought: the pipeline was cut within. */
    ck_assert_uint_le(STAT(commands), 400);
    library_release(&lines);
    close(p.fd);
    close(other.fd);
}
END_TEST

START_TEST(kept_connections_count_but_stay)
{
    start(1);
    struct peer kept = connect_to(w0), other = connect_to(w0);
    kv_client_set_no_evict(kept.c, true);
    hold(w0, &kept, 500 * KIB);
    set_limit(400 * (int64_t)KIB);
    poll_worker(w0);
    poll_worker(w0);
    ck_assert(!ended(&kept) && ended(&other));
    ck_assert_uint_eq(STAT(evicted_clients), 1);
    /* Nobody is left to disconnect; that is no reason to spin. */
    ck_assert(!w0->client_limit.more);
    kv_client_set_no_evict(kept.c, false);
    poll_worker(w0);
    poll_worker(w0);
    ck_assert(ended(&kept));
    ck_assert_uint_eq(STAT(evicted_clients), 2);
    close(kept.fd);
    close(other.fd);
}
END_TEST

START_TEST(a_percentage_is_one_of_maxmemory)
{
    start(1);
    struct peer p = connect_to(w0);
    hold(w0, &p, 600 * KIB);
    set_limit(-50);
    poll_worker(w0);
    ck_assert_uint_eq(STAT(evicted_clients), 0); /* of no limit */
    kv_engine_options(engine)->maxmemory = 2048 * KIB;
    poll_worker(w0);
    ck_assert_uint_eq(STAT(evicted_clients), 0);
    kv_engine_options(engine)->maxmemory = 1024 * KIB;
    poll_worker(w0);
    ck_assert_uint_eq(STAT(evicted_clients), 1);
    close(p.fd);
}
END_TEST

/* The worker that sees the excess has smaller connections: it touches none, and wakes the other,
 * which would otherwise sleep for ever here. */
START_TEST(the_worker_with_the_largest_is_woken)
{
    start(2);
    struct peer small = connect_to(w0), large = connect_to(w1);
    hold(w1, &large, 500 * KIB);
    hold(w0, &small, 100 * KIB);
    set_limit(300 * (int64_t)KIB);
    poll_worker(w0);
    ck_assert_uint_eq(STAT(evicted_clients), 0);
    kv_this_worker = w1;
    kv_worker_poll(w1, -1);
    kv_this_worker = w0;
    ck_assert_uint_eq(STAT(evicted_clients), 1);
    poll_worker(w1);
    poll_worker(w0);
    ck_assert(ended(&large) && !ended(&small));
    check_all();
    close(small.fd);
    close(large.fd);
}
END_TEST

/* What ends anyway makes nobody fall. */
START_TEST(a_closing_connection_counts_no_longer)
{
    start(1);
    struct peer large = connect_to(w0), small = connect_to(w0);
    kv_client_set_no_evict(large.c, true);
    hold(w0, &large, 500 * KIB);
    set_limit(300 * (int64_t)KIB);
    kv_client_close_soon(large.c);
    kv_client_limit_round(w0);
    ck_assert_uint_eq(STAT(evicted_clients), 0);
    check_all();
    poll_worker(w0);
    ck_assert(ended(&large) && !ended(&small));
    close(large.fd);
    close(small.fd);
}
END_TEST

START_TEST(many_go_in_slices)
{
    start(1);
    enum { COUNT = 400 };
    struct peer p[COUNT];
    for (int i = 0; i < COUNT; i++) {
        p[i] = connect_to(w0);
        hold(w0, &p[i], 40 * KIB);
    }
    set_limit(1);
    for (int i = 0; i <= COUNT && w0->client_count > 0; i++) {
        /* A worker that has not got below the limit does not sleep. */
        kv_worker_poll(w0, w0->client_limit.more ? -1 : 0);
        ck_assert(w0->client_limit.more == (kv_engine_client_bytes(engine) > 1));
    }
    ck_assert_uint_eq(w0->client_count, 0);
    ck_assert_uint_eq(STAT(evicted_clients), COUNT);
    for (int i = 0; i < COUNT; i++)
        close(p[i].fd);
}
END_TEST

/* --- a model: after anything, the totals equal a fresh sum --- */

#define PEERS 24

static void act(struct kv_random *random, struct kv_worker *w, struct peer *p)
{
    char line[600];
    uint32_t size = (uint32_t)kv_random_below(random, 500) + 1;
    switch (kv_random_below(random, 12)) {
    case 0:
        send_text(w, p, "args a");
        break;
    case 1:
        send_text(w, p, "\r\n");
        break;
    case 2:
        send_line(w, p, "multi");
        break;
    case 3:
        send_line(w, p, kv_random_below(random, 2) == 0 ? "exec" : "discard");
        break;
    case 4:
        snprintf(line, sizeof(line), "set a %0*d", (int)size, 1);
        send_line(w, p, line);
        break;
    case 5:
        send_line(w, p, kv_random_below(random, 3) == 0 ? "unwatch" : "watch a b c d");
        break;
    case 6:
        hold(w, p, size * 400);
        break;
    case 7:
        snprintf(line, sizeof(line), "%0*d", (int)size, 1);
        if (!kv_client_set_text(p->c, &p->c->name, kv_slice(line, size / 10)))
            ck_abort_msg("no memory");
        send_text(w, p, "args\r\n");
        break;
    case 8:
        kv_client_set_no_evict(p->c, kv_random_below(random, 4) == 0);
        break;
    case 9:
        kv_client_close_soon(p->c);
        break;
    default:
        send_text(w, p, "args a b c\r\nget a\r\n");
        break;
    }
}

static bool linked(const struct kv_worker *w, const struct kv_client *c)
{
    const struct kv_client *i = w->clients;
    while (i != NULL && i != c)
        i = i->next;
    return i != NULL;
}

static struct kv_worker *worker_of(const struct peer *p)
{
    return linked(w0, p->c) ? w0 : linked(w1, p->c) ? w1 : NULL;
}

static void drop_ended(struct peer p[PEERS])
{
    for (int i = 0; i < PEERS; i++) {
        if (p[i].fd >= 0 && worker_of(&p[i]) == NULL) {
            ck_assert(ended(&p[i]));
            close(p[i].fd);
            p[i].fd = -1;
        } else if (p[i].fd >= 0) {
            (void)ended(&p[i]); /* reads what has come */
        }
    }
}

START_TEST(totals_equal_a_fresh_sum_after_anything)
{
    struct kv_random random;
    kv_random_init(&random, unit_seed("totals_equal_a_fresh_sum_after_anything"));
    start(2);
    struct peer p[PEERS];
    for (int i = 0; i < PEERS; i++)
        p[i].fd = -1;
    for (int round = 0; round < UNIT_ROUNDS(4000); round++) {
        struct peer *one = &p[kv_random_below(&random, PEERS)];
        if (one->fd < 0)
            *one = connect_to(kv_random_below(&random, 2) == 0 ? w0 : w1);
        else
            act(&random, one->c->worker, one);
        if (kv_random_below(&random, 20) == 0)
            set_limit(kv_random_below(&random, 2) == 0 ? 0 : 300 * (int64_t)KIB);
        for (int i = 0; i < 3; i++) {
            poll_worker(w0);
            poll_worker(w1);
        }
        drop_ended(p);
        check_all();
        ck_assert_uint_eq(kv_engine_client_bytes(engine), fresh_sum());
    }
    ck_assert_uint_gt(STAT(evicted_clients), 0);
    for (int i = 0; i < PEERS; i++)
        if (p[i].fd >= 0)
            close(p[i].fd);
    library_flush(engine);
}
END_TEST

START_TEST(a_moved_connection_counts_where_it_is)
{
    start(2);
    struct peer p = connect_to(w0);
    uint64_t bytes = kv_stat_read(&w0->client_limit.total_bytes);
    kv_client_move(p.c, w1);
    ck_assert_uint_eq(kv_engine_client_bytes(engine), 0);
    poll_worker(w1);
    ck_assert_uint_eq(kv_stat_read(&w0->client_limit.total_bytes), 0);
    ck_assert_uint_eq(kv_stat_read(&w1->client_limit.total_bytes), bytes);
    check_all();
    close(p.fd);
}
END_TEST

int main(void)
{
    struct unit u;
    signal(SIGPIPE, SIG_IGN);
    engine_begin(&u, "client_limit");
    unit_add(&u, all_that_a_connection_holds_is_counted);
    unit_add(&u, the_largest_go_until_it_is_enough);
    unit_add(&u, the_largest_of_a_bucket_goes_first);
    unit_add(&u, a_connection_falls_for_its_own_command);
    unit_add(&u, a_queue_that_grows_has_an_end);
    unit_add(&u, output_that_nobody_reads_has_an_end);
    unit_add(&u, kept_connections_count_but_stay);
    unit_add(&u, a_percentage_is_one_of_maxmemory);
    unit_add(&u, the_worker_with_the_largest_is_woken);
    unit_add(&u, a_closing_connection_counts_no_longer);
    unit_add(&u, many_go_in_slices);
    unit_add(&u, totals_equal_a_fresh_sum_after_anything);
    unit_add(&u, a_moved_connection_counts_where_it_is);
    return unit_run(&u);
}
