/* Sets: looking members up, walking over them, choosing at random. set_change.c changes them.
 *
 * The forms are drawn in set.h. Each function here is a switch over them: a binary search, a
 * comparison with every member of a packed list, or a look-up in a hash table.
 *
 * Batches are how commands over several sets work. Of 32 members the hashes are worked out once,
 * whatever the number of sets, since all large collections of a store hash with one key. Then each
 * set's buckets are prefetched for all of them, then the elements, and only then it is compared: a
 * look-up of a member that is in no cache would wait for memory twice.
 *
 * Due members are skipped everywhere. kv_set_purge leaves some behind only when very many were due
 * at once or when the view keeps them; only then counting and choosing walk over the whole set.
 *
 * Invariants: a small set has at least one member; the packed ones name no member twice.
 *
 * Threads: under the lock of the key's shard.
 */
#include "store/set_priv.h"

#define PURGE_LIMIT 256u /* due members removed at once when a set is looked up */
#define SCAN_STEP 1024u  /* members between two looks whether a walk is to end */
#define SPARSE_FACTOR 4u /* choosing fewer than a 4th of the members draws them, else walks */
#define POINTER_MIX UINT64_C(0x9e3779b97f4a7c15)

struct kv_entry *kv_set_purge(struct kv_view *v, const struct kv_key *k, struct kv_entry *e)
{
    if (KV_UNLIKELY(e != NULL && kv_entry_type(e) == KV_TYPE_SET &&
                    kv_entry_may_be_due(e, v->now_ms)))
        kv_store_purge_due(v, k, &e, PURGE_LIMIT);
    return e;
}

/* --- walking --- */

struct walk {
    void (*visit)(struct kv_slice member, void *arg);
    void *arg;
    int64_t now_ms;
};

static void visit_element(struct kv_element *element, void *arg)
{
    const struct walk *w = arg;
    if (!kv_element_is_due(element, w->now_ms))
        w->visit(kv_element_name(element), w->arg);
}

static void walk_intset(const struct kv_entry *e, const struct walk *w)
{
    const uint8_t *numbers = set_intset(e);
    uint32_t count = kv_intset_count(numbers);
    char text[KV_INT_TEXT_MAX];
    for (uint32_t i = 0; i < count; i++)
        w->visit(kv_slice(text, kv_int_print(kv_intset_get(numbers, i), text)), w->arg);
}

static void walk_list(const struct kv_entry *e, const struct walk *w)
{
    struct set_list l = set_list(e);
    char text[KV_INT_TEXT_MAX];
    for (const uint8_t *at = kv_packed_first(l.list); !kv_packed_at_end(at);
         at = kv_packed_skip(at, l.stride)) {
        if (!set_list_is_due(&l, at, w->now_ms))
            w->visit(kv_packed_text(at, text), w->arg);
    }
}

void kv_set_each(const struct kv_entry *e, int64_t now_ms,
                 void (*visit)(struct kv_slice member, void *arg), void *arg)
{
    struct walk w = {visit, arg, now_ms};
    KV_DASSERT(kv_entry_type(e) == KV_TYPE_SET);
    if (kv_entry_encoding(e) == KV_ENC_HASHTABLE)
        kv_dict_each(kv_entry_large(e), visit_element, &w);
    else if (kv_entry_encoding(e) == KV_ENC_INTSET)
        walk_intset(e, &w);
    else
        walk_list(e, &w);
}

uint64_t kv_set_scan(const struct kv_entry *e, int64_t now_ms, uint64_t position, uint64_t count,
                     void (*visit)(struct kv_slice member, void *arg), void *arg)
{
    struct walk w = {visit, arg, now_ms};
    if (kv_entry_encoding(e) != KV_ENC_HASHTABLE) {
        kv_set_each(e, now_ms, visit, arg);
        return 0;
    }
    position = kv_dict_scan(kv_entry_large(e), position, count, visit_element, &w);
    KV_DASSERT(position <= KV_TABLE_POSITION_END);
    return position == KV_TABLE_POSITION_END ? 0 : position;
}

/* --- counting and looking up --- */

