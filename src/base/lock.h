/* Mutexes with ranks. A thread takes mutexes in strictly ascending rank; debug builds check it.
 * They guard a few instructions each (queues, the slow log): nothing waits or does I/O under one.
 * Shard locks are not mutexes: see engine/lockset.h. */
#ifndef KV_BASE_LOCK_H
#define KV_BASE_LOCK_H

#include "base/compiler.h"
#include <pthread.h>

enum kv_lock_rank {
    KV_RANK_GATE = 10,       /* queue of exclusive commands */
    KV_RANK_SHARD_WAIT = 20, /* a shard's list of parked connections */
    KV_RANK_STREAM = 30,     /* readers of the change stream */
    KV_RANK_SNAPSHOT = 35,   /* buffers of a snapshot */
    KV_RANK_CHANNEL = 36,    /* channels that share a lock; ranks after shard locks */
    KV_RANK_PATTERN = 37,    /* all patterns */
    KV_RANK_TRACKING = 38,   /* trackers and prefixes */
    KV_RANK_BACKGROUND = 40, /* queue of the background thread */
    KV_RANK_COMMAND_LOG = 50,
    KV_RANK_LATENCY = 51,
    KV_RANK_SCRIPT = 52,    /* command line of a busy function */
    KV_RANK_MEM = 60,       /* list of memory slots */
    KV_RANK_MEM_CLASS = 61, /* slabs of one size class */
    KV_RANK_MEM_CHUNK = 62, /* chunks of slabs */
    KV_RANK_LOG = 70,
};

struct kv_mutex {
    pthread_mutex_t mutex;
    enum kv_lock_rank rank;
};

#define KV_MUTEX_INIT(r)                                                                           \
    {                                                                                              \
        PTHREAD_MUTEX_INITIALIZER, (r)                                                             \
    }

void kv_mutex_init(struct kv_mutex *m, enum kv_lock_rank rank);
void kv_mutex_release(struct kv_mutex *m);
void kv_mutex_lock(struct kv_mutex *m);
void kv_mutex_unlock(struct kv_mutex *m);

#endif
