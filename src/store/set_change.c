/* Sets: adding and removing members, and the change from one form to another.
 *
 * Members of one command are worked on together. Adding to a small set first finds out which are
 * new (each once), makes room for all of them with one splice and writes them there; a brand-new
 * set is written straight into its block. Removing finds what goes, closes the gaps in scratch
 * memory and replaces what lies behind the first of them with one splice. So there is one step that
 * may fail, and before it nothing has changed.
 *
 * When a set grows out of its form, the limits decide by what the command names, as in Redis: more
 * members in the command than a form may hold move the set on before they are looked at.
 *
 * A large set takes members in windows of 16, prefetched in two steps. When memory ends in the
 * middle, the members added so far are taken out again.
 *
 * Invariants: a set never becomes empty here without its key going too; it holds no member twice.
 *
 * Threads: under the lock of the key's shard.
 */
#include "store/set_priv.h"
#include "store/store_priv.h"
#include <stdlib.h>

#define WINDOW 16u

/* --- small sets as a whole --- */

struct set_member *kv_set_small_members(const struct kv_entry *e, struct kv_arena *arena,
                                        size_t *count)
{
    size_t total = kv_set_count(e, -1); /* nothing is due at that time */
    struct set_member *members = kv_arena_try_alloc(arena, total * sizeof(*members));
    if (members == NULL)
        return NULL;
    *count = total;
    if (kv_entry_encoding(e) == KV_ENC_INTSET) {
        const uint8_t *numbers = set_intset(e);
        for (uint32_t i = 0; i < total; i++) {
            kv_needle_init_int(&members[i].needle, kv_intset_get(numbers, i));
            members[i].due = KV_NOT_DUE;
        }
        return members;
    }
    struct set_list l = set_list(e);
    const uint8_t *at = kv_packed_first(l.list);
    for (size_t i = 0; i < total; i++, at = kv_packed_skip(at, l.stride)) {
        struct kv_packed_item item = kv_packed_get(at);
        if (item.ptr != NULL)
            kv_needle_init(&members[i].needle, kv_slice(item.ptr, item.len));
        else
            kv_needle_init_int(&members[i].needle, item.number);
        members[i].due = set_list_due(&l, at);
    }
    KV_DASSERT(kv_packed_at_end(at));
    return members;
}

/* Bytes of a due time as an item. */
static void due_needle(struct kv_needle *n, int64_t due)
{
    kv_needle_init_int(n, due != KV_NOT_DUE ? due : 0);
}

static uint8_t *write_members(uint8_t *to, const struct set_member *members, size_t count,
                              bool dues)
{
    struct kv_needle due;
    for (size_t i = 0; i < count; i++) {
        to = kv_packed_put(to, &members[i].needle);
        if (dues) {
            due_needle(&due, members[i].due);
            to = kv_packed_put(to, &due);
        }
    }
    return to;
}

static size_t members_bytes(const struct set_member *members, size_t count, bool dues)
{
    struct kv_needle due;
    size_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        bytes += kv_needle_bytes(&members[i].needle);
        if (dues) {
            due_needle(&due, members[i].due);
            bytes += kv_needle_bytes(&due);
        }
    }
    return bytes;
}

enum kv_err kv_set_put_packed(struct kv_set *s, const struct set_member *members, size_t count,
                              bool dues)
{
    size_t head = dues ? KV_LISTPACKEX_HEAD : 0, items = members_bytes(members, count, dues);
    uint8_t *bytes;
    KV_ASSERT(s->entry == NULL || kv_entry_member_due(s->entry) == KV_NOT_DUE);
    /* The old bytes, in which strings may lie, are gone once the new ones are there. */
    uint8_t *copy = kv_arena_try_alloc(s->arena, items);
    if (copy == NULL)
        return KV_ERR_NOMEM;
    write_members(copy, members, count, dues);
    enum kv_err err = kv_store_put_bytes(s->view, s->key, &s->entry, KV_TYPE_SET,
                                         dues ? KV_ENC_LISTPACKEX : KV_ENC_LISTPACK,
                                         head + KV_PACKED_EMPTY + items, KV_KEEP_EXPIRY, &bytes);
    if (err != KV_OK)
        return err;
    memcpy(bytes + head + KV_PACKED_HEAD, copy, items);
    kv_packed_seal(bytes + head, KV_PACKED_EMPTY + items, (uint32_t)(count * (dues ? 2 : 1)));
    return KV_OK;
}

