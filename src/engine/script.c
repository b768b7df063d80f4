/* Scripts at work: the commands that they run, what these hold, and what happens meanwhile.
 *
 * A script's command runs through the worker's one `struct kv_call`, which is kept aside in struct
 * kv_script, and with an arena of its own that is emptied before each command, so that a script of
 * a million commands holds no more memory than one of two.
 *
 * What is held. The command that runs the script has locked the token and the shards of its
 * declared keys, or is alone. Before a command of the script runs, its keys are compared with that;
 * whatever else it needs makes the script alone, by the gate. Its first such call pays for waiting
 * until all other workers have left; the next run of the same text begins behind the gate.
 *
 * Killing. `phase` says whether the script has written. The script changes it before its first
 * write, whoever kills it changes it otherwise, by compare-and-swap: a script is never killed after
 * a write, and never writes after it was killed. The error that ends it may be caught by the script
 * itself, so whoever runs it must ask again and again: between its instructions (kv_script_poll),
 * and before its commands, which may be slow (kv_script_due).
 *
 * While it is busy, its worker polls the sockets of its other connections and runs what they send,
 * one command at a time and without locks: nearly all is refused. Everything in the worker that
 * belongs to the script's command is put aside for that time: the shared read buffer, requests that
 * were parsed ahead, the call, what is collected for the change stream, keys that have become
 * ready. Clients are not freed, only marked, since the round that runs the script may refer to
 * them. Of the script's own client nothing is sent or dropped, since its command refers to its
 * words and to places in its output. Nothing is removed, be it due. Rejected: to run the worker's
 * round from here. Its loop, its lists and its periodic work would have to be safe against that at
 * any point; polling needs nothing of them.
 */
#include "engine/script.h"
#include "base/log.h"
#include "engine/acl.h"
#include "engine/worker.h"
#include <poll.h>
#include <stdio.h>

#define SERVE_NS 2000000 /* between two looks at the sockets */

enum phase { PHASE_NONE, PHASE_RUNNING, PHASE_WROTE, PHASE_KILLED };

/* A command line, with its words behind. */
struct kv_script_line {
    size_t size; /* of all of it */
    uint64_t start_ticks;
    int argc;
    struct kv_slice argv[];
};

/* What belongs to the script's command while other connections are served. */
struct kv_script_aside {
    struct kv_call call;
    struct kv_lockset locks;
    struct kv_stream_buffer stream;
    uint64_t stream_promised;
    struct kv_ready *ready;
    uint32_t ready_len, ready_capacity;
    bool client_wrote;
    int64_t now_ms;
    uint64_t now_ticks, hold_start;
    char *input;
    struct kv_client *framed;
    struct kv_planned plan[KV_LOOKAHEAD_MAX];
    char spare[KV_INPUT_BYTES]; /* the shared read buffer meanwhile */
};

static bool is_phase(struct kv_engine *e, enum phase phase)
{
    return atomic_load_explicit(&e->script.phase, memory_order_acquire) == (unsigned)phase;
}

static bool change_phase(struct kv_engine *e, enum phase from, enum phase to)
{
    unsigned expected = from;
    return atomic_compare_exchange_strong(&e->script.phase, &expected, (unsigned)to);
}

void kv_script_keep(struct kv_engine *e, enum kv_script_owner owner, void *scripts,
                    void (*destroy)(void *scripts))
{
    KV_ASSERT(e->scripts[owner] == NULL);
    e->scripts_destroy[owner] = destroy;
    e->scripts[owner] = scripts;
}

void *kv_script_kept(const struct kv_engine *e, enum kv_script_owner owner)
{
    return e->scripts[owner];
}

void kv_script_state_init(struct kv_engine *e)
{
    kv_mutex_init(&e->script.lock, KV_RANK_SCRIPT);
}

