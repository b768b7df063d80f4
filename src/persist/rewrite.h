/* Rewriting the append-only log: a snapshot becomes its base (persist/aof.h, persist/save.h).
 *
 *   begin    the next incr file is made, on the background thread
 *   moment   [alone] the snapshot begins and the log goes on in the next file: the same moment
 *   finish   the base is complete, or not: commit or abort, on the thread that wrote it
 *
 * Threads: worker 0, or whoever is alone, but for what is said above. */
#ifndef KV_PERSIST_REWRITE_H
#define KV_PERSIST_REWRITE_H

#include "engine/engine.h"

struct kv_aof;
struct kv_rewriter;
struct kv_saver;

/* Tells the log that it can be rewritten. All must outlive it. */
struct kv_rewriter *kv_rewriter_create(struct kv_engine *e, struct kv_aof *a, struct kv_saver *s);
/* Workers have ended; before the saver and the log are destroyed. */
void kv_rewriter_destroy(struct kv_rewriter *r);

enum kv_rewrite_answer {
    KV_REWRITE_STARTED,
    KV_REWRITE_SCHEDULED, /* a saving goes on: after it */
    KV_REWRITE_GOES_ON,   /* already */
    KV_REWRITE_NO_LOG,    /* appendonly no */
};
enum kv_rewrite_answer kv_rewriter_start(struct kv_rewriter *r);

/* From the answer to the end, so that whoever has seen the answer sees it going on, and whoever
 * sees it over can begin the next. Worker 0, or the world stopped. */
bool kv_rewriter_going_on(const struct kv_rewriter *r);
bool kv_rewriter_scheduled(const struct kv_rewriter *r);

/* Periodic work: begins what is scheduled, or what the log wants. */
void kv_rewriter_cron(struct kv_rewriter *r);

#endif
