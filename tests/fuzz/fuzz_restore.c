/* Payloads of RESTORE: whatever the bytes, a value is put whole or not at all, and what was put is
 * the same when it is dumped and restored.
 *
 * The first byte chooses: bit 0 collections are not packed, bit 1 the payload is Valkey's, bits 2
 * and up a try allocation that fails (0: none). The second is the form, then comes the value. */
#include "fuzz/store_rig.h"
#include "persist/rdb_payload.h"

#define INPUT_MAX (1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static enum kv_rdb_result take(struct store_rig *rig, struct kv_slice value, uint8_t form,
                               bool valkey, const char *name)
{
    struct kv_rdb_reader r;
    struct kv_rdb_loader l;
    struct kv_key k = kv_store_key(rig->store, kv_slice_cstr(name));
    struct kv_rdb_target t = {.key = &k, .expiry = KV_NO_EXPIRY};
    t.entry = kv_store_write(&rig->view, &k);
    kv_rdb_reader_init(&r, value);
    r.valkey = valkey;
    kv_rdb_loader_init(&l, &r, &rig->view);
    enum kv_rdb_result result = kv_rdb_take_value(&l, form, &t);
    KV_ASSERT((result == KV_RDB_FAILED) == (r.err != KV_OK));
    kv_rdb_loader_release(&l);
    return result;
}

static void dump_and_restore(struct store_rig *rig)
{
    uint8_t first[20], second[20];
    struct kv_rdb_writer w;
    struct kv_rdb_reader r;
    struct kv_key k = kv_store_key(rig->store, KV_SLICE("k"));
    struct kv_key copy = kv_store_key(rig->store, KV_SLICE("copy"));
    struct kv_rdb_target t = {.key = &copy, .expiry = KV_NO_EXPIRY};
    const struct kv_entry *e = kv_store_peek(&rig->view, &k);
    kv_entry_digest(e, first);
    kv_rdb_writer_init(&w);
    w.compress = true;
    kv_rdb_put_payload(&w, e);
    KV_ASSERT(kv_rdb_payload_valid(kv_rdb_writer_bytes(&w)));
    bool taken = kv_rdb_take_payload(kv_rdb_writer_bytes(&w), &r, &rig->view, &t);
    KV_ASSERT(taken);
    kv_entry_digest(kv_store_peek(&rig->view, &copy), second);
    KV_ASSERT(memcmp(first, second, sizeof(first)) == 0);
    kv_rdb_writer_release(&w);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct store_rig rig;
    if (size < 2 || size > INPUT_MAX)
        return 0;
    store_rig_start(&rig, !(data[0] & 1));
    struct kv_slice value = kv_slice((const char *)data + 2, size - 2);
    kv_mem_fail_try(data[0] >> 2);
    enum kv_rdb_result result = take(&rig, value, data[1], data[0] & 2, "k");
    kv_mem_fail_try(0);
    struct kv_key k = kv_store_key(rig.store, KV_SLICE("k"));
    KV_ASSERT((result == KV_RDB_PUT) == (kv_store_peek(&rig.view, &k) != NULL));
    if (result == KV_RDB_PUT)
        dump_and_restore(&rig);
    store_rig_end(&rig);
    return 0;
}
