/* Payloads, mailboxes and the list of clients to send to: the model is in delivery.h.
 *
 * A mailbox is a stack pushed with compare-and-swap and taken whole, as the inbox is. What is held
 * back for a framed client collects in `held`, an output of the worker: only one command runs at a
 * time, so there is at most one such client, and when its command has ended the bytes are copied
 * behind the reply.
 *
 * A message is appended in pieces (head, perhaps a pattern, payload) that are copied into one place
 * while they are small. A payload of PAYLOAD_REF_BYTES and more is referred to: one atomic
 * increment and a chunk's header instead of the copy. Below, the copy is cheaper, and clients that
 * get many small messages send them in few parts.
 *
 * Rejected: sending at once (a pipelined publisher would cost a system call for each message and
 * receiver); one encoding for each protocol (they differ in the first byte, which is in the head).
 */
#include "engine/delivery.h"
#include "base/number.h"
#include "engine/monitor.h"
#include "engine/pubsub.h"
#include "engine/tracking.h"
#include "engine/worker.h"

#define PAYLOAD_REF_BYTES 1024
#define SEND_BYTES ((size_t)256 * 1024) /* appended to outputs since they were sent */

/* --- payloads --- */

struct kv_payload *kv_payload_try_create(size_t len)
{
    size_t size = sizeof(struct kv_payload) + len;
    struct kv_payload *p = kv_mem_try_alloc(size, KV_MEM_CLIENT_OUTPUT);
    if (p == NULL)
        return NULL;
    atomic_store_explicit(&p->refs, 1, memory_order_relaxed);
    p->block_bytes = size;
    p->len = len;
    return p;
}

void kv_payload_ref(struct kv_payload *p)
{
    atomic_fetch_add_explicit(&p->refs, 1, memory_order_relaxed);
}

void kv_payload_unref(struct kv_payload *p)
{
    if (atomic_fetch_sub_explicit(&p->refs, 1, memory_order_acq_rel) == 1)
        kv_mem_free(p, p->block_bytes, KV_MEM_CLIENT_OUTPUT);
}

static void release_payload(void *payload)
{
    kv_payload_unref(payload);
}

size_t kv_payload_bulk_len(size_t len)
{
    return 1 + kv_int_digits((int64_t)len) + 2 + len + 2;
}

char *kv_payload_write_bulk(char *to, struct kv_slice s)
{
    *to++ = '$';
    to += kv_uint_print(s.len, to);
    *to++ = '\r';
    *to++ = '\n';
    if (s.len > 0)
        memcpy(to, s.ptr, s.len);
    to += s.len;
    *to++ = '\r';
    *to++ = '\n';
    return to;
}

/* --- mailboxes --- */

void kv_delivery_post(struct kv_worker *from, struct kv_worker *to, enum kv_delivery_kind kind,
                      void *target, struct kv_payload *payload)
{
    struct kv_delivery *d = kv_mem_alloc(sizeof(*d), KV_MEM_CLIENT_OUTPUT);
    if (KV_LIKELY(payload != NULL))
        kv_payload_ref(payload);
    *d = (struct kv_delivery){.kind = kind, .target = target, .payload = payload};
    d->next = atomic_load_explicit(&to->mailbox.head, memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&to->mailbox.head, &d->next, d,
                                                  memory_order_release, memory_order_relaxed))
        continue;
    if (to != from)
        kv_loop_wake(to->loop);
}

static struct kv_delivery *take_all(struct kv_mailbox *box)
{
    struct kv_delivery *d = atomic_exchange_explicit(&box->head, NULL, memory_order_acquire);
    struct kv_delivery *oldest_first = NULL;
    while (d != NULL) {
        struct kv_delivery *next = d->next;
        d->next = oldest_first;
        oldest_first = d;
        d = next;
    }
    return oldest_first;
}

static void deliver(struct kv_worker *w, const struct kv_delivery *d)
{
    switch (d->kind) {
    case KV_DELIVER_CHANNEL:
        kv_pubsub_deliver(d->target, d->payload);
        break;
    case KV_DELIVER_KEYS:
    case KV_DELIVER_KEYS_REDIRECTED:
    case KV_DELIVER_ALL:
    case KV_DELIVER_ALL_REDIRECTED:
    case KV_DELIVER_BROKEN:
    case KV_DELIVER_LOST:
        kv_tracking_deliver(w, d);
        break;
    case KV_DELIVER_MONITOR:
        kv_monitor_deliver(w, d->payload);
        break;
    }
}

