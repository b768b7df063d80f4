/* Life cycle and rewriting of the append-only log; its threads are in aof_thread.c.
 *
 * The manifest belongs to one party at a time: the main thread until the log runs, then whoever
 * rewrites, of whom there is one. Each change of it is made in a copy, stored, and only then taken
 * over; a file is made before the manifest names it and removed after the manifest has forgotten
 * it, so a crash between any two steps leaves a log that loads.
 *
 * Without a gap a rewrite lists its new incr file from the start: what comes after the switch is in
 * the log whether or not the base succeeds. With a gap the incr file has a temporary name until the
 * base is there, because an incr file without what came before it is worse than none.
 *
 * Threads: see the header. Rejected: making the manifest's changes in the log's thread, which would
 * then wait for folders while output waits for it. */
#include "persist/aof.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/commit.h"
#include "persist/aof_load.h"
#include "persist/aof_priv.h"
#include "persist/backoff.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define TEMPORARY_BASE "temp-rewriteaof"
#define UNLISTED "temp-%.200s.incr" /* with a gap: what follows a base that is not there yet */
#define SWITCH_WAIT_MS 10000        /* for the log's thread to come to the switch */

struct kv_aof *kv_aof_of(struct kv_engine *e)
{
    return kv_engine_options(e)->aof;
}

static const struct kv_options *options(const struct kv_aof *a)
{
    return kv_engine_options(a->engine);
}

static bool path_of(const struct kv_aof *a, const char *name, char path[KV_AOF_PATH])
{
    return kv_manifest_path(path, KV_AOF_PATH, a->folder, name, "");
}

static uint64_t file_bytes(const struct kv_aof *a, const char *name)
{
    char path[KV_AOF_PATH];
    struct stat st;
    return path_of(a, name, path) && stat(path, &st) == 0 ? (uint64_t)st.st_size : 0;
}

/* The folder by its absolute name: `dir` may change while the log is written. */
static bool set_folder(struct kv_aof *a)
{
    const struct kv_options *o = options(a);
    char cwd[PATH_MAX];
    if (getcwd(cwd, sizeof(cwd)) == NULL)
        return false;
    snprintf(a->name, sizeof(a->name), "%.200s", o->appendfilename);
    return kv_manifest_path(a->folder, sizeof(a->folder), cwd, o->appenddirname, "");
}

struct kv_aof *kv_aof_create(struct kv_engine *e)
{
    struct kv_aof *a = kv_mem_zalloc(sizeof(*a), KV_MEM_OTHER);
    a->engine = e;
    a->fd = -1;
    atomic_store(&a->next_fd, -1);
    atomic_store(&a->rewrite_ok, true);
    atomic_store(&a->rewrite_start_ms, -1);
    atomic_store(&a->last_rewrite_s, -1);
    sem_init(&a->sync.ready, 0, 0);
    pthread_mutex_init(&a->files, NULL);
    kv_manifest_init(&a->manifest);
    kv_engine_options(e)->aof = a;
    return a;
}

void kv_aof_destroy(struct kv_aof *a)
{
    kv_aof_stop(a);
    sem_destroy(&a->sync.ready);
    pthread_mutex_destroy(&a->files);
    kv_manifest_release(&a->manifest);
    kv_engine_options(a->engine)->aof = NULL;
    kv_mem_free(a, sizeof(*a), KV_MEM_OTHER);
}

/* --- the manifest --- */

static KV_COLD enum kv_err refuse_manifest(const struct kv_manifest_fault *fault)
{
    kv_log(KV_LOG_WARNING, "*** FATAL AOF MANIFEST FILE ERROR ***");
    if (fault->line != 0) {
        kv_log(KV_LOG_WARNING, "Reading the manifest file, at line %u", fault->line);
        kv_log(KV_LOG_WARNING, ">>> '%s'", fault->text);
    }
    kv_log(KV_LOG_WARNING, "%s", fault->reason);
    return KV_ERR_SYNTAX;
}

/* Stores a changed copy and takes it over. On failure the old one stays, or it was taken over all
 * the same (*taken) but either may be on disk after a crash of the machine: then no file that one
 * of them names may go. */
