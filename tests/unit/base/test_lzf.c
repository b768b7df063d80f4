/* base/lzf.h against liblzf, in both directions. */
#include "base/assert.h"
#include "base/lzf.h"
#include "base/slice.h"
#include "unit.h"
#include <liblzf/lzf.h>

#define LARGE (200 * 1000)
#define GUARD 40u /* bytes behind a room that nobody may touch */

static uint8_t source[LARGE], packed[LARGE + LARGE / 32 + GUARD], unpacked[LARGE + GUARD];

/* Bytes of a kind: random ones of an alphabet, with copies of what came before in between. */
static void make_bytes(struct kv_random *r, uint8_t *bytes, size_t len)
{
    unsigned alphabet = 1u << kv_random_below(r, 9);
    unsigned copies = (unsigned)kv_random_below(r, 3) * 20;
    for (size_t i = 0; i < len;) {
        if (i > 0 && kv_random_below(r, 100) < copies) {
            size_t distance = 1 + kv_random_below(r, KV_MIN(i, (size_t)9000));
            size_t run = 1 + kv_random_below(r, kv_random_below(r, 50) == 0 ? 1200 : 20);
            for (; run > 0 && i < len; run--, i++)
                bytes[i] = bytes[i - distance];
        } else {
            bytes[i++] = (uint8_t)kv_random_below(r, alphabet);
        }
    }
}

/* Packs into exactly `room` bytes, with a guard behind them. */
static size_t pack_guarded(size_t len, size_t room)
{
    memset(packed + room, 0xa5, GUARD);
    size_t got = kv_lzf_pack(source, len, packed, room);
    for (size_t i = 0; i < GUARD; i++)
        ck_assert_uint_eq(packed[room + i], 0xa5);
    ck_assert_uint_le(got, room);
    return got;
}

static bool unpack_guarded(const void *from, size_t packed_len, size_t len)
{
    memset(unpacked + len, 0xa5, GUARD);
    bool good = kv_lzf_unpack(from, packed_len, unpacked, len);
    for (size_t i = 0; i < GUARD; i++)
        ck_assert_uint_eq(unpacked[len + i], 0xa5);
    return good;
}

static void check_round_trip(size_t len)
{
    size_t worst = len + (len + 31) / 32;
    size_t got = pack_guarded(len, worst);
    if (len < 8) {
        ck_assert_uint_eq(got, 0);
        return;
    }
    ck_assert_uint_gt(got, 0);
    memset(unpacked, 0, len);
    ck_assert_uint_eq(lzf_decompress(packed, (unsigned)got, unpacked, (unsigned)len), len);
    ck_assert_int_eq(memcmp(unpacked, source, len), 0);
    memset(unpacked, 0, len);
    ck_assert(unpack_guarded(packed, got, len));
    ck_assert_int_eq(memcmp(unpacked, source, len), 0);
    ck_assert(!unpack_guarded(packed, got, len - 1));
    ck_assert(!unpack_guarded(packed, got, len + 1));
    ck_assert(!unpack_guarded(packed, got - 1, len));
    /* What it took is enough room; a byte less is not. */
    ck_assert_uint_eq(pack_guarded(len, got), got);
    ck_assert_uint_eq(pack_guarded(len, got - 1), 0);
}

START_TEST(every_length_comes_back)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("lengths"));
    for (size_t len = 0; len < 700; len++) {
        make_bytes(&r, source, len);
        check_round_trip(len);
    }
}
END_TEST

START_TEST(large_inputs_come_back)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("large"));
    for (int round = 0; round < UNIT_ROUNDS(30); round++) {
        size_t len = 1000 + kv_random_below(&r, LARGE - 1000);
        make_bytes(&r, source, len);
        check_round_trip(len);
    }
}
END_TEST

START_TEST(runs_of_one_byte_of_any_length_come_back)
{
    memset(source, 'x', sizeof(source));
    for (size_t len = 8; len < 1200; len++)
        check_round_trip(len);
    ck_assert_uint_le(pack_guarded(4000, sizeof(packed) - GUARD), 60);
}
END_TEST

