/* The MEMORY family: USAGE, STATS, DOCTOR, PURGE, MALLOC-STATS, HELP.
 *
 * All numbers come from counting by construction: nothing is walked but the databases' own totals.
 * admin/memory.h gathers them and says what adds up to what; docs/memory.md says it to operators.
 *
 * STATS has Redis' fields first, in their order, then ours: per database and type, by owner, by
 * thread, and where resident memory is. Redis counts tables and indexes as overhead; here they
 * belong to the dataset, since they go with the last key. Fields without a counterpart here
 * (replicas, cluster) are 0.
 *
 * USAGE is exact and does not sample: a value is one block, or one block and its large string, and
 * both know their size. SAMPLES is checked and otherwise ignored.
 *
 * DOCTOR looks at the same numbers and says in words what is unusual, and what helps. A finding
 * needs both a share and an amount: shares of little memory mean nothing.
 *
 * Threads: STATS, DOCTOR, PURGE and MALLOC-STATS run in KV_MODE_STOP, so the numbers belong to one
 * moment; USAGE is a plain keyed command.
 */
#include "admin/memory.h"
#include "admin/caches.h"
#include "base/number.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/call.h"
#include "script/function.h"
#include "script/script.h"

#define DOCTOR_SMALL_BYTES (5 << 20)     /* below, nothing is judged */
#define DOCTOR_FINDING_BYTES (10 << 20)  /* less is no finding, whatever its share */
#define DOCTOR_CLIENT_BYTES (200 * 1024) /* average of a connection that is too much */

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

/* --- STATS --- */

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

static void stats_database(struct kv_call *call, const struct kv_store *store, uint32_t db)
{
    struct kv_store_memory m;
    kv_store_memory(store, db, &m);
    kv_reply_map(call->out, 3 + KV_TYPE_COUNT);
    field_int(call, "overhead.hashtable.main", (int64_t)kv_store_table_memory(store, db));
    field_int(call, "overhead.hashtable.expires", (int64_t)kv_store_expiry_memory(store, db));
    for (int type = 0; type < KV_TYPE_COUNT; type++)
        field_int(call, kv_type_name((enum kv_type)type), m.type_bytes[type]);
    field_int(call, "slack", m.slack_bytes);
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
        stats_database(call, store, db);
        written++;
    }
    return written;
}

static size_t stats_sums(struct kv_call *call, const struct kv_memory_figures *f)
{
    int64_t net = KV_MAX(f->total - f->startup, (int64_t)0);
    int64_t keys = (int64_t)f->keys;
    field_int(call, "overhead.db.hashtable.lut", f->report.used[KV_MEM_TABLE]);
    field_int(call, "overhead.db.hashtable.rehashing", 0);
    field_int(call, "db.dict.rehashing.count", 0);
    field_int(call, "overhead.total", f->overhead);
    field_int(call, "keys.count", keys);
    field_int(call, "keys.bytes-per-key", keys == 0 ? 0 : net / keys);
    field_int(call, "dataset.bytes", f->dataset);
    field_double(call, "dataset.percentage", 100 * ratio((double)f->dataset, (double)net));
    field_double(call, "peak.percentage", 100 * ratio((double)f->total, (double)f->peak));
    return 9;
}

static size_t stats_allocator(struct kv_call *call, const struct kv_memory_figures *f)
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

/* A reply that grows field by field. */
struct stats {
    struct kv_call *call;
    size_t pairs;
};

static void stats_figure(void *arg, const char *name, int64_t value)
{
    struct stats *s = arg;
    field_int(s->call, name, value);
    s->pairs++;
}

static void stats_cache(void *arg, const struct kv_cache_sum *sum)
{
    struct stats *s = arg;
    char name[KV_CACHE_THREAD_NAME + 6] = "cache.";
    memcpy(name + 6, sum->thread, strlen(sum->thread) + 1);
    kv_reply_text(s->call->out, name);
    kv_reply_map(s->call->out, 5);
    field_int(s->call, "depth.bytes", (int64_t)sum->depth_bytes);
    field_int(s->call, "limit.bytes", (int64_t)sum->limit_bytes);
    field_int(s->call, "hits", (int64_t)sum->hits);
    field_int(s->call, "refills", (int64_t)sum->refills);
    field_int(s->call, "flushes", (int64_t)sum->flushes);
    s->pairs++;
}

void kv_cmd_memory_stats(struct kv_call *call)
{
    struct kv_memory_figures f;
    struct kv_caches caches;
    struct stats s = {.call = call, .pairs = 11};
    struct kv_script_figures scripts;
    struct kv_function_figures functions;
    kv_memory_figures_read(call->engine, &f);
    kv_script_figures_read(call->engine, &scripts);
    kv_function_figures_read(call->engine, &functions);
    kv_caches_read(&caches);
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    field_int(call, "peak.allocated", f.peak);
    field_int(call, "total.allocated", f.total);
    field_int(call, "startup.allocated", f.startup);
    field_int(call, "replication.backlog", f.report.used[KV_MEM_STREAM]);
    field_int(call, "clients.slaves", 0);
    field_int(call, "clients.normal", f.clients);
    field_int(call, "cluster.links", 0);
    field_int(call, "aof.buffer", 0);
    field_int(call, "lua.caches", (int64_t)scripts.cache_bytes);
    field_int(call, "functions.caches", (int64_t)functions.cache_bytes);
    field_int(call, "script.VMs", (int64_t)(scripts.vm_bytes + functions.vm_bytes));
    s.pairs += stats_databases(call);
    s.pairs += stats_sums(call, &f);
    s.pairs += stats_allocator(call, &f);
    kv_memory_figures_each(&f, stats_figure, &s);
    kv_caches_each_thread(&caches, stats_cache, &s);
    kv_reply_map_end(call->out, token, s.pairs);
    kv_caches_release(&caches);
}

