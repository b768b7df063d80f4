/* Random operations on a store and on a naive model: an array of keys per database, with bytes and
 * time to live. Results, what watchers see, sizes and contents must agree at every step; at
 * intervals the store checks itself, and its digest equals that of a second store built from the
 * model. Clock, keys, lengths and times are small in number so that everything collides. */
#include "fixture.h"

#define KEYS 48
#define WATCHES 12
#define VALUE_MAX 3000

struct model_key {
    bool exists;
    int64_t expiry;
    size_t len;
    char value[VALUE_MAX];
};

struct model_watch {
    struct kv_watch *watch; /* NULL: free */
    uint32_t db;
    int key;
    bool dirty;
};

static struct model_key model[FIXTURE_DATABASES][KEYS];
static struct model_watch watches[WATCHES];
static struct kv_random rng;
static int64_t expired_at_most; /* keys that the model saw end */

static uint64_t below(uint64_t bound)
{
    return kv_random_below(&rng, bound);
}

/* Keys of very different lengths; the longest never fit beside a value. */
static struct kv_key model_key(int i)
{
    static char text[KEYS][1200];
    static size_t lens[KEYS];
    if (lens[i] == 0) {
        memset(text[i], 'k', sizeof(text[i]));
        int digits = snprintf(text[i], sizeof(text[i]), "%d:", i);
        text[i][digits] = 'k';
        lens[i] = i < 40   ? (size_t)digits + (size_t)i
                  : i < 44 ? 250 + (size_t)i
                           : 1000 + 3 * (size_t)i;
    }
    return kv_store_key(store, kv_slice(text[i], lens[i]));
}

static void model_touch(uint32_t db, int key)
{
    for (int i = 0; i < WATCHES; i++) {
        if (watches[i].watch != NULL && watches[i].db == db && watches[i].key == key)
            watches[i].dirty = true;
    }
}

/* Ends all due keys of the model. */
static void model_expire(void)
{
    for (uint32_t db = 0; db < FIXTURE_DATABASES; db++) {
        for (int i = 0; i < KEYS; i++) {
            struct model_key *m = &model[db][i];
            if (m->exists && m->expiry != KV_NO_EXPIRY && m->expiry <= view.now_ms) {
                m->exists = false;
                model_touch(db, i);
                expired_at_most++;
            }
        }
    }
}

static int64_t random_expiry(bool keep)
{
    switch (below(keep ? 5 : 4)) {
    case 0:
    case 1:
        return KV_NO_EXPIRY;
    case 4:
        return KV_KEEP_EXPIRY;
    default:
        return view.now_ms + 1 + (int64_t)below(60);
    }
}

static size_t random_value(char *out)
{
    static const size_t maxima[] = {4, 45, 45, 300, 1100, VALUE_MAX};
    if (below(3) == 0)
        return kv_int_print((int64_t)(kv_random_next(&rng) >> below(64)), out);
    size_t len = below(maxima[below(KV_ARRAY_LEN(maxima))]);
    for (size_t i = 0; i < len; i++)
        out[i] = (char)kv_random_next(&rng);
    return len;
}

static void model_put(uint32_t db, int key, const char *value, size_t len, int64_t expiry)
{
    struct model_key *m = &model[db][key];
    if (expiry == KV_KEEP_EXPIRY)
        expiry = m->exists ? m->expiry : KV_NO_EXPIRY;
    m->exists = true;
    m->expiry = expiry;
    m->len = len;
    memcpy(m->value, value, len);
}

static void announce(int key)
{
    struct kv_key k = model_key(key);
    kv_store_changed(&view, &k, KV_EVENT_GENERIC, "test");
    model_touch(view.db, key);
}

static void announce_in(uint32_t db, int key)
{
    uint32_t selected = view.db;
    view.db = db;
    announce(key);
    view.db = selected;
}

