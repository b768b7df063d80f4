/* SHA-256 as FIPS 180-4 describes it: blocks of 64 bytes, 64 rounds each, over eight words of
 * state. The last block carries a one bit, zeros and the length in bits, big-endian.
 *
 * The constants are the first 32 bits of the fractional parts of the cube roots of the first 64
 * primes, and of the square roots of the first eight; tests compare the result with the vectors of
 * the standard.
 *
 * Rejected: libcrypto, a megabyte of dependency for these pages; instructions of the processor, for
 * a password is hashed once a connection.
 */
#include "base/sha256.h"

#include "base/assert.h"
#include <string.h>

#define BLOCK_BYTES 64
#define LENGTH_BYTES 8

static const uint32_t round_constants[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate_right(uint32_t x, unsigned bits)
{
    return x >> bits | x << (32 - bits);
}

static void add_block(uint32_t state[8], const uint8_t *block)
{
    uint32_t w[64], s[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
               (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        uint32_t small0 = rotate_right(a, 7) ^ rotate_right(a, 18) ^ a >> 3;
        uint32_t small1 = rotate_right(b, 17) ^ rotate_right(b, 19) ^ b >> 10;
        w[i] = w[i - 16] + small0 + w[i - 7] + small1;
    }
    memcpy(s, state, sizeof(s));
    for (int i = 0; i < 64; i++) {
        uint32_t big1 = rotate_right(s[4], 6) ^ rotate_right(s[4], 11) ^ rotate_right(s[4], 25);
        uint32_t choice = (s[4] & s[5]) ^ (~s[4] & s[6]);
        uint32_t first = s[7] + big1 + choice + round_constants[i] + w[i];
        uint32_t big0 = rotate_right(s[0], 2) ^ rotate_right(s[0], 13) ^ rotate_right(s[0], 22);
        uint32_t majority = (s[0] & s[1]) ^ (s[0] & s[2]) ^ (s[1] & s[2]);
        memmove(s + 1, s, 7 * sizeof(s[0]));
        s[4] += first;
        s[0] = first + big0 + majority;
    }
    for (int i = 0; i < 8; i++)
        state[i] += s[i];
}

void kv_sha256(struct kv_slice message, uint8_t digest[KV_SHA256_BYTES])
{
    uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    uint8_t last[2 * BLOCK_BYTES] = {0};
    const uint8_t *p = (const uint8_t *)message.ptr;
    size_t left = message.len;
    for (; left >= BLOCK_BYTES; left -= BLOCK_BYTES, p += BLOCK_BYTES)
        add_block(state, p);
    if (left > 0)
        memcpy(last, p, left);
    last[left] = 0x80;
    size_t total = left + 1 + LENGTH_BYTES <= BLOCK_BYTES ? BLOCK_BYTES : 2 * BLOCK_BYTES;
    uint64_t bits = (uint64_t)message.len * 8;
    for (size_t i = 0; i < LENGTH_BYTES; i++)
        last[total - 1 - i] = (uint8_t)(bits >> (8 * i));
    for (size_t at = 0; at < total; at += BLOCK_BYTES)
        add_block(state, last + at);
    for (int i = 0; i < KV_SHA256_BYTES; i++)
        digest[i] = (uint8_t)(state[i / 4] >> (24 - 8 * (i % 4)));
}

void kv_sha256_print(const uint8_t digest[KV_SHA256_BYTES], char hex[KV_SHA256_HEX])
{
    static const char digits[] = "0123456789abcdef";
    for (int i = 0; i < KV_SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
}

static int digit_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool kv_sha256_parse(struct kv_slice hex, uint8_t digest[KV_SHA256_BYTES])
{
    if (hex.len != KV_SHA256_HEX)
        return false;
    for (int i = 0; i < KV_SHA256_HEX; i++)
        if (digit_value(hex.ptr[i]) < 0)
            return false;
    for (int i = 0; i < KV_SHA256_BYTES; i++)
        digest[i] = (uint8_t)(digit_value(hex.ptr[2 * i]) << 4 | digit_value(hex.ptr[2 * i + 1]));
    return true;
}

bool kv_sha256_equal(const uint8_t a[KV_SHA256_BYTES], const uint8_t b[KV_SHA256_BYTES])
{
    unsigned different = 0;
    for (int i = 0; i < KV_SHA256_BYTES; i++)
        different |= a[i] ^ b[i];
    return different == 0;
}
