/* mem/cache.c: bursts stay in the cache, idle blocks leave it, threads' totals are kept. */
#include "mem/mem_priv.h"
#include "unit.h"
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#if MEM_JEMALLOC
#include <jemalloc/jemalloc.h>
#endif

#define BURST 640

struct sums {
    uint64_t depth_bytes, limit_bytes, hits, refills, flushes;
    unsigned threads_named_twin;
};

static void add_stats(void *arg, const char *thread, const struct kv_mem_cache_stats *s)
{
    struct sums *sums = arg;
    ck_assert_uint_le(s->depth, s->limit);
    ck_assert_uint_ge(s->hits, s->depth == 0 ? s->refills : 0);
    sums->depth_bytes += (uint64_t)s->depth * s->block_size;
    sums->limit_bytes += (uint64_t)s->limit * s->block_size;
    sums->hits += s->hits;
    sums->refills += s->refills;
    sums->flushes += s->flushes;
    sums->threads_named_twin += strcmp(thread, "twin") == 0;
}

static struct sums read_sums(void)
{
    struct sums sums = {0};
    kv_mem_cache_each(add_stats, &sums);
    return sums;
}

START_TEST(totals_follow_allocations_to_the_byte)
{
    kv_mem_init();
    int64_t entry = kv_mem_used(KV_MEM_ENTRY), total = kv_mem_used_total();
    void *a = kv_mem_alloc(100, KV_MEM_ENTRY);
    void *b = kv_mem_zalloc(1000, KV_MEM_VALUE);
    ck_assert_int_eq(kv_mem_used(KV_MEM_ENTRY) - entry, 104);
    ck_assert_int_eq(kv_mem_used_total() - total, 104 + 1024);
    kv_mem_free(a, 100, KV_MEM_ENTRY);
    kv_mem_free(b, 1000, KV_MEM_VALUE);
    ck_assert_int_eq(kv_mem_used_total(), total);
}
END_TEST

static void *free_its_argument(void *arg)
{
    kv_mem_thread_name("twin");
    kv_mem_free(arg, 77, KV_MEM_OTHER);
    for (size_t size = 1; size < 3000; size += 37)
        kv_mem_free(kv_mem_alloc(size, KV_MEM_CLIENT), size, KV_MEM_CLIENT);
    return NULL; /* forgets kv_mem_thread_exit: the thread library's destructor does it */
}

START_TEST(ended_threads_leave_their_totals)
{
    kv_mem_init();
    int64_t total = kv_mem_used_total();
    for (int i = 0; i < 50; i++) {
        pthread_t thread;
        void *block = kv_mem_alloc(77, KV_MEM_OTHER);
        ck_assert_int_eq(pthread_create(&thread, NULL, free_its_argument, block), 0);
        pthread_join(thread, NULL);
        ck_assert_int_eq(kv_mem_used_total(), total);
        ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT), 0);
    }
    ck_assert_uint_eq(read_sums().threads_named_twin, 0);
}
END_TEST

static void *publish_and_end(void *arg)
{
    for (int i = 0; i < 3000; i++)
        kv_mem_free(kv_mem_alloc(50, KV_MEM_OTHER), 50, KV_MEM_OTHER);
    ((void **)arg)[0] = kv_mem_alloc(300000, KV_MEM_VALUE);
    kv_mem_publish();
    ((void **)arg)[1] = kv_mem_alloc(1000, KV_MEM_VALUE);
    ((void **)arg)[2] = kv_mem_alloc(200000, KV_MEM_STREAM);
    kv_mem_thread_exit();
    return NULL;
}