static void compare(uint32_t db, int key)
{
    struct kv_key k = model_key(key);
    struct model_key *m = &model[db][key];
    view.db = db;
    struct kv_entry *e = kv_store_peek(&view, &k);
    ck_assert_int_eq(e != NULL, m->exists);
    if (e != NULL) {
        ck_assert(holds(e, kv_slice(m->value, m->len)));
        ck_assert_uint_eq(kv_entry_string_len(e), m->len);
        ck_assert_int_eq(kv_entry_expiry(e), m->expiry);
    }
}

/* --- operations: each on view.db and one key --- */

static void do_set(int key)
{
    static char value[VALUE_MAX];
    struct kv_key k = model_key(key);
    size_t len = random_value(value);
    int64_t expiry = random_expiry(true);
    bool existed;
    if (below(4) == 0) {
        struct kv_bigstr *block = kv_bigstr_try_create(len, KV_MEM_CLIENT_INPUT);
        memcpy(block->data, value, len);
        ck_assert_int_eq(kv_store_set_block_take(&view, &k, &block, expiry, &existed), KV_OK);
        ck_assert_ptr_null(block);
    } else {
        ck_assert_int_eq(kv_store_set(&view, &k, kv_slice(value, len), expiry, &existed), KV_OK);
    }
    ck_assert_int_eq(existed, model[view.db][key].exists);
    model_put(view.db, key, value, len, expiry);
    announce(key);
}

static void do_set_int(int key)
{
    struct kv_key k = model_key(key);
    char text[KV_INT_TEXT_MAX];
    int64_t number = (int64_t)kv_random_next(&rng);
    int64_t expiry = random_expiry(true);
    struct kv_entry *e = kv_store_write(&view, &k);
    if (e != NULL && kv_entry_encoding(e) == KV_ENC_INT && below(2) == 0) {
        kv_store_update_int(&view, e, number);
        expiry = KV_KEEP_EXPIRY;
    } else {
        ck_assert_int_eq(kv_store_set_int(&view, &k, number, expiry), KV_OK);
    }
    model_put(view.db, key, text, kv_int_print(number, text), expiry);
    announce(key);
}

static void do_edit(int key)
{
    struct kv_key k = model_key(key);
    struct model_key *m = &model[view.db][key];
    struct kv_entry *e = kv_store_write(&view, &k);
    size_t have = m->exists ? m->len : 0;
    size_t len = below(3) == 0 ? below(VALUE_MAX) : have + below(50);
    len = KV_MIN(len, (size_t)VALUE_MAX - 1);
    struct kv_bigstr *read_by_others = e != NULL && below(4) == 0 ? kv_entry_bigstr(e) : NULL;
    if (read_by_others != NULL)
        kv_bigstr_ref(read_by_others);
    char *bytes;
    ck_assert_int_eq(kv_store_edit_string(&view, &k, e, len, &bytes), KV_OK);
    if (len > have)
        memset(m->value + have, 0, len - have);
    ck_assert(len == 0 || memcmp(bytes, m->value, len) == 0);
    if (len > 0) {
        size_t at = below(len);
        bytes[at] = m->value[at] = (char)kv_random_next(&rng);
    }
    m->expiry = m->exists ? m->expiry : KV_NO_EXPIRY;
    m->exists = true;
    m->len = len;
    if (read_by_others != NULL)
        kv_bigstr_unref(read_by_others);
    announce(key);
}

static void do_expiry(int key)
{
    struct kv_key k = model_key(key);
    struct kv_entry *e = kv_store_write(&view, &k);
    int64_t expiry = random_expiry(true);
    if (e == NULL)
        return;
    ck_assert_int_eq(kv_store_set_expiry(&view, &k, &e, expiry), KV_OK);
    ck_assert_ptr_eq(e, kv_store_peek(&view, &k));
    if (expiry != KV_KEEP_EXPIRY)
        model[view.db][key].expiry = expiry;
    announce(key);
}

