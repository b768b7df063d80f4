/* Rules of users with the real command table: engine/acl.h against a naive model of what each word
 * does to each command, and admin/users.h, whose text must give the same rules again. */
#include "admin/users.h"
#include "base/clock.h"
#include "cmd/table.h"
#include "unit.h"

#define IDS_MAX 1024
#define WORDS_MAX 24

static struct kv_engine *engine;
static struct kv_arena arena;

static void setup(void)
{
    struct kv_options options;
    kv_mem_init();
    kv_clock_init();
    kv_options_default(&options);
    engine = kv_engine_create(&options, &kv_command_table);
    kv_arena_init(&arena, 4096, KV_MEM_CONFIG);
    ck_assert_uint_le(kv_command_table.id_count, IDS_MAX);
}

static void teardown(void)
{
    kv_arena_release(&arena);
    kv_engine_destroy(engine);
}

static struct kv_acl_rules *rules_of(const char *const *words, size_t count)
{
    struct kv_acl_draft d;
    ck_assert(kv_acl_draft_begin(&d, engine, &arena, NULL));
    for (size_t i = 0; i < count; i++)
        ck_assert_msg(kv_acl_draft_apply(&d, kv_slice_cstr(words[i])) == KV_ACL_FINE, "%s",
                      words[i]);
    struct kv_acl_rules *rules = kv_acl_draft_pack(&d);
    ck_assert_ptr_nonnull(rules);
    return rules;
}

static bool allows(const struct kv_acl_rules *r, uint32_t id)
{
    return r->selectors[0].commands[id / 64] >> (id % 64) & 1;
}

/* The text of rules, split as the words of a configuration, gives equal rules. */
static void check_round_trip(const struct kv_acl_rules *rules)
{
    struct kv_text text;
    struct kv_words words;
    enum kv_acl_mistake mistake;
    struct kv_slice word;
    kv_text_init(&text);
    kv_users_print_rules(engine, rules, &text);
    ck_assert(kv_words_split_plain(&arena, kv_text_slice(&text), &words) == KV_OK);
    struct kv_acl_rules *again =
        kv_users_rules_of(engine, words.items, words.count, &mistake, &word);
    ck_assert_msg(again != NULL, "%s: %.*s: %s", kv_text_cstr(&text), (int)word.len, word.ptr,
                  kv_acl_mistake_text(mistake));
    ck_assert_msg(kv_acl_rules_equal(rules, again), "%s", kv_text_cstr(&text));
    for (uint32_t i = 0; i < rules->selector_count; i++)
        ck_assert_mem_eq(rules->selectors[i].commands, again->selectors[i].commands,
                         (kv_command_table.id_count + 63) / 64 * sizeof(uint64_t));
    ck_assert_uint_eq(rules->block_size, again->block_size);
    kv_acl_rules_release(again);
    kv_text_release(&text);
}

/* --- commands --- */

/* Applies a word to a model of one flag a command. */
static void model_apply(bool *model, const char *word)
{
    bool allow = word[0] == '+';
    for (uint32_t id = 0; id < kv_command_table.id_count; id++) {
        const struct kv_command *cmd = kv_engine_command_by_id(engine, (uint16_t)id);
        bool fits = strcmp(word + 1, "@all") == 0 || strcmp(word + 1, cmd->full_name) == 0 ||
                    (cmd->parent != NULL && strcmp(word + 1, cmd->parent->name) == 0);
        for (uint32_t bit = 0; word[1] == '@' && bit < kv_command_table.category_count; bit++)
            fits = fits || (strcmp(word + 2, kv_command_table.categories[bit]) == 0 &&
                            cmd->acl_categories >> bit & 1);
        if (fits)
            model[id] = allow;
    }
}

static void random_word(struct kv_random *r, char out[64])
{
    const char *sign = kv_random_below(r, 2) == 0 ? "+" : "-";
    uint64_t kind = kv_random_below(r, 10);
    if (kind == 0) {
        snprintf(out, 64, "%s@all", sign);
    } else if (kind < 4) {
        uint64_t bit = kv_random_below(r, kv_command_table.category_count);
        snprintf(out, 64, "%s@%s", sign, kv_command_table.categories[bit]);
    } else if (kind < 8) { /* containers and their subcommands meet often */
        static const char *const names[] = {"client", "client|list", "client|kill", "config|get",
                                            "config", "acl|log",     "acl"};
        snprintf(out, 64, "%s%s", sign, names[kv_random_below(r, KV_ARRAY_LEN(names))]);
    } else {
        uint16_t id = (uint16_t)kv_random_below(r, kv_command_table.id_count);
        snprintf(out, 64, "%s%s", sign, kv_engine_command_by_id(engine, id)->full_name);
    }
}

START_TEST(random_words_allow_what_a_model_allows)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("random_words_allow_what_a_model_allows"));
    for (int round = 0; round < UNIT_ROUNDS(500); round++) {
        static bool model[IDS_MAX];
        char texts[WORDS_MAX][64];
        const char *words[WORDS_MAX];
        size_t count = kv_random_below(&r, WORDS_MAX);
        memset(model, 0, sizeof(model));
        for (size_t i = 0; i < count; i++) {
            random_word(&r, texts[i]);
            words[i] = texts[i];
            model_apply(model, texts[i]);
        }
        struct kv_acl_rules *rules = rules_of(words, count);
        for (uint32_t id = 0; id < kv_command_table.id_count; id++)
            ck_assert_msg(allows(rules, id) == model[id], "%s",
                          kv_engine_command_by_id(engine, (uint16_t)id)->full_name);
        check_round_trip(rules);
        kv_acl_rules_release(rules);
        kv_arena_reset(&arena);
    }
}
END_TEST

