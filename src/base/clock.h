/* Time. Wall time is Unix time; monotonic time counts from an arbitrary start. All thread-safe.
 * A test may set a fake wall clock (kv_clock_set_fake_ms), which then stands still. */
#ifndef KV_BASE_CLOCK_H
#define KV_BASE_CLOCK_H

#include "base/compiler.h"
#include <stdatomic.h>

int64_t kv_clock_wall_ms(void);
int64_t kv_clock_wall_us(void);
uint64_t kv_clock_mono_ns(void);
uint64_t kv_clock_mono_us(void);

/* Fake wall time in ms; 0 returns to the real clock. Test use only, relaxed atomic. */
void kv_clock_set_fake_ms(int64_t ms);

extern _Atomic(int64_t) kv_clock_fake_ms; /* as set; here so that asking for it is one load */

KV_INLINE bool kv_clock_is_fake(void)
{
    return atomic_load_explicit(&kv_clock_fake_ms, memory_order_relaxed) != 0;
}

/* Cheap ticks for durations: the time stamp counter where it is invariant, else nanoseconds.
 * kv_clock_init measures its rate once (about 2 ms) and must run before any thread starts. */
void kv_clock_init(void);
uint64_t kv_clock_ticks_to_ns(uint64_t ticks);
uint64_t kv_clock_ns_to_ticks(uint64_t ns);

extern bool kv_clock_use_tsc; /* set by kv_clock_init, constant afterwards */

KV_INLINE uint64_t kv_clock_ticks(void)
{
#if defined(__x86_64__)
    if (KV_LIKELY(kv_clock_use_tsc))
        return __builtin_ia32_rdtsc();
#endif
    return kv_clock_mono_ns();
}

#endif
