/* The engine under several threads that know no mercy, as a library: virtual clients on every
 * worker run random commands on few keys, vanish while they wait, kill and pause each other, while
 * a reader applies the change stream to an engine of its own, which must end with equal content.
 * Beside it the interleavings that once went wrong, played step by step on one thread.
 *
 * Runs for STRESS_SECONDS (default 3) of load; SEED= repeats the choices, not their timing. */
#include "cmd/table.h"
#include "library.h"
#include "unit/unit.h"
#include <pthread.h>

#define WORKERS 4
#define CLIENTS 7 /* of a worker */
#define KEYS 9
#define DATABASES 3
#define RING_BYTES (1024 * 1024)
#define TTL_MAX_MS 40
#define QUIET_MS 120 /* until every short TTL has been met */

static struct kv_options options_for(uint32_t threads)
{
    struct kv_options o;
    kv_options_default(&o);
    o.threads = threads;
    o.databases = DATABASES;
    o.stream_ring_bytes = RING_BYTES;
    o.unixsocket = "";
    o.requirepass = "";
    return o;
}

static void setup(void)
{
    kv_mem_init();
    kv_clock_init();
    kv_log_set_level(KV_LOG_WARNING);
}

/* --- replies --- */

static long header_of(const char **p, const char *end)
{
    const char *cr = memchr(*p, '\r', (size_t)(end - *p));
    KV_ASSERT(cr != NULL && cr + 1 < end && cr[1] == '\n');
    long value = strtol(*p, NULL, 10);
    *p = cr + 2;
    return value;
}

/* The end of the reply at p, which must be whole. *errors counts error replies, nested ones too. */
static const char *skip_reply(const char *p, const char *end, uint64_t *errors)
{
    KV_ASSERT(p < end);
    char type = *p++;
    long value = header_of(&p, end);
    switch (type) {
    case '-':
        ++*errors;
        return p;
    case '+':
    case ':':
        return p;
    case '$':
        p += value < 0 ? 0 : value + 2;
        KV_ASSERT(p <= end);
        return p;
    case '*':
        for (long i = 0; i < value; i++)
            p = skip_reply(p, end, errors);
        return p;
    default:
        KV_ASSERT(false);
        return p;
    }
}

static uint64_t count_replies(const struct library_bytes *b, uint64_t *errors)
{
    uint64_t count = 0;
    const char *end = b->bytes + b->len;
    for (const char *p = b->bytes; b->len > 0 && p < end; count++)
        p = skip_reply(p, end, errors);
    return count;
}

/* --- requests --- */

struct person { /* a virtual client and what it is owed */
    struct kv_client *c;
    uint64_t sent, answered;
};

struct team { /* what a worker's thread has */
    struct kv_worker *w;
    struct kv_random random;
    struct person people[CLIENTS];
    struct library_bytes request, reply;
    uint64_t commands, vanished, killed, waited;
};

static struct kv_engine *engine;
static atomic_bool stopping;
static atomic_uint quiet_workers;
static char filler[400000];

static uint32_t below(struct team *t, uint32_t n)
{
    return (uint32_t)kv_random_below(&t->random, n);
}

static void add_words(struct team *t, const char *const *words, int count, size_t value_len)
{
    char text[32];
    library_append(&t->request, text, (size_t)sprintf(text, "*%d\r\n", count));
    for (int i = 0; i < count; i++) {
        /* "@" stands for a value. */
        const char *word = words[i][0] == '@' ? filler : words[i];
        size_t len = words[i][0] == '@' ? value_len : strlen(word);
        library_append(&t->request, text, (size_t)sprintf(text, "$%zu\r\n", len));
        library_append(&t->request, word, len);
        library_append(&t->request, "\r\n", 2);
    }
}

/* A line: "k" becomes a random key, "#" a small number, "~" a short time, "id" a recent client, "@"
 * a value. */
