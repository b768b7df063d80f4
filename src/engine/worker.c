/* A worker: one thread with its loop, clients, memory for commands and counters.
 *
 * A round: close what is to be closed, wait for events, stop point, drain the inbox, run what was
 * parked and may go on, handle events, drain the inbox again, periodic work. Between two rounds,
 * and while it waits, a worker touches nothing of its clients: that is the loop boundary at which
 * the world can be stopped.
 */
#include "engine/worker.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/hotkeys.h"
#include "engine/monitor.h"
#include "engine/transaction.h"
#include "net/socket.h"
#include <stdio.h>
#include <unistd.h>

#define CLOCK_GAP_NS 20000 /* ticks and wall time may lie so far apart */

_Thread_local struct kv_worker *kv_this_worker;

static enum kv_loop_backend loop_backend(const struct kv_options *o)
{
    return o->io_backend == KV_BACKEND_IO_URING ? KV_LOOP_IO_URING
           : o->io_backend == KV_BACKEND_EPOLL  ? KV_LOOP_EPOLL
                                                : KV_LOOP_AUTO;
}

struct kv_worker *kv_worker_create(struct kv_engine *e, uint32_t index)
{
    struct kv_worker *w = kv_mem_alloc_aligned(sizeof(*w), KV_CACHE_LINE, KV_MEM_OTHER);
    memset(w, 0, sizeof(*w));
    w->engine = e;
    w->index = index;
    w->loop = kv_loop_create(loop_backend(&e->options));
    atomic_store(&w->waiting, 1);
    atomic_store(&w->stream_pending, UINT64_MAX);
    kv_lockset_init(&w->locks, e->shard_count);
    kv_arena_init(&w->arena, 32 * 1024, KV_MEM_ARENA);
    kv_arena_init(&w->script_arena, 32 * 1024, KV_MEM_ARENA);
    kv_chunk_pool_init(&w->chunks);
    kv_out_init(&w->held, &w->chunks);
    kv_pubsub_init_table(&w->subscriptions);
    w->input = kv_mem_alloc(KV_INPUT_BYTES, KV_MEM_ARENA);
    uint64_t seed;
    kv_random_secure(&seed, sizeof(seed));
    kv_random_init(&w->random, seed);
    kv_memory_limit_init(w, kv_random_next(&w->random));
    kv_commit_init(w);
    w->command_stats = kv_mem_zalloc(e->table->id_count * sizeof(*w->command_stats), KV_MEM_CONFIG);
    w->hold_ticks = kv_clock_ns_to_ticks(KV_HOLD_NS);
    w->late_ticks = w->request_limit = w->reply_limit = UINT64_MAX;
    w->call.engine = e;
    w->call.worker = w;
    w->call.view.store = e->store;
    w->call.view.stats = &w->store_stats;
    w->call.view.owner = w;
    return w;
}

void kv_worker_clear(struct kv_worker *w)
{
    struct kv_worker *before = kv_this_worker;
    kv_this_worker = w;
    kv_worker_drain(w);
    while (w->clients != NULL)
        kv_client_free(w->clients);
    kv_delivery_drain(w);
    KV_ASSERT(w->subscriptions.count == 0);
    kv_worker_release_orphans(w);
    KV_ASSERT(w->orphan_len == 0);
    kv_blocking_release(w);
    kv_errand_clear(w);
    kv_alone_release(w);
    kv_this_worker = before;
}

void kv_worker_clear_command_stats(struct kv_worker *w)
{
    uint32_t count = w->engine->table->id_count;
    for (uint32_t i = 0; i < count; i++)
        kv_latency_free(&w->command_stats[i].latency);
    memset(w->command_stats, 0, count * sizeof(*w->command_stats));
}

void kv_worker_destroy(struct kv_worker *w)
{
    kv_worker_clear(w);
    kv_mem_free(w->stream.bytes, w->stream.capacity, KV_MEM_STREAM);
    kv_worker_clear_command_stats(w);
    kv_mem_free(w->command_stats, w->engine->table->id_count * sizeof(*w->command_stats),
                KV_MEM_CONFIG);
    kv_mem_free(w->input, KV_INPUT_BYTES, KV_MEM_ARENA);
    kv_out_release(&w->held);
    kv_table_release(&w->subscriptions);
    kv_chunk_pool_release(&w->chunks);
    kv_arena_release(&w->arena);
    kv_arena_release(&w->script_arena);
    kv_loop_destroy(w->loop);
    if (kv_this_worker == w)
        kv_this_worker = NULL;
    kv_mem_free_aligned(w, sizeof(*w), KV_CACHE_LINE, KV_MEM_OTHER);
}

