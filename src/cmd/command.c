/* COMMAND and its subcommands: the command table as replies.
 *
 * Three views of one table. COMMAND INFO speaks to programs: ten elements per command, with flags,
 * categories and key specifications as sets and maps, subcommands nested with the same ten
 * elements. COMMAND DOCS speaks to people (redis-cli makes its hints of it): summary, group and the
 * tree of arguments. COMMAND GETKEYS applies the key specifications to a command line that is not
 * executed.
 *
 * The replies are written while walking the constants; lengths are counted first where that is a
 * loop over a few elements and deferred where it would mean to filter all commands twice. All is
 * read-only and needs nothing of the keyspace, so these commands run in KV_MODE_FREE on any worker.
 * The full table is some 30 KiB of output, which the connection's chunks take without a copy.
 *
 * Names of subcommands contain a bar ("client|kill"), which is also how INFO, DOCS and ACL rules
 * name them. Nested arguments are written by recursion: their depth is that of the generated
 * tables (4), not the client's choice.
 *
 * GETKEYSANDFLAGS: specifications with `variable_flags` state the strongest use of a key. For the
 * few commands that have one, the options in the line say whether it is less (SET without GET only
 * overwrites); a routing client gains from knowing, and permissions ask for no more than that.
 *
 * Rejected: building the reply of COMMAND once and keeping it (it is asked for once per connection,
 * and would be two protocol forms to keep); a history of options in DOCS (it names the releases of
 * another program).
 */
#include "base/glob.h"
#include "cmd/docs.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "cmd/table.h"
#include "engine/call.h"
#include "engine/engine.h"

/* Bit i is name i; flags without a name in COMMAND INFO are left out. */
static const char *const flag_names[] = {
    "write",    "readonly",     "denyoom",       "admin",
    "pubsub",   "noscript",     "blocking",      "loading",
    "stale",    "skip_monitor", "skip_slowlog",  "asking",
    "fast",     "no_auth",      "may_replicate", "no_async_loading",
    "no_multi", "movablekeys",  "allow_busy",    "no_mandatory_keys",
};
static_assert(KV_CMD_WRITE == 1u << 0 && KV_CMD_NO_MANDATORY_KEYS == 1u << 19,
              "flag_names follows the bits");
static_assert(KV_ARRAY_LEN(flag_names) == 20, "flag_names ends with no_mandatory_keys");

static const char *const key_flag_names[] = {
    "RO",     "RW",     "OW",      "RM",         "access",         "update",
    "insert", "delete", "not_key", "incomplete", "variable_flags",
};
static_assert(KV_KEY_RO == 1u << 0 && KV_KEY_VARIABLE_FLAGS == 1u << 10,
              "key_flag_names follows the bits");
static_assert(KV_ARRAY_LEN(key_flag_names) == 11, "key_flag_names ends with variable_flags");

static const char *const arg_type_names[] = {
    [KV_ARG_STRING] = "string",         [KV_ARG_INTEGER] = "integer",
    [KV_ARG_DOUBLE] = "double",         [KV_ARG_KEY] = "key",
    [KV_ARG_PATTERN] = "pattern",       [KV_ARG_UNIX_TIME] = "unix-time",
    [KV_ARG_PURE_TOKEN] = "pure-token", [KV_ARG_ONEOF] = "oneof",
    [KV_ARG_BLOCK] = "block",
};
static_assert(KV_ARRAY_LEN(arg_type_names) == KV_ARG_TYPE_COUNT, "one name per type");

static const char *const arg_flag_names[] = {"optional", "multiple", "multiple_token"};
static const char *const doc_flag_names[] = {"deprecated", "syscmd"};

/* A set of status lines: the names of the bits that are set, with `prefix` before each. */
static void reply_bits(struct kv_out *out, uint32_t bits, const char *const *names, size_t count,
                       const char *prefix)
{
    uint32_t named = bits & (uint32_t)((UINT64_C(1) << count) - 1);
    kv_reply_set(out, (size_t)__builtin_popcount(named));
    for (uint32_t rest = named; rest != 0; rest &= rest - 1) {
        KV_REPLY_RAW(out, "+");
        kv_out_append(out, prefix, strlen(prefix));
        const char *name = names[__builtin_ctz(rest)];
        kv_out_append(out, name, strlen(name));
        KV_REPLY_RAW(out, "\r\n");
    }
}

static void reply_field_text(struct kv_out *out, const char *name, const char *value)
{
    kv_reply_text(out, name);
    kv_reply_text(out, value);
}

