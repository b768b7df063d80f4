/* Eviction in a shard: who goes, who stays, and that there is always progress. */
#include "fixture.h"
#include "store/evict.h"

#define NO_LIMIT ((uint64_t)1 << 40)

static struct kv_evictor evictor;
static struct kv_evict_result result;

static void use_rules(enum kv_evict_order order, bool volatile_only, uint32_t samples)
{
    struct kv_evict_rules rules = {order, volatile_only, samples};
    kv_evictor_init(&evictor, 42);
    kv_evictor_set_rules(&evictor, &rules);
    memset(&result, 0, sizeof(result));
}

static void set_numbered(int i, const char *value, int64_t expiry)
{
    char key[32];
    snprintf(key, sizeof(key), "key:%d", i);
    must_set(key, value, expiry);
}

static bool is_there(int i)
{
    char key[32];
    snprintf(key, sizeof(key), "key:%d", i);
    return peek(key) != NULL;
}

/* Visits all shards in turn until `keys` are gone. Every shard having nothing is a failure. */
static void evict(uint64_t keys)
{
    uint64_t want = result.keys + keys;
    uint32_t empty = 0;
    for (uint32_t shard = 0; result.keys < want; shard = (shard + 1) % FIXTURE_SHARDS) {
        kv_store_evict_shard(&view, shard, &evictor, 1, NULL, &result);
        empty = result.empty ? empty + 1 : 0;
        ck_assert_uint_lt(empty, FIXTURE_SHARDS);
    }
    ck_assert_uint_eq(result.keys, want);
}

static bool all_empty(void)
{
    bool empty = true;
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        uint64_t before = result.keys;
        kv_store_evict_shard(&view, shard, &evictor, 1, NULL, &result);
        ck_assert(!result.empty || result.keys == before);
        empty = empty && result.empty;
    }
    return empty;
}

/* Keys 0 .. n-1 in this order of age, the first one oldest. */
static void fill_by_age(int n, int64_t step_ms)
{
    for (int i = 0; i < n; i++) {
        set_numbered(i, "v", KV_NO_EXPIRY);
        view.now_ms += step_ms;
    }
}

static int count_there(int from, int to)
{
    int there = 0;
    for (int i = from; i < to; i++)
        there += is_there(i);
    return there;
}

START_TEST(the_longest_unused_go)
{
    use_rules(KV_EVICT_OLDEST, false, 5);
    fill_by_age(2000, 200);
    evict(400);
    ck_assert_int_ge(count_there(1000, 2000), 998);
    ck_assert_int_le(count_there(0, 400), 150);
    ck_assert_uint_eq(kv_stat_read(&stats.evicted_keys), 400);
    ck_assert_int_eq(heard.evicted, 400);
    ck_assert_int_eq(heard.changed, 400);
    ck_assert_str_eq(heard.event, "evicted");
    ck_assert_int_eq(heard.event_class, KV_EVENT_EVICTED);
    ck_assert_uint_eq(view.dirty, 0);
}
END_TEST

START_TEST(more_samples_choose_better)
{
    int left[2];
    for (int i = 0; i < 2; i++) {
        use_rules(KV_EVICT_OLDEST, false, i == 0 ? 1 : 20);
        fill_by_age(2000, 200);
        evict(200);
        left[i] = count_there(0, 200);
        for (int key = 0; key < 2000; key++) {
            char name[32];
            snprintf(name, sizeof(name), "key:%d", key);
            struct kv_key k = key_of(name);
            struct kv_entry *e = kv_store_peek(&view, &k);
            if (e != NULL)
                kv_store_delete(&view, &k, e);
        }
    }
    ck_assert_int_gt(left[0], 100);
    ck_assert_int_lt(left[1], 80);
}
END_TEST

START_TEST(the_least_often_used_go)
{
    struct kv_access_rules lfu = {KV_ACCESS_LFU, 0, 1};
    kv_store_set_access(store, &lfu);
    use_rules(KV_EVICT_RAREST, false, 5);
    fill_by_age(1000, 0);
    for (int i = 0; i < 1000; i += 2) {
        char key[32];
        snprintf(key, sizeof(key), "key:%d", i);
        struct kv_key k = key_of(key);
        for (int reads = 0; reads < 10; reads++)
            kv_store_read(&view, &k);
    }
    evict(300);
    int often = 0;
    for (int i = 0; i < 1000; i += 2)
        often += is_there(i);
    ck_assert_int_ge(often, 498);
}
END_TEST

