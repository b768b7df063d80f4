/* Lookups, expiry, watches, flush, swap, scan, digest: what is visible of the keyspace. */
#include "fixture.h"

static void set_numbered(int from, int to, int64_t expiry)
{
    char name[32];
    for (int i = from; i < to; i++) {
        snprintf(name, sizeof(name), "key:%d", i);
        must_set(name, "value", expiry);
    }
}

START_TEST(an_empty_store_costs_little_memory)
{
    struct kv_store_options options = {.shard_count = 256, .database_count = 16};
    int64_t before = kv_mem_used_total();
    struct kv_store *big = kv_store_create(&options);
    ck_assert_int_le(kv_mem_used_total() - before, 80 * 1024);
    ck_assert_int_eq(kv_mem_used_dataset(), dataset_before);
    kv_store_destroy(big);
}
END_TEST

START_TEST(reads_count_hits_and_misses_and_writes_do_not)
{
    struct kv_key k = key_of("k");
    ck_assert_ptr_null(kv_store_read(&view, &k));
    must_set("k", "v", KV_NO_EXPIRY);
    ck_assert_ptr_nonnull(kv_store_read(&view, &k));
    ck_assert_ptr_nonnull(kv_store_write(&view, &k));
    ck_assert_ptr_nonnull(kv_store_peek(&view, &k));
    view.db = 4;
    ck_assert_ptr_null(kv_store_read(&view, &k));
    ck_assert_uint_eq(kv_stat_read(&stats.hits), 1);
    ck_assert_uint_eq(kv_stat_read(&stats.misses), 2);
}
END_TEST

START_TEST(the_access_clock_moves_with_reads_and_writes_alone)
{
    struct kv_key k = key_of("k");
    must_set("k", "v", KV_NO_EXPIRY);
    view.now_ms += 90 * 1000;
    struct kv_entry *e = peek("k");
    ck_assert_uint_eq(kv_entry_idle_seconds(e, view.now_ms), 90);
    view.flags = KV_VIEW_NO_TOUCH;
    ck_assert_ptr_eq(kv_store_read(&view, &k), e);
    ck_assert_uint_eq(kv_entry_idle_seconds(e, view.now_ms), 90);
    view.flags = 0;
    ck_assert_ptr_eq(kv_store_read(&view, &k), e);
    ck_assert_uint_eq(kv_entry_idle_seconds(e, view.now_ms), 0);
    /* The clock knows at least what 24 bits of seconds would; then it goes round. */
    view.now_ms += ((int64_t)1 << 24) * 1000;
    ck_assert_uint_eq(kv_entry_idle_seconds(e, view.now_ms), 1 << 24);
    view.now_ms = FIXTURE_NOW + 90 * 1000 + ((int64_t)1 << 34) + 7000;
    ck_assert_uint_eq(kv_entry_idle_seconds(e, view.now_ms), 7);
}
END_TEST

START_TEST(prefetching_is_harmless_on_every_key)
{
    set_numbered(0, 500, KV_NO_EXPIRY);
    for (uint64_t i = 0; i < 3000; i++) {
        uint64_t hash = kv_store_hash(store, &i, sizeof(i));
        view.db = (uint32_t)i % FIXTURE_DATABASES;
        kv_store_prefetch_bucket(&view, hash);
        kv_store_prefetch_entry(&view, hash);
    }
}
END_TEST

/* --- announcing --- */

START_TEST(a_change_is_announced_and_counted_once)
{
    struct kv_key k = key_of("k");
    kv_store_changed(&view, &k, KV_EVENT_STRING, "set");
    ck_assert_uint_eq(view.dirty, 1);
    ck_assert_uint_eq(kv_stat_read(&stats.dirty), 1);
    ck_assert_int_eq(heard.changed, 1);
    ck_assert_str_eq(heard.event, "set");
    ck_assert_str_eq(heard.key, "k");
    ck_assert_int_eq(heard.event_class, KV_EVENT_STRING);
}
END_TEST

/* --- expiry --- */

START_TEST(a_due_key_is_removed_by_whoever_meets_it)
{
    struct kv_key k = key_of("k");
    must_set("k", "v", FIXTURE_NOW + 10);
    view.now_ms = FIXTURE_NOW + 9;
    ck_assert_ptr_nonnull(kv_store_read(&view, &k));
    view.now_ms = FIXTURE_NOW + 10;
    ck_assert_ptr_null(kv_store_read(&view, &k));
    ck_assert_uint_eq(kv_stat_read(&stats.misses), 1);
    ck_assert_int_eq(heard.expired, 1);
    ck_assert_int_eq(heard.changed, 1);
    ck_assert_str_eq(heard.event, "expired");
    ck_assert_int_eq(heard.event_class, KV_EVENT_EXPIRED);
    ck_assert_uint_eq(kv_stat_read(&stats.expired_keys), 1);
    ck_assert_uint_eq(view.dirty, 0);
    ck_assert_uint_eq(kv_store_size(store, 0), 0);
    ck_assert_int_eq(kv_mem_used_dataset(), dataset_before);
}
END_TEST

