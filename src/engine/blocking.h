/* Clients that wait for a key: BLPOP and its like.
 *
 * Terms
 *   waiter    what a blocked client leaves behind: its command line, copied, and a place in the
 * queue of each key it waits for (kv_store_wait). One block, owned by the client's worker. serve to
 * run a waiter's command for it because one of its keys has changed needed    keys of the command
 * beside those it waits for (BLMOVE's destination)
 *
 * A command that finds nothing calls kv_call_wait and returns without a reply. Whoever changes one
 * of the keys serves its queue, longest waiting first, after its command, EXEC or script, under its
 * own locks: it runs the waiter's command, with KV_CALL_SERVES and the key that is ready as
 * keys[0], into a reply of its own and posts that to the waiter's worker before it unlocks. So
 * first come is first served over all workers, an element is popped before anybody else can see it,
 * and a served command may make the next key ready (chains of BLMOVE) within the same step.
 *
 * A command function that serves must write its whole reply, or nothing at all when the key cannot
 * serve it (gone, empty, another type): the client then goes on waiting.
 *
 * Where a needed key's shard is not locked by the one who serves, the waiter gets a message instead
 * (retry): its worker takes the gate and serves its keys alone. Meanwhile nobody behind it in the
 * queue is served.
 *
 * State. WAITING becomes CLAIMED by whoever serves or CANCELLED by its worker (timeout, the client
 * vanished) or by who stands alone (CLIENT UNBLOCK, a change of users), by compare-and-swap;
 * whoever loses lets the other's outcome stand.
 * A claim in vain becomes WAITING again, or CANCELLED if its worker has wanted that meanwhile.
 * Only its worker frees it, after it has taken all its places out of their queues, which needs the
 * shards' locks one at a time: what is busy is tried again each round.
 *
 * Inside EXEC, in a served command and for a client that applies a stream nothing blocks:
 * kv_call_wait answers false and the command replies null.
 */
#ifndef KV_ENGINE_BLOCKING_H
#define KV_ENGINE_BLOCKING_H

#include "engine/call.h"
#include "store/store.h"

struct kv_waiter;

/* Blocks the client of the call on the first `wait_count` of its keys; the other keys are needed.
 * `timeout_ms` 0: for ever. `type`: a key of another type is not ready. True: blocked (or memory
 * was short and that is replied): return without a reply. False: nothing blocks here, reply as if
 * the time were over. */
bool kv_call_wait(struct kv_call *call, enum kv_type type, int wait_count,
                  int64_t timeout_ms) KV_MUST_CHECK;

/* Argument `arg` as a timeout in seconds with fractions: false after an error reply. 0: for ever.
 */
bool kv_call_timeout(struct kv_call *call, int arg, int64_t *timeout_ms) KV_MUST_CHECK;

KV_INLINE bool kv_call_serves(const struct kv_call *call)
{
    return call->flags & KV_CALL_SERVES;
}

/* The time to wait, for a command that may be run again for a waiting client: then it was checked
 * before and is not looked at. */
KV_INLINE bool kv_call_wait_time(struct kv_call *call, int arg, int64_t *timeout_ms)
{
    *timeout_ms = 0;
    return kv_call_serves(call) || kv_call_timeout(call, arg, timeout_ms);
}

/* CLIENT UNBLOCK [KV_MODE_STOP]: ends the wait of a client as by its timeout, or with the error
 * UNBLOCKED. False: it does not wait, or is being served. */
bool kv_client_unblock(struct kv_client *c, bool with_error);

/* --- for engine/ --- */

struct kv_blocking {              /* of a worker; its thread's alone */
    struct kv_waiter **deadlines; /* heap by deadline, of those with one; owned */
    uint32_t deadline_len, deadline_capacity;
    struct kv_waiter *leaving; /* places of theirs are still in queues */
    struct kv_ready *ready;    /* keys that changed during this command; owned array */
    uint32_t ready_len, ready_capacity;
    struct kv_served *served_first, *served_last; /* replies to post before unlocking */
    bool serving;
};

/* Hook of the store: key k of view->db changed and somebody waits for it. */
void kv_blocking_ready(struct kv_view *view, const struct kv_key *k);

/* Serves the queues of all keys that became ready. Locks are still held; `call` is not touched. */
void kv_blocking_serve(struct kv_worker *w);

/* Posts what was served: after the change stream was published, before locks are let go. */
void kv_blocking_post(struct kv_worker *w);

/* Each round: ends the waits whose time is over; frees what has left. */
void kv_blocking_round(struct kv_worker *w);

/* When the next wait is over, monotonic ms; INT64_MAX: never. 0: places are to be taken out. */
int64_t kv_blocking_next_ms(const struct kv_worker *w);

/* Users have changed [KV_MODE_STOP]: a wait whose command the client's user may not run any more
 * ends with that denial, which is logged. */
void kv_blocking_recheck(struct kv_client *c);

/* Ends the wait of a client that is going to be closed, so that nobody serves it until then.
 * [KV_MODE_STOP] */
void kv_blocking_end(struct kv_client *c);

/* The client vanishes while it waits. */
void kv_blocking_leave(struct kv_client *c);

/* A blocked client is resumed because it must serve its keys itself, behind the gate. */
void kv_blocking_retry(struct kv_client *c);

/* Message handlers: the pointers are those of the messages. */
void kv_blocking_on_served(struct kv_worker *w, void *served);
void kv_blocking_on_retry(struct kv_worker *w, void *waiter);
void kv_blocking_on_unblocked(struct kv_worker *w, void *waiter);

void kv_blocking_release(struct kv_worker *w); /* no client waits any more */

bool kv_waiter_has_deadline(const struct kv_waiter *wt);

/* Bytes of the client's waiter. */
size_t kv_waiter_memory(const struct kv_waiter *wt);

#endif
