/* DEBUG RELOAD: saves the keyspace to its file, empties it, and loads the file again.
 *
 * It is the one command that does I/O while everything stands still: for tests, which want to know
 * that what was saved is what is loaded. NOSAVE loads a file that is there, NOFLUSH leaves the
 * keyspace, MERGE lets keys of the file replace others.
 *
 * What the file holds for others (modules' data) is the saver's; without one (library use) it is
 * dropped. A saving that goes on in the background is given up first: it would write the
 * same file.
 *
 * When loading fails the keyspace has what was read before the fault; the log has its offset.
 */
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cmd/debug_priv.h"
#include "engine/engine.h"
#include "engine/snapshot.h"
#include "engine/tracking.h"
#include "persist/rdb_libraries.h"
#include "persist/save.h"
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

static struct kv_rdb_kept *kept_of(const struct kv_options *options)
{
    return options->saver != NULL ? kv_saver_kept(options->saver) : NULL;
}

static bool save(struct kv_call *call, const struct kv_options *options)
{
    int error;
    struct kv_rdb_kept kept = {0};
    if (kept_of(options) != NULL)
        kept = *kept_of(options);
    if (kv_rdb_libraries_collect(call->engine, &kept.libraries) != KV_OK) {
        kv_call_no_memory(call);
        return false;
    }
    struct kv_rdb_save_options o = {
        .kept = &kept,
        .compress = options->rdb_compression,
        .checksums = options->rdb_checksum,
        .incremental_sync = options->rdb_incremental_sync,
    };
    o.notes.saved_at = kv_clock_wall_ms() / 1000;
    o.notes.used_bytes = (uint64_t)kv_mem_used_total();
    enum kv_err err = kv_rdb_save_path(options->dbfilename, &call->view, &o, &error);
    kv_rdb_bytes_release(&kept.libraries);
    if (err == KV_OK)
        return true;
    kv_log(KV_LOG_WARNING, "Saving to %s failed: %s", options->dbfilename, strerror(error));
    kv_call_error(call, "ERR Error saving the RDB file, check the server log");
    return false;
}

static void empty_keyspace(struct kv_call *call)
{
    kv_snapshot_spoil(call->engine); /* without a saver there may still be one */
    struct kv_store_garbage *garbage = kv_store_flush(&call->view, UINT32_MAX);
    kv_tracking_flushed(call->worker);
    if (garbage != NULL)
        kv_store_garbage_free(garbage);
    if (kept_of(kv_engine_options(call->engine)) != NULL)
        kv_rdb_kept_release(kept_of(kv_engine_options(call->engine)));
    kv_rdb_libraries_clear(call->engine);
}

/* Libraries of the names that the file has go when others are left: only keys are ever merged. */
static bool load(struct kv_call *call, const struct kv_options *options, bool merge)
{
    char error[KV_LIBRARY_ERROR_MAX];
    struct kv_rdb_reader r;
    struct kv_rdb_kept own = {0}, *kept = kept_of(options) != NULL ? kept_of(options) : &own;
    struct kv_rdb_load l = {.merge = merge, .kept = kept};
    int fd;
    if (kv_file_open(options->dbfilename, O_RDONLY, 0, &fd) != KV_OK) {
        kv_log(KV_LOG_WARNING, "Opening %s failed: %s", options->dbfilename, strerror(errno));
        kv_call_error(call, "ERR Error trying to load the RDB dump, check server logs");
        return false;
    }
    kv_rdb_reader_init_fd(&r, fd);
    r.checksums = options->rdb_checksum;
    call->view.flags |= KV_VIEW_QUIET;
    enum kv_err err = kv_rdb_load(&r, &call->view, &l);
    if (err == KV_OK && !kv_rdb_libraries_load(call->engine, &kept->libraries, true, error)) {
        kv_call_error(call, "ERR Error trying to load the RDB dump, check server logs");
        err = KV_ERR_SYNTAX;
    } else if (err != KV_OK) {
        kv_log(KV_LOG_WARNING, "Loading %s failed at offset %llu: %s", options->dbfilename,
               (unsigned long long)r.fault_offset, r.fault);
        kv_call_error(call, "ERR Error trying to load the RDB dump, check server logs");
    } else {
        kv_log(KV_LOG_NOTICE, "Loaded %s of version %u: %llu keys, %llu due, %llu empty",
               options->dbfilename, l.version, (unsigned long long)l.keys,
               (unsigned long long)l.expired, (unsigned long long)l.empty);
    }
    kv_rdb_bytes_release(&kept->libraries);
    kv_rdb_kept_release(&own);
    kv_rdb_reader_release(&r);
    close(fd);
    return err == KV_OK;
}

void kv_debug_reload(struct kv_call *call)
{
    const struct kv_options *options = kv_engine_options(call->engine);
    bool merge = false, flush = true, first_save = true;
    for (int i = 2; i < call->argc; i++) {
        if (kv_call_arg_is(call, i, "merge")) {
            merge = true;
        } else if (kv_call_arg_is(call, i, "noflush")) {
            flush = false;
        } else if (kv_call_arg_is(call, i, "nosave")) {
            first_save = false;
        } else {
            kv_call_error(call, "ERR DEBUG RELOAD only supports the MERGE, NOFLUSH and NOSAVE "
                                "options.");
            return;
        }
    }
    if (options->saver != NULL)
        kv_saver_abandon(options->saver);
    if (first_save && !save(call, options))
        return;
    if (flush)
        empty_keyspace(call);
    if (load(call, options, merge))
        kv_reply_ok(call->out);
}
