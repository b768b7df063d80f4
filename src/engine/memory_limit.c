/* maxmemory: evicting keys before commands and between rounds.
 *
 * Eviction goes shard by shard, in an order that each worker starts somewhere else: enter the gate,
 * try a shard's lock, make one visit (store/evict.h: a few candidates, a microsecond or so), give
 * the lock back, next shard. A shard that is taken is passed over, so nothing waits. A slice ends
 * after 200 us, when an exclusive command waits at the gate, or when what it may give the change
 * stream is used up; then everything is let go, and the next slice begins if the command may evict
 * for longer.
 *
 * volatile-ttl goes by the lock-free hints of due times: of the next SOONEST_GROUP shards the one
 * with the earliest key is visited. With one worker these are all shards, and the order is exact.
 * The hints also tell the other volatile policies which shards have nothing to offer. So it costs
 * one load a shard and no lock to find out that there is no candidate; for the other policies the
 * bytes of all entries tell. A command is refused on certain knowledge alone, never because a
 * search took too long.
 *
 * Why not by how much: excess is evicted by what each worker sees as freed, not by reading the
 * published figure again, for that changes in steps of 64 KiB. Claims keep workers from evicting
 * the same excess twice within such a step.
 *
 * At the end of a round a worker evicts too, for a slice and then for as long as commands took: so
 * CONFIG SET maxmemory takes effect without commands, and eviction gets at most half of a worker.
 * It leaves alone what may be due to the figure's lag, or every idle worker would evict 64 KiB for
 * each step of a busy one.
 *
 * Rejected: parking writers until eviction is done (reads behind them in the same connection would
 * wait for other connections' excess); evicting under the command's own locks (its shards are few,
 * and victims should come from everywhere).
 *
 * Threads: each worker for itself; struct kv_memory_limit is atomic.
 */
#include "engine/memory_limit.h"
#include "base/clock.h"
#include "engine/worker.h"

#define SLICE_NS 200000
#define CLAIM_BYTES (256 * 1024) /* most that a worker takes on at once */
#define STREAM_BYTES (64 * 1024) /* of key names that a slice may give the change stream */
#define STREAM_KEYS 256
#define SOONEST_GROUP 16u
#define TRIES_MIN 32 /* visits that a slice makes however little time there is */
#define EMPTY_ASK 32 /* empty shards in a row that make it ask whether there is any key */
#define CLAIM_MIN 4096
#define IDLE_MS 100 /* between two searches of a round that found nothing */
#define TENACITY_UNLIMITED 100

enum outcome {
    EVICTED, /* what was wanted, or as much as the slice allowed */
    BUSY,    /* stream, gate or shards were taken */
    NOTHING, /* no shard has a candidate */
};

struct slice {
    struct kv_worker *worker;
    struct kv_view view;
    struct kv_evict_result result;
    struct kv_evict_later later;
    uint64_t want_bytes;
    uint32_t empty; /* shards in a row that had no candidate */
    uint32_t busy;  /* shards that were taken */
};

static const struct kv_evict_rules policy_rules[] = {
    [KV_POLICY_VOLATILE_LRU] = {KV_EVICT_OLDEST, true, 0},
    [KV_POLICY_VOLATILE_LFU] = {KV_EVICT_RAREST, true, 0},
    [KV_POLICY_VOLATILE_RANDOM] = {KV_EVICT_RANDOM, true, 0},
    [KV_POLICY_VOLATILE_TTL] = {KV_EVICT_SOONEST, true, 0},
    [KV_POLICY_ALLKEYS_LRU] = {KV_EVICT_OLDEST, false, 0},
    [KV_POLICY_ALLKEYS_LFU] = {KV_EVICT_RAREST, false, 0},
    [KV_POLICY_ALLKEYS_RANDOM] = {KV_EVICT_RANDOM, false, 0},
    [KV_POLICY_VOLATILE_LRM] = {KV_EVICT_OLDEST, true, 0},
    [KV_POLICY_ALLKEYS_LRM] = {KV_EVICT_OLDEST, false, 0},
};
static_assert(KV_ARRAY_LEN(policy_rules) == KV_POLICY_NOEVICTION, "every other policy evicts");

