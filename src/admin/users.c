/* Users as text, in both directions, and the files they are kept in.
 *
 * Printing gives words that are read back as the same rules: commands in the order in which they
 * were given, behind -@all or +@all; "resetchannels" before channels, since a new user may begin
 * with all of them (acl-pubsub-default).
 *
 * A users' file is read as a whole before anything changes: all its mistakes are collected, each
 * with its line, since an administrator wants to know all of them. One mistake that is no unknown
 * command stands for all of its line, as in Redis.
 *
 * The file is written in KV_MODE_STOP and waits for the disk, as CONFIG REWRITE does.
 */
#include "admin/users.h"

#include "admin/config_priv.h"
#include "base/file.h"
#include "base/log.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define ARENA_BYTES 4096
#define FILE_MODE 0600 /* of a new file: it has hashes of passwords */

/* --- printing --- */

static void print_entry(const struct kv_engine *e, const struct kv_acl_entry *x,
                        struct kv_text *out)
{
    const struct kv_command_table *t = kv_engine_commands((struct kv_engine *)e);
    kv_text_append(out, x->allow ? KV_SLICE(" +") : KV_SLICE(" -"));
    if (x->kind == KV_ACL_CATEGORY) {
        kv_text_printf(out, "@%s", t->categories[x->id]);
        return;
    }
    kv_text_append(out, kv_slice_cstr(kv_engine_command_by_id(e, x->id)->full_name));
    if (x->kind == KV_ACL_FIRST_ARG) {
        kv_text_append(out, KV_SLICE("|"));
        kv_text_append(out, x->arg);
    }
}

void kv_users_print_commands(const struct kv_engine *e, const struct kv_acl_selector *s,
                             struct kv_text *out)
{
    kv_text_append(out, s->flags & KV_ACL_ALL_COMMANDS ? KV_SLICE("+@all") : KV_SLICE("-@all"));
    for (uint32_t i = 0; i < s->entry_count; i++)
        print_entry(e, &s->entries[i], out);
}

void kv_users_print_keys(const struct kv_acl_selector *s, struct kv_text *out)
{
    if (s->flags & KV_ACL_ALL_KEYS) {
        kv_text_append(out, KV_SLICE("~*"));
        return;
    }
    for (uint32_t i = 0; i < s->key_count; i++) {
        static const char *const prefixes[] = {"", "%R~", "%W~", "~"};
        kv_text_printf(out, "%s%s", i > 0 ? " " : "", prefixes[s->keys[i].permissions]);
        kv_text_append(out, s->keys[i].text);
    }
}

void kv_users_print_channels(const struct kv_acl_selector *s, struct kv_text *out)
{
    if (s->flags & KV_ACL_ALL_CHANNELS) {
        kv_text_append(out, KV_SLICE("&*"));
        return;
    }
    for (uint32_t i = 0; i < s->channel_count; i++) {
        kv_text_append(out, i > 0 ? KV_SLICE(" &") : KV_SLICE("&"));
        kv_text_append(out, s->channels[i]);
    }
}

static void print_selector(const struct kv_engine *e, const struct kv_acl_selector *s,
                           struct kv_text *out)
{
    kv_users_print_keys(s, out);
    if (s->flags & KV_ACL_ALL_KEYS || s->key_count > 0)
        kv_text_append(out, KV_SLICE(" "));
    if (!(s->flags & KV_ACL_ALL_CHANNELS))
        kv_text_append(out, KV_SLICE("resetchannels "));
    kv_users_print_channels(s, out);
    if (s->flags & KV_ACL_ALL_CHANNELS || s->channel_count > 0)
        kv_text_append(out, KV_SLICE(" "));
    kv_users_print_commands(e, s, out);
}

void kv_users_print_rules(const struct kv_engine *e, const struct kv_acl_rules *r,
                          struct kv_text *out)
{
    kv_text_append(out, r->flags & KV_ACL_ON ? KV_SLICE("on ") : KV_SLICE("off "));
    if (r->flags & KV_ACL_NOPASS)
        kv_text_append(out, KV_SLICE("nopass "));
    if (r->flags & KV_ACL_SANITIZE)
        kv_text_append(out, KV_SLICE("sanitize-payload "));
    if (r->flags & KV_ACL_SKIP_SANITIZE)
        kv_text_append(out, KV_SLICE("skip-sanitize-payload "));
    for (uint32_t i = 0; i < r->password_count; i++) {
        char hex[KV_SHA256_HEX];
        kv_sha256_print(r->passwords[i], hex);
        kv_text_append(out, KV_SLICE("#"));
        kv_text_append(out, kv_slice(hex, sizeof(hex)));
        kv_text_append(out, KV_SLICE(" "));
    }
    print_selector(e, &r->selectors[0], out);
    for (uint32_t i = 1; i < r->selector_count; i++) {
        kv_text_append(out, KV_SLICE(" ("));
        print_selector(e, &r->selectors[i], out);
        kv_text_append(out, KV_SLICE(")"));
    }
}

