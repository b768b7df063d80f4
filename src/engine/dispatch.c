/* One command: from its name to its reply.
 *
 * Order of checks, as clients of the protocol know it: name, subcommand, arity; authentication and
 * permissions; maxmemory; transaction queue; CLIENT PAUSE; then keys, room in the change stream,
 * locks; execution; release. A command that must wait is parked and leaves no trace: the connection
 * keeps its bytes and the command is parsed and checked again when it is resumed, with whatever has
 * changed meanwhile.
 *
 * EXEC is the engine's own: it locks the shards of all queued keys and of all watches, or takes the
 * strongest mode of its queue, compares the watches and then runs the queue through kv_execute.
 */
#include "base/clock.h"
#include "base/log.h"
#include "engine/hotkeys.h"
#include "engine/monitor.h"
#include "engine/transaction.h"
#include "engine/worker.h"
#include <stdio.h>

#define NOT_AUTHENTICATED "NOAUTH Authentication required."
#define OUT_OF_MEMORY "OOM the server is out of memory for this command"
#define OVER_LIMIT "OOM command not allowed when used memory > 'maxmemory'."
#define NAME_SHOWN 128 /* bytes of a name or of all arguments that an error repeats */

/* The exact bytes of a name of up to 16 bytes as two words; with its length they identify it. */
KV_INLINE void name_words(struct kv_slice name, uint64_t words[2])
{
    const char *p = name.ptr;
    size_t len = name.len;
    words[1] = 0;
    if (len >= 8) {
        memcpy(&words[0], p, 8);
        memcpy(&words[1], p + len - 8, 8);
    } else if (len >= 4) {
        uint32_t low, high;
        memcpy(&low, p, 4);
        memcpy(&high, p + len - 4, 4);
        words[0] = low | (uint64_t)high << 32;
    } else {
        /* One to three bytes: first, middle, last. */
        words[0] = (uint64_t)(uint8_t)p[0] | (uint64_t)(uint8_t)p[len / 2] << 8 |
                   (uint64_t)(uint8_t)p[len - 1] << 16;
    }
}

const struct kv_command *kv_worker_lookup(struct kv_worker *w, struct kv_slice name)
{
    /* Clients spell a command the same way again and again: the bytes of recent names decide. */
    if (KV_UNLIKELY(name.len == 0 || name.len > 16))
        return kv_command_index_find(w->engine->index, name);
    uint64_t words[2];
    name_words(name, words);
    uint32_t at = (uint32_t)((words[0] + name.len) * 0x9e3779b97f4a7c15ull >> 59);
    struct kv_recent_name *recent = &w->recent[at];
    if (KV_LIKELY(recent->words[0] == words[0] && recent->words[1] == words[1] &&
                  recent->len == name.len))
        return recent->cmd;
    const struct kv_command *cmd = kv_command_index_find(w->engine->index, name);
    if (cmd != NULL)
        *recent = (struct kv_recent_name){
            .words = {words[0], words[1]}, .len = (uint32_t)name.len, .cmd = cmd};
    return cmd;
}

enum kv_err kv_resolve_keys(struct kv_worker *w, const struct kv_command *cmd,
                            const struct kv_slice *argv, int argc, struct kv_key *one,
                            struct kv_key **keys, int *count)
{
    *count = 0;
    if (cmd->keyspec_count == 0)
        return KV_OK;
    struct kv_store *store = w->engine->store;
    const struct kv_keyspec *spec = &cmd->keyspecs[0];
    if (KV_LIKELY(cmd->keyspec_count == 1 && spec->begin == KV_BEGIN_INDEX &&
                  spec->find == KV_FIND_RANGE && spec->a == 0 && argc > spec->begin_index)) {
        *keys = one;
        **keys = kv_store_key(store, argv[spec->begin_index]);
        *count = 1;
        return KV_OK;
    }
    int *index = kv_arena_try_alloc(&w->arena, (size_t)argc * sizeof(int));
    *keys = kv_arena_try_alloc(&w->arena, (size_t)argc * sizeof(struct kv_key));
    if (index == NULL || *keys == NULL)
        return KV_ERR_NOMEM;
    int n = kv_command_keys(cmd, argv, argc, index, NULL, argc);
    if (n < 0 || n > argc)
        return KV_ERR_SYNTAX;
    for (int i = 0; i < n; i++)
        (*keys)[i] = kv_store_key(store, argv[index[i]]);
    *count = n;
    return KV_OK;
}

static uint32_t view_flags(const struct kv_client *c)
{
    const struct kv_engine *e = c->worker->engine;
    uint32_t flags = c->flags & KV_CLIENT_NO_TOUCH ? KV_VIEW_NO_TOUCH : 0;
    if (KV_UNLIKELY(e->pause_until_ms != 0) && kv_engine_paused(e, c->worker->now_ms))
        flags |= KV_VIEW_NO_EXPIRE;
    return flags;
}

static void prepare_call(struct kv_client *c, const struct kv_command *cmd,
                         const struct kv_slice *argv, int argc, uint32_t flags)
{
    struct kv_worker *w = c->worker;
    struct kv_call *call = &w->call;
    call->argv = argv;
    call->argc = argc;
    call->flags = flags;
    call->cmd = cmd;
    call->out = &c->out;
    call->arena = &w->arena;
    call->client = c;
    call->visited = false;
    call->view.dirty = 0;
    call->view.db = c->db;
    /* To a client that applies another server's stream nothing is ever due: the stream says what
     * expired, and in which order. */
    call->view.now_ms = KV_UNLIKELY(c->flags & KV_CLIENT_APPLY) ? 0 : w->now_ms;
    call->view.flags = view_flags(c);
    c->last_cmd = cmd;
}

