/* net/loop.h: readiness is reported to who asked, while it lasts; forgetting, waking, ending. Every
 * test runs with both backends; where the system refuses io_uring, the program says so. */
#include "mem/mem.h"
#include "net/loop.h"
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

struct end {
    struct kv_io io;
    int calls;
    uint32_t events;         /* of the last call */
    struct kv_io *to_forget; /* by the handler, or NULL */
};

static enum kv_loop_backend backend; /* of the test case that runs */
static struct kv_loop *loop;
static struct end a, b;

static void handler(struct kv_io *io, uint32_t events)
{
    struct end *e = KV_CONTAINER_OF(io, struct end, io);
    e->calls++;
    e->events = events;
    if (e->to_forget != NULL)
        kv_loop_forget(loop, e->to_forget);
}

static void pair(int fds[2])
{
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
}

static void setup(void)
{
    int fds[2];
    loop = kv_loop_create(backend);
    pair(fds);
    a = (struct end){.io = {.fd = fds[0], .fn = handler}};
    b = (struct end){.io = {.fd = fds[1], .fn = handler}};
}

static void setup_epoll(void)
{
    backend = KV_LOOP_EPOLL;
    setup();
}

static void setup_uring(void)
{
    backend = KV_LOOP_IO_URING;
    setup();
}

static void teardown(void)
{
    kv_loop_forget(loop, &a.io);
    kv_loop_forget(loop, &b.io);
    close(a.io.fd);
    close(b.io.fd);
    kv_loop_destroy(loop);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}

static void want(struct end *e, uint32_t interest)
{
    ck_assert_int_eq(kv_loop_set(loop, &e->io, interest), KV_OK);
    ck_assert_uint_eq(e->io.interest, interest);
}

/* One round without waiting; how often the two handlers ran. */
static int run_round(void)
{
    a.calls = b.calls = 0;
    a.events = b.events = 0;
    kv_loop_wait(loop, 0);
    kv_loop_run(loop);
    return a.calls + b.calls;
}

START_TEST(what_is_readable_is_reported_until_it_is_read)
{
    char byte;
    want(&a, KV_IO_READ);
    ck_assert_int_eq(run_round(), 0);
    ck_assert_int_eq((int)write(b.io.fd, "x", 1), 1);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(run_round(), 1);
        ck_assert_uint_eq(a.events, KV_IO_READ);
    }
    ck_assert_int_eq((int)read(a.io.fd, &byte, 1), 1);
    ck_assert_int_eq(run_round(), 0);
}
END_TEST

START_TEST(interest_decides_what_is_reported)
{
    ck_assert_int_eq((int)write(b.io.fd, "x", 1), 1);
    want(&a, KV_IO_WRITE);
    ck_assert_int_eq(run_round(), 1);
    ck_assert_uint_eq(a.events, KV_IO_WRITE);
    want(&a, KV_IO_READ | KV_IO_WRITE);
    run_round();
    ck_assert_uint_eq(a.events, KV_IO_READ | KV_IO_WRITE);
    want(&a, KV_IO_READ);
    run_round();
    ck_assert_uint_eq(a.events, KV_IO_READ);
    want(&a, 0);
    ck_assert_int_eq(run_round(), 0);
    want(&a, 0);
    want(&a, KV_IO_READ);
    ck_assert_int_eq(run_round(), 1);
}
END_TEST

START_TEST(a_full_socket_is_not_writable)
{
    static char bytes[1 << 16];
    while (write(a.io.fd, bytes, sizeof(bytes)) > 0)
        continue;
    want(&a, KV_IO_WRITE);
    ck_assert_int_eq(run_round(), 0);
    while (read(b.io.fd, bytes, sizeof(bytes)) > 0)
        continue;
    ck_assert_int_eq(run_round(), 1);
}
END_TEST

/* Also to who wants neither to read nor to write at the moment. */
START_TEST(a_hang_up_is_always_reported)
{
    want(&a, KV_IO_READ);
    close(b.io.fd);
    run_round();
    ck_assert_uint_eq(a.events, KV_IO_READ | KV_IO_HANGUP);
    want(&a, KV_IO_HANGUP);
    run_round();
    ck_assert_uint_eq(a.events, KV_IO_HANGUP);
    b.io.fd = dup(a.io.fd);
}
END_TEST