static void reply_field_int(struct kv_out *out, const char *name, int64_t value)
{
    kv_reply_text(out, name);
    kv_reply_int(out, value);
}

/* --- COMMAND INFO --- */

static void reply_key_begin(struct kv_out *out, const struct kv_keyspec *spec)
{
    kv_reply_text(out, "begin_search");
    kv_reply_map(out, 2);
    if (spec->begin == KV_BEGIN_INDEX) {
        reply_field_text(out, "type", "index");
        kv_reply_text(out, "spec");
        kv_reply_map(out, 1);
        reply_field_int(out, "index", spec->begin_index);
    } else if (spec->begin == KV_BEGIN_UNKNOWN) {
        reply_field_text(out, "type", "unknown");
        kv_reply_text(out, "spec");
        kv_reply_map(out, 0);
    } else {
        reply_field_text(out, "type", "keyword");
        kv_reply_text(out, "spec");
        kv_reply_map(out, 2);
        reply_field_text(out, "keyword", spec->begin_keyword);
        reply_field_int(out, "startfrom", spec->begin_index);
    }
}

static void reply_key_find(struct kv_out *out, const struct kv_keyspec *spec)
{
    static const char *const names[2][3] = {
        [KV_FIND_RANGE] = {"lastkey", "keystep", "limit"},
        [KV_FIND_KEYNUM] = {"keynumidx", "firstkey", "keystep"},
    };
    kv_reply_text(out, "find_keys");
    kv_reply_map(out, 2);
    if (spec->find == KV_FIND_UNKNOWN) {
        reply_field_text(out, "type", "unknown");
        kv_reply_text(out, "spec");
        kv_reply_map(out, 0);
        return;
    }
    KV_ASSERT(spec->find < KV_ARRAY_LEN(names));
    reply_field_text(out, "type", spec->find == KV_FIND_RANGE ? "range" : "keynum");
    kv_reply_text(out, "spec");
    kv_reply_map(out, 3);
    reply_field_int(out, names[spec->find][0], spec->a);
    reply_field_int(out, names[spec->find][1], spec->b);
    reply_field_int(out, names[spec->find][2], spec->c);
}

static void reply_keyspec(struct kv_out *out, const struct kv_keyspec *spec)
{
    kv_reply_map(out, spec->notes != NULL ? 4 : 3);
    if (spec->notes != NULL)
        reply_field_text(out, "notes", spec->notes);
    kv_reply_text(out, "flags");
    reply_bits(out, spec->flags, key_flag_names, KV_ARRAY_LEN(key_flag_names), "");
    reply_key_begin(out, spec);
    reply_key_find(out, spec);
}

static void reply_tips(struct kv_out *out, const char *const *tips)
{
    size_t count = 0;
    while (tips != NULL && tips[count] != NULL)
        count++;
    kv_reply_set(out, count);
    for (size_t i = 0; i < count; i++)
        kv_reply_text(out, tips[i]);
}

static void reply_info(struct kv_out *out, const struct kv_command *cmd)
{
    kv_reply_array(out, 10);
    kv_reply_text(out, cmd->full_name);
    kv_reply_int(out, cmd->arity);
    reply_bits(out, cmd->flags, flag_names, KV_ARRAY_LEN(flag_names), "");
    kv_reply_int(out, cmd->first_key);
    kv_reply_int(out, cmd->last_key);
    kv_reply_int(out, cmd->key_step);
    reply_bits(out, cmd->acl_categories, kv_command_acl_categories, KV_COMMAND_ACL_CATEGORY_COUNT,
               "@");
    reply_tips(out, cmd->tips);
    kv_reply_set(out, cmd->keyspec_count);
    for (int i = 0; i < cmd->keyspec_count; i++)
        reply_keyspec(out, &cmd->keyspecs[i]);
    if (cmd->sub_count == 0) {
        kv_reply_set(out, 0);
        return;
    }
    kv_reply_array(out, cmd->sub_count);
    for (int i = 0; i < cmd->sub_count; i++)
        reply_info(out, &cmd->subs[i]);
}

static void reply_all_info(struct kv_call *call)
{
    const struct kv_command_table *table = kv_engine_commands(call->engine);
    kv_reply_array(call->out, table->command_count);
    for (uint32_t i = 0; i < table->command_count; i++)
        reply_info(call->out, &table->commands[i]);
}

