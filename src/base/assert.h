/* Assertions. A failed assertion is our own mistake: the process ends with a report, never with a
 * reply (errors of an operation are `enum kv_err`, mistakes of a client are replies).
 *
 *  KV_ASSERT(cond)   checked in every build, release included
 *  KV_DASSERT(cond)  checked in debug and sanitizer builds (KV_DEBUG), for hot functions
 *  KV_DEBUG_ONLY(x)  code that exists in debug builds only
 */
#ifndef KV_BASE_ASSERT_H
#define KV_BASE_ASSERT_H

#include "base/compiler.h"

/* Prints file, line and text to the log and ends the process through the crash report. */
void kv_assert_failed(const char *cond, const char *file, int line) KV_COLD KV_NORETURN;

/* Ends the process with a formatted reason: for states that no condition describes. */
void kv_panic(const char *fmt, ...) KV_PRINTF(1, 2) KV_COLD KV_NORETURN;

#define KV_ASSERT(cond)                                                                            \
    do {                                                                                           \
        if (KV_UNLIKELY(!(cond)))                                                                  \
            kv_assert_failed(#cond, __FILE__, __LINE__);                                           \
    } while (0)

#ifdef KV_DEBUG
#define KV_DASSERT(cond) KV_ASSERT(cond)
#define KV_DEBUG_ONLY(...) __VA_ARGS__
#else
#define KV_DASSERT(cond) ((void)0)
#define KV_DEBUG_ONLY(...)
#endif

#define KV_UNREACHABLE() kv_panic("unreachable code at %s:%d", __FILE__, __LINE__)

#endif