static void do_delete(int key)
{
    struct kv_key k = model_key(key);
    struct kv_entry *e = kv_store_write(&view, &k);
    ck_assert_int_eq(e != NULL, model[view.db][key].exists);
    if (e == NULL)
        return;
    kv_store_delete(&view, &k, e);
    model[view.db][key].exists = false;
    announce(key);
}

static void do_move_or_copy(int key, bool copy)
{
    struct kv_key from = model_key(key);
    int to_key = below(3) == 0 ? key : (int)below(KEYS);
    uint32_t to_db = below(2) == 0 ? view.db : (uint32_t)below(FIXTURE_DATABASES);
    struct kv_key to = model_key(to_key);
    struct kv_entry *e = kv_store_write(&view, &from);
    struct model_key *m = &model[view.db][key];
    if (e == NULL)
        return;
    if (copy)
        ck_assert_int_eq(kv_store_copy(&view, e, to_db, &to), KV_OK);
    else
        ck_assert_int_eq(kv_store_move(&view, &from, e, to_db, &to), KV_OK);
    if (to_db == view.db && to_key == key)
        return;
    model_put(to_db, to_key, m->value, m->len, m->expiry);
    announce_in(to_db, to_key);
    if (!copy) {
        m->exists = false;
        announce(key);
    }
}

static void model_flush(uint32_t db)
{
    for (int i = 0; i < KEYS; i++) {
        if (model[db][i].exists)
            model_touch(db, i);
        model[db][i].exists = false;
    }
}

static void do_flush(void)
{
    uint32_t db = below(6) == 0 ? UINT32_MAX : view.db;
    kv_store_garbage_free(kv_store_flush(&view, db));
    for (uint32_t each = 0; each < FIXTURE_DATABASES; each++) {
        if (db == UINT32_MAX || db == each)
            model_flush(each);
    }
}

static void do_swap(void)
{
    static struct model_key kept[KEYS];
    uint32_t a = view.db;
    uint32_t b = (uint32_t)below(FIXTURE_DATABASES);
    kv_store_swap(&view, a, b);
    if (a == b)
        return;
    for (int i = 0; i < KEYS; i++) {
        if (model[a][i].exists || model[b][i].exists) {
            model_touch(a, i);
            model_touch(b, i);
        }
    }
    memcpy(kept, model[a], sizeof(kept));
    memcpy(model[a], model[b], sizeof(kept));
    memcpy(model[b], kept, sizeof(kept));
}

static void do_watch(int key)
{
    struct model_watch *w = &watches[below(WATCHES)];
    struct kv_key k = model_key(key);
    if (w->watch != NULL) {
        ck_assert_int_eq(kv_store_watch_dirty(&view, w->watch), w->dirty);
        kv_store_unwatch(store, w->watch);
        w->watch = NULL;
        return;
    }
    ck_assert_int_eq(kv_store_watch(&view, &k, &w->watch), KV_OK);
    w->db = view.db;
    w->key = key;
    w->dirty = false;
}

static void do_expire_slice(void)
{
    bool more;
    kv_store_expire_shard(&view, (uint32_t)below(FIXTURE_SHARDS), 0, &more);
}

/* Each shard is walked on from where its last slice ended. */
static void do_defrag_slice(void)
{
    static struct kv_defrag_position positions[FIXTURE_SHARDS];
    uint32_t shard = (uint32_t)below(FIXTURE_SHARDS);
    if (kv_store_defrag_shard(&view, shard, &positions[shard], 0))
        positions[shard] = (struct kv_defrag_position){0};
}

static void do_step(void)
{
    uint64_t what = below(100);
    int key = (int)below(KEYS);
    view.db = (uint32_t)below(FIXTURE_DATABASES);
    if (below(5) == 0)
        view.now_ms += (int64_t)below(8);
    model_expire();
    if (what < 25)
        do_set(key);
    else if (what < 30)
        do_set_int(key);
    else if (what < 45)
        do_edit(key);
    else if (what < 55)
        do_expiry(key);
    else if (what < 62)
        do_delete(key);
    else if (what < 80)
        do_move_or_copy(key, what % 2);
    else if (what < 81)
        do_flush();
    else if (what < 83)
        do_swap();
    else if (what < 92)
        do_watch(key);
    else if (what < 95)
        do_expire_slice();
    else
        do_defrag_slice();
    compare(view.db, key);
}

