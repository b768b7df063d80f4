/* Blocks: where one comes from, and what debug builds keep about it.
 *
 * In release builds a block carries nothing. Debug builds and builds on the C library
 * (KV_MEM_SYSTEM, for sanitizers) put a header of 16 bytes before it:
 *
 *     base ... | size 8 | magic 4 | owner 1 | log2 of align 1 | 0 0 | block of block_size bytes
 *
 * It keeps what the caller asked for, so that a wrong size, a wrong owner, a second free or a write
 * in front of the block ends the process with both numbers. Nothing follows the block, so that
 * AddressSanitizer sees the first byte behind it. With slabs of ours it is told by hand which
 * blocks are free.
 *
 * Invariant: the memory behind a block has the class of header plus block size, or of the block
 * size alone, so every function here derives it from `size` without a look-up.
 *
 * Threads: any.
 */
#include "mem/mem_priv.h"

/* A freed block's header stays readable, so that a second free is named as such. */
#define POISON_FROM (HAVE_HEADER ? (size_t)16 : 0)

KV_UNUSED static inline void poison_freed(void *ptr, size_t block)
{
    MEM_POISON((char *)ptr + POISON_FROM, block - POISON_FROM);
}

static void *raw_alloc(size_t bytes, size_t align, bool zero)
{
    size_t rounded = align > ALIGN_PLAIN ? aligned_size(bytes, align) : bytes;
    if (!is_small(rounded, align))
        return kv_large_alloc(bytes, align, zero);
#if MEM_SLABS
    void *ptr = kv_cache_alloc(kv_mem_class_formula(rounded));
    if (ptr == NULL)
        return NULL;
    MEM_UNPOISON(ptr, bytes);
    return zero ? memset(ptr, 0, bytes) : ptr;
#else
    return NULL;
#endif
}

static void raw_free(void *ptr, size_t bytes, size_t align)
{
    size_t rounded = align > ALIGN_PLAIN ? aligned_size(bytes, align) : bytes;
    if (!is_small(rounded, align)) {
        kv_large_free(ptr, bytes, align);
        return;
    }
#if MEM_SLABS
    poison_freed(ptr, kv_mem_block_size(rounded));
    kv_cache_free(kv_mem_class_formula(rounded), ptr);
#endif
}

static bool raw_evacuates(const void *ptr, size_t bytes)
{
#if MEM_SLABS
    if (is_small(bytes, ALIGN_PLAIN))
        return atomic_load_explicit(&slab_of(ptr)->flags, memory_order_relaxed) & SLAB_EVACUATES;
#endif
    return kv_large_evacuates(ptr, bytes);
}

/* Past the cache. */
static void slab_free(void *ptr, size_t bytes)
{
#if MEM_SLABS
    poison_freed(ptr, kv_mem_block_size(bytes));
    kv_slab_give(kv_mem_class_formula(bytes), &ptr, 1);
#else
    (void)ptr, (void)bytes;
    KV_UNREACHABLE();
#endif
}

static void *raw_move(void *ptr, size_t bytes, size_t align)
{
    size_t rounded = align > ALIGN_PLAIN ? aligned_size(bytes, align) : bytes;
    bool small = is_small(rounded, align);
    void *moved = NULL;
#if MEM_SLABS
    if (small)
        moved = kv_slab_take_dense(kv_mem_class_formula(rounded));
#endif
    if (!small)
        moved = kv_large_alloc_dense(bytes, align, ptr);
    if (moved == NULL)
        return NULL;
    KV_ASSERT(((uintptr_t)moved & (align - 1)) == 0);
    /* The owner may use all of the block, whatever size it tells; headers count on top of that. */
    size_t whole = HAVE_HEADER ? bytes : kv_mem_block_size(bytes);
    MEM_UNPOISON(moved, whole);
    memcpy(moved, ptr, whole);
    if (small)
        slab_free(ptr, rounded);
    else
        kv_large_free_dense(ptr, bytes, align);
    return moved;
}

/* A block of slabs that an evacuation wants. */
static bool raw_is_evacuated(const void *ptr, size_t bytes)
{
    return is_small(bytes, ALIGN_PLAIN) && raw_evacuates(ptr, bytes);
}

#if HAVE_HEADER

#define MAGIC_LIVE 0x6b76b10cu
#define MAGIC_DEAD 0xdeadb10cu
#define POISON_FRESH 0xa5
#define POISON_FREED 0xdd
#define POISON_MAX ((size_t)1 << 20) /* bytes; more would make large tests crawl */

struct header {
    uint64_t size; /* bytes asked for */
    uint32_t magic;
    uint8_t owner;
    uint8_t align_log2;
    uint8_t zero[2];
};
static_assert(sizeof(struct header) == 16, "the header keeps blocks 16-aligned");
static_assert(KV_MEM_OWNER_COUNT < 256, "an owner fits the header's byte");

static struct header *header_of(const void *ptr)
{
    return (struct header *)((uintptr_t)ptr - sizeof(struct header));
}

