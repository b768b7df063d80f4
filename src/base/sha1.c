/* SHA-1 as FIPS 180-4 describes it: blocks of 64 bytes, 80 rounds each, over five words.
 *
 * The message is read as big-endian words. After it come a bit that is set, zeros, and its length
 * in bits as the last eight bytes of the last block; that tail lies in a buffer of two blocks,
 * since it may need either. The schedule of 80 words is kept in a ring of 16.
 *
 * Rejected: a library. The one user hashes the text of a script once when it is loaded.
 */
#include "base/sha1.h"
#include <string.h>

static uint32_t rotate(uint32_t x, unsigned bits)
{
    return x << bits | x >> (32 - bits);
}

/* Word t of the schedule; those before it lie in the ring. */
static uint32_t schedule(uint32_t w[16], unsigned t)
{
    if (t >= 16)
        w[t & 15] = rotate(w[(t - 3) & 15] ^ w[(t - 8) & 15] ^ w[(t - 14) & 15] ^ w[t & 15], 1);
    return w[t & 15];
}

static uint32_t mix(unsigned t, uint32_t b, uint32_t c, uint32_t d)
{
    if (t < 20)
        return ((b & c) | (~b & d)) + 0x5a827999;
    if (t < 40)
        return (b ^ c ^ d) + 0x6ed9eba1;
    if (t < 60)
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void add_block(uint32_t state[5], const uint8_t *block)
{
    uint32_t w[16], s[5];
    for (int i = 0; i < 16; i++, block += 4)
        w[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 |
               block[3];
    memcpy(s, state, sizeof(s));
    for (unsigned t = 0; t < 80; t++) {
        uint32_t next = rotate(s[0], 5) + mix(t, s[1], s[2], s[3]) + s[4] + schedule(w, t);
        s[4] = s[3];
        s[3] = s[2];
        s[2] = rotate(s[1], 30);
        s[1] = s[0];
        s[0] = next;
    }
    for (int i = 0; i < 5; i++)
        state[i] += s[i];
}

void kv_sha1_hex(const void *bytes, size_t len, char out[KV_SHA1_HEX])
{
    static const char digits[] = "0123456789abcdef";
    uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    const uint8_t *p = bytes;
    uint8_t tail[128] = {0};
    size_t whole = len / 64, rest = len % 64;
    for (size_t i = 0; i < whole; i++)
        add_block(state, p + i * 64);
    if (rest > 0)
        memcpy(tail, p + whole * 64, rest);
    tail[rest] = 0x80;
    size_t tail_len = rest < 56 ? 64 : 128;
    uint64_t bits = (uint64_t)len * 8;
    for (size_t i = 0; i < 8; i++)
        tail[tail_len - 1 - i] = (uint8_t)(bits >> (8 * i));
    for (size_t i = 0; i < tail_len; i += 64)
        add_block(state, tail + i);
    for (size_t i = 0; i < KV_SHA1_HEX; i++)
        out[i] = digits[state[i / 8] >> (28 - 4 * (i % 8)) & 15];
}
