/* ACL: users and what they may do. Rules and checks are the engine's (engine/acl.h), their text and
 * files admin's (admin/users.h); here are the replies.
 *
 * SETUSER applies its words to a copy of the rules and replaces them when all are right. SETUSER,
 * DELUSER, LOAD and SAVE run in KV_MODE_STOP; the others read users, which nobody changes
 * meanwhile, on any worker.
 *
 * DRYRUN answers what a check would say, as a text that is no error, and checks no password.
 *
 * LOG writes its entries under the log's mutex, straight into the output, and their number
 * afterwards.
 */
#include "engine/acl.h"
#include "admin/users.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/number.h"
#include "base/random.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/call.h"
#include "engine/engine.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define LOG_SHOWN 10 /* entries of ACL LOG without a number */
#define PASS_BITS_MAX 4096
#define NO_FILE                                                                                    \
    "ERR This Redis instance is not configured to use an ACL file. You may want to specify users " \
    "via the ACL SETUSER command and then issue a CONFIG REWRITE (assuming you have a Redis "      \
    "configuration file set) in order to store users in the Redis configuration."

/* --- looking --- */

void kv_cmd_acl_whoami(struct kv_call *call)
{
    kv_reply_slice(call->out, call->client->user->name);
}

void kv_cmd_acl_users(struct kv_call *call)
{
    uint32_t count = kv_acl_user_count(call->engine);
    kv_reply_array(call->out, count);
    for (uint32_t i = 0; i < count; i++)
        kv_reply_slice(call->out, kv_acl_user(call->engine, i)->name);
}

void kv_cmd_acl_list(struct kv_call *call)
{
    uint32_t count = kv_acl_user_count(call->engine);
    struct kv_out_mark mark = kv_out_mark(call->out);
    struct kv_text line;
    kv_text_init(&line);
    kv_reply_array(call->out, count);
    for (uint32_t i = 0; i < count && !line.failed; i++) {
        kv_text_clear(&line);
        kv_users_print(call->engine, kv_acl_user(call->engine, i), &line);
        kv_reply_slice(call->out, kv_text_slice(&line));
    }
    if (line.failed) {
        kv_out_rewind(call->out, &mark);
        kv_call_no_memory(call);
    }
    kv_text_release(&line);
}

static void reply_flags(struct kv_call *call, uint32_t flags)
{
    kv_reply_set(call->out, 1 + (size_t)__builtin_popcount(flags & ~(uint32_t)KV_ACL_ON));
    kv_reply_text(call->out, flags & KV_ACL_ON ? "on" : "off");
    if (flags & KV_ACL_NOPASS)
        kv_reply_text(call->out, "nopass");
    if (flags & KV_ACL_SANITIZE)
        kv_reply_text(call->out, "sanitize-payload");
    if (flags & KV_ACL_SKIP_SANITIZE)
        kv_reply_text(call->out, "skip-sanitize-payload");
}

/* The three pairs that every selector has. */
static void reply_selector(struct kv_call *call, const struct kv_acl_selector *s,
                           struct kv_text *text)
{
    kv_text_clear(text);
    kv_users_print_commands(call->engine, s, text);
    size_t commands_len = text->len;
    kv_users_print_keys(s, text);
    size_t keys_len = text->len;
    kv_users_print_channels(s, text);
    const char *bytes = kv_text_cstr(text);
    kv_reply_text(call->out, "commands");
    kv_reply_bulk(call->out, bytes, commands_len);
    kv_reply_text(call->out, "keys");
    kv_reply_bulk(call->out, bytes + commands_len, keys_len - commands_len);
    kv_reply_text(call->out, "channels");
    kv_reply_bulk(call->out, bytes + keys_len, text->len - keys_len);
}

void kv_cmd_acl_getuser(struct kv_call *call)
{
    const struct kv_user *u = kv_acl_find(call->engine, call->argv[2]);
    if (u == NULL) {
        kv_reply_null(call->out);
        return;
    }
    const struct kv_acl_rules *r = u->rules;
    struct kv_out_mark mark = kv_out_mark(call->out);
    struct kv_text text;
    bool failed = false;
    kv_text_init(&text);
    kv_reply_map(call->out, 6);
    kv_reply_text(call->out, "flags");
    reply_flags(call, r->flags);
    kv_reply_text(call->out, "passwords");
    kv_reply_array(call->out, r->password_count);
    for (uint32_t i = 0; i < r->password_count; i++) {
        char hex[KV_SHA256_HEX];
        kv_sha256_print(r->passwords[i], hex);
        kv_reply_bulk(call->out, hex, sizeof(hex));
    }
    for (uint32_t i = 0; i < r->selector_count; i++) {
        if (i == 1) {
            kv_reply_text(call->out, "selectors");
            kv_reply_array(call->out, r->selector_count - 1);
        }
        if (i > 0)
            kv_reply_map(call->out, 3);
        reply_selector(call, &r->selectors[i], &text);
        failed |= text.failed;
    }
    if (r->selector_count == 1) {
        kv_reply_text(call->out, "selectors");
        kv_reply_array(call->out, 0);
    }
    if (failed) {
        kv_out_rewind(call->out, &mark);
        kv_call_no_memory(call);
    }
    kv_text_release(&text);
}

