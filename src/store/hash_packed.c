/* Packed hashes: setting, removing, giving due times.
 *
 * Every change is a list of edits. An edit of a field that is there replaces the bytes from
 * `tail_at` to `end`, which are
 *
 *   SET    the value and, in the form with due times, the due time
 *   DUE    the due time alone
 *   DROP   the whole field
 *
 * while fields that are new are appended. Edits are found and measured first, which touches
 * nothing, and then carried out in the cheapest way there is:
 *
 *   all keep their size           bytes are overwritten where they are: an HSET of known fields
 *   one changes its size          one splice, the others are overwritten
 *   some are new, none resized    one splice at the end: all new fields are appended together
 *   anything else                 a new list is written beside the old one and copied over it
 *
 * In each case there is one step that may fail, and it is the first one. The due time is registered
 * before that: a record that is too early does no harm.
 *
 * A hash gets the form with due times by a copy with a 0 behind each field, which is then edited.
 *
 * Threads: under the lock of the key's shard.
 */
#include "store/hash_priv.h"

#define EDITS_INLINE 32u /* edits that lie on the stack */

enum what {
    SKIP, /* nothing: the name comes again, or there is no such field */
    SET,
    DUE,
    DROP,
};

struct edit {
    struct kv_needle value; /* SET: the new value */
    struct kv_needle name;  /* of a new field: its name */
    int64_t due;            /* what the due time's item will say; 0: none */
    uint32_t at;            /* offset of the field in the list; 0: it is new */
    uint32_t tail_at, end;  /* offsets of the bytes that are replaced */
    uint32_t insert;        /* bytes that replace them, or of the new field */
    enum what what;
    bool revived; /* SET: the field that is there was due */
};

struct plan {
    const uint8_t *list; /* what is edited: the entry's list, or a copy that is in the new form */
    const uint8_t *from; /* where the next search begins; NULL: nothing is there to be found */
    struct edit *edits;
    size_t count;
    size_t head;      /* bytes before the list in the entry */
    size_t new_bytes; /* of the list with all edits */
    size_t fresh;     /* fields that are new */
    size_t resized;   /* edits that change the length, but for new fields */
    size_t dropped;   /* fields that go */
    uint32_t stride;  /* items of a field */
    uint32_t last_at; /* offset of the field found last */
    bool ascending;   /* all fields were found in the order in which they lie, each once */
    bool widened;     /* `list` is a copy in the form with due times, the entry has the other */
    int64_t due;      /* to be registered; negative: none */
    int64_t now_ms;
    struct kv_arena *arena;
};

static size_t number_bytes(int64_t number)
{
    struct kv_needle n;
    kv_needle_init_int(&n, number);
    return kv_needle_bytes(&n);
}

static uint8_t *put_number(uint8_t *to, int64_t number)
{
    struct kv_needle n;
    kv_needle_init_int(&n, number);
    return kv_packed_put(to, &n);
}

/* --- planning --- */

/* A copy of a list without due times in the form that has them. NULL: no memory. */
static const uint8_t *widen(const uint8_t *list, struct kv_arena *arena)
{
    uint32_t items = kv_packed_count(list);
    size_t none = number_bytes(0);
    size_t bytes = kv_packed_bytes(list) + items / 2 * none;
    uint8_t *copy = kv_arena_try_alloc(arena, bytes);
    if (copy == NULL)
        return NULL;
    uint8_t *to = copy + KV_PACKED_HEAD;
    for (const uint8_t *at = kv_packed_first(list); !kv_packed_at_end(at);) {
        const uint8_t *next = kv_packed_skip(at, 2);
        memcpy(to, at, (size_t)(next - at));
        to = put_number(to + (next - at), 0);
        at = next;
    }
    kv_packed_seal(copy, bytes, items / 2 * 3);
    return copy;
}

