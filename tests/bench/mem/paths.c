/* One contender of the memory path's benchmark; memory.py runs all of them.
 *
 *     paths small SLICE_US       pair and burst of every size, nanoseconds a pair
 *     paths churn OPERATIONS     random replacement among a million live blocks
 *     paths handoff PAIRS        allocated on one thread, freed on another
 *     paths caches               bytes in thread caches; with Kvik also refills in steady state
 *     paths instructions [SIZE]  under callgrind: a dump for each size of pair and burst
 *
 * Every line of output is `<what> <variant> <size> <figure>`. Patterns:
 *
 *   pair       allocate, write the first word, free
 *   burst      640 blocks of a size live at once, then all freed in order of allocation
 *   reverse    likewise, freed in reverse order
 *   churn      free a random block of 2^20, allocate one of another size (16 to 512, uniform)
 *   churn-read likewise, and the block's first word is read before it is freed, as a store does
 *   handoff    a ring of pointers between two threads; blocks freed by who did not make them
 *
 * Variant `constant`: the size is known at compile time; `variable`: it is not, neither when
 * allocating nor when freeing. Only Kvik and the pool differ in them. Patterns are inlined into a
 * function per size, and the barrier ESCAPE keeps the compiler from dropping or joining pairs. */
#include "contender.h"
#include "measure.h"
#include <assert.h>
#include <stdatomic.h>
#include <string.h>

#define BURST 640
static_assert(STEPS_MIN % BURST == 0, "whole bursts");
#define LIVE_BLOCKS (UINT64_C(1) << 20)
#define CHURN_MIN 16
#define CHURN_MAX 512
#define RING_SLOTS 1024u
#define RING_BATCH 16u /* pointers made visible at once */
#define HANDOFF_SEED UINT64_C(0x9e3779b97f4a7c15)

#define SIZES(X) X(16) X(24) X(32) X(48) X(64) X(100) X(128) X(192) X(256) X(384) X(512)
#define HANDOFF_SIZES(X) X(16) X(64) X(256)

static cpu_set_t allowed_cores;

/* --- pair and burst --- */

static void *live[BURST];

KV_INLINE size_t hidden(size_t size, bool constant)
{
    if (!constant)
        __asm__ volatile("" : "+r"(size));
    return size;
}

/* One block is held meanwhile: jemalloc's sdallocx takes a slow way for the first of a page, and
 * the loop would meet no other. */
KV_INLINE void pair(size_t size, bool constant, uint64_t steps)
{
    void *held = contender_alloc(hidden(size, constant));
    ESCAPE(held);
    for (uint64_t i = 0; i < steps; i++) {
        uint64_t *p = contender_alloc(hidden(size, constant));
        *p = i;
        ESCAPE(p);
        contender_free(p, hidden(size, constant));
        BARRIER; /* else the block would come back in a register */
    }
    contender_free(held, hidden(size, constant));
}

/* `steps` counts pairs, of which a burst has 640. */
KV_INLINE void burst(size_t size, bool constant, bool reverse, uint64_t steps)
{
    for (uint64_t done = 0; done < steps; done += BURST) {
        for (unsigned i = 0; i < BURST; i++) {
            uint64_t *p = contender_alloc(hidden(size, constant));
            *p = i;
            live[i] = p;
            ESCAPE(p); /* else the head of a list would stay in a register for the whole burst */
        }
        for (unsigned i = 0; i < BURST; i++) {
            void *p = live[reverse ? BURST - 1 - i : i];
            contender_free(p, hidden(size, constant));
            BARRIER;
        }
    }
}

#define DEFINE(size)                                                                               \
    static KV_NOINLINE void pair_##size(size_t arg, uint64_t steps)                                \
    {                                                                                              \
        (void)arg;                                                                                 \
        pair(size, true, steps);                                                                   \
    }                                                                                              \
    static KV_NOINLINE void burst_##size(size_t arg, uint64_t steps)                               \
    {                                                                                              \
        (void)arg;                                                                                 \
        burst(size, true, false, steps);                                                           \
    }                                                                                              \
    static KV_NOINLINE void reverse_##size(size_t arg, uint64_t steps)                             \
    {                                                                                              \
        (void)arg;                                                                                 \
        burst(size, true, true, steps);                                                            \
    }
SIZES(DEFINE)

static __attribute__((noipa)) void pair_variable(size_t size, uint64_t steps)
{
    pair(size, false, steps);
}

static __attribute__((noipa)) void burst_variable(size_t size, uint64_t steps)
{
    burst(size, false, false, steps);
}

