/* Arena: memory that lives as long as one command (a worker's) or one MULTI (a connection's).
 * Allocation moves a pointer; nothing is freed singly; reset keeps the first chunk. Belongs to one
 * thread at a time. */
#ifndef KV_MEM_ARENA_H
#define KV_MEM_ARENA_H

#include "mem/mem.h"

struct kv_arena_chunk;

struct kv_arena {
    char *pos;                    /* next free byte, 16-aligned; NULL before the first chunk */
    char *end;                    /* end of the current chunk */
    struct kv_arena_chunk *chunk; /* current chunk, linked to older ones */
    size_t chunk_size;            /* bytes of a standard chunk */
    size_t used_bytes;            /* sum of all chunks' block sizes */
    enum kv_mem_owner owner;
};

/* No memory is taken before the first allocation. */
void kv_arena_init(struct kv_arena *a, size_t chunk_size, enum kv_mem_owner owner);
void kv_arena_release(struct kv_arena *a);

/* Frees all but one standard chunk. Everything allocated is gone. */
void kv_arena_reset(struct kv_arena *a);

void *kv_arena_grow(struct kv_arena *a, size_t size, bool may_fail); /* slow path, internal */

/* 16-aligned; kv_arena_alloc never returns NULL and is for sizes of our own choosing; the try form
 * is for sizes that a client decides. */
KV_INLINE void *kv_arena_take(struct kv_arena *a, size_t size, bool may_fail)
{
    size_t need = (size + (size == 0) + 15) & ~(size_t)15;
    if (KV_LIKELY(need >= size && need != 0 && (size_t)(a->end - a->pos) >= need)) {
#ifdef KV_DEBUG
        if (may_fail && kv_mem_try_refused())
            return NULL;
#endif
        void *p = a->pos;
        a->pos += need;
        return p;
    }
    return kv_arena_grow(a, size, may_fail);
}

KV_INLINE void *kv_arena_alloc(struct kv_arena *a, size_t size)
{
    return kv_arena_take(a, size, false);
}

KV_INLINE void *kv_arena_try_alloc(struct kv_arena *a, size_t size)
{
    return kv_arena_take(a, size, true);
}

#endif