static void reply_category(struct kv_call *call, uint32_t bit)
{
    uint32_t ids = kv_engine_commands(call->engine)->id_count;
    size_t count = 0;
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    for (uint32_t id = 0; id < ids; id++) {
        const struct kv_command *cmd = kv_engine_command_by_id(call->engine, (uint16_t)id);
        if (!(cmd->acl_categories >> bit & 1))
            continue;
        kv_reply_text(call->out, cmd->full_name);
        count++;
    }
    kv_reply_array_end(call->out, token, count);
}

void kv_cmd_acl_cat(struct kv_call *call)
{
    const struct kv_command_table *t = kv_engine_commands(call->engine);
    if (call->argc > 3) {
        kv_call_unknown_subcommand(call);
        return;
    }
    if (call->argc == 2) {
        kv_reply_array(call->out, t->category_count);
        for (uint32_t i = 0; i < t->category_count; i++)
            kv_reply_text(call->out, t->categories[i]);
        return;
    }
    for (uint32_t i = 0; i < t->category_count; i++) {
        if (kv_call_arg_is(call, 2, t->categories[i])) {
            reply_category(call, i);
            return;
        }
    }
    kv_call_errorf(call, "ERR Unknown category '%.*s'", KV_CMD_QUOTE(call->argv[2]));
}

void kv_cmd_acl_genpass(struct kv_call *call)
{
    static const char digits[] = "0123456789abcdef";
    uint8_t bytes[PASS_BITS_MAX / 4];
    char text[PASS_BITS_MAX / 4];
    int64_t bits = 256;
    if (call->argc > 3) {
        kv_call_unknown_subcommand(call);
        return;
    }
    if (call->argc == 3 && !kv_call_int(call, 2, &bits))
        return;
    if (bits <= 0 || bits > PASS_BITS_MAX) {
        kv_call_error(call, "ERR ACL GENPASS argument must be the number of bits for the output "
                            "password, a positive number up to 4096");
        return;
    }
    size_t len = (size_t)(bits + 3) / 4;
    kv_random_secure(bytes, len);
    for (size_t i = 0; i < len; i++)
        text[i] = digits[bytes[i] & 15];
    kv_reply_bulk(call->out, text, len);
}

/* --- DRYRUN --- */

/* The command of the line from argument 3 on, with the right number of words; NULL after an error
 * reply. */
static const struct kv_command *dryrun_command(struct kv_call *call)
{
    const struct kv_command *cmd = kv_engine_command(call->engine, call->argv[3]);
    int argc = call->argc - 3;
    if (cmd != NULL && cmd->sub_count > 0 && argc > 1)
        cmd = kv_command_sub(cmd, call->argv[4]);
    if (cmd == NULL) {
        kv_call_errorf(call, "ERR Command '%.*s' not found", KV_CMD_QUOTE(call->argv[3]));
        return NULL;
    }
    if (!kv_command_arity_fits(cmd, argc)) {
        kv_call_errorf(call, "ERR wrong number of arguments for '%s' command", cmd->full_name);
        return NULL;
    }
    return cmd;
}

static void reply_denial(struct kv_call *call, struct kv_slice user, struct kv_slice what,
                         const char *before, const char *after)
{
    struct kv_text text;
    kv_text_init(&text);
    kv_text_append(&text, KV_SLICE("User "));
    kv_text_append(&text, user);
    kv_text_printf(&text, " has no permissions to %s '", before);
    kv_text_append(&text, what);
    kv_text_printf(&text, "' %s", after);
    if (text.failed)
        kv_call_no_memory(call);
    else
        kv_reply_slice(call->out, kv_text_slice(&text));
    kv_text_release(&text);
}

