/* Which words of a command line are passwords, or may hold one. Logs and monitors write
 * "(redacted)" in their places.
 *
 * Words are asked about one after the other: what an option says of those behind it is remembered,
 * so a line costs its length, and a word is an option only where the command takes it for one. */
#ifndef KV_ENGINE_SECRET_H
#define KV_ENGINE_SECRET_H

#include "base/slice.h"
#include <stdbool.h>

struct kv_command;

struct kv_secrets {
    const struct kv_command *cmd; /* as resolved: a subcommand, when it has any */
    const struct kv_slice *argv;
    int at;      /* the argument that is asked about next */
    int values;  /* so many from there on belong to an option */
    bool hidden; /* and are secret */
};

/* The beginning of a line. */
KV_INLINE struct kv_secrets kv_secrets_begin(const struct kv_command *cmd,
                                             const struct kv_slice *argv)
{
    return (struct kv_secrets){.cmd = cmd, .argv = argv};
}

/* Whether the next word is secret, beginning with the command's name; at most argc times. */
bool kv_secrets_next(struct kv_secrets *s);

#endif
