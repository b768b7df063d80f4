/* Text to number and back.
 *
 * Integers are parsed and printed by hand: they are on the path of every INCR and of every reply
 * length. Printing writes two digits a step from a table of the hundred pairs. Parsing accepts one
 * spelling per number only ("7", not "07", "+7" or "-0"), because a string is stored as an integer
 * exactly when printing the integer gives the same bytes back.
 *
 * Floating-point text of at most 15 digits without exponent is parsed by hand, other text by the C
 * library, which rounds correctly. It wants a terminated
 * text, so the slice is copied to the stack first. A double may legally be spelled with any number
 * of digits; a text that does not fit the buffer is first condensed: leading zeros are dropped,
 * 800 significant digits are kept, what follows them only leaves a trace of being non-zero (no
 * double needs more than 768 digits to be rounded correctly), and the position of the point goes
 * into the exponent. Long doubles are refused from 5,120 bytes on, as clients know it.
 *
 * Doubles are printed with the fewest digits that read back as the same double. If a decimal of at
 * most 15 digits denotes the double, printing 15 digits and cutting zeros finds it; otherwise 16
 * are tried and 17 always do. Subnormal numbers have less precision, so there every length is
 * tried. The layout of the digits follows the server that clients know: whole numbers below 2^52
 * plain, others plain only while that is short.
 *
 * Threads: any; pure functions (the C locale's decimal point is relied on: nobody calls setlocale
 * for LC_NUMERIC).
 *
 * Rejected: the tables of Ryu or Grisu. Short ways cover scores that are whole numbers or have few
 * places behind the point; the rest costs under a microsecond. */
#include "base/number.h"

#include "base/assert.h"
#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static_assert(sizeof(long double) == 16 && LDBL_MANT_DIG == 64, "x87 long double");

/* --- integers --- */

static const char digit_pairs[201] = "00010203040506070809101112131415161718192021222324"
                                     "25262728293031323334353637383940414243444546474849"
                                     "50515253545556575859606162636465666768697071727374"
                                     "75767778798081828384858687888990919293949596979899";

bool kv_uint_parse(struct kv_slice text, uint64_t *out)
{
    /* 20 digits hold every 64-bit number; the only check against overflow is at the last one. */
    if (text.len == 0 || text.len > 20)
        return false;
    KV_DASSERT(text.ptr != NULL);
    uint64_t value = (unsigned char)text.ptr[0] - (uint64_t)'0';
    if (value > 9 || (value == 0 && text.len > 1))
        return false;
    for (size_t i = 1; i < text.len; i++) {
        uint64_t digit = (unsigned char)text.ptr[i] - (uint64_t)'0';
        if (digit > 9)
            return false;
        if (KV_UNLIKELY(i == 19) &&
            (value > UINT64_MAX / 10 || (value == UINT64_MAX / 10 && digit > UINT64_MAX % 10)))
            return false;
        value = value * 10 + digit;
    }
    *out = value;
    return true;
}

bool kv_int_parse(struct kv_slice text, int64_t *out)
{
    uint64_t value;
    bool negative = text.len > 0 && text.ptr[0] == '-';

    if (!negative) {
        if (!kv_uint_parse(text, &value) || value > INT64_MAX)
            return false;
        *out = (int64_t)value;
        return true;
    }
    if (!kv_uint_parse(kv_slice(text.ptr + 1, text.len - 1), &value))
        return false;
    if (value == 0 || value > (uint64_t)INT64_MAX + 1)
        return false;
    *out = (int64_t)(0 - value);
    KV_DASSERT(*out < 0);
    return true;
}

static unsigned uint_digits(uint64_t value)
{
    unsigned digits = 1;

    while (value >= 10000) {
        value /= 10000;
        digits += 4;
    }
    return digits + (value >= 10) + (value >= 100) + (value >= 1000);
}

/* Writes up to 20 digits. */
static size_t print_digits(uint64_t value, char *out)
{
    unsigned len = uint_digits(value);
    char *end = out + len;

    KV_DASSERT(len < KV_INT_TEXT_MAX);
    while (value >= 100) {
        end -= 2;
        memcpy(end, digit_pairs + value % 100 * 2, 2);
        value /= 100;
    }
    if (value >= 10)
        memcpy(end - 2, digit_pairs + value * 2, 2);
    else
        end[-1] = (char)('0' + value);
    return len;
}

size_t kv_uint_print(uint64_t value, char out[KV_INT_TEXT_MAX])
{
    return print_digits(value, out);
}