void kv_memory_limit_init(struct kv_worker *w, uint64_t seed)
{
    kv_evictor_init(&w->limit.evictor, seed);
    w->limit.cursor = (uint32_t)kv_random_below(&w->limit.evictor.random, w->engine->shard_count);
}

void kv_memory_limit_apply(struct kv_engine *e)
{
    const struct kv_options *o = &e->options;
    struct kv_access_rules rules = {.mode = KV_ACCESS_LRU,
                                    .lfu_log_factor = o->lfu_log_factor,
                                    .lfu_decay_minutes = o->lfu_decay_time};
    KV_ASSERT(o->maxmemory_policy <= KV_POLICY_NOEVICTION);
    if (o->maxmemory_policy == KV_POLICY_ALLKEYS_LFU ||
        o->maxmemory_policy == KV_POLICY_VOLATILE_LFU)
        rules.mode = KV_ACCESS_LFU;
    else if (o->maxmemory_policy == KV_POLICY_ALLKEYS_LRM ||
             o->maxmemory_policy == KV_POLICY_VOLATILE_LRM)
        rules.mode = KV_ACCESS_LRM;
    kv_store_set_access(e->store, &rules);
}

/* --- how long the limit has been exceeded, for INFO --- */

static void exceeded_begin(struct kv_engine *e)
{
    uint64_t none = 0;
    if (atomic_load_explicit(&e->limit.exceeded_from_us, memory_order_relaxed) == 0)
        atomic_compare_exchange_strong(&e->limit.exceeded_from_us, &none, kv_clock_mono_us());
}

static void exceeded_end(struct kv_engine *e)
{
    if (KV_LIKELY(atomic_load_explicit(&e->limit.exceeded_from_us, memory_order_relaxed) == 0))
        return;
    uint64_t from = atomic_exchange(&e->limit.exceeded_from_us, 0);
    if (from != 0)
        atomic_fetch_add(&e->limit.exceeded_us, kv_clock_mono_us() - from);
}

void kv_engine_exceeded_times(const struct kv_engine *e, uint64_t *total_ms, uint64_t *current_ms)
{
    uint64_t from = atomic_load(&e->limit.exceeded_from_us);
    uint64_t current = from == 0 ? 0 : kv_clock_mono_us() - from;
    *current_ms = current / 1000;
    *total_ms = (atomic_load(&e->limit.exceeded_us) + current) / 1000;
}

/* --- one slice --- */

static uint32_t step(struct kv_worker *w)
{
    uint32_t shard = w->limit.cursor;
    w->limit.cursor = shard + 1 < w->engine->shard_count ? shard + 1 : 0;
    return shard;
}

/* The shard to visit next, or UINT32_MAX when no shard has a key that may go. */
static uint32_t next_shard(struct kv_worker *w)
{
    const struct kv_engine *e = w->engine;
    const struct kv_evict_rules *rules = &w->limit.evictor.rules;
    if (!rules->volatile_only)
        return step(w);
    uint32_t group = rules->order == KV_EVICT_SOONEST ? SOONEST_GROUP : 1;
    uint32_t best = UINT32_MAX;
    int64_t soonest = INT64_MAX;
    for (uint32_t looked = 1; looked <= e->shard_count; looked++) {
        uint32_t shard = step(w);
        int64_t due = kv_store_next_due_hint(e->store, shard);
        if (due < soonest) {
            soonest = due;
            best = shard;
        }
        if (best != UINT32_MAX && looked % group == 0)
            break;
    }
    return best;
}

