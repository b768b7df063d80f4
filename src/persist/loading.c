/* Loading at the start: see the header.
 *
 * Options that CONFIG SET may change meanwhile are taken before workers run, as are the file and
 * the folder of the log: `dir` may change.
 *
 * Progress goes into atomics for INFO, and to the operator: a bar that is drawn anew ten times a
 * second when standard output is a terminal and the log goes there, else a line in the log for
 * every 64 MiB.
 *
 * Nothing is loaded: the thread is not made, and the first client finds a server that takes
 * commands.
 */
#include "persist/loading.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/alone.h"
#include "engine/loading.h"
#include "persist/rdb_libraries.h"
#include "persist/rdb_spread.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_BYTES ((uint64_t)64 << 20) /* between two lines of the log */
#define REPORT_BYTES 4096u             /* between two looks at how far we are */
#define BAR_MS 100
#define BAR_WIDTH 40

struct kv_loading {
    struct kv_engine *engine;
    struct kv_aof *log;
    struct kv_saver *saver;
    struct kv_spread *spread;
    void (*ready)(void *arg);
    void *arg;
    /* what is loaded */
    int fd; /* of the RDB file; -1: it is the log */
    bool checksums;
    char name[PATH_MAX]; /* of the RDB file, for messages */
    /* the thread */
    pthread_t thread;
    bool started;
    enum kv_err err;        /* its result; read when it was joined, and by `conclude` */
    uint64_t keys, expired; /* likewise */
    bool concluded;         /* worker 0, then the main thread */
    /* progress; `shown` and the bar are the thread's */
    int64_t start_s;
    uint64_t start_ms; /* monotonic */
    _Atomic(uint64_t) total_bytes, loaded_bytes, used_bytes;
    uint64_t shown_bytes, shown_ms;
    bool bar, bar_drawn;
};

static uint64_t now_ms(void)
{
    return kv_clock_mono_ns() / 1000000;
}

struct kv_loading *kv_loading_create(struct kv_engine *e, struct kv_aof *log, struct kv_saver *s)
{
    struct kv_loading *l = kv_mem_zalloc(sizeof(*l), KV_MEM_OTHER);
    l->engine = e;
    l->log = log;
    l->saver = s;
    l->fd = -1;
    l->spread = kv_spread_create(e);
    return l;
}

void kv_loading_destroy(struct kv_loading *l)
{
    KV_ASSERT(!l->started);
    if (l->fd >= 0)
        close(l->fd);
    kv_spread_destroy(l->spread);
    kv_mem_free(l, sizeof(*l), KV_MEM_OTHER);
}

/* --- progress --- */

/* Seconds that are left when what is to come takes as long as what was; -1: nobody can tell yet. */
static int64_t eta_seconds(uint64_t elapsed_ms, uint64_t loaded, uint64_t total)
{
    if (loaded == 0 || elapsed_ms == 0)
        return -1;
    if (total <= loaded)
        return 0;
    return (int64_t)((double)elapsed_ms / 1000 * (double)(total - loaded) / (double)loaded);
}

static double percent_of(uint64_t loaded, uint64_t total)
{
    return total == 0 ? 0 : (double)KV_MIN(loaded, total) / (double)total * 100;
}

bool kv_loading_figures(const struct kv_loading *l, struct kv_loading_figures *out)
{
    if (l == NULL || !kv_engine_loading(l->engine))
        return false;
    uint64_t total = atomic_load(&l->total_bytes), loaded = atomic_load(&l->loaded_bytes);
    *out = (struct kv_loading_figures){
        .start_s = l->start_s,
        .total_bytes = total,
        .loaded_bytes = loaded,
        .used_bytes = atomic_load(&l->used_bytes),
        .percent = percent_of(loaded, total),
        .eta_s = eta_seconds(now_ms() - l->start_ms, loaded, total),
    };
    return true;
}