/* --- large sets --- */

/* The hashes of a window of members, whose elements are asked for. */
static void prefetch_window(const struct kv_dict *d, const struct kv_slice *members, size_t count,
                            uint64_t hashes[WINDOW])
{
    for (size_t i = 0; i < count; i++) {
        hashes[i] = kv_dict_hash(d, members[i]);
        if (count > 1)
            kv_dict_prefetch_bucket(d, hashes[i]);
    }
    for (size_t i = 0; count > 1 && i < count; i++)
        kv_dict_prefetch_element(d, hashes[i]);
}

/* Adds one member; *added: it was not there, or is there anew; *fresh: it was not there at all. */
static enum kv_err dict_add_one(struct kv_view *v, struct kv_dict *d, struct kv_slice member,
                                uint64_t hash, bool *added, bool *fresh)
{
    struct kv_element *e = kv_dict_find(d, member, hash);
    *fresh = e == NULL;
    *added = *fresh || kv_element_is_due(e, v->now_ms);
    if (!*added)
        return KV_OK;
    large_keep_member(v, d->guard, member, hash);
    return *fresh ? kv_dict_add(d, member, hash, NULL, KV_NOT_DUE)
                  : kv_dict_set(d, e, hash, NULL, KV_NOT_DUE);
}

/* Adds members; *added: those that were not there. On failure they are taken out again. */
static enum kv_err dict_add_all(struct kv_view *v, struct kv_dict *d,
                                const struct kv_slice *members, size_t count,
                                struct kv_arena *arena, uint64_t *added)
{
    uint64_t hashes[WINDOW];
    enum kv_err err = KV_OK;
    bool one, *fresh = &one;
    size_t i;
    *added = 0;
    if (count > 1 && (fresh = kv_arena_try_alloc(arena, count * sizeof(*fresh))) == NULL)
        return KV_ERR_NOMEM;
    for (i = 0; i < count; i++) {
        bool is_new;
        if (i % WINDOW == 0)
            prefetch_window(d, members + i, KV_MIN(count - i, (size_t)WINDOW), hashes);
        err = dict_add_one(v, d, members[i], hashes[i % WINDOW], &is_new, &fresh[i]);
        if (err != KV_OK)
            break;
        *added += is_new;
    }
    if (KV_LIKELY(err == KV_OK))
        return KV_OK;
    while (i-- > 0) {
        uint64_t hash = kv_dict_hash(d, members[i]);
        if (!fresh[i])
            continue;
        large_keep_member(v, d->guard, members[i], hash);
        kv_dict_remove(d, kv_dict_find(d, members[i], hash), hash);
    }
    return err;
}

static enum kv_err add_to_large(struct kv_set *s, const struct kv_slice *members, size_t count,
                                uint64_t *added)
{
    struct kv_footprint before = kv_store_members_begin(s->entry);
    enum kv_err err =
        dict_add_all(s->view, kv_entry_large(s->entry), members, count, s->arena, added);
    kv_store_large_end(s->view, s->key, s->entry, before);
    return err;
}

/* Copies the members of a small set into a dict. */
struct copying {
    struct kv_dict *to;
    bool failed;
};

static void copy_member(const struct kv_member *m, void *arg)
{
    struct copying *c = arg;
    if (!c->failed)
        c->failed =
            kv_dict_add(c->to, m->name, kv_dict_hash(c->to, m->name), NULL, m->due) != KV_OK;
}

