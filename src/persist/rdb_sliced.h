/* Large collections in the RDB format, piece by piece: what comes before the members or nodes, then
 * each of them (store/sliced.h). Together the pieces are what kv_rdb_put_value writes, members in
 * whatever order they come. Threads: as rdb_io.h; the lock of the key's shard. */
#ifndef KV_PERSIST_RDB_SLICED_H
#define KV_PERSIST_RDB_SLICED_H

#include "persist/rdb_io.h"
#include "store/sliced.h"

/* What the pieces of a value have in common. */
struct kv_rdb_sliced {
    uint8_t form;
    int64_t first_due; /* earliest due time of its members, or KV_NOT_DUE */
};

/* The value's beginning: how many pieces follow, and what they refer to. */
void kv_rdb_put_sliced(struct kv_rdb_writer *w, const struct kv_entry *e,
                       struct kv_rdb_sliced *out);

void kv_rdb_put_sliced_item(struct kv_rdb_writer *w, const struct kv_rdb_sliced *s,
                            const struct kv_sliced_item *item);

#endif
