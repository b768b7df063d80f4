/* DEBUG: what tests and maintainers need and applications do not. Refused unless
 * `enable-debug-command` is yes, or is local and the client comes over the unix socket or loopback.
 *
 * Subcommands are rows of a table here instead of entries of the command table, because none of
 * them has keys that could name shards: DEBUG as a whole runs in KV_MODE_STOP, alone, and may
 * therefore look at any entry and change options.
 *
 * CHANGE-STREAM lets a test read the stream that append log and replicas will read: START opens a
 * reader, READ answers what was published since, STOP closes it. There is one reader at a time,
 * kept in a static, since the test hook of one process needs no more. READ answers at most
 * STREAM_READ_BYTES, so a test calls it until the answer is empty; a reader that nobody reads stops
 * writers when the ring is full, as a slow replica would.
 *
 * DEBUG OBJECT's serializedlength is the length of the value in the RDB format.
 */
#include "base/assert.h"
#include "base/file.h"
#include "base/glob.h"
#include "base/log.h"
#include "base/number.h"
#include "cmd/debug_priv.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/call.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/loading.h"
#include "persist/rdb_value.h"
#include "store/foreign.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define STREAM_READ_BYTES (1 << 20)
#define DIGEST_BYTES 20

static struct kv_stream_reader *stream_reader; /* open reader or NULL; touched in KV_MODE_STOP */

static bool client_local(const struct kv_client *c)
{
    if (c->flags & KV_CLIENT_UNIX)
        return true;
    return c->peer != NULL &&
           (strncmp(c->peer, "127.", 4) == 0 || strncmp(c->peer, "[::1]:", 6) == 0);
}

static bool debug_allowed(const struct kv_call *call)
{
    const char *allowed = kv_engine_options(call->engine)->enable_debug_command;
    return strcmp(allowed, "yes") == 0 ||
           (strcmp(allowed, "local") == 0 && client_local(call->client));
}

/* Number at the start of an argument as strtod reads it, 0 when there is none. */
static double leading_number(struct kv_slice text)
{
    char copy[64];
    size_t len = KV_MIN(text.len, sizeof(copy) - 1);
    memcpy(copy, text.ptr, len);
    copy[len] = '\0';
    return strtod(copy, NULL);
}

static void debug_sleep(struct kv_call *call)
{
    double seconds = leading_number(call->argv[2]);
    /* The bound keeps the conversion defined; it is three years. */
    if (seconds > 0 && seconds < 1e8) {
        struct timespec left = {.tv_sec = (time_t)seconds};
        left.tv_nsec = (long)((seconds - (double)left.tv_sec) * 1e9);
        while (nanosleep(&left, &left) != 0 && errno == EINTR)
            continue;
    }
    kv_reply_ok(call->out);
}

/* --- OBJECT --- */

/* Bytes of a value as DUMP would write it; 0: out of memory. */
static uint64_t serialized_bytes(struct kv_call *call, const struct kv_entry *e)
{
    struct kv_rdb_writer w;
    kv_rdb_writer_init(&w);
    w.compress = kv_engine_options(call->engine)->rdb_compression;
    kv_rdb_put_value(&w, e);
    uint64_t bytes = w.err == KV_OK ? kv_rdb_writer_offset(&w) : 0;
    kv_rdb_writer_release(&w);
    return bytes;
}

static void debug_object(struct kv_call *call)
{
    struct kv_key k = kv_store_key(call->view.store, call->argv[2]);
    const struct kv_entry *e = kv_store_peek(&call->view, &k);
    if (e == NULL) {
        kv_call_error(call, "ERR no such key");
        return;
    }
    unsigned long long bytes = serialized_bytes(call, e);
    unsigned clock = e->access[0] | (unsigned)e->access[1] << 8 | (unsigned)e->access[2] << 16;
    char text[256];
    snprintf(
        text, sizeof(text),
        "Value at:%p refcount:%d encoding:%s serializedlength:%llu lru:%u lru_seconds_idle:%llu",
        (const void *)e, kv_cmd_references(e), kv_entry_encoding_name(e), bytes, clock,
        (unsigned long long)kv_entry_idle_seconds(e, call->view.now_ms));
    kv_reply_status(call->out, text);
}

