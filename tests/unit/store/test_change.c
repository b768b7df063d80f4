/* Setting, editing, times to live, deleting, moving and copying: content, layout and blocks. */
#include "fixture.h"

static char pattern[3 * 1024 * 1024];

static struct kv_slice pattern_of(size_t len, int salt)
{
    ck_assert_uint_le(len, sizeof(pattern));
    for (size_t i = 0; i < len; i++)
        pattern[i] = (char)('a' + (i * 7 + (size_t)salt) % 23);
    return kv_slice(pattern, len);
}

static struct kv_entry *set_slice(struct kv_key *k, struct kv_slice value, int64_t expiry)
{
    ck_assert_int_eq(kv_store_set(&view, k, value, expiry, NULL), KV_OK);
    return kv_store_peek(&view, k);
}

START_TEST(a_string_is_encoded_by_its_bytes)
{
    static const struct {
        const char *text;
        enum kv_encoding encoding;
    } cases[] = {
        {"0", KV_ENC_INT},
        {"-1", KV_ENC_INT},
        {"9223372036854775807", KV_ENC_INT},
        {"-9223372036854775808", KV_ENC_INT},
        {"9223372036854775808", KV_ENC_EMBSTR},
        {"-9223372036854775809", KV_ENC_EMBSTR},
        {"", KV_ENC_EMBSTR},
        {"-", KV_ENC_EMBSTR},
        {"01", KV_ENC_EMBSTR},
        {"+1", KV_ENC_EMBSTR},
        {"-0", KV_ENC_EMBSTR},
        {"1.0", KV_ENC_EMBSTR},
        {"12345678901234567890123456789012345678901234", KV_ENC_EMBSTR},
        {"123456789012345678901234567890123456789012345", KV_ENC_RAW},
    };
    for (size_t i = 0; i < KV_ARRAY_LEN(cases); i++) {
        must_set("k", cases[i].text, KV_NO_EXPIRY);
        struct kv_entry *e = peek("k");
        assert_value("k", cases[i].text);
        ck_assert_int_eq(kv_entry_encoding(e), cases[i].encoding);
        ck_assert_uint_eq(kv_entry_string_len(e), strlen(cases[i].text));
        int64_t number;
        ck_assert_int_eq(kv_entry_string_int(e, &number), cases[i].encoding == KV_ENC_INT);
    }
    ck_assert_uint_eq(kv_store_size(store, 0), 1);
}
END_TEST

/* As setting does, for what a lookup has just not found. */
START_TEST(a_string_that_is_added_is_as_if_it_were_set)
{
    static const char *const values[] = {"", "7", "text", NULL};
    for (int i = 0; i < 4; i++) {
        struct kv_slice value = values[i] != NULL ? kv_slice_cstr(values[i]) : pattern_of(70000, 1);
        struct kv_key k = key_of("added"), other = key_of("adder");
        int64_t expiry = i % 2 == 0 ? KV_NO_EXPIRY : FIXTURE_NOW + 1000;
        ck_assert_ptr_null(kv_store_write(&view, &k));
        ck_assert_int_eq(kv_store_add(&view, &k, value, expiry), KV_OK);
        struct kv_entry *set = set_slice(&other, value, expiry), *added = kv_store_peek(&view, &k);
        ck_assert_int_eq(kv_entry_encoding(added), kv_entry_encoding(set));
        ck_assert_uint_eq(kv_entry_size(added), kv_entry_size(set));
        ck_assert_int_eq(kv_entry_expiry(added), expiry);
        ck_assert_uint_eq(kv_store_expires(store, 0), expiry == KV_NO_EXPIRY ? 0 : 2);
        uint8_t digests[2][20];
        kv_entry_digest(added, digests[0]);
        kv_entry_digest(set, digests[1]);
        ck_assert_mem_eq(digests[0], digests[1], 20);
        kv_store_check(store);
        kv_store_delete(&view, &k, added);
        kv_store_delete(&view, &other, kv_store_peek(&view, &other));
    }
}
END_TEST

