/* Options that the engine and the folders above it read. admin/config fills them from arguments,
 * file and CONFIG SET. Written before the workers start or in KV_MODE_STOP; read by workers between
 * their stop points, so plain reads are safe. Strings are owned by admin/config and never NULL. */
#ifndef KV_ENGINE_OPTIONS_H
#define KV_ENGINE_OPTIONS_H

#include "base/compiler.h"

#define KV_BIND_MAX 16

struct kv_aof;
struct kv_config;
#define KV_WORKERS_MAX 256 /* most threads */

/* In the order of the names in admin/config_table.c. */
enum kv_policy {
    KV_POLICY_VOLATILE_LRU,
    KV_POLICY_VOLATILE_LFU,
    KV_POLICY_VOLATILE_RANDOM,
    KV_POLICY_VOLATILE_TTL,
    KV_POLICY_ALLKEYS_LRU,
    KV_POLICY_ALLKEYS_LFU,
    KV_POLICY_ALLKEYS_RANDOM,
    KV_POLICY_VOLATILE_LRM, /* LRM: least recently modified; reading does not count */
    KV_POLICY_ALLKEYS_LRM,
    KV_POLICY_NOEVICTION,
};

/* In the order of the names in admin/config_table.c. */
enum kv_appendfsync { KV_APPENDFSYNC_EVERYSEC, KV_APPENDFSYNC_ALWAYS, KV_APPENDFSYNC_NO };

enum kv_io_backend { KV_BACKEND_AUTO, KV_BACKEND_EPOLL, KV_BACKEND_IO_URING };

enum kv_client_class { KV_CLASS_NORMAL, KV_CLASS_REPLICA, KV_CLASS_PUBSUB, KV_CLASS_COUNT };

/* In the order of struct kv_options: what makes a command remarkable. */
enum kv_command_log_kind {
    KV_COMMAND_LOG_SLOW,    /* microseconds that it ran */
    KV_COMMAND_LOG_REQUEST, /* bytes of its arguments */
    KV_COMMAND_LOG_REPLY,   /* bytes of its reply */
    KV_COMMAND_LOGS,
};

struct kv_command_log_options {
    int64_t limit; /* from here on it is logged; negative: never; 0: always */
    uint32_t max_len;
};

struct kv_output_limit {
    uint64_t hard_bytes; /* 0: none */
    uint64_t soft_bytes; /* 0: none */
    uint64_t soft_seconds;
};

#define KV_SAVE_POINTS_MAX 16

/* `save`: a snapshot is saved when so many changes were made and so many seconds have passed. */
struct kv_save_point {
    int64_t seconds;
    uint64_t changes;
};

/* Which channels a new user, or a reset one, has. */
enum kv_acl_pubsub { KV_ACL_PUBSUB_ALL, KV_ACL_PUBSUB_NONE };

struct kv_loading;
struct kv_rewriter;
struct kv_saver;

/* What a signal that ends the server asks for, or SHUTDOWN. Without KV_SHUTDOWN_SAVE and _NOSAVE it
 * saves when there are save points. */
enum kv_shutdown_on {
    KV_SHUTDOWN_SAVE = 1,
    KV_SHUTDOWN_NOSAVE = 2,
    KV_SHUTDOWN_NOW = 4,    /* waits for no replica; there is none */
    KV_SHUTDOWN_FORCE = 8,  /* ends although it could not save */
    KV_SHUTDOWN_ABORT = 16, /* of SHUTDOWN alone: ends nothing */
};

struct kv_options {
    /* fixed after the start */
    uint32_t threads;              /* workers, 1 and up; `auto` is resolved by admin/config */
    uint32_t shards;               /* 0: chosen from threads */
    uint32_t databases;            /* default 16 */
    uint32_t port;                 /* 6379; 0: no TCP */
    const char *bind[KV_BIND_MAX]; /* as written, a leading '-' means: may be missing */
    uint32_t bind_count;
    const char *unixsocket;  /* "" : none */
    uint32_t unixsocketperm; /* 0: leave */
    uint32_t tcp_backlog;    /* 511 */
    uint32_t io_backend;     /* enum kv_io_backend */
    bool daemonize;
    const char *pidfile;
    const char *dir;        /* "" : stay */
    const char *dbfilename; /* of the RDB file, in the working directory; changeable */
    const char *logfile;
    const char *syslog_ident;
    bool syslog_enabled;
    uint32_t syslog_facility;
    const char *enable_debug_command; /* no, yes, local */

