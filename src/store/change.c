/* Changing entries: set, edit, time to live, delete.
 *
 * Every function first does what can fail (blocks, index record, table growth) and then what cannot
 * (pointers, bytes, frees), so that a failure leaves everything as it was. kv_shard_place is the
 * common last step of all that put a new block into a table.
 *
 * SET in the common case allocates nothing: where the old entry is a string with the same optional
 * fields and the new bytes need the same block class, they overwrite the old ones beside the
 * untouched key. The same holds for large strings whose block nobody else holds. Only then comes
 * the general case, a new block that replaces the old pointer in its slot.
 *
 * A value or key that is handed in may point into the entry that is changed: bytes are moved with
 * memmove where they overwrite, else the old block is freed last.
 *
 * An edited string grows block class by block class while it is embedded - at most 1 KiB is copied
 * - and beyond that in a kv_bigstr, which grows greedily.
 *
 * Rejected: growing the embedded entry in place with spare room behind the value. The block's size
 * would no longer follow from its content, and every free would have to look it up.
 *
 * Threads: under the lock of the key's shard. Nothing here announces, but for due entries.
 */
#include "store/store_priv.h"

#define INT_TEXT_MAX 20u /* longest canonical text of an int64 */

static_assert((KV_ENTRY_EMBED_MAX & (KV_ENTRY_EMBED_MAX - 1)) == 0, "a block class ends there");

/* --- table and index --- */

static void forget_member_due(struct kv_shard *shard, struct kv_database *database, uint64_t hash,
                              int64_t due)
{
    enum kv_err err = kv_shard_change_member_due(shard, database, hash, due, KV_NOT_DUE);
    KV_ASSERT(err == KV_OK);
}

/* Puts e into the table, both indexes having been brought to it. */
static enum kv_err place_in_table(struct kv_shard *shard, struct kv_database *database,
                                  uint64_t hash, struct kv_entry *old, struct kv_entry *e)
{
    if (old != NULL) {
        kv_table_replace(&database->table, hash, old, e);
        database_count_replaced(database, old, e);
        return KV_OK;
    }
    enum kv_err err = kv_table_insert(&database->table, hash, e);
    if (KV_UNLIKELY(err != KV_OK)) {
        enum kv_err undone =
            kv_shard_change_expiry(shard, database, hash, kv_entry_expiry(e), KV_NO_EXPIRY);
        KV_ASSERT(undone == KV_OK);
        return err;
    }
    database_count_placed(database, e);
    return KV_OK;
}

/* What can fail and be undone without failing comes first: records are added before others go. */
enum kv_err kv_shard_place(struct kv_shard *shard, struct kv_database *database, uint64_t hash,
                           struct kv_entry *old, struct kv_entry *e)
{
    KV_DASSERT(old != e);
    int64_t old_expiry = old != NULL ? kv_entry_expiry(old) : KV_NO_EXPIRY;
    int64_t old_due = old != NULL ? entry_member_due(old) : KV_NOT_DUE;
    int64_t due = entry_member_due(e);
    bool due_changes = KV_UNLIKELY(due != old_due);
    if (due_changes && due != KV_NOT_DUE) {
        enum kv_err err = kv_shard_change_member_due(shard, database, hash, KV_NOT_DUE, due);
        if (err != KV_OK)
            return err;
    }
    enum kv_err err = kv_shard_change_expiry(shard, database, hash, old_expiry, kv_entry_expiry(e));
    if (KV_LIKELY(err == KV_OK))
        err = place_in_table(shard, database, hash, old, e);
    if (due_changes && err != KV_OK && due != KV_NOT_DUE)
        forget_member_due(shard, database, hash, due);
    if (due_changes && err == KV_OK && old_due != KV_NOT_DUE)
        forget_member_due(shard, database, hash, old_due);
    return err;
}

void kv_shard_detach(struct kv_shard *shard, struct kv_database *database, uint64_t hash,
                     struct kv_entry *e)
{
    database_count_removed(database, e);
    kv_table_remove(&database->table, hash, e);
    enum kv_err err =
        kv_shard_change_expiry(shard, database, hash, kv_entry_expiry(e), KV_NO_EXPIRY);
    KV_ASSERT(err == KV_OK);
    int64_t due = entry_member_due(e);
    if (KV_UNLIKELY(due != KV_NOT_DUE))
        forget_member_due(shard, database, hash, due);
}

