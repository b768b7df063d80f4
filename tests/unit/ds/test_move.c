/* Walks that move blocks, over table and index: who is there throughout is met, whatever happens
 * between the calls; addresses change, content does not. */
#include "base/random.h"
#include "ds/table.h"
#include "ds/time_index.h"
#include "unit.h"
#include <string.h>

#define ITEMS_MAX 30000
#define LEAF_RECORDS 42

struct item {
    uint64_t hash;
    uint32_t number;
};

/* What the model knows of an item. */
struct place {
    struct item *item; /* NULL: not in the table */
    bool since_start;  /* was there when the walk began */
    bool met;
};

static struct place places[ITEMS_MAX];
static struct kv_table table;
static struct kv_random rng;

static uint64_t item_hash(const void *item, void *arg)
{
    (void)arg;
    return ((const struct item *)item)->hash;
}

static void put(uint32_t number, uint64_t hash)
{
    struct item *item = kv_mem_alloc(sizeof(*item), KV_MEM_ENTRY);
    *item = (struct item){hash, number};
    ck_assert_ptr_null(places[number].item);
    places[number] = (struct place){item, false, false};
    ck_assert_int_eq(kv_table_insert(&table, hash, item), KV_OK);
}

static void take(uint32_t number)
{
    struct item *item = places[number].item;
    kv_table_remove(&table, item->hash, item);
    kv_mem_free(item, sizeof(*item), KV_MEM_ENTRY);
    places[number].item = NULL;
}

/* Moves every second item that it meets, whatever the allocator thinks of its place. */
static void *move(void *arg_item, void *arg)
{
    struct item *item = arg_item;
    struct place *place = &places[item->number];
    uint64_t *moved = arg;
    ck_assert_ptr_eq(place->item, item);
    place->met = true;
    if (kv_random_next(&rng) & 1)
        return item;
    struct item *copy = kv_mem_alloc(sizeof(*copy), KV_MEM_ENTRY);
    *copy = *item;
    kv_mem_free(item, sizeof(*item), KV_MEM_ENTRY);
    place->item = copy;
    ++*moved;
    return copy;
}

static void start_walk(void)
{
    for (uint32_t i = 0; i < ITEMS_MAX; i++) {
        places[i].since_start = places[i].item != NULL;
        places[i].met = false;
    }
}

static void end_walk(void)
{
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        ck_assert(!places[i].since_start || places[i].item == NULL || places[i].met);
}

static void change_table(bool growing, uint32_t steps, uint64_t (*make_hash)(uint32_t number))
{
    for (uint32_t i = 0; i < steps; i++) {
        uint32_t number = (uint32_t)kv_random_below(&rng, ITEMS_MAX);
        bool add = kv_random_below(&rng, 10) < (growing ? 8 : 2);
        if (add && places[number].item == NULL)
            put(number, make_hash(number));
        else if (!add && places[number].item != NULL)
            take(number);
    }
}

static uint64_t random_hash(uint32_t number)
{
    (void)number;
    return kv_random_next(&rng);
}

/* Few directory bits and few tags: long runs of full buckets, wrapping, segments beyond 64. */
static uint64_t crowded_hash(uint32_t number)
{
    uint64_t hash = kv_random_next(&rng);
    uint64_t tag = kv_random_below(&rng, 4) == 0 ? 0xffff - number % 3 : hash >> 48;
    return tag << 48 | (hash & 0xffffffff) >> 3;
}

static void run_walks(uint64_t (*make_hash)(uint32_t number), unsigned rounds)
{
    struct kv_moves moves = {0};
    uint64_t moved = 0, cursor = 0;
    kv_table_init(&table, item_hash, NULL, KV_MEM_TABLE);
    change_table(true, ITEMS_MAX / 2, make_hash);
    start_walk();
    for (unsigned round = 0; round < rounds; round++) {
        bool growing = round / 300 % 2 == 0;
        uint32_t limit = (uint32_t)kv_random_below(&rng, 12) + 1;
        cursor = kv_table_move(&table, cursor, limit, move, &moved, &moves);
        if (round % 100 == 0)
            kv_table_check(&table);
        if (cursor == KV_TABLE_MOVE_END) {
            end_walk();
            start_walk();
            cursor = 0;
        }
        if (round % 5 == 0)
            change_table(growing, 300, make_hash);
    }
    kv_table_check(&table);
    ck_assert_uint_gt(moved, 100);
    ck_assert_uint_gt(moves.moved + moves.kept, 0);
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        if (places[i].item != NULL)
            take(i);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}

