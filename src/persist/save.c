/* Saving in the foreground and the background.
 *
 * Background. kv_saver_start marks the snapshot's moment behind the gate and starts a thread, which
 * takes the workers' buffers and writes them: head, buffers with a mark of their database before
 * each change of it, tail. Workers turn entries into bytes, LZF included, so what the thread does
 * is mostly write(2), which begins to reach the disk as it goes on (kv_file_sync_step), so that the
 * last fsync does not have all of it to do. When something fails it tells the snapshot, and goes on
 * taking buffers until it has ended. Afterwards worker 0's periodic work joins the thread and draws
 * the conclusions.
 *
 * Each worker has a writer of its own (rdb_io.h), in memory, into which an entry is put before its
 * bytes go into the snapshot's buffer; it keeps its capacity while a saving lasts.
 *
 * Save points: a saving begins when for one of them both its seconds have passed since the last
 * good saving and its number of changes has been made; after a failure not before RETRY_MS, and
 * after one that a flush or an exchange of databases made worthless not before a pause that grows.
 * Clocks that jump change none of that.
 *
 * Threads: `result` is written by the thread and read after it was joined; `finished` tells when.
 */
#include "persist/save.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/alone.h"
#include "engine/commit.h"
#include "engine/snapshot.h"
#include "persist/aof_base.h"
#include "persist/backoff.h"
#include "persist/rdb_libraries.h"
#include "persist/rdb_quick.h"
#include "persist/rdb_sliced.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LARGE_BYTES ((size_t)64 << 10) /* longer strings are not copied by workers */
#define RETRY_MS 5000

struct kv_saver {
    struct kv_engine *engine;
    struct kv_rdb_kept kept;       /* of the file that was loaded, for those that are written */
    struct kv_rdb_bytes libraries; /* records of those at the moment of the snapshot */
    struct kv_rdb_writer *writers; /* one a worker */
    uint32_t writer_count;
    /* the saving that goes on */
    bool going_on, scheduled, wanted; /* wanted: its turn behind the gate is coming */
    bool cancelled;
    atomic_bool flushed; /* FLUSHALL has run: the file is to show it */
    atomic_bool emptied; /* the same, since the saving began */
    struct kv_save_job job;
    char path[PATH_MAX], temporary[PATH_MAX];
    uint32_t flags; /* enum kv_rdb_entry_flags */
    bool compress, checksums, incremental_sync;
    pthread_t thread;
    atomic_bool finished;
    enum kv_err result;
    int error; /* errno */
    uint64_t bytes;
    int64_t start_ms;       /* monotonic */
    uint64_t start_changes; /* of the whole server when it began */
    /* history */
    uint64_t saved_changes; /* of the whole server at the last good saving's moment */
    int64_t last_save;      /* seconds of Unix time, for those who ask */
    int64_t saved_ms;       /* monotonic: the last good saving */
    int64_t retry_ms;       /* monotonic: none by itself before that */
    uint64_t spoiled;       /* savings in a row that were made worthless */
    bool last_good;
    int64_t last_seconds;
    uint64_t saves, keys_loaded, keys_expired;
};

static uint64_t changes_now(const struct kv_saver *s)
{
    return kv_engine_store_stat(s->engine, offsetof(struct kv_store_stats, dirty));
}

static int64_t now_ms(void)
{
    return (int64_t)(kv_clock_mono_us() / 1000);
}

static void note_saved(struct kv_saver *s)
{
    s->last_save = kv_clock_wall_ms() / 1000;
    s->saved_ms = now_ms();
}

struct kv_saver *kv_saver_create(struct kv_engine *e)
{
    struct kv_saver *s = kv_mem_zalloc(sizeof(*s), KV_MEM_OTHER);
    s->engine = e;
    note_saved(s);
    s->last_good = true;
    s->last_seconds = -1;
    s->writer_count = kv_engine_worker_count(e);
    s->writers = kv_mem_zalloc(s->writer_count * sizeof(*s->writers), KV_MEM_OTHER);
    for (uint32_t i = 0; i < s->writer_count; i++)
        kv_rdb_writer_init(&s->writers[i]);
    return s;
}

