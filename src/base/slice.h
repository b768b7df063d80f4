/* A slice borrows bytes: a pointer and a length, not terminated, may hold any byte. It owns nothing
 * and is valid as long as what it points into. */
#ifndef KV_BASE_SLICE_H
#define KV_BASE_SLICE_H

#include "base/compiler.h"
#include <string.h>

struct kv_slice {
    const char *ptr; /* first byte; may be NULL only when len is 0 */
    size_t len;      /* bytes */
};

#define KV_SLICE(literal) ((struct kv_slice){(literal), sizeof(literal) - 1})

KV_INLINE struct kv_slice kv_slice(const char *ptr, size_t len)
{
    return (struct kv_slice){ptr, len};
}

KV_INLINE struct kv_slice kv_slice_cstr(const char *text)
{
    return (struct kv_slice){text, strlen(text)};
}

/* Words that may lie anywhere. */
KV_INLINE uint64_t kv_load_word(const void *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

KV_INLINE uint32_t kv_load_half(const void *p)
{
    uint32_t half;
    memcpy(&half, p, sizeof(half));
    return half;
}

/* memcmp(a, b, len) == 0 for texts that are mostly short: up to 32 bytes by overlapping words,
 * without a call. */
KV_INLINE bool kv_bytes_equal(const void *a, const void *b, size_t len)
{
    const char *p = a, *q = b;
    if (len >= 8) {
        if (KV_UNLIKELY(len > 32))
            return memcmp(p, q, len) == 0;
        uint64_t difference = kv_load_word(p) ^ kv_load_word(q);
        difference |= kv_load_word(p + len - 8) ^ kv_load_word(q + len - 8);
        if (len > 16) {
            difference |= kv_load_word(p + 8) ^ kv_load_word(q + 8);
            difference |= kv_load_word(p + len - 16) ^ kv_load_word(q + len - 16);
        }
        return difference == 0;
    }
    if (len >= 4)
        return ((kv_load_half(p) ^ kv_load_half(q)) |
                (kv_load_half(p + len - 4) ^ kv_load_half(q + len - 4))) == 0;
    return len == 0 || (p[0] == q[0] && p[len / 2] == q[len / 2] && p[len - 1] == q[len - 1]);
}

/* memcpy likewise; the two do not overlap. */
KV_INLINE void kv_bytes_copy(void *to, const void *from, size_t len)
{
    char *p = to;
    const char *q = from;
    if (len >= 8) {
        if (KV_UNLIKELY(len > 32)) {
            memcpy(p, q, len);
            return;
        }
        if (len > 16) {
            memcpy(p + 8, q + 8, 8);
            memcpy(p + len - 16, q + len - 16, 8);
        }
        memcpy(p, q, 8);
        memcpy(p + len - 8, q + len - 8, 8);
    } else if (len >= 4) {
        memcpy(p, q, 4);
        memcpy(p + len - 4, q + len - 4, 4);
    } else if (len != 0) {
        p[0] = q[0];
        p[len / 2] = q[len / 2];
        p[len - 1] = q[len - 1];
    }
}

KV_INLINE bool kv_slice_equal(struct kv_slice a, struct kv_slice b)
{
    return a.len == b.len && kv_bytes_equal(a.ptr, b.ptr, a.len);
}

/* True when the slice equals the word, ASCII case ignored. `lower` is in lower case. */
bool kv_slice_is(struct kv_slice s, const char *lower);

/* Compares like memcmp, a shorter prefix sorting first. */
int kv_slice_compare(struct kv_slice a, struct kv_slice b);

#endif
