/* Replacing whole values: SET, SETNX, SETEX, PSETEX, GETSET, MSET, MSETNX, MSETEX.
 *
 * Data layout: none of its own; the store decides how a value lies in memory. A value that came in
 * a block of its own is taken over instead of copied (kv_string_store).
 *
 * Invariants
 *   - SET without options is one store call, one announcement and a constant reply.
 *   - The old value that GET asks for is replied before it is replaced. Should replacing fail, the
 *     output is rewound, so that the client sees one error and not a value.
 *   - A lifetime that is already over means that the key must not exist: SET removes it, replies OK
 *     and propagates DEL. Nothing is stored that would be due at once.
 *   - `set` is announced before `expire`, once per key.
 *   - The change stream gets SET with an absolute time, without conditions and without GET.
 *
 * Failure: MSETNX either sets all keys or none; since none existed, what was set before the failure
 * is deleted again, before anything was announced. MSET and MSETEX replace old values, and keeping
 * all of them until the end would double the cost of the common case. When memory runs out they
 * stop: the keys before the failing one are set, announced, and propagated one by one; the reply
 * is the out-of-memory error. No key is ever half set.
 *
 * The block of a large argument is taken over by MSET only for the last pair. A duplicate key later
 * in the list would otherwise free a block that the command line still refers to.
 *
 * Threads: under the locks of all keys' shards.
 */
#include "cmd/functions.h"
#include "cmd/string_priv.h"

static void announce_set(struct kv_call *call, const struct kv_key *k, int64_t expiry)
{
    kv_store_changed(&call->view, k, KV_EVENT_STRING, "set");
    if (expiry >= 0)
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "expire");
}

/* Stores argument `arg` at keys[0] with the lifetime, announces and propagates. The old entry is
 * `old`; nothing is replied. */
static enum kv_err set_and_tell(struct kv_call *call, struct kv_entry *old, int arg, int64_t expiry)
{
    const struct kv_key *k = &call->keys[0];
    if (kv_string_past(call, expiry)) {
        if (old != NULL)
            kv_string_delete(call, k, old);
        return KV_OK;
    }
    enum kv_err err = kv_string_store(call, k, arg, expiry);
    if (err != KV_OK)
        return err;
    announce_set(call, k, expiry);
    kv_string_propagate_set(call, k, call->argv[arg], expiry);
    return KV_OK;
}

/* SET with GET: replies the old value, then sets. */
static void set_get(struct kv_call *call, const struct kv_string_options *o, int64_t expiry)
{
    struct kv_entry *old = kv_store_read(&call->view, &call->keys[0]);
    bool failed;
    if (!kv_call_want_string(call, old))
        return;
    bool holds = kv_string_holds(call, o, old, &failed);
    if (failed)
        return;
    struct kv_out_mark mark = kv_out_mark(call->out);
    if (old == NULL)
        kv_reply_null(call->out);
    else
        kv_call_reply_string(call, old);
    if (!holds)
        return;
    enum kv_err err = set_and_tell(call, old, 2, expiry);
    if (err != KV_OK) {
        kv_out_rewind(call->out, &mark);
        kv_call_failed(call, err);
    }
}

static KV_NOINLINE void set_with_options(struct kv_call *call)
{
    struct kv_string_options options;
    int64_t expiry;
    if (!kv_string_options(call, 3, KV_SET_CONDITION | KV_SET_TIME | KV_SET_KEEPTTL | KV_SET_GET,
                           &options) ||
        !kv_string_expiry(call, &options, &expiry))
        return;
    if (options.flags & KV_SET_GET) {
        set_get(call, &options, expiry);
        return;
    }
    struct kv_entry *old = kv_store_write(&call->view, &call->keys[0]);
    bool failed;
    bool holds = kv_string_holds(call, &options, old, &failed);
    if (failed)
        return;
    if (!holds) {
        kv_reply_null(call->out);
        return;
    }
    enum kv_err err = set_and_tell(call, old, 2, expiry);
    if (err != KV_OK)
        kv_call_failed(call, err);
    else
        kv_reply_ok(call->out);
}

