/* The packed containers that a value may lie in: listpacks, and the ziplists and zipmaps of older
 * versions. Opening one looks through all of it, so that walking over the items needs no checks.
 * Borrows the bytes. Threads: none shared. */
#ifndef KV_PERSIST_RDB_ITEMS_H
#define KV_PERSIST_RDB_ITEMS_H

#include "base/number.h"
#include "persist/rdb_io.h"

enum kv_rdb_packing {
    KV_RDB_LISTPACK,
    KV_RDB_ZIPLIST,
    KV_RDB_ZIPMAP, /* fields and values */
};

struct kv_rdb_items {
    enum kv_rdb_packing packing;
    const uint8_t *at; /* the next item */
    uint64_t count;    /* items in all */
    bool canonical;    /* a listpack as ds/packed.h keeps it */
    size_t longest;    /* of a listpack: bytes of its longest string */
    bool value_next;   /* of a zipmap: the next item is a value */
};

/* False: the bytes are no such container, and the reader has the fault. */
bool kv_rdb_items_open(struct kv_rdb_items *i, struct kv_rdb_reader *r, enum kv_rdb_packing packing,
                       struct kv_slice bytes) KV_MUST_CHECK;

/* The next item as text, a number printed into scratch; false: there is none. */
bool kv_rdb_items_next(struct kv_rdb_items *i, char scratch[KV_INT_TEXT_MAX],
                       struct kv_slice *out) KV_MUST_CHECK;

#endif