static void release_writers(struct kv_saver *s)
{
    for (uint32_t i = 0; i < s->writer_count; i++) {
        kv_rdb_writer_release(&s->writers[i]);
        kv_rdb_writer_init(&s->writers[i]);
    }
}

/* --- loading --- */

struct kv_rdb_kept *kv_saver_kept(struct kv_saver *s)
{
    return &s->kept;
}

void kv_saver_note_loaded(struct kv_saver *s, uint64_t keys, uint64_t expired)
{
    s->keys_loaded = keys;
    s->keys_expired = expired;
    s->saved_changes = changes_now(s);
}

/* --- what a file says of itself --- */

static struct kv_rdb_notes notes_of(bool aof_base)
{
    int64_t used = kv_mem_used_total();
    return (struct kv_rdb_notes){.saved_at = kv_clock_wall_ms() / 1000,
                                 .used_bytes = used > 0 ? (uint64_t)used : 0,
                                 .is_aof_base = aof_base};
}

/* How keys were used is worth saving when a policy asks for it. */
static uint32_t entry_flags(const struct kv_options *o)
{
    switch ((enum kv_policy)o->maxmemory_policy) {
    case KV_POLICY_ALLKEYS_LRU:
    case KV_POLICY_VOLATILE_LRU:
        return KV_RDB_WITH_IDLE;
    case KV_POLICY_ALLKEYS_LFU:
    case KV_POLICY_VOLATILE_LFU:
        return KV_RDB_WITH_FREQUENCY;
    default:
        return 0;
    }
}

static void conclude(struct kv_saver *s);

/* A saving that has ended is no hindrance for the next one, whether or not periodic work has come
 * to see its end. Worker 0, or the world stopped. */
static void settle(struct kv_saver *s)
{
    if (s->going_on && atomic_load(&s->finished))
        conclude(s);
}

enum kv_err kv_saver_save(struct kv_saver *s, struct kv_view *v)
{
    const struct kv_options *o = kv_engine_options(s->engine);
    int error;
    settle(s);
    if (kv_saver_saves_file(s))
        return KV_ERR_AGAIN;
    struct kv_rdb_kept kept = s->kept;
    if (kv_rdb_libraries_collect(s->engine, &kept.libraries) != KV_OK) {
        kv_log(KV_LOG_WARNING, "Saving to %s failed: memory was short", o->dbfilename);
        return KV_ERR_IO;
    }
    struct kv_rdb_save_options options = {
        .notes = notes_of(false),
        .kept = &kept,
        .flags = entry_flags(o),
        .compress = o->rdb_compression,
        .checksums = o->rdb_checksum,
        .incremental_sync = o->rdb_incremental_sync,
    };
    enum kv_err err = kv_rdb_save_path(o->dbfilename, v, &options, &error);
    kv_rdb_bytes_release(&kept.libraries);
    if (err != KV_OK) {
        s->retry_ms = now_ms() + RETRY_MS;
        kv_log(KV_LOG_WARNING, "Can't save to '%s': %s", o->dbfilename, strerror(error));
        return err;
    }
    kv_log(KV_LOG_NOTICE, "DB saved on disk");
    s->saved_changes = changes_now(s);
    note_saved(s);
    s->retry_ms = 0;
    s->last_good = true;
    s->saves++;
    kv_saver_apply(s);
    return KV_OK;
}

/* --- in the background: the workers' part --- */

/* The block of a string that the thread may turn into bytes itself, or NULL. */
static struct kv_bigstr *large_string(const struct kv_saver *s, const struct kv_entry *e)
{
    if (s->job.commands || kv_entry_type(e) != KV_TYPE_STRING)
        return NULL;
    struct kv_bigstr *string = kv_entry_bigstr(e);
    return string != NULL && string->len > LARGE_BYTES ? string : NULL;
}

