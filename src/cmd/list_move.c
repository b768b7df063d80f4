/* From list to list, and from the first list of several: LMOVE, RPOPLPUSH, LMOVEM, LMPOP. Their
 * blocking forms are built upon what list_priv.h declares of this file.
 *
 * Data layout: none of its own. Items that move are copied into the arena first, since pushing them
 * may move or convert the list in which they lay.
 *
 * Invariants
 *   - Nothing changes when the destination has another type, or when there is not enough to move.
 *   - Source and destination may be one key: the list is then turned, within its own bytes.
 *   - The push is announced before the pop, and the removal of an emptied source comes last.
 *   - LMPOP goes to the change stream as LPOP or RPOP of the one key that it popped from: the other
 *     keys are no business of a reader.
 *
 * LMOVEM takes all its items away before it puts them back, so one by one at the same end of one
 * list reverses them.
 *
 * Threads: under the locks of the keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/list_priv.h"

bool kv_cmd_list_end_word(const struct kv_call *call, int arg, enum kv_list_end *end)
{
    *end = KV_LIST_HEAD;
    if (kv_call_arg_is(call, arg, "left"))
        return true;
    *end = KV_LIST_TAIL;
    return kv_call_arg_is(call, arg, "right");
}

/* --- moving --- */

static void reverse(struct kv_slice *items, uint64_t count)
{
    for (uint64_t i = 0; i < count / 2; i++) {
        struct kv_slice other = items[i];
        items[i] = items[count - 1 - i];
        items[count - 1 - i] = other;
    }
}

static void reply_moved(struct kv_call *call, const struct kv_move_options *move,
                        const struct kv_slice *items, uint64_t count)
{
    if (!move->many) {
        kv_reply_slice(call->out, items[0]);
        return;
    }
    kv_reply_array(call->out, count);
    for (uint64_t i = 0; i < count; i++)
        kv_reply_slice(call->out, items[move->to == KV_LIST_HEAD ? count - 1 - i : i]);
}

/* Moves `count` items, which are there. */
static enum kv_err move_items(struct kv_call *call, const struct kv_move_options *move,
                              struct kv_entry *source, struct kv_entry *destination, uint64_t count)
{
    const struct kv_key *from = &call->keys[0], *to = &call->keys[1];
    struct kv_slice *items = kv_store_list_copy_out(source, move->from, count, call->arena);
    if (items == NULL)
        return KV_ERR_NOMEM;
    /* Popped outermost first and pushed in this order, they arrive one by one. */
    if (move->from == move->to && !move->reversed)
        reverse(items, count);
    enum kv_err err;
    if (source == destination)
        err = kv_store_list_turn(&call->view, from, &source, move->from, move->to, items, count);
    else
        err = kv_store_list_transfer(&call->view, from, &source, move->from, to, &destination,
                                     move->to, items, count);
    if (err != KV_OK)
        return err;
    reply_moved(call, move, items, count);
    kv_store_changed(&call->view, to, KV_EVENT_LIST, move->to == KV_LIST_HEAD ? "lpush" : "rpush");
    kv_cmd_list_announce_pop(call, from, move->from, source);
    return KV_OK;
}

bool kv_cmd_list_move(struct kv_call *call, const struct kv_move_options *move)
{
    KV_ASSERT(call->key_count == 2);
    struct kv_entry *source = kv_store_write(&call->view, &call->keys[0]);
    if (source == NULL)
        return false;
    if (!kv_cmd_list_want(call, source))
        return true;
    struct kv_entry *destination = kv_store_write(&call->view, &call->keys[1]);
    if (!kv_cmd_list_want(call, destination))
        return true;
    uint64_t have = kv_store_list_count(source);
    if (move->exactly && have < move->count)
        return false;
    uint64_t count = KV_MIN(have, move->count);
    if (count == 0) {
        kv_reply_array(call->out, 0);
        return true;
    }
    enum kv_err err = move_items(call, move, source, destination, count);
    if (err != KV_OK)
        kv_call_failed(call, err);
    return true;
}

bool kv_cmd_list_move_words(struct kv_call *call, struct kv_move_options *move)
{
    *move = (struct kv_move_options){.count = 1, .reversed = true};
    if (kv_cmd_list_end_word(call, 3, &move->from) && kv_cmd_list_end_word(call, 4, &move->to))
        return true;
    kv_call_syntax_error(call);
    return false;
}

/* LMOVE source destination LEFT|RIGHT LEFT|RIGHT */
void kv_cmd_lmove(struct kv_call *call)
{
    struct kv_move_options move;
    if (kv_cmd_list_move_words(call, &move) && !kv_cmd_list_move(call, &move))
        kv_reply_null(call->out);
}

