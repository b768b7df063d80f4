/* store/list.h: lists beside a naive array through every function, small limits so that they become
 * large and packed all the time, every try allocation failing once, blocks moving in between. The
 * fixture proves the accounting. */
#include "fixture.h"
#include "store/list.h"

#define ITEMS_MAX 400
#define KEY_COUNT 2

struct model {
    unsigned ids[ITEMS_MAX * 2];
    uint64_t count;
};

static struct model models[KEY_COUNT];
static struct kv_arena arena;

/* Items by number: equal numbers are equal texts, of all sorts. */
static struct kv_slice text_of(unsigned id)
{
    static char texts[64][12000];
    static const size_t lens[] = {1, 3, 20, 62, 63, 64, 200, 900, 3000, 5000};
    char *text = texts[id % 64];
    if (id % 3 == 0)
        return kv_slice(text, (size_t)sprintf(text, "%u", id * 1000003));
    size_t len = id % 50 == 49 ? 9000 : lens[id % (id % 7 == 0 ? KV_ARRAY_LEN(lens) : 5)];
    memset(text, 'A' + (int)id, len);
    return kv_slice(text, len);
}

static struct kv_entry *entry_at(unsigned key)
{
    return peek(key == 0 ? "first" : "second");
}

static struct kv_key name_of(unsigned key)
{
    return key_of(key == 0 ? "first" : "second");
}

static void check_same(unsigned key)
{
    const struct kv_entry *e = entry_at(key);
    const struct model *m = &models[key];
    char scratch[KV_INT_TEXT_MAX];
    ck_assert_int_eq(e != NULL, m->count != 0);
    ck_assert_uint_eq(kv_store_list_count(e), m->count);
    if (e == NULL)
        return;
    struct kv_item i = kv_store_list_seek(e, 0), back = kv_store_list_seek(e, -1);
    for (uint64_t n = 0; n < m->count; n++) {
        ck_assert(kv_slice_equal(kv_item_text(&i, scratch), text_of(m->ids[n])));
        struct kv_slice last = kv_item_text(&back, scratch);
        ck_assert(kv_slice_equal(last, text_of(m->ids[m->count - 1 - n])));
        kv_item_next(&i);
        kv_item_prev(&back);
    }
    ck_assert_ptr_null(i.at);
    ck_assert_ptr_null(back.at);
}

static void model_open(struct model *m, uint64_t at, uint64_t count)
{
    memmove(m->ids + at + count, m->ids + at, (m->count - at) * sizeof(m->ids[0]));
    m->count += count;
}

static void model_close(struct model *m, uint64_t at, uint64_t count)
{
    memmove(m->ids + at, m->ids + at + count, (m->count - at - count) * sizeof(m->ids[0]));
    m->count -= count;
}

static unsigned some_id(struct kv_random *r)
{
    return (unsigned)kv_random_below(r, kv_random_below(r, 4) == 0 ? 64 : 12);
}

/* --- one change each, of list and model --- */

static enum kv_err push(unsigned key, struct kv_random *r)
{
    struct kv_key k = name_of(key);
    struct kv_entry *e = entry_at(key);
    struct model *m = &models[key];
    struct kv_slice items[8];
    unsigned ids[8];
    size_t count = 1 + kv_random_below(r, 8);
    enum kv_list_end end = (enum kv_list_end)kv_random_below(r, 2);
    for (size_t i = 0; i < count; i++) {
        ids[i] = some_id(r);
        items[i] = text_of(ids[i]);
    }
    enum kv_err err = kv_store_list_push(&view, &k, &e, end, items, count);
    if (err != KV_OK)
        return err;
    ck_assert_ptr_eq(e, entry_at(key));
    for (size_t i = 0; i < count; i++) {
        uint64_t at = end == KV_LIST_HEAD ? 0 : m->count;
        model_open(m, at, 1);
        m->ids[at] = ids[i];
    }
    return KV_OK;
}

static enum kv_err pop(unsigned key, struct kv_random *r)
{
    struct kv_key k = name_of(key);
    struct kv_entry *e = entry_at(key);
    struct model *m = &models[key];
    struct kv_slice *items;
    uint64_t most = kv_random_below(r, 10) == 0 ? m->count : KV_MIN(m->count, 3);
    uint64_t count = 1 + kv_random_below(r, most);
    enum kv_list_end end = (enum kv_list_end)kv_random_below(r, 2);
    enum kv_err err = kv_store_list_pop(&view, &k, &e, end, count, &arena, &items);
    if (err != KV_OK)
        return err;
    for (uint64_t i = 0; i < count; i++)
        ck_assert(
            kv_slice_equal(items[i], text_of(m->ids[end == KV_LIST_HEAD ? i : m->count - 1 - i])));
    model_close(m, end == KV_LIST_HEAD ? 0 : m->count - count, count);
    ck_assert_ptr_eq(e, entry_at(key));
    return KV_OK;
}

