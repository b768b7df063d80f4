/* Thread caches: per thread and class a stack of free blocks between the caller and the slabs, and
 * the thread's counters of bytes by owner.
 *
 * The thread-local struct kv_mem_slot (mem/inline.h) is all that fast paths touch. Beside it each
 * thread has what slow paths and readers need (struct thread below), also thread-local, linked in a
 * list under `threads_mutex`. The stacks themselves are one mapping per thread, DEPTH_MAX pointers
 * a class, of which only the used part is ever touched.
 *
 * Depth. A bin starts with 32 blocks, fewer of large ones. When it overflows it doubles, as long as
 * the sum of limit * size over the thread's bins stays within BUDGET_BYTES; else the older half is
 * given back. A refill fetches half of the limit, and doubles it too. Both go up to 256 blocks or
 * 64 KiB, so that a thread that only allocates, or only frees, takes a lock per 128 blocks. A bin
 * that runs empty and overflows in turns doubles further, up to 1,024 blocks or 512 KiB. So a burst
 * of 640 blocks of any size up to 512 bytes is served without the slabs once it has happened a few
 * times, and a thread holds at most BUDGET_BYTES of free blocks. kv_mem_trim empties bins that were
 * not used for IDLE_TRIMS calls and takes their limit back.
 *
 * A new thread's bins have no stack: the first operation takes the slow path, which registers the
 * thread. If there is no memory for its stacks it works without a cache. A destructor of the thread
 * library calls kv_mem_thread_exit for threads that forget to; blocks freed by later destructors
 * register the thread once more.
 *
 * Published total: see mem.h. Invariant: published_total is the sum of all threads' `published`.
 *
 * Threads: a thread changes its own bins and counters alone; readers see each number whole, but not
 * all at one moment. The list is changed under the mutex; nothing waits under it.
 */
#include "mem/mem_priv.h"

#include <pthread.h>
#include <sys/mman.h>

#define DEPTH_MAX 1024                  /* blocks of a class, and at most */
#define DEPTH_BYTES ((size_t)512 << 10) /* this much of it */
#define START_MAX 32                    /* limit of a new bin, and at most */
#define START_BYTES ((size_t)8 << 10)   /* this much, but */
#define START_MIN 4
#define REFILL_MAX 256                  /* limit up to which refills double it, and at most */
#define REFILL_BYTES ((size_t)64 << 10) /* this much of it */
#define BUDGET_BYTES ((size_t)2 << 20)
#define IDLE_TRIMS 10
#define STACKS_BYTES (KV_MEM_CLASS_COUNT * DEPTH_MAX * sizeof(void *))
#define FLUSH_BATCH 512 /* blocks per lock at most: bounds the time it is held */

struct bin_state {
    kv_stat refills, flushes; /* batches fetched and given back */
    kv_stat limit;            /* blocks; bin.limit as a number, for readers */
    uint64_t grown_refills;   /* refills when the limit last grew */
    uint64_t trimmed_hits;    /* hits and flushes at the last trim */
    uint32_t trimmed_depth;   /* blocks then */
    uint32_t idle_trims;      /* trims since something happened */
};

struct thread {
    struct bin_state bins[KV_MEM_CLASS_COUNT];
    struct kv_mem_slot *slot;
    struct thread *next, *prev; /* threads_mutex */
    void **stacks;              /* mapping of STACKS_BYTES; NULL: works without */
    kv_gauge paged_blocks;      /* see large.c; below zero when others' were freed here */
    size_t budget_bytes;        /* sum of limit * size */
    int64_t published;          /* its part of published_total */
    uint32_t evacuation;        /* the evacuation for which the cache was emptied */
    bool registered;
    char name[16];
};

_Atomic(bool) kv_mem_evacuation_runs;
_Thread_local struct kv_mem_slot kv_mem_slot __attribute__((tls_model("initial-exec")));
static _Thread_local struct thread self __attribute__((tls_model("initial-exec")));