void kv_script_state_release(struct kv_engine *e)
{
    KV_ASSERT(e->script.line == NULL);
    for (int i = 0; i < KV_SCRIPT_OWNERS; i++)
        if (e->scripts[i] != NULL)
            e->scripts_destroy[i](e->scripts[i]);
    kv_mutex_release(&e->script.lock);
}

const char *kv_script_busy_text(const struct kv_engine *e)
{
    if (atomic_load_explicit(&e->script.function, memory_order_relaxed))
        return "BUSY Redis is busy running a script. You can only call FUNCTION KILL or SHUTDOWN "
               "NOSAVE.";
    return "BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.";
}

/* --- libraries --- */

const struct kv_library_ops *kv_library_ops(const struct kv_engine *e)
{
    return e->table->libraries;
}

void kv_library_note_counts(struct kv_engine *e, struct kv_library_counts counts)
{
    atomic_store_explicit(&e->script.library_count, counts.libraries, memory_order_relaxed);
    atomic_store_explicit(&e->script.function_count, counts.functions, memory_order_relaxed);
}

struct kv_library_counts kv_library_counts(const struct kv_engine *e)
{
    return (struct kv_library_counts){
        atomic_load_explicit(&e->script.library_count, memory_order_relaxed),
        atomic_load_explicit(&e->script.function_count, memory_order_relaxed)};
}

/* --- what is shown of a busy function --- */

/* A copy of `argv` at `room`, which has the slices and behind them the words. */
static void copy_words(struct kv_slice *room, const struct kv_slice *argv, int argc)
{
    char *at = (char *)(room + argc);
    for (int i = 0; i < argc; i++) {
        if (argv[i].len > 0)
            memcpy(at, argv[i].ptr, argv[i].len);
        room[i] = kv_slice(at, argv[i].len);
        at += argv[i].len;
    }
}

static size_t words_size(const struct kv_slice *argv, int argc)
{
    size_t size = (size_t)argc * sizeof(*argv);
    for (int i = 0; i < argc; i++)
        size += argv[i].len;
    return size;
}

static void keep_line(struct kv_script *s)
{
    struct kv_script_state *state = &s->outer.engine->script;
    size_t words = words_size(s->outer.argv, s->outer.argc);
    struct kv_script_line *line = kv_mem_try_alloc(sizeof(*line) + words, KV_MEM_SCRIPT);
    if (line == NULL)
        return;
    line->size = sizeof(*line) + words;
    line->start_ticks = s->start_ticks;
    line->argc = s->outer.argc;
    copy_words(line->argv, s->outer.argv, s->outer.argc);
    kv_mutex_lock(&state->lock);
    state->line = line;
    kv_mutex_unlock(&state->lock);
}

static void drop_line(struct kv_script_state *state)
{
    kv_mutex_lock(&state->lock);
    struct kv_script_line *line = state->line;
    state->line = NULL;
    kv_mutex_unlock(&state->lock);
    if (line != NULL)
        kv_mem_free(line, line->size, KV_MEM_SCRIPT);
}

bool kv_script_show(struct kv_engine *e, struct kv_arena *arena, struct kv_script_shown *out,
                    bool *busy_script)
{
    struct kv_script_state *state = &e->script;
    struct kv_slice *room = NULL;
    *out = (struct kv_script_shown){0};
    *busy_script = atomic_load(&state->busy) && !atomic_load(&state->function);
    if (*busy_script)
        return false;
    kv_mutex_lock(&state->lock);
    const struct kv_script_line *line = state->line;
    if (line != NULL) {
        room = kv_arena_try_alloc(arena, line->size - sizeof(*line));
        if (room != NULL)
            copy_words(room, line->argv, line->argc);
        out->argc = line->argc;
        out->duration_ms =
            (int64_t)(kv_clock_ticks_to_ns(kv_clock_ticks() - line->start_ticks) / 1000000);
    }
    kv_mutex_unlock(&state->lock);
    out->argv = room;
    return out->argc == 0 || room != NULL;
}

/* --- beginning and ending --- */

