/* Options, lifetimes and conditions of the SET family.
 *
 * SET, GETEX, MSETEX, INCREX and DELEX take overlapping sets of option words in any order. One
 * parser serves them all: the command says which words it accepts, and a word contradicts every
 * other word of its group:
 *
 *   condition   NX, XX, IFEQ, IFNE, IFDEQ, IFDNE
 *   lifetime    EX, PX, EXAT, PXAT, KEEPTTL, PERSIST
 *
 * A word may be repeated, as clients have come to rely on; then the last operand counts.
 *
 * Parsing only remembers where the operand of a time is. It is converted afterwards, so that a
 * syntax error anywhere in the line is reported before a bad number, as clients expect. Times are
 * converted to absolute milliseconds with the batch's clock: the same number goes into the entry
 * and into the change stream. Anything that would pass KV_EXPIRY_MAX is refused as an invalid time;
 * all arithmetic happens after a range check, so nothing can overflow.
 *
 * Conditions look at the old value only; a digest operand is compared without regard to case. Its
 * length is checked even when no key exists, since a wrong length can never be meant.
 *
 * Threads: everything here runs under the locks of the command.
 *
 * Rejected: a table of words with a generic matcher. Eleven comparisons behind a switch on the
 * first letter cost less than hashing the word, and plain SET never gets here.
 */
#include "cmd/string_priv.h"

static uint32_t option_word(struct kv_slice word)
{
    static const struct {
        const char *name;
        uint32_t flag;
    } words[] = {
        {"ex", KV_SET_EX},           {"px", KV_SET_PX},       {"nx", KV_SET_NX},
        {"xx", KV_SET_XX},           {"get", KV_SET_GET},     {"keepttl", KV_SET_KEEPTTL},
        {"exat", KV_SET_EXAT},       {"pxat", KV_SET_PXAT},   {"ifeq", KV_SET_IFEQ},
        {"ifne", KV_SET_IFNE},       {"ifdeq", KV_SET_IFDEQ}, {"ifdne", KV_SET_IFDNE},
        {"persist", KV_SET_PERSIST},
    };
    if (word.len == 0)
        return 0;
    char first = (char)(word.ptr[0] | 0x20);
    for (size_t i = 0; i < KV_ARRAY_LEN(words); i++)
        if (words[i].name[0] == first && kv_slice_is(word, words[i].name))
            return words[i].flag;
    return 0;
}

bool kv_string_option(const struct kv_call *call, int *arg, uint32_t allowed,
                      struct kv_string_options *o)
{
    KV_ASSERT(*arg < call->argc);
    uint32_t flag = option_word(call->argv[*arg]) & allowed;
    if (flag == 0)
        return false;
    uint32_t group = flag & KV_SET_CONDITION  ? KV_SET_CONDITION
                     : flag & KV_SET_LIFETIME ? KV_SET_LIFETIME
                                              : flag;
    if (o->flags & group & ~flag)
        return false;
    if (flag & (KV_SET_MATCH | KV_SET_TIME)) {
        if (*arg + 1 >= call->argc)
            return false;
        ++*arg;
        if (flag & KV_SET_TIME)
            o->time_arg = *arg;
        else
            o->wanted = call->argv[*arg];
    }
    o->flags |= flag;
    ++*arg;
    return true;
}

bool kv_string_options(struct kv_call *call, int first, uint32_t allowed,
                       struct kv_string_options *o)
{
    *o = (struct kv_string_options){0};
    for (int arg = first; arg < call->argc;) {
        if (!kv_string_option(call, &arg, allowed, o)) {
            kv_call_syntax_error(call);
            return false;
        }
    }
    return true;
}

bool kv_string_time(struct kv_call *call, int arg, uint32_t flag, int64_t *expiry)
{
    KV_ASSERT(arg > 0 && arg < call->argc);
    int64_t value;
    if (!kv_call_int(call, arg, &value))
        return false;
    if (value <= 0 || value > KV_EXPIRY_MAX) {
        kv_call_invalid_expire(call);
        return false;
    }
    if (flag & (KV_SET_EX | KV_SET_EXAT))
        value *= 1000;
    if (flag & (KV_SET_EX | KV_SET_PX))
        value += call->view.now_ms;
    if (value > KV_EXPIRY_MAX) {
        kv_call_invalid_expire(call);
        return false;
    }
    *expiry = value;
    return true;
}

bool kv_string_expiry(struct kv_call *call, const struct kv_string_options *o, int64_t *expiry)
{
    if (o->flags & KV_SET_TIME)
        return kv_string_time(call, o->time_arg, o->flags & KV_SET_TIME, expiry);
    *expiry = o->flags & KV_SET_KEEPTTL ? KV_KEEP_EXPIRY : KV_NO_EXPIRY;
    return true;
}

/* The digest of e against the operand, which may be in either case. */
static bool digest_equal(const struct kv_entry *e, struct kv_slice wanted)
{
    char scratch[KV_INT_TEXT_MAX];
    char digest[KV_DIGEST_LEN + 1];
    KV_ASSERT(wanted.len == KV_DIGEST_LEN);
    kv_string_digest(kv_entry_string(e, scratch), digest);
    digest[KV_DIGEST_LEN] = 0;
    return kv_slice_is(wanted, digest);
}

bool kv_string_holds(struct kv_call *call, const struct kv_string_options *o,
                     const struct kv_entry *e, bool *failed)
{
    *failed = false;
    if (!(o->flags & KV_SET_CONDITION))
        return true;
    if (o->flags & KV_SET_NX)
        return e == NULL;
    if (o->flags & KV_SET_XX)
        return e != NULL;
    bool by_digest = o->flags & (KV_SET_IFDEQ | KV_SET_IFDNE);
    if (by_digest && o->wanted.len != KV_DIGEST_LEN) {
        kv_call_error(call, "ERR must be exactly 16 hexadecimal characters");
        *failed = true;
        return false;
    }
    if (!kv_call_want_string(call, e)) {
        *failed = true;
        return false;
    }
    bool negated = o->flags & (KV_SET_IFNE | KV_SET_IFDNE);
    if (e == NULL)
        return negated;
    if (by_digest)
        return digest_equal(e, o->wanted) != negated;
    char scratch[KV_INT_TEXT_MAX];
    return kv_slice_equal(kv_entry_string(e, scratch), o->wanted) != negated;
}

void kv_string_delete(struct kv_call *call, const struct kv_key *k, struct kv_entry *e)
{
    KV_ASSERT(e != NULL);
    kv_store_delete(&call->view, k, e);
    kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
    kv_call_propagate_del(call, k);
}

void kv_string_propagate_set(struct kv_call *call, const struct kv_key *k, struct kv_slice value,
                             int64_t expiry)
{
    struct kv_slice argv[5] = {KV_SLICE("SET"), kv_key_slice(k), value};
    int argc = 3;
    if (expiry == KV_KEEP_EXPIRY) {
        argv[argc++] = KV_SLICE("KEEPTTL");
    } else if (expiry != KV_NO_EXPIRY) {
        KV_ASSERT(expiry > 0);
        argv[argc++] = KV_SLICE("PXAT");
        argv[argc++] = kv_call_int_text(call, expiry);
    }
    kv_call_propagate(call, argv, argc);
}

bool kv_string_fits(struct kv_call *call, uint64_t len, uint64_t more)
{
    uint64_t total;
    uint64_t limit = kv_engine_options(call->engine)->proto_max_bulk_len;
    if (__builtin_add_overflow(len, more, &total) || total > limit) {
        kv_call_error(call, "ERR string exceeds maximum allowed size (proto-max-bulk-len)");
        return false;
    }
    return true;
}
