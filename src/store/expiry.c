/* Expiry: the index of due times, the slices that remove what is due, the hint for their timing.
 *
 * Each database of a shard has one kv_time_index with one record {expiry, hash position} per entry
 * that has a time to live. The record names no pointer: entries move when they grow, and a table
 * finds an entry by position as fast as by hash. Two entries may share position and expiry; then
 * their records are equal too, and it does not matter which is removed first.
 *
 * A slice takes the smallest record, finds its entry, removes both, announces, frees, and looks at
 * the clock every CLOCK_STEP removals. So it removes some keys however late it starts, and a slice
 * of 200 us is kept within the time of one step. A record without an entry is our own mistake and
 * ends the process: an index that lies cannot be repaired by skipping.
 *
 * next_due_ms is exact whenever the shard's lock is free. An insertion lowers it at once; a removal
 * recomputes it only when it removed a record that could have been the earliest. Slices do so once
 * at their end. It is written under the lock and read without, both relaxed: a reader that is late
 * by one change looks again at its next tick.
 *
 * Rejected: sampling, which leaves due keys in memory for as long as luck wants; a heap of
 * pointers, which costs a back reference in every entry; a timer wheel, which must visit keys whose
 * time was moved.
 *
 * Threads: under the shard's lock.
 */
#include "base/clock.h"
#include "store/store_priv.h"

#define CLOCK_STEP 16u /* removals between two looks at the clock */

static_assert(KV_EXPIRY_MAX <= (int64_t)KV_TIME_INDEX_WHEN_MAX, "the index holds every expiry");

static uint64_t database_first_due(const struct kv_database *database)
{
    uint64_t first = database->expiry.first_when;
    return database->member_due != NULL ? KV_MIN(first, database->member_due->first_when) : first;
}

void kv_shard_refresh_due(struct kv_shard *shard)
{
    uint64_t first = database_first_due(&shard->first);
    for (uint32_t db = 1; db < shard->database_end; db++) {
        const struct kv_database *database = shard_database(shard, db);
        if (database != NULL)
            first = KV_MIN(first, database_first_due(database));
    }
    int64_t due = first > (uint64_t)INT64_MAX ? INT64_MAX : (int64_t)first;
    atomic_store_explicit(&shard->next_due_ms, due, memory_order_relaxed);
}

static void record_added(struct kv_shard *shard, int64_t when)
{
    if (when < atomic_load_explicit(&shard->next_due_ms, memory_order_relaxed))
        atomic_store_explicit(&shard->next_due_ms, when, memory_order_relaxed);
}

static void record_removed(struct kv_shard *shard, int64_t when)
{
    if (when <= atomic_load_explicit(&shard->next_due_ms, memory_order_relaxed))
        kv_shard_refresh_due(shard);
}

enum kv_err kv_shard_change_member_due(struct kv_shard *shard, struct kv_database *database,
                                       uint64_t hash, int64_t from, int64_t to)
{
    uint64_t position = kv_table_position(hash);
    enum kv_err err = KV_OK;
    if (from == to)
        return KV_OK;
    if (database->member_due == NULL) {
        database->member_due = kv_mem_try_alloc(sizeof(*database->member_due), KV_MEM_EXPIRY);
        if (database->member_due == NULL)
            return KV_ERR_NOMEM;
        kv_time_index_init(database->member_due, KV_MEM_EXPIRY);
    }
    if (from == KV_NOT_DUE)
        err = kv_time_index_insert(database->member_due, (uint64_t)to, position);
    else if (to == KV_NOT_DUE)
        kv_time_index_remove(database->member_due, (uint64_t)from, position);
    else
        err = kv_time_index_move(database->member_due, (uint64_t)from, (uint64_t)to, position);
    if (database->member_due->count == 0)
        kv_database_drop_member_due(database);
    if (err != KV_OK)
        return err;
    if (from != KV_NOT_DUE)
        record_removed(shard, from);
    if (to != KV_NOT_DUE)
        record_added(shard, to);
    return KV_OK;
}

void kv_database_drop_member_due(struct kv_database *database)
{
    if (database->member_due == NULL)
        return;
    kv_time_index_release(database->member_due);
    kv_mem_free_movable(database->member_due, sizeof(*database->member_due), KV_MEM_EXPIRY);
    database->member_due = NULL;
}

