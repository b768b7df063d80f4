/* Loading of append-only files: see the header.
 *
 * The scanner finds whole commands; runs of them are fed to the client as they stand in the file,
 * so that they are executed in look-ahead batches like a pipeline. While worker 0 executes a run,
 * the reader scans the next one; it waits for the worker before it hands that over, and before the
 * scanner's buffer moves. A run is over when the client has nothing left to do: an exclusive
 * command of somebody else may make it wait.
 *
 * `good` is the offset up to which
 * the file is whole: behind a command outside a transaction, or behind EXEC. What follows it when
 * the file ends is what may be cut off.
 *
 * A command that the server does not know ends the loading: data would be missing. So does SELECT
 * of a database that there is not, which redis-server runs over and then writes into the wrong one.
 * A command that answers an error is told in the log, and loading goes on, as there.
 *
 * Rejected: stopping at the first error reply, because logs of real servers have such commands (a
 * script that failed half-way). */
#include "persist/aof_load.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/number.h"
#include "engine/client.h"
#include "engine/loading.h"
#include "persist/aof_scan.h"
#include "persist/rdb_libraries.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define ERRORS_SHOWN 10
#define PROGRESS_BYTES 4096u         /* between two reports of data in the RDB format */
#define RUN_BYTES ((size_t)32 << 10) /* handed over when it is so long */

struct loading {
    struct kv_engine *engine;
    const struct kv_aof_source *source;
    struct kv_aof_loaded *loaded;
    struct kv_client *client;
    struct kv_aof_scan scan;
    const char *run;     /* start of what was scanned and not executed; NULL: nothing */
    uint64_t run_offset; /* of it in the file */
    uint64_t good;       /* the file is whole up to here */
    bool in_multi;
    /* the run that was handed over; worker 0's until it is done */
    bool running;
    const char *fed; /* NULL: the client has it */
    size_t fed_len;
    uint64_t fed_offset;  /* of it in the file */
    uint32_t errors_seen; /* of the client before it */
    uint64_t errors;      /* runs with error replies */
    bool given_up;
    bool libraries_fine; /* of the preamble: they were loaded */
    const struct kv_command *multi, *exec, *discard, *select;
};

/* Worker 0: feeds the run, once, and sees whether all of it was executed. */
static bool execute_run(void *arg, struct kv_worker *w)
{
    struct loading *l = arg;
    const char *run = l->fed;
    (void)w;
    l->fed = NULL;
    if (run != NULL)
        kv_client_feed(l->client, run, l->fed_len);
    return kv_client_idle(l->client);
}

/* The run that was handed over is done: its errors are told. False: the client was closed, or
 * loading was given up. */
static bool await_run(struct loading *l)
{
    if (!l->running)
        return !l->given_up;
    if (l->source->spread != NULL && !kv_spread_wait(l->source->spread)) {
        l->given_up = true;
        return false;
    }
    l->running = false;
    if (l->client->errors != l->errors_seen && l->errors++ < ERRORS_SHOWN)
        kv_log(KV_LOG_WARNING,
               "== CRITICAL == Commands of the AOF file %s between offsets %llu and %llu were "
               "answered by an error.",
               l->source->name, (unsigned long long)l->fed_offset,
               (unsigned long long)(l->fed_offset + l->fed_len));
    return !(l->client->flags & (KV_CLIENT_CLOSE_NOW | KV_CLIENT_CLOSE_AFTER));
}

/* Has what was scanned executed; it may go on when this returns. */
static bool start_run(struct loading *l)
{
    if (!await_run(l))
        return false;
    if (l->run == NULL)
        return true;
    l->fed = l->run;
    l->fed_len = (size_t)(l->scan.buf + l->scan.pos - l->run);
    l->fed_offset = l->run_offset;
    l->errors_seen = l->client->errors;
    l->run = NULL;
    l->running = true;
    if (l->source->spread != NULL)
        kv_spread_post(l->source->spread, execute_run, l);
    else
        (void)execute_run(l, NULL);
    return true;
}

/* Executes what was scanned. False: the client was closed, or loading was given up. */
static bool run_scanned(struct loading *l)
{
    return start_run(l) && await_run(l);
}

