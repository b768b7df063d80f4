/* Periodic work of a worker: expiry of its home shards, idle connections, load and its balance.
 *
 * Expiry. A shard's home is worker (shard modulo workers). A tick every 10 ms reads the lock-free
 * hints of the home shards; a shard with something due is locked (never waited for) and worked on
 * for at most 200 us. While more is due, the loop does not sleep, and a new slice starts only when
 * as much time has passed outside of slices as the last one took: so expiry gets at most half of a
 * worker, and connections are served between slices.
 *
 * Balance. Once a second a worker that was busy more than half of the time and twice as much as the
 * idlest one hands over some of its connections, at a command boundary.
 */
#include "base/clock.h"
#include "base/log.h"
#include "engine/worker.h"

#define EXPIRE_TICK_MS 10
#define EXPIRE_BUSY_MS 1                /* next look at a shard that was taken */
#define EXPIRE_STREAM_BYTES (64 * 1024) /* of key names that a slice may give the change stream */
#define EXPIRE_STREAM_COMMANDS 256
#define IDLE_CHECK_SHARE 10 /* a tenth of the clients is looked at per tick */
#define BALANCE_MS 1000
#define MOVE_MAX 16 /* connections handed over at once */
#define TRIM_MS 100 /* between two looks at what the thread's cache of memory does not use */

bool kv_try_home_shard(struct kv_worker *w, uint32_t shard)
{
    struct kv_engine *e = w->engine;
    if (!e->multi)
        return true;
    if (!kv_gate_enter(w))
        return false;
    kv_lockset_clear(&w->locks);
    kv_lockset_add(&w->locks, shard);
    if (kv_lockset_try(e, &w->locks))
        return true;
    kv_gate_leave(w);
    return false;
}

/* One slice on one shard; true when the shard has more. *busy: no room in the change stream, the
 * shard or the gate is taken; nothing was done. */
static bool expire_slice(struct kv_worker *w, uint32_t shard, bool *busy)
{
    struct kv_engine *e = w->engine;
    *busy = kv_stream_active(&e->stream) &&
            !kv_stream_promise(w, EXPIRE_STREAM_BYTES, EXPIRE_STREAM_COMMANDS);
    if (*busy)
        return false;
    if (!kv_try_home_shard(w, shard)) {
        kv_stream_settle(w);
        *busy = true;
        return false;
    }
    struct kv_view view = w->call.view;
    view.now_ms = kv_clock_wall_ms();
    view.flags = 0;
    view.dirty = 0;
    uint64_t start = kv_clock_ticks();
    w->hold_start = start;
    bool more;
    uint64_t removed = kv_store_expire_shard(
        &view, shard, start + kv_clock_ns_to_ticks(KV_EXPIRE_SLICE_NS), &more);
    w->now_ticks = kv_clock_ticks();
    kv_release(w, KV_HOLD_SHARDS);
    uint64_t slice_ns = kv_clock_ticks_to_ns(w->now_ticks - start);
    kv_stat_add(&w->stats.expire_ns, slice_ns);
    kv_latency_note(&w->engine->latency, KV_LATENCY_EXPIRE, slice_ns);
    if (removed > 0)
        kv_stat_max(&w->store_stats.slice_ns_max, slice_ns);
    return more;
}

void kv_worker_expire(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    uint64_t start = kv_clock_ticks();
    w->expire_ms = (int64_t)(kv_clock_mono_ns() / 1000000) + EXPIRE_TICK_MS;
    int64_t now_ms = kv_clock_wall_ms();
    if (!e->options.active_expire || kv_engine_paused(e, now_ms) || kv_engine_loading(e)) {
        w->expire_more = false;
        return;
    }
    if (w->expire_more && start < w->expire_resume_ticks)
        return;
    w->expire_more = false;
    uint32_t homes = (e->shard_count - w->index + e->worker_count - 1) / e->worker_count;
    for (uint32_t i = 0; i < homes; i++) {
        uint32_t shard = w->index + (w->expire_cursor + i) % homes * e->worker_count;
        if (kv_store_next_due_hint(e->store, shard) > now_ms)
            continue;
        bool busy;
        bool more = expire_slice(w, shard, &busy);
        if (busy) {
            /* Soon again, but a long exclusive command or a slow reader must not make us spin. */
            w->expire_ms = (int64_t)(kv_clock_mono_ns() / 1000000) + EXPIRE_BUSY_MS;
            continue;
        }
        uint64_t now = kv_clock_ticks();
        if (more || now - start > kv_clock_ns_to_ticks(KV_EXPIRE_SLICE_NS)) {
            w->expire_cursor = (w->expire_cursor + i + (more ? 0 : 1)) % homes;
            w->expire_more = true;
            w->expire_resume_ticks = now + (now - start);
            return;
        }
    }
}

