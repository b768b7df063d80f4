/* DUMP and RESTORE: a value as the bytes that RDB files hold, and back (persist/rdb_payload.h).
 *
 * Errors are checked in this order: options, the key that is in the way, time to live, sum and
 * version, the value itself. A payload is looked through while it is read, whatever
 * sanitize-dump-payload says; nothing is in the keyspace before it has proved whole.
 *
 * RESTORE of what is already due stores nothing: it removes the key that it was to replace. The
 * change stream gets the line with an absolute time, so that it means the same whenever it is run.
 *
 * Data layout: none of its own. Threads: under the lock of the key's shard.
 */
#include "cmd/functions.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "persist/rdb_payload.h"

void kv_cmd_dump(struct kv_call *call)
{
    struct kv_rdb_writer w;
    const struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (e == NULL) {
        kv_reply_null(call->out);
        return;
    }
    kv_rdb_writer_init(&w);
    w.compress = kv_engine_options(call->engine)->rdb_compression;
    kv_rdb_put_payload(&w, e);
    if (w.err == KV_OK)
        kv_reply_slice(call->out, kv_rdb_writer_bytes(&w));
    else
        kv_call_failed(call, w.err);
    kv_rdb_writer_release(&w);
}

/* What a RESTORE asks for. */
struct restore {
    bool replace, absolute;
    int64_t ttl;          /* as it came */
    int64_t idle_seconds; /* -1: not told */
    int64_t frequency;    /* -1: not told */
};

static bool read_number(struct kv_call *call, int arg, int64_t max, const char *error, int64_t *out)
{
    if (!kv_call_int(call, arg, out))
        return false;
    if (*out >= 0 && *out <= max)
        return true;
    kv_call_error(call, error);
    return false;
}

static bool read_options(struct kv_call *call, struct restore *o)
{
    *o = (struct restore){.idle_seconds = -1, .frequency = -1};
    for (int i = 4; i < call->argc; i++) {
        bool more = i + 1 < call->argc;
        if (kv_call_arg_is(call, i, "replace")) {
            o->replace = true;
        } else if (kv_call_arg_is(call, i, "absttl")) {
            o->absolute = true;
        } else if (kv_call_arg_is(call, i, "idletime") && more && o->frequency < 0) {
            if (!read_number(call, ++i, INT64_MAX, "ERR Invalid IDLETIME value, must be >= 0",
                             &o->idle_seconds))
                return false;
        } else if (kv_call_arg_is(call, i, "freq") && more && o->idle_seconds < 0) {
            if (!read_number(call, ++i, 255, "ERR Invalid FREQ value, must be >= 0 and <= 255",
                             &o->frequency))
                return false;
        } else {
            kv_call_syntax_error(call);
            return false;
        }
    }
    return true;
}

/* The time to live as a point in time, or KV_NO_EXPIRY. */
static bool read_expiry(struct kv_call *call, const struct restore *o, int64_t *expiry)
{
    *expiry = o->ttl == 0 ? KV_NO_EXPIRY : o->ttl;
    if (o->ttl == 0)
        return true;
    if (!o->absolute && o->ttl <= KV_EXPIRY_MAX)
        *expiry += call->view.now_ms;
    if (*expiry <= KV_EXPIRY_MAX)
        return true;
    kv_call_invalid_expire(call);
    return false;
}

/* The line for the change stream; NULL: out of memory. */
static struct kv_slice *absolute_form(struct kv_call *call, int64_t expiry)
{
    size_t bytes = ((size_t)call->argc + 1) * sizeof(struct kv_slice);
    struct kv_slice *argv = kv_arena_try_alloc(call->arena, bytes);
    if (argv == NULL)
        return NULL;
    memcpy(argv, call->argv, (size_t)call->argc * sizeof(*argv));
    argv[2] = kv_call_int_text(call, expiry);
    argv[call->argc] = KV_SLICE("ABSTTL");
    return argv;
}

/* Puts the value in place of `old`; false: the error is replied and nothing has changed. */
static bool take_value(struct kv_call *call, struct kv_entry *old, int64_t expiry)
{
    struct kv_rdb_reader r;
    struct kv_rdb_target t = {.key = &call->keys[0], .entry = old, .expiry = expiry};
    if (kv_rdb_take_payload(call->argv[3], &r, &call->view, &t))
        return true;
    if (r.err == KV_ERR_NOMEM)
        kv_call_no_memory(call);
    else
        kv_call_error(call, "ERR Bad data format");
    return false;
}

/* The value is due already. It is put, which tells whether it is one, and goes again. */
static void restore_past(struct kv_call *call, struct kv_entry *old)
{
    const struct kv_key *k = &call->keys[0];
    bool replaced = old != NULL;
    call->view.flags |= KV_VIEW_QUIET;
    if (!take_value(call, old, KV_NO_EXPIRY))
        return;
    kv_store_delete(&call->view, k, kv_store_peek(&call->view, k));
    if (replaced) {
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
        kv_call_propagate_del(call, k);
    }
    kv_reply_ok(call->out);
}

static void restore_value(struct kv_call *call, const struct restore *o, struct kv_entry *old,
                          int64_t expiry)
{
    const struct kv_key *k = &call->keys[0];
    bool replaces = old != NULL;
    enum kv_type type = replaces ? kv_entry_type(old) : KV_TYPE_STRING;
    bool relative = expiry != KV_NO_EXPIRY && !o->absolute;
    struct kv_slice *argv = relative ? absolute_form(call, expiry) : NULL;
    if (relative && argv == NULL) {
        kv_call_no_memory(call);
        return;
    }
    if (!take_value(call, old, expiry))
        return;
    struct kv_entry *e = kv_store_peek(&call->view, k);
    if (e != NULL && replaces)
        kv_store_renewed(&call->view, k, type, kv_entry_type(e));
    if (e != NULL && o->idle_seconds >= 0)
        kv_store_set_idle_seconds(&call->view, e, (uint64_t)o->idle_seconds);
    if (e != NULL && o->frequency >= 0)
        kv_store_set_frequency(&call->view, e, (uint32_t)o->frequency);
    kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "restore");
    if (relative)
        kv_call_propagate(call, argv, call->argc + 1);
    kv_reply_ok(call->out);
}

/* RESTORE key ttl payload [REPLACE] [ABSTTL] [IDLETIME seconds | FREQ counter] */
void kv_cmd_restore(struct kv_call *call)
{
    struct restore o;
    int64_t expiry;
    if (!read_options(call, &o))
        return;
    struct kv_entry *old = kv_store_write(&call->view, &call->keys[0]);
    if (old != NULL && !o.replace) {
        kv_call_error(call, "BUSYKEY Target key name already exists.");
        return;
    }
    if (!kv_call_int(call, 2, &o.ttl))
        return;
    if (o.ttl < 0) {
        kv_call_error(call, "ERR Invalid TTL value, must be >= 0");
        return;
    }
    if (!kv_rdb_payload_valid(call->argv[3])) {
        kv_call_error(call, "ERR DUMP payload version or checksum are wrong");
        return;
    }
    if (!read_expiry(call, &o, &expiry))
        return;
    if (expiry != KV_NO_EXPIRY && expiry <= call->view.now_ms) {
        restore_past(call, old);
        return;
    }
    restore_value(call, &o, old, expiry);
}

void kv_cmd_restore_asking(struct kv_call *call)
{
    kv_cmd_restore(call);
}