/* Looks at a command before it runs. False: it must not, and why is in the log. */
static bool admit(struct loading *l, const struct kv_aof_item *item)
{
    const struct kv_command *cmd = kv_engine_command(l->engine, item->argv[0]);
    if (cmd == NULL) {
        kv_log(KV_LOG_WARNING,
               "Unknown command '%.*s' reading the append only file %s (at offset %llu)",
               (int)KV_MIN(item->argv[0].len, (size_t)128), item->argv[0].ptr, l->source->name,
               (unsigned long long)item->offset);
        return false;
    }
    if (cmd == l->select && item->argc == 2) {
        uint64_t db;
        if (!kv_uint_parse(item->argv[1], &db) ||
            db >= kv_store_database_count(kv_engine_store(l->engine))) {
            kv_log(KV_LOG_WARNING,
                   "Bad file format reading the append only file %s: it selects database %.*s, "
                   "which this server does not have, at offset %llu. See the directive databases.",
                   l->source->name, (int)KV_MIN(item->argv[1].len, (size_t)20), item->argv[1].ptr,
                   (unsigned long long)item->offset);
            return false;
        }
    }
    if (cmd == l->multi)
        l->in_multi = true;
    else if (cmd == l->exec || cmd == l->discard)
        l->in_multi = false;
    if (!l->in_multi)
        l->good = item->offset + item->len;
    l->loaded->commands++;
    return true;
}

static enum kv_err refuse_bad(const struct loading *l)
{
    kv_log(KV_LOG_WARNING,
           "Bad file format reading the append only file %s: make a backup of your AOF file, then "
           "use kvik-check --fix <filename.manifest>. At offset %llu: %s.",
           l->source->name, (unsigned long long)l->scan.offset, l->scan.fault);
    return KV_ERR_SYNTAX;
}

/* Cuts the file off behind what is whole. */
static enum kv_err cut_off(struct loading *l)
{
    kv_log(KV_LOG_WARNING, "!!! Truncating the AOF %s at offset %llu !!!", l->source->name,
           (unsigned long long)l->good);
    int fd;
    enum kv_err err = kv_file_open(l->source->path, O_WRONLY, 0, &fd);
    if (err == KV_OK) {
        err = kv_file_truncate(fd, l->good);
        if (err == KV_OK)
            err = kv_file_sync(fd);
        int error = errno;
        close(fd);
        errno = error;
    }
    if (err != KV_OK) {
        kv_log(KV_LOG_WARNING, "Error truncating the AOF file %s: %s", l->source->name,
               strerror(errno));
        return err;
    }
    l->loaded->truncated = true;
    l->loaded->bytes = l->good;
    return KV_OK;
}

static enum kv_err ends_early(struct loading *l)
{
    if (l->in_multi)
        kv_log(KV_LOG_WARNING, "Revert incomplete MULTI/EXEC transaction in AOF file %s",
               l->source->name);
    if (l->source->last && l->source->rules.truncated) {
        kv_log(KV_LOG_WARNING, "!!! Warning: short read while loading the AOF file %s!!!",
               l->source->name);
        enum kv_err err = cut_off(l);
        if (err == KV_OK)
            kv_log(KV_LOG_WARNING, "AOF %s loaded anyway because aof-load-truncated is enabled",
                   l->source->name);
        return err;
    }
    kv_log(
        KV_LOG_WARNING,
        "Unexpected end of file reading the append only file %s at offset %llu. You can: 1) Make "
        "a backup of your AOF file, then use kvik-check --fix <filename.manifest>. 2) "
        "Alternatively "
        "you can set the 'aof-load-truncated' configuration option to yes and restart the "
        "server.%s",
        l->source->name, (unsigned long long)l->good,
        l->source->last ? "" : " The truncated file is not the last one of the log.");
    return KV_ERR_SYNTAX;
}

/* Bytes that are no command: a tail that is short enough may be cut off. */
static enum kv_err is_bad(struct loading *l)
{
    uint64_t tail = l->scan.file_size - l->good;
    if (!l->source->last || tail > l->source->rules.corrupt_bytes)
        return refuse_bad(l);
    kv_log(KV_LOG_WARNING, "!!! Warning: corrupted tail of %llu bytes in the AOF file %s: %s !!!",
           (unsigned long long)tail, l->source->name, l->scan.fault);
    enum kv_err err = cut_off(l);
    if (err == KV_OK)
        kv_log(KV_LOG_WARNING,
               "AOF %s loaded anyway because the tail is within aof-load-corrupt-tail-max-size",
               l->source->name);
    return err;
}