static void add_line(struct team *t, const char *line)
{
    char copy[256], made[24][24];
    const char *words[24];
    int count = 0;
    size_t value_len = below(t, 12) > 0  ? below(t, 60)
                       : below(t, 8) > 0 ? 16000 + below(t, 9000)
                                         : below(t, 300000);
    snprintf(copy, sizeof(copy), "%s", line);
    for (char *rest, *word = strtok_r(copy, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        KV_ASSERT(count < 24);
        words[count] = made[count];
        if (strcmp(word, "k") == 0)
            snprintf(made[count], 24, "key:%u", below(t, KEYS));
        else if (strcmp(word, "#") == 0)
            snprintf(made[count], 24, "%u", below(t, DATABASES));
        else if (strcmp(word, "~") == 0)
            snprintf(made[count], 24, "%u", 1 + below(t, TTL_MAX_MS));
        else if (strcmp(word, "id") == 0)
            snprintf(made[count], 24, "%llu",
                     (unsigned long long)(atomic_load(&engine->next_client_id) - below(t, 40)));
        else
            snprintf(made[count], 24, "%s", word);
        count++;
    }
    add_words(t, words, count, value_len);
}

static const char *const plain_lines[] = {
    "SET k @",
    "SET k @ PX ~",
    "SET k @ EX 1000",
    "SET k @ NX GET",
    "GET k",
    "INCR k",
    "APPEND k @",
    "MSET k @ k @ k @",
    "MGET k k k",
    "DEL k k",
    "RENAME k k",
    "COPY k k REPLACE",
    "MSETNX k @ k @",
    "GETEX k PX ~",
    "GETDEL k",
    "PEXPIRE k ~",
    "PERSIST k",
    "SETRANGE k 7 @",
    "BITOP OR k k k",
    "INCRBYFLOAT k 0.5",
    "EXISTS k k k k",
    "SETBIT k 77 1",
    "STRLEN k",
    "RENAMENX k k",
    "MOVE k #",
    "COPY k k DB #",
    "EXPIRE k 500",
    "GETRANGE k 0 -1",
    "TOUCH k k",
    "SET k 17 KEEPTTL",
    "MSETEX 2 k @ k @ PX ~",
    "GETSET k @",
    "SCAN 0 COUNT 100",
    "RANDOMKEY",
    "TTL k",
    "SELECT #",
};

static const char *const rare_lines[] = {
    "KEYS *",
    "DBSIZE",
    "FLUSHDB",
    "FLUSHALL ASYNC",
    "SWAPDB # #",
    "CLIENT LIST",
    "CLIENT KILL ID id",
    "CLIENT UNPAUSE",
    "SLOWLOG GET",
    "RESET",
    "NOSUCH",
    "FLUSHALL",
};

/* These spoil the speed or the counters, so that they are rarer still. */
static const char *const rarest_lines[] = {
    "CLIENT PAUSE 3 WRITE",
    "CLIENT PAUSE 2 ALL",
    "CONFIG RESETSTAT",
};

static void add_plain(struct team *t)
{
    add_line(t, plain_lines[below(t, KV_ARRAY_LEN(plain_lines))]);
}

/* Adds one command or transaction; returns how many replies it gets. */
static uint32_t add_some(struct team *t)
{
    if (below(t, 4000) == 0) {
        add_line(t, rarest_lines[below(t, KV_ARRAY_LEN(rarest_lines))]);
        return 1;
    }
    if (below(t, 40) == 0) {
        add_line(t, rare_lines[below(t, KV_ARRAY_LEN(rare_lines))]);
        return 1;
    }
    if (below(t, 8) > 0) {
        add_plain(t);
        return 1;
    }
    uint32_t n = 1 + below(t, 4), watches = below(t, 2);
    if (watches > 0)
        add_line(t, "WATCH k k");
    add_line(t, "MULTI");
    for (uint32_t i = 0; i < n; i++)
        add_plain(t);
    if (below(t, 30) == 0)
        add_line(t, below(t, 2) > 0 ? "KEYS *" : "CLIENT LIST");
    else
        add_plain(t);
    add_line(t, below(t, 10) > 0 ? "EXEC" : "DISCARD");
    return watches + n + 3;
}

/* --- a worker's thread --- */

static bool waits(const struct person *p)
{
    return p->answered < p->sent;
}

static void appear(struct team *t, struct person *p)
{
    *p = (struct person){.c = kv_client_create_virtual(t->w)};
}

static void collect(struct team *t, struct person *p)
{
    uint64_t errors = 0;
    library_clear(&t->reply);
    library_take(p->c, &t->reply);
    p->answered += count_replies(&t->reply, &errors);
    KV_ASSERT(p->answered <= p->sent);
}

static void visit(struct team *t, struct person *p)
{
    collect(t, p);
    if (p->c->flags & KV_CLIENT_CLOSE_NOW) {
        t->killed++;
    } else if (waits(p)) {
        t->waited++;
        if (below(t, 50) > 0)
            return;
        t->vanished++;
    } else if (below(t, 200) > 0) {
        uint32_t rounds = below(t, 4) > 0 ? 1 : 1 + below(t, 30);
        library_clear(&t->request);
        for (uint32_t i = 0; i < rounds; i++) {
            uint32_t n = add_some(t);
            p->sent += n;
            t->commands += n;
        }
        /* In one piece, or cut anywhere with the rest lost for ever now and then. */
        size_t cut = below(t, 3) > 0 ? t->request.len : below(t, (uint32_t)t->request.len);
        kv_client_feed(p->c, t->request.bytes, cut);
        if (cut < t->request.len && below(t, 20) > 0)
            kv_client_feed(p->c, t->request.bytes + cut, t->request.len - cut);
        else if (cut < t->request.len)
            p->sent = UINT64_MAX / 2; /* owed nothing any more; it vanishes later */
        collect(t, p);
        return;
    }
    kv_client_destroy(p->c);
    appear(t, p);
}

/* Everybody who is owed a reply gets it. The other workers are served until all are done. */
static void end_quietly(struct team *t)
{
    bool told = false;
    int64_t give_up = kv_clock_wall_ms() + 60000, until = INT64_MAX;
    for (;;) {
        bool waiting = false;
        for (int i = 0; i < CLIENTS; i++) {
            struct person *p = &t->people[i];
            if (p->c->flags & KV_CLIENT_CLOSE_NOW || p->sent > UINT64_MAX / 4) {
                kv_client_destroy(p->c);
                appear(t, p);
            }
            collect(t, p);
            waiting |= waits(p);
        }
        int64_t now = kv_clock_wall_ms();
        KV_ASSERT(now < give_up); /* somebody waits for ever */
        if (!waiting && !told) {
            told = true;
            atomic_fetch_add(&quiet_workers, 1);
        }
        if (until == INT64_MAX && atomic_load(&quiet_workers) == WORKERS)
            until = now + QUIET_MS;
        if (now > until)
            return;
        kv_worker_poll(t->w, 1);
    }
}

static void *work(void *arg)
{
    struct team *t = arg;
    kv_worker_attach(t->w);
    for (int i = 0; i < CLIENTS; i++)
        appear(t, &t->people[i]);
    while (!atomic_load(&stopping)) {
        uint64_t waited = t->waited;
        for (int i = 0; i < CLIENTS; i++)
            visit(t, &t->people[below(t, CLIENTS)]);
        kv_worker_poll(t->w, t->waited - waited > CLIENTS / 2 ? 1 : 0);
    }
    end_quietly(t);
    for (int i = 0; i < CLIENTS; i++)
        kv_client_destroy(t->people[i].c);
    kv_worker_detach(t->w);
    library_release(&t->request);
    library_release(&t->reply);
    kv_mem_thread_exit();
    return NULL;
}

/* --- the reader: another engine, which gets everything by the stream --- */

struct follower {
    struct kv_engine *engine;
    struct kv_client *c;
    struct kv_stream_reader *reader;
    atomic_bool stop;
    uint64_t bytes, errors;
};

static bool follow(struct follower *f, struct library_bytes *reply)
{
    static char bytes[50000];
    size_t len = kv_stream_read(f->reader, bytes, sizeof(bytes));
    KV_ASSERT(!kv_stream_lapsed(f->reader));
    if (len == 0)
        return false;
    f->bytes += len;
    kv_client_feed(f->c, bytes, len);
    library_clear(reply);
    library_take(f->c, reply);
    (void)count_replies(reply, &f->errors);
    return true;
}

static void *follower_thread(void *arg)
{
    struct follower *f = arg;
    struct library_bytes reply = {0};
    struct kv_random random;
    kv_random_init(&random, 7);
    kv_worker_attach(kv_engine_worker(f->engine, 0));
    f->c = kv_client_create_virtual(kv_engine_worker(f->engine, 0));
    f->c->flags |= KV_CLIENT_APPLY;
    for (;;) {
        bool stop = atomic_load(&f->stop);
        bool some = follow(f, &reply);
        if (stop && !some)
            break;
        if (!some || kv_random_below(&random, 300) == 0)
            nanosleep(&(struct timespec){.tv_nsec = some ? 20000000 : 200000}, NULL);
    }
    ck_assert_uint_eq(f->c->in_len, 0);
    kv_client_destroy(f->c);
    kv_worker_detach(kv_engine_worker(f->engine, 0));
    library_release(&reply);
    kv_mem_thread_exit();
    return NULL;
}

static void digest_of(struct kv_engine *e, uint8_t out[20])
{
    struct kv_store_stats stats = {0};
    struct kv_view view = {
        .store = kv_engine_store(e), .stats = &stats, .now_ms = kv_clock_wall_ms()};
    kv_store_check(kv_engine_store(e));
    kv_store_digest(&view, out);
}

static int load_seconds(void)
{
    const char *given = getenv("STRESS_SECONDS");
    return given != NULL ? atoi(given) : 3;
}

static void play(const char *name, uint64_t memory_bytes)
{
    uint64_t seed = unit_seed(name);
    struct kv_options options = options_for(WORKERS), other = options_for(1);
    if (memory_bytes != 0) {
        options.maxmemory = (uint64_t)kv_mem_used_total() + memory_bytes;
        options.maxmemory_policy = KV_POLICY_ALLKEYS_LFU;
        options.lazyfree_eviction = true;
    }
    options.shards = 8;
    options.command_log[KV_COMMAND_LOG_SLOW].limit = 300;
    other.active_expire = false;
    engine = kv_engine_create(&options, &kv_command_table);
    struct follower f = {.engine = kv_engine_create(&other, &kv_command_table)};
    f.reader = kv_stream_open(engine);
    memset(filler, 'v', sizeof(filler));

    static struct team teams[WORKERS];
    pthread_t threads[WORKERS], follower;
    pthread_create(&follower, NULL, follower_thread, &f);
    for (uint32_t i = 0; i < WORKERS; i++) {
        teams[i].w = kv_engine_worker(engine, i);
        kv_random_init(&teams[i].random, seed + i);
        pthread_create(&threads[i], NULL, work, &teams[i]);
    }
    nanosleep(&(struct timespec){.tv_sec = load_seconds()}, NULL);
    atomic_store(&stopping, true);
    for (int i = 0; i < WORKERS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&f.stop, true);
    pthread_join(follower, NULL);

    uint64_t commands = 0, vanished = 0, killed = 0;
    for (int i = 0; i < WORKERS; i++) {
        commands += teams[i].commands;
        vanished += teams[i].vanished;
        killed += teams[i].killed;
    }
    printf(
        "commands=%llu vanished=%llu killed=%llu stream_bytes=%llu evicted=%llu lock_parks=%llu "
        "gate_parks=%llu world_stops=%llu\n",
        (unsigned long long)commands, (unsigned long long)vanished, (unsigned long long)killed,
        (unsigned long long)f.bytes,
        (unsigned long long)kv_engine_store_stat(engine,
                                                 offsetof(struct kv_store_stats, evicted_keys)),
        (unsigned long long)kv_engine_stat(engine, offsetof(struct kv_worker_stats, lock_parks)),
        (unsigned long long)kv_engine_stat(engine, offsetof(struct kv_worker_stats, gate_parks)),
        (unsigned long long)kv_engine_stat(engine, offsetof(struct kv_worker_stats, world_stops)));
    uint8_t here[20], there[20];
    digest_of(engine, here);
    digest_of(f.engine, there);
    ck_assert_uint_eq(f.errors, 0);
    ck_assert_mem_eq(here, there, sizeof(here));
    ck_assert_uint_gt(commands, 1000);
    ck_assert_uint_eq(kv_store_watched_keys(kv_engine_store(engine)), 0);
    kv_stream_close(f.reader);
    kv_engine_destroy(engine);
    kv_engine_destroy(f.engine);
}

START_TEST(random_commands_on_every_worker_are_replayed)
{
    play("random_commands_on_every_worker_are_replayed", 0);
}
END_TEST

/* Both engines count, and so do clients: now and then most keys have to go. */
START_TEST(evictions_are_replayed_too)
{
    play("evictions_are_replayed_too", 1 << 20);
}
END_TEST

/* --- interleavings, step by step --- */

/* Two workers on one thread: `act` makes it the one that the thread stands for. */
static struct kv_worker *two[2];

static void begin_two(void)
{
    struct kv_options options = options_for(2);
    engine = kv_engine_create(&options, &kv_command_table);
    for (uint32_t i = 0; i < 2; i++)
        two[i] = kv_engine_worker(engine, i);
}

static void act(int i)
{
    kv_worker_attach(two[i]);
}

static void poll_both(void)
{
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 2; i++) {
            act(i);
            kv_worker_poll(two[i], 0);
        }
    }
}

