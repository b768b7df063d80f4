/* base/slice.h */
#include "base/slice.h"
#include "unit.h"

START_TEST(words_are_recognised_whatever_their_case)
{
    ck_assert(kv_slice_is(KV_SLICE("GET"), "get"));
    ck_assert(kv_slice_is(KV_SLICE("gEt"), "get"));
    ck_assert(kv_slice_is(KV_SLICE("no-evict"), "no-evict"));
    ck_assert(!kv_slice_is(KV_SLICE("ge"), "get"));
    ck_assert(!kv_slice_is(KV_SLICE("gets"), "get"));
    ck_assert(kv_slice_is(kv_slice(NULL, 0), ""));
    ck_assert(!kv_slice_is(kv_slice(NULL, 0), "a"));
    ck_assert(!kv_slice_is(KV_SLICE("a"), ""));
}
END_TEST

START_TEST(only_ascii_letters_are_folded)
{
    ck_assert(!kv_slice_is(KV_SLICE("@"), "`"));
    ck_assert(!kv_slice_is(KV_SLICE("["), "{"));
    ck_assert(!kv_slice_is(KV_SLICE("\x0d"), "-"));
    ck_assert(!kv_slice_is(KV_SLICE("\xc4"), "\xe4"));
}
END_TEST

START_TEST(a_zero_byte_does_not_end_a_slice)
{
    ck_assert(!kv_slice_is(KV_SLICE("get\0"), "get"));
    ck_assert(!kv_slice_is(KV_SLICE("\0"), ""));
    ck_assert(!kv_slice_equal(KV_SLICE("a\0b"), KV_SLICE("a\0c")));
    ck_assert(kv_slice_equal(KV_SLICE("a\0b"), KV_SLICE("a\0b")));
}
END_TEST

START_TEST(slices_order_by_bytes_then_length)
{
    ck_assert_int_eq(kv_slice_compare(KV_SLICE("a"), KV_SLICE("b")), -1);
    ck_assert_int_eq(kv_slice_compare(KV_SLICE("b"), KV_SLICE("a")), 1);
    ck_assert_int_eq(kv_slice_compare(KV_SLICE("a"), KV_SLICE("ab")), -1);
    ck_assert_int_eq(kv_slice_compare(KV_SLICE("ab"), KV_SLICE("a")), 1);
    ck_assert_int_eq(kv_slice_compare(KV_SLICE("ab"), KV_SLICE("ab")), 0);
    ck_assert_int_eq(kv_slice_compare(KV_SLICE("\xff"), KV_SLICE("a")), 1);
    ck_assert_int_eq(kv_slice_compare(kv_slice(NULL, 0), kv_slice(NULL, 0)), 0);
    ck_assert_int_eq(kv_slice_compare(kv_slice(NULL, 0), KV_SLICE("a")), -1);
}
END_TEST

START_TEST(empty_slices_are_equal)
{
    ck_assert(kv_slice_equal(kv_slice(NULL, 0), KV_SLICE("")));
    ck_assert(!kv_slice_equal(kv_slice(NULL, 0), KV_SLICE("a")));
    ck_assert_uint_eq(kv_slice_cstr("abc").len, 3);
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "slice");
    unit_add(&u, words_are_recognised_whatever_their_case);
    unit_add(&u, only_ascii_letters_are_folded);
    unit_add(&u, a_zero_byte_does_not_end_a_slice);
    unit_add(&u, slices_order_by_bytes_then_length);
    unit_add(&u, empty_slices_are_equal);
    return unit_run(&u);
}
