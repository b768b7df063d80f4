/* Small tools that several command families share.
 *
 * struct kv_text collects text whose length depends on what clients did (names, addresses, the
 * number of connections), so it grows through try allocations and remembers a failure instead of
 * reporting it at each addition: the caller finishes its walk and kv_text_reply_take answers either
 * the text or the error for short memory. The block is freed by its capacity, which is kept exactly
 * as it was asked for.
 *
 * The worker's arena was the other candidate for such text. It was rejected because an arena cannot
 * grow a block in place, so that doubling would leave every older copy behind until the command
 * ends, which for ten thousand connections is as much again as the text.
 *
 * Threads: everything belongs to the call that made it.
 */
#include "cmd/helper.h"

#include "base/assert.h"
#include "base/number.h"
#include "mem/mem.h"
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>

#define TEXT_FIRST_BYTES 512

/* Makes room for `more` bytes; false when memory is short. */
static bool text_reserve(struct kv_text *t, size_t more)
{
    KV_DASSERT(t->len <= t->capacity);
    if (t->failed)
        return false;
    if (t->capacity - t->len >= more)
        return true;
    size_t want = KV_MAX(KV_MAX(t->capacity * 2, t->len + more), (size_t)TEXT_FIRST_BYTES);
    char *grown = kv_mem_try_realloc(t->ptr, t->capacity, want, KV_MEM_OTHER);
    if (grown == NULL) {
        t->failed = true;
        return false;
    }
    t->ptr = grown;
    t->capacity = want;
    return true;
}

void kv_text_add(struct kv_text *t, const char *bytes, size_t len)
{
    if (len == 0 || !text_reserve(t, len))
        return;
    memcpy(t->ptr + t->len, bytes, len);
    t->len += len;
}

void kv_text_addf(struct kv_text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    KV_ASSERT(len >= 0);
    /* vsnprintf terminates, so one byte more than the text is needed. */
    if (!text_reserve(t, (size_t)len + 1))
        return;
    va_start(args, fmt);
    vsnprintf(t->ptr + t->len, (size_t)len + 1, fmt, args);
    va_end(args);
    t->len += (size_t)len;
}

void kv_text_release(struct kv_text *t)
{
    KV_ASSERT((t->ptr == NULL) == (t->capacity == 0));
    kv_mem_free(t->ptr, t->capacity, KV_MEM_OTHER);
    *t = (struct kv_text){0};
}

void kv_text_reply_take(struct kv_text *t, struct kv_call *call)
{
    if (t->failed)
        kv_call_no_memory(call);
    else
        kv_reply_verbatim(call->out, kv_slice(t->len == 0 ? "" : t->ptr, t->len), "txt");
    kv_text_release(t);
}

bool kv_cmd_database(struct kv_call *call, int arg, uint32_t *db)
{
    KV_ASSERT(arg < call->argc);
    int64_t number;
    if (!kv_int_parse(call->argv[arg], &number) || number < INT_MIN || number > INT_MAX) {
        kv_call_not_integer(call);
        return false;
    }
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
