/* Steps of the start.
 *
 * Each step either succeeds or says why not, where an administrator looks: on standard error while
 * the configuration is read (nobody knows the log file yet), in the log afterwards. Wording and
 * order of the log lines are those that people and scripts know from redis-server.
 *
 * Threads: main thread, before workers exist; daemonizing forks and therefore comes first.
 *
 * Rejected: libsystemd for the ready message. It is one datagram.
 */
#include "server/start.h"

#include "admin/users.h"
#include "base/file.h"
#include "base/log.h"
#include "base/version.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define DAEMON_PIDFILE "/var/run/kvik.pid"

static void print_help(void)
{
    fputs("Usage: kvik-server [/path/to/kvik.conf] [options] [-]\n"
          "       kvik-server - (read the configuration from standard input)\n"
          "       kvik-server -v or --version\n"
          "       kvik-server -h or --help\n"
          "\n"
          "Options are directives of the configuration file behind two dashes; later ones win.\n"
          "\n"
          "Examples:\n"
          "       kvik-server (one worker per core, port 6379)\n"
          "       kvik-server /etc/kvik/6379.conf\n"
          "       kvik-server --port 7777 --threads 1\n"
          "       kvik-server /etc/kvik/6379.conf --loglevel verbose --save \"\"\n"
          "       echo 'maxclients 100' | kvik-server -\n",
          stdout);
}