static KV_COLD void log_command(struct kv_client *c, enum kv_command_log_kind kind,
                                const struct kv_command *cmd, const struct kv_slice *argv, int argc,
                                uint64_t value)
{
    struct kv_engine *e = c->worker->engine;
    const struct kv_command_log_options *o = &e->options.command_log[kind];
    if (o->limit < 0 || value < (uint64_t)o->limit || o->max_len == 0 ||
        cmd->flags & KV_CMD_SKIP_SLOWLOG)
        return;
    kv_command_log_add(&e->command_logs[kind], c, cmd, argv, argc, value, o->max_len);
}

static KV_COLD void note_late(struct kv_client *c, const struct kv_command *cmd,
                              const struct kv_slice *argv, int argc, uint64_t ticks)
{
    uint64_t ns = kv_clock_ticks_to_ns(ticks);
    if (kv_monitor_active(c->worker) && !(cmd->flags & KV_CMD_SKIP_MONITOR))
        kv_monitor_show(c, cmd, argv, argc);
    if (c->worker->hotkeys != NULL)
        kv_hotkeys_note(c, cmd, argv, argc, ticks);
    log_command(c, KV_COMMAND_LOG_SLOW, cmd, argv, argc, ns / 1000);
    kv_latency_note(&c->worker->engine->latency,
                    cmd->flags & KV_CMD_FAST ? KV_LATENCY_FAST_COMMAND : KV_LATENCY_COMMAND, ns);
}

/* Arguments lie in one block in their order, or (a command that was too large for the read buffer,
 * or is a script's) in several. */
KV_INLINE bool may_be_large(const struct kv_client *c, const struct kv_slice *argv, int argc,
                            bool nested)
{
    if (nested)
        return c->worker->request_limit != UINT64_MAX;
    const struct kv_slice *last = &argv[argc - 1];
    return (uint64_t)(last->ptr - argv[0].ptr) + last->len >= c->worker->request_limit ||
           c->partial != NULL;
}

static KV_COLD void note_request(struct kv_client *c, const struct kv_command *cmd,
                                 const struct kv_slice *argv, int argc)
{
    uint64_t bytes = 0;
    for (int i = 0; i < argc; i++)
        bytes += argv[i].len;
    log_command(c, KV_COMMAND_LOG_REQUEST, cmd, argv, argc, bytes);
}

KV_INLINE void count_call(struct kv_client *c, const struct kv_command *cmd,
                          const struct kv_slice *argv, int argc, bool failed, bool nested)
{
    struct kv_worker *w = c->worker;
    uint64_t now = kv_clock_ticks();
    uint64_t ticks = now - w->now_ticks;
    w->now_ticks = now;
    struct kv_command_stats *s = &w->command_stats[cmd->id];
    kv_stat_add(&s->calls, 1);
    kv_stat_add(&s->ticks, ticks);
    if (KV_UNLIKELY(failed)) {
        kv_stat_add(&s->failed, 1);
        c->errors++;
    }
    kv_stat_add(&w->stats.commands, 1);
    c->commands++;
    if (KV_LIKELY(w->latency_tracking))
        kv_latency_count(&s->latency, ticks);
    if (KV_UNLIKELY(ticks >= w->late_ticks))
        note_late(c, cmd, argv, argc, ticks);
    if (KV_UNLIKELY(may_be_large(c, argv, argc, nested)))
        note_request(c, cmd, argv, argc);
}

/* Bytes of output behind a position in a chunk (NULL: behind the chunk); `tail` NULL: all of it. */
static size_t output_since(const struct kv_out *o, const struct kv_chunk *tail, const char *pos)
{
    size_t bytes = 0;
    for (const struct kv_chunk *k = tail != NULL ? tail : o->head; k != NULL; k = k->next) {
        const char *end = k == o->tail && o->pos != NULL ? o->pos : k->data + k->len;
        if (k != tail)
            bytes += (size_t)(end - k->data);
        else if (pos != NULL)
            bytes += (size_t)(end - pos);
    }
    return bytes;
}

static KV_COLD void note_reply(struct kv_client *c, const struct kv_command *cmd,
                               const struct kv_slice *argv, int argc, size_t bytes)
{
    if (c->worker->hotkeys != NULL)
        kv_hotkeys_note_reply(c, argv, argc, bytes);
    log_command(c, KV_COMMAND_LOG_REPLY, cmd, argv, argc, bytes);
}

/* What a command of a client that tracks, or gets no replies, ends with. */
static KV_COLD void finish_special(struct kv_client *c, uint32_t special,
                                   const struct kv_out_mark *mark)
{
    struct kv_call *call = &c->worker->call;
    if (special & KV_CLIENT_TRACKING)
        kv_tracking_ran(call);
    const uint32_t muted = KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP;
    if (special & muted && !(call->flags & KV_CALL_IN_EXEC) && c->flags & muted)
        kv_out_rewind(&c->out, mark);
}

