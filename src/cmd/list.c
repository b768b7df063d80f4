/* Lists at their ends and by index: LPUSH, RPUSH, LPUSHX, RPUSHX, LPOP, RPOP, LLEN, LINDEX, LRANGE,
 * LSET. Searching and removing in the middle is in list_edit.c, moving between lists in
 * list_move.c.
 *
 * Data layout: none of its own; store/list.h hides whether a list is packed or large.
 *
 * Invariants
 *   - A list is never empty: the key goes with its last item (event del after the pop's own).
 *   - Items are replied before they are removed, from where they lie: nothing is copied but into
 * the output. Where the removal fails for want of memory, the output is rewound.
 *   - Arguments are checked before or after the key just as clients know it from Redis: LPOP's
 * count before, LINDEX's index after a missing key was replied.
 *
 * Threads: under the locks of the keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/list_priv.h"

static const char *push_event(enum kv_list_end end)
{
    return end == KV_LIST_HEAD ? "lpush" : "rpush";
}

static void push(struct kv_call *call, enum kv_list_end end, bool must_exist)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (!kv_cmd_list_want(call, e))
        return;
    if (e == NULL && must_exist) {
        kv_reply_int(call->out, 0);
        return;
    }
    enum kv_err err =
        kv_store_list_push(&call->view, k, &e, end, call->argv + 2, (size_t)call->argc - 2);
    if (KV_UNLIKELY(err != KV_OK)) {
        kv_call_failed(call, err);
        return;
    }
    kv_reply_int(call->out, (int64_t)kv_store_list_count(e));
    kv_store_changed(&call->view, k, KV_EVENT_LIST, push_event(end));
}

void kv_cmd_lpush(struct kv_call *call)
{
    push(call, KV_LIST_HEAD, false);
}

void kv_cmd_rpush(struct kv_call *call)
{
    push(call, KV_LIST_TAIL, false);
}

void kv_cmd_lpushx(struct kv_call *call)
{
    push(call, KV_LIST_HEAD, true);
}

void kv_cmd_rpushx(struct kv_call *call)
{
    push(call, KV_LIST_TAIL, true);
}

/* --- popping --- */

void kv_cmd_list_announce_pop(struct kv_call *call, const struct kv_key *k, enum kv_list_end end,
                              const struct kv_entry *e)
{
    kv_store_changed(&call->view, k, KV_EVENT_LIST, end == KV_LIST_HEAD ? "lpop" : "rpop");
    if (e == NULL)
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
}

enum kv_err kv_cmd_list_reply_pop(struct kv_call *call, const struct kv_key *k, struct kv_entry *e,
                                  enum kv_list_end end, uint64_t count)
{
    char scratch[KV_INT_TEXT_MAX];
    struct kv_item item = kv_store_list_seek(e, end == KV_LIST_HEAD ? 0 : -1);
    for (uint64_t i = 0; i < count; i++) {
        kv_reply_slice(call->out, kv_item_text(&item, scratch));
        if (end == KV_LIST_HEAD)
            kv_item_next(&item);
        else
            kv_item_prev(&item);
    }
    enum kv_err err = kv_store_list_drop(&call->view, k, &e, end, count);
    if (KV_LIKELY(err == KV_OK))
        kv_cmd_list_announce_pop(call, k, end, e);
    return err;
}

/* LPOP key count: an array, even of one or no item. */
static void pop_many(struct kv_call *call, enum kv_list_end end)
{
    const struct kv_key *k = &call->keys[0];
    int64_t count;
    if (!kv_int_parse(call->argv[2], &count) || count < 0) {
        kv_call_error(call, "ERR value is out of range, must be positive");
        return;
    }
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (e == NULL) {
        kv_reply_null_array(call->out);
        return;
    }
    if (!kv_cmd_list_want(call, e))
        return;
    uint64_t items = KV_MIN((uint64_t)count, kv_store_list_count(e));
    struct kv_out_mark mark = kv_out_mark(call->out);
    kv_reply_array(call->out, items);
    if (items == 0)
        return;
    enum kv_err err = kv_cmd_list_reply_pop(call, k, e, end, items);
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
    }
}

static void pop(struct kv_call *call, enum kv_list_end end)
{
    const struct kv_key *k = &call->keys[0];
    if (call->argc > 3) {
        kv_call_errorf(call, "ERR wrong number of arguments for '%s' command",
                       call->cmd->full_name);
        return;
    }
    if (call->argc == 3) {
        pop_many(call, end);
        return;
    }
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (e == NULL) {
        kv_reply_null(call->out);
        return;
    }
    if (!kv_cmd_list_want(call, e))
        return;
    struct kv_out_mark mark = kv_out_mark(call->out);
    enum kv_err err = kv_cmd_list_reply_pop(call, k, e, end, 1);
    if (KV_UNLIKELY(err != KV_OK)) {
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
    }
}

void kv_cmd_lpop(struct kv_call *call)
{
    pop(call, KV_LIST_HEAD);
}

void kv_cmd_rpop(struct kv_call *call)
{
    pop(call, KV_LIST_TAIL);
}

/* --- reading --- */

void kv_cmd_llen(struct kv_call *call)
{
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (kv_cmd_list_want(call, e))
        kv_reply_int(call->out, (int64_t)kv_store_list_count(e));
}

void kv_cmd_lindex(struct kv_call *call)
{
    char scratch[KV_INT_TEXT_MAX];
    int64_t index;
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (e == NULL) {
        kv_reply_null(call->out);
        return;
    }
    if (!kv_cmd_list_want(call, e) || !kv_call_int(call, 2, &index))
        return;
    struct kv_item item = kv_store_list_seek(e, index);
    if (item.at == NULL)
        kv_reply_null(call->out);
    else
        kv_reply_slice(call->out, kv_item_text(&item, scratch));
}

/* LRANGE key start stop: both inclusive, negative ones count from the tail. */
void kv_cmd_lrange(struct kv_call *call)
{
    char scratch[KV_INT_TEXT_MAX];
    int64_t start, stop;
    if (!kv_call_int(call, 2, &start) || !kv_call_int(call, 3, &stop))
        return;
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_cmd_list_want(call, e))
        return;
    int64_t count = (int64_t)kv_store_list_count(e);
    if (start < 0)
        start = KV_MAX(start + count, 0);
    if (stop < 0)
        stop += count;
    stop = KV_MIN(stop, count - 1);
    if (start > stop) {
        kv_reply_array(call->out, 0);
        return;
    }
    int64_t left = stop - start + 1;
    kv_reply_array(call->out, (size_t)left);
    struct kv_item item = kv_store_list_seek(e, start);
    for (; left > 0; left--) {
        kv_reply_slice(call->out, kv_item_text(&item, scratch));
        kv_item_next(&item);
    }
}

/* --- changing in place --- */

void kv_cmd_lset(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    int64_t index;
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (e == NULL) {
        kv_call_error(call, "ERR no such key");
        return;
    }
    if (!kv_cmd_list_want(call, e) || !kv_call_int(call, 2, &index))
        return;
    int64_t count = (int64_t)kv_store_list_count(e);
    if (index >= count || index < -count) {
        kv_call_error(call, "ERR index out of range");
        return;
    }
    enum kv_err err = kv_store_list_replace(&call->view, k, &e, index, call->argv[3]);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_store_changed(&call->view, k, KV_EVENT_LIST, "lset");
    kv_reply_ok(call->out);
}
