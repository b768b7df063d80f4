/* An entry: one block with metadata, key and either the value or a pointer to it.
 *
 *   byte 0   type (low 4 bits) and encoding (high 4 bits)
 *   byte 1   flags, see below
 *   byte 2   snapshot epoch
 *   byte 3-5 access clock: when it was used or how often, see access_priv.h
 *   then     [expiry: 8 bytes, ms of Unix time]        if KV_ENTRY_EXPIRY
 *            key length: 1 byte, or 4 if KV_ENTRY_LONG_KEY
 *            value length: 1 byte, or 4 if KV_ENTRY_LONG_VALUE; none for INT and pointer values
 *            key bytes
 *            value: bytes; int64 for KV_ENC_INT; an 8-byte pointer if KV_ENTRY_POINTER
 *
 * So 16 + 32 bytes take 56, and 64 with a time to live: a block of 64 either way. Fields are
 * unaligned and read with memcpy. The block's size is always kv_mem_block_size(kv_entry_size(e)): a
 * change that would alter the class moves the entry. The body is public because lookups inline the
 * key comparison.
 *
 * A string is embedded while the entry stays within KV_ENTRY_EMBED_MAX bytes, else it is a
 * kv_bigstr. That is layout; what OBJECT ENCODING reports is the encoding in byte 0. Small
 * collections are bytes, and laid out just so; large ones are always a pointer.
 *
 * KV_ENC_LISTPACKEX has 8 bytes before its packed list, a time (ms, KV_NO_EXPIRY) that is no later
 * than the earliest due time of a member, and in the list one more item behind each member (and
 * its value or score): its due time, 0 without one.
 *
 * Threads: under the shard's lock (or alone behind the gate).
 */
#ifndef KV_STORE_ENTRY_H
#define KV_STORE_ENTRY_H

#include "base/assert.h"
#include "base/number.h"
#include "base/slice.h"
#include "value/bigstr.h"
#include "value/footprint.h"

enum kv_type {
    KV_TYPE_STRING = 0,
    KV_TYPE_LIST = 1,
    KV_TYPE_SET = 2,
    KV_TYPE_ZSET = 3,
    KV_TYPE_HASH = 4,
    KV_TYPE_STREAM = 5,
    KV_TYPE_OTHER =
        6, /* what only the server knew that wrote it: modules' types (store/foreign.h) */
    KV_TYPE_COUNT
};

enum kv_encoding {
    KV_ENC_RAW = 0,    /* string that was changed in place or is longer than 44 bytes */
    KV_ENC_EMBSTR = 1, /* string of at most 44 bytes as it was set */
    KV_ENC_INT = 2,    /* string that is the decimal text of an int64 */
    /* small collections: bytes, laid out like a string's */
    KV_ENC_LISTPACK = 3,   /* list, set, hash, sorted set: a packed list (ds/packed.h) */
    KV_ENC_LISTPACKEX = 4, /* set, hash, sorted set with due times of members, see below */
    KV_ENC_INTSET = 5,     /* set of integers (ds/intset.h) */
    KV_ENC_FOREIGN = 6,    /* stream, other: bytes that nobody here understands (store/foreign.h) */
    /* large collections: a structure of src/value behind a pointer */
    KV_ENC_QUICKLIST = 7, /* list: kv_list */
    KV_ENC_HASHTABLE = 8, /* set, hash: kv_dict */
    KV_ENC_SKIPLIST = 9,  /* sorted set: kv_zset */
    KV_ENC_COUNT
};

#define KV_ENC_LARGE KV_ENC_QUICKLIST /* it and what follows is a structure behind a pointer */

#define KV_LISTPACKEX_HEAD ((size_t)8)   /* bytes before the list of KV_ENC_LISTPACKEX */
#define KV_EMBSTR_MAX 44                 /* bytes of a string reported as embstr */
#define KV_ENTRY_EMBED_MAX 1024          /* bytes of an entry with an embedded string */
#define KV_NO_EXPIRY (-1)                /* expiry argument and result: lives for ever */
#define KV_KEEP_EXPIRY (-2)              /* expiry argument: as it is */
#define KV_EXPIRY_MAX ((int64_t)1 << 47) /* ms; later times are refused by commands as invalid */

