/* FCALL, FCALL_RO and FUNCTION. The work is done in script/; here are the arguments, the replies
 * and the payloads.
 *
 * What looks at libraries or changes them runs alone, since it uses what only the holder of the
 * token may touch. KILL and STATS need nothing: they must get through while a function holds
 * everything. Changes travel as the commands that made them.
 *
 * A payload of DUMP has the records of libraries that RDB files have, and the tail of any payload.
 */
#include "script/function.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "cmd/script_priv.h"
#include "engine/engine.h"
#include "engine/script.h"
#include "persist/rdb_format.h"
#include "persist/rdb_libraries.h"
#include "persist/rdb_payload.h"

/* What is saved and passed on has changed. */
static void note_change(struct kv_call *call)
{
    call->view.dirty++;
    kv_stat_add(&call->view.stats->dirty, 1);
}

/* An error that shows a word of the client's, without ends of lines at its end. */
static void refuse_word(struct kv_call *call, const char *what, struct kv_slice word)
{
    while (word.len > 0 && (word.ptr[word.len - 1] == '\n' || word.ptr[word.len - 1] == '\r'))
        word.len--;
    kv_call_errorf(call, "ERR %s%.*s", what, KV_CMD_QUOTE(word));
}

void kv_cmd_fcall(struct kv_call *call)
{
    kv_function_call(call, false);
}

void kv_cmd_fcall_ro(struct kv_call *call)
{
    kv_function_call(call, true);
}

void kv_cmd_function_load(struct kv_call *call)
{
    bool replace = false;
    for (int i = 2; i < call->argc - 1; i++) {
        if (!kv_call_arg_is(call, i, "replace")) {
            refuse_word(call, "Unknown option given: ", call->argv[i]);
            return;
        }
        replace = true;
    }
    if (kv_function_load(call, call->argv[call->argc - 1], replace))
        note_change(call);
}

void kv_cmd_function_delete(struct kv_call *call)
{
    if (!kv_function_delete(call, call->argv[2]))
        return;
    note_change(call);
    kv_reply_ok(call->out);
}

void kv_cmd_function_flush(struct kv_call *call)
{
    bool async = kv_engine_options(call->engine)->lazyfree_user_flush;
    if (call->argc > 3) {
        kv_call_unknown_subcommand(call);
        return;
    }
    if (call->argc == 3 && kv_call_arg_is(call, 2, "async")) {
        async = true;
    } else if (call->argc == 3 && kv_call_arg_is(call, 2, "sync")) {
        async = false;
    } else if (call->argc == 3) {
        kv_call_error(call, "ERR FUNCTION FLUSH only supports SYNC|ASYNC option");
        return;
    }
    kv_function_flush(call->engine, async);
    note_change(call);
    kv_reply_ok(call->out);
}

void kv_cmd_function_list(struct kv_call *call)
{
    const struct kv_slice *pattern = NULL;
    bool with_code = false;
    for (int i = 2; i < call->argc; i++) {
        if (!with_code && kv_call_arg_is(call, i, "withcode")) {
            with_code = true;
        } else if (pattern == NULL && kv_call_arg_is(call, i, "libraryname")) {
            if (++i == call->argc) {
                kv_call_error(call, "ERR library name argument was not given");
                return;
            }
            pattern = &call->argv[i];
        } else {
            refuse_word(call, "Unknown argument ", call->argv[i]);
            return;
        }
    }
    kv_function_list(call, pattern, with_code);
}

void kv_cmd_function_dump(struct kv_call *call)
{
    struct kv_rdb_writer w;
    kv_rdb_writer_init(&w);
    w.compress = kv_engine_options(call->engine)->rdb_compression;
    w.checksums = true; /* whatever rdbchecksum says */
    kv_rdb_put_libraries(&w, call->engine);
    kv_rdb_put_payload_tail(&w, KV_RDB_VERSION_MIN);
    if (w.err == KV_OK)
        kv_reply_slice(call->out, kv_rdb_writer_bytes(&w));
    else
        kv_call_no_memory(call);
    kv_rdb_writer_release(&w);
}

/* The libraries of a payload: their code, in the arena. False: the error is replied. */
static bool read_payload(struct kv_call *call, struct kv_slice records, struct kv_slice *codes,
                         uint32_t *count)
{
    struct kv_rdb_reader r;
    struct kv_rdb_string code = {0};
    bool fine, foreign, memory = true;
    *count = 0;
    kv_rdb_reader_init(&r, records);
    while (memory && kv_rdb_take_library(&r, &code, &fine, &foreign)) {
        char *copy = kv_arena_try_alloc(call->arena, code.text.len + 1);
        memory = copy != NULL;
        if (!memory)
            break;
        if (code.text.len > 0)
            memcpy(copy, code.text.ptr, code.text.len);
        codes[(*count)++] = kv_slice(copy, code.text.len);
    }
    if (!memory || r.err == KV_ERR_NOMEM)
        kv_call_no_memory(call);
    else if (!fine && foreign)
        kv_call_error(call, "ERR given type is not a function");
    else if (!fine)
        kv_call_error(call, "ERR Failed loading library data");
    bool whole = memory && fine;
    kv_rdb_string_release(&code);
    kv_rdb_reader_release(&r);
    return whole;
}

