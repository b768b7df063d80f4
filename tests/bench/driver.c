/* In-process driver: feeds request bytes through parse and execute, without sockets.
 *
 *     driver [threads] [uniform|one|read] [seconds] [keys] [pipeline] [shards]
 *
 * Each thread is attached to a worker, owns a few virtual clients and feeds them pipelines of SET
 * and GET that were built beforehand, over all keys (uniform), one key (one) or GET only (read).
 * Printed: commands per second, how often locks were not free, parked connections, and the engine's
 * own longest lock hold. Compare a run with one thread and a run with two.
 */
#include "base/clock.h"
#include "cmd/table.h"
#include "engine/engine.h"
#include "engine/worker.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define CLIENTS 8
#define BUFFERS 64
#define VALUE_BYTES 32

struct load {
    struct kv_engine *engine;
    uint32_t index;
    double seconds;
    uint64_t keys;
    int pipeline;
    const char *mode;
    uint64_t commands;
    pthread_t thread;
};

static size_t build(char *to, struct kv_random *r, const struct load *l)
{
    char *p = to;
    for (int i = 0; i < l->pipeline; i++) {
        uint64_t k = l->mode[0] == 'o' ? 1 : kv_random_below(r, l->keys);
        bool get = l->mode[0] == 'r' || kv_random_below(r, 2) == 0;
        if (get)
            p += sprintf(p, "*2\r\n$3\r\nGET\r\n$16\r\nkey:%012llu\r\n", (unsigned long long)k);
        else
            p += sprintf(p, "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012llu\r\n$%d\r\n%032llu\r\n",
                         (unsigned long long)k, VALUE_BYTES, (unsigned long long)i);
    }
    return (size_t)(p - to);
}

static void drop_output(struct kv_client *c)
{
    kv_out_settle(&c->out);
    kv_out_advance(&c->out, kv_out_pending(&c->out));
}

static void fill(struct load *l)
{
    struct kv_worker *w = kv_engine_worker(l->engine, 0);
    kv_worker_attach(w);
    struct kv_client *c = kv_client_create_virtual(w);
    char line[128];
    for (uint64_t k = 0; k < l->keys; k++) {
        int n = sprintf(line, "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012llu\r\n$%d\r\n%032llu\r\n",
                        (unsigned long long)k, VALUE_BYTES, (unsigned long long)k);
        kv_client_feed(c, line, (size_t)n);
        drop_output(c);
    }
    kv_client_destroy(c);
    kv_worker_detach(w);
}

static void *drive(void *arg)
{
    struct load *l = arg;
    struct kv_worker *w = kv_engine_worker(l->engine, l->index);
    struct kv_random r;
    kv_random_init(&r, l->index + 1);
    char *buffers[BUFFERS];
    size_t lens[BUFFERS];
    for (int i = 0; i < BUFFERS; i++) {
        buffers[i] = kv_mem_alloc((size_t)l->pipeline * 128, KV_MEM_OTHER);
        lens[i] = build(buffers[i], &r, l);
    }
    kv_worker_attach(w);
    struct kv_client *clients[CLIENTS];
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = kv_client_create_virtual(w);
    uint64_t end = kv_clock_mono_ns() + (uint64_t)(l->seconds * 1e9);
    for (uint32_t round = 0;; round++) {
        if (round % 64 == 0 && kv_clock_mono_ns() >= end)
            break;
        bool fed = false;
        for (int i = 0; i < CLIENTS; i++) {
            struct kv_client *c = clients[i];
            if (c->flags & (KV_CLIENT_PARKED | KV_CLIENT_RESUMING))
                continue;
            uint32_t b = (round * CLIENTS + (uint32_t)i) % BUFFERS;
            kv_client_feed(c, buffers[b], lens[b]);
            drop_output(c);
            l->commands += (uint64_t)l->pipeline;
            fed = true;
        }
        if (!fed || round % 16 == 0)
            kv_worker_poll(w, 0);
    }
    /* Parked clients finish before their worker goes. */
    bool waiting = true;
    while (waiting) {
        waiting = false;
        kv_worker_poll(w, 1);
        for (int i = 0; i < CLIENTS; i++)
            waiting |= (clients[i]->flags & (KV_CLIENT_PARKED | KV_CLIENT_RESUMING)) != 0;
    }
    for (int i = 0; i < CLIENTS; i++)
        kv_client_destroy(clients[i]);
    kv_worker_detach(w);
    for (int i = 0; i < BUFFERS; i++)
        kv_mem_free(buffers[i], (size_t)l->pipeline * 128, KV_MEM_OTHER);
    kv_mem_thread_exit();
    return NULL;
}

int main(int argc, char **argv)
{
    struct kv_options options;
    kv_mem_init();
    kv_clock_init();
    kv_options_default(&options);
    options.threads = argc > 1 ? (uint32_t)atoi(argv[1]) : 1;
    const char *mode = argc > 2 ? argv[2] : "uniform";
    double seconds = argc > 3 ? atof(argv[3]) : 3;
    uint64_t keys = argc > 4 ? strtoull(argv[4], NULL, 10) : 100000;
    int pipeline = argc > 5 ? atoi(argv[5]) : 50;
    options.shards = argc > 6 ? (uint32_t)atoi(argv[6]) : 0;
    struct kv_engine *e = kv_engine_create(&options, &kv_command_table);
    struct load loads[KV_WORKERS_MAX] = {0};
    for (uint32_t i = 0; i < options.threads; i++)
        loads[i] = (struct load){e, i, seconds, keys, pipeline, mode, 0, 0};
    fill(&loads[0]);
    kv_engine_reset_stats(e);
    uint64_t start = kv_clock_mono_ns();
    for (uint32_t i = 0; i < options.threads; i++)
        pthread_create(&loads[i].thread, NULL, drive, &loads[i]);
    uint64_t commands = 0;
    for (uint32_t i = 0; i < options.threads; i++) {
        pthread_join(loads[i].thread, NULL);
        commands += loads[i].commands;
    }
    double elapsed = (double)(kv_clock_mono_ns() - start) / 1e9;
#define STAT(field) kv_engine_stat(e, offsetof(struct kv_worker_stats, field))
    printf("threads=%u mode=%s ops_per_second=%.0f ns_per_command_and_thread=%.1f "
           "lock_spins=%llu lock_parks=%llu gate_closes=%llu hold_us_max=%.1f\n",
           options.threads, mode, (double)commands / elapsed,
           elapsed * 1e9 * options.threads / (double)commands, (unsigned long long)STAT(lock_spins),
           (unsigned long long)STAT(lock_parks), (unsigned long long)STAT(gate_closes),
           (double)STAT(hold_ns_max) / 1000);
    kv_engine_destroy(e);
    return 0;
}
