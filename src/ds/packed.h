/* A packed list: strings and integers, one behind the other in one run of bytes.
 *
 * The bytes are those of a listpack, the form in which RDB files and DUMP carry small collections
 * (described with the RDB format of Redis 7), so that saving one is copying it:
 *
 *   4 bytes  length of all of it, little-endian
 *   2 bytes  number of items, little-endian; 65535: not known, count them
 *   items    body, then the body's length once more, to be read from its end (1 to 5 bytes)
 *   0xff     end
 *
 * A body is an encoding and what it announces:
 *   0xxxxxxx           integer 0 to 127
 *   10llllll ...       string of l bytes
 *   110xxxxx x         integer of 13 bits, signed
 *   1110llll l ...     string of l bytes, up to 4,095
 *   0xf0 llll ...      string of l bytes, l in 4 bytes, little-endian
 *   0xf1 to 0xf4       integer of 2, 3, 4, 8 bytes, little-endian, signed
 *
 * One content has one encoding here: what reads as the decimal text of an int64 is an integer of
 * the shortest form, all else the shortest string. So items are compared as bytes, without being
 * taken apart. kv_packed_valid tells whether foreign bytes keep to that.
 *
 * Nothing here allocates: `list` is whoever's memory, and changing the length is the owner's work
 * (store/collection.h). A position is a pointer to an item's first byte, or to the end's. Positions
 * end with the next change. Threads: the caller serialises.
 */
#ifndef KV_DS_PACKED_H
#define KV_DS_PACKED_H

#include "base/compiler.h"
#include "base/number.h"
#include "base/slice.h"

#define KV_PACKED_HEAD ((size_t)6)  /* bytes before the first item */
#define KV_PACKED_EMPTY ((size_t)7) /* bytes of a list without items */
#define KV_PACKED_END 0xff
#define KV_PACKED_COUNT_UNKNOWN 65535u
#define KV_PACKED_MAX ((size_t)1 << 30) /* bytes that a list may have */

/* What an item holds: a string, or (ptr NULL) a number. Borrows the list. */
struct kv_packed_item {
    const char *ptr;
    size_t len;
    int64_t number;
};

/* An item that is looked for or put in: its encoding, worked out once. Borrows the string. */
struct kv_needle {
    const char *ptr;  /* bytes of a string; none of an integer */
    size_t len;       /* how many */
    uint8_t head[9];  /* encoding, with an integer's bytes */
    uint8_t head_len; /* how much of it is used */
};

/* --- reading --- */

/* Bytes of the body at a position that is not the end. */
KV_INLINE size_t kv_packed_body(const uint8_t *at)
{
    uint8_t head = at[0];
    if (KV_LIKELY(head < 0xc0))
        return head < 0x80 ? 1 : 1 + (size_t)(head & 0x3f);
    if (head < 0xe0)
        return 2;
    if (head < 0xf0)
        return 2 + ((size_t)(head & 0x0f) << 8 | at[1]);
    if (head == 0xf0)
        return 5 + ((size_t)at[1] | (size_t)at[2] << 8 | (size_t)at[3] << 16 | (size_t)at[4] << 24);
    return head == 0xf4 ? 9 : (size_t)head - 0xee;
}

/* Bytes that repeat the length of a body behind it. The odd bounds are the format's. */
KV_INLINE size_t kv_packed_tail(size_t body)
{
    if (KV_LIKELY(body < 128))
        return 1;
    return body < 16383 ? 2 : body < 2097151 ? 3 : body < 268435455 ? 4 : 5;
}

KV_INLINE size_t kv_packed_item_bytes(const uint8_t *at)
{
    size_t body = kv_packed_body(at);
    return body + kv_packed_tail(body);
}

KV_INLINE uint8_t *kv_packed_first(const uint8_t *list)
{
    return (uint8_t *)(uintptr_t)list + KV_PACKED_HEAD;
}

KV_INLINE bool kv_packed_at_end(const uint8_t *at)
{
    return at[0] == KV_PACKED_END;
}

/* The position after one that is not the end. */
KV_INLINE uint8_t *kv_packed_next(const uint8_t *at)
{
    return (uint8_t *)(uintptr_t)at + kv_packed_item_bytes(at);
}

/* `steps` positions on; the items must be there. */
KV_INLINE uint8_t *kv_packed_skip(const uint8_t *at, unsigned steps)
{
    while (steps-- > 0)
        at = kv_packed_next(at);
    return (uint8_t *)(uintptr_t)at;
}

/* Length in bytes, as the head tells it. */
KV_INLINE size_t kv_packed_bytes(const uint8_t *list)
{
    uint32_t bytes;
    memcpy(&bytes, list, sizeof(bytes));
    return bytes;
}

KV_INLINE uint8_t *kv_packed_end(const uint8_t *list)
{
    return (uint8_t *)(uintptr_t)list + kv_packed_bytes(list) - 1;
}

