/* Load generator for what redis-benchmark cannot do: fill a server with exactly the keys 0 .. n-1,
 * read many keys with one MGET, refresh one time to live again and again.
 *
 *   load fill   <port> <keys> <value bytes> [ttl seconds]
 *   load mget   <port> <keys> <value bytes> <keys per MGET> <connections> <requests> <seed>
 *   load expire <port> <requests>
 *   load mixed  <port> <requests> <seed>      60 GET, 20 SET, 10 INCRBY, 5 EXPIRE, 5 DEL of 100
 *
 * Keys are named key:%012d, 16 bytes, as redis-benchmark -r names them. All values have the same
 * length, so the length of every reply is known in advance and replies are only counted, which
 * keeps the generator cheap; a reply of another length shows as a wrong first byte or as a hang,
 * which the socket's time limit ends. Prints "<requests> <seconds>" on success.
 *
 * One thread. `fill` and `expire` use one connection and windows of commands; `mget` keeps one
 * request under way on each of its connections.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WINDOW 500 /* commands sent before their replies are read */
#define CONNECTIONS_MAX 256
#define READ_BYTES (256 * 1024)

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

static double seconds_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
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
    struct timeval limit = {.tv_sec = 60};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    return fd;
}

static void send_all(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t sent = send(fd, bytes, len, MSG_NOSIGNAL);
        if (sent < 0)
            fail("send: %s", strerror(errno));
        bytes += sent;
        len -= (size_t)sent;
    }
}

/* Reads what is there; at least one byte. */
static size_t receive(int fd)
{
    ssize_t got = recv(fd, read_buffer, sizeof(read_buffer), 0);
    if (got <= 0)
        fail("recv: %s", got == 0 ? "closed" : strerror(errno));
    return (size_t)got;
}

/* Reads `count` replies that all are exactly `reply`. */
static void expect_replies(int fd, const char *reply, size_t count)
{
    size_t len = strlen(reply);
    size_t place = 0; /* in the stream of replies */
    while (place < count * len) {
        size_t got = receive(fd);
        for (size_t i = 0; i < got; i++, place++)
            if (read_buffer[i] != reply[place % len])
                fail("unexpected reply: %.*s", (int)(got - i < 200 ? got - i : 200),
                     read_buffer + i);
    }
}

static char *allocate(size_t bytes)
{
    char *block = malloc(bytes);
    if (block == NULL)
        fail("no memory");
    return block;
}

static void fill(long port, long keys, long value_bytes, long ttl_seconds)
{
    int fd = connect_port(port);
    char *value = allocate((size_t)value_bytes + 1);
    memset(value, 'x', (size_t)value_bytes);
    char *request = allocate((size_t)(value_bytes + 160) * WINDOW);
    for (long key = 0; key < keys;) {
        size_t len = 0, count = 0;
        for (; key < keys && count < WINDOW; key++, count++) {
            len +=
                (size_t)sprintf(request + len, "*%d\r\n$3\r\nSET\r\n$16\r\nkey:%012ld\r\n$%ld\r\n",
                                ttl_seconds > 0 ? 5 : 3, key, value_bytes);
            memcpy(request + len, value, (size_t)value_bytes);
            len += (size_t)value_bytes;
            len += (size_t)sprintf(request + len, "\r\n");
            if (ttl_seconds > 0) {
                char text[24];
                int digits = sprintf(text, "%ld", ttl_seconds);
                len += (size_t)sprintf(request + len, "$2\r\nEX\r\n$%d\r\n%s\r\n", digits, text);
            }
        }
        send_all(fd, request, len);
        expect_replies(fd, "+OK\r\n", count);
    }
    free(request);
    free(value);
    close(fd);
}

#define MIXED_KEYS 5000
#define MIXED_CONNECTIONS 20
#define MIXED_PIPELINE 16

struct mixed {
    uint64_t random;
    char *request;
    size_t len;   /* bytes of request */
    size_t reply; /* bytes that its replies have: each key keeps its length of value */
    char value[512];
};

static void mixed_add(struct mixed *m, const char *format, long key, size_t value_bytes)
{
    m->len +=
        (size_t)sprintf(m->request + m->len, format, key, value_bytes, (int)value_bytes, m->value);
}

