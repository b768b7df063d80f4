/* The gate: see the header for protocol, wake-ups and fairness.
 *
 * Everything but `inside`, `closed` and `stop` is guarded by one mutex, taken only by exclusive
 * commands and by plain ones that found the gate closed. Spinning is bounded; whoever cannot go on
 * is parked and resumed by a message.
 *
 * Rejected: a reader-writer lock (one shared word that every command of every core would write),
 * and waiting inside the worker (a flush would then stop the PINGs of all its connections).
 */
#include "engine/gate.h"
#include "base/clock.h"
#include "engine/worker.h"
#include <sched.h>
#include <time.h>

void kv_gate_init(struct kv_gate *g)
{
    memset(g, 0, sizeof(*g));
    kv_mutex_init(&g->mutex, KV_RANK_GATE);
}

void kv_gate_release(struct kv_gate *g)
{
    KV_ASSERT(g->exclusive.first == NULL);
    kv_mutex_release(&g->mutex);
}

bool kv_gate_enter(struct kv_worker *w)
{
    KV_DASSERT(atomic_load_explicit(&w->inside, memory_order_relaxed) == 0);
    atomic_store(&w->inside, 1);
    if (KV_LIKELY(atomic_load(&w->engine->gate.closed) == 0))
        return true;
    kv_gate_leave(w);
    return false;
}

/* The worker that owns the closed gate looks again. One message underway is enough: whoever comes
 * before the owner has read it has lowered his flag before the owner looks. So a long exclusive
 * command does not collect a message for every command that finds the gate closed. */
static KV_COLD void notify_owner(struct kv_gate *g)
{
    struct kv_worker *owner = NULL;
    kv_mutex_lock(&g->mutex);
    if (g->owner != NULL && !g->owner_told) {
        g->owner_told = true;
        owner = g->owner_worker;
    }
    kv_mutex_unlock(&g->mutex);
    if (owner != NULL)
        kv_inbox_post(owner, KV_MSG_GATE_RECHECK, 0, 0, NULL);
}

void kv_gate_leave(struct kv_worker *w)
{
    struct kv_gate *g = &w->engine->gate;
    atomic_store(&w->inside, 0);
    if (KV_UNLIKELY(atomic_load(&g->closed) != 0))
        notify_owner(g);
}

bool kv_gate_park(struct kv_worker *w, struct kv_client *c)
{
    struct kv_gate *g = &w->engine->gate;
    bool parked = false;
    kv_mutex_lock(&g->mutex);
    if (atomic_load(&g->closed) != 0) {
        kv_waitlist_append(&w->gate_waiters, c);
        w->gate_parked = true;
        c->flags |= KV_CLIENT_PARKED;
        c->park = KV_PARK_GATE;
        parked = true;
    }
    kv_mutex_unlock(&g->mutex);
    return parked;
}

/* Under the mutex: the next exclusive client closes the gate; its worker is told. */
static struct kv_worker *start_next(struct kv_gate *g)
{
    if (g->owner != NULL || g->phase_pending > 0 || g->exclusive.first == NULL)
        return NULL;
    struct kv_client *c = kv_waitlist_take(&g->exclusive);
    g->owner = c;
    g->owner_worker = c->worker;
    g->owner_told = true; /* by our caller */
    atomic_store(&g->closed, 1);
    return g->owner_worker;
}

static bool others_outside(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    for (uint32_t i = 0; i < e->worker_count; i++)
        if (e->workers[i] != w && atomic_load(&e->workers[i]->inside) != 0)
            return false;
    return true;
}

bool kv_gate_close(struct kv_worker *w, struct kv_client *c)
{
    struct kv_gate *g = &w->engine->gate;
    kv_mutex_lock(&g->mutex);
    if (g->owner == NULL && g->exclusive.first == NULL && g->phase_pending == 0) {
        g->owner = c;
        g->owner_worker = w;
        g->owner_told = false;
        atomic_store(&g->closed, 1);
    }
    bool owner = g->owner == c;
    if (!owner)
        kv_waitlist_append(&g->exclusive, c);
    /* Parked before the last look: a message that comes in between finds it so. */
    c->flags |= KV_CLIENT_PARKED;
    c->park = KV_PARK_ALONE;
    kv_mutex_unlock(&g->mutex);
    if (!owner)
        return false;

    uint64_t give_up = kv_clock_ticks() + kv_clock_ns_to_ticks(KV_LOCK_SPIN_NS);
    do {
        if (others_outside(w)) {
            c->flags &= ~(uint32_t)KV_CLIENT_PARKED;
            c->park = KV_PARK_NONE;
            kv_stat_add(&w->stats.gate_closes, 1);
            return true;
        }
    } while (kv_clock_ticks() < give_up);
    return false;
}

/* Under the mutex: opens the gate and lets the parked plain commands of all workers go first. Fills
 * `workers` with those to be told. */
static struct kv_worker *open_locked(struct kv_engine *e, uint64_t workers[KV_WORKERS_MAX / 64])
{
    struct kv_gate *g = &e->gate;
    g->owner = NULL;
    g->owner_worker = NULL;
    /* Somebody else is alone: the gate stays closed, and he opens it. */
    if (g->upgrader != NULL)
        return start_next(g);
    atomic_store(&g->closed, 0);
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct kv_worker *w = e->workers[i];
        if (!w->gate_parked)
            continue;
        w->gate_parked = false;
        g->phase_pending++;
        workers[i / 64] |= (uint64_t)1 << (i % 64);
    }
    return start_next(g);
}

