/* store/collection.h: bytes beside keys beside naive byte arrays, around the bounds of layouts; the
 * failure sweep; large collections in the place of small ones and back. The bytes are those of a
 * packed list with one string, so that kv_store_check can read them. */
#include "fixture.h"
#include "store/collection.h"

#define LIST_MAX 6000
#define WRAP 20 /* at least the bytes around the string of a list */

static struct kv_random rng;

/* A list of `len` bytes in all with one string, lengths of which there is none being rounded down.
 * Returns its length. */
static size_t make_list(uint8_t *to, size_t len, char fill)
{
    static char text[LIST_MAX];
    struct kv_needle n;
    size_t bytes = len - KV_PACKED_EMPTY;
    memset(text, fill, sizeof(text));
    do
        kv_needle_init(&n, kv_slice(text, bytes--));
    while (kv_needle_bytes(&n) > len - KV_PACKED_EMPTY);
    const uint8_t *end = kv_packed_put(to + KV_PACKED_HEAD, &n);
    kv_packed_seal(to, (size_t)(end - to) + 1, 1);
    return (size_t)(end - to) + 1;
}

static void put(const char *key, const uint8_t *list, size_t len, int64_t expiry)
{
    struct kv_key k = key_of(key);
    struct kv_entry *e = kv_store_write(&view, &k);
    uint8_t *bytes;
    ck_assert_int_eq(
        kv_store_put_bytes(&view, &k, &e, KV_TYPE_LIST, KV_ENC_LISTPACK, len, expiry, &bytes),
        KV_OK);
    memcpy(bytes, list, len);
    ck_assert_ptr_eq(e, kv_store_peek(&view, &k));
}

static void assert_bytes(const char *key, const uint8_t *list, size_t len)
{
    size_t have_len;
    const uint8_t *have = kv_entry_bytes(peek(key), &have_len);
    ck_assert_uint_eq(have_len, len);
    ck_assert_mem_eq(have, list, len);
}

/* --- splicing --- */

/* Turns what is there into `list` by one splice of the bytes between the common ends. */
static enum kv_err splice_to(const struct kv_key *k, const uint8_t *list, size_t len)
{
    struct kv_entry *e = kv_store_peek(&view, k);
    size_t old_len, front = 0, back = 0;
    uint8_t *old = kv_entry_bytes(e, &old_len);
    size_t shorter = KV_MIN(old_len, len);
    while (front < shorter && old[front] == list[front])
        front++;
    while (back < shorter - front && old[old_len - 1 - back] == list[len - 1 - back])
        back++;
    size_t insert = len - front - back;
    uint8_t *bytes;
    enum kv_err err = kv_store_splice(&view, k, &e, front, old_len - front - back, insert, &bytes);
    if (err == KV_OK)
        memcpy(bytes + front, list + front, insert);
    ck_assert_ptr_eq(e, kv_store_peek(&view, k));
    return err;
}

/* Lengths near those at which the layout of an entry changes, and others. */
static size_t random_len(void)
{
    static const size_t bounds[] = {KV_PACKED_EMPTY + 2, 255, 256, 1000, 1024, 2048, 4096};
    size_t len =
        kv_random_below(&rng, 2) == 0
            ? bounds[kv_random_below(&rng, KV_ARRAY_LEN(bounds))] + kv_random_below(&rng, 9)
            : KV_PACKED_EMPTY + 2 + kv_random_below(&rng, LIST_MAX - WRAP);
    return KV_MIN(len, (size_t)LIST_MAX - WRAP);
}

static void splice_series(const char *key, int64_t expiry)
{
    static uint8_t list[LIST_MAX];
    struct kv_key k = key_of(key);
    size_t len = make_list(list, random_len(), 'a');
    put(key, list, len, expiry);
    for (int step = 0; step < UNIT_ROUNDS(400); step++) {
        len = make_list(list, random_len(), (char)('a' + step % 26));
        ck_assert_int_eq(splice_to(&k, list, len), KV_OK);
        assert_bytes(key, list, len);
        ck_assert_int_eq(kv_entry_expiry(peek(key)), expiry);
        if (step % 20 == 0) {
            kv_store_check(store);
            assert_accounted();
        }
    }
    kv_store_check(store);
    assert_accounted();
}

START_TEST(splices_do_what_they_do_to_an_array)
{
    static const char long_key[] = "a key that is as long as this one is, and therefore takes part "
                                   "in where the bounds of the layouts lie";
    kv_random_init(&rng, unit_seed("splice"));
    splice_series("k", KV_NO_EXPIRY);
    splice_series(long_key, KV_NO_EXPIRY);
    splice_series("t", FIXTURE_NOW + 1000);
    struct kv_key k = key_of("k");
    struct kv_entry *e = peek("k");
    kv_store_delete(&view, &k, e);
}
END_TEST

