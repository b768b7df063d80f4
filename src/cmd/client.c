/* The CLIENT family: identity (ID, GETNAME, SETNAME, SETINFO, INFO), flags of a connection (REPLY,
 * NO-EVICT, NO-TOUCH), and what concerns others: LIST, KILL, UNBLOCK, PAUSE, UNPAUSE.
 *
 * LIST and KILL share one set of filters. A filter is a row of a table: its word, how its value is
 * read and a function that says whether a client fits; a leading "NOT-" turns it round. So both
 * commands take every filter of Redis 8 and Valkey 9, combined with "and", where Redis' LIST itself
 * takes only one at a time: what it refuses as syntax error works here. ID takes any number of
 * identifiers up to the next word that is none.
 *
 * LIST, KILL, UNBLOCK, PAUSE and UNPAUSE run in KV_MODE_STOP: all workers stand at a loop boundary,
 * so other workers' clients may be read and told to close. INFO reads only its own connection and
 * therefore stops nobody. A client that kills itself gets its reply first.
 *
 * A field of a line that Kvik has no counterpart for is constant: argv-mem 0 (arguments are slices
 * of qbuf). rbs and obl describe the first chunk of output, oll and omem
 * what lies beyond it; io-thread is the number of the worker.
 */
#include "engine/client.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/number.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/acl.h"
#include "engine/blocking.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "engine/pubsub.h"
#include "engine/tracking.h"
#include <limits.h>

/* --- one line --- */

static const struct {
    uint32_t flag;
    char letter;
} flag_letters[] = {
    {KV_CLIENT_MULTI, 'x'},     {KV_CLIENT_CLOSE_AFTER, 'c'},
    {KV_CLIENT_CLOSE_NOW, 'A'}, {KV_CLIENT_PAUSED | KV_CLIENT_BLOCKED, 'b'},
    {KV_CLIENT_UNIX, 'U'},      {KV_CLIENT_NO_EVICT, 'e'},
    {KV_CLIENT_NO_TOUCH, 'T'},  {KV_CLIENT_TRACKING, 't'},
    {KV_CLIENT_MONITOR, 'O'},
};

#define FLAG_TEXT_MAX (KV_ARRAY_LEN(flag_letters) + 4) /* P, R, B and the end besides */

static void flags_text(const struct kv_client *c, char out[FLAG_TEXT_MAX])
{
    size_t len = 0;
    if (c->subscriber != NULL)
        out[len++] = 'P';
    for (size_t i = 0; i < KV_ARRAY_LEN(flag_letters); i++) {
        if (c->flags & flag_letters[i].flag)
            out[len++] = flag_letters[i].letter;
    }
    if (kv_tracking_flags(c) & KV_TRACKING_BROKEN)
        out[len++] = 'R';
    if (kv_tracking_flags(c) & KV_TRACKING_BCAST)
        out[len++] = 'B';
    if (len == 0)
        out[len++] = 'N';
    KV_ASSERT(len < FLAG_TEXT_MAX);
    out[len] = '\0';
}

static const char *text_or_empty(const char *text)
{
    return text == NULL ? "" : text;
}

static uint32_t worker_index(struct kv_engine *engine, const struct kv_client *c)
{
    uint32_t count = kv_engine_worker_count(engine), i = 0;
    while (i < count && kv_engine_worker(engine, i) != c->worker)
        i++;
    KV_DASSERT(i < count);
    return i;
}

static void line_identity(struct kv_text *t, const struct kv_client *c, int64_t now_ms)
{
    char flags[FLAG_TEXT_MAX];
    flags_text(c, flags);
    kv_text_printf(t, "id=%llu addr=%s laddr=%s fd=%d name=%s age=%lld idle=%lld flags=%s db=%u",
                   (unsigned long long)c->id, text_or_empty(c->peer), text_or_empty(c->local),
                   c->io.fd, text_or_empty(c->name),
                   (long long)KV_MAX((now_ms - c->created_ms) / 1000, (int64_t)0),
                   (long long)KV_MAX((now_ms - c->active_ms) / 1000, (int64_t)0), flags, c->db);
    kv_text_printf(t, " sub=%u psub=%u ssub=%u multi=%d watch=%d",
                   kv_pubsub_count(c, KV_CHANNEL_PLAIN), kv_pubsub_count(c, KV_CHANNEL_PATTERN),
                   kv_pubsub_count(c, KV_CHANNEL_SHARD), kv_client_multi_length(c),
                   kv_client_watch_count(c));
}