static void visit(struct slice *s, uint32_t shard)
{
    struct kv_worker *w = s->worker;
    struct kv_engine *e = w->engine;
    if (e->multi && !kv_shard_try_lock(e, shard)) {
        s->busy++;
        s->empty = 0;
        return;
    }
    kv_store_evict_shard(&s->view, shard, &w->limit.evictor, s->want_bytes - s->result.bytes,
                         e->options.lazyfree_eviction ? &s->later : NULL, &s->result);
    /* What was removed comes before whatever the next holder writes. */
    kv_stream_publish(w);
    if (e->multi)
        kv_shard_unlock(e, shard);
    s->empty = s->result.empty ? s->empty + 1 : 0;
}

static enum outcome visit_shards(struct slice *s, uint64_t end_ticks)
{
    struct kv_worker *w = s->worker;
    struct kv_engine *e = w->engine;
    bool streams = kv_stream_active(&e->stream);
    for (uint32_t tries = 1; s->result.bytes < s->want_bytes; tries++) {
        uint32_t shard = next_shard(w);
        if (shard == UINT32_MAX)
            return NOTHING;
        visit(s, shard);
        if (s->empty == EMPTY_ASK && kv_mem_used(KV_MEM_ENTRY) == 0)
            return NOTHING;
        if (s->empty >= e->shard_count)
            return s->busy == 0 ? NOTHING : BUSY;
        if (s->busy >= e->shard_count)
            return BUSY;
        if (streams && (s->result.keys >= STREAM_KEYS || s->result.key_bytes >= STREAM_BYTES))
            break;
        if (e->multi && atomic_load_explicit(&e->gate.closed, memory_order_relaxed) != 0)
            break;
        if (kv_clock_ticks() >= end_ticks && (s->result.keys > 0 || tries >= TRIES_MIN))
            break;
    }
    return EVICTED;
}

/* Evicts up to `want_bytes` for at most SLICE_NS; *freed_bytes tells how much. */
static enum outcome evict_slice(struct kv_worker *w, uint64_t want_bytes, uint64_t deadline_ticks,
                                uint64_t *freed_bytes)
{
    struct kv_engine *e = w->engine;
    *freed_bytes = 0;
    if (kv_stream_active(&e->stream) && !kv_stream_promise(w, STREAM_BYTES, STREAM_KEYS))
        return BUSY;
    if (e->multi && !kv_gate_enter(w)) {
        kv_stream_settle(w);
        return BUSY;
    }
    struct slice s = {.worker = w, .view = w->call.view, .want_bytes = want_bytes};
    s.view.now_ms = kv_clock_wall_ms();
    s.view.flags = 0;
    s.view.dirty = 0;
    uint64_t start = kv_clock_ticks();
    uint64_t end = KV_MIN(deadline_ticks, start + kv_clock_ns_to_ticks(SLICE_NS));
    enum outcome outcome = visit_shards(&s, end);
    if (e->multi)
        kv_gate_leave(w);
    kv_stream_settle(w);
    for (uint32_t i = 0; i < s.later.count; i++)
        kv_engine_background(e, kv_store_free_evicted, s.later.entries[i]);
    uint64_t ns = kv_clock_ticks_to_ns(kv_clock_ticks() - start);
    kv_stat_add(&w->stats.evict_ns, ns);
    kv_latency_note(&e->latency, KV_LATENCY_EVICTION, ns);
    *freed_bytes = s.result.bytes;
    return s.result.bytes > 0 && outcome == BUSY ? EVICTED : outcome;
}

/* --- until the limit is kept --- */

/* Bytes of the excess that this worker takes on. It does something even when others are evicting
 * all of it, for they may find nothing. */
static int64_t claim(struct kv_engine *e, int64_t excess)
{
    int64_t others = atomic_load(&e->limit.claimed_bytes);
    int64_t own = KV_MAX(excess - others, KV_MIN(excess, (int64_t)CLAIM_MIN));
    own = KV_MIN(own, (int64_t)CLAIM_BYTES);
    atomic_fetch_add(&e->limit.claimed_bytes, own);
    return own;
}

