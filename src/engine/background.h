/* The background thread: frees what is too big to free between two commands. It never touches a
 * shard; jobs run in the order they were given. The thread starts with the first job, so a server
 * that never needs it does not have it. */
#ifndef KV_ENGINE_BACKGROUND_H
#define KV_ENGINE_BACKGROUND_H

#include "base/compiler.h"

struct kv_background;

struct kv_background *kv_background_create(void);
void kv_background_destroy(struct kv_background *b); /* finishes all jobs first */
void kv_background_submit(struct kv_background *b, void (*fn)(void *arg), void *arg);
uint64_t kv_background_pending(const struct kv_background *b);
uint64_t kv_background_done(const struct kv_background *b);

#endif
