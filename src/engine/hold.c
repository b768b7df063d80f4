/* Acquiring what a command needs, and giving it back.
 *
 * The ladder of design: plain keyed commands enter the gate and try-lock their shards in ascending
 * order; after 5 us of spinning the connection is parked at the shard that was busy; after eight
 * such rounds the command takes the gate instead. Exclusive commands close the gate, and those that
 * touch other workers' clients or the options also stop the world.
 *
 * Before any lock, a writing command makes sure that the change stream has room for it: after its
 * first effect a command waits for nothing.
 */
#include "base/clock.h"
#include "engine/worker.h"

/* Enters the worker's list of clients parked at shards. */
static void list_parked(struct kv_worker *w, struct kv_client *c)
{
    c->park_prev = NULL;
    c->park_next = w->shard_waiters;
    if (w->shard_waiters != NULL)
        w->shard_waiters->park_prev = c;
    w->shard_waiters = c;
}

bool kv_park_at_shard(struct kv_client *c, uint32_t shard)
{
    struct kv_worker *w = c->worker;
    if (!kv_shard_park(w->engine, shard, c))
        return false;
    list_parked(w, c);
    c->park_rounds++;
    kv_stat_add(&w->stats.lock_parks, 1);
    return true;
}

bool kv_spin_for_locks(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    if (KV_LIKELY(kv_lockset_try(e, &w->locks)))
        return true;
    kv_stat_add(&w->stats.lock_spins, 1);
    uint64_t give_up = kv_clock_ticks() + kv_clock_ns_to_ticks(KV_LOCK_SPIN_NS);
    do {
        __builtin_ia32_pause();
        /* An exclusive command waits for us: collecting locks is over. */
        if (atomic_load_explicit(&e->gate.closed, memory_order_relaxed) != 0)
            return false;
        /* Looking does not take the line from its holder; trying would. */
        if (atomic_load_explicit(&e->locks[w->locks.busy].word, memory_order_relaxed) == 0 &&
            kv_lockset_try(e, &w->locks))
            return true;
    } while (kv_clock_ticks() < give_up);
    return false;
}

static enum kv_hold acquire_shards(struct kv_client *c, bool lock)
{
    struct kv_worker *w = c->worker;
    for (;;) {
        if (!kv_gate_enter(w)) {
            if (kv_gate_park(w, c)) {
                kv_stat_add(&w->stats.gate_parks, 1);
                return KV_HOLD_PARKED;
            }
            continue;
        }
        if (!lock || kv_spin_for_locks(w))
            return KV_HOLD_SHARDS;
        kv_gate_leave(w);
        if (kv_park_at_shard(c, w->locks.busy))
            return KV_HOLD_PARKED;
    }
}

enum kv_hold kv_acquire(struct kv_client *c, enum kv_cmd_mode mode)
{
    struct kv_worker *w = c->worker;
    enum kv_hold hold = KV_HOLD_NONE;
    w->hold_start = w->now_ticks;
    if (!w->engine->multi)
        return mode >= KV_MODE_ALONE ? KV_HOLD_ALONE : KV_HOLD_NONE;
    /* A client that the gate is closed for goes through it, though what made its command exclusive
     * may have changed while it waited: as a plain one it would wait for itself. */
    if ((mode == KV_MODE_KEYS || mode == KV_MODE_SHARDS) &&
        (c->park_rounds >= KV_PARK_ROUNDS_MAX || c->park == KV_PARK_ALONE))
        mode = KV_MODE_ALONE;
    switch (mode) {
    case KV_MODE_FREE:
        return KV_HOLD_NONE;
    case KV_MODE_KEYS:
        hold = acquire_shards(c, true);
        break;
    case KV_MODE_SHARDS:
        hold = acquire_shards(c, false);
        break;
    case KV_MODE_ALONE:
    case KV_MODE_STOP:
        if (!kv_gate_close(w, c)) {
            kv_stat_add(&w->stats.gate_parks, 1);
            hold = KV_HOLD_PARKED;
        } else if (mode == KV_MODE_STOP) {
            kv_world_stop(w);
            hold = KV_HOLD_STOP;
        } else {
            hold = KV_HOLD_ALONE;
        }
        break;
    }
    /* A command that visits shards holds none at this point: its rounds are counted until it has
     * ended (dispatch_held), or it would never get to the gate. */
    if (hold != KV_HOLD_PARKED && mode != KV_MODE_SHARDS)
        c->park_rounds = 0;
    if (hold == KV_HOLD_PARKED || hold == KV_HOLD_ALONE || hold == KV_HOLD_STOP)
        kv_lockset_clear(&w->locks);
    w->hold_start = kv_clock_ticks();
    return hold;
}

void kv_release(struct kv_worker *w, enum kv_hold hold)
{
    if (KV_UNLIKELY(w->blocking.ready_len != 0))
        kv_blocking_serve(w);
    kv_stream_publish(w);
    if (KV_UNLIKELY(w->blocking.served_first != NULL))
        kv_blocking_post(w);
    kv_stream_settle(w);
    kv_mem_publish();
    if (hold == KV_HOLD_NONE)
        return;
    if (w->engine->multi) {
        if (hold == KV_HOLD_STOP)
            kv_world_resume(w);
        if (hold == KV_HOLD_SHARDS) {
            if (KV_UNLIKELY(w->upgraded)) {
                w->upgraded = false;
                kv_gate_downgrade(w);
            }
            if (w->locks.held)
                kv_lockset_unlock(w->engine, &w->locks);
            kv_gate_leave(w);
        } else {
            kv_gate_open(w);
        }
    }
    /* A command that found its first shard busy has not moved the clock on: it held nothing. */
    if (w->now_ticks > w->hold_start)
        kv_stat_max(&w->stats.hold_ns_max, kv_clock_ticks_to_ns(w->now_ticks - w->hold_start));
}

static void park_for_space(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    /* It may have got the gate meanwhile, or stand in its queue: nobody holds that while waiting
     * for a reader. */
    if (c->park == KV_PARK_ALONE)
        kv_gate_cancel(w, c);
    c->flags |= KV_CLIENT_PARKED;
    c->park = KV_PARK_STREAM;
    kv_waitlist_append(&w->stream_waiters, c);
}

bool kv_wait_for_snapshot(struct kv_client *c)
{
    struct kv_snapshot *s = &c->worker->engine->snapshot;
    if (KV_LIKELY(!kv_snapshot_full(s)) || c->flags & KV_CLIENT_APPLY)
        return true;
    atomic_fetch_add(&s->throttled, 1);
    park_for_space(c);
    return false;
}

bool kv_wait_for_room(struct kv_client *c, size_t input_bytes, uint32_t commands)
{
    struct kv_worker *w = c->worker;
    struct kv_stream *s = &w->engine->stream;
    if (kv_stream_promise(w, input_bytes, commands))
        return true;
    atomic_store(&s->waiting, 1);
    /* A reader may have advanced before it could see the flag. */
    if (kv_stream_promise(w, input_bytes, commands))
        return true;
    park_for_space(c);
    return false;
}
