/* The keyspace: life of store and shards, lookups, announcements.
 *
 *   store -> shards[hash & mask] -> database 0, or others[n] -> kv_table -> entry
 *                                                            -> kv_time_index -> hash position
 *
 * A shard is four cache lines in one array: 4,096 of them with no key cost 1 MiB. Database 0
 * lies in the shard itself, since nearly every key lives there and each pointer on the way to a key
 * is a cache miss in the worst case; databases 1 and up are made with their first key, behind an
 * array of pointers that comes with the first of them. They stay until the store ends (160 bytes
 * each, accounted to KV_MEM_OTHER), so that pointers to them remain good.
 *
 * Invariants
 *   - An entry is in the shard that the lowest bits of its hash name, in one table.
 *   - An entry has the flag KV_ENTRY_EXPIRY exactly when {expiry, position of its hash} is in the
 *     index of the same database.
 *   - slack_bytes, string_bytes and other_bytes are the sums of the entries' footprints. Over all
 *     databases they are what the memory layer counts to KV_MEM_ENTRY and KV_MEM_VALUE, but for
 *     garbage of a flush that is not freed, and for blocks that a command is about to place.
 *   - next_due_ms is the smallest expiry of the shard whenever its lock is free.
 *   - A due entry is never handed out. Whoever meets one removes it: watch records are touched
 *     and the hooks told, but v->dirty stays, since the command that met it changed nothing.
 *
 * Threads: under the lock of the key's shard. next_due_ms alone is read without it.
 *
 * Rejected: a table per database over all shards (SWAPDB by one pointer) - it puts locks of
 * different shards into one table's memory. Deleting databases that became empty - a key that comes
 * and goes would allocate twice.
 */
#include "store/store.h"
#include "store/evict.h"
#include "store/store_priv.h"

#define SHARD_COUNT_MAX 4096u
#define PREFETCH_LINES 8u /* cache lines of a small collection that a batch asks for */
#define DATABASE_COUNT_MAX 65535u

static uint64_t entry_hash(const void *item, void *arg)
{
    const struct kv_store *s = arg;
    struct kv_slice key = kv_entry_key(item);
    return kv_hash_bytes(&s->hash_key, key.ptr, key.len);
}

void kv_database_init(struct kv_database *database, struct kv_store *s)
{
    database->slack_bytes = 0;
    database->string_bytes = 0;
    memset(database->other_bytes, 0, sizeof(database->other_bytes));
    kv_table_init(&database->table, entry_hash, s, KV_MEM_TABLE);
    kv_time_index_init(&database->expiry, KV_MEM_EXPIRY);
    database->member_due = NULL;
}

static void destroy_entry(void *item, void *arg)
{
    (void)arg;
    kv_entry_destroy(item);
}

void kv_database_release(struct kv_database *database)
{
    kv_table_each(&database->table, destroy_entry, NULL);
    kv_table_release(&database->table);
    kv_time_index_release(&database->expiry);
    kv_database_drop_member_due(database);
}

struct kv_database *kv_shard_database_make(const struct kv_store *s, struct kv_shard *shard,
                                           uint32_t db)
{
    KV_ASSERT(db != 0 && db < s->database_count);
    if (shard->others == NULL)
        shard->others = kv_mem_zalloc(s->database_count * sizeof(*shard->others), KV_MEM_OTHER);
    KV_ASSERT(shard->others[db] == NULL);
    struct kv_database *database = kv_mem_alloc(sizeof(*database), KV_MEM_OTHER);
    kv_database_init(database, (struct kv_store *)(uintptr_t)s);
    shard->others[db] = database;
    shard->database_end = KV_MAX(shard->database_end, db + 1);
    return database;
}

/* --- life --- */

struct kv_store *kv_store_create(const struct kv_store_options *options)
{
    uint32_t count = options->shard_count;
    KV_ASSERT(count >= 1 && count <= SHARD_COUNT_MAX);
    KV_ASSERT((count & (count - 1)) == 0);
    KV_ASSERT(options->database_count >= 1 && options->database_count <= DATABASE_COUNT_MAX);
    struct kv_store *s = kv_mem_zalloc(sizeof(*s), KV_MEM_OTHER);
    s->shard_mask = count - 1;
    s->database_count = options->database_count;
    s->hash_key = options->hash_key;
    s->limits = kv_collection_limits_default;
    s->epochs[0] = 1;
    s->shards = kv_mem_alloc_aligned(count * sizeof(*s->shards), KV_CACHE_LINE, KV_MEM_OTHER);
    memset(s->shards, 0, count * sizeof(*s->shards));
    for (uint32_t i = 0; i < count; i++) {
        kv_database_init(&s->shards[i].first, s);
        s->shards[i].database_end = 1;
        atomic_store_explicit(&s->shards[i].next_due_ms, INT64_MAX, memory_order_relaxed);
    }
    return s;
}

