/* INFO sections stats, commandstats, latencystats, errorstats and kvik.
 *
 * All counters have one writer (a worker) and are summed here. Command statistics are listed in the
 * order of the table; only commands that were called, rejected or failed show.
 *
 * The section kvik is our own: how the workers shared the work and what waiting cost. hold_us_max
 * is the longest time for which commands held shard locks, slice_us_max the longest slice of expiry
 * work; both since the start or CONFIG RESETSTAT.
 *
 * Threads: KV_MODE_STOP.
 */
#include "admin/info_priv.h"
#include "engine/pubsub.h"
#include "engine/tracking.h"

#include "admin/words.h"
#include "base/number.h"
#include "engine/latency.h"
#include "mem/arena.h"
#include "script/script.h"

static void write_count(struct kv_text *out, const char *name, uint64_t value)
{
    kv_text_printf(out, "%s:%llu\r\n", name, (unsigned long long)value);
}

static void write_traffic(struct kv_engine *e, struct kv_text *out)
{
    double input_kbps = 0, output_kbps = 0;
    kv_engine_net_rates(e, &input_kbps, &output_kbps);
    write_count(out, "total_connections_received", KV_ENGINE_STAT(e, connections));
    write_count(out, "total_commands_processed", KV_ENGINE_STAT(e, commands));
    write_count(out, "instantaneous_ops_per_sec", kv_engine_ops_per_second(e));
    write_count(out, "total_net_input_bytes", KV_ENGINE_STAT(e, net_input_bytes));
    write_count(out, "total_net_output_bytes", KV_ENGINE_STAT(e, net_output_bytes));
    kv_text_printf(out,
                   "total_net_repl_input_bytes:0\r\n"
                   "total_net_repl_output_bytes:0\r\n"
                   "instantaneous_input_kbps:%.2f\r\n"
                   "instantaneous_output_kbps:%.2f\r\n"
                   "instantaneous_input_repl_kbps:0.00\r\n"
                   "instantaneous_output_repl_kbps:0.00\r\n",
                   input_kbps, output_kbps);
    write_count(out, "rejected_connections", KV_ENGINE_STAT(e, rejected_connections));
}

static void write_defrag(struct kv_engine *e, struct kv_text *out)
{
    uint64_t total_ms, current_ms;
    kv_engine_defrag_times(e, &total_ms, &current_ms);
    write_count(out, "active_defrag_hits", KV_STORE_STAT(e, defrag_hits));
    write_count(out, "active_defrag_misses", KV_STORE_STAT(e, defrag_misses));
    write_count(out, "active_defrag_key_hits", KV_STORE_STAT(e, defrag_key_hits));
    write_count(out, "active_defrag_key_misses", KV_STORE_STAT(e, defrag_key_misses));
    write_count(out, "total_active_defrag_time", total_ms);
    write_count(out, "current_active_defrag_time", current_ms);
}

