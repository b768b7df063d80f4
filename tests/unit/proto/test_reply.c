/* proto/reply.h: every kind of reply in RESP2 and in RESP3, byte for byte. */
#include "proto/reply.h"
#include "unit.h"
#include <math.h>

static struct kv_chunk_pool pool;
static struct kv_out out;
static char got[64 * 1024];

static void setup(void)
{
    kv_chunk_pool_init(&pool);
    kv_out_init(&out, &pool);
}

static void teardown(void)
{
    kv_out_release(&out);
    kv_chunk_pool_release(&pool);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}

static size_t take(void)
{
    size_t len = 0;
    kv_out_settle(&out);
    for (const struct kv_chunk *c = out.head; c != NULL; c = c->next) {
        memcpy(got + len, c->data + c->sent, c->len - c->sent);
        len += c->len - c->sent;
    }
    got[len] = '\0';
    kv_out_advance(&out, len);
    return len;
}

/* Runs the call in both protocols. */
#define BOTH(call, resp2, resp3)                                                                   \
    do {                                                                                           \
        out.resp = 2;                                                                              \
        call;                                                                                      \
        ck_assert_uint_eq(take(), strlen(resp2));                                                  \
        ck_assert_str_eq(got, resp2);                                                              \
        out.resp = 3;                                                                              \
        call;                                                                                      \
        ck_assert_uint_eq(take(), strlen(resp3));                                                  \
        ck_assert_str_eq(got, resp3);                                                              \
    } while (0)
#define SAME(call, text) BOTH(call, text, text)

START_TEST(simple_values)
{
    SAME(kv_reply_ok(&out), "+OK\r\n");
    SAME(kv_reply_status(&out, "QUEUED"), "+QUEUED\r\n");
    SAME(kv_reply_status(&out, ""), "+\r\n");
    SAME(KV_REPLY_RAW(&out, ":1\r\n"), ":1\r\n");
    SAME(kv_reply_int(&out, 0), ":0\r\n");
    SAME(kv_reply_int(&out, 9), ":9\r\n");
    SAME(kv_reply_int(&out, 10), ":10\r\n");
    SAME(kv_reply_int(&out, 99), ":99\r\n");
    SAME(kv_reply_int(&out, 100), ":100\r\n");
    SAME(kv_reply_int(&out, -1), ":-1\r\n");
    SAME(kv_reply_int(&out, INT64_MAX), ":9223372036854775807\r\n");
    SAME(kv_reply_int(&out, INT64_MIN), ":-9223372036854775808\r\n");
}
END_TEST

START_TEST(nulls_and_aggregates)
{
    BOTH(kv_reply_null(&out), "$-1\r\n", "_\r\n");
    BOTH(kv_reply_null_array(&out), "*-1\r\n", "_\r\n");
    SAME(kv_reply_array(&out, 0), "*0\r\n");
    SAME(kv_reply_array(&out, 123456), "*123456\r\n");
    BOTH(kv_reply_map(&out, 7), "*14\r\n", "%7\r\n");
    BOTH(kv_reply_set(&out, 3), "*3\r\n", "~3\r\n");
    BOTH(kv_reply_push(&out, 2), "*2\r\n", ">2\r\n");
    out.resp = 3;
    kv_reply_attribute(&out, 1);
    take();
    ck_assert_str_eq(got, "|1\r\n");
}
END_TEST

START_TEST(an_attribute_needs_resp3)
{
    kv_reply_attribute(&out, 1);
}
END_TEST

