/* The engine: creation, running, ending; sums over workers.
 *
 * Order of ending: worker threads are joined, then each worker frees its clients on the caller's
 * thread, then store and background thread go. Statistics are single-writer slots in the workers;
 * reading sums them.
 */
#include "engine/engine.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/background.h"
#include "engine/hotkeys.h"
#include "engine/notify.h"
#include "engine/worker.h"
#include "store/collection.h"
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

static uint32_t choose_shards(const struct kv_options *o)
{
    if (o->shards != 0)
        return KV_MIN(o->shards, (uint32_t)KV_SHARDS_MAX);
    if (o->threads == 1)
        return 16;
    /* A batch of 16 commands holds up to 16 shards: with few shards two workers would nearly always
     * meet (at 64 a worker in 88 of 100 batches, at 512 in 22). */
    uint32_t n = 1024;
    while (n < 512 * o->threads && n < KV_SHARDS_MAX)
        n *= 2;
    return n;
}

/* An entry was removed because it was due: the stream says so before whatever comes next. */
static void on_expired(struct kv_view *view, const struct kv_key *key)
{
    struct kv_worker *w = view->owner;
    if (!kv_stream_active(&w->engine->stream))
        return;
    struct kv_slice argv[2] = {KV_SLICE("DEL"), kv_slice(key->ptr, key->len)};
    kv_stream_add(w, view->db, argv, 2);
}

/* Likewise to make room; freed beside the work it is called by the name that says so. */
static void on_evicted(struct kv_view *view, const struct kv_key *key)
{
    struct kv_worker *w = view->owner;
    if (!kv_stream_active(&w->engine->stream))
        return;
    struct kv_slice argv[2] = {KV_SLICE("DEL"), kv_slice(key->ptr, key->len)};
    if (w->engine->options.lazyfree_eviction)
        argv[0] = KV_SLICE("UNLINK");
    kv_stream_add(w, view->db, argv, 2);
}

/* Likewise of a member of a collection. */
static void on_member_expired(struct kv_view *view, const struct kv_key *key, enum kv_type type,
                              struct kv_slice member)
{
    struct kv_worker *w = view->owner;
    if (!kv_stream_active(&w->engine->stream))
        return;
    struct kv_slice argv[3] = {KV_SLICE("HDEL"), kv_slice(key->ptr, key->len), member};
    if (type != KV_TYPE_HASH)
        argv[0] = type == KV_TYPE_SET ? KV_SLICE("SREM") : KV_SLICE("ZREM");
    kv_stream_add(w, view->db, argv, 3);
}

static void index_commands(struct kv_engine *e, const struct kv_command *list, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++) {
        KV_ASSERT(list[i].id < e->table->id_count);
        e->by_id[list[i].id] = &list[i];
        index_commands(e, list[i].subs, list[i].sub_count);
    }
}

static void on_free_later(struct kv_view *view, void (*fn)(void *entry), void *entry)
{
    struct kv_worker *w = view->owner;
    kv_background_submit(w->engine->background, fn, entry);
}

static const struct kv_command *find_command(struct kv_engine *e, const char *name)
{
    return kv_command_index_find(e->index, kv_slice_cstr(name));
}

static void find_special_commands(struct kv_engine *e)
{
    e->cmd_multi = find_command(e, "multi");
    e->cmd_exec = find_command(e, "exec");
    e->cmd_discard = find_command(e, "discard");
    e->cmd_watch = find_command(e, "watch");
    e->cmd_reset = find_command(e, "reset");
    e->cmd_quit = find_command(e, "quit");
    e->cmd_ping = find_command(e, "ping");
    const struct kv_command *client = find_command(e, "client");
    e->cmd_client = client;
    if (client != NULL)
        e->cmd_unpause = kv_command_sub(client, KV_SLICE("unpause"));
}