static void line_buffers(struct kv_text *t, const struct kv_client *c)
{
    const struct kv_out *out = &c->out;
    size_t pending = kv_out_pending(out);
    size_t first_bytes = out->head == NULL ? 0 : out->head->block_size;
    size_t later_chunks = out->chunk_count == 0 ? 0 : out->chunk_count - 1;
    size_t later_bytes = out->chunk_bytes > first_bytes ? out->chunk_bytes - first_bytes : 0;
    KV_DASSERT(c->in_len <= c->in_capacity);
    kv_text_printf(t, " qbuf=%zu qbuf-free=%zu argv-mem=0 multi-mem=%zu", c->in_len,
                   c->in_capacity - c->in_len, kv_client_multi_memory(c));
    kv_text_printf(t, " rbs=%zu rbp=%zu obl=%zu oll=%zu omem=%zu tot-mem=%zu", first_bytes,
                   first_bytes, pending, later_chunks, later_chunks == 0 ? 0 : later_bytes,
                   kv_client_memory(c));
}

/* Without the end of the line. */
static void line_write(struct kv_text *t, struct kv_engine *engine, const struct kv_client *c,
                       const struct kv_command *cmd, int64_t now_ms)
{
    line_identity(t, c, now_ms);
    line_buffers(t, c);
    kv_text_printf(t, " events=%s%s cmd=%s user=", c->io.interest & KV_IO_READ ? "r" : "",
                   c->io.interest & KV_IO_WRITE ? "w" : "", cmd == NULL ? "NULL" : cmd->full_name);
    kv_text_append(t, c->user->name);
    bool tracks = kv_tracking_flags(c) & KV_TRACKING_ON;
    kv_text_printf(t, " redir=%lld resp=%d lib-name=%s lib-ver=%s",
                   tracks ? (long long)c->tracking->redirect : -1ll, c->resp,
                   text_or_empty(c->lib_name), text_or_empty(c->lib_version));
    kv_text_printf(t, " io-thread=%u tot-net-in=%llu tot-net-out=%llu tot-cmds=%llu",
                   worker_index(engine, c), (unsigned long long)c->bytes_in,
                   (unsigned long long)c->bytes_out, (unsigned long long)c->commands);
}

static void line_add(struct kv_text *t, const struct kv_call *call, const struct kv_client *c,
                     int64_t now_ms)
{
    /* The caller's last command is the one that runs now; the engine notes it afterwards. */
    const struct kv_command *cmd = c == call->client ? call->cmd : c->last_cmd;
    line_write(t, call->engine, c, cmd, now_ms);
    kv_text_append(t, KV_SLICE("\n"));
}

size_t kv_cmd_client_line(struct kv_engine *e, const struct kv_client *c,
                          const struct kv_command *cmd, char *text, size_t size)
{
    struct kv_text t;
    kv_text_init(&t);
    line_write(&t, e, c, cmd, kv_clock_wall_ms());
    size_t len = KV_MIN(t.len, size);
    if (len > 0)
        memcpy(text, kv_text_cstr(&t), len);
    kv_text_release(&t);
    return len;
}

/* --- filters --- */

struct filter {
    const struct filter_kind *kind;
    bool negated;
    struct kv_slice text;      /* the value */
    int64_t number;            /* the value of numeric kinds */
    const struct kv_slice *id; /* ID: the list, in argv */
    int id_count;
};

struct filter_set {
    struct filter *filters; /* in the call's arena */
    int count;
    bool skip_me; /* KILL: never the caller */
    int64_t now_ms;
    const struct kv_client *me;
};

enum filter_value { VALUE_TEXT, VALUE_IDS, VALUE_POSITIVE, VALUE_DB, VALUE_TYPE, VALUE_USER };

struct filter_kind {
    const char *word; /* lower case */
    enum filter_value value;
    bool (*fits)(const struct filter *f, const struct kv_client *c, int64_t now_ms);
};

static bool fits_id(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    for (int i = 0; i < f->id_count; i++) {
        int64_t id;
        if (kv_int_parse(f->id[i], &id) && id > 0 && (uint64_t)id == c->id)
            return true;
    }
    return false;
}

/* A connection is a normal one or a subscriber: there are no replicas. */
static bool fits_type(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    return kv_slice_is(f->text, c->subscriber != NULL ? "pubsub" : "normal");
}

static bool fits_user(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    return kv_slice_equal(f->text, c->user->name);
}

static bool fits_addr(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    return kv_slice_equal(f->text, kv_slice_cstr(text_or_empty(c->peer)));
}