/* Both are ready; whichever handler comes first forgets the other. */
START_TEST(the_forgotten_are_not_called_in_the_same_round)
{
    ck_assert_int_eq((int)write(a.io.fd, "x", 1), 1);
    ck_assert_int_eq((int)write(b.io.fd, "x", 1), 1);
    want(&a, KV_IO_READ);
    want(&b, KV_IO_READ);
    a.to_forget = &b.io;
    b.to_forget = &a.io;
    ck_assert_int_eq(run_round(), 1);
    a.to_forget = b.to_forget = NULL;
    ck_assert_int_eq(run_round(), 1);
}
END_TEST

START_TEST(a_handler_may_forget_itself)
{
    ck_assert_int_eq((int)write(b.io.fd, "x", 1), 1);
    want(&a, KV_IO_READ);
    a.to_forget = &a.io;
    ck_assert_int_eq(run_round(), 1);
    ck_assert_uint_eq(a.io.interest, 0);
    ck_assert_int_eq(run_round(), 0);
}
END_TEST

START_TEST(a_bad_descriptor_changes_nothing)
{
    struct end bad = {.io = {.fd = 1000000, .fn = handler}};
    ck_assert_int_eq(kv_loop_set(loop, &bad.io, KV_IO_READ), KV_ERR_IO);
    ck_assert_uint_eq(bad.io.interest, 0);
}
END_TEST

START_TEST(a_wake_up_before_waiting_is_kept)
{
    for (int i = 0; i < 3; i++) {
        kv_loop_wake(loop);
        kv_loop_wake(loop);
        ck_assert_int_gt(kv_loop_wait(loop, -1), 0);
        kv_loop_run(loop);
        ck_assert_int_eq(kv_loop_wait(loop, 0), 0);
    }
}
END_TEST

#define WAKERS 3
static atomic_int posted; /* work items that a waker left before it woke the loop */

static void *wake_often(void *arg)
{
    int n = *(int *)arg;
    for (int i = 0; i < n; i++) {
        atomic_fetch_add(&posted, 1);
        kv_loop_wake(loop);
        if (i % 16 == 0)
            usleep(50);
    }
    return NULL;
}

/* No wake-up is lost: everything posted is seen without ever waiting in vain. */
START_TEST(wake_ups_from_other_threads_are_not_lost)
{
    pthread_t threads[WAKERS];
    int n = UNIT_ROUNDS(3000), seen = 0, idle = 0;
    for (int i = 0; i < WAKERS; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, wake_often, &n), 0);
    while (seen < WAKERS * n) {
        int ready = kv_loop_wait(loop, 10000);
        kv_loop_run(loop);
        int now = atomic_load(&posted);
        idle += ready == 0 && now > seen;
        seen = now;
    }
    for (int i = 0; i < WAKERS; i++)
        pthread_join(threads[i], NULL);
    ck_assert_int_eq(idle, 0);
}
END_TEST

START_TEST(waiting_ends_after_its_time)
{
    ck_assert_int_eq(kv_loop_wait(loop, 1), 0);
    kv_loop_run(loop);
}
END_TEST

START_TEST(a_loop_has_the_backend_that_was_asked_for)
{
    ck_assert_str_eq(kv_loop_name(loop), backend == KV_LOOP_EPOLL ? "epoll" : "io_uring");
}
END_TEST

/* --- saying that all was read --- */

static void read_all(struct kv_io *io, uint32_t events)
{
    char bytes[64];
    handler(io, events);
    if (events & KV_IO_READ && read(io->fd, bytes, sizeof(bytes)) < (ssize_t)sizeof(bytes))
        io->drained = 1;
}

START_TEST(what_comes_after_all_was_read_is_reported)
{
    a.io.fn = read_all;
    want(&a, KV_IO_READ);
    for (int i = 0; i < 5; i++) {
        ck_assert_int_eq((int)write(b.io.fd, "xy", 2), 2);
        ck_assert_int_eq(run_round(), 1);
        ck_assert_int_eq(run_round(), 0);
    }
}
END_TEST