enum kv_err kv_set_make_large(struct kv_set *s, const struct kv_slice *members, size_t count,
                              uint64_t *added)
{
    struct copying c = {kv_dict_create(kv_store_hash_key(s->view->store)), false};
    *added = 0;
    if (c.to == NULL)
        return KV_ERR_NOMEM;
    if (s->entry != NULL) {
        kv_entry_each_member(s->entry, copy_member, &c);
        c.to->registered_due = kv_entry_member_due(s->entry);
    }
    enum kv_err err =
        c.failed ? KV_ERR_NOMEM : dict_add_all(s->view, c.to, members, count, s->arena, added);
    if (err == KV_OK)
        err = kv_store_put_large(s->view, s->key, &s->entry, KV_TYPE_SET, KV_ENC_HASHTABLE, c.to,
                                 KV_KEEP_EXPIRY);
    if (err != KV_OK)
        kv_dict_free(c.to);
    return err;
}

/* --- adding to packed lists --- */

static bool same_needle(const struct kv_needle *a, const struct kv_needle *b)
{
    return a->head_len == b->head_len && a->len == b->len &&
           memcmp(a->head, b->head, a->head_len) == 0 &&
           (a->len == 0 || memcmp(a->ptr, b->ptr, a->len) == 0);
}

/* The members that are neither in the list (NULL: there is none) nor among `fresh` yet go behind
 * its `have` members; returns how many there are then. */
static size_t gather_fresh(const struct set_list *l, const struct kv_slice *members, size_t count,
                           struct set_member *fresh, size_t have)
{
    for (size_t i = 0; i < count; i++) {
        struct set_member *m = &fresh[have];
        size_t j = 0;
        kv_needle_init(&m->needle, members[i]);
        m->due = KV_NOT_DUE;
        if (l != NULL &&
            kv_packed_find(l->list, kv_packed_first(l->list), &m->needle, l->stride) != NULL)
            continue;
        while (j < have && !same_needle(&fresh[j].needle, &m->needle))
            j++;
        have += j == have;
    }
    return have;
}

/* True when the members could be in a packed list. */
static bool short_enough(const struct kv_collection_limits *limits, const struct kv_slice *members,
                         size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (KV_UNLIKELY(members[i].len > limits->set_max_listpack_value))
            return false;
    return true;
}

static bool fits_packed(const struct kv_collection_limits *limits, uint64_t count, size_t bytes)
{
    return count <= limits->set_max_listpack_entries && bytes <= KV_PACKED_MAX / 2;
}

static enum kv_err add_to_packed(struct kv_set *s, const struct kv_slice *members, size_t count,
                                 uint64_t *added)
{
    const struct kv_collection_limits *limits = kv_store_limits(s->view->store);
    struct set_list l = set_list(s->entry);
    bool dues = l.stride == 2;
    uint8_t *bytes;
    if (KV_UNLIKELY(count > limits->set_max_listpack_entries))
        return kv_set_make_large(s, members, count, added);
    struct set_member *fresh = kv_arena_try_alloc(s->arena, (count + 1) * sizeof(*fresh));
    if (fresh == NULL)
        return KV_ERR_NOMEM;
    size_t more = gather_fresh(&l, members, count, fresh, 0);
    *added = more;
    if (more == 0)
        return KV_OK;
    size_t grown = members_bytes(fresh, more, dues), old = kv_packed_bytes(l.list);
    if (!fits_packed(limits, kv_packed_count(l.list) / l.stride + more, old + grown) ||
        !short_enough(limits, members, count))
        return kv_set_make_large(s, members, count, added);
    enum kv_err err =
        kv_store_splice(s->view, s->key, &s->entry, l.head + old - 1, 0, grown, &bytes);
    if (err != KV_OK)
        return err;
    write_members(bytes + l.head + old - 1, fresh, more, dues);
    kv_packed_resized(bytes + l.head, old + grown, (int64_t)(more * l.stride));
    return KV_OK;
}

/* --- adding to sets of integers --- */

