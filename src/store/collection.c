/* Collections in the keyspace: putting, splicing, counting.
 *
 * All follow the pattern of change.c: what can fail comes first, kv_shard_place is the last step of
 * it, then bytes move and the old entry goes. A splice that stays within its block moves the tail
 * and writes a length; that is the usual case, since blocks of entries come in steps of an eighth.
 *
 * Bytes in a block of their own grow greedily (kv_bigstr_reserve) and give room back when more than
 * three quarters of the block would be empty.
 */
#include "store/collection.h"
#include "ds/intset.h"
#include "store/store_priv.h"
#include "store/zset.h"
#include "value/list.h"

#define SHRINK_FACTOR 4u

const struct kv_collection_limits kv_collection_limits_default = {
    .hash_max_listpack_entries = 512,
    .hash_max_listpack_value = 64,
    .set_max_intset_entries = 512,
    .set_max_listpack_entries = 128,
    .set_max_listpack_value = 64,
    .zset_max_listpack_entries = 128,
    .zset_max_listpack_value = 64,
    .list_max_listpack_size = -2,
};

void kv_store_set_limits(struct kv_store *s, const struct kv_collection_limits *limits)
{
    s->limits = *limits;
}

const struct kv_collection_limits *kv_store_limits(const struct kv_store *s)
{
    return &s->limits;
}

const struct kv_hash_key *kv_store_hash_key(const struct kv_store *s)
{
    return &s->hash_key;
}

/* Where a change happens. */
struct place {
    struct kv_shard *shard;
    struct kv_database *database;
    struct kv_entry *old; /* what is in the table: the caller's entry, or a due one that it does not
                             see */
};

KV_INLINE struct place find_place(struct kv_view *v, const struct kv_key *k, struct kv_entry *e)
{
    struct place p = {.shard = shard_of(v->store, k->hash), .old = e};
    p.database = shard_database_get(v->store, p.shard, v->db);
    if (KV_UNLIKELY(e == NULL && v->flags & KV_VIEW_NO_EXPIRE))
        p.old = database_find(p.database, k);
    KV_DASSERT(database_find(p.database, k) == p.old);
    if (p.old != NULL)
        snapshot_keep(v, v->db, p.old);
    return p;
}

/* The form of a key's new value: its time to live and access clock. */
KV_INLINE struct entry_form form_at(struct kv_view *v, const struct kv_key *k,
                                    const struct kv_entry *e, enum kv_type type,
                                    enum kv_encoding encoding, int64_t expiry)
{
    if (expiry == KV_KEEP_EXPIRY)
        expiry = e != NULL ? kv_entry_expiry(e) : KV_NO_EXPIRY;
    return (struct entry_form){
        .key = kv_slice(k->ptr, k->len),
        .expiry = expiry,
        .access = access_when_set(v, e),
        .type_encoding = type_encoding_of(type, encoding),
        .epoch = v->store->epoch,
    };
}

/* Builds a form of `len` bytes that the caller writes; NULL: no memory. */
static struct kv_entry *build_bytes(struct entry_form *f, size_t len, uint8_t **bytes)
{
    struct kv_bigstr *large = NULL;
    f->value = NULL;
    f->value_len = len;
    f->pointer = !entry_embeds(f->key.len, len, f->expiry);
    if (f->pointer) {
        large = kv_bigstr_try_create(len, KV_MEM_VALUE);
        if (large == NULL)
            return NULL;
        f->value = &large;
        f->value_len = ENTRY_WORD;
    }
    struct kv_entry *built = kv_entry_build(f);
    if (built == NULL && large != NULL)
        kv_bigstr_unref(large);
    if (built != NULL)
        *bytes = large != NULL ? (uint8_t *)large->data : entry_parts(built).value;
    return built;
}

/* Puts an entry in the place of the old one, which is then the caller's. On failure the new one is
 * freed, but not what it points to when that is a large collection. */
static enum kv_err place_at(struct kv_view *v, const struct place *p, uint64_t hash,
                            struct kv_entry *built)
{
    enum kv_err err = kv_shard_place(p->shard, p->database, hash, p->old, built);
    if (KV_LIKELY(err == KV_OK)) {
        if (p->old == NULL)
            store_added(v, v->db, hash, built);
        return KV_OK;
    }
    if (kv_entry_is_large(built))
        kv_mem_free_movable(built, kv_entry_size(built), KV_MEM_ENTRY);
    else
        kv_entry_destroy(built);
    return err;
}