START_TEST(a_block_of_its_own_shrinks_with_its_bytes)
{
    static uint8_t list[LIST_MAX];
    struct kv_key k = key_of("k");
    size_t len = make_list(list, 5900, 'x');
    put("k", list, len, KV_NO_EXPIRY);
    size_t large = kv_entry_memory(peek("k"));
    len = make_list(list, 1100, 'x');
    ck_assert_int_eq(splice_to(&k, list, len), KV_OK);
    ck_assert_ptr_nonnull(kv_entry_bigstr(peek("k")));
    ck_assert_uint_lt(kv_entry_memory(peek("k")), large / 2);
    len = make_list(list, 300, 'x');
    ck_assert_int_eq(splice_to(&k, list, len), KV_OK);
    ck_assert_ptr_null(kv_entry_bigstr(peek("k")));
    assert_bytes("k", list, len);
}
END_TEST

/* --- failing --- */

START_TEST(a_splice_without_memory_changes_nothing)
{
    static uint8_t from[LIST_MAX], to[LIST_MAX];
    static const size_t lens[] = {20, 200, 254, 256, 600, 1010, 1500, 5000, 1030, 900, 250, 30};
    struct kv_key k = key_of("k");
    for (size_t i = 0; i + 1 < KV_ARRAY_LEN(lens); i++) {
        size_t from_len = make_list(from, lens[i], 'f');
        size_t to_len = make_list(to, lens[i + 1], 't');
        put("k", from, from_len, FIXTURE_NOW + 99);
        for (uint64_t n = 1;; n++) {
            ck_assert_uint_lt(n, 20);
            kv_mem_fail_try(n);
            enum kv_err err = splice_to(&k, to, to_len);
            kv_mem_fail_try(0);
            if (err == KV_OK)
                break;
            assert_bytes("k", from, from_len);
            kv_store_check(store);
            assert_accounted();
        }
        assert_bytes("k", to, to_len);
        kv_store_check(store);
    }
}
END_TEST

static enum kv_err put_any(const struct kv_key *k, size_t len, bool due)
{
    static uint8_t list[LIST_MAX];
    struct kv_entry *e = kv_store_peek(&view, k);
    uint8_t *bytes;
    enum kv_err err;
    size_t head = due ? KV_LISTPACKEX_HEAD : 0;
    len = make_list(list, len, 'n');
    if (due)
        err = kv_store_put_due_bytes(&view, k, &e, KV_TYPE_HASH, head + len, KV_KEEP_EXPIRY,
                                     FIXTURE_NOW + 5, &bytes);
    else
        err = kv_store_put_bytes(&view, k, &e, KV_TYPE_LIST, KV_ENC_LISTPACK, len, KV_KEEP_EXPIRY,
                                 &bytes);
    if (err == KV_OK)
        memcpy(bytes + head, list, len);
    return err;
}

START_TEST(putting_without_memory_changes_nothing)
{
    struct kv_key k = key_of("k");
    for (int i = 0; i < 12; i++) {
        bool due = i % 3 == 0, there = i % 2 == 0;
        struct kv_entry *e = kv_store_peek(&view, &k);
        if (e != NULL)
            kv_store_delete(&view, &k, e);
        if (there)
            must_set("k", "a string", FIXTURE_NOW + 50);
        for (uint64_t n = 1;; n++) {
            ck_assert_uint_lt(n, 30);
            kv_mem_fail_try(n);
            enum kv_err err = put_any(&k, i % 4 < 2 ? 100 : 3000, due);
            kv_mem_fail_try(0);
            kv_store_check(store);
            assert_accounted();
            if (err == KV_OK)
                break;
            if (there)
                assert_value("k", "a string");
            else
                assert_absent("k");
        }
        e = kv_store_peek(&view, &k);
        ck_assert_int_eq(kv_entry_member_due(e), due ? FIXTURE_NOW + 5 : KV_NOT_DUE);
        ck_assert_int_eq(kv_entry_expiry(e), there ? FIXTURE_NOW + 50 : KV_NO_EXPIRY);
    }
}
END_TEST

/* --- large ones --- */

static struct kv_dict *dict_of(int count, int64_t due)
{
    struct kv_dict *d = kv_dict_create(kv_store_hash_key(store));
    for (int i = 0; i < count; i++) {
        char name[20];
        struct kv_slice text = kv_slice(name, (size_t)sprintf(name, "member%d", i));
        ck_assert_int_eq(kv_dict_add(d, text, kv_dict_hash(d, text), NULL, due), KV_OK);
    }
    d->registered_due = due;
    return d;
}

