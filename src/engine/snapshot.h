/* Taking a snapshot of the whole keyspace while commands go on: store/snapshot.h, made to run.
 *
 *   kv_snapshot_start    [alone] marks the moment
 *   workers              walk over their home shards in slices of at most 200 us between their
 *                        rounds; what a command is about to change is saved by it, at once
 *   ops->entry           turns an entry into bytes, in a buffer of the worker that saves it
 *   kv_snapshot_take     hands the filled buffers to one thread of the user's (who writes them)
 *   kv_snapshot_finish   after the last buffer: the snapshot is over
 *
 * A buffer holds entries of one database. Buffers come in no particular order; each entry of the
 * moment is in one of them.
 *
 * Memory. Bytes in buffers that were not taken yet are bounded by `limit_bytes`: at half of it the
 * workers' walk pauses; above it commands that write wait before they lock anything, until enough
 * is taken. One entry, and what runs at that moment, may go beyond.
 *
 * Failure. When memory for a buffer is short, when the taker says so (kv_snapshot_fail), or when a
 * whole database is flushed or exchanged, the snapshot has failed: nothing more is serialized, and
 * kv_snapshot_take tells it at the end. Commands never fail for it.
 *
 * Threads: one snapshot at a time; start [alone], take and finish on the taker's thread, fail on
 * any.
 */
#ifndef KV_ENGINE_SNAPSHOT_H
#define KV_ENGINE_SNAPSHOT_H

#include "base/lock.h"
#include "store/snapshot.h"
#include "value/bigstr.h"
#include <pthread.h>
#include <stdatomic.h>

struct kv_engine;
struct kv_worker;

/* Bytes of entries of one database. */
struct kv_snapshot_buffer {
    struct kv_snapshot_buffer *next;
    struct kv_bigstr *string; /* the value that belongs behind the bytes, as a reference that goes
                                 with the buffer; NULL: there is none */
    uint32_t db;
    uint64_t keys;   /* entries in it */
    size_t len;      /* bytes used */
    size_t capacity; /* of `bytes` */
    uint8_t bytes[];
};

struct kv_snapshot_ops {
    /* Appends an entry of v->db to *b, which grows through kv_snapshot_room. False: no memory; the
     * snapshot fails. Under the lock of the entry's shard; `worker` is the number of the worker
     * whose thread it is. A large string need not be copied: (*b)->string may take a reference to
     * it, and the taker turns it into bytes. */
    bool (*entry)(void *arg, uint32_t worker, struct kv_snapshot_buffer **b,
                  const struct kv_view *v, const struct kv_entry *e);
    void *arg;
    uint64_t limit_bytes; /* of buffers that wait; 0: none */
};

/* Makes room for `more` bytes behind (*b)->len; may move the buffer. False: no memory. */
bool kv_snapshot_room(struct kv_snapshot_buffer **b, size_t more);

/* [alone] False: one is going on. */
bool kv_snapshot_start(struct kv_engine *e, const struct kv_snapshot_ops *ops) KV_MUST_CHECK;

bool kv_snapshot_going_on(const struct kv_engine *e);

/* The next buffer, which is then the caller's (kv_snapshot_free); waits for one. NULL: that was
 * all; *failed tells whether it is worth anything. */
struct kv_snapshot_buffer *kv_snapshot_take(struct kv_engine *e, bool *failed);
void kv_snapshot_free(struct kv_snapshot_buffer *b);

/* After kv_snapshot_take gave NULL: another one may start. */
void kv_snapshot_finish(struct kv_engine *e);

/* The snapshot is not wanted any more; kv_snapshot_take will tell so soon. */
void kv_snapshot_fail(struct kv_engine *e);

/* Ends the snapshot that goes on, failed: when no worker runs any more, or all stand still
 * [KV_MODE_STOP]. */
void kv_snapshot_abandon(struct kv_engine *e);

/* Figures for INFO; any thread. */
struct kv_snapshot_figures {
    uint64_t keys_done, keys_total; /* of the one that goes on */
    uint64_t buffered_bytes;        /* waiting to be taken */
    uint64_t buffered_max;          /* most since the start */
    uint64_t throttled;             /* commands that waited for buffers, since the server started */
};
void kv_engine_snapshot_figures(const struct kv_engine *e, struct kv_snapshot_figures *out);

/* --- for engine/ --- */

enum kv_snapshot_phase { KV_SNAPSHOT_NONE, KV_SNAPSHOT_WALK, KV_SNAPSHOT_FLUSH, KV_SNAPSHOT_END };

struct kv_snapshot {
    atomic_uint phase;  /* enum kv_snapshot_phase; NONE to WALK [alone], from END by the taker */
    atomic_bool failed; /* nothing is serialized any more */
    struct kv_snapshot_ops ops;
    atomic_uint generation; /* of messages: those of one that was abandoned mean nothing */
    atomic_uint walking;    /* workers that have not walked all their shards */
    atomic_uint flushing;   /* workers that may still hold a buffer */
    _Atomic(uint64_t) buffered_bytes, buffered_max, keys_done, throttled;
    uint64_t keys_total;
    struct kv_mutex mutex; /* guards the queue */
    pthread_cond_t wake;
    struct kv_snapshot_buffer *first, *last;
    bool waiting;         /* the taker waits for `wake` */
    atomic_bool throttle; /* commands wait for room */
};

struct kv_worker_snapshot {
    struct kv_snapshot_buffer *buffer; /* being filled, or NULL */
    struct kv_snapshot_position position;
    uint32_t shard; /* home shard at hand */
    bool walking;   /* its part is not done */
    uint64_t resume_ticks;
};

void kv_snapshot_init(struct kv_snapshot *s);
void kv_snapshot_release(struct kv_snapshot *s);

/* How long a worker that walks may wait for events. */
int kv_snapshot_wait_ms(const struct kv_worker *w);

/* A slice of the walk; after a round. */
void kv_worker_snapshot(struct kv_worker *w);
void kv_snapshot_on_start(struct kv_worker *w, uint32_t generation); /* messages to every worker */
void kv_snapshot_on_flush(struct kv_worker *w, uint32_t generation);

/* [alone] FLUSHALL and SWAPDB make what was walked over worthless. */
void kv_snapshot_spoil(struct kv_engine *e);

KV_INLINE bool kv_snapshot_full(const struct kv_snapshot *s)
{
    return KV_UNLIKELY(atomic_load_explicit(&s->throttle, memory_order_relaxed));
}

#endif
