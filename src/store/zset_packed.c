/* Sorted sets as packed lists: pairs in order of score and name.
 *
 * A command that names several members makes an index of the list's names first, on the stack, and
 * finds each by comparing four at once; others walk, on from the last match (kv_packed_find). A
 * score that stays is recognised by its bytes without being read as a number. So a ZADD that
 * changes nothing costs what parsing it costs.
 *
 * A change by one pair is made in the entry; changes by several are made in a copy in the arena,
 * which then takes the place of the list in one step: it either fits or nothing has happened. A new
 * set of few, distinct members is sorted by index and written straight to where it stays.
 *
 * Invariants: members are in order and distinct; scores and due times are in the one form that
 * kv_zpacked_score_needle and kv_needle_init_int give them; no due time is 0.
 *
 * Rejected: binary search by hopping (members have different lengths, so a hop costs a walk).
 *
 * Threads: as zset.h.
 */
#include "store/zset_priv.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#define FRESH_MAX 32u                     /* pairs of a new set that are compared each with each */
#define MEMBER_EXTRA 64                   /* bytes that a member may have besides its name */
#define SCORE_GROWTH 32                   /* bytes by which a score's item may grow */
#define WHOLE_LIMIT 9223372036854775808.0 /* 2^63 */

/* --- scores --- */

static bool whole_number(double score, int64_t *number)
{
    if (!(score >= -WHOLE_LIMIT && score < WHOLE_LIMIT))
        return false;
    *number = (int64_t)score;
    return (double)*number == score;
}

struct kv_slice kv_score_text(double score, char scratch[KV_DOUBLE_TEXT_MAX])
{
    int64_t number;
    if (whole_number(score, &number))
        return kv_slice(scratch, kv_int_print(number, scratch));
    return kv_slice(scratch, kv_double_print(score, scratch));
}

void kv_zpacked_score_needle(struct kv_needle *n, double score, char scratch[KV_DOUBLE_TEXT_MAX])
{
    int64_t number;
    if (KV_LIKELY(whole_number(score, &number)))
        kv_needle_init_int(n, number);
    else
        kv_needle_init(n, kv_slice(scratch, kv_double_print(score, scratch)));
}

double kv_zpacked_score(const uint8_t *at)
{
    double score = 0;
    if (KV_LIKELY(at[0] < 0x80))
        return at[0];
    struct kv_packed_item item = kv_packed_get(at);
    if (item.ptr == NULL)
        return (double)item.number;
    bool valid = kv_double_parse(kv_slice(item.ptr, item.len), &score);
    KV_ASSERT(valid);
    return score;
}

int64_t kv_zpacked_due(const uint8_t *member, unsigned stride)
{
    if (stride == 2)
        return KV_NOT_DUE;
    int64_t due = kv_packed_get(kv_packed_skip(member, 2)).number;
    return due != 0 ? due : KV_NOT_DUE;
}

int kv_zset_pair_compare(const struct kv_zset_pair *a, const struct kv_zset_pair *b)
{
    if (a->score != b->score)
        return a->score < b->score ? -1 : 1;
    return kv_slice_compare(a->name, b->name);
}

enum kv_zadd_step kv_zadd_decide(uint32_t flags, double have, double *score,
                                 struct kv_zadd_result *result)
{
    double wanted = flags & KV_ZADD_INCR ? have + *score : *score;
    result->score = have;
    if (flags & KV_ZADD_NX) {
        result->skipped = true;
        return KV_ZADD_STAYS;
    }
    if (KV_UNLIKELY(wanted != wanted)) {
        result->nan = true;
        return KV_ZADD_STAYS;
    }
    if ((flags & KV_ZADD_GT && wanted <= have) || (flags & KV_ZADD_LT && wanted >= have)) {
        result->skipped = true;
        return KV_ZADD_STAYS;
    }
    result->score = wanted;
    *score = wanted;
    return wanted != have ? KV_ZADD_UPDATE : KV_ZADD_STAYS;
}

/* --- lists --- */

