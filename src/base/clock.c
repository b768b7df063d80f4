/* Time.
 *
 * Wall time decides when keys expire and is read once per batch; monotonic time measures durations.
 * Ticks are for durations that are measured per command: reading the time stamp counter costs about
 * a third of clock_gettime and no call.
 *
 * Ticks become nanoseconds by a 64x64 -> 128 bit multiplication with a 32.32 fixed-point factor and
 * back by another one; both factors are 1.0 until kv_clock_init has measured. Measuring 2 ms
 * against clock_gettime gives some 25 parts in a million, plenty for statistics; whatever needs
 * exact time does not use ticks.
 *
 * The counter is used only where the processor says that it is invariant (constant rate, running in
 * every sleep state). Virtual machines that migrate hide that flag, and then the clock serves.
 *
 * The fake wall clock is one relaxed atomic: tests of expiry set it, and it stands still so that
 * "one millisecond before" is exact.
 *
 * Threads: kv_clock_init runs before any thread starts and writes plain variables that nobody
 * writes afterwards; everything else may be called anywhere. */
#include "base/clock.h"

#include "base/assert.h"
#include <stdatomic.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define CALIBRATION_NS 2000000
#define FIXED_ONE ((uint64_t)1 << 32)

bool kv_clock_use_tsc;

_Atomic(int64_t) kv_clock_fake_ms;        /* 0: the real clock */
static uint64_t ns_per_tick = FIXED_ONE;  /* 32.32 fixed point */
static uint64_t ticks_per_ns = FIXED_ONE; /* 32.32 fixed point */

static uint64_t read_ns(clockid_t id)
{
    struct timespec t;
    int rc = clock_gettime(id, &t);
    KV_ASSERT(rc == 0);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int64_t kv_clock_wall_us(void)
{
    int64_t fake = atomic_load_explicit(&kv_clock_fake_ms, memory_order_relaxed);
    if (KV_UNLIKELY(fake != 0))
        return fake * 1000;
    return (int64_t)(read_ns(CLOCK_REALTIME) / 1000);
}

int64_t kv_clock_wall_ms(void)
{
    int64_t fake = atomic_load_explicit(&kv_clock_fake_ms, memory_order_relaxed);
    if (KV_UNLIKELY(fake != 0))
        return fake;
    return (int64_t)(read_ns(CLOCK_REALTIME) / 1000000);
}

uint64_t kv_clock_mono_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

uint64_t kv_clock_mono_us(void)
{
    return read_ns(CLOCK_MONOTONIC) / 1000;
}

void kv_clock_set_fake_ms(int64_t ms)
{
    KV_ASSERT(ms >= 0);
    KV_ASSERT(ms <= INT64_MAX / 1000);
    atomic_store_explicit(&kv_clock_fake_ms, ms, memory_order_relaxed);
}

static bool tsc_is_invariant(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1u << 8)) != 0;
#else
    return false;
#endif
}

void kv_clock_init(void)
{
    if (kv_clock_use_tsc || !tsc_is_invariant())
        return;
#if defined(__x86_64__)
    uint64_t ns_start = kv_clock_mono_ns();
    uint64_t ticks_start = __builtin_ia32_rdtsc();
    uint64_t ns = 0;
    while (ns < CALIBRATION_NS)
        ns = kv_clock_mono_ns() - ns_start;
    uint64_t ticks = __builtin_ia32_rdtsc() - ticks_start;
    /* A counter slower than 1 MHz or faster than 1 THz is not what we think it is. */
    if (ticks < ns / 1000 || ticks > ns * 1000)
        return;
    ns_per_tick = (uint64_t)(((unsigned __int128)ns << 32) / ticks);
    ticks_per_ns = (uint64_t)(((unsigned __int128)ticks << 32) / ns);
    KV_ASSERT(ns_per_tick > 0 && ticks_per_ns > 0);
    kv_clock_use_tsc = true;
#endif
}

uint64_t kv_clock_ticks_to_ns(uint64_t ticks)
{
    return (uint64_t)(((unsigned __int128)ticks * ns_per_tick) >> 32);
}

uint64_t kv_clock_ns_to_ticks(uint64_t ns)
{
    return (uint64_t)(((unsigned __int128)ns * ticks_per_ns) >> 32);
}