/* --- DOCTOR --- */

/* True when `part` is worth a word: that share of the whole, and an amount that matters. */
static bool is_much(int64_t part, int64_t whole, double share)
{
    return part > DOCTOR_FINDING_BYTES && (double)part > share * (double)whole;
}

static void finding_bytes(struct kv_text *t, const char *title, int64_t bytes, const char *text)
{
    char human[64];
    kv_memory_print_human((uint64_t)bytes, human);
    kv_text_printf(t, " * %s: %s. %s\n", title, human, text);
}

/* What blocks in use do not explain. */
static void doctor_allocators(const struct kv_memory_figures *f, struct kv_text *t)
{
    const struct kv_mem_report *r = &f->report;
    int64_t slab_gaps = (int64_t)(r->slab_free_bytes + r->slab_unused_bytes);
    int64_t large_gaps = (int64_t)r->large_overhead_bytes;
    int64_t unknown = (int64_t)r->rss_bytes - (int64_t)r->accounted_bytes;
    if (is_much(slab_gaps, (int64_t)r->small_bytes, 0.15))
        finding_bytes(t, "Gaps between small blocks", slab_gaps,
                      "They follow deletions of many keys and go as new keys of the same size "
                      "come; with activedefrag the server closes them by moving entries.");
    if (is_much(large_gaps, (int64_t)r->large_bytes, 0.25))
        finding_bytes(t, "Pages around large blocks", large_gaps,
                      "They are kept for the next large values; MEMORY PURGE gives back those "
                      "that are empty.");
    if (is_much((int64_t)r->cached_bytes, f->total, 0.05))
        finding_bytes(t, "Thread caches", (int64_t)r->cached_bytes,
                      "A thread that rests gives its cache back by itself within a second; INFO "
                      "kvik_memory tells which one does not.");
    if (r->accounted_bytes != 0 && is_much(unknown, (int64_t)r->rss_bytes, 0.1))
        finding_bytes(t, "Resident memory that no figure explains", unknown,
                      "Look for huge pages of the system or for memory that it has not taken "
                      "back yet.");
}

static void doctor_findings(struct kv_call *call, const struct kv_memory_figures *f,
                            struct kv_text *t)
{
    int64_t clients =
        (int64_t)kv_engine_stat(call->engine, offsetof(struct kv_worker_stats, clients));
    int64_t placed = f->report.used[KV_MEM_ENTRY] + f->report.used[KV_MEM_VALUE];
    if (is_much(f->peak - f->total, f->total, 0.5))
        kv_text_printf(t,
                       " * Peak: %.2f times as much was in use once. Pages kept since then make "
                       "the resident size look large; MEMORY PURGE gives them back.\n",
                       ratio((double)f->peak, (double)f->total));
    doctor_allocators(f, t);
    if (is_much(f->slack, placed, 0.25))
        finding_bytes(t, "Slack inside blocks", f->slack,
                      "Values lie in blocks that are larger than they need: strings that were "
                      "appended to, or sizes just above a step of the allocator.");
    if (is_much(f->detached, f->total, 0.05))
        finding_bytes(t, "Deleted and not freed yet", f->detached,
                      "The background thread is at work on a flush.");
    if (clients > 0 && f->clients / clients > DOCTOR_CLIENT_BYTES)
        kv_text_printf(t,
                       " * Clients: a connection holds %lld bytes on average. Clients that do not "
                       "read their replies show in CLIENT LIST by omem.\n",
                       (long long)(f->clients / clients));
}

void kv_cmd_memory_doctor(struct kv_call *call)
{
    struct kv_memory_figures f;
    struct kv_text findings = {0}, text = {0};
    kv_memory_figures_read(call->engine, &f);
    /* What is resident matters too: a server that was emptied may still be large. */
    if (KV_MAX(f.total, (int64_t)f.report.rss_bytes / 4) < DOCTOR_SMALL_BYTES) {
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
    kv_engine_purge(call->engine);
    kv_reply_ok(call->out);
}

static void malloc_stats_write(void *arg, const char *text)
{
    kv_text_append(arg, kv_slice_cstr(text));
}

void kv_cmd_memory_malloc_stats(struct kv_call *call)
{
    struct kv_text text = {0};
    struct kv_caches caches;
    kv_caches_read(&caches);
    kv_caches_print(&caches, &text);
    kv_caches_release(&caches);
    kv_mem_malloc_stats(malloc_stats_write, &text);
    kv_cmd_reply_text_take(&text, call);
}

void kv_cmd_memory_help(struct kv_call *call)
{
    static const char *const lines[] = {
        "DOCTOR",
        "    What is unusual about this server's memory, in words.",
        "MALLOC-STATS",
        "    The thread caches by size of block, and the allocator's own statistics.",
        "PURGE",
        "    Give unused memory back to the system, the thread caches included.",
        "STATS",
        "    What the memory is used for, in numbers.",
        "USAGE <key> [SAMPLES <count>]",
        "    Bytes that <key> and its value take. SAMPLES is accepted; the answer is exact.",
        NULL,
    };
    kv_call_help(call, lines);
}
