/* net/loop.h: readiness is reported to who asked, while it lasts; forgetting and waking. */
#include "mem/mem.h"
#include "net/loop.h"
#include "unit.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

struct end {
    struct kv_io io;
    int calls;
    uint32_t events;         /* of the last call */
    struct kv_io *to_forget; /* by the handler, or NULL */
};

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

static void setup(void)
{
    int fds[2];
    loop = kv_loop_create();
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    a = (struct end){.io = {.fd = fds[0], .fn = handler}};
    b = (struct end){.io = {.fd = fds[1], .fn = handler}};
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

int main(void)
{
    struct unit u;
    kv_mem_init();
    unit_begin(&u, "loop");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, what_is_readable_is_reported_until_it_is_read);
    unit_add(&u, interest_decides_what_is_reported);
    unit_add(&u, a_full_socket_is_not_writable);
    unit_add(&u, a_hang_up_is_always_reported);
    unit_add(&u, the_forgotten_are_not_called_in_the_same_round);
    unit_add(&u, a_handler_may_forget_itself);
    unit_add(&u, a_bad_descriptor_changes_nothing);
    unit_add(&u, a_wake_up_before_waiting_is_kept);
    unit_add(&u, wake_ups_from_other_threads_are_not_lost);
    unit_add(&u, waiting_ends_after_its_time);
    return unit_run(&u);
}
