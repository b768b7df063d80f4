/* Bytes of the RDB format into room that is there: the forms of lengths and strings, in one place
 * for everybody who writes them.
 *
 * Each function writes at `out` and returns where the next byte goes. How much room it may use is
 * said beside it; nothing is checked. Behind what was written the room may hold anything.
 *
 * Threads: any; nothing is shared.
 */
#ifndef KV_PERSIST_RDB_WRITE_H
#define KV_PERSIST_RDB_WRITE_H

#include "base/assert.h"
#include "base/lzf.h"
#include "base/number.h"
#include "base/slice.h"
#include "persist/rdb_format.h"

#define KV_RDB_LEN_BYTES 9u     /* of a length, at most */
#define KV_RDB_INT_BYTES 5u     /* of an integer in binary, at most */
#define KV_RDB_STRING_HEAD 19u  /* of a string, beyond its own bytes, at most */
#define KV_RDB_COMPRESS_MIN 20u /* strings up to here are written as they are */
#define KV_RDB_COMPRESS_MAX ((size_t)1 << 30)
#define KV_RDB_COMPRESS_GAIN 4u  /* LZF has to save so many bytes, its own lengths aside */
#define KV_RDB_INT_TEXT_BYTES 11 /* longest text of an integer of 32 bits */

/* A length; KV_RDB_LEN_BYTES. */
KV_INLINE uint8_t *kv_rdb_write_len(uint8_t *out, uint64_t len)
{
    if (KV_LIKELY(len < 1 << 6)) {
        *out = (uint8_t)len;
        return out + 1;
    }
    if (len < 1 << 14) {
        out[0] = (uint8_t)(KV_RDB_LEN_14 << 6 | len >> 8);
        out[1] = (uint8_t)len;
        return out + 2;
    }
    size_t bytes = len <= UINT32_MAX ? 4 : 8;
    out[0] = (uint8_t)(KV_RDB_LEN_WIDE << 6 | (bytes == 8));
    for (size_t i = 0; i < bytes; i++)
        out[1 + i] = (uint8_t)(len >> 8 * (bytes - 1 - i));
    return out + 1 + bytes;
}

/* An integer in binary; KV_RDB_INT_BYTES. NULL: it takes more than 32 bits, nothing is written. */
KV_INLINE uint8_t *kv_rdb_write_int(uint8_t *out, int64_t number)
{
    unsigned form, bytes;
    if (number >= INT8_MIN && number <= INT8_MAX) {
        form = KV_RDB_SPECIAL_INT8;
        bytes = 1;
    } else if (number >= INT16_MIN && number <= INT16_MAX) {
        form = KV_RDB_SPECIAL_INT16;
        bytes = 2;
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        form = KV_RDB_SPECIAL_INT32;
        bytes = 4;
    } else {
        return NULL;
    }
    *out++ = (uint8_t)(KV_RDB_LEN_SPECIAL << 6 | form);
    for (unsigned i = 0; i < bytes; i++)
        *out++ = (uint8_t)((uint64_t)number >> 8 * i);
    return out;
}

/* A string as it is; KV_RDB_LEN_BYTES and its own. */
KV_INLINE uint8_t *kv_rdb_write_plain(uint8_t *out, struct kv_slice text)
{
    out = kv_rdb_write_len(out, text.len);
    kv_bytes_copy(out, text.ptr, text.len);
    return out + text.len;
}

/* True when compressing a string may be worth it. */
KV_INLINE bool kv_rdb_may_compress(struct kv_slice bytes)
{
    return bytes.len > KV_RDB_COMPRESS_MIN && bytes.len <= KV_RDB_COMPRESS_MAX;
}

/* A string by LZF; KV_RDB_STRING_HEAD and its own bytes. NULL: that is not shorter. */
KV_INLINE uint8_t *kv_rdb_write_compressed(uint8_t *out, struct kv_slice bytes)
{
    KV_DASSERT(kv_rdb_may_compress(bytes));
    /* The length of what is packed stands before it: room is left for the longest. */
    uint8_t *packed = out + KV_RDB_STRING_HEAD;
    size_t len = kv_lzf_pack(bytes.ptr, bytes.len, packed, bytes.len - KV_RDB_COMPRESS_GAIN);
    if (len == 0)
        return NULL;
    *out++ = KV_RDB_LEN_SPECIAL << 6 | KV_RDB_SPECIAL_LZF;
    out = kv_rdb_write_len(out, len);
    out = kv_rdb_write_len(out, bytes.len);
    memmove(out, packed, len);
    return out + len;
}

/* True, and the number, when a string may be written as one. */
KV_INLINE bool kv_rdb_is_int(struct kv_slice text, int64_t *number)
{
    return text.len - 1 < KV_RDB_INT_TEXT_BYTES && text.ptr[0] <= '9' && kv_int_parse(text, number);
}

#endif
