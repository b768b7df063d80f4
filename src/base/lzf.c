/* LZF: a greedy packer and an unpacker.
 *
 * Packing. A table has, for each hash of four bytes, the lowest 16 bits of the place where such
 * were seen last. What it says is only a hint: the distance that follows from it is at most 65535
 * and never reaches before the start (an entry that was not set is place 0), so the bytes there can
 * be looked at, and they decide. The table has about as many entries as there are bytes, 2^13 at
 * most: clearing it costs little for the short strings that most are, and all of it stays in the
 * first cache. Matches are of four bytes or more; those of three, which the format has, save a byte
 * at most, and mostly nothing since they end a run of literals.
 *
 * Where nothing was found for a while, steps get longer: by one byte each 2^PATIENCE tries. What
 * cannot be packed is so passed over quickly, and matches that begin between two steps are found
 * late and extended to the front.
 *
 * Measured beside liblzf 3.6, on the machine of docs/measurements.md: 0.2 to 0.5 of its time for
 * strings of 30 to 1,000 bytes (1.0 where most of it are short matches), 0.03 to 0.1 for random
 * bytes, 0.6 to 0.8 for text of more than 4 KB; 2 % fewer to 4 % more bytes, 6 % more for JSON full
 * of fractions. Its table has 2^16 pointers, 512 KiB. Unpacking takes 0.2 to 0.6 of its time.
 *
 * Unpacking copies in pieces of 16 or 32 bytes as long as both ends are that far away. */
#include "base/lzf.h"
#include "base/assert.h"
#include "base/slice.h"
#include <stdint.h>

#define LITERALS_MAX 32u
#define DISTANCE_MAX 8192u
#define MATCH_MIN 4u /* that are looked for */
#define MATCH_MAX 264u
#define LENGTH_WIDE 7u /* in a match's first byte: one more byte follows */
#define TABLE_BITS_MIN 8u
#define TABLE_BITS_MAX 13u
#define PATIENCE 4u
#define PACK_MIN 8u /* less is never worth it */

/* --- packing --- */

struct packer {
    const uint8_t *start, *end; /* of the bytes */
    const uint8_t *anchor;      /* all before it is in the output */
    uint8_t *out, *out_end;     /* place of the next item; end of the room */
};

KV_INLINE unsigned hash_of(uint32_t four, unsigned shift)
{
    return (four * UINT32_C(2654435761)) >> shift;
}

/* Literals from the anchor up to `to`. */
static bool put_literals(struct packer *p, const uint8_t *to)
{
    const uint8_t *from = p->anchor;
    uint8_t *out = p->out;
    size_t left = (size_t)(to - from);
    if (left + (left + LITERALS_MAX - 1) / LITERALS_MAX > (size_t)(p->out_end - out))
        return false;
    while (left > 0) {
        size_t run = KV_MIN(left, LITERALS_MAX);
        *out++ = (uint8_t)(run - 1);
        if (KV_LIKELY(p->end - from >= LITERALS_MAX && p->out_end - out >= LITERALS_MAX))
            memcpy(out, from, LITERALS_MAX); /* one move; the next item overwrites the rest */
        else
            memcpy(out, from, run);
        out += run;
        from += run;
        left -= run;
    }
    p->anchor = to;
    p->out = out;
    return true;
}

/* A match of `len` bytes from the anchor on, as one or more items. */
static bool put_match(struct packer *p, size_t len, size_t distance)
{
    size_t back = distance - 1;
    KV_DASSERT(len >= MATCH_MIN);
    KV_DASSERT(back < DISTANCE_MAX);
    p->anchor += len;
    while (len > 0) {
        size_t part = KV_MIN(len, MATCH_MAX);
        if (len - part > 0 && len - part < MATCH_MIN)
            part -= MATCH_MIN; /* the rest has to be a match as well */
        size_t code = part - 2;
        if (p->out_end - p->out < 2 + (code >= LENGTH_WIDE))
            return false;
        if (code < LENGTH_WIDE) {
            *p->out++ = (uint8_t)(code << 5 | back >> 8);
        } else {
            *p->out++ = (uint8_t)(LENGTH_WIDE << 5 | back >> 8);
            *p->out++ = (uint8_t)(code - LENGTH_WIDE);
        }
        *p->out++ = (uint8_t)back;
        len -= part;
    }
    return true;
}

/* How many bytes at `a` and before it at `b` are the same, up to the end. */
KV_INLINE size_t same_bytes(const uint8_t *a, const uint8_t *b, const uint8_t *end)
{
    const uint8_t *from = a;
    for (; end - a >= 8; a += 8, b += 8) {
        uint64_t difference = kv_load_word(a) ^ kv_load_word(b);
        if (difference != 0)
            return (size_t)(a - from) + (size_t)__builtin_ctzll(difference) / 8;
    }
    while (a < end && *a == *b)
        a++, b++;
    return (size_t)(a - from);
}