/* It comes together with the last bytes, and is nothing that a short read would show. */
START_TEST(the_end_behind_the_last_bytes_is_reported)
{
    a.io.fn = read_all;
    want(&a, KV_IO_READ);
    ck_assert_int_eq(run_round(), 0);
    ck_assert_int_eq((int)write(b.io.fd, "x", 1), 1);
    ck_assert_int_eq(shutdown(b.io.fd, SHUT_WR), 0);
    ck_assert_int_eq(run_round(), 1);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(run_round(), 1);
        ck_assert_uint_eq(a.events, KV_IO_READ);
    }
}
END_TEST

/* A handler that takes its interest back for a while: what it left unread is reported afterwards.
 */
START_TEST(interest_that_returns_finds_what_was_left)
{
    want(&a, KV_IO_READ | KV_IO_HANGUP);
    ck_assert_int_eq((int)write(b.io.fd, "x", 1), 1);
    ck_assert_int_eq(run_round(), 1);
    want(&a, KV_IO_HANGUP);
    want(&a, KV_IO_READ | KV_IO_HANGUP);
    ck_assert_int_eq(run_round(), 1);
    want(&a, KV_IO_HANGUP);
    ck_assert_int_eq(run_round(), 0);
    want(&a, KV_IO_READ | KV_IO_HANGUP);
    ck_assert_int_eq(run_round(), 1);
}
END_TEST

START_TEST(a_round_that_was_not_run_is_fetched_again)
{
    want(&a, KV_IO_READ);
    ck_assert_int_eq((int)write(b.io.fd, "x", 1), 1);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(kv_loop_wait(loop, 0), 1);
    ck_assert_int_eq(run_round(), 1);
}
END_TEST

/* --- letting go --- */

/* At once: without waiting. A reset: it had not read all. */
static bool peer_is_gone(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT);
    return n == 0 || (n < 0 && errno == ECONNRESET);
}

START_TEST(closing_what_was_forgotten_ends_the_connection)
{
    want(&a, KV_IO_READ);
    run_round();
    kv_loop_forget(loop, &a.io);
    close(a.io.fd);
    run_round();
    ck_assert(peer_is_gone(b.io.fd));
    a.io.fd = dup(b.io.fd);
}
END_TEST

START_TEST(closing_after_the_loop_has_gone_ends_the_connection)
{
    want(&a, KV_IO_READ);
    run_round();
    kv_loop_destroy(loop);
    close(a.io.fd);
    ck_assert(peer_is_gone(b.io.fd));
    loop = kv_loop_create(backend);
    a.io.fd = dup(b.io.fd);
    a.io.interest = 0;
}
END_TEST

/* The number of a closed descriptor belongs to somebody else at once. */
START_TEST(a_descriptor_number_may_be_used_again)
{
    for (int i = 0; i < 20; i++) {
        int fds[2];
        pair(fds);
        struct end first = {.io = {.fd = fds[0], .fn = handler}};
        struct end second = {.io = {.fn = handler}};
        want(&first, KV_IO_READ);
        ck_assert_int_eq((int)write(fds[1], "x", 1), 1);
        if (i % 2 == 0)
            kv_loop_wait(loop, 0);
        kv_loop_forget(loop, &first.io);
        close(fds[0]);
        second.io.fd = fcntl(b.io.fd, F_DUPFD, fds[0]);
        ck_assert_int_eq(second.io.fd, fds[0]);
        want(&second, KV_IO_READ);
        if (i % 2 == 0)
            kv_loop_run(loop);
        else
            run_round();
        ck_assert_int_eq(first.calls + second.calls, 0);
        ck_assert_int_eq((int)write(a.io.fd, "x", 1), 1);
        run_round();
        ck_assert_int_eq(first.calls, 0);
        ck_assert_int_eq(second.calls, 1);
        ck_assert_int_eq((int)read(b.io.fd, (char[1]){0}, 1), 1);
        kv_loop_forget(loop, &second.io);
        close(second.io.fd);
        close(fds[1]);
    }
}
END_TEST

static void *wait_twice(void *calls)
{
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(run_round(), *(int *)calls);
    kv_loop_detach(loop);
    return NULL;
}

static void run_thread(int calls)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, wait_twice, &calls), 0);
    pthread_join(thread, NULL);
}

