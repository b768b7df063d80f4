/* What the threads keep in their caches of freed blocks, as rows that can be printed: mem/mem.h
 * shows them only under a mutex, under which nothing may be allocated. */
#ifndef KV_ADMIN_CACHES_H
#define KV_ADMIN_CACHES_H

#include "admin/text.h"

#define KV_CACHE_THREAD_NAME 16 /* bytes of a thread's name, terminator included */

struct kv_cache_row {
    char thread[KV_CACHE_THREAD_NAME];
    struct kv_mem_cache_stats stats;
};

/* One thread, all classes. */
struct kv_cache_sum {
    const char *thread;
    uint64_t depth_bytes; /* cached now */
    uint64_t limit_bytes; /* most that may be cached now */
    uint64_t hits, refills, flushes;
};

struct kv_caches {
    struct kv_cache_row *rows; /* in the order of mem/; owned */
    size_t count;
    size_t capacity;
};

/* Takes a picture. Without memory for it, it is empty. Any thread. */
void kv_caches_read(struct kv_caches *c);
void kv_caches_release(struct kv_caches *c);

/* Visits the threads, each once by name; those that share a name are one. Returns how many. */
size_t kv_caches_each_thread(const struct kv_caches *c,
                             void (*visit)(void *arg, const struct kv_cache_sum *sum), void *arg);

/* Appends a table of all rows, for MEMORY MALLOC-STATS. */
void kv_caches_print(const struct kv_caches *c, struct kv_text *out);

#endif
