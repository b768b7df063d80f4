/* Commands on keys of any type: DEL, UNLINK, EXISTS, TOUCH, TYPE, RENAME, RENAMENX, COPY, MOVE,
 * KEYS, SCAN, RANDOMKEY, OBJECT.
 *
 * Long key lists (DEL, UNLINK, EXISTS, TOUCH) go in windows of WINDOW keys: first all buckets of
 * the window are prefetched, then all entries, then the command runs over it, so that the cache
 * misses of a window overlap instead of following one another. Short lists skip this.
 *
 * SCAN's cursor is `shard << KV_TABLE_POSITION_BITS | position`, below 2^53, so that clients that
 * keep numbers in doubles do not damage it. 0 starts and, since no walk comes back to shard 0 at
 * position 0, also ends. A position depends on hashes alone, hence the guarantee of
 * kv_table_scan holds shard by shard: a key that is present during the whole walk is reported, and
 * exactly once. Keys are copied into the call's arena while their shard is locked, because the
 * reply carries the cursor, known last, before the keys. The lock is taken anew every SCAN_SLICE
 * entries, so a huge COUNT does not hold a shard; a call also ends early, with a valid cursor, when
 * a table is so thin that kv_table_scan's bucket limit stops it or when the next shard is busy.
 *
 * RANDOMKEY walks shards from a random one on and keeps one candidate by weighted reservoir
 * sampling: a shard with n keys replaces the candidate with probability n / (keys seen so far). The
 * walk stops after RANDOM_SHARDS shards that held RANDOM_KEYS keys together. So a keyspace of few
 * keys is walked completely, where each key has the same chance; in a large one a key's chance
 * differs by no more than the sizes of the visited shards differ from the average, which is a few
 * percent since keys are spread by hash. Only a walk over all shards may answer null.
 *
 * When the very first shard of SCAN or RANDOMKEY is busy they return without a reply: the engine
 * parks the connection and runs the command again.
 *
 * RENAME, COPY and MOVE change v->db around calls that concern another database and set it back
 * before they return. UNLINK is DEL: the store itself hands large values to the background.
 *
 * Reads here count hits and misses as Redis does but leave the access clock alone (TOUCH and COPY's
 * source excepted). Threads: see engine/call.h; nothing here is shared.
 */
#include "base/assert.h"
#include "base/glob.h"
#include "base/random.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "store/foreign.h"
#include <stdio.h>

#define WINDOW 16         /* keys prefetched together */
#define SCAN_SLICE 1024   /* entries visited under one lock */
#define SCAN_BLOCK 256    /* keys of one block of results */
#define RANDOM_SHARDS 16  /* shards that RANDOMKEY visits at least, if there are so many */
#define RANDOM_KEYS 64    /* keys that it wants to have seen */
#define RANDOM_ROUNDS 256 /* walks over shards that were all busy or empty */

static_assert(KV_TABLE_POSITION_BITS + 12 <= 53, "a cursor is exact as a double");

/* At the start of each window of a long list: fetches the window's buckets, then its entries. */
KV_INLINE void prefetch_window(const struct kv_call *call, int at)
{
    if (call->key_count < 3 || at % WINDOW != 0)
        return;
    int end = KV_MIN(at + WINDOW, call->key_count);
    for (int i = at; i < end; i++)
        kv_store_prefetch_bucket(&call->view, call->keys[i].hash);
    for (int i = at; i < end; i++)
        kv_store_prefetch_entry(&call->view, call->keys[i].hash);
}

void kv_cmd_del(struct kv_call *call)
{
    KV_ASSERT(call->key_count >= 1);
    int64_t deleted = 0;
    for (int i = 0; i < call->key_count; i++) {
        prefetch_window(call, i);
        struct kv_entry *e = kv_store_peek(&call->view, &call->keys[i]);
        if (e == NULL)
            continue;
        kv_store_delete(&call->view, &call->keys[i], e);
        kv_store_changed(&call->view, &call->keys[i], KV_EVENT_GENERIC, "del");
        deleted++;
    }
    kv_reply_int(call->out, deleted);
}