/* Made here, run there and there, taken apart here. */
START_TEST(a_loop_outlives_its_thread)
{
    int fds[2];
    pair(fds);
    struct end c = {.io = {.fd = fds[0], .fn = handler}};
    want(&c, KV_IO_READ);
    want(&a, KV_IO_READ);
    run_thread(0);
    ck_assert_int_eq((int)write(b.io.fd, "x", 1), 1);
    run_thread(1);
    run_thread(1);
    kv_loop_forget(loop, &c.io);
    close(fds[0]);
    ck_assert(peer_is_gone(fds[1]));
    close(fds[1]);
    run_thread(1);
}
END_TEST

/* --- many --- */

#define MANY 10000

static void count(struct kv_io *io, uint32_t events)
{
    struct end *e = KV_CONTAINER_OF(io, struct end, io);
    (void)events;
    e->calls++;
}

/* More than any queue between us and the kernel holds; all are ready at once. */
START_TEST(many_descriptors_are_all_reported)
{
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    int n = (int)KV_MIN(limit.rlim_cur - 64, (rlim_t)UNIT_ROUNDS(MANY));
    struct end *ends = kv_mem_zalloc((size_t)n * sizeof(*ends), KV_MEM_OTHER);
    for (int i = 0; i < n; i++) {
        ends[i].io = (struct kv_io){.fd = dup(a.io.fd), .fn = count};
        ck_assert_int_ge(ends[i].io.fd, 0);
        want(&ends[i], KV_IO_READ);
    }
    ck_assert_int_eq(run_round(), 0);
    for (int times = 1; times <= 2; times++) {
        ck_assert_int_eq((int)write(b.io.fd, "x", 1), 1);
        int quiet = n;
        for (int rounds = 0; quiet > 0 && rounds < 4 * n; rounds++) {
            ck_assert_int_gt(kv_loop_wait(loop, 2000), 0);
            kv_loop_run(loop);
            quiet = 0;
            for (int i = 0; i < n; i++)
                quiet += ends[i].calls == 0;
        }
        ck_assert_int_eq(quiet, 0);
        ck_assert_int_eq((int)read(a.io.fd, (char[8]){0}, 8), 1);
        for (int i = 0; i < n && times == 1; i++)
            kv_loop_wait(loop, 0), kv_loop_run(loop);
        for (int i = 0; i < n; i++)
            ends[i].calls = 0;
    }
    for (int i = 0; i < n; i++) {
        kv_loop_forget(loop, &ends[i].io);
        close(ends[i].io.fd);
    }
    ck_assert_int_eq(run_round(), 0);
    kv_mem_free(ends, (size_t)n * sizeof(*ends), KV_MEM_OTHER);
}
END_TEST

/* More than the kernel ends in one go. */
START_TEST(all_are_let_go_with_the_loop)
{
    enum { COUNT = 200 };
    struct end ends[COUNT];
    int far[COUNT];
    for (int i = 0; i < COUNT; i++) {
        int fds[2];
        pair(fds);
        ends[i] = (struct end){.io = {.fd = fds[0], .fn = count}};
        far[i] = fds[1];
        want(&ends[i], KV_IO_READ);
    }
    run_round();
    kv_loop_destroy(loop);
    for (int i = 0; i < COUNT; i++) {
        close(ends[i].io.fd);
        ck_assert(peer_is_gone(far[i]));
        close(far[i]);
    }
    loop = kv_loop_create(backend);
}
END_TEST

/* epoll drops such a descriptor without a word; here it is a fault of the owner that shows. */
START_TEST(closing_before_it_was_handed_over_is_a_hang_up)
{
    int fd = a.io.fd;
    want(&a, KV_IO_READ);
    close(fd);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(run_round(), 1);
        ck_assert_uint_eq(a.events, KV_IO_HANGUP);
    }
    kv_loop_forget(loop, &a.io);
    a.io.fd = dup(b.io.fd);
}
END_TEST

/* --- random sequences, compared with poll(2) --- */

#define PAIRS 8

struct half {
    struct kv_io io;
    uint32_t events; /* reported in this round */
    bool reads;      /* the handler takes all there is */
};

struct model {
    struct kv_random random;
    struct half *near[PAIRS]; /* in blocks of their own: a late event finds freed memory */
    int far[PAIRS];           /* other ends, -1: closed */
};

