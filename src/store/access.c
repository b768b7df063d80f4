/* The access clock beyond what is inlined: LFU counters, ages, what OBJECT shows.
 *
 * LFU follows what Redis documents. The counter is logarithmic: an access adds one with probability
 * 1 / ((counter - 5) * lfu-log-factor + 1), so 255 stands for about a million accesses with factor
 * 10. It falls by one for every lfu-decay-time minutes without being looked after; time 0 switches
 * decay off. A new key starts at 5. Minutes are written together with the counter, when it is
 * touched.
 *
 * Each form is read as the other where a policy was changed: an LRU entry is an LFU entry with
 * counter 5 that has decayed since its last use, and an LFU entry was last used at its minute. So a
 * switch leaves old keys old, and each key takes the new form when it is touched next.
 *
 * LRM, least recently modified, keeps the LRU form: reading leaves it alone, kv_store_changed
 * writes it.
 *
 * Threads: under the lock of the entry's shard. The dice of LFU belong to the thread.
 *
 * Rejected: a walk over all keys when the policy changes (a flag bit tells the form for free);
 * decaying counters in the background (the decayed value follows from minute and counter).
 */
#include "base/random.h"
#include "store/store_priv.h"

#define MINUTE_MS 60000
#define MINUTE_MASK 0xffffu

static uint32_t minute_of(int64_t now_ms)
{
    return (uint32_t)((uint64_t)now_ms / MINUTE_MS) & MINUTE_MASK;
}

static uint32_t lfu_word(uint32_t counter, int64_t now_ms)
{
    KV_DASSERT(counter <= LFU_COUNTER_MAX);
    return ACCESS_LFU_BIT | minute_of(now_ms) << 8 | counter;
}

static uint32_t minutes_since(uint32_t access, int64_t now_ms)
{
    return (minute_of(now_ms) - (access >> 8)) & MINUTE_MASK;
}

uint32_t kv_access_age(uint32_t access, int64_t now_ms)
{
    if (KV_UNLIKELY(access & ACCESS_LFU_BIT))
        return minutes_since(access, now_ms) * (MINUTE_MS >> ACCESS_TICK_SHIFT);
    uint32_t age = (access_tick(now_ms) - access_to_tick(access)) & ACCESS_TICK_MASK;
    return age > ACCESS_TICK_MASK - ACCESS_BACK_TICKS ? 0 : age;
}

uint32_t kv_access_frequency(uint32_t access, int64_t now_ms, uint32_t decay_minutes)
{
    uint32_t counter = LFU_COUNTER_NEW;
    uint32_t minutes;
    if (access & ACCESS_LFU_BIT) {
        counter = access & LFU_COUNTER_MAX;
        minutes = minutes_since(access, now_ms);
    } else {
        minutes = kv_access_age(access, now_ms) / (MINUTE_MS >> ACCESS_TICK_SHIFT);
    }
    uint32_t decay = decay_minutes == 0 ? 0 : minutes / decay_minutes;
    return counter > decay ? counter - decay : 0;
}

/* One generator per thread: a shared one would be a line that all workers write. */
static struct kv_random *thread_random(void)
{
    static _Thread_local struct kv_random random;
    static _Thread_local bool ready;
    if (KV_UNLIKELY(!ready)) {
        uint64_t seed;
        kv_random_secure(&seed, sizeof(seed));
        kv_random_init(&random, seed);
        ready = true;
    }
    return &random;
}

static uint32_t count_access(uint32_t counter, uint32_t log_factor)
{
    if (counter >= LFU_COUNTER_MAX)
        return LFU_COUNTER_MAX;
    uint64_t above = counter > LFU_COUNTER_NEW ? counter - LFU_COUNTER_NEW : 0;
    uint64_t odds = above * log_factor + 1;
    return odds == 1 || kv_random_below(thread_random(), odds) == 0 ? counter + 1 : counter;
}

uint32_t kv_access_fresh(const struct kv_view *v)
{
    int64_t now_ms = access_now_ms(v);
    if (v->store->access.mode == KV_ACCESS_LFU)
        return lfu_word(LFU_COUNTER_NEW, now_ms);
    return access_of_tick(access_tick(now_ms));
}

uint32_t kv_access_touched(const struct kv_view *v, uint32_t access)
{
    const struct kv_access_rules *rules = &v->store->access;
    int64_t now_ms = access_now_ms(v);
    if (rules->mode != KV_ACCESS_LFU)
        return access_of_tick(access_tick(now_ms));
    uint32_t counter = kv_access_frequency(access, now_ms, rules->lfu_decay_minutes);
    return lfu_word(count_access(counter, rules->lfu_log_factor), now_ms);
}

void kv_store_set_access(struct kv_store *s, const struct kv_access_rules *rules)
{
    KV_ASSERT(rules->mode <= KV_ACCESS_LRM);
    s->access = *rules;
    kv_store_settle_hooks(s);
}

/* An age in ticks may be a tick short: with one more, a second that has passed is a second. */
uint64_t kv_entry_idle_seconds(const struct kv_entry *e, int64_t now_ms)
{
    uint64_t age = kv_access_age(entry_access(e), now_ms);
    return ((age + 1) << ACCESS_TICK_SHIFT) / 1000;
}

uint32_t kv_store_frequency(const struct kv_view *v, const struct kv_entry *e)
{
    return kv_access_frequency(entry_access(e), access_now_ms(v),
                               v->store->access.lfu_decay_minutes);
}

void kv_store_set_idle_seconds(const struct kv_view *v, struct kv_entry *e, uint64_t seconds)
{
    if (v->store->access.mode == KV_ACCESS_LFU)
        return;
    uint64_t ticks = seconds > UINT32_MAX ? ACCESS_TICK_MASK : seconds * 1000 >> ACCESS_TICK_SHIFT;
    /* The clock goes round: what is older than it can tell is as old as it can tell. */
    uint32_t oldest = ACCESS_TICK_MASK - ACCESS_BACK_TICKS;
    uint32_t age = ticks > oldest ? oldest : (uint32_t)ticks;
    entry_set_access(e, access_of_tick((access_tick(access_now_ms(v)) - age) & ACCESS_TICK_MASK));
}

void kv_store_set_frequency(const struct kv_view *v, struct kv_entry *e, uint32_t counter)
{
    if (v->store->access.mode == KV_ACCESS_LFU)
        entry_set_access(e, lfu_word(KV_MIN(counter, LFU_COUNTER_MAX), access_now_ms(v)));
}
