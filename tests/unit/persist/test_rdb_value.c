/* Values and files through persist/rdb_value.h and rdb_file.h: every type, small and large, comes
 * back with the same digest; every allocation may fail; every cut is noticed. */
#include "persist/rdb_build.h"
#include "persist/rdb_file.h"
#include "persist/rdb_payload.h"
#include "persist/rdb_quick.h"
#include "store/fixture.h"
#include "store/zset.h"
#include <unistd.h>

#define DUE (FIXTURE_NOW + 100000)

/* Values are made from forms that any writer can put: plain members. */
static const uint8_t forms[] = {KV_RDB_STRING, KV_RDB_LIST,     KV_RDB_SET,     KV_RDB_ZSET,
                                KV_RDB_HASH,   KV_RDB_HASH_DUE, KV_RDB_SET_DUE, KV_RDB_ZSET_DUE,
                                KV_RDB_MODULE, KV_RDB_STREAM};

static void put_member(struct kv_rdb_writer *w, uint8_t form, unsigned i, bool numbers)
{
    char name[64];
    snprintf(name, sizeof(name), numbers ? "%u" : "member %u", i * 7919);
    if (form == KV_RDB_HASH_DUE)
        kv_rdb_put_len(w, i % 3 ? i + 1 : 0);
    kv_rdb_put_string(w, kv_slice_cstr(name));
    if (form == KV_RDB_HASH || form == KV_RDB_HASH_DUE)
        kv_rdb_put_string(w, kv_slice_cstr(i % 2 ? "some value of a field" : "12345"));
    if (form == KV_RDB_ZSET || form == KV_RDB_ZSET_DUE)
        kv_rdb_put_double(w, i * 0.25 - 3);
    if (form == KV_RDB_SET_DUE || form == KV_RDB_ZSET_DUE)
        kv_rdb_put_uint64(w, i % 3 ? DUE + i : 0);
}

/* A value of so many members, without form and tail. */
static void put_value(struct kv_rdb_writer *w, uint8_t form, unsigned count, bool numbers)
{
    static char big[5000];
    switch (form) {
    case KV_RDB_STRING:
        memset(big, 'x', sizeof(big));
        kv_rdb_put_string(w, kv_slice(big, KV_MIN((size_t)count * 40, sizeof(big))));
        return;
    case KV_RDB_MODULE:
        kv_rdb_put_len(w, 123456789012345678);
        kv_rdb_put_len(w, KV_RDB_MODULE_STRING);
        kv_rdb_put_string(w, kv_slice(big, count));
        kv_rdb_put_len(w, KV_RDB_MODULE_EOF);
        return;
    case KV_RDB_STREAM:
        kv_rdb_put_len(w, 0); /* nodes */
        for (int i = 0; i < 4; i++)
            kv_rdb_put_len(w, count); /* entries, last id; groups: */
        for (unsigned i = 0; i < count; i++) {
            kv_rdb_put_string(w, KV_SLICE("group"));
            for (int j = 0; j < 4; j++)
                kv_rdb_put_len(w, 0); /* last id, pending entries, consumers */
        }
        return;
    default:
        break;
    }
    if (form == KV_RDB_HASH_DUE)
        kv_rdb_put_uint64(w, DUE);
    kv_rdb_put_len(w, count);
    for (unsigned i = 0; i < count; i++)
        put_member(w, form, i, numbers);
}

static void put_payload_of(struct kv_rdb_writer *w, uint8_t form, unsigned count, bool numbers)
{
    kv_rdb_writer_init(w);
    kv_rdb_put_byte(w, form);
    put_value(w, form, count, numbers);
    kv_rdb_put_byte(w, KV_RDB_VERSION_DUE);
    kv_rdb_put_byte(w, 0);
    kv_rdb_put_uint64(w, kv_rdb_writer_checksum(w));
    ck_assert_int_eq(w->err, KV_OK);
}

static enum kv_err take(struct kv_slice payload, const char *name, int64_t expiry)
{
    struct kv_rdb_reader r;
    struct kv_key k = kv_store_key(store, kv_slice_cstr(name));
    struct kv_rdb_target t = {.key = &k, .entry = kv_store_write(&view, &k), .expiry = expiry};
    ck_assert(kv_rdb_payload_valid(payload));
    return kv_rdb_take_payload(payload, &r, &view, &t) ? KV_OK : r.err;
}