static enum kv_err closed(const struct loading *l)
{
    if (l->given_up)
        return KV_ERR_CLOSED;
    kv_log(KV_LOG_WARNING,
           "A command of the append only file %s between offsets %llu and %llu is larger than "
           "proto-max-bulk-len or client-query-buffer-limit allow.",
           l->source->name, (unsigned long long)l->fed_offset,
           (unsigned long long)(l->fed_offset + l->fed_len));
    return KV_ERR_LIMIT;
}

/* Says how far it is, and waits where that is asked for. False: given up. */
static bool report(struct loading *l, uint64_t offset)
{
    const struct kv_aof_source *s = l->source;
    if (s->spread != NULL)
        kv_spread_delay(s->spread);
    if (s->progress != NULL && !s->progress(s->arg, NULL, offset))
        l->given_up = true;
    return !l->given_up;
}

static enum kv_err execute(struct loading *l)
{
    for (;;) {
        struct kv_aof_item item;
        enum kv_aof_found found = kv_aof_scan_next(&l->scan, &item);
        if (found == KV_AOF_COMMAND) {
            if (l->run == NULL) {
                l->run = item.start;
                l->run_offset = item.offset;
            }
            if (!admit(l, &item))
                return await_run(l) || !l->given_up ? KV_ERR_SYNTAX : KV_ERR_CLOSED;
            if ((size_t)(l->scan.buf + l->scan.pos - l->run) >= RUN_BYTES && !start_run(l))
                return closed(l);
            if (!report(l, item.offset))
                return closed(l);
            continue;
        }
        if (found == KV_AOF_NOTE) {
            /* The run ends before it. */
            l->scan.pos -= item.len;
            bool fine = run_scanned(l);
            l->scan.pos += item.len;
            if (!fine)
                return closed(l);
            if (!l->in_multi)
                l->good = item.offset + item.len;
            continue;
        }
        if (!run_scanned(l))
            return closed(l);
        if (found == KV_AOF_END)
            return l->in_multi ? ends_early(l) : KV_OK;
        if (found == KV_AOF_TRUNCATED)
            return ends_early(l);
        if (found == KV_AOF_BAD)
            return is_bad(l);
        if (!kv_aof_scan_fill(&l->scan)) {
            kv_log(KV_LOG_WARNING, "Unrecoverable error reading the append only file %s: %s",
                   l->source->name, strerror(errno));
            return KV_ERR_IO;
        }
    }
}

/* The file begins with data in the RDB format: *end gets the offset behind it. Keys that are due
 * stay, because commands that follow may have changed that. */
static enum kv_err load_preamble(struct loading *l, int fd, uint64_t *end)
{
    struct kv_store_stats stats = {0};
    struct kv_view view = {.store = kv_engine_store(l->engine),
                           .stats = &stats,
                           .now_ms = kv_clock_wall_ms(),
                           .flags = KV_VIEW_QUIET};
    struct kv_rdb_load load = {.keep_due = true, .kept = l->source->kept};
    struct kv_rdb_reader r;
    const struct kv_aof_source *source = l->source;
    kv_log(KV_LOG_NOTICE, "Reading RDB base file on AOF loading...");
    kv_rdb_reader_init_fd(&r, fd);
    r.checksums = true;
    load.progress = source->progress;
    load.arg = source->arg;
    load.progress_bytes = source->progress != NULL ? PROGRESS_BYTES : 0;
    enum kv_err err = source->spread != NULL
                          ? kv_spread_load(source->spread, &r, &load, source->progress, source->arg)
                          : kv_rdb_load(&r, &view, &load);
    if (err != KV_OK && err != KV_ERR_CLOSED)
        kv_log(KV_LOG_WARNING,
               "Error reading the RDB preamble of the AOF file %s, AOF loading aborted: %s (offset "
               "%llu)",
               l->source->name, r.fault, (unsigned long long)r.fault_offset);
    *end = kv_rdb_reader_offset(&r);
    l->loaded->keys = load.keys;
    kv_rdb_reader_release(&r);
    return err;
}

