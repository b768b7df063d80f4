/* The access clock of an entry: when it was used last, or how often; for the files of store/ alone.
 *
 * Terms
 *   access   one word: the 24 bits of kv_entry.access, and above them the four flag bits that
 * belong to the clock, as they lie in the upper half of kv_entry.flags tick     128 ms of Unix
 * time; an age is counted in ticks
 *
 * Two forms, told apart by KV_ENTRY_LFU, so that an entry written under another policy is read as
 * what it is:
 *   LRU, LRM   27 bits of ticks: the lower 24 in the field, the upper three in the flags. They go
 *              round after 198 days. Ages within the last 37 hours of that are those of a clock
 * that was set back, and count as 0. LFU        16 bits of minutes (45 days) since the counter was
 * looked after, 8 bits counter
 *
 * Why 128 ms: a store that fills its memory within seconds would otherwise hold keys of one age
 * only, and eviction would be by chance. Who needs a flag bit takes one of the clock's, which is
 * then half as fine.
 *
 * Threads: under the lock of the entry's shard. */
#ifndef KV_STORE_ACCESS_PRIV_H
#define KV_STORE_ACCESS_PRIV_H

#include "base/clock.h"
#include "store/entry.h"
#include <assert.h>

#define ACCESS_TICK_SHIFT 7 /* ms to ticks */
#define ACCESS_TICK_MASK ((1u << 27) - 1)
#define ACCESS_BACK_TICKS (1u << 20) /* a clock set back by up to so much is seen as such */
#define ACCESS_LFU_BIT (1u << 24)
#define ACCESS_FLAG_SHIFT 20 /* flags to access word */
#define LFU_COUNTER_NEW 5u   /* of a new key: it is not evicted before it had a chance */
#define LFU_COUNTER_MAX 255u

static_assert(KV_ENTRY_LFU << ACCESS_FLAG_SHIFT == ACCESS_LFU_BIT,
              "a flag bit and its place agree");
static_assert((KV_ENTRY_CLOCK_FLAGS & KV_ENTRY_LAYOUT_FLAGS) == 0, "each bit has one owner");

KV_INLINE uint32_t access_tick(int64_t now_ms)
{
    return (uint32_t)((uint64_t)now_ms >> ACCESS_TICK_SHIFT) & ACCESS_TICK_MASK;
}

/* The word of an entry that is used (LRU) or changed (LRM) now. */
KV_INLINE uint32_t access_of_tick(uint32_t tick)
{
    return (tick & 0xffffffu) | tick >> 24 << 25;
}

KV_INLINE uint32_t access_to_tick(uint32_t access)
{
    return (access & 0xffffffu) | access >> 25 << 24;
}

KV_INLINE uint32_t entry_access(const struct kv_entry *e)
{
    return (uint32_t)e->access[0] | (uint32_t)e->access[1] << 8 | (uint32_t)e->access[2] << 16 |
           (uint32_t)(e->flags & KV_ENTRY_CLOCK_FLAGS) << ACCESS_FLAG_SHIFT;
}

KV_INLINE uint8_t access_flags(uint32_t access)
{
    return (uint8_t)(access >> ACCESS_FLAG_SHIFT) & KV_ENTRY_CLOCK_FLAGS;
}

/* Writes only what differs: a read of a hot key leaves its cache line clean. */
KV_INLINE void entry_set_access(struct kv_entry *e, uint32_t access)
{
    if (entry_access(e) != access) {
        e->access[0] = (uint8_t)access;
        e->access[1] = (uint8_t)(access >> 8);
        e->access[2] = (uint8_t)(access >> 16);
        e->flags = (uint8_t)((e->flags & KV_ENTRY_LAYOUT_FLAGS) | access_flags(access));
    }
}

/* Ticks since the access of either form; an LFU entry knows minutes. */
uint32_t kv_access_age(uint32_t access, int64_t now_ms);

/* The counter after its decay, and how an entry without one counts: as new when it was written. */
uint32_t kv_access_frequency(uint32_t access, int64_t now_ms, uint32_t decay_minutes);

#endif
