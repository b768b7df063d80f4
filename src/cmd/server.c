/* Commands on whole databases and the process: DBSIZE, FLUSHDB, FLUSHALL, SWAPDB, TIME, LOLWUT,
 * SHUTDOWN.
 *
 * Flushes and SWAPDB run alone behind the gate. The store detaches the tables of a flushed database
 * in one step and hands back what is to be freed: SYNC frees it before the reply, so that memory is
 * back when the client reads OK, at the price of all others waiting; ASYNC gives it to the
 * background thread. A flush counts as one change and always goes to the change stream, also of an
 * empty database, because who reads the stream may hold keys that are due here.
 *
 * SHUTDOWN has no reply: the connection ends with the server. It saves while everything stands and
 * waits for nobody, hence no shutdown is ever in progress for ABORT. FORCE ends although saving has
 * failed.
 *
 * LOLWUT draws a maze of two strokes, different each time, and ends with the version.
 *
 * Threads: see engine/call.h.
 */
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "base/random.h"
#include "base/version.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/call.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/loading.h"
#include "engine/monitor.h"
#include "engine/snapshot.h"
#include "engine/tracking.h"
#include "persist/save.h"
#include <limits.h>

#define LOLWUT_COLUMNS 64
#define LOLWUT_ROWS 12
#define LOLWUT_SIDE_MAX 200 /* columns or rows that a client may ask for */

void kv_cmd_dbsize(struct kv_call *call)
{
    kv_reply_int(call->out, (int64_t)kv_store_size(call->view.store, call->view.db));
}

/* --- FLUSHDB, FLUSHALL, SWAPDB --- */

static void garbage_free(void *arg)
{
    kv_store_garbage_free(arg);
}

static void flush_generic(struct kv_call *call, uint32_t db)
{
    bool async = kv_engine_options(call->engine)->lazyfree_user_flush;
    if (call->argc == 2 && kv_call_arg_is(call, 1, "async")) {
        async = true;
    } else if (call->argc == 2 && kv_call_arg_is(call, 1, "sync")) {
        async = false;
    } else if (call->argc >= 2) {
        kv_call_syntax_error(call);
        return;
    }
    struct kv_saver *saver = kv_engine_options(call->engine)->saver;
    if (db == UINT32_MAX && saver != NULL)
        kv_saver_flushed(saver);
    kv_snapshot_spoil(call->engine);
    struct kv_store_garbage *garbage = kv_store_flush(&call->view, db);
    kv_tracking_flushed(call->worker);
    call->view.dirty++;
    if (garbage != NULL && async)
        kv_engine_background(call->engine, garbage_free, garbage);
    else if (garbage != NULL)
        kv_store_garbage_free(garbage);
    kv_reply_ok(call->out);
}

void kv_cmd_flushdb(struct kv_call *call)
{
    flush_generic(call, call->view.db);
}

void kv_cmd_flushall(struct kv_call *call)
{
    flush_generic(call, UINT32_MAX);
}

static bool swap_index(struct kv_call *call, int arg, const char *error, int64_t *db)
{
    if (kv_int_parse(call->argv[arg], db) && *db >= INT_MIN && *db <= INT_MAX)
        return true;
    kv_call_error(call, error);
    return false;
}

void kv_cmd_swapdb(struct kv_call *call)
{
    KV_ASSERT(call->argc == 3);
    int64_t count = kv_store_database_count(call->view.store), a, b;
    if (!swap_index(call, 1, "ERR invalid first DB index", &a) ||
        !swap_index(call, 2, "ERR invalid second DB index", &b))
        return;
    if (a < 0 || a >= count || b < 0 || b >= count) {
        kv_call_error(call, "ERR DB index is out of range");
        return;
    }
    if (a != b) {
        kv_snapshot_spoil(call->engine);
        kv_store_swap(&call->view, (uint32_t)a, (uint32_t)b);
        kv_tracking_flushed(call->worker);
    }
    call->view.dirty++;
    kv_reply_ok(call->out);
}

/* --- MONITOR --- */

void kv_cmd_monitor(struct kv_call *call)
{
    if (call->flags & KV_CALL_IN_EXEC) {
        kv_call_error(call, "ERR MONITOR isn't allowed for DENY BLOCKING client");
        return;
    }
    if (call->client->flags & KV_CLIENT_MONITOR)
        return; /* it is one: no reply */
    kv_monitor_join(call->client);
    kv_reply_ok(call->out);
}

/* --- TIME, LOLWUT --- */

void kv_cmd_time(struct kv_call *call)
{
    int64_t now_us = kv_clock_wall_us();
    kv_reply_array(call->out, 2);
    kv_reply_bulk_int(call->out, now_us / 1000000);
    kv_reply_bulk_int(call->out, now_us % 1000000);
}

/* One side of the picture from the client, within bounds. */
static bool lolwut_side(struct kv_call *call, int arg, int64_t *side)
{
    if (arg >= call->argc)
        return true;
    if (!kv_call_int(call, arg, side))
        return false;
    *side = KV_MIN(KV_MAX(*side, (int64_t)1), (int64_t)LOLWUT_SIDE_MAX);
    return true;
}

void kv_cmd_lolwut(struct kv_call *call)
{
    int64_t columns = LOLWUT_COLUMNS, rows = LOLWUT_ROWS, version;
    int first = 1;
    if (call->argc >= 3 && kv_call_arg_is(call, 1, "version")) {
        if (!kv_call_int(call, 2, &version))
            return;
        first = 3;
    }
    /* Without VERSION further words are ignored, as Redis does. */
    if (first == 3 && (!lolwut_side(call, 3, &columns) || !lolwut_side(call, 4, &rows)))
        return;
    /* The two diagonals of the box drawing characters, in UTF-8. */
    const struct kv_slice strokes[2] = {KV_SLICE("\xe2\x95\xb1"), KV_SLICE("\xe2\x95\xb2")};
    struct kv_random random;
    kv_random_init(&random, kv_clock_mono_ns());
    struct kv_text text = {0};
    for (int64_t row = 0; row < rows; row++) {
        for (int64_t column = 0; column < columns; column++)
            kv_text_append(&text, strokes[kv_random_next(&random) >> 63]);
        kv_text_append(&text, KV_SLICE("\n"));
    }
    kv_text_printf(&text, "\nA maze without a way out. Kvik ver. %s\n", KV_VERSION);
    kv_cmd_reply_text_take(&text, call);
}

/* --- SHUTDOWN --- */

void kv_cmd_shutdown(struct kv_call *call)
{
    uint32_t options;
    if (!kv_shutdown_options(call->argv, call->argc, &options)) {
        kv_call_syntax_error(call);
        return;
    }
    if (options & KV_SHUTDOWN_ABORT) {
        kv_call_error(call, "ERR No shutdown in progress.");
        return;
    }
    struct kv_saver *s = kv_engine_options(call->engine)->saver;
    /* What is loaded so far must not replace the file that it comes from. */
    bool save = !(options & KV_SHUTDOWN_NOSAVE) && s != NULL && !kv_engine_loading(call->engine) &&
                (options & KV_SHUTDOWN_SAVE || kv_saver_has_points(s));
    if (save) {
        kv_saver_abandon(s); /* what goes on in the background would be late */
        if (kv_saver_save(s, &call->view) != KV_OK && !(options & KV_SHUTDOWN_FORCE)) {
            kv_call_error(call, "ERR Errors trying to SHUTDOWN. Check logs.");
            return;
        }
    }
    kv_engine_stop(call->engine);
}
