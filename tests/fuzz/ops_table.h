/* Operations on a hash table and on a naive model, decoded from bytes: the harness of the fuzz
 * target and of the seeded tests. The model is an array of items; a scan runs beside the changes,
 * and every item that is there from its first call to its last must be visited exactly once, every
 * other at most once. kv_mem_init must have run. */
#ifndef KV_TESTS_FUZZ_OPS_TABLE_H
#define KV_TESTS_FUZZ_OPS_TABLE_H

#include "base/random.h"
#include "ds/table.h"
#include "fuzz/input.h"

#define TABLE_MODEL_MAX 40000 /* items */
#ifndef TABLE_MODEL_BATCH
#define TABLE_MODEL_BATCH 8 /* times 1 to 256 items in a large step */
#endif

struct table_item {
    uint64_t hash;
    uint32_t place;  /* in the model's array */
    uint32_t visits; /* by the scan that is running */
    bool whole;      /* was there when the scan began */
};

struct table_model {
    struct kv_table table;
    struct table_item *items[TABLE_MODEL_MAX];
    uint32_t count;
    struct kv_random random; /* fed from the input, for choices that need many bits */
    uint64_t scan_position;
    uint64_t scan_begin; /* position at which the running call began */
    unsigned hash_mode;
};

static uint64_t table_model_hash_of(const void *item, void *arg)
{
    (void)arg;
    return ((const struct table_item *)item)->hash;
}

static bool table_model_same(const void *item, const void *key)
{
    return item == key;
}

/* Hashes as they are, and ones that a broken hash function would give. */
static uint64_t table_model_make_hash(struct table_model *m)
{
    uint64_t bits = kv_random_next(&m->random);
    switch (m->hash_mode % 6) {
    case 1:
        return bits & UINT64_C(0xffff0000ffffffff); /* few directory bits */
    case 2:
        return bits & UINT64_C(0x0003ffffffffffff); /* four tags */
    case 3:
        return (bits & UINT64_C(0x00010001)) << 40; /* all but equal */
    case 4:
        return bits | UINT64_C(0xfff0000000000000); /* the last bucket, which wraps */
    default:
        return bits;
    }
}

static void table_model_insert(struct table_model *m, bool failing)
{
    if (m->count == TABLE_MODEL_MAX)
        return;
    struct table_item *item = kv_mem_alloc(sizeof *item, KV_MEM_OTHER);
    *item = (struct table_item){.hash = table_model_make_hash(m), .place = m->count};
    kv_mem_fail_try(failing ? 1 + kv_random_below(&m->random, 3) : 0);
    enum kv_err err = kv_table_insert(&m->table, item->hash, item);
    kv_mem_fail_try(0);
    KV_ASSERT(err == KV_OK || failing);
    if (err == KV_OK)
        m->items[m->count++] = item;
    else
        kv_mem_free(item, sizeof *item, KV_MEM_OTHER);
}

static void table_model_remove(struct table_model *m, uint32_t place)
{
    struct table_item *item = m->items[place];
    KV_ASSERT(kv_table_find(&m->table, item->hash, table_model_same, item) == item);
    kv_table_remove(&m->table, item->hash, item);
    KV_ASSERT(kv_table_find(&m->table, item->hash, table_model_same, item) == NULL);
    m->items[place] = m->items[--m->count];
    m->items[place]->place = place;
    kv_mem_free(item, sizeof *item, KV_MEM_OTHER);
}

static void table_model_replace(struct table_model *m, uint32_t place)
{
    struct table_item *old = m->items[place];
    struct table_item *moved = kv_mem_alloc(sizeof *moved, KV_MEM_OTHER);
    *moved = *old;
    kv_table_replace(&m->table, old->hash, old, moved);
    m->items[place] = moved;
    kv_mem_free(old, sizeof *old, KV_MEM_OTHER);
}

static bool table_model_is_it(void *item, void *arg)
{
    return item == arg;
}

static void table_model_look_up(struct table_model *m, uint32_t place)
{
    struct table_item *item = m->items[place];
    kv_table_prefetch_bucket(&m->table, item->hash);
    kv_table_prefetch_item(&m->table, item->hash);
    KV_ASSERT(kv_table_find(&m->table, item->hash, table_model_same, item) == item);
    uint64_t position = kv_table_position(item->hash);
    KV_ASSERT(position < KV_TABLE_POSITION_END);
    KV_ASSERT(kv_table_find_position(&m->table, position, table_model_is_it, item) == item);
    uint64_t other = kv_random_next(&m->random);
    KV_ASSERT(kv_table_find(&m->table, other, table_model_same, m) == NULL);
}