START_TEST(the_published_total_is_exact_within_its_bound)
{
    kv_mem_init();
    void *held[200];
    for (int i = 0; i < 200; i++) {
        held[i] = kv_mem_alloc((size_t)i * 40, KV_MEM_ENTRY);
        kv_mem_publish();
        int64_t truth = kv_mem_used_total() - kv_mem_used(KV_MEM_STREAM);
        int64_t off = truth - kv_mem_used_published();
        ck_assert_int_lt(off < 0 ? -off : off, KV_MEM_PUBLISH_BYTES);
    }
    ck_assert_int_gt(kv_mem_used_published(), 500000);
    void *left[3];
    pthread_t thread;
    int64_t before = kv_mem_used_published();
    ck_assert_int_eq(pthread_create(&thread, NULL, publish_and_end, left), 0);
    pthread_join(thread, NULL);
    /* An ended thread has told all of it, the stream's apart. */
    ck_assert_int_eq(kv_mem_used_published() - before,
                     (int64_t)(kv_mem_block_size(300000) + kv_mem_block_size(1000)));
    kv_mem_free(left[0], 300000, KV_MEM_VALUE);
    kv_mem_free(left[1], 1000, KV_MEM_VALUE);
    kv_mem_free(left[2], 200000, KV_MEM_STREAM);
    for (int i = 0; i < 200; i++)
        kv_mem_free(held[i], (size_t)i * 40, KV_MEM_ENTRY);
}
END_TEST

#if MEM_SLABS

static void burst(size_t size)
{
    static void *blocks[BURST];
    for (int i = 0; i < BURST; i++)
        blocks[i] = kv_mem_alloc(size, KV_MEM_OTHER);
    for (int i = 0; i < BURST; i++)
        kv_mem_free(blocks[i], size, KV_MEM_OTHER);
}

START_TEST(a_repeated_burst_needs_no_slab)
{
    static const size_t sizes[] = {16, 24, 32, 48, 64, 100, 128, 256, 480};
    kv_mem_init();
    for (unsigned i = 0; i < KV_ARRAY_LEN(sizes); i++) {
        for (int round = 0; round < 5; round++)
            burst(sizes[i]);
        struct sums before = read_sums();
        for (int round = 0; round < 50; round++)
            burst(sizes[i]);
        struct sums after = read_sums();
        ck_assert_uint_eq(after.refills, before.refills);
        ck_assert_uint_eq(after.flushes, before.flushes);
        ck_assert_uint_eq(after.hits - before.hits, 50 * BURST);
        kv_mem_flush();
    }
}
END_TEST

START_TEST(a_thread_caches_two_mebibytes_at_most)
{
    static void *blocks[4000];
    struct kv_random r;
    kv_random_init(&r, unit_seed("a_thread_caches_two_mebibytes_at_most"));
    kv_mem_init();
    for (unsigned round = 0; round < UNIT_ROUNDS(200); round++) {
        size_t size = 1 + (size_t)kv_random_below(&r, 1000);
        unsigned n = 1 + (unsigned)kv_random_below(&r, KV_ARRAY_LEN(blocks));
        for (unsigned i = 0; i < n; i++)
            blocks[i] = kv_mem_alloc(size, KV_MEM_OTHER);
        for (unsigned i = 0; i < n; i++)
            kv_mem_free(blocks[i], size, KV_MEM_OTHER);
        struct sums sums = read_sums();
        ck_assert_uint_le(sums.limit_bytes, 2 << 20);
        ck_assert_uint_le(sums.depth_bytes, sums.limit_bytes);
    }
    kv_slab_check();
    ck_assert_int_eq(kv_mem_used(KV_MEM_OTHER), 0);
}
END_TEST

START_TEST(idle_blocks_leave_the_cache)
{
    kv_mem_init();
    burst(64);
    burst(320);
    ck_assert_uint_gt(read_sums().depth_bytes, BURST * 64);
    for (int i = 0; i < 30; i++) {
        kv_mem_free(kv_mem_alloc(64, KV_MEM_OTHER), 64, KV_MEM_OTHER); /* this class is busy */
        kv_mem_trim();
    }
    struct sums sums = read_sums();
    ck_assert_uint_ge(sums.depth_bytes, BURST / 2 * 64);
    ck_assert_uint_lt(sums.depth_bytes, BURST * 320);
    for (int i = 0; i < 30; i++)
        kv_mem_trim();
    ck_assert_uint_eq(read_sums().depth_bytes, 0);
}
END_TEST