START_TEST(sixteen_and_thirty_two_bytes_make_an_entry_of_fifty_six)
{
    struct kv_key k = key_of("0123456789abcdef");
    struct kv_entry *e = set_slice(&k, pattern_of(32, 0), KV_NO_EXPIRY);
    ck_assert_uint_eq(kv_entry_size(e), 56);
    ck_assert_uint_eq(kv_entry_memory(e), kv_mem_block_size(56));
    e = set_slice(&k, pattern_of(32, 0), FIXTURE_NOW + 1000);
    ck_assert_uint_eq(kv_entry_size(e), 64);
}
END_TEST

START_TEST(every_length_of_key_and_value_is_kept_with_and_without_expiry)
{
    static const size_t lens[] = {0,    1,    7,    8,    9,    16,   31,   32,   33,   44,
                                  45,   254,  255,  256,  257,  700,  990,  1000, 1005, 1006,
                                  1007, 1008, 1009, 1016, 1017, 1018, 1019, 1100, 4096, 70000};
    static char key_bytes[70000];
    memset(key_bytes, 'k', sizeof(key_bytes));
    for (size_t i = 0; i < KV_ARRAY_LEN(lens); i++) {
        struct kv_key k = kv_store_key(store, kv_slice(key_bytes, lens[i]));
        for (size_t j = 0; j < KV_ARRAY_LEN(lens); j++) {
            int64_t expiry = (i + j) % 2 ? FIXTURE_NOW + 5 + (int64_t)j : KV_NO_EXPIRY;
            struct kv_slice value = pattern_of(lens[j], (int)i);
            struct kv_entry *e = set_slice(&k, value, expiry);
            ck_assert(holds(e, value));
            ck_assert_int_eq(kv_entry_expiry(e), expiry);
            ck_assert(kv_slice_equal(kv_entry_key(e), kv_slice(k.ptr, k.len)));
            ck_assert_int_eq(kv_entry_bigstr(e) == NULL, kv_entry_size(e) <= KV_ENTRY_EMBED_MAX &&
                                                             !(e->flags & KV_ENTRY_POINTER));
        }
        kv_store_check(store);
    }
}
END_TEST

START_TEST(a_set_of_the_same_block_size_overwrites_in_place)
{
    struct kv_key k = key_of("key");
    struct kv_entry *e = set_slice(&k, pattern_of(40, 1), KV_NO_EXPIRY);
    ck_assert_ptr_eq(set_slice(&k, pattern_of(45, 2), KV_NO_EXPIRY), e);
    ck_assert_int_eq(kv_entry_encoding(e), KV_ENC_RAW);
    ck_assert_ptr_eq(set_slice(&k, pattern_of(38, 3), KV_NO_EXPIRY), e);
    ck_assert(holds(e, pattern_of(38, 3)));
    ck_assert_int_eq(kv_entry_encoding(e), KV_ENC_EMBSTR);
    struct kv_entry *moved = set_slice(&k, pattern_of(100, 3), KV_NO_EXPIRY);
    ck_assert_uint_eq(kv_mem_used(KV_MEM_ENTRY), kv_mem_block_size(kv_entry_size(moved)));
}
END_TEST

START_TEST(an_integer_is_set_in_place_and_keeps_its_expiry)
{
    struct kv_key k = key_of("counter");
    ck_assert_int_eq(kv_store_set_int(&view, &k, 1, FIXTURE_NOW + 10), KV_OK);
    struct kv_entry *e = peek("counter");
    ck_assert_int_eq(kv_store_set_int(&view, &k, INT64_MIN, KV_KEEP_EXPIRY), KV_OK);
    ck_assert_ptr_eq(peek("counter"), e);
    ck_assert_int_eq(kv_entry_expiry(e), FIXTURE_NOW + 10);
    assert_value("counter", "-9223372036854775808");
    ck_assert_int_eq(kv_store_set_int(&view, &k, 3, KV_NO_EXPIRY), KV_OK);
    ck_assert_int_eq(kv_entry_expiry(peek("counter")), KV_NO_EXPIRY);
    ck_assert_uint_eq(kv_store_expires(store, 0), 0);
}
END_TEST

