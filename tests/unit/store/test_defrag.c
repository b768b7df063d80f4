/* store/defrag.c: entries, values, tables and indexes move while commands run between the slices;
 * content, times, watches and accounting stay, and tests/unit/store/test_model.c mixes slices into
 * its random operations. Where the allocator evacuates real slabs, the tests make thin ones first:
 * many keys, of which most are deleted. */
#include "fixture.h"

#define KEYS 20000
#define LEFT_ONE_IN 10 /* keys that stay */

#define BIG_BYTES 3000

static struct kv_key number_key(int i)
{
    static char text[32];
    int len = snprintf(text, sizeof(text), "key:%012d", i);
    return kv_store_key(store, kv_slice(text, (size_t)len));
}

/* A value that tells its key and its size; sizes from embedded to several KiB. */
static struct kv_slice number_value(int i)
{
    static char text[BIG_BYTES];
    size_t len = i % 40 == 0 ? 1200 + (size_t)i % 1800 : 40 + (size_t)i % 120;
    memset(text, 'a' + i % 26, len);
    snprintf(text, 16, "%d", i);
    return kv_slice(text, len);
}

static bool stays(int i)
{
    return i % LEFT_ONE_IN == 0;
}

static void fill(int from, int to)
{
    for (int i = from; i < to; i++) {
        struct kv_key k = number_key(i);
        int64_t expiry = i % 3 == 0 ? FIXTURE_NOW + 1000000 + i : KV_NO_EXPIRY;
        view.db = (uint32_t)i % 2;
        ck_assert_int_eq(kv_store_set(&view, &k, number_value(i), expiry, NULL), KV_OK);
    }
}

static void thin_out(int from, int to)
{
    for (int i = from; i < to; i++) {
        struct kv_key k = number_key(i);
        view.db = (uint32_t)i % 2;
        struct kv_entry *e = kv_store_peek(&view, &k);
        if (!stays(i) && e != NULL)
            kv_store_delete(&view, &k, e);
    }
}

static void assert_content(int from, int to)
{
    for (int i = from; i < to; i++) {
        struct kv_key k = number_key(i);
        view.db = (uint32_t)i % 2;
        struct kv_entry *e = kv_store_peek(&view, &k);
        ck_assert_int_eq(e != NULL, stays(i));
        if (e == NULL)
            continue;
        ck_assert(holds(e, number_value(i)));
        ck_assert_int_eq(kv_entry_expiry(e), i % 3 == 0 ? FIXTURE_NOW + 1000000 + i : KV_NO_EXPIRY);
    }
}

/* A whole walk over all shards in the shortest slices; `between` runs after each. */
static uint64_t walk_all(void (*between)(uint64_t slice))
{
    uint64_t slices = 0;
    (void)kv_mem_evacuation_begin();
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        struct kv_defrag_position position = {0};
        while (!kv_store_defrag_shard(&view, shard, &position, 0)) {
            slices++;
            if (between != NULL)
                between(slices);
        }
    }
    kv_mem_evacuation_end();
    return slices;
}

static uint64_t stat(const kv_stat *s)
{
    return kv_stat_read(s);
}

static void check_sometimes(uint64_t slice)
{
    if (slice % 16 == 0)
        kv_store_check(store);
}