/* A list that is being changed: the entry's own, or a copy of it. */
struct list {
    uint8_t *bytes;
    unsigned stride;
};

/* Where a member with this score and name belongs: before the first one above it. The member at
 * `but` (or NULL) does not count. */
static uint8_t *place_of(const struct list *l, double score, struct kv_slice name,
                         const uint8_t *but)
{
    char scratch[KV_INT_TEXT_MAX];
    uint8_t *at = kv_packed_first(l->bytes);
    for (; !kv_packed_at_end(at); at = kv_packed_skip(at, l->stride)) {
        if (at == but)
            continue;
        double have = kv_zpacked_score(kv_packed_next(at));
        if (have > score)
            break;
        if (have == score && kv_slice_compare(kv_packed_text(at, scratch), name) > 0)
            break;
    }
    return at;
}

/* The member has another score now: brings it to where it belongs. tmp holds a member. */
static void settle(const struct list *l, uint8_t *member, double score, struct kv_slice name,
                   uint8_t *tmp)
{
    uint8_t *to = place_of(l, score, name, member);
    size_t bytes = (size_t)(kv_packed_skip(member, l->stride) - member);
    if (to == member || to == member + bytes)
        return;
    memcpy(tmp, member, bytes);
    if (to < member) {
        memmove(to + bytes, to, (size_t)(member - to));
        memcpy(to, tmp, bytes);
    } else {
        memmove(member, member + bytes, (size_t)(to - member) - bytes);
        memcpy(to - bytes, tmp, bytes);
    }
}

/* Writes a member without due time. */
static uint8_t *put_member(uint8_t *to, const struct kv_needle *name, const struct kv_needle *score,
                           unsigned stride)
{
    to = kv_packed_put(to, name);
    to = kv_packed_put(to, score);
    if (stride == 3) {
        struct kv_needle due;
        kv_needle_init_int(&due, 0);
        to = kv_packed_put(to, &due);
    }
    return to;
}

static size_t member_bytes(const struct kv_needle *name, const struct kv_needle *score,
                           unsigned stride)
{
    return kv_needle_bytes(name) + kv_needle_bytes(score) + (stride == 3 ? 2 : 0);
}

static size_t head_bytes(unsigned stride)
{
    return stride == 3 ? KV_LISTPACKEX_HEAD : 0;
}

/* Changes the length of the list in the entry: replaces `remove` bytes at `at` by `insert` bytes to
 * be written, `more` items. l->bytes and *at are where list and gap are then. */
static enum kv_err splice_list(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               struct list *l, uint8_t **at, size_t remove, size_t insert,
                               int64_t more)
{
    size_t head = head_bytes(l->stride);
    size_t offset = (size_t)(*at - l->bytes), old = kv_packed_bytes(l->bytes);
    uint8_t *bytes;
    enum kv_err err = kv_store_splice(v, k, e, head + offset, remove, insert, &bytes);
    if (err != KV_OK)
        return err;
    l->bytes = bytes + head;
    *at = l->bytes + offset;
    kv_packed_resized(l->bytes, old - remove + insert, more);
    return KV_OK;
}

/* --- copies --- */

/* A copy of a list in the arena with room for what a command adds. */
struct copy {
    struct list list;
    size_t len;
    uint8_t *tmp; /* holds one member */
};

static size_t longest_name(const struct kv_zset_pair *pairs, size_t count)
{
    size_t longest = 0;
    for (size_t i = 0; i < count; i++)
        longest = KV_MAX(longest, pairs[i].name.len);
    return longest;
}

/* `inserts` members more may come, with names that a packed set may have; any score may become
 * longer. `longest`: the longest name that is named. */
