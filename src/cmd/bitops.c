/* Bitmaps in memory: counting, searching, fields, and combining several into one.
 *
 * Everything works on 64-bit words. Words are read with memcpy, since strings lie at any address;
 * the compiler turns that into one load. Where the order of bits matters, a word is read as big
 * endian, so that bit 0 of the bitmap is the most significant bit of the word and the first
 * difference is what counts leading zeros.
 *
 * Data layout: bit n is bit 7 - n % 8 of byte n / 8.
 *
 * Counting uses the processor's population count when it has one, chosen once per call, four words
 * a step so that the counts do not wait for each other. The portable way counts within the word.
 *
 * Combining goes through the bitmaps in blocks of 4 KiB and through all sources within a block:
 * the result stays in the first-level cache however many sources there are, and each source is read
 * once from front to back. A pass over the whole result per source would move it through memory
 * again and again. Going word by word over all sources touches as many streams as there are
 * sources, more than the hardware prefetches.
 *
 * Invariants
 *   - No function reads or writes beyond the bytes that it was given, the last word included.
 *   - A source that ends inside a block counts as zeros from there.
 *
 * Threads: pure functions.
 */
#include "cmd/bitops.h"
#include "base/assert.h"

#define BLOCK_BYTES 4096

KV_INLINE uint64_t word_at(const uint8_t *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

/* Up to 8 bytes as a big endian word; missing ones are zero. */
KV_INLINE uint64_t big_word(const uint8_t *p, size_t len)
{
    uint64_t word = 0;
    memcpy(&word, p, KV_MIN(len, sizeof(word)));
    return __builtin_bswap64(word);
}

/* --- counting --- */

/* A macro, since an inline function would not take on the target of its caller in every compiler.
 */
#define COUNT_WORDS(p, len, total, count)                                                          \
    do {                                                                                           \
        for (; len >= 32; p += 32, len -= 32)                                                      \
            total += (uint64_t)count(word_at(p)) + (uint64_t)count(word_at(p + 8)) +               \
                     (uint64_t)count(word_at(p + 16)) + (uint64_t)count(word_at(p + 24));          \
        for (; len >= 8; p += 8, len -= 8)                                                         \
            total += (uint64_t)count(word_at(p));                                                  \
        if (len > 0)                                                                               \
            total += (uint64_t)count(big_word(p, len));                                            \
    } while (0)

KV_INLINE unsigned count_portable(uint64_t word)
{
    word -= word >> 1 & 0x5555555555555555;
    word = (word & 0x3333333333333333) + (word >> 2 & 0x3333333333333333);
    word = (word + (word >> 4)) & 0x0f0f0f0f0f0f0f0f;
    return (unsigned)(word * 0x0101010101010101 >> 56);
}

static uint64_t count_any(const uint8_t *p, size_t len)
{
    uint64_t total = 0;
    COUNT_WORDS(p, len, total, count_portable);
    return total;
}

#if defined(__x86_64__)
__attribute__((target("popcnt"))) static uint64_t count_native(const uint8_t *p, size_t len)
{
    uint64_t total = 0;
    COUNT_WORDS(p, len, total, __builtin_popcountll);
    return total;
}
#endif

uint64_t kv_bits_count(const void *bytes, size_t len)
{
    KV_ASSERT(bytes != NULL || len == 0);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("popcnt"))
        return count_native(bytes, len);
#endif
    return count_any(bytes, len);
}

uint64_t kv_bits_count_range(const void *bytes, uint64_t from, uint64_t end)
{
    const uint8_t *p = bytes;
    KV_ASSERT(from <= end);
    if (from == end)
        return 0;
    uint64_t first = from / 8, last = (end - 1) / 8;
    uint64_t total = kv_bits_count(p + first, last - first + 1);
    /* The bytes at both ends were counted whole: take off what lies outside. */
    total -= count_portable(p[first] & (0xffu << (8 - from % 8) & 0xff));
    total -= count_portable(p[last] & (0xffu >> (1 + (end - 1) % 8)));
    return total;
}

/* --- searching --- */

int64_t kv_bits_find(const void *bytes, bool bit, uint64_t from, uint64_t end)
{
    const uint8_t *p = bytes;
    if (from >= end)
        return -1;
    /* Searching a 0 is searching a 1 in the inverse. Padding of the last word turns into ones then,
     * but lies at or beyond `end`. */
    uint64_t flip = bit ? 0 : ~(uint64_t)0;
    uint64_t len = (end + 7) / 8;
    uint64_t byte = from / 8;
    uint64_t word = (big_word(p + byte, len - byte) ^ flip) & (~(uint64_t)0 >> from % 8);
    while (word == 0) {
        byte += 8;
        if (byte >= len)
            return -1;
        word = big_word(p + byte, len - byte) ^ flip;
    }
    uint64_t found = byte * 8 + (unsigned)__builtin_clzll(word);
    return found < end ? (int64_t)found : -1;
}

/* --- fields --- */

uint64_t kv_bits_get(const void *bytes, uint64_t offset, unsigned width)
{
    const uint8_t *p = (const uint8_t *)bytes + offset / 8;
    KV_ASSERT(width >= 1 && width <= 64);
    unsigned skip = offset % 8;
    unsigned span = (skip + width + 7) / 8; /* bytes that the field touches, up to 9 */
    unsigned __int128 window = 0;
    for (unsigned i = 0; i < span; i++)
        window = window << 8 | p[i];
    window >>= span * 8 - skip - width;
    return (uint64_t)window & (~(uint64_t)0 >> (64 - width));
}

