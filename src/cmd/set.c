/* Sets, one at a time: SADD, SREM, SISMEMBER, SMISMEMBER, SCARD, SMEMBERS, SMOVE, SSCAN, and the
 * random ones, SPOP and SRANDMEMBER. Several at a time: set_combine.c; due times: set_expire.c.
 *
 * Data layout: store/set.h. Every look-up here removes members that are due before it goes on.
 *
 * SPOP chooses first, replies, and then removes what it chose. A large set's members are replied
 * and propagated from where they lie, since removing them cannot fail; those of a small one were
 * copied when they were chosen. The change stream gets SREM with up to POP_CHUNK members a line, or
 * DEL when all went.
 *
 * SRANDMEMBER with a negative count draws so often, whatever comes; a count whose reply could never
 * be held in memory is refused at once.
 *
 * SMOVE adds before it removes; should removing fail, what was added is taken away again. A due
 * time goes with the member, unless the destination has it already.
 *
 * Threads: under the locks of all keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "cmd/member_scan.h"
#include "cmd/set_priv.h"

#define POP_CHUNK 64                    /* members of one SREM in the change stream */
#define REPEATS_MAX ((uint64_t)1 << 28) /* members of one reply of SRANDMEMBER */

static bool want_set(struct kv_call *call, const struct kv_entry *e)
{
    if (KV_LIKELY(e == NULL || kv_entry_type(e) == KV_TYPE_SET))
        return true;
    kv_call_wrong_type(call);
    return false;
}

bool kv_cmd_set_read(struct kv_call *call, int key, struct kv_entry **e)
{
    KV_DASSERT(key < call->key_count);
    const struct kv_key *k = &call->keys[key];
    *e = kv_set_purge(&call->view, k, kv_store_read(&call->view, k));
    return want_set(call, *e);
}

bool kv_cmd_set_write(struct kv_call *call, int key, struct kv_set *s)
{
    KV_DASSERT(key < call->key_count);
    const struct kv_key *k = &call->keys[key];
    struct kv_entry *e = kv_set_purge(&call->view, k, kv_store_write(&call->view, k));
    *s = (struct kv_set){&call->view, k, e, call->arena};
    return want_set(call, e);
}

void kv_cmd_set_shrunk(struct kv_call *call, const struct kv_set *s, const char *event)
{
    kv_store_changed(&call->view, s->key, KV_EVENT_SET, event);
    if (s->entry == NULL)
        kv_store_changed(&call->view, s->key, KV_EVENT_GENERIC, "del");
}

/* --- members by name --- */

void kv_cmd_sadd(struct kv_call *call)
{
    struct kv_set s;
    uint64_t added;
    if (!kv_cmd_set_write(call, 0, &s))
        return;
    enum kv_err err = kv_set_add(&s, call->argv + 2, (size_t)call->argc - 2, &added);
    if (KV_UNLIKELY(err != KV_OK)) {
        kv_call_failed(call, err);
        return;
    }
    if (added != 0)
        kv_store_changed(&call->view, s.key, KV_EVENT_SET, "sadd");
    kv_reply_int(call->out, (int64_t)added);
}

void kv_cmd_srem(struct kv_call *call)
{
    struct kv_set s;
    uint64_t removed = 0;
    if (!kv_cmd_set_write(call, 0, &s))
        return;
    enum kv_err err = KV_OK;
    if (s.entry != NULL)
        err = kv_set_remove(&s, call->argv + 2, (size_t)call->argc - 2, &removed);
    if (KV_UNLIKELY(err != KV_OK)) {
        kv_call_failed(call, err);
        return;
    }
    if (removed != 0)
        kv_cmd_set_shrunk(call, &s, "srem");
    kv_reply_int(call->out, (int64_t)removed);
}

void kv_cmd_sismember(struct kv_call *call)
{
    struct kv_entry *e;
    if (kv_cmd_set_read(call, 0, &e))
        kv_reply_int(call->out, e != NULL && kv_set_has(e, call->argv[2], call->view.now_ms));
}

void kv_cmd_smismember(struct kv_call *call)
{
    struct kv_set_batch b = {.count = 0};
    struct kv_entry *e;
    if (!kv_cmd_set_read(call, 0, &e))
        return;
    kv_reply_array(call->out, (size_t)call->argc - 2);
    for (int arg = 2; arg < call->argc; arg += (int)b.count) {
        b.count = (unsigned)KV_MIN(call->argc - arg, (int)KV_SET_BATCH);
        b.hashed = false;
        memcpy(b.members, call->argv + arg, b.count * sizeof(b.members[0]));
        uint32_t found = 0;
        if (e != NULL)
            found = kv_set_has_batch(e, call->view.now_ms, &b, kv_store_hash_key(call->view.store),
                                     kv_set_batch_all(&b));
        for (unsigned i = 0; i < b.count; i++)
            kv_reply_int(call->out, found >> i & 1);
    }
}

void kv_cmd_scard(struct kv_call *call)
{
    struct kv_entry *e;
    if (kv_cmd_set_read(call, 0, &e))
        kv_reply_int(call->out, e != NULL ? (int64_t)kv_set_count(e, call->view.now_ms) : 0);
}