static bool copy_start(struct copy *c, const struct list *of, size_t inserts, size_t longest,
                       const struct kv_view *v, struct kv_arena *arena)
{
    const struct kv_collection_limits *limits = kv_store_limits(v->store);
    size_t len = of->bytes != NULL ? kv_packed_bytes(of->bytes) : KV_PACKED_EMPTY;
    size_t members = of->bytes != NULL ? kv_packed_count(of->bytes) / of->stride : 0;
    size_t fitting = KV_MIN(longest, limits->zset_max_listpack_value);
    inserts = KV_MIN(inserts, limits->zset_max_listpack_entries);
    size_t room = len + members * SCORE_GROWTH + inserts * (fitting + MEMBER_EXTRA);
    uint8_t *bytes = kv_arena_try_alloc(arena, room + longest + MEMBER_EXTRA);
    if (bytes == NULL)
        return false;
    if (of->bytes != NULL)
        memcpy(bytes, of->bytes, len);
    else
        kv_packed_seal(bytes, KV_PACKED_EMPTY, 0);
    *c = (struct copy){{bytes, of->stride}, len, bytes + room};
    return true;
}

/* Makes or closes a gap at `at`. */
static void copy_resize(struct copy *c, uint8_t *at, size_t remove, size_t insert, int64_t more)
{
    size_t behind = c->len - (size_t)(at - c->list.bytes) - remove;
    memmove(at + insert, at + remove, behind);
    c->len += insert - remove;
    kv_packed_resized(c->list.bytes, c->len, more);
}

/* The copy takes the place of the entry's list. */
static enum kv_err copy_commit(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               const struct copy *c)
{
    unsigned stride;
    size_t head = head_bytes(c->list.stride);
    uint8_t *bytes;
    enum kv_err err;
    if (*e == NULL) {
        err = kv_store_put_bytes(v, k, e, KV_TYPE_ZSET, KV_ENC_LISTPACK, c->len, KV_NO_EXPIRY,
                                 &bytes);
    } else {
        size_t old = kv_packed_bytes(kv_zpacked_list(*e, &stride));
        err = kv_store_splice(v, k, e, head, old, c->len, &bytes);
    }
    if (err == KV_OK)
        memcpy(bytes + head, c->list.bytes, c->len);
    return err;
}

/* --- an index for commands that name many members --- */

#define INDEX_MAX 64u /* members */
#define INDEX_FROM 4u /* pairs for which it is worth its making */
#define LANES 4u      /* fingerprints compared at once */

/* Some bits of each member's name, so that a name is found without walking the list. */
struct index {
    uint32_t prints[INDEX_MAX] KV_ALIGNED(16);
    uint16_t offsets[INDEX_MAX]; /* of the members, in the list */
    unsigned count;
};

/* Bits of an item: the end of its body, where names differ. */
static uint32_t print_of(const uint8_t *body, size_t len)
{
    uint32_t bits = 0;
    if (KV_LIKELY(len >= sizeof(bits)))
        memcpy(&bits, body + len - sizeof(bits), sizeof(bits));
    else
        bits = body[0] | (uint32_t)body[len - 1] << 8 | (uint32_t)body[len / 2] << 16;
    return bits + (uint32_t)len * UINT32_C(0x9e3779b1);
}

static uint32_t print_of_needle(const struct kv_needle *n)
{
    uint32_t bits;
    uint8_t body[16];
    if (KV_LIKELY(n->len >= sizeof(bits))) {
        memcpy(&bits, n->ptr + n->len - sizeof(bits), sizeof(bits));
        return bits + (uint32_t)kv_needle_body(n) * UINT32_C(0x9e3779b1);
    }
    memcpy(body, n->head, sizeof(n->head));
    if (n->len != 0)
        memcpy(body + n->head_len, n->ptr, n->len);
    return print_of(body, kv_needle_body(n));
}

/* False: the list is not one for an index. */
static bool index_build(struct index *x, const struct list *l, uint64_t members)
{
    if (members > INDEX_MAX || kv_packed_bytes(l->bytes) > UINT16_MAX)
        return false;
    unsigned i = 0;
    for (const uint8_t *at = kv_packed_first(l->bytes); !kv_packed_at_end(at); i++) {
        size_t body = kv_packed_body(at);
        x->prints[i] = print_of(at, body);
        x->offsets[i] = (uint16_t)(at - l->bytes);
        at = kv_packed_skip(at + body + kv_packed_tail(body), l->stride - 1);
    }
    KV_DASSERT(i == members);
    x->count = i;
    for (; i % LANES != 0; i++)
        x->prints[i] = 0;
    return true;
}

