/* Queue of waiting clients, linked by their wait_next and wait_prev: every operation takes constant
 * time, since thousands of clients may wait for one gate or pause, and each may vanish at any time.
 * A client stands in one queue at a time. Who guards a queue is said where it lies. */
#ifndef KV_ENGINE_WAITLIST_H
#define KV_ENGINE_WAITLIST_H

#include "base/assert.h"
#include "engine/client.h"

struct kv_waitlist {
    struct kv_client *first, *last; /* longest waiting first; NULL: empty */
};

KV_INLINE void kv_waitlist_append(struct kv_waitlist *l, struct kv_client *c)
{
    KV_DASSERT(c->wait_next == NULL && c->wait_prev == NULL && l->last != c);
    c->wait_prev = l->last;
    if (l->last != NULL)
        l->last->wait_next = c;
    else
        l->first = c;
    l->last = c;
}

/* The client must stand in this queue. */
KV_INLINE void kv_waitlist_remove(struct kv_waitlist *l, struct kv_client *c)
{
    KV_DASSERT(c->wait_prev != NULL ? c->wait_prev->wait_next == c : l->first == c);
    if (c->wait_prev != NULL)
        c->wait_prev->wait_next = c->wait_next;
    else
        l->first = c->wait_next;
    if (c->wait_next != NULL)
        c->wait_next->wait_prev = c->wait_prev;
    else
        l->last = c->wait_prev;
    c->wait_next = c->wait_prev = NULL;
}

/* True when the client stands in this queue: only the ends have no neighbour. */
KV_INLINE bool kv_waitlist_holds(const struct kv_waitlist *l, const struct kv_client *c)
{
    return c->wait_prev != NULL || c->wait_next != NULL || l->first == c;
}

/* Takes the longest waiting client, or NULL. */
KV_INLINE struct kv_client *kv_waitlist_take(struct kv_waitlist *l)
{
    struct kv_client *c = l->first;
    if (c != NULL)
        kv_waitlist_remove(l, c);
    return c;
}

#endif