/* How many records a payload has at most; those behind a fault do not count. */
static uint32_t count_records(struct kv_slice records)
{
    struct kv_rdb_reader r;
    uint8_t opcode;
    uint32_t count = 0;
    kv_rdb_reader_init(&r, records);
    while (!kv_rdb_at_end(&r) && kv_rdb_take_byte(&r, &opcode) && kv_rdb_skip_string(&r))
        count++;
    kv_rdb_reader_release(&r);
    return count;
}

void kv_cmd_function_restore(struct kv_call *call)
{
    enum kv_function_policy policy = KV_FUNCTION_APPEND;
    struct kv_slice payload = call->argv[2];
    uint32_t count;
    if (call->argc > 4) {
        kv_call_unknown_subcommand(call);
        return;
    }
    if (call->argc == 4 && kv_call_arg_is(call, 3, "flush")) {
        policy = KV_FUNCTION_FLUSH;
    } else if (call->argc == 4 && kv_call_arg_is(call, 3, "replace")) {
        policy = KV_FUNCTION_REPLACE;
    } else if (call->argc == 4 && !kv_call_arg_is(call, 3, "append")) {
        kv_call_error(call, "ERR Wrong restore policy given, value should be either FLUSH, APPEND "
                            "or REPLACE.");
        return;
    }
    if (!kv_rdb_payload_valid(payload)) {
        kv_call_error(call, "ERR DUMP payload version or checksum are wrong");
        return;
    }
    struct kv_slice records = kv_slice(payload.ptr, payload.len - KV_RDB_PAYLOAD_TAIL);
    struct kv_slice *codes =
        kv_arena_try_alloc(call->arena, (count_records(records) + 1) * sizeof(*codes));
    if (codes == NULL) {
        kv_call_no_memory(call);
        return;
    }
    if (!read_payload(call, records, codes, &count) ||
        !kv_function_restore(call, codes, count, policy))
        return;
    note_change(call);
    kv_reply_ok(call->out);
}

void kv_cmd_function_kill(struct kv_call *call)
{
    kv_script_reply_kill(call, true);
}

static void reply_running(struct kv_call *call, const struct kv_script_shown *shown)
{
    kv_reply_text(call->out, "running_script");
    if (shown->argc == 0) {
        kv_reply_null(call->out);
        return;
    }
    kv_reply_map(call->out, 3);
    kv_reply_text(call->out, "name");
    kv_reply_slice(call->out, shown->argv[1]);
    kv_reply_text(call->out, "command");
    kv_reply_array(call->out, (size_t)shown->argc);
    for (int i = 0; i < shown->argc; i++)
        kv_reply_slice(call->out, shown->argv[i]);
    kv_reply_text(call->out, "duration_ms");
    kv_reply_int(call->out, shown->duration_ms);
}

void kv_cmd_function_stats(struct kv_call *call)
{
    struct kv_script_shown shown;
    bool busy_script;
    struct kv_library_counts counts = kv_library_counts(call->engine);
    if (!kv_script_show(call->engine, call->arena, &shown, &busy_script)) {
        if (busy_script)
            kv_call_error(call, kv_script_busy_text(call->engine));
        else
            kv_call_no_memory(call);
        return;
    }
    kv_reply_map(call->out, 2);
    reply_running(call, &shown);
    kv_reply_text(call->out, "engines");
    kv_reply_map(call->out, 1);
    kv_reply_text(call->out, "LUA");
    kv_reply_map(call->out, 2);
    kv_reply_text(call->out, "libraries_count");
    kv_reply_int(call->out, counts.libraries);
    kv_reply_text(call->out, "functions_count");
    kv_reply_int(call->out, counts.functions);
}

void kv_cmd_function_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "DELETE <library-name>",
        "    Remove a library with its functions.",
        "DUMP",
        "    All libraries as a payload that RESTORE takes.",
        "FLUSH [ASYNC|SYNC]",
        "    Remove all libraries. ASYNC frees them in the background; without a word",
        "    lazyfree-lazy-user-flush decides.",
        "KILL",
        "    End the function that runs, if it has not written yet.",
        "LIST [LIBRARYNAME <pattern>] [WITHCODE]",
        "    The libraries, or those whose name matches the pattern, with their functions",
        "    and, if asked for, their code.",
        "LOAD [REPLACE] <code>",
        "    Add a library. REPLACE: one of its name may be there, and goes.",
        "RESTORE <payload> [FLUSH|APPEND|REPLACE]",
        "    Add the libraries of a payload. Those that are there go (FLUSH), go if they",
        "    have the name of one of these (REPLACE), or stay (APPEND, as without a word).",
        "STATS",
        "    The function that is busy, and how many libraries and functions there are.",
        NULL,
    };
    kv_call_help(call, lines);
}
