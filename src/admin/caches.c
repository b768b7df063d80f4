/* Thread caches as rows: reading, sums by thread, a table.
 *
 * kv_mem_cache_each visits under the mutex that also guards the birth of a thread's counters, so
 * the visitor allocates nothing. Hence two visits: one counts rows, the second copies them into a
 * block that was allocated in between. A class that is used for the first time between the two
 * finds SPARE_ROWS of room, and is left out when even these are taken.
 *
 * The counters are read while their threads go on: each figure is true for a moment, but not all
 * for the same one. In KV_MODE_STOP only the background thread moves.
 *
 * Rejected: sums inside mem/ (a policy of printing there), and a fixed array of rows, which would
 * bound the number of threads.
 */
#include "admin/caches.h"

#include <stdio.h>
#include <string.h>

#define SPARE_ROWS 32u

static void count_row(void *arg, const char *thread, const struct kv_mem_cache_stats *stats)
{
    size_t *count = arg;
    (void)thread;
    (void)stats;
    ++*count;
}

static void copy_row(void *arg, const char *thread, const struct kv_mem_cache_stats *stats)
{
    struct kv_caches *c = arg;
    if (c->count == c->capacity)
        return;
    struct kv_cache_row *row = &c->rows[c->count++];
    snprintf(row->thread, sizeof(row->thread), "%s",
             thread != NULL && thread[0] != '\0' ? thread : "unnamed");
    row->stats = *stats;
}

void kv_caches_read(struct kv_caches *c)
{
    *c = (struct kv_caches){0};
    size_t count = 0;
    kv_mem_cache_each(count_row, &count);
    count += SPARE_ROWS;
    c->rows = kv_mem_try_alloc(count * sizeof(*c->rows), KV_MEM_OTHER);
    if (c->rows == NULL)
        return;
    c->capacity = count;
    kv_mem_cache_each(copy_row, c);
    KV_ASSERT(c->count <= c->capacity);
}

void kv_caches_release(struct kv_caches *c)
{
    kv_mem_free(c->rows, c->capacity * sizeof(*c->rows), KV_MEM_OTHER);
    *c = (struct kv_caches){0};
}

/* True when no row before `end` has the name of row `end`. */
static bool is_first_of_thread(const struct kv_caches *c, size_t end)
{
    for (size_t i = 0; i < end; i++)
        if (strcmp(c->rows[i].thread, c->rows[end].thread) == 0)
            return false;
    return true;
}

size_t kv_caches_each_thread(const struct kv_caches *c,
                             void (*visit)(void *arg, const struct kv_cache_sum *sum), void *arg)
{
    size_t threads = 0;
    for (size_t first = 0; first < c->count; first++) {
        if (!is_first_of_thread(c, first))
            continue;
        struct kv_cache_sum sum = {.thread = c->rows[first].thread};
        for (size_t i = first; i < c->count; i++) {
            const struct kv_mem_cache_stats *s = &c->rows[i].stats;
            if (strcmp(c->rows[i].thread, sum.thread) != 0)
                continue;
            sum.depth_bytes += (uint64_t)s->depth * s->block_size;
            sum.limit_bytes += (uint64_t)s->limit * s->block_size;
            sum.hits += s->hits;
            sum.refills += s->refills;
            sum.flushes += s->flushes;
        }
        visit(arg, &sum);
        threads++;
    }
    return threads;
}

void kv_caches_print(const struct kv_caches *c, struct kv_text *out)
{
    kv_text_printf(out, "Thread caches, by size of block:\n"
                        "thread            block     depth     limit             hits"
                        "      refills      flushes\n");
    for (size_t i = 0; i < c->count; i++) {
        const struct kv_mem_cache_stats *s = &c->rows[i].stats;
        kv_text_printf(out, "%-15s %7u %9u %9u %16llu %12llu %12llu\n", c->rows[i].thread,
                       s->block_size, s->depth, s->limit, (unsigned long long)s->hits,
                       (unsigned long long)s->refills, (unsigned long long)s->flushes);
    }
    kv_text_printf(out, "\n");
}
