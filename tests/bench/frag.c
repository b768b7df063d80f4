/* Load generator of make bench-frag: fills, thins out at random, asks steadily.
 *
 *   frag set <port> <prefix> <from> <to> <value bytes>     SETs <prefix>:%012d for from <= i < to
 *   frag del <port> <prefix> <keys> <percent>              DELs that share of the keys at random
 *   frag get <port> <prefix> <keys> <percent> <rate> <s>   GETs of keys that `del` leaves
 *
 * Which keys `del` takes is decided by a hash of their number, so that `get` knows what is left.
 * `set` and `del` send windows of commands on one connection. `get` sends one at a time, `rate` a
 * second, and prints a line "<monotonic seconds at the end> <microseconds>" for each: the time from
 * sending to the whole reply, and when an earlier reply was so late that sending was, from when it
 * should have been sent. A prefix has three letters, so keys have 16 bytes.
 *
 * One thread. Ends with an error on any reply that is not expected.
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
#include <sys/prctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WINDOW 500
#define COMMAND_BYTES 4096
#define VALUE_MAX 2048

static char request[WINDOW * COMMAND_BYTES];
static char answer[64 * 1024];

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

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static bool is_deleted(long key, long percent)
{
    return (long)(mix((uint64_t)key) % 100) < percent;
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

/* Sends what has been collected and reads `count` replies that all are `reply`. */
static void exchange(int fd, size_t len, const char *reply, size_t count)
{
    size_t reply_len = strlen(reply), place = 0;
    send_all(fd, request, len);
    while (place < count * reply_len) {
        ssize_t got = recv(fd, answer, sizeof(answer), 0);
        if (got <= 0)
            fail("recv: %s", got == 0 ? "closed" : strerror(errno));
        for (ssize_t i = 0; i < got; i++, place++)
            if (answer[i] != reply[place % reply_len])
                fail("unexpected reply: %.*s", (int)(got - i < 200 ? got - i : 200), answer + i);
    }
}

static void run_set(long port, const char *prefix, long from, long to, long value_bytes)
{
    static char value[VALUE_MAX];
    int fd = connect_port(port);
    memset(value, 'x', sizeof(value));
    for (long key = from; key < to;) {
        size_t len = 0, count = 0;
        for (; key < to && count < WINDOW; key++, count++)
            len += (size_t)sprintf(request + len,
                                   "*3\r\n$3\r\nSET\r\n$16\r\n%s:%012ld\r\n$%ld\r\n%.*s\r\n",
                                   prefix, key, value_bytes, (int)value_bytes, value);
        exchange(fd, len, "+OK\r\n", count);
    }
    close(fd);
}

static void run_del(long port, const char *prefix, long keys, long percent)
{
    int fd = connect_port(port);
    for (long key = 0; key < keys;) {
        size_t len = 0, count = 0;
        for (; key < keys && count < WINDOW; key++) {
            if (!is_deleted(key, percent))
                continue;
            len += (size_t)sprintf(request + len, "*2\r\n$3\r\nDEL\r\n$16\r\n%s:%012ld\r\n", prefix,
                                   key);
            count++;
        }
        if (count > 0)
            exchange(fd, len, ":1\r\n", count);
    }
    close(fd);
}

/* One GET; the reply's length comes from its first line. */
static void get_once(int fd, const char *prefix, long key)
{
    size_t have = 0, want = SIZE_MAX;
    size_t len = (size_t)sprintf(request, "*2\r\n$3\r\nGET\r\n$16\r\n%s:%012ld\r\n", prefix, key);
    send_all(fd, request, len);
    while (have < want) {
        ssize_t got = recv(fd, answer + have, sizeof(answer) - have - 1, 0);
        if (got <= 0)
            fail("recv: %s", got == 0 ? "closed" : strerror(errno));
        have += (size_t)got;
        answer[have] = '\0';
        char *line_end = strstr(answer, "\r\n");
        if (line_end == NULL)
            continue;
        long value_bytes = answer[0] == '$' ? strtol(answer + 1, NULL, 10) : -1;
        if (value_bytes < 0)
            fail("unexpected reply: %.*s", 100, answer);
        want = (size_t)(line_end - answer) + 2 + (size_t)value_bytes + 2;
    }
}

static void run_get(long port, const char *prefix, long keys, long percent, double rate,
                    double seconds)
{
    int fd = connect_port(port);
    uint64_t state = 1;
    double due = seconds_now(), end = due + seconds;
    prctl(PR_SET_TIMERSLACK, 1);
    while (due < end) {
        long key;
        do
            key = (long)(mix(state++) % (uint64_t)keys);
        while (is_deleted(key, percent));
        bool late = seconds_now() > due;
        if (!late) {
            struct timespec t = {.tv_sec = (time_t)due};
            t.tv_nsec = (long)((due - (double)t.tv_sec) * 1e9);
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
        }
        double start = late ? due : seconds_now();
        get_once(fd, prefix, key);
        double now = seconds_now();
        printf("%.6f %.1f\n", now, (now - start) * 1e6);
        due += 1 / rate;
    }
    close(fd);
}

int main(int argc, char **argv)
{
    const char *what = argc > 2 ? argv[1] : "";
    long n[8] = {0};
    for (int i = 4; i < argc && i < 8; i++)
        n[i] = strtol(argv[i], NULL, 10);
    long port = argc > 2 ? strtol(argv[2], NULL, 10) : 0;
    if (argc > 3 && strlen(argv[3]) != 3)
        fail("a prefix has three letters");
    if (strcmp(what, "set") == 0 && argc == 7 && n[6] > 0 && n[6] <= VALUE_MAX)
        run_set(port, argv[3], n[4], n[5], n[6]);
    else if (strcmp(what, "del") == 0 && argc == 6)
        run_del(port, argv[3], n[4], n[5]);
    else if (strcmp(what, "get") == 0 && argc == 8 && n[4] > 0 && n[5] < 100 && n[6] > 0)
        run_get(port, argv[3], n[4], n[5], (double)n[6], (double)n[7]);
    else
        fail("see the head of frag.c");
    return 0;
}
