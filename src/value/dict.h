/* A large set or hash: elements in blocks of their own, found through a hash table (ds/table.h).
 *
 *   element    one block: flags, [time to live], lengths, name, [value]
 *   name       a set's member, a hash's field; at most 4 GiB - 1
 *   due time   ms of Unix time from which an element counts as gone; who looks (a type's functions
 *              in store/) decides what that means, here it is only kept and indexed
 *
 * A set member of 16 bytes costs a block of 24 and about 10 bytes of table, a field of 16 with a
 * value of 16 a block of 40.
 *
 *   byte 0   flags, see below
 *   then     [due time: 8 bytes]                if KV_ELEMENT_DUE
 *            name length: 1 byte, or 4 if KV_ELEMENT_LONG_NAME
 *            [value length: 1 byte, or 4 if KV_ELEMENT_LONG_VALUE]   if KV_ELEMENT_VALUE
 *            name, value
 *
 * The block is always kv_mem_block_size(kv_element_size(e)). Fields are read with memcpy.
 *
 * Failure: KV_ERR_NOMEM, and NULL of what creates, means that nothing changed. Pointers to elements
 * last until that element is changed or removed, or blocks are moved.
 *
 * Threads: the caller serialises (shard lock); kv_dict_free on any thread that alone has it.
 */
#ifndef KV_VALUE_DICT_H
#define KV_VALUE_DICT_H

#include "base/hash.h"
#include "base/slice.h"
#include "ds/table.h"
#include "ds/time_index.h"
#include "value/footprint.h"
#include "value/guard.h"

#define KV_ELEMENT_DUE 1u
#define KV_ELEMENT_LONG_NAME 2u
#define KV_ELEMENT_VALUE 4u
#define KV_ELEMENT_LONG_VALUE 8u

#define KV_NOT_DUE (-1) /* due time of an element that stays */

struct kv_element {
    uint8_t flags;
    uint8_t data[];
};

struct kv_dict {
    struct kv_table table;
    const struct kv_hash_key *hash_key; /* outlives the dict's use */
    struct kv_time_index *due;          /* records of elements with a due time; NULL without any */
    int64_t registered_due;             /* for the owner: what it told others of them */
    struct kv_guard *guard;             /* the owner's; NULL: nobody saves it in slices */
    size_t element_block_bytes, element_used_bytes;
};

KV_INLINE int64_t kv_element_due(const struct kv_element *e)
{
    int64_t ms = KV_NOT_DUE;
    if (KV_UNLIKELY(e->flags & KV_ELEMENT_DUE))
        memcpy(&ms, e->data, sizeof(ms));
    return ms;
}

KV_INLINE bool kv_element_is_due(const struct kv_element *e, int64_t now_ms)
{
    return KV_UNLIKELY(e->flags & KV_ELEMENT_DUE) && kv_element_due(e) <= now_ms;
}

struct kv_element_parts {
    struct kv_slice name;
    struct kv_slice value; /* empty without one */
};

KV_INLINE struct kv_element_parts kv_element_parts(const struct kv_element *e)
{
    const uint8_t *p = e->data + (e->flags & KV_ELEMENT_DUE ? 8 : 0);
    uint32_t name_len = p[0], value_len = 0;
    if (KV_LIKELY(!(e->flags & KV_ELEMENT_LONG_NAME))) {
        p++;
    } else {
        memcpy(&name_len, p, sizeof(name_len));
        p += sizeof(name_len);
    }
    if (e->flags & KV_ELEMENT_LONG_VALUE) {
        memcpy(&value_len, p, sizeof(value_len));
        p += sizeof(value_len);
    } else if (e->flags & KV_ELEMENT_VALUE) {
        value_len = *p++;
    }
    const char *bytes = (const char *)p;
    return (struct kv_element_parts){kv_slice(bytes, name_len),
                                     kv_slice(bytes + name_len, value_len)};
}

KV_INLINE struct kv_slice kv_element_name(const struct kv_element *e)
{
    return kv_element_parts(e).name;
}

