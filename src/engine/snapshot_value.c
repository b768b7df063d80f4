/* Large collections in a snapshot: their bytes, from the hooks of the store to the taker.
 *
 * A value belongs to the home worker of the shard in which it was opened, wherever RENAME takes it:
 * that worker walks on in it, a slice at a time, and nobody else frees it. Everybody else meets it
 * under the shard's lock, as the record behind a structure (store/sliced.h), and adds members that
 * are about to change. Bytes come in the order in which they are told, so no matter who adds them
 * they follow the key; only the nodes of a list's end wait aside until the others are there.
 *
 * Small values, up to VALUE_BYTES, wait here until they are whole and go into the queue of entries
 * in one row. A larger one takes the stream when it is free. Until then it is not walked on, and
 * its worker walks over entries instead. So the memory of values that wait is bounded by
 * VALUE_BYTES a worker, and what changes in them.
 *
 * The first value of a worker is the one it walks in; the others wait for their turn. No deadlock:
 * the stream's value needs only its worker, its lock and the taker, and the taker never waits for
 * anything else while it is midway in the stream.
 *
 * Threads: a worker's list is guarded by the snapshot's mutex, what is in a value by the lock of
 * its shard; behind `done` it is the worker's alone.
 */
#include "base/assert.h"
#include "engine/worker.h"

#define VALUE_BYTES ((uint64_t)1 << 20) /* kept of a value that is not the stream */
#define VALUE_BYTES_MIN ((uint64_t)64 << 10)
#define FIRST_BYTES ((size_t)1024) /* capacity of a value's first buffer */
#define END_BYTES ((size_t)256)    /* of one for a node of a list's end */

static uint64_t value_bytes(const struct kv_snapshot *s)
{
    uint64_t limit = s->ops.limit_bytes;
    return limit == 0 ? VALUE_BYTES : KV_MAX(KV_MIN(limit / 8, VALUE_BYTES), VALUE_BYTES_MIN);
}

static void count(struct kv_snapshot *s, struct kv_snapshot_value *x, int64_t bytes)
{
    x->kept_bytes += (uint64_t)bytes;
    kv_snapshot_count(s, bytes);
}

/* --- bytes --- */

/* The buffer is full: it goes to the others, or to the taker. */
static void put_filling(struct kv_snapshot *s, struct kv_snapshot_value *x)
{
    struct kv_snapshot_buffer *b = x->filling;
    x->filling = NULL;
    b->more = true;
    b->next = NULL;
    if (x->streaming) {
        x->kept_bytes -= b->capacity;
        kv_snapshot_put(s, &s->stream, b, b);
        return;
    }
    *(x->last != NULL ? &x->last->next : &x->first) = b;
    x->last = b;
    x->row_bytes += b->capacity;
}

/* Adds an item to a buffer and counts what that takes. False: no memory. */
static bool add_item(struct kv_worker *w, struct kv_snapshot_value *x,
                     struct kv_snapshot_buffer **b, const struct kv_sliced_item *item)
{
    struct kv_snapshot *s = &w->engine->snapshot;
    size_t before = (*b)->capacity;
    bool good = s->ops.item(s->ops.arg, w->index, b, &x->form, item);
    if ((*b)->capacity != before)
        count(s, x, (int64_t)(*b)->capacity - (int64_t)before);
    return good;
}

/* A buffer of its own for a node of the end. */
static bool add_end(struct kv_worker *w, struct kv_snapshot_value *x,
                    const struct kv_sliced_item *item)
{
    struct kv_snapshot_buffer *b = kv_snapshot_buffer(x->db, END_BYTES);
    if (b == NULL)
        return false;
    count(&w->engine->snapshot, x, (int64_t)b->capacity);
    bool good = add_item(w, x, &b, item);
    b->next = x->ends;
    x->ends = b;
    return good;
}

static bool add(struct kv_worker *w, struct kv_snapshot_value *x, const struct kv_sliced_item *item)
{
    if (KV_UNLIKELY(kv_snapshot_buffer_full(x->filling))) {
        struct kv_snapshot_buffer *b = kv_snapshot_buffer(x->db, KV_SNAPSHOT_BUFFER_BYTES);
        if (b == NULL)
            return false;
        put_filling(&w->engine->snapshot, x);
        x->filling = b;
        count(&w->engine->snapshot, x, (int64_t)b->capacity);
    }
    return add_item(w, x, &x->filling, item);
}