static void count_one(struct kv_slice member, void *arg)
{
    (void)member;
    ++*(uint64_t *)arg;
}

uint64_t kv_set_count(const struct kv_entry *e, int64_t now_ms)
{
    KV_DASSERT(kv_entry_type(e) == KV_TYPE_SET);
    if (KV_UNLIKELY(kv_entry_may_be_due(e, now_ms))) {
        uint64_t count = 0;
        kv_set_each(e, now_ms, count_one, &count);
        return count;
    }
    if (kv_entry_encoding(e) == KV_ENC_HASHTABLE)
        return kv_dict_count(kv_entry_large(e));
    if (kv_entry_encoding(e) == KV_ENC_INTSET)
        return kv_intset_count(set_intset(e));
    struct set_list l = set_list(e);
    return kv_packed_count(l.list) / l.stride;
}

static bool list_has(const struct kv_entry *e, struct kv_slice member, int64_t now_ms)
{
    struct set_list l = set_list(e);
    struct kv_needle n;
    kv_needle_init(&n, member);
    const uint8_t *at = kv_packed_find(l.list, kv_packed_first(l.list), &n, l.stride);
    return at != NULL && !set_list_is_due(&l, at, now_ms);
}

bool kv_set_has(const struct kv_entry *e, struct kv_slice member, int64_t now_ms)
{
    KV_DASSERT(kv_entry_type(e) == KV_TYPE_SET);
    if (kv_entry_encoding(e) == KV_ENC_HASHTABLE) {
        const struct kv_dict *d = kv_entry_large(e);
        const struct kv_element *element = kv_dict_find(d, member, kv_dict_hash(d, member));
        return element != NULL && !kv_element_is_due(element, now_ms);
    }
    if (kv_entry_encoding(e) == KV_ENC_INTSET) {
        int64_t number;
        uint32_t index;
        return kv_int_parse(member, &number) && kv_intset_find(set_intset(e), number, &index);
    }
    return list_has(e, member, now_ms);
}

bool kv_set_member_due(const struct kv_entry *e, struct kv_slice member, int64_t now_ms,
                       int64_t *due)
{
    struct kv_needle n;
    *due = KV_NOT_DUE;
    if (kv_entry_encoding(e) == KV_ENC_HASHTABLE) {
        const struct kv_dict *d = kv_entry_large(e);
        const struct kv_element *element = kv_dict_find(d, member, kv_dict_hash(d, member));
        if (element != NULL)
            *due = kv_element_due(element);
        return element != NULL && !kv_element_is_due(element, now_ms);
    }
    if (kv_entry_encoding(e) != KV_ENC_LISTPACKEX)
        return kv_set_has(e, member, now_ms);
    struct set_list l = set_list(e);
    kv_needle_init(&n, member);
    const uint8_t *at = kv_packed_find(l.list, kv_packed_first(l.list), &n, l.stride);
    if (at == NULL || set_list_is_due(&l, at, now_ms))
        return false;
    *due = set_list_due(&l, at);
    return true;
}

/* --- batches --- */

static uint32_t dict_has_batch(const struct kv_dict *d, int64_t now_ms,
                               const struct kv_set_batch *b, uint32_t chosen)
{
    uint32_t found = 0;
    for (uint32_t left = chosen; left != 0; left &= left - 1)
        kv_dict_prefetch_bucket(d, b->hashes[__builtin_ctz(left)]);
    for (uint32_t left = chosen; left != 0; left &= left - 1)
        kv_dict_prefetch_element(d, b->hashes[__builtin_ctz(left)]);
    for (uint32_t left = chosen; left != 0; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctz(left);
        const struct kv_element *element = kv_dict_find(d, b->members[i], b->hashes[i]);
        if (element != NULL && !kv_element_is_due(element, now_ms))
            found |= (uint32_t)1 << i;
    }
    return found;
}

