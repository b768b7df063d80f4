/* The sketch of hot keys against exact counts, and what sessions record. */
#include "base/clock.h"
#include "engine/hotkeys.h"
#include "fixture.h"
#include <time.h>

#define KEYS 2000
#define NAME_MAX_LEN 40

static struct {
    char name[NAME_MAX_LEN];
    struct kv_key key;
    uint64_t truth;
} keys[KEYS];

static uint64_t hash_of(uint64_t number)
{
    struct kv_random random;
    kv_random_init(&random, number);
    return kv_random_next(&random);
}

/* Names of different lengths with any bytes. Few hashes: keys collide in the index, and whole
 * hashes are the same. */
static void make_keys(uint64_t hash_count)
{
    for (uint32_t i = 0; i < KEYS; i++) {
        size_t len = 4 + i % (NAME_MAX_LEN - 4);
        memset(keys[i].name, (int)(i % 256), sizeof(keys[i].name));
        memcpy(keys[i].name, &i, 4);
        uint64_t hash = hash_count == 0 ? hash_of(i) : i % hash_count * 64;
        keys[i].key = (struct kv_key){.ptr = keys[i].name, .len = len, .hash = hash};
        keys[i].truth = 0;
    }
}

/* Some keys are drawn far more often than others. */
static uint32_t draw(struct kv_random *random, int skew)
{
    uint64_t bound = KEYS;
    for (int i = 0; i < skew; i++)
        bound = 1 + kv_random_below(random, bound);
    return (uint32_t)kv_random_below(random, bound);
}

static const struct kv_hotkeys_entry *entry_of(const struct kv_hotkeys_sketch *s,
                                               const struct kv_key *key)
{
    for (uint32_t i = 0; i < s->len; i++)
        if (s->entries[i].len == key->len && s->entries[i].hash == key->hash &&
            kv_bytes_equal(s->entries[i].key, key->ptr, key->len))
            return &s->entries[i];
    return NULL;
}

static void compare(const struct kv_hotkeys_sketch *s, uint64_t total)
{
    uint32_t found = 0;
    uint64_t bound = total / s->capacity;
    kv_hotkeys_sketch_check(s);
    ck_assert_uint_eq(s->total, total);
    for (uint32_t i = 0; i < KEYS; i++) {
        const struct kv_hotkeys_entry *e = entry_of(s, &keys[i].key);
        if (e == NULL) {
            ck_assert_uint_le(keys[i].truth, bound);
            continue;
        }
        found++;
        ck_assert_uint_ge(e->estimate, keys[i].truth);
        ck_assert_uint_le(e->estimate - e->error, keys[i].truth);
        ck_assert_uint_le(e->error, bound);
    }
    ck_assert_uint_eq(found, s->len);
}

START_TEST(estimates_keep_their_bounds)
{
    struct kv_random random;
    start(1);
    int64_t before = kv_mem_used(KV_MEM_SLOWLOG);
    kv_random_init(&random, unit_seed("estimates_keep_their_bounds"));
    for (int round = 0; round < UNIT_ROUNDS(60); round++) {
        uint32_t capacity = 1 + (uint32_t)kv_random_below(&random, 512);
        uint64_t most = 1 + kv_random_below(&random, 1000), total = 0;
        int skew = round % 5;
        make_keys(round % 3 == 0 ? 1 + kv_random_below(&random, 50) : 0);
        struct kv_hotkeys_sketch *s = kv_hotkeys_sketch_try_create(capacity);
        ck_assert_ptr_nonnull(s);
        for (int i = 0; i < 5000; i++) {
            uint32_t k = draw(&random, skew);
            uint64_t amount = kv_random_below(&random, most + 1);
            kv_hotkeys_sketch_add(s, &keys[k].key, amount);
            keys[k].truth += amount;
            total += amount;
            if (i % 500 == 0)
                compare(s, total);
        }
        compare(s, total);
        kv_hotkeys_sketch_destroy(s);
        ck_assert_int_eq(kv_mem_used(KV_MEM_SLOWLOG), before);
    }
}
END_TEST

START_TEST(few_keys_are_counted_exactly)
{
    start(1);
    make_keys(0);
    struct kv_hotkeys_sketch *s = kv_hotkeys_sketch_try_create(64);
    for (uint32_t i = 0; i < 6400; i++)
        kv_hotkeys_sketch_add(s, &keys[i % 64].key, i);
    kv_hotkeys_sketch_check(s);
    for (uint32_t i = 0; i < 64; i++) {
        const struct kv_hotkeys_entry *e = entry_of(s, &keys[i].key);
        ck_assert_ptr_nonnull(e);
        ck_assert_uint_eq(e->error, 0);
        ck_assert_uint_eq(e->estimate, 100 * i + 64 * 99 * 100 / 2);
    }
    kv_hotkeys_sketch_destroy(s);
}
END_TEST