START_TEST(blocks_move_and_nothing_else_changes)
{
    uint8_t before[20], after[20];
    fill(0, KEYS);
    thin_out(0, KEYS);
    kv_store_digest(&view, before);
    int64_t used[KV_MEM_OWNER_COUNT];
    for (int i = 0; i < KV_MEM_OWNER_COUNT; i++)
        used[i] = kv_mem_used((enum kv_mem_owner)i);
    uint64_t dirty = stat(&stats.dirty), hits = stat(&stats.hits);
    view.dirty = 0;
    ck_assert_uint_gt(walk_all(check_sometimes), 20);
    kv_store_check(store);
    kv_store_digest(&view, after);
    ck_assert_mem_eq(before, after, sizeof(before));
    assert_content(0, KEYS);
    for (int i = 0; i < KV_MEM_OWNER_COUNT; i++)
        ck_assert_int_eq(kv_mem_used((enum kv_mem_owner)i), used[i]);
    ck_assert_uint_gt(stat(&stats.defrag_hits), 10);
    ck_assert_uint_gt(stat(&stats.defrag_key_hits), 10);
    ck_assert_uint_le(stat(&stats.defrag_key_hits), stat(&stats.defrag_hits));
    ck_assert_uint_ge(stat(&stats.defrag_key_hits) + stat(&stats.defrag_key_misses),
                      KEYS / LEFT_ONE_IN);
    ck_assert_uint_eq(view.dirty, 0);
    ck_assert_uint_eq(stat(&stats.dirty), dirty);
    ck_assert_uint_eq(stat(&stats.hits), hits);
    ck_assert_int_eq(heard.changed + heard.expired, 0);
}
END_TEST

/* Entries of many addresses, so that the allocator wants some of them moved. */
START_TEST(access_clock_and_bytes_survive_a_move)
{
    fill(0, KEYS);
    thin_out(0, KEYS);
    view.now_ms = FIXTURE_NOW + 500000;
    walk_all(NULL);
    view.flags = KV_VIEW_NO_TOUCH;
    for (int i = 0; i < KEYS; i += LEFT_ONE_IN) {
        struct kv_key k = number_key(i);
        view.db = (uint32_t)i % 2;
        ck_assert_uint_eq(kv_entry_idle_seconds(kv_store_peek(&view, &k), view.now_ms), 500);
    }
}
END_TEST

START_TEST(a_string_that_is_being_sent_stays_where_it_is)
{
    enum { HELD = KEYS / 40 };
    static struct kv_bigstr *held[HELD];
    fill(0, KEYS);
    thin_out(0, KEYS);
    int count = 0;
    for (int i = 0; i < KEYS; i += 40) {
        struct kv_key k = number_key(i);
        view.db = (uint32_t)i % 2;
        held[count] = kv_entry_bigstr(kv_store_peek(&view, &k));
        ck_assert_ptr_nonnull(held[count]);
        kv_bigstr_ref(held[count++]);
    }
    walk_all(NULL);
    for (int i = 0; i < count; i++) {
        struct kv_key k = number_key(i * 40);
        view.db = (uint32_t)(i * 40) % 2;
        ck_assert_ptr_eq(kv_entry_bigstr(kv_store_peek(&view, &k)), held[i]);
        kv_bigstr_unref(held[i]);
    }
    kv_store_check(store);
}
END_TEST

START_TEST(watches_see_no_change)
{
    enum { WATCHES = 500 };
    static struct kv_watch *watches[WATCHES];
    fill(0, KEYS);
    thin_out(0, KEYS);
    for (int i = 0; i < WATCHES; i++) {
        struct kv_key k = number_key(i * LEFT_ONE_IN);
        view.db = (uint32_t)(i * LEFT_ONE_IN) % 2;
        ck_assert_int_eq(kv_store_watch(&view, &k, &watches[i]), KV_OK);
    }
    walk_all(check_sometimes);
    for (int i = 0; i < WATCHES; i++) {
        ck_assert(!kv_store_watch_dirty(&view, watches[i]));
        struct kv_key k = number_key(i * LEFT_ONE_IN);
        view.db = (uint32_t)(i * LEFT_ONE_IN) % 2;
        if (i % 2 == 0)
            kv_store_changed(&view, &k, KV_EVENT_GENERIC, "test");
        ck_assert_int_eq(kv_store_watch_dirty(&view, watches[i]), i % 2 == 0);
        kv_store_unwatch(store, watches[i]);
    }
    kv_store_check(store);
}
END_TEST

static int grown;

static void grow_between(uint64_t slice)
{
    (void)slice;
    if (grown < 2 * KEYS) {
        fill(grown, grown + 200);
        thin_out(grown, grown + 100);
        grown += 200;
    }
}

