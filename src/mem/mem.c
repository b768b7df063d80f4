/* The front: sized frees, owners, sums, peak, failing on purpose.
 *
 * In release builds the functions of mem/inline.h serve small blocks from the thread's cache and
 * come here when it is empty or full, and for large blocks. Debug and sanitizer builds come here
 * for everything and keep a header before each block (block.c). A block's size is known to whoever
 * knows what was requested, because kv_mem_block_size is a pure function: nothing is looked up.
 *
 * Counting. Each thread adds to its own counters (kv_mem_slot), found through a thread-local
 * address, with one plain instruction. A counter may go negative: blocks are freed by other threads
 * than their makers. Readers sum all threads and what ended ones left behind.
 *
 * Invariants: the sum over threads and ended ones per owner is the number of bytes of live blocks,
 * whole blocks counted. Cached blocks, slabs' free blocks and metadata are not counted.
 *
 * Threads: everything here may be called by any thread, after kv_mem_init.
 *
 * Rejected: counting by thread.allocated of jemalloc (no owners, and a call per reading); a count
 * in a shared atomic with batching (it loses exactness to the byte); asking for the size at free (a
 * cache miss per free, which is what this layer exists to avoid).
 */
#include "mem/mem_priv.h"

static _Atomic(uint64_t) peak_bytes; /* highest total sampled */
static bool ready;                   /* kv_mem_init has run; constant afterwards */

#define SAMPLE_AGE 10 /* samples that an empty slab keeps its pages: a second at ten a second */

static const char *const owner_names[] = {
    [KV_MEM_ENTRY] = "entry",
    [KV_MEM_VALUE] = "value",
    [KV_MEM_TABLE] = "table",
    [KV_MEM_EXPIRY] = "expiry",
    [KV_MEM_CLIENT] = "client",
    [KV_MEM_CLIENT_INPUT] = "client_input",
    [KV_MEM_CLIENT_OUTPUT] = "client_output",
    [KV_MEM_WATCH] = "watch",
    [KV_MEM_STREAM] = "stream",
    [KV_MEM_SNAPSHOT] = "snapshot",
    [KV_MEM_ARENA] = "arena",
    [KV_MEM_SCRIPT] = "script",
    [KV_MEM_CONFIG] = "config",
    [KV_MEM_SLOWLOG] = "slowlog",
    [KV_MEM_OTHER] = "other",
};
static_assert(KV_ARRAY_LEN(owner_names) == KV_MEM_OWNER_COUNT, "every owner has a name");

/* clang-format off */
#define X2(n) n, n
#define X4(n) X2(n), X2(n)
#define X8(n) X4(n), X4(n)
#define X16(n) X8(n), X8(n)
#define X32(n) X16(n), X16(n)
#define EIGHT(x, n) x(n), x(n + 1), x(n + 2), x(n + 3), x(n + 4), x(n + 5), x(n + 6), x(n + 7)
const uint8_t kv_mem_class_table[KV_MEM_SMALL_MAX / 8 + 1] = {
    0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15,
    EIGHT(X2, 16), EIGHT(X4, 24), EIGHT(X8, 32), EIGHT(X16, 40), EIGHT(X32, 48),
};
const uint16_t kv_mem_class_bytes[KV_MEM_CLASS_COUNT] = {
    8, 16, 24, 32, 40, 48, 56, 64,
    72, 80, 88, 96, 104, 112, 120, 128,
    144, 160, 176, 192, 208, 224, 240, 256,
    288, 320, 352, 384, 416, 448, 480, 512,
    576, 640, 704, 768, 832, 896, 960, 1024,
    1152, 1280, 1408, 1536, 1664, 1792, 1920, 2048,
    2304, 2560, 2816, 3072, 3328, 3584, 3840, 4096,
};
/* clang-format on */

const char *kv_mem_owner_name(enum kv_mem_owner owner)
{
    KV_ASSERT((unsigned)owner < KV_MEM_OWNER_COUNT);
    return owner_names[owner];
}

/* --- failing on purpose --- */

#ifdef KV_DEBUG

