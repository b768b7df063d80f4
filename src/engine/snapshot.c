/* Snapshots at work: phases, slices, buffers, the queue to the taker.
 *
 * Phases. NONE -> WALK behind the gate; every worker gets a message and walks over its home shards.
 * The last one to finish its walk ends saving in the store (all entries carry the epoch now, so
 * nobody would save any more) and sends all workers another message: each hands over the buffer
 * that it still holds. With the last of these the phase is END, and the taker's next look at an
 * empty queue tells it so.
 *
 * A failed snapshot goes the same way, only that nothing is walked over or serialized: the hook of
 * the store returns at once. So there is one way out, whoever caused the failure and whenever.
 *
 * Buffers of about BUFFER_BYTES, filled by one worker under whatever lock it holds, put into the
 * queue when they are full or another database begins. The queue's mutex is held for a few
 * instructions and never while anything is waited for; the taker waits on its condition.
 *
 * Writers wait (kv_snapshot_full, in hold.c and batch.c) before they lock anything, as for room in
 * the change stream, and are woken by the taker when half of the limit is free.
 *
 * Rejected: a queue per worker. The taker is slower than any lock here by a factor of a thousand.
 */
#include "engine/snapshot.h"
#include "base/assert.h"
#include "base/clock.h"
#include "engine/worker.h"

#define BUFFER_BYTES ((size_t)64 * 1024) /* capacity that a buffer begins with */
#define SLICE_NS 200000
#define REST_NS 200000 /* between two slices while commands run */

void kv_snapshot_init(struct kv_snapshot *s)
{
    kv_mutex_init(&s->mutex, KV_RANK_SNAPSHOT);
    pthread_cond_init(&s->wake, NULL);
}

void kv_snapshot_release(struct kv_snapshot *s)
{
    while (s->first != NULL) {
        struct kv_snapshot_buffer *b = s->first;
        s->first = b->next;
        kv_snapshot_free(b);
    }
    pthread_cond_destroy(&s->wake);
    kv_mutex_release(&s->mutex);
}

/* --- buffers --- */

static struct kv_snapshot_buffer *create_buffer(uint32_t db)
{
    struct kv_snapshot_buffer *b = kv_mem_try_alloc(sizeof(*b) + BUFFER_BYTES, KV_MEM_SNAPSHOT);
    if (b != NULL)
        *b = (struct kv_snapshot_buffer){.db = db, .capacity = BUFFER_BYTES};
    return b;
}

void kv_snapshot_free(struct kv_snapshot_buffer *b)
{
    if (b == NULL)
        return;
    if (b->string != NULL)
        kv_bigstr_unref(b->string);
    kv_mem_free(b, sizeof(*b) + b->capacity, KV_MEM_SNAPSHOT);
}

/* What a buffer keeps from being freed. */
static uint64_t held_bytes(const struct kv_snapshot_buffer *b)
{
    return b->capacity + (b->string != NULL ? b->string->block_size : 0);
}

bool kv_snapshot_room(struct kv_snapshot_buffer **b, size_t more)
{
    struct kv_snapshot_buffer *old = *b;
    if (KV_LIKELY(more <= old->capacity - old->len))
        return true;
    size_t capacity = KV_MAX(old->capacity + old->capacity / 2, old->len + more);
    struct kv_snapshot_buffer *grown = kv_mem_try_realloc(old, sizeof(*old) + old->capacity,
                                                          sizeof(*old) + capacity, KV_MEM_SNAPSHOT);
    if (grown == NULL)
        return false;
    grown->capacity = capacity;
    *b = grown;
    return true;
}

static void put(struct kv_snapshot *s, struct kv_snapshot_buffer *b)
{
    uint64_t bytes = atomic_fetch_add(&s->buffered_bytes, held_bytes(b)) + held_bytes(b);
    uint64_t most = atomic_load(&s->buffered_max);
    while (bytes > most && !atomic_compare_exchange_weak(&s->buffered_max, &most, bytes))
        continue;
    if (s->ops.limit_bytes != 0 && bytes > s->ops.limit_bytes)
        atomic_store(&s->throttle, true);
    b->next = NULL;
    kv_mutex_lock(&s->mutex);
    if (s->last != NULL)
        s->last->next = b;
    else
        s->first = b;
    s->last = b;
    bool wake = s->waiting;
    kv_mutex_unlock(&s->mutex);
    if (wake)
        pthread_cond_signal(&s->wake);
}

