/* Memory: the only door to the system's allocator.
 *
 * Terms
 *   block      what one allocation returns; its size is kv_mem_block_size(requested), a pure
 *              function, so that whoever knows what was requested knows the exact block
 *   owner      who a block is accounted to (enum kv_mem_owner); told at allocation and at free
 *   slot       a thread's private counters; the thread alone writes them, readers sum all slots
 *   cache      a thread's free blocks, one stack of pointers per size class
 *   slab       64 KiB that are cut into blocks of one class; belongs to no thread
 *   chunk      2 MiB that hold 32 slabs and their descriptors
 *
 * Rules
 *   - kv_mem_free is told a size of the block's class: the size asked for, the block size, or any
 *     size between two classes that maps to the same block. Nothing is ever looked up.
 *     Debug builds keep the true size and owner before the block and abort on a lie with both.
 *   - kv_mem_alloc never returns NULL: out of memory ends the process with a report naming owner
 *     and size. Where the size comes from a client, a file or a peer, kv_mem_try_* is required.
 *   - Counting uses whole blocks, so `used` returns to its start value to the byte.
 *   - Any thread may allocate and free; a block may be freed by another thread than its maker. A
 *     thread calls kv_mem_thread_exit before it ends (its totals are kept).
 */
#ifndef KV_MEM_MEM_H
#define KV_MEM_MEM_H

#include "base/assert.h"
#include "base/compiler.h"
#include "base/stat.h"
#include <assert.h>
#include <string.h>

enum kv_mem_owner {
    KV_MEM_ENTRY = 0,     /* entries of the keyspace: key, small value, metadata */
    KV_MEM_VALUE,         /* values in blocks of their own */
    KV_MEM_TABLE,         /* hash tables of the keyspace */
    KV_MEM_EXPIRY,        /* expiry index */
    KV_MEM_CLIENT,        /* client structures and their names, MULTI queues */
    KV_MEM_CLIENT_INPUT,  /* unparsed and partial input */
    KV_MEM_CLIENT_OUTPUT, /* replies on their way */
    KV_MEM_WATCH,         /* watch records */
    KV_MEM_STREAM,        /* change stream */
    KV_MEM_SNAPSHOT,      /* entries that a snapshot has saved, on their way to the file */
    KV_MEM_ARENA,         /* arenas of workers */
    KV_MEM_SCRIPT,        /* Lua, functions */
    KV_MEM_CONFIG,        /* configuration, tables built at start */
    KV_MEM_SLOWLOG,       /* command logs, latency samples, hot keys */
    KV_MEM_OTHER,         /* engine structures, everything else */
    KV_MEM_OWNER_COUNT
};

/* Lower-case name of an owner, for reports. */
const char *kv_mem_owner_name(enum kv_mem_owner owner);

/* --- size classes ---
 * Up to KV_MEM_SMALL_MAX blocks are cut from slabs of ours: 8-byte steps up to 128, then eight
 * steps per doubling, so that at most an eighth is lost. Above, classes are those of jemalloc 5:
 * four steps per doubling. Blocks are 8-aligned, those of 129 bytes and more 16-aligned. */
#define KV_MEM_SMALL_MAX ((size_t)4096)
#define KV_MEM_CLASS_COUNT 56

/* Number of the class of a small request; 0 counts as 1. */
KV_INLINE unsigned kv_mem_class_formula(size_t size)
{
    if (size <= 128)
        return (unsigned)((size - (size != 0)) >> 3);
    unsigned log2 = 63 - (unsigned)__builtin_clzl(size - 1);
    return 16 + (log2 - 7) * 8 + (unsigned)((size - 1) >> (log2 - 3)) - 8;
}

/* Class of a small request by (size + 7) / 8, and block size by class: what the formulas say. */
extern const uint8_t kv_mem_class_table[KV_MEM_SMALL_MAX / 8 + 1];
extern const uint16_t kv_mem_class_bytes[KV_MEM_CLASS_COUNT];

KV_INLINE size_t kv_mem_block_formula(size_t size)
{
    if (size <= 128)
        return KV_UNLIKELY(size == 0) ? 8 : (size + 7) & ~(size_t)7;
    unsigned steps_log2 = size <= KV_MEM_SMALL_MAX ? 3 : 2;
    unsigned shift = 63 - (unsigned)__builtin_clzl(size - 1) - steps_log2;
    size_t step = (size_t)1 << shift;
    return (size + step - 1) & ~(step - 1);
}

/* Exact size of the block that a request of `size` bytes gets. Size 0 counts as 1. Pure, budget 7
 * instructions for small sizes; kv_mem_init checks it against the allocator below. */
KV_INLINE size_t kv_mem_block_size(size_t size)
{
    if (!__builtin_constant_p(size) && KV_LIKELY(size <= KV_MEM_SMALL_MAX))
        return kv_mem_class_bytes[kv_mem_class_table[(size + 7) >> 3]];
    return kv_mem_block_formula(size);
}