static enum kv_err take_manifest(struct kv_aof *a, struct kv_manifest *changed, bool *taken)
{
    enum kv_err err = kv_manifest_store_told(changed, a->folder, a->name, taken);
    if (err != KV_OK)
        kv_log(KV_LOG_WARNING, "Can't write the AOF manifest file %s.manifest: %s", a->name,
               strerror(errno));
    if (!*taken) {
        kv_manifest_release(changed);
        return err;
    }
    kv_manifest_release(&a->manifest);
    a->manifest = *changed;
    return err;
}

/* Removes history files and then forgets them. A failure leaves them for the next time. */
static void remove_history(struct kv_aof *a)
{
    struct kv_manifest changed;
    char path[KV_AOF_PATH];
    bool found = false, taken;
    if (atomic_load(&a->keeps_history))
        return;
    for (uint32_t i = 0; i < a->manifest.count; i++) {
        const struct kv_manifest_file *f = &a->manifest.files[i];
        if (f->type != KV_MANIFEST_HISTORY || !path_of(a, f->name, path))
            continue;
        found = true;
        kv_log(KV_LOG_NOTICE, "Removing the history file %s", f->name);
        if (unlink(path) != 0 && errno != ENOENT) {
            kv_log(KV_LOG_WARNING, "Can't remove the history file %s: %s", f->name,
                   strerror(errno));
            return;
        }
    }
    if (!found)
        return;
    kv_manifest_copy(&changed, &a->manifest);
    kv_manifest_drop_history(&changed);
    (void)!take_manifest(a, &changed, &taken);
}

static enum kv_err make_folder(const struct kv_aof *a)
{
    if (mkdir(a->folder, 0755) == 0)
        return kv_file_sync_folder(a->folder);
    if (errno == EEXIST)
        return KV_OK;
    kv_log(KV_LOG_WARNING, "Can't open or create append-only dir %s: %s", options(a)->appenddirname,
           strerror(errno));
    return KV_ERR_IO;
}

/* --- loading --- */

/* A log that is one file is the base of a new one: the manifest names it, then it moves. */
static enum kv_err adopt_old(struct kv_aof *a)
{
    struct kv_manifest changed;
    char to[KV_AOF_PATH];
    struct stat st;
    bool taken;
    if (stat(a->name, &st) != 0 || !S_ISREG(st.st_mode))
        return KV_OK;
    enum kv_err err = make_folder(a);
    if (err != KV_OK)
        return err;
    kv_manifest_init(&changed);
    kv_manifest_adopt_base(&changed, a->name);
    err = take_manifest(a, &changed, &taken);
    if (err == KV_OK)
        err = path_of(a, a->name, to) ? kv_file_rename(a->name, to) : KV_ERR_IO;
    if (err != KV_OK)
        kv_log(KV_LOG_WARNING, "Can't move the old append only file %s into %s: %s", a->name,
               options(a)->appenddirname, strerror(errno));
    else
        kv_log(KV_LOG_NOTICE,
               "Successfully migrated an old-style AOF file (%s) into the AOF directory (%s).",
               a->name, options(a)->appenddirname);
    return err;
}

/* The move did not come about after the manifest was written. */
static enum kv_err finish_adopting(const struct kv_aof *a)
{
    const struct kv_manifest_file *base = kv_manifest_base(&a->manifest);
    char to[KV_AOF_PATH];
    struct stat st;
    if (base == NULL || strcmp(base->name, a->name) != 0 || !path_of(a, base->name, to) ||
        stat(to, &st) == 0 || stat(a->name, &st) != 0)
        return KV_OK;
    return kv_file_rename(a->name, to);
}

struct progress {
    const struct kv_aof_loading *all;
    uint64_t before; /* bytes of the files before */
};

/* Offsets within a file to those of the whole log. */
static bool file_progress(void *arg, const struct kv_rdb_load *l, uint64_t offset)
{
    struct progress *p = arg;
    return p->all->progress == NULL || p->all->progress(p->all->arg, l, p->before + offset);
}

