/* Shard locks: try, spin, park. See the header for the protocol.
 *
 * Lost wake-ups: a parker raises the word from 1 to 2 under the shard's mutex, while the lock is
 * held by somebody, and enters the list before it lets the mutex go. The holder's exchange to 0
 * then reads 2, and taking the mutex it finds the list. If the holder was quicker, the parker's
 * compare-and-swap fails because the word is 0, and it tries the lock again instead of parking.
 *
 * All waiters of a shard are woken at once: each wake-up is a round in which one of them wins, the
 * number of rounds is bounded (KV_PARK_ROUNDS_MAX), and waking only the first would need a
 * hand-over that relies on the woken worker being scheduled.
 */
#include "engine/lockset.h"
#include "engine/worker.h"

void kv_lockset_init(struct kv_lockset *ls, uint32_t shard_count)
{
    memset(ls, 0, sizeof(*ls));
    ls->words = KV_MAX(shard_count / 64, 1u);
    ls->token = shard_count;
}

/* No word for the token is left in use. */
static void forget_token(struct kv_lockset *ls)
{
    if (KV_UNLIKELY(ls->words > ls->token / 64))
        ls->words = KV_MAX(ls->token / 64, 1u);
}

void kv_lockset_clear(struct kv_lockset *ls)
{
    KV_DASSERT(!ls->held);
    for (uint32_t i = 0; i < ls->words; i++)
        ls->bits[i] = 0;
    forget_token(ls);
}

bool kv_shard_try_lock(struct kv_engine *e, uint32_t shard)
{
    uint32_t expected = 0;
    return atomic_compare_exchange_strong_explicit(&e->locks[shard].word, &expected, 1,
                                                   memory_order_acquire, memory_order_relaxed);
}

/* Clients leave the list under the mutex, which is what `park_listed` tells their workers; the
 * messages go out after it, one for each worker concerned. */
static KV_COLD void wake_waiters(struct kv_engine *e, uint32_t shard)
{
    struct kv_shard_lock *lock = &e->locks[shard];
    uint64_t workers[KV_WORKERS_MAX / 64] = {0};
    kv_mutex_lock(&lock->wait_mutex);
    struct kv_client *c = lock->waiters;
    lock->waiters = NULL;
    while (c != NULL) {
        struct kv_client *next = c->wait_next;
        uint32_t index = c->worker->index;
        workers[index / 64] |= (uint64_t)1 << (index % 64);
        c->wait_next = c->wait_prev = NULL;
        /* From here on its worker may resume it, even free it: the release closes our part. */
        atomic_store_explicit(&c->park_listed, false, memory_order_release);
        c = next;
    }
    kv_mutex_unlock(&lock->wait_mutex);
    for (uint32_t i = 0; i < KV_WORKERS_MAX / 64; i++)
        for (uint64_t rest = workers[i]; rest != 0; rest &= rest - 1)
            kv_inbox_post(e->workers[i * 64 + (uint32_t)__builtin_ctzll(rest)], KV_MSG_SHARD_FREE,
                          shard, 0, NULL);
}

void kv_shard_unlock(struct kv_engine *e, uint32_t shard)
{
    struct kv_shard_lock *lock = &e->locks[shard];
    uint32_t old = atomic_exchange_explicit(&lock->word, 0, memory_order_release);
    KV_DASSERT(old != 0);
    if (KV_UNLIKELY(old == 2))
        wake_waiters(e, shard);
}

bool kv_lockset_try(struct kv_engine *e, struct kv_lockset *ls)
{
    KV_DASSERT(!ls->held);
    for (uint32_t i = 0; i < ls->words; i++) {
        for (uint64_t rest = ls->bits[i]; rest != 0; rest &= rest - 1) {
            uint32_t shard = i * 64 + (uint32_t)__builtin_ctzll(rest);
            if (KV_LIKELY(kv_shard_try_lock(e, shard)))
                continue;
            ls->busy = shard;
            /* Those taken so far are the set bits below this one. */
            for (uint32_t j = 0; j <= i; j++) {
                uint64_t taken = j < i ? ls->bits[j] : ls->bits[i] & ~rest;
                for (; taken != 0; taken &= taken - 1)
                    kv_shard_unlock(e, j * 64 + (uint32_t)__builtin_ctzll(taken));
            }
            return false;
        }
    }
    ls->held = true;
    return true;
}

void kv_lockset_unlock(struct kv_engine *e, struct kv_lockset *ls)
{
    KV_DASSERT(ls->held);
    for (uint32_t i = 0; i < ls->words; i++) {
        for (uint64_t rest = ls->bits[i]; rest != 0; rest &= rest - 1)
            kv_shard_unlock(e, i * 64 + (uint32_t)__builtin_ctzll(rest));
        ls->bits[i] = 0;
    }
    forget_token(ls);
    ls->held = false;
}

bool kv_shard_park(struct kv_engine *e, uint32_t shard, struct kv_client *c)
{
    struct kv_shard_lock *lock = &e->locks[shard];
    bool parked = false;
    kv_mutex_lock(&lock->wait_mutex);
    uint32_t word = 1;
    if (atomic_compare_exchange_strong(&lock->word, &word, 2) || word == 2) {
        c->wait_prev = NULL;
        c->wait_next = lock->waiters;
        if (lock->waiters != NULL)
            lock->waiters->wait_prev = c;
        lock->waiters = c;
        atomic_store_explicit(&c->park_listed, true, memory_order_relaxed);
        c->flags |= KV_CLIENT_PARKED;
        c->park = KV_PARK_SHARD;
        c->park_shard = shard;
        parked = true;
    }
    kv_mutex_unlock(&lock->wait_mutex);
    return parked;
}

void kv_shard_unpark(struct kv_engine *e, uint32_t shard, struct kv_client *c)
{
    struct kv_shard_lock *lock = &e->locks[shard];
    kv_mutex_lock(&lock->wait_mutex);
    if (atomic_load_explicit(&c->park_listed, memory_order_relaxed)) {
        if (c->wait_prev != NULL)
            c->wait_prev->wait_next = c->wait_next;
        else
            lock->waiters = c->wait_next;
        if (c->wait_next != NULL)
            c->wait_next->wait_prev = c->wait_prev;
        atomic_store_explicit(&c->park_listed, false, memory_order_relaxed);
    }
    c->wait_next = c->wait_prev = NULL;
    kv_mutex_unlock(&lock->wait_mutex);
}
