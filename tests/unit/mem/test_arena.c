/* mem/arena.h: what was given stays intact until reset, and the accounting is exact. */
#include "mem/arena.h"
#include "unit.h"
#include <string.h>

#define PIECES 300

static struct {
    uint8_t *ptr;
    size_t len;
    uint8_t fill;
} pieces[PIECES];

static void check_pieces(unsigned count)
{
    for (unsigned i = 0; i < count; i++) {
        size_t same = 0; /* an assertion of Check per byte would take minutes */
        while (same < pieces[i].len && pieces[i].ptr[same] == pieces[i].fill)
            same++;
        ck_assert_uint_eq(same, pieces[i].len);
    }
}

START_TEST(pieces_do_not_overlap)
{
    struct kv_random r;
    struct kv_arena a;
    kv_random_init(&r, unit_seed("pieces_do_not_overlap"));
    kv_mem_init();
    kv_arena_init(&a, 4096, KV_MEM_ARENA);
    ck_assert_int_eq(kv_mem_used_total(), 0);
    for (unsigned round = 0; round < 60; round++) {
        unsigned count = 1 + (unsigned)kv_random_below(&r, PIECES);
        for (unsigned i = 0; i < count; i++) {
            uint64_t limit = UINT64_C(1) << kv_random_below(&r, 15);
            pieces[i].len = (size_t)kv_random_below(&r, limit);
            pieces[i].fill = (uint8_t)kv_random_next(&r);
            pieces[i].ptr = i % 2 == 0 ? kv_arena_alloc(&a, pieces[i].len)
                                       : kv_arena_try_alloc(&a, pieces[i].len);
            ck_assert_ptr_nonnull(pieces[i].ptr);
            ck_assert_uint_eq((uintptr_t)pieces[i].ptr % 16, 0);
            memset(pieces[i].ptr, pieces[i].fill, pieces[i].len);
        }
        check_pieces(count);
        ck_assert_uint_eq((size_t)kv_mem_used(KV_MEM_ARENA), a.used_bytes);
        kv_arena_reset(&a);
        ck_assert_uint_le(a.used_bytes, 4096);
    }
    kv_arena_release(&a);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(nothing_is_something)
{
    struct kv_arena a;
    kv_mem_init();
    kv_arena_init(&a, 1024, KV_MEM_ARENA);
    void *first = kv_arena_alloc(&a, 0);
    void *second = kv_arena_try_alloc(&a, 0);
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_nonnull(second);
    ck_assert_ptr_ne(first, second);
    kv_arena_release(&a);
    kv_arena_reset(&a);
    ck_assert_ptr_nonnull(kv_arena_alloc(&a, 1)); /* usable again */
    kv_arena_release(&a);
}
END_TEST

START_TEST(absurd_sizes_are_refused)
{
    struct kv_arena a;
    kv_mem_init();
    kv_arena_init(&a, 1024, KV_MEM_ARENA);
    for (int round = 0; round < 2; round++) {
        ck_assert_ptr_null(kv_arena_try_alloc(&a, SIZE_MAX));
        ck_assert_ptr_null(kv_arena_try_alloc(&a, SIZE_MAX - 14));
        ck_assert_ptr_null(kv_arena_try_alloc(&a, SIZE_MAX / 2));
        ck_assert_ptr_null(kv_arena_try_alloc(&a, KV_MEM_SIZE_MAX));
        ck_assert_ptr_nonnull(kv_arena_try_alloc(&a, 10));
    }
    kv_arena_release(&a);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

#ifndef KV_MEM_SYSTEM /* where every piece is a block */
START_TEST(a_large_piece_leaves_the_chunk_in_use)
{
    struct kv_arena a;
    kv_mem_init();
    kv_arena_init(&a, 4096, KV_MEM_ARENA);
    char *before = kv_arena_alloc(&a, 16);
    (void)kv_arena_alloc(&a, 100000);
    char *after = kv_arena_alloc(&a, 16);
    ck_assert_ptr_eq(after, before + 16);
    ck_assert_uint_eq(a.used_bytes, 4096 + kv_mem_block_size(100016));
    kv_arena_reset(&a);
    ck_assert_uint_eq(a.used_bytes, 4096);
    ck_assert_ptr_eq(kv_arena_alloc(&a, 16), before);
    kv_arena_release(&a);
}
END_TEST
#endif

#ifdef KV_DEBUG
START_TEST(every_try_can_fail)
{
    struct kv_arena a;
    kv_mem_init();
    kv_arena_init(&a, 4096, KV_MEM_ARENA);
    (void)kv_arena_alloc(&a, 16);
    kv_mem_fail_try(2);
    void *first = kv_arena_try_alloc(&a, 16);
    ck_assert_ptr_nonnull(first);
    size_t used = a.used_bytes;
    ck_assert_ptr_null(kv_arena_try_alloc(&a, 16));
    ck_assert_ptr_nonnull(kv_arena_try_alloc(&a, 16));
    ck_assert_uint_eq(kv_mem_fail_try(1), 3);
    ck_assert_ptr_null(kv_arena_try_alloc(&a, 5000)); /* needs a chunk of its own */
    ck_assert_uint_eq(kv_mem_fail_try(0), 1);
    ck_assert_uint_ge(a.used_bytes, used);
    kv_arena_release(&a);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST
#endif

int main(void)
{
    struct unit u;

    unit_begin(&u, "arena");
    unit_add(&u, pieces_do_not_overlap);
    unit_add(&u, nothing_is_something);
    unit_add(&u, absurd_sizes_are_refused);
#ifndef KV_MEM_SYSTEM
    unit_add(&u, a_large_piece_leaves_the_chunk_in_use);
#endif
#ifdef KV_DEBUG
    unit_add(&u, every_try_can_fail);
#endif
    return unit_run(&u);
}