void kv_cmd_acl_dryrun(struct kv_call *call)
{
    const struct kv_user *u = kv_acl_find(call->engine, call->argv[2]);
    if (u == NULL) {
        kv_call_errorf(call, "ERR User '%.*s' not found", KV_CMD_QUOTE(call->argv[2]));
        return;
    }
    const struct kv_command *cmd = dryrun_command(call);
    if (cmd == NULL)
        return;
    int arg;
    const struct kv_slice *argv = call->argv + 3;
    switch (
        kv_acl_check_rules(call->engine, u->rules, cmd, argv, call->argc - 3, call->arena, &arg)) {
    case KV_ACL_ALLOWED:
        kv_reply_ok(call->out);
        break;
    case KV_ACL_NOT_CHECKED:
        kv_call_no_memory(call);
        break;
    case KV_ACL_DENIED_COMMAND:
        reply_denial(call, u->name, kv_slice_cstr(cmd->full_name), "run the", "command");
        break;
    case KV_ACL_DENIED_KEY:
        reply_denial(call, u->name, argv[arg], "access the", "key");
        break;
    case KV_ACL_DENIED_CHANNEL:
        reply_denial(call, u->name, argv[arg], "access the", "channel");
        break;
    }
}

/* --- changing --- */

/* The words from argument 3 on, what is in parentheses joined; NULL after an error reply. */
static struct kv_slice *join_words(struct kv_call *call, int *count)
{
    struct kv_slice *words =
        kv_arena_try_alloc(call->arena, (size_t)call->argc * sizeof(struct kv_slice));
    enum kv_err err = words == NULL ? KV_ERR_NOMEM : KV_OK;
    *count = 0;
    for (int at = 3; err == KV_OK && at < call->argc; ++*count)
        err = kv_acl_next_word(call->arena, call->argv, call->argc, &at, &words[*count]);
    if (err == KV_ERR_SYNTAX)
        kv_call_errorf(call, "ERR Unmatched parenthesis in acl selector starting at '%.*s'.",
                       KV_CMD_QUOTE(words[*count - 1]));
    else if (err != KV_OK)
        kv_call_no_memory(call);
    return err == KV_OK ? words : NULL;
}

/* False after an error reply. */
static bool apply_words(struct kv_call *call, struct kv_acl_draft *d)
{
    int count;
    const struct kv_slice *words = join_words(call, &count);
    for (int i = 0; words != NULL && i < count; i++) {
        enum kv_acl_mistake mistake = kv_acl_draft_apply(d, words[i]);
        if (mistake == KV_ACL_NO_MEMORY) {
            kv_call_no_memory(call);
            return false;
        }
        if (mistake != KV_ACL_FINE) {
            kv_call_errorf(call, "ERR Error in ACL SETUSER modifier '%.*s': %s",
                           KV_CMD_QUOTE(words[i]), kv_acl_mistake_text(mistake));
            return false;
        }
    }
    return words != NULL;
}

void kv_cmd_acl_setuser(struct kv_call *call)
{
    struct kv_acl_draft d;
    struct kv_slice name = call->argv[2];
    if (!kv_acl_name_valid(name)) {
        kv_call_error(call, "ERR Usernames can't contain spaces or null characters");
        return;
    }
    const struct kv_user *u = kv_acl_find(call->engine, name);
    if (!kv_acl_draft_begin(&d, call->engine, call->arena, u == NULL ? NULL : u->rules)) {
        kv_call_no_memory(call);
        return;
    }
    if (!apply_words(call, &d))
        return;
    struct kv_acl_rules *rules = kv_acl_draft_pack(&d);
    if (rules == NULL || kv_acl_set_user_take(call->engine, name, &rules, call->client) != KV_OK)
        kv_call_no_memory(call);
    else
        kv_reply_ok(call->out);
    kv_acl_rules_release(rules);
}

void kv_cmd_acl_deluser(struct kv_call *call)
{
    int64_t deleted = 0;
    for (int i = 2; i < call->argc; i++) {
        if (kv_slice_equal(call->argv[i], kv_acl_default_user(call->engine)->name)) {
            kv_call_error(call, "ERR The 'default' user cannot be removed");
            return;
        }
    }
    for (int i = 2; i < call->argc; i++) {
        struct kv_user *u = kv_acl_find(call->engine, call->argv[i]);
        if (u == NULL)
            continue;
        kv_acl_delete_user(call->engine, u, call->client);
        deleted++;
    }
    kv_reply_int(call->out, deleted);
}

/* --- LOG --- */

