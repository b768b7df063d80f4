/* Operations on the memory layer and on a naive model, decoded from bytes: the harness of the fuzz
 * target and of the seeded tests. The model is an array of blocks with what was asked for; each is
 * filled with a pattern of its own, so that two blocks that share a byte, or a move that loses one,
 * are seen when either is looked at. After any sequence the bytes of each owner are those of the
 * model. kv_mem_init must have run; only the calling thread and those made here may use mem/. */
#ifndef KV_TESTS_FUZZ_OPS_MEM_H
#define KV_TESTS_FUZZ_OPS_MEM_H

#include "base/random.h"
#include "fuzz/input.h"
#include "mem/mem.h"
#include <pthread.h>
#include <string.h>
#ifdef KV_ASAN
#include <sanitizer/asan_interface.h>
#endif

/* --- blocks that know what is in them; used by the multi-thread tests, too --- */

#ifndef MEM_BLOCK_WHOLE
#define MEM_BLOCK_WHOLE ((size_t)2048) /* bytes up to which every one is looked at */
#endif
#define MEM_BLOCK_STRIDE ((size_t)1021)

struct mem_block {
    uint8_t *ptr;  /* NULL: none */
    size_t size;   /* as asked for */
    size_t align;  /* 0: not by the aligned calls */
    uint64_t fill; /* what the pattern is made of */
    enum kv_mem_owner owner;
};