/* --- whole comparisons --- */

static void count_entry(struct kv_entry *e, void *arg)
{
    (void)e;
    ++*(uint64_t *)arg;
}

static void assert_same_digest(void)
{
    struct kv_store_options options = {
        .shard_count = 1, .database_count = FIXTURE_DATABASES, .hash_key = {7, 9}};
    struct kv_store *original = store;
    uint8_t expected[20], got[20];
    kv_store_digest(&view, got);
    store = kv_store_create(&options);
    view.store = store;
    for (uint32_t db = 0; db < FIXTURE_DATABASES; db++) {
        for (int i = KEYS - 1; i >= 0; i--) {
            struct model_key *m = &model[db][i];
            struct kv_key k = model_key(i);
            view.db = db;
            if (m->exists)
                ck_assert_int_eq(
                    kv_store_set(&view, &k, kv_slice(m->value, m->len), m->expiry, NULL), KV_OK);
        }
    }
    kv_store_digest(&view, expected);
    kv_store_destroy(store);
    store = original;
    view.store = store;
    ck_assert_mem_eq(expected, got, sizeof(got));
}

static void compare_all(void)
{
    bool more;
    model_expire();
    for (int i = 0; i < WATCHES; i++) {
        if (watches[i].watch != NULL)
            ck_assert_int_eq(kv_store_watch_dirty(&view, watches[i].watch), watches[i].dirty);
    }
    kv_store_check(store);
    assert_accounted();
    assert_same_digest();
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        kv_store_expire_shard(&view, shard, UINT64_MAX, &more);
        ck_assert(!more);
        ck_assert_int_gt(kv_store_next_due_hint(store, shard), view.now_ms);
    }
    for (uint32_t db = 0; db < FIXTURE_DATABASES; db++) {
        uint64_t keys = 0, expires = 0, visited = 0;
        for (int i = 0; i < KEYS; i++) {
            compare(db, i);
            keys += model[db][i].exists;
            expires += model[db][i].exists && model[db][i].expiry != KV_NO_EXPIRY;
        }
        kv_store_each(&view, count_entry, &visited);
        ck_assert_uint_eq(kv_store_size(store, db), keys);
        ck_assert_uint_eq(kv_store_expires(store, db), expires);
        ck_assert_uint_eq(visited, keys);
    }
    kv_store_check(store);
    ck_assert_uint_eq(kv_stat_read(&stats.expired_keys), (uint64_t)heard.expired);
    /* A flush drops due keys that nobody met. */
    ck_assert_int_le((int64_t)kv_stat_read(&stats.expired_keys), expired_at_most);
}

START_TEST(random_operations_agree_with_a_naive_model)
{
    kv_random_init(&rng, unit_seed("store model"));
    for (int step = 0; step < UNIT_ROUNDS(100000); step++) {
        do_step();
        if (step % 500 == 499)
            compare_all();
    }
    compare_all();
    for (int i = 0; i < WATCHES; i++) {
        if (watches[i].watch != NULL)
            kv_store_unwatch(store, watches[i].watch);
    }
    kv_store_garbage_free(kv_store_flush(&view, UINT32_MAX));
    ck_assert_int_eq(kv_mem_used_dataset(), dataset_before);
    ck_assert_int_eq(kv_mem_used(KV_MEM_WATCH), 0);
    kv_store_check(store);
}
END_TEST

int main(void)
{
    struct unit u;
    store_begin(&u, "model");
    unit_add(&u, random_operations_agree_with_a_naive_model);
    return unit_run(&u);
}
