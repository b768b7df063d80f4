/* Loading data while the workers serve.
 *
 * Whoever loads (persist/loading.h) hands work to the workers, which do a slice of it in each round
 * between their connections' commands. As long as it goes on:
 *   - commands without the flag `loading` are refused: nothing half-loaded is served. A client that
 *     applies a stream (KV_CLIENT_APPLY) is not asked;
 *   - nothing expires, is evicted or moved by defrag: what is due may not be so any more when all
 *     is there.
 * Looking is one load, and one more for nobody in the path of commands: the mark lies in a word
 * that they look at anyway (commit.h).
 *
 * A slice of work holds the keyspace as a command does: it enters the gate, and locks the shard of
 * each key. So exclusive commands (INFO, CONFIG SET) come between two slices, and WATCH beside one.
 *
 * Threads: as said for each. */
#ifndef KV_ENGINE_LOADING_H
#define KV_ENGINE_LOADING_H

#include "base/err.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

struct kv_engine;
struct kv_worker;

#define KV_LOADING_TEXT "LOADING Redis is loading the dataset in memory"

struct kv_load_ops {
    /* Does a slice on the worker of this index, from its round, with nothing held; true: there is
     * more to do at once. Called in each round while loading goes on. */
    bool (*work)(void *arg, struct kv_worker *w, uint32_t worker);
    void *arg;
};

/* Loading begins. [before workers run] */
void kv_engine_load_begin(struct kv_engine *e, const struct kv_load_ops *ops);

/* Everything is there: commands are taken. [alone] */
void kv_engine_load_end(struct kv_engine *e);

/* Any thread. */
bool kv_engine_loading(const struct kv_engine *e);

/* There is work for a worker, which may be waiting for events. Any thread. */
void kv_engine_load_wake(struct kv_engine *e, uint32_t worker);

/* --- within a slice; the worker's thread --- */

/* Enters the gate until kv_load_leave; false: an exclusive command has it, end the slice. */
bool kv_load_enter(struct kv_worker *w);
void kv_load_leave(struct kv_worker *w);

/* Locks the shard of a hash; false: somebody has it, try again in the next slice. */
bool kv_load_lock(struct kv_worker *w, uint64_t hash);
void kv_load_unlock(struct kv_worker *w, uint64_t hash);

/* --- for engine/ --- */

struct kv_engine_loading {
    atomic_bool going_on;
    struct kv_load_ops ops;
};

void kv_worker_load(struct kv_worker *w); /* a slice, in a round while loading goes on */

#endif