void kv_cmd_unlink(struct kv_call *call)
{
    kv_cmd_del(call);
}

void kv_cmd_exists(struct kv_call *call)
{
    KV_ASSERT(call->key_count >= 1);
    int64_t found = 0;
    for (int i = 0; i < call->key_count; i++) {
        prefetch_window(call, i);
        found += kv_cmd_read_untouched(call, &call->keys[i]) != NULL;
    }
    kv_reply_int(call->out, found);
}

void kv_cmd_touch(struct kv_call *call)
{
    KV_ASSERT(call->key_count >= 1);
    /* TOUCH is an access by definition, also from a client that set NO-TOUCH. */
    uint32_t flags = call->view.flags;
    call->view.flags = flags & ~(uint32_t)KV_VIEW_NO_TOUCH;
    int64_t found = 0;
    for (int i = 0; i < call->key_count; i++) {
        prefetch_window(call, i);
        found += kv_store_read(&call->view, &call->keys[i]) != NULL;
    }
    call->view.flags = flags;
    kv_reply_int(call->out, found);
}

void kv_cmd_type(struct kv_call *call)
{
    KV_ASSERT(call->key_count == 1);
    const struct kv_entry *e = kv_cmd_read_untouched(call, &call->keys[0]);
    struct kv_slice name = e == NULL ? KV_SLICE("none") : kv_entry_type_name(e);
    char text[256];
    snprintf(text, sizeof(text), "%.*s", (int)name.len, name.ptr);
    kv_reply_status(call->out, text);
}

/* --- RENAME, COPY, MOVE --- */

static bool same_key(const struct kv_key *a, const struct kv_key *b)
{
    return kv_slice_equal(kv_slice(a->ptr, a->len), kv_slice(b->ptr, b->len));
}

/* Looks a key up in another database without access; the view comes back unchanged. */
static bool exists_in(struct kv_call *call, uint32_t db, const struct kv_key *k)
{
    uint32_t selected = call->view.db;
    call->view.db = db;
    bool exists = kv_store_peek(&call->view, k) != NULL;
    call->view.db = selected;
    return exists;
}

static void changed_in(struct kv_call *call, uint32_t db, const struct kv_key *k, const char *event)
{
    uint32_t selected = call->view.db;
    call->view.db = db;
    kv_store_changed(&call->view, k, KV_EVENT_GENERIC, event);
    call->view.db = selected;
}

/* Both forms; true when the key was renamed, false when a reply was given or nothing was to do. */
static bool rename_key(struct kv_call *call, bool only_if_absent, bool *replied)
{
    KV_ASSERT(call->key_count == 2);
    const struct kv_key *from = &call->keys[0], *to = &call->keys[1];
    *replied = true;
    struct kv_entry *e = kv_store_write(&call->view, from);
    if (e == NULL) {
        kv_call_error(call, "ERR no such key");
        return false;
    }
    *replied = false;
    if (same_key(from, to) || (only_if_absent && kv_store_peek(&call->view, to) != NULL))
        return false;
    enum kv_err err = kv_store_move(&call->view, from, e, call->view.db, to);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        *replied = true;
        return false;
    }
    kv_store_changed(&call->view, from, KV_EVENT_GENERIC, "rename_from");
    kv_store_changed(&call->view, to, KV_EVENT_GENERIC, "rename_to");
    return true;
}

void kv_cmd_rename(struct kv_call *call)
{
    bool replied;
    rename_key(call, false, &replied);
    if (!replied)
        kv_reply_ok(call->out);
}

void kv_cmd_renamenx(struct kv_call *call)
{
    bool replied;
    bool renamed = rename_key(call, true, &replied);
    if (!replied)
        kv_reply_int(call->out, renamed);
}

static bool copy_options(struct kv_call *call, uint32_t *db, bool *replace)
{
    for (int i = 3; i < call->argc; i++) {
        if (kv_call_arg_is(call, i, "replace")) {
            *replace = true;
        } else if (kv_call_arg_is(call, i, "db") && i + 1 < call->argc) {
            if (!kv_cmd_database(call, ++i, db))
                return false;
        } else {
            kv_call_syntax_error(call);
            return false;
        }
    }
    return true;
}

