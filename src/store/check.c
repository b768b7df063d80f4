/* The walk over everything that asserts what must hold between the parts of the store. What holds
 * within a part (table, index, entry, watch records) is asked of that part.
 *
 * Per database of a shard: every entry is found under its own key, belongs to this shard, and is
 * laid out by the rules; the index has as many records as there are entries with a time to live,
 * their sums agree, each record finds an entry of its position and time, and the counted bytes are
 * the sums over the entries. Per shard: the hint of
 * the next due time is exact.
 *
 * Costs several lookups an entry: for tests and for an operator who asks.
 *
 * Threads: alone, behind the gate.
 */
#include "store/store_priv.h"

struct totals {
    const struct kv_store *store;
    const struct kv_shard *shard;
    const struct kv_database *database;
    uint64_t entries, expires, member_dues;
    unsigned __int128 expiry_sum;
    int64_t type_bytes[KV_TYPE_COUNT], slack_bytes;
};

static bool is_entry(void *item, void *arg)
{
    return item == arg;
}

static void check_entry(void *item, void *arg)
{
    struct totals *t = arg;
    struct kv_entry *e = item;
    struct kv_key k = kv_store_key(t->store, kv_entry_key(e));
    uint64_t position = kv_table_position(k.hash);
    kv_entry_check(e);
    KV_ASSERT(shard_of(t->store, k.hash) == t->shard);
    KV_ASSERT(database_find(t->database, &k) == e);
    KV_ASSERT(kv_table_find_position(&t->database->table, position, is_entry, e) == e);
    struct kv_footprint f = kv_entry_footprint(e);
    t->type_bytes[kv_entry_type(e)] += (int64_t)f.block_bytes;
    t->slack_bytes += (int64_t)(f.block_bytes - f.used_bytes);
    t->entries++;
    t->member_dues += entry_member_due(e) != KV_NOT_DUE;
    if (kv_entry_has_expiry(e)) {
        t->expires++;
        t->expiry_sum += (uint64_t)kv_entry_expiry(e);
    }
}

static void check_database(const struct kv_store *s, const struct kv_shard *shard,
                           const struct kv_database *database)
{
    struct totals t = {.store = s, .shard = shard, .database = database};
    kv_table_check(&database->table);
    kv_time_index_check(&database->expiry);
    kv_table_each(&database->table, check_entry, &t);
    KV_ASSERT(t.entries == database->table.count);
    KV_ASSERT(t.expires == database->expiry.count);
    KV_ASSERT((database->member_due != NULL) == (t.member_dues != 0));
    if (database->member_due != NULL) {
        kv_time_index_check(database->member_due);
        KV_ASSERT(t.member_dues == database->member_due->count);
    }
    KV_ASSERT(t.expiry_sum == database->expiry.when_sum);
    KV_ASSERT((database->expiry.first_when == UINT64_MAX) == (t.expires == 0));
    KV_ASSERT(t.slack_bytes == database->slack_bytes);
    KV_ASSERT(t.type_bytes[KV_TYPE_STRING] == database->string_bytes);
    for (int type = 1; type < KV_TYPE_COUNT; type++)
        KV_ASSERT(t.type_bytes[type] == database->other_bytes[type - 1]);
}

static void check_shard(const struct kv_store *s, const struct kv_shard *shard)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t db = 0; db < s->database_count; db++) {
        const struct kv_database *database = shard_database(shard, db);
        KV_ASSERT(database == NULL || db < shard->database_end);
        if (database != NULL) {
            check_database(s, shard, database);
            first = KV_MIN(first, database->expiry.first_when);
            if (database->member_due != NULL)
                first = KV_MIN(first, database->member_due->first_when);
        }
    }
    int64_t hint = atomic_load_explicit(&shard->next_due_ms, memory_order_relaxed);
    KV_ASSERT(hint == (first == UINT64_MAX ? INT64_MAX : (int64_t)first));
    kv_shard_check_watches(s, shard);
}

void kv_store_check(struct kv_store *s)
{
    KV_ASSERT((s->shard_mask & (s->shard_mask + 1)) == 0);
    for (uint32_t i = 0; i <= s->shard_mask; i++)
        check_shard(s, &s->shards[i]);
}