void kv_cmd_command(struct kv_call *call)
{
    reply_all_info(call);
}

void kv_cmd_command_info(struct kv_call *call)
{
    if (call->argc == 2) {
        reply_all_info(call);
        return;
    }
    kv_reply_array(call->out, (size_t)call->argc - 2);
    for (int i = 2; i < call->argc; i++) {
        const struct kv_command *cmd = kv_engine_command_or_sub(call->engine, call->argv[i]);
        if (cmd == NULL)
            kv_reply_null(call->out);
        else
            reply_info(call->out, cmd);
    }
}

void kv_cmd_command_count(struct kv_call *call)
{
    kv_reply_int(call->out, kv_engine_commands(call->engine)->command_count);
}

/* --- COMMAND LIST --- */

struct filter {
    enum { FILTER_NONE, FILTER_MODULE, FILTER_CATEGORY, FILTER_PATTERN } kind;
    uint32_t category;       /* CATEGORY: the bit; 0 when there is no such category */
    struct kv_slice pattern; /* PATTERN */
};

static bool filter_matches(const struct filter *f, const struct kv_command *cmd)
{
    switch (f->kind) {
    case FILTER_NONE:
        return true;
    case FILTER_MODULE:
        return false; /* There are no modules, so no command is of one. */
    case FILTER_CATEGORY:
        return (cmd->acl_categories & f->category) != 0;
    case FILTER_PATTERN:
        return kv_glob_match(f->pattern, kv_slice_cstr(cmd->full_name), true);
    }
    KV_UNREACHABLE();
}

/* COMMAND LIST [FILTERBY MODULE name | ACLCAT category | PATTERN pattern] */
static bool read_filter(const struct kv_call *call, struct filter *f)
{
    *f = (struct filter){.kind = FILTER_NONE};
    if (call->argc == 2)
        return true;
    if (call->argc != 5 || !kv_call_arg_is(call, 2, "filterby"))
        return false;
    if (kv_call_arg_is(call, 3, "module")) {
        f->kind = FILTER_MODULE;
    } else if (kv_call_arg_is(call, 3, "aclcat")) {
        f->kind = FILTER_CATEGORY;
        for (uint32_t i = 0; i < KV_COMMAND_ACL_CATEGORY_COUNT; i++)
            if (kv_slice_is(call->argv[4], kv_command_acl_categories[i]))
                f->category = 1u << i;
    } else if (kv_call_arg_is(call, 3, "pattern")) {
        f->kind = FILTER_PATTERN;
        f->pattern = call->argv[4];
    } else {
        return false;
    }
    return true;
}

static size_t list_matching(struct kv_out *out, const struct filter *f,
                            const struct kv_command *commands, uint32_t count)
{
    size_t listed = 0;
    for (uint32_t i = 0; i < count; i++) {
        if (filter_matches(f, &commands[i])) {
            kv_reply_text(out, commands[i].full_name);
            listed++;
        }
        listed += list_matching(out, f, commands[i].subs, commands[i].sub_count);
    }
    return listed;
}

void kv_cmd_command_list(struct kv_call *call)
{
    struct filter filter;
    if (!read_filter(call, &filter)) {
        kv_call_syntax_error(call);
        return;
    }
    const struct kv_command_table *table = kv_engine_commands(call->engine);
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    size_t listed = list_matching(call->out, &filter, table->commands, table->command_count);
    kv_reply_array_end(call->out, token, listed);
}

/* --- COMMAND GETKEYS --- */

/* Shard channels are found as keys are, without being any. */
static bool has_keys(const struct kv_command *cmd)
{
    for (uint32_t i = 0; i < cmd->keyspec_count; i++)
        if (!(cmd->keyspecs[i].flags & KV_KEY_NOT_KEY))
            return true;
    return false;
}

/* A command line that starts at argv[2]: its command, or the error is replied and NULL returned. */
static const struct kv_command *command_of_line(struct kv_call *call)
{
    int argc = call->argc - 2;
    KV_ASSERT(argc > 0);
    const struct kv_command *cmd = kv_engine_command(call->engine, call->argv[2]);
    if (cmd != NULL && cmd->sub_count > 0 && argc > 1)
        cmd = kv_command_sub(cmd, call->argv[3]);
    if (cmd == NULL)
        kv_call_error(call, "ERR Invalid command specified");
    else if (!has_keys(cmd))
        kv_call_error(call, "ERR The command has no key arguments");
    else if (cmd->arity > 0 ? argc != cmd->arity : argc < -cmd->arity)
        kv_call_error(call, "ERR Invalid number of arguments specified for command");
    else
        return cmd;
    return NULL;
}

