/* Reading hashes: HGET, HMGET, HGETALL, HKEYS, HVALS, HLEN, HSTRLEN, HEXISTS, HRANDFIELD, HSCAN.
 *
 * Data layout: none of its own. Fields are replied from where they lie (store/hash.h); nothing is
 * copied but into the output.
 *
 * Invariants
 *   - A missing key is a hash without fields; a due field is not there.
 *   - The number of elements is written before them, so it must count what is visited: both happen
 *     under one lock, with one time.
 *   - HSCAN of a packed hash replies all of it and cursor 0. The cursor of a large one is a
 * position of its table (ds/table.h): every field that is there during the whole scan is replied.
 *
 * HRANDFIELD with a positive count draws without repetition. A large hash of which at most a third
 * is wanted is asked for random elements until there are enough different ones; else one walk
 * decides field by field, with the chance that is needed to end with the count (selection
 * sampling), which gives every subset the same chance. With a negative count the reply is as long
 * as the client says; it ends with an error when it would pass proto-max-bulk-len.
 *
 * Threads: under the lock of the key's shard.
 */
#include "base/random.h"
#include "cmd/functions.h"
#include "cmd/hash_priv.h"
#include "cmd/helper.h"
#include "cmd/member_scan.h"
#include "engine/engine.h"

#define AHEAD 8           /* fields of a large hash that are asked for in advance */
#define DRAWS_A_LOOK 1024 /* random fields between two looks at the length of the reply */

/* --- one field, several fields --- */

void kv_cmd_hget(struct kv_call *call)
{
    struct kv_hash h;
    struct kv_hash_field f;
    if (!kv_hash_read(call, &h))
        return;
    if (kv_hash_find(&h, call->argv[2], &f))
        kv_reply_slice(call->out, f.value);
    else
        kv_reply_null(call->out);
}

void kv_cmd_hmget(struct kv_call *call)
{
    struct kv_hash h;
    struct kv_hash_field f;
    if (!kv_hash_read(call, &h))
        return;
    kv_reply_array(call->out, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) {
        if (h.dict != NULL && i + AHEAD < call->argc)
            kv_hash_prefetch(&h, call->argv[i + AHEAD]);
        if (kv_hash_find(&h, call->argv[i], &f))
            kv_reply_slice(call->out, f.value);
        else
            kv_reply_null(call->out);
    }
}

void kv_cmd_hstrlen(struct kv_call *call)
{
    struct kv_hash h;
    struct kv_hash_field f;
    if (!kv_hash_read(call, &h))
        return;
    bool found = kv_hash_find(&h, call->argv[2], &f);
    kv_reply_int(call->out, found ? (int64_t)f.value.len : 0);
}

void kv_cmd_hexists(struct kv_call *call)
{
    struct kv_hash h;
    struct kv_hash_field f;
    if (kv_hash_read(call, &h))
        kv_reply_int(call->out, kv_hash_find(&h, call->argv[2], &f));
}

void kv_cmd_hlen(struct kv_call *call)
{
    struct kv_hash h;
    if (kv_hash_read(call, &h))
        kv_reply_int(call->out, (int64_t)kv_hash_count(&h));
}

/* --- all of them --- */

static void reply_name(const struct kv_member *m, void *arg)
{
    kv_reply_slice(arg, m->name);
}

static void reply_value(const struct kv_member *m, void *arg)
{
    kv_reply_slice(arg, m->value);
}

static void reply_both(const struct kv_member *m, void *arg)
{
    kv_reply_slice(arg, m->name);
    kv_reply_slice(arg, m->value);
}

void kv_cmd_hgetall(struct kv_call *call)
{
    struct kv_hash h;
    if (!kv_hash_read(call, &h))
        return;
    kv_reply_map(call->out, kv_hash_count(&h));
    kv_hash_each(&h, reply_both, call->out);
}

void kv_cmd_hkeys(struct kv_call *call)
{
    struct kv_hash h;
    if (!kv_hash_read(call, &h))
        return;
    kv_reply_array(call->out, kv_hash_count(&h));
    kv_hash_each(&h, reply_name, call->out);
}

void kv_cmd_hvals(struct kv_call *call)
{
    struct kv_hash h;
    if (!kv_hash_read(call, &h))
        return;
    kv_reply_array(call->out, kv_hash_count(&h));
    kv_hash_each(&h, reply_value, call->out);
}

/* --- HRANDFIELD --- */

struct drawing {
    struct kv_out *out;
    struct kv_random *random;
    uint64_t left;    /* fields not decided yet */
    uint64_t wanted;  /* fields still to be replied */
    bool with_values; /* and their values */
};

static void draw_header(const struct drawing *d, uint64_t count)
{
    bool flat = d->with_values && d->out->resp == 2;
    kv_reply_array(d->out, flat ? 2 * count : count);
}

static void draw_reply(const struct drawing *d, const struct kv_member *m)
{
    if (d->with_values && d->out->resp != 2)
        kv_reply_array(d->out, 2);
    kv_reply_slice(d->out, m->name);
    if (d->with_values)
        kv_reply_slice(d->out, m->value);
}

static void draw_member(const struct kv_member *m, void *arg)
{
    struct drawing *d = arg;
    if (d->wanted != 0 &&
        (d->wanted == d->left || kv_random_below(d->random, d->left) < d->wanted)) {
        draw_reply(d, m);
        d->wanted--;
    }
    d->left--;
}

