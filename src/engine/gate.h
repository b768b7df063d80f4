/* The gate: how a command gets the whole keyspace for itself.
 *
 * Every worker has a flag `inside`, in a cache line of its own, that it raises before its first
 * shard lock and lowers after its last (one exchange each, once per batch). An exclusive command
 * closes the gate, waits until all flags are down, and runs alone. Nobody sleeps meanwhile:
 * commands that find the gate closed are parked in a list of their worker; an exclusive command
 * that finds a flag up for more than 5 us is parked too, and the worker that lowers its flag posts
 * it a message.
 *
 * Why no wake-up is lost: `inside` and `closed` are written and read sequentially consistent. A
 * worker raises its flag, then reads `closed`; the exclusive side writes `closed`, then reads the
 * flags: at least one of them sees the other. A worker lowers its flag, then reads `closed`: either
 * it sees the gate closed and notifies, or the exclusive side's later look sees the flag down.
 *
 * Fairness: exclusive commands queue in order of arrival. When one ends, the workers with parked
 * plain commands get a phase in which no exclusive command may close the gate, until each of them
 * has resumed its list once. So neither side can starve the other. A script that makes itself alone
 * meanwhile closes and opens the gate within a phase, so a worker may have several at once: each of
 * its messages ends one.
 *
 * World stop: an exclusive command may also need all other workers at a loop boundary (it will
 * touch their clients or options). It holds the gate, raises `stop` and waits until each worker
 * either waits for events or has stopped at the boundary; they go on when it lowers `stop`. Only a
 * gate holder stops the world, so there is one at a time, and the stopped ones wait for nobody
 * else.
 */
#ifndef KV_ENGINE_GATE_H
#define KV_ENGINE_GATE_H

#include "base/lock.h"
#include "engine/waitlist.h"
#include <stdatomic.h>

struct kv_client;
struct kv_engine;
struct kv_worker;

struct kv_gate {
    atomic_uint
        closed KV_ALIGNED(KV_CACHE_LINE);       /* 1 while an exclusive command owns or awaits it */
    atomic_uint stop KV_ALIGNED(KV_CACHE_LINE); /* 1 while the world is stopped */
    struct kv_mutex mutex KV_ALIGNED(KV_CACHE_LINE); /* guards the fields below */
    struct kv_client *owner; /* exclusive client that closed the gate, or NULL */
    struct kv_worker *owner_worker;
    bool owner_told;              /* a message for the owner to look again is underway */
    struct kv_waitlist exclusive; /* exclusive clients in order of arrival */
    uint32_t phase_pending;       /* phases of workers that have yet to resume what they parked */
    struct kv_worker *upgrader;   /* holds shards and has made itself alone, or NULL */
};

void kv_gate_init(struct kv_gate *g);
void kv_gate_release(struct kv_gate *g);

/* Plain side. False: the gate is closed. */
bool kv_gate_enter(struct kv_worker *w) KV_MUST_CHECK;
void kv_gate_leave(struct kv_worker *w);

/* Parks a plain client at the closed gate. False: it is open again, try to enter. */
bool kv_gate_park(struct kv_worker *w, struct kv_client *c) KV_MUST_CHECK;

/* Exclusive side. True: the caller runs alone until kv_gate_open. False: the client is queued and
 * will be resumed by a message; then it calls again. */
bool kv_gate_close(struct kv_worker *w, struct kv_client *c) KV_MUST_CHECK;
void kv_gate_open(struct kv_worker *w);

/* A script that holds the token and shards turns out to need more: from here on it is alone, ahead
 * of all exclusive commands that wait (its worker's flag is up, so none of them runs). There is one
 * token, so there is one upgrader, and whoever is inside besides holds what he needs and leaves:
 * waiting for him ends. */
void kv_gate_upgrade(struct kv_worker *w);
/* And back, before it lets go of its shards; what it did outside of them is published. */
void kv_gate_downgrade(struct kv_worker *w);

/* A client that may be queued or own the gate vanishes. */
void kv_gate_cancel(struct kv_worker *w, struct kv_client *c);

/* Message handlers of the worker. */
void kv_gate_on_open(struct kv_worker *w);
void kv_gate_on_recheck(struct kv_worker *w);
/* After the round that resumed what was parked: so many phases of the worker have ended. */
void kv_gate_phases_done(struct kv_worker *w, uint32_t phases);

/* World stop by the holder of the gate; and the stop point of the other workers. */
void kv_world_stop(struct kv_worker *w);
void kv_world_resume(struct kv_worker *w);
void kv_world_stop_point(struct kv_worker *w);

#endif
