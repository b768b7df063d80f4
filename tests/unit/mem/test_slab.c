/* mem/slab.c, mem/chunk.c: blocks do not overlap, lies are noticed, memory comes back. */
#include "mem/mem_priv.h"
#include "unit.h"
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#if MEM_SLABS

#define BLOCKS 6000

static void *blocks[BLOCKS];

static unsigned class_with(size_t size)
{
    return kv_mem_class_formula(size);
}

static uint64_t live_bytes(void)
{
    struct slab_totals t;
    kv_slab_totals(&t);
    return t.live_bytes;
}

static int by_address(const void *a, const void *b)
{
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    return (x > y) - (x < y);
}

static void take_all(unsigned class_index, unsigned n)
{
    for (unsigned got = 0; got < n;)
        got += kv_slab_take(class_index, blocks + got, KV_MIN(n - got, 100u));
}

START_TEST(blocks_of_every_class_are_apart)
{
    kv_mem_init();
    for (unsigned class_index = 0; class_index < KV_MEM_CLASS_COUNT; class_index++) {
        size_t size = kv_mem_class_bytes[class_index];
        uint64_t before = live_bytes();
        take_all(class_index, BLOCKS);
        for (unsigned i = 0; i < BLOCKS; i++)
            memset(blocks[i], (int)i, size);
        ck_assert_uint_eq(live_bytes() - before, BLOCKS * size);
        qsort(blocks, BLOCKS, sizeof(*blocks), by_address);
        for (unsigned i = 0; i < BLOCKS; i++) {
            const char *block = blocks[i];
            if (i > 0 && block - (const char *)blocks[i - 1] < (ptrdiff_t)size)
                ck_abort_msg("blocks of %zu bytes overlap", size);
            ck_assert_uint_eq((uintptr_t)block % (size % 64 == 0   ? 64
                                                  : size % 16 == 0 ? 16
                                                                   : 8),
                              0);
            if (slab_of(block) != slab_of(block + size - 1))
                ck_abort_msg("a block of %zu bytes crosses a slab", size);
        }
        kv_slab_check();
        kv_slab_give(class_index, blocks, BLOCKS);
        ck_assert_uint_eq(live_bytes(), before);
    }
}
END_TEST

START_TEST(random_sequences_keep_every_block)
{
    enum { LIVE = 2000 };
    static struct {
        void *ptr;
        unsigned class_index;
        uint8_t fill;
    } live[LIVE];
    struct kv_random r;
    kv_random_init(&r, unit_seed("random_sequences_keep_every_block"));
    kv_mem_init();
    uint64_t start = live_bytes(), expected = 0;
    for (unsigned step = 0; step < UNIT_ROUNDS(300000); step++) {
        unsigned i = (unsigned)kv_random_below(&r, LIVE);
        if (live[i].ptr == NULL) {
            live[i].class_index = (unsigned)kv_random_below(&r, KV_MEM_CLASS_COUNT);
            live[i].fill = (uint8_t)kv_random_next(&r);
            ck_assert_uint_eq(kv_slab_take(live[i].class_index, &live[i].ptr, 1), 1);
            memset(live[i].ptr, live[i].fill, kv_mem_class_bytes[live[i].class_index]);
            expected += kv_mem_class_bytes[live[i].class_index];
        } else {
            const uint8_t *bytes = live[i].ptr;
            size_t size = kv_mem_class_bytes[live[i].class_index];
            ck_assert_uint_eq(bytes[0], live[i].fill);
            ck_assert_uint_eq(bytes[size - 1], live[i].fill);
            kv_slab_give(live[i].class_index, &live[i].ptr, 1);
            live[i].ptr = NULL;
            expected -= size;
        }
        if (step % 5000 == 0) {
            kv_slab_check();
            kv_chunk_sample((uint32_t)kv_random_below(&r, 3));
            ck_assert_uint_eq(live_bytes(), start + expected);
        }
    }
}
END_TEST

START_TEST(chunks_are_counted_right_when_all_is_free_again)
{
    struct kv_random r;
    struct chunk_totals t;
    kv_random_init(&r, unit_seed("chunks_are_counted_right_when_all_is_free_again"));
    kv_mem_init();
    kv_mem_flush();
    for (int round = 0; round < 6; round++) {
        unsigned class_index = class_with(1 + (size_t)kv_random_below(&r, KV_MEM_SMALL_MAX));
        take_all(class_index, BLOCKS);
        for (unsigned i = 0; i < BLOCKS; i += 50) {
            kv_slab_give(class_index, blocks + i, 50);
            if (kv_random_below(&r, 10) == 0)
                kv_chunk_sample((uint32_t)kv_random_below(&r, 3));
        }
        for (int i = 0; i < 100; i++)
            kv_chunk_sample(1);
        kv_chunk_totals(&t);
        ck_assert_uint_eq(t.unused_bytes, 0);
        ck_assert_uint_eq(t.chunks, 1);
        ck_assert_uint_eq(t.slabs_empty, CHUNK_SLABS);
        ck_assert_uint_eq(t.huge_chunks, 0);
    }
}
END_TEST

