/* Compiler facts that every file may rely on: gcc 12 or clang 14, C17 with GNU extensions, x86-64
 * or another 64-bit little-endian machine. */
#ifndef KV_BASE_COMPILER_H
#define KV_BASE_COMPILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KV_LIKELY(x) __builtin_expect(!!(x), 1)
#define KV_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define KV_INLINE static inline __attribute__((always_inline))
#define KV_NOINLINE __attribute__((noinline))
#define KV_HOT __attribute__((hot))
#define KV_COLD __attribute__((cold, noinline))
#define KV_NORETURN __attribute__((noreturn))
#define KV_PRINTF(fmt_arg, first_arg) __attribute__((format(printf, fmt_arg, first_arg)))
#define KV_MUST_CHECK __attribute__((warn_unused_result))
#define KV_UNUSED __attribute__((unused))

#define KV_CACHE_LINE 64 /* bytes */
#define KV_ALIGNED(n) __attribute__((aligned(n)))
#define KV_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))
#define KV_MIN(a, b) ((a) < (b) ? (a) : (b))
#define KV_MAX(a, b) ((a) > (b) ? (a) : (b))
#define KV_CONTAINER_OF(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* Asks for a cache line; _OWN: to write to it, taking it from other cores. Not __builtin_prefetch:
 * to gcc that has no effect, so a function that only prefetches counts as pure and link-time
 * optimisation deletes the calls to it. */
#if defined(__x86_64__)
#define KV_PREFETCH(p) __asm__ volatile("prefetcht0 %0" : : "m"(*(const char *)(p)))
#define KV_PREFETCH_OWN(p) __asm__ volatile("prefetchw %0" : : "m"(*(const char *)(p)))
#else
#define KV_PREFETCH(p) __builtin_prefetch((p), 0, 3)
#define KV_PREFETCH_OWN(p) __builtin_prefetch((p), 1, 3)
#endif

#if defined(__SANITIZE_THREAD__)
#define KV_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define KV_TSAN 1
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#define KV_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define KV_ASAN 1
#endif
#endif

#endif
