/* WATCH: who changed a key since; and who waits for a key.
 *
 *   shard -> watches (kv_table, made with the first watch, gone with the last)
 *              -> record {database, key, changes, refs}    one per watched key
 *   client -> kv_watch {record, changes seen, shard}       one per client and key
 *
 * A change costs one lookup and one increment however many clients watch the key, and a shard
 * without watches costs one comparison with NULL. EXEC compares the number seen with the number
 * now; nobody writes into another client's memory.
 *
 * The table of records is the keyspace's: the record's hash is the key's with the database mixed
 * in, so that one key watched in many databases does not fill one bucket.
 *
 * Invariants: a record has at least one reference and lies in the shard of its key; `watches` is
 * NULL or not empty.
 *
 * FLUSH and SWAPDB ask of every record whether its key exists, which also removes it when it is
 * due.
 *
 * A key that is due when it is looked at counts as changed, removed or not. One that was due
 * already when the watch began (possible only in a view that keeps due entries) was seen as absent
 * and its removal is no change; `due_at_start` says so.
 *
 * A blocked client stands in the queue of each key that it waits for. The queue is in the record,
 * so that the look-up which a change makes anyway finds it, and a shard without watches and waits
 * pays nothing. What waiting means is the engine's business (engine/blocking.h).
 *
 * Rejected: a version in every entry - it costs bytes in all keys for a few, and a deleted key has
 * no entry to hold it.
 *
 * Threads: under the lock of the key's shard.
 */
#include "store/store_priv.h"

struct watch_record {
    uint64_t hash;    /* of the key */
    uint64_t changes; /* since the record was made */
    uint64_t refs;    /* kv_watch and kv_key_wait objects that point here */
    struct kv_key_wait *wait_first, *wait_last; /* longest waiting first; NULL: nobody */
    uint32_t db;                                /* database of the key */
    uint32_t key_len;                           /* bytes */
    bool told;                                  /* the hook `ready` was, and has not looked yet */
    char key[];
};

struct kv_watch {
    struct watch_record *record;
    uint64_t seen;     /* record->changes when the watch began */
    uint32_t shard;    /* number of the key's shard */
    bool due_at_start; /* the key was there but due: seen as absent */
};

/* What a lookup compares. */
struct watch_key {
    const struct kv_key *key;
    uint32_t db;
};

static size_t record_size(size_t key_len)
{
    return offsetof(struct watch_record, key) + key_len;
}

