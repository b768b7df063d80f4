/* Work of the server's own behind the gate.
 *
 * The gate knows clients: it queues them, and messages resume them. So jobs have a stand-in, one
 * client of worker 0 that has no connection, is in no list and is counted nowhere. It waits at the
 * gate while there are jobs and runs all of them when its turn comes.
 *
 * Threads: jobs travel to worker 0 as messages; all else is its own.
 */
#include "engine/alone.h"
#include "base/assert.h"
#include "base/clock.h"
#include "engine/worker.h"

struct kv_job {
    struct kv_job *next;
    void (*fn)(void *arg);
    void *arg;
};

void kv_engine_run_alone(struct kv_engine *e, void (*fn)(void *arg), void *arg)
{
    struct kv_job *j = kv_mem_alloc(sizeof(*j), KV_MEM_OTHER);
    *j = (struct kv_job){.fn = fn, .arg = arg};
    kv_inbox_post(e->workers[0], KV_MSG_ALONE, 0, 0, j);
}

static struct kv_client *stand_in(struct kv_worker *w)
{
    if (w->stand_in == NULL) {
        struct kv_client *c = kv_mem_zalloc(sizeof(*c), KV_MEM_CLIENT);
        c->io.fd = -1;
        c->worker = w;
        c->flags = KV_CLIENT_VIRTUAL | KV_CLIENT_STAND_IN;
        w->stand_in = c;
    }
    return w->stand_in;
}

void kv_alone_on_message(struct kv_worker *w, void *job)
{
    struct kv_job *j = job;
    struct kv_job **last = &w->jobs;
    while (*last != NULL)
        last = &(*last)->next;
    *last = j;
    struct kv_client *c = stand_in(w);
    if (!(c->flags & (KV_CLIENT_PARKED | KV_CLIENT_RESUMING)))
        kv_worker_resume(w, c);
}

void kv_alone_resume(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    KV_ASSERT(c == w->stand_in);
    if (w->jobs == NULL)
        return;
    w->now_ticks = kv_clock_ticks();
    w->now_ms = kv_worker_wall_ms(w, w->now_ticks);
    enum kv_hold hold = kv_acquire(c, KV_MODE_ALONE);
    if (hold == KV_HOLD_PARKED)
        return;
    while (w->jobs != NULL) {
        struct kv_job *j = w->jobs;
        w->jobs = j->next;
        j->fn(j->arg);
        kv_mem_free(j, sizeof(*j), KV_MEM_OTHER);
    }
    w->now_ticks = kv_clock_ticks();
    kv_release(w, hold);
}

void kv_alone_release(struct kv_worker *w)
{
    while (w->jobs != NULL) {
        struct kv_job *j = w->jobs;
        w->jobs = j->next;
        kv_mem_free(j, sizeof(*j), KV_MEM_OTHER);
    }
    if (w->stand_in == NULL)
        return;
    kv_client_unpark(w->stand_in);
    kv_mem_free(w->stand_in, sizeof(*w->stand_in), KV_MEM_CLIENT);
    w->stand_in = NULL;
}
