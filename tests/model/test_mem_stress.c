/* The memory layer under several threads that know no mercy: they make, resize, hand over and free
 * blocks of each other, burst, trim and purge, end and are started anew, while slabs are evacuated
 * beneath them. Every block is filled with a pattern that is looked at whenever it is touched. Now
 * and then all of them stop, and then the bytes of each owner must be those of the blocks that
 * anybody has, slabs and caches must agree about them, and caches must be bounded. At the end
 * everything is freed, and every counter is where it was at the start.
 *
 * Threads never write into each other's data: a block is handed over through a queue with a mutex.
 * An evacuation is begun by the main thread; each thread moves what it holds itself, as workers
 * move the entries of shards whose lock they have.
 *
 * Runs for STRESS_SECONDS (default 3) of load; SEED= repeats the choices, not their timing. Beside
 * it the model of tests/fuzz/ops_mem.h with random operations, and evacuation step by step. */
#include "base/clock.h"
#include "fuzz/ops_mem.h"
#include "unit/unit.h"
#include <stdatomic.h>

#define WORKERS 4
#define HELD 3000     /* blocks a worker holds at most */
#define QUEUE_MAX 512 /* blocks on their way to a worker */
#define CACHE_MAX_BYTES ((uint64_t)2 << 20)
#define QUIET_EVERY_MS 60
#define LARGEST 40000

/* --- what travels between threads --- */

struct queue {
    pthread_mutex_t mutex;
    struct mem_block blocks[QUEUE_MAX];
    uint32_t first, count;
};

struct worker {
    struct queue inbox;
    struct kv_random random;
    pthread_t thread;
    struct mem_block held[HELD]; /* the worker's own, kept over the life of its threads */
    uint32_t count;
    uint32_t number;
    uint32_t lives;      /* threads that have been this worker */
    uint32_t evacuation; /* the last one it has taken part in */
    uint64_t made, handed, taken, moved, resized;
};

static struct worker workers[WORKERS];
static struct kv_random janitor_random;

/* The stop: the main thread asks, workers arrive and wait. */
static pthread_mutex_t stop_mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t stop_changed = PTHREAD_COND_INITIALIZER;
static bool stop_asked;
static uint32_t stop_arrived;
static uint64_t stop_number; /* a worker that leaves late must not sleep through the next one */
static atomic_bool ending;
static atomic_uint evacuation; /* odd: one is going on */
static atomic_uint usual_size; /* bytes of most blocks now: fills slabs of one class and the next */

static uint32_t below(struct kv_random *random, uint32_t n)
{
    return (uint32_t)kv_random_below(random, n);
}

static bool queue_put(struct queue *q, const struct mem_block *b)
{
    pthread_mutex_lock(&q->mutex);
    bool fits = q->count < QUEUE_MAX;
    if (fits)
        q->blocks[(q->first + q->count++) % QUEUE_MAX] = *b;
    pthread_mutex_unlock(&q->mutex);
    return fits;
}

static bool queue_take(struct queue *q, struct mem_block *b)
{
    pthread_mutex_lock(&q->mutex);
    bool any = q->count > 0;
    if (any) {
        *b = q->blocks[q->first];
        q->first = (q->first + 1) % QUEUE_MAX;
        q->count--;
    }
    pthread_mutex_unlock(&q->mutex);
    return any;
}

/* --- what a worker does --- */

static size_t some_size(struct worker *w)
{
    if (below(&w->random, 200) == 0)
        return below(&w->random, LARGEST);
    if (below(&w->random, 10) == 0)
        return below(&w->random, 5000);
    if (below(&w->random, 3) == 0)
        return below(&w->random, 160);
    return atomic_load(&usual_size);
}

