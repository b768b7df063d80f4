/* Arena: bump allocation in chunks.
 *
 * Layout. A chunk is one block: a header of 16 bytes (older chunk, size), then the space. The arena
 * points to the current chunk, from which pos and end are taken; older ones hang behind it. A
 * request over a quarter of the standard size gets a chunk of its own, linked behind the current
 * one, so that the rest of the current chunk stays in use. The very first chunk is always standard,
 * because it is the one that reset keeps.
 *
 * Invariants: pos is 16-aligned and pos <= end, both inside the current chunk; the current chunk is
 * of standard size; used_bytes is the sum of all chunks' blocks.
 *
 * Threads: one at a time. Builds on the C library (sanitizers) make every allocation a chunk of its
 * own, so that an overrun or a use after reset is seen; pos and end then stay NULL.
 *
 * Rejected: growing chunks geometrically (one large command would leave a large chunk with an idle
 * worker); a free list of chunks (malloc is one).
 */
#include "mem/arena.h"

#include <string.h>

#define HEADER_BYTES ((size_t)16)
#define CHUNK_SIZE_MIN ((size_t)256)

struct kv_arena_chunk {
    struct kv_arena_chunk *older;
    size_t size; /* bytes asked for, header included */
};
static_assert(sizeof(struct kv_arena_chunk) == HEADER_BYTES, "space begins 16-aligned");

void kv_arena_init(struct kv_arena *a, size_t chunk_size, enum kv_mem_owner owner)
{
    KV_ASSERT(chunk_size >= CHUNK_SIZE_MIN);
    KV_ASSERT(chunk_size <= KV_MEM_SIZE_MAX);
    *a = (struct kv_arena){.chunk_size = kv_mem_block_size(chunk_size), .owner = owner};
}

static void free_chunk(struct kv_arena *a, struct kv_arena_chunk *c)
{
    size_t block = kv_mem_block_size(c->size);
    KV_ASSERT(a->used_bytes >= block);
    a->used_bytes -= block;
    kv_mem_free(c, c->size, a->owner);
}

void kv_arena_release(struct kv_arena *a)
{
    while (a->chunk != NULL) {
        struct kv_arena_chunk *c = a->chunk;
        a->chunk = c->older;
        free_chunk(a, c);
    }
    KV_ASSERT(a->used_bytes == 0);
    a->pos = NULL;
    a->end = NULL;
}

void kv_arena_reset(struct kv_arena *a)
{
#ifdef KV_MEM_SYSTEM
    kv_arena_release(a);
#else
    struct kv_arena_chunk *keep = a->chunk;
    if (keep == NULL)
        return;
    KV_DASSERT(keep->size == a->chunk_size);
    while (keep->older != NULL) {
        struct kv_arena_chunk *c = keep->older;
        keep->older = c->older;
        free_chunk(a, c);
    }
    KV_DEBUG_ONLY(
        memset((char *)keep + HEADER_BYTES, 0xdd, (size_t)(a->pos - (char *)keep) - HEADER_BYTES));
    a->pos = (char *)keep + HEADER_BYTES;
    KV_DASSERT(a->end == (char *)keep + a->chunk_size);
#endif
}

static struct kv_arena_chunk *make_chunk(struct kv_arena *a, size_t size, bool may_fail)
{
    struct kv_arena_chunk *c =
        may_fail ? kv_mem_try_alloc(size, a->owner) : kv_mem_alloc(size, a->owner);
    if (c == NULL)
        return NULL;
    c->size = size;
    a->used_bytes += kv_mem_block_size(size);
    return c;
}

#ifdef KV_MEM_SYSTEM

void *kv_arena_grow(struct kv_arena *a, size_t size, bool may_fail)
{
    if (may_fail && size > KV_MEM_SIZE_MAX)
        return NULL;
    KV_ASSERT(size <= KV_MEM_SIZE_MAX);
    struct kv_arena_chunk *c = make_chunk(a, HEADER_BYTES + size, may_fail);
    if (c == NULL)
        return NULL;
    c->older = a->chunk;
    a->chunk = c;
    return (char *)c + HEADER_BYTES;
}

#else

static void *take_from_own_chunk(struct kv_arena *a, size_t need, bool may_fail)
{
    KV_DASSERT(a->chunk != NULL);
    struct kv_arena_chunk *c = make_chunk(a, HEADER_BYTES + need, may_fail);
    if (c == NULL)
        return NULL;
    c->older = a->chunk->older;
    a->chunk->older = c;
    return (char *)c + HEADER_BYTES;
}

static bool add_standard_chunk(struct kv_arena *a, bool may_fail)
{
    struct kv_arena_chunk *c = make_chunk(a, a->chunk_size, may_fail);
    if (c == NULL)
        return false;
    c->older = a->chunk;
    a->chunk = c;
    a->pos = (char *)c + HEADER_BYTES;
    a->end = (char *)c + a->chunk_size;
    return true;
}

void *kv_arena_grow(struct kv_arena *a, size_t size, bool may_fail)
{
    if (may_fail && size > KV_MEM_SIZE_MAX)
        return NULL;
    KV_ASSERT(size <= KV_MEM_SIZE_MAX);
    KV_ASSERT(a->chunk_size != 0);
    size_t need = (size + (size == 0) + 15) & ~(size_t)15;
    bool own = need > a->chunk_size / 4;
    if ((!own || a->chunk == NULL) && !add_standard_chunk(a, may_fail))
        return NULL;
    if (own)
        return take_from_own_chunk(a, need, may_fail);
    void *p = a->pos;
    a->pos += need;
    KV_ASSERT(a->pos <= a->end);
    return p;
}

#endif
