/* Hot keys: see hotkeys.h for what is counted and how exact it is.
 *
 * A sketch is one block: entries that keep their place, a heap of their numbers with the smallest
 * estimate first, and an index of their numbers by the hash of their keys. Estimates only grow, so
 * an entry only sinks in the heap. Bytes of keys have blocks of their own; a key that takes over an
 * entry takes its block as well where that fits.
 *
 * A record is a worker's: totals, a sketch for each metric, and two words between the look at a
 * command's time and the one at its reply. Workers have a pointer to theirs while they count; the
 * session keeps all records.
 *
 * A script's time is known when it ends and contains that of its commands, which were counted with
 * other keys: their sum is taken off.
 *
 * Rejected: a count-min sketch with a heap beside it. It needs more memory for the same bound, and
 * hashes of its own. Rejected: an entry for the beginning of a very long key. Two such keys would
 * be one.
 */
#include "engine/hotkeys.h"
#include "base/clock.h"
#include "base/number.h"
#include "engine/delivery.h"
#include "engine/worker.h"
#include <stdlib.h>
#include <sys/resource.h>

#define ENTRIES_PER_KEY 8
#define ENTRIES_MIN 64

struct kv_hotkeys_record {
    uint64_t ns;          /* time of all commands */
    uint64_t bytes;       /* of their requests and replies */
    uint64_t inner_ticks; /* of commands of the script that runs */
    bool counted;         /* the command whose time was looked at last: it counts */
    bool sampled;         /* and so do its keys */
    struct kv_hotkeys_sketch *sketches[KV_HOTKEYS_METRICS]; /* NULL: not wanted */
};

struct usage {
    uint64_t user_us, sys_us; /* processor time of the process since its start */
};

struct kv_hotkeys {
    struct kv_hotkeys_options options;
    bool active;             /* not stopped; its end may have passed */
    bool used_known;         /* `used` is that at the end: by worker 0, or behind a world stop */
    int64_t start_ms;        /* Unix time */
    uint64_t start_ticks;    /* commands that began before do not count */
    uint64_t end_ticks;      /* it counts until here; UINT64_MAX: no end */
    struct usage start_used; /* when it began */
    struct usage used;       /* when it ended */
    uint32_t record_count;
    struct kv_hotkeys_record *records[]; /* of the workers, owned */
};

/* --- the sketch --- */

static size_t sketch_bytes(uint32_t capacity, uint32_t slot_count)
{
    return sizeof(struct kv_hotkeys_sketch) + capacity * sizeof(struct kv_hotkeys_entry) +
           (capacity + slot_count) * sizeof(uint16_t);
}

struct kv_hotkeys_sketch *kv_hotkeys_sketch_try_create(uint32_t capacity)
{
    uint32_t slot_count = 2;
    KV_ASSERT(capacity > 0);
    KV_ASSERT(capacity <= ENTRIES_PER_KEY * KV_HOTKEYS_COUNT_MAX);
    while (slot_count < 2 * capacity)
        slot_count *= 2;
    struct kv_hotkeys_sketch *s =
        kv_mem_try_zalloc(sketch_bytes(capacity, slot_count), KV_MEM_SLOWLOG);
    if (s == NULL)
        return NULL;
    s->capacity = capacity;
    s->slot_count = slot_count;
    s->heap = (uint16_t *)&s->entries[capacity];
    s->slots = s->heap + capacity;
    return s;
}

void kv_hotkeys_sketch_destroy(struct kv_hotkeys_sketch *s)
{
    if (s == NULL)
        return;
    for (uint32_t i = 0; i < s->len; i++)
        kv_mem_free(s->entries[i].key, s->entries[i].len, KV_MEM_SLOWLOG);
    kv_mem_free(s, sketch_bytes(s->capacity, s->slot_count), KV_MEM_SLOWLOG);
}

static void heap_put(struct kv_hotkeys_sketch *s, uint32_t place, uint16_t number)
{
    s->heap[place] = number;
    s->entries[number].place = place;
}

/* An entry's estimate has grown. */
static void sink(struct kv_hotkeys_sketch *s, uint32_t place)
{
    uint16_t number = s->heap[place];
    uint64_t estimate = s->entries[number].estimate;
    for (uint32_t child; (child = 2 * place + 1) < s->len; place = child) {
        if (child + 1 < s->len &&
            s->entries[s->heap[child + 1]].estimate < s->entries[s->heap[child]].estimate)
            child++;
        if (s->entries[s->heap[child]].estimate >= estimate)
            break;
        heap_put(s, place, s->heap[child]);
    }
    heap_put(s, place, number);
}