bool kv_script_out_of_memory(const struct kv_call *call)
{
    return call->worker->script_oom && kv_memory_over(call->worker);
}

void kv_script_begin(struct kv_call *call, struct kv_script *s, uint32_t flags)
{
    struct kv_worker *w = call->worker;
    struct kv_engine *e = w->engine;
    uint64_t limit_ms = e->options.busy_reply_threshold_ms;
    KV_ASSERT(w->script == NULL && call == &w->call);
    s->outer = *call;
    s->flags = flags;
    s->db = call->client->db;
    s->start_ticks = w->now_ticks;
    s->busy_ticks = UINT64_MAX;
    if (limit_ms > 0 && limit_ms < UINT32_MAX)
        s->busy_ticks = s->start_ticks + kv_clock_ns_to_ticks(limit_ms * 1000000);
    s->next_serve_ticks = 0;
    s->last_cmd = call->client->last_cmd;
    s->oom = kv_script_out_of_memory(call);
    s->wrote = s->multi = s->upgraded = false;
    s->aside = NULL;
    if (!(call->flags & KV_CALL_IN_EXEC)) /* else it is so for all of them */
        w->script_oom = false;
    s->arena = w->arena;
    w->arena = w->script_arena;
    kv_out_init(&s->out, &w->chunks);
    s->out.resp = 2;
    w->script = s;
    atomic_store_explicit(&e->script.ending, false, memory_order_relaxed);
    atomic_store_explicit(&e->script.function, (flags & KV_SCRIPT_IS_FUNCTION) != 0,
                          memory_order_relaxed);
    atomic_store_explicit(&e->script.phase, PHASE_RUNNING, memory_order_release);
}

static void upgrade(struct kv_script *s)
{
    struct kv_worker *w = s->outer.worker;
    struct kv_engine *e = w->engine;
    struct kv_slice name = s->outer.argv[1];
    uint64_t hash = kv_store_key(e->store, name).hash | 1;
    kv_gate_upgrade(w);
    s->upgraded = w->upgraded = w->call.hold_all = true;
    atomic_store_explicit(&e->script.upgraders[hash >> 32 & (KV_SCRIPT_UPGRADERS - 1)], hash,
                          memory_order_relaxed);
}

bool kv_script_known_to_upgrade(struct kv_engine *e, const struct kv_slice *argv, int argc)
{
    if (argc < 2)
        return false;
    uint64_t hash = kv_store_key(e->store, argv[1]).hash | 1;
    return atomic_load_explicit(&e->script.upgraders[hash >> 32 & (KV_SCRIPT_UPGRADERS - 1)],
                                memory_order_relaxed) == hash;
}

/* Commands from now on lie between MULTI and EXEC. */
static void open_multi(struct kv_script *s)
{
    static const struct kv_slice multi = {"MULTI", 5};
    struct kv_worker *w = s->outer.worker;
    if (s->multi || s->outer.flags & KV_CALL_IN_EXEC || !kv_stream_active(&w->engine->stream))
        return;
    s->stream_len = w->stream.len;
    s->first_db = w->stream.first_db;
    s->last_db = w->stream.last_db;
    kv_stream_add(w, s->outer.client->db, &multi, 1);
    s->after_multi = w->stream.len;
    s->multi = true;
}

static void close_multi(struct kv_script *s)
{
    static const struct kv_slice exec = {"EXEC", 4};
    struct kv_worker *w = s->outer.worker;
    if (!s->multi)
        return;
    if (w->stream.len > s->after_multi) {
        kv_stream_add(w, w->stream.last_db, &exec, 1);
        return;
    }
    w->stream.len = s->stream_len;
    w->stream.first_db = s->first_db;
    w->stream.last_db = s->last_db;
}

/* A script may write more than its command line promised. The ring must have room for it, or its
 * readers would lose bytes: who is alone makes it larger. */
