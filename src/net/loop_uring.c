/* Event loop on io_uring: readiness by poll requests that stay armed.
 *
 * Each descriptor in the loop has a slot, found by its number, and at most one poll request in the
 * kernel. A request is "multishot": it stays and completes again whenever the descriptor's state
 * changes, so a connection that sends, is answered and sends again costs no request per command.
 * What changes (interest, descriptors that come and go) is noted in the slot and handed over by the
 * next wait, in the one system call that also waits; setting and forgetting make none.
 *
 * Level-triggered: such a request reports changes, not states. After its handler ran, a descriptor
 * is therefore looked at again with the next wait (the kernel evaluates an updated request at
 * once), unless the handler said that it has read all there was. A hang-up or the end of the
 * stream that came with the bytes forbids the shortcut: it would announce itself only once.
 *
 * Completions in flight: each request carries the descriptor and a generation number that no other
 * request of this loop has. A completion counts only if its generation is the slot's, so those of
 * forgotten owners, of closed and re-used descriptors and of replaced requests fall through. Slots
 * refer to owners only until kv_loop_forget.
 *
 * Errors: a request that the kernel cannot arm is reported as a hang-up. When the completion queue
 * overflows the kernel keeps the rest and hands it over later (IORING_FEAT_NODROP); when it takes
 * no submissions they stay queued for the next wait, which then does not sleep.
 *
 * Threads: a ring is made disabled and belongs to the first thread that waits, for good, as
 * IORING_SETUP_SINGLE_ISSUER and IORING_SETUP_DEFER_TASKRUN demand; these two are what makes it
 * fast, and the reason for Linux 6.1. Detaching gives the ring up, and whoever waits next makes a
 * new one. A poll request keeps its file open whatever happens to the descriptor, listening sockets
 * for example, and the kernel takes a ring apart some time after it was closed. So all requests are
 * cancelled first, and that is waited for.
 *
 * Rejected: one-shot requests armed again after every event (a request per command, measured
 * slower than epoll); poll's own "remove" (it gives up when the request is just completing, where
 * a cancel marks it).
 */
#include "base/assert.h"
#include "mem/mem.h"
#include "net/loop_priv.h"
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <limits.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define SUBMISSIONS 256
#define COMPLETIONS 1024
#define SLOTS_MIN 64
#define SETUP_FLAGS                                                                                \
    (IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN | IORING_SETUP_R_DISABLED |           \
     IORING_SETUP_CQSIZE | IORING_SETUP_CLAMP)
#define FEATURES (IORING_FEAT_NODROP | IORING_FEAT_EXT_ARG | IORING_FEAT_CQE_SKIP)

/* user_data: generation << 32 | descriptor; generation 0 is never a descriptor's. */
#define DATA_WAKE UINT64_C(1)   /* the poll request of wake_fd */
#define DATA_IGNORE UINT64_C(2) /* a cancel or an update; only failures complete */
#define DATA_CANCEL_ALL UINT64_C(3)

struct slot {
    struct kv_io *io; /* NULL: not in the loop */
    uint32_t armed;   /* generation of the request in the kernel; 0: none */
    uint8_t interest; /* enum kv_io_events that it was armed for */
    uint8_t ready;    /* enum kv_io_events of the running round; 0: none */
    bool current;     /* the request was armed for io, not for a former owner of the descriptor */
    bool ending;      /* ready came with the end of the stream or an error */
    bool look;        /* the descriptor's state must be looked at again */
    bool changed;     /* in the list `changes` */
};

static_assert(sizeof(struct slot) <= 24, "one slot per possible connection");

struct uring_loop {
    struct kv_loop base;
    struct io_uring ring;
    bool made;           /* ring exists */
    pid_t owner;         /* thread that the ring belongs to; 0: nobody has waited */
    bool wake_armed;     /* wake_fd has a poll request */
    uint32_t generation; /* last one given out */
    struct slot *slots;  /* by descriptor */
    uint32_t slot_count;
    int *changes; /* descriptors whose slots are to be brought to the kernel, slot_count places */
    uint32_t change_count;
    uint32_t event_count;    /* of the round in events */
    int events[COMPLETIONS]; /* descriptors that are ready */
};