/* The last entry of the heap is new. */
static void rise(struct kv_hotkeys_sketch *s, uint32_t place)
{
    uint16_t number = s->heap[place];
    uint64_t estimate = s->entries[number].estimate;
    for (; place > 0; place = (place - 1) / 2) {
        uint16_t parent = s->heap[(place - 1) / 2];
        if (s->entries[parent].estimate <= estimate)
            break;
        heap_put(s, place, parent);
    }
    heap_put(s, place, number);
}

/* Where a key's number is, or would go. */
static uint32_t find_slot(const struct kv_hotkeys_sketch *s, const struct kv_key *key)
{
    uint32_t mask = s->slot_count - 1;
    uint32_t at = (uint32_t)key->hash & mask;
    for (; s->slots[at] != 0; at = (at + 1) & mask) {
        const struct kv_hotkeys_entry *e = &s->entries[s->slots[at] - 1];
        if (e->hash == key->hash && e->len == key->len &&
            kv_bytes_equal(e->key, key->ptr, key->len))
            break;
    }
    return at;
}

/* What lies behind the freed slot and would have gone there moves up. */
static void free_slot(struct kv_hotkeys_sketch *s, uint32_t at)
{
    uint32_t mask = s->slot_count - 1;
    KV_DASSERT(s->slots[at] != 0);
    for (uint32_t next = (at + 1) & mask; s->slots[next] != 0; next = (next + 1) & mask) {
        uint32_t home = (uint32_t)s->entries[s->slots[next] - 1].hash & mask;
        if (((next - home) & mask) < ((next - at) & mask))
            continue;
        s->slots[at] = s->slots[next];
        at = next;
    }
    s->slots[at] = 0;
}

static void use_slot(struct kv_hotkeys_sketch *s, const struct kv_key *key, uint32_t number)
{
    uint32_t at = find_slot(s, key);
    KV_DASSERT(s->slots[at] == 0);
    s->slots[at] = (uint16_t)(number + 1);
}

/* The entry is the key's from now on. False: no memory, nothing has changed. */
static bool set_key(struct kv_hotkeys_entry *e, const struct kv_key *key)
{
    if (e->key == NULL || !kv_mem_same_block(e->len, key->len)) {
        char *bytes = kv_mem_try_alloc(key->len, KV_MEM_SLOWLOG);
        if (bytes == NULL)
            return false;
        if (e->key != NULL)
            kv_mem_free(e->key, e->len, KV_MEM_SLOWLOG);
        e->key = bytes;
    }
    if (key->len > 0)
        memcpy(e->key, key->ptr, key->len);
    e->len = (uint32_t)key->len;
    e->hash = key->hash;
    return true;
}

static void add_entry(struct kv_hotkeys_sketch *s, const struct kv_key *key, uint64_t amount)
{
    uint32_t number = s->len;
    struct kv_hotkeys_entry *e = &s->entries[number];
    KV_DASSERT(e->key == NULL);
    if (!set_key(e, key))
        return;
    e->estimate = amount;
    e->error = 0;
    use_slot(s, key, number);
    s->len++;
    heap_put(s, number, (uint16_t)number);
    rise(s, number);
}

/* The key may have been what the entry was before: its estimate says how much at most. */
static void take_over(struct kv_hotkeys_sketch *s, const struct kv_key *key, uint64_t amount)
{
    uint32_t number = s->heap[0];
    struct kv_hotkeys_entry *e = &s->entries[number];
    const struct kv_key before = {.ptr = e->key, .len = e->len, .hash = e->hash};
    uint32_t at = find_slot(s, &before);
    KV_DASSERT(s->slots[at] == number + 1);
    if (!set_key(e, key))
        return;
    free_slot(s, at);
    use_slot(s, key, number);
    e->error = e->estimate;
    e->estimate += amount;
    sink(s, 0);
}

void kv_hotkeys_sketch_add(struct kv_hotkeys_sketch *s, const struct kv_key *key, uint64_t amount)
{
    if (amount == 0)
        return;
    s->total += amount;
    if (key->len > KV_HOTKEYS_KEY_MAX)
        return;
    uint32_t at = find_slot(s, key);
    if (s->slots[at] != 0) {
        struct kv_hotkeys_entry *e = &s->entries[s->slots[at] - 1];
        e->estimate += amount;
        sink(s, e->place);
    } else if (s->len < s->capacity) {
        add_entry(s, key, amount);
    } else {
        take_over(s, key, amount);
    }
}

