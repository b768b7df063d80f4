/* Taking a snapshot of the whole keyspace while commands go on: store/snapshot.h, made to run.
 *
 *   kv_snapshot_start    [alone] marks the moment
 *   workers              walk over their home shards in slices of at most 200 us between their
 *                        rounds, shorter ones while commands run; what a command is about to
 *                        change is saved by it, at once
 *   ops->entry           turns an entry into bytes, in a buffer of the worker that saves it
 *   kv_snapshot_take     hands the filled buffers to one thread of the user's (who writes them)
 *   kv_snapshot_finish   after the last buffer: the snapshot is over
 *
 * A buffer holds entries of one database. Buffers come in no particular order; each entry of the
 * moment is in one of them.
 *
 * Large collections (store/sliced.h) are saved in slices too: ops->head notes the key, ops->item a
 * member. Their bytes fill a row of buffers that follow one another when they are taken (`more`).
 * Up to VALUE_BYTES a value keeps what it has until it is whole; beyond them it becomes the stream,
 * of which there is one at a time: its buffers are taken while it is saved.
 *
 * Memory. Bytes that were not taken yet are bounded by `limit_bytes`: at half of it the workers'
 * walk over entries pauses; above it commands that write wait before they lock anything, until
 * enough is taken. The stream does not pause for others, only when it is VALUE_BYTES ahead of who
 * takes it, so that whatever waits for it gets its turn. One entry, and what runs at that moment,
 * may go beyond.
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
#include "store/sliced.h"
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
    bool more;       /* the next one that is taken goes on with the value at its end */
    uint64_t keys;   /* entries that begin in it */
    size_t len;      /* bytes used */
    size_t capacity; /* of `bytes` */
    uint8_t bytes[];
};

/* What ops->head notes for ops->item: the user's. */
struct kv_snapshot_form {
    uint8_t form;
    int64_t first_due;
};

struct kv_snapshot_ops {
    /* Appends an entry of v->db to *b, which grows through kv_snapshot_room. False: no memory; the
     * snapshot fails. Under the lock of the entry's shard; `worker` is the number of the worker
     * whose thread it is. A large string need not be copied: (*b)->string may take a reference to
     * it, and the taker turns it into bytes. */
    bool (*entry)(void *arg, uint32_t worker, struct kv_snapshot_buffer **b,
                  const struct kv_view *v, const struct kv_entry *e);
    /* The same for a large collection that is saved in slices: all that comes before its members
     * or nodes; then each of these. NULL: all are saved whole. */
    bool (*head)(void *arg, uint32_t worker, struct kv_snapshot_buffer **b, const struct kv_view *v,
                 const struct kv_entry *e, struct kv_snapshot_form *form);
    bool (*item)(void *arg, uint32_t worker, struct kv_snapshot_buffer **b,
                 const struct kv_snapshot_form *form, const struct kv_sliced_item *item);
    void *arg;
    uint64_t limit_bytes; /* of buffers that wait; 0: none */
};

/* Makes room for `more` bytes behind (*b)->len; may move the buffer. False: no memory. */
bool kv_snapshot_room(struct kv_snapshot_buffer **b, size_t more);

/* [alone] False: one is going on. */
bool kv_snapshot_start(struct kv_engine *e, const struct kv_snapshot_ops *ops) KV_MUST_CHECK;

bool kv_snapshot_going_on(const struct kv_engine *e);

/* Whether the snapshot that goes on, and has failed, did so because databases were flushed or
 * exchanged: another one may succeed at once. Until kv_snapshot_finish. */
bool kv_snapshot_spoiled(const struct kv_engine *e);

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

/* Buffers that wait to be taken. The mutex of the snapshot guards them. */
struct kv_snapshot_queue {
    struct kv_snapshot_buffer *first, *last;
    _Atomic(uint64_t) bytes; /* read by anybody */
};

/* A large collection that is being saved: engine/snapshot_value.c. */
struct kv_snapshot_value {
    struct kv_sliced sliced;                 /* under the lock of its shard */
    struct kv_snapshot_value *next;          /* of its worker; the snapshot's mutex */
    struct kv_snapshot_form form;            /* fixed */
    uint32_t db;                             /* fixed */
    struct kv_snapshot_buffer *first, *last; /* full ones that wait here; the lock, as the rest */
    struct kv_snapshot_buffer *filling;      /* never NULL */
    struct kv_snapshot_buffer *ends;         /* of a list's end, the innermost first */
    uint64_t row_bytes;                      /* of first to last */
    uint64_t kept_bytes;                     /* all that is kept here, and counted */
    bool streaming;                          /* it is the stream */
};