static void ensure_room(struct kv_script *s)
{
    struct kv_worker *w = s->outer.worker;
    struct kv_engine *e = w->engine;
    size_t bytes = w->stream.len;
    if (!kv_stream_active(&e->stream) || bytes <= w->stream_promised)
        return;
    kv_stream_settle(w);
    if (!kv_stream_too_small(e, bytes, 1) && kv_stream_promise(w, bytes, 1))
        return;
    if (e->multi && !s->outer.hold_all && !s->upgraded)
        upgrade(s);
    /* Readers that are behind may need as much again. */
    kv_stream_grow(e, KV_MAX(bytes, (size_t)atomic_load(&e->stream.size) / 8), 1);
}

void kv_script_end(struct kv_script *s)
{
    struct kv_worker *w = s->outer.worker;
    struct kv_engine *e = w->engine;
    struct kv_client *c = s->outer.client;
    KV_ASSERT(w->script == s);
    close_multi(s);
    ensure_room(s);
    kv_out_release(&s->out);
    kv_arena_reset(&w->arena);
    w->script_arena = w->arena;
    w->arena = s->arena;
    w->call = s->outer;
    w->script = NULL;
    w->now_ticks = s->start_ticks;
    c->db = s->db;
    c->last_cmd = s->last_cmd;
    atomic_store_explicit(&e->script.phase, PHASE_NONE, memory_order_release);
    if (KV_UNLIKELY(s->aside != NULL))
        kv_mem_free(s->aside, sizeof(*s->aside), KV_MEM_SCRIPT);
    if (KV_UNLIKELY(atomic_load_explicit(&e->script.busy, memory_order_relaxed))) {
        atomic_store(&e->script.busy, false);
        drop_line(&e->script);
        kv_client_limit_enter(c);
    }
}

void kv_script_set_resp(struct kv_script *s, int resp)
{
    KV_ASSERT(resp == 2 || resp == 3);
    s->out.resp = (uint8_t)resp;
}

/* --- its commands --- */

void kv_script_drop_reply(struct kv_script *s)
{
    struct kv_out *o = &s->out;
    if (KV_LIKELY(o->head == o->tail && o->head != NULL && o->head->holder == NULL)) {
        /* The one chunk is used again. */
        o->pos = o->head->data;
        o->head->len = 0;
        return;
    }
    uint8_t resp = o->resp;
    kv_out_release(o);
    o->resp = resp;
}

/* By name and subcommand, or NULL. */
static const struct kv_command *find(struct kv_worker *w, const struct kv_slice *argv, int argc)
{
    const struct kv_command *cmd = kv_worker_lookup(w, argv[0]);
    if (cmd != NULL && cmd->sub_count > 0 && argc > 1)
        cmd = kv_command_sub(cmd, argv[1]);
    return cmd;
}

/* Name, subcommand, arity; else *error. */
static const struct kv_command *resolve(struct kv_worker *w, const struct kv_slice *argv, int argc,
                                        const char **error)
{
    const struct kv_command *cmd = find(w, argv, argc);
    if (cmd == NULL) {
        *error = "ERR Unknown Redis command called from script";
        return NULL;
    }
    if (cmd->fn == NULL || !kv_command_arity_fits(cmd, argc)) {
        *error = "ERR Wrong number of args calling Redis command from script";
        return NULL;
    }
    return cmd;
}

/* What the script's user lacks for the command; NULL: nothing. */
static KV_COLD const char *denial(struct kv_script *s, const struct kv_command *cmd,
                                  const struct kv_slice *argv, int argc)
{
    switch (kv_acl_check_call(s->outer.client, cmd, argv, argc, KV_ACL_SCRIPT)) {
    case KV_ACL_ALLOWED:
        return NULL;
    case KV_ACL_DENIED_COMMAND:
        return "ERR The user executing the script can't run this command or subcommand";
    case KV_ACL_DENIED_KEY:
        return "ERR The user executing the script can't access at least one of the keys mentioned "
               "in the command arguments";
    case KV_ACL_DENIED_CHANNEL:
        return "ERR The user executing the script can't publish to the channel mentioned in the "
               "command";
    case KV_ACL_NOT_CHECKED:
        break;
    }
    return "OOM the server is out of memory for this command";
}

