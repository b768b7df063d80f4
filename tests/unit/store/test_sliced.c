/* store/sliced.h: what the hooks are given of a large collection is what it was at the moment,
 * whatever is done to it between the slices: members changed in every way, tables that grow and
 * shrink, keys that are renamed, overwritten and deleted. */
#include "fixture.h"
#include "mem/arena.h"
#include "store/hash.h"
#include "store/list.h"
#include "store/set.h"
#include "store/sliced.h"
#include "store/zset.h"
#include <stdlib.h>

#define KEYS 12u
#define NAMES 4000u
#define RECORDS 256u

static struct kv_arena arena;

/* What a value is: members summed up in any order; items of a list one behind the other. */
struct image {
    bool there;
    enum kv_type type;
    int64_t expiry;
    uint64_t count, sum;
    uint8_t *items; /* of a list */
    size_t len, capacity;
};

/* A value that is saved in slices. */
struct record {
    struct kv_sliced sliced;
    struct image image, ends[512];
    unsigned end_count, key;
    bool released;
};

static struct image moment[KEYS], saved[KEYS];
static struct record *records[RECORDS];
static unsigned record_count, whole_count;
static size_t grown_bytes;

static void image_clear(struct image *i)
{
    free(i->items);
    *i = (struct image){0};
}

static void image_append(struct image *i, struct kv_slice text)
{
    if (i->len + text.len + 4 > i->capacity) {
        i->capacity = 2 * (i->len + text.len + 4);
        i->items = realloc(i->items, i->capacity);
    }
    uint32_t len = (uint32_t)text.len;
    memcpy(i->items + i->len, &len, sizeof(len));
    memcpy(i->items + i->len + sizeof(len), text.ptr, text.len);
    i->len += text.len + sizeof(len);
    i->count++;
}

static void image_member(struct image *i, const struct kv_member *m)
{
    static const struct kv_hash_key keys[2] = {{3, 4}, {5, 6}};
    uint64_t parts[3] = {kv_hash_bytes(&keys[0], m->name.ptr, m->name.len),
                         kv_hash_bytes(&keys[1], m->value.ptr, m->value.len), (uint64_t)m->due};
    i->sum += kv_hash_bytes(&keys[0], parts, sizeof(parts));
    i->count++;
}

static void visit_member(const struct kv_member *m, void *arg)
{
    struct image *i = arg;
    if (i->type == KV_TYPE_LIST)
        image_append(i, m->name);
    else
        image_member(i, m);
}

static struct image image_of(const struct kv_entry *e)
{
    struct image i = {.there = true, .type = kv_entry_type(e), .expiry = kv_entry_expiry(e)};
    char scratch[KV_INT_TEXT_MAX];
    if (i.type == KV_TYPE_STRING)
        image_append(&i, kv_entry_string(e, scratch));
    else
        kv_entry_each_member(e, visit_member, &i);
    return i;
}

static void assert_same_image(const struct image *a, const struct image *b)
{
    ck_assert_int_eq(a->there, b->there);
    ck_assert_int_eq(a->type, b->type);
    ck_assert_int_eq(a->expiry, b->expiry);
    ck_assert_uint_eq(a->count, b->count);
    ck_assert_uint_eq(a->sum, b->sum);
    ck_assert_uint_eq(a->len, b->len);
    if (a->len != 0)
        ck_assert_int_eq(memcmp(a->items, b->items, a->len), 0);
}

/* --- hooks --- */

static unsigned key_number(const struct kv_entry *e)
{
    struct kv_slice key = kv_entry_key(e);
    int64_t number = -1;
    ck_assert(kv_int_parse(kv_slice(key.ptr + 4, key.len - 4), &number));
    return (unsigned)number;
}

static const struct kv_snapshot_hooks hooks;

static void save(struct kv_view *v, uint32_t db, const struct kv_entry *e)
{
    unsigned key = key_number(e);
    (void)v;
    ck_assert_uint_eq(db, 0);
    ck_assert(!saved[key].there);
    saved[key] = image_of(e);
    whole_count++;
}

static bool slice(struct kv_view *v, uint32_t db, const struct kv_entry *e, uint32_t shard)
{
    struct record *r = calloc(1, sizeof(*r));
    ck_assert_uint_eq(db, 0);
    ck_assert_uint_lt(record_count, RECORDS);
    r->key = key_number(e);
    ck_assert(!saved[r->key].there);
    saved[r->key].there = true;
    r->image =
        (struct image){.there = true, .type = kv_entry_type(e), .expiry = kv_entry_expiry(e)};
    kv_sliced_open(&r->sliced, &hooks, v, e, shard);
    records[record_count++] = r;
    return true;
}