static void make(struct worker *w, uint32_t times)
{
    while (times-- > 0 && w->count < HELD) {
        struct mem_block b = {.size = some_size(w), .fill = kv_random_next(&w->random)};
        b.owner = (enum kv_mem_owner)below(&w->random, KV_MEM_OWNER_COUNT);
        b.align = (size_t)8 << below(&w->random, 8);
        enum mem_block_call call = below(&w->random, 4) == 0
                                       ? (enum mem_block_call)below(&w->random, MEM_CALL_COUNT)
                                       : MEM_CALL_ALLOC;
        kv_mem_fail_try(below(&w->random, 16) == 0 ? 1 : 0);
        if (mem_block_make(&b, call)) {
            w->held[w->count++] = b;
            w->made++;
        }
        kv_mem_fail_try(0);
    }
}

static void drop(struct worker *w, uint32_t place)
{
    mem_block_drop(&w->held[place], &w->random);
    w->held[place] = w->held[--w->count];
}

static void drop_some(struct worker *w, uint32_t times)
{
    while (times-- > 0 && w->count > 0)
        drop(w, below(&w->random, w->count));
}

static void hand_over(struct worker *w, uint32_t times)
{
    struct worker *to = &workers[below(&w->random, WORKERS)];
    while (times-- > 0 && w->count > 0) {
        uint32_t place = below(&w->random, w->count);
        if (!queue_put(&to->inbox, &w->held[place]))
            return;
        w->held[place] = w->held[--w->count];
        w->handed++;
    }
}

/* Some of what came is freed at once, some kept. */
static void take(struct worker *w)
{
    struct mem_block b;
    while (queue_take(&w->inbox, &b)) {
        w->taken++;
        if (w->count < HELD && below(&w->random, 3) > 0) {
            mem_block_verify(&b, mem_block_usable(&b));
            w->held[w->count++] = b;
        } else {
            mem_block_drop(&b, &w->random);
        }
    }
}

static void change(struct worker *w)
{
    if (w->count == 0)
        return;
    struct mem_block *b = &w->held[below(&w->random, w->count)];
    enum kv_mem_owner to = (enum kv_mem_owner)below(&w->random, KV_MEM_OWNER_COUNT);
    if (b->align != 0)
        return;
    if (below(&w->random, 3) == 0) {
        kv_mem_reattribute(b->ptr, mem_block_told(b, &w->random), b->owner, to);
        b->owner = to;
        return;
    }
    w->resized += mem_block_resize(b, some_size(w), below(&w->random, 2) == 0, &w->random);
}

static void burst(struct worker *w)
{
    uint32_t first = w->count;
    make(w, 640);
    while (w->count > first)
        drop(w, w->count - 1);
}

static void move_blocks(struct worker *w)
{
    if (atomic_load(&evacuation) % 2 == 0)
        return;
    for (uint32_t i = 0; i < 64 && w->count > 0; i++)
        w->moved += mem_block_evacuate(&w->held[below(&w->random, w->count)], &w->random);
}

static void upkeep(struct worker *w)
{
    struct kv_mem_report report;
    bool rest = false;
    switch (below(&w->random, 12)) {
    case 0:
        kv_mem_purge();
        break;
    case 1:
        kv_mem_report_read(&report);
        break;
    case 2:
        kv_mem_cache_each(mem_model_cache_seen, &rest);
        break;
    case 3:
        kv_mem_flush();
        break;
    case 4:
        (void)kv_mem_used_total();
        break;
    default:
        kv_mem_trim();
        break;
    }
}

/* Waits at the stop if it was asked for. */
static void stop_here(void)
{
    pthread_mutex_lock(&stop_mutex);
    if (stop_asked) {
        kv_mem_publish();
        uint64_t number = stop_number;
        stop_arrived++;
        pthread_cond_broadcast(&stop_changed);
        while (stop_asked && stop_number == number)
            pthread_cond_wait(&stop_changed, &stop_mutex);
    }
    pthread_mutex_unlock(&stop_mutex);
}