static void record(struct kv_io *io, uint32_t events)
{
    static char bytes[4096];
    struct half *h = KV_CONTAINER_OF(io, struct half, io);
    h->events |= events;
    if (!h->reads || !(events & KV_IO_READ))
        return;
    if (read(io->fd, bytes, sizeof(bytes)) < (ssize_t)sizeof(bytes))
        io->drained = 1;
}

static void open_pair(struct model *m, int i)
{
    int fds[2];
    pair(fds);
    m->near[i] = kv_mem_zalloc(sizeof(struct half), KV_MEM_OTHER);
    m->near[i]->io = (struct kv_io){.fd = fds[0], .fn = record};
    m->far[i] = fds[1];
}

static void close_pair(struct model *m, int i)
{
    kv_loop_forget(loop, &m->near[i]->io);
    close(m->near[i]->io.fd);
    if (m->far[i] >= 0)
        close(m->far[i]);
    kv_mem_free(m->near[i], sizeof(struct half), KV_MEM_OTHER);
}

static uint32_t expected(const struct half *h)
{
    struct pollfd p = {.fd = h->io.fd};
    uint32_t interest = h->io.interest;
    if (interest == 0)
        return 0;
    p.events =
        (short)((interest & KV_IO_READ ? POLLIN : 0) | (interest & KV_IO_WRITE ? POLLOUT : 0));
    poll(&p, 1, 0);
    return (p.revents & POLLIN ? KV_IO_READ : 0u) | (p.revents & POLLOUT ? KV_IO_WRITE : 0u) |
           (p.revents & (POLLHUP | POLLERR) ? KV_IO_HANGUP : 0u);
}

/* One round. Handlers that read may come too often, never too rarely; the others exactly. */
static void compare_round(struct model *m, bool reads)
{
    uint32_t wanted[PAIRS];
    for (int i = 0; i < PAIRS; i++) {
        m->near[i]->events = 0;
        m->near[i]->reads = reads;
        wanted[i] = expected(m->near[i]);
    }
    kv_loop_wait(loop, 0);
    kv_loop_run(loop);
    for (int i = 0; i < PAIRS; i++) {
        if (reads)
            ck_assert_uint_eq(m->near[i]->events & wanted[i], wanted[i]);
        else
            ck_assert_uint_eq(m->near[i]->events, wanted[i]);
    }
}

static void random_step(struct model *m)
{
    static char bytes[1 << 16];
    int i = (int)kv_random_below(&m->random, PAIRS);
    struct half *h = m->near[i];
    switch (kv_random_below(&m->random, 10)) {
    case 0:
    case 1:
        if (m->far[i] >= 0)
            (void)!write(m->far[i], bytes, 1 + kv_random_below(&m->random, 8000));
        break;
    case 2:
        (void)!read(h->io.fd, bytes, 1 + kv_random_below(&m->random, 8000));
        break;
    case 3:
        while (write(h->io.fd, bytes, sizeof(bytes)) > 0)
            continue;
        break;
    case 4:
        if (m->far[i] >= 0)
            while (read(m->far[i], bytes, sizeof(bytes)) > 0)
                continue;
        break;
    case 5:
    case 6:
    case 7:
        ck_assert_int_eq(kv_loop_set(loop, &h->io, (uint32_t)kv_random_below(&m->random, 8)),
                         KV_OK);
        break;
    case 8:
        if (m->far[i] < 0)
            break;
        if (kv_random_below(&m->random, 2) == 0) {
            shutdown(m->far[i], SHUT_WR);
        } else {
            close(m->far[i]);
            m->far[i] = -1;
        }
        break;
    case 9:
        close_pair(m, i);
        open_pair(m, i);
        break;
    }
}

START_TEST(random_sequences_agree_with_poll)
{
    struct model m;
    signal(SIGPIPE, SIG_IGN);
    kv_random_init(&m.random, unit_seed("loop"));
    for (int i = 0; i < PAIRS; i++)
        open_pair(&m, i);
    for (int round = 0; round < UNIT_ROUNDS(20000); round++) {
        for (uint64_t n = kv_random_below(&m.random, 6); n > 0; n--)
            random_step(&m);
        compare_round(&m, true);
        if (kv_random_below(&m.random, 2) == 0)
            compare_round(&m, false);
    }
    for (int i = 0; i < PAIRS; i++)
        close_pair(&m, i);
}
END_TEST

