/* Blocking commands: waiters, serving, timeouts. The model is in blocking.h.
 *
 * A waiter is one block: the struct, its places in queues, the resolved keys, the arguments and
 * their bytes. Who touches what:
 *   state                       anybody, by compare-and-swap
 *   retrying, told              under the lock of any of its keys' shards, or its worker
 *   places[i]                   linked under the lock of the key's shard; by its worker alone
 *   client, deadline, the rest  its worker; fixed after creation but for `client`
 * A server reads cmd, argv, keys, db and resp of a waiter that it has claimed: they never change.
 *
 * Serving happens where the change happened: at the end of kv_execute, or in kv_release for changes
 * outside of commands. A served command's own changes are appended to the same list, so a chain
 * ends within one step. Replies are posted by kv_release, behind the publishing of the change
 * stream and before the locks go: whoever receives one finds its cause in the stream.
 *
 * When a place is taken out of a queue whose first waiter was told to retry and then left, the
 * others are looked at anew; nobody else would. Likewise a waiter whose second key became ready
 * while somebody claimed it for the first, in vain, is told to look itself.
 *
 * Rejected: waking clients so that they run their command again. Whoever comes between would take
 * what was pushed for them, and the first to wait need not be the first to run.
 */
#include "engine/blocking.h"
#include "base/assert.h"
#include "engine/worker.h"
#include <math.h>

#define READY_KEEP 1024u /* keys whose array stays for the next time */

enum waiter_state {
    WAITING,
    CLAIMED,        /* somebody runs its command */
    CLAIMED_MISSED, /* and another of its keys became ready meanwhile */
    CLAIMED_WANTED, /* and its worker wants it back, should that have been in vain */
    CANCELLED,
};

struct kv_waiter {
    atomic_uint state;    /* enum waiter_state */
    atomic_bool retrying; /* its worker was told to serve its keys behind the gate */
    atomic_bool told;     /* and that message has not arrived yet */
    uint8_t resp;
    uint8_t type;   /* enum kv_type that it wants */
    uint8_t denied; /* enum kv_acl_verdict: its user may not run it any more */
    bool muted;     /* CLIENT REPLY OFF or SKIP: the reply is dropped */
    bool unblocked; /* CLIENT UNBLOCK with ERROR */
    uint32_t db;
    struct kv_client *client; /* NULL: vanished, or not blocked any more */
    struct kv_worker *worker;
    const struct kv_command *cmd;
    struct kv_slice *argv;
    int argc;
    int key_count;             /* of keys */
    int wait_count;            /* the first of them are waited for */
    struct kv_key *keys;       /* bytes within argv */
    int64_t deadline_ms;       /* monotonic; 0: none */
    uint32_t heap_index;       /* in the heap of deadlines, when there is one */
    struct kv_waiter *leaving; /* next of those whose places are taken out */
    size_t block_bytes;        /* requested size of this block */
    struct kv_key_wait places[];
};

struct kv_ready {
    uint32_t db;
    struct kv_key key; /* bytes owned */
};

struct kv_served {
    struct kv_served *next;
    struct kv_waiter *waiter;
    struct kv_out out; /* the reply */
};

size_t kv_waiter_memory(const struct kv_waiter *wt)
{
    return kv_mem_block_size(wt->block_bytes);
}

static bool change_state(struct kv_waiter *wt, unsigned from, unsigned to)
{
    return atomic_compare_exchange_strong(&wt->state, &from, to);
}

/* Its worker ends the wait. False: somebody else has claimed or cancelled it; then a message of
 * theirs ends it, for a claim in vain becomes a cancellation. */
static bool cancel(struct kv_waiter *wt)
{
    for (;;) {
        if (change_state(wt, WAITING, CANCELLED))
            return true;
        if (atomic_load(&wt->state) == CANCELLED || atomic_load(&wt->state) == CLAIMED_WANTED ||
            change_state(wt, CLAIMED, CLAIMED_WANTED) ||
            change_state(wt, CLAIMED_MISSED, CLAIMED_WANTED))
            return false;
    }
}

bool kv_waiter_has_deadline(const struct kv_waiter *wt)
{
    return wt->deadline_ms != 0;
}

/* --- deadlines: a binary heap --- */

