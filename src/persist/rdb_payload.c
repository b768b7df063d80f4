/* Payloads of DUMP. The version that is written is the lowest that has the value's form, so that as
 * many servers as possible take it. A payload always has its sum; 0 says nothing here, unlike in
 * files.
 *
 * Some form numbers mean different things to Redis and Valkey. Files tell by their first bytes
 * whose they are, payloads by the version: Valkey counts from 80.
 */
#include "persist/rdb_payload.h"
#include "base/crc64.h"

void kv_rdb_put_payload_tail(struct kv_rdb_writer *w, uint32_t version)
{
    kv_rdb_put_byte(w, (uint8_t)version);
    kv_rdb_put_byte(w, (uint8_t)(version >> 8));
    kv_rdb_put_uint64(w, kv_rdb_writer_checksum(w));
}

void kv_rdb_put_payload(struct kv_rdb_writer *w, const struct kv_entry *e)
{
    uint8_t form = kv_rdb_form(e);
    kv_rdb_put_byte(w, form);
    kv_rdb_put_value(w, e);
    kv_rdb_put_payload_tail(w, kv_rdb_form_version(form));
}

static uint32_t version_of(struct kv_slice payload)
{
    const uint8_t *tail = (const uint8_t *)payload.ptr + payload.len - KV_RDB_PAYLOAD_TAIL;
    return tail[0] | (uint32_t)tail[1] << 8;
}

static bool is_valkey(uint32_t version)
{
    return version >= KV_RDB_VALKEY_MIN;
}

bool kv_rdb_payload_valid(struct kv_slice payload)
{
    uint64_t sum;
    if (payload.len < KV_RDB_PAYLOAD_TAIL)
        return false;
    uint32_t version = version_of(payload);
    if (version > (is_valkey(version) ? KV_RDB_VALKEY_MAX : KV_RDB_VERSION_MAX))
        return false;
    memcpy(&sum, payload.ptr + payload.len - sizeof(sum), sizeof(sum));
    return sum == kv_crc64(0, payload.ptr, payload.len - sizeof(sum));
}

bool kv_rdb_take_payload(struct kv_slice payload, struct kv_rdb_reader *r, struct kv_view *v,
                         struct kv_rdb_target *t)
{
    struct kv_rdb_loader l;
    uint8_t form;
    KV_ASSERT(payload.len >= KV_RDB_PAYLOAD_TAIL);
    kv_rdb_reader_init(r, kv_slice(payload.ptr, payload.len - KV_RDB_PAYLOAD_TAIL));
    r->valkey = is_valkey(version_of(payload));
    if (!kv_rdb_take_byte(r, &form))
        return false;
    kv_rdb_loader_init(&l, r, v);
    enum kv_rdb_result result = kv_rdb_take_value(&l, form, t);
    kv_rdb_loader_release(&l);
    if (result == KV_RDB_EMPTY)
        return KV_RDB_BAD(r, "the collection has no members");
    return result == KV_RDB_PUT;
}