KV_INLINE uint8_t mem_block_byte(const struct mem_block *b, size_t at)
{
    return (uint8_t)((b->fill + at * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

/* Every byte of a small block; of a large one its ends and one byte of each stride. */
KV_INLINE size_t mem_block_next(size_t at, size_t len)
{
    if (len <= MEM_BLOCK_WHOLE || at < 64 || at + 64 >= len)
        return at + 1;
    return KV_MIN(at + MEM_BLOCK_STRIDE, len - 64);
}

KV_INLINE void mem_block_fill(const struct mem_block *b, size_t len)
{
    for (size_t at = 0; at < len; at = mem_block_next(at, len))
        b->ptr[at] = mem_block_byte(b, at);
}

KV_INLINE void mem_block_verify(const struct mem_block *b, size_t len)
{
    for (size_t at = 0; at < len; at = mem_block_next(at, len))
        KV_ASSERT(b->ptr[at] == mem_block_byte(b, at));
}

/* What can be known of the first `len` bytes of a block that was filled over `filled` bytes. */
KV_INLINE void mem_block_verify_start(const struct mem_block *b, size_t len, size_t filled)
{
    if (filled > MEM_BLOCK_WHOLE)
        len = KV_MIN(len, (size_t)64);
    for (size_t at = 0; at < len; at++)
        KV_ASSERT(b->ptr[at] == mem_block_byte(b, at));
}

/* What the block is counted with. */
KV_INLINE size_t mem_block_counted(const struct mem_block *b)
{
    if (b->align == 0)
        return kv_mem_block_size(b->size);
    return kv_mem_block_size((b->size + (b->size == 0) + b->align - 1) & ~(b->align - 1));
}

/* Of it, bytes of slabs. */
KV_INLINE size_t mem_block_small(const struct mem_block *b)
{
    size_t counted = mem_block_counted(b);
    return counted <= KV_MEM_SMALL_MAX && b->align <= 64 ? counted : 0;
}

/* Some size that maps to the same block. */
KV_INLINE size_t mem_block_told(const struct mem_block *b, struct kv_random *random)
{
    size_t block = kv_mem_block_size(b->size);
    size_t told = kv_random_below(random, 2) == 0
                      ? b->size + (size_t)kv_random_below(random, block - b->size + 1)
                      : b->size - (size_t)kv_random_below(random, b->size / 16 + 1);
    return kv_mem_block_size(told) == block ? told : b->size;
}

/* How a block is asked for. */
enum mem_block_call {
    MEM_CALL_ALLOC,
    MEM_CALL_ZALLOC,
    MEM_CALL_TRY,
    MEM_CALL_TRY_ZALLOC,
    MEM_CALL_USABLE,
    MEM_CALL_ALIGNED,
    MEM_CALL_TRY_ALIGNED,
    MEM_CALL_REALLOC,
    MEM_CALL_TRY_REALLOC,
    MEM_CALL_COUNT
};

KV_INLINE bool mem_call_may_fail(enum mem_block_call call)
{
    return call == MEM_CALL_TRY || call == MEM_CALL_TRY_ZALLOC || call == MEM_CALL_USABLE ||
           call == MEM_CALL_TRY_ALIGNED || call == MEM_CALL_TRY_REALLOC;
}

/* Asks for b->size bytes of b->owner, aligned to b->align where the call takes one. False: it could
 * fail, and failed; then b->ptr is NULL. */
KV_INLINE bool mem_block_make(struct mem_block *b, enum mem_block_call call)
{
    size_t usable = kv_mem_block_size(b->size), told = 0;
    size_t align = b->align;
    b->align = 0;
    switch (call) {
    case MEM_CALL_ZALLOC:
        b->ptr = kv_mem_zalloc(b->size, b->owner);
        break;
    case MEM_CALL_TRY:
        b->ptr = kv_mem_try_alloc(b->size, b->owner);
        break;
    case MEM_CALL_TRY_ZALLOC:
        b->ptr = kv_mem_try_zalloc(b->size, b->owner);
        break;
    case MEM_CALL_USABLE:
        b->ptr = kv_mem_try_alloc_usable(b->size, b->owner, &told);
        KV_ASSERT(told == (b->ptr == NULL ? 0 : usable));
        break;
    case MEM_CALL_ALIGNED:
    case MEM_CALL_TRY_ALIGNED:
        b->align = align;
        b->ptr = call == MEM_CALL_ALIGNED ? kv_mem_alloc_aligned(b->size, align, b->owner)
                                          : kv_mem_try_alloc_aligned(b->size, align, b->owner);
        KV_ASSERT(b->ptr == NULL || (uintptr_t)b->ptr % align == 0);
        usable = b->size;
        break;
    case MEM_CALL_REALLOC:
        b->ptr = kv_mem_realloc(NULL, 0, b->size, b->owner);
        break;
    case MEM_CALL_TRY_REALLOC:
        b->ptr = kv_mem_try_realloc(NULL, 0, b->size, b->owner);
        break;
    default:
        b->ptr = kv_mem_alloc(b->size, b->owner);
        break;
    }
    KV_ASSERT(b->ptr != NULL || mem_call_may_fail(call));
    if (b->ptr == NULL)
        return false;
    KV_ASSERT((uintptr_t)b->ptr % 8 == 0);
    if (call == MEM_CALL_ZALLOC || call == MEM_CALL_TRY_ZALLOC) {
        for (size_t at = 0; at < b->size; at = mem_block_next(at, b->size))
            KV_ASSERT(b->ptr[at] == 0);
    }
    mem_block_fill(b, usable); /* the whole block is its owner's */
    return true;
}

KV_INLINE size_t mem_block_usable(const struct mem_block *b)
{
    return b->align == 0 ? kv_mem_block_size(b->size) : b->size;
}

KV_INLINE void mem_block_drop(struct mem_block *b, struct kv_random *random)
{
    mem_block_verify(b, mem_block_usable(b));
    if (b->align != 0)
        kv_mem_free_aligned(b->ptr, b->size, b->align, b->owner);
    else
        kv_mem_free(b->ptr, mem_block_told(b, random), b->owner);
    b->ptr = NULL;
}

/* New size, by the form that may fail or by the one that may not; false: nothing changed. */
KV_INLINE bool mem_block_resize(struct mem_block *b, size_t size, bool may_fail,
                                struct kv_random *random)
{
    KV_ASSERT(b->align == 0);
    size_t told = mem_block_told(b, random), old_usable = mem_block_usable(b);
    uint8_t *moved = may_fail ? kv_mem_try_realloc(b->ptr, told, size, b->owner)
                              : kv_mem_realloc(b->ptr, told, size, b->owner);
    KV_ASSERT(moved != NULL || may_fail);
    if (moved == NULL) {
        mem_block_verify(b, old_usable);
        return false;
    }
    KV_ASSERT(kv_mem_block_size(size) != old_usable || moved == b->ptr);
    size_t kept = KV_MIN(told, size);
    b->ptr = moved;
    mem_block_verify_start(b, kept, old_usable);
    b->size = size;
    mem_block_fill(b, kv_mem_block_size(size));
    return true;
}

/* To a better place, when the layer wants that; false: it stays. What is told is kept by the move,
 * what lies behind it in the block need not be. */
KV_INLINE bool mem_block_evacuate(struct mem_block *b, struct kv_random *random)
{
    if (b->align != 0 || !kv_mem_evacuates(b->ptr, mem_block_told(b, random)))
        return false;
    size_t told = KV_MAX(mem_block_told(b, random), b->size);
    void *moved = kv_mem_try_move(b->ptr, told, b->owner);
    if (moved == NULL) {
        mem_block_verify(b, mem_block_usable(b));
        return false;
    }
    KV_ASSERT(moved != (void *)b->ptr);
    b->ptr = moved;
    mem_block_verify_start(b, told, mem_block_usable(b));
    mem_block_fill(b, mem_block_usable(b));
    return true;
}

/* --- the model --- */

#define MEM_MODEL_MAX 6000 /* blocks */
#ifndef MEM_MODEL_LARGE
#define MEM_MODEL_LARGE 70000 /* bytes of the largest blocks */
#endif

struct mem_model {
    struct mem_block blocks[MEM_MODEL_MAX];
    uint32_t count;
    int64_t used[KV_MEM_OWNER_COUNT]; /* bytes of `blocks` */
    int64_t base[KV_MEM_OWNER_COUNT]; /* bytes that others had at the start */
    int64_t base_small;               /* of them in slabs */
    struct kv_random random;          /* fed from the input, for choices that need many bits */
    size_t size_center;               /* where sizes come from; 0: from everywhere */
    bool evacuating;
    uint32_t moved; /* blocks, by evacuation */
};

KV_INLINE size_t mem_model_size(struct mem_model *m)
{
    struct kv_random *r = &m->random;
    if (m->size_center != 0 && kv_random_below(r, 8) != 0)
        return m->size_center - (size_t)kv_random_below(r, KV_MIN(m->size_center, (size_t)9));
    uint64_t limit = UINT64_C(1) << kv_random_below(r, 12);
    if (kv_random_below(r, 64) == 0)
        limit = MEM_MODEL_LARGE;
    return (size_t)kv_random_below(r, limit + 1);
}

KV_INLINE void mem_model_count(struct mem_model *m, const struct mem_block *b, int sign)
{
    m->used[b->owner] += sign * (int64_t)mem_block_counted(b);
}

/* fail: the call is made to fail when it can and the build can make it. */
KV_INLINE void mem_model_make(struct mem_model *m, enum mem_block_call call, bool fail)
{
    if (m->count == MEM_MODEL_MAX)
        return;
    struct mem_block b = {.size = mem_model_size(m), .fill = kv_random_next(&m->random)};
    b.owner = (enum kv_mem_owner)kv_random_below(&m->random, KV_MEM_OWNER_COUNT);
    b.align = (size_t)8 << kv_random_below(&m->random, 10);
    kv_mem_fail_try(fail ? 1 : 0);
    bool made = mem_block_make(&b, call);
    kv_mem_fail_try(0);
#ifdef KV_DEBUG
    KV_ASSERT(made == !(fail && mem_call_may_fail(call)));
#else
    KV_ASSERT(made);
#endif
    if (!made)
        return;
    mem_model_count(m, &b, 1);
    m->blocks[m->count++] = b;
}

KV_INLINE void mem_model_free(struct mem_model *m, struct mem_block *b)
{
    KV_UNUSED const uint8_t *ptr = b->ptr;
    mem_model_count(m, b, -1);
    mem_block_drop(b, &m->random);
#ifdef KV_ASAN
    KV_ASSERT(__asan_address_is_poisoned(ptr)); /* nobody else can have got it meanwhile */
#endif
}

KV_INLINE void mem_model_drop(struct mem_model *m, uint32_t place)
{
    mem_model_free(m, &m->blocks[place]);
    m->blocks[place] = m->blocks[--m->count];
}

KV_INLINE uint32_t mem_model_some(struct mem_model *m)
{
    return (uint32_t)kv_random_below(&m->random, m->count);
}

KV_INLINE void mem_model_resize(struct mem_model *m, uint32_t place, bool may_fail, bool fail)
{
    struct mem_block *b = &m->blocks[place];
    if (b->align != 0)
        return;
    size_t size = mem_model_size(m);
    mem_model_count(m, b, -1);
    kv_mem_fail_try(fail ? 1 : 0);
    bool done = mem_block_resize(b, size, may_fail, &m->random);
    kv_mem_fail_try(0);
    KV_ASSERT(done || (may_fail && fail));
    mem_model_count(m, b, 1);
}

KV_INLINE void mem_model_reattribute(struct mem_model *m, uint32_t place)
{
    struct mem_block *b = &m->blocks[place];
    enum kv_mem_owner to = (enum kv_mem_owner)kv_random_below(&m->random, KV_MEM_OWNER_COUNT);
    if (b->align != 0)
        return;
    mem_model_count(m, b, -1);
    kv_mem_reattribute(b->ptr, mem_block_told(b, &m->random), b->owner, to);
    b->owner = to;
    mem_model_count(m, b, 1);
}

/* A burst as pipelines make them: many live at once, then all freed. */
KV_INLINE void mem_model_burst(struct mem_model *m, uint32_t times, bool reverse)
{
    uint32_t first = m->count;
    while (times-- > 0)
        mem_model_make(m, MEM_CALL_ALLOC, false);
    for (uint32_t i = first; !reverse && i < m->count; i++)
        mem_model_free(m, &m->blocks[i]);
    while (m->count > first) {
        if (reverse)
            mem_model_drop(m, m->count - 1);
        else
            m->count--;
    }
}

/* Sizes that nobody has, and a block that outlives the refusal. */
KV_INLINE void mem_model_absurd(struct mem_model *m)
{
    size_t size = SIZE_MAX - (size_t)kv_random_below(&m->random, 4097);
    size_t usable = 7;
    if (kv_random_below(&m->random, 2) == 0)
        size = KV_MEM_SIZE_MAX + 1 + (size_t)kv_random_below(&m->random, KV_MEM_SIZE_MAX);
    KV_ASSERT(kv_mem_try_alloc(size, KV_MEM_VALUE) == NULL);
    KV_ASSERT(kv_mem_try_zalloc(size, KV_MEM_VALUE) == NULL);
    KV_ASSERT(kv_mem_try_alloc_usable(size, KV_MEM_VALUE, &usable) == NULL);
    KV_ASSERT(usable == 7);
    KV_ASSERT(kv_mem_try_alloc_aligned(size, 64, KV_MEM_VALUE) == NULL);
    if (m->count == 0)
        return;
    struct mem_block *b = &m->blocks[mem_model_some(m)];
    if (b->align == 0)
        KV_ASSERT(kv_mem_try_realloc(b->ptr, b->size, size, b->owner) == NULL);
    mem_block_verify(b, mem_block_usable(b));
}

/* A step of evacuation: begin it, move some blocks, or end it. */
KV_INLINE void mem_model_evacuate(struct mem_model *m, uint32_t times)
{
    if (!m->evacuating) {
        m->evacuating = kv_mem_evacuation_begin() > 0;
        return;
    }
    if (times < 32) {
        kv_mem_evacuation_end();
        m->evacuating = false;
        return;
    }
    while (times-- > 0 && m->count > 0) {
        struct mem_block *b = &m->blocks[mem_model_some(m)];
        m->moved += mem_block_evacuate(b, &m->random);
    }
}

/* A thread of its own frees and makes blocks, and ends. */
struct mem_model_visit {
    struct mem_model *model;
    uint32_t times;
};

static inline void *mem_model_visitor(void *arg)
{
    struct mem_model_visit *visit = arg;
    struct mem_model *m = visit->model;
    kv_mem_thread_name("visitor");
    for (uint32_t i = 0; i < visit->times; i++) {
        if (m->count > 0 && kv_random_below(&m->random, 2) == 0)
            mem_model_drop(m, mem_model_some(m));
        else
            mem_model_make(m, MEM_CALL_ALLOC, false);
    }
    kv_mem_thread_exit();
    return NULL;
}

KV_INLINE void mem_model_thread(struct mem_model *m, uint32_t times)
{
    struct mem_model_visit visit = {m, times};
    pthread_t thread;
    if (pthread_create(&thread, NULL, mem_model_visitor, &visit) == 0)
        pthread_join(thread, NULL);
}

/* *arg: whether the threads rest. Figures of one that runs are of several moments. */
static inline void mem_model_cache_seen(void *arg, const char *thread,
                                        const struct kv_mem_cache_stats *stats)
{
    KV_ASSERT(thread != NULL);
    KV_ASSERT(kv_mem_block_size(stats->block_size) == stats->block_size);
    if (*(const bool *)arg) {
        KV_ASSERT(stats->depth <= stats->limit);
        KV_ASSERT(stats->refills <= stats->hits);
    }
}

KV_INLINE void mem_model_check(struct mem_model *m)
{
    int64_t total = 0, all = 0;
    for (unsigned i = 0; i < KV_MEM_OWNER_COUNT; i++) {
        int64_t used = kv_mem_used((enum kv_mem_owner)i);
        KV_ASSERT(used - m->base[i] == m->used[i]);
        total += m->used[i];
        all += used;
    }
    int64_t live = 0;
    KV_UNUSED int64_t small = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        live += (int64_t)mem_block_counted(&m->blocks[i]);
        small += (int64_t)mem_block_small(&m->blocks[i]);
    }
    KV_ASSERT(live == total);
    KV_ASSERT(kv_mem_used_total() == all);
    struct kv_mem_report report;
    kv_mem_report_read(&report);
    KV_ASSERT(report.used_total == all);
#if KV_MEM_INLINED
    /* What slabs gave out less what caches hold is what owners have: no block is lost between. */
    KV_ASSERT((int64_t)report.small_bytes - m->base_small == small);
#endif
    for (unsigned i = 0; i < KV_MEM_OWNER_COUNT; i++)
        KV_ASSERT(report.used[i] - m->base[i] == m->used[i]);
    bool rest = true;
    kv_mem_cache_each(mem_model_cache_seen, &rest);
}

/* What is called now and then, whatever else goes on. */
KV_INLINE void mem_model_upkeep(struct mem_model *m, uint32_t times)
{
    switch (times % 6) {
    case 0:
        kv_mem_purge();
        break;
    case 1:
        kv_mem_sample();
        break;
    case 2:
        kv_mem_publish();
        int64_t counted = kv_mem_used_total() - kv_mem_used(KV_MEM_STREAM);
        int64_t off = counted - kv_mem_used_published();
        KV_ASSERT(off <= KV_MEM_PUBLISH_BYTES && off >= -KV_MEM_PUBLISH_BYTES);
        break;
    default:
        kv_mem_trim();
        break;
    }
    if (m->count > 0) {
        struct mem_block *b = &m->blocks[mem_model_some(m)];
        mem_block_verify(b, mem_block_usable(b));
    }
}

KV_INLINE void mem_model_step(struct mem_model *m, struct input *in)
{
    uint8_t op = input_byte(in);
    uint32_t times = input_byte(in), again = 1 + times;
    switch (op % 16) {
    case 0:
        for (uint32_t i = 0; i < 8 * again; i++)
            mem_model_make(m, MEM_CALL_ALLOC, false);
        break;
    case 1:
        while (again-- > 0)
            mem_model_make(m, (enum mem_block_call)(again % MEM_CALL_COUNT), false);
        break;
    case 2:
        mem_model_make(m, (enum mem_block_call)(times % MEM_CALL_COUNT), true);
        break;
    case 3:
        for (uint32_t i = 0; i < 8 * again && m->count > 0; i++)
            mem_model_drop(m, mem_model_some(m));
        break;
    case 4:
        while (again-- > 0 && m->count > 0)
            mem_model_drop(m, m->count - 1);
        break;
    case 5:
        while (again-- > 0 && m->count > 0)
            mem_model_resize(m, mem_model_some(m), again % 2 == 0, again % 8 == 0);
        break;
    case 6:
        while (again-- > 0 && m->count > 0)
            mem_model_reattribute(m, mem_model_some(m));
        break;
    case 7:
        mem_model_burst(m, 4 * again, times % 2 == 0);
        break;
    case 8:
        mem_model_absurd(m);
        break;
    case 9:
    case 10:
        mem_model_evacuate(m, times);
        break;
    case 11:
        mem_model_thread(m, again);
        break;
    case 12:
        m->size_center = times < 64 ? 0 : (size_t)(times - 63) * 6;
        break;
    case 13:
        mem_model_check(m);
        break;
    default:
        mem_model_upkeep(m, times);
        break;
    }
}

/* Runs what the bytes say and frees everything; how many blocks evacuation moved. */
KV_INLINE uint32_t mem_model_run(struct input in)
{
    struct mem_model *m = kv_mem_zalloc(sizeof *m, KV_MEM_OTHER);
    kv_random_init(&m->random, input_number(&in, 2));
    kv_mem_fail_try(0);
    for (unsigned i = 0; i < KV_MEM_OWNER_COUNT; i++)
        m->base[i] = kv_mem_used((enum kv_mem_owner)i);
    struct kv_mem_report report;
    kv_mem_report_read(&report);
    m->base_small = (int64_t)report.small_bytes;
    while (input_more(&in))
        mem_model_step(m, &in);
    mem_model_check(m);
    if (m->evacuating)
        kv_mem_evacuation_end();
    while (m->count > 0)
        mem_model_drop(m, m->count - 1);
    mem_model_check(m);
    uint32_t moved = m->moved;
    kv_mem_free(m, sizeof *m, KV_MEM_OTHER);
    return moved;
}

#endif