static void table_model_visit(void *visited, void *arg)
{
    struct table_model *m = arg;
    struct table_item *item = visited;
    KV_ASSERT(m->items[item->place] == item);
    KV_ASSERT(kv_table_position(item->hash) >= m->scan_begin);
    KV_ASSERT(++item->visits == 1);
}

static void table_model_scan_start(struct table_model *m)
{
    m->scan_position = 0;
    for (uint32_t i = 0; i < m->count; i++) {
        m->items[i]->visits = 0;
        m->items[i]->whole = true;
    }
}

static void table_model_scan_step(struct table_model *m, uint64_t count)
{
    m->scan_begin = m->scan_position;
    m->scan_position = kv_table_scan(&m->table, m->scan_position, count, table_model_visit, m);
    KV_ASSERT(m->scan_position > m->scan_begin);
    KV_ASSERT(m->scan_position <= KV_TABLE_POSITION_END);
    for (uint32_t i = 0; i < m->count; i++) {
        bool before = kv_table_position(m->items[i]->hash) < m->scan_position;
        KV_ASSERT(before || m->items[i]->visits == 0);
        KV_ASSERT(!before || !m->items[i]->whole || m->items[i]->visits == 1);
    }
    if (m->scan_position == KV_TABLE_POSITION_END)
        table_model_scan_start(m);
}

static void table_model_count_each(void *item, void *arg)
{
    (void)item;
    ++*(uint64_t *)arg;
}

static void table_model_check(struct table_model *m)
{
    kv_table_check(&m->table);
    KV_ASSERT(m->table.count == m->count);
    KV_ASSERT((size_t)kv_mem_used(KV_MEM_TABLE) == kv_table_memory(&m->table));
    uint64_t seen = 0;
    kv_table_each(&m->table, table_model_count_each, &seen);
    KV_ASSERT(seen == m->count);
    const struct table_item *item = kv_table_random(&m->table, &m->random);
    KV_ASSERT((item == NULL) == (m->count == 0));
    KV_ASSERT(item == NULL || m->items[item->place] == item);
}

static void table_model_step(struct table_model *m, struct input *in)
{
    uint8_t op = input_byte(in);
    uint32_t times = 1 + input_byte(in);
    switch (op % 16) {
    case 0:
    case 1:
        times *= TABLE_MODEL_BATCH;
        __attribute__((fallthrough));
    case 2:
    case 3:
        while (times-- > 0)
            table_model_insert(m, false);
        break;
    case 4:
        times *= TABLE_MODEL_BATCH;
        __attribute__((fallthrough));
    case 5:
    case 6:
        while (times-- > 0 && m->count > 0)
            table_model_remove(m, (uint32_t)kv_random_below(&m->random, m->count));
        break;
    case 7:
        while (times-- > 0 && m->count > 0)
            table_model_replace(m, (uint32_t)kv_random_below(&m->random, m->count));
        break;
    case 8:
        while (times-- > 0 && m->count > 0)
            table_model_look_up(m, (uint32_t)kv_random_below(&m->random, m->count));
        break;
    case 9:
        while (times-- > 0)
            table_model_insert(m, true);
        break;
    case 10:
        m->hash_mode = times;
        break;
    case 11:
        table_model_check(m);
        break;
    case 12:
        if (times > 240)
            while (m->count > 0)
                table_model_remove(m, m->count - 1);
        break;
    default:
        table_model_scan_step(m, times - 1);
        break;
    }
}

/* Runs what the bytes say and frees everything. */
static void table_model_run(struct input in)
{
    struct table_model *m = kv_mem_zalloc(sizeof *m, KV_MEM_OTHER);
    kv_table_init(&m->table, table_model_hash_of, NULL, KV_MEM_TABLE);
    kv_random_init(&m->random, input_number(&in, 2));
    while (input_more(&in))
        table_model_step(m, &in);
    table_model_check(m);
    while (m->count > 0) {
        table_model_remove(m, m->count - 1);
        if (m->count % 1024 == 0)
            kv_table_check(&m->table);
    }
    table_model_check(m);
    KV_ASSERT(m->table.directory == NULL);
    kv_table_release(&m->table);
    kv_mem_free(m, sizeof *m, KV_MEM_OTHER);
}

#endif
