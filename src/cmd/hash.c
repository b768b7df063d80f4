/* Changing hashes: HSET, HMSET, HSETNX, HDEL, HINCRBY, HINCRBYFLOAT. Reading is in hash_read.c,
 * due times of fields in hash_expire.c, commands that join both in hash_ex.c.
 *
 * Data layout: none of its own, see store/hash.h.
 *
 * Invariants
 *   - Numbers among the arguments are checked before the key is looked up, as Redis does.
 *   - HSET takes a field's due time away, HINCRBY and HINCRBYFLOAT leave it.
 *   - A hash goes with its last field.
 *
 * Change stream: HSET, HSETNX, HDEL and HINCRBY go as they came. HINCRBYFLOAT goes as HSET with its
 * result, since the arithmetic of another machine may round differently, or as HSETEX with KEEPTTL
 * where the field has a due time.
 *
 * Failure: when memory runs out in the middle of an HSET on a large hash, the fields before are
 * set, announced and propagated, and the reply is the error.
 *
 * Threads: under the lock of the key's shard.
 */
#include "cmd/functions.h"
#include "cmd/hash_priv.h"
#include "cmd/string_priv.h"
#include <math.h>

/* --- telling --- */

void kv_hash_announce_deleted(struct kv_call *call, const struct kv_entry *e)
{
    const struct kv_key *k = &call->keys[0];
    kv_store_changed(&call->view, k, KV_EVENT_HASH, "hdel");
    if (e == NULL)
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
}

void kv_hash_propagate_hdel(struct kv_call *call, const struct kv_slice *names, size_t count)
{
    struct kv_slice head[2] = {KV_SLICE("HDEL"), kv_key_slice(&call->keys[0])};
    kv_call_propagate_parts(call, head, 2, names, count);
}

void kv_hash_propagate_hidden(struct kv_call *call, struct kv_slice name)
{
    kv_hash_propagate_hdel(call, &name, 1);
}

void kv_hash_arity_error(struct kv_call *call)
{
    kv_call_errorf(call, "ERR wrong number of arguments for '%s' command", call->cmd->full_name);
}

/* --- setting --- */

/* Sets all pairs from argument 2 on; false: an error is replied. */
static bool set_pairs(struct kv_call *call, uint64_t *created)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_entry *e;
    if (KV_UNLIKELY(call->argc % 2 != 0)) {
        kv_hash_arity_error(call);
        return false;
    }
    if (!kv_hash_write(call, &e))
        return false;
    struct kv_hash_pairs p = {.words = call->argv + 2,
                              .count = (size_t)(call->argc - 2) / 2,
                              .due = KV_NOT_DUE,
                              .arena = call->arena};
    enum kv_err err = kv_hash_set(&call->view, k, &e, &p);
    if (KV_LIKELY(p.done != 0))
        kv_store_changed(&call->view, k, KV_EVENT_HASH, "hset");
    if (KV_UNLIKELY(err != KV_OK)) {
        if (p.done != 0)
            kv_call_propagate(call, call->argv, (int)(2 + 2 * p.done));
        kv_call_failed(call, err);
        return false;
    }
    *created = p.created;
    return true;
}

void kv_cmd_hset(struct kv_call *call)
{
    uint64_t created;
    if (set_pairs(call, &created))
        kv_reply_int(call->out, (int64_t)created);
}

void kv_cmd_hmset(struct kv_call *call)
{
    uint64_t created;
    if (set_pairs(call, &created))
        kv_reply_ok(call->out);
}

/* Gives one field, which `h` has just looked up, its value. False: an error is replied. */
static bool set_one(struct kv_call *call, struct kv_entry *e, const struct kv_hash *h,
                    const struct kv_slice words[2], const char *event)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_hash_pairs p = {
        .words = words,
        .count = 1,
        .due = KV_HASH_KEEP_DUE,
        .hint = h->hint,
        .arena = call->arena,
    };
    enum kv_err err = kv_hash_set(&call->view, k, &e, &p);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return false;
    }
    kv_store_changed(&call->view, k, KV_EVENT_HASH, event);
    return true;
}

