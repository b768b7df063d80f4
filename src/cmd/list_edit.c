/* Lists searched through and cut: LINSERT, LREM, LTRIM, LPOS. The ends are in list.c.
 *
 * Data layout: none of its own. An item that is looked for is encoded once (kv_needle) and compared
 * as bytes with what lies in the list, so a number is found under its canonical text only.
 *
 * Invariants
 *   - Searching for a pivot counts its index, by which store/list.h then finds it from the nearer
 *     end: positions do not outlive a list's change to another form.
 *   - LPOS looks at each item once, in either direction, and at most at MAXLEN of them.
 *
 * Threads: under the lock of the key's shard.
 */
#include "cmd/functions.h"
#include "cmd/list_priv.h"

/* Index of the first item that equals a text, or -1. */
static int64_t index_of(const struct kv_entry *e, struct kv_slice text)
{
    struct kv_needle n;
    kv_needle_init(&n, text);
    int64_t index = 0;
    for (struct kv_item i = kv_store_list_seek(e, 0); i.at != NULL; kv_item_next(&i), index++)
        if (kv_needle_is_at(&n, i.at))
            return index;
    return -1;
}

/* LINSERT key BEFORE|AFTER pivot element */
void kv_cmd_linsert(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    bool behind = kv_call_arg_is(call, 2, "after");
    if (!behind && !kv_call_arg_is(call, 2, "before")) {
        kv_call_syntax_error(call);
        return;
    }
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (e == NULL) {
        kv_reply_int(call->out, 0);
        return;
    }
    if (!kv_cmd_list_want(call, e))
        return;
    int64_t index = index_of(e, call->argv[3]);
    if (index < 0) {
        kv_reply_int(call->out, -1);
        return;
    }
    enum kv_err err =
        kv_store_list_insert(&call->view, k, &e, (uint64_t)index, behind, call->argv[4]);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_reply_int(call->out, (int64_t)kv_store_list_count(e));
    kv_store_changed(&call->view, k, KV_EVENT_LIST, "linsert");
}

/* LREM key count element: a negative count removes from the tail on, 0 all. */
void kv_cmd_lrem(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    int64_t count;
    uint64_t removed;
    if (!kv_call_int(call, 2, &count))
        return;
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (e == NULL) {
        kv_reply_int(call->out, 0);
        return;
    }
    if (!kv_cmd_list_want(call, e))
        return;
    enum kv_list_end from = count < 0 ? KV_LIST_TAIL : KV_LIST_HEAD;
    uint64_t limit = count < 0 ? 0 - (uint64_t)count : (uint64_t)count;
    enum kv_err err =
        kv_store_list_remove(&call->view, k, &e, from, limit, call->argv[3], call->arena, &removed);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_reply_int(call->out, (int64_t)removed);
    if (removed == 0)
        return;
    kv_store_changed(&call->view, k, KV_EVENT_LIST, "lrem");
    if (e == NULL)
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
}

/* LTRIM key start stop: keeps what LRANGE would reply. */
void kv_cmd_ltrim(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    int64_t start, stop;
    if (!kv_call_int(call, 2, &start) || !kv_call_int(call, 3, &stop))
        return;
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (e == NULL) {
        kv_reply_ok(call->out);
        return;
    }
    if (!kv_cmd_list_want(call, e))
        return;
    int64_t count = (int64_t)kv_store_list_count(e);
    if (start < 0)
        start = KV_MAX(start + count, 0);
    if (stop < 0)
        stop += count;
    stop = KV_MIN(stop, count - 1);
    uint64_t kept = start > stop ? 0 : (uint64_t)(stop - start + 1);
    enum kv_err err =
        kv_store_list_trim(&call->view, k, &e, kept == 0 ? 0 : (uint64_t)start, kept, call->arena);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_reply_ok(call->out);
    kv_store_changed(&call->view, k, KV_EVENT_LIST, "ltrim");
    if (e == NULL)
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
}

/* --- LPOS --- */

struct lpos {
    int64_t rank;  /* which match is the first to count; negative: from the tail */
    int64_t count; /* matches that are wanted, 0: all; -1: one, and not as an array */
    int64_t items; /* that are looked at, 0: all */
};

/* An operand that must not be negative, or an error with its name is replied. */
static bool lpos_number(struct kv_call *call, int arg, const char *name, int64_t *out)
{
    if (kv_int_parse(call->argv[arg], out) && *out >= 0)
        return true;
    kv_call_errorf(call, "ERR %s can't be negative", name);
    return false;
}

static bool lpos_option(struct kv_call *call, int arg, struct lpos *o)
{
    if (arg + 1 < call->argc && kv_call_arg_is(call, arg, "rank")) {
        if (!kv_call_int_range(call, arg + 1, -INT64_MAX, INT64_MAX, &o->rank))
            return false;
        if (o->rank != 0)
            return true;
        kv_call_error(call,
                      "ERR RANK can't be zero: use 1 to start from the first match, 2 from the "
                      "second ... or use negative to start from the end of the list");
        return false;
    }
    if (arg + 1 < call->argc && kv_call_arg_is(call, arg, "count"))
        return lpos_number(call, arg + 1, "COUNT", &o->count);
    if (arg + 1 < call->argc && kv_call_arg_is(call, arg, "maxlen"))
        return lpos_number(call, arg + 1, "MAXLEN", &o->items);
    kv_call_syntax_error(call);
    return false;
}

/* Replies the indexes of matches; returns how many. */
static int64_t lpos_search(struct kv_call *call, const struct kv_entry *e, const struct lpos *o)
{
    struct kv_needle n;
    bool backwards = o->rank < 0;
    int64_t skip = (backwards ? -o->rank : o->rank) - 1;
    int64_t wanted = o->count == -1 ? 1 : o->count == 0 ? INT64_MAX : o->count;
    int64_t count = (int64_t)kv_store_list_count(e);
    int64_t looks = o->items == 0 ? count : KV_MIN(o->items, count);
    int64_t found = 0;
    kv_needle_init(&n, call->argv[2]);
    struct kv_item item = kv_store_list_seek(e, backwards ? -1 : 0);
    for (int64_t i = 0; i < looks && found < wanted; i++) {
        if (kv_needle_is_at(&n, item.at) && skip-- <= 0) {
            kv_reply_int(call->out, backwards ? count - 1 - i : i);
            found++;
        }
        if (backwards)
            kv_item_prev(&item);
        else
            kv_item_next(&item);
    }
    return found;
}

/* LPOS key element [RANK rank] [COUNT matches] [MAXLEN items] */
void kv_cmd_lpos(struct kv_call *call)
{
    struct lpos o = {.rank = 1, .count = -1};
    for (int arg = 3; arg < call->argc; arg += 2)
        if (!lpos_option(call, arg, &o))
            return;
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_cmd_list_want(call, e))
        return;
    if (o.count == -1) {
        if (e == NULL || lpos_search(call, e, &o) == 0)
            kv_reply_null(call->out);
        return;
    }
    if (e == NULL) {
        kv_reply_array(call->out, 0);
        return;
    }
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    int64_t found = lpos_search(call, e, &o);
    kv_reply_array_end(call->out, token, (size_t)found);
}
