/* Load generator for exchanges that are more than one command: each connection sends a block of
 * command lines, waits until the replies of all are there, and sends the next block.
 *
 *   exchange <port> <connections> <turns> <keys> <reply bytes> <line> ...
 *
 * A line is words between single blanks. In a word {random} stands for the number of a key, 12
 * digits, another one each time; {self} for the number of the connection and {peer} for that of the
 * other one of its pair (0 and 1, 2 and 3 ...), three digits each. So connections can wait for each
 * other: BLPOP of the own list behind LPUSH to the peer's.
 *
 * The replies to a block always have the same length, which is given and all that is looked at; one
 * of another length shows as a hang, which the time limit ends, or as bytes too many. Each
 * connection takes as many turns. Prints "<turns> <seconds>" on success. One thread.
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

#define CONNECTIONS_MAX 256
#define BLOCK_MAX 16384
#define WORD_MAX 1024
#define LIMIT_MS 60000

struct connection {
    int fd, number;
    long turns_left; /* not sent yet */
    size_t missing;  /* bytes of replies */
};

static struct connection connections[CONNECTIONS_MAX];
static struct pollfd polls[CONNECTIONS_MAX];
static char block[BLOCK_MAX];
static size_t block_len;
static uint64_t random_state = 1;
static long keys;

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

static long random_key(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (long)(random_state % (uint64_t)keys);
}

static int connect_port(long port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0)
        fail("cannot connect to port %ld: %s", port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return fd;
}

static void put(const char *bytes, size_t len)
{
    if (len > BLOCK_MAX - block_len)
        fail("the lines are too long");
    memcpy(block + block_len, bytes, len);
    block_len += len;
}

/* Appends what a word stands for. */
static void put_word(const char *word, size_t len, int self)
{
    char text[WORD_MAX], head[32];
    size_t used = 0;
    for (size_t i = 0; i < len;) {
        if (used + 16 > sizeof(text))
            fail("a word is too long");
        if (strncmp(word + i, "{random}", 8) == 0) {
            used += (size_t)snprintf(text + used, 16, "%012ld", random_key());
            i += 8;
        } else if (strncmp(word + i, "{self}", 6) == 0 || strncmp(word + i, "{peer}", 6) == 0) {
            int number = word[i + 1] == 's' ? self : self ^ 1;
            used += (size_t)snprintf(text + used, 16, "%03d", number);
            i += 6;
        } else {
            text[used++] = word[i++];
        }
    }
    put(head, (size_t)snprintf(head, sizeof(head), "$%zu\r\n", used));
    put(text, used);
    put("\r\n", 2);
}

static void put_line(const char *line, int self)
{
    char head[32];
    int words = 1;
    for (const char *p = line; *p != '\0'; p++)
        words += *p == ' ';
    put(head, (size_t)snprintf(head, sizeof(head), "*%d\r\n", words));
    for (int i = 0; i < words; i++) {
        size_t len = strcspn(line, " ");
        put_word(line, len, self);
        line += len + 1;
    }
}

static void send_block(struct connection *c, char **lines, int count, size_t reply_bytes)
{
    block_len = 0;
    for (int i = 0; i < count; i++)
        put_line(lines[i], c->number);
    for (size_t sent = 0; sent < block_len;) {
        ssize_t done = send(c->fd, block + sent, block_len - sent, MSG_NOSIGNAL);
        if (done < 0)
            fail("send: %s", strerror(errno));
        sent += (size_t)done;
    }
    c->turns_left--;
    c->missing = reply_bytes;
}

/* Takes what has come; true when the replies are complete. */
static bool receive(struct connection *c)
{
    char buffer[BLOCK_MAX];
    ssize_t got = recv(c->fd, buffer, sizeof(buffer), 0);
    if (got <= 0)
        fail("recv: %s", got == 0 ? "closed" : strerror(errno));
    if (buffer[0] == '-' || (size_t)got > c->missing)
        fail("unexpected reply: %.*s", (int)(got < 200 ? got : 200), buffer);
    c->missing -= (size_t)got;
    return c->missing == 0;
}

static void run(int count, char **lines, int line_count, size_t reply_bytes)
{
    for (int busy = count; busy > 0;) {
        if (poll(polls, (nfds_t)count, LIMIT_MS) <= 0)
            fail("no reply: do the replies have %zu bytes?", reply_bytes);
        for (int i = 0; i < count; i++) {
            struct connection *c = &connections[i];
            if (polls[i].revents == 0 || !receive(c))
                continue;
            if (c->turns_left > 0) {
                send_block(c, lines, line_count, reply_bytes);
            } else {
                polls[i].fd = -1;
                busy--;
            }
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 7)
        fail("exchange <port> <connections> <turns> <keys> <reply bytes> <line> ...");
    int count = atoi(argv[2]);
    long turns = atol(argv[3]);
    keys = atol(argv[4]);
    size_t reply_bytes = (size_t)atol(argv[5]);
    if (count < 1 || count > CONNECTIONS_MAX || turns < count || keys < 1 || reply_bytes < 1)
        fail("wrong numbers");
    for (int i = 0; i < count; i++) {
        int fd = connect_port(atol(argv[1]));
        connections[i] = (struct connection){.fd = fd, .number = i, .turns_left = turns / count};
        polls[i] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    double begun = seconds_now();
    for (int i = 0; i < count; i++)
        send_block(&connections[i], argv + 6, argc - 6, reply_bytes);
    run(count, argv + 6, argc - 6, reply_bytes);
    printf("%ld %.6f\n", turns / count * count, seconds_now() - begun);
    return 0;
}