/* What a command adds to a set of integers. */
struct integers {
    int64_t *numbers; /* those that are not there, each once, ascending */
    uint32_t count;
    uint32_t width;    /* of the widest */
    size_t first_text; /* index of the first member that is no integer, or how many there are */
};

static enum kv_err gather_integers(const uint8_t *set, const struct kv_slice *members, size_t count,
                                   struct kv_arena *arena, struct integers *x)
{
    uint32_t index;
    *x = (struct integers){.width = set != NULL ? kv_intset_width(set) : 2};
    x->numbers = kv_arena_try_alloc(arena, count * sizeof(*x->numbers));
    if (x->numbers == NULL)
        return KV_ERR_NOMEM;
    for (; x->first_text < count; x->first_text++) {
        int64_t number;
        if (!kv_int_parse(members[x->first_text], &number))
            break;
        if (set != NULL && kv_intset_find(set, number, &index))
            continue;
        x->numbers[x->count++] = number;
        x->width = KV_MAX(x->width, kv_intset_width_of(number));
    }
    x->count = kv_intset_sort(x->numbers, x->count);
    return KV_OK;
}

/* A text comes into a set of integers: it becomes a packed list when that may hold all of it. */
static enum kv_err intset_to_text(struct kv_set *s, const struct kv_slice *members, size_t count,
                                  uint64_t *added)
{
    const struct kv_collection_limits *limits = kv_store_limits(s->view->store);
    size_t have;
    uint64_t old = kv_set_count(s->entry, s->view->now_ms);
    if (old + 1 > limits->set_max_listpack_entries || !short_enough(limits, members, count))
        return kv_set_make_large(s, members, count, added);
    struct set_member *integers = kv_set_small_members(s->entry, s->arena, &have);
    if (integers == NULL)
        return KV_ERR_NOMEM;
    struct set_member *all = kv_arena_try_alloc(s->arena, (have + count + 1) * sizeof(*all));
    if (all == NULL)
        return KV_ERR_NOMEM;
    memcpy(all, integers, have * sizeof(*all));
    size_t total = gather_fresh(NULL, members, count, all, have);
    size_t longest = 0;
    for (size_t i = 0; i < have; i++)
        longest = KV_MAX(longest,
                         (size_t)kv_int_digits(kv_intset_get(set_intset(s->entry), (uint32_t)i)));
    *added = total - have;
    if (longest > limits->set_max_listpack_value ||
        !fits_packed(limits, total, members_bytes(all, total, false)))
        return kv_set_make_large(s, members, count, added);
    return kv_set_put_packed(s, all, total, false);
}

static enum kv_err add_to_intset(struct kv_set *s, const struct kv_slice *members, size_t count,
                                 uint64_t *added)
{
    const uint8_t *set = set_intset(s->entry);
    uint64_t limit = set_intset_limit(kv_store_limits(s->view->store));
    uint32_t have = kv_intset_count(set), old_width = kv_intset_width(set);
    struct integers x;
    uint8_t *bytes;
    if (count > limit)
        return kv_set_make_large(s, members, count, added);
    enum kv_err err = gather_integers(set, members, count, s->arena, &x);
    if (err != KV_OK)
        return err;
    *added = x.count;
    if (x.count != 0 && have + (uint64_t)x.count > limit)
        return kv_set_make_large(s, members, count, added);
    if (x.first_text != count)
        return intset_to_text(s, members, count, added);
    if (x.count == 0)
        return KV_OK;
    size_t old = kv_intset_bytes(old_width, have);
    err = kv_store_splice(s->view, s->key, &s->entry, old, 0,
                          kv_intset_bytes(x.width, have + x.count) - old, &bytes);
    if (err == KV_OK)
        kv_intset_merge(bytes, x.width, x.numbers, x.count);
    return err;
}

/* --- adding --- */

