/* engine/background.c: jobs run in order, and an idle thread keeps no memory back. */
#include "engine/background.h"
#include "mem/mem.h"
#include "unit.h"
#include <sched.h>
#include <string.h>

enum { JOBS = 20, BLOCKS = 300, SIZE = 72 };
static void *blocks[JOBS][BLOCKS];
static int ran[JOBS + 1];

static void free_blocks(void *arg)
{
    void **mine = arg;
    for (int i = 0; i < BLOCKS; i++)
        kv_mem_free(mine[i], SIZE, KV_MEM_VALUE);
    ran[++ran[0]] = (int)((void **)arg - blocks[0]) / BLOCKS;
}

static void wait_for_all(const struct kv_background *b)
{
    while (kv_background_done(b) != JOBS)
        sched_yield();
}

static void add_depth(void *arg, const char *thread, const struct kv_mem_cache_stats *stats)
{
    if (strcmp(thread, "background") == 0)
        *(uint64_t *)arg += stats->depth;
}

START_TEST(jobs_run_in_order_and_leave_nothing_in_the_cache)
{
    kv_mem_init();
    int64_t used = kv_mem_used_total();
    struct kv_background *b = kv_background_create();
    for (int job = 0; job < JOBS; job++)
        for (int i = 0; i < BLOCKS; i++)
            blocks[job][i] = kv_mem_alloc(SIZE, KV_MEM_VALUE);
    for (int job = 0; job < JOBS; job++)
        kv_background_submit(b, free_blocks, blocks[job]);
    wait_for_all(b);
    ck_assert_int_eq(ran[0], JOBS);
    for (int job = 0; job < JOBS; job++)
        ck_assert_int_eq(ran[job + 1], job);
    ck_assert_uint_eq(kv_background_pending(b), 0);
    uint64_t depth = 0;
    kv_mem_cache_each(add_depth, &depth);
    ck_assert_uint_eq(depth, 0);
    kv_background_destroy(b);
    ck_assert_int_eq(kv_mem_used_total(), used);
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "background");
    unit_add(&u, jobs_run_in_order_and_leave_nothing_in_the_cache);
    return unit_run(&u);
}
