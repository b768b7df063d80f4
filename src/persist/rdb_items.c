/* Listpacks, ziplists and zipmaps, item by item.
 *
 *   ziplist   4 bytes  length of all of it, little-endian, as all of this but string lengths
 *             4 bytes  offset of the last item
 *             2 bytes  number of items; 65535: count them
 *             items    length of the item before (1 byte, or 254 and 4 bytes), encoding, content
 *             0xff     end
 *   encoding  00llllll               string of l bytes
 *             01llllll l             string of up to 16,383 bytes, big-endian
 *             10______ llll          string, big-endian
 *             0xc0 0xd0 0xe0         integer of 2, 4, 8 bytes
 *             0xf0 0xfe              integer of 3 bytes, of 1
 *             0xf1 to 0xfd           0 to 12
 *
 *   zipmap    1 byte   number of pairs; 254 and 255: count them
 *             pairs    length, field, length, spare bytes, value, so many unused bytes
 *             0xff     end
 *   length    1 byte, or 254 and 4 bytes, little-endian
 */
#include "persist/rdb_items.h"
#include "ds/packed.h"

#define ZIPLIST_HEAD 10u
#define ZIPLIST_COUNT_UNKNOWN 65535u
#define ZIPMAP_COUNT_MAX 254u
#define LONG_MARK 254u
#define END_MARK 0xffu

static uint32_t get_le32(const uint8_t *p)
{
    uint32_t value;
    memcpy(&value, p, sizeof(value));
    return value;
}

static int64_t get_signed(const uint8_t *p, unsigned bytes)
{
    uint64_t value = 0;
    for (unsigned i = 0; i < bytes; i++)
        value |= (uint64_t)p[i] << 8 * i;
    unsigned unused = 64 - 8 * bytes;
    return (int64_t)(value << unused) >> unused;
}

/* --- ziplists --- */

/* One item; lengths only. */
struct zip_item {
    uint64_t before; /* what it says of the length of the item before */
    const uint8_t *content;
    uint64_t len; /* bytes of the content */
    const uint8_t *next;
    bool is_string;
};

/* Takes an item apart that lies before `end`; false: it does not. */
static bool zip_item(const uint8_t *at, const uint8_t *end, struct zip_item *item)
{
    size_t left = (size_t)(end - at);
    size_t head = left != 0 && at[0] == LONG_MARK ? 5 : 1;
    if (left < head + 1)
        return false;
    item->before = head == 5 ? get_le32(at + 1) : at[0];
    const uint8_t *p = at + head;
    left -= head;
    size_t own = 1;
    item->is_string = p[0] < 0xc0;
    if (p[0] < 0x40) {
        item->len = p[0];
    } else if (p[0] < 0x80) {
        own = 2;
        item->len = left >= own ? (uint64_t)(p[0] & 0x3f) << 8 | p[1] : 0;
    } else if (p[0] < 0xc0) {
        own = 5;
        item->len = left >= own
                        ? (uint64_t)p[1] << 24 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 8 | p[4]
                        : 0;
    } else {
        static const uint8_t widths[] = {[0x0] = 2, [0x1] = 4, [0x2] = 8, [0x3] = 3};
        if (p[0] >= 0xf1 && p[0] <= 0xfd)
            item->len = 0;
        else if (p[0] == 0xfe)
            item->len = 1;
        else if ((p[0] & 0x0f) == 0)
            item->len = widths[p[0] >> 4 & 3];
        else
            return false;
    }
    if (left < own || left - own < item->len)
        return false;
    item->content = p + own;
    item->next = item->content + item->len;
    return true;
}

static bool ziplist_open(struct kv_rdb_items *i, const uint8_t *list, size_t len)
{
    struct zip_item item;
    if (len < ZIPLIST_HEAD + 1 || get_le32(list) != len || list[len - 1] != END_MARK)
        return false;
    const uint8_t *end = list + len - 1;
    const uint8_t *at = list + ZIPLIST_HEAD;
    const uint8_t *last = at;
    uint64_t before = 0;
    for (; at < end; at = item.next) {
        if (at[0] == END_MARK || !zip_item(at, end, &item) || item.before != before)
            return false;
        before = (uint64_t)(item.next - at);
        last = at;
        i->count++;
    }
    uint32_t told = list[8] | (uint32_t)list[9] << 8;
    i->at = list + ZIPLIST_HEAD;
    return get_le32(list + 4) == (size_t)(last - list) &&
           (told == ZIPLIST_COUNT_UNKNOWN || told == i->count);
}

