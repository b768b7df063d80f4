/* Trackers, targets and prefixes, and telling them: the model is in tracking.h.
 *
 *   kv_tracking.registry -> kv_tracking_client, by the client's id
 *   kv_tracking.prefixes -> kv_tracking_prefix -> members, by name
 *   kv_tracking.lengths     lengths that prefixes have: a key is looked up once for each of them
 *
 * What is posted carries the receiver's id; its worker looks it up when it delivers, for the client
 * may have gone meanwhile. The payload is the list of keys alone, since what precedes it depends on
 * the receiver's protocol and on whether it is a target.
 *
 * A command may announce several events of one key (SET with a time: two). Those by prefix hear of
 * it once: the worker notes the hash of the last key that it told them of, and the view counts the
 * command's changes.
 *
 * Rejected: collecting the changes of a round into one message for those by prefix, as the
 * reference does: whoever has seen a reply would not find them told. Rejected for prefixes: a radix
 * tree; few lengths are in use at a time. What that costs at worst: beside a client with 1,024
 * prefixes of as many lengths about 64 KB, a SET of a key of 66 KB hashes 64 MB, which takes 21 ms.
 */
#include "engine/tracking.h"
#include "base/number.h"
#include "engine/delivery.h"
#include "engine/notify.h"
#include "engine/pubsub.h"
#include "engine/worker.h"

struct kv_tracking_prefix {
    uint64_t hash;
    struct kv_tracking_client **members; /* owned block of capacity */
    uint32_t count, capacity;
    uint32_t len;
    char name[];
};

static void lock(const struct kv_engine *e)
{
    if (e->multi)
        kv_mutex_lock((struct kv_mutex *)(uintptr_t)&e->tracking.mutex);
}

static void unlock(const struct kv_engine *e)
{
    if (e->multi)
        kv_mutex_unlock((struct kv_mutex *)(uintptr_t)&e->tracking.mutex);
}

/* --- tables --- */