static __attribute__((noipa)) void reverse_variable(size_t size, uint64_t steps)
{
    burst(size, false, true, steps);
}

static const struct path {
    const char *pattern, *variant;
    size_t size;
    void (*run)(size_t size, uint64_t steps);
} paths[] = {
#define PATH(n)                                                                                    \
    {"pair", "constant", n, pair_##n}, {"burst", "constant", n, burst_##n},                        \
        {"reverse", "constant", n, reverse_##n}, {"pair", "variable", n, pair_variable},           \
        {"burst", "variable", n, burst_variable}, {"reverse", "variable", n, reverse_variable},
    SIZES(PATH)};

static bool path_is_of_interest(const struct path *path)
{
#if defined(CONTENDER_KVIK) || defined(CONTENDER_POOL)
    (void)path;
    return true;
#else
    return path->variant[0] == 'c'; /* a call does not care */
#endif
}

static void run_small(uint64_t slice_us)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(paths); i++) {
        const struct path *path = &paths[i];
        if (path_is_of_interest(path))
            printf("%s %s %zu %.3f\n", path->pattern, path->variant, path->size,
                   measure(path->run, path->size, slice_us * 1000));
    }
}

/* only_size 0: every size. */
static void run_instructions(size_t only_size)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(paths); i++) {
        const struct path *path = &paths[i];
        char name[64];
        uint64_t steps = path->pattern[0] == 'p' ? 4000 : 20 * BURST;
        if (!path_is_of_interest(path) || (only_size != 0 && path->size != only_size))
            continue;
        path->run(path->size, path->pattern[0] == 'p' ? 100 : 5 * BURST);
        snprintf(name, sizeof name, "%s %s %zu %llu", path->pattern, path->variant, path->size,
                 (unsigned long long)steps);
        CALLGRIND_ZERO_STATS;
        path->run(path->size, steps);
        CALLGRIND_DUMP_STATS_AT(name);
    }
    printf("instructions counted 0 %d\n", HAVE_CALLGRIND);
}

/* --- churn --- */

struct piece {
    uint64_t *ptr;
    uint64_t size;
};

static struct piece *pieces;
static uint64_t random_state = HANDOFF_SEED;

KV_INLINE uint64_t random_bits(void)
{
    uint64_t x = random_state;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    random_state = x;
    return x * UINT64_C(0x2545f4914f6cdd1d);
}

KV_INLINE size_t size_of_bits(uint64_t bits)
{
    return CHURN_MIN + (size_t)(((bits & 0xffffffff) * (CHURN_MAX - CHURN_MIN + 1)) >> 32);
}

KV_INLINE void piece_make(struct piece *piece, uint64_t bits)
{
    piece->size = size_of_bits(bits);
    piece->ptr = contender_alloc(piece->size);
    *piece->ptr = bits;
}

KV_INLINE uint64_t churn(uint64_t operations, bool reads)
{
    uint64_t sum = 0;
    for (uint64_t i = 0; i < operations; i++) {
        uint64_t bits = random_bits();
        struct piece *piece = &pieces[bits >> 44];
        if (reads)
            sum += *piece->ptr;
        contender_free(piece->ptr, piece->size);
        piece_make(piece, bits);
    }
    return sum;
}

static __attribute__((noipa)) uint64_t churn_plain(uint64_t operations)
{
    return churn(operations, false);
}

static __attribute__((noipa)) uint64_t churn_read(uint64_t operations)
{
    return churn(operations, true);
}

static void run_churn(uint64_t operations)
{
    size_t table_bytes = LIVE_BLOCKS * sizeof *pieces;
    pieces = aligned_alloc(KV_CACHE_LINE, table_bytes);
    if (pieces == NULL)
        abort();
    memset(pieces, 1, table_bytes);
    int64_t empty_bytes = resident_bytes();
    for (uint64_t i = 0; i < LIVE_BLOCKS; i++)
        piece_make(&pieces[i], random_bits());
    churn_plain(LIVE_BLOCKS);
    uint64_t start = thread_ns();
    churn_plain(operations);
    uint64_t middle = thread_ns();
    churn_read(operations);
    uint64_t end = thread_ns();
    uint64_t live_bytes = 0;
    for (uint64_t i = 0; i < LIVE_BLOCKS; i++)
        live_bytes += pieces[i].size;
    printf("churn variable 0 %.2f\n", (double)(middle - start) / (double)operations);
    printf("churn-read variable 0 %.2f\n", (double)(end - middle) / (double)operations);
    printf("churn-resident variable 0 %.4f\n",
           (double)(resident_bytes() - empty_bytes) / (double)live_bytes);
    printf("churn-cache variable 0 %lld\n", (long long)contender_cache_bytes());
}

