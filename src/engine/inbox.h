/* Messages between workers. A worker's inbox takes messages from any thread; the worker drains it
 * before it executes what it read, so whoever has seen a reply finds that command's effects
 * delivered everywhere. Nobody touches another worker's connections: what concerns them travels as
 * a message.
 *
 * Multi-producer, single-consumer: producers push onto a stack with one compare-and-swap, the
 * consumer takes the whole stack with one exchange and reverses it, so messages of one producer
 * stay in order. Looking into an empty inbox is one plain load.
 */
#ifndef KV_ENGINE_INBOX_H
#define KV_ENGINE_INBOX_H

#include "base/compiler.h"
#include <stdatomic.h>

struct kv_worker;

enum kv_message_kind {
    KV_MSG_SHARD_FREE,     /* resume connections parked at shard `number` */
    KV_MSG_GATE_OPEN,      /* resume connections parked at the gate */
    KV_MSG_GATE_RECHECK,   /* the exclusive command that owns the gate may run now */
    KV_MSG_STREAM_SPACE,   /* the change stream has room again */
    KV_MSG_ACCEPTED,       /* a new connection: descriptor in `number`, flags in `number2` */
    KV_MSG_MOVED,          /* a connection handed over: client in `pointer` */
    KV_MSG_SERVED,         /* a blocked client was served: the reply in `pointer` */
    KV_MSG_RETRY,          /* the waiter in `pointer` must serve its keys itself */
    KV_MSG_UNBLOCKED,      /* the waiter in `pointer` was cancelled */
    KV_MSG_SNAPSHOT_WALK,  /* a snapshot began: walk over the home shards */
    KV_MSG_SNAPSHOT_FLUSH, /* all have walked: hand over the buffer */
    KV_MSG_ALONE,          /* the job in `pointer` is to run behind the gate */
    KV_MSG_ERRAND,         /* the errand in `pointer` is back from its thread */
    KV_MSG_PURGE,          /* give unused memory back (MEMORY PURGE) */
    KV_MSG_DURABLE,        /* the log has come to an offset that the worker watches */
    KV_MSG_LOG_FAILED,     /* what waits for the log will never be durable */
    KV_MSG_SCRIPT_BUSY,    /* a script is busy: who waits for it is told */
};

struct kv_message {
    struct kv_message *next;
    enum kv_message_kind kind;
    uint32_t number, number2;
    void *pointer;
};

struct kv_inbox {
    _Atomic(struct kv_message *) head; /* newest first */
} KV_ALIGNED(KV_CACHE_LINE);

/* Delivers a message and wakes the worker's loop. Any thread; allocates the message. */
void kv_inbox_post(struct kv_worker *to, enum kv_message_kind kind, uint32_t number,
                   uint32_t number2, void *pointer);

/* All waiting messages, oldest first, or NULL; the caller frees each with kv_inbox_free. */
struct kv_message *kv_inbox_take(struct kv_inbox *inbox);
void kv_inbox_free(struct kv_message *m);

KV_INLINE bool kv_inbox_empty(struct kv_inbox *inbox)
{
    return atomic_load_explicit(&inbox->head, memory_order_acquire) == NULL;
}

#endif
