/* Growing text.
 *
 * The block doubles, starting at 256 bytes, so that composing n bytes costs O(n). All memory comes
 * from try allocations, because some texts hold what a client or a file sent; a failed append
 * leaves the text as it was and marks it.
 *
 * Invariants: len < capacity once a block exists; bytes[len] is 0.
 *
 * Rejected: an arena. INFO is composed while other workers stand, its size varies by a factor of
 * a hundred, and an arena would keep every abandoned half-size copy until the command ends.
 */
#include "admin/text.h"

#include <stdarg.h>
#include <stdio.h>

#define TEXT_FIRST_BYTES 256

void kv_text_init(struct kv_text *t)
{
    *t = (struct kv_text){0};
}

void kv_text_release(struct kv_text *t)
{
    kv_mem_free(t->bytes, t->capacity, KV_MEM_CONFIG);
    *t = (struct kv_text){0};
}

void kv_text_clear(struct kv_text *t)
{
    t->len = 0;
    t->failed = false;
    if (t->bytes != NULL)
        t->bytes[0] = '\0';
}

/* Makes room for `extra` more bytes and the terminator. */
static bool reserve(struct kv_text *t, size_t extra)
{
    KV_ASSERT(extra < KV_MEM_SIZE_MAX);
    size_t need = t->len + extra + 1;
    if (need <= t->capacity)
        return true;
    size_t capacity = KV_MAX(t->capacity * 2, (size_t)TEXT_FIRST_BYTES);
    while (capacity < need)
        capacity *= 2;
    char *bytes = kv_mem_try_realloc(t->bytes, t->capacity, capacity, KV_MEM_CONFIG);
    if (bytes == NULL) {
        t->failed = true;
        return false;
    }
    t->bytes = bytes;
    t->capacity = capacity;
    return true;
}

void kv_text_append(struct kv_text *t, struct kv_slice s)
{
    if (!reserve(t, s.len))
        return;
    if (s.len > 0)
        memcpy(t->bytes + t->len, s.ptr, s.len);
    t->len += s.len;
    t->bytes[t->len] = '\0';
    KV_ASSERT(t->len < t->capacity);
}

void kv_text_printf(struct kv_text *t, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int len = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    KV_ASSERT(len >= 0);
    if (!reserve(t, (size_t)len))
        return;
    va_start(args, fmt);
    vsnprintf(t->bytes + t->len, (size_t)len + 1, fmt, args);
    va_end(args);
    t->len += (size_t)len;
    KV_ASSERT(t->len < t->capacity);
}

static void append_escaped(struct kv_text *t, unsigned char byte)
{
    switch (byte) {
    case '\\':
    case '"':
        kv_text_printf(t, "\\%c", byte);
        return;
    case '\n':
        kv_text_append(t, KV_SLICE("\\n"));
        return;
    case '\r':
        kv_text_append(t, KV_SLICE("\\r"));
        return;
    case '\t':
        kv_text_append(t, KV_SLICE("\\t"));
        return;
    case '\a':
        kv_text_append(t, KV_SLICE("\\a"));
        return;
    case '\b':
        kv_text_append(t, KV_SLICE("\\b"));
        return;
    default:
        break;
    }
    if (byte >= 0x20 && byte < 0x7f)
        kv_text_append(t, kv_slice((const char *)&byte, 1));
    else
        kv_text_printf(t, "\\x%02x", byte);
}

void kv_text_append_quoted(struct kv_text *t, struct kv_slice s)
{
    kv_text_append(t, KV_SLICE("\""));
    for (size_t i = 0; i < s.len; i++)
        append_escaped(t, (unsigned char)s.ptr[i]);
    kv_text_append(t, KV_SLICE("\""));
}

const char *kv_text_cstr(const struct kv_text *t)
{
    return t->bytes == NULL ? "" : t->bytes;
}

struct kv_slice kv_text_slice(const struct kv_text *t)
{
    return kv_slice(kv_text_cstr(t), t->len);
}