/* --- handoff --- */

struct ring {
    _Atomic(uint32_t) tail KV_ALIGNED(KV_CACHE_LINE); /* written by the maker: blocks put in */
    _Atomic(uint32_t) head KV_ALIGNED(KV_CACHE_LINE); /* written by the other: blocks taken out */
    void *slots[RING_SLOTS] KV_ALIGNED(KV_CACHE_LINE);
};

static struct ring ring;
static uint64_t handoff_pairs;
static uint64_t consumer_work_ns; /* read after the consumer has ended */

/* Waits until `enough` of the counter's distance from `from` is there; CPU time spent so. What
 * waits runs in strides of half a ring, so that hardly any time is spent on asking for the time. */
static uint64_t wait_for(_Atomic(uint32_t) *counter, uint32_t from, uint32_t enough)
{
    uint64_t start = thread_ns();
    for (unsigned spins = 0; atomic_load_explicit(counter, memory_order_acquire) - from < enough;) {
        __builtin_ia32_pause();
        if (++spins % 1024 == 0)
            sched_yield();
    }
    return thread_ns() - start;
}

KV_INLINE void consume(size_t size)
{
    uint64_t waited_ns = 0, sum = 0, left = handoff_pairs;
    uint64_t start = thread_ns();
    uint32_t at = 0, seen = 0; /* equal: nothing known to be there */
    while (left > 0) {
        if (at == seen) {
            atomic_store_explicit(&ring.head, at, memory_order_release);
            uint32_t enough = (uint32_t)KV_MIN(left, (uint64_t)RING_SLOTS / 2);
            seen = atomic_load_explicit(&ring.tail, memory_order_acquire);
            if (seen - at < enough)
                waited_ns += wait_for(&ring.tail, at, enough);
            seen = atomic_load_explicit(&ring.tail, memory_order_acquire);
        }
        uint64_t *p = ring.slots[at++ % RING_SLOTS];
        sum += *p;
        contender_free(p, size);
        left--;
        if (at % RING_BATCH == 0)
            atomic_store_explicit(&ring.head, at, memory_order_release);
    }
    atomic_store_explicit(&ring.head, at, memory_order_release);
    ESCAPE(sum);
    consumer_work_ns = thread_ns() - start - waited_ns;
}

/* CPU time of it without waiting. */
KV_INLINE uint64_t produce(size_t size)
{
    uint64_t waited_ns = 0;
    uint64_t start = thread_ns();
    uint32_t at = 0, room = RING_SLOTS; /* `room`: position that must not be passed */
    for (uint64_t i = 0; i < handoff_pairs; i++) {
        if (at == room) {
            atomic_store_explicit(&ring.tail, at, memory_order_release);
            room = atomic_load_explicit(&ring.head, memory_order_acquire) + RING_SLOTS;
            if (room - at < RING_SLOTS / 2)
                waited_ns += wait_for(&ring.head, at - RING_SLOTS, RING_SLOTS / 2);
            room = atomic_load_explicit(&ring.head, memory_order_acquire) + RING_SLOTS;
        }
        uint64_t *p = contender_alloc(size);
#if defined(CONTENDER_NONE)
        p = (uint64_t *)(void *)none_blocks[i % NONE_BLOCKS]; /* not one line to and fro */
#endif
        *p = i;
        ring.slots[at++ % RING_SLOTS] = p;
        if (at % RING_BATCH == 0)
            atomic_store_explicit(&ring.tail, at, memory_order_release);
    }
    atomic_store_explicit(&ring.tail, at, memory_order_release);
    return thread_ns() - start - waited_ns;
}

#define DEFINE_HANDOFF(size)                                                                       \
    static void *consume_##size(void *arg)                                                         \
    {                                                                                              \
        pin_thread(&allowed_cores, 1);                                                             \
        consume(size);                                                                             \
        contender_thread_exit();                                                                   \
        return arg;                                                                                \
    }                                                                                              \
    static KV_NOINLINE uint64_t produce_##size(void)                                               \
    {                                                                                              \
        return produce(size);                                                                      \
    }
HANDOFF_SIZES(DEFINE_HANDOFF)