/* --- connections --- */

static KV_COLD void refuse_connection(struct kv_worker *w, int fd, const char *text)
{
    (void)!write(fd, text, strlen(text));
    close(fd);
    kv_stat_add(&w->stats.rejected_connections, 1);
}

void kv_worker_accept(struct kv_worker *w, int fd, bool is_unix)
{
    struct kv_engine *e = w->engine;
    if (atomic_fetch_add(&e->client_total, 1) >= e->options.maxclients) {
        atomic_fetch_sub(&e->client_total, 1);
        refuse_connection(w, fd, "-ERR max number of clients reached\r\n");
        return;
    }
    if (e->options.protected_mode && kv_acl_open(e) && !is_unix &&
        !kv_socket_peer_is_loopback(fd)) {
        atomic_fetch_sub(&e->client_total, 1);
        refuse_connection(w, fd,
                          "-DENIED Kvik runs in protected mode: it has no password, so it accepts "
                          "connections from this machine only. Set a password with requirepass, or "
                          "switch protected-mode off in the configuration or with CONFIG SET from "
                          "this machine, if the network is trusted.\r\n");
        return;
    }
    if (!is_unix)
        kv_socket_tune(fd, e->options.tcp_keepalive_seconds);
    struct kv_client *c = kv_client_create(w, fd, is_unix);
    kv_stat_add(&w->stats.connections, 1);
    (void)kv_client_interest(c, true, false);
}

static void take_moved(struct kv_worker *w, struct kv_client *c)
{
    kv_client_link(w, c);
    c->io.interest = 0;
    if (c->flags & KV_CLIENT_CLOSE_NOW)
        kv_client_close_soon(c); /* ended on its way, when it was in no list */
    else
        (void)kv_client_interest(c, true, false);
}

/* --- resuming --- */

void kv_worker_resume(struct kv_worker *w, struct kv_client *c)
{
    c->flags &= ~(uint32_t)(KV_CLIENT_PARKED | KV_CLIENT_PAUSED);
    if (c->flags & KV_CLIENT_RESUMING)
        return;
    c->flags |= KV_CLIENT_RESUMING;
    c->resume_next = NULL;
    if (w->resume_last != NULL)
        w->resume_last->resume_next = c;
    else
        w->resume_first = c;
    w->resume_last = c;
}

static void resume_shard(struct kv_worker *w, uint32_t shard)
{
    struct kv_client *next;
    for (struct kv_client *c = w->shard_waiters; c != NULL; c = next) {
        next = c->park_next;
        if (c->park_shard != shard || atomic_load_explicit(&c->park_listed, memory_order_acquire))
            continue;
        if (c->park_prev != NULL)
            c->park_prev->park_next = c->park_next;
        else
            w->shard_waiters = c->park_next;
        if (c->park_next != NULL)
            c->park_next->park_prev = c->park_prev;
        c->park_next = c->park_prev = NULL;
        c->park = KV_PARK_NONE;
        kv_worker_resume(w, c);
    }
}

static void resume_list(struct kv_worker *w, struct kv_waitlist *list)
{
    for (struct kv_client *c; (c = kv_waitlist_take(list)) != NULL;) {
        c->park = KV_PARK_NONE;
        kv_worker_resume(w, c);
    }
}

/* Those that CLIENT PAUSE or held keys keep waiting look again when either is over. */
static void resume_paused(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    bool over = w->client_paused && !kv_engine_paused(e, w->now_ms);
    if (!over && w->held_epoch == e->errands.held_epoch && kv_engine_holds_up(e, w->now_ms))
        return;
    w->client_paused = false;
    w->held_epoch = e->errands.held_epoch;
    resume_list(w, &w->paused);
}

/* Runs those that were to be resumed; what they cause (parking again) waits for the next round. */
static void run_resumed(struct kv_worker *w)
{
    struct kv_client *last = w->resume_last;
    while (w->resume_first != NULL) {
        struct kv_client *c = w->resume_first;
        w->resume_first = c->resume_next;
        if (w->resume_first == NULL)
            w->resume_last = NULL;
        c->resume_next = NULL;
        c->flags &= ~(uint32_t)KV_CLIENT_RESUMING;
        if (!(c->flags & KV_CLIENT_CLOSE_NOW))
            kv_client_process(c);
        if (c == last)
            break;
    }
}