static struct kv_slice ziplist_take(struct kv_rdb_items *i, char scratch[KV_INT_TEXT_MAX])
{
    struct zip_item item;
    /* It was looked through; nothing beyond the item is read. */
    bool valid = zip_item(i->at, i->at + UINT32_MAX, &item);
    KV_ASSERT(valid);
    i->at = item.next;
    if (item.is_string)
        return kv_slice((const char *)item.content, (size_t)item.len);
    int64_t number = item.len == 0 ? (item.content[-1] & 0x0f) - 1
                                   : get_signed(item.content, (unsigned)item.len);
    return kv_slice(scratch, kv_int_print(number, scratch));
}

/* --- zipmaps --- */

/* A length and what it announces; *value: behind the length lies one that tells unused bytes. */
static const uint8_t *zipmap_part(const uint8_t *at, const uint8_t *end, bool value,
                                  struct kv_slice *out)
{
    size_t left = (size_t)(end - at);
    size_t head = left != 0 && at[0] == LONG_MARK ? 5 : 1;
    if (left < head + value)
        return NULL;
    uint64_t len = head == 5 ? get_le32(at + 1) : at[0];
    uint64_t unused = value ? at[head] : 0;
    if (left - head - value < len + unused)
        return NULL;
    *out = kv_slice((const char *)at + head + value, (size_t)len);
    return at + head + value + len + unused;
}

static bool zipmap_open(struct kv_rdb_items *i, const uint8_t *map, size_t len)
{
    struct kv_slice part;
    if (len < 2 || map[len - 1] != END_MARK)
        return false;
    const uint8_t *end = map + len - 1;
    const uint8_t *at = map + 1;
    while (at < end) {
        if (at[0] == END_MARK)
            return false;
        at = zipmap_part(at, end, false, &part);
        if (at == NULL || at[0] == END_MARK)
            return false;
        at = zipmap_part(at, end, true, &part);
        if (at == NULL)
            return false;
        i->count += 2;
    }
    i->at = map + 1;
    return map[0] >= ZIPMAP_COUNT_MAX || (uint64_t)map[0] * 2 == i->count;
}

static struct kv_slice zipmap_take(struct kv_rdb_items *i)
{
    struct kv_slice part = {NULL, 0};
    i->at = zipmap_part(i->at, i->at + UINT32_MAX, i->value_next, &part);
    KV_ASSERT(i->at != NULL);
    i->value_next = !i->value_next;
    return part;
}

/* --- all --- */

static bool listpack_open(struct kv_rdb_items *i, const uint8_t *list, size_t len)
{
    struct kv_packed_facts facts = kv_packed_look(list, len);
    if (facts.verdict == KV_PACKED_BROKEN)
        return false;
    i->canonical = facts.verdict == KV_PACKED_GOOD;
    i->longest = facts.longest;
    i->count = facts.count;
    i->at = kv_packed_first(list);
    return true;
}

bool kv_rdb_items_open(struct kv_rdb_items *i, struct kv_rdb_reader *r, enum kv_rdb_packing packing,
                       struct kv_slice bytes)
{
    const uint8_t *p = (const uint8_t *)bytes.ptr;
    *i = (struct kv_rdb_items){.packing = packing};
    switch (packing) {
    case KV_RDB_LISTPACK:
        return listpack_open(i, p, bytes.len) || KV_RDB_BAD(r, "a listpack is damaged");
    case KV_RDB_ZIPLIST:
        return ziplist_open(i, p, bytes.len) || KV_RDB_BAD(r, "a ziplist is damaged");
    default:
        return zipmap_open(i, p, bytes.len) || KV_RDB_BAD(r, "a zipmap is damaged");
    }
}

bool kv_rdb_items_next(struct kv_rdb_items *i, char scratch[KV_INT_TEXT_MAX], struct kv_slice *out)
{
    if (i->at[0] == END_MARK && !i->value_next)
        return false;
    switch (i->packing) {
    case KV_RDB_LISTPACK:
        *out = kv_packed_text(i->at, scratch);
        i->at = kv_packed_next(i->at);
        return true;
    case KV_RDB_ZIPLIST:
        *out = ziplist_take(i, scratch);
        return true;
    default:
        *out = zipmap_take(i);
        return true;
    }
}