static void shard_release(const struct kv_store *s, struct kv_shard *shard)
{
    KV_ASSERT(shard->watches == NULL);
    kv_database_release(&shard->first);
    for (uint32_t db = 1; db < shard->database_end; db++) {
        struct kv_database *database = shard_database(shard, db);
        if (database != NULL) {
            kv_database_release(database);
            kv_mem_free(database, sizeof(*database), KV_MEM_OTHER);
        }
    }
    if (shard->others != NULL)
        kv_mem_free(shard->others, s->database_count * sizeof(*shard->others), KV_MEM_OTHER);
}

void kv_store_destroy(struct kv_store *s)
{
    uint32_t count = s->shard_mask + 1;
    for (uint32_t i = 0; i < count; i++)
        shard_release(s, &s->shards[i]);
    kv_mem_free_aligned(s->shards, count * sizeof(*s->shards), KV_CACHE_LINE, KV_MEM_OTHER);
    kv_mem_free(s, sizeof(*s), KV_MEM_OTHER);
}

void kv_store_set_hooks(struct kv_store *s, const struct kv_store_hooks *hooks)
{
    s->hooks = *hooks;
    kv_store_settle_hooks(s);
}

void kv_store_settle_hooks(struct kv_store *s)
{
    s->tells_sets = s->hooks.added != NULL || s->hooks.replaced != NULL;
    s->tells_changes = s->hooks.changed != NULL || s->access.mode == KV_ACCESS_LRM;
}

const struct kv_store_hooks *kv_store_hooks(const struct kv_store *s)
{
    return &s->hooks;
}

uint32_t kv_store_shard_count(const struct kv_store *s)
{
    return s->shard_mask + 1;
}

uint32_t kv_store_database_count(const struct kv_store *s)
{
    return s->database_count;
}

uint64_t kv_store_hash(const struct kv_store *s, const void *bytes, size_t len)
{
    return kv_hash_bytes(&s->hash_key, bytes, len);
}

uint32_t kv_store_shard_of(const struct kv_store *s, uint64_t hash)
{
    return (uint32_t)hash & s->shard_mask;
}

/* --- prefetch --- */

void kv_store_prefetch_bucket(const struct kv_view *v, uint64_t hash)
{
    const struct kv_database *database = shard_database(shard_of(v->store, hash), v->db);
    if (database != NULL)
        kv_table_prefetch_bucket(&database->table, hash);
}

void kv_store_reserve(struct kv_view *v, uint32_t shard, uint64_t count)
{
    KV_ASSERT(shard <= v->store->shard_mask);
    struct kv_database *database = shard_database_get(v->store, &v->store->shards[shard], v->db);
    if (database->table.count == 0)
        (void)!kv_table_reserve(&database->table, count);
}

/* Looks at the home bucket alone: the line that stage 1 fetched. Its neighbours would be misses,
 * and a miss here costs what the prefetch was to save. */
const struct kv_entry *kv_store_prefetch_entry(const struct kv_view *v, uint64_t hash)
{
    const struct kv_database *database = shard_database(shard_of(v->store, hash), v->db);
    if (KV_UNLIKELY(database == NULL || database->table.directory == NULL))
        return NULL;
    uint64_t word = kv_table_word(&database->table, hash);
    uint64_t tag = kv_table_tag(hash);
    const struct kv_table_bucket *bucket = &kv_table_word_buckets(word)[kv_table_home(word, tag)];
    const char *item = NULL;
    for (unsigned set = kv_table_match(bucket, tag); set != 0; set &= set - 1) {
        item = kv_table_slot_item(bucket->slot[kv_table_match_slot(set)]);
        KV_PREFETCH(item);
        KV_PREFETCH(item + KV_CACHE_LINE);
    }
    return (const struct kv_entry *)item;
}

/* The bytes of a small collection, but for the two lines that came with the entry. */
static void prefetch_small(const struct kv_entry *e)
{
    struct entry_parts parts = entry_parts(e);
    const char *line = (const char *)e + 2 * KV_CACHE_LINE;
    const char *end = (const char *)parts.value + parts.value_len;
    if (e->flags & KV_ENTRY_POINTER) {
        /* Its length would be a miss. */
        line = (const char *)kv_entry_bigstr(e);
        end = line + PREFETCH_LINES * KV_CACHE_LINE;
    }
    for (unsigned i = 0; i < PREFETCH_LINES && line < end; i++, line += KV_CACHE_LINE)
        KV_PREFETCH(line);
}

