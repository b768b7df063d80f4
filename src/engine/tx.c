/* Transactions: the queue of a MULTI and the watched keys of a connection.
 *
 * Queued arguments are copied into an arena of the connection, since the read buffer moves on.
 * Sizes come from the client, so every allocation here may fail; the command is then refused and
 * EXEC will abort, as for any command that could not be queued.
 *
 * Watches live in shards; ending them needs the shard's lock. A connection must be able to end them
 * at any time (it may be gone), so nothing waits: shards that are busy, or a closed gate, leave the
 * watch in the worker's list of orphans, which is tried again each round.
 */
#include "engine/transaction.h"
#include "engine/worker.h"

struct kv_tx *kv_tx_get(struct kv_client *c)
{
    if (c->tx == NULL) {
        c->tx = kv_mem_zalloc(sizeof(*c->tx), KV_MEM_CLIENT);
        kv_arena_init(&c->tx->arena, 1024, KV_MEM_CLIENT);
    }
    return c->tx;
}

/* What a watch of a key costs: its own block, and the record with the key, which others that watch
 * the same key may share. The bodies are the store's own; four words, and six words before the
 * key. */
static uint64_t watch_cost(const struct kv_key *key)
{
    return kv_mem_block_size(32) + kv_mem_block_size(48 + key->len);
}

/* Frees the record when neither queue nor watches need it. */
static void maybe_free(struct kv_client *c)
{
    struct kv_tx *tx = c->tx;
    if (tx == NULL || c->flags & KV_CLIENT_MULTI || tx->watch_len > 0)
        return;
    KV_ASSERT(tx->queue_len == 0);
    kv_arena_release(&tx->arena);
    kv_mem_free(tx->queue, tx->queue_capacity * sizeof(*tx->queue), KV_MEM_CLIENT);
    kv_mem_free(tx->watches, tx->watch_capacity * sizeof(*tx->watches), KV_MEM_CLIENT);
    kv_mem_free(tx, sizeof(*tx), KV_MEM_CLIENT);
    c->tx = NULL;
}

void kv_tx_begin(struct kv_client *c)
{
    KV_ASSERT(!(c->flags & KV_CLIENT_MULTI));
    kv_tx_get(c);
    c->flags |= KV_CLIENT_MULTI;
    c->flags &= ~(uint32_t)KV_CLIENT_DIRTY_EXEC;
}

void kv_tx_discard(struct kv_client *c)
{
    c->flags &= ~(uint32_t)(KV_CLIENT_MULTI | KV_CLIENT_DIRTY_EXEC);
    struct kv_tx *tx = c->tx;
    if (tx == NULL)
        return;
    kv_arena_release(&tx->arena);
    kv_mem_free(tx->queue, tx->queue_capacity * sizeof(*tx->queue), KV_MEM_CLIENT);
    tx->queue = NULL;
    tx->queue_len = tx->queue_capacity = 0;
    tx->queue_bytes = 0;
    tx->mode = KV_MODE_FREE;
    tx->writes = false;
    tx->denyoom = false;
    tx->scripts = false;
    maybe_free(c);
}

bool kv_tx_queue(struct kv_client *c, const struct kv_command *cmd, const struct kv_request *r)
{
    struct kv_tx *tx = kv_tx_get(c);
    if (tx->queue_len == tx->queue_capacity) {
        uint32_t capacity = tx->queue_capacity == 0 ? 8 : tx->queue_capacity * 2;
        struct kv_queued *queue = kv_mem_try_realloc(tx->queue, tx->queue_capacity * sizeof(*queue),
                                                     capacity * sizeof(*queue), KV_MEM_CLIENT);
        if (queue == NULL)
            return false;
        tx->queue = queue;
        tx->queue_capacity = capacity;
    }
    size_t bytes = 0;
    for (int i = 0; i < r->argc; i++)
        bytes += r->argv[i].len;
    size_t table = (size_t)r->argc * sizeof(struct kv_slice);
    char *space = kv_arena_try_alloc(&tx->arena, table + bytes);
    if (space == NULL)
        return false;
    struct kv_slice *argv = (struct kv_slice *)space;
    char *to = space + table;
    for (int i = 0; i < r->argc; i++) {
        argv[i] = kv_slice(to, r->argv[i].len);
        if (r->argv[i].len > 0)
            memcpy(to, r->argv[i].ptr, r->argv[i].len);
        to += r->argv[i].len;
    }
    tx->queue[tx->queue_len++] =
        (struct kv_queued){.cmd = cmd, .argv = argv, .argc = r->argc, .bytes = (uint32_t)bytes};
    tx->queue_bytes += bytes + 32 * (uint64_t)r->argc;
    /* A command that visits shards one by one holds them all inside a transaction. */
    enum kv_cmd_mode mode = kv_command_mode(cmd, argv, r->argc);
    if (mode == KV_MODE_SHARDS || cmd->flags & KV_CMD_SCRIPT)
        mode = KV_MODE_ALONE;
    tx->mode = KV_MAX(tx->mode, (uint8_t)mode);
    tx->writes |= (cmd->flags & (KV_CMD_WRITE | KV_CMD_SCRIPT)) != 0;
    tx->denyoom |= (cmd->flags & KV_CMD_DENYOOM) != 0;
    tx->scripts |= (cmd->flags & KV_CMD_SCRIPT) != 0;
    return true;
}

