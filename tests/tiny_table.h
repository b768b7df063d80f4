/* A command table of a dozen commands, small enough to be understood at once, that has one command
 * for every way in which the engine runs commands. For tests that may not link cmd/.
 *
 *   args WORD...     free: answers its arguments as an array
 *   fail             free: answers an error
 *   set KEY VALUE    keys, batched, write; takes a received block over
 *   get KEY          keys, batched
 *   count KEY...     keys: how many exist
 *   keep KEY VALUE   keys, write, not batched
 *   size             alone: keys in the selected database
 *   visit            shards: keys, counted shard by shard
 *   world            stop: number of clients
 *   select N         free
 *   multi exec discard watch unwatch quit
 */
#ifndef KV_TESTS_TINY_TABLE_H
#define KV_TESTS_TINY_TABLE_H

#include "engine/call.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/transaction.h"

static void tiny_args(struct kv_call *call)
{
    kv_reply_array(call->out, (size_t)call->argc);
    for (int i = 0; i < call->argc; i++)
        kv_reply_slice(call->out, call->argv[i]);
}

static void tiny_fail(struct kv_call *call)
{
    kv_call_error(call, "ERR as you wish");
}

static void tiny_set(struct kv_call *call)
{
    struct kv_bigstr **block = kv_call_block(call, 2);
    KV_ASSERT(call->key_count == 1);
    enum kv_err err =
        block != NULL
            ? kv_store_set_block_take(&call->view, &call->keys[0], block, KV_NO_EXPIRY, NULL)
            : kv_store_set(&call->view, &call->keys[0], call->argv[2], KV_NO_EXPIRY, NULL);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_store_changed(&call->view, &call->keys[0], KV_EVENT_STRING, "set");
    kv_reply_ok(call->out);
}

static void tiny_get(struct kv_call *call)
{
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (e == NULL)
        kv_reply_null(call->out);
    else
        kv_call_reply_string(call, e);
}

static void tiny_count(struct kv_call *call)
{
    int64_t found = 0;
    KV_ASSERT(call->key_count == call->argc - 1);
    for (int i = 0; i < call->key_count; i++)
        found += kv_store_peek(&call->view, &call->keys[i]) != NULL;
    kv_reply_int(call->out, found);
}

static void tiny_size(struct kv_call *call)
{
    kv_reply_int(call->out, (int64_t)kv_store_size(call->view.store, call->view.db));
}

static void tiny_visit(struct kv_call *call)
{
    uint64_t found = 0;
    uint32_t shards = kv_store_shard_count(call->view.store);
    for (uint32_t i = 0; i < shards; i++) {
        if (!kv_call_lock_shard(call, i))
            break;
        found += kv_store_shard_size(call->view.store, i, call->view.db);
    }
    kv_reply_int(call->out, (int64_t)found);
}

static void tiny_count_client(struct kv_client *c, void *arg)
{
    (void)c;
    ++*(int64_t *)arg;
}

static void tiny_world(struct kv_call *call)
{
    int64_t clients = 0;
    kv_engine_each_client(call->engine, tiny_count_client, &clients);
    kv_reply_int(call->out, clients);
}

static void tiny_select(struct kv_call *call)
{
    int64_t db;
    if (!kv_call_int_range(call, 1, 0, kv_store_database_count(call->view.store) - 1, &db))
        return;
    kv_call_select(call, (uint32_t)db);
    kv_reply_ok(call->out);
}

static void tiny_multi(struct kv_call *call)
{
    if (call->client->flags & KV_CLIENT_MULTI) {
        kv_call_error(call, "ERR nested");
        return;
    }
    kv_tx_begin(call->client);
    kv_reply_ok(call->out);
}

static void tiny_exec(struct kv_call *call)
{
    kv_call_error(call, "ERR EXEC without MULTI");
}

static void tiny_discard(struct kv_call *call)
{
    kv_tx_discard(call->client);
    kv_tx_unwatch_all(call->client);
    kv_reply_ok(call->out);
}

static void tiny_watch(struct kv_call *call)
{
    enum kv_err err = kv_tx_watch(call);
    if (err != KV_OK)
        kv_call_failed(call, err);
    else
        kv_reply_ok(call->out);
}

static void tiny_unwatch(struct kv_call *call)
{
    kv_tx_unwatch_all(call->client);
    kv_reply_ok(call->out);
}

static void tiny_quit(struct kv_call *call)
{
    call->client->flags |= KV_CLIENT_CLOSE_AFTER;
    kv_reply_ok(call->out);
}

static const struct kv_keyspec tiny_first[] = {
    {.begin = KV_BEGIN_INDEX, .begin_index = 1, .find = KV_FIND_RANGE, .b = 1}};
static const struct kv_keyspec tiny_all[] = {
    {.begin = KV_BEGIN_INDEX, .begin_index = 1, .find = KV_FIND_RANGE, .a = -1, .b = 1}};

#define TINY(id_, name_, arity_, mode_, flags_)                                                    \
    .name = #name_, .full_name = #name_, .fn = tiny_##name_, .arity = (arity_), .id = (id_),       \
    .mode = (mode_), .flags = (flags_)
#define TINY_KEYS(spec) .keyspecs = (spec), .keyspec_count = 1

#define tiny_keep tiny_set

static const struct kv_command tiny_commands[] = {
    {TINY(0, args, -1, KV_MODE_FREE, KV_CMD_FAST)},
    {TINY(1, count, -2, KV_MODE_KEYS, KV_CMD_READONLY), TINY_KEYS(tiny_all)},
    {TINY(2, discard, 1, KV_MODE_FREE, KV_CMD_NO_AUTH)},
    {TINY(3, exec, 1, KV_MODE_FREE, KV_CMD_NO_AUTH)},
    {TINY(4, fail, 1, KV_MODE_FREE, 0)},
    {TINY(5, get, 2, KV_MODE_KEYS, KV_CMD_READONLY | KV_CMD_BATCH), TINY_KEYS(tiny_first)},
    {TINY(6, keep, 3, KV_MODE_KEYS, KV_CMD_WRITE), TINY_KEYS(tiny_first)},
    {TINY(7, multi, 1, KV_MODE_FREE, 0)},
    {TINY(8, quit, -1, KV_MODE_FREE, KV_CMD_NO_AUTH)},
    {TINY(9, select, 2, KV_MODE_FREE, 0)},
    {TINY(10, set, 3, KV_MODE_KEYS, KV_CMD_WRITE | KV_CMD_BATCH), TINY_KEYS(tiny_first)},
    {TINY(11, size, 1, KV_MODE_ALONE, KV_CMD_READONLY)},
    {TINY(12, unwatch, 1, KV_MODE_FREE, 0)},
    {TINY(13, visit, 1, KV_MODE_SHARDS, KV_CMD_READONLY)},
    {TINY(14, watch, -2, KV_MODE_KEYS, KV_CMD_NO_MULTI), TINY_KEYS(tiny_all)},
    {TINY(15, world, 1, KV_MODE_STOP, 0)},
};

KV_UNUSED static const struct kv_command_table tiny_table = {
    .commands = tiny_commands,
    .command_count = KV_ARRAY_LEN(tiny_commands),
    .id_count = KV_ARRAY_LEN(tiny_commands),
};

#endif
