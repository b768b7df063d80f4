/* Reading values: one function per way in which members lie in a form.
 *
 *   string        the value itself
 *   members       a number, then names (and values, scores, due times) as strings
 *   container     one string that is a listpack, ziplist, zipmap or intset
 *   nodes         a number, then containers: lists
 *   foreign       walked over and kept
 *
 * A listpack of a set, hash or sorted set that is canonical (ds/packed.h), within our limits and
 * without a name that comes twice is put as it is; everything else goes through rdb_build.h, item
 * by item. What a file says of numbers is a bound for loops alone: memory follows what was read.
 */
#include "persist/rdb_value.h"
#include "ds/intset.h"
#include "persist/rdb_build.h"
#include "persist/rdb_foreign.h"
#include "persist/rdb_items.h"
#include "store/foreign.h"
#include "store/zset.h"
#include <math.h>

void kv_rdb_loader_init(struct kv_rdb_loader *l, struct kv_rdb_reader *r, struct kv_view *v)
{
    *l = (struct kv_rdb_loader){.reader = r, .view = v, .limits = kv_store_limits(v->store)};
}

void kv_rdb_loader_release(struct kv_rdb_loader *l)
{
    kv_rdb_string_release(&l->name);
    kv_rdb_string_release(&l->value);
    kv_rdb_bytes_release(&l->list);
    kv_rdb_bytes_release(&l->marks);
}

/* --- strings, foreign values --- */

static enum kv_rdb_result take_text(struct kv_rdb_loader *l, struct kv_rdb_target *t)
{
    if (!kv_rdb_take_string(l->reader, &l->value, false))
        return KV_RDB_FAILED;
    struct kv_rdb_built b = {.kind = KV_RDB_BUILT_TEXT, .bytes = l->value.text};
    return kv_rdb_deliver(l, t, &b);
}

static enum kv_rdb_result take_foreign(struct kv_rdb_loader *l, uint8_t form,
                                       struct kv_rdb_target *t)
{
    struct kv_rdb_reader *r = l->reader;
    uint64_t module = 0;
    l->list.len = 0;
    kv_rdb_record_begin(r, &l->list);
    bool walked = kv_rdb_skip_foreign(r, form, &module);
    if (!kv_rdb_record_end(r) || !walked)
        return KV_RDB_FAILED;
    struct kv_rdb_built b = {
        .kind = KV_RDB_BUILT_FOREIGN,
        .type = form == KV_RDB_MODULE ? KV_TYPE_OTHER : KV_TYPE_STREAM,
        .form = form,
        .bytes = kv_slice((const char *)l->list.ptr, l->list.len),
    };
    kv_rdb_module_name(module, b.module);
    return kv_rdb_deliver(l, t, &b);
}

/* --- members one by one --- */

static bool take_due(struct kv_rdb_reader *r, int64_t due, int64_t *out)
{
    if (due < 0 || due > KV_EXPIRY_MAX)
        return KV_RDB_BAD(r, "a due time of a member is out of range");
    *out = due;
    return true;
}

/* Scores as text are a length of one byte and digits; three lengths mean something else. */
static bool take_score_text(struct kv_rdb_reader *r, double *out)
{
    uint8_t len;
    char text[255];
    if (!kv_rdb_take_byte(r, &len))
        return false;
    switch (len) {
    case 255:
        *out = -INFINITY;
        return true;
    case 254:
        *out = INFINITY;
        return true;
    case 253:
        *out = NAN;
        return true;
    default:
        if (!kv_rdb_take(r, text, len))
            return false;
        return kv_double_parse(kv_slice(text, len), out) || KV_RDB_BAD(r, "a score is no number");
    }
}

static bool add_scored_members(struct kv_rdb_build *b, uint8_t form, uint64_t count)
{
    struct kv_rdb_loader *l = b->loader;
    while (count-- > 0) {
        double score;
        uint64_t raw;
        int64_t due = KV_NOT_DUE;
        if (!kv_rdb_take_string(l->reader, &l->name, true))
            return false;
        if (form == KV_RDB_ZSET_TEXT ? !take_score_text(l->reader, &score)
                                     : !kv_rdb_take_double(l->reader, &score))
            return false;
        if (form == KV_RDB_ZSET_DUE) {
            if (!kv_rdb_take_uint64(l->reader, &raw))
                return false;
            if (raw != 0 && !take_due(l->reader, (int64_t)raw, &due))
                return false;
        }
        if (!kv_rdb_build_add_scored(b, l->name.text, score, due))
            return false;
    }
    return true;
}

static bool add_items(struct kv_rdb_build *b, uint64_t count)
{
    struct kv_rdb_loader *l = b->loader;
    while (count-- > 0)
        if (!kv_rdb_take_string(l->reader, &l->value, false) ||
            !kv_rdb_build_push(b, l->value.text))
            return false;
    return true;
}

