/* How entries are built and taken apart; for the files of store/ alone. Threads as entry.h. */
#ifndef KV_STORE_ENTRY_PRIV_H
#define KV_STORE_ENTRY_PRIV_H

#include "base/compiler.h"
#include "ds/move.h"
#include "mem/mem.h"
#include "store/access_priv.h"
#include "store/entry.h"
#include <assert.h>

#define ENTRY_SHORT_MAX 255u /* longest key or value whose length is one byte */
#define ENTRY_WORD 8u        /* bytes of an expiry, an int64 and a pointer */

static_assert(sizeof(struct kv_entry) == 6, "the header has no padding");
static_assert(offsetof(struct kv_entry, access) == 3, "the access clock follows the epoch");
static_assert(sizeof(void *) == ENTRY_WORD, "pointers are stored as 8 bytes");

/* What an entry consists of: built from, or read out of one. Borrows everything. */
struct entry_form {
    struct kv_slice key;
    const void *value;     /* as stored: bytes, int64 or pointer; NULL: left for the caller */
    size_t value_len;      /* bytes as stored */
    int64_t expiry;        /* ms of Unix time or KV_NO_EXPIRY */
    uint32_t access;       /* access_priv.h */
    uint8_t type_encoding; /* as in struct kv_entry */
    uint8_t epoch;
    bool pointer; /* the value is a pointer to a block of its own */
};

/* Where key and value of an entry lie. */
struct entry_parts {
    struct kv_slice key;
    uint8_t *value;
    size_t value_len; /* bytes as stored: 8 for integers and pointers */
};

KV_INLINE uint8_t type_encoding_of(enum kv_type type, enum kv_encoding encoding)
{
    return (uint8_t)((unsigned)type | (unsigned)encoding << 4);
}

KV_INLINE struct entry_parts entry_parts(const struct kv_entry *e)
{
    const uint8_t *p = e->data + (e->flags & KV_ENTRY_EXPIRY ? ENTRY_WORD : 0);
    uint32_t key_len;
    uint32_t value_len;
    if (KV_LIKELY(!(e->flags & KV_ENTRY_LONG_KEY))) {
        key_len = *p++;
    } else {
        memcpy(&key_len, p, sizeof(key_len));
        p += sizeof(key_len);
    }
    if (kv_entry_encoding(e) == KV_ENC_INT || e->flags & KV_ENTRY_POINTER) {
        value_len = ENTRY_WORD;
    } else if (KV_LIKELY(!(e->flags & KV_ENTRY_LONG_VALUE))) {
        value_len = *p++;
    } else {
        memcpy(&value_len, p, sizeof(value_len));
        p += sizeof(value_len);
    }
    return (struct entry_parts){kv_slice((const char *)p, key_len),
                                (uint8_t *)(uintptr_t)p + key_len, value_len};
}

KV_INLINE size_t entry_parts_size(const struct kv_entry *e, const struct entry_parts *parts)
{
    return (size_t)(parts->value - (const uint8_t *)e) + parts->value_len;
}

KV_INLINE uint8_t entry_form_flags(const struct entry_form *f)
{
    bool word = f->pointer || f->type_encoding >> 4 == KV_ENC_INT;
    return (uint8_t)((f->expiry != KV_NO_EXPIRY ? KV_ENTRY_EXPIRY : 0) |
                     (f->key.len > ENTRY_SHORT_MAX ? KV_ENTRY_LONG_KEY : 0) |
                     (!word && f->value_len > ENTRY_SHORT_MAX ? KV_ENTRY_LONG_VALUE : 0) |
                     (f->pointer ? KV_ENTRY_POINTER : 0) | access_flags(f->access));
}