static void draw_bar(struct kv_loading *l, uint64_t offset, uint64_t now)
{
    char line[BAR_WIDTH + 128];
    uint64_t total = atomic_load(&l->total_bytes);
    double percent = percent_of(offset, total);
    int full = (int)(percent * BAR_WIDTH / 100);
    size_t len = (size_t)snprintf(line, sizeof(line), "\r[");
    for (int i = 0; i < BAR_WIDTH; i++)
        line[len++] = i < full ? '#' : '.';
    len += (size_t)snprintf(
        line + len, sizeof(line) - len, "] %3.0f %% of %llu MB, %lld s left \033[K", percent,
        (unsigned long long)(total >> 20),
        (long long)KV_MAX(eta_seconds(now - l->start_ms, offset, total), (int64_t)0));
    (void)!write(STDOUT_FILENO, line, len);
    l->bar_drawn = true;
}

/* The log's lines begin on a line of their own. */
static void wipe_bar(struct kv_loading *l)
{
    if (l->bar_drawn)
        (void)!write(STDOUT_FILENO, "\r\033[K", 4);
    l->bar_drawn = false;
}

static void show(struct kv_loading *l, uint64_t offset)
{
    if (!l->bar) {
        if (offset - l->shown_bytes < LOG_BYTES)
            return;
        l->shown_bytes = offset;
        kv_log(KV_LOG_NOTICE, "Loading: %llu of %llu MB read (%.0f %%)",
               (unsigned long long)(offset >> 20),
               (unsigned long long)(atomic_load(&l->total_bytes) >> 20),
               percent_of(offset, atomic_load(&l->total_bytes)));
        return;
    }
    uint64_t now = now_ms();
    if (l->bar_drawn && now - l->shown_ms < BAR_MS)
        return;
    l->shown_ms = now;
    draw_bar(l, offset, now);
}

static bool progress(void *arg, const struct kv_rdb_load *load, uint64_t offset)
{
    struct kv_loading *l = arg;
    atomic_store_explicit(&l->loaded_bytes, offset, memory_order_relaxed);
    if (load != NULL)
        atomic_store_explicit(&l->used_bytes, load->notes.used_bytes, memory_order_relaxed);
    show(l, offset);
    return !kv_spread_given_up(l->spread);
}

/* --- the thread --- */

static enum kv_err load_rdb(struct kv_loading *l)
{
    struct kv_rdb_load load = {.kept = kv_saver_kept(l->saver), .progress_bytes = REPORT_BYTES};
    struct kv_rdb_reader r;
    kv_rdb_reader_init_fd(&r, l->fd);
    r.checksums = l->checksums;
    enum kv_err err = kv_spread_load(l->spread, &r, &load, progress, l);
    wipe_bar(l);
    if (err == KV_OK)
        kv_log(KV_LOG_NOTICE, "DB loaded from disk: %.3f seconds, %llu keys, %llu expired",
               (double)(now_ms() - l->start_ms) / 1000, (unsigned long long)load.keys,
               (unsigned long long)load.expired);
    else if (err != KV_ERR_CLOSED)
        kv_log(KV_LOG_WARNING, "Can't load '%s': %s (offset %llu)", l->name, r.fault,
               (unsigned long long)r.fault_offset);
    if (err != KV_OK && err != KV_ERR_CLOSED)
        kv_log(KV_LOG_WARNING, "Fatal error loading the DB, check server logs. Exiting.");
    kv_rdb_reader_release(&r);
    l->keys = load.keys;
    l->expired = load.expired;
    return err;
}

static enum kv_err load_log(struct kv_loading *l)
{
    struct kv_aof_loading loading = {
        .kept = kv_saver_kept(l->saver), .spread = l->spread, .progress = progress, .arg = l};
    enum kv_err err = kv_aof_load(l->log, &loading);
    wipe_bar(l);
    l->keys = loading.keys;
    return err;
}

/* The libraries of an RDB file; those of a log were loaded before its commands. */
static enum kv_err load_libraries(struct kv_loading *l)
{
    char error[KV_LIBRARY_ERROR_MAX];
    if (kv_rdb_libraries_load(l->engine, &kv_saver_kept(l->saver)->libraries, false, error))
        return KV_OK;
    kv_log(KV_LOG_WARNING, "Can't load '%s': a library of functions cannot be loaded", l->name);
    kv_log(KV_LOG_WARNING, "Fatal error loading the DB, check server logs. Exiting.");
    return KV_ERR_SYNTAX;
}

