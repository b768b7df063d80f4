/* INFO section kvik_memory: where every byte is, in names of our own.
 *
 * Lines, in this order; docs/memory.md explains each for an operator:
 *   owner_*        blocks in use by owner; together used_memory
 *   keyspace_*     entries and values by type; memory_db<n> the same per database, with its tables
 *   slabs_*, large_*, caches, metadata, image   where resident memory is; accounted is their sum
 *   cache_<thread> what a thread's cache holds and did
 *
 * The section is not part of `default`: it takes locks of the memory layer and visits the
 * allocator's statistics, which a poll every second need not pay for.
 *
 * Threads: KV_MODE_STOP.
 */
#include "admin/caches.h"
#include "admin/info_priv.h"
#include "admin/memory.h"

/* "group.name" becomes group_name: INFO's readers split at other characters than MEMORY STATS'. */
static void write_figure(void *arg, const char *name, int64_t value)
{
    char line[64];
    size_t len = strlen(name);
    KV_ASSERT(len < sizeof(line));
    for (size_t i = 0; i <= len; i++)
        line[i] = name[i] == '.' ? '_' : name[i];
    kv_text_printf(arg, "%s:%lld\r\n", line, (long long)value);
}

static void write_databases(const struct kv_store *store, struct kv_text *out)
{
    for (uint32_t db = 0; db < kv_store_database_count(store); db++) {
        if (kv_store_size(store, db) == 0)
            continue;
        struct kv_store_memory m;
        kv_store_memory(store, db, &m);
        kv_text_printf(out, "memory_db%u:", db);
        for (int type = 0; type < KV_TYPE_COUNT; type++)
            kv_text_printf(out, "%s=%lld,", kv_type_name((enum kv_type)type),
                           (long long)m.type_bytes[type]);
        kv_text_printf(out, "slack=%lld,tables=%llu,expiry=%llu\r\n", (long long)m.slack_bytes,
                       (unsigned long long)kv_store_table_memory(store, db),
                       (unsigned long long)kv_store_expiry_memory(store, db));
    }
}

static void write_cache(void *arg, const struct kv_cache_sum *s)
{
    kv_text_printf(arg,
                   "cache_%s:depth_bytes=%llu,limit_bytes=%llu,hits=%llu,refills=%llu,"
                   "flushes=%llu\r\n",
                   s->thread, (unsigned long long)s->depth_bytes,
                   (unsigned long long)s->limit_bytes, (unsigned long long)s->hits,
                   (unsigned long long)s->refills, (unsigned long long)s->flushes);
}

void kv_info_kvik_memory(struct kv_engine *e, struct kv_text *out)
{
    struct kv_memory_figures f;
    struct kv_caches caches;
    kv_memory_figures_read(e, &f);
    kv_caches_read(&caches);
    kv_memory_figures_each(&f, write_figure, out);
    write_databases(kv_engine_store(e), out);
    kv_caches_each_thread(&caches, write_cache, out);
    kv_caches_release(&caches);
}
