/* Open-loop load generator: requests leave at times that were fixed beforehand, whether or not
 * earlier ones were answered, and latency counts from the fixed time. A server that stands still
 * for a while so shows it in all the requests of that while, not in one.
 *
 *   open <port> <string|hash> <keys> <set percent> <rate> <seconds> <connections> <seed>
 *
 * A rate of 0 is a closed loop instead: one request under way on each connection, which gives the
 * highest rate of requests that are not pipelined. Keys are named as load.c names them; `string`
 * means SET with 16 bytes and GET, `hash` means HSET and HGET of one field.
 *
 * Prints "<requests> <requests per second> <p50> <p99> <p99.9> <max>", latencies in microseconds;
 * the first WARM_UP_SECONDS do not count for them.
 *
 * One thread. Requests go round over the connections; one connection keeps the scheduled times of
 * what is under way in a ring. A send that blocks delays those after it, but not their scheduled
 * times.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CONNECTIONS_MAX 256
#define RING 16384u
#define READ_BYTES (256 * 1024)
#define WARM_UP_SECONDS 0.2
#define NS UINT64_C(1000000000)
#define DRAIN_SECONDS 10 /* how long replies are waited for at the end */

struct connection {
    int fd;
    uint32_t first, last; /* of the ring; equal: nothing is under way */
    uint64_t scheduled[RING];
    size_t bulk_left; /* bytes of a bulk reply that are still to come */
    char line[64];    /* a reply's first line, as far as it came */
    size_t line_len;
};

struct load {
    struct connection *connections;
    uint32_t connection_count;
    long keys, set_percent;
    bool hash;
    uint64_t random;
    uint64_t *latencies;
    size_t latency_count, latency_max;
    uint64_t sent, answered, count_from;
    bool closed; /* closed loop */
    int epoll;
};

static char read_buffer[READ_BYTES];

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));

static void fail(const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vfprintf(stderr, fmt, args);
    va_end(args);
    fputc('\n', stderr);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * NS + (uint64_t)t.tv_nsec;
}