START_TEST(keys_of_one_age_go_by_chance)
{
    use_rules(KV_EVICT_OLDEST, false, 5);
    fill_by_age(100, 0);
    evict(100);
    ck_assert(all_empty());
    use_rules(KV_EVICT_RANDOM, false, 5);
    fill_by_age(100, 1000);
    evict(100);
    ck_assert(all_empty());
}
END_TEST

START_TEST(keys_without_a_time_to_live_are_spared)
{
    static const enum kv_evict_order orders[] = {KV_EVICT_OLDEST, KV_EVICT_RAREST, KV_EVICT_RANDOM,
                                                 KV_EVICT_SOONEST};
    for (size_t o = 0; o < KV_ARRAY_LEN(orders); o++) {
        use_rules(orders[o], true, 5);
        for (int i = 0; i < 300; i++)
            set_numbered(i, "v", i % 3 == 0 ? view.now_ms + 1000000 + i : KV_NO_EXPIRY);
        evict(100);
        ck_assert(all_empty());
        ck_assert_uint_eq(result.keys, 100);
        for (int i = 0; i < 300; i++)
            ck_assert_int_eq(is_there(i), i % 3 != 0);
        kv_store_check(store);
    }
}
END_TEST

START_TEST(the_soonest_of_a_shard_goes_first_whatever_its_database)
{
    use_rules(KV_EVICT_SOONEST, true, 5);
    for (int i = 0; i < 200; i++) {
        view.db = (uint32_t)i % FIXTURE_DATABASES;
        set_numbered(i, "v", view.now_ms + 1000000 + (i * 37 % 200));
    }
    view.db = 2;
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        int64_t last = 0;
        for (;;) {
            int64_t next = kv_store_next_due_hint(store, shard);
            kv_store_evict_shard(&view, shard, &evictor, 1, NULL, &result);
            if (result.empty)
                break;
            ck_assert_int_ge(next, last);
            last = next;
        }
        ck_assert_int_eq(last == 0, 0);
    }
    ck_assert_uint_eq(result.keys, 200);
    ck_assert_uint_eq(view.db, 2);
}
END_TEST

START_TEST(due_keys_expire_instead)
{
    use_rules(KV_EVICT_OLDEST, false, 5);
    set_numbered(1, "v", view.now_ms + 10);
    view.now_ms += 10;
    evict(1);
    ck_assert_int_eq(heard.evicted, 0);
    ck_assert_int_eq(heard.expired, 1);
    ck_assert_uint_eq(kv_stat_read(&stats.expired_keys), 1);
    ck_assert_uint_eq(kv_stat_read(&stats.evicted_keys), 0);
}
END_TEST

START_TEST(all_databases_have_victims)
{
    use_rules(KV_EVICT_OLDEST, false, 5);
    for (uint32_t db = 0; db < FIXTURE_DATABASES; db++) {
        view.db = db;
        for (int i = 0; i < 20; i++)
            set_numbered(i, "v", KV_NO_EXPIRY);
    }
    view.db = 3;
    evict(20 * FIXTURE_DATABASES);
    ck_assert_uint_eq(view.db, 3);
    ck_assert(all_empty());
}
END_TEST

START_TEST(a_visit_stops_when_it_has_enough)
{
    use_rules(KV_EVICT_RAREST, false, 64);
    fill_by_age(500, 0);
    for (int i = 0; i < 50; i++) {
        uint64_t keys = result.keys;
        kv_store_evict_shard(&view, (uint32_t)i % FIXTURE_SHARDS, &evictor, 1, NULL, &result);
        ck_assert_uint_le(result.keys, keys + 1);
    }
    ck_assert_uint_gt(result.keys, 0);
    ck_assert_uint_eq(result.bytes % result.keys, 0);
}
END_TEST