static uint64_t pending_messages(struct kv_worker *w)
{
    uint64_t count = 0;
    for (struct kv_message *m = atomic_load(&w->inbox.head); m != NULL; m = m->next)
        count++;
    return count;
}

START_TEST(a_closed_gate_collects_no_messages)
{
    struct library_bytes reply = {0};
    struct kv_client *crowd[500];
    begin_two();
    act(0);
    struct kv_client *owner = kv_client_create_virtual(two[0]);
    ck_assert(kv_gate_close(two[0], owner));
    act(1);
    for (size_t i = 0; i < KV_ARRAY_LEN(crowd); i++) {
        crowd[i] = kv_client_create_virtual(two[1]);
        library_send(crowd[i], "SET k v", &reply);
        ck_assert_uint_eq(reply.len, 0);
    }
    ck_assert_uint_le(pending_messages(two[0]), 1);
    act(0);
    kv_gate_open(two[0]);
    poll_both();
    act(1);
    for (size_t i = 0; i < KV_ARRAY_LEN(crowd); i++) {
        library_clear(&reply);
        library_take(crowd[i], &reply);
        ck_assert_str_eq(reply.bytes, "+OK\r\n");
        ck_assert_int_eq(crowd[i]->park, KV_PARK_NONE);
    }
    library_release(&reply);
    kv_engine_destroy(engine);
}
END_TEST

