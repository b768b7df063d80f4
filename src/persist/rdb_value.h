/* Values in the RDB format: from an entry to bytes, and from bytes into the keyspace.
 *
 * Terms
 *   form     what a type byte announces; a type of values has several, by age and encoding
 *   foreign  a form of a type that is not built (streams, modules): it is walked through, kept as
 *            it is (store/foreign.h) and written back unchanged
 *
 * Reading takes nothing on trust: every length is bounded by what is there, packed lists, ziplists,
 * zipmaps and intsets are looked through item by item, members that come twice are a fault. What is
 * small enough by our limits (kv_store_limits) becomes packed, be it large in the file or not.
 *
 * Threads: a loader belongs to one thread, which holds the lock of the key's shard, or has `built`
 * set and holds nothing.
 */
#ifndef KV_PERSIST_RDB_VALUE_H
#define KV_PERSIST_RDB_VALUE_H

#include "persist/rdb_foreign.h"
#include "persist/rdb_format.h"
#include "persist/rdb_io.h"
#include "store/collection.h"
#include "store/foreign.h"

/* --- writing --- */

/* The form in which an entry is written, and the lowest version of the format that has it. */
uint8_t kv_rdb_form(const struct kv_entry *e);
uint32_t kv_rdb_form_version(uint8_t form);

/* The value alone, in that form. */
void kv_rdb_put_value(struct kv_rdb_writer *w, const struct kv_entry *e);

/* --- reading --- */

/* A value that was read and looked through, before it has a place. */
struct kv_rdb_built {
    enum kv_rdb_built_kind {
        KV_RDB_BUILT_TEXT,    /* a string: bytes */
        KV_RDB_BUILT_BYTES,   /* a packed collection: type, encoding, bytes, due */
        KV_RDB_BUILT_LARGE,   /* a structure: type, encoding, large */
        KV_RDB_BUILT_FOREIGN, /* type, form, module, bytes */
        KV_RDB_BUILT_NOTHING, /* a collection without members: none of them */
    } kind;
    enum kv_type type;
    enum kv_encoding encoding;
    uint8_t form;
    struct kv_slice bytes; /* borrowed from the loader until it reads its next value */
    int64_t due;           /* of KV_ENC_LISTPACKEX: the earliest due time, or KV_NOT_DUE */
    void *large;           /* owned; NULL: it has been put */
    char module[KV_RDB_MODULE_NAME];
};

/* Reads values; keeps scratch memory from one to the next. */
struct kv_rdb_loader {
    struct kv_rdb_reader *reader;
    struct kv_view *view;
    const struct kv_collection_limits *limits; /* the store's; of another thread's loader: a copy */
    struct kv_rdb_built *built;       /* gets each value; NULL: it goes into the keyspace at once */
    struct kv_rdb_string name, value; /* of the member that is read */
    struct kv_rdb_bytes list;         /* a packed list that is being built */
    struct kv_rdb_bytes marks;        /* which members a packed list has */
};

/* Where a value goes. */
struct kv_rdb_target {
    const struct kv_key *key;
    struct kv_entry *entry; /* what is there (NULL: nothing); then the new one */
    int64_t expiry;
};

void kv_rdb_loader_init(struct kv_rdb_loader *l, struct kv_rdb_reader *r, struct kv_view *v);
void kv_rdb_loader_release(struct kv_rdb_loader *l);

enum kv_rdb_result {
    KV_RDB_PUT,    /* the value is in the keyspace */
    KV_RDB_EMPTY,  /* a collection without members: nothing was put */
    KV_RDB_FAILED, /* the reader has the fault; nothing was put */
};

/* Reads the value of a form and puts it under the target's key in place of what is there, or leaves
 * it in l->built, with no lock and without a look at the keyspace. */
enum kv_rdb_result kv_rdb_take_value(struct kv_rdb_loader *l, uint8_t form,
                                     struct kv_rdb_target *t) KV_MUST_CHECK;

/* Puts a value that was built; lock of the key's shard. A failure is the reader's fault then, and
 * the value stays the caller's. */
enum kv_rdb_result kv_rdb_put_built(struct kv_view *v, struct kv_rdb_reader *r,
                                    struct kv_rdb_target *t, struct kv_rdb_built *b) KV_MUST_CHECK;
void kv_rdb_built_release(struct kv_rdb_built *b); /* also after it was put */

/* Frees the structure of a collection, or NULL. */
void kv_rdb_large_free(enum kv_type type, void *large);

/* For the folder: the value is complete. Takes over b->large unless it fails. */
enum kv_rdb_result kv_rdb_deliver(struct kv_rdb_loader *l, struct kv_rdb_target *t,
                                  struct kv_rdb_built *b) KV_MUST_CHECK;

/* Walks over the value of a form without keeping anything. */
bool kv_rdb_skip_value(struct kv_rdb_reader *r, uint8_t form) KV_MUST_CHECK;

#endif