START_TEST(what_was_old_may_be_young_at_once)
{
    use_rules(KV_EVICT_OLDEST, false, 5);
    fill_by_age(1000, 10000);
    evict(100);
    /* No score is as high any more as those that the evictor knows. */
    for (int i = 0; i < 1000; i++) {
        char key[32];
        snprintf(key, sizeof(key), "key:%d", i);
        struct kv_key k = key_of(key);
        kv_store_read(&view, &k);
    }
    uint64_t before = result.keys;
    for (uint32_t visits = 0; visits < 10; visits++)
        kv_store_evict_shard(&view, visits % FIXTURE_SHARDS, &evictor, 1, NULL, &result);
    ck_assert_uint_gt(result.keys, before);
}
END_TEST

START_TEST(large_values_are_left_for_later)
{
    static char big[100000];
    struct kv_evict_later later = {.count = KV_EVICT_LATER_MAX - 2};
    memset(big, 'b', sizeof(big) - 1);
    use_rules(KV_EVICT_RANDOM, false, 5);
    for (int i = 0; i < 5; i++)
        set_numbered(i, big, KV_NO_EXPIRY);
    set_numbered(5, "small", KV_NO_EXPIRY);
    for (uint32_t shard = 0; result.keys < 6; shard = (shard + 1) % FIXTURE_SHARDS)
        kv_store_evict_shard(&view, shard, &evictor, NO_LIMIT, &later, &result);
    ck_assert_uint_eq(later.count, KV_EVICT_LATER_MAX);
    ck_assert_uint_gt(result.bytes, 5 * sizeof(big));
    for (uint32_t i = KV_EVICT_LATER_MAX - 2; i < later.count; i++)
        kv_store_free_evicted(later.entries[i]);
}
END_TEST

START_TEST(watchers_see_an_eviction)
{
    struct kv_watch *watch;
    struct kv_key k = key_of("key:1");
    use_rules(KV_EVICT_OLDEST, false, 5);
    set_numbered(1, "v", KV_NO_EXPIRY);
    ck_assert_int_eq(kv_store_watch(&view, &k, &watch), KV_OK);
    ck_assert(!kv_store_watch_dirty(&view, watch));
    evict(1);
    ck_assert(kv_store_watch_dirty(&view, watch));
    kv_store_unwatch(store, watch);
}
END_TEST

START_TEST(random_fillings_end_empty)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("evict"));
    for (int round = 0; round < 40; round++) {
        enum kv_evict_order order = (enum kv_evict_order)kv_random_below(&r, 4);
        bool volatile_only = order == KV_EVICT_SOONEST || kv_random_below(&r, 2) == 0;
        use_rules(order, volatile_only, 1 + (uint32_t)kv_random_below(&r, 70));
        uint64_t n = 1 + kv_random_below(&r, 2000);
        for (uint64_t i = 0; i < n; i++) {
            view.db = (uint32_t)kv_random_below(&r, FIXTURE_DATABASES);
            int64_t expiry = view.now_ms + 1 + (int64_t)kv_random_below(&r, 5000);
            if (!volatile_only && kv_random_below(&r, 2) == 0)
                expiry = KV_NO_EXPIRY;
            set_numbered((int)i, "v", expiry);
            view.now_ms += (int64_t)kv_random_below(&r, 3);
        }
        while (!all_empty())
            continue;
        kv_store_check(store);
        uint64_t left = 0;
        for (uint32_t db = 0; db < FIXTURE_DATABASES; db++)
            left += kv_store_size(store, db);
        ck_assert_uint_eq(left, 0);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    store_begin(&u, "evict");
    unit_add(&u, the_longest_unused_go);
    unit_add(&u, more_samples_choose_better);
    unit_add(&u, the_least_often_used_go);
    unit_add(&u, keys_of_one_age_go_by_chance);
    unit_add(&u, keys_without_a_time_to_live_are_spared);
    unit_add(&u, the_soonest_of_a_shard_goes_first_whatever_its_database);
    unit_add(&u, due_keys_expire_instead);
    unit_add(&u, all_databases_have_victims);
    unit_add(&u, a_visit_stops_when_it_has_enough);
    unit_add(&u, what_was_old_may_be_young_at_once);
    unit_add(&u, large_values_are_left_for_later);
    unit_add(&u, watchers_see_an_eviction);
    unit_add(&u, random_fillings_end_empty);
    return unit_run(&u);
}