void kv_info_stats(struct kv_engine *e, struct kv_text *out)
{
    write_traffic(e, out);
    kv_info_fixed(out, "sync_full:0\n"
                       "sync_partial_ok:0\n"
                       "sync_partial_err:0\n");
    write_count(out, "expired_subkeys", KV_STORE_STAT(e, expired_members));
    write_count(out, "expired_keys", KV_STORE_STAT(e, expired_keys));
    kv_info_fixed(out, "expired_stale_perc:0.00\n"
                       "expired_time_cap_reached_count:0\n");
    write_count(out, "expire_cycle_cpu_milliseconds", KV_ENGINE_STAT(e, expire_ns) / 1000000);
    write_count(out, "evicted_keys", KV_STORE_STAT(e, evicted_keys));
    write_count(out, "evicted_clients", KV_ENGINE_STAT(e, evicted_clients));
    struct kv_script_figures scripts;
    kv_script_figures_read(e, &scripts);
    write_count(out, "evicted_scripts", scripts.evicted);
    uint64_t exceeded_ms, exceeded_now_ms;
    kv_engine_exceeded_times(e, &exceeded_ms, &exceeded_now_ms);
    write_count(out, "total_eviction_exceeded_time", exceeded_ms);
    write_count(out, "current_eviction_exceeded_time", exceeded_now_ms);
    write_count(out, "keyspace_hits", KV_STORE_STAT(e, hits));
    write_count(out, "keyspace_misses", KV_STORE_STAT(e, misses));
    write_count(out, "pubsub_channels", kv_pubsub_channel_count(e, KV_CHANNEL_PLAIN));
    write_count(out, "pubsub_patterns", kv_pubsub_channel_count(e, KV_CHANNEL_PATTERN));
    write_count(out, "pubsubshard_channels", kv_pubsub_channel_count(e, KV_CHANNEL_SHARD));
    kv_info_fixed(out, "latest_fork_usec:0\n"
                       "total_forks:0\n"
                       "migrate_cached_sockets:0\n"
                       "slave_expires_tracked_keys:0\n");
    write_defrag(e, out);
    struct kv_tracking_counts tracking;
    kv_tracking_count(e, &tracking);
    write_count(out, "tracking_total_keys", tracking.keys);
    write_count(out, "tracking_total_items", tracking.items);
    write_count(out, "tracking_total_prefixes", tracking.prefixes);
    kv_info_fixed(out, "unexpected_error_replies:0\n");
    write_count(out, "total_error_replies", KV_ENGINE_STAT(e, error_replies));
    kv_info_fixed(out, "dump_payload_sanitizations:0\n");
    write_count(out, "total_reads_processed", KV_ENGINE_STAT(e, reads));
    write_count(out, "total_writes_processed", KV_ENGINE_STAT(e, writes));
    kv_info_fixed(out, "io_threaded_reads_processed:0\n"
                       "io_threaded_writes_processed:0\n"
                       "reply_buffer_shrinks:0\n"
                       "reply_buffer_expands:0\n");
    write_count(out, "client_query_buffer_limit_disconnections",
                KV_ENGINE_STAT(e, query_buffer_limit_disconnections));
    write_count(out, "client_output_buffer_limit_disconnections",
                KV_ENGINE_STAT(e, output_limit_disconnections));
    write_count(out, "acl_access_denied_auth", KV_ENGINE_STAT(e, acl_denied_auths));
    write_count(out, "acl_access_denied_cmd", KV_ENGINE_STAT(e, acl_denied_commands));
    write_count(out, "acl_access_denied_key", KV_ENGINE_STAT(e, acl_denied_keys));
    write_count(out, "acl_access_denied_channel", KV_ENGINE_STAT(e, acl_denied_channels));
}

static void write_command(struct kv_engine *e, const struct kv_command *cmd, struct kv_text *out)
{
    uint64_t calls = 0, usec = 0, rejected = 0, failed = 0;
    kv_engine_command_stat(e, cmd->id, &calls, &usec, &rejected, &failed);
    if (calls + rejected + failed == 0)
        return;
    kv_text_printf(out,
                   "cmdstat_%s:calls=%llu,usec=%llu,usec_per_call=%.2f,rejected_calls=%llu,"
                   "failed_calls=%llu\r\n",
                   cmd->full_name, (unsigned long long)calls, (unsigned long long)usec,
                   calls == 0 ? 0.0 : (double)usec / (double)calls, (unsigned long long)rejected,
                   (unsigned long long)failed);
}

void kv_info_commandstats(struct kv_engine *e, struct kv_text *out)
{
    const struct kv_command_table *table = kv_engine_commands(e);
    for (uint32_t i = 0; i < table->command_count; i++) {
        const struct kv_command *cmd = &table->commands[i];
        write_command(e, cmd, out);
        for (uint32_t sub = 0; sub < cmd->sub_count; sub++)
            write_command(e, &cmd->subs[sub], out);
    }
}

/* The values of latency-tracking-info-percentiles, as they are shown. */
static bool take_percentiles(struct kv_engine *e, struct kv_arena *arena, struct kv_text *text,
                             struct kv_words *words)
{
    const struct kv_config *c = kv_config_of(e);
    if (c == NULL)
        kv_text_printf(text, "50 99 99.9");
    else
        kv_config_print(
            c, (uint32_t)kv_directive_find(KV_SLICE("latency-tracking-info-percentiles")), text);
    return kv_words_split_plain(arena, kv_text_slice(text), words) == KV_OK;
}

