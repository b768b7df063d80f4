/* Due times of members: the record that a shard's index has of a collection, and removing what is
 * due. The layout of packed collections with due times is drawn in entry.h, their meaning in
 * collection.h.
 *
 * The record says a time no later than the earliest in the collection. It is moved when a member
 * gets an earlier one, and by whoever finds it too early: kv_store_purge_due ends by bringing it to
 * the true time. So it is never late, and prolonging or removing members does not touch the index.
 * Bringing it to a later time may need a node of the index and so memory; without it the old record
 * stays, still not late, and the next slice tries again.
 *
 * Where the record's time is kept: before the packed list, or in the structure of a large
 * collection. kv_shard_place and kv_shard_detach read it there, so that a collection that is
 * replaced, renamed, copied or deleted takes its record along.
 *
 * Threads: under the shard's lock.
 */
#include "base/clock.h"
#include "store/collection.h"
#include "store/store_priv.h"
#include "value/zset.h"

#define CLOCK_STEP 16u /* collections or members between two looks at the clock */
#define PURGE_STEP 64u /* members of one collection before others get their turn */

static int64_t *large_record(const struct kv_entry *e)
{
    switch (kv_entry_encoding(e)) {
    case KV_ENC_HASHTABLE:
        return &((struct kv_dict *)kv_entry_large(e))->registered_due;
    case KV_ENC_SKIPLIST:
        return &((struct kv_zset *)kv_entry_large(e))->registered_due;
    default:
        return NULL;
    }
}

int64_t kv_entry_member_due(const struct kv_entry *e)
{
    int64_t due = KV_NOT_DUE;
    size_t len;
    if (kv_entry_encoding(e) == KV_ENC_LISTPACKEX) {
        memcpy(&due, kv_entry_bytes(e, &len), sizeof(due));
    } else if (kv_entry_is_large(e)) {
        const int64_t *record = large_record(e);
        due = record != NULL ? *record : KV_NOT_DUE;
    }
    return due;
}

static void set_record(struct kv_entry *e, int64_t due)
{
    size_t len;
    if (kv_entry_encoding(e) == KV_ENC_LISTPACKEX)
        memcpy(kv_entry_bytes(e, &len), &due, sizeof(due));
    else
        *large_record(e) = due;
}

static enum kv_err change_record(struct kv_view *v, const struct kv_key *k, struct kv_entry *e,
                                 int64_t due)
{
    struct kv_shard *shard = shard_of(v->store, k->hash);
    struct kv_database *database = shard_database(shard, v->db);
    enum kv_err err =
        kv_shard_change_member_due(shard, database, k->hash, kv_entry_member_due(e), due);
    if (err == KV_OK)
        set_record(e, due);
    return err;
}

enum kv_err kv_store_register_due(struct kv_view *v, const struct kv_key *k, struct kv_entry *e,
                                  int64_t due)
{
    int64_t have = kv_entry_member_due(e);
    KV_ASSERT(due >= 0 && due <= KV_EXPIRY_MAX);
    if (have != KV_NOT_DUE && have <= due)
        return KV_OK;
    return change_record(v, k, e, due);
}

/* --- removing --- */

static unsigned stride_of(const struct kv_entry *e)
{
    return kv_entry_type(e) == KV_TYPE_SET ? 2 : 3;
}

/* Earliest due time in a packed list, or KV_NOT_DUE; *at is where its member lies. */
static int64_t packed_first_due(const struct kv_entry *e, uint8_t **at)
{
    size_t len;
    const uint8_t *list = kv_entry_bytes(e, &len) + KV_LISTPACKEX_HEAD;
    unsigned stride = stride_of(e);
    int64_t first = KV_NOT_DUE;
    uint8_t *p = kv_packed_first(list);
    while (!kv_packed_at_end(p)) {
        const uint8_t *due_at = kv_packed_skip(p, stride - 1);
        int64_t due = kv_packed_get(due_at).number;
        if (due != 0 && (first == KV_NOT_DUE || due < first)) {
            first = due;
            *at = p;
        }
        p = kv_packed_next(due_at);
    }
    return first;
}

static int64_t first_due(const struct kv_entry *e)
{
    uint8_t *at;
    switch (kv_entry_encoding(e)) {
    case KV_ENC_LISTPACKEX:
        return packed_first_due(e, &at);
    case KV_ENC_HASHTABLE:
        return kv_dict_first_due(kv_entry_large(e));
    case KV_ENC_SKIPLIST:
        return kv_zset_first_due(kv_entry_large(e));
    default:
        KV_UNREACHABLE();
    }
}

static void announce(struct kv_view *v, const struct kv_key *k, enum kv_type type,
                     struct kv_slice member)
{
    kv_stat_add(&v->stats->expired_members, 1);
    if (v->store->hooks.member_expired != NULL)
        v->store->hooks.member_expired(v, k, type, member);
}

/* Removes the member with the earliest due time, which has come. False: no memory for that. */
static bool remove_packed(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                          uint8_t *at)
{
    char scratch[KV_INT_TEXT_MAX];
    size_t len;
    uint8_t *bytes = kv_entry_bytes(*e, &len);
    uint8_t *next = kv_packed_skip(at, stride_of(*e));
    size_t removed = (size_t)(next - at);
    announce(v, k, kv_entry_type(*e), kv_packed_text(at, scratch));
    if (kv_store_splice(v, k, e, (size_t)(at - bytes), removed, 0, &bytes) != KV_OK)
        return false;
    kv_packed_resized(bytes + KV_LISTPACKEX_HEAD, len - removed - KV_LISTPACKEX_HEAD,
                      -(int64_t)stride_of(*e));
    return true;
}

