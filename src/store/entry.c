/* Entries: reading, building, freeing. The layout is drawn in entry.h.
 *
 * Everything about an entry follows from its first two bytes: the flags say which optional fields
 * exist, the encoding says whether the value is bytes with a length, an int64 or a pointer. Hence
 * kv_entry_size needs no stored size, and kv_mem_free can be told the exact class.
 *
 * Invariants (kv_entry_check asserts them)
 *   - LONG_KEY and LONG_VALUE are set exactly when the length passes 255: one content has one
 *     layout, so two entries with equal parts are equally long.
 *   - A string is beside its key exactly when the whole entry then stays within
 *     KV_ENTRY_EMBED_MAX. A new key or a time to live may cross that line; kv_entry_rebuild is
 *     the one place that decides anew.
 *   - An integer has no pointer and no length field.
 *
 * Encodings differ in what the pointer means. The switches over large ones (footprint, number of
 * elements, copy, free, move, check) are where they slot in; the rest of store/ treats every
 * pointer alike, and a small collection like a string.
 *
 * Rejected: padding the header to 8 bytes so that fields are aligned. Unaligned loads cost nothing
 * on the machines we run on, and two bytes a key move every third key into a larger class.
 *
 * Threads: as entry.h; kv_entry_destroy touches nothing but the entry and may run anywhere.
 */
#include "ds/packed.h"
#include "store/entry_priv.h"
#include "store/set.h"
#include "store/store.h"
#include "value/dict.h"
#include "value/list.h"
#include "value/zset.h"

size_t kv_entry_size(const struct kv_entry *e)
{
    struct entry_parts parts = entry_parts(e);
    return entry_parts_size(e, &parts);
}

uint8_t *kv_entry_value(const struct kv_entry *e)
{
    return entry_parts(e).value;
}

static void *value_pointer(const struct kv_entry *e)
{
    KV_DASSERT(e->flags & KV_ENTRY_POINTER);
    void *pointer;
    memcpy(&pointer, entry_parts(e).value, sizeof(pointer));
    KV_DASSERT(pointer != NULL);
    return pointer;
}

static int64_t value_int(const struct kv_entry *e)
{
    KV_DASSERT(kv_entry_encoding(e) == KV_ENC_INT);
    int64_t number;
    memcpy(&number, entry_parts(e).value, sizeof(number));
    return number;
}

/* --- strings --- */

struct kv_bigstr *kv_entry_bigstr(const struct kv_entry *e)
{
    if (!(e->flags & KV_ENTRY_POINTER) || kv_entry_is_large(e))
        return NULL;
    return value_pointer(e);
}

uint8_t *kv_entry_bytes(const struct kv_entry *e, size_t *len)
{
    struct entry_parts parts = entry_parts(e);
    KV_DASSERT(kv_entry_encoding(e) != KV_ENC_INT && !kv_entry_is_large(e));
    if (KV_LIKELY(!(e->flags & KV_ENTRY_POINTER))) {
        *len = parts.value_len;
        return parts.value;
    }
    struct kv_bigstr *large = value_pointer(e);
    *len = large->len;
    return (uint8_t *)large->data;
}

void *kv_entry_large(const struct kv_entry *e)
{
    KV_DASSERT(kv_entry_is_large(e));
    return value_pointer(e);
}

const struct kv_table *kv_entry_table(const struct kv_entry *e)
{
    switch (kv_entry_encoding(e)) {
    case KV_ENC_HASHTABLE:
        return &((const struct kv_dict *)value_pointer(e))->table;
    case KV_ENC_SKIPLIST:
        return &((const struct kv_zset *)value_pointer(e))->table;
    default:
        return NULL;
    }
}