void kv_cmd_hsetnx(struct kv_call *call)
{
    struct kv_entry *e;
    struct kv_hash h;
    struct kv_hash_field found;
    if (!kv_hash_write(call, &e))
        return;
    kv_hash_open(&h, &call->view, e);
    if (kv_hash_find(&h, call->argv[2], &found)) {
        kv_reply_int(call->out, 0);
        return;
    }
    if (!set_one(call, e, &h, call->argv + 2, "hset"))
        return;
    if (KV_UNLIKELY(found.hidden)) {
        kv_hash_propagate_hidden(call, call->argv[2]);
        kv_call_propagate(call, call->argv, call->argc);
    }
    kv_reply_int(call->out, 1);
}

void kv_cmd_hdel(struct kv_call *call)
{
    struct kv_entry *e;
    if (!kv_hash_write(call, &e))
        return;
    struct kv_hash_names n = {
        .names = call->argv + 2, .count = (size_t)call->argc - 2, .arena = call->arena};
    enum kv_err err = e != NULL ? kv_hash_delete(&call->view, &call->keys[0], &e, &n) : KV_OK;
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    if (n.done != 0)
        kv_hash_announce_deleted(call, e);
    kv_reply_int(call->out, (int64_t)n.done);
}

/* --- counting --- */

void kv_cmd_hincrby(struct kv_call *call)
{
    struct kv_entry *e;
    struct kv_hash h;
    struct kv_hash_field found;
    int64_t delta, value = 0;
    if (!kv_call_int(call, 3, &delta) || !kv_hash_write(call, &e))
        return;
    kv_hash_open(&h, &call->view, e);
    if (kv_hash_find(&h, call->argv[2], &found) && !kv_int_parse(found.value, &value)) {
        kv_call_error(call, "ERR hash value is not an integer");
        return;
    }
    if (__builtin_add_overflow(value, delta, &value)) {
        kv_call_error(call, "ERR increment or decrement would overflow");
        return;
    }
    char text[KV_INT_TEXT_MAX];
    struct kv_slice words[2] = {call->argv[2], kv_slice(text, kv_int_print(value, text))};
    if (!set_one(call, e, &h, words, "hincrby"))
        return;
    if (KV_UNLIKELY(found.hidden)) {
        kv_hash_propagate_hidden(call, call->argv[2]);
        kv_call_propagate(call, call->argv, call->argc);
    }
    kv_reply_int(call->out, value);
}

/* The result of HINCRBYFLOAT, for the change stream. */
static void propagate_float(struct kv_call *call, const struct kv_hash_field *found,
                            const struct kv_slice words[2])
{
    struct kv_slice key = kv_key_slice(&call->keys[0]);
    if (found->due == KV_NOT_DUE || found->hidden) {
        struct kv_slice line[4] = {KV_SLICE("HSET"), key, words[0], words[1]};
        kv_call_propagate(call, line, 4);
        return;
    }
    struct kv_slice line[7] = {
        KV_SLICE("HSETEX"), key,     KV_SLICE("KEEPTTL"), KV_SLICE("FIELDS"), KV_SLICE("1"),
        words[0],           words[1]};
    kv_call_propagate(call, line, 7);
}

void kv_cmd_hincrbyfloat(struct kv_call *call)
{
    struct kv_entry *e;
    struct kv_hash h;
    struct kv_hash_field found = {.due = KV_NOT_DUE};
    long double delta, value = 0;
    if (!kv_call_ldouble(call, 3, &delta))
        return;
    if (!isfinite(delta)) {
        kv_call_error(call, "ERR value is NaN or Infinity");
        return;
    }
    if (!kv_hash_write(call, &e))
        return;
    kv_hash_open(&h, &call->view, e);
    if (kv_hash_find(&h, call->argv[2], &found) && !kv_ldouble_parse(found.value, &value)) {
        kv_call_error(call, "ERR hash value is not a float");
        return;
    }
    if (!isfinite(value + delta)) {
        kv_call_error(call, "ERR increment would produce NaN or Infinity");
        return;
    }
    char *text = kv_arena_alloc(call->arena, KV_LDOUBLE_TEXT_MAX);
    struct kv_slice words[2] = {call->argv[2],
                                kv_slice(text, kv_ldouble_print(value + delta, text))};
    if (!set_one(call, e, &h, words, "hincrbyfloat"))
        return;
    propagate_float(call, &found, words);
    kv_reply_slice(call->out, words[1]);
}