void kv_users_print(const struct kv_engine *e, const struct kv_user *u, struct kv_text *out)
{
    kv_text_append(out, KV_SLICE("user "));
    kv_text_append(out, u->name);
    kv_text_append(out, KV_SLICE(" "));
    kv_users_print_rules(e, u->rules, out);
}

/* --- reading a users' file --- */

struct file_reader {
    const struct kv_engine *engine;
    const char *path;
    uint32_t line;
    struct kv_acl_set *set;
    struct kv_text *errors;
    struct kv_arena arena; /* of one line */
};

/* Words between single spaces; two spaces have an empty word between them. */
static enum kv_err split_line(struct file_reader *r, struct kv_slice line, struct kv_words *out)
{
    int count = 1;
    for (size_t i = 0; i < line.len; i++)
        count += line.ptr[i] == ' ';
    out->items = kv_arena_try_alloc(&r->arena, (size_t)count * sizeof(*out->items));
    out->count = 0;
    if (out->items == NULL)
        return KV_ERR_NOMEM;
    size_t begin = 0;
    for (size_t i = 0; i <= line.len; i++) {
        if (i < line.len && line.ptr[i] != ' ')
            continue;
        out->items[out->count++] = kv_slice(line.ptr + begin, i - begin);
        begin = i + 1;
    }
    return KV_OK;
}

static void complain(struct file_reader *r, const char *text, struct kv_slice word,
                     const char *more)
{
    kv_text_printf(r->errors, "%s:%u: %s", r->path, r->line, text);
    kv_text_append(r->errors, word);
    kv_text_printf(r->errors, "%s. ", more);
}

/* Applies the words and tells what is wrong in them. KV_ERR_NOMEM or KV_OK. */
static enum kv_err apply_words(struct file_reader *r, struct kv_acl_draft *d,
                               const struct kv_slice *words, int count)
{
    bool told = false;
    for (int at = 0; at < count;) {
        struct kv_slice word;
        enum kv_err err = kv_acl_next_word(&r->arena, words, count, &at, &word);
        if (err == KV_ERR_NOMEM)
            return err;
        if (err == KV_ERR_SYNTAX) {
            complain(r, "Unmatched parenthesis in acl selector starting at '", word, "'");
            return KV_OK;
        }
        enum kv_acl_mistake mistake = kv_acl_draft_apply(d, word);
        if (mistake == KV_ACL_NO_MEMORY)
            return KV_ERR_NOMEM;
        if (mistake == KV_ACL_UNKNOWN_COMMAND) {
            complain(r, "Error in applying operation '", word,
                     "': Unknown command or category name in ACL");
        } else if (mistake != KV_ACL_FINE && !told) {
            complain(r, kv_acl_mistake_text(mistake), KV_SLICE(""), "");
            told = true;
        }
    }
    return KV_OK;
}

static enum kv_err read_user(struct file_reader *r, const struct kv_words *words)
{
    struct kv_acl_draft d;
    struct kv_slice name = words->items[1];
    if (!kv_acl_name_valid(name)) {
        kv_text_printf(r->errors, "'%s:%u: username '", r->path, r->line);
        kv_text_append(r->errors, name);
        kv_text_append(r->errors, KV_SLICE("' contains invalid characters. "));
        return KV_OK;
    }
    if (!kv_acl_draft_begin(&d, r->engine, &r->arena, NULL))
        return KV_ERR_NOMEM;
    enum kv_err err = apply_words(r, &d, words->items + 2, words->count - 2);
    if (err != KV_OK)
        return err;
    struct kv_acl_rules *rules = kv_acl_draft_pack(&d);
    if (rules == NULL)
        return KV_ERR_NOMEM;
    err = kv_acl_set_add_take(r->set, name, &rules);
    kv_acl_rules_release(rules);
    if (err != KV_ERR_EXISTS)
        return err;
    kv_text_append(r->errors, KV_SLICE("WARNING: Duplicate user '"));
    kv_text_append(r->errors, name);
    kv_text_printf(r->errors, "' found on line %u. ", r->line);
    return KV_OK;
}