void kv_execute(struct kv_client *c, const struct kv_command *cmd, const struct kv_slice *argv,
                int argc, const struct kv_key *keys, int key_count, uint32_t flags)
{
    struct kv_worker *w = c->worker;
    struct kv_call *call = &w->call;
    prepare_call(c, cmd, argv, argc, flags);
    call->keys = keys;
    call->key_count = key_count;
    uint32_t special = c->flags & (KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP | KV_CLIENT_TRACKING);
    bool may_retry = cmd->mode == KV_MODE_SHARDS;
    struct kv_out_mark mark = {0};
    if (KV_UNLIKELY(special != 0 || may_retry))
        mark = kv_out_mark(&c->out);
    uint64_t errors = kv_stat_read(&w->stats.error_replies);
    const struct kv_chunk *tail = c->out.tail;
    const char *pos = c->out.pos;

    cmd->fn(call);

    if (KV_UNLIKELY(may_retry && call->flags & KV_CALL_RETRY)) {
        kv_out_rewind(&c->out, &mark);
        return;
    }
    /* Smaller, when the command was CONFIG RESETSTAT. */
    bool failed = kv_stat_read(&w->stats.error_replies) > errors;
    count_call(c, cmd, argv, argc, failed, false);
    if (KV_UNLIKELY(c->out.tail != tail || (size_t)(c->out.pos - pos) >= w->reply_limit))
        note_reply(c, cmd, argv, argc, output_since(&c->out, tail, pos));
    if (KV_UNLIKELY(call->view.dirty != 0 && cmd->flags & KV_CMD_WRITE &&
                    kv_stream_active(&w->engine->stream))) {
        if (!(call->flags & KV_CALL_PROPAGATED))
            kv_stream_add(w, call->view.db, argv, argc);
        w->client_wrote = true;
    }
    if (KV_UNLIKELY(w->blocking.ready_len != 0) && !(flags & KV_CALL_IN_EXEC))
        kv_blocking_serve(w);
    if (KV_UNLIKELY(special != 0))
        finish_special(c, special, &mark);
}

void kv_execute_nested(struct kv_client *c, const struct kv_command *cmd,
                       const struct kv_slice *argv, int argc, const struct kv_key *keys,
                       int key_count, struct kv_out *out)
{
    struct kv_worker *w = c->worker;
    struct kv_call *call = &w->call;
    prepare_call(c, cmd, argv, argc, KV_CALL_IN_EXEC | KV_CALL_IN_SCRIPT);
    call->keys = keys;
    call->key_count = key_count;
    call->out = out;
    call->block = NULL;
    uint64_t errors = kv_stat_read(&w->stats.error_replies);
    w->now_ticks = kv_clock_ticks();

    cmd->fn(call);

    count_call(c, cmd, argv, argc, kv_stat_read(&w->stats.error_replies) > errors, true);
    if (KV_UNLIKELY(c->flags & KV_CLIENT_TRACKING))
        kv_tracking_ran(call);
    if (call->view.dirty != 0 && cmd->flags & KV_CMD_WRITE &&
        kv_stream_active(&w->engine->stream)) {
        if (!(call->flags & KV_CALL_PROPAGATED))
            kv_stream_add(w, call->view.db, argv, argc);
        w->client_wrote = true;
    }
}

/* --- refusing --- */

static void refuse(struct kv_client *c, const struct kv_command *cmd, const char *text)
{
    struct kv_worker *w = c->worker;
    char abort[KV_ACL_REPLY_MAX + NAME_SHOWN];
    if (c->flags & KV_CLIENT_MULTI)
        c->flags |= KV_CLIENT_DIRTY_EXEC;
    if (cmd != NULL)
        kv_stat_add(&w->command_stats[cmd->id].rejected, 1);
    if (cmd == w->engine->cmd_exec && strncmp(text, "EXECABORT", 9) != 0) {
        /* An EXEC that may not run ends the transaction. */
        kv_tx_discard(c);
        kv_tx_unwatch_all(c);
        snprintf(abort, sizeof(abort), "EXECABORT Transaction discarded because of: %s",
                 strncmp(text, "ERR ", 4) == 0 ? text + 4 : text);
        text = abort;
    }
    c->errors++;
    kv_call_count_error(w, kv_slice_cstr(text));
    if (!(c->flags & (KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP)))
        kv_reply_error_raw(&c->out, kv_slice_cstr(text));
    if (!(c->flags & KV_CLIENT_MULTI) && (cmd == NULL || cmd->parent != w->engine->cmd_client))
        kv_tracking_end_caching(c);
}

static KV_COLD void refuse_unknown(struct kv_client *c, const struct kv_request *r)
{
    char text[NAME_SHOWN * 4];
    char args[NAME_SHOWN * 2];
    size_t used = 0;
    args[0] = '\0';
    for (int i = 1; i < r->argc && used < NAME_SHOWN; i++) {
        size_t len = KV_MIN(r->argv[i].len, NAME_SHOWN - used);
        const char *nul = len > 0 ? memchr(r->argv[i].ptr, '\0', len) : NULL;
        if (nul != NULL)
            len = (size_t)(nul - r->argv[i].ptr);
        used +=
            (size_t)snprintf(args + used, sizeof(args) - used, "'%.*s' ", (int)len, r->argv[i].ptr);
    }
    snprintf(text, sizeof(text), "ERR unknown command '%.*s', with args beginning with: %s",
             (int)KV_MIN(r->argv[0].len, (size_t)NAME_SHOWN), r->argv[0].ptr, args);
    refuse(c, NULL, text);
}

/* A web page can make its visitor's browser send requests here, with commands in the body: the
 * first line or header of one ends the connection. */
static KV_COLD void refuse_browser(struct kv_client *c)
{
    kv_log(KV_LOG_WARNING,
           "Possible attack: client id=%llu addr=%s sent a line of HTTP (\"POST\" or \"Host:\"). "
           "Somebody may be using a browser to reach this server. Connection closed.",
           (unsigned long long)c->id, c->peer != NULL ? c->peer : "-");
    kv_client_close_soon(c);
}

