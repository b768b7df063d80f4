/* Assertions and panics: the last words of the process.
 *
 * A failed assertion means that the program is wrong, so nothing here tries to go on: the reason is
 * written to the log and the process is aborted. The crash report (registers, stack, state of the
 * server) is the business of the SIGABRT handler that server/ installs; keeping it out of here lets
 * every layer and every unit test assert without knowing of a server.
 *
 * Threads: any. kv_log takes no mutex and allocates nothing, so an assertion may fail while any
 * lock is held, the memory layer's included. A thread that fails an assertion while it is already
 * reporting one (a bug in the report itself) aborts at once instead of recursing.
 *
 * Rejected: __attribute__((trap)) in release builds. It saves a few bytes a check but leaves the
 * user with "Illegal instruction" and no line number. */
#include "base/assert.h"

#include "base/log.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local bool reporting;

static void report_once(void)
{
    if (reporting)
        abort();
    reporting = true;
}

void kv_assert_failed(const char *cond, const char *file, int line)
{
    report_once();
    kv_log(KV_LOG_WARNING, "=== ASSERTION FAILED ===");
    kv_log(KV_LOG_WARNING, "==> %s:%d '%s' is not true", file, line, cond);
    abort();
}

void kv_panic(const char *fmt, ...)
{
    char text[512];
    va_list args;

    report_once();
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    kv_log(KV_LOG_WARNING, "=== PANIC === %s", text);
    abort();
}