static bool add_set_members(struct kv_rdb_build *b, uint8_t form, uint64_t count)
{
    struct kv_rdb_loader *l = b->loader;
    while (count-- > 0) {
        uint64_t raw;
        int64_t due = KV_NOT_DUE;
        if (!kv_rdb_take_string(l->reader, &l->name, form == KV_RDB_SET_DUE))
            return false;
        if (form == KV_RDB_SET_DUE) {
            if (!kv_rdb_take_uint64(l->reader, &raw))
                return false;
            if (raw != 0 && !take_due(l->reader, (int64_t)raw, &due))
                return false;
        }
        if (!kv_rdb_build_add(b, l->name.text, kv_slice(NULL, 0), due))
            return false;
    }
    return true;
}

/* The time before a field: of candidates of Redis 7.4 absolute, else counted from the earliest. */
static bool take_field_due(struct kv_rdb_reader *r, uint8_t form, int64_t first, int64_t *due)
{
    uint64_t told;
    *due = KV_NOT_DUE;
    if (form != KV_RDB_HASH_DUE && form != KV_RDB_HASH_DUE_EARLY)
        return true;
    if (!kv_rdb_take_len(r, &told))
        return false;
    if (told == 0)
        return true;
    if (form == KV_RDB_HASH_DUE && told <= (uint64_t)KV_EXPIRY_MAX)
        told += (uint64_t)first - 1;
    return take_due(r, (int64_t)KV_MIN(told, (uint64_t)INT64_MAX), due);
}

static bool add_fields(struct kv_rdb_build *b, uint8_t form, uint64_t count, int64_t first)
{
    struct kv_rdb_loader *l = b->loader;
    bool valkey = l->reader->valkey && form == KV_RDB_HASH_DUE_VALKEY;
    while (count-- > 0) {
        int64_t due = KV_NOT_DUE;
        uint64_t raw;
        if ((!valkey && !take_field_due(l->reader, form, first, &due)) ||
            !kv_rdb_take_string(l->reader, &l->name, true) ||
            !kv_rdb_take_string(l->reader, &l->value, valkey))
            return false;
        if (valkey) {
            if (!kv_rdb_take_uint64(l->reader, &raw))
                return false;
            if (raw != UINT64_MAX && !take_due(l->reader, (int64_t)raw, &due))
                return false;
        }
        if (!kv_rdb_build_add(b, l->name.text, l->value.text, due))
            return false;
    }
    return true;
}

static bool take_first_due(struct kv_rdb_reader *r, int64_t *first)
{
    uint64_t raw;
    if (!kv_rdb_take_uint64(r, &raw))
        return false;
    if (raw > (uint64_t)KV_EXPIRY_MAX)
        return KV_RDB_BAD(r, "the earliest due time of a hash is out of range");
    *first = (int64_t)raw;
    return true;
}

static enum kv_rdb_result take_members(struct kv_rdb_loader *l, uint8_t form,
                                       struct kv_rdb_target *t)
{
    struct kv_rdb_build b;
    uint64_t count;
    int64_t first = 0;
    bool added;
    if (form == KV_RDB_HASH_DUE && !take_first_due(l->reader, &first))
        return KV_RDB_FAILED;
    if (!kv_rdb_take_len(l->reader, &count))
        return KV_RDB_FAILED;
    switch (form) {
    case KV_RDB_LIST:
        kv_rdb_build_init(&b, l, KV_TYPE_LIST, false);
        added = add_items(&b, count);
        break;
    case KV_RDB_SET:
    case KV_RDB_SET_DUE:
        kv_rdb_build_init(&b, l, KV_TYPE_SET, form == KV_RDB_SET_DUE);
        added = add_set_members(&b, form, count);
        break;
    case KV_RDB_ZSET_TEXT:
    case KV_RDB_ZSET:
    case KV_RDB_ZSET_DUE:
        kv_rdb_build_init(&b, l, KV_TYPE_ZSET, form == KV_RDB_ZSET_DUE);
        added = add_scored_members(&b, form, count);
        break;
    default:
        kv_rdb_build_init(&b, l, KV_TYPE_HASH, form != KV_RDB_HASH);
        added = add_fields(&b, form, count, first);
        break;
    }
    enum kv_rdb_result result = added ? kv_rdb_build_finish(&b, t) : KV_RDB_FAILED;
    kv_rdb_build_release(&b);
    return result;
}

/* --- containers --- */

