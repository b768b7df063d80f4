/* activedefrag: emptying thin slabs while serving.
 *
 * Once a second worker 0 compares resident memory with blocks in use. When the difference passes
 * active-defrag-threshold-lower (percent of the bytes in use) and active-defrag-ignore-bytes, it
 * lets the memory layer choose slabs that are worth emptying and begins an epoch: one atomic number
 * that every worker compares with the last one it has finished, once a round. A worker walks its
 * home shards (shard modulo workers) from begin to end, moves what lies in chosen slabs
 * (store/defrag.c), and notes the epoch as done. When all have, worker 0 ends the evacuation.
 *
 * Time. A slice takes at most SLICE_NS, and SLICE_BUSY_NS while commands arrive, so that a request
 * that comes during one waits for a time that its client does not notice. Between slices passes as
 * much time as makes their share active-defrag-cycle-min to -max percent, in proportion to the
 * waste between the two thresholds. Within an epoch the share only grows: what was moved gives
 * nothing back before the rest of its slab has moved too, so half an evacuation is wasted time. A
 * worker that wakes up late (its loop waits whole milliseconds) makes up for at most CREDIT_NS.
 *
 * Locks. As for expiry: the gate is entered and a shard's lock tried, never waited for. A closed
 * gate or a taken shard is tried again after BUSY_NS.
 *
 * Stopping. With CONFIG SET activedefrag no the next slice of each worker does not begin; each
 * marks the epoch as done at its next round, and worker 0 ends the evacuation after that. So nobody
 * asks kv_mem_evacuates after the end.
 *
 * Not helping. Where an evacuation gives back less than half of what it promised (other threads'
 * caches or blocks that cannot move keep the slabs), the pause before the next one doubles, up to
 * PAUSE_MAX_MS.
 *
 * A paused server (CLIENT PAUSE) defragments: nothing that a client could see changes.
 *
 * Rejected: a thread of its own (it would take shard locks while commands wait and lose the
 * processor holding them); walking whole shards under one lock; asking for an epoch by message (a
 * number that is compared costs one load a round and cannot be lost).
 */
#include "engine/defrag.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/worker.h"

#define SLICE_NS 200000
#define SLICE_BUSY_NS 40000
#define BUSY_NS 100000
#define CREDIT_NS 1000000
#define LOOK_MS 1000
#define PAUSE_MIN_MS 2000 /* empty slabs give their pages back within two seconds */
#define PAUSE_MAX_MS 60000

static_assert(SLICE_NS <= KV_EXPIRE_SLICE_NS, "no slice is longer than the design allows");

/* --- worker 0: when --- */

uint32_t kv_defrag_effort(const struct kv_options *o, uint64_t used_bytes, uint64_t waste_bytes)
{
    uint64_t percent = waste_bytes * 100 / KV_MAX(used_bytes, (uint64_t)1);
    uint32_t lower = o->defrag_threshold_lower, upper = o->defrag_threshold_upper;
    uint32_t least = KV_MIN(o->defrag_cycle_min, o->defrag_cycle_max);
    if (waste_bytes < o->defrag_ignore_bytes || percent < lower)
        return 0;
    if (percent >= upper)
        return o->defrag_cycle_max;
    return least + (uint32_t)((o->defrag_cycle_max - least) * (percent - lower) / (upper - lower));
}

static uint64_t read_waste(uint64_t *used_bytes)
{
    struct kv_mem_report report;
    kv_mem_report_read(&report);
    uint64_t needed = (uint64_t)KV_MAX(report.used_total, (int64_t)0);
    *used_bytes = needed;
    needed += report.image_bytes;
    return report.rss_bytes > needed ? report.rss_bytes - needed : 0;
}

static bool all_done(struct kv_engine *e)
{
    unsigned epoch = atomic_load_explicit(&e->defrag.epoch, memory_order_relaxed);
    for (uint32_t i = 0; i < e->worker_count; i++) {
        if (atomic_load_explicit(&e->workers[i]->defrag.done, memory_order_acquire) != epoch)
            return false;
    }
    return true;
}