KV_INLINE enum kv_err put_bytes(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                const struct place *p, struct entry_form *f, size_t len,
                                int64_t due, uint8_t **bytes)
{
    struct kv_entry *built = build_bytes(f, len, bytes);
    if (KV_UNLIKELY(built == NULL))
        return KV_ERR_NOMEM;
    if (kv_entry_encoding(built) == KV_ENC_LISTPACKEX)
        memcpy(*bytes, &due, sizeof(due));
    enum kv_err err = place_at(v, p, k->hash, built);
    if (KV_UNLIKELY(err != KV_OK))
        return err;
    if (p->old != NULL)
        entry_retire(v, p->old);
    *e = built;
    return KV_OK;
}

enum kv_err kv_store_put_bytes(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_type type, enum kv_encoding encoding, size_t len,
                               int64_t expiry, uint8_t **bytes)
{
    struct place p = find_place(v, k, *e);
    struct entry_form f = form_at(v, k, *e, type, encoding, expiry);
    return put_bytes(v, k, e, &p, &f, len, KV_NOT_DUE, bytes);
}

enum kv_err kv_store_put_due_bytes(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                   enum kv_type type, size_t len, int64_t expiry, int64_t due,
                                   uint8_t **bytes)
{
    struct place p = find_place(v, k, *e);
    struct entry_form f = form_at(v, k, *e, type, KV_ENC_LISTPACKEX, expiry);
    KV_ASSERT(due == KV_NOT_DUE || (due >= 0 && due <= KV_EXPIRY_MAX));
    return put_bytes(v, k, e, &p, &f, len, due, bytes);
}

/* --- splicing --- */

/* What a splice does to the bytes. */
struct splice {
    size_t at, remove, insert;
    size_t old_len, new_len;
};

/* Copies what stays to where it will be. */
static void copy_around(uint8_t *to, const uint8_t *from, const struct splice *s)
{
    size_t behind = s->old_len - s->at - s->remove;
    if (s->at != 0)
        memcpy(to, from, s->at);
    if (behind != 0)
        memcpy(to + s->at + s->insert, from + s->at + s->remove, behind);
}

static void move_tail(uint8_t *bytes, const struct splice *s)
{
    size_t behind = s->old_len - s->at - s->remove;
    if (behind != 0 && s->insert != s->remove)
        memmove(bytes + s->at + s->insert, bytes + s->at + s->remove, behind);
}

/* Within the entry's block. */
static void splice_in_place(struct kv_database *database, struct kv_entry *e,
                            const struct entry_parts *parts, const struct splice *s)
{
    uint8_t *len_end = (uint8_t *)(uintptr_t)parts->key.ptr;
    uint32_t wide = (uint32_t)s->new_len;
    if (!(e->flags & KV_ENTRY_LONG_VALUE))
        len_end[-1] = (uint8_t)s->new_len;
    else
        memcpy(len_end - sizeof(wide), &wide, sizeof(wide));
    move_tail(parts->value, s);
    database_count_used(database, s->old_len, s->new_len);
}

/* Within a block of its own, which may change its size. */
static enum kv_err splice_large(struct kv_database *database, struct kv_entry *e,
                                struct kv_bigstr *large, const struct splice *s, uint8_t **bytes)
{
    struct kv_footprint before = kv_entry_value_footprint(e);
    KV_DASSERT(!kv_bigstr_shared(large));
    if (s->new_len > large->len) {
        enum kv_err err = kv_bigstr_reserve(&large, s->new_len, true);
        if (err != KV_OK)
            return err;
        entry_write_pointer(e, large);
    }
    move_tail((uint8_t *)large->data, s);
    large->len = s->new_len;
    if (s->new_len < kv_bigstr_capacity(large) / SHRINK_FACTOR) {
        /* A wish: without memory it stays as it is. */
        struct kv_bigstr *smaller = kv_bigstr_try_create(s->new_len, KV_MEM_VALUE);
        if (smaller != NULL) {
            memcpy(smaller->data, large->data, s->new_len);
            kv_bigstr_unref(large);
            large = smaller;
            entry_write_pointer(e, large);
        }
    }
    database_count(database, kv_entry_type(e), before, kv_entry_value_footprint(e));
    *bytes = (uint8_t *)large->data;
    return KV_OK;
}

