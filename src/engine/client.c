/* Clients: creation, end, output.
 *
 * A client is one block of about half a kilobyte; everything else it has (input leftover, output
 * chunks, transaction, names) exists only while it is needed, so an idle connection costs that
 * block and its two address strings.
 *
 * A client is freed only between two rounds of its worker (kv_worker_round), never while one of its
 * commands runs: kv_client_close_soon just marks it and puts it on the worker's list; one that is
 * on its way to another worker is put there when that one takes it. Before it goes it leaves every
 * queue it may stand in (kv_client_unpark).
 */
#include "engine/client.h"
#include "base/clock.h"
#include "base/log.h"
#include "engine/monitor.h"
#include "engine/transaction.h"
#include "engine/worker.h"
#include "net/socket.h"
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#define WRITE_PARTS 32                  /* chunks given to one writev */
#define WRITE_ROUND_BYTES (1024 * 1024) /* then other connections get their turn */

static void clear_text(struct kv_client *c, char **field)
{
    if (*field == NULL)
        return;
    size_t size = strlen(*field) + 1;
    c->base_bytes -= kv_mem_block_size(size);
    kv_mem_free(*field, size, KV_MEM_CLIENT);
    *field = NULL;
}

bool kv_client_set_text(struct kv_client *c, char **field, struct kv_slice text)
{
    char *copy = NULL;
    if (text.len > 0) {
        copy = kv_mem_try_alloc(text.len + 1, KV_MEM_CLIENT);
        if (copy == NULL)
            return false;
        memcpy(copy, text.ptr, text.len);
        copy[text.len] = '\0';
    }
    clear_text(c, field);
    *field = copy;
    if (copy != NULL)
        c->base_bytes += kv_mem_block_size(text.len + 1);
    return true;
}

/* Addresses are short and ours: they need no failure. */
static void set_address(struct kv_client *c, char **field, const char *name, size_t len)
{
    clear_text(c, field);
    *field = kv_mem_strdup(name, len, KV_MEM_CLIENT);
    c->base_bytes += kv_mem_block_size(len + 1);
}

static void set_addresses(struct kv_client *c)
{
    char name[128];
    if (c->flags & KV_CLIENT_UNIX) {
        const char *path = c->worker->engine->options.unixsocket;
        int n = snprintf(name, sizeof(name), "%.100s:0", path);
        set_address(c, &c->peer, name, (size_t)n);
        set_address(c, &c->local, name, (size_t)n);
        return;
    }
    set_address(c, &c->peer, name, kv_socket_name(c->io.fd, true, name));
    set_address(c, &c->local, name, kv_socket_name(c->io.fd, false, name));
}

void kv_client_link(struct kv_worker *w, struct kv_client *c)
{
    c->worker = w;
    c->out.pool = &w->chunks;
    c->prev = NULL;
    c->next = w->clients;
    if (w->clients != NULL)
        w->clients->prev = c;
    w->clients = c;
    w->client_count++;
    kv_stat_set(&w->stats.clients, w->client_count);
    kv_client_limit_enter(c);
}

void kv_client_unlink(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    kv_client_limit_leave(c);
    if (w->timeout_cursor == c)
        w->timeout_cursor = c->next;
    if (c->prev != NULL)
        c->prev->next = c->next;
    else
        w->clients = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    c->next = c->prev = NULL;
    w->client_count--;
    kv_stat_set(&w->stats.clients, w->client_count);
}

/* False for one that moves and that its receiver has not taken yet. */
static bool is_linked(const struct kv_client *c)
{
    return c->prev != NULL || c->worker->clients == c;
}

struct kv_client *kv_client_create(struct kv_worker *w, int fd, bool is_unix)
{
    struct kv_engine *e = w->engine;
    struct kv_client *c = kv_mem_zalloc(sizeof(*c), KV_MEM_CLIENT);
    c->io.fd = fd;
    c->io.fn = kv_client_handler;
    c->id = atomic_fetch_add(&e->next_client_id, 1);
    c->resp = 2;
    c->flags = is_unix ? KV_CLIENT_UNIX : 0;
    if (fd < 0)
        c->flags |= KV_CLIENT_VIRTUAL;
    kv_out_init(&c->out, &w->chunks);
    c->created_ms = c->active_ms = kv_clock_wall_ms();
    c->base_bytes = kv_mem_block_size(sizeof(*c));
    c->worker = w;
    kv_acl_reset_client(c);
    if (fd >= 0)
        set_addresses(c);
    kv_client_link(w, c);
    return c;
}

