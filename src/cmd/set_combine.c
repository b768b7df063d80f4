/* Sets, several at a time: SINTER, SUNION, SDIFF, their STORE forms, SINTERCARD, SUNIONCARD,
 * SDIFFCARD.
 *
 * One set is walked in batches of 32 members, and each batch is looked up in the other sets, whose
 * cache misses overlap (store/set.h). What is left of a batch goes to the sink at once: into the
 * reply, to a count, or to a builder. So nothing is collected in between:
 *
 *   intersection   the smallest set is walked, looked up in the others, smaller ones first
 *   difference     the first set is walked; what any of the others has drops out, larger ones first
 *   union          all are walked, the largest first; what one before has drops out
 *
 * With many sets the last two would look up each member many times. Beyond UNION_SETS sets a union,
 * and a difference when that is less work, therefore go through a table of members in the arena,
 * into which each set is walked once.
 *
 * Look-ups come first: reading a key may remove due members, and the same key may be named twice.
 * So when something was removed the entries are looked up anew before any of them is walked.
 *
 * APPROX of SUNIONCARD adds all members to HyperLogLog registers instead of a table.
 *
 * Threads: under the locks of all keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "cmd/set_priv.h"
#include "value/hyperloglog.h"
#include <stdlib.h>

#define UNION_SETS 8u /* more go through a table */
#define TABLE_SLOTS_FIRST 1024u

enum operation { OP_INTER, OP_UNION, OP_DIFF };
enum sink { SINK_REPLY, SINK_COUNT, SINK_STORE };

/* A set that is combined. */
struct source {
    struct kv_entry *entry;
    uint64_t count;
};

/* A member in the table; ptr NULL: free. */
struct slot {
    struct kv_slice member;
    uint64_t hash;
    bool gone; /* another set has it */
};

struct table {
    struct slot *slots;
    size_t slot_count; /* power of two */
    size_t count;      /* used, those gone included */
    size_t live;
};

struct combination {
    struct kv_call *call;
    const struct kv_hash_key *hash_key;
    struct source *sources; /* those that exist, in the order in which they are worked on */
    size_t source_count;
    size_t walked; /* which of them is walked */
    bool missing;  /* a key does not exist */
    enum sink sink;
    uint64_t limit; /* of a count; 0: none */
    uint64_t found;
    enum kv_err err;
    struct kv_set_builder builder;
    struct table table;
    uint8_t *registers; /* of an estimate */
};

/* --- where members go --- */

/* Takes the batch's members that are left; false: no more are wanted. */
static bool emit(struct combination *c, const struct kv_set_batch *b, uint32_t left)
{
    c->found += (unsigned)__builtin_popcount(left);
    if (c->sink == SINK_COUNT)
        return c->limit == 0 || c->found < c->limit;
    for (; left != 0; left &= left - 1) {
        struct kv_slice member = b->members[__builtin_ctz(left)];
        if (c->sink == SINK_REPLY)
            kv_reply_slice(c->call->out, member);
        else if ((c->err = kv_set_builder_add(&c->builder, member)) != KV_OK)
            return false;
    }
    return true;
}

static void walk(struct combination *c, size_t source,
                 bool (*visit)(struct kv_set_batch *b, void *arg))
{
    struct kv_set_batch b;
    c->walked = source;
    kv_set_each_batch(c->sources[source].entry, c->call->view.now_ms, c->limit != 0, &b, visit, c);
}

static bool enough(const struct combination *c)
{
    return c->err != KV_OK || (c->limit != 0 && c->found >= c->limit);
}

/* --- looking members up in the other sets --- */

static uint32_t had_by(const struct combination *c, size_t source, struct kv_set_batch *b,
                       uint32_t chosen)
{
    return kv_set_has_batch(c->sources[source].entry, c->call->view.now_ms, b, c->hash_key, chosen);
}

static bool inter_batch(struct kv_set_batch *b, void *arg)
{
    struct combination *c = arg;
    uint32_t left = kv_set_batch_all(b);
    for (size_t i = 1; i < c->source_count && left != 0; i++)
        left = had_by(c, i, b, left);
    return emit(c, b, left);
}

static bool diff_batch(struct kv_set_batch *b, void *arg)
{
    struct combination *c = arg;
    uint32_t left = kv_set_batch_all(b);
    for (size_t i = 1; i < c->source_count && left != 0; i++)
        left &= ~had_by(c, i, b, left);
    return emit(c, b, left);
}

static bool union_batch(struct kv_set_batch *b, void *arg)
{
    struct combination *c = arg;
    uint32_t left = kv_set_batch_all(b);
    for (size_t i = 0; i < c->walked && left != 0; i++)
        left &= ~had_by(c, i, b, left);
    return emit(c, b, left);
}

/* --- through a table --- */

