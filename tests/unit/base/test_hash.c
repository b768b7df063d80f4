/* base/hash.h against a slow SipHash written from the paper alone: bytes are gathered one by one,
 * rounds and rotations are spelled out, and the round counts are parameters, so that the 2-4
 * variant can be checked with the paper's own example before the 1-3 variant is trusted. */
#include "base/hash.h"
#include "unit.h"
#include <string.h>

static void naive_round(uint64_t v[4])
{
    static const struct {
        int into, from, bits; /* v[into] += v[from]; rotate v[from]; v[from] ^= v[into] */
        bool half;            /* then rotate v[into] by 32 */
    } steps[] = {{0, 1, 13, true}, {2, 3, 16, false}, {0, 3, 21, false}, {2, 1, 17, true}};

    for (size_t i = 0; i < KV_ARRAY_LEN(steps); i++) {
        uint64_t *a = &v[steps[i].into], *b = &v[steps[i].from];
        *a += *b;
        *b = (*b << steps[i].bits | *b >> (64 - steps[i].bits)) ^ *a;
        if (steps[i].half)
            *a = *a << 32 | *a >> 32;
    }
}

static uint64_t naive_sip(const struct kv_hash_key *key, const uint8_t *bytes, size_t len,
                          int compress_rounds, int final_rounds)
{
    const char *constant = "somepseudorandomlygeneratedbytes";
    uint64_t v[4];

    for (int i = 0; i < 4; i++) {
        v[i] = 0;
        for (int j = 0; j < 8; j++)
            v[i] = v[i] << 8 | (uint8_t)constant[8 * i + j];
        v[i] ^= i % 2 == 0 ? key->k0 : key->k1;
    }
    for (size_t word = 0; word <= len / 8; word++) {
        uint64_t m = 0;
        for (size_t j = 0; j < 8; j++) {
            size_t at = word * 8 + j;
            uint64_t byte = at < len ? bytes[at] : j == 7 ? len & 0xff : 0;
            m |= byte << (8 * j);
        }
        v[3] ^= m;
        for (int i = 0; i < compress_rounds; i++)
            naive_round(v);
        v[0] ^= m;
    }
    v[2] ^= 0xff;
    for (int i = 0; i < final_rounds; i++)
        naive_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* Appendix A of the paper: key 00..0f, message 00..0e. */
START_TEST(the_model_gives_the_papers_example)
{
    struct kv_hash_key key = {0x0706050403020100u, 0x0f0e0d0c0b0a0908u};
    uint8_t message[15];

    for (size_t i = 0; i < sizeof(message); i++)
        message[i] = (uint8_t)i;
    ck_assert_msg(naive_sip(&key, message, sizeof(message), 2, 4) == 0xa129ca6149be45e5u,
                  "the model differs from the paper");
}
END_TEST

START_TEST(every_length_and_alignment_agrees_with_the_model)
{
    struct kv_hash_key key;
    struct kv_random r;
    uint8_t bytes[300];

    kv_random_init(&r, unit_seed("hash"));
    for (int round = 0; round < UNIT_ROUNDS(50); round++) {
        key.k0 = kv_random_next(&r);
        key.k1 = kv_random_next(&r);
        for (size_t i = 0; i < sizeof(bytes); i++)
            bytes[i] = (uint8_t)kv_random_next(&r);
        for (size_t len = 0; len <= 280; len++) {
            size_t start = kv_random_below(&r, 16);
            ck_assert(kv_hash_bytes(&key, bytes + start, len) ==
                      naive_sip(&key, bytes + start, len, 1, 3));
        }
    }
    ck_assert(kv_hash_bytes(&key, NULL, 0) == naive_sip(&key, bytes, 0, 1, 3));
}
END_TEST

/* The block ends exactly where the key ends, so AddressSanitizer sees a read beyond it. */
START_TEST(nothing_is_read_behind_the_key)
{
    struct kv_hash_key key = {1, 2};

    for (size_t len = 1; len < 40; len++) {
        char *block = malloc(len);
        ck_assert_ptr_nonnull(block);
        memset(block, 'k', len);
        uint64_t hash = kv_hash_bytes(&key, block, len);
        ck_assert(hash == kv_hash_bytes(&key, block, len));
        free(block);
    }
}
END_TEST

START_TEST(case_folding_changes_ascii_letters_only)
{
    struct kv_hash_key key = {3, 4};
    uint8_t byte[16], lower[16];

    for (int position = 0; position < 16; position++)
        for (int c = 0; c < 256; c++) {
            memset(byte, 0xc1, sizeof(byte));
            byte[position] = (uint8_t)c;
            memcpy(lower, byte, sizeof(byte));
            if (c >= 'A' && c <= 'Z')
                lower[position] = (uint8_t)(c + 32);
            for (size_t len = (size_t)position + 1; len <= 16; len++)
                ck_assert(kv_hash_nocase(&key, byte, len) == kv_hash_bytes(&key, lower, len));
        }
    ck_assert(kv_hash_nocase(&key, "GetRange", 8) == kv_hash_nocase(&key, "GETRANGE", 8));
}
END_TEST

START_TEST(keys_and_lengths_matter)
{
    struct kv_hash_key a = {1, 2}, b = {1, 3}, c = {2, 2};

    ck_assert(kv_hash_bytes(&a, "key", 3) != kv_hash_bytes(&b, "key", 3));
    ck_assert(kv_hash_bytes(&a, "key", 3) != kv_hash_bytes(&c, "key", 3));
    ck_assert(kv_hash_bytes(&a, "\0\0", 1) != kv_hash_bytes(&a, "\0\0", 2));
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "hash");
    unit_add(&u, the_model_gives_the_papers_example);
    unit_add(&u, every_length_and_alignment_agrees_with_the_model);
    unit_add(&u, nothing_is_read_behind_the_key);
    unit_add(&u, case_folding_changes_ascii_letters_only);
    unit_add(&u, keys_and_lengths_matter);
    return unit_run(&u);
}
