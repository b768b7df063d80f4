/* Values of types that are not built: what a file or a RESTORE brought is kept as it came, under
 * its key, and given back unchanged. Such a value has a type (KV_TYPE_STREAM, KV_TYPE_OTHER), so
 * every command of another type answers WRONGTYPE; expiry, DEL, RENAME, COPY and digests work as
 * for all values. What the bytes mean is known to those who write and read them (src/persist).
 *
 * Bytes of KV_ENC_FOREIGN: tag, length of the type's name, the name, the payload.
 *
 * Failure: KV_ERR_NOMEM has changed nothing. Threads: under the lock of the key's shard. */
#ifndef KV_STORE_FOREIGN_H
#define KV_STORE_FOREIGN_H

#include "store/collection.h"

struct kv_foreign {
    uint8_t tag;               /* the form of the payload: RDB's type byte */
    struct kv_slice type_name; /* as TYPE tells it; at most 255 bytes */
    struct kv_slice payload;
};

/* The parts of an entry of KV_ENC_FOREIGN; borrows it. */
struct kv_foreign kv_entry_foreign(const struct kv_entry *e);

/* Makes `k` a foreign value, whatever it was: *e and expiry as for kv_store_put_bytes. */
enum kv_err kv_store_put_foreign(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                 enum kv_type type, const struct kv_foreign *value,
                                 int64_t expiry) KV_MUST_CHECK;

/* TYPE and OBJECT ENCODING of any entry. */
struct kv_slice kv_entry_type_name(const struct kv_entry *e);
const char *kv_entry_encoding_name(const struct kv_entry *e);

#endif
