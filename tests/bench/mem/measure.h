/* Clocks, resident memory and callgrind's counters for paths.c. Times are CPU time of a thread. */
#ifndef KV_TESTS_BENCH_MEM_MEASURE_H
#define KV_TESTS_BENCH_MEM_MEASURE_H

#include "base/compiler.h"
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#define HAVE_CALLGRIND 1
#endif
#endif
#ifndef HAVE_CALLGRIND
#define HAVE_CALLGRIND 0
#define CALLGRIND_ZERO_STATS ((void)0)
#define CALLGRIND_DUMP_STATS_AT(text) ((void)(text))
#endif

#define SLICES 5
#define STEPS_MIN 1280

/* Nothing in memory stays in a register over it. */
#define BARRIER __asm__ volatile("" : : : "memory")

/* The compiler must believe that the block is used and that anything may have been changed. */
#define ESCAPE(ptr) __asm__ volatile("" : : "r"(ptr) : "memory")

KV_INLINE uint64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

KV_INLINE uint64_t thread_ns(void)
{
    return clock_ns(CLOCK_THREAD_CPUTIME_ID);
}

KV_INLINE int64_t resident_bytes(void)
{
    long long total_pages = 0, pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%lld %lld", &total_pages, &pages) != 2)
        abort();
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

/* Binds the calling thread to the n-th core that the process was allowed at its start. */
KV_INLINE void pin_thread(const cpu_set_t *allowed, int n)
{
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, allowed) || n-- > 0)
            continue;
        cpu_set_t one;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        if (pthread_setaffinity_np(pthread_self(), sizeof one, &one) != 0)
            abort();
        return;
    }
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds of one step of run(arg, steps): as many steps as fill slice_ns, the median of
 * several such slices. The number is a multiple of STEPS_MIN; the first of them, which meet pages
 * that were never touched, do not count. */
KV_INLINE double measure(void (*run)(size_t arg, uint64_t steps), size_t arg, uint64_t slice_ns)
{
    uint64_t steps = STEPS_MIN, spent = 0;
    run(arg, steps);
    for (;;) {
        uint64_t start = thread_ns();
        run(arg, steps);
        spent = thread_ns() - start;
        if (spent >= slice_ns)
            break;
        steps = spent < slice_ns / 16 ? steps * 8 : steps * 2;
    }
    double slices[SLICES];
    for (int i = 0; i < SLICES; i++) {
        uint64_t start = thread_ns();
        run(arg, steps);
        slices[i] = (double)(thread_ns() - start) / (double)steps;
    }
    qsort(slices, SLICES, sizeof slices[0], compare_doubles);
    return slices[SLICES / 2];
}

#endif