static enum kv_err read_line(struct file_reader *r, struct kv_slice line)
{
    struct kv_words words;
    line = kv_config_trim(line);
    if (line.len == 0)
        return KV_OK;
    enum kv_err err = split_line(r, line, &words);
    if (err != KV_OK)
        return err;
    if (words.count >= 2 && kv_slice_equal(words.items[0], KV_SLICE("user")))
        return read_user(r, &words);
    kv_text_printf(r->errors, "%s:%u should start with user keyword followed by the username. ",
                   r->path, r->line);
    return KV_OK;
}

enum kv_err kv_users_read(const struct kv_engine *e, struct kv_slice text, const char *path,
                          struct kv_acl_set *set, struct kv_text *errors)
{
    struct file_reader r = {.engine = e, .path = path, .set = set, .errors = errors};
    struct kv_slice line;
    enum kv_err err = KV_OK;
    size_t before = errors->len;
    kv_arena_init(&r.arena, ARENA_BYTES, KV_MEM_CONFIG);
    while (err == KV_OK && kv_config_next_line(&text, &line)) {
        r.line++;
        err = read_line(&r, line);
        kv_arena_reset(&r.arena);
    }
    kv_arena_release(&r.arena);
    if (err == KV_ERR_NOMEM || errors->failed) {
        kv_text_append(errors, KV_SLICE("Out of memory. "));
        return KV_ERR_NOMEM;
    }
    if (errors->len == before)
        return KV_OK;
    kv_text_append(errors, KV_SLICE("WARNING: ACL errors detected, no change to the previously "
                                    "active ACL rules was performed"));
    return KV_ERR_SYNTAX;
}

/* --- files --- */

/* KV_ERR_IO: errno. */
static enum kv_err read_file(const char *path, struct kv_text *out)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return KV_ERR_IO;
    enum kv_err err = kv_config_read_file(fd, out);
    int error = errno;
    close(fd);
    errno = error;
    return err;
}

enum kv_err kv_users_load(struct kv_engine *e, struct kv_client *by, struct kv_text *errors)
{
    const char *path = kv_engine_options(e)->aclfile;
    struct kv_acl_set set = {0};
    struct kv_text text;
    if (path[0] == '\0')
        return KV_ERR_NOTFOUND;
    kv_text_init(&text);
    enum kv_err err = read_file(path, &text);
    if (err != KV_OK) {
        kv_text_printf(errors, "Error loading ACLs, opening file '%s': %s", path,
                       err == KV_ERR_IO ? strerror(errno) : kv_err_text(err));
    } else {
        err = kv_users_read(e, kv_text_slice(&text), path, &set, errors);
        if (err == KV_OK)
            err = kv_acl_replace_take(e, &set, by);
        if (err == KV_ERR_NOMEM && errors->len == 0)
            kv_text_append(errors, KV_SLICE("Out of memory"));
    }
    kv_acl_set_release(&set);
    kv_text_release(&text);
    return err;
}

enum kv_err kv_users_save(struct kv_engine *e)
{
    const char *path = kv_engine_options(e)->aclfile;
    struct kv_text text;
    struct stat st;
    if (path[0] == '\0')
        return KV_ERR_NOTFOUND;
    unsigned mode = stat(path, &st) == 0 ? st.st_mode & 0777 : FILE_MODE;
    kv_text_init(&text);
    for (uint32_t i = 0; i < kv_acl_user_count(e); i++) {
        kv_users_print(e, kv_acl_user(e, i), &text);
        kv_text_append(&text, KV_SLICE("\n"));
    }
    enum kv_err err =
        text.failed ? KV_ERR_NOMEM : kv_file_replace(path, kv_text_slice(&text), mode);
    int error = errno;
    kv_text_release(&text);
    errno = error;
    return err;
}

/* --- lines of the configuration --- */

