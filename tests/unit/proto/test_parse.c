/* proto/parse.h, whole commands in a buffer: what is a command, what is an error and with which
 * text, what is incomplete; and the splitting of inline lines. */
#include "proto/parse.h"
#include "unit.h"

static struct kv_arena arena;
static const struct kv_parse_limits known = {.bulk_max = 1 << 20, .authenticated = true};
static const struct kv_parse_limits stranger = {.bulk_max = 1 << 20, .authenticated = false};

static void setup(void)
{
    kv_arena_init(&arena, 32 * 1024, KV_MEM_ARENA);
}

static void teardown(void)
{
    kv_arena_release(&arena);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}

/* Parses a copy in a block of exactly its size, so that sanitizers see a read behind it. */
static enum kv_parse_status parse(const char *bytes, size_t len,
                                  const struct kv_parse_limits *limits, struct kv_request *r,
                                  const char **copy)
{
    char *p = malloc(len + (len == 0));
    ck_assert_ptr_nonnull(p);
    memcpy(p, bytes, len);
    memset(r, 0, sizeof(*r));
    kv_arena_reset(&arena);
    *copy = p;
    return kv_parse(p, p + len, limits, &arena, r);
}

/* Arguments joined by '|' as expected, and how many bytes the command takes. */
static void check_command(const char *bytes, size_t len, const char *expected, size_t used)
{
    struct kv_request r;
    const char *copy;
    char got[512] = "";
    ck_assert_int_eq(parse(bytes, len, &known, &r, &copy), KV_PARSE_OK);
    size_t at = 0;
    for (int i = 0; i < r.argc; i++) {
        ck_assert_uint_lt(at + r.argv[i].len + 2, sizeof(got));
        if (i > 0)
            got[at++] = '|';
        memcpy(got + at, r.argv[i].ptr, r.argv[i].len);
        at += r.argv[i].len;
    }
    ck_assert_uint_eq(at, strlen(expected));
    ck_assert_mem_eq(got, expected, at);
    ck_assert_ptr_eq(r.start, copy);
    ck_assert_int_eq((int)(r.next - copy), (int)used);
    free((char *)(uintptr_t)copy);
}

static enum kv_parse_status status_of(const char *bytes, size_t len,
                                      const struct kv_parse_limits *limits, char error[80])
{
    struct kv_request r;
    const char *copy;
    enum kv_parse_status st = parse(bytes, len, limits, &r, &copy);
    if (error != NULL)
        memcpy(error, r.error, sizeof(r.error));
    free((char *)(uintptr_t)copy);
    return st;
}

#define COMMAND(literal, expected)                                                                 \
    check_command((literal), sizeof(literal) - 1, (expected), sizeof(literal) - 1)

START_TEST(an_array_of_bulks_is_a_command)
{
    COMMAND("*1\r\n$4\r\nPING\r\n", "PING");
    COMMAND("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n", "SET|k|hello");
    COMMAND("*2\r\n$0\r\n\r\n$2\r\n\r\n\r\n", "|\r\n");
    COMMAND("*1\r\n$12\r\nabcdefghijkl\r\n", "abcdefghijkl");
    COMMAND("*10\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n$1\r\nd\r\n$1\r\ne\r\n$1\r\nf\r\n$1\r\ng\r\n"
            "$1\r\nh\r\n$1\r\ni\r\n$1\r\nj\r\n",
            "a|b|c|d|e|f|g|h|i|j");
}
END_TEST

/* Length lines end at the CR; the byte after it is skipped unseen, as are the two after a bulk. */
START_TEST(line_ends_are_taken_on_trust)
{
    COMMAND("*1\rX$4\rYPINGab", "PING");
}
END_TEST

START_TEST(a_command_ends_where_the_next_begins)
{
    check_command("*1\r\n$1\r\na\r\n*1\r\n$1\r\nb\r\n", 22, "a", 11);
    check_command("a b\r\nc\r\n", 8, "a|b", 5);
}
END_TEST

START_TEST(blank_lines_and_empty_arrays_are_no_commands)
{
    static const char *const blanks[] = {"\r\n",    "\n",       "  \t \r\n", "*0\r\n",
                                         "*-1\r\n", "*-99\r\n", "\0x\r\n"};
    static const size_t lens[] = {2, 1, 6, 4, 5, 6, 4};
    for (size_t i = 0; i < KV_ARRAY_LEN(blanks); i++) {
        struct kv_request r;
        const char *copy;
        ck_assert_int_eq(parse(blanks[i], lens[i], &known, &r, &copy), KV_PARSE_EMPTY);
        ck_assert_ptr_eq(r.next, copy + lens[i]);
        free((char *)(uintptr_t)copy);
    }
}
END_TEST

struct error_case {
    const char *bytes, *text;
    const struct kv_parse_limits *limits;
};

