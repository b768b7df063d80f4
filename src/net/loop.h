/* Event loop: readiness of file descriptors, level-triggered, one per worker. One interface, two
 * backends: epoll and io_uring. Everything but kv_loop_wake belongs to the loop's thread: the one
 * that waits first, until it calls kv_loop_detach. Before and after, any one thread may change,
 * destroy or adopt (by waiting) the loop. */
#ifndef KV_NET_LOOP_H
#define KV_NET_LOOP_H

#include "base/compiler.h"
#include "base/err.h"

struct kv_loop;
struct kv_io;

enum kv_loop_backend {
    KV_LOOP_AUTO, /* the one that measured faster, or the other when the system refuses that one */
    KV_LOOP_EPOLL,
    KV_LOOP_IO_URING, /* Linux 6.1 and later, where it is permitted */
};

enum kv_io_events {
    KV_IO_READ = 1,
    KV_IO_WRITE = 2,
    KV_IO_HANGUP = 4, /* both directions are closed or in error: reported with any interest, and
                       * alone to who asks for nothing else */
    KV_IO_END = 8,    /* the peer sends no more, and what it has sent is still to be read; for who
                       * does not read now. Again and again while it is asked for. */
};

typedef void (*kv_io_fn)(struct kv_io *io, uint32_t events);

/* Embedded in whoever owns the descriptor (KV_CONTAINER_OF). Descriptors are non-blocking: now and
 * then a handler is called for bytes that an earlier call has already taken. */
struct kv_io {
    int fd;            /* -1 when unused */
    uint16_t interest; /* enum kv_io_events last asked for; 0 = not in the loop */
    uint16_t drained;  /* set to 1 by a handler that has read until less came than it had room for:
                        * the loop need not look at the descriptor again before more comes. Never
                        * necessary. The loop clears it before it calls the handler. */
    kv_io_fn fn;       /* called with what is ready */
};

/* Whether the system lets us use a backend. If not, *why is a reason in English. Any thread. */
bool kv_loop_offered(enum kv_loop_backend backend, const char **why) KV_MUST_CHECK;

/* Ends the process when the system refuses. */
struct kv_loop *kv_loop_create(enum kv_loop_backend backend);
/* Descriptors that are still in the loop are let go at once, so that closing them has its effect.
 */
void kv_loop_destroy(struct kv_loop *l);

/* The backend in use, as users write it: "epoll" or "io_uring". Any thread. */
const char *kv_loop_name(const struct kv_loop *l);

/* Adds, changes (interest > 0) or removes (0) a descriptor. KV_ERR_IO: errno; nothing changed. */
enum kv_err kv_loop_set(struct kv_loop *l, struct kv_io *io, uint32_t interest) KV_MUST_CHECK;

/* Forgets an io that is about to be destroyed, events of the running round included. Its descriptor
 * may be closed at once. With io_uring the file behind it is let go by the next wait only. */
void kv_loop_forget(struct kv_loop *l, struct kv_io *io);

/* Waits up to timeout_ms (-1: for ever, 0: not at all) and fetches what is ready, or a part of it,
 * if that is much; then kv_loop_run calls the handlers. Two steps, so that a worker can stop
 * between them. Returns 0 when nothing was ready, also early (a signal came). */
int kv_loop_wait(struct kv_loop *l, int timeout_ms);
void kv_loop_run(struct kv_loop *l);

/* The loop's thread ends or gives the loop away. Until the next kv_loop_wait, of whichever thread,
 * the system holds none of the descriptors. */
void kv_loop_detach(struct kv_loop *l);

/* Makes the current or next kv_loop_wait return at once. Any thread, async-signal-safe. */
void kv_loop_wake(struct kv_loop *l);

#endif