static unsigned container_stride(uint8_t form)
{
    switch (form) {
    case KV_RDB_SET_LISTPACK:
        return 1;
    case KV_RDB_HASH_LISTPACK_DUE:
    case KV_RDB_HASH_LISTPACK_DUE_EARLY:
        return 3;
    default:
        return 2;
    }
}

static enum kv_type container_type(uint8_t form)
{
    switch (form) {
    case KV_RDB_SET_LISTPACK:
        return KV_TYPE_SET;
    case KV_RDB_ZSET_LISTPACK:
    case KV_RDB_ZSET_ZIPLIST:
        return KV_TYPE_ZSET;
    default:
        return KV_TYPE_HASH;
    }
}

/* True when a canonical listpack may be put as it is. */
static bool fits_as_it_is(struct kv_rdb_loader *l, const struct kv_rdb_items *items, uint8_t form)
{
    struct kv_rdb_packed_limits limits = kv_rdb_packed_limits(l->limits, container_type(form));
    if (!items->canonical || items->longest > limits.value_bytes ||
        items->count / container_stride(form) > limits.entries ||
        (form != KV_RDB_HASH_LISTPACK && form != KV_RDB_SET_LISTPACK &&
         form != KV_RDB_ZSET_LISTPACK))
        return false;
    return form != KV_RDB_ZSET_LISTPACK || kv_rdb_scores_canonical(items->at - KV_PACKED_HEAD);
}

/* One member from a container. */
static bool add_from_items(struct kv_rdb_build *b, struct kv_rdb_items *items, uint8_t form)
{
    struct kv_rdb_reader *r = b->loader->reader;
    char digits[3][KV_INT_TEXT_MAX];
    struct kv_slice part[3] = {{NULL, 0}, {NULL, 0}, {NULL, 0}};
    int64_t due = 0;
    double score;
    for (unsigned i = 0; i < container_stride(form); i++)
        if (!kv_rdb_items_next(items, digits[i], &part[i]))
            return KV_RDB_BAD(r, "a container ends within a member");
    if (container_type(form) == KV_TYPE_ZSET) {
        if (!kv_double_parse(part[1], &score))
            return KV_RDB_BAD(r, "a score is no number");
        return kv_rdb_build_add_scored(b, part[0], score, KV_NOT_DUE);
    }
    if (container_stride(form) == 3) {
        if (!kv_int_parse(part[2], &due))
            return KV_RDB_BAD(r, "a due time of a field is no number");
        if (due != 0 && !take_due(r, due, &due))
            return false;
    }
    return kv_rdb_build_add(b, part[0], part[1], due != 0 ? due : KV_NOT_DUE);
}

static enum kv_rdb_result take_container(struct kv_rdb_loader *l, uint8_t form,
                                         enum kv_rdb_packing packing, struct kv_rdb_target *t)
{
    struct kv_rdb_build b;
    struct kv_rdb_items items;
    unsigned stride = container_stride(form);
    int64_t first;
    if (form == KV_RDB_HASH_LISTPACK_DUE && !take_first_due(l->reader, &first))
        return KV_RDB_FAILED;
    if (!kv_rdb_take_string(l->reader, &l->value, false) ||
        !kv_rdb_items_open(&items, l->reader, packing, l->value.text))
        return KV_RDB_FAILED;
    if (items.count == 0)
        return KV_RDB_EMPTY;
    if (items.count % stride != 0) {
        KV_RDB_BAD(l->reader, "a container ends within a member");
        return KV_RDB_FAILED;
    }
    const uint8_t *list = (const uint8_t *)l->value.text.ptr;
    if (fits_as_it_is(l, &items, form)) {
        if (!kv_rdb_check_distinct(l, list, stride))
            return KV_RDB_FAILED;
        return kv_rdb_put_packed(l, t, container_type(form), list);
    }
    kv_rdb_build_init(&b, l, container_type(form), stride == 3);
    bool added = true;
    for (uint64_t i = 0; added && i < items.count / stride; i++)
        added = add_from_items(&b, &items, form);
    enum kv_rdb_result result = added ? kv_rdb_build_finish(&b, t) : KV_RDB_FAILED;
    kv_rdb_build_release(&b);
    return result;
}

