/* engine/stream.h and the reader's side in engine/engine.h: what is written, in which form, and
 * what happens when there is no room. */
#include "fixture.h"

static struct kv_stream_reader *reader;
static struct library_bytes stream;

static void open_reader(uint32_t threads, uint64_t ring_bytes)
{
    options.stream_ring_bytes = ring_bytes;
    start(threads);
    reader = kv_stream_open(engine);
}

/* Everything that is there now, line ends as commas. */
static const char *read_stream(struct kv_stream_reader *r)
{
    char bytes[977];
    size_t n;
    library_clear(&stream);
    while ((n = kv_stream_read(r, bytes, sizeof(bytes))) > 0)
        library_append(&stream, bytes, n);
    library_append(&stream, "", 0);
    return stream.bytes;
}

/* The words of all lines, a line ended by a semicolon. */
static const char *words_of_stream(struct kv_stream_reader *r)
{
    static struct library_bytes words;
    struct kv_arena arena;
    struct kv_request q;
    struct kv_parse_limits limits = {.bulk_max = 1 << 30, .authenticated = true};
    read_stream(r);
    kv_arena_init(&arena, 4096, KV_MEM_ARENA);
    library_release(&words);
    library_append(&words, "", 0);
    const char *p = stream.bytes, *end = p + stream.len;
    while (p < end) {
        ck_assert_int_eq(kv_parse(p, end, &limits, &arena, &q), KV_PARSE_OK);
        for (int i = 0; i < q.argc; i++) {
            library_append(&words, i > 0 ? " " : "", i > 0);
            library_append(&words, q.argv[i].ptr, KV_MIN(q.argv[i].len, (size_t)16));
        }
        library_append(&words, ";", 1);
        p = q.next;
    }
    kv_arena_release(&arena);
    return words.bytes;
}

static void teardown(void)
{
    if (reader != NULL)
        kv_stream_close(reader);
    library_release(&stream);
}

START_TEST(writes_go_to_the_stream_as_they_came)
{
    open_reader(1, 1 << 20);
    struct kv_client *c = client_new();
    assert_reply(c, "set a 1", "+OK\r\n");
    assert_reply(c, "get a", "$1\r\n1\r\n");
    assert_reply(c, "keep b 2", "+OK\r\n");
    assert_reply(c, "fail", "-ERR as you wish\r\n");
    ck_assert_str_eq(words_of_stream(reader), "SELECT 0;set a 1;keep b 2;");
    ck_assert_str_eq(words_of_stream(reader), "");
    teardown();
}
END_TEST

START_TEST(without_a_reader_nothing_is_kept)
{
    start(1);
    struct kv_client *c = client_new();
    assert_reply(c, "set a 1", "+OK\r\n");
    ck_assert_int_eq(kv_mem_used(KV_MEM_STREAM), 0);
    reader = kv_stream_open(engine);
    ck_assert_str_eq(words_of_stream(reader), "");
    assert_reply(c, "set a 2", "+OK\r\n");
    ck_assert_str_eq(words_of_stream(reader), "SELECT 0;set a 2;");
    teardown();
    ck_assert_uint_eq(engine->stream.size, 0);
}
END_TEST

START_TEST(the_database_is_named_when_it_changes)
{
    open_reader(1, 1 << 20);
    struct kv_client *c = client_new(), *d = client_new();
    assert_reply(d, "select 5", "+OK\r\n");
    assert_reply(c, "set a 1", "+OK\r\n");
    assert_reply(d, "set b 2", "+OK\r\n");
    assert_reply(d, "set b 3", "+OK\r\n");
    assert_reply(c, "set a 4", "+OK\r\n");
    ck_assert_str_eq(words_of_stream(reader),
                     "SELECT 0;set a 1;SELECT 5;set b 2;set b 3;SELECT 0;set a 4;");
    teardown();
}
END_TEST

START_TEST(a_transaction_is_wrapped)
{
    open_reader(1, 1 << 20);
    struct kv_client *c = client_new();
    static const char *const lines[] = {"multi",   "set a 1", "get a", "select 2",
                                        "set b 2", "fail",    "exec"};
    for (size_t i = 0; i < KV_ARRAY_LEN(lines); i++)
        library_send(c, lines[i], &reply);
    ck_assert_str_eq(words_of_stream(reader), "SELECT 0;MULTI;set a 1;SELECT 2;set b 2;EXEC;");
    /* One that writes nothing leaves nothing. */
    static const char *const reading[] = {"multi", "get a", "exec"};
    for (size_t i = 0; i < KV_ARRAY_LEN(reading); i++)
        library_send(c, reading[i], &reply);
    ck_assert_str_eq(words_of_stream(reader), "");
    teardown();
}
END_TEST

