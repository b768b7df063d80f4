/* Spreading an RDB file over the workers: see the header.
 *
 * Runs are a ring with one producer, the reader, and a consumer a lane. `filled` and each lane's
 * `done` count runs; each side writes its own. The reader fills the run behind `filled` and wakes
 * the workers whose lanes had come to the end; a worker posts `room` for each run that it is
 * through with. Both counts are written and read sequentially consistent, so either the reader sees
 * the lane at the end and wakes, or the worker sees the new run before it goes to sleep.
 *
 * Where runs end: where the block does, and before what is no key. The reader's window
 * (rdb_io.h) lies in a block; what is anchored there, the record that begins, goes along to the
 * next block when the window moves. A block is used again when all lanes are through with its last
 * run.
 *
 * A worker looks at PLAN records ahead, hashes their keys and requests the buckets of those that
 * are its own, and then puts these. Keys go to the home worker of their shard: so two workers never
 * fight for a shard's lock or its lines, and keys that come twice meet in one lane, in the order of
 * the file.
 *
 * The buckets are requested without a lock: while loading goes on, a table is changed by its home
 * worker alone, but for what the reader has put when all lanes are dry.
 *
 * A record that is longer than a block shows as a fault of the window. The reader then goes back to
 * the last place whose checksum it knows, walks to the record again and builds it out of the file,
 * without a lock (kv_rdb_loader.built). Before it is put the lanes run dry: else the earlier of two
 * equal keys might be told as the second. A record that seems damaged is read in that way too:
 * there may be an earlier fault in it than the one that walking finds.
 *
 * Rejected: handing each worker its own records, with their hashes; see the header.
 */
#include "persist/rdb_spread.h"
#include "base/assert.h"
#include "base/clock.h"
#include "engine/loading.h"
#include "engine/lockset.h"
#include <semaphore.h>
#include <stdatomic.h>
#include <time.h>

#define BLOCKS 6u
#define RUNS 16u                       /* of the ring */
#define PLAN 16u                       /* records that a worker looks ahead */
#define SLICE_BYTES ((size_t)64 << 10) /* walked over between looks at connections */
#define DELAY_STEP_US 5000u

struct block {
    struct kv_rdb_bytes bytes;
    uint64_t runs; /* it is free when every lane is through with so many */
};

struct run {
    struct kv_slice bytes;
    uint64_t offset; /* of its first byte in the file */
    uint32_t db;
    uint32_t expected; /* keys of the database in a shard; 0: not known */
};

/* A key that is the worker's own. */
struct planned {
    struct kv_rdb_record record;
    struct kv_slice value;
    uint64_t offset; /* of the value in the file */
    uint64_t hash;
    struct kv_rdb_string name;
};

struct lane {
    _Atomic(uint64_t) done KV_ALIGNED(KV_CACHE_LINE); /* runs */
    bool begun;                                       /* the run at `done` */
    struct kv_rdb_reader run;
    struct planned plan[PLAN];
    unsigned planned, put;
    struct kv_view view;
    struct kv_store_stats stats; /* loading is no use of the keyspace: dropped */
    struct kv_rdb_reader reader; /* of one value; has the lane's fault */
    struct kv_rdb_loader loader;
    struct kv_rdb_load totals;        /* keys, empty ones, and those that are due */
    uint32_t database;                /* of the last record */
    uint64_t met[KV_SHARDS_MAX / 64]; /* shards that had a key of it */
};

struct kv_spread {
    struct kv_engine *engine;
    struct lane *lanes; /* one a worker */
    uint32_t lane_count;
    atomic_bool given_up;
    atomic_bool faulty; /* a lane has met a fault */
    sem_t room;         /* a run is done, a step is, or the end has come */
    atomic_uint delay_us;
    /* a step for worker 0: the reader sets `stepping` behind the others, the worker clears it */
    atomic_bool stepping;
    bool (*step)(void *arg, struct kv_worker *w);
    void *step_arg;
    _Atomic(uint64_t) filled; /* runs handed over */
    struct run runs[RUNS];
    struct block blocks[BLOCKS];
    /* the file that is read */
    struct kv_rdb_reader *source;
    struct kv_rdb_load *load;
    uint32_t block;            /* in which the window lies */
    const uint8_t *run_begin;  /* of the keys that were not handed over; NULL: there are none */
    uint32_t run_db;           /* theirs */
    bool place_wanted;         /* the next record's place is to be known */
    struct kv_rdb_string name; /* of a record that is built */
    struct kv_collection_limits limits; /* as they were before workers ran */
    uint64_t known_offset, known_sum;   /* place to go back to */
    struct kv_view view;                /* the reader's: no lock, no statistics; its time is that
                                           of the whole loading */
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
        kv_rdb_reader_init(&l->run, kv_slice("", 0));
        kv_rdb_loader_init(&l->loader, &l->reader, &l->view);
    }
    s->view = (struct kv_view){.store = kv_engine_store(e)};
    return s;
}