START_TEST(a_walk_meets_all_items_while_the_table_changes)
{
    kv_random_init(&rng, unit_seed("table moves"));
    kv_mem_init();
    run_walks(random_hash, UNIT_ROUNDS(6000));
}
END_TEST

START_TEST(a_walk_meets_all_items_of_crowded_segments)
{
    kv_random_init(&rng, unit_seed("crowded table moves"));
    kv_mem_init();
    run_walks(crowded_hash, UNIT_ROUNDS(1500));
}
END_TEST

/* A walk stands in the middle of a segment when that merges with its sibling. */
START_TEST(a_walk_meets_all_items_of_a_segment_that_merges)
{
    kv_mem_init();
    kv_random_init(&rng, unit_seed("merging moves"));
    for (unsigned stop = 1; stop < 60; stop++) {
        uint64_t moved = 0, cursor = 0;
        struct kv_moves moves = {0};
        uint32_t number = 0;
        kv_table_init(&table, item_hash, NULL, KV_MEM_TABLE);
        while (table.segment_count < 4)
            put(number++, kv_random_next(&rng));
        start_walk();
        for (unsigned i = 0; i < stop; i++)
            cursor = kv_table_move(&table, cursor, 1, move, &moved, &moves);
        for (uint32_t i = 0; table.segment_count > 2; i++)
            take(i);
        while (cursor != KV_TABLE_MOVE_END)
            cursor = kv_table_move(&table, cursor, 1, move, &moved, &moves);
        end_walk();
        for (uint32_t i = 0; i < number; i++)
            if (places[i].item != NULL)
                take(i);
    }
}
END_TEST

/* Walks that lose nothing but take their time: one call sees a bounded part of a table. */
START_TEST(a_call_is_bounded)
{
    kv_mem_init();
    kv_random_init(&rng, 5);
    kv_table_init(&table, item_hash, NULL, KV_MEM_TABLE);
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        put(i, kv_random_next(&rng));
    uint64_t moved = 0, cursor = 0, calls = 0;
    struct kv_moves moves = {0};
    do {
        cursor = kv_table_move(&table, cursor, 4, move, &moved, &moves);
        calls++;
    } while (cursor != KV_TABLE_MOVE_END);
    ck_assert_uint_gt(calls, ITEMS_MAX / KV_TABLE_SLOTS / 12);
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        ck_assert(places[i].met);
    ck_assert_uint_eq(table.count, ITEMS_MAX);
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        take(i);
}
END_TEST

START_TEST(an_empty_table_is_done_at_once)
{
    struct kv_moves moves = {0};
    kv_mem_init();
    kv_table_init(&table, item_hash, NULL, KV_MEM_TABLE);
    ck_assert_uint_eq(kv_table_move(&table, 0, 1, move, NULL, &moves), KV_TABLE_MOVE_END);
    ck_assert_uint_eq(moves.moved + moves.kept, 0);
}
END_TEST

#ifndef KV_MEM_SYSTEM

static void *keep(void *item, void *arg)
{
    (void)arg;
    return item;
}

static uint64_t walk_keeping_items(void)
{
    struct kv_moves moves = {0};
    uint64_t cursor = 0;
    do
        cursor = kv_table_move(&table, cursor, 100, keep, NULL, &moves);
    while (cursor != KV_TABLE_MOVE_END);
    return moves.moved;
}

/* Segments leave chosen slabs for good: none takes the place that another has just left. */
START_TEST(segments_move_once)
{
    enum { STEP = 200, SIZES = 64, EACH = 4 };
    static void *fillers[ITEMS_MAX / STEP][SIZES][EACH];
    kv_mem_init();
    kv_random_init(&rng, unit_seed("segments move"));
    kv_table_init(&table, item_hash, NULL, KV_MEM_TABLE);
    for (uint32_t i = 0; i < ITEMS_MAX; i++) {
        put(i, kv_random_next(&rng));
        for (size_t k = 0; k < SIZES * EACH && i % STEP == 0; k++)
            fillers[i / STEP][k / EACH][k % EACH] =
                kv_mem_alloc_aligned((k / EACH + 1) * 64, 64, KV_MEM_OTHER);
    }
    for (uint32_t i = 0; i < ITEMS_MAX / STEP; i++)
        for (size_t k = 0; k < SIZES * EACH; k++)
            kv_mem_free_aligned(fillers[i][k / EACH][k % EACH], (k / EACH + 1) * 64, 64,
                                KV_MEM_OTHER);
    ck_assert_uint_gt(kv_mem_evacuation_begin(), 0);
    ck_assert_uint_gt(walk_keeping_items(), 0);
    kv_table_check(&table);
    ck_assert_uint_eq(walk_keeping_items(), 0);
    kv_mem_evacuation_end();
    for (uint32_t i = 0; i < ITEMS_MAX; i++)
        take(i);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

#endif

/* Fills with other blocks and frees most of them, so that blocks of `size` lie in thin slabs. */
static void *make_holes(size_t size, bool keep_holes)
{
    enum { BLOCKS = 20000 };
    static void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS && keep_holes; i++)
        blocks[i] = kv_mem_alloc(size, KV_MEM_OTHER);
    for (int i = 0; i < BLOCKS && !keep_holes; i++)
        kv_mem_free(blocks[i], size, KV_MEM_OTHER);
    return blocks;
}