void kv_hotkeys_sketch_check(const struct kv_hotkeys_sketch *s)
{
    uint64_t sum = 0;
    uint32_t used = 0;
    KV_ASSERT(s->len <= s->capacity);
    for (uint32_t i = 0; i < s->len; i++) {
        const struct kv_hotkeys_entry *e = &s->entries[i];
        const struct kv_key key = {.ptr = e->key, .len = e->len, .hash = e->hash};
        KV_ASSERT(e->error < e->estimate);
        KV_ASSERT(e->place < s->len);
        KV_ASSERT(s->heap[e->place] == i);
        KV_ASSERT(s->slots[find_slot(s, &key)] == i + 1);
        if (e->place > 0)
            KV_ASSERT(s->entries[s->heap[(e->place - 1) / 2]].estimate <= e->estimate);
        sum += e->estimate;
    }
    for (uint32_t i = 0; i < s->slot_count; i++)
        used += s->slots[i] != 0;
    KV_ASSERT(used == s->len);
    KV_ASSERT(sum <= s->total);
}

/* --- sessions --- */

static struct usage used_now(void)
{
    struct rusage u;
    int rc = getrusage(RUSAGE_SELF, &u);
    KV_ASSERT(rc == 0);
    return (struct usage){
        .user_us = (uint64_t)u.ru_utime.tv_sec * 1000000 + (uint64_t)u.ru_utime.tv_usec,
        .sys_us = (uint64_t)u.ru_stime.tv_sec * 1000000 + (uint64_t)u.ru_stime.tv_usec};
}

static void record_destroy(struct kv_hotkeys_record *r)
{
    if (r == NULL)
        return;
    for (int i = 0; i < KV_HOTKEYS_METRICS; i++)
        kv_hotkeys_sketch_destroy(r->sketches[i]);
    kv_mem_free_aligned(r, sizeof(*r), KV_CACHE_LINE, KV_MEM_SLOWLOG);
}

static struct kv_hotkeys_record *record_try_create(const struct kv_hotkeys_options *options)
{
    uint32_t capacity = KV_MAX(options->count * ENTRIES_PER_KEY, ENTRIES_MIN);
    struct kv_hotkeys_record *r =
        kv_mem_try_alloc_aligned(sizeof(*r), KV_CACHE_LINE, KV_MEM_SLOWLOG);
    if (r == NULL)
        return NULL;
    memset(r, 0, sizeof(*r));
    for (int i = 0; i < KV_HOTKEYS_METRICS; i++) {
        if (!options->wanted[i])
            continue;
        r->sketches[i] = kv_hotkeys_sketch_try_create(capacity);
        if (r->sketches[i] == NULL) {
            record_destroy(r);
            return NULL;
        }
    }
    return r;
}

static size_t session_bytes(uint32_t record_count)
{
    return sizeof(struct kv_hotkeys) + record_count * sizeof(struct kv_hotkeys_record *);
}

static void session_destroy(struct kv_hotkeys *h)
{
    for (uint32_t i = 0; i < h->record_count; i++)
        record_destroy(h->records[i]);
    kv_mem_free(h, session_bytes(h->record_count), KV_MEM_SLOWLOG);
}

static struct kv_hotkeys *session_try_create(uint32_t record_count,
                                             const struct kv_hotkeys_options *options)
{
    struct kv_hotkeys *h = kv_mem_try_zalloc(session_bytes(record_count), KV_MEM_SLOWLOG);
    if (h == NULL)
        return NULL;
    h->options = *options;
    h->record_count = record_count;
    for (uint32_t i = 0; i < record_count; i++) {
        h->records[i] = record_try_create(options);
        if (h->records[i] == NULL) {
            session_destroy(h);
            return NULL;
        }
    }
    return h;
}

/* Behind a world stop: no worker counts any more. */
static void end_session(struct kv_engine *e, uint64_t at_ticks)
{
    struct kv_hotkeys *h = e->hotkeys;
    KV_ASSERT(h->active);
    h->active = false;
    h->end_ticks = at_ticks;
    if (!h->used_known)
        h->used = used_now();
    h->used_known = true;
    for (uint32_t i = 0; i < e->worker_count; i++)
        e->workers[i]->hotkeys = NULL;
}