START_TEST(an_evacuation_empties_the_cache)
{
    static void *blocks[4000];
    kv_mem_init();
    for (int i = 0; i < 4000; i++)
        blocks[i] = kv_mem_alloc(64, KV_MEM_OTHER);
    for (int i = 0; i < 4000; i++)
        if (i % 10 != 0)
            kv_mem_free(blocks[i], 64, KV_MEM_OTHER);
    ck_assert_uint_gt(read_sums().depth_bytes, 0);
    kv_mem_evacuation_begin();
    ck_assert_uint_eq(read_sums().depth_bytes, 0);
    kv_mem_evacuation_end();
}
END_TEST

START_TEST(blocks_are_moved_with_their_content)
{
    static void *blocks[20000];
    kv_mem_init();
    for (int i = 0; i < 20000; i++)
        blocks[i] = kv_mem_alloc(90, KV_MEM_ENTRY);
    for (int i = 0; i < 20000; i++) {
        if (i % 10 == 0)
            memset(blocks[i], i / 10, 90);
        else
            kv_mem_free(blocks[i], 90, KV_MEM_ENTRY);
    }
    int64_t used = kv_mem_used(KV_MEM_ENTRY);
    unsigned moved = 0;
    ck_assert_uint_gt(kv_mem_evacuation_begin(), 0);
    for (int i = 0; i < 20000; i += 10) {
        if (!kv_mem_evacuates(blocks[i], 90))
            continue;
        void *to = kv_mem_try_move(blocks[i], 90, KV_MEM_ENTRY);
        if (to == NULL)
            continue;
        ck_assert(!kv_mem_evacuates(to, 90));
        blocks[i] = to;
        moved++;
    }
    kv_mem_evacuation_end();
    ck_assert_uint_gt(moved, 500);
    ck_assert_int_eq(kv_mem_used(KV_MEM_ENTRY), used);
    for (int i = 0; i < 20000; i += 10) {
        const uint8_t *bytes = blocks[i];
        ck_assert_uint_eq(bytes[0], (uint8_t)(i / 10));
        ck_assert_uint_eq(bytes[89], (uint8_t)(i / 10));
        kv_mem_free(blocks[i], 90, KV_MEM_ENTRY);
    }
}
END_TEST

START_TEST(blocks_that_are_only_freed_leave_the_cache)
{
    static void *blocks[200];
    kv_mem_init();
    for (int i = 0; i < 200; i++)
        blocks[i] = kv_mem_alloc(64, KV_MEM_OTHER);
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 10; i++)
            kv_mem_free(blocks[round * 10 + i], 64, KV_MEM_OTHER);
        for (int i = 0; i < 30; i++)
            kv_mem_trim();
        ck_assert_uint_eq(read_sums().depth_bytes, 0);
    }
}
END_TEST

/* Deletions must not take the budget from the bins that a burst of commands needs. */
START_TEST(frees_alone_grow_no_deep_cache)
{
    static void *blocks[20000];
    kv_mem_init();
    for (int i = 0; i < 20000; i++)
        blocks[i] = kv_mem_alloc(400, KV_MEM_OTHER);
    kv_mem_flush();
    uint64_t limit_bytes = read_sums().limit_bytes;
    for (int i = 0; i < 20000; i++)
        kv_mem_free(blocks[i], 400, KV_MEM_OTHER);
    ck_assert_uint_lt(read_sums().limit_bytes, limit_bytes + (64 << 10));
}
END_TEST

START_TEST(every_class_has_a_burst_of_half_a_mebibyte)
{
    static void *blocks[BURST];
    kv_mem_init();
    for (unsigned class_index = 0; class_index < KV_MEM_CLASS_COUNT; class_index++) {
        size_t size = kv_mem_class_bytes[class_index];
        size_t header = kv_mem_block_size(size + 16); /* what debug builds make of it */
        unsigned n = (unsigned)KV_MIN((size_t)BURST, (400 << 10) / header);
        uint64_t slab_calls = 0;
        for (int round = 0; round < 20; round++) {
            struct sums sums = read_sums();
            uint64_t before = slab_calls;
            slab_calls = sums.refills + sums.flushes;
            if (round == 19)
                ck_assert_uint_eq(slab_calls, before);
            for (unsigned i = 0; i < n; i++)
                blocks[i] = kv_mem_alloc(size, KV_MEM_OTHER);
            for (unsigned i = 0; i < n; i++)
                kv_mem_free(blocks[i], size, KV_MEM_OTHER);
        }
        kv_mem_flush();
    }
}
END_TEST