/* --- slots --- */

/* Both arrays have room for every descriptor of the table, so that noting a change never fails. */
static bool reserve_slot(struct uring_loop *l, int fd)
{
    uint32_t have = l->slot_count, want = have > 0 ? have : SLOTS_MIN;
    if ((uint32_t)fd < have)
        return true;
    while (want <= (uint32_t)fd)
        want *= 2;
    int *changes = kv_mem_try_alloc(want * sizeof(*changes), KV_MEM_OTHER);
    if (changes == NULL)
        return false;
    struct slot *slots =
        kv_mem_try_realloc(l->slots, have * sizeof(*slots), want * sizeof(*slots), KV_MEM_OTHER);
    if (slots == NULL) {
        kv_mem_free(changes, want * sizeof(*changes), KV_MEM_OTHER);
        return false;
    }
    memset(slots + have, 0, (want - have) * sizeof(*slots));
    if (l->change_count > 0)
        memcpy(changes, l->changes, l->change_count * sizeof(*changes));
    kv_mem_free(l->changes, have * sizeof(*changes), KV_MEM_OTHER);
    l->slots = slots;
    l->changes = changes;
    l->slot_count = want;
    return true;
}

static void note_change(struct uring_loop *l, struct slot *s)
{
    if (s->changed)
        return;
    KV_DASSERT(l->change_count < l->slot_count);
    s->changed = true;
    l->changes[l->change_count++] = (int)(s - l->slots);
}

static void look_again(struct uring_loop *l, struct slot *s)
{
    s->look = true;
    note_change(l, s);
}

static void leave(struct uring_loop *l, struct kv_io *io)
{
    struct slot *s = &l->slots[io->fd];
    KV_ASSERT((uint32_t)io->fd < l->slot_count && s->io == io);
    s->io = NULL;
    s->current = false;
    s->ready = 0;
    io->interest = 0;
    note_change(l, s);
}

static enum kv_err uring_set(struct kv_loop *base, struct kv_io *io, uint32_t interest)
{
    struct uring_loop *l = KV_CONTAINER_OF(base, struct uring_loop, base);
    if (interest == 0) {
        leave(l, io);
        return KV_OK;
    }
    if (io->interest == 0) {
        /* The kernel would tell only later that it does not know the descriptor. */
        if (fcntl(io->fd, F_GETFD) < 0)
            return KV_ERR_IO;
        if (!reserve_slot(l, io->fd)) {
            errno = ENOMEM;
            return KV_ERR_IO;
        }
        if (l->slots[io->fd].io != NULL) {
            errno = EEXIST;
            return KV_ERR_IO;
        }
    }
    struct slot *s = &l->slots[io->fd];
    s->io = io;
    io->interest = (uint16_t)interest;
    note_change(l, s);
    return KV_OK;
}

static void uring_forget(struct kv_loop *base, struct kv_io *io)
{
    if (io->interest != 0)
        leave(KV_CONTAINER_OF(base, struct uring_loop, base), io);
}

/* --- to the kernel --- */

/* Makes room for `count` requests. False: the kernel takes none at the moment. */
static bool room(struct uring_loop *l, unsigned count)
{
    if (KV_LIKELY(io_uring_sq_space_left(&l->ring) >= count))
        return true;
    (void)io_uring_submit(&l->ring);
    return io_uring_sq_space_left(&l->ring) >= count;
}

static struct io_uring_sqe *next_request(struct uring_loop *l)
{
    struct io_uring_sqe *e = io_uring_get_sqe(&l->ring);
    KV_ASSERT(e != NULL);
    return e;
}

static unsigned poll_mask(uint32_t interest)
{
    /* The end of the stream comes with POLLIN too; here it forbids the handler's shortcut. */
    return (interest & KV_IO_READ ? POLLIN | POLLRDHUP : 0u) |
           (interest & KV_IO_WRITE ? POLLOUT : 0u) | (interest & KV_IO_END ? POLLRDHUP : 0u);
}