/* Odd multiples of 2^64 / golden ratio reach the upper bits that order the table. */
KV_INLINE uint64_t watch_hash(uint64_t hash, uint32_t db)
{
    return hash + db * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t record_hash(const void *item, void *arg)
{
    (void)arg;
    const struct watch_record *r = item;
    return watch_hash(r->hash, r->db);
}

KV_INLINE bool record_matches(const void *item, const void *key)
{
    const struct watch_record *r = item;
    const struct watch_key *w = key;
    return r->db == w->db && r->hash == w->key->hash && r->key_len == w->key->len &&
           memcmp(r->key, w->key->ptr, r->key_len) == 0;
}

static struct watch_record *record_find(const struct kv_shard *shard, uint32_t db,
                                        const struct kv_key *k)
{
    struct watch_key w = {k, db};
    if (shard->watches == NULL)
        return NULL;
    return kv_table_find(shard->watches, watch_hash(k->hash, db), record_matches, &w);
}

static void watches_drop_empty(struct kv_shard *shard)
{
    if (shard->watches == NULL || shard->watches->count != 0)
        return;
    kv_table_release(shard->watches);
    kv_mem_free(shard->watches, sizeof(*shard->watches), KV_MEM_WATCH);
    shard->watches = NULL;
}

/* Adds a record without references; NULL when memory is short. */
static struct watch_record *record_create(struct kv_shard *shard, uint32_t db,
                                          const struct kv_key *k)
{
    if (k->len > UINT32_MAX)
        return NULL;
    struct watch_record *r = kv_mem_try_alloc(record_size(k->len), KV_MEM_WATCH);
    if (r == NULL)
        return NULL;
    r->hash = k->hash;
    r->changes = 0;
    r->refs = 0;
    r->wait_first = r->wait_last = NULL;
    r->told = false;
    r->db = db;
    r->key_len = (uint32_t)k->len;
    if (k->len != 0)
        memcpy(r->key, k->ptr, k->len);
    if (shard->watches == NULL) {
        shard->watches = kv_mem_try_alloc(sizeof(*shard->watches), KV_MEM_WATCH);
        if (shard->watches != NULL)
            kv_table_init(shard->watches, record_hash, NULL, KV_MEM_WATCH);
    }
    if (shard->watches == NULL ||
        kv_table_insert(shard->watches, watch_hash(k->hash, db), r) != KV_OK) {
        watches_drop_empty(shard);
        kv_mem_free(r, record_size(k->len), KV_MEM_WATCH);
        return NULL;
    }
    return r;
}

static const struct kv_entry *record_entry(const struct kv_database *database,
                                           const struct watch_record *r)
{
    struct kv_key k = {r->key, r->key_len, r->hash};
    return database != NULL ? database_find(database, &k) : NULL;
}

static bool record_due(const struct kv_view *v, const struct watch_record *r)
{
    const struct kv_shard *shard = shard_of(v->store, r->hash);
    const struct kv_entry *e = record_entry(shard_database(shard, r->db), r);
    return e != NULL && kv_entry_due(e, v->now_ms);
}

enum kv_err kv_store_watch(struct kv_view *v, const struct kv_key *k, struct kv_watch **out)
{
    struct kv_shard *shard = shard_of(v->store, k->hash);
    (void)kv_store_peek(v, k); /* removes it when it is due */
    struct kv_watch *w = kv_mem_try_alloc(sizeof(*w), KV_MEM_WATCH);
    if (w == NULL)
        return KV_ERR_NOMEM;
    struct watch_record *r = record_find(shard, v->db, k);
    if (r == NULL)
        r = record_create(shard, v->db, k);
    if (r == NULL) {
        kv_mem_free(w, sizeof(*w), KV_MEM_WATCH);
        return KV_ERR_NOMEM;
    }
    r->refs++;
    w->record = r;
    w->seen = r->changes;
    w->shard = kv_store_shard_of(v->store, k->hash);
    w->due_at_start = record_due(v, r);
    *out = w;
    return KV_OK;
}

bool kv_store_watch_dirty(struct kv_view *v, const struct kv_watch *w)
{
    KV_ASSERT(w->seen <= w->record->changes);
    return w->seen != w->record->changes || (!w->due_at_start && record_due(v, w->record));
}

static void record_unref(struct kv_store *s, struct watch_record *r)
{
    struct kv_shard *shard = shard_of(s, r->hash);
    KV_ASSERT(r->refs > 0);
    if (--r->refs != 0)
        return;
    KV_ASSERT(r->wait_first == NULL);
    kv_table_remove(shard->watches, watch_hash(r->hash, r->db), r);
    kv_mem_free(r, record_size(r->key_len), KV_MEM_WATCH);
    watches_drop_empty(shard);
}

void kv_store_unwatch(struct kv_store *s, struct kv_watch *w)
{
    struct watch_record *r = w->record;
    kv_mem_free(w, sizeof(*w), KV_MEM_WATCH);
    record_unref(s, r);
}

/* --- waiting --- */

enum kv_err kv_store_wait(struct kv_view *v, const struct kv_key *k, struct kv_key_wait *w)
{
    struct kv_shard *shard = shard_of(v->store, k->hash);
    struct watch_record *r = record_find(shard, v->db, k);
    if (r == NULL)
        r = record_create(shard, v->db, k);
    if (r == NULL)
        return KV_ERR_NOMEM;
    if (r->wait_last != NULL && r->wait_last->waiter == w->waiter)
        return KV_OK;
    r->refs++;
    w->record = r;
    w->next = NULL;
    w->prev = r->wait_last;
    if (r->wait_last != NULL)
        r->wait_last->next = w;
    else
        r->wait_first = w;
    r->wait_last = w;
    return KV_OK;
}

void kv_store_unwait(struct kv_store *s, struct kv_key_wait *w)
{
    struct watch_record *r = w->record;
    KV_ASSERT(r != NULL);
    if (w->prev != NULL)
        w->prev->next = w->next;
    else
        r->wait_first = w->next;
    if (w->next != NULL)
        w->next->prev = w->prev;
    else
        r->wait_last = w->prev;
    w->next = w->prev = NULL;
    w->record = NULL;
    record_unref(s, r);
}

struct kv_key_wait *kv_store_waiting(const struct kv_view *v, const struct kv_key *k)
{
    struct watch_record *r = record_find(shard_of(v->store, k->hash), v->db, k);
    if (r == NULL)
        return NULL;
    r->told = false;
    return r->wait_first;
}

struct kv_key kv_key_wait_key(const struct kv_key_wait *w)
{
    const struct watch_record *r = w->record;
    return (struct kv_key){r->key, r->key_len, r->hash};
}

static void count_waited(void *item, void *arg)
{
    const struct watch_record *r = item;
    uint64_t *sum = arg;
    *sum += r->wait_first != NULL;
}

uint64_t kv_store_waited_keys(const struct kv_store *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i <= s->shard_mask; i++)
        if (s->shards[i].watches != NULL)
            kv_table_each(s->shards[i].watches, count_waited, &sum);
    return sum;
}

