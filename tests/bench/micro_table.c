/* Micro benchmark of the hash table: CPU ns per insertion, look-up (one by one, and in batches of
 * 16 with both prefetch stages) and removal, at several sizes, with items of 64 bytes as entries
 * are.
 *
 *     micro_table [items ...]      default: 100000 1000000
 *
 * Prints one line per size. Numbers of one run compare with each other, not with another machine's.
 */
#include "base/random.h"
#include "ds/table.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define BATCH 16
#define LOOK_UPS 2000000

struct item {
    uint64_t hash;
    uint64_t payload[7];
};

struct bench {
    struct kv_table table;
    struct item **items;
    uint64_t *order; /* hashes to look up, in random order */
    size_t count;
    uint64_t found;
};

static uint64_t hash_of(const void *item, void *arg)
{
    (void)arg;
    return ((const struct item *)item)->hash;
}

static bool same(const void *item, const void *key)
{
    return ((const struct item *)item)->hash == *(const uint64_t *)key;
}

/* CPU time of this thread, so that other load counts only through the caches. */
static uint64_t cpu_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static double ns_since(uint64_t start_ns, size_t operations)
{
    return (double)(cpu_ns() - start_ns) / (double)operations;
}

static double insert_all(struct bench *b)
{
    uint64_t start_ns = cpu_ns();
    for (size_t i = 0; i < b->count; i++) {
        if (kv_table_insert(&b->table, b->items[i]->hash, b->items[i]) != KV_OK)
            abort();
    }
    return ns_since(start_ns, b->count);
}

static double find_one_by_one(struct bench *b)
{
    uint64_t start_ns = cpu_ns();
    for (size_t i = 0; i < LOOK_UPS; i++) {
        struct item *item = kv_table_find(&b->table, b->order[i], same, &b->order[i]);
        b->found += item->payload[0];
    }
    return ns_since(start_ns, LOOK_UPS);
}

static double find_in_batches(struct bench *b)
{
    uint64_t start_ns = cpu_ns();
    for (size_t i = 0; i < LOOK_UPS; i += BATCH) {
        const uint64_t *hash = &b->order[i];
        for (size_t j = 0; j < BATCH; j++)
            kv_table_prefetch_bucket(&b->table, hash[j]);
        for (size_t j = 0; j < BATCH; j++)
            kv_table_prefetch_item(&b->table, hash[j]);
        for (size_t j = 0; j < BATCH; j++) {
            struct item *item = kv_table_find(&b->table, hash[j], same, &hash[j]);
            b->found += item->payload[0];
        }
    }
    return ns_since(start_ns, LOOK_UPS);
}

static double find_absent(struct bench *b)
{
    uint64_t start_ns = cpu_ns();
    for (size_t i = 0; i < LOOK_UPS; i++) {
        uint64_t hash = b->order[i] * UINT64_C(0x9e3779b97f4a7c15);
        b->found += kv_table_find(&b->table, hash, same, &hash) != NULL;
    }
    return ns_since(start_ns, LOOK_UPS);
}

static void count_item(void *item, void *arg)
{
    (void)item;
    ++*(uint64_t *)arg;
}

static double scan_all(struct bench *b)
{
    uint64_t start_ns = cpu_ns();
    for (uint64_t position = 0; position < KV_TABLE_POSITION_END;)
        position = kv_table_scan(&b->table, position, 10, count_item, &b->found);
    return ns_since(start_ns, b->count);
}

static double remove_all(struct bench *b)
{
    uint64_t start_ns = cpu_ns();
    for (size_t i = 0; i < b->count; i++)
        kv_table_remove(&b->table, b->items[i]->hash, b->items[i]);
    return ns_since(start_ns, b->count);
}

static void run(size_t count)
{
    struct bench b = {.count = count};
    struct kv_random random;
    kv_random_init(&random, 20240501);
    kv_table_init(&b.table, hash_of, NULL, KV_MEM_TABLE);
    b.items = kv_mem_alloc(count * sizeof *b.items, KV_MEM_OTHER);
    b.order = kv_mem_alloc(LOOK_UPS * sizeof *b.order, KV_MEM_OTHER);
    for (size_t i = 0; i < count; i++) {
        b.items[i] = kv_mem_zalloc(sizeof *b.items[i], KV_MEM_ENTRY);
        b.items[i]->hash = kv_random_next(&random);
    }
    for (size_t i = 0; i < LOOK_UPS; i++)
        b.order[i] = b.items[kv_random_below(&random, count)]->hash;
    double insert_ns = insert_all(&b);
    double bytes = (double)kv_table_memory(&b.table) / (double)count;
    double find_ns = find_one_by_one(&b);
    double batch_ns = find_in_batches(&b);
    double absent_ns = find_absent(&b);
    double scan_ns = scan_all(&b);
    double remove_ns = remove_all(&b);
    printf("%9zu items %5.2f bytes/item  insert %6.1f  find %6.1f  batched %6.1f  absent %6.1f  "
           "scan %6.1f  remove %6.1f ns  (%llu)\n",
           count, bytes, insert_ns, find_ns, batch_ns, absent_ns, scan_ns, remove_ns,
           (unsigned long long)b.found);
    for (size_t i = 0; i < count; i++)
        kv_mem_free(b.items[i], sizeof *b.items[i], KV_MEM_ENTRY);
    kv_mem_free(b.order, LOOK_UPS * sizeof *b.order, KV_MEM_OTHER);
    kv_mem_free(b.items, count * sizeof *b.items, KV_MEM_OTHER);
}

int main(int argc, char **argv)
{
    kv_mem_init();
    if (argc == 1) {
        run(100000);
        run(1000000);
    }
    for (int i = 1; i < argc; i++)
        run((size_t)strtoull(argv[i], NULL, 10));
    return 0;
}
