/* base/glob.h: a table of what the reference server answers, a naive recursive matcher as oracle,
 * and patterns that make naive matchers explode. */
#include "base/glob.h"
#include "fuzz/glob_model.h"
#include "unit.h"

struct glob_case {
    const char *pattern, *text;
    bool match;
};

static const struct glob_case exact_cases[] = {
    {"", "", true},
    {"", "a", false},
    {"*", "", true},
    {"**", "", false},
    {"*", "abc", true},
    {"**", "abc", true},
    {"?", "", false},
    {"?", "a", true},
    {"?", "ab", false},
    {"a*", "a", true},
    {"a**", "a", true},
    {"*a", "bba", true},
    {"*a", "bab", false},
    {"a*b*c", "aXXbYYc", true},
    {"a*b*c", "aXXcYYb", false},
    {"*ab*ab", "abab", true},
    {"*ab?*", "ab", false},
    {"h[ae]llo", "hello", true},
    {"h[ae]llo", "hillo", false},
    {"h[^e]llo", "hallo", true},
    {"h[^e]llo", "hello", false},
    {"h[a-c]llo", "hbllo", true},
    {"h[c-a]llo", "hbllo", true},
    {"h[a-c]llo", "hdllo", false},
    {"[]", "", false},
    {"[]", "]", false},
    {"[]a]", "a]", false},
    {"[^]", "x", true},
    {"[^]a", "xa", true},
    {"[", "[", false},
    {"[a", "a", true},
    {"[^a", "b", true},
    {"[^a", "a", false},
    {"[^", "a", true},
    {"[a-", "a", true},
    {"[a-", "-", true},
    {"[a-", "b", false},
    {"[a-]", "b", false},
    {"[a-]", "^", true},
    {"[a-]b", "ab", false},
    {"[\\]]", "]", true},
    {"[\\", "\\", true},
    {"[\\-a]", "-", true},
    {"[a\\-c]", "b", false},
    {"\\", "\\", true},
    {"a\\", "a\\", true},
    {"\\*", "*", true},
    {"\\*", "a", false},
    {"\\a", "a", true},
    {"a", "A", false},
    {"[a]", "A", false},
    {"[*]", "*", true},
    {"[?]", "a", false},
    {"[\x80-\x7f]", "a", true},
    {"[\xff-\x01]", "a", false},
};

static const struct glob_case nocase_cases[] = {
    {"SAVE", "save", true},      {"[S-S]AVE", "save", true}, {"[Z-a]ave", "save", false},
    {"[A-z]ave", "save", true},  {"[z-A]ave", "save", true}, {"[\\S]AVE", "save", false},
    {"[^S]AVE", "save", false},  {"s\\AVE*", "save", true},  {"sav[E", "save", true},
    {"sav[f-D]", "save", true},  {"sav[D-f]", "save", true}, {"sav[F-d]", "save", false},
    {"sav[d-F]", "save", false}, {"sav[^", "save", true},    {"\xe4", "\xc4", false},
};

static bool match(const char *pattern, const char *text, bool nocase)
{
    return kv_glob_match(kv_slice_cstr(pattern), kv_slice_cstr(text), nocase);
}

START_TEST(patterns_match_as_the_reference_server_does)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(exact_cases); i++) {
        const struct glob_case *c = &exact_cases[i];
        ck_assert_msg(match(c->pattern, c->text, false) == c->match, "'%s' '%s'", c->pattern,
                      c->text);
    }
    for (size_t i = 0; i < KV_ARRAY_LEN(nocase_cases); i++) {
        const struct glob_case *c = &nocase_cases[i];
        ck_assert_msg(match(c->pattern, c->text, true) == c->match, "'%s' '%s'", c->pattern,
                      c->text);
    }
}
END_TEST

START_TEST(zero_bytes_are_ordinary)
{
    ck_assert(kv_glob_match(KV_SLICE("a\0b"), KV_SLICE("a\0b"), false));
    ck_assert(!kv_glob_match(KV_SLICE("a\0b"), KV_SLICE("a\0c"), false));
    ck_assert(kv_glob_match(KV_SLICE("a?b"), KV_SLICE("a\0b"), false));
    ck_assert(kv_glob_match(KV_SLICE("[\0]"), KV_SLICE("\0"), false));
    ck_assert(kv_glob_match(kv_slice(NULL, 0), kv_slice(NULL, 0), false));
}
END_TEST

START_TEST(random_patterns_agree_with_a_naive_matcher)
{
    static const char alphabet[] = "aabbc*?[]^-\\\x80\xff";
    static struct glob_element elements[16];
    struct kv_random r;
    char pattern[12], text[8];

    kv_random_init(&r, unit_seed("glob"));
    for (int i = 0; i < UNIT_ROUNDS(500000); i++) {
        size_t pattern_len = kv_random_below(&r, sizeof(pattern) + 1);
        size_t text_len = 1 + kv_random_below(&r, sizeof(text));
        for (size_t j = 0; j < pattern_len; j++)
            pattern[j] = alphabet[kv_random_below(&r, sizeof(alphabet) - 1)];
        for (size_t j = 0; j < text_len; j++)
            text[j] = alphabet[kv_random_below(&r, sizeof(alphabet) - 1)];
        size_t count = glob_model_parse(pattern, pattern_len, elements);
        ck_assert_msg(kv_glob_match(kv_slice(pattern, pattern_len), kv_slice(text, text_len),
                                    false) == glob_model_match(elements, count, text, text_len),
                      "'%.*s' '%.*s'", (int)pattern_len, pattern, (int)text_len, text);
    }
}
END_TEST

/* A recursive matcher would need longer than the universe has existed. */
START_TEST(many_stars_cost_no_more_than_pattern_times_text)
{
    static char pattern[2001], text[20001];

    for (size_t i = 0; i + 2 < sizeof(pattern); i += 2) {
        pattern[i] = '*';
        pattern[i + 1] = 'a';
    }
    pattern[sizeof(pattern) - 1] = 'b';
    memset(text, 'a', sizeof(text));
    ck_assert(
        !kv_glob_match(kv_slice(pattern, sizeof(pattern)), kv_slice(text, sizeof(text)), false));
    text[sizeof(text) - 1] = 'b';
    ck_assert(
        kv_glob_match(kv_slice(pattern, sizeof(pattern)), kv_slice(text, sizeof(text)), false));
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "glob");
    unit_add(&u, patterns_match_as_the_reference_server_does);
    unit_add(&u, zero_bytes_are_ordinary);
    unit_add(&u, random_patterns_agree_with_a_naive_matcher);
    unit_add(&u, many_stars_cost_no_more_than_pattern_times_text);
    return unit_run(&u);
}
