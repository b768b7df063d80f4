/* Keyspace notifications: messages that say what happened to which key.
 *
 * Terms
 *   event    what a command did to a key ("set", "lpush", "expired"), with a class
 *   classes  which events are published, and in which of two forms: enum kv_event_class and the
 *            bits below; `notify-keyspace-events` names them by letters
 *
 * The store tells of every change (struct kv_store_hooks); here it becomes up to two messages:
 *   __keyspace@<db>__:<key>     says the event    (letter K)
 *   __keyevent@<db>__:<event>   says the key      (letter E)
 * They are published inside the causing command, before its locks go: whoever has seen the reply
 * finds them delivered (delivery.h), and all subscribers see the events of a key in one order.
 *
 * While nothing is to be published the hooks are not installed, and a change costs the test that
 * the store makes anyway.
 *
 * Failure: a message for which there is no memory reaches nobody.
 */
#ifndef KV_ENGINE_NOTIFY_H
#define KV_ENGINE_NOTIFY_H

#include "store/store.h"

#define KV_NOTIFY_KEYSPACE (1u << 30) /* K */
#define KV_NOTIFY_KEYEVENT (1u << 31) /* E */

/* What `A` stands for: all classes but m, n, o and c. */
#define KV_NOTIFY_ALL                                                                              \
    (KV_EVENT_GENERIC | KV_EVENT_STRING | KV_EVENT_LIST | KV_EVENT_SET | KV_EVENT_HASH |           \
     KV_EVENT_ZSET | KV_EVENT_EXPIRED | KV_EVENT_EVICTED | KV_EVENT_STREAM | KV_EVENT_MODULE)

struct kv_engine;

/* The bit of a letter of notify-keyspace-events (of A and d several or one); 0: there is none. */
uint32_t kv_notify_class(char letter);

/* True when events of any of these classes are published. */
bool kv_notify_wants(const struct kv_engine *e, uint32_t classes);

/* Publishes an event, if its class is one of those wanted. Under the key's shard lock. */
void kv_notify(struct kv_view *view, const struct kv_key *key, enum kv_event_class event_class,
               const char *event);

/* [alone] Installs the store's hooks that somebody needs now, and no others: after the options have
 * changed, and with CLIENT TRACKING. What trackers that RESET or leave need no more goes with the
 * next of these. */
void kv_notify_apply(struct kv_engine *e);

#endif
