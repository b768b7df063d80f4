/* Walking over streams and modules' values.
 *
 *   stream   number of nodes; per node its first id (a string of 16 bytes) and a listpack
 *            number of entries, last id
 *            from form 2 on: first id, largest deleted id, entries ever added
 *            number of groups; per group: name, last id, [form 2: entries read],
 *              pending entries: 16 bytes of id, 8 of time, number of deliveries,
 *              consumers: name, 8 bytes of time, [form 3: 8 more], ids of their pending entries
 *              [form 5: ids that were given back]
 *            form 4: limits of producers, their number, two counters
 *   module   identity of the type, then parts: a number says what the next one is, 0 ends them
 *
 * Ids are two lengths, but within groups 16 raw bytes. Counts only say how often to walk: a false
 * one runs into the end of the source.
 */
#include "persist/rdb_foreign.h"

bool kv_rdb_form_is_foreign(uint8_t form)
{
    switch (form) {
    case KV_RDB_MODULE:
    case KV_RDB_STREAM:
    case KV_RDB_STREAM_2:
    case KV_RDB_STREAM_3:
    case KV_RDB_STREAM_4:
    case KV_RDB_STREAM_5:
        return true;
    default:
        return false;
    }
}

/* --- modules --- */

bool kv_rdb_skip_module_parts(struct kv_rdb_reader *r)
{
    uint64_t part, number;
    for (;;) {
        if (!kv_rdb_take_len(r, &part))
            return false;
        bool walked;
        switch (part) {
        case KV_RDB_MODULE_EOF:
            return true;
        case KV_RDB_MODULE_SINT:
        case KV_RDB_MODULE_UINT:
            walked = kv_rdb_take_len(r, &number);
            break;
        case KV_RDB_MODULE_FLOAT:
            walked = kv_rdb_skip(r, 4);
            break;
        case KV_RDB_MODULE_DOUBLE:
            walked = kv_rdb_skip(r, 8);
            break;
        case KV_RDB_MODULE_STRING:
            walked = kv_rdb_skip_string(r);
            break;
        default:
            return KV_RDB_BAD(r, "a module's value has a part that is not known");
        }
        if (!walked)
            return false;
    }
}

void kv_rdb_module_name(uint64_t module, char out[KV_RDB_MODULE_NAME])
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    /* Nine letters of six bits lie above ten bits of version. */
    for (int i = 0; i < KV_RDB_MODULE_NAME; i++)
        out[i] = letters[module >> (58 - 6 * i) & 63];
}

/* --- streams --- */

static bool skip_lens(struct kv_rdb_reader *r, unsigned count)
{
    uint64_t number;
    while (count-- > 0)
        if (!kv_rdb_take_len(r, &number))
            return false;
    return true;
}

/* So many ids of 16 bytes. */
static bool skip_raw_ids(struct kv_rdb_reader *r)
{
    uint64_t count;
    if (!kv_rdb_take_len(r, &count))
        return false;
    if (count > UINT64_MAX / 16)
        return KV_RDB_BAD(r, "a stream has too many pending entries");
    return kv_rdb_skip(r, count * 16);
}

static bool skip_pending(struct kv_rdb_reader *r)
{
    uint64_t count;
    if (!kv_rdb_take_len(r, &count))
        return false;
    while (count-- > 0)
        if (!kv_rdb_skip(r, 16 + 8) || !skip_lens(r, 1))
            return false;
    return true;
}

static bool skip_group(struct kv_rdb_reader *r, int version)
{
    uint64_t consumers;
    if (!kv_rdb_skip_string(r) || !skip_lens(r, version >= 2 ? 3 : 2) || !skip_pending(r) ||
        !kv_rdb_take_len(r, &consumers))
        return false;
    while (consumers-- > 0)
        if (!kv_rdb_skip_string(r) || !kv_rdb_skip(r, version >= 3 ? 16 : 8) || !skip_raw_ids(r))
            return false;
    return version < 5 || skip_raw_ids(r);
}

static bool skip_producers(struct kv_rdb_reader *r)
{
    uint64_t producers;
    if (!skip_lens(r, 2) || !kv_rdb_take_len(r, &producers))
        return false;
    if (producers != 0)
        return KV_RDB_BAD(r, "a stream with idempotent producers cannot be read");
    return skip_lens(r, 2);
}

static bool skip_stream(struct kv_rdb_reader *r, int version)
{
    uint64_t nodes, groups;
    if (!kv_rdb_take_len(r, &nodes))
        return false;
    while (nodes-- > 0)
        if (!kv_rdb_skip_string(r) || !kv_rdb_skip_string(r))
            return false;
    if (!skip_lens(r, version >= 2 ? 3 + 5 : 3) || !kv_rdb_take_len(r, &groups))
        return false;
    while (groups-- > 0)
        if (!skip_group(r, version))
            return false;
    return version < 4 || skip_producers(r);
}

bool kv_rdb_skip_foreign(struct kv_rdb_reader *r, uint8_t form, uint64_t *module)
{
    switch (form) {
    case KV_RDB_MODULE:
        return kv_rdb_take_len(r, module) && kv_rdb_skip_module_parts(r);
    case KV_RDB_STREAM:
        return skip_stream(r, 1);
    case KV_RDB_STREAM_2:
        return skip_stream(r, 2);
    case KV_RDB_STREAM_3:
        return skip_stream(r, 3);
    case KV_RDB_STREAM_4:
        return skip_stream(r, 4);
    case KV_RDB_STREAM_5:
        return skip_stream(r, 5);
    default:
        return KV_RDB_BAD(r, "value type %u is not known", form);
    }
}