bool kv_hotkeys_active(struct kv_engine *e)
{
    struct kv_hotkeys *h = e->hotkeys;
    if (h == NULL || !h->active)
        return false;
    if (kv_clock_ticks() < h->end_ticks)
        return true;
    end_session(e, h->end_ticks);
    return false;
}

enum kv_err kv_hotkeys_start(struct kv_worker *w, const struct kv_hotkeys_options *options)
{
    struct kv_engine *e = w->engine;
    KV_ASSERT(options->wanted[KV_HOTKEYS_CPU] || options->wanted[KV_HOTKEYS_NET]);
    KV_ASSERT(options->count >= 1 && options->count <= KV_HOTKEYS_COUNT_MAX);
    KV_ASSERT(options->ratio >= 1);
    KV_ASSERT(options->duration_s <= KV_HOTKEYS_SECONDS_MAX);
    KV_ASSERT(e->hotkeys == NULL || !e->hotkeys->active);
    struct kv_hotkeys *h = session_try_create(e->worker_count, options);
    if (h == NULL)
        return KV_ERR_NOMEM;
    kv_hotkeys_release(e);
    h->active = true;
    h->start_ms = kv_clock_wall_ms();
    h->start_used = used_now();
    h->start_ticks = kv_clock_ticks();
    h->end_ticks = UINT64_MAX;
    if (options->duration_s > 0)
        h->end_ticks = h->start_ticks + kv_clock_ns_to_ticks(options->duration_s * 1000000000ull);
    e->hotkeys = h;
    for (uint32_t i = 0; i < e->worker_count; i++)
        e->workers[i]->hotkeys = h->records[i];
    kv_worker_take_limits(w); /* the others do when they go on */
    return KV_OK;
}

void kv_hotkeys_stop(struct kv_worker *w)
{
    end_session(w->engine, kv_clock_ticks());
    kv_worker_take_limits(w);
}

void kv_hotkeys_release(struct kv_engine *e)
{
    if (e->hotkeys == NULL)
        return;
    session_destroy(e->hotkeys);
    e->hotkeys = NULL;
}

bool kv_hotkeys_report(struct kv_engine *e, struct kv_hotkeys_report *out)
{
    bool active = kv_hotkeys_active(e);
    const struct kv_hotkeys *h = e->hotkeys;
    if (h == NULL)
        return false;
    uint64_t end_ticks = active ? kv_clock_ticks() : h->end_ticks, ns = 0;
    struct usage used = active ? used_now() : h->used;
    *out = (struct kv_hotkeys_report){
        .options = h->options,
        .active = active,
        .start_ms = h->start_ms,
        .duration_ms = kv_clock_ticks_to_ns(end_ticks - h->start_ticks) / 1000000,
        .user_ms = (used.user_us - h->start_used.user_us) / 1000,
        .sys_ms = (used.sys_us - h->start_used.sys_us) / 1000,
    };
    for (uint32_t i = 0; i < h->record_count; i++) {
        ns += h->records[i]->ns;
        out->commands_bytes += h->records[i]->bytes;
    }
    out->commands_us = ns / 1000;
    return true;
}

/* --- the dearest keys --- */

static int compare_keys(const void *a, const void *b)
{
    const struct kv_hotkeys_item *x = a, *y = b;
    if (x->hash != y->hash)
        return x->hash < y->hash ? -1 : 1;
    return kv_slice_compare(x->key, y->key);
}

static int compare_costs(const void *a, const void *b)
{
    const struct kv_hotkeys_item *x = a, *y = b;
    if (x->cost != y->cost)
        return x->cost > y->cost ? -1 : 1;
    return kv_slice_compare(x->key, y->key);
}

/* Sorted by key: what several workers know of a key becomes one item. Returns how many are left. */
static uint32_t merge(struct kv_hotkeys_item *items, uint32_t count)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (kept > 0 && compare_keys(&items[kept - 1], &items[i]) == 0)
            items[kept - 1].cost += items[i].cost;
        else
            items[kept++] = items[i];
    }
    return kept;
}