static enum kv_err load_file(struct kv_aof *a, const struct kv_manifest_file *f, bool last,
                             struct kv_aof_loading *l)
{
    char path[KV_AOF_PATH];
    struct kv_aof_loaded loaded;
    struct progress progress = {.all = l, .before = a->loaded_bytes};
    struct kv_aof_source source = {.path = path,
                                   .name = f->name,
                                   .last = last,
                                   .kept = l->kept,
                                   .rules = a->rules,
                                   .spread = l->spread,
                                   .progress = file_progress,
                                   .arg = &progress};
    struct stat st;
    if (!path_of(a, f->name, path) || stat(path, &st) != 0) {
        kv_log(KV_LOG_WARNING, "Unable to obtain the AOF file %s length. stat: %s", f->name,
               strerror(errno));
        return KV_ERR_IO;
    }
    uint64_t start_us = kv_clock_mono_us();
    enum kv_err err = kv_aof_load_file(a->engine, &source, &loaded);
    if (err != KV_OK)
        return err;
    l->keys += loaded.keys;
    a->loaded_bytes += loaded.bytes;
    kv_log(KV_LOG_NOTICE, "DB loaded from %s file %s: %.3f seconds",
           f->type == KV_MANIFEST_BASE ? "base" : "incr", f->name,
           (double)(kv_clock_mono_us() - start_us) / 1e6);
    if (f->type == KV_MANIFEST_BASE)
        atomic_store(&a->base_bytes, loaded.bytes);
    else
        atomic_fetch_add(&a->closed_bytes, loaded.bytes);
    return KV_OK;
}

/* What a crash of the machine has taken from the last file is written back out of the journal. */
static enum kv_err recover(struct kv_aof *a)
{
    struct kv_journal_outcome o;
    enum kv_err err = kv_journal_recover(a->folder, a->name, &a->manifest, true, &o);
    const char *file = o.file != NULL ? o.file->name : "the log";
    if (err == KV_ERR_NOTFOUND)
        return KV_OK;
    if (err == KV_ERR_SYNTAX)
        kv_log(KV_LOG_WARNING,
               "The journal %s" KV_JOURNAL_SUFFIX " can't be applied to %s: %s. What was "
               "acknowledged last may be in the journal alone. Remove it to start without.",
               a->name, file, o.fault);
    else if (err != KV_OK)
        kv_log(KV_LOG_WARNING, "The journal %s" KV_JOURNAL_SUFFIX " can't be applied to %s: %s",
               a->name, file, err == KV_ERR_NOMEM ? kv_err_text(err) : strerror(errno));
    else if (o.lacking_bytes > 0)
        kv_log(KV_LOG_NOTICE, "%s lacked %llu bytes, which were written back from the journal",
               file, (unsigned long long)o.lacking_bytes);
    return err;
}

enum kv_err kv_aof_open(struct kv_aof *a)
{
    struct kv_manifest_fault fault;
    if (!set_folder(a)) {
        kv_log(KV_LOG_WARNING, "Can't tell the folder of the append only log: %s", strerror(errno));
        return KV_ERR_IO;
    }
    enum kv_err err = kv_manifest_load(&a->manifest, a->folder, a->name, &fault);
    if (err == KV_ERR_SYNTAX)
        return refuse_manifest(&fault);
    if (err == KV_ERR_IO)
        kv_log(KV_LOG_WARNING, "Can't read the AOF manifest file %s.manifest: %s", a->name,
               strerror(errno));
    if (err == KV_ERR_NOTFOUND)
        err = adopt_old(a);
    else if (err == KV_OK)
        err = finish_adopting(a);
    a->rules = (struct kv_aof_tail_rules){options(a)->aof_load_truncated,
                                          options(a)->aof_load_corrupt_tail_max_size};
    return err == KV_OK ? recover(a) : err;
}

bool kv_aof_to_load(const struct kv_aof *a, uint64_t *bytes)
{
    bool any = false;
    *bytes = 0;
    for (uint32_t i = 0; i < a->manifest.count; i++) {
        const struct kv_manifest_file *f = &a->manifest.files[i];
        if (f->type == KV_MANIFEST_HISTORY)
            continue;
        any = true;
        *bytes += file_bytes(a, f->name);
    }
    return any;
}

enum kv_err kv_aof_load(struct kv_aof *a, struct kv_aof_loading *l)
{
    enum kv_err err = KV_OK;
    uint64_t start_us = kv_clock_mono_us();
    a->loaded_bytes = 0;
    atomic_store(&a->closed_bytes, 0);
    for (uint32_t i = 0; i < a->manifest.count && err == KV_OK; i++)
        if (a->manifest.files[i].type != KV_MANIFEST_HISTORY)
            err = load_file(a, &a->manifest.files[i],
                            kv_manifest_ends_at(&a->manifest, a->folder, i), l);
    if (err == KV_OK && a->manifest.count > 0)
        kv_log(KV_LOG_NOTICE, "DB loaded from append only file: %.3f seconds",
               (double)(kv_clock_mono_us() - start_us) / 1e6);
    return err;
}