/* A brand-new set. */
static enum kv_err create(struct kv_set *s, const struct kv_slice *members, size_t count,
                          uint64_t *added)
{
    const struct kv_collection_limits *limits = kv_store_limits(s->view->store);
    struct integers x = {0};
    uint8_t *bytes;
    if (count <= set_intset_limit(limits)) {
        enum kv_err err = gather_integers(NULL, members, count, s->arena, &x);
        if (err != KV_OK)
            return err;
        if (x.first_text == count) {
            err = kv_store_put_bytes(s->view, s->key, &s->entry, KV_TYPE_SET, KV_ENC_INTSET,
                                     kv_intset_bytes(x.width, x.count), KV_NO_EXPIRY, &bytes);
            if (err == KV_OK)
                kv_intset_write(bytes, x.width, x.numbers, x.count);
            *added = x.count;
            return err;
        }
    }
    if (count > limits->set_max_listpack_entries || !short_enough(limits, members, count))
        return kv_set_make_large(s, members, count, added);
    struct set_member *fresh = kv_arena_try_alloc(s->arena, (count + 1) * sizeof(*fresh));
    if (fresh == NULL)
        return KV_ERR_NOMEM;
    size_t total = gather_fresh(NULL, members, count, fresh, 0);
    if (!fits_packed(limits, total, members_bytes(fresh, total, false)))
        return kv_set_make_large(s, members, count, added);
    *added = total;
    size_t len = KV_PACKED_EMPTY + members_bytes(fresh, total, false);
    enum kv_err err = kv_store_put_bytes(s->view, s->key, &s->entry, KV_TYPE_SET, KV_ENC_LISTPACK,
                                         len, KV_NO_EXPIRY, &bytes);
    if (err != KV_OK)
        return err;
    write_members(bytes + KV_PACKED_HEAD, fresh, total, false);
    kv_packed_seal(bytes, len, (uint32_t)total);
    return KV_OK;
}

enum kv_err kv_set_add(struct kv_set *s, const struct kv_slice *members, size_t count,
                       uint64_t *added)
{
    KV_DASSERT(count >= 1);
    if (s->entry == NULL)
        return create(s, members, count, added);
    switch (kv_entry_encoding(s->entry)) {
    case KV_ENC_HASHTABLE:
        return add_to_large(s, members, count, added);
    case KV_ENC_INTSET:
        return add_to_intset(s, members, count, added);
    default:
        return add_to_packed(s, members, count, added);
    }
}

/* --- removing --- */

/* A run of bytes that goes: of one member. */
struct gap {
    size_t at, len;
};