START_TEST(a_view_that_keeps_due_keys_does_not_show_them)
{
    struct kv_key k = key_of("k");
    bool more = true;
    must_set("k", "v", FIXTURE_NOW + 10);
    view.now_ms += 20;
    view.flags = KV_VIEW_NO_EXPIRE;
    ck_assert_ptr_null(kv_store_read(&view, &k));
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++)
        ck_assert_uint_eq(kv_store_expire_shard(&view, shard, UINT64_MAX, &more), 0);
    ck_assert_uint_eq(kv_store_size(store, 0), 1);
    char *bytes;
    ck_assert_int_eq(kv_store_edit_string(&view, &k, NULL, 3, &bytes), KV_OK);
    ck_assert(holds(peek("k"), kv_slice("\0\0", 3)));
    ck_assert_int_eq(kv_entry_expiry(peek("k")), KV_NO_EXPIRY);
    ck_assert_int_eq(heard.expired, 0);
}
END_TEST

START_TEST(a_slice_removes_all_that_is_due_in_all_databases)
{
    bool more = true;
    uint64_t removed = 0;
    for (view.db = 0; view.db < FIXTURE_DATABASES; view.db++) {
        set_numbered(0, 300, FIXTURE_NOW + 10 + view.db);
        set_numbered(300, 400, FIXTURE_NOW + 1000);
        set_numbered(400, 500, KV_NO_EXPIRY);
    }
    view.db = 1;
    view.now_ms = FIXTURE_NOW + 500;
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        removed += kv_store_expire_shard(&view, shard, UINT64_MAX, &more);
        ck_assert(!more);
        ck_assert_int_eq(kv_store_next_due_hint(store, shard), FIXTURE_NOW + 1000);
    }
    ck_assert_uint_eq(removed, 300 * FIXTURE_DATABASES);
    ck_assert_int_eq(heard.expired, 300 * (int)FIXTURE_DATABASES);
    ck_assert_uint_eq(view.db, 1);
    ck_assert_uint_eq(kv_stat_read(&stats.expire_slices), FIXTURE_SHARDS);
    for (uint32_t db = 0; db < FIXTURE_DATABASES; db++)
        ck_assert_uint_eq(kv_store_size(store, db), 200);
}
END_TEST

START_TEST(a_slice_past_its_deadline_stops_after_a_few)
{
    bool more = false;
    set_numbered(0, 1000, FIXTURE_NOW + 1);
    view.now_ms += 1;
    uint64_t removed = kv_store_expire_shard(&view, 0, 0, &more);
    ck_assert(more);
    ck_assert_uint_ge(removed, 1);
    ck_assert_uint_le(removed, 16);
    ck_assert_int_eq(kv_store_next_due_hint(store, 0), FIXTURE_NOW + 1);
}
END_TEST

START_TEST(the_hint_is_the_smallest_expiry_of_the_shard)
{
    struct kv_key k = key_of("k");
    uint32_t shard = kv_store_shard_of(store, k.hash);
    ck_assert_int_eq(kv_store_next_due_hint(store, shard), INT64_MAX);
    must_set("k", "v", FIXTURE_NOW + 50);
    view.db = 2;
    must_set("k", "v", FIXTURE_NOW + 30);
    ck_assert_int_eq(kv_store_next_due_hint(store, shard), FIXTURE_NOW + 30);
    kv_store_delete(&view, &k, peek("k"));
    ck_assert_int_eq(kv_store_next_due_hint(store, shard), FIXTURE_NOW + 50);
    view.db = 0;
    must_set("k", "v", KV_NO_EXPIRY);
    ck_assert_int_eq(kv_store_next_due_hint(store, shard), INT64_MAX);
}
END_TEST

START_TEST(the_mean_time_to_live_counts_keys_that_have_one)
{
    ck_assert_int_eq(kv_store_average_ttl_ms(store, 0, FIXTURE_NOW), 0);
    must_set("a", "v", FIXTURE_NOW + 100);
    must_set("b", "v", FIXTURE_NOW + 300);
    must_set("c", "v", KV_NO_EXPIRY);
    ck_assert_int_eq(kv_store_average_ttl_ms(store, 0, FIXTURE_NOW), 200);
    ck_assert_int_eq(kv_store_average_ttl_ms(store, 0, FIXTURE_NOW + 900), 0);
}
END_TEST

