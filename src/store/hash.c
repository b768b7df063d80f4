/* Hashes: looking at them in either form, changing large ones, and what becomes large. The bytes of
 * packed ones are changed in hash_packed.c.
 *
 * A look-up in a packed hash begins behind the field that was found last and wraps: who asks for 15
 * fields in the order in which they lie compares 15 times. A large hash is asked by hash value.
 *
 * What is due but still there is hidden here, once for all commands: h->may_hide is false for
 * nearly every hash, and then nothing is compared.
 *
 * A series of fields of a large hash takes effect one by one: keeping the old values of all until
 * the last has got its memory would cost every HSET a second copy. The caller learns how far it
 * came. A packed hash, and the step from packed to large, changes as a whole or not at all.
 *
 * Threads: under the lock of the key's shard.
 */
#include "base/random.h"
#include "store/hash_priv.h"
#include "store/store_priv.h"

#define RANDOM_TRIES 64 /* draws before a large hash with due fields is walked instead */
#define AHEAD 8u        /* fields of a large hash that are asked for in advance */

/* --- looking --- */

void kv_hash_open(struct kv_hash *h, const struct kv_view *v, const struct kv_entry *e)
{
    *h = (struct kv_hash){.now_ms = v->now_ms, .stride = 2};
    if (e == NULL)
        return;
    KV_DASSERT(kv_entry_type(e) == KV_TYPE_HASH);
    h->may_hide = kv_entry_may_be_due(e, v->now_ms);
    if (kv_entry_is_large(e)) {
        h->dict = kv_entry_large(e);
        return;
    }
    size_t head;
    h->list = packed_list_of(e, &head);
    h->at = kv_packed_first(h->list);
    h->stride = head == 0 ? 2 : 3;
}

static bool find_packed(struct kv_hash *h, struct kv_slice name, struct kv_hash_field *out)
{
    struct kv_needle n;
    struct packed_field f;
    kv_needle_init(&n, name);
    const uint8_t *at = kv_packed_find(h->list, h->at, &n, h->stride);
    out->hidden = false;
    if (at == NULL) {
        h->hint = KV_HASH_ABSENT;
        return false;
    }
    packed_field_at(at, h->stride, &f);
    h->hint = (size_t)(at - h->list);
    h->at = f.next;
    out->value = kv_packed_text(f.value, out->scratch);
    out->due = f.due;
    out->hidden = due_is_over(f.due, h->now_ms);
    return !out->hidden;
}

bool kv_hash_find(struct kv_hash *h, struct kv_slice name, struct kv_hash_field *out)
{
    if (KV_LIKELY(h->list != NULL))
        return find_packed(h, name, out);
    out->hidden = false;
    if (h->dict == NULL)
        return false;
    const struct kv_element *e = kv_dict_find(h->dict, name, kv_dict_hash(h->dict, name));
    if (e == NULL)
        return false;
    out->value = kv_element_value(e);
    out->due = kv_element_due(e);
    out->hidden = due_is_over(out->due, h->now_ms);
    return !out->hidden;
}

void kv_hash_prefetch(const struct kv_hash *h, struct kv_slice name)
{
    if (h->dict != NULL)
        kv_dict_prefetch_bucket(h->dict, kv_dict_hash(h->dict, name));
}

static void count_member(const struct kv_member *m, void *arg)
{
    (void)m;
    ++*(uint64_t *)arg;
}

uint64_t kv_hash_count(const struct kv_hash *h)
{
    uint64_t count = 0;
    if (KV_UNLIKELY(h->may_hide))
        kv_hash_each(h, count_member, &count);
    else if (h->list != NULL)
        count = kv_packed_count(h->list) / h->stride;
    else if (h->dict != NULL)
        count = kv_dict_count(h->dict);
    return count;
}

static void each_packed(const struct kv_hash *h,
                        void (*visit)(const struct kv_member *m, void *arg), void *arg)
{
    char name[KV_INT_TEXT_MAX], value[KV_INT_TEXT_MAX];
    struct packed_field f;
    for (const uint8_t *at = kv_packed_first(h->list); !kv_packed_at_end(at); at = f.next) {
        packed_field_at(at, h->stride, &f);
        if (due_is_over(f.due, h->now_ms))
            continue;
        struct kv_member m = {kv_packed_text(at, name), kv_packed_text(f.value, value), f.due};
        visit(&m, arg);
    }
}

