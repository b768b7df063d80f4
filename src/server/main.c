/* kvik-server: from arguments to a running engine and back.
 *
 * Order: memory and clock (everything needs them) - answer --version and --help - configuration -
 * background - folder and log - open files - crash report - engine - sockets - pid file - signals -
 * loading begins - run - end. The threads of the log and the one that loads begin before
 * kv_engine_run; the fork of `daemonize` comes before the engine for that reason.
 *
 * Periodic work of the server travels down as a hook: worker 0 samples memory, which feeds
 * used_memory_peak.
 *
 * Exit status: 0 after an orderly end, also of a server that was still loading; 1 when the start or
 * the loading fails.
 *
 * Rejected: freeing nothing at the end. Destroying the engine proves in every test run that all
 * memory is accounted for, and costs milliseconds.
 */
#include "admin/config.h"
#include "admin/info.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/version.h"
#include "cmd/table.h"
#include "engine/alone.h"
#include "engine/engine.h"
#include "engine/loading.h"
#include "net/loop.h"
#include "persist/aof.h"
#include "persist/loading.h"
#include "persist/rewrite.h"
#include "persist/save.h"
#include "server/check.h"
#include "server/crash.h"
#include "server/signals.h"
#include "server/start.h"
#include <errno.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

/* What the server is to do on a signal: bits of enum kv_shutdown_on, save or not decided. */
static uint32_t wish_on(struct kv_engine *e, int number)
{
    const struct kv_options *o = kv_engine_options(e);
    uint32_t wish = number == SIGINT ? o->shutdown_on_sigint : o->shutdown_on_sigterm;
    if (!(wish & KV_SHUTDOWN_NOSAVE) && o->save_point_count != 0)
        wish |= KV_SHUTDOWN_SAVE;
    return wish;
}

static bool saves_on(struct kv_engine *e, int number)
{
    return wish_on(e, number) & KV_SHUTDOWN_SAVE;
}

static int end_signal; /* that is being obeyed; worker 0's */

/* SIGTERM or SIGINT that may want the keyspace saved before the end. [alone] */
static void end_by_signal(void *arg)
{
    struct kv_engine *e = arg;
    uint32_t wish = wish_on(e, end_signal);
    struct kv_store_stats stats = {0};
    struct kv_view view = {
        .store = kv_engine_store(e), .stats = &stats, .now_ms = kv_clock_wall_ms()};
    if (!(wish & KV_SHUTDOWN_SAVE) || kv_saver_save(kv_engine_options(e)->saver, &view) == KV_OK ||
        wish & KV_SHUTDOWN_FORCE) {
        kv_engine_stop(e);
        return;
    }
    kv_log(KV_LOG_WARNING, "Errors trying to shut down the server, check the logs for more "
                           "information.");
    kv_signals_refuse();
}

/* A signal ends the engine at once, unless something is to be saved. Nothing is while it loads. */
static void on_options(struct kv_engine *e, void *arg)
{
    (void)arg;
    bool loading = kv_engine_loading(e);
    kv_signals_defer(!loading && saves_on(e, SIGTERM), !loading && saves_on(e, SIGINT));
}

static void on_cron(struct kv_engine *e, void *arg)
{
    struct kv_saver *s = kv_engine_options(e)->saver;
    (void)arg;
    kv_mem_sample();
    if (kv_engine_loading(e))
        return; /* there is nothing to save yet, and a signal ends the server at once */
    kv_saver_cron(s);
    kv_rewriter_cron(kv_engine_options(e)->rewriter);
    on_options(e, NULL);
    int number = kv_signals_take();
    if (number == 0)
        return;
    if (kv_saver_saves_file(s)) {
        /* The one in the background would be late: it is given up, and we look again. */
        (void)kv_saver_cancel(s);
        kv_signals_again();
        return;
    }
    end_signal = number;
    kv_engine_run_alone(e, end_by_signal, e);
}

