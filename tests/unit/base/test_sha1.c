/* base/sha1.h against the examples of FIPS 180 and lengths around the ends of blocks. */
#include "base/sha1.h"
#include "unit.h"
#include <string.h>

static void has_digest(const void *bytes, size_t len, const char *expected)
{
    char digest[KV_SHA1_HEX + 1];
    kv_sha1_hex(bytes, len, digest);
    digest[KV_SHA1_HEX] = '\0';
    ck_assert_str_eq(digest, expected);
}

START_TEST(the_examples_of_the_standard)
{
    has_digest("", 0, "da39a3ee5e6b4b0d3255bfef95601890afd80709");
    has_digest("abc", 3, "a9993e364706816aba3e25717850c26c9cd0d89d");
    has_digest("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 56,
               "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
}
END_TEST

START_TEST(a_million_bytes)
{
    static char bytes[1000000];
    memset(bytes, 'a', sizeof(bytes));
    has_digest(bytes, sizeof(bytes), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
}
END_TEST

START_TEST(lengths_around_the_end_of_a_block)
{
    char bytes[64];
    memset(bytes, 'x', sizeof(bytes));
    has_digest(bytes, 55, "cef734ba81a024479e09eb5a75b6ddae62e6abf1");
    has_digest(bytes, 56, "901305367c259952f4e7af8323f480d59f81335b");
    has_digest(bytes, 63, "0ddc4e0cccd9a12850deb5abb0853a4425559fec");
    has_digest(bytes, 64, "bb2fa3ee7afb9f54c6dfb5d021f14b1ffe40c163");
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "sha1");
    unit_add(&u, the_examples_of_the_standard);
    unit_add(&u, a_million_bytes);
    unit_add(&u, lengths_around_the_end_of_a_block);
    return unit_run(&u);
}
