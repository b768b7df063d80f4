/* SipHash-1-3: the keyed hash of the keyspace.
 *
 * From the paper (Aumasson and Bernstein, "SipHash: a fast short-input PRF", 2012): four 64-bit
 * words of state, mixed by additions, rotations and exclusive-ors; each 8-byte word of input is
 * compressed with one round, the last word carries the length in its top byte, and three rounds
 * finish. 1-3 instead of the paper's 2-4 halves the cost of a short key; its known weaknesses need
 * far more than the collisions that a client could ever observe through a reply time.
 *
 * The key is drawn per start, so nobody outside can prepare keys that fall into one bucket.
 *
 * The case-folding form hashes what the plain form would hash after ASCII lower-casing, eight bytes
 * at a time: a byte from 'A' to 'Z' is recognised by two additions whose carries stay within the
 * byte, and gets bit 5 set. Both forms are one body, specialised by the constant `fold`.
 *
 * Input is read as little-endian words, which all supported machines are. The last word is put
 * together by two overlapping loads or byte by byte, never by reading past the end: keys lie in
 * blocks of exactly their size.
 *
 * Threads: any; pure functions.
 *
 * Rejected: xxhash and wyhash for the keyspace. They are faster on long keys, but published seeds
 * recoveries make their collisions preparable; on 16-byte keys the difference is 3 ns. */
#include "base/hash.h"

#include "base/assert.h"
#include <string.h>

struct sip {
    uint64_t v0, v1, v2, v3;
};

KV_INLINE uint64_t rotate_left(uint64_t x, unsigned n)
{
    return (x << n) | (x >> (64 - n));
}

KV_INLINE void sip_round(struct sip *s)
{
    s->v0 += s->v1;
    s->v2 += s->v3;
    s->v1 = rotate_left(s->v1, 13) ^ s->v0;
    s->v3 = rotate_left(s->v3, 16) ^ s->v2;
    s->v0 = rotate_left(s->v0, 32);
    s->v2 += s->v1;
    s->v0 += s->v3;
    s->v1 = rotate_left(s->v1, 17) ^ s->v2;
    s->v3 = rotate_left(s->v3, 21) ^ s->v0;
    s->v2 = rotate_left(s->v2, 32);
}

KV_INLINE void sip_compress(struct sip *s, uint64_t word)
{
    s->v3 ^= word;
    sip_round(s);
    s->v0 ^= word;
}

/* Sets bit 5 of every byte that is 'A' to 'Z'. */
KV_INLINE uint64_t fold_word(uint64_t word)
{
    const uint64_t ones = 0x0101010101010101u;
    uint64_t low7 = word & (0x7f * ones);
    uint64_t from_a = low7 + (0x80 - 'A') * ones;      /* bit 7: the low bits are >= 'A' */
    uint64_t above_z = low7 + (0x80 - 'Z' - 1) * ones; /* bit 7: the low bits are > 'Z' */
    uint64_t upper = from_a & ~above_z & ~word & (0x80 * ones);
    return word | (upper >> 2);
}

KV_INLINE uint64_t load_64(const unsigned char *p)
{
    uint64_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

KV_INLINE uint64_t load_32(const unsigned char *p)
{
    uint32_t word;
    memcpy(&word, p, sizeof(word));
    return word;
}

/* The last 0 to 7 bytes as the low bytes of a word. */
KV_INLINE uint64_t load_tail(const unsigned char *p, size_t len)
{
    KV_DASSERT(len < 8);
    if (len >= 4)
        return load_32(p) | load_32(p + len - 4) << (8 * (len - 4));
    if (len == 0)
        return 0;
    /* 1 to 3 bytes: first, middle and last cover them all. */
    return (uint64_t)p[0] | (uint64_t)p[len >> 1] << (8 * (len >> 1)) |
           (uint64_t)p[len - 1] << (8 * (len - 1));
}

KV_INLINE uint64_t sip_hash(const struct kv_hash_key *key, const void *bytes, size_t len, bool fold)
{
    const unsigned char *p = bytes;
    struct sip s = {key->k0 ^ 0x736f6d6570736575u, key->k1 ^ 0x646f72616e646f6du,
                    key->k0 ^ 0x6c7967656e657261u, key->k1 ^ 0x7465646279746573u};

    KV_DASSERT(bytes != NULL || len == 0);
    for (size_t left = len; left >= 8; left -= 8, p += 8) {
        uint64_t word = load_64(p);
        sip_compress(&s, fold ? fold_word(word) : word);
    }
    uint64_t tail = load_tail(p, len & 7);
    sip_compress(&s, (fold ? fold_word(tail) : tail) | (uint64_t)len << 56);
    s.v2 ^= 0xff;
    sip_round(&s);
    sip_round(&s);
    sip_round(&s);
    return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}

uint64_t kv_hash_bytes(const struct kv_hash_key *key, const void *bytes, size_t len)
{
    return sip_hash(key, bytes, len, false);
}

uint64_t kv_hash_nocase(const struct kv_hash_key *key, const void *bytes, size_t len)
{
    return sip_hash(key, bytes, len, true);
}