/* Settles what is edited. `due` as in struct plan. False: no memory. */
static bool plan_init(struct plan *plan, const struct kv_view *v, const struct kv_entry *e,
                      int64_t due, struct kv_arena *arena)
{
    plan->list = packed_list_of(e, &plan->head);
    plan->stride = plan->head == 0 ? 2 : 3;
    plan->widened = due >= 0 && plan->stride == 2;
    if (KV_UNLIKELY(plan->widened)) {
        plan->list = widen(plan->list, arena);
        plan->stride = 3;
        if (plan->list == NULL)
            return false;
    }
    plan->from = kv_packed_first(plan->list);
    plan->new_bytes = kv_packed_bytes(plan->list);
    plan->fresh = plan->resized = plan->dropped = 0;
    plan->last_at = 0;
    plan->ascending = true;
    plan->due = due;
    plan->now_ms = v->now_ms;
    plan->arena = arena;
    return true;
}

/* Room for `count` edits: `room` on the caller's stack, else the arena. False: no memory. */
KV_INLINE bool plan_room(struct plan *plan, size_t count, struct edit room[EDITS_INLINE],
                         struct kv_arena *arena)
{
    plan->count = count;
    plan->edits = room;
    if (KV_UNLIKELY(count > EDITS_INLINE))
        plan->edits = kv_arena_try_alloc(arena, count * sizeof(*room));
    return plan->edits != NULL;
}

/* Counts what an edit does to the length. */
KV_INLINE void measure(struct plan *plan, const struct edit *edit)
{
    if (edit->what == SKIP)
        return;
    size_t replaced = edit->end - edit->tail_at;
    plan->new_bytes += edit->insert - replaced;
    if (edit->at == 0)
        plan->fresh++;
    else
        plan->resized += edit->insert != replaced;
    plan->dropped += edit->what == DROP;
}

static void measure_again(struct plan *plan)
{
    plan->new_bytes = kv_packed_bytes(plan->list);
    plan->fresh = plan->resized = plan->dropped = 0;
    for (size_t i = 0; i < plan->count; i++)
        measure(plan, &plan->edits[i]);
}

/* Finds the field of an edit; NULL: not there. */
KV_INLINE const uint8_t *locate(struct plan *plan, struct edit *edit, struct packed_field *f)
{
    edit->at = edit->tail_at = edit->end = 0;
    if (plan->from == NULL)
        return NULL;
    const uint8_t *at = kv_packed_find(plan->list, plan->from, &edit->name, plan->stride);
    if (at == NULL)
        return NULL;
    packed_field_at(at, plan->stride, f);
    edit->at = (uint32_t)(at - plan->list);
    edit->end = (uint32_t)(f->next - plan->list);
    plan->from = f->next;
    plan->ascending &= edit->at > plan->last_at;
    plan->last_at = edit->at;
    return at;
}

/* Plans that a field gets a value. The needles are made. */
KV_INLINE void plan_set(struct plan *plan, struct edit *edit, const struct kv_hash_pairs *p)
{
    struct packed_field f;
    edit->what = SET;
    edit->revived = false;
    edit->due = p->due < 0 ? 0 : p->due;
    if (KV_LIKELY(locate(plan, edit, &f) != NULL)) {
        edit->tail_at = (uint32_t)(f.value - plan->list);
        edit->insert = (uint32_t)kv_needle_bytes(&edit->value);
        edit->revived = due_is_over(f.due, plan->now_ms);
        if (p->due == KV_HASH_KEEP_DUE && f.due != KV_NOT_DUE && !edit->revived)
            edit->due = f.due;
    } else {
        edit->insert = (uint32_t)(kv_needle_bytes(&edit->name) + kv_needle_bytes(&edit->value));
    }
    if (KV_UNLIKELY(plan->stride == 3))
        edit->insert += (uint32_t)number_bytes(edit->due);
    measure(plan, edit);
}

/* A name that comes again passes its value on to its first occurrence and is skipped. */
static enum kv_err drop_repeated(struct plan *plan, const struct kv_hash_pairs *p)
{
    uint32_t inline_first[EDITS_INLINE], *first = inline_first;
    bool repeated = false;
    if (p->count > EDITS_INLINE)
        first = kv_arena_try_alloc(p->arena, p->count * sizeof(*first));
    if (first == NULL || !kv_hash_first_names(p->words, p->count, 2, first, p->arena))
        return KV_ERR_NOMEM;
    for (size_t i = 0; i < p->count; i++) {
        if (first[i] == i)
            continue;
        struct edit *kept = &plan->edits[first[i]], *edit = &plan->edits[i];
        kept->insert += (uint32_t)(kv_needle_bytes(&edit->value) - kv_needle_bytes(&kept->value));
        kept->value = edit->value;
        edit->what = SKIP;
        repeated = true;
    }
    if (repeated)
        measure_again(plan);
    return KV_OK;
}

