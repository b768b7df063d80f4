/* SUBSCRIBE, PSUBSCRIBE, SSUBSCRIBE, their opposites, PUBLISH, SPUBLISH and PUBSUB.
 *
 * The three families differ in the kind of channel, in the words of their confirmations and in what
 * these count: a shard subscription counts only such, the others count channels and patterns
 * together. A confirmation is a message for each channel, in RESP3 a push; CLIENT REPLY does not
 * mute it, as it mutes no message.
 *
 * Subscribing is all or nothing: when memory runs out in the middle of a list, what it has added is
 * taken back and the reply is one error. The client is framed meanwhile (engine/delivery.h), so
 * that no message overtakes a confirmation. Unsubscribing needs no frame: what was published before
 * comes before the confirmation.
 *
 * Inside a transaction SSUBSCRIBE is refused, as everybody who knows the protocol expects.
 */
#include "engine/pubsub.h"
#include "base/assert.h"
#include "base/glob.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/call.h"
#include "engine/client.h"
#include "engine/delivery.h"

static const struct {
    const char *subscribed, *unsubscribed;
} words[KV_CHANNEL_KINDS] = {
    {"subscribe", "unsubscribe"},
    {"psubscribe", "punsubscribe"},
    {"ssubscribe", "sunsubscribe"},
};

/* What a confirmation counts. */
static uint32_t counted(const struct kv_client *c, enum kv_channel_kind kind)
{
    if (kind == KV_CHANNEL_SHARD)
        return kv_pubsub_count(c, KV_CHANNEL_SHARD);
    return kv_pubsub_count(c, KV_CHANNEL_PLAIN) + kv_pubsub_count(c, KV_CHANNEL_PATTERN);
}

static void confirm(struct kv_out *out, const char *word, const struct kv_slice *name,
                    uint32_t count)
{
    kv_reply_push(out, 3);
    kv_reply_text(out, word);
    if (name != NULL)
        kv_reply_slice(out, *name);
    else
        kv_reply_null(out);
    kv_reply_int(out, count);
}

static void subscribe(struct kv_call *call, enum kv_channel_kind kind)
{
    struct kv_client *c = call->client;
    int count = call->argc - 1;
    bool *added = kv_arena_try_alloc(call->arena, (size_t)count * sizeof(*added));
    if (added == NULL) {
        kv_call_no_memory(call);
        return;
    }
    kv_delivery_frame(c);
    uint32_t before = counted(c, kind);
    for (int i = 0; i < count; i++) {
        if (kv_pubsub_subscribe(c, kind, call->argv[i + 1], &added[i]) == KV_OK)
            continue;
        while (--i >= 0)
            if (added[i])
                kv_pubsub_unsubscribe(c, kind, call->argv[i + 1]);
        kv_call_no_memory(call);
        return;
    }
    struct kv_out *out = kv_call_message_out(call);
    for (int i = 0; i < count; i++) {
        before += added[i];
        confirm(out, words[kind].subscribed, &call->argv[i + 1], before);
    }
    KV_ASSERT(before == counted(c, kind));
}

struct leaving {
    struct kv_client *client;
    struct kv_out *out;
    enum kv_channel_kind kind;
};

static void left(void *arg, struct kv_slice name)
{
    const struct leaving *l = arg;
    confirm(l->out, words[l->kind].unsubscribed, &name, counted(l->client, l->kind));
}

static void unsubscribe(struct kv_call *call, enum kv_channel_kind kind)
{
    struct kv_client *c = call->client;
    struct leaving l = {c, kv_call_message_out(call), kind};
    if (call->argc == 1 && kv_pubsub_count(c, kind) == 0) {
        confirm(l.out, words[kind].unsubscribed, NULL, counted(c, kind));
        return;
    }
    if (call->argc == 1)
        kv_pubsub_leave(c, kind, left, &l);
    for (int i = 1; i < call->argc; i++) {
        kv_pubsub_unsubscribe(c, kind, call->argv[i]);
        left(&l, call->argv[i]);
    }
}

void kv_cmd_subscribe(struct kv_call *call)
{
    subscribe(call, KV_CHANNEL_PLAIN);
}