static unsigned table_bits(size_t len)
{
    unsigned bits = TABLE_BITS_MIN;
    while (bits < TABLE_BITS_MAX && (size_t)1 << bits < len)
        bits++;
    return bits;
}

/* A match of at least MATCH_MIN bytes at `at`: puts what came before it and the whole match. False:
 * no room. */
KV_INLINE bool put_found(struct packer *p, const uint8_t *at, size_t distance)
{
    const uint8_t *behind = at + MATCH_MIN;
    behind += same_bytes(behind, behind - distance, p->end);
    while (at > p->anchor && at - distance > p->start && at[-1] == at[-1 - (ptrdiff_t)distance])
        at--;
    if (at > p->anchor && !put_literals(p, at))
        return false;
    return put_match(p, (size_t)(behind - at), distance);
}

size_t kv_lzf_pack(const void *bytes, size_t len, void *out, size_t room)
{
    uint16_t table[1 << TABLE_BITS_MAX];
    if (len < PACK_MIN)
        return 0;
    unsigned bits = table_bits(len), shift = 32 - bits;
    memset(table, 0, sizeof(table[0]) << bits);
    struct packer p = {bytes, (const uint8_t *)bytes + len, bytes, out, (uint8_t *)out + room};
    const uint8_t *last = p.end - MATCH_MIN; /* place of the last four bytes */
    const uint8_t *at = p.start + 1;
    for (unsigned tries = 1u << PATIENCE; at <= last;) {
        uint32_t four = kv_load_half(at);
        uint16_t *entry = &table[hash_of(four, shift)];
        uint16_t place = (uint16_t)(at - p.start);
        size_t distance = (uint16_t)(place - *entry);
        *entry = place;
        if (kv_load_half(at - distance) != four || distance - 1 >= DISTANCE_MAX) {
            at += tries++ >> PATIENCE;
            continue;
        }
        if (!put_found(&p, at, distance))
            return 0;
        at = p.anchor;
        tries = 1u << PATIENCE;
        if (at <= last) {
            /* Two places of what was jumped over, for matches that begin at its end. */
            table[hash_of(kv_load_half(at - 2), shift)] = (uint16_t)(at - 2 - p.start);
            table[hash_of(kv_load_half(at - 1), shift)] = (uint16_t)(at - 1 - p.start);
        }
    }
    return put_literals(&p, p.end) ? (size_t)(p.out - (uint8_t *)out) : 0;
}

/* --- unpacking --- */

#define PIECE 16u

/* `len` bytes that lie `distance` before `out`; there is room for them, up to `end`. */
KV_INLINE void copy_match(uint8_t *out, size_t distance, size_t len, const uint8_t *end)
{
    if (KV_LIKELY(distance >= PIECE && (size_t)(end - out) >= len + PIECE)) {
        for (size_t i = 0; i < len; i += PIECE)
            memcpy(out + i, out + i - distance, PIECE);
        return;
    }
    /* What was copied can be copied again, so pieces double where the match reaches into itself. */
    const uint8_t *from = out - distance;
    while (len > 0) {
        size_t part = KV_MIN(len, (size_t)(out - from));
        memcpy(out, from, part);
        out += part;
        len -= part;
    }
}

bool kv_lzf_unpack(const void *packed, size_t packed_len, void *out, size_t len)
{
    const uint8_t *in = packed, *in_end = in + packed_len;
    uint8_t *at = out, *end = at + len;
    while (in < in_end) {
        size_t head = *in++;
        if (head < LITERALS_MAX) {
            size_t run = head + 1;
            if (run > (size_t)(in_end - in) || run > (size_t)(end - at))
                return false;
            if (KV_LIKELY(in_end - in >= LITERALS_MAX && end - at >= LITERALS_MAX))
                memcpy(at, in, LITERALS_MAX);
            else
                memcpy(at, in, run);
            in += run;
            at += run;
            continue;
        }
        size_t match = (head >> 5) + 2;
        if (match == LENGTH_WIDE + 2) {
            if (in == in_end)
                return false;
            match += *in++;
        }
        if (in == in_end)
            return false;
        size_t distance = ((head & 31) << 8 | *in++) + 1;
        if (distance > (size_t)(at - (uint8_t *)out) || match > (size_t)(end - at))
            return false;
        copy_match(at, distance, match, end);
        at += match;
    }
    return at == end;
}
