/* value/hyperloglog.h: sparse and dense forms beside plain registers, foreign bytes, estimates. */
#include "base/number.h"
#include "base/random.h"
#include "unit.h"
#include "value/hyperloglog.h"
#include <stdlib.h>

static struct kv_slice text_of(uint64_t number, char buffer[KV_INT_TEXT_MAX])
{
    return kv_slice(buffer, kv_uint_print(number, buffer));
}

static struct kv_slice slice_of(const uint8_t *bytes, size_t len)
{
    return kv_slice((const char *)bytes, len);
}

START_TEST(all_forms_hold_the_same_registers)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("hyperloglog"));
    static uint8_t sparse[KV_HLL_SPARSE_MAX + KV_HLL_SPARSE_STEP], dense[KV_HLL_DENSE_BYTES],
        plain[KV_HLL_REGISTERS], merged[KV_HLL_REGISTERS];
    for (int round = 0; round < 5; round++) {
        size_t len = KV_HLL_EMPTY_BYTES;
        uint64_t a, b, c;
        kv_hll_write_empty(sparse);
        memset(plain, 0, sizeof(plain));
        for (int i = 0; i < 3000; i++) {
            /* Few registers, so that runs are split and joined again and again. */
            struct kv_hll_mark mark = {(uint32_t)kv_random_below(&r, 1 + 300 * (unsigned)round),
                                       (uint8_t)(1 + kv_random_below(&r, round == 4 ? 32 : 3))};
            enum kv_hll_change change = kv_hll_raise_sparse(sparse, &len, KV_HLL_SPARSE_MAX, mark);
            ck_assert_int_eq(change, plain[mark.index] < mark.level ? KV_HLL_RAISED : KV_HLL_SAME);
            plain[mark.index] = KV_MAX(plain[mark.index], mark.level);
        }
        ck_assert(kv_hll_is(slice_of(sparse, len)));
        memset(merged, 0, sizeof(merged));
        ck_assert(kv_hll_merge(merged, slice_of(sparse, len)));
        ck_assert_mem_eq(merged, plain, sizeof(plain));
        ck_assert(kv_hll_to_dense(slice_of(sparse, len), dense));
        for (uint32_t i = 0; i < KV_HLL_REGISTERS; i++)
            ck_assert_uint_eq(kv_hll_dense_level(dense, i), plain[i]);
        memset(merged, 0, sizeof(merged));
        ck_assert(kv_hll_merge(merged, slice_of(dense, sizeof(dense))));
        ck_assert_mem_eq(merged, plain, sizeof(plain));
        ck_assert(kv_hll_estimate(slice_of(sparse, len), &a));
        ck_assert(kv_hll_estimate(slice_of(dense, sizeof(dense)), &b));
        c = kv_hll_estimate_registers(plain);
        ck_assert_uint_eq(a, b);
        ck_assert_uint_eq(b, c);
    }
}
END_TEST

START_TEST(dense_registers_do_not_touch_their_neighbours)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("dense"));
    static uint8_t dense[KV_HLL_DENSE_BYTES], plain[KV_HLL_REGISTERS], packed[KV_HLL_DENSE_BYTES];
    memset(dense, 0, sizeof(dense));
    memset(plain, 0, sizeof(plain));
    memset(packed, 0, sizeof(packed));
    for (int i = 0; i < 200000; i++) {
        struct kv_hll_mark mark = {(uint32_t)kv_random_below(&r, KV_HLL_REGISTERS),
                                   (uint8_t)(1 + kv_random_below(&r, 63))};
        ck_assert_int_eq(kv_hll_raise_dense(dense, mark), plain[mark.index] < mark.level);
        plain[mark.index] = KV_MAX(plain[mark.index], mark.level);
    }
    kv_hll_pack(packed, plain);
    ck_assert_mem_eq(packed, dense, sizeof(dense));
}
END_TEST

START_TEST(estimates_stay_within_a_few_percent)
{
    static uint8_t plain[KV_HLL_REGISTERS];
    char buffer[KV_INT_TEXT_MAX];
    memset(plain, 0, sizeof(plain));
    uint64_t next = 1;
    ck_assert_uint_eq(kv_hll_estimate_registers(plain), 0);
    for (uint64_t n = 1; n <= 1000000; n++) {
        struct kv_hll_mark mark = kv_hll_mark(text_of(n, buffer));
        plain[mark.index] = KV_MAX(plain[mark.index], mark.level);
        if (n != next)
            continue;
        next *= 3;
        uint64_t estimate = kv_hll_estimate_registers(plain);
        ck_assert_uint_ge(estimate + n / 25 + 1, n);
        ck_assert_uint_le(estimate, n + n / 25 + 1);
    }
}
END_TEST