struct kv_slice kv_entry_string(const struct kv_entry *e, char scratch[KV_INT_TEXT_MAX])
{
    KV_DASSERT(kv_entry_type(e) == KV_TYPE_STRING);
    if (kv_entry_encoding(e) == KV_ENC_INT)
        return kv_slice(scratch, kv_int_print(value_int(e), scratch));
    struct entry_parts parts = entry_parts(e);
    if (KV_LIKELY(!(e->flags & KV_ENTRY_POINTER)))
        return kv_slice((const char *)parts.value, parts.value_len);
    const struct kv_bigstr *large = value_pointer(e);
    return kv_slice(large->data, large->len);
}

size_t kv_entry_string_len(const struct kv_entry *e)
{
    KV_DASSERT(kv_entry_type(e) == KV_TYPE_STRING);
    if (kv_entry_encoding(e) == KV_ENC_INT)
        return kv_int_digits(value_int(e));
    if (e->flags & KV_ENTRY_POINTER)
        return ((const struct kv_bigstr *)value_pointer(e))->len;
    return entry_parts(e).value_len;
}

bool kv_entry_string_int(const struct kv_entry *e, int64_t *out)
{
    KV_DASSERT(kv_entry_type(e) == KV_TYPE_STRING);
    if (KV_LIKELY(kv_entry_encoding(e) == KV_ENC_INT)) {
        *out = value_int(e);
        return true;
    }
    char scratch[KV_INT_TEXT_MAX];
    return kv_int_parse(kv_entry_string(e, scratch), out);
}

struct kv_footprint kv_entry_value_footprint(const struct kv_entry *e)
{
    const struct kv_bigstr *bytes = kv_entry_bigstr(e);
    if (bytes != NULL)
        return (struct kv_footprint){bytes->block_size,
                                     offsetof(struct kv_bigstr, data) + bytes->len};
    switch (kv_entry_encoding(e)) {
    case KV_ENC_HASHTABLE:
        return kv_dict_footprint(value_pointer(e));
    case KV_ENC_QUICKLIST:
        return kv_list_footprint(value_pointer(e));
    case KV_ENC_SKIPLIST:
        return kv_zset_footprint(value_pointer(e));
    default:
        KV_UNREACHABLE();
    }
}

uint64_t kv_entry_elements(const struct kv_entry *e)
{
    switch (kv_entry_encoding(e)) {
    case KV_ENC_HASHTABLE:
        return kv_dict_count(value_pointer(e));
    case KV_ENC_QUICKLIST:
        return ((const struct kv_list *)value_pointer(e))->count;
    case KV_ENC_SKIPLIST:
        return kv_zset_count(value_pointer(e));
    default:
        KV_UNREACHABLE();
    }
}

struct kv_footprint kv_entry_footprint(const struct kv_entry *e)
{
    return entry_footprint(e);
}

size_t kv_entry_memory(const struct kv_entry *e)
{
    return entry_footprint(e).block_bytes;
}

const char *kv_type_name(enum kv_type type)
{
    static const char *const names[] = {"string", "list", "set", "zset", "hash", "stream", "other"};
    static_assert(KV_ARRAY_LEN(names) == KV_TYPE_COUNT, "every type has a name");
    KV_ASSERT((unsigned)type < KV_TYPE_COUNT);
    return names[type];
}

const char *kv_encoding_name(enum kv_encoding encoding)
{
    static const char *const names[] = {"raw",    "embstr", "int",       "listpack",  "listpackex",
                                        "intset", "stream", "quicklist", "hashtable", "skiplist"};
    static_assert(KV_ARRAY_LEN(names) == KV_ENC_COUNT, "every encoding has a name");
    KV_ASSERT((unsigned)encoding < KV_ENC_COUNT);
    return names[encoding];
}

struct kv_guard *kv_entry_guard(const struct kv_entry *e)
{
    switch (kv_entry_encoding(e)) {
    case KV_ENC_HASHTABLE:
        return ((const struct kv_dict *)value_pointer(e))->guard;
    case KV_ENC_QUICKLIST:
        return ((const struct kv_list *)value_pointer(e))->guard;
    case KV_ENC_SKIPLIST:
        return ((const struct kv_zset *)value_pointer(e))->guard;
    default:
        return NULL;
    }
}

/* --- building --- */