/* --- watches --- */

static struct kv_watch *watch(const char *key)
{
    struct kv_key k = key_of(key);
    struct kv_watch *w = NULL;
    ck_assert_int_eq(kv_store_watch(&view, &k, &w), KV_OK);
    return w;
}

static void change(const char *key)
{
    struct kv_key k = key_of(key);
    kv_store_changed(&view, &k, KV_EVENT_GENERIC, "test");
}

START_TEST(a_watch_sees_changes_of_its_key_in_its_database)
{
    struct kv_watch *early = watch("k");
    change("other");
    view.db = 1;
    change("k");
    view.db = 0;
    ck_assert(!kv_store_watch_dirty(&view, early));
    change("k");
    struct kv_watch *late = watch("k");
    ck_assert(kv_store_watch_dirty(&view, early));
    ck_assert(!kv_store_watch_dirty(&view, late));
    struct kv_key k = key_of("k");
    ck_assert(kv_watch_same(late, 0, &k));
    ck_assert(!kv_watch_same(late, 1, &k));
    ck_assert_uint_eq(kv_watch_shard(late), kv_store_shard_of(store, k.hash));
    ck_assert_uint_eq(kv_store_watched_keys(store), 1);
    kv_store_unwatch(store, early);
    ck_assert(!kv_store_watch_dirty(&view, late));
    kv_store_unwatch(store, late);
    ck_assert_int_eq(kv_mem_used(KV_MEM_WATCH), 0);
}
END_TEST

START_TEST(a_watched_key_that_becomes_due_is_dirty_removed_or_not)
{
    must_set("k", "v", FIXTURE_NOW + 5);
    struct kv_watch *w = watch("k");
    ck_assert(!kv_store_watch_dirty(&view, w));
    view.now_ms += 5;
    ck_assert(kv_store_watch_dirty(&view, w));
    assert_absent("k");
    ck_assert(kv_store_watch_dirty(&view, w));
    kv_store_unwatch(store, w);
}
END_TEST

START_TEST(a_key_that_was_due_at_the_start_counts_as_absent)
{
    must_set("a", "v", FIXTURE_NOW + 5);
    must_set("b", "v", FIXTURE_NOW + 5);
    view.now_ms += 5;
    struct kv_watch *removed = watch("a");
    ck_assert_int_eq(heard.expired, 1);
    ck_assert(!kv_store_watch_dirty(&view, removed));
    view.flags = KV_VIEW_NO_EXPIRE;
    struct kv_watch *kept = watch("b");
    ck_assert(!kv_store_watch_dirty(&view, kept));
    kv_store_unwatch(store, removed);
    kv_store_unwatch(store, kept);
}
END_TEST

START_TEST(a_flush_touches_watched_keys_that_exist)
{
    must_set("there", "v", KV_NO_EXPIRY);
    view.db = 1;
    struct kv_watch *elsewhere = watch("there");
    view.db = 0;
    struct kv_watch *there = watch("there");
    struct kv_watch *missing = watch("missing");
    kv_store_garbage_free(kv_store_flush(&view, 0));
    ck_assert(kv_store_watch_dirty(&view, there));
    ck_assert(!kv_store_watch_dirty(&view, missing));
    ck_assert(!kv_store_watch_dirty(&view, elsewhere));
    kv_store_unwatch(store, elsewhere);
    kv_store_unwatch(store, there);
    kv_store_unwatch(store, missing);
}
END_TEST

START_TEST(a_swap_touches_watched_keys_that_exist_in_either_database)
{
    must_set("in0", "v", KV_NO_EXPIRY);
    must_set("due", "v", FIXTURE_NOW + 1);
    struct kv_watch *in0 = watch("in0");
    struct kv_watch *missing = watch("missing");
    view.db = 2;
    struct kv_watch *in0_from_2 = watch("in0");
    struct kv_watch *due_from_2 = watch("due");
    view.db = 3;
    struct kv_watch *apart = watch("in0");
    view.now_ms += 1;
    kv_store_swap(&view, 2, 0);
    ck_assert(kv_store_watch_dirty(&view, in0));
    ck_assert(kv_store_watch_dirty(&view, in0_from_2));
    ck_assert(!kv_store_watch_dirty(&view, missing));
    ck_assert(!kv_store_watch_dirty(&view, apart));
    ck_assert(!kv_store_watch_dirty(&view, due_from_2));
    ck_assert_uint_eq(view.db, 3);
    kv_store_unwatch(store, in0);
    kv_store_unwatch(store, missing);
    kv_store_unwatch(store, in0_from_2);
    kv_store_unwatch(store, due_from_2);
    kv_store_unwatch(store, apart);
}
END_TEST

