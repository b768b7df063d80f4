/* Writing values. Packed lists and integer sets are written as they lie in memory, since they are
 * the format's own; large collections member by member, which any version reads.
 *
 * Two packed forms are not written as such: a set's listpack, which the versions before Redis 7.2
 * do not know (its members are written one by one, as few as they are), and lists with due times,
 * whose items the format wants in another order.
 *
 * Members that are due but not removed yet are written like all others; who reads them will not see
 * them either.
 */
#include "ds/intset.h"
#include "persist/rdb_value.h"
#include "store/foreign.h"
#include "store/zset.h"
#include "value/list.h"

static void find_first_due(const struct kv_member *m, void *arg)
{
    int64_t *first = arg;
    if (m->due != KV_NOT_DUE && (*first == KV_NOT_DUE || m->due < *first))
        *first = m->due;
}

/* Earliest due time of a member, or KV_NOT_DUE: a form for due times that holds none is written as
 * what it is without them. */
static int64_t first_due(const struct kv_entry *e)
{
    int64_t first = KV_NOT_DUE;
    switch (kv_entry_encoding(e)) {
    case KV_ENC_LISTPACKEX:
        kv_entry_each_member(e, find_first_due, &first);
        return first;
    case KV_ENC_HASHTABLE:
        return kv_dict_first_due(kv_entry_large(e));
    case KV_ENC_SKIPLIST:
        return kv_zset_first_due(kv_entry_large(e));
    default:
        return KV_NOT_DUE;
    }
}

uint8_t kv_rdb_form(const struct kv_entry *e)
{
    enum kv_encoding encoding = kv_entry_encoding(e);
    bool dues = first_due(e) != KV_NOT_DUE;
    switch (kv_entry_type(e)) {
    case KV_TYPE_STRING:
        return KV_RDB_STRING;
    case KV_TYPE_LIST:
        return KV_RDB_LIST_QUICKLIST_2;
    case KV_TYPE_SET:
        if (encoding == KV_ENC_INTSET)
            return KV_RDB_SET_INTSET;
        return dues ? KV_RDB_SET_DUE : KV_RDB_SET;
    case KV_TYPE_ZSET:
        if (encoding == KV_ENC_LISTPACK)
            return KV_RDB_ZSET_LISTPACK;
        return dues ? KV_RDB_ZSET_DUE : KV_RDB_ZSET;
    case KV_TYPE_HASH:
        if (encoding == KV_ENC_LISTPACK)
            return KV_RDB_HASH_LISTPACK;
        return dues ? KV_RDB_HASH_DUE : KV_RDB_HASH;
    default:
        return kv_entry_foreign(e).tag;
    }
}

uint32_t kv_rdb_form_version(uint8_t form)
{
    switch (form) {
    case KV_RDB_SET_LISTPACK:
    case KV_RDB_STREAM_3:
        return 11;
    case KV_RDB_HASH_DUE:
    case KV_RDB_HASH_LISTPACK_DUE:
    case KV_RDB_SET_DUE:
    case KV_RDB_ZSET_DUE:
        return KV_RDB_VERSION_DUE;
    case KV_RDB_STREAM_4:
        return 13;
    case KV_RDB_STREAM_5:
        return 14;
    default:
        return KV_RDB_VERSION_MIN;
    }
}

/* --- members --- */

static void put_name(const struct kv_member *m, void *arg)
{
    kv_rdb_put_string(arg, m->name);
}

static void put_name_and_due(const struct kv_member *m, void *arg)
{
    kv_rdb_put_string(arg, m->name);
    kv_rdb_put_uint64(arg, m->due != KV_NOT_DUE ? (uint64_t)m->due : 0);
}

static void put_field(const struct kv_member *m, void *arg)
{
    kv_rdb_put_string(arg, m->name);
    kv_rdb_put_string(arg, m->value);
}

struct due_fields {
    struct kv_rdb_writer *w;
    int64_t first;
};

static void put_field_and_due(const struct kv_member *m, void *arg)
{
    const struct due_fields *f = arg;
    kv_rdb_put_len(f->w, m->due == KV_NOT_DUE ? 0 : (uint64_t)(m->due - f->first) + 1);
    put_field(m, f->w);
}

static void put_scored(const struct kv_member *m, void *arg)
{
    double score = 0;
    bool valid = kv_double_parse(m->value, &score);
    KV_ASSERT(valid);
    kv_rdb_put_string(arg, m->name);
    kv_rdb_put_double(arg, score);
}

static void put_scored_and_due(const struct kv_member *m, void *arg)
{
    put_scored(m, arg);
    kv_rdb_put_uint64(arg, m->due != KV_NOT_DUE ? (uint64_t)m->due : 0);
}