static enum kv_err insert(unsigned key, struct kv_random *r)
{
    struct kv_key k = name_of(key);
    struct kv_entry *e = entry_at(key);
    struct model *m = &models[key];
    uint64_t at = kv_random_below(r, m->count);
    bool behind = kv_random_below(r, 2) == 0, replaces = kv_random_below(r, 2) == 0;
    unsigned id = some_id(r);
    enum kv_err err =
        replaces ? kv_store_list_replace(&view, &k, &e,
                                         behind ? (int64_t)at - (int64_t)m->count : (int64_t)at,
                                         text_of(id))
                 : kv_store_list_insert(&view, &k, &e, at, behind, text_of(id));
    if (err != KV_OK)
        return err;
    if (!replaces) {
        at += behind;
        model_open(m, at, 1);
    }
    m->ids[at] = id;
    return KV_OK;
}

static enum kv_err remove_some(unsigned key, struct kv_random *r)
{
    struct kv_key k = name_of(key);
    struct kv_entry *e = entry_at(key);
    struct model *m = &models[key];
    unsigned id = some_id(r);
    uint64_t limit = kv_random_below(r, 3), removed;
    enum kv_list_end from = (enum kv_list_end)kv_random_below(r, 2);
    enum kv_err err =
        kv_store_list_remove(&view, &k, &e, from, limit, text_of(id), &arena, &removed);
    if (err != KV_OK)
        return err;
    uint64_t expected = 0;
    for (uint64_t n = m->count, i = 0; i < n && (limit == 0 || expected < limit); i++) {
        uint64_t at = from == KV_LIST_HEAD ? i - expected : n - 1 - i;
        if (m->ids[at] != id)
            continue;
        model_close(m, at, 1);
        expected++;
    }
    ck_assert_uint_eq(removed, expected);
    ck_assert_ptr_eq(e, entry_at(key));
    return KV_OK;
}

static enum kv_err trim(unsigned key, struct kv_random *r)
{
    struct kv_key k = name_of(key);
    struct kv_entry *e = entry_at(key);
    struct model *m = &models[key];
    uint64_t first = kv_random_below(r, KV_MIN(m->count, 4));
    uint64_t count = m->count - first;
    count -= kv_random_below(r, KV_MIN(count, 5));
    enum kv_err err = kv_store_list_trim(&view, &k, &e, first, count, &arena);
    if (err != KV_OK)
        return err;
    m->count = first + count;
    model_close(m, 0, first);
    return KV_OK;
}

