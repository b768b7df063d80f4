/* Snapshots: the epoch, saving before a change, the walk.
 *
 * Invariants
 *   - While a snapshot goes on, an entry with the store's epoch needs nothing; any other was there
 *     at the moment and has not been given to the hook.
 *   - Entries are made with the store's epoch, whether or not a snapshot goes on. So after a
 *     complete one all entries have its epoch, and the next takes another. A cancelled one leaves
 *     two: `epochs` notes which of the 256 may occur. Should a run of cancelled snapshots use up
 *     all of them, the next begins with a walk that sets every entry to 0.
 *   - Who changes an entry calls snapshot_keep (store_priv.h) while it is still as it was: lookups
 *     for writing, setting, deleting, expiry, eviction, moving. That costs one load and a
 *     comparison while there is no snapshot.
 *
 * The walk goes by positions of the hash, as SCAN does: it meets every entry that is there from
 * beginning to end, and those that were changed meanwhile have been saved by then.
 *
 * Rejected: versions of entries kept until the snapshot has passed them. They cost memory for as
 * long as the snapshot lasts; serializing at once costs the writer the time that the snapshot would
 * spend anyway.
 */
#include "store/snapshot.h"
#include "base/clock.h"
#include "store/sliced.h"
#include "store/store_priv.h"

#define EPOCHS 256u

static bool epoch_used(const struct kv_store *s, unsigned epoch)
{
    return s->epochs[epoch / 64] >> epoch % 64 & 1;
}

static void reset_entry(struct kv_entry *e, void *arg)
{
    (void)arg;
    e->epoch = 0;
}

/* All epochs may occur: makes room by setting every entry to 0. */
static void reset_epochs(struct kv_store *s)
{
    struct kv_view v = {.store = s};
    for (v.db = 0; v.db < s->database_count; v.db++)
        kv_store_each(&v, reset_entry, NULL);
    memset(s->epochs, 0, sizeof(s->epochs));
    s->epochs[0] = 1;
}

void kv_store_snapshot_begin(struct kv_store *s, const struct kv_snapshot_hooks *hooks)
{
    KV_ASSERT(!kv_store_snapshot_active(s) && hooks->save != NULL);
    unsigned epoch = s->epoch;
    unsigned tried = 0;
    do
        epoch = (epoch + 1) % EPOCHS;
    while (epoch_used(s, epoch) && ++tried < EPOCHS);
    if (tried == EPOCHS) {
        reset_epochs(s);
        epoch = 1;
    }
    s->epochs[epoch / 64] |= UINT64_C(1) << epoch % 64;
    s->epoch = (uint8_t)epoch;
    atomic_store(&s->snapshot, hooks);
}

bool kv_store_snapshot_active(const struct kv_store *s)
{
    return atomic_load(&s->snapshot) != NULL;
}

void kv_store_snapshot_end(struct kv_store *s, bool complete)
{
    KV_ASSERT(kv_store_snapshot_active(s));
    atomic_store(&s->snapshot, NULL);
    if (!complete)
        return;
    memset(s->epochs, 0, sizeof(s->epochs));
    s->epochs[s->epoch / 64] = UINT64_C(1) << s->epoch % 64;
}

/* True: a large collection was opened. */
static bool open_large(struct kv_view *v, const struct kv_snapshot_hooks *hooks, uint32_t db,
                       const struct kv_entry *e)
{
    if (KV_LIKELY(!kv_entry_is_large(e)) || hooks->slice == NULL ||
        entry_footprint(e).block_bytes <= KV_SLICED_BYTES)
        return false;
    struct kv_slice key = kv_entry_key(e);
    uint64_t hash = kv_store_hash(v->store, key.ptr, key.len);
    KV_ASSERT(kv_entry_guard(e) == NULL);
    return hooks->slice(v, db, e, (uint32_t)(hash & v->store->shard_mask));
}

bool kv_snapshot_keep_entry(struct kv_view *v, uint32_t db, struct kv_entry *e)
{
    struct kv_store *s = v->store;
    const struct kv_snapshot_hooks *hooks =
        atomic_load_explicit(&s->snapshot, memory_order_acquire);
    bool opened = false;
    KV_DASSERT(e->epoch != s->epoch);
    if (hooks != NULL) { /* it may have been given up a moment ago */
        opened = open_large(v, hooks, db, e);
        if (!opened)
            hooks->save(v, db, e);
    }
    e->epoch = s->epoch;
    return opened;
}

struct visit {
    struct kv_view *view;
    bool opened;
};

static void visit(void *item, void *arg)
{
    struct visit *x = arg;
    struct kv_entry *e = item;
    if (e->epoch != x->view->store->epoch)
        x->opened |= kv_snapshot_keep_entry(x->view, x->view->db, e);
}

/* One step within the database of the position; true: there is nothing left in the shard. */
static bool step(struct visit *x, struct kv_shard *shard, struct kv_snapshot_position *p)
{
    if (p->db >= shard->database_end)
        return true;
    struct kv_database *database = shard_database(shard, p->db);
    if (database != NULL) {
        x->view->db = p->db;
        kv_table_scan_ahead(&database->table, p->table);
        p->table = kv_table_scan(&database->table, p->table, 1, visit, x);
    }
    if (database == NULL || p->table == KV_TABLE_POSITION_END)
        *p = (struct kv_snapshot_position){.db = p->db + 1};
    return false;
}

bool kv_store_snapshot_shard(struct kv_view *v, uint32_t shard, struct kv_snapshot_position *p,
                             uint64_t deadline_ticks)
{
    KV_ASSERT(shard <= v->store->shard_mask);
    struct kv_shard *own = &v->store->shards[shard];
    struct visit x = {v, false};
    uint32_t selected = v->db;
    bool done;
    do
        done = step(&x, own, p);
    while (!done && !x.opened && kv_clock_ticks() < deadline_ticks);
    v->db = selected;
    return done;
}
