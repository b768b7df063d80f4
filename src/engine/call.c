/* What a command function may ask of the engine: error replies, argument parsing, propagation.
 *
 * An error reply is also a statistic: its code (the first word) is counted in the worker's own
 * list, a dozen distinct codes in practice, searched linearly. The engine notices that a command
 * failed by comparing the worker's count of error replies before and after.
 *
 * Propagation writes straight into the worker's stream buffer; without a reader it is one load.
 */
#include "engine/call.h"
#include "base/clock.h"
#include "engine/worker.h"
#include <stdarg.h>
#include <stdio.h>

void kv_call_count_error(struct kv_worker *w, struct kv_slice text)
{
    const char *space = text.len > 0 ? memchr(text.ptr, ' ', text.len) : NULL;
    size_t len = space != NULL ? (size_t)(space - text.ptr) : text.len;
    len = KV_MIN(len, sizeof(w->errors[0].code) - 1);
    kv_stat_add(&w->stats.error_replies, 1);
    for (uint32_t i = 0; i < w->error_count; i++) {
        struct kv_error_count *x = &w->errors[i];
        if (strncmp(x->code, text.ptr, len) == 0 && x->code[len] == '\0') {
            kv_stat_add(&x->count, 1);
            return;
        }
    }
    if (w->error_count == KV_ERRORS_MAX)
        return;
    struct kv_error_count *x = &w->errors[w->error_count++];
    memcpy(x->code, text.ptr, len);
    x->code[len] = '\0';
    kv_stat_set(&x->count, 1);
}

static void reply_error(struct kv_call *call, struct kv_slice text)
{
    kv_call_count_error(call->worker, text);
    kv_reply_error_raw(call->out, text);
}

void kv_call_error(struct kv_call *call, const char *text)
{
    reply_error(call, kv_slice_cstr(text));
}

void kv_call_errorf(struct kv_call *call, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    reply_error(call, kv_slice(text, KV_MIN((size_t)len, sizeof(text) - 1)));
}

void kv_call_syntax_error(struct kv_call *call)
{
    kv_call_error(call, "ERR syntax error");
}

void kv_call_wrong_type(struct kv_call *call)
{
    kv_call_error(call, "WRONGTYPE Operation against a key holding the wrong kind of value");
}

void kv_call_not_integer(struct kv_call *call)
{
    kv_call_error(call, "ERR value is not an integer or out of range");
}

void kv_call_not_float(struct kv_call *call)
{
    kv_call_error(call, "ERR value is not a valid float");
}

void kv_call_no_memory(struct kv_call *call)
{
    kv_call_error(call, "OOM the server is out of memory for this command");
}

void kv_call_failed(struct kv_call *call, enum kv_err err)
{
    KV_ASSERT(err != KV_OK);
    switch (err) {
    case KV_ERR_NOMEM:
        kv_call_no_memory(call);
        break;
    case KV_ERR_TYPE:
        kv_call_wrong_type(call);
        break;
    case KV_ERR_SYNTAX:
        kv_call_syntax_error(call);
        break;
    default:
        kv_call_errorf(call, "ERR %s", kv_err_text(err));
    }
}

void kv_call_unknown_subcommand(struct kv_call *call)
{
    char upper[64];
    size_t len = strlen(call->cmd->parent != NULL ? call->cmd->parent->name : call->cmd->name);
    const char *name = call->cmd->parent != NULL ? call->cmd->parent->name : call->cmd->name;
    len = KV_MIN(len, sizeof(upper) - 1);
    for (size_t i = 0; i < len; i++)
        upper[i] = name[i] >= 'a' && name[i] <= 'z' ? (char)(name[i] - 32) : name[i];
    upper[len] = '\0';
    struct kv_slice sub = call->argc > 1 ? call->argv[1] : kv_slice("", 0);
    kv_call_errorf(call,
                   "ERR unknown subcommand or wrong number of arguments for '%.*s'. Try %s HELP.",
                   (int)KV_MIN(sub.len, (size_t)128), sub.ptr, upper);
}

void kv_call_help(struct kv_call *call, const char *const *lines)
{
    const char *name = call->cmd->parent != NULL ? call->cmd->parent->name : call->cmd->name;
    char header[160];
    size_t count = 0;
    while (lines[count] != NULL)
        count++;
    kv_reply_array(call->out, count + 3);
    int n = snprintf(header, sizeof(header),
                     "%s <subcommand> [<arg> [value] [opt] ...]. Subcommands are:", name);
    for (int i = 0; i < n && header[i] != ' '; i++)
        if (header[i] >= 'a' && header[i] <= 'z')
            header[i] -= 32;
    kv_reply_status(call->out, header);
    for (size_t i = 0; i < count; i++)
        kv_reply_status(call->out, lines[i]);
    kv_reply_status(call->out, "HELP");
    kv_reply_status(call->out, "    Print this help.");
}

