/* Output that waits for the log: see the header for the protocol.
 *
 * A client is in one of two lists of its worker, or in none: FRESH has output of the round that is
 * going on, HELD waits for its target. Both are doubly linked, since a client may vanish from the
 * middle; the held list is in order of targets because tails rise, so a message lets go a prefix.
 *
 * Threads: everything here runs on the client's worker, but for the calls of the log, which touch
 * the atomics of the engine and each worker's `watch`.
 *
 * Rejected: raising the target of a held client with each new output (a client in a steady flow
 * would never be answered), and not reading from held clients (one pipeline of commands a sync). */
#include "engine/commit.h"
#include "base/clock.h"
#include "engine/worker.h"
#include <stdio.h>

#define OUTPUT_MAX (256 * 1024) /* of a client that goes on running commands while it is held */
#define RESCAN_MS 5             /* between two looks at many deadlines */
#define RESCAN_MANY 256

static bool failed(const struct kv_engine *e)
{
    return atomic_load(&e->commit.failed);
}

static uint64_t durable(const struct kv_engine *e)
{
    return atomic_load(&e->commit.durable);
}

static bool holds(const struct kv_engine *e)
{
    return atomic_load_explicit(&e->commit.holds, memory_order_relaxed);
}

void kv_commit_init(struct kv_worker *w)
{
    w->commit.next_ms = INT64_MAX;
    atomic_store(&w->commit.watch, UINT64_MAX);
}

/* --- lists --- */

static void append(struct kv_client **first, struct kv_client **last, struct kv_client *c)
{
    KV_ASSERT(c->hold_next == NULL && c->hold_prev == NULL);
    c->hold_prev = *last;
    if (*last != NULL)
        (*last)->hold_next = c;
    else
        *first = c;
    *last = c;
}

static void take_out(struct kv_client **first, struct kv_client **last, struct kv_client *c)
{
    if (c->hold_prev != NULL)
        c->hold_prev->hold_next = c->hold_next;
    else
        *first = c->hold_next;
    if (c->hold_next != NULL)
        c->hold_next->hold_prev = c->hold_prev;
    else
        *last = c->hold_prev;
    c->hold_next = c->hold_prev = NULL;
}

static void leave_list(struct kv_client *c)
{
    struct kv_worker_commit *m = &c->worker->commit;
    if (c->held == KV_OUTPUT_FRESH)
        take_out(&m->fresh_first, &m->fresh_last, c);
    else if (c->held == KV_OUTPUT_HELD)
        take_out(&m->held_first, &m->held_last, c);
    c->held = KV_OUTPUT_FREE;
}

static uint64_t output_end(const struct kv_client *c)
{
    return c->bytes_out + kv_out_pending(&c->out);
}

/* Out of its list; what it was parked for is over. */
static void let_go(struct kv_client *c)
{
    leave_list(c);
    if (c->park == KV_PARK_OUTPUT) {
        c->park = KV_PARK_NONE;
        kv_worker_resume(c->worker, c);
    }
}

void kv_commit_forget(struct kv_client *c)
{
    leave_list(c);
    kv_commit_unwait(c);
}

void kv_commit_park(struct kv_client *c)
{
    /* Who waits for something else already adds no output, and stands in the list of that. */
    const uint32_t waits = KV_CLIENT_PARKED | KV_CLIENT_PAUSED | KV_CLIENT_BLOCKED;
    if (c->held == KV_OUTPUT_FREE || c->flags & waits || kv_out_pending(&c->out) <= OUTPUT_MAX)
        return;
    KV_ASSERT(c->park == KV_PARK_NONE);
    c->flags |= KV_CLIENT_PARKED;
    c->park = KV_PARK_OUTPUT;
}

/* --- sending --- */

uint64_t kv_commit_limit(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    struct kv_engine *e = w->engine;
    if (KV_UNLIKELY(failed(e))) {
        if (c->held == KV_OUTPUT_HELD || c->write_end > durable(e)) {
            kv_client_close_soon(c);
            return 0;
        }
        let_go(c);
        return UINT64_MAX;
    }
    if (durable(e) >= kv_stream_head(&e->stream)) {
        let_go(c);
        return UINT64_MAX;
    }
    if (c->held == KV_OUTPUT_FREE && output_end(c) > c->send_limit) {
        append(&w->commit.fresh_first, &w->commit.fresh_last, c);
        c->held = KV_OUTPUT_FRESH;
    }
    return c->send_limit > c->bytes_out ? c->send_limit - c->bytes_out : 0;
}

static void send_output(struct kv_client *c)
{
    (void)kv_client_send(c);
    kv_client_limit_touch(c);
}

/* All that the client has got so far may be sent. */
static void send_all(struct kv_client *c)
{
    c->send_limit = output_end(c);
    let_go(c);
    send_output(c);
}

/* Lets go all whose targets are reached. */
static void release_held(struct kv_worker *w)
{
    uint64_t reached = durable(w->engine);
    struct kv_client *c;
    while ((c = w->commit.held_first) != NULL && c->hold_target <= reached) {
        c->send_limit = c->hold_limit;
        let_go(c);
        send_output(c);
    }
}