static void log_start(const struct kv_config *c)
{
    kv_log(KV_LOG_NOTICE, "oO0OoO0OoO0Oo Kvik is starting oO0OoO0OoO0Oo");
    kv_log(KV_LOG_NOTICE, "Kvik version=%s, Redis version=%s, bits=%zu, pid=%ld, just started",
           KV_VERSION, KV_REDIS_VERSION, sizeof(void *) * 8, (long)getpid());
    if (kv_config_file_path(c)[0] == '\0')
        kv_log(KV_LOG_NOTICE, "No config file given, using the defaults and the arguments.");
    kv_log(KV_LOG_NOTICE, "Configuration loaded");
}

static void log_serving(struct kv_engine *e)
{
    const struct kv_options *o = kv_engine_options(e);
    kv_log(KV_LOG_NOTICE, "Running mode=standalone, port=%u, threads=%u.", o->port,
           kv_engine_worker_count(e));
    kv_log(KV_LOG_NOTICE, "Server initialized");
    kv_start_warn(o);
}

struct serving {
    struct kv_engine *engine;
    const struct kv_config *config;
};

static void log_ready(struct kv_engine *e)
{
    const struct kv_options *o = kv_engine_options(e);
    if (o->port != 0)
        kv_log(KV_LOG_NOTICE, "Ready to accept connections tcp");
    if (o->unixsocket[0] != '\0')
        kv_log(KV_LOG_NOTICE, "Ready to accept connections unix");
}

static enum kv_err open_sockets(struct kv_engine *e)
{
    const struct kv_options *o = kv_engine_options(e);
    char what[256];
    if (o->port == 0 && o->unixsocket[0] == '\0') {
        kv_log(KV_LOG_WARNING, "Configured to not listen anywhere, exiting.");
        return KV_ERR_DENIED;
    }
    enum kv_err err = kv_engine_listen(e, what);
    if (err == KV_OK)
        return KV_OK;
    kv_log(KV_LOG_WARNING, "Warning: Could not create server listening socket %s: %s", what,
           strerror(errno));
    if (what[0] == '/' || (o->unixsocket[0] != '\0' && strstr(what, o->unixsocket) != NULL))
        kv_log(KV_LOG_WARNING, "Failed listening on unix socket %s, aborting.", o->unixsocket);
    else
        kv_log(KV_LOG_WARNING, "Failed listening on port %u (tcp), aborting.", o->port);
    return err;
}

/* Everything is loaded: whoever started the server learns of it. */
static void on_ready(void *arg)
{
    struct serving *s = arg;
    kv_signals_defer(saves_on(s->engine, SIGTERM), saves_on(s->engine, SIGINT));
    log_ready(s->engine);
    kv_start_notify(s->config);
}

/* A keyspace beyond this is not freed at the end: going through millions of blocks takes seconds,
 * the system takes pages back in a fraction of one. Builds that look for leaks free everything. */
#if defined(KV_ASAN) || defined(KV_TSAN) || defined(KV_DEBUG)
#define LEAVE_BYTES INT64_MAX
#else
#define LEAVE_BYTES ((int64_t)32 << 20)
#endif