/* The libraries of the preamble, as a slice of loading: nobody else has the gate. */
static bool load_libraries(void *arg, struct kv_worker *w)
{
    struct loading *l = arg;
    char error[KV_LIBRARY_ERROR_MAX];
    if (l->source->spread != NULL && !kv_load_enter(w)) {
        kv_engine_load_wake(l->engine, 0);
        return false;
    }
    l->libraries_fine = kv_rdb_libraries_load(l->engine, &l->source->kept->libraries, false, error);
    if (l->source->spread != NULL)
        kv_load_leave(w);
    return true;
}

static bool has_preamble(int fd)
{
    char magic[6];
    ssize_t n = pread(fd, magic, sizeof(magic), 0);
    return (n >= 5 && memcmp(magic, "REDIS", 5) == 0) ||
           (n >= 6 && memcmp(magic, "VALKEY", 6) == 0);
}

static bool create_client(void *arg, struct kv_worker *w)
{
    struct loading *l = arg;
    l->client = kv_client_create_virtual(w);
    l->client->flags |= KV_CLIENT_APPLY | KV_CLIENT_AUTHENTICATED | KV_CLIENT_REPLY_OFF;
    return true;
}

static bool destroy_client(void *arg, struct kv_worker *w)
{
    struct loading *l = arg;
    (void)w;
    kv_client_destroy(l->client);
    return true;
}

/* Given up, the client stays, and goes with its worker. */
static bool on_worker(struct loading *l, bool (*step)(void *arg, struct kv_worker *w))
{
    struct kv_spread *s = l->source->spread;
    if (s == NULL)
        return step(l, kv_engine_worker(l->engine, 0));
    kv_spread_post(s, step, l);
    return kv_spread_wait(s);
}

static enum kv_err begin_with_libraries(struct loading *l)
{
    l->libraries_fine = true;
    if (!on_worker(l, load_libraries))
        return KV_ERR_CLOSED;
    if (l->libraries_fine)
        return KV_OK;
    kv_log(KV_LOG_WARNING,
           "Error reading the RDB preamble of the AOF file %s, AOF loading aborted: a library of "
           "functions cannot be loaded",
           l->source->name);
    return KV_ERR_SYNTAX;
}

static void find_commands(struct loading *l)
{
    l->multi = kv_engine_command(l->engine, KV_SLICE("multi"));
    l->exec = kv_engine_command(l->engine, KV_SLICE("exec"));
    l->discard = kv_engine_command(l->engine, KV_SLICE("discard"));
    l->select = kv_engine_command(l->engine, KV_SLICE("select"));
}

static enum kv_err open_and_load(struct loading *l, int fd)
{
    uint64_t start = 0;
    if (l->source->spread == NULL)
        kv_worker_attach(kv_engine_worker(l->engine, 0));
    if (has_preamble(fd)) {
        enum kv_err err = load_preamble(l, fd, &start);
        if (err == KV_OK && l->source->kept != NULL)
            err = begin_with_libraries(l);
        if (err != KV_OK)
            return err;
    }
    enum kv_err err = kv_aof_scan_init(&l->scan, fd, start);
    if (err != KV_OK) {
        kv_log(KV_LOG_WARNING, "Unrecoverable error reading the append only file %s: %s",
               l->source->name, err == KV_ERR_NOMEM ? kv_err_text(err) : strerror(errno));
        return err;
    }
    l->loaded->bytes = l->scan.file_size;
    l->good = start;
    find_commands(l);
    err = KV_ERR_CLOSED;
    if (on_worker(l, create_client)) {
        err = execute(l);
        if (!l->given_up && !on_worker(l, destroy_client))
            err = KV_ERR_CLOSED;
    }
    kv_aof_scan_release(&l->scan);
    return err;
}

enum kv_err kv_aof_load_file(struct kv_engine *e, const struct kv_aof_source *source,
                             struct kv_aof_loaded *loaded)
{
    struct loading l = {.engine = e, .source = source, .loaded = loaded};
    int fd;
    memset(loaded, 0, sizeof(*loaded));
    enum kv_err err = kv_file_open(source->path, O_RDONLY, 0, &fd);
    if (err != KV_OK) {
        kv_log(KV_LOG_WARNING, "Fatal error: can't open the append log file %s for reading: %s",
               source->name, strerror(errno));
        return err;
    }
    err = open_and_load(&l, fd);
    close(fd);
    return err;
}
