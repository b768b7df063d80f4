/* Entries as commands (persist/aof_base.h): the words of each type, the pieces of a collection,
 * failing allocations. That they make what they came from is shown by tests/server. */
#include "persist/aof_base.h"
#include "persist/rdb_payload.h"
#include "store/fixture.h"
#include "store/foreign.h"
#include "store/list.h"

static struct kv_key key;
static struct kv_entry *entry;

static void setup(void)
{
    store_setup();
    key = key_of("k");
    entry = NULL;
}

/* The commands of the entry as text: a line each, words in between blanks. */
static const char *lines_of_entry(void)
{
    static char text[65536];
    struct kv_rdb_writer w;
    size_t used = 0;
    kv_rdb_writer_init(&w);
    kv_aof_put_entry(&w, entry);
    ck_assert_int_eq(w.err, KV_OK);
    const char *p = (const char *)w.buf.ptr, *end = p + w.buf.len;
    while (p < end) {
        char *next;
        ck_assert_int_eq(*p, '*');
        unsigned long words = strtoul(p + 1, &next, 10);
        p = next + 2;
        for (unsigned long i = 0; i < words; i++) {
            ck_assert_int_eq(*p, '$');
            size_t len = strtoul(p + 1, &next, 10);
            ck_assert_uint_lt(used + len + 2, sizeof(text));
            memcpy(text + used, next + 2, len);
            used += len;
            text[used++] = i + 1 < words ? ' ' : '\n';
            p = next + 2 + len + 2;
        }
    }
    ck_assert_ptr_eq(p, end);
    text[used] = '\0';
    kv_rdb_writer_release(&w);
    return text;
}

static size_t count_of(const char *text, const char *what)
{
    size_t n = 0;
    for (const char *p = text; (p = strstr(p, what)) != NULL; p++)
        n++;
    return n;
}

START_TEST(strings_are_set)
{
    ck_assert_int_eq(kv_store_set(&view, &key, KV_SLICE("12"), KV_NO_EXPIRY, NULL), KV_OK);
    entry = kv_store_peek(&view, &key);
    ck_assert_str_eq(lines_of_entry(), "SET k 12\n");
    ck_assert_int_eq(kv_store_set(&view, &key, KV_SLICE("a b"), FIXTURE_NOW + 5, NULL), KV_OK);
    entry = kv_store_peek(&view, &key);
    ck_assert_str_eq(lines_of_entry(), "SET k a b\nPEXPIREAT k 1700000000005\n");
}
END_TEST

START_TEST(lists_come_in_pieces_in_their_order)
{
    for (unsigned count = 1; count < 300; count++) {
        char want[8192] = "", digits[16];
        entry = kv_store_peek(&view, &key);
        snprintf(digits, sizeof(digits), "%u", count - 1);
        struct kv_slice item = kv_slice_cstr(digits);
        ck_assert_int_eq(kv_store_list_push(&view, &key, &entry, KV_LIST_TAIL, &item, 1), KV_OK);
        for (unsigned i = 0; i < count; i++)
            snprintf(want + strlen(want), sizeof(want) - strlen(want), "%s %u",
                     i % KV_AOF_BASE_ITEMS != 0 ? ""
                     : i == 0                   ? "RPUSH k"
                                                : "\nRPUSH k",
                     i);
        strcat(want, "\n");
        ck_assert_str_eq(lines_of_entry(), want);
    }
}
END_TEST

static void take_value(uint8_t form, void (*put)(struct kv_rdb_writer *w, unsigned i),
                       unsigned count)
{
    struct kv_rdb_writer w;
    struct kv_rdb_reader r;
    struct kv_rdb_loader l;
    struct kv_rdb_target t = {.key = &key, .expiry = KV_NO_EXPIRY};
    t.entry = kv_store_write(&view, &key);
    kv_rdb_writer_init(&w);
    if (form == KV_RDB_HASH_DUE)
        kv_rdb_put_uint64(&w, FIXTURE_NOW + 100);
    kv_rdb_put_len(&w, count);
    for (unsigned i = 0; i < count; i++)
        put(&w, i);
    kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
    kv_rdb_loader_init(&l, &r, &view);
    ck_assert_int_eq(kv_rdb_take_value(&l, form, &t), KV_RDB_PUT);
    kv_rdb_loader_release(&l);
    kv_rdb_writer_release(&w);
    entry = kv_store_peek(&view, &key);
}