static KV_COLD void refuse_subcommand(struct kv_client *c, const struct kv_command *cmd,
                                      struct kv_slice sub)
{
    char text[NAME_SHOWN * 3];
    char upper[64];
    size_t len = KV_MIN(strlen(cmd->name), sizeof(upper) - 1);
    for (size_t i = 0; i < len; i++)
        upper[i] =
            cmd->name[i] >= 'a' && cmd->name[i] <= 'z' ? (char)(cmd->name[i] - 32) : cmd->name[i];
    upper[len] = '\0';
    snprintf(text, sizeof(text), "ERR unknown subcommand '%.*s'. Try %s HELP.",
             (int)KV_MIN(sub.len, (size_t)NAME_SHOWN), sub.ptr, upper);
    refuse(c, cmd, text);
}

static KV_COLD void refuse_arity(struct kv_client *c, const struct kv_command *cmd)
{
    char text[NAME_SHOWN];
    snprintf(text, sizeof(text), "ERR wrong number of arguments for '%s' command", cmd->full_name);
    refuse(c, cmd, text);
}

/* Whether a client may run a command that is not authenticated, or whose user may not do
 * everything. False after an error reply. */
static KV_COLD bool permitted(struct kv_client *c, const struct kv_command *cmd,
                              const struct kv_request *r)
{
    char text[KV_ACL_REPLY_MAX];
    if (!(c->flags & KV_CLIENT_AUTHENTICATED) && !(cmd->flags & KV_CMD_NO_AUTH)) {
        refuse(c, cmd, NOT_AUTHENTICATED);
        return false;
    }
    enum kv_acl_verdict verdict = kv_acl_check_call(
        c, cmd, r->argv, r->argc, c->flags & KV_CLIENT_MULTI ? KV_ACL_MULTI : KV_ACL_TOPLEVEL);
    if (verdict == KV_ACL_ALLOWED)
        return true;
    kv_acl_denial_text(verdict, c, cmd, text);
    refuse(c, cmd, text);
    return false;
}

/* Name, subcommand, arity and permissions; NULL after an error reply. */
static const struct kv_command *resolve(struct kv_client *c, const struct kv_request *r)
{
    const struct kv_command *cmd = kv_worker_lookup(c->worker, r->argv[0]);
    if (cmd == NULL) {
        if (kv_slice_is(r->argv[0], "post") || kv_slice_is(r->argv[0], "host:"))
            refuse_browser(c);
        else
            refuse_unknown(c, r);
        return NULL;
    }
    if (cmd->sub_count > 0 && r->argc > 1) {
        const struct kv_command *sub = kv_command_sub(cmd, r->argv[1]);
        if (sub == NULL) {
            refuse_subcommand(c, cmd, r->argv[1]);
            return NULL;
        }
        cmd = sub;
    }
    if (!kv_command_arity_fits(cmd, r->argc) || cmd->fn == NULL) {
        refuse_arity(c, cmd);
        return NULL;
    }
    if (KV_UNLIKELY((c->flags & (KV_CLIENT_AUTHENTICATED | KV_CLIENT_RESTRICTED)) !=
                    KV_CLIENT_AUTHENTICATED) &&
        !permitted(c, cmd, r))
        return NULL;
    return cmd;
}

/* --- CLIENT PAUSE, and keys that errands hold --- */

bool kv_engine_paused(const struct kv_engine *e, int64_t now_ms)
{
    return e->client_pause_until_ms != 0 && now_ms < e->client_pause_until_ms;
}

/* Whether an errand holds a key that the command may write to. A command that may write to any key
 * waits for all errands. */
static bool is_held(struct kv_worker *w, const struct kv_command *cmd, const struct kv_slice *argv,
                    int argc)
{
    struct kv_key key, *keys = NULL;
    int count;
    const uint32_t any = KV_CMD_PUBSUB | KV_CMD_READONLY;
    if (cmd->flags & KV_CMD_MAY_REPLICATE && !(cmd->flags & any))
        return true; /* a script */
    if (!(cmd->flags & KV_CMD_WRITE))
        return false;
    if (cmd->mode != KV_MODE_KEYS || cmd->flags & KV_CMD_TOUCHES_ARBITRARY_KEYS)
        return true;
    return kv_resolve_keys(w, cmd, argv, argc, &key, &keys, &count) == KV_OK &&
           kv_errands_hold(&w->engine->errands, keys, count);
}

static bool hold_applies(struct kv_client *c, const struct kv_command *cmd,
                         const struct kv_request *r)
{
    struct kv_worker *w = c->worker;
    if (cmd != w->engine->cmd_exec)
        return is_held(w, cmd, r->argv, r->argc);
    for (uint32_t i = 0; c->flags & KV_CLIENT_MULTI && i < c->tx->queue_len; i++) {
        const struct kv_queued *q = &c->tx->queue[i];
        if (is_held(w, q->cmd, q->argv, q->argc))
            return true;
    }
    return false;
}

static KV_COLD bool pause_applies(struct kv_client *c, const struct kv_command *cmd,
                                  const struct kv_request *r)
{
    struct kv_engine *e = c->worker->engine;
    if (e->errands.held != NULL && hold_applies(c, cmd, r))
        return true;
    if (!kv_engine_paused(e, kv_clock_wall_ms()) || cmd == e->cmd_unpause ||
        (c->flags & KV_CLIENT_APPLY && kv_engine_loading(e)))
        return false;
    if (e->client_pause_all)
        return true;
    if (cmd == e->cmd_exec)
        return c->flags & KV_CLIENT_MULTI && c->tx->writes;
    return cmd->flags & (KV_CMD_WRITE | KV_CMD_MAY_REPLICATE);
}

