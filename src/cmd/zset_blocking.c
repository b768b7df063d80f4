/* Sorted sets whose readers wait: BZPOPMIN, BZPOPMAX, BZMPOP.
 *
 * Each is its plain counterpart (zset_pop.c), and kv_call_wait when that finds nothing. The same
 * function runs again for a client that waits, when one of its keys has members: keys[0] is that
 * key then, and what the command line says about time is not looked at again (engine/blocking.h).
 * To the change stream they go as ZPOPMIN and ZPOPMAX of the one key that was popped from.
 *
 * Threads: under the locks of the keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/string_priv.h"
#include "cmd/zset_priv.h"
#include "engine/blocking.h"

static void wait_for_zsets(struct kv_call *call, int64_t timeout_ms)
{
    if (!kv_call_wait(call, KV_TYPE_ZSET, call->key_count, timeout_ms))
        kv_reply_null_array(call->out);
}

/* Pops one member of the first sorted set among the keys and replies key, name and score. False:
 * none has one. */
static bool pop_one(struct kv_call *call, bool max)
{
    for (int i = 0; i < call->key_count; i++) {
        const struct kv_key *k = &call->keys[i];
        struct kv_entry *e;
        struct kv_ranking z;
        if (!kv_zset_write(call, i, &e, &z))
            return true;
        if (e == NULL)
            continue;
        struct kv_slice line[2] = {max ? KV_SLICE("ZPOPMAX") : KV_SLICE("ZPOPMIN"),
                                   kv_key_slice(k)};
        struct kv_out_mark mark = kv_out_mark(call->out);
        kv_reply_array(call->out, 3);
        kv_reply_bulk(call->out, k->ptr, k->len);
        if (kv_zset_pop(call, k, e, max, 1, KV_ZSET_BARE)) {
            kv_call_propagate(call, line, 2);
        } else {
            kv_out_rewind(call->out, &mark);
            kv_call_no_memory(call);
        }
        return true;
    }
    return false;
}

static void blocking_pop(struct kv_call *call, bool max)
{
    int64_t timeout_ms;
    if (kv_call_wait_time(call, call->argc - 1, &timeout_ms) && !pop_one(call, max))
        wait_for_zsets(call, timeout_ms);
}

/* BZPOPMIN key [key ...] timeout */
void kv_cmd_bzpopmin(struct kv_call *call)
{
    blocking_pop(call, false);
}

void kv_cmd_bzpopmax(struct kv_call *call)
{
    blocking_pop(call, true);
}

/* BZMPOP timeout numkeys key [key ...] MIN|MAX [COUNT count] */
void kv_cmd_bzmpop(struct kv_call *call)
{
    bool max = false, failed = false;
    uint64_t count;
    int64_t timeout_ms;
    if (!kv_zset_mpop_options(call, 2, &max, &count) || !kv_call_wait_time(call, 1, &timeout_ms))
        return;
    for (int i = 0; i < call->key_count; i++)
        if (kv_zset_mpop_from(call, i, max, count, &failed) || failed)
            return;
    wait_for_zsets(call, timeout_ms);
}
