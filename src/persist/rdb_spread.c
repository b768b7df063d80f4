/* Spreading an RDB file over the workers: see the header.
 *
 * A lane is a ring of batches with one producer, the reader, and one consumer, the worker. `filled`
 * and `done` count batches; each side writes its own. The reader fills the batch behind `filled`
 * and wakes the worker when the ring was empty; the worker posts `room` for each batch that it is
 * through with. Both counts are written and read sequentially consistent, so either the reader sees
 * the ring empty and wakes, or the worker sees the new batch before it goes to sleep.
 *
 * A batch is a run of heads, each followed by its key and its value as they stand in the file (a
 * packed key unpacked). The reader copies a value while it walks over it (kv_rdb_record_begin), at
 * the price of a memcpy of what is in the cache anyway. Since the key's hash travels along, a
 * worker requests the bucket of a record AHEAD of the one that it puts.
 *
 * Keys go to the home worker of their shard. So two workers never fight for a shard's lock or its
 * lines, and keys that come twice meet in one lane, in the order of the file.
 *
 * The buckets are requested without a lock: while loading goes on, a table is changed by its home
 * worker alone, but for what the reader has put when all lanes are dry.
 *
 * A record that is too long shows while it is copied. The reader then goes back to the last place
 * whose checksum it knows, where the previous batch was handed over, walks to the value again and
 * builds it out of the file, without a lock (kv_rdb_loader.built). Before it is put the lanes run
 * dry: else the earlier of two equal keys might be told as the second.
 *
 * Rejected: workers that read the file themselves, each a part of it. Records are found from the
 * start only, so all but one would walk over everything twice.
 */
#include "persist/rdb_spread.h"
#include "base/assert.h"
#include "base/clock.h"
#include "engine/loading.h"
#include "engine/lockset.h"
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define BATCH_BYTES ((size_t)64 << 10)   /* handed over when it has so many */
#define RECORD_BYTES ((size_t)256 << 10) /* longer values are built by the reader */
#define RING 4u                          /* batches of a lane */
#define AHEAD 4u                         /* records whose bucket is requested before */
#define DELAY_STEP_US 5000u

/* Before each record of a batch; its size is a multiple of that of a word. */
struct head {
    uint64_t hash;
    uint64_t offset; /* of the value in the file */
    int64_t expiry, idle_seconds;
    uint32_t key_len, value_len;
    uint32_t expected; /* keys of the database in the shard; 0: not known */
    uint16_t db;
    int16_t frequency; /* -1: not told */
    uint64_t form;
};

static_assert(sizeof(struct head) % 8 == 0, "heads are aligned");

struct lane {
    /* the reader's */
    _Atomic(uint64_t) filled KV_ALIGNED(KV_CACHE_LINE); /* batches handed over */
    struct kv_rdb_bytes batches[RING];
    /* the worker's */
    _Atomic(uint64_t) done KV_ALIGNED(KV_CACHE_LINE);
    size_t at; /* of the next record in the batch at `done` */
    struct kv_view view;
    struct kv_store_stats stats; /* loading is no use of the keyspace: dropped */
    struct kv_rdb_reader reader;
    struct kv_rdb_loader loader;
    struct kv_rdb_load totals;        /* keys and empty ones */
    uint32_t database;                /* of the last record */
    uint64_t met[KV_SHARDS_MAX / 64]; /* shards that had a key of it */
};

struct kv_spread {
    struct kv_engine *engine;
    struct lane *lanes; /* one a worker */
    uint32_t lane_count;
    atomic_bool given_up;
    atomic_bool faulty; /* a lane has met a fault */
    sem_t room;         /* a batch is done, a step is, or the end has come */
    atomic_uint delay_us;
    /* a step for worker 0: the reader sets `stepping` behind the others, the worker clears it */
    atomic_bool stepping;
    bool (*step)(void *arg, struct kv_worker *w);
    void *step_arg;
    /* the file that is read */
    struct kv_rdb_reader *source;
    struct kv_rdb_load *load;
    struct kv_collection_limits limits; /* as they were before workers ran */
    uint64_t known_offset, known_sum;   /* place to go back to */
    struct kv_view view;                /* the reader's: no lock, no statistics */
    struct kv_rdb_loader apart;         /* of records that are too long */
    bool (*progress)(void *arg, const struct kv_rdb_load *l, uint64_t offset);
    void *arg;
};

