/* INFO sections server, clients, cpu, replication, persistence and keyspace.
 *
 * Processor time comes from getrusage (whole process) and, for the main thread, from its stat file:
 * the thread that runs INFO need not be the main one, so RUSAGE_THREAD would lie.
 *
 * Snapshots and replication are not part of this version; their fields show what a server with both
 * switched off shows. The last save time is the start, as Redis has it before a first save.
 *
 * Threads: KV_MODE_STOP.
 */
#include "admin/info_priv.h"

#include "base/clock.h"
#include "base/version.h"
#include "engine/blocking.h"
#include "engine/snapshot.h"
#include "engine/tracking.h"
#include "persist/aof.h"
#include "persist/loading.h"
#include "persist/rewrite.h"
#include "persist/save.h"
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

static const char *supervisor(struct kv_engine *e)
{
    const struct kv_config *c = kv_config_of(e);
    static const char *const names[] = {"no", "auto", "systemd", "upstart"};
    return c == NULL ? "no" : names[kv_config_number(c, "supervised")];
}

static void write_listeners(const struct kv_options *o, struct kv_text *out)
{
    int number = 0;
    if (o->port != 0) {
        kv_text_printf(out, "listener%d:name=tcp", number++);
        for (uint32_t i = 0; i < o->bind_count; i++)
            kv_text_printf(out, ",bind=%s", o->bind[i]);
        kv_text_printf(out, ",port=%u\r\n", o->port);
    }
    if (o->unixsocket[0] != '\0')
        kv_text_printf(out, "listener%d:name=unix,bind=%s\r\n", number, o->unixsocket);
}

static void write_build(struct kv_engine *e, struct kv_text *out)
{
    struct utsname system;
    if (uname(&system) != 0)
        memset(&system, 0, sizeof(system));
    kv_text_printf(out,
                   "redis_version:%s\r\n"
                   "redis_git_sha1:00000000\r\n"
                   "redis_git_dirty:0\r\n"
                   "redis_build_id:0\r\n"
                   "redis_mode:standalone\r\n"
                   "server_name:kvik\r\n"
                   "kvik_version:%s\r\n"
                   "os:%s %s %s\r\n"
                   "arch_bits:%zu\r\n",
                   KV_REDIS_VERSION, KV_VERSION, system.sysname, system.release, system.machine,
                   sizeof(void *) * 8);
    kv_text_printf(out,
                   "monotonic_clock:%s\r\n"
                   "multiplexing_api:%s\r\n"
                   "atomicvar_api:c11-builtin\r\n"
                   "gcc_version:%d.%d.%d\r\n",
                   kv_clock_use_tsc ? "X86 TSC" : "POSIX clock_gettime", kv_engine_loop_name(e),
                   __GNUC__, __GNUC_MINOR__, __GNUC_PATCHLEVEL__);
}

void kv_info_server(struct kv_engine *e, struct kv_text *out)
{
    const struct kv_options *o = kv_engine_options(e);
    const struct kv_config *c = kv_config_of(e);
    int64_t now_us = kv_clock_wall_us();
    int64_t uptime = kv_engine_uptime_seconds(e);
    write_build(e, out);
    kv_text_printf(out,
                   "process_id:%ld\r\n"
                   "process_supervised:%s\r\n"
                   "run_id:%s\r\n"
                   "tcp_port:%u\r\n"
                   "server_time_usec:%lld\r\n"
                   "uptime_in_seconds:%lld\r\n"
                   "uptime_in_days:%lld\r\n",
                   (long)getpid(), supervisor(e), kv_info_facts.run_id, o->port, (long long)now_us,
                   (long long)uptime, (long long)(uptime / 86400));
    kv_text_printf(out,
                   "hz:%u\r\n"
                   "configured_hz:%u\r\n"
                   "lru_clock:%lld\r\n"
                   "executable:%s\r\n"
                   "config_file:%s\r\n"
                   "io_threads_active:0\r\n",
                   o->hz, o->hz, (long long)(now_us / 1000000 & 0xffffff), kv_info_facts.program,
                   c == NULL ? "" : kv_config_file_path(c));
    write_listeners(o, out);
}

