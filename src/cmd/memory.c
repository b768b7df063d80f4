/* The MEMORY family: USAGE, STATS, DOCTOR, PURGE, MALLOC-STATS, HELP.
 *
 * All numbers come from counting by construction (mem/mem.h): the sums of the owners' counters,
 * nothing is walked but the databases' own totals. What Redis calls
 *   total       is the sum of all blocks in use, as the memory layer counts them
 *   dataset     is the keyspace with its tables and indexes, as INFO shows it; Redis counts tables
 *               as overhead, but here they go with the last key
 *   overhead    is total minus dataset: clients, the change stream, the server's own
 *   startup     is what was in use when the server was ready
 * Fields without a counterpart here (replicas, scripts, cluster) are 0.
 *
 * USAGE is exact and does not sample: a value is one block, or one block and its large string, and
 * both know their size. SAMPLES is checked and otherwise ignored.
 *
 * DOCTOR looks at the same numbers and says in words what is unusual.
 *
 * Threads: STATS, DOCTOR, PURGE and MALLOC-STATS run in KV_MODE_STOP, so the numbers belong to one
 * moment; USAGE is a plain keyed command.
 */
#include "admin/info.h"
#include "base/assert.h"
#include "base/number.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "mem/mem.h"

#define DOCTOR_SMALL_BYTES (5 * 1024 * 1024) /* below, ratios mean nothing */
#define DOCTOR_CLIENT_BYTES (200 * 1024)     /* average of a connection that is too much */

void kv_cmd_memory_usage(struct kv_call *call)
{
    KV_ASSERT(call->key_count == 1);
    for (int i = 3; i < call->argc; i += 2) {
        int64_t samples;
        if (!kv_call_arg_is(call, i, "samples") || i + 1 == call->argc) {
            kv_call_syntax_error(call);
            return;
        }
        if (!kv_call_int(call, i + 1, &samples))
            return;
        if (samples < 0) {
            kv_call_syntax_error(call);
            return;
        }
    }
    const struct kv_entry *e = kv_store_peek(&call->view, &call->keys[0]);
    if (e == NULL)
        kv_reply_null(call->out);
    else
        kv_reply_int(call->out, (int64_t)kv_entry_memory(e));
}

/* --- the numbers --- */

struct figures {
    int64_t total, peak, startup, dataset, overhead, clients, stream, tables, expiry;
    uint64_t keys;
    struct kv_mem_system system;
};

static void figures_read(const struct kv_call *call, struct figures *f)
{
    const struct kv_store *store = call->view.store;
    *f = (struct figures){0};
    kv_mem_sample();
    kv_mem_system_read(&f->system);
    f->total = kv_mem_used_total();
    f->peak = (int64_t)kv_mem_peak();
    f->clients = kv_mem_used(KV_MEM_CLIENT) + kv_mem_used(KV_MEM_CLIENT_INPUT) +
                 kv_mem_used(KV_MEM_CLIENT_OUTPUT);
    f->stream = kv_mem_used(KV_MEM_STREAM);
    f->tables = kv_mem_used(KV_MEM_TABLE);
    f->expiry = kv_mem_used(KV_MEM_EXPIRY);
    f->startup = (int64_t)kv_info_startup_bytes();
    f->dataset = kv_mem_used_dataset();
    f->overhead = f->total - f->dataset;
    for (uint32_t db = 0; db < kv_store_database_count(store); db++)
        f->keys += kv_store_size(store, db);
}

static double ratio(double a, double b)
{
    return b == 0 ? 0 : a / b;
}

static void field_int(struct kv_call *call, const char *name, int64_t value)
{
    kv_reply_text(call->out, name);
    kv_reply_int(call->out, value);
}

static void field_double(struct kv_call *call, const char *name, double value)
{
    kv_reply_text(call->out, name);
    kv_reply_double(call->out, value);
}

/* One map per database that holds keys; returns how many. */
static size_t stats_databases(struct kv_call *call)
{
    const struct kv_store *store = call->view.store;
    size_t written = 0;
    for (uint32_t db = 0; db < kv_store_database_count(store); db++) {
        if (kv_store_size(store, db) == 0)
            continue;
        char digits[KV_INT_TEXT_MAX], name[KV_INT_TEXT_MAX + 3] = "db.";
        size_t len = kv_uint_print(db, digits);
        memcpy(name + 3, digits, len);
        kv_reply_bulk(call->out, name, len + 3);
        kv_reply_map(call->out, 2);
        field_int(call, "overhead.hashtable.main", (int64_t)kv_store_table_memory(store, db));
        field_int(call, "overhead.hashtable.expires", (int64_t)kv_store_expiry_memory(store, db));
        written++;
    }
    return written;
}

static size_t stats_sums(struct kv_call *call, const struct figures *f)
{
    int64_t net = KV_MAX(f->total - f->startup, (int64_t)0);
    field_int(call, "overhead.db.hashtable.lut", f->tables);
    field_int(call, "overhead.db.hashtable.rehashing", 0);
    field_int(call, "db.dict.rehashing.count", 0);
    field_int(call, "overhead.total", f->overhead);
    field_int(call, "keys.count", (int64_t)f->keys);
    field_int(call, "keys.bytes-per-key", f->keys == 0 ? 0 : net / (int64_t)f->keys);
    field_int(call, "dataset.bytes", f->dataset);
    field_double(call, "dataset.percentage", 100 * ratio((double)f->dataset, (double)net));
    field_double(call, "peak.percentage", 100 * ratio((double)f->total, (double)f->peak));
    return 9;
}