enum kv_err kv_hotkeys_top(struct kv_engine *e, enum kv_hotkeys_metric metric,
                           struct kv_arena *arena, struct kv_hotkeys_item **items, uint32_t *count)
{
    const struct kv_hotkeys *h = e->hotkeys;
    uint32_t all = 0, len = 0;
    KV_ASSERT(h != NULL && h->options.wanted[metric]);
    for (uint32_t i = 0; i < h->record_count; i++)
        all += h->records[i]->sketches[metric]->len;
    *items = kv_arena_try_alloc(arena, KV_MAX(all, 1) * sizeof(**items));
    if (*items == NULL)
        return KV_ERR_NOMEM;
    for (uint32_t i = 0; i < h->record_count; i++) {
        const struct kv_hotkeys_sketch *s = h->records[i]->sketches[metric];
        for (uint32_t j = 0; j < s->len; j++, len++) {
            const struct kv_hotkeys_entry *entry = &s->entries[j];
            (*items)[len] = (struct kv_hotkeys_item){.key = kv_slice(entry->key, entry->len),
                                                     .hash = entry->hash,
                                                     .cost = entry->estimate};
        }
    }
    KV_ASSERT(len == all);
    qsort(*items, len, sizeof(**items), compare_keys);
    len = merge(*items, len);
    qsort(*items, len, sizeof(**items), compare_costs);
    *count = KV_MIN(len, h->options.count);
    return KV_OK;
}

/* --- recording --- */

/* The end has come. */
static void leave(struct kv_worker *w)
{
    struct kv_hotkeys *h = w->engine->hotkeys;
    w->hotkeys = NULL;
    if (w->index == 0) {
        h->used = used_now();
        h->used_known = true;
    }
}

bool kv_hotkeys_look(struct kv_worker *w)
{
    if (w->round_start_ticks < w->engine->hotkeys->end_ticks)
        return true;
    leave(w);
    return false;
}

/* Shard channels are found as keys are (kv_resolve_keys), without being any. */
static uint64_t key_count(const struct kv_call *call)
{
    const struct kv_command *cmd = call->cmd;
    bool has_keys = cmd->keyspec_count > 0 && !(cmd->keyspecs[0].flags & KV_KEY_NOT_KEY);
    return has_keys ? (uint64_t)call->key_count : 0;
}

static void spread(struct kv_hotkeys_sketch *s, const struct kv_call *call, uint64_t cost)
{
    uint64_t count = key_count(call);
    if (s == NULL || count == 0)
        return;
    kv_hotkeys_sketch_add(s, &call->keys[0], cost / count + cost % count);
    for (uint64_t i = 1; i < count; i++)
        kv_hotkeys_sketch_add(s, &call->keys[i], cost / count);
}

static uint64_t request_bytes(const struct kv_slice *argv, int argc)
{
    uint64_t bytes = 1 + kv_int_digits(argc) + 2;
    for (int i = 0; i < argc; i++)
        bytes += kv_payload_bulk_len(argv[i].len);
    return bytes;
}

void kv_hotkeys_note(struct kv_client *c, const struct kv_command *cmd, const struct kv_slice *argv,
                     int argc, uint64_t ticks)
{
    struct kv_worker *w = c->worker;
    struct kv_hotkeys_record *r = w->hotkeys;
    const struct kv_hotkeys *h = w->engine->hotkeys;
    const struct kv_call *call = &w->call;
    bool is_exec = cmd == w->engine->cmd_exec; /* the call is that of its last command */
    if (w->now_ticks >= h->end_ticks) {
        leave(w);
        kv_worker_take_limits(w);
        return;
    }
    r->counted = w->now_ticks - ticks >= h->start_ticks;
    if (!r->counted)
        return;
    if (is_exec) {
        r->bytes += request_bytes(argv, argc);
    } else if (call->flags & KV_CALL_IN_SCRIPT) {
        r->inner_ticks += ticks;
    } else if (cmd->flags & KV_CMD_SCRIPT) {
        ticks -= KV_MIN(ticks, r->inner_ticks);
        r->inner_ticks = 0;
    }
    uint64_t ns = kv_clock_ticks_to_ns(ticks);
    r->ns += ns;
    r->sampled = h->options.ratio == 1 || kv_random_below(&w->random, h->options.ratio) == 0;
    if (r->sampled && !is_exec)
        spread(r->sketches[KV_HOTKEYS_CPU], call, ns);
}

void kv_hotkeys_note_reply(struct kv_client *c, const struct kv_slice *argv, int argc,
                           uint64_t bytes)
{
    struct kv_worker *w = c->worker;
    struct kv_hotkeys_record *r = w->hotkeys;
    if (!r->counted)
        return;
    if (c->flags & (KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP))
        bytes = 0; /* rewound soon */
    bytes += request_bytes(argv, argc);
    r->bytes += bytes;
    if (r->sampled)
        spread(r->sketches[KV_HOTKEYS_NET], &w->call, bytes);
}
