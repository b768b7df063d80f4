/* Reading an RDB file with all workers, while they serve.
 *
 * Terms
 *   reader    the thread that reads the file and walks over it: it finds where records begin and
 *             end, and builds nothing but what is too long to be handed over
 *   block     memory that the reader reads into; there are a few, used in turn
 *   run       keys, with what is told of each before it, one behind the other in a block, as they
 *             lie in the file
 *   lane      a worker's way through the runs: it takes the keys of the shards whose home the
 *             worker is, and walks over the others
 *   step      work of another kind that the reader wants done on worker 0
 *
 * Each worker goes through all runs. What two threads share is the file's bytes alone, which are
 * written once and read in order. Measured with one worker: with a copy of each record, its hash
 * and what is told of it for the one worker concerned, half of all time was spent on waiting for
 * cache lines of the other thread. Walking over a small key of another worker costs some tens of
 * nanoseconds.
 *
 * A record is read as one thread would read it (rdb_file.h): what is due is left out, a key that
 * comes twice and everything that a value may have wrong are faults. A lane stops at its first
 * fault, the reader when it learns of one; what was handed over before is still gone through, so
 * that the fault that is told is the first one in the file.
 *
 * Memory: a fixed number of blocks. A record that is longer than one is built by the reader
 * straight from the file, and put by worker 0; of a pipe, where one cannot go back, the block
 * grows.
 *
 * Threads: kv_spread_work from the rounds of workers, the others by the reader unless they say
 * otherwise. */
#ifndef KV_PERSIST_RDB_SPREAD_H
#define KV_PERSIST_RDB_SPREAD_H

#include "engine/engine.h"
#include "persist/rdb_file.h"

struct kv_spread;

/* Main thread: before workers run; and when they and the reader have ended. */
struct kv_spread *kv_spread_create(struct kv_engine *e);
void kv_spread_destroy(struct kv_spread *s);

/* A slice of work on a worker; true: there is more (engine/loading.h). */
bool kv_spread_work(struct kv_spread *s, struct kv_worker *w, uint32_t worker);

/* Reads a file as kv_rdb_load does, and returns when the workers have put all of it. The fields of
 * `l` that the caller sets are kv_rdb_load's, but for walk, arg and merge; `progress` gets `arg`
 * of this call. On failure the reader has the first fault of the file. KV_ERR_CLOSED: given up. */
enum kv_err kv_spread_load(struct kv_spread *s, struct kv_rdb_reader *r, struct kv_rdb_load *l,
                           bool (*progress)(void *arg, const struct kv_rdb_load *l,
                                            uint64_t offset),
                           void *arg) KV_MUST_CHECK;

/* Has `step` called on worker 0, once a round until it returns true; one at a time. Waiting for its
 * end: false when all was given up, and then it may not have come to it. */
void kv_spread_post(struct kv_spread *s, bool (*step)(void *arg, struct kv_worker *w), void *arg);
bool kv_spread_wait(struct kv_spread *s) KV_MUST_CHECK;

/* Waits as key-load-delay says; for each key, or command. */
void kv_spread_delay(struct kv_spread *s);

/* Gives up: whatever the reader waits for ends. Main thread, when workers have ended. */
void kv_spread_give_up(struct kv_spread *s);
bool kv_spread_given_up(const struct kv_spread *s); /* any thread */

#endif
