/* SLOWLOG and COMMANDLOG: GET, LEN, RESET, HELP.
 *
 * The logs themselves are the engine's: bounded lists under a mutex, filled by all workers. GET
 * writes the reply while the visitor runs under that mutex, which only copies bytes into the
 * client's output; the number of entries is known afterwards, so the array's length is deferred.
 * Copying the entries out first was rejected: it would double the memory for a lock held a few
 * microseconds.
 *
 * An entry has six elements as in Redis: id, Unix time, microseconds (or bytes, in Valkey's logs of
 * large requests and replies), arguments, peer address, name of the client. SLOWLOG is the log that
 * COMMANDLOG calls `slow`.
 *
 * Threads: any worker; see engine/engine.h.
 */
#include "base/assert.h"
#include "base/number.h"
#include "cmd/functions.h"
#include "engine/call.h"
#include "engine/engine.h"

struct walk {
    struct kv_out *out;
    size_t count;
};

static void visit(const struct kv_command_log_entry *entry, void *arg)
{
    struct walk *w = arg;
    KV_ASSERT(entry->argc >= 0);
    kv_reply_array(w->out, 6);
    kv_reply_int(w->out, (int64_t)entry->id);
    kv_reply_int(w->out, entry->time_s);
    kv_reply_int(w->out, (int64_t)entry->value);
    kv_reply_array(w->out, (size_t)entry->argc);
    for (int i = 0; i < entry->argc; i++)
        kv_reply_slice(w->out, entry->argv[i]);
    kv_reply_slice(w->out, entry->peer);
    kv_reply_slice(w->out, entry->name);
    w->count++;
}

static void reply_entries(struct kv_call *call, enum kv_command_log_kind kind, int64_t count)
{
    struct walk w = {.out = call->out};
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    if (count != 0)
        kv_engine_command_log_each(call->engine, kind, count < 0 ? UINT64_MAX : (uint64_t)count,
                                   visit, &w);
    kv_reply_array_end(call->out, token, w.count);
}

static bool take_count(struct kv_call *call, int64_t *count)
{
    if (kv_int_parse(call->argv[2], count) && *count >= -1)
        return true;
    kv_call_error(call, "ERR count should be greater than or equal to -1");
    return false;
}

/* --- SLOWLOG --- */

void kv_cmd_slowlog_get(struct kv_call *call)
{
    int64_t count = 10;
    if (call->argc > 3)
        kv_call_unknown_subcommand(call);
    else if (call->argc < 3 || take_count(call, &count))
        reply_entries(call, KV_COMMAND_LOG_SLOW, count);
}

void kv_cmd_slowlog_len(struct kv_call *call)
{
    kv_reply_int(call->out, (int64_t)kv_engine_command_log_len(call->engine, KV_COMMAND_LOG_SLOW));
}

void kv_cmd_slowlog_reset(struct kv_call *call)
{
    kv_engine_command_log_reset(call->engine, KV_COMMAND_LOG_SLOW);
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

/* --- COMMANDLOG --- */

static bool take_kind(struct kv_call *call, int arg, enum kv_command_log_kind *kind)
{
    static const char *const names[KV_COMMAND_LOGS] = {"slow", "large-request", "large-reply"};
    for (int i = 0; i < KV_COMMAND_LOGS; i++) {
        if (kv_call_arg_is(call, arg, names[i])) {
            *kind = (enum kv_command_log_kind)i;
            return true;
        }
    }
    kv_call_error(call, "ERR type should be one of the following: slow, large-request, "
                        "large-reply");
    return false;
}

void kv_cmd_commandlog_get(struct kv_call *call)
{
    enum kv_command_log_kind kind;
    int64_t count;
    if (take_count(call, &count) && take_kind(call, 3, &kind))
        reply_entries(call, kind, count);
}

void kv_cmd_commandlog_len(struct kv_call *call)
{
    enum kv_command_log_kind kind;
    if (take_kind(call, 2, &kind))
        kv_reply_int(call->out, (int64_t)kv_engine_command_log_len(call->engine, kind));
}

void kv_cmd_commandlog_reset(struct kv_call *call)
{
    enum kv_command_log_kind kind;
    if (!take_kind(call, 2, &kind))
        return;
    kv_engine_command_log_reset(call->engine, kind);
    kv_reply_ok(call->out);
}

void kv_cmd_commandlog_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "GET <count> <type>",
        "    The newest <count> entries of a log (-1 for all). An entry has id, Unix time,",
        "    microseconds or bytes, arguments, client address and client name.",
        "LEN <type>",
        "    How many entries the log holds.",
        "RESET <type>",
        "    Empty the log.",
        "Types: slow (time), large-request and large-reply (bytes).",
        NULL,
    };
    kv_call_help(call, lines);
}
