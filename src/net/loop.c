/* Event loop: what both backends share, and which of them is used.
 *
 * A backend is a table of functions (loop_priv.h) with a loop structure of its own that begins
 * with struct kv_loop. The two hot calls, wait and run, happen once a round and not once an event,
 * so calling through the table costs nothing that could be measured; within a backend everything is
 * direct.
 *
 * Waking is the same for both: an eventfd behind an atomic flag, so that a burst of messages costs
 * one system call. io_uring's own messages between rings were rejected: they need a ring on the
 * sender's side, and a signal handler must be able to wake too.
 */
#include "base/assert.h"
#include "base/log.h"
#include "net/loop_priv.h"
#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Which backend `auto` tries first: io_uring when it is faster by more than 3 % in the mean, which
 * it was not; docs/measurements.md has the figures. */
#define AUTO_IS_IO_URING 0

static const char *reason(int error)
{
    switch (error) {
    case ENOSYS:
        return "the kernel has no io_uring";
    case EPERM:
    case EACCES:
        return "io_uring is not permitted (kernel.io_uring_disabled, or the rules of a container)";
    case EINVAL:
        return "the kernel's io_uring is older than that of Linux 6.1";
    case ENOMEM:
        return "there is no memory for io_uring (a limit of locked memory, or of a control group)";
    default:
        return strerror(error);
    }
}

bool kv_loop_offered(enum kv_loop_backend backend, const char **why)
{
    *why = "";
    if (backend != KV_LOOP_IO_URING || kv_uring_offered())
        return true;
    *why = reason(errno);
    return false;
}

static struct kv_loop *create_auto(int wake_fd)
{
    if (AUTO_IS_IO_URING) {
        struct kv_loop *l = kv_uring_create(wake_fd);
        if (l != NULL)
            return l;
        kv_log(KV_LOG_VERBOSE, "Using epoll instead of io_uring: %s", reason(errno));
    }
    return kv_epoll_create(wake_fd);
}

struct kv_loop *kv_loop_create(enum kv_loop_backend backend)
{
    int wake_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
    if (wake_fd < 0)
        kv_panic("cannot create an event loop: %s", strerror(errno));
    struct kv_loop *l = backend == KV_LOOP_AUTO       ? create_auto(wake_fd)
                        : backend == KV_LOOP_IO_URING ? kv_uring_create(wake_fd)
                                                      : kv_epoll_create(wake_fd);
    if (l == NULL)
        kv_panic("cannot create an event loop: %s",
                 backend == KV_LOOP_IO_URING ? reason(errno) : strerror(errno));
    KV_ASSERT(l->wake_fd == wake_fd);
    return l;
}

void kv_loop_destroy(struct kv_loop *l)
{
    int wake_fd = l->wake_fd;
    l->ops->destroy(l);
    close(wake_fd);
}

const char *kv_loop_name(const struct kv_loop *l)
{
    return l->ops->name;
}

enum kv_err kv_loop_set(struct kv_loop *l, struct kv_io *io, uint32_t interest)
{
    KV_ASSERT(io->fd >= 0);
    KV_ASSERT(interest <= (KV_IO_READ | KV_IO_WRITE | KV_IO_HANGUP | KV_IO_END));
    if (interest == io->interest)
        return KV_OK;
    return l->ops->set(l, io, interest);
}

void kv_loop_forget(struct kv_loop *l, struct kv_io *io)
{
    l->ops->forget(l, io);
}

int kv_loop_wait(struct kv_loop *l, int timeout_ms)
{
    return l->ops->wait(l, timeout_ms);
}

void kv_loop_run(struct kv_loop *l)
{
    l->ops->run(l);
}

void kv_loop_detach(struct kv_loop *l)
{
    if (l->ops->detach != NULL)
        l->ops->detach(l);
}

void kv_loop_wake(struct kv_loop *l)
{
    if (atomic_exchange(&l->wake_pending, true))
        return;
    uint64_t one = 1;
    (void)!write(l->wake_fd, &one, sizeof(one));
}