/* Largest request that is accepted at all; try_ calls refuse more, others end the process. */
#define KV_MEM_SIZE_MAX ((size_t)1 << 46)

/* True when both requests get blocks of the same size. `b` may be any number: one that is not
 * accepted has no block. */
KV_INLINE bool kv_mem_same_block(size_t a, size_t b)
{
    if (KV_LIKELY((a | b) <= KV_MEM_SMALL_MAX))
        return kv_mem_class_table[(a + 7) >> 3] == kv_mem_class_table[(b + 7) >> 3];
    return b <= KV_MEM_SIZE_MAX && kv_mem_block_size(a) == kv_mem_block_size(b);
}

/* Release builds inline these five (mem/inline.h): a small block is popped from or pushed to the
 * calling thread's cache. Budget for a pair with a size known at compile time: 18 instructions. */
KV_INLINE void *kv_mem_alloc(size_t size, enum kv_mem_owner owner);
KV_INLINE void *kv_mem_zalloc(size_t size, enum kv_mem_owner owner);
KV_INLINE void *kv_mem_try_alloc(size_t size, enum kv_mem_owner owner) KV_MUST_CHECK;
KV_INLINE void *kv_mem_try_zalloc(size_t size, enum kv_mem_owner owner) KV_MUST_CHECK;
/* ptr may be NULL (then nothing happens). */
KV_INLINE void kv_mem_free(void *ptr, size_t size, enum kv_mem_owner owner);

/* As kv_mem_try_alloc; also tells the block's usable bytes (kv_mem_block_size(size)). */
void *kv_mem_try_alloc_usable(size_t size, enum kv_mem_owner owner, size_t *usable) KV_MUST_CHECK;

/* Aligned to `align`, a power of two up to 4,096; freed by kv_mem_free_aligned. The block's size is
 * kv_mem_block_size of the size rounded up to a multiple of the alignment. */
void *kv_mem_alloc_aligned(size_t size, size_t align, enum kv_mem_owner owner);
void *kv_mem_try_alloc_aligned(size_t size, size_t align, enum kv_mem_owner owner) KV_MUST_CHECK;
void kv_mem_free_aligned(void *ptr, size_t size, size_t align, enum kv_mem_owner owner);

/* Moves or grows a block; old_size as for kv_mem_free; ptr NULL allocates. On failure of the try
 * form the old block is untouched. Same class: returns ptr. */
void *kv_mem_realloc(void *ptr, size_t old_size, size_t new_size, enum kv_mem_owner owner);
void *kv_mem_try_realloc(void *ptr, size_t old_size, size_t new_size,
                         enum kv_mem_owner owner) KV_MUST_CHECK;

/* Accounts a block to another owner (a received argument that becomes a value); size as for
 * kv_mem_free. The block itself is told because debug builds note its owner beside it. */
void kv_mem_reattribute(void *ptr, size_t size, enum kv_mem_owner from, enum kv_mem_owner to);

/* Copy of a byte string with a terminator added: free with len + 1. */
char *kv_mem_strdup(const char *bytes, size_t len, enum kv_mem_owner owner);

/* Once, before any other call, on the main thread. */
void kv_mem_init(void);

/* Before a thread ends: its cached blocks go back to the slabs, its totals are kept. */
void kv_mem_thread_exit(void);

/* Names the calling thread in the reports below ("worker-0"); at most 15 bytes are kept. */
void kv_mem_thread_name(const char *name);

/* Periodic work of each thread that allocates: gives back what its cache has not used for the
 * last second or so. Call it about ten times a second; cheap when nothing is idle. */
void kv_mem_trim(void);

/* Empties the calling thread's cache at once: after work that freed much and will not come again.
 */
void kv_mem_flush(void);

/* Periodic work of the main thread: peak, the allocator's clock, pages of slabs that have been
 * empty for a second. */
void kv_mem_sample(void);

/* --- sums over live slots and ended threads; not for hot paths, any thread --- */
int64_t kv_mem_used(enum kv_mem_owner owner);
int64_t kv_mem_used_total(void);
/* Keyspace, tables, indexes: what used_memory_dataset reports. */
int64_t kv_mem_used_dataset(void);
uint64_t kv_mem_peak(void); /* highest kv_mem_used_total seen by kv_mem_sample */
void kv_mem_peak_reset(void);

/* --- what maxmemory is compared with ---
 * Every thread adds its change to one shared figure when it calls kv_mem_publish and the change has
 * reached KV_MEM_PUBLISH_BYTES. The figure counts all owners but KV_MEM_STREAM. Between the calls
 * of a thread it is off by at most KV_MEM_PUBLISH_BYTES and what the thread has changed since its
 * last call: with n workers that publish after every batch, by n * (64 KiB + one batch). */
#define KV_MEM_PUBLISH_BYTES ((int64_t)65536)
void kv_mem_publish(void);
int64_t kv_mem_used_published(void); /* one plain load */