static void append_node(struct image *i, const uint8_t *list)
{
    char scratch[KV_INT_TEXT_MAX];
    for (const uint8_t *at = kv_packed_first(list); !kv_packed_at_end(at); at = kv_packed_next(at))
        image_append(i, kv_packed_text(at, scratch));
}

static void item(struct kv_view *v, struct kv_sliced *s, const struct kv_sliced_item *i)
{
    struct record *r = (struct record *)s;
    char text[KV_DOUBLE_TEXT_MAX];
    (void)v;
    ck_assert(!s->done);
    if (r->image.type != KV_TYPE_LIST) {
        struct kv_member m = {i->name, i->value, i->due};
        if (r->image.type == KV_TYPE_ZSET)
            m.value = kv_score_text(i->score, text);
        image_member(&r->image, &m);
        return;
    }
    ck_assert_uint_lt(r->end_count, KV_ARRAY_LEN(r->ends));
    append_node(i->from_end ? &r->ends[r->end_count++] : &r->image, (const uint8_t *)i->name.ptr);
}

static void grown(struct kv_view *v, struct kv_sliced *s, size_t bytes)
{
    (void)v;
    (void)s;
    grown_bytes += bytes;
}

static void fail_hook(struct kv_view *v)
{
    (void)v;
    ck_abort_msg("memory was not short");
}

static const struct kv_snapshot_hooks hooks = {save, slice, item, grown, fail_hook};

/* --- changes --- */

static struct kv_key number_key(unsigned i)
{
    static char text[2][32];
    static unsigned turn;
    char *to = text[++turn % 2]; /* two keys at a time */
    int len = sprintf(to, "key:%u", i);
    return kv_store_key(store, kv_slice(to, (size_t)len));
}

static struct kv_slice random_text(struct kv_random *r, const char *prefix, uint64_t below)
{
    char text[128];
    int len = sprintf(text, "%s:%llu", prefix, (unsigned long long)kv_random_below(r, below));
    char *copy = kv_arena_try_alloc(&arena, (size_t)len);
    memcpy(copy, text, (size_t)len);
    return kv_slice(copy, (size_t)len);
}

static struct kv_slice random_name(struct kv_random *r)
{
    return random_text(r, "a member of some length", NAMES);
}

/* Mostly few, at times enough for tables to grow and shrink. */
static size_t random_count(struct kv_random *r)
{
    return 1 + (size_t)kv_random_below(r, kv_random_below(r, 10) == 0 ? 800 : 4);
}

static struct kv_slice *random_names(struct kv_random *r, size_t count)
{
    struct kv_slice *names = kv_arena_try_alloc(&arena, count * sizeof(*names));
    for (size_t i = 0; i < count; i++)
        names[i] = random_name(r);
    return names;
}

static int64_t random_due(struct kv_random *r)
{
    return kv_random_below(r, 3) == 0 ? KV_NOT_DUE
                                      : view.now_ms + 10 + (int64_t)kv_random_below(r, 500);
}

static void change_hash(struct kv_random *r, const struct kv_key *k, struct kv_entry *e)
{
    size_t count = random_count(r);
    struct kv_hash_names n = {random_names(r, count), count, &arena, 0};
    uint64_t kind = kv_random_below(r, 4);
    if (e != NULL && kind == 0) {
        ck_assert_int_eq(kv_hash_delete(&view, k, &e, &n), KV_OK);
        return;
    }
    if (e != NULL && kind == 1) {
        ck_assert_int_eq(kv_hash_set_due(&view, k, &e, &n, random_due(r)), KV_OK);
        return;
    }
    struct kv_slice *words = kv_arena_try_alloc(&arena, 2 * count * sizeof(*words));
    for (size_t i = 0; i < count; i++) {
        words[2 * i] = n.names[i];
        words[2 * i + 1] = random_text(r, "value", UINT64_MAX);
    }
    struct kv_hash_pairs p = {.words = words,
                              .count = count,
                              .due = kind == 2 ? KV_HASH_KEEP_DUE : KV_NOT_DUE,
                              .arena = &arena};
    ck_assert_int_eq(kv_hash_set(&view, k, &e, &p), KV_OK);
}

