/* ds/packed.h: encodings, walking, finding, foreign bytes. */
#include "ds/packed.h"
#include "unit.h"
#include <stdlib.h>

struct list {
    uint8_t bytes[1 << 20];
    size_t len;
};

static void start(struct list *l)
{
    l->len = KV_PACKED_EMPTY;
    kv_packed_seal(l->bytes, l->len, 0);
}

static void append(struct list *l, const char *text, size_t len)
{
    struct kv_needle n;
    kv_needle_init(&n, kv_slice(text, len));
    size_t bytes = kv_needle_bytes(&n);
    uint8_t *end = kv_packed_put(l->bytes + l->len - 1, &n);
    ck_assert_uint_eq((size_t)(end - l->bytes), l->len - 1 + bytes);
    l->len += bytes;
    kv_packed_resized(l->bytes, l->len, 1);
}

static void append_text(struct list *l, const char *text)
{
    append(l, text, strlen(text));
}

static void check_text(const uint8_t *at, const char *text)
{
    char scratch[KV_INT_TEXT_MAX];
    struct kv_slice have = kv_packed_text(at, scratch);
    ck_assert_uint_eq(have.len, strlen(text));
    ck_assert_int_eq(memcmp(have.ptr, text, have.len), 0);
}

/* Encodings as the format's description gives them. */
START_TEST(every_number_has_its_shortest_form)
{
    static const struct {
        const char *text;
        uint8_t body[9];
        size_t len;
    } cases[] = {
        {"0", {0x00}, 1},
        {"127", {0x7f}, 1},
        {"128", {0xc0, 0x80}, 2},
        {"-1", {0xdf, 0xff}, 2},
        {"4095", {0xcf, 0xff}, 2},
        {"-4096", {0xd0, 0x00}, 2},
        {"4096", {0xf1, 0x00, 0x10}, 3},
        {"-32768", {0xf1, 0x00, 0x80}, 3},
        {"32768", {0xf2, 0x00, 0x80, 0x00}, 4},
        {"-8388608", {0xf2, 0x00, 0x00, 0x80}, 4},
        {"8388608", {0xf3, 0x00, 0x00, 0x80, 0x00}, 5},
        {"-2147483648", {0xf3, 0x00, 0x00, 0x00, 0x80}, 5},
        {"2147483648", {0xf4, 0x00, 0x00, 0x00, 0x80, 0, 0, 0, 0}, 9},
        {"-9223372036854775808", {0xf4, 0, 0, 0, 0, 0, 0, 0, 0x80}, 9},
        {"9223372036854775807", {0xf4, 255, 255, 255, 255, 255, 255, 255, 0x7f}, 9},
        {"01", {0x82, '0', '1'}, 3},
        {"-0", {0x82, '-', '0'}, 3},
        {"", {0x80}, 1},
        {"a", {0x81, 'a'}, 2},
    };
    static struct list l;
    for (size_t i = 0; i < KV_ARRAY_LEN(cases); i++) {
        start(&l);
        append_text(&l, cases[i].text);
        const uint8_t *at = kv_packed_first(l.bytes);
        ck_assert_uint_eq(kv_packed_body(at), cases[i].len);
        ck_assert_int_eq(memcmp(at, cases[i].body, cases[i].len), 0);
        ck_assert_uint_eq(at[cases[i].len], cases[i].len);
        check_text(at, cases[i].text);
        ck_assert_int_eq(kv_packed_valid(l.bytes, l.len), KV_PACKED_GOOD);
    }
}
END_TEST

START_TEST(strings_of_every_length_are_walked_both_ways)
{
    static const size_t lens[] = {0,    1,    63,    64,    125,   126,   127,   128,  4093,
                                  4095, 4096, 16377, 16378, 16379, 16380, 16384, 70000};
    static struct list l;
    static char text[70000];
    memset(text, 'x', sizeof(text));
    start(&l);
    for (size_t i = 0; i < KV_ARRAY_LEN(lens); i++)
        append(&l, text, lens[i]);
    ck_assert_uint_eq(kv_packed_count(l.bytes), KV_ARRAY_LEN(lens));
    ck_assert_int_eq(kv_packed_valid(l.bytes, l.len), KV_PACKED_GOOD);
    const uint8_t *at = kv_packed_end(l.bytes);
    for (size_t i = KV_ARRAY_LEN(lens); i-- > 0;) {
        at = kv_packed_prev(l.bytes, at);
        ck_assert_ptr_nonnull(at);
        ck_assert_uint_eq(kv_packed_get(at).len, lens[i]);
        ck_assert_ptr_eq(kv_packed_seek(l.bytes, (int64_t)i), at);
        ck_assert_ptr_eq(kv_packed_seek(l.bytes, (int64_t)i - (int64_t)KV_ARRAY_LEN(lens)), at);
    }
    ck_assert_ptr_null(kv_packed_prev(l.bytes, at));
    ck_assert_ptr_null(kv_packed_seek(l.bytes, KV_ARRAY_LEN(lens)));
    ck_assert_ptr_null(kv_packed_seek(l.bytes, -(int64_t)KV_ARRAY_LEN(lens) - 1));
}
END_TEST