static struct kv_entry *entry_of(const char *name)
{
    struct kv_key k = kv_store_key(store, kv_slice_cstr(name));
    return kv_store_peek(&view, &k);
}

static void assert_same(const char *a, const char *b)
{
    uint8_t first[20], second[20];
    kv_entry_digest(entry_of(a), first);
    kv_entry_digest(entry_of(b), second);
    ck_assert_int_eq(memcmp(first, second, sizeof(first)), 0);
}

/* Once with limits under which collections are packed, once with those that make them large. */
static void set_limits(bool packed)
{
    struct kv_collection_limits limits = kv_collection_limits_default;
    if (!packed) {
        limits.hash_max_listpack_entries = 0;
        limits.set_max_intset_entries = limits.set_max_listpack_entries = 0;
        limits.zset_max_listpack_entries = 0;
        limits.list_max_listpack_size = 1;
    }
    kv_store_set_limits(store, &limits);
}

static void dump(const char *name, struct kv_rdb_writer *w)
{
    kv_rdb_writer_init(w);
    w->compress = true;
    kv_rdb_put_payload(w, entry_of(name));
    ck_assert_int_eq(w->err, KV_OK);
}

/* Both ways of writing an entry give the same bytes; tells whether the quick one took it. Room and
 * what was used of it are exact: a sanitizer sees what is written beside it. */
static bool quick_is_same(const struct kv_entry *e, uint32_t flags, bool compress)
{
    struct kv_rdb_quick q;
    struct kv_rdb_writer slow;
    if (!kv_rdb_quick_of(e, &q))
        return false;
    kv_rdb_writer_init(&slow);
    slow.compress = compress;
    kv_rdb_put_entry_head(&slow, &view, e, flags);
    kv_rdb_put_value(&slow, e);
    struct kv_slice bytes = kv_rdb_writer_bytes(&slow);
    ck_assert_uint_le(q.most, KV_RDB_QUICK_MAX);
    uint8_t *out = kv_mem_alloc(q.most, KV_MEM_OTHER);
    size_t len = (size_t)(kv_rdb_quick_write(&q, &view, e, flags, compress, out) - out);
    ck_assert_uint_eq(len, bytes.len);
    ck_assert_int_eq(memcmp(out, bytes.ptr, len), 0);
    ck_assert_uint_eq(slow.version, KV_RDB_VERSION_MIN);
    kv_mem_free(out, q.most, KV_MEM_OTHER);
    kv_rdb_writer_release(&slow);
    return true;
}

static bool quick_is_same_always(const struct kv_entry *e)
{
    bool quick = quick_is_same(e, 0, true);
    ck_assert_int_eq(quick_is_same(e, 0, false), quick);
    ck_assert_int_eq(quick_is_same(e, KV_RDB_WITH_IDLE, true), quick);
    ck_assert_int_eq(quick_is_same(e, KV_RDB_WITH_FREQUENCY | KV_RDB_WITH_IDLE, true), quick);
    return quick;
}

START_TEST(strings_are_written_quickly_and_the_same)
{
    static char bytes[9000];
    static const char *const numbers[] = {
        "",           "0",           "-1",           "127",
        "128",        "-129",        "32767",        "007",
        "32768",      "-32769",      "2147483647",   "-2147483648",
        "2147483648", "-2147483649", "12x",          "123456",
        "-",          "9999999999",  "99999999999",  "+5",
        " 1",         "1.5",         "-0",           "00",
        "1234567890", "-1234567890", "-99999999999", "9223372036854775807"};
    struct kv_random r;
    kv_random_init(&r, unit_seed("quick"));
    for (size_t i = 0; i < KV_ARRAY_LEN(numbers); i++) {
        must_set("a", numbers[i], i % 2 ? DUE : KV_NO_EXPIRY);
        ck_assert(quick_is_same_always(entry_of("a")));
        if (numbers[i][0] != '\0') {
            must_set(numbers[i], numbers[i], KV_NO_EXPIRY);
            ck_assert(quick_is_same_always(entry_of(numbers[i])));
        }
    }
    for (size_t len = 1; len < sizeof(bytes) - 1; len += 1 + len / 20) {
        for (int form = 0; form < 3; form++) { /* all the same, words, at random */
            for (size_t i = 0; i < len; i++)
                bytes[i] = form == 0   ? 'x'
                           : form == 1 ? "some words "[kv_random_below(&r, 40) % 11]
                                       : (char)(1 + kv_random_below(&r, 255));
            bytes[len] = '\0';
            must_set("b", bytes, len % 2 ? DUE : KV_NO_EXPIRY);
            ck_assert_int_eq(quick_is_same_always(entry_of("b")), len < KV_RDB_QUICK_MAX - 63);
            must_set(bytes, "value", KV_NO_EXPIRY);
            ck_assert_int_eq(quick_is_same_always(entry_of(bytes)), len < KV_RDB_QUICK_MAX - 68);
        }
    }
}
END_TEST