struct entry_form kv_entry_form(const struct kv_entry *e)
{
    struct entry_parts parts = entry_parts(e);
    return (struct entry_form){
        .key = parts.key,
        .value = parts.value,
        .value_len = parts.value_len,
        .expiry = kv_entry_expiry(e),
        .access = entry_access(e),
        .type_encoding = e->type_encoding,
        .epoch = e->epoch,
        .pointer = e->flags & KV_ENTRY_POINTER,
    };
}

/* Writes a length field of one or four bytes. */
static uint8_t *write_len(uint8_t *p, size_t len)
{
    if (KV_LIKELY(len <= ENTRY_SHORT_MAX)) {
        *p = (uint8_t)len;
        return p + 1;
    }
    uint32_t wide = (uint32_t)len;
    memcpy(p, &wide, sizeof(wide));
    return p + sizeof(wide);
}

static void write_form(struct kv_entry *e, const struct entry_form *f)
{
    e->type_encoding = f->type_encoding;
    e->flags = entry_form_flags(f);
    e->epoch = f->epoch;
    e->access[0] = (uint8_t)f->access;
    e->access[1] = (uint8_t)(f->access >> 8);
    e->access[2] = (uint8_t)(f->access >> 16);
    uint8_t *p = e->data;
    if (f->expiry != KV_NO_EXPIRY) {
        memcpy(p, &f->expiry, sizeof(f->expiry));
        p += ENTRY_WORD;
    }
    p = write_len(p, f->key.len);
    if (!f->pointer && f->type_encoding >> 4 != KV_ENC_INT)
        p = write_len(p, f->value_len);
    if (f->key.len != 0)
        memcpy(p, f->key.ptr, f->key.len);
    if (f->value != NULL && f->value_len != 0)
        memcpy(p + f->key.len, f->value, f->value_len);
}

struct kv_entry *kv_entry_build(const struct entry_form *f)
{
    KV_DASSERT(f->expiry == KV_NO_EXPIRY || (f->expiry >= 0 && f->expiry <= KV_EXPIRY_MAX));
    KV_DASSERT(f->pointer || f->value_len <= KV_ENTRY_EMBED_MAX);
    if (KV_UNLIKELY(f->key.len > UINT32_MAX))
        return NULL;
    size_t size = entry_form_size(f);
    struct kv_entry *e = kv_mem_try_alloc(size, KV_MEM_ENTRY);
    if (KV_UNLIKELY(e == NULL))
        return NULL;
    write_form(e, f);
    KV_DASSERT(kv_entry_size(e) == size);
    return e;
}

/* True when the value is bytes, which lie beside the key or in a block of their own. */
static bool has_bytes(const struct kv_entry *e)
{
    return kv_entry_encoding(e) != KV_ENC_INT && !kv_entry_is_large(e);
}

static struct kv_slice bytes_of(const struct kv_entry *e)
{
    size_t len;
    const uint8_t *bytes = kv_entry_bytes(e, &len);
    return kv_slice((const char *)bytes, len);
}

bool kv_entry_layout_changes(const struct kv_entry *e, int64_t expiry)
{
    if (!has_bytes(e))
        return false;
    bool embeds = entry_embeds(kv_entry_key(e).len, bytes_of(e).len, expiry);
    return embeds == !!(e->flags & KV_ENTRY_POINTER);
}

static struct kv_bigstr *copy_bytes(struct kv_slice bytes)
{
    struct kv_bigstr *large = kv_bigstr_try_create(bytes.len, KV_MEM_VALUE);
    if (large != NULL && bytes.len != 0)
        memcpy(large->data, bytes.ptr, bytes.len);
    return large;
}

/* Copies the structure of a large collection; NULL: no memory. */
static void *copy_large(const struct kv_entry *e)
{
    switch (kv_entry_encoding(e)) {
    case KV_ENC_HASHTABLE:
        return kv_dict_copy(value_pointer(e));
    case KV_ENC_QUICKLIST:
        return kv_list_copy(value_pointer(e));
    case KV_ENC_SKIPLIST:
        return kv_zset_copy(value_pointer(e));
    default:
        KV_UNREACHABLE();
    }
}