static const struct error_case errors[] = {
    {"*x\r\n", "invalid multibulk length", &known},
    {"*\r\n", "invalid multibulk length", &known},
    {"*01\r\n", "invalid multibulk length", &known},
    {"*+1\r\n", "invalid multibulk length", &known},
    {"*1 \r\n", "invalid multibulk length", &known},
    {"*2147483648\r\n", "invalid multibulk length", &known},
    {"*99999999999999999999\r\n", "invalid multibulk length", &known},
    {"*1\r\n:1\r\n", "expected '$', got ':'", &known},
    {"*2\r\n$1\r\na\r\nhello\r\n", "expected '$', got 'h'", &known},
    {"*1\r\n$-1\r\n", "invalid bulk length", &known},
    {"*1\r\n$\r\n", "invalid bulk length", &known},
    {"*1\r\n$x\r\n", "invalid bulk length", &known},
    {"*1\r\n$007\r\n", "invalid bulk length", &known},
    {"*1\r\n$1048577\r\n", "invalid bulk length", &known},
    {"*1\r\n$99999999999999999999\r\n", "invalid bulk length", &known},
    {"*11\r\n", "unauthenticated multibulk length", &stranger},
    {"*1000\r\n", "unauthenticated multibulk length", &stranger},
    {"*1\r\n$16385\r\n", "unauthenticated bulk length", &stranger},
    {"get \"open\r\n", "unbalanced quotes in request", &known},
    {"get \"a\"b\r\n", "unbalanced quotes in request", &known},
};

START_TEST(what_does_not_parse_has_its_text)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(errors); i++) {
        char error[80], expected[80];
        const struct error_case *c = &errors[i];
        snprintf(expected, sizeof(expected), "ERR Protocol error: %s", c->text);
        ck_assert_msg(status_of(c->bytes, strlen(c->bytes), c->limits, error) == KV_PARSE_ERROR,
                      "%s", c->bytes);
        ck_assert_str_eq(error, expected);
    }
}
END_TEST

START_TEST(limits_themselves_are_allowed)
{
    ck_assert_int_eq(status_of("*10\r\n", 5, &stranger, NULL), KV_PARSE_MORE);
    ck_assert_int_eq(status_of("*1\r\n$16384\r\n", 12, &stranger, NULL), KV_PARSE_LARGE);
    ck_assert_int_eq(status_of("*1\r\n$1048576\r\n", 14, &known, NULL), KV_PARSE_LARGE);
    ck_assert_int_eq(status_of("*2147483647\r\n", 13, &known, NULL), KV_PARSE_MORE);
    ck_assert_int_eq(status_of("*1\r\n$16383\r\n", 12, &known, NULL), KV_PARSE_MORE);
}
END_TEST

/* A header may promise what it likes: memory follows the bytes at hand. */
START_TEST(a_promise_reserves_nothing)
{
    ck_assert_int_eq(status_of("*2147483647\r\n$1\r\na\r\n", 20, &known, NULL), KV_PARSE_MORE);
    ck_assert_uint_le(arena.used_bytes, kv_mem_block_size(32 * 1024 + 256));
}
END_TEST

static size_t endless(char *bytes, size_t len, const char *start)
{
    memset(bytes, '1', len);
    memcpy(bytes, start, strlen(start));
    return len;
}

START_TEST(an_endless_line_is_refused)
{
    static char bytes[KV_PARSE_INLINE_MAX + 64];
    struct {
        const char *start, *text;
    } lines[] = {{"get ", "too big inline request"},
                 {"*", "too big mbulk count string"},
                 {"*1\r\n$", "too big bulk count string"},
                 {"*1\r\nx", "too big bulk count string"}};
    for (size_t i = 0; i < KV_ARRAY_LEN(lines); i++) {
        char error[80], expected[80];
        size_t head = strlen(lines[i].start);
        snprintf(expected, sizeof(expected), "ERR Protocol error: %s", lines[i].text);
        size_t len = endless(bytes, KV_PARSE_INLINE_MAX + head + 1, lines[i].start);
        ck_assert_int_eq(status_of(bytes, len, &known, error), KV_PARSE_ERROR);
        ck_assert_str_eq(error, expected);
        ck_assert_int_eq(status_of(bytes, KV_PARSE_INLINE_MAX - 1, &known, NULL), KV_PARSE_MORE);
    }
}
END_TEST

static size_t put_bulk(char *to, const char *bytes, size_t len)
{
    size_t n = (size_t)sprintf(to, "$%zu\r\n", len);
    memcpy(to + n, bytes, len);
    memcpy(to + n + len, "\r\n", 2);
    return n + len + 2;
}

