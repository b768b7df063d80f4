/* Counters: INCR, DECR, INCRBY, DECRBY, INCRBYFLOAT, INCREX.
 *
 * Data layout: an integer is stored as such in its entry and changed in place; a floating-point
 * counter is the text that INCRBYFLOAT prints, text even when it is a whole number. A missing key
 * counts as 0.
 *
 * Invariants
 *   - A stored string counts as an integer only in canonical form (no sign, space or leading zero
 *     too many), so that what is read back is what a client wrote.
 *   - No arithmetic can overflow: integers are added with a checked builtin, floating-point results
 *     are tested for infinity and NaN before they are stored.
 *   - A lifetime is kept unless INCREX says otherwise.
 *   - Floating-point results go to the change stream as SET with the printed text, since the
 *     arithmetic of another machine may round differently.
 *
 * INCREX adds bounds and a lifetime to the increment. Missing bounds are those of the type. A sum
 * beyond a bound leaves everything as it is, lifetime included, and is answered with the old value
 * and the increment 0; with SATURATE the bound is stored and the difference to the old value is the
 * increment answered. The difference itself can overflow, when a stored value lies far outside
 * narrow bounds: that is an error. ENX sets the lifetime only where there is none. The sum counts
 * for the bounds, not the old value: a value outside may be brought back by a fitting increment.
 *
 * Threads: under the lock of the key's shard.
 *
 * Rejected: one generic path over a number that is either integer or long double. Both kinds would
 * carry each other's branches, and INCR is hot.
 */
#include "cmd/functions.h"
#include "cmd/string_priv.h"
#include <float.h>
#include <math.h>

/* The integer at e; 0 for a missing key. False: an error is replied. */
static bool stored_int(struct kv_call *call, const struct kv_entry *e, int64_t *value)
{
    *value = 0;
    if (e == NULL)
        return true;
    if (!kv_call_want_string(call, e))
        return false;
    if (KV_LIKELY(kv_entry_string_int(e, value)))
        return true;
    kv_call_not_integer(call);
    return false;
}

static bool stored_float(struct kv_call *call, const struct kv_entry *e, long double *value)
{
    char scratch[KV_INT_TEXT_MAX];
    *value = 0;
    if (e == NULL)
        return true;
    if (!kv_call_want_string(call, e))
        return false;
    if (kv_ldouble_parse(kv_entry_string(e, scratch), value))
        return true;
    kv_call_not_float(call);
    return false;
}

static void increment(struct kv_call *call, int64_t delta)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_entry *e = kv_store_write(&call->view, k);
    int64_t old, sum;
    if (!stored_int(call, e, &old))
        return;
    if (__builtin_add_overflow(old, delta, &sum)) {
        kv_call_error(call, "ERR increment or decrement would overflow");
        return;
    }
    if (KV_LIKELY(e != NULL && kv_entry_encoding(e) == KV_ENC_INT)) {
        kv_store_update_int(&call->view, e, sum);
    } else {
        enum kv_err err = kv_store_set_int(&call->view, k, sum, KV_KEEP_EXPIRY);
        if (err != KV_OK) {
            kv_call_failed(call, err);
            return;
        }
    }
    kv_store_changed(&call->view, k, KV_EVENT_STRING, "incrby");
    kv_reply_int(call->out, sum);
}

void kv_cmd_incr(struct kv_call *call)
{
    increment(call, 1);
}

void kv_cmd_decr(struct kv_call *call)
{
    increment(call, -1);
}

void kv_cmd_incrby(struct kv_call *call)
{
    int64_t delta;
    if (kv_call_int(call, 2, &delta))
        increment(call, delta);
}

void kv_cmd_decrby(struct kv_call *call)
{
    int64_t delta;
    if (!kv_call_int(call, 2, &delta))
        return;
    if (delta == INT64_MIN) {
        kv_call_error(call, "ERR decrement would overflow");
        return;
    }
    increment(call, -delta);
}

/* --- floating point --- */

static bool finite_or_error(struct kv_call *call, long double value)
{
    if (isfinite(value))
        return true;
    kv_call_error(call, "ERR increment would produce NaN or Infinity");
    return false;
}

