/* Saving: SAVE, BGSAVE, save points, the base of an append-only log.
 *
 * A background saving is a snapshot (engine/snapshot.h) whose buffers a thread writes into a
 * temporary file beside the target; fsync, rename and fsync of the folder end it. The old file
 * stays as it is until then, and when anything goes wrong. One saving at a time, whoever wanted it.
 *
 * Life cycle: kv_saver_create before workers run, kv_saver_cron from worker 0's periodic work,
 * kv_saver_destroy after workers have ended (a saving that goes on is given up).
 *
 * Threads: functions marked [alone] need the gate; the others worker 0. Commands call both while
 * the world is stopped, for periodic work runs outside the gate.
 */
#ifndef KV_PERSIST_SAVE_H
#define KV_PERSIST_SAVE_H

#include "engine/engine.h"
#include "persist/rdb_file.h"

struct kv_saver;

struct kv_saver *kv_saver_create(struct kv_engine *e);
void kv_saver_destroy(struct kv_saver *s);

/* What the server begins with has been loaded (loading.h), which is no change to be saved. [alone]
 */
void kv_saver_note_loaded(struct kv_saver *s, uint64_t keys, uint64_t expired);

/* What a loaded file holds for others (modules' data); files that are written hold it again. Its
 * libraries are only there until they are loaded. */
struct kv_rdb_kept *kv_saver_kept(struct kv_saver *s);

/* [alone] SAVE, now and whole. KV_ERR_AGAIN: the file is being saved in the background (a base of
 * the log is no hindrance). KV_ERR_IO is logged. */
enum kv_err kv_saver_save(struct kv_saver *s, struct kv_view *v) KV_MUST_CHECK;

/* What a saving in the background is for. */
struct kv_save_job {
    const char *path; /* copied */
    bool aof_base;    /* of an append-only log, else `dbfilename` */
    bool commands;    /* it consists of commands (aof_base.h), else it is an RDB file */
    /* Called when it is over, on the thread that wrote; NULL: nobody asks. KV_ERR_CLOSED: databases
     * were flushed or exchanged, which made the snapshot worthless. */
    void (*finish)(void *arg, enum kv_err err);
    void *arg;
};

/* [alone] Begins one. KV_ERR_AGAIN: another goes on. */
enum kv_err kv_saver_start(struct kv_saver *s, const struct kv_save_job *job) KV_MUST_CHECK;

/* [alone] BGSAVE: begins saving `dbfilename`, or (schedule) as soon as the other saving is over:
 * *scheduled. KV_ERR_AGAIN: one goes on. */
enum kv_err kv_saver_start_file(struct kv_saver *s, bool schedule, bool *scheduled) KV_MUST_CHECK;

/* BGSAVE CANCEL: true when one went on, or was scheduled. */
bool kv_saver_cancel(struct kv_saver *s);

/* Gives up a saving that goes on and waits for its end: all workers stand still or have ended. */
void kv_saver_abandon(struct kv_saver *s);

/* Periodic work: the end of a saving, save points. A saving of `dbfilename` that a flush of one
 * database or an exchange made worthless is begun anew. */
void kv_saver_cron(struct kv_saver *s);

/* Options have changed: writes are refused, or not any more. [KV_MODE_STOP, or worker 0] */
void kv_saver_apply(struct kv_saver *s);

/* Before FLUSHALL takes effect, on any thread: with save points the empty keyspace is saved at
 * once, for a file with all that was deleted would come back at the next start. */
void kv_saver_flushed(struct kv_saver *s);

bool kv_saver_going_on(const struct kv_saver *s);
bool kv_saver_writes_base(const struct kv_saver *s);  /* of a log, and its thread is at work */
bool kv_saver_saves_file(const struct kv_saver *s);   /* and it is no base of a log */
int64_t kv_saver_last_save(const struct kv_saver *s); /* seconds of Unix time; LASTSAVE */

/* SHUTDOWN: true when save points are set, so that it saves without being told to. */
bool kv_saver_has_points(const struct kv_saver *s);

struct kv_saver_figures {
    uint64_t changes;        /* since the last saving */
    int64_t last_save;       /* seconds of Unix time */
    bool last_good;          /* the last one in the background */
    int64_t last_seconds;    /* how long it took; -1: there was none */
    int64_t current_seconds; /* of the one that goes on, or -1 */
    bool going_on, scheduled, aof_base;
    uint64_t saves;                     /* good ones */
    uint64_t keys_loaded, keys_expired; /* at the start */
};
void kv_saver_figures(const struct kv_saver *s, struct kv_saver_figures *out);

#endif
