/* A large collection that a snapshot saves in slices, while commands change it.
 *
 *   opened     at the snapshot's moment, or later when nothing in it has changed since then: by
 *              the walk that meets it, or by a command that is about to change it
 *   walk       its shard's home worker gives the members to the hook, a slice at a time
 *   kept       who is about to change a member gives it to the hook first, unless the walk has
 *              passed it, and its name is noted: the walk leaves noted names out
 *   finished   all that is left is given to the hook at once
 *   orphan     the key is deleted or overwritten: the structure is the record's now, which is
 *              walked on in peace and freed
 *
 * Each member of the moment is given to the hook exactly once, as it was then: members of sets,
 * hashes and sorted sets in any order, nodes of a list in the list's order, but for those that the
 * hook is told belong to the end, each before the ones told earlier.
 *
 * How others find it: the structure points to the record (struct kv_guard). Functions that change
 * members one by one say which (large_keep_member, large_keep_end in store_priv.h); all others
 * begin with kv_store_large_begin, which finishes: a path that nobody thought of is slow, not
 * wrong. Debug builds assert that structures change in one of these ways.
 *
 * Memory: a name for each changed member, in `noted`, and what the hook makes of members.
 *
 * Threads: under the lock of the structure's shard, but for kv_sliced_release.
 */
#ifndef KV_STORE_SLICED_H
#define KV_STORE_SLICED_H

#include "store/snapshot.h"
#include "value/guard.h"
#include "value/list.h"
#include <stdatomic.h>

/* Collections whose blocks take more are saved in slices. */
#define KV_SLICED_BYTES ((size_t)64 << 10)

/* What is given to the hook. */
struct kv_sliced_item {
    struct kv_slice name;  /* member or field; of a list: a node's packed list */
    struct kv_slice value; /* of a field */
    double score;          /* of a sorted set's member */
    int64_t due;           /* ms of Unix time, or KV_NOT_DUE */
    bool from_end;         /* a node that comes before all those told with this so far */
};

/* Where the walk stands. */
struct kv_sliced_cursor {
    uint64_t position;                 /* table: all below are passed */
    double score;                      /* order: all up to this score and name are passed */
    char *name;                        /* NULL: none is passed yet */
    size_t name_len, name_capacity;    /* bytes */
    struct kv_list_node *first, *last; /* list: nodes that are left; NULL: none */
};

struct kv_sliced {
    struct kv_guard guard; /* first: what the structure points to */
    const struct kv_snapshot_hooks *hooks;
    void *large;             /* the structure */
    uint8_t type;            /* enum kv_type */
    uint8_t encoding;        /* enum kv_encoding */
    bool done;               /* all was given, or it was cancelled: nothing points here any more */
    bool orphan;             /* the structure is ours */
    bool broken;             /* no memory for a name: the snapshot has failed */
    uint64_t left;           /* members or nodes that were not given yet */
    _Atomic(uint32_t) shard; /* whose lock guards it; changes under both locks (RENAME) */
    struct kv_sliced_cursor at;
    struct kv_table noted; /* names that the walk leaves out */
};

/* Opens entry e, which the snapshot has not seen yet, of shard `shard`. */
void kv_sliced_open(struct kv_sliced *s, const struct kv_snapshot_hooks *hooks,
                    const struct kv_view *v, const struct kv_entry *e, uint32_t shard);

/* A slice: until `deadline_ticks` has passed or all is given; s->done tells which. */
void kv_sliced_walk(struct kv_view *v, struct kv_sliced *s, uint64_t deadline_ticks);

/* The snapshot is worth nothing any more: lets the structure go. */
void kv_sliced_cancel(struct kv_sliced *s);

/* Frees what the record holds, once it is done; any thread. */
void kv_sliced_release(struct kv_sliced *s);

/* --- for store/, with the guard of a structure --- */

/* Before a member is added, changed or removed. */
void kv_sliced_keep_member(struct kv_view *v, struct kv_guard *g, struct kv_slice name,
                           uint64_t hash) KV_COLD;

/* Before items are pushed to an end of a list (items 0) or dropped from it. */
void kv_sliced_keep_end(struct kv_view *v, struct kv_guard *g, enum kv_list_end end,
                        uint64_t items) KV_COLD;

/* Before any other change. */
void kv_sliced_finish(struct kv_view *v, struct kv_guard *g) KV_COLD;

/* The structure's entry goes: the record takes it over. */
void kv_sliced_hand_over(struct kv_guard *g) KV_COLD;

/* The structure's entry goes to another shard; locks of both. */
void kv_sliced_rehome(struct kv_guard *g, uint32_t shard) KV_COLD;

#endif