/* Packed ones, but for sets and those with due times. */
START_TEST(packed_collections_are_written_quickly_and_the_same)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(forms) * 4; i++) {
        struct kv_rdb_writer made;
        uint8_t form = forms[i / 4];
        bool numbers = i & 1, packed = i & 2;
        put_payload_of(&made, form, 7, numbers);
        set_limits(packed);
        ck_assert_int_eq(take(kv_rdb_writer_bytes(&made), "a", KV_NO_EXPIRY), KV_OK);
        enum kv_encoding encoding = kv_entry_encoding(entry_of("a"));
        bool quick = form == KV_RDB_STRING || encoding == KV_ENC_INTSET ||
                     (encoding == KV_ENC_LISTPACK && form != KV_RDB_SET);
        ck_assert_msg(quick_is_same_always(entry_of("a")) == quick, "form %u", form);
        kv_rdb_writer_release(&made);
    }
}
END_TEST

START_TEST(every_value_comes_back_in_any_form)
{
    static const unsigned counts[] = {1, 3, 100, 700};
    for (size_t i = 0; i < KV_ARRAY_LEN(forms) * KV_ARRAY_LEN(counts) * 8; i++) {
        struct kv_rdb_writer made, dumped;
        uint8_t form = forms[i / 8 / KV_ARRAY_LEN(counts)];
        put_payload_of(&made, form, counts[i / 8 % KV_ARRAY_LEN(counts)], i & 1);
        set_limits(i & 2);
        ck_assert_int_eq(take(kv_rdb_writer_bytes(&made), "a", KV_NO_EXPIRY), KV_OK);
        dump("a", &dumped);
        set_limits(i & 4);
        ck_assert_int_eq(take(kv_rdb_writer_bytes(&dumped), "b", DUE), KV_OK);
        assert_same("a", "b");
        ck_assert_int_eq(kv_entry_expiry(entry_of("b")), DUE);
        kv_rdb_writer_release(&dumped);
        kv_rdb_writer_release(&made);
        kv_store_check(store);
    }
}
END_TEST

static void delete_key(const char *name)
{
    struct kv_key k = kv_store_key(store, kv_slice_cstr(name));
    struct kv_entry *e = kv_store_peek(&view, &k);
    if (e != NULL)
        kv_store_delete(&view, &k, e);
}

START_TEST(every_allocation_of_reading_may_fail)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(forms) * 4; i++) {
        struct kv_rdb_writer made;
        enum kv_err err;
        uint64_t n = 0;
        put_payload_of(&made, forms[i / 4], 150, i & 1);
        set_limits(i & 2);
        do {
            /* What is there stays when the new value cannot be put. */
            struct kv_key k = kv_store_key(store, KV_SLICE("k"));
            ck_assert_int_eq(kv_store_set(&view, &k, KV_SLICE("old"), DUE, NULL), KV_OK);
            kv_mem_fail_try(++n);
            err = take(kv_rdb_writer_bytes(&made), "k", KV_NO_EXPIRY);
            kv_mem_fail_try(0);
            ck_assert(err == KV_OK || err == KV_ERR_NOMEM);
            if (err == KV_ERR_NOMEM)
                ck_assert_int_eq(kv_entry_type(entry_of("k")), KV_TYPE_STRING);
            kv_store_check(store);
            assert_accounted();
        } while (err != KV_OK);
        delete_key("k");
        kv_rdb_writer_release(&made);
    }
}
END_TEST