void kv_pause_client(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    if (c->park == KV_PARK_ALONE)
        kv_gate_cancel(w, c);
    c->park = KV_PARK_NONE;
    c->flags |= KV_CLIENT_PAUSED;
    w->client_paused |= kv_engine_paused(w->engine, kv_clock_wall_ms());
    kv_waitlist_append(&w->paused, c);
}

/* --- EXEC --- */

static uint32_t exec_add_locks(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    struct kv_tx *tx = c->tx;
    uint32_t locks = 0;
    for (uint32_t i = 0; i < tx->watch_len; i++, locks++)
        kv_lockset_add(&w->locks, kv_watch_shard(tx->watches[i].watch));
    return locks;
}

struct exec_keys {
    struct kv_key key;   /* the only one of many commands */
    struct kv_key *keys; /* it, or several in the arena */
    int count;
};

/* False when memory is short. */
static bool exec_resolve(struct kv_client *c, struct exec_keys *all, uint32_t *locks)
{
    struct kv_worker *w = c->worker;
    struct kv_tx *tx = c->tx;
    for (uint32_t i = 0; i < tx->queue_len; i++) {
        struct kv_queued *q = &tx->queue[i];
        if (kv_resolve_keys(w, q->cmd, q->argv, q->argc, &all[i].key, &all[i].keys,
                            &all[i].count) == KV_ERR_NOMEM)
            return false;
        for (int j = 0; j < all[i].count; j++, ++*locks)
            kv_lockset_add(&w->locks, kv_store_shard_of(w->engine->store, all[i].keys[j].hash));
    }
    return true;
}

static bool exec_watches_dirty(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    struct kv_tx *tx = c->tx;
    prepare_call(c, w->engine->cmd_exec, NULL, 0, 0);
    for (uint32_t i = 0; i < tx->watch_len; i++)
        if (kv_store_watch_dirty(&w->call.view, tx->watches[i].watch))
            return true;
    return false;
}

/* An error takes the place of a queued command's reply. */
static KV_COLD void exec_refuse(struct kv_client *c, const struct kv_queued *q,
                                struct kv_slice error)
{
    kv_stat_add(&c->worker->command_stats[q->cmd->id].rejected, 1);
    kv_call_count_error(c->worker, error);
    kv_reply_error_raw(&c->out, error);
}

/* Whether a queued command may still run: its user may have lost the right, or the connection its
 * user, by a command before. False after an error in its place. */
static KV_COLD bool exec_permits(struct kv_client *c, const struct kv_queued *q)
{
    char text[NAME_SHOWN * 3];
    const char *reason = NULL;
    if (!(c->flags & KV_CLIENT_AUTHENTICATED) && !(q->cmd->flags & KV_CMD_NO_AUTH)) {
        exec_refuse(c, q, KV_SLICE(NOT_AUTHENTICATED));
        return false;
    }
    switch (kv_acl_check_call(c, q->cmd, q->argv, q->argc, KV_ACL_MULTI)) {
    case KV_ACL_ALLOWED:
        return true;
    case KV_ACL_NOT_CHECKED:
        exec_refuse(c, q, KV_SLICE(OUT_OF_MEMORY));
        return false;
    case KV_ACL_DENIED_COMMAND:
        reason = "no permission to execute the command or subcommand";
        break;
    case KV_ACL_DENIED_KEY:
        reason = "no permission to touch the specified keys";
        break;
    case KV_ACL_DENIED_CHANNEL:
        reason = "no permission to access one of the channels used as arguments";
        break;
    }
    snprintf(text, sizeof(text),
             "NOPERM ACLs rules changed between the moment the transaction was accumulated and "
             "the EXEC call. This command is no longer allowed for the following reason: %s",
             reason);
    exec_refuse(c, q, kv_slice_cstr(text));
    return false;
}

/* Runs the queue; more than one line in the stream is wrapped in MULTI and EXEC. */
static void exec_run(struct kv_client *c, struct exec_keys *all, enum kv_hold hold)
{
    static const struct kv_slice multi = {"MULTI", 5}, exec = {"EXEC", 4};
    struct kv_worker *w = c->worker;
    struct kv_tx *tx = c->tx;
    bool active = tx->writes && kv_stream_active(&w->engine->stream);
    struct kv_stream_buffer before = w->stream;
    if (active)
        kv_stream_add(w, c->db, &multi, 1);
    size_t after_multi = w->stream.len;
    kv_reply_array(&c->out, tx->queue_len);
    w->call.hold_all = true;
    for (uint32_t i = 0; i < tx->queue_len; i++) {
        struct kv_queued *q = &tx->queue[i];
        if (KV_UNLIKELY((c->flags & (KV_CLIENT_AUTHENTICATED | KV_CLIENT_RESTRICTED)) !=
                        KV_CLIENT_AUTHENTICATED) &&
            !exec_permits(c, q))
            continue;
        kv_execute(c, q->cmd, q->argv, q->argc, all[i].keys, all[i].count, KV_CALL_IN_EXEC);
    }
    if (active && w->stream.len > after_multi) {
        kv_stream_add(w, w->stream.last_db, &exec, 1);
    } else if (active) {
        w->stream.len = before.len;
        w->stream.first_db = before.first_db;
        w->stream.last_db = before.last_db;
    }
    w->call.hold_all = hold == KV_HOLD_ALONE || hold == KV_HOLD_STOP;
    kv_blocking_serve(w);
    w->call.hold_all = false;
}