static void step(struct worker *w)
{
    switch (below(&w->random, 16)) {
    case 0:
    case 1:
    case 2:
        make(w, 1 + below(&w->random, 60));
        break;
    case 3:
    case 4:
        drop_some(w, 1 + below(&w->random, 60));
        break;
    case 5:
    case 6:
        hand_over(w, 1 + below(&w->random, 40));
        break;
    case 7:
        burst(w);
        break;
    case 8:
        upkeep(w);
        break;
    case 9:
        if (below(&w->random, 20) == 0)
            drop_some(w, HELD * 9 / 10); /* slabs are left nearly empty */
        break;
    case 10:
    case 11:
        change(w);
        break;
    case 12:
    case 13:
        move_blocks(w);
        break;
    default:
        take(w);
        break;
    }
}

/* A worker's thread lives for up to some hundred steps, then another takes its place. */
static void *worker_run(void *arg)
{
    struct worker *w = arg;
    char name[32];
    snprintf(name, sizeof name, "stress-%u", w->number);
    kv_mem_thread_name(name);
    uint32_t steps = 20 + below(&w->random, 400);
    while (steps-- > 0 && !atomic_load(&ending)) {
        step(w);
        kv_mem_publish();
        stop_here();
    }
    kv_mem_thread_exit();
    return NULL;
}

/* Threads of a worker follow each other; this one only starts and joins them. */
static void *worker_start(void *arg)
{
    struct worker *w = arg;
    while (!atomic_load(&ending)) {
        pthread_t life;
        w->lives++;
        if (pthread_create(&life, NULL, worker_run, w) != 0)
            abort();
        pthread_join(life, NULL);
    }
    return NULL;
}

/* --- the main thread --- */

static void janitor_sleep(uint32_t ms)
{
    nanosleep(&(struct timespec){.tv_nsec = (long)ms * 1000000}, NULL);
}

static void count_block(const struct mem_block *b, int64_t *used, int64_t *small)
{
    used[b->owner] += (int64_t)mem_block_counted(b);
    *small += (int64_t)mem_block_small(b);
}

/* Nobody else runs: what everybody has is what is counted. */
static void check_quiet(uint32_t threads)
{
    int64_t used[KV_MEM_OWNER_COUNT] = {0}, small = 0, total = 0;
    for (unsigned i = 0; i < WORKERS; i++) {
        struct worker *w = &workers[i];
        for (uint32_t n = 0; n < w->count; n++)
            count_block(&w->held[n], used, &small);
        for (uint32_t n = 0; n < w->inbox.count; n++)
            count_block(&w->inbox.blocks[(w->inbox.first + n) % QUEUE_MAX], used, &small);
    }
    for (unsigned i = 0; i < KV_MEM_OWNER_COUNT; i++) {
        ck_assert_int_eq(kv_mem_used((enum kv_mem_owner)i), used[i]);
        total += used[i];
    }
    ck_assert_int_eq(kv_mem_used_total(), total);
    ck_assert_int_eq(kv_mem_used_dataset(), used[KV_MEM_ENTRY] + used[KV_MEM_VALUE] +
                                                used[KV_MEM_TABLE] + used[KV_MEM_EXPIRY]);
    int64_t off = total - used[KV_MEM_STREAM] - kv_mem_used_published();
    ck_assert_int_le(llabs(off), (int64_t)threads * KV_MEM_PUBLISH_BYTES);
    struct kv_mem_report report;
    kv_mem_report_read(&report);
    ck_assert_int_eq(report.used_total, total);
    ck_assert_int_eq((int64_t)(report.small_bytes + report.large_bytes), total);
    ck_assert_uint_le(report.cached_bytes, threads * CACHE_MAX_BYTES);
#if KV_MEM_INLINED
    ck_assert_int_eq((int64_t)report.small_bytes, small);
#endif
}

