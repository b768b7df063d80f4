/* Eviction within one shard: which entries go, and how.
 *
 * LRU, LFU and LRM are approximated by looking at random candidates, as Redis documents it. Redis
 * keeps the best candidates of earlier rounds in a pool. Here the evictor keeps the scores of the
 * last 128 candidates instead, and a candidate goes when it is among the best 1 / (2 * samples) of
 * them: victims come from the same end of the distribution, no pointer outlives the lock of its
 * shard, and a victim is removed when it is looked at, not found once more. Until 16 scores are
 * known, and when four times as many candidates as usual were looked at in vain (all scores have
 * fallen at once), the best one at hand goes.
 *
 * Candidates are the items of a random bucket of the hash table, 5.6 on average: their misses
 * overlap, so looking at all of them costs little more than looking at one. For policies that spare
 * keys without a time to live they come from the expiry index, which knows only the others. A key
 * that is due expires instead.
 *
 * Scores are ages in ticks (128 ms); or 255 minus the decayed counter, and among equal counters the
 * minutes since the last use. `volatile-ttl` needs no score: the first record of the expiry index
 * is the soonest of the shard; the caller chooses the shard by kv_store_next_due_hint.
 *
 * Threads: as in the header.
 *
 * Rejected: a pool of candidates across shards (a victim then costs a second lock and two more
 * cache misses, and the pool holds keys that are long gone); a list of all keys in order of use (16
 * bytes a key, and every read writes); moving used items to the front of their bucket (every read
 * of a cold key dirties a line that all its neighbours share).
 */
#include "store/evict.h"
#include "store/store_priv.h"

#define SCORES_LEARN 16     /* scores before they decide */
#define LOOKS_PER_SAMPLE 2u /* a bucket has more than five candidates: two are cheap to look at */
#define THRESHOLD_STEP 16   /* new scores between two thresholds */
#define FRUITLESS_ROUNDS 8  /* rounds of `samples` candidates without a victim */
#define SAMPLE_MAX 16       /* candidates of one visit */
#define LATER_BYTES (64 * 1024) /* values from here on take long to free */

static_assert(SAMPLE_MAX >= KV_TABLE_SLOTS, "a bucket fits a sample");

struct visit {
    struct kv_view *view;
    struct kv_shard *shard;
    struct kv_database *database;
    struct kv_evictor *evictor;
    struct kv_evict_later *later;
    struct kv_evict_result *result;
    uint64_t enough_bytes; /* result->bytes at which the visit ends */
};

void kv_evictor_init(struct kv_evictor *ev, uint64_t seed)
{
    *ev = (struct kv_evictor){.rules.samples = 1};
    kv_random_init(&ev->random, seed);
}

void kv_evictor_set_rules(struct kv_evictor *ev, const struct kv_evict_rules *rules)
{
    KV_ASSERT(rules->samples >= 1);
    if (KV_LIKELY(ev->rules.order == rules->order && ev->rules.samples == rules->samples &&
                  ev->rules.volatile_only == rules->volatile_only))
        return;
    ev->rules = *rules;
    ev->score_count = ev->score_next = 0;
    ev->threshold = UINT32_MAX;
    ev->fruitless = 0;
}

/* --- removing --- */

void kv_store_free_evicted(void *entry)
{
    kv_entry_destroy(entry);
}

static void remove_entry(struct visit *x, struct kv_entry *e)
{
    struct kv_view *v = x->view;
    struct kv_key k = kv_store_key(v->store, kv_entry_key(e));
    size_t bytes = kv_entry_memory(e);
    bool is_due = kv_entry_due(e, v->now_ms);
    snapshot_keep(v, v->db, e);
    x->result->keys++;
    x->result->bytes += bytes;
    x->result->key_bytes += k.len;
    kv_shard_detach(x->shard, x->database, k.hash, e);
    if (is_due)
        kv_store_announce_expired(v, x->shard, &k);
    else
        kv_store_announce_evicted(v, x->shard, &k);
    if (KV_UNLIKELY(bytes >= LATER_BYTES) && x->later != NULL &&
        x->later->count < KV_EVICT_LATER_MAX && kv_entry_guard(e) == NULL)
        x->later->entries[x->later->count++] = e;
    else
        entry_retire(v, e);
}

