/* The table of directives.
 *
 * One row a directive: name, older name or NULL, default as it would stand in a file, what the type
 * needs, flags. The row's macro says what kind it is:
 *
 *   BOOL INT OCTAL MEM ENUM TEXT SPECIAL ...   tuning: accepted, shown, no effect
 *   the same with BUILT(field)                 bound to a field of struct kv_options
 *   the same with HANDLED                      built, but read by name (server/ or a custom step)
 *   the same with REFUSED                      only the default, which switches it off, is allowed
 *
 * Names, types, ranges and defaults follow Redis 8 (and 7.0 where 8 kept it), so that its
 * configuration files load unchanged. Kvik's own: threads, shards, lookahead, stream-ring-size,
 * io-backend.
 * Differences on purpose: the limits of `databases` are the store's.
 *
 * Invariants (checked by a unit test): names are unique and lower case, each default parses, bound
 * fields agree with kv_options_default.
 *
 * Rejected: a hash table for look-ups. A configuration is read once and CONFIG is rare; 240
 * comparisons cost less than explaining a second structure.
 */
#include "admin/directive.h"

#include "base/number.h"
#include <stddef.h>

#define MAX_INT 2147483647
#define MAX_LONG INT64_MAX

#define BUILT(field)                                                                               \
    .kind = KV_DIR_BUILT, .offset = offsetof(struct kv_options, field),                            \
    .width = sizeof(((struct kv_options *)0)->field)
#define HANDLED .kind = KV_DIR_BUILT
#define REFUSED .kind = KV_DIR_REFUSED
#define FIXED .flags = KV_DIR_IMMUTABLE

#define ROW(t, n, a, d, ...)                                                                       \
    {                                                                                              \
        .type = t, .name = n, .alias = a, .initial = d, __VA_ARGS__                                \
    }