/* Around a copy: the block's class or the layout changes. */
static enum kv_err splice_rebuild(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                  const struct splice *s, uint8_t **bytes)
{
    struct place p = find_place(v, k, *e);
    struct entry_form f = kv_entry_form(*e);
    size_t len;
    const uint8_t *from = kv_entry_bytes(*e, &len);
    struct kv_entry *built = build_bytes(&f, s->new_len, bytes);
    if (built == NULL)
        return KV_ERR_NOMEM;
    copy_around(*bytes, from, s);
    enum kv_err err = place_at(v, &p, k->hash, built);
    if (err != KV_OK)
        return err;
    kv_entry_destroy(*e);
    *e = built;
    return KV_OK;
}

enum kv_err kv_store_splice(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                            size_t at, size_t remove, size_t insert, uint8_t **bytes)
{
    struct kv_database *database = shard_database(shard_of(v->store, k->hash), v->db);
    struct entry_parts parts = entry_parts(*e);
    struct kv_bigstr *large = kv_entry_bigstr(*e);
    struct splice s = {at, remove, insert, large != NULL ? large->len : parts.value_len, 0};
    KV_DASSERT(at + remove <= s.old_len);
    KV_DASSERT(snapshot_has(v, *e));
    s.new_len = s.old_len - remove + insert;
    bool embeds = entry_embeds(k->len, s.new_len, kv_entry_expiry(*e));
    if (large == NULL && embeds) {
        size_t size = entry_parts_size(*e, &parts);
        if (!((*e)->flags & KV_ENTRY_LONG_VALUE) == (s.new_len <= ENTRY_SHORT_MAX) &&
            kv_mem_same_block(size - s.old_len + s.new_len, size)) {
            splice_in_place(database, *e, &parts, &s);
            *bytes = parts.value;
            return KV_OK;
        }
    } else if (large != NULL && !embeds) {
        return splice_large(database, *e, large, &s, bytes);
    }
    return splice_rebuild(v, k, e, &s, bytes);
}

void kv_entry_set_encoding(struct kv_entry *e, enum kv_encoding encoding)
{
    KV_DASSERT(!kv_entry_is_large(e) && encoding < KV_ENC_LARGE && encoding > KV_ENC_INT);
    e->type_encoding = type_encoding_of(kv_entry_type(e), encoding);
}

/* --- large ones --- */

enum kv_err kv_store_put_large(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               enum kv_type type, enum kv_encoding encoding, void *large,
                               int64_t expiry)
{
    struct place p = find_place(v, k, *e);
    struct entry_form f = form_at(v, k, *e, type, encoding, expiry);
    KV_DASSERT(encoding >= KV_ENC_LARGE);
    f.pointer = true;
    f.value = &large;
    f.value_len = ENTRY_WORD;
    struct kv_entry *built = kv_entry_build(&f);
    enum kv_err err = built != NULL ? place_at(v, &p, k->hash, built) : KV_ERR_NOMEM;
    if (err != KV_OK)
        return err;
    if (p.old != NULL)
        entry_retire(v, p.old);
    *e = built;
    return KV_OK;
}

struct kv_footprint kv_store_large_begin(struct kv_view *v, const struct kv_entry *e)
{
    struct kv_guard *g = kv_entry_guard(e);
    if (KV_UNLIKELY(g != NULL))
        kv_sliced_finish(v, g);
    return kv_store_members_begin(e);
}

struct kv_footprint kv_store_members_begin(const struct kv_entry *e)
{
    KV_DASSERT(kv_entry_is_large(e));
    return kv_entry_value_footprint(e);
}

void kv_store_large_end(struct kv_view *v, const struct kv_key *k, struct kv_entry *e,
                        struct kv_footprint before)
{
    struct kv_database *database = shard_database(shard_of(v->store, k->hash), v->db);
    KV_DASSERT(snapshot_has(v, e));
    database_count(database, kv_entry_type(e), before, kv_entry_value_footprint(e));
}

