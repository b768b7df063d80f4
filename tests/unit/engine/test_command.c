/* Key specifications applied to command lines: kv_command_keys and kv_command_sub. */
#include "engine/command.h"

#include "unit.h"

#define LINE_MAX_WORDS 32
#define ONE_KEY(index, last, step_, limit_)                                                        \
    {                                                                                              \
        .flags = KV_KEY_RO, .begin = KV_BEGIN_INDEX, .begin_index = (index),                       \
        .find = KV_FIND_RANGE, .a = (last), .b = (step_), .c = (limit_)                            \
    }

struct line {
    struct kv_slice argv[LINE_MAX_WORDS];
    int argc;
};

/* Splits at single spaces. */
static struct line line_of(const char *text)
{
    struct line line = {.argc = 0};
    for (const char *p = text; *p != '\0';) {
        size_t len = strcspn(p, " ");
        line.argv[line.argc++] = kv_slice(p, len);
        p += len;
        p += *p == ' ';
    }
    return line;
}

/* Runs the specifications over the line; compares the positions with `expected` ("1 3"), or the
 * failure with NULL. */
static void check_keys(const struct kv_keyspec *specs, int count, const char *text,
                       const char *expected)
{
    struct kv_command cmd = {
        .name = "x", .full_name = "x", .keyspecs = specs, .keyspec_count = (uint8_t)count};
    struct line line = line_of(text);
    int positions[LINE_MAX_WORDS];
    uint32_t flags[LINE_MAX_WORDS];
    int found = kv_command_keys(&cmd, line.argv, line.argc, positions, flags, LINE_MAX_WORDS);
    if (expected == NULL) {
        ck_assert_msg(found == -1, "'%s': %d instead of a failure", text, found);
        return;
    }
    char actual[256] = "";
    for (int i = 0; i < found; i++) {
        ck_assert_uint_ne(flags[i], 0);
        ck_assert_int_lt(positions[i], line.argc);
        snprintf(actual + strlen(actual), 16, i == 0 ? "%d" : " %d", positions[i]);
    }
    ck_assert_str_eq(actual, expected);
}

START_TEST(finds_a_key_at_a_fixed_argument)
{
    static const struct kv_keyspec spec[] = {ONE_KEY(1, 0, 1, 0)};
    check_keys(spec, 1, "get k", "1");
    check_keys(spec, 1, "set k v ex 10", "1");
    check_keys(spec, 1, "get", NULL);
    static const struct kv_keyspec second[] = {ONE_KEY(2, 0, 1, 0)};
    check_keys(second, 1, "object freq k", "2");
    check_keys(second, 1, "object freq", NULL);
}
END_TEST

START_TEST(finds_keys_up_to_the_end)
{
    static const struct kv_keyspec all[] = {ONE_KEY(1, -1, 1, 0)};
    check_keys(all, 1, "mget a b c", "1 2 3");
    check_keys(all, 1, "mget", NULL);
    static const struct kv_keyspec pairs[] = {ONE_KEY(1, -1, 2, 0)};
    check_keys(pairs, 1, "mset a 1 b 2", "1 3");
    check_keys(pairs, 1, "mset a 1 b", "1 3");
    static const struct kv_keyspec but_last[] = {ONE_KEY(1, -2, 1, 0)};
    check_keys(but_last, 1, "blpop a b 0", "1 2");
    check_keys(but_last, 1, "blpop 0", NULL);
}
END_TEST

START_TEST(finds_two_keys_of_one_range)
{
    static const struct kv_keyspec spec[] = {ONE_KEY(1, 1, 1, 0)};
    check_keys(spec, 1, "lcs a b len", "1 2");
    check_keys(spec, 1, "lcs a", NULL);
}
END_TEST

START_TEST(joins_specifications_in_order)
{
    static const struct kv_keyspec spec[] = {ONE_KEY(2, 0, 1, 0), ONE_KEY(3, -1, 1, 0)};
    check_keys(spec, 2, "bitop and d a b", "2 3 4");
    check_keys(spec, 2, "pfmerge x d", "2"); /* the rest may be empty, what is before it not */
    check_keys(spec, 2, "bitop and", NULL);
}
END_TEST