/* All is in the keyspace. [alone] */
static void conclude(void *arg)
{
    struct kv_loading *l = arg;
    l->err = l->fd >= 0 ? load_libraries(l) : kv_aof_start(l->log);
    if (l->err != KV_OK) {
        kv_engine_stop(l->engine);
        return;
    }
    kv_saver_note_loaded(l->saver, l->keys, l->expired);
    kv_engine_load_end(l->engine);
    l->concluded = true;
    l->ready(l->arg);
}

static void *run(void *arg)
{
    struct kv_loading *l = arg;
    pthread_setname_np(pthread_self(), "kvik-load");
    kv_mem_thread_name("load");
    l->err = l->fd >= 0 ? load_rdb(l) : load_log(l);
    if (l->err == KV_OK)
        kv_engine_run_alone(l->engine, conclude, l);
    else if (l->err != KV_ERR_CLOSED)
        kv_engine_stop(l->engine);
    kv_mem_thread_exit();
    return NULL;
}

/* --- beginning and end --- */

static bool work(void *arg, struct kv_worker *w, uint32_t worker)
{
    struct kv_loading *l = arg;
    return kv_spread_work(l->spread, w, worker);
}

/* What there is: *none, or total_bytes and perhaps fd. */
static enum kv_err open_source(struct kv_loading *l, bool *none)
{
    const struct kv_options *o = kv_engine_options(l->engine);
    struct stat st;
    uint64_t bytes = 0;
    if (o->appendonly) {
        enum kv_err err = kv_aof_open(l->log);
        *none = err == KV_OK && !kv_aof_to_load(l->log, &bytes);
        atomic_store(&l->total_bytes, bytes);
        return *none ? kv_aof_start(l->log) : err;
    }
    *none = false;
    snprintf(l->name, sizeof(l->name), "%s", o->dbfilename);
    if (kv_file_open(l->name, O_RDONLY | O_NONBLOCK, 0, &l->fd) == KV_OK) {
        if (fstat(l->fd, &st) == 0 && S_ISREG(st.st_mode))
            atomic_store(&l->total_bytes, (uint64_t)st.st_size);
        return KV_OK;
    }
    l->fd = -1;
    *none = errno == ENOENT;
    if (*none)
        return KV_OK;
    kv_log(KV_LOG_WARNING, "Can't open '%s' for loading: %s", l->name, strerror(errno));
    kv_log(KV_LOG_WARNING, "Fatal error loading the DB, check server logs. Exiting.");
    return KV_ERR_IO;
}

static void start_thread(struct kv_loading *l)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    if (pthread_create(&l->thread, NULL, run, l) != 0)
        kv_panic("cannot start the thread that loads");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    l->started = true;
}

enum kv_err kv_loading_begin(struct kv_loading *l, void (*ready)(void *arg), void *arg)
{
    const struct kv_options *o = kv_engine_options(l->engine);
    const struct kv_load_ops ops = {.work = work, .arg = l};
    bool none;
    l->ready = ready;
    l->arg = arg;
    enum kv_err err = open_source(l, &none);
    if (err != KV_OK)
        return err;
    if (none) {
        l->concluded = true;
        ready(arg);
        return KV_OK;
    }
    l->checksums = o->rdb_checksum;
    l->bar = o->logfile[0] == '\0' && !o->daemonize && isatty(STDOUT_FILENO);
    l->start_s = kv_clock_wall_ms() / 1000;
    l->start_ms = now_ms();
    kv_engine_load_begin(l->engine, &ops);
    start_thread(l);
    return KV_OK;
}

enum kv_err kv_loading_end(struct kv_loading *l)
{
    if (l->started) {
        kv_spread_give_up(l->spread);
        pthread_join(l->thread, NULL);
        l->started = false;
    }
    if (l->err != KV_OK)
        return l->err;
    return l->concluded ? KV_OK : KV_ERR_CLOSED;
}