/* Whether the script may run the command now; else why not. */
static const char *refusal(struct kv_script *s, const struct kv_command *cmd,
                           const struct kv_slice *argv, int argc)
{
    struct kv_engine *e = s->outer.engine;
    bool writes = cmd->flags & KV_CMD_WRITE;
    if (cmd->flags & KV_CMD_NOSCRIPT)
        return "ERR This Redis command is not allowed from script";
    if (writes && s->flags & KV_SCRIPT_READ_ONLY)
        return "ERR Write commands are not allowed from read-only scripts.";
    if (writes && KV_UNLIKELY(kv_commit_denies(e)) && !(s->outer.client->flags & KV_CLIENT_APPLY)) {
        kv_commit_denial(e, s->error);
        return s->error;
    }
    if (KV_UNLIKELY(s->oom) && cmd->flags & KV_CMD_DENYOOM && !s->wrote &&
        !(s->flags & KV_SCRIPT_ALLOW_OOM))
        return "OOM command not allowed when used memory > 'maxmemory'.";
    if (KV_UNLIKELY(kv_acl_restricts(s->outer.client)))
        return denial(s, cmd, argv, argc);
    return NULL;
}

static void hold(struct kv_script *s, enum kv_cmd_mode mode, const struct kv_key *keys, int count)
{
    struct kv_worker *w = s->outer.worker;
    struct kv_engine *e = w->engine;
    if (!e->multi || w->call.hold_all || mode == KV_MODE_FREE)
        return;
    bool held = mode == KV_MODE_KEYS;
    for (int i = 0; held && i < count; i++)
        held = kv_lockset_has(&w->locks, kv_store_shard_of(e->store, keys[i].hash));
    if (!held)
        upgrade(s);
}

bool kv_script_may(struct kv_script *s, const struct kv_slice *argv, int argc, bool *allowed)
{
    struct kv_worker *w = s->outer.worker;
    const struct kv_command *cmd = find(w, argv, argc);
    int arg;
    if (cmd == NULL)
        return false;
    kv_arena_reset(&w->arena);
    *allowed = kv_acl_check_rules(w->engine, s->outer.client->user->rules, cmd, argv, argc,
                                  &w->arena, &arg) == KV_ACL_ALLOWED;
    return true;
}

const char *kv_script_call(struct kv_script *s, const struct kv_slice *argv, int argc)
{
    struct kv_worker *w = s->outer.worker;
    struct kv_engine *e = w->engine;
    const char *error = NULL;
    struct kv_key key, *keys = NULL;
    int key_count;
    KV_ASSERT(argc > 0 && w->script == s);
    kv_script_drop_reply(s);
    kv_arena_reset(&w->arena);
    const struct kv_command *cmd = resolve(w, argv, argc, &error);
    if (cmd == NULL || (error = refusal(s, cmd, argv, argc)) != NULL)
        return error;
    if (kv_resolve_keys(w, cmd, argv, argc, &key, &keys, &key_count) == KV_ERR_NOMEM)
        return "OOM the server is out of memory for this command";
    if (cmd->flags & KV_CMD_WRITE && !s->wrote) {
        if (!change_phase(e, PHASE_RUNNING, PHASE_WROTE))
            return "ERR Script killed by user with SCRIPT KILL...";
        s->wrote = true;
        open_multi(s);
    }
    enum kv_cmd_mode mode = kv_command_mode(cmd, argv, argc);
    hold(s, mode, keys, key_count);
    bool stops = mode == KV_MODE_STOP && e->multi && atomic_load(&e->gate.stop) == 0;
    if (KV_UNLIKELY(stops))
        kv_world_stop(w);
    kv_execute_nested(s->outer.client, cmd, argv, argc, keys, key_count, &s->out);
    if (KV_UNLIKELY(stops))
        kv_world_resume(w);
    return NULL;
}

