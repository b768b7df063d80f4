/* Invariants of the generated command table that the engine and COMMAND rely on. */
#include "cmd/docs.h"
#include "cmd/table.h"

#include "unit.h"

#define IDS_MAX 4096

static bool seen[IDS_MAX];

static bool is_lower(const char *text)
{
    for (; *text != '\0'; text++)
        if (*text >= 'A' && *text <= 'Z')
            return false;
    return true;
}

static void check_keyspecs(const struct kv_command *c)
{
    ck_assert_int_eq(c->keyspec_count > 0, c->keyspecs != NULL);
    ck_assert_msg((c->keyspec_count > 0) == (c->mode == KV_MODE_KEYS), "%s", c->full_name);
    for (int i = 0; i < c->keyspec_count; i++) {
        const struct kv_keyspec *spec = &c->keyspecs[i];
        uint32_t use = spec->flags & (KV_KEY_RO | KV_KEY_RW | KV_KEY_OW | KV_KEY_RM);
        int uses = spec->flags & KV_KEY_NOT_KEY ? 0 : 1;
        ck_assert_msg(__builtin_popcount(use) == uses, "%s", c->full_name);
        ck_assert_int_eq(spec->begin == KV_BEGIN_UNKNOWN, spec->find == KV_FIND_UNKNOWN);
        if (spec->begin == KV_BEGIN_UNKNOWN)
            continue;
        ck_assert_int_ne(spec->begin_index, 0);
        ck_assert_int_ge(spec->find == KV_FIND_RANGE ? spec->b : spec->c, 1);
        ck_assert_int_eq(spec->begin == KV_BEGIN_KEYWORD, spec->begin_keyword != NULL);
    }
}

static void check_flags(const struct kv_command *c)
{
    ck_assert_int_eq((c->flags & KV_CMD_MAY_ALONE) != 0, c->alone != NULL);
    ck_assert(c->alone == NULL || c->mode == KV_MODE_KEYS);
}

static void check_args(const struct kv_command *c, const struct kv_command_arg *args, int count,
                       int depth)
{
    ck_assert_int_lt(depth, 8);
    for (int i = 0; i < count; i++) {
        bool nested = args[i].type == KV_ARG_ONEOF || args[i].type == KV_ARG_BLOCK;
        ck_assert_msg(nested == (args[i].args != NULL), "%s %s", c->full_name, args[i].name);
        bool may_name = args[i].type == KV_ARG_KEY || args[i].type == KV_ARG_PATTERN;
        ck_assert_msg(args[i].type != KV_ARG_KEY || args[i].key_spec >= 0, "%s", c->full_name);
        ck_assert_msg(may_name || args[i].key_spec < 0, "%s", c->full_name);
        ck_assert_int_lt(args[i].key_spec, c->keyspec_count);
        ck_assert(args[i].type != KV_ARG_PURE_TOKEN || args[i].token != NULL);
        check_args(c, args[i].args, args[i].arg_count, depth + 1);
    }
}

static void check_command(const struct kv_command *c, const struct kv_command *parent)
{
    ck_assert_ptr_eq(c->parent, parent);
    ck_assert(is_lower(c->full_name));
    ck_assert_uint_lt(c->id, kv_command_table.id_count);
    ck_assert_msg(!seen[c->id], "id %u of %s is taken", c->id, c->full_name);
    seen[c->id] = true;
    ck_assert_int_ne(c->arity, 0);
    ck_assert_msg(c->fn != NULL || c->sub_count > 0, "%s has no function", c->full_name);
    ck_assert_uint_ne(c->flags & (KV_CMD_WRITE | KV_CMD_READONLY), KV_CMD_WRITE | KV_CMD_READONLY);
    if (c->flags & KV_CMD_BATCH)
        ck_assert_msg(c->mode == KV_MODE_KEYS || c->mode == KV_MODE_FREE, "%s", c->full_name);
    ck_assert_uint_ne(c->acl_categories, 0);
    ck_assert_uint_eq(c->acl_categories >> KV_COMMAND_ACL_CATEGORY_COUNT, 0);
    ck_assert_ptr_nonnull(c->docs);
    ck_assert_str_ne(c->docs->summary, "");
    check_keyspecs(c);
    check_flags(c);
    check_args(c, c->docs->args, c->docs->arg_count, 0);
}

