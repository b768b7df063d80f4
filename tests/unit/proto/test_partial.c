/* proto/parse.h, kv_partial: a command that arrives in pieces is the command that was sent, large
 * arguments lie in blocks that can be taken over, and nothing is left behind. */
#include "proto/parse.h"
#include "unit.h"

static const struct kv_parse_limits known = {.bulk_max = 1 << 20, .authenticated = true};
static const struct kv_parse_limits stranger = {.bulk_max = 1 << 20, .authenticated = false};
static int blocks_made, blocks_released;

struct block {
    size_t size;
    char data[];
};

static void *create_block(size_t len, char **data)
{
    size_t size = sizeof(struct block) + len;
    struct block *b = kv_mem_try_alloc(size, KV_MEM_VALUE);
    if (b == NULL)
        return NULL;
    b->size = size;
    *data = b->data;
    blocks_made++;
    return b;
}

static void release_block(void *block)
{
    struct block *b = block;
    blocks_released++;
    kv_mem_free(b, b->size, KV_MEM_VALUE);
}

static const struct kv_block_ops ops = {create_block, release_block};

static void teardown(void)
{
    ck_assert_int_eq(blocks_made, blocks_released);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}

static size_t put_bulk(char *to, const char *bytes, size_t len)
{
    size_t n = (size_t)sprintf(to, "$%zu\r\n", len);
    memcpy(to + n, bytes, len);
    memcpy(to + n + len, "\r\n", 2);
    return n + len + 2;
}

static char source[70000], line[200000];

static size_t make_line(const size_t *lens, int argc)
{
    size_t len = (size_t)sprintf(line, "*%d\r\n", argc);
    for (int i = 0; i < argc; i++)
        len += put_bulk(line + len, source + i, lens[i]);
    return len;
}

static void check_arguments(const struct kv_partial *p, const size_t *lens, int argc)
{
    ck_assert(p->complete);
    ck_assert_int_eq(p->argc, argc);
    for (int i = 0; i < argc; i++)
        ck_assert(kv_slice_equal(p->argv[i], kv_slice(source + i, lens[i])));
}

/* Feeds [0, len) as the engine does: what was not consumed comes again in front of the next
 * piece. */
static enum kv_parse_status feed(struct kv_partial *p, size_t len, size_t step, size_t *used)
{
    char error[80];
    const char *pos = line;
    size_t end = 0;
    for (;;) {
        end = KV_MIN(end + step, len);
        enum kv_parse_status st = kv_partial_feed(p, &pos, line + end, &known, error);
        ck_assert_msg(st != KV_PARSE_ERROR, "%s", error);
        ck_assert(pos <= line + end);
        *used = (size_t)(pos - line);
        if (st == KV_PARSE_OK || end == len)
            return st;
    }
}

static const size_t shapes[][6] = {
    {3, 1, 1},
    {0, 0, 0, 5},
    {3, 16383, 16384, 16385},
    {1, 65536, 0, 20000, 16384, 2},
};
static const int shape_argc[] = {3, 4, 4, 6};

START_TEST(pieces_make_the_command)
{
    static const size_t steps[] = {1, 2, 3, 7, 100, 4096, 16 * 1024, 200000};
    for (size_t s = 0; s < KV_ARRAY_LEN(shapes); s++) {
        size_t len = make_line(shapes[s], shape_argc[s]);
        for (size_t i = 0; i < KV_ARRAY_LEN(steps); i++) {
            size_t used;
            struct kv_partial *p = kv_partial_create(&ops);
            ck_assert_int_eq(feed(p, len, steps[i], &used), KV_PARSE_OK);
            ck_assert_uint_eq(used, len);
            check_arguments(p, shapes[s], shape_argc[s]);
            kv_partial_destroy(p);
        }
    }
}
END_TEST

