/* Moving what the keyspace consists of out of nearly empty slabs.
 *
 * The memory layer chooses the slabs (kv_mem_evacuation_begin); only who holds the one pointer to a
 * block can move it. Here that is the walk over a shard, database by database: first the entries in
 * the order of the table (each entry, its value's blocks, and the table's own segments on the way),
 * then the nodes of the expiry index; at last the table of watch records.
 *
 * An entry has one pointer to it, in its table's slot, and nothing points into it between two
 * commands, so that moving it is a copy and a store. Index and watch records name keys and hash
 * positions, never addresses. What stays: watch records themselves (clients point to them), the
 * structures of databases 1 and up (their addresses are promised to last), and large strings that
 * an output queue sends.
 *
 * Position. Both cursors depend on hashes and times alone (ds/table.h, ds/time_index.h), so slices
 * may lie any time apart; tables may grow, be flushed or exchanged between them. What is added
 * behind the position is not visited, and need not be: no evacuated slab gives out blocks.
 *
 * Time. The clock is read every GROUP_BUCKETS buckets or LEAVES nodes, that is after at most about
 * 50 blocks: 5 to 15 us when all of them move. Entries are prefetched a bucket ahead; without that
 * a walk over millions of keys is three times as slow.
 *
 * Rejected: moving when a command touches an entry (the cold ones are those that pin slabs); a list
 * of the blocks of a slab with back pointers (8 bytes in each entry for a rare need).
 *
 * Threads: under the shard's lock.
 */
#include "base/clock.h"
#include "store/store_priv.h"

#define GROUP_BUCKETS 6u
#define LEAVES 16u

struct walk {
    struct kv_moves moves;
    uint64_t key_hits, key_misses;
};

static void *move_entry(void *item, void *arg)
{
    struct walk *w = arg;
    uint64_t moved = w->moves.moved;
    struct kv_entry *e = kv_entry_move(item, &w->moves);
    if (w->moves.moved != moved)
        w->key_hits++;
    else
        w->key_misses++;
    return e;
}

static void *keep_record(void *item, void *arg)
{
    (void)arg;
    return item;
}

/* A step within the entries of a database. */
static void step_table(struct kv_database *database, struct kv_defrag_position *p, struct walk *w)
{
    p->table = kv_table_move(&database->table, p->table, GROUP_BUCKETS, move_entry, w, &w->moves);
    p->in_index = p->table == KV_TABLE_MOVE_END;
}

/* A step within the expiry index; true: it is done. */
static bool step_index(struct kv_database *database, struct kv_defrag_position *p, struct walk *w)
{
    for (unsigned i = 0; i < LEAVES; i++) {
        if (!kv_time_index_move_nodes(&database->expiry, &p->when, &p->index_position, &w->moves))
            return true;
    }
    return false;
}

/* A step within the table of watch records; true: it is done. */
static bool step_watches(struct kv_shard *shard, struct kv_defrag_position *p, struct walk *w)
{
    if (shard->watches == NULL)
        return true;
    shard->watches =
        kv_move_block(shard->watches, sizeof(*shard->watches), KV_MEM_WATCH, &w->moves);
    p->table = kv_table_move(shard->watches, p->table, GROUP_BUCKETS, keep_record, NULL, &w->moves);
    return p->table == KV_TABLE_MOVE_END;
}

/* One step; true: nothing is left. */
static bool step(struct kv_shard *shard, struct kv_defrag_position *p, struct walk *w)
{
    if (p->db >= shard->database_end)
        return step_watches(shard, p, w);
    struct kv_database *database = shard_database(shard, p->db);
    bool done = database == NULL;
    if (!done && !p->in_index)
        step_table(database, p, w);
    else if (!done)
        done = step_index(database, p, w);
    if (done)
        *p = (struct kv_defrag_position){.db = p->db + 1};
    return false;
}

bool kv_store_defrag_shard(struct kv_view *v, uint32_t shard, struct kv_defrag_position *p,
                           uint64_t deadline_ticks)
{
    KV_ASSERT(shard <= v->store->shard_mask);
    struct kv_shard *own = &v->store->shards[shard];
    struct walk w = {0};
    bool done;
    do
        done = step(own, p, &w);
    while (!done && kv_clock_ticks() < deadline_ticks);
    kv_stat_add(&v->stats->defrag_hits, w.moves.moved);
    kv_stat_add(&v->stats->defrag_misses, w.moves.kept);
    kv_stat_add(&v->stats->defrag_key_hits, w.key_hits);
    kv_stat_add(&v->stats->defrag_key_misses, w.key_misses);
    return done;
}