void kv_cmd_psubscribe(struct kv_call *call)
{
    subscribe(call, KV_CHANNEL_PATTERN);
}

void kv_cmd_ssubscribe(struct kv_call *call)
{
    if (call->flags & KV_CALL_IN_EXEC)
        kv_call_error(call, "ERR SSUBSCRIBE isn't allowed for a DENY BLOCKING client");
    else
        subscribe(call, KV_CHANNEL_SHARD);
}

void kv_cmd_unsubscribe(struct kv_call *call)
{
    unsubscribe(call, KV_CHANNEL_PLAIN);
}

void kv_cmd_punsubscribe(struct kv_call *call)
{
    unsubscribe(call, KV_CHANNEL_PATTERN);
}

void kv_cmd_sunsubscribe(struct kv_call *call)
{
    unsubscribe(call, KV_CHANNEL_SHARD);
}

/* --- publishing --- */

static void publish(struct kv_call *call, enum kv_channel_kind kind)
{
    KV_ASSERT(call->argc == 3);
    uint64_t receivers;
    enum kv_err err =
        kv_pubsub_publish(call->worker, kind, call->argv[1], call->argv[2], &receivers);
    if (err == KV_OK)
        kv_reply_int(call->out, (int64_t)receivers);
    else
        kv_call_failed(call, err);
}

void kv_cmd_publish(struct kv_call *call)
{
    publish(call, KV_CHANNEL_PLAIN);
}

void kv_cmd_spublish(struct kv_call *call)
{
    publish(call, KV_CHANNEL_SHARD);
}

/* --- PUBSUB --- */

struct listing {
    struct kv_out *out;
    const struct kv_slice *pattern; /* NULL: all */
    size_t count;
};

static void list_channel(void *arg, struct kv_slice name)
{
    struct listing *l = arg;
    if (l->pattern != NULL && !kv_glob_match(*l->pattern, name, false))
        return;
    kv_reply_slice(l->out, name);
    l->count++;
}

static void list_channels(struct kv_call *call, enum kv_channel_kind kind)
{
    struct listing l = {.out = call->out, .pattern = call->argc == 3 ? &call->argv[2] : NULL};
    if (call->argc > 3) {
        kv_call_unknown_subcommand(call);
        return;
    }
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    kv_pubsub_each(call->engine, kind, list_channel, &l);
    kv_reply_array_end(call->out, token, l.count);
}

static void count_subscriptions(struct kv_call *call, enum kv_channel_kind kind)
{
    kv_reply_array(call->out, (size_t)(call->argc - 2) * 2);
    for (int i = 2; i < call->argc; i++) {
        kv_reply_slice(call->out, call->argv[i]);
        kv_reply_int(call->out,
                     (int64_t)kv_pubsub_subscriptions(call->engine, kind, call->argv[i]));
    }
}

void kv_cmd_pubsub_channels(struct kv_call *call)
{
    list_channels(call, KV_CHANNEL_PLAIN);
}

void kv_cmd_pubsub_shardchannels(struct kv_call *call)
{
    list_channels(call, KV_CHANNEL_SHARD);
}

void kv_cmd_pubsub_numsub(struct kv_call *call)
{
    count_subscriptions(call, KV_CHANNEL_PLAIN);
}

void kv_cmd_pubsub_shardnumsub(struct kv_call *call)
{
    count_subscriptions(call, KV_CHANNEL_SHARD);
}

void kv_cmd_pubsub_numpat(struct kv_call *call)
{
    kv_reply_int(call->out, (int64_t)kv_pubsub_channel_count(call->engine, KV_CHANNEL_PATTERN));
}

void kv_cmd_pubsub_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "CHANNELS [<pattern>]",
        "    Channels that somebody is subscribed to, or those of them that fit the pattern.",
        "NUMPAT",
        "    How many different patterns are subscribed to.",
        "NUMSUB [<channel> ...]",
        "    How many clients are subscribed to each channel; patterns do not count.",
        "SHARDCHANNELS [<pattern>]",
        "    As CHANNELS, of shard channels.",
        "SHARDNUMSUB [<shardchannel> ...]",
        "    As NUMSUB, of shard channels.",
        NULL,
    };
    kv_call_help(call, lines);
}
