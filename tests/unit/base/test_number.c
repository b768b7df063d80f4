/* base/number.h: the edges of 64 bits, what clients see accepted and refused, and random round
 * trips against the C library. */
#include "base/number.h"
#include "base/random.h"
#include "unit.h"
#include <float.h>
#include <inttypes.h>
#include <math.h>

static bool int_is(const char *text, int64_t want)
{
    int64_t value = 12345;
    return kv_int_parse(kv_slice_cstr(text), &value) && value == want;
}

static bool int_refused(const char *text)
{
    int64_t value = 12345;
    return !kv_int_parse(kv_slice_cstr(text), &value) && value == 12345;
}

START_TEST(integers_at_the_edges_of_64_bits_parse)
{
    ck_assert(int_is("0", 0));
    ck_assert(int_is("7", 7));
    ck_assert(int_is("-1", -1));
    ck_assert(int_is("9223372036854775807", INT64_MAX));
    ck_assert(int_is("-9223372036854775808", INT64_MIN));
    ck_assert(int_is("-9223372036854775807", -INT64_MAX));
    ck_assert(int_is("999999999999999999", 999999999999999999));
}
END_TEST

START_TEST(other_spellings_of_integers_are_refused)
{
    static const char *const refused[] = {
        "",
        "-",
        "+1",
        " 1",
        "1 ",
        "01",
        "-0",
        "-01",
        "00",
        "1.0",
        "1e3",
        "0x10",
        "--1",
        "a",
        "12a4",
        "/",
        ":",
        "-/",
        "1:",
        "1-",
        "1\n",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999",
        "100000000000000000000",
        "-18446744073709551615",
    };
    for (size_t i = 0; i < KV_ARRAY_LEN(refused); i++)
        ck_assert_msg(int_refused(refused[i]), "accepted '%s'", refused[i]);
    int64_t value;
    ck_assert(!kv_int_parse(KV_SLICE("1\0"), &value));
    ck_assert(!kv_int_parse(kv_slice(NULL, 0), &value));
}
END_TEST

START_TEST(unsigned_integers_reach_64_bits)
{
    uint64_t value = 5;
    ck_assert(kv_uint_parse(KV_SLICE("18446744073709551615"), &value));
    ck_assert(value == UINT64_MAX);
    ck_assert(kv_uint_parse(KV_SLICE("10000000000000000000"), &value));
    ck_assert(value == 10000000000000000000u);
    value = 5;
    ck_assert(!kv_uint_parse(KV_SLICE("18446744073709551616"), &value));
    ck_assert(!kv_uint_parse(KV_SLICE("18446744073709551620"), &value));
    ck_assert(!kv_uint_parse(KV_SLICE("20000000000000000000"), &value));
    ck_assert(!kv_uint_parse(KV_SLICE("-1"), &value));
    ck_assert(!kv_uint_parse(KV_SLICE("00"), &value));
    ck_assert(value == 5);
}
END_TEST

static void check_int(int64_t value)
{
    char text[KV_INT_TEXT_MAX], want[32];
    int64_t back;
    size_t len = kv_int_print(value, text);

    ck_assert_int_eq((int)len, snprintf(want, sizeof(want), "%" PRId64, value));
    ck_assert(memcmp(text, want, len) == 0);
    ck_assert_uint_eq(kv_int_digits(value), len);
    ck_assert(kv_int_parse(kv_slice(text, len), &back));
    ck_assert(back == value);
    len = kv_uint_print((uint64_t)value, text);
    ck_assert_int_eq((int)len, snprintf(want, sizeof(want), "%" PRIu64, (uint64_t)value));
    ck_assert(memcmp(text, want, len) == 0);
}