START_TEST(numbers)
{
    BOTH(kv_reply_double(&out, 1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
    BOTH(kv_reply_double(&out, 3), "$1\r\n3\r\n", ",3\r\n");
    BOTH(kv_reply_double(&out, INFINITY), "$3\r\ninf\r\n", ",inf\r\n");
    BOTH(kv_reply_double(&out, -INFINITY), "$4\r\n-inf\r\n", ",-inf\r\n");
    BOTH(kv_reply_bool(&out, true), ":1\r\n", "#t\r\n");
    BOTH(kv_reply_bool(&out, false), ":0\r\n", "#f\r\n");
    BOTH(kv_reply_bignum(&out, KV_SLICE("12345678901234567890")), "$20\r\n12345678901234567890\r\n",
         "(12345678901234567890\r\n");
    SAME(kv_reply_ldouble_bulk(&out, 2.25L), "$4\r\n2.25\r\n");
    SAME(kv_reply_bulk_int(&out, -42), "$3\r\n-42\r\n");
}
END_TEST

START_TEST(texts)
{
    SAME(kv_reply_text(&out, "hello"), "$5\r\nhello\r\n");
    SAME(kv_reply_slice(&out, kv_slice(NULL, 0)), "$0\r\n\r\n");
    BOTH(kv_reply_verbatim(&out, KV_SLICE("some text"), "txt"), "$9\r\nsome text\r\n",
         "=13\r\ntxt:some text\r\n");
    BOTH(kv_reply_verbatim(&out, KV_SLICE(""), "mkd"), "$0\r\n\r\n", "=4\r\nmkd:\r\n");
}
END_TEST

START_TEST(errors_stay_on_one_line)
{
    SAME(kv_reply_error_raw(&out, KV_SLICE("ERR no")), "-ERR no\r\n");
    SAME(kv_reply_error_raw(&out, KV_SLICE("ERR a\r\nb\nc")), "-ERR a  b c\r\n");
}
END_TEST

START_TEST(deferred_aggregates)
{
    struct kv_chunk *token;
    BOTH(token = kv_out_deferred_begin(&out); kv_reply_int(&out, 1);
         kv_reply_array_end(&out, token, 1), "*1\r\n:1\r\n", "*1\r\n:1\r\n");
    BOTH(token = kv_out_deferred_begin(&out); kv_reply_int(&out, 1);
         kv_reply_map_end(&out, token, 4), "*8\r\n:1\r\n", "%4\r\n:1\r\n");
    BOTH(token = kv_out_deferred_begin(&out); kv_reply_int(&out, 1);
         kv_reply_set_end(&out, token, 4), "*4\r\n:1\r\n", "~4\r\n:1\r\n");
}
END_TEST

/* Around the length up to which a bulk is written in one piece, and with a chunk that ends
 * anywhere. */
START_TEST(bulks_of_every_length)
{
    static char bytes[20000], expected[20064];
    static const size_t lens[] = {0, 1, 9, 10, 99, 100, 4095, 4096, 4097, 8192, 16383, 19999};
    for (size_t i = 0; i < sizeof(bytes); i++)
        bytes[i] = (char)(i * 13);
    for (size_t shift = 0; shift < 16500; shift += shift < 16200 ? 400 : 1) {
        for (size_t i = 0; i < KV_ARRAY_LEN(lens); i++) {
            kv_out_append(&out, bytes, shift);
            kv_reply_bulk(&out, bytes, lens[i]);
            size_t n = (size_t)sprintf(expected, "$%zu\r\n", lens[i]);
            memcpy(expected + n, bytes, lens[i]);
            memcpy(expected + n + lens[i], "\r\n", 2);
            ck_assert_uint_eq(take(), shift + n + lens[i] + 2);
            ck_assert_mem_eq(got + shift, expected, n + lens[i] + 2);
        }
    }
}
END_TEST

int main(void)
{
    struct unit u;
    kv_mem_init();
    unit_begin(&u, "reply");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, simple_values);
    unit_add(&u, nulls_and_aggregates);
    unit_add_abort(&u, an_attribute_needs_resp3);
    unit_add(&u, numbers);
    unit_add(&u, texts);
    unit_add(&u, errors_stay_on_one_line);
    unit_add(&u, deferred_aggregates);
    unit_add(&u, bulks_of_every_length);
    return unit_run(&u);
}
