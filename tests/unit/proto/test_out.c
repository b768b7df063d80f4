/* proto/out.h: whatever is appended, referred to, deferred, rewound and sent in pieces, the bytes
 * that leave are those of a plain string, and all memory and references come back. */
#include "proto/out.h"
#include "unit.h"

#define MODEL_MAX (1 << 20)

static struct kv_chunk_pool pool;
static struct kv_out out;
static char model[MODEL_MAX]; /* what is unsent, as one string */
static size_t model_len;
static char filler[70000];
static int references; /* held by the output */

static void setup(void)
{
    kv_chunk_pool_init(&pool);
    kv_out_init(&out, &pool);
}

static void teardown(void)
{
    kv_out_release(&out);
    kv_chunk_pool_release(&pool);
    ck_assert_int_eq(references, 0);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}

static void append(size_t len)
{
    size_t at = model_len % 999;
    kv_out_append(&out, filler + at, len);
    memcpy(model + model_len, filler + at, len);
    model_len += len;
}

static void let_go(void *holder)
{
    --*(int *)holder;
}

static void append_reference(size_t len)
{
    size_t at = model_len % 999;
    references++;
    kv_out_append_ref(&out, filler + at, len, &references, let_go, len + 100);
    memcpy(model + model_len, filler + at, len);
    model_len += len;
}

/* The chain holds exactly the model's bytes. */
static void check(void)
{
    size_t at = 0;
    uint32_t chunks = 0;
    ck_assert_uint_eq(kv_out_pending(&out), model_len);
    kv_out_settle(&out);
    for (const struct kv_chunk *c = out.head; c != NULL; c = c->next) {
        size_t n = c->len - c->sent;
        ck_assert_uint_le(at + n, model_len);
        ck_assert_mem_eq(c->data + c->sent, model + at, n);
        at += n;
        chunks++;
        if (c->next == NULL)
            ck_assert_ptr_eq(c, out.tail);
    }
    ck_assert_uint_eq(at, model_len);
    ck_assert_uint_eq(chunks, out.chunk_count);
}

static void send(size_t bytes)
{
    kv_out_advance(&out, bytes);
    memmove(model, model + bytes, model_len - bytes);
    model_len -= bytes;
    check();
}

START_TEST(an_idle_output_costs_nothing)
{
    ck_assert_uint_eq(kv_out_pending(&out), 0);
    kv_out_append(&out, filler, 0);
    kv_out_append(&out, NULL, 0);
    ck_assert_ptr_null(out.head);
    append(5);
    send(5);
    ck_assert_ptr_null(out.head);
    ck_assert_ptr_null(out.pos);
    ck_assert_uint_eq(out.chunk_bytes, 0);
    ck_assert_uint_eq(pool.count, 1);
}
END_TEST

START_TEST(bytes_spread_over_chunks)
{
    append(10);
    append(40000);
    append(1);
    check();
    ck_assert_uint_eq(out.chunk_count, 3);
    ck_assert_uint_eq(out.chunk_bytes, 3 * KV_CHUNK_BYTES);
    send(100);
    send(20000);
    ck_assert_uint_eq(out.chunk_count, 2);
    append(3);
    send(model_len);
}
END_TEST

START_TEST(a_reservation_is_contiguous)
{
    append(KV_CHUNK_BYTES - sizeof(struct kv_chunk) - 10);
    char *p = kv_out_reserve(&out, 8192);
    memcpy(p, filler, 8192);
    out.pos = p + 8192;
    memcpy(model + model_len, filler, 8192);
    model_len += 8192;
    check();
    ck_assert_uint_eq(out.chunk_count, 2);
}
END_TEST

START_TEST(references_are_released_when_sent_or_dropped)
{
    append_reference(20000);
    append(7);
    append_reference(30000);
    check();
    ck_assert_int_eq(references, 2);
    ck_assert_uint_eq(out.chunk_bytes,
                      KV_CHUNK_BYTES + 2 * sizeof(struct kv_chunk) + 50000 + 2 * 100);
    send(19999);
    ck_assert_int_eq(references, 2);
    send(1);
    ck_assert_int_eq(references, 1);
    append(9);
    check();
    kv_out_release(&out);
    ck_assert_int_eq(references, 0);
    model_len = 0;
    check();
}
END_TEST

START_TEST(a_rewind_drops_what_came_after_the_mark)
{
    struct kv_out_mark empty = kv_out_mark(&out);
    append(100);
    size_t first = model_len;
    struct kv_out_mark mark = kv_out_mark(&out);
    append(50000);
    append_reference(17000);
    append(3);
    kv_out_rewind(&out, &mark);
    model_len = first;
    check();
    ck_assert_int_eq(references, 0);
    append_reference(17000);
    size_t second = model_len;
    mark = kv_out_mark(&out);
    append(10);
    kv_out_rewind(&out, &mark);
    model_len = second;
    check();
    append(11);
    check();
    kv_out_rewind(&out, &empty);
    model_len = 0;
    check();
    append(4);
    check();
}
END_TEST

/* Puts the header of a deferred aggregate into the model. */
static void insert_header(size_t at, char type, size_t count)
{
    char text[32];
    size_t n = (size_t)snprintf(text, sizeof(text), "%c%zu\r\n", type, count);
    memmove(model + at + n, model + at, model_len - at);
    memcpy(model + at, text, n);
    model_len += n;
}