struct kv_engine *kv_engine_create(const struct kv_options *options,
                                   const struct kv_command_table *table)
{
    KV_ASSERT(options->threads >= 1 && options->threads <= KV_WORKERS_MAX);
    struct kv_engine *e = kv_mem_alloc_aligned(sizeof(*e), KV_CACHE_LINE, KV_MEM_OTHER);
    memset(e, 0, sizeof(*e));
    e->options = *options;
    e->table = table;
    e->worker_count = options->threads;
    e->multi = options->threads > 1;
    e->shard_count = choose_shards(options);
    e->start_wall_ms = kv_clock_wall_ms();
    atomic_store(&e->next_client_id, 1);
    kv_gate_init(&e->gate);
    kv_stream_init(&e->stream);
    for (int i = 0; i < KV_COMMAND_LOGS; i++)
        kv_command_log_init(&e->command_logs[i]);
    kv_latency_monitor_init(&e->latency);
    kv_snapshot_init(&e->snapshot);
    kv_pubsub_init(e);
    kv_tracking_init(e);
    e->background = kv_background_create();
    kv_errands_init(&e->errands);
    kv_script_state_init(e);

    struct kv_store_options so = {.shard_count = e->shard_count,
                                  .database_count = options->databases};
    kv_random_secure(&so.hash_key, sizeof(so.hash_key));
    e->store = kv_store_create(&so);
    struct kv_store_hooks hooks = {
        .expired = on_expired,
        .evicted = on_evicted,
        .member_expired = on_member_expired,
        .ready = kv_blocking_ready,
        .free_later = on_free_later,
    };
    kv_store_set_hooks(e->store, &hooks);
    kv_engine_apply_options(e);

    e->index = kv_command_index_create(table);
    e->by_id = kv_mem_zalloc(table->id_count * sizeof(*e->by_id), KV_MEM_CONFIG);
    index_commands(e, table->commands, table->command_count);
    find_special_commands(e);
    kv_acl_init(e);

    /* One more than shards: the token of scripts. */
    size_t lock_bytes = (e->shard_count + 1) * sizeof(*e->locks);
    e->locks = kv_mem_alloc_aligned(lock_bytes, KV_CACHE_LINE, KV_MEM_OTHER);
    memset(e->locks, 0, lock_bytes);
    for (uint32_t i = 0; i <= e->shard_count; i++)
        kv_mutex_init(&e->locks[i].wait_mutex, KV_RANK_SHARD_WAIT);
    e->workers = kv_mem_zalloc(e->worker_count * sizeof(*e->workers), KV_MEM_OTHER);
    for (uint32_t i = 0; i < e->worker_count; i++)
        e->workers[i] = kv_worker_create(e, i);
    return e;
}

/* Closes all sockets and frees all clients. All threads but the background's have ended. */
static void end_connections(struct kv_engine *e)
{
    for (uint32_t i = 0; i < e->listener_count; i++)
        close(e->listeners[i].fd);
    if (e->listener_count > 0 && e->options.unixsocket[0] != '\0')
        unlink(e->options.unixsocket);
    /* All threads have ended: nothing needs a lock any more. Clients go first, since the end of one
     * may post messages to any worker. */
    kv_errands_stop(&e->errands);
    e->multi = false;
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_worker_clear(e->workers[i]);
}

void kv_engine_leave(struct kv_engine *e)
{
    end_connections(e);
}

void kv_engine_destroy(struct kv_engine *e)
{
    end_connections(e);
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_worker_destroy(e->workers[i]);
    kv_mem_free(e->workers, e->worker_count * sizeof(*e->workers), KV_MEM_OTHER);
    kv_defrag_release(e);
    kv_background_destroy(e->background);
    kv_errands_release(&e->errands);
    for (uint32_t i = 0; i <= e->shard_count; i++)
        kv_mutex_release(&e->locks[i].wait_mutex);
    kv_mem_free_aligned(e->locks, (e->shard_count + 1) * sizeof(*e->locks), KV_CACHE_LINE,
                        KV_MEM_OTHER);
    kv_script_state_release(e);
    kv_store_destroy(e->store);
    kv_mem_free(e->by_id, e->table->id_count * sizeof(*e->by_id), KV_MEM_CONFIG);
    kv_command_index_destroy(e->index);
    for (int i = 0; i < KV_COMMAND_LOGS; i++)
        kv_command_log_release(&e->command_logs[i]);
    kv_latency_monitor_release(&e->latency);
    kv_hotkeys_release(e);
    kv_snapshot_release(&e->snapshot);
    kv_pubsub_release(e);
    kv_tracking_release(e);
    kv_acl_release(e);
    kv_stream_release(&e->stream);
    kv_gate_release(&e->gate);
    kv_mem_free_aligned(e, sizeof(*e), KV_CACHE_LINE, KV_MEM_OTHER);
}