/* --- starting and stopping --- */

void kv_aof_apply(struct kv_aof *a)
{
    const struct kv_options *o = options(a);
    atomic_store(&a->fsync, o->appendfsync);
    atomic_store(&a->timestamps, o->aof_timestamp_enabled);
    atomic_store(&a->lazy_rewrite, o->no_appendfsync_on_rewrite);
    atomic_store(&a->keeps_history, o->aof_disable_auto_gc);
    if (!a->running)
        return;
    kv_commit_set(a->engine, true,
                  o->appendfsync == KV_APPENDFSYNC_ALWAYS && !atomic_load(&a->gap));
    kv_stream_wake(a->reader);
}

/* The reader is open; both threads begin. */
static void run(struct kv_aof *a)
{
    sigset_t all, old;
    a->buf = kv_mem_alloc(KV_AOF_NOTE_MAX + KV_AOF_BUFFER, KV_MEM_STREAM);
    a->written = a->file_synced = kv_stream_offset(a->reader);
    a->len = a->sent = 0;
    a->group = kv_slice(NULL, 0);
    atomic_store(&a->lost, false);
    a->at_boundary = true;
    a->make_ms = 0;
    a->make_failed = false;
    a->synced_ms = kv_aof_now_ms();
    atomic_store(&a->synced, a->written);
    atomic_store(&a->stopping, false);
    atomic_store(&a->write_error, 0);
    atomic_store(&a->grown_from, atomic_load(&a->base_bytes) + atomic_load(&a->closed_bytes) +
                                     atomic_load(&a->file_bytes));
    if (!atomic_load(&a->gap))
        kv_commit_advance(a->engine, a->written);
    a->running = true;
    a->starts++;
    kv_aof_apply(a);
    sigfillset(&all);
    pthread_sigmask(SIG_BLOCK, &all, &old);
    if (pthread_create(&a->thread, NULL, kv_aof_thread, a) != 0 ||
        pthread_create(&a->sync_thread, NULL, kv_aof_sync_thread, a) != 0)
        kv_panic("cannot start the threads of the append only log");
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_setname_np(a->thread, "kvik-log");
    pthread_setname_np(a->sync_thread, "kvik-log-sync");
}

/* Makes an incr file that nobody has yet, in a manifest that is not stored; its path. */
static enum kv_err make_incr(struct kv_aof *a, struct kv_manifest *m, int *fd,
                             const struct kv_manifest_file **file)
{
    char path[KV_AOF_PATH];
    enum kv_err err = KV_ERR_IO;
    /* A file of that name may be left over from a log whose manifest is gone: it is not touched. */
    for (int tries = 0; tries < 1000; tries++) {
        *file = kv_manifest_add_incr(m, a->name);
        if (!path_of(a, (*file)->name, path))
            break;
        err = kv_file_open(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL, 0644, fd);
        if (err == KV_OK || errno != EEXIST)
            break;
        m->count--;
    }
    bool made = err == KV_OK;
    if (made)
        err = kv_file_sync_folder(path);
    if (err != KV_OK)
        kv_log(KV_LOG_WARNING, "Can't open the append-only file %s: %s", (*file)->name,
               strerror(errno));
    if (err != KV_OK && made)
        unlink(path);
    return err;
}