/* Which of the four members from `first` on have these bits: a bit each. */
static unsigned index_match(const struct index *x, unsigned first, uint32_t bits)
{
#ifdef __SSE2__
    const __m128i *lanes = (const __m128i *)(x->prints + first);
    __m128i same = _mm_cmpeq_epi32(_mm_load_si128(lanes), _mm_set1_epi32((int)bits));
    return (unsigned)_mm_movemask_ps(_mm_castsi128_ps(same));
#else
    unsigned set = 0;
    for (unsigned i = 0; i < LANES; i++)
        set |= (unsigned)(x->prints[first + i] == bits) << i;
    return set;
#endif
}

/* As kv_packed_find. */
static uint8_t *index_find(struct index *x, const struct list *l, const struct kv_needle *n)
{
    uint32_t bits = print_of_needle(n);
    for (unsigned first = 0; first < x->count; first += LANES) {
        for (unsigned set = index_match(x, first, bits); set != 0; set &= set - 1) {
            unsigned i = first + (unsigned)__builtin_ctz(set);
            if (i < x->count && KV_LIKELY(kv_needle_is_at(n, l->bytes + x->offsets[i])))
                return l->bytes + x->offsets[i];
        }
    }
    return NULL;
}

/* --- adding --- */

struct adding {
    struct kv_view *v;
    const struct kv_key *k;
    struct kv_entry **e;
    struct kv_arena *arena;
    struct kv_zadd_result *result;
    uint32_t flags;
    struct list list;    /* what is looked at: the entry's, then the copy's */
    struct index *index; /* of the list before the first change; or NULL */
    struct copy copy;    /* from the first change on */
    bool copied, alone;  /* alone: one pair, so that the entry itself is changed */
    uint8_t *cursor;
    uint64_t members;
};

/* A pair as it goes into the list. */
struct packed_pair {
    struct kv_needle name, score;
    char text[KV_DOUBLE_TEXT_MAX];
};

static enum kv_err insert_pair(struct adding *a, const struct kv_zset_pair *pair,
                               struct packed_pair *p)
{
    unsigned stride = a->list.stride;
    size_t bytes = member_bytes(&p->name, &p->score, stride);
    uint8_t *at = place_of(&a->list, pair->score, pair->name, NULL);
    if (!kv_zset_fits(a->v, a->members + 1, pair->name.len) ||
        kv_packed_bytes(a->list.bytes) + bytes > KV_PACKED_MAX)
        return KV_ERR_LIMIT;
    if (a->alone) {
        enum kv_err err = splice_list(a->v, a->k, a->e, &a->list, &at, 0, bytes, stride);
        if (err != KV_OK)
            return err;
    } else {
        copy_resize(&a->copy, at, 0, bytes, stride);
    }
    a->cursor = put_member(at, &p->name, &p->score, stride);
    a->result->added++;
    a->result->score = pair->score;
    a->members++;
    return KV_OK;
}

static enum kv_err update_pair(struct adding *a, uint8_t *member, struct kv_slice name,
                               double score)
{
    char text[KV_DOUBLE_TEXT_MAX];
    struct kv_needle n;
    uint8_t *at = kv_packed_next(member), *tmp = a->copy.tmp;
    size_t name_bytes = (size_t)(at - member), old = kv_packed_item_bytes(at);
    kv_zpacked_score_needle(&n, score, text);
    if (a->alone) {
        tmp = kv_arena_try_alloc(a->arena, name.len + MEMBER_EXTRA);
        enum kv_err err = KV_ERR_NOMEM;
        if (tmp != NULL)
            err = splice_list(a->v, a->k, a->e, &a->list, &at, old, kv_needle_bytes(&n), 0);
        if (err != KV_OK)
            return err;
    } else {
        copy_resize(&a->copy, at, old, kv_needle_bytes(&n), 0);
    }
    member = at - name_bytes;
    kv_packed_put(at, &n);
    settle(&a->list, member, score, name, tmp);
    a->cursor = kv_packed_first(a->list.bytes);
    a->result->updated++;
    return KV_OK;
}