/* Runs an engine until it is asked to stop. */
static int serve(struct kv_config *c, const struct kv_options *o, const char *program)
{
    struct kv_engine *e = kv_engine_create(o, &kv_command_table);
    struct kv_aof *log = kv_aof_create(e);
    const struct kv_engine_hooks hooks = {.cron = on_cron, .options = on_options};
    struct kv_saver *saver = kv_saver_create(e);
    struct kv_rewriter *rewriter = kv_rewriter_create(e, log, saver);
    kv_engine_options(e)->saver = saver;
    struct kv_loading *loading = kv_loading_create(e, log, saver);
    struct serving s = {e, c};
    kv_engine_options(e)->rewriter = rewriter;
    kv_engine_options(e)->loading = loading;
    kv_config_attach(c, e);
    kv_engine_set_hooks(e, &hooks);
    kv_info_init(program);
    /* Before anybody can connect: whoever sees the server may also end it. */
    kv_signals_init(e, "");
    enum kv_err err = kv_start_users(c, e);
    if (err == KV_OK)
        err = open_sockets(e);
    const char *pidfile = err == KV_OK ? kv_start_pidfile(o) : "";
    kv_signals_init(e, pidfile);
    /* The sockets are open already, so that two servers on one port do not write to one folder. */
    if (err == KV_OK) {
        log_serving(e);
        err = kv_loading_begin(loading, on_ready, &s);
    }
    if (err == KV_OK) {
        kv_engine_run(e);
        err = kv_loading_end(loading);
        bool wanted = err == KV_OK || err == KV_ERR_CLOSED;
        if (wanted)
            kv_log(KV_LOG_NOTICE, "User requested shutdown...");
        if (err == KV_OK && kv_engine_options(e)->appendonly)
            kv_log(KV_LOG_NOTICE, "Calling fsync() on the AOF file.");
        err = wanted ? KV_OK : err;
    }
    kv_signals_release();
    kv_rewriter_destroy(rewriter);
    kv_saver_destroy(saver);
    kv_aof_destroy(log);
    kv_engine_options(e)->loading = NULL;
    kv_loading_destroy(loading);
    if (kv_mem_used_dataset() > LEAVE_BYTES)
        kv_engine_leave(e);
    else
        kv_engine_destroy(e);
    if (pidfile[0] != '\0') {
        kv_log(KV_LOG_NOTICE, "Removing the pid file.");
        unlink(pidfile);
    }
    if (err != KV_OK)
        return 1;
    kv_log(KV_LOG_NOTICE, "Kvik is now ready to exit, bye bye...");
    return 0;
}

/* Who insists on a backend that the system refuses gets no server. */
static enum kv_err check_backend(const struct kv_options *o)
{
    const char *why;
    if (o->io_backend != KV_BACKEND_IO_URING || kv_loop_offered(KV_LOOP_IO_URING, &why))
        return KV_OK;
    kv_log(KV_LOG_WARNING, "Can't use io-backend io_uring: %s. Use auto or epoll.", why);
    return KV_ERR_DENIED;
}

/* What comes between the configuration and the engine. */
static enum kv_err prepare(struct kv_config *c, struct kv_options *o)
{
    kv_options_default(o);
    kv_config_fill(c, o);
    if (o->daemonize)
        kv_start_daemonize();
    if (kv_config_enter_folder(c) != KV_OK) {
        kv_log(KV_LOG_WARNING, "Can't enter the folder '%s': %s", o->dir, strerror(errno));
        return KV_ERR_IO;
    }
    enum kv_err err = kv_start_log(o);
    if (err != KV_OK)
        return err;
    log_start(c);
    err = check_backend(o);
    if (err != KV_OK)
        return err;
    err = kv_start_open_files(c);
    /* The folder's name and maxclients may have changed. */
    kv_config_fill(c, o);
    return err;
}

int main(int argc, char **argv)
{
    struct kv_options options;
    const char *faults = getenv("KVIK_FILE_FAULTS"), *syncs = getenv("KVIK_FILE_SYNCS");
    kv_start_std_descriptors();
    kv_mem_init();
    kv_clock_init();
    tzset();
    setlocale(LC_COLLATE, "");
    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN); /* a limit of file sizes is an error of the write */
    if (argc > 0 && kv_check_is_wanted(argv[0]))
        return kv_check_main(argc, argv);
    if (kv_start_answer(argc, argv))
        return 0;
    /* Only test builds have any. */
    if (faults != NULL)
        (void)kv_file_fail_text(faults);
    if (syncs != NULL)
        (void)kv_file_log_syncs(syncs);
    struct kv_config *config = kv_config_create();
    int status = 1;
    if (kv_start_configure(config, argc, argv) == KV_OK && prepare(config, &options) == KV_OK) {
        if (kv_config_number(config, "crash-log-enabled"))
            kv_crash_init(&options, kv_config_file_path(config));
        status = serve(config, &options, argv[0]);
    }
    kv_config_destroy(config);
    kv_mem_thread_exit();
    return status;
}
