/* The bodies of store and shard, and the inlined lookup; for the files of store/ alone. */
#ifndef KV_STORE_STORE_PRIV_H
#define KV_STORE_STORE_PRIV_H

#include "store/collection.h"
#include "store/entry_priv.h"
#include "store/sliced.h"
#include "store/store.h"
#include <stdatomic.h>

/* One database's part of a shard. The bytes are what its entries cost (struct kv_footprint summed):
 * they change where entries are placed, detached and edited, by the database_count functions alone.
 */
struct kv_database {
    int64_t slack_bytes;                    /* of all types: block bytes that hold nothing */
    int64_t string_bytes;                   /* whole blocks of strings */
    struct kv_table table;                  /* entries by hash */
    int64_t other_bytes[KV_TYPE_COUNT - 1]; /* whole blocks of the other types, from type 1 on */
    struct kv_time_index expiry;            /* one record per entry with KV_ENTRY_EXPIRY */
    struct kv_time_index *member_due;       /* one per collection whose members have due times; NULL
                                               without any (member_due.c) */
};

/* Guarded by the shard's lock, but for next_due_ms. The first line is all that a SET or GET of
 * database 0 without a time to live needs, the accounting of a string included; the second is for
 * other types, the third and fourth for times to live. */
struct kv_shard {
    struct kv_database **others;  /* databases 1 and up by number; NULL until one is used */
    struct kv_table *watches;     /* watch records; NULL while no key of the shard is watched */
    struct kv_database first;     /* database 0 */
    _Atomic(int64_t) next_due_ms; /* smallest expiry of all databases, INT64_MAX without one */
    uint32_t database_end;        /* databases from here on were never used */
} KV_ALIGNED(KV_CACHE_LINE);

static_assert(KV_TYPE_STRING == 0, "strings have their own counter");
static_assert(offsetof(struct kv_shard, first.slack_bytes) < KV_CACHE_LINE &&
                  offsetof(struct kv_shard, first.string_bytes) < KV_CACHE_LINE &&
                  offsetof(struct kv_shard, first.table.directory) < KV_CACHE_LINE &&
                  offsetof(struct kv_shard, first.table.count) < KV_CACHE_LINE &&
                  offsetof(struct kv_shard, first.table.depth) < KV_CACHE_LINE,
              "one line is enough");
static_assert(offsetof(struct kv_shard, first.other_bytes[KV_TYPE_OTHER - 1]) == 2 * KV_CACHE_LINE,
              "other types need one line more, but for foreign ones");
static_assert(sizeof(struct kv_shard) == 4 * KV_CACHE_LINE, "an empty shard costs four lines");

/* Fixed after creation, but for hooks. */
struct kv_store {
    struct kv_shard *shards; /* one aligned block */
    uint32_t shard_mask;     /* shard count - 1 */
    uint32_t database_count;
    struct kv_access_rules access;      /* changed alone */
    struct kv_collection_limits limits; /* changed alone */
    bool tells_changes;                 /* somebody wants to know of each change, */
    bool tells_sets;             /* and what a set makes or replaces: kv_store_settle_hooks */
    struct kv_store_hooks hooks; /* members may be NULL */
    struct kv_hash_key hash_key;
    _Atomic(const struct kv_snapshot_hooks *) snapshot; /* the one that goes on, or NULL */
    uint8_t epoch;      /* of entries that are made now; changed alone */
    uint64_t epochs[4]; /* those that entries may have, as bits */
};

/* After hooks or access rules have changed: kv_store_changed looks at one flag for both. */
void kv_store_settle_hooks(struct kv_store *s);

KV_INLINE struct kv_shard *shard_of(const struct kv_store *s, uint64_t hash)
{
    return &s->shards[hash & s->shard_mask];
}

/* NULL when the database never held a key of this shard. */
KV_INLINE struct kv_database *shard_database(const struct kv_shard *shard, uint32_t db)
{
    if (KV_LIKELY(db == 0))
        return (struct kv_database *)(uintptr_t)&shard->first;
    return shard->others != NULL ? shard->others[db] : NULL;
}

/* Likewise, made when missing. */
struct kv_database *kv_shard_database_make(const struct kv_store *s, struct kv_shard *shard,
                                           uint32_t db) KV_COLD;

KV_INLINE struct kv_database *shard_database_get(const struct kv_store *s, struct kv_shard *shard,
                                                 uint32_t db)
{
    struct kv_database *database = shard_database(shard, db);
    return KV_LIKELY(database != NULL) ? database : kv_shard_database_make(s, shard, db);
}

/* --- accounting: plain adds under the shard's lock --- */

KV_INLINE int64_t *database_type_bytes(struct kv_database *database, enum kv_type type)
{
    return KV_LIKELY(type == KV_TYPE_STRING) ? &database->string_bytes
                                             : &database->other_bytes[type - 1];
}

/* The blocks of type `type` went from one footprint to another: this is the one function through
 * which a value that changed in place reports its bytes. */
