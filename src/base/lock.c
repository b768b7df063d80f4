/* Mutexes with ranks.
 *
 * A deadlock needs a circle of threads, each waiting for a mutex of the next; if every thread takes
 * mutexes in strictly ascending rank, there is no circle. Debug and sanitizer builds prove the rule
 * on every lock: each thread keeps the ranks it holds and refuses a rank that is not above all of
 * them. Two mutexes of one rank can therefore never be held together.
 *
 * Data: a thread-local array of held mutexes, in the order taken, hence ascending by rank.
 * Unlocking in another order than locking is allowed and closes the gap.
 *
 * In release builds this is pthread_mutex and one check of its result: an error there means that
 * memory is overwritten, and going on without the mutex would be worse than ending.
 *
 * Rejected: spin locks of our own. With more threads than cores the holder may be off its core, and
 * nothing in this program may rely on a lock holder being scheduled. */
#include "base/lock.h"

#include "base/assert.h"

#ifdef KV_DEBUG
#define HELD_MAX 16

static _Thread_local const struct kv_mutex *held[HELD_MAX];
static _Thread_local unsigned held_count;

static void held_push(const struct kv_mutex *m)
{
    if (held_count > 0 && held[held_count - 1]->rank >= m->rank)
        kv_panic("lock rank %d taken while holding rank %d", (int)m->rank,
                 (int)held[held_count - 1]->rank);
    KV_ASSERT(held_count < HELD_MAX);
    held[held_count++] = m;
}

static void held_remove(const struct kv_mutex *m)
{
    unsigned i = held_count;

    while (i > 0 && held[i - 1] != m)
        i--;
    if (i == 0)
        kv_panic("lock of rank %d released by a thread that does not hold it", (int)m->rank);
    for (; i < held_count; i++)
        held[i - 1] = held[i];
    held_count--;
}
#else
#define held_push(m) ((void)0)
#define held_remove(m) ((void)0)
#endif

void kv_mutex_init(struct kv_mutex *m, enum kv_lock_rank rank)
{
    KV_ASSERT(rank > 0);
    int rc = pthread_mutex_init(&m->mutex, NULL);
    KV_ASSERT(rc == 0);
    m->rank = rank;
}

void kv_mutex_release(struct kv_mutex *m)
{
    int rc = pthread_mutex_destroy(&m->mutex); /* EBUSY: somebody still holds it */
    KV_ASSERT(rc == 0);
}

void kv_mutex_lock(struct kv_mutex *m)
{
    /* Checked before waiting, so that a breach is reported instead of hanging. */
    held_push(m);
    int rc = pthread_mutex_lock(&m->mutex);
    KV_ASSERT(rc == 0);
}

void kv_mutex_unlock(struct kv_mutex *m)
{
    held_remove(m);
    int rc = pthread_mutex_unlock(&m->mutex);
    KV_ASSERT(rc == 0);
}