START_TEST(a_kept_count_is_good_until_it_is_forgotten)
{
    uint8_t bytes[KV_HLL_EMPTY_BYTES];
    uint64_t count;
    kv_hll_write_empty(bytes);
    ck_assert(kv_hll_kept_count(bytes, &count));
    ck_assert_uint_eq(count, 0);
    kv_hll_keep_count(bytes, 123456789012);
    ck_assert(kv_hll_kept_count(bytes, &count));
    ck_assert_uint_eq(count, 123456789012);
    kv_hll_forget_count(bytes);
    ck_assert(!kv_hll_kept_count(bytes, &count));
}
END_TEST

/* Each call works on a block of the very length, so that a sanitizer sees what is read beyond. */
START_TEST(foreign_bytes_are_never_read_beyond_their_end)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("foreign"));
    static uint8_t dense[KV_HLL_DENSE_BYTES], registers[KV_HLL_REGISTERS];
    for (int round = 0; round < UNIT_ROUNDS(3000); round++) {
        size_t len = kv_random_below(&r, 80);
        uint8_t *bytes = malloc(len + 1);
        for (size_t i = 0; i < len; i++)
            bytes[i] = (uint8_t)kv_random_next(&r);
        memcpy(bytes, "HYLL\1", KV_MIN(len, 5));
        bool is = kv_hll_is(slice_of(bytes, len));
        ck_assert_int_eq(is, len >= KV_HLL_HEAD);
        uint64_t count;
        if (is) {
            bool good = kv_hll_estimate(slice_of(bytes, len), &count);
            ck_assert_int_eq(kv_hll_merge(registers, slice_of(bytes, len)), good);
            ck_assert_int_eq(kv_hll_to_dense(slice_of(bytes, len), dense), good);
            uint8_t *room = malloc(len + KV_HLL_SPARSE_STEP);
            memcpy(room, bytes, len);
            size_t grown = len;
            struct kv_hll_mark mark = {(uint32_t)kv_random_below(&r, KV_HLL_REGISTERS), 7};
            enum kv_hll_change change = kv_hll_raise_sparse(room, &grown, KV_HLL_SPARSE_MAX, mark);
            ck_assert(change != KV_HLL_TOO_LONG);
            ck_assert_uint_le(grown, len + KV_HLL_SPARSE_STEP);
            free(room);
        }
        free(bytes);
    }
}
END_TEST

START_TEST(a_sparse_one_does_not_pass_its_limit)
{
    static uint8_t sparse[KV_HLL_SPARSE_MAX + KV_HLL_SPARSE_STEP];
    size_t len = KV_HLL_EMPTY_BYTES;
    kv_hll_write_empty(sparse);
    ck_assert_int_eq(kv_hll_raise_sparse(sparse, &len, 20, (struct kv_hll_mark){100, 1}),
                     KV_HLL_TOO_LONG);
    ck_assert_uint_eq(len, KV_HLL_EMPTY_BYTES);
    ck_assert_int_eq(kv_hll_raise_sparse(sparse, &len, 3000, (struct kv_hll_mark){100, 33}),
                     KV_HLL_TOO_LONG);
    ck_assert_int_eq(kv_hll_raise_sparse(sparse, &len, 21, (struct kv_hll_mark){100, 32}),
                     KV_HLL_RAISED);
    ck_assert_uint_eq(len, 21);
    ck_assert_int_eq(kv_hll_raise_sparse(sparse, &len, 21, (struct kv_hll_mark){100, 5}),
                     KV_HLL_SAME);
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "hyperloglog");
    unit_add(&u, all_forms_hold_the_same_registers);
    unit_add(&u, dense_registers_do_not_touch_their_neighbours);
    unit_add(&u, estimates_stay_within_a_few_percent);
    unit_add(&u, a_kept_count_is_good_until_it_is_forgotten);
    unit_add(&u, foreign_bytes_are_never_read_beyond_their_end);
    unit_add(&u, a_sparse_one_does_not_pass_its_limit);
    return unit_run(&u);
}
