/* Pieces of large collections. The forms are those of rdb_put.c:
 *
 *   list           nodes; each a mark and a packed list
 *   set            members                 with due times: member, time
 *   sorted set     members and scores      with due times: member, score, time
 *   hash           fields and values       with due times: the earliest of them before the number
 * of fields; each field after its distance from it, plus one
 *
 * A due time of 0 means none; so does a distance of 0.
 *
 * Threads: as rdb_sliced.h.
 */
#include "persist/rdb_sliced.h"
#include "base/assert.h"
#include "persist/rdb_value.h"
#include "store/zset.h"

static int64_t first_due(const struct kv_entry *e)
{
    switch (kv_entry_encoding(e)) {
    case KV_ENC_HASHTABLE:
        return kv_dict_first_due(kv_entry_large(e));
    case KV_ENC_SKIPLIST:
        return kv_zset_first_due(kv_entry_large(e));
    default:
        return KV_NOT_DUE;
    }
}

void kv_rdb_put_sliced(struct kv_rdb_writer *w, const struct kv_entry *e, struct kv_rdb_sliced *out)
{
    KV_ASSERT(kv_entry_is_large(e));
    *out = (struct kv_rdb_sliced){kv_rdb_form(e), first_due(e)};
    if (out->form == KV_RDB_LIST_QUICKLIST_2) {
        kv_rdb_put_len(w, ((const struct kv_list *)kv_entry_large(e))->node_count);
        return;
    }
    if (out->form == KV_RDB_HASH_DUE)
        kv_rdb_put_uint64(w, (uint64_t)out->first_due);
    kv_rdb_put_len(w, kv_entry_elements(e));
}

static void put_due(struct kv_rdb_writer *w, int64_t due)
{
    kv_rdb_put_uint64(w, due != KV_NOT_DUE ? (uint64_t)due : 0);
}

void kv_rdb_put_sliced_item(struct kv_rdb_writer *w, const struct kv_rdb_sliced *s,
                            const struct kv_sliced_item *item)
{
    KV_DASSERT(item->due == KV_NOT_DUE || item->due >= s->first_due);
    switch (s->form) {
    case KV_RDB_LIST_QUICKLIST_2:
        kv_rdb_put_len(w, KV_RDB_CONTAINER_PACKED);
        kv_rdb_put_bytes(w, item->name);
        return;
    case KV_RDB_SET:
        kv_rdb_put_string(w, item->name);
        return;
    case KV_RDB_SET_DUE:
        kv_rdb_put_string(w, item->name);
        put_due(w, item->due);
        return;
    case KV_RDB_ZSET:
    case KV_RDB_ZSET_DUE:
        kv_rdb_put_string(w, item->name);
        kv_rdb_put_double(w, item->score);
        if (s->form == KV_RDB_ZSET_DUE)
            put_due(w, item->due);
        return;
    case KV_RDB_HASH_DUE:
        kv_rdb_put_len(w, item->due == KV_NOT_DUE ? 0 : (uint64_t)(item->due - s->first_due) + 1);
        kv_rdb_put_string(w, item->name);
        kv_rdb_put_string(w, item->value);
        return;
    case KV_RDB_HASH:
        kv_rdb_put_string(w, item->name);
        kv_rdb_put_string(w, item->value);
        return;
    default:
        KV_UNREACHABLE();
    }
}