/* An exclusive command gets the gate, then finds the change stream full, then its client goes. */
START_TEST(nobody_holds_the_gate_while_he_waits_for_stream_space)
{
    struct library_bytes reply = {0};
    begin_two();
    struct kv_stream_reader *reader = kv_stream_open(engine);
    act(0);
    struct kv_client *flusher = kv_client_create_virtual(two[0]);
    struct kv_client *other = kv_client_create_virtual(two[0]);
    ck_assert(kv_gate_enter(two[1]));
    library_send(flusher, "FLUSHALL", &reply);
    ck_assert_int_eq(flusher->park, KV_PARK_ALONE);
    ck_assert(kv_stream_promise(two[1], RING_BYTES / 2 - 4000, 1));
    kv_gate_leave(two[1]);
    kv_worker_poll(two[0], 0);
    ck_assert_int_eq(flusher->park, KV_PARK_STREAM);
    ck_assert_uint_eq(atomic_load(&engine->gate.closed), 0);
    library_send(other, "DBSIZE", &reply);
    ck_assert_str_eq(reply.bytes, ":0\r\n");
    kv_client_destroy(flusher);
    library_send(other, "DBSIZE", &reply);
    ck_assert_str_eq(reply.bytes, ":0\r\n");

    /* A promise that is settled unwritten lets those who wait go on. */
    library_send(other, "SET k v", &reply);
    ck_assert_int_eq(other->park, KV_PARK_STREAM);
    kv_stream_settle(two[1]);
    kv_worker_poll(two[0], 0);
    library_clear(&reply);
    library_take(other, &reply);
    ck_assert_str_eq(reply.bytes, "+OK\r\n");
    library_release(&reply);
    kv_client_destroy(other);
    kv_stream_close(reader);
    kv_engine_destroy(engine);
}
END_TEST