/* Tables split and shrink, a database is emptied, two are exchanged: the position stays good. */
START_TEST(a_position_survives_whatever_happens_between_slices)
{
    fill(0, KEYS);
    thin_out(0, KEYS);
    grown = KEYS;
    walk_all(grow_between);
    while (grown < 2 * KEYS)
        grow_between(0);
    thin_out(KEYS, 2 * KEYS);
    assert_content(0, 2 * KEYS);
    struct kv_defrag_position position = {0};
    for (int i = 0; i < 7; i++)
        ck_assert(!kv_store_defrag_shard(&view, 0, &position, 0));
    kv_store_swap(&view, 0, 1);
    ck_assert(!kv_store_defrag_shard(&view, 0, &position, 0));
    kv_store_swap(&view, 0, 1);
    kv_store_garbage_free(kv_store_flush(&view, 0));
    while (!kv_store_defrag_shard(&view, 0, &position, UINT64_MAX))
        continue;
    kv_store_check(store);
    kv_store_garbage_free(kv_store_flush(&view, UINT32_MAX));
    position = (struct kv_defrag_position){0};
    ck_assert(kv_store_defrag_shard(&view, 0, &position, UINT64_MAX));
}
END_TEST

START_TEST(keys_expire_between_slices)
{
    fill(0, KEYS);
    thin_out(0, KEYS);
    struct kv_defrag_position position[FIXTURE_SHARDS] = {0};
    uint64_t removed = 0, expires = kv_store_expires(store, 0) + kv_store_expires(store, 1);
    for (int round = 0; round < 400; round++) {
        view.now_ms = FIXTURE_NOW + 1000000 + round * (KEYS / 400);
        for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
            bool more;
            if (kv_store_defrag_shard(&view, shard, &position[shard], 0))
                position[shard] = (struct kv_defrag_position){0};
            removed += kv_store_expire_shard(&view, shard, UINT64_MAX, &more);
        }
    }
    view.now_ms += KEYS;
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        bool more;
        removed += kv_store_expire_shard(&view, shard, UINT64_MAX, &more);
    }
    ck_assert_uint_eq(removed, expires);
    kv_store_check(store);
}
END_TEST

/* After most keys are gone the tables are as small as if the others had never been. */
START_TEST(tables_follow_their_keys)
{
    for (int i = 0; i < 10 * KEYS; i++) {
        struct kv_key k = number_key(i);
        ck_assert_int_eq(kv_store_set(&view, &k, KV_SLICE("v"), KV_NO_EXPIRY, NULL), KV_OK);
    }
    for (int i = 0; i < 10 * KEYS; i++) {
        struct kv_key k = number_key(i);
        if (!stays(i))
            kv_store_delete(&view, &k, kv_store_peek(&view, &k));
    }
    ck_assert_uint_eq(kv_store_size(store, 0), KEYS);
    ck_assert_uint_lt(kv_store_table_memory(store, 0), KEYS * 20);
}
END_TEST

START_TEST(a_deadline_that_has_passed_still_makes_progress)
{
    struct kv_defrag_position position = {0}, before;
    fill(0, 5000);
    bool done = false;
    for (uint64_t slices = 0; !done; slices++) {
        before = position;
        done = kv_store_defrag_shard(&view, 1, &position, 0);
        ck_assert(done || memcmp(&before, &position, sizeof(position)) != 0);
        ck_assert_uint_lt(slices, 5000);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    store_begin(&u, "defrag");
    unit_add(&u, blocks_move_and_nothing_else_changes);
    unit_add(&u, access_clock_and_bytes_survive_a_move);
    unit_add(&u, a_string_that_is_being_sent_stays_where_it_is);
    unit_add(&u, watches_see_no_change);
    unit_add(&u, a_position_survives_whatever_happens_between_slices);
    unit_add(&u, keys_expire_between_slices);
    unit_add(&u, tables_follow_their_keys);
    unit_add(&u, a_deadline_that_has_passed_still_makes_progress);
    return unit_run(&u);
}