START_TEST(every_reader_has_a_place_of_its_own)
{
    open_reader(1, 1 << 20);
    struct kv_client *c = client_new();
    assert_reply(c, "set a 1", "+OK\r\n");
    struct kv_stream_reader *second = kv_stream_open(engine);
    assert_reply(c, "set a 2", "+OK\r\n");
    ck_assert_str_eq(words_of_stream(second), "SELECT 0;set a 2;");
    ck_assert_str_eq(words_of_stream(reader), "SELECT 0;set a 1;SELECT 0;set a 2;");
    kv_stream_close(second);
    assert_reply(c, "set a 3", "+OK\r\n");
    ck_assert_str_eq(words_of_stream(reader), "set a 3;");
    teardown();
}
END_TEST

START_TEST(there_are_only_so_many_readers)
{
    struct kv_stream_reader *readers[KV_STREAM_READERS_MAX];
    open_reader(1, 1 << 20);
    for (int i = 0; i < KV_STREAM_READERS_MAX - 1; i++) {
        readers[i] = kv_stream_open(engine);
        ck_assert_ptr_nonnull(readers[i]);
    }
    ck_assert_ptr_null(kv_stream_open(engine));
    for (int i = 0; i < KV_STREAM_READERS_MAX - 1; i++)
        kv_stream_close(readers[i]);
    teardown();
}
END_TEST

/* Feeds SET lines of 1,000 bytes until one waits; tells how many were answered. */
static int fill_ring(struct kv_client *c)
{
    char line[1100] = "set a ";
    memset(line + 6, 'x', 1000);
    for (int i = 0;; i++) {
        ck_assert_int_lt(i, 1000);
        library_send(c, line, &reply);
        if (reply.len == 0)
            return i;
    }
}

START_TEST(writers_wait_for_room)
{
    open_reader(1, 64 * 1024);
    struct kv_client *c = client_new(), *d = client_new();
    int written = fill_ring(c);
    ck_assert_int_gt(written, 20);
    ck_assert_int_lt(written, 64);
    ck_assert_int_eq(c->park, KV_PARK_STREAM);
    assert_reply(d, "get b", "$-1\r\n");
    fill_ring(d);
    kv_worker_poll(w0, 0);
    assert_answered(c, "");
    assert_answered(d, "");
    read_stream(reader);
    ck_assert(!kv_stream_lapsed(reader));
    kv_worker_poll(w0, 0);
    assert_answered(c, "+OK\r\n");
    assert_answered(d, "+OK\r\n");
    ck_assert_uint_eq(atomic_load(&engine->stream.promised), 0);
    teardown();
}
END_TEST

START_TEST(a_waiting_writer_may_vanish)
{
    open_reader(1, 64 * 1024);
    struct kv_client *c = client_new();
    fill_ring(c);
    kv_client_destroy(c);
    ck_assert_ptr_null(w0->stream_waiters.first);
    read_stream(reader);
    kv_worker_poll(w0, 0);
    teardown();
}
END_TEST

/* The last reader goes: nobody needs to wait any more. */
START_TEST(closing_the_reader_lets_writers_go)
{
    open_reader(1, 64 * 1024);
    struct kv_client *c = client_new();
    fill_ring(c);
    kv_stream_close(reader);
    kv_worker_poll(w0, 0);
    assert_answered(c, "+OK\r\n");
}
END_TEST

START_TEST(a_long_command_makes_the_ring_grow)
{
    for (uint32_t threads = 1; threads <= 2; threads++) {
        open_reader(threads, 64 * 1024);
        struct kv_client *c = client_new();
        struct library_bytes line = {0};
        assert_reply(c, "set a 1", "+OK\r\n");
        library_append(&line, "set b ", 6);
        for (int i = 0; i < 100000; i++)
            library_append(&line, "abcdefg" + i % 7, 1);
        assert_reply(c, line.bytes, "+OK\r\n");
        ck_assert_uint_gt(engine->stream.size, 400000);
        ck_assert_str_eq(words_of_stream(reader), "SELECT 0;set a 1;set b abcdefgabcdefgab;");
        ck_assert(!kv_stream_lapsed(reader));
        assert_reply(c, "multi", "+OK\r\n");
        for (int i = 0; i < 8; i++)
            assert_reply(c, line.bytes, "+QUEUED\r\n");
        library_send(c, "exec", &reply);
        ck_assert_int_eq(strncmp(reply.bytes, "*8\r\n+OK", 7), 0);
        ck_assert_uint_gt(engine->stream.size, 3000000);
        read_stream(reader);
        ck_assert_uint_gt(stream.len, 800000);
        ck_assert(!kv_stream_lapsed(reader));
        library_release(&line);
        teardown();
        if (threads == 1)
            engine_teardown();
    }
}
END_TEST