/* Finds the keys of the line at argv[2]; positions count from its name. False: error replied. */
static bool keys_of_line(struct kv_call *call, const struct kv_command *cmd, int **positions,
                         uint32_t **flags, int *count)
{
    int argc = call->argc - 2;
    *positions = kv_arena_try_alloc(call->arena, (size_t)argc * sizeof(**positions));
    *flags = kv_arena_try_alloc(call->arena, (size_t)argc * sizeof(**flags));
    if (*positions == NULL || *flags == NULL) {
        kv_call_no_memory(call);
        return false;
    }
    *count = kv_command_keys(cmd, call->argv + 2, argc, *positions, *flags, argc);
    if (*count < 0 || (*count == 0 && !(cmd->flags & KV_CMD_NO_MANDATORY_KEYS))) {
        kv_call_error(call, "ERR Invalid arguments specified for command");
        return false;
    }
    KV_ASSERT(*count < argc);
    return true;
}

void kv_cmd_command_getkeys(struct kv_call *call)
{
    const struct kv_command *cmd = command_of_line(call);
    int *positions;
    uint32_t *flags;
    int count;
    if (cmd == NULL || !keys_of_line(call, cmd, &positions, &flags, &count))
        return;
    kv_reply_array(call->out, (size_t)count);
    for (int i = 0; i < count; i++)
        kv_reply_slice(call->out, call->argv[2 + positions[i]]);
}

/* True when one of the words stands among the line's arguments from `from` on. */
static bool line_has(const struct kv_slice *argv, int argc, int from, const char *const *words)
{
    for (int i = from; i < argc; i++)
        for (int w = 0; words[w] != NULL; w++)
            if (kv_slice_is(argv[i], words[w]))
                return true;
    return false;
}

uint32_t kv_cmd_line_key_flags(const struct kv_command *cmd, const struct kv_slice *argv, int argc,
                               uint32_t flags)
{
    static const char *const set_reads[] = {"get", "ifeq", "ifne", "ifdeq", "ifdne", NULL};
    static const char *const delex_reads[] = {"ifeq", "ifne", "ifdeq", "ifdne", NULL};
    KV_DASSERT(flags & KV_KEY_VARIABLE_FLAGS);
    flags &= ~(uint32_t)KV_KEY_VARIABLE_FLAGS;
    if (cmd->fn == kv_cmd_set)
        return line_has(argv, argc, 3, set_reads) ? flags : KV_KEY_OW | KV_KEY_UPDATE;
    if (cmd->fn == kv_cmd_delex)
        return line_has(argv, argc, 2, delex_reads) ? flags : KV_KEY_RM | KV_KEY_DELETE;
    if (cmd->fn != kv_cmd_bitfield)
        return flags;
    /* Operations are GET with two arguments; anything else writes. */
    for (int i = 2; i < argc; i += 3)
        if (!kv_slice_is(argv[i], "get"))
            return flags;
    return KV_KEY_RO | KV_KEY_ACCESS;
}

void kv_cmd_command_getkeysandflags(struct kv_call *call)
{
    const struct kv_command *cmd = command_of_line(call);
    int *positions;
    uint32_t *flags;
    int count;
    if (cmd == NULL || !keys_of_line(call, cmd, &positions, &flags, &count))
        return;
    kv_reply_array(call->out, (size_t)count);
    for (int i = 0; i < count; i++) {
        uint32_t key_flags =
            flags[i] & KV_KEY_VARIABLE_FLAGS
                ? kv_cmd_line_key_flags(cmd, call->argv + 2, call->argc - 2, flags[i])
                : flags[i];
        kv_reply_array(call->out, 2);
        kv_reply_slice(call->out, call->argv[2 + positions[i]]);
        reply_bits(call->out, key_flags, key_flag_names, KV_ARRAY_LEN(key_flag_names), "");
    }
}

/* --- COMMAND DOCS --- */

static void reply_optional_text(struct kv_out *out, const char *name, const char *value)
{
    if (value != NULL)
        reply_field_text(out, name, value);
}

static void reply_args(struct kv_out *out, const struct kv_command_arg *args, int count);

