/* How a program uses kvmem: owners of its own, blocks handed from thread to thread, and a report.
 *
 *     orders [orders per producer]
 *
 * Two producers make orders, each a struct and a text in a block of its own, and put them into a
 * queue. One consumer takes them out, adds up and frees them: blocks are freed by another thread
 * than their maker, which needs nothing special. Every free names the size and the owner that the
 * allocation named; a struct's size is known to the compiler, a text's is kept beside it.
 *
 * A thread's counters may be below zero (the consumer frees what others were counted for); their
 * sums are exact. The program ends with status 1 unless every byte has come back.
 */
#include "kvmem.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What the program calls its owners: members of enum kv_mem_owner under names of its own. */
#define OWNER_ORDER KV_MEM_ENTRY
#define OWNER_TEXT KV_MEM_VALUE
#define OWNER_QUEUE KV_MEM_OTHER

#define PRODUCERS 2
#define QUEUE_LENGTH 256

struct order {
    unsigned long number;
    size_t text_bytes;
    char *text; /* a block of text_bytes */
};

struct queue {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct order *orders[QUEUE_LENGTH];
    unsigned first, count;
    unsigned producers; /* that are not done */
};

static struct queue *queue;
static unsigned long orders_per_producer = 100000;

static void put(struct order *order)
{
    pthread_mutex_lock(&queue->mutex);
    while (queue->count == QUEUE_LENGTH)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    queue->orders[(queue->first + queue->count++) % QUEUE_LENGTH] = order;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
}

/* NULL: the producers are done and nothing is left. */
static struct order *take(void)
{
    struct order *order = NULL;
    pthread_mutex_lock(&queue->mutex);
    while (queue->count == 0 && queue->producers > 0)
        pthread_cond_wait(&queue->changed, &queue->mutex);
    if (queue->count > 0) {
        order = queue->orders[queue->first];
        queue->first = (queue->first + 1) % QUEUE_LENGTH;
        queue->count--;
        pthread_cond_broadcast(&queue->changed);
    }
    pthread_mutex_unlock(&queue->mutex);
    return order;
}

static void print_cache(void *arg, const char *thread, const struct kv_mem_cache_stats *stats)
{
    (void)arg;
    if (stats->hits > 0)
        printf("  %-12s %5u bytes: %9llu hits %6llu refills %6llu flushes, %u of %u cached\n",
               thread, stats->block_size, (unsigned long long)stats->hits,
               (unsigned long long)stats->refills, (unsigned long long)stats->flushes, stats->depth,
               stats->limit);
}

static void print_report(const char *when)
{
    struct kv_mem_report report;
    kv_mem_report_read(&report);
    printf("%s: orders %lld, texts %lld, queue %lld bytes; free in caches %llu, in slabs %llu\n",
           when, (long long)report.used[OWNER_ORDER], (long long)report.used[OWNER_TEXT],
           (long long)report.used[OWNER_QUEUE], (unsigned long long)report.cached_bytes,
           (unsigned long long)report.slab_free_bytes);
    kv_mem_cache_each(print_cache, NULL);
}

static void *produce(void *arg)
{
    kv_mem_thread_name(arg);
    for (unsigned long i = 0; i < orders_per_producer; i++) {
        if (i == orders_per_producer / 2 && strcmp(arg, "producer-0") == 0)
            print_report("half made");
        struct order *order = kv_mem_alloc(sizeof(*order), OWNER_ORDER);
        order->number = i;
        /* As if a client decided the size: then a failure has to be survived. */
        order->text_bytes = 20 + i * 7 % 300;
        order->text = kv_mem_try_alloc(order->text_bytes, OWNER_TEXT);
        if (order->text == NULL) {
            kv_mem_free(order, sizeof(*order), OWNER_ORDER);
            continue;
        }
        snprintf(order->text, order->text_bytes, "order %lu", i);
        put(order);
    }
    pthread_mutex_lock(&queue->mutex);
    queue->producers--;
    pthread_cond_broadcast(&queue->changed);
    pthread_mutex_unlock(&queue->mutex);
    kv_mem_thread_exit();
    return NULL;
}

static void *consume(void *arg)
{
    unsigned long *consumed = arg;
    struct order *order;
    kv_mem_thread_name("consumer");
    while ((order = take()) != NULL) {
        kv_mem_free(order->text, order->text_bytes, OWNER_TEXT);
        kv_mem_free(order, sizeof(*order), OWNER_ORDER);
        /* About ten times a second in a real program: gives back what is idle. */
        if (++*consumed % 10000 == 0)
            kv_mem_trim();
    }
    kv_mem_thread_exit();
    return NULL;
}

int main(int argc, char **argv)
{
    static char names[PRODUCERS][16];
    pthread_t producers[PRODUCERS], consumer;
    unsigned long consumed = 0;

    if (argc > 1)
        orders_per_producer = strtoul(argv[1], NULL, 10);
    kv_mem_init();
    kv_mem_thread_name("main");
    int64_t before = kv_mem_used_total();
    queue = kv_mem_zalloc(sizeof(*queue), OWNER_QUEUE);
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->changed, NULL);
    queue->producers = PRODUCERS;
    pthread_create(&consumer, NULL, consume, &consumed);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        snprintf(names[i], sizeof(names[i]), "producer-%u", i);
        pthread_create(&producers[i], NULL, produce, names[i]);
    }
    for (unsigned i = 0; i < PRODUCERS; i++)
        pthread_join(producers[i], NULL);
    pthread_join(consumer, NULL);
    pthread_cond_destroy(&queue->changed);
    pthread_mutex_destroy(&queue->mutex);
    kv_mem_free(queue, sizeof(*queue), OWNER_QUEUE);
    print_report("all freed");
    kv_mem_purge();
    print_report("purged");
    printf("%lu orders consumed, %lld bytes left, allocator %s\n", consumed,
           (long long)(kv_mem_used_total() - before), kv_mem_allocator_name());
    return kv_mem_used_total() == before ? 0 : 1;
}
