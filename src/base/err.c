/* Texts of the error list.
 *
 * One table, indexed by the value; the static assertion below makes a new value without a text a
 * compile error. The texts are for logs and start-up messages ("cannot open x: system call
 * failed"); replies to clients have their own wording and are written in engine/ and cmd/ only.
 *
 * Rejected: one text per place of failure. The list is closed so that callers can switch over it;
 * what is particular to a place (a path, errno) is added by whoever logs.
 *
 * Threads: any; constant data. */
#include "base/err.h"

#include "base/assert.h"
#include <assert.h>

static const char *const texts[] = {
    [KV_OK] = "success",
    [KV_ERR_NOMEM] = "out of memory",
    [KV_ERR_IO] = "system call failed",
    [KV_ERR_NOTFOUND] = "not found",
    [KV_ERR_EXISTS] = "exists already",
    [KV_ERR_RANGE] = "out of range",
    [KV_ERR_SYNTAX] = "malformed text",
    [KV_ERR_TYPE] = "wrong type of value",
    [KV_ERR_OVERFLOW] = "arithmetic overflow",
    [KV_ERR_LIMIT] = "configured limit reached",
    [KV_ERR_AGAIN] = "not possible now",
    [KV_ERR_CLOSED] = "closed",
    [KV_ERR_DENIED] = "not allowed",
};
static_assert(KV_ARRAY_LEN(texts) == KV_ERR_COUNT, "every error has a text");

const char *kv_err_text(enum kv_err err)
{
    KV_ASSERT((unsigned)err < KV_ERR_COUNT);
    KV_ASSERT(texts[err] != NULL);
    return texts[err];
}
