/* The slice functions that are not worth inlining.
 *
 * A slice is two words and passed by value. Equality is inline in the header, since most calls know
 * one length; what is here loops or is rare. Case folding is ASCII only, independent of the locale:
 * command and option names are ASCII, and every other byte has to stay what it is.
 *
 * Invariant: ptr is NULL only when len is 0, so memcmp is never handed a NULL pointer with a length
 * (and not with length 0 either, which the C standard does not allow).
 *
 * Threads: any; pure functions. */
#include "base/slice.h"

#include "base/assert.h"

bool kv_slice_is(struct kv_slice s, const char *lower)
{
    KV_DASSERT(s.ptr != NULL || s.len == 0);
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        KV_DASSERT(lower[i] < 'A' || lower[i] > 'Z');
        if (c >= 'A' && c <= 'Z')
            c |= 0x20;
        /* A zero byte within the slice must not match the end of the word. */
        if (lower[i] == '\0' || c != (unsigned char)lower[i])
            return false;
    }
    return lower[s.len] == '\0';
}

int kv_slice_compare(struct kv_slice a, struct kv_slice b)
{
    KV_DASSERT(a.ptr != NULL || a.len == 0);
    KV_DASSERT(b.ptr != NULL || b.len == 0);
    size_t common = KV_MIN(a.len, b.len);
    int order = common == 0 ? 0 : memcmp(a.ptr, b.ptr, common);

    if (order != 0)
        return order < 0 ? -1 : 1;
    return a.len < b.len ? -1 : a.len > b.len;
}
