/* Event loop: readiness of file descriptors, level-triggered, one per worker. One interface; epoll
 * is the first implementation. Everything but kv_loop_wake belongs to the loop's thread. */
#ifndef KV_NET_LOOP_H
#define KV_NET_LOOP_H

#include "base/compiler.h"
#include "base/err.h"

struct kv_loop;
struct kv_io;

enum kv_io_events {
    KV_IO_READ = 1,
    KV_IO_WRITE = 2,
    KV_IO_HANGUP = 4, /* both directions are closed or in error: reported with any interest, and
                       * alone to who asks for nothing else */
};

typedef void (*kv_io_fn)(struct kv_io *io, uint32_t events);

/* Embedded in whoever owns the descriptor (KV_CONTAINER_OF). */
struct kv_io {
    int fd;            /* -1 when unused */
    uint32_t interest; /* enum kv_io_events last asked for; 0 = not in the loop */
    kv_io_fn fn;       /* called with what is ready */
};

struct kv_loop *kv_loop_create(void); /* ends the process when the system refuses */
void kv_loop_destroy(struct kv_loop *l);

/* Adds, changes (interest > 0) or removes (0) a descriptor. KV_ERR_IO: errno; nothing changed. */
enum kv_err kv_loop_set(struct kv_loop *l, struct kv_io *io, uint32_t interest) KV_MUST_CHECK;

/* Forgets an io that is about to be destroyed, events of the running round included. */
void kv_loop_forget(struct kv_loop *l, struct kv_io *io);

/* Waits up to timeout_ms (-1: for ever, 0: not at all) and fetches what is ready; then kv_loop_run
 * calls the handlers. Two steps, so that a worker can stop between them. */
int kv_loop_wait(struct kv_loop *l, int timeout_ms);
void kv_loop_run(struct kv_loop *l);

/* Makes the current or next kv_loop_wait return at once. Any thread, async-signal-safe. */
void kv_loop_wake(struct kv_loop *l);

#endif
