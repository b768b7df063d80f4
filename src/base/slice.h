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

KV_INLINE bool kv_slice_equal(struct kv_slice a, struct kv_slice b)
{
    return a.len == b.len && (a.len == 0 || memcmp(a.ptr, b.ptr, a.len) == 0);
}

/* True when the slice equals the word, ASCII case ignored. `lower` is in lower case. */
bool kv_slice_is(struct kv_slice s, const char *lower);

/* Compares like memcmp, a shorter prefix sorting first. */
int kv_slice_compare(struct kv_slice a, struct kv_slice b);

#endif
