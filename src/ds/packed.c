/* Packed lists. The format is drawn in packed.h.
 *
 * The search is the hot part: a command that names 15 fields in the order in which they lie
 * compares 15 times. It therefore begins where the caller says and wraps. What an item is does not
 * matter to it: the needle's encoding is compared with the item's, first byte first.
 *
 * Invariants: the length in the head is that of the bytes; the count in it is right or 65535; every
 * item is in the one form that kv_needle_init gives it (kv_packed_valid checks all three).
 */
#include "ds/packed.h"
#include "base/assert.h"

#define INT_TEXT_LONGEST 20u /* "-9223372036854775808" */

static void put_le(uint8_t *to, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        to[i] = (uint8_t)(value >> 8 * i);
}

static int64_t get_le(const uint8_t *from, size_t bytes)
{
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)from[i] << 8 * i;
    unsigned unused = 64 - 8 * (unsigned)bytes;
    return (int64_t)(value << unused) >> unused;
}

/* --- needles --- */

void kv_needle_init_int(struct kv_needle *n, int64_t number)
{
    size_t bytes;
    n->ptr = NULL;
    n->len = 0;
    if (number >= 0 && number <= 127) {
        n->head[0] = (uint8_t)number;
        n->head_len = 1;
        return;
    }
    if (number >= -4096 && number <= 4095) {
        n->head[0] = (uint8_t)(0xc0 | ((uint64_t)number >> 8 & 0x1f));
        n->head[1] = (uint8_t)number;
        n->head_len = 2;
        return;
    }
    if (number >= INT16_MIN && number <= INT16_MAX) {
        n->head[0] = 0xf1;
        bytes = 2;
    } else if (number >= -(1 << 23) && number < 1 << 23) {
        n->head[0] = 0xf2;
        bytes = 3;
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        n->head[0] = 0xf3;
        bytes = 4;
    } else {
        n->head[0] = 0xf4;
        bytes = 8;
    }
    put_le(n->head + 1, (uint64_t)number, bytes);
    n->head_len = (uint8_t)(1 + bytes);
}

static void needle_of_string(struct kv_needle *n, struct kv_slice text)
{
    n->ptr = text.ptr;
    n->len = text.len;
    if (KV_LIKELY(text.len < 64)) {
        n->head[0] = (uint8_t)(0x80 | text.len);
        n->head_len = 1;
    } else if (text.len < 4096) {
        n->head[0] = (uint8_t)(0xe0 | text.len >> 8);
        n->head[1] = (uint8_t)text.len;
        n->head_len = 2;
    } else {
        n->head[0] = 0xf0;
        put_le(n->head + 1, text.len, 4);
        n->head_len = 5;
    }
}

void kv_needle_init_any(struct kv_needle *n, struct kv_slice text)
{
    int64_t number;
    /* First and last byte sort nearly all texts out before the parser is called. */
    if (text.len - 1 < INT_TEXT_LONGEST &&
        (text.ptr[0] == '-' || (unsigned char)(text.ptr[0] - '0') <= 9) &&
        (unsigned char)(text.ptr[text.len - 1] - '0') <= 9 && kv_int_parse(text, &number))
        kv_needle_init_int(n, number);
    else
        needle_of_string(n, text);
}

/* --- walking --- */

uint8_t *kv_packed_prev(const uint8_t *list, const uint8_t *at)
{
    const uint8_t *tail = at - 1;
    size_t body = 0;
    unsigned shift = 0;
    if (at == list + KV_PACKED_HEAD)
        return NULL;
    for (;; tail--, shift += 7) {
        body |= (size_t)(*tail & 0x7f) << shift;
        if (!(*tail & 0x80))
            break;
    }
    return (uint8_t *)(uintptr_t)tail - body;
}

static uint32_t head_count(const uint8_t *list)
{
    return (uint32_t)list[4] | (uint32_t)list[5] << 8;
}

uint32_t kv_packed_count(const uint8_t *list)
{
    uint32_t count = head_count(list);
    if (KV_LIKELY(count != KV_PACKED_COUNT_UNKNOWN))
        return count;
    count = 0;
    for (const uint8_t *at = kv_packed_first(list); !kv_packed_at_end(at); at = kv_packed_next(at))
        count++;
    return count;
}