void kv_cmd_copy(struct kv_call *call)
{
    KV_ASSERT(call->key_count == 2);
    const struct kv_key *from = &call->keys[0], *to = &call->keys[1];
    uint32_t db = call->view.db;
    bool replace = false;
    if (!copy_options(call, &db, &replace))
        return;
    if (db == call->view.db && same_key(from, to)) {
        kv_call_error(call, "ERR source and destination objects are the same");
        return;
    }
    struct kv_entry *e = kv_store_read(&call->view, from);
    if (e == NULL || (exists_in(call, db, to) && !replace)) {
        kv_reply_int(call->out, 0);
        return;
    }
    enum kv_err err = kv_store_copy(&call->view, e, db, to);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    changed_in(call, db, to, "copy_to");
    kv_reply_int(call->out, 1);
}

void kv_cmd_move(struct kv_call *call)
{
    KV_ASSERT(call->key_count == 1);
    const struct kv_key *k = &call->keys[0];
    uint32_t db;
    if (!kv_cmd_database(call, 2, &db))
        return;
    if (db == call->view.db) {
        kv_call_error(call, "ERR source and destination objects are the same");
        return;
    }
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (e == NULL || exists_in(call, db, k)) {
        kv_reply_int(call->out, 0);
        return;
    }
    enum kv_err err = kv_store_move(&call->view, k, e, db, k);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "move_from");
    changed_in(call, db, k, "move_to");
    kv_reply_int(call->out, 1);
}

/* --- KEYS and SCAN --- */

struct keys_walk {
    struct kv_out *out;
    struct kv_slice pattern;
    bool match_all;
    size_t count;
};

static void keys_visit(struct kv_entry *e, void *arg)
{
    struct keys_walk *w = arg;
    struct kv_slice key = kv_entry_key(e);
    if (!w->match_all && !kv_glob_match(w->pattern, key, false))
        return;
    kv_reply_slice(w->out, key);
    w->count++;
}

void kv_cmd_keys(struct kv_call *call)
{
    KV_ASSERT(call->argc == 2);
    struct keys_walk w = {.out = call->out,
                          .pattern = call->argv[1],
                          .match_all = kv_slice_equal(call->argv[1], KV_SLICE("*"))};
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    kv_store_each(&call->view, keys_visit, &w);
    kv_reply_array_end(call->out, token, w.count);
}

struct scan_block {
    struct scan_block *next;
    int count;
    struct kv_slice keys[SCAN_BLOCK];
};

struct scan_walk {
    struct kv_arena *arena;
    struct kv_slice pattern; /* len 0 and ptr NULL: none */
    struct kv_slice type;    /* likewise */
    uint64_t limit;          /* COUNT: entries to visit */
    uint64_t visited;
    struct scan_block *first, *last;
    size_t found;
    bool failed; /* memory was short */
};

static bool scan_options(struct kv_call *call, struct scan_walk *w)
{
    w->limit = 10;
    for (int i = 2; i < call->argc; i += 2) {
        if (i + 1 == call->argc) {
            kv_call_syntax_error(call);
            return false;
        }
        if (kv_call_arg_is(call, i, "count")) {
            int64_t count;
            if (!kv_call_int(call, i + 1, &count))
                return false;
            if (count < 1) {
                kv_call_syntax_error(call);
                return false;
            }
            w->limit = (uint64_t)count;
        } else if (kv_call_arg_is(call, i, "match")) {
            w->pattern = call->argv[i + 1];
            if (kv_slice_equal(w->pattern, KV_SLICE("*")))
                w->pattern = (struct kv_slice){NULL, 0};
        } else if (kv_call_arg_is(call, i, "type")) {
            w->type = call->argv[i + 1];
        } else {
            kv_call_syntax_error(call);
            return false;
        }
    }
    return true;
}

static bool has_type(const struct kv_entry *e, struct kv_slice name)
{
    if (kv_entry_encoding(e) == KV_ENC_FOREIGN)
        return kv_slice_equal(name, kv_entry_foreign(e).type_name);
    return kv_slice_is(name, kv_type_name(kv_entry_type(e)));
}

