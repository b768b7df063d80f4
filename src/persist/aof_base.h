/* Entries as commands: what the base of an append-only log consists of when aof-use-rdb-preamble is
 * no. Any server can run such a base, and people can read it.
 *
 *   string                 SET
 *   list                   RPUSH          collections in pieces of KV_AOF_BASE_ITEMS items
 *   set                    SADD           then SPEXPIREAT for members with due times
 *   hash                   HSET           then HPEXPIREAT for fields with due times
 *   sorted set             ZADD           then ZPEXPIREAT for members with due times
 *   foreign (store/foreign.h)  RESTORE with ABSTTL, which has the time to live
 *   time to live           PEXPIREAT
 *
 * What is due already is written like all else: who loads the log knows what follows in it. How
 * keys were used is not written. Libraries of functions come first, as FUNCTION LOAD.
 *
 * Bytes go to a writer of RDB bytes, whose first failure stays with it. Threads: the lock of the
 * entry's shard. */
#ifndef KV_PERSIST_AOF_BASE_H
#define KV_PERSIST_AOF_BASE_H

#include "persist/rdb_io.h"
#include "store/store.h"

#define KV_AOF_BASE_ITEMS 64 /* of a collection in one command */

/* FUNCTION LOAD of each record (rdb_libraries.h). */
void kv_aof_put_libraries(struct kv_rdb_writer *w, const struct kv_rdb_bytes *records);

/* SELECT: what follows is of this database. */
void kv_aof_put_database(struct kv_rdb_writer *w, uint32_t db);

/* The commands that make the entry. */
void kv_aof_put_entry(struct kv_rdb_writer *w, const struct kv_entry *e);

#endif