START_TEST(keys_of_any_length_up_to_the_bound)
{
    static char bytes[KV_HOTKEYS_KEY_MAX + 1];
    start(1);
    struct kv_hotkeys_sketch *s = kv_hotkeys_sketch_try_create(2);
    for (int round = 0; round < 3; round++) {
        for (size_t len = 0; len <= KV_HOTKEYS_KEY_MAX + 1; len += len < 300 ? 1 : 271) {
            const struct kv_key key = {.ptr = len > 0 ? bytes : NULL, .len = len, .hash = len};
            kv_hotkeys_sketch_add(s, &key, 1);
            ck_assert_int_eq(entry_of(s, &key) != NULL, len <= KV_HOTKEYS_KEY_MAX);
        }
        kv_hotkeys_sketch_check(s);
    }
    kv_hotkeys_sketch_destroy(s);
}
END_TEST

START_TEST(without_memory_nothing_changes)
{
    struct kv_key longer = {.ptr = "a longer key than they are", .len = 26, .hash = 3};
    const struct kv_hotkeys_options both = {.wanted = {true, true}, .count = 3, .ratio = 1};
    start(2);
#ifdef KV_DEBUG
    make_keys(0);
    struct kv_hotkeys_sketch *s = kv_hotkeys_sketch_try_create(2);
    kv_mem_fail_try(1);
    kv_hotkeys_sketch_add(s, &keys[0].key, 5);
    kv_mem_fail_try(0);
    ck_assert_uint_eq(s->len, 0);
    kv_hotkeys_sketch_add(s, &keys[0].key, 5);
    kv_hotkeys_sketch_add(s, &keys[1].key, 6);
    kv_mem_fail_try(1);
    kv_hotkeys_sketch_add(s, &longer, 7);
    kv_mem_fail_try(0);
    kv_hotkeys_sketch_check(s);
    ck_assert_ptr_null(entry_of(s, &longer));
    ck_assert_uint_eq(entry_of(s, &keys[0].key)->estimate, 5);
    kv_hotkeys_sketch_destroy(s);
    int64_t before = kv_mem_used_total();
    for (uint64_t n = 1; n <= 7; n++) {
        kv_mem_fail_try(n);
        ck_assert_int_eq(kv_hotkeys_start(w0, &both), KV_ERR_NOMEM);
        kv_mem_fail_try(0);
        ck_assert_int_eq(kv_mem_used_total(), before);
        ck_assert(!kv_hotkeys_active(engine));
        ck_assert_ptr_null(w0->hotkeys);
    }
#endif
    (void)longer;
    ck_assert_int_eq(kv_hotkeys_start(w0, &both), KV_OK);
    /* The end of the engine releases a session that is active. */
}
END_TEST

static struct kv_hotkeys_item *top;
static uint32_t top_len;

static void get_top(enum kv_hotkeys_metric metric)
{
    kv_arena_reset(&w0->arena);
    ck_assert_int_eq(kv_hotkeys_top(engine, metric, &w0->arena, &top, &top_len), KV_OK);
}

static void assert_item(uint32_t at, const char *key, uint64_t cost)
{
    ck_assert_uint_lt(at, top_len);
    ck_assert(kv_slice_equal(top[at].key, kv_slice_cstr(key)));
    ck_assert_uint_eq(top[at].cost, cost);
}

START_TEST(bytes_of_requests_and_replies)
{
    const struct kv_hotkeys_options net = {.wanted = {false, true}, .count = 2, .ratio = 1};
    struct kv_hotkeys_report report;
    start(1);
    struct kv_client *c = client_new();
    ck_assert(!kv_hotkeys_report(engine, &report));
    assert_reply(c, "SET before 1", "+OK\r\n");
    ck_assert_uint_eq(w0->late_ticks, UINT64_MAX);
    ck_assert_int_eq(kv_hotkeys_start(w0, &net), KV_OK);
    ck_assert_uint_eq(w0->late_ticks, 0);
    assert_reply(c, "SET aa 12345", "+OK\r\n");   /* 4 + 9 + 8 + 11 + 5 */
    assert_reply(c, "GET aa", "$5\r\n12345\r\n"); /* 4 + 9 + 8 + 11 */
    assert_reply(c, "GET b", "$-1\r\n");          /* 4 + 9 + 7 + 5 */
    assert_reply(c, "MULTI", "+OK\r\n");          /* 4 + 11 + 5 */
    assert_reply(c, "GET b", "+QUEUED\r\n");
    assert_reply(c, "EXEC", "*1\r\n$-1\r\n"); /* GET, and 4 + 10 */
    kv_hotkeys_stop(w0);
    ck_assert_uint_eq(w0->late_ticks, UINT64_MAX);
    assert_reply(c, "SET aa 1", "+OK\r\n");
    get_top(KV_HOTKEYS_NET);
    ck_assert_uint_eq(top_len, 2);
    assert_item(0, "aa", 37 + 32);
    assert_item(1, "b", 25 + 25);
    ck_assert(kv_hotkeys_report(engine, &report));
    ck_assert(!report.active);
    ck_assert_uint_eq(report.commands_bytes, 37 + 32 + 25 + 20 + 25 + 14);
    kv_hotkeys_release(engine);
    kv_client_destroy(c);
}
END_TEST