struct client_counts {
    uint64_t watching; /* with a WATCH */
    uint64_t blocked;  /* waiting for a key, or for the end of CLIENT PAUSE */
    uint64_t timed;    /* waiting for a key, and not for ever */
};

static void count_client(struct kv_client *c, void *arg)
{
    struct client_counts *counts = arg;
    counts->watching += kv_client_watch_count(c) > 0;
    counts->blocked += (c->flags & (KV_CLIENT_PAUSED | KV_CLIENT_BLOCKED)) != 0;
    counts->timed += c->waiter != NULL && kv_waiter_has_deadline(c->waiter);
}

void kv_info_clients(struct kv_engine *e, struct kv_text *out)
{
    struct client_counts counts = {0};
    kv_engine_each_client(e, count_client, &counts);
    kv_text_printf(out,
                   "connected_clients:%llu\r\n"
                   "cluster_connections:0\r\n"
                   "maxclients:%u\r\n"
                   "client_recent_max_input_buffer:%llu\r\n"
                   "client_recent_max_output_buffer:%llu\r\n",
                   (unsigned long long)KV_ENGINE_STAT(e, clients), kv_engine_options(e)->maxclients,
                   (unsigned long long)KV_ENGINE_STAT(e, input_buffer_max),
                   (unsigned long long)KV_ENGINE_STAT(e, output_buffer_max));
    struct kv_tracking_counts tracking;
    kv_tracking_count(e, &tracking);
    kv_text_printf(out,
                   "blocked_clients:%llu\r\n"
                   "tracking_clients:%llu\r\n"
                   "pubsub_clients:%llu\r\n"
                   "watching_clients:%llu\r\n"
                   "clients_in_timeout_table:%llu\r\n"
                   "total_watched_keys:%llu\r\n"
                   "total_blocking_keys:%llu\r\n"
                   "total_blocking_keys_on_nokey:0\r\n",
                   (unsigned long long)counts.blocked, (unsigned long long)tracking.clients,
                   (unsigned long long)KV_ENGINE_STAT(e, pubsub_clients),
                   (unsigned long long)counts.watching, (unsigned long long)counts.timed,
                   (unsigned long long)kv_store_watched_keys(kv_engine_store(e)),
                   (unsigned long long)kv_store_waited_keys(kv_engine_store(e)));
}

/* User and system time of the main thread in seconds; false when /proc says nothing. */
static bool main_thread_times(double *user, double *system)
{
    char path[64], text[1024];
    snprintf(path, sizeof(path), "/proc/self/task/%ld/stat", (long)getpid());
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, text, sizeof(text) - 1);
    close(fd);
    if (len <= 0)
        return false;
    text[len] = '\0';
    /* The name in parentheses may hold anything; fields are counted behind its end. */
    const char *rest = strrchr(text, ')');
    unsigned long long user_ticks, system_ticks;
    if (rest == NULL || sscanf(rest + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %llu %llu",
                               &user_ticks, &system_ticks) != 2)
        return false;
    double per_second = (double)sysconf(_SC_CLK_TCK);
    *user = (double)user_ticks / per_second;
    *system = (double)system_ticks / per_second;
    return true;
}

static double seconds(struct timeval t)
{
    return (double)t.tv_sec + (double)t.tv_usec / 1e6;
}

void kv_info_cpu(struct kv_engine *e, struct kv_text *out)
{
    struct rusage self, children;
    double user, system;
    (void)e;
    getrusage(RUSAGE_SELF, &self);
    getrusage(RUSAGE_CHILDREN, &children);
    kv_text_printf(out,
                   "used_cpu_sys:%.6f\r\n"
                   "used_cpu_user:%.6f\r\n"
                   "used_cpu_sys_children:%.6f\r\n"
                   "used_cpu_user_children:%.6f\r\n",
                   seconds(self.ru_stime), seconds(self.ru_utime), seconds(children.ru_stime),
                   seconds(children.ru_utime));
    if (main_thread_times(&user, &system))
        kv_text_printf(out,
                       "used_cpu_sys_main_thread:%.6f\r\n"
                       "used_cpu_user_main_thread:%.6f\r\n",
                       system, user);
}

