/* Loading an append-only log: what its files hold is executed again. A file may begin with data in
 * the RDB format, as a base does.
 *
 * Commands run through a virtual client that applies a stream (nothing is due for it, memory limits
 * do not refuse it). A file that ends within a command, or within a transaction, is cut off before
 * that if it is the last one and aof-load-truncated is set; else the log is refused. Loading says
 * in the log what it does, in the words of redis-server.
 *
 * Commands run on worker 0. While the workers serve, the thread that reads the file hands them to
 * it (rdb_spread.h), and data in the RDB format to all workers; without workers (library use) the
 * caller's thread is worker 0's and does everything.
 *
 * Threads: the one that reads, before anything reads the change stream. */
#ifndef KV_PERSIST_AOF_LOAD_H
#define KV_PERSIST_AOF_LOAD_H

#include "engine/engine.h"
#include "persist/rdb_spread.h"

/* What of the last file may be cut off. */
struct kv_aof_tail_rules {
    bool truncated;         /* a command or transaction that is not complete (aof-load-truncated) */
    uint64_t corrupt_bytes; /* so many that are no command (aof-load-corrupt-tail-max-size) */
};

struct kv_aof_source {
    const char *path;         /* to open */
    const char *name;         /* for messages */
    bool last;                /* may be cut off */
    struct kv_rdb_kept *kept; /* of a base in the RDB format; NULL: it is dropped */
    struct kv_aof_tail_rules rules;
    struct kv_spread *spread; /* workers serve; NULL: there are none */
    /* Gets offsets in the file; false: give up. NULL: nobody asks. `l` is NULL but for data in the
     * RDB format. */
    bool (*progress)(void *arg, const struct kv_rdb_load *l, uint64_t offset);
    void *arg;
};

struct kv_aof_loaded {
    uint64_t keys;     /* of data in the RDB format at its start */
    uint64_t commands; /* executed */
    uint64_t bytes;    /* of the file, after repair */
    bool truncated;    /* it was cut off */
};

/* Executes one file. KV_ERR_CLOSED: given up. KV_ERR_IO, KV_ERR_SYNTAX: why is in the log; what ran
 * before stays. */
enum kv_err kv_aof_load_file(struct kv_engine *e, const struct kv_aof_source *source,
                             struct kv_aof_loaded *loaded) KV_MUST_CHECK;

#endif
