/* A cache in front of a slow store: GET, and SET on a miss, over keys whose popularity follows
 * Zipf's law. Counts hits; the trace depends on the arguments alone.
 *
 *   zipf <port> <operations> <keys> <skew> <values> <ttl> <seed>
 *
 *   values   a number: bytes of every value; "mixed": 20 to 1,000 bytes, fixed for a key, small
 * ones more often (a quarter each up to 50, 120, 300 and 1,000) ttl      0: SET without a time to
 * live; a number of seconds for all; "mixed": 1,000 to 100,000 seconds, drawn for each SET
 *
 * WINDOW lookups are sent together, then the SETs of those that missed, so that a run of a million
 * operations takes seconds. The first fifth of the operations warms the cache up and is not
 * counted. Prints "<hits> <lookups> <seconds>".
 *
 * The popularity of rank r is r^-skew; ranks are drawn from the summed distribution by bisection
 * and scattered over key names by a fixed permutation.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define WINDOW 50
#define VALUE_MAX 1000
#define WARM_SHARE 5 /* one in so many operations */
#define COMMAND_MAX (VALUE_MAX + 200)

static char value_bytes[VALUE_MAX];

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
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static uint64_t random_next(uint64_t *state)
{
    return mix(*state += 0x9e3779b97f4a7c15u);
}

/* --- the trace --- */

struct trace {
    double *sums; /* of popularity, by rank */
    uint64_t keys;
    uint64_t state;
};

static void trace_init(struct trace *t, uint64_t keys, double skew, uint64_t seed)
{
    t->keys = keys;
    t->state = seed;
    t->sums = calloc(keys, sizeof(*t->sums));
    if (t->sums == NULL)
        fail("no memory");
    double sum = 0;
    for (uint64_t rank = 0; rank < keys; rank++) {
        sum += pow((double)(rank + 1), -skew);
        t->sums[rank] = sum;
    }
}

static uint64_t trace_next(struct trace *t)
{
    double x = (double)(random_next(&t->state) >> 11) * 0x1p-53 * t->sums[t->keys - 1];
    uint64_t low = 0, high = t->keys - 1;
    while (low < high) {
        uint64_t middle = (low + high) / 2;
        if (t->sums[middle] > x)
            high = middle;
        else
            low = middle + 1;
    }
    return low * 2654435761u % t->keys; /* a permutation unless the prime divides keys */
}

static size_t value_len(const char *values, uint64_t key)
{
    static const unsigned ends[] = {20, 50, 120, 300, VALUE_MAX};
    if (strcmp(values, "mixed") != 0)
        return strtoul(values, NULL, 10);
    uint64_t bits = mix(key + 1);
    unsigned quarter = bits & 3;
    return ends[quarter] + (bits >> 2) % (ends[quarter + 1] - ends[quarter]);
}

/* --- the connection --- */

struct connection {
    int fd;
    char in[64 * 1024];
    size_t at, len;
};