void kv_entry_set_large(struct kv_entry *e, void *large)
{
    KV_DASSERT(kv_entry_is_large(e));
    entry_write_pointer(e, large);
}

/* --- visiting --- */

struct member_visit {
    void (*visit)(const struct kv_member *m, void *arg);
    void *arg;
};

static void visit_element(struct kv_element *e, void *arg)
{
    const struct member_visit *v = arg;
    struct kv_element_parts parts = kv_element_parts(e);
    struct kv_member m = {parts.name, parts.value, kv_element_due(e)};
    v->visit(&m, v->arg);
}

/* A packed list: each member is followed by its value, if the type has one, and its due time, if
 * the encoding has them. A sorted set's score lies there as the text that it is replied as. */
static void visit_packed(const struct kv_entry *e, const struct member_visit *v)
{
    bool pairs = kv_entry_type(e) == KV_TYPE_HASH || kv_entry_type(e) == KV_TYPE_ZSET;
    bool dues = kv_entry_encoding(e) == KV_ENC_LISTPACKEX;
    char name[KV_INT_TEXT_MAX], value[KV_INT_TEXT_MAX];
    size_t len;
    const uint8_t *list = kv_entry_bytes(e, &len) + (dues ? KV_LISTPACKEX_HEAD : 0);
    const uint8_t *at = kv_packed_first(list);
    while (!kv_packed_at_end(at)) {
        struct kv_member m = {.name = kv_packed_text(at, name), .due = KV_NOT_DUE};
        at = kv_packed_next(at);
        if (pairs) {
            m.value = kv_packed_text(at, value);
            at = kv_packed_next(at);
        }
        if (dues) {
            int64_t due = kv_packed_get(at).number;
            m.due = due != 0 ? due : KV_NOT_DUE;
            at = kv_packed_next(at);
        }
        v->visit(&m, v->arg);
    }
}

static void visit_integers(const struct kv_entry *e, const struct member_visit *v)
{
    size_t len;
    char text[KV_INT_TEXT_MAX];
    const uint8_t *set = kv_entry_bytes(e, &len);
    for (uint32_t i = 0; i < kv_intset_count(set); i++) {
        struct kv_member m = {.due = KV_NOT_DUE};
        m.name = kv_slice(text, kv_int_print(kv_intset_get(set, i), text));
        v->visit(&m, v->arg);
    }
}

static void visit_list(const struct kv_list *l, const struct member_visit *v)
{
    char scratch[KV_INT_TEXT_MAX];
    for (struct kv_list_pos p = kv_list_seek(l, 0); p.node != NULL; p = kv_list_next(p)) {
        struct kv_member m = {.name = kv_packed_text(p.at, scratch), .due = KV_NOT_DUE};
        v->visit(&m, v->arg);
    }
}

static void visit_ranked(const struct kv_zset *z, const struct member_visit *v)
{
    char text[KV_DOUBLE_TEXT_MAX];
    struct kv_order_cursor c;
    for (bool more = kv_order_at(&z->order, 0, &c); more; more = kv_order_next(&c)) {
        const struct kv_scored *s = kv_zset_at(&c);
        struct kv_member m = {kv_scored_name(s), kv_score_text(s->score, text), kv_scored_due(s)};
        v->visit(&m, v->arg);
    }
}

void kv_entry_each_member(const struct kv_entry *e,
                          void (*visit)(const struct kv_member *m, void *arg), void *arg)
{
    struct member_visit v = {visit, arg};
    switch (kv_entry_encoding(e)) {
    case KV_ENC_INTSET:
        visit_integers(e, &v);
        return;
    case KV_ENC_LISTPACK:
    case KV_ENC_LISTPACKEX:
        visit_packed(e, &v);
        return;
    case KV_ENC_HASHTABLE:
        kv_dict_each(kv_entry_large(e), visit_element, &v);
        return;
    case KV_ENC_QUICKLIST:
        visit_list(kv_entry_large(e), &v);
        return;
    case KV_ENC_SKIPLIST:
        visit_ranked(kv_entry_large(e), &v);
        return;
    default:
        KV_UNREACHABLE();
    }
}
