/* What the instruction budgets count: each case runs one fast path `rounds` times.
 *
 *     budget CASE ROUNDS
 *     budget --list
 *
 * budget.py runs a case under callgrind with N and with 2 N rounds and divides the difference by
 * N. Collection is on within kv_budget_measured alone, so what is counted are the rounds and their
 * loop; the case `loop` is an empty one and is subtracted from the others. What is to be warm
 * (caches filled, tables built, buffers made) is done by a case's `prepare`, and by one uncounted
 * series of rounds.
 *
 * A case keeps the compiler from seeing through it with KEEP (a value is used, memory may change)
 * and HIDE (a value is no longer known): without them an allocation that is freed at once
 * disappears. Nothing here judges; ceilings stand in budgets.txt.
 */
#include "base/clock.h"
#include "base/random.h"
#include "cmd/table.h"
#include "ds/table.h"
#include "engine/engine.h"
#include "engine/worker.h"
#include "mem/arena.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KEEP(value) __asm__ volatile("" : : "r"(value) : "memory")
#define HIDE(value) __asm__ volatile("" : "+r"(value) : : "memory")

#define BURST 640 /* 16 commands with 15 fields each, two blocks a field and some */
#define KEYS 1000
#define PIPELINE 50
#define PIECE_BYTES 800 /* room of one command in a pipeline */

struct budget {
    const char *name;
    unsigned operations; /* in one round */
    const char *what;    /* one operation */
    void (*prepare)(void);
    void (*run)(uint64_t rounds);
};

static void nothing(void)
{
}

static void run_loop(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++)
        KEEP(i);
}

/* --- mem/ --- */

static void run_pair_constant(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        void *block = kv_mem_alloc(48, KV_MEM_OTHER);
        KEEP(block);
        kv_mem_free(block, 48, KV_MEM_OTHER);
    }
}

/* The compiler does not know the size; the loop does nothing but keep it in a register. */
static void run_pairs_of(size_t size, uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        HIDE(size);
        void *block = kv_mem_alloc(size, KV_MEM_OTHER);
        KEEP(block);
        HIDE(size);
        kv_mem_free(block, size, KV_MEM_OTHER);
    }
}

static void run_pair_variable(uint64_t rounds)
{
    run_pairs_of(100, rounds);
}

static void run_pair_larger(uint64_t rounds)
{
    run_pairs_of(700, rounds);
}

static void run_pair_large(uint64_t rounds)
{
    run_pairs_of(5000, rounds);
}

static void *burst_blocks[BURST];

/* A round is a whole burst: 640 blocks of four sizes live, then all freed. */
static void run_burst(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        for (size_t j = 0; j < BURST; j += 4) {
            burst_blocks[j] = kv_mem_alloc(16, KV_MEM_OTHER);
            burst_blocks[j + 1] = kv_mem_alloc(32, KV_MEM_OTHER);
            burst_blocks[j + 2] = kv_mem_alloc(40, KV_MEM_OTHER);
            burst_blocks[j + 3] = kv_mem_alloc(64, KV_MEM_OTHER);
        }
        KEEP(burst_blocks);
        for (size_t j = 0; j < BURST; j += 4) {
            kv_mem_free(burst_blocks[j], 16, KV_MEM_OTHER);
            kv_mem_free(burst_blocks[j + 1], 32, KV_MEM_OTHER);
            kv_mem_free(burst_blocks[j + 2], 40, KV_MEM_OTHER);
            kv_mem_free(burst_blocks[j + 3], 64, KV_MEM_OTHER);
        }
    }
}

static void run_resize(uint64_t rounds)
{
    void *block = kv_mem_alloc(50, KV_MEM_OTHER);
    size_t size = 50;
    for (uint64_t i = 0; i < rounds; i++) {
        size_t wanted = 50 + i % 5;
        HIDE(wanted);
        block = kv_mem_realloc(block, size, wanted, KV_MEM_OTHER);
        size = wanted;
        KEEP(block);
    }
    kv_mem_free(block, size, KV_MEM_OTHER);
}

static void run_publish(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        kv_mem_publish();
        KEEP(i);
    }
}

static struct kv_arena arena;

static void prepare_arena(void)
{
    kv_arena_init(&arena, 65536, KV_MEM_ARENA);
}

/* A round is 64 pieces and a reset. */
static void run_arena(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        for (size_t j = 0; j < 64; j++) {
            size_t size = 20 + j;
            HIDE(size);
            void *piece = kv_arena_alloc(&arena, size);
            KEEP(piece);
        }
        kv_arena_reset(&arena);
    }
}

/* --- ds/ --- */

struct item {
    uint64_t hash;
    uint64_t payload[7];
};

static struct kv_table table;
static uint64_t hashes[KEYS];

static uint64_t hash_of(const void *item, void *arg)
{
    (void)arg;
    return ((const struct item *)item)->hash;
}

