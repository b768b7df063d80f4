/* Payloads of DUMP, RESTORE and MIGRATE: one value with its form, and behind it the version of the
 * format (2 bytes, little-endian) and the CRC-64 of all before it. Threads as rdb_value.h. */
#ifndef KV_PERSIST_RDB_PAYLOAD_H
#define KV_PERSIST_RDB_PAYLOAD_H

#include "persist/rdb_value.h"

#define KV_RDB_PAYLOAD_TAIL 10u /* bytes of version and sum */

/* The end of a payload: version, and the sum of all that was put. */
void kv_rdb_put_payload_tail(struct kv_rdb_writer *w, uint32_t version);

/* The payload of an entry; whoever wants it looks at w->err. */
void kv_rdb_put_payload(struct kv_rdb_writer *w, const struct kv_entry *e);

/* False: the payload is too short, its sum is wrong, or its version is not known. */
bool kv_rdb_payload_valid(struct kv_slice payload) KV_MUST_CHECK;

/* Puts the value of a valid payload under the target's key. The reader, which is initialised here,
 * has the fault. An empty collection is a fault. */
bool kv_rdb_take_payload(struct kv_slice payload, struct kv_rdb_reader *r, struct kv_view *v,
                         struct kv_rdb_target *t) KV_MUST_CHECK;

#endif
