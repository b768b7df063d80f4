/* Walking over values that nobody wants: keys that are due already. Only the structure is followed;
 * what lies in strings is not looked at.
 *
 * Every form is a number of strings per member and bytes of fixed length between them; streams and
 * modules' values have walkers of their own (rdb_foreign.c).
 */
#include "persist/rdb_foreign.h"
#include "persist/rdb_value.h"

/* What one member of a form consists of. */
struct shape {
    uint8_t lens_before; /* lengths before its strings */
    uint8_t strings;
    uint8_t bytes_behind; /* bytes behind them */
};

static bool skip_member(struct kv_rdb_reader *r, const struct shape *s)
{
    uint64_t number;
    for (unsigned i = 0; i < s->lens_before; i++)
        if (!kv_rdb_take_len(r, &number))
            return false;
    for (unsigned i = 0; i < s->strings; i++)
        if (!kv_rdb_skip_string(r))
            return false;
    return kv_rdb_skip(r, s->bytes_behind);
}

static bool skip_members(struct kv_rdb_reader *r, struct shape s)
{
    uint64_t count;
    if (!kv_rdb_take_len(r, &count))
        return false;
    while (count-- > 0)
        if (!skip_member(r, &s))
            return false;
    return true;
}

/* Scores as text have a length of one byte; the three highest stand for values without text. */
static bool skip_scored_texts(struct kv_rdb_reader *r)
{
    uint64_t count;
    uint8_t len;
    if (!kv_rdb_take_len(r, &count))
        return false;
    while (count-- > 0)
        if (!kv_rdb_skip_string(r) || !kv_rdb_take_byte(r, &len) ||
            !kv_rdb_skip(r, len >= 253 ? 0 : len))
            return false;
    return true;
}

bool kv_rdb_skip_value(struct kv_rdb_reader *r, uint8_t form)
{
    uint64_t module;
    switch (form) {
    case KV_RDB_STRING:
    case KV_RDB_HASH_ZIPMAP:
    case KV_RDB_LIST_ZIPLIST:
    case KV_RDB_SET_INTSET:
    case KV_RDB_ZSET_ZIPLIST:
    case KV_RDB_HASH_ZIPLIST:
    case KV_RDB_HASH_LISTPACK:
    case KV_RDB_ZSET_LISTPACK:
    case KV_RDB_SET_LISTPACK:
    case KV_RDB_HASH_LISTPACK_DUE_EARLY:
        return kv_rdb_skip_string(r);
    case KV_RDB_HASH_LISTPACK_DUE:
        return kv_rdb_skip(r, 8) && kv_rdb_skip_string(r);
    case KV_RDB_LIST:
    case KV_RDB_SET:
    case KV_RDB_LIST_QUICKLIST:
        return skip_members(r, (struct shape){0, 1, 0});
    case KV_RDB_HASH:
        return skip_members(r, (struct shape){0, 2, 0});
    case KV_RDB_ZSET_TEXT:
        return skip_scored_texts(r);
    case KV_RDB_ZSET:
    case KV_RDB_SET_DUE:
        return skip_members(r, (struct shape){0, 1, 8});
    case KV_RDB_ZSET_DUE:
        return skip_members(r, (struct shape){0, 1, 16});
    case KV_RDB_LIST_QUICKLIST_2:
        return skip_members(r, (struct shape){1, 1, 0});
    case KV_RDB_HASH_DUE_EARLY:
        return skip_members(r, r->valkey ? (struct shape){0, 2, 8} : (struct shape){1, 2, 0});
    case KV_RDB_HASH_DUE:
        return kv_rdb_skip(r, 8) && skip_members(r, (struct shape){1, 2, 0});
    default:
        return kv_rdb_skip_foreign(r, form, &module);
    }
}
