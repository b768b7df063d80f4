/* Loading an append-only log: what its files hold is executed again. A file may begin with data in
 * the RDB format, as a base does.
 *
 * Commands run through a virtual client that applies a stream (nothing is due for it, memory limits
 * do not refuse it). A file that ends within a command, or within a transaction, is cut off before
 * that if it is the last one and aof-load-truncated is set; else the log is refused. Loading says
 * in the log what it does, in the words of redis-server.
 *
 * Threads: worker 0's, before workers run and before anything reads the change stream. */
#ifndef KV_PERSIST_AOF_LOAD_H
#define KV_PERSIST_AOF_LOAD_H

#include "engine/engine.h"
#include "persist/rdb_file.h"

struct kv_aof_source {
    const char *path;         /* to open */
    const char *name;         /* for messages */
    bool last;                /* may be cut off */
    struct kv_rdb_kept *kept; /* of a base in the RDB format; NULL: it is dropped */
};

struct kv_aof_loaded {
    uint64_t keys;     /* of data in the RDB format at its start */
    uint64_t commands; /* executed */
    uint64_t bytes;    /* of the file, after repair */
    bool truncated;    /* it was cut off */
};

/* Executes one file. KV_ERR_IO, KV_ERR_SYNTAX: why is in the log; what ran before stays. */
enum kv_err kv_aof_load_file(struct kv_engine *e, const struct kv_aof_source *source,
                             struct kv_aof_loaded *loaded) KV_MUST_CHECK;

#endif
