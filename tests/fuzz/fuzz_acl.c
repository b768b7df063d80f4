/* Rules of users: any text ends with a verdict; what is accepted is printed as words that give the
 * same rules again, may be checked against any command line, and leaves no memory behind.
 *
 * The first byte chooses the form. 0: the rest is a users' file. 1: a `user` line's words, split as
 * those of a configuration. Else words separated by single zero bytes, as SETUSER gets them; the
 * byte is then the try allocation that fails, where builds have such. */
#include "admin/users.h"
#include "base/clock.h"
#include "base/log.h"
#include "cmd/table.h"

#define INPUT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct kv_engine *engine;

static void start(void)
{
    struct kv_options options;
    kv_mem_init();
    kv_clock_init();
    kv_log_set_level(KV_LOG_NOTHING);
    kv_options_default(&options);
    engine = kv_engine_create(&options, &kv_command_table);
}

/* Every verdict is one; what is allowed by all keys and commands is allowed. */
static void check_lines(const struct kv_acl_rules *r, struct kv_arena *arena)
{
    static const struct kv_slice lines[][4] = {
        {{"get", 3}, {"key", 3}},
        {{"mset", 4}, {"a", 1}, {"b", 1}, {"c", 1}},
        {{"publish", 7}, {"channel", 7}, {"x", 1}},
        {{"select", 6}, {"0", 1}},
        {{"psubscribe", 10}, {"a*", 2}, {"b", 1}},
        {{"sort", 4}, {"a", 1}, {"store", 5}, {"b", 1}},
    };
    for (size_t i = 0; i < KV_ARRAY_LEN(lines); i++) {
        int argc = 0, arg;
        while (argc < 4 && lines[i][argc].ptr != NULL)
            argc++;
        const struct kv_command *cmd = kv_engine_command(engine, lines[i][0]);
        KV_ASSERT(cmd != NULL);
        enum kv_acl_verdict verdict =
            kv_acl_check_rules(engine, r, cmd, lines[i], argc, arena, &arg);
        KV_ASSERT(arg >= 0 && arg < argc);
        KV_ASSERT(!r->everything || verdict == KV_ACL_ALLOWED);
        KV_ASSERT((verdict == KV_ACL_DENIED_KEY || verdict == KV_ACL_DENIED_CHANNEL) == (arg > 0));
    }
}

static void check_rules(const struct kv_acl_rules *r)
{
    struct kv_arena arena;
    struct kv_text text;
    struct kv_words words;
    struct kv_slice word;
    enum kv_acl_mistake mistake;
    kv_arena_init(&arena, 4096, KV_MEM_CONFIG);
    kv_text_init(&text);
    kv_users_print_rules(engine, r, &text);
    KV_ASSERT(kv_words_split_plain(&arena, kv_text_slice(&text), &words) == KV_OK);
    struct kv_acl_rules *again =
        kv_users_rules_of(engine, words.items, words.count, &mistake, &word);
    KV_ASSERT(again != NULL);
    KV_ASSERT(kv_acl_rules_equal(r, again));
    KV_ASSERT(r->everything == again->everything);
    check_lines(r, &arena);
    kv_acl_rules_release(again);
    kv_text_release(&text);
    kv_arena_release(&arena);
}

static void run_file(struct kv_slice text)
{
    struct kv_acl_set set = {0};
    struct kv_text errors;
    kv_text_init(&errors);
    enum kv_err err = kv_users_read(engine, text, "file", &set, &errors);
    KV_ASSERT((err == KV_OK) == (errors.len == 0));
    for (uint32_t i = 0; i < set.count; i++)
        check_rules(set.users[i]->rules);
    kv_acl_set_release(&set);
    kv_text_release(&errors);
}

static void run_line(struct kv_slice line)
{
    struct kv_arena arena;
    struct kv_words words;
    struct kv_slice word;
    enum kv_acl_mistake mistake;
    kv_arena_init(&arena, 4096, KV_MEM_CONFIG);
    if (kv_words_split(&arena, line, &words) == KV_OK) {
        struct kv_acl_rules *r =
            kv_users_rules_of(engine, words.items, words.count, &mistake, &word);
        KV_ASSERT((r != NULL) == (mistake == KV_ACL_FINE));
        if (r != NULL)
            check_rules(r);
        kv_acl_rules_release(r);
    }
    kv_arena_release(&arena);
}

/* The draft is as it was before a word that is wrong. */
static bool apply_word(struct kv_acl_draft *d, struct kv_slice word)
{
    struct kv_acl_rules *before = kv_acl_draft_pack(d);
    enum kv_acl_mistake mistake = kv_acl_draft_apply(d, word);
    if (mistake != KV_ACL_FINE && mistake != KV_ACL_NO_MEMORY && before != NULL) {
        struct kv_acl_rules *after = kv_acl_draft_pack(d);
        KV_ASSERT(after == NULL || kv_acl_rules_equal(before, after));
        kv_acl_rules_release(after);
    }
    kv_acl_rules_release(before);
    return mistake != KV_ACL_NO_MEMORY;
}

/* Words are applied whatever is wrong with those before. */
static void run_words(struct kv_slice text, uint8_t fail)
{
    struct kv_arena arena;
    struct kv_acl_draft d;
    kv_arena_init(&arena, 4096, KV_MEM_CONFIG);
    bool fine = kv_acl_draft_begin(&d, engine, &arena, NULL);
    KV_ASSERT(fine);
    (void)kv_mem_fail_try(fail >= 8 ? fail : 0);
    for (size_t begin = 0, i = 0; fine && i <= text.len; i++) {
        if (i < text.len && text.ptr[i] != '\0')
            continue;
        fine = apply_word(&d, kv_slice(text.ptr + begin, i - begin));
        begin = i + 1;
    }
    struct kv_acl_rules *r = fine ? kv_acl_draft_pack(&d) : NULL;
    (void)kv_mem_fail_try(0);
    if (r != NULL)
        check_rules(r);
    kv_acl_rules_release(r);
    kv_arena_release(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (engine == NULL)
        start();
    if (size == 0 || size > INPUT_MAX)
        return 0;
    int64_t before = kv_mem_used(KV_MEM_CONFIG);
    struct kv_slice rest = kv_slice((const char *)data + 1, size - 1);
    if (data[0] == 0)
        run_file(rest);
    else if (data[0] == 1)
        run_line(rest);
    else
        run_words(rest, data[0]);
    KV_ASSERT(kv_mem_used(KV_MEM_CONFIG) == before);
    return 0;
}
