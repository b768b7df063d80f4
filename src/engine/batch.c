/* Look-ahead batches: several plain keyed commands of one connection under one set of locks.
 *
 * Why: a command's time goes into cache misses (bucket, entry) and into taking locks. With up to 16
 * commands parsed ahead, the lines of their locks are requested while the rest is still being
 * parsed, the locks are taken once, and then all buckets, all entries, and the members that
 * commands name of large collections are requested from memory together. The order of commands of
 * the connection is kept, and a batch is atomic as a whole, which is more than was asked for.
 *
 * A batch gives its locks back after 50 us; what has not run then is planned again. When not all
 * locks are free within 5 us, nothing has happened and the caller runs one command at a time.
 * Planning only reads names and keys. What a restricted user may not do ends the batch before locks
 * are taken; database and existence are decided at execution.
 */
#include "base/clock.h"
#include "engine/worker.h"

#define PREFETCH_KEYS 4 /* keys of one command that are prefetched here */

void kv_batch_prefetch(struct kv_worker *w, const struct kv_planned *p)
{
    for (int i = 0; i < p->key_count && i < PREFETCH_KEYS; i++)
        kv_store_prefetch_bucket(&w->call.view, p->keys[i].hash);
}

/* The lock's line was last written by whichever worker used the shard: half a batch would be spent
 * on fetching such lines one after the other. */
void kv_batch_prefetch_locks(struct kv_worker *w, const struct kv_planned *p)
{
    const struct kv_engine *e = w->engine;
    for (int i = 0; i < p->key_count && i < PREFETCH_KEYS; i++)
        KV_PREFETCH_OWN(&e->locks[kv_store_shard_of(e->store, p->keys[i].hash)]);
}

static bool lock_batch(struct kv_client *c, uint32_t n)
{
    struct kv_worker *w = c->worker;
    struct kv_engine *e = w->engine;
    if (KV_UNLIKELY(kv_snapshot_full(&e->snapshot)))
        return false; /* one at a time: those that write wait */
    if (KV_UNLIKELY(kv_stream_active(&e->stream))) {
        size_t bytes = (size_t)(w->plan[n - 1].request.next - w->plan[0].request.start);
        if (kv_stream_too_small(e, bytes, n) || !kv_stream_promise(w, bytes, n))
            return false;
    }
    if (!e->multi)
        return true;
    kv_lockset_clear(&w->locks);
    for (uint32_t i = 0; i < n; i++) {
        struct kv_planned *p = &w->plan[i];
        for (int j = 0; j < p->key_count; j++)
            kv_lockset_add(&w->locks, kv_store_shard_of(e->store, p->keys[j].hash));
    }
    if (!kv_gate_enter(w)) {
        kv_stream_settle(w);
        return false;
    }
    if (KV_LIKELY(kv_spin_for_locks(w)))
        return true;
    kv_gate_leave(w);
    kv_stream_settle(w);
    return false;
}

/* Memory is above the limit: how many commands may run as a batch, before the first that needs
 * memory unless room was made for it. That one then runs alone, and is refused. */
static KV_COLD uint32_t admitted(struct kv_client *c, uint32_t n)
{
    struct kv_worker *w = c->worker;
    uint32_t first = 0;
    while (first < n && !(w->plan[first].cmd->flags & KV_CMD_DENYOOM))
        first++;
    return first == n || c->flags & KV_CLIENT_APPLY || kv_memory_admit(w) ? n : first;
}

/* All keys' entries, and members of collections: small ones are fetched whole; of large ones first
 * the buckets that name the members, then they themselves. */
static void prefetch_entries(struct kv_worker *w, uint32_t n)
{
    const struct kv_entry *entries[KV_LOOKAHEAD_MAX]; /* as guessed, of the first keys */
    const struct kv_table *tables[KV_LOOKAHEAD_MAX];
    uint64_t hashes[KV_LOOKAHEAD_MAX];
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct kv_planned *p = &w->plan[i];
        entries[i] = NULL;
        if (p->key_count > 0)
            entries[i] = kv_store_prefetch_entry(&w->call.view, p->keys[0].hash);
        for (int j = 1; j < p->key_count && j < PREFETCH_KEYS; j++)
            kv_store_prefetch_entry(&w->call.view, p->keys[j].hash);
    }
    for (uint32_t i = 0; i < n; i++) {
        const struct kv_planned *p = &w->plan[i];
        uint8_t arg = p->cmd->member_arg;
        if (arg == 0 || arg >= p->request.argc || entries[i] == NULL)
            continue;
        tables[found] = kv_store_prefetch_member(&w->call.view, entries[i], p->request.argv[arg],
                                                 &hashes[found]);
        found += tables[found] != NULL;
    }
    for (uint32_t i = 0; i < found; i++)
        kv_table_prefetch_item(tables[i], hashes[i]);
}

uint32_t kv_batch_run(struct kv_client *c, uint32_t n)
{
    struct kv_worker *w = c->worker;
    KV_DASSERT(n > 0);
    if (KV_UNLIKELY(c->flags & KV_CLIENT_RESTRICTED))
        n = kv_acl_admit_batch(c, n);
    if (kv_memory_over(w))
        n = admitted(c, n);
    if (n == 0 || !lock_batch(c, n))
        return 0;
    w->now_ticks = w->hold_start = kv_clock_ticks();
    w->now_ms = kv_worker_wall_ms(w, w->now_ticks);
    w->call.view.db = c->db;
    w->call.block = NULL;
    if (n > 1)
        for (uint32_t i = 0; i < n; i++)
            kv_batch_prefetch(w, &w->plan[i]);
    if (n > 1)
        prefetch_entries(w, n);

    bool gets_messages = c->subscriber != NULL || c->tracking != NULL;
    uint64_t give_back = w->hold_start + w->hold_ticks;
    uint32_t ran = 0;
    while (ran < n) {
        struct kv_planned *p = &w->plan[ran++];
        kv_execute(c, p->cmd, p->request.argv, p->request.argc, p->keys, p->key_count, 0);
        if (KV_UNLIKELY(gets_messages))
            kv_delivery_drain(w); /* its own messages, each behind its reply */
        if (KV_UNLIKELY(w->now_ticks > give_back))
            break;
    }
    kv_stat_add(&w->stats.batches, 1);
    kv_stat_add(&w->stats.batch_commands, ran);
    kv_release(w, KV_HOLD_SHARDS);
    kv_commit_note(c);
    return ran;
}