enum kv_err kv_shard_change_expiry(struct kv_shard *shard, struct kv_database *database,
                                   uint64_t hash, int64_t from, int64_t to)
{
    if (KV_LIKELY(from == to))
        return KV_OK;
    struct kv_time_index *index = &database->expiry;
    uint64_t position = kv_table_position(hash);
    KV_DASSERT(to == KV_NO_EXPIRY || (to >= 0 && to <= KV_EXPIRY_MAX));
    enum kv_err err = KV_OK;
    if (from == KV_NO_EXPIRY)
        err = kv_time_index_insert(index, (uint64_t)to, position);
    else if (to == KV_NO_EXPIRY)
        kv_time_index_remove(index, (uint64_t)from, position);
    else
        err = kv_time_index_move(index, (uint64_t)from, (uint64_t)to, position);
    if (KV_UNLIKELY(err != KV_OK))
        return err;
    if (from != KV_NO_EXPIRY)
        record_removed(shard, from);
    if (to != KV_NO_EXPIRY)
        record_added(shard, to);
    return KV_OK;
}

/* --- slices --- */

static bool expires_at(void *item, void *arg)
{
    const int64_t *when = arg;
    return kv_entry_expiry(item) == *when;
}

/* Removes the entry behind the smallest record. */
static void expire_first(struct kv_view *v, struct kv_shard *shard, struct kv_database *database,
                         int64_t when, uint64_t position)
{
    struct kv_entry *e = kv_table_find_position(&database->table, position, expires_at, &when);
    KV_ASSERT(e != NULL);
    struct kv_key k = kv_store_key(v->store, kv_entry_key(e));
    KV_DASSERT(kv_table_position(k.hash) == position);
    snapshot_keep(v, v->db, e);
    database_count_removed(database, e);
    kv_table_remove(&database->table, k.hash, e);
    kv_time_index_remove(&database->expiry, (uint64_t)when, position);
    int64_t due = entry_member_due(e);
    if (KV_UNLIKELY(due != KV_NOT_DUE)) {
        enum kv_err err = kv_shard_change_member_due(shard, database, k.hash, due, KV_NOT_DUE);
        KV_ASSERT(err == KV_OK);
    }
    kv_store_announce_expired(v, shard, &k);
    entry_retire(v, e);
}

/* Goes on until nothing is due in the database (true) or the deadline has passed. */
static bool expire_database(struct kv_view *v, struct kv_shard *shard, struct kv_database *database,
                            uint64_t deadline_ticks, uint64_t *removed)
{
    uint64_t when;
    uint64_t position;
    while (kv_time_index_first(&database->expiry, &when, &position)) {
        if ((int64_t)when > v->now_ms)
            return true;
        if (*removed != 0 && *removed % CLOCK_STEP == 0 && kv_clock_ticks() >= deadline_ticks)
            return false;
        expire_first(v, shard, database, (int64_t)when, position);
        ++*removed;
    }
    return true;
}

uint64_t kv_store_expire_shard(struct kv_view *v, uint32_t shard, uint64_t deadline_ticks,
                               bool *more)
{
    KV_ASSERT(shard <= v->store->shard_mask);
    struct kv_shard *own = &v->store->shards[shard];
    *more = false;
    if (v->flags & KV_VIEW_NO_EXPIRE || kv_store_next_due_hint(v->store, shard) > v->now_ms)
        return 0;
    uint64_t start_ticks = kv_clock_ticks();
    uint64_t removed = 0;
    uint32_t selected = v->db;
    for (uint32_t db = 0; db < own->database_end && !*more; db++) {
        struct kv_database *database = shard_database(own, db);
        if (database != NULL) {
            v->db = db;
            *more = !expire_database(v, own, database, deadline_ticks, &removed) ||
                    !kv_database_expire_members(v, own, database, deadline_ticks, &removed);
        }
    }
    v->db = selected;
    kv_shard_refresh_due(own);
    if (removed != 0)
        kv_stat_add(&v->stats->expire_slices, 1);
    kv_stat_max(&v->stats->slice_ns_max, kv_clock_ticks_to_ns(kv_clock_ticks() - start_ticks));
    KV_DASSERT(!*more || kv_store_next_due_hint(v->store, shard) <= v->now_ms);
    return removed;
}

int64_t kv_store_next_due_hint(const struct kv_store *s, uint32_t shard)
{
    KV_DASSERT(shard <= s->shard_mask);
    return atomic_load_explicit(&s->shards[shard].next_due_ms, memory_order_relaxed);
}

/* Due keys that wait for their slice count as zero in the mean, not as negative. */
int64_t kv_store_average_ttl_ms(const struct kv_store *s, uint32_t db, int64_t now_ms)
{
    KV_ASSERT(db < s->database_count);
    KV_ASSERT(now_ms >= 0);
    unsigned __int128 sum = 0;
    uint64_t count = 0;
    for (uint32_t i = 0; i <= s->shard_mask; i++) {
        const struct kv_database *database = shard_database(&s->shards[i], db);
        if (database != NULL) {
            sum += database->expiry.when_sum;
            count += database->expiry.count;
        }
    }
    if (count == 0)
        return 0;
    int64_t mean = (int64_t)(sum / count);
    return mean > now_ms ? mean - now_ms : 0;
}