/* Different random fields of a large hash: a table of those that were drawn tells repeated ones.
 * False: no memory, nothing is replied. */
static bool draw_few(struct kv_call *call, const struct kv_hash *h, struct drawing *d)
{
    char scratch[2][KV_INT_TEXT_MAX];
    struct kv_member m;
    size_t slot_count = 16;
    while (slot_count < 2 * d->wanted)
        slot_count *= 2;
    const char **slots = kv_arena_try_alloc(call->arena, slot_count * sizeof(*slots));
    if (slots == NULL)
        return false;
    memset(slots, 0, slot_count * sizeof(*slots));
    draw_header(d, d->wanted);
    while (d->wanted > 0) {
        bool found = kv_hash_random(h, d->random, &m, scratch);
        KV_ASSERT(found);
        /* An element's name is always at the same place. */
        uint64_t mixed = (uint64_t)(uintptr_t)m.name.ptr * UINT64_C(0x9e3779b97f4a7c15);
        size_t at = mixed >> 32 & (slot_count - 1);
        while (slots[at] != NULL && slots[at] != m.name.ptr)
            at = (at + 1) & (slot_count - 1);
        if (slots[at] != NULL)
            continue;
        slots[at] = m.name.ptr;
        draw_reply(d, &m);
        d->wanted--;
    }
    return true;
}

/* `count` different fields, or all when there are no more. */
static void draw_distinct(struct kv_call *call, const struct kv_hash *h, uint64_t count,
                          struct drawing *d)
{
    d->left = kv_hash_count(h);
    d->wanted = KV_MIN(count, d->left);
    if (h->dict != NULL && !h->may_hide && d->wanted <= d->left / 3) {
        if (!draw_few(call, h, d))
            kv_call_no_memory(call);
        return;
    }
    draw_header(d, d->wanted);
    kv_hash_each(h, draw_member, d);
    KV_DASSERT(d->wanted == 0);
}

/* `count` fields, each drawn from all. */
static void draw_repeated(struct kv_call *call, const struct kv_hash *h, uint64_t count,
                          struct drawing *d)
{
    char scratch[2][KV_INT_TEXT_MAX];
    struct kv_member m;
    struct kv_out_mark mark = kv_out_mark(d->out);
    size_t limit = kv_out_pending(d->out) + kv_engine_options(call->engine)->proto_max_bulk_len;
    if (kv_hash_count(h) == 0)
        count = 0;
    draw_header(d, count);
    for (uint64_t i = 0; i < count; i++) {
        bool found = kv_hash_random(h, d->random, &m, scratch);
        KV_ASSERT(found);
        draw_reply(d, &m);
        if (i % DRAWS_A_LOOK == 0 && kv_out_pending(d->out) > limit) {
            kv_out_rewind(d->out, &mark);
            kv_call_no_memory(call);
            return;
        }
    }
}

/* HRANDFIELD key [count [WITHVALUES]] */
void kv_cmd_hrandfield(struct kv_call *call)
{
    struct drawing d = {.out = call->out, .random = kv_cmd_random()};
    char scratch[2][KV_INT_TEXT_MAX];
    struct kv_member m;
    struct kv_hash h;
    int64_t count = 0;
    if (call->argc > 2 && !kv_call_int_range(call, 2, -INT64_MAX, INT64_MAX, &count))
        return;
    d.with_values = call->argc > 3;
    if (call->argc > 4 || (d.with_values && !kv_call_arg_is(call, 3, "withvalues"))) {
        kv_call_syntax_error(call);
        return;
    }
    if (d.with_values && (count < -INT64_MAX / 2 || count > INT64_MAX / 2)) {
        kv_call_error(call, "ERR value is out of range");
        return;
    }
    if (!kv_hash_read(call, &h))
        return;
    if (call->argc > 2 && count >= 0)
        draw_distinct(call, &h, (uint64_t)count, &d);
    else if (call->argc > 2)
        draw_repeated(call, &h, (uint64_t)-count, &d);
    else if (kv_hash_random(&h, d.random, &m, scratch))
        kv_reply_slice(call->out, m.name);
    else
        kv_reply_null(call->out);
}

/* --- HSCAN --- */

struct hash_scan {
    struct kv_member_scan scan;
    bool stable; /* fields and values lie in the hash as they are */
};

static void scan_member(const struct kv_member *m, void *arg)
{
    struct hash_scan *s = arg;
    if (!kv_member_scan_matches(&s->scan, m->name))
        return;
    kv_member_scan_add(&s->scan, m->name, s->stable);
    if (!s->scan.no_values)
        kv_member_scan_add(&s->scan, m->value, s->stable);
}

/* HSCAN key cursor [MATCH pattern] [COUNT count] [NOVALUES] */
void kv_cmd_hscan(struct kv_call *call)
{
    struct hash_scan s;
    struct kv_hash h;
    uint64_t cursor = 0;
    if (!kv_member_scan_init(&s.scan, call) || !kv_hash_read(call, &h))
        return;
    if (!kv_hash_is_empty(&h)) {
        if (!kv_member_scan_options(&s.scan, KV_SCAN_NO_VALUES))
            return;
        s.stable = h.dict != NULL;
        cursor = kv_hash_scan(&h, s.scan.cursor, s.scan.count, scan_member, &s);
    }
    kv_member_scan_reply(&s.scan, cursor == KV_TABLE_POSITION_END ? 0 : cursor);
}
