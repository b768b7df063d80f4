/* Reply writers: each makes room once and writes text and line ends in place.
 *
 * Numbers are printed by kv_int_print straight into the chunk. Bulks that fit into the room of one
 * reservation (header, bytes, line end) are written with one check; longer ones go through
 * kv_out_append, which spreads them over chunks. No function here can fail: memory for chunks is
 * kv_mem_alloc of our own fixed size, and what a client makes us send is bounded by the output
 * limits that the engine applies.
 */
#include "proto/reply.h"
#include "base/assert.h"
#include "base/number.h"
#include <stdlib.h>

#define HEADER_MAX (KV_INT_TEXT_MAX + 4) /* type byte, digits, CR LF */
#define INLINE_BULK_MAX 4096             /* bulks up to this are written in one reservation */

KV_INLINE char *put_header(char *p, char type, int64_t value)
{
    *p++ = type;
    if (KV_LIKELY((uint64_t)value < 10)) {
        *p++ = (char)('0' + value);
    } else if (KV_LIKELY((uint64_t)value < 100)) {
        *p++ = (char)('0' + value / 10);
        *p++ = (char)('0' + value % 10);
    } else {
        p += kv_int_print(value, p);
    }
    *p++ = '\r';
    *p++ = '\n';
    return p;
}

static void header(struct kv_out *o, char type, int64_t value)
{
    char *p = kv_out_reserve(o, HEADER_MAX);
    o->pos = put_header(p, type, value);
}

void kv_reply_status(struct kv_out *o, const char *text)
{
    KV_REPLY_RAW(o, "+");
    kv_out_append(o, text, strlen(text));
    KV_REPLY_RAW(o, "\r\n");
}

void kv_reply_int(struct kv_out *o, int64_t value)
{
    header(o, ':', value);
}

void kv_reply_bulk(struct kv_out *o, const void *bytes, size_t len)
{
    if (KV_LIKELY(len <= INLINE_BULK_MAX)) {
        char *p = kv_out_reserve(o, len + HEADER_MAX + 2);
        p = put_header(p, '$', (int64_t)len);
        kv_bytes_copy(p, bytes, len);
        p += len;
        *p++ = '\r';
        *p++ = '\n';
        o->pos = p;
        return;
    }
    header(o, '$', (int64_t)len);
    kv_out_append(o, bytes, len);
    KV_REPLY_RAW(o, "\r\n");
}

void kv_reply_slice(struct kv_out *o, struct kv_slice s)
{
    kv_reply_bulk(o, s.ptr, s.len);
}

void kv_reply_text(struct kv_out *o, const char *text)
{
    kv_reply_bulk(o, text, strlen(text));
}

void kv_reply_bulk_int(struct kv_out *o, int64_t value)
{
    char text[KV_INT_TEXT_MAX];
    kv_reply_bulk(o, text, kv_int_print(value, text));
}

void kv_reply_null(struct kv_out *o)
{
    if (o->resp == 2)
        KV_REPLY_RAW(o, "$-1\r\n");
    else
        KV_REPLY_RAW(o, "_\r\n");
}

void kv_reply_null_array(struct kv_out *o)
{
    if (o->resp == 2)
        KV_REPLY_RAW(o, "*-1\r\n");
    else
        KV_REPLY_RAW(o, "_\r\n");
}

void kv_reply_array(struct kv_out *o, size_t count)
{
    header(o, '*', (int64_t)count);
}

void kv_reply_map(struct kv_out *o, size_t pairs)
{
    if (o->resp == 2)
        header(o, '*', (int64_t)pairs * 2);
    else
        header(o, '%', (int64_t)pairs);
}

void kv_reply_set(struct kv_out *o, size_t count)
{
    header(o, o->resp == 2 ? '*' : '~', (int64_t)count);
}

void kv_reply_push(struct kv_out *o, size_t count)
{
    header(o, o->resp == 2 ? '*' : '>', (int64_t)count);
}

void kv_reply_attribute(struct kv_out *o, size_t pairs)
{
    KV_ASSERT(o->resp == 3);
    header(o, '|', (int64_t)pairs);
}

void kv_reply_double(struct kv_out *o, double value)
{
    char text[KV_DOUBLE_TEXT_MAX];
    size_t len = kv_double_print(value, text);
    if (o->resp == 2) {
        kv_reply_bulk(o, text, len);
        return;
    }
    KV_REPLY_RAW(o, ",");
    kv_reply_raw(o, text, len);
    KV_REPLY_RAW(o, "\r\n");
}

void kv_reply_ldouble_bulk(struct kv_out *o, long double value)
{
    char text[KV_LDOUBLE_TEXT_MAX];
    kv_reply_bulk(o, text, kv_ldouble_print(value, text));
}

void kv_reply_bool(struct kv_out *o, bool value)
{
    if (o->resp == 2)
        header(o, ':', value);
    else if (value)
        KV_REPLY_RAW(o, "#t\r\n");
    else
        KV_REPLY_RAW(o, "#f\r\n");
}

void kv_reply_bignum(struct kv_out *o, struct kv_slice digits)
{
    if (o->resp == 2) {
        kv_reply_slice(o, digits);
        return;
    }
    KV_REPLY_RAW(o, "(");
    kv_out_append(o, digits.ptr, digits.len);
    KV_REPLY_RAW(o, "\r\n");
}

void kv_reply_verbatim(struct kv_out *o, struct kv_slice text, const char *ext3)
{
    KV_ASSERT(strlen(ext3) == 3);
    if (o->resp == 2) {
        kv_reply_slice(o, text);
        return;
    }
    header(o, '=', (int64_t)text.len + 4);
    kv_reply_raw(o, ext3, 3);
    KV_REPLY_RAW(o, ":");
    kv_out_append(o, text.ptr, text.len);
    KV_REPLY_RAW(o, "\r\n");
}

void kv_reply_array_end(struct kv_out *o, struct kv_chunk *token, size_t count)
{
    kv_out_deferred_end(o, token, '*', count);
}

void kv_reply_map_end(struct kv_out *o, struct kv_chunk *token, size_t pairs)
{
    if (o->resp == 2)
        kv_out_deferred_end(o, token, '*', pairs * 2);
    else
        kv_out_deferred_end(o, token, '%', pairs);
}

void kv_reply_set_end(struct kv_out *o, struct kv_chunk *token, size_t count)
{
    kv_out_deferred_end(o, token, o->resp == 2 ? '*' : '~', count);
}

void kv_reply_error_raw(struct kv_out *o, struct kv_slice text)
{
    KV_REPLY_RAW(o, "-");
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (c == '\r' || c == '\n')
            c = ' ';
        *kv_out_reserve(o, 1) = c;
        o->pos++;
    }
    KV_REPLY_RAW(o, "\r\n");
}
