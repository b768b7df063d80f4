/* What a command is: metadata from the JSON files in commands/, turned into a constant table by
 * tools/gen_commands.py (src/cmd/table.c). The engine knows commands only through this. */
#ifndef KV_ENGINE_COMMAND_H
#define KV_ENGINE_COMMAND_H

#include "base/slice.h"

struct kv_call;
struct kv_command;

typedef void (*kv_cmd_fn)(struct kv_call *call);

/* True when a command line needs the gate although its command does not (SORT with patterns, which
 * read keys that no line names). Any words, any thread. */
typedef bool (*kv_cmd_alone_fn)(const struct kv_slice *argv, int argc);

/* Argument that is a key, where a specification cannot say it; 0: there is none. Likewise. */
typedef int (*kv_cmd_key_fn)(const struct kv_slice *argv, int argc);

/* Flags as COMMAND INFO names them, plus the engine's own (from KV_CMD_ENGINE on). */
enum kv_cmd_flags {
    KV_CMD_WRITE = 1u << 0,
    KV_CMD_READONLY = 1u << 1,
    KV_CMD_DENYOOM = 1u << 2,
    KV_CMD_ADMIN = 1u << 3,
    KV_CMD_PUBSUB = 1u << 4,
    KV_CMD_NOSCRIPT = 1u << 5,
    KV_CMD_BLOCKING = 1u << 6,
    KV_CMD_LOADING = 1u << 7,
    KV_CMD_STALE = 1u << 8,
    KV_CMD_SKIP_MONITOR = 1u << 9,
    KV_CMD_SKIP_SLOWLOG = 1u << 10,
    KV_CMD_ASKING = 1u << 11,
    KV_CMD_FAST = 1u << 12,
    KV_CMD_NO_AUTH = 1u << 13,
    KV_CMD_MAY_REPLICATE = 1u << 14,
    KV_CMD_NO_ASYNC_LOADING = 1u << 15,
    KV_CMD_NO_MULTI = 1u << 16,
    KV_CMD_MOVABLEKEYS = 1u << 17,
    KV_CMD_ALLOW_BUSY = 1u << 18,
    KV_CMD_NO_MANDATORY_KEYS = 1u << 19,
    KV_CMD_PROTECTED = 1u << 20, /* this and the next are not shown */
    KV_CMD_TOUCHES_ARBITRARY_KEYS = 1u << 21,
    KV_CMD_ALL_DBS = 1u << 22,
    KV_CMD_SENTINEL = 1u << 23, /* accepted in the data, not shown */
    KV_CMD_EXPERIMENTAL = 1u << 24,
    /* engine */
    KV_CMD_BATCH = 1u << 25,     /* plain keyed: may run inside a look-ahead batch */
    KV_CMD_MAY_ALONE = 1u << 26, /* `alone` tells of each line whether it needs the gate */
    KV_CMD_SCRIPT = 1u << 27,    /* runs other commands: takes the token (engine/script.h) */
};

/* What a command needs before it runs. EXEC takes the strongest of its queue. */
enum kv_cmd_mode {
    KV_MODE_FREE = 0,   /* nothing of the keyspace (PING, CLIENT ID) */
    KV_MODE_KEYS = 1,   /* the shards of its keys */
    KV_MODE_SHARDS = 2, /* visits shards one by one with kv_call_lock_shard (SCAN, RANDOMKEY) */
    KV_MODE_ALONE =
        3, /* the gate: no other worker is inside the keyspace (KEYS, DBSIZE, FLUSHALL) */
    KV_MODE_STOP = 4, /* the gate, and all other workers stand at a loop boundary (CLIENT LIST/KILL,
                       * CONFIG, INFO): other workers' clients and all options may be touched */
};

enum kv_keyspec_begin { KV_BEGIN_INDEX, KV_BEGIN_KEYWORD, KV_BEGIN_UNKNOWN };
enum kv_keyspec_find { KV_FIND_RANGE, KV_FIND_KEYNUM, KV_FIND_UNKNOWN };

/* Key specification flags as COMMAND GETKEYSANDFLAGS names them. */
enum kv_keyspec_flags {
    KV_KEY_RO = 1u << 0,
    KV_KEY_RW = 1u << 1,
    KV_KEY_OW = 1u << 2,
    KV_KEY_RM = 1u << 3,
    KV_KEY_ACCESS = 1u << 4,
    KV_KEY_UPDATE = 1u << 5,
    KV_KEY_INSERT = 1u << 6,
    KV_KEY_DELETE = 1u << 7,
    KV_KEY_NOT_KEY = 1u << 8,
    KV_KEY_INCOMPLETE = 1u << 9,
    KV_KEY_VARIABLE_FLAGS = 1u << 10,
};