/* The last incr file of the manifest, or a new one. */
static enum kv_err open_incr(struct kv_aof *a)
{
    const struct kv_manifest_file *file = kv_manifest_last_incr(&a->manifest);
    struct kv_manifest changed;
    char path[KV_AOF_PATH];
    bool taken;
    if (file != NULL) {
        kv_log(KV_LOG_NOTICE, "Opening AOF incr file %s on server start", file->name);
        enum kv_err err = path_of(a, file->name, path)
                              ? kv_file_open(path, O_RDWR | O_APPEND | O_CREAT, 0644, &a->fd)
                              : KV_ERR_IO;
        if (err != KV_OK)
            kv_log(KV_LOG_WARNING, "Can't open the append-only file %s: %s", file->name,
                   strerror(errno));
        return err;
    }
    kv_manifest_copy(&changed, &a->manifest);
    enum kv_err err = make_incr(a, &changed, &a->fd, &file);
    if (err != KV_OK) {
        kv_manifest_release(&changed);
        return err;
    }
    kv_log(KV_LOG_NOTICE, "Creating AOF incr file %s on server start", file->name);
    bool named = path_of(a, file->name, path);
    err = take_manifest(a, &changed, &taken);
    if (err != KV_OK && !taken && named)
        unlink(path);
    return err;
}

enum kv_err kv_aof_start(struct kv_aof *a)
{
    KV_ASSERT(!a->running);
    KV_ASSERT(a->folder[0] != '\0');
    kv_aof_apply(a);
    enum kv_err err = make_folder(a);
    if (err == KV_OK)
        err = open_incr(a);
    if (err != KV_OK) {
        if (a->fd >= 0)
            close(a->fd);
        a->fd = -1;
        return err;
    }
    const struct kv_manifest_file *last = kv_manifest_last_incr(&a->manifest);
    uint64_t bytes = file_bytes(a, last->name);
    atomic_store(&a->file_seq, last->seq);
    atomic_store(&a->file_bytes, bytes);
    atomic_fetch_sub(&a->closed_bytes, KV_MIN(bytes, atomic_load(&a->closed_bytes)));
    atomic_store(&a->gap, false);
    remove_history(a);
    a->reader = kv_stream_open(a->engine);
    if (a->reader == NULL)
        return KV_ERR_LIMIT;
    run(a);
    return KV_OK;
}

void kv_aof_allow_rewrites(struct kv_aof *a)
{
    a->can_rewrite = true;
}

/* With a gap. What is there goes when the base is there. */
static enum kv_err start_with_gap(struct kv_aof *a)
{
    struct kv_manifest_fault fault;
    if (!set_folder(a))
        return KV_ERR_IO;
    kv_manifest_release(&a->manifest);
    enum kv_err err = kv_manifest_load(&a->manifest, a->folder, a->name, &fault);
    if (err == KV_ERR_SYNTAX)
        return refuse_manifest(&fault);
    if (err == KV_OK)
        err = recover(a); /* the old log is what counts until the fresh base is there */
    if (err == KV_ERR_IO || err == KV_ERR_NOMEM)
        return err;
    err = make_folder(a);
    if (err != KV_OK)
        return err;
    a->reader = kv_stream_open(a->engine);
    if (a->reader == NULL)
        return KV_ERR_LIMIT;
    atomic_store(&a->gap, true);
    atomic_store(&a->file_seq, 0);
    atomic_store(&a->base_bytes, 0);
    atomic_store(&a->closed_bytes, 0);
    atomic_store(&a->file_bytes, 0);
    atomic_store(&a->next_rewrite_ms, 0);
    run(a);
    return KV_OK;
}

enum kv_err kv_aof_start_empty(struct kv_aof *a)
{
    KV_ASSERT(!a->running);
    if (!a->can_rewrite) {
        kv_log(KV_LOG_WARNING, "The append only log can be switched on only at the start: this "
                               "version can't write a base file.");
        return KV_ERR_DENIED;
    }
    pthread_mutex_lock(&a->files);
    enum kv_err err = start_with_gap(a);
    pthread_mutex_unlock(&a->files);
    return err;
}

static bool unlisted_path(const struct kv_aof *a, char path[KV_AOF_PATH])
{
    char name[KV_MANIFEST_NAME];
    snprintf(name, sizeof(name), UNLISTED, a->name);
    return path_of(a, name, path);
}

/* Whoever writes to it goes on until it is closed. */
static void remove_unlisted(const struct kv_aof *a)
{
    char path[KV_AOF_PATH];
    if (unlisted_path(a, path))
        unlink(path);
}