void kv_delivery_drain(struct kv_worker *w)
{
    KV_DASSERT(w == kv_this_worker);
    while (KV_UNLIKELY(kv_delivery_pending(w))) {
        struct kv_delivery *next;
        for (struct kv_delivery *d = take_all(&w->mailbox); d != NULL; d = next) {
            next = d->next;
            deliver(w, d);
            if (KV_LIKELY(d->payload != NULL))
                kv_payload_unref(d->payload);
            kv_mem_free(d, sizeof(*d), KV_MEM_CLIENT_OUTPUT);
        }
    }
}

/* --- outputs --- */

static void list_for_sending(struct kv_worker *w, struct kv_client *c)
{
    if (c->flags & KV_CLIENT_TO_SEND)
        return;
    c->flags |= KV_CLIENT_TO_SEND;
    c->send_next = NULL;
    c->send_prev = w->sending_last;
    if (w->sending_last != NULL)
        w->sending_last->send_next = c;
    else
        w->sending = c;
    w->sending_last = c;
}

void kv_delivery_send_later(struct kv_client *c)
{
    list_for_sending(c->worker, c);
}

static void unlist(struct kv_worker *w, struct kv_client *c)
{
    if (c->send_prev != NULL)
        c->send_prev->send_next = c->send_next;
    else
        w->sending = c->send_next;
    if (c->send_next != NULL)
        c->send_next->send_prev = c->send_prev;
    else
        w->sending_last = c->send_prev;
    c->send_next = c->send_prev = NULL;
    c->flags &= ~(uint32_t)KV_CLIENT_TO_SEND;
}

void kv_delivery_give(struct kv_client *c, const struct kv_slice *pieces, int count,
                      struct kv_payload *payload)
{
    struct kv_worker *w = c->worker;
    KV_DASSERT(w == kv_this_worker);
    if (KV_UNLIKELY(c->flags & (KV_CLIENT_CLOSE_NOW | KV_CLIENT_CLOSE_AFTER)))
        return;
    struct kv_out *out = KV_UNLIKELY(c == w->framed) ? &w->held : &c->out;
    bool refer = payload != NULL && payload->len >= PAYLOAD_REF_BYTES;
    size_t len = payload != NULL && !refer ? payload->len : 0;
    for (int i = 0; i < count; i++)
        len += pieces[i].len;
    kv_out_reserve_lean(out, len);
    for (int i = 0; i < count; i++)
        kv_out_append(out, pieces[i].ptr, pieces[i].len);
    if (payload != NULL && !refer) {
        kv_out_append(out, payload->bytes, payload->len);
    } else if (payload != NULL) {
        kv_payload_ref(payload);
        kv_out_append_ref(out, payload->bytes, payload->len, payload, release_payload,
                          kv_mem_block_size(payload->block_bytes));
        len += payload->len;
    }
    w->sending_bytes += len;
    list_for_sending(w, c);
    if (out->chunk_bytes > KV_CHUNK_BYTES)
        kv_client_check_limits(c);
}

static void send_listed(struct kv_worker *w)
{
    w->sending_bytes = 0;
    while (w->sending != NULL) {
        struct kv_client *c = w->sending;
        unlist(w, c);
        if (!(c->flags & (KV_CLIENT_WRITE_WAIT | KV_CLIENT_CLOSE_NOW)) && !kv_client_send(c))
            continue;
        if (c->out.chunk_bytes > KV_CHUNK_BYTES)
            kv_client_check_limits(c);
        kv_client_limit_touch(c);
    }
}

void kv_delivery_settle(struct kv_worker *w)
{
    kv_delivery_drain(w);
    if (KV_UNLIKELY(w->sending_bytes >= SEND_BYTES))
        send_listed(w);
}

void kv_delivery_round(struct kv_worker *w)
{
    kv_delivery_drain(w);
    send_listed(w);
}

void kv_delivery_forget(struct kv_client *c)
{
    KV_ASSERT(c->worker->framed != c);
    if (c->flags & KV_CLIENT_TO_SEND)
        unlist(c->worker, c);
}

/* --- frames --- */

void kv_delivery_frame(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    KV_ASSERT(w->framed == NULL || w->framed == c);
    w->framed = c;
    w->held.resp = c->resp;
}

void kv_delivery_unframe(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    if (KV_LIKELY(w->framed != c))
        return;
    w->framed = NULL;
    kv_out_settle(&w->held);
    for (const struct kv_chunk *k = w->held.head; k != NULL; k = k->next)
        kv_out_append(&c->out, k->data, k->len);
    kv_out_release(&w->held);
}

struct kv_out *kv_call_message_out(struct kv_call *call)
{
    if (KV_LIKELY(!(call->client->flags & (KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP))))
        return call->out;
    kv_delivery_frame(call->client);
    return &call->worker->held;
}
