/* Client-side caching: who is told that keys which it may have cached have changed.
 *
 * Terms
 *   tracker       a client that gets invalidations (CLIENT TRACKING ON): by what it has read
 *                 (default), or by prefixes of keys (BCAST)
 *   target        the client to which a tracker redirects its invalidations
 *   remembered    a key that a tracker has read: an entry of the key's shard with the ids of all
 *                 who have; it goes when they are told
 *   invalidation  the message: "these keys have changed", or "forget everything" (null)
 *
 * Keys are remembered without their database: whoever reads k in one is told of k in any.
 *
 * A change tells its trackers inside the causing command, before its locks go (delivery.h): whoever
 * has seen the reply finds them told. A reader is remembered under the lock under which it has
 * read, its reply already in its output: an invalidation of what it got comes behind it.
 *
 * Clients. Trackers and targets have a struct kv_tracking_client, found by id in a registry; they
 * do not move to another worker. Entries hold ids and not pointers, so a client that ends leaves at
 * once, however many keys it has read: what it leaves behind is swept by the home workers, in
 * slices. An entry that is about to grow forgets those who have gone first.
 *
 * Limits. `tracking-table-max-keys` bounds the entries: a further one makes a random one of its
 * shard (or itself) go, by telling its readers. When the limit is lowered, home workers do that in
 * slices. A client has at most KV_TRACKING_PREFIXES_MAX prefixes.
 *
 * Failure. A key for which there is no memory is invalidated at once. When there is none for the
 * message either, the receiver is closed, which tells it that its cache is worth nothing.
 *
 * Locks. Entries belong to their shard's lock; registry and prefixes to `mutex`, which ranks after
 * the channels'. Flags of a client are written by its worker under the mutex, or in KV_MODE_STOP.
 */
#ifndef KV_ENGINE_TRACKING_H
#define KV_ENGINE_TRACKING_H

#include "base/err.h"
#include "base/lock.h"
#include "base/slice.h"
#include "ds/table.h"
#include "store/store.h"
#include <stdatomic.h>

struct kv_call;
struct kv_client;
struct kv_delivery;
struct kv_engine;
struct kv_worker;

#define KV_TRACKING_PREFIXES_MAX 1024

enum kv_tracking_flags {
    KV_TRACKING_ON = 1u << 0,      /* else: a target only */
    KV_TRACKING_BCAST = 1u << 1,   /* by prefixes */
    KV_TRACKING_OPTIN = 1u << 2,   /* remembers only what is read behind CLIENT CACHING YES */
    KV_TRACKING_OPTOUT = 1u << 3,  /* all but what is read behind CLIENT CACHING NO */
    KV_TRACKING_NOLOOP = 1u << 4,  /* is not told of its own changes */
    KV_TRACKING_CACHING = 1u << 5, /* CLIENT CACHING was the last command */
    KV_TRACKING_BROKEN = 1u << 6,  /* its target has gone */
};

struct kv_tracking_prefix;

struct kv_tracking_client {
    struct kv_client *client;             /* others than its worker read `worker` alone */
    uint64_t id;                          /* of the client */
    uint64_t redirect;                    /* id of the target; 0: none */
    uint32_t flags;                       /* enum kv_tracking_flags */
    uint32_t prefix_count;                /* at most KV_TRACKING_PREFIXES_MAX */
    struct kv_tracking_prefix **prefixes; /* owned block of prefix_count, ascending by name */
    size_t bytes;                         /* blocks of this and of its part of the prefixes */
};

/* --- for commands --- */

struct kv_tracking_request {
    uint32_t flags; /* KV_TRACKING_BCAST to NOLOOP */
    uint64_t redirect;
    const struct kv_slice
        *prefixes; /* the new ones; they overlap neither each other nor old ones */
    uint32_t prefix_count;
};

/* Begins to track, or goes on with other options and further prefixes. The target, when there is
 * one, is `target`. KV_MODE_STOP. KV_ERR_NOMEM: nothing changed. */
enum kv_err kv_tracking_begin(struct kv_client *c, const struct kv_tracking_request *r,
                              struct kv_client *target) KV_MUST_CHECK;

