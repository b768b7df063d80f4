/* Moving blocks while an evacuation runs (mem/mem.h): what the walks of table, index and store have
 * in common. A walk asks about every block that it can reach and puts the new address, if there is
 * one, in the place of the old. */
#ifndef KV_DS_MOVE_H
#define KV_DS_MOVE_H

#include "mem/mem.h"

/* Larger blocks are whole pages of the allocator below: moving them would give nothing back. */
#define KV_MOVE_BYTES_MAX ((size_t)16384)

/* What a walk did. Zero at its start; only ever grows. */
struct kv_moves {
    uint64_t moved; /* blocks that have another address now */
    uint64_t kept;  /* blocks that were asked about and stay */
    uint64_t bytes; /* of the moved ones */
};

/* True when a block should and may move; else it counts as kept. */
KV_INLINE bool kv_move_wanted(const void *ptr, size_t size, struct kv_moves *m)
{
    KV_DASSERT(ptr != NULL && size != 0);
    if (KV_LIKELY(size > KV_MOVE_BYTES_MAX || !kv_mem_evacuates(ptr, size))) {
        m->kept++;
        return false;
    }
    return true;
}

/* Moves a block if it should move and there is a place; returns where it is now. `size` and `owner`
 * as for kv_mem_free; not for aligned blocks. The caller alone may touch the block. */
KV_INLINE void *kv_move_block(void *ptr, size_t size, enum kv_mem_owner owner, struct kv_moves *m)
{
    if (!kv_move_wanted(ptr, size, m))
        return ptr;
    void *moved = kv_mem_try_move(ptr, size, owner);
    if (KV_UNLIKELY(moved == NULL)) {
        m->kept++;
        return ptr;
    }
    KV_DASSERT(moved != ptr);
    m->moved++;
    m->bytes += size;
    return moved;
}

#endif
