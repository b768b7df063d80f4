/* Entries that are a key and one string in the RDB format, which most are: strings, and collections
 * that are packed into one block. They are written in one go into room that is there, so that it is
 * looked for once an entry and not once a piece.
 *
 *     struct kv_rdb_quick q;
 *     if (kv_rdb_quick_of(e, &q))
 *         end = kv_rdb_quick_write(&q, v, e, flags, compress, out);   q.most bytes are there
 *
 * All others go through kv_rdb_put_entry_head and kv_rdb_put_value. The bytes are the same ones.
 *
 * Threads: under the lock of the entry's shard.
 */
#ifndef KV_PERSIST_RDB_QUICK_H
#define KV_PERSIST_RDB_QUICK_H

#include "persist/rdb_file.h"

#define KV_RDB_QUICK_MAX ((size_t)8192) /* an entry that may take more is not quick */

struct kv_rdb_quick {
    struct kv_slice key, value; /* the entry's own bytes; value.ptr NULL: `number` is the value */
    int64_t number;
    size_t most;  /* bytes that it takes, at most; at most KV_RDB_QUICK_MAX */
    uint8_t form; /* one that every version of the format knows that we write */
};

/* False: the entry is not of this kind, or too large. */
bool kv_rdb_quick_of(const struct kv_entry *e, struct kv_rdb_quick *q) KV_MUST_CHECK;

/* As kv_rdb_put_entry; returns where the next byte goes. `compress`: rdbcompression. */
uint8_t *kv_rdb_quick_write(const struct kv_rdb_quick *q, const struct kv_view *v,
                            const struct kv_entry *e, uint32_t flags, bool compress, uint8_t *out);

#endif
