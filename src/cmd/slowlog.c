/* SLOWLOG GET, LEN, RESET, HELP.
 *
 * The log itself is the engine's: a bounded list under a mutex, filled by all workers. GET writes
 * the reply while the visitor runs under that mutex, which only copies bytes into the client's
 * output; the number of entries is known afterwards, so the array's length is deferred. Copying the
 * entries out first was rejected: it would double the memory for a lock held a few microseconds.
 *
 * An entry has six elements as in Redis: id, Unix time, microseconds, arguments, peer address, name
 * of the client.
 *
 * Threads: any worker; see engine/engine.h.
 */
#include "base/assert.h"
#include "base/number.h"
#include "cmd/functions.h"
#include "engine/call.h"
#include "engine/engine.h"

struct slowlog_walk {
    struct kv_out *out;
    size_t count;
};

static void slowlog_visit(const struct kv_slowlog_entry *entry, void *arg)
{
    struct slowlog_walk *w = arg;
    KV_ASSERT(entry->argc >= 0);
    kv_reply_array(w->out, 6);
    kv_reply_int(w->out, (int64_t)entry->id);
    kv_reply_int(w->out, entry->time_s);
    kv_reply_int(w->out, (int64_t)entry->usec);
    kv_reply_array(w->out, (size_t)entry->argc);
    for (int i = 0; i < entry->argc; i++)
        kv_reply_slice(w->out, entry->argv[i]);
    kv_reply_slice(w->out, entry->peer);
    kv_reply_slice(w->out, entry->name);
    w->count++;
}

void kv_cmd_slowlog_get(struct kv_call *call)
{
    int64_t count = 10;
    if (call->argc > 3) {
        kv_call_unknown_subcommand(call);
        return;
    }
    if (call->argc == 3 && (!kv_int_parse(call->argv[2], &count) || count < -1)) {
        kv_call_error(call, "ERR count should be greater than or equal to -1");
        return;
    }
    struct slowlog_walk w = {.out = call->out};
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    if (count != 0)
        kv_engine_slowlog_each(call->engine, count < 0 ? UINT64_MAX : (uint64_t)count,
                               slowlog_visit, &w);
    kv_reply_array_end(call->out, token, w.count);
}

void kv_cmd_slowlog_len(struct kv_call *call)
{
    kv_reply_int(call->out, (int64_t)kv_engine_slowlog_len(call->engine));
}

void kv_cmd_slowlog_reset(struct kv_call *call)
{
    kv_engine_slowlog_reset(call->engine);
    kv_reply_ok(call->out);
}

void kv_cmd_slowlog_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "GET [<count>]",
        "    The newest <count> entries (10 when left out, -1 for all). An entry has",
        "    id, Unix time, microseconds, arguments, client address and client name.",
        "LEN",
        "    How many entries the slow log holds.",
        "RESET",
        "    Empty the slow log.",
        NULL,
    };
    kv_call_help(call, lines);
}