static void stop_everybody(void)
{
    pthread_mutex_lock(&stop_mutex);
    stop_asked = true;
    stop_number++;
    stop_arrived = 0;
    while (stop_arrived < WORKERS)
        pthread_cond_wait(&stop_changed, &stop_mutex);
    pthread_mutex_unlock(&stop_mutex);
}

static void go_on(void)
{
    pthread_mutex_lock(&stop_mutex);
    stop_asked = false;
    pthread_cond_broadcast(&stop_changed);
    pthread_mutex_unlock(&stop_mutex);
}

/* Begins an evacuation or ends the one that goes on. */
static void turn_evacuation(void)
{
    uint32_t number = atomic_load(&evacuation);
    if (number % 2 == 1)
        kv_mem_evacuation_end();
    else if (kv_mem_evacuation_begin() == 0)
        return;
    atomic_store(&evacuation, number + 1);
}

static uint64_t stress_ms(void)
{
    const char *given = getenv("STRESS_SECONDS");
    return given != NULL ? strtoull(given, NULL, 10) * 1000 : 3000;
}

static void start_workers(uint64_t seed)
{
    kv_random_init(&janitor_random, seed);
    atomic_store(&usual_size, 100);
    for (unsigned i = 0; i < WORKERS; i++) {
        struct worker *w = &workers[i];
        w->number = i;
        kv_random_init(&w->random, seed + 1 + i);
        pthread_mutex_init(&w->inbox.mutex, NULL);
    }
    for (unsigned i = 0; i < WORKERS; i++) {
        if (pthread_create(&workers[i].thread, NULL, worker_start, &workers[i]) != 0)
            abort();
    }
}

static void free_everything(void)
{
    struct mem_block b;
    for (unsigned i = 0; i < WORKERS; i++) {
        drop_some(&workers[i], HELD);
        while (queue_take(&workers[i].inbox, &b))
            mem_block_drop(&b, &workers[i].random);
    }
}

START_TEST(blocks_survive_threads_that_hand_them_around)
{
    kv_clock_init();
    kv_mem_init();
    start_workers(unit_seed("blocks_survive_threads_that_hand_them_around"));
    uint64_t end_ns = kv_clock_mono_ns() + stress_ms() * 1000000;
    uint32_t quiet = 0;
    while (kv_clock_mono_ns() < end_ns) {
        janitor_sleep(1 + below(&janitor_random, QUIET_EVERY_MS));
        kv_mem_sample();
        turn_evacuation();
        if (below(&janitor_random, 8) == 0)
            kv_mem_purge();
        stop_everybody();
        check_quiet(WORKERS + 1);
        quiet++;
        atomic_store(&usual_size, 8 + below(&janitor_random, 1000));
        go_on();
    }
    if (atomic_load(&evacuation) % 2 == 1)
        turn_evacuation();
    atomic_store(&ending, true);
    uint64_t sums[5] = {0};
    for (unsigned i = 0; i < WORKERS; i++) {
        struct worker *w = &workers[i];
        pthread_join(w->thread, NULL);
        uint64_t own[5] = {w->made, w->taken, w->moved, w->resized, w->lives};
        for (unsigned n = 0; n < KV_ARRAY_LEN(sums); n++)
            sums[n] += own[n];
    }
    check_quiet(1);
    free_everything();
    kv_mem_publish();
    check_quiet(1);
    ck_assert_int_eq(kv_mem_used_total(), 0);
    kv_mem_thread_exit();
    ck_assert_int_eq(kv_mem_used_total(), 0);
    ck_assert_int_eq(kv_mem_used_published(), 0);
    printf("%llu made, %llu handed over, %llu moved, %llu resized, %llu threads, %u stops\n",
           (unsigned long long)sums[0], (unsigned long long)sums[1], (unsigned long long)sums[2],
           (unsigned long long)sums[3], (unsigned long long)sums[4], quiet);
    for (unsigned n = 0; n < KV_ARRAY_LEN(sums); n++)
        ck_assert_uint_gt(sums[n], 0);
}
END_TEST

