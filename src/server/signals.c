/* Signals that end the server.
 *
 * The handler only does what is safe inside one: it notes the wish, wakes the engine
 * (kv_engine_stop is async-signal-safe) and writes one raw line to the log. The orderly end happens
 * in main, after kv_engine_run returns.
 *
 * A second SIGINT means that somebody at the keyboard does not want to wait: the process ends with
 * status 1, after removing the pid file.
 *
 * Threads: handlers run on any thread. `engine` is atomic, because a signal may arrive while main
 * tears the engine down.
 *
 * Rejected: signalfd, which needs a place in some worker's loop and cannot serve a worker that is
 * stuck.
 */
#include "server/signals.h"

#include "base/assert.h"
#include "base/log.h"
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static _Atomic(struct kv_engine *) engine;
static atomic_int asked;      /* the signal that has asked for the end; 0: none */
static atomic_bool defers[2]; /* for SIGTERM, SIGINT somebody asks kv_signals_take now and then */
static atomic_bool taken;     /* and has been told */
static const char *pidfile_path; /* written before the handlers exist */

/* Appends decimal digits; no library call is needed. */
static size_t put_number(char *out, unsigned long long value)
{
    char digits[24];
    size_t len = 0;
    do {
        digits[len++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    for (size_t i = 0; i < len; i++)
        out[i] = digits[len - 1 - i];
    return len;
}

static size_t put_text(char *out, const char *text)
{
    size_t len = strlen(text);
    memcpy(out, text, len);
    return len;
}

static void log_line(const char *what)
{
    char line[256];
    size_t len = put_number(line, (unsigned long long)getpid());
    len += put_text(line + len, ":signal-handler (");
    len += put_number(line + len, (unsigned long long)time(NULL));
    len += put_text(line + len, ") ");
    len += put_text(line + len, what);
    line[len++] = '\n';
    kv_log_raw(line, len);
}

static void on_end(int number)
{
    int error = errno;
    if (atomic_exchange(&asked, number) != 0 && number == SIGINT) {
        log_line("You insist... exiting now.");
        if (pidfile_path[0] != '\0')
            unlink(pidfile_path);
        _exit(1);
    }
    log_line(number == SIGINT ? "Received SIGINT scheduling shutdown..."
                              : "Received SIGTERM scheduling shutdown...");
    struct kv_engine *e = atomic_load(&engine);
    if (e != NULL && !atomic_load(&defers[number == SIGINT]))
        kv_engine_stop(e);
    errno = error;
}

void kv_signals_defer(bool on_sigterm, bool on_sigint)
{
    atomic_store(&defers[0], on_sigterm);
    atomic_store(&defers[1], on_sigint);
}

/* Also one that came when it was not deferred: then the engine stops already. */
int kv_signals_take(void)
{
    int number = atomic_load(&asked);
    return number != 0 && !atomic_exchange(&taken, true) ? number : 0;
}

void kv_signals_again(void)
{
    atomic_store(&taken, false);
}

void kv_signals_refuse(void)
{
    atomic_store(&taken, false);
    atomic_store(&asked, 0);
}

static void set_handler(int number, void (*fn)(int))
{
    struct sigaction action = {.sa_handler = fn};
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    int result = sigaction(number, &action, NULL);
    KV_ASSERT(result == 0);
}

void kv_signals_init(struct kv_engine *e, const char *pidfile)
{
    KV_ASSERT(e != NULL);
    pidfile_path = pidfile;
    atomic_store(&engine, e);
    set_handler(SIGHUP, SIG_IGN);
    set_handler(SIGPIPE, SIG_IGN);
    set_handler(SIGTERM, on_end);
    set_handler(SIGINT, on_end);
}

void kv_signals_release(void)
{
    atomic_store(&engine, NULL);
}
