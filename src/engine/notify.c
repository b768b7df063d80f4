/* Keyspace notifications: the model is in notify.h.
 *
 * A message's channel is put together from the key or the event; short ones on the stack, those of
 * long keys in a block that is tried for. Before that comes a look whether anybody is subscribed to
 * anything: many servers have notifications on and nobody who listens.
 *
 * Rejected: an own kind of delivery without channels, for subscribers find these messages by the
 * patterns and channels that they would name anyway.
 */
#include "engine/notify.h"
#include "engine/pubsub.h"
#include "engine/worker.h"
#include <stdio.h>

#define STACK_BYTES 512 /* channels up to this length need no memory */
#define HEAD_BYTES 40   /* longest "__keyspace@<db>__:" and its like */

static const struct {
    char letter;
    uint32_t bits;
} letters[] = {
    {'K', KV_NOTIFY_KEYSPACE}, {'E', KV_NOTIFY_KEYEVENT}, {'A', KV_NOTIFY_ALL},
    {'g', KV_EVENT_GENERIC},   {'$', KV_EVENT_STRING},    {'l', KV_EVENT_LIST},
    {'s', KV_EVENT_SET},       {'h', KV_EVENT_HASH},      {'z', KV_EVENT_ZSET},
    {'x', KV_EVENT_EXPIRED},   {'e', KV_EVENT_EVICTED},   {'t', KV_EVENT_STREAM},
    {'d', KV_EVENT_MODULE},    {'m', KV_EVENT_MISS},      {'n', KV_EVENT_NEW},
    {'o', KV_EVENT_OVERWRITE}, {'c', KV_EVENT_TYPE},
};

uint32_t kv_notify_class(char letter)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(letters); i++)
        if (letters[i].letter == letter)
            return letters[i].bits;
    return 0;
}

bool kv_notify_wants(const struct kv_engine *e, uint32_t classes)
{
    uint32_t have = e->options.notify_classes;
    return (have & (KV_NOTIFY_KEYSPACE | KV_NOTIFY_KEYEVENT)) != 0 && (have & classes) != 0;
}

/* Publishes to the channel "<head>@<db>__:<name>". */
static void publish(struct kv_view *view, const char *head, struct kv_slice name,
                    struct kv_slice message)
{
    char stack[STACK_BYTES];
    char *channel = stack;
    size_t size = name.len + HEAD_BYTES;
    uint64_t receivers;
    if (size > sizeof(stack)) {
        channel = kv_mem_try_alloc(size, KV_MEM_CLIENT_OUTPUT);
        if (channel == NULL)
            return;
    }
    size_t len = (size_t)snprintf(channel, HEAD_BYTES, "%s@%u__:", head, view->db);
    KV_ASSERT(len < HEAD_BYTES);
    if (name.len != 0)
        memcpy(channel + len, name.ptr, name.len);
    enum kv_err err = kv_pubsub_publish(view->owner, KV_CHANNEL_PLAIN,
                                        kv_slice(channel, len + name.len), message, &receivers);
    (void)err; /* nobody got it */
    if (channel != stack)
        kv_mem_free(channel, size, KV_MEM_CLIENT_OUTPUT);
}

void kv_notify(struct kv_view *view, const struct kv_key *key, enum kv_event_class event_class,
               const char *event)
{
    const struct kv_worker *w = view->owner;
    if (w == NULL)
        return; /* a file is looked at: nobody is there to be told */
    const struct kv_engine *e = w->engine;
    uint32_t wanted = e->options.notify_classes;
    if (KV_LIKELY(wanted == 0))
        return;
    if (!(wanted & event_class) || (kv_pubsub_channel_count(e, KV_CHANNEL_PLAIN) == 0 &&
                                    kv_pubsub_channel_count(e, KV_CHANNEL_PATTERN) == 0))
        return;
    struct kv_slice name = kv_slice(key->ptr, key->len);
    if (wanted & KV_NOTIFY_KEYSPACE)
        publish(view, "__keyspace", name, kv_slice_cstr(event));
    if (wanted & KV_NOTIFY_KEYEVENT)
        publish(view, "__keyevent", kv_slice_cstr(event), name);
}

/* --- hooks of the store --- */

static void on_changed(struct kv_view *view, const struct kv_key *key,
                       enum kv_event_class event_class, const char *event)
{
    if (view->owner != NULL)
        kv_tracking_changed(view, key, event_class);
    kv_notify(view, key, event_class, event);
}

static void on_added(struct kv_view *view, const struct kv_key *key)
{
    kv_notify(view, key, KV_EVENT_NEW, "new");
}

static void on_replaced(struct kv_view *view, const struct kv_key *key, bool other_type)
{
    kv_notify(view, key, KV_EVENT_OVERWRITE, "overwritten");
    if (other_type)
        kv_notify(view, key, KV_EVENT_TYPE, "type_changed");
}

static void on_missed(struct kv_view *view, const struct kv_key *key)
{
    kv_notify(view, key, KV_EVENT_MISS, "keymiss");
}

void kv_notify_apply(struct kv_engine *e)
{
    struct kv_store_hooks hooks = *kv_store_hooks(e->store);
    bool tracked = atomic_load(&e->tracking.clients) != 0;
    hooks.changed = tracked || kv_notify_wants(e, KV_NOTIFY_ALL) ? on_changed : NULL;
    hooks.added = kv_notify_wants(e, KV_EVENT_NEW) ? on_added : NULL;
    hooks.replaced = kv_notify_wants(e, KV_EVENT_OVERWRITE | KV_EVENT_TYPE) ? on_replaced : NULL;
    hooks.missed = kv_notify_wants(e, KV_EVENT_MISS) ? on_missed : NULL;
    kv_store_set_hooks(e->store, &hooks);
}