/* --- being busy --- */

/* Parked connections of the worker may be waiting for the script: each tries again, and is told
 * that it is busy. Whoever waits to serve itself (engine/blocking.h) goes on waiting. */
void kv_script_on_busy(struct kv_worker *w)
{
    for (struct kv_client *c = w->clients; c != NULL; c = c->next) {
        if (!(c->flags & KV_CLIENT_PARKED) || c->waiter != NULL)
            continue;
        if (c->park != KV_PARK_SHARD && c->park != KV_PARK_GATE && c->park != KV_PARK_ALONE)
            continue;
        kv_client_unpark(c);
        kv_worker_resume(w, c);
    }
}

static void become_busy(struct kv_script *s)
{
    struct kv_engine *e = s->outer.engine;
    /* Messages to its client come behind its reply, and nothing that it has is sent before. */
    if (s->outer.worker->framed == NULL)
        kv_delivery_frame(s->outer.client);
    /* Nor is it dropped for what it holds: the script reads its words there. */
    kv_client_limit_leave(s->outer.client);
    kv_log(KV_LOG_WARNING,
           "Slow script detected: still in execution after %llu milliseconds. You can try killing "
           "the script using the %s KILL command.",
           (unsigned long long)e->options.busy_reply_threshold_ms,
           s->flags & KV_SCRIPT_IS_FUNCTION ? "FUNCTION" : "SCRIPT");
    if (s->flags & KV_SCRIPT_IS_FUNCTION)
        keep_line(s);
    atomic_store(&e->script.busy, true);
    for (uint32_t i = 0; i < e->worker_count; i++)
        if (e->workers[i] != s->outer.worker)
            kv_inbox_post(e->workers[i], KV_MSG_SCRIPT_BUSY, 0, 0, NULL);
    kv_script_on_busy(s->outer.worker);
}

static void put_aside(struct kv_worker *w, struct kv_script_aside *a)
{
    struct kv_blocking *b = &w->blocking;
    a->call = w->call;
    a->locks = w->locks;
    a->stream = w->stream;
    a->stream_promised = w->stream_promised;
    a->ready = b->ready;
    a->ready_len = b->ready_len;
    a->ready_capacity = b->ready_capacity;
    a->client_wrote = w->client_wrote;
    a->now_ms = w->now_ms;
    a->now_ticks = w->now_ticks;
    a->hold_start = w->hold_start;
    a->input = w->input;
    a->framed = w->framed;
    memcpy(a->plan, w->plan, sizeof(a->plan));
    kv_lockset_init(&w->locks, w->engine->shard_count);
    w->stream = (struct kv_stream_buffer){0};
    w->stream_promised = 0;
    b->ready = NULL;
    b->ready_len = b->ready_capacity = 0;
    w->input = a->spare;
    w->call.hold_all = false;
    w->call.block = NULL;
    w->busy = false;
    w->serving = true;
}

static void take_back(struct kv_worker *w, const struct kv_script_aside *a)
{
    struct kv_blocking *b = &w->blocking;
    KV_ASSERT(w->stream.len == 0 && w->stream_promised == 0 && b->ready_len == 0);
    KV_ASSERT(!w->locks.held && w->framed == a->framed);
    kv_mem_free(w->stream.bytes, w->stream.capacity, KV_MEM_STREAM);
    w->call = a->call;
    w->locks = a->locks;
    w->stream = a->stream;
    w->stream_promised = a->stream_promised;
    b->ready = a->ready;
    b->ready_len = a->ready_len;
    b->ready_capacity = a->ready_capacity;
    w->client_wrote = a->client_wrote;
    w->now_ms = a->now_ms;
    w->now_ticks = a->now_ticks;
    w->hold_start = a->hold_start;
    w->input = a->input;
    memcpy(w->plan, a->plan, sizeof(a->plan));
    w->busy = true;
    w->serving = false;
}