/* From here on the copy is looked at and changed; positions are those in it. */
static bool begin_copy(struct adding *a, const struct kv_zset_pair *pairs, size_t count,
                       uint8_t **found)
{
    if (a->copied || a->alone)
        return true;
    size_t offset = *found != NULL ? (size_t)(*found - a->list.bytes) : 0;
    if (!copy_start(&a->copy, &a->list, count, longest_name(pairs, count), a->v, a->arena))
        return false;
    a->list = a->copy.list;
    *found = *found != NULL ? a->list.bytes + offset : NULL;
    a->cursor = kv_packed_first(a->list.bytes);
    a->index = NULL;
    a->copied = true;
    return true;
}

/* True when the score at a position is this one. Numbers are compared as such, texts as bytes. */
static bool score_is_at(const uint8_t *at, double score, struct packed_pair *p)
{
    if (KV_LIKELY(at[0] < 0x80))
        return at[0] == score;
    if ((at[0] & 0xc0) != 0x80)
        return kv_zpacked_score(at) == score;
    kv_zpacked_score_needle(&p->score, score, p->text);
    return kv_needle_is_at(&p->score, at);
}

static enum kv_err add_pair(struct adding *a, const struct kv_zset_pair *pairs, size_t left)
{
    struct packed_pair p;
    double score = pairs->score;
    kv_needle_init(&p.name, pairs->name);
    uint8_t *found = a->index != NULL
                         ? index_find(a->index, &a->list, &p.name)
                         : kv_packed_find(a->list.bytes, a->cursor, &p.name, a->list.stride);
    if (found == NULL) {
        if (a->flags & KV_ZADD_XX) {
            a->result->skipped = true;
            return KV_OK;
        }
        kv_zpacked_score_needle(&p.score, score, p.text);
        if (!begin_copy(a, pairs, left, &found))
            return KV_ERR_NOMEM;
        return insert_pair(a, pairs, &p);
    }
    const uint8_t *at = kv_packed_next(found);
    a->cursor = kv_packed_skip(at, a->list.stride - 1);
    if (!(a->flags & KV_ZADD_INCR) && KV_LIKELY(score_is_at(at, score, &p)))
        return KV_OK;
    if (kv_zadd_decide(a->flags, kv_zpacked_score(at), &score, a->result) != KV_ZADD_UPDATE)
        return KV_OK;
    if (!begin_copy(a, pairs, left, &found))
        return KV_ERR_NOMEM;
    return update_pair(a, found, pairs->name, score);
}

static enum kv_err add_pairs(struct adding *a, const struct kv_zset_pair *pairs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        enum kv_err err = add_pair(a, pairs + i, count - i);
        if (KV_UNLIKELY(err != KV_OK))
            return err;
    }
    return a->copied ? copy_commit(a->v, a->k, a->e, &a->copy) : KV_OK;
}

enum kv_err kv_zpacked_add(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                           const struct kv_zset_pair *pairs, size_t count, uint32_t flags,
                           struct kv_arena *arena, struct kv_zadd_result *result)
{
    struct adding a = {.v = v,
                       .k = k,
                       .e = e,
                       .arena = arena,
                       .result = result,
                       .flags = flags,
                       .alone = count == 1};
    struct index index;
    a.list.bytes = kv_zpacked_list(*e, &a.list.stride);
    a.cursor = kv_packed_first(a.list.bytes);
    a.members = kv_packed_count(a.list.bytes) / a.list.stride;
    if (count >= INDEX_FROM && index_build(&index, &a.list, a.members))
        a.index = &index;
    return add_pairs(&a, pairs, count);
}

/* --- new sets --- */