static uint64_t random_next(uint64_t *state)
{
    uint64_t z = (*state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int connect_port(long port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        fail("cannot connect to port %ld: %s", port, strerror(errno));
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

static size_t build(struct load *l, char *out)
{
    long key = (long)(random_next(&l->random) % (uint64_t)l->keys);
    unsigned number = (unsigned)random_next(&l->random) % 100000000u;
    bool set = (long)(random_next(&l->random) % 100) < l->set_percent;
    if (l->hash && set)
        return (size_t)sprintf(out,
                               "*4\r\n$4\r\nHSET\r\n$16\r\nkey:%012ld\r\n$7\r\ncompany\r\n"
                               "$13\r\nAcme_%08u\r\n",
                               key, number);
    if (l->hash)
        return (size_t)sprintf(out, "*3\r\n$4\r\nHGET\r\n$16\r\nkey:%012ld\r\n$7\r\ncompany\r\n",
                               key);
    if (set)
        return (size_t)sprintf(
            out, "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012ld\r\n$16\r\nvalue:%08uxx\r\n", key, number);
    return (size_t)sprintf(out, "*2\r\n$3\r\nGET\r\n$16\r\nkey:%012ld\r\n", key);
}

static void send_one(struct load *l, struct connection *c, uint64_t scheduled)
{
    char request[256];
    size_t len = build(l, request), at = 0;
    while (at < len) {
        ssize_t sent = send(c->fd, request + at, len - at, MSG_NOSIGNAL);
        if (sent < 0)
            fail("send: %s", strerror(errno));
        at += (size_t)sent;
    }
    c->scheduled[c->last++ % RING] = scheduled;
    l->sent++;
}

static void answered(struct load *l, struct connection *c, uint64_t now)
{
    if (c->first == c->last)
        fail("a reply that nobody asked for");
    uint64_t scheduled = c->scheduled[c->first++ % RING];
    l->answered++;
    if (scheduled >= l->count_from && l->latency_count < l->latency_max)
        l->latencies[l->latency_count++] = now - scheduled;
    if (l->closed)
        send_one(l, c, now);
}

/* The first line of a reply is complete: what follows it? */
static void take_line(struct load *l, struct connection *c, uint64_t now)
{
    c->line[c->line_len] = 0;
    c->line_len = 0;
    if (c->line[0] == '-')
        fail("unexpected reply: %s", c->line);
    if (c->line[0] == '$' && c->line[1] != '-')
        c->bulk_left = strtoul(c->line + 1, NULL, 10) + 2;
    else
        answered(l, c, now);
}

static void receive(struct load *l, struct connection *c)
{
    ssize_t got = recv(c->fd, read_buffer, sizeof(read_buffer), MSG_DONTWAIT);
    if (got < 0 && errno == EAGAIN)
        return;
    if (got <= 0)
        fail("recv: %s", got == 0 ? "closed" : strerror(errno));
    uint64_t now = now_ns();
    for (ssize_t i = 0; i < got;) {
        if (c->bulk_left > 0) {
            size_t there = (size_t)(got - i) < c->bulk_left ? (size_t)(got - i) : c->bulk_left;
            i += (ssize_t)there;
            c->bulk_left -= there;
            if (c->bulk_left == 0)
                answered(l, c, now);
            continue;
        }
        if (c->line_len + 1 >= sizeof(c->line))
            fail("a line that is too long: %.60s", c->line);
        c->line[c->line_len++] = read_buffer[i++];
        if (c->line[c->line_len - 1] == '\n')
            take_line(l, c, now);
    }
}

/* Waits for replies, at most until a time. */
static void wait_until(struct load *l, uint64_t until)
{
    struct epoll_event events[CONNECTIONS_MAX];
    uint64_t now = now_ns();
    uint64_t left = until > now ? until - now : 0;
    struct timespec limit = {(time_t)(left / NS), (long)(left % NS)};
    int count = epoll_pwait2(l->epoll, events, CONNECTIONS_MAX, &limit, NULL);
    for (int i = 0; i < count; i++)
        receive(l, events[i].data.ptr);
}

static void run_open(struct load *l, uint64_t start, double rate, uint64_t total)
{
    double step = (double)NS / rate;
    for (uint64_t i = 0; i < total;) {
        uint64_t now = now_ns();
        uint64_t due = start + (uint64_t)((double)i * step);
        struct connection *c = &l->connections[i % l->connection_count];
        if (now < due || c->last - c->first == RING) {
            wait_until(l, now < due ? due : now + NS / 1000);
            continue;
        }
        send_one(l, c, due);
        i++;
        /* Replies are looked at in between, or a long backlog would read as latency. */
        if (i % 16 == 0)
            wait_until(l, 0);
    }
}

static void drain(struct load *l)
{
    uint64_t end = now_ns() + DRAIN_SECONDS * NS;
    l->closed = false;
    while (l->answered < l->sent) {
        if (now_ns() > end)
            fail("%lu replies did not come", (unsigned long)(l->sent - l->answered));
        wait_until(l, now_ns() + NS / 100);
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static double quantile_us(const struct load *l, double share)
{
    if (l->latency_count == 0)
        return 0;
    size_t at = (size_t)((double)(l->latency_count - 1) * share);
    return (double)l->latencies[at] / 1000;
}

static void prepare(struct load *l, long port, size_t latency_max)
{
    l->epoll = epoll_create1(0);
    l->connections = calloc(l->connection_count, sizeof(*l->connections));
    l->latencies = malloc(latency_max * sizeof(*l->latencies));
    l->latency_max = latency_max;
    if (l->epoll < 0 || l->connections == NULL || l->latencies == NULL)
        fail("no memory");
    for (uint32_t i = 0; i < l->connection_count; i++) {
        struct connection *c = &l->connections[i];
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
        c->fd = connect_port(port);
        if (epoll_ctl(l->epoll, EPOLL_CTL_ADD, c->fd, &event) != 0)
            fail("epoll_ctl: %s", strerror(errno));
    }
    prctl(PR_SET_TIMERSLACK, 1UL);
}

int main(int argc, char **argv)
{
    if (argc != 9)
        fail("usage: open port string|hash keys set-percent rate seconds connections seed");
    double rate = strtod(argv[5], NULL), seconds = strtod(argv[6], NULL);
    struct load l = {.hash = strcmp(argv[2], "hash") == 0,
                     .keys = strtol(argv[3], NULL, 10),
                     .set_percent = strtol(argv[4], NULL, 10),
                     .connection_count = (uint32_t)strtoul(argv[7], NULL, 10),
                     .random = strtoul(argv[8], NULL, 10),
                     .closed = rate <= 0};
    if (l.connection_count < 1 || l.connection_count > CONNECTIONS_MAX || l.keys < 1)
        fail("1 to %d connections, at least one key", CONNECTIONS_MAX);
    uint64_t total = (uint64_t)(rate * seconds);
    prepare(&l, strtol(argv[1], NULL, 10), l.closed ? 1u << 24 : total + 1);
    uint64_t start = now_ns();
    uint64_t end = start + (uint64_t)(seconds * (double)NS);
    l.count_from = start + (uint64_t)(WARM_UP_SECONDS * (double)NS);
    if (l.closed) {
        for (uint32_t i = 0; i < l.connection_count; i++)
            send_one(&l, &l.connections[i], start);
        while (now_ns() < end)
            wait_until(&l, end);
    } else {
        run_open(&l, start, rate, total);
    }
    double elapsed = (double)(now_ns() - start) / (double)NS;
    uint64_t requests = l.answered;
    drain(&l);
    qsort(l.latencies, l.latency_count, sizeof(*l.latencies), compare);
    printf("%lu %.0f %.1f %.1f %.1f %.1f\n", (unsigned long)requests, (double)requests / elapsed,
           quantile_us(&l, 0.5), quantile_us(&l, 0.99), quantile_us(&l, 0.999), quantile_us(&l, 1));
    return 0;
}