/* Many short commands need more room than their bytes suggest. */
START_TEST(exec_of_any_length_finds_room_in_an_empty_stream)
{
    struct library_bytes reply = {0}, request = {0};
    char bytes[4096];
    begin_two();
    struct kv_stream_reader *reader = kv_stream_open(engine);
    act(0);
    struct kv_client *c = kv_client_create_virtual(two[0]);
    for (int n = 500; n <= 8000; n += 250) {
        library_clear(&request);
        library_clear(&reply);
        library_request(&request, "MULTI");
        library_request(&request, "SET k v");
        for (int i = 0; i < n; i++)
            library_request(&request, "PING");
        library_request(&request, "EXEC");
        kv_client_feed(c, request.bytes, request.len);
        ck_assert_int_eq(c->park, KV_PARK_NONE);
        library_take(c, &reply);
        uint64_t errors = 0;
        ck_assert_uint_eq(count_replies(&reply, &errors), (uint64_t)n + 3);
        while (kv_stream_read(reader, bytes, sizeof(bytes)) > 0)
            continue;
    }
    library_release(&reply);
    library_release(&request);
    kv_client_destroy(c);
    kv_stream_close(reader);
    kv_engine_destroy(engine);
}
END_TEST

/* SCAN finds its first shard busy again and again, and takes the gate in the end. */
START_TEST(scan_gets_through_to_the_gate)
{
    struct library_bytes reply = {0};
    begin_two();
    act(0);
    struct kv_client *c = kv_client_create_virtual(two[0]);
    ck_assert(kv_shard_try_lock(engine, 0));
    library_send(c, "SCAN 0", &reply);
    for (int round = 1; c->park == KV_PARK_SHARD; round++) {
        ck_assert_int_le(round, KV_PARK_ROUNDS_MAX);
        ck_assert_int_eq(c->park_rounds, round);
        /* Free for a moment, taken again before the connection is resumed. */
        kv_shard_unlock(engine, 0);
        ck_assert(kv_shard_try_lock(engine, 0));
        kv_worker_poll(two[0], 0);
    }
    kv_shard_unlock(engine, 0);
    poll_both();
    act(0);
    library_take(c, &reply);
    ck_assert_str_eq(reply.bytes, "*2\r\n$1\r\n0\r\n*0\r\n");
    ck_assert_uint_lt(kv_engine_stat(engine, offsetof(struct kv_worker_stats, hold_ns_max)),
                      UINT64_C(60000000000));
    library_release(&reply);
    kv_client_destroy(c);
    kv_engine_destroy(engine);
}
END_TEST

