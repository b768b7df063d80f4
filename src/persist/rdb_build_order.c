/* Building sorted sets and lists, whose members have an order.
 *
 * A sorted set's members are appended as they come. Files hold small ones in order; those that do
 * not (a large set of a server with lower limits, written from its highest member down) are sorted
 * once at the end. A large set finds a member's place itself, and is told when it comes last.
 *
 * A list's items are appended until they pass what one packed list may hold; then that list is cut
 * into nodes, and the others are pushed.
 */
#include "persist/rdb_build.h"
#include "store/zset.h"
#include "value/list.h"
#include <math.h>
#include <stdlib.h>

/* --- sorted sets --- */

/* A member of a packed list that is being sorted. */
struct sortable {
    double score;
    struct kv_slice name; /* ptr NULL: in digits, which move with the member */
    const uint8_t *at;
    size_t bytes;
    char digits[KV_INT_TEXT_MAX];
};

static struct kv_slice sortable_name(const struct sortable *m)
{
    return m->name.ptr != NULL ? m->name : kv_slice(m->digits, m->name.len);
}

static int compare_members(double a, struct kv_slice a_name, double b, struct kv_slice b_name)
{
    if (a != b)
        return a < b ? -1 : 1;
    return kv_slice_compare(a_name, b_name);
}

static int compare_sortables(const void *a, const void *b)
{
    const struct sortable *first = a, *second = b;
    return compare_members(first->score, sortable_name(first), second->score,
                           sortable_name(second));
}

static double score_at(const uint8_t *at)
{
    char digits[KV_INT_TEXT_MAX];
    double score = 0;
    struct kv_packed_item item = kv_packed_get(at);
    if (item.ptr == NULL)
        return (double)item.number;
    bool valid = kv_double_parse(kv_packed_text(at, digits), &score);
    KV_ASSERT(valid);
    return score;
}

/* True for decimals like -12.75 that are certainly the shortest text of their double: up to 15
 * digits tell all doubles apart. What is left (many digits, exponents) is printed to know. */
static bool is_shortest(struct kv_slice text)
{
    size_t at = text.len != 0 && text.ptr[0] == '-', digits = 0, point = 0;
    size_t start = at;
    if (text.len > 16)
        return false;
    for (; at < text.len; at++) {
        if (text.ptr[at] == '.' && point == 0 && at > start)
            point = at;
        else if (text.ptr[at] >= '0' && text.ptr[at] <= '9')
            digits++;
        else
            return false;
    }
    if (point == 0 || digits > 15 || text.ptr[text.len - 1] == '0' || point + 1 == text.len)
        return false;
    /* Long fractions of large numbers are told with an exponent. */
    if (text.len - point - 1 > 6 && point - start > 4)
        return false;
    /* No leading zero but the one before the point, behind which a digit comes soon. */
    if (text.ptr[start] != '0')
        return true;
    return point == start + 1 && text.ptr[point + 1] != '0';
}

/* The score of an item; false: it is none, or not in its one form. */
static bool canonical_score(const uint8_t *at, double *score)
{
    char text[KV_DOUBLE_TEXT_MAX];
    struct kv_packed_item item = kv_packed_get(at);
    if (item.ptr == NULL) {
        *score = (double)item.number;
        /* Beyond 53 bits several integers are one double. */
        return item.number > -(INT64_C(1) << 53) && item.number < INT64_C(1) << 53;
    }
    struct kv_slice told = kv_slice(item.ptr, item.len);
    return kv_double_parse(told, score) &&
           (is_shortest(told) || kv_slice_equal(kv_score_text(*score, text), told));
}

bool kv_rdb_scores_canonical(const uint8_t *list)
{
    char digits[2][KV_INT_TEXT_MAX];
    struct kv_slice last_name = {NULL, 0};
    double last = 0, score;
    unsigned i = 0;
    for (const uint8_t *at = kv_packed_first(list); !kv_packed_at_end(at); i++) {
        struct kv_slice name = kv_packed_text(at, digits[i % 2]);
        at = kv_packed_next(at);
        if (!canonical_score(at, &score))
            return false;
        if (i != 0 && compare_members(last, last_name, score, name) >= 0)
            return false;
        last = score;
        last_name = name;
        at = kv_packed_next(at);
    }
    return true;
}

bool kv_rdb_build_sort(struct kv_rdb_build *b)
{
    struct kv_rdb_loader *l = b->loader;
    size_t item_bytes = l->list.len - KV_PACKED_HEAD;
    size_t array_bytes = b->count * sizeof(struct sortable), filled = 0;
    l->marks.len = 0;
    if (!kv_rdb_bytes_reserve(&l->marks, array_bytes + item_bytes))
        return kv_rdb_fail_memory(l->reader);
    struct sortable *members = (struct sortable *)(void *)l->marks.ptr;
    const uint8_t *at = kv_packed_first(kv_rdb_build_seal(b));
    for (uint64_t i = 0; i < b->count; i++) {
        struct sortable *m = &members[i];
        m->at = at;
        m->name = kv_packed_text(at, m->digits);
        if (m->name.ptr == m->digits)
            m->name.ptr = NULL;
        m->score = score_at(kv_packed_next(at));
        at = kv_packed_skip(at, kv_rdb_build_stride(b));
        m->bytes = (size_t)(at - m->at);
    }
    qsort(members, b->count, sizeof(*members), compare_sortables);
    uint8_t *sorted = l->marks.ptr + array_bytes;
    for (uint64_t i = 0; i < b->count; i++) {
        memcpy(sorted + filled, members[i].at, members[i].bytes);
        filled += members[i].bytes;
    }
    KV_ASSERT(filled == item_bytes);
    memcpy(l->list.ptr + KV_PACKED_HEAD, sorted, item_bytes);
    return true;
}

