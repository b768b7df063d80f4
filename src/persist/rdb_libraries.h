/* Libraries of functions in files and payloads: a record for each, which is a byte and the code as
 * a string. What they are belongs to script/ (struct kv_library_ops of engine/script.h); an engine
 * whose commands know no functions has none, and cannot load any. */
#ifndef KV_PERSIST_RDB_LIBRARIES_H
#define KV_PERSIST_RDB_LIBRARIES_H

#include "engine/script.h"
#include "persist/rdb_io.h"

/* Puts a record of each library. [alone] */
void kv_rdb_put_libraries(struct kv_rdb_writer *w, struct kv_engine *e);

/* The same into bytes of their own, which are empty; KV_ERR_NOMEM: nothing is there. [alone] */
enum kv_err kv_rdb_libraries_collect(struct kv_engine *e, struct kv_rdb_bytes *out) KV_MUST_CHECK;

/* The code of the next record; false: there is none (*fine), or the records are not whole, or not
 * of libraries (*foreign). */
bool kv_rdb_take_library(struct kv_rdb_reader *r, struct kv_rdb_string *code, bool *fine,
                         bool *foreign) KV_MUST_CHECK;

/* Loads records that were collected from a file, and releases them. `replace`: libraries of their
 * names may be there. False: why not, in `error` and in the log of the server; those before it are
 * loaded. [alone, or in a slice of loading] */
bool kv_rdb_libraries_load(struct kv_engine *e, struct kv_rdb_bytes *records, bool replace,
                           char error[KV_LIBRARY_ERROR_MAX]) KV_MUST_CHECK;

/* Removes all libraries. [alone] */
void kv_rdb_libraries_clear(struct kv_engine *e);

#endif