int kv_worker_timeout_ms(struct kv_worker *w, int64_t mono_ms)
{
    struct kv_engine *e = w->engine;
    if (w->expire_more || w->limit.more || w->resume_first != NULL)
        return 0;
    if (w->orphan_len > 0 || w->blocking.leaving != NULL)
        return 1;
    int64_t wait = KV_MIN(w->cron_ms, kv_blocking_next_ms(w)) - mono_ms;
    int64_t now_ms = w->round_ms;
    int64_t due = INT64_MAX;
    for (uint32_t s = w->index; s < e->shard_count; s += e->worker_count)
        due = KV_MIN(due, kv_store_next_due_hint(e->store, s));
    if (due != INT64_MAX && e->options.active_expire)
        wait = KV_MIN(wait, KV_MAX(due - now_ms, w->expire_ms - mono_ms));
    if (w->snapshot.walking)
        wait = KV_MIN(wait, (int64_t)kv_snapshot_wait_ms(w));
    if (KV_UNLIKELY(w->commit.next_ms != INT64_MAX))
        wait = KV_MIN(wait, w->commit.next_ms - mono_ms);
    if (kv_defrag_pending(w))
        wait = KV_MIN(wait, (int64_t)kv_defrag_wait_ms(w));
    if (w->paused.first != NULL && w->client_paused)
        wait = KV_MIN(wait, KV_MAX(e->client_pause_until_ms - now_ms, (int64_t)1));
    return (int)KV_MAX(wait, (int64_t)0);
}

/* Closes connections that are idle for longer than `timeout`; looks at a share of them per tick. */
static void check_clients(struct kv_worker *w)
{
    const struct kv_options *o = &w->engine->options;
    /* Those whom we keep waiting are not idle. */
    const uint32_t never_idle = KV_CLIENT_VIRTUAL | KV_CLIENT_CLOSE_NOW | KV_CLIENT_PARKED |
                                KV_CLIENT_PAUSED | KV_CLIENT_RESUMING | KV_CLIENT_BLOCKED;
    uint32_t n = w->client_count / IDLE_CHECK_SHARE + 1;
    struct kv_client *c = w->timeout_cursor != NULL ? w->timeout_cursor : w->clients;
    while (c != NULL && n-- > 0) {
        struct kv_client *next = c->next;
        if (c->soft_since_ms != 0)
            kv_client_check_limits(c);
        if (o->timeout_seconds > 0 && !(c->flags & never_idle) && c->subscriber == NULL &&
            w->round_ms - c->active_ms > (int64_t)o->timeout_seconds * 1000) {
            kv_log(KV_LOG_VERBOSE, "Closing idle client");
            kv_stat_add(&w->stats.timeouts, 1);
            kv_client_close_soon(c);
        }
        c = next;
    }
    w->timeout_cursor = c;
}

static bool movable(const struct kv_client *c)
{
    const uint32_t stay = KV_CLIENT_BLOCKED | KV_CLIENT_PARKED | KV_CLIENT_PAUSED |
                          KV_CLIENT_RESUMING | KV_CLIENT_CLOSE_NOW | KV_CLIENT_CLOSE_AFTER |
                          KV_CLIENT_VIRTUAL | KV_CLIENT_WRITE_WAIT | KV_CLIENT_QUEUED_CLOSE |
                          KV_CLIENT_READ_OFF | KV_CLIENT_MONITOR;
    return !(c->flags & stay) && c->park == KV_PARK_NONE && c->partial == NULL &&
           kv_out_pending(&c->out) == 0 && c->held == KV_OUTPUT_FREE && c->subscriber == NULL &&
           c->tracking == NULL;
}