struct element_visit {
    void (*visit)(const struct kv_member *m, void *arg);
    void *arg;
    int64_t now_ms;
};

static struct kv_member member_of(const struct kv_element *e)
{
    struct kv_element_parts parts = kv_element_parts(e);
    return (struct kv_member){parts.name, parts.value, kv_element_due(e)};
}

static void visit_element(struct kv_element *e, void *arg)
{
    const struct element_visit *v = arg;
    struct kv_member m = member_of(e);
    if (!due_is_over(m.due, v->now_ms))
        v->visit(&m, v->arg);
}

void kv_hash_each(const struct kv_hash *h, void (*visit)(const struct kv_member *m, void *arg),
                  void *arg)
{
    struct element_visit v = {visit, arg, h->now_ms};
    if (h->list != NULL)
        each_packed(h, visit, arg);
    else if (h->dict != NULL)
        kv_dict_each(h->dict, visit_element, &v);
}

uint64_t kv_hash_scan(const struct kv_hash *h, uint64_t position, uint64_t count,
                      void (*visit)(const struct kv_member *m, void *arg), void *arg)
{
    struct element_visit v = {visit, arg, h->now_ms};
    if (h->dict != NULL)
        return position >= KV_TABLE_POSITION_END
                   ? KV_TABLE_POSITION_END
                   : kv_dict_scan(h->dict, position, count, visit_element, &v);
    kv_hash_each(h, visit, arg);
    return KV_TABLE_POSITION_END;
}

/* --- a random field --- */

/* The visible field number `index` of a packed hash. */
static void packed_nth(const struct kv_hash *h, uint64_t index, struct kv_member *out,
                       char scratch[2][KV_INT_TEXT_MAX])
{
    struct packed_field f;
    const uint8_t *at = kv_packed_first(h->list);
    for (;; at = f.next) {
        KV_ASSERT(!kv_packed_at_end(at));
        packed_field_at(at, h->stride, &f);
        if (!due_is_over(f.due, h->now_ms) && index-- == 0)
            break;
    }
    out->name = kv_packed_text(at, scratch[0]);
    out->value = kv_packed_text(f.value, scratch[1]);
    out->due = f.due;
}

struct nth {
    uint64_t index;
    struct kv_member *out;
};

static void take_nth(const struct kv_member *m, void *arg)
{
    struct nth *n = arg;
    if (n->index-- == 0)
        *n->out = *m;
}

bool kv_hash_random(const struct kv_hash *h, struct kv_random *r, struct kv_member *out,
                    char scratch[2][KV_INT_TEXT_MAX])
{
    for (int i = 0; h->dict != NULL && i < RANDOM_TRIES; i++) {
        const struct kv_element *e = kv_dict_random(h->dict, r);
        if (e == NULL)
            return false;
        if (!kv_element_is_due(e, h->now_ms)) {
            *out = member_of(e);
            return true;
        }
    }
    uint64_t count = kv_hash_count(h);
    if (count == 0)
        return false;
    struct nth n = {kv_random_below(r, count), out};
    if (h->list != NULL)
        packed_nth(h, n.index, out, scratch);
    else
        kv_hash_each(h, take_nth, &n);
    return true;
}

/* --- changing large ones --- */

/* Gives one field its value. */
static enum kv_err set_one(struct kv_view *v, struct kv_dict *d, struct kv_slice name,
                           const struct kv_slice *value, int64_t due, uint64_t *created)
{
    uint64_t hash = kv_dict_hash(d, name);
    struct kv_element *e = kv_dict_find(d, name, hash);
    enum kv_err err;
    large_keep_member(v, d->guard, name, hash);
    if (e == NULL) {
        err = kv_dict_add(d, name, hash, value, due == KV_HASH_KEEP_DUE ? KV_NOT_DUE : due);
        *created += err == KV_OK;
        return err;
    }
    bool hidden = kv_element_is_due(e, v->now_ms);
    if (due == KV_HASH_KEEP_DUE)
        due = hidden ? KV_NOT_DUE : kv_element_due(e);
    err = kv_dict_set(d, e, hash, value, due);
    *created += err == KV_OK && hidden;
    return err;
}

static enum kv_err set_pairs(struct kv_view *v, struct kv_dict *d, struct kv_hash_pairs *p)
{
    for (size_t i = 0; i < p->count; i++) {
        if (i + AHEAD < p->count) {
            struct kv_slice ahead = p->words[2 * (i + AHEAD)];
            kv_dict_prefetch_bucket(d, kv_dict_hash(d, ahead));
        }
        enum kv_err err = set_one(v, d, p->words[2 * i], &p->words[2 * i + 1], p->due, &p->created);
        if (err != KV_OK)
            return err;
        p->done = i + 1;
    }
    return KV_OK;
}

