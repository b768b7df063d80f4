/* An engine with the tiny table for each test, attached to worker 0, and clients of it. The number
 * of workers is chosen by start(); other workers do not run: a test plays them by calling what
 * takes a worker. engine_teardown proves that everything came back. */
#ifndef KV_TESTS_ENGINE_FIXTURE_H
#define KV_TESTS_ENGINE_FIXTURE_H

#include "library.h"
#include "tiny_table.h"
#include "unit.h"

static struct kv_engine *engine;
static struct kv_worker *w0, *w1; /* w1 is NULL with one worker */
static struct library_bytes reply;
static struct kv_options options; /* changed by a test before start() */
static int64_t total_before;

static void engine_setup(void)
{
    total_before = kv_mem_used_total();
    kv_options_default(&options);
    options.command_log[KV_COMMAND_LOG_SLOW].limit = -1;
    options.shards = 64;
}

KV_UNUSED static void start(uint32_t threads)
{
    options.threads = threads;
    engine = kv_engine_create(&options, &tiny_table);
    w0 = kv_engine_worker(engine, 0);
    w1 = threads > 1 ? kv_engine_worker(engine, 1) : NULL;
    kv_worker_attach(w0);
}

static void engine_teardown(void)
{
    kv_store_check(engine->store);
    kv_worker_detach(w0);
    kv_engine_destroy(engine);
    library_release(&reply);
    ck_assert_int_eq(kv_mem_used_dataset(), 0);
    ck_assert_int_eq(kv_mem_used_total(), total_before);
}

KV_INLINE struct kv_client *client_new(void)
{
    return kv_client_create_virtual(w0);
}

/* Sends a line of words; what is answered at once must be `text`. */
#define assert_reply(c, line, text)                                                                \
    do {                                                                                           \
        library_send((c), (line), &reply);                                                         \
        ck_assert_str_eq(reply.len > 0 ? reply.bytes : "", (text));                                \
    } while (0)

/* What has been answered since. */
#define assert_answered(c, text)                                                                   \
    do {                                                                                           \
        library_clear(&reply);                                                                     \
        library_take((c), &reply);                                                                 \
        ck_assert_str_eq(reply.len > 0 ? reply.bytes : "", (text));                                \
    } while (0)

KV_INLINE uint32_t shard_of_key(const char *key)
{
    return kv_store_shard_of(engine->store, kv_store_hash(engine->store, key, strlen(key)));
}

/* A worker's messages are handled as if it ran a round. */
KV_INLINE void poll_worker(struct kv_worker *w)
{
    struct kv_worker *before = kv_this_worker;
    kv_this_worker = w;
    kv_worker_poll(w, 0);
    kv_this_worker = before;
}

#define STAT(field) kv_engine_stat(engine, offsetof(struct kv_worker_stats, field))

KV_INLINE void engine_begin(struct unit *u, const char *name)
{
    kv_mem_init();
    kv_clock_init();
    kv_log_set_level(KV_LOG_NOTHING);
    unit_begin(u, name);
    unit_fixture(u, engine_setup, engine_teardown);
}

#endif
