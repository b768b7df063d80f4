/* A set of integers, sorted, in one run of bytes.
 *
 * The bytes are those that RDB files and DUMP carry, so that saving one is copying it:
 *
 *   4 bytes  width of a number: 2, 4 or 8, little-endian
 *   4 bytes  how many there are, little-endian
 *   numbers  signed, little-endian, ascending, none twice
 *
 * The width is that of the widest number that was ever put in: it grows and never shrinks.
 *
 * Nothing here allocates: the bytes are whoever's memory, and making room is the owner's work
 * (store/set.h). Threads: the caller serialises.
 */
#ifndef KV_DS_INTSET_H
#define KV_DS_INTSET_H

#include "base/compiler.h"
#include <string.h>

#define KV_INTSET_HEAD ((size_t)8)        /* bytes before the first number */
#define KV_INTSET_MAX ((uint64_t)1 << 26) /* numbers that a set may have */

KV_INLINE uint32_t kv_intset_width(const uint8_t *s)
{
    uint32_t width;
    memcpy(&width, s, sizeof(width));
    return width;
}

KV_INLINE uint32_t kv_intset_count(const uint8_t *s)
{
    uint32_t count;
    memcpy(&count, s + 4, sizeof(count));
    return count;
}

/* Bytes that a number needs. */
KV_INLINE uint32_t kv_intset_width_of(int64_t number)
{
    return number >= INT16_MIN && number <= INT16_MAX   ? 2
           : number >= INT32_MIN && number <= INT32_MAX ? 4
                                                        : 8;
}

KV_INLINE size_t kv_intset_bytes(uint32_t width, uint64_t count)
{
    return KV_INTSET_HEAD + width * (size_t)count;
}

/* Number by index, which is below the count. */
KV_INLINE int64_t kv_intset_get(const uint8_t *s, uint32_t index)
{
    uint32_t width = kv_intset_width(s);
    const uint8_t *p = s + KV_INTSET_HEAD + width * (size_t)index;
    int16_t narrow;
    int32_t medium;
    int64_t wide;
    if (width == 2) {
        memcpy(&narrow, p, sizeof(narrow));
        return narrow;
    }
    if (width == 4) {
        memcpy(&medium, p, sizeof(medium));
        return medium;
    }
    memcpy(&wide, p, sizeof(wide));
    return wide;
}

/* True when the number is there; *index is where, or where it would have to be. */
bool kv_intset_find(const uint8_t *s, int64_t number, uint32_t *index) KV_HOT;

/* Writes a set of numbers that ascend; the bytes are kv_intset_bytes of the width. */
void kv_intset_write(uint8_t *s, uint32_t width, const int64_t *numbers, uint32_t count);

/* Puts numbers into a set that has none of them; they ascend. The width becomes `width`, which is
 * not smaller than before; behind the set is room for what it then takes. */
void kv_intset_merge(uint8_t *s, uint32_t width, const int64_t *more, uint32_t more_count);

/* The owner took numbers out and closed the gaps. */
KV_INLINE void kv_intset_set_count(uint8_t *s, uint32_t count)
{
    memcpy(s + 4, &count, sizeof(count));
}

/* Sorts numbers and drops those that come again; returns how many are left. */
uint32_t kv_intset_sort(int64_t *numbers, uint32_t count);

/* True when foreign bytes are such a set with at least one number. */
bool kv_intset_valid(const uint8_t *s, size_t len) KV_MUST_CHECK;

#endif