START_TEST(records_of_workers_are_summed)
{
    const struct kv_hotkeys_options net = {.wanted = {false, true}, .count = 2, .ratio = 1};
    start(2);
    struct kv_client *c = client_new();
    struct kv_client *other = kv_client_create_virtual(w1);
    ck_assert_int_eq(kv_hotkeys_start(w0, &net), KV_OK);
    poll_worker(w1);
    ck_assert_uint_eq(w1->late_ticks, 0);
    assert_reply(c, "GET a", "$-1\r\n");
    assert_reply(c, "GET b", "$-1\r\n");
    kv_worker_detach(w0);
    kv_worker_attach(w1);
    assert_reply(other, "GET b", "$-1\r\n");
    assert_reply(other, "GET c", "$-1\r\n");
    kv_worker_detach(w1);
    kv_worker_attach(w0);
    get_top(KV_HOTKEYS_NET);
    ck_assert_uint_eq(top_len, 2);
    assert_item(0, "b", 50);
    assert_item(1, "a", 25);
    kv_client_destroy(c);
    kv_this_worker = w1;
    kv_client_destroy(other);
    kv_this_worker = w0;
}
END_TEST

static uint64_t processor_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

START_TEST(a_session_ends_by_itself)
{
    const struct kv_hotkeys_options cpu = {
        .wanted = {true, false}, .count = 1, .ratio = 1, .duration_s = 1};
    struct kv_hotkeys_report report;
    start(2);
    struct kv_client *c = client_new();
    kv_worker_take_limits(w0);
    uint64_t limit = w0->reply_limit;
    ck_assert_int_eq(kv_hotkeys_start(w0, &cpu), KV_OK);
    poll_worker(w1);
    ck_assert_uint_eq(w1->late_ticks, 0);
    assert_reply(c, "GET a", "$-1\r\n");
    uint64_t from = kv_clock_mono_ns(), used_ms = processor_ms();
    while (kv_clock_mono_ns() - from < 1100000000)
        ;
    used_ms = processor_ms() - used_ms;
    ck_assert_uint_eq(w0->late_ticks, 0);
    assert_reply(c, "GET b", "$-1\r\n");
    ck_assert_uint_eq(w0->late_ticks, UINT64_MAX);
    ck_assert_uint_eq(w0->reply_limit, limit);
    ck_assert_ptr_null(w0->hotkeys);
    poll_worker(w1); /* without a command */
    ck_assert_uint_eq(w1->late_ticks, UINT64_MAX);
    ck_assert_uint_eq(w1->reply_limit, limit);
    ck_assert(kv_hotkeys_report(engine, &report));
    ck_assert(!report.active);
    ck_assert(report.duration_ms >= 999 && report.duration_ms <= 1000);
    ck_assert_uint_ge(report.user_ms + report.sys_ms + 20, used_ms);
    ck_assert_uint_lt(report.commands_us, 500000);
    get_top(KV_HOTKEYS_CPU);
    ck_assert_uint_eq(top_len, 1);
    ck_assert(kv_slice_equal(top[0].key, KV_SLICE("a")));
    ck_assert_int_eq(kv_hotkeys_start(w0, &cpu), KV_OK);
    ck_assert(kv_hotkeys_active(engine));
    kv_client_destroy(c);
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "hotkeys");
    unit_add(&u, estimates_keep_their_bounds);
    unit_add(&u, few_keys_are_counted_exactly);
    unit_add(&u, keys_of_any_length_up_to_the_bound);
    unit_add(&u, without_memory_nothing_changes);
    unit_add(&u, bytes_of_requests_and_replies);
    unit_add(&u, records_of_workers_are_summed);
    unit_add(&u, a_session_ends_by_itself);
    return unit_run(&u);
}
