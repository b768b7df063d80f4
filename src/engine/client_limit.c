/* maxmemory-clients: disconnecting the connections that hold most.
 *
 * Counting. A connection is measured when its worker has handled an event of it, and within a long
 * pipeline after each batch whose replies do not fit into the socket. The difference goes into the
 * worker's total and into the sum of its bucket: plain stores of one writer, no lock, and nothing
 * at all for a connection that holds as much as before. That is done with or without a limit, so
 * that a limit set later finds everything counted, and INFO adds up totals instead of walking.
 *
 * Limit. Once a round, and whenever its own total has grown by 64 KiB, a worker compares the sum of
 * all workers' totals with the limit. Above it, the largest bucket that is not empty anywhere
 * decides: a worker that has connections in it disconnects from there, the largest of the first
 * LOOK_AT of the list; one that has none only wakes the worker that has most, whose round ends with
 * the same look. Nobody touches another worker's connections. Buckets double, so "largest" is meant
 * within a factor of two. What a connection holds is dropped at once, the rest goes with it before
 * the next round; one that is being closed, for whatever reason, counts no longer. Evicting takes
 * at most EVICT_SLICE_NS at a time, and one connection at least; when that was not enough, all
 * workers that have such connections share the work.
 *
 * Bounds. Beyond the limit there can be, for each worker, a step of 64 KiB and what one command,
 * one batch or one read adds, of which the largest parts are a command's reply and the block for
 * one large argument; and what others take until the worker that has the largest connections has
 * ended its round. Two workers that look at the same time may both disconnect one where one would
 * have done. A block of the keyspace that several outputs refer to counts for each of them, as
 * each may be the last that keeps it. A record of WATCH that several connections share likewise.
 *
 * A reply is tried to be sent before its memory counts: with a peer that reads, a large reply may
 * pass a small limit. As the protocol's users know it, a connection may fall for its own command,
 * and a kept one counts though it is never chosen, so that others fall for it.
 *
 * Rejected: one shared total changed with locked instructions (every worker's every pipeline would
 * write that line); a heap by exact size (log n steps and cache misses for each change where a
 * bucket rarely changes); measuring all connections periodically, as one can grow by gigabytes
 * meanwhile; disconnecting the one that is at work, since it is not the one that is to blame.
 */
#include "engine/client_limit.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/worker.h"

#define EVICT_SLICE_NS 200000
#define LOOK_AT 32            /* connections of a bucket that are compared */
#define BUCKET_FIRST_SHIFT 10 /* bucket 0 ends below 1 KiB */

/* --- counting --- */

static uint8_t bucket_of(const struct kv_client *c, size_t bytes)
{
    if (c->flags & KV_CLIENT_NO_EVICT)
        return KV_CLIENT_BUCKET_KEPT;
    size_t rest = bytes >> BUCKET_FIRST_SHIFT;
    unsigned bucket = rest == 0 ? 0 : 64 - (unsigned)__builtin_clzl(rest);
    return (uint8_t)KV_MIN(bucket, (unsigned)KV_CLIENT_BUCKETS - 1);
}

/* To the sum of the bucket, modulo 2^64: differences may be negative. */
KV_INLINE void stat_change(kv_stat *s, uint64_t to, uint64_t from)
{
    kv_stat_set(s, kv_stat_read(s) + to - from);
}

static void bucket_insert(struct kv_client_limit *l, struct kv_client *c, uint8_t bucket)
{
    c->bucket = bucket;
    if (bucket == KV_CLIENT_BUCKET_KEPT)
        return;
    KV_DASSERT(bucket < KV_CLIENT_BUCKETS);
    c->bucket_prev = NULL;
    c->bucket_next = l->buckets[bucket];
    if (c->bucket_next != NULL)
        c->bucket_next->bucket_prev = c;
    l->buckets[bucket] = c;
    stat_change(&l->bucket_bytes[bucket], c->counted_bytes, 0);
}

