/* Due times of members: arguments, conditions, replies.
 *
 * The grammar is that of HEXPIRE. Condition and list of members may come in either order, as in
 * Redis since 8.4; what is neither is an error that names the missing word. Numbers are checked
 * before the key is looked up.
 *
 * A moment beyond KV_EXPIRY_MAX is refused, as EXPIRE does; a negative one as well, which HEXPIRE
 * does and EXPIRE does not.
 *
 * A time left is rounded up to whole units, so that a member that is still there never shows 0.
 *
 * Threads: everything belongs to the call that made it.
 */
#include "cmd/member_expire.h"
#include "store/collection.h"

/* The word in upper case for error texts, lower case to compare. */
struct word {
    char upper[16], lower[16];
};

static struct word word_of(const char *word)
{
    struct word w = {0};
    for (size_t i = 0; word[i] != '\0' && i + 1 < sizeof(w.upper); i++) {
        w.upper[i] = word[i];
        w.lower[i] = (char)(word[i] | 0x20);
    }
    return w;
}

/* The list whose word stands at *arg, which moves behind it. */
static bool read_names(struct kv_call *call, int *arg, const struct word *w,
                       struct kv_member_expire *x)
{
    int64_t count;
    if (x->first != 0) {
        kv_call_errorf(call, "ERR %s keyword specified multiple times", w->upper);
        return false;
    }
    if (*arg + 1 >= call->argc || !kv_int_parse(call->argv[*arg + 1], &count) || count < 1) {
        kv_call_errorf(call, "ERR Parameter `num%s` should be greater than 0",
                       w->lower[0] == 'f' ? "Fields" : "Members");
        return false;
    }
    x->first = *arg + 2;
    if (count > call->argc - x->first) {
        kv_call_errorf(call, "ERR The `num%s` parameter must match the number of arguments",
                       w->lower);
        return false;
    }
    x->count = (int)count;
    *arg = x->first + x->count;
    return true;
}

static uint32_t condition_of(struct kv_slice word)
{
    return kv_slice_is(word, "nx")   ? KV_MEMBER_NX
           : kv_slice_is(word, "xx") ? KV_MEMBER_XX
           : kv_slice_is(word, "gt") ? KV_MEMBER_GT
           : kv_slice_is(word, "lt") ? KV_MEMBER_LT
                                     : 0;
}

/* The list of members and, where allowed, a condition from `arg` on. */
static bool read_words(struct kv_call *call, int arg, const char *word, bool conditions,
                       struct kv_member_expire *x)
{
    struct word w = word_of(word);
    while (arg < call->argc) {
        uint32_t condition = conditions ? condition_of(call->argv[arg]) : 0;
        if (condition != 0 && x->condition != 0) {
            kv_call_error(call, "ERR Multiple condition flags specified");
            return false;
        }
        if (condition != 0) {
            x->condition = condition;
            arg++;
        } else if (kv_call_arg_is(call, arg, w.lower)) {
            if (!read_names(call, &arg, &w, x))
                return false;
        } else if (x->first != 0) {
            kv_call_errorf(call, "ERR The `num%s` parameter must match the number of arguments",
                           w.lower);
            return false;
        } else {
            break;
        }
    }
    if (x->first == 0)
        kv_call_errorf(call, "ERR Mandatory argument %s is missing or not at the right position",
                       w.upper);
    return x->first != 0;
}

bool kv_member_names_read(struct kv_call *call, const char *word, struct kv_member_expire *x)
{
    *x = (struct kv_member_expire){.condition = 0};
    return read_words(call, 2, word, false, x);
}

bool kv_member_expire_read(struct kv_call *call, const char *word, int64_t unit_ms, int64_t base_ms,
                           struct kv_member_expire *x)
{
    int64_t number;
    *x = (struct kv_member_expire){.condition = 0};
    if (!kv_call_int(call, 2, &number))
        return false;
    if (number < 0) {
        kv_call_error(call, "ERR invalid expire time, must be >= 0");
        return false;
    }
    if (__builtin_mul_overflow(number, unit_ms, &number) ||
        __builtin_add_overflow(number, base_ms, &x->when_ms) || x->when_ms > KV_EXPIRY_MAX) {
        kv_call_invalid_expire(call);
        return false;
    }
    return read_words(call, 3, word, true, x);
}

bool kv_member_expire_holds(const struct kv_member_expire *x, int64_t due)
{
    bool has = due != KV_NOT_DUE;
    switch (x->condition) {
    case KV_MEMBER_NX:
        return !has;
    case KV_MEMBER_XX:
        return has;
    case KV_MEMBER_GT:
        return has && x->when_ms > due;
    case KV_MEMBER_LT:
        return !has || x->when_ms < due;
    default:
        return true;
    }
}

void kv_member_due_reply(struct kv_call *call, int64_t due, int64_t unit_ms, int64_t base_ms)
{
    if (due == KV_NOT_DUE)
        kv_reply_int(call->out, KV_MEMBER_STAYS);
    else
        kv_reply_int(call->out, (due - base_ms + unit_ms - 1) / unit_ms);
}

void kv_member_propagate(struct kv_call *call, const char *name, const char *word, int64_t when_ms,
                         const struct kv_slice *chosen, size_t count)
{
    struct kv_slice head[5] = {kv_slice_cstr(name), kv_slice(call->keys[0].ptr, call->keys[0].len)};
    size_t words = 2;
    if (count == 0)
        return;
    if (word != NULL) {
        head[words++] = kv_call_int_text(call, when_ms);
        head[words++] = kv_slice_cstr(word);
        head[words++] = kv_call_int_text(call, (int64_t)count);
    }
    kv_call_propagate_parts(call, head, words, chosen, count);
}