static void remove_element(struct kv_view *v, const struct kv_key *k, struct kv_entry *e)
{
    struct kv_footprint before = kv_store_members_begin(e);
    if (kv_entry_encoding(e) == KV_ENC_SKIPLIST) {
        struct kv_zset *z = kv_entry_large(e);
        struct kv_scored *m = kv_zset_first_due_member(z);
        struct kv_slice name = kv_scored_name(m);
        uint64_t hash = kv_zset_hash(z, name);
        announce(v, k, kv_entry_type(e), name);
        large_keep_member(v, z->guard, name, hash);
        kv_zset_remove(z, m, hash);
    } else {
        struct kv_dict *d = kv_entry_large(e);
        struct kv_element *element = kv_dict_first_due_element(d);
        struct kv_slice name = kv_element_name(element);
        uint64_t hash = kv_dict_hash(d, name);
        announce(v, k, kv_entry_type(e), name);
        large_keep_member(v, d->guard, name, hash);
        kv_dict_remove(d, element, hash);
    }
    kv_store_large_end(v, k, e, before);
}

/* Removes one member if one is due. */
static bool remove_one(struct kv_view *v, const struct kv_key *k, struct kv_entry **e)
{
    uint8_t *at = NULL;
    int64_t due =
        kv_entry_encoding(*e) == KV_ENC_LISTPACKEX ? packed_first_due(*e, &at) : first_due(*e);
    if (due == KV_NOT_DUE || due > v->now_ms)
        return false;
    if (at != NULL)
        return remove_packed(v, k, e, at);
    remove_element(v, k, *e);
    return true;
}

static uint64_t elements(const struct kv_entry *e)
{
    size_t len;
    if (kv_entry_is_large(e))
        return kv_entry_elements(e);
    return kv_packed_count(kv_entry_bytes(e, &len) + KV_LISTPACKEX_HEAD);
}

/* The command that met due members changed nothing itself. */
static void announce_due(struct kv_view *v, const struct kv_key *k, enum kv_event_class event_class,
                         const char *event)
{
    uint64_t dirty = v->dirty;
    v->flags |= KV_VIEW_DUE;
    kv_store_changed(v, k, event_class, event);
    v->flags &= ~(uint32_t)KV_VIEW_DUE;
    v->dirty = dirty;
}

static void announce_purge(struct kv_view *v, const struct kv_key *k, enum kv_type type)
{
    if (type == KV_TYPE_HASH)
        announce_due(v, k, KV_EVENT_HASH, "hexpired");
    else if (type == KV_TYPE_SET)
        announce_due(v, k, KV_EVENT_SET, "sexpired");
    else
        announce_due(v, k, KV_EVENT_ZSET, "zexpired");
}

void kv_store_refresh_due(struct kv_view *v, const struct kv_key *k, struct kv_entry *e)
{
    int64_t due = first_due(e);
    /* Without memory the record stays early. */
    if (due != kv_entry_member_due(e) && change_record(v, k, e, due) != KV_OK)
        KV_DASSERT(kv_entry_member_due(e) <= due);
}

uint64_t kv_store_purge_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                            uint64_t limit)
{
    uint64_t removed = 0;
    enum kv_type type = kv_entry_type(*e);
    if (v->flags & KV_VIEW_NO_EXPIRE)
        return 0;
    snapshot_keep(v, v->db, *e);
    while (removed < limit && elements(*e) != 0 && remove_one(v, k, e))
        removed++;
    bool empty = elements(*e) == 0;
    if (!empty)
        kv_store_refresh_due(v, k, *e);
    if (removed != 0)
        announce_purge(v, k, type);
    if (empty) {
        kv_store_delete(v, k, *e);
        *e = NULL;
        announce_due(v, k, KV_EVENT_GENERIC, "del");
    }
    return removed;
}

/* --- slices --- */

static bool is_registered_at(void *item, void *arg)
{
    const int64_t *when = arg;
    return entry_member_due(item) == *when;
}

bool kv_database_expire_members(struct kv_view *v, struct kv_shard *shard,
                                struct kv_database *database, uint64_t deadline_ticks,
                                uint64_t *removed)
{
    uint64_t when, position, rounds = 0;
    (void)shard;
    while (database->member_due != NULL &&
           kv_time_index_first(database->member_due, &when, &position)) {
        int64_t due = (int64_t)when;
        if (due > v->now_ms)
            return true;
        if (rounds != 0 && (rounds % CLOCK_STEP == 0 || *removed % CLOCK_STEP == 0) &&
            kv_clock_ticks() >= deadline_ticks)
            return false;
        struct kv_entry *e =
            kv_table_find_position(&database->table, position, is_registered_at, &due);
        KV_ASSERT(e != NULL);
        /* The key's bytes go with the entry. */
        struct kv_slice name = kv_entry_key(e);
        char *copy = kv_mem_try_alloc(name.len + 1, KV_MEM_OTHER);
        if (copy == NULL)
            return true; /* the next slice tries again */
        memcpy(copy, name.ptr, name.len);
        struct kv_key k = kv_store_key(v->store, kv_slice(copy, name.len));
        uint64_t gone = kv_store_purge_due(v, &k, &e, PURGE_STEP);
        kv_mem_free(copy, name.len + 1, KV_MEM_OTHER);
        *removed += gone;
        rounds++;
        if (gone == 0 && e != NULL && kv_entry_member_due(e) == due)
            return true; /* no memory: nothing moves on */
    }
    return true;
}