static void close_held(struct kv_worker *w)
{
    struct kv_client *c;
    while ((c = w->commit.held_first) != NULL) {
        leave_list(c);
        kv_client_close_soon(c);
    }
}

/* The round's output waits for `tail`. */
static void hold_fresh(struct kv_worker *w, uint64_t tail)
{
    struct kv_client *c;
    while ((c = w->commit.fresh_first) != NULL) {
        leave_list(c);
        c->held = KV_OUTPUT_HELD;
        c->hold_limit = output_end(c);
        c->hold_target = tail;
        append(&w->commit.held_first, &w->commit.held_last, c);
    }
}

/* --- WAITAOF --- */

bool kv_commit_is_open(struct kv_engine *e)
{
    return atomic_load(&e->commit.open);
}

bool kv_commit_reached(const struct kv_client *c)
{
    /* What EXEC has written so far is nowhere yet. */
    return !c->worker->client_wrote && c->write_end <= durable(c->worker->engine);
}

bool kv_call_wait_durable(struct kv_call *call, bool local, int64_t timeout_ms)
{
    struct kv_client *c = call->client;
    struct kv_worker *w = call->worker;
    if (call->flags & KV_CALL_IN_EXEC || c == NULL || c->flags & KV_CLIENT_APPLY)
        return false;
    int64_t now_ms = (int64_t)((kv_clock_mono_ns() + 999999) / 1000000);
    c->wait_target = local ? c->write_end : UINT64_MAX;
    c->wait_deadline_ms = timeout_ms == 0 ? 0 : now_ms + timeout_ms;
    if (timeout_ms != 0)
        w->commit.next_ms = KV_MIN(w->commit.next_ms, c->wait_deadline_ms);
    c->flags |= KV_CLIENT_BLOCKED;
    if (c->flags & (KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP))
        c->flags |= KV_CLIENT_WAIT_MUTED;
    kv_waitlist_append(&w->commit.waiting, c);
    w->commit.more = true; /* the round's end looks at it */
    return true;
}

void kv_commit_unwait(struct kv_client *c)
{
    if (!kv_commit_waits(c))
        return;
    kv_waitlist_remove(&c->worker->commit.waiting, c);
    c->flags &= ~(uint32_t)(KV_CLIENT_BLOCKED | KV_CLIENT_UNBLOCK_ERROR | KV_CLIENT_WAIT_MUTED);
}

static void end_wait(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    bool with_error = c->flags & KV_CLIENT_UNBLOCK_ERROR, muted = c->flags & KV_CLIENT_WAIT_MUTED;
    kv_commit_unwait(c);
    if (with_error) {
        struct kv_slice text = KV_SLICE("UNBLOCKED client unblocked via CLIENT UNBLOCK");
        kv_call_count_error(w, text);
        if (!muted)
            kv_reply_error_raw(&c->out, text);
    } else if (!muted) {
        kv_reply_array(&c->out, 2);
        kv_reply_int(&c->out, kv_commit_is_open(w->engine) && c->write_end <= durable(w->engine));
        kv_reply_int(&c->out, 0);
    }
    kv_worker_resume(w, c);
    kv_client_limit_touch(c);
}

/* Ends the waits that are over, and finds the next deadline. */
static void end_waits(struct kv_worker *w)
{
    struct kv_client *next;
    uint64_t reached = durable(w->engine), count = 0;
    int64_t now_ms = (int64_t)(kv_clock_mono_ns() / 1000000);
    w->commit.next_ms = INT64_MAX;
    for (struct kv_client *c = w->commit.waiting.first; c != NULL; c = next) {
        next = c->wait_next;
        count++;
        if (c->wait_target <= reached || c->flags & KV_CLIENT_UNBLOCK_ERROR ||
            (c->wait_deadline_ms != 0 && c->wait_deadline_ms <= now_ms))
            end_wait(c);
        else if (c->wait_deadline_ms != 0)
            w->commit.next_ms = KV_MIN(w->commit.next_ms, c->wait_deadline_ms);
    }
    if (count > RESCAN_MANY && w->commit.next_ms != INT64_MAX)
        w->commit.next_ms = KV_MAX(w->commit.next_ms, now_ms + RESCAN_MS);
}

bool kv_commit_unblock(struct kv_client *c, bool with_error)
{
    if (with_error)
        c->flags |= KV_CLIENT_UNBLOCK_ERROR;
    else
        c->wait_deadline_ms = 1;
    kv_inbox_post(c->worker, KV_MSG_DURABLE, 0, 0, NULL);
    return true;
}

/* --- rounds and messages --- */

/* Says what is waited for; true: some of it is reached already. */
static bool set_watch(struct kv_worker *w)
{
    uint64_t target = UINT64_MAX;
    if (w->commit.held_first != NULL)
        target = w->commit.held_first->hold_target;
    for (struct kv_client *c = w->commit.waiting.first; c != NULL; c = c->wait_next)
        target = KV_MIN(target, c->wait_target);
    atomic_store(&w->commit.watch, target);
    return target <= durable(w->engine);
}