/* --- where io_uring is refused --- */

static void refuse_io_uring(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = KV_ARRAY_LEN(filter), .filter = filter};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(a_refusal_is_told_with_its_reason)
{
    static const int errors[] = {ENOSYS, EPERM, EINVAL, ENOMEM, EMFILE};
    const char *why;
    refuse_io_uring(errors[_i]);
    ck_assert(!kv_loop_offered(KV_LOOP_IO_URING, &why));
    ck_assert_uint_gt(strlen(why), 0);
    ck_assert(kv_loop_offered(KV_LOOP_EPOLL, &why));
    ck_assert(kv_loop_offered(KV_LOOP_AUTO, &why));
}
END_TEST

START_TEST(auto_falls_back_to_epoll)
{
    refuse_io_uring(EPERM);
    struct kv_loop *l = kv_loop_create(KV_LOOP_AUTO);
    ck_assert_str_eq(kv_loop_name(l), "epoll");
    kv_loop_wake(l);
    ck_assert_int_eq(kv_loop_wait(l, -1), 1);
    kv_loop_destroy(l);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(who_insists_on_io_uring_ends_when_it_is_refused)
{
    refuse_io_uring(EPERM);
    (void)kv_loop_create(KV_LOOP_IO_URING);
}
END_TEST

static void begin_case(struct unit *u, const char *name, void (*before)(void))
{
    u->tcase = tcase_create(name);
    tcase_set_timeout(u->tcase, UNIT_TIMEOUT_SECONDS);
    suite_add_tcase(u->suite, u->tcase);
    if (before != NULL)
        unit_fixture(u, before, teardown);
}

static void add_tests(struct unit *u)
{
    unit_add(u, what_is_readable_is_reported_until_it_is_read);
    unit_add(u, interest_decides_what_is_reported);
    unit_add(u, a_full_socket_is_not_writable);
    unit_add(u, a_hang_up_is_always_reported);
    unit_add(u, the_forgotten_are_not_called_in_the_same_round);
    unit_add(u, a_handler_may_forget_itself);
    unit_add(u, a_bad_descriptor_changes_nothing);
    unit_add(u, a_wake_up_before_waiting_is_kept);
    unit_add(u, wake_ups_from_other_threads_are_not_lost);
    unit_add(u, waiting_ends_after_its_time);
    unit_add(u, a_loop_has_the_backend_that_was_asked_for);
    unit_add(u, what_comes_after_all_was_read_is_reported);
    unit_add(u, the_end_behind_the_last_bytes_is_reported);
    unit_add(u, interest_that_returns_finds_what_was_left);
    unit_add(u, a_round_that_was_not_run_is_fetched_again);
    unit_add(u, closing_what_was_forgotten_ends_the_connection);
    unit_add(u, closing_after_the_loop_has_gone_ends_the_connection);
    unit_add(u, a_descriptor_number_may_be_used_again);
    unit_add(u, a_loop_outlives_its_thread);
    unit_add(u, many_descriptors_are_all_reported);
    unit_add(u, all_are_let_go_with_the_loop);
    unit_add(u, random_sequences_agree_with_poll);
}

int main(void)
{
    struct unit u;
    const char *why;
    kv_mem_init();
    unit_begin(&u, "loop");
    tcase_add_loop_test(u.tcase, a_refusal_is_told_with_its_reason, 0, 5);
    unit_add(&u, auto_falls_back_to_epoll);
    unit_add_abort(&u, who_insists_on_io_uring_ends_when_it_is_refused);
    begin_case(&u, "epoll", setup_epoll);
    add_tests(&u);
    if (kv_loop_offered(KV_LOOP_IO_URING, &why)) {
        begin_case(&u, "io_uring", setup_uring);
        add_tests(&u);
        unit_add(&u, closing_before_it_was_handed_over_is_a_hang_up);
    } else {
        printf("*** NOT TESTED: the io_uring backend; %s ***\n", why);
    }
    return unit_run(&u);
}
