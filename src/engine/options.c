/* Defaults of the options.
 *
 * They are written out here, and once more as text in admin/config_table.c, so that the engine can
 * be used as a library without the configuration above it; a unit test of admin compares the two.
 * Strings are constants here; admin/config replaces the pointers by its own copies.
 *
 * Values follow the defaults of Redis 8. Three are Kvik's own: threads (one worker in library use;
 * the server's default is `auto`), lookahead 16, beyond which measurements showed no gain, and
 * the change stream's ring of 16 MiB.
 *
 * Rejected: a static const initialiser, because bind and the output limits are arrays whose rows
 * read better as statements.
 */
#include "engine/options.h"

#include "base/log.h"
#include <string.h>
#include <syslog.h>

#define MIB ((uint64_t)1024 * 1024)

static void set_network(struct kv_options *o)
{
    o->port = 6379;
    o->bind[0] = "*";
    o->bind[1] = "-::*";
    o->bind_count = 2;
    o->unixsocket = "";
    o->tcp_backlog = 511;
    o->maxclients = 10000;
    o->tcp_keepalive_seconds = 300;
    o->protected_mode = true;
    o->requirepass = "";
    o->aclfile = "";
    o->acllog_max_len = 128;
    o->acl_pubsub_default = KV_ACL_PUBSUB_NONE;
    o->proto_max_bulk_len = 512 * MIB;
    o->client_query_buffer_limit = 1024 * MIB;
    o->output_limit[KV_CLASS_REPLICA] = (struct kv_output_limit){256 * MIB, 64 * MIB, 60};
    o->output_limit[KV_CLASS_PUBSUB] = (struct kv_output_limit){32 * MIB, 8 * MIB, 60};
}

static void set_log(struct kv_options *o)
{
    o->appendfsync = KV_APPENDFSYNC_EVERYSEC;
    o->appendfilename = "appendonly.aof";
    o->appenddirname = "appendonlydir";
    o->auto_aof_rewrite_percentage = 100;
    o->auto_aof_rewrite_min_size = 64 * MIB;
    o->aof_load_truncated = true;
    o->aof_use_rdb_preamble = true;
}

void kv_options_default(struct kv_options *o)
{
    memset(o, 0, sizeof(*o));
    set_network(o);
    o->threads = 1;
    o->databases = 16;
    o->pidfile = "";
    o->dir = "";
    o->dbfilename = "dump.rdb";
    o->logfile = "";
    o->syslog_ident = "kvik";
    o->syslog_facility = LOG_LOCAL0;
    o->enable_debug_command = "no";
    o->loglevel = KV_LOG_NOTICE;
    o->hz = 10;
    o->lookahead = 16;
    o->busy_reply_threshold_ms = 5000;
    o->script_memory_limit = 1 << 30;
    o->command_log[KV_COMMAND_LOG_SLOW] = (struct kv_command_log_options){10000, 128};
    o->command_log[KV_COMMAND_LOG_REQUEST] = (struct kv_command_log_options){1 << 20, 128};
    o->command_log[KV_COMMAND_LOG_REPLY] = (struct kv_command_log_options){1 << 20, 128};
    o->latency_tracking = true;
    o->tracking_table_max_keys = 1000000;
    o->active_expire = true;
    o->lfu_log_factor = 10;
    o->lfu_decay_time = 1;
    o->maxmemory_policy = KV_POLICY_NOEVICTION;
    o->maxmemory_samples = 5;
    o->maxmemory_tenacity = 10;
    o->rdb_compression = true;
    o->rdb_checksum = true;
    o->rdb_incremental_sync = o->aof_incremental_sync = true;
    o->hash_max_listpack_entries = 512;
    o->hash_max_listpack_value = 64;
    o->set_max_intset_entries = 512;
    o->set_max_listpack_entries = 128;
    o->set_max_listpack_value = 64;
    o->zset_max_listpack_entries = 128;
    o->zset_max_listpack_value = 64;
    o->list_max_listpack_size = -2;
    o->hll_sparse_max_bytes = 3000;
    o->defrag_ignore_bytes = 100 * MIB;
    o->defrag_threshold_lower = 10;
    o->defrag_threshold_upper = 100;
    o->defrag_cycle_min = 1;
    o->defrag_cycle_max = 25;
    o->stop_writes_on_save_error = true;
    o->snapshot_memory_limit = 256 * MIB;
    o->stream_ring_bytes = 16 * MIB;
    set_log(o);
}