/* --- DIGEST --- */

static void reply_digest(struct kv_call *call, const uint8_t digest[DIGEST_BYTES])
{
    static const char hex[] = "0123456789abcdef";
    char text[2 * DIGEST_BYTES + 1];
    for (int i = 0; i < DIGEST_BYTES; i++) {
        text[2 * i] = hex[digest[i] >> 4];
        text[2 * i + 1] = hex[digest[i] & 15];
    }
    text[2 * DIGEST_BYTES] = '\0';
    kv_reply_status(call->out, text);
}

static void debug_digest(struct kv_call *call)
{
    uint8_t digest[DIGEST_BYTES];
    kv_store_digest(&call->view, digest);
    reply_digest(call, digest);
}

static void debug_digest_value(struct kv_call *call)
{
    kv_reply_array(call->out, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) {
        uint8_t digest[DIGEST_BYTES] = {0};
        struct kv_key k = kv_store_key(call->view.store, call->argv[i]);
        const struct kv_entry *e = kv_store_peek(&call->view, &k);
        if (e != NULL)
            kv_entry_digest(e, digest);
        reply_digest(call, digest);
    }
}

/* --- small ones --- */

static void debug_set_active_expire(struct kv_call *call)
{
    kv_engine_options(call->engine)->active_expire = leading_number(call->argv[2]) != 0;
    kv_reply_ok(call->out);
}

static void debug_stringmatch(struct kv_call *call)
{
    kv_reply_int(call->out, kv_glob_match(call->argv[2], call->argv[3], false));
}

static void debug_log(struct kv_call *call)
{
    kv_log(KV_LOG_WARNING, "DEBUG LOG: %.*s", (int)KV_MIN(call->argv[2].len, (size_t)900),
           call->argv[2].ptr);
    kv_reply_ok(call->out);
}

/* --- CHANGE-STREAM --- */

static void stream_read(struct kv_call *call)
{
    char *bytes = kv_arena_try_alloc(call->arena, STREAM_READ_BYTES);
    if (bytes == NULL) {
        kv_call_no_memory(call);
        return;
    }
    size_t len = 0, got;
    do {
        got = kv_stream_read(stream_reader, bytes + len, STREAM_READ_BYTES - len);
        len += got;
        KV_ASSERT(len <= STREAM_READ_BYTES);
    } while (got > 0 && len < STREAM_READ_BYTES);
    kv_reply_bulk(call->out, bytes, len);
}

static void debug_change_stream(struct kv_call *call)
{
    bool start = kv_call_arg_is(call, 2, "start"), stop = kv_call_arg_is(call, 2, "stop");
    if (kv_call_arg_is(call, 2, "apply")) {
        call->client->flags |= KV_CLIENT_APPLY;
        kv_reply_ok(call->out);
        return;
    }
    if (!start && !stop && !kv_call_arg_is(call, 2, "read")) {
        kv_call_syntax_error(call);
        return;
    }
    if (start == (stream_reader != NULL)) {
        kv_call_error(call, start ? "ERR The change stream has a reader already"
                                  : "ERR The change stream has no reader");
        return;
    }
    if (!start && !stop) {
        stream_read(call);
        return;
    }
    if (start)
        stream_reader = kv_stream_open(call->engine);
    if (stop) {
        kv_stream_close(stream_reader);
        stream_reader = NULL;
    }
    kv_reply_ok(call->out);
}

/* --- FILE-FAULTS --- */