static void write_latency(struct kv_engine *e, const struct kv_command *cmd,
                          const struct kv_words *percentiles, struct kv_latency_sum *sum,
                          struct kv_text *out)
{
    if (!kv_engine_latency(e, cmd->id, sum))
        return;
    kv_text_printf(out, "latency_percentiles_usec_%s:", cmd->full_name);
    for (int i = 0; i < percentiles->count; i++) {
        struct kv_slice p = percentiles->items[i];
        double percent = 0;
        bool good = kv_double_parse(p, &percent);
        KV_ASSERT(good);
        kv_text_printf(out, "%sp%.*s=%.3f", i == 0 ? "" : ",", (int)p.len, p.ptr,
                       (double)kv_latency_percentile(sum, percent) / 1000);
    }
    kv_text_printf(out, "\r\n");
}

void kv_info_latencystats(struct kv_engine *e, struct kv_text *out)
{
    const struct kv_command_table *table = kv_engine_commands(e);
    struct kv_words percentiles;
    struct kv_arena arena;
    struct kv_text text;
    if (!kv_engine_options(e)->latency_tracking)
        return;
    kv_text_init(&text);
    kv_arena_init(&arena, 1024, KV_MEM_CONFIG);
    struct kv_latency_sum *sum = kv_mem_try_alloc(sizeof(*sum), KV_MEM_CONFIG);
    if (sum != NULL && take_percentiles(e, &arena, &text, &percentiles)) {
        for (uint32_t i = 0; i < table->command_count; i++) {
            const struct kv_command *cmd = &table->commands[i];
            write_latency(e, cmd, &percentiles, sum, out);
            for (uint32_t j = 0; j < cmd->sub_count; j++)
                write_latency(e, &cmd->subs[j], &percentiles, sum, out);
        }
    }
    if (sum != NULL)
        kv_mem_free(sum, sizeof(*sum), KV_MEM_CONFIG);
    kv_arena_release(&arena);
    kv_text_release(&text);
}

static void write_error(void *arg, const char *code, uint64_t count)
{
    if (count > 0)
        kv_text_printf(arg, "errorstat_%s:count=%llu\r\n", code, (unsigned long long)count);
}

void kv_info_errorstats(struct kv_engine *e, struct kv_text *out)
{
    kv_engine_each_error(e, write_error, out);
}

void kv_info_kvik(struct kv_engine *e, struct kv_text *out)
{
    uint64_t batches = KV_ENGINE_STAT(e, batches);
    uint64_t batch_commands = KV_ENGINE_STAT(e, batch_commands);
    write_count(out, "threads", kv_engine_worker_count(e));
    kv_text_printf(out, "io_backend:%s\r\n", kv_engine_loop_name(e));
    write_count(out, "shards", kv_store_shard_count(kv_engine_store(e)));
    write_count(out, "loops", KV_ENGINE_STAT(e, loops));
    write_count(out, "busy_us", KV_ENGINE_STAT(e, busy_ns) / 1000);
    write_count(out, "batches", batches);
    write_count(out, "batch_commands", batch_commands);
    kv_text_printf(out, "batch_commands_average:%.2f\r\n",
                   batches == 0 ? 0.0 : (double)batch_commands / (double)batches);
    write_count(out, "lock_spins", KV_ENGINE_STAT(e, lock_spins));
    write_count(out, "lock_parks", KV_ENGINE_STAT(e, lock_parks));
    write_count(out, "gate_parks", KV_ENGINE_STAT(e, gate_parks));
    write_count(out, "gate_closes", KV_ENGINE_STAT(e, gate_closes));
    write_count(out, "world_stops", KV_ENGINE_STAT(e, world_stops));
    write_count(out, "hold_us_max", KV_ENGINE_STAT(e, hold_ns_max) / 1000);
    write_count(out, "slice_us_max", KV_STORE_STAT(e, slice_ns_max) / 1000);
    write_count(out, "defrag_us", KV_ENGINE_STAT(e, defrag_ns) / 1000);
    write_count(out, "defrag_slice_us_max", KV_ENGINE_STAT(e, defrag_slice_ns_max) / 1000);
    write_count(out, "expire_slices", KV_STORE_STAT(e, expire_slices));
    write_count(out, "moved_clients", KV_ENGINE_STAT(e, moved_clients));
    write_count(out, "timed_out_clients", KV_ENGINE_STAT(e, timeouts));
    write_count(out, "stream_bytes", KV_ENGINE_STAT(e, stream_bytes));
}