/* The position before one, which may be the end; NULL before the first. */
uint8_t *kv_packed_prev(const uint8_t *list, const uint8_t *at);

/* Items in a list; walks it when there are 65,535 or more. */
uint32_t kv_packed_count(const uint8_t *list);

/* Item number `index` from the front, or negative from the back (-1: the last); NULL: none. Walks
 * from the nearer end. */
uint8_t *kv_packed_seek(const uint8_t *list, int64_t index);

/* What is there; the position is not the end. */
struct kv_packed_item kv_packed_get(const uint8_t *at);

/* The same as text; an integer is printed into scratch. */
KV_INLINE struct kv_slice kv_packed_text(const uint8_t *at, char scratch[KV_INT_TEXT_MAX])
{
    if (KV_LIKELY((at[0] & 0xc0) == 0x80))
        return kv_slice((const char *)at + 1, at[0] & 0x3f);
    struct kv_packed_item item = kv_packed_get(at);
    if (item.ptr != NULL)
        return kv_slice(item.ptr, item.len);
    return kv_slice(scratch, kv_int_print(item.number, scratch));
}

/* --- finding --- */

/* True for the usual text: 1 to 63 bytes that do not begin as a number does. Its encoding is one
 * byte, its length marked with 0x80, and so it can be written and compared without a needle. */
KV_INLINE bool kv_packed_is_plain(struct kv_slice text)
{
    return text.len - 1 < 63 && text.ptr[0] != '-' && (unsigned char)(text.ptr[0] - '0') > 9;
}

void kv_needle_init_any(struct kv_needle *n, struct kv_slice text);
void kv_needle_init_int(struct kv_needle *n, int64_t number);

KV_INLINE void kv_needle_init(struct kv_needle *n, struct kv_slice text)
{
    if (KV_LIKELY(kv_packed_is_plain(text))) {
        n->ptr = text.ptr;
        n->len = text.len;
        n->head[0] = (uint8_t)(0x80 | text.len);
        n->head_len = 1;
        return;
    }
    kv_needle_init_any(n, text);
}

KV_INLINE size_t kv_needle_body(const struct kv_needle *n)
{
    return n->head_len + n->len;
}

/* Bytes that the item takes in a list. */
KV_INLINE size_t kv_needle_bytes(const struct kv_needle *n)
{
    return kv_needle_body(n) + kv_packed_tail(kv_needle_body(n));
}

/* True when the item at a position, or the end's byte, is the needle. */
KV_INLINE bool kv_needle_is_at(const struct kv_needle *n, const uint8_t *at)
{
    /* The head's first byte of a short string is its length: few others get further. */
    if (at[0] != n->head[0])
        return false;
    if (KV_UNLIKELY(n->head_len > 1) && memcmp(at, n->head, n->head_len) != 0)
        return false;
    return kv_bytes_equal(at + n->head_len, n->ptr, n->len);
}

/* Looks for an item among every `stride`-th, from `from` (a position of such an item, or the end)
 * on and round to it: who asks for items in the order in which they lie pays one comparison each.
 * NULL: not there. */
uint8_t *kv_packed_find(const uint8_t *list, const uint8_t *from, const struct kv_needle *n,
                        unsigned stride) KV_HOT;

/* --- writing --- */

uint8_t *kv_packed_put_any(uint8_t *to, const struct kv_needle *n);

/* Writes an item of kv_needle_bytes; returns what follows it. */
KV_INLINE uint8_t *kv_packed_put(uint8_t *to, const struct kv_needle *n)
{
    if (KV_UNLIKELY(n->head_len != 1 || n->len > 63))
        return kv_packed_put_any(to, n);
    to[0] = n->head[0];
    kv_bytes_copy(to + 1, n->ptr, n->len);
    to[n->len + 1] = (uint8_t)(n->len + 1);
    return to + n->len + 2;
}

/* Writes head and end of a list of `bytes` bytes, the items being there or about to be put behind
 * the head. */
void kv_packed_seal(uint8_t *list, size_t bytes, uint32_t count);

/* The list's length changed to `bytes`, its number of items by `more`. */
void kv_packed_resized(uint8_t *list, size_t bytes, int64_t more);

/* --- foreign bytes --- */

enum kv_packed_verdict {
    KV_PACKED_BROKEN,  /* not a list */
    KV_PACKED_FOREIGN, /* a list, but items are not in their shortest form: to be built anew */
    KV_PACKED_GOOD,
};

struct kv_packed_facts {
    enum kv_packed_verdict verdict;
    uint32_t count; /* items; as far as was looked, when it is broken */
    size_t longest; /* bytes of the longest string; 0: there are only integers */
};

/* Looks at every item, once, and never past `len`. */
struct kv_packed_facts kv_packed_look(const uint8_t *list, size_t len);
enum kv_packed_verdict kv_packed_valid(const uint8_t *list, size_t len);

#endif