const struct kv_table *kv_store_prefetch_member(const struct kv_view *v, const struct kv_entry *e,
                                                struct kv_slice member, uint64_t *member_hash)
{
    if (kv_entry_type(e) == KV_TYPE_STRING)
        return NULL;
    if (!kv_entry_is_large(e)) {
        prefetch_small(e);
        return NULL;
    }
    const struct kv_table *table = kv_entry_table(e);
    if (table != NULL) {
        *member_hash = kv_hash_bytes(&v->store->hash_key, member.ptr, member.len);
        kv_table_prefetch_bucket(table, *member_hash);
    }
    return table;
}

/* --- looking up --- */

void kv_store_announce_expired(struct kv_view *v, struct kv_shard *shard, const struct kv_key *k)
{
    const struct kv_store_hooks *hooks = &v->store->hooks;
    kv_stat_add(&v->stats->expired_keys, 1);
    kv_shard_touch_watch(shard, v->db, k);
    if (hooks->changed != NULL)
        hooks->changed(v, k, KV_EVENT_EXPIRED, "expired");
    if (hooks->expired != NULL)
        hooks->expired(v, k);
}

void kv_store_announce_evicted(struct kv_view *v, struct kv_shard *shard, const struct kv_key *k)
{
    const struct kv_store_hooks *hooks = &v->store->hooks;
    kv_stat_add(&v->stats->evicted_keys, 1);
    kv_shard_touch_watch(shard, v->db, k);
    if (hooks->changed != NULL)
        hooks->changed(v, k, KV_EVENT_EVICTED, "evicted");
    if (hooks->evicted != NULL)
        hooks->evicted(v, k);
}

void kv_store_meet_due(struct kv_view *v, struct kv_shard *shard, struct kv_database *database,
                       const struct kv_key *k, struct kv_entry *e)
{
    KV_DASSERT(kv_entry_due(e, v->now_ms));
    if (v->flags & KV_VIEW_NO_EXPIRE)
        return;
    snapshot_keep(v, v->db, e);
    kv_shard_detach(shard, database, k->hash, e);
    kv_store_announce_expired(v, shard, k);
    entry_retire(v, e);
}

void kv_entry_retire_large(struct kv_view *v, struct kv_entry *e)
{
    const struct kv_store_hooks *hooks = &v->store->hooks;
    struct kv_guard *g = kv_entry_guard(e);
    if (KV_UNLIKELY(g != NULL)) {
        kv_sliced_hand_over(g);
        kv_entry_free_block(e);
    } else if (hooks->free_later != NULL && kv_entry_elements(e) > KV_RETIRE_ELEMENTS)
        hooks->free_later(v, kv_store_free_evicted, e);
    else
        kv_entry_destroy(e);
}

KV_INLINE struct kv_entry *lookup(struct kv_view *v, const struct kv_key *k)
{
    KV_DASSERT(v->db < v->store->database_count);
    KV_DASSERT(k->hash == kv_store_hash(v->store, k->ptr, k->len));
    struct kv_shard *shard = shard_of(v->store, k->hash);
    struct kv_database *database = shard_database(shard, v->db);
    if (KV_UNLIKELY(database == NULL))
        return NULL;
    struct kv_entry *e = database_find(database, k);
    if (e != NULL && KV_UNLIKELY(kv_entry_due(e, v->now_ms))) {
        kv_store_meet_due(v, shard, database, k, e);
        return NULL;
    }
    return e;
}

static KV_NOINLINE struct kv_entry *count_miss(struct kv_view *v, const struct kv_key *k)
{
    kv_stat_add(&v->stats->misses, 1);
    if (KV_UNLIKELY(v->store->hooks.missed != NULL) && !(v->flags & KV_VIEW_QUIET))
        v->store->hooks.missed(v, k);
    return NULL;
}

struct kv_entry *kv_store_read(struct kv_view *v, const struct kv_key *k)
{
    struct kv_entry *e = lookup(v, k);
    if (e == NULL)
        return count_miss(v, k);
    kv_stat_add(&v->stats->hits, 1);
    entry_touch(v, e);
    return e;
}

struct kv_entry *kv_store_write(struct kv_view *v, const struct kv_key *k)
{
    struct kv_entry *e = lookup(v, k);
    if (e != NULL) {
        snapshot_keep(v, v->db, e);
        entry_touch(v, e);
    }
    return e;
}

struct kv_entry *kv_store_peek(struct kv_view *v, const struct kv_key *k)
{
    return lookup(v, k);
}

/* --- announcing --- */

/* Looking the key up again costs only those who choose LRM, and catches every change. */
static void touch_changed(struct kv_view *v, const struct kv_shard *shard, const struct kv_key *k)
{
    const struct kv_database *database = shard_database(shard, v->db);
    struct kv_entry *e = database != NULL ? database_find(database, k) : NULL;
    if (e != NULL)
        entry_set_access(e, kv_access_fresh(v));
}