static struct slot *find_slot(const struct table *t, struct kv_slice member, uint64_t hash)
{
    size_t at = (size_t)hash & (t->slot_count - 1);
    while (t->slots[at].member.ptr != NULL &&
           (t->slots[at].hash != hash || !kv_slice_equal(t->slots[at].member, member)))
        at = (at + 1) & (t->slot_count - 1);
    return &t->slots[at];
}

static enum kv_err grow_table(struct combination *c)
{
    struct table *t = &c->table, old = *t;
    size_t slot_count = old.slot_count != 0 ? old.slot_count * 2 : TABLE_SLOTS_FIRST;
    struct slot *slots = kv_arena_try_alloc(c->call->arena, slot_count * sizeof(*slots));
    if (slots == NULL)
        return KV_ERR_NOMEM;
    memset(slots, 0, slot_count * sizeof(*slots));
    t->slots = slots;
    t->slot_count = slot_count;
    for (size_t i = 0; i < old.slot_count; i++)
        if (old.slots[i].member.ptr != NULL)
            *find_slot(t, old.slots[i].member, old.slots[i].hash) = old.slots[i];
    return KV_OK;
}

/* Puts a member in if it is new; *is_new tells. */
static enum kv_err table_add(struct combination *c, struct kv_slice member, uint64_t hash,
                             bool *is_new)
{
    struct table *t = &c->table;
    if (t->count >= t->slot_count / 4 * 3) {
        enum kv_err err = grow_table(c);
        if (err != KV_OK)
            return err;
    }
    struct slot *slot = find_slot(t, member, hash);
    *is_new = slot->member.ptr == NULL;
    if (!*is_new)
        return KV_OK;
    if (!kv_entry_is_large(c->sources[c->walked].entry)) {
        char *copy = kv_arena_try_alloc(c->call->arena, member.len);
        if (copy == NULL)
            return KV_ERR_NOMEM;
        memcpy(copy, member.ptr, member.len);
        member.ptr = copy;
    }
    *slot = (struct slot){.member = member, .hash = hash};
    t->count++;
    t->live++;
    return KV_OK;
}

/* Leaves those of the batch that are new to the table. */
static bool add_batch(struct combination *c, struct kv_set_batch *b, uint32_t *left)
{
    kv_set_batch_hash(b, c->hash_key);
    for (unsigned i = 0; i < b->count; i++) {
        bool is_new;
        c->err = table_add(c, b->members[i], b->hashes[i], &is_new);
        if (c->err != KV_OK)
            return false;
        *left |= (uint32_t)is_new << i;
    }
    return true;
}

static bool union_table_batch(struct kv_set_batch *b, void *arg)
{
    struct combination *c = arg;
    uint32_t left = 0;
    return add_batch(c, b, &left) && emit(c, b, left);
}

static bool fill_table_batch(struct kv_set_batch *b, void *arg)
{
    uint32_t left = 0;
    return add_batch(arg, b, &left);
}

static bool strike_batch(struct kv_set_batch *b, void *arg)
{
    struct combination *c = arg;
    kv_set_batch_hash(b, c->hash_key);
    for (unsigned i = 0; i < b->count; i++) {
        struct slot *slot = find_slot(&c->table, b->members[i], b->hashes[i]);
        if (slot->member.ptr == NULL || slot->gone)
            continue;
        slot->gone = true;
        c->table.live--;
    }
    return c->table.live != 0;
}

static void diff_through_table(struct combination *c)
{
    uint64_t limit = c->limit;
    struct kv_set_batch b = {.count = 0};
    walk(c, 0, fill_table_batch);
    c->limit = 1; /* walks may stop: when nothing is left */
    for (size_t i = 1; i < c->source_count && c->table.live != 0 && c->err == KV_OK; i++)
        walk(c, i, strike_batch);
    c->limit = limit;
    if (c->err != KV_OK || c->table.live == 0)
        return;
    for (size_t i = 0; i < c->table.slot_count; i++) {
        const struct slot *slot = &c->table.slots[i];
        if (slot->member.ptr != NULL && !slot->gone)
            b.members[b.count++] = slot->member;
        if (b.count == KV_SET_BATCH || (b.count != 0 && i + 1 == c->table.slot_count)) {
            if (!emit(c, &b, kv_set_batch_all(&b)))
                return;
            b.count = 0;
        }
    }
}

/* --- the operations --- */

static int smaller_first(const void *a, const void *b)
{
    const struct source *x = a, *y = b;
    return (x->count > y->count) - (x->count < y->count);
}

static int larger_first(const void *a, const void *b)
{
    return smaller_first(b, a);
}

