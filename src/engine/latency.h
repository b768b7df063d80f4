/* How long commands take, and what took too long.
 *
 * Histograms. Each worker counts the times of each command in buckets, 32 to a power of two, so a
 * bucket is at most 3 % wide. The unit is the tick of kv_clock_ticks; who reads converts. A
 * histogram is made when a command runs for the first time on a worker (about 10 KiB). Switched by
 * `latency-tracking`, shown by LATENCY HISTOGRAM and INFO latencystats, emptied by CONFIG
 * RESETSTAT.
 *
 * Monitor. What lasts at least `latency-monitor-threshold` milliseconds is kept, by event: per
 * event a ring of 160 samples, at most one a second (the longest of it). Shown by LATENCY HISTORY,
 * LATEST, GRAPH and DOCTOR. A series is made with its first sample and goes with LATENCY RESET.
 *
 * Threads: histograms are their worker's and read by all; the monitor is for any thread, under a
 * mutex that only what took too long takes. When memory is short, samples are dropped. */
#ifndef KV_ENGINE_LATENCY_H
#define KV_ENGINE_LATENCY_H

#include "base/lock.h"
#include "base/stat.h"

struct kv_engine;
struct kv_command_stats;

/* --- histograms --- */

#define KV_LATENCY_SUB_BITS 5 /* 32 buckets to a power of two */
#define KV_LATENCY_TOP_BIT 42 /* ticks from 2^43 on are in the last bucket */
#define KV_LATENCY_BUCKETS ((KV_LATENCY_TOP_BIT - KV_LATENCY_SUB_BITS + 2) << KV_LATENCY_SUB_BITS)

struct kv_latency_histogram {
    kv_stat counts[KV_LATENCY_BUCKETS];
};

KV_INLINE uint32_t kv_latency_bucket(uint64_t ticks)
{
    if (ticks < 1u << KV_LATENCY_SUB_BITS)
        return (uint32_t)ticks;
    uint32_t top = 63 - (uint32_t)__builtin_clzll(ticks);
    if (KV_UNLIKELY(top > KV_LATENCY_TOP_BIT))
        return KV_LATENCY_BUCKETS - 1;
    uint32_t shift = top - KV_LATENCY_SUB_BITS;
    return (shift << KV_LATENCY_SUB_BITS) + (uint32_t)(ticks >> shift);
}

/* The greatest number of ticks in a bucket. */
uint64_t kv_latency_bucket_end(uint32_t bucket);

/* Counts a command's time; its worker. */
KV_INLINE void kv_latency_count(_Atomic(struct kv_latency_histogram *) *h, uint64_t ticks);
struct kv_latency_histogram *kv_latency_create(_Atomic(struct kv_latency_histogram *) *h) KV_COLD;

/* The worker's, or with nobody running. */
void kv_latency_free(_Atomic(struct kv_latency_histogram *) *h);

/* Times of one command on all workers, in nanoseconds. */
struct kv_latency_sum {
    uint64_t total;
    uint64_t counts[KV_LATENCY_BUCKETS];
};

/* False: the command has no times. Any worker. */
bool kv_engine_latency(const struct kv_engine *e, uint16_t command_id, struct kv_latency_sum *sum);

/* How many took at most `ns`, by whole buckets. */
uint64_t kv_latency_below(const struct kv_latency_sum *sum, uint64_t ns);

/* Nanoseconds that `percent` of all took at most, and no more than a bucket's width above. */
uint64_t kv_latency_percentile(const struct kv_latency_sum *sum, double percent);

/* --- monitor --- */

enum kv_latency_event {
    KV_LATENCY_COMMAND,      /* a command that is not marked as fast */
    KV_LATENCY_FAST_COMMAND, /* and one that is */
    KV_LATENCY_EXPIRE,       /* a slice of expiry */
    KV_LATENCY_EVICTION,     /* eviction before a command, or between commands */
    KV_LATENCY_DEFRAG,       /* a slice of activedefrag */
    KV_LATENCY_EVENTS,
};

#define KV_LATENCY_SAMPLES 160

struct kv_latency_sample {
    uint32_t time_s; /* Unix time */
    uint32_t ms;
};

struct kv_latency_series {
    struct kv_latency_sample samples[KV_LATENCY_SAMPLES]; /* a ring */
    uint32_t next;                                        /* where the next one goes */
    uint32_t count;
    uint32_t max_ms; /* since the last reset */
};

struct kv_latency_monitor {
    _Atomic(uint64_t) threshold_ns; /* UINT64_MAX: off */
    struct kv_mutex mutex;
    struct kv_latency_series *series[KV_LATENCY_EVENTS];
};

void kv_latency_monitor_init(struct kv_latency_monitor *m);
void kv_latency_monitor_release(struct kv_latency_monitor *m);

const char *kv_latency_event_name(enum kv_latency_event event);

/* Keeps a sample, whatever the threshold. Any thread. */
void kv_latency_add(struct kv_latency_monitor *m, enum kv_latency_event event, uint64_t ns) KV_COLD;

/* Keeps one when it took long enough. Any thread. */
KV_INLINE void kv_latency_note(struct kv_latency_monitor *m, enum kv_latency_event event,
                               uint64_t ns)
{
    if (KV_UNLIKELY(ns >= atomic_load_explicit(&m->threshold_ns, memory_order_relaxed)))
        kv_latency_add(m, event, ns);
}

/* A copy of an event's series; false: there is none. Any thread. */
bool kv_engine_latency_series(struct kv_engine *e, enum kv_latency_event event,
                              struct kv_latency_series *out);

/* The i-th of its samples, the oldest first. */
KV_INLINE struct kv_latency_sample kv_latency_sample(const struct kv_latency_series *s, uint32_t i)
{
    return s->samples[(s->next + KV_LATENCY_SAMPLES - s->count + i) % KV_LATENCY_SAMPLES];
}

/* Forgets an event's series; true: there was one. Any thread. */
bool kv_engine_latency_reset(struct kv_engine *e, enum kv_latency_event event);

KV_INLINE void kv_latency_count(_Atomic(struct kv_latency_histogram *) *h, uint64_t ticks)
{
    struct kv_latency_histogram *now = atomic_load_explicit(h, memory_order_relaxed);
    if (KV_UNLIKELY(now == NULL) && (now = kv_latency_create(h)) == NULL)
        return;
    kv_stat_add(&now->counts[kv_latency_bucket(ticks)], 1);
}

#endif
