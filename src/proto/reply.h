/* Writes RESP2 / RESP3 values to an output. RESP3 types degrade to their RESP2 forms by o->resp:
 * null -> $-1 or *-1, map -> flat array, set and push -> array, double and big number -> bulk,
 * boolean -> integer, verbatim -> bulk. Format: the public RESP specification. All append-only, no
 * failure; thread rules as proto/out.h. */
#ifndef KV_PROTO_REPLY_H
#define KV_PROTO_REPLY_H

#include "proto/out.h"

/* Bytes exactly as given (a complete RESP value of a constant). */
#define KV_REPLY_RAW(o, literal) kv_reply_raw((o), (literal), sizeof(literal) - 1)

KV_INLINE void kv_reply_raw(struct kv_out *o, const char *bytes, size_t len) /* len <= 8,192 */
{
    char *p = kv_out_reserve(o, len);
    memcpy(p, bytes, len);
    o->pos = p + len;
}

KV_INLINE void kv_reply_ok(struct kv_out *o)
{
    KV_REPLY_RAW(o, "+OK\r\n");
}

void kv_reply_status(struct kv_out *o, const char *text); /* +text */
void kv_reply_int(struct kv_out *o, int64_t value);       /* :value */
void kv_reply_bulk(struct kv_out *o, const void *bytes, size_t len);
void kv_reply_slice(struct kv_out *o, struct kv_slice s); /* bulk */
void kv_reply_text(struct kv_out *o, const char *text);   /* bulk of a C string */
void kv_reply_bulk_int(struct kv_out *o, int64_t value);  /* bulk with the decimal text */
void kv_reply_null(struct kv_out *o);                     /* $-1 or _ */
void kv_reply_null_array(struct kv_out *o);               /* *-1 or _ */
void kv_reply_array(struct kv_out *o, size_t count);      /* header only */
void kv_reply_map(struct kv_out *o, size_t pairs);        /* header: % or * of 2 * pairs */
void kv_reply_set(struct kv_out *o, size_t count);        /* header: ~ or * */
void kv_reply_push(struct kv_out *o, size_t count);       /* header: > or * */
void kv_reply_attribute(struct kv_out *o, size_t pairs);  /* header |; RESP3 only (asserted) */
void kv_reply_double(struct kv_out *o, double value);     /* , or bulk */
void kv_reply_ldouble_bulk(struct kv_out *o, long double value); /* bulk as INCRBYFLOAT prints */
void kv_reply_bool(struct kv_out *o, bool value);                /* #t #f or :1 :0 */
void kv_reply_bignum(struct kv_out *o, struct kv_slice digits);
void kv_reply_verbatim(struct kv_out *o, struct kv_slice text, const char *ext3); /* =, or bulk */

/* Deferred lengths (see kv_out_deferred_begin). */
void kv_reply_array_end(struct kv_out *o, struct kv_chunk *token, size_t count);
void kv_reply_map_end(struct kv_out *o, struct kv_chunk *token, size_t pairs);
void kv_reply_set_end(struct kv_out *o, struct kv_chunk *token, size_t count);

/* "-text\r\n"; `text` starts with the code ("ERR ..."). CR and LF inside become spaces. */
void kv_reply_error_raw(struct kv_out *o, struct kv_slice text);

#endif