/* --- flush and swap --- */

START_TEST(a_flush_empties_one_database_or_all)
{
    for (view.db = 0; view.db < FIXTURE_DATABASES; view.db++)
        set_numbered(0, 100, view.db % 2 ? FIXTURE_NOW + 5 : KV_NO_EXPIRY);
    struct kv_store_garbage *one = kv_store_flush(&view, 1);
    ck_assert_ptr_nonnull(one);
    ck_assert_uint_eq(view.dirty, 100);
    ck_assert_uint_eq(kv_store_size(store, 1), 0);
    ck_assert_uint_eq(kv_store_expires(store, 1), 0);
    ck_assert_uint_eq(kv_store_size(store, 2), 100);
    ck_assert_ptr_null(kv_store_flush(&view, 1));
    view.db = 1;
    set_numbered(0, 10, KV_NO_EXPIRY);
    struct kv_store_garbage *all = kv_store_flush(&view, UINT32_MAX);
    kv_store_check(store);
    for (uint32_t db = 0; db < FIXTURE_DATABASES; db++)
        ck_assert_uint_eq(kv_store_size(store, db), 0);
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++)
        ck_assert_int_eq(kv_store_next_due_hint(store, shard), INT64_MAX);
    kv_store_garbage_free(one);
    kv_store_garbage_free(all);
    ck_assert_int_eq(kv_mem_used_dataset(), dataset_before);
    kv_store_garbage_free(kv_store_flush(&view, UINT32_MAX));
}
END_TEST

START_TEST(a_swap_exchanges_databases_used_or_not)
{
    must_set("a", "zero", FIXTURE_NOW + 5);
    kv_store_swap(&view, 0, 3);
    assert_absent("a");
    view.db = 3;
    assert_value("a", "zero");
    kv_store_check(store);
    kv_store_swap(&view, 3, 4);
    view.db = 4;
    assert_value("a", "zero");
    kv_store_swap(&view, 4, 4);
    assert_value("a", "zero");
    ck_assert_uint_eq(kv_store_expires(store, 4), 1);
    ck_assert_uint_eq(view.dirty, 2);
}
END_TEST

/* --- visiting --- */

struct seen {
    unsigned char times[2000];
    int total;
};

static void note_seen(struct kv_entry *e, void *arg)
{
    struct seen *seen = arg;
    struct kv_slice key = kv_entry_key(e);
    seen->total++;
    int64_t number;
    ck_assert(kv_int_parse(kv_slice(key.ptr + 4, key.len - 4), &number));
    seen->times[number]++;
}

START_TEST(a_scan_meets_every_lasting_key_once_while_others_come_and_go)
{
    struct seen seen = {.total = 0};
    char name[32];
    set_numbered(0, 1000, KV_NO_EXPIRY);
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        uint64_t position = 0;
        for (int step = 0; position != KV_TABLE_POSITION_END; step++) {
            position = kv_store_scan_shard(&view, shard, position, 7, note_seen, &seen);
            ck_assert_uint_le(position, KV_TABLE_POSITION_END);
            if (step % 40 < 20) {
                set_numbered(1000 + step * 10 % 1000, 1000 + step * 10 % 1000 + 10, KV_NO_EXPIRY);
            } else {
                snprintf(name, sizeof(name), "key:%d", 1000 + step * 10 % 1000);
                struct kv_key k = key_of(name);
                struct kv_entry *e = kv_store_peek(&view, &k);
                if (e != NULL)
                    kv_store_delete(&view, &k, e);
            }
        }
    }
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(seen.times[i], 1);
}
END_TEST

START_TEST(visits_and_draws_skip_what_is_due)
{
    struct seen seen = {.total = 0};
    struct kv_random r;
    kv_random_init(&r, 5);
    set_numbered(0, 400, FIXTURE_NOW + 1);
    set_numbered(400, 500, KV_NO_EXPIRY);
    view.now_ms += 1;
    kv_store_each(&view, note_seen, &seen);
    ck_assert_int_eq(seen.total, 100);
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        kv_store_scan_shard(&view, shard, 0, UINT32_MAX, note_seen, &seen);
        ck_assert_uint_ge(kv_store_shard_size(store, shard, 0), 50);
    }
    ck_assert_int_eq(seen.total, 200);
    int drawn = 0;
    for (int i = 0; i < 400; i++) {
        struct kv_entry *e = kv_store_random(&view, (uint32_t)i % FIXTURE_SHARDS, &r);
        drawn += e != NULL;
        ck_assert(e == NULL || !kv_entry_due(e, view.now_ms));
    }
    ck_assert_int_ge(drawn, 380);
    view.db = 2;
    ck_assert_ptr_null(kv_store_random(&view, 0, &r));
    ck_assert_uint_eq(kv_store_scan_shard(&view, 0, 0, 10, note_seen, &seen),
                      KV_TABLE_POSITION_END);
}
END_TEST