static void stop(struct kv_aof *a)
{
    atomic_store(&a->stopping, true);
    kv_stream_wake(a->reader);
    pthread_join(a->thread, NULL);
    sem_post(&a->sync.ready);
    pthread_join(a->sync_thread, NULL);
    a->running = false;
    a->sync.done = false;
    kv_stream_close(a->reader);
    a->reader = NULL;
    kv_mem_free(a->buf, KV_AOF_NOTE_MAX + KV_AOF_BUFFER, KV_MEM_STREAM);
    int next = atomic_exchange(&a->next_fd, -1);
    if (next >= 0)
        close(next);
    if (atomic_load(&a->gap))
        remove_unlisted(a);
    kv_commit_set(a->engine, false, false);
    kv_commit_deny(a->engine, 0);
    kv_commit_recover(a->engine, kv_stream_tail(a->engine));
    atomic_store(&a->gap, false);
}

void kv_aof_stop(struct kv_aof *a)
{
    pthread_mutex_lock(&a->files);
    if (a->running)
        stop(a);
    pthread_mutex_unlock(&a->files);
}

/* --- rewriting --- */

enum kv_aof_want kv_aof_wants_rewrite(struct kv_aof *a)
{
    const struct kv_options *o = options(a);
    if (!a->running || atomic_load(&a->rewriting) ||
        kv_aof_now_ms() < atomic_load(&a->next_rewrite_ms))
        return KV_AOF_NO_REWRITE;
    if (atomic_load(&a->gap))
        return KV_AOF_WANTS_BASE;
    uint64_t from = KV_MAX(atomic_load(&a->grown_from), (uint64_t)1);
    uint64_t now =
        atomic_load(&a->base_bytes) + atomic_load(&a->closed_bytes) + atomic_load(&a->file_bytes);
    if (o->auto_aof_rewrite_percentage == 0 || now <= o->auto_aof_rewrite_min_size || now < from)
        return KV_AOF_NO_REWRITE;
    return (double)(now - from) * 100 / (double)from >= (double)o->auto_aof_rewrite_percentage
               ? KV_AOF_WANTS_SMALLER
               : KV_AOF_NO_REWRITE;
}

static void judge_rewrite(struct kv_aof *a, bool fine)
{
    if (fine) {
        atomic_store(&a->rewrites_failed, 0);
    } else {
        uint64_t failed = atomic_fetch_add(&a->rewrites_failed, 1) + 1;
        atomic_store(&a->next_rewrite_ms, kv_aof_now_ms() + kv_backoff_ms(failed));
    }
    atomic_store(&a->rewrite_ok, fine);
}

static void end_rewrite(struct kv_aof *a)
{
    int64_t took_ms = kv_aof_now_ms() - atomic_load(&a->rewrite_start_ms);
    atomic_store(&a->last_rewrite_s, took_ms / 1000);
    atomic_store(&a->rewrite_start_ms, -1);
    atomic_store(&a->rewriting, false);
}

/* With a gap: a file that is no part of the log yet. */
static enum kv_err make_unlisted(struct kv_aof *a, int *fd)
{
    char path[KV_AOF_PATH];
    a->switch_seq = 0;
    if (!unlisted_path(a, path))
        return KV_ERR_IO;
    kv_log(KV_LOG_NOTICE, "Creating AOF incr file " UNLISTED " on background rewrite", a->name);
    unlink(path);
    enum kv_err err = kv_file_open(path, O_RDWR | O_APPEND | O_CREAT | O_EXCL, 0644, fd);
    if (err != KV_OK)
        kv_log(KV_LOG_WARNING, "Can't open the append-only file " UNLISTED ": %s", a->name,
               strerror(errno));
    return err;
}

static enum kv_err make_listed(struct kv_aof *a, int *fd)
{
    const struct kv_manifest_file *file;
    struct kv_manifest changed;
    char path[KV_AOF_PATH];
    bool taken;
    kv_manifest_copy(&changed, &a->manifest);
    enum kv_err err = make_incr(a, &changed, fd, &file);
    if (err != KV_OK) {
        kv_manifest_release(&changed);
        return err;
    }
    kv_log(KV_LOG_NOTICE, "Creating AOF incr file %s on background rewrite", file->name);
    a->switch_seq = file->seq;
    bool named = path_of(a, file->name, path);
    err = take_manifest(a, &changed, &taken);
    if (err != KV_OK && !taken && named)
        unlink(path);
    return err;
}

/* The log has been stopped, and perhaps begun anew, since the rewrite began. */
static bool is_over(const struct kv_aof *a)
{
    return !a->running || a->starts != a->rewrite_start;
}