/* Ends tracking: TRACKING OFF (KV_MODE_STOP); RESET (the client's worker). */
void kv_tracking_off(struct kv_client *c);
void kv_tracking_end(struct kv_client *c);

/* CLIENT CACHING: for the next command, or the transaction that follows. */
void kv_tracking_set_caching(struct kv_client *c);

/* Name of a prefix. */
struct kv_slice kv_tracking_prefix_name(const struct kv_tracking_prefix *p);

/* Flags of a client; 0: it does not track. */
uint32_t kv_tracking_flags(const struct kv_client *c);

/* The content has changed as a whole: everybody is told to forget everything. [alone] */
void kv_tracking_flushed(struct kv_worker *w);

struct kv_tracking_counts {
    uint64_t clients, keys, items, prefixes; /* items: readers of all keys */
};
void kv_tracking_count(struct kv_engine *e, struct kv_tracking_counts *out); /* any thread */

/* --- for engine/ --- */

struct kv_tracking_length {
    size_t len;
    uint32_t count; /* prefixes of this length */
};

struct kv_tracking {
    struct kv_mutex mutex;
    struct kv_table registry;           /* struct kv_tracking_client by id */
    struct kv_table prefixes;           /* struct kv_tracking_prefix by name */
    struct kv_tracking_length *lengths; /* that prefixes have; in no order */
    uint32_t length_count, length_capacity;
    _Atomic(uint32_t) clients;   /* that track */
    _Atomic(uint32_t) broadcast; /* by prefixes */
    _Atomic(uint32_t) departed;  /* counts ends of trackers that have read keys: time to sweep */
    _Atomic(uint64_t) key_count, item_count, prefix_count;
    struct kv_table *shards; /* entries of each shard */
};

struct kv_tracking_sweep { /* of a worker */
    uint32_t seen;         /* `departed` when the walk began */
    bool walking;          /* and whether it goes on */
    uint32_t shard;        /* where: the n-th home shard */
    uint64_t position;     /* in its table */
};

void kv_tracking_init(struct kv_engine *e);
void kv_tracking_release(struct kv_engine *e);

/* The client ends, or is dropped. */
void kv_tracking_forget(struct kv_client *c);

/* A tracker has run a command: remembers the keys that it has read. Their shards are held. */
void kv_tracking_ran(struct kv_call *call);
/* What CLIENT CACHING said was for a transaction that has ended, or a command that was refused. */
void kv_tracking_end_caching(struct kv_client *c);

/* A key changed; as the store's hook. */
void kv_tracking_changed(struct kv_view *view, const struct kv_key *key,
                         enum kv_event_class event_class);

/* A slice of sweeping or trimming, with the worker's periodic work. */
void kv_tracking_cron(struct kv_worker *w);

/* Deliveries of the worker's: their target is an id. */
void kv_tracking_deliver(struct kv_worker *w, const struct kv_delivery *d);

/* --- tracking_table.c: entries; their shard is held --- */

/* Remembers that client `id` has read a key. KV_ERR_NOMEM: not. */
enum kv_err kv_tracking_remember(struct kv_worker *w, const struct kv_key *key,
                                 uint64_t id) KV_MUST_CHECK;
/* Tells all who have read it, and forgets it. `origin`: whose command it was, or NULL. */
void kv_tracking_invalidate(struct kv_worker *w, const struct kv_key *key,
                            const struct kv_client *origin);
void kv_tracking_init_tables(struct kv_engine *e);
void kv_tracking_drop_all(struct kv_engine *e); /* [alone] forgets all, telling nobody */

/* --- tracking.c, for tracking_table.c --- */

/* Tells trackers of a key; those who have gone are skipped. Takes the mutex. */
void kv_tracking_tell(struct kv_worker *w, const uint64_t *ids, uint32_t count, struct kv_slice key,
                      const struct kv_client *origin);
/* Keeps the ids of those who still read keys; returns how many. Takes the mutex. */
uint32_t kv_tracking_living(struct kv_engine *e, uint64_t *ids, uint32_t count);

#endif