static enum kv_err set_large(struct kv_view *v, const struct kv_key *k, struct kv_entry *e,
                             struct kv_hash_pairs *p)
{
    if (p->due >= 0) {
        enum kv_err err = kv_store_register_due(v, k, e, p->due);
        if (err != KV_OK)
            return err;
    }
    struct kv_footprint before = kv_store_members_begin(e);
    enum kv_err err = set_pairs(v, kv_entry_large(e), p);
    kv_store_large_end(v, k, e, before);
    return err;
}

struct filling {
    struct kv_dict *d;
    enum kv_err err;
};

static void add_member(const struct kv_member *m, void *arg)
{
    struct filling *f = arg;
    if (f->err == KV_OK)
        f->err = kv_dict_add(f->d, m->name, kv_dict_hash(f->d, m->name), &m->value, m->due);
}

/* Builds the large form of what there is (e NULL: nothing) with the pairs, and puts it in place. */
static enum kv_err become_large(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                struct kv_hash_pairs *p)
{
    struct filling f = {kv_dict_create(kv_store_hash_key(v->store)), KV_OK};
    struct kv_dict *d = f.d;
    if (d == NULL)
        return KV_ERR_NOMEM;
    if (*e != NULL) {
        d->registered_due = kv_entry_member_due(*e);
        kv_entry_each_member(*e, add_member, &f);
    }
    if (p->due >= 0 && (d->registered_due == KV_NOT_DUE || p->due < d->registered_due))
        d->registered_due = p->due;
    enum kv_err err = f.err == KV_OK ? set_pairs(v, d, p) : f.err;
    if (err == KV_OK)
        err = kv_store_put_large(v, k, e, KV_TYPE_HASH, KV_ENC_HASHTABLE, d, KV_KEEP_EXPIRY);
    if (err != KV_OK) {
        kv_dict_free(d);
        p->created = 0;
        p->done = 0;
    }
    return err;
}

enum kv_err kv_hash_set(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                        struct kv_hash_pairs *p)
{
    KV_DASSERT(p->count >= 1 && p->due >= KV_HASH_KEEP_DUE && p->due <= KV_EXPIRY_MAX);
    p->created = 0;
    p->done = 0;
    if (*e != NULL && kv_entry_is_large(*e))
        return set_large(v, k, *e, p);
    enum kv_err err =
        *e == NULL ? kv_hash_packed_create(v, k, e, p) : kv_hash_packed_set(v, k, e, p);
    if (KV_UNLIKELY(err == KV_ERR_LIMIT))
        err = become_large(v, k, e, p);
    return err;
}

static void delete_large(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                         struct kv_hash_names *n)
{
    struct kv_dict *d = kv_entry_large(*e);
    struct kv_footprint before = kv_store_members_begin(*e);
    for (size_t i = 0; i < n->count; i++) {
        uint64_t hash = kv_dict_hash(d, n->names[i]);
        struct kv_element *element = kv_dict_find(d, n->names[i], hash);
        if (element == NULL || kv_element_is_due(element, v->now_ms))
            continue;
        large_keep_member(v, d->guard, n->names[i], hash);
        kv_dict_remove(d, element, hash);
        n->done++;
    }
    kv_store_large_end(v, k, *e, before);
    if (kv_dict_count(d) == 0) {
        kv_store_delete(v, k, *e);
        *e = NULL;
    }
}

enum kv_err kv_hash_delete(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                           struct kv_hash_names *n)
{
    n->done = 0;
    if (!kv_entry_is_large(*e))
        return kv_hash_packed_delete(v, k, e, n);
    delete_large(v, k, e, n);
    return KV_OK;
}

static enum kv_err set_due_large(struct kv_view *v, const struct kv_key *k, struct kv_entry *e,
                                 struct kv_hash_names *n, int64_t due)
{
    struct kv_dict *d = kv_entry_large(e);
    enum kv_err err = due >= 0 ? kv_store_register_due(v, k, e, due) : KV_OK;
    struct kv_footprint before = kv_store_members_begin(e);
    for (size_t i = 0; err == KV_OK && i < n->count; i++) {
        uint64_t hash = kv_dict_hash(d, n->names[i]);
        struct kv_element *element = kv_dict_find(d, n->names[i], hash);
        if (element == NULL || kv_element_is_due(element, v->now_ms))
            continue;
        struct kv_slice value = kv_element_value(element);
        large_keep_member(v, d->guard, n->names[i], hash);
        err = kv_dict_set(d, element, hash, &value, due);
        n->done += err == KV_OK;
    }
    kv_store_large_end(v, k, e, before);
    return err;
}