static void exec_reply_flags(struct kv_client *c, struct kv_out_mark *mark)
{
    if (c->flags & (KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP))
        kv_out_rewind(&c->out, mark);
}

static enum kv_dispatch dispatch_exec(struct kv_client *c, const struct kv_request *r)
{
    struct kv_worker *w = c->worker;
    struct kv_engine *e = w->engine;
    if (c->flags & KV_CLIENT_DIRTY_EXEC) {
        kv_tx_discard(c);
        kv_tx_unwatch_all(c);
        refuse(c, e->cmd_exec, "EXECABORT Transaction discarded because of previous errors.");
        return KV_DISPATCH_DONE;
    }
    struct kv_tx *tx = c->tx;
    if (tx->writes && !kv_wait_for_snapshot(c))
        return KV_DISPATCH_PARKED;
    /* Looked at once: others make the ring larger meanwhile. */
    bool grow = tx->writes && kv_stream_too_small(e, tx->queue_bytes, tx->queue_len);
    if (tx->writes && !grow && kv_stream_active(&e->stream) &&
        !kv_wait_for_room(c, tx->queue_bytes, tx->queue_len))
        return KV_DISPATCH_PARKED;
    kv_lockset_clear(&w->locks);
    uint32_t locks = exec_add_locks(c);
    struct exec_keys *all = kv_arena_try_alloc(&w->arena, (tx->queue_len + 1) * sizeof(*all));
    if (all == NULL || !exec_resolve(c, all, &locks)) {
        kv_lockset_clear(&w->locks);
        refuse(c, e->cmd_exec, OUT_OF_MEMORY);
        return KV_DISPATCH_DONE;
    }
    enum kv_cmd_mode mode = tx->mode;
    if (mode == KV_MODE_FREE && locks > 0)
        mode = KV_MODE_KEYS;
    if (grow)
        mode = KV_MAX(mode, KV_MODE_ALONE);
    enum kv_hold hold = kv_acquire(c, mode);
    if (hold == KV_HOLD_PARKED)
        return KV_DISPATCH_PARKED;
    if (grow)
        kv_stream_grow(e, tx->queue_bytes, tx->queue_len);

    struct kv_out_mark mark = kv_out_mark(&c->out);
    kv_delivery_frame(c);
    if (!kv_memory_over(w))
        w->script_oom = false; /* of an earlier command */
    if (exec_watches_dirty(c)) {
        kv_reply_null_array(&c->out);
        kv_tx_unwatch_held(c);
    } else {
        kv_tx_unwatch_held(c);
        exec_run(c, all, hold);
    }
    count_call(c, e->cmd_exec, r->argv, r->argc, false, false);
    exec_reply_flags(c, &mark);
    kv_release(w, hold);
    kv_commit_note(c);
    kv_tx_discard(c);
    kv_tracking_end_caching(c);
    return KV_DISPATCH_DONE;
}

/* --- one command --- */

static bool queues(const struct kv_client *c, const struct kv_command *cmd)
{
    const struct kv_engine *e = c->worker->engine;
    return c->flags & KV_CLIENT_MULTI && cmd != e->cmd_exec && cmd != e->cmd_discard &&
           cmd != e->cmd_multi && cmd != e->cmd_watch && cmd != e->cmd_quit && cmd != e->cmd_reset;
}

static void queue_command(struct kv_client *c, const struct kv_command *cmd,
                          const struct kv_request *r)
{
    c->last_cmd = cmd;
    if (cmd->flags & KV_CMD_NO_MULTI) {
        refuse(c, cmd, "ERR Command not allowed inside a transaction");
    } else if (!kv_tx_queue(c, cmd, r)) {
        refuse(c, cmd, OUT_OF_MEMORY);
    } else if (!(c->flags & (KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP))) {
        KV_REPLY_RAW(&c->out, "+QUEUED\r\n");
    }
}

/* A large argument that arrived in a block of its own may become the value itself. */
static void offer_block(struct kv_worker *w, struct kv_partial *partial)
{
    w->call.block = NULL;
    if (KV_LIKELY(partial == NULL))
        return;
    for (uint32_t i = 0; i < partial->block_count; i++) {
        if (partial->blocks[i].block != NULL) {
            w->call.block = partial->blocks[i].block;
            w->call.block_arg = partial->blocks[i].arg;
            return;
        }
    }
}

/* The call took the block over: the partial command must not release it. */
static void settle_block(struct kv_worker *w, struct kv_partial *partial, int block_arg,
                         bool offered)
{
    if (offered && w->call.block == NULL)
        (void)kv_partial_take_block(partial, block_arg);
    w->call.block = NULL;
}