static bool may_be_served(const struct kv_script *s, const struct kv_client *c)
{
    return c != s->outer.client && c->waiter == NULL && !(c->flags & KV_CLIENT_STAND_IN);
}

/* Connections that may go on: not the script's own, and none that would take the gate. */
static void serve_resumed(struct kv_script *s)
{
    struct kv_worker *w = s->outer.worker;
    struct kv_client *next, *c = w->resume_first;
    w->resume_first = w->resume_last = NULL;
    for (; c != NULL; c = next) {
        next = c->resume_next;
        c->resume_next = NULL;
        c->flags &= ~(uint32_t)KV_CLIENT_RESUMING;
        if (!may_be_served(s, c))
            kv_worker_resume(w, c);
        else if (!(c->flags & KV_CLIENT_CLOSE_NOW))
            kv_client_process(c);
    }
}

static bool is_watched(const struct kv_script *s, const struct kv_client *c)
{
    return may_be_served(s, c) && c->io.fd >= 0 &&
           !(c->flags & (KV_CLIENT_PARKED | KV_CLIENT_PAUSED | KV_CLIENT_RESUMING |
                         KV_CLIENT_BLOCKED | KV_CLIENT_CLOSE_NOW));
}

/* What poll found, as the loop would have told it. */
static void handle(struct kv_io *io, short found)
{
    uint32_t events = 0;
    if (found & POLLIN)
        events |= KV_IO_READ;
    if (found & POLLOUT)
        events |= KV_IO_WRITE;
    if (found & (POLLERR | POLLHUP | POLLNVAL))
        events |= KV_IO_HANGUP;
    if (events != 0)
        io->fn(io, events);
}

static void serve_sockets(struct kv_script *s)
{
    struct kv_worker *w = s->outer.worker;
    struct kv_engine *e = w->engine;
    size_t max = w->client_count + e->listener_count, count = 0;
    size_t bytes = max * (sizeof(struct pollfd) + sizeof(struct kv_io *));
    struct kv_io **ios = kv_mem_try_alloc(bytes + 1, KV_MEM_SCRIPT);
    if (ios == NULL)
        return;
    struct pollfd *fds = (struct pollfd *)(ios + max);
    for (uint32_t i = 0; w->index == 0 && i < e->listener_count; i++) {
        ios[count] = &e->listeners[i];
        fds[count++] = (struct pollfd){.fd = e->listeners[i].fd, .events = POLLIN};
    }
    for (struct kv_client *c = w->clients; c != NULL && count < max; c = c->next) {
        if (!is_watched(s, c))
            continue;
        short events = c->flags & KV_CLIENT_WRITE_WAIT ? POLLIN | POLLOUT : POLLIN;
        ios[count] = &c->io;
        fds[count++] = (struct pollfd){.fd = c->io.fd, .events = events};
    }
    if (poll(fds, count, 0) > 0)
        for (size_t i = 0; i < count; i++)
            if (fds[i].revents != 0)
                handle(ios[i], fds[i].revents);
    kv_mem_free(ios, bytes + 1, KV_MEM_SCRIPT);
}

static void serve(struct kv_script *s)
{
    struct kv_worker *w = s->outer.worker;
    if (s->aside == NULL)
        s->aside = kv_mem_try_alloc(sizeof(*s->aside), KV_MEM_SCRIPT);
    if (s->aside == NULL || w->draining)
        return;
    put_aside(w, s->aside);
    kv_worker_drain(w);
    serve_resumed(s);
    serve_sockets(s);
    serve_resumed(s);
    kv_delivery_round(w);
    kv_commit_round(w);
    take_back(w, s->aside);
}

bool kv_script_due(const struct kv_script *s)
{
    return s->outer.worker->now_ticks >= s->busy_ticks || is_phase(s->outer.engine, PHASE_KILLED);
}