void kv_start_std_descriptors(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

bool kv_start_answer(int argc, char *const *argv)
{
    if (argc < 2)
        return false;
    if (strcmp(argv[1], "-v") == 0 || strcmp(argv[1], "--version") == 0) {
        printf("Kvik server v=%s redis=%s malloc=%s bits=%zu\n", KV_VERSION, KV_REDIS_VERSION,
               kv_mem_allocator_name(), sizeof(void *) * 8);
        return true;
    }
    if (strcmp(argv[1], "-h") == 0 || strcmp(argv[1], "--help") == 0) {
        print_help();
        return true;
    }
    return false;
}

static void print_fatal(const char *text)
{
    fprintf(stderr, "\n*** FATAL CONFIG FILE ERROR (Kvik %s) ***\n%s", KV_VERSION, text);
}

enum kv_err kv_start_configure(struct kv_config *c, int argc, char *const *argv)
{
    struct kv_text message;
    kv_text_init(&message);
    enum kv_err err = kv_config_load_args(c, argc - 1, argv + 1, &message);
    if (err == KV_OK)
        err = kv_config_finish(c, &message);
    if (err != KV_OK)
        print_fatal(kv_text_cstr(&message));
    kv_text_release(&message);
    return err;
}

enum kv_err kv_start_users(struct kv_config *c, struct kv_engine *e)
{
    struct kv_text message;
    kv_text_init(&message);
    enum kv_err err = kv_users_start(c, e, &message);
    if (err != KV_OK) {
        print_fatal(kv_text_cstr(&message));
        kv_log(KV_LOG_WARNING, "Aborting the start because of errors in the users: %s",
               kv_text_cstr(&message));
    }
    kv_text_release(&message);
    return err;
}

enum kv_err kv_start_log(const struct kv_options *o)
{
    kv_log_set_level((enum kv_log_level)o->loglevel);
    if (o->syslog_enabled)
        kv_log_set_syslog(o->syslog_ident, (int)o->syslog_facility);
    if (kv_log_set_file(o->logfile) == KV_OK)
        return KV_OK;
    struct kv_text message;
    kv_text_init(&message);
    kv_text_printf(&message, "Can't open the log file: %s\n", strerror(errno));
    print_fatal(kv_text_cstr(&message));
    kv_text_release(&message);
    return KV_ERR_IO;
}

void kv_start_daemonize(void)
{
    pid_t pid = fork();
    if (pid < 0) {
        fprintf(stderr, "Can't start in the background: %s\n", strerror(errno));
        exit(1);
    }
    if (pid > 0)
        exit(0);
    setsid();
    int fd = open("/dev/null", O_RDWR);
    if (fd < 0)
        return;
    dup2(fd, STDIN_FILENO);
    dup2(fd, STDOUT_FILENO);
    dup2(fd, STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

enum kv_err kv_start_open_files(struct kv_config *c)
{
    uint64_t maxclients = (uint64_t)kv_config_number(c, "maxclients");
    uint64_t reserved = kv_config_reserved_files(c);
    uint64_t limit;
    if (kv_config_raise_file_limit(c, maxclients, &limit))
        return KV_OK;
    if (limit <= reserved) {
        kv_log(KV_LOG_WARNING,
               "Your current 'ulimit -n' of %llu is not enough for the server to start. Please "
               "increase your open file limit to at least %llu. Exiting.",
               (unsigned long long)limit, (unsigned long long)(maxclients + reserved));
        return KV_ERR_LIMIT;
    }
    kv_config_lower_maxclients(c, (uint32_t)(limit - reserved));
    kv_log(KV_LOG_WARNING,
           "You requested maxclients of %llu requiring at least %llu max file descriptors.",
           (unsigned long long)maxclients, (unsigned long long)(maxclients + reserved));
    kv_log(KV_LOG_WARNING,
           "Current maximum open files is %llu. maxclients has been reduced to %llu to compensate "
           "for low ulimit. If you need higher maxclients increase 'ulimit -n'.",
           (unsigned long long)limit, (unsigned long long)(limit - reserved));
    return KV_OK;
}

const char *kv_start_pidfile(const struct kv_options *o)
{
    const char *path = o->pidfile;
    if (path[0] == '\0' && o->daemonize)
        path = DAEMON_PIDFILE;
    if (path[0] == '\0')
        return path;
    char text[32];
    int len = snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0) {
        kv_log(KV_LOG_WARNING, "Failed to write PID file: %s", strerror(errno));
        return "";
    }
    if (kv_file_write_all(fd, text, (size_t)len) != KV_OK)
        kv_log(KV_LOG_WARNING, "Failed to write PID file: %s", strerror(errno));
    close(fd);
    return path;
}

/* One datagram to systemd's socket, whose name may be abstract (a leading @). */
static void notify_systemd(const char *socket_name)
{
    static const char message[] = "READY=1\nSTATUS=Ready to accept connections\n";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t len = strlen(socket_name);
    if (len == 0 || len >= sizeof(address.sun_path))
        return;
    memcpy(address.sun_path, socket_name, len);
    if (socket_name[0] == '@')
        address.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    if (sendto(fd, message, sizeof(message) - 1, MSG_NOSIGNAL, (struct sockaddr *)&address, size) <
        0)
        kv_log(KV_LOG_WARNING, "Can't notify systemd: %s", strerror(errno));
    close(fd);
}

void kv_start_notify(const struct kv_config *c)
{
    enum { NONE, AUTO, SYSTEMD, UPSTART } mode = (int)kv_config_number(c, "supervised");
    const char *systemd = getenv("NOTIFY_SOCKET");
    const char *upstart = getenv("UPSTART_JOB");
    if ((mode == AUTO || mode == SYSTEMD) && systemd != NULL)
        notify_systemd(systemd);
    else if ((mode == AUTO || mode == UPSTART) && upstart != NULL)
        raise(SIGSTOP);
    else if (mode == SYSTEMD || mode == UPSTART)
        kv_log(KV_LOG_WARNING, "supervised: no supervisor of this kind has started the server");
}

static void warn_backlog(const struct kv_options *o)
{
    char text[32];
    int fd = open("/proc/sys/net/core/somaxconn", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    ssize_t len = read(fd, text, sizeof(text) - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    long limit = strtol(text, NULL, 10);
    if (limit > 0 && (unsigned long)limit < o->tcp_backlog)
        kv_log(KV_LOG_WARNING,
               "WARNING: The TCP backlog setting of %u cannot be enforced because "
               "/proc/sys/net/core/somaxconn is set to the lower value of %ld.",
               o->tcp_backlog, limit);
}

void kv_start_warn(const struct kv_options *o)
{
    if (o->port != 0)
        warn_backlog(o);
}
