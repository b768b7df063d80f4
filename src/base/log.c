/* The server log.
 *
 * A line is put together in a buffer on the stack and leaves with one write(2), so lines of several
 * threads never mix and a crash loses nothing. The file is opened with O_APPEND for each line:
 * rotation needs no signal, and logging is rare enough (the slow path of a slow path) that the
 * open does not matter.
 *
 * Data: the level, the index of the current path and the syslog switch are atomics; two path
 * buffers take turns, so a reader (also one in a signal handler) always sees a complete path. A
 * reader could only be overtaken if the file were set twice during its open(2), which the start-up
 * code and CONFIG SET do not do. Setting is serialised by a mutex of rank KV_RANK_LOG; logging
 * itself takes no lock and allocates nothing, so it may be called from anywhere: under any mutex,
 * from a failed assertion, from the out-of-memory handler.
 *
 * Rejected: stdio (its lock may be held by the thread that crashed, and it buffers), and a logger
 * thread (the last lines before a crash are the ones that matter). */
#include "base/log.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/lock.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <syslog.h>
#include <time.h>
#include <unistd.h>

#define MESSAGE_MAX 1024 /* bytes of a message; what is longer is cut */
#define PREFIX_MAX 128   /* bytes of pid, role, time and level */

static _Atomic(int) level_now = KV_LOG_NOTICE;
static _Atomic(unsigned) path_index; /* which of `paths` is in force */
static char paths[2][PATH_MAX];      /* "" is standard output */
static _Atomic(bool) syslog_on;      /* also send to syslog */
static char syslog_ident[64];        /* openlog keeps the pointer */
static struct kv_mutex setting_mutex = KV_MUTEX_INIT(KV_RANK_LOG);

static const char *current_path(void)
{
    return paths[atomic_load_explicit(&path_index, memory_order_acquire) & 1];
}

static int open_append(const char *path)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
}

void kv_log_raw(const char *bytes, size_t len)
{
    const char *path = current_path();
    int error = errno; /* callers go on to tell of it */
    int fd = path[0] != '\0' ? open_append(path) : STDOUT_FILENO;

    /* A log that cannot be written must not stop the server. No kv_file_write_all: lines are none
     * of the calls that tests make fail. */
    for (size_t done = 0; fd >= 0 && done < len;) {
        ssize_t n = write(fd, bytes + done, len - done);
        if (n < 0 && errno != EINTR)
            break;
        done += n > 0 ? (size_t)n : 0;
    }
    if (fd >= 0 && fd != STDOUT_FILENO)
        close(fd);
    errno = error;
}

/* "pid:M 02 Jan 2006 15:04:05.678 * ": English month names whatever the locale. */
static size_t print_prefix(char out[PREFIX_MAX], enum kv_log_level level)
{
    static const char months[12][4] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                       "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
    static const char marks[] = ".-*#";
    struct timespec now;
    struct tm parts;

    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &parts);
    int len = snprintf(out, PREFIX_MAX, "%d:M %02d %s %04d %02d:%02d:%02d.%03d %c ", (int)getpid(),
                       parts.tm_mday, months[parts.tm_mon], parts.tm_year + 1900, parts.tm_hour,
                       parts.tm_min, parts.tm_sec, (int)(now.tv_nsec / 1000000), marks[level]);
    KV_ASSERT(len > 0 && len < PREFIX_MAX);
    return (size_t)len;
}

static int syslog_priority(enum kv_log_level level)
{
    static const int priorities[] = {LOG_DEBUG, LOG_INFO, LOG_NOTICE, LOG_WARNING};
    return priorities[level];
}

void kv_log(enum kv_log_level level, const char *fmt, ...)
{
    char line[PREFIX_MAX + MESSAGE_MAX + 2];
    va_list args;

    KV_ASSERT(level >= KV_LOG_DEBUG && level < KV_LOG_NOTHING);
    if ((int)level < atomic_load_explicit(&level_now, memory_order_relaxed))
        return;
    int errno_before = errno;
    size_t prefix_len = print_prefix(line, level);
    va_start(args, fmt);
    int len = vsnprintf(line + prefix_len, MESSAGE_MAX + 1, fmt, args);
    va_end(args);
    size_t message_len = len < 0 ? 0 : KV_MIN((size_t)len, (size_t)MESSAGE_MAX);
    line[prefix_len + message_len] = '\0';
    if (atomic_load_explicit(&syslog_on, memory_order_acquire))
        syslog(syslog_priority(level), "%s", line + prefix_len);
    line[prefix_len + message_len] = '\n';
    kv_log_raw(line, prefix_len + message_len + 1);
    errno = errno_before;
}

void kv_log_set_level(enum kv_log_level level)
{
    KV_ASSERT(level >= KV_LOG_DEBUG && level <= KV_LOG_NOTHING);
    atomic_store_explicit(&level_now, (int)level, memory_order_relaxed);
}

enum kv_log_level kv_log_level(void)
{
    return (enum kv_log_level)atomic_load_explicit(&level_now, memory_order_relaxed);
}

enum kv_err kv_log_set_file(const char *path)
{
    size_t len = path == NULL ? 0 : strlen(path);

    if (len >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return KV_ERR_IO;
    }
    if (len > 0) {
        int fd = open_append(path);
        if (fd < 0)
            return KV_ERR_IO;
        close(fd);
    }
    kv_mutex_lock(&setting_mutex);
    unsigned next = (atomic_load_explicit(&path_index, memory_order_relaxed) + 1) & 1;
    if (len > 0)
        memcpy(paths[next], path, len);
    paths[next][len] = '\0';
    atomic_store_explicit(&path_index, next, memory_order_release);
    kv_mutex_unlock(&setting_mutex);
    return KV_OK;
}

void kv_log_set_syslog(const char *ident, int facility)
{
    kv_mutex_lock(&setting_mutex);
    if (atomic_exchange(&syslog_on, false))
        closelog();
    if (ident != NULL) {
        snprintf(syslog_ident, sizeof(syslog_ident), "%s", ident);
        openlog(syslog_ident, LOG_PID | LOG_NDELAY | LOG_NOWAIT, facility);
        atomic_store_explicit(&syslog_on, true, memory_order_release);
    }
    kv_mutex_unlock(&setting_mutex);
}