static void put_own(struct kv_worker *w)
{
    struct kv_snapshot_buffer *b = w->snapshot.buffer;
    struct kv_snapshot *s = &w->engine->snapshot;
    w->snapshot.buffer = NULL;
    if (b == NULL)
        return;
    if (b->len == 0 || atomic_load(&s->failed))
        kv_snapshot_free(b);
    else
        put(s, b);
}

/* Hook of the store. */
static void save_entry(struct kv_view *v, uint32_t db, const struct kv_entry *e)
{
    struct kv_worker *w = v->owner;
    struct kv_snapshot *s = &w->engine->snapshot;
    struct kv_snapshot_buffer *b = w->snapshot.buffer;
    if (atomic_load_explicit(&s->failed, memory_order_relaxed))
        return;
    if (b != NULL && b->db != db) {
        put_own(w);
        b = NULL;
    }
    if (b == NULL)
        b = create_buffer(db);
    bool good = b != NULL && s->ops.entry(s->ops.arg, w->index, &b, v, e);
    w->snapshot.buffer = b;
    if (!good) {
        kv_snapshot_fail(w->engine);
        return;
    }
    b->keys++;
    atomic_fetch_add_explicit(&s->keys_done, 1, memory_order_relaxed);
    if (b->len >= BUFFER_BYTES - BUFFER_BYTES / 8 || b->string != NULL)
        put_own(w);
}

/* --- start and end --- */

bool kv_snapshot_going_on(const struct kv_engine *e)
{
    return atomic_load(&e->snapshot.phase) != KV_SNAPSHOT_NONE;
}

bool kv_snapshot_start(struct kv_engine *e, const struct kv_snapshot_ops *ops)
{
    struct kv_snapshot *s = &e->snapshot;
    if (kv_snapshot_going_on(e))
        return false;
    KV_ASSERT(s->first == NULL);
    s->ops = *ops;
    s->keys_total = 0;
    for (uint32_t db = 0; db < e->options.databases; db++)
        s->keys_total += kv_store_size(e->store, db);
    atomic_store(&s->failed, false);
    atomic_store(&s->throttle, false);
    atomic_store(&s->buffered_bytes, 0);
    atomic_store(&s->buffered_max, 0);
    atomic_store(&s->keys_done, 0);
    atomic_store(&s->walking, e->worker_count);
    atomic_store(&s->flushing, e->worker_count);
    kv_store_snapshot_begin(e->store, save_entry);
    atomic_store(&s->phase, KV_SNAPSHOT_WALK);
    unsigned generation = atomic_fetch_add(&s->generation, 1) + 1;
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_inbox_post(e->workers[i], KV_MSG_SNAPSHOT_WALK, generation, 0, NULL);
    return true;
}

void kv_snapshot_on_start(struct kv_worker *w, uint32_t generation)
{
    if (atomic_load(&w->engine->snapshot.generation) != generation)
        return;
    w->snapshot.position = (struct kv_snapshot_position){0};
    w->snapshot.shard = w->index;
    w->snapshot.walking = true;
    w->snapshot.resume_ticks = 0;
}

static void walk_done(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    struct kv_snapshot *s = &e->snapshot;
    w->snapshot.walking = false;
    if (atomic_fetch_sub(&s->walking, 1) != 1)
        return;
    kv_store_snapshot_end(e->store, !atomic_load(&s->failed));
    atomic_store(&s->phase, KV_SNAPSHOT_FLUSH);
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_inbox_post(e->workers[i], KV_MSG_SNAPSHOT_FLUSH, atomic_load(&s->generation), 0, NULL);
}

void kv_snapshot_on_flush(struct kv_worker *w, uint32_t generation)
{
    struct kv_snapshot *s = &w->engine->snapshot;
    if (atomic_load(&s->generation) != generation)
        return;
    put_own(w);
    if (atomic_fetch_sub(&s->flushing, 1) != 1)
        return;
    kv_mutex_lock(&s->mutex);
    atomic_store(&s->phase, KV_SNAPSHOT_END);
    kv_mutex_unlock(&s->mutex);
    pthread_cond_signal(&s->wake);
}

void kv_snapshot_fail(struct kv_engine *e)
{
    atomic_store(&e->snapshot.failed, true);
}

void kv_snapshot_spoil(struct kv_engine *e)
{
    if (atomic_load(&e->snapshot.phase) == KV_SNAPSHOT_WALK)
        kv_snapshot_fail(e);
}

/* --- the walk --- */