/* --- the loop --- */

static void *wake_often(void *arg)
{
    struct kv_loop *loop = arg;
    for (int i = 0; i < 3000; i++)
        kv_loop_wake(loop);
    return NULL;
}

START_TEST(wake_ups_are_never_lost)
{
    struct kv_loop *loop = kv_loop_create(KV_LOOP_AUTO);
    for (int round = 0; round < UNIT_ROUNDS(100); round++) {
        pthread_t thread;
        pthread_create(&thread, NULL, wake_often, loop);
        for (int i = 0; i < 300; i++)
            (void)kv_loop_wait(loop, 0);
        pthread_join(thread, NULL);
        (void)kv_loop_wait(loop, 0);
        kv_loop_wake(loop);
        ck_assert_int_eq(kv_loop_wait(loop, 2000), 1);
    }
    kv_loop_destroy(loop);
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "engine under stress");
    unit_fixture(&u, setup, NULL);
    unit_add(&u, wake_ups_are_never_lost);
    unit_add(&u, a_closed_gate_collects_no_messages);
    unit_add(&u, nobody_holds_the_gate_while_he_waits_for_stream_space);
    unit_add(&u, exec_of_any_length_finds_room_in_an_empty_stream);
    unit_add(&u, scan_gets_through_to_the_gate);
    unit_add(&u, random_commands_on_every_worker_are_replayed);
    unit_add(&u, evictions_are_replayed_too);
    return unit_run(&u);
}