size_t kv_int_print(int64_t value, char out[KV_INT_TEXT_MAX])
{
    if (value >= 0)
        return print_digits((uint64_t)value, out);
    out[0] = '-';
    return 1 + print_digits(0 - (uint64_t)value, out + 1);
}

unsigned kv_int_digits(int64_t value)
{
    return value >= 0 ? uint_digits((uint64_t)value) : 1 + uint_digits(0 - (uint64_t)value);
}

/* --- parsing floating-point text --- */

#define DOUBLE_COPY_MAX 1024 /* bytes; longer texts are condensed */
#define DIGITS_KEPT 800      /* significant digits that a condensed text keeps */

/* A decimal text being condensed: digits d1 d2 ... stand for 0.d1d2... * 10^exponent. */
struct condensed {
    char digits[DIGITS_KEPT + 1];
    size_t digit_count;
    int64_t exponent;
    bool dropped; /* a non-zero digit did not fit */
};

static void condense_digit(struct condensed *c, char digit, bool before_point)
{
    if (digit == '0' && c->digit_count == 0) {
        if (!before_point)
            c->exponent--;
        return;
    }
    if (before_point)
        c->exponent++;
    if (c->digit_count < DIGITS_KEPT)
        c->digits[c->digit_count++] = digit;
    else if (digit != '0')
        c->dropped = true;
}

/* "[e|E][sign]digits" up to the end; absent is 0. Beyond a million nothing changes any more. */
static bool parse_exponent(struct kv_slice text, int64_t *exponent)
{
    size_t i = 1;
    int64_t value = 0;

    *exponent = 0;
    if (text.len == 0)
        return true;
    if (text.ptr[0] != 'e' && text.ptr[0] != 'E')
        return false;
    bool negative = text.len > 1 && text.ptr[1] == '-';
    if (text.len > 1 && (text.ptr[1] == '-' || text.ptr[1] == '+'))
        i++;
    if (i == text.len)
        return false;
    for (; i < text.len; i++) {
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
        if (value < (int64_t)1 << 52)
            value = value * 10 + (text.ptr[i] - '0');
    }
    *exponent = negative ? -value : value;
    return true;
}

/* Rewrites a long decimal text into a short one of the same double. */
static bool condense(struct kv_slice text, char out[DOUBLE_COPY_MAX])
{
    struct condensed c = {.digit_count = 0};
    bool negative = text.ptr[0] == '-';
    bool point = false, any = false;
    int64_t exponent;
    size_t i = negative || text.ptr[0] == '+' ? 1 : 0;

    for (; i < text.len; i++) {
        if (text.ptr[i] == '.' && !point) {
            point = true;
        } else if (text.ptr[i] >= '0' && text.ptr[i] <= '9') {
            condense_digit(&c, text.ptr[i], !point);
            any = true;
        } else {
            break;
        }
    }
    if (!any || !parse_exponent(kv_slice(text.ptr + i, text.len - i), &exponent))
        return false;
    if (c.dropped)
        c.digits[DIGITS_KEPT - 1] =
            c.digits[DIGITS_KEPT - 1] == '9' ? '9' : c.digits[DIGITS_KEPT - 1] + 1;
    KV_ASSERT(c.digit_count <= DIGITS_KEPT);
    int len = snprintf(out, DOUBLE_COPY_MAX, "%s0.%.*se%lld", negative ? "-" : "",
                       (int)c.digit_count, c.digits, (long long)(c.exponent + exponent));
    KV_ASSERT(len > 0 && len < DOUBLE_COPY_MAX);
    return true;
}

#define EXACT_DIGITS 15 /* decimal digits that every double of that size keeps apart */

/* Powers of ten that a double holds exactly. */
static const double powers_of_ten[EXACT_DIGITS + 1] = {
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15};

/* "[-]digits[.digits]" of at most 15 digits: both the digits and the power of ten are exact, so one
 * division rounds correctly. False: another text, which may be a number or not. */
static bool parse_short(struct kv_slice text, double *out)
{
    uint64_t digits = 0;
    size_t i = text.len > 0 && text.ptr[0] == '-', start = i, point = text.len;
    if (text.len - i > EXACT_DIGITS + 1)
        return false;
    for (; i < text.len; i++) {
        uint64_t digit = (unsigned char)text.ptr[i] - (uint64_t)'0';
        if (KV_LIKELY(digit <= 9))
            digits = digits * 10 + digit;
        else if (text.ptr[i] == '.' && point == text.len)
            point = i;
        else
            return false;
    }
    size_t fraction = point < text.len ? text.len - point - 1 : 0;
    size_t count = text.len - start - (point < text.len);
    if (count == 0 || count > EXACT_DIGITS)
        return false;
    double value = (double)digits;
    if (fraction != 0)
        value /= powers_of_ten[fraction];
    *out = start != 0 ? -value : value;
    return true;
}