static size_t least_of_class(size_t block)
{
    size_t size = block;
    while (size > 1 && kv_mem_block_size(size - 1) == block)
        size--;
    return size;
}

START_TEST(a_move_takes_the_whole_block_along)
{
    static const size_t sizes[] = {8, 24, 128, 144, 1024, 4096, 5120, 14336, 16384, 40960};
    kv_mem_init();
    for (unsigned i = 0; i < KV_ARRAY_LEN(sizes); i++) {
        char *beside = kv_mem_alloc(sizes[i], KV_MEM_VALUE); /* a slab to go to */
        char *block = kv_mem_alloc(sizes[i], KV_MEM_VALUE);
        memset(block, 'x', sizes[i]);
        char *moved = kv_mem_try_move(block, least_of_class(sizes[i]), KV_MEM_VALUE);
        ck_assert_ptr_nonnull(moved);
        ck_assert_int_eq(moved[0], 'x');
        ck_assert_int_eq(moved[sizes[i] - 1], 'x');
        kv_mem_free(moved, sizes[i], KV_MEM_VALUE);
        kv_mem_free(beside, sizes[i], KV_MEM_VALUE);
    }
    ck_assert_int_eq(kv_mem_used_total(), 0);
    ck_assert_int_eq(kv_cache_paged_blocks(), 0);
}
END_TEST

static unsigned count_slabs(void)
{
    struct slab_totals totals;
    kv_slab_totals(&totals);
    return (unsigned)totals.slabs;
}

/* Values are replaced while the walk goes on: a new block, then the old one freed. */
START_TEST(slabs_run_empty_under_writes)
{
    enum { LEFT = 3000 };
    static void *blocks[LEFT * 10];
    struct kv_random r;
    kv_random_init(&r, unit_seed("slabs_run_empty_under_writes"));
    kv_mem_init();
    for (int i = 0; i < LEFT * 10; i++)
        blocks[i] = kv_mem_alloc(500, KV_MEM_ENTRY);
    for (int i = 0; i < LEFT * 10; i++) {
        if (i % 10 == 0)
            blocks[i / 10] = blocks[i];
        else
            kv_mem_free(blocks[i], 500, KV_MEM_ENTRY);
    }
    int64_t used = kv_mem_used(KV_MEM_ENTRY);
    kv_mem_flush();
    unsigned before = count_slabs();
    ck_assert_uint_gt(kv_mem_evacuation_begin(), 0);
    for (int i = 0; i < LEFT; i++) {
        if (kv_mem_evacuates(blocks[i], 500)) {
            blocks[i] = kv_mem_try_move(blocks[i], 500, KV_MEM_ENTRY);
            ck_assert_ptr_nonnull(blocks[i]);
        }
        void **replaced = &blocks[kv_random_below(&r, LEFT)];
        void *fresh = kv_mem_alloc(500, KV_MEM_ENTRY);
        kv_mem_free_movable(*replaced, 500, KV_MEM_ENTRY);
        *replaced = fresh;
    }
    kv_mem_evacuation_end();
    kv_mem_flush();
    ck_assert_int_eq(kv_mem_used(KV_MEM_ENTRY), used);
    ck_assert_uint_lt(count_slabs(), before / 2);
    for (int i = 0; i < LEFT; i++)
        kv_mem_free_movable(blocks[i], 500, KV_MEM_ENTRY);
    kv_mem_free_movable(NULL, 500, KV_MEM_ENTRY);
    ck_assert_int_eq(kv_mem_used(KV_MEM_ENTRY), 0);
}
END_TEST