static void change_set(struct kv_random *r, const struct kv_key *k, struct kv_entry *e)
{
    size_t count = random_count(r);
    struct kv_slice *names = random_names(r, count);
    uint64_t done;
    struct kv_set s = {&view, k, kv_set_purge(&view, k, e), &arena};
    uint64_t kind = kv_random_below(r, 4);
    if (s.entry != NULL && kind == 0) {
        ck_assert_int_eq(kv_set_remove(&s, names, count, &done), KV_OK);
    } else if (s.entry != NULL && kind == 1) {
        if (kv_set_has(s.entry, names[0], view.now_ms))
            ck_assert_int_eq(kv_set_set_due(&s, names[0], random_due(r)), KV_OK);
    } else {
        ck_assert_int_eq(kv_set_add(&s, names, count, &done), KV_OK);
    }
}

static void change_zset(struct kv_random *r, const struct kv_key *k, struct kv_entry *e)
{
    size_t count = random_count(r);
    struct kv_slice *names = random_names(r, count);
    struct kv_zadd_result result;
    struct kv_ranking ranking;
    uint64_t removed, kind = kv_random_below(r, 6);
    bool found;
    ck_assert_int_eq(kv_ranking_open(&view, k, &e, &arena, &ranking), KV_OK);
    uint64_t have = kv_ranking_count(&ranking);
    if (e != NULL && kind == 0) {
        ck_assert_int_eq(kv_store_zset_remove(&view, k, &e, names, count, &arena, &removed), KV_OK);
    } else if (e != NULL && kind == 1) {
        uint64_t first = kv_random_below(r, have);
        struct kv_span span = {first, KV_MIN((uint64_t)count, have - first)};
        ck_assert_int_eq(kv_store_zset_remove_span(&view, k, &e, span), KV_OK);
    } else if (e != NULL && kind == 2) {
        ck_assert_int_eq(
            kv_store_zset_set_due(&view, k, &e, names[0], random_due(r), &arena, &found), KV_OK);
    } else {
        struct kv_zset_pair *pairs = kv_arena_try_alloc(&arena, count * sizeof(*pairs));
        for (size_t i = 0; i < count; i++)
            pairs[i] = (struct kv_zset_pair){names[i], (double)kv_random_below(r, 50)};
        uint32_t flags = count == 1 && kind == 3 ? KV_ZADD_INCR : 0;
        ck_assert_int_eq(kv_store_zset_add(&view, k, &e, pairs, count, flags, &arena, &result),
                         KV_OK);
    }
}

static void change_list(struct kv_random *r, const struct kv_key *k, struct kv_entry *e)
{
    size_t count = random_count(r);
    struct kv_slice *items = random_names(r, count);
    enum kv_list_end end = kv_random_below(r, 2) ? KV_LIST_HEAD : KV_LIST_TAIL, other = end;
    uint64_t have = kv_store_list_count(e), kind = kv_random_below(r, 60), removed;
    if (kv_random_below(r, 4) != 0)
        other = end == KV_LIST_HEAD ? KV_LIST_TAIL : KV_LIST_HEAD;
    if (e == NULL || have < 100 || kind < 30) {
        ck_assert_int_eq(kv_store_list_push(&view, k, &e, end, items, count), KV_OK);
    } else if (kind < 50) {
        ck_assert_int_eq(kv_store_list_drop(&view, k, &e, end, count), KV_OK);
    } else if (kind < 55) {
        uint64_t some = KV_MIN(have, (uint64_t)count);
        struct kv_slice *texts = kv_store_list_copy_out(e, end, some, &arena);
        ck_assert_int_eq(kv_store_list_turn(&view, k, &e, end, other, texts, some), KV_OK);
    } else if (kind == 55) {
        ck_assert_int_eq(kv_store_list_insert(&view, k, &e, kv_random_below(r, have),
                                              kv_random_below(r, 2), items[0]),
                         KV_OK);
    } else if (kind == 56) {
        ck_assert_int_eq(
            kv_store_list_replace(&view, k, &e, (int64_t)kv_random_below(r, have), items[0]),
            KV_OK);
    } else if (kind == 57) {
        ck_assert_int_eq(kv_store_list_remove(&view, k, &e, end, 1, items[0], &arena, &removed),
                         KV_OK);
    } else {
        uint64_t first = kv_random_below(r, have / 8);
        ck_assert_int_eq(kv_store_list_trim(&view, k, &e, first,
                                            have - first - kv_random_below(r, have / 8), &arena),
                         KV_OK);
    }
}

