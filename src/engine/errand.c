/* Errands: threads that do them, stand-ins that wait for them. The model is in errand.h.
 *
 * An errand belongs either to the threads (`out`: queued or at work) or to its worker; it changes
 * hands through the queue, and back by a message. So its fields need no lock. Threads are made when
 * an errand finds none idle, up to KV_ERRAND_THREADS, and stay: MIGRATE comes in long runs.
 *
 * What needs locks, room in the change stream or the gate is queued as a client (engine/alone.h
 * does the same), so each errand has a stand-in: a client without a connection, in no list of
 * clients and counted nowhere. It goes from step to step, and where it is parked it begins the step
 * anew when it is resumed:
 *
 *     HOLD (if it holds keys) -> TURN -> not over: out, and TURN again
 *                                     -> over: LET_GO (if it holds keys), and the reply
 *
 * Who dispatches a command looks for held keys where CLIENT PAUSE is looked for, so that plain
 * commands pay nothing for it: while keys are held, kv_engine.pause_until_ms lies in the far
 * future. That, and the list of who holds, changes in KV_MODE_STOP only: then nobody is between
 * that look and his locks. Keys are compared by hash alone; one that is taken for another waits,
 * too.
 *
 * Rejected: the background thread for the work (one target that does not answer would keep memory
 * from being freed); one thread for all errands with an event loop (resolving names blocks, and
 * what is to be sent is sent best from top to bottom); a mark in the entry or the shard for keys
 * that are held (a look at it by every command); turns behind the gate (they may take long, and
 * need only their shards).
 */
#include "engine/errand.h"
#include "base/assert.h"
#include "base/clock.h"
#include "engine/worker.h"
#include <signal.h>
#include <stdlib.h>

enum step { HOLD, TURN, LET_GO };

/* --- threads --- */

void kv_errands_init(struct kv_errands *all)
{
    pthread_mutex_init(&all->mutex, NULL);
    pthread_cond_init(&all->wake, NULL);
}

static struct kv_errand *take_first(struct kv_errands *all)
{
    struct kv_errand *x = all->first;
    if (x == NULL)
        return NULL;
    all->first = x->queue_next;
    if (all->first == NULL)
        all->last = NULL;
    x->queue_next = NULL;
    return x;
}

static void run_errands(struct kv_errand_thread *self)
{
    struct kv_errands *all = self->all;
    pthread_mutex_lock(&all->mutex);
    while (!all->ending) {
        struct kv_errand *x = take_first(all);
        if (x == NULL) {
            all->idle_count++;
            pthread_cond_wait(&all->wake, &all->mutex);
            all->idle_count--;
            continue;
        }
        self->busy = x;
        pthread_mutex_unlock(&all->mutex);
        x->work(x);
        kv_mem_flush();
        kv_mem_publish();
        pthread_mutex_lock(&all->mutex);
        self->busy = NULL;
        pthread_mutex_unlock(&all->mutex);
        kv_inbox_post(x->worker, KV_MSG_ERRAND, 0, 0, x);
        pthread_mutex_lock(&all->mutex);
    }
    pthread_mutex_unlock(&all->mutex);
}

static void *thread_main(void *arg)
{
    pthread_setname_np(pthread_self(), "kvik-errand");
    kv_mem_thread_name("errand");
    run_errands(arg);
    kv_mem_thread_exit();
    return NULL;
}

/* Under the mutex. False: there is no thread, and none can be made. */
static bool start_thread(struct kv_errands *all)
{
    struct kv_errand_thread *thread = &all->threads[all->thread_count];
    thread->all = all;
    sigset_t every, old;
    sigfillset(&every); /* signals are for the workers */
    pthread_sigmask(SIG_BLOCK, &every, &old);
    bool started = pthread_create(&thread->id, NULL, thread_main, thread) == 0;
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (started)
        all->thread_count++;
    return all->thread_count > 0;
}

static bool has_threads(struct kv_errands *all)
{
    pthread_mutex_lock(&all->mutex);
    bool any = all->thread_count > 0 || start_thread(all);
    pthread_mutex_unlock(&all->mutex);
    return any;
}

static void send_out(struct kv_worker *w, struct kv_errand *x)
{
    struct kv_errands *all = &w->engine->errands;
    KV_ASSERT(!x->out);
    pthread_mutex_lock(&all->mutex);
    x->out = true;
    x->queue_next = NULL;
    if (all->last != NULL)
        all->last->queue_next = x;
    else
        all->first = x;
    all->last = x;
    uint32_t waiting = 0;
    for (const struct kv_errand *q = all->first; q != NULL && waiting <= all->idle_count;
         q = q->queue_next)
        waiting++;
    if (waiting > all->idle_count && all->thread_count < KV_ERRAND_THREADS && !all->ending)
        (void)start_thread(all);
    pthread_cond_signal(&all->wake);
    pthread_mutex_unlock(&all->mutex);
}