static _Thread_local uint64_t try_fail_in; /* try allocations until one fails; 0 = none will */
static _Thread_local uint64_t try_count;   /* try allocations since kv_mem_fail_try */

bool kv_mem_try_refused(void)
{
    try_count++;
    return try_fail_in != 0 && --try_fail_in == 0;
}

uint64_t kv_mem_fail_try(uint64_t n)
{
    uint64_t happened = try_count;
    try_count = 0;
    try_fail_in = n;
    return happened;
}

#else

bool kv_mem_try_refused(void)
{
    return false;
}

uint64_t kv_mem_fail_try(uint64_t n)
{
    (void)n;
    return 0;
}

#endif

static inline bool refused(size_t size)
{
#ifdef KV_DEBUG
    if (kv_mem_try_refused())
        return true;
#endif
    return size > KV_MEM_SIZE_MAX;
}

/* --- allocating and freeing --- */

KV_COLD KV_NORETURN void kv_mem_out_of_memory(size_t size, enum kv_mem_owner owner)
{
    kv_panic("out of memory: %zu bytes for %s, %lld bytes in use", size, kv_mem_owner_name(owner),
             (long long)kv_mem_used_total());
}

static void *alloc_counted(size_t size, size_t align, bool zero, enum kv_mem_owner owner)
{
    KV_DASSERT(ready);
    kv_cache_register();
    void *ptr = kv_block_alloc(size, align, zero, owner);
    if (KV_LIKELY(ptr != NULL))
        cache_count(owner, (int64_t)kv_mem_block_size(size));
    return ptr;
}

static void free_counted(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    kv_cache_register();
    kv_block_free(ptr, size, align, owner);
    cache_count(owner, -(int64_t)kv_mem_block_size(size));
}

/* As alloc_counted for sizes that may be absurd; ends the process unless it may fail. */
static void *alloc_or_end(size_t size, size_t align, bool zero, enum kv_mem_owner owner,
                          bool may_fail)
{
    void *ptr = KV_LIKELY(size <= KV_MEM_SIZE_MAX) ? alloc_counted(size, align, zero, owner) : NULL;
    if (KV_UNLIKELY(ptr == NULL) && !may_fail)
        kv_mem_out_of_memory(size, owner);
    return ptr;
}

#if KV_MEM_INLINED

KV_NOINLINE void *kv_mem_alloc_slow(size_t size, enum kv_mem_owner owner, bool may_fail)
{
    return alloc_or_end(size, ALIGN_PLAIN, false, owner, may_fail);
}

KV_NOINLINE void *kv_mem_alloc_large(size_t size, enum kv_mem_owner owner, bool may_fail)
{
    return alloc_or_end(size, ALIGN_PLAIN, false, owner, may_fail);
}

void *kv_mem_zero_large(size_t size, enum kv_mem_owner owner, bool may_fail)
{
    return alloc_or_end(size, ALIGN_PLAIN, true, owner, may_fail);
}

KV_NOINLINE void kv_mem_free_slow(void *ptr, size_t size, enum kv_mem_owner owner)
{
    free_counted(ptr, size, ALIGN_PLAIN, owner);
}

KV_NOINLINE void kv_mem_free_large(void *ptr, size_t size, enum kv_mem_owner owner)
{
    free_counted(ptr, size, ALIGN_PLAIN, owner);
}

#else

void *kv_mem_alloc_checked(size_t size, enum kv_mem_owner owner, bool zero)
{
    return alloc_or_end(size, ALIGN_PLAIN, zero, owner, false);
}

void *kv_mem_try_alloc_checked(size_t size, enum kv_mem_owner owner, bool zero)
{
    return refused(size) ? NULL : alloc_counted(size, ALIGN_PLAIN, zero, owner);
}

void kv_mem_free_checked(void *ptr, size_t size, enum kv_mem_owner owner)
{
    if (ptr == NULL)
        return;
    KV_ASSERT(size <= KV_MEM_SIZE_MAX);
    free_counted(ptr, size, ALIGN_PLAIN, owner);
}