/* From a worker's writer to the end of a buffer. */
static bool move_bytes(struct kv_rdb_writer *w, struct kv_snapshot_buffer **b)
{
    struct kv_slice bytes = kv_rdb_writer_bytes(w);
    if (w->err != KV_OK || !kv_snapshot_room(b, bytes.len))
        return false;
    memcpy((*b)->bytes + (*b)->len, bytes.ptr, bytes.len);
    (*b)->len += bytes.len;
    kv_rdb_writer_clear(w);
    return true;
}

/* Straight into the buffer. */
static bool put_quick(const struct kv_saver *s, struct kv_snapshot_buffer **b,
                      const struct kv_view *v, const struct kv_entry *e,
                      const struct kv_rdb_quick *q)
{
    if (KV_UNLIKELY(!kv_snapshot_room(b, q->most)))
        return false;
    uint8_t *out = (*b)->bytes + (*b)->len;
    (*b)->len += (size_t)(kv_rdb_quick_write(q, v, e, s->flags, s->compress, out) - out);
    return true;
}

static bool put_entry(void *arg, uint32_t worker, struct kv_snapshot_buffer **b,
                      const struct kv_view *v, const struct kv_entry *e)
{
    struct kv_saver *s = arg;
    struct kv_rdb_writer *w = &s->writers[worker];
    struct kv_rdb_quick q;
    if (KV_LIKELY(!s->job.commands && kv_rdb_quick_of(e, &q)))
        return put_quick(s, b, v, e, &q);
    struct kv_bigstr *string = large_string(s, e);
    if (s->job.commands)
        kv_aof_put_entry(w, e);
    else if (string != NULL)
        kv_rdb_put_entry_head(w, v, e, s->flags);
    else
        kv_rdb_put_entry(w, v, e, s->flags);
    if (!move_bytes(w, b))
        return false;
    if (string != NULL) {
        kv_bigstr_ref(string);
        (*b)->string = string;
    }
    return true;
}

static bool put_head(void *arg, uint32_t worker, struct kv_snapshot_buffer **b,
                     const struct kv_view *v, const struct kv_entry *e,
                     struct kv_snapshot_form *form)
{
    struct kv_saver *s = arg;
    struct kv_rdb_writer *w = &s->writers[worker];
    struct kv_rdb_sliced sliced;
    kv_rdb_put_entry_head(w, v, e, s->flags);
    kv_rdb_put_sliced(w, e, &sliced);
    *form = (struct kv_snapshot_form){sliced.form, sliced.first_due};
    return move_bytes(w, b);
}

static bool put_item(void *arg, uint32_t worker, struct kv_snapshot_buffer **b,
                     const struct kv_snapshot_form *form, const struct kv_sliced_item *item)
{
    struct kv_saver *s = arg;
    struct kv_rdb_writer *w = &s->writers[worker];
    struct kv_rdb_sliced sliced = {form->form, form->first_due};
    kv_rdb_put_sliced_item(w, &sliced, item);
    return move_bytes(w, b);
}

/* --- the thread's part --- */

static void fail(struct kv_saver *s, enum kv_err err, int error)
{
    if (s->result == KV_OK) {
        s->result = err;
        s->error = error;
    }
    kv_snapshot_fail(s->engine);
}

static void put_buffer(const struct kv_saver *s, struct kv_rdb_writer *w,
                       const struct kv_snapshot_buffer *b, uint32_t *db)
{
    /* A buffer that goes on with a value is of the same database. */
    if (*db != b->db && s->job.commands)
        kv_aof_put_database(w, b->db);
    else if (*db != b->db)
        kv_rdb_put_database(w, b->db, b->keys, 0);
    *db = b->db;
    kv_rdb_put(w, b->bytes, b->len);
    if (b->string != NULL)
        kv_rdb_put_string(w, kv_slice(b->string->data, b->string->len));
}