static void remove_from(struct kv_client **list, struct kv_client *c, size_t link)
{
    for (struct kv_client **p = list; *p != NULL; p = (struct kv_client **)((char *)*p + link)) {
        if (*p == c) {
            *p = *(struct kv_client **)((char *)c + link);
            return;
        }
    }
}

void kv_client_unpark(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    if (c->park == KV_PARK_SHARD) {
        if (c->flags & KV_CLIENT_PARKED) {
            if (c->park_prev != NULL)
                c->park_prev->park_next = c->park_next;
            else
                w->shard_waiters = c->park_next;
            if (c->park_next != NULL)
                c->park_next->park_prev = c->park_prev;
            c->park_next = c->park_prev = NULL;
            kv_shard_unpark(w->engine, c->park_shard, c);
        }
    } else if (c->park == KV_PARK_GATE || c->park == KV_PARK_ALONE) {
        kv_gate_cancel(w, c);
    } else if (c->park == KV_PARK_STREAM) {
        if (c->flags & KV_CLIENT_PARKED)
            kv_waitlist_remove(&w->stream_waiters, c);
    }
    kv_commit_unwait(c);
    if (c->flags & KV_CLIENT_PAUSED)
        kv_waitlist_remove(&w->paused, c);
    if (c->flags & KV_CLIENT_RESUMING) {
        remove_from(&w->resume_first, c, offsetof(struct kv_client, resume_next));
        w->resume_last = w->resume_first;
        while (w->resume_last != NULL && w->resume_last->resume_next != NULL)
            w->resume_last = w->resume_last->resume_next;
    }
    c->wait_next = c->wait_prev = NULL;
    c->park = KV_PARK_NONE;
    c->flags &= ~(uint32_t)(KV_CLIENT_PARKED | KV_CLIENT_PAUSED | KV_CLIENT_RESUMING);
}

static void free_input(struct kv_client *c)
{
    kv_mem_free(c->in, c->in_capacity, KV_MEM_CLIENT_INPUT);
    c->in = NULL;
    c->in_len = c->in_capacity = 0;
    if (c->partial != NULL) {
        kv_partial_destroy(c->partial);
        c->partial = NULL;
    }
}

void kv_client_free(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    KV_ASSERT(w == kv_this_worker);
    kv_blocking_leave(c);
    kv_errand_leave(c);
    kv_pubsub_forget(c);
    kv_tracking_forget(c);
    kv_monitor_leave(c);
    kv_delivery_forget(c);
    kv_client_unpark(c);
    kv_commit_forget(c);
    kv_tx_discard(c);
    kv_tx_unwatch_all(c);
    KV_ASSERT(c->tx == NULL);
    if (c->flags & KV_CLIENT_QUEUED_CLOSE)
        remove_from(&w->close_list, c, offsetof(struct kv_client, close_next));
    free_input(c);
    kv_out_release(&c->out);
    if (c->io.fd >= 0) {
        kv_loop_forget(w->loop, &c->io);
        close(c->io.fd);
    }
    kv_client_unlink(c);
    clear_text(c, &c->name);
    clear_text(c, &c->lib_name);
    clear_text(c, &c->lib_version);
    clear_text(c, &c->peer);
    clear_text(c, &c->local);
    KV_ASSERT(c->base_bytes == kv_mem_block_size(sizeof(*c)));
    atomic_fetch_sub_explicit(&w->engine->client_total, 1, memory_order_relaxed);
    kv_mem_free(c, sizeof(*c), KV_MEM_CLIENT);
}

void kv_client_close_soon(struct kv_client *c)
{
    c->flags |= KV_CLIENT_CLOSE_NOW;
    kv_client_limit_leave(c); /* nobody else is to be closed for what goes with it */
    if (c->flags & (KV_CLIENT_QUEUED_CLOSE | KV_CLIENT_VIRTUAL) || !is_linked(c))
        return;
    c->flags |= KV_CLIENT_QUEUED_CLOSE;
    c->close_next = c->worker->close_list;
    c->worker->close_list = c;
    if (c->worker != kv_this_worker)
        kv_loop_wake(c->worker->loop);
}