static int64_t excess_bytes(const struct kv_engine *e)
{
    uint64_t limit = e->options.maxmemory;
    if (limit == 0 || limit > INT64_MAX)
        return 0;
    return kv_mem_used_published() - (int64_t)limit;
}

/* Evicts until the limit is kept (EVICTED), the time is over or others hold what is needed (BUSY),
 * or nothing is left to evict. What others have claimed is left to them. */
static enum outcome evict_until(struct kv_worker *w, uint64_t deadline_ticks)
{
    struct kv_engine *e = w->engine;
    struct kv_evict_rules rules = policy_rules[e->options.maxmemory_policy];
    rules.samples = e->options.maxmemory_samples;
    kv_evictor_set_rules(&w->limit.evictor, &rules);
    for (;;) {
        int64_t excess = excess_bytes(e);
        if (excess <= 0)
            return EVICTED;
        int64_t want = claim(e, excess);
        uint64_t freed;
        enum outcome outcome = evict_slice(w, (uint64_t)want, deadline_ticks, &freed);
        kv_mem_publish();
        atomic_fetch_sub(&e->limit.claimed_bytes, want);
        if ((int64_t)freed >= excess)
            return EVICTED;
        if (freed > 0 && want < excess && want <= CLAIM_MIN)
            return BUSY;
        if (outcome == NOTHING)
            return kv_engine_background_pending(e) > 0 ? BUSY : NOTHING;
        if (outcome == BUSY || kv_clock_ticks() >= deadline_ticks)
            return BUSY;
    }
}

static bool evicts(const struct kv_engine *e)
{
    return e->options.maxmemory_policy != KV_POLICY_NOEVICTION;
}

/* As documented: linear up to 10 (500 us), then 15 % more with every step, 100 without end. */
static uint64_t tenacity_ticks(uint32_t tenacity)
{
    if (tenacity >= TENACITY_UNLIMITED)
        return UINT64_MAX / 2;
    double us = 50.0 * KV_MIN(tenacity, 10u);
    for (uint32_t step = 10; step < tenacity; step++)
        us *= 1.15;
    return kv_clock_ns_to_ticks((uint64_t)(us * 1000));
}

bool kv_memory_admit(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    /* What the command before needed in the arena is free by now, but counted. */
    kv_mem_publish();
    if (excess_bytes(e) <= 0)
        return true;
    if (kv_engine_paused(e, kv_clock_wall_ms()))
        return true;
    enum outcome outcome = NOTHING;
    if (evicts(e))
        outcome = evict_until(w, kv_clock_ticks() + tenacity_ticks(e->options.maxmemory_tenacity));
    if (outcome == EVICTED)
        exceeded_end(e);
    else
        exceeded_begin(e);
    return outcome != NOTHING;
}

void kv_memory_round(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    /* The last command's memory must not count while the worker waits for the next one. */
    kv_arena_reset(&w->arena);
    kv_mem_publish();
    int64_t excess = excess_bytes(e);
    if (KV_LIKELY(excess <= (int64_t)e->worker_count * KV_MEM_PUBLISH_BYTES)) {
        w->limit.more = false;
        if (excess <= 0)
            exceeded_end(e);
        return;
    }
    uint64_t start = kv_clock_ticks();
    if (start < w->limit.resume_ticks || !evicts(e) || kv_engine_paused(e, kv_clock_wall_ms()) ||
        kv_engine_loading(e))
        return;
    enum outcome outcome = evict_until(w, start + kv_clock_ns_to_ticks(SLICE_NS));
    uint64_t now = kv_clock_ticks();
    w->limit.more = outcome == BUSY;
    w->limit.resume_ticks = now + (now - start);
    if (outcome == EVICTED)
        exceeded_end(e);
    else
        exceeded_begin(e);
    if (outcome == NOTHING)
        w->limit.resume_ticks = now + kv_clock_ns_to_ticks((uint64_t)IDLE_MS * 1000000);
}
