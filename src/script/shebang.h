/* The first line of a script: "#!lua flags=no-writes,allow-oom". */
#ifndef KV_SCRIPT_SHEBANG_H
#define KV_SCRIPT_SHEBANG_H

#include "base/slice.h"

#define KV_SHEBANG_ERROR_MAX 160

enum kv_shebang_flags {
    KV_SHEBANG_NO_WRITES = 1,
    KV_SHEBANG_ALLOW_OOM = 2,
    KV_SHEBANG_ALLOW_STALE = 4,       /* no replica is ever stale here */
    KV_SHEBANG_NO_CLUSTER = 8,        /* there is no cluster */
    KV_SHEBANG_ALLOW_CROSS_SLOT = 16, /* likewise */
    KV_SHEBANG_NONE = 32,             /* there is no such line */
};

struct kv_shebang {
    uint32_t flags;       /* enum kv_shebang_flags */
    struct kv_slice code; /* the rest, from the end of the line on, so that lines keep numbers */
};

/* Reads the line. False: why not, in `error` ("ERR ..."). */
bool kv_shebang_read(struct kv_slice text, struct kv_shebang *out,
                     char error[KV_SHEBANG_ERROR_MAX]) KV_MUST_CHECK;

/* The flag of a name, in any case; 0: there is none. Any thread. */
uint32_t kv_shebang_flag(struct kv_slice name);
/* The name of the flag that is bit `i`; NULL: there are no more. */
const char *kv_shebang_flag_name(uint32_t i);

/* Reads the first line of a library: "#!lua name=NAME". The name may consist of anything; words may
 * be in quotes. False: why not, in `error`. */
bool kv_shebang_read_library(struct kv_slice text, struct kv_slice *engine, struct kv_slice *name,
                             struct kv_slice *code, char error[KV_SHEBANG_ERROR_MAX]) KV_MUST_CHECK;

#endif
