/* Gathers the memory figures; no text is made here.
 *
 * One kv_mem_report is the source of all that can be taken from it, so that sums come out exactly:
 * counters of other threads move between two readings, and the background thread goes on even
 * while all workers stand. The databases' own counters are exact then, because only commands change
 * them.
 *
 * `detached` is a difference and not a counter: entries and values known to the memory layer less
 * those known to the databases. While the world stands no command is half way, so what is left is
 * what a flush has handed to the background thread.
 *
 * Threads: KV_MODE_STOP.
 */
#include "admin/memory.h"

#include "admin/info.h"
#include <stdio.h>

static void read_keyspace(const struct kv_store *store, struct kv_memory_figures *f)
{
    int64_t placed = 0;
    for (uint32_t db = 0; db < kv_store_database_count(store); db++) {
        struct kv_store_memory m;
        kv_store_memory(store, db, &m);
        for (int type = 0; type < KV_TYPE_COUNT; type++) {
            f->type_bytes[type] += m.type_bytes[type];
            placed += m.type_bytes[type];
        }
        f->slack += m.slack_bytes;
        f->keys += kv_store_size(store, db);
    }
    f->detached = f->report.used[KV_MEM_ENTRY] + f->report.used[KV_MEM_VALUE] - placed;
}

void kv_memory_figures_read(struct kv_engine *e, struct kv_memory_figures *f)
{
    *f = (struct kv_memory_figures){0};
    kv_mem_report_read(&f->report);
    kv_mem_system_read(&f->system);
    f->total = f->report.used_total;
    f->peak = KV_MAX((int64_t)kv_mem_peak(), f->total);
    f->startup = (int64_t)kv_info_startup_bytes();
    for (int owner = KV_MEM_ENTRY; owner <= KV_MEM_EXPIRY; owner++)
        f->dataset += f->report.used[owner];
    f->overhead = f->total - f->dataset;
    f->clients = (int64_t)kv_engine_client_bytes(e);
    read_keyspace(kv_engine_store(e), f);
}

void kv_memory_figures_each(const struct kv_memory_figures *f,
                            void (*visit)(void *arg, const char *name, int64_t value), void *arg)
{
    char name[48];
    const struct kv_mem_report *r = &f->report;
    for (int owner = 0; owner < KV_MEM_OWNER_COUNT; owner++) {
        snprintf(name, sizeof(name), "owner.%s", kv_mem_owner_name((enum kv_mem_owner)owner));
        visit(arg, name, r->used[owner]);
    }
    for (int type = 0; type < KV_TYPE_COUNT; type++) {
        snprintf(name, sizeof(name), "keyspace.%s", kv_type_name((enum kv_type)type));
        visit(arg, name, f->type_bytes[type]);
    }
    visit(arg, "keyspace.detached", f->detached);
    visit(arg, "keyspace.slack", f->slack);
    visit(arg, "slabs.used", (int64_t)r->small_bytes);
    visit(arg, "slabs.free", (int64_t)r->slab_free_bytes);
    visit(arg, "slabs.unused", (int64_t)r->slab_unused_bytes);
    visit(arg, "slabs.untouched", (int64_t)r->slab_untouched_bytes);
    visit(arg, "slabs.huge", (int64_t)r->huge_bytes);
    visit(arg, "slabs.count", (int64_t)r->slabs);
    visit(arg, "slabs.empty.count", (int64_t)r->slabs_empty);
    visit(arg, "slabs.chunk.count", (int64_t)r->chunks);
    visit(arg, "large.used", (int64_t)r->large_bytes);
    visit(arg, "large.overhead", (int64_t)r->large_overhead_bytes);
    visit(arg, "caches", (int64_t)r->cached_bytes);
    visit(arg, "metadata", (int64_t)r->metadata_bytes);
    visit(arg, "image", (int64_t)r->image_bytes);
    visit(arg, "accounted", (int64_t)r->accounted_bytes);
    visit(arg, "resident", (int64_t)r->rss_bytes);
}
