/* Whole RDB files: head, entries, tail.
 *
 *   head      magic, version, notes about the file (AUX), what is kept for others
 *             (struct kv_rdb_kept)
 *   entries   per database a mark and two sizes, then key by key
 *   tail      mark of the end, checksum
 *
 * Writing is in pieces, so that a snapshot can be put together shard by shard: kv_rdb_put_head,
 * then for each database kv_rdb_put_database and its entries, then kv_rdb_put_tail. Entries may be
 * put into a writer of their own and moved behind the others later (kv_rdb_writer_move). A database
 * may be announced as often as there are pieces of it. The version in the head is brought to what
 * the entries needed when the tail is put.
 *
 * Reading puts everything into a store; what is due already is left out. The whole keyspace is held
 * [alone] for it, unless it only walks over records (kv_rdb_load).
 *
 * Kept: modules' data about the file as a whole is read as bytes and written back. Libraries of
 * functions are collected, and loaded by whoever has read the file (rdb_libraries.h).
 */
#ifndef KV_PERSIST_RDB_FILE_H
#define KV_PERSIST_RDB_FILE_H

#include "persist/rdb_value.h"

/* Records that nobody here understands, as they came: before the first database and behind the last
 * one; and those of libraries, which are written before the first. Zero when there are none. */
struct kv_rdb_kept {
    struct kv_rdb_bytes before, behind;
    struct kv_rdb_bytes libraries;
};

void kv_rdb_kept_release(struct kv_rdb_kept *k);

#define KV_RDB_REPL_ID 40 /* characters of a replication id */

/* What the notes of a file say. Zero: nothing. */
struct kv_rdb_notes {
    int64_t saved_at;    /* ctime, seconds of Unix time */
    uint64_t used_bytes; /* used-mem */
    bool is_aof_base;    /* aof-base: the file is the base of an append-only log */
    bool has_repl;       /* the next three were there */
    char repl_id[KV_RDB_REPL_ID + 1];
    int64_t repl_offset;
    int64_t repl_db;         /* repl-stream-db */
    char server_version[32]; /* redis-ver or valkey-ver; writing: always ours */
};

/* --- writing --- */

enum kv_rdb_entry_flags {
    KV_RDB_WITH_IDLE = 1,      /* seconds since the last use, as an LRU policy wants them */
    KV_RDB_WITH_FREQUENCY = 2, /* counters, as an LFU policy wants them */
};

/* `kept` may be NULL. The first bytes of the writer. */
void kv_rdb_put_head(struct kv_rdb_writer *w, const struct kv_rdb_notes *notes,
                     const struct kv_rdb_kept *kept);

/* The entries that follow are of this database. The sizes are hints for the reader. */
void kv_rdb_put_database(struct kv_rdb_writer *w, uint32_t db, uint64_t keys, uint64_t expires);

/* One key with its value; flags: enum kv_rdb_entry_flags. Lock of its shard. */
void kv_rdb_put_entry(struct kv_rdb_writer *w, const struct kv_view *v, const struct kv_entry *e,
                      uint32_t flags);

/* All of it but the value. */
void kv_rdb_put_entry_head(struct kv_rdb_writer *w, const struct kv_view *v,
                           const struct kv_entry *e, uint32_t flags);

/* The end, checksum (0 without checksums) and version included. Does not flush. */
void kv_rdb_put_tail(struct kv_rdb_writer *w, const struct kv_rdb_kept *kept);

/* [alone] The whole keyspace, but for what is due. Flushes; KV_ERR_IO: w->error has the reason. */
enum kv_err kv_rdb_save(struct kv_rdb_writer *w, struct kv_view *v,
                        const struct kv_rdb_notes *notes, const struct kv_rdb_kept *kept,
                        uint32_t flags) KV_MUST_CHECK;

/* Bytes from one step to the next by which a file reaches the disk as it grows. */
#define KV_RDB_SYNC_BYTES ((uint64_t)4 << 20)