/* Takes all buffers; writes them as long as nothing has failed. */
static void write_buffers(struct kv_saver *s, struct kv_rdb_writer *w)
{
    struct kv_snapshot_buffer *b;
    uint32_t db = UINT32_MAX;
    bool failed;
    while ((b = kv_snapshot_take(s->engine, &failed)) != NULL) {
        if (!failed && s->result == KV_OK) {
            put_buffer(s, w, b, &db);
            if (w->err != KV_OK)
                fail(s, w->err, w->error);
        }
        kv_snapshot_free(b);
    }
    if (failed && s->result == KV_OK)
        fail(s, kv_snapshot_spoiled(s->engine) ? KV_ERR_CLOSED : KV_ERR_NOMEM, 0);
}

static void write_file(struct kv_saver *s, int fd)
{
    struct kv_rdb_writer w;
    struct kv_rdb_notes notes = notes_of(s->job.aof_base);
    struct kv_rdb_kept kept = s->kept;
    kept.libraries = s->libraries;
    kv_rdb_writer_init_fd(&w, fd);
    w.compress = s->compress;
    w.checksums = s->checksums && !s->job.commands;
    w.sync_bytes = s->incremental_sync ? KV_RDB_SYNC_BYTES : 0;
    if (!s->job.commands)
        kv_rdb_put_head(&w, &notes, &kept);
    else
        kv_aof_put_libraries(&w, &s->libraries);
    write_buffers(s, &w);
    for (uint32_t i = 0; i < s->writer_count; i++)
        w.version = KV_MAX(w.version, s->writers[i].version);
    if (s->result == KV_OK) {
        if (!s->job.commands)
            kv_rdb_put_tail(&w, &kept);
        if (kv_rdb_writer_flush(&w) != KV_OK)
            fail(s, w.err, w.error);
        else if (kv_file_sync(fd) != KV_OK)
            fail(s, KV_ERR_IO, errno);
    }
    s->bytes = kv_rdb_writer_offset(&w);
    kv_rdb_writer_release(&w);
}

static void drain(struct kv_saver *s)
{
    struct kv_snapshot_buffer *b;
    bool failed;
    while ((b = kv_snapshot_take(s->engine, &failed)) != NULL)
        kv_snapshot_free(b);
}

static void *run(void *arg)
{
    struct kv_saver *s = arg;
    int fd;
    pthread_setname_np(pthread_self(), "kvik-save");
    kv_mem_thread_name("save");
    if (kv_file_open(s->temporary, O_RDWR | O_CREAT | O_TRUNC, 0644, &fd) != KV_OK) {
        fail(s, KV_ERR_IO, errno);
        drain(s);
    } else {
        write_file(s, fd);
        if (close(fd) != 0 && s->result == KV_OK)
            fail(s, KV_ERR_IO, errno);
        if (s->result == KV_OK && kv_file_rename(s->temporary, s->path) != KV_OK)
            fail(s, KV_ERR_IO, errno);
        if (s->result != KV_OK)
            unlink(s->temporary);
    }
    if (s->job.finish != NULL)
        s->job.finish(s->job.arg, s->result);
    kv_snapshot_finish(s->engine);
    kv_mem_thread_exit();
    atomic_store(&s->finished, true);
    return NULL;
}

/* --- beginning and end --- */

static bool start_thread(struct kv_saver *s)
{
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    bool good = pthread_create(&s->thread, NULL, run, s) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return good;
}

/* Names by which the files stay the same when `dir` changes meanwhile. */
static bool set_paths(struct kv_saver *s, const char *path)
{
    char folder[PATH_MAX] = "";
    bool relative = path[0] != '/' && getcwd(folder, sizeof(folder)) != NULL;
    int len = snprintf(s->path, sizeof(s->path), "%s%s%s", folder, relative ? "/" : "", path);
    if (len < 0 || len >= (int)sizeof(s->path))
        return false;
    len = snprintf(s->temporary, sizeof(s->temporary), "%s.%d.temp", s->path, (int)getpid());
    return len >= 0 && len < (int)sizeof(s->temporary);
}

