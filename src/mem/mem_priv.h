/* What the files of mem/ share. Bottom up: chunk.c maps memory and hands out slabs, slab.c cuts
 * them into blocks, cache.c keeps some per thread, large.c is the allocator below for what exceeds
 * KV_MEM_SMALL_MAX, block.c puts headers before blocks in debug builds, mem.c is the front. */
#ifndef KV_MEM_MEM_PRIV_H
#define KV_MEM_MEM_PRIV_H

#include "base/lock.h"
#include "mem/mem.h"

/* Which parts a build has. KV_MEM_SYSTEM: every block is the C library's (sanitizers see each).
 * KV_MEM_NO_JEMALLOC: slabs of ours, large blocks of the C library. */
#ifdef KV_MEM_SYSTEM
#define MEM_SLABS 0
#define MEM_JEMALLOC 0
#elif defined(KV_MEM_NO_JEMALLOC)
#define MEM_SLABS 1
#define MEM_JEMALLOC 0
#else
#define MEM_SLABS 1
#define MEM_JEMALLOC 1
#endif

#define ALIGN_PLAIN ((size_t)8)  /* what every block has, told or not */
#define ALIGN_FREE ((size_t)16)  /* what large blocks have by themselves */
#define ALIGN_SLAB ((size_t)64)  /* most that blocks of slabs can have */
#define ALIGN_MAX ((size_t)4096) /* most that is accepted */
#define PAGE_BYTES ((size_t)4096)

/* Builds with AddressSanitizer and our slabs: free blocks may not be touched. */
#if defined(KV_ASAN) && MEM_SLABS
#include <sanitizer/asan_interface.h>
#include <sanitizer/lsan_interface.h>
#define MEM_POISON(ptr, bytes) ASAN_POISON_MEMORY_REGION(ptr, bytes)
#define MEM_UNPOISON(ptr, bytes) ASAN_UNPOISON_MEMORY_REGION(ptr, bytes)
/* What only blocks of ours point to has not leaked. */
#define MEM_ROOTS_ADD(ptr, bytes) __lsan_register_root_region(ptr, bytes)
#define MEM_ROOTS_REMOVE(ptr, bytes) __lsan_unregister_root_region(ptr, bytes)
#else
#define MEM_ROOTS_ADD(ptr, bytes) ((void)(ptr), (void)(bytes))
#define MEM_ROOTS_REMOVE(ptr, bytes) ((void)(ptr), (void)(bytes))
#define MEM_POISON(ptr, bytes) ((void)(ptr), (void)(bytes))
#define MEM_UNPOISON(ptr, bytes) ((void)(ptr), (void)(bytes))
#endif

/* --- chunk.c --- */

#define CHUNK_BYTES ((size_t)2 << 20)
#define CHUNK_SLABS 32
#define SLAB_BYTES ((size_t)64 << 10)
#define SLAB_CAPACITY_MAX 4096 /* blocks; only classes of 8 bytes would hold more */
#define FULLNESS_COUNT 8       /* lists of slabs with free blocks, by eighths; 0 is nearly full */

enum slab_flags {
    SLAB_EVACUATES = 1, /* gives out no blocks; its blocks should move */
};

/* A descriptor. Class mutex, but for `flags`, which anybody who may touch a block of it reads. */
struct slab {
    struct slab *next, *prev; /* in a list of its class */
    char *first;              /* block 0 */
    uint64_t *low_words;      /* free bits of blocks 0 to 1,023 */
    uint64_t *high_words;     /* and of those above */
    uint32_t reciprocal;      /* 2^32 / block size, rounded up: offset to index */
    uint32_t resident_bytes;  /* from `first`: pages that may have been touched */
    uint32_t freed_tick;      /* sample at which it became empty; chunk mutex */
    uint16_t capacity;        /* blocks; 0: holds no blocks now */
    uint16_t free_count;      /* of them not handed out */
    uint16_t free_word;       /* no free bit before this word */
    uint16_t list_factor;     /* 2^16 * FULLNESS_COUNT / capacity: free blocks to list */
    uint8_t class_index;
    uint8_t list;           /* fullness, or FULLNESS_COUNT while in none */
    _Atomic(uint8_t) flags; /* enum slab_flags */
};