static void handoff(size_t size, void *(*consumer)(void *), uint64_t (*producer)(void),
                    uint64_t pairs, bool counts)
{
    pthread_t thread;
    handoff_pairs = pairs;
    atomic_store(&ring.head, 0);
    atomic_store(&ring.tail, 0);
    uint64_t start = clock_ns(CLOCK_MONOTONIC);
    if (pthread_create(&thread, NULL, consumer, NULL) != 0)
        abort();
    uint64_t work_ns = producer();
    pthread_join(thread, NULL);
    uint64_t wall_ns = clock_ns(CLOCK_MONOTONIC) - start;
    if (!counts)
        return;
    printf("handoff constant %zu %.2f\n", size,
           (double)(work_ns + consumer_work_ns) / (double)pairs);
    printf("handoff-wall constant %zu %.2f\n", size, (double)wall_ns / (double)pairs);
}

static void run_handoff(uint64_t pairs)
{
    if (CPU_COUNT(&allowed_cores) < 2) {
        fprintf(stderr, "handoff needs two cores\n");
        exit(2);
    }
    pin_thread(&allowed_cores, 0);
    int64_t empty_bytes = resident_bytes();
#define HANDOFF(n)                                                                                 \
    handoff(n, consume_##n, produce_##n, pairs / 8, false);                                        \
    handoff(n, consume_##n, produce_##n, pairs, true);
    HANDOFF_SIZES(HANDOFF)
    printf("handoff-resident constant 0 %lld\n", (long long)(resident_bytes() - empty_bytes));
}

/* --- caches --- */

#if defined(CONTENDER_KVIK)

static void add_traffic(void *arg, const char *thread, const struct kv_mem_cache_stats *stats)
{
    (void)thread;
    *(uint64_t *)arg += stats->refills + stats->flushes;
}

static uint64_t cache_traffic(void)
{
    uint64_t sum = 0;
    kv_mem_cache_each(add_traffic, &sum);
    return sum;
}

/* Refills and flushes of 100 bursts of 640 after 10 that nobody counts. */
static void print_steady_traffic(void)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(paths); i++) {
        const struct path *path = &paths[i];
        if (path->variant[0] != 'c' || path->pattern[0] == 'p')
            continue;
        path->run(path->size, 10 * BURST);
        uint64_t before = cache_traffic();
        path->run(path->size, 100 * BURST);
        printf("steady-%s constant %zu %llu\n", path->pattern, path->size,
               (unsigned long long)(cache_traffic() - before));
    }
}

#else

static void print_steady_traffic(void)
{
}

#endif

/* The most that the thread's caches were seen to hold, after loads that fill them: bursts of every
 * size, then a quarter of a million blocks of each size freed at once. */
static void run_caches(void)
{
    enum { FLOOD = 262144 };
    int64_t most = -1;
    print_steady_traffic();
    for (size_t i = 0; i < KV_ARRAY_LEN(paths); i++) {
        paths[i].run(paths[i].size, 10 * BURST);
        most = KV_MAX(most, contender_cache_bytes());
    }
    printf("cache-after-bursts constant 0 %lld\n", (long long)most);
    void **blocks = malloc(FLOOD * sizeof *blocks);
    if (blocks == NULL)
        abort();
    for (size_t size = 16; size <= CHURN_MAX; size += 8) {
        unsigned count = FLOOD * 16 / (unsigned)size;
        for (unsigned i = 0; i < count; i++)
            blocks[i] = contender_alloc(size);
        for (unsigned i = 0; i < count; i++)
            contender_free(blocks[i], size);
        most = KV_MAX(most, contender_cache_bytes());
    }
    free(blocks);
    printf("cache-most variable 0 %lld\n", (long long)most);
}

int main(int argc, char **argv)
{
    const char *what = argc > 1 ? argv[1] : "";
    uint64_t number = argc > 2 ? strtoull(argv[2], NULL, 10) : 0;
    sched_getaffinity(0, sizeof allowed_cores, &allowed_cores);
    contender_init();
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (strcmp(what, "small") == 0 && number > 0)
        run_small(number);
    else if (strcmp(what, "churn") == 0 && number > 0)
        run_churn(number);
    else if (strcmp(what, "handoff") == 0 && number >= 8)
        run_handoff(number);
    else if (strcmp(what, "caches") == 0)
        run_caches();
    else if (strcmp(what, "instructions") == 0)
        run_instructions(number);
    else {
        fprintf(stderr, "usage: paths small|churn|handoff NUMBER, caches, instructions [SIZE]\n");
        return 2;
    }
    contender_thread_exit();
    return 0;
}