/* --- digest --- */

struct digest {
    uint8_t bytes[20];
};

static struct digest digest(void)
{
    struct digest d;
    kv_store_digest(&view, d.bytes);
    return d;
}

static bool same(struct digest a, struct digest b)
{
    return memcmp(&a, &b, sizeof(a)) == 0;
}

START_TEST(a_digest_depends_on_content_and_on_nothing_else)
{
    struct digest zero = {{0}};
    ck_assert(same(digest(), zero));
    must_set("a", "1", KV_NO_EXPIRY);
    must_set("b", "2", KV_NO_EXPIRY);
    struct digest both = digest();
    kv_store_garbage_free(kv_store_flush(&view, 0));
    must_set("b", "2", KV_NO_EXPIRY);
    struct digest b_alone = digest();
    must_set("a", "1", KV_NO_EXPIRY);
    ck_assert(same(digest(), both));
    /* The same bytes in another encoding. */
    struct kv_key k = key_of("a");
    char *bytes;
    ck_assert_int_eq(kv_store_edit_string(&view, &k, peek("a"), 1, &bytes), KV_OK);
    ck_assert_int_eq(kv_entry_encoding(peek("a")), KV_ENC_RAW);
    ck_assert(same(digest(), both));
    must_set("a", "2", KV_NO_EXPIRY);
    must_set("b", "1", KV_NO_EXPIRY);
    ck_assert(!same(digest(), both));
    must_set("a", "1", FIXTURE_NOW + 1);
    must_set("b", "2", KV_NO_EXPIRY);
    ck_assert(!same(digest(), both));
    view.now_ms += 1;
    ck_assert(same(digest(), b_alone));
    kv_store_swap(&view, 0, 1);
    ck_assert(!same(digest(), b_alone));
}
END_TEST

/* --- mistakes of ours --- */

START_TEST(destroying_a_watched_store_is_a_mistake)
{
    watch("k");
    kv_store_destroy(store);
}
END_TEST

START_TEST(a_shard_count_that_is_no_power_of_two_is_a_mistake)
{
    struct kv_store_options options = {.shard_count = 3, .database_count = 1};
    kv_store_create(&options);
}
END_TEST

int main(void)
{
    struct unit u;
    store_begin(&u, "store");
    unit_add(&u, an_empty_store_costs_little_memory);
    unit_add(&u, reads_count_hits_and_misses_and_writes_do_not);
    unit_add(&u, the_access_clock_moves_with_reads_and_writes_alone);
    unit_add(&u, prefetching_is_harmless_on_every_key);
    unit_add(&u, a_change_is_announced_and_counted_once);
    unit_add(&u, a_due_key_is_removed_by_whoever_meets_it);
    unit_add(&u, a_view_that_keeps_due_keys_does_not_show_them);
    unit_add(&u, a_slice_removes_all_that_is_due_in_all_databases);
    unit_add(&u, a_slice_past_its_deadline_stops_after_a_few);
    unit_add(&u, the_hint_is_the_smallest_expiry_of_the_shard);
    unit_add(&u, the_mean_time_to_live_counts_keys_that_have_one);
    unit_add(&u, a_watch_sees_changes_of_its_key_in_its_database);
    unit_add(&u, a_watched_key_that_becomes_due_is_dirty_removed_or_not);
    unit_add(&u, a_key_that_was_due_at_the_start_counts_as_absent);
    unit_add(&u, a_flush_touches_watched_keys_that_exist);
    unit_add(&u, a_swap_touches_watched_keys_that_exist_in_either_database);
    unit_add(&u, a_flush_empties_one_database_or_all);
    unit_add(&u, a_swap_exchanges_databases_used_or_not);
    unit_add(&u, a_scan_meets_every_lasting_key_once_while_others_come_and_go);
    unit_add(&u, visits_and_draws_skip_what_is_due);
    unit_add(&u, a_digest_depends_on_content_and_on_nothing_else);
    unit_add_abort(&u, destroying_a_watched_store_is_a_mistake);
    unit_add_abort(&u, a_shard_count_that_is_no_power_of_two_is_a_mistake);
    return unit_run(&u);
}
