/* The configuration: values of all directives, from defaults, files, standard input, arguments and
 * CONFIG SET, and the struct kv_options that is made of them.
 *
 * Life cycle
 *   kv_config_create                   everything at its default
 *   kv_config_load_file/_text/_args    later lines override earlier ones
 *   kv_config_finish                   refuses what this version does not have
 *   kv_config_fill                     writes the options for kv_engine_create
 *   kv_config_attach                   from now on CONFIG SET reaches this engine
 *   kv_config_destroy                  after kv_engine_destroy: it owns the options' strings
 *
 * Threads: the main thread before workers run; afterwards whoever is in KV_MODE_STOP.
 */
#ifndef KV_ADMIN_CONFIG_H
#define KV_ADMIN_CONFIG_H

#include "admin/directive.h"
#include "engine/engine.h"

struct kv_config;

struct kv_config *kv_config_create(void);
void kv_config_destroy(struct kv_config *c);

/* --- loading; on failure *message says where and why in two or three lines --- */

/* Reads a file, its `include`s and so on. KV_ERR_IO: errno; the message names the file. */
enum kv_err kv_config_load_file(struct kv_config *c, const char *path,
                                struct kv_text *message) KV_MUST_CHECK;

/* Reads lines. `source` names them in messages ("standard input"). */
enum kv_err kv_config_load_text(struct kv_config *c, struct kv_slice text, const char *source,
                                struct kv_text *message) KV_MUST_CHECK;

/* Arguments of the command line behind the program's name: [file|-] [--name value...]... [-]. A
 * file's absolute path is kept for REWRITE. Order: file, standard input, options. */
enum kv_err kv_config_load_args(struct kv_config *c, int argc, char *const *argv,
                                struct kv_text *message) KV_MUST_CHECK;

/* KV_ERR_DENIED: a directive asks for what this version does not have. */
enum kv_err kv_config_finish(struct kv_config *c, struct kv_text *message) KV_MUST_CHECK;

/* `include` lines fail from now on (fuzzing). */
void kv_config_forbid_include(struct kv_config *c);

/* --- reading --- */

/* Writes the fields that directives stand for, and o->config; leaves the others alone. Strings stay
 * valid until the directive changes or the configuration is destroyed. */
void kv_config_fill(struct kv_config *c, struct kv_options *o);

int64_t kv_config_number(const struct kv_config *c, const char *name);   /* number types only */
const char *kv_config_text(const struct kv_config *c, const char *name); /* text types only */
bool kv_config_given(const struct kv_config *c, const char *name); /* set by file or argument */
const char *kv_config_file_path(const struct kv_config *c);        /* absolute; "" without */

/* Appends the value of directive number `index` as CONFIG GET shows it. */
void kv_config_print(const struct kv_config *c, uint32_t index, struct kv_text *out);

/* --- changing --- */

/* The engine whose options follow from now on. */
void kv_config_attach(struct kv_config *c, struct kv_engine *e);

/* The configuration of an engine, NULL when it has none (library use). */
struct kv_config *kv_config_of(struct kv_engine *e);

struct kv_config_failure {
    struct kv_slice name; /* the argument that is to blame, borrowed */
    bool unknown;         /* no such directive; else reason says why */
    struct kv_reason reason;
};

/* Sets all pairs {name, value, name, value ...} or none. `local`: the asker is on this machine,
 * which opens protected directives when they are enabled for `local`. Effects show at once. */
enum kv_err kv_config_set(struct kv_config *c, const struct kv_slice *pairs, int count, bool local,
                          struct kv_config_failure *failure) KV_MUST_CHECK;

/* Descriptors that the server needs beside those of clients. */
uint32_t kv_config_reserved_files(const struct kv_config *c);

/* Raises the limit of open files to what maxclients needs; true when it suffices. *limit is what is
 * possible, also on failure. */
bool kv_config_raise_file_limit(const struct kv_config *c, uint64_t maxclients, uint64_t *limit);

/* Takes fewer clients than asked for, because files are short. */
void kv_config_lower_maxclients(struct kv_config *c, uint32_t maxclients);

/* Enters `dir` and keeps its absolute name. KV_ERR_IO: errno. */
enum kv_err kv_config_enter_folder(struct kv_config *c) KV_MUST_CHECK;

/* Brings the file up to date: lines that no longer give the current value are replaced in place,
 * what is missing is appended, comments and everything else stay. Atomic. KV_ERR_NOTFOUND: the
 * server runs without a file. KV_ERR_IO: errno. */
enum kv_err kv_config_rewrite(struct kv_config *c) KV_MUST_CHECK;

/* Pure part of it: the new content for a file that reads `old`. */
enum kv_err kv_config_compose(struct kv_config *c, struct kv_slice old,
                              struct kv_text *out) KV_MUST_CHECK;

#endif
