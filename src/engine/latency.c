/* Histograms and the latency monitor: see latency.h.
 *
 * A time in nanoseconds belongs to a bucket in ticks, whose end is converted for each question:
 * questions are rare, commands are not. The clock's rate is found once, at start, so the buckets'
 * ends never move.
 *
 * The monitor looks at the last sample of a series alone: samples come in the order of time, up to
 * what threads differ by, and one of an earlier second counts for the last second then.
 */
#include "engine/latency.h"
#include "base/clock.h"
#include "engine/worker.h"

/* --- histograms --- */

uint64_t kv_latency_bucket_end(uint32_t bucket)
{
    KV_ASSERT(bucket < KV_LATENCY_BUCKETS);
    if (bucket < 1u << KV_LATENCY_SUB_BITS)
        return bucket;
    uint32_t shift = (bucket >> KV_LATENCY_SUB_BITS) - 1;
    uint64_t from = (bucket & ((1u << KV_LATENCY_SUB_BITS) - 1)) + (1u << KV_LATENCY_SUB_BITS);
    return ((from + 1) << shift) - 1;
}

struct kv_latency_histogram *kv_latency_create(_Atomic(struct kv_latency_histogram *) *h)
{
    struct kv_latency_histogram *made = kv_mem_try_alloc(sizeof(*made), KV_MEM_OTHER);
    if (made == NULL)
        return NULL;
    memset(made, 0, sizeof(*made));
    atomic_store_explicit(h, made, memory_order_release);
    return made;
}

void kv_latency_free(_Atomic(struct kv_latency_histogram *) *h)
{
    struct kv_latency_histogram *was = atomic_load(h);
    if (was == NULL)
        return;
    atomic_store(h, NULL);
    kv_mem_free(was, sizeof(*was), KV_MEM_OTHER);
}

bool kv_engine_latency(const struct kv_engine *e, uint16_t command_id, struct kv_latency_sum *sum)
{
    memset(sum, 0, sizeof(*sum));
    KV_ASSERT(command_id < e->table->id_count);
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct kv_command_stats *s = &e->workers[i]->command_stats[command_id];
        const struct kv_latency_histogram *h =
            atomic_load_explicit(&s->latency, memory_order_acquire);
        for (uint32_t j = 0; h != NULL && j < KV_LATENCY_BUCKETS; j++) {
            uint64_t count = kv_stat_read(&h->counts[j]);
            sum->counts[j] += count;
            sum->total += count;
        }
    }
    return sum->total > 0;
}

uint64_t kv_latency_below(const struct kv_latency_sum *sum, uint64_t ns)
{
    uint64_t count = 0;
    for (uint32_t i = 0; i < KV_LATENCY_BUCKETS; i++) {
        if (sum->counts[i] == 0)
            continue;
        if (kv_clock_ticks_to_ns(kv_latency_bucket_end(i)) > ns)
            break;
        count += sum->counts[i];
    }
    return count;
}

uint64_t kv_latency_percentile(const struct kv_latency_sum *sum, double percent)
{
    uint64_t wanted = (uint64_t)(percent / 100 * (double)sum->total + 0.5);
    uint64_t count = 0, ns = 0;
    for (uint32_t i = 0; i < KV_LATENCY_BUCKETS; i++) {
        if (sum->counts[i] == 0)
            continue;
        ns = kv_clock_ticks_to_ns(kv_latency_bucket_end(i));
        count += sum->counts[i];
        if (count >= KV_MAX(wanted, 1))
            break;
    }
    return ns;
}

/* --- monitor --- */

void kv_latency_monitor_init(struct kv_latency_monitor *m)
{
    memset(m, 0, sizeof(*m));
    atomic_store(&m->threshold_ns, UINT64_MAX);
    kv_mutex_init(&m->mutex, KV_RANK_LATENCY);
}

static void drop(struct kv_latency_monitor *m, enum kv_latency_event event)
{
    if (m->series[event] != NULL)
        kv_mem_free(m->series[event], sizeof(*m->series[event]), KV_MEM_SLOWLOG);
    m->series[event] = NULL;
}

void kv_latency_monitor_release(struct kv_latency_monitor *m)
{
    for (int i = 0; i < KV_LATENCY_EVENTS; i++)
        drop(m, (enum kv_latency_event)i);
    kv_mutex_release(&m->mutex);
}

const char *kv_latency_event_name(enum kv_latency_event event)
{
    static const char *const names[KV_LATENCY_EVENTS] = {
        [KV_LATENCY_COMMAND] = "command",
        [KV_LATENCY_FAST_COMMAND] = "fast-command",
        [KV_LATENCY_EXPIRE] = "expire-cycle",
        [KV_LATENCY_EVICTION] = "eviction-cycle",
        [KV_LATENCY_DEFRAG] = "active-defrag-cycle",
    };
    return names[event];
}

static void put(struct kv_latency_series *s, uint32_t time_s, uint32_t ms)
{
    struct kv_latency_sample *last =
        &s->samples[(s->next + KV_LATENCY_SAMPLES - 1) % KV_LATENCY_SAMPLES];
    s->max_ms = KV_MAX(s->max_ms, ms);
    if (s->count > 0 && last->time_s >= time_s) {
        last->ms = KV_MAX(last->ms, ms);
        return;
    }
    s->samples[s->next] = (struct kv_latency_sample){time_s, ms};
    s->next = (s->next + 1) % KV_LATENCY_SAMPLES;
    s->count = KV_MIN(s->count + 1, KV_LATENCY_SAMPLES);
}

void kv_latency_add(struct kv_latency_monitor *m, enum kv_latency_event event, uint64_t ns)
{
    uint32_t ms = (uint32_t)KV_MIN(ns / 1000000, UINT32_MAX);
    uint32_t time_s = (uint32_t)(kv_clock_wall_ms() / 1000);
    kv_mutex_lock(&m->mutex);
    struct kv_latency_series *s = m->series[event];
    if (s == NULL) {
        s = kv_mem_try_alloc(sizeof(*s), KV_MEM_SLOWLOG);
        if (s != NULL)
            memset(s, 0, sizeof(*s));
        m->series[event] = s;
    }
    if (s != NULL)
        put(s, time_s, ms);
    kv_mutex_unlock(&m->mutex);
}

bool kv_engine_latency_series(struct kv_engine *e, enum kv_latency_event event,
                              struct kv_latency_series *out)
{
    struct kv_latency_monitor *m = &e->latency;
    kv_mutex_lock(&m->mutex);
    bool found = m->series[event] != NULL;
    if (found)
        *out = *m->series[event];
    kv_mutex_unlock(&m->mutex);
    return found;
}

bool kv_engine_latency_reset(struct kv_engine *e, enum kv_latency_event event)
{
    struct kv_latency_monitor *m = &e->latency;
    kv_mutex_lock(&m->mutex);
    bool found = m->series[event] != NULL;
    drop(m, event);
    kv_mutex_unlock(&m->mutex);
    return found;
}