static void look(struct kv_worker *w)
{
    do {
        release_held(w);
        if (w->commit.waiting.first != NULL)
            end_waits(w);
    } while (set_watch(w));
}

void kv_commit_on_durable(struct kv_worker *w)
{
    look(w);
}

void kv_commit_on_failed(struct kv_worker *w)
{
    if (failed(w->engine))
        close_held(w);
}

/* What was given output in this round: it is sent, held or closed. */
static void settle_fresh(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    struct kv_worker_commit *m = &w->commit;
    uint64_t tail = kv_stream_head(&e->stream);
    if (holds(e) && !failed(e) && durable(e) < tail) {
        hold_fresh(w, tail);
        return;
    }
    while (m->fresh_first != NULL) {
        struct kv_client *c = m->fresh_first;
        if (failed(e)) {
            let_go(c);
            send_output(c); /* unless it must not be answered */
        } else {
            send_all(c);
        }
    }
}

void kv_commit_round(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    struct kv_worker_commit *m = &w->commit;
    if (KV_UNLIKELY(w->stream_wrote)) {
        w->stream_wrote = false;
        kv_stream_wake_readers(e);
    }
    if (KV_LIKELY(m->fresh_first == NULL && !m->more && m->next_ms > w->mono_ms))
        return;
    m->more = false;
    /* Letting go gives some their next output to wait for. */
    do {
        settle_fresh(w);
        look(w);
        if (failed(e))
            close_held(w);
    } while (m->fresh_first != NULL);
    if (m->waiting.first != NULL)
        kv_stream_wake_readers(e);
}

/* --- the client's writes --- */

void kv_commit_note_write(struct kv_client *c)
{
    c->worker->client_wrote = false;
    c->write_end = KV_MAX(c->write_end, c->worker->stream_end);
}

/* Somebody else ran its command, and published before the reply was posted. */
void kv_commit_note_served(struct kv_client *c)
{
    struct kv_engine *e = c->worker->engine;
    if (kv_stream_active(&e->stream))
        c->write_end = kv_stream_head(&e->stream);
}

/* --- the log's side --- */

void kv_commit_advance(struct kv_engine *e, uint64_t offset)
{
    uint64_t before = durable(e);
    do {
        if (before >= offset)
            return;
    } while (!atomic_compare_exchange_weak(&e->commit.durable, &before, offset));
    for (uint32_t i = 0; i < e->worker_count; i++) {
        struct kv_worker *w = e->workers[i];
        uint64_t watch = atomic_load(&w->commit.watch);
        if (watch <= offset && atomic_compare_exchange_strong(&w->commit.watch, &watch, UINT64_MAX))
            kv_inbox_post(w, KV_MSG_DURABLE, 0, 0, NULL);
    }
}

void kv_commit_fail(struct kv_engine *e)
{
    atomic_store(&e->commit.failed, true);
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_inbox_post(e->workers[i], KV_MSG_LOG_FAILED, 0, 0, NULL);
}

void kv_commit_recover(struct kv_engine *e, uint64_t offset)
{
    kv_commit_advance(e, offset);
    atomic_store(&e->commit.failed, false);
}

void kv_commit_deny(struct kv_engine *e, int error)
{
    atomic_store(&e->commit.denied, error);
}

void kv_commit_deny_unsaved(struct kv_engine *e, bool denied)
{
    if (denied)
        atomic_fetch_or(&e->commit.refusals, KV_REFUSE_UNSAVED);
    else
        atomic_fetch_and(&e->commit.refusals, ~(unsigned)KV_REFUSE_UNSAVED);
}

bool kv_commit_wanted(struct kv_engine *e)
{
    for (uint32_t i = 0; i < e->worker_count; i++)
        if (atomic_load(&e->workers[i]->commit.watch) != UINT64_MAX)
            return true;
    return false;
}

void kv_commit_set(struct kv_engine *e, bool open, bool hold)
{
    KV_ASSERT(open || !hold);
    atomic_store(&e->commit.open, open);
    atomic_store(&e->commit.holds, hold);
}

void kv_commit_denial(const struct kv_engine *e, char text[KV_DENIAL_TEXT])
{
    int error = atomic_load(&e->commit.denied);
    if (error != 0)
        snprintf(text, KV_DENIAL_TEXT, "MISCONF Errors writing to the AOF file: %s",
                 strerror(error));
    else
        snprintf(text, KV_DENIAL_TEXT,
                 "MISCONF Redis is configured to save RDB snapshots, but it's currently unable to "
                 "persist to disk. Commands that may modify the data set are disabled, because "
                 "this instance is configured to report errors during writes if RDB snapshotting "
                 "fails (stop-writes-on-bgsave-error option). Please check the Redis logs for "
                 "details about the RDB error.");
}
