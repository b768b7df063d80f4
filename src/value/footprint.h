/* What a value costs, as every type reports it: the keyspace adds it up by type and database. */
#ifndef KV_VALUE_FOOTPRINT_H
#define KV_VALUE_FOOTPRINT_H

#include <stddef.h>

struct kv_footprint {
    size_t block_bytes; /* whole blocks, as the memory layer counts them */
    size_t used_bytes;  /* headers and content in them; the difference is slack */
};

#endif
