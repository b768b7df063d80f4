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

/* Calls fn for each non-empty part of the databases from..end - 1. */
static void each_filled(struct kv_store *s, uint32_t from, uint32_t end,
                        void (*fn)(struct kv_store *s, struct kv_shard *shard, uint32_t db,
                                   void *arg),
                        void *arg)
{
    for (uint32_t i = 0; i <= s->shard_mask; i++) {
        struct kv_shard *shard = &s->shards[i];
        for (uint32_t db = from; db < KV_MIN(end, shard->database_end); db++) {
            const struct kv_database *database = shard_database(shard, db);
            if (database != NULL && database->table.count != 0)
                fn(s, shard, db, arg);
        }
    }
}

static void count_filled(struct kv_store *s, struct kv_shard *shard, uint32_t db, void *arg)
{
    (void)s;
    (void)shard;
    (void)db;
    ++*(size_t *)arg;
}

static void detach_filled(struct kv_store *s, struct kv_shard *shard, uint32_t db, void *arg)
{
    struct kv_store_garbage *g = arg;
    struct kv_database *database = shard_database(shard, db);
    kv_shard_touch_existing(shard, db, database, NULL);
    g->databases[g->count++] = *database;
    kv_database_init(database, s);
    kv_shard_refresh_due(shard);
}

static void count_changes(struct kv_view *v, uint64_t changes)
{
    v->dirty += changes;
    kv_stat_add(&v->stats->dirty, changes);
}

struct kv_store_garbage *kv_store_flush(struct kv_view *v, uint32_t db)
{
    struct kv_store *s = v->store;
    KV_ASSERT(db == UINT32_MAX || db < s->database_count);
    uint32_t from = db == UINT32_MAX ? 0 : db;
    uint32_t end = db == UINT32_MAX ? s->database_count : db + 1;
    size_t count = 0;
    each_filled(s, from, end, count_filled, &count);
    if (count == 0)
        return NULL;
    for (uint32_t each = from; each < end; each++)
        count_changes(v, kv_store_size(s, each));
    struct kv_store_garbage *g = kv_mem_alloc(garbage_size(count), KV_MEM_OTHER);
    g->count = 0;
    each_filled(s, from, end, detach_filled, g);
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
        kv_shard_touch_existing(shard, a, first, second);
        kv_shard_touch_existing(shard, b, first, second);
        struct kv_database kept = *first;
        *first = *second;
        *second = kept;
    }
    count_changes(v, 1);
}