static void arm(struct uring_loop *l, struct slot *s)
{
    struct io_uring_sqe *e = next_request(l);
    int fd = (int)(s - l->slots);
    if (++l->generation == 0)
        l->generation = 1;
    io_uring_prep_poll_multishot(e, fd, poll_mask(s->io->interest));
    io_uring_sqe_set_data64(e, (uint64_t)l->generation << 32 | (uint32_t)fd);
    s->armed = l->generation;
    s->interest = (uint8_t)s->io->interest;
    s->current = true;
}

static void disarm(struct uring_loop *l, struct slot *s)
{
    struct io_uring_sqe *e = next_request(l);
    uint32_t fd = (uint32_t)(s - l->slots);
    io_uring_prep_cancel64(e, (uint64_t)s->armed << 32 | fd, 0);
    io_uring_sqe_set_data64(e, DATA_IGNORE);
    e->flags |= IOSQE_CQE_SKIP_SUCCESS;
    s->armed = 0;
    s->current = false;
}

/* The kernel evaluates the state when a request is updated, with the same mask too. It refuses when
 * the request is completing at that moment or has ended, and a completion is on its way then. */
static void rearm(struct uring_loop *l, struct slot *s)
{
    struct io_uring_sqe *e = next_request(l);
    uint64_t data = (uint64_t)s->armed << 32 | (uint32_t)(s - l->slots);
    io_uring_prep_poll_update(e, data, 0, poll_mask(s->interest),
                              IORING_POLL_UPDATE_EVENTS | IORING_POLL_ADD_MULTI);
    io_uring_sqe_set_data64(e, DATA_IGNORE);
    e->flags |= IOSQE_CQE_SKIP_SUCCESS;
}

/* Turns what was noted into requests. False: not all, the rest stays noted. */
static bool hand_over(struct uring_loop *l)
{
    if (KV_UNLIKELY(!l->wake_armed)) {
        if (!room(l, 1))
            return false;
        struct io_uring_sqe *e = next_request(l);
        io_uring_prep_poll_multishot(e, l->base.wake_fd, POLLIN);
        io_uring_sqe_set_data64(e, DATA_WAKE);
        l->wake_armed = true;
    }
    for (uint32_t i = 0; i < l->change_count; i++) {
        struct slot *s = &l->slots[l->changes[i]];
        KV_DASSERT(s->changed);
        if (!room(l, 2)) {
            l->change_count -= i;
            memmove(l->changes, l->changes + i, l->change_count * sizeof(*l->changes));
            return false;
        }
        if (s->armed != 0 && (!s->current || s->interest != s->io->interest))
            disarm(l, s);
        if (s->io != NULL) {
            if (s->armed == 0)
                arm(l, s);
            else if (s->look)
                rearm(l, s);
        }
        s->look = s->changed = false;
    }
    l->change_count = 0;
    return true;
}

/* --- from the kernel --- */

static uint8_t events_of(int result)
{
    uint8_t ready = 0;
    if (result < 0)
        return KV_IO_HANGUP;
    if (result & POLLIN)
        ready |= KV_IO_READ;
    if (result & POLLOUT)
        ready |= KV_IO_WRITE;
    if (result & POLLRDHUP)
        ready |= KV_IO_END;
    if (result & (POLLHUP | POLLERR | POLLNVAL))
        ready |= KV_IO_HANGUP;
    return ready;
}

static void on_wake(struct uring_loop *l, const struct io_uring_cqe *c)
{
    /* The descriptor need not be read: every write completes the request again, after the flag has
     * fallen as well as before. What was left for us by whoever found the flag up was left before
     * he looked; the exchange makes it visible to this round. */
    (void)atomic_exchange(&l->base.wake_pending, false);
    if (!(c->flags & IORING_CQE_F_MORE))
        l->wake_armed = false;
}

static void on_poll(struct uring_loop *l, const struct io_uring_cqe *c)
{
    uint32_t fd = (uint32_t)c->user_data, generation = (uint32_t)(c->user_data >> 32);
    KV_ASSERT(fd < l->slot_count);
    struct slot *s = &l->slots[fd];
    if (KV_UNLIKELY(s->armed != generation))
        return;
    if (KV_UNLIKELY(!(c->flags & IORING_CQE_F_MORE))) {
        s->armed = 0;
        note_change(l, s);
    }
    if (KV_UNLIKELY(!s->current || c->res == -ECANCELED))
        return;
    uint8_t ready = events_of(c->res);
    /* Asked for with reading as well, for the shortcut's sake alone. */
    if (!(s->interest & KV_IO_END))
        ready &= (uint8_t)~KV_IO_END;
    if (ready == 0)
        return;
    if (s->ready == 0) {
        KV_ASSERT(l->event_count < COMPLETIONS);
        l->events[l->event_count++] = (int)fd;
        s->ending = false;
    }
    s->ready |= ready;
    s->ending |= ready & KV_IO_HANGUP || c->res & POLLRDHUP;
}

