/* A C program that uses the server through hiredis, as an application would: sessions, counters,
 * pipelines, transactions, iteration, large values, expiry. hiredis 0.14 speaks RESP2.
 *
 * KVIK_HOST and KVIK_PORT tell where the server is. Prints one line a check in the manner of TAP;
 * the exit status is 0 when all passed. It knows nothing of the server's sources.
 */
#include <hiredis/hiredis.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static int check_count;
static int failure_count;

static void report(bool good, const char *title)
{
    check_count++;
    if (!good)
        failure_count++;
    printf("%s %d - hiredis: %s\n", good ? "ok" : "not ok", check_count, title);
}

static redisContext *connect_server(void)
{
    const char *host = getenv("KVIK_HOST");
    const char *port = getenv("KVIK_PORT");
    struct timeval limit = {.tv_sec = 20};
    redisContext *c = redisConnectWithTimeout(host != NULL ? host : "127.0.0.1",
                                              port != NULL ? atoi(port) : 6379, limit);
    if (c == NULL || c->err != 0) {
        printf("Bail out! cannot connect: %s\n", c != NULL ? c->errstr : "no memory");
        exit(1);
    }
    redisSetTimeout(c, limit);
    return c;
}

/* Each of these frees the reply. */
static bool is_text(redisReply *r, const char *text)
{
    bool good = r != NULL && (r->type == REDIS_REPLY_STRING || r->type == REDIS_REPLY_STATUS) &&
                r->len == strlen(text) && memcmp(r->str, text, r->len) == 0;
    freeReplyObject(r);
    return good;
}

static bool is_integer(redisReply *r, long long value)
{
    bool good = r != NULL && r->type == REDIS_REPLY_INTEGER && r->integer == value;
    freeReplyObject(r);
    return good;
}

static bool is_nil(redisReply *r)
{
    bool good = r != NULL && r->type == REDIS_REPLY_NIL;
    freeReplyObject(r);
    return good;
}

static bool is_error(redisReply *r, const char *start)
{
    bool good =
        r != NULL && r->type == REDIS_REPLY_ERROR && strncmp(r->str, start, strlen(start)) == 0;
    freeReplyObject(r);
    return good;
}

static redisReply *next_reply(redisContext *c)
{
    void *reply = NULL;
    return redisGetReply(c, &reply) == REDIS_OK ? reply : NULL;
}

static void check_sessions(redisContext *c)
{
    bool good = true;
    for (int i = 0; i < 200; i++)
        good &= is_text(redisCommand(c, "SET session:%d {\"user\":%d} EX 60", i, i), "OK");
    good &= is_text(redisCommand(c, "GET session:7"), "{\"user\":7}");
    redisReply *ttl = redisCommand(c, "TTL session:7");
    good &= ttl != NULL && ttl->integer > 50 && ttl->integer <= 60;
    freeReplyObject(ttl);
    good &= is_integer(redisCommand(c, "PERSIST session:7"), 1);
    good &= is_integer(redisCommand(c, "TTL session:7"), -1);
    good &= is_nil(redisCommand(c, "SET session:7 x NX"));
    good &= is_integer(redisCommand(c, "DEL session:7 session:8 nosuch"), 2);
    report(good, "sessions with a time to live");
}

static void check_counters(redisContext *c)
{
    bool good = true;
    for (int i = 1; i <= 500; i++)
        good &= is_integer(redisCommand(c, "INCR counter"), i);
    good &= is_integer(redisCommand(c, "INCRBY counter %lld", 9223372036854775000LL),
                       9223372036854775500LL);
    good &= is_error(redisCommand(c, "INCRBY counter 1000"), "ERR increment or decrement");
    good &= is_text(redisCommand(c, "INCRBYFLOAT price 10.1"), "10.1");
    good &= is_text(redisCommand(c, "INCRBYFLOAT price 0.2"), "10.3");
    report(good, "counters and their limits");
}

static void check_pipeline(redisContext *c)
{
    enum { COUNT = 20000 };
    bool good = true;
    for (int i = 0; i < COUNT; i++)
        redisAppendCommand(c, i % 2 == 0 ? "SET pipe:%d value-%d" : "GET pipe:%d", i / 2 % 500,
                           i / 2 % 500);
    for (int i = 0; i < COUNT && good; i++) {
        char text[32];
        snprintf(text, sizeof(text), "value-%d", i / 2 % 500);
        good = is_text(next_reply(c), i % 2 == 0 ? "OK" : text);
    }
    report(good, "a pipeline of 20,000 commands");
}

static void check_transaction(redisContext *c)
{
    redisAppendCommand(c, "MULTI");
    redisAppendCommand(c, "SET tx 1");
    redisAppendCommand(c, "INCR tx");
    redisAppendCommand(c, "MGET tx none");
    redisAppendCommand(c, "EXEC");
    bool good = is_text(next_reply(c), "OK");
    for (int i = 0; i < 3; i++)
        good &= is_text(next_reply(c), "QUEUED");
    redisReply *r = next_reply(c);
    good &= r != NULL && r->type == REDIS_REPLY_ARRAY && r->elements == 3 &&
            r->element[1]->integer == 2 && r->element[2]->elements == 2 &&
            strcmp(r->element[2]->element[0]->str, "2") == 0 &&
            r->element[2]->element[1]->type == REDIS_REPLY_NIL;
    freeReplyObject(r);
    report(good, "a transaction in a pipeline");
}