void kv_cmd_incrbyfloat(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    long double value, delta;
    if (!stored_float(call, kv_store_write(&call->view, k), &value) ||
        !kv_call_ldouble(call, 2, &delta) || !finite_or_error(call, value + delta))
        return;
    char *text = kv_arena_alloc(call->arena, KV_LDOUBLE_TEXT_MAX);
    struct kv_slice sum = kv_slice(text, kv_ldouble_print(value + delta, text));
    enum kv_err err = kv_store_set_text(&call->view, k, sum, KV_KEEP_EXPIRY);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_store_changed(&call->view, k, KV_EVENT_STRING, "incrbyfloat");
    kv_string_propagate_set(call, k, sum, KV_KEEP_EXPIRY);
    kv_reply_slice(call->out, sum);
}

/* --- INCREX --- */

struct increx {
    struct kv_string_options options;
    int64_t expiry;  /* what the options ask for */
    int by_arg;      /* argument of BYINT or BYFLOAT; 0: one */
    int lower_arg;   /* argument of LBOUND; 0: the type's */
    int upper_arg;   /* argument of UBOUND; 0: the type's */
    bool is_float;   /* BYFLOAT */
    bool saturate;   /* SATURATE */
    bool only_fresh; /* ENX */
};

/* Reads an option word with an operand into *slot; false when it is another word, has no operand or
 * comes twice. */
static bool increx_operand(const struct kv_call *call, int *arg, const char *word, int *slot)
{
    if (!kv_call_arg_is(call, *arg, word) || *slot != 0 || *arg + 1 >= call->argc)
        return false;
    *slot = *arg + 1;
    *arg += 2;
    return true;
}

static bool increx_flag(const struct kv_call *call, int *arg, const char *word, bool *slot)
{
    if (!kv_call_arg_is(call, *arg, word))
        return false;
    *slot = true;
    ++*arg;
    return true;
}

static bool increx_word(const struct kv_call *call, int *arg, struct increx *x)
{
    if (kv_string_option(call, arg, KV_SET_TIME | KV_SET_PERSIST, &x->options) ||
        increx_operand(call, arg, "byint", &x->by_arg) ||
        increx_operand(call, arg, "lbound", &x->lower_arg) ||
        increx_operand(call, arg, "ubound", &x->upper_arg) ||
        increx_flag(call, arg, "saturate", &x->saturate) ||
        increx_flag(call, arg, "enx", &x->only_fresh))
        return true;
    x->is_float = increx_operand(call, arg, "byfloat", &x->by_arg);
    return x->is_float;
}

static bool increx_parse(struct kv_call *call, struct increx *x)
{
    *x = (struct increx){0};
    for (int arg = 2; arg < call->argc;) {
        bool was_float = x->is_float;
        if (!increx_word(call, &arg, x)) {
            kv_call_syntax_error(call);
            return false;
        }
        x->is_float |= was_float;
    }
    if (x->only_fresh && x->options.flags & KV_SET_PERSIST) {
        kv_call_syntax_error(call);
        return false;
    }
    if (x->only_fresh && !(x->options.flags & KV_SET_TIME)) {
        kv_call_error(call, "ERR ENX flag requires an expiration");
        return false;
    }
    return kv_string_expiry(call, &x->options, &x->expiry);
}

static bool bounds_ordered(struct kv_call *call, bool ordered)
{
    if (!ordered)
        kv_call_error(call, "ERR LBOUND can't be greater than UBOUND");
    return ordered;
}

/* Stores the sum, `text` (and `sum` of integers), with the lifetime that results, announces and
 * propagates. */
static bool increx_store(struct kv_call *call, const struct increx *x, struct kv_entry *e,
                         struct kv_slice text, int64_t sum)
{
    const struct kv_key *k = &call->keys[0];
    bool had_expiry = e != NULL && kv_entry_has_expiry(e);
    bool sets_time = x->options.flags & KV_SET_TIME && !(x->only_fresh && had_expiry);
    bool persists = x->options.flags & KV_SET_PERSIST && had_expiry;
    int64_t expiry = sets_time || persists ? x->expiry : KV_KEEP_EXPIRY;
    const char *event = x->is_float ? "incrbyfloat" : "incrby";
    if (sets_time && kv_string_past(call, x->expiry)) {
        if (e != NULL)
            kv_string_delete(call, k, e);
        return true;
    }
    enum kv_err err = x->is_float ? kv_store_set_text(&call->view, k, text, expiry)
                                  : kv_store_set_int(&call->view, k, sum, expiry);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return false;
    }
    kv_store_changed(&call->view, k, KV_EVENT_STRING, event);
    if (sets_time || persists)
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, sets_time ? "expire" : "persist");
    kv_string_propagate_set(call, k, text, expiry);
    return true;
}