/* --- scores --- */

static uint32_t score_of(const struct kv_view *v, const struct kv_evictor *ev,
                         const struct kv_entry *e)
{
    uint32_t access = entry_access(e);
    int64_t now_ms = access_now_ms(v);
    uint32_t age = kv_access_age(access, now_ms);
    if (ev->rules.order == KV_EVICT_OLDEST)
        return age;
    uint32_t counter = kv_access_frequency(access, now_ms, v->store->access.lfu_decay_minutes);
    uint32_t minutes = KV_MIN(age >> 9, UINT16_MAX + 0u);
    return (LFU_COUNTER_MAX - counter) << 16 | minutes;
}

/* The smallest of the best 1 / (2 * samples) of the scores known. */
static uint32_t find_threshold(const struct kv_evictor *ev)
{
    uint32_t best[KV_EVICT_SCORES]; /* the best `rank` so far, in descending order */
    uint64_t looks = (uint64_t)ev->rules.samples * LOOKS_PER_SAMPLE;
    uint32_t rank = (uint32_t)KV_MAX(ev->score_count / looks, (uint64_t)1);
    uint32_t known = 0;
    for (uint32_t i = 0; i < ev->score_count; i++) {
        uint32_t score = ev->scores[i];
        if (known == rank && score <= best[rank - 1])
            continue;
        uint32_t at = known < rank ? known++ : rank - 1;
        for (; at > 0 && best[at - 1] < score; at--)
            best[at] = best[at - 1];
        best[at] = score;
    }
    KV_DASSERT(known == rank);
    return best[rank - 1];
}

static void note_score(struct kv_evictor *ev, uint32_t score)
{
    ev->scores[ev->score_next] = score;
    ev->score_next = (ev->score_next + 1) % KV_EVICT_SCORES;
    ev->score_count = KV_MIN(ev->score_count + 1, (uint32_t)KV_EVICT_SCORES);
    if (ev->score_next % THRESHOLD_STEP == 0 && ev->score_count >= SCORES_LEARN)
        ev->threshold = find_threshold(ev);
}

/* Judges candidates that are all different and all in the shard. */
static void judge(struct visit *x, struct kv_entry *const *candidates, unsigned count)
{
    struct kv_evictor *ev = x->evictor;
    uint64_t before = x->result->keys;
    struct kv_entry *best = NULL;
    uint32_t best_score = 0;
    for (unsigned i = 0; i < count && x->result->bytes < x->enough_bytes; i++) {
        struct kv_entry *e = candidates[i];
        if (KV_UNLIKELY(kv_entry_due(e, x->view->now_ms))) {
            remove_entry(x, e);
            continue;
        }
        uint32_t score = score_of(x->view, ev, e);
        note_score(ev, score);
        ev->fruitless++;
        if (ev->score_count >= SCORES_LEARN && score >= ev->threshold) {
            remove_entry(x, e);
        } else if (best == NULL || score > best_score) {
            best = e;
            best_score = score;
        }
    }
    if (x->result->keys != before) {
        ev->fruitless = 0;
    } else if (best != NULL && (ev->score_count < SCORES_LEARN ||
                                ev->fruitless / FRUITLESS_ROUNDS >= ev->rules.samples)) {
        remove_entry(x, best);
        ev->fruitless = 0;
    }
}

/* --- candidates --- */

static bool expires_when(void *item, void *arg)
{
    const uint64_t *when = arg;
    return kv_entry_expiry(item) == (int64_t)*when;
}

static struct kv_entry *entry_of_record(const struct kv_database *database, uint64_t when,
                                        uint64_t position)
{
    struct kv_entry *e = kv_table_find_position(&database->table, position, expires_when, &when);
    KV_ASSERT(e != NULL);
    return e;
}

/* Random keys with a time to live. A key may be drawn twice, but is judged once. */
static void visit_volatile(struct visit *x, unsigned count)
{
    struct kv_entry *candidates[SAMPLE_MAX];
    unsigned found = 0;
    for (unsigned i = 0; i < count; i++) {
        uint64_t when, position;
        bool any =
            kv_time_index_random(&x->database->expiry, &x->evictor->random, &when, &position);
        KV_ASSERT(any);
        struct kv_entry *e = entry_of_record(x->database, when, position);
        bool known = false;
        for (unsigned j = 0; j < found && !known; j++)
            known = candidates[j] == e;
        if (!known)
            candidates[found++] = e;
    }
    if (x->evictor->rules.order != KV_EVICT_RANDOM)
        judge(x, candidates, found);
    else
        remove_entry(x, candidates[0]);
}

