/* MULTI, EXEC, DISCARD, WATCH, UNWATCH: thin fronts of engine/transaction.h.
 *
 * EXEC of a transaction is run by the engine itself (engine/dispatch.c), because it decides on
 * locks; the function here is reached only without MULTI. Inside MULTI the engine queues everything
 * but these commands, QUIT and RESET, so a nested MULTI or WATCH arrives here and is refused. WATCH
 * runs under the locks of its keys; DISCARD and UNWATCH hold nothing, and leave watches whose
 * shards are busy to the worker. */
#include "cmd/functions.h"
#include "engine/client.h"
#include "engine/transaction.h"

void kv_cmd_multi(struct kv_call *call)
{
    if (call->client->flags & KV_CLIENT_MULTI) {
        kv_call_error(call, "ERR MULTI calls can not be nested");
        return;
    }
    kv_tx_begin(call->client);
    kv_reply_ok(call->out);
}

void kv_cmd_exec(struct kv_call *call)
{
    kv_call_error(call, "ERR EXEC without MULTI");
}

void kv_cmd_discard(struct kv_call *call)
{
    if (!(call->client->flags & KV_CLIENT_MULTI)) {
        kv_call_error(call, "ERR DISCARD without MULTI");
        return;
    }
    kv_tx_discard(call->client);
    kv_tx_unwatch_all(call->client);
    kv_reply_ok(call->out);
}

void kv_cmd_watch(struct kv_call *call)
{
    if (call->client->flags & KV_CLIENT_MULTI) {
        kv_call_error(call, "ERR WATCH inside MULTI is not allowed");
        return;
    }
    enum kv_err err = kv_tx_watch(call);
    if (err != KV_OK)
        kv_call_failed(call, err);
    else
        kv_reply_ok(call->out);
}

void kv_cmd_unwatch(struct kv_call *call)
{
    kv_tx_unwatch_all(call->client);
    kv_reply_ok(call->out);
}