static enum kv_err make_next(struct kv_aof *a)
{
    char name[64];
    int fd = -1;
    /* The switch before is still to come while the log cannot be written; two at once would go
     * wrong. */
    if (!a->running || atomic_load(&a->next_fd) >= 0)
        return KV_ERR_AGAIN;
    snprintf(name, sizeof(name), TEMPORARY_BASE "-%ld.base", (long)getpid());
    enum kv_err err = path_of(a, name, a->base_path) ? make_folder(a) : KV_ERR_IO;
    if (err == KV_OK)
        err = atomic_load(&a->gap) ? make_unlisted(a, &fd) : make_listed(a, &fd);
    atomic_store(&a->next_seq, a->switch_seq);
    if (err == KV_OK)
        atomic_store(&a->next_fd, fd);
    else if (fd >= 0)
        close(fd);
    return err;
}

enum kv_err kv_aof_rewrite_begin(struct kv_aof *a, char base[KV_AOF_PATH])
{
    KV_ASSERT(!atomic_load(&a->rewriting));
    a->switched = false;
    atomic_store(&a->rewrite_start_ms, kv_aof_now_ms());
    atomic_fetch_add(&a->rewrites, 1);
    pthread_mutex_lock(&a->files);
    enum kv_err err = make_next(a);
    a->rewrite_start = a->starts;
    pthread_mutex_unlock(&a->files);
    if (err != KV_OK) {
        judge_rewrite(a, false);
        end_rewrite(a);
        return err;
    }
    atomic_store(&a->rewriting, true);
    memcpy(base, a->base_path, strlen(a->base_path) + 1);
    return KV_OK;
}

void kv_aof_rewrite_switch(struct kv_aof *a)
{
    KV_ASSERT(atomic_load(&a->rewriting));
    KV_ASSERT(!a->switched);
    if (is_over(a))
        return;
    a->switch_offset = kv_stream_stop_here(a->reader);
    a->switched = true;
    kv_stream_wake(a->reader);
}

void kv_aof_rewrite_abort(struct kv_aof *a, bool failed)
{
    KV_ASSERT(atomic_load(&a->rewriting));
    unlink(a->base_path);
    pthread_mutex_lock(&a->files);
    if (is_over(a)) {
        /* Stopping has closed the file, and removed it if it was not listed. */
    } else {
        if (a->switch_seq == 0)
            remove_unlisted(a);
        int fd = a->switched ? -1 : atomic_exchange(&a->next_fd, -1);
        if (fd >= 0)
            close(fd);
        if (a->switched && a->switch_seq == 0) {
            atomic_store(&a->dropping, true);
            kv_stream_wake(a->reader);
        }
    }
    pthread_mutex_unlock(&a->files);
    if (failed)
        judge_rewrite(a, false);
    end_rewrite(a);
}

/* The log's thread has come to the switch. */
static bool await_switch(struct kv_aof *a)
{
    const struct timespec nap = {.tv_nsec = 1000000};
    int64_t until_ms = kv_aof_now_ms() + SWITCH_WAIT_MS;
    while (atomic_load(&a->next_fd) >= 0) {
        if (kv_aof_now_ms() > until_ms)
            return false;
        nanosleep(&nap, NULL);
    }
    return true;
}

/* The file of the gap's rewrite gets its name, `path`; its number in `changed`. */
static enum kv_err list_incr(struct kv_aof *a, struct kv_manifest *changed, uint64_t *seq,
                             char path[KV_AOF_PATH])
{
    char from[KV_AOF_PATH];
    const struct kv_manifest_file *file = kv_manifest_add_incr(changed, a->name);
    *seq = file->seq;
    if (!unlisted_path(a, from) || !path_of(a, file->name, path))
        return KV_ERR_IO;
    return kv_file_rename(from, path);
}

/* Nothing is missing any more. */
static void close_gap(struct kv_aof *a)
{
    atomic_store(&a->write_error, 0);
    atomic_store(&a->gap, false);
    kv_commit_recover(a->engine, KV_MAX(a->switch_offset, atomic_load(&a->synced)));
    kv_commit_deny(a->engine, 0);
    kv_commit_set(a->engine, true, atomic_load(&a->fsync) == KV_APPENDFSYNC_ALWAYS);
    if (!atomic_load(&a->lost))
        return;
    /* Meanwhile the new file has lost something: the next base is due at once. */
    atomic_store(&a->gap, true);
    kv_commit_deny(a->engine, EIO);
    kv_commit_fail(a->engine);
}