static struct kv_mutex threads_mutex = KV_MUTEX_INIT(KV_RANK_MEM);
static struct thread *threads;                 /* threads_mutex */
static int64_t ended_used[KV_MEM_OWNER_COUNT]; /* left by ended threads; threads_mutex */
static int64_t ended_paged_blocks;             /* likewise */
static _Atomic(int64_t) published_total;
static pthread_key_t exit_key;
static bool exit_key_made; /* constant after kv_cache_init */

static_assert(KV_MEM_PUBLISH_BYTES > 0, "a threshold");

#if MEM_SLABS

static unsigned clamp_by_bytes(unsigned class_index, unsigned most, size_t bytes)
{
    return (unsigned)KV_MIN((size_t)most, bytes / kv_mem_class_bytes[class_index]);
}

static unsigned limit_start(unsigned class_index)
{
    unsigned limit = clamp_by_bytes(class_index, START_MAX, START_BYTES);
    return KV_MAX(limit, (unsigned)START_MIN);
}

#endif

/* --- the thread --- */

static void stacks_map(struct thread *t)
{
#if MEM_SLABS
    void *p = mmap(NULL, STACKS_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        return;
    t->stacks = p;
    for (unsigned i = 0; i < KV_MEM_CLASS_COUNT; i++) {
        struct kv_mem_bin *bin = &kv_mem_slot.bins[i];
        bin->base = t->stacks + (size_t)i * DEPTH_MAX;
        bin->limit = bin->base + limit_start(i);
        __atomic_store_n(&bin->top, bin->base, __ATOMIC_RELAXED);
        kv_stat_set(&t->bins[i].limit, limit_start(i));
        t->budget_bytes += limit_start(i) * (size_t)kv_mem_class_bytes[i];
    }
#else
    (void)t;
#endif
}

static KV_COLD void thread_register(void)
{
    struct thread *t = &self;
    t->slot = &kv_mem_slot;
    t->registered = true;
    t->budget_bytes = 0;
    stacks_map(t);
    if (exit_key_made)
        pthread_setspecific(exit_key, t);
    kv_mutex_lock(&threads_mutex);
    t->prev = NULL;
    t->next = threads;
    if (threads != NULL)
        threads->prev = t;
    threads = t;
    kv_mutex_unlock(&threads_mutex);
}

void kv_cache_register(void)
{
    if (KV_UNLIKELY(!self.registered))
        thread_register();
}

void kv_mem_thread_name(const char *name)
{
    KV_ASSERT(name != NULL);
    kv_cache_register();
    kv_mutex_lock(&threads_mutex);
    size_t len = strnlen(name, sizeof(self.name) - 1);
    memcpy(self.name, name, len);
    self.name[len] = '\0';
    kv_mutex_unlock(&threads_mutex);
}

static int64_t counted_bytes(void)
{
    int64_t total = 0;
    for (unsigned owner = 0; owner < KV_MEM_OWNER_COUNT; owner++)
        total += kv_gauge_read(&kv_mem_slot.used_bytes[owner]);
    return total - kv_gauge_read(&kv_mem_slot.used_bytes[KV_MEM_STREAM]);
}

static void publish_all(struct thread *t, int64_t total)
{
    atomic_fetch_add_explicit(&published_total, total - t->published, memory_order_relaxed);
    t->published = total;
}

void kv_mem_thread_exit(void)
{
    struct thread *t = &self;
    if (!t->registered)
        return;
    kv_mem_flush();
    publish_all(t, counted_bytes());
    kv_mutex_lock(&threads_mutex);
    for (unsigned owner = 0; owner < KV_MEM_OWNER_COUNT; owner++)
        ended_used[owner] += kv_gauge_read(&kv_mem_slot.used_bytes[owner]);
    ended_paged_blocks += kv_gauge_read(&t->paged_blocks);
    if (t->next != NULL)
        t->next->prev = t->prev;
    if (t->prev != NULL)
        t->prev->next = t->next;
    else
        threads = t->next;
    kv_mutex_unlock(&threads_mutex);
    if (t->stacks != NULL)
        munmap(t->stacks, STACKS_BYTES);
    memset(t, 0, sizeof(*t));
    memset(&kv_mem_slot, 0, sizeof(kv_mem_slot));
}

static void exit_hook(void *arg)
{
    (void)arg;
    kv_mem_thread_exit();
}

void kv_cache_init(void)
{
    exit_key_made = pthread_key_create(&exit_key, exit_hook) == 0;
}

/* --- the stacks --- */

#if MEM_SLABS

static unsigned depth_of(const struct kv_mem_bin *bin)
{
    return (unsigned)(bin->top - bin->base);
}

/* Doubles a bin's limit, up to `most`, where the budget allows it. */
static bool bin_grow(struct thread *t, unsigned class_index, size_t most)
{
    struct kv_mem_bin *bin = &kv_mem_slot.bins[class_index];
    struct bin_state *state = &t->bins[class_index];
    size_t limit = (size_t)(bin->limit - bin->base);
    size_t grown = KV_MIN(limit * 2, most);
    KV_DASSERT(grown <= DEPTH_MAX);
    if (grown <= limit)
        return false;
    size_t more = (grown - limit) * kv_mem_class_bytes[class_index];
    if (t->budget_bytes + more > BUDGET_BYTES)
        return false;
    t->budget_bytes += more;
    bin->limit = bin->base + grown;
    kv_stat_set(&state->limit, grown);
    state->grown_refills = kv_stat_read(&state->refills);
    return true;
}

static void bin_shrink(struct thread *t, unsigned class_index)
{
    struct kv_mem_bin *bin = &kv_mem_slot.bins[class_index];
    size_t limit = (size_t)(bin->limit - bin->base), start = limit_start(class_index);
    KV_ASSERT(depth_of(bin) <= start && limit >= start);
    KV_ASSERT(t->budget_bytes >= (limit - start) * kv_mem_class_bytes[class_index]);
    t->budget_bytes -= (limit - start) * kv_mem_class_bytes[class_index];
    bin->limit = bin->base + start;
    kv_stat_set(&t->bins[class_index].limit, start);
}

/* How far an overflow may grow a bin. One that was not empty since it last grew sees more frees
 * than allocations, not bursts of both: more depth would not help it, and the budget would be
 * missing where it does. */
static unsigned overflow_limit(const struct thread *t, unsigned class_index)
{
    const struct bin_state *state = &t->bins[class_index];
    if (kv_stat_read(&state->refills) == state->grown_refills)
        return clamp_by_bytes(class_index, REFILL_MAX, REFILL_BYTES);
    return clamp_by_bytes(class_index, DEPTH_MAX, DEPTH_BYTES);
}

/* Gives the n oldest blocks of a bin back. */
static void bin_flush(struct thread *t, unsigned class_index, unsigned n)
{
    struct kv_mem_bin *bin = &kv_mem_slot.bins[class_index];
    unsigned depth = depth_of(bin);
    KV_ASSERT(n <= depth);
    for (unsigned done = 0; done < n;) {
        unsigned batch = KV_MIN(n - done, (unsigned)FLUSH_BATCH);
        kv_slab_give(class_index, bin->base + done, batch);
        done += batch;
    }
    memmove(bin->base, bin->base + n, (depth - n) * sizeof(void *));
    __atomic_store_n(&bin->top, bin->base + (depth - n), __ATOMIC_RELAXED);
    kv_stat_add(&t->bins[class_index].flushes, 1);
}

/* Refills an empty bin; false: no memory. */
static bool bin_refill(struct thread *t, unsigned class_index)
{
    struct kv_mem_bin *bin = &kv_mem_slot.bins[class_index];
    KV_DASSERT(bin->top == bin->base);
    bin_grow(t, class_index, clamp_by_bytes(class_index, REFILL_MAX, REFILL_BYTES));
    unsigned limit = (unsigned)(bin->limit - bin->base);
    unsigned got = kv_slab_take(class_index, bin->base, limit / 2);
    KV_ASSERT(got <= limit / 2);
    __atomic_store_n(&bin->top, bin->base + got, __ATOMIC_RELAXED);
    kv_stat_add(&t->bins[class_index].refills, 1);
    return got > 0;
}

KV_NOINLINE void *kv_cache_alloc(unsigned class_index)
{
    struct kv_mem_bin *bin = &kv_mem_slot.bins[class_index];
    if (KV_UNLIKELY(bin->top == bin->base)) {
        struct thread *t = &self;
        kv_cache_register();
        if (t->stacks == NULL) {
            void *block = NULL;
            return kv_slab_take(class_index, &block, 1) == 1 ? block : NULL;
        }
        if (bin->top == bin->base && !bin_refill(t, class_index))
            return NULL;
    }
    void **top = bin->top - 1;
    __atomic_store_n(&bin->top, top, __ATOMIC_RELAXED);
    kv_stat_add(&bin->hits, 1);
    return *top;
}

KV_NOINLINE void kv_cache_free(unsigned class_index, void *ptr)
{
    struct kv_mem_bin *bin = &kv_mem_slot.bins[class_index];
    if (KV_UNLIKELY(bin->top == bin->limit)) {
        struct thread *t = &self;
        kv_cache_register();
        if (t->stacks == NULL) {
            kv_slab_give(class_index, &ptr, 1);
            return;
        }
        if (bin->top == bin->limit && !bin_grow(t, class_index, overflow_limit(t, class_index)))
            bin_flush(t, class_index, depth_of(bin) / 2);
    }
    *bin->top = ptr;
    __atomic_store_n(&bin->top, bin->top + 1, __ATOMIC_RELAXED);
}

static _Atomic(uint32_t) evacuation; /* grows when blocks of slabs are to come back */

void kv_mem_flush(void)
{
    struct thread *t = &self;
    if (t->stacks == NULL)
        return;
    for (unsigned i = 0; i < KV_MEM_CLASS_COUNT; i++) {
        unsigned depth = depth_of(&kv_mem_slot.bins[i]);
        if (depth > 0)
            bin_flush(t, i, depth);
        bin_shrink(t, i);
    }
}

void kv_mem_trim(void)
{
    struct thread *t = &self;
    if (t->stacks == NULL)
        return;
    uint32_t wanted = atomic_load_explicit(&evacuation, memory_order_relaxed);
    if (t->evacuation != wanted) {
        t->evacuation = wanted;
        kv_mem_flush();
        return;
    }
    for (unsigned i = 0; i < KV_MEM_CLASS_COUNT; i++) {
        struct kv_mem_bin *bin = &kv_mem_slot.bins[i];
        struct bin_state *state = &t->bins[i];
        uint64_t hits = kv_stat_read(&bin->hits) + kv_stat_read(&state->flushes);
        unsigned depth = depth_of(bin); /* changes without hits where a thread only frees */
        if (hits != state->trimmed_hits || depth != state->trimmed_depth) {
            state->trimmed_hits = hits;
            state->trimmed_depth = depth;
            state->idle_trims = 0;
        } else if (state->idle_trims < IDLE_TRIMS && ++state->idle_trims == IDLE_TRIMS) {
            if (depth > 0) {
                bin_flush(t, i, depth);
                state->trimmed_hits++;
                state->trimmed_depth = 0;
            }
            bin_shrink(t, i);
        }
    }
}

uint64_t kv_mem_evacuation_begin(void)
{
    kv_mem_flush();
    uint64_t bytes = kv_slab_evacuation_begin() + kv_large_evacuation_begin();
    if (bytes == 0) {
        kv_mem_evacuation_end();
        return 0;
    }
    atomic_store_explicit(&kv_mem_evacuation_runs, true, memory_order_relaxed);
    /* Other threads empty their caches at their next trim: after the choice, so that none keeps
     * what it took from a chosen slab before. */
    self.evacuation = atomic_fetch_add_explicit(&evacuation, 1, memory_order_relaxed) + 1;
    return bytes;
}

void kv_mem_evacuation_end(void)
{
    atomic_store_explicit(&kv_mem_evacuation_runs, false, memory_order_relaxed);
    kv_slab_evacuation_end();
    kv_large_evacuation_end();
}

#else

/* Every block is the C library's: nothing is cached. Evacuation moves a share of all blocks, so
 * that sanitizers see the moves. */
void kv_mem_flush(void)
{
}

void kv_mem_trim(void)
{
}

uint64_t kv_mem_evacuation_begin(void)
{
    return 1;
}

void kv_mem_evacuation_end(void)
{
}

#endif

/* --- totals --- */

void kv_mem_publish(void)
{
    struct thread *t = &self;
    int64_t total = counted_bytes();
    int64_t change = total - t->published;
    if (KV_UNLIKELY(change >= KV_MEM_PUBLISH_BYTES || change <= -KV_MEM_PUBLISH_BYTES))
        publish_all(t, total);
}

int64_t kv_mem_used_published(void)
{
    return atomic_load_explicit(&published_total, memory_order_relaxed);
}

int64_t kv_cache_used_between(unsigned first, unsigned end)
{
    KV_DASSERT(first < end && end <= KV_MEM_OWNER_COUNT);
    int64_t sum = 0;
    kv_mutex_lock(&threads_mutex);
    for (unsigned owner = first; owner < end; owner++)
        sum += ended_used[owner];
    for (const struct thread *t = threads; t != NULL; t = t->next) {
        for (unsigned owner = first; owner < end; owner++)
            sum += kv_gauge_read(&t->slot->used_bytes[owner]);
    }
    kv_mutex_unlock(&threads_mutex);
    return sum;
}

void kv_cache_count_paged(int64_t blocks)
{
    kv_gauge_add(&self.paged_blocks, blocks);
}

int64_t kv_cache_paged_blocks(void)
{
    kv_mutex_lock(&threads_mutex);
    int64_t sum = ended_paged_blocks;
    for (const struct thread *t = threads; t != NULL; t = t->next)
        sum += kv_gauge_read(&t->paged_blocks);
    kv_mutex_unlock(&threads_mutex);
    return sum;
}

static bool stats_read(const struct thread *t, unsigned class_index, struct kv_mem_cache_stats *out)
{
    const struct kv_mem_bin *bin = &t->slot->bins[class_index];
    const struct bin_state *state = &t->bins[class_index];
    if (t->stacks == NULL)
        return false;
    void **base = t->stacks + (size_t)class_index * DEPTH_MAX;
    *out = (struct kv_mem_cache_stats){
        .block_size = kv_mem_class_bytes[class_index],
        .depth = (uint32_t)(__atomic_load_n(&bin->top, __ATOMIC_RELAXED) - base),
        .limit = (uint32_t)kv_stat_read(&state->limit),
        .hits = kv_stat_read(&bin->hits),
        .refills = kv_stat_read(&state->refills),
        .flushes = kv_stat_read(&state->flushes),
    };
    return out->hits != 0 || out->refills != 0 || out->flushes != 0 || out->depth != 0;
}

void kv_mem_cache_each(void (*visit)(void *arg, const char *thread,
                                     const struct kv_mem_cache_stats *stats),
                       void *arg)
{
    KV_ASSERT(visit != NULL);
    kv_mutex_lock(&threads_mutex);
    for (const struct thread *t = threads; t != NULL; t = t->next) {
        for (unsigned i = 0; i < KV_MEM_CLASS_COUNT; i++) {
            struct kv_mem_cache_stats stats;
            if (stats_read(t, i, &stats))
                visit(arg, t->name, &stats);
        }
    }
    kv_mutex_unlock(&threads_mutex);
}

static void add_depth(void *arg, const char *thread, const struct kv_mem_cache_stats *stats)
{
    (void)thread;
    *(uint64_t *)arg += (uint64_t)stats->depth * stats->block_size;
}

void kv_cache_totals(uint64_t *cached_bytes, uint64_t *metadata_bytes)
{
    *cached_bytes = 0;
    *metadata_bytes = 0;
    kv_mem_cache_each(add_depth, cached_bytes);
    kv_mutex_lock(&threads_mutex);
    for (const struct thread *t = threads; t != NULL; t = t->next) {
        for (unsigned i = 0; i < KV_MEM_CLASS_COUNT; i++) {
            /* A stack is touched up to its limit at most, by whole pages. */
            size_t bytes = kv_stat_read(&t->bins[i].limit) * sizeof(void *);
            *metadata_bytes += (bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
        }
    }
    kv_mutex_unlock(&threads_mutex);
}