#endif

void *kv_mem_try_alloc_usable(size_t size, enum kv_mem_owner owner, size_t *usable)
{
    void *ptr = kv_mem_try_alloc(size, owner);
    if (KV_LIKELY(ptr != NULL))
        *usable = kv_mem_block_size(size);
    return ptr;
}

static void *alloc_aligned(size_t size, size_t align, enum kv_mem_owner owner, bool may_fail)
{
    KV_ASSERT(align != 0 && (align & (align - 1)) == 0);
    KV_ASSERT(align <= ALIGN_MAX);
    if (size <= KV_MEM_SIZE_MAX)
        size = aligned_size(size, align);
    void *ptr = alloc_or_end(size, align, false, owner, may_fail);
    KV_ASSERT(((uintptr_t)ptr & (align - 1)) == 0);
    return ptr;
}

void *kv_mem_alloc_aligned(size_t size, size_t align, enum kv_mem_owner owner)
{
    return alloc_aligned(size, align, owner, false);
}

void *kv_mem_try_alloc_aligned(size_t size, size_t align, enum kv_mem_owner owner)
{
    return refused(size) ? NULL : alloc_aligned(size, align, owner, true);
}

void kv_mem_free_aligned(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    KV_ASSERT(align != 0 && (align & (align - 1)) == 0);
    if (ptr != NULL)
        free_counted(ptr, aligned_size(size, align), align, owner);
}

/* Gives a block another class. Large blocks are left to the allocator below, which can grow them in
 * place or move their pages; small ones are copied. */
static void *resize(void *ptr, size_t old_size, size_t new_size, enum kv_mem_owner owner)
{
    size_t old_block = kv_mem_block_size(old_size);
    size_t new_block = kv_mem_block_size(new_size);
    KV_DASSERT(old_block != new_block);
    if (!HAVE_HEADER && old_block > KV_MEM_SMALL_MAX && new_block > KV_MEM_SMALL_MAX) {
        void *moved = kv_large_resize(ptr, old_block, new_block);
        if (moved != NULL)
            cache_count(owner, (int64_t)new_block - (int64_t)old_block);
        return moved;
    }
    void *fresh = alloc_counted(new_size, ALIGN_PLAIN, false, owner);
    if (fresh == NULL)
        return NULL;
    memcpy(fresh, ptr, KV_MIN(old_block, new_block));
    free_counted(ptr, old_size, ALIGN_PLAIN, owner);
    return fresh;
}

/* The block keeps its class; the debug header learns the new size. */
static void *resize_in_class(void *ptr, size_t old_size, size_t new_size, enum kv_mem_owner owner)
{
    kv_block_verify(ptr, old_size, ALIGN_PLAIN, owner);
    kv_block_note_size(ptr, new_size);
    return ptr;
}

void *kv_mem_realloc(void *ptr, size_t old_size, size_t new_size, enum kv_mem_owner owner)
{
    if (ptr == NULL)
        return kv_mem_alloc(new_size, owner);
    if (KV_LIKELY(kv_mem_same_block(old_size, new_size)))
        return resize_in_class(ptr, old_size, new_size, owner);
    kv_block_verify(ptr, old_size, ALIGN_PLAIN, owner);
    bool absurd = new_size > KV_MEM_SIZE_MAX;
    void *moved = absurd ? NULL : resize(ptr, old_size, new_size, owner);
    if (KV_UNLIKELY(moved == NULL))
        kv_mem_out_of_memory(new_size, owner);
    return moved;
}

void *kv_mem_try_realloc(void *ptr, size_t old_size, size_t new_size, enum kv_mem_owner owner)
{
    if (ptr == NULL)
        return kv_mem_try_alloc(new_size, owner);
    if (kv_mem_same_block(old_size, new_size))
        return resize_in_class(ptr, old_size, new_size, owner);
    kv_block_verify(ptr, old_size, ALIGN_PLAIN, owner);
    if (KV_UNLIKELY(refused(new_size)))
        return NULL;
    return resize(ptr, old_size, new_size, owner);
}

