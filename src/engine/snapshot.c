/* Snapshots at work: phases, slices, buffers, the queue to the taker.
 *
 * Phases. NONE -> WALK behind the gate; every worker gets a message and walks over its home shards
 * and the large collections that were opened in them (snapshot_value.c). The last one to finish its
 * walk ends saving in the store (all entries carry the epoch now, so nobody would save any more)
 * and sends all workers another message: each hands over the buffer that it still holds. With the
 * last of these the phase is END, and the taker's next look at an empty queue tells it so.
 *
 * A failed snapshot goes the same way, only that nothing is walked over or serialized: the hook of
 * the store returns at once. So there is one way out, whoever caused the failure and whenever.
 *
 * Buffers of about 64 KiB, filled by one worker under whatever lock it holds, put into the queue
 * of entries when they are full or another database begins. The mutex is held for a few
 * instructions and never while anything is waited for; the taker waits on its condition. It takes
 * from both queues in turn, but never leaves a value midway. It is woken when some buffers are
 * there and not for each, since waking up on a core where a worker runs costs that one its turn.
 *
 * Slices. One follows each round of a worker. A request that comes during a slice waits for its
 * end, so slices are short while commands run: a quarter of the time that the round took, from
 * BUSY_SLICE_NS to SLICE_NS. So they do not dominate what a request waits for anyway, and a worker
 * with long rounds still gives a fifth of its time. A worker that ran no command for CALM_NS takes
 * whole slices.
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

#define OPEN_MAX                                                                                   \
    64u /* values that are open in a worker's shards before its walk waits for them                \
         */
#define SLICE_NS 200000
#define BUSY_SLICE_NS 40000
#define CALM_NS 10000000
#define WAKE_BYTES ((uint64_t)256 << 10)
#define REST_NS 200000 /* between two slices while commands run */

void kv_snapshot_init(struct kv_snapshot *s)
{
    kv_mutex_init(&s->mutex, KV_RANK_SNAPSHOT);
    pthread_cond_init(&s->wake, NULL);
}

static void free_queue(struct kv_snapshot_queue *q)
{
    while (q->first != NULL) {
        struct kv_snapshot_buffer *b = q->first;
        q->first = b->next;
        kv_snapshot_free(b);
    }
}

void kv_snapshot_release(struct kv_snapshot *s)
{
    free_queue(&s->entries);
    free_queue(&s->stream);
    pthread_cond_destroy(&s->wake);
    kv_mutex_release(&s->mutex);
}

/* --- buffers --- */

struct kv_snapshot_buffer *kv_snapshot_buffer(uint32_t db, size_t capacity)
{
    struct kv_snapshot_buffer *b = kv_mem_try_alloc(sizeof(*b) + capacity, KV_MEM_SNAPSHOT);
    if (b != NULL)
        *b = (struct kv_snapshot_buffer){.db = db, .capacity = capacity};
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

void kv_snapshot_count(struct kv_snapshot *s, int64_t bytes)
{
    uint64_t all = atomic_fetch_add(&s->buffered_bytes, (uint64_t)bytes) + (uint64_t)bytes;
    uint64_t most = atomic_load(&s->buffered_max);
    while (all > most && !atomic_compare_exchange_weak(&s->buffered_max, &most, all))
        continue;
    if (s->ops.limit_bytes != 0 && all > s->ops.limit_bytes)
        atomic_store(&s->throttle, true);
}

void kv_snapshot_put(struct kv_snapshot *s, struct kv_snapshot_queue *q,
                     struct kv_snapshot_buffer *first, struct kv_snapshot_buffer *last)
{
    uint64_t bytes = 0;
    last->next = NULL;
    for (const struct kv_snapshot_buffer *b = first; b != NULL; b = b->next)
        bytes += held_bytes(b);
    kv_mutex_lock(&s->mutex);
    *(q->last != NULL ? &q->last->next : &q->first) = first;
    q->last = last;
    atomic_fetch_add(&q->bytes, bytes);
    bool wake = s->waiting &&
                (q != &s->entries || s->midway != NULL || atomic_load(&q->bytes) >= s->wake_bytes);
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
    if (b->len == 0 || atomic_load(&s->failed)) {
        kv_snapshot_free(b);
        return;
    }
    atomic_fetch_add_explicit(&s->keys_done, b->keys, memory_order_relaxed);
    kv_snapshot_count(s, (int64_t)held_bytes(b));
    kv_snapshot_put(s, &s->entries, b, b);
}

/* Hooks of the store. */
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
        b = kv_snapshot_buffer(db, KV_SNAPSHOT_BUFFER_BYTES);
    bool good = b != NULL && s->ops.entry(s->ops.arg, w->index, &b, v, e);
    w->snapshot.buffer = b;
    if (!good) {
        kv_snapshot_fail(w->engine);
        return;
    }
    b->keys++;
    if (kv_snapshot_buffer_full(b) || b->string != NULL)
        put_own(w);
}