/* Memory of the loading; workers look at their counts alone. */
static void free_scratch(struct kv_spread *s)
{
    for (uint32_t i = 0; i < s->lane_count; i++) {
        struct lane *l = &s->lanes[i];
        kv_rdb_loader_release(&l->loader);
        kv_rdb_loader_init(&l->loader, &l->reader, &l->view);
        for (uint32_t j = 0; j < PLAN; j++)
            kv_rdb_string_release(&l->plan[j].name);
    }
    for (uint32_t i = 0; i < BLOCKS; i++)
        kv_rdb_bytes_release(&s->blocks[i].bytes);
    kv_rdb_string_release(&s->name);
}

void kv_spread_destroy(struct kv_spread *s)
{
    free_scratch(s);
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

/* Any of the things that the reader waits for may have happened. False: given up, which is told
 * once. */
static bool wait_room(struct kv_spread *s)
{
    if (kv_spread_given_up(s))
        return false;
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

/* The first key of a database in a shard: its table gets the size that it is going to have. */
static void meet_shard(struct lane *l, uint64_t hash, uint32_t expected)
{
    uint32_t shard = kv_store_shard_of(l->view.store, hash);
    uint64_t bit = (uint64_t)1 << (shard & 63);
    if (KV_LIKELY(l->met[shard >> 6] & bit))
        return;
    l->met[shard >> 6] |= bit;
    if (expected != 0)
        kv_store_reserve(&l->view, shard, expected);
}

/* Looks at the next records until PLAN of them are the lane's own, or the slice ends. */
static void plan(struct kv_spread *s, struct lane *l, uint32_t lane, const uint8_t *end)
{
    struct kv_rdb_reader *r = &l->run;
    bool keep_due = s->load->keep_due;
    l->planned = l->put = 0;
    while (l->planned < PLAN && r->at < end) {
        struct planned *p = &l->plan[l->planned];
        if (!kv_rdb_next_record(r, &l->totals, &p->record, &p->name))
            return;
        const uint8_t *value = r->at;
        if (!kv_rdb_skip_value(r, p->record.form))
            return;
        p->hash = kv_store_hash(l->view.store, p->record.name.ptr, p->record.name.len);
        if (kv_store_shard_of(l->view.store, p->hash) % s->lane_count != lane)
            continue;
        if (p->record.expiry != KV_NO_EXPIRY && p->record.expiry <= s->view.now_ms && !keep_due) {
            l->totals.expired++;
            continue;
        }
        kv_store_prefetch_bucket(&l->view, p->hash);
        p->value = kv_slice((const char *)value, (size_t)(r->at - value));
        p->offset = r->start_offset + (uint64_t)(value - r->start);
        l->planned++;
    }
}

/* Puts what was planned; false: a lock was taken, the rest comes later. */
static bool put_planned(struct lane *l, struct kv_worker *w, const struct run *run)
{
    while (l->put < l->planned && l->reader.err == KV_OK) {
        struct planned *p = &l->plan[l->put];
        struct kv_key k = {p->record.name.ptr, p->record.name.len, p->hash};
        if (!kv_load_lock(w, p->hash))
            return false;
        meet_shard(l, p->hash, run->expected);
        p->record.db = run->db;
        kv_rdb_reader_point(&l->reader, p->value, p->offset);
        (void)!kv_rdb_put_record(&l->loader, &p->record, &k, NULL, &l->totals); /* it is noted */
        kv_load_unlock(w, p->hash);
        l->put++;
    }
    return true;
}

static void begin_run(struct kv_spread *s, struct lane *l, const struct run *run)
{
    l->begun = true;
    l->planned = l->put = 0;
    l->view.db = run->db;
    if (l->database != run->db) {
        memset(l->met, 0, sizeof(l->met));
        l->database = run->db;
    }
    l->run.valkey = l->reader.valkey = l->totals.valkey = s->load->valkey;
    kv_rdb_reader_point(&l->run, run->bytes, run->offset);
}

/* A slice of a run; true: it is done. */
static bool work_on(struct kv_spread *s, struct lane *l, uint32_t lane, struct kv_worker *w,
                    const struct run *run)
{
    if (!l->begun)
        begin_run(s, l, run);
    const uint8_t *end = l->run.end;
    if ((size_t)(end - l->run.at) > SLICE_BYTES)
        end = l->run.at + SLICE_BYTES;
    while (put_planned(l, w, run)) {
        if (l->reader.err == KV_OK && l->run.err != KV_OK) {
            l->reader.err = l->run.err;
            l->reader.fault_offset = l->run.fault_offset;
            memcpy(l->reader.fault, l->run.fault, sizeof(l->reader.fault));
        }
        if (l->reader.err != KV_OK || l->run.at == l->run.end)
            return true;
        if (l->run.at >= end)
            return false;
        plan(s, l, lane, end);
    }
    return false;
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
    if (atomic_load(&s->filled) == done)
        return false;
    if (!kv_load_enter(w))
        return true;
    l->view.now_ms = kv_clock_wall_ms();
    bool through = l->reader.err != KV_OK || work_on(s, l, worker, w, &s->runs[done % RUNS]);
    kv_load_leave(w);
    if (!through)
        return true;
    l->begun = false;
    if (l->reader.err != KV_OK)
        atomic_store(&s->faulty, true);
    atomic_store(&l->done, done + 1);
    sem_post(&s->room);
    return atomic_load(&s->filled) != done + 1;
}

/* --- the reader's part --- */

/* Waits until every lane is through with so many runs. False: given up. */
static bool wait_done(struct kv_spread *s, uint64_t runs)
{
    for (uint32_t i = 0; i < s->lane_count; i++)
        while (atomic_load(&s->lanes[i].done) < runs)
            if (!wait_room(s))
                return false;
    return true;
}

/* Hands over the keys up to the record that begins. False: given up. */
static bool hand_over(struct kv_spread *s)
{
    struct kv_rdb_reader *r = s->source;
    uint64_t filled = atomic_load_explicit(&s->filled, memory_order_relaxed);
    const uint8_t *begin = s->run_begin;
    s->run_begin = NULL;
    if (begin == NULL || begin == r->anchor)
        return true;
    if (filled >= RUNS && !wait_done(s, filled + 1 - RUNS))
        return false;
    uint64_t expected = s->load->expected / kv_store_shard_count(s->view.store);
    s->runs[filled % RUNS] = (struct run){
        .bytes = kv_slice((const char *)begin, (size_t)(r->anchor - begin)),
        .offset = r->start_offset + (uint64_t)(begin - r->start),
        .db = s->run_db,
        .expected = (uint32_t)KV_MIN(expected, (uint64_t)UINT32_MAX),
    };
    s->blocks[s->block].runs = filled + 1;
    atomic_store(&s->filled, filled + 1);
    for (uint32_t i = 0; i < s->lane_count; i++)
        if (atomic_load(&s->lanes[i].done) == filled)
            kv_engine_load_wake(s->engine, i);
    return true;
}

/* Hands everything over and waits until it is put. False: given up. */
static bool run_dry(struct kv_spread *s)
{
    return hand_over(s) && wait_done(s, atomic_load_explicit(&s->filled, memory_order_relaxed));
}

/* Where the window goes when it moves: this block when no lane needs what lies in it, or the next
 * one. */
static struct kv_rdb_bytes *next_block(void *arg)
{
    struct kv_spread *s = arg;
    s->place_wanted = true;
    if (!hand_over(s))
        return NULL;
    for (uint32_t i = 0; i < s->lane_count; i++) {
        if (atomic_load(&s->lanes[i].done) >= s->blocks[s->block].runs)
            continue;
        s->block = (s->block + 1) % BLOCKS;
        break;
    }
    struct block *b = &s->blocks[s->block];
    return wait_done(s, b->runs) ? &b->bytes : NULL;
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

/* Reads the record at `offset`, where the source has gone back to. */
static bool build_apart(struct kv_spread *s, uint64_t offset)
{
    struct kv_rdb_reader *r = s->source;
    struct kv_rdb_load walked = {.valkey = s->load->valkey}; /* it was counted before */
    struct kv_rdb_record record;
    struct apart a = {.spread = s, .record = &record};
    struct kv_rdb_target nowhere = {0};
    if (!kv_rdb_skip(r, offset - s->known_offset) ||
        !kv_rdb_next_record(r, &walked, &record, &s->name))
        return false;
    record.db = s->view.db;
    if (record.expiry != KV_NO_EXPIRY && record.expiry <= s->view.now_ms && !s->load->keep_due) {
        s->load->expired++;
        return kv_rdb_skip_value(r, record.form);
    }
    a.offset = kv_rdb_reader_offset(r);
    nowhere.expiry = record.expiry;
    s->apart.built = &a.built;
    enum kv_rdb_result result = kv_rdb_take_value(&s->apart, record.form, &nowhere);
    /* That the key comes twice would be an earlier fault than one of its value. */
    if (result != KV_RDB_PUT)
        a.built = (struct kv_rdb_built){.kind = KV_RDB_BUILT_NOTHING};
    bool put = run_dry(s) && !atomic_load(&s->faulty);
    if (put) {
        kv_spread_post(s, put_apart, &a);
        put = kv_spread_wait(s);
    }
    kv_rdb_built_release(&a.built);
    if (result == KV_RDB_FAILED)
        return false;
    return put || kv_rdb_fail(r, KV_ERR_CLOSED, "loading was given up");
}

/* Goes back to the record that begins at `offset`, builds it in a window of the reader's own, and
 * goes on in a block behind it. */
static bool load_apart(struct kv_spread *s, uint64_t offset)
{
    struct kv_rdb_reader *r = s->source;
    KV_ASSERT(offset >= s->known_offset);
    if (!hand_over(s))
        return kv_rdb_fail(r, KV_ERR_CLOSED, "loading was given up");
    r->next_block = NULL;
    bool done =
        kv_rdb_reader_rewind(r, s->known_offset, s->known_sum) == KV_OK && build_apart(s, offset);
    r->next_block = next_block;
    if (!done)
        return false;
    struct kv_rdb_bytes *to = next_block(s);
    return to != NULL ? kv_rdb_reader_move(r, to)
                      : kv_rdb_fail(r, KV_ERR_CLOSED, "loading was given up");
}

/* --- the walk --- */

static void begin_record(void *arg, struct kv_rdb_reader *r)
{
    struct kv_spread *s = arg;
    r->anchor = r->at;
    if (KV_UNLIKELY(s->place_wanted)) {
        note_place(s);
        s->place_wanted = false;
    }
}

/* The record that begins is too long, or damaged. A pipe cannot be gone back in. */
static bool read_apart(void *arg, struct kv_rdb_reader *r)
{
    if (r->source_bytes == UINT64_MAX || (r->err != KV_ERR_LIMIT && r->err != KV_ERR_SYNTAX))
        return false;
    return load_apart(arg, r->start_offset + (uint64_t)(r->anchor - r->start));
}

static bool walk_over_key(void *arg, struct kv_rdb_reader *r, uint8_t form)
{
    struct kv_spread *s = arg;
    kv_spread_delay(s);
    if (kv_spread_given_up(s) || atomic_load_explicit(&s->faulty, memory_order_relaxed))
        return kv_rdb_fail(r, KV_ERR_CLOSED, "loading was given up");
    if (KV_LIKELY(kv_rdb_skip_string(r) && kv_rdb_skip_value(r, form))) {
        if (KV_UNLIKELY(s->run_begin == NULL)) {
            s->run_begin = r->anchor;
            s->run_db = s->view.db;
        }
        return true;
    }
    return read_apart(s, r);
}

static bool walk_over_other(void *arg, struct kv_rdb_reader *r)
{
    struct kv_spread *s = arg;
    if (!hand_over(s))
        return kv_rdb_fail(r, KV_ERR_CLOSED, "loading was given up");
    r->anchor = NULL; /* it may be longer than a block */
    return true;
}

static const struct kv_rdb_walk walk = {begin_record, walk_over_key, read_apart, walk_over_other};

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
        /* At the same offset: the key of a damaged value comes twice. */
        if (lane->err == KV_OK ||
            (r->err != KV_OK && r->err != KV_ERR_CLOSED && r->fault_offset < lane->fault_offset))
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
    }
    s->run_begin = NULL;
    s->place_wanted = false;
    note_place(s);
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
    l->walk = &walk;
    l->progress = report;
    l->arg = s;
    r->given_up = &s->given_up;
    r->next_block = next_block;
    r->block_arg = s;
    begin(s, l);
    enum kv_err err = kv_rdb_load(r, &s->view, l);
    bool dry = run_dry(s);
    kv_rdb_loader_release(&s->apart);
    r->given_up = NULL;
    r->next_block = NULL;
    r->anchor = NULL;
    if (!dry)
        return KV_ERR_CLOSED;
    choose_fault(s);
    if (r->err == KV_OK && err == KV_OK && !kv_rdb_reader_move(r, &r->buf))
        err = r->err; /* whoever reads on does so in memory of the reader */
    free_scratch(s);
    for (uint32_t i = 0; i < s->lane_count; i++) {
        l->keys += s->lanes[i].totals.keys;
        l->empty += s->lanes[i].totals.empty;
        l->expired += s->lanes[i].totals.expired;
    }
    return r->err != KV_OK ? r->err : err;
}
