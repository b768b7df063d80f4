/* Words of configuration lines, and the text they are quoted into. */
#include "admin/text.h"
#include "admin/words.h"
#include "unit.h"

static struct kv_arena arena;

static void setup(void)
{
    kv_mem_init();
    kv_arena_init(&arena, 1024, KV_MEM_CONFIG);
}

static void teardown(void)
{
    kv_arena_release(&arena);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CONFIG), 0);
}

static void expect(const char *line, int count, const char *const *words)
{
    struct kv_words got;
    ck_assert_int_eq(kv_words_split(&arena, kv_slice_cstr(line), &got), KV_OK);
    ck_assert_msg(got.count == count, "%s: %d words", line, got.count);
    for (int i = 0; i < count; i++)
        ck_assert_msg(kv_slice_equal(got.items[i], kv_slice_cstr(words[i])),
                      "%s: word %d is '%.*s'", line, i, (int)got.items[i].len, got.items[i].ptr);
}

#define EXPECT(line, ...)                                                                          \
    do {                                                                                           \
        static const char *const words[] = {__VA_ARGS__};                                          \
        expect(line, (int)KV_ARRAY_LEN(words), words);                                             \
    } while (0)

START_TEST(white_space_separates_words)
{
    expect("", 0, NULL);
    expect(" \t \r\n", 0, NULL);
    EXPECT("port 6379", "port", "6379");
    EXPECT("  save \t 900\t1 \r", "save", "900", "1");
}
END_TEST

START_TEST(double_quotes_keep_spaces_and_know_escapes)
{
    EXPECT("a \"b c\"", "a", "b c");
    EXPECT("a \"\"", "a", "");
    EXPECT("a \"\\x41\\x6a\\n\\\"\\\\\\q\"", "a", "Aj\n\"\\q");
    EXPECT("a \"\\xZZ\"", "a", "xZZ");
    EXPECT("ab\"c d\" e", "abc d", "e");
    EXPECT("a \"it's\"", "a", "it's");
}
END_TEST

START_TEST(single_quotes_keep_everything_but_their_own_escape)
{
    EXPECT("a 'b \\x41 \"'", "a", "b \\x41 \"");
    EXPECT("a 'it\\'s'", "a", "it's");
    EXPECT("a ''", "a", "");
}
END_TEST

START_TEST(unbalanced_quotes_are_an_error)
{
    static const char *const lines[] = {"a \"b", "a 'b",    "a \"b\"c",  "a 'b'c",
                                        "\"",    "a \"b\\", "a \"b\\\"", "'\\'"};
    for (size_t i = 0; i < KV_ARRAY_LEN(lines); i++) {
        struct kv_words got;
        ck_assert_msg(kv_words_split(&arena, kv_slice_cstr(lines[i]), &got) == KV_ERR_SYNTAX, "%s",
                      lines[i]);
    }
}
END_TEST

START_TEST(what_is_quoted_splits_back_into_the_same_bytes)
{
    struct kv_random random;
    kv_random_init(&random, unit_seed("what_is_quoted_splits_back"));
    for (int round = 0; round < UNIT_ROUNDS(2000); round++) {
        char bytes[40];
        size_t len = kv_random_below(&random, sizeof(bytes));
        for (size_t i = 0; i < len; i++)
            bytes[i] = (char)kv_random_next(&random);
        struct kv_text text;
        struct kv_words got;
        kv_text_init(&text);
        kv_text_append(&text, KV_SLICE("name "));
        kv_text_append_quoted(&text, kv_slice(bytes, len));
        ck_assert_int_eq(kv_words_split(&arena, kv_text_slice(&text), &got), KV_OK);
        ck_assert_int_eq(got.count, 2);
        ck_assert(kv_slice_equal(got.items[1], kv_slice(bytes, len)));
        kv_text_release(&text);
        kv_arena_reset(&arena);
    }
}
END_TEST

START_TEST(plain_splitting_leaves_quotes_alone)
{
    struct kv_words got;
    ck_assert_int_eq(kv_words_split_plain(&arena, KV_SLICE(" \"a  b' "), &got), KV_OK);
    ck_assert_int_eq(got.count, 2);
    ck_assert(kv_slice_equal(got.items[0], KV_SLICE("\"a")));
    ck_assert(kv_slice_equal(got.items[1], KV_SLICE("b'")));
}
END_TEST

START_TEST(a_text_grows_and_stays_terminated)
{
    struct kv_text text;
    kv_text_init(&text);
    ck_assert_str_eq(kv_text_cstr(&text), "");
    for (int i = 0; i < 1000; i++)
        kv_text_printf(&text, "%d,", i % 10);
    ck_assert_uint_eq(text.len, 2000);
    ck_assert_uint_eq(strlen(kv_text_cstr(&text)), 2000);
    ck_assert(!text.failed);
    kv_text_clear(&text);
    ck_assert_str_eq(kv_text_cstr(&text), "");
    kv_text_release(&text);
}
END_TEST

#ifdef KV_DEBUG
START_TEST(a_text_without_memory_keeps_what_it_has)
{
    struct kv_text text;
    char big[4000];
    memset(big, 'x', sizeof(big));
    kv_text_init(&text);
    kv_text_append(&text, KV_SLICE("kept"));
    kv_mem_fail_try(1);
    kv_text_append(&text, kv_slice(big, sizeof(big)));
    kv_mem_fail_try(0);
    ck_assert(text.failed);
    ck_assert_str_eq(kv_text_cstr(&text), "kept");
    kv_text_release(&text);
}
END_TEST
#endif

int main(void)
{
    struct unit u;
    unit_begin(&u, "words");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, white_space_separates_words);
    unit_add(&u, double_quotes_keep_spaces_and_know_escapes);
    unit_add(&u, single_quotes_keep_everything_but_their_own_escape);
    unit_add(&u, unbalanced_quotes_are_an_error);
    unit_add(&u, what_is_quoted_splits_back_into_the_same_bytes);
    unit_add(&u, plain_splitting_leaves_quotes_alone);
    unit_add(&u, a_text_grows_and_stays_terminated);
#ifdef KV_DEBUG
    unit_add(&u, a_text_without_memory_keeps_what_it_has);
#endif
    return unit_run(&u);
}
