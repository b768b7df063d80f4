/* Output and the append-only log: replies that wait until what they tell of is on disk.
 *
 * Terms
 *   log       the one reader of the change stream that makes it durable (persist/aof.h)
 *   durable   stream offset: everything before it is on disk
 *   hold      appendfsync always: output waits for the log
 *   tail      end of the stream when a worker's round ends
 *
 * Group commit. While output is held, whatever a connection gets to send in a round - replies to
 * writes and to reads, and messages of others - is not sent in it. At the end of the round the
 * worker looks at the stream's tail: all that its connections can have seen lies before it. If that
 * much is durable already, output goes at once; else the connections enter the list `held` with the
 * tail as their target, and a message from the log lets them go. So the log syncs once for all that
 * waits, a worker never waits itself, and a server that is only read never waits at all.
 *
 * A connection has at most one target. What it gets while it is held waits for a second one, which
 * it is given when the first is reached: output in a steady flow is late by two syncs at most and
 * never starves. How far it may send is a count of bytes, since output is sent in order.
 *
 * Who waits and who finishes, without a lost wake-up: a worker writes the smallest target into
 * `watch` and then looks at `durable` again; the log writes `durable` and then looks at all
 * `watch`es. Both are sequentially consistent, so one of them sees the other.
 *
 * Failure. When a write or sync of the log fails for good, nothing that waits is ever acknowledged:
 * writes are denied, `failed` is set, and each worker closes the connections that it holds. Those
 * that come to the end of their round later are closed if a write of theirs is not durable; reads
 * go on and are answered at once. What they tell may then be missing after a crash, until a fresh
 * base of the log has been written (kv_commit_recover), as the log says when it fails.
 *
 * WAITAOF uses the same offsets: a connection that waits is in its worker's list `waiting`, with
 * the offset behind its own last write. Its worker alone touches it.
 *
 * Denial of writes: a source (the log) says errno, and writes are refused with MISCONF until it
 * says 0. Looking is one load. */
#ifndef KV_ENGINE_COMMIT_H
#define KV_ENGINE_COMMIT_H

#include "engine/call.h"
#include "engine/client.h"
#include "engine/waitlist.h"

#define KV_DENIAL_TEXT 512 /* bytes of a refusal */

struct kv_commit { /* of the engine */
    _Atomic(uint64_t) durable KV_ALIGNED(KV_CACHE_LINE);
    atomic_bool holds;    /* changes in KV_MODE_STOP */
    atomic_bool failed;   /* the log lost something and has no fresh base yet */
    atomic_bool open;     /* there is a log */
    atomic_int denied;    /* errno for which writes are refused; 0: they are not */
    atomic_uint refusals; /* enum kv_refusal */
};

/* Further reasons for which commands are refused, in one word, since each of them looks. */
enum kv_refusal {
    KV_REFUSE_UNSAVED = 1, /* writes: snapshots cannot be saved */
    KV_REFUSE_LOADING = 2, /* all without the flag `loading`: engine/loading.h */
};

struct kv_worker_commit {                       /* of a worker; its thread's, but for `watch` */
    struct kv_client *fresh_first, *fresh_last; /* have output of this round */
    struct kv_client *held_first, *held_last;   /* wait for targets, which rise */
    struct kv_waitlist waiting;                 /* WAITAOF */
    bool more;                                  /* somebody has begun to wait in this round */
    int64_t next_ms;         /* earliest deadline of them, monotonic; INT64_MAX: none */
    _Atomic(uint64_t) watch; /* smallest offset waited for; UINT64_MAX: none */
};

/* --- for the log; any thread --- */

/* Everything before `offset` is durable. Rises only. */
void kv_commit_advance(struct kv_engine *e, uint64_t offset);
/* What is not durable will not become so: see Failure. Deny writes first. */
void kv_commit_fail(struct kv_engine *e);
/* A fresh base holds all before `offset`. */
void kv_commit_recover(struct kv_engine *e, uint64_t offset);
/* Refuses writes because of an errno, or (0) takes them again. */
void kv_commit_deny(struct kv_engine *e, int error);
/* The same for snapshots that cannot be saved (stop-writes-on-bgsave-error). */
void kv_commit_deny_unsaved(struct kv_engine *e, bool denied);
/* True when somebody waits for more than is durable. */
bool kv_commit_wanted(struct kv_engine *e);
/* Whether there is a log, and whether output waits for it. [KV_MODE_STOP, or before workers run] */
void kv_commit_set(struct kv_engine *e, bool open, bool holds);

/* --- for commands --- */

/* WAITAOF: whether there is a log; offset behind the client's last write, 0 when it has written
 * nothing; whether that is durable. */
bool kv_commit_is_open(struct kv_engine *e);
bool kv_commit_reached(const struct kv_client *c);

/* Blocks the client of the call until its writes are durable (`local`), or for the time only; 0:
 * for ever. Without a reply then; the reply of WAITAOF is written when it ends. False: nothing
 * blocks here. */
bool kv_call_wait_durable(struct kv_call *call, bool local, int64_t timeout_ms) KV_MUST_CHECK;

/* --- for engine/ --- */

void kv_commit_init(struct kv_worker *w);
void kv_commit_round(struct kv_worker *w);      /* the round ends */
void kv_commit_on_durable(struct kv_worker *w); /* messages */
void kv_commit_on_failed(struct kv_worker *w);
void kv_commit_forget(struct kv_client *c);                   /* it vanishes */
void kv_commit_unwait(struct kv_client *c);                   /* it waits no more, if it did */
bool kv_commit_unblock(struct kv_client *c, bool with_error); /* CLIENT UNBLOCK [KV_MODE_STOP] */

/* How many bytes of the client's output may be sent now; the rest enters a list. A connection that
 * must not be answered is closed. For a client that kv_commit_concerns (worker.h). */
uint64_t kv_commit_limit(struct kv_client *c);
/* A client with too much output that waits runs no more commands until it is sent. */
void kv_commit_park(struct kv_client *c);
/* A command or batch of the client was released: remembers where its write ends. */
void kv_commit_note_write(struct kv_client *c);
void kv_commit_note_served(struct kv_client *c);

/* The refusal of a write. */
void kv_commit_denial(const struct kv_engine *e, char text[KV_DENIAL_TEXT]);

KV_INLINE bool kv_commit_waits(const struct kv_client *c)
{
    return c->flags & KV_CLIENT_BLOCKED && c->waiter == NULL && c->errand == NULL;
}

#endif