struct kv_spread *kv_spread_create(struct kv_engine *e)
{
    struct kv_spread *s = kv_mem_zalloc(sizeof(*s), KV_MEM_OTHER);
    s->engine = e;
    s->lane_count = kv_engine_worker_count(e);
    s->limits = *kv_store_limits(kv_engine_store(e));
    atomic_store(&s->delay_us, kv_engine_options(e)->key_load_delay_us);
    sem_init(&s->room, 0, 0);
    size_t bytes = s->lane_count * sizeof(*s->lanes);
    s->lanes = kv_mem_alloc_aligned(bytes, KV_CACHE_LINE, KV_MEM_OTHER);
    memset(s->lanes, 0, bytes);
    for (uint32_t i = 0; i < s->lane_count; i++) {
        struct lane *l = &s->lanes[i];
        l->view = (struct kv_view){
            .store = kv_engine_store(e), .stats = &l->stats, .owner = kv_engine_worker(e, i)};
        kv_rdb_reader_init(&l->reader, kv_slice("", 0));
        kv_rdb_loader_init(&l->loader, &l->reader, &l->view);
    }
    s->view = (struct kv_view){.store = kv_engine_store(e)};
    return s;
}

void kv_spread_destroy(struct kv_spread *s)
{
    for (uint32_t i = 0; i < s->lane_count; i++) {
        kv_rdb_loader_release(&s->lanes[i].loader);
        for (uint32_t j = 0; j < RING; j++)
            kv_rdb_bytes_release(&s->lanes[i].batches[j]);
    }
    kv_mem_free_aligned(s->lanes, s->lane_count * sizeof(*s->lanes), KV_CACHE_LINE, KV_MEM_OTHER);
    sem_destroy(&s->room);
    kv_mem_free(s, sizeof(*s), KV_MEM_OTHER);
}

void kv_spread_give_up(struct kv_spread *s)
{
    atomic_store(&s->given_up, true);
    sem_post(&s->room);
}

bool kv_spread_given_up(const struct kv_spread *s)
{
    return atomic_load_explicit(&s->given_up, memory_order_relaxed);
}

void kv_spread_delay(struct kv_spread *s)
{
    unsigned us;
    for (unsigned waited = 0; (us = atomic_load(&s->delay_us)) > waited;) {
        if (kv_spread_given_up(s))
            return;
        unsigned step = KV_MIN(us - waited, DELAY_STEP_US);
        nanosleep(&(struct timespec){.tv_nsec = (long)step * 1000}, NULL);
        waited += step;
    }
}

/* Any of the things that the reader waits for may have happened. False: given up. */
static bool wait_room(struct kv_spread *s)
{
    while (sem_wait(&s->room) != 0)
        ;
    return !kv_spread_given_up(s);
}

/* --- steps --- */

void kv_spread_post(struct kv_spread *s, bool (*step)(void *arg, struct kv_worker *w), void *arg)
{
    KV_ASSERT(!atomic_load(&s->stepping));
    s->step = step;
    s->step_arg = arg;
    atomic_store(&s->stepping, true);
    kv_engine_load_wake(s->engine, 0);
}

bool kv_spread_wait(struct kv_spread *s)
{
    while (atomic_load(&s->stepping))
        if (!wait_room(s))
            return false;
    return true;
}

static void do_step(struct kv_spread *s, struct kv_worker *w)
{
    if (!atomic_load(&s->stepping) || !s->step(s->step_arg, w))
        return;
    atomic_store(&s->stepping, false);
    sem_post(&s->room);
}

/* --- a worker's part --- */

static const struct head *head_at(const struct kv_rdb_bytes *batch, size_t at)
{
    return (const struct head *)(const void *)(batch->ptr + at);
}

static size_t record_bytes(const struct head *h)
{
    return sizeof(*h) + (((size_t)h->key_len + h->value_len + 7) & ~(size_t)7);
}

/* The first key of a database in a shard: its table gets the size that it is going to have. */
static void meet_shard(struct lane *l, const struct head *h)
{
    uint32_t shard = kv_store_shard_of(l->view.store, h->hash);
    uint64_t bit = (uint64_t)1 << (shard & 63);
    if (KV_LIKELY(l->met[shard >> 6] & bit))
        return;
    l->met[shard >> 6] |= bit;
    if (h->expected != 0)
        kv_store_reserve(&l->view, shard, h->expected);
}

