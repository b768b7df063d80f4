/* Foreign values: bytes that are carried and not understood. The layout is drawn in foreign.h.
 *
 * They are laid out like small collections, beside the key or in a block of their own, so nothing
 * else of the keyspace has to know them: footprint, copy, move and free treat them as bytes.
 *
 * The name of the type lies with the value because it belongs to it: modules name their types
 * themselves, and there may be several in one keyspace.
 */
#include "store/foreign.h"

#define HEAD_BYTES 2u /* tag and length of the name */
#define NAME_MAX_BYTES 255u

struct kv_foreign kv_entry_foreign(const struct kv_entry *e)
{
    size_t len;
    const uint8_t *bytes = kv_entry_bytes(e, &len);
    KV_DASSERT(kv_entry_encoding(e) == KV_ENC_FOREIGN);
    KV_DASSERT(len >= HEAD_BYTES && len >= HEAD_BYTES + bytes[1]);
    const char *name = (const char *)bytes + HEAD_BYTES;
    size_t head = HEAD_BYTES + bytes[1];
    return (struct kv_foreign){
        .tag = bytes[0],
        .type_name = kv_slice(name, bytes[1]),
        .payload = kv_slice((const char *)bytes + head, len - head),
    };
}

enum kv_err kv_store_put_foreign(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                 enum kv_type type, const struct kv_foreign *value, int64_t expiry)
{
    size_t name_len = value->type_name.len;
    uint8_t *bytes;
    KV_ASSERT(type == KV_TYPE_STREAM || type == KV_TYPE_OTHER);
    KV_ASSERT(name_len > 0 && name_len <= NAME_MAX_BYTES);
    enum kv_err err = kv_store_put_bytes(
        v, k, e, type, KV_ENC_FOREIGN, HEAD_BYTES + name_len + value->payload.len, expiry, &bytes);
    if (err != KV_OK)
        return err;
    bytes[0] = value->tag;
    bytes[1] = (uint8_t)name_len;
    memcpy(bytes + HEAD_BYTES, value->type_name.ptr, name_len);
    if (value->payload.len != 0)
        memcpy(bytes + HEAD_BYTES + name_len, value->payload.ptr, value->payload.len);
    return KV_OK;
}

struct kv_slice kv_entry_type_name(const struct kv_entry *e)
{
    if (KV_UNLIKELY(kv_entry_encoding(e) == KV_ENC_FOREIGN))
        return kv_entry_foreign(e).type_name;
    return kv_slice_cstr(kv_type_name(kv_entry_type(e)));
}

const char *kv_entry_encoding_name(const struct kv_entry *e)
{
    /* Redis says so of every module's value. */
    if (KV_UNLIKELY(kv_entry_type(e) == KV_TYPE_OTHER))
        return kv_encoding_name(KV_ENC_RAW);
    return kv_encoding_name(kv_entry_encoding(e));
}
