/* activedefrag: when memory is given back, and who does what. See defrag.c.
 *
 * Terms
 *   waste       resident bytes of the process beyond blocks in use and what was there at its start
 *   evacuation  the memory layer's choice of thin slabs, from begin to end (mem/mem.h); one epoch
 *   effort      percent of its time that a worker gives while an epoch lasts
 *
 * Threads: struct kv_defrag is written by worker 0; the atomics are read by all workers. */
#ifndef KV_ENGINE_DEFRAG_H
#define KV_ENGINE_DEFRAG_H

#include "base/stat.h"
#include "store/store.h"

struct kv_engine;
struct kv_worker;

/* Of the engine. */
struct kv_defrag {
    atomic_uint epoch KV_ALIGNED(KV_CACHE_LINE); /* number of the last evacuation; 0: none ever */
    atomic_uint effort;                          /* percent; 0: nothing runs, or it is to stop */
    kv_stat active_ns;                           /* of ended evacuations */
    kv_stat start_ns; /* monotonic time of the running one's begin; 0: none runs */
    /* worker 0's own */
    bool open;             /* begun and not ended */
    int64_t look_ms;       /* next look at the waste, monotonic */
    uint32_t pause_ms;     /* from an end to the next look; grows while evacuations do not help */
    uint64_t waste_bytes;  /* at the begin */
    uint64_t wanted_bytes; /* what the evacuation promised then */
} KV_ALIGNED(KV_CACHE_LINE);

/* Of a worker. */
struct kv_worker_defrag {
    atomic_uint done;  /* last epoch in which it has nothing left to do; written by the worker */
    uint32_t epoch;    /* of the position below */
    uint32_t shard;    /* home shard that is being walked */
    uint64_t commands; /* stats.commands at the end of the last slice */
    uint64_t resume_ticks; /* no slice before: what is left of the time is for commands */
    struct kv_defrag_position position; /* in that shard */
};

/* Percent of a worker's time for a waste, by the options; 0: not worth starting. */
struct kv_options;
uint32_t kv_defrag_effort(const struct kv_options *o, uint64_t used_bytes, uint64_t waste_bytes);

/* Worker 0's periodic work: ends what has ended, begins what is worth it. */
void kv_defrag_cron(struct kv_engine *e, int64_t mono_ms);

/* A slice of at most 200 us, when it is time for one. Between two rounds, own thread. */
void kv_worker_defrag(struct kv_worker *w);

/* Milliseconds until the next slice of a worker that has something to do. */
int kv_defrag_wait_ms(const struct kv_worker *w);

/* Ends a running evacuation; no worker runs any more. */
void kv_defrag_release(struct kv_engine *e);

#endif