static bool put_record(struct lane *l, const struct head *h)
{
    const char *bytes = (const char *)(h + 1);
    struct kv_rdb_record record = {
        .db = h->db,
        .form = (uint8_t)h->form,
        .name = kv_slice(bytes, h->key_len),
        .expiry = h->expiry,
        .idle_seconds = h->idle_seconds,
        .frequency = h->frequency,
    };
    struct kv_key k = {bytes, h->key_len, h->hash};
    if (KV_UNLIKELY(l->database != h->db)) {
        memset(l->met, 0, sizeof(l->met));
        l->database = h->db;
    }
    l->view.db = h->db;
    meet_shard(l, h);
    kv_rdb_reader_point(&l->reader, kv_slice(bytes + h->key_len, h->value_len), h->offset);
    return kv_rdb_put_record(&l->loader, &record, &k, NULL, &l->totals);
}

static void prefetch(struct lane *l, const struct kv_rdb_bytes *batch, size_t *ahead)
{
    if (*ahead >= batch->len)
        return;
    const struct head *h = head_at(batch, *ahead);
    l->view.db = h->db;
    kv_store_prefetch_bucket(&l->view, h->hash);
    *ahead += record_bytes(h);
}

/* Puts the records of the batch at `done`; false: a lock was taken, the rest comes later. */
static bool put_batch(struct lane *l, struct kv_worker *w, const struct kv_rdb_bytes *batch)
{
    size_t ahead = l->at;
    for (unsigned i = 0; i < AHEAD; i++)
        prefetch(l, batch, &ahead);
    while (l->at < batch->len && l->reader.err == KV_OK) {
        const struct head *h = head_at(batch, l->at);
        prefetch(l, batch, &ahead);
        if (!kv_load_lock(w, h->hash))
            return false;
        (void)!put_record(l, h); /* the reader has the fault */
        kv_load_unlock(w, h->hash);
        l->at += record_bytes(h);
    }
    return true;
}

bool kv_spread_work(struct kv_spread *s, struct kv_worker *w, uint32_t worker)
{
    struct lane *l = &s->lanes[worker];
    if (worker == 0) {
        atomic_store_explicit(&s->delay_us, kv_engine_options(s->engine)->key_load_delay_us,
                              memory_order_relaxed);
        do_step(s, w);
    }
    uint64_t done = atomic_load_explicit(&l->done, memory_order_relaxed);
    if (atomic_load(&l->filled) == done)
        return false;
    if (!kv_load_enter(w))
        return true;
    l->reader.valkey = s->load->valkey;
    l->view.now_ms = kv_clock_wall_ms();
    bool through = put_batch(l, w, &l->batches[done % RING]);
    kv_load_leave(w);
    if (!through)
        return true;
    l->at = 0;
    if (l->reader.err != KV_OK)
        atomic_store(&s->faulty, true);
    atomic_store(&l->done, done + 1);
    sem_post(&s->room);
    return atomic_load(&l->filled) != done + 1;
}

/* --- the reader's part --- */

static struct kv_rdb_bytes *open_batch(struct lane *l)
{
    return &l->batches[atomic_load_explicit(&l->filled, memory_order_relaxed) % RING];
}

/* Hands over what a lane's open batch has, and waits until the next one is free. False: given up.
 */
static bool hand_over(struct kv_spread *s, uint32_t lane)
{
    struct lane *l = &s->lanes[lane];
    uint64_t filled = atomic_load_explicit(&l->filled, memory_order_relaxed);
    if (l->batches[filled % RING].len == 0)
        return true;
    atomic_store(&l->filled, filled + 1);
    if (atomic_load(&l->done) == filled)
        kv_engine_load_wake(s->engine, lane);
    while (filled + 1 - atomic_load(&l->done) >= RING)
        if (!wait_room(s))
            return false;
    l->batches[(filled + 1) % RING].len = 0;
    return true;
}

/* Hands everything over and waits until it is put. False: given up. */
static bool run_dry(struct kv_spread *s)
{
    for (uint32_t i = 0; i < s->lane_count; i++)
        if (!hand_over(s, i))
            return false;
    for (uint32_t i = 0; i < s->lane_count; i++) {
        struct lane *l = &s->lanes[i];
        while (atomic_load(&l->done) != atomic_load_explicit(&l->filled, memory_order_relaxed))
            if (!wait_room(s))
                return false;
    }
    return true;
}

static void note_place(struct kv_spread *s)
{
    s->known_sum = kv_rdb_reader_checksum(s->source);
    s->known_offset = kv_rdb_reader_offset(s->source);
}

