/* Moving and copying entries to another key or database: RENAME, MOVE, COPY.
 *
 * Both take an entry and a destination, replace what is there, and announce nothing of their own.
 * A destination that is due is expired first, in its own database and with its announcement, so
 * that replacing it does not hide that it had ended.
 *
 * A move under the same key into another database hands the block over as it is. A move to another
 * key builds a new block, since the key lies within; a value in a block of its own passes on and is
 * never copied, however large. The destination is filled before the source is emptied: the first
 * can fail, the second cannot. Source and destination may be one table and one index; their records
 * there are independent, and equal records are allowed.
 *
 * Rejected: letting a copy share a large string by reference count. The block has one payer, and
 * two entries in different shards would decide about it under different locks.
 *
 * Threads: under the locks of both keys' shards.
 */
#include "store/store_priv.h"

/* Destination: shard, database and what is there (not due). */
struct destination {
    struct kv_shard *shard;
    struct kv_database *database;
    struct kv_entry *old; /* NULL: nothing */
};

static struct destination find_destination(struct kv_view *v, uint32_t db, const struct kv_key *k)
{
    KV_ASSERT(db < v->store->database_count);
    KV_DASSERT(k->hash == kv_store_hash(v->store, k->ptr, k->len));
    struct destination d = {.shard = shard_of(v->store, k->hash)};
    d.database = shard_database_get(v->store, d.shard, db);
    d.old = database_find(d.database, k);
    if (d.old != NULL && kv_entry_due(d.old, v->now_ms) && !(v->flags & KV_VIEW_NO_EXPIRE)) {
        /* The hooks read the database from the view that the command uses. */
        uint32_t selected = v->db;
        v->db = db;
        kv_store_meet_due(v, d.shard, d.database, k, d.old);
        v->db = selected;
        d.old = NULL;
    }
    if (d.old != NULL)
        snapshot_keep(v, db, d.old);
    return d;
}

/* `e` is in its place: tells of it, and frees what was there. */
static void settle_destination(struct kv_view *v, uint32_t db, const struct kv_key *k,
                               const struct destination *d, const struct kv_entry *e)
{
    if (d->old == NULL) {
        store_added(v, db, k->hash, e);
        return;
    }
    uint32_t selected = v->db;
    v->db = db;
    kv_store_renewed(v, k, kv_entry_type(d->old), kv_entry_type(e));
    v->db = selected;
    entry_retire(v, d->old);
}

enum kv_err kv_store_move(struct kv_view *v, const struct kv_key *from, struct kv_entry *e,
                          uint32_t to_db, const struct kv_key *to)
{
    struct kv_shard *shard = shard_of(v->store, from->hash);
    struct kv_database *database = shard_database(shard, v->db);
    KV_DASSERT(database != NULL && database_find(database, from) == e);
    struct destination d = find_destination(v, to_db, to);
    if (d.old == e)
        return KV_OK;
    snapshot_keep(v, v->db, e);
    struct kv_entry *moved = e;
    if (!entry_has_key(e, to)) {
        moved = kv_entry_rebuild(e, kv_slice(to->ptr, to->len), kv_entry_expiry(e), false);
        if (moved == NULL)
            return KV_ERR_NOMEM;
    }
    enum kv_err err = kv_shard_place(d.shard, d.database, to->hash, d.old, moved);
    if (err != KV_OK) {
        if (moved != e)
            kv_entry_discard(moved, e);
        return err;
    }
    settle_destination(v, to_db, to, &d, moved);
    struct kv_guard *g = kv_entry_guard(moved);
    if (KV_UNLIKELY(g != NULL))
        kv_sliced_rehome(g, (uint32_t)(to->hash & v->store->shard_mask));
    kv_shard_detach(shard, database, from->hash, e);
    if (moved != e)
        kv_entry_discard(e, moved);
    return KV_OK;
}

enum kv_err kv_store_copy(struct kv_view *v, struct kv_entry *e, uint32_t to_db,
                          const struct kv_key *to)
{
    struct destination d = find_destination(v, to_db, to);
    if (d.old == e)
        return KV_OK;
    struct kv_entry *copied =
        kv_entry_rebuild(e, kv_slice(to->ptr, to->len), kv_entry_expiry(e), true);
    if (copied == NULL)
        return KV_ERR_NOMEM;
    /* A copy is a new key: it was accessed now, and no snapshot has seen it. */
    entry_set_access(copied, kv_access_fresh(v));
    copied->epoch = v->store->epoch;
    enum kv_err err = kv_shard_place(d.shard, d.database, to->hash, d.old, copied);
    if (err != KV_OK) {
        kv_entry_destroy(copied);
        return err;
    }
    settle_destination(v, to_db, to, &d, copied);
    return KV_OK;
}