/* Something happens to the key as a whole. */
static void change_key(struct kv_random *r, const struct kv_key *k, struct kv_entry *e)
{
    struct kv_key other = number_key((unsigned)kv_random_below(r, KEYS));
    uint64_t kind = kv_random_below(r, 7);
    bool more;
    if (kind == 0) {
        kv_store_delete(&view, k, e);
    } else if (kind == 1) {
        ck_assert_int_eq(kv_store_move(&view, k, e, 0, &other), KV_OK);
    } else if (kind == 2) {
        ck_assert_int_eq(kv_store_copy(&view, e, 0, &other), KV_OK);
    } else if (kind == 3) {
        ck_assert_int_eq(kv_store_set(&view, k, KV_SLICE("text"), KV_NO_EXPIRY, NULL), KV_OK);
    } else if (kind == 4) {
        int64_t expiry = kv_random_below(r, 2) == 0 ? KV_NO_EXPIRY : view.now_ms + 300;
        ck_assert_int_eq(kv_store_set_expiry(&view, k, &e, expiry), KV_OK);
    } else {
        view.now_ms += 2;
        for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++)
            (void)kv_store_expire_shard(&view, shard, UINT64_MAX, &more);
    }
}

/* The keys have types of their own, until they are overwritten. */
static void change(struct kv_random *r, bool keys_too)
{
    unsigned number = (unsigned)kv_random_below(r, KEYS);
    struct kv_key k = number_key(number);
    struct kv_entry *e = kv_store_write(&view, &k);
    enum kv_type type = e != NULL ? kv_entry_type(e) : (enum kv_type)(KV_TYPE_LIST + number % 4);
    kv_arena_reset(&arena);
    if (e != NULL && (type == KV_TYPE_STRING || (keys_too && kv_random_below(r, 40) == 0)))
        change_key(r, &k, e);
    else if (type == KV_TYPE_HASH)
        change_hash(r, &k, e);
    else if (type == KV_TYPE_SET)
        change_set(r, &k, e);
    else if (type == KV_TYPE_ZSET)
        change_zset(r, &k, e);
    else
        change_list(r, &k, e);
}

static void fill(struct kv_random *r)
{
    for (unsigned i = 0; i < KEYS; i++) {
        struct kv_key k = number_key(i);
        struct kv_entry *e;
        while ((e = kv_store_peek(&view, &k)) == NULL || !kv_entry_is_large(e) ||
               kv_entry_memory(e) < KV_SLICED_BYTES * 2) {
            kv_arena_reset(&arena);
            if (e != NULL && kv_entry_type(e) == KV_TYPE_STRING)
                kv_store_delete(&view, &k, e);
            else if (e != NULL ? kv_entry_type(e) == KV_TYPE_HASH : i % 4 == 3)
                change_hash(r, &k, e);
            else if (e != NULL ? kv_entry_type(e) == KV_TYPE_SET : i % 4 == 1)
                change_set(r, &k, e);
            else if (e != NULL ? kv_entry_type(e) == KV_TYPE_ZSET : i % 4 == 2)
                change_zset(r, &k, e);
            else
                change_list(r, &k, e);
        }
    }
}

/* --- snapshots --- */

static void begin(void)
{
    for (unsigned i = 0; i < KEYS; i++) {
        struct kv_key k = number_key(i);
        struct kv_entry *e = kv_store_peek(&view, &k);
        image_clear(&moment[i]);
        image_clear(&saved[i]);
        if (e != NULL)
            moment[i] = image_of(e);
    }
    kv_store_snapshot_begin(store, &hooks);
}

static void release_record(struct record *r)
{
    image_clear(&r->image);
    for (unsigned i = 0; i < r->end_count; i++)
        image_clear(&r->ends[i]);
    kv_sliced_release(&r->sliced);
    free(r);
}

static void release_records(void)
{
    for (unsigned i = 0; i < record_count; i++)
        release_record(records[i]);
    record_count = 0;
}

/* A slice of a random value that is open; false: none is. */
static bool walk_one(struct kv_random *r)
{
    unsigned open = 0, at = 0;
    for (unsigned i = 0; i < record_count; i++)
        open += !records[i]->sliced.done;
    if (open == 0)
        return false;
    uint64_t nth = kv_random_below(r, open);
    while (records[at]->sliced.done || nth-- != 0)
        at++;
    kv_sliced_walk(&view, &records[at]->sliced, 0);
    return true;
}