START_TEST(integers_print_as_the_c_library_prints_them)
{
    struct kv_random r;
    int64_t power = 1;

    for (int digits = 0; digits < 19; digits++, power *= digits < 19 ? 10 : 1)
        for (int64_t d = -2; d <= 2; d++) {
            check_int(power + d);
            check_int(-power + d);
        }
    check_int(INT64_MAX);
    check_int(INT64_MIN);
    kv_random_init(&r, unit_seed("integers"));
    for (int i = 0; i < UNIT_ROUNDS(40000); i++)
        check_int((int64_t)(kv_random_next(&r) >> kv_random_below(&r, 64)));
}
END_TEST

static bool double_is(const char *text, double want)
{
    double value = 0.125;
    return kv_double_parse(kv_slice_cstr(text), &value) && value == want;
}

START_TEST(floating_point_texts_are_read_as_clients_know_it)
{
    ck_assert(double_is("1", 1));
    ck_assert(double_is("+1", 1));
    ck_assert(double_is("-1.5e3", -1500));
    ck_assert(double_is(".5", 0.5));
    ck_assert(double_is("5.", 5));
    ck_assert(double_is("0x10", 16));
    ck_assert(double_is("0x1p3", 8));
    ck_assert(double_is("inf", INFINITY));
    ck_assert(double_is("+INF", INFINITY));
    ck_assert(double_is("-Infinity", -INFINITY));
    ck_assert(double_is("4.9e-324", 4.9e-324));
    ck_assert(double_is("1.7976931348623157e308", DBL_MAX));
}
END_TEST

START_TEST(texts_that_are_no_double_are_refused)
{
    static const char *const refused[] = {"",       " 1",     "1 ",    "nan", "-nan",  "nan(1)",
                                          "1e",     ".",      "0x",    "1_0", "infin", "1e400",
                                          "1e-400", "-1e400", "1.2.3", "\t1", "+",     "1e5000",
                                          "e5",     "--1",    "1e+",   "0xg", "1,5",   "-"};
    double value = 0.125;
    long double wide = 0.125L;

    for (size_t i = 0; i < KV_ARRAY_LEN(refused); i++) {
        ck_assert_msg(!kv_double_parse(kv_slice_cstr(refused[i]), &value), "'%s'", refused[i]);
        if (strstr(refused[i], "e400") == NULL && strstr(refused[i], "e-400") == NULL)
            ck_assert_msg(!kv_ldouble_parse(kv_slice_cstr(refused[i]), &wide), "'%s'", refused[i]);
    }
    ck_assert(!kv_double_parse(KV_SLICE("1\0"), &value));
    ck_assert(!kv_ldouble_parse(KV_SLICE("1\0"), &wide));
    ck_assert(value == 0.125);
    ck_assert(wide == 0.125L);
}
END_TEST

/* Whatever the length, the same double comes out as from the C library. */
static void check_long_text(const char *text, size_t len)
{
    double value = 0.125;
    double want = strtod(text, NULL);

    ck_assert(kv_double_parse(kv_slice(text, len), &value));
    ck_assert_msg(memcmp(&value, &want, sizeof(value)) == 0, "%.60s...: %a, want %a", text, value,
                  want);
}

