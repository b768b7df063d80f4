/* What COMMAND DOCS tells of a command: generated constants, written to a client by cmd/command.c
 * and by nobody else. Pointers that may be NULL say so. Constant: any thread. */
#ifndef KV_CMD_DOCS_H
#define KV_CMD_DOCS_H

#include "base/compiler.h"

enum kv_arg_type {
    KV_ARG_STRING,
    KV_ARG_INTEGER,
    KV_ARG_DOUBLE,
    KV_ARG_KEY,        /* a string that names a key */
    KV_ARG_PATTERN,    /* a glob */
    KV_ARG_UNIX_TIME,  /* an integer: seconds or milliseconds since 1970 */
    KV_ARG_PURE_TOKEN, /* the token alone */
    KV_ARG_ONEOF,      /* exactly one of the inner arguments */
    KV_ARG_BLOCK,      /* the inner arguments one after another */
    KV_ARG_TYPE_COUNT
};

enum kv_arg_flags {
    KV_ARG_OPTIONAL = 1,       /* may be left out */
    KV_ARG_MULTIPLE = 2,       /* may be repeated */
    KV_ARG_MULTIPLE_TOKEN = 4, /* repeated together with its token */
};

enum kv_doc_flags { KV_DOC_DEPRECATED = 1, KV_DOC_SYSCMD = 2 };

struct kv_command_arg {
    const char *name;
    const char *token;                 /* word that precedes it, or NULL */
    const char *display;               /* what a hint shows; NULL: the name */
    const char *since;                 /* version, or NULL: as old as the command */
    const char *deprecated_since;      /* version, or NULL */
    const struct kv_command_arg *args; /* of oneof and block, else NULL */
    uint16_t arg_count;
    uint8_t type;    /* enum kv_arg_type */
    uint8_t flags;   /* enum kv_arg_flags */
    int8_t key_spec; /* KEY: which key specification finds it; else -1 */
};

struct kv_command_docs {
    const char *summary;
    const char *since;
    const char *group;
    const char *complexity;
    const char *deprecated_since;      /* NULL: not deprecated */
    const char *replaced_by;           /* NULL: not deprecated */
    const struct kv_command_arg *args; /* NULL: takes none */
    uint16_t arg_count;
    uint8_t flags; /* enum kv_doc_flags */
};

#endif
