/* Event loop on epoll, level-triggered.
 *
 * Level-triggered readiness needs no bookkeeping of what was left unread, which matters because a
 * worker reads at most one buffer per connection and round so that one flood does not starve
 * others. The price is an epoll_ctl when a connection is suspended; that happens only under
 * contention.
 *
 * The round's events are kept in the loop; forgetting clears those of an io that goes away while
 * the round is being handled.
 */
#include "base/assert.h"
#include "mem/mem.h"
#include "net/loop_priv.h"
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#define EVENTS_MAX 256

struct epoll_loop {
    struct kv_loop base;
    int epoll_fd;
    int event_count; /* of the round in events */
    struct epoll_event events[EVENTS_MAX];
};

static void epoll_destroy(struct kv_loop *base)
{
    struct epoll_loop *l = KV_CONTAINER_OF(base, struct epoll_loop, base);
    close(l->epoll_fd);
    kv_mem_free(l, sizeof(*l), KV_MEM_OTHER);
}

static enum kv_err epoll_set(struct kv_loop *base, struct kv_io *io, uint32_t interest)
{
    struct epoll_loop *l = KV_CONTAINER_OF(base, struct epoll_loop, base);
    struct epoll_event ev = {.data.ptr = io};
    if (interest & KV_IO_READ)
        ev.events |= EPOLLIN;
    if (interest & KV_IO_WRITE)
        ev.events |= EPOLLOUT;
    if (interest & KV_IO_END)
        ev.events |= EPOLLRDHUP;
    int op = io->interest == 0 ? EPOLL_CTL_ADD : interest == 0 ? EPOLL_CTL_DEL : EPOLL_CTL_MOD;
    if (epoll_ctl(l->epoll_fd, op, io->fd, &ev) < 0)
        return KV_ERR_IO;
    io->interest = (uint16_t)interest;
    return KV_OK;
}

static void epoll_forget(struct kv_loop *base, struct kv_io *io)
{
    struct epoll_loop *l = KV_CONTAINER_OF(base, struct epoll_loop, base);
    if (io->interest != 0)
        (void)!epoll_set(base, io, 0);
    for (int i = 0; i < l->event_count; i++)
        if (l->events[i].data.ptr == io)
            l->events[i].data.ptr = NULL;
}

static int epoll_fetch(struct kv_loop *base, int timeout_ms)
{
    struct epoll_loop *l = KV_CONTAINER_OF(base, struct epoll_loop, base);
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
        (void)!read(base->wake_fd, &ignored, sizeof(ignored));
        (void)atomic_exchange(&base->wake_pending, false);
    }
    return n;
}

static void epoll_run(struct kv_loop *base)
{
    struct epoll_loop *l = KV_CONTAINER_OF(base, struct epoll_loop, base);
    for (int i = 0; i < l->event_count; i++) {
        struct kv_io *io = l->events[i].data.ptr;
        if (io == NULL)
            continue;
        /* The next one is likely to have left the cache since its last event. */
        if (i + 1 < l->event_count && l->events[i + 1].data.ptr != NULL)
            kv_loop_prefetch(l->events[i + 1].data.ptr);
        uint32_t e = l->events[i].events;
        uint32_t ready = 0;
        if (e & EPOLLIN)
            ready |= KV_IO_READ;
        if (e & EPOLLOUT)
            ready |= KV_IO_WRITE;
        if (e & EPOLLRDHUP)
            ready |= KV_IO_END;
        if (e & (EPOLLHUP | EPOLLERR))
            ready |= KV_IO_HANGUP;
        io->fn(io, ready);
    }
    l->event_count = 0;
}

static const struct kv_loop_ops ops = {
    .name = "epoll",
    .destroy = epoll_destroy,
    .set = epoll_set,
    .forget = epoll_forget,
    .wait = epoll_fetch,
    .run = epoll_run,
};

struct kv_loop *kv_epoll_create(int wake_fd)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        return NULL;
    struct epoll_event ev = {.events = EPOLLIN, .data.ptr = NULL};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, wake_fd, &ev) < 0) {
        close(epoll_fd);
        return NULL;
    }
    struct epoll_loop *l = kv_mem_zalloc(sizeof(*l), KV_MEM_OTHER);
    l->base.ops = &ops;
    l->base.wake_fd = wake_fd;
    l->epoll_fd = epoll_fd;
    return &l->base;
}
