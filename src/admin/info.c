/* INFO: which sections, in which order, and the facts of the process.
 *
 * A section is a name and a function that appends its lines; the functions are in info_server.c
 * (server, clients, cpu, replication, persistence, keyspace), info_memory.c and info_stats.c
 * (stats, commandstats, errorstats, kvik), and info_kvik_memory.c. `default` leaves out the long
 * ones. The own sections stand before Cluster and Keyspace, since scripts expect Keyspace to come
 * last.
 *
 * Honesty: a field is here when its value is known. Features that this version lacks show the value
 * of a server that does not use them (aof_enabled:0). Counters that nobody counts are left out
 * rather than shown as 0 (total_reads_processed).
 *
 * Threads: KV_MODE_STOP; all workers stand, so per-worker state may be read.
 */
#include "admin/info_priv.h"

#include "base/clock.h"
#include "base/random.h"
#include <stdio.h>
#include <unistd.h>

struct kv_info_facts kv_info_facts = {
    .run_id = "0000000000000000000000000000000000000000",
    .replication_id = "0000000000000000000000000000000000000000",
};

enum section_flags {
    SECTION_DEFAULT = 1, /* part of `default` */
};

struct section {
    const char *name;  /* lower case */
    const char *title; /* as printed */
    uint32_t flags;    /* enum section_flags */
    void (*write)(struct kv_engine *e, struct kv_text *out);
};

static void write_nothing(struct kv_engine *e, struct kv_text *out)
{
    (void)e;
    (void)out;
}

static void write_cluster(struct kv_engine *e, struct kv_text *out)
{
    (void)e;
    kv_info_fixed(out, "cluster_enabled:0\n");
}

static const struct section sections[] = {
    {"server", "Server", SECTION_DEFAULT, kv_info_server},
    {"clients", "Clients", SECTION_DEFAULT, kv_info_clients},
    {"memory", "Memory", SECTION_DEFAULT, kv_info_memory},
    {"persistence", "Persistence", SECTION_DEFAULT, kv_info_persistence},
    {"stats", "Stats", SECTION_DEFAULT, kv_info_stats},
    {"replication", "Replication", SECTION_DEFAULT, kv_info_replication},
    {"cpu", "CPU", SECTION_DEFAULT, kv_info_cpu},
    {"modules", "Modules", SECTION_DEFAULT, write_nothing},
    {"commandstats", "Commandstats", 0, kv_info_commandstats},
    {"errorstats", "Errorstats", SECTION_DEFAULT, kv_info_errorstats},
    {"latencystats", "Latencystats", 0, kv_info_latencystats},
    {"kvik", "Kvik", SECTION_DEFAULT, kv_info_kvik},
    {"kvik_memory", "Kvik_memory", 0, kv_info_kvik_memory},
    {"cluster", "Cluster", SECTION_DEFAULT, write_cluster},
    {"keyspace", "Keyspace", SECTION_DEFAULT, kv_info_keyspace},
};

static void random_id(char out[KV_RUN_ID_LEN + 1])
{
    uint8_t bytes[KV_RUN_ID_LEN / 2];
    kv_random_secure(bytes, sizeof(bytes));
    for (size_t i = 0; i < sizeof(bytes); i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

void kv_info_init(const char *program)
{
    struct kv_info_facts *f = &kv_info_facts;
    random_id(f->run_id);
    random_id(f->replication_id);
    ssize_t len = readlink("/proc/self/exe", f->program, sizeof(f->program) - 1);
    if (len > 0)
        f->program[len] = '\0';
    else
        snprintf(f->program, sizeof(f->program), "%s", program);
    f->startup_memory = (uint64_t)kv_mem_used_total();
    f->start_unix_seconds = kv_clock_wall_ms() / 1000;
}

uint64_t kv_info_startup_bytes(void)
{
    return kv_info_facts.startup_memory;
}

void kv_info_fixed(struct kv_text *out, const char *lines)
{
    for (const char *end = strchr(lines, '\n'); end != NULL; end = strchr(lines, '\n')) {
        kv_text_append(out, kv_slice(lines, (size_t)(end - lines)));
        kv_text_append(out, KV_SLICE("\r\n"));
        lines = end + 1;
    }
    KV_ASSERT(*lines == '\0');
}

static bool is_wanted(const struct section *s, const struct kv_slice *names, int count)
{
    if (count == 0)
        return s->flags & SECTION_DEFAULT;
    for (int i = 0; i < count; i++) {
        if (kv_slice_is(names[i], s->name) || kv_slice_is(names[i], "all") ||
            kv_slice_is(names[i], "everything"))
            return true;
        if (s->flags & SECTION_DEFAULT && kv_slice_is(names[i], "default"))
            return true;
    }
    return false;
}

void kv_info_write(struct kv_engine *e, const struct kv_slice *names, int count,
                   struct kv_text *out)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(sections); i++) {
        if (!is_wanted(&sections[i], names, count))
            continue;
        kv_text_printf(out, "%s# %s\r\n", out->len > 0 ? "\r\n" : "", sections[i].title);
        sections[i].write(e, out);
    }
}