static size_t decimal_digits(long number)
{
    char text[24];
    return (size_t)sprintf(text, "%ld", number);
}

static void mixed_set(struct mixed *m, long key)
{
    mixed_add(m, "*3\r\n$3\r\nSET\r\n$9\r\nmix:%05ld\r\n$%zu\r\n%.*s\r\n", key,
              (size_t)(20 + key * 37 % 300));
    m->reply += 5;
}

static void mixed_command(struct mixed *m)
{
    uint64_t roll = random_next(&m->random) % 100;
    long key = (long)(random_next(&m->random) % MIXED_KEYS);
    size_t value_bytes = (size_t)(20 + key * 37 % 300);
    if (roll < 60) {
        mixed_add(m, "*2\r\n$3\r\nGET\r\n$9\r\nmix:%05ld\r\n", key, 0);
        m->reply += 5 + decimal_digits((long)value_bytes) + value_bytes;
    } else if (roll < 80) {
        mixed_set(m, key);
    } else if (roll < 90) {
        /* Adding 0 keeps the reply's length. */
        mixed_add(m, "*3\r\n$6\r\nINCRBY\r\n$9\r\nsum:%05ld\r\n$1\r\n0\r\n", key, 0);
        m->reply += 5;
    } else if (roll < 95) {
        mixed_add(m, "*3\r\n$6\r\nEXPIRE\r\n$9\r\nmix:%05ld\r\n$5\r\n90000\r\n", key, 0);
        m->reply += 4;
    } else {
        mixed_add(m, "*2\r\n$3\r\nDEL\r\n$9\r\nmix:%05ld\r\n", key, 0);
        m->reply += 4;
        mixed_set(m, key);
    }
}

static void receive_bytes(int fd, size_t bytes)
{
    while (bytes > 0) {
        size_t got = receive(fd);
        if (got > bytes)
            fail("replies are longer than expected");
        bytes -= got;
    }
}

static void mixed(long port, long requests, long seed)
{
    int fds[MIXED_CONNECTIONS];
    size_t reply[MIXED_CONNECTIONS];
    struct mixed m = {.random = (uint64_t)seed, .request = allocate(MIXED_PIPELINE * 1024)};
    for (size_t i = 0; i < sizeof(m.value); i++)
        m.value[i] = (char)('a' + i % 26);
    for (int i = 0; i < MIXED_CONNECTIONS; i++)
        fds[i] = connect_port(port);
    for (long key = 0; key < MIXED_KEYS; key++) {
        if (key % MIXED_PIPELINE == 0)
            m.len = m.reply = 0;
        mixed_set(&m, key);
        mixed_add(&m, "*3\r\n$3\r\nSET\r\n$9\r\nsum:%05ld\r\n$2\r\n42\r\n", key, 0);
        m.reply += 5;
        if (key % MIXED_PIPELINE < MIXED_PIPELINE - 1 && key < MIXED_KEYS - 1)
            continue;
        send_all(fds[0], m.request, m.len);
        receive_bytes(fds[0], m.reply);
    }
    for (long done = 0; done < requests;) {
        for (int i = 0; i < MIXED_CONNECTIONS; i++) {
            m.len = m.reply = 0;
            for (int n = 0; n < MIXED_PIPELINE; n++)
                mixed_command(&m);
            done += MIXED_PIPELINE;
            reply[i] = m.reply;
            send_all(fds[i], m.request, m.len);
        }
        for (int i = 0; i < MIXED_CONNECTIONS; i++)
            receive_bytes(fds[i], reply[i]);
    }
    for (int i = 0; i < MIXED_CONNECTIONS; i++)
        close(fds[i]);
    free(m.request);
}

static void expire(long port, long requests)
{
    int fd = connect_port(port);
    char *request = allocate((size_t)100 * WINDOW);
    for (long done = 0; done < requests;) {
        size_t len = 0, count = 0;
        for (; done < requests && count < WINDOW; done++, count++)
            len += (size_t)sprintf(request + len,
                                   "*3\r\n$6\r\nEXPIRE\r\n$16\r\nkey:%012d\r\n$7\r\n%07ld\r\n", 0,
                                   1000000 + done % 8000000);
        send_all(fd, request, len);
        expect_replies(fd, ":1\r\n", count);
    }
    free(request);
    close(fd);
}