static void handle_message(struct kv_worker *w, const struct kv_message *m)
{
    switch (m->kind) {
    case KV_MSG_SHARD_FREE:
        resume_shard(w, m->number);
        break;
    case KV_MSG_GATE_OPEN:
        kv_gate_on_open(w);
        break;
    case KV_MSG_GATE_RECHECK:
        kv_gate_on_recheck(w);
        break;
    case KV_MSG_STREAM_SPACE:
        resume_list(w, &w->stream_waiters);
        break;
    case KV_MSG_ACCEPTED:
        kv_worker_accept(w, (int)m->number, m->number2 != 0);
        break;
    case KV_MSG_MOVED:
        take_moved(w, m->pointer);
        break;
    case KV_MSG_SERVED:
        kv_blocking_on_served(w, m->pointer);
        break;
    case KV_MSG_RETRY:
        kv_blocking_on_retry(w, m->pointer);
        break;
    case KV_MSG_UNBLOCKED:
        kv_blocking_on_unblocked(w, m->pointer);
        break;
    case KV_MSG_SNAPSHOT_WALK:
        kv_snapshot_on_start(w, m->number);
        break;
    case KV_MSG_SNAPSHOT_FLUSH:
        kv_snapshot_on_flush(w, m->number);
        break;
    case KV_MSG_ALONE:
        kv_alone_on_message(w, m->pointer);
        break;
    case KV_MSG_ERRAND:
        kv_errand_on_back(w, m->pointer);
        break;
    case KV_MSG_PURGE:
        kv_mem_purge();
        break;
    case KV_MSG_DURABLE:
        kv_commit_on_durable(w);
        break;
    case KV_MSG_LOG_FAILED:
        kv_commit_on_failed(w);
        break;
    case KV_MSG_SCRIPT_BUSY:
        kv_script_on_busy(w);
        break;
    }
}

void kv_worker_drain(struct kv_worker *w)
{
    if (w->draining)
        return;
    w->draining = true;
    kv_delivery_settle(w);
    struct kv_message *m;
    while ((m = kv_inbox_take(&w->inbox)) != NULL) {
        while (m != NULL) {
            struct kv_message *next = m->next;
            handle_message(w, m);
            kv_inbox_free(m);
            m = next;
        }
    }
    w->draining = false;
}

/* --- the round --- */

static void close_queued(struct kv_worker *w)
{
    while (w->close_list != NULL) {
        struct kv_client *c = w->close_list;
        w->close_list = c->close_next;
        c->flags &= ~(uint32_t)KV_CLIENT_QUEUED_CLOSE;
        kv_client_free(c);
    }
}

/* Ticks and wall time of one moment. A thread that lost the processor between the two readings
 * reads again: all times of its round would be off by that gap. */
static void read_clock(struct kv_worker *w)
{
    uint64_t most = kv_clock_ns_to_ticks(CLOCK_GAP_NS);
    for (int tries = 0; tries < 5; tries++) {
        w->round_start_ticks = kv_clock_ticks();
        w->round_us = kv_clock_wall_us();
        if (KV_LIKELY(kv_clock_ticks() - w->round_start_ticks < most))
            return;
    }
}

/* From where on a log of commands wants to know. */
static uint64_t log_limit(const struct kv_engine *e, enum kv_command_log_kind kind)
{
    const struct kv_command_log_options *o = &e->options.command_log[kind];
    return o->limit < 0 || o->max_len == 0 ? UINT64_MAX : (uint64_t)o->limit;
}

/* What the options say of remarkable commands, in the form that commands are compared with. */
void kv_worker_take_limits(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    uint64_t slow_us = log_limit(e, KV_COMMAND_LOG_SLOW);
    uint64_t late_ns = slow_us > UINT64_MAX / 1000 ? UINT64_MAX : slow_us * 1000;
    late_ns = KV_MIN(late_ns, atomic_load_explicit(&e->latency.threshold_ns, memory_order_relaxed));
    w->late_ticks = late_ns == UINT64_MAX ? UINT64_MAX : kv_clock_ns_to_ticks(late_ns);
    if (KV_UNLIKELY(kv_monitor_active(w)))
        w->late_ticks = 0;
    w->request_limit = log_limit(e, KV_COMMAND_LOG_REQUEST);
    w->reply_limit = log_limit(e, KV_COMMAND_LOG_REPLY);
    w->latency_tracking = e->options.latency_tracking;
    if (KV_UNLIKELY(w->hotkeys != NULL) && kv_hotkeys_look(w))
        w->late_ticks = w->reply_limit = 0;
}