START_TEST(index_nodes_move_and_stay_in_order)
{
    enum { RECORDS = 200000 };
    static uint64_t when[RECORDS];
    struct kv_time_index x;
    struct kv_moves moves = {0};
    kv_random_init(&rng, unit_seed("index moves"));
    kv_mem_init();
    kv_time_index_init(&x, KV_MEM_EXPIRY);
    make_holes(512, true);
    for (uint32_t i = 0; i < RECORDS; i++) {
        when[i] = kv_random_below(&rng, 1u << 20);
        ck_assert_int_eq(kv_time_index_insert(&x, when[i], i), KV_OK);
    }
    make_holes(512, false);
    for (uint32_t i = 0; i < RECORDS; i++)
        if (i % 10 != 0)
            kv_time_index_remove(&x, when[i], i);
    (void)kv_mem_evacuation_begin();
    uint64_t at = 0, position = 0, calls = 0;
    unsigned __int128 sum = x.when_sum;
    int64_t used = kv_mem_used(KV_MEM_EXPIRY);
    bool more;
    do {
        more = kv_time_index_move_nodes(&x, &at, &position, &moves);
        if (calls++ % 50 == 0)
            kv_time_index_check(&x);
    } while (more);
    kv_mem_evacuation_end();
    kv_time_index_check(&x);
    ck_assert(sum == x.when_sum);
    ck_assert_int_eq(kv_mem_used(KV_MEM_EXPIRY), used);
    ck_assert_uint_ge(calls, RECORDS / 10 / LEAF_RECORDS);
    ck_assert_uint_ge(moves.moved + moves.kept, calls);
    ck_assert_uint_gt(moves.moved, 0);
    for (uint32_t i = 0; i < RECORDS; i += 10)
        kv_time_index_remove(&x, when[i], i);
    ck_assert_int_eq(kv_mem_used(KV_MEM_EXPIRY), 0);
}
END_TEST

START_TEST(an_index_walk_goes_on_while_records_come_and_go)
{
    enum { RECORDS = 20000 };
    static uint64_t when[RECORDS];
    struct kv_time_index x;
    struct kv_moves moves = {0};
    uint64_t at = 0, position = 0, walks = 0;
    kv_random_init(&rng, unit_seed("index moves while changing"));
    kv_mem_init();
    kv_time_index_init(&x, KV_MEM_EXPIRY);
    for (unsigned step = 0; step < UNIT_ROUNDS(200000); step++) {
        uint32_t i = (uint32_t)kv_random_below(&rng, RECORDS);
        uint64_t fresh = 1 + kv_random_below(&rng, 1u << 16);
        if (when[i] == 0) {
            ck_assert_int_eq(kv_time_index_insert(&x, fresh, i), KV_OK);
            when[i] = fresh;
        } else if (kv_random_next(&rng) & 1) {
            kv_time_index_remove(&x, when[i], i);
            when[i] = 0;
        } else {
            ck_assert_int_eq(kv_time_index_move(&x, when[i], fresh, i), KV_OK);
            when[i] = fresh;
        }
        if (step % 7 == 0 && !kv_time_index_move_nodes(&x, &at, &position, &moves)) {
            at = position = 0;
            walks++;
        }
        if (step % 20000 == 0)
            kv_time_index_check(&x);
    }
    kv_time_index_check(&x);
    ck_assert_uint_gt(walks, 2);
    kv_time_index_release(&x);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "move");
    unit_add(&u, a_walk_meets_all_items_while_the_table_changes);
    unit_add(&u, a_walk_meets_all_items_of_crowded_segments);
    unit_add(&u, a_walk_meets_all_items_of_a_segment_that_merges);
    unit_add(&u, a_call_is_bounded);
#ifndef KV_MEM_SYSTEM
    unit_add(&u, segments_move_once);
#endif
    unit_add(&u, an_empty_table_is_done_at_once);
    unit_add(&u, index_nodes_move_and_stay_in_order);
    unit_add(&u, an_index_walk_goes_on_while_records_come_and_go);
    return unit_run(&u);
}