static void bucket_remove(struct kv_client_limit *l, struct kv_client *c)
{
    uint8_t bucket = c->bucket;
    c->bucket = KV_CLIENT_BUCKET_NONE;
    if (bucket == KV_CLIENT_BUCKET_KEPT)
        return;
    KV_DASSERT(bucket < KV_CLIENT_BUCKETS);
    KV_DASSERT(kv_stat_read(&l->bucket_bytes[bucket]) >= c->counted_bytes);
    if (c->bucket_prev != NULL)
        c->bucket_prev->bucket_next = c->bucket_next;
    else
        l->buckets[bucket] = c->bucket_next;
    if (c->bucket_next != NULL)
        c->bucket_next->bucket_prev = c->bucket_prev;
    c->bucket_next = c->bucket_prev = NULL;
    stat_change(&l->bucket_bytes[bucket], 0, c->counted_bytes);
}

void kv_client_limit_enter(struct kv_client *c)
{
    KV_ASSERT(c->counted_bytes == 0);
    c->bucket = KV_CLIENT_BUCKET_NONE;
    const uint32_t never = KV_CLIENT_VIRTUAL | KV_CLIENT_APPLY | KV_CLIENT_CLOSE_NOW;
    if (c->flags & never || kv_client_class(c) == KV_CLASS_REPLICA)
        return;
    bucket_insert(&c->worker->client_limit, c, bucket_of(c, 0));
    kv_client_limit_recount(c, kv_client_memory(c));
}

void kv_client_limit_leave(struct kv_client *c)
{
    struct kv_client_limit *l = &c->worker->client_limit;
    if (c->bucket == KV_CLIENT_BUCKET_NONE)
        return;
    KV_ASSERT(kv_stat_read(&l->total_bytes) >= c->counted_bytes);
    bucket_remove(l, c);
    stat_change(&l->total_bytes, 0, c->counted_bytes);
    c->counted_bytes = 0;
}

void kv_client_limit_recount(struct kv_client *c, size_t bytes)
{
    struct kv_client_limit *l = &c->worker->client_limit;
    if (c->bucket == KV_CLIENT_BUCKET_NONE)
        return;
    uint8_t bucket = bucket_of(c, bytes);
    if (bytes > c->counted_bytes)
        l->grown_bytes += bytes - c->counted_bytes;
    stat_change(&l->total_bytes, bytes, c->counted_bytes);
    if (bucket == c->bucket) {
        if (bucket != KV_CLIENT_BUCKET_KEPT)
            stat_change(&l->bucket_bytes[bucket], bytes, c->counted_bytes);
        c->counted_bytes = bytes;
        return;
    }
    bucket_remove(l, c);
    c->counted_bytes = bytes;
    bucket_insert(l, c, bucket);
}

void kv_client_set_no_evict(struct kv_client *c, bool on)
{
    if (on)
        c->flags |= KV_CLIENT_NO_EVICT;
    else
        c->flags &= ~(uint32_t)KV_CLIENT_NO_EVICT;
    kv_client_limit_recount(c, kv_client_memory(c));
}

uint64_t kv_engine_client_bytes(const struct kv_engine *e)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < e->worker_count; i++)
        sum += kv_stat_read(&e->workers[i]->client_limit.total_bytes);
    return sum;
}

/* --- the limit --- */

/* In bytes; 0: none. */
static uint64_t limit_bytes(const struct kv_options *o)
{
    if (o->maxmemory_clients >= 0)
        return (uint64_t)o->maxmemory_clients;
    uint64_t percent = (uint64_t)-o->maxmemory_clients;
    return o->maxmemory / 100 * percent + o->maxmemory % 100 * percent / 100;
}

/* The largest bucket that any worker has connections in; false when there is none to disconnect. */
static bool find_bucket(const struct kv_engine *e, unsigned *bucket)
{
    for (unsigned b = KV_CLIENT_BUCKETS; b-- > 0;) {
        for (uint32_t i = 0; i < e->worker_count; i++) {
            if (kv_stat_read(&e->workers[i]->client_limit.bucket_bytes[b]) == 0)
                continue;
            *bucket = b;
            return true;
        }
    }
    return false;
}

/* Wakes the worker that has most in the bucket, or all that have something. */
static void wake_others(struct kv_worker *w, unsigned bucket, bool all)
{
    struct kv_engine *e = w->engine;
    struct kv_worker *largest = NULL;
    uint64_t most = 0;
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct kv_worker *other = e->workers[i];
        uint64_t bytes = kv_stat_read(&other->client_limit.bucket_bytes[bucket]);
        if (other == w || bytes == 0)
            continue;
        if (all)
            kv_loop_wake(other->loop);
        if (bytes > most) {
            most = bytes;
            largest = other;
        }
    }
    if (!all && largest != NULL)
        kv_loop_wake(largest->loop);
}