static void scan_visit(struct kv_entry *e, void *arg)
{
    struct scan_walk *w = arg;
    w->visited++;
    if (w->failed)
        return;
    if (w->type.ptr != NULL && !has_type(e, w->type))
        return;
    struct kv_slice key = kv_entry_key(e);
    if (w->pattern.ptr != NULL && !kv_glob_match(w->pattern, key, false))
        return;
    if (w->last == NULL || w->last->count == SCAN_BLOCK) {
        struct scan_block *block = kv_arena_try_alloc(w->arena, sizeof(*block));
        if (block == NULL) {
            w->failed = true;
            return;
        }
        block->next = NULL;
        block->count = 0;
        *(w->last == NULL ? &w->first : &w->last->next) = block;
        w->last = block;
    }
    char *copy = kv_arena_try_alloc(w->arena, KV_MAX(key.len, (size_t)1));
    if (copy == NULL) {
        w->failed = true;
        return;
    }
    memcpy(copy, key.ptr, key.len);
    w->last->keys[w->last->count++] = kv_slice(copy, key.len);
    w->found++;
}

/* Walks on from the cursor; returns the next one, 0 at the end. *busy: not even the first shard
 * could be locked; the engine will run the command again, and no reply is wanted. */
static uint64_t scan_walk(struct kv_call *call, struct scan_walk *w, uint64_t cursor, bool *busy)
{
    uint64_t shard_count = kv_store_shard_count(call->view.store);
    uint64_t shard = cursor >> KV_TABLE_POSITION_BITS;
    uint64_t position = cursor & (KV_TABLE_POSITION_END - 1);
    while (shard < shard_count) {
        if (!kv_call_lock_shard(call, (uint32_t)shard)) {
            *busy = !call->visited;
            break;
        }
        uint64_t slice = KV_MIN(w->limit - w->visited, (uint64_t)SCAN_SLICE);
        uint64_t before = w->visited;
        position =
            kv_store_scan_shard(&call->view, (uint32_t)shard, position, slice, scan_visit, w);
        KV_ASSERT(position <= KV_TABLE_POSITION_END);
        bool thin = position != KV_TABLE_POSITION_END && w->visited - before < slice;
        if (position == KV_TABLE_POSITION_END) {
            shard++;
            position = 0;
        }
        if (thin || w->failed || w->visited >= w->limit)
            break;
    }
    return shard < shard_count ? shard << KV_TABLE_POSITION_BITS | position : 0;
}

void kv_cmd_scan(struct kv_call *call)
{
    KV_ASSERT(call->argc >= 2);
    struct scan_walk w = {.arena = call->arena};
    uint64_t cursor;
    if (!kv_cmd_cursor(call, 1, &cursor) || !scan_options(call, &w))
        return;
    bool busy = false;
    cursor = scan_walk(call, &w, cursor, &busy);
    if (busy)
        return;
    if (w.failed) {
        kv_call_no_memory(call);
        return;
    }
    kv_reply_array(call->out, 2);
    KV_DASSERT(cursor < (uint64_t)1 << 53);
    kv_reply_bulk_int(call->out, (int64_t)cursor);
    kv_reply_array(call->out, w.found);
    for (const struct scan_block *b = w.first; b != NULL; b = b->next) {
        for (int i = 0; i < b->count; i++)
            kv_reply_slice(call->out, b->keys[i]);
    }
}

/* --- RANDOMKEY --- */

struct random_walk {
    struct kv_random *random;
    struct kv_slice key; /* the candidate, in the arena; ptr NULL: none */
    uint64_t seen;       /* keys of the shards visited */
    uint32_t visited;    /* shards that could be locked */
    bool failed;
};