static void check_sorted(const struct kv_command *commands, size_t count)
{
    for (size_t i = 1; i < count; i++)
        ck_assert_msg(strcmp(commands[i - 1].name, commands[i].name) < 0, "%s after %s",
                      commands[i].name, commands[i - 1].name);
}

START_TEST(every_command_is_consistent)
{
    const struct kv_command_table *t = &kv_command_table;
    ck_assert_uint_le(t->id_count, IDS_MAX);
    check_sorted(t->commands, t->command_count);
    size_t total = t->command_count;
    for (size_t i = 0; i < t->command_count; i++) {
        const struct kv_command *c = &t->commands[i];
        ck_assert_str_eq(c->name, c->full_name);
        check_command(c, NULL);
        check_sorted(c->subs, c->sub_count);
        total += c->sub_count;
        for (size_t j = 0; j < c->sub_count; j++) {
            const struct kv_command *sub = &c->subs[j];
            check_command(sub, c);
            ck_assert_uint_eq(sub->sub_count, 0);
            char full[128];
            snprintf(full, sizeof(full), "%s|%s", c->name, sub->name);
            ck_assert_str_eq(sub->full_name, full);
            ck_assert_ptr_eq(kv_command_sub(c, kv_slice_cstr(sub->name)), sub);
        }
    }
    ck_assert_uint_eq(total, t->id_count);
}
END_TEST

static const struct kv_command *command(const char *name)
{
    for (size_t i = 0; i < kv_command_table.command_count; i++)
        if (strcmp(kv_command_table.commands[i].name, name) == 0)
            return &kv_command_table.commands[i];
    ck_abort_msg("no command %s", name);
    return NULL;
}

static bool in_category(const struct kv_command *c, const char *name)
{
    for (int i = 0; i < KV_COMMAND_ACL_CATEGORY_COUNT; i++)
        if (strcmp(kv_command_acl_categories[i], name) == 0)
            return c->acl_categories >> i & 1;
    ck_abort_msg("no category %s", name);
    return false;
}

START_TEST(categories_follow_from_the_flags)
{
    const struct kv_command *set = command("set");
    ck_assert(in_category(set, "write") && in_category(set, "string") && in_category(set, "slow"));
    ck_assert(!in_category(set, "read") && !in_category(set, "fast"));
    const struct kv_command *get = command("get");
    ck_assert(in_category(get, "read") && in_category(get, "fast") && !in_category(get, "slow"));
    const struct kv_command *debug = command("debug");
    ck_assert(in_category(debug, "admin") && in_category(debug, "dangerous"));
    const struct kv_command *keys = command("keys");
    ck_assert(in_category(keys, "dangerous") && !in_category(keys, "admin"));
}
END_TEST

START_TEST(the_legacy_range_joins_specifications)
{
    const struct kv_command *bitop = command("bitop");
    ck_assert_int_eq(bitop->first_key, 2);
    ck_assert_int_eq(bitop->last_key, -1);
    ck_assert_int_eq(bitop->key_step, 1);
    const struct kv_command *copy = command("copy");
    ck_assert_int_eq(copy->first_key, 1);
    ck_assert_int_eq(copy->last_key, 2);
    const struct kv_command *mset = command("mset");
    ck_assert_int_eq(mset->last_key, -1);
    ck_assert_int_eq(mset->key_step, 2);
    const struct kv_command *msetex = command("msetex");
    ck_assert_int_eq(msetex->first_key, 0);
    ck_assert(msetex->flags & KV_CMD_MOVABLEKEYS);
    ck_assert(!(mset->flags & KV_CMD_MOVABLEKEYS));
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "table");
    unit_add(&u, every_command_is_consistent);
    unit_add(&u, categories_follow_from_the_flags);
    unit_add(&u, the_legacy_range_joins_specifications);
    return unit_run(&u);
}