START_TEST(long_decimal_texts_round_like_short_ones)
{
    static char text[8192];
    struct kv_random r;
    double value;

    kv_random_init(&r, unit_seed("long texts"));
    for (int i = 0; i < UNIT_ROUNDS(500); i++) {
        size_t len = 0, digits = 1000 + kv_random_below(&r, 3000);
        size_t zeros = kv_random_below(&r, 3) == 0 ? kv_random_below(&r, digits) : 0;
        size_t point = kv_random_below(&r, digits + 1);
        if (kv_random_below(&r, 2) == 0)
            text[len++] = '-';
        for (size_t d = 0; d < digits; d++) {
            if (d == point)
                text[len++] = '.';
            text[len++] = d < zeros ? '0' : (char)('0' + kv_random_below(&r, 10));
        }
        len += (size_t)sprintf(text + len, "e%d",
                               (int)zeros - (int)point + (int)kv_random_below(&r, 500) - 250);
        check_long_text(text, len);
    }
    /* Exactly between two doubles, then a trace above: the trace decides. */
    size_t len = (size_t)sprintf(text, "9007199254740993.");
    memset(text + len, '0', 3000);
    len += 3000;
    text[len] = '\0';
    check_long_text(text, len);
    text[len - 1] = '1';
    check_long_text(text, len);
    ck_assert(kv_double_parse(kv_slice(text, len), &value));
    ck_assert(value == 9007199254740994.0);
    memset(text, '1', 2000);
    ck_assert(!kv_double_parse(kv_slice(text, 2000), &value));
    text[1000] = 'x';
    ck_assert(!kv_double_parse(kv_slice(text, 2000), &value));
    memset(text, '.', 2000);
    ck_assert(!kv_double_parse(kv_slice(text, 2000), &value));
    memset(text, '0', 2000);
    ck_assert(kv_double_parse(kv_slice(text, 2000), &value) && value == 0);
}
END_TEST

static const char *double_text(double value)
{
    static char text[KV_DOUBLE_TEXT_MAX];
    size_t len = kv_double_print(value, text);
    ck_assert_uint_eq(len, strlen(text));
    return text;
}

START_TEST(doubles_print_in_the_known_layout)
{
    ck_assert_str_eq(double_text(0), "0");
    ck_assert_str_eq(double_text(-0.0), "-0");
    ck_assert_str_eq(double_text(1), "1");
    ck_assert_str_eq(double_text(-1.5), "-1.5");
    ck_assert_str_eq(double_text(0.1), "0.1");
    ck_assert_str_eq(double_text(3.14159), "3.14159");
    ck_assert_str_eq(double_text(1e20), "1e+20");
    ck_assert_str_eq(double_text(1e15), "1000000000000000");
    ck_assert_str_eq(double_text(9007199254740992.0), "9007199254740992");
    ck_assert_str_eq(double_text(1e-5), "0.00001");
    ck_assert_str_eq(double_text(1.5e-10), "1.5e-10");
    ck_assert_str_eq(double_text(1e300), "1e+300");
    ck_assert_str_eq(double_text(5e-324), "5e-324");
    ck_assert_str_eq(double_text(DBL_MAX), "1.7976931348623157e+308");
    ck_assert_str_eq(double_text(INFINITY), "inf");
    ck_assert_str_eq(double_text(-INFINITY), "-inf");
    ck_assert_str_eq(double_text(NAN), "nan");
    ck_assert_str_eq(double_text(-NAN), "nan");
}
END_TEST

static int significant_digits(const char *text)
{
    int count = 0, zeros = 0;
    bool started = false;

    for (; *text != '\0' && *text != 'e'; text++)
        if (*text >= '0' && *text <= '9') {
            started |= *text != '0';
            count += started;
            zeros = *text == '0' ? zeros + 1 : 0;
        }
    return count > zeros ? count - zeros : count;
}

/* Reads back equal, and no shorter precision of the C library does. */
static void check_double(double value)
{
    const char *text = double_text(value);
    char shorter[64];
    double back;

    ck_assert(kv_double_parse(kv_slice_cstr(text), &back));
    ck_assert_msg(memcmp(&back, &value, sizeof(value)) == 0, "%a became %s", value, text);
    int digits = significant_digits(text);
    ck_assert_int_le(digits, 17);
    if (digits > 1 && fabs(value) >= 4503599627370496.0) {
        snprintf(shorter, sizeof(shorter), "%.*e", digits - 2, value);
        ck_assert_msg(strtod(shorter, NULL) != value, "%s is longer than %s", text, shorter);
    }
}