/* SET key value [NX | XX | IFEQ v | IFNE v | IFDEQ d | IFDNE d] [GET]
 *     [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL] */
void kv_cmd_set(struct kv_call *call)
{
    if (KV_UNLIKELY(call->argc != 3)) {
        set_with_options(call);
        return;
    }
    enum kv_err err = kv_string_store(call, &call->keys[0], 2, KV_NO_EXPIRY);
    if (KV_UNLIKELY(err != KV_OK)) {
        kv_call_failed(call, err);
        return;
    }
    kv_store_changed(&call->view, &call->keys[0], KV_EVENT_STRING, "set");
    kv_reply_ok(call->out);
}

void kv_cmd_setnx(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    if (kv_store_write(&call->view, k) != NULL) {
        kv_reply_int(call->out, 0);
        return;
    }
    enum kv_err err = kv_string_store(call, k, 2, KV_NO_EXPIRY);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_store_changed(&call->view, k, KV_EVENT_STRING, "set");
    kv_reply_int(call->out, 1);
}

static void set_for_time(struct kv_call *call, uint32_t flag)
{
    int64_t expiry;
    if (!kv_string_time(call, 2, flag, &expiry))
        return;
    KV_ASSERT(!kv_string_past(call, expiry));
    enum kv_err err = set_and_tell(call, NULL, 3, expiry);
    if (err != KV_OK)
        kv_call_failed(call, err);
    else
        kv_reply_ok(call->out);
}

void kv_cmd_setex(struct kv_call *call)
{
    set_for_time(call, KV_SET_EX);
}

void kv_cmd_psetex(struct kv_call *call)
{
    set_for_time(call, KV_SET_PX);
}

void kv_cmd_getset(struct kv_call *call)
{
    struct kv_string_options options = {0};
    set_get(call, &options, KV_NO_EXPIRY);
}

/* --- several keys --- */

/* Stores pair i of a list whose first key is argument `first`. */
static enum kv_err store_pair(struct kv_call *call, int i, int first, int64_t expiry)
{
    int value_arg = first + 2 * i + 1;
    KV_DASSERT(value_arg < call->argc);
    if (i == call->key_count - 1)
        return kv_string_store(call, &call->keys[i], value_arg, expiry);
    return kv_store_set(&call->view, &call->keys[i], call->argv[value_arg], expiry, NULL);
}

/* Sets all pairs with the lifetime. On failure the pairs before are propagated and the error is
 * replied. */
static bool store_pairs(struct kv_call *call, int first, int64_t expiry)
{
    kv_keys_ahead_begin(call);
    for (int i = 0; i < call->key_count; i++) {
        kv_keys_ahead(call, i);
        enum kv_err err = store_pair(call, i, first, expiry);
        if (KV_UNLIKELY(err != KV_OK)) {
            for (int done = 0; done < i; done++)
                kv_string_propagate_set(call, &call->keys[done], call->argv[first + 2 * done + 1],
                                        expiry);
            kv_call_failed(call, err);
            return false;
        }
        announce_set(call, &call->keys[i], expiry);
    }
    return true;
}

/* How many of the keys exist; counting ends at the first that does not agree with `wanted`. */
static bool all_keys_exist(struct kv_call *call, bool wanted)
{
    kv_keys_ahead_begin(call);
    for (int i = 0; i < call->key_count; i++) {
        kv_keys_ahead(call, i);
        if ((kv_store_write(&call->view, &call->keys[i]) != NULL) != wanted)
            return false;
    }
    return true;
}

static bool pairs_complete(struct kv_call *call)
{
    if (call->argc % 2 == 1) {
        KV_ASSERT(call->key_count == call->argc / 2);
        return true;
    }
    kv_call_errorf(call, "ERR wrong number of arguments for '%s' command", call->cmd->full_name);
    return false;
}

void kv_cmd_mset(struct kv_call *call)
{
    if (pairs_complete(call) && store_pairs(call, 1, KV_NO_EXPIRY))
        kv_reply_ok(call->out);
}