static void begin(struct kv_defrag *d, uint32_t effort, uint64_t waste_bytes)
{
    uint64_t wanted = kv_mem_evacuation_begin();
    if (wanted == 0)
        return;
    kv_log(KV_LOG_VERBOSE, "Starting active defrag: %llu bytes wasted, %llu may come back",
           (unsigned long long)waste_bytes, (unsigned long long)wanted);
    d->open = true;
    d->waste_bytes = waste_bytes;
    d->wanted_bytes = wanted;
    kv_stat_set(&d->start_ns, kv_clock_mono_ns());
    atomic_store_explicit(&d->effort, effort, memory_order_relaxed);
    atomic_fetch_add_explicit(&d->epoch, 1, memory_order_release);
}

static void end(struct kv_defrag *d)
{
    KV_ASSERT(d->open);
    kv_mem_evacuation_end();
    d->open = false;
    atomic_store_explicit(&d->effort, 0, memory_order_relaxed);
    kv_stat_add(&d->active_ns, kv_clock_mono_ns() - kv_stat_read(&d->start_ns));
    kv_stat_set(&d->start_ns, 0);
    kv_log(KV_LOG_VERBOSE, "Active defrag done");
}

/* What the last evacuation brought decides how soon the next may begin. Looked at when its pages
 * have had time to go. */
static void judge(struct kv_defrag *d, uint64_t waste_bytes)
{
    if (d->wanted_bytes == 0)
        return;
    bool helped = waste_bytes + d->wanted_bytes / 2 <= d->waste_bytes;
    d->pause_ms = helped ? PAUSE_MIN_MS : KV_MIN(d->pause_ms * 2, (uint32_t)PAUSE_MAX_MS);
    d->wanted_bytes = 0;
}

void kv_defrag_cron(struct kv_engine *e, int64_t mono_ms)
{
    struct kv_defrag *d = &e->defrag;
    if (d->open && all_done(e)) {
        end(d);
        d->pause_ms = KV_MAX(d->pause_ms, (uint32_t)PAUSE_MIN_MS);
        d->look_ms = mono_ms + d->pause_ms;
    }
    if (!e->options.active_defrag || kv_engine_loading(e)) {
        atomic_store_explicit(&d->effort, 0, memory_order_relaxed);
        d->pause_ms = PAUSE_MIN_MS;
        if (!d->open)
            d->look_ms = 0;
        return;
    }
    if (mono_ms < d->look_ms)
        return;
    d->look_ms = mono_ms + LOOK_MS;
    uint64_t used_bytes;
    uint64_t waste_bytes = read_waste(&used_bytes);
    uint32_t effort = kv_defrag_effort(&e->options, used_bytes, waste_bytes);
    uint32_t current = atomic_load_explicit(&d->effort, memory_order_relaxed);
    if (!d->open) {
        judge(d, waste_bytes);
        if (effort != 0)
            begin(d, effort, waste_bytes);
    } else if (effort > current && current != 0) {
        atomic_store_explicit(&d->effort, effort, memory_order_relaxed);
    }
}

void kv_defrag_release(struct kv_engine *e)
{
    if (e->defrag.open)
        end(&e->defrag);
}

/* --- a worker: its slices --- */

/* The home shard at hand is finished: on to the next. True: there is none. */
static bool next_shard(struct kv_worker *w)
{
    struct kv_worker_defrag *d = &w->defrag;
    d->position = (struct kv_defrag_position){0};
    d->shard += w->engine->worker_count;
    return d->shard >= w->engine->shard_count;
}

/* Works until the deadline, on one shard after the other. True: nothing is left; *busy: a lock or
 * the gate was taken. */