struct kv_acl_rules *kv_users_rules_of(const struct kv_engine *e, const struct kv_slice *words,
                                       int count, enum kv_acl_mistake *mistake,
                                       struct kv_slice *word)
{
    struct kv_acl_draft d;
    struct kv_arena arena;
    struct kv_acl_rules *rules = NULL;
    kv_arena_init(&arena, ARENA_BYTES, KV_MEM_CONFIG);
    *word = KV_SLICE("");
    *mistake = KV_ACL_NO_MEMORY;
    if (kv_acl_draft_begin(&d, e, &arena, NULL)) {
        *mistake = KV_ACL_FINE;
        for (int at = 0; *mistake == KV_ACL_FINE && at < count;) {
            struct kv_slice next;
            int first = at;
            enum kv_err err = kv_acl_next_word(&arena, words, count, &at, &next);
            *word = words[first];
            *mistake = err == KV_OK           ? kv_acl_draft_apply(&d, next)
                       : err == KV_ERR_SYNTAX ? KV_ACL_SYNTAX
                                              : KV_ACL_NO_MEMORY;
        }
        if (*mistake == KV_ACL_FINE) {
            rules = kv_acl_draft_pack(&d);
            *mistake = rules == NULL ? KV_ACL_NO_MEMORY : KV_ACL_FINE;
        }
    }
    kv_arena_release(&arena);
    return rules;
}

/* *default_seen: whether an earlier line was about the default user, who exists without one. */
static enum kv_err add_line(struct kv_engine *e, const struct kv_words *words, bool *default_seen,
                            struct kv_reason *reason)
{
    enum kv_acl_mistake mistake;
    struct kv_slice name = words->items[0], word;
    struct kv_user *known = kv_acl_find(e, name);
    if (!kv_acl_name_valid(name)) {
        kv_reason_set(reason, "Spaces not allowed in ACL usernames");
        return KV_ERR_SYNTAX;
    }
    if (known != NULL && (known != kv_acl_default_user(e) || *default_seen)) {
        kv_reason_set(reason,
                      "Error in user declaration '%.*s': Duplicate user found. A user can only be "
                      "defined once in config files",
                      (int)KV_MIN(name.len, (size_t)64), name.ptr);
        return KV_ERR_EXISTS;
    }
    *default_seen |= known != NULL;
    struct kv_acl_rules *rules =
        kv_users_rules_of(e, words->items + 1, words->count - 1, &mistake, &word);
    if (rules == NULL) {
        kv_reason_set(reason, "Error in user declaration '%.*s': %.*s: %s",
                      (int)KV_MIN(name.len, (size_t)64), name.ptr,
                      (int)KV_MIN(word.len, (size_t)64), word.ptr, kv_acl_mistake_text(mistake));
        return KV_ERR_SYNTAX;
    }
    enum kv_err err = kv_acl_set_user_take(e, name, &rules, NULL);
    kv_acl_rules_release(rules);
    if (err != KV_OK)
        kv_reason_set(reason, "%s", kv_err_text(err));
    return err;
}

static enum kv_err add_lines(struct kv_config *c, struct kv_engine *e, struct kv_text *message)
{
    struct kv_arena arena;
    enum kv_err err = KV_OK;
    bool default_seen = false;
    kv_arena_init(&arena, ARENA_BYTES, KV_MEM_CONFIG);
    for (uint32_t i = 0; err == KV_OK && i < c->user_count; i++) {
        const struct kv_config_origin *o = c->users[i];
        struct kv_slice line = kv_slice_cstr(o->line);
        struct kv_words all;
        struct kv_reason reason;
        err = kv_words_split(&arena, line, &all);
        kv_reason_set(&reason, "out of memory");
        if (err == KV_OK) {
            struct kv_words words = {all.items + 1, all.count - 1};
            KV_ASSERT(words.count > 0);
            err = add_line(e, &words, &default_seen, &reason);
        }
        if (err != KV_OK)
            kv_config_message(message, o->arguments, o->text, o->line_number, line, reason.text);
        kv_arena_reset(&arena);
    }
    kv_arena_release(&arena);
    return err;
}

enum kv_err kv_users_start(struct kv_config *c, struct kv_engine *e, struct kv_text *message)
{
    bool has_file = kv_engine_options(e)->aclfile[0] != '\0';
    if (has_file && c->user_count > 0) {
        kv_text_append(message, KV_SLICE("Users are defined by 'user' lines of the configuration "
                                         "and by an 'aclfile'. Use one of them, not both.\n"));
        return KV_ERR_DENIED;
    }
    if (!has_file)
        return add_lines(c, e, message);
    if (kv_engine_options(e)->requirepass[0] != '\0')
        kv_log(KV_LOG_WARNING, "The users' file says who the default user is: requirepass has no "
                               "effect beside aclfile.");
    enum kv_err err = kv_users_load(e, NULL, message);
    if (err != KV_OK)
        kv_text_append(message, KV_SLICE("\n"));
    return err;
}