void kv_cmd_msetnx(struct kv_call *call)
{
    if (!pairs_complete(call))
        return;
    if (!all_keys_exist(call, false)) {
        kv_reply_int(call->out, 0);
        return;
    }
    for (int i = 0; i < call->key_count; i++) {
        enum kv_err err = store_pair(call, i, 1, KV_NO_EXPIRY);
        if (err == KV_OK)
            continue;
        for (int done = 0; done < i; done++) {
            struct kv_entry *e = kv_store_peek(&call->view, &call->keys[done]);
            if (e != NULL)
                kv_store_delete(&call->view, &call->keys[done], e);
        }
        kv_call_failed(call, err);
        return;
    }
    for (int i = 0; i < call->key_count; i++)
        announce_set(call, &call->keys[i], KV_NO_EXPIRY);
    kv_reply_int(call->out, 1);
}

/* Removes all keys: MSETEX with a lifetime that is over. */
static void delete_keys(struct kv_call *call)
{
    for (int i = 0; i < call->key_count; i++) {
        struct kv_entry *e = kv_store_write(&call->view, &call->keys[i]);
        if (e != NULL)
            kv_string_delete(call, &call->keys[i], e);
    }
}

/* The deterministic form of MSETEX: pairs as they came, the lifetime absolute, no condition. Made
 * before anything changes, because it needs memory. NULL: out of memory. */
static struct kv_slice *msetex_form(struct kv_call *call, int64_t expiry, int *argc)
{
    size_t pair_args = 2 + 2 * (size_t)call->key_count;
    struct kv_slice *argv = kv_arena_try_alloc(call->arena, (pair_args + 2) * sizeof(*argv));
    if (argv == NULL)
        return NULL;
    memcpy(argv, call->argv, pair_args * sizeof(*argv));
    *argc = (int)pair_args;
    if (expiry == KV_KEEP_EXPIRY) {
        argv[(*argc)++] = KV_SLICE("KEEPTTL");
    } else if (expiry != KV_NO_EXPIRY) {
        argv[(*argc)++] = KV_SLICE("PXAT");
        argv[(*argc)++] = kv_call_int_text(call, expiry);
    }
    return argv;
}

static void msetex_store(struct kv_call *call, int64_t expiry)
{
    if (kv_string_past(call, expiry)) {
        delete_keys(call);
        kv_reply_int(call->out, 1);
        return;
    }
    int argc;
    struct kv_slice *argv = msetex_form(call, expiry, &argc);
    if (argv == NULL) {
        kv_call_no_memory(call);
        return;
    }
    if (!store_pairs(call, 2, expiry))
        return;
    kv_call_propagate(call, argv, argc);
    kv_reply_int(call->out, 1);
}

/* MSETEX numkeys key value [key value ...] [NX | XX]
 *     [EX s | PX ms | EXAT s | PXAT ms | KEEPTTL] */
void kv_cmd_msetex(struct kv_call *call)
{
    int64_t key_count, expiry;
    struct kv_string_options options;
    if (!kv_int_parse(call->argv[1], &key_count) || key_count < 1 || key_count > INT32_MAX) {
        kv_call_error(call, "ERR invalid numkeys value");
        return;
    }
    if (key_count > (call->argc - 2) / 2) {
        kv_call_error(call, "ERR wrong number of key-value pairs");
        return;
    }
    if (!kv_string_options(call, 2 + 2 * (int)key_count,
                           KV_SET_NX | KV_SET_XX | KV_SET_TIME | KV_SET_KEEPTTL, &options) ||
        !kv_string_expiry(call, &options, &expiry))
        return;
    KV_ASSERT(call->key_count == key_count);
    if ((options.flags & KV_SET_NX && !all_keys_exist(call, false)) ||
        (options.flags & KV_SET_XX && !all_keys_exist(call, true))) {
        kv_reply_int(call->out, 0);
        return;
    }
    msetex_store(call, expiry);
}
