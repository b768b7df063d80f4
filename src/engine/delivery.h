/* What reaches clients that have not asked for it just now: messages of channels and notifications,
 * of whichever worker, in both protocols.
 *
 * Terms
 *   payload   the bytes that all receivers of a message get, encoded once; never changed, counted
 *             by reference, since outputs of many clients on many workers may refer to it
 *   delivery  a payload on its way to a worker, with what tells the worker whom it is for
 *   mailbox   a worker's queue of deliveries: pushed by any thread, taken by the worker alone
 *   framed    the client whose command writes one reply in many pieces (EXEC): what is delivered
 *             to it meanwhile is held back until that reply is complete
 *
 * Order. Whoever posts does so before the causing command lets go of its locks, and posts to his
 * own worker in the same way. A worker empties its mailbox before it runs what it has read and
 * behind each command; of a batch behind each one when its client gets messages, else at its end
 * (other clients' outputs are sent later anyway). So
 *   - whoever has seen a reply finds its messages delivered: they come before the answer to
 *     whatever he sends then, on any connection;
 *   - a client that gets a message of its own command gets the reply first;
 *   - what one thread posts to one worker arrives in that order; what is posted under one lock
 *     arrives in the same order everywhere.
 * Deliveries are apart from the inbox (inbox.h) because emptying a mailbox does nothing but append
 * to outputs: it may happen in the middle of a command and under a channel's lock, which makes
 * subscribing exact (pubsub.h).
 *
 * Sending. A client that got something enters its worker's list `sending`; the list is worked off
 * when the round ends, or earlier when much has come together. So a burst of messages costs a
 * client one system call. Small payloads are copied into small chunks (kv_out_reserve_lean), large
 * ones are referred to; either counts to the client's output and its limits.
 *
 * Failure. Payloads are as large as clients like: they come from try allocations. Everything else
 * here is small.
 */
#ifndef KV_ENGINE_DELIVERY_H
#define KV_ENGINE_DELIVERY_H

#include "base/slice.h"
#include "proto/out.h"
#include <stdatomic.h>

struct kv_call;
struct kv_client;
struct kv_worker;

struct kv_payload {
    _Atomic(uint64_t) refs;
    size_t block_bytes; /* of this block, as requested */
    size_t len;
    char bytes[];
};

/* Room for `len` bytes, with one reference; the caller fills it. NULL: no memory. */
struct kv_payload *kv_payload_try_create(size_t len) KV_MUST_CHECK;
void kv_payload_ref(struct kv_payload *p);
void kv_payload_unref(struct kv_payload *p); /* any thread */

/* Bytes of s as a bulk string, and writing it: returns the place behind. */
size_t kv_payload_bulk_len(size_t len);
char *kv_payload_write_bulk(char *to, struct kv_slice s);

enum kv_delivery_kind {
    KV_DELIVER_CHANNEL, /* target: struct kv_channel_part */
    /* target: the id of a client (tracking.h) */
    KV_DELIVER_KEYS,            /* payload: the list of invalid keys */
    KV_DELIVER_KEYS_REDIRECTED, /* likewise, of another client */
    KV_DELIVER_ALL,             /* all keys are invalid; no payload */
    KV_DELIVER_ALL_REDIRECTED,
    KV_DELIVER_BROKEN,  /* the target of its redirection has gone; no payload */
    KV_DELIVER_MONITOR, /* no target; payload: a line for all monitors of the worker */
    KV_DELIVER_LOST,    /* there was no memory for a payload: it is closed */
};

struct kv_delivery {
    struct kv_delivery *next;
    enum kv_delivery_kind kind;
    void *target;
    struct kv_payload *payload; /* a reference, or NULL */
};

struct kv_mailbox {
    _Atomic(struct kv_delivery *) head; /* newest first */
} KV_ALIGNED(KV_CACHE_LINE);

/* Posts a payload (or NULL), of which a reference is taken. `from` is the calling thread's worker.
 */
void kv_delivery_post(struct kv_worker *from, struct kv_worker *to, enum kv_delivery_kind kind,
                      void *target, struct kv_payload *payload);

/* Appends what is in the mailbox to the outputs of its receivers. The worker's thread; also inside
 * a command and under a channel's lock. */
void kv_delivery_drain(struct kv_worker *w);

/* After a command, or before the next: drains, and sends when much has come together. No lock is
 * held. */
void kv_delivery_settle(struct kv_worker *w);

/* The round ends: drains and sends everything. */
void kv_delivery_round(struct kv_worker *w);

/* Has what a client of this worker has pending sent when the round ends, or earlier. */
void kv_delivery_send_later(struct kv_client *c);

/* Gives a client of this worker the pieces and the payload behind them (may be NULL). A client that
 * is being closed gets nothing. Applies the output limits; neither sends nor frees anything. */
void kv_delivery_give(struct kv_client *c, const struct kv_slice *pieces, int count,
                      struct kv_payload *payload);

/* The client vanishes. */
void kv_delivery_forget(struct kv_client *c);

/* From here on until its command has ended, deliveries to the client are held back. */
void kv_delivery_frame(struct kv_client *c);
/* The command has ended: what was held back follows its reply. Nothing without frame. */
void kv_delivery_unframe(struct kv_client *c);

/* Where a command writes what is a message rather than a reply (the confirmations of SUBSCRIBE):
 * its reply, but when CLIENT REPLY mutes that, a place that is not muted. */
struct kv_out *kv_call_message_out(struct kv_call *call);

#endif