/* What has come, and then those that may go on because of it. */
static void handle_messages(struct kv_worker *w)
{
    kv_worker_drain(w);
    if (KV_UNLIKELY(w->paused.first != NULL))
        resume_paused(w);
    uint32_t phases = w->gate_phases;
    if (KV_UNLIKELY(w->resume_first != NULL))
        run_resumed(w);
    if (KV_UNLIKELY(phases > 0))
        kv_gate_phases_done(w, phases);
}

void kv_worker_round(struct kv_worker *w, int timeout_ms)
{
    struct kv_engine *e = w->engine;
    close_queued(w);
    if (w->resume_first != NULL || w->gate_phases > 0 || w->client_limit.more || w->load_more ||
        !kv_inbox_empty(&w->inbox) || kv_delivery_pending(w))
        timeout_ms = 0;

    uint64_t before = kv_clock_ticks();
    kv_stat_add(&w->stats.busy_ns, kv_clock_ticks_to_ns(before - w->round_start_ticks));
    atomic_store(&w->waiting, 1);
    kv_loop_wait(w->loop, timeout_ms);
    atomic_store(&w->waiting, 0);
    kv_world_stop_point(w);
    read_clock(w);
    w->round_ms = w->now_ms = w->round_us / 1000;
    kv_stat_add(&w->stats.loops, 1);
    kv_worker_take_limits(w);
    handle_messages(w);
    kv_loop_run(w->loop);
    /* What these events have caused: who waited for a key of theirs is answered without another
     * look at the sockets. Once, so that nobody keeps the others from being looked at. */
    if (KV_UNLIKELY(!kv_inbox_empty(&w->inbox) || w->resume_first != NULL))
        handle_messages(w);
    if (KV_UNLIKELY(kv_engine_loading(e)))
        kv_worker_load(w);
    if (KV_UNLIKELY(kv_delivery_due(w)))
        kv_delivery_round(w);
    w->mono_ms = (int64_t)(kv_clock_mono_ns() / 1000000);
    if (w->mono_ms >= w->cron_ms)
        kv_worker_cron(w, w->mono_ms);
    if (w->expire_more || w->mono_ms >= w->expire_ms)
        kv_worker_expire(w);
    if (kv_defrag_pending(w))
        kv_worker_defrag(w);
    if (KV_UNLIKELY(w->snapshot.walking))
        kv_worker_snapshot(w);
    if (KV_UNLIKELY(w->orphan_len > 0))
        kv_worker_release_orphans(w);
    if (KV_UNLIKELY(kv_blocking_next_ms(w) <= w->mono_ms))
        kv_blocking_round(w);
    if (KV_UNLIKELY(kv_delivery_due(w))) /* what expired, or was served */
        kv_delivery_round(w);
    kv_client_limit_round(w);
    kv_memory_round(w);
    kv_commit_round(w);
}

void kv_worker_run(struct kv_worker *w)
{
    char name[16];
    snprintf(name, sizeof(name), "worker-%u", w->index);
    kv_mem_thread_name(name);
    kv_worker_attach(w);
    while (!atomic_load_explicit(&w->engine->stopping, memory_order_relaxed))
        kv_worker_round(w, kv_worker_timeout_ms(w, w->mono_ms));
    kv_worker_detach(w);
}

void kv_worker_attach(struct kv_worker *w)
{
    kv_this_worker = w;
    read_clock(w);
    atomic_store(&w->waiting, 0);
    /* Somebody may have stopped the world while this worker did not run yet. */
    kv_world_stop_point(w);
}

/* From here on the thread touches nothing: an exclusive command need not wait for it. */
void kv_worker_detach(struct kv_worker *w)
{
    close_queued(w);
    kv_loop_detach(w->loop);
    atomic_store(&w->waiting, 1);
    kv_this_worker = NULL;
}

void kv_worker_poll(struct kv_worker *w, int timeout_ms)
{
    KV_ASSERT(kv_this_worker == w);
    kv_worker_round(w, timeout_ms);
}

struct kv_client *kv_client_create_virtual(struct kv_worker *w)
{
    atomic_fetch_add(&w->engine->client_total, 1);
    return kv_client_create(w, -1, false);
}

void kv_client_destroy(struct kv_client *c)
{
    KV_ASSERT(c->flags & KV_CLIENT_VIRTUAL);
    kv_client_free(c);
}