/* Random commands: whole they parse to their arguments, every prefix is incomplete. */
START_TEST(every_prefix_of_a_command_is_incomplete)
{
    static char line[64 * 1024], source[20 * 1024];
    struct kv_random r;
    kv_random_init(&r, unit_seed("parse"));
    for (size_t i = 0; i < sizeof(source); i++)
        source[i] = (char)kv_random_next(&r);
    for (int round = 0; round < UNIT_ROUNDS(300); round++) {
        struct kv_slice args[20];
        int argc = 1 + (int)kv_random_below(&r, KV_ARRAY_LEN(args));
        size_t len = (size_t)sprintf(line, "*%d\r\n", argc);
        bool large = false;
        for (int i = 0; i < argc; i++) {
            size_t most = kv_random_below(&r, 40) == 0 && !large ? 17000 : 1 << (i % 11);
            args[i] = kv_slice(source + kv_random_below(&r, 64), kv_random_below(&r, most));
            large |= args[i].len > 4000;
            len += put_bulk(line + len, args[i].ptr, args[i].len);
        }
        struct kv_request q;
        const char *copy;
        ck_assert_int_eq(parse(line, len, &known, &q, &copy), KV_PARSE_OK);
        ck_assert_int_eq(q.argc, argc);
        for (int i = 0; i < argc; i++)
            ck_assert(kv_slice_equal(q.argv[i], args[i]));
        free((char *)(uintptr_t)copy);
        size_t step = large ? 97 : 1 + len / 200;
        for (size_t cut = 0; cut < len; cut += step) {
            enum kv_parse_status st = status_of(line, cut, &known, NULL);
            ck_assert_msg(st == KV_PARSE_MORE || st == KV_PARSE_LARGE, "cut at %zu: %d", cut, st);
        }
    }
}
END_TEST

struct line_case {
    const char *line, *words; /* words joined by '|'; NULL: unbalanced */
    int argc;
};

static const struct line_case lines[] = {
    {"", "", 0},
    {" \t\v\f\r ", "", 0},
    {"set a b", "set|a|b", 3},
    {"  set\ta   b  ", "set|a|b", 3},
    {"set \"a b\" 'c d'", "set|a b|c d", 3},
    {"\"\" ''", "|", 2},
    {"\"\\n\\r\\t\\b\\a\\\\\\\"\\q\"", "\n\r\t\b\a\\\"q", 1},
    {"\"\\x41\\x6a\\xfF\"", "Aj\xff", 1},
    {"\"\\xg1\\x1\"", "xg1x1", 1},
    {"'it\\'s \\n'", "it's \\n", 1},
    {"a\"b c\"", "ab c", 1},
    {"a'b c' d", "ab c|d", 2},
    {"\"open", NULL, -1},
    {"'open", NULL, -1},
    {"\"a\"b", NULL, -1},
    {"'a'b", NULL, -1},
    {"\"a\\\"", NULL, -1},
    {"\\x41 \\n", "\\x41|\\n", 2},
};

START_TEST(lines_split_into_words)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(lines); i++) {
        struct kv_slice *argv;
        char got[128] = "";
        kv_arena_reset(&arena);
        int argc = kv_parse_line(kv_slice_cstr(lines[i].line), &arena, &argv);
        ck_assert_msg(argc == lines[i].argc, "<%s>: %d words", lines[i].line, argc);
        for (int w = 0; w < argc; w++) {
            ck_assert_uint_lt(strlen(got) + argv[w].len + 2, sizeof(got));
            strcat(got, w > 0 ? "|" : "");
            strncat(got, argv[w].ptr, argv[w].len);
        }
        if (argc >= 0)
            ck_assert_str_eq(got, lines[i].words);
    }
}
END_TEST

START_TEST(a_nul_ends_a_line)
{
    struct kv_slice *argv;
    ck_assert_int_eq(kv_parse_line(KV_SLICE("a b\0c d"), &arena, &argv), 2);
    ck_assert_int_eq(kv_parse_line(KV_SLICE("\0c d"), &arena, &argv), 0);
    ck_assert_int_eq(kv_parse_line(kv_slice(NULL, 0), &arena, &argv), 0);
}
END_TEST

/* Every line of words that are one byte each needs the most slices a line can. */
START_TEST(a_line_of_single_letters_fits)
{
    static char line[2001];
    struct kv_slice *argv;
    for (size_t i = 0; i < sizeof(line); i++)
        line[i] = i % 2 == 0 ? 'x' : ' ';
    ck_assert_int_eq(kv_parse_line(kv_slice(line, sizeof(line)), &arena, &argv), 1001);
    for (int i = 0; i < 1001; i++)
        ck_assert(kv_slice_equal(argv[i], KV_SLICE("x")));
}
END_TEST

int main(void)
{
    struct unit u;
    kv_mem_init();
    unit_begin(&u, "parse");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, an_array_of_bulks_is_a_command);
    unit_add(&u, line_ends_are_taken_on_trust);
    unit_add(&u, a_command_ends_where_the_next_begins);
    unit_add(&u, blank_lines_and_empty_arrays_are_no_commands);
    unit_add(&u, what_does_not_parse_has_its_text);
    unit_add(&u, limits_themselves_are_allowed);
    unit_add(&u, a_promise_reserves_nothing);
    unit_add(&u, an_endless_line_is_refused);
    unit_add(&u, every_prefix_of_a_command_is_incomplete);
    unit_add(&u, lines_split_into_words);
    unit_add(&u, a_nul_ends_a_line);
    unit_add(&u, a_line_of_single_letters_fits);
    return unit_run(&u);
}