void kv_errands_stop(struct kv_errands *all)
{
    pthread_mutex_lock(&all->mutex);
    all->ending = true;
    for (uint32_t i = 0; i < all->thread_count; i++)
        if (all->threads[i].busy != NULL)
            atomic_store(&all->threads[i].busy->cancelled, true);
    pthread_cond_broadcast(&all->wake);
    uint32_t count = all->thread_count;
    pthread_mutex_unlock(&all->mutex);
    for (uint32_t i = 0; i < count; i++)
        pthread_join(all->threads[i].id, NULL);
    all->thread_count = 0;
}

void kv_errands_release(struct kv_errands *all)
{
    KV_ASSERT(all->thread_count == 0);
    KV_ASSERT(all->idle_count == 0);
    pthread_cond_destroy(&all->wake);
    pthread_mutex_destroy(&all->mutex);
}

/* --- held keys --- */

static int compare_hashes(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

bool kv_errands_hold(const struct kv_errands *all, const struct kv_key *keys, int count)
{
    for (const struct kv_errand *x = all->held; x != NULL; x = x->held_next)
        for (int i = 0; i < count; i++)
            if (bsearch(&keys[i].hash, x->hashes, (size_t)x->key_count, sizeof(*x->hashes),
                        compare_hashes) != NULL)
                return true;
    return false;
}

/* [KV_MODE_STOP] False: another errand holds one of the keys. */
static bool hold_keys(struct kv_engine *e, struct kv_errand *x)
{
    if (kv_errands_hold(&e->errands, x->keys, x->key_count))
        return false;
    x->held_next = e->errands.held;
    e->errands.held = x;
    kv_engine_update_pause(e);
    return true;
}

/* [KV_MODE_STOP] */
static void let_keys_go(struct kv_engine *e, struct kv_errand *x)
{
    struct kv_errand **p = &e->errands.held;
    while (*p != x)
        p = &(*p)->held_next;
    *p = x->held_next;
    e->errands.held_epoch++;
    kv_engine_update_pause(e);
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_loop_wake(e->workers[i]->loop);
}

/* --- beginning and end --- */

static struct kv_client *create_stand_in(struct kv_worker *w, const struct kv_client *c)
{
    struct kv_client *self = kv_mem_try_zalloc(sizeof(*self), KV_MEM_CLIENT);
    if (self == NULL)
        return NULL;
    self->io.fd = -1;
    self->worker = w;
    self->flags = KV_CLIENT_VIRTUAL | KV_CLIENT_STAND_IN;
    self->db = c->db;
    self->resp = c->resp;
    kv_out_init(&self->out, &w->chunks);
    self->out.resp = c->resp;
    return self;
}

bool kv_call_may_errand(const struct kv_call *call)
{
    return !(call->flags & (KV_CALL_IN_EXEC | KV_CALL_SERVES)) && call->client != NULL &&
           !(call->client->flags & (KV_CLIENT_BLOCKED | KV_CLIENT_APPLY));
}

enum kv_err kv_call_errand(struct kv_call *call, struct kv_errand *x)
{
    struct kv_worker *w = call->worker;
    struct kv_client *c = call->client;
    KV_ASSERT(kv_call_may_errand(call));
    KV_ASSERT(x->work != NULL && x->turn != NULL && x->release != NULL);
    KV_ASSERT(x->hashes != NULL || !x->holds);
    x->self = has_threads(&w->engine->errands) ? create_stand_in(w, c) : NULL;
    if (x->self == NULL)
        return KV_ERR_NOMEM;
    x->self->user_data = x;
    x->client = c;
    x->worker = w;
    x->muted = c->flags & (KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP);
    x->prev = NULL;
    x->next = w->errands;
    if (w->errands != NULL)
        w->errands->prev = x;
    w->errands = x;
    c->errand = x;
    c->flags |= KV_CLIENT_BLOCKED;
    for (int i = 0; x->holds && i < x->key_count; i++)
        x->hashes[i] = x->keys[i].hash;
    if (x->holds)
        qsort(x->hashes, (size_t)x->key_count, sizeof(*x->hashes), compare_hashes);
    x->step = x->holds ? HOLD : TURN;
    kv_worker_resume(w, x->self);
    return KV_OK;
}

void kv_errand_leave(struct kv_client *c)
{
    struct kv_errand *x = c->errand;
    if (x == NULL)
        return;
    KV_ASSERT(x->client == c);
    x->client = NULL;
    c->errand = NULL;
    c->flags &= ~(uint32_t)KV_CLIENT_BLOCKED;
}

static void unlink_and_release(struct kv_worker *w, struct kv_errand *x)
{
    struct kv_client *self = x->self;
    KV_ASSERT(!x->out && x->client == NULL);
    if (x->prev != NULL)
        x->prev->next = x->next;
    else
        w->errands = x->next;
    if (x->next != NULL)
        x->next->prev = x->prev;
    kv_client_unpark(self);
    kv_out_release(&self->out);
    kv_mem_free(self, sizeof(*self), KV_MEM_CLIENT);
    x->release(x, w->engine->store);
}

/* The reply goes to the client, if that is still there, and it goes on. */
static void deliver(struct kv_worker *w, struct kv_errand *x)
{
    struct kv_client *c = x->client;
    struct kv_out *out = &x->self->out;
    if (c != NULL) {
        kv_errand_leave(c);
        if (!x->muted) {
            kv_out_settle(out);
            for (const struct kv_chunk *k = out->head; k != NULL; k = k->next)
                kv_out_append(&c->out, k->data, k->len);
        }
        kv_commit_note_served(c);
        kv_worker_resume(w, c);
        kv_client_limit_touch(c);
    }
    unlink_and_release(w, x);
}

void kv_errand_clear(struct kv_worker *w)
{
    while (w->errands != NULL) {
        struct kv_errand *x = w->errands;
        if (x->client != NULL)
            kv_errand_leave(x->client);
        x->out = false; /* its thread has ended, or never took it */
        unlink_and_release(w, x);
    }
}

/* --- steps --- */

/* The locks of the keys, and room in the change stream. */
static enum kv_hold acquire(struct kv_worker *w, struct kv_errand *x)
{
    struct kv_engine *e = w->engine;
    struct kv_client *self = x->self;
    uint32_t commands = (uint32_t)x->key_count;
    enum kv_cmd_mode mode = KV_MODE_KEYS;
    if (KV_UNLIKELY(kv_snapshot_full(&e->snapshot)) && !kv_wait_for_snapshot(self))
        return KV_HOLD_PARKED;
    bool active = kv_stream_active(&e->stream);
    bool grow = active && kv_stream_too_small(e, x->stream_bytes, commands);
    if (grow)
        mode = KV_MODE_ALONE;
    else if (active && !kv_wait_for_room(self, x->stream_bytes, commands))
        return KV_HOLD_PARKED;
    if (e->multi) {
        kv_lockset_clear(&w->locks);
        for (int i = 0; i < x->key_count; i++)
            kv_lockset_add(&w->locks, kv_store_shard_of(e->store, x->keys[i].hash));
    }
    enum kv_hold hold = kv_acquire(self, mode);
    if (grow && hold != KV_HOLD_PARKED)
        kv_stream_grow(e, x->stream_bytes, commands);
    return hold;
}

static bool call_turn(struct kv_worker *w, struct kv_errand *x, bool hold_all)
{
    struct kv_call call = w->call;
    call.argv = NULL;
    call.argc = 0;
    call.flags = KV_CALL_SERVES;
    call.keys = x->keys;
    call.key_count = x->key_count;
    call.out = &x->self->out;
    call.arena = &w->arena;
    call.client = NULL;
    call.block = NULL;
    call.hold_all = hold_all;
    call.view.db = x->self->db;
    call.view.dirty = 0;
    call.view.now_ms = w->now_ms;
    call.view.flags = kv_engine_paused(w->engine, w->now_ms) ? KV_VIEW_NO_EXPIRE : 0;
    return x->turn(x, &call);
}

/* False: parked. *over tells whether the errand is. */
static bool run_turn(struct kv_worker *w, struct kv_errand *x, bool *over)
{
    kv_arena_reset(&w->arena);
    enum kv_hold hold = acquire(w, x);
    if (hold == KV_HOLD_PARKED) {
        kv_stream_settle(w);
        return false;
    }
    *over = call_turn(w, x, hold == KV_HOLD_ALONE);
    w->now_ticks = kv_clock_ticks();
    kv_release(w, hold);
    return true;
}

/* False: parked, or paused until whoever holds a key lets it go. */
static bool run_hold(struct kv_worker *w, struct kv_errand *x)
{
    enum kv_hold hold = kv_acquire(x->self, KV_MODE_STOP);
    if (hold == KV_HOLD_PARKED)
        return false;
    bool held = hold_keys(w->engine, x);
    kv_release(w, hold);
    if (!held)
        kv_pause_client(x->self);
    return held;
}

/* False: parked. */
static bool run_let_go(struct kv_worker *w, struct kv_errand *x)
{
    enum kv_hold hold = kv_acquire(x->self, KV_MODE_STOP);
    if (hold == KV_HOLD_PARKED)
        return false;
    let_keys_go(w->engine, x);
    kv_release(w, hold);
    return true;
}

void kv_errand_resume(struct kv_client *self)
{
    struct kv_worker *w = self->worker;
    struct kv_errand *x = self->user_data;
    bool over = false;
    KV_ASSERT(!x->out && x->self == self);
    w->now_ticks = kv_clock_ticks();
    w->now_ms = kv_worker_wall_ms(w, w->now_ticks);
    if (KV_UNLIKELY(kv_engine_paused(w->engine, w->now_ms)) && x->step != LET_GO) {
        kv_pause_client(self);
        return;
    }
    if (x->step == HOLD) {
        if (!run_hold(w, x))
            return;
        x->step = TURN;
    }
    if (x->step == TURN) {
        if (!run_turn(w, x, &over))
            return;
        if (!over) {
            send_out(w, x);
            return;
        }
        x->step = LET_GO;
    }
    if (!x->holds || run_let_go(w, x))
        deliver(w, x);
}

void kv_errand_on_back(struct kv_worker *w, void *errand)
{
    struct kv_errand *x = errand;
    KV_ASSERT(x->worker == w && x->out);
    x->out = false;
    kv_worker_resume(w, x->self);
}
