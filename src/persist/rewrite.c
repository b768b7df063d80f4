/* Rewriting the append-only log.
 *
 * One flag, `busy`, is true from the decision until the log has its new base or has given it up; it
 * is set on worker 0 and cleared wherever the way ends: the background thread (no next file),
 * worker 0 (the snapshot could not begin), the saving thread (commit or abort). So one way is gone
 * at a time, and each step has the log to itself.
 *
 * When the snapshot cannot begin because another saving has come first, or was made worthless by a
 * flush or an exchange of databases, the rewrite is aborted and scheduled again. In the second case
 * after a pause that grows: each attempt leaves one more incr file, and who flushes all the time
 * must not fill the folder with them.
 */
#include "persist/rewrite.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/alone.h"
#include "persist/aof.h"
#include "persist/backoff.h"
#include "persist/save.h"
#include <stdatomic.h>
#include <time.h>

struct kv_rewriter {
    struct kv_engine *engine;
    struct kv_aof *log;
    struct kv_saver *saver;
    atomic_bool busy;
    atomic_bool scheduled;
    atomic_bool beginning;     /* the background thread is at work */
    uint64_t spoiled;          /* attempts in a row; of `finish` */
    _Atomic(int64_t) retry_ms; /* monotonic: not before, unless it is asked for */
    bool commands;             /* what the base consists of; written at the moment */
    char base[KV_AOF_PATH];
};

struct kv_rewriter *kv_rewriter_create(struct kv_engine *e, struct kv_aof *a, struct kv_saver *s)
{
    struct kv_rewriter *r = kv_mem_zalloc(sizeof(*r), KV_MEM_OTHER);
    r->engine = e;
    r->log = a;
    r->saver = s;
    kv_aof_allow_rewrites(a);
    return r;
}

void kv_rewriter_destroy(struct kv_rewriter *r)
{
    while (atomic_load(&r->beginning))
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    kv_saver_abandon(r->saver); /* ends in `finish`, if the base is being written */
    if (atomic_load(&r->busy))
        kv_aof_rewrite_abort(r->log, false); /* between begin and moment */
    kv_mem_free(r, sizeof(*r), KV_MEM_OTHER);
}

static int64_t now_ms(void)
{
    return (int64_t)(kv_clock_mono_us() / 1000);
}

/* The saving thread: the base is there, or it is not. */
static void finish(void *arg, enum kv_err err)
{
    struct kv_rewriter *r = arg;
    if (err == KV_OK) {
        err = kv_aof_rewrite_commit(r->log, r->commands ? "aof" : "rdb");
        r->spoiled = 0;
    } else if (err == KV_ERR_CLOSED) {
        kv_aof_rewrite_abort(r->log, false);
        atomic_store(&r->retry_ms, now_ms() + kv_backoff_ms(++r->spoiled));
        atomic_store(&r->scheduled, true);
    } else {
        kv_aof_rewrite_abort(r->log, true);
    }
    if (err != KV_OK)
        kv_log(KV_LOG_WARNING, "The rewrite of the append-only log has not succeeded");
    atomic_store(&r->busy, false);
}

/* A base of commands was asked for, and can hold all there is. */
static bool wants_commands(struct kv_rewriter *r)
{
    const struct kv_rdb_kept *kept = kv_saver_kept(r->saver);
    if (kv_engine_options(r->engine)->aof_use_rdb_preamble)
        return false;
    if (kept->before.len == 0 && kept->behind.len == 0)
        return true;
    kv_log(KV_LOG_NOTICE, "The base of the append-only log is written in the RDB format, since it "
                          "holds modules' data, which is no command here");
    return false;
}

static void moment(void *arg)
{
    struct kv_rewriter *r = arg;
    struct kv_save_job job = {.path = r->base, .aof_base = true, .finish = finish, .arg = r};
    r->commands = job.commands = wants_commands(r);
    enum kv_err err = kv_saver_start(r->saver, &job);
    if (err == KV_OK) {
        kv_aof_rewrite_switch(r->log);
        return;
    }
    kv_aof_rewrite_abort(r->log, err != KV_ERR_AGAIN);
    atomic_store(&r->scheduled, err == KV_ERR_AGAIN);
    atomic_store(&r->busy, false);
}

static void begin(void *arg)
{
    struct kv_rewriter *r = arg;
    if (kv_aof_rewrite_begin(r->log, r->base) == KV_OK)
        kv_engine_run_alone(r->engine, moment, r);
    else
        atomic_store(&r->busy, false);
    atomic_store(&r->beginning, false);
}

static void set_out(struct kv_rewriter *r)
{
    atomic_store(&r->busy, true);
    atomic_store(&r->scheduled, false);
    atomic_store(&r->beginning, true);
    kv_engine_background(r->engine, begin, r);
}

enum kv_rewrite_answer kv_rewriter_start(struct kv_rewriter *r)
{
    if (!kv_engine_options(r->engine)->appendonly)
        return KV_REWRITE_NO_LOG;
    if (atomic_load(&r->busy))
        return KV_REWRITE_GOES_ON;
    if (kv_saver_going_on(r->saver)) {
        atomic_store(&r->scheduled, true);
        return KV_REWRITE_SCHEDULED;
    }
    set_out(r);
    return KV_REWRITE_STARTED;
}

bool kv_rewriter_going_on(const struct kv_rewriter *r)
{
    return atomic_load(&r->busy) || kv_saver_writes_base(r->saver);
}

bool kv_rewriter_scheduled(const struct kv_rewriter *r)
{
    return atomic_load(&r->scheduled);
}

void kv_rewriter_cron(struct kv_rewriter *r)
{
    if (!kv_engine_options(r->engine)->appendonly) {
        atomic_store(&r->scheduled, false); /* when it is on again it wants a base anyway */
        return;
    }
    if (atomic_load(&r->busy) || kv_saver_going_on(r->saver) ||
        now_ms() < atomic_load(&r->retry_ms))
        return;
    if (atomic_load(&r->scheduled) || kv_aof_wants_rewrite(r->log) != KV_AOF_NO_REWRITE)
        set_out(r);
}
