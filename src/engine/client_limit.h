/* Memory of connections: how much all of them hold, and disconnecting the largest when that passes
 * maxmemory-clients.
 *
 * Terms
 *   counted   a connection whose memory belongs to its worker's total: every one with a socket
 *             that is no link to another server
 *   kept      counted, but never disconnected for memory (CLIENT NO-EVICT)
 *   bucket    the counted and not kept connections of one size class of a worker: a list, and the
 *             sum of their bytes for the other workers to read
 *
 * Life of a connection here: enter when its worker links it, touch whenever its worker has done
 * something for it, leave when the worker unlinks it. Whoever makes a connection's memory grow
 * outside of its own commands has to touch it too.
 *
 * Threads: everything belongs to the worker that owns the connection; the sums may be read by any.
 */
#ifndef KV_ENGINE_CLIENT_LIMIT_H
#define KV_ENGINE_CLIENT_LIMIT_H

#include "base/stat.h"
#include "engine/client.h"

#define KV_CLIENT_BUCKETS 24                 /* doubling: below 1 KiB, ... from 4 GiB on */
#define KV_CLIENT_BUCKET_KEPT ((uint8_t)254) /* counted, in no bucket */
#define KV_CLIENT_BUCKET_NONE ((uint8_t)255) /* not counted */

/* Growth of a worker's total after which the limit is looked at before the round ends. */
#define KV_CLIENT_LIMIT_STEP_BYTES ((uint64_t)64 * 1024)

/* A worker's part. */
struct kv_client_limit {
    kv_stat total_bytes;                          /* of all counted; written by the worker alone */
    kv_stat bucket_bytes[KV_CLIENT_BUCKETS];      /* by bucket; likewise. 0: the bucket is empty */
    struct kv_client *buckets[KV_CLIENT_BUCKETS]; /* own: latest first (bucket_next) */
    uint64_t grown_bytes;                         /* own: since the limit was looked at */
    bool more;                                    /* own: still above it, go on in the next round */
};

/* Counts a connection that its worker has linked, with what it holds now; not one that is being
 * closed. */
void kv_client_limit_enter(struct kv_client *c);

/* The connection no longer counts. Nothing happens when it did not. Also in KV_MODE_STOP. */
void kv_client_limit_leave(struct kv_client *c);

/* It holds `bytes` now (kv_client_memory). Disconnects nobody. */
void kv_client_limit_recount(struct kv_client *c, size_t bytes);

/* Slow path of touch. */
void kv_client_limit_touched(struct kv_client *c);

/* Measures the connection; when the worker's total has grown by a step since the last time, also
 * applies the limit. So this may drop what this and other connections of the worker hold: no lock
 * is held, and nothing of theirs is in use. Budget 12 instructions for one that holds nothing. */
KV_INLINE void kv_client_limit_touch(struct kv_client *c)
{
    if (KV_LIKELY(c->in == NULL && c->out.chunk_bytes == 0 && c->partial == NULL && c->tx == NULL &&
                  c->waiter == NULL && c->subscriber == NULL && c->counted_bytes == c->base_bytes))
        return;
    kv_client_limit_touched(c);
}

/* End of a round: applies the limit. Without a limit, one load. */
void kv_client_limit_round(struct kv_worker *w);

/* Walks the worker's connections and compares with what was counted; ends the process when they
 * differ. For tests and debug builds, between two events. */
void kv_client_limit_check(struct kv_worker *w);

#endif