static uint64_t hash_id(uint64_t id)
{
    uint64_t h = id * 0x9e3779b97f4a7c15ull;
    return (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
}

static uint64_t hash_of_client(const void *item, void *arg)
{
    (void)arg;
    return hash_id(((const struct kv_tracking_client *)item)->id);
}

static bool has_id(const void *item, const void *key)
{
    return ((const struct kv_tracking_client *)item)->id == *(const uint64_t *)key;
}

static struct kv_tracking_client *find_client(const struct kv_engine *e, uint64_t id)
{
    const struct kv_table *t = &e->tracking.registry;
    return t->count != 0 ? kv_table_find(t, hash_id(id), has_id, &id) : NULL;
}

static uint64_t hash_of_prefix(const void *item, void *arg)
{
    (void)arg;
    return ((const struct kv_tracking_prefix *)item)->hash;
}

static bool has_name(const void *item, const void *key)
{
    return kv_slice_equal(kv_tracking_prefix_name(item), *(const struct kv_slice *)key);
}

static struct kv_tracking_prefix *find_prefix(const struct kv_engine *e, uint64_t hash,
                                              struct kv_slice name)
{
    const struct kv_table *t = &e->tracking.prefixes;
    return t->count != 0 ? kv_table_find(t, hash, has_name, &name) : NULL;
}

struct kv_slice kv_tracking_prefix_name(const struct kv_tracking_prefix *p)
{
    return kv_slice(p->name, p->len);
}

void kv_tracking_init(struct kv_engine *e)
{
    struct kv_tracking *tr = &e->tracking;
    kv_mutex_init(&tr->mutex, KV_RANK_TRACKING);
    kv_table_init(&tr->registry, hash_of_client, NULL, KV_MEM_CLIENT);
    kv_table_init(&tr->prefixes, hash_of_prefix, NULL, KV_MEM_CLIENT);
    kv_tracking_init_tables(e);
}

void kv_tracking_release(struct kv_engine *e)
{
    struct kv_tracking *tr = &e->tracking;
    KV_ASSERT(tr->registry.count == 0 && tr->prefixes.count == 0 && tr->length_count == 0);
    kv_tracking_drop_all(e);
    kv_mem_free(tr->shards, e->shard_count * sizeof(*tr->shards), KV_MEM_OTHER);
    kv_table_release(&tr->registry);
    kv_table_release(&tr->prefixes);
    kv_mem_free(tr->lengths, tr->length_capacity * sizeof(*tr->lengths), KV_MEM_CLIENT);
    kv_mutex_release(&tr->mutex);
}

/* --- prefixes, under the mutex --- */

static struct kv_tracking_length *find_length(struct kv_tracking *tr, size_t len)
{
    for (uint32_t i = 0; i < tr->length_count; i++)
        if (tr->lengths[i].len == len)
            return &tr->lengths[i];
    return NULL;
}

static bool add_length(struct kv_tracking *tr, size_t len)
{
    struct kv_tracking_length *have = find_length(tr, len);
    if (have != NULL) {
        have->count++;
        return true;
    }
    if (tr->length_count == tr->length_capacity) {
        uint32_t capacity = KV_MAX(tr->length_capacity * 2, 8u);
        void *wider = kv_mem_try_realloc(tr->lengths, tr->length_capacity * sizeof(*tr->lengths),
                                         capacity * sizeof(*tr->lengths), KV_MEM_CLIENT);
        if (wider == NULL)
            return false;
        tr->lengths = wider;
        tr->length_capacity = capacity;
    }
    tr->lengths[tr->length_count++] = (struct kv_tracking_length){len, 1};
    return true;
}

static void remove_length(struct kv_tracking *tr, size_t len)
{
    struct kv_tracking_length *have = find_length(tr, len);
    KV_ASSERT(have != NULL && have->count > 0);
    if (--have->count == 0)
        *have = tr->lengths[--tr->length_count];
    if (tr->length_count == 0) {
        kv_mem_free(tr->lengths, tr->length_capacity * sizeof(*tr->lengths), KV_MEM_CLIENT);
        tr->lengths = NULL;
        tr->length_capacity = 0;
    }
}

static void free_prefix(struct kv_tracking_prefix *p)
{
    kv_mem_free(p->members, p->capacity * sizeof(struct kv_tracking_client *), KV_MEM_CLIENT);
    kv_mem_free(p, sizeof(*p) + p->len, KV_MEM_CLIENT);
}

/* The prefix of a name, made when it is missing; NULL: no memory. */
static struct kv_tracking_prefix *get_prefix(struct kv_engine *e, struct kv_slice name)
{
    struct kv_tracking *tr = &e->tracking;
    uint64_t hash = kv_store_hash(e->store, name.ptr, name.len);
    struct kv_tracking_prefix *p = find_prefix(e, hash, name);
    if (p != NULL)
        return p;
    p = name.len <= UINT32_MAX ? kv_mem_try_zalloc(sizeof(*p) + name.len, KV_MEM_CLIENT) : NULL;
    if (p == NULL)
        return NULL;
    p->hash = hash;
    p->len = (uint32_t)name.len;
    if (name.len != 0)
        memcpy(p->name, name.ptr, name.len);
    if (!add_length(tr, name.len)) {
        free_prefix(p);
        return NULL;
    }
    if (kv_table_insert(&tr->prefixes, hash, p) != KV_OK) {
        remove_length(tr, name.len);
        free_prefix(p);
        return NULL;
    }
    atomic_store(&tr->prefix_count, tr->prefixes.count);
    return p;
}

static void drop_prefix(struct kv_engine *e, struct kv_tracking_prefix *p)
{
    struct kv_tracking *tr = &e->tracking;
    if (p->count != 0)
        return;
    kv_table_remove(&tr->prefixes, p->hash, p);
    if (tr->prefixes.count == 0)
        kv_table_release(&tr->prefixes);
    atomic_store(&tr->prefix_count, tr->prefixes.count);
    remove_length(tr, p->len);
    free_prefix(p);
}

static void leave_prefix(struct kv_engine *e, struct kv_tracking_prefix *p,
                         const struct kv_tracking_client *tc)
{
    uint32_t at = 0;
    while (p->members[at] != tc)
        KV_ASSERT(++at < p->count);
    p->members[at] = p->members[--p->count];
    drop_prefix(e, p);
}

/* NULL: no memory, nothing changed. */
static struct kv_tracking_prefix *join_prefix(struct kv_engine *e, struct kv_slice name,
                                              struct kv_tracking_client *tc)
{
    struct kv_tracking_prefix *p = get_prefix(e, name);
    if (p == NULL)
        return NULL;
    if (p->count == p->capacity) {
        uint32_t capacity = KV_MAX(p->capacity * 2, 2u);
        void *wider = kv_mem_try_realloc(p->members, p->capacity * sizeof(tc),
                                         capacity * sizeof(tc), KV_MEM_CLIENT);
        if (wider == NULL) {
            drop_prefix(e, p);
            return NULL;
        }
        p->members = wider;
        p->capacity = capacity;
    }
    p->members[p->count++] = tc;
    return p;
}

/* Puts the prefix into the client's list, in order. */
static void list_prefix(struct kv_tracking_client *tc, struct kv_tracking_prefix *p)
{
    uint32_t at = tc->prefix_count++;
    struct kv_slice name = kv_tracking_prefix_name(p);
    while (at > 0 && kv_slice_compare(kv_tracking_prefix_name(tc->prefixes[at - 1]), name) > 0) {
        tc->prefixes[at] = tc->prefixes[at - 1];
        at--;
    }
    tc->prefixes[at] = p;
}

/* All or none. */
static enum kv_err join_prefixes(struct kv_engine *e, struct kv_tracking_client *tc,
                                 const struct kv_slice *names, uint32_t count)
{
    size_t before = tc->prefix_count * sizeof(*tc->prefixes);
    size_t after = before + count * sizeof(*tc->prefixes);
    if (count == 0)
        return KV_OK;
    struct kv_tracking_prefix **joined = kv_mem_try_alloc(after, KV_MEM_CLIENT);
    if (joined == NULL)
        return KV_ERR_NOMEM;
    for (uint32_t i = 0; i < count; i++) {
        joined[i] = join_prefix(e, names[i], tc);
        if (joined[i] != NULL)
            continue;
        while (i-- > 0)
            leave_prefix(e, joined[i], tc);
        kv_mem_free(joined, after, KV_MEM_CLIENT);
        return KV_ERR_NOMEM;
    }
    /* The block becomes the list: first the new ones at its end, then all in order. */
    struct kv_tracking_prefix **old = tc->prefixes;
    uint32_t old_count = tc->prefix_count;
    memmove(joined + old_count, joined, count * sizeof(*joined));
    tc->prefixes = joined;
    tc->prefix_count = 0;
    for (uint32_t i = 0; i < old_count; i++)
        list_prefix(tc, old[i]);
    for (uint32_t i = 0; i < count; i++)
        list_prefix(tc, joined[old_count + i]);
    kv_mem_free(old, before, KV_MEM_CLIENT);
    return KV_OK;
}

/* --- clients --- */

static void count_bytes(struct kv_tracking_client *tc)
{
    size_t bytes = kv_mem_block_size(sizeof(*tc));
    if (tc->prefix_count != 0)
        bytes += kv_mem_block_size(tc->prefix_count * sizeof(*tc->prefixes));
    tc->client->base_bytes += bytes - tc->bytes;
    tc->bytes = bytes;
}

/* Registers a client; *enrolled tells that it was not yet. False: no memory. */
static bool enroll(struct kv_client *c, bool *enrolled)
{
    struct kv_engine *e = c->worker->engine;
    *enrolled = false;
    if (c->tracking != NULL)
        return true;
    struct kv_tracking_client *tc = kv_mem_try_zalloc(sizeof(*tc), KV_MEM_CLIENT);
    if (tc == NULL)
        return false;
    tc->client = c;
    tc->id = c->id;
    if (kv_table_insert(&e->tracking.registry, hash_id(c->id), tc) != KV_OK) {
        kv_mem_free(tc, sizeof(*tc), KV_MEM_CLIENT);
        if (e->tracking.registry.count == 0)
            kv_table_release(&e->tracking.registry);
        return false;
    }
    c->tracking = tc;
    count_bytes(tc);
    *enrolled = true;
    return true;
}

static void dismiss(struct kv_client *c)
{
    struct kv_engine *e = c->worker->engine;
    struct kv_tracking_client *tc = c->tracking;
    KV_ASSERT(tc->flags == 0 && tc->prefixes == NULL);
    kv_table_remove(&e->tracking.registry, hash_id(tc->id), tc);
    if (e->tracking.registry.count == 0)
        kv_table_release(&e->tracking.registry);
    c->base_bytes -= tc->bytes;
    c->tracking = NULL;
    kv_mem_free(tc, sizeof(*tc), KV_MEM_CLIENT);
}

static void set_flags(struct kv_engine *e, struct kv_tracking_client *tc, uint32_t flags)
{
    struct kv_tracking *tr = &e->tracking;
    uint32_t changed = tc->flags ^ flags;
    if (changed & KV_TRACKING_ON)
        atomic_fetch_add(&tr->clients, flags & KV_TRACKING_ON ? 1u : UINT32_MAX);
    if (changed & KV_TRACKING_BCAST)
        atomic_fetch_add(&tr->broadcast, flags & KV_TRACKING_BCAST ? 1u : UINT32_MAX);
    tc->flags = flags;
    if (flags & KV_TRACKING_ON)
        tc->client->flags |= KV_CLIENT_TRACKING;
    else
        tc->client->flags &= ~(uint32_t)KV_CLIENT_TRACKING;
}

enum kv_err kv_tracking_begin(struct kv_client *c, const struct kv_tracking_request *r,
                              struct kv_client *target)
{
    struct kv_engine *e = c->worker->engine;
    bool new_client, new_target = false;
    if (!enroll(c, &new_client))
        return KV_ERR_NOMEM;
    enum kv_err err = target == NULL || enroll(target, &new_target) ? KV_OK : KV_ERR_NOMEM;
    if (err == KV_OK)
        err = join_prefixes(e, c->tracking, r->prefixes, r->prefix_count);
    if (err != KV_OK) {
        if (new_target)
            dismiss(target);
        if (new_client)
            dismiss(c);
        return err;
    }
    if (new_target)
        kv_client_limit_recount(target, kv_client_memory(target));
    c->tracking->redirect = r->redirect;
    set_flags(e, c->tracking, r->flags | KV_TRACKING_ON);
    count_bytes(c->tracking);
    kv_notify_apply(e);
    return KV_OK;
}

void kv_tracking_end(struct kv_client *c)
{
    struct kv_tracking_client *tc = c->tracking;
    struct kv_engine *e = c->worker->engine;
    if (tc == NULL || !(tc->flags & KV_TRACKING_ON))
        return;
    bool has_read = !(tc->flags & KV_TRACKING_BCAST);
    lock(e);
    for (uint32_t i = 0; i < tc->prefix_count; i++)
        leave_prefix(e, tc->prefixes[i], tc);
    kv_mem_free(tc->prefixes, tc->prefix_count * sizeof(*tc->prefixes), KV_MEM_CLIENT);
    tc->prefixes = NULL;
    tc->prefix_count = 0;
    tc->redirect = 0;
    set_flags(e, tc, 0);
    count_bytes(tc);
    unlock(e);
    if (has_read)
        atomic_fetch_add(&e->tracking.departed, 1);
}

void kv_tracking_off(struct kv_client *c)
{
    kv_tracking_end(c);
    kv_notify_apply(c->worker->engine);
}

void kv_tracking_forget(struct kv_client *c)
{
    struct kv_engine *e = c->worker->engine;
    if (c->tracking == NULL)
        return;
    kv_tracking_end(c);
    lock(e);
    dismiss(c);
    unlock(e);
}

uint32_t kv_tracking_flags(const struct kv_client *c)
{
    return c->tracking != NULL ? c->tracking->flags : 0;
}

static void change_flags(struct kv_client *c, uint32_t set, uint32_t clear)
{
    const struct kv_engine *e = c->worker->engine;
    lock(e);
    c->tracking->flags = (c->tracking->flags | set) & ~clear;
    unlock(e);
}

void kv_tracking_set_caching(struct kv_client *c)
{
    KV_ASSERT(kv_tracking_flags(c) & KV_TRACKING_ON);
    change_flags(c, KV_TRACKING_CACHING, 0);
}

uint32_t kv_tracking_living(struct kv_engine *e, uint64_t *ids, uint32_t count)
{
    uint32_t living = 0;
    lock(e);
    for (uint32_t i = 0; i < count; i++) {
        const struct kv_tracking_client *tc = find_client(e, ids[i]);
        if (tc != NULL && (tc->flags & (KV_TRACKING_ON | KV_TRACKING_BCAST)) == KV_TRACKING_ON)
            ids[living++] = ids[i];
    }
    unlock(e);
    return living;
}

void kv_tracking_count(struct kv_engine *e, struct kv_tracking_counts *out)
{
    struct kv_tracking *tr = &e->tracking;
    *out =
        (struct kv_tracking_counts){atomic_load(&tr->clients), atomic_load(&tr->key_count),
                                    atomic_load(&tr->item_count), atomic_load(&tr->prefix_count)};
}

/* --- posting, under the mutex --- */

struct telling {
    struct kv_worker *from;
    struct kv_slice key;
    const struct kv_client *origin; /* whose command it was, or NULL */
    struct kv_payload *payload;     /* once it is needed */
    bool all;                       /* everything is to be forgotten; no key */
};

static void post(struct telling *t, const struct kv_tracking_client *to, bool redirected)
{
    static const struct kv_slice head = {"*1\r\n", 4};
    void *target = (void *)(uintptr_t)to->id;
    enum kv_delivery_kind kind = t->all ? KV_DELIVER_ALL : KV_DELIVER_KEYS;
    if (redirected)
        kind = t->all ? KV_DELIVER_ALL_REDIRECTED : KV_DELIVER_KEYS_REDIRECTED;
    if (!t->all && t->payload == NULL) {
        t->payload = kv_payload_try_create(head.len + kv_payload_bulk_len(t->key.len));
        if (t->payload != NULL) {
            memcpy(t->payload->bytes, head.ptr, head.len);
            kv_payload_write_bulk(t->payload->bytes + head.len, t->key);
        }
    }
    if (!t->all && t->payload == NULL)
        kind = KV_DELIVER_LOST;
    kv_delivery_post(t->from, to->client->worker, kind, target, t->payload);
}

static void tell(struct telling *t, const struct kv_tracking_client *tc)
{
    const struct kv_engine *e = t->from->engine;
    if (tc->flags & KV_TRACKING_NOLOOP && t->origin == tc->client)
        return;
    if (tc->redirect == 0) {
        post(t, tc, false);
        return;
    }
    const struct kv_tracking_client *target = find_client(e, tc->redirect);
    if (target != NULL)
        post(t, target, true);
    else
        kv_delivery_post(t->from, tc->client->worker, KV_DELIVER_BROKEN, (void *)(uintptr_t)tc->id,
                         NULL);
}

static void end_telling(struct telling *t)
{
    if (t->payload != NULL)
        kv_payload_unref(t->payload);
}

void kv_tracking_tell(struct kv_worker *w, const uint64_t *ids, uint32_t count, struct kv_slice key,
                      const struct kv_client *origin)
{
    const struct kv_engine *e = w->engine;
    struct telling t = {.from = w, .key = key, .origin = origin};
    lock(e);
    for (uint32_t i = 0; i < count; i++) {
        const struct kv_tracking_client *tc = find_client(e, ids[i]);
        if (tc != NULL && (tc->flags & (KV_TRACKING_ON | KV_TRACKING_BCAST)) == KV_TRACKING_ON)
            tell(&t, tc);
    }
    unlock(e);
    end_telling(&t);
}

static void tell_everything(void *item, void *arg)
{
    const struct kv_tracking_client *tc = item;
    if (tc->flags & KV_TRACKING_ON)
        tell(arg, tc);
}

void kv_tracking_flushed(struct kv_worker *w)
{
    struct kv_engine *e = w->engine;
    struct telling t = {.from = w, .all = true};
    if (atomic_load(&e->tracking.clients) == 0 && atomic_load(&e->tracking.key_count) == 0)
        return;
    lock(e);
    kv_table_each(&e->tracking.registry, tell_everything, &t);
    unlock(e);
    kv_tracking_drop_all(e);
}

/* --- changes --- */

static void tell_prefixes(struct kv_worker *w, const struct kv_key *key,
                          const struct kv_client *origin)
{
    struct kv_engine *e = w->engine;
    struct kv_tracking *tr = &e->tracking;
    struct telling t = {.from = w, .key = kv_slice(key->ptr, key->len), .origin = origin};
    lock(e);
    for (uint32_t i = 0; i < tr->length_count; i++) {
        size_t len = tr->lengths[i].len;
        if (len > key->len)
            continue;
        const struct kv_tracking_prefix *p =
            find_prefix(e, kv_store_hash(e->store, key->ptr, len), kv_slice(key->ptr, len));
        for (uint32_t j = 0; p != NULL && j < p->count; j++)
            tell(&t, p->members[j]);
    }
    unlock(e);
    end_telling(&t);
}

void kv_tracking_changed(struct kv_view *view, const struct kv_key *key,
                         enum kv_event_class event_class)
{
    struct kv_worker *w = view->owner;
    struct kv_tracking *tr = &w->engine->tracking;
    if (atomic_load_explicit(&tr->clients, memory_order_relaxed) == 0)
        return;
    /* What is removed because it is due, or to make room, is nobody's change. */
    bool commanded = w->busy && !(view->flags & KV_VIEW_DUE) &&
                     !(event_class & (KV_EVENT_EXPIRED | KV_EVENT_EVICTED));
    const struct kv_client *origin = commanded ? w->call.client : NULL;
    kv_tracking_invalidate(w, key, origin);
    if (atomic_load_explicit(&tr->broadcast, memory_order_relaxed) == 0)
        return;
    /* A further change of the same command, told of the same key: this one is counted already. */
    if (commanded && view->dirty > 1 && w->told_hash == key->hash)
        return;
    w->told_hash = key->hash;
    tell_prefixes(w, key, origin);
}

/* --- reading --- */

void kv_tracking_ran(struct kv_call *call)
{
    struct kv_client *c = call->client;
    struct kv_worker *w = call->worker;
    uint32_t flags = kv_tracking_flags(c);
    if (!(flags & KV_TRACKING_ON))
        return;
    bool wanted = (call->cmd->flags & (KV_CMD_READONLY | KV_CMD_SCRIPT)) == KV_CMD_READONLY &&
                  !(flags & KV_TRACKING_BCAST);
    if (flags & KV_TRACKING_OPTIN)
        wanted = wanted && flags & KV_TRACKING_CACHING;
    if (flags & KV_TRACKING_OPTOUT)
        wanted = wanted && !(flags & KV_TRACKING_CACHING);
    for (int i = 0; wanted && i < call->key_count; i++)
        if (kv_tracking_remember(w, &call->keys[i], c->id) != KV_OK)
            kv_tracking_tell(w, &c->id, 1, kv_slice(call->keys[i].ptr, call->keys[i].len), NULL);
    if (!(call->flags & KV_CALL_IN_EXEC) && !(c->flags & KV_CLIENT_MULTI) &&
        call->cmd->parent != w->engine->cmd_client)
        kv_tracking_end_caching(c);
}

void kv_tracking_end_caching(struct kv_client *c)
{
    if (kv_tracking_flags(c) & KV_TRACKING_CACHING)
        change_flags(c, 0, KV_TRACKING_CACHING);
}

/* --- delivering --- */

static void give(struct kv_client *c, const char *head, struct kv_payload *payload)
{
    struct kv_slice piece = kv_slice_cstr(head);
    kv_delivery_give(c, &piece, 1, payload);
}

#define PUSH_HEAD ">2\r\n$10\r\ninvalidate\r\n"
#define MESSAGE_HEAD "*3\r\n$7\r\nmessage\r\n$20\r\n__redis__:invalidate\r\n"

/* The target of the client has gone. */
static void give_broken(struct kv_client *c)
{
    char text[KV_INT_TEXT_MAX + 48] = ">2\r\n$21\r\ntracking-redir-broken\r\n:";
    size_t len = strlen(text);
    change_flags(c, KV_TRACKING_BROKEN, 0);
    if (c->resp != 3)
        return;
    len += kv_uint_print(c->tracking->redirect, text + len);
    memcpy(text + len, "\r\n", 3);
    give(c, text, NULL);
}

void kv_tracking_deliver(struct kv_worker *w, const struct kv_delivery *d)
{
    const struct kv_engine *e = w->engine;
    lock(e);
    struct kv_tracking_client *tc = find_client(e, (uint64_t)(uintptr_t)d->target);
    unlock(e);
    if (tc == NULL)
        return; /* it has gone */
    struct kv_client *c = tc->client;
    KV_ASSERT(c->worker == w);
    bool redirected = d->kind == KV_DELIVER_KEYS_REDIRECTED || d->kind == KV_DELIVER_ALL_REDIRECTED;
    if (d->kind == KV_DELIVER_LOST) {
        kv_client_close_soon(c);
    } else if (d->kind == KV_DELIVER_BROKEN) {
        if (tc->flags & KV_TRACKING_ON)
            give_broken(c);
    } else if (c->resp == 3) {
        give(c, d->payload != NULL ? PUSH_HEAD : PUSH_HEAD "_\r\n", d->payload);
    } else if (redirected && c->subscriber != NULL) {
        give(c, d->payload != NULL ? MESSAGE_HEAD : MESSAGE_HEAD "*-1\r\n", d->payload);
    }
}