/* From one list to the other, or within one. */
static enum kv_err move(unsigned key, struct kv_random *r)
{
    unsigned other = (unsigned)kv_random_below(r, KEY_COUNT);
    struct kv_key k = name_of(key), to = name_of(other);
    struct kv_entry *e = entry_at(key), *to_entry = entry_at(other);
    struct model *m = &models[key], *to_model = &models[other];
    unsigned ids[4];
    uint64_t count = 1 + kv_random_below(r, KV_MIN(m->count, 4));
    enum kv_list_end from = (enum kv_list_end)kv_random_below(r, 2);
    enum kv_list_end end = (enum kv_list_end)kv_random_below(r, 2);
    struct kv_slice *items = kv_store_list_copy_out(e, from, count, &arena);
    if (items == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = key == other ? kv_store_list_turn(&view, &k, &e, from, end, items, count)
                                   : kv_store_list_transfer(&view, &k, &e, from, &to, &to_entry,
                                                            end, items, count);
    if (err != KV_OK)
        return err;
    for (uint64_t i = 0; i < count; i++)
        ids[i] = m->ids[from == KV_LIST_HEAD ? i : m->count - 1 - i];
    model_close(m, from == KV_LIST_HEAD ? 0 : m->count - count, count);
    for (uint64_t i = 0; i < count; i++) {
        uint64_t at = end == KV_LIST_HEAD ? 0 : to_model->count;
        model_open(to_model, at, 1);
        to_model->ids[at] = ids[i];
    }
    return KV_OK;
}

static enum kv_err put(unsigned key, struct kv_random *r)
{
    struct kv_key k = name_of(key);
    struct kv_entry *e = entry_at(key);
    struct model *m = &models[key];
    struct kv_slice items[20];
    size_t count = 1 + kv_random_below(r, 20);
    unsigned ids[20];
    for (size_t i = 0; i < count; i++) {
        ids[i] = some_id(r);
        items[i] = text_of(ids[i]);
    }
    enum kv_err err = kv_store_list_put(&view, &k, &e, items, count);
    if (err != KV_OK)
        return err;
    memcpy(m->ids, ids, count * sizeof(ids[0]));
    m->count = count;
    return KV_OK;
}

static enum kv_err change(struct kv_random *r)
{
    unsigned key = (unsigned)kv_random_below(r, KEY_COUNT);
    uint64_t way = kv_random_below(r, 40);
    struct model *m = &models[key];
    if (m->count == 0 || (way < 14 && models[0].count + models[1].count < ITEMS_MAX))
        return push(key, r);
    if (way < 20)
        return pop(key, r);
    if (way < 26)
        return insert(key, r);
    if (way < 29)
        return remove_some(key, r);
    if (way < 31)
        return trim(key, r);
    return way < 38 ? move(key, r) : put(key, r);
}

static void run(struct kv_random *r, int64_t directive, bool fails)
{
    struct kv_collection_limits limits = kv_collection_limits_default;
    limits.list_max_listpack_size = directive;
    kv_store_set_limits(store, &limits);
    for (unsigned step = 0; step < 3000; step++) {
        kv_arena_reset(&arena);
        if (fails)
            kv_mem_fail_try(1 + kv_random_below(r, 4));
        enum kv_err err = change(r);
        kv_mem_fail_try(0);
        ck_assert(fails || err == KV_OK);
        if (step % 20 == 0 || err != KV_OK) {
            check_same(0);
            check_same(1);
        }
        if (step % 200 == 0) {
            kv_store_check(store);
            assert_accounted();
        }
    }
}

static const int64_t directives[] = {-2, -1, -5, 1, 4, 50};

static void run_all(const char *name, bool fails)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed(name));
    memset(models, 0, sizeof(models));
    kv_arena_init(&arena, 4096, KV_MEM_ARENA);
    for (size_t i = 0; i < KV_ARRAY_LEN(directives); i++)
        run(&r, directives[i], fails);
    kv_arena_release(&arena);
}

START_TEST(lists_do_what_naive_arrays_do)
{
    run_all("store_list", false);
}
END_TEST

#ifdef KV_DEBUG
START_TEST(a_failure_changes_nothing)
{
    run_all("store_list_failure", true);
}
END_TEST
#endif

static uint64_t freed_items;
static void (*free_fn)(void *);
static void *free_arg;

static void keep_for_later(struct kv_view *v, void (*fn)(void *), void *entry)
{
    (void)v;
    ck_assert_ptr_null(free_arg);
    free_fn = fn;
    free_arg = entry;
    freed_items++;
}

START_TEST(a_trim_of_many_nodes_leaves_them_to_somebody_else)
{
    struct kv_store_hooks hooks = {.free_later = keep_for_later};
    struct kv_key k = key_of("first");
    struct kv_entry *e = NULL;
    kv_store_set_hooks(store, &hooks);
    kv_arena_init(&arena, 4096, KV_MEM_ARENA);
    for (unsigned i = 0; i < 40000; i++) {
        struct kv_slice item = text_of(4);
        ck_assert_int_eq(kv_store_list_push(&view, &k, &e, KV_LIST_TAIL, &item, 1), KV_OK);
    }
    ck_assert_int_eq(kv_store_list_trim(&view, &k, &e, 0, 1000, &arena), KV_OK);
    ck_assert_uint_eq(freed_items, 1);
    ck_assert_uint_eq(kv_store_list_count(e), 1000);
    kv_store_check(store);
    free_fn(free_arg);
    assert_accounted();
    kv_arena_release(&arena);
}
END_TEST

int main(void)
{
    struct unit u;
    store_begin(&u, "list");
    unit_add(&u, lists_do_what_naive_arrays_do);
#ifdef KV_DEBUG
    unit_add(&u, a_failure_changes_nothing);
#endif
    unit_add(&u, a_trim_of_many_nodes_leaves_them_to_somebody_else);
    return unit_run(&u);
}