/* A value that the reader has built; put through lane 0, which has nothing else to do then. */
struct apart {
    struct kv_spread *spread;
    const struct kv_rdb_record *record;
    uint64_t offset; /* of the value */
    struct kv_rdb_built built;
};

static bool put_apart(void *arg, struct kv_worker *w)
{
    struct apart *a = arg;
    struct lane *l = &a->spread->lanes[0];
    struct kv_key k = kv_store_key(l->view.store, a->record->name);
    if (!kv_load_enter(w))
        return false;
    bool locked = kv_load_lock(w, k.hash);
    if (locked) {
        l->view.db = a->record->db;
        l->view.now_ms = kv_clock_wall_ms();
        kv_rdb_reader_point(&l->reader, kv_slice("", 0), a->offset);
        if (!kv_rdb_put_record(&l->loader, a->record, &k, &a->built, &l->totals))
            atomic_store(&a->spread->faulty, true);
        kv_load_unlock(w, k.hash);
    }
    kv_load_leave(w);
    return locked;
}

/* Builds the value at `offset`, where the source goes back to, and has it put. */
static bool load_apart(struct kv_spread *s, const struct kv_rdb_record *record, uint64_t offset)
{
    struct kv_rdb_reader *r = s->source;
    struct apart a = {.spread = s, .record = record, .offset = offset};
    struct kv_rdb_target nowhere = {.expiry = record->expiry};
    KV_ASSERT(offset >= s->known_offset);
    if (kv_rdb_reader_rewind(r, s->known_offset, s->known_sum) != KV_OK ||
        !kv_rdb_skip(r, offset - s->known_offset))
        return false;
    s->apart.built = &a.built;
    enum kv_rdb_result result = kv_rdb_take_value(&s->apart, record->form, &nowhere);
    note_place(s);
    if (result != KV_RDB_PUT) {
        s->load->empty += result == KV_RDB_EMPTY;
        return result == KV_RDB_EMPTY;
    }
    bool put = run_dry(s) && !atomic_load(&s->faulty);
    if (put) {
        kv_spread_post(s, put_apart, &a);
        put = kv_spread_wait(s);
    }
    kv_rdb_built_release(&a.built);
    return put || kv_rdb_fail(r, KV_ERR_CLOSED, "loading was given up");
}

/* The head and the key of a record behind the others; the batch's length tells where. */
static bool begin_record(struct kv_rdb_bytes *batch, const struct head *h, struct kv_slice key)
{
    if (!kv_rdb_bytes_reserve(batch, sizeof(*h) + key.len + 8))
        return false;
    memcpy(batch->ptr + batch->len, h, sizeof(*h));
    if (key.len != 0)
        memcpy(batch->ptr + batch->len + sizeof(*h), key.ptr, key.len);
    batch->len += sizeof(*h) + key.len;
    return true;
}

/* Its value is there too: the head gets its length, and the next one a place. */
static bool end_record(struct kv_rdb_bytes *batch, size_t at)
{
    struct head *h = (struct head *)(void *)(batch->ptr + at);
    static const uint8_t padding[8] = {0};
    h->value_len = (uint32_t)(batch->len - at - sizeof(*h) - h->key_len);
    return kv_rdb_bytes_append(batch, padding, (size_t)-batch->len & 7);
}

static uint32_t expected_in_shard(const struct kv_spread *s)
{
    return (uint32_t)KV_MIN(s->load->expected / kv_store_shard_count(s->view.store),
                            (uint64_t)UINT32_MAX);
}