void kv_bits_set(void *bytes, uint64_t offset, unsigned width, uint64_t value)
{
    uint8_t *p = (uint8_t *)bytes + offset / 8;
    KV_ASSERT(width >= 1 && width <= 64);
    unsigned skip = offset % 8;
    unsigned span = (skip + width + 7) / 8;
    unsigned below = span * 8 - skip - width; /* bits of the last byte after the field */
    unsigned __int128 mask = (unsigned __int128)(~(uint64_t)0 >> (64 - width)) << below;
    unsigned __int128 bits = (unsigned __int128)value << below & mask;
    for (unsigned i = span; i-- > 0; mask >>= 8, bits >>= 8)
        p[i] = (uint8_t)((p[i] & ~(uint8_t)mask) | (uint8_t)bits);
}

/* --- combining --- */

/* The first `len` bytes of a source from `at` on: how many of them it has. */
static size_t source_part(const struct kv_slice *s, size_t at, size_t len, const uint8_t **p)
{
    if (at >= s->len)
        return 0;
    *p = (const uint8_t *)s->ptr + at;
    return KV_MIN(len, s->len - at);
}

#define COMBINE_BYTES(out, in, len, expression)                                                    \
    do {                                                                                           \
        size_t i_ = 0;                                                                             \
        for (; i_ + 8 <= (len); i_ += 8) {                                                         \
            uint64_t a = word_at((out) + i_), b = word_at((in) + i_);                              \
            a = (expression);                                                                      \
            memcpy((out) + i_, &a, sizeof(a));                                                     \
        }                                                                                          \
        for (; i_ < (len); i_++) {                                                                 \
            uint64_t a = (out)[i_], b = (in)[i_];                                                  \
            (out)[i_] = (uint8_t)(expression);                                                     \
        }                                                                                          \
    } while (0)

/* Combines source s into the block: and, or, xor. */
static void block_step(enum kv_bits_op op, uint8_t *out, size_t at, size_t len,
                       const struct kv_slice *s)
{
    const uint8_t *in = NULL;
    size_t part = source_part(s, at, len, &in);
    switch (op) {
    case KV_BITS_AND:
        COMBINE_BYTES(out, in, part, a & b);
        memset(out + part, 0, len - part);
        break;
    case KV_BITS_OR:
        COMBINE_BYTES(out, in, part, a | b);
        break;
    case KV_BITS_XOR:
        COMBINE_BYTES(out, in, part, a ^ b);
        break;
    default:
        KV_UNREACHABLE();
    }
}

static void block_load(uint8_t *out, size_t at, size_t len, const struct kv_slice *s)
{
    const uint8_t *in = NULL;
    size_t part = source_part(s, at, len, &in);
    if (part > 0)
        memcpy(out, in, part);
    memset(out + part, 0, len - part);
}

/* The block of the union of all sources but the first. */
static void block_others(uint8_t *out, size_t at, size_t len, const struct kv_slice *sources,
                         size_t count)
{
    memset(out, 0, len);
    for (size_t i = 1; i < count; i++)
        block_step(KV_BITS_OR, out, at, len, &sources[i]);
}

/* Bits in exactly one source: those seen once without those seen again. */
static void block_one(uint8_t *out, size_t at, size_t len, const struct kv_slice *sources,
                      size_t count)
{
    uint8_t again[BLOCK_BYTES], both[BLOCK_BYTES];
    memset(again, 0, len);
    block_load(out, at, len, &sources[0]);
    for (size_t i = 1; i < count; i++) {
        block_load(both, at, len, &sources[i]);
        COMBINE_BYTES(both, out, len, a & b);
        COMBINE_BYTES(again, both, len, a | b);
        block_step(KV_BITS_OR, out, at, len, &sources[i]);
    }
    COMBINE_BYTES(out, again, len, a & ~b);
}

static void combine_block(enum kv_bits_op op, const struct kv_slice *sources, size_t count,
                          uint8_t *out, size_t at, size_t len)
{
    uint8_t others[BLOCK_BYTES];
    KV_DASSERT(len <= BLOCK_BYTES);
    if (op == KV_BITS_ONE) {
        block_one(out, at, len, sources, count);
        return;
    }
    block_load(out, at, len, &sources[0]);
    switch (op) {
    case KV_BITS_NOT:
        COMBINE_BYTES(out, out, len, ~(a & b)); /* a and b are the same word */
        break;
    case KV_BITS_DIFF:
        block_others(others, at, len, sources, count);
        COMBINE_BYTES(out, others, len, a & ~b);
        break;
    case KV_BITS_DIFF1:
        block_others(others, at, len, sources, count);
        COMBINE_BYTES(out, others, len, ~a & b);
        break;
    case KV_BITS_ANDOR:
        block_others(others, at, len, sources, count);
        COMBINE_BYTES(out, others, len, a & b);
        break;
    default:
        for (size_t i = 1; i < count; i++)
            block_step(op, out, at, len, &sources[i]);
    }
}

void kv_bits_combine(enum kv_bits_op op, const struct kv_slice *sources, size_t source_count,
                     void *out, size_t len)
{
    KV_ASSERT(source_count >= 1);
    KV_ASSERT(op != KV_BITS_NOT || source_count == 1);
    for (size_t at = 0; at < len; at += BLOCK_BYTES)
        combine_block(op, sources, source_count, (uint8_t *)out + at, at,
                      KV_MIN(len - at, BLOCK_BYTES));
}