void kv_info_replication(struct kv_engine *e, struct kv_text *out)
{
    const struct kv_config *c = kv_config_of(e);
    kv_text_printf(out,
                   "role:master\r\n"
                   "connected_slaves:0\r\n"
                   "master_failover_state:no-failover\r\n"
                   "master_replid:%s\r\n"
                   "master_replid2:0000000000000000000000000000000000000000\r\n"
                   "master_repl_offset:0\r\n"
                   "second_repl_offset:-1\r\n"
                   "repl_backlog_active:0\r\n"
                   "repl_backlog_size:%lld\r\n"
                   "repl_backlog_first_byte_offset:0\r\n"
                   "repl_backlog_histlen:0\r\n",
                   kv_info_facts.replication_id,
                   c == NULL ? 0 : (long long)kv_config_number(c, "repl-backlog-size"));
}

static void write_log(const struct kv_aof_status *s, const struct kv_rewriter *r,
                      struct kv_text *out)
{
    kv_text_printf(out,
                   "aof_enabled:%d\r\n"
                   "aof_rewrite_in_progress:%d\r\n"
                   "aof_rewrite_scheduled:%d\r\n"
                   "aof_last_rewrite_time_sec:%lld\r\n"
                   "aof_current_rewrite_time_sec:%lld\r\n"
                   "aof_last_bgrewrite_status:%s\r\n"
                   "aof_rewrites:%llu\r\n"
                   "aof_rewrites_consecutive_failures:%llu\r\n"
                   "aof_last_write_status:%s\r\n"
                   "aof_last_cow_size:0\r\n",
                   s->enabled, r != NULL && kv_rewriter_going_on(r),
                   r != NULL && kv_rewriter_scheduled(r), (long long)s->last_rewrite_s,
                   (long long)s->current_rewrite_s, s->rewrite_ok ? "ok" : "err",
                   (unsigned long long)s->rewrites, (unsigned long long)s->rewrites_failed,
                   s->write_ok ? "ok" : "err");
}

static void write_log_sizes(const struct kv_aof_status *s, struct kv_text *out)
{
    kv_text_printf(out,
                   "aof_current_size:%llu\r\n"
                   "aof_base_size:%llu\r\n"
                   "aof_pending_rewrite:0\r\n"
                   "aof_buffer_length:%llu\r\n"
                   "aof_pending_bio_fsync:%llu\r\n"
                   "aof_delayed_fsync:%llu\r\n"
                   "aof_journal_in_use:%d\r\n",
                   (unsigned long long)s->current_bytes, (unsigned long long)s->base_bytes,
                   (unsigned long long)s->buffered_bytes, (unsigned long long)s->pending_sync,
                   (unsigned long long)s->delayed_syncs, s->journaled);
}

static void write_loading(const struct kv_loading_figures *f, struct kv_text *out)
{
    kv_text_printf(out,
                   "loading_start_time:%lld\r\n"
                   "loading_total_bytes:%llu\r\n"
                   "loading_rdb_used_mem:%llu\r\n"
                   "loading_loaded_bytes:%llu\r\n"
                   "loading_loaded_perc:%.2f\r\n"
                   "loading_eta_seconds:%lld\r\n",
                   (long long)f->start_s, (unsigned long long)f->total_bytes,
                   (unsigned long long)f->used_bytes, (unsigned long long)f->loaded_bytes,
                   f->percent, (long long)f->eta_s);
}