START_TEST(a_search_goes_on_where_it_is_told_and_wraps)
{
    static struct list l;
    start(&l);
    static const char *const items[] = {"a", "1", "b", "a", "c", "300"};
    for (size_t i = 0; i < KV_ARRAY_LEN(items); i++)
        append_text(&l, items[i]);
    struct kv_needle n;
    const uint8_t *first = kv_packed_first(l.bytes);
    const uint8_t *third = kv_packed_skip(first, 2);
    kv_needle_init(&n, KV_SLICE("a"));
    ck_assert_ptr_eq(kv_packed_find(l.bytes, first, &n, 2), first);
    ck_assert_ptr_eq(kv_packed_find(l.bytes, third, &n, 2), first);
    ck_assert_ptr_eq(kv_packed_find(l.bytes, third, &n, 1), kv_packed_skip(first, 3));
    ck_assert_ptr_eq(kv_packed_find(l.bytes, kv_packed_end(l.bytes), &n, 2), first);
    kv_needle_init(&n, KV_SLICE("300"));
    ck_assert_ptr_null(kv_packed_find(l.bytes, first, &n, 2));
    ck_assert_ptr_eq(kv_packed_find(l.bytes, first, &n, 1), kv_packed_skip(first, 5));
    kv_needle_init(&n, KV_SLICE("3000"));
    ck_assert_ptr_null(kv_packed_find(l.bytes, third, &n, 1));
}
END_TEST

START_TEST(a_count_beyond_the_head_is_walked_for)
{
    static struct list l;
    start(&l);
    for (unsigned i = 0; i < 65534; i++)
        append_text(&l, "7");
    ck_assert_uint_eq(kv_packed_count(l.bytes), 65534);
    append_text(&l, "7");
    append_text(&l, "7");
    ck_assert_uint_eq(l.bytes[4] | l.bytes[5] << 8, KV_PACKED_COUNT_UNKNOWN);
    ck_assert_uint_eq(kv_packed_count(l.bytes), 65536);
    ck_assert_int_eq(kv_packed_valid(l.bytes, l.len), KV_PACKED_GOOD);
}
END_TEST

START_TEST(foreign_bytes_are_looked_at_and_not_past)
{
    static struct list l;
    start(&l);
    append_text(&l, "field");
    append_text(&l, "12345");
    append_text(&l, "");
    uint8_t *copy = malloc(l.len); /* its end is watched by the sanitizer */
    for (size_t i = 0; i < l.len; i++) {
        for (unsigned value = 0; value < 256; value++) {
            memcpy(copy, l.bytes, l.len);
            copy[i] = (uint8_t)value;
            enum kv_packed_verdict verdict = kv_packed_valid(copy, l.len);
            if (value == l.bytes[i])
                ck_assert_int_eq(verdict, KV_PACKED_GOOD);
            if (i < 4 && value != l.bytes[i])
                ck_assert_int_eq(verdict, KV_PACKED_BROKEN);
        }
    }
    for (size_t len = 0; len < l.len; len++)
        ck_assert_int_eq(kv_packed_valid(l.bytes, len), KV_PACKED_BROKEN);
    /* A number that is written as text. */
    static const uint8_t text_number[] = {11, 0, 0, 0, 1, 0, 0x82, '1', '2', 3, 0xff};
    ck_assert_int_eq(kv_packed_valid(text_number, sizeof(text_number)), KV_PACKED_FOREIGN);
    struct kv_packed_facts facts = kv_packed_look(l.bytes, l.len);
    ck_assert_uint_eq(facts.count, 3);
    ck_assert_uint_eq(facts.longest, 5);
    free(copy);
}
END_TEST

/* Integers around every border, in every form that holds them: only the shortest is ours. */
START_TEST(an_integer_in_a_longer_form_is_foreign)
{
    static const int64_t borders[] = {
        0,        127,     128,       4095,       4096,      32767,     32768,
        8388607,  8388608, INT32_MAX, 2147483648, INT64_MAX, -1,        -4096,
        -4097,    -32768,  -32769,    -8388608,   -8388609,  INT32_MIN, INT32_MIN - INT64_C(1),
        INT64_MIN};
    static const struct {
        uint8_t head;
        unsigned bytes;
    } forms[] = {{0xf1, 2}, {0xf2, 3}, {0xf3, 4}, {0xf4, 8}};
    for (size_t i = 0; i < KV_ARRAY_LEN(borders); i++) {
        struct kv_needle shortest;
        kv_needle_init_int(&shortest, borders[i]);
        for (size_t j = 0; j < KV_ARRAY_LEN(forms); j++) {
            unsigned bytes = forms[j].bytes, unused = 64 - 8 * bytes;
            if ((int64_t)((uint64_t)borders[i] << unused) >> unused != borders[i])
                continue;
            uint8_t list[17] = {(uint8_t)(9 + bytes), 0, 0, 0, 1, 0, forms[j].head};
            memcpy(list + 7, &borders[i], bytes);
            list[7 + bytes] = (uint8_t)(1 + bytes);
            list[8 + bytes] = 0xff;
            enum kv_packed_verdict want =
                shortest.head[0] == forms[j].head ? KV_PACKED_GOOD : KV_PACKED_FOREIGN;
            ck_assert_int_eq(kv_packed_valid(list, 9 + bytes), want);
        }
        if (borders[i] < -4096 || borders[i] > 4095)
            continue;
        uint8_t list[] = {10,
                          0,
                          0,
                          0,
                          1,
                          0,
                          (uint8_t)(0xc0 | ((uint64_t)borders[i] >> 8 & 0x1f)),
                          (uint8_t)borders[i],
                          2,
                          0xff};
        ck_assert_int_eq(kv_packed_valid(list, sizeof(list)),
                         borders[i] >= 0 && borders[i] < 128 ? KV_PACKED_FOREIGN : KV_PACKED_GOOD);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "packed");
    unit_add(&u, every_number_has_its_shortest_form);
    unit_add(&u, an_integer_in_a_longer_form_is_foreign);
    unit_add(&u, strings_of_every_length_are_walked_both_ways);
    unit_add(&u, a_search_goes_on_where_it_is_told_and_wraps);
    unit_add(&u, a_count_beyond_the_head_is_walked_for);
    unit_add(&u, foreign_bytes_are_looked_at_and_not_past);
    return unit_run(&u);
}