static enum kv_rdb_result take_intset(struct kv_rdb_loader *l, struct kv_rdb_target *t)
{
    struct kv_rdb_build b;
    char digits[KV_INT_TEXT_MAX];
    if (!kv_rdb_take_string(l->reader, &l->value, false))
        return KV_RDB_FAILED;
    const uint8_t *set = (const uint8_t *)l->value.text.ptr;
    size_t len = l->value.text.len;
    if (len == KV_INTSET_HEAD && kv_intset_count(set) == 0)
        return KV_RDB_EMPTY;
    if (!kv_intset_valid(set, len)) {
        KV_RDB_BAD(l->reader, "an intset is damaged");
        return KV_RDB_FAILED;
    }
    uint32_t count = kv_intset_count(set);
    uint64_t limit = l->limits->set_max_intset_entries;
    if (count <= KV_MIN(limit, KV_INTSET_MAX))
        return kv_rdb_put_intset(l, t, set, len);
    kv_rdb_build_init(&b, l, KV_TYPE_SET, false);
    bool added = true;
    for (uint32_t i = 0; added && i < count; i++) {
        size_t bytes = kv_int_print(kv_intset_get(set, i), digits);
        added = kv_rdb_build_add(&b, kv_slice(digits, bytes), kv_slice(NULL, 0), KV_NOT_DUE);
    }
    enum kv_rdb_result result = added ? kv_rdb_build_finish(&b, t) : KV_RDB_FAILED;
    kv_rdb_build_release(&b);
    return result;
}

/* --- lists --- */

static bool push_container(struct kv_rdb_build *b, enum kv_rdb_packing packing)
{
    struct kv_rdb_loader *l = b->loader;
    struct kv_rdb_items items;
    char digits[KV_INT_TEXT_MAX];
    struct kv_slice item;
    if (!kv_rdb_take_string(l->reader, &l->value, false) ||
        !kv_rdb_items_open(&items, l->reader, packing, l->value.text))
        return false;
    while (kv_rdb_items_next(&items, digits, &item))
        if (!kv_rdb_build_push(b, item))
            return false;
    return true;
}

static bool push_node(struct kv_rdb_build *b, uint8_t form)
{
    struct kv_rdb_loader *l = b->loader;
    uint64_t container;
    if (form == KV_RDB_LIST_QUICKLIST)
        return push_container(b, KV_RDB_ZIPLIST);
    if (!kv_rdb_take_len(l->reader, &container))
        return false;
    if (container == KV_RDB_CONTAINER_PACKED)
        return push_container(b, KV_RDB_LISTPACK);
    if (container != KV_RDB_CONTAINER_PLAIN)
        return KV_RDB_BAD(l->reader, "a list has a node of a kind that is not known");
    return kv_rdb_take_string(l->reader, &l->value, false) && kv_rdb_build_push(b, l->value.text);
}

static enum kv_rdb_result take_list(struct kv_rdb_loader *l, uint8_t form, struct kv_rdb_target *t)
{
    struct kv_rdb_build b;
    uint64_t nodes = 1;
    bool added = true;
    if (form != KV_RDB_LIST_ZIPLIST && !kv_rdb_take_len(l->reader, &nodes))
        return KV_RDB_FAILED;
    kv_rdb_build_init(&b, l, KV_TYPE_LIST, false);
    while (added && nodes-- > 0)
        added =
            form == KV_RDB_LIST_ZIPLIST ? push_container(&b, KV_RDB_ZIPLIST) : push_node(&b, form);
    enum kv_rdb_result result = added ? kv_rdb_build_finish(&b, t) : KV_RDB_FAILED;
    kv_rdb_build_release(&b);
    return result;
}

/* --- all forms --- */

enum kv_rdb_result kv_rdb_take_value(struct kv_rdb_loader *l, uint8_t form, struct kv_rdb_target *t)
{
    switch (form) {
    case KV_RDB_STRING:
        return take_text(l, t);
    case KV_RDB_LIST:
    case KV_RDB_SET:
    case KV_RDB_ZSET_TEXT:
    case KV_RDB_HASH:
    case KV_RDB_ZSET:
    case KV_RDB_HASH_DUE_EARLY:
    case KV_RDB_HASH_DUE:
    case KV_RDB_SET_DUE:
    case KV_RDB_ZSET_DUE:
        return take_members(l, form, t);
    case KV_RDB_HASH_ZIPMAP:
        return take_container(l, form, KV_RDB_ZIPMAP, t);
    case KV_RDB_ZSET_ZIPLIST:
    case KV_RDB_HASH_ZIPLIST:
        return take_container(l, form, KV_RDB_ZIPLIST, t);
    case KV_RDB_HASH_LISTPACK:
    case KV_RDB_ZSET_LISTPACK:
    case KV_RDB_SET_LISTPACK:
    case KV_RDB_HASH_LISTPACK_DUE_EARLY:
    case KV_RDB_HASH_LISTPACK_DUE:
        return take_container(l, form, KV_RDB_LISTPACK, t);
    case KV_RDB_SET_INTSET:
        return take_intset(l, t);
    case KV_RDB_LIST_ZIPLIST:
    case KV_RDB_LIST_QUICKLIST:
    case KV_RDB_LIST_QUICKLIST_2:
        return take_list(l, form, t);
    default:
        return take_foreign(l, form, t);
    }
}