START_TEST(a_large_collection_takes_the_place_of_anything)
{
    static uint8_t list[LIST_MAX];
    struct kv_key k = key_of("k");
    for (int i = 0; i < 4; i++) {
        int64_t due = i % 2 == 0 ? KV_NOT_DUE : FIXTURE_NOW + 7;
        if (i == 1)
            must_set("k", "string", FIXTURE_NOW + 9);
        else if (i > 1)
            put("k", list, make_list(list, 500, 'x'), KV_KEEP_EXPIRY);
        struct kv_entry *e = kv_store_write(&view, &k);
        struct kv_dict *d = dict_of(100, due);
        for (uint64_t n = 1;; n++) {
            kv_mem_fail_try(n);
            enum kv_err err =
                kv_store_put_large(&view, &k, &e, KV_TYPE_SET, KV_ENC_HASHTABLE, d, KV_KEEP_EXPIRY);
            kv_mem_fail_try(0);
            ck_assert_ptr_eq(e, kv_store_peek(&view, &k));
            if (err == KV_OK)
                break;
            /* It is still ours, and whatever was there is still there. */
            ck_assert_uint_eq(kv_dict_count(d), 100);
            ck_assert_int_eq(e != NULL, i != 0);
        }
        ck_assert_uint_eq(kv_entry_elements(e), 100);
        ck_assert_int_eq(kv_entry_member_due(e), due);
        kv_store_check(store);
        assert_accounted();
    }
    ck_assert_int_eq(kv_entry_expiry(peek("k")), FIXTURE_NOW + 9);
}
END_TEST

START_TEST(what_a_large_collection_costs_is_counted)
{
    struct kv_key k = key_of("k");
    struct kv_entry *e = NULL;
    ck_assert_int_eq(kv_store_put_large(&view, &k, &e, KV_TYPE_SET, KV_ENC_HASHTABLE,
                                        dict_of(1, KV_NOT_DUE), KV_NO_EXPIRY),
                     KV_OK);
    struct kv_dict *d = kv_entry_large(e);
    for (int i = 0; i < 2000; i++) {
        char name[20];
        struct kv_slice text = kv_slice(name, (size_t)sprintf(name, "%d", i));
        struct kv_footprint before = kv_store_large_begin(&view, e);
        ck_assert_int_eq(kv_dict_add(d, text, kv_dict_hash(d, text), NULL, KV_NOT_DUE), KV_OK);
        kv_store_large_end(&view, &k, e, before);
        if (i % 200 == 0)
            assert_accounted();
    }
    kv_store_check(store);
}
END_TEST

START_TEST(collections_are_moved_and_copied_like_values)
{
    static uint8_t list[LIST_MAX];
    size_t len = make_list(list, 2500, 'm');
    struct kv_key a = key_of("a"), b = key_of("b");
    struct kv_entry *e = NULL;
    put("a", list, len, FIXTURE_NOW + 3);
    ck_assert_int_eq(kv_store_copy(&view, peek("a"), 0, &b), KV_OK);
    assert_bytes("b", list, len);
    ck_assert_int_eq(kv_store_move(&view, &a, peek("a"), 3, &b), KV_OK);
    assert_absent("a");
    ck_assert_int_eq(kv_store_put_large(&view, &a, &e, KV_TYPE_SET, KV_ENC_HASHTABLE,
                                        dict_of(300, FIXTURE_NOW + 80), KV_NO_EXPIRY),
                     KV_OK);
    ck_assert_int_eq(kv_store_copy(&view, e, 0, &b), KV_OK);
    ck_assert_int_eq(kv_store_copy(&view, e, 2, &a), KV_OK);
    ck_assert_int_eq(kv_store_move(&view, &a, e, 3, &b), KV_OK);
    ck_assert_uint_eq(kv_store_member_expires(store, 0), 1);
    ck_assert_uint_eq(kv_store_member_expires(store, 2), 1);
    ck_assert_uint_eq(kv_store_member_expires(store, 3), 1);
    kv_store_check(store);
    assert_accounted();
    kv_store_swap(&view, 0, 2);
    kv_store_check(store);
    kv_store_garbage_free(kv_store_flush(&view, 3));
    ck_assert_uint_eq(kv_store_member_expires(store, 3), 0);
    kv_store_check(store);
    assert_accounted();
}
END_TEST

int main(void)
{
    struct unit u;
    store_begin(&u, "collection");
    unit_add(&u, splices_do_what_they_do_to_an_array);
    unit_add(&u, a_block_of_its_own_shrinks_with_its_bytes);
    unit_add(&u, a_splice_without_memory_changes_nothing);
    unit_add(&u, putting_without_memory_changes_nothing);
    unit_add(&u, a_large_collection_takes_the_place_of_anything);
    unit_add(&u, what_a_large_collection_costs_is_counted);
    unit_add(&u, collections_are_moved_and_copied_like_values);
    return unit_run(&u);
}
