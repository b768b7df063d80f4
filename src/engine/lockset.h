/* Shard locks and the set of them that a worker holds.
 *
 * A lock is one word: 0 free, 1 held, 2 held and somebody is parked at it. A worker collects the
 * shards of a command or batch as bits, then tries them in ascending order; if one is taken it lets
 * all go again. It spins at most KV_LOCK_SPIN_NS, then the connection is parked: its client enters
 * the shard's waiter list and whoever unlocks posts a message to the workers of all waiters. So no
 * thread ever sleeps for a shard, and no lock relies on its holder being scheduled.
 *
 * With one worker nothing is locked at all: the calls are never reached (engine->multi).
 */
#ifndef KV_ENGINE_LOCKSET_H
#define KV_ENGINE_LOCKSET_H

#include "base/lock.h"
#include <stdatomic.h>

#define KV_SHARDS_MAX 4096
#define KV_LOCK_SPIN_NS 5000
#define KV_PARK_ROUNDS_MAX 8 /* then the command takes the gate */

struct kv_client;
struct kv_worker;
struct kv_engine;

struct kv_shard_lock {
    _Atomic(uint32_t) word;
    struct kv_mutex wait_mutex; /* guards the list below */
    struct kv_client *waiters;  /* parked connections, newest first (wait_next, wait_prev) */
} KV_ALIGNED(KV_CACHE_LINE);

/* Behind the locks of the shards lies one more, the token that a script holds while it runs
 * (engine/script.h): taken last, parked at and passed on like a shard. */
struct kv_lockset {
    uint64_t bits[KV_SHARDS_MAX / 64 + 1]; /* wanted or held shards */
    uint32_t words;                        /* words in use: shard_count / 64, at least 1 */
    uint32_t busy;                         /* shard that was not free at the last failed try */
    uint32_t token;                        /* number of the token's lock: shard_count */
    bool held;
};

KV_INLINE void kv_lockset_add(struct kv_lockset *ls, uint32_t shard)
{
    ls->bits[shard >> 6] |= (uint64_t)1 << (shard & 63);
}

KV_INLINE void kv_lockset_add_token(struct kv_lockset *ls)
{
    ls->words = ls->token / 64 + 1;
    kv_lockset_add(ls, ls->token);
}

KV_INLINE bool kv_lockset_has(const struct kv_lockset *ls, uint32_t shard)
{
    return ls->bits[shard >> 6] >> (shard & 63) & 1;
}

void kv_lockset_init(struct kv_lockset *ls, uint32_t shard_count);
void kv_lockset_clear(struct kv_lockset *ls); /* forgets wanted shards; none is held */

/* Tries all wanted locks once, ascending. On failure none is held and ls->busy tells which was not
 * free. */
bool kv_lockset_try(struct kv_engine *e, struct kv_lockset *ls) KV_MUST_CHECK;

/* Unlocks and clears; wakes parked connections. */
void kv_lockset_unlock(struct kv_engine *e, struct kv_lockset *ls);

bool kv_shard_try_lock(struct kv_engine *e, uint32_t shard) KV_MUST_CHECK;
void kv_shard_unlock(struct kv_engine *e, uint32_t shard);

/* Puts a client into a busy shard's list. False: the shard was free meanwhile, try again. */
bool kv_shard_park(struct kv_engine *e, uint32_t shard, struct kv_client *c) KV_MUST_CHECK;
/* Takes a client out of its list if it still is in one (it vanished). */
void kv_shard_unpark(struct kv_engine *e, uint32_t shard, struct kv_client *c);

#endif