static size_t lead_of(size_t align)
{
    return KV_MAX(align, sizeof(struct header));
}

static size_t raw_size(size_t size, size_t align)
{
    return lead_of(align) + kv_mem_block_size(size);
}

void *kv_block_alloc(size_t size, size_t align, bool zero, enum kv_mem_owner owner)
{
    size_t block = kv_mem_block_size(size);
    char *base = raw_alloc(raw_size(size, align), align, zero);
    if (base == NULL)
        return NULL;
    char *ptr = base + lead_of(align);
    struct header *h = header_of(ptr);
    *h = (struct header){.size = size, .magic = MAGIC_LIVE, .owner = (uint8_t)owner};
    h->align_log2 = (uint8_t)__builtin_ctzl(align);
    if (!zero)
        memset(ptr, POISON_FRESH, KV_MIN(block, POISON_MAX));
    return ptr;
}

void kv_block_verify(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    const struct header *h = header_of(ptr);
    if (h->magic == MAGIC_DEAD)
        kv_panic("memory: block %p of %s was freed before", ptr, kv_mem_owner_name(owner));
    if (h->magic != MAGIC_LIVE || h->owner >= KV_MEM_OWNER_COUNT)
        kv_panic("memory: %p of %s is no block, or the bytes before it were overwritten", ptr,
                 kv_mem_owner_name(owner));
    const char *true_name = kv_mem_owner_name((enum kv_mem_owner)h->owner);
    if (h->align_log2 != __builtin_ctzl(align))
        kv_panic("memory: block of %s aligned to %zu bytes is told to be aligned to %zu", true_name,
                 (size_t)1 << h->align_log2, align);
    if (kv_mem_block_size(size) != kv_mem_block_size(h->size))
        kv_panic("memory: block of %s has %zu bytes (class %zu), told %zu (class %zu)", true_name,
                 (size_t)h->size, kv_mem_block_size(h->size), size, kv_mem_block_size(size));
    if (h->owner != owner)
        kv_panic("memory: block of %zu bytes belongs to %s, told %s", (size_t)h->size, true_name,
                 kv_mem_owner_name(owner));
}

void kv_block_free(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    kv_block_verify(ptr, size, align, owner);
    header_of(ptr)->magic = MAGIC_DEAD;
    memset(ptr, POISON_FREED, KV_MIN(kv_mem_block_size(size), POISON_MAX));
    raw_free((char *)ptr - lead_of(align), raw_size(size, align), align);
}

void kv_block_note_size(void *ptr, size_t size)
{
    header_of(ptr)->size = size;
}

void kv_block_note_owner(void *ptr, enum kv_mem_owner owner)
{
    header_of(ptr)->owner = (uint8_t)owner;
}

bool kv_block_evacuates(const void *ptr, size_t size)
{
    return raw_evacuates(header_of(ptr), raw_size(size, ALIGN_PLAIN));
}

void *kv_block_move(void *ptr, size_t size, size_t align)
{
    char *moved = raw_move((char *)ptr - lead_of(align), raw_size(size, align), align);
    return moved != NULL ? moved + lead_of(align) : NULL;
}

bool kv_block_free_evacuated(void *ptr, size_t size, enum kv_mem_owner owner)
{
    struct header *h = header_of(ptr);
    size_t bytes = raw_size(size, ALIGN_PLAIN);
    if (!raw_is_evacuated(h, bytes))
        return false;
    kv_block_verify(ptr, size, ALIGN_PLAIN, owner);
    h->magic = MAGIC_DEAD;
    memset(ptr, POISON_FREED, kv_mem_block_size(size));
    slab_free(h, bytes);
    return true;
}

#else

/* By whole blocks, not by what was asked for: whoever frees or moves may say any size of the class,
 * and all of the block is the caller's. */

void *kv_block_alloc(size_t size, size_t align, bool zero, enum kv_mem_owner owner)
{
    (void)owner;
    return raw_alloc(kv_mem_block_size(size), align, zero);
}

void kv_block_verify(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    (void)ptr, (void)size, (void)align, (void)owner;
}

void kv_block_free(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    (void)owner;
    raw_free(ptr, kv_mem_block_size(size), align);
}

void kv_block_note_size(void *ptr, size_t size)
{
    (void)ptr, (void)size;
}

void kv_block_note_owner(void *ptr, enum kv_mem_owner owner)
{
    (void)ptr, (void)owner;
}

bool kv_block_evacuates(const void *ptr, size_t size)
{
    return raw_evacuates(ptr, kv_mem_block_size(size));
}

void *kv_block_move(void *ptr, size_t size, size_t align)
{
    return raw_move(ptr, kv_mem_block_size(size), align);
}

bool kv_block_free_evacuated(void *ptr, size_t size, enum kv_mem_owner owner)
{
    (void)owner;
    size_t bytes = kv_mem_block_size(size);
    if (!raw_is_evacuated(ptr, bytes))
        return false;
    slab_free(ptr, bytes);
    return true;
}

#endif