static int compare_gaps(const void *a, const void *b)
{
    const struct gap *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* Takes runs of bytes, each once, out of a small set's bytes. */
static enum kv_err close_gaps(struct kv_set *s, struct gap *gaps, size_t count, uint8_t **bytes)
{
    size_t len, used = 0, gone = 0;
    const uint8_t *old = kv_entry_bytes(s->entry, &len);
    if (count == 1)
        return kv_store_splice(s->view, s->key, &s->entry, gaps[0].at, gaps[0].len, 0, bytes);
    qsort(gaps, count, sizeof(*gaps), compare_gaps);
    size_t from = gaps[0].at;
    uint8_t *rest = kv_arena_try_alloc(s->arena, len - from);
    if (rest == NULL)
        return KV_ERR_NOMEM;
    for (size_t i = 0; i < count; i++) {
        size_t begin = gaps[i].at + gaps[i].len;
        size_t end = i + 1 < count ? gaps[i + 1].at : len;
        KV_ASSERT(begin <= end);
        memcpy(rest + used, old + begin, end - begin);
        used += end - begin;
        gone += gaps[i].len;
    }
    enum kv_err err =
        kv_store_splice(s->view, s->key, &s->entry, from, len - from, len - from - gone, bytes);
    if (err == KV_OK)
        memcpy(*bytes + from, rest, used);
    return err;
}

/* Where a member of a small set lies; false: it is not there. */
static bool find_gap(const struct kv_entry *e, struct kv_slice member, int64_t now_ms,
                     const uint8_t **from, struct gap *gap)
{
    if (kv_entry_encoding(e) == KV_ENC_INTSET) {
        const uint8_t *set = set_intset(e);
        int64_t number;
        uint32_t index;
        if (!kv_int_parse(member, &number) || !kv_intset_find(set, number, &index))
            return false;
        gap->len = kv_intset_width(set);
        gap->at = KV_INTSET_HEAD + gap->len * index;
        return true;
    }
    struct set_list l = set_list(e);
    struct kv_needle n;
    kv_needle_init(&n, member);
    const uint8_t *at =
        kv_packed_find(l.list, *from != NULL ? *from : kv_packed_first(l.list), &n, l.stride);
    if (at == NULL || set_list_is_due(&l, at, now_ms))
        return false;
    *from = at;
    gap->at = l.head + (size_t)(at - l.list);
    gap->len = (size_t)(kv_packed_skip(at, l.stride) - at);
    return true;
}

static bool is_among(const struct gap *gaps, size_t count, size_t at)
{
    for (size_t i = 0; i < count; i++)
        if (gaps[i].at == at)
            return true;
    return false;
}

static enum kv_err remove_from_small(struct kv_set *s, const struct kv_slice *members, size_t count,
                                     uint64_t *removed)
{
    uint64_t have = kv_set_count(s->entry, -1);
    size_t found = 0, len;
    const uint8_t *from = NULL;
    uint8_t *bytes;
    struct gap *gaps = kv_arena_try_alloc(s->arena, (KV_MIN(count, have) + 1) * sizeof(*gaps));
    if (gaps == NULL)
        return KV_ERR_NOMEM;
    for (size_t i = 0; i < count && found < have; i++) {
        if (find_gap(s->entry, members[i], s->view->now_ms, &from, &gaps[found]) &&
            !is_among(gaps, found, gaps[found].at))
            found++;
    }
    *removed = found;
    if (found == 0)
        return KV_OK;
    if (found == have) {
        kv_store_delete(s->view, s->key, s->entry);
        s->entry = NULL;
        return KV_OK;
    }
    enum kv_err err = close_gaps(s, gaps, found, &bytes);
    if (err != KV_OK)
        return err;
    kv_entry_bytes(s->entry, &len);
    if (kv_entry_encoding(s->entry) == KV_ENC_INTSET) {
        kv_intset_set_count(bytes, (uint32_t)(have - found));
    } else {
        struct set_list l = set_list(s->entry);
        kv_packed_resized(l.list, len - l.head, -(int64_t)(found * l.stride));
    }
    return KV_OK;
}

static void remove_from_large(struct kv_set *s, const struct kv_slice *members, size_t count,
                              uint64_t *removed)
{
    struct kv_dict *d = kv_entry_large(s->entry);
    struct kv_footprint before = kv_store_members_begin(s->entry);
    uint64_t hashes[WINDOW];
    *removed = 0;
    for (size_t i = 0; i < count; i++) {
        if (i % WINDOW == 0)
            prefetch_window(d, members + i, KV_MIN(count - i, (size_t)WINDOW), hashes);
        struct kv_element *e = kv_dict_find(d, members[i], hashes[i % WINDOW]);
        if (e == NULL || kv_element_is_due(e, s->view->now_ms))
            continue;
        large_keep_member(s->view, d->guard, members[i], hashes[i % WINDOW]);
        kv_dict_remove(d, e, hashes[i % WINDOW]);
        ++*removed;
    }
    kv_store_large_end(s->view, s->key, s->entry, before);
    if (kv_dict_count(d) == 0) {
        kv_store_delete(s->view, s->key, s->entry);
        s->entry = NULL;
    }
}

enum kv_err kv_set_remove(struct kv_set *s, const struct kv_slice *members, size_t count,
                          uint64_t *removed)
{
    KV_DASSERT(s->entry != NULL && kv_entry_type(s->entry) == KV_TYPE_SET);
    if (kv_entry_encoding(s->entry) != KV_ENC_HASHTABLE)
        return remove_from_small(s, members, count, removed);
    remove_from_large(s, members, count, removed);
    return KV_OK;
}
