/* From bytes to commands.
 *
 * A worker has one read buffer for all its connections. A connection's leftover (an incomplete
 * command, or what could not run yet) is kept in a block of exactly its size and put in front of
 * the next read, so an idle connection holds nothing and the buffer stays in the cache. Commands
 * refer to the buffer while they run; it neither moves nor grows meanwhile.
 *
 * Large or long commands go through kv_partial, which consumes bytes as they come and reads large
 * arguments straight from the socket into their final block.
 *
 * A connection that waits (parked, paused, closing) is not read: its read interest is taken back
 * when the loop reports it, and returns when it goes on. So what one connection can make us hold is
 * bounded by one read plus one command, and the latter by client-query-buffer-limit.
 */
#include "base/clock.h"
#include "base/log.h"
#include "engine/worker.h"
#include "net/socket.h"

/* A connection that ends: what comes from it now is not looked at. */
#define CLOSING (KV_CLIENT_CLOSE_AFTER | KV_CLIENT_CLOSE_NOW)
#define SUSPENDED                                                                                  \
    (KV_CLIENT_PARKED | KV_CLIENT_PAUSED | KV_CLIENT_RESUMING | KV_CLIENT_BLOCKED | CLOSING)
#define FLUSH_BYTES (256 * 1024) /* unsent output that is sent between two batches */

static void *create_block(size_t len, char **data)
{
    struct kv_bigstr *b = kv_bigstr_try_create(len, KV_MEM_CLIENT_INPUT);
    if (b == NULL)
        return NULL;
    *data = b->data;
    return b;
}

static void release_block(void *block)
{
    kv_bigstr_unref(block);
}

static const struct kv_block_ops block_ops = {create_block, release_block};

static struct kv_parse_limits limits_of(const struct kv_client *c)
{
    return (struct kv_parse_limits){
        .bulk_max = c->worker->engine->options.proto_max_bulk_len,
        .authenticated = (c->flags & KV_CLIENT_AUTHENTICATED) != 0,
    };
}

static KV_COLD void protocol_error(struct kv_client *c, const char *text)
{
    kv_call_count_error(c->worker, kv_slice_cstr(text));
    kv_reply_error_raw(&c->out, kv_slice_cstr(text));
    c->flags |= KV_CLIENT_CLOSE_AFTER;
    kv_log(KV_LOG_VERBOSE, "Protocol error (%s) from client id=%llu addr=%s", text,
           (unsigned long long)c->id, c->peer != NULL ? c->peer : "-");
}

static KV_COLD void over_query_limit(struct kv_client *c)
{
    kv_log(KV_LOG_WARNING, "Closing client that reached max query buffer length: id=%llu addr=%s",
           (unsigned long long)c->id, c->peer != NULL ? c->peer : "-");
    kv_stat_add(&c->worker->stats.query_buffer_limit_disconnections, 1);
    kv_client_close_soon(c);
}

/* Plans plain commands from *from on into w->plan; *single tells that plan[n] holds a command that
 * cannot be batched; *status is what stopped the parser. Moves *from behind what was planned and
 * behind requests without a command (blank lines, empty arrays). Returns n. */