void kv_mem_reattribute(void *ptr, size_t size, enum kv_mem_owner from, enum kv_mem_owner to)
{
    KV_ASSERT(ptr != NULL);
    KV_ASSERT((unsigned)to < KV_MEM_OWNER_COUNT);
    kv_block_verify(ptr, size, ALIGN_PLAIN, from);
    kv_block_note_owner(ptr, to);
    kv_cache_register();
    int64_t block = (int64_t)kv_mem_block_size(size);
    cache_count(from, -block);
    cache_count(to, block);
}

char *kv_mem_strdup(const char *bytes, size_t len, enum kv_mem_owner owner)
{
    KV_ASSERT(bytes != NULL || len == 0);
    char *copy = kv_mem_alloc(len + 1, owner);
    if (len != 0)
        memcpy(copy, bytes, len);
    copy[len] = '\0';
    return copy;
}

bool kv_mem_evacuates(const void *ptr, size_t size)
{
    return kv_block_evacuates(ptr, size);
}

void *kv_mem_try_move(void *ptr, size_t size, enum kv_mem_owner owner)
{
    kv_block_verify(ptr, size, ALIGN_PLAIN, owner);
    return kv_block_move(ptr, size, ALIGN_PLAIN);
}

void *kv_mem_try_move_aligned(void *ptr, size_t size, size_t align, enum kv_mem_owner owner)
{
    size_t rounded = aligned_size(size, align);
    kv_block_verify(ptr, rounded, align, owner);
    return kv_block_move(ptr, rounded, align);
}

bool kv_mem_free_evacuated(void *ptr, size_t size, enum kv_mem_owner owner)
{
    kv_cache_register();
    if (ptr == NULL || !kv_block_free_evacuated(ptr, size, owner))
        return false;
    cache_count(owner, -(int64_t)kv_mem_block_size(size));
    return true;
}

/* --- reading the counters --- */

int64_t kv_mem_used(enum kv_mem_owner owner)
{
    KV_ASSERT((unsigned)owner < KV_MEM_OWNER_COUNT);
    return kv_cache_used_between(owner, (unsigned)owner + 1);
}

int64_t kv_mem_used_total(void)
{
    return kv_cache_used_between(0, KV_MEM_OWNER_COUNT);
}

static_assert(KV_MEM_ENTRY == 0 && KV_MEM_VALUE == 1 && KV_MEM_TABLE == 2 && KV_MEM_EXPIRY == 3,
              "the dataset's owners come first");

int64_t kv_mem_used_dataset(void)
{
    return kv_cache_used_between(KV_MEM_ENTRY, KV_MEM_EXPIRY + 1);
}

uint64_t kv_mem_peak(void)
{
    return atomic_load_explicit(&peak_bytes, memory_order_relaxed);
}

void kv_mem_peak_reset(void)
{
    int64_t total = kv_mem_used_total();
    atomic_store_explicit(&peak_bytes, (uint64_t)KV_MAX(total, 0), memory_order_relaxed);
}

void kv_mem_sample(void)
{
    int64_t total = kv_mem_used_total();
    if (total > 0)
        kv_stat_max(&peak_bytes, (uint64_t)total);
#if MEM_SLABS
    kv_chunk_sample(SAMPLE_AGE);
#endif
    kv_large_sample();
}

void kv_mem_purge(void)
{
    kv_mem_flush();
#if MEM_SLABS
    kv_chunk_sample(0);
#endif
    kv_large_purge();
}

static void verify_classes(void)
{
    for (size_t size = 0; size <= KV_MEM_SMALL_MAX; size++) {
        unsigned class_index = kv_mem_class_formula(size);
        KV_ASSERT(class_index == kv_mem_class_table[(size + 7) >> 3]);
        KV_ASSERT(kv_mem_class_bytes[class_index] == kv_mem_block_formula(size));
    }
}

void kv_mem_init(void)
{
    KV_ASSERT(!ready);
    verify_classes();
    kv_large_init();
    kv_report_init();
    kv_cache_init();
    ready = true;
    kv_cache_register();
}