static bool open_value(struct kv_view *v, uint32_t db, const struct kv_entry *e, uint32_t shard);

static void fail(struct kv_view *v)
{
    struct kv_worker *w = v->owner;
    kv_snapshot_fail(w->engine);
}

static const struct kv_snapshot_hooks whole_hooks = {.save = save_entry};
static const struct kv_snapshot_hooks sliced_hooks = {
    .save = save_entry,
    .slice = open_value,
    .item = kv_snapshot_value_item,
    .grown = kv_snapshot_value_grown,
    .fail = fail,
};

static bool open_value(struct kv_view *v, uint32_t db, const struct kv_entry *e, uint32_t shard)
{
    return kv_snapshot_value_open(v, db, e, shard, &sliced_hooks);
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
    KV_ASSERT(s->entries.first == NULL && s->stream.first == NULL && s->streaming == NULL);
    s->ops = *ops;
    s->midway = NULL;
    s->wake_bytes = ops->limit_bytes == 0 ? WAKE_BYTES : KV_MIN(WAKE_BYTES, ops->limit_bytes / 8);
    s->keys_total = 0;
    for (uint32_t db = 0; db < e->options.databases; db++)
        s->keys_total += kv_store_size(e->store, db);
    atomic_store(&s->failed, false);
    atomic_store(&s->spoiled, false);
    atomic_store(&s->throttle, false);
    atomic_store(&s->buffered_bytes, 0);
    atomic_store(&s->buffered_max, 0);
    atomic_store(&s->keys_done, 0);
    atomic_store(&s->walking, e->worker_count);
    atomic_store(&s->flushing, e->worker_count);
    kv_store_snapshot_begin(e->store, ops->head != NULL ? &sliced_hooks : &whole_hooks);
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
    w->snapshot.end_ticks = kv_clock_ticks();
    w->snapshot.calm_ticks = 0;
    w->snapshot.commands = kv_stat_read(&w->stats.commands);
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
    if (atomic_load(&e->snapshot.phase) != KV_SNAPSHOT_WALK)
        return;
    /* What has failed already stays failed for its own reason. */
    if (!atomic_load(&e->snapshot.failed))
        atomic_store(&e->snapshot.spoiled, true);
    kv_snapshot_fail(e);
    kv_snapshot_values_cancel(e, false);
}

bool kv_snapshot_spoiled(const struct kv_engine *e)
{
    return atomic_load(&e->snapshot.spoiled);
}

/* --- the walk --- */

/* Nothing is added once the worker's walk has passed all of its shards: who opens a value does so
 * under a lock that the walk takes. */
static uint32_t open_count(const struct kv_worker *w)
{
    return atomic_load(&w->snapshot.value_count);
}

/* Home shards until the deadline, or until something was opened. */
static void walk(struct kv_worker *w, uint64_t deadline_ticks)
{
    struct kv_worker_snapshot *ws = &w->snapshot;
    struct kv_view view = w->call.view;
    uint32_t open = open_count(w);
    view.flags = 0;
    while (ws->shard < w->engine->shard_count) {
        if (!kv_try_home_shard(w, ws->shard))
            return;
        w->hold_start = kv_clock_ticks();
        bool done = kv_store_snapshot_shard(&view, ws->shard, &ws->position, deadline_ticks);
        w->now_ticks = kv_clock_ticks();
        kv_release(w, KV_HOLD_SHARDS);
        if (done) {
            ws->position = (struct kv_snapshot_position){0};
            ws->shard += w->engine->worker_count;
        }
        if (w->now_ticks >= deadline_ticks || open_count(w) != open)
            return;
    }
}

uint64_t kv_snapshot_slice_ns(bool busy, uint64_t round_ns)
{
    if (!busy)
        return SLICE_NS;
    return KV_MIN(KV_MAX(round_ns / 4, (uint64_t)BUSY_SLICE_NS), (uint64_t)SLICE_NS);
}

