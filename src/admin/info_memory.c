/* INFO section memory.
 *
 * used_memory is the sum of all blocks by whole block sizes (mem/mem.h); used_memory_dataset the
 * part of keyspace, tables and indexes, which is exact and returns to its start value when
 * everything is deleted. overhead is the rest. The fields allocator_* speak of both allocators
 * together, our slabs and the one below. Where something is unknown (sanitizer builds) ratios
 * show 0. What has no name in this section is in kvik_memory.
 *
 * Threads: KV_MODE_STOP.
 */
#include "admin/info_priv.h"

#include "admin/memory.h"
#include "base/number.h"
#include "script/function.h"
#include "script/script.h"
#include <unistd.h>

/* One figure in two lines: bytes, and rounded with a unit. */
static void write_bytes(struct kv_text *out, const char *name, uint64_t bytes)
{
    char human[64];
    kv_memory_print_human(bytes, human);
    kv_text_printf(out, "%s:%llu\r\n%s_human:%s\r\n", name, (unsigned long long)bytes, name, human);
}

static double ratio(uint64_t a, uint64_t b)
{
    return b == 0 ? 0 : (double)a / (double)b;
}

static long long difference(uint64_t a, uint64_t b)
{
    return (long long)a - (long long)b;
}

static uint64_t machine_memory(void)
{
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    return pages > 0 && page_bytes > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
}

static void write_use(struct kv_text *out, const struct kv_memory_figures *f)
{
    uint64_t used = (uint64_t)f->total, peak = (uint64_t)f->peak;
    uint64_t dataset = (uint64_t)f->dataset, startup = (uint64_t)f->startup;
    uint64_t net = used > startup ? used - startup : 0;
    write_bytes(out, "used_memory", used);
    write_bytes(out, "used_memory_rss", f->system.rss);
    write_bytes(out, "used_memory_peak", peak);
    kv_text_printf(out,
                   "used_memory_peak_perc:%.2f%%\r\n"
                   "used_memory_overhead:%llu\r\n"
                   "used_memory_startup:%llu\r\n"
                   "used_memory_dataset:%llu\r\n"
                   "used_memory_dataset_perc:%.2f%%\r\n",
                   ratio(used, peak) * 100, (unsigned long long)f->overhead,
                   (unsigned long long)startup, (unsigned long long)dataset,
                   ratio(KV_MIN(dataset, net), net) * 100);
}

static void write_allocator(struct kv_text *out, const struct kv_mem_system *s, uint64_t used)
{
    kv_text_printf(out,
                   "allocator_frag_ratio:%.2f\r\n"
                   "allocator_frag_bytes:%lld\r\n"
                   "allocator_rss_ratio:%.2f\r\n"
                   "allocator_rss_bytes:%lld\r\n",
                   ratio(s->active, s->allocated), difference(s->active, s->allocated),
                   ratio(s->resident, s->active), difference(s->resident, s->active));
    kv_text_printf(out,
                   "rss_overhead_ratio:%.2f\r\n"
                   "rss_overhead_bytes:%lld\r\n"
                   "mem_fragmentation_ratio:%.2f\r\n"
                   "mem_fragmentation_bytes:%lld\r\n",
                   ratio(s->rss, s->resident), difference(s->rss, s->resident), ratio(s->rss, used),
                   difference(s->rss, used));
}

static const char *policy(struct kv_engine *e)
{
    const struct kv_config *c = kv_config_of(e);
    if (c == NULL)
        return "noeviction";
    int index = kv_directive_find(KV_SLICE("maxmemory-policy"));
    KV_ASSERT(index >= 0);
    return kv_directives[index].names[kv_config_number(c, "maxmemory-policy")];
}

/* Functions have an interpreter of their own. */
static void write_scripts(struct kv_text *out, struct kv_engine *e)
{
    struct kv_script_figures f;
    struct kv_function_figures fn;
    kv_script_figures_read(e, &f);
    kv_function_figures_read(e, &fn);
    uint64_t vm_bytes = f.vm_bytes + fn.vm_bytes;
    write_bytes(out, "used_memory_lua", f.vm_bytes);
    kv_text_printf(out,
                   "used_memory_vm_eval:%llu\r\n"
                   "used_memory_scripts_eval:%llu\r\n"
                   "number_of_cached_scripts:%llu\r\n"
                   "number_of_functions:%llu\r\n"
                   "number_of_libraries:%llu\r\n"
                   "used_memory_vm_functions:%llu\r\n",
                   (unsigned long long)f.vm_bytes, (unsigned long long)f.cache_bytes,
                   (unsigned long long)f.scripts, (unsigned long long)fn.functions,
                   (unsigned long long)fn.libraries, (unsigned long long)fn.vm_bytes);
    write_bytes(out, "used_memory_vm_total", vm_bytes);
    kv_text_printf(out, "used_memory_functions:%llu\r\n", (unsigned long long)fn.cache_bytes);
    write_bytes(out, "used_memory_scripts", vm_bytes + f.cache_bytes + fn.cache_bytes);
}

void kv_info_memory(struct kv_engine *e, struct kv_text *out)
{
    struct kv_memory_figures f;
    kv_memory_figures_read(e, &f);
    write_use(out, &f);
    kv_text_printf(out,
                   "allocator_allocated:%llu\r\n"
                   "allocator_active:%llu\r\n"
                   "allocator_resident:%llu\r\n"
                   "allocator_muzzy:0\r\n",
                   (unsigned long long)f.system.allocated, (unsigned long long)f.system.active,
                   (unsigned long long)f.system.resident);
    write_bytes(out, "total_system_memory", machine_memory());
    write_scripts(out, e);
    write_bytes(out, "maxmemory", kv_engine_options(e)->maxmemory);
    kv_text_printf(out, "maxmemory_policy:%s\r\n", policy(e));
    write_allocator(out, &f.system, (uint64_t)f.total);
    kv_text_printf(out,
                   "mem_not_counted_for_evict:%lld\r\n"
                   "mem_replication_backlog:0\r\n"
                   "mem_total_replication_buffers:0\r\n"
                   "mem_replica_full_sync_buffer:0\r\n"
                   "mem_clients_slaves:0\r\n"
                   "mem_clients_normal:%llu\r\n"
                   "mem_cluster_links:0\r\n"
                   "mem_aof_buffer:0\r\n"
                   "mem_allocator:%s\r\n"
                   "mem_overhead_db_hashtable_rehashing:0\r\n"
                   "active_defrag_running:%u\r\n"
                   "lazyfree_pending_objects:%llu\r\n"
                   "lazyfreed_objects:%llu\r\n",
                   (long long)kv_mem_used(KV_MEM_STREAM),
                   (unsigned long long)kv_engine_client_bytes(e), kv_mem_allocator_name(),
                   kv_engine_defrag_effort(e), (unsigned long long)kv_engine_background_pending(e),
                   (unsigned long long)kv_engine_background_done(e));
}