static void put_due_field(struct kv_rdb_writer *w, unsigned i)
{
    kv_rdb_put_len(w, i % 2); /* every second one is due at the first time of all */
    kv_rdb_put_int(w, i);
    kv_rdb_put_string(w, KV_SLICE("v"));
}

static void put_due_member(struct kv_rdb_writer *w, unsigned i)
{
    kv_rdb_put_int(w, i);
    kv_rdb_put_uint64(w, i % 2 ? FIXTURE_NOW + 100 : 0);
}

static void put_due_scored(struct kv_rdb_writer *w, unsigned i)
{
    kv_rdb_put_int(w, i);
    kv_rdb_put_double(w, i / 2.0);
    kv_rdb_put_uint64(w, i % 2 ? FIXTURE_NOW + 100 : 0);
}

START_TEST(due_times_follow_their_members)
{
    take_value(KV_RDB_HASH_DUE, put_due_field, 2);
    ck_assert_str_eq(lines_of_entry(), "HSET k 0 v 1 v\nHPEXPIREAT k 1700000000100 FIELDS 1 1\n");
    take_value(KV_RDB_SET_DUE, put_due_member, 2);
    const char *lines = lines_of_entry();
    ck_assert_uint_eq(count_of(lines, "SADD k "), 1);
    ck_assert_uint_eq(count_of(lines, "SPEXPIREAT k 1700000000100 MEMBERS 1 1\n"), 1);
    take_value(KV_RDB_ZSET_DUE, put_due_scored, 2);
    ck_assert_str_eq(lines_of_entry(),
                     "ZADD k 0 0 0.5 1\nZPEXPIREAT k 1700000000100 MEMBERS 1 1\n");
}
END_TEST

START_TEST(large_collections_have_no_more_in_a_command)
{
    take_value(KV_RDB_HASH_DUE, put_due_field, 1000);
    ck_assert_int_eq(kv_entry_encoding(entry), KV_ENC_HASHTABLE);
    ck_assert_uint_eq(count_of(lines_of_entry(), "HSET k "), 16);
    ck_assert_uint_eq(count_of(lines_of_entry(), "HPEXPIREAT k "), 500);
}
END_TEST

START_TEST(foreign_values_are_restored)
{
    struct kv_foreign value = {
        .tag = KV_RDB_STREAM, .type_name = KV_SLICE("stream"), .payload = KV_SLICE("bytes")};
    struct kv_rdb_writer w;
    ck_assert_int_eq(
        kv_store_put_foreign(&view, &key, &entry, KV_TYPE_STREAM, &value, FIXTURE_NOW + 7), KV_OK);
    ck_assert_uint_eq(count_of(lines_of_entry(), "RESTORE k 1700000000007 "), 1);
    ck_assert_uint_eq(count_of(lines_of_entry(), "PEXPIREAT"), 0);
    for (uint64_t n = 1;; n++) {
        kv_rdb_writer_init(&w);
        kv_mem_fail_try(n);
        kv_aof_put_entry(&w, entry);
        kv_mem_fail_try(0);
        enum kv_err err = w.err;
        kv_rdb_writer_release(&w);
        if (err == KV_OK)
            break;
        ck_assert_int_eq(err, KV_ERR_NOMEM);
    }
}
END_TEST

START_TEST(a_database_is_selected)
{
    struct kv_rdb_writer w;
    kv_rdb_writer_init(&w);
    kv_aof_put_database(&w, 12);
    ck_assert_int_eq(memcmp(w.buf.ptr, "*2\r\n$6\r\nSELECT\r\n$2\r\n12\r\n", w.buf.len), 0);
    kv_rdb_writer_release(&w);
}
END_TEST

int main(void)
{
    struct unit u;
    kv_mem_init();
    unit_begin(&u, "aof_base");
    unit_fixture(&u, setup, store_teardown);
    unit_add(&u, strings_are_set);
    unit_add(&u, lists_come_in_pieces_in_their_order);
    unit_add(&u, due_times_follow_their_members);
    unit_add(&u, large_collections_have_no_more_in_a_command);
    unit_add(&u, foreign_values_are_restored);
    unit_add(&u, a_database_is_selected);
    return unit_run(&u);
}
