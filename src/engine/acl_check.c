/* Whether a user's rules allow a command line.
 *
 * One of the selectors must allow all of it: the command (its bit, or one of its first arguments),
 * every key with what the command does to it, every channel. Of several selectors that all deny it
 * the one that came farthest tells what is missing: a channel before a key before the command, then
 * the later argument.
 *
 * Keys. A command that reads what is stored (access) needs a pattern that may be read, one that
 * inserts, updates or deletes needs one that may be written; both need one pattern for both. What
 * tells something about a key only (EXISTS, STRLEN, TYPE) is content with any. Where the line
 * decides (SET with and without GET) the table tells what this line does.
 *
 * Channels are told by the few commands that take some. A pattern to subscribe to must be among the
 * user's literally, since no pattern can be compared with another.
 *
 * Threads: reading only; the log has its own lock.
 */
#include "engine/acl.h"

#include "base/assert.h"
#include "base/glob.h"
#include "engine/worker.h"
#include <stdio.h>
#include <string.h>

#define KEYS_AT_HAND 16 /* keys of a line that need no memory */
#define NAME_SHOWN 128

struct line {
    const struct kv_command *cmd;
    const struct kv_slice *argv;
    int argc;
    const int *keys;       /* arguments that are keys */
    const uint8_t *needed; /* what each needs, enum kv_acl_permissions; 0: any */
    int key_count;
    int first_channel, channel_end; /* arguments that are channels */
    bool channel_patterns;
};

struct denial {
    enum kv_acl_verdict verdict;
    int arg;
};

static uint8_t permissions_needed(uint32_t flags)
{
    uint8_t needed = 0;
    if (flags & KV_KEY_ACCESS)
        needed |= KV_ACL_READ;
    if (flags & (KV_KEY_INSERT | KV_KEY_UPDATE | KV_KEY_DELETE))
        needed |= KV_ACL_WRITE;
    return needed;
}

static void find_channels(struct line *l)
{
    static const struct {
        const char *name;
        bool all, pattern;
    } commands[] = {
        {"publish", false, false},   {"spublish", false, false}, {"subscribe", true, false},
        {"ssubscribe", true, false}, {"psubscribe", true, true},
    };
    if (!(l->cmd->flags & KV_CMD_PUBSUB) || l->argc < 2)
        return;
    for (size_t i = 0; i < KV_ARRAY_LEN(commands); i++) {
        if (strcmp(l->cmd->full_name, commands[i].name) != 0)
            continue;
        l->first_channel = 1;
        l->channel_end = commands[i].all ? l->argc : 2;
        l->channel_patterns = commands[i].pattern;
    }
}

static bool command_allowed(const struct kv_acl_selector *s, const struct line *l)
{
    const struct kv_command *cmd = l->cmd;
    if (cmd->flags & KV_CMD_NO_AUTH || s->commands[cmd->id / 64] >> (cmd->id % 64) & 1)
        return true;
    for (uint32_t i = 0; l->argc > 1 && i < s->entry_count; i++) {
        const struct kv_acl_entry *x = &s->entries[i];
        if (x->kind == KV_ACL_FIRST_ARG && x->id == cmd->id && x->arg.len == l->argv[1].len &&
            strncasecmp(x->arg.ptr, l->argv[1].ptr, x->arg.len) == 0)
            return true;
    }
    return false;
}

static bool key_allowed(const struct kv_acl_selector *s, struct kv_slice key, uint8_t needed)
{
    if (s->flags & KV_ACL_ALL_KEYS)
        return true;
    for (uint32_t i = 0; i < s->key_count; i++)
        if ((s->keys[i].permissions & needed) == needed &&
            kv_glob_match(s->keys[i].text, key, false))
            return true;
    return false;
}

bool kv_acl_selector_has_channel(const struct kv_acl_selector *s, struct kv_slice name,
                                 bool pattern)
{
    if (s->flags & KV_ACL_ALL_CHANNELS)
        return true;
    for (uint32_t i = 0; i < s->channel_count; i++)
        if (pattern ? kv_slice_equal(s->channels[i], name)
                    : kv_glob_match(s->channels[i], name, false))
            return true;
    return false;
}

static struct denial check_selector(const struct kv_acl_selector *s, const struct line *l)
{
    if (!command_allowed(s, l))
        return (struct denial){KV_ACL_DENIED_COMMAND, 0};
    for (int i = 0; i < l->key_count; i++)
        if (!key_allowed(s, l->argv[l->keys[i]], l->needed[i]))
            return (struct denial){KV_ACL_DENIED_KEY, l->keys[i]};
    for (int i = l->first_channel; i < l->channel_end; i++)
        if (!kv_acl_selector_has_channel(s, l->argv[i], l->channel_patterns))
            return (struct denial){KV_ACL_DENIED_CHANNEL, i};
    return (struct denial){KV_ACL_ALLOWED, 0};
}

static enum kv_acl_verdict check_line(const struct kv_acl_rules *rules, const struct line *l,
                                      int *arg)
{
    struct denial worst = {KV_ACL_ALLOWED, 0};
    for (uint32_t i = 0; i < rules->selector_count; i++) {
        struct denial d = check_selector(&rules->selectors[i], l);
        if (d.verdict == KV_ACL_ALLOWED)
            return KV_ACL_ALLOWED;
        if (d.verdict > worst.verdict || (d.verdict == worst.verdict && d.arg > worst.arg))
            worst = d;
    }
    *arg = worst.arg;
    return worst.verdict;
}