    /* changeable */
    uint32_t loglevel;              /* enum kv_log_level */
    uint32_t maxclients;            /* 10,000 */
    uint32_t timeout_seconds;       /* 0: never */
    uint32_t tcp_keepalive_seconds; /* 300 */
    bool protected_mode;
    const char *requirepass;            /* "" : none */
    const char *aclfile;                /* "" : users are in the configuration; fixed */
    uint64_t acllog_max_len;            /* 128: denials that are kept */
    uint32_t acl_pubsub_default;        /* enum kv_acl_pubsub */
    uint64_t proto_max_bulk_len;        /* 512 MiB */
    uint64_t client_query_buffer_limit; /* 1 GiB */
    struct kv_output_limit output_limit[KV_CLASS_COUNT];
    uint32_t hz;        /* 10 */
    uint32_t lookahead; /* 16: commands parsed ahead; 1 switches batches off */
    struct kv_command_log_options command_log[KV_COMMAND_LOGS];
    uint32_t notify_classes;          /* events that are published: engine/notify.h; 0: none */
    bool latency_tracking;            /* times of commands are counted in histograms */
    uint64_t busy_reply_threshold_ms; /* 5,000: a script that runs longer is busy; 0: none is */
    uint64_t script_memory_limit;     /* 1 GiB: most bytes of one interpreter; 0: any */
    uint64_t tracking_table_max_keys; /* that are remembered for clients; 0: any number */
    uint64_t latency_monitor_threshold_ms; /* events that take so long are kept; 0: none */
    bool lazyfree_user_flush;              /* FLUSHALL without word is ASYNC */
    bool active_expire;                    /* DEBUG SET-ACTIVE-EXPIRE */
    uint32_t lfu_log_factor, lfu_decay_time;
    uint64_t maxmemory;          /* bytes; 0: no limit */
    uint32_t maxmemory_policy;   /* enum kv_policy */
    uint32_t maxmemory_samples;  /* 5: entries looked at per victim */
    uint32_t maxmemory_tenacity; /* 10: how long one command may evict, 0 to 100 */
    int64_t maxmemory_clients;   /* bytes; negative: percent of maxmemory; 0: no limit */
    bool lazyfree_eviction, lazyfree_expire, lazyfree_server_del, lazyfree_user_del;
    /* how large a small collection may be: store/collection.h */
    bool rdb_compression; /* true: long strings of RDB files and DUMP by LZF */
    bool rdb_incremental_sync, aof_incremental_sync; /* true: files reach the disk as they grow */
    bool rdb_checksum; /* true: RDB files end with a sum that loading compares */
    uint64_t hash_max_listpack_entries, hash_max_listpack_value;
    uint64_t set_max_intset_entries, set_max_listpack_entries, set_max_listpack_value;
    uint64_t zset_max_listpack_entries, zset_max_listpack_value;
    int64_t list_max_listpack_size;
    uint64_t hll_sparse_max_bytes; /* 3,000: longest sparse HyperLogLog */
    bool active_defrag;
    uint64_t defrag_ignore_bytes;    /* 100 MiB: less than this coming back is not worth it */
    uint32_t defrag_threshold_lower; /* 10 %: fragmentation at which it starts */
    uint32_t defrag_threshold_upper; /* 100 %: and where it takes cycle_max */
    uint32_t defrag_cycle_min, defrag_cycle_max; /* 1 and 25 % of a worker's time */
    bool maxmemory_policy_lfu;                   /* access clock counts frequency */
    uint64_t stream_ring_bytes;                  /* change stream ring, 16 MiB; power of two */

    /* append-only log: persist/aof.h */
    bool appendonly;
    uint32_t appendfsync; /* enum kv_appendfsync */
    const char *appendfilename, *appenddirname;
    bool no_appendfsync_on_rewrite;
    uint32_t auto_aof_rewrite_percentage;    /* 100; 0: never by itself */
    uint64_t auto_aof_rewrite_min_size;      /* 64 MiB */
    bool aof_load_truncated;                 /* a log that ends within a command is cut off there */
    uint64_t aof_load_corrupt_tail_max_size; /* and one whose last bytes are none; 0: never */
    bool aof_use_rdb_preamble, aof_timestamp_enabled, aof_disable_auto_gc;

    struct kv_aof *aof; /* persist/aof.h; NULL in library use; not ours */
    /* snapshots: persist/save.h */
    bool stop_writes_on_save_error;
    uint32_t shutdown_on_sigterm, shutdown_on_sigint; /* enum kv_shutdown_on, or'ed; 0: default */
    uint64_t snapshot_memory_limit; /* bytes that may wait to be written, 0: any */
    struct kv_save_point save_points[KV_SAVE_POINTS_MAX];
    uint32_t save_point_count;

    struct kv_saver *saver;       /* persist/save.h; likewise */
    struct kv_rewriter *rewriter; /* persist/rewrite.h; likewise */
    struct kv_loading *loading;   /* persist/loading.h; likewise */
    uint32_t key_load_delay_us;   /* a pause for each key or command that is loaded, for tests */
    struct kv_config *config;     /* admin/config that fills these; NULL in library use; not ours */
};

/* Sets every field to its default. */
void kv_options_default(struct kv_options *o);

#endif