START_TEST(aligned_blocks_are_moved)
{
    enum { COUNT = 2000 };
    static char *blocks[COUNT];
    static const size_t sizes[] = {64, 320, 2048, 4096, 5120};
    kv_mem_init();
    for (unsigned k = 0; k < KV_ARRAY_LEN(sizes); k++) {
        size_t size = sizes[k];
        unsigned wanted = 0;
        for (int i = 0; i < COUNT; i++)
            blocks[i] = kv_mem_alloc_aligned(size, 64, KV_MEM_TABLE);
        for (int i = 0; i < COUNT; i++) {
            memset(blocks[i], i, size);
            if (i % 8 != 0)
                kv_mem_free_aligned(blocks[i], size, 64, KV_MEM_TABLE);
        }
        kv_mem_evacuation_begin();
        for (int i = 0; i < COUNT; i += 8) {
            bool wants = kv_mem_evacuates(blocks[i], size);
            wanted += wants;
            char *moved = kv_mem_try_move_aligned(blocks[i], size, 64, KV_MEM_TABLE);
            if (moved == NULL)
                continue;
            ck_assert_uint_eq((uintptr_t)moved % 64, 0);
            ck_assert_uint_eq((uint8_t)moved[0], (uint8_t)i);
            ck_assert_uint_eq((uint8_t)moved[size - 1], (uint8_t)i);
            if (size <= 1024)
                ck_assert(!kv_mem_evacuates(moved, size));
            blocks[i] = moved;
        }
        kv_mem_evacuation_end();
        if (size > 64 && size <= 1024)
            ck_assert_uint_gt(wanted, 0);
        for (int i = 0; i < COUNT; i += 8)
            kv_mem_free_aligned(blocks[i], size, 64, KV_MEM_TABLE);
    }
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

#if MEM_JEMALLOC

/* Sizes of one class lie on both sides of 16 KiB, from where on blocks are asked for by pages. */
START_TEST(blocks_of_whole_pages_are_counted_by_class)
{
    static const size_t told[] = {14337, 15000, 16383, 16384};
    kv_mem_init();
    for (unsigned i = 0; i < KV_ARRAY_LEN(told); i++) {
        for (unsigned j = 0; j < KV_ARRAY_LEN(told); j++) {
            kv_mem_free(kv_mem_alloc(told[i], KV_MEM_VALUE), told[j], KV_MEM_VALUE);
            ck_assert_int_eq(kv_cache_paged_blocks(), 0);
            void *block = kv_mem_zalloc(told[i], KV_MEM_VALUE);
            block = kv_mem_realloc(block, told[j], 50000, KV_MEM_VALUE);
            block = kv_mem_realloc(block, 50000, told[i], KV_MEM_VALUE);
            kv_mem_free(block, told[j], KV_MEM_VALUE);
            ck_assert_int_eq(kv_cache_paged_blocks(), 0);
        }
    }
    for (size_t align = 8; align <= 4096; align *= 2) {
        void *block = kv_mem_alloc_aligned(15000, align, KV_MEM_TABLE);
        kv_mem_free_aligned(block, 15000, align, KV_MEM_TABLE);
    }
    ck_assert_int_eq(kv_cache_paged_blocks(), 0);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

/* Not inside a free, where a command would wait for it. */
START_TEST(a_thread_of_jemalloc_returns_pages_after_the_first_sample)
{
    static void *blocks[1000];
    bool runs = true;
    size_t len = sizeof(runs);
    struct large_totals totals;
    kv_mem_init();
    ck_assert_int_eq(mallctl("background_thread", &runs, &len, NULL, 0), 0);
    ck_assert(!runs); /* a fork may follow */
    kv_mem_sample();
    ck_assert_int_eq(mallctl("background_thread", &runs, &len, NULL, 0), 0);
    ck_assert(runs);
    for (int i = 0; i < 1000; i++) {
        blocks[i] = kv_mem_alloc(40000, KV_MEM_VALUE);
        memset(blocks[i], i, 40000);
    }
    for (int i = 0; i < 1000; i++)
        kv_mem_free(blocks[i], 40000, KV_MEM_VALUE);
    mallctl("thread.tcache.flush", NULL, NULL, NULL, 0);
    do {
        usleep(10000);
        kv_large_totals(&totals);
    } while (totals.resident > 20000000); /* the suite's time limit ends a vain wait */
}
END_TEST

enum { LARGE_BLOCKS = 6000, LARGE_SIZE = 6000, LARGE_THREADS = 4 };
static void *large_blocks[LARGE_THREADS][LARGE_BLOCKS];

static void *make_large(void *arg)
{
    void **blocks = arg;
    for (int i = 0; i < LARGE_BLOCKS; i++) {
        blocks[i] = kv_mem_alloc(LARGE_SIZE, KV_MEM_VALUE);
        memset(blocks[i], i, LARGE_SIZE);
    }
    return NULL;
}

static unsigned move_large(void)
{
    unsigned moved = 0;
    for (int i = 0; i < LARGE_THREADS * LARGE_BLOCKS; i++) {
        void **block = &large_blocks[i / LARGE_BLOCKS][i % LARGE_BLOCKS];
        if (*block == NULL || !kv_mem_evacuates(*block, LARGE_SIZE))
            continue;
        *block = kv_mem_try_move(*block, LARGE_SIZE, KV_MEM_VALUE);
        ck_assert_ptr_nonnull(*block);
        moved++;
    }
    return moved;
}

/* Blocks of the allocator below, which has an arena per thread here. Once they lie densely there is
 * nothing left to move: no block goes round in circles. */
START_TEST(large_blocks_are_moved_until_they_are_dense)
{
    struct kv_random r;
    struct large_totals before, after;
    pthread_t threads[LARGE_THREADS];
    kv_random_init(&r, unit_seed("large_blocks_are_moved_until_they_are_dense"));
    kv_mem_init();
    for (int t = 0; t < LARGE_THREADS; t++)
        ck_assert_int_eq(pthread_create(&threads[t], NULL, make_large, large_blocks[t]), 0);
    for (int t = 0; t < LARGE_THREADS; t++)
        pthread_join(threads[t], NULL);
    for (int i = 0; i < LARGE_THREADS * LARGE_BLOCKS; i++) {
        void **block = &large_blocks[i / LARGE_BLOCKS][i % LARGE_BLOCKS];
        if (kv_random_below(&r, 4) != 0) {
            kv_mem_free(*block, LARGE_SIZE, KV_MEM_VALUE);
            *block = NULL;
        }
    }
    kv_large_totals(&before);
    unsigned rounds = 0;
    ck_assert_uint_gt(kv_large_evacuation_begin(), 0);
    while (move_large() > 0)
        ck_assert_uint_lt(++rounds, 4);
    kv_large_evacuation_end();
    kv_large_totals(&after);
    ck_assert_uint_gt(rounds, 0);
    ck_assert_uint_gt(before.active, before.allocated * 5 / 4);
    ck_assert_uint_lt(after.active, after.allocated * 11 / 10);
    for (int i = 0; i < LARGE_BLOCKS; i++) {
        const uint8_t *bytes = large_blocks[1][i];
        if (bytes != NULL)
            ck_assert_uint_eq(bytes[LARGE_SIZE - 1], (uint8_t)i);
    }
}
END_TEST

#endif
#endif

int main(void)
{
    struct unit u;
    unit_begin(&u, "cache");
    unit_add(&u, totals_follow_allocations_to_the_byte);
    unit_add(&u, ended_threads_leave_their_totals);
    unit_add(&u, the_published_total_is_exact_within_its_bound);
#if MEM_SLABS
    unit_add(&u, a_repeated_burst_needs_no_slab);
    unit_add(&u, a_thread_caches_two_mebibytes_at_most);
    unit_add(&u, idle_blocks_leave_the_cache);
    unit_add(&u, an_evacuation_empties_the_cache);
    unit_add(&u, blocks_are_moved_with_their_content);
    unit_add(&u, blocks_that_are_only_freed_leave_the_cache);
    unit_add(&u, frees_alone_grow_no_deep_cache);
    unit_add(&u, every_class_has_a_burst_of_half_a_mebibyte);
    unit_add(&u, a_move_takes_the_whole_block_along);
    unit_add(&u, slabs_run_empty_under_writes);
    unit_add(&u, aligned_blocks_are_moved);
#if MEM_JEMALLOC
    unit_add(&u, blocks_of_whole_pages_are_counted_by_class);
    unit_add(&u, a_thread_of_jemalloc_returns_pages_after_the_first_sample);
    unit_add(&u, large_blocks_are_moved_until_they_are_dense);
#endif
#endif
    return unit_run(&u);
}
