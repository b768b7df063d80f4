/* Memory: the only door to the system's allocator.
 *
 * Terms
 *   block      what one allocation returns; its size is kv_mem_block_size(requested), a pure
 *              function, so that whoever knows what was requested knows the exact block
 *   owner      who a block is accounted to (enum kv_mem_owner); told at allocation and at free
 *   slot       a thread's private counters; the thread alone writes them, readers sum all slots
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
#include <assert.h>

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
    KV_MEM_ARENA,         /* arenas of workers */
    KV_MEM_SCRIPT,        /* Lua, functions */
    KV_MEM_CONFIG,        /* configuration, tables built at start */
    KV_MEM_SLOWLOG,       /* slow log entries */
    KV_MEM_OTHER,         /* engine structures, everything else */
    KV_MEM_OWNER_COUNT
};

/* Lower-case name of an owner, for reports. */
const char *kv_mem_owner_name(enum kv_mem_owner owner);

/* Exact size of the block that a request of `size` bytes gets. Size 0 counts as 1. Classes follow
 * jemalloc 5: 8, then 16-byte steps to 128, then four steps per doubling. Pure, budget 8
 * instructions; kv_mem_init checks it against the allocator. */
KV_INLINE size_t kv_mem_block_size(size_t size)
{
    if (size <= 128) {
        if (KV_UNLIKELY(size <= 8))
            return 8;
        return (size + 15) & ~(size_t)15;
    }
    unsigned shift = 61 - (unsigned)__builtin_clzl(size - 1);
    size_t step = (size_t)1 << shift;
    return (size + step - 1) & ~(step - 1);
}

/* Largest request that is accepted at all; try_ calls refuse more, others end the process. */
#define KV_MEM_SIZE_MAX ((size_t)1 << 46)

void *kv_mem_alloc(size_t size, enum kv_mem_owner owner) __attribute__((malloc, returns_nonnull));
void *kv_mem_zalloc(size_t size, enum kv_mem_owner owner) __attribute__((malloc, returns_nonnull));
void *kv_mem_try_alloc(size_t size, enum kv_mem_owner owner) KV_MUST_CHECK;
void *kv_mem_try_zalloc(size_t size, enum kv_mem_owner owner) KV_MUST_CHECK;

/* As kv_mem_try_alloc; also tells the block's usable bytes (kv_mem_block_size(size)). */
void *kv_mem_try_alloc_usable(size_t size, enum kv_mem_owner owner, size_t *usable) KV_MUST_CHECK;

/* Aligned to `align`, a power of two up to 4,096; freed by kv_mem_free_aligned. */
void *kv_mem_alloc_aligned(size_t size, size_t align, enum kv_mem_owner owner);
void *kv_mem_try_alloc_aligned(size_t size, size_t align, enum kv_mem_owner owner) KV_MUST_CHECK;
void kv_mem_free_aligned(void *ptr, size_t size, size_t align, enum kv_mem_owner owner);

/* ptr may be NULL (then nothing happens). */
void kv_mem_free(void *ptr, size_t size, enum kv_mem_owner owner);

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
void kv_mem_thread_exit(void);

/* Sums over live slots and ended threads. Not for hot paths. */
int64_t kv_mem_used(enum kv_mem_owner owner);
int64_t kv_mem_used_total(void);
/* Keyspace, tables, indexes: what used_memory_dataset reports. */
int64_t kv_mem_used_dataset(void);
uint64_t kv_mem_peak(void); /* highest kv_mem_used_total seen by kv_mem_sample */
void kv_mem_peak_reset(void);
void kv_mem_sample(void); /* called by the main worker's periodic work */

/* What the allocator and the system say, in bytes. */
struct kv_mem_system {
    uint64_t allocated, active, resident, retained, metadata; /* jemalloc's statistics */
    uint64_t rss;                                             /* of the process */
};
void kv_mem_system_read(struct kv_mem_system *out);

/* Returns unused pages to the system (MEMORY PURGE). */
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

#endif