static void *worker_thread(void *arg)
{
    struct kv_worker *w = arg;
    char name[16];
    snprintf(name, sizeof(name), "kvik-worker-%u", w->index % 100);
    pthread_setname_np(pthread_self(), name);
    kv_worker_run(w);
    kv_mem_thread_exit();
    return NULL;
}

void kv_engine_run(struct kv_engine *e)
{
    /* Signals go to the calling thread, which is worker 0. */
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    for (uint32_t i = 1; i < e->worker_count; i++)
        if (pthread_create(&e->workers[i]->thread, NULL, worker_thread, e->workers[i]) != 0)
            kv_panic("cannot start worker thread %u", i);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    kv_worker_run(e->workers[0]);
    for (uint32_t i = 1; i < e->worker_count; i++)
        pthread_join(e->workers[i]->thread, NULL);
}

void kv_engine_stop(struct kv_engine *e)
{
    atomic_store(&e->stopping, true);
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_loop_wake(e->workers[i]->loop);
}

bool kv_shutdown_options(const struct kv_slice *argv, int argc, uint32_t *options)
{
    static const char *const names[] = {"save", "nosave", "now", "force", "abort"};
    *options = 0;
    for (int i = 1; i < argc; i++) {
        size_t n = 0;
        while (n < KV_ARRAY_LEN(names) && !kv_slice_is(argv[i], names[n]))
            n++;
        if (n == KV_ARRAY_LEN(names))
            return false;
        *options |= 1u << n;
    }
    if (*options & KV_SHUTDOWN_ABORT && *options != KV_SHUTDOWN_ABORT)
        return false;
    return !(*options & KV_SHUTDOWN_NOSAVE && *options & KV_SHUTDOWN_SAVE);
}

void kv_engine_apply_options(struct kv_engine *e)
{
    const struct kv_options *o = &e->options;
    struct kv_collection_limits limits = {
        .hash_max_listpack_entries = o->hash_max_listpack_entries,
        .hash_max_listpack_value = o->hash_max_listpack_value,
        .set_max_intset_entries = o->set_max_intset_entries,
        .set_max_listpack_entries = o->set_max_listpack_entries,
        .set_max_listpack_value = o->set_max_listpack_value,
        .zset_max_listpack_entries = o->zset_max_listpack_entries,
        .zset_max_listpack_value = o->zset_max_listpack_value,
        .list_max_listpack_size = o->list_max_listpack_size,
    };
    kv_store_set_limits(e->store, &limits);
    atomic_store(&e->latency.threshold_ns, o->latency_monitor_threshold_ms == 0
                                               ? UINT64_MAX
                                               : o->latency_monitor_threshold_ms * 1000000);
    kv_memory_limit_apply(e);
    kv_notify_apply(e);
    if (e->hooks.options != NULL)
        e->hooks.options(e, e->hooks.arg);
}

struct kv_options *kv_engine_options(struct kv_engine *e)
{
    return &e->options;
}

struct kv_store *kv_engine_store(struct kv_engine *e)
{
    return e->store;
}

const struct kv_command_table *kv_engine_commands(struct kv_engine *e)
{
    return e->table;
}

uint32_t kv_engine_worker_count(const struct kv_engine *e)
{
    return e->worker_count;
}

struct kv_worker *kv_engine_worker(struct kv_engine *e, uint32_t index)
{
    KV_ASSERT(index < e->worker_count);
    return e->workers[index];
}

const char *kv_engine_loop_name(const struct kv_engine *e)
{
    return kv_loop_name(e->workers[0]->loop);
}

