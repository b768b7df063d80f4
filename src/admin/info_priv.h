/* Sections of INFO, shared by info.c and the files that write them. */
#ifndef KV_ADMIN_INFO_PRIV_H
#define KV_ADMIN_INFO_PRIV_H

#include "admin/config.h"
#include "admin/info.h"

#define KV_RUN_ID_LEN 40

/* Facts of this process; written once by kv_info_init. */
struct kv_info_facts {
    char run_id[KV_RUN_ID_LEN + 1];
    char replication_id[KV_RUN_ID_LEN + 1];
    char program[1024];         /* absolute path, "" when unknown */
    uint64_t startup_memory;    /* bytes in use when the server was ready */
    int64_t start_unix_seconds; /* wall time of the start */
};
extern struct kv_info_facts kv_info_facts;

/* A statistic of the workers or of the keyspace, summed. */
#define KV_ENGINE_STAT(e, field) kv_engine_stat((e), offsetof(struct kv_worker_stats, field))
#define KV_STORE_STAT(e, field) kv_engine_store_stat((e), offsetof(struct kv_store_stats, field))

void kv_info_server(struct kv_engine *e, struct kv_text *out);
void kv_info_clients(struct kv_engine *e, struct kv_text *out);
void kv_info_memory(struct kv_engine *e, struct kv_text *out);
void kv_info_persistence(struct kv_engine *e, struct kv_text *out);
void kv_info_stats(struct kv_engine *e, struct kv_text *out);
void kv_info_replication(struct kv_engine *e, struct kv_text *out);
void kv_info_cpu(struct kv_engine *e, struct kv_text *out);
void kv_info_commandstats(struct kv_engine *e, struct kv_text *out);
void kv_info_latencystats(struct kv_engine *e, struct kv_text *out);
void kv_info_errorstats(struct kv_engine *e, struct kv_text *out);
void kv_info_keyspace(struct kv_engine *e, struct kv_text *out);
void kv_info_kvik(struct kv_engine *e, struct kv_text *out);
void kv_info_kvik_memory(struct kv_engine *e, struct kv_text *out);

/* Appends the lines of a template, "\n" in it becoming "\r\n": for fields with fixed values. */
void kv_info_fixed(struct kv_text *out, const char *lines);

#endif
