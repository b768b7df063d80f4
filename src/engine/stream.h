/* The change stream: every write in deterministic form, as RESP command lines, in one ring.
 *
 * Writing. While a command or batch holds its locks, its lines collect in the worker's buffer;
 * before it unlocks, the worker reserves the bytes with one compare-and-swap on {offset, database},
 * copies them into the ring and publishes. Since conflicting commands hold a common lock, the order
 * of reservations is an order in which the commands may have run. SELECT is inserted where the
 * database of the stream differs.
 *
 * Publishing without waiting for others: each worker has a cell `pending`, the offset from which it
 * may still be copying (UINT64_MAX when it is not). It stores the current head there before it
 * reserves. A reader takes the head, then the minimum of all cells: everything before is complete.
 *
 * Space. A worker asks for room before it locks and is promised as much as its command or batch can
 * write at most; without room the connection is parked until a reader has advanced. The promise is
 * settled when the locks are given back, or when the connection is parked at one of them, so nobody
 * waits while he has one. Promises count as if they were written: what several workers are about to
 * write fits together. What a batch will write is bounded by its input; if that bound ever failed
 * (a slice of expiry that meets very long keys), readers are marked lapsed (they must start over)
 * rather than the writer made to wait. A single command longer than a quarter of the ring grows it
 * behind the gate.
 *
 * Without a reader there is no ring and nothing is collected.
 *
 * Sleeping. A reader that has read everything says that it sleeps, looks once more and waits for a
 * semaphore; a worker that has published looks at the end of its round whether somebody sleeps. So
 * writers pay one load a round, and a reader is woken once, however much is published meanwhile.
 */
#ifndef KV_ENGINE_STREAM_H
#define KV_ENGINE_STREAM_H

#include "base/lock.h"
#include "base/slice.h"
#include <semaphore.h>
#include <stdatomic.h>

#define KV_STREAM_READERS_MAX 8
#define KV_STREAM_DB_BITS 16 /* low bits of the head word: database + 1, 0 = none yet */

struct kv_engine;
struct kv_worker;
struct kv_stream_reader;

/* Lives in the stream, so that whoever asks for room outside the gate may look at it at any time.
 */
struct kv_stream_reader {
    struct kv_engine *engine;
    atomic_bool open;         /* changes behind the gate */
    atomic_bool lapsed;       /* bytes were overwritten before they were read */
    _Atomic(uint64_t) offset; /* next byte to read */
    _Atomic(uint64_t) stop;   /* reads no further; UINT64_MAX: no end. Set behind the gate */
    atomic_bool asleep;       /* waits for `wake`; whoever clears it posts it */
    atomic_bool woken;        /* kv_stream_wake was called: do not begin to sleep */
    sem_t wake;
};

struct kv_stream {
    _Atomic(uint64_t) head KV_ALIGNED(KV_CACHE_LINE); /* offset << 16 | database + 1 */
    atomic_uint active;         /* readers; 0: nothing is collected. Changes behind the gate */
    atomic_uint waiting;        /* a connection is parked for space */
    atomic_uint sleepers;       /* readers that sleep, or are about to */
    _Atomic(uint64_t) promised; /* bytes that workers may write before they settle */
    char *ring;                 /* size bytes; changes behind the gate and under the mutex */
    _Atomic(uint64_t) size;     /* power of two, or 0; changes as the ring does, read by anybody */
    struct kv_mutex mutex;      /* readers against growth and each other */
    struct kv_stream_reader readers[KV_STREAM_READERS_MAX];
};

/* What a worker has collected for the batch that runs. */
struct kv_stream_buffer {
    char *bytes; /* owned; grows */
    size_t len, capacity;
    uint32_t first_db, last_db; /* databases of the first and last line */
};

void kv_stream_init(struct kv_stream *s);
void kv_stream_release(struct kv_stream *s);

KV_INLINE bool kv_stream_active(struct kv_stream *s)
{
    return atomic_load_explicit(&s->active, memory_order_relaxed) != 0;
}

/* Asks for room for a command or batch of `input_bytes` in `commands`. Before locking. True: it is
 * promised to the worker until kv_stream_settle. */
bool kv_stream_promise(struct kv_worker *w, size_t input_bytes, uint32_t commands) KV_MUST_CHECK;
/* Gives back what was promised, written or not; without a promise nothing happens. */
void kv_stream_settle(struct kv_worker *w);
/* True when such a command can never fit without kv_stream_grow. */
bool kv_stream_too_small(struct kv_engine *e, size_t input_bytes, uint32_t commands);
void kv_stream_grow(struct kv_engine *e, size_t input_bytes, uint32_t commands); /* alone */

/* Adds one line to the worker's buffer. */
void kv_stream_add(struct kv_worker *w, uint32_t db, const struct kv_slice *argv, int argc);

/* Reserves, copies, publishes what was collected; locks are still held. */
void kv_stream_publish(struct kv_worker *w);

/* Wakes the readers that sleep. After publishing, with no lock held; any thread. */
void kv_stream_wake_readers(struct kv_engine *e);

/* Offset behind everything that was reserved so far. */
KV_INLINE uint64_t kv_stream_head(struct kv_stream *s)
{
    return atomic_load(&s->head) >> KV_STREAM_DB_BITS;
}

#endif