const struct kv_command *kv_engine_command(const struct kv_engine *e, struct kv_slice name)
{
    return kv_command_index_find(e->index, name);
}

const struct kv_command *kv_engine_command_or_sub(const struct kv_engine *e, struct kv_slice name)
{
    const char *bar = name.len == 0 ? NULL : memchr(name.ptr, '|', name.len);
    if (bar == NULL)
        return kv_engine_command(e, name);
    size_t container_len = (size_t)(bar - name.ptr);
    const struct kv_command *container = kv_engine_command(e, kv_slice(name.ptr, container_len));
    if (container == NULL)
        return NULL;
    return kv_command_sub(container, kv_slice(bar + 1, name.len - container_len - 1));
}

const struct kv_command *kv_engine_command_by_id(const struct kv_engine *e, uint16_t id)
{
    KV_ASSERT(id < e->table->id_count);
    return e->by_id[id];
}

void kv_engine_set_hooks(struct kv_engine *e, const struct kv_engine_hooks *hooks)
{
    e->hooks = *hooks;
}

/* --- statistics --- */

static bool is_maximum(size_t offset)
{
    return offset == offsetof(struct kv_worker_stats, hold_ns_max) ||
           offset == offsetof(struct kv_worker_stats, defrag_slice_ns_max) ||
           offset == offsetof(struct kv_worker_stats, input_buffer_max) ||
           offset == offsetof(struct kv_worker_stats, output_buffer_max);
}

uint64_t kv_engine_stat(const struct kv_engine *e, size_t field_offset)
{
    uint64_t sum = 0;
    KV_ASSERT(field_offset < sizeof(struct kv_worker_stats));
    for (uint32_t i = 0; i < e->worker_count; i++) {
        const char *base = (const char *)&e->workers[i]->stats;
        uint64_t v = kv_stat_read((const kv_stat *)(base + field_offset));
        sum = is_maximum(field_offset) ? KV_MAX(sum, v) : sum + v;
    }
    return sum;
}

uint64_t kv_engine_store_stat(const struct kv_engine *e, size_t field_offset)
{
    uint64_t sum = 0;
    KV_ASSERT(field_offset < sizeof(struct kv_store_stats));
    bool maximum = field_offset == offsetof(struct kv_store_stats, slice_ns_max);
    for (uint32_t i = 0; i < e->worker_count; i++) {
        const char *base = (const char *)&e->workers[i]->store_stats;
        uint64_t v = kv_stat_read((const kv_stat *)(base + field_offset));
        sum = maximum ? KV_MAX(sum, v) : sum + v;
    }
    return sum;
}

void kv_engine_command_stat(const struct kv_engine *e, uint16_t command_id, uint64_t *calls,
                            uint64_t *usec, uint64_t *rejected, uint64_t *failed)
{
    uint64_t ticks = 0;
    *calls = *rejected = *failed = 0;
    KV_ASSERT(command_id < e->table->id_count);
    for (uint32_t i = 0; i < e->worker_count; i++) {
        const struct kv_command_stats *s = &e->workers[i]->command_stats[command_id];
        *calls += kv_stat_read(&s->calls);
        ticks += kv_stat_read(&s->ticks);
        *rejected += kv_stat_read(&s->rejected);
        *failed += kv_stat_read(&s->failed);
    }
    *usec = kv_clock_ticks_to_ns(ticks) / 1000;
}

void kv_engine_each_error(struct kv_engine *e,
                          void (*visit)(void *arg, const char *code, uint64_t count), void *arg)
{
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct kv_worker *w = e->workers[i];
        for (uint32_t j = 0; j < w->error_count; j++) {
            uint64_t sum = 0;
            bool earlier = false;
            for (uint32_t k = 0; k < e->worker_count; k++) {
                struct kv_worker *other = e->workers[k];
                for (uint32_t m = 0; m < other->error_count; m++) {
                    if (strcmp(other->errors[m].code, w->errors[j].code) != 0)
                        continue;
                    sum += kv_stat_read(&other->errors[m].count);
                    earlier |= k < i;
                }
            }
            if (!earlier)
                visit(arg, w->errors[j].code, sum);
        }
    }
}