START_TEST(the_ring_wraps_around)
{
    char line[64], expected[80];
    open_reader(1, 64 * 1024);
    struct kv_client *c = client_new();
    for (int i = 0; i < UNIT_ROUNDS(10000); i++) {
        snprintf(line, sizeof(line), "set key:%d %d", i % 100, i);
        assert_reply(c, line, "+OK\r\n");
        snprintf(expected, sizeof(expected), "%s%s;", i == 0 ? "SELECT 0;" : "", line);
        ck_assert_str_eq(words_of_stream(reader), expected);
    }
    ck_assert_uint_gt(STAT(stream_bytes), 200000 / (UINT64_C(10000) / UNIT_ROUNDS(10000)));
    teardown();
}
END_TEST

/* --- threads: what each worker wrote is there, in its order, and nothing else --- */

#define WORKERS 3
static int writes;
static atomic_int running;

static void *write_many(void *arg)
{
    struct kv_worker *w = arg;
    struct library_bytes answer = {0};
    kv_worker_attach(w);
    struct kv_client *c = kv_client_create_virtual(w);
    char line[64];
    snprintf(line, sizeof(line), "select %u", w->index);
    library_send(c, line, &answer);
    for (int i = 0; i < writes; i++) {
        snprintf(line, sizeof(line), "set k%d %u:%d", i % 7, w->index, i);
        library_send(c, line, &answer);
        while (c->flags & (KV_CLIENT_PARKED | KV_CLIENT_RESUMING))
            kv_worker_poll(w, 1);
    }
    kv_client_destroy(c);
    library_release(&answer);
    kv_worker_detach(w);
    atomic_fetch_sub(&running, 1);
    kv_mem_thread_exit();
    return NULL;
}

/* Reads whole lines of what has come; notes the last number of each worker. */
static void check_lines(int next[WORKERS], uint32_t *db)
{
    struct kv_arena arena;
    struct kv_request q;
    struct kv_parse_limits limits = {.bulk_max = 1 << 20, .authenticated = true};
    kv_arena_init(&arena, 4096, KV_MEM_ARENA);
    const char *p = stream.bytes, *end = p + stream.len;
    while (p < end && kv_parse(p, end, &limits, &arena, &q) == KV_PARSE_OK) {
        if (kv_slice_is(q.argv[0], "select")) {
            *db = (uint32_t)(q.argv[1].ptr[0] - '0');
        } else {
            uint32_t worker = (uint32_t)(q.argv[2].ptr[0] - '0');
            ck_assert_uint_eq(worker, *db);
            ck_assert_int_eq(atoi(q.argv[2].ptr + 2), next[worker]);
            next[worker]++;
        }
        p = q.next;
    }
    kv_arena_release(&arena);
    stream.len = (size_t)(end - p);
    memmove(stream.bytes, p, stream.len);
}

START_TEST(workers_write_side_by_side)
{
    pthread_t threads[WORKERS];
    int next[WORKERS] = {0};
    uint32_t db = UINT32_MAX;
    char bytes[3001];
    options.lookahead = 1;
    open_reader(WORKERS, 64 * 1024);
    kv_worker_detach(w0);
    writes = UNIT_ROUNDS(4000);
    atomic_store(&running, WORKERS);
    for (uint32_t i = 0; i < WORKERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, write_many, kv_engine_worker(engine, i)),
                         0);
    for (bool last = false; !last;) {
        last = atomic_load(&running) == 0;
        size_t n;
        while ((n = kv_stream_read(reader, bytes, sizeof(bytes))) > 0) {
            library_append(&stream, bytes, n);
            check_lines(next, &db);
        }
    }
    for (uint32_t i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        ck_assert_int_eq(next[i], writes);
    }
    ck_assert_uint_eq(stream.len, 0);
    ck_assert(!kv_stream_lapsed(reader));
    ck_assert_uint_eq(atomic_load(&engine->stream.promised), 0);
    kv_worker_attach(w0);
    teardown();
}
END_TEST

