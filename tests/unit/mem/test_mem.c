/* mem/mem.h: exact accounting, sizes told at free, lies that abort, failing on purpose. */
#include "mem/mem.h"
#include "unit.h"
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#define BLOCKS 2000

struct block {
    void *ptr;
    size_t size;  /* as asked for */
    size_t align; /* 0: by kv_mem_alloc */
    enum kv_mem_owner owner;
    uint8_t fill;
};

static struct block blocks[BLOCKS];

static size_t some_size(struct kv_random *r)
{
    uint64_t limit = UINT64_C(1) << kv_random_below(r, 17);
    return (size_t)kv_random_below(r, limit + 1);
}

/* Any size that maps to the same block as `size`. */
static size_t told_size(struct kv_random *r, size_t size)
{
    size_t block = kv_mem_block_size(size);
    return size + (size_t)kv_random_below(r, block - size + 1);
}

static void check_fill(const struct block *b, size_t len)
{
    size_t same = 0; /* an assertion of Check per byte would take minutes */
    while (same < len && ((uint8_t *)b->ptr)[same] == b->fill)
        same++;
    ck_assert_uint_eq(same, len);
}

static void make_block(struct kv_random *r, struct block *b)
{
    b->size = some_size(r);
    b->owner = (enum kv_mem_owner)kv_random_below(r, KV_MEM_OWNER_COUNT);
    b->fill = (uint8_t)kv_random_next(r);
    b->align = 0;
    size_t usable = kv_mem_block_size(b->size);
    switch (kv_random_below(r, 6)) {
    case 0:
        b->ptr = kv_mem_zalloc(b->size, b->owner);
        b->fill = 0;
        check_fill(b, b->size);
        break;
    case 1:
        b->ptr = kv_mem_try_alloc_usable(b->size, b->owner, &usable);
        ck_assert_uint_eq(usable, kv_mem_block_size(b->size));
        break;
    case 2:
        b->align = (size_t)8 << kv_random_below(r, 10);
        b->ptr = kv_mem_alloc_aligned(b->size, b->align, b->owner);
        ck_assert_uint_eq((uintptr_t)b->ptr % b->align, 0);
        break;
    case 3:
        b->ptr = kv_mem_try_zalloc(b->size, b->owner);
        break;
    default:
        b->ptr = kv_mem_alloc(b->size, b->owner);
        break;
    }
    ck_assert_ptr_nonnull(b->ptr);
    memset(b->ptr, b->fill, b->size);
    if (b->align == 0) /* the whole block is ours */
        memset(b->ptr, b->fill, usable);
}

static void drop_block(struct kv_random *r, struct block *b)
{
    check_fill(b, b->size);
    if (b->align != 0)
        kv_mem_free_aligned(b->ptr, b->size, b->align, b->owner);
    else
        kv_mem_free(b->ptr, told_size(r, b->size), b->owner);
    b->ptr = NULL;
}

static void resize_block(struct kv_random *r, struct block *b)
{
    if (b->align != 0)
        return;
    size_t new_size = some_size(r);
    void *moved = kv_mem_realloc(b->ptr, told_size(r, b->size), new_size, b->owner);
    if (kv_mem_block_size(new_size) == kv_mem_block_size(b->size))
        ck_assert_ptr_eq(moved, b->ptr);
    b->ptr = moved;
    check_fill(b, KV_MIN(b->size, new_size));
    b->size = new_size;
    memset(b->ptr, b->fill, kv_mem_block_size(new_size));
}

/* Aligned blocks are counted with the class that holds the aligned size. */
static size_t counted(const struct block *b)
{
    if (b->align == 0)
        return kv_mem_block_size(b->size);
    return kv_mem_block_size((b->size + (b->size == 0) + b->align - 1) & ~(b->align - 1));
}

static void check_counters(void)
{
    int64_t expected[KV_MEM_OWNER_COUNT] = {0};
    int64_t total = 0;
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].ptr != NULL)
            expected[blocks[i].owner] += (int64_t)counted(&blocks[i]);
    }
    for (unsigned owner = 0; owner < KV_MEM_OWNER_COUNT; owner++) {
        ck_assert_int_eq(kv_mem_used((enum kv_mem_owner)owner), expected[owner]);
        total += expected[owner];
    }
    ck_assert_int_eq(kv_mem_used_total(), total);
    ck_assert_int_eq(kv_mem_used_dataset(), expected[KV_MEM_ENTRY] + expected[KV_MEM_VALUE] +
                                                expected[KV_MEM_TABLE] + expected[KV_MEM_EXPIRY]);
}