#define BOOL(n, a, d, ...) ROW(KV_DIR_BOOL, n, a, d, .max = 1, ##__VA_ARGS__)
#define INT(n, a, d, lo, hi, ...) ROW(KV_DIR_INT, n, a, d, .min = (lo), .max = (hi), ##__VA_ARGS__)
#define OCTAL(n, a, d, lo, hi, ...)                                                                \
    ROW(KV_DIR_OCTAL, n, a, d, .min = (lo), .max = (hi), ##__VA_ARGS__)
#define MEM(n, a, d, lo, hi, ...)                                                                  \
    ROW(KV_DIR_MEMORY, n, a, d, .min = (lo), .max = (hi), ##__VA_ARGS__)
#define ENUM(n, a, d, list, ...) ROW(KV_DIR_ENUM, n, a, d, .names = list, ##__VA_ARGS__)
#define TEXT(n, a, d, ...) ROW(KV_DIR_TEXT, n, a, d, .max = 0, ##__VA_ARGS__)
#define SPECIAL(n, a, d, fn, ...) ROW(KV_DIR_SPECIAL, n, a, d, .parse = fn, ##__VA_ARGS__)

static const char *const loglevels[] = {"debug", "verbose", "notice", "warning", "nothing", NULL};
static const char *const facilities[] = {"user",   "local0", "local1", "local2", "local3",
                                         "local4", "local5", "local6", "local7", NULL};
static const char *const local_names[] = {"no", "yes", "local", NULL};
static const char *const supervisors[] = {"no", "auto", "systemd", "upstart", NULL};
static const char *const policies[] = {"volatile-lru",
                                       "volatile-lfu",
                                       "volatile-random",
                                       "volatile-ttl",
                                       "allkeys-lru",
                                       "allkeys-lfu",
                                       "allkeys-random",
                                       "volatile-lrm",
                                       "allkeys-lrm",
                                       "noeviction",
                                       NULL};
static const char *const backends[] = {"auto", "epoll", "io_uring", NULL};
static const char *const fsyncs[] = {"everysec", "always", "no", NULL};
static const char *const diskless[] = {"disabled", "on-empty-db", "swapdb", NULL};
static const char *const oom_modes[] = {"no", "yes", "relative", "absolute", NULL};
static const char *const sanitizes[] = {"no", "yes", "clients", NULL};
static const char *const acl_channels[] = {"allchannels", "resetchannels", NULL};
static const char *const propagations[] = {"ignore", "panic", "panic-on-replicas", NULL};
static const char *const endpoints[] = {"ip", "hostname", "unknown-endpoint", NULL};
static const char *const tls_auths[] = {"no", "yes", "optional", NULL};
static const char *const tls_users[] = {"off", "CN", NULL};
static const char *const shutdowns[] = {"default", "save", "nosave", "now", "force", NULL};
static const char *const slot_stats[] = {"no", "yes", "cpu", "net", "mem", NULL};

/* One row a line, which the formatter would join. */
/* clang-format off */
const struct kv_directive kv_directives[] = {
    /* network */
    SPECIAL("bind", NULL, "* -::*", kv_parse_bind, HANDLED, FIXED),
    INT("port", NULL, "6379", 0, 65535, BUILT(port), FIXED),
    INT("tcp-backlog", NULL, "511", 0, MAX_INT, BUILT(tcp_backlog), FIXED),
    ENUM("io-backend", NULL, "auto", backends, BUILT(io_backend), FIXED),
    INT("timeout", NULL, "0", 0, MAX_INT, BUILT(timeout_seconds)),
    INT("tcp-keepalive", NULL, "300", 0, MAX_INT, BUILT(tcp_keepalive_seconds)),
    TEXT("unixsocket", NULL, "", BUILT(unixsocket), FIXED),
    OCTAL("unixsocketperm", NULL, "0", 0, 0777, BUILT(unixsocketperm), FIXED),
    BOOL("protected-mode", NULL, "yes", BUILT(protected_mode)),
    INT("maxclients", NULL, "10000", 1, UINT32_MAX, BUILT(maxclients)),
    MEM("proto-max-bulk-len", NULL, "512mb", 1024 * 1024, MAX_LONG, BUILT(proto_max_bulk_len)),
    MEM("client-query-buffer-limit", NULL, "1gb", 1024 * 1024, MAX_LONG,
        BUILT(client_query_buffer_limit)),
    SPECIAL("client-output-buffer-limit", NULL,
        "normal 0 0 0 slave 256mb 64mb 60 pubsub 32mb 8mb 60", kv_parse_output_limit, HANDLED),
    SPECIAL("bind-source-addr", NULL, "", kv_parse_words),
    INT("socket-mark-id", NULL, "0", 0, UINT32_MAX, FIXED),
    INT("max-new-connections-per-cycle", NULL, "10", 1, 1000),
    INT("max-new-tls-connections-per-cycle", NULL, "1", 1, 1000),
    ROW(KV_DIR_PERCENT, "maxmemory-clients", NULL, "0", BUILT(maxmemory_clients)),

    /* execution: Kvik's own */
    SPECIAL("threads", NULL, "auto", kv_parse_threads, HANDLED, FIXED),
    INT("shards", NULL, "0", 0, 4096, BUILT(shards), FIXED, .check = kv_check_power_of_two),
    INT("lookahead", NULL, "16", 1, 64, BUILT(lookahead)),
    MEM("stream-ring-size", NULL, "16mb", 64 * 1024, 1024 * 1024 * 1024, BUILT(stream_ring_bytes),
        FIXED, .check = kv_check_power_of_two),

    /* general */
    BOOL("daemonize", NULL, "no", BUILT(daemonize), FIXED),
    ENUM("supervised", NULL, "no", supervisors, HANDLED, FIXED),
    TEXT("pidfile", NULL, "", BUILT(pidfile), FIXED),
    ENUM("loglevel", NULL, "notice", loglevels, BUILT(loglevel)),
    TEXT("logfile", NULL, "", BUILT(logfile), FIXED),
    BOOL("syslog-enabled", NULL, "no", BUILT(syslog_enabled), FIXED),
    TEXT("syslog-ident", NULL, "kvik", BUILT(syslog_ident), FIXED),
    ENUM("syslog-facility", NULL, "local0", facilities, HANDLED, FIXED),
    BOOL("crash-log-enabled", NULL, "yes", HANDLED),
    BOOL("crash-memcheck-enabled", NULL, "yes"),
    INT("databases", NULL, "16", 1, 65535, BUILT(databases), FIXED),
    BOOL("always-show-logo", NULL, "no", FIXED),
    BOOL("hide-user-data-from-log", NULL, "no"),
    BOOL("set-proc-title", NULL, "yes", FIXED),
    TEXT("proc-title-template", NULL, "{title} {listen-addr} {server-mode}",
        .check = kv_check_title),
    TEXT("locale-collate", NULL, ""),
    INT("hz", NULL, "10", 0, MAX_INT, BUILT(hz), .check = kv_check_hz),
    BOOL("dynamic-hz", NULL, "yes"),
    BOOL("activerehashing", NULL, "yes"),
    BOOL("disable-thp", NULL, "yes", FIXED),
    BOOL("jemalloc-bg-thread", NULL, "yes"),
    SPECIAL("ignore-warnings", NULL, "", kv_parse_words),
    INT("io-threads", NULL, "1", 1, 128, FIXED),
    BOOL("io-threads-do-reads", NULL, "no", FIXED),
    TEXT("server-cpulist", "server_cpulist", "", FIXED),
    TEXT("bio-cpulist", "bio_cpulist", "", FIXED),
    TEXT("aof-rewrite-cpulist", "aof_rewrite_cpulist", "", FIXED),
    TEXT("bgsave-cpulist", "bgsave_cpulist", "", FIXED),
    ENUM("oom-score-adj", NULL, "no", oom_modes),
    SPECIAL("oom-score-adj-values", NULL, "0 200 800", kv_parse_oom_values),
    ENUM("enable-protected-configs", NULL, "no", local_names, HANDLED, FIXED),
    ENUM("enable-debug-command", NULL, "no", local_names, BUILT(enable_debug_command),
        .flags = KV_DIR_IMMUTABLE | KV_DIR_ENUM_TEXT),
    ENUM("enable-module-command", NULL, "no", local_names, FIXED),
    INT("shutdown-timeout", NULL, "10", 0, MAX_INT),
    ROW(KV_DIR_BITS, "shutdown-on-sigint", NULL, "default", .names = shutdowns,
        .check = kv_check_shutdown, BUILT(shutdown_on_sigint)),
    ROW(KV_DIR_BITS, "shutdown-on-sigterm", NULL, "default", .names = shutdowns,
        .check = kv_check_shutdown, BUILT(shutdown_on_sigterm)),

    /* security */
    TEXT("requirepass", NULL, "", BUILT(requirepass)),
    TEXT("aclfile", NULL, "", BUILT(aclfile), FIXED),
    INT("acllog-max-len", NULL, "128", 0, MAX_LONG, BUILT(acllog_max_len)),
    ENUM("acl-pubsub-default", NULL, "resetchannels", acl_channels, BUILT(acl_pubsub_default)),
    INT("tls-port", NULL, "0", 0, 65535, REFUSED),
    BOOL("tls-replication", NULL, "no", REFUSED),
    BOOL("tls-cluster", NULL, "no", REFUSED),
    TEXT("tls-cert-file", NULL, "", REFUSED),
    TEXT("tls-key-file", NULL, "", REFUSED),
    TEXT("tls-key-file-pass", NULL, "", REFUSED),
    TEXT("tls-client-cert-file", NULL, "", REFUSED),
    TEXT("tls-client-key-file", NULL, "", REFUSED),
    TEXT("tls-client-key-file-pass", NULL, "", REFUSED),
    TEXT("tls-dh-params-file", NULL, "", REFUSED),
    TEXT("tls-ca-cert-file", NULL, "", REFUSED),
    TEXT("tls-ca-cert-dir", NULL, "", REFUSED),
    ENUM("tls-auth-clients", NULL, "yes", tls_auths),
    ENUM("tls-auth-clients-user", NULL, "off", tls_users, REFUSED),
    TEXT("tls-protocols", NULL, ""),
    TEXT("tls-ciphers", NULL, ""),
    TEXT("tls-ciphersuites", NULL, ""),
    BOOL("tls-prefer-server-ciphers", NULL, "no"),
    BOOL("tls-session-caching", NULL, "yes"),
    INT("tls-session-cache-size", NULL, "20480", 0, MAX_INT),
    INT("tls-session-cache-timeout", NULL, "300", 0, MAX_INT),

    /* memory and eviction */
    MEM("maxmemory", NULL, "0", 0, MAX_LONG, BUILT(maxmemory)),
    ENUM("maxmemory-policy", NULL, "noeviction", policies, BUILT(maxmemory_policy)),
    INT("maxmemory-samples", NULL, "5", 1, MAX_INT, BUILT(maxmemory_samples)),
    INT("maxmemory-eviction-tenacity", NULL, "10", 0, 100, BUILT(maxmemory_tenacity)),
    INT("active-expire-effort", NULL, "1", 1, 10),
    INT("lfu-log-factor", NULL, "10", 0, MAX_INT, BUILT(lfu_log_factor)),
    INT("lfu-decay-time", NULL, "1", 0, MAX_INT, BUILT(lfu_decay_time)),
    BOOL("lazyfree-lazy-eviction", NULL, "no", BUILT(lazyfree_eviction)),
    BOOL("lazyfree-lazy-expire", NULL, "no", BUILT(lazyfree_expire)),
    BOOL("lazyfree-lazy-server-del", NULL, "no", BUILT(lazyfree_server_del)),
    BOOL("lazyfree-lazy-user-del", NULL, "no", BUILT(lazyfree_user_del)),
    BOOL("lazyfree-lazy-user-flush", NULL, "no", BUILT(lazyfree_user_flush)),
    BOOL("activedefrag", NULL, "no", BUILT(active_defrag)),
    MEM("active-defrag-ignore-bytes", NULL, "100mb", 1, MAX_LONG,
        BUILT(defrag_ignore_bytes)),
    INT("active-defrag-threshold-lower", NULL, "10", 0, 1000, BUILT(defrag_threshold_lower)),
    INT("active-defrag-threshold-upper", NULL, "100", 0, 1000, BUILT(defrag_threshold_upper)),
    INT("active-defrag-cycle-min", NULL, "1", 1, 99, BUILT(defrag_cycle_min)),
    INT("active-defrag-cycle-max", NULL, "25", 1, 99, BUILT(defrag_cycle_max)),
    INT("active-defrag-max-scan-fields", NULL, "1000", 1, MAX_LONG),

    /* observation */
    INT("slowlog-log-slower-than", "commandlog-execution-slower-than", "10000", -1, MAX_LONG,
        BUILT(command_log[KV_COMMAND_LOG_SLOW].limit)),
    INT("slowlog-max-len", "commandlog-slow-execution-max-len", "128", 0, UINT32_MAX,
        BUILT(command_log[KV_COMMAND_LOG_SLOW].max_len)),
    INT("commandlog-request-larger-than", NULL, "1048576", -1, MAX_LONG,
        BUILT(command_log[KV_COMMAND_LOG_REQUEST].limit)),
    INT("commandlog-large-request-max-len", NULL, "128", 0, UINT32_MAX,
        BUILT(command_log[KV_COMMAND_LOG_REQUEST].max_len)),
    INT("commandlog-reply-larger-than", NULL, "1048576", -1, MAX_LONG,
        BUILT(command_log[KV_COMMAND_LOG_REPLY].limit)),
    INT("commandlog-large-reply-max-len", NULL, "128", 0, UINT32_MAX,
        BUILT(command_log[KV_COMMAND_LOG_REPLY].max_len)),
    INT("latency-monitor-threshold", NULL, "0", 0, MAX_LONG / 1000000,
        BUILT(latency_monitor_threshold_ms)),
    BOOL("latency-tracking", NULL, "yes", BUILT(latency_tracking)),
    SPECIAL("latency-tracking-info-percentiles", NULL, "50 99 99.9", kv_parse_percentiles, HANDLED),
    SPECIAL("notify-keyspace-events", NULL, "", kv_parse_events, HANDLED),
    INT("tracking-table-max-keys", NULL, "1000000", 0, MAX_LONG, BUILT(tracking_table_max_keys)),
    BOOL("key-memory-histograms", NULL, "no"),

    /* persistence */
    SPECIAL("save", NULL, "3600 1 300 100 60 10000", kv_parse_save, HANDLED),
    MEM("snapshot-memory-limit", NULL, "256mb", 0, MAX_LONG, BUILT(snapshot_memory_limit)),
    BOOL("appendonly", NULL, "no", BUILT(appendonly)),
    TEXT("dir", NULL, "", BUILT(dir), .flags = KV_DIR_PROTECTED, .check = kv_check_folder),
    TEXT("dbfilename", NULL, "dump.rdb", BUILT(dbfilename), .flags = KV_DIR_PROTECTED,
        .check = kv_check_file_name),
    TEXT("appendfilename", NULL, "appendonly.aof", BUILT(appendfilename), FIXED,
        .check = kv_check_file_name),
    TEXT("appenddirname", NULL, "appendonlydir", BUILT(appenddirname), FIXED,
        .check = kv_check_file_name),
    ENUM("appendfsync", NULL, "everysec", fsyncs, BUILT(appendfsync)),
    BOOL("no-appendfsync-on-rewrite", NULL, "no", BUILT(no_appendfsync_on_rewrite)),
    INT("auto-aof-rewrite-percentage", NULL, "100", 0, MAX_INT,
        BUILT(auto_aof_rewrite_percentage)),
    MEM("auto-aof-rewrite-min-size", NULL, "64mb", 0, MAX_LONG, BUILT(auto_aof_rewrite_min_size)),
    BOOL("aof-load-truncated", NULL, "yes", BUILT(aof_load_truncated)),
    MEM("aof-load-corrupt-tail-max-size", NULL, "0", 0, MAX_LONG,
        BUILT(aof_load_corrupt_tail_max_size)),
    BOOL("aof-use-rdb-preamble", NULL, "yes", BUILT(aof_use_rdb_preamble)),
    BOOL("aof-timestamp-enabled", NULL, "no", BUILT(aof_timestamp_enabled)),
    BOOL("aof-rewrite-incremental-fsync", NULL, "yes", BUILT(aof_incremental_sync)),
    INT("key-load-delay", NULL, "0", 0, MAX_INT, BUILT(key_load_delay_us), .flags = KV_DIR_HIDDEN),
    BOOL("aof-disable-auto-gc", NULL, "no", BUILT(aof_disable_auto_gc), .flags = KV_DIR_HIDDEN),
    BOOL("stop-writes-on-bgsave-error", NULL, "yes", BUILT(stop_writes_on_save_error)),
    BOOL("rdbcompression", NULL, "yes", BUILT(rdb_compression)),
    BOOL("rdbchecksum", NULL, "yes", BUILT(rdb_checksum), FIXED),
    BOOL("rdb-del-sync-files", NULL, "no"),
    BOOL("rdb-save-incremental-fsync", NULL, "yes", BUILT(rdb_incremental_sync)),
    ENUM("sanitize-dump-payload", NULL, "no", sanitizes),

    /* replication */
    SPECIAL("replicaof", "slaveof", "", kv_parse_replicaof, REFUSED, FIXED),
    TEXT("masterauth", NULL, ""),
    TEXT("masteruser", NULL, ""),
    BOOL("replica-serve-stale-data", "slave-serve-stale-data", "yes"),
    BOOL("replica-read-only", "slave-read-only", "yes"),
    BOOL("replica-lazy-flush", "slave-lazy-flush", "no"),
    BOOL("replica-ignore-maxmemory", "slave-ignore-maxmemory", "yes"),
    BOOL("replica-ignore-disk-write-errors", NULL, "no"),
    BOOL("replica-announced", NULL, "yes"),
    INT("replica-priority", "slave-priority", "100", 0, MAX_INT),
    TEXT("replica-announce-ip", "slave-announce-ip", ""),
    INT("replica-announce-port", "slave-announce-port", "0", 0, 65535),
    MEM("replica-full-sync-buffer-limit", NULL, "0", 0, MAX_LONG),
    INT("min-replicas-to-write", "min-slaves-to-write", "0", 0, MAX_INT, REFUSED),
    INT("min-replicas-max-lag", "min-slaves-max-lag", "10", 0, MAX_INT),
    BOOL("repl-diskless-sync", NULL, "yes"),
    INT("repl-diskless-sync-delay", NULL, "5", 0, MAX_INT),
    INT("repl-diskless-sync-max-replicas", NULL, "0", 0, MAX_INT),
    ENUM("repl-diskless-load", NULL, "disabled", diskless),
    BOOL("repl-rdb-channel", NULL, "no"),
    INT("repl-ping-replica-period", "repl-ping-slave-period", "10", 1, MAX_INT),
    INT("repl-timeout", NULL, "60", 1, MAX_INT),
    BOOL("repl-disable-tcp-nodelay", NULL, "no"),
    MEM("repl-backlog-size", NULL, "1mb", 1, MAX_LONG),
    INT("repl-backlog-ttl", NULL, "3600", 0, MAX_LONG),
    ENUM("propagation-error-behavior", NULL, "ignore", propagations),

    /* cluster */
    BOOL("cluster-enabled", NULL, "no", REFUSED, FIXED),
    TEXT("cluster-config-file", NULL, "nodes.conf", FIXED),
    INT("cluster-node-timeout", NULL, "15000", 0, MAX_LONG),
    INT("cluster-port", NULL, "0", 0, 65535, FIXED),
    INT("cluster-replica-validity-factor", "cluster-slave-validity-factor", "10", 0, MAX_INT),
    INT("cluster-migration-barrier", NULL, "1", 0, MAX_INT),
    BOOL("cluster-allow-replica-migration", NULL, "yes"),
    BOOL("cluster-require-full-coverage", NULL, "yes"),
    BOOL("cluster-replica-no-failover", "cluster-slave-no-failover", "no"),
    BOOL("cluster-allow-reads-when-down", NULL, "no"),
    BOOL("cluster-allow-pubsubshard-when-down", NULL, "yes"),
    MEM("cluster-link-sendbuf-limit", NULL, "0", 0, MAX_LONG),
    TEXT("cluster-announce-ip", NULL, ""),
    TEXT("cluster-announce-hostname", NULL, ""),
    TEXT("cluster-announce-human-nodename", NULL, ""),
    INT("cluster-announce-port", NULL, "0", 0, 65535),
    INT("cluster-announce-tls-port", NULL, "0", 0, 65535),
    INT("cluster-announce-bus-port", NULL, "0", 0, 65535),
    ENUM("cluster-preferred-endpoint-type", NULL, "ip", endpoints),
    ROW(KV_DIR_BITS, "cluster-slot-stats-enabled", NULL, "no", .names = slot_stats),
    INT("cluster-compatibility-sample-ratio", NULL, "0", 0, 100),
    INT("cluster-slot-migration-write-pause-timeout", NULL, "10000", 0, MAX_LONG),
    MEM("cluster-slot-migration-handoff-max-lag-bytes", NULL, "1mb", 0, MAX_LONG),

    /* scripts */
    INT("busy-reply-threshold", "lua-time-limit", "5000", 0, MAX_LONG,
        BUILT(busy_reply_threshold_ms)),
    MEM("script-memory-limit", NULL, "1gb", 0, MAX_LONG, BUILT(script_memory_limit)),
    BOOL("lua-enable-deprecated-api", NULL, "no", FIXED),

    /* encodings */
    INT("hash-max-listpack-entries", "hash-max-ziplist-entries", "512", 0, MAX_LONG,
        BUILT(hash_max_listpack_entries)),
    MEM("hash-max-listpack-value", "hash-max-ziplist-value", "64", 0, MAX_LONG,
        BUILT(hash_max_listpack_value)),
    INT("list-max-listpack-size", "list-max-ziplist-size", "-2", -MAX_INT - 1LL, MAX_INT,
        BUILT(list_max_listpack_size)),
    INT("list-compress-depth", NULL, "0", 0, MAX_INT),
    INT("set-max-intset-entries", NULL, "512", 0, MAX_LONG, BUILT(set_max_intset_entries)),
    INT("set-max-listpack-entries", NULL, "128", 0, MAX_LONG, BUILT(set_max_listpack_entries)),
    MEM("set-max-listpack-value", NULL, "64", 0, MAX_LONG, BUILT(set_max_listpack_value)),
    INT("zset-max-listpack-entries", "zset-max-ziplist-entries", "128", 0, MAX_LONG,
        BUILT(zset_max_listpack_entries)),
    MEM("zset-max-listpack-value", "zset-max-ziplist-value", "64", 0, MAX_LONG,
        BUILT(zset_max_listpack_value)),
    MEM("hll-sparse-max-bytes", NULL, "3000", 0, MAX_LONG, BUILT(hll_sparse_max_bytes)),
    MEM("stream-node-max-bytes", NULL, "4096", 0, MAX_LONG),
    INT("stream-node-max-entries", NULL, "100", 0, MAX_LONG),
    INT("stream-idmp-duration", NULL, "100", 1, 86400),
    INT("stream-idmp-maxsize", NULL, "100", 1, 10000),
    BOOL("vset-force-single-threaded-execution", NULL, "no"),
};
/* clang-format on */

const uint32_t kv_directive_count = KV_ARRAY_LEN(kv_directives);