/* Apart, so that a change about which nobody cares saves no registers. */
static KV_NOINLINE void tell_changed(struct kv_view *v, struct kv_shard *shard,
                                     const struct kv_key *k, enum kv_event_class event_class,
                                     const char *event)
{
    const struct kv_store *s = v->store;
    if (shard->watches != NULL && kv_shard_touch_waited(shard, v->db, k) && s->hooks.ready != NULL)
        s->hooks.ready(v, k);
    if (s->access.mode == KV_ACCESS_LRM)
        touch_changed(v, shard, k);
    if (s->hooks.changed != NULL)
        s->hooks.changed(v, k, event_class, event);
}

void kv_store_changed(struct kv_view *v, const struct kv_key *k, enum kv_event_class event_class,
                      const char *event)
{
    const struct kv_store *s = v->store;
    struct kv_shard *shard = shard_of(s, k->hash);
    v->dirty++;
    kv_stat_add(&v->stats->dirty, 1);
    if (KV_UNLIKELY(shard->watches != NULL || s->tells_changes))
        tell_changed(v, shard, k, event_class, event);
}

void kv_store_replaced(struct kv_view *v, const struct kv_key *k, enum kv_type old,
                       enum kv_type type)
{
    if (KV_UNLIKELY(v->store->hooks.replaced != NULL))
        v->store->hooks.replaced(v, k, old != type);
}

void kv_store_renewed(struct kv_view *v, const struct kv_key *k, enum kv_type old,
                      enum kv_type type)
{
    if (KV_UNLIKELY(v->store->hooks.added != NULL))
        kv_store_tell_added(v, v->db, k->hash, kv_slice(k->ptr, k->len));
    kv_store_replaced(v, k, old, type);
}

void kv_store_tell_added(struct kv_view *v, uint32_t db, uint64_t hash, struct kv_slice name)
{
    struct kv_key k = {name.ptr, name.len, hash};
    uint32_t selected = v->db;
    if (v->flags & KV_VIEW_QUIET)
        return;
    v->db = db;
    v->store->hooks.added(v, &k);
    v->db = selected;
}

/* --- counts --- */

static uint64_t sum_databases(const struct kv_store *s, uint32_t db,
                              uint64_t (*count)(const struct kv_database *))
{
    KV_ASSERT(db < s->database_count);
    uint64_t sum = 0;
    for (uint32_t i = 0; i <= s->shard_mask; i++) {
        const struct kv_database *database = shard_database(&s->shards[i], db);
        if (database != NULL)
            sum += count(database);
    }
    return sum;
}

static uint64_t count_keys(const struct kv_database *database)
{
    return database->table.count;
}

static uint64_t count_expires(const struct kv_database *database)
{
    return database->expiry.count;
}

static uint64_t count_member_expires(const struct kv_database *database)
{
    return database->member_due != NULL ? database->member_due->count : 0;
}

static uint64_t count_table_bytes(const struct kv_database *database)
{
    return kv_table_memory(&database->table);
}

static uint64_t count_expiry_bytes(const struct kv_database *database)
{
    uint64_t bytes = kv_time_index_memory(&database->expiry);
    if (database->member_due != NULL)
        bytes += kv_mem_block_size(sizeof(*database->member_due)) +
                 kv_time_index_memory(database->member_due);
    return bytes;
}

uint64_t kv_store_size(const struct kv_store *s, uint32_t db)
{
    return sum_databases(s, db, count_keys);
}

uint64_t kv_store_expires(const struct kv_store *s, uint32_t db)
{
    return sum_databases(s, db, count_expires);
}

uint64_t kv_store_member_expires(const struct kv_store *s, uint32_t db)
{
    return sum_databases(s, db, count_member_expires);
}

uint64_t kv_store_table_memory(const struct kv_store *s, uint32_t db)
{
    return sum_databases(s, db, count_table_bytes);
}

uint64_t kv_store_expiry_memory(const struct kv_store *s, uint32_t db)
{
    return sum_databases(s, db, count_expiry_bytes);
}

void kv_store_memory(const struct kv_store *s, uint32_t db, struct kv_store_memory *out)
{
    KV_ASSERT(db < s->database_count);
    *out = (struct kv_store_memory){0};
    for (uint32_t i = 0; i <= s->shard_mask; i++) {
        struct kv_database *database = shard_database(&s->shards[i], db);
        if (database == NULL)
            continue;
        for (int type = 0; type < KV_TYPE_COUNT; type++)
            out->type_bytes[type] += *database_type_bytes(database, (enum kv_type)type);
        out->slack_bytes += database->slack_bytes;
    }
}

uint64_t kv_store_shard_size(const struct kv_store *s, uint32_t shard, uint32_t db)
{
    KV_ASSERT(shard <= s->shard_mask && db < s->database_count);
    const struct kv_database *database = shard_database(&s->shards[shard], db);
    return database != NULL ? database->table.count : 0;
}
