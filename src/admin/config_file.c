/* Reading a configuration: files, standard input, arguments.
 *
 * A line is a directive's name and its words (admin/words.h); blank lines and lines that begin with
 * `#` say nothing. Arguments are turned into lines, one per `--name`, and read like a file, so that
 * there is one grammar. Later lines override earlier ones; save and client-output-buffer-limit
 * accumulate.
 *
 * Lines that set no value: include (a path or a glob pattern; files are read in its place, at most
 * 16 deep and 1,000 in all), user (only the default user with all rights, which a rewritten
 * redis.conf contains), rename-command and loadmodule (always refused: somebody relies on them).
 *
 * Each value remembers where it was given, because a refusal is decided at the end: `appendonly
 * yes` in a file that an argument overrides by `no` is fine.
 *
 * Errors name file, line, text and reason. Threads: the main thread before workers run, and CONFIG
 * REWRITE in KV_MODE_STOP.
 *
 * Rejected: joining everything into one text as redis-server does, which counts lines of arguments
 * and included files as if they stood in one file.
 */
#include "admin/config_priv.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <limits.h>
#include <unistd.h>

#define LINE_MAX_BYTES ((size_t)1024 * 1024)
#define INCLUDE_DEPTH_MAX 16
#define INCLUDE_COUNT_MAX 1000
#define ARENA_BYTES 4096
#define READ_BYTES ((size_t)16 * 1024)
#define UNKNOWN_DIRECTIVE "Bad directive or wrong number of arguments"

/* One line on its way. */
struct reader {
    struct kv_config *config;
    struct kv_arena *arena; /* words of the line; reset after it */
    const char *source;     /* file name or "standard input" */
    bool arguments;         /* lines were made of the command line */
    uint32_t line_number;   /* counts from 1 */
    struct kv_slice line;   /* without white space at its ends */
    struct kv_text *message;
};

void kv_config_message(struct kv_text *message, bool arguments, const char *source,
                       uint32_t line_number, struct kv_slice line, const char *reason)
{
    if (arguments)
        kv_text_printf(message, "Reading the command line, at option %u\n", line_number);
    else
        kv_text_printf(message, "Reading the configuration file, at line %u of %s\n", line_number,
                       source);
    kv_text_append(message, KV_SLICE(">>> '"));
    kv_text_append(message, line);
    kv_text_printf(message, "'\n%s\n", reason);
}

static enum kv_err complain(struct reader *r, const char *reason)
{
    kv_config_message(r->message, r->arguments, r->source, r->line_number, r->line, reason);
    return KV_ERR_SYNTAX;
}