static void heap_put(struct kv_blocking *b, uint32_t at, struct kv_waiter *wt)
{
    b->deadlines[at] = wt;
    wt->heap_index = at;
}

static void heap_up(struct kv_blocking *b, uint32_t at, struct kv_waiter *wt)
{
    while (at > 0 && b->deadlines[(at - 1) / 2]->deadline_ms > wt->deadline_ms) {
        heap_put(b, at, b->deadlines[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    heap_put(b, at, wt);
}

static void heap_down(struct kv_blocking *b, uint32_t at, struct kv_waiter *wt)
{
    for (uint32_t child; (child = 2 * at + 1) < b->deadline_len; at = child) {
        if (child + 1 < b->deadline_len &&
            b->deadlines[child + 1]->deadline_ms < b->deadlines[child]->deadline_ms)
            child++;
        if (b->deadlines[child]->deadline_ms >= wt->deadline_ms)
            break;
        heap_put(b, at, b->deadlines[child]);
    }
    heap_put(b, at, wt);
}

static bool heap_reserve(struct kv_blocking *b)
{
    if (b->deadline_len < b->deadline_capacity)
        return true;
    uint32_t capacity = KV_MAX(b->deadline_capacity * 2, 16u);
    struct kv_waiter **grown =
        kv_mem_try_realloc(b->deadlines, b->deadline_capacity * sizeof(*grown),
                           capacity * sizeof(*grown), KV_MEM_CLIENT);
    if (grown == NULL)
        return false;
    b->deadlines = grown;
    b->deadline_capacity = capacity;
    return true;
}

static void heap_trim(struct kv_blocking *b)
{
    if (b->deadline_len != 0)
        return;
    kv_mem_free(b->deadlines, b->deadline_capacity * sizeof(*b->deadlines), KV_MEM_CLIENT);
    b->deadlines = NULL;
    b->deadline_capacity = 0;
}

static void heap_remove(struct kv_blocking *b, struct kv_waiter *wt)
{
    if (wt->deadline_ms == 0)
        return;
    uint32_t at = wt->heap_index;
    KV_ASSERT(at < b->deadline_len && b->deadlines[at] == wt);
    struct kv_waiter *last = b->deadlines[--b->deadline_len];
    wt->deadline_ms = 0;
    if (last != wt) {
        if (at > 0 && b->deadlines[(at - 1) / 2]->deadline_ms > last->deadline_ms)
            heap_up(b, at, last);
        else
            heap_down(b, at, last);
    }
    heap_trim(b);
}

/* --- blocking --- */

bool kv_call_timeout(struct kv_call *call, int arg, int64_t *timeout_ms)
{
    long double seconds;
    if (!kv_ldouble_parse(call->argv[arg], &seconds)) {
        kv_call_error(call, "ERR timeout is not a float or out of range");
        return false;
    }
    if (seconds < 0) {
        kv_call_error(call, "ERR timeout is negative");
        return false;
    }
    /* The deadline, too, must fit; kv_call_wait sees to what passes until then. */
    if (seconds > (long double)INT64_MAX / 1000 - (long double)kv_clock_mono_ns() / 1e6L) {
        kv_call_error(call, "ERR timeout is out of range");
        return false;
    }
    *timeout_ms = (int64_t)ceill(seconds * 1000);
    return true;
}

/* One block with copies of all that serving needs; places are in no queue yet. */
static struct kv_waiter *create_waiter(const struct kv_call *call, int wait_count)
{
    size_t head = sizeof(struct kv_waiter) + (size_t)wait_count * sizeof(struct kv_key_wait);
    size_t keys = (size_t)call->key_count * sizeof(struct kv_key);
    size_t args = (size_t)call->argc * sizeof(struct kv_slice);
    size_t bytes = 0;
    for (int i = 0; i < call->argc; i++)
        bytes += call->argv[i].len;
    for (int i = 0; i < call->key_count; i++)
        bytes += call->keys[i].len;
    struct kv_waiter *wt = kv_mem_try_zalloc(head + keys + args + bytes, KV_MEM_CLIENT);
    if (wt == NULL)
        return NULL;
    wt->block_bytes = head + keys + args + bytes;
    wt->keys = (struct kv_key *)((char *)wt + head);
    wt->argv = (struct kv_slice *)((char *)wt->keys + keys);
    char *to = (char *)wt->argv + args;
    for (int i = 0; i < call->argc; i++) {
        wt->argv[i] = kv_slice(to, call->argv[i].len);
        if (call->argv[i].len != 0)
            memcpy(to, call->argv[i].ptr, call->argv[i].len);
        to += call->argv[i].len;
    }
    for (int i = 0; i < call->key_count; i++) {
        wt->keys[i] = (struct kv_key){to, call->keys[i].len, call->keys[i].hash};
        if (call->keys[i].len != 0)
            memcpy(to, call->keys[i].ptr, call->keys[i].len);
        to += call->keys[i].len;
    }
    return wt;
}

/* Enters all queues, or none. A key that is named twice has one place. */
static bool enter_queues(struct kv_call *call, struct kv_waiter *wt)
{
    for (int i = 0; i < wt->wait_count; i++) {
        struct kv_key_wait *place = &wt->places[i];
        place->waiter = wt;
        if (kv_store_wait(&call->view, &wt->keys[i], place) == KV_OK)
            continue;
        while (--i >= 0)
            if (wt->places[i].record != NULL)
                kv_store_unwait(call->view.store, &wt->places[i]);
        return false;
    }
    return true;
}

bool kv_call_wait(struct kv_call *call, enum kv_type type, int wait_count, int64_t timeout_ms)
{
    struct kv_worker *w = call->worker;
    struct kv_client *c = call->client;
    KV_ASSERT(wait_count > 0 && wait_count <= call->key_count && timeout_ms >= 0);
    if (kv_call_serves(call))
        return true; /* nothing written: it goes on waiting */
    if (call->flags & KV_CALL_IN_EXEC || c->flags & KV_CLIENT_APPLY)
        return false;
    struct kv_waiter *wt = create_waiter(call, wait_count);
    if (wt == NULL || (timeout_ms != 0 && !heap_reserve(&w->blocking))) {
        if (wt != NULL)
            kv_mem_free(wt, wt->block_bytes, KV_MEM_CLIENT);
        kv_call_no_memory(call);
        return true;
    }
    wt->wait_count = wait_count;
    wt->key_count = call->key_count;
    wt->argc = call->argc;
    wt->cmd = call->cmd;
    wt->db = call->view.db;
    wt->resp = c->resp;
    wt->type = (uint8_t)type;
    wt->muted = c->flags & (KV_CLIENT_REPLY_OFF | KV_CLIENT_REPLY_SKIP);
    wt->client = c;
    wt->worker = w;
    if (!enter_queues(call, wt)) {
        kv_mem_free(wt, wt->block_bytes, KV_MEM_CLIENT);
        heap_trim(&w->blocking);
        kv_call_no_memory(call);
        return true;
    }
    if (timeout_ms != 0) {
        int64_t now_ms = (int64_t)((kv_clock_mono_ns() + 999999) / 1000000);
        wt->deadline_ms = now_ms + KV_MIN(timeout_ms, INT64_MAX - now_ms);
        heap_up(&w->blocking, w->blocking.deadline_len++, wt);
    }
    c->waiter = wt;
    c->flags |= KV_CLIENT_BLOCKED;
    return true;
}

/* --- serving --- */

void kv_blocking_ready(struct kv_view *view, const struct kv_key *k)
{
    struct kv_worker *w = view->owner;
    struct kv_blocking *b = &w->blocking;
    if (b->ready_len == b->ready_capacity) {
        uint32_t capacity = KV_MAX(b->ready_capacity * 2, 8u);
        b->ready = kv_mem_realloc(b->ready, b->ready_capacity * sizeof(*b->ready),
                                  capacity * sizeof(*b->ready), KV_MEM_CLIENT);
        b->ready_capacity = capacity;
    }
    char *bytes = kv_mem_alloc(k->len + 1, KV_MEM_CLIENT);
    memcpy(bytes, k->ptr, k->len);
    b->ready[b->ready_len++] = (struct kv_ready){view->db, {bytes, k->len, k->hash}};
}

/* True when all needed keys may be touched now. */
static bool holds_needed(const struct kv_worker *w, const struct kv_waiter *wt)
{
    const struct kv_engine *e = w->engine;
    if (!e->multi || w->call.hold_all)
        return true;
    for (int i = wt->wait_count; i < wt->key_count; i++) {
        uint32_t shard = kv_store_shard_of(e->store, wt->keys[i].hash);
        if (!w->locks.held || !kv_lockset_has(&w->locks, shard))
            return false;
    }
    return true;
}

/* An errand holds one of the waiter's keys (engine/errand.h). */
static bool holds_up(const struct kv_worker *w, const struct kv_waiter *wt)
{
    const struct kv_errands *all = &w->engine->errands;
    return KV_UNLIKELY(all->held != NULL) && kv_errands_hold(all, wt->keys, wt->key_count);
}

/* Runs the waiter's command upon a key; false: it could not be served. */
static bool serve_waiter(struct kv_worker *w, struct kv_waiter *wt, const struct kv_key *ready)
{
    struct kv_served *s = kv_mem_alloc(sizeof(*s), KV_MEM_CLIENT);
    struct kv_call call = w->call;
    int needed = wt->key_count - wt->wait_count;
    struct kv_key *keys = kv_mem_alloc((size_t)(needed + 1) * sizeof(*keys), KV_MEM_CLIENT);
    keys[0] = *ready;
    for (int i = 0; i < needed; i++)
        keys[i + 1] = wt->keys[wt->wait_count + i];
    kv_out_init(&s->out, &w->chunks);
    s->out.resp = wt->resp;
    s->waiter = wt;
    s->next = NULL;
    call.argv = wt->argv;
    call.argc = wt->argc;
    call.flags = KV_CALL_SERVES;
    call.keys = keys;
    call.key_count = needed + 1;
    call.cmd = wt->cmd;
    call.out = &s->out;
    call.client = NULL; /* another worker's, perhaps */
    call.block = NULL;
    call.view.db = wt->db;
    call.view.dirty = 0;
    call.view.now_ms = w->now_ms;
    call.view.flags = 0;
    wt->cmd->fn(&call);
    kv_mem_free(keys, (size_t)(needed + 1) * sizeof(*keys), KV_MEM_CLIENT);
    if (kv_out_pending(&s->out) == 0) {
        kv_out_release(&s->out);
        kv_mem_free(s, sizeof(*s), KV_MEM_CLIENT);
        return false;
    }
    if (call.view.dirty != 0 && !(call.flags & KV_CALL_PROPAGATED) &&
        kv_stream_active(&w->engine->stream))
        kv_stream_add(w, wt->db, wt->argv, wt->argc);
    struct kv_blocking *b = &w->blocking;
    if (b->served_last != NULL)
        b->served_last->next = s;
    else
        b->served_first = s;
    b->served_last = s;
    return true;
}

static void tell_to_retry(struct kv_waiter *wt)
{
    atomic_store(&wt->retrying, true);
    atomic_store(&wt->told, true);
    kv_inbox_post(wt->worker, KV_MSG_RETRY, 0, 0, wt);
}

/* Claims a waiter. False: it has ended, or somebody else has claimed it for another key and knows
 * now that this one is ready too. */
static bool claim(struct kv_waiter *wt)
{
    while (!change_state(wt, WAITING, CLAIMED)) {
        unsigned state = atomic_load(&wt->state);
        if (state == CANCELLED || state == CLAIMED_WANTED || state == CLAIMED_MISSED ||
            (state == CLAIMED && change_state(wt, CLAIMED, CLAIMED_MISSED)))
            return false;
    }
    return true;
}

/* Gives a waiter back that was claimed in vain. */
static void unclaim(struct kv_waiter *wt)
{
    if (change_state(wt, CLAIMED, WAITING))
        return;
    if (change_state(wt, CLAIMED_MISSED, WAITING)) {
        tell_to_retry(wt);
        return;
    }
    KV_ASSERT(atomic_load(&wt->state) == CLAIMED_WANTED);
    atomic_store(&wt->state, CANCELLED);
    kv_inbox_post(wt->worker, KV_MSG_UNBLOCKED, 0, 0, wt);
}

/* A waiter whose key has its type: serves it, or tells its worker to. False: nobody behind it may
 * be served now. */
static bool try_waiter(struct kv_worker *w, struct kv_waiter *wt, const struct kv_key *key)
{
    if (atomic_load(&wt->state) == CANCELLED)
        return true;
    if (atomic_load(&wt->retrying))
        return false;
    if (!holds_needed(w, wt) || holds_up(w, wt)) {
        tell_to_retry(wt);
        return false;
    }
    if (claim(wt) && !serve_waiter(w, wt, key))
        unclaim(wt);
    return true;
}

static void serve_key(struct kv_worker *w, uint32_t db, const struct kv_key *key)
{
    struct kv_view view = w->call.view;
    view.db = db;
    view.flags = KV_VIEW_NO_TOUCH;
    view.now_ms = w->now_ms;
    struct kv_key_wait *next;
    for (struct kv_key_wait *place = kv_store_waiting(&view, key); place != NULL; place = next) {
        const struct kv_entry *e = kv_store_peek(&view, key);
        struct kv_waiter *wt = place->waiter;
        next = place->next;
        if (e == NULL)
            return;
        if (kv_entry_type(e) == (enum kv_type)wt->type && !try_waiter(w, wt, key))
            return;
    }
}

static void free_ready(struct kv_blocking *b)
{
    kv_mem_free(b->ready, b->ready_capacity * sizeof(*b->ready), KV_MEM_CLIENT);
    b->ready = NULL;
    b->ready_capacity = 0;
}

void kv_blocking_serve(struct kv_worker *w)
{
    struct kv_blocking *b = &w->blocking;
    if (b->serving)
        return; /* a served command's changes: the loop below comes to them */
    b->serving = true;
    for (uint32_t i = 0; i < b->ready_len; i++) {
        /* The array may grow meanwhile; the key, too, may become ready again. */
        struct kv_ready r = b->ready[i];
        serve_key(w, r.db, &r.key);
        kv_mem_free((void *)(uintptr_t)r.key.ptr, r.key.len + 1, KV_MEM_CLIENT);
    }
    b->ready_len = 0;
    b->serving = false;
    if (b->ready_capacity > READY_KEEP)
        free_ready(b);
}

void kv_blocking_post(struct kv_worker *w)
{
    struct kv_blocking *b = &w->blocking;
    struct kv_served *next;
    for (struct kv_served *s = b->served_first; s != NULL; s = next) {
        next = s->next;
        kv_inbox_post(s->waiter->worker, KV_MSG_SERVED, 0, 0, s);
    }
    b->served_first = b->served_last = NULL;
}

/* --- leaving --- */

/* Somebody who was told to retry has left the queue of a key: looks at those behind. Its shard is
 * held. */
static void serve_others(struct kv_worker *w, uint32_t db, const struct kv_key *key)
{
    struct kv_view view = w->call.view;
    if (atomic_load_explicit(&w->engine->stopping, memory_order_relaxed))
        return;
    view.db = db;
    w->now_ms = kv_clock_wall_ms();
    kv_blocking_ready(&view, key);
    kv_blocking_serve(w);
    kv_stream_publish(w);
    kv_blocking_post(w);
}

/* Takes places out of their queues; true when none is left. Inside the gate. */
static bool take_out(struct kv_worker *w, struct kv_waiter *wt)
{
    struct kv_engine *e = w->engine;
    bool all = true;
    for (int i = 0; i < wt->wait_count; i++) {
        struct kv_key_wait *place = &wt->places[i];
        if (place->record == NULL)
            continue;
        uint32_t shard = kv_store_shard_of(e->store, wt->keys[i].hash);
        if (e->multi && !kv_shard_try_lock(e, shard)) {
            all = false;
            continue;
        }
        kv_store_unwait(e->store, place);
        if (atomic_load(&wt->retrying))
            serve_others(w, wt->db, &wt->keys[i]);
        if (e->multi)
            kv_shard_unlock(e, shard);
    }
    return all;
}

static void take_out_all(struct kv_worker *w)
{
    struct kv_blocking *b = &w->blocking;
    if (b->leaving == NULL || w->locks.held || w->serving ||
        (w->engine->multi && !kv_gate_enter(w)))
        return;
    struct kv_waiter *kept = NULL, *next;
    for (struct kv_waiter *wt = b->leaving; wt != NULL; wt = next) {
        next = wt->leaving;
        if (take_out(w, wt) && !atomic_load(&wt->told)) {
            kv_mem_free(wt, wt->block_bytes, KV_MEM_CLIENT);
            continue;
        }
        wt->leaving = kept;
        kept = wt;
    }
    b->leaving = kept;
    if (w->engine->multi)
        kv_gate_leave(w);
}

/* The wait has ended one way or the other: nobody else will write to the waiter. */
static void leave(struct kv_worker *w, struct kv_waiter *wt)
{
    heap_remove(&w->blocking, wt);
    wt->leaving = w->blocking.leaving;
    w->blocking.leaving = wt;
    take_out_all(w);
}

/* The client goes on with what it has sent meanwhile. */
static void unblock(struct kv_worker *w, struct kv_client *c)
{
    kv_client_unpark(c);      /* it may wait at the gate to serve itself */
    c->waiter->client = NULL; /* what still comes for the waiter is not the client's */
    c->waiter = NULL;
    c->flags &= ~(uint32_t)KV_CLIENT_BLOCKED;
    kv_worker_resume(w, c);
    kv_client_limit_touch(c);
}

static void reply_error(struct kv_client *c, struct kv_slice text)
{
    kv_call_count_error(c->worker, text);
    kv_reply_error_raw(&c->out, text);
}

/* A cancelled wait: the reply of its end. */
static void end_wait(struct kv_worker *w, struct kv_waiter *wt)
{
    struct kv_client *c = wt->client;
    char text[KV_ACL_REPLY_MAX];
    if (wt->denied != KV_ACL_ALLOWED)
        kv_stat_add(&w->command_stats[wt->cmd->id].rejected, 1);
    if (!wt->muted && wt->denied != KV_ACL_ALLOWED) {
        kv_acl_denial_text((enum kv_acl_verdict)wt->denied, c, wt->cmd, text);
        reply_error(c, kv_slice_cstr(text));
    } else if (!wt->muted && wt->unblocked) {
        reply_error(c, KV_SLICE("UNBLOCKED client unblocked via CLIENT UNBLOCK"));
    } else if (!wt->muted) {
        kv_reply_null_array(&c->out);
    }
    unblock(w, c);
    leave(w, wt);
}

void kv_blocking_leave(struct kv_client *c)
{
    struct kv_waiter *wt = c->waiter;
    struct kv_worker *w = c->worker;
    if (wt == NULL)
        return;
    c->waiter = NULL;
    c->flags &= ~(uint32_t)KV_CLIENT_BLOCKED;
    wt->client = NULL;
    if (cancel(wt))
        leave(w, wt);
}

/* Whoever stands alone ends the wait, whose worker replies and tidies up. */
static bool end_from_outside(struct kv_client *c, bool with_error, enum kv_acl_verdict denied)
{
    struct kv_waiter *wt = c->waiter;
    if (wt == NULL || !change_state(wt, WAITING, CANCELLED))
        return false;
    wt->unblocked = with_error;
    wt->denied = (uint8_t)denied;
    kv_inbox_post(c->worker, KV_MSG_UNBLOCKED, 0, 0, wt);
    return true;
}

bool kv_client_unblock(struct kv_client *c, bool with_error)
{
    if (kv_commit_waits(c))
        return kv_commit_unblock(c, with_error);
    return end_from_outside(c, with_error, KV_ACL_ALLOWED);
}

void kv_blocking_end(struct kv_client *c)
{
    (void)end_from_outside(c, false, KV_ACL_ALLOWED);
}

void kv_blocking_recheck(struct kv_client *c)
{
    const struct kv_waiter *wt = c->waiter;
    if (wt == NULL || atomic_load(&wt->state) != WAITING)
        return;
    enum kv_acl_verdict verdict =
        kv_acl_check_call(c, wt->cmd, wt->argv, wt->argc, KV_ACL_TOPLEVEL);
    if (verdict != KV_ACL_ALLOWED)
        (void)end_from_outside(c, false, verdict);
}

/* --- messages and rounds --- */

void kv_blocking_on_served(struct kv_worker *w, void *served)
{
    struct kv_served *s = served;
    struct kv_waiter *wt = s->waiter;
    struct kv_client *c = wt->client;
    s->out.pool = &w->chunks;
    if (c != NULL) {
        if (!wt->muted) {
            kv_out_settle(&s->out);
            for (const struct kv_chunk *k = s->out.head; k != NULL; k = k->next)
                kv_out_append(&c->out, k->data, k->len);
        }
        kv_commit_note_served(c);
        unblock(w, c);
    }
    leave(w, wt);
    kv_out_release(&s->out);
    kv_mem_free(s, sizeof(*s), KV_MEM_CLIENT);
}

/* Somebody else has cancelled it: CLIENT UNBLOCK, a change of users, or who claimed it in vain when
 * it was to end. */
void kv_blocking_on_unblocked(struct kv_worker *w, void *waiter)
{
    struct kv_waiter *wt = waiter;
    KV_ASSERT(atomic_load(&wt->state) == CANCELLED);
    if (wt->client != NULL)
        end_wait(w, wt);
    else
        leave(w, wt);
}

void kv_blocking_on_retry(struct kv_worker *w, void *waiter)
{
    struct kv_waiter *wt = waiter;
    struct kv_client *c = wt->client;
    atomic_store(&wt->told, false); /* whoever has left is freed by the next round */
    KV_ASSERT(c == NULL || c->waiter == wt);
    if (c != NULL && !(c->flags & (KV_CLIENT_PARKED | KV_CLIENT_PAUSED)))
        kv_worker_resume(w, c);
}

void kv_blocking_retry(struct kv_client *c)
{
    struct kv_worker *w = c->worker;
    struct kv_waiter *wt = c->waiter;
    size_t bytes = 0;
    /* Claimed by somebody just now: if in vain, nobody but us comes back to it. */
    if (!atomic_load(&wt->retrying) || atomic_load(&wt->state) == CANCELLED)
        return;
    if (KV_UNLIKELY(kv_engine_paused(w->engine, kv_clock_wall_ms())) || holds_up(w, wt)) {
        kv_pause_client(c);
        return;
    }
    w->now_ticks = kv_clock_ticks();
    w->now_ms = kv_worker_wall_ms(w, w->now_ticks);
    for (int i = 0; i < wt->argc; i++)
        bytes += wt->argv[i].len;
    kv_arena_reset(&w->arena);
    bool grow = kv_stream_too_small(w->engine, bytes, 1);
    if (KV_UNLIKELY(kv_stream_active(&w->engine->stream)) && !grow &&
        !kv_wait_for_room(c, bytes, 1))
        return;
    enum kv_hold hold = kv_acquire(c, KV_MODE_ALONE);
    if (hold == KV_HOLD_PARKED) {
        kv_stream_settle(w);
        return;
    }
    if (KV_UNLIKELY(grow))
        kv_stream_grow(w->engine, bytes, 1);
    w->call.hold_all = true;
    atomic_store(&wt->retrying, false);
    struct kv_view view = w->call.view;
    view.db = wt->db;
    for (int i = 0; i < wt->wait_count; i++)
        if (wt->places[i].record != NULL)
            kv_blocking_ready(&view, &wt->keys[i]);
    kv_blocking_serve(w);
    w->call.hold_all = false;
    w->now_ticks = kv_clock_ticks();
    kv_release(w, hold);
}

void kv_blocking_round(struct kv_worker *w)
{
    struct kv_blocking *b = &w->blocking;
    while (b->deadline_len != 0 && b->deadlines[0]->deadline_ms <= w->mono_ms) {
        struct kv_waiter *wt = b->deadlines[0];
        heap_remove(b, wt);
        if (cancel(wt))
            end_wait(w, wt);
    }
    take_out_all(w);
}

int64_t kv_blocking_next_ms(const struct kv_worker *w)
{
    const struct kv_blocking *b = &w->blocking;
    if (b->leaving != NULL)
        return 0;
    return b->deadline_len != 0 ? b->deadlines[0]->deadline_ms : INT64_MAX;
}

void kv_blocking_release(struct kv_worker *w)
{
    struct kv_blocking *b = &w->blocking;
    take_out_all(w);
    KV_ASSERT(b->leaving == NULL && b->deadline_len == 0 && b->served_first == NULL);
    KV_ASSERT(b->ready_len == 0);
    free_ready(b);
}