static bool same(const void *item, const void *key)
{
    return ((const struct item *)item)->hash == *(const uint64_t *)key;
}

static void prepare_table(void)
{
    struct kv_random random;
    kv_random_init(&random, 4711);
    kv_table_init(&table, hash_of, NULL, KV_MEM_TABLE);
    for (size_t i = 0; i < KEYS; i++) {
        struct item *item = kv_mem_zalloc(sizeof *item, KV_MEM_ENTRY);
        item->hash = hashes[i] = kv_random_next(&random);
        KV_ASSERT(kv_table_insert(&table, item->hash, item) == KV_OK);
    }
}

static void run_table(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        const uint64_t *hash = &hashes[i % KEYS];
        struct item *item = kv_table_find(&table, *hash, same, hash);
        KEEP(item);
    }
}

/* --- proto/ and engine/: a round is a pipeline of 50 commands --- */

static struct kv_engine *engine;
static struct kv_client *client;

/* The requests of a pipeline; `pipelines` of them cover all keys. */
struct pipeline {
    char bytes[PIPELINE * PIECE_BYTES];
    size_t len;
};
static struct pipeline gets[KEYS / PIPELINE], sets[KEYS / PIPELINE], others[KEYS / PIPELINE];
static struct kv_request request;

static void add_set(struct pipeline *p, size_t key, int value_bytes)
{
    p->len += (size_t)snprintf(p->bytes + p->len, PIECE_BYTES,
                               "*3\r\n$3\r\nSET\r\n$16\r\nkey:%012zu\r\n$%d\r\n%0*zu\r\n", key,
                               value_bytes, value_bytes, key);
}

static void prepare_requests(void)
{
    for (size_t key = 0; key < KEYS; key++) {
        struct pipeline *get = &gets[key / PIPELINE];
        get->len += (size_t)snprintf(get->bytes + get->len, PIECE_BYTES,
                                     "*2\r\n$3\r\nGET\r\n$16\r\nkey:%012zu\r\n", key);
        add_set(&sets[key / PIPELINE], key, 32);
        add_set(&others[key / PIPELINE], key, 90);
    }
}

static void feed(const struct pipeline *p)
{
    kv_client_feed(client, p->bytes, p->len);
    kv_out_settle(&client->out);
    kv_out_advance(&client->out, kv_out_pending(&client->out));
}

static void prepare_engine(void)
{
    struct kv_options options;
    kv_options_default(&options);
    options.threads = 1;
    engine = kv_engine_create(&options, &kv_command_table);
    struct kv_worker *worker = kv_engine_worker(engine, 0);
    kv_worker_attach(worker);
    /* Under callgrind every batch would last too long and be cut, by chance here or there. */
    worker->hold_ticks = UINT64_MAX / 4;
    client = kv_client_create_virtual(worker);
    prepare_requests();
    for (size_t i = 0; i < KV_ARRAY_LEN(sets); i++)
        feed(&sets[i]);
}

static void run_get(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++)
        feed(&gets[i % KV_ARRAY_LEN(gets)]);
}

/* The value keeps its block: it is overwritten in place. */
static void run_set(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++)
        feed(&sets[i % KV_ARRAY_LEN(sets)]);
}

/* The value changes its class each time: a new entry, and the old one is freed. Two pipelines. */
static void run_replace(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        feed(&others[i % KV_ARRAY_LEN(others)]);
        feed(&sets[i % KV_ARRAY_LEN(sets)]);
    }
}

/* --- hashes of 15 fields, as applications have them: names, numbers, dates --- */

static const char *const person[] = {
    "username",     "john_doe",
    "email",        "john@example.com",
    "password",     "hashed_pwd_123",
    "created",      "1709125200",
    "updated",      "1709125200",
    "first_name",   "John",
    "last_name",    "Doe",
    "phone_number", "+1234567890",
    "address",      "123_Main_St",
    "city",         "NewYork",
    "country",      "USA",
    "postal",       "10001",
    "company",      "Acme_Corp",
    "job_title",    "Engineer",
    "bio",          "Loves_coding",
};
static struct pipeline hsets[KEYS / PIPELINE], hgets[KEYS / PIPELINE], hgetalls[KEYS / PIPELINE],
    dels[KEYS / PIPELINE];

static void add_word(struct pipeline *p, const char *word)
{
    p->len +=
        (size_t)snprintf(p->bytes + p->len, PIECE_BYTES, "$%zu\r\n%s\r\n", strlen(word), word);
}

static void add_head(struct pipeline *p, size_t words, const char *name, size_t key)
{
    char text[32];
    p->len += (size_t)snprintf(p->bytes + p->len, PIECE_BYTES, "*%zu\r\n", words);
    add_word(p, name);
    snprintf(text, sizeof(text), "key:%012zu", key);
    add_word(p, text);
}

