/* CONFIG GET, SET, REWRITE, RESETSTAT, HELP. What the names mean is in admin/config.
 *
 * An engine without a configuration (library use) has no directives: GET finds nothing, SET knows
 * no name.
 *
 * GET marks first and prints then, so that several patterns give each name once and the length of
 * the map is known: two marks a directive, one for its name and one for its alias, which is shown
 * under its own name when a pattern matches it.
 *
 * Threads: KV_MODE_STOP, since options are read by all workers.
 */
#include "admin/config.h"
#include "base/glob.h"
#include "base/log.h"
#include "cmd/functions.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "engine/loading.h"
#include <errno.h>

static bool matches(const struct kv_directive *d, const char *name, struct kv_slice pattern)
{
    if (d->flags & KV_DIR_HIDDEN)
        return kv_slice_is(pattern, name);
    return kv_glob_match(pattern, kv_slice_cstr(name), true);
}

/* False when memory is short. */
static bool reply_pair(struct kv_call *call, const struct kv_config *c, uint32_t index,
                       const char *name, struct kv_text *value)
{
    kv_text_clear(value);
    kv_config_print(c, index, value);
    kv_reply_text(call->out, name);
    kv_reply_slice(call->out, kv_text_slice(value));
    return !value->failed;
}

void kv_cmd_config_get(struct kv_call *call)
{
    const struct kv_config *c = kv_config_of(call->engine);
    size_t pairs = 0;
    uint8_t *marks = kv_arena_alloc(call->arena, kv_directive_count);
    memset(marks, 0, kv_directive_count);
    for (uint32_t i = 0; c != NULL && i < kv_directive_count; i++) {
        const struct kv_directive *d = &kv_directives[i];
        for (int arg = 2; arg < call->argc; arg++) {
            if (matches(d, d->name, call->argv[arg]))
                marks[i] |= 1;
            if (d->alias != NULL && matches(d, d->alias, call->argv[arg]))
                marks[i] |= 2;
        }
        pairs += (marks[i] & 1) + (marks[i] >> 1);
    }
    struct kv_text value;
    bool complete = true;
    kv_text_init(&value);
    struct kv_out_mark mark = kv_out_mark(call->out);
    kv_reply_map(call->out, pairs);
    for (uint32_t i = 0; complete && i < kv_directive_count; i++) {
        if (marks[i] & 1)
            complete = reply_pair(call, c, i, kv_directives[i].name, &value);
        if (complete && marks[i] & 2)
            complete = reply_pair(call, c, i, kv_directives[i].alias, &value);
    }
    kv_text_release(&value);
    if (!complete) {
        kv_out_rewind(call->out, &mark);
        kv_call_no_memory(call);
    }
}

/* Connections over the unix socket or a loopback address. */
static bool is_local(const struct kv_client *client)
{
    if (client->flags & (KV_CLIENT_UNIX | KV_CLIENT_VIRTUAL))
        return true;
    const char *peer = client->peer == NULL ? "" : client->peer;
    return strncmp(peer, "127.", 4) == 0 || strncmp(peer, "[::1]", 5) == 0;
}

static void reply_failure(struct kv_call *call, const struct kv_config_failure *f)
{
    struct kv_text text;
    kv_text_init(&text);
    if (f->unknown)
        kv_text_append(&text,
                       KV_SLICE("ERR Unknown option or number of arguments for CONFIG SET - '"));
    else
        kv_text_append(&text, KV_SLICE("ERR CONFIG SET failed (possibly related to argument '"));
    kv_text_append(&text, kv_slice(f->name.ptr, KV_MIN(f->name.len, (size_t)128)));
    if (f->unknown)
        kv_text_append(&text, KV_SLICE("'"));
    else
        kv_text_printf(&text, "') - %s", f->reason.text);
    if (text.failed)
        kv_call_no_memory(call);
    else
        kv_call_error(call, kv_text_cstr(&text));
    kv_text_release(&text);
}

void kv_cmd_config_set(struct kv_call *call)
{
    KV_ASSERT(call->argc >= 4);
    if (call->argc % 2 != 0) {
        kv_call_syntax_error(call);
        return;
    }
    struct kv_config *c = kv_config_of(call->engine);
    for (int i = 2; i < call->argc; i += 2) {
        if (!kv_engine_loading(call->engine) || !kv_call_arg_is(call, i, "appendonly"))
            continue;
        kv_call_error(call, KV_LOADING_TEXT); /* the log may be what is loaded */
        return;
    }
    struct kv_config_failure failure = {.name = call->argv[2], .unknown = true};
    if (c == NULL || kv_config_set(c, call->argv + 2, (call->argc - 2) / 2, is_local(call->client),
                                   &failure) != KV_OK)
        reply_failure(call, &failure);
    else
        kv_reply_ok(call->out);
}

void kv_cmd_config_rewrite(struct kv_call *call)
{
    struct kv_config *c = kv_config_of(call->engine);
    enum kv_err err = c == NULL ? KV_ERR_NOTFOUND : kv_config_rewrite(c);
    if (err == KV_ERR_NOTFOUND) {
        kv_call_error(call, "ERR The server is running without a config file");
    } else if (err != KV_OK) {
        const char *reason = err == KV_ERR_IO ? strerror(errno) : kv_err_text(err);
        kv_log(KV_LOG_WARNING, "CONFIG REWRITE failed: %s", reason);
        kv_call_errorf(call, "ERR Rewriting config file: %s", reason);
    } else {
        kv_log(KV_LOG_NOTICE, "CONFIG REWRITE executed with success.");
        kv_reply_ok(call->out);
    }
}

void kv_cmd_config_resetstat(struct kv_call *call)
{
    KV_ASSERT(call->argc == 2);
    kv_engine_reset_stats(call->engine);
    kv_mem_peak_reset();
    kv_reply_ok(call->out);
}

void kv_cmd_config_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "GET <pattern> [<pattern> ...]",
        "    Names and values of the directives that match a glob pattern.",
        "SET <directive> <value> [<directive> <value> ...]",
        "    Change directives: all of them, or none if one is refused.",
        "RESETSTAT",
        "    Set the statistics that INFO shows back to zero.",
        "REWRITE",
        "    Bring the configuration file up to date with the running values.",
        NULL,
    };
    kv_call_help(call, lines);
}