struct kv_entry *kv_entry_rebuild(const struct kv_entry *e, struct kv_slice key, int64_t expiry,
                                  bool copy)
{
    struct entry_form f = kv_entry_form(e);
    struct kv_slice string = {NULL, 0};
    void *copied = NULL;
    f.key = key;
    f.expiry = expiry;
    if (has_bytes(e)) {
        string = bytes_of(e);
        bool embeds = entry_embeds(key.len, string.len, expiry);
        /* A string that stops being embedded needs a block although nobody asked for a copy. */
        copy |= !embeds && !f.pointer;
        f.pointer = !embeds;
        if (embeds) {
            f.value = string.ptr;
            f.value_len = string.len;
        }
    }
    if (f.pointer && copy) {
        copied = has_bytes(e) ? copy_bytes(string) : copy_large(e);
        if (copied == NULL)
            return NULL;
        f.value = &copied;
        f.value_len = ENTRY_WORD;
    }
    struct kv_entry *built = kv_entry_build(&f);
    if (built == NULL && copied != NULL) {
        if (has_bytes(e))
            kv_bigstr_unref(copied);
        else
            kv_entry_large_free(kv_entry_encoding(e), copied);
    }
    return built;
}

/* --- freeing --- */

void kv_entry_drop_large(struct kv_bigstr *large)
{
    KV_DASSERT(large != NULL);
    /* We still hold a reference, so nobody can free the block while its payer changes. */
    if (KV_UNLIKELY(kv_bigstr_shared(large)))
        kv_bigstr_set_owner(large, KV_MEM_CLIENT_OUTPUT);
    kv_bigstr_unref(large);
}

void kv_entry_large_free(enum kv_encoding encoding, void *large)
{
    switch (encoding) {
    case KV_ENC_HASHTABLE:
        kv_dict_free(large);
        return;
    case KV_ENC_QUICKLIST:
        kv_list_free(large);
        return;
    case KV_ENC_SKIPLIST:
        kv_zset_free(large);
        return;
    default:
        KV_UNREACHABLE();
    }
}

static void release_value(struct kv_entry *e)
{
    if (KV_LIKELY(!(e->flags & KV_ENTRY_POINTER)))
        return;
    if (kv_entry_is_large(e))
        kv_entry_large_free(kv_entry_encoding(e), value_pointer(e));
    else
        kv_entry_drop_large(value_pointer(e));
}

void kv_entry_free_block(struct kv_entry *e)
{
    kv_mem_free_movable(e, kv_entry_size(e), KV_MEM_ENTRY);
}

void kv_entry_destroy(struct kv_entry *e)
{
    KV_DASSERT(e != NULL);
    release_value(e);
    kv_entry_free_block(e);
}

void kv_entry_discard(struct kv_entry *e, const struct kv_entry *other)
{
    KV_ASSERT(e != other);
    bool passed_on = e->flags & KV_ENTRY_POINTER && other->flags & KV_ENTRY_POINTER &&
                     value_pointer(e) == value_pointer(other);
    if (!passed_on)
        release_value(e);
    kv_entry_free_block(e);
}

/* --- moving blocks --- */

static void move_value(struct kv_entry *e, struct kv_moves *m)
{
    if (!kv_entry_is_large(e)) {
        entry_write_pointer(e, kv_bigstr_move(value_pointer(e), m));
        return;
    }
    /* A snapshot that saves it in slices knows its blocks by their addresses. */
    if (KV_UNLIKELY(kv_entry_guard(e) != NULL)) {
        m->kept++;
        return;
    }
    switch (kv_entry_encoding(e)) {
    case KV_ENC_HASHTABLE:
        entry_write_pointer(e, kv_dict_move(value_pointer(e), m));
        return;
    case KV_ENC_QUICKLIST:
        entry_write_pointer(e, kv_list_move(value_pointer(e), m));
        return;
    case KV_ENC_SKIPLIST:
        entry_write_pointer(e, kv_zset_move(value_pointer(e), m));
        return;
    default:
        KV_UNREACHABLE();
    }
}