START_TEST(matches_up_to_the_largest_distance_are_found)
{
    for (size_t distance = 8190; distance <= 8194; distance++) {
        struct kv_random r;
        kv_random_init(&r, 7);
        for (size_t i = 0; i < distance + 500; i++)
            source[i] = (uint8_t)kv_random_next(&r);
        memcpy(source + distance, source, 500);
        size_t got = pack_guarded(distance + 500, sizeof(packed) - GUARD);
        check_round_trip(distance + 500);
        if (distance <= 8192)
            ck_assert_uint_lt(got, distance + distance / 32 + 300);
        else
            ck_assert_uint_gt(got, distance + 500);
    }
}
END_TEST

START_TEST(what_the_library_packed_is_unpacked)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("library"));
    for (int round = 0; round < UNIT_ROUNDS(3000); round++) {
        size_t len = 1 + kv_random_below(&r, round % 50 == 0 ? LARGE : 600);
        make_bytes(&r, source, len);
        unsigned got = lzf_compress(source, (unsigned)len, packed, (unsigned)sizeof(packed));
        if (got == 0)
            continue;
        ck_assert(unpack_guarded(packed, got, len));
        ck_assert_int_eq(memcmp(unpacked, source, len), 0);
    }
}
END_TEST

START_TEST(damaged_bytes_get_the_librarys_verdict)
{
    static uint8_t theirs[2000];
    struct kv_random r;
    kv_random_init(&r, unit_seed("damaged"));
    for (int round = 0; round < UNIT_ROUNDS(20000); round++) {
        size_t len = 8 + kv_random_below(&r, 600);
        make_bytes(&r, source, len);
        size_t got = kv_lzf_pack(source, len, packed, sizeof(packed));
        for (size_t changes = 1 + kv_random_below(&r, 3); changes > 0; changes--)
            packed[kv_random_below(&r, got)] = (uint8_t)kv_random_next(&r);
        if (kv_random_below(&r, 4) == 0)
            got -= kv_random_below(&r, got);
        bool good = unpack_guarded(packed, got, len);
        unsigned theirs_len = lzf_decompress(packed, (unsigned)got, theirs, (unsigned)len);
        ck_assert_int_eq(good, theirs_len == len);
        if (good)
            ck_assert_int_eq(memcmp(unpacked, theirs, len), 0);
    }
}
END_TEST

START_TEST(no_room_is_no_result)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("room"));
    for (int round = 0; round < UNIT_ROUNDS(5000); round++) {
        size_t len = 8 + kv_random_below(&r, 400);
        make_bytes(&r, source, len);
        size_t room = kv_random_below(&r, len);
        size_t got = pack_guarded(len, room);
        ck_assert(got == 0 || unpack_guarded(packed, got, len));
    }
}
END_TEST

START_TEST(sizes_are_near_the_librarys)
{
    size_t ours = 0, theirs = 0;
    struct kv_random r;
    kv_random_init(&r, 11);
    for (int i = 0; i < 300; i++) {
        char *text = (char *)source;
        size_t len = 0;
        for (int object = 0; object < 10; object++)
            len += (size_t)snprintf(
                text + len, sizeof(source) - len,
                "{\"id\": %u, \"name\": \"user%u\", \"active\": %s, \"country\": \"USA\"}, ",
                (unsigned)kv_random_below(&r, 1000000), (unsigned)kv_random_below(&r, 300),
                kv_random_below(&r, 2) == 0 ? "true" : "false");
        ours += kv_lzf_pack(source, len, packed, len);
        theirs += lzf_compress(source, (unsigned)len, packed, (unsigned)len);
    }
    ck_assert_uint_le(ours * 100, theirs * 107);
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "lzf");
    unit_add(&u, every_length_comes_back);
    unit_add(&u, large_inputs_come_back);
    unit_add(&u, runs_of_one_byte_of_any_length_come_back);
    unit_add(&u, matches_up_to_the_largest_distance_are_found);
    unit_add(&u, what_the_library_packed_is_unpacked);
    unit_add(&u, damaged_bytes_get_the_librarys_verdict);
    unit_add(&u, no_room_is_no_result);
    unit_add(&u, sizes_are_near_the_librarys);
    return unit_run(&u);
}
