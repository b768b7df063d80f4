/* Event loop on epoll, level-triggered.
 *
 * Level-triggered readiness needs no bookkeeping of what was left unread, which matters because a
 * worker reads at most one buffer per connection and round so that one flood does not starve
 * others. The price is an epoll_ctl when a connection is suspended; that happens only under
 * contention.
 *
 * Waking uses an eventfd behind an atomic flag, so that a burst of messages costs one system call.
 * The round's events are kept in the loop; kv_loop_forget clears those of an io that goes away
 * while the round is being handled.
 */
#include "net/loop.h"
#include "base/assert.h"
#include "mem/mem.h"
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define EVENTS_MAX 256

struct kv_loop {
    int epoll_fd;
    int wake_fd;              /* eventfd */
    atomic_bool wake_pending; /* set by whoever writes the eventfd, cleared by the loop */
    int event_count;          /* of the round in events */
    struct epoll_event events[EVENTS_MAX];
};

struct kv_loop *kv_loop_create(void)
{
    struct kv_loop *l = kv_mem_zalloc(sizeof(*l), KV_MEM_OTHER);
    l->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    l->wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (l->epoll_fd < 0 || l->wake_fd < 0)
        kv_panic("cannot create an event loop: %s", strerror(errno));
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(l->epoll_fd, EPOLL_CTL_ADD, l->wake_fd, &ev) < 0)
        kv_panic("cannot watch the wake-up descriptor: %s", strerror(errno));
    return l;
}

void kv_loop_destroy(struct kv_loop *l)
{
    close(l->epoll_fd);
    close(l->wake_fd);
    kv_mem_free(l, sizeof(*l), KV_MEM_OTHER);
}

enum kv_err kv_loop_set(struct kv_loop *l, struct kv_io *io, uint32_t interest)
{
    KV_ASSERT(io->fd >= 0);
    if (interest == io->interest)
        return KV_OK;
    struct epoll_event ev = {.data.ptr = io};
    if (interest & KV_IO_READ)
        ev.events |= EPOLLIN;
    if (interest & KV_IO_WRITE)
        ev.events |= EPOLLOUT;
    int op = io->interest == 0 ? EPOLL_CTL_ADD : interest == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    if (epoll_ctl(l->epoll_fd, op, io->fd, &ev) < 0)
        return KV_ERR_IO;
    io->interest = interest;
    return KV_OK;
}

void kv_loop_forget(struct kv_loop *l, struct kv_io *io)
{
    if (io->interest != 0)
        (void)!kv_loop_set(l, io, 0);
    for (int i = 0; i < l->event_count; i++)
        if (l->events[i].data.ptr == io)
            l->events[i].data.ptr = NULL;
}

int kv_loop_wait(struct kv_loop *l, int timeout_ms)
{
    int n = epoll_wait(l->epoll_fd, l->events, EVENTS_MAX, timeout_ms);
    if (n < 0) {
        KV_ASSERT(errno == EINTR);
        n = 0;
    }
    l->event_count = n;
    for (int i = 0; i < n; i++) {
        if (l->events[i].data.ptr != NULL)
            continue;
        uint64_t ignored;
        /* The flag falls after the descriptor is read. In the other order the read could swallow
         * the write of a wake-up in between, whose flag would then stand for ever and keep all
         * later ones from writing. What a wake-up that found the flag up has left for us was left
         * before it looked; the exchange makes it visible to this round. */
        (void)!read(l->wake_fd, &ignored, sizeof(ignored));
        (void)atomic_exchange(&l->wake_pending, false);
    }
    return n;
}

void kv_loop_run(struct kv_loop *l)
{
    for (int i = 0; i < l->event_count; i++) {
        struct kv_io *io = l->events[i].data.ptr;
        if (io == NULL)
            continue;
        /* The next one is likely to have left the cache since its last event. */
        if (i + 1 < l->event_count && l->events[i + 1].data.ptr != NULL) {
            const char *next = l->events[i + 1].data.ptr;
            KV_PREFETCH(next);
            KV_PREFETCH(next + KV_CACHE_LINE);
            KV_PREFETCH(next + 2 * KV_CACHE_LINE);
            KV_PREFETCH(next + 3 * KV_CACHE_LINE);
        }
        uint32_t e = l->events[i].events;
        uint32_t ready = 0;
        if (e & EPOLLIN)
            ready |= KV_IO_READ;
        if (e & EPOLLOUT)
            ready |= KV_IO_WRITE;
        if (e & (EPOLLHUP | EPOLLERR))
            ready |= KV_IO_HANGUP;
        io->fn(io, ready);
    }
    l->event_count = 0;
}

void kv_loop_wake(struct kv_loop *l)
{
    if (atomic_exchange(&l->wake_pending, true))
        return;
    uint64_t one = 1;
    (void)!write(l->wake_fd, &one, sizeof(one));
}