/* What clients see refused: text with a leading space, which the C library would skip, text that it
 * does not read to the end, a result that is no number, and one that left the range: to infinity or
 * to zero. A result that merely lost precision below the smallest normal number is accepted. */
bool kv_double_parse(struct kv_slice text, double *out)
{
    char copy[DOUBLE_COPY_MAX];
    size_t len = text.len;
    char *end;

    if (KV_LIKELY(parse_short(text, out)))
        return true;
    if (text.len == 0 || isspace((unsigned char)text.ptr[0]))
        return false;
    if (KV_LIKELY(text.len < sizeof(copy))) {
        memcpy(copy, text.ptr, len);
        copy[len] = '\0';
    } else {
        if (!condense(text, copy))
            return false;
        len = strlen(copy);
    }
    errno = 0;
    double value = strtod(copy, &end);
    if ((size_t)(end - copy) != len || isnan(value))
        return false;
    if (errno == ERANGE && (isinf(value) || value == 0))
        return false;
    *out = value;
    return true;
}

bool kv_ldouble_parse(struct kv_slice text, long double *out)
{
    char copy[KV_LDOUBLE_TEXT_MAX];
    char *end;

    if (text.len == 0 || text.len >= sizeof(copy) || isspace((unsigned char)text.ptr[0]))
        return false;
    memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    errno = 0;
    long double value = strtold(copy, &end);
    if ((size_t)(end - copy) != text.len || isnan(value))
        return false;
    if (errno == ERANGE && (isinf(value) || value == 0))
        return false;
    *out = value;
    return true;
}

/* --- printing floating-point numbers --- */

/* Significant digits d1 d2 ... dn, without trailing zeros, of d1d2...dn * 10^power. */
struct shortest {
    char digits[20];
    int digit_count;
    int power;
};

/* Prints with so many digits and tells whether they read back as the same double. */
static bool try_digits(double value, int digit_count, struct shortest *out)
{
    char text[40];

    int len = snprintf(text, sizeof(text), "%.*e", digit_count - 1, value);
    KV_ASSERT(len > 0 && (size_t)len < sizeof(text));
    char *exponent = strchr(text, 'e');
    KV_ASSERT(exponent != NULL);
    out->digits[0] = text[0];
    if (digit_count > 1)
        memcpy(out->digits + 1, text + 2, (size_t)(exponent - text - 2));
    out->digit_count = digit_count;
    out->power = atoi(exponent + 1) - (digit_count - 1);
    return strtod(text, NULL) == value;
}

static void shortest_digits(double value, struct shortest *out)
{
    int digit_count = fabs(value) < DBL_MIN ? 1 : 15;

    KV_DASSERT(value > 0 && isfinite(value));
    while (!try_digits(value, digit_count, out)) {
        digit_count++;
        KV_ASSERT(digit_count <= 17);
    }
    while (out->digit_count > 1 && out->digits[out->digit_count - 1] == '0') {
        out->digit_count--;
        out->power++;
    }
}

/* d.ddde+x */
static size_t print_scientific(const struct shortest *s, char *out)
{
    char *p = out;
    int exponent = s->power + s->digit_count - 1;

    *p++ = s->digits[0];
    if (s->digit_count > 1) {
        *p++ = '.';
        memcpy(p, s->digits + 1, (size_t)s->digit_count - 1);
        p += s->digit_count - 1;
    }
    *p++ = 'e';
    *p++ = exponent < 0 ? '-' : '+';
    p += print_digits((uint64_t)abs(exponent), p);
    return (size_t)(p - out);
}

/* Digits with a point among or before them, or with zeros behind. */
static size_t print_positional(const struct shortest *s, char *out)
{
    char *p = out;
    size_t n = (size_t)s->digit_count;
    int whole = s->digit_count + s->power; /* digits before the point */

    if (s->power >= 0) {
        memcpy(p, s->digits, n);
        memset(p + n, '0', (size_t)s->power);
        return n + (size_t)s->power;
    }
    if (whole > 0) {
        memcpy(p, s->digits, (size_t)whole);
        p[whole] = '.';
        memcpy(p + whole + 1, s->digits + whole, n - (size_t)whole);
        return n + 1;
    }
    *p++ = '0';
    *p++ = '.';
    memset(p, '0', (size_t)-whole);
    p += -whole;
    memcpy(p, s->digits, n);
    return (size_t)(p - out) + n;
}