struct chunk {                             /* chunk mutex */
    struct chunk *next, *prev;             /* in a list by free slabs */
    struct chunk *dirty_next, *dirty_prev; /* in the queue of those with dirty slabs */
    uint32_t free_slabs;                   /* bit per slab that holds no blocks */
    uint32_t dirty_slabs;                  /* of those, with pages to return */
    uint32_t dirty_tick;                   /* no dirty slab became empty before this sample */
    uint8_t list;                          /* which one it is in */
    bool huge;                             /* advised to be a huge page */
    struct slab slabs[CHUNK_SLABS];
};

/* Where a chunk has the free bits of its slabs: see chunk.c. */
#define LOW_AT PAGE_BYTES
#define LOW_BYTES 128 /* of 1,024 blocks */
#define LOW_WORDS (LOW_BYTES / sizeof(uint64_t))
#define HIGH_AT (2 * PAGE_BYTES)
#define HIGH_BYTES 384 /* of 3,072 blocks */

KV_INLINE uint64_t *slab_word(const void *chunk, size_t slab, size_t word)
{
    size_t at = word < LOW_WORDS
                    ? LOW_AT + slab * LOW_BYTES + word * sizeof(uint64_t)
                    : HIGH_AT + slab * HIGH_BYTES + (word - LOW_WORDS) * sizeof(uint64_t);
    return (uint64_t *)((uintptr_t)chunk + at);
}

/* 2^32 / size, rounded up: exact for all offsets in a slab, since the error stays below 2^-16. */
KV_INLINE uint32_t slab_reciprocal(size_t size)
{
    return (uint32_t)((((uint64_t)1 << 32) + size - 1) / size);
}

/* A slab of `class_index`, all blocks free, resident_bytes as pages are; in no list. NULL: no
 * memory. */
struct slab *kv_chunk_slab_take(unsigned class_index);
/* An empty slab that is in no list. */
void kv_chunk_slab_give(struct slab *s);

/* Returns pages of slabs that have been empty for `age` samples; frees empty chunks. */
void kv_chunk_sample(uint32_t age);

struct chunk_totals {
    uint64_t chunks, huge_chunks, slabs_empty;
    uint64_t resident_bytes; /* of all slabs */
    uint64_t unused_bytes;   /* of it in empty slabs */
    uint64_t metadata_bytes; /* heads of chunks, resident part */
};
void kv_chunk_totals(struct chunk_totals *out);

KV_INLINE struct chunk *chunk_of(const void *ptr)
{
    return (struct chunk *)((uintptr_t)ptr & ~(uintptr_t)(CHUNK_BYTES - 1));
}

KV_INLINE struct slab *slab_of(const void *ptr)
{
    return &chunk_of(ptr)->slabs[(uintptr_t)ptr / SLAB_BYTES % CHUNK_SLABS];
}

/* --- slab.c --- */

/* Takes up to n blocks, those at low addresses last in the array; returns how many. 0: no memory.
 */
unsigned kv_slab_take(unsigned class_index, void **blocks, unsigned n);
/* Gives blocks of one class back; ends the process when one is free already. */
void kv_slab_give(unsigned class_index, void *const *blocks, unsigned n);
/* One block from a slab that has blocks in use and is not evacuated; NULL: none. */
void *kv_slab_take_dense(unsigned class_index);
uint64_t kv_slab_evacuation_begin(void); /* bytes of the slabs chosen */
void kv_slab_evacuation_end(void);

struct slab_totals {
    uint64_t slabs;
    uint64_t live_bytes;     /* blocks handed out, to caches too */
    uint64_t resident_bytes; /* of these slabs: pages that may be there */
    uint64_t space_bytes;    /* of these slabs: all blocks */
};
void kv_slab_totals(struct slab_totals *out);
/* Walks all slabs with free blocks and asserts what their descriptors say. */
void kv_slab_check(void);

/* --- cache.c --- */