bool kv_script_poll(struct kv_script *s)
{
    struct kv_engine *e = s->outer.engine;
    struct kv_script_state *state = &e->script;
    if (KV_UNLIKELY(atomic_load_explicit(&e->stopping, memory_order_relaxed)))
        (void)change_phase(e, PHASE_RUNNING, PHASE_KILLED);
    if (is_phase(e, PHASE_KILLED) || atomic_load_explicit(&state->ending, memory_order_relaxed))
        return true;
    uint64_t now = kv_clock_ticks();
    if (KV_LIKELY(now < s->busy_ticks) || now < s->next_serve_ticks)
        return false;
    if (!atomic_load_explicit(&state->busy, memory_order_relaxed))
        become_busy(s);
    serve(s);
    s->next_serve_ticks = kv_clock_ticks() + kv_clock_ns_to_ticks(SERVE_NS);
    return is_phase(e, PHASE_KILLED) || atomic_load_explicit(&state->ending, memory_order_relaxed);
}

/* --- from outside --- */

enum kv_script_kill kv_script_kill(struct kv_engine *e, bool function)
{
    struct kv_script_state *state = &e->script;
    if (is_phase(e, PHASE_NONE))
        return KV_SCRIPT_NOTHING;
    if (atomic_load_explicit(&state->function, memory_order_relaxed) != function)
        return atomic_load(&state->busy) ? KV_SCRIPT_OF_OTHER : KV_SCRIPT_NOTHING;
    if (change_phase(e, PHASE_RUNNING, PHASE_KILLED) || is_phase(e, PHASE_KILLED))
        return KV_SCRIPT_KILLED;
    return is_phase(e, PHASE_WROTE) ? KV_SCRIPT_WRITTEN : KV_SCRIPT_NOTHING;
}

static bool is_forced_shutdown(const struct kv_command *cmd, const struct kv_slice *argv, int argc)
{
    uint32_t options;
    return cmd->mode == KV_MODE_STOP && kv_shutdown_options(argv, argc, &options) &&
           options & KV_SHUTDOWN_NOSAVE;
}

/* A command that is allowed while a script is busy, on that script's worker. Nothing is locked:
 * what it touches is the connection's, or (WATCH, one worker) at rest between two commands. */
static bool run_beside(struct kv_client *c, const struct kv_command *cmd,
                       const struct kv_slice *argv, int argc)
{
    struct kv_worker *w = c->worker;
    struct kv_key key, *keys = NULL;
    int count = 0;
    if (cmd->mode != KV_MODE_FREE && (w->engine->multi || cmd->mode != KV_MODE_KEYS))
        return false;
    if (kv_resolve_keys(w, cmd, argv, argc, &key, &keys, &count) != KV_OK)
        return false;
    kv_execute(c, cmd, argv, argc, keys, count, 0);
    return true;
}

enum kv_script_verdict kv_script_judge(struct kv_client *c, const struct kv_command *cmd,
                                       const struct kv_slice *argv, int argc)
{
    struct kv_worker *w = c->worker;
    bool beside = w->script != NULL;
    if (cmd->flags & KV_CMD_ALLOW_BUSY && is_forced_shutdown(cmd, argv, argc)) {
        atomic_store(&w->engine->script.ending, true);
        if (!beside)
            return KV_SCRIPT_GO_ON; /* it gets the gate when the script has ended */
        kv_worker_resume(w, c);
        return KV_SCRIPT_LATER;
    }
    if (!beside)
        return cmd->flags & KV_CMD_ALLOW_BUSY && cmd->mode == KV_MODE_STOP ? KV_SCRIPT_REFUSED
                                                                           : KV_SCRIPT_GO_ON;
    if (cmd->flags & KV_CMD_ALLOW_BUSY && run_beside(c, cmd, argv, argc))
        return KV_SCRIPT_DONE;
    return KV_SCRIPT_REFUSED;
}