/* --- threads that come and go --- */

#define VISITORS 60
#define VISITOR_BLOCKS 200

static struct mem_block left_behind[VISITORS][VISITOR_BLOCKS];

/* Frees what the one before it left, leaves blocks itself; every other forgets to say good-bye. */
static void *visit(void *arg)
{
    unsigned number = (unsigned)(uintptr_t)arg;
    struct kv_random random;
    kv_random_init(&random, number);
    for (unsigned i = 0; i < VISITOR_BLOCKS; i++) {
        struct mem_block *b = &left_behind[number][i];
        *b = (struct mem_block){.size = i * 5, .fill = number * 1000 + i, .owner = KV_MEM_VALUE};
        mem_block_make(b, MEM_CALL_ALLOC);
        if (number > 0)
            mem_block_drop(&left_behind[number - 1][i], &random);
    }
    if (number % 2 == 0)
        kv_mem_thread_exit();
    return NULL;
}

START_TEST(ended_threads_keep_no_memory)
{
    kv_mem_init();
    struct kv_random random;
    kv_random_init(&random, 1);
    int64_t expected = 0;
    for (unsigned i = 0; i < VISITOR_BLOCKS; i++)
        expected += (int64_t)kv_mem_block_size(i * 5);
    for (unsigned number = 0; number < VISITORS; number++) {
        pthread_t thread;
        ck_assert_int_eq(pthread_create(&thread, NULL, visit, (void *)(uintptr_t)number), 0);
        pthread_join(thread, NULL);
        ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), expected);
        ck_assert_int_eq(kv_mem_used_published(), expected);
        struct kv_mem_report report;
        kv_mem_report_read(&report);
        ck_assert_uint_eq(report.cached_bytes, 0);
    }
    for (unsigned i = 0; i < VISITOR_BLOCKS; i++)
        mem_block_drop(&left_behind[VISITORS - 1][i], &random);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

/* --- one thread, random operations against the model --- */

START_TEST(random_operations_agree_with_the_model)
{
    enum { STEPS = 120 };
    static uint8_t bytes[2 + 2 * STEPS];
    struct kv_random random;
    kv_random_init(&random, unit_seed("random_operations_agree_with_the_model"));
    kv_mem_init();
    for (unsigned round = 0; round < UNIT_ROUNDS(60); round++) {
        for (size_t i = 0; i < sizeof bytes; i++)
            bytes[i] = (uint8_t)kv_random_next(&random);
        mem_model_run((struct input){bytes, bytes + sizeof bytes});
    }
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

/* Thousands of blocks of a size, nine of ten freed at random, evacuation until nothing moves: for
 * sizes that slabs serve. */
START_TEST(evacuation_moves_what_is_left)
{
    static const uint8_t rest[] = {0, 255, 0, 255, 0, 255, 3,  255, 3, 255, 3, 130, 15, 3,  13, 0,
                                   9, 0,   9, 255, 9, 255, 9,  255, 9, 255, 0, 30,  14, 0,  13, 0,
                                   9, 255, 9, 255, 9, 0,   13, 0,   0, 30,  9, 0,   9,  255};
    kv_mem_init();
    for (unsigned center = 78; center < 230; center += 7) {
        uint8_t bytes[4 + sizeof rest] = {(uint8_t)center, 1, 12, (uint8_t)center};
        memcpy(bytes + 4, rest, sizeof rest);
        uint32_t moved = mem_model_run((struct input){bytes, bytes + sizeof bytes});
        ck_assert_uint_gt(moved, 0);
    }
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "mem_stress");
    unit_add(&u, blocks_survive_threads_that_hand_them_around);
    unit_add(&u, ended_threads_keep_no_memory);
    unit_add(&u, random_operations_agree_with_the_model);
    unit_add(&u, evacuation_moves_what_is_left);
    return unit_run(&u);
}