/* Members of any set, hash or sorted set. */
static uint64_t members_of(const struct kv_entry *e)
{
    size_t len;
    if (kv_entry_is_large(e))
        return kv_entry_elements(e);
    const uint8_t *bytes = kv_entry_bytes(e, &len);
    bool dues = kv_entry_encoding(e) == KV_ENC_LISTPACKEX;
    if (kv_entry_encoding(e) == KV_ENC_INTSET)
        return kv_intset_count(bytes);
    unsigned stride = (kv_entry_type(e) == KV_TYPE_SET ? 1 : 2) + dues;
    return kv_packed_count(bytes + (dues ? KV_LISTPACKEX_HEAD : 0)) / stride;
}

static void put_members(struct kv_rdb_writer *w, const struct kv_entry *e,
                        void (*put)(const struct kv_member *m, void *arg))
{
    kv_rdb_put_len(w, members_of(e));
    kv_entry_each_member(e, put, w);
}

/* --- whole values --- */

static void put_text(struct kv_rdb_writer *w, const struct kv_entry *e)
{
    char scratch[KV_INT_TEXT_MAX];
    int64_t number;
    if (kv_entry_encoding(e) == KV_ENC_INT && kv_entry_string_int(e, &number))
        kv_rdb_put_int(w, number);
    else
        kv_rdb_put_string(w, kv_entry_string(e, scratch));
}

static void put_packed(struct kv_rdb_writer *w, const struct kv_entry *e)
{
    size_t len;
    const uint8_t *bytes = kv_entry_bytes(e, &len);
    kv_rdb_put_bytes(w, kv_slice((const char *)bytes, len));
}

static void put_list(struct kv_rdb_writer *w, const struct kv_entry *e)
{
    if (!kv_entry_is_large(e)) {
        kv_rdb_put_len(w, 1);
        kv_rdb_put_len(w, KV_RDB_CONTAINER_PACKED);
        put_packed(w, e);
        return;
    }
    const struct kv_list *l = kv_entry_large(e);
    kv_rdb_put_len(w, l->node_count);
    for (const struct kv_list_node *node = l->head; node != NULL; node = node->next) {
        const uint8_t *list = kv_list_packed(node);
        kv_rdb_put_len(w, KV_RDB_CONTAINER_PACKED);
        kv_rdb_put_bytes(w, kv_slice((const char *)list, kv_packed_bytes(list)));
    }
}

static void put_zset(struct kv_rdb_writer *w, const struct kv_entry *e)
{
    struct kv_order_cursor c;
    if (!kv_entry_is_large(e)) {
        put_members(w, e, put_scored);
        return;
    }
    const struct kv_zset *z = kv_entry_large(e);
    kv_rdb_put_len(w, kv_zset_count(z));
    for (bool more = kv_order_at(&z->order, 0, &c); more; more = kv_order_next(&c)) {
        const struct kv_scored *m = kv_zset_at(&c);
        kv_rdb_put_string(w, kv_scored_name(m));
        kv_rdb_put_double(w, m->score);
    }
}

static void put_due_hash(struct kv_rdb_writer *w, const struct kv_entry *e)
{
    struct due_fields f = {w, first_due(e)};
    KV_ASSERT(f.first != KV_NOT_DUE);
    kv_rdb_put_uint64(w, (uint64_t)f.first);
    kv_rdb_put_len(w, members_of(e));
    kv_entry_each_member(e, put_field_and_due, &f);
}

void kv_rdb_put_value(struct kv_rdb_writer *w, const struct kv_entry *e)
{
    struct kv_slice payload;
    switch (kv_rdb_form(e)) {
    case KV_RDB_STRING:
        put_text(w, e);
        return;
    case KV_RDB_LIST_QUICKLIST_2:
        put_list(w, e);
        return;
    case KV_RDB_SET_INTSET:
    case KV_RDB_HASH_LISTPACK:
    case KV_RDB_ZSET_LISTPACK:
        put_packed(w, e);
        return;
    case KV_RDB_SET:
        put_members(w, e, put_name);
        return;
    case KV_RDB_SET_DUE:
        put_members(w, e, put_name_and_due);
        return;
    case KV_RDB_HASH:
        put_members(w, e, put_field);
        return;
    case KV_RDB_HASH_DUE:
        put_due_hash(w, e);
        return;
    case KV_RDB_ZSET:
        put_zset(w, e);
        return;
    case KV_RDB_ZSET_DUE:
        put_members(w, e, put_scored_and_due);
        return;
    default:
        payload = kv_entry_foreign(e).payload;
        kv_rdb_put(w, payload.ptr, payload.len);
        return;
    }
}