static bool too_long(const struct kv_hash_pairs *p, uint64_t limit)
{
    size_t max = KV_MIN(limit, KV_PACKED_MAX);
    for (size_t i = 0; i < 2 * p->count; i++)
        if (p->words[i].len > max)
            return true;
    return false;
}

/* --- carrying out --- */

static uint8_t *put_tail(uint8_t *to, const struct edit *edit, uint32_t stride)
{
    if (edit->what == DROP)
        return to;
    if (edit->what == SET)
        to = kv_packed_put(to, &edit->value);
    return KV_LIKELY(stride == 2) ? to : put_number(to, edit->due);
}

static uint8_t *put_fresh(uint8_t *to, const struct plan *plan)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct edit *edit = &plan->edits[i];
        if (edit->at == 0 && edit->what == SET)
            to = put_tail(kv_packed_put(to, &edit->name), edit, plan->stride);
    }
    return to;
}

/* Overwrites what is there already: those behind `moved_at` lie `moved` bytes further on now. */
KV_INLINE void put_present(uint8_t *list, const struct plan *plan, uint32_t moved_at, int64_t moved)
{
    for (size_t i = 0; i < plan->count; i++) {
        const struct edit *edit = &plan->edits[i];
        if (edit->at != 0 && edit->what != SKIP)
            put_tail(list + edit->tail_at + (edit->at > moved_at ? moved : 0), edit, plan->stride);
    }
}

static enum kv_err splice_one(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              const struct plan *plan)
{
    const struct edit *edit = plan->edits;
    while (edit->what == SKIP || edit->insert == edit->end - edit->tail_at)
        edit++;
    uint8_t *bytes;
    size_t replaced = edit->end - edit->tail_at;
    enum kv_err err =
        kv_store_splice(v, k, e, plan->head + edit->tail_at, replaced, edit->insert, &bytes);
    if (err != KV_OK)
        return err;
    uint8_t *list = bytes + plan->head;
    put_present(list, plan, edit->at, (int64_t)edit->insert - (int64_t)replaced);
    kv_packed_resized(list, plan->new_bytes, -(int64_t)(plan->dropped * plan->stride));
    return KV_OK;
}

static enum kv_err append(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                          const struct plan *plan)
{
    uint8_t *bytes;
    size_t end = kv_packed_bytes(plan->list) - 1;
    size_t more = plan->new_bytes - end - 1;
    enum kv_err err = kv_store_splice(v, k, e, plan->head + end, 0, more, &bytes);
    if (err != KV_OK)
        return err;
    uint8_t *list = bytes + plan->head;
    put_present(list, plan, UINT32_MAX, 0);
    const uint8_t *to = put_fresh(list + end, plan);
    KV_DASSERT(to == list + end + more);
    (void)to;
    kv_packed_resized(list, plan->new_bytes, (int64_t)(plan->fresh * plan->stride));
    return KV_OK;
}

/* The edits of fields that are there, in the order of the list. NULL: no memory. */
static uint32_t *sorted_edits(const struct plan *plan, size_t *count)
{
    uint32_t *order = kv_arena_try_alloc(plan->arena, plan->count * sizeof(*order));
    size_t n = 0;
    for (size_t i = 0; order != NULL && i < plan->count; i++) {
        const struct edit *edit = &plan->edits[i];
        if (edit->at == 0 || edit->what == SKIP)
            continue;
        /* Fields are mostly named in order: this moves nothing then. */
        size_t at = n++;
        for (; at > 0 && plan->edits[order[at - 1]].at > edit->at; at--)
            order[at] = order[at - 1];
        order[at] = (uint32_t)i;
    }
    *count = n;
    return order;
}