uint32_t kv_watch_shard(const struct kv_watch *w)
{
    return w->shard;
}

bool kv_watch_same(const struct kv_watch *w, uint32_t db, const struct kv_key *k)
{
    struct watch_key wanted = {k, db};
    return record_matches(w->record, &wanted);
}

static void count_watched(void *item, void *arg)
{
    const struct watch_record *r = item;
    uint64_t *sum = arg;
    uint64_t waits = 0;
    for (const struct kv_key_wait *w = r->wait_first; w != NULL; w = w->next)
        waits++;
    *sum += r->refs > waits;
}

uint64_t kv_store_watched_keys(const struct kv_store *s)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i <= s->shard_mask; i++)
        if (s->shards[i].watches != NULL)
            kv_table_each(s->shards[i].watches, count_watched, &sum);
    return sum;
}

/* --- touching --- */

struct touch_existing {
    struct kv_view *view;
    uint32_t db;    /* whose records */
    uint32_t other; /* where the key counts as well; may be the same */
};

/* True when the hook `ready` is to be told: somebody waits, and it was not told before. */
static bool record_tells(struct watch_record *r)
{
    if (r->wait_first == NULL || r->told)
        return false;
    r->told = true;
    return true;
}

void kv_shard_touch_watch(struct kv_shard *shard, uint32_t db, const struct kv_key *k)
{
    struct watch_record *r = record_find(shard, db, k);
    if (r != NULL)
        r->changes++;
}

bool kv_shard_touch_waited(struct kv_shard *shard, uint32_t db, const struct kv_key *k)
{
    struct watch_record *r = record_find(shard, db, k);
    if (r == NULL)
        return false;
    r->changes++;
    return record_tells(r);
}

/* Keys of a database that somebody waits for may have come with another's content. */
static void wake_record(void *item, void *arg)
{
    struct watch_record *r = item;
    const struct touch_existing *t = arg;
    struct kv_key k = {r->key, r->key_len, r->hash};
    struct kv_view *v = t->view;
    if (r->db != t->db || !record_tells(r))
        return;
    uint32_t selected = v->db;
    v->db = t->db;
    v->store->hooks.ready(v, &k);
    v->db = selected;
}

void kv_shard_wake_database(struct kv_view *v, struct kv_shard *shard, uint32_t db)
{
    struct touch_existing t = {v, db, db};
    if (shard->watches != NULL && v->store->hooks.ready != NULL)
        kv_table_each(shard->watches, wake_record, &t);
}

/* Whether the key of a record exists in a database; removes it when it is due. */
static bool exists_in(struct kv_view *v, uint32_t db, const struct watch_record *r)
{
    struct kv_key k = {r->key, r->key_len, r->hash};
    uint32_t selected = v->db;
    v->db = db;
    bool exists = kv_store_peek(v, &k) != NULL;
    v->db = selected;
    return exists;
}

static void touch_if_exists(void *item, void *arg)
{
    struct watch_record *r = item;
    const struct touch_existing *t = arg;
    if (r->db == t->db && (exists_in(t->view, t->db, r) || exists_in(t->view, t->other, r)))
        r->changes++;
}

void kv_shard_touch_existing(struct kv_view *v, struct kv_shard *shard, uint32_t db, uint32_t other)
{
    struct touch_existing t = {v, db, other};
    if (shard->watches != NULL)
        kv_table_each(shard->watches, touch_if_exists, &t);
}

/* --- check --- */

struct check_arg {
    const struct kv_store *store;
    const struct kv_shard *shard;
};

static void check_record(void *item, void *arg)
{
    const struct watch_record *r = item;
    const struct check_arg *c = arg;
    struct kv_key k = {r->key, r->key_len, r->hash};
    KV_ASSERT(r->refs > 0);
    KV_ASSERT(r->db < c->store->database_count);
    KV_ASSERT(r->hash == kv_store_hash(c->store, r->key, r->key_len));
    KV_ASSERT(shard_of(c->store, r->hash) == c->shard);
    KV_ASSERT(record_find(c->shard, r->db, &k) == r);
}

void kv_shard_check_watches(const struct kv_store *s, const struct kv_shard *shard)
{
    struct check_arg c = {s, shard};
    if (shard->watches == NULL)
        return;
    KV_ASSERT(shard->watches->count != 0);
    kv_table_check(shard->watches);
    kv_table_each(shard->watches, check_record, &c);
}