static uint32_t plan_batch(struct kv_client *c, const char **from, const char *end, bool *single,
                           enum kv_parse_status *status)
{
    struct kv_worker *w = c->worker;
    struct kv_engine *e = w->engine;
    struct kv_parse_limits limits = limits_of(c);
    bool batches =
        (c->flags & (KV_CLIENT_AUTHENTICATED | KV_CLIENT_MULTI | KV_CLIENT_REPLY_SKIP |
                     KV_CLIENT_REPLY_SKIP_NEXT | KV_CLIENT_MONITOR)) == KV_CLIENT_AUTHENTICATED &&
        !kv_engine_holds_up(e, w->now_ms) && (!kv_commit_denies(e) || c->flags & KV_CLIENT_APPLY) &&
        !kv_pubsub_restricts(c) && !w->serving;
    uint32_t max = KV_MIN(e->options.lookahead, (uint32_t)KV_LOOKAHEAD_MAX);
    uint32_t n = 0;
    const char *pos = *from;
    *single = false;
    w->call.view.db = c->db;
    while (n < max) {
        struct kv_planned *p = &w->plan[n];
        *status = kv_parse(pos, end, &limits, &w->arena, &p->request);
        if (KV_UNLIKELY(*status == KV_PARSE_EMPTY)) {
            pos = p->request.next;
            continue;
        }
        if (*status != KV_PARSE_OK)
            break;
        const struct kv_command *cmd = kv_worker_lookup(w, p->request.argv[0]);
        p->cmd = cmd;
        if (KV_UNLIKELY(!batches || cmd == NULL || !(cmd->flags & KV_CMD_BATCH) ||
                        !kv_command_arity_fits(cmd, p->request.argc) ||
                        kv_resolve_keys(w, cmd, p->request.argv, p->request.argc, &p->key, &p->keys,
                                        &p->key_count) != KV_OK)) {
            *single = true;
            break;
        }
        if (e->multi)
            kv_batch_prefetch_locks(w, p);
        n++;
        pos = p->request.next;
        if (pos == end) {
            *status = KV_PARSE_MORE;
            break;
        }
    }
    *from = pos;
    return n;
}

/* Runs one planned request alone; returns where to go on: its end, or its start when it waits. */
static const char *run_single(struct kv_client *c, const struct kv_request *r)
{
    const char *start = r->start, *next = r->next;
    return kv_dispatch(c, r, NULL) == KV_DISPATCH_PARKED ? start : next;
}

/* Takes an incomplete command over into a kv_partial; consumes from *pos. */
static void begin_partial(struct kv_client *c)
{
    c->partial = kv_partial_create(&block_ops);
    if (c->partial == NULL)
        protocol_error(c, "ERR Protocol error: out of memory for an argument");
}

/* Feeds the partial command and runs it when it is complete. False: nothing more to do now. */
static bool feed_partial(struct kv_client *c, const char **pos, const char *end)
{
    struct kv_parse_limits limits = limits_of(c);
    struct kv_partial *p = c->partial;
    char error[80];
    if (!p->complete) {
        enum kv_parse_status st = kv_partial_feed(p, pos, end, &limits, error);
        if (st == KV_PARSE_ERROR) {
            protocol_error(c, error);
            kv_partial_destroy(p);
            c->partial = NULL;
            return false;
        }
        if (p->held_bytes > c->worker->engine->options.client_query_buffer_limit) {
            over_query_limit(c);
            return false;
        }
        if (st == KV_PARSE_MORE)
            return false;
    }
    struct kv_request r = {.argv = p->argv, .argc = p->argc};
    kv_arena_reset(&c->worker->arena);
    if (kv_dispatch(c, &r, p) == KV_DISPATCH_PARKED)
        return false;
    kv_partial_destroy(p);
    c->partial = NULL;
    return true;
}

/* One batch or one single command; returns the new position. *more is false when the rest must wait
 * for more bytes. */
static const char *run_some(struct kv_client *c, const char *pos, const char *end, bool *more)
{
    struct kv_worker *w = c->worker;
    bool single;
    enum kv_parse_status status = KV_PARSE_MORE;
    kv_arena_reset(&w->arena);
    uint32_t n = plan_batch(c, &pos, end, &single, &status);
    if (KV_LIKELY(n > 0)) {
        uint32_t ran = kv_batch_run(c, n);
        if (KV_UNLIKELY(ran == 0))
            return run_single(c, &w->plan[0].request);
        if (KV_UNLIKELY(ran < n))
            return w->plan[ran].request.start;
    }
    if (single)
        return run_single(c, &w->plan[n].request);
    switch (status) {
    case KV_PARSE_ERROR:
        protocol_error(c, w->plan[n].request.error);
        break;
    case KV_PARSE_LARGE:
        begin_partial(c);
        break;
    case KV_PARSE_MORE:
        *more = false;
        if (end - pos > KV_PARSE_SAVE && *pos == '*') {
            begin_partial(c);
            *more = true;
        }
        break;
    default:
        break;
    }
    return pos;
}