START_TEST(it_stops_at_the_end_of_the_command)
{
    size_t used, len = make_line(shapes[0], 3);
    memcpy(line + len, "*1\r\n$1", 6);
    struct kv_partial *p = kv_partial_create(&ops);
    ck_assert_int_eq(feed(p, len + 6, 10, &used), KV_PARSE_OK);
    ck_assert_uint_eq(used, len);
    kv_partial_destroy(p);
}
END_TEST

/* Everything is consumed but a cut length line, which is short. */
START_TEST(what_is_left_is_a_cut_length_line)
{
    size_t len = make_line(shapes[3], 6);
    for (size_t cut = 1; cut < len; cut += cut < 40 ? 1 : 509) {
        size_t used;
        struct kv_partial *p = kv_partial_create(&ops);
        ck_assert_int_eq(feed(p, cut, cut, &used), KV_PARSE_MORE);
        ck_assert_uint_le(cut - used, 8);
        if (used < cut)
            ck_assert(line[used] == '$' || line[used] == '*');
        kv_partial_destroy(p);
    }
}
END_TEST

START_TEST(a_bulk_in_progress_can_be_filled_directly)
{
    char error[80], *dest;
    static const size_t lens[] = {3, 40000};
    size_t len = make_line(lens, 2);
    const char *pos = line;
    struct kv_partial *p = kv_partial_create(&ops);
    ck_assert_uint_eq(kv_partial_space(p, &dest), 0);
    ck_assert_int_eq(kv_partial_feed(p, &pos, line + 30, &known, error), KV_PARSE_MORE);
    size_t space = kv_partial_space(p, &dest);
    ck_assert_uint_eq(space, len - 2 - 30);
    memcpy(dest, line + 30, 1000);
    kv_partial_filled(p, 1000);
    ck_assert_uint_eq(kv_partial_space(p, &dest), space - 1000);
    memcpy(dest, line + 1030, space - 1000);
    kv_partial_filled(p, space - 1000);
    ck_assert_uint_eq(kv_partial_space(p, &dest), 0);
    ck_assert(!p->complete);
    pos = line + len - 2;
    ck_assert_int_eq(kv_partial_feed(p, &pos, line + len, &known, error), KV_PARSE_OK);
    check_arguments(p, lens, 2);
    kv_partial_destroy(p);
}
END_TEST

START_TEST(only_large_arguments_have_blocks)
{
    size_t used, len = make_line(shapes[2], 4);
    struct kv_partial *p = kv_partial_create(&ops);
    ck_assert_int_eq(feed(p, len, 1000, &used), KV_PARSE_OK);
    ck_assert_int_eq(blocks_made, 2);
    ck_assert_ptr_null(kv_partial_take_block(p, 0));
    ck_assert_ptr_null(kv_partial_take_block(p, 1));
    struct block *b = kv_partial_take_block(p, 2);
    ck_assert_ptr_nonnull(b);
    ck_assert_ptr_eq(b->data, p->argv[2].ptr);
    ck_assert_ptr_null(kv_partial_take_block(p, 2));
    kv_partial_destroy(p);
    ck_assert_int_eq(blocks_released, 1);
    release_block(b);
}
END_TEST

START_TEST(many_arguments_cost_what_arrives)
{
    size_t used, len = 0;
    len += (size_t)sprintf(line, "*2147483647\r\n");
    for (int i = 0; i < 5000; i++)
        len += put_bulk(line + len, source, 7);
    struct kv_partial *p = kv_partial_create(&ops);
    ck_assert_int_eq(feed(p, len, 3000, &used), KV_PARSE_MORE);
    ck_assert_int_eq(p->argc, 5000);
    ck_assert_uint_ge(p->held_bytes, 5000 * 7);
    ck_assert_uint_le(p->held_bytes, 5000 * 7 + 2 * 8192 * sizeof(struct kv_slice));
    for (int i = 0; i < p->argc; i++)
        ck_assert(kv_slice_equal(p->argv[i], kv_slice(source, 7)));
    kv_partial_destroy(p);
}
END_TEST