static void evict_from(struct kv_worker *w, unsigned bucket, uint64_t limit)
{
    struct kv_client *victim = w->client_limit.buckets[bucket];
    KV_ASSERT(victim != NULL);
    struct kv_client *c = victim->bucket_next;
    for (int i = 1; i < LOOK_AT && c != NULL; i++, c = c->bucket_next)
        if (c->counted_bytes > victim->counted_bytes)
            victim = c;
    KV_ASSERT(victim->worker == w);
    KV_ASSERT(!(victim->flags & (KV_CLIENT_NO_EVICT | KV_CLIENT_CLOSE_NOW)));
    kv_log(KV_LOG_NOTICE,
           "Evicting client: id=%llu addr=%s name=%.64s tot-mem=%zu, all clients pass "
           "maxmemory-clients of %llu bytes",
           (unsigned long long)victim->id, victim->peer != NULL ? victim->peer : "-",
           victim->name != NULL ? victim->name : "", victim->counted_bytes,
           (unsigned long long)limit);
    kv_stat_add(&w->stats.evicted_clients, 1);
    kv_client_drop(victim);
}

static void apply_limit(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    struct kv_client_limit *l = &w->client_limit;
    uint64_t limit = limit_bytes(&e->options);
    l->grown_bytes = 0;
    l->more = false;
    if (limit == 0 || KV_LIKELY(kv_engine_client_bytes(e) <= limit))
        return;
    uint64_t stop = kv_clock_ticks() + kv_clock_ns_to_ticks(EVICT_SLICE_NS);
    unsigned bucket = 0;
    do {
        if (!find_bucket(e, &bucket))
            return;
        if (l->buckets[bucket] == NULL) {
            wake_others(w, bucket, false);
            return;
        }
        evict_from(w, bucket, limit);
        if (kv_engine_client_bytes(e) <= limit)
            return;
    } while (kv_clock_ticks() < stop);
    l->more = true;
    wake_others(w, bucket, true);
}

void kv_client_limit_touched(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    KV_DASSERT(w == kv_this_worker);
    kv_client_limit_recount(c, kv_client_memory(c));
    if (KV_UNLIKELY(w->client_limit.grown_bytes >= KV_CLIENT_LIMIT_STEP_BYTES))
        apply_limit(w);
}

void kv_client_limit_round(struct kv_worker *w)
{
    if (KV_UNLIKELY(w->engine->options.maxmemory_clients != 0))
        apply_limit(w);
    else
        w->client_limit.more = false;
}

/* --- checking --- */

void kv_client_limit_check(struct kv_worker *w)
{
    struct kv_client_limit *l = &w->client_limit;
    uint64_t total = 0, buckets[KV_CLIENT_BUCKETS] = {0};
    uint32_t in_buckets = 0, listed = 0;
    for (const struct kv_client *c = w->clients; c != NULL; c = c->next) {
        if (c->bucket == KV_CLIENT_BUCKET_NONE) {
            KV_ASSERT(c->counted_bytes == 0);
            continue;
        }
        KV_ASSERT(c->counted_bytes == kv_client_memory(c));
        KV_ASSERT(c->bucket == bucket_of(c, c->counted_bytes));
        total += c->counted_bytes;
        if (c->bucket == KV_CLIENT_BUCKET_KEPT)
            continue;
        buckets[c->bucket] += c->counted_bytes;
        in_buckets++;
    }
    KV_ASSERT(total == kv_stat_read(&l->total_bytes));
    for (uint8_t b = 0; b < KV_CLIENT_BUCKETS; b++) {
        KV_ASSERT(buckets[b] == kv_stat_read(&l->bucket_bytes[b]));
        for (const struct kv_client *c = l->buckets[b]; c != NULL; c = c->bucket_next, listed++)
            KV_ASSERT(c->worker == w && c->bucket == b);
    }
    KV_ASSERT(listed == in_buckets);
}