/* Pairs of a new set: needles and the order in which they go into the list. */
struct fresh {
    const struct kv_zset_pair *pairs;
    size_t count;
    struct packed_pair *packed;
    uint8_t order[FRESH_MAX];
};

/* Some bits that equal names have in common. */
static uint64_t fingerprint(struct kv_slice name)
{
    uint64_t first = 0, last = 0;
    if (KV_LIKELY(name.len >= sizeof(first))) {
        memcpy(&first, name.ptr, sizeof(first));
        memcpy(&last, name.ptr + name.len - sizeof(last), sizeof(last));
    } else {
        for (size_t i = 0; i < name.len; i++)
            first = first << 8 | (uint8_t)name.ptr[i];
    }
    return first ^ (last << 1 | last >> 63) ^ name.len;
}

static bool distinct(const struct kv_zset_pair *pairs, size_t count)
{
    uint64_t prints[FRESH_MAX];
    for (size_t i = 0; i < count; i++) {
        prints[i] = fingerprint(pairs[i].name);
        for (size_t j = 0; j < i; j++)
            if (KV_UNLIKELY(prints[j] == prints[i]) && kv_slice_equal(pairs[i].name, pairs[j].name))
                return false;
    }
    return true;
}

static void sort_fresh(struct fresh *f)
{
    for (size_t i = 0; i < f->count; i++) {
        size_t at = i;
        for (; at > 0; at--) {
            if (kv_zset_pair_compare(&f->pairs[f->order[at - 1]], &f->pairs[i]) <= 0)
                break;
            f->order[at] = f->order[at - 1];
        }
        f->order[at] = (uint8_t)i;
    }
}

static enum kv_err put_fresh(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                             struct fresh *f)
{
    size_t len = KV_PACKED_EMPTY;
    uint8_t *bytes;
    for (size_t i = 0; i < f->count; i++) {
        struct packed_pair *p = &f->packed[i];
        kv_needle_init(&p->name, f->pairs[i].name);
        kv_zpacked_score_needle(&p->score, f->pairs[i].score, p->text);
        len += member_bytes(&p->name, &p->score, 2);
    }
    enum kv_err err =
        kv_store_put_bytes(v, k, e, KV_TYPE_ZSET, KV_ENC_LISTPACK, len, KV_NO_EXPIRY, &bytes);
    if (err != KV_OK)
        return err;
    uint8_t *to = bytes + KV_PACKED_HEAD;
    for (size_t i = 0; i < f->count; i++) {
        const struct packed_pair *p = &f->packed[f->order[i]];
        to = put_member(to, &p->name, &p->score, 2);
    }
    kv_packed_seal(bytes, len, (uint32_t)f->count * 2);
    return KV_OK;
}

enum kv_err kv_zpacked_create(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              const struct kv_zset_pair *pairs, size_t count, uint32_t flags,
                              struct kv_arena *arena, struct kv_zadd_result *result)
{
    struct fresh f = {.pairs = pairs, .count = count};
    if (count <= FRESH_MAX && kv_zset_fits(v, count, longest_name(pairs, count)) &&
        distinct(pairs, count)) {
        f.packed = kv_arena_try_alloc(arena, count * sizeof(*f.packed));
        if (f.packed == NULL)
            return KV_ERR_NOMEM;
        sort_fresh(&f);
        result->added = count;
        result->score = pairs[0].score;
        return put_fresh(v, k, e, &f);
    }
    struct list none = {NULL, 2};
    struct adding a = {
        .v = v, .k = k, .e = e, .arena = arena, .result = result, .flags = flags, .copied = true};
    size_t longest = longest_name(pairs, count);
    if (!kv_zset_fits(v, 1, longest))
        return KV_ERR_LIMIT;
    if (!copy_start(&a.copy, &none, count, longest, v, arena))
        return KV_ERR_NOMEM;
    a.list = a.copy.list;
    a.cursor = kv_packed_first(a.list.bytes);
    return add_pairs(&a, pairs, count);
}