enum kv_err kv_saver_start(struct kv_saver *s, const struct kv_save_job *job)
{
    const struct kv_options *o = kv_engine_options(s->engine);
    settle(s);
    if (s->going_on || kv_snapshot_going_on(s->engine))
        return KV_ERR_AGAIN;
    if (!set_paths(s, job->path))
        return KV_ERR_IO;
    kv_rdb_bytes_release(&s->libraries);
    if (kv_rdb_libraries_collect(s->engine, &s->libraries) != KV_OK) {
        kv_log(KV_LOG_WARNING, "Background saving to '%s' failed: memory was short", s->path);
        return KV_ERR_IO;
    }
    s->job = *job;
    s->flags = entry_flags(o);
    s->compress = o->rdb_compression;
    s->checksums = o->rdb_checksum;
    s->incremental_sync = job->aof_base ? o->aof_incremental_sync : o->rdb_incremental_sync;
    for (uint32_t i = 0; i < s->writer_count; i++)
        s->writers[i].compress = o->rdb_compression;
    s->result = KV_OK;
    s->error = 0;
    s->cancelled = false;
    atomic_store(&s->finished, false);
    atomic_store(&s->emptied, false);
    /* Commands are made of whole values. */
    struct kv_snapshot_ops ops = {
        .entry = put_entry,
        .head = job->commands ? NULL : put_head,
        .item = job->commands ? NULL : put_item,
        .arg = s,
        .limit_bytes = o->snapshot_memory_limit,
    };
    bool started = kv_snapshot_start(s->engine, &ops);
    KV_ASSERT(started);
    if (!start_thread(s))
        kv_panic("cannot start the thread that saves");
    s->going_on = true;
    s->start_ms = now_ms();
    s->start_changes = changes_now(s);
    kv_log(KV_LOG_NOTICE, "Background saving to '%s' started", s->path);
    return KV_OK;
}

enum kv_err kv_saver_start_file(struct kv_saver *s, bool schedule, bool *scheduled)
{
    struct kv_save_job job = {.path = kv_engine_options(s->engine)->dbfilename};
    *scheduled = schedule && s->going_on && s->job.aof_base;
    if (*scheduled) {
        s->scheduled = true;
        return KV_OK;
    }
    return kv_saver_start(s, &job);
}

bool kv_saver_cancel(struct kv_saver *s)
{
    bool any = s->scheduled || kv_saver_saves_file(s);
    s->scheduled = false;
    if (kv_saver_saves_file(s)) {
        s->cancelled = true;
        kv_snapshot_fail(s->engine);
    }
    return any;
}

static void log_end(const struct kv_saver *s)
{
    if (s->result == KV_OK)
        kv_log(KV_LOG_NOTICE, "Background saving to '%s' ended: %llu bytes, %lld seconds", s->path,
               (unsigned long long)s->bytes, (long long)s->last_seconds);
    else if (s->cancelled)
        kv_log(KV_LOG_NOTICE, "Background saving was cancelled");
    else if (s->result == KV_ERR_CLOSED)
        kv_log(KV_LOG_NOTICE,
               "Background saving to '%s' was given up: a database was flushed or "
               "exchanged",
               s->path);
    else
        kv_log(KV_LOG_WARNING, "Background saving to '%s' failed: %s", s->path,
               s->error != 0 ? strerror(s->error) : "memory was short");
}

static void conclude(struct kv_saver *s)
{
    pthread_join(s->thread, NULL);
    s->going_on = false;
    release_writers(s);
    kv_rdb_bytes_release(&s->libraries);
    s->last_seconds = (now_ms() - s->start_ms) / 1000;
    log_end(s);
    if (s->job.aof_base || s->cancelled)
        return;
    if (s->result == KV_ERR_CLOSED) {
        /* No fault of the disk. What was wanted is begun anew, unless all of it is gone. */
        s->scheduled = s->scheduled || !atomic_load(&s->emptied);
        s->retry_ms = now_ms() + kv_backoff_ms(++s->spoiled);
        return;
    }
    s->last_good = s->result == KV_OK;
    s->retry_ms = s->last_good ? 0 : now_ms() + RETRY_MS;
    s->spoiled = 0;
    if (s->last_good) {
        s->saved_changes = s->start_changes;
        note_saved(s);
        s->saves++;
    }
}

