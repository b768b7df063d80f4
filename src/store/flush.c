/* Emptying and exchanging whole databases.
 *
 * A flush detaches: each non-empty table and index is moved, as a struct, into one block of garbage
 * and an empty one takes its place. That takes O(databases * shards) steps and no look at any key,
 * whatever their number; freeing the entries is kv_store_garbage_free's work, on the caller's
 * thread or another. The garbage refers to nothing in the store.
 *
 * Watch records come first, while the tables still tell which keys exist: a key that is not there
 * is not changed by a flush, so its watchers go on.
 *
 * A swap exchanges per shard the two databases' structs (database 0 lies within the shard, so
 * pointers alone would not do). It touches watchers of keys that exist on either side, without
 * comparing values: equal bytes in another database are another key's bytes.
 *
 * Threads: alone, behind the gate; kv_store_garbage_free anywhere without a lock.
 */
#include "store/store_priv.h"

struct kv_store_garbage {
    size_t count; /* elements */
    struct kv_database databases[];
};

static size_t garbage_size(size_t count)
{
    return sizeof(struct kv_store_garbage) + count * sizeof(struct kv_database);
}

static void count_changes(struct kv_view *v, uint64_t changes)
{
    v->dirty += changes;
    kv_stat_add(&v->stats->dirty, changes);
}

/* Touches watches, counts keys and parts that are not empty. Hooks may run in here. */
static size_t prepare_shard(struct kv_view *v, struct kv_shard *shard, uint32_t from, uint32_t end)
{
    size_t count = 0;
    for (uint32_t db = from; db < KV_MIN(end, shard->database_end); db++) {
        const struct kv_database *database = shard_database(shard, db);
        if (database == NULL || database->table.count == 0)
            continue;
        kv_shard_touch_existing(v, shard, db, db);
        count_changes(v, database->table.count);
        count += database->table.count != 0;
    }
    return count;
}

static void detach_shard(struct kv_store *s, struct kv_shard *shard, uint32_t from, uint32_t end,
                         struct kv_store_garbage *g)
{
    for (uint32_t db = from; db < KV_MIN(end, shard->database_end); db++) {
        struct kv_database *database = shard_database(shard, db);
        if (database != NULL && database->table.count != 0) {
            g->databases[g->count++] = *database;
            kv_database_init(database, s);
        }
    }
    kv_shard_refresh_due(shard);
}

struct kv_store_garbage *kv_store_flush(struct kv_view *v, uint32_t db)
{
    struct kv_store *s = v->store;
    KV_ASSERT(db == UINT32_MAX || db < s->database_count);
    uint32_t from = db == UINT32_MAX ? 0 : db;
    uint32_t end = db == UINT32_MAX ? s->database_count : db + 1;
    size_t count = 0;
    for (uint32_t i = 0; i <= s->shard_mask; i++)
        count += prepare_shard(v, &s->shards[i], from, end);
    if (count == 0)
        return NULL;
    struct kv_store_garbage *g = kv_mem_alloc(garbage_size(count), KV_MEM_OTHER);
    g->count = 0;
    for (uint32_t i = 0; i <= s->shard_mask; i++)
        detach_shard(s, &s->shards[i], from, end, g);
    KV_ASSERT(g->count == count);
    return g;
}

void kv_store_garbage_free(struct kv_store_garbage *g)
{
    if (g == NULL)
        return;
    size_t size = garbage_size(g->count);
    for (size_t i = 0; i < g->count; i++)
        kv_database_release(&g->databases[i]);
    kv_mem_free(g, size, KV_MEM_OTHER);
}

void kv_store_swap(struct kv_view *v, uint32_t a, uint32_t b)
{
    struct kv_store *s = v->store;
    KV_ASSERT(a < s->database_count && b < s->database_count);
    if (a == b)
        return;
    for (uint32_t i = 0; i <= s->shard_mask; i++) {
        struct kv_shard *shard = &s->shards[i];
        if (shard_database(shard, a) == NULL && shard_database(shard, b) == NULL)
            continue;
        struct kv_database *first = shard_database_get(s, shard, a);
        struct kv_database *second = shard_database_get(s, shard, b);
        kv_shard_touch_existing(v, shard, a, b);
        kv_shard_touch_existing(v, shard, b, a);
        struct kv_database kept = *first;
        *first = *second;
        *second = kept;
        kv_shard_wake_database(v, shard, a);
        kv_shard_wake_database(v, shard, b);
    }
    count_changes(v, 1);
}