uint32_t kv_set_has_batch(const struct kv_entry *e, int64_t now_ms, struct kv_set_batch *b,
                          const struct kv_hash_key *hash_key, uint32_t chosen)
{
    uint32_t found = 0;
    KV_DASSERT(b->count == KV_SET_BATCH || chosen >> b->count == 0);
    if (kv_entry_encoding(e) == KV_ENC_HASHTABLE) {
        kv_set_batch_hash(b, hash_key);
        return dict_has_batch(kv_entry_large(e), now_ms, b, chosen);
    }
    for (uint32_t left = chosen; left != 0; left &= left - 1) {
        unsigned i = (unsigned)__builtin_ctz(left);
        if (kv_set_has(e, b->members[i], now_ms))
            found |= (uint32_t)1 << i;
    }
    return found;
}

struct batching {
    struct kv_set_batch *b;
    bool (*visit)(struct kv_set_batch *b, void *arg);
    void *arg;
    bool stopped;
    bool stable; /* members' bytes outlast their visit */
};

static void flush_batch(struct batching *g)
{
    if (g->b->count != 0 && !g->stopped)
        g->stopped = !g->visit(g->b, g->arg);
    g->b->count = 0;
    g->b->hashed = false;
}

static void gather_member(struct kv_slice member, void *arg)
{
    struct batching *g = arg;
    struct kv_set_batch *b = g->b;
    if (KV_UNLIKELY(g->stopped))
        return;
    if (!g->stable && member.len <= KV_INT_TEXT_MAX) {
        /* It may be an integer's text in the walk's scratch. */
        memcpy(b->texts[b->count], member.ptr, member.len);
        member.ptr = b->texts[b->count];
    }
    b->members[b->count++] = member;
    if (b->count == KV_SET_BATCH)
        flush_batch(g);
}

void kv_set_each_batch(const struct kv_entry *e, int64_t now_ms, bool may_stop,
                       struct kv_set_batch *b, bool (*visit)(struct kv_set_batch *b, void *arg),
                       void *arg)
{
    struct batching g = {.b = b, .visit = visit, .arg = arg};
    b->count = 0;
    b->hashed = false;
    g.stable = kv_entry_encoding(e) == KV_ENC_HASHTABLE;
    if (may_stop) {
        uint64_t position = 0;
        do {
            position = kv_set_scan(e, now_ms, position, SCAN_STEP, gather_member, &g);
        } while (position != 0 && !g.stopped);
    } else {
        kv_set_each(e, now_ms, gather_member, &g);
    }
    flush_batch(&g);
}

/* --- choosing at random --- */

/* Keeps one of the members seen so far, each as likely. */
struct reservoir {
    struct kv_random *random;
    uint64_t seen;
    struct kv_slice kept;
    char *scratch;
};

static void keep_one(struct kv_slice member, void *arg)
{
    struct reservoir *r = arg;
    if (kv_random_below(r->random, ++r->seen) != 0)
        return;
    if (member.len <= KV_INT_TEXT_MAX) {
        memcpy(r->scratch, member.ptr, member.len);
        member.ptr = r->scratch;
    }
    r->kept = member;
}

struct kv_slice kv_set_random(const struct kv_entry *e, int64_t now_ms, struct kv_random *r,
                              char scratch[KV_INT_TEXT_MAX])
{
    KV_DASSERT(kv_entry_type(e) == KV_TYPE_SET);
    if (KV_UNLIKELY(kv_entry_may_be_due(e, now_ms))) {
        struct reservoir kept = {.random = r, .scratch = scratch};
        kv_set_each(e, now_ms, keep_one, &kept);
        return kept.kept;
    }
    if (kv_entry_encoding(e) == KV_ENC_HASHTABLE)
        return kv_element_name(kv_dict_random(kv_entry_large(e), r));
    uint64_t index = kv_random_below(r, kv_set_count(e, now_ms));
    if (kv_entry_encoding(e) == KV_ENC_INTSET) {
        int64_t number = kv_intset_get(set_intset(e), (uint32_t)index);
        return kv_slice(scratch, kv_int_print(number, scratch));
    }
    struct set_list l = set_list(e);
    return kv_packed_text(kv_packed_seek(l.list, (int64_t)(index * l.stride)), scratch);
}

