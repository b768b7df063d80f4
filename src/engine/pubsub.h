/* Channels, patterns and their subscribers: SUBSCRIBE, PUBLISH and their like.
 *
 * Terms
 *   channel       what somebody is subscribed to: a channel, a pattern or a shard channel (kind);
 *                 exists while it has a subscription
 *   part          the subscriptions of one worker's clients to a channel
 *   subscription  one client, one channel
 *   set           channels with one lock: those of the same hash bits, or all patterns
 *
 * Locks. A set's mutex guards its table, its channels' lists of parts and their counts. A part's
 * list of subscriptions belongs to its worker alone. A mutex ranks after shard locks, so whatever
 * a command publishes is posted before its locks go; a pattern set's after a channel set's.
 *
 * Publishing posts one payload for each part, under the channel's lock (and the patterns', when
 * there are any): all subscribers of a channel see one order. The reply counts the subscriptions
 * that were there at that moment, and exactly those get the message, because subscribing and
 * unsubscribing are exact as well: under the channel's lock, when nobody can post, the worker
 * empties its mailbox; what was published before goes to those who were subscribed then. For the
 * same reason a part can be freed when its last subscription goes: no delivery refers to it.
 *
 * Clients. A subscribed client has a struct kv_subscriber: its subscriptions by kind, in the order
 * they were made, and their bytes, which count to the client. Whether a client is subscribed to a
 * channel is answered by a table of the worker, over all its subscriptions. Subscribed clients do
 * not move to another worker. Unsubscribing takes constant time each; a client that ends leaves
 * all its channels at once.
 *
 * Failure. A subscription for which there is no memory leaves nothing behind; a message for which
 * there is none reaches nobody.
 */
#ifndef KV_ENGINE_PUBSUB_H
#define KV_ENGINE_PUBSUB_H

#include "base/err.h"
#include "base/lock.h"
#include "base/slice.h"
#include "ds/table.h"
#include "engine/client.h"
#include <stdatomic.h>

struct kv_channel;
struct kv_channel_part;
struct kv_engine;
struct kv_payload;
struct kv_subscription;

enum kv_channel_kind {
    KV_CHANNEL_PLAIN,   /* SUBSCRIBE */
    KV_CHANNEL_PATTERN, /* PSUBSCRIBE */
    KV_CHANNEL_SHARD,   /* SSUBSCRIBE */
    KV_CHANNEL_KINDS
};

/* Of a client with at least one subscription. */
struct kv_subscriber {
    struct {
        struct kv_subscription *first, *last; /* in the order they were made */
        uint32_t count;
    } kinds[KV_CHANNEL_KINDS];
    size_t bytes; /* blocks of this and of all that its subscriptions keep; shared channels count
                     for each client */
};

/* --- for commands; the client's worker --- */

/* *added: false when it was subscribed already. KV_ERR_NOMEM: nothing changed. The client must be
 * framed (delivery.h), or messages of the channel may precede the confirmation. */
enum kv_err kv_pubsub_subscribe(struct kv_client *c, enum kv_channel_kind kind,
                                struct kv_slice name, bool *added) KV_MUST_CHECK;

/* False: it was not subscribed. What was published before has been delivered on return. */
bool kv_pubsub_unsubscribe(struct kv_client *c, enum kv_channel_kind kind, struct kv_slice name);

/* All of a kind; `left` (or NULL) is called for each when it is gone and what was published before
 * is delivered. It may write to outputs, no more. */
void kv_pubsub_leave(struct kv_client *c, enum kv_channel_kind kind,
                     void (*left)(void *arg, struct kv_slice name), void *arg);

/* Visits the client's own of a kind, in the order they were made. */
void kv_pubsub_each_own(const struct kv_client *c, enum kv_channel_kind kind,
                        void (*visit)(void *arg, struct kv_slice name), void *arg);

/* All of all kinds: RESET, and a client that ends. */
void kv_pubsub_forget(struct kv_client *c);

KV_INLINE uint32_t kv_pubsub_count(const struct kv_client *c, enum kv_channel_kind kind)
{
    return c->subscriber != NULL ? c->subscriber->kinds[kind].count : 0;
}

/* RESP2 cannot tell a message from a reply: such a client may send few commands only. */
KV_INLINE bool kv_pubsub_restricts(const struct kv_client *c)
{
    return c->subscriber != NULL && c->resp == 2;
}

/* Sends a message to the subscribers of a channel and, when it is KV_CHANNEL_PLAIN, of patterns
 * that fit it. *receivers: how many get it. Locks of shards may be held. KV_ERR_NOMEM: nobody gets
 * it. */
enum kv_err kv_pubsub_publish(struct kv_worker *w, enum kv_channel_kind kind,
                              struct kv_slice channel, struct kv_slice message,
                              uint64_t *receivers) KV_MUST_CHECK;

/* --- looking; any worker --- */

/* Channels (patterns) of a kind that exist. */
uint64_t kv_pubsub_channel_count(const struct kv_engine *e, enum kv_channel_kind kind);

/* Subscriptions to a channel. */
uint64_t kv_pubsub_subscriptions(struct kv_engine *e, enum kv_channel_kind kind,
                                 struct kv_slice name);

/* Visits the channels of a kind, but not patterns, one set after the other; under its lock: the
 * visitor may write to an output, no more. */
void kv_pubsub_each(struct kv_engine *e, enum kv_channel_kind kind,
                    void (*visit)(void *arg, struct kv_slice name), void *arg);

/* --- for engine/ --- */

struct kv_channel_set {
    struct kv_mutex mutex;
    atomic_uint count;               /* channels in the table; a hint without the lock */
    struct kv_table channels;        /* struct kv_channel */
    struct kv_channel *first, *last; /* the same, in the order they appeared */
} KV_ALIGNED(KV_CACHE_LINE);

struct kv_pubsub { /* of the engine */
    struct kv_channel_set *sets;
    uint32_t set_count; /* power of two */
    struct kv_channel_set patterns;
    _Atomic(uint64_t) channel_count[KV_CHANNEL_KINDS];
};

void kv_pubsub_init(struct kv_engine *e);
void kv_pubsub_release(struct kv_engine *e);
/* The worker's table of subscriptions. */
void kv_pubsub_init_table(struct kv_table *subscriptions);

/* A delivery of the worker's has come. */
void kv_pubsub_deliver(struct kv_channel_part *part, struct kv_payload *payload);

#endif
