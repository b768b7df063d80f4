/* Visiting entries: SCAN within a shard, all of a database, a random one.
 *
 * Order and guarantees are the table's (ds/table.h): a position depends on the hash alone, so a
 * scan that goes on after any number of changes still meets every key that was there throughout,
 * once. What store/ adds is that due entries are skipped. They are not removed here, since a
 * visitor may not change the table; kv_store_random, which visits nothing, does remove what it
 * meets and so makes progress among many due keys.
 *
 * Threads: kv_store_each alone; the others under the lock of their shard.
 */
#include "store/store_priv.h"

#define RANDOM_TRIES 100 /* draws before a shard counts as having nothing to offer */

struct visit_live {
    void (*visit)(struct kv_entry *e, void *arg);
    void *arg;
    int64_t now_ms;
};

static void visit_if_live(void *item, void *arg)
{
    const struct visit_live *live = arg;
    struct kv_entry *e = item;
    if (!kv_entry_due(e, live->now_ms))
        live->visit(e, live->arg);
}

void kv_store_each(struct kv_view *v, void (*visit)(struct kv_entry *e, void *arg), void *arg)
{
    KV_ASSERT(v->db < v->store->database_count);
    struct visit_live live = {visit, arg, v->now_ms};
    for (uint32_t i = 0; i <= v->store->shard_mask; i++) {
        const struct kv_database *database = shard_database(&v->store->shards[i], v->db);
        if (database != NULL)
            kv_table_each(&database->table, visit_if_live, &live);
    }
}

uint64_t kv_store_scan_shard(struct kv_view *v, uint32_t shard, uint64_t position, uint64_t count,
                             void (*visit)(struct kv_entry *e, void *arg), void *arg)
{
    KV_ASSERT(shard <= v->store->shard_mask && v->db < v->store->database_count);
    KV_ASSERT(position <= KV_TABLE_POSITION_END);
    const struct kv_database *database = shard_database(&v->store->shards[shard], v->db);
    if (database == NULL || database->table.count == 0 || position == KV_TABLE_POSITION_END)
        return KV_TABLE_POSITION_END;
    struct visit_live live = {visit, arg, v->now_ms};
    return kv_table_scan(&database->table, position, count, visit_if_live, &live);
}

struct kv_entry *kv_store_random(struct kv_view *v, uint32_t shard, struct kv_random *r)
{
    KV_ASSERT(shard <= v->store->shard_mask && v->db < v->store->database_count);
    struct kv_shard *own = &v->store->shards[shard];
    struct kv_database *database = shard_database(own, v->db);
    for (int i = 0; database != NULL && i < RANDOM_TRIES; i++) {
        struct kv_entry *e = kv_table_random(&database->table, r);
        if (e == NULL || !kv_entry_due(e, v->now_ms))
            return e;
        struct kv_key k = kv_store_key(v->store, kv_entry_key(e));
        kv_store_meet_due(v, own, database, &k, e);
    }
    return NULL;
}