START_TEST(counts_keys_by_a_number)
{
    static const struct kv_keyspec spec[] = {{.flags = KV_KEY_OW,
                                              .begin = KV_BEGIN_INDEX,
                                              .begin_index = 1,
                                              .find = KV_FIND_KEYNUM,
                                              .a = 0,
                                              .b = 1,
                                              .c = 2}};
    check_keys(spec, 1, "msetex 1 a 1", "2");
    check_keys(spec, 1, "msetex 2 a 1 b 2 ex 10", "2 4");
    check_keys(spec, 1, "msetex 2 a 1 b", "2 4");
    check_keys(spec, 1, "msetex 3 a 1 b 2", NULL);
}
END_TEST

START_TEST(refuses_bad_numbers_of_keys)
{
    static const struct kv_keyspec spec[] = {{.flags = KV_KEY_OW,
                                              .begin = KV_BEGIN_INDEX,
                                              .begin_index = 1,
                                              .find = KV_FIND_KEYNUM,
                                              .a = 0,
                                              .b = 1,
                                              .c = 2}};
    static const char *const lines[] = {
        "x",
        "x 0 a 1",
        "x -1 a 1",
        "x 01 a 1",
        "x +1 a 1",
        "x one a 1",
        "x 2147483647 a 1",
        "x 4294967297 a 1",
        "x 9223372036854775807 a 1",
        "x -9223372036854775808 a 1",
        "x 9223372036854775808 a 1",
        "x 1",
    };
    for (size_t i = 0; i < KV_ARRAY_LEN(lines); i++)
        check_keys(spec, 1, lines[i], NULL);
}
END_TEST

START_TEST(searches_a_keyword_from_the_front)
{
    static const struct kv_keyspec spec[] = {{.flags = KV_KEY_RO,
                                              .begin = KV_BEGIN_KEYWORD,
                                              .begin_index = 1,
                                              .begin_keyword = "STREAMS",
                                              .find = KV_FIND_RANGE,
                                              .a = -1,
                                              .b = 1,
                                              .c = 2}};
    check_keys(spec, 1, "xread streams a b 0 0", "2 3");
    check_keys(spec, 1, "xread COUNT 1 StReAmS a 0", "4");
    check_keys(spec, 1, "xread count 1", "");
    check_keys(spec, 1, "xread count streams", "");
    check_keys(spec, 1, "xread streamsx a b", "");
    check_keys(spec, 1, "xread stream a b", "");
    check_keys(spec, 1, "xread streams a", NULL);
}
END_TEST

START_TEST(searches_a_keyword_from_the_end)
{
    static const struct kv_keyspec spec[] = {{.flags = KV_KEY_RW,
                                              .begin = KV_BEGIN_KEYWORD,
                                              .begin_index = -2,
                                              .begin_keyword = "KEYS",
                                              .find = KV_FIND_RANGE,
                                              .a = -1,
                                              .b = 1,
                                              .c = 0}};
    check_keys(spec, 1, "migrate host port keys 0 10 keys a", "7");
    check_keys(spec, 1, "migrate host port k 0 10 keys a b", "7 8");
    check_keys(spec, 1, "migrate host port k 0 10", "");
    check_keys(spec, 1, "migrate", "");
}
END_TEST

static int key_unless_empty(const struct kv_slice *argv, int argc)
{
    return argc > 1 && argv[1].len == 1 && argv[1].ptr[0] == '-' ? 0 : 1;
}

START_TEST(asks_a_function_whether_there_is_a_key_at_a_place)
{
    static const struct kv_keyspec spec[] = {{.flags = KV_KEY_RW,
                                              .begin = KV_BEGIN_INDEX,
                                              .begin_index = 1,
                                              .find = KV_FIND_RANGE,
                                              .b = 1,
                                              .find_key = key_unless_empty},
                                             {.flags = KV_KEY_RW,
                                              .begin = KV_BEGIN_KEYWORD,
                                              .begin_index = -2,
                                              .begin_keyword = "KEYS",
                                              .find = KV_FIND_RANGE,
                                              .a = -1,
                                              .b = 1}};
    check_keys(spec, 2, "move k", "1");
    check_keys(spec, 2, "move - keys a b", "3 4");
    check_keys(spec, 2, "move - x", "");
    check_keys(spec, 2, "move k keys a", "1 3");
}
END_TEST