static bool fits_laddr(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    return kv_slice_equal(f->text, kv_slice_cstr(text_or_empty(c->local)));
}

/* The address without its port, and without the brackets of IPv6. */
static bool fits_ip(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    struct kv_slice have = kv_slice_cstr(text_or_empty(c->peer));
    while (have.len > 0 && have.ptr[have.len - 1] != ':')
        have.len--;
    have.len -= have.len > 0;
    if (have.len >= 2 && have.ptr[0] == '[')
        have = kv_slice(have.ptr + 1, have.len - 2);
    return kv_slice_equal(f->text, have);
}

static bool fits_max_age(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    return (now_ms - c->created_ms) / 1000 >= f->number;
}

static bool fits_idle(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    return (now_ms - c->active_ms) / 1000 >= f->number;
}

static bool fits_db(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    return f->number == (int64_t)c->db;
}

/* All letters asked for are set. */
static bool fits_flags(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    char flags[FLAG_TEXT_MAX];
    flags_text(c, flags);
    for (size_t i = 0; i < f->text.len; i++) {
        if (f->text.ptr[i] == '\0' || strchr(flags, f->text.ptr[i]) == NULL)
            return false;
    }
    return true;
}

static bool fits_name(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    return kv_slice_equal(f->text, kv_slice_cstr(text_or_empty(c->name)));
}

static bool fits_lib_name(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    return kv_slice_equal(f->text, kv_slice_cstr(text_or_empty(c->lib_name)));
}

static bool fits_lib_version(const struct filter *f, const struct kv_client *c, int64_t now_ms)
{
    (void)now_ms;
    return kv_slice_equal(f->text, kv_slice_cstr(text_or_empty(c->lib_version)));
}

static const struct filter_kind filter_kinds[] = {
    {"id", VALUE_IDS, fits_id},
    {"type", VALUE_TYPE, fits_type},
    {"user", VALUE_USER, fits_user},
    {"addr", VALUE_TEXT, fits_addr},
    {"laddr", VALUE_TEXT, fits_laddr},
    {"maxage", VALUE_POSITIVE, fits_max_age},
    {"ip", VALUE_TEXT, fits_ip},
    {"idle", VALUE_POSITIVE, fits_idle},
    {"db", VALUE_DB, fits_db},
    {"flags", VALUE_TEXT, fits_flags},
    {"name", VALUE_TEXT, fits_name},
    {"lib-name", VALUE_TEXT, fits_lib_name},
    {"lib-ver", VALUE_TEXT, fits_lib_version},
};

static const struct filter_kind *filter_kind(struct kv_slice word, bool *negated)
{
    *negated = word.len > 4 && kv_slice_is(kv_slice(word.ptr, 4), "not-");
    if (*negated)
        word = kv_slice(word.ptr + 4, word.len - 4);
    for (size_t i = 0; i < KV_ARRAY_LEN(filter_kinds); i++) {
        if (kv_slice_is(word, filter_kinds[i].word))
            return &filter_kinds[i];
    }
    return NULL;
}

/* Reads identifiers from argument `at` on; returns the argument after them, or 0 with the error
 * replied. LIST takes any integer, KILL only what can be an identifier. */
static int filter_ids(struct kv_call *call, int at, bool kill, struct filter *f)
{
    int64_t id;
    f->id = &call->argv[at];
    while (at + f->id_count < call->argc) {
        int arg = at + f->id_count;
        bool number = kv_int_parse(call->argv[arg], &id);
        bool word;
        if (!number && f->id_count > 0 &&
            (filter_kind(call->argv[arg], &word) != NULL || kv_call_arg_is(call, arg, "skipme")))
            break;
        if (!number || (kill && id < 1)) {
            kv_call_error(call, kill ? "ERR client-id should be greater than 0"
                                     : "ERR Invalid client ID");
            return 0;
        }
        f->id_count++;
    }
    return at + f->id_count;
}

/* True when the text names a class of clients. */
static bool type_known(struct kv_slice text)
{
    static const char *const types[] = {"normal", "master",  "primary",
                                        "slave",  "replica", "pubsub"};
    for (size_t i = 0; i < KV_ARRAY_LEN(types); i++) {
        if (kv_slice_is(text, types[i]))
            return true;
    }
    return false;
}