/* Bytes that an entry of this form takes. */
KV_INLINE size_t entry_form_size(const struct entry_form *f)
{
    bool word = f->pointer || f->type_encoding >> 4 == KV_ENC_INT;
    return sizeof(struct kv_entry) + (f->expiry != KV_NO_EXPIRY ? ENTRY_WORD : 0) +
           (f->key.len > ENTRY_SHORT_MAX ? 4 : 1) +
           (word                             ? 0
            : f->value_len > ENTRY_SHORT_MAX ? 4
                                             : 1) +
           f->key.len + f->value_len;
}

/* The blocks of a pointer value: what every encoding reports of its own. */
struct kv_footprint kv_entry_value_footprint(const struct kv_entry *e);

KV_INLINE struct kv_footprint entry_footprint(const struct kv_entry *e)
{
    struct entry_parts parts = entry_parts(e);
    size_t size = entry_parts_size(e, &parts);
    struct kv_footprint f = {kv_mem_block_size(size), size};
    if (KV_UNLIKELY(e->flags & KV_ENTRY_POINTER)) {
        struct kv_footprint value = kv_entry_value_footprint(e);
        f.block_bytes += value.block_bytes;
        f.used_bytes += value.used_bytes;
    }
    KV_DASSERT(f.used_bytes <= f.block_bytes);
    return f;
}

/* True when a string of value_len bytes belongs beside the key (not as integer). */
KV_INLINE bool entry_embeds(size_t key_len, size_t value_len, int64_t expiry)
{
    struct entry_form f = {.key = {NULL, key_len}, .value_len = value_len, .expiry = expiry};
    return key_len <= KV_ENTRY_EMBED_MAX && value_len <= KV_ENTRY_EMBED_MAX &&
           entry_form_size(&f) <= KV_ENTRY_EMBED_MAX;
}

KV_INLINE void entry_write_pointer(struct kv_entry *e, void *pointer)
{
    KV_DASSERT(e->flags & KV_ENTRY_POINTER);
    memcpy(entry_parts(e).value, &pointer, sizeof(pointer));
}

/* --- building and freeing --- */

/* The parts of an entry as a form; value and key borrow the entry's bytes. */
struct entry_form kv_entry_form(const struct kv_entry *e);

/* A block with the form's content (the value's bytes uninitialised when f->value is NULL). NULL
 * when memory is short. A pointer value is not counted up: the block now holds it. */
struct kv_entry *kv_entry_build(const struct entry_form *f) KV_MUST_CHECK;

/* The same entry with another key or time to live, choosing embedded or large anew. Without `copy`
 * a value block passes on: one of the two entries ends by kv_entry_discard. NULL: no memory. */
struct kv_entry *kv_entry_rebuild(const struct kv_entry *e, struct kv_slice key, int64_t expiry,
                                  bool copy) KV_MUST_CHECK;

/* True when the entry would be laid out otherwise (embedded or large) with this time to live. */
bool kv_entry_layout_changes(const struct kv_entry *e, int64_t expiry);

/* Frees the structure of a large collection. Any thread that alone has it. */
void kv_entry_large_free(enum kv_encoding encoding, void *large);

/* The guard of a large collection (value/guard.h), or NULL. */
struct kv_guard *kv_entry_guard(const struct kv_entry *e);

/* Frees the block but not the value, which somebody else has taken over. */
void kv_entry_free_block(struct kv_entry *e);

/* Frees value and block. Any thread. */
void kv_entry_destroy(struct kv_entry *e);

/* Frees e after kv_entry_rebuild, but not a value block that `other` has as well. */
void kv_entry_discard(struct kv_entry *e, const struct kv_entry *other);

/* Lets go of a large string that an entry held. Output queues that still send it pay from now. */
void kv_entry_drop_large(struct kv_bigstr *large);

/* Moves the entry and its value's blocks out of slabs that are evacuated; returns where the entry
 * is now. Under the shard's lock; the caller puts the address in the place of the old. */
struct kv_entry *kv_entry_move(struct kv_entry *e, struct kv_moves *m) KV_MUST_CHECK;

/* Asserts layout and size rules of one entry. */
void kv_entry_check(const struct kv_entry *e);

#endif