START_TEST(an_integer_entry_is_updated_without_another_lookup)
{
    struct kv_key k = key_of("counter");
    must_set("counter", "41", FIXTURE_NOW + 60000);
    view.now_ms += 5000;
    struct kv_entry *e = peek("counter");
    kv_store_update_int(&view, e, -7);
    ck_assert_ptr_eq(kv_store_peek(&view, &k), e);
    assert_value("counter", "-7");
    ck_assert_int_eq(kv_entry_expiry(e), FIXTURE_NOW + 60000);
    ck_assert_uint_eq(kv_entry_idle_seconds(e, view.now_ms), 0);
}
END_TEST

START_TEST(a_number_can_be_set_as_text)
{
    struct kv_key k = key_of("k");
    must_set("k", "7", KV_NO_EXPIRY);
    ck_assert_int_eq(kv_store_set_text(&view, &k, KV_SLICE("8"), FIXTURE_NOW + 5), KV_OK);
    assert_value("k", "8");
    ck_assert_int_eq(kv_entry_encoding(peek("k")), KV_ENC_EMBSTR);
    ck_assert_int_eq(kv_entry_expiry(peek("k")), FIXTURE_NOW + 5);
    int64_t number;
    ck_assert(kv_entry_string_int(peek("k"), &number) && number == 8);
    ck_assert_int_eq(kv_store_set_text(&view, &k, pattern_of(45, 1), KV_KEEP_EXPIRY), KV_OK);
    ck_assert_int_eq(kv_entry_encoding(peek("k")), KV_ENC_RAW);
    ck_assert(holds(peek("k"), pattern_of(45, 1)));
}
END_TEST

START_TEST(set_tells_whether_the_key_existed)
{
    struct kv_key k = key_of("k");
    bool existed = true;
    ck_assert_int_eq(kv_store_set(&view, &k, KV_SLICE("a"), KV_KEEP_EXPIRY, &existed), KV_OK);
    ck_assert(!existed);
    ck_assert_int_eq(kv_entry_expiry(peek("k")), KV_NO_EXPIRY);
    ck_assert_int_eq(kv_store_set(&view, &k, KV_SLICE("b"), FIXTURE_NOW + 1, &existed), KV_OK);
    ck_assert(existed);
    view.now_ms += 1;
    ck_assert_int_eq(kv_store_set(&view, &k, KV_SLICE("c"), KV_KEEP_EXPIRY, &existed), KV_OK);
    ck_assert(!existed);
    ck_assert_int_eq(kv_entry_expiry(peek("k")), KV_NO_EXPIRY);
    ck_assert_int_eq(heard.expired, 1);
}
END_TEST

START_TEST(a_refreshed_expiry_keeps_one_record)
{
    struct kv_key k = key_of("session");
    must_set("session", "value", FIXTURE_NOW + 1000);
    struct kv_entry *e = peek("session");
    uint64_t bytes = kv_store_expiry_memory(store, 0);
    for (int i = 0; i < 100000; i++)
        ck_assert_int_eq(kv_store_set(&view, &k, KV_SLICE("value"), FIXTURE_NOW + 1000 + i, NULL),
                         KV_OK);
    ck_assert_ptr_eq(peek("session"), e);
    ck_assert_uint_eq(kv_store_expires(store, 0), 1);
    ck_assert_uint_eq(kv_store_expiry_memory(store, 0), bytes);
}
END_TEST