/* Writes a file whole or not at all: a temporary one beside it, fsync, rename. */
struct kv_rdb_save_options {
    struct kv_rdb_notes notes;
    const struct kv_rdb_kept *kept; /* or NULL */
    uint32_t flags;                 /* enum kv_rdb_entry_flags */
    bool compress, checksums;
    bool incremental_sync; /* the file reaches the disk as it grows (rdb-save-incremental-fsync) */
};
/* [alone] KV_ERR_IO: *error is the errno. */
enum kv_err kv_rdb_save_path(const char *path, struct kv_view *v,
                             const struct kv_rdb_save_options *o, int *error) KV_MUST_CHECK;

/* --- reading --- */

/* What a file says of a key before its value. */
struct kv_rdb_record {
    uint32_t db;
    uint8_t form;
    struct kv_slice name;
    int64_t expiry;       /* or KV_NO_EXPIRY */
    int64_t idle_seconds; /* -1: not told */
    int64_t frequency;    /* likewise */
};

/* A loading that puts nothing: somebody else reads the keys (kv_rdb_next_record), who is told where
 * they lie. Each but `begin`: false when the reader has a fault. */
struct kv_rdb_walk {
    /* A key, with what is told of it before, or something else begins at r->at. */
    void (*begin)(void *arg, struct kv_rdb_reader *r);
    /* Name and value of a key of this form are next: takes both. */
    bool (*key)(void *arg, struct kv_rdb_reader *r, uint8_t form);
    /* What is told of a key before it has a fault; true: the key was taken in another way. */
    bool (*apart)(void *arg, struct kv_rdb_reader *r);
    /* What begins is no key; its first byte was taken. */
    bool (*other)(void *arg, struct kv_rdb_reader *r);
};

struct kv_rdb_load {
    /* set by the caller */
    bool keep_due;            /* a replica: its master says what goes */
    bool merge;               /* keys of the file replace those that are there; else a key
                                 that is there is a fault */
    struct kv_rdb_kept *kept; /* gets what is kept; NULL: it is dropped */
    uint64_t progress_bytes;  /* how often the next is called; 0: never */
    bool (*progress)(void *arg, const struct kv_rdb_load *l, uint64_t offset); /* false: give up */
    const struct kv_rdb_walk *walk; /* NULL: the loading puts the keys itself */
    void *arg;                      /* of progress and walk */
    /* filled in */
    uint32_t version;
    bool valkey;
    struct kv_rdb_notes notes;
    uint64_t keys;      /* in the keyspace now */
    uint64_t expired;   /* left out as due */
    uint64_t empty;     /* left out as collections without members */
    uint64_t metadata;  /* keys whose modules' metadata was dropped */
    uint64_t announced; /* keys that the file's sizes announced so far */
    uint64_t expected;  /* of them in the current database, as far as the rest of the file has room
                           for them; 0: not known */
};

/* [alone] Reads a file up to its end's checksum, which is compared when the reader keeps one. On
 * failure the reader has the fault, and what was read before it is in the keyspace. Bytes behind
 * the end are left. KV_ERR_CLOSED: progress or the reader gave up. With l->walk nothing is held,
 * and the view need only tell its store. */
enum kv_err kv_rdb_load(struct kv_rdb_reader *r, struct kv_view *v,
                        struct kv_rdb_load *l) KV_MUST_CHECK;

/* The next key of a run of them, of a file that another loading walks over: all but its database
 * and the value, which is next in the reader then. l->valkey is known; metadata is counted. The
 * name is good as `name` is, whose text is kept (struct kv_rdb_string). */
bool kv_rdb_next_record(struct kv_rdb_reader *r, struct kv_rdb_load *l,
                        struct kv_rdb_record *record, struct kv_rdb_string *name) KV_MUST_CHECK;

/* One key of a file: puts its value, which is next in the loader's reader, or (`built`, unless it
 * is NULL) was read before. Counts in l->keys and l->empty. Lock of the key's shard in the
 * loader's view, whose database is the record's. False: the loader's reader has the fault. */
bool kv_rdb_put_record(struct kv_rdb_loader *loader, const struct kv_rdb_record *record,
                       const struct kv_key *k, struct kv_rdb_built *built,
                       struct kv_rdb_load *l) KV_MUST_CHECK;

#endif