START_TEST(every_cut_is_noticed)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(forms); i++) {
        struct kv_rdb_writer made;
        put_payload_of(&made, forms[i], 20, false);
        struct kv_slice all = kv_rdb_writer_bytes(&made);
        for (size_t cut = 1; cut < all.len - 10; cut++) {
            struct kv_rdb_reader r;
            struct kv_rdb_loader l;
            struct kv_key k = kv_store_key(store, KV_SLICE("k"));
            struct kv_rdb_target t = {.key = &k, .expiry = KV_NO_EXPIRY};
            kv_rdb_reader_init(&r, kv_slice(all.ptr + 1, cut - 1));
            ck_assert(!kv_rdb_skip_value(&r, forms[i]));
            kv_rdb_reader_init(&r, kv_slice(all.ptr + 1, cut - 1));
            kv_rdb_loader_init(&l, &r, &view);
            ck_assert_int_eq(kv_rdb_take_value(&l, forms[i], &t), KV_RDB_FAILED);
            ck_assert_uint_le(r.fault_offset, cut);
            kv_rdb_loader_release(&l);
            ck_assert_ptr_null(entry_of("k"));
        }
        kv_rdb_writer_release(&made);
    }
}
END_TEST

/* Keys of all kinds in two databases. */
static void fill_store(void)
{
    for (view.db = 0; view.db < 2; view.db++) {
        for (size_t i = 0; i < KV_ARRAY_LEN(forms) * 2; i++) {
            struct kv_rdb_writer made;
            char name[32];
            snprintf(name, sizeof(name), "key %zu", i);
            put_payload_of(&made, forms[i / 2], i % 2 ? 400 : 5, view.db != 0);
            ck_assert_int_eq(take(kv_rdb_writer_bytes(&made), name, i % 3 ? KV_NO_EXPIRY : DUE),
                             KV_OK);
            kv_rdb_writer_release(&made);
        }
    }
    view.db = 0;
}

static void empty_store(void)
{
    struct kv_store_garbage *g = kv_store_flush(&view, UINT32_MAX);
    if (g != NULL)
        kv_store_garbage_free(g);
}

START_TEST(a_keyspace_comes_back_from_a_file)
{
    uint8_t before[20], after[20];
    struct kv_rdb_writer w;
    struct kv_rdb_notes notes = {.saved_at = 12345, .used_bytes = 678, .is_aof_base = true};
    fill_store();
    kv_store_digest(&view, before);
    kv_rdb_writer_init(&w);
    w.compress = true;
    ck_assert_int_eq(kv_rdb_save(&w, &view, &notes, NULL, KV_RDB_WITH_IDLE), KV_OK);
    empty_store();
    struct kv_rdb_reader r;
    struct kv_rdb_load l = {0};
    kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
    r.checksums = true;
    ck_assert_msg(kv_rdb_load(&r, &view, &l) == KV_OK, "%s", r.fault);
    ck_assert(kv_rdb_at_end(&r));
    kv_store_digest(&view, after);
    ck_assert_int_eq(memcmp(before, after, sizeof(before)), 0);
    ck_assert_uint_eq(l.keys, 2 * 2 * KV_ARRAY_LEN(forms));
    ck_assert_uint_eq(l.announced, l.keys);
    ck_assert_uint_eq(l.version, KV_RDB_VERSION_DUE);
    ck_assert_int_eq(l.notes.saved_at, 12345);
    ck_assert_uint_eq(l.notes.used_bytes, 678);
    ck_assert(l.notes.is_aof_base);
    kv_rdb_writer_release(&w);
}
END_TEST

START_TEST(what_a_replica_gets_keeps_what_is_due)
{
    struct kv_rdb_writer w;
    struct kv_rdb_notes notes = {0};
    struct kv_rdb_reader r;
    fill_store();
    kv_rdb_writer_init(&w);
    ck_assert_int_eq(kv_rdb_save(&w, &view, &notes, NULL, 0), KV_OK);
    view.now_ms = DUE + 1000000;
    for (int keep = 0; keep < 2; keep++) {
        struct kv_rdb_load l = {.keep_due = keep};
        empty_store();
        kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
        ck_assert_int_eq(kv_rdb_load(&r, &view, &l), KV_OK);
        ck_assert_uint_eq(l.keys + l.expired, 4 * KV_ARRAY_LEN(forms));
        ck_assert(keep == (l.expired == 0));
    }
    kv_rdb_writer_release(&w);
}
END_TEST