/* The short ways of parsing and printing give what the C library gives. */
START_TEST(short_decimals_are_read_and_written_as_the_library_does)
{
    struct kv_random r;
    char text[64], printed[KV_DOUBLE_TEXT_MAX], shortest[64];
    kv_random_init(&r, unit_seed("number"));
    for (int i = 0; i < 200000; i++) {
        uint64_t bound = 10;
        for (uint64_t digits = kv_random_below(&r, 15); digits > 0; digits--)
            bound *= 10;
        uint64_t whole = kv_random_below(&r, bound);
        int places = (int)kv_random_below(&r, 9);
        int len = snprintf(text, sizeof(text), "%s%llu", i % 3 == 0 ? "-" : "",
                           (unsigned long long)whole);
        if (places > 0)
            len += snprintf(text + len, sizeof(text) - (size_t)len, ".%0*llu", places,
                            (unsigned long long)kv_random_below(&r, 100000000) %
                                (unsigned long long)pow(10, places));
        double value;
        ck_assert(kv_double_parse(kv_slice(text, (size_t)len), &value));
        ck_assert_msg(value == strtod(text, NULL), "%s", text);
        kv_double_print(value, printed);
        ck_assert_msg(strtod(printed, NULL) == value, "%s: %s", text, printed);
        int digits = 1;
        do
            snprintf(shortest, sizeof(shortest), "%.*e", digits++ - 1, value);
        while (strtod(shortest, NULL) != value);
        int count = 0;
        bool point = strchr(printed, '.') != NULL, leading = true;
        for (const char *p = printed; *p != '\0' && *p != 'e'; p++) {
            leading = leading && (*p == '0' || *p == '.' || *p == '-');
            count += !leading && *p >= '0' && *p <= '9';
        }
        ck_assert_msg(!point || count == digits - 1, "%s: %s, %d digits", text, printed,
                      digits - 1);
    }
}
END_TEST

START_TEST(doubles_survive_printing_and_are_short)
{
    struct kv_random r;

    kv_random_init(&r, unit_seed("doubles"));
    for (int i = 0; i < UNIT_ROUNDS(20000); i++) {
        uint64_t bits = kv_random_next(&r);
        double value;
        memcpy(&value, &bits, sizeof(value));
        if (isfinite(value))
            check_double(value);
        check_double((double)(int64_t)bits / (double)(1 + kv_random_below(&r, 1000)));
        check_double((double)(int64_t)(bits >> kv_random_below(&r, 64)));
        check_double((double)(bits & 0xfffff) * 5e-324);
    }
}
END_TEST

static const char *ldouble_text(long double value)
{
    static char text[KV_LDOUBLE_TEXT_MAX];
    size_t len = kv_ldouble_print(value, text);
    ck_assert_uint_eq(len, strlen(text));
    return text;
}

START_TEST(long_doubles_print_17_decimals_without_zeros)
{
    ck_assert_str_eq(ldouble_text(0), "0");
    ck_assert_str_eq(ldouble_text(-0.0L), "0");
    ck_assert_str_eq(ldouble_text(3000), "3000");
    ck_assert_str_eq(ldouble_text(-10.5L), "-10.5");
    ck_assert_str_eq(ldouble_text(0.1L), "0.1");
    ck_assert_str_eq(ldouble_text(1e-17L), "0.00000000000000001");
    ck_assert_str_eq(ldouble_text(1e-18L), "0");
    ck_assert_str_eq(ldouble_text(-1e-19L), "0");
    ck_assert_str_eq(ldouble_text(123456789012345678.0L), "123456789012345678");
    ck_assert_str_eq(ldouble_text(10.5L + 0.1L), "10.6");
    ck_assert_str_eq(ldouble_text(INFINITY), "inf");
    ck_assert_str_eq(ldouble_text(-INFINITY), "-inf");
    ck_assert_str_eq(ldouble_text(NAN), "nan");
    ck_assert_uint_eq(strlen(ldouble_text(LDBL_MAX)), 4933);
    ck_assert_uint_eq(strlen(ldouble_text(-LDBL_MAX)), 4934);
}
END_TEST

