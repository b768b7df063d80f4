/* The append-only log: every change, in files, in the order in which it happened.
 *
 * Terms
 *   log         a folder of files and their manifest (manifest.h)
 *   base        file with the data of a moment
 *   incr file   commands after that moment; the last one is written to
 *   gap         the log does not hold everything: it was switched on while there was data, or a
 * write or sync failed for good. Only a fresh base ends it; until then what comes is dropped switch
 * the place in the change stream from where the next incr file goes on
 *
 * Life cycle
 *   kv_aof_create       at the start, with or without a log: CONFIG SET may want one later
 *   kv_aof_open         reads the manifest; what must be mended before loading is
 *   kv_aof_load         reads the log into the keyspace
 *   kv_aof_start        opens the last incr file and begins to write; the change stream has a
 * reader kv_aof_stop         writes and syncs what is there kv_aof_destroy
 *
 * The thread of the log reads the stream and writes; it syncs itself when output waits for it
 * (appendfsync always), in a journal (journal.h) where there is one, and hands the sync of each
 * second to a second thread, so that writing goes on meanwhile. Nobody else waits for the disk.
 *
 * Rewriting, by whoever makes snapshots, one at a time:
 *   kv_aof_rewrite_begin   makes the next incr file; says where the base is to be written
 *   kv_aof_rewrite_switch  [alone] at the moment that the base shows
 *   kv_aof_rewrite_commit  the base is written and synced: it takes the place of what it replaces
 *   kv_aof_rewrite_abort   it is not, for whatever reason
 *
 * Errors. With `always`, and whenever a sync fails, nothing that waits is acknowledged and writes
 * are refused until a fresh base is there (a gap). Else a failed write is tried again each second,
 * and writes are refused until it succeeds.
 *
 * Threads: as said for each; statistics by any thread. */
#ifndef KV_PERSIST_AOF_H
#define KV_PERSIST_AOF_H

#include "engine/engine.h"
#include "persist/aof_load.h"

#define KV_AOF_PATH 4096 /* bytes of a path, terminator included */

struct kv_aof;

struct kv_aof *kv_aof_create(struct kv_engine *e);
void kv_aof_destroy(struct kv_aof *a);         /* workers have ended; stops it first */
struct kv_aof *kv_aof_of(struct kv_engine *e); /* NULL in library use */

/* Opens the log of the options, taking up an old log that is one file, and writes back what its
 * journal has. KV_OK also when there is none. Else why is in the log of the server. [main thread,
 * before workers run] */
enum kv_err kv_aof_open(struct kv_aof *a) KV_MUST_CHECK;

/* What is there to be loaded: bytes of all files; false: no file. After kv_aof_open. */
bool kv_aof_to_load(const struct kv_aof *a, uint64_t *bytes);

/* How to load: see struct kv_aof_source; offsets in progress count from the start of the log. */
struct kv_aof_loading {
    struct kv_rdb_kept *kept; /* what a base holds for others is added */
    struct kv_spread *spread;
    bool (*progress)(void *arg, const struct kv_rdb_load *l, uint64_t offset);
    void *arg;
    uint64_t keys; /* filled in: of bases in the RDB format */
};

/* Loads what kv_aof_open has found into the keyspace. On failure why is in the log of the server,
 * unless it is KV_ERR_CLOSED. [the thread that loads] */
enum kv_err kv_aof_load(struct kv_aof *a, struct kv_aof_loading *l) KV_MUST_CHECK;

/* Begins to write behind what was loaded. [alone, or before workers run] */
enum kv_err kv_aof_start(struct kv_aof *a) KV_MUST_CHECK;

/* Begins with a gap, because there is data already: wants a rewrite. [KV_MODE_STOP] */
enum kv_err kv_aof_start_empty(struct kv_aof *a) KV_MUST_CHECK;

/* Writes and syncs what the stream holds, closes the files. [KV_MODE_STOP, or workers have ended]
 */
void kv_aof_stop(struct kv_aof *a);

/* Takes over options that have changed. [KV_MODE_STOP] */
void kv_aof_apply(struct kv_aof *a);

/* --- rewriting --- */

/* Whoever can rewrite says so. Until then a log cannot be begun while the server runs, for it would
 * have a gap for ever. [before workers run] */
void kv_aof_allow_rewrites(struct kv_aof *a);

enum kv_aof_want {
    KV_AOF_NO_REWRITE,
    KV_AOF_WANTS_BASE,    /* there is a gap */
    KV_AOF_WANTS_SMALLER, /* it has grown as auto-aof-rewrite-* says */
};

/* Whether a rewrite should begin now. After one that failed it waits, longer each time. Any thread.
 */
enum kv_aof_want kv_aof_wants_rewrite(struct kv_aof *a);

/* On failure nothing has changed and the reason is in the log. `base` gets the path where the base
 * is to be written. A thread that may wait for the disk. */
enum kv_err kv_aof_rewrite_begin(struct kv_aof *a, char base[KV_AOF_PATH]) KV_MUST_CHECK;
void kv_aof_rewrite_switch(struct kv_aof *a); /* [alone] */
/* `suffix`: "rdb" or "aof", what the base consists of. On failure it was aborted. */
enum kv_err kv_aof_rewrite_commit(struct kv_aof *a, const char *suffix) KV_MUST_CHECK;
/* `failed`: INFO shows it, and the next one waits. Else it was given up for another. */
void kv_aof_rewrite_abort(struct kv_aof *a, bool failed);

/* --- INFO --- */

struct kv_aof_status {
    bool enabled;
    bool write_ok, rewrite_ok;            /* the last ones */
    int64_t last_rewrite_s;               /* duration; -1: none yet */
    int64_t current_rewrite_s;            /* -1: none is going on */
    uint64_t rewrites, rewrites_failed;   /* begun; in a row without success */
    uint64_t current_bytes, base_bytes;   /* of all files; of them after the last rewrite */
    uint64_t buffered_bytes;              /* of the stream, not written yet */
    bool journaled;                       /* the last group was synced in the journal */
    uint64_t pending_sync, delayed_syncs; /* a sync is going on; writes that waited for one */
};
void kv_aof_status(struct kv_aof *a, struct kv_aof_status *out);

#endif