/* kv_rdb_load's way to get rid of a key. */
static bool divert(void *arg, struct kv_rdb_reader *r, const struct kv_rdb_record *record)
{
    struct kv_spread *s = arg;
    uint64_t hash = kv_store_hash(s->view.store, record->name.ptr, record->name.len);
    uint32_t lane = kv_store_shard_of(s->view.store, hash) % s->lane_count;
    struct kv_rdb_bytes *batch = open_batch(&s->lanes[lane]);
    size_t at = batch->len;
    struct head h = {
        .hash = hash,
        .offset = kv_rdb_reader_offset(r),
        .expiry = record->expiry,
        .idle_seconds = record->idle_seconds,
        .key_len = (uint32_t)record->name.len,
        .expected = expected_in_shard(s),
        .db = (uint16_t)record->db,
        .frequency = (int16_t)record->frequency,
        .form = record->form,
    };
    kv_spread_delay(s);
    if (kv_spread_given_up(s) || atomic_load_explicit(&s->faulty, memory_order_relaxed))
        return kv_rdb_fail(r, KV_ERR_CLOSED, "loading was given up");
    /* A pipe cannot be gone back in: all its records are handed over. */
    bool limited = r->source_bytes != UINT64_MAX;
    bool walked = false;
    if (!limited || record->name.len <= RECORD_BYTES) {
        if (!begin_record(batch, &h, record->name))
            return kv_rdb_fail_memory(r);
        kv_rdb_record_begin(r, batch, limited ? batch->len + RECORD_BYTES : at + UINT32_MAX);
        walked = kv_rdb_skip_value(r, record->form);
        walked = kv_rdb_record_end(r) && walked;
    }
    if (walked && !end_record(batch, at))
        return kv_rdb_fail_memory(r);
    if (!walked)
        batch->len = at;
    /* Too long, or damaged; there may be an earlier fault in it, which building it will find. */
    if (!walked && limited &&
        (r->err == KV_ERR_LIMIT || r->err == KV_ERR_SYNTAX || r->err == KV_OK))
        return load_apart(s, record, h.offset);
    if (walked && batch->len >= BATCH_BYTES) {
        note_place(s);
        return hand_over(s, lane) || kv_rdb_fail(r, KV_ERR_CLOSED, "loading was given up");
    }
    return walked;
}

static bool report(void *arg, const struct kv_rdb_load *l, uint64_t offset)
{
    struct kv_spread *s = arg;
    return s->progress == NULL || s->progress(s->arg, l, offset);
}

/* The first fault of all, in the source; what was given up because of it is none. */
static void choose_fault(struct kv_spread *s)
{
    struct kv_rdb_reader *r = s->source;
    for (uint32_t i = 0; i < s->lane_count; i++) {
        const struct kv_rdb_reader *lane = &s->lanes[i].reader;
        if (lane->err == KV_OK ||
            (r->err != KV_OK && r->err != KV_ERR_CLOSED && r->fault_offset <= lane->fault_offset))
            continue;
        r->err = lane->err;
        r->fault_offset = lane->fault_offset;
        memcpy(r->fault, lane->fault, sizeof(r->fault));
    }
}

static void begin(struct kv_spread *s, const struct kv_rdb_load *l)
{
    for (uint32_t i = 0; i < s->lane_count; i++) {
        struct lane *lane = &s->lanes[i];
        lane->view.flags = KV_VIEW_QUIET | (l->keep_due ? KV_VIEW_NO_EXPIRE : 0);
        memset(&lane->totals, 0, sizeof(lane->totals));
        memset(lane->met, 0, sizeof(lane->met));
        open_batch(lane)->len = 0;
    }
}

/* The lanes are dry, and workers look at their counts alone. */
static void free_scratch(struct kv_spread *s)
{
    for (uint32_t i = 0; i < s->lane_count; i++) {
        struct lane *l = &s->lanes[i];
        kv_rdb_loader_release(&l->loader);
        kv_rdb_loader_init(&l->loader, &l->reader, &l->view);
        for (uint32_t j = 0; j < RING; j++)
            kv_rdb_bytes_release(&l->batches[j]);
    }
}

enum kv_err
kv_spread_load(struct kv_spread *s, struct kv_rdb_reader *r, struct kv_rdb_load *l,
               bool (*progress)(void *arg, const struct kv_rdb_load *l, uint64_t offset), void *arg)
{
    KV_ASSERT(r->fd >= 0 && !l->merge);
    s->source = r;
    s->load = l;
    s->progress = progress;
    s->arg = arg;
    s->view.now_ms = kv_clock_wall_ms();
    kv_rdb_loader_init(&s->apart, r, &s->view);
    s->apart.limits = &s->limits;
    l->divert = divert;
    l->progress = report;
    l->arg = s;
    r->given_up = &s->given_up;
    begin(s, l);
    note_place(s);
    enum kv_err err = kv_rdb_load(r, &s->view, l);
    bool dry = run_dry(s);
    kv_rdb_loader_release(&s->apart);
    r->given_up = NULL;
    if (!dry)
        return KV_ERR_CLOSED;
    choose_fault(s);
    free_scratch(s);
    for (uint32_t i = 0; i < s->lane_count; i++) {
        l->keys += s->lanes[i].totals.keys;
        l->empty += s->lanes[i].totals.empty;
    }
    return r->err != KV_OK ? r->err : err;
}