void kv_saver_abandon(struct kv_saver *s)
{
    if (!s->going_on)
        return;
    s->cancelled = true;
    if (!atomic_load(&s->finished))
        kv_snapshot_abandon(s->engine);
    conclude(s);
}

void kv_saver_destroy(struct kv_saver *s)
{
    kv_saver_abandon(s);
    release_writers(s);
    kv_rdb_bytes_release(&s->libraries);
    kv_rdb_kept_release(&s->kept);
    kv_mem_free(s->writers, s->writer_count * sizeof(*s->writers), KV_MEM_OTHER);
    kv_mem_free(s, sizeof(*s), KV_MEM_OTHER);
}

static void start_wanted(void *arg)
{
    struct kv_saver *s = arg;
    bool scheduled;
    s->wanted = false;
    enum kv_err err = kv_saver_start_file(s, true, &scheduled);
    if (err != KV_OK && err != KV_ERR_AGAIN)
        kv_log(KV_LOG_WARNING, "Background saving can't start: %s", kv_err_text(err));
}

/* The first save point that is reached, or NULL. */
static const struct kv_save_point *reached_point(const struct kv_saver *s)
{
    const struct kv_options *o = kv_engine_options(s->engine);
    int64_t seconds = (now_ms() - s->saved_ms) / 1000;
    uint64_t changes = changes_now(s) - s->saved_changes;
    for (uint32_t i = 0; i < o->save_point_count; i++) {
        const struct kv_save_point *p = &o->save_points[i];
        if (changes >= p->changes && seconds > p->seconds)
            return p;
    }
    return NULL;
}

void kv_saver_apply(struct kv_saver *s)
{
    const struct kv_options *o = kv_engine_options(s->engine);
    kv_commit_deny_unsaved(s->engine, !s->last_good && o->stop_writes_on_save_error &&
                                          o->save_point_count != 0);
}

void kv_saver_flushed(struct kv_saver *s)
{
    atomic_store(&s->emptied, true);
    atomic_store(&s->flushed, true);
}

void kv_saver_cron(struct kv_saver *s)
{
    settle(s);
    kv_saver_apply(s);
    if (atomic_exchange(&s->flushed, false) && kv_saver_has_points(s)) {
        s->scheduled = true;
        s->retry_ms = 0;
    }
    if (s->going_on || s->wanted || now_ms() < s->retry_ms)
        return;
    const struct kv_save_point *p = s->scheduled ? NULL : reached_point(s);
    if (p != NULL)
        kv_log(KV_LOG_NOTICE, "%llu changes in %lld seconds. Saving...",
               (unsigned long long)p->changes, (long long)p->seconds);
    if (p == NULL && !s->scheduled)
        return;
    s->scheduled = false;
    s->wanted = true;
    kv_engine_run_alone(s->engine, start_wanted, s);
}

bool kv_saver_going_on(const struct kv_saver *s)
{
    return s->going_on;
}

bool kv_saver_writes_base(const struct kv_saver *s)
{
    return s->going_on && s->job.aof_base && !atomic_load(&s->finished);
}

bool kv_saver_saves_file(const struct kv_saver *s)
{
    return s->going_on && !s->job.aof_base;
}

int64_t kv_saver_last_save(const struct kv_saver *s)
{
    return s->last_save;
}

bool kv_saver_has_points(const struct kv_saver *s)
{
    return kv_engine_options(s->engine)->save_point_count != 0;
}

void kv_saver_figures(const struct kv_saver *s, struct kv_saver_figures *out)
{
    *out = (struct kv_saver_figures){
        .changes = changes_now(s) - s->saved_changes,
        .last_save = s->last_save,
        .last_good = s->last_good,
        .last_seconds = s->last_seconds,
        .current_seconds = s->going_on ? (now_ms() - s->start_ms) / 1000 : -1,
        .going_on = s->going_on,
        .scheduled = s->scheduled,
        .aof_base = s->job.aof_base,
        .saves = s->saves,
        .keys_loaded = s->keys_loaded,
        .keys_expired = s->keys_expired,
    };
}