static void balance(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    struct kv_worker *idlest = NULL;
    uint64_t own = kv_stat_read(&w->load_permille), least = UINT64_MAX;
    for (uint32_t i = 0; i < e->worker_count; i++) {
        uint64_t load = kv_stat_read(&e->workers[i]->load_permille);
        if (e->workers[i] != w && load < least) {
            least = load;
            idlest = e->workers[i];
        }
    }
    if (idlest == NULL || own < 500 || own < 2 * least + 100 || w->client_count < 2)
        return;
    /* Half of the difference, in connections that were active within the last second. */
    uint32_t want = (uint32_t)(w->client_count * (own - least) / (2 * own));
    want = KV_MIN(KV_MAX(want, 1u), KV_MIN((uint32_t)MOVE_MAX, w->client_count - 1));
    struct kv_client *next;
    for (struct kv_client *c = w->clients; c != NULL && want > 0; c = next) {
        next = c->next;
        if (!movable(c) || w->round_ms - c->active_ms > BALANCE_MS)
            continue;
        kv_client_move(c, idlest);
        want--;
    }
}

static void measure_load(struct kv_worker *w, int64_t mono_ms)
{
    uint64_t busy = kv_stat_read(&w->stats.busy_ns);
    uint64_t elapsed_ms = (uint64_t)(mono_ms - w->load_ms);
    uint64_t permille = (busy - w->load_busy_ns) / 1000 / elapsed_ms;
    kv_stat_set(&w->load_permille, KV_MIN(permille, (uint64_t)1000));
    w->load_busy_ns = busy;
    w->load_ms = mono_ms;
    if (w->engine->multi)
        balance(w);
}

/* Rates for INFO: differences over about 1.6 seconds, sampled by worker 0. */
static void sample_rates(struct kv_engine *e, int64_t mono_ms)
{
    if (mono_ms - e->rate_last_ms < 100)
        return;
    uint64_t now[3] = {
        kv_engine_stat(e, offsetof(struct kv_worker_stats, commands)),
        kv_engine_stat(e, offsetof(struct kv_worker_stats, net_input_bytes)),
        kv_engine_stat(e, offsetof(struct kv_worker_stats, net_output_bytes)),
    };
    uint64_t elapsed = (uint64_t)(mono_ms - e->rate_last_ms);
    uint64_t sums[3] = {0};
    for (int i = 0; i < 3; i++) {
        uint64_t delta = now[i] >= e->rate_last[i] ? now[i] - e->rate_last[i] : 0;
        e->rate_samples[e->rate_next][i] = delta * 1000 / elapsed;
        e->rate_last[i] = now[i];
        for (int j = 0; j < 16; j++)
            sums[i] += e->rate_samples[j][i];
    }
    e->rate_next = (e->rate_next + 1) % 16;
    e->rate_last_ms = mono_ms;
    kv_stat_set(&e->ops_per_second, sums[0] / 16);
    kv_stat_set(&e->input_rate, sums[1] / 16);
    kv_stat_set(&e->output_rate, sums[2] / 16);
}

void kv_worker_cron(struct kv_worker *w, int64_t mono_ms)
{
    struct kv_engine *e = w->engine;
    uint32_t hz = KV_MAX(e->options.hz, 1u);
    w->cron_ms = mono_ms + 1000 / hz;
    check_clients(w);
    KV_DEBUG_ONLY(kv_client_limit_check(w));
    if (mono_ms >= w->trim_ms) {
        w->trim_ms = mono_ms + TRIM_MS;
        kv_mem_trim();
    }
    kv_tracking_cron(w);
    if (w->load_ms == 0)
        w->load_ms = mono_ms;
    else if (mono_ms - w->load_ms >= BALANCE_MS)
        measure_load(w, mono_ms);
    if (w->index == 0) {
        sample_rates(e, mono_ms);
        kv_defrag_cron(e, mono_ms);
        if (KV_UNLIKELY(e->listeners_rest))
            kv_listen_again(e);
        if (e->hooks.cron != NULL)
            e->hooks.cron(e, e->hooks.arg);
    }
}
