/* base/crc64.h against a sum worked out bit by bit. */
#include "base/crc64.h"
#include "unit.h"
#include <inttypes.h>
#include <string.h>

static uint64_t naive(uint64_t crc, const uint8_t *bytes, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ UINT64_C(0x95ac9329ac4bc9b5) : crc >> 1;
    }
    return crc;
}

START_TEST(the_check_value_is_right)
{
    ck_assert_uint_eq(kv_crc64(0, "123456789", 9), UINT64_C(0xe9c6d914c4b8d9ca));
    ck_assert_uint_eq(kv_crc64(0, "", 0), 0);
}
END_TEST

START_TEST(every_length_and_offset_gives_the_naive_sum)
{
    static uint8_t bytes[1100];
    struct kv_random r;
    kv_random_init(&r, unit_seed("crc64"));
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)kv_random_next(&r);
    for (size_t len = 0; len < 1024; len++) {
        size_t at = len % 17;
        uint64_t start = len % 3 == 0 ? 0 : kv_random_next(&r);
        ck_assert_uint_eq(kv_crc64(start, bytes + at, len), naive(start, bytes + at, len));
    }
}
END_TEST

/* Every way that the processor has, and what kv_crc64 chose. */
static void each_way_gives(uint64_t start, const uint8_t *bytes, size_t len, uint64_t sum)
{
    ck_assert_uint_eq(kv_crc64(start, bytes, len), sum);
    for (unsigned way = 0; way < KV_CRC64_WAY_COUNT; way++) {
        uint64_t found;
        if (kv_crc64_by(way, start, bytes, len, &found))
            ck_assert_msg(found == sum, "way %u, %zu bytes: %" PRIx64 " for %" PRIx64, way, len,
                          found, sum);
    }
}

START_TEST(all_ways_give_the_naive_sum)
{
    static uint8_t bytes[1600];
    struct kv_random r;
    kv_random_init(&r, unit_seed("ways"));
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)kv_random_next(&r);
    for (size_t at = 0; at < 32; at++) {
        uint64_t start = at % 4 == 0 ? 0 : kv_random_next(&r), sum = start;
        for (size_t len = 0; len < sizeof(bytes) - 32; len++) {
            if (len <= 300 || (len + at) % 11 == 0)
                each_way_gives(start, bytes + at, len, sum);
            sum = naive(sum, bytes + at + len, 1);
        }
    }
}
END_TEST

START_TEST(tables_are_there_on_every_processor)
{
    uint64_t sum;
    ck_assert(kv_crc64_by(KV_CRC64_TABLES, 0, "123456789", 9, &sum));
    ck_assert_uint_eq(sum, UINT64_C(0xe9c6d914c4b8d9ca));
}
END_TEST

START_TEST(a_sum_goes_on_where_it_was_left)
{
    static uint8_t bytes[4096];
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    uint64_t whole = kv_crc64(0, bytes, sizeof(bytes));
    for (size_t cut = 0; cut < sizeof(bytes); cut += 37)
        ck_assert_uint_eq(kv_crc64(kv_crc64(0, bytes, cut), bytes + cut, sizeof(bytes) - cut),
                          whole);
}
END_TEST

START_TEST(sums_of_parts_combine)
{
    static uint8_t bytes[5000];
    struct kv_random r;
    kv_random_init(&r, unit_seed("combine"));
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (uint8_t)kv_random_next(&r);
    uint64_t whole = kv_crc64(0, bytes, sizeof(bytes));
    for (size_t cut = 0; cut <= sizeof(bytes); cut += 1 + cut / 7) {
        uint64_t first = kv_crc64(0, bytes, cut);
        uint64_t second = kv_crc64(0, bytes + cut, sizeof(bytes) - cut);
        ck_assert_uint_eq(kv_crc64_combine(first, second, sizeof(bytes) - cut), whole);
    }
}
END_TEST

START_TEST(a_changed_byte_is_corrected_in_the_sum)
{
    uint8_t bytes[300] = {1, 2, 3}, difference[10] = {0};
    uint64_t sum = kv_crc64(0, bytes, sizeof(bytes));
    difference[8] = 7 ^ bytes[8];
    bytes[8] = 7;
    uint64_t changed = sum ^ kv_crc64_combine(kv_crc64(0, difference, 10), 0, sizeof(bytes) - 10);
    ck_assert_uint_eq(changed, kv_crc64(0, bytes, sizeof(bytes)));
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "crc64");
    unit_add(&u, the_check_value_is_right);
    unit_add(&u, every_length_and_offset_gives_the_naive_sum);
    unit_add(&u, all_ways_give_the_naive_sum);
    unit_add(&u, tables_are_there_on_every_processor);
    unit_add(&u, a_sum_goes_on_where_it_was_left);
    unit_add(&u, sums_of_parts_combine);
    unit_add(&u, a_changed_byte_is_corrected_in_the_sum);
    return unit_run(&u);
}