enum kv_err kv_zpacked_put(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                           const struct kv_zset_pair *pairs, size_t count, struct kv_arena *arena)
{
    struct packed_pair p;
    size_t room = KV_PACKED_EMPTY + count * (longest_name(pairs, count) + MEMBER_EXTRA);
    uint8_t *bytes, *list = kv_arena_try_alloc(arena, room);
    if (list == NULL)
        return KV_ERR_NOMEM;
    uint8_t *to = list + KV_PACKED_HEAD;
    for (size_t i = 0; i < count; i++) {
        kv_needle_init(&p.name, pairs[i].name);
        kv_zpacked_score_needle(&p.score, pairs[i].score, p.text);
        to = put_member(to, &p.name, &p.score, 2);
    }
    size_t len = (size_t)(to - list) + 1;
    if (len > KV_PACKED_MAX)
        return KV_ERR_LIMIT;
    kv_packed_seal(list, len, (uint32_t)count * 2);
    enum kv_err err =
        kv_store_put_bytes(v, k, e, KV_TYPE_ZSET, KV_ENC_LISTPACK, len, KV_NO_EXPIRY, &bytes);
    if (err == KV_OK)
        memcpy(bytes, list, len);
    return err;
}

/* --- removing --- */

static void delete_if_empty(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                            uint64_t members)
{
    if (members != 0)
        return;
    kv_store_delete(v, k, *e);
    *e = NULL;
}

enum kv_err kv_zpacked_remove_span(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                   struct kv_span span)
{
    struct list l;
    l.bytes = kv_zpacked_list(*e, &l.stride);
    uint64_t members = kv_packed_count(l.bytes) / l.stride;
    KV_ASSERT(span.first <= members && span.count <= members - span.first);
    if (span.count == 0)
        return KV_OK;
    if (span.count != members) {
        uint8_t *at = kv_packed_seek(l.bytes, (int64_t)(span.first * l.stride));
        uint8_t *end = kv_packed_skip(at, (unsigned)(span.count * l.stride));
        return splice_list(v, k, e, &l, &at, (size_t)(end - at), 0,
                           -(int64_t)(span.count * l.stride));
    }
    delete_if_empty(v, k, e, 0);
    return KV_OK;
}

static enum kv_err remove_one(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              struct list *l, struct kv_slice name, uint64_t *removed)
{
    struct kv_needle n;
    kv_needle_init(&n, name);
    uint8_t *at = kv_packed_find(l->bytes, kv_packed_first(l->bytes), &n, l->stride);
    if (at == NULL)
        return KV_OK;
    size_t bytes = (size_t)(kv_packed_skip(at, l->stride) - at);
    *removed = 1;
    if (kv_packed_count(l->bytes) != l->stride)
        return splice_list(v, k, e, l, &at, bytes, 0, -(int64_t)l->stride);
    delete_if_empty(v, k, e, 0);
    return KV_OK;
}

enum kv_err kv_zpacked_remove(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              const struct kv_slice *names, size_t count, struct kv_arena *arena,
                              uint64_t *removed)
{
    struct list l;
    struct copy c;
    struct kv_needle n;
    bool copied = false;
    *removed = 0;
    l.bytes = kv_zpacked_list(*e, &l.stride);
    if (count == 1)
        return remove_one(v, k, e, &l, names[0], removed);
    uint8_t *cursor = kv_packed_first(l.bytes);
    uint64_t members = kv_packed_count(l.bytes) / l.stride;
    for (size_t i = 0; i < count && *removed < members; i++) {
        kv_needle_init(&n, names[i]);
        uint8_t *at = kv_packed_find(l.bytes, cursor, &n, l.stride);
        if (at == NULL)
            continue;
        if (!copied) {
            size_t offset = (size_t)(at - l.bytes);
            if (!copy_start(&c, &l, 0, 0, v, arena))
                return KV_ERR_NOMEM;
            l = c.list;
            at = l.bytes + offset;
            copied = true;
        }
        copy_resize(&c, at, (size_t)(kv_packed_skip(at, l.stride) - at), 0, -(int64_t)l.stride);
        cursor = at;
        ++*removed;
    }
    if (*removed == members)
        delete_if_empty(v, k, e, 0);
    return copied && *e != NULL ? copy_commit(v, k, e, &c) : KV_OK;
}