static bool add_scored(struct kv_rdb_build *b, struct kv_slice name, double score, int64_t due,
                       bool last)
{
    struct kv_rdb_reader *r = b->loader->reader;
    uint64_t hash = kv_zset_hash(b->large, name);
    if (kv_zset_find(b->large, name, hash) != NULL)
        return KV_RDB_BAD(r, "a member comes twice");
    if (kv_zset_add(b->large, name, hash, score, due, last) != KV_OK)
        return kv_rdb_fail_memory(r);
    return true;
}

static bool make_large(struct kv_rdb_build *b)
{
    char digits[KV_INT_TEXT_MAX];
    b->large = kv_zset_create(kv_store_hash_key(b->loader->view->store));
    if (b->large == NULL)
        return kv_rdb_fail_memory(b->loader->reader);
    if (b->count == 0)
        return true;
    const uint8_t *at = kv_packed_first(kv_rdb_build_seal(b));
    while (!kv_packed_at_end(at)) {
        struct kv_slice name = kv_packed_text(at, digits);
        const uint8_t *score = kv_packed_next(at);
        int64_t due = b->dues ? kv_packed_get(kv_packed_next(score)).number : 0;
        if (!add_scored(b, name, score_at(score), due != 0 ? due : KV_NOT_DUE, false))
            return false;
        at = kv_packed_skip(at, kv_rdb_build_stride(b));
    }
    return true;
}

static bool append_scored(struct kv_rdb_build *b, struct kv_slice name, double score, int64_t due)
{
    char digits[KV_INT_TEXT_MAX], text[KV_DOUBLE_TEXT_MAX];
    struct kv_needle n;
    if (b->count != 0 && !b->unordered) {
        struct kv_slice last = kv_packed_text(b->loader->list.ptr + b->last_at, digits);
        b->unordered = compare_members(b->last_score, last, score, name) > 0;
    }
    b->last_score = score;
    b->last_at = b->count != 0 ? b->loader->list.len : KV_PACKED_HEAD;
    kv_needle_init(&n, name);
    if (!kv_rdb_build_append(b, &n))
        return false;
    kv_needle_init(&n, kv_score_text(score, text));
    if (!kv_rdb_build_append(b, &n))
        return false;
    if (b->dues) {
        kv_needle_init_int(&n, due == KV_NOT_DUE ? 0 : due);
        if (!kv_rdb_build_append(b, &n))
            return false;
    }
    b->count++;
    return true;
}

/* True when a member comes behind all that a large set has. */
static bool comes_last(const struct kv_zset *z, struct kv_slice name, double score)
{
    struct kv_order_cursor c;
    if (kv_zset_count(z) == 0 || !kv_order_at(&z->order, kv_zset_count(z) - 1, &c))
        return true;
    const struct kv_scored *last = kv_zset_at(&c);
    return compare_members(last->score, kv_scored_name(last), score, name) < 0;
}

bool kv_rdb_build_add_scored(struct kv_rdb_build *b, struct kv_slice name, double score,
                             int64_t due)
{
    KV_DASSERT(b->type == KV_TYPE_ZSET);
    if (isnan(score))
        return KV_RDB_BAD(b->loader->reader, "a score is not a number");
    if (due != KV_NOT_DUE && (b->first_due == KV_NOT_DUE || due < b->first_due))
        b->first_due = due;
    if (b->large == NULL) {
        if (kv_rdb_build_stays_packed(b, name, kv_slice(NULL, 0)))
            return append_scored(b, name, score, due);
        if (!make_large(b))
            return false;
    }
    b->count++;
    return add_scored(b, name, score, due, comes_last(b->large, name, score));
}

/* --- lists --- */

bool kv_rdb_build_push(struct kv_rdb_build *b, struct kv_slice item)
{
    struct kv_rdb_loader *l = b->loader;
    struct kv_list_limit limit = kv_list_limit(b->limits->list_max_listpack_size);
    struct kv_needle n;
    KV_DASSERT(b->type == KV_TYPE_LIST);
    kv_needle_init(&n, item);
    if (b->large == NULL) {
        uint64_t bytes = KV_MAX(l->list.len, KV_PACKED_HEAD) + kv_needle_bytes(&n) + 1;
        if (kv_list_limit_holds(limit, bytes, b->count + 1)) {
            b->count++;
            return kv_rdb_build_append(b, &n);
        }
        b->large =
            b->count != 0 ? kv_list_create_from(kv_rdb_build_seal(b), limit) : kv_list_create();
        if (b->large == NULL)
            return kv_rdb_fail_memory(l->reader);
    }
    b->count++;
    if (kv_list_push(b->large, KV_LIST_TAIL, &n, limit) != KV_OK)
        return kv_rdb_fail_memory(l->reader);
    return true;
}