START_TEST(long_double_texts_have_a_largest_length)
{
    static char text[KV_LDOUBLE_TEXT_MAX + 1];
    long double value;

    memset(text, '0', sizeof(text));
    ck_assert(kv_ldouble_parse(kv_slice(text, KV_LDOUBLE_TEXT_MAX - 1), &value) && value == 0);
    ck_assert(!kv_ldouble_parse(kv_slice(text, KV_LDOUBLE_TEXT_MAX), &value));
    ck_assert(kv_ldouble_parse(KV_SLICE("1e4000"), &value) && value == 1e4000L);
}
END_TEST

START_TEST(sizes_have_units)
{
    static const struct {
        const char *text;
        int64_t bytes;
    } good[] = {{"0", 0},
                {"100", 100},
                {"100b", 100},
                {"1k", 1000},
                {"1kb", 1024},
                {"1m", 1000000},
                {"1Mb", 1048576},
                {"2g", 2000000000},
                {"1GB", 1 << 30},
                {"007", 7},
                {"3B", 3},
                {"", 0},
                {"9223372036854775807", INT64_MAX}};
    static const char *const refused[] = {"-1",
                                          "+1",
                                          "1x",
                                          "1 kb",
                                          " 1",
                                          "1e3",
                                          "0x10",
                                          "1kbb",
                                          "1tb",
                                          "9223372036854775808",
                                          "9223372036854775807k",
                                          "99999999999999999999"};
    int64_t bytes = -1;

    for (size_t i = 0; i < KV_ARRAY_LEN(good); i++) {
        ck_assert_msg(kv_memory_parse(kv_slice_cstr(good[i].text), &bytes), "'%s'", good[i].text);
        ck_assert_int_eq(bytes, good[i].bytes);
    }
    for (size_t i = 0; i < KV_ARRAY_LEN(refused); i++)
        ck_assert_msg(!kv_memory_parse(kv_slice_cstr(refused[i]), &bytes), "'%s'", refused[i]);
}
END_TEST

START_TEST(sizes_print_for_humans)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } cases[] = {{0, "0B"},
                 {1023, "1023B"},
                 {1024, "1.00K"},
                 {1536, "1.50K"},
                 {1048575, "1024.00K"},
                 {1048576, "1.00M"},
                 {(uint64_t)12 << 20, "12.00M"},
                 {(uint64_t)3 << 30, "3.00G"},
                 {(uint64_t)5 << 40, "5.00T"},
                 {(uint64_t)1 << 50, "1.00P"},
                 {UINT64_MAX, "16384.00P"}};
    char text[64];

    for (size_t i = 0; i < KV_ARRAY_LEN(cases); i++) {
        ck_assert_uint_eq(kv_memory_print_human(cases[i].bytes, text), strlen(cases[i].text));
        ck_assert_str_eq(text, cases[i].text);
    }
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "number");
    unit_add(&u, integers_at_the_edges_of_64_bits_parse);
    unit_add(&u, other_spellings_of_integers_are_refused);
    unit_add(&u, unsigned_integers_reach_64_bits);
    unit_add(&u, integers_print_as_the_c_library_prints_them);
    unit_add(&u, floating_point_texts_are_read_as_clients_know_it);
    unit_add(&u, texts_that_are_no_double_are_refused);
    unit_add(&u, long_decimal_texts_round_like_short_ones);
    unit_add(&u, doubles_print_in_the_known_layout);
    unit_add(&u, doubles_survive_printing_and_are_short);
    unit_add(&u, long_doubles_print_17_decimals_without_zeros);
    unit_add(&u, long_double_texts_have_a_largest_length);
    unit_add(&u, sizes_have_units);
    unit_add(&u, sizes_print_for_humans);
    unit_add(&u, short_decimals_are_read_and_written_as_the_library_does);
    return unit_run(&u);
}
