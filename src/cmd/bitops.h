/* Operations on bitmaps in memory. Bit 0 is the most significant bit of byte 0. Pure functions, any
 * thread; they know no commands. */
#ifndef KV_CMD_BITOPS_H
#define KV_CMD_BITOPS_H

#include "base/slice.h"

/* Bits that are 1 in the bytes. */
uint64_t kv_bits_count(const void *bytes, size_t len);

/* Bits that are 1 among [from, end) of the bits of `bytes`. */
uint64_t kv_bits_count_range(const void *bytes, uint64_t from, uint64_t end);

/* Position of the first bit that equals `bit` in [from, end), or -1. */
int64_t kv_bits_find(const void *bytes, bool bit, uint64_t from, uint64_t end);

/* Reads and writes `width` bits (1 to 64) at a bit offset as an unsigned number, most significant
 * bit first. The bytes must hold them all. */
uint64_t kv_bits_get(const void *bytes, uint64_t offset, unsigned width);
void kv_bits_set(void *bytes, uint64_t offset, unsigned width, uint64_t value);

enum kv_bits_op {
    KV_BITS_AND,
    KV_BITS_OR,
    KV_BITS_XOR,
    KV_BITS_NOT,   /* of the only source */
    KV_BITS_DIFF,  /* in the first and in none of the others */
    KV_BITS_DIFF1, /* in one of the others and not in the first */
    KV_BITS_ANDOR, /* in the first and in one of the others */
    KV_BITS_ONE,   /* in exactly one source */
};

/* Combines the sources into out[0, len); sources shorter than that count as if zeros followed. No
 * source overlaps `out`. source_count is at least 1. */
void kv_bits_combine(enum kv_bits_op op, const struct kv_slice *sources, size_t source_count,
                     void *out, size_t len);

#endif
