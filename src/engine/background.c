/* Background thread: a queue under a mutex and a condition variable.
 *
 * Nothing waits for it but kv_background_destroy, so its speed is not critical; its counters are
 * what INFO reports as lazyfree. A job is a function and its argument: whatever it frees was
 * detached from the keyspace before, so the thread needs no shard, no gate and no client. It starts
 * with the first job, empties its memory cache whenever it runs out of jobs, and ends when the
 * engine is destroyed. */
#include "engine/background.h"
#include "base/assert.h"
#include "mem/mem.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

struct job {
    struct job *next;
    void (*fn)(void *arg);
    void *arg;
};

struct kv_background {
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    struct job *first, *last; /* under the mutex */
    bool started, ending;     /* under the mutex */
    pthread_t thread;
    _Atomic(uint64_t) pending, done;
};

struct kv_background *kv_background_create(void)
{
    struct kv_background *b = kv_mem_zalloc(sizeof(*b), KV_MEM_OTHER);
    pthread_mutex_init(&b->mutex, NULL);
    pthread_cond_init(&b->wake, NULL);
    return b;
}

static void *run(void *arg)
{
    struct kv_background *b = arg;
    pthread_setname_np(pthread_self(), "kvik-background");
    kv_mem_thread_name("background");
    pthread_mutex_lock(&b->mutex);
    for (;;) {
        while (b->first == NULL && !b->ending)
            pthread_cond_wait(&b->wake, &b->mutex);
        struct job *j = b->first;
        if (j == NULL)
            break;
        b->first = j->next;
        if (b->first == NULL)
            b->last = NULL;
        pthread_mutex_unlock(&b->mutex);
        j->fn(j->arg);
        kv_mem_free(j, sizeof(*j), KV_MEM_OTHER);
        /* Asleep it gives nothing back, and what it caches is scattered over many slabs. */
        if (atomic_load(&b->pending) == 1)
            kv_mem_flush();
        else
            kv_mem_trim();
        /* Before the job counts as done: eviction waits for what it frees. */
        kv_mem_publish();
        atomic_fetch_sub(&b->pending, 1);
        atomic_fetch_add(&b->done, 1);
        pthread_mutex_lock(&b->mutex);
    }
    pthread_mutex_unlock(&b->mutex);
    kv_mem_thread_exit();
    return NULL;
}

void kv_background_submit(struct kv_background *b, void (*fn)(void *arg), void *arg)
{
    struct job *j = kv_mem_alloc(sizeof(*j), KV_MEM_OTHER);
    *j = (struct job){.fn = fn, .arg = arg};
    atomic_fetch_add(&b->pending, 1);
    pthread_mutex_lock(&b->mutex);
    if (!b->started) {
        /* Signals are for the workers. */
        sigset_t all, old;
        sigfillset(&all);
        pthread_sigmask(SIG_BLOCK, &all, &old);
        if (pthread_create(&b->thread, NULL, run, b) != 0)
            kv_panic("cannot start the background thread");
        pthread_sigmask(SIG_SETMASK, &old, NULL);
        b->started = true;
    }
    if (b->last != NULL)
        b->last->next = j;
    else
        b->first = j;
    b->last = j;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->mutex);
}

void kv_background_destroy(struct kv_background *b)
{
    pthread_mutex_lock(&b->mutex);
    b->ending = true;
    bool started = b->started;
    pthread_cond_signal(&b->wake);
    pthread_mutex_unlock(&b->mutex);
    if (started)
        pthread_join(b->thread, NULL);
    KV_ASSERT(b->first == NULL);
    pthread_cond_destroy(&b->wake);
    pthread_mutex_destroy(&b->mutex);
    kv_mem_free(b, sizeof(*b), KV_MEM_OTHER);
}

uint64_t kv_background_pending(const struct kv_background *b)
{
    return atomic_load(&b->pending);
}

uint64_t kv_background_done(const struct kv_background *b)
{
    return atomic_load(&b->done);
}