static int third_word(const struct kv_slice *argv, int argc)
{
    return argc > 3 && kv_slice_is(argv[2], "to") ? 3 : 0;
}

START_TEST(asks_a_function_for_a_key_that_no_specification_finds)
{
    static const struct kv_keyspec spec[] = {
        ONE_KEY(1, 0, 1, 0),
        {.flags = KV_KEY_RO, .begin = KV_BEGIN_UNKNOWN, .find = KV_FIND_UNKNOWN},
        {.flags = KV_KEY_OW,
         .begin = KV_BEGIN_UNKNOWN,
         .find = KV_FIND_UNKNOWN,
         .find_key = third_word},
    };
    check_keys(spec, 3, "sort k to d", "1 3");
    check_keys(spec, 3, "sort k to", "1");
    check_keys(spec, 3, "sort k by d", "1");
    check_keys(spec, 3, "sort", NULL);
}
END_TEST

static bool has_three_words(const struct kv_slice *argv, int argc)
{
    return argv[0].len != 0 && argc == 3;
}

START_TEST(a_line_may_need_the_gate_where_its_command_does_not)
{
    struct kv_command cmd = {.name = "x", .mode = KV_MODE_KEYS};
    struct line line = line_of("x y z");
    ck_assert_int_eq(kv_command_mode(&cmd, line.argv, 3), KV_MODE_KEYS);
    cmd.flags = KV_CMD_MAY_ALONE;
    cmd.alone = has_three_words;
    ck_assert_int_eq(kv_command_mode(&cmd, line.argv, 3), KV_MODE_ALONE);
    ck_assert_int_eq(kv_command_mode(&cmd, line.argv, 2), KV_MODE_KEYS);
}
END_TEST

START_TEST(leaves_out_what_is_not_a_key)
{
    static const struct kv_keyspec spec[] = {{.flags = KV_KEY_RO | KV_KEY_NOT_KEY,
                                              .begin = KV_BEGIN_INDEX,
                                              .begin_index = 1,
                                              .find = KV_FIND_RANGE,
                                              .b = 1}};
    check_keys(spec, 1, "spublish channel text", "");
}
END_TEST

START_TEST(tells_how_many_there_are_when_space_is_short)
{
    static const struct kv_keyspec spec[] = {ONE_KEY(1, -1, 1, 0)};
    struct kv_command cmd = {
        .name = "x", .full_name = "x", .keyspecs = spec, .keyspec_count = 1, .arity = -2};
    struct line line = line_of("mget a b c d");
    int positions[3] = {0, 0, -7};
    ck_assert_int_eq(kv_command_keys(&cmd, line.argv, line.argc, positions, NULL, 2), 4);
    ck_assert_int_eq(positions[0], 1);
    ck_assert_int_eq(positions[1], 2);
    ck_assert_int_eq(positions[2], -7);
    ck_assert_int_eq(kv_command_keys(&cmd, line.argv, line.argc, NULL, NULL, 0), 4);
    cmd.keyspec_count = 0;
    ck_assert_int_eq(kv_command_keys(&cmd, line.argv, line.argc, positions, NULL, 2), 0);
}
END_TEST

START_TEST(finds_subcommands_in_any_case)
{
    static const struct kv_command parent;
    static const struct kv_command subs[] = {
        {.name = "get", .parent = &parent},
        {.name = "getkeys", .parent = &parent},
        {.name = "getkeysandflags", .parent = &parent},
        {.name = "no-evict", .parent = &parent},
        {.name = "no-touch", .parent = &parent},
    };
    struct kv_command container = {.name = "c", .subs = subs, .sub_count = KV_ARRAY_LEN(subs)};
    for (size_t i = 0; i < KV_ARRAY_LEN(subs); i++)
        ck_assert_ptr_eq(kv_command_sub(&container, kv_slice_cstr(subs[i].name)), &subs[i]);
    ck_assert_ptr_eq(kv_command_sub(&container, KV_SLICE("GetKeys")), &subs[1]);
    ck_assert_ptr_eq(kv_command_sub(&container, KV_SLICE("NO-TOUCH")), &subs[4]);
    static const struct kv_slice unknown[] = {
        {"", 0},
        {NULL, 0},
        {"ge", 2},
        {"getk", 4},
        {"getkeysx", 8},
        {"get\0", 4},
        {"\xff\xfe", 2},
        {"no_evict", 8},
        {"\0", 1},
        {"zzzz", 4},
        {"getkeysandflagss", 16},
    };
    for (size_t i = 0; i < KV_ARRAY_LEN(unknown); i++)
        ck_assert_ptr_null(kv_command_sub(&container, unknown[i]));
    container.sub_count = 0;
    container.subs = NULL;
    ck_assert_ptr_null(kv_command_sub(&container, KV_SLICE("get")));
}
END_TEST

