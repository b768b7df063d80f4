/* Lists whose readers wait: BLPOP, BRPOP, BLMPOP, BLMOVE, BRPOPLPUSH, BLMOVEM.
 *
 * Each is its plain counterpart (list_priv.h), and kv_call_wait when that finds nothing. The same
 * function runs again for a client that waits, when one of its keys has something: keys[0] is that
 * key then, and what the command line says about time is not looked at again (engine/blocking.h).
 * To the change stream they go as the plain commands that they turned out to be.
 *
 * Threads: under the locks of the keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/list_priv.h"
#include "engine/blocking.h"

static void wait_for_lists(struct kv_call *call, int count, int64_t timeout_ms, bool null_array)
{
    if (kv_call_wait(call, KV_TYPE_LIST, count, timeout_ms))
        return;
    if (null_array)
        kv_reply_null_array(call->out);
    else
        kv_reply_null(call->out);
}

/* Pops one item of the first list among the keys and replies key and item. False: none has one. */
static bool pop_one(struct kv_call *call, enum kv_list_end end)
{
    for (int i = 0; i < call->key_count; i++) {
        const struct kv_key *k = &call->keys[i];
        struct kv_entry *e = kv_store_write(&call->view, k);
        if (e == NULL)
            continue;
        if (!kv_cmd_list_want(call, e))
            return true;
        struct kv_slice line[2] = {end == KV_LIST_HEAD ? KV_SLICE("LPOP") : KV_SLICE("RPOP"),
                                   kv_slice(k->ptr, k->len)};
        struct kv_out_mark mark = kv_out_mark(call->out);
        kv_reply_array(call->out, 2);
        kv_reply_bulk(call->out, k->ptr, k->len);
        enum kv_err err = kv_cmd_list_reply_pop(call, k, e, end, 1);
        if (err == KV_OK) {
            kv_call_propagate(call, line, 2);
            return true;
        }
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
        return true;
    }
    return false;
}

static void blocking_pop(struct kv_call *call, enum kv_list_end end)
{
    int64_t timeout_ms;
    if (kv_call_wait_time(call, call->argc - 1, &timeout_ms) && !pop_one(call, end))
        wait_for_lists(call, call->key_count, timeout_ms, true);
}

/* BLPOP key [key ...] timeout */
void kv_cmd_blpop(struct kv_call *call)
{
    blocking_pop(call, KV_LIST_HEAD);
}

void kv_cmd_brpop(struct kv_call *call)
{
    blocking_pop(call, KV_LIST_TAIL);
}

/* BLMPOP timeout numkeys key [key ...] LEFT|RIGHT [COUNT count] */
void kv_cmd_blmpop(struct kv_call *call)
{
    enum kv_list_end end;
    uint64_t count;
    int64_t timeout_ms;
    if (!kv_cmd_list_mpop_options(call, 2, &end, &count) ||
        !kv_call_wait_time(call, 1, &timeout_ms))
        return;
    if (!kv_cmd_list_pop_first(call, call->keys, call->key_count, end, count))
        wait_for_lists(call, call->key_count, timeout_ms, true);
}

/* Gives the change stream a move as the plain command: `words` of the command line after the keys,
 * without the time. */
static void propagate_move(struct kv_call *call, const char *name, int from_arg, int to_arg)
{
    struct kv_slice *argv = kv_arena_alloc(call->arena, (size_t)call->argc * sizeof(*argv));
    int argc = 0;
    argv[argc++] = kv_slice_cstr(name);
    argv[argc++] = call->argv[1];
    argv[argc++] = call->argv[2];
    for (int i = from_arg; i < to_arg; i++)
        argv[argc++] = call->argv[i];
    kv_call_propagate(call, argv, argc);
}

/* BLMOVE source destination LEFT|RIGHT LEFT|RIGHT timeout */
void kv_cmd_blmove(struct kv_call *call)
{
    struct kv_move_options move;
    int64_t timeout_ms;
    if (!kv_cmd_list_move_words(call, &move) || !kv_call_wait_time(call, 5, &timeout_ms))
        return;
    if (!kv_cmd_list_move(call, &move))
        wait_for_lists(call, 1, timeout_ms, false);
    else if (call->view.dirty != 0)
        propagate_move(call, "LMOVE", 3, 5);
}

/* BRPOPLPUSH source destination timeout */
void kv_cmd_brpoplpush(struct kv_call *call)
{
    struct kv_move_options move = {
        .from = KV_LIST_TAIL, .to = KV_LIST_HEAD, .count = 1, .reversed = true};
    int64_t timeout_ms;
    if (!kv_call_wait_time(call, 3, &timeout_ms))
        return;
    if (!kv_cmd_list_move(call, &move))
        wait_for_lists(call, 1, timeout_ms, false);
    else if (call->view.dirty != 0)
        propagate_move(call, "RPOPLPUSH", 3, 3);
}

/* BLMOVEM source destination LEFT|RIGHT LEFT|RIGHT timeout [COUNT n | EXACTLY n  OBO | BULK] */
void kv_cmd_blmovem(struct kv_call *call)
{
    struct kv_move_options move;
    int64_t timeout_ms;
    if (!kv_cmd_list_move_words(call, &move) || !kv_call_wait_time(call, 5, &timeout_ms) ||
        !kv_cmd_list_move_options(call, 6, &move))
        return;
    if (!kv_cmd_list_move(call, &move)) {
        wait_for_lists(call, 1, timeout_ms, true);
        return;
    }
    if (call->view.dirty == 0)
        return;
    struct kv_slice *argv = kv_arena_alloc(call->arena, (size_t)call->argc * sizeof(*argv));
    int argc = 0;
    argv[argc++] = KV_SLICE("LMOVEM");
    for (int i = 1; i < call->argc; i++)
        if (i != 5)
            argv[argc++] = call->argv[i];
    kv_call_propagate(call, argv, argc);
}