void kv_client_drop(struct kv_client *c)
{
    KV_ASSERT(c->worker == kv_this_worker);
    kv_client_close_soon(c);
    kv_pubsub_forget(c);
    kv_tracking_forget(c);
    kv_monitor_leave(c);
    kv_tx_discard(c);
    free_input(c);
    kv_out_release(&c->out);
}

void kv_client_reset(struct kv_client *c)
{
    kv_tx_discard(c);
    kv_tx_unwatch_all(c);
    kv_pubsub_forget(c);
    kv_tracking_end(c);
    kv_monitor_leave(c);
    const uint32_t cleared =
        KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP | KV_CLIENT_REPLY_SKIP_NEXT | KV_CLIENT_NO_TOUCH;
    c->flags &= ~cleared;
    kv_acl_reset_client(c);
    c->resp = 2;
    c->out.resp = 2;
    c->db = 0;
    clear_text(c, &c->name);
    kv_client_set_no_evict(c, false);
}

enum kv_client_class kv_client_class(const struct kv_client *c)
{
    return c->subscriber != NULL ? KV_CLASS_PUBSUB : KV_CLASS_NORMAL;
}

size_t kv_client_memory(const struct kv_client *c)
{
    size_t sum = c->base_bytes + c->out.chunk_bytes + kv_tx_memory(c);
    if (c->in != NULL)
        sum += kv_mem_block_size(c->in_capacity);
    if (c->partial != NULL)
        sum += kv_partial_memory(c->partial);
    if (c->waiter != NULL)
        sum += kv_waiter_memory(c->waiter);
    if (c->subscriber != NULL)
        sum += c->subscriber->bytes;
    return sum;
}

/* --- output --- */

bool kv_client_interest(struct kv_client *c, bool read, bool write)
{
    if (c->flags & KV_CLIENT_VIRTUAL)
        return true;
    /* Never none at all: the end of a peer whose client waits (CLIENT PAUSE) is still reported. */
    uint32_t interest = KV_IO_HANGUP | (read ? KV_IO_READ : 0u) | (write ? KV_IO_WRITE : 0u);
    /* Who may wait for long is not to wait for somebody who has gone. */
    if (!read && c->flags & (KV_CLIENT_BLOCKED | KV_CLIENT_PAUSED))
        interest |= KV_IO_END;
    if (kv_loop_set(c->worker->loop, &c->io, interest) == KV_OK)
        return true;
    kv_client_close_soon(c);
    return false;
}

/* At most `limit` bytes of what is to be sent. */
static int gather(struct kv_out *o, uint64_t limit, struct iovec parts[WRITE_PARTS])
{
    int n = 0;
    kv_out_settle(o);
    for (struct kv_chunk *k = o->head; k != NULL && n < WRITE_PARTS && limit > 0; k = k->next) {
        if (k->len == k->sent)
            continue;
        parts[n].iov_base = k->data + k->sent;
        parts[n].iov_len = (size_t)KV_MIN((uint64_t)(k->len - k->sent), limit);
        limit -= parts[n++].iov_len;
    }
    return n;
}

/* True when all that may be was sent or the socket is full; *full tells. False: the peer is gone.
 */
static bool write_out(struct kv_client *c, uint64_t limit, bool *full)
{
    struct iovec parts[WRITE_PARTS];
    size_t round = 0;
    *full = false;
    while (limit > 0 && kv_out_pending(&c->out) > 0) {
        size_t sent;
        int n = gather(&c->out, limit, parts);
        enum kv_err err = kv_socket_write(c->io.fd, parts, n, &sent);
        if (err == KV_ERR_AGAIN) {
            *full = true;
            return true;
        }
        if (err != KV_OK)
            return false;
        kv_out_advance(&c->out, sent);
        limit -= sent;
        c->bytes_out += sent;
        c->active_ms = c->worker->round_ms;
        kv_stat_add(&c->worker->stats.net_output_bytes, sent);
        kv_stat_add(&c->worker->stats.writes, 1);
        round += sent;
        if (round >= WRITE_ROUND_BYTES && limit > 0 && kv_out_pending(&c->out) > 0) {
            *full = true; /* not really: the loop reports it writable in the next round */
            return true;
        }
    }
    return true;
}