/* Walks over a set and takes each member with the chance that is left to it. */
struct sampling {
    struct kv_random *random;
    struct kv_arena *arena;
    uint64_t left;   /* members not visited yet */
    uint64_t wanted; /* of them */
    struct kv_slice *chosen;
    size_t count;
    bool copy; /* their bytes: the set is small */
    bool failed;
};

static void sample_one(struct kv_slice member, void *arg)
{
    struct sampling *s = arg;
    if (s->failed || kv_random_below(s->random, s->left--) >= s->wanted)
        return;
    if (s->copy) {
        char *bytes = kv_arena_try_alloc(s->arena, member.len);
        if (bytes == NULL) {
            s->failed = true;
            return;
        }
        memcpy(bytes, member.ptr, member.len);
        member.ptr = bytes;
    }
    s->chosen[s->count++] = member;
    s->wanted--;
}

/* Draws members of a large set until `count` different ones are there. */
static enum kv_err draw(const struct kv_set *set, size_t count, struct kv_random *r,
                        struct kv_slice *chosen)
{
    size_t slots = 4;
    while (slots < count * 2)
        slots *= 2;
    const struct kv_element **seen = kv_arena_try_alloc(set->arena, slots * sizeof(*seen));
    if (seen == NULL)
        return KV_ERR_NOMEM;
    memset(seen, 0, slots * sizeof(*seen));
    for (size_t have = 0; have < count;) {
        const struct kv_element *e = kv_dict_random(kv_entry_large(set->entry), r);
        size_t at = (size_t)(((uintptr_t)e * POINTER_MIX) >> 20) & (slots - 1);
        while (seen[at] != NULL && seen[at] != e)
            at = (at + 1) & (slots - 1);
        if (seen[at] == e)
            continue;
        seen[at] = e;
        chosen[have++] = kv_element_name(e);
    }
    return KV_OK;
}

enum kv_err kv_set_choose(const struct kv_set *set, size_t count, struct kv_random *r,
                          struct kv_slice **chosen, size_t *chosen_count)
{
    const struct kv_entry *e = set->entry;
    uint64_t total = kv_set_count(e, set->view->now_ms);
    count = KV_MIN(count, total);
    *chosen = kv_arena_try_alloc(set->arena, count * sizeof(**chosen));
    *chosen_count = count;
    if (*chosen == NULL)
        return KV_ERR_NOMEM;
    bool large = kv_entry_encoding(e) == KV_ENC_HASHTABLE;
    if (large && count < total / SPARSE_FACTOR && !kv_entry_may_be_due(e, set->view->now_ms))
        return draw(set, count, r, *chosen);
    struct sampling s = {.random = r,
                         .arena = set->arena,
                         .left = total,
                         .wanted = count,
                         .chosen = *chosen,
                         .copy = !large};
    kv_set_each(e, set->view->now_ms, sample_one, &s);
    KV_ASSERT(s.failed || s.count == count);
    return s.failed ? KV_ERR_NOMEM : KV_OK;
}

/* --- checking --- */

void kv_set_check(const struct kv_entry *e)
{
    size_t len;
    KV_ASSERT(kv_entry_type(e) == KV_TYPE_SET);
    if (kv_entry_encoding(e) == KV_ENC_INTSET) {
        const uint8_t *bytes = kv_entry_bytes(e, &len);
        KV_ASSERT(kv_intset_valid(bytes, len));
        return;
    }
    if (kv_entry_encoding(e) == KV_ENC_HASHTABLE)
        return; /* kv_dict_check has looked at it */
    struct set_list l = set_list(e);
    KV_ASSERT(kv_packed_count(l.list) % l.stride == 0);
    for (const uint8_t *at = kv_packed_first(l.list); !kv_packed_at_end(at);
         at = kv_packed_skip(at, l.stride)) {
        struct kv_needle n;
        char text[KV_INT_TEXT_MAX];
        kv_needle_init(&n, kv_packed_text(at, text));
        KV_ASSERT(kv_packed_find(l.list, at, &n, l.stride) == at);
        const uint8_t *next = kv_packed_skip(at, l.stride);
        const uint8_t *again = kv_packed_find(l.list, next, &n, l.stride);
        KV_ASSERT(again == at);
    }
}