void kv_store_delete(struct kv_view *v, const struct kv_key *k, struct kv_entry *e)
{
    struct kv_shard *shard = shard_of(v->store, k->hash);
    struct kv_database *database = shard_database(shard, v->db);
    KV_DASSERT(database != NULL && entry_has_key(e, k));
    snapshot_keep(v, v->db, e);
    kv_shard_detach(shard, database, k->hash, e);
    entry_retire(v, e);
}

/* --- setting --- */

/* What a SET works on: the key's place and the value in its final form. */
struct target {
    struct kv_shard *shard;
    struct kv_database *database;
    struct kv_entry *old;     /* what is there; NULL: nothing */
    struct kv_slice string;   /* the value's bytes when it is large */
    struct kv_bigstr **block; /* the caller's block with these bytes, or NULL */
};

/* Looks the key up, expires it when due, and settles the form's time to live. */
KV_INLINE bool find_target(struct kv_view *v, const struct kv_key *k, struct target *t,
                           struct entry_form *f, int64_t expiry)
{
    KV_DASSERT(v->db < v->store->database_count);
    KV_DASSERT(k->hash == kv_store_hash(v->store, k->ptr, k->len));
    KV_DASSERT(expiry >= KV_KEEP_EXPIRY && expiry <= KV_EXPIRY_MAX);
    t->shard = shard_of(v->store, k->hash);
    t->database = shard_database_get(v->store, t->shard, v->db);
    t->old = database_find(t->database, k);
    bool existed = t->old != NULL;
    if (existed && KV_UNLIKELY(kv_entry_due(t->old, v->now_ms))) {
        existed = false;
        if (!(v->flags & KV_VIEW_NO_EXPIRE)) {
            kv_store_meet_due(v, t->shard, t->database, k, t->old);
            t->old = NULL;
        }
    }
    if (t->old != NULL)
        snapshot_keep(v, v->db, t->old);
    f->key = kv_slice(k->ptr, k->len);
    f->epoch = v->store->epoch;
    f->access = access_when_set(v, existed ? t->old : NULL);
    if (expiry == KV_KEEP_EXPIRY)
        expiry = existed ? kv_entry_expiry(t->old) : KV_NO_EXPIRY;
    f->expiry = expiry;
    return existed;
}

/* Gives an entry that has a time to live another one; both sides have or have not. */
KV_INLINE enum kv_err change_present_expiry(struct target *t, uint64_t hash, int64_t expiry)
{
    int64_t old_expiry = kv_entry_expiry(t->old);
    if (KV_LIKELY(old_expiry == expiry))
        return KV_OK;
    KV_DASSERT(old_expiry != KV_NO_EXPIRY && expiry != KV_NO_EXPIRY);
    enum kv_err err = kv_shard_change_expiry(t->shard, t->database, hash, old_expiry, expiry);
    if (err == KV_OK)
        memcpy(t->old->data, &expiry, sizeof(expiry));
    return err;
}

/* True when an embedded value or integer goes over one of its kind, key and block staying as they
 * are. The class tells that the new one is embedded too: KV_ENTRY_EMBED_MAX is the end of one. */
KV_INLINE bool fits_in_place(const struct kv_entry *old, const struct entry_parts *parts,
                             const struct entry_form *f)
{
    bool is_int = f->type_encoding >> 4 == KV_ENC_INT;
    if (kv_entry_type(old) != KV_TYPE_STRING || old->flags & KV_ENTRY_POINTER ||
        kv_entry_has_expiry(old) != (f->expiry != KV_NO_EXPIRY) ||
        (kv_entry_encoding(old) == KV_ENC_INT) != is_int)
        return false;
    if (is_int || parts->value_len == f->value_len)
        return true;
    size_t size = entry_parts_size(old, parts);
    return !(old->flags & KV_ENTRY_LONG_VALUE) == (f->value_len <= ENTRY_SHORT_MAX) &&
           kv_mem_same_block(size - parts->value_len + f->value_len, size);
}