struct mget {
    long keys, per_request, left; /* left: requests not sent so far */
    uint64_t random;
    size_t reply_bytes;
    char *request;
};

static void mget_send(struct mget *m, int fd)
{
    size_t len = (size_t)sprintf(m->request, "*%ld\r\n$4\r\nMGET\r\n", m->per_request + 1);
    for (long i = 0; i < m->per_request; i++)
        len += (size_t)sprintf(m->request + len, "$16\r\nkey:%012ld\r\n",
                               (long)(random_next(&m->random) % (uint64_t)m->keys));
    send_all(fd, m->request, len);
    m->left--;
}

/* Takes what came on one connection; true when its reply is complete. */
static bool mget_receive(const struct mget *m, int fd, size_t *have)
{
    size_t got = receive(fd);
    if (*have == 0 && read_buffer[0] != '*')
        fail("unexpected reply: %.*s", (int)(got < 200 ? got : 200), read_buffer);
    *have += got;
    if (*have > m->reply_bytes)
        fail("a reply longer than expected");
    if (*have < m->reply_bytes)
        return false;
    *have = 0;
    return true;
}

static void mget_loop(struct mget *m, const int *fds, nfds_t connections, long requests)
{
    struct pollfd polls[CONNECTIONS_MAX];
    size_t have[CONNECTIONS_MAX] = {0};
    for (nfds_t i = 0; i < connections; i++) {
        polls[i] = (struct pollfd){.fd = fds[i], .events = POLLIN};
        mget_send(m, fds[i]);
    }
    for (long done = 0; done < requests;) {
        if (poll(polls, connections, 60000) <= 0)
            fail("no reply for a minute");
        for (nfds_t i = 0; i < connections; i++) {
            if (polls[i].revents == 0 || !mget_receive(m, fds[i], &have[i]))
                continue;
            done++;
            if (m->left > 0)
                mget_send(m, fds[i]);
        }
    }
}

static void mget(long port, long keys, long value_bytes, long per_request, long connections,
                 long requests, long seed)
{
    if (connections < 1 || connections > CONNECTIONS_MAX || requests < connections)
        fail("1 to %d connections, and no more than requests", CONNECTIONS_MAX);
    struct mget m = {.keys = keys, .per_request = per_request, .left = requests};
    m.random = (uint64_t)seed;
    m.reply_bytes = 3 + decimal_digits(per_request) +
                    (size_t)per_request * (5 + decimal_digits(value_bytes) + (size_t)value_bytes);
    m.request = allocate((size_t)(per_request + 4) * 40);
    int fds[CONNECTIONS_MAX];
    for (long i = 0; i < connections; i++)
        fds[i] = connect_port(port);
    mget_loop(&m, fds, (nfds_t)connections, requests);
    for (long i = 0; i < connections; i++)
        close(fds[i]);
    free(m.request);
}

int main(int argc, char **argv)
{
    long n[8] = {0};
    for (int i = 2; i < argc && i < 10; i++)
        n[i - 2] = strtol(argv[i], NULL, 10);
    const char *mode = argc > 1 ? argv[1] : "";
    double start = seconds_now();
    long requests = n[1];
    if (strcmp(mode, "fill") == 0 && argc >= 5) {
        fill(n[0], n[1], n[2], n[3]);
    } else if (strcmp(mode, "mget") == 0 && argc == 9) {
        mget(n[0], n[1], n[2], n[3], n[4], n[5], n[6]);
        requests = n[5];
    } else if (strcmp(mode, "expire") == 0 && argc == 4) {
        expire(n[0], n[1]);
    } else if (strcmp(mode, "mixed") == 0 && argc == 5) {
        mixed(n[0], n[1], n[2]);
    } else {
        fail("usage: load fill|mget|expire|mixed port ... (see the source)");
    }
    printf("%ld %.6f\n", requests, seconds_now() - start);
    return 0;
}