/* --- all members --- */

static void reply_member(struct kv_slice member, void *arg)
{
    kv_reply_slice(arg, member);
}

static void reply_all(struct kv_call *call, const struct kv_entry *e)
{
    kv_reply_set(call->out, kv_set_count(e, call->view.now_ms));
    kv_set_each(e, call->view.now_ms, reply_member, call->out);
}

void kv_cmd_smembers(struct kv_call *call)
{
    struct kv_entry *e;
    if (!kv_cmd_set_read(call, 0, &e))
        return;
    if (e != NULL)
        reply_all(call, e);
    else
        kv_reply_set(call->out, 0);
}

struct set_scan {
    struct kv_member_scan scan;
    bool stable; /* members lie in the set */
};

static void scan_member(struct kv_slice member, void *arg)
{
    struct set_scan *s = arg;
    if (kv_member_scan_matches(&s->scan, member))
        kv_member_scan_add(&s->scan, member, s->stable);
}

void kv_cmd_sscan(struct kv_call *call)
{
    struct set_scan s;
    struct kv_entry *e;
    uint64_t cursor = 0;
    if (!kv_member_scan_init(&s.scan, call) || !kv_cmd_set_read(call, 0, &e))
        return;
    if (e != NULL) {
        if (!kv_member_scan_options(&s.scan, 0))
            return;
        s.stable = kv_entry_is_large(e);
        cursor = kv_set_scan(e, call->view.now_ms, s.scan.cursor, s.scan.count, scan_member, &s);
    }
    kv_member_scan_reply(&s.scan, cursor);
}

/* --- moving --- */

/* Takes the member out of the source and puts it into the destination. */
static enum kv_err move_member(struct kv_set *from, struct kv_set *to, struct kv_slice member,
                               int64_t due, uint64_t *added)
{
    uint64_t removed;
    enum kv_err err = kv_set_add(to, &member, 1, added);
    if (err != KV_OK)
        return err;
    if (due != KV_NOT_DUE && *added != 0)
        err = kv_set_set_due(to, member, due);
    if (err == KV_OK)
        err = kv_set_remove(from, &member, 1, &removed);
    if (err != KV_OK && *added != 0) {
        /* Without memory even for this it is in both sets, which loses nothing. */
        enum kv_err undone = kv_set_remove(to, &member, 1, &removed);
        KV_ASSERT(undone == KV_OK || undone == KV_ERR_NOMEM);
    }
    return err;
}

void kv_cmd_smove(struct kv_call *call)
{
    struct kv_slice member = call->argv[3];
    struct kv_set from, to;
    uint64_t added;
    int64_t due;
    KV_ASSERT(call->key_count == 2);
    if (!kv_cmd_set_write(call, 0, &from))
        return;
    if (from.entry == NULL) {
        kv_reply_int(call->out, 0);
        return;
    }
    if (!kv_cmd_set_write(call, 1, &to))
        return;
    bool same =
        kv_slice_equal(kv_slice(from.key->ptr, from.key->len), kv_slice(to.key->ptr, to.key->len));
    if (same)
        from.entry = to.entry;
    bool has = from.entry != NULL && kv_set_member_due(from.entry, member, call->view.now_ms, &due);
    if (same || !has) {
        kv_reply_int(call->out, has);
        return;
    }
    enum kv_err err = move_member(&from, &to, member, due, &added);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_cmd_set_shrunk(call, &from, "srem");
    if (added != 0)
        kv_store_changed(&call->view, to.key, KV_EVENT_SET, "sadd");
    kv_reply_int(call->out, 1);
}

/* --- at random --- */

/* Tells the change stream that members go. */
static void propagate_removed(struct kv_call *call, const struct kv_slice *members, size_t count)
{
    struct kv_slice argv[POP_CHUNK + 2] = {KV_SLICE("SREM"),
                                           kv_slice(call->keys[0].ptr, call->keys[0].len)};
    for (size_t at = 0; at < count; at += POP_CHUNK) {
        size_t part = KV_MIN(count - at, (size_t)POP_CHUNK);
        memcpy(argv + 2, members + at, part * sizeof(argv[0]));
        kv_call_propagate(call, argv, (int)part + 2);
    }
}

static void pop_all(struct kv_call *call, struct kv_set *s)
{
    reply_all(call, s->entry);
    kv_store_delete(&call->view, s->key, s->entry);
    s->entry = NULL;
    kv_call_propagate_del(call, s->key);
    kv_cmd_set_shrunk(call, s, "spop");
}

/* Removes members that were chosen and replied. On failure nothing has changed. */
static enum kv_err pop_chosen(struct kv_call *call, struct kv_set *s,
                              const struct kv_slice *members, size_t count)
{
    uint64_t removed;
    bool large = kv_entry_is_large(s->entry);
    if (large)
        propagate_removed(call, members, count);
    enum kv_err err = kv_set_remove(s, members, count, &removed);
    if (err != KV_OK)
        return err;
    KV_ASSERT(removed == count);
    if (!large)
        propagate_removed(call, members, count);
    kv_cmd_set_shrunk(call, s, "spop");
    return KV_OK;
}