static void visit_any(struct visit *x, unsigned count)
{
    struct kv_evictor *ev = x->evictor;
    if (ev->rules.order == KV_EVICT_RANDOM) {
        remove_entry(x, kv_table_random(&x->database->table, &ev->random));
        return;
    }
    for (unsigned looked = 0; looked < count && x->result->bytes < x->enough_bytes;) {
        void *items[KV_TABLE_SLOTS];
        unsigned found = kv_table_sample(&x->database->table, &ev->random, items);
        struct kv_entry *candidates[KV_TABLE_SLOTS];
        for (unsigned i = 0; i < found; i++)
            candidates[i] = items[i];
        if (found == 0)
            return;
        judge(x, candidates, found);
        looked += found;
    }
}

/* The first key of the shard that is due: within one database the index knows it, and databases are
 * few. */
static void visit_soonest(struct visit *x, uint32_t db)
{
    uint64_t when, position;
    x->view->db = db;
    x->database = shard_database(x->shard, db);
    bool any = kv_time_index_first(&x->database->expiry, &when, &position);
    KV_ASSERT(any);
    remove_entry(x, entry_of_record(x->database, when, position));
}

/* --- databases --- */

static uint64_t candidate_count(const struct kv_database *database, bool volatile_only)
{
    if (database == NULL)
        return 0;
    return volatile_only ? database->expiry.count : database->table.count;
}

/* The database with the earliest due time; false: none. */
static bool find_soonest(const struct kv_shard *shard, uint32_t *found)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t db = 0; db < shard->database_end; db++) {
        const struct kv_database *database = shard_database(shard, db);
        if (database != NULL && database->expiry.first_when < first) {
            first = database->expiry.first_when;
            *found = db;
        }
    }
    return first != UINT64_MAX;
}

/* A database by chance, weighted by its candidates; false: there are none. */
static bool choose_database(const struct kv_shard *shard, struct kv_evictor *ev, uint32_t *chosen)
{
    bool volatile_only = ev->rules.volatile_only;
    uint64_t total = candidate_count(&shard->first, volatile_only);
    for (uint32_t db = 1; db < shard->database_end; db++)
        total += candidate_count(shard_database(shard, db), volatile_only);
    if (total == 0)
        return false;
    *chosen = 0;
    if (KV_LIKELY(shard->database_end == 1))
        return true;
    uint64_t number = kv_random_below(&ev->random, total);
    for (;; ++*chosen) {
        uint64_t count = candidate_count(shard_database(shard, *chosen), volatile_only);
        if (number < count)
            return true;
        number -= count;
    }
}

void kv_store_evict_shard(struct kv_view *v, uint32_t shard, struct kv_evictor *ev,
                          uint64_t want_bytes, struct kv_evict_later *later,
                          struct kv_evict_result *result)
{
    KV_ASSERT(shard <= v->store->shard_mask);
    KV_ASSERT(!(v->flags & KV_VIEW_NO_EXPIRE));
    struct visit x = {.view = v,
                      .shard = &v->store->shards[shard],
                      .evictor = ev,
                      .later = later,
                      .result = result,
                      .enough_bytes = result->bytes + want_bytes};
    uint32_t selected = v->db;
    uint32_t db = 0;
    if (ev->rules.order == KV_EVICT_SOONEST) {
        result->empty = !find_soonest(x.shard, &db);
        if (!result->empty)
            visit_soonest(&x, db);
    } else {
        result->empty = !choose_database(x.shard, ev, &db);
        if (!result->empty) {
            unsigned count = KV_MIN(ev->rules.samples, SAMPLE_MAX + 0u);
            v->db = db;
            x.database = shard_database(x.shard, db);
            if (ev->rules.volatile_only)
                visit_volatile(&x, ev->rules.order == KV_EVICT_RANDOM ? 1 : count);
            else
                visit_any(&x, count);
        }
    }
    v->db = selected;
}