static void increx_reply_int(struct kv_call *call, int64_t value, int64_t applied)
{
    kv_reply_array(call->out, 2);
    kv_reply_int(call->out, value);
    kv_reply_int(call->out, applied);
}

static void increx_int(struct kv_call *call, const struct increx *x)
{
    int64_t delta = 1, lower = INT64_MIN, upper = INT64_MAX, old, sum, applied;
    if ((x->by_arg && !kv_call_int(call, x->by_arg, &delta)) ||
        (x->lower_arg && !kv_call_int(call, x->lower_arg, &lower)) ||
        (x->upper_arg && !kv_call_int(call, x->upper_arg, &upper)) ||
        !bounds_ordered(call, lower <= upper))
        return;
    struct kv_entry *e = kv_store_write(&call->view, &call->keys[0]);
    if (!stored_int(call, e, &old))
        return;
    bool overflow = __builtin_add_overflow(old, delta, &sum);
    if (overflow)
        sum = delta > 0 ? INT64_MAX : INT64_MIN;
    if ((overflow || sum < lower || sum > upper) && !x->saturate) {
        increx_reply_int(call, old, 0);
        return;
    }
    sum = KV_MIN(KV_MAX(sum, lower), upper);
    if (__builtin_sub_overflow(sum, old, &applied)) {
        kv_call_error(call, "ERR increment or decrement would overflow");
        return;
    }
    char text[KV_INT_TEXT_MAX];
    if (increx_store(call, x, e, kv_slice(text, kv_int_print(sum, text)), sum))
        increx_reply_int(call, sum, applied);
}

/* A double of RESP3 or a bulk of RESP2, printed as INCRBYFLOAT does in both. */
static void increx_reply_number(struct kv_call *call, long double value, char *text)
{
    if (call->out->resp == 2) {
        kv_reply_ldouble_bulk(call->out, value);
        return;
    }
    size_t len = kv_ldouble_print(value, text);
    KV_REPLY_RAW(call->out, ",");
    kv_out_append(call->out, text, len);
    KV_REPLY_RAW(call->out, "\r\n");
}

static void increx_reply_float(struct kv_call *call, long double value, long double applied,
                               char *text)
{
    kv_reply_array(call->out, 2);
    increx_reply_number(call, value, text);
    increx_reply_number(call, applied, text);
}

static void increx_float(struct kv_call *call, const struct increx *x)
{
    long double delta, lower = -LDBL_MAX, upper = LDBL_MAX, old;
    if (!kv_call_ldouble(call, x->by_arg, &delta) ||
        (x->lower_arg && !kv_call_ldouble(call, x->lower_arg, &lower)) ||
        (x->upper_arg && !kv_call_ldouble(call, x->upper_arg, &upper)) ||
        !bounds_ordered(call, lower <= upper))
        return;
    struct kv_entry *e = kv_store_write(&call->view, &call->keys[0]);
    if (!stored_float(call, e, &old))
        return;
    if (!isfinite(delta) || !isfinite(old)) {
        finite_or_error(call, old + delta);
        return;
    }
    char *text = kv_arena_alloc(call->arena, KV_LDOUBLE_TEXT_MAX);
    long double sum = old + delta;
    KV_ASSERT(!isnan(sum));
    if (sum < lower || sum > upper) {
        if (!x->saturate) {
            increx_reply_float(call, old, 0, text);
            return;
        }
        sum = sum < lower ? lower : upper;
    }
    if (!finite_or_error(call, sum) || !finite_or_error(call, sum - old))
        return;
    struct kv_slice printed = kv_slice(text, kv_ldouble_print(sum, text));
    if (increx_store(call, x, e, printed, 0)) {
        /* A sum as large as its terms shows the increment itself, not the rounded difference. */
        bool saturated = sum != old + delta;
        increx_reply_float(call, sum, saturated ? sum - old : delta, text);
    }
}

/* INCREX key [BYFLOAT f | BYINT i] [LBOUND b] [UBOUND b] [SATURATE]
 *     [EX s | PX ms | EXAT s | PXAT ms | PERSIST] [ENX] */
void kv_cmd_increx(struct kv_call *call)
{
    struct increx x;
    if (!increx_parse(call, &x))
        return;
    if (x.is_float)
        increx_float(call, &x);
    else
        increx_int(call, &x);
}