START_TEST(a_large_value_of_the_same_class_reuses_its_block)
{
    struct kv_key k = key_of("large");
    struct kv_entry *e = set_slice(&k, pattern_of(8192, 1), KV_NO_EXPIRY);
    struct kv_bigstr *large = kv_entry_bigstr(e);
    ck_assert_ptr_nonnull(large);
    ck_assert_ptr_eq(set_slice(&k, pattern_of(8200, 2), KV_NO_EXPIRY), e);
    ck_assert_ptr_eq(kv_entry_bigstr(e), large);
    ck_assert(holds(e, pattern_of(8200, 2)));
    /* Somebody else still reads the block: it stays as it is. */
    kv_bigstr_ref(large);
    set_slice(&k, pattern_of(8200, 3), KV_NO_EXPIRY);
    ck_assert_ptr_ne(kv_entry_bigstr(e), large);
    ck_assert(holds(e, pattern_of(8200, 3)));
    ck_assert(kv_slice_equal(kv_slice(large->data, large->len), pattern_of(8200, 2)));
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_OUTPUT), large->block_size);
    kv_bigstr_unref(large);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_OUTPUT), 0);
}
END_TEST

START_TEST(a_received_block_is_taken_over)
{
    struct kv_key k = key_of("k");
    struct kv_bigstr *block = kv_bigstr_try_create(20000, KV_MEM_CLIENT_INPUT);
    struct kv_bigstr *kept = block;
    memset(block->data, 'x', block->len);
    bool existed = true;
    ck_assert_int_eq(kv_store_set_block_take(&view, &k, &block, KV_NO_EXPIRY, &existed), KV_OK);
    ck_assert(!existed && block == NULL);
    ck_assert_ptr_eq(kv_entry_bigstr(peek("k")), kept);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_INPUT), 0);
    block = kv_bigstr_try_create(20000, KV_MEM_CLIENT_INPUT);
    kept = block;
    memset(block->data, 'y', block->len);
    ck_assert_int_eq(kv_store_set_block_take(&view, &k, &block, FIXTURE_NOW + 9, &existed), KV_OK);
    ck_assert(existed && block == NULL);
    ck_assert_ptr_eq(kv_entry_bigstr(peek("k")), kept);
    ck_assert_int_eq(kv_entry_expiry(peek("k")), FIXTURE_NOW + 9);
    /* A small one is copied beside the key and let go. */
    block = kv_bigstr_try_create(3, KV_MEM_CLIENT_INPUT);
    memcpy(block->data, "123", 3);
    ck_assert_int_eq(kv_store_set_block_take(&view, &k, &block, KV_NO_EXPIRY, NULL), KV_OK);
    ck_assert_ptr_null(block);
    ck_assert_int_eq(kv_entry_encoding(peek("k")), KV_ENC_INT);
    ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), 0);
}
END_TEST

START_TEST(key_and_value_may_lie_in_the_entry_that_is_changed)
{
    static const size_t lens[] = {10, 30, 44, 200, 300, 900, 5000};
    for (size_t i = 0; i < KV_ARRAY_LEN(lens); i++) {
        struct kv_key k = key_of("self");
        struct kv_entry *e = set_slice(&k, pattern_of(lens[i], 5), KV_NO_EXPIRY);
        struct kv_key inside = kv_store_key(store, kv_entry_key(e));
        char scratch[KV_INT_TEXT_MAX];
        struct kv_slice part = kv_entry_string(e, scratch);
        part.ptr += 3;
        part.len -= 5;
        ck_assert_int_eq(kv_store_set(&view, &inside, part, FIXTURE_NOW + 1, NULL), KV_OK);
        struct kv_slice expected = pattern_of(lens[i], 5);
        ck_assert(holds(peek("self"), kv_slice(expected.ptr + 3, expected.len - 5)));
    }
}
END_TEST

/* --- editing --- */

static struct kv_slice edit(const char *key, size_t len)
{
    struct kv_key k = key_of(key);
    char *bytes = NULL;
    ck_assert_int_eq(kv_store_edit_string(&view, &k, kv_store_write(&view, &k), len, &bytes),
                     KV_OK);
    ck_assert_int_eq(kv_entry_encoding(peek(key)), KV_ENC_RAW);
    ck_assert_uint_eq(kv_entry_string_len(peek(key)), len);
    return kv_slice(bytes, len);
}