static void reply_arg(struct kv_out *out, const struct kv_command_arg *arg)
{
    KV_ASSERT(arg->type < KV_ARG_TYPE_COUNT);
    bool leaf = arg->args == NULL;
    size_t pairs = 2 + (size_t)leaf + (arg->key_spec >= 0) + (arg->token != NULL) +
                   (arg->since != NULL) + (arg->deprecated_since != NULL) + (arg->flags != 0) +
                   !leaf;
    kv_reply_map(out, pairs);
    reply_field_text(out, "name", arg->name);
    reply_field_text(out, "type", arg_type_names[arg->type]);
    if (leaf)
        reply_field_text(out, "display_text", arg->display != NULL ? arg->display : arg->name);
    if (arg->key_spec >= 0)
        reply_field_int(out, "key_spec_index", arg->key_spec);
    reply_optional_text(out, "token", arg->token);
    reply_optional_text(out, "since", arg->since);
    reply_optional_text(out, "deprecated_since", arg->deprecated_since);
    if (arg->flags != 0) {
        kv_reply_text(out, "flags");
        reply_bits(out, arg->flags, arg_flag_names, KV_ARRAY_LEN(arg_flag_names), "");
    }
    if (!leaf) {
        kv_reply_text(out, "arguments");
        reply_args(out, arg->args, arg->arg_count);
    }
}

static void reply_args(struct kv_out *out, const struct kv_command_arg *args, int count)
{
    kv_reply_array(out, (size_t)count);
    for (int i = 0; i < count; i++)
        reply_arg(out, &args[i]);
}

/* The name and the map of one command, subcommands nested. */
static void reply_docs(struct kv_out *out, const struct kv_command *cmd)
{
    const struct kv_command_docs *docs = cmd->docs;
    KV_ASSERT(docs != NULL);
    kv_reply_text(out, cmd->full_name);
    kv_reply_map(out, 4 + (size_t)(docs->flags != 0) + (docs->deprecated_since != NULL) +
                          (docs->replaced_by != NULL) + (docs->args != NULL) +
                          (cmd->sub_count != 0));
    reply_field_text(out, "summary", docs->summary);
    reply_field_text(out, "since", docs->since);
    reply_field_text(out, "group", docs->group);
    reply_field_text(out, "complexity", docs->complexity);
    if (docs->flags != 0) {
        kv_reply_text(out, "doc_flags");
        reply_bits(out, docs->flags, doc_flag_names, KV_ARRAY_LEN(doc_flag_names), "");
    }
    reply_optional_text(out, "deprecated_since", docs->deprecated_since);
    reply_optional_text(out, "replaced_by", docs->replaced_by);
    if (docs->args != NULL) {
        kv_reply_text(out, "arguments");
        reply_args(out, docs->args, docs->arg_count);
    }
    if (cmd->sub_count != 0) {
        kv_reply_text(out, "subcommands");
        kv_reply_map(out, cmd->sub_count);
        for (int i = 0; i < cmd->sub_count; i++)
            reply_docs(out, &cmd->subs[i]);
    }
}

void kv_cmd_command_docs(struct kv_call *call)
{
    if (call->argc == 2) {
        const struct kv_command_table *table = kv_engine_commands(call->engine);
        kv_reply_map(call->out, table->command_count);
        for (uint32_t i = 0; i < table->command_count; i++)
            reply_docs(call->out, &table->commands[i]);
        return;
    }
    /* Unknown names are left out, so the number of pairs is known afterwards. */
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    size_t known = 0;
    for (int i = 2; i < call->argc; i++) {
        const struct kv_command *cmd = kv_engine_command_or_sub(call->engine, call->argv[i]);
        if (cmd != NULL) {
            reply_docs(call->out, cmd);
            known++;
        }
    }
    kv_reply_map_end(call->out, token, known);
}

void kv_cmd_command_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "(no subcommand)",
        "    Describe every command to a program.",
        "COUNT",
        "    Return how many commands there are, subcommands not counted.",
        "DOCS [<command-name> ...]",
        "    Describe these commands, or all, to a reader.",
        "GETKEYS <command-name> [<arg> ...]",
        "    Return the keys of a command line.",
        "GETKEYSANDFLAGS <command-name> [<arg> ...]",
        "    Return the keys of a command line and how they are used.",
        "INFO [<command-name> ...]",
        "    Describe these commands, or all, to a program.",
        "LIST [FILTERBY (MODULE <name>|ACLCAT <category>|PATTERN <pattern>)]",
        "    Return the names of commands, subcommands included.",
        NULL,
    };
    kv_call_help(call, lines);
}
