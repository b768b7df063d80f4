/* The closed list of ways in which an operation fails. 0 is success. Results come back through the
 * last parameters; on failure nothing has changed unless the function's header says otherwise. */
#ifndef KV_BASE_ERR_H
#define KV_BASE_ERR_H

#include "base/compiler.h"

enum kv_err {
    KV_OK = 0,
    KV_ERR_NOMEM,    /* a try allocation failed */
    KV_ERR_IO,       /* a system call failed; errno has the reason */
    KV_ERR_NOTFOUND, /* what was named does not exist */
    KV_ERR_EXISTS,   /* what was to be made exists */
    KV_ERR_RANGE,    /* a number outside its range */
    KV_ERR_SYNTAX,   /* text that does not parse */
    KV_ERR_TYPE,     /* a value of another type */
    KV_ERR_OVERFLOW, /* arithmetic would overflow */
    KV_ERR_LIMIT,    /* a configured limit would be passed */
    KV_ERR_AGAIN,    /* not now: try later */
    KV_ERR_CLOSED,   /* the peer or the object is gone */
    KV_ERR_DENIED,   /* not allowed */
    KV_ERR_COUNT
};

/* English text of an error, never NULL, without a final stop. */
const char *kv_err_text(enum kv_err err);

#endif