KV_INLINE struct kv_slice kv_element_value(const struct kv_element *e)
{
    return kv_element_parts(e).value;
}

/* Bytes in use. */
KV_INLINE size_t kv_element_size(const struct kv_element *e)
{
    struct kv_element_parts parts = kv_element_parts(e);
    return (size_t)(parts.value.ptr + parts.value.len - (const char *)e);
}

/* Bytes that an element would take, or 0: a length is beyond the limit. */
size_t kv_element_bytes_for(size_t name_len, const struct kv_slice *value, int64_t due);

/* --- life --- */

/* Empty; NULL when memory is short. `hash_key` is borrowed until the dict is freed. */
struct kv_dict *kv_dict_create(const struct kv_hash_key *hash_key) KV_MUST_CHECK;
void kv_dict_free(struct kv_dict *d);

/* All elements in a dict of its own; NULL: no memory. */
struct kv_dict *kv_dict_copy(const struct kv_dict *d) KV_MUST_CHECK;

KV_INLINE uint64_t kv_dict_count(const struct kv_dict *d)
{
    return d->table.count;
}

/* All blocks of it. */
struct kv_footprint kv_dict_footprint(const struct kv_dict *d);

/* --- elements --- */

KV_INLINE uint64_t kv_dict_hash(const struct kv_dict *d, struct kv_slice name)
{
    return kv_hash_bytes(d->hash_key, name.ptr, name.len);
}

/* Two-stage prefetch for series of look-ups (ds/table.h). */
KV_INLINE void kv_dict_prefetch_bucket(const struct kv_dict *d, uint64_t hash)
{
    kv_table_prefetch_bucket(&d->table, hash);
}

KV_INLINE void kv_dict_prefetch_element(const struct kv_dict *d, uint64_t hash)
{
    kv_table_prefetch_item(&d->table, hash);
}

/* The element with a name, due or not, or NULL. `hash` is kv_dict_hash of it. */
struct kv_element *kv_dict_find(const struct kv_dict *d, struct kv_slice name,
                                uint64_t hash) KV_HOT;

/* Adds an element that is known to be absent; `value` NULL: none (a set). */
enum kv_err kv_dict_add(struct kv_dict *d, struct kv_slice name, uint64_t hash,
                        const struct kv_slice *value, int64_t due) KV_MUST_CHECK;

/* Gives an element another value and due time: within its block where it fits, else in another.
 * `value` may lie in the element itself. */
enum kv_err kv_dict_set(struct kv_dict *d, struct kv_element *e, uint64_t hash,
                        const struct kv_slice *value, int64_t due) KV_MUST_CHECK;

void kv_dict_remove(struct kv_dict *d, struct kv_element *e, uint64_t hash);

/* --- all of them; see the functions of the same names in ds/table.h --- */

void kv_dict_each(const struct kv_dict *d, void (*visit)(struct kv_element *e, void *arg),
                  void *arg);
uint64_t kv_dict_scan(const struct kv_dict *d, uint64_t position, uint64_t count,
                      void (*visit)(struct kv_element *e, void *arg), void *arg);
struct kv_element *kv_dict_random(const struct kv_dict *d, struct kv_random *r);

/* --- due times --- */

/* Earliest due time of all elements, or KV_NOT_DUE. */
KV_INLINE int64_t kv_dict_first_due(const struct kv_dict *d)
{
    return KV_LIKELY(d->due == NULL) ? KV_NOT_DUE : (int64_t)d->due->first_when;
}

/* An element with the earliest due time, or NULL when none has one. */
struct kv_element *kv_dict_first_due_element(const struct kv_dict *d);

/* --- moving blocks, checking --- */

/* Moves blocks out of slabs that are evacuated, the dict's own included; returns where it is now.
 * Works on all of it: callers bound what they ask for. */
struct kv_dict *kv_dict_move(struct kv_dict *d, struct kv_moves *m) KV_MUST_CHECK;

/* Asserts all invariants. */
void kv_dict_check(const struct kv_dict *d);

#endif
