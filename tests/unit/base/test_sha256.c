/* base/sha256.h against the vectors of FIPS 180-4 and others that were computed by coreutils'
 * sha256sum. */
#include "base/assert.h"
#include "base/sha256.h"
#include "unit.h"
#include <string.h>

static void check(struct kv_slice message, const char *want)
{
    uint8_t digest[KV_SHA256_BYTES], again[KV_SHA256_BYTES];
    char hex[KV_SHA256_HEX + 1] = {0};
    kv_sha256(message, digest);
    kv_sha256_print(digest, hex);
    ck_assert_str_eq(hex, want);
    ck_assert(kv_sha256_parse(kv_slice(hex, KV_SHA256_HEX), again));
    ck_assert(kv_sha256_equal(digest, again));
}

START_TEST(vectors_of_the_standard)
{
    static char million[1000000];
    memset(million, 'a', sizeof(million));
    check(KV_SLICE("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    check(KV_SLICE("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
          "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    check(KV_SLICE(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    check(kv_slice(million, sizeof(million)),
          "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}
END_TEST

/* Lengths around the end of a block, where the padding takes one block or two. */
START_TEST(lengths_around_a_block)
{
    static const struct {
        size_t len;
        const char *want;
    } cases[] = {
        {1, "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"},
        {54, "45f316e10b2c99abf374b22bda893cf3300d77263f1e272349ed414680522952"},
        {55, "d5e285683cd4efc02d021a5c62014694958901005d6f71e89e0989fac77e4072"},
        {56, "04c26261370ee7541549d16dee320c723e3fd14671e66a099afe0a377c16888e"},
        {57, "ae14a2563ccf969d99aca69ce6bb74981f734bbf9f655f73b8f06db68cab5217"},
        {63, "75220b47218278e656f2013bb8f0c455a25eaf01e86c64924e9d48d89776d6f2"},
        {64, "7ce100971f64e7001e8fe5a51973ecdfe1ced42befe7ee8d5fd6219506b5393c"},
        {65, "9537c5fdf120482f7d58d25e9ed583f52c02b4e304ea814db1633ad565aed7e9"},
        {119, "000b48d4edf0fa7bee3c6236ecd2785baa5db4eeb8bb54341b029e0d9fa5fb0c"},
        {120, "13f05a0b594787f5ecd315edc96141bd3243203d1b7d4f0836f37308b276ba98"},
        {127, "70156a14adbabf98cff3a71c7084b417abf057a8efd27329ca36b7202c87d81f"},
        {128, "24da1b81d0b16df6428eee73c69fcb2a93c76bc6df706f0c6670fe6bfe800464"},
        {129, "0ec9eb33e74510bcdd1f2ea55206e82f21649c5c2becbf2b433eb475b34c01bd"},
    };
    char text[200];
    memset(text, 'x', sizeof(text));
    for (size_t i = 0; i < KV_ARRAY_LEN(cases); i++)
        check(kv_slice(text, cases[i].len), cases[i].want);
}
END_TEST

START_TEST(only_lower_case_digits_are_a_digest)
{
    char hex[KV_SHA256_HEX];
    uint8_t digest[KV_SHA256_BYTES];
    memset(hex, 'a', sizeof(hex));
    ck_assert(kv_sha256_parse(kv_slice(hex, sizeof(hex)), digest));
    ck_assert_uint_eq(digest[0], 0xaa);
    ck_assert(!kv_sha256_parse(kv_slice(hex, sizeof(hex) - 1), digest));
    for (size_t i = 0; i < sizeof(hex); i++) {
        for (const char *bad = "Ag/:`\n"; *bad != '\0'; bad++) {
            hex[i] = *bad;
            ck_assert(!kv_sha256_parse(kv_slice(hex, sizeof(hex)), digest));
        }
        hex[i] = 'a';
    }
}
END_TEST

START_TEST(every_bit_makes_a_difference)
{
    uint8_t a[KV_SHA256_BYTES] = {0}, b[KV_SHA256_BYTES] = {0};
    ck_assert(kv_sha256_equal(a, b));
    for (int i = 0; i < KV_SHA256_BYTES * 8; i++) {
        b[i / 8] ^= (uint8_t)(1 << (i % 8));
        ck_assert(!kv_sha256_equal(a, b));
        b[i / 8] ^= (uint8_t)(1 << (i % 8));
    }
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "sha256");
    unit_add(&u, vectors_of_the_standard);
    unit_add(&u, lengths_around_a_block);
    unit_add(&u, only_lower_case_digits_are_a_digest);
    unit_add(&u, every_bit_makes_a_difference);
    return unit_run(&u);
}