/* How long the slice that begins now may take. */
static uint64_t slice_ticks(struct kv_worker *w, uint64_t now)
{
    struct kv_worker_snapshot *ws = &w->snapshot;
    uint64_t commands = kv_stat_read(&w->stats.commands);
    if (commands != ws->commands)
        ws->calm_ticks = now + kv_clock_ns_to_ticks(CALM_NS);
    ws->commands = commands;
    return kv_clock_ns_to_ticks(
        kv_snapshot_slice_ns(now < ws->calm_ticks, kv_clock_ticks_to_ns(now - ws->end_ticks)));
}

void kv_worker_snapshot(struct kv_worker *w)
{
    struct kv_snapshot *s = &w->engine->snapshot;
    struct kv_worker_snapshot *ws = &w->snapshot;
    uint64_t now = kv_clock_ticks();
    ws->idle = false;
    if (atomic_load(&s->failed)) {
        if (kv_snapshot_values_drop(w))
            walk_done(w);
        return;
    }
    if (now < ws->resume_ticks)
        return;
    w->now_ms = kv_worker_wall_ms(w, now);
    uint64_t deadline = now + slice_ticks(w, now);
    if (open_count(w) != 0 && kv_snapshot_value_slice(w, deadline)) {
        /* A worker goes on with what is open before it opens more. */
    } else if (ws->shard >= w->engine->shard_count || open_count(w) >= OPEN_MAX ||
               kv_snapshot_pauses(s)) {
        ws->idle = true;
    } else {
        walk(w, deadline);
    }
    if (ws->shard >= w->engine->shard_count && open_count(w) == 0)
        walk_done(w);
    /* As much time for commands as for the walk. */
    ws->end_ticks = now = kv_clock_ticks();
    ws->resume_ticks = now + (w->resume_first != NULL ? kv_clock_ns_to_ticks(REST_NS) : 0);
}

int kv_snapshot_wait_ms(const struct kv_worker *w)
{
    return w->snapshot.idle ? 1 : 0;
}

/* --- the taker --- */

static void relieve(struct kv_engine *e)
{
    struct kv_snapshot *s = &e->snapshot;
    if (!atomic_exchange(&s->throttle, false))
        return;
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_inbox_post(e->workers[i], KV_MSG_STREAM_SPACE, 0, 0, NULL);
}

void kv_snapshot_relieve(struct kv_engine *e)
{
    struct kv_snapshot *s = &e->snapshot;
    if (atomic_load(&s->buffered_bytes) <= s->ops.limit_bytes / 2)
        relieve(e);
}

/* The queue to take from, or NULL: nothing is there that may come next. */
static struct kv_snapshot_queue *next_queue(struct kv_snapshot *s)
{
    struct kv_snapshot_queue *first = s->stream_next ? &s->stream : &s->entries;
    struct kv_snapshot_queue *second = s->stream_next ? &s->entries : &s->stream;
    /* Of a snapshot that has failed only the memory matters. */
    if (s->midway != NULL && !atomic_load(&s->failed))
        return s->midway->first != NULL ? s->midway : NULL;
    return first->first != NULL ? first : second->first != NULL ? second : NULL;
}

static struct kv_snapshot_buffer *take_first(struct kv_snapshot *s, struct kv_snapshot_queue *q)
{
    struct kv_snapshot_buffer *b = q->first;
    q->first = b->next;
    if (q->first == NULL)
        q->last = NULL;
    atomic_fetch_sub(&q->bytes, held_bytes(b));
    s->midway = b->more ? q : NULL;
    s->stream_next = q != &s->stream;
    return b;
}

struct kv_snapshot_buffer *kv_snapshot_take(struct kv_engine *e, bool *failed)
{
    struct kv_snapshot *s = &e->snapshot;
    struct kv_snapshot_queue *q;
    kv_mutex_lock(&s->mutex);
    while ((q = next_queue(s)) == NULL && atomic_load(&s->phase) != KV_SNAPSHOT_END) {
        s->waiting = true;
        pthread_cond_wait(&s->wake, &s->mutex.mutex);
        s->waiting = false;
    }
    struct kv_snapshot_buffer *b = q != NULL ? take_first(s, q) : NULL;
    kv_mutex_unlock(&s->mutex);
    if (b != NULL)
        atomic_fetch_sub(&s->buffered_bytes, held_bytes(b));
    if (b == NULL)
        relieve(e);
    else
        kv_snapshot_relieve(e);
    *failed = atomic_load(&s->failed);
    return b;
}

void kv_snapshot_finish(struct kv_engine *e)
{
    struct kv_snapshot *s = &e->snapshot;
    KV_ASSERT(atomic_load(&s->phase) == KV_SNAPSHOT_END);
    KV_ASSERT(s->entries.first == NULL && s->stream.first == NULL);
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
    kv_snapshot_values_cancel(e, true);
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