/* A naive reading of one specification of one key range, for lines without a keyword. */
static int model_keys(const struct kv_keyspec *spec, const struct line *line, int *positions)
{
    int64_t first = spec->begin_index;
    int64_t last;
    int64_t step = spec->b;
    if (spec->find == KV_FIND_RANGE) {
        last = spec->a >= 0 ? first + spec->a : line->argc + spec->a;
    } else {
        if (first + spec->a >= line->argc)
            return -1;
        int64_t count = strtoll(line->argv[first + spec->a].ptr, NULL, 10);
        first += spec->b;
        step = spec->c;
        last = first + (count - 1) * step;
    }
    if (first >= line->argc || last >= line->argc || last < first)
        return -1;
    int found = 0;
    for (int64_t i = first; i <= last; i += step)
        positions[found++] = (int)i;
    return found;
}

START_TEST(agrees_with_a_naive_reading)
{
    static const char *const words[] = {"a", "0", "1", "2", "3", "7", "-1", "100000"};
    struct kv_random random;
    kv_random_init(&random, unit_seed("agrees_with_a_naive_reading"));
    for (int round = 0; round < UNIT_ROUNDS(100000); round++) {
        struct kv_keyspec spec = {.flags = KV_KEY_RO, .begin = KV_BEGIN_INDEX};
        spec.begin_index = (int16_t)(1 + kv_random_below(&random, 4));
        spec.find = (uint8_t)kv_random_below(&random, 2);
        spec.a = (int16_t)(spec.find == KV_FIND_RANGE ? (int)kv_random_below(&random, 6) - 3
                                                      : (int)kv_random_below(&random, 3));
        spec.b = (int16_t)(1 + kv_random_below(&random, 3));
        spec.c = (int16_t)(spec.find == KV_FIND_RANGE ? 0 : 1 + kv_random_below(&random, 3));
        struct line line = {.argc = (int)(1 + kv_random_below(&random, 10))};
        for (int i = 0; i < line.argc; i++)
            line.argv[i] = kv_slice_cstr(words[kv_random_below(&random, KV_ARRAY_LEN(words))]);
        struct kv_command cmd = {.name = "x", .keyspecs = &spec, .keyspec_count = 1};
        int expected[LINE_MAX_WORDS];
        int actual[LINE_MAX_WORDS];
        int count = model_keys(&spec, &line, expected);
        ck_assert_int_eq(kv_command_keys(&cmd, line.argv, line.argc, actual, NULL, LINE_MAX_WORDS),
                         count);
        for (int i = 0; i < count; i++)
            ck_assert_int_eq(actual[i], expected[i]);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "command");
    unit_add(&u, finds_a_key_at_a_fixed_argument);
    unit_add(&u, finds_keys_up_to_the_end);
    unit_add(&u, finds_two_keys_of_one_range);
    unit_add(&u, joins_specifications_in_order);
    unit_add(&u, counts_keys_by_a_number);
    unit_add(&u, refuses_bad_numbers_of_keys);
    unit_add(&u, searches_a_keyword_from_the_front);
    unit_add(&u, searches_a_keyword_from_the_end);
    unit_add(&u, asks_a_function_whether_there_is_a_key_at_a_place);
    unit_add(&u, asks_a_function_for_a_key_that_no_specification_finds);
    unit_add(&u, a_line_may_need_the_gate_where_its_command_does_not);
    unit_add(&u, leaves_out_what_is_not_a_key);
    unit_add(&u, tells_how_many_there_are_when_space_is_short);
    unit_add(&u, finds_subcommands_in_any_case);
    unit_add(&u, agrees_with_a_naive_reading);
    return unit_run(&u);
}