START_TEST(a_reader_stops_where_it_is_told)
{
    open_reader(1, 64 * 1024);
    struct kv_client *c = client_new();
    assert_reply(c, "set a 1", "+OK\r\n");
    uint64_t place = kv_stream_stop_here(reader);
    ck_assert_uint_eq(place, kv_stream_tail(engine));
    ck_assert(!kv_stream_stopped(reader));
    assert_reply(c, "set b 2", "+OK\r\n");
    ck_assert_str_eq(words_of_stream(reader), "SELECT 0;set a 1;");
    ck_assert(kv_stream_stopped(reader));
    ck_assert_str_eq(words_of_stream(reader), "");
    kv_stream_go_on(reader);
    ck_assert_str_eq(words_of_stream(reader), "SELECT 0;set b 2;");
    kv_client_destroy(c);
    teardown();
}
END_TEST

START_TEST(a_lapsed_reader_goes_on_at_a_new_place)
{
    open_reader(1, 64 * 1024);
    struct kv_client *c = client_new();
    struct kv_slice words[2] = {KV_SLICE("DEL"), {NULL, 60 * 1024}};
    char *key = kv_mem_zalloc(words[1].len, KV_MEM_OTHER);
    words[1].ptr = key;
    /* What nobody has promised room for, as a slice of expiry that meets very long keys. */
    for (int i = 0; i < 3; i++) {
        kv_stream_add(w0, 0, words, 2);
        kv_stream_publish(w0);
    }
    ck_assert(kv_stream_lapsed(reader));
    ck_assert_str_eq(read_stream(reader), "");
    (void)kv_stream_stop_here(reader);
    ck_assert(!kv_stream_lapsed(reader));
    ck_assert(kv_stream_stopped(reader));
    kv_stream_go_on(reader);
    assert_reply(c, "set a 1", "+OK\r\n");
    ck_assert_str_eq(words_of_stream(reader), "SELECT 0;set a 1;");
    kv_mem_free(key, words[1].len, KV_MEM_OTHER);
    kv_client_destroy(c);
    teardown();
}
END_TEST

static atomic_uint naps;

static void *sleep_and_read(void *arg)
{
    uint64_t *until = arg;
    char bytes[256];
    while (kv_stream_offset(reader) < *until) {
        kv_stream_wait(reader, 60000);
        atomic_fetch_add(&naps, 1);
        while (kv_stream_read(reader, bytes, sizeof(bytes)) > 0)
            continue;
    }
    kv_mem_thread_exit();
    return NULL;
}

/* A wake-up that is lost would cost a minute each. */
START_TEST(a_sleeping_reader_hears_of_every_round)
{
    open_reader(1,
                1024 * 1024); /* all rounds fit: a reader that is late must not park the client */
    struct kv_client *c = client_new();
    pthread_t thread;
    assert_reply(c, "set a 1", "+OK\r\n");
    uint64_t line = kv_stream_tail(engine) - strlen("*2\r\n$6\r\nSELECT\r\n$1\r\n0\r\n");
    int rounds = UNIT_ROUNDS(5000);
    uint64_t until = kv_stream_tail(engine) + (uint64_t)rounds * line;
    poll_worker(w0);
    ck_assert_int_eq(pthread_create(&thread, NULL, sleep_and_read, &until), 0);
    for (int i = 0; i < rounds; i++) {
        assert_reply(c, "set a 1", "+OK\r\n");
        poll_worker(w0);
    }
    pthread_join(thread, NULL);
    uint64_t before = kv_clock_mono_ns();
    kv_stream_wake(reader);
    kv_stream_wait(reader, 60000);
    kv_stream_wait(reader, 5);
    uint64_t took_ms = (kv_clock_mono_ns() - before) / 1000000;
    ck_assert_uint_ge(took_ms, 4);
    ck_assert_uint_lt(took_ms, 30000);
    kv_client_destroy(c);
    teardown();
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "stream");
    unit_add(&u, writes_go_to_the_stream_as_they_came);
    unit_add(&u, without_a_reader_nothing_is_kept);
    unit_add(&u, the_database_is_named_when_it_changes);
    unit_add(&u, a_transaction_is_wrapped);
    unit_add(&u, every_reader_has_a_place_of_its_own);
    unit_add(&u, there_are_only_so_many_readers);
    unit_add(&u, writers_wait_for_room);
    unit_add(&u, a_waiting_writer_may_vanish);
    unit_add(&u, closing_the_reader_lets_writers_go);
    unit_add(&u, a_long_command_makes_the_ring_grow);
    unit_add(&u, the_ring_wraps_around);
    unit_add(&u, workers_write_side_by_side);
    unit_add(&u, a_reader_stops_where_it_is_told);
    unit_add(&u, a_lapsed_reader_goes_on_at_a_new_place);
    unit_add(&u, a_sleeping_reader_hears_of_every_round);
    return unit_run(&u);
}