/* RPOPLPUSH is LMOVE RIGHT LEFT. */
void kv_cmd_rpoplpush(struct kv_call *call)
{
    struct kv_move_options move = {
        .from = KV_LIST_TAIL, .to = KV_LIST_HEAD, .count = 1, .reversed = true};
    if (!kv_cmd_list_move(call, &move))
        kv_reply_null(call->out);
}

bool kv_cmd_list_move_options(struct kv_call *call, int first, struct kv_move_options *move)
{
    int64_t count;
    move->many = true;
    if (call->argc == first)
        return true;
    if (call->argc != first + 3) {
        kv_call_syntax_error(call);
        return false;
    }
    move->exactly = kv_call_arg_is(call, first, "exactly");
    move->reversed = kv_call_arg_is(call, first + 2, "obo");
    if ((!move->exactly && !kv_call_arg_is(call, first, "count")) ||
        (!move->reversed && !kv_call_arg_is(call, first + 2, "bulk"))) {
        kv_call_syntax_error(call);
        return false;
    }
    if (!kv_int_parse(call->argv[first + 1], &count) || count < 0) {
        kv_call_error(call, "ERR value is out of range, must be positive");
        return false;
    }
    move->count = (uint64_t)count;
    return true;
}

/* LMOVEM source destination LEFT|RIGHT LEFT|RIGHT [COUNT n | EXACTLY n  OBO | BULK] */
void kv_cmd_lmovem(struct kv_call *call)
{
    struct kv_move_options move;
    if (!kv_cmd_list_move_words(call, &move) || !kv_cmd_list_move_options(call, 5, &move))
        return;
    if (kv_cmd_list_move(call, &move))
        return;
    if (move.exactly)
        kv_reply_null_array(call->out);
    else
        kv_reply_array(call->out, 0);
}

/* --- LMPOP --- */

static bool mpop_count(struct kv_call *call, int arg, uint64_t *count)
{
    int64_t number;
    if (!kv_int_parse(call->argv[arg], &number) || number <= 0) {
        kv_call_error(call, "ERR count should be greater than 0");
        return false;
    }
    *count = (uint64_t)number;
    return true;
}

bool kv_cmd_list_mpop_options(struct kv_call *call, int number, enum kv_list_end *end,
                              uint64_t *count)
{
    int64_t key_count;
    *count = 1;
    if (!kv_int_parse(call->argv[number], &key_count) || key_count <= 0) {
        kv_call_error(call, "ERR numkeys should be greater than 0");
        return false;
    }
    int64_t where = number + 1 + KV_MIN(key_count, (int64_t)call->argc);
    if (where >= call->argc || !kv_cmd_list_end_word(call, (int)where, end)) {
        kv_call_syntax_error(call);
        return false;
    }
    for (int arg = (int)where + 1; arg < call->argc; arg += 2) {
        /* COUNT once, and nothing else. */
        if (arg != where + 1 || arg + 1 >= call->argc || !kv_call_arg_is(call, arg, "count")) {
            kv_call_syntax_error(call);
            return false;
        }
        if (!mpop_count(call, arg + 1, count))
            return false;
    }
    return true;
}

static void propagate_pop(struct kv_call *call, const struct kv_key *k, enum kv_list_end end,
                          uint64_t count)
{
    struct kv_slice argv[3] = {end == KV_LIST_HEAD ? KV_SLICE("LPOP") : KV_SLICE("RPOP"),
                               kv_slice(k->ptr, k->len), kv_call_int_text(call, (int64_t)count)};
    kv_call_propagate(call, argv, 3);
}

bool kv_cmd_list_pop_first(struct kv_call *call, const struct kv_key *keys, int key_count,
                           enum kv_list_end end, uint64_t count)
{
    for (int i = 0; i < key_count; i++) {
        struct kv_entry *e = kv_store_write(&call->view, &keys[i]);
        if (e == NULL)
            continue;
        if (!kv_cmd_list_want(call, e))
            return true;
        uint64_t items = KV_MIN(count, kv_store_list_count(e));
        struct kv_out_mark mark = kv_out_mark(call->out);
        kv_reply_array(call->out, 2);
        kv_reply_bulk(call->out, keys[i].ptr, keys[i].len);
        kv_reply_array(call->out, items);
        enum kv_err err = kv_cmd_list_reply_pop(call, &keys[i], e, end, items);
        if (err == KV_OK) {
            propagate_pop(call, &keys[i], end, items);
            return true;
        }
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
        return true;
    }
    return false;
}

/* LMPOP numkeys key [key ...] LEFT|RIGHT [COUNT count] */
void kv_cmd_lmpop(struct kv_call *call)
{
    enum kv_list_end end;
    uint64_t count;
    if (!kv_cmd_list_mpop_options(call, 1, &end, &count))
        return;
    if (!kv_cmd_list_pop_first(call, call->keys, call->key_count, end, count))
        kv_reply_null_array(call->out);
}