bool kv_call_int(struct kv_call *call, int arg, int64_t *out)
{
    KV_DASSERT(arg < call->argc);
    if (KV_LIKELY(kv_int_parse(call->argv[arg], out)))
        return true;
    kv_call_not_integer(call);
    return false;
}

bool kv_call_int_range(struct kv_call *call, int arg, int64_t min, int64_t max, int64_t *out)
{
    if (!kv_call_int(call, arg, out))
        return false;
    if (*out >= min && *out <= max)
        return true;
    if (min == 0)
        kv_call_error(call, "ERR value is out of range, must be positive");
    else
        kv_call_errorf(call, "ERR value is out of range, value must between %lld and %lld",
                       (long long)min, (long long)max);
    return false;
}

bool kv_call_ldouble(struct kv_call *call, int arg, long double *out)
{
    if (kv_ldouble_parse(call->argv[arg], out))
        return true;
    kv_call_not_float(call);
    return false;
}

bool kv_call_want_string(struct kv_call *call, const struct kv_entry *e)
{
    if (KV_LIKELY(e == NULL || kv_entry_type(e) == KV_TYPE_STRING))
        return true;
    kv_call_wrong_type(call);
    return false;
}

static void release_bigstr(void *holder)
{
    kv_bigstr_unref(holder);
}

void kv_call_reply_string(struct kv_call *call, const struct kv_entry *e)
{
    struct kv_bigstr *b = kv_entry_bigstr(e);
    if (KV_UNLIKELY(b != NULL && b->len >= KV_PARSE_BIG_BYTES)) {
        char header[KV_INT_TEXT_MAX + 3];
        size_t n = 1 + kv_uint_print(b->len, header + 1);
        header[0] = '$';
        header[n++] = '\r';
        header[n++] = '\n';
        kv_reply_raw(call->out, header, n);
        kv_bigstr_ref(b);
        kv_out_append_ref(call->out, b->data, b->len, b, release_bigstr, b->block_size);
        KV_REPLY_RAW(call->out, "\r\n");
        return;
    }
    char scratch[KV_INT_TEXT_MAX];
    struct kv_slice s = kv_entry_string(e, scratch);
    kv_reply_bulk(call->out, s.ptr, s.len);
}

void kv_call_propagate(struct kv_call *call, const struct kv_slice *argv, int argc)
{
    call->flags |= KV_CALL_PROPAGATED;
    if (kv_stream_active(&call->engine->stream))
        kv_stream_add(call->worker, call->view.db, argv, argc);
}

void kv_call_propagate_parts(struct kv_call *call, const struct kv_slice *head, size_t head_count,
                             const struct kv_slice *words, size_t word_count)
{
    call->flags |= KV_CALL_PROPAGATED;
    if (!kv_stream_active(&call->engine->stream))
        return;
    size_t count = head_count + word_count;
    struct kv_slice *argv = kv_arena_alloc(call->arena, count * sizeof(*argv));
    memcpy(argv, head, head_count * sizeof(*argv));
    memcpy(argv + head_count, words, word_count * sizeof(*argv));
    kv_stream_add(call->worker, call->view.db, argv, (int)count);
}

void kv_call_propagate_del(struct kv_call *call, const struct kv_key *key)
{
    struct kv_slice argv[2] = {KV_SLICE("DEL"), kv_slice(key->ptr, key->len)};
    kv_call_propagate(call, argv, 2);
}

struct kv_slice kv_call_int_text(struct kv_call *call, int64_t value)
{
    char *text = kv_arena_alloc(call->arena, KV_INT_TEXT_MAX);
    return kv_slice(text, kv_int_print(value, text));
}

void kv_call_invalid_expire(struct kv_call *call)
{
    kv_call_errorf(call, "ERR invalid expire time in '%s' command", call->cmd->full_name);
}

bool kv_call_lock_shard(struct kv_call *call, uint32_t shard)
{
    struct kv_worker *w = call->worker;
    /* Alone, in a transaction, or with one worker: everything is held already. */
    if (!w->engine->multi || call->hold_all)
        return true;
    if (w->locks.held) {
        /* What expired under this lock comes before whatever the next holder writes. */
        kv_stream_publish(w);
        kv_lockset_unlock(w->engine, &w->locks);
    }
    kv_lockset_add(&w->locks, shard);
    uint64_t give_up = kv_clock_ticks() + kv_clock_ns_to_ticks(KV_LOCK_SPIN_NS);
    do {
        if (kv_lockset_try(w->engine, &w->locks)) {
            call->visited = true;
            return true;
        }
    } while (kv_clock_ticks() < give_up);
    kv_lockset_clear(&w->locks);
    if (!call->visited) {
        /* Nothing was looked at: the engine parks the connection and runs the command again. */
        w->locks.busy = shard;
        call->flags |= KV_CALL_RETRY;
    }
    return false;
}

void kv_call_select(struct kv_call *call, uint32_t db)
{
    KV_ASSERT(db < kv_store_database_count(call->view.store));
    call->client->db = db;
    call->view.db = db;
}
