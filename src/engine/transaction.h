/* MULTI, EXEC and WATCH, as the command functions see them. A connection has a transaction record
 * only between MULTI or WATCH and EXEC, DISCARD, UNWATCH or its end. Owner worker only. */
#ifndef KV_ENGINE_TRANSACTION_H
#define KV_ENGINE_TRANSACTION_H

#include "engine/call.h"

/* MULTI: commands are queued from now on. */
void kv_tx_begin(struct kv_client *c);

/* Forgets the queue and leaves the MULTI state; watches stay. */
void kv_tx_discard(struct kv_client *c);

/* WATCH: the call's keys, whose shards are held. KV_ERR_NOMEM: those before the failing one are
 * watched. A key that is watched already is not watched again. */
enum kv_err kv_tx_watch(struct kv_call *call) KV_MUST_CHECK;

/* Ends all watches of the connection. What cannot be locked at once is left to the worker, which
 * releases it within its next rounds. No shard may be held. */
void kv_tx_unwatch_all(struct kv_client *c);

#endif