void kv_info_persistence(struct kv_engine *e, struct kv_text *out)
{
    struct kv_saver_figures f = {.last_good = true,
                                 .last_save = kv_info_facts.start_unix_seconds,
                                 .last_seconds = -1,
                                 .current_seconds = -1,
                                 .changes = KV_STORE_STAT(e, dirty)};
    struct kv_snapshot_figures snapshot;
    const struct kv_saver *saver = kv_engine_options(e)->saver;
    if (saver != NULL)
        kv_saver_figures(saver, &f);
    kv_engine_snapshot_figures(e, &snapshot);
    bool rdb = f.going_on && !f.aof_base;
    struct kv_loading_figures loading;
    bool loads = kv_loading_figures(kv_engine_options(e)->loading, &loading);
    kv_text_printf(out,
                   "loading:%d\r\n"
                   "async_loading:0\r\n"
                   "current_cow_peak:0\r\n"
                   "current_cow_size:0\r\n"
                   "current_cow_size_age:0\r\n"
                   "current_fork_perc:0.00\r\n"
                   "current_save_keys_processed:%llu\r\n"
                   "current_save_keys_total:%llu\r\n",
                   loads, f.going_on ? (unsigned long long)snapshot.keys_done : 0,
                   f.going_on ? (unsigned long long)snapshot.keys_total : 0);
    kv_text_printf(
        out,
        "rdb_changes_since_last_save:%llu\r\n"
        "rdb_bgsave_in_progress:%d\r\n"
        "rdb_last_save_time:%lld\r\n"
        "rdb_last_bgsave_status:%s\r\n"
        "rdb_last_bgsave_time_sec:%lld\r\n"
        "rdb_current_bgsave_time_sec:%lld\r\n"
        "rdb_saves:%llu\r\n"
        "rdb_last_cow_size:0\r\n"
        "rdb_last_load_keys_expired:%llu\r\n"
        "rdb_last_load_keys_loaded:%llu\r\n"
        "snapshot_buffer_bytes:%llu\r\n"
        "snapshot_buffer_peak_bytes:%llu\r\n"
        "snapshot_throttled_commands:%llu\r\n",
        (unsigned long long)f.changes, rdb, (long long)f.last_save, f.last_good ? "ok" : "err",
        (long long)f.last_seconds, rdb ? (long long)f.current_seconds : -1,
        (unsigned long long)f.saves, (unsigned long long)f.keys_expired,
        (unsigned long long)f.keys_loaded, (unsigned long long)snapshot.buffered_bytes,
        (unsigned long long)snapshot.buffered_max, (unsigned long long)snapshot.throttled);
    struct kv_aof_status aof = {
        .write_ok = true, .rewrite_ok = true, .last_rewrite_s = -1, .current_rewrite_s = -1};
    struct kv_aof *log = kv_aof_of(e);
    if (log != NULL)
        kv_aof_status(log, &aof);
    write_log(&aof, kv_engine_options(e)->rewriter, out);
    kv_info_fixed(out, "module_fork_in_progress:0\n"
                       "module_fork_last_cow_size:0\n");
    if (aof.enabled)
        write_log_sizes(&aof, out);
    if (loads)
        write_loading(&loading, out);
}

void kv_info_keyspace(struct kv_engine *e, struct kv_text *out)
{
    const struct kv_store *s = kv_engine_store(e);
    int64_t now_ms = kv_clock_wall_ms();
    for (uint32_t db = 0; db < kv_store_database_count(s); db++) {
        uint64_t keys = kv_store_size(s, db);
        if (keys == 0)
            continue;
        uint64_t expires = kv_store_expires(s, db);
        KV_ASSERT(expires <= keys);
        kv_text_printf(out, "db%u:keys=%llu,expires=%llu,avg_ttl=%lld,subexpiry=%llu\r\n", db,
                       (unsigned long long)keys, (unsigned long long)expires,
                       (long long)kv_store_average_ttl_ms(s, db, now_ms),
                       (unsigned long long)kv_store_member_expires(s, db));
    }
}