static void compare(void)
{
    for (unsigned i = 0; i < record_count; i++) {
        struct record *r = records[i];
        struct image *image = &r->image;
        ck_assert(r->sliced.done);
        for (unsigned n = r->end_count; n-- > 0;) {
            image->items = realloc(image->items, image->len + r->ends[n].len + 1);
            image->capacity = image->len + r->ends[n].len + 1;
            memcpy(image->items + image->len, r->ends[n].items, r->ends[n].len);
            image->len += r->ends[n].len;
            image->count += r->ends[n].count;
        }
        assert_same_image(image, &moment[r->key]);
    }
    for (unsigned i = 0; i < KEYS; i++) {
        ck_assert_int_eq(saved[i].there, moment[i].there);
        if (saved[i].count != 0)
            assert_same_image(&saved[i], &moment[i]);
    }
}

/* A whole snapshot with up to `changes` changes after each slice. */
static void take(struct kv_random *r, unsigned changes, bool keys_too)
{
    begin();
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        struct kv_snapshot_position p = {0};
        bool done = false;
        while (!done || walk_one(r)) {
            for (uint64_t n = kv_random_below(r, changes + 1); n > 0; n--)
                change(r, keys_too);
            if (!done && kv_random_below(r, 2) == 0)
                done = kv_store_snapshot_shard(&view, shard, &p, 0);
            else
                (void)walk_one(r);
        }
    }
    kv_store_snapshot_end(store, true);
    compare();
    release_records();
}

static void clear_images(void)
{
    for (unsigned i = 0; i < KEYS; i++) {
        image_clear(&moment[i]);
        image_clear(&saved[i]);
    }
}

START_TEST(a_sliced_value_is_what_it_was_at_the_moment)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("sliced"));
    unsigned sliced = 0;
    for (unsigned round = 0; round < UNIT_ROUNDS(60); round++) {
        fill(&r);
        whole_count = 0;
        take(&r, round % 4, round % 2);
        sliced += KEYS - whole_count;
    }
    ck_assert_uint_gt(sliced, 5 * UNIT_ROUNDS(60));
    ck_assert_uint_gt(grown_bytes, 0);
    clear_images();
}
END_TEST

/* All of it given up in the middle, as often as one likes. */
START_TEST(a_snapshot_may_be_given_up_at_any_time)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("given up"));
    for (unsigned round = 0; round < UNIT_ROUNDS(40); round++) {
        fill(&r);
        begin();
        for (unsigned i = 0; i < round; i++) {
            struct kv_snapshot_position p = {0};
            (void)kv_store_snapshot_shard(&view, i % FIXTURE_SHARDS, &p, 0);
            (void)walk_one(&r);
            change(&r, true);
        }
        kv_store_snapshot_end(store, false);
        for (unsigned i = 0; i < record_count; i++)
            kv_sliced_cancel(&records[i]->sliced);
        release_records();
        for (unsigned i = 0; i < 20; i++)
            change(&r, true);
    }
    clear_images();
}
END_TEST

/* Only what changes is kept beside the value. */
START_TEST(a_slice_is_short)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("short"));
    fill(&r);
    begin();
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        struct kv_snapshot_position p = {0};
        while (!kv_store_snapshot_shard(&view, shard, &p, 0))
            continue;
    }
    ck_assert_uint_eq(record_count, KEYS);
    for (unsigned i = 0; i < record_count; i++) {
        struct kv_sliced *s = &records[i]->sliced;
        uint64_t all = s->left;
        kv_sliced_walk(&view, s, 0);
        ck_assert(!s->done);
        ck_assert_uint_lt(all - s->left, 100);
        struct kv_guard *g = &s->guard;
        kv_sliced_finish(&view, g);
        ck_assert(s->done);
    }
    kv_store_snapshot_end(store, true);
    compare();
    release_records();
    clear_images();
}
END_TEST

static void setup(void)
{
    store_setup();
    kv_arena_init(&arena, 65536, KV_MEM_ARENA);
}

static void teardown(void)
{
    kv_arena_release(&arena);
    store_teardown();
}

int main(void)
{
    struct unit u;
    kv_mem_init();
    kv_clock_init();
    unit_begin(&u, "sliced");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, a_sliced_value_is_what_it_was_at_the_moment);
    unit_add(&u, a_snapshot_may_be_given_up_at_any_time);
    unit_add(&u, a_slice_is_short);
    return unit_run(&u);
}