START_TEST(editing_a_missing_key_creates_zero_bytes)
{
    static const size_t lens[] = {0, 1, 300, 2000, 100000};
    for (size_t i = 0; i < KV_ARRAY_LEN(lens); i++) {
        struct kv_key k = key_of("new");
        struct kv_slice bytes = edit("new", lens[i]);
        for (size_t at = 0; at < bytes.len; at++)
            ck_assert_int_eq(bytes.ptr[at], 0);
        ck_assert_int_eq(kv_entry_expiry(peek("new")), KV_NO_EXPIRY);
        kv_store_delete(&view, &k, peek("new"));
    }
}
END_TEST

START_TEST(a_string_grows_by_appends_from_one_byte_to_megabytes)
{
    static char expected[2500000];
    struct kv_random r;
    kv_random_init(&r, unit_seed("append"));
    must_set("log", "7", FIXTURE_NOW + 100);
    expected[0] = '7';
    size_t len = 1;
    while (len < sizeof(expected) - 70000) {
        size_t more = kv_random_below(&r, len < 3000 ? 40 : 70000);
        struct kv_slice bytes = edit("log", len + more);
        for (size_t i = len; i < len + more; i++)
            ck_assert_int_eq(bytes.ptr[i], 0);
        memset((char *)(uintptr_t)bytes.ptr + len, (int)('a' + more % 26), more);
        memset(expected + len, (int)('a' + more % 26), more);
        len += more;
        ck_assert(holds(peek("log"), kv_slice(expected, len)));
    }
    ck_assert_int_eq(kv_entry_expiry(peek("log")), FIXTURE_NOW + 100);
    kv_store_check(store);
}
END_TEST

START_TEST(editing_shortens_too_and_returns_beside_the_key)
{
    struct kv_key k = key_of("k");
    set_slice(&k, pattern_of(5000, 1), KV_NO_EXPIRY);
    static const size_t lens[] = {4000, 1500, 1000, 300, 255, 20, 0};
    for (size_t i = 0; i < KV_ARRAY_LEN(lens); i++) {
        edit("k", lens[i]);
        ck_assert(holds(peek("k"), pattern_of(lens[i], 1)));
        kv_store_check(store);
    }
    ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), 0);
}
END_TEST

START_TEST(editing_leaves_a_block_that_others_read)
{
    struct kv_key k = key_of("k");
    struct kv_bigstr *large = kv_entry_bigstr(set_slice(&k, pattern_of(3000, 1), KV_NO_EXPIRY));
    kv_bigstr_ref(large);
    struct kv_slice bytes = edit("k", 3000);
    memset((char *)(uintptr_t)bytes.ptr, 'z', bytes.len);
    ck_assert(kv_slice_equal(kv_slice(large->data, large->len), pattern_of(3000, 1)));
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_OUTPUT), large->block_size);
    kv_bigstr_unref(large);
}
END_TEST

/* --- times to live --- */

START_TEST(a_time_to_live_comes_changes_and_goes_at_every_size)
{
    for (size_t len = 0; len<1100; len += len> 980 && len < 1030 ? 1 : 9) {
        struct kv_key k = key_of("key");
        struct kv_entry *e = set_slice(&k, pattern_of(len, 3), KV_NO_EXPIRY);
        static const int64_t steps[] = {50, 20, KV_KEEP_EXPIRY, 70, 70, KV_NO_EXPIRY, KV_NO_EXPIRY};
        int64_t expected = KV_NO_EXPIRY;
        for (size_t i = 0; i < KV_ARRAY_LEN(steps); i++) {
            int64_t expiry = steps[i] < 0 ? steps[i] : FIXTURE_NOW + steps[i];
            expected = expiry == KV_KEEP_EXPIRY ? expected : expiry;
            ck_assert_int_eq(kv_store_set_expiry(&view, &k, &e, expiry), KV_OK);
            ck_assert_ptr_eq(e, kv_store_peek(&view, &k));
            ck_assert_int_eq(kv_entry_expiry(e), expected);
            ck_assert(holds(e, pattern_of(len, 3)));
            kv_store_check(store);
        }
    }
}
END_TEST

