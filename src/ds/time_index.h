/* Index of due times: an ordered multiset of records {when, position}, a B+-tree with leaves of 512
 * bytes (42 records of 12 bytes) and inner nodes of 512 bytes (25 children). The expiry index of a
 * shard's database; one record per key with a time to live, moved when that time changes.
 *
 *   when      milliseconds of Unix time, 0 .. 2^48 - 1
 *   position  the hash position of the key (ds/table.h), 0 .. 2^41 - 1
 *
 * Order: by when, then position. Equal records may occur more than once. Appending in ascending
 * order leaves leaves full (a leaf that overflows at its end is left full), random order about 85 %
 * full, since a full leaf first gives to a neighbour. Removal merges neighbours whose sum fits six
 * sevenths of a node. Threads: the caller serialises.
 */
#ifndef KV_DS_TIME_INDEX_H
#define KV_DS_TIME_INDEX_H

#include "base/err.h"
#include "ds/move.h"
#include "mem/mem.h"

#define KV_TIME_INDEX_WHEN_MAX (((uint64_t)1 << 48) - 1)

struct kv_time_index_node;

struct kv_time_index {
    struct kv_time_index_node *root; /* NULL while empty: costs nothing */
    uint64_t count;                  /* records */
    uint64_t first_when;             /* smallest `when`; UINT64_MAX while empty */
    uint32_t node_count;             /* nodes of 512 bytes: 2 TiB of them fit */
    uint16_t height;
    uint16_t owner;             /* enum kv_mem_owner that pays for the nodes */
    unsigned __int128 when_sum; /* sum of all `when`, for averages */
};

void kv_time_index_init(struct kv_time_index *x, enum kv_mem_owner owner);
void kv_time_index_release(struct kv_time_index *x); /* frees all nodes */

/* KV_ERR_NOMEM: nothing changed. */
enum kv_err kv_time_index_insert(struct kv_time_index *x, uint64_t when,
                                 uint64_t position) KV_MUST_CHECK;

/* The record must be present (asserted). Never fails. */
void kv_time_index_remove(struct kv_time_index *x, uint64_t when, uint64_t position);

/* remove(old) then insert(new), atomically: KV_ERR_NOMEM leaves the old record. */
enum kv_err kv_time_index_move(struct kv_time_index *x, uint64_t old_when, uint64_t new_when,
                               uint64_t position) KV_MUST_CHECK;

/* Smallest record; false while empty. */
bool kv_time_index_first(const struct kv_time_index *x, uint64_t *when, uint64_t *position);

/* A random record, close to uniform; false while empty. */
struct kv_random;
bool kv_time_index_random(const struct kv_time_index *x, struct kv_random *r, uint64_t *when,
                          uint64_t *position);

/* Moves nodes out of slabs that are evacuated: the leaf of the record {*when, *position} and what
 * leads to it. Start with {0, 0}; true: the record is that of the next leaf now, call again. Nodes
 * that are present during a whole walk are met at least once, unless more records than fit a leaf
 * are equal. m counts leaves that stay and all nodes that move. */
bool kv_time_index_move_nodes(struct kv_time_index *x, uint64_t *when, uint64_t *position,
                              struct kv_moves *m);

size_t kv_time_index_memory(const struct kv_time_index *x);
void kv_time_index_check(const struct kv_time_index *x);

#endif