/* Random decimals as a listpack of one member: put as it is exactly when nothing has to change. */
START_TEST(scores_end_up_in_their_one_form)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("scores"));
    for (int i = 0; i < UNIT_ROUNDS(20000); i++) {
        char text[64], shortest[KV_DOUBLE_TEXT_MAX];
        uint8_t list[128];
        double score = 0;
        uint64_t whole = kv_random_next(&r) >> kv_random_below(&r, 64);
        uint64_t part = kv_random_next(&r) >> kv_random_below(&r, 64);
        snprintf(text, sizeof(text), "%s%llu.%llu%s", i & 1 ? "-" : "",
                 (unsigned long long)whole % 100000, (unsigned long long)part,
                 i % 7 == 0 ? "e5" : "");
        ck_assert(kv_double_parse(kv_slice_cstr(text), &score));
        struct kv_needle n;
        kv_needle_init(&n, KV_SLICE("m"));
        uint8_t *end = kv_packed_put(list + KV_PACKED_HEAD, &n);
        kv_needle_init(&n, kv_slice_cstr(text));
        end = kv_packed_put(end, &n);
        kv_packed_seal(list, (size_t)(end - list) + 1, 2);
        struct kv_slice one_form = kv_score_text(score, shortest);
        bool same = kv_slice_equal(one_form, kv_slice_cstr(text));
        ck_assert_msg(kv_rdb_scores_canonical(list) == same, "%s %.*s", text, (int)one_form.len,
                      one_form.ptr);
    }
}
END_TEST

static bool count_down(void *arg, const struct kv_rdb_load *l, uint64_t offset)
{
    int *left = arg;
    ck_assert_uint_gt(offset, 0);
    ck_assert_uint_le(l->keys, 1000);
    return --*left > 0;
}

START_TEST(loading_tells_its_progress_and_can_be_given_up)
{
    struct kv_rdb_writer w;
    struct kv_rdb_notes notes = {0};
    struct kv_rdb_reader r;
    int left = 1000, few = 3;
    fill_store();
    kv_rdb_writer_init(&w);
    ck_assert_int_eq(kv_rdb_save(&w, &view, &notes, NULL, 0), KV_OK);
    empty_store();
    struct kv_rdb_load all = {.progress = count_down, .progress_bytes = 100, .arg = &left};
    kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
    ck_assert_int_eq(kv_rdb_load(&r, &view, &all), KV_OK);
    ck_assert_int_lt(left, 990);
    empty_store();
    struct kv_rdb_load some = {.progress = count_down, .progress_bytes = 100, .arg = &few};
    kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
    ck_assert_int_eq(kv_rdb_load(&r, &view, &some), KV_ERR_CLOSED);
    ck_assert_int_eq(few, 0);
    kv_rdb_writer_release(&w);
}
END_TEST

START_TEST(every_allocation_of_a_file_may_fail)
{
    struct kv_rdb_writer w;
    struct kv_rdb_notes notes = {0};
    struct kv_rdb_reader r;
    enum kv_err err;
    uint64_t n = 0;
    fill_store();
    do {
        kv_rdb_writer_init(&w);
        w.compress = true;
        kv_mem_fail_try(++n);
        err = kv_rdb_save(&w, &view, &notes, NULL, 0);
        kv_mem_fail_try(0);
        ck_assert(err == KV_OK || err == KV_ERR_NOMEM);
        if (err != KV_OK)
            kv_rdb_writer_release(&w);
    } while (err != KV_OK);
    /* Steps: each load takes thousands. */
    for (n = 1;; n += 1 + n / 10) {
        struct kv_rdb_load l = {0};
        empty_store();
        kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
        kv_mem_fail_try(n);
        err = kv_rdb_load(&r, &view, &l);
        kv_mem_fail_try(0);
        ck_assert(err == KV_OK || err == KV_ERR_NOMEM);
        kv_store_check(store);
        if (err == KV_OK)
            break;
    }
    kv_rdb_writer_release(&w);
}
END_TEST

int main(void)
{
    struct unit u;
    kv_mem_init();
    unit_begin(&u, "rdb_value");
    unit_fixture(&u, store_setup, store_teardown);
    unit_add(&u, strings_are_written_quickly_and_the_same);
    unit_add(&u, packed_collections_are_written_quickly_and_the_same);
    unit_add(&u, every_value_comes_back_in_any_form);
    unit_add(&u, every_allocation_of_reading_may_fail);
    unit_add(&u, every_cut_is_noticed);
    unit_add(&u, scores_end_up_in_their_one_form);
    unit_add(&u, a_keyspace_comes_back_from_a_file);
    unit_add(&u, what_a_replica_gets_keeps_what_is_due);
    unit_add(&u, loading_tells_its_progress_and_can_be_given_up);
    unit_add(&u, every_allocation_of_a_file_may_fail);
    return unit_run(&u);
}