static bool run_slice(struct kv_worker *w, uint64_t deadline_ticks, bool *busy)
{
    struct kv_worker_defrag *d = &w->defrag;
    struct kv_view view = w->call.view;
    *busy = false;
    view.flags = 0;
    while (d->shard < w->engine->shard_count) {
        if (!kv_try_home_shard(w, d->shard)) {
            *busy = true;
            return false;
        }
        w->hold_start = kv_clock_ticks();
        bool done = kv_store_defrag_shard(&view, d->shard, &d->position, deadline_ticks);
        w->now_ticks = kv_clock_ticks();
        kv_release(w, KV_HOLD_SHARDS);
        if (done && next_shard(w))
            break;
        if (w->now_ticks >= deadline_ticks)
            return false;
    }
    return true;
}

static void finish(struct kv_worker *w)
{
    atomic_store_explicit(&w->defrag.done, w->defrag.epoch, memory_order_release);
}

/* The time of the next slice: so that this one's time is `effort` percent of what passes. */
static void pace(struct kv_worker_defrag *d, uint64_t start, uint64_t now, uint32_t effort)
{
    uint64_t credit = kv_clock_ns_to_ticks(CREDIT_NS);
    uint64_t from = KV_MAX(d->resume_ticks, start > credit ? start - credit : 0);
    d->resume_ticks = from + (now - start) * 100 / effort;
}

void kv_worker_defrag(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    struct kv_worker_defrag *d = &w->defrag;
    unsigned epoch = atomic_load_explicit(&e->defrag.epoch, memory_order_acquire);
    uint32_t effort = atomic_load_explicit(&e->defrag.effort, memory_order_relaxed);
    uint64_t start = kv_clock_ticks();
    if (d->epoch != epoch) {
        d->epoch = epoch;
        d->shard = w->index;
        d->position = (struct kv_defrag_position){0};
        d->resume_ticks = start;
    }
    if (effort == 0 || !e->options.active_defrag) {
        finish(w);
        return;
    }
    if (start < d->resume_ticks)
        return;
    bool serving = kv_stat_read(&w->stats.commands) != d->commands;
    uint64_t slice_ns = serving ? SLICE_BUSY_NS : SLICE_NS;
    bool busy;
    if (run_slice(w, start + kv_clock_ns_to_ticks(slice_ns), &busy))
        finish(w);
    uint64_t now = kv_clock_ticks();
    d->commands = kv_stat_read(&w->stats.commands);
    kv_stat_add(&w->stats.defrag_ns, kv_clock_ticks_to_ns(now - start));
    kv_stat_max(&w->stats.defrag_slice_ns_max, kv_clock_ticks_to_ns(now - start));
    kv_latency_note(&w->engine->latency, KV_LATENCY_DEFRAG, kv_clock_ticks_to_ns(now - start));
    pace(d, start, now, effort);
    if (busy)
        d->resume_ticks = KV_MAX(d->resume_ticks, now + kv_clock_ns_to_ticks(BUSY_NS));
}

int kv_defrag_wait_ms(const struct kv_worker *w)
{
    uint64_t now = kv_clock_ticks();
    if (now >= w->defrag.resume_ticks || w->defrag.epoch != w->engine->defrag.epoch)
        return 0;
    return (int)(kv_clock_ticks_to_ns(w->defrag.resume_ticks - now) / 1000000) + 1;
}

/* --- figures --- */

uint32_t kv_engine_defrag_effort(const struct kv_engine *e)
{
    return atomic_load_explicit(&e->defrag.effort, memory_order_relaxed);
}

void kv_engine_defrag_times(const struct kv_engine *e, uint64_t *total_ms, uint64_t *current_ms)
{
    uint64_t start_ns = kv_stat_read(&e->defrag.start_ns);
    uint64_t running_ns = start_ns != 0 ? kv_clock_mono_ns() - start_ns : 0;
    *total_ms = (kv_stat_read(&e->defrag.active_ns) + running_ns) / 1000000;
    *current_ms = running_ns / 1000000;
}