START_TEST(counters_are_exact_after_random_operations)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("counters_are_exact_after_random_operations"));
    kv_mem_init();
    ck_assert_int_eq(kv_mem_used_total(), 0);
    for (unsigned i = 0; i < UNIT_ROUNDS(60000); i++) {
        struct block *b = &blocks[kv_random_below(&r, BLOCKS)];
        if (b->ptr == NULL) {
            make_block(&r, b);
        } else if (kv_random_below(&r, 3) == 0) {
            resize_block(&r, b);
        } else if (b->align == 0 && kv_random_below(&r, 4) == 0) {
            enum kv_mem_owner to = (enum kv_mem_owner)kv_random_below(&r, KV_MEM_OWNER_COUNT);
            kv_mem_reattribute(b->ptr, b->size, b->owner, to);
            b->owner = to;
        } else {
            drop_block(&r, b);
        }
        if (i % 1000 == 0)
            check_counters();
    }
    check_counters();
    for (int i = 0; i < BLOCKS; i++) {
        if (blocks[i].ptr != NULL)
            drop_block(&r, &blocks[i]);
    }
    check_counters();
}
END_TEST

START_TEST(block_sizes_are_classes)
{
    ck_assert_uint_eq(kv_mem_block_size(0), 8);
    ck_assert_uint_eq(kv_mem_block_size(8), 8);
    ck_assert_uint_eq(kv_mem_block_size(9), 16);
    ck_assert_uint_eq(kv_mem_block_size(17), 24);
    ck_assert_uint_eq(kv_mem_block_size(129), 144);
    ck_assert_uint_eq(kv_mem_block_size(513), 576);
    ck_assert_uint_eq(kv_mem_block_size(1024), 1024);
    ck_assert_uint_eq(kv_mem_block_size(1025), 1152);
    ck_assert_uint_eq(kv_mem_block_size(4096), 4096);
    ck_assert_uint_eq(kv_mem_block_size(4097), 5120);
    size_t last = 8;
    for (size_t size = 1; size < 100000; size++) {
        size_t block = kv_mem_block_size(size);
        if (kv_mem_same_block(size, size - 1) != (block == kv_mem_block_size(size - 1)))
            ck_abort_msg("%zu and %zu bytes", size - 1, size);
        if (block < size || block < last || kv_mem_block_size(block) != block)
            ck_abort_msg("%zu bytes: block of %zu", size, block);
        last = block;
    }
}
END_TEST

START_TEST(freeing_nothing_does_nothing)
{
    kv_mem_init();
    kv_mem_free(NULL, 100, KV_MEM_OTHER);
    kv_mem_free_aligned(NULL, 100, 64, KV_MEM_OTHER);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(a_copied_string_is_terminated)
{
    kv_mem_init();
    char *copy = kv_mem_strdup("a\0b", 3, KV_MEM_CLIENT);
    ck_assert_int_eq(memcmp(copy, "a\0b", 4), 0);
    kv_mem_free(copy, 4, KV_MEM_CLIENT);
    copy = kv_mem_strdup(NULL, 0, KV_MEM_CLIENT);
    ck_assert_str_eq(copy, "");
    kv_mem_free(copy, 1, KV_MEM_CLIENT);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT), 0);
}
END_TEST

