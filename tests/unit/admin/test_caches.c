/* Thread caches as rows: the sums by thread are those of mem/'s report, and no memory for the
 * picture means an empty one. */
#include "admin/caches.h"

#include "unit.h"
#include <pthread.h>
#include <semaphore.h>
#include <string.h>

static struct kv_caches caches;

static void begin(void)
{
    kv_mem_thread_name("unit");
    void *blocks[100];
    for (size_t i = 0; i < KV_ARRAY_LEN(blocks); i++)
        blocks[i] = kv_mem_alloc(8 + i * 9, KV_MEM_OTHER);
    for (size_t i = 0; i < KV_ARRAY_LEN(blocks); i++)
        kv_mem_free(blocks[i], 8 + i * 9, KV_MEM_OTHER);
}

static void end(void)
{
    kv_caches_release(&caches);
}

struct sums {
    uint64_t depth_bytes, hits;
    size_t threads, units;
};

static void add(void *arg, const struct kv_cache_sum *sum)
{
    struct sums *s = arg;
    ck_assert_uint_le(sum->depth_bytes, sum->limit_bytes);
    ck_assert_uint_le(sum->refills, sum->hits);
    s->depth_bytes += sum->depth_bytes;
    s->hits += sum->hits;
    s->threads++;
    s->units += strcmp(sum->thread, "unit") == 0;
}

/* True in builds whose threads have caches. */
static bool picture(struct sums *s)
{
    *s = (struct sums){0};
    kv_caches_read(&caches);
    ck_assert_uint_eq(kv_caches_each_thread(&caches, add, s), s->threads);
    return caches.count > 0;
}

START_TEST(the_sums_are_those_of_the_report)
{
    struct sums s;
    struct kv_mem_report report;
    if (!picture(&s))
        return;
    ck_assert_uint_eq(s.units, 1);
    ck_assert_uint_ge(s.hits, 100);
    kv_caches_release(&caches);
    picture(&s);
    kv_mem_report_read(&report);
    ck_assert_uint_eq(s.depth_bytes, report.cached_bytes);
}
END_TEST

static sem_t taken, seen;

static void *take_a_block(void *arg)
{
    (void)arg;
    kv_mem_thread_name("other");
    kv_mem_free(kv_mem_alloc(40, KV_MEM_OTHER), 40, KV_MEM_OTHER);
    sem_post(&taken);
    sem_wait(&seen);
    kv_mem_thread_exit();
    return NULL;
}

START_TEST(each_thread_is_visited_while_it_lives)
{
    struct sums alone, both, after;
    pthread_t thread;
    bool has_caches = picture(&alone);
    kv_caches_release(&caches);
    ck_assert_int_eq(sem_init(&taken, 0, 0), 0);
    ck_assert_int_eq(sem_init(&seen, 0, 0), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, take_a_block, NULL), 0);
    sem_wait(&taken);
    picture(&both);
    sem_post(&seen);
    pthread_join(thread, NULL);
    ck_assert_uint_eq(both.threads, alone.threads + has_caches);
    kv_caches_release(&caches);
    picture(&after);
    ck_assert_uint_eq(after.threads, alone.threads);
}
END_TEST

START_TEST(the_table_has_a_line_for_each_row)
{
    struct sums s;
    struct kv_text text = {0};
    picture(&s);
    kv_caches_print(&caches, &text);
    size_t lines = 0;
    for (size_t i = 0; i < text.len; i++)
        lines += text.bytes[i] == '\n';
    ck_assert_uint_eq(lines, caches.count + 3);
    kv_text_release(&text);
}
END_TEST

START_TEST(without_memory_the_picture_is_empty)
{
    struct sums s;
    kv_mem_fail_try(1);
    bool got = picture(&s);
    if (kv_mem_fail_try(0) == 0)
        return; /* a build without failures on purpose */
    ck_assert(!got);
    ck_assert_uint_eq(caches.count, 0);
    ck_assert_uint_eq(s.threads, 0);
}
END_TEST

int main(void)
{
    struct unit u;
    kv_mem_init();
    unit_begin(&u, "caches");
    unit_fixture(&u, begin, end);
    unit_add(&u, the_sums_are_those_of_the_report);
    unit_add(&u, each_thread_is_visited_while_it_lives);
    unit_add(&u, the_table_has_a_line_for_each_row);
    unit_add(&u, without_memory_the_picture_is_empty);
    return unit_run(&u);
}