static void intersect(struct combination *c)
{
    if (c->missing)
        return;
    qsort(c->sources, c->source_count, sizeof(*c->sources), smaller_first);
    if (c->source_count == 1 && c->sink == SINK_COUNT)
        c->found = c->sources[0].count;
    else
        walk(c, 0, inter_batch);
}

static void unite(struct combination *c)
{
    bool many = c->source_count > UNION_SETS;
    if (c->source_count == 0)
        return;
    qsort(c->sources, c->source_count, sizeof(*c->sources), larger_first);
    if (c->source_count == 1 && c->sink == SINK_COUNT) {
        c->found = c->sources[0].count;
        return;
    }
    for (size_t i = 0; i < c->source_count && !enough(c); i++)
        walk(c, i, many ? union_table_batch : union_batch);
}

/* The first source is the first key's set. */
static void subtract(struct combination *c)
{
    uint64_t total = 0;
    for (size_t i = 0; i < c->source_count; i++)
        total += c->sources[i].count;
    qsort(c->sources + 1, c->source_count - 1, sizeof(*c->sources), larger_first);
    if (c->source_count == 1 && c->sink == SINK_COUNT)
        c->found = c->sources[0].count;
    else if (c->sources[0].count * (c->source_count - 1) > 3 * total)
        diff_through_table(c);
    else
        walk(c, 0, diff_batch);
}

static void combine(struct combination *c, enum operation operation, bool first_missing)
{
    if (operation == OP_INTER)
        intersect(c);
    else if (operation == OP_UNION)
        unite(c);
    else if (!first_missing)
        subtract(c);
    if (c->limit != 0)
        c->found = KV_MIN(c->found, c->limit);
}

/* --- reading the keys --- */

/* Looks keys up; entries may be NULL. False: an error was replied. */
static bool read_sets(struct kv_call *call, int first, int count, struct kv_entry **entries)
{
    bool purged = false, right = true;
    for (int i = 0; i < count; i++) {
        const struct kv_key *k = &call->keys[first + i];
        struct kv_entry *e = kv_store_read(&call->view, k);
        right = right && (e == NULL || kv_entry_type(e) == KV_TYPE_SET);
        if (KV_UNLIKELY(e != NULL && kv_entry_type(e) == KV_TYPE_SET &&
                        kv_entry_may_be_due(e, call->view.now_ms))) {
            e = kv_set_purge(&call->view, k, e);
            purged = true;
        }
        entries[i] = e;
    }
    for (int i = 0; purged && i < count; i++)
        entries[i] = kv_store_peek(&call->view, &call->keys[first + i]);
    if (!right)
        kv_call_wrong_type(call);
    return right;
}

/* Makes the sets of `count` keys from `first` on the sources. False: an error was replied. */
static bool prepare(struct combination *c, struct kv_call *call, int first, int count,
                    bool *first_missing)
{
    KV_ASSERT(count >= 1 && first + count <= call->key_count);
    size_t bytes = (size_t)count * sizeof(struct kv_entry *);
    struct kv_entry **entries = kv_arena_try_alloc(call->arena, bytes);
    c->call = call;
    c->hash_key = kv_store_hash_key(call->view.store);
    c->sources = kv_arena_try_alloc(call->arena, (size_t)count * sizeof(*c->sources));
    if (entries == NULL || c->sources == NULL) {
        kv_call_no_memory(call);
        return false;
    }
    if (!read_sets(call, first, count, entries))
        return false;
    for (int i = 0; i < count; i++) {
        if (entries[i] == NULL)
            c->missing = true;
        else
            c->sources[c->source_count++] =
                (struct source){entries[i], kv_set_count(entries[i], call->view.now_ms)};
    }
    *first_missing = entries[0] == NULL;
    return true;
}

/* --- replying --- */

static void reply_combination(struct kv_call *call, enum operation operation)
{
    struct combination c = {.sink = SINK_REPLY};
    bool first_missing;
    if (!prepare(&c, call, 0, call->key_count, &first_missing))
        return;
    struct kv_out_mark mark = kv_out_mark(call->out);
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    combine(&c, operation, first_missing);
    if (KV_LIKELY(c.err == KV_OK)) {
        kv_reply_set_end(call->out, token, c.found);
        return;
    }
    kv_out_rewind(call->out, &mark);
    kv_call_failed(call, c.err);
}

void kv_cmd_sinter(struct kv_call *call)
{
    reply_combination(call, OP_INTER);
}

void kv_cmd_sunion(struct kv_call *call)
{
    reply_combination(call, OP_UNION);
}

void kv_cmd_sdiff(struct kv_call *call)
{
    reply_combination(call, OP_DIFF);
}

/* --- storing --- */