/* --- moving and copying --- */

START_TEST(a_move_to_another_database_keeps_the_block)
{
    struct kv_key k = key_of("k");
    must_set("k", "value", FIXTURE_NOW + 5);
    struct kv_entry *e = peek("k");
    ck_assert_int_eq(kv_store_move(&view, &k, e, 3, &k), KV_OK);
    assert_absent("k");
    view.db = 3;
    ck_assert_ptr_eq(peek("k"), e);
    ck_assert_uint_eq(kv_store_expires(store, 0), 0);
    ck_assert_uint_eq(kv_store_expires(store, 3), 1);
    ck_assert_int_eq(kv_store_move(&view, &k, e, 3, &k), KV_OK);
    ck_assert_ptr_eq(peek("k"), e);
}
END_TEST

START_TEST(a_rename_passes_a_large_value_on)
{
    struct kv_key from = key_of("from");
    struct kv_key to = key_of("to");
    struct kv_bigstr *large = kv_entry_bigstr(set_slice(&from, pattern_of(4000, 1), KV_NO_EXPIRY));
    set_slice(&to, pattern_of(6000, 2), FIXTURE_NOW + 3);
    ck_assert_int_eq(kv_store_move(&view, &from, peek("from"), 0, &to), KV_OK);
    assert_absent("from");
    ck_assert_ptr_eq(kv_entry_bigstr(peek("to")), large);
    ck_assert_int_eq(kv_entry_expiry(peek("to")), KV_NO_EXPIRY);
    ck_assert_uint_eq(kv_store_size(store, 0), 1);
    ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), large->block_size);
}
END_TEST

START_TEST(a_rename_to_a_longer_or_shorter_key_chooses_the_layout_anew)
{
    static char long_key[700];
    memset(long_key, 'l', sizeof(long_key));
    struct kv_key shorter = key_of("s");
    struct kv_key longer = kv_store_key(store, kv_slice(long_key, sizeof(long_key)));
    set_slice(&shorter, pattern_of(500, 1), FIXTURE_NOW + 4);
    ck_assert_ptr_null(kv_entry_bigstr(peek("s")));
    ck_assert_int_eq(kv_store_move(&view, &shorter, peek("s"), 0, &longer), KV_OK);
    struct kv_entry *e = kv_store_peek(&view, &longer);
    ck_assert_ptr_nonnull(kv_entry_bigstr(e));
    ck_assert(holds(e, pattern_of(500, 1)));
    kv_store_check(store);
    ck_assert_int_eq(kv_store_move(&view, &longer, e, 0, &shorter), KV_OK);
    ck_assert_ptr_null(kv_entry_bigstr(peek("s")));
    ck_assert(holds(peek("s"), pattern_of(500, 1)));
    ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), 0);
}
END_TEST

START_TEST(a_due_destination_is_expired_in_its_own_database)
{
    struct kv_key k = key_of("k");
    view.db = 2;
    must_set("k", "old", FIXTURE_NOW + 1);
    view.db = 0;
    must_set("k", "new", KV_NO_EXPIRY);
    view.now_ms += 5;
    ck_assert_int_eq(kv_store_copy(&view, peek("k"), 2, &k), KV_OK);
    ck_assert_int_eq(heard.expired, 1);
    ck_assert_uint_eq(heard.db, 2);
    ck_assert_uint_eq(view.db, 0);
    view.db = 2;
    assert_value("k", "new");
}
END_TEST

