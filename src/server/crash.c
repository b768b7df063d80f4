/* Crash report.
 *
 * On a fatal signal: which signal, which address, who sent it, the registers, a back trace, facts
 * of the server. Then the default action is restored and the signal raised again, so that a core
 * file or the supervisor sees the true cause.
 *
 * Nothing here may rely on a healthy process: no allocation, no lock, no stdio. Text is composed in
 * a static buffer by hand and written by kv_log_raw. backtrace() loads a library on its first call,
 * so it is called once at the start. The handler runs on a stack of its own on the main thread
 * (a stack overflow is reported too); other threads use theirs.
 *
 * A second fault inside the report meets the default action (SA_RESETHAND for the same signal, and
 * `reporting` for others), which ends the process.
 *
 * Rejected: INFO in the report as redis-server prints it. It walks clients and tables that may be
 * what is broken; the facts that matter for a bug report do not change after the start.
 */
#include "server/crash.h"

#include "base/assert.h"
#include "base/log.h"
#include "base/version.h"
#include "mem/mem.h"
#include <execinfo.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <ucontext.h>
#include <unistd.h>

#define FRAMES_MAX 64
#define STACK_BYTES (64 * 1024)

#if defined(KV_ASAN) || defined(KV_TSAN)
#define CRASH_HANDLERS 0
#else
#define CRASH_HANDLERS 1
#endif

static char facts[2048];      /* composed at the start */
static char log_path[1024];   /* "" for standard output */
static atomic_bool reporting; /* a report is being written */
static char stack[STACK_BYTES] KV_ALIGNED(16);

/* One line under construction. */
struct line {
    char text[512];
    size_t len;
};

static void add(struct line *l, const char *text)
{
    while (*text != '\0' && l->len < sizeof(l->text) - 1)
        l->text[l->len++] = *text++;
}

static void add_number(struct line *l, unsigned long long value, unsigned base, int digits)
{
    char reversed[32];
    int len = 0;
    do {
        reversed[len++] = "0123456789abcdef"[value % base];
        value /= base;
    } while ((value > 0 || len < digits) && len < (int)sizeof(reversed));
    while (len > 0 && l->len < sizeof(l->text) - 1)
        l->text[l->len++] = reversed[--len];
}

static void end_line(struct line *l)
{
    l->text[l->len++] = '\n';
    kv_log_raw(l->text, l->len);
    l->len = 0;
}

static void write_line(const char *text)
{
    struct line l = {.len = 0};
    add(&l, text);
    end_line(&l);
}

static const char *signal_name(int number)
{
    switch (number) {
    case SIGSEGV:
        return "SIGSEGV";
    case SIGBUS:
        return "SIGBUS";
    case SIGFPE:
        return "SIGFPE";
    case SIGILL:
        return "SIGILL";
    case SIGABRT:
        return "SIGABRT";
    default:
        return "signal";
    }
}

static void report_cause(int number, const siginfo_t *info)
{
    struct line l = {.len = 0};
    add(&l, "Kvik " KV_VERSION " crashed by signal: ");
    add_number(&l, (unsigned long long)number, 10, 1);
    add(&l, " (");
    add(&l, signal_name(number));
    add(&l, "), si_code: ");
    if (info->si_code < 0)
        add(&l, "-");
    add_number(&l, (unsigned long long)(info->si_code < 0 ? -info->si_code : info->si_code), 10, 1);
    add(&l, ", thread: ");
    add_number(&l, (unsigned long long)gettid(), 10, 1);
    end_line(&l);
    if (info->si_code == SI_USER || info->si_code == SI_TKILL || info->si_code == SI_QUEUE) {
        add(&l, "Sent by process: ");
        add_number(&l, (unsigned long long)info->si_pid, 10, 1);
        add(&l, ", user: ");
        add_number(&l, (unsigned long long)info->si_uid, 10, 1);
    } else {
        add(&l, "Accessing address: 0x");
        add_number(&l, (unsigned long long)(uintptr_t)info->si_addr, 16, 1);
    }
    end_line(&l);
}

#if defined(__x86_64__)
static void report_registers(const ucontext_t *u)
{
    static const struct {
        const char *name;
        int index;
    } registers[] = {
        {"RAX:", REG_RAX}, {"RBX:", REG_RBX}, {"RCX:", REG_RCX}, {"RDX:", REG_RDX},
        {"RDI:", REG_RDI}, {"RSI:", REG_RSI}, {"RBP:", REG_RBP}, {"RSP:", REG_RSP},
        {"R8 :", REG_R8},  {"R9 :", REG_R9},  {"R10:", REG_R10}, {"R11:", REG_R11},
        {"R12:", REG_R12}, {"R13:", REG_R13}, {"R14:", REG_R14}, {"R15:", REG_R15},
        {"RIP:", REG_RIP}, {"EFL:", REG_EFL},
    };
    struct line l = {.len = 0};
    for (size_t i = 0; i < KV_ARRAY_LEN(registers); i++) {
        add(&l, registers[i].name);
        add_number(&l, (unsigned long long)u->uc_mcontext.gregs[registers[i].index], 16, 16);
        if (i % 4 == 3 || i + 1 == KV_ARRAY_LEN(registers))
            end_line(&l);
        else
            add(&l, " ");
    }
}
#else
static void report_registers(const ucontext_t *u)
{
    (void)u;
    write_line("(not shown on this machine)");
}
#endif

static void report_trace(void)
{
    void *frames[FRAMES_MAX];
    int count = backtrace(frames, FRAMES_MAX);
    int fd = STDOUT_FILENO;
    if (log_path[0] != '\0')
        fd = open(log_path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0)
        return;
    backtrace_symbols_fd(frames, count, fd);
    if (fd != STDOUT_FILENO)
        close(fd);
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    if (!atomic_exchange(&reporting, true)) {
        write_line("\n\n=== KVIK BUG REPORT START: Cut & paste starting from here ===");
        report_cause(number, info);
        write_line("\n------ STACK TRACE ------");
        report_trace();
        write_line("\n------ REGISTERS ------");
        report_registers(context);
        write_line("\n------ SERVER ------");
        kv_log_raw(facts, strlen(facts));
        write_line("\n=== KVIK BUG REPORT END ===");
    }
    struct sigaction action = {.sa_handler = SIG_DFL};
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, NULL);
    raise(number);
}

static void compose_facts(const struct kv_options *o, const char *config_file)
{
    struct utsname system;
    if (uname(&system) != 0)
        memset(&system, 0, sizeof(system));
    snprintf(facts, sizeof(facts),
             "kvik_version:%s\nredis_version:%s\nos:%s %s %s\nprocess_id:%ld\nthreads:%u\n"
             "tcp_port:%u\nconfig_file:%s\nmem_allocator:%s\n",
             KV_VERSION, KV_REDIS_VERSION, system.sysname, system.release, system.machine,
             (long)getpid(), o->threads, o->port, config_file, kv_mem_allocator_name());
    snprintf(log_path, sizeof(log_path), "%s", o->logfile);
}

void kv_crash_init(const struct kv_options *o, const char *config_file)
{
    static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
    void *frame;
    if (!CRASH_HANDLERS)
        return;
    compose_facts(o, config_file);
    backtrace(&frame, 1);
    stack_t own = {.ss_sp = stack, .ss_size = sizeof(stack)};
    int result = sigaltstack(&own, NULL);
    KV_ASSERT(result == 0);
    struct sigaction action = {.sa_sigaction = on_crash};
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER;
    for (size_t i = 0; i < KV_ARRAY_LEN(numbers); i++)
        sigaction(numbers[i], &action, NULL);
}
