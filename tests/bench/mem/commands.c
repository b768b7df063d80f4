/* Commands that make and free blocks, fed to the engine in this process without sockets.
 *
 *     commands set|mset COMMANDS [KEYS]
 *
 * Each time a key is written its value has another length, so that every command replaces an entry
 * by one of another size: an allocation and a free for each key. Requests are made beforehand, 50
 * of them in a pipeline; an MSET has ten keys. Printed: CPU nanoseconds per command of the one
 * thread, after a first part that is not counted. callgrind started with --collect-atstart=no
 * collects the counted part alone.
 *
 * Compiled against older revisions, too (server.py): it uses nothing but what driver.c uses. */
#include "base/clock.h"
#include "cmd/table.h"
#include "engine/engine.h"
#include "engine/worker.h"
#include "measure.h"
#include <stdarg.h>
#include <string.h>

#if !HAVE_CALLGRIND
#define CALLGRIND_TOGGLE_COLLECT ((void)0)
#define RUNNING_ON_VALGRIND 0
#endif

#define PIPELINE 50
#define BUFFERS 256 /* the second half has the keys of the first, values of other lengths */
#define MSET_KEYS 10
#define VALUE_MIN 16
#define VALUE_MAX 240

static char value[VALUE_MAX];
static uint64_t keys = 100000;

struct pipeline {
    char *bytes;
    size_t len, capacity;
};

static struct pipeline pipelines[BUFFERS];

static void add(struct pipeline *p, const char *format, ...) KV_PRINTF(2, 3);

static void add(struct pipeline *p, const char *format, ...)
{
    if (p->capacity - p->len < 512) {
        p->capacity = p->capacity * 2 + 4096;
        p->bytes = realloc(p->bytes, p->capacity);
        if (p->bytes == NULL)
            abort();
    }
    va_list arguments;
    va_start(arguments, format);
    p->len += (size_t)vsnprintf(p->bytes + p->len, 512, format, arguments);
    va_end(arguments);
}

/* other: the value is longer or shorter by half of what lengths differ. */
static void add_key_and_value(struct pipeline *p, uint64_t key, struct kv_random *r, bool other)
{
    int range = VALUE_MAX - VALUE_MIN;
    int len =
        VALUE_MIN + ((int)kv_random_below(r, (uint64_t)range) + (other ? range / 2 : 0)) % range;
    add(p, "$16\r\nkey:%012llu\r\n$%d\r\n%.*s\r\n", (unsigned long long)key, len, len, value);
}

static void add_command(struct pipeline *p, bool many, struct kv_random *r, bool other)
{
    int count = many ? MSET_KEYS : 1;
    add(p, "*%d\r\n%s", 1 + 2 * count, many ? "$4\r\nMSET\r\n" : "$3\r\nSET\r\n");
    while (count-- > 0)
        add_key_and_value(p, kv_random_below(r, keys), r, other);
}

static void feed(struct kv_client *c, const struct pipeline *p)
{
    kv_client_feed(c, p->bytes, p->len);
    kv_out_settle(&c->out);
    kv_out_advance(&c->out, kv_out_pending(&c->out));
}

static void fill(struct kv_client *c, struct kv_random *r)
{
    struct pipeline one = {0};
    for (uint64_t key = 0; key < keys; key++) {
        one.len = 0;
        add(&one, "*3\r\n$3\r\nSET\r\n");
        add_key_and_value(&one, key, r, false);
        feed(c, &one);
    }
    free(one.bytes);
}

static void run(struct kv_worker *w, struct kv_client *c, uint64_t commands)
{
    for (uint64_t done = 0, round = 0; done < commands; done += PIPELINE, round++) {
        feed(c, &pipelines[round % BUFFERS]);
        if (round % 16 == 0)
            kv_worker_poll(w, 0);
    }
}

int main(int argc, char **argv)
{
    uint64_t commands = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    bool many = argc > 1 && strcmp(argv[1], "mset") == 0;
    if (commands == 0 || (!many && strcmp(argv[1], "set") != 0)) {
        fprintf(stderr, "usage: commands set|mset COMMANDS [KEYS]\n");
        return 2;
    }
    keys = argc > 3 ? strtoull(argv[3], NULL, 10) : keys;
    struct kv_options options;
    struct kv_random r;
    kv_mem_init();
    kv_clock_init();
    kv_options_default(&options);
    options.threads = 1;
    kv_random_init(&r, 1);
    memset(value, 'v', sizeof value);
    for (int i = 0; i < BUFFERS; i++) {
        if (i % (BUFFERS / 2) == 0)
            kv_random_init(&r, 1);
        for (int n = 0; n < PIPELINE; n++)
            add_command(&pipelines[i], many, &r, i >= BUFFERS / 2);
    }
    struct kv_engine *e = kv_engine_create(&options, &kv_command_table);
    struct kv_worker *w = kv_engine_worker(e, 0);
    kv_worker_attach(w);
    /* Fifty times slower, batches would end after 50 us and be planned again and again. */
    if (RUNNING_ON_VALGRIND)
        w->hold_ticks = UINT64_C(1) << 60;
    struct kv_client *c = kv_client_create_virtual(w);
    fill(c, &r);
    run(w, c, (uint64_t)BUFFERS * PIPELINE);
    uint64_t start = thread_ns();
    CALLGRIND_TOGGLE_COLLECT;
    run(w, c, commands);
    CALLGRIND_TOGGLE_COLLECT;
    printf("%.2f\n", (double)(thread_ns() - start) / (double)commands);
    kv_client_destroy(c);
    kv_worker_detach(w);
    kv_engine_destroy(e);
    return 0;
}