START_TEST(a_copy_shares_nothing)
{
    struct kv_key from = key_of("from");
    struct kv_key to = key_of("to");
    static const size_t lens[] = {5, 800, 5000};
    for (size_t i = 0; i < KV_ARRAY_LEN(lens); i++) {
        struct kv_entry *e = set_slice(&from, pattern_of(lens[i], 1), FIXTURE_NOW + 7);
        e->epoch = 3;
        ck_assert_int_eq(kv_store_copy(&view, e, 0, &to), KV_OK);
        ck_assert_int_eq(peek("to")->epoch, 0);
        ck_assert_int_eq(kv_entry_expiry(peek("to")), FIXTURE_NOW + 7);
        kv_store_delete(&view, &from, peek("from"));
        ck_assert(holds(peek("to"), pattern_of(lens[i], 1)));
    }
}
END_TEST

static void assert_memory(uint32_t db, size_t block_bytes, size_t used_bytes)
{
    struct kv_store_memory m;
    kv_store_memory(store, db, &m);
    ck_assert_int_eq(m.type_bytes[KV_TYPE_STRING], (int64_t)block_bytes);
    ck_assert_int_eq(m.slack_bytes, (int64_t)(block_bytes - used_bytes));
    for (int type = 1; type < KV_TYPE_COUNT; type++)
        ck_assert_int_eq(m.type_bytes[type], 0);
    kv_store_check(store);
    assert_accounted();
}

START_TEST(bytes_and_slack_are_known_per_database)
{
    struct kv_key k = key_of("0123456789abcdef");
    struct kv_key other = key_of("another key, longer than the first one");
    const size_t large = offsetof(struct kv_bigstr, data);
    assert_memory(0, 0, 0);
    set_slice(&k, pattern_of(32, 0), KV_NO_EXPIRY);
    assert_memory(0, kv_mem_block_size(56), 56);
    set_slice(&k, pattern_of(29, 0), KV_NO_EXPIRY); /* in place */
    assert_memory(0, kv_mem_block_size(53), 53);
    set_slice(&k, pattern_of(200, 0), KV_NO_EXPIRY); /* another block */
    assert_memory(0, kv_mem_block_size(224), 224);
    struct kv_entry *e = set_slice(&k, pattern_of(5000, 0), KV_NO_EXPIRY);
    size_t entry_bytes = kv_entry_size(e), block_bytes = kv_mem_block_size(entry_bytes);
    assert_memory(0, block_bytes + kv_mem_block_size(large + 5000), entry_bytes + large + 5000);
    set_slice(&k, pattern_of(5001, 0), KV_NO_EXPIRY); /* within the large block */
    assert_memory(0, block_bytes + kv_mem_block_size(large + 5000), entry_bytes + large + 5001);
    set_slice(&k, pattern_of(9000, 0), KV_NO_EXPIRY); /* another large block */
    assert_memory(0, block_bytes + kv_mem_block_size(large + 9000), entry_bytes + large + 9000);
    char *bytes;
    ck_assert_int_eq(kv_store_edit_string(&view, &k, e, 9001, &bytes), KV_OK);
    assert_memory(0, block_bytes + kv_entry_bigstr(e)->block_size, entry_bytes + large + 9001);

    ck_assert_int_eq(kv_store_set_expiry(&view, &k, &e, FIXTURE_NOW + 5), KV_OK);
    entry_bytes = kv_entry_size(e);
    assert_memory(0, kv_entry_memory(e), entry_bytes + large + 9001);
    ck_assert_int_eq(kv_store_copy(&view, e, 3, &other), KV_OK);
    view.db = 3;
    struct kv_entry *copied = kv_store_peek(&view, &other);
    size_t copied_bytes = kv_entry_memory(copied);
    assert_memory(3, copied_bytes, kv_entry_size(copied) + large + 9001);
    kv_store_swap(&view, 0, 3);
    assert_memory(0, copied_bytes, kv_entry_size(copied) + large + 9001);
    assert_memory(3, kv_entry_memory(e), entry_bytes + large + 9001);
    view.now_ms += 5;
    ck_assert_ptr_null(kv_store_peek(&view, &k)); /* due */
    assert_memory(3, 0, 0);
    view.db = 0;
    bool more;
    kv_store_expire_shard(&view, kv_store_shard_of(store, other.hash), UINT64_MAX, &more);
    assert_memory(0, 0, 0);
}
END_TEST