enum kv_acl_verdict kv_acl_check_rules(const struct kv_engine *e, const struct kv_acl_rules *rules,
                                       const struct kv_command *cmd, const struct kv_slice *argv,
                                       int argc, struct kv_arena *arena, int *arg)
{
    int near_keys[KEYS_AT_HAND];
    uint32_t near_flags[KEYS_AT_HAND];
    uint8_t near_needed[KEYS_AT_HAND];
    int *keys = near_keys;
    uint32_t *flags = near_flags;
    uint8_t *needed = near_needed;
    struct line l = {.cmd = cmd, .argv = argv, .argc = argc};
    *arg = 0;
    if (rules->everything)
        return KV_ACL_ALLOWED;
    int count = kv_command_keys(cmd, argv, argc, keys, flags, KEYS_AT_HAND);
    if (count > KEYS_AT_HAND) {
        keys = kv_arena_try_alloc(arena, (size_t)count * sizeof(*keys));
        flags = kv_arena_try_alloc(arena, (size_t)count * sizeof(*flags));
        needed = kv_arena_try_alloc(arena, (size_t)count);
        if (keys == NULL || flags == NULL || needed == NULL)
            return KV_ACL_NOT_CHECKED;
        count = kv_command_keys(cmd, argv, argc, keys, flags, count);
    }
    /* A line that does not fit names no keys: the command answers with an error and reads none. */
    for (int i = 0; i < count; i++) {
        if (flags[i] & KV_KEY_VARIABLE_FLAGS && e->table->line_key_flags != NULL)
            flags[i] = e->table->line_key_flags(cmd, argv, argc, flags[i]);
        needed[i] = permissions_needed(flags[i]);
    }
    l.keys = keys;
    l.needed = needed;
    l.key_count = KV_MAX(count, 0);
    find_channels(&l);
    return check_line(rules, &l, arg);
}

enum kv_acl_verdict kv_acl_check_call(struct kv_client *c, const struct kv_command *cmd,
                                      const struct kv_slice *argv, int argc,
                                      enum kv_acl_context context)
{
    int arg;
    if (!kv_acl_restricts(c))
        return KV_ACL_ALLOWED;
    /* The client may be another worker's, when users change: the memory is that of who runs. */
    enum kv_acl_verdict verdict = kv_acl_check_rules(c->worker->engine, c->user->rules, cmd, argv,
                                                     argc, &kv_this_worker->arena, &arg);
    switch (verdict) {
    case KV_ACL_ALLOWED:
    case KV_ACL_NOT_CHECKED:
        break;
    case KV_ACL_DENIED_COMMAND:
        kv_acl_log_add(c, cmd, KV_ACL_BY_COMMAND, context, kv_slice_cstr(cmd->full_name),
                       c->user->name);
        break;
    case KV_ACL_DENIED_KEY:
        kv_acl_log_add(c, cmd, KV_ACL_BY_KEY, context, argv[arg], c->user->name);
        break;
    case KV_ACL_DENIED_CHANNEL:
        kv_acl_log_add(c, cmd, KV_ACL_BY_CHANNEL, context, argv[arg], c->user->name);
        break;
    }
    return verdict;
}

void kv_acl_denial_text(enum kv_acl_verdict verdict, const struct kv_client *c,
                        const struct kv_command *cmd, char text[KV_ACL_REPLY_MAX])
{
    switch (verdict) {
    case KV_ACL_ALLOWED:
    case KV_ACL_DENIED_COMMAND:
        snprintf(
            text, KV_ACL_REPLY_MAX, "NOPERM User %.*s has no permissions to run the '%s' command",
            (int)KV_MIN(c->user->name.len, (size_t)NAME_SHOWN), c->user->name.ptr, cmd->full_name);
        break;
    case KV_ACL_DENIED_KEY:
        snprintf(text, KV_ACL_REPLY_MAX, "NOPERM No permissions to access a key");
        break;
    case KV_ACL_DENIED_CHANNEL:
        snprintf(text, KV_ACL_REPLY_MAX, "NOPERM No permissions to access a channel");
        break;
    case KV_ACL_NOT_CHECKED:
        snprintf(text, KV_ACL_REPLY_MAX, "OOM the server is out of memory for this command");
        break;
    }
}

bool kv_acl_reads_all_keys(const struct kv_client *c, const struct kv_command *cmd)
{
    const struct line l = {.cmd = cmd};
    if (!kv_acl_restricts(c))
        return true;
    const struct kv_acl_rules *r = c->user->rules;
    for (uint32_t i = 0; i < r->selector_count; i++) {
        const struct kv_acl_selector *s = &r->selectors[i];
        if (!command_allowed(s, &l))
            continue;
        if (s->flags & KV_ACL_ALL_KEYS)
            return true;
        for (uint32_t j = 0; j < s->key_count; j++)
            if (s->keys[j].permissions & KV_ACL_READ &&
                kv_slice_equal(s->keys[j].text, KV_SLICE("*")))
                return true;
    }
    return false;
}

uint32_t kv_acl_admit_batch(struct kv_client *c, uint32_t n)
{
    struct kv_worker *w = c->worker;
    if (!kv_acl_restricts(c))
        return n;
    for (uint32_t i = 0; i < n; i++) {
        const struct kv_planned *p = &w->plan[i];
        int arg;
        if (kv_acl_check_rules(w->engine, c->user->rules, p->cmd, p->request.argv, p->request.argc,
                               &w->arena, &arg) != KV_ACL_ALLOWED)
            return i;
    }
    return n;
}