bool kv_client_send(struct kv_client *c)
{
    if (c->flags & (KV_CLIENT_VIRTUAL | KV_CLIENT_CLOSE_NOW))
        return !(c->flags & KV_CLIENT_CLOSE_NOW);
    /* Its command is not over: marks in its output must stay, and whoever reads its input sends. */
    if (KV_UNLIKELY(c == c->worker->framed))
        return true;
    bool full;
    uint64_t limit = UINT64_MAX;
    if (KV_UNLIKELY(kv_commit_concerns(c))) {
        limit = kv_commit_limit(c);
        if (c->flags & KV_CLIENT_CLOSE_NOW)
            return false;
    }
    if (!write_out(c, limit, &full)) {
        kv_client_close_soon(c);
        return false;
    }
    bool reading = (c->io.interest & KV_IO_READ) != 0;
    if (full) {
        c->flags |= KV_CLIENT_WRITE_WAIT;
        return kv_client_interest(c, reading, true);
    }
    kv_out_advance(&c->out, 0); /* lets empty chunks go */
    if (c->flags & KV_CLIENT_WRITE_WAIT) {
        c->flags &= ~(uint32_t)KV_CLIENT_WRITE_WAIT;
        if (!kv_client_interest(c, reading, false))
            return false;
    }
    if (c->flags & KV_CLIENT_CLOSE_AFTER && kv_out_pending(&c->out) == 0) {
        kv_client_close_soon(c);
        return false;
    }
    return true;
}

/* Output limits: the hard one at once, the soft one when passed for longer than its seconds. */
void kv_client_check_limits(struct kv_client *c)
{
    struct kv_engine *e = c->worker->engine;
    const struct kv_output_limit *limit = &e->options.output_limit[kv_client_class(c)];
    size_t held = c->out.chunk_bytes;
    if (c == c->worker->framed)
        held += c->worker->held.chunk_bytes;
    kv_stat_max(&c->worker->stats.output_buffer_max, held);
    if (KV_LIKELY((limit->hard_bytes == 0 || held <= limit->hard_bytes) &&
                  (limit->soft_bytes == 0 || held <= limit->soft_bytes))) {
        c->soft_since_ms = 0;
        return;
    }
    bool over = limit->hard_bytes != 0 && held > limit->hard_bytes;
    if (!over) {
        int64_t now = kv_clock_wall_ms();
        if (c->soft_since_ms == 0)
            c->soft_since_ms = now;
        over = now - c->soft_since_ms > (int64_t)limit->soft_seconds * 1000;
    }
    if (!over || c->flags & KV_CLIENT_CLOSE_NOW)
        return;
    kv_log(KV_LOG_WARNING, "Client id=%llu addr=%s closed for passing the output buffer limits",
           (unsigned long long)c->id, c->peer != NULL ? c->peer : "-");
    kv_stat_add(&c->worker->stats.output_limit_disconnections, 1);
    kv_client_close_soon(c);
}

/* --- moving to another worker --- */

/* Only idle-to-the-engine clients move: nothing parked, no output stuck, at a command boundary. */
void kv_client_move(struct kv_client *c, struct kv_worker *to)
{
    struct kv_worker *from = c->worker;
    KV_ASSERT(to != from);
    KV_ASSERT(!(c->flags & (KV_CLIENT_PARKED | KV_CLIENT_PAUSED | KV_CLIENT_RESUMING |
                            KV_CLIENT_CLOSE_NOW | KV_CLIENT_VIRTUAL | KV_CLIENT_WRITE_WAIT)));
    KV_ASSERT(kv_out_pending(&c->out) == 0);
    KV_ASSERT(c->held == KV_OUTPUT_FREE);
    kv_delivery_forget(c); /* it may still be listed for what was sent meanwhile */
    kv_out_release(&c->out);
    kv_loop_forget(from->loop, &c->io);
    kv_client_unlink(c);
    kv_stat_add(&from->stats.moved_clients, 1);
    c->worker = to;
    kv_inbox_post(to, KV_MSG_MOVED, 0, 0, c);
}