START_TEST(a_deferred_length_stands_before_its_elements)
{
    struct kv_chunk *token = kv_out_deferred_begin(&out);
    kv_out_deferred_end(&out, token, '*', 0);
    insert_header(0, '*', 0);
    check();
    size_t at = model_len;
    token = kv_out_deferred_begin(&out);
    append(30);
    kv_out_deferred_end(&out, token, '%', 12345);
    insert_header(at, '%', 12345);
    check();
    append(5);
    check();
}
END_TEST

START_TEST(deferred_lengths_nest)
{
    append(3);
    size_t outer_at = model_len;
    struct kv_chunk *outer = kv_out_deferred_begin(&out);
    for (int i = 0; i < 5; i++) {
        size_t inner_at = model_len;
        struct kv_chunk *inner = kv_out_deferred_begin(&out);
        for (int j = 0; j < i; j++)
            append(9000);
        kv_out_deferred_end(&out, inner, '*', (size_t)i);
        insert_header(inner_at, '*', (size_t)i);
        check();
    }
    kv_out_deferred_end(&out, outer, '~', 5);
    insert_header(outer_at, '~', 5);
    check();
    send(model_len);
}
END_TEST

/* The token is full or a reference: the header gets a chunk of its own. */
START_TEST(a_deferred_length_finds_room)
{
    append(KV_CHUNK_BYTES - sizeof(struct kv_chunk));
    size_t at = model_len;
    struct kv_chunk *token = kv_out_deferred_begin(&out);
    append(4);
    kv_out_deferred_end(&out, token, '*', 4);
    insert_header(at, '*', 4);
    check();
    append_reference(20000);
    at = model_len;
    token = kv_out_deferred_begin(&out);
    append(4);
    kv_out_deferred_end(&out, token, '*', 99);
    insert_header(at, '*', 99);
    check();
    send(model_len);
}
END_TEST

START_TEST(the_pool_keeps_a_bounded_number)
{
    for (int i = 0; i < 100; i++)
        append(10000);
    ck_assert_uint_gt(out.chunk_count, 60);
    send(model_len);
    ck_assert_uint_le(pool.count, KV_CHUNK_POOL_MAX);
    int64_t used = kv_mem_used(KV_MEM_CLIENT_OUTPUT);
    ck_assert_int_eq(used, (int64_t)pool.count * (int64_t)kv_mem_block_size(KV_CHUNK_BYTES));
    append(40000);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_OUTPUT), used);
}
END_TEST

/* Random operations against the string. */
static void random_step(struct kv_random *r)
{
    switch (kv_random_below(r, 12)) {
    case 0:
    case 1:
    case 2:
        append(kv_random_below(r, 300));
        break;
    case 3:
        append(kv_random_below(r, 20000));
        break;
    case 4:
    case 5:
        append_reference(1 + kv_random_below(r, 20000));
        break;
    case 6: {
        struct kv_out_mark mark = kv_out_mark(&out);
        size_t len = model_len;
        for (uint64_t n = kv_random_below(r, 4); n > 0; n--) {
            append(kv_random_below(r, 9000));
            append_reference(kv_random_below(r, 900));
        }
        struct kv_chunk *token = kv_out_deferred_begin(&out);
        append(kv_random_below(r, 900));
        kv_out_deferred_end(&out, token, '*', 1);
        kv_out_rewind(&out, &mark);
        model_len = len;
        break;
    }
    case 7:
    case 8: {
        size_t at = model_len, count = kv_random_below(r, 1 << 20);
        struct kv_chunk *token = kv_out_deferred_begin(&out);
        if (kv_random_below(r, 3) == 0)
            append_reference(kv_random_below(r, 2000));
        append(kv_random_below(r, 2000));
        kv_out_deferred_end(&out, token, '*', count);
        insert_header(at, '*', count);
        break;
    }
    case 9:
        send(model_len);
        break;
    default:
        send(kv_random_below(r, model_len + 1));
    }
}

START_TEST(random_operations_agree_with_a_string)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("out"));
    for (int i = 0; i < UNIT_ROUNDS(30000); i++) {
        if (model_len > MODEL_MAX / 2)
            send(model_len - 10);
        random_step(&r);
        check();
    }
    send(model_len);
    ck_assert_uint_eq(out.chunk_bytes, 0);
    ck_assert_uint_eq(out.chunk_count, 0);
}
END_TEST

START_TEST(more_cannot_be_sent_than_there_is)
{
    append(10);
    kv_out_advance(&out, 11);
}
END_TEST

int main(void)
{
    struct unit u;
    for (size_t i = 0; i < sizeof(filler); i++)
        filler[i] = (char)(i * 31 + i / 253);
    kv_mem_init();
    unit_begin(&u, "out");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, an_idle_output_costs_nothing);
    unit_add(&u, bytes_spread_over_chunks);
    unit_add(&u, a_reservation_is_contiguous);
    unit_add(&u, references_are_released_when_sent_or_dropped);
    unit_add(&u, a_rewind_drops_what_came_after_the_mark);
    unit_add(&u, a_deferred_length_stands_before_its_elements);
    unit_add(&u, deferred_lengths_nest);
    unit_add(&u, a_deferred_length_finds_room);
    unit_add(&u, the_pool_keeps_a_bounded_number);
    unit_add(&u, random_operations_agree_with_a_string);
    unit_add_abort(&u, more_cannot_be_sent_than_there_is);
    return unit_run(&u);
}