/* Reads the number of a filter; false with the error replied. */
static bool filter_number(struct kv_call *call, int arg, struct filter *f)
{
    bool number = kv_int_parse(call->argv[arg], &f->number);
    if (f->kind->value == VALUE_DB) {
        uint32_t db;
        if (!kv_cmd_database(call, arg, &db))
            return false;
        f->number = db;
        return true;
    }
    if (!number) {
        kv_call_errorf(call, "ERR %s is not an integer or out of range", f->kind->word);
        return false;
    }
    if (f->number < 1) {
        kv_call_errorf(call, "ERR %s should be greater than 0", f->kind->word);
        return false;
    }
    return true;
}

/* Reads the filter whose word is argument `at`; returns the next argument, or 0 with the error
 * replied. */
static int filter_parse(struct kv_call *call, int at, bool kill, struct filter *f)
{
    KV_ASSERT(at + 1 < call->argc);
    struct kv_slice value = call->argv[at + 1];
    f->text = value;
    switch (f->kind->value) {
    case VALUE_IDS:
        return filter_ids(call, at + 1, kill, f);
    case VALUE_POSITIVE:
    case VALUE_DB:
        return filter_number(call, at + 1, f) ? at + 2 : 0;
    case VALUE_TYPE:
        if (type_known(value))
            return at + 2;
        kv_call_errorf(call, "ERR Unknown client type '%.*s'", KV_CMD_QUOTE(value));
        return 0;
    case VALUE_USER:
        if (!kill || kv_acl_find(call->engine, value) != NULL)
            return at + 2;
        kv_call_errorf(call, "ERR No such user '%.*s'", KV_CMD_QUOTE(value));
        return 0;
    case VALUE_TEXT:
        break;
    }
    return at + 2;
}

/* Reads all filters from argument 2 on; false with the error replied. */
static bool filters_parse(struct kv_call *call, bool kill, struct filter_set *set)
{
    size_t bytes = (size_t)call->argc * sizeof(struct filter);
    set->filters = kv_arena_try_alloc(call->arena, bytes);
    if (set->filters == NULL) {
        kv_call_no_memory(call);
        return false;
    }
    for (int at = 2; at < call->argc;) {
        if (at + 1 == call->argc) {
            kv_call_syntax_error(call);
            return false;
        }
        struct filter f = {0};
        f.kind = filter_kind(call->argv[at], &f.negated);
        if (kv_call_arg_is(call, at, "skipme") &&
            (kv_call_arg_is(call, at + 1, "yes") || kv_call_arg_is(call, at + 1, "no"))) {
            set->skip_me = kv_call_arg_is(call, at + 1, "yes");
            at += 2;
            continue;
        }
        if (f.kind == NULL) {
            kv_call_syntax_error(call);
            return false;
        }
        at = filter_parse(call, at, kill, &f);
        if (at == 0)
            return false;
        set->filters[set->count++] = f;
    }
    return true;
}

static bool filters_fit(const struct filter_set *set, const struct kv_client *c)
{
    if (set->skip_me && c == set->me)
        return false;
    for (int i = 0; i < set->count; i++) {
        const struct filter *f = &set->filters[i];
        if (f->kind->fits(f, c, set->now_ms) == f->negated)
            return false;
    }
    return true;
}

/* --- LIST, INFO, KILL --- */

struct list_walk {
    struct kv_text text;
    const struct kv_call *call;
    const struct filter_set *set;
};

static void list_visit(struct kv_client *c, void *arg)
{
    struct list_walk *w = arg;
    if (filters_fit(w->set, c))
        line_add(&w->text, w->call, c, w->set->now_ms);
}

void kv_cmd_client_list(struct kv_call *call)
{
    struct filter_set set = {.now_ms = kv_clock_wall_ms(), .me = call->client};
    struct list_walk w = {.call = call, .set = &set};
    if (!filters_parse(call, false, &set))
        return;
    kv_engine_each_client(call->engine, list_visit, &w);
    kv_cmd_reply_text_take(&w.text, call);
}

void kv_cmd_client_info(struct kv_call *call)
{
    struct kv_text text = {0};
    line_add(&text, call, call->client, kv_clock_wall_ms());
    kv_cmd_reply_text_take(&text, call);
}

struct kill_walk {
    const struct filter_set *set;
    int64_t killed;
};

static void kill_visit(struct kv_client *c, void *arg)
{
    struct kill_walk *w = arg;
    if ((c->flags & KV_CLIENT_CLOSE_NOW) || !filters_fit(w->set, c))
        return;
    /* The caller's own connection lives until its reply is sent. */
    if (c == w->set->me) {
        c->flags |= KV_CLIENT_CLOSE_AFTER;
    } else {
        kv_blocking_end(c); /* it shall take nothing that it cannot be given */
        kv_client_close_soon(c);
    }
    w->killed++;
}

