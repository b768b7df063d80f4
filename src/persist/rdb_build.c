/* Building sets and hashes. While a collection is small its members are collected as items behind
 * each other in the loader's scratch memory; the first member that passes the limits turns them
 * into the elements of a dict, and the others go there. So neither the number that the file
 * announces nor its encoding decides what is built.
 *
 * Names that come twice are a fault: a packed list is looked through when it is complete, a dict is
 * asked before each addition. Up to PAIRS_MAX names are compared with each other, more are put into
 * a table of marks, whose hash is keyed, so that no file can make it slow.
 */
#include "persist/rdb_build.h"
#include "base/hash.h"
#include "ds/intset.h"
#include "store/zset.h"
#include "value/list.h"

#define PAIRS_MAX 16u

void kv_rdb_build_init(struct kv_rdb_build *b, struct kv_rdb_loader *l, enum kv_type type,
                       bool dues)
{
    *b = (struct kv_rdb_build){
        .loader = l,
        .limits = l->limits,
        .type = type,
        .dues = dues,
        .integers = type == KV_TYPE_SET && !dues,
        .first_due = KV_NOT_DUE,
    };
    l->list.len = 0;
}

void kv_rdb_build_release(struct kv_rdb_build *b)
{
    kv_rdb_large_free(b->type, b->large);
    b->large = NULL;
}

struct kv_rdb_packed_limits kv_rdb_packed_limits(const struct kv_collection_limits *limits,
                                                 enum kv_type type)
{
    if (type == KV_TYPE_HASH)
        return (struct kv_rdb_packed_limits){limits->hash_max_listpack_entries,
                                             limits->hash_max_listpack_value};
    if (type == KV_TYPE_SET)
        return (struct kv_rdb_packed_limits){limits->set_max_listpack_entries,
                                             limits->set_max_listpack_value};
    KV_ASSERT(type == KV_TYPE_ZSET);
    return (struct kv_rdb_packed_limits){limits->zset_max_listpack_entries,
                                         limits->zset_max_listpack_value};
}

unsigned kv_rdb_build_stride(const struct kv_rdb_build *b)
{
    return (b->type == KV_TYPE_HASH || b->type == KV_TYPE_ZSET ? 2 : 1) + (b->dues ? 1 : 0);
}

/* --- packed --- */

bool kv_rdb_build_append(struct kv_rdb_build *b, const struct kv_needle *n)
{
    struct kv_rdb_bytes *list = &b->loader->list;
    if (list->len == 0) {
        if (!kv_rdb_bytes_reserve(list, KV_PACKED_EMPTY))
            return kv_rdb_fail_memory(b->loader->reader);
        list->len = KV_PACKED_HEAD;
    }
    /* One more byte: the list's end. */
    if (!kv_rdb_bytes_reserve(list, kv_needle_bytes(n) + 1))
        return kv_rdb_fail_memory(b->loader->reader);
    list->len = (size_t)(kv_packed_put(list->ptr + list->len, n) - list->ptr);
    return true;
}

static bool append_member(struct kv_rdb_build *b, const struct kv_needle *name,
                          struct kv_slice value, int64_t due)
{
    struct kv_needle n;
    if (!kv_rdb_build_append(b, name))
        return false;
    if (b->type == KV_TYPE_HASH) {
        kv_needle_init(&n, value);
        if (!kv_rdb_build_append(b, &n))
            return false;
    }
    if (b->dues) {
        kv_needle_init_int(&n, due == KV_NOT_DUE ? 0 : due);
        if (!kv_rdb_build_append(b, &n))
            return false;
    }
    b->count++;
    return true;
}

/* Head and end around the items so far. */
uint8_t *kv_rdb_build_seal(struct kv_rdb_build *b)
{
    struct kv_rdb_bytes *list = &b->loader->list;
    kv_packed_seal(list->ptr, list->len + 1, (uint32_t)(b->count * kv_rdb_build_stride(b)));
    return list->ptr;
}

/* A set of integers is packed by limits of its own. */
static uint64_t intset_limit(const struct kv_rdb_build *b)
{
    return KV_MIN(b->limits->set_max_intset_entries, KV_INTSET_MAX);
}

bool kv_rdb_build_stays_packed(struct kv_rdb_build *b, struct kv_slice name, struct kv_slice value)
{
    b->longest = KV_MAX(b->longest, KV_MAX(name.len, value.len));
    struct kv_rdb_packed_limits limits = kv_rdb_packed_limits(b->limits, b->type);
    if (b->loader->list.len + name.len + value.len + 64 > KV_PACKED_MAX)
        return false;
    if (b->integers && b->count < intset_limit(b))
        return true;
    return b->count < limits.entries && b->longest <= limits.value_bytes;
}

/* --- large --- */

static bool add_element(struct kv_rdb_build *b, struct kv_slice name, const struct kv_slice *value,
                        int64_t due)
{
    struct kv_rdb_reader *r = b->loader->reader;
    uint64_t hash = kv_dict_hash(b->large, name);
    if (kv_dict_find(b->large, name, hash) != NULL)
        return KV_RDB_BAD(r, "a member comes twice");
    if (kv_dict_add(b->large, name, hash, value, due) != KV_OK)
        return kv_rdb_fail_memory(r);
    return true;
}