void kv_snapshot_value_item(struct kv_view *v, struct kv_sliced *sliced,
                            const struct kv_sliced_item *item)
{
    struct kv_worker *w = v->owner;
    struct kv_snapshot_value *x = KV_CONTAINER_OF(sliced, struct kv_snapshot_value, sliced);
    if (atomic_load_explicit(&w->engine->snapshot.failed, memory_order_relaxed))
        return;
    if (!(item->from_end ? add_end(w, x, item) : add(w, x, item)))
        kv_snapshot_fail(w->engine);
}

void kv_snapshot_value_grown(struct kv_view *v, struct kv_sliced *sliced, size_t bytes)
{
    struct kv_worker *w = v->owner;
    struct kv_snapshot_value *x = KV_CONTAINER_OF(sliced, struct kv_snapshot_value, sliced);
    count(&w->engine->snapshot, x, (int64_t)bytes);
}

/* --- life --- */

static void free_row(struct kv_snapshot_buffer *b)
{
    while (b != NULL) {
        struct kv_snapshot_buffer *next = b->next;
        kv_snapshot_free(b);
        b = next;
    }
}

/* Frees a value that is done, and whatever was not handed on. */
static void destroy(struct kv_engine *e, struct kv_snapshot_value *x)
{
    struct kv_snapshot *s = &e->snapshot;
    free_row(x->first);
    free_row(x->filling);
    free_row(x->ends);
    kv_sliced_release(&x->sliced);
    kv_snapshot_count(s, -(int64_t)x->kept_bytes);
    kv_mem_free(x, sizeof(*x), KV_MEM_SNAPSHOT);
}

/* Behind the others of its home worker. False: the snapshot has failed, and that worker may have
 * looked for the last time. */
static bool enlist(struct kv_engine *e, uint32_t shard, struct kv_snapshot_value *x)
{
    struct kv_snapshot *s = &e->snapshot;
    struct kv_worker_snapshot *home = &e->workers[shard % e->worker_count]->snapshot;
    kv_mutex_lock(&s->mutex);
    bool good = !atomic_load(&s->failed);
    if (good) {
        struct kv_snapshot_value **at = &home->values;
        while (*at != NULL)
            at = &(*at)->next;
        *at = x;
        atomic_fetch_add(&home->value_count, 1);
    }
    kv_mutex_unlock(&s->mutex);
    return good;
}

static struct kv_snapshot_value *first_value(struct kv_worker *w)
{
    struct kv_snapshot *s = &w->engine->snapshot;
    kv_mutex_lock(&s->mutex);
    struct kv_snapshot_value *x = w->snapshot.values;
    kv_mutex_unlock(&s->mutex);
    return x;
}

/* The worker's first value leaves its list; gives back the stream. */
static void delist(struct kv_worker *w, const struct kv_snapshot_value *x)
{
    struct kv_snapshot *s = &w->engine->snapshot;
    kv_mutex_lock(&s->mutex);
    KV_ASSERT(w->snapshot.values == x && atomic_load(&w->snapshot.value_count) != 0);
    w->snapshot.values = x->next;
    atomic_fetch_sub(&w->snapshot.value_count, 1);
    if (s->streaming == x)
        s->streaming = NULL;
    kv_mutex_unlock(&s->mutex);
}

bool kv_snapshot_value_open(struct kv_view *v, uint32_t db, const struct kv_entry *e,
                            uint32_t shard, const struct kv_snapshot_hooks *hooks)
{
    struct kv_worker *w = v->owner;
    struct kv_snapshot *s = &w->engine->snapshot;
    if (atomic_load_explicit(&s->failed, memory_order_relaxed))
        return true; /* it does not matter any more */
    struct kv_snapshot_value *x = kv_mem_try_alloc(sizeof(*x), KV_MEM_SNAPSHOT);
    struct kv_snapshot_buffer *b = x != NULL ? kv_snapshot_buffer(db, FIRST_BYTES) : NULL;
    if (b == NULL) {
        if (x != NULL)
            kv_mem_free(x, sizeof(*x), KV_MEM_SNAPSHOT);
        kv_snapshot_fail(w->engine);
        return true;
    }
    *x = (struct kv_snapshot_value){.db = db};
    bool good = s->ops.head(s->ops.arg, w->index, &b, v, e, &x->form);
    x->filling = b;
    b->keys = 1;
    kv_sliced_open(&x->sliced, hooks, v, e, shard);
    count(s, x, (int64_t)(b->capacity + sizeof(*x)));
    if (good && enlist(w->engine, shard, x))
        return true;
    kv_sliced_cancel(&x->sliced);
    destroy(w->engine, x);
    kv_snapshot_fail(w->engine);
    return true;
}