/* Takes all completions; returns how many meant something to somebody. */
static int reap(struct uring_loop *l)
{
    struct io_uring_cqe *c;
    unsigned head, count = 0;
    int woken = 0;
    io_uring_for_each_cqe(&l->ring, head, c)
    {
        count++;
        if (KV_LIKELY(c->user_data >> 32 != 0)) {
            on_poll(l, c);
        } else if (c->user_data == DATA_WAKE) {
            on_wake(l, c);
            woken = 1;
        }
    }
    io_uring_cq_advance(&l->ring, count);
    return (int)l->event_count + woken;
}

/* --- the ring --- */

static int make_ring(struct io_uring *ring, unsigned submissions, unsigned completions)
{
    struct io_uring_params p = {.flags = SETUP_FLAGS, .cq_entries = completions};
    int err = io_uring_queue_init_params(submissions, ring, &p);
    if (err < 0)
        return err;
    if ((p.features & FEATURES) == FEATURES && p.cq_entries <= COMPLETIONS)
        return 0;
    io_uring_queue_exit(ring);
    return -EINVAL;
}

static KV_COLD void take_ring(struct uring_loop *l)
{
    if (!l->made) {
        int err = make_ring(&l->ring, SUBMISSIONS, COMPLETIONS);
        if (err < 0)
            kv_panic("cannot make an io_uring: %s", strerror(-err));
        l->made = true;
    }
    /* liburing 2.3 declares a function for this that its shared library does not have. */
    int err = io_uring_register((unsigned)l->ring.ring_fd, IORING_REGISTER_ENABLE_RINGS, NULL, 0);
    if (err < 0)
        kv_panic("cannot enable an io_uring: %s", strerror(-err));
    /* Saves looking the descriptor up in every call; nothing is lost without. */
    (void)!io_uring_register_ring_fd(&l->ring);
    l->owner = gettid();
}

/* Cancels all requests and waits for their ends. The kernel says how many it found. */
static void cancel_all(struct uring_loop *l)
{
    if (!room(l, 1))
        return;
    struct io_uring_sqe *e = next_request(l);
    io_uring_prep_cancel64(e, 0, IORING_ASYNC_CANCEL_ANY);
    io_uring_sqe_set_data64(e, DATA_CANCEL_ALL);
    int found = INT_MAX;
    for (int ended = 0; ended < found;) {
        struct __kernel_timespec t = {.tv_sec = 1};
        struct io_uring_cqe *c;
        unsigned head, count = 0;
        int result = io_uring_submit_and_wait_timeout(&l->ring, &c, 1, &t, NULL);
        if (result < 0 && result != -EINTR)
            break;
        io_uring_for_each_cqe(&l->ring, head, c)
        {
            count++;
            if (c->user_data == DATA_CANCEL_ALL)
                found = KV_MAX(c->res, 0);
            else if (c->user_data != DATA_IGNORE && !(c->flags & IORING_CQE_F_MORE))
                ended++;
        }
        io_uring_cq_advance(&l->ring, count);
    }
}

/* Whoever waits next finds every descriptor to be armed. */
static void drop_ring(struct uring_loop *l)
{
    if (l->owner == gettid())
        cancel_all(l);
    io_uring_queue_exit(&l->ring);
    l->made = false;
    l->owner = 0;
    l->wake_armed = false;
    for (uint32_t i = 0; i < l->slot_count; i++) {
        struct slot *s = &l->slots[i];
        s->armed = 0;
        if (s->io != NULL)
            note_change(l, s);
    }
}

/* --- the round --- */