struct kv_snapshot {
    atomic_uint phase;   /* enum kv_snapshot_phase; NONE to WALK [alone], from END by the taker */
    atomic_bool failed;  /* nothing is serialized any more */
    atomic_bool spoiled; /* because of a flush or an exchange */
    struct kv_snapshot_ops ops;
    atomic_uint generation; /* of messages: those of one that was abandoned mean nothing */
    atomic_uint walking;    /* workers that have not walked all their shards */
    atomic_uint flushing;   /* workers that may still hold a buffer */
    _Atomic(uint64_t) buffered_bytes, buffered_max, keys_done, throttled;
    uint64_t keys_total;
    uint64_t wake_bytes;   /* of entries for which the taker is woken; less than pauses the walk */
    struct kv_mutex mutex; /* guards the queues and workers' values */
    pthread_cond_t wake;
    struct kv_snapshot_queue entries, stream;
    struct kv_snapshot_queue *midway; /* the queue whose value was not taken to its end, or NULL */
    bool stream_next;                 /* whose turn it is */
    const struct kv_snapshot_value *streaming; /* whose the stream is; NULL: nobody's */
    bool waiting;                              /* the taker waits for `wake` */
    atomic_bool throttle;                      /* commands wait for room */
};

struct kv_worker_snapshot {
    struct kv_snapshot_buffer *buffer; /* being filled, or NULL */
    struct kv_snapshot_value *values;  /* open ones of its home shards, in the order of opening */
    atomic_uint value_count;           /* of these; the snapshot's mutex guards both */
    struct kv_snapshot_position position;
    uint32_t shard;        /* home shard at hand */
    bool walking;          /* its part is not done */
    bool idle;             /* it can do nothing but wait for the taker */
    uint64_t resume_ticks; /* no slice before */
    uint64_t end_ticks;    /* of the last slice */
    uint64_t commands;     /* stats.commands before it */
    uint64_t calm_ticks;   /* commands ran a short while ago: slices are short until then */
};

void kv_snapshot_init(struct kv_snapshot *s);
void kv_snapshot_release(struct kv_snapshot *s);

/* How long a worker that walks may wait for events. */
int kv_snapshot_wait_ms(const struct kv_worker *w);

/* How long a slice may take, after a round of so many nanoseconds; `busy`: commands run. */
uint64_t kv_snapshot_slice_ns(bool busy, uint64_t round_ns);

/* A slice of the walk; after a round. */
void kv_worker_snapshot(struct kv_worker *w);
void kv_snapshot_on_start(struct kv_worker *w, uint32_t generation); /* messages to every worker */
void kv_snapshot_on_flush(struct kv_worker *w, uint32_t generation);

/* [alone] FLUSHALL and SWAPDB make what was walked over worthless. */
void kv_snapshot_spoil(struct kv_engine *e);

/* Buffers: one of a database; all of a row to a queue, bytes counted already; so many bytes more
 * (or less) are kept. */
struct kv_snapshot_buffer *kv_snapshot_buffer(uint32_t db, size_t capacity);
void kv_snapshot_put(struct kv_snapshot *s, struct kv_snapshot_queue *q,
                     struct kv_snapshot_buffer *first, struct kv_snapshot_buffer *last);
void kv_snapshot_count(struct kv_snapshot *s, int64_t bytes);

/* Half of the limit is free again: commands that wait go on. */
void kv_snapshot_relieve(struct kv_engine *e);

#define KV_SNAPSHOT_BUFFER_BYTES ((size_t)64 * 1024) /* capacity of a full buffer */

KV_INLINE bool kv_snapshot_buffer_full(const struct kv_snapshot_buffer *b)
{
    return b->len >= KV_SNAPSHOT_BUFFER_BYTES - KV_SNAPSHOT_BUFFER_BYTES / 8;
}

/* The walk over entries waits for the taker. */
KV_INLINE bool kv_snapshot_pauses(const struct kv_snapshot *s)
{
    uint64_t half = s->ops.limit_bytes / 2;
    return half != 0 && atomic_load(&s->entries.bytes) > half;
}

/* Large collections: hooks of the store; a slice of the worker's first one (false: it must wait for
 * the taker); all of the worker are given up (false: a lock was not free). */
bool kv_snapshot_value_open(struct kv_view *v, uint32_t db, const struct kv_entry *e,
                            uint32_t shard, const struct kv_snapshot_hooks *hooks);
void kv_snapshot_value_item(struct kv_view *v, struct kv_sliced *sliced,
                            const struct kv_sliced_item *item);
void kv_snapshot_value_grown(struct kv_view *v, struct kv_sliced *sliced, size_t bytes);
bool kv_snapshot_value_slice(struct kv_worker *w, uint64_t deadline_ticks);
bool kv_snapshot_values_drop(struct kv_worker *w);

/* [alone] Lets the structures of all open values go; of what is left of them the workers take care,
 * or (release) nobody need. */
void kv_snapshot_values_cancel(struct kv_engine *e, bool release);

KV_INLINE bool kv_snapshot_full(const struct kv_snapshot *s)
{
    return KV_UNLIKELY(atomic_load_explicit(&s->throttle, memory_order_relaxed));
}

#endif