#define KV_ENTRY_EXPIRY 1u
#define KV_ENTRY_LONG_KEY 2u
#define KV_ENTRY_LONG_VALUE 4u
#define KV_ENTRY_POINTER 8u
#define KV_ENTRY_LAYOUT_FLAGS 15u  /* those above: what the block looks like */
#define KV_ENTRY_LFU 16u           /* form of the access clock: minutes and counter */
#define KV_ENTRY_CLOCK_FLAGS 0xf0u /* it, and the upper three bits of the clock */

struct kv_entry {
    uint8_t type_encoding;
    uint8_t flags;
    uint8_t epoch;
    uint8_t access[3];
    uint8_t data[];
};

KV_INLINE enum kv_type kv_entry_type(const struct kv_entry *e)
{
    return (enum kv_type)(e->type_encoding & 15);
}

KV_INLINE enum kv_encoding kv_entry_encoding(const struct kv_entry *e)
{
    return (enum kv_encoding)(e->type_encoding >> 4);
}

KV_INLINE bool kv_entry_has_expiry(const struct kv_entry *e)
{
    return e->flags & KV_ENTRY_EXPIRY;
}

/* Milliseconds of Unix time, or KV_NO_EXPIRY. */
KV_INLINE int64_t kv_entry_expiry(const struct kv_entry *e)
{
    if (!kv_entry_has_expiry(e))
        return KV_NO_EXPIRY;
    int64_t ms;
    memcpy(&ms, e->data, sizeof(ms));
    return ms;
}

KV_INLINE bool kv_entry_due(const struct kv_entry *e, int64_t now_ms)
{
    return KV_UNLIKELY(kv_entry_has_expiry(e)) && kv_entry_expiry(e) <= now_ms;
}

KV_INLINE struct kv_slice kv_entry_key(const struct kv_entry *e)
{
    const uint8_t *p = e->data + (e->flags & KV_ENTRY_EXPIRY ? 8 : 0);
    size_t value_len_bytes = kv_entry_encoding(e) == KV_ENC_INT || e->flags & KV_ENTRY_POINTER ? 0
                             : e->flags & KV_ENTRY_LONG_VALUE                                  ? 4
                                                                                               : 1;
    if (KV_LIKELY(!(e->flags & KV_ENTRY_LONG_KEY)))
        return kv_slice((const char *)p + 1 + value_len_bytes, p[0]);
    uint32_t len;
    memcpy(&len, p, sizeof(len));
    return kv_slice((const char *)p + 4 + value_len_bytes, len);
}

/* Bytes in use; the block is kv_mem_block_size of it. */
size_t kv_entry_size(const struct kv_entry *e);

/* First byte of the value part (bytes, int64 or pointer). */
uint8_t *kv_entry_value(const struct kv_entry *e);

/* --- strings (type must be KV_TYPE_STRING) --- */

/* The string's bytes; an integer is printed into scratch. Valid until the entry changes. */
struct kv_slice kv_entry_string(const struct kv_entry *e, char scratch[KV_INT_TEXT_MAX]);
size_t kv_entry_string_len(const struct kv_entry *e);

/* True and the number when the string is an integer in canonical form (in any encoding). */
bool kv_entry_string_int(const struct kv_entry *e, int64_t *out);

/* The block with the bytes of a string or small collection, or NULL when they are embedded or the
 * value is an integer or a large collection. */
struct kv_bigstr *kv_entry_bigstr(const struct kv_entry *e);

/* --- collections: store/collection.h changes them --- */

KV_INLINE bool kv_entry_is_large(const struct kv_entry *e)
{
    return e->type_encoding >> 4 >= KV_ENC_LARGE;
}

/* The bytes of a small collection; and the structure of a large one. */
uint8_t *kv_entry_bytes(const struct kv_entry *e, size_t *len) KV_HOT;
void *kv_entry_large(const struct kv_entry *e);

/* The table by which a large collection finds its members; NULL: it has none (a list). */
struct kv_table;
const struct kv_table *kv_entry_table(const struct kv_entry *e);

/* The entry's block and its value's blocks. */
struct kv_footprint kv_entry_footprint(const struct kv_entry *e);

/* Bytes that the key costs in all (MEMORY USAGE): block_bytes of the footprint. */
size_t kv_entry_memory(const struct kv_entry *e);

/* Elements of a large collection: members, fields, items. */
uint64_t kv_entry_elements(const struct kv_entry *e);

/* Names as TYPE and OBJECT ENCODING print them; a foreign value says itself what it is
 * (store/foreign.h). */
const char *kv_type_name(enum kv_type type);
const char *kv_encoding_name(enum kv_encoding encoding);

#endif