void kv_engine_reset_stats(struct kv_engine *e)
{
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct kv_worker *w = e->workers[i];
        /* What is so now is no statistic of the past. */
        uint64_t clients = kv_stat_read(&w->stats.clients);
        uint64_t pubsub_clients = kv_stat_read(&w->stats.pubsub_clients);
        w->assigned = 0;
        memset(&w->stats, 0, sizeof(w->stats));
        memset(&w->store_stats, 0, sizeof(w->store_stats));
        kv_worker_clear_command_stats(w);
        w->error_count = 0;
        w->load_busy_ns = 0;
        kv_stat_set(&w->stats.clients, clients);
        kv_stat_set(&w->stats.pubsub_clients, pubsub_clients);
    }
    atomic_store(&e->limit.exceeded_from_us, 0);
    atomic_store(&e->limit.exceeded_us, 0);
    kv_stat_set(&e->defrag.active_ns, 0);
    memset(e->rate_last, 0, sizeof(e->rate_last));
    memset(e->rate_samples, 0, sizeof(e->rate_samples));
}

int64_t kv_engine_uptime_seconds(const struct kv_engine *e)
{
    return (kv_clock_wall_ms() - e->start_wall_ms) / 1000;
}

uint64_t kv_engine_ops_per_second(const struct kv_engine *e)
{
    return kv_stat_read(&e->ops_per_second);
}

void kv_engine_net_rates(const struct kv_engine *e, double *input_kbps, double *output_kbps)
{
    *input_kbps = (double)kv_stat_read(&e->input_rate) / 1024;
    *output_kbps = (double)kv_stat_read(&e->output_rate) / 1024;
}

/* --- clients and pause, behind a world stop --- */

void kv_engine_each_client(struct kv_engine *e, void (*visit)(struct kv_client *c, void *arg),
                           void *arg)
{
    const uint32_t applies = KV_CLIENT_VIRTUAL | KV_CLIENT_APPLY; /* the server's own */
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct kv_worker *w = e->workers[i];
        for (struct kv_client *c = w->clients; c != NULL; c = c->next)
            if ((c->flags & applies) != applies)
                visit(c, arg);
        /* Those handed over are nobody's until their message is read. */
        struct kv_message *m = atomic_load_explicit(&w->inbox.head, memory_order_acquire);
        for (; m != NULL; m = m->next)
            if (m->kind == KV_MSG_MOVED)
                visit(m->pointer, arg);
    }
}

void kv_engine_purge(struct kv_engine *e)
{
    KV_ASSERT(kv_this_worker != NULL);
    for (uint32_t i = 0; i < e->worker_count; i++)
        if (e->workers[i] != kv_this_worker)
            kv_inbox_post(e->workers[i], KV_MSG_PURGE, 0, 0, NULL);
    kv_mem_purge();
}

void kv_engine_pause(struct kv_engine *e, int64_t until_ms, bool all)
{
    /* A second pause never makes the first one shorter or weaker while it lasts. */
    if (kv_engine_paused(e, kv_clock_wall_ms())) {
        until_ms = KV_MAX(e->client_pause_until_ms, until_ms);
        all |= e->client_pause_all;
    }
    e->client_pause_until_ms = until_ms;
    e->client_pause_all = all;
    kv_engine_update_pause(e);
}

void kv_engine_unpause(struct kv_engine *e)
{
    e->client_pause_until_ms = 0;
    e->client_pause_all = false;
    kv_engine_update_pause(e);
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_loop_wake(e->workers[i]->loop);
}

void kv_engine_update_pause(struct kv_engine *e)
{
    e->pause_until_ms = e->errands.held != NULL ? INT64_MAX : e->client_pause_until_ms;
}

void kv_engine_background(struct kv_engine *e, void (*fn)(void *arg), void *arg)
{
    kv_background_submit(e->background, fn, arg);
}

uint64_t kv_engine_background_pending(const struct kv_engine *e)
{
    return kv_background_pending(e->background);
}

uint64_t kv_engine_background_done(const struct kv_engine *e)
{
    return kv_background_done(e->background);
}