START_TEST(texts_of_all_kinds_are_read_back)
{
    static const char *const words[] = {
        "on",        ">a",           "skip-sanitize-payload",
        "~k",        "%R~r*",        "%W~\"w'",
        "~",         "&c",           "&",
        "+@read",    "+select|0",    "-get",
        "+sElEcT|X", "(~a &b +get)", "(allkeys allchannels allcommands -debug)",
        "()",
    };
    struct kv_acl_rules *rules = rules_of(words, KV_ARRAY_LEN(words));
    ck_assert_uint_eq(rules->selector_count, 4);
    ck_assert_uint_eq(rules->selectors[0].key_count, 4);
    check_round_trip(rules);
    kv_acl_rules_release(rules);
}
END_TEST

START_TEST(everything_is_all_commands_keys_and_channels)
{
    static const struct {
        const char *words[6];
        bool everything;
    } cases[] = {
        {{"+@all", "~*", "&*"}, true},
        {{"+@all", "~*", "&*", "-get", "+get"}, true},
        {{"+@all", "~*", "&*", "-get"}, false},
        {{"+@all", "~*"}, false},
        {{"+@all", "&*", "%R~*"}, false},
        {{"+@all", "&*", "%R~*", "%W~*"}, true},
        {{"(allcommands allkeys allchannels)"}, true},
        {{"+@all", "(allkeys allchannels)"}, false},
    };
    for (size_t i = 0; i < KV_ARRAY_LEN(cases); i++) {
        size_t count = 0;
        while (cases[i].words[count] != NULL)
            count++;
        struct kv_acl_rules *rules = rules_of(cases[i].words, count);
        ck_assert_msg(rules->everything == cases[i].everything, "case %zu", i);
        kv_acl_rules_release(rules);
    }
}
END_TEST

/* --- a users' file --- */

START_TEST(a_file_with_mistakes_names_lines)
{
    struct kv_acl_set set = {0};
    struct kv_text errors;
    kv_text_init(&errors);
    struct kv_slice text = KV_SLICE("user a on\nuser b +nosuch\n\nuser a off\nx\n");
    ck_assert(kv_users_read(engine, text, "f", &set, &errors) == KV_ERR_SYNTAX);
    ck_assert_ptr_nonnull(strstr(kv_text_cstr(&errors), "f:2: "));
    ck_assert_ptr_nonnull(strstr(kv_text_cstr(&errors), "found on line 4"));
    ck_assert_ptr_nonnull(strstr(kv_text_cstr(&errors), "f:5 should"));
    kv_acl_set_release(&set);
    kv_text_clear(&errors);
    text = KV_SLICE("user b on\nuser a +get\n");
    ck_assert(kv_users_read(engine, text, "f", &set, &errors) == KV_OK);
    ck_assert_uint_eq(set.count, 2);
    ck_assert(kv_slice_equal(set.users[0]->name, KV_SLICE("a")));
    ck_assert(kv_acl_replace_take(engine, &set, NULL) == KV_OK);
    ck_assert_uint_eq(kv_acl_user_count(engine), 3);
    ck_assert(kv_acl_open(engine));
    kv_text_release(&errors);
}
END_TEST

#ifdef KV_DEBUG
/* Each allocation of reading a file and of making a user fails once. */
START_TEST(a_failed_allocation_leaves_users_as_they_were)
{
    struct kv_slice text = KV_SLICE("user u on >pw ~a ~b ~c ~d ~e &x +get (+@all ~z) (+set)\n");
    int64_t before = kv_mem_used(KV_MEM_CONFIG);
    for (uint64_t n = 1;; n++) {
        struct kv_acl_set set = {0};
        struct kv_text errors;
        kv_text_init(&errors);
        kv_mem_fail_try(n);
        enum kv_err err = kv_users_read(engine, text, "f", &set, &errors);
        bool failed = kv_mem_fail_try(0) >= n;
        ck_assert(err == (failed ? KV_ERR_NOMEM : KV_OK));
        kv_acl_set_release(&set);
        kv_text_release(&errors);
        ck_assert_int_eq(kv_mem_used(KV_MEM_CONFIG), before);
        if (!failed)
            break;
        ck_assert_uint_lt(n, 100);
    }
    ck_assert_uint_eq(kv_acl_user_count(engine), 1);
}
END_TEST
#endif

int main(void)
{
    struct unit u;
    unit_begin(&u, "acl");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, random_words_allow_what_a_model_allows);
    unit_add(&u, texts_of_all_kinds_are_read_back);
    unit_add(&u, everything_is_all_commands_keys_and_channels);
    unit_add(&u, a_file_with_mistakes_names_lines);
#ifdef KV_DEBUG
    unit_add(&u, a_failed_allocation_leaves_users_as_they_were);
#endif
    return unit_run(&u);
}