struct kv_entry *kv_entry_move(struct kv_entry *e, struct kv_moves *m)
{
    if (KV_UNLIKELY(e->flags & KV_ENTRY_POINTER))
        move_value(e, m);
    return kv_move_block(e, kv_entry_size(e), KV_MEM_ENTRY, m);
}

/* What every type of collection promises; its own functions check more. */
static void check_collection(const struct kv_entry *e)
{
    size_t len;
    const uint8_t *bytes = kv_entry_is_large(e) ? NULL : kv_entry_bytes(e, &len);
    KV_ASSERT(kv_entry_is_large(e) == !!(e->flags & KV_ENTRY_POINTER) || bytes != NULL);
    switch (kv_entry_encoding(e)) {
    case KV_ENC_LISTPACKEX:
        KV_ASSERT(len > KV_LISTPACKEX_HEAD);
        KV_ASSERT(kv_packed_valid(bytes + KV_LISTPACKEX_HEAD, len - KV_LISTPACKEX_HEAD) ==
                  KV_PACKED_GOOD);
        return;
    case KV_ENC_LISTPACK:
        KV_ASSERT(kv_packed_valid(bytes, len) == KV_PACKED_GOOD);
        KV_ASSERT(kv_packed_count(bytes) != 0);
        return;
    case KV_ENC_HASHTABLE:
        KV_ASSERT(kv_dict_count(kv_entry_large(e)) != 0);
        kv_dict_check(kv_entry_large(e));
        return;
    case KV_ENC_QUICKLIST:
        KV_ASSERT(((const struct kv_list *)kv_entry_large(e))->count != 0);
        kv_list_check(kv_entry_large(e));
        return;
    case KV_ENC_SKIPLIST:
        KV_ASSERT(kv_zset_count(kv_entry_large(e)) != 0);
        kv_zset_check(kv_entry_large(e));
        return;
    case KV_ENC_FOREIGN:
        KV_ASSERT(len > 2 && bytes[1] != 0 && len >= 2u + bytes[1]);
        return;
    default:
        return;
    }
}

void kv_entry_check(const struct kv_entry *e)
{
    struct entry_form f = kv_entry_form(e);
    KV_ASSERT(kv_entry_type(e) < KV_TYPE_COUNT);
    KV_ASSERT(entry_form_flags(&f) == e->flags);
    KV_ASSERT(entry_form_size(&f) == kv_entry_size(e));
    KV_ASSERT(kv_slice_equal(f.key, kv_entry_key(e)));
    if (f.expiry != KV_NO_EXPIRY)
        KV_ASSERT(f.expiry >= 0 && f.expiry <= KV_EXPIRY_MAX);
    KV_ASSERT(kv_entry_encoding(e) < KV_ENC_COUNT);
    KV_ASSERT((kv_entry_type(e) == KV_TYPE_STRING) == (kv_entry_encoding(e) <= KV_ENC_INT));
    KV_ASSERT(!kv_entry_layout_changes(e, f.expiry));
    if (kv_entry_encoding(e) == KV_ENC_INT)
        KV_ASSERT(!(e->flags & KV_ENTRY_POINTER));
    if (kv_entry_encoding(e) == KV_ENC_EMBSTR)
        KV_ASSERT(kv_entry_string_len(e) <= KV_EMBSTR_MAX);
    const struct kv_bigstr *large = kv_entry_bigstr(e);
    if (large != NULL) {
        KV_ASSERT(large->len <= kv_bigstr_capacity(large));
        KV_ASSERT(large->owner == KV_MEM_VALUE);
        KV_ASSERT(kv_mem_block_size(large->block_size) == large->block_size);
    }
    if (kv_entry_type(e) != KV_TYPE_STRING)
        check_collection(e);
    if (kv_entry_type(e) == KV_TYPE_SET)
        kv_set_check(e);
}