static void reply_log_entry(const struct kv_acl_log_entry *x, void *arg)
{
    static const char *const reasons[] = {
        [KV_ACL_BY_COMMAND] = "command",
        [KV_ACL_BY_KEY] = "key",
        [KV_ACL_BY_CHANNEL] = "channel",
        [KV_ACL_BY_AUTH] = "auth",
    };
    static const char *const contexts[] = {
        [KV_ACL_TOPLEVEL] = "toplevel", [KV_ACL_MULTI] = "multi", [KV_ACL_SCRIPT] = "lua"};
    struct kv_out *out = arg;
    kv_reply_map(out, 10);
    kv_reply_text(out, "count");
    kv_reply_int(out, (int64_t)x->count);
    kv_reply_text(out, "reason");
    kv_reply_text(out, reasons[x->reason]);
    kv_reply_text(out, "context");
    kv_reply_text(out, contexts[x->context]);
    kv_reply_text(out, "object");
    kv_reply_slice(out, x->object);
    kv_reply_text(out, "username");
    kv_reply_slice(out, x->user);
    kv_reply_text(out, "age-seconds");
    kv_reply_double(out, (double)KV_MAX(kv_clock_wall_ms() - x->created_ms, (int64_t)0) / 1000);
    kv_reply_text(out, "client-info");
    kv_reply_slice(out, x->client);
    kv_reply_text(out, "entry-id");
    kv_reply_int(out, (int64_t)x->id);
    kv_reply_text(out, "timestamp-created");
    kv_reply_int(out, x->created_ms);
    kv_reply_text(out, "timestamp-last-updated");
    kv_reply_int(out, x->updated_ms);
}

struct log_walk {
    struct kv_out *out;
    size_t count;
};

static void log_visit(const struct kv_acl_log_entry *x, void *arg)
{
    struct log_walk *w = arg;
    reply_log_entry(x, w->out);
    w->count++;
}

void kv_cmd_acl_log(struct kv_call *call)
{
    struct log_walk w = {.out = call->out};
    int64_t max = LOG_SHOWN;
    if (call->argc > 3) {
        kv_call_unknown_subcommand(call);
        return;
    }
    if (call->argc == 3 && kv_call_arg_is(call, 2, "reset")) {
        kv_acl_log_reset(call->engine);
        kv_reply_ok(call->out);
        return;
    }
    if (call->argc == 3 && !kv_call_int(call, 2, &max))
        return;
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    kv_acl_log_each(call->engine, (uint64_t)KV_MAX(max, (int64_t)0), log_visit, &w);
    kv_reply_array_end(call->out, token, w.count);
}

/* --- files --- */

void kv_cmd_acl_load(struct kv_call *call)
{
    struct kv_text text, errors;
    kv_text_init(&text);
    kv_text_init(&errors);
    enum kv_err err = kv_users_load(call->engine, call->client, &errors);
    if (err == KV_OK) {
        kv_reply_ok(call->out);
    } else if (err == KV_ERR_NOTFOUND) {
        kv_call_error(call, NO_FILE);
    } else {
        kv_text_printf(&text, "ERR %s", kv_text_cstr(&errors));
        kv_call_error(call, kv_text_cstr(&text));
    }
    kv_text_release(&errors);
    kv_text_release(&text);
}

void kv_cmd_acl_save(struct kv_call *call)
{
    enum kv_err err = kv_users_save(call->engine);
    switch (err) {
    case KV_OK:
        kv_reply_ok(call->out);
        break;
    case KV_ERR_NOTFOUND:
        kv_call_error(call, NO_FILE);
        break;
    case KV_ERR_NOMEM:
        kv_call_no_memory(call);
        break;
    default:
        kv_log(KV_LOG_WARNING, "Can't save the users in '%s': %s",
               kv_engine_options(call->engine)->aclfile,
               err == KV_ERR_IO ? strerror(errno) : kv_err_text(err));
        kv_call_error(call, "ERR There was an error trying to save the ACLs. Please check the "
                            "server logs for more information");
    }
}

void kv_cmd_acl_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "CAT [<category>]",
        "    All categories of commands, or the commands of one.",
        "DELUSER <username> [<username> ...]",
        "    Delete users; their connections are closed.",
        "DRYRUN <username> <command> [<arg> ...]",
        "    Whether the user may run this, without running it.",
        "GENPASS [<bits>]",
        "    A random password of so many bits, 256 without a number.",
        "GETUSER <username>",
        "    The rules of a user.",
        "LIST",
        "    All users with their rules, as a configuration file has them.",
        "LOAD",
        "    Replace all users by those of the users' file.",
        "LOG [<count>|RESET]",
        "    What was denied last, or forget it.",
        "SAVE",
        "    Write all users into the users' file.",
        "SETUSER <username> [<rule> ...]",
        "    Make a user or change its rules.",
        "USERS",
        "    The names of all users.",
        "WHOAMI",
        "    The user of this connection.",
        NULL,
    };
    kv_call_help(call, lines);
}