/* A round that was fetched and not run is fetched again. */
static void drop_events(struct uring_loop *l)
{
    for (uint32_t i = 0; i < l->event_count; i++) {
        struct slot *s = &l->slots[l->events[i]];
        if (s->ready != 0)
            look_again(l, s);
        s->ready = 0;
    }
    l->event_count = 0;
}

static int uring_wait(struct kv_loop *base, int timeout_ms)
{
    struct uring_loop *l = KV_CONTAINER_OF(base, struct uring_loop, base);
    int result;
    if (KV_UNLIKELY(l->owner == 0))
        take_ring(l);
    KV_DASSERT(l->owner == gettid());
    drop_events(l);
    if (KV_UNLIKELY(!hand_over(l)))
        timeout_ms = 0;
    if (timeout_ms == 0) {
        result = io_uring_submit_and_get_events(&l->ring);
    } else if (timeout_ms < 0) {
        result = io_uring_submit_and_wait(&l->ring, 1);
    } else {
        struct __kernel_timespec t = {.tv_sec = timeout_ms / 1000,
                                      .tv_nsec = timeout_ms % 1000 * 1000000L};
        struct io_uring_cqe *first;
        result = io_uring_submit_and_wait_timeout(&l->ring, &first, 1, &t, NULL);
    }
    /* EBUSY, EAGAIN and ENOMEM: what was not taken stays in the submission queue. */
    KV_ASSERT(result >= 0 || result == -ETIME || result == -EINTR || result == -EBUSY ||
              result == -EAGAIN || result == -ENOMEM);
    return reap(l);
}

static void uring_run(struct kv_loop *base)
{
    struct uring_loop *l = KV_CONTAINER_OF(base, struct uring_loop, base);
    for (uint32_t i = 0; i < l->event_count; i++) {
        int fd = l->events[i];
        struct slot *s = &l->slots[fd];
        struct kv_io *io = s->io;
        uint8_t ready = s->ready;
        bool ending = s->ending;
        s->ready = 0;
        if (io == NULL || ready == 0)
            continue;
        if (i + 1 < l->event_count && l->slots[l->events[i + 1]].io != NULL)
            kv_loop_prefetch(l->slots[l->events[i + 1]].io);
        io->drained = 0;
        io->fn(io, ready);
        /* Handlers forget themselves and add others: the slots may have moved. */
        s = &l->slots[fd];
        if (s->io == io && (ready != KV_IO_READ || ending || !io->drained))
            look_again(l, s);
    }
    l->event_count = 0;
}

/* --- life --- */

bool kv_uring_offered(void)
{
    struct io_uring ring;
    int err = make_ring(&ring, 2, 4);
    if (err == 0)
        io_uring_queue_exit(&ring);
    errno = -err;
    return err == 0;
}

static void uring_detach(struct kv_loop *base)
{
    struct uring_loop *l = KV_CONTAINER_OF(base, struct uring_loop, base);
    if (l->owner != 0) {
        drop_events(l);
        drop_ring(l);
    }
}

static void uring_destroy(struct kv_loop *base)
{
    struct uring_loop *l = KV_CONTAINER_OF(base, struct uring_loop, base);
    if (l->made)
        drop_ring(l);
    kv_mem_free(l->slots, l->slot_count * sizeof(*l->slots), KV_MEM_OTHER);
    kv_mem_free(l->changes, l->slot_count * sizeof(*l->changes), KV_MEM_OTHER);
    kv_mem_free(l, sizeof(*l), KV_MEM_OTHER);
}

static const struct kv_loop_ops ops = {
    .name = "io_uring",
    .destroy = uring_destroy,
    .set = uring_set,
    .forget = uring_forget,
    .detach = uring_detach,
    .wait = uring_wait,
    .run = uring_run,
};

struct kv_loop *kv_uring_create(int wake_fd)
{
    struct uring_loop *l = kv_mem_zalloc(sizeof(*l), KV_MEM_OTHER);
    int err = make_ring(&l->ring, SUBMISSIONS, COMPLETIONS);
    if (err < 0) {
        kv_mem_free(l, sizeof(*l), KV_MEM_OTHER);
        errno = -err;
        return NULL;
    }
    l->made = true;
    l->base.ops = &ops;
    l->base.wake_fd = wake_fd;
    return &l->base;
}