static void keep_leftover(struct kv_client *c, const char *pos, const char *end)
{
    size_t len = (size_t)(end - pos);
    KV_ASSERT(c->in == NULL);
    if (len == 0)
        return;
    c->in = kv_mem_alloc(len, KV_MEM_CLIENT_INPUT);
    memcpy(c->in, pos, len);
    c->in_len = len;
    c->in_capacity = len;
}

/* Executes what is in [pos, end) until it is used up, incomplete, or the client waits. */
static void run_input(struct kv_client *c, const char *pos, const char *end)
{
    bool more = true;
    KV_ASSERT(!c->worker->busy);
    c->worker->busy = true;
    while (more && !(c->flags & SUSPENDED)) {
        if (KV_UNLIKELY(c->partial != NULL)) {
            if (!feed_partial(c, &pos, end))
                break;
        } else if (pos < end) {
            pos = run_some(c, pos, end, &more);
        } else {
            break;
        }
        /* What a transaction has queued is input that has not run yet. */
        if (KV_UNLIKELY(c->tx != NULL)) {
            if (kv_client_multi_memory(c) > c->worker->engine->options.client_query_buffer_limit)
                over_query_limit(c);
            kv_client_limit_touch(c);
        }
        if (KV_UNLIKELY(kv_out_pending(&c->out) > FLUSH_BYTES)) {
            if (!(c->flags & KV_CLIENT_WRITE_WAIT))
                (void)kv_client_send(c);
            kv_client_check_limits(c);
            kv_client_limit_touch(c);
            if (KV_UNLIKELY(kv_commit_concerns(c)))
                kv_commit_park(c);
        }
    }
    c->worker->busy = false;
    if (KV_UNLIKELY(c->park == KV_PARK_ALONE && !(c->flags & KV_CLIENT_PARKED))) {
        /* It got the gate, and then its bytes were no command any more (a limit was lowered). */
        kv_gate_cancel(c->worker, c);
        c->park = KV_PARK_NONE;
    }
    if (!(c->flags & CLOSING))
        keep_leftover(c, pos, end);
}

/* After input was handled: sends, applies limits, and sets what the loop should report. */
static void finish_input(struct kv_client *c)
{
    if (c->flags & KV_CLIENT_VIRTUAL)
        return;
    bool pending = kv_out_pending(&c->out) > 0;
    bool send = (pending || c->flags & KV_CLIENT_CLOSE_AFTER) && !(c->flags & KV_CLIENT_WRITE_WAIT);
    /* One that blocks may be served within the round: one write for both, and limits are for what
     * is left then. */
    bool later = send && c->flags & KV_CLIENT_BLOCKED;
    if (KV_UNLIKELY(later))
        kv_delivery_send_later(c);
    else if (send && !kv_client_send(c))
        return;
    if (c->out.chunk_bytes > KV_CHUNK_BYTES && !later)
        kv_client_check_limits(c);
    if (KV_LIKELY(!(c->flags & KV_CLIENT_READ_OFF)))
        return;
    bool waits = (c->flags & KV_CLIENT_WRITE_WAIT) != 0;
    if (!(c->flags & SUSPENDED)) {
        c->flags &= ~(uint32_t)KV_CLIENT_READ_OFF;
        (void)kv_client_interest(c, true, waits);
    } else if (c->flags & (KV_CLIENT_BLOCKED | KV_CLIENT_PAUSED) && !(c->io.interest & KV_IO_END)) {
        /* Reading was taken back while it was parked for a moment; now it may wait for long. */
        (void)kv_client_interest(c, false, waits);
    }
}

/* Reads once: leftover first, then new bytes behind it; a bulk in progress takes its bytes
 * directly. Returns the length of what is in the shared buffer, or -1 when there is nothing to do.
 */