#define SHORT_FRACTION 6 /* digits behind the point up to which the layout is always positional */

/* A number that is a decimal of at most 15 digits, few of them behind the point: the first number
 * of places at which it reads back is the shortest, since no two such decimals are one double. 0:
 * it is none. */
static size_t print_short(double value, char *out)
{
    for (unsigned places = 1; places <= SHORT_FRACTION; places++) {
        double scaled = value * powers_of_ten[places];
        if (scaled >= powers_of_ten[EXACT_DIGITS])
            return 0;
        uint64_t digits = (uint64_t)(scaled + 0.5);
        if ((double)digits / powers_of_ten[places] != value)
            continue;
        uint64_t unit = (uint64_t)powers_of_ten[places];
        size_t len = print_digits(digits / unit, out);
        out[len] = '.';
        for (uint64_t rest = digits % unit, i = places; i > 0; i--, rest /= 10)
            out[len + i] = (char)('0' + rest % 10);
        return len + 1 + places;
    }
    return 0;
}

static size_t print_finite(double value, char *out)
{
    struct shortest s;

    if (value < (double)((int64_t)1 << 52) && value == (double)(uint64_t)value)
        return print_digits((uint64_t)value, out);
    size_t len = print_short(value, out);
    if (len != 0)
        return len;
    shortest_digits(value, &s);
    int exponent = s.power + s.digit_count - 1;
    bool positional =
        s.power >= 0 ? exponent < s.digit_count + 7 : s.power > -7 || abs(exponent) < 4;
    return positional ? print_positional(&s, out) : print_scientific(&s, out);
}

size_t kv_double_print(double value, char out[KV_DOUBLE_TEXT_MAX])
{
    size_t len = 0;

    if (isnan(value)) {
        memcpy(out, "nan", 4);
        return 3;
    }
    if (signbit(value)) {
        out[len++] = '-';
        value = -value;
    }
    if (isinf(value)) {
        memcpy(out + len, "inf", 3);
        len += 3;
    } else {
        len += print_finite(value, out + len);
    }
    KV_ASSERT(len < KV_DOUBLE_TEXT_MAX);
    out[len] = '\0';
    return len;
}

size_t kv_ldouble_print(long double value, char out[KV_LDOUBLE_TEXT_MAX])
{
    if (isnan(value) || isinf(value)) {
        const char *word = isnan(value) ? "nan" : value > 0 ? "inf" : "-inf";
        size_t word_len = strlen(word);
        memcpy(out, word, word_len + 1);
        return word_len;
    }
    int printed = snprintf(out, KV_LDOUBLE_TEXT_MAX, "%.17Lf", value);
    KV_ASSERT(printed > 18 && printed < KV_LDOUBLE_TEXT_MAX);
    size_t len = (size_t)printed;
    while (out[len - 1] == '0')
        len--;
    if (out[len - 1] == '.')
        len--;
    if (len == 2 && out[0] == '-' && out[1] == '0') {
        out[0] = '0';
        len = 1;
    }
    out[len] = '\0';
    return len;
}

/* --- sizes --- */

bool kv_memory_parse(struct kv_slice text, int64_t *bytes_out)
{
    static const struct {
        const char *name;
        int64_t bytes;
    } units[] = {
        {"", 1},        {"b", 1},        {"k", 1000},       {"kb", 1 << 10},
        {"m", 1000000}, {"mb", 1 << 20}, {"g", 1000000000}, {"gb", 1 << 30},
    };
    int64_t value = 0;
    size_t i = 0;

    for (; i < text.len && text.ptr[i] >= '0' && text.ptr[i] <= '9'; i++)
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, text.ptr[i] - '0', &value))
            return false;
    for (size_t u = 0; u < KV_ARRAY_LEN(units); u++)
        if (kv_slice_is(kv_slice(text.ptr + i, text.len - i), units[u].name))
            return !__builtin_mul_overflow(value, units[u].bytes, bytes_out);
    return false;
}

size_t kv_memory_print_human(uint64_t bytes, char out[64])
{
    static const char letters[] = "KMGTP";
    double scaled = (double)bytes / 1024;
    unsigned unit = 0;
    int len;

    if (bytes < 1024) {
        len = snprintf(out, 64, "%lluB", (unsigned long long)bytes);
    } else {
        for (; bytes >> (10 * (unit + 2)) != 0 && unit + 1 < sizeof(letters) - 1; unit++)
            scaled /= 1024;
        len = snprintf(out, 64, "%.2f%c", scaled, letters[unit]);
    }
    KV_ASSERT(len > 0 && len < 64);
    return (size_t)len;
}