/* Calls that fail from here on: base/file.h. One kind each, "call:first:count:errno,...". */
static void debug_file_faults(struct kv_call *call)
{
    char text[128];
    struct kv_slice plan = call->argv[2];
    bool fine = plan.len < sizeof(text);
    if (fine) {
        memcpy(text, plan.ptr, plan.len);
        text[plan.len] = '\0';
        fine = kv_file_fail_text(text);
    }
    if (fine)
        kv_reply_ok(call->out);
    else
        kv_call_error(call, "ERR Not understood, or this build injects no faults");
}

/* A fault found ends the process with a report. */
static void debug_check(struct kv_call *call)
{
    kv_store_check(call->view.store);
    kv_reply_ok(call->out);
}

static void debug_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "CHANGE-STREAM (START|READ|STOP|APPLY)",
        "    Open a reader of the change stream, answer what it published since (at most",
        "    1 MiB a call), close the reader; APPLY: this connection sends such a stream,",
        "    so that no key is due for it.",
        "CHECK",
        "    Walk over everything that is stored and assert that counts, indexes and tables",
        "    agree. A fault ends the server with a report.",
        "DIGEST",
        "    A digest of all databases; equal content gives equal digests.",
        "DIGEST-VALUE <key> [<key> ...]",
        "    A digest of each value; zeros where there is no key.",
        "FILE-FAULTS <call>:<first>:<count>:<errno>[,...]",
        "    Test builds: so many calls (open, write, sync, rename, truncate) fail.",
        "LOG <message>",
        "    Write <message> to the server log.",
        "OBJECT <key>",
        "    Address, encoding and access clock of the value at <key>.",
        "RELOAD [MERGE] [NOFLUSH] [NOSAVE]",
        "    Save to the file that dbfilename names, empty the keyspace, load the file.",
        "SET-ACTIVE-EXPIRE <0|1>",
        "    Whether due keys are removed in the background.",
        "SLEEP <seconds>",
        "    Stop the whole server for so long. Fractions are allowed.",
        "STRINGMATCH-LEN <pattern> <text>",
        "    1 when the glob pattern matches the text, else 0.",
        NULL,
    };
    kv_call_help(call, lines);
}

static const struct {
    const char *word;
    int min_argc, max_argc;
    kv_cmd_fn fn;
    bool of_data; /* refused while data are loaded, as other commands are */
} subcommands[] = {
    {"sleep", 3, 3, debug_sleep, false},
    {"object", 3, 3, debug_object, true},
    {"check", 2, 2, debug_check, true},
    {"reload", 2, 5, kv_debug_reload, true},
    {"digest", 2, 2, debug_digest, true},
    {"digest-value", 2, INT_MAX, debug_digest_value, true},
    {"set-active-expire", 3, 3, debug_set_active_expire, false},
    {"stringmatch-len", 4, 4, debug_stringmatch, false},
    {"log", 3, 3, debug_log, false},
    {"file-faults", 3, 3, debug_file_faults, false},
    {"change-stream", 3, 3, debug_change_stream, true},
    {"help", 2, 2, debug_help, false},
};

void kv_cmd_debug(struct kv_call *call)
{
    KV_ASSERT(call->argc >= 2);
    if (!debug_allowed(call)) {
        kv_call_error(call, "ERR DEBUG command not allowed. If the enable-debug-command option is "
                            "set to \"local\", you can run it from a local connection, otherwise "
                            "you need to set this option in the configuration file, and then "
                            "restart the server.");
        return;
    }
    for (size_t i = 0; i < KV_ARRAY_LEN(subcommands); i++) {
        if (kv_call_arg_is(call, 1, subcommands[i].word) && call->argc >= subcommands[i].min_argc &&
            call->argc <= subcommands[i].max_argc) {
            if (subcommands[i].of_data && kv_engine_loading(call->engine))
                kv_call_error(call, KV_LOADING_TEXT);
            else
                subcommands[i].fn(call);
            return;
        }
    }
    kv_call_unknown_subcommand(call);
}