KV_INLINE void database_count(struct kv_database *database, enum kv_type type,
                              struct kv_footprint from, struct kv_footprint to)
{
    int64_t *bytes = database_type_bytes(database, type);
    int64_t grown = (int64_t)(to.block_bytes - from.block_bytes);
    *bytes += grown;
    database->slack_bytes += grown - (int64_t)(to.used_bytes - from.used_bytes);
    KV_DASSERT(*bytes >= 0 && database->slack_bytes >= 0);
}

/* Likewise when the blocks stay and only what they hold changes. */
KV_INLINE void database_count_used(struct kv_database *database, size_t from_bytes, size_t to_bytes)
{
    database->slack_bytes += (int64_t)from_bytes - (int64_t)to_bytes;
    KV_DASSERT(database->slack_bytes >= 0);
}

KV_INLINE void database_count_placed(struct kv_database *database, const struct kv_entry *e)
{
    database_count(database, kv_entry_type(e), (struct kv_footprint){0, 0}, entry_footprint(e));
}

/* `e` takes the place of `old`: one look at the counters where the type stays. */
KV_INLINE void database_count_replaced(struct kv_database *database, const struct kv_entry *old,
                                       const struct kv_entry *e)
{
    struct kv_footprint from = entry_footprint(old), to = entry_footprint(e);
    if (KV_LIKELY(kv_entry_type(old) == kv_entry_type(e))) {
        database_count(database, kv_entry_type(e), from, to);
        return;
    }
    database_count(database, kv_entry_type(old), from, (struct kv_footprint){0, 0});
    database_count(database, kv_entry_type(e), (struct kv_footprint){0, 0}, to);
}

KV_INLINE void database_count_removed(struct kv_database *database, const struct kv_entry *e)
{
    database_count(database, kv_entry_type(e), entry_footprint(e), (struct kv_footprint){0, 0});
}

KV_INLINE bool entry_has_key(const void *item, const void *key)
{
    const struct kv_key *k = key;
    struct kv_slice have = kv_entry_key(item);
    return have.len == k->len && kv_bytes_equal(have.ptr, k->ptr, k->len);
}

/* The entry of a key, due or not, or NULL. */
KV_INLINE struct kv_entry *database_find(const struct kv_database *database, const struct kv_key *k)
{
    return kv_table_find(&database->table, k->hash, entry_has_key, k);
}

/* --- access clock --- */

/* A client that applies another server's stream has no time of its own (now_ms 0). */
KV_INLINE int64_t access_now_ms(const struct kv_view *v)
{
    return KV_LIKELY(v->now_ms != 0) ? v->now_ms : kv_clock_wall_ms();
}

/* The word of a key that is made now, and of one with this word that is used now. */
uint32_t kv_access_fresh(const struct kv_view *v);
uint32_t kv_access_touched(const struct kv_view *v, uint32_t access);

/* A lookup by a command. */
KV_INLINE void entry_touch(const struct kv_view *v, struct kv_entry *e)
{
    if (KV_UNLIKELY(v->flags & KV_VIEW_NO_TOUCH))
        return;
    if (KV_LIKELY(v->store->access.mode == KV_ACCESS_LRU))
        entry_set_access(e, access_of_tick(access_tick(access_now_ms(v))));
    else if (v->store->access.mode == KV_ACCESS_LFU)
        entry_set_access(e, kv_access_touched(v, entry_access(e)));
}

/* What a new value gets in the place of the old one (NULL: none): a time says now, while a counter
 * is the key's and goes on. */
KV_INLINE uint32_t access_when_set(const struct kv_view *v, const struct kv_entry *old)
{
    if (KV_LIKELY(v->store->access.mode != KV_ACCESS_LFU))
        return access_of_tick(access_tick(access_now_ms(v)));
    if (old == NULL)
        return kv_access_fresh(v);
    uint32_t access = entry_access(old);
    return v->flags & KV_VIEW_NO_TOUCH ? access : kv_access_touched(v, access);
}

/* Watch records, hooks and statistics of an evicted key; before its entry is freed. */
void kv_store_announce_evicted(struct kv_view *v, struct kv_shard *shard, const struct kv_key *k);

/* Before a change of an entry: gives it to the snapshot that goes on, if it still needs it. True:
 * it is open for slices now. */
bool kv_snapshot_keep_entry(struct kv_view *v, uint32_t db, struct kv_entry *e) KV_COLD;

KV_INLINE void snapshot_keep(struct kv_view *v, uint32_t db, struct kv_entry *e)
{
    if (KV_UNLIKELY(atomic_load_explicit(&v->store->snapshot, memory_order_relaxed) != NULL) &&
        e->epoch != v->store->epoch)
        kv_snapshot_keep_entry(v, db, e);
}

/* True when an entry may be changed: a snapshot that goes on has it already. */
KV_INLINE bool snapshot_has(const struct kv_view *v, const struct kv_entry *e)
{
    return atomic_load_explicit(&v->store->snapshot, memory_order_relaxed) == NULL ||
           e->epoch == v->store->epoch;
}

/* Before a change within a large collection that a snapshot may be saving in slices; `g` is the
 * structure's guard. Every path that changes one calls these or kv_store_large_begin. */
