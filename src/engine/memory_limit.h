/* maxmemory: what commands that need memory are checked against, and eviction.
 *
 * Before a command with the flag `denyoom` (or a batch with one, or an EXEC whose queue has one)
 * takes a lock, kv_mem_used_published is compared with `maxmemory`. Above it, keys are evicted for
 * as long as maxmemory-eviction-tenacity allows; the command is refused only when nothing more can
 * be evicted. What is left over is evicted by all workers at the end of their rounds.
 *
 * Error bound. The figure lags behind the truth by at most 64 KiB and one batch per worker
 * (mem/mem.h), so memory in use passes the limit by at most
 *     workers * (64 KiB + what one batch adds)
 * as long as a check can evict what a batch adds; it may fall below by as much, since each worker
 * evicts what it sees as too much. Workers claim what they are about to evict, so that a large
 * excess is not evicted by all of them at once.
 *
 * Threads: a worker's own, unless marked. */
#ifndef KV_ENGINE_MEMORY_LIMIT_H
#define KV_ENGINE_MEMORY_LIMIT_H

#include "mem/mem.h"
#include "store/evict.h"
#include <stdatomic.h>

struct kv_engine;
struct kv_worker;

/* Shared by the workers, touched only above the limit. */
struct kv_memory_limit {
    _Atomic(int64_t) claimed_bytes;     /* that workers are evicting now */
    _Atomic(uint64_t) exceeded_from_us; /* monotonic time since when eviction does not keep up;
                                           0: it does */
    _Atomic(uint64_t) exceeded_us;      /* earlier such times, summed */
};

/* A worker's part. */
struct kv_worker_limit {
    struct kv_evictor evictor;
    uint32_t cursor;       /* shard that is visited next */
    bool more;             /* above the limit, and evicting helps: the loop does not sleep */
    uint64_t resume_ticks; /* no slice at the end of a round before this */
};

void kv_memory_limit_init(struct kv_worker *w, uint64_t seed);

/* True when a command may run: memory is below the limit, or was brought there, or will be. False:
 * nothing can be evicted, so it must be refused. No lock is held, nothing promised. */
bool kv_memory_admit(struct kv_worker *w);

/* End of a round: publishes what the worker allocated, evicts for a slice when it is too much. */
void kv_memory_round(struct kv_worker *w);

/* [KV_MODE_STOP or before workers run] Policy and LFU options changed. */
void kv_memory_limit_apply(struct kv_engine *e);

#endif