/* The list with all edits, in the arena. NULL: no memory. */
static uint8_t *write_anew(const struct plan *plan)
{
    size_t count;
    const uint32_t *order = sorted_edits(plan, &count);
    uint8_t *list = order != NULL ? kv_arena_try_alloc(plan->arena, plan->new_bytes) : NULL;
    if (list == NULL)
        return NULL;
    uint8_t *to = list + KV_PACKED_HEAD;
    size_t from = KV_PACKED_HEAD, end = kv_packed_bytes(plan->list) - 1;
    for (size_t i = 0; i < count; i++) {
        const struct edit *edit = &plan->edits[order[i]];
        memcpy(to, plan->list + from, edit->tail_at - from);
        to = put_tail(to + (edit->tail_at - from), edit, plan->stride);
        from = edit->end;
    }
    memcpy(to, plan->list + from, end - from);
    to = put_fresh(to + (end - from), plan);
    KV_ASSERT(to == list + plan->new_bytes - 1);
    uint32_t items = kv_packed_count(plan->list);
    kv_packed_seal(list, plan->new_bytes,
                   items + (uint32_t)((plan->fresh - plan->dropped) * plan->stride));
    return list;
}

static enum kv_err replace(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                           const struct plan *plan)
{
    uint8_t *bytes;
    const uint8_t *list = write_anew(plan);
    if (list == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err;
    if (plan->widened)
        err = kv_store_put_due_bytes(v, k, e, KV_TYPE_HASH, KV_LISTPACKEX_HEAD + plan->new_bytes,
                                     KV_KEEP_EXPIRY, plan->due, &bytes);
    else
        err = kv_store_splice(v, k, e, plan->head, kv_packed_bytes(plan->list), plan->new_bytes,
                              &bytes);
    if (err == KV_OK)
        memcpy(bytes + (plan->stride == 3 ? KV_LISTPACKEX_HEAD : 0), list, plan->new_bytes);
    return err;
}

/* Carries a plan out that leaves at least one field. */
static KV_NOINLINE enum kv_err carry_out(struct kv_view *v, const struct kv_key *k,
                                         struct kv_entry **e, const struct plan *plan)
{
    if (KV_UNLIKELY(plan->widened))
        return replace(v, k, e, plan);
    if (KV_UNLIKELY(plan->due >= 0)) {
        enum kv_err err = kv_store_register_due(v, k, *e, plan->due);
        if (err != KV_OK)
            return err;
    }
    if (plan->resized + plan->fresh == 0) {
        put_present((uint8_t *)(uintptr_t)plan->list, plan, UINT32_MAX, 0);
        return KV_OK;
    }
    if (plan->resized == 0)
        return append(v, k, e, plan);
    if (plan->resized == 1 && plan->fresh == 0)
        return splice_one(v, k, e, plan);
    return replace(v, k, e, plan);
}

/* --- setting --- */

/* Fields that were due and count as new. */
static uint64_t revived(const struct plan *plan)
{
    uint64_t count = 0;
    for (size_t i = 0; i < plan->count; i++)
        count += plan->edits[i].what != SKIP && plan->edits[i].revived;
    return count;
}

KV_INLINE void make_needles(struct edit *edit, const struct kv_slice *pair)
{
    kv_needle_init(&edit->name, pair[0]);
    kv_needle_init(&edit->value, pair[1]);
}

/* The field of that name, if it lies at `at` or else anywhere: where its value is. NULL: there is
 * none, or the name is longer than it may be now. */
KV_INLINE const uint8_t *find_value(const uint8_t *list, const uint8_t *at, struct kv_slice name,
                                    uint64_t longest)
{
    struct kv_needle n;
    if (KV_LIKELY(kv_packed_is_plain(name)) && at[0] == (0x80 | name.len) &&
        kv_bytes_equal(at + 1, name.ptr, name.len))
        return at + name.len + 2;
    if (KV_UNLIKELY(name.len > longest))
        return NULL;
    kv_needle_init(&n, name);
    at = kv_packed_find(list, at, &n, 2);
    return at != NULL ? kv_packed_next(at) : NULL;
}

/* The usual HSET, without a plan: every field is there, and its value keeps its length. Looks at
 * all of them before it writes any; false: it is otherwise, and nothing has changed. Budget: 70
 * instructions a field that lies where it is expected. */
static KV_HOT bool overwrite_known(const uint8_t *list, const struct kv_hash_pairs *p,
                                   uint64_t longest)
{
    struct kv_needle numbers[EDITS_INLINE]; /* of values that are not plain */
    uint8_t *spots[EDITS_INLINE];
    const uint8_t *at = kv_packed_first(list);
    for (size_t i = 0; i < p->count; i++) {
        struct kv_slice value = p->words[2 * i + 1];
        at = find_value(list, at, p->words[2 * i], longest);
        if (KV_UNLIKELY(at == NULL))
            return false;
        spots[i] = (uint8_t *)(uintptr_t)at;
        if (KV_LIKELY(kv_packed_is_plain(value))) {
            if (at[0] != (0x80 | value.len))
                return false;
            at += value.len + 2;
            continue;
        }
        if (KV_UNLIKELY(value.len > longest))
            return false;
        kv_needle_init_any(&numbers[i], value);
        if (kv_packed_body(at) != kv_needle_body(&numbers[i]))
            return false;
        at += kv_needle_bytes(&numbers[i]);
    }
    for (size_t i = 0; i < p->count; i++) {
        struct kv_slice value = p->words[2 * i + 1];
        if (KV_LIKELY(kv_packed_is_plain(value)))
            kv_bytes_copy(spots[i] + 1, value.ptr, value.len);
        else
            kv_packed_put(spots[i], &numbers[i]);
    }
    return true;
}

static KV_NOINLINE enum kv_err set_planned(struct kv_view *v, const struct kv_key *k,
                                           struct kv_entry **e, struct kv_hash_pairs *p)
{
    struct edit room[EDITS_INLINE];
    struct plan plan;
    const struct kv_collection_limits *limits = kv_store_limits(v->store);
    if (KV_UNLIKELY(too_long(p, limits->hash_max_listpack_value)))
        return KV_ERR_LIMIT;
    if (!plan_init(&plan, v, *e, p->due, p->arena) || !plan_room(&plan, p->count, room, p->arena))
        return KV_ERR_NOMEM;
    if (p->hint == KV_HASH_ABSENT)
        plan.from = NULL;
    else if (p->hint != 0 && !plan.widened)
        plan.from = plan.list + p->hint;
    for (size_t i = 0; i < p->count; i++) {
        make_needles(&plan.edits[i], &p->words[2 * i]);
        plan_set(&plan, &plan.edits[i], p);
    }
    if (KV_UNLIKELY(plan.fresh > 1 || !plan.ascending)) {
        enum kv_err err = drop_repeated(&plan, p);
        if (err != KV_OK)
            return err;
    }
    if (plan.fresh != 0 &&
        kv_packed_count(plan.list) / plan.stride + plan.fresh > limits->hash_max_listpack_entries)
        return KV_ERR_LIMIT;
    if (KV_UNLIKELY(plan.new_bytes > KV_PACKED_MAX))
        return KV_ERR_LIMIT;
    enum kv_err err = carry_out(v, k, e, &plan);
    if (KV_LIKELY(err == KV_OK)) {
        p->created = plan.fresh + (KV_UNLIKELY(plan.stride == 3) ? revived(&plan) : 0);
        p->done = p->count;
    }
    return err;
}

enum kv_err kv_hash_packed_set(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                               struct kv_hash_pairs *p)
{
    size_t len;
    uint64_t longest = kv_store_limits(v->store)->hash_max_listpack_value;
    if (KV_LIKELY(kv_entry_encoding(*e) == KV_ENC_LISTPACK && p->due < 0 && p->hint == 0 &&
                  p->count <= EDITS_INLINE && longest >= 63) &&
        overwrite_known(kv_entry_bytes(*e, &len), p, longest)) {
        p->done = p->count;
        return KV_OK;
    }
    return set_planned(v, k, e, p);
}

/* True when the names are certainly different: a mark for what tells most names apart finds no mark
 * of another. False: they may be. */
static bool names_differ(const struct kv_hash_pairs *p)
{
    uint64_t marks[32] = {0};
    for (size_t i = 0; i < p->count; i++) {
        struct kv_slice name = p->words[2 * i];
        if (name.len == 0)
            return false;
        uint32_t mixed = (uint8_t)name.ptr[0] | (uint32_t)(uint8_t)name.ptr[name.len - 1] << 8 |
                         (uint32_t)(uint8_t)name.ptr[name.len / 2] << 16 | (uint32_t)name.len << 24;
        uint32_t mark = mixed * UINT32_C(0x9e3779b1) >> 21;
        uint64_t bit = (uint64_t)1 << (mark & 63);
        if (marks[mark >> 6] & bit)
            return false;
        marks[mark >> 6] |= bit;
    }
    return true;
}

/* A new hash of a few fields that are certainly different: written without a plan. */
static enum kv_err create_few(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              struct kv_hash_pairs *p)
{
    struct kv_needle needles[2 * EDITS_INLINE];
    size_t words = 2 * p->count, len = KV_PACKED_EMPTY;
    uint8_t *list;
    for (size_t i = 0; i < words; i++) {
        kv_needle_init(&needles[i], p->words[i]);
        len += kv_needle_bytes(&needles[i]);
    }
    if (KV_UNLIKELY(len > KV_PACKED_MAX))
        return KV_ERR_LIMIT;
    enum kv_err err =
        kv_store_put_bytes(v, k, e, KV_TYPE_HASH, KV_ENC_LISTPACK, len, KV_KEEP_EXPIRY, &list);
    if (KV_UNLIKELY(err != KV_OK))
        return err;
    uint8_t *to = list + KV_PACKED_HEAD;
    for (size_t i = 0; i < words; i++)
        to = kv_packed_put(to, &needles[i]);
    kv_packed_seal(list, len, (uint32_t)words);
    p->created = p->done = p->count;
    return KV_OK;
}

/* Writes the pairs of a new hash into its block. */
static enum kv_err create(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                          const struct plan *plan)
{
    uint8_t *bytes;
    enum kv_err err;
    if (KV_LIKELY(plan->stride == 2))
        err = kv_store_put_bytes(v, k, e, KV_TYPE_HASH, KV_ENC_LISTPACK, plan->new_bytes,
                                 KV_KEEP_EXPIRY, &bytes);
    else
        err = kv_store_put_due_bytes(v, k, e, KV_TYPE_HASH, KV_LISTPACKEX_HEAD + plan->new_bytes,
                                     KV_KEEP_EXPIRY, plan->due, &bytes);
    if (KV_UNLIKELY(err != KV_OK))
        return err;
    uint8_t *list = bytes + (plan->stride == 3 ? KV_LISTPACKEX_HEAD : 0);
    const uint8_t *end = put_fresh(list + KV_PACKED_HEAD, plan);
    KV_DASSERT(end == list + plan->new_bytes - 1);
    (void)end;
    kv_packed_seal(list, plan->new_bytes, (uint32_t)(plan->fresh * plan->stride));
    return KV_OK;
}

enum kv_err kv_hash_packed_create(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                  struct kv_hash_pairs *p)
{
    static const uint8_t empty[KV_PACKED_EMPTY] = {KV_PACKED_EMPTY, 0, 0, 0, 0, 0, KV_PACKED_END};
    struct edit room[EDITS_INLINE];
    struct plan plan = {
        .list = empty, .new_bytes = KV_PACKED_EMPTY, .stride = 2, .due = p->due, .arena = p->arena};
    const struct kv_collection_limits *limits = kv_store_limits(v->store);
    if (KV_UNLIKELY(too_long(p, limits->hash_max_listpack_value)))
        return KV_ERR_LIMIT;
    if (p->due < 0 && p->count <= KV_MIN(EDITS_INLINE, limits->hash_max_listpack_entries) &&
        names_differ(p))
        return create_few(v, k, e, p);
    if (!plan_room(&plan, p->count, room, p->arena))
        return KV_ERR_NOMEM;
    if (p->due >= 0)
        plan.stride = 3;
    for (size_t i = 0; i < p->count; i++) {
        make_needles(&plan.edits[i], &p->words[2 * i]);
        plan_set(&plan, &plan.edits[i], p);
    }
    if (p->count > 1) {
        enum kv_err err = drop_repeated(&plan, p);
        if (KV_UNLIKELY(err != KV_OK))
            return err;
    }
    if (KV_UNLIKELY(plan.fresh > limits->hash_max_listpack_entries ||
                    plan.new_bytes > KV_PACKED_MAX))
        return KV_ERR_LIMIT;
    enum kv_err err = create(v, k, e, &plan);
    if (KV_LIKELY(err == KV_OK)) {
        p->created = plan.fresh;
        p->done = p->count;
    }
    return err;
}

/* --- named fields --- */

/* Two edits of one field would be one too many. */
static enum kv_err skip_repeated(struct plan *plan, struct kv_hash_names *n)
{
    uint32_t inline_first[EDITS_INLINE], *first = inline_first;
    if (n->count > EDITS_INLINE)
        first = kv_arena_try_alloc(n->arena, n->count * sizeof(*first));
    if (first == NULL || !kv_hash_first_names(n->names, n->count, 1, first, n->arena))
        return KV_ERR_NOMEM;
    for (size_t i = 0; i < n->count; i++) {
        struct edit *edit = &plan->edits[i];
        if (first[i] == i || edit->what == SKIP)
            continue;
        edit->what = SKIP;
        n->done--;
    }
    measure_again(plan);
    return KV_OK;
}

/* Plans `what` for each field that is there. */
static enum kv_err plan_names(struct plan *plan, struct kv_hash_names *n, enum what what,
                              int64_t due)
{
    for (size_t i = 0; i < n->count; i++) {
        struct edit *edit = &plan->edits[i];
        struct packed_field f;
        kv_needle_init(&edit->name, n->names[i]);
        edit->what = SKIP;
        const uint8_t *at = locate(plan, edit, &f);
        if (at == NULL || due_is_over(f.due, plan->now_ms))
            continue;
        edit->what = what;
        edit->due = due < 0 ? 0 : due;
        edit->insert = what == DROP ? 0 : (uint32_t)number_bytes(edit->due);
        edit->tail_at = what == DROP ? edit->at : (uint32_t)(kv_packed_next(f.value) - plan->list);
        measure(plan, edit);
        n->done++;
    }
    return KV_LIKELY(plan->ascending) ? KV_OK : skip_repeated(plan, n);
}

enum kv_err kv_hash_packed_delete(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                  struct kv_hash_names *n)
{
    struct edit room[EDITS_INLINE];
    struct plan plan;
    if (!plan_init(&plan, v, *e, KV_NOT_DUE, n->arena) ||
        !plan_room(&plan, n->count, room, n->arena))
        return KV_ERR_NOMEM;
    enum kv_err err = plan_names(&plan, n, DROP, KV_NOT_DUE);
    if (err == KV_OK && n->done != 0 && plan.dropped == kv_packed_count(plan.list) / plan.stride) {
        kv_store_delete(v, k, *e);
        *e = NULL;
        return KV_OK;
    }
    if (err == KV_OK && n->done != 0)
        err = carry_out(v, k, e, &plan);
    if (err != KV_OK)
        n->done = 0;
    return err;
}

enum kv_err kv_hash_packed_set_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                   struct kv_hash_names *n, int64_t due)
{
    struct edit room[EDITS_INLINE];
    struct plan plan;
    if (due < 0 && kv_entry_encoding(*e) == KV_ENC_LISTPACK)
        return KV_OK;
    if (!plan_init(&plan, v, *e, due, n->arena) || !plan_room(&plan, n->count, room, n->arena))
        return KV_ERR_NOMEM;
    enum kv_err err = plan_names(&plan, n, DUE, due);
    if (err == KV_OK && n->done != 0)
        err = carry_out(v, k, e, &plan);
    if (err != KV_OK)
        n->done = 0;
    return err;
}