/* A block of the class for the calling thread, through its cache; NULL: no memory. */
void *kv_cache_alloc(unsigned class_index);
void kv_cache_free(unsigned class_index, void *ptr);
void kv_cache_init(void);
void kv_cache_totals(uint64_t *cached_bytes, uint64_t *metadata_bytes);
int64_t kv_cache_used_between(unsigned first, unsigned end); /* sum over owners [first, end) */

/* Blocks that the allocator below serves by whole pages; the thread is registered. */
void kv_cache_count_paged(int64_t blocks);
int64_t kv_cache_paged_blocks(void);

KV_INLINE void cache_count(enum kv_mem_owner owner, int64_t bytes)
{
    KV_DASSERT((unsigned)owner < KV_MEM_OWNER_COUNT);
    kv_gauge_add(&kv_mem_slot.used_bytes[owner], bytes);
}

/* Makes the calling thread's slot visible to readers; cheap when it is. */
void kv_cache_register(void);

/* --- large.c: blocks above KV_MEM_SMALL_MAX, or all in KV_MEM_SYSTEM builds --- */

/* `bytes` is a block size; `align` a power of two up to ALIGN_MAX. */
void *kv_large_alloc(size_t bytes, size_t align, bool zero);
void kv_large_free(void *ptr, size_t bytes, size_t align);
/* Grows, shrinks or moves; both are block sizes. NULL: nothing changed. */
void *kv_large_resize(void *ptr, size_t old_bytes, size_t new_bytes);
void kv_large_init(void);
void kv_large_sample(void);
void kv_large_purge(void);
bool kv_large_evacuates(const void *ptr, size_t bytes);
void *kv_large_alloc_dense(size_t bytes, size_t align, const void *old); /* for a copy of `old` */
void kv_large_free_dense(void *ptr, size_t bytes, size_t align);
/* True when evacuating large blocks is worth it: enough is lost inside the allocator's slabs. */
uint64_t kv_large_evacuation_begin(void);
void kv_large_evacuation_end(void);

struct large_totals {
    uint64_t allocated, active, resident, retained, metadata;
};
void kv_large_totals(struct large_totals *out); /* all 0 when unknown */

/* --- block.c --- */

#if KV_MEM_INLINED
#define HAVE_HEADER 0
#else
#define HAVE_HEADER 1
#endif

/* A block of `size` requested bytes. Debug and sanitizer builds keep a header before it and end the
 * process when size, alignment or owner told later are wrong. */
void *kv_block_alloc(size_t size, size_t align, bool zero, enum kv_mem_owner owner);
void kv_block_verify(void *ptr, size_t size, size_t align, enum kv_mem_owner owner);
void kv_block_free(void *ptr, size_t size, size_t align, enum kv_mem_owner owner);
/* The block now has this size (same class) or owner: for the header. */
void kv_block_note_size(void *ptr, size_t size);
void kv_block_note_owner(void *ptr, enum kv_mem_owner owner);
/* See kv_mem_evacuates and kv_mem_try_move; nothing is counted. */
bool kv_block_evacuates(const void *ptr, size_t size);
void *kv_block_move(void *ptr, size_t size, size_t align);
/* Frees a block of a slab that is evacuated, past the cache; false: it is none. Nothing is counted.
 */
bool kv_block_free_evacuated(void *ptr, size_t size, enum kv_mem_owner owner);

KV_COLD KV_NORETURN void kv_mem_out_of_memory(size_t size, enum kv_mem_owner owner);

/* What an aligned request is rounded to, so that its class has the alignment by itself. */
KV_INLINE size_t aligned_size(size_t size, size_t align)
{
    KV_DASSERT(align != 0 && (align & (align - 1)) == 0);
    return (size + (size == 0) + align - 1) & ~(align - 1);
}

/* True when slabs serve this; `size` is rounded to `align`. */
KV_INLINE bool is_small(size_t size, size_t align)
{
    return MEM_SLABS && size <= KV_MEM_SMALL_MAX && align <= ALIGN_SLAB;
}

uint64_t kv_mem_rss_bytes(void);
void kv_report_init(void);

#endif