/* The packed members become elements. */
static bool make_large(struct kv_rdb_build *b)
{
    char name_digits[KV_INT_TEXT_MAX], value_digits[KV_INT_TEXT_MAX];
    struct kv_dict *d = kv_dict_create(kv_store_hash_key(b->loader->view->store));
    if (d == NULL)
        return kv_rdb_fail_memory(b->loader->reader);
    b->large = d;
    if (b->count == 0)
        return true;
    const uint8_t *at = kv_packed_first(kv_rdb_build_seal(b));
    while (!kv_packed_at_end(at)) {
        struct kv_slice value = {NULL, 0};
        int64_t due = KV_NOT_DUE;
        struct kv_slice name = kv_packed_text(at, name_digits);
        at = kv_packed_next(at);
        if (b->type == KV_TYPE_HASH) {
            value = kv_packed_text(at, value_digits);
            at = kv_packed_next(at);
        }
        if (b->dues) {
            due = kv_packed_get(at).number;
            at = kv_packed_next(at);
        }
        if (!add_element(b, name, b->type == KV_TYPE_HASH ? &value : NULL,
                         due != 0 ? due : KV_NOT_DUE))
            return false;
    }
    return true;
}

bool kv_rdb_build_add(struct kv_rdb_build *b, struct kv_slice name, struct kv_slice value,
                      int64_t due)
{
    struct kv_needle n;
    int64_t number;
    b->integers = b->integers && kv_int_parse(name, &number);
    if (due != KV_NOT_DUE && (b->first_due == KV_NOT_DUE || due < b->first_due))
        b->first_due = due;
    if (b->large == NULL) {
        if (kv_rdb_build_stays_packed(b, name, value)) {
            kv_needle_init(&n, name);
            return append_member(b, &n, value, due);
        }
        if (!make_large(b))
            return false;
    }
    b->count++;
    return add_element(b, name, b->type == KV_TYPE_HASH ? &value : NULL, due);
}

/* --- names that come twice --- */

static bool same_item(const uint8_t *a, const uint8_t *b)
{
    size_t body = kv_packed_body(a);
    return a[0] == b[0] && body == kv_packed_body(b) && memcmp(a, b, body) == 0;
}

/* A number that nearly always tells two items apart: their first and their last bytes. Names of one
 * value often begin alike, or end alike. */
KV_INLINE uint64_t mark_of(const uint8_t *at, size_t body)
{
    uint64_t first = at[0], last = 0;
    uint32_t head, tail;
    if (KV_LIKELY(body >= sizeof(first))) {
        memcpy(&first, at, sizeof(first));
        memcpy(&last, at + body - sizeof(last), sizeof(last));
    } else if (body >= sizeof(head)) {
        memcpy(&head, at, sizeof(head));
        memcpy(&tail, at + body - sizeof(tail), sizeof(tail));
        first = head;
        last = tail;
    } else if (body > 1) {
        first |= (uint64_t)at[1] << 8 | (uint64_t)at[body - 1] << 16;
    }
    return first ^ last * UINT64_C(0x9e3779b97f4a7c15);
}

static bool pairs_distinct(const uint8_t *list, unsigned stride)
{
    const uint8_t *names[PAIRS_MAX];
    uint64_t marks[PAIRS_MAX];
    unsigned count = 0;
    for (const uint8_t *at = kv_packed_first(list); !kv_packed_at_end(at);
         at = kv_packed_skip(at, stride)) {
        uint64_t mark = mark_of(at, kv_packed_body(at));
        unsigned same = 0;
        for (unsigned i = 0; i < count; i++)
            same += marks[i] == mark;
        for (unsigned i = 0; same > 0 && i < count; i++)
            if (marks[i] == mark && same_item(names[i], at))
                return false;
        names[count] = at;
        marks[count++] = mark;
    }
    return true;
}

bool kv_rdb_check_distinct(struct kv_rdb_loader *l, const uint8_t *list, unsigned stride)
{
    uint32_t names = kv_packed_count(list) / stride;
    const struct kv_hash_key *key = kv_store_hash_key(l->view->store);
    if (names <= PAIRS_MAX)
        return pairs_distinct(list, stride) || KV_RDB_BAD(l->reader, "a member comes twice");
    size_t slots = 64;
    while (slots < 2 * (size_t)names)
        slots *= 2;
    l->marks.len = 0;
    if (!kv_rdb_bytes_reserve(&l->marks, slots * sizeof(uint32_t)))
        return kv_rdb_fail_memory(l->reader);
    uint32_t *marks = (uint32_t *)(void *)l->marks.ptr;
    memset(marks, 0, slots * sizeof(*marks));
    for (const uint8_t *at = kv_packed_first(list); !kv_packed_at_end(at);
         at = kv_packed_skip(at, stride)) {
        size_t slot = kv_hash_bytes(key, at, kv_packed_body(at)) & (slots - 1);
        for (; marks[slot] != 0; slot = (slot + 1) & (slots - 1))
            if (same_item(list + marks[slot], at))
                return KV_RDB_BAD(l->reader, "a member comes twice");
        marks[slot] = (uint32_t)(at - list);
    }
    return true;
}