bool kv_config_next_line(struct kv_slice *rest, struct kv_slice *line)
{
    if (rest->len == 0)
        return false;
    const char *end = memchr(rest->ptr, '\n', rest->len);
    size_t len = end == NULL ? rest->len : (size_t)(end - rest->ptr);
    size_t used = end == NULL ? len : len + 1;
    *line = kv_slice(rest->ptr, len);
    *rest = kv_slice(rest->ptr + used, rest->len - used);
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

struct kv_slice kv_config_trim(struct kv_slice s)
{
    while (s.len > 0 && is_blank(s.ptr[0]))
        s = kv_slice(s.ptr + 1, s.len - 1);
    while (s.len > 0 && is_blank(s.ptr[s.len - 1]))
        s.len--;
    return s;
}

/* --- lines that set no value --- */

/* Where a value was given: source and line. */
static struct kv_config_origin *make_origin(const struct reader *r)
{
    size_t source_size = strlen(r->source) + 1;
    size_t block_size = sizeof(struct kv_config_origin) + source_size + r->line.len + 1;
    struct kv_config_origin *o = kv_mem_alloc(block_size, KV_MEM_CONFIG);
    o->block_size = block_size;
    o->line_number = r->line_number;
    o->arguments = r->arguments;
    memcpy(o->text, r->source, source_size);
    char *line = o->text + source_size;
    memcpy(line, r->line.ptr, r->line.len);
    line[r->line.len] = '\0';
    o->line = line;
    return o;
}

/* Kept as it is: what its words mean only an engine knows (admin/users.h). */
static void keep_user(struct reader *r)
{
    struct kv_config *c = r->config;
    if (c->user_count == c->user_capacity) {
        uint32_t capacity = c->user_capacity == 0 ? 4 : c->user_capacity * 2;
        c->users = kv_mem_realloc(c->users, c->user_capacity * sizeof(struct kv_config_origin *),
                                  capacity * sizeof(struct kv_config_origin *), KV_MEM_CONFIG);
        c->user_capacity = capacity;
    }
    c->users[c->user_count++] = make_origin(r);
}

static enum kv_err include_file(struct reader *r, const char *path)
{
    struct kv_config *c = r->config;
    if (c->include_depth >= INCLUDE_DEPTH_MAX || c->include_count >= INCLUDE_COUNT_MAX)
        return complain(r, "too many included files, or a file includes itself");
    c->include_depth++;
    c->include_count++;
    enum kv_err err = kv_config_load_file(c, path, r->message);
    c->include_depth--;
    if (err != KV_OK) {
        kv_text_printf(r->message, "included by %s, at line %u\n", r->source, r->line_number);
        return KV_ERR_SYNTAX;
    }
    return KV_OK;
}

static enum kv_err include(struct reader *r, const struct kv_words *words)
{
    char pattern[PATH_MAX];
    if (words->count != 1)
        return complain(r, UNKNOWN_DIRECTIVE);
    struct kv_slice word = words->items[0];
    if (r->config->include_forbidden || word.len == 0 || word.len >= sizeof(pattern) ||
        memchr(word.ptr, '\0', word.len) != NULL)
        return complain(r, "this file name can't be included");
    memcpy(pattern, word.ptr, word.len);
    pattern[word.len] = '\0';
    if (strpbrk(pattern, "*?[") == NULL)
        return include_file(r, pattern);
    glob_t found;
    int result = glob(pattern, 0, NULL, &found);
    if (result == GLOB_NOMATCH)
        return KV_OK;
    if (result != 0)
        return complain(r, "can't read the folder of this pattern");
    enum kv_err err = KV_OK;
    for (size_t i = 0; i < found.gl_pathc && err == KV_OK; i++)
        err = include_file(r, found.gl_pathv[i]);
    globfree(&found);
    return err;
}

/* True when the name is one of these; then *err is the outcome. */
static bool load_action(struct reader *r, struct kv_slice name, const struct kv_words *words,
                        enum kv_err *err)
{
    *err = KV_OK;
    if (kv_slice_is(name, "include")) {
        *err = include(r, words);
    } else if (kv_slice_is(name, "user")) {
        if (words->count == 0)
            *err = complain(r, UNKNOWN_DIRECTIVE);
        else
            keep_user(r);
    } else if (kv_slice_is(name, "rename-command")) {
        *err = complain(r, words->count == 2
                               ? "'rename-command' is not supported by this version of Kvik"
                               : UNKNOWN_DIRECTIVE);
    } else if (kv_slice_is(name, "loadmodule")) {
        *err = complain(r, words->count > 0 ? "'loadmodule' is not supported by Kvik"
                                            : UNKNOWN_DIRECTIVE);
    } else {
        return kv_directive_obsolete(name);
    }
    return true;
}

/* --- lines that set a value --- */

static void keep_origin(struct reader *r, uint32_t index)
{
    struct kv_config_origin **place = &r->config->origins[index];
    if (*place != NULL)
        kv_mem_free(*place, (*place)->block_size, KV_MEM_CONFIG);
    *place = make_origin(r);
}

static enum kv_err load_value(struct reader *r, struct kv_slice name, const struct kv_words *words)
{
    int index = kv_directive_find(name);
    if (index < 0)
        return complain(r, UNKNOWN_DIRECTIVE);
    const struct kv_directive *d = &kv_directives[index];
    if (words->count == 0 && strcmp(d->name, "bind") != 0)
        return complain(r, "wrong number of arguments");
    struct kv_config_value value = {0};
    struct kv_reason reason;
    /* Lines of `save` add up, but the first of them takes the place of the default. */
    const struct kv_config_value *old = &r->config->values[index];
    if (strcmp(d->name, "save") == 0 && !kv_config_given(r->config, "save"))
        old = NULL;
    if (!kv_directive_parse(d, r->arena, words, old, &value, &reason))
        return complain(r, reason.text);
    kv_config_take_value(r->config, (uint32_t)index, &value);
    keep_origin(r, (uint32_t)index);
    return KV_OK;
}

static enum kv_err load_line(struct reader *r, struct kv_slice raw)
{
    r->line = kv_config_trim(raw);
    if (r->line.len == 0 || r->line.ptr[0] == '#')
        return KV_OK;
    if (r->line.len > LINE_MAX_BYTES) {
        r->line.len = 64;
        return complain(r, "line too long");
    }
    struct kv_words all;
    enum kv_err err = kv_words_split(r->arena, r->line, &all);
    if (err != KV_OK)
        return complain(r, err == KV_ERR_SYNTAX ? "Unbalanced quotes in configuration line"
                                                : "out of memory");
    if (all.count == 0)
        return KV_OK;
    struct kv_words words = {all.items + 1, all.count - 1};
    if (load_action(r, all.items[0], &words, &err))
        return err;
    return load_value(r, all.items[0], &words);
}

static enum kv_err load(struct kv_config *c, struct kv_slice text, const char *source,
                        bool arguments, struct kv_text *message)
{
    struct kv_arena arena;
    struct reader r = {c, &arena, source, arguments, 0, {NULL, 0}, message};
    struct kv_slice line;
    enum kv_err err = KV_OK;
    kv_arena_init(&arena, ARENA_BYTES, KV_MEM_CONFIG);
    while (err == KV_OK && kv_config_next_line(&text, &line)) {
        r.line_number++;
        err = load_line(&r, line);
        kv_arena_reset(&arena);
    }
    kv_arena_release(&arena);
    return err;
}

enum kv_err kv_config_load_text(struct kv_config *c, struct kv_slice text, const char *source,
                                struct kv_text *message)
{
    return load(c, text, source, false, message);
}

/* --- files --- */

enum kv_err kv_config_read_file(int fd, struct kv_text *out)
{
    char bytes[READ_BYTES];
    for (;;) {
        ssize_t len = read(fd, bytes, sizeof(bytes));
        if (len == 0)
            break;
        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0)
            return KV_ERR_IO;
        if (out->len + (size_t)len > KV_CONFIG_FILE_MAX)
            return KV_ERR_LIMIT;
        kv_text_append(out, kv_slice(bytes, (size_t)len));
    }
    return out->failed ? KV_ERR_NOMEM : KV_OK;
}

