/* Time to live: EXPIRE, PEXPIRE, EXPIREAT, PEXPIREAT, TTL, PTTL, EXPIRETIME, PEXPIRETIME, PERSIST.
 *
 * All four setting commands come down to one moment in milliseconds of Unix time; relative forms
 * count from the batch's time (call->view.now_ms), as everything else in the batch does. The change
 * stream carries the moment (PEXPIREAT), or DEL when it has passed already, so that whoever reads
 * it later or on another clock ends with the same keyspace.
 *
 * A moment beyond KV_EXPIRY_MAX (the year 6429) is refused as invalid, where Redis accepts up to
 * 2^63 ms: the expiry index keeps 47 bits, and a time that far away is nearly always seconds
 * mistaken for milliseconds. Moments in the past, however far, are valid and delete the key.
 *
 * NX, XX, GT and LT look at the present expiry, where a key without one counts as living for ever.
 * Options are read before the number, as Redis does, so that the same error wins.
 *
 * Threads: see engine/call.h; nothing here is shared.
 */
#include "base/assert.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/call.h"

enum condition { COND_NX = 1, COND_XX = 2, COND_GT = 4, COND_LT = 8 };

static bool expire_options(struct kv_call *call, uint32_t *conditions)
{
    *conditions = 0;
    for (int i = 3; i < call->argc; i++) {
        if (kv_call_arg_is(call, i, "nx")) {
            *conditions |= COND_NX;
        } else if (kv_call_arg_is(call, i, "xx")) {
            *conditions |= COND_XX;
        } else if (kv_call_arg_is(call, i, "gt")) {
            *conditions |= COND_GT;
        } else if (kv_call_arg_is(call, i, "lt")) {
            *conditions |= COND_LT;
        } else {
            kv_call_errorf(call, "ERR Unsupported option %.*s", KV_CMD_QUOTE(call->argv[i]));
            return false;
        }
    }
    if (*conditions & COND_NX && *conditions != COND_NX) {
        kv_call_error(call, "ERR NX and XX, GT or LT options at the same time are not compatible");
        return false;
    }
    if (*conditions & COND_GT && *conditions & COND_LT) {
        kv_call_error(call, "ERR GT and LT options at the same time are not compatible");
        return false;
    }
    return true;
}

/* The moment that argument 2 names, counted from base_ms. */
static bool expire_moment(struct kv_call *call, int64_t unit_ms, int64_t base_ms, int64_t *when_ms)
{
    int64_t number;
    if (!kv_call_int(call, 2, &number))
        return false;
    if (__builtin_mul_overflow(number, unit_ms, &number) ||
        __builtin_add_overflow(number, base_ms, when_ms) || *when_ms > KV_EXPIRY_MAX) {
        kv_call_invalid_expire(call);
        return false;
    }
    return true;
}

static bool conditions_hold(uint32_t conditions, const struct kv_entry *e, int64_t when_ms)
{
    bool has = kv_entry_has_expiry(e);
    int64_t current_ms = kv_entry_expiry(e);
    KV_DASSERT(has == (current_ms != KV_NO_EXPIRY));
    if (conditions & COND_NX && has)
        return false;
    if (conditions & COND_XX && !has)
        return false;
    if (conditions & COND_GT && (!has || when_ms <= current_ms))
        return false;
    if (conditions & COND_LT && has && when_ms >= current_ms)
        return false;
    return true;
}

static void expire_generic(struct kv_call *call, int64_t unit_ms, int64_t base_ms)
{
    KV_ASSERT(call->key_count == 1 && call->argc >= 3);
    const struct kv_key *k = &call->keys[0];
    uint32_t conditions;
    int64_t when_ms;
    if (!expire_options(call, &conditions) || !expire_moment(call, unit_ms, base_ms, &when_ms))
        return;
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (e == NULL || !conditions_hold(conditions, e, when_ms)) {
        kv_reply_int(call->out, 0);
        return;
    }
    if (when_ms <= call->view.now_ms) {
        kv_store_delete(&call->view, k, e);
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
        kv_call_propagate_del(call, k);
        kv_reply_int(call->out, 1);
        return;
    }
    enum kv_err err = kv_store_set_expiry(&call->view, k, &e, when_ms);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "expire");
    struct kv_slice argv[3] = {KV_SLICE("PEXPIREAT"), kv_slice(k->ptr, k->len),
                               kv_call_int_text(call, when_ms)};
    kv_call_propagate(call, argv, 3);
    kv_reply_int(call->out, 1);
}

void kv_cmd_expire(struct kv_call *call)
{
    expire_generic(call, 1000, call->view.now_ms);
}

void kv_cmd_pexpire(struct kv_call *call)
{
    expire_generic(call, 1, call->view.now_ms);
}

void kv_cmd_expireat(struct kv_call *call)
{
    expire_generic(call, 1000, 0);
}

void kv_cmd_pexpireat(struct kv_call *call)
{
    expire_generic(call, 1, 0);
}

/* -2 without key, -1 without expiry, else the expiry minus base_ms in the unit, rounded. */
static void ttl_generic(struct kv_call *call, int64_t unit_ms, int64_t base_ms)
{
    KV_ASSERT(call->key_count == 1);
    const struct kv_entry *e = kv_cmd_read_untouched(call, &call->keys[0]);
    if (e == NULL || !kv_entry_has_expiry(e)) {
        kv_reply_int(call->out, e == NULL ? -2 : -1);
        return;
    }
    int64_t ttl_ms = KV_MAX(kv_entry_expiry(e) - base_ms, (int64_t)0);
    kv_reply_int(call->out, (ttl_ms + unit_ms / 2) / unit_ms);
}

void kv_cmd_ttl(struct kv_call *call)
{
    ttl_generic(call, 1000, call->view.now_ms);
}

void kv_cmd_pttl(struct kv_call *call)
{
    ttl_generic(call, 1, call->view.now_ms);
}

void kv_cmd_expiretime(struct kv_call *call)
{
    ttl_generic(call, 1000, 0);
}

void kv_cmd_pexpiretime(struct kv_call *call)
{
    ttl_generic(call, 1, 0);
}

void kv_cmd_persist(struct kv_call *call)
{
    KV_ASSERT(call->key_count == 1);
    const struct kv_key *k = &call->keys[0];
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (e == NULL || !kv_entry_has_expiry(e)) {
        kv_reply_int(call->out, 0);
        return;
    }
    enum kv_err err = kv_store_set_expiry(&call->view, k, &e, KV_NO_EXPIRY);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "persist");
    kv_reply_int(call->out, 1);
}