static size_t stats_allocator(struct kv_call *call, const struct figures *f)
{
    const struct kv_mem_system *s = &f->system;
    double allocated = (double)s->allocated, active = (double)s->active;
    double resident = (double)s->resident, rss = (double)s->rss;
    field_int(call, "allocator.allocated", (int64_t)s->allocated);
    field_int(call, "allocator.active", (int64_t)s->active);
    field_int(call, "allocator.resident", (int64_t)s->resident);
    field_int(call, "allocator.muzzy", 0);
    field_double(call, "allocator-fragmentation.ratio", ratio(active, allocated));
    field_int(call, "allocator-fragmentation.bytes", (int64_t)(s->active - s->allocated));
    field_double(call, "allocator-rss.ratio", ratio(resident, active));
    field_int(call, "allocator-rss.bytes", (int64_t)(s->resident - s->active));
    field_double(call, "rss-overhead.ratio", ratio(rss, resident));
    field_int(call, "rss-overhead.bytes", (int64_t)(s->rss - s->resident));
    field_double(call, "fragmentation", ratio(rss, (double)f->total));
    field_int(call, "fragmentation.bytes", (int64_t)s->rss - f->total);
    return 12;
}

void kv_cmd_memory_stats(struct kv_call *call)
{
    struct figures f;
    figures_read(call, &f);
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    field_int(call, "peak.allocated", f.peak);
    field_int(call, "total.allocated", f.total);
    field_int(call, "startup.allocated", f.startup);
    field_int(call, "replication.backlog", f.stream);
    field_int(call, "clients.slaves", 0);
    field_int(call, "clients.normal", f.clients);
    field_int(call, "cluster.links", 0);
    field_int(call, "aof.buffer", 0);
    field_int(call, "lua.caches", kv_mem_used(KV_MEM_SCRIPT));
    field_int(call, "functions.caches", 0);
    field_int(call, "script.VMs", 0);
    size_t pairs = 11 + stats_databases(call);
    pairs += stats_sums(call, &f);
    pairs += stats_allocator(call, &f);
    kv_reply_map_end(call->out, token, pairs);
}

/* --- DOCTOR --- */

static void doctor_findings(struct kv_call *call, const struct figures *f, struct kv_text *t)
{
    uint64_t clients = kv_engine_stat(call->engine, offsetof(struct kv_worker_stats, clients));
    double total = (double)f->total;
    const struct kv_mem_system *s = &f->system;
    if ((double)f->peak > 1.5 * total)
        kv_text_printf(t,
                       " * Peak: %.2f times as much was in use once. Pages kept since then make "
                       "the resident size look large; MEMORY PURGE gives them back.\n",
                       ratio((double)f->peak, total));
    if ((double)s->active > 1.1 * (double)s->allocated && s->active - s->allocated > (10u << 20))
        kv_text_printf(t,
                       " * Fragmentation: pages in use hold %.2f times the bytes in blocks. It "
                       "follows deletions of many keys and goes as new keys fill the gaps.\n",
                       ratio((double)s->active, (double)s->allocated));
    if ((double)s->rss > 1.5 * total && (int64_t)s->rss - f->total > (10 << 20))
        kv_text_printf(t,
                       " * Resident size: the process holds %.2f times the bytes in blocks. If "
                       "MEMORY PURGE does not help, look for huge pages of the system.\n",
                       ratio((double)s->rss, total));
    if (clients > 0 && f->clients / (int64_t)clients > DOCTOR_CLIENT_BYTES)
        kv_text_printf(t,
                       " * Clients: a connection holds %lld bytes on average. Clients that do not "
                       "read their replies show in CLIENT LIST by omem.\n",
                       (long long)(f->clients / (int64_t)clients));
}

void kv_cmd_memory_doctor(struct kv_call *call)
{
    struct figures f;
    struct kv_text findings = {0}, text = {0};
    figures_read(call, &f);
    if (f.total < DOCTOR_SMALL_BYTES) {
        kv_text_printf(&text, "Less than %d MB are in use: too little to judge.\n",
                       DOCTOR_SMALL_BYTES >> 20);
    } else {
        doctor_findings(call, &f, &findings);
        if (findings.len == 0 && !findings.failed)
            kv_text_printf(&text, "Nothing unusual found.\n");
        else
            kv_text_printf(&text, "Found in this server's memory:\n\n");
        text.failed |= findings.failed;
        kv_text_append(&text, kv_text_slice(&findings));
    }
    kv_text_release(&findings);
    kv_cmd_reply_text_take(&text, call);
}

/* --- PURGE, MALLOC-STATS, HELP --- */

void kv_cmd_memory_purge(struct kv_call *call)
{
    kv_mem_purge();
    kv_reply_ok(call->out);
}

static void malloc_stats_write(void *arg, const char *text)
{
    kv_text_append(arg, kv_slice_cstr(text));
}

void kv_cmd_memory_malloc_stats(struct kv_call *call)
{
    struct kv_text text = {0};
    kv_mem_malloc_stats(malloc_stats_write, &text);
    kv_cmd_reply_text_take(&text, call);
}

void kv_cmd_memory_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "DOCTOR",
        "    What is unusual about this server's memory, in words.",
        "MALLOC-STATS",
        "    The allocator's own statistics.",
        "PURGE",
        "    Give unused pages back to the system.",
        "STATS",
        "    What the memory is used for, in numbers.",
        "USAGE <key> [SAMPLES <count>]",
        "    Bytes that <key> and its value take. SAMPLES is accepted; the answer is exact.",
        NULL,
    };
    kv_call_help(call, lines);
}
