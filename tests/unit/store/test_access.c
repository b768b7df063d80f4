/* The access clock: times and counters, their limits, and what a change of policy makes of them. */
#include "fixture.h"

static void use_mode(enum kv_access_mode mode, uint32_t log_factor, uint32_t decay_minutes)
{
    struct kv_access_rules rules = {mode, log_factor, decay_minutes};
    kv_store_set_access(store, &rules);
}

static uint32_t frequency(const char *key)
{
    return kv_store_frequency(&view, peek(key));
}

static uint64_t idle(const char *key)
{
    return kv_entry_idle_seconds(peek(key), view.now_ms);
}

static void read_times(const char *key, int n)
{
    struct kv_key k = key_of(key);
    for (int i = 0; i < n; i++)
        ck_assert_ptr_nonnull(kv_store_read(&view, &k));
}

static void change(const char *key)
{
    struct kv_key k = key_of(key);
    kv_store_changed(&view, &k, KV_EVENT_GENERIC, "test");
}

START_TEST(a_second_read_in_a_moment_writes_nothing)
{
    uint8_t before[64];
    must_set("k", "value", KV_NO_EXPIRY);
    struct kv_entry *e = peek("k");
    size_t size = kv_entry_size(e);
    view.now_ms += 500;
    memcpy(before, e, size);
    read_times("k", 1);
    ck_assert_int_ne(memcmp(before, e, size), 0);
    memcpy(before, e, size);
    view.now_ms++;
    read_times("k", 1);
    ck_assert_int_eq(memcmp(before, e, size), 0);
}
END_TEST

START_TEST(idle_time_is_right_to_the_second_at_any_moment)
{
    static const int64_t seconds[] = {0, 1, 2, 59, 3600, 86400, 100 * 86400, 194 * 86400};
    for (int start = 0; start < 3000; start += 37) {
        view.now_ms = FIXTURE_NOW + start;
        must_set("k", "v", KV_NO_EXPIRY);
        int64_t set_ms = view.now_ms;
        for (size_t i = 0; i < KV_ARRAY_LEN(seconds); i++) {
            view.now_ms = set_ms + seconds[i] * 1000;
            ck_assert_uint_eq(idle("k"), (uint64_t)seconds[i]);
        }
    }
}
END_TEST

START_TEST(a_clock_set_back_makes_no_key_old)
{
    must_set("k", "v", KV_NO_EXPIRY);
    view.now_ms -= 36 * 3600 * 1000;
    ck_assert_uint_eq(idle("k"), 0);
}
END_TEST

START_TEST(a_new_key_counts_five_and_each_use_one_more)
{
    use_mode(KV_ACCESS_LFU, 0, 1);
    must_set("k", "v", KV_NO_EXPIRY);
    ck_assert_uint_eq(frequency("k"), 5);
    read_times("k", 1);
    ck_assert_uint_eq(frequency("k"), 6);
    must_set("k", "w", KV_NO_EXPIRY);
    ck_assert_uint_eq(frequency("k"), 7);
    must_set("k", "a value that needs another block than the one before", KV_NO_EXPIRY);
    ck_assert_uint_eq(frequency("k"), 8);
    view.flags = KV_VIEW_NO_TOUCH;
    read_times("k", 10);
    must_set("k", "x", KV_NO_EXPIRY);
    ck_assert_uint_eq(frequency("k"), 8);
    view.flags = 0;
    read_times("k", 1000);
    ck_assert_uint_eq(frequency("k"), 255);
}
END_TEST

START_TEST(the_counter_is_logarithmic)
{
    use_mode(KV_ACCESS_LFU, 10, 1);
    must_set("k", "v", KV_NO_EXPIRY);
    read_times("k", 1000);
    ck_assert_uint_ge(frequency("k"), 10);
    ck_assert_uint_le(frequency("k"), 30);
}
END_TEST

START_TEST(the_counter_falls_with_time)
{
    use_mode(KV_ACCESS_LFU, 0, 2);
    must_set("k", "v", KV_NO_EXPIRY);
    read_times("k", 45);
    ck_assert_uint_eq(frequency("k"), 50);
    view.now_ms += 20 * 60 * 1000;
    ck_assert_uint_eq(frequency("k"), 40);
    ck_assert_uint_eq(frequency("k"), 40);
    read_times("k", 1);
    ck_assert_uint_eq(frequency("k"), 41);
    view.now_ms += 600 * 60 * 1000;
    ck_assert_uint_eq(frequency("k"), 0);
    use_mode(KV_ACCESS_LFU, 0, 0);
    ck_assert_uint_eq(frequency("k"), 41);
}
END_TEST