void kv_cmd_client_kill(struct kv_call *call)
{
    KV_ASSERT(call->argc >= 3);
    bool old_form = call->argc == 3;
    struct filter_set set = {
        .now_ms = kv_clock_wall_ms(), .me = call->client, .skip_me = !old_form};
    struct kill_walk w = {.set = &set};
    struct filter address = {.text = call->argv[2]};
    if (old_form) {
        bool negated;
        address.kind = filter_kind(KV_SLICE("addr"), &negated);
        set.filters = &address;
        set.count = 1;
    } else if (!filters_parse(call, true, &set)) {
        return;
    }
    kv_engine_each_client(call->engine, kill_visit, &w);
    if (!old_form)
        kv_reply_int(call->out, w.killed);
    else if (w.killed > 0)
        kv_reply_ok(call->out);
    else
        kv_call_error(call, "ERR No such client");
}

/* --- PAUSE, UNPAUSE --- */

void kv_cmd_client_pause(struct kv_call *call)
{
    KV_ASSERT(call->argc >= 3);
    int64_t timeout_ms, until_ms;
    bool all = true;
    if (call->argc > 4) {
        kv_call_unknown_subcommand(call);
        return;
    }
    if (call->argc == 4) {
        all = kv_call_arg_is(call, 3, "all");
        if (!all && !kv_call_arg_is(call, 3, "write")) {
            kv_call_error(call, "ERR CLIENT PAUSE mode must be WRITE or ALL");
            return;
        }
    }
    if (!kv_int_parse(call->argv[2], &timeout_ms)) {
        kv_call_error(call, "ERR timeout is not an integer or out of range");
    } else if (timeout_ms < 0) {
        kv_call_error(call, "ERR timeout is negative");
    } else if (__builtin_add_overflow(kv_clock_wall_ms(), timeout_ms, &until_ms)) {
        kv_call_error(call, "ERR timeout is out of range");
    } else {
        kv_engine_pause(call->engine, until_ms, all);
        kv_reply_ok(call->out);
    }
}

void kv_cmd_client_unpause(struct kv_call *call)
{
    kv_engine_unpause(call->engine);
    kv_reply_ok(call->out);
}

/* --- the connection itself --- */

void kv_cmd_client_id(struct kv_call *call)
{
    kv_reply_int(call->out, (int64_t)call->client->id);
}

void kv_cmd_client_getname(struct kv_call *call)
{
    if (call->client->name == NULL)
        kv_reply_null(call->out);
    else
        kv_reply_text(call->out, call->client->name);
}

void kv_cmd_client_setname(struct kv_call *call)
{
    KV_ASSERT(call->argc == 3);
    if (!kv_cmd_client_text_valid(call->argv[2])) {
        kv_call_error(call, KV_CMD_BAD_CLIENT_NAME);
        return;
    }
    if (kv_client_set_text(call->client, &call->client->name, call->argv[2]))
        kv_reply_ok(call->out);
    else
        kv_call_no_memory(call);
}

void kv_cmd_client_setinfo(struct kv_call *call)
{
    KV_ASSERT(call->argc == 4);
    char **field = kv_call_arg_is(call, 2, "lib-name")  ? &call->client->lib_name
                   : kv_call_arg_is(call, 2, "lib-ver") ? &call->client->lib_version
                                                        : NULL;
    if (field == NULL) {
        kv_call_errorf(call, "ERR Unrecognized option '%.*s'", KV_CMD_QUOTE(call->argv[2]));
        return;
    }
    if (!kv_cmd_client_text_valid(call->argv[3])) {
        kv_call_errorf(call, "ERR %.*s cannot contain spaces, newlines or special characters.",
                       KV_CMD_QUOTE(call->argv[2]));
        return;
    }
    if (kv_client_set_text(call->client, field, call->argv[3]))
        kv_reply_ok(call->out);
    else
        kv_call_no_memory(call);
}

void kv_cmd_client_reply(struct kv_call *call)
{
    KV_ASSERT(call->argc == 3);
    uint32_t *flags = &call->client->flags;
    if (kv_call_arg_is(call, 2, "on")) {
        *flags &=
            ~(uint32_t)(KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP_NEXT | KV_CLIENT_REPLY_SKIP);
        kv_reply_ok(call->out);
    } else if (kv_call_arg_is(call, 2, "off")) {
        *flags |= KV_CLIENT_REPLY_OFF;
    } else if (kv_call_arg_is(call, 2, "skip")) {
        if (!(*flags & KV_CLIENT_REPLY_OFF))
            *flags |= KV_CLIENT_REPLY_SKIP_NEXT;
    } else {
        kv_call_syntax_error(call);
    }
}

