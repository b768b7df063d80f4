/* A small store for each test, with a view, a clock that the test moves and a log of what the hooks
 * heard. store_teardown proves that the store gave back all its memory. */
#ifndef KV_TESTS_STORE_FIXTURE_H
#define KV_TESTS_STORE_FIXTURE_H

#include "base/clock.h"
#include "store/store.h"
#include "unit.h"
#include <string.h>

#define FIXTURE_SHARDS 4u
#define FIXTURE_DATABASES 5u
#define FIXTURE_NOW 1700000000000

/* What the hooks heard last, and how often. */
struct heard {
    int changed, expired, evicted;
    char key[64];
    const char *event;
    enum kv_event_class event_class;
    uint32_t db;
};

static struct kv_store *store;
static struct kv_store_stats stats;
static struct kv_view view;
static struct heard heard;
static int64_t dataset_before, total_before;

static void hear_changed(struct kv_view *v, const struct kv_key *k, enum kv_event_class event_class,
                         const char *event)
{
    heard.changed++;
    heard.event = event;
    heard.event_class = event_class;
    heard.db = v->db;
    snprintf(heard.key, sizeof(heard.key), "%.*s", (int)k->len, k->ptr);
}

static void hear_expired(struct kv_view *v, const struct kv_key *k)
{
    (void)k;
    heard.expired++;
    heard.db = v->db;
}

static void hear_evicted(struct kv_view *v, const struct kv_key *k)
{
    (void)k;
    heard.evicted++;
    heard.db = v->db;
}

static void store_setup(void)
{
    struct kv_store_options options = {
        .shard_count = FIXTURE_SHARDS, .database_count = FIXTURE_DATABASES, .hash_key = {1, 2}};
    struct kv_store_hooks hooks = {
        .changed = hear_changed, .expired = hear_expired, .evicted = hear_evicted};
    total_before = kv_mem_used_total();
    dataset_before = kv_mem_used_dataset();
    store = kv_store_create(&options);
    kv_store_set_hooks(store, &hooks);
    memset(&stats, 0, sizeof(stats));
    memset(&heard, 0, sizeof(heard));
    view = (struct kv_view){.store = store, .stats = &stats, .now_ms = FIXTURE_NOW};
}

/* All entries and values of the process are those of `store`, and it knows their bytes. */
static void assert_accounted(void)
{
    int64_t sum = 0;
    for (uint32_t db = 0; db < FIXTURE_DATABASES; db++) {
        struct kv_store_memory m;
        kv_store_memory(store, db, &m);
        for (int type = 0; type < KV_TYPE_COUNT; type++)
            sum += m.type_bytes[type];
    }
    ck_assert_int_eq(sum, kv_mem_used(KV_MEM_ENTRY) + kv_mem_used(KV_MEM_VALUE));
}

static void store_teardown(void)
{
    kv_store_check(store);
    assert_accounted();
    kv_store_destroy(store);
    ck_assert_int_eq(kv_mem_used_dataset(), dataset_before);
    ck_assert_int_eq(kv_mem_used_total(), total_before);
}

KV_INLINE struct kv_key key_of(const char *text)
{
    return kv_store_key(store, kv_slice_cstr(text));
}

KV_INLINE void must_set(const char *key, const char *value, int64_t expiry)
{
    struct kv_key k = key_of(key);
    ck_assert_int_eq(kv_store_set(&view, &k, kv_slice_cstr(value), expiry, NULL), KV_OK);
}

KV_INLINE struct kv_entry *peek(const char *key)
{
    struct kv_key k = key_of(key);
    return kv_store_peek(&view, &k);
}

KV_INLINE bool holds(const struct kv_entry *e, struct kv_slice value)
{
    char scratch[KV_INT_TEXT_MAX];
    return e != NULL && kv_slice_equal(kv_entry_string(e, scratch), value);
}

#define assert_value(key, text) ck_assert(holds(peek(key), kv_slice_cstr(text)))
#define assert_absent(key) ck_assert_ptr_null(peek(key))

/* A program's own start: what the store stands on. */
KV_INLINE void store_begin(struct unit *u, const char *name)
{
    kv_mem_init();
    kv_clock_init();
    unit_begin(u, name);
    unit_fixture(u, store_setup, store_teardown);
}

#endif