static void *take_and_give(void *arg)
{
    unsigned class_index = class_with((size_t)(uintptr_t)arg);
    void *mine[16];
    for (unsigned round = 0; round < UNIT_ROUNDS(40000); round++) {
        unsigned got = kv_slab_take(class_index, mine, 1 + round % 16);
        if (round % 16 == 0)
            kv_slab_check(); /* no slab of a class is without a block in use */
        kv_slab_give(class_index, mine, got);
    }
    return NULL;
}

/* Two threads that find no free block at once fetch two slabs. */
START_TEST(no_slab_stays_behind_when_threads_race_for_them)
{
    pthread_t threads[4];
    struct slab_totals before, after;
    kv_mem_init();
    kv_mem_flush();
    kv_slab_totals(&before);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, take_and_give, (void *)KV_MEM_SMALL_MAX),
                         0);
    for (int i = 0; i < 4; i++)
        pthread_join(threads[i], NULL);
    kv_slab_check();
    kv_slab_totals(&after);
    ck_assert_uint_eq(after.live_bytes, before.live_bytes);
    ck_assert_uint_eq(after.slabs, before.slabs);
}
END_TEST

/* The flags of the mapping that an address lies in, as the kernel shows them. */
static bool mapping_has_flag(const void *address, const char *flag)
{
    char line[512];
    bool inside = false, found = false;
    FILE *f = fopen("/proc/self/smaps", "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        unsigned long first, end;
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
            inside = (uintptr_t)address >= first && (uintptr_t)address < end;
        else if (inside && strncmp(line, "VmFlags:", 8) == 0)
            found = strstr(line, flag) != NULL;
    }
    fclose(f);
    return found;
}

START_TEST(a_small_heap_refuses_huge_pages)
{
    kv_mem_init();
    take_all(class_with(64), 10);
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0)
        ck_assert(mapping_has_flag(blocks[0], " nh"));
}
END_TEST

START_TEST(batches_end_with_low_addresses)
{
    kv_mem_init();
    unsigned class_index = class_with(200);
    ck_assert_uint_eq(kv_slab_take(class_index, blocks, 50), 50);
    for (unsigned i = 1; i < 50; i++)
        ck_assert((char *)blocks[i] < (char *)blocks[i - 1]);
}
END_TEST

START_TEST(empty_slabs_give_their_pages_back_after_a_while)
{
    struct chunk_totals t;
    kv_mem_init();
    kv_mem_flush();
    kv_chunk_sample(0);
    kv_chunk_totals(&t);
    uint64_t empty_before = t.slabs_empty;
    take_all(class_with(1024), BLOCKS);
    for (unsigned i = 0; i < BLOCKS; i++)
        memset(blocks[i], 1, 1024);
    kv_slab_give(class_with(1024), blocks, BLOCKS);
    kv_chunk_totals(&t);
    ck_assert_uint_ge(t.unused_bytes, (uint64_t)BLOCKS * 1024);
    for (int i = 0; i < 3; i++)
        kv_chunk_sample(5);
    kv_chunk_totals(&t);
    ck_assert_uint_ge(t.unused_bytes, (uint64_t)BLOCKS * 1024); /* too young */
    for (int i = 0; i < 10; i++)
        kv_chunk_sample(5);
    kv_chunk_totals(&t);
    ck_assert_uint_eq(t.unused_bytes, 0);
    ck_assert_uint_le(t.slabs_empty, empty_before + CHUNK_SLABS);
    take_all(class_with(64), 3); /* what is left serves again */
    memset(blocks[0], 2, 64);
    kv_slab_give(class_with(64), blocks, 3);
}
END_TEST

