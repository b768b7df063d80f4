/* Small tools that several command families share: replies of composed text, arguments that name a
 * database or a switch, a read that is no access, the rule for names of clients.
 *
 * Text whose length depends on what clients did (CLIENT LIST, MEMORY DOCTOR) is composed in a
 * struct kv_text, which grows through try allocations and remembers a failure; the composer walks
 * to its end and kv_cmd_reply_text_take answers either the text or the error for short memory, and
 * frees it in both cases.
 *
 * The arguments' functions write the error reply themselves and tell only whether to go on, as the
 * ones in engine/call.h do. They are here and not there because the engine knows no command.
 *
 * Threads: everything belongs to the call that made it.
 */
#include "cmd/helper.h"

#include "base/assert.h"
#include <limits.h>

#define SHARED_INT_END 10000

void kv_cmd_reply_text_take(struct kv_text *t, struct kv_call *call)
{
    if (t->failed)
        kv_call_no_memory(call);
    else
        kv_reply_verbatim(call->out, kv_text_slice(t), "txt");
    kv_text_release(t);
}

bool kv_cmd_database(struct kv_call *call, int arg, uint32_t *db)
{
    KV_ASSERT(arg < call->argc);
    int64_t number;
    if (!kv_call_int_range(call, arg, INT_MIN, INT_MAX, &number))
        return false;
    if (number < 0 || number >= (int64_t)kv_store_database_count(call->view.store)) {
        kv_call_error(call, "ERR DB index is out of range");
        return false;
    }
    *db = (uint32_t)number;
    return true;
}

bool kv_cmd_on_off(struct kv_call *call, int arg, bool *on)
{
    KV_ASSERT(arg < call->argc);
    *on = kv_call_arg_is(call, arg, "on");
    if (!*on && !kv_call_arg_is(call, arg, "off")) {
        kv_call_syntax_error(call);
        return false;
    }
    return true;
}

/* Cursors are plain decimal numbers; leading zeros and one plus sign are accepted as Redis' own
 * parsing with strtoull accepts them. */
static bool parse_cursor(struct kv_slice text, uint64_t *cursor)
{
    size_t at = text.len > 0 && text.ptr[0] == '+';
    if (at == text.len)
        return false;
    *cursor = 0;
    for (; at < text.len; at++) {
        unsigned digit = (unsigned char)text.ptr[at] - (unsigned)'0';
        if (digit > 9 || __builtin_mul_overflow(*cursor, 10, cursor) ||
            __builtin_add_overflow(*cursor, digit, cursor))
            return false;
    }
    return true;
}

bool kv_cmd_cursor(struct kv_call *call, int arg, uint64_t *cursor)
{
    KV_ASSERT(arg < call->argc);
    if (parse_cursor(call->argv[arg], cursor))
        return true;
    kv_call_error(call, "ERR invalid cursor");
    return false;
}

/* One per thread: workers must not share a cache line for it. */
struct kv_random *kv_cmd_random(void)
{
    static _Thread_local struct kv_random random;
    static _Thread_local bool ready;
    if (KV_UNLIKELY(!ready)) {
        uint64_t seed;
        kv_random_secure(&seed, sizeof(seed));
        kv_random_init(&random, seed);
        ready = true;
    }
    return &random;
}

struct kv_entry *kv_cmd_read_untouched(struct kv_call *call, const struct kv_key *k)
{
    uint32_t flags = call->view.flags;
    call->view.flags = flags | KV_VIEW_NO_TOUCH;
    struct kv_entry *e = kv_store_read(&call->view, k);
    call->view.flags = flags;
    return e;
}

bool kv_cmd_client_text_valid(struct kv_slice text)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < '!' || text.ptr[i] > '~')
            return false;
    }
    return true;
}

int kv_cmd_references(const struct kv_entry *e)
{
    int64_t value;
    bool shared = kv_entry_type(e) == KV_TYPE_STRING && kv_entry_encoding(e) == KV_ENC_INT &&
                  kv_entry_string_int(e, &value) && value >= 0 && value < SHARED_INT_END;
    return shared ? INT_MAX : 1;
}