static void random_consider(struct kv_call *call, struct random_walk *w, uint32_t shard)
{
    uint64_t size = kv_store_shard_size(call->view.store, shard, call->view.db);
    w->visited++;
    w->seen += size;
    if (size == 0 || (w->key.ptr != NULL && kv_random_below(w->random, w->seen) >= size))
        return;
    const struct kv_entry *e = kv_store_random(&call->view, shard, w->random);
    if (e == NULL)
        return;
    struct kv_slice key = kv_entry_key(e);
    char *copy = kv_arena_try_alloc(call->arena, KV_MAX(key.len, (size_t)1));
    if (copy == NULL) {
        w->failed = true;
        return;
    }
    memcpy(copy, key.ptr, key.len);
    w->key = kv_slice(copy, key.len);
}

void kv_cmd_randomkey(struct kv_call *call)
{
    uint32_t shard_count = kv_store_shard_count(call->view.store);
    struct random_walk w = {.random = kv_cmd_random()};
    KV_ASSERT(shard_count >= 1);
    for (int round = 0; round < RANDOM_ROUNDS; round++) {
        uint32_t start = (uint32_t)kv_random_below(w.random, shard_count);
        w.visited = 0;
        w.seen = 0;
        for (uint32_t i = 0; i < shard_count && !w.failed; i++) {
            uint32_t shard = (start + i) % shard_count;
            if (kv_call_lock_shard(call, shard))
                random_consider(call, &w, shard);
            else if (!call->visited)
                return;
            if (w.key.ptr != NULL && w.visited >= RANDOM_SHARDS && w.seen >= RANDOM_KEYS)
                break;
        }
        /* Null is the answer of an empty keyspace only, so busy shards are asked again. */
        if (w.failed || w.key.ptr != NULL || w.visited == shard_count)
            break;
    }
    if (w.failed)
        kv_call_no_memory(call);
    else if (w.key.ptr == NULL)
        kv_reply_null(call->out);
    else
        kv_reply_slice(call->out, w.key);
}

/* --- OBJECT --- */

/* The entry of an OBJECT subcommand, or NULL with null replied. */
static struct kv_entry *object_entry(struct kv_call *call)
{
    KV_ASSERT(call->key_count == 1);
    call->view.flags |= KV_VIEW_QUIET;
    struct kv_entry *e = kv_cmd_read_untouched(call, &call->keys[0]);
    if (e == NULL)
        kv_reply_null(call->out);
    return e;
}

void kv_cmd_object_encoding(struct kv_call *call)
{
    const struct kv_entry *e = object_entry(call);
    if (e != NULL)
        kv_reply_text(call->out, kv_entry_encoding_name(e));
}

void kv_cmd_object_refcount(struct kv_call *call)
{
    const struct kv_entry *e = object_entry(call);
    if (e != NULL)
        kv_reply_int(call->out, kv_cmd_references(e));
}

void kv_cmd_object_idletime(struct kv_call *call)
{
    const struct kv_entry *e = object_entry(call);
    if (e == NULL)
        return;
    if (kv_engine_options(call->engine)->maxmemory_policy_lfu) {
        kv_call_error(call,
                      "ERR An LFU maxmemory policy is selected, idle time not tracked. Please "
                      "note that when switching between policies at runtime LRU and LFU data "
                      "will take some time to adjust.");
        return;
    }
    kv_reply_int(call->out, (int64_t)kv_entry_idle_seconds(e, call->view.now_ms));
}

void kv_cmd_object_freq(struct kv_call *call)
{
    const struct kv_entry *e = object_entry(call);
    if (e == NULL)
        return;
    if (!kv_engine_options(call->engine)->maxmemory_policy_lfu) {
        kv_call_error(call, "ERR An LFU maxmemory policy is not selected, access frequency not "
                            "tracked. Please note that when switching between policies at runtime "
                            "LRU and LFU data will take some time to adjust.");
        return;
    }
    kv_reply_int(call->out, kv_store_frequency(&call->view, e));
}

void kv_cmd_object_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "ENCODING <key>",
        "    The internal representation of the value at <key>.",
        "FREQ <key>",
        "    How often <key> is used, as a logarithmic counter (LFU policies only).",
        "IDLETIME <key>",
        "    Seconds since <key> was used last (all but LFU policies).",
        "REFCOUNT <key>",
        "    References to the value at <key>.",
        NULL,
    };
    kv_call_help(call, lines);
}