static void check_watch(redisContext *c, redisContext *other)
{
    bool good = is_text(redisCommand(c, "WATCH tx"), "OK");
    good &= is_text(redisCommand(other, "SET tx other"), "OK");
    good &= is_text(redisCommand(c, "MULTI"), "OK");
    good &= is_text(redisCommand(c, "SET tx mine"), "QUEUED");
    good &= is_nil(redisCommand(c, "EXEC"));
    good &= is_text(redisCommand(c, "GET tx"), "other");
    report(good, "a watched key changed by somebody else");
}

static void check_iteration(redisContext *c)
{
    enum { COUNT = 4000 };
    static bool seen[COUNT];
    bool good = true;
    for (int i = 0; i < COUNT; i++)
        redisAppendCommand(c, "SET scan:%d x", i);
    for (int i = 0; i < COUNT; i++)
        good &= is_text(next_reply(c), "OK");
    char cursor[32] = "0";
    do {
        redisReply *r = redisCommand(c, "SCAN %s MATCH scan:* COUNT 100", cursor);
        if (r == NULL || r->type != REDIS_REPLY_ARRAY || r->elements != 2) {
            freeReplyObject(r);
            good = false;
            break;
        }
        snprintf(cursor, sizeof(cursor), "%s", r->element[0]->str);
        for (size_t i = 0; i < r->element[1]->elements; i++)
            seen[atoi(r->element[1]->element[i]->str + 5) % COUNT] = true;
        freeReplyObject(r);
    } while (strcmp(cursor, "0") != 0);
    for (int i = 0; i < COUNT; i++)
        good &= seen[i];
    report(good, "iteration over 4,000 keys");
}

static void check_large(redisContext *c)
{
    static const size_t sizes[] = {16383, 16384, 100000, 6u << 20};
    bool good = true;
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
        size_t size = sizes[s];
        char *value = malloc(size);
        if (value == NULL)
            abort();
        for (size_t i = 0; i < size; i++)
            value[i] = (char)(i * 37 + s);
        good &= is_text(redisCommand(c, "SET large %b", value, size), "OK");
        redisReply *r = redisCommand(c, "GET large");
        good &= r != NULL && r->len == size && memcmp(r->str, value, size) == 0;
        freeReplyObject(r);
        good &= is_integer(redisCommand(c, "STRLEN large"), (long long)size);
        free(value);
    }
    report(good, "large binary values");
}

static void check_binary_keys(redisContext *c)
{
    char key[256];
    for (int i = 0; i < 256; i++)
        key[i] = (char)i;
    bool good = is_text(redisCommand(c, "SET %b %b", key, sizeof(key), "v\0w", (size_t)3), "OK");
    good &= is_integer(redisCommand(c, "EXISTS %b", key, sizeof(key)), 1);
    good &= is_integer(redisCommand(c, "STRLEN %b", key, sizeof(key)), 3);
    good &= is_integer(redisCommand(c, "EXISTS %b", key, sizeof(key) - 1), 0);
    report(good, "keys of any bytes");
}

static void check_expiry(redisContext *c)
{
    bool good = is_text(redisCommand(c, "SET soon 1 PX 50"), "OK");
    good &= is_integer(redisCommand(c, "PEXPIRE soon 40 LT"), 1);
    nanosleep(&(struct timespec){.tv_nsec = 150 * 1000 * 1000}, NULL);
    good &= is_nil(redisCommand(c, "GET soon"));
    good &= is_integer(redisCommand(c, "PTTL soon"), -2);
    report(good, "expiry");
}

static void check_errors(redisContext *c)
{
    bool good = is_error(redisCommand(c, "NOSUCH a b"), "ERR unknown command 'NOSUCH'");
    good &= is_error(redisCommand(c, "GET"), "ERR wrong number of arguments for 'get' command");
    good &= is_error(redisCommand(c, "EXEC"), "ERR EXEC without MULTI");
    good &= is_text(redisCommand(c, "PING"), "PONG");
    report(good, "errors leave the connection usable");
}

int main(void)
{
    redisContext *c = connect_server();
    redisContext *other = connect_server();
    report(is_text(redisCommand(c, "FLUSHALL"), "OK"), "an empty server");
    check_sessions(c);
    check_counters(c);
    check_pipeline(c);
    check_transaction(c);
    check_watch(c, other);
    check_iteration(c);
    check_large(c);
    check_binary_keys(c);
    check_expiry(c);
    check_errors(c);
    report(is_text(redisCommand(c, "FLUSHALL"), "OK"), "an empty server again");
    redisFree(other);
    redisFree(c);
    printf("1..%d\n", check_count);
    return failure_count == 0 ? 0 : 1;
}