enum kv_err kv_hash_set_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                            struct kv_hash_names *n, int64_t due)
{
    KV_DASSERT(due == KV_NOT_DUE || (due > v->now_ms && due <= KV_EXPIRY_MAX));
    n->done = 0;
    enum kv_err err = kv_entry_is_large(*e) ? set_due_large(v, k, *e, n, due)
                                            : kv_hash_packed_set_due(v, k, e, n, due);
    if (due == KV_NOT_DUE && kv_entry_member_due(*e) != KV_NOT_DUE)
        kv_store_refresh_due(v, k, *e);
    return err;
}

/* --- names in a command --- */

#define NAMES_INLINE 32u /* names whose index lies on the stack */

/* Length and both ends tell most names apart; who chooses names that all collide gets the cost of
 * comparing each with each. */
static uint32_t name_signature(struct kv_slice name)
{
    uint64_t first = 0, last = 0;
    size_t n = KV_MIN(name.len, sizeof(first));
    if (n != 0) {
        memcpy(&first, name.ptr, n);
        memcpy(&last, name.ptr + name.len - n, n);
    }
    uint64_t mixed = (first + name.len) * UINT64_C(0x9e3779b97f4a7c15);
    mixed = (mixed ^ mixed >> 29 ^ last) * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint32_t)(mixed >> 32);
}

bool kv_hash_first_names(const struct kv_slice *words, size_t count, size_t step, uint32_t *first,
                         struct kv_arena *arena)
{
    uint32_t inline_slots[2 * NAMES_INLINE], *slots = inline_slots;
    size_t slot_count = 2 * NAMES_INLINE;
    KV_DASSERT(count < UINT32_MAX / 4);
    while (slot_count < 2 * count)
        slot_count *= 2;
    if (slot_count > 2 * NAMES_INLINE) {
        slots = kv_arena_try_alloc(arena, slot_count * sizeof(*slots));
        if (slots == NULL)
            return false;
    }
    memset(slots, 0, slot_count * sizeof(*slots));
    for (size_t i = 0; i < count; i++) {
        struct kv_slice name = words[i * step];
        size_t at = name_signature(name) & (slot_count - 1);
        while (slots[at] != 0 && !kv_slice_equal(words[(slots[at] - 1) * step], name))
            at = (at + 1) & (slot_count - 1);
        if (slots[at] == 0)
            slots[at] = (uint32_t)i + 1;
        first[i] = slots[at] - 1;
    }
    return true;
}

/* --- checking --- */

static void check_packed(const struct kv_entry *e)
{
    size_t head;
    struct packed_field f, other;
    const uint8_t *list = packed_list_of(e, &head);
    uint32_t stride = head == 0 ? 2 : 3;
    int64_t record = kv_entry_member_due(e);
    KV_ASSERT(kv_packed_count(list) % stride == 0);
    for (const uint8_t *at = kv_packed_first(list); !kv_packed_at_end(at); at = f.next) {
        packed_field_at(at, stride, &f);
        if (f.due != KV_NOT_DUE)
            KV_ASSERT(record != KV_NOT_DUE && record <= f.due);
        size_t bytes = (size_t)(f.value - at);
        for (const uint8_t *p = f.next; !kv_packed_at_end(p); p = other.next) {
            packed_field_at(p, stride, &other);
            KV_ASSERT((size_t)(other.value - p) != bytes || memcmp(p, at, bytes) != 0);
        }
    }
}

void kv_hash_check(const struct kv_entry *e)
{
    KV_ASSERT(kv_entry_type(e) == KV_TYPE_HASH);
    if (!kv_entry_is_large(e)) {
        check_packed(e);
        return;
    }
    const struct kv_dict *d = kv_entry_large(e);
    int64_t due = kv_dict_first_due(d);
    kv_dict_check(d);
    if (due != KV_NOT_DUE)
        KV_ASSERT(d->registered_due != KV_NOT_DUE && d->registered_due <= due);
}
