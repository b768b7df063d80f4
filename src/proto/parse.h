/* Parses requests: RESP arrays of bulk strings and inline commands, out of a buffer that holds any
 * number of commands and may end anywhere. Arguments are slices into the buffer: nothing is
 * allocated for a command that is complete but the array of slices, which comes from an arena.
 *
 * A command that is incomplete is parsed again from its start when more bytes have come, unless it
 * is long (more than KV_PARSE_SAVE bytes so far) or has a large bulk that is still arriving. Then a
 * kv_partial takes over: it consumes bytes as they come, copies small arguments into its own arena
 * and has large ones read straight into blocks of their own, so the total work stays linear and the
 * read buffer never grows.
 *
 * Limits and error texts are those of the Redis protocol. No sockets; any thread, one at a time.
 */
#ifndef KV_PROTO_PARSE_H
#define KV_PROTO_PARSE_H

#include "base/err.h"
#include "base/slice.h"
#include "mem/arena.h"

#define KV_PARSE_INLINE_MAX (64 * 1024) /* bytes of an inline command or of a length line */
#define KV_PARSE_BIG_BYTES (16 * 1024)  /* a bulk from here on gets a block of its own */
#define KV_PARSE_SAVE (16 * 1024)       /* a partial command beyond this is kept as kv_partial */
#define KV_PARSE_UNAUTH_ARGS 10         /* arguments allowed before authentication */
#define KV_PARSE_UNAUTH_BULK 16384      /* bytes of a bulk allowed before authentication */

enum kv_parse_status {
    KV_PARSE_OK = 0, /* a command: argv, argc, next */
    KV_PARSE_EMPTY,  /* nothing to execute (blank line, "*0"): go on at next */
    KV_PARSE_MORE,   /* incomplete */
    KV_PARSE_LARGE,  /* incomplete with a large bulk: use a kv_partial */
    KV_PARSE_ERROR,  /* protocol error: answer `error` and close */
};

struct kv_parse_limits {
    uint64_t bulk_max;  /* proto-max-bulk-len, bytes */
    bool authenticated; /* false: the limits above for strangers */
};

struct kv_request {
    struct kv_slice *argv; /* in the arena */
    int argc;
    const char *start; /* first byte of the command */
    const char *next;  /* first byte after it */
    char error[80];    /* KV_PARSE_ERROR: text with its code, "ERR Protocol error: ..." */
};

/* Parses the command at [start, end). The arena keeps argv until it is reset. */
enum kv_parse_status kv_parse(const char *start, const char *end,
                              const struct kv_parse_limits *limits, struct kv_arena *arena,
                              struct kv_request *out) KV_HOT;

/* Splits a line as inline commands and the configuration file do: words separated by blanks,
 * "..." with \n \r \t \b \a \xHH escapes, '...' with \'; a closing quote ends its word. Words are
 * copied into the arena by try allocations. Returns the number of words, KV_LINE_QUOTES for
 * unbalanced quotes, KV_LINE_MEMORY when the arena is exhausted. */
#define KV_LINE_QUOTES (-1)
#define KV_LINE_MEMORY (-2)
int kv_parse_line(struct kv_slice line, struct kv_arena *arena, struct kv_slice **argv);

/* How a kv_partial gets blocks for large arguments: proto/ does not know what a block is. */
struct kv_block_ops {
    void *(*create)(size_t len, char **data); /* NULL when memory is short */
    void (*release)(void *block);
};

struct kv_partial_block {
    void *block;
    int arg; /* index of the argument that it holds */
};

struct kv_partial {
    struct kv_arena arena; /* small arguments */
    struct kv_slice *argv; /* owned, argv_capacity slices */
    uint32_t argv_capacity;
    int argc;                        /* arguments that are complete */
    int64_t expected;                /* arguments in all; -1 before the header was read */
    bool complete;                   /* the command may be executed */
    char *bulk;                      /* where the bulk in progress goes; NULL between bulks */
    size_t bulk_len, bulk_filled;    /* bytes */
    uint32_t skip;                   /* bytes of CR LF to skip after the bulk */
    struct kv_partial_block *blocks; /* owned */
    uint32_t block_count, block_capacity;
    size_t held_bytes;  /* memory for arguments, for the query buffer limit */
    size_t large_bytes; /* blocks of those that have one of their own */
    const struct kv_block_ops *ops;
};

/* NULL when memory is short. */
struct kv_partial *kv_partial_create(const struct kv_block_ops *ops) KV_MUST_CHECK;
void kv_partial_destroy(struct kv_partial *p); /* releases blocks that nobody took */

/* Bytes that it holds, in whole blocks, large arguments included. */
size_t kv_partial_memory(const struct kv_partial *p);

/* Consumes bytes from *pos on, at most until the command is complete (KV_PARSE_OK; *pos is then the
 * first byte after it). KV_PARSE_MORE: everything was consumed but a length line that is cut (at
 * most KV_PARSE_INLINE_MAX bytes, *pos stands at its start). KV_PARSE_ERROR as above. */
enum kv_parse_status kv_partial_feed(struct kv_partial *p, const char **pos, const char *end,
                                     const struct kv_parse_limits *limits, char error[80]);

/* Where the next bytes from the socket may be read to directly, when a bulk is in progress: returns
 * the space left and *dest, or 0. Tell what arrived with kv_partial_filled. */
size_t kv_partial_space(const struct kv_partial *p, char **dest);
void kv_partial_filled(struct kv_partial *p, size_t bytes);

/* Gives up ownership of the block that holds argument `arg`; NULL when it is in none. */
void *kv_partial_take_block(struct kv_partial *p, int arg);

#endif