/* Names the files and stores the manifest; on failure the old one is good. */
static enum kv_err name_base(struct kv_aof *a, const char *suffix)
{
    struct kv_manifest changed;
    char path[KV_AOF_PATH] = "", incr_path[KV_AOF_PATH] = "";
    uint64_t seq = a->switch_seq;
    bool taken = false;
    kv_manifest_copy(&changed, &a->manifest);
    enum kv_err err = seq == 0 ? list_incr(a, &changed, &seq, incr_path) : KV_OK;
    const struct kv_manifest_file *base = kv_manifest_add_base(&changed, a->name, suffix, seq);
    if (err == KV_OK)
        err = path_of(a, base->name, path) ? kv_file_rename(a->base_path, path) : KV_ERR_IO;
    if (err != KV_OK) {
        kv_log(KV_LOG_WARNING, "Error trying to rename the temporary AOF files: %s",
               strerror(errno));
        kv_manifest_release(&changed);
    } else {
        kv_log(KV_LOG_NOTICE, "Successfully renamed the temporary AOF base file into %s",
               base->name);
        err = take_manifest(a, &changed, &taken);
    }
    if (taken) {
        atomic_store(&a->file_seq, seq);
        return err;
    }
    if (path[0] != '\0')
        unlink(path);
    if (incr_path[0] != '\0')
        unlink(incr_path);
    return err;
}

static enum kv_err commit(struct kv_aof *a, const char *suffix)
{
    if (is_over(a) || !a->switched || atomic_load(&a->lost))
        return KV_ERR_CLOSED;
    enum kv_err err = name_base(a, suffix);
    if (err != KV_OK)
        return err;
    atomic_store(&a->base_bytes, file_bytes(a, kv_manifest_base(&a->manifest)->name));
    atomic_store(&a->closed_bytes, 0);
    atomic_store(&a->grown_from, atomic_load(&a->base_bytes) + atomic_load(&a->file_bytes));
    if (atomic_load(&a->gap))
        close_gap(a);
    remove_history(a);
    return KV_OK;
}

enum kv_err kv_aof_rewrite_commit(struct kv_aof *a, const char *suffix)
{
    KV_ASSERT(atomic_load(&a->rewriting));
    if (!await_switch(a)) {
        kv_log(KV_LOG_WARNING, "The append only log can't be written: the rewrite is given up.");
        kv_aof_rewrite_abort(a, true);
        return KV_ERR_AGAIN;
    }
    pthread_mutex_lock(&a->files);
    enum kv_err err = commit(a, suffix);
    pthread_mutex_unlock(&a->files);
    if (err != KV_OK) {
        kv_aof_rewrite_abort(a, true);
        return err;
    }
    judge_rewrite(a, true);
    end_rewrite(a);
    return err;
}

/* --- INFO --- */

void kv_aof_status(struct kv_aof *a, struct kv_aof_status *out)
{
    int64_t start_ms = atomic_load(&a->rewrite_start_ms);
    memset(out, 0, sizeof(*out));
    out->enabled = a->running;
    out->write_ok = atomic_load(&a->write_error) == 0;
    out->rewrite_ok = atomic_load(&a->rewrite_ok);
    out->last_rewrite_s = atomic_load(&a->last_rewrite_s);
    out->current_rewrite_s = start_ms < 0 ? -1 : (kv_aof_now_ms() - start_ms) / 1000;
    out->rewrites = atomic_load(&a->rewrites);
    out->rewrites_failed = atomic_load(&a->rewrites_failed);
    if (!a->running)
        return;
    out->base_bytes = atomic_load(&a->grown_from);
    out->current_bytes =
        atomic_load(&a->base_bytes) + atomic_load(&a->closed_bytes) + atomic_load(&a->file_bytes);
    out->buffered_bytes = kv_stream_tail(a->engine) - kv_stream_offset(a->reader);
    out->journaled = atomic_load(&a->journaled);
    out->pending_sync = atomic_load(&a->sync.busy);
    out->delayed_syncs = atomic_load(&a->delayed_syncs);
}