/* --- due times --- */

const uint8_t *kv_zpacked_without_due(const struct kv_entry *e, int64_t now_ms,
                                      struct kv_arena *arena)
{
    struct list l;
    l.bytes = kv_zpacked_list(e, &l.stride);
    size_t len = kv_packed_bytes(l.bytes);
    uint32_t items = 0;
    uint8_t *bytes = kv_arena_try_alloc(arena, len);
    if (bytes == NULL)
        return NULL;
    uint8_t *to = bytes + KV_PACKED_HEAD;
    for (const uint8_t *at = kv_packed_first(l.bytes); !kv_packed_at_end(at);) {
        const uint8_t *next = kv_packed_skip(at, l.stride);
        int64_t due = kv_zpacked_due(at, l.stride);
        if (due == KV_NOT_DUE || due > now_ms) {
            memcpy(to, at, (size_t)(next - at));
            to += next - at;
            items += l.stride;
        }
        at = next;
    }
    kv_packed_seal(bytes, (size_t)(to - bytes) + 1, items);
    return bytes;
}

/* KV_ENC_LISTPACK becomes KV_ENC_LISTPACKEX, the member at `member` getting a due time. */
static enum kv_err begin_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                             const uint8_t *list, const uint8_t *member, int64_t due,
                             struct kv_arena *arena)
{
    struct kv_needle none, item;
    size_t len = kv_packed_bytes(list);
    uint32_t members = kv_packed_count(list) / 2;
    kv_needle_init_int(&none, 0);
    kv_needle_init_int(&item, due);
    size_t new_len = len + (members - 1) * kv_needle_bytes(&none) + kv_needle_bytes(&item);
    uint8_t *built = kv_arena_try_alloc(arena, new_len), *bytes;
    if (built == NULL)
        return KV_ERR_NOMEM;
    uint8_t *to = kv_packed_first(built);
    for (const uint8_t *at = kv_packed_first(list); !kv_packed_at_end(at);) {
        const uint8_t *next = kv_packed_skip(at, 2);
        memcpy(to, at, (size_t)(next - at));
        to = kv_packed_put(to + (next - at), at == member ? &item : &none);
        at = next;
    }
    kv_packed_seal(built, new_len, members * 3);
    enum kv_err err = kv_store_put_due_bytes(v, k, e, KV_TYPE_ZSET, KV_LISTPACKEX_HEAD + new_len,
                                             KV_KEEP_EXPIRY, due, &bytes);
    if (err == KV_OK)
        memcpy(bytes + KV_LISTPACKEX_HEAD, built, new_len);
    return err;
}

enum kv_err kv_zpacked_set_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               struct kv_slice name, int64_t due, struct kv_arena *arena,
                               bool *found)
{
    struct kv_needle n, item;
    struct list l;
    l.bytes = kv_zpacked_list(*e, &l.stride);
    kv_needle_init(&n, name);
    uint8_t *at = kv_packed_find(l.bytes, kv_packed_first(l.bytes), &n, l.stride);
    *found = at != NULL;
    if (at == NULL || kv_zpacked_due(at, l.stride) == due)
        return KV_OK;
    if (l.stride == 2)
        return begin_due(v, k, e, l.bytes, at, due, arena);
    if (due != KV_NOT_DUE) {
        enum kv_err err = kv_store_register_due(v, k, *e, due);
        if (err != KV_OK)
            return err;
    }
    kv_needle_init_int(&item, due != KV_NOT_DUE ? due : 0);
    at = kv_packed_skip(at, 2);
    enum kv_err err =
        splice_list(v, k, e, &l, &at, kv_packed_item_bytes(at), kv_needle_bytes(&item), 0);
    if (err == KV_OK)
        kv_packed_put(at, &item);
    else
        kv_store_refresh_due(v, k, *e);
    return err;
}