/* --- the home worker's part --- */

/* All bytes are there: they go to the taker in their order. */
static void finish(struct kv_worker *w, struct kv_snapshot_value *x)
{
    struct kv_snapshot *s = &w->engine->snapshot;
    struct kv_snapshot_buffer *first, *last, *b;
    if (x->first != NULL)
        x->last->next = x->filling;
    first = x->first != NULL ? x->first : x->filling;
    x->filling->next = x->ends;
    for (last = b = first; b != NULL; last = b, b = b->next) {
        b->more = b->next != NULL;
        x->kept_bytes -= b->capacity;
    }
    x->first = x->last = x->filling = x->ends = NULL;
    kv_snapshot_put(s, x->streaming ? &s->stream : &s->entries, first, last);
    atomic_fetch_add_explicit(&s->keys_done, 1, memory_order_relaxed);
}

/* True when the value is the stream now. */
static bool take_stream(struct kv_snapshot *s, struct kv_snapshot_value *x)
{
    kv_mutex_lock(&s->mutex);
    x->streaming = s->streaming == NULL;
    if (x->streaming)
        s->streaming = x;
    kv_mutex_unlock(&s->mutex);
    if (x->streaming && x->first != NULL) {
        x->kept_bytes -= x->row_bytes;
        kv_snapshot_put(s, &s->stream, x->first, x->last);
        x->first = x->last = NULL;
        x->row_bytes = 0;
    }
    return x->streaming;
}

/* The lock of the shard in which the value is now. */
static bool try_lock(struct kv_worker *w, const struct kv_snapshot_value *x)
{
    uint32_t shard = atomic_load(&x->sliced.shard);
    if (!kv_try_home_shard(w, shard))
        return false;
    if (atomic_load(&x->sliced.shard) == shard)
        return true;
    kv_release(w, KV_HOLD_SHARDS);
    return false;
}

bool kv_snapshot_value_slice(struct kv_worker *w, uint64_t deadline_ticks)
{
    struct kv_snapshot *s = &w->engine->snapshot;
    struct kv_snapshot_value *x = first_value(w);
    struct kv_view view = w->call.view;
    bool waits =
        x->streaming ? atomic_load(&s->stream.bytes) > value_bytes(s) : kv_snapshot_pauses(s);
    view.flags = 0;
    if (!try_lock(w, x))
        return true;
    w->hold_start = kv_clock_ticks();
    /* What is done needs no room. */
    if (!x->sliced.done && !waits && !x->streaming && x->row_bytes >= value_bytes(s))
        waits = !take_stream(s, x);
    if (!x->sliced.done && !waits)
        kv_sliced_walk(&view, &x->sliced, deadline_ticks);
    bool done = x->sliced.done;
    w->now_ticks = kv_clock_ticks();
    kv_release(w, KV_HOLD_SHARDS);
    if (!done)
        return !waits;
    if (!atomic_load(&s->failed))
        finish(w, x);
    delist(w, x);
    destroy(w->engine, x);
    kv_snapshot_relieve(w->engine);
    return true;
}

/* --- giving up --- */

bool kv_snapshot_values_drop(struct kv_worker *w)
{
    struct kv_snapshot_value *x;
    while ((x = first_value(w)) != NULL) {
        if (!try_lock(w, x))
            return false;
        w->hold_start = kv_clock_ticks();
        kv_sliced_cancel(&x->sliced);
        kv_release(w, KV_HOLD_SHARDS);
        delist(w, x);
        destroy(w->engine, x);
    }
    return true;
}

void kv_snapshot_values_cancel(struct kv_engine *e, bool release)
{
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct kv_worker *w = e->workers[i];
        /* The first value may be in its worker's hands, which takes what is done off the list and
         * frees it without its shard. What is not done nobody touches without, so others are freed
         * behind the mutex. */
        kv_mutex_lock(&e->snapshot.mutex);
        struct kv_snapshot_value *first = w->snapshot.values;
        if (first != NULL && first->sliced.done)
            first = first->next;
        kv_mutex_unlock(&e->snapshot.mutex);
        for (struct kv_snapshot_value *x = first; x != NULL; x = x->next)
            kv_sliced_cancel(&x->sliced);
        while (release && w->snapshot.values != NULL) {
            struct kv_snapshot_value *x = w->snapshot.values;
            delist(w, x);
            destroy(e, x);
        }
    }
}
