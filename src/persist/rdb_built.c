/* The last step of reading a value: into the keyspace, at once or by somebody else later.
 *
 * A loader that holds the lock of the key's shard puts the value itself. One that does not (the
 * thread that reads a file beside the workers) leaves it in a kv_rdb_built, for a worker to put;
 * what it borrows from the loader's scratch memory lasts until the loader's next value.
 */
#include "persist/rdb_value.h"
#include "value/dict.h"
#include "value/list.h"
#include "value/zset.h"

/* Room in the keyspace for bytes that are copied into it. */
static enum kv_err put_bytes(struct kv_view *v, struct kv_rdb_target *t,
                             const struct kv_rdb_built *b)
{
    size_t head = b->encoding == KV_ENC_LISTPACKEX ? KV_LISTPACKEX_HEAD : 0;
    uint8_t *bytes;
    enum kv_err err = head != 0
                          ? kv_store_put_due_bytes(v, t->key, &t->entry, b->type,
                                                   head + b->bytes.len, t->expiry, b->due, &bytes)
                          : kv_store_put_bytes(v, t->key, &t->entry, b->type, b->encoding,
                                               b->bytes.len, t->expiry, &bytes);
    if (err == KV_OK)
        memcpy(bytes + head, b->bytes.ptr, b->bytes.len);
    return err;
}

static enum kv_err put_foreign(struct kv_view *v, struct kv_rdb_target *t,
                               const struct kv_rdb_built *b)
{
    struct kv_foreign value = {
        .tag = b->form,
        .type_name =
            b->type == KV_TYPE_STREAM ? KV_SLICE("stream") : kv_slice(b->module, sizeof(b->module)),
        .payload = b->bytes,
    };
    return kv_store_put_foreign(v, t->key, &t->entry, b->type, &value, t->expiry);
}

enum kv_rdb_result kv_rdb_put_built(struct kv_view *v, struct kv_rdb_reader *r,
                                    struct kv_rdb_target *t, struct kv_rdb_built *b)
{
    enum kv_err err;
    switch (b->kind) {
    case KV_RDB_BUILT_NOTHING:
        return KV_RDB_EMPTY;
    case KV_RDB_BUILT_TEXT:
        /* Where due entries stay, one that nobody sees may be there. */
        if (t->entry == NULL && !(v->flags & KV_VIEW_NO_EXPIRE))
            err = kv_store_add(v, t->key, b->bytes, t->expiry);
        else
            err = kv_store_set(v, t->key, b->bytes, t->expiry, NULL);
        break;
    case KV_RDB_BUILT_BYTES:
        err = put_bytes(v, t, b);
        break;
    case KV_RDB_BUILT_LARGE:
        err = kv_store_put_large(v, t->key, &t->entry, b->type, b->encoding, b->large, t->expiry);
        if (err == KV_OK)
            b->large = NULL;
        break;
    default:
        err = put_foreign(v, t, b);
        break;
    }
    if (KV_LIKELY(err == KV_OK))
        return KV_RDB_PUT;
    kv_rdb_fail(r, err, "out of memory");
    return KV_RDB_FAILED;
}

enum kv_rdb_result kv_rdb_deliver(struct kv_rdb_loader *l, struct kv_rdb_target *t,
                                  struct kv_rdb_built *b)
{
    if (l->built == NULL)
        return kv_rdb_put_built(l->view, l->reader, t, b);
    *l->built = *b;
    b->large = NULL;
    return KV_RDB_PUT;
}

void kv_rdb_large_free(enum kv_type type, void *large)
{
    if (large == NULL)
        return;
    if (type == KV_TYPE_LIST)
        kv_list_free(large);
    else if (type == KV_TYPE_ZSET)
        kv_zset_free(large);
    else
        kv_dict_free(large);
}

void kv_rdb_built_release(struct kv_rdb_built *b)
{
    kv_rdb_large_free(b->type, b->large);
    b->large = NULL;
}