static void prepare_hashes(void)
{
    prepare_engine();
    for (size_t key = 0; key < KEYS; key++) {
        size_t i = key / PIPELINE;
        add_head(&dels[i], 2, "DEL", key);
        add_head(&hgetalls[i], 2, "HGETALL", key);
        add_head(&hgets[i], 3, "HGET", key);
        add_word(&hgets[i], "company");
        add_head(&hsets[i], 2 + KV_ARRAY_LEN(person), "HSET", key);
        for (size_t word = 0; word < KV_ARRAY_LEN(person); word++)
            add_word(&hsets[i], person[word]);
    }
    for (size_t i = 0; i < KV_ARRAY_LEN(dels); i++) {
        feed(&dels[i]);
        feed(&hsets[i]);
    }
}

/* All fields are there with values of these lengths: they are overwritten in place. */
static void run_hset(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++)
        feed(&hsets[i % KV_ARRAY_LEN(hsets)]);
}

/* The hash is made anew each time. Two pipelines. */
static void run_hset_new(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++) {
        feed(&dels[i % KV_ARRAY_LEN(dels)]);
        feed(&hsets[i % KV_ARRAY_LEN(hsets)]);
    }
}

static void run_hgetall(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++)
        feed(&hgetalls[i % KV_ARRAY_LEN(hgetalls)]);
}

static void run_hget(uint64_t rounds)
{
    for (uint64_t i = 0; i < rounds; i++)
        feed(&hgets[i % KV_ARRAY_LEN(hgets)]);
}

static void prepare_parse(void)
{
    prepare_arena();
    prepare_requests();
}

static void run_parse(uint64_t rounds)
{
    const struct kv_parse_limits limits = {.bulk_max = 1 << 20, .authenticated = true};
    for (uint64_t i = 0; i < rounds; i++) {
        const struct pipeline *p = &sets[i % KV_ARRAY_LEN(sets)];
        const char *at = p->bytes, *end = p->bytes + p->len;
        while (at < end) {
            KV_ASSERT(kv_parse(at, end, &limits, &arena, &request) == KV_PARSE_OK);
            at = request.next;
        }
        kv_arena_reset(&arena);
    }
}

/* --- all --- */

static const struct budget budgets[] = {
    {"loop", 1, "nothing: subtracted from the others", nothing, run_loop},
    {"mem-pair-constant", 1, "alloc and free of 48 bytes", nothing, run_pair_constant},
    {"mem-pair-variable", 1, "alloc and free of 100, not known", nothing, run_pair_variable},
    {"mem-pair-larger", 1, "alloc and free of 700, not known", nothing, run_pair_larger},
    {"mem-pair-large", 1, "alloc and free of 5,000 below us", nothing, run_pair_large},
    {"mem-burst", BURST, "a pair of a burst of 640, constant sizes", nothing, run_burst},
    {"mem-realloc-in-class", 1, "realloc, sizes not known", nothing, run_resize},
    {"mem-publish", 1, "publish below the threshold", nothing, run_publish},
    {"arena", 64, "a piece of an arena, size not known", prepare_arena, run_arena},
    {"table-find", 1, "find of a present item", prepare_table, run_table},
    {"parse-set", PIPELINE, "a pipelined SET, parsed", prepare_parse, run_parse},
    {"get", PIPELINE, "a pipelined GET, from bytes to bytes", prepare_engine, run_get},
    {"set", PIPELINE, "a SET whose block stays", prepare_engine, run_set},
    {"set-replace", 2 * PIPELINE, "a SET that changes the block", prepare_engine, run_replace},
    {"hset15", PIPELINE, "an HSET of 15 known fields", prepare_hashes, run_hset},
    {"hset15-new", PIPELINE, "a DEL and an HSET of 15 new fields", prepare_hashes, run_hset_new},
    {"hgetall15", PIPELINE, "an HGETALL of 15 fields", prepare_hashes, run_hgetall},
    {"hget15", PIPELINE, "an HGET of the 13th of 15 fields", prepare_hashes, run_hget},
};

/* The function that callgrind counts in: never inlined, copied or specialised. */
void kv_budget_measured(const struct budget *b, uint64_t rounds);

__attribute__((noipa)) void kv_budget_measured(const struct budget *b, uint64_t rounds)
{
    b->run(rounds);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        for (size_t i = 0; i < KV_ARRAY_LEN(budgets); i++)
            printf("%s %u %s\n", budgets[i].name, budgets[i].operations, budgets[i].what);
        return 0;
    }
    for (size_t i = 0; argc == 3 && i < KV_ARRAY_LEN(budgets); i++) {
        const struct budget *b = &budgets[i];
        uint64_t rounds = strtoull(argv[2], NULL, 10);
        if (strcmp(argv[1], b->name) != 0)
            continue;
        kv_mem_init();
        kv_clock_init();
        b->prepare();
        b->run(rounds);
        kv_budget_measured(b, rounds);
        return 0;
    }
    fputs("budget CASE ROUNDS | --list\n", stderr);
    return 2;
}