uint8_t *kv_packed_seek(const uint8_t *list, int64_t index)
{
    int64_t count = kv_packed_count(list);
    if (index < 0)
        index += count;
    if (index < 0 || index >= count)
        return NULL;
    if (index <= count / 2)
        return kv_packed_skip(kv_packed_first(list), (unsigned)index);
    uint8_t *at = kv_packed_end(list);
    for (int64_t i = count; i > index; i--)
        at = kv_packed_prev(list, at);
    return at;
}

struct kv_packed_item kv_packed_get(const uint8_t *at)
{
    uint8_t head = at[0];
    size_t body = kv_packed_body(at);
    KV_DASSERT(head != KV_PACKED_END);
    if (head < 0x80)
        return (struct kv_packed_item){.number = head};
    if (head < 0xc0)
        return (struct kv_packed_item){.ptr = (const char *)at + 1, .len = body - 1};
    if (head < 0xe0) {
        int64_t number = (int64_t)(head & 0x1f) << 8 | at[1];
        return (struct kv_packed_item){.number = number >= 4096 ? number - 8192 : number};
    }
    if (head < 0xf0)
        return (struct kv_packed_item){.ptr = (const char *)at + 2, .len = body - 2};
    if (head == 0xf0)
        return (struct kv_packed_item){.ptr = (const char *)at + 5, .len = body - 5};
    return (struct kv_packed_item){.number = get_le(at + 1, body - 1)};
}

uint8_t *kv_packed_find(const uint8_t *list, const uint8_t *from, const struct kv_needle *n,
                        unsigned stride)
{
    for (const uint8_t *at = from; !kv_packed_at_end(at); at = kv_packed_skip(at, stride))
        if (kv_needle_is_at(n, at))
            return (uint8_t *)(uintptr_t)at;
    for (const uint8_t *at = kv_packed_first(list); at != from; at = kv_packed_skip(at, stride))
        if (kv_needle_is_at(n, at))
            return (uint8_t *)(uintptr_t)at;
    return NULL;
}

/* --- writing --- */

uint8_t *kv_packed_put_any(uint8_t *to, const struct kv_needle *n)
{
    size_t body = kv_needle_body(n);
    size_t tail = kv_packed_tail(body);
    memcpy(to, n->head, n->head_len);
    to += n->head_len;
    if (n->len != 0)
        memcpy(to, n->ptr, n->len);
    to += n->len;
    if (KV_LIKELY(tail == 1)) {
        *to = (uint8_t)body;
        return to + 1;
    }
    /* The most significant part comes first and alone lacks the mark that more follow before it. */
    for (size_t i = 0; i < tail; i++)
        to[tail - 1 - i] = (uint8_t)((body >> 7 * i & 0x7f) | (i + 1 < tail ? 0x80 : 0));
    return to + tail;
}

static void set_head(uint8_t *list, size_t bytes, uint32_t count)
{
    KV_DASSERT(bytes >= KV_PACKED_EMPTY && bytes <= KV_PACKED_MAX);
    put_le(list, bytes, 4);
    put_le(list + 4, KV_MIN(count, KV_PACKED_COUNT_UNKNOWN), 2);
}

void kv_packed_seal(uint8_t *list, size_t bytes, uint32_t count)
{
    set_head(list, bytes, count);
    list[bytes - 1] = KV_PACKED_END;
}

void kv_packed_resized(uint8_t *list, size_t bytes, int64_t more)
{
    uint32_t count = head_count(list);
    if (KV_LIKELY(count != KV_PACKED_COUNT_UNKNOWN))
        count = (uint32_t)(count + more);
    kv_packed_seal(list, bytes, count);
}

/* --- foreign bytes --- */

/* Bytes that must be readable before kv_packed_body may look: encoding and length. */
static size_t head_bytes(uint8_t head)
{
    return head == 0xf0 ? 5 : head >= 0xe0 && head < 0xf0 ? 2 : 1;
}

