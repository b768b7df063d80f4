/* engine/tracking.c, tracking_table.c: periodic work comes in slices that end, goes on where it
 * ended, and is not begun for nothing; hooks are installed while somebody needs them. What clients
 * are told is tests/server/test_tracking.py. */
#include "engine/notify.h"
#include "fixture.h"

#define READERS 4000
#define KEYS 20

static struct kv_client *readers[READERS];

static void track(struct kv_client *c, uint32_t flags)
{
    static const struct kv_slice everything = {"", 0};
    bool bcast = flags & KV_TRACKING_BCAST;
    struct kv_tracking_request r = {
        .flags = flags, .prefixes = &everything, .prefix_count = bcast ? 1 : 0};
    ck_assert_int_eq(kv_tracking_begin(c, &r, NULL), KV_OK);
}

static void read_key(const struct kv_client *c, uint32_t number)
{
    char name[16];
    int len = snprintf(name, sizeof(name), "key:%u", number);
    struct kv_key k = kv_store_key(engine->store, kv_slice(name, (size_t)len));
    ck_assert_int_eq(kv_tracking_remember(w0, &k, c->id), KV_OK);
}

static struct kv_tracking_counts counts(void)
{
    struct kv_tracking_counts n;
    kv_tracking_count(engine, &n);
    return n;
}

START_TEST(a_slice_of_sweeping_ends_among_entries_with_many_readers)
{
    options.shards = 1;
    start(1);
    for (uint32_t i = 0; i < READERS; i++) {
        readers[i] = client_new();
        track(readers[i], 0);
        for (uint32_t k = 0; k < KEYS; k++)
            read_key(readers[i], k);
    }
    read_key(readers[0], KEYS);
    ck_assert_uint_eq(counts().items, READERS * KEYS + 1);
    kv_tracking_end(readers[0]);
    kv_tracking_cron(w0);
    ck_assert(w0->sweep.walking);
    ck_assert_uint_lt(counts().items, READERS * KEYS + 1);
    ck_assert_uint_gt(counts().items, (READERS - 1) * KEYS);
    for (uint32_t slices = 0; w0->sweep.walking; slices++) {
        ck_assert_uint_lt(slices, 10 * KEYS);
        kv_tracking_cron(w0);
    }
    ck_assert_uint_eq(counts().items, (READERS - 1) * KEYS);
    ck_assert_uint_eq(counts().keys, KEYS);
    for (uint32_t i = 0; i < READERS; i++)
        kv_client_destroy(readers[i]);
    do
        kv_tracking_cron(w0);
    while (w0->sweep.walking);
    ck_assert_uint_eq(counts().keys, 0);
}
END_TEST

START_TEST(a_walk_meets_every_entry_of_many)
{
    const uint32_t many = 20000;
    start(1);
    struct kv_client *stays = client_new(), *goes = client_new();
    track(stays, 0);
    track(goes, 0);
    for (uint32_t k = 0; k < many; k++) {
        read_key(goes, k);
        if (k % 3 == 0)
            read_key(stays, k);
    }
    kv_client_destroy(goes);
    do
        kv_tracking_cron(w0);
    while (w0->sweep.walking);
    ck_assert_uint_eq(counts().keys, (many + 2) / 3);
    ck_assert_uint_eq(counts().items, (many + 2) / 3);
    kv_client_destroy(stays);
}
END_TEST

START_TEST(who_is_told_by_prefix_leaves_nothing_to_sweep)
{
    start(1);
    struct kv_client *c = client_new();
    track(c, KV_TRACKING_BCAST);
    kv_client_destroy(c);
    kv_tracking_cron(w0);
    ck_assert(!w0->sweep.walking);
    ck_assert_uint_eq(w0->sweep.seen, atomic_load(&engine->tracking.departed));
    ck_assert_uint_eq(w0->sweep.seen, 0);
}
END_TEST

START_TEST(a_lowered_limit_is_reached_in_slices)
{
    const uint32_t many = 20000;
    start(1);
    struct kv_client *c = client_new();
    track(c, 0);
    for (uint32_t k = 0; k < many; k++)
        read_key(c, k);
    engine->options.tracking_table_max_keys = 10;
    kv_engine_apply_options(engine);
    ck_assert_uint_eq(counts().keys, many);
    read_key(c, many);
    ck_assert_uint_eq(counts().keys, many - 1);
    kv_tracking_cron(w0);
    ck_assert_uint_gt(counts().keys, 10);
    while (counts().keys > 10)
        kv_tracking_cron(w0);
    ck_assert_uint_eq(counts().keys, 10);
    read_key(c, many + 1);
    ck_assert_uint_eq(counts().keys, 10);
    kv_client_destroy(c);
}
END_TEST

START_TEST(hooks_are_installed_while_somebody_needs_them)
{
    start(1);
    struct kv_client *c = client_new();
    ck_assert(kv_store_hooks(engine->store)->changed == NULL);
    track(c, 0);
    ck_assert(kv_store_hooks(engine->store)->changed != NULL);
    kv_tracking_off(c);
    ck_assert(kv_store_hooks(engine->store)->changed == NULL);
    engine->options.notify_classes = KV_NOTIFY_KEYEVENT | KV_EVENT_MISS;
    kv_notify_apply(engine);
    ck_assert(kv_store_hooks(engine->store)->changed == NULL);
    ck_assert(kv_store_hooks(engine->store)->missed != NULL);
    engine->options.notify_classes = KV_NOTIFY_KEYEVENT | KV_EVENT_STRING;
    kv_notify_apply(engine);
    ck_assert(kv_store_hooks(engine->store)->changed != NULL);
    kv_client_destroy(c);
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "tracking");
    unit_add(&u, a_slice_of_sweeping_ends_among_entries_with_many_readers);
    unit_add(&u, a_walk_meets_every_entry_of_many);
    unit_add(&u, who_is_told_by_prefix_leaves_nothing_to_sweep);
    unit_add(&u, a_lowered_limit_is_reached_in_slices);
    unit_add(&u, hooks_are_installed_while_somebody_needs_them);
    return unit_run(&u);
}