static void connect_to(struct connection *c, int port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int on = 1;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    c->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (c->fd < 0 || connect(c->fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        fail("connect: %s", strerror(errno));
    struct timeval limit = {.tv_sec = 60};
    setsockopt(c->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    setsockopt(c->fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
}

static void send_all(struct connection *c, const char *bytes, size_t len)
{
    while (len > 0) {
        ssize_t n = write(c->fd, bytes, len);
        if (n <= 0)
            fail("write: %s", strerror(errno));
        bytes += n;
        len -= (size_t)n;
    }
}

static void read_more(struct connection *c)
{
    memmove(c->in, c->in + c->at, c->len - c->at);
    c->len -= c->at;
    c->at = 0;
    ssize_t n = read(c->fd, c->in + c->len, sizeof(c->in) - c->len);
    if (n <= 0)
        fail("read: %s", n == 0 ? "connection closed" : strerror(errno));
    c->len += (size_t)n;
}

/* The next line without its end, which stays valid until the next read. */
static const char *read_line(struct connection *c)
{
    for (;;) {
        char *end = memchr(c->in + c->at, '\r', c->len - c->at);
        if (end != NULL && end + 1 < c->in + c->len) {
            const char *line = c->in + c->at;
            *end = '\0';
            c->at = (size_t)(end + 2 - c->in);
            return line;
        }
        read_more(c);
    }
}

/* A bulk reply: true when it is not null. */
static bool read_bulk(struct connection *c)
{
    const char *line = read_line(c);
    if (line[0] != '$')
        fail("reply: %s", line);
    long len = strtol(line + 1, NULL, 10);
    if (len < 0)
        return false;
    while (c->len - c->at < (size_t)len + 2)
        read_more(c);
    c->at += (size_t)len + 2;
    return true;
}

/* --- one window --- */

struct load {
    struct connection connection;
    struct trace trace;
    const char *values, *ttl;
    uint64_t ttl_state;
    uint64_t hits, lookups;
};

static size_t print_set(struct load *l, char *out, uint64_t key)
{
    size_t len = value_len(l->values, key);
    size_t n = 0;
    unsigned seconds = (unsigned)strtoul(l->ttl, NULL, 10);
    if (strcmp(l->ttl, "mixed") == 0)
        seconds = 1000 + (unsigned)(random_next(&l->ttl_state) % 99000);
    n += (size_t)sprintf(out, "*%d\r\n$3\r\nSET\r\n$16\r\nkey:%012llu\r\n$%zu\r\n",
                         seconds > 0 ? 5 : 3, (unsigned long long)key, len);
    memcpy(out + n, value_bytes, len);
    n += len;
    if (seconds > 0) {
        char digits[16];
        int digit_count = snprintf(digits, sizeof(digits), "%u", seconds);
        n += (size_t)sprintf(out + n, "\r\n$2\r\nEX\r\n$%d\r\n%s", digit_count, digits);
    }
    n += (size_t)sprintf(out + n, "\r\n");
    return n;
}

static void run_window(struct load *l)
{
    static char out[WINDOW * COMMAND_MAX];
    uint64_t keys[WINDOW], missed[WINDOW];
    size_t len = 0, misses = 0;
    for (int i = 0; i < WINDOW; i++) {
        keys[i] = trace_next(&l->trace);
        len += (size_t)sprintf(out + len, "*2\r\n$3\r\nGET\r\n$16\r\nkey:%012llu\r\n",
                               (unsigned long long)keys[i]);
    }
    send_all(&l->connection, out, len);
    for (int i = 0; i < WINDOW; i++)
        if (read_bulk(&l->connection))
            l->hits++;
        else
            missed[misses++] = keys[i];
    l->lookups += WINDOW;
    len = 0;
    for (size_t i = 0; i < misses; i++)
        len += print_set(l, out + len, missed[i]);
    send_all(&l->connection, out, len);
    for (size_t i = 0; i < misses; i++) {
        const char *line = read_line(&l->connection);
        if (strcmp(line, "+OK") != 0)
            fail("SET: %s", line);
    }
}

int main(int argc, char **argv)
{
    static struct load l;
    if (argc != 8)
        fail("zipf <port> <operations> <keys> <skew> <values> <ttl> <seed>");
    uint64_t operations = strtoull(argv[2], NULL, 10);
    uint64_t seed = strtoull(argv[7], NULL, 10);
    trace_init(&l.trace, strtoull(argv[3], NULL, 10), strtod(argv[4], NULL), seed);
    l.values = argv[5];
    l.ttl = argv[6];
    l.ttl_state = seed + 1;
    if (strcmp(l.values, "mixed") != 0 && value_len(l.values, 0) > VALUE_MAX)
        fail("values of at most %d bytes", VALUE_MAX);
    memset(value_bytes, 'v', sizeof(value_bytes));
    connect_to(&l.connection, (int)strtol(argv[1], NULL, 10));
    double start = seconds_now();
    for (uint64_t done = 0; done < operations; done += WINDOW) {
        if (done / WINDOW == operations / WARM_SHARE / WINDOW)
            l.hits = l.lookups = 0;
        run_window(&l);
    }
    printf("%llu %llu %.3f\n", (unsigned long long)l.hits, (unsigned long long)l.lookups,
           seconds_now() - start);
    free(l.trace.sums);
    return 0;
}