/* Overwrites an embedded value or an integer. */
KV_INLINE enum kv_err overwrite(struct target *t, uint64_t hash, const struct entry_parts *parts,
                                const struct entry_form *f)
{
    struct kv_entry *e = t->old;
    enum kv_err err = change_present_expiry(t, hash, f->expiry);
    if (KV_UNLIKELY(err != KV_OK))
        return err;
    if (parts->value_len != f->value_len) {
        uint8_t *len_end = (uint8_t *)(uintptr_t)parts->key.ptr;
        uint32_t wide = (uint32_t)f->value_len;
        if (KV_LIKELY(!(e->flags & KV_ENTRY_LONG_VALUE)))
            len_end[-1] = (uint8_t)f->value_len;
        else
            memcpy(len_end - sizeof(wide), &wide, sizeof(wide));
        database_count_used(t->database, parts->value_len, f->value_len);
    }
    e->type_encoding = f->type_encoding;
    entry_set_access(e, f->access);
    if (f->type_encoding >> 4 == KV_ENC_INT)
        memcpy(parts->value, f->value, ENTRY_WORD);
    else if (f->value_len != 0)
        memmove(parts->value, f->value, f->value_len);
    KV_DASSERT(kv_mem_block_size(kv_entry_size(e)) ==
               kv_mem_block_size(entry_parts_size(e, parts)));
    return KV_OK;
}

static struct kv_bigstr *large_dup(struct kv_slice string)
{
    struct kv_bigstr *large = kv_bigstr_try_create(string.len, KV_MEM_VALUE);
    if (large != NULL)
        memcpy(large->data, string.ptr, string.len);
    return large;
}

/* Settles ownership of a large value after the entry points to it. */
static void take_block(struct target *t, struct kv_bigstr *large)
{
    if (t->block != NULL) {
        KV_DASSERT(*t->block == large);
        kv_bigstr_set_owner(large, KV_MEM_VALUE);
        *t->block = NULL;
    }
}

/* Overwrites a large value: within its block if that is ours alone and of the right size, else by
 * pointing to another one. */
