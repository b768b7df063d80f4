/* The server log: one line per message, written with one write(2) so that lines of several threads
 * never mix. Format: `pid:role dd Mon yyyy hh:mm:ss.mmm level message`, as redis-server prints it
 * (role M = master; level characters . - * #). Thread-safe. */
#ifndef KV_BASE_LOG_H
#define KV_BASE_LOG_H

#include "base/compiler.h"
#include "base/err.h"

enum kv_log_level {
    KV_LOG_DEBUG = 0,
    KV_LOG_VERBOSE = 1,
    KV_LOG_NOTICE = 2,
    KV_LOG_WARNING = 3,
    KV_LOG_NOTHING = 4,
};

/* Logs when level >= the set level. Messages over 1,024 bytes are cut. */
void kv_log(enum kv_log_level level, const char *fmt, ...) KV_PRINTF(2, 3);

/* Sets the level (relaxed atomic: any thread). */
void kv_log_set_level(enum kv_log_level level);
enum kv_log_level kv_log_level(void);

/* Writes to this file from now on, appended; NULL or "" is standard output. The file is opened and
 * closed per line, so it may be rotated. Fails with KV_ERR_IO when it cannot be opened. */
enum kv_err kv_log_set_file(const char *path) KV_MUST_CHECK;

/* Also send to syslog (ident, facility as in syslog.h); ident NULL switches it off. */
void kv_log_set_syslog(const char *ident, int facility);

/* Async-signal-safe raw line for the crash report: to the log file or standard output. */
void kv_log_raw(const char *bytes, size_t len);

#endif