static void pop_several(struct kv_call *call, struct kv_set *s, uint64_t count)
{
    struct kv_slice *chosen;
    size_t chosen_count;
    if (count >= kv_set_count(s->entry, call->view.now_ms)) {
        pop_all(call, s);
        return;
    }
    struct kv_out_mark mark = kv_out_mark(call->out);
    enum kv_err err = kv_set_choose(s, count, kv_cmd_random(), &chosen, &chosen_count);
    if (err == KV_OK) {
        kv_reply_set(call->out, chosen_count);
        for (size_t i = 0; i < chosen_count; i++)
            kv_reply_slice(call->out, chosen[i]);
        err = pop_chosen(call, s, chosen, chosen_count);
    }
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
    }
}

static void pop_one(struct kv_call *call, struct kv_set *s)
{
    char scratch[KV_INT_TEXT_MAX];
    struct kv_slice member = kv_set_random(s->entry, call->view.now_ms, kv_cmd_random(), scratch);
    if (member.ptr == NULL) {
        kv_reply_null(call->out);
        return;
    }
    struct kv_out_mark mark = kv_out_mark(call->out);
    char *copy = kv_arena_try_alloc(call->arena, member.len);
    enum kv_err err = KV_ERR_NOMEM;
    if (copy != NULL) {
        memcpy(copy, member.ptr, member.len);
        member.ptr = copy;
        kv_reply_slice(call->out, member);
        err = pop_chosen(call, s, &member, 1);
    }
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
    }
}

/* SPOP key [count] */
void kv_cmd_spop(struct kv_call *call)
{
    struct kv_set s;
    int64_t count = 1;
    if (call->argc > 3) {
        kv_call_syntax_error(call);
        return;
    }
    if (call->argc == 3 && (!kv_int_parse(call->argv[2], &count) || count < 0)) {
        kv_call_error(call, "ERR value is out of range, must be positive");
        return;
    }
    if (!kv_cmd_set_write(call, 0, &s))
        return;
    if (call->argc == 2 && s.entry == NULL)
        kv_reply_null(call->out);
    else if (call->argc == 2)
        pop_one(call, &s);
    else if (s.entry == NULL || count == 0)
        kv_reply_set(call->out, 0);
    else
        pop_several(call, &s, (uint64_t)count);
}

static void reply_chosen(struct kv_call *call, const struct kv_set *s, uint64_t count)
{
    struct kv_slice *chosen;
    size_t chosen_count;
    enum kv_err err = kv_set_choose(s, count, kv_cmd_random(), &chosen, &chosen_count);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_reply_array(call->out, chosen_count);
    for (size_t i = 0; i < chosen_count; i++)
        kv_reply_slice(call->out, chosen[i]);
}

/* Draws `count` times; a small set is laid out in a row first. */
static void reply_repeated(struct kv_call *call, const struct kv_set *s, uint64_t count)
{
    struct kv_random *r = kv_cmd_random();
    struct kv_slice *all = NULL;
    size_t total = 0;
    char scratch[KV_INT_TEXT_MAX];
    int64_t now_ms = call->view.now_ms;
    bool in_row = !kv_entry_is_large(s->entry) || kv_entry_may_be_due(s->entry, now_ms);
    if (count > REPEATS_MAX || (in_row && kv_set_choose(s, SIZE_MAX, r, &all, &total) != KV_OK)) {
        kv_call_no_memory(call);
        return;
    }
    if (in_row && total == 0)
        count = 0;
    kv_reply_array(call->out, count);
    for (uint64_t i = 0; i < count; i++)
        kv_reply_slice(call->out, in_row ? all[kv_random_below(r, total)]
                                         : kv_set_random(s->entry, now_ms, r, scratch));
}

/* SRANDMEMBER key [count] */
void kv_cmd_srandmember(struct kv_call *call)
{
    struct kv_set s = {&call->view, &call->keys[0], NULL, call->arena};
    char scratch[KV_INT_TEXT_MAX];
    struct kv_slice member = {NULL, 0};
    int64_t count = 0;
    if (call->argc > 3) {
        kv_call_syntax_error(call);
        return;
    }
    if (call->argc == 3 && !kv_call_int_range(call, 2, -INT64_MAX, INT64_MAX, &count))
        return;
    if (!kv_cmd_set_read(call, 0, &s.entry))
        return;
    if (call->argc == 2) {
        if (s.entry != NULL)
            member = kv_set_random(s.entry, call->view.now_ms, kv_cmd_random(), scratch);
        if (member.ptr == NULL)
            kv_reply_null(call->out);
        else
            kv_reply_slice(call->out, member);
    } else if (s.entry == NULL || count == 0) {
        kv_reply_array(call->out, 0);
    } else if (count > 0) {
        reply_chosen(call, &s, (uint64_t)count);
    } else {
        reply_repeated(call, &s, (uint64_t)-count);
    }
}