KV_INLINE void large_keep_member(struct kv_view *v, struct kv_guard *g, struct kv_slice name,
                                 uint64_t hash)
{
    if (KV_UNLIKELY(g != NULL))
        kv_sliced_keep_member(v, g, name, hash);
}

KV_INLINE void large_keep_end(struct kv_view *v, struct kv_guard *g, enum kv_list_end end,
                              uint64_t items)
{
    if (KV_UNLIKELY(g != NULL))
        kv_sliced_keep_end(v, g, end, items);
}

/* Frees an entry that is in no table any more: at once, or on another thread when it is a large
 * collection of more than KV_RETIRE_ELEMENTS elements. */
#define KV_RETIRE_ELEMENTS 64u
void kv_entry_retire_large(struct kv_view *v, struct kv_entry *e);

KV_INLINE void entry_retire(struct kv_view *v, struct kv_entry *e)
{
    if (KV_LIKELY(!kv_entry_is_large(e)))
        kv_entry_destroy(e);
    else
        kv_entry_retire_large(v, e);
}

/* Meets a due entry: removes it as expired unless the view keeps such entries. */
void kv_store_meet_due(struct kv_view *v, struct kv_shard *shard, struct kv_database *database,
                       const struct kv_key *k, struct kv_entry *e) KV_COLD;

/* Watch records, statistics and hooks of an expired key; before its entry is freed. */
void kv_store_announce_expired(struct kv_view *v, struct kv_shard *shard, const struct kv_key *k);

/* Brings the expiry index from one time to live to another (KV_NO_EXPIRY: none). KV_ERR_NOMEM:
 * nothing changed; never when `to` is KV_NO_EXPIRY. */
enum kv_err kv_shard_change_expiry(struct kv_shard *shard, struct kv_database *database,
                                   uint64_t hash, int64_t from, int64_t to) KV_MUST_CHECK;

/* The same for the record of a collection's members (member_due.c). */
enum kv_err kv_shard_change_member_due(struct kv_shard *shard, struct kv_database *database,
                                       uint64_t hash, int64_t from, int64_t to) KV_MUST_CHECK;

/* Frees the index of members, with whatever is in it. */
void kv_database_drop_member_due(struct kv_database *database);

/* The time that the record of a collection's members says, or KV_NOT_DUE. */
KV_INLINE int64_t entry_member_due(const struct kv_entry *e)
{
    return KV_LIKELY(kv_entry_encoding(e) < KV_ENC_LISTPACKEX) ? KV_NOT_DUE
                                                               : kv_entry_member_due(e);
}

/* Removes due members of collections until none is left (true) or the deadline has passed; counts
 * what it removed. */
bool kv_database_expire_members(struct kv_view *v, struct kv_shard *shard,
                                struct kv_database *database, uint64_t deadline_ticks,
                                uint64_t *removed);

/* Sets next_due_ms anew after a removal of the earliest record. */
void kv_shard_refresh_due(struct kv_shard *shard);

/* Puts an entry in the place of `old`, or where none is (old NULL), index included; `old` is then
 * the caller's. On failure nothing changed, but that the index may keep a node which it took for a
 * record that had to go again. */
enum kv_err kv_shard_place(struct kv_shard *shard, struct kv_database *database, uint64_t hash,
                           struct kv_entry *old, struct kv_entry *e) KV_MUST_CHECK;

/* Tells the hook `added` of entry e, which kv_shard_place has put where nothing was in database db.
 * The functions here do it, but for those that put back or build anew what was there. */
void kv_store_tell_added(struct kv_view *v, uint32_t db, uint64_t hash,
                         struct kv_slice name) KV_COLD;

KV_INLINE void store_added(struct kv_view *v, uint32_t db, uint64_t hash, const struct kv_entry *e)
{
    if (KV_UNLIKELY(v->store->hooks.added != NULL))
        kv_store_tell_added(v, db, hash, kv_entry_key(e));
}

/* Takes an entry out of table and index; it is then the caller's. */
void kv_shard_detach(struct kv_shard *shard, struct kv_database *database, uint64_t hash,
                     struct kv_entry *e);

/* Tells the hook `ready` of every key of a database that somebody waits for. */
void kv_shard_wake_database(struct kv_view *v, struct kv_shard *shard, uint32_t db);

/* Counts a change in the watch record of a key, if somebody watches it. */
void kv_shard_touch_watch(struct kv_shard *shard, uint32_t db, const struct kv_key *k);

/* The same for a change that may serve who waits. True: the hook `ready` is to be told now. */
bool kv_shard_touch_waited(struct kv_shard *shard, uint32_t db, const struct kv_key *k);

/* Touches the records of database `db` whose keys exist in it or in database `other`. Due keys are
 * expired on the way; the records stay where they are. */
void kv_shard_touch_existing(struct kv_view *v, struct kv_shard *shard, uint32_t db,
                             uint32_t other);

/* Asserts the watch records of a shard. */
void kv_shard_check_watches(const struct kv_store *s, const struct kv_shard *shard);

/* An empty database, and the end of one with all its entries. */
void kv_database_init(struct kv_database *database, struct kv_store *s);
void kv_database_release(struct kv_database *database);

#endif