START_TEST(errors_are_those_of_whole_commands)
{
    static const struct {
        const char *bytes, *text;
        const struct kv_parse_limits *limits;
    } cases[] = {
        {"*x\r\n", "ERR Protocol error: invalid multibulk length", &known},
        {"*11\r\n", "ERR Protocol error: unauthenticated multibulk length", &stranger},
        {"*2\r\n$1\r\na\r\n:1\r\n", "ERR Protocol error: expected '$', got ':'", &known},
        {"*2\r\n$1\r\na\r\n$-5\r\n", "ERR Protocol error: invalid bulk length", &known},
        {"*2\r\n$1\r\na\r\n$1048577\r\n", "ERR Protocol error: invalid bulk length", &known},
        {"*1\r\n$16385\r\n", "ERR Protocol error: unauthenticated bulk length", &stranger},
    };
    for (size_t i = 0; i < KV_ARRAY_LEN(cases); i++) {
        char error[80];
        struct kv_partial *p = kv_partial_create(&ops);
        const char *pos = cases[i].bytes;
        ck_assert_int_eq(kv_partial_feed(p, &pos, pos + strlen(pos), cases[i].limits, error),
                         KV_PARSE_ERROR);
        ck_assert_str_eq(error, cases[i].text);
        kv_partial_destroy(p);
    }
}
END_TEST

/* Each try allocation fails once: an error, and nothing is left behind. */
START_TEST(short_memory_is_an_error)
{
    size_t len = make_line(shapes[3], 6);
    uint64_t n = 1;
    for (;; n++) {
        char error[80] = "";
        enum kv_parse_status st = KV_PARSE_ERROR;
        kv_mem_fail_try(n);
        struct kv_partial *p = kv_partial_create(&ops);
        if (p != NULL) {
            const char *pos = line;
            st = kv_partial_feed(p, &pos, line + len, &known, error);
            kv_partial_destroy(p);
        }
        uint64_t tries = kv_mem_fail_try(0);
        ck_assert_int_eq(blocks_made, blocks_released);
        ck_assert_int_eq(kv_mem_used_total(), 0);
        if (tries < n) {
            ck_assert_int_eq(st, KV_PARSE_OK);
            break;
        }
        ck_assert_int_eq(st, KV_PARSE_ERROR);
        if (p != NULL)
            ck_assert_str_eq(error, "ERR Protocol error: out of memory for an argument");
    }
#ifdef KV_DEBUG
    ck_assert_uint_gt(n, 6);
#endif
}
END_TEST

START_TEST(a_complete_command_takes_no_more)
{
    char error[80];
    size_t used, len = make_line(shapes[0], 3);
    struct kv_partial *p = kv_partial_create(&ops);
    ck_assert_int_eq(feed(p, len, len, &used), KV_PARSE_OK);
    const char *pos = line;
    (void)kv_partial_feed(p, &pos, line + len, &known, error);
}
END_TEST

int main(void)
{
    struct unit u;
    for (size_t i = 0; i < sizeof(source); i++)
        source[i] = (char)(i * 7 + i / 251);
    kv_mem_init();
    unit_begin(&u, "partial");
    unit_fixture(&u, NULL, teardown);
    unit_add(&u, pieces_make_the_command);
    unit_add(&u, it_stops_at_the_end_of_the_command);
    unit_add(&u, what_is_left_is_a_cut_length_line);
    unit_add(&u, a_bulk_in_progress_can_be_filled_directly);
    unit_add(&u, only_large_arguments_have_blocks);
    unit_add(&u, many_arguments_cost_what_arrives);
    unit_add(&u, errors_are_those_of_whole_commands);
    unit_add(&u, short_memory_is_an_error);
    unit_add_abort(&u, a_complete_command_takes_no_more);
    return unit_run(&u);
}
