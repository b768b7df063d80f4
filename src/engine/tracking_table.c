/* Remembered keys: the model is in tracking.h.
 *
 *   kv_tracking.shards[n] -> table of entries: hash, ids of readers (ascending), the key's bytes
 *
 * An entry is one block, with room for 1, 2, 4 ... ids; most keys have few readers. One that is
 * full first forgets readers that have gone, so that connections which come, read a busy key and go
 * do not make it grow.
 *
 * Sweeping. When trackers that read keys have ended, each worker walks once over the tables of its
 * home shards: a slice per tick, which removes ids of those who have gone and entries without any
 * left. Walks do not begin anew before the last one has ended. A slice ends behind the entry at
 * which its time is up, so entries are visited by position: the next one goes on there.
 *
 * Trimming. Whoever adds an entry while there are too many makes two go at most, and when nobody
 * sweeps each worker drops entries of its home shards, a slice per tick: after the limit was
 * lowered it takes a while until it is kept, and nobody waits for that.
 *
 * Rejected: lists of keys by client, so that an end could take them away at once: 16 bytes more a
 * reader, and an end that takes as long as the client has read keys.
 */
#include "base/clock.h"
#include "engine/tracking.h"
#include "engine/worker.h"

#define SLICE_NS 200000  /* of sweeping or trimming */
#define SWEEP_ENTRIES 32 /* gathered at a time */

struct remembered {
    uint64_t hash;
    uint32_t key_len;
    uint32_t count, capacity; /* ids; at least one */
    uint64_t ids[];           /* ascending; the key follows behind the last place */
};

static size_t block_bytes(uint32_t capacity, size_t key_len)
{
    return sizeof(struct remembered) + capacity * sizeof(uint64_t) + key_len;
}

static char *key_bytes(const struct remembered *m)
{
    return (char *)(uintptr_t)&m->ids[m->capacity];
}

static uint64_t hash_of_remembered(const void *item, void *arg)
{
    (void)arg;
    return ((const struct remembered *)item)->hash;
}

static bool has_key(const void *item, const void *key)
{
    const struct remembered *m = item;
    const struct kv_key *k = key;
    return m->key_len == k->len && memcmp(key_bytes(m), k->ptr, k->len) == 0;
}

static struct remembered *create(const struct kv_key *k, uint32_t capacity)
{
    struct remembered *m = kv_mem_try_alloc(block_bytes(capacity, k->len), KV_MEM_OTHER);
    if (m == NULL)
        return NULL;
    m->hash = k->hash;
    m->key_len = (uint32_t)k->len;
    m->count = 0;
    m->capacity = capacity;
    if (k->len != 0)
        memcpy(key_bytes(m), k->ptr, k->len);
    return m;
}

static void destroy(struct remembered *m)
{
    kv_mem_free(m, block_bytes(m->capacity, m->key_len), KV_MEM_OTHER);
}

static struct kv_key key_of(const struct remembered *m)
{
    return (struct kv_key){key_bytes(m), m->key_len, m->hash};
}

static struct kv_table *table_of(struct kv_engine *e, uint64_t hash)
{
    return &e->tracking.shards[kv_store_shard_of(e->store, hash)];
}

static void count_items(struct kv_engine *e, uint64_t before, uint64_t after)
{
    atomic_fetch_add_explicit(&e->tracking.item_count, after - before, memory_order_relaxed);
}

static void take_out(struct kv_engine *e, struct kv_table *t, struct remembered *m)
{
    kv_table_remove(t, m->hash, m);
    if (t->count == 0)
        kv_table_release(t);
    count_items(e, m->count, 0);
    atomic_fetch_sub_explicit(&e->tracking.key_count, 1, memory_order_relaxed);
}