START_TEST(absurd_sizes_are_refused)
{
    kv_mem_init();
    size_t usable = 7;
    ck_assert_ptr_null(kv_mem_try_alloc(KV_MEM_SIZE_MAX + 1, KV_MEM_OTHER));
    ck_assert_ptr_null(kv_mem_try_zalloc(SIZE_MAX, KV_MEM_OTHER));
    ck_assert_ptr_null(kv_mem_try_alloc_usable(SIZE_MAX - 7, KV_MEM_OTHER, &usable));
    ck_assert_ptr_null(kv_mem_try_alloc_aligned(SIZE_MAX / 2, 64, KV_MEM_OTHER));
    ck_assert_uint_eq(usable, 7);
    char *p = kv_mem_alloc(100, KV_MEM_OTHER);
    p[99] = 'x';
    ck_assert_ptr_null(kv_mem_try_realloc(p, 100, SIZE_MAX, KV_MEM_OTHER));
    ck_assert_int_eq(p[99], 'x');
    kv_mem_free(p, 100, KV_MEM_OTHER);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(the_peak_is_what_was_sampled)
{
    kv_mem_init();
    void *p = kv_mem_alloc(1000000, KV_MEM_OTHER);
    kv_mem_sample();
    uint64_t peak = kv_mem_peak();
    ck_assert_uint_eq(peak, kv_mem_block_size(1000000));
    kv_mem_free(p, 1000000, KV_MEM_OTHER);
    kv_mem_sample();
    ck_assert_uint_eq(kv_mem_peak(), peak);
    kv_mem_peak_reset();
    ck_assert_uint_eq(kv_mem_peak(), 0);
}
END_TEST

static void swallow(void *arg, const char *text)
{
    *(size_t *)arg += strlen(text);
}

START_TEST(the_allocator_tells_about_itself)
{
    kv_mem_init();
    struct kv_mem_system told;
    size_t len = 0;
    void *p = kv_mem_alloc(3000000, KV_MEM_OTHER);
    kv_mem_system_read(&told);
    ck_assert_uint_ge(told.allocated, 3000000);
    ck_assert_uint_gt(told.rss, 100000);
    ck_assert_str_ne(kv_mem_allocator_name(), "");
    kv_mem_malloc_stats(swallow, &len);
    ck_assert_uint_gt(len, 10);
    kv_mem_free(p, 3000000, KV_MEM_OTHER);
    kv_mem_purge();
    for (unsigned owner = 0; owner < KV_MEM_OWNER_COUNT; owner++)
        ck_assert_uint_gt(strlen(kv_mem_owner_name((enum kv_mem_owner)owner)), 2);
}
END_TEST

/* --- threads --- */

#define THREADS 4
#define RING 512

/* Blocks travel from thread i to thread i + 1, which frees them. */
static _Atomic(void *) ring[THREADS][RING];

static size_t ring_size(unsigned slot)
{
    return 1 + slot * 7 % 600;
}

static void *make_and_pass(void *arg)
{
    unsigned self = (unsigned)(uintptr_t)arg;
    unsigned next = (self + 1) % THREADS;
    for (unsigned round = 0; round < 200; round++) {
        for (unsigned slot = 0; slot < RING; slot++) {
            void *mine = kv_mem_alloc(ring_size(slot), KV_MEM_STREAM);
            memset(mine, (int)self, ring_size(slot));
            void *old = atomic_exchange(&ring[next][slot], mine);
            kv_mem_free(old, ring_size(slot), KV_MEM_STREAM);
            void *got = atomic_exchange(&ring[self][slot], NULL);
            kv_mem_free(got, ring_size(slot), KV_MEM_STREAM);
        }
        if (round % 50 == 0)
            (void)kv_mem_used_total(); /* reading beside writers */
    }
    kv_mem_thread_exit();
    return NULL;
}

START_TEST(totals_of_ended_threads_are_kept)
{
    kv_mem_init();
    pthread_t threads[THREADS];
    for (unsigned i = 0; i < THREADS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, make_and_pass, (void *)(uintptr_t)i), 0);
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    int64_t expected = 0;
    for (unsigned i = 0; i < THREADS * RING; i++) {
        if (ring[i / RING][i % RING] != NULL)
            expected += (int64_t)kv_mem_block_size(ring_size(i % RING));
    }
    ck_assert_int_eq(kv_mem_used(KV_MEM_STREAM), expected);
    for (unsigned i = 0; i < THREADS * RING; i++)
        kv_mem_free(ring[i / RING][i % RING], ring_size(i % RING), KV_MEM_STREAM);
    ck_assert_int_eq(kv_mem_used_total(), 0);
    kv_mem_thread_exit();
    ck_assert_int_eq(kv_mem_used_total(), 0);
    kv_mem_free(kv_mem_alloc(1, KV_MEM_OTHER), 1, KV_MEM_OTHER); /* a new slot */
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

/* --- debug builds: failing on purpose, and lies --- */

#ifdef KV_DEBUG

START_TEST(a_chosen_try_allocation_fails_once)
{
    kv_mem_init();
    kv_mem_fail_try(2);
    void *first = kv_mem_try_alloc(10, KV_MEM_OTHER);
    void *forced = kv_mem_alloc(10, KV_MEM_OTHER); /* no try: never fails */
    void *second = kv_mem_try_alloc(10, KV_MEM_OTHER);
    void *third = kv_mem_try_alloc(10, KV_MEM_OTHER);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(second);
    ck_assert_ptr_nonnull(third);
    ck_assert_uint_eq(kv_mem_fail_try(1), 3);
    ck_assert_ptr_null(kv_mem_try_realloc(first, 10, 1000, KV_MEM_OTHER));
    ck_assert_uint_eq(kv_mem_fail_try(0), 1);
    ck_assert_int_eq(kv_mem_used_total(), 48);
    kv_mem_free(first, 10, KV_MEM_OTHER);
    kv_mem_free(forced, 10, KV_MEM_OTHER);
    kv_mem_free(third, 10, KV_MEM_OTHER);
}
END_TEST

START_TEST(a_size_of_another_class_aborts)
{
    kv_mem_init();
    kv_mem_free(kv_mem_alloc(100, KV_MEM_ENTRY), 90, KV_MEM_ENTRY);
}
END_TEST

START_TEST(nine_bytes_are_not_eight)
{
    kv_mem_init();
    kv_mem_free(kv_mem_alloc(8, KV_MEM_ENTRY), 9, KV_MEM_ENTRY);
}
END_TEST

START_TEST(another_owner_aborts)
{
    kv_mem_init();
    kv_mem_free(kv_mem_alloc(100, KV_MEM_ENTRY), 100, KV_MEM_VALUE);
}
END_TEST

#ifndef KV_MEM_SYSTEM /* where sanitizers report it themselves */
START_TEST(a_second_free_aborts)
{
    kv_mem_init();
    char *p = kv_mem_alloc(100, KV_MEM_ENTRY);
    kv_mem_free(p, 100, KV_MEM_ENTRY);
    kv_mem_free(p, 100, KV_MEM_ENTRY);
}
END_TEST
#endif

START_TEST(a_wrong_old_size_at_realloc_aborts)
{
    kv_mem_init();
    char *p = kv_mem_alloc(100, KV_MEM_ENTRY);
    p = kv_mem_realloc(p, 300, 500, KV_MEM_ENTRY);
    kv_mem_free(p, 500, KV_MEM_ENTRY);
}
END_TEST

START_TEST(a_write_before_the_block_aborts)
{
    kv_mem_init();
    char *p = kv_mem_alloc(100, KV_MEM_ENTRY);
    memset(p - 16, 'x', 16);
    kv_mem_free(p, 100, KV_MEM_ENTRY);
}
END_TEST

START_TEST(an_aligned_block_freed_as_a_plain_one_aborts)
{
    kv_mem_init();
    kv_mem_free(kv_mem_alloc_aligned(128, 64, KV_MEM_TABLE), 128, KV_MEM_TABLE);
}
END_TEST

#endif

START_TEST(running_out_of_memory_aborts)
{
    kv_mem_init();
    kv_mem_free(kv_mem_alloc(SIZE_MAX, KV_MEM_ENTRY), 1, KV_MEM_ENTRY);
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "mem");
    unit_add(&u, counters_are_exact_after_random_operations);
    unit_add(&u, block_sizes_are_classes);
    unit_add(&u, freeing_nothing_does_nothing);
    unit_add(&u, a_copied_string_is_terminated);
    unit_add(&u, absurd_sizes_are_refused);
    unit_add(&u, the_peak_is_what_was_sampled);
    unit_add(&u, the_allocator_tells_about_itself);
    unit_add(&u, totals_of_ended_threads_are_kept);
#ifdef KV_DEBUG
    unit_add(&u, a_chosen_try_allocation_fails_once);
    unit_add_abort(&u, a_size_of_another_class_aborts);
    unit_add_abort(&u, nine_bytes_are_not_eight);
    unit_add_abort(&u, another_owner_aborts);
#ifndef KV_MEM_SYSTEM
    unit_add_abort(&u, a_second_free_aborts);
#endif
    unit_add_abort(&u, a_wrong_old_size_at_realloc_aborts);
    unit_add_abort(&u, a_write_before_the_block_aborts);
    unit_add_abort(&u, an_aligned_block_freed_as_a_plain_one_aborts);
#endif
    unit_add_abort(&u, running_out_of_memory_aborts);
    return unit_run(&u);
}
