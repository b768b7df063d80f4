/* Loading the data that a server begins with: the append-only log if there is to be one, else the
 * file `dbfilename`. The server listens and answers meanwhile (engine/loading.h).
 *
 * A thread reads the files and hands what is in them to the workers (rdb_spread.h, aof_load.h).
 * When all is there, worker 0 starts the log and opens the keyspace to commands, behind the gate.
 * When something is wrong, the reason goes to the log of the server and the engine is stopped.
 *
 * Life cycle: create, begin, kv_engine_run, end, destroy; the main thread. */
#ifndef KV_PERSIST_LOADING_H
#define KV_PERSIST_LOADING_H

#include "engine/engine.h"
#include "persist/aof.h"
#include "persist/save.h"

struct kv_loading;

struct kv_loading *kv_loading_create(struct kv_engine *e, struct kv_aof *log, struct kv_saver *s);
void kv_loading_destroy(struct kv_loading *l);

/* Opens what is to be loaded and starts the thread; `ready` is called once when commands are taken,
 * [alone] on worker 0, or at once when there is nothing to load. KV_ERR_...: the server cannot
 * start, why is in its log. [before workers run] */
enum kv_err kv_loading_begin(struct kv_loading *l, void (*ready)(void *arg),
                             void *arg) KV_MUST_CHECK;

/* Workers have ended. KV_ERR_CLOSED: before everything was loaded, because somebody wanted the end.
 * Others: loading has failed, that is why. */
enum kv_err kv_loading_end(struct kv_loading *l) KV_MUST_CHECK;

/* For INFO; any thread. */
struct kv_loading_figures {
    int64_t start_s; /* Unix time */
    uint64_t total_bytes, loaded_bytes;
    uint64_t used_bytes; /* what the file says that its data took; 0: nothing */
    double percent;
    int64_t eta_s;
};
/* False: loading is over, or has never been. */
bool kv_loading_figures(const struct kv_loading *l, struct kv_loading_figures *out);

#endif