static void wake(struct kv_engine *e, const uint64_t workers[KV_WORKERS_MAX / 64],
                 struct kv_worker *next)
{
    for (uint32_t i = 0; i < e->worker_count; i++)
        if (workers[i / 64] >> (i % 64) & 1)
            kv_inbox_post(e->workers[i], KV_MSG_GATE_OPEN, 0, 0, NULL);
    if (next != NULL)
        kv_inbox_post(next, KV_MSG_GATE_RECHECK, 0, 0, NULL);
}

static void open_and_wake(struct kv_engine *e)
{
    uint64_t workers[KV_WORKERS_MAX / 64] = {0};
    kv_mutex_lock(&e->gate.mutex);
    struct kv_worker *next = open_locked(e, workers);
    kv_mutex_unlock(&e->gate.mutex);
    wake(e, workers, next);
}

void kv_gate_open(struct kv_worker *w)
{
    KV_ASSERT(atomic_load(&w->engine->gate.closed) == 1);
    open_and_wake(w->engine);
}

void kv_gate_upgrade(struct kv_worker *w)
{
    struct kv_gate *g = &w->engine->gate;
    KV_ASSERT(atomic_load(&w->inside) == 1);
    kv_mutex_lock(&g->mutex);
    KV_ASSERT(g->upgrader == NULL);
    g->upgrader = w;
    atomic_store(&g->closed, 1);
    kv_mutex_unlock(&g->mutex);
    kv_stat_add(&w->stats.gate_closes, 1);
    for (uint32_t tries = 0; !others_outside(w); tries++) {
        if (tries < 200)
            sched_yield();
        else
            nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
    }
}

void kv_gate_downgrade(struct kv_worker *w)
{
    struct kv_gate *g = &w->engine->gate;
    uint64_t workers[KV_WORKERS_MAX / 64] = {0};
    struct kv_worker *next = NULL;
    kv_mutex_lock(&g->mutex);
    KV_ASSERT(g->upgrader == w);
    g->upgrader = NULL;
    /* An exclusive command that has waited finds the gate closed for it, and is told when our flag
     * falls. */
    if (g->owner == NULL)
        next = open_locked(w->engine, workers);
    kv_mutex_unlock(&g->mutex);
    wake(w->engine, workers, next);
}

void kv_gate_cancel(struct kv_worker *w, struct kv_client *c)
{
    struct kv_gate *g = &w->engine->gate;
    kv_mutex_lock(&g->mutex);
    bool owner = g->owner == c;
    if (c->park == KV_PARK_GATE && kv_waitlist_holds(&w->gate_waiters, c))
        kv_waitlist_remove(&w->gate_waiters, c);
    else if (!owner && kv_waitlist_holds(&g->exclusive, c))
        kv_waitlist_remove(&g->exclusive, c);
    kv_mutex_unlock(&g->mutex);
    if (owner)
        open_and_wake(w->engine);
}

void kv_gate_on_open(struct kv_worker *w)
{
    struct kv_gate *g = &w->engine->gate;
    kv_mutex_lock(&g->mutex);
    struct kv_waitlist list = w->gate_waiters;
    w->gate_waiters = (struct kv_waitlist){0};
    kv_mutex_unlock(&g->mutex);
    for (struct kv_client *c; (c = kv_waitlist_take(&list)) != NULL;) {
        c->park = KV_PARK_NONE;
        kv_worker_resume(w, c);
    }
    /* The resumed connections run within this round; their worker has had its phase then. */
    w->gate_phases++;
}

void kv_gate_phases_done(struct kv_worker *w, uint32_t phases)
{
    struct kv_gate *g = &w->engine->gate;
    KV_ASSERT(w->gate_phases >= phases);
    w->gate_phases -= phases;
    kv_mutex_lock(&g->mutex);
    KV_ASSERT(g->phase_pending >= phases);
    g->phase_pending -= phases;
    struct kv_worker *next = start_next(g);
    kv_mutex_unlock(&g->mutex);
    if (next != NULL)
        kv_inbox_post(next, KV_MSG_GATE_RECHECK, 0, 0, NULL);
}

void kv_gate_on_recheck(struct kv_worker *w)
{
    struct kv_gate *g = &w->engine->gate;
    kv_mutex_lock(&g->mutex);
    struct kv_client *c = g->owner != NULL && g->owner_worker == w ? g->owner : NULL;
    if (c != NULL)
        g->owner_told = false;
    kv_mutex_unlock(&g->mutex);
    if (c != NULL && c->flags & KV_CLIENT_PARKED && c->park == KV_PARK_ALONE)
        kv_worker_resume(w, c);
}

/* A worker that waits for events, or has ended, touches nothing: only the others need to come to
 * their stop point. They do so at the end of their round, so this is short; sleeping in between
 * gives their threads the processor. */
void kv_world_stop(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    KV_ASSERT(atomic_load(&e->gate.stop) == 0);
    atomic_store(&e->gate.stop, 1);
    kv_stat_add(&w->stats.world_stops, 1);
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct kv_worker *other = e->workers[i];
        if (other == w)
            continue;
        for (uint32_t tries = 0;
             atomic_load(&other->waiting) == 0 && atomic_load(&other->at_stop) == 0; tries++) {
            if (tries < 200)
                sched_yield();
            else
                nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        }
    }
}

void kv_world_resume(struct kv_worker *w)
{
    atomic_store(&w->engine->gate.stop, 0);
}

/* The flag falls before `stop` is read once more: a second stop that still saw the flag up is then
 * obeyed, since this worker has touched nothing in between. */
void kv_world_stop_point(struct kv_worker *w)
{
    struct kv_gate *g = &w->engine->gate;
    while (KV_UNLIKELY(atomic_load(&g->stop) != 0)) {
        atomic_store(&w->at_stop, 1);
        for (uint32_t tries = 0; atomic_load(&g->stop) != 0; tries++) {
            if (tries < 200)
                sched_yield();
            else
                nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
        }
        atomic_store(&w->at_stop, 0);
    }
}