static ssize_t read_input(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    struct iovec parts[2];
    int count = 0;
    char *dest;
    size_t direct = c->partial != NULL ? kv_partial_space(c->partial, &dest) : 0;
    if (direct > 0)
        parts[count++] = (struct iovec){dest, direct};
    KV_ASSERT(c->in_len <= KV_INPUT_BYTES - KV_READ_BYTES);
    if (c->in_len > 0)
        memcpy(w->input, c->in, c->in_len);
    parts[count++] = (struct iovec){w->input + c->in_len, KV_READ_BYTES};
    size_t len;
    enum kv_err err = kv_socket_read(c->io.fd, parts, count, &len);
    c->io.drained = err == KV_OK && len < direct + KV_READ_BYTES;
    if (err != KV_OK) {
        if (err != KV_ERR_AGAIN)
            kv_client_close_soon(c);
        return -1;
    }
    c->bytes_in += len;
    c->active_ms = w->round_ms;
    kv_stat_add(&w->stats.net_input_bytes, len);
    kv_stat_add(&w->stats.reads, 1);
    if (direct > 0) {
        size_t filled = KV_MIN(len, direct);
        kv_partial_filled(c->partial, filled);
        len -= filled;
    }
    size_t total = c->in_len + len;
    if (c->in != NULL) {
        kv_mem_free(c->in, c->in_capacity, KV_MEM_CLIENT_INPUT);
        c->in = NULL;
        c->in_len = c->in_capacity = 0;
    }
    kv_stat_max(&w->stats.input_buffer_max, total);
    return (ssize_t)total;
}

void kv_client_readable(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    if (KV_UNLIKELY(c->flags & SUSPENDED)) {
        c->flags |= KV_CLIENT_READ_OFF;
        (void)kv_client_interest(c, false, (c->flags & KV_CLIENT_WRITE_WAIT) != 0);
        return;
    }
    /* What other workers have sent must take effect before what this client sends now. */
    if (KV_UNLIKELY(!kv_inbox_empty(&w->inbox) || kv_delivery_pending(w)))
        kv_worker_drain(w);
    ssize_t len = read_input(c);
    if (len < 0)
        return;
    run_input(c, w->input, w->input + len);
    finish_input(c);
}

void kv_client_process(struct kv_client *c)
{
    if (KV_UNLIKELY(c->waiter != NULL)) {
        kv_blocking_retry(c);
        return;
    }
    if (KV_UNLIKELY(c->flags & KV_CLIENT_STAND_IN)) {
        if (c == c->worker->stand_in)
            kv_alone_resume(c);
        else
            kv_errand_resume(c);
        return;
    }
    char *in = c->in;
    size_t len = c->in_len, capacity = c->in_capacity;
    c->in = NULL;
    c->in_len = c->in_capacity = 0;
    run_input(c, in, in + len);
    kv_mem_free(in, capacity, KV_MEM_CLIENT_INPUT);
    finish_input(c);
    kv_client_limit_touch(c);
}

static void handle_events(struct kv_client *c, uint32_t events)
{
    if (events & KV_IO_WRITE && !kv_client_send(c))
        return;
    if (events & KV_IO_READ)
        kv_client_readable(c);
    else if (events & KV_IO_HANGUP)
        kv_client_close_soon(c);
    if ((events & KV_IO_HANGUP && c->flags & SUSPENDED) ||
        (events & KV_IO_END && c->flags & (KV_CLIENT_BLOCKED | KV_CLIENT_PAUSED)))
        kv_client_close_soon(c);
}

void kv_client_handler(struct kv_io *io, uint32_t events)
{
    struct kv_client *c = KV_CONTAINER_OF(io, struct kv_client, io);
    handle_events(c, events);
    kv_client_limit_touch(c);
}

/* --- library use --- */

void kv_client_feed(struct kv_client *c, const char *bytes, size_t len)
{
    KV_ASSERT(c->flags & KV_CLIENT_VIRTUAL);
    if (c->flags & CLOSING)
        return;
    c->bytes_in += len;
    if (c->in_len == 0 && !(c->flags & SUSPENDED)) {
        run_input(c, bytes, bytes + len);
        return;
    }
    size_t total = c->in_len + len;
    c->in = kv_mem_realloc(c->in, c->in_capacity, total, KV_MEM_CLIENT_INPUT);
    memcpy(c->in + c->in_len, bytes, len);
    c->in_len = c->in_capacity = total;
    if (!(c->flags & SUSPENDED))
        kv_client_process(c);
}

bool kv_client_idle(const struct kv_client *c)
{
    if (c->flags & CLOSING)
        return true;
    return !(c->flags & SUSPENDED) && c->in_len == 0 && c->partial == NULL;
}