struct kv_keyspec {
    uint32_t flags;      /* enum kv_keyspec_flags */
    uint8_t begin;       /* enum kv_keyspec_begin */
    uint8_t find;        /* enum kv_keyspec_find */
    int16_t begin_index; /* INDEX: argument; KEYWORD: where to start searching (negative: from the
                            end) */
    const char *begin_keyword; /* KEYWORD only, upper case */
    /* RANGE: last (relative to begin, negative from the end), step, limit.
     * KEYNUM: index of the number, first key (both relative to begin), step. */
    int16_t a, b, c;
    kv_cmd_key_fn find_key; /* UNKNOWN, or NULL: its keys cannot be told from the line. KEYWORD,
                               INDEX (of several specifications): instead of it, or NULL */
    const char *notes;      /* or NULL */
};

struct kv_command {
    const char *name;      /* lower case; of a subcommand only its own word ("get") */
    const char *full_name; /* "get", "config|get" */
    kv_cmd_fn fn;          /* NULL for a container that needs a subcommand */
    int16_t arity;         /* as COMMAND INFO prints it; negative: at least */
    uint16_t id;           /* dense, 0 .. kv_command_table.count - 1, subcommands included */
    uint32_t flags;        /* enum kv_cmd_flags */
    uint8_t mode;          /* enum kv_cmd_mode */
    uint8_t keyspec_count;
    uint8_t member_arg; /* argument that names a member of its key's collection; 0: none does */
    uint16_t sub_count;
    int16_t first_key, last_key, key_step; /* legacy triple of COMMAND INFO */
    const struct kv_keyspec *keyspecs;
    const struct kv_command *subs;      /* sorted by name */
    const struct kv_command *parent;    /* of a subcommand */
    kv_cmd_alone_fn alone;              /* with KV_CMD_MAY_ALONE, else NULL */
    uint32_t acl_categories;            /* bit i = categories[i] of the table */
    const char *const *tips;            /* NULL-terminated, or NULL */
    const struct kv_command_docs *docs; /* cmd/docs.h; unknown to the engine */
};

struct kv_client;
struct kv_engine;

/* Flags of a key of this line whose specification has KV_KEY_VARIABLE_FLAGS. Pure. */
typedef uint32_t (*kv_cmd_key_flags_fn)(const struct kv_command *cmd, const struct kv_slice *argv,
                                        int argc, uint32_t flags);

/* Describes a client as CLIENT LIST does, as if `cmd` ran now, without the end of the line. Returns
 * the length, at most `size`. The client's worker. */
typedef size_t (*kv_client_line_fn)(struct kv_engine *e, const struct kv_client *c,
                                    const struct kv_command *cmd, char *text, size_t size);

/* The whole table, handed to the engine when it is created; with what the engine has to ask about
 * commands. */
struct kv_command_table {
    const struct kv_command *commands;      /* top level, sorted by name */
    uint32_t command_count;                 /* top level */
    uint32_t id_count;                      /* with subcommands */
    uint32_t category_count;                /* permission categories, at most 32 */
    const char *const *categories;          /* their names; bit i of acl_categories is name i */
    kv_cmd_key_flags_fn line_key_flags;     /* NULL: such keys need all that their flags say */
    kv_client_line_fn client_line;          /* NULL: lines are empty */
    const struct kv_library_ops *libraries; /* engine/script.h; NULL: there are no functions */
};

/* What a command line needs. */
KV_INLINE enum kv_cmd_mode kv_command_mode(const struct kv_command *cmd,
                                           const struct kv_slice *argv, int argc)
{
    if (KV_UNLIKELY(cmd->flags & KV_CMD_MAY_ALONE) && cmd->alone(argv, argc))
        return KV_MODE_ALONE;
    return (enum kv_cmd_mode)cmd->mode;
}

/* Finds positions of the keys of a command line: writes up to `max` argument indexes (and their
 * spec's flags, when not NULL), returns how many there are, or -1 when the arguments do not fit the
 * specification (the command will answer with its own error). */
int kv_command_keys(const struct kv_command *cmd, const struct kv_slice *argv, int argc,
                    int *index_out, uint32_t *flags_out, int max);

/* A command line of `argc` words has as many as the command takes. */
KV_INLINE bool kv_command_arity_fits(const struct kv_command *cmd, int argc)
{
    return cmd->arity >= 0 ? argc == cmd->arity : argc >= -cmd->arity;
}

/* Subcommand by name (any case) or NULL. */
const struct kv_command *kv_command_sub(const struct kv_command *cmd, struct kv_slice name);

#endif