START_TEST(evacuated_slabs_give_out_nothing_and_run_empty)
{
    struct kv_random r;
    struct slab_totals before, after;
    kv_random_init(&r, unit_seed("evacuated_slabs_give_out_nothing_and_run_empty"));
    kv_mem_init();
    unsigned class_index = class_with(144);
    take_all(class_index, BLOCKS);
    for (unsigned i = BLOCKS - 1; i > 0; i--) {
        unsigned j = (unsigned)kv_random_below(&r, i + 1);
        void *other = blocks[i];
        blocks[i] = blocks[j];
        blocks[j] = other;
    }
    unsigned kept = BLOCKS / 10;
    kv_slab_give(class_index, blocks + kept, BLOCKS - kept);
    for (unsigned i = 0; i < kept; i++)
        memset(blocks[i], (int)i, 144);
    kv_slab_totals(&before);
    for (int round = 0; round < 3; round++) {
        if (kv_slab_evacuation_begin() == 0)
            break;
        for (unsigned i = 0; i < kept; i++) {
            if (!(slab_of(blocks[i])->flags & SLAB_EVACUATES))
                continue;
            void *moved = kv_slab_take_dense(class_index);
            ck_assert_ptr_nonnull(moved);
            ck_assert(!(slab_of(moved)->flags & SLAB_EVACUATES));
            memcpy(moved, blocks[i], 144);
            kv_slab_give(class_index, &blocks[i], 1);
            blocks[i] = moved;
        }
        kv_slab_check();
        kv_slab_evacuation_end();
    }
    kv_slab_totals(&after);
    ck_assert_uint_eq(after.live_bytes, before.live_bytes);
    /* A tenth is left of 14 slabs: two hold it. */
    ck_assert_uint_le(after.slabs, before.slabs - 10);
    for (unsigned i = 0; i < kept; i++)
        ck_assert_uint_eq(*(uint8_t *)blocks[i], (uint8_t)i);
    kv_slab_give(class_index, blocks, kept);
}
END_TEST

START_TEST(full_heaps_are_not_evacuated)
{
    kv_mem_init();
    take_all(class_with(64), BLOCKS);
    take_all(class_with(512), BLOCKS);
    ck_assert_uint_eq(kv_slab_evacuation_begin(), 0);
    kv_slab_evacuation_end();
}
END_TEST

START_TEST(a_large_heap_asks_for_huge_pages)
{
    struct chunk_totals t;
    kv_mem_init();
    for (int i = 0; i < 10; i++)
        take_all(class_with(1024), BLOCKS); /* 60 MB of addresses, not written */
    kv_chunk_totals(&t);
    ck_assert_uint_ge(t.chunks, 28);
    if (access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0)
        ck_assert_uint_ge(t.huge_chunks, t.chunks - 17);
}
END_TEST

START_TEST(giving_twice_ends_the_process)
{
    void *block;
    kv_mem_init();
    kv_slab_take(class_with(40), blocks, 2);
    block = blocks[0];
    kv_slab_give(class_with(40), &block, 1);
    kv_slab_give(class_with(40), &block, 1);
}
END_TEST

START_TEST(giving_with_a_wrong_class_ends_the_process)
{
    kv_mem_init();
    kv_slab_take(class_with(40), blocks, 1);
    kv_slab_give(class_with(48), blocks, 1);
}
END_TEST

START_TEST(giving_an_inner_pointer_ends_the_process)
{
    kv_mem_init();
    kv_slab_take(class_with(40), blocks, 1);
    void *inner = (char *)blocks[0] + 8;
    kv_slab_give(class_with(40), &inner, 1);
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "slab");
    unit_add(&u, blocks_of_every_class_are_apart);
    unit_add(&u, random_sequences_keep_every_block);
    unit_add(&u, chunks_are_counted_right_when_all_is_free_again);
    unit_add(&u, no_slab_stays_behind_when_threads_race_for_them);
    unit_add(&u, a_small_heap_refuses_huge_pages);
    unit_add(&u, batches_end_with_low_addresses);
    unit_add(&u, empty_slabs_give_their_pages_back_after_a_while);
    unit_add(&u, evacuated_slabs_give_out_nothing_and_run_empty);
    unit_add(&u, full_heaps_are_not_evacuated);
    unit_add(&u, a_large_heap_asks_for_huge_pages);
    unit_add_abort(&u, giving_twice_ends_the_process);
    unit_add_abort(&u, giving_with_a_wrong_class_ends_the_process);
    unit_add_abort(&u, giving_an_inner_pointer_ends_the_process);
    return unit_run(&u);
}

#else

/* Here every block is the C library's; variants asan-own and tsan-own test slabs under sanitizers.
 */
START_TEST(small_blocks_are_the_c_librarys)
{
    kv_mem_init();
    ck_assert_str_eq(kv_mem_allocator_name(), "libc");
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "slab");
    unit_add(&u, small_blocks_are_the_c_librarys);
    return unit_run(&u);
}

#endif