/* --- where resident memory is; any thread, takes the layer's locks one after the other --- */
struct kv_mem_report {
    int64_t used[KV_MEM_OWNER_COUNT]; /* live blocks by owner */
    int64_t used_total;               /* their sum: small + large */
    uint64_t small_bytes;             /* of it in slabs of ours */
    uint64_t large_bytes;             /* of it from the allocator below */
    uint64_t cached_bytes;            /* free blocks in thread caches */
    uint64_t slab_free_bytes;         /* free blocks in slabs, pages touched */
    uint64_t slab_unused_bytes;       /* ends of slabs, and empty slabs that still have pages */
    uint64_t slab_untouched_bytes;    /* mapped, not resident */
    uint64_t metadata_bytes;          /* of slabs, caches, and the allocator below */
    uint64_t large_overhead_bytes;    /* allocator below: resident beyond large and metadata */
    uint64_t image_bytes;             /* resident before kv_mem_init: program, libraries, stacks */
    uint64_t huge_bytes;              /* of the slabs' memory advised to be huge pages */
    uint64_t rss_bytes;               /* of the process; what the figures above should add up to */
    uint64_t accounted_bytes;         /* what they do add up to */
    uint64_t slabs, slabs_empty, chunks;
};
void kv_mem_report_read(struct kv_mem_report *out);

/* One thread's cache of one class. */
struct kv_mem_cache_stats {
    uint32_t block_size;
    uint32_t depth;   /* blocks cached now */
    uint32_t limit;   /* most it may hold now */
    uint64_t hits;    /* allocations, of which `refills` found the cache empty */
    uint64_t refills; /* times a batch was fetched from slabs */
    uint64_t flushes; /* times a batch was given back because the cache was full */
};
/* Visits every live thread and class that was ever used; under the slots' mutex: copy only. */
void kv_mem_cache_each(void (*visit)(void *arg, const char *thread,
                                     const struct kv_mem_cache_stats *stats),
                       void *arg);

/* --- evacuation: nearly empty slabs are emptied by moving their blocks ---
 * One at a time: begin chooses slabs per class whose blocks fit into the free room of fuller ones;
 * whoever can reach blocks asks kv_mem_evacuates for each and moves those; end forgets the choice.
 * Between them no chosen slab gives out blocks. */
/* Bytes that would come back; 0: nothing was worth it and nothing began. */
uint64_t kv_mem_evacuation_begin(void);
void kv_mem_evacuation_end(void);
/* True when the block should move. Any thread that may touch the block. Budget 12 instructions for
 * small blocks. Larger ones ask the allocator below. */
bool kv_mem_evacuates(const void *ptr, size_t size);
/* Copies a block to a better place and frees the old one, both past the thread's cache; the caller
 * puts the new pointer in the place of the old. NULL: no place, nothing changed. */
void *kv_mem_try_move(void *ptr, size_t size, enum kv_mem_owner owner) KV_MUST_CHECK;
/* Likewise for a block of kv_mem_alloc_aligned. */
void *kv_mem_try_move_aligned(void *ptr, size_t size, size_t align,
                              enum kv_mem_owner owner) KV_MUST_CHECK;
/* As kv_mem_free, for blocks that come and go quickly and that a walk can reach: while an
 * evacuation runs, a block of a chosen slab goes back to it. Through the thread's cache it would be
 * handed out again at once, and under writes no slab would ever run empty. Budget: that of
 * kv_mem_free and 2 instructions. */
KV_INLINE void kv_mem_free_movable(void *ptr, size_t size, enum kv_mem_owner owner);

/* --- the allocator below and the system --- */
struct kv_mem_system {
    uint64_t allocated, active, resident, retained, metadata; /* both allocators together */
    uint64_t rss;                                             /* of the process */
};
void kv_mem_system_read(struct kv_mem_system *out);

/* Returns unused pages to the system (MEMORY PURGE): the calling thread's cache, empty slabs, dirty
 * pages below. Other threads' caches empty themselves by kv_mem_trim. */
void kv_mem_purge(void);
const char *kv_mem_allocator_name(void); /* "jemalloc-5.3.0", or "libc" in sanitizer builds */

/* Writes the allocator's own statistics text through `write` (MEMORY MALLOC-STATS). */
void kv_mem_malloc_stats(void (*write)(void *arg, const char *text), void *arg);

/* Test hook, debug builds: the try allocation number n of this thread from now on fails (1 = the
 * next), once; 0 switches off. Returns how many try allocations have happened since the last call.
 * Builds without KV_DEBUG return 0 and never fail. */
uint64_t kv_mem_fail_try(uint64_t n);

/* Counts a try allocation and tells whether it has to fail on purpose; called by the try functions,
 * and by arenas for those that need no new chunk. False outside of debug builds. */
bool kv_mem_try_refused(void);

#include "mem/inline.h"

#endif
