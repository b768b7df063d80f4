/* What the backends of the event loop share. For net/loop*.c only. */
#ifndef KV_NET_LOOP_PRIV_H
#define KV_NET_LOOP_PRIV_H

#include "net/loop.h"
#include <stdatomic.h>

struct kv_loop_ops {
    const char *name;
    void (*destroy)(struct kv_loop *l);
    enum kv_err (*set)(struct kv_loop *l, struct kv_io *io, uint32_t interest);
    void (*forget)(struct kv_loop *l, struct kv_io *io);
    void (*detach)(struct kv_loop *l); /* NULL: nothing to do */
    int (*wait)(struct kv_loop *l, int timeout_ms);
    void (*run)(struct kv_loop *l);
};

/* First member of each backend's loop. */
struct kv_loop {
    const struct kv_loop_ops *ops;
    int wake_fd;              /* eventfd */
    atomic_bool wake_pending; /* set by whoever writes the eventfd, cleared by the loop */
};

/* NULL: the system refuses, errno says why. wake_fd is made by the caller. */
struct kv_loop *kv_epoll_create(int wake_fd);
struct kv_loop *kv_uring_create(int wake_fd);

/* An io_uring can be made here; if not, errno says why. */
bool kv_uring_offered(void);

/* Requests the lines that a handler touches first from memory. */
KV_INLINE void kv_loop_prefetch(const struct kv_io *io)
{
    const char *next = (const char *)io;
    KV_PREFETCH(next);
    KV_PREFETCH(next + KV_CACHE_LINE);
    KV_PREFETCH(next + 2 * KV_CACHE_LINE);
    KV_PREFETCH(next + 3 * KV_CACHE_LINE);
}

#endif