static enum kv_err load_open_file(struct kv_config *c, int fd, const char *name,
                                  struct kv_text *message)
{
    struct kv_text text;
    kv_text_init(&text);
    enum kv_err err = kv_config_read_file(fd, &text);
    if (err == KV_OK)
        err = load(c, kv_text_slice(&text), name, false, message);
    else
        kv_text_printf(message, "Can't read the configuration file '%s': %s\n", name,
                       err == KV_ERR_IO ? strerror(errno) : kv_err_text(err));
    kv_text_release(&text);
    return err;
}

enum kv_err kv_config_load_file(struct kv_config *c, const char *path, struct kv_text *message)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        kv_text_printf(message, "Can't open the configuration file '%s': %s\n", path,
                       strerror(errno));
        return KV_ERR_IO;
    }
    enum kv_err err = load_open_file(c, fd, path, message);
    close(fd);
    return err;
}

/* --- arguments --- */

/* Keeps the absolute name of the file, because the server changes its folder. */
static void keep_file_name(struct kv_config *c, const char *path)
{
    char folder[PATH_MAX];
    struct kv_text name;
    kv_text_init(&name);
    if (path[0] != '/' && getcwd(folder, sizeof(folder)) != NULL)
        kv_text_printf(&name, "%s/", strcmp(folder, "/") == 0 ? "" : folder);
    kv_text_append(&name, kv_slice_cstr(path));
    KV_ASSERT(c->file == NULL);
    c->file = kv_mem_strdup(kv_text_cstr(&name), name.len, KV_MEM_CONFIG);
    kv_text_release(&name);
}

static bool is_option(const char *arg)
{
    return arg[0] == '-' && arg[1] == '-';
}

/* Turns options into lines. A name without a value yet takes the next argument whatever it looks
 * like, so that a value may begin with dashes; `--save` alone means save "". */
static void collect_options(int argc, char *const *argv, int first, struct kv_text *lines,
                            bool *use_stdin)
{
    bool wants_value = false;
    for (int i = first; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "-") == 0 && (i == 0 || i == argc - 1)) {
            *use_stdin = true;
        } else if (is_option(arg) && !wants_value) {
            const char *name = arg + 2;
            kv_text_printf(lines, "%s%s", lines->len > 0 ? "\n" : "", name);
            wants_value = name[0] != '\0' && strpbrk(name, " \t\n") == NULL;
            bool alone = i + 1 == argc || is_option(argv[i + 1]);
            if (alone && kv_slice_is(kv_slice_cstr(name), "save")) {
                kv_text_append(lines, KV_SLICE(" \"\""));
                wants_value = false;
            }
        } else {
            kv_text_append(lines, KV_SLICE(" "));
            kv_text_append_quoted(lines, kv_slice_cstr(arg));
            wants_value = false;
        }
    }
}

enum kv_err kv_config_load_args(struct kv_config *c, int argc, char *const *argv,
                                struct kv_text *message)
{
    struct kv_text lines;
    bool use_stdin = false;
    enum kv_err err = KV_OK;
    bool has_file = argc > 0 && argv[0][0] != '-';
    kv_text_init(&lines);
    collect_options(argc, argv, has_file ? 1 : 0, &lines, &use_stdin);
    if (has_file) {
        keep_file_name(c, argv[0]);
        err = kv_config_load_file(c, argv[0], message);
    }
    if (err == KV_OK && use_stdin)
        err = load_open_file(c, STDIN_FILENO, "standard input", message);
    if (err == KV_OK)
        err = load(c, kv_text_slice(&lines), "arguments", true, message);
    kv_text_release(&lines);
    return err;
}

void kv_config_forbid_include(struct kv_config *c)
{
    c->include_forbidden = true;
}