/* Room in the stream, locks; KV_HOLD_PARKED when the client waits. */
static enum kv_hold acquire_for(struct kv_client *c, const struct kv_command *cmd,
                                const struct kv_request *r, const struct kv_key *keys,
                                int key_count)
{
    struct kv_worker *w = c->worker;
    struct kv_engine *e = w->engine;
    const uint32_t may_write = KV_CMD_WRITE | KV_CMD_SCRIPT;
    enum kv_cmd_mode mode = kv_command_mode(cmd, r->argv, r->argc);
    size_t bytes = 0;
    bool grow = false;
    if (KV_UNLIKELY(kv_snapshot_full(&e->snapshot)) && cmd->flags & may_write &&
        !kv_wait_for_snapshot(c))
        return KV_HOLD_PARKED;
    if (KV_UNLIKELY(cmd->flags & may_write && kv_stream_active(&e->stream))) {
        for (int i = 0; i < r->argc; i++)
            bytes += r->argv[i].len + 16;
        grow = kv_stream_too_small(e, bytes, 1);
        if (grow)
            mode = KV_MAX(mode, KV_MODE_ALONE);
        else if (!kv_wait_for_room(c, bytes, 1))
            return KV_HOLD_PARKED;
    }
    if (mode == KV_MODE_KEYS && key_count == 0 && !(cmd->flags & KV_CMD_SCRIPT))
        mode = KV_MODE_FREE;
    if (e->multi) {
        kv_lockset_clear(&w->locks);
        if (KV_UNLIKELY(cmd->flags & KV_CMD_SCRIPT)) {
            kv_lockset_add_token(&w->locks);
            if (kv_script_known_to_upgrade(e, r->argv, r->argc))
                mode = KV_MODE_ALONE;
        }
        for (int i = 0; i < key_count; i++)
            kv_lockset_add(&w->locks, kv_store_shard_of(e->store, keys[i].hash));
    }
    enum kv_hold hold = kv_acquire(c, mode);
    if (grow && hold != KV_HOLD_PARKED)
        kv_stream_grow(e, bytes, 1);
    return hold;
}

static enum kv_dispatch dispatch_held(struct kv_client *c, const struct kv_command *cmd,
                                      const struct kv_request *r, struct kv_partial *partial)
{
    struct kv_worker *w = c->worker;
    struct kv_key key, *keys = NULL;
    int key_count;
    if (kv_resolve_keys(w, cmd, r->argv, r->argc, &key, &keys, &key_count) == KV_ERR_NOMEM) {
        refuse(c, cmd, OUT_OF_MEMORY);
        return KV_DISPATCH_DONE;
    }
    for (;;) {
        enum kv_hold hold = acquire_for(c, cmd, r, keys, key_count);
        if (hold == KV_HOLD_PARKED)
            return KV_DISPATCH_PARKED;
        offer_block(w, partial);
        int block_arg = w->call.block_arg;
        bool offered = w->call.block != NULL;
        w->call.hold_all = hold == KV_HOLD_ALONE || hold == KV_HOLD_STOP;
        kv_execute(c, cmd, r->argv, r->argc, keys, key_count, 0);
        w->call.hold_all = false;
        settle_block(w, partial, block_arg, offered);
        bool retry = w->call.flags & KV_CALL_RETRY;
        uint32_t busy = w->locks.busy;
        kv_release(w, hold);
        kv_commit_note(c);
        if (KV_LIKELY(!retry)) {
            c->park_rounds = 0;
            return KV_DISPATCH_DONE;
        }
        if (kv_park_at_shard(c, busy))
            return KV_DISPATCH_PARKED;
    }
}

/* Memory is above the limit: true when the command needs some and none can be had. In a transaction
 * every command does, for it is kept in the queue. */
static KV_COLD bool needs_memory_in_vain(struct kv_client *c, const struct kv_command *cmd)
{
    struct kv_worker *w = c->worker;
    const struct kv_engine *e = w->engine;
    bool needs = cmd->flags & KV_CMD_DENYOOM;
    if (c->flags & KV_CLIENT_MULTI)
        needs = cmd == e->cmd_exec
                    ? c->tx->denyoom
                    : cmd != e->cmd_discard && cmd != e->cmd_quit && cmd != e->cmd_reset;
    bool script = c->flags & KV_CLIENT_MULTI ? cmd == e->cmd_exec && c->tx->scripts
                                             : (cmd->flags & KV_CMD_SCRIPT) != 0;
    if ((!needs && !script) || c->flags & KV_CLIENT_APPLY || kv_engine_loading(e))
        return false;
    bool admitted = kv_memory_admit(w);
    w->now_ticks = kv_clock_ticks(); /* the time that eviction took is not the command's */
    /* A script is refused by what it does, not by its name. */
    w->script_oom = script && !admitted;
    return !admitted && needs;
}

/* What a subscribed client may send while its protocol cannot tell messages from replies. */
static KV_COLD bool restricted(const struct kv_client *c, const struct kv_command *cmd)
{
    const struct kv_engine *e = c->worker->engine;
    const uint32_t subscribes = KV_CMD_PUBSUB | KV_CMD_NOSCRIPT;
    return (cmd->flags & subscribes) != subscribes && cmd != e->cmd_ping && cmd != e->cmd_quit &&
           cmd != e->cmd_reset;
}

/* Writes are refused while the log cannot take them, and PING is, so that whoever watches the
 * server notices. While data are loaded it is all that needs them, and the rules for subscribers
 * come first. */
static KV_COLD bool denied(const struct kv_client *c, const struct kv_command *cmd)
{
    const struct kv_engine *e = c->worker->engine;
    if (c->flags & KV_CLIENT_APPLY)
        return false;
    if (kv_engine_loading(e))
        return !(cmd->flags & KV_CMD_LOADING) && !(kv_pubsub_restricts(c) && restricted(c, cmd));
    if (cmd == e->cmd_exec)
        return c->flags & KV_CLIENT_MULTI && c->tx->writes;
    return cmd->flags & KV_CMD_WRITE || cmd == e->cmd_ping;
}

static KV_COLD void refuse_denied(struct kv_client *c, const struct kv_command *cmd)
{
    char text[KV_DENIAL_TEXT];
    if (kv_engine_loading(c->worker->engine)) {
        refuse(c, cmd, KV_LOADING_TEXT);
        return;
    }
    kv_commit_denial(c->worker->engine, text);
    refuse(c, cmd, text);
}