START_TEST(a_flush_takes_the_bytes_with_it)
{
    must_set("k", "value", KV_NO_EXPIRY);
    struct kv_store_garbage *garbage = kv_store_flush(&view, 0);
    struct kv_store_memory m;
    kv_store_memory(store, 0, &m);
    ck_assert_int_eq(m.type_bytes[KV_TYPE_STRING], 0);
    ck_assert_int_eq(m.slack_bytes, 0);
    ck_assert_int_gt(kv_mem_used(KV_MEM_ENTRY), 0);
    kv_store_garbage_free(garbage);
    assert_memory(0, 0, 0);
}
END_TEST

START_TEST(memory_returns_to_the_byte_after_everything_is_deleted)
{
    static char name[32];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 3000; i++) {
            snprintf(name, sizeof(name), "key:%d", i);
            struct kv_key k = key_of(name);
            view.db = (uint32_t)i % FIXTURE_DATABASES;
            set_slice(&k, pattern_of((size_t)(i * 7 % 2500), i),
                      i % 3 ? KV_NO_EXPIRY : FIXTURE_NOW + i + 1);
        }
        kv_store_check(store);
        for (int i = 0; i < 3000; i++) {
            snprintf(name, sizeof(name), "key:%d", i);
            struct kv_key k = key_of(name);
            view.db = (uint32_t)i % FIXTURE_DATABASES;
            kv_store_delete(&view, &k, kv_store_write(&view, &k));
        }
        ck_assert_int_eq(kv_mem_used_dataset(), dataset_before);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    store_begin(&u, "change");
    unit_add(&u, a_string_is_encoded_by_its_bytes);
    unit_add(&u, a_string_that_is_added_is_as_if_it_were_set);
    unit_add(&u, sixteen_and_thirty_two_bytes_make_an_entry_of_fifty_six);
    unit_add(&u, every_length_of_key_and_value_is_kept_with_and_without_expiry);
    unit_add(&u, a_set_of_the_same_block_size_overwrites_in_place);
    unit_add(&u, an_integer_is_set_in_place_and_keeps_its_expiry);
    unit_add(&u, an_integer_entry_is_updated_without_another_lookup);
    unit_add(&u, a_number_can_be_set_as_text);
    unit_add(&u, set_tells_whether_the_key_existed);
    unit_add(&u, a_refreshed_expiry_keeps_one_record);
    unit_add(&u, a_large_value_of_the_same_class_reuses_its_block);
    unit_add(&u, a_received_block_is_taken_over);
    unit_add(&u, key_and_value_may_lie_in_the_entry_that_is_changed);
    unit_add(&u, editing_a_missing_key_creates_zero_bytes);
    unit_add(&u, a_string_grows_by_appends_from_one_byte_to_megabytes);
    unit_add(&u, editing_shortens_too_and_returns_beside_the_key);
    unit_add(&u, editing_leaves_a_block_that_others_read);
    unit_add(&u, a_time_to_live_comes_changes_and_goes_at_every_size);
    unit_add(&u, a_move_to_another_database_keeps_the_block);
    unit_add(&u, a_rename_passes_a_large_value_on);
    unit_add(&u, a_rename_to_a_longer_or_shorter_key_chooses_the_layout_anew);
    unit_add(&u, a_due_destination_is_expired_in_its_own_database);
    unit_add(&u, a_copy_shares_nothing);
    unit_add(&u, bytes_and_slack_are_known_per_database);
    unit_add(&u, a_flush_takes_the_bytes_with_it);
    unit_add(&u, memory_returns_to_the_byte_after_everything_is_deleted);
    return unit_run(&u);
}