/* --- UNBLOCK --- */

struct unblocking {
    uint64_t id;
    bool with_error, done;
};

static void unblock_visit(struct kv_client *c, void *arg)
{
    struct unblocking *u = arg;
    if (c->id == u->id)
        u->done = kv_client_unblock(c, u->with_error);
}

/* CLIENT UNBLOCK id [TIMEOUT | ERROR] */
void kv_cmd_client_unblock(struct kv_call *call)
{
    struct unblocking u = {0};
    int64_t id;
    if (call->argc == 4 && kv_call_arg_is(call, 3, "error")) {
        u.with_error = true;
    } else if (call->argc == 4 && !kv_call_arg_is(call, 3, "timeout")) {
        kv_call_error(call, "ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR");
        return;
    } else if (call->argc > 4) {
        kv_call_unknown_subcommand(call);
        return;
    }
    if (!kv_call_int(call, 2, &id))
        return;
    u.id = (uint64_t)id;
    if (id > 0)
        kv_engine_each_client(call->engine, unblock_visit, &u);
    kv_reply_int(call->out, u.done);
}

void kv_cmd_client_no_evict(struct kv_call *call)
{
    bool on;
    if (!kv_cmd_on_off(call, 2, &on))
        return;
    kv_client_set_no_evict(call->client, on);
    kv_reply_ok(call->out);
}

void kv_cmd_client_no_touch(struct kv_call *call)
{
    bool on;
    if (!kv_cmd_on_off(call, 2, &on))
        return;
    if (on)
        call->client->flags |= KV_CLIENT_NO_TOUCH;
    else
        call->client->flags &= ~(uint32_t)KV_CLIENT_NO_TOUCH;
    kv_reply_ok(call->out);
}

void kv_cmd_client_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "CACHING (YES|NO)",
        "    Whether keys that the next command reads are tracked (OPTIN and OPTOUT modes).",
        "GETNAME",
        "    The name of this connection.",
        "GETREDIR",
        "    The client to which invalidations are redirected; 0: none, -1: no tracking.",
        "ID",
        "    The number of this connection; numbers are never used twice.",
        "INFO",
        "    The line of this connection in CLIENT LIST.",
        "KILL <ip:port>",
        "    Close the connection from this address.",
        "KILL <filter> <value> [<filter> <value> [...]] [SKIPME (YES|NO)]",
        "    Close all connections that fit all filters, but not this one unless SKIPME NO.",
        "LIST [<filter> <value> [...]]",
        "    One line per connection that fits all filters. Filters, each also with NOT-:",
        "    * ID <id> [<id> [...]]",
        "    * TYPE (NORMAL|MASTER|REPLICA|PUBSUB)",
        "    * USER <name>",
        "    * ADDR, LADDR (<ip:port>|<unixsocket>:0), IP <ip>",
        "    * MAXAGE, IDLE <seconds>: at least so old, idle for at least so long",
        "    * DB <number>, FLAGS <letters>, NAME, LIB-NAME, LIB-VER <text>",
        "NO-EVICT (ON|OFF)",
        "    Keep this connection when clients are evicted for memory.",
        "NO-TOUCH (ON|OFF)",
        "    Commands of this connection do not count as use of a key.",
        "PAUSE <timeout> [WRITE|ALL]",
        "    Hold back writes, or all commands, for <timeout> milliseconds.",
        "REPLY (ON|OFF|SKIP)",
        "    Send replies, send none, or leave out the reply of the next command.",
        "SETINFO (LIB-NAME|LIB-VER) <text>",
        "    Tell name and version of the client library.",
        "SETNAME <name>",
        "    Name this connection.",
        "TRACKING (ON|OFF) [REDIRECT <id>] [BCAST] [PREFIX <prefix> [...]] [OPTIN] [OPTOUT] "
        "[NOLOOP]",
        "    Be told when keys change that this connection has read, or that begin so.",
        "TRACKINGINFO",
        "    How this connection tracks keys.",
        "UNBLOCK client-id [TIMEOUT | ERROR]",
        "    End the wait of a client in a blocking command, as by its timeout or with an error.",
        "UNPAUSE",
        "    End a pause.",
        NULL,
    };
    kv_call_help(call, lines);
}