/* Length of the item at `at` if it lies before `end` and is told twice alike, else 0. */
static size_t checked_item(const uint8_t *at, const uint8_t *end)
{
    size_t room = (size_t)(end - at);
    if (at[0] > 0xf4 || head_bytes(at[0]) > room)
        return 0;
    size_t body = kv_packed_body(at);
    size_t tail = kv_packed_tail(body);
    if (body > room || tail > room - body)
        return 0;
    for (size_t i = 0; i < tail; i++) {
        uint8_t want = (uint8_t)((body >> 7 * i & 0x7f) | (i + 1 < tail ? 0x80 : 0));
        if (at[body + tail - 1 - i] != want)
            return 0;
    }
    return body + tail;
}

static bool shortest_text(const uint8_t *at, struct kv_slice text)
{
    struct kv_needle n;
    kv_needle_init(&n, text);
    return n.head_len + n.len == kv_packed_body(at) && kv_needle_is_at(&n, at);
}

/* Of an integer that lies there whole: no shorter form holds it. */
KV_INLINE bool shortest_int(const uint8_t *at)
{
    int64_t wide;
    switch (at[0]) {
    case 0xf1:
        wide = get_le(at + 1, 2);
        return wide < -4096 || wide > 4095;
    case 0xf2:
        wide = get_le(at + 1, 3);
        return wide < INT16_MIN || wide > INT16_MAX;
    case 0xf3:
        wide = get_le(at + 1, 4);
        return wide < -(1 << 23) || wide >= 1 << 23;
    case 0xf4:
        wide = get_le(at + 1, 8);
        return wide < INT32_MIN || wide > INT32_MAX;
    default: /* 7 bits, or 13 of which the highest is the sign */
        return at[0] < 0x80 || at[0] > 0xc0 || at[1] > 127;
    }
}

KV_INLINE bool is_short_text(uint8_t head)
{
    return (head & 0xc0) == 0x80;
}

/* The item at `at`, checked; its bytes, or 0 when it is broken. */
KV_INLINE size_t look_at_item(const uint8_t *at, const uint8_t *end, struct kv_packed_facts *facts)
{
    size_t len = at[0] & 0x3f;
    if (KV_LIKELY(is_short_text(at[0]) && len + 2 <= (size_t)(end - at))) {
        struct kv_slice text = kv_slice((const char *)at + 1, len);
        if (KV_UNLIKELY(at[1 + len] != 1 + len))
            return 0;
        if (KV_UNLIKELY(!kv_packed_is_plain(text) && !shortest_text(at, text)))
            facts->verdict = KV_PACKED_FOREIGN;
        facts->longest = KV_MAX(facts->longest, len);
        return len + 2;
    }
    size_t bytes = checked_item(at, end);
    if (bytes == 0)
        return 0;
    struct kv_packed_item item = {NULL, 0, 0};
    if (at[0] >= 0xe0 && at[0] <= 0xf0)
        item = kv_packed_get(at);
    if (item.ptr != NULL ? !shortest_text(at, kv_slice(item.ptr, item.len)) : !shortest_int(at))
        facts->verdict = KV_PACKED_FOREIGN;
    facts->longest = KV_MAX(facts->longest, (size_t)item.len);
    return bytes;
}

struct kv_packed_facts kv_packed_look(const uint8_t *list, size_t len)
{
    struct kv_packed_facts facts = {.verdict = KV_PACKED_BROKEN};
    if (len < KV_PACKED_EMPTY || len > KV_PACKED_MAX || kv_packed_bytes(list) != len ||
        list[len - 1] != KV_PACKED_END)
        return facts;
    const uint8_t *end = list + len - 1;
    facts.verdict = KV_PACKED_GOOD;
    for (const uint8_t *at = kv_packed_first(list); at < end; facts.count++) {
        size_t bytes = look_at_item(at, end, &facts);
        if (KV_UNLIKELY(bytes == 0)) {
            facts.verdict = KV_PACKED_BROKEN;
            return facts;
        }
        at += bytes;
    }
    uint32_t told = head_count(list);
    if (told != KV_PACKED_COUNT_UNKNOWN && told != facts.count)
        facts.verdict = KV_PACKED_BROKEN;
    return facts;
}

enum kv_packed_verdict kv_packed_valid(const uint8_t *list, size_t len)
{
    return kv_packed_look(list, len).verdict;
}
