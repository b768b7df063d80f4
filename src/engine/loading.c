/* Slices of loading on workers: see the header.
 *
 * `going_on` is read by workers in each round and by whoever asks; commands look at the bit
 * KV_REFUSE_LOADING of commit.refusals. Both change before workers run and behind the gate, and a
 * worker that still sees the old value refuses a command that it might have taken, which its client
 * cannot tell from being early.
 *
 * The gate orders memory: what a slice has written lies before what an exclusive command, or a
 * command that locks the shard, sees.
 */
#include "engine/loading.h"
#include "base/assert.h"
#include "base/clock.h"
#include "engine/worker.h"

void kv_engine_load_begin(struct kv_engine *e, const struct kv_load_ops *ops)
{
    KV_ASSERT(ops->work != NULL && !kv_engine_loading(e));
    e->loading.ops = *ops;
    atomic_fetch_or(&e->commit.refusals, KV_REFUSE_LOADING);
    atomic_store(&e->loading.going_on, true);
}

void kv_engine_load_end(struct kv_engine *e)
{
    KV_ASSERT(kv_engine_loading(e));
    atomic_store(&e->loading.going_on, false);
    atomic_fetch_and(&e->commit.refusals, ~(unsigned)KV_REFUSE_LOADING);
    /* Times to live have their effect from now on. */
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_loop_wake(e->workers[i]->loop);
}

bool kv_engine_loading(const struct kv_engine *e)
{
    return atomic_load_explicit(&e->loading.going_on, memory_order_relaxed);
}

void kv_engine_load_wake(struct kv_engine *e, uint32_t worker)
{
    KV_ASSERT(worker < e->worker_count);
    kv_loop_wake(e->workers[worker]->loop);
}

bool kv_load_enter(struct kv_worker *w)
{
    return !w->engine->multi || kv_gate_enter(w);
}

void kv_load_leave(struct kv_worker *w)
{
    if (w->engine->multi)
        kv_gate_leave(w);
    kv_mem_publish();
}

bool kv_load_lock(struct kv_worker *w, uint64_t hash)
{
    struct kv_engine *e = w->engine;
    if (!e->multi)
        return true;
    uint32_t shard = kv_store_shard_of(e->store, hash);
    if (KV_LIKELY(kv_shard_try_lock(e, shard)))
        return true;
    uint64_t give_up = kv_clock_ticks() + kv_clock_ns_to_ticks(KV_LOCK_SPIN_NS);
    do {
        __builtin_ia32_pause();
        if (kv_shard_try_lock(e, shard))
            return true;
    } while (kv_clock_ticks() < give_up);
    return false;
}

void kv_load_unlock(struct kv_worker *w, uint64_t hash)
{
    if (w->engine->multi)
        kv_shard_unlock(w->engine, kv_store_shard_of(w->engine->store, hash));
}

void kv_worker_load(struct kv_worker *w)
{
    struct kv_load_ops *ops = &w->engine->loading.ops;
    KV_ASSERT(!w->busy);
    w->load_more = ops->work(ops->arg, w, w->index);
}