START_TEST(modification_alone_counts_under_lrm)
{
    use_mode(KV_ACCESS_LRM, 10, 1);
    must_set("k", "12", KV_NO_EXPIRY);
    view.now_ms += 30 * 1000;
    read_times("k", 3);
    struct kv_key k = key_of("k");
    struct kv_entry *e = kv_store_write(&view, &k);
    ck_assert_uint_eq(idle("k"), 30);
    kv_store_update_int(&view, e, 13);
    change("k");
    ck_assert_uint_eq(idle("k"), 0);
    view.now_ms += 10 * 1000;
    must_set("k", "v", KV_NO_EXPIRY);
    ck_assert_uint_eq(idle("k"), 0);
    change("absent");
}
END_TEST

START_TEST(times_written_before_lfu_read_as_new_keys_that_aged)
{
    must_set("old", "v", KV_NO_EXPIRY);
    view.now_ms += 3 * 60 * 1000 + 500;
    must_set("new", "v", KV_NO_EXPIRY);
    use_mode(KV_ACCESS_LFU, 0, 1);
    ck_assert_uint_eq(frequency("new"), 5);
    ck_assert_uint_eq(frequency("old"), 2);
    read_times("old", 1);
    ck_assert_uint_eq(frequency("old"), 3);
}
END_TEST

START_TEST(counters_written_before_lru_read_as_their_minute)
{
    use_mode(KV_ACCESS_LFU, 0, 1);
    must_set("k", "v", KV_NO_EXPIRY);
    read_times("k", 200);
    view.now_ms += 10 * 60 * 1000;
    use_mode(KV_ACCESS_LRU, 0, 1);
    ck_assert_uint_ge(idle("k"), 9 * 60);
    ck_assert_uint_le(idle("k"), 11 * 60);
    read_times("k", 1);
    ck_assert_uint_eq(idle("k"), 0);
}
END_TEST

START_TEST(the_clock_goes_with_the_key)
{
    struct kv_key from = key_of("from"), to = key_of("to"), copied = key_of("copied");
    for (int mode = KV_ACCESS_LRU; mode <= KV_ACCESS_LFU; mode++) {
        use_mode((enum kv_access_mode)mode, 0, 1);
        must_set("from", "v", KV_NO_EXPIRY);
        read_times("from", 20);
        uint32_t counter = frequency("from");
        view.now_ms += 50 * 1000;
        struct kv_entry *e = peek("from");
        /* With and without an expiry field the flags are written anew. */
        ck_assert_int_eq(kv_store_set_expiry(&view, &from, &e, view.now_ms + 99999), KV_OK);
        ck_assert_int_eq(kv_store_set_expiry(&view, &from, &e, KV_NO_EXPIRY), KV_OK);
        ck_assert_int_eq(kv_store_copy(&view, e, 0, &copied), KV_OK);
        ck_assert_int_eq(kv_store_move(&view, &from, e, 0, &to), KV_OK);
        if (mode == KV_ACCESS_LRU) {
            ck_assert_uint_eq(idle("to"), 50);
            ck_assert_uint_eq(idle("copied"), 0);
        } else {
            ck_assert_uint_ge(frequency("to"), counter - 1);
            ck_assert_uint_eq(frequency("copied"), 5);
        }
        kv_store_check(store);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    store_begin(&u, "access");
    unit_add(&u, a_second_read_in_a_moment_writes_nothing);
    unit_add(&u, idle_time_is_right_to_the_second_at_any_moment);
    unit_add(&u, a_clock_set_back_makes_no_key_old);
    unit_add(&u, a_new_key_counts_five_and_each_use_one_more);
    unit_add(&u, the_counter_is_logarithmic);
    unit_add(&u, the_counter_falls_with_time);
    unit_add(&u, modification_alone_counts_under_lrm);
    unit_add(&u, times_written_before_lfu_read_as_new_keys_that_aged);
    unit_add(&u, counters_written_before_lru_read_as_their_minute);
    unit_add(&u, the_clock_goes_with_the_key);
    return unit_run(&u);
}