/* Home shards until the deadline; true: all are done. */
static bool walk(struct kv_worker *w, uint64_t deadline_ticks)
{
    struct kv_worker_snapshot *ws = &w->snapshot;
    struct kv_view view = w->call.view;
    view.flags = 0;
    while (ws->shard < w->engine->shard_count) {
        if (!kv_try_home_shard(w, ws->shard))
            return false;
        w->hold_start = kv_clock_ticks();
        bool done = kv_store_snapshot_shard(&view, ws->shard, &ws->position, deadline_ticks);
        w->now_ticks = kv_clock_ticks();
        kv_release(w, KV_HOLD_SHARDS);
        if (done) {
            ws->position = (struct kv_snapshot_position){0};
            ws->shard += w->engine->worker_count;
        }
        if (w->now_ticks >= deadline_ticks)
            break;
    }
    return ws->shard >= w->engine->shard_count;
}

void kv_worker_snapshot(struct kv_worker *w)
{
    struct kv_snapshot *s = &w->engine->snapshot;
    struct kv_worker_snapshot *ws = &w->snapshot;
    uint64_t now = kv_clock_ticks();
    if (atomic_load(&s->failed)) {
        walk_done(w);
        return;
    }
    uint64_t half = s->ops.limit_bytes / 2;
    if (now < ws->resume_ticks || (half != 0 && atomic_load(&s->buffered_bytes) > half))
        return;
    w->now_ms = kv_worker_wall_ms(w, now);
    if (walk(w, now + kv_clock_ns_to_ticks(SLICE_NS)))
        walk_done(w);
    /* As much time for commands as for the walk. */
    now = kv_clock_ticks();
    ws->resume_ticks = now + (w->resume_first != NULL ? kv_clock_ns_to_ticks(REST_NS) : 0);
}

int kv_snapshot_wait_ms(const struct kv_worker *w)
{
    const struct kv_snapshot *s = &w->engine->snapshot;
    uint64_t half = s->ops.limit_bytes / 2;
    return half != 0 && atomic_load(&s->buffered_bytes) > half ? 1 : 0;
}

/* --- the taker --- */

/* Half of the limit is free again: commands that wait go on. */
static void relieve(struct kv_engine *e)
{
    struct kv_snapshot *s = &e->snapshot;
    if (!atomic_exchange(&s->throttle, false))
        return;
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_inbox_post(e->workers[i], KV_MSG_STREAM_SPACE, 0, 0, NULL);
}

struct kv_snapshot_buffer *kv_snapshot_take(struct kv_engine *e, bool *failed)
{
    struct kv_snapshot *s = &e->snapshot;
    kv_mutex_lock(&s->mutex);
    while (s->first == NULL && atomic_load(&s->phase) != KV_SNAPSHOT_END) {
        s->waiting = true;
        pthread_cond_wait(&s->wake, &s->mutex.mutex);
        s->waiting = false;
    }
    struct kv_snapshot_buffer *b = s->first;
    if (b != NULL) {
        s->first = b->next;
        if (s->first == NULL)
            s->last = NULL;
    }
    kv_mutex_unlock(&s->mutex);
    if (b != NULL)
        atomic_fetch_sub(&s->buffered_bytes, held_bytes(b));
    if (b == NULL || atomic_load(&s->buffered_bytes) <= s->ops.limit_bytes / 2)
        relieve(e);
    *failed = atomic_load(&s->failed);
    return b;
}

void kv_snapshot_finish(struct kv_engine *e)
{
    struct kv_snapshot *s = &e->snapshot;
    KV_ASSERT(atomic_load(&s->phase) == KV_SNAPSHOT_END && s->first == NULL);
    relieve(e);
    atomic_store(&s->phase, KV_SNAPSHOT_NONE);
}

void kv_snapshot_abandon(struct kv_engine *e)
{
    struct kv_snapshot *s = &e->snapshot;
    kv_snapshot_fail(e);
    atomic_fetch_add(&s->generation, 1);
    if (kv_store_snapshot_active(e->store))
        kv_store_snapshot_end(e->store, false);
    for (uint32_t i = 0; i < e->worker_count; i++) {
        e->workers[i]->snapshot.walking = false;
        put_own(e->workers[i]);
    }
    kv_mutex_lock(&s->mutex);
    atomic_store(&s->phase, KV_SNAPSHOT_END);
    kv_mutex_unlock(&s->mutex);
    pthread_cond_signal(&s->wake);
}

void kv_engine_snapshot_figures(const struct kv_engine *e, struct kv_snapshot_figures *out)
{
    const struct kv_snapshot *s = &e->snapshot;
    out->keys_done = atomic_load(&s->keys_done);
    out->keys_total = s->keys_total;
    out->buffered_bytes = atomic_load(&s->buffered_bytes);
    out->buffered_max = atomic_load(&s->buffered_max);
    out->throttled = atomic_load(&s->throttled);
}