/* Where an id is, or belongs. */
static uint32_t place_of(const struct remembered *m, uint64_t id)
{
    uint32_t low = 0, high = m->count;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (m->ids[middle] < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void insert_id(struct kv_engine *e, struct remembered *m, uint64_t id)
{
    uint32_t at = place_of(m, id);
    KV_ASSERT(m->count < m->capacity);
    memmove(&m->ids[at + 1], &m->ids[at], (m->count - at) * sizeof(uint64_t));
    m->ids[at] = id;
    m->count++;
    count_items(e, 0, 1);
}

/* Makes room for one more. */
static enum kv_err make_room(struct kv_engine *e, struct kv_table *t, struct remembered **m)
{
    struct remembered *old = *m;
    uint32_t living = kv_tracking_living(e, old->ids, old->count);
    count_items(e, old->count, living);
    old->count = living;
    if (living <= old->capacity / 2)
        return KV_OK;
    struct kv_key k = key_of(old);
    struct remembered *wider = create(&k, old->capacity * 2);
    if (wider == NULL)
        return living < old->capacity ? KV_OK : KV_ERR_NOMEM;
    memcpy(wider->ids, old->ids, old->count * sizeof(uint64_t));
    wider->count = old->count;
    kv_table_replace(t, old->hash, old, wider);
    destroy(old);
    *m = wider;
    return KV_OK;
}

static void tell_and_forget(struct kv_worker *w, struct kv_table *t, struct remembered *m,
                            const struct kv_client *origin)
{
    take_out(w->engine, t, m);
    kv_tracking_tell(w, m->ids, m->count, kv_slice(key_bytes(m), m->key_len), origin);
    destroy(m);
}

static bool is_over_limit(const struct kv_engine *e)
{
    uint64_t max = e->options.tracking_table_max_keys;
    return max != 0 && atomic_load_explicit(&e->tracking.key_count, memory_order_relaxed) > max;
}

static void drop_random(struct kv_worker *w, struct kv_table *t)
{
    tell_and_forget(w, t, kv_table_random(t, &w->random), NULL);
}

static enum kv_err add_key(struct kv_worker *w, struct kv_table *t, const struct kv_key *key,
                           uint64_t id)
{
    struct kv_engine *e = w->engine;
    if (key->len > UINT32_MAX)
        return KV_ERR_NOMEM;
    struct remembered *m = create(key, 1);
    if (m == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = kv_table_insert(t, key->hash, m);
    if (err != KV_OK) {
        destroy(m);
        if (t->count == 0)
            kv_table_release(t);
        return KV_ERR_NOMEM;
    }
    insert_id(e, m, id);
    atomic_fetch_add_explicit(&e->tracking.key_count, 1, memory_order_relaxed);
    /* Two, so that it ends when the limit was lowered. */
    for (int i = 0; i < 2 && t->count != 0 && is_over_limit(e); i++)
        drop_random(w, t);
    return KV_OK;
}

enum kv_err kv_tracking_remember(struct kv_worker *w, const struct kv_key *key, uint64_t id)
{
    struct kv_engine *e = w->engine;
    struct kv_table *t = table_of(e, key->hash);
    struct remembered *m = t->count != 0 ? kv_table_find(t, key->hash, has_key, key) : NULL;
    if (m == NULL)
        return add_key(w, t, key, id);
    uint32_t at = place_of(m, id);
    if (at < m->count && m->ids[at] == id)
        return KV_OK;
    if (m->count == m->capacity && make_room(e, t, &m) != KV_OK)
        return KV_ERR_NOMEM;
    insert_id(e, m, id);
    return KV_OK;
}

void kv_tracking_invalidate(struct kv_worker *w, const struct kv_key *key,
                            const struct kv_client *origin)
{
    struct kv_table *t = table_of(w->engine, key->hash);
    struct remembered *m = t->count != 0 ? kv_table_find(t, key->hash, has_key, key) : NULL;
    if (m != NULL)
        tell_and_forget(w, t, m, origin);
}

void kv_tracking_init_tables(struct kv_engine *e)
{
    struct kv_tracking *tr = &e->tracking;
    tr->shards = kv_mem_zalloc(e->shard_count * sizeof(*tr->shards), KV_MEM_OTHER);
    for (uint32_t i = 0; i < e->shard_count; i++)
        kv_table_init(&tr->shards[i], hash_of_remembered, NULL, KV_MEM_OTHER);
}

static void destroy_item(void *item, void *arg)
{
    (void)arg;
    destroy(item);
}

void kv_tracking_drop_all(struct kv_engine *e)
{
    struct kv_tracking *tr = &e->tracking;
    for (uint32_t i = 0; i < e->shard_count; i++) {
        kv_table_each(&tr->shards[i], destroy_item, NULL);
        kv_table_release(&tr->shards[i]);
    }
    atomic_store(&tr->key_count, 0);
    atomic_store(&tr->item_count, 0);
}

/* --- periodic work --- */

struct gathered {
    struct remembered *entries[SWEEP_ENTRIES]; /* ascending by position */
    uint32_t count;
    uint64_t next; /* position of the first one for which there was no room */
};

static uint64_t position_of(const struct remembered *m)
{
    return kv_table_position(m->hash);
}

/* Keeps the first ones. */
static void gather(void *item, void *arg)
{
    struct remembered *m = item;
    struct gathered *g = arg;
    uint64_t position = position_of(m);
    uint32_t at = g->count;
    if (at == SWEEP_ENTRIES) {
        uint64_t last = position_of(g->entries[--at]);
        g->next = KV_MIN(g->next, KV_MAX(position, last));
        if (position >= last)
            return;
    } else {
        g->count++;
    }
    for (; at > 0 && position_of(g->entries[at - 1]) > position; at--)
        g->entries[at] = g->entries[at - 1];
    g->entries[at] = m;
}

static void sweep_entry(struct kv_engine *e, struct kv_table *t, struct remembered *m)
{
    uint32_t living = kv_tracking_living(e, m->ids, m->count);
    count_items(e, m->count, living);
    m->count = living;
    if (living == 0) {
        take_out(e, t, m);
        destroy(m);
    }
}

/* True when the shard is done. */
static bool sweep_shard(struct kv_worker *w, struct kv_table *t, uint64_t deadline)
{
    struct kv_tracking_sweep *walk = &w->sweep;
    while (t->count != 0 && walk->position != KV_TABLE_POSITION_END) {
        struct gathered g = {.next = KV_TABLE_POSITION_END};
        uint64_t next = kv_table_scan(t, walk->position, SWEEP_ENTRIES / 2, gather, &g);
        for (uint32_t i = 0; i < g.count; i++) {
            if (i != 0 && kv_clock_ticks() >= deadline) {
                walk->position = position_of(g.entries[i]);
                return false;
            }
            sweep_entry(w->engine, t, g.entries[i]);
        }
        walk->position = KV_MIN(next, g.next);
        if (kv_clock_ticks() >= deadline)
            return false;
    }
    return true;
}

/* Likewise. */
static bool trim_shard(struct kv_worker *w, struct kv_table *t, uint64_t deadline)
{
    while (t->count != 0 && is_over_limit(w->engine)) {
        drop_random(w, t);
        if (kv_clock_ticks() >= deadline)
            return false;
    }
    return true;
}

/* Works on the n-th home shard; false: there is more to do with the next tick, or it is taken. */
static bool work_on(struct kv_worker *w, uint32_t home,
                    bool (*slice)(struct kv_worker *w, struct kv_table *t, uint64_t deadline),
                    uint64_t deadline)
{
    const struct kv_engine *e = w->engine;
    uint32_t shard = w->index + home * e->worker_count;
    if (!kv_try_home_shard(w, shard))
        return false;
    w->hold_start = kv_clock_ticks();
    bool done = slice(w, &e->tracking.shards[shard], deadline);
    w->now_ticks = kv_clock_ticks();
    kv_release(w, KV_HOLD_SHARDS);
    return done;
}

static void sweep(struct kv_worker *w, uint32_t homes, uint64_t deadline)
{
    struct kv_tracking_sweep *walk = &w->sweep;
    while (walk->shard < homes) {
        if (!work_on(w, walk->shard, sweep_shard, deadline))
            return;
        walk->position = 0;
        walk->shard++;
        if (w->now_ticks >= deadline)
            return;
    }
    walk->walking = false;
}

static void trim(struct kv_worker *w, uint32_t homes, uint64_t deadline)
{
    uint32_t first = (uint32_t)kv_random_below(&w->random, homes);
    for (uint32_t i = 0; i < homes && is_over_limit(w->engine); i++)
        if (!work_on(w, (first + i) % homes, trim_shard, deadline))
            return;
}

void kv_tracking_cron(struct kv_worker *w)
{
    const struct kv_engine *e = w->engine;
    struct kv_tracking_sweep *walk = &w->sweep;
    uint32_t departed = atomic_load_explicit(&e->tracking.departed, memory_order_relaxed);
    bool sweeps = walk->walking || walk->seen != departed;
    if (KV_LIKELY(!sweeps && !is_over_limit(e)))
        return;
    if (sweeps && !walk->walking)
        *walk = (struct kv_tracking_sweep){.seen = departed, .walking = true};
    uint32_t homes = (e->shard_count - w->index + e->worker_count - 1) / e->worker_count;
    uint64_t deadline = kv_clock_ticks() + kv_clock_ns_to_ticks(SLICE_NS);
    if (sweeps)
        sweep(w, homes, deadline);
    else
        trim(w, homes, deadline);
}