static enum kv_err overwrite_large(struct target *t, uint64_t hash, const struct entry_form *f)
{
    struct kv_entry *e = t->old;
    struct kv_bigstr *have = kv_entry_bigstr(e);
    struct kv_slice string = t->string;
    bool reuse =
        t->block == NULL && !kv_bigstr_shared(have) &&
        kv_mem_block_size(offsetof(struct kv_bigstr, data) + string.len) == have->block_size;
    struct kv_bigstr *large = reuse ? have : t->block != NULL ? *t->block : large_dup(string);
    if (large == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = change_present_expiry(t, hash, f->expiry);
    if (err != KV_OK) {
        if (large != have && t->block == NULL)
            kv_bigstr_unref(large);
        return err;
    }
    e->type_encoding = f->type_encoding;
    entry_set_access(e, f->access);
    if (reuse) {
        database_count_used(t->database, have->len, string.len);
        memmove(have->data, string.ptr, string.len);
        have->len = string.len;
        return KV_OK;
    }
    struct kv_footprint before = kv_entry_value_footprint(e);
    entry_write_pointer(e, large);
    database_count(t->database, KV_TYPE_STRING, before, kv_entry_value_footprint(e));
    take_block(t, large);
    kv_entry_drop_large(have);
    return KV_OK;
}

/* The general case: builds a new entry and puts it in the place of the old one. */
static enum kv_err replace(struct kv_view *v, struct target *t, uint64_t hash, struct entry_form *f)
{
    struct kv_bigstr *large = NULL;
    if (f->pointer) {
        large = t->block != NULL ? *t->block : large_dup(t->string);
        if (large == NULL)
            return KV_ERR_NOMEM;
        f->value = &large;
        f->value_len = ENTRY_WORD;
    }
    struct kv_entry *e = kv_entry_build(f);
    enum kv_err err =
        e != NULL ? kv_shard_place(t->shard, t->database, hash, t->old, e) : KV_ERR_NOMEM;
    if (KV_UNLIKELY(err != KV_OK)) {
        if (e != NULL)
            kv_mem_free(e, kv_entry_size(e), KV_MEM_ENTRY);
        if (large != NULL && t->block == NULL)
            kv_bigstr_unref(large);
        return err;
    }
    if (large != NULL)
        take_block(t, large);
    if (t->old != NULL)
        entry_retire(v, t->old);
    return KV_OK;
}

/* What does not fit over the old value: settles the layout, then large over large or anew. */
static KV_NOINLINE enum kv_err set_anew(struct kv_view *v, struct target *t, uint64_t hash,
                                        struct entry_form *f)
{
    if (f->type_encoding >> 4 != KV_ENC_INT && !entry_embeds(f->key.len, f->value_len, f->expiry)) {
        t->string = kv_slice(f->value, f->value_len);
        f->pointer = true;
        f->value_len = ENTRY_WORD;
        if (t->old != NULL && kv_entry_type(t->old) == KV_TYPE_STRING &&
            kv_entry_bigstr(t->old) != NULL &&
            ((entry_form_flags(f) ^ t->old->flags) & KV_ENTRY_LAYOUT_FLAGS) == 0)
            return overwrite_large(t, hash, f);
    }
    return replace(v, t, hash, f);
}

/* `f` holds encoding and value; the rest is settled here. */
KV_INLINE enum kv_err set_form(struct kv_view *v, const struct kv_key *k, struct target *t,
                               struct entry_form *f, int64_t expiry, bool *existed)
{
    bool was_there = find_target(v, k, t, f, expiry);
    if (existed != NULL)
        *existed = was_there;
    if (t->old != NULL) {
        struct entry_parts parts = entry_parts(t->old);
        if (KV_LIKELY(fits_in_place(t->old, &parts, f)))
            return overwrite(t, k->hash, &parts, f);
    }
    return set_anew(v, t, k->hash, f);
}

/* --- setting while somebody wants to know what is made or replaced: it is looked before and told
 * after. What plain SET uses has a cold form for that, so that others pay one test --- */

struct before {
    bool existed; /* a value that is not due is there */
    enum kv_type type;
};

static struct before look_before(const struct kv_view *v, const struct kv_key *k)
{
    const struct kv_database *database = shard_database(shard_of(v->store, k->hash), v->db);
    const struct kv_entry *e = database != NULL ? database_find(database, k) : NULL;
    if (e == NULL || kv_entry_due(e, v->now_ms))
        return (struct before){.existed = false};
    return (struct before){true, kv_entry_type(e)};
}

/* `replaces`: the new value does not come from the old one. */
static void tell_set(struct kv_view *v, const struct kv_key *k, const struct before *b,
                     bool replaces)
{
    if (!b->existed && v->store->hooks.added != NULL)
        kv_store_tell_added(v, v->db, k->hash, kv_slice(k->ptr, k->len));
    else if (b->existed && replaces)
        kv_store_replaced(v, k, b->type, KV_TYPE_STRING);
}

/* Settles the encoding of a string's bytes; an integer is put into *number. */
KV_INLINE void form_of_string(struct entry_form *f, struct kv_slice string, int64_t *number)
{
    enum kv_encoding encoding = string.len <= KV_EMBSTR_MAX ? KV_ENC_EMBSTR : KV_ENC_RAW;
    f->value = string.ptr;
    f->value_len = string.len;
    /* The first byte sorts nearly all texts out before the parser is called. */
    if (string.len - 1 < INT_TEXT_MAX &&
        (string.ptr[0] == '-' || (unsigned char)(string.ptr[0] - '0') <= 9) &&
        kv_int_parse(string, number)) {
        encoding = KV_ENC_INT;
        f->value = number;
        f->value_len = ENTRY_WORD;
    }
    f->type_encoding = type_encoding_of(KV_TYPE_STRING, encoding);
}

KV_INLINE enum kv_err set(struct kv_view *v, const struct kv_key *k, struct kv_slice value,
                          int64_t expiry, bool *existed)
{
    struct target t = {.block = NULL};
    struct entry_form f = {.pointer = false};
    int64_t number = 0;
    form_of_string(&f, value, &number);
    return set_form(v, k, &t, &f, expiry, existed);
}

static KV_COLD KV_NOINLINE enum kv_err set_telling(struct kv_view *v, const struct kv_key *k,
                                                   struct kv_slice value, int64_t expiry,
                                                   bool *existed)
{
    struct before b = look_before(v, k);
    enum kv_err err = set(v, k, value, expiry, existed);
    if (err == KV_OK)
        tell_set(v, k, &b, true);
    return err;
}

enum kv_err kv_store_set(struct kv_view *v, const struct kv_key *k, struct kv_slice value,
                         int64_t expiry, bool *existed)
{
    if (KV_UNLIKELY(v->store->tells_sets))
        return set_telling(v, k, value, expiry, existed);
    return set(v, k, value, expiry, existed);
}

enum kv_err kv_store_add(struct kv_view *v, const struct kv_key *k, struct kv_slice value,
                         int64_t expiry)
{
    struct target t = {.shard = shard_of(v->store, k->hash)};
    int64_t number = 0;
    struct entry_form f = {
        .key = kv_slice(k->ptr, k->len),
        .epoch = v->store->epoch,
        .access = access_when_set(v, NULL),
        .expiry = expiry,
    };
    KV_DASSERT(expiry == KV_NO_EXPIRY || (expiry >= 0 && expiry <= KV_EXPIRY_MAX));
    if (KV_UNLIKELY(v->store->tells_sets))
        return set_telling(v, k, value, expiry, NULL);
    t.database = shard_database_get(v->store, t.shard, v->db);
    KV_DASSERT(database_find(t.database, k) == NULL);
    form_of_string(&f, value, &number);
    return set_anew(v, &t, k->hash, &f);
}

enum kv_err kv_store_set_text(struct kv_view *v, const struct kv_key *k, struct kv_slice value,
                              int64_t expiry)
{
    struct before b = {.existed = true};
    if (KV_UNLIKELY(v->store->tells_sets))
        b = look_before(v, k);
    struct target t = {.block = NULL};
    enum kv_encoding encoding = value.len <= KV_EMBSTR_MAX ? KV_ENC_EMBSTR : KV_ENC_RAW;
    struct entry_form f = {
        .value = value.ptr,
        .value_len = value.len,
        .type_encoding = type_encoding_of(KV_TYPE_STRING, encoding),
    };
    enum kv_err err = set_form(v, k, &t, &f, expiry, NULL);
    if (KV_UNLIKELY(!b.existed) && err == KV_OK)
        tell_set(v, k, &b, false);
    return err;
}

enum kv_err kv_store_set_block_take(struct kv_view *v, const struct kv_key *k,
                                    struct kv_bigstr **block, int64_t expiry, bool *existed)
{
    struct before b = {.existed = false};
    bool tells = v->store->tells_sets;
    if (KV_UNLIKELY(tells))
        b = look_before(v, k);
    struct target t = {.block = block};
    struct entry_form f = {.pointer = false};
    int64_t number = 0;
    KV_ASSERT(*block != NULL);
    form_of_string(&f, kv_slice((*block)->data, (*block)->len), &number);
    enum kv_err err = set_form(v, k, &t, &f, expiry, existed);
    if (KV_UNLIKELY(tells) && err == KV_OK)
        tell_set(v, k, &b, true);
    /* A block whose bytes ended up beside the key was copied: its reference is ours all the same.
     */
    if (err == KV_OK && *block != NULL) {
        kv_bigstr_unref(*block);
        *block = NULL;
    }
    return err;
}

enum kv_err kv_store_set_int(struct kv_view *v, const struct kv_key *k, int64_t value,
                             int64_t expiry)
{
    struct before b = {.existed = true};
    if (KV_UNLIKELY(v->store->tells_sets))
        b = look_before(v, k);
    struct target t = {.block = NULL};
    struct entry_form f = {
        .value = &value,
        .value_len = ENTRY_WORD,
        .type_encoding = type_encoding_of(KV_TYPE_STRING, KV_ENC_INT),
    };
    enum kv_err err = set_form(v, k, &t, &f, expiry, NULL);
    if (KV_UNLIKELY(!b.existed) && err == KV_OK)
        tell_set(v, k, &b, false);
    return err;
}

void kv_store_update_int(struct kv_view *v, struct kv_entry *e, int64_t value)
{
    KV_ASSERT(kv_entry_type(e) == KV_TYPE_STRING && kv_entry_encoding(e) == KV_ENC_INT);
    /* A counter has counted this command when the entry was found. */
    if (v->store->access.mode == KV_ACCESS_LRU)
        entry_touch(v, e);
    memcpy(entry_parts(e).value, &value, sizeof(value));
}

/* --- editing in place --- */

/* Brings bytes from one length to another: what is new is zero. */
static void zero_tail(char *bytes, size_t from, size_t to)
{
    if (to > from)
        memset(bytes + from, 0, to - from);
}

/* Edits a string that is large and stays so. */
static enum kv_err edit_large(struct kv_database *database, struct kv_entry *e, size_t len,
                              char **bytes)
{
    struct kv_bigstr *large = kv_entry_bigstr(e);
    struct kv_footprint before = kv_entry_value_footprint(e);
    size_t old_len = large->len;
    struct kv_bigstr *shared = NULL;
    if (kv_bigstr_shared(large)) {
        /* The extra reference keeps the old block until its payer has been changed. */
        shared = large;
        kv_bigstr_ref(shared);
    }
    enum kv_err err = kv_bigstr_reserve(&large, len, true);
    if (shared != NULL && err == KV_OK)
        kv_entry_drop_large(shared);
    else if (shared != NULL)
        kv_bigstr_unref(shared);
    if (err != KV_OK)
        return err;
    zero_tail(large->data, old_len, len);
    large->len = len;
    entry_write_pointer(e, large);
    database_count(database, KV_TYPE_STRING, before, kv_entry_value_footprint(e));
    e->type_encoding = type_encoding_of(KV_TYPE_STRING, KV_ENC_RAW);
    *bytes = large->data;
    return KV_OK;
}

/* Edits by building a new entry around a copy of the bytes that the key has now. */
static enum kv_err edit_rebuild(struct kv_view *v, struct target *t, uint64_t hash,
                                struct entry_form *f, struct kv_slice have, size_t len,
                                char **bytes)
{
    struct kv_bigstr *large = NULL;
    f->type_encoding = type_encoding_of(KV_TYPE_STRING, KV_ENC_RAW);
    f->pointer = !entry_embeds(f->key.len, len, f->expiry);
    f->value = NULL;
    f->value_len = len;
    if (f->pointer) {
        large = kv_bigstr_try_create(len, KV_MEM_VALUE);
        if (large == NULL)
            return KV_ERR_NOMEM;
        f->value = &large;
        f->value_len = ENTRY_WORD;
    }
    struct kv_entry *e = kv_entry_build(f);
    enum kv_err err =
        e != NULL ? kv_shard_place(t->shard, t->database, hash, t->old, e) : KV_ERR_NOMEM;
    if (err != KV_OK) {
        if (e != NULL)
            kv_mem_free(e, kv_entry_size(e), KV_MEM_ENTRY);
        if (large != NULL)
            kv_bigstr_unref(large);
        return err;
    }
    *bytes = large != NULL ? large->data : (char *)kv_entry_value(e);
    size_t kept = KV_MIN(have.len, len);
    if (kept != 0)
        memcpy(*bytes, have.ptr, kept);
    zero_tail(*bytes, kept, len);
    if (t->old != NULL)
        kv_entry_destroy(t->old);
    else
        store_added(v, v->db, hash, e);
    return KV_OK;
}

/* Edits an embedded string within its block; f fits. */
static void edit_in_place(struct target *t, uint64_t hash, const struct entry_parts *parts,
                          struct entry_form *f, char **bytes)
{
    size_t old_len = parts->value_len;
    *bytes = (char *)parts->value;
    f->value = *bytes;
    enum kv_err err = overwrite(t, hash, parts, f);
    KV_ASSERT(err == KV_OK);
    zero_tail(*bytes, old_len, f->value_len);
}

enum kv_err kv_store_edit_string(struct kv_view *v, const struct kv_key *k, struct kv_entry *e,
                                 size_t len, char **bytes)
{
    struct target t = {.shard = shard_of(v->store, k->hash)};
    t.database = shard_database_get(v->store, t.shard, v->db);
    /* Without e nothing is there, or (in a view that keeps them) a due entry to be replaced. */
    t.old = database_find(t.database, k);
    KV_DASSERT(t.old == e || (e == NULL && kv_entry_due(t.old, v->now_ms)));
    if (t.old != NULL)
        snapshot_keep(v, v->db, t.old);
    if (e == NULL) {
        struct entry_form f = {
            .key = kv_slice(k->ptr, k->len),
            .expiry = KV_NO_EXPIRY,
            .access = kv_access_fresh(v),
            .epoch = v->store->epoch,
        };
        return edit_rebuild(v, &t, k->hash, &f, kv_slice(NULL, 0), len, bytes);
    }
    KV_ASSERT(kv_entry_type(e) == KV_TYPE_STRING);
    struct entry_form f = kv_entry_form(e);
    bool embeds = entry_embeds(f.key.len, len, f.expiry);
    if (f.pointer && !embeds)
        return edit_large(t.database, e, len, bytes);
    f.type_encoding = type_encoding_of(KV_TYPE_STRING, KV_ENC_RAW);
    f.value_len = len;
    f.pointer = !embeds;
    struct entry_parts parts = entry_parts(e);
    if (embeds && fits_in_place(e, &parts, &f)) {
        edit_in_place(&t, k->hash, &parts, &f, bytes);
        return KV_OK;
    }
    char scratch[KV_INT_TEXT_MAX];
    return edit_rebuild(v, &t, k->hash, &f, kv_entry_string(e, scratch), len, bytes);
}

/* --- time to live --- */

/* Inserts or removes the expiry field within the entry's block. */
static void shift_for_expiry(struct kv_entry *e, int64_t expiry)
{
    bool had = kv_entry_has_expiry(e);
    size_t moved = kv_entry_size(e) - sizeof(*e) - (had ? ENTRY_WORD : 0);
    KV_DASSERT(had == (expiry == KV_NO_EXPIRY));
    if (had) {
        memmove(e->data, e->data + ENTRY_WORD, moved);
        e->flags &= (uint8_t)~KV_ENTRY_EXPIRY;
    } else {
        memmove(e->data + ENTRY_WORD, e->data, moved);
        memcpy(e->data, &expiry, sizeof(expiry));
        e->flags |= KV_ENTRY_EXPIRY;
    }
}

enum kv_err kv_store_set_expiry(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                int64_t expiry)
{
    struct target t = {.old = *e};
    int64_t old_expiry = kv_entry_expiry(t.old);
    KV_ASSERT(expiry >= KV_KEEP_EXPIRY && expiry <= KV_EXPIRY_MAX);
    if (expiry == KV_KEEP_EXPIRY || expiry == old_expiry)
        return KV_OK;
    snapshot_keep(v, v->db, t.old);
    t.shard = shard_of(v->store, k->hash);
    t.database = shard_database(t.shard, v->db);
    KV_DASSERT(t.database != NULL && database_find(t.database, k) == t.old);
    if (old_expiry != KV_NO_EXPIRY && expiry != KV_NO_EXPIRY)
        return change_present_expiry(&t, k->hash, expiry);
    size_t size = kv_entry_size(t.old);
    size_t new_size = expiry == KV_NO_EXPIRY ? size - ENTRY_WORD : size + ENTRY_WORD;
    if (kv_mem_same_block(size, new_size) && !kv_entry_layout_changes(t.old, expiry)) {
        enum kv_err err = kv_shard_change_expiry(t.shard, t.database, k->hash, old_expiry, expiry);
        if (err != KV_OK)
            return err;
        shift_for_expiry(t.old, expiry);
        database_count_used(t.database, size, new_size);
        return KV_OK;
    }
    struct kv_entry *built = kv_entry_rebuild(t.old, kv_entry_key(t.old), expiry, false);
    if (built == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = kv_shard_place(t.shard, t.database, k->hash, t.old, built);
    if (err != KV_OK) {
        kv_entry_discard(built, t.old);
        return err;
    }
    kv_entry_discard(t.old, built);
    *e = built;
    return KV_OK;
}
