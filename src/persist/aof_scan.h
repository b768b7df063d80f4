/* Reading an append-only file command by command: the one reader behind loading and checking.
 *
 * An append-only file is RESP: arrays of bulk strings, and lines that begin with # between them.
 * The scanner keeps whole commands in a buffer that grows with the longest, never beyond what the
 * file still has, so a length that lies costs nothing.
 *
 * Use: kv_aof_scan_next gives commands out of the buffer until it answers KV_AOF_MORE; then the
 * caller is done with all slices it has got, and kv_aof_scan_fill reads on. One thread. */
#ifndef KV_PERSIST_AOF_SCAN_H
#define KV_PERSIST_AOF_SCAN_H

#include "base/err.h"
#include "base/slice.h"

#define KV_AOF_ARGS_SHOWN 8 /* first arguments that a command's slices are kept of */

enum kv_aof_found {
    KV_AOF_COMMAND,   /* one whole command */
    KV_AOF_NOTE,      /* a line with # */
    KV_AOF_MORE,      /* the buffer is used up: kv_aof_scan_fill */
    KV_AOF_END,       /* the file ends here, between two commands */
    KV_AOF_TRUNCATED, /* the file ends within a command */
    KV_AOF_BAD,       /* what is here is no command: see fault */
    KV_AOF_FAILED,    /* reading failed, errno; or memory is short (ENOMEM) */
};

struct kv_aof_item {
    const char *start; /* its bytes, in the buffer */
    size_t len;
    uint64_t offset; /* of it in the file */
    uint64_t argc;
    struct kv_slice argv[KV_AOF_ARGS_SHOWN]; /* the first of them */
};

struct kv_aof_scan {
    int fd;             /* borrowed */
    char *buf;          /* owned */
    size_t capacity;    /* of buf */
    size_t pos, len;    /* unread part of it */
    size_t need;        /* bytes from pos on that the next command has at least */
    uint64_t offset;    /* of buf[pos] in the file */
    uint64_t file_size; /* at the start */
    bool ended;         /* everything was read */
    const char *fault;  /* of KV_AOF_BAD */
};

/* Begins at the descriptor's offset `offset`. KV_ERR_IO: errno. KV_ERR_NOMEM. */
enum kv_err kv_aof_scan_init(struct kv_aof_scan *s, int fd, uint64_t offset) KV_MUST_CHECK;
void kv_aof_scan_release(struct kv_aof_scan *s);

enum kv_aof_found kv_aof_scan_next(struct kv_aof_scan *s, struct kv_aof_item *item);

/* False: KV_AOF_FAILED. Slices of items are void afterwards. */
bool kv_aof_scan_fill(struct kv_aof_scan *s) KV_MUST_CHECK;

#endif