enum kv_err kv_tx_watch(struct kv_call *call)
{
    struct kv_tx *tx = kv_tx_get(call->client);
    for (int i = 0; i < call->key_count; i++) {
        const struct kv_key *key = &call->keys[i];
        bool known = false;
        for (uint32_t j = 0; j < tx->watch_len && !known; j++)
            known = kv_watch_same(tx->watches[j].watch, call->view.db, key);
        if (known)
            continue;
        if (tx->watch_len == tx->watch_capacity) {
            uint32_t capacity = tx->watch_capacity == 0 ? 4 : tx->watch_capacity * 2;
            struct kv_watched *watches =
                kv_mem_try_realloc(tx->watches, tx->watch_capacity * sizeof(*watches),
                                   capacity * sizeof(*watches), KV_MEM_CLIENT);
            if (watches == NULL)
                return KV_ERR_NOMEM;
            tx->watches = watches;
            tx->watch_capacity = capacity;
        }
        /* Its time to live may not be its last one. Beside a script nothing may be removed. */
        if (KV_UNLIKELY(kv_engine_loading(call->engine) || call->worker->serving))
            call->view.flags |= KV_VIEW_NO_EXPIRE;
        enum kv_err err = kv_store_watch(&call->view, key, &tx->watches[tx->watch_len].watch);
        if (err != KV_OK)
            return err;
        tx->watch_len++;
        tx->watch_bytes += watch_cost(key);
    }
    maybe_free(call->client);
    return KV_OK;
}

void kv_tx_unwatch_held(struct kv_client *c)
{
    struct kv_tx *tx = c->tx;
    if (tx == NULL)
        return;
    for (uint32_t i = 0; i < tx->watch_len; i++)
        kv_store_unwatch(c->worker->engine->store, tx->watches[i].watch);
    tx->watch_len = 0;
    tx->watch_bytes = 0;
    maybe_free(c);
}

static void add_orphan(struct kv_worker *w, struct kv_watch *watch)
{
    if (w->orphan_len == w->orphan_capacity) {
        uint32_t capacity = w->orphan_capacity == 0 ? 16 : w->orphan_capacity * 2;
        w->orphans = kv_mem_realloc(w->orphans, w->orphan_capacity * sizeof(*w->orphans),
                                    capacity * sizeof(*w->orphans), KV_MEM_WATCH);
        w->orphan_capacity = capacity;
    }
    w->orphans[w->orphan_len++] = watch;
}

void kv_worker_release_orphans(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    if (w->orphan_len == 0 || w->serving || (e->multi && !kv_gate_enter(w)))
        return;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < w->orphan_len; i++) {
        uint32_t shard = kv_watch_shard(w->orphans[i]);
        if (e->multi && !kv_shard_try_lock(e, shard)) {
            w->orphans[kept++] = w->orphans[i];
            continue;
        }
        kv_store_unwatch(e->store, w->orphans[i]);
        if (e->multi)
            kv_shard_unlock(e, shard);
    }
    w->orphan_len = kept;
    if (e->multi)
        kv_gate_leave(w);
    if (kept == 0 && w->orphan_capacity > 0) {
        kv_mem_free(w->orphans, w->orphan_capacity * sizeof(*w->orphans), KV_MEM_WATCH);
        w->orphans = NULL;
        w->orphan_capacity = 0;
    }
}

void kv_tx_unwatch_all(struct kv_client *c)
{
    struct kv_tx *tx = c->tx;
    if (tx == NULL)
        return;
    if (tx->watch_len == 0) {
        maybe_free(c);
        return;
    }
    KV_ASSERT(!c->worker->locks.held);
    for (uint32_t i = 0; i < tx->watch_len; i++)
        add_orphan(c->worker, tx->watches[i].watch);
    tx->watch_len = 0;
    tx->watch_bytes = 0;
    maybe_free(c);
    kv_worker_release_orphans(c->worker);
}

int kv_client_multi_length(const struct kv_client *c)
{
    return c->flags & KV_CLIENT_MULTI ? (int)c->tx->queue_len : -1;
}

int kv_client_watch_count(const struct kv_client *c)
{
    return c->tx != NULL ? (int)c->tx->watch_len : 0;
}

size_t kv_client_multi_memory(const struct kv_client *c)
{
    return c->flags & KV_CLIENT_MULTI ? (size_t)c->tx->queue_bytes : 0;
}

size_t kv_tx_memory(const struct kv_client *c)
{
    const struct kv_tx *tx = c->tx;
    if (tx == NULL)
        return 0;
    size_t sum = kv_mem_block_size(sizeof(*tx)) + tx->arena.used_bytes + tx->watch_bytes;
    if (tx->queue_capacity > 0)
        sum += kv_mem_block_size(tx->queue_capacity * sizeof(*tx->queue));
    if (tx->watch_capacity > 0)
        sum += kv_mem_block_size(tx->watch_capacity * sizeof(*tx->watches));
    return sum;
}