/* --- putting --- */

enum kv_rdb_result kv_rdb_put_packed(struct kv_rdb_loader *l, struct kv_rdb_target *t,
                                     enum kv_type type, const uint8_t *list)
{
    struct kv_rdb_built b = {
        .kind = KV_RDB_BUILT_BYTES,
        .type = type,
        .encoding = KV_ENC_LISTPACK,
        .bytes = kv_slice((const char *)list, kv_packed_bytes(list)),
    };
    return kv_rdb_deliver(l, t, &b);
}

/* A packed list of a collection whose members may have due times. */
static enum kv_rdb_result put_packed_due(struct kv_rdb_build *b, struct kv_rdb_target *t,
                                         const uint8_t *list)
{
    struct kv_rdb_built built = {
        .kind = KV_RDB_BUILT_BYTES,
        .type = b->type,
        .encoding = KV_ENC_LISTPACKEX,
        .bytes = kv_slice((const char *)list, kv_packed_bytes(list)),
        .due = b->first_due,
    };
    return kv_rdb_deliver(b->loader, t, &built);
}

enum kv_rdb_result kv_rdb_put_intset(struct kv_rdb_loader *l, struct kv_rdb_target *t,
                                     const uint8_t *set, size_t len)
{
    struct kv_rdb_built b = {
        .kind = KV_RDB_BUILT_BYTES,
        .type = KV_TYPE_SET,
        .encoding = KV_ENC_INTSET,
        .bytes = kv_slice((const char *)set, len),
    };
    return kv_rdb_deliver(l, t, &b);
}

/* The packed members are integers that fit into a set of such. */
static enum kv_rdb_result put_integers(struct kv_rdb_build *b, struct kv_rdb_target *t,
                                       const uint8_t *list)
{
    struct kv_rdb_loader *l = b->loader;
    uint32_t count = 0, width = 2;
    size_t set_bytes = kv_intset_bytes(8, b->count);
    l->marks.len = 0;
    if (!kv_rdb_bytes_reserve(&l->marks, b->count * sizeof(int64_t) + set_bytes)) {
        kv_rdb_fail_memory(l->reader);
        return KV_RDB_FAILED;
    }
    int64_t *numbers = (int64_t *)(void *)l->marks.ptr;
    uint8_t *set = l->marks.ptr + b->count * sizeof(int64_t);
    for (const uint8_t *at = kv_packed_first(list); !kv_packed_at_end(at);
         at = kv_packed_next(at)) {
        numbers[count] = kv_packed_get(at).number;
        width = KV_MAX(width, kv_intset_width_of(numbers[count]));
        count++;
    }
    if (kv_intset_sort(numbers, count) != count) {
        KV_RDB_BAD(l->reader, "a member comes twice");
        return KV_RDB_FAILED;
    }
    kv_intset_write(set, width, numbers, count);
    return kv_rdb_put_intset(l, t, set, kv_intset_bytes(width, count));
}

/* A small collection that is complete. */
static enum kv_rdb_result finish_packed(struct kv_rdb_build *b, struct kv_rdb_target *t)
{
    struct kv_rdb_loader *l = b->loader;
    if (b->unordered && !kv_rdb_build_sort(b))
        return KV_RDB_FAILED;
    const uint8_t *list = kv_rdb_build_seal(b);
    if (b->integers && b->count <= intset_limit(b))
        return put_integers(b, t, list);
    if (b->type != KV_TYPE_LIST && !kv_rdb_check_distinct(l, list, kv_rdb_build_stride(b)))
        return KV_RDB_FAILED;
    return b->dues ? put_packed_due(b, t, list) : kv_rdb_put_packed(l, t, b->type, list);
}

enum kv_rdb_result kv_rdb_build_finish(struct kv_rdb_build *b, struct kv_rdb_target *t)
{
    struct kv_rdb_loader *l = b->loader;
    enum kv_encoding encoding = b->type == KV_TYPE_LIST   ? KV_ENC_QUICKLIST
                                : b->type == KV_TYPE_ZSET ? KV_ENC_SKIPLIST
                                                          : KV_ENC_HASHTABLE;
    if (l->reader->err != KV_OK)
        return KV_RDB_FAILED;
    if (b->count == 0)
        return KV_RDB_EMPTY;
    if (b->large == NULL)
        return finish_packed(b, t);
    if (b->type == KV_TYPE_ZSET)
        ((struct kv_zset *)b->large)->registered_due = b->first_due;
    else if (b->type != KV_TYPE_LIST)
        ((struct kv_dict *)b->large)->registered_due = b->first_due;
    struct kv_rdb_built built = {
        .kind = KV_RDB_BUILT_LARGE, .type = b->type, .encoding = encoding, .large = b->large};
    enum kv_rdb_result result = kv_rdb_deliver(l, t, &built);
    b->large = built.large;
    return result;
}
