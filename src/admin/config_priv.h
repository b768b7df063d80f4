/* Body of the configuration, shared by config.c, config_file.c and config_rewrite.c. */
#ifndef KV_ADMIN_CONFIG_PRIV_H
#define KV_ADMIN_CONFIG_PRIV_H

#include "admin/config.h"

/* Where a value was given last: for messages that come after the line was read. */
struct kv_config_origin {
    size_t block_size; /* of this allocation */
    const char *line;  /* points behind `text` */
    uint32_t line_number;
    bool arguments; /* the command line, not a file */
    char text[];    /* source name, terminator, line, terminator */
};

struct kv_config {
    struct kv_config_value *values;    /* kv_directive_count; always parsed */
    struct kv_config_origin **origins; /* kv_directive_count; NULL: at its default */
    struct kv_config_origin **users;   /* `user` lines, in their order; owned */
    uint32_t user_count, user_capacity;
    char *file;       /* absolute path, owned; NULL without */
    char *bind_names; /* terminated names that options->bind points into */
    size_t bind_names_size;
    struct kv_engine *engine; /* NULL before kv_config_attach */
    uint32_t include_depth;   /* files being read inside each other */
    uint32_t include_count;   /* files read so far */
    uint32_t cores;           /* what threads auto means; 0: not asked yet */
    bool include_forbidden;
};

/* Reads a whole file. KV_ERR_IO: errno. KV_ERR_LIMIT: over KV_CONFIG_FILE_MAX. */
#define KV_CONFIG_FILE_MAX ((size_t)16 * 1024 * 1024)
enum kv_err kv_config_read_file(int fd, struct kv_text *out) KV_MUST_CHECK;

/* Composes an error message: where, the line, why. */
void kv_config_message(struct kv_text *message, bool arguments, const char *source,
                       uint32_t line_number, struct kv_slice line, const char *reason);

/* Next line of `rest` without its end; false at the end of the text. */
bool kv_config_next_line(struct kv_slice *rest, struct kv_slice *line);

/* Without the blanks before and behind it; the ends of lines are some, too. */
struct kv_slice kv_config_trim(struct kv_slice s);

/* Replaces a value and takes over the new one's memory. */
void kv_config_take_value(struct kv_config *c, uint32_t index, struct kv_config_value *value);

#endif