/* Puts what was built under the first key; an empty result removes what is there. */
static enum kv_err store_result(struct combination *c, const char *event)
{
    struct kv_call *call = c->call;
    const struct kv_key *k = &call->keys[0];
    struct kv_entry *old = kv_store_write(&call->view, k);
    bool replaces = old != NULL;
    enum kv_type type = replaces ? kv_entry_type(old) : KV_TYPE_SET;
    KV_ASSERT(c->found == kv_set_builder_count(&c->builder));
    if (c->found != 0) {
        enum kv_err err = kv_set_builder_store_take(&c->builder, k, &old);
        if (err == KV_OK && replaces)
            kv_store_replaced(&call->view, k, type, KV_TYPE_SET);
        if (err == KV_OK)
            kv_store_changed(&call->view, k, KV_EVENT_SET, event);
        return err;
    }
    if (old != NULL) {
        kv_store_delete(&call->view, k, old);
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
    }
    return KV_OK;
}

static void store_combination(struct kv_call *call, enum operation operation, const char *event)
{
    struct combination c = {.sink = SINK_STORE};
    bool first_missing;
    if (!prepare(&c, call, 1, call->key_count - 1, &first_missing))
        return;
    kv_set_builder_init(&c.builder, &call->view, call->arena);
    combine(&c, operation, first_missing);
    if (c.err == KV_OK)
        c.err = store_result(&c, event);
    kv_set_builder_release(&c.builder);
    if (c.err != KV_OK)
        kv_call_failed(call, c.err);
    else
        kv_reply_int(call->out, (int64_t)c.found);
}

void kv_cmd_sinterstore(struct kv_call *call)
{
    store_combination(call, OP_INTER, "sinterstore");
}

void kv_cmd_sunionstore(struct kv_call *call)
{
    store_combination(call, OP_UNION, "sunionstore");
}

void kv_cmd_sdiffstore(struct kv_call *call)
{
    store_combination(call, OP_DIFF, "sdiffstore");
}

/* --- counting --- */

/* Options behind the keys; `approx` NULL: there is no APPROX. False: an error was replied. */
static bool count_options(struct kv_call *call, int arg, uint64_t *limit, bool *approx)
{
    for (; arg < call->argc; arg += 2) {
        int64_t number;
        if (approx != NULL && kv_call_arg_is(call, arg, "approx")) {
            *approx = true;
            arg--;
            continue;
        }
        if (!kv_call_arg_is(call, arg, "limit") || arg + 1 == call->argc) {
            kv_call_syntax_error(call);
            return false;
        }
        if (!kv_int_parse(call->argv[arg + 1], &number) || number < 0) {
            kv_call_error(call, "ERR LIMIT can't be negative");
            return false;
        }
        *limit = (uint64_t)number;
    }
    return true;
}

static bool mark_batch(struct kv_set_batch *b, void *arg)
{
    const struct combination *c = arg;
    for (unsigned i = 0; i < b->count; i++) {
        struct kv_hll_mark mark = kv_hll_mark(b->members[i]);
        c->registers[mark.index] = KV_MAX(c->registers[mark.index], mark.level);
    }
    return true;
}

/* Estimates the union. */
static void unite_roughly(struct combination *c)
{
    c->registers = kv_arena_try_alloc(c->call->arena, KV_HLL_REGISTERS);
    if (c->registers == NULL) {
        c->err = KV_ERR_NOMEM;
        return;
    }
    memset(c->registers, 0, KV_HLL_REGISTERS);
    for (size_t i = 0; i < c->source_count; i++)
        walk(c, i, mark_batch);
    c->found = kv_hll_estimate_registers(c->registers);
    if (c->limit != 0)
        c->found = KV_MIN(c->found, c->limit);
}

static void count_combination(struct kv_call *call, enum operation operation)
{
    struct combination c = {.sink = SINK_COUNT};
    bool first_missing, approx = false;
    int64_t key_count;
    if (!kv_int_parse(call->argv[1], &key_count) || key_count < 1) {
        kv_call_error(call, "ERR numkeys should be greater than 0");
        return;
    }
    if (key_count > call->argc - 2) {
        kv_call_error(call, "ERR Number of keys can't be greater than number of args");
        return;
    }
    if (!count_options(call, 2 + (int)key_count, &c.limit,
                       operation == OP_UNION ? &approx : NULL) ||
        !prepare(&c, call, 0, (int)key_count, &first_missing))
        return;
    if (approx)
        unite_roughly(&c);
    else
        combine(&c, operation, first_missing);
    if (c.err != KV_OK)
        kv_call_failed(call, c.err);
    else
        kv_reply_int(call->out, (int64_t)c.found);
}

void kv_cmd_sintercard(struct kv_call *call)
{
    count_combination(call, OP_INTER);
}

void kv_cmd_sunioncard(struct kv_call *call)
{
    count_combination(call, OP_UNION);
}

void kv_cmd_sdiffcard(struct kv_call *call)
{
    count_combination(call, OP_DIFF);
}