static KV_COLD void refuse_restricted(struct kv_client *c, const struct kv_command *cmd)
{
    char text[NAME_SHOWN * 2];
    snprintf(text, sizeof(text),
             "ERR Can't execute '%s': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET "
             "are allowed in this context",
             cmd->full_name);
    refuse(c, cmd, text);
}

/* A parked command waits for a script that is busy, or for what waits for it. Forced shutdowns wait
 * for its end. */
static bool must_not_wait(const struct kv_client *c, const struct kv_command *cmd)
{
    const struct kv_script_state *s = &c->worker->engine->script;
    bool parked = c->park == KV_PARK_SHARD || c->park == KV_PARK_GATE || c->park == KV_PARK_ALONE;
    return parked && atomic_load(&s->busy) && !(cmd->flags & KV_CMD_ALLOW_BUSY);
}

/* A script is busy. What is queued or refused anyway does so at once: it neither runs beside the
 * script nor ends it. */
static KV_COLD enum kv_script_verdict judge(struct kv_client *c, const struct kv_command *cmd,
                                            const struct kv_request *r)
{
    if (cmd->flags & KV_CMD_ALLOW_BUSY && kv_pubsub_restricts(c) && restricted(c, cmd)) {
        refuse_restricted(c, cmd);
        return KV_SCRIPT_DONE;
    }
    if (cmd->flags & KV_CMD_ALLOW_BUSY && queues(c, cmd)) {
        queue_command(c, cmd, r);
        return KV_SCRIPT_DONE;
    }
    return kv_script_judge(c, cmd, r->argv, r->argc);
}

/* CLIENT REPLY SKIP silences the command after it. */
static void advance_reply_skip(struct kv_client *c)
{
    c->flags &= ~(uint32_t)KV_CLIENT_REPLY_SKIP;
    if (c->flags & KV_CLIENT_REPLY_SKIP_NEXT) {
        c->flags &= ~(uint32_t)KV_CLIENT_REPLY_SKIP_NEXT;
        c->flags |= KV_CLIENT_REPLY_SKIP;
    }
}

enum kv_dispatch kv_dispatch(struct kv_client *c, const struct kv_request *r,
                             struct kv_partial *partial)
{
    struct kv_worker *w = c->worker;
    enum kv_dispatch result = KV_DISPATCH_DONE;
    KV_ASSERT(r->argc > 0);
    w->now_ticks = kv_clock_ticks();
    w->now_ms = kv_worker_wall_ms(w, w->now_ticks);
    const struct kv_command *cmd = resolve(c, r);
    enum kv_script_verdict verdict = KV_SCRIPT_GO_ON;
    bool busy = atomic_load_explicit(&w->engine->script.busy, memory_order_acquire);
    if (KV_UNLIKELY(busy) && cmd != NULL)
        verdict = judge(c, cmd, r);
    if (KV_UNLIKELY(verdict != KV_SCRIPT_GO_ON)) {
        if (verdict == KV_SCRIPT_REFUSED)
            refuse(c, cmd, kv_script_busy_text(w->engine));
        else if (verdict == KV_SCRIPT_LATER)
            result = KV_DISPATCH_PARKED;
    } else if (cmd != NULL) {
        if (kv_memory_over(w) && needs_memory_in_vain(c, cmd)) {
            refuse(c, cmd, OVER_LIMIT);
        } else if (KV_UNLIKELY(kv_commit_denies(w->engine)) && denied(c, cmd)) {
            refuse_denied(c, cmd);
        } else if (KV_UNLIKELY(kv_pubsub_restricts(c)) && restricted(c, cmd)) {
            refuse_restricted(c, cmd);
        } else if (KV_UNLIKELY(c->flags & KV_CLIENT_MONITOR) &&
                   cmd->flags & (KV_CMD_WRITE | KV_CMD_READONLY | KV_CMD_MAY_REPLICATE)) {
            refuse(c, cmd, "ERR Replica can't interact with the keyspace");
        } else if (queues(c, cmd)) {
            queue_command(c, cmd, r);
        } else if (KV_UNLIKELY(w->engine->pause_until_ms != 0) && pause_applies(c, cmd, r)) {
            kv_pause_client(c);
            result = KV_DISPATCH_PARKED;
        } else if (cmd == w->engine->cmd_exec && c->flags & KV_CLIENT_MULTI) {
            result = dispatch_exec(c, r);
        } else {
            result = dispatch_held(c, cmd, r, partial);
        }
        if (KV_UNLIKELY(result == KV_DISPATCH_PARKED && must_not_wait(c, cmd))) {
            kv_client_unpark(c);
            refuse(c, cmd, kv_script_busy_text(w->engine));
            result = KV_DISPATCH_DONE;
        }
    }
    if (KV_UNLIKELY(c->park == KV_PARK_ALONE && !(c->flags & KV_CLIENT_PARKED))) {
        /* It was resumed as an exclusive command and turned out to be none. */
        kv_gate_cancel(w, c);
        c->park = KV_PARK_NONE;
    }
    kv_stream_settle(w); /* what was refused or is parked writes nothing now */
    if (result == KV_DISPATCH_DONE &&
        KV_UNLIKELY(c->flags & (KV_CLIENT_REPLY_SKIP | KV_CLIENT_REPLY_SKIP_NEXT)))
        advance_reply_skip(c);
    kv_delivery_unframe(c);
    if (KV_UNLIKELY(kv_delivery_pending(w)))
        kv_delivery_settle(w);
    return result;
}
