/* Channels and subscriptions: the model is in pubsub.h.
 *
 *   kv_channel_set.channels -> kv_channel -> parts (one for each worker that has subscribers)
 *   kv_channel_part         -> subscriptions of that worker's clients, oldest first
 *   kv_subscriber.kinds[]   -> subscriptions of one client
 *   kv_worker.subscriptions -> table of the same, by channel and client
 *
 * A delivery names the part it is for, so a message reaches its receivers without a look-up, and
 * the walk over a part is a walk over a list of its worker's own. With one worker there is one set
 * and nothing is locked.
 *
 * A channel's name is kept as the bulk string that messages of a pattern carry.
 *
 * Rejected: one table of channels for each worker, since a publisher would have to ask all of them;
 * numbering messages so that a subscription could tell those before it: emptying the mailbox under
 * the lock needs no field in any of them. Rejected for patterns: an index by their literal prefix;
 * few servers have more than a handful, and matching fails at the first byte that differs.
 */
#include "engine/pubsub.h"
#include "base/glob.h"
#include "engine/delivery.h"
#include "engine/worker.h"

#define SETS 64             /* of channels, with more than one worker */
#define PAYLOAD_LARGE 16384 /* bytes of a message that is encoded before the lock is taken */

struct kv_channel {
    uint64_t hash; /* of name and kind */
    struct kv_channel_part *parts;
    uint64_t count;                 /* subscriptions, over all parts */
    struct kv_channel *next, *prev; /* in the list of its set */
    enum kv_channel_kind kind;
    size_t encoded_len;
    struct kv_slice name; /* within encoded */
    char encoded[];       /* the name as a bulk string */
};

struct kv_channel_part {
    struct kv_channel *channel;
    struct kv_worker *worker;
    struct kv_channel_part *next;         /* of the channel; under its set's lock */
    struct kv_subscription *first, *last; /* the worker's own */
};

struct kv_subscription {
    struct kv_channel_part *part;
    struct kv_client *client;
    struct kv_subscription *next, *prev;         /* in the part */
    struct kv_subscription *own_next, *own_prev; /* of the client, of this kind */
};

struct channel_key {
    enum kv_channel_kind kind;
    struct kv_slice name;
};

struct subscription_key {
    const struct kv_client *client;
    struct channel_key channel;
};

/* --- hashes and tables --- */

static uint64_t hash_channel(const struct kv_engine *e, const struct channel_key *k)
{
    return kv_store_hash(e->store, k->name.ptr, k->name.len) +
           (uint64_t)k->kind * 0x9e3779b97f4a7c15ull;
}

static uint64_t hash_subscription(uint64_t channel_hash, const struct kv_client *c)
{
    uint64_t h = (channel_hash ^ c->id) * 0x9e3779b97f4a7c15ull;
    return (h ^ h >> 29) * 0xbf58476d1ce4e5b9ull;
}

static uint64_t hash_of_channel(const void *item, void *arg)
{
    (void)arg;
    return ((const struct kv_channel *)item)->hash;
}

static uint64_t hash_of_subscription(const void *item, void *arg)
{
    (void)arg;
    const struct kv_subscription *s = item;
    return hash_subscription(s->part->channel->hash, s->client);
}

static bool same_channel(const void *item, const void *key)
{
    const struct kv_channel *ch = item;
    const struct channel_key *k = key;
    return ch->kind == k->kind && kv_slice_equal(ch->name, k->name);
}

static bool same_subscription(const void *item, const void *key)
{
    const struct kv_subscription *s = item;
    const struct subscription_key *k = key;
    return s->client == k->client && same_channel(s->part->channel, &k->channel);
}

static struct kv_channel *find_channel(const struct kv_channel_set *set, uint64_t hash,
                                       const struct channel_key *k)
{
    return kv_table_find(&set->channels, hash, same_channel, k);
}

static struct kv_subscription *find_subscription(const struct kv_client *c, uint64_t hash,
                                                 const struct channel_key *k)
{
    struct subscription_key key = {c, *k};
    return kv_table_find(&c->worker->subscriptions, hash_subscription(hash, c), same_subscription,
                         &key);
}

/* --- sets --- */

static void init_set(struct kv_channel_set *set, enum kv_lock_rank rank)
{
    memset(set, 0, sizeof(*set));
    kv_mutex_init(&set->mutex, rank);
    kv_table_init(&set->channels, hash_of_channel, NULL, KV_MEM_CLIENT);
}

static void release_set(struct kv_channel_set *set)
{
    KV_ASSERT(set->channels.count == 0);
    kv_table_release(&set->channels);
    kv_mutex_release(&set->mutex);
}

void kv_pubsub_init(struct kv_engine *e)
{
    struct kv_pubsub *ps = &e->pubsub;
    ps->set_count = e->multi ? SETS : 1;
    ps->sets = kv_mem_alloc_aligned(ps->set_count * sizeof(*ps->sets), KV_CACHE_LINE, KV_MEM_OTHER);
    for (uint32_t i = 0; i < ps->set_count; i++)
        init_set(&ps->sets[i], KV_RANK_CHANNEL);
    init_set(&ps->patterns, KV_RANK_PATTERN);
}

void kv_pubsub_release(struct kv_engine *e)
{
    struct kv_pubsub *ps = &e->pubsub;
    for (uint32_t i = 0; i < ps->set_count; i++)
        release_set(&ps->sets[i]);
    release_set(&ps->patterns);
    kv_mem_free_aligned(ps->sets, ps->set_count * sizeof(*ps->sets), KV_CACHE_LINE, KV_MEM_OTHER);
}

void kv_pubsub_init_table(struct kv_table *subscriptions)
{
    kv_table_init(subscriptions, hash_of_subscription, NULL, KV_MEM_CLIENT);
}

static struct kv_channel_set *set_of(struct kv_engine *e, enum kv_channel_kind kind, uint64_t hash)
{
    struct kv_pubsub *ps = &e->pubsub;
    return kind == KV_CHANNEL_PATTERN ? &ps->patterns : &ps->sets[hash & (ps->set_count - 1)];
}

static void lock_set(const struct kv_engine *e, struct kv_channel_set *set)
{
    if (e->multi)
        kv_mutex_lock(&set->mutex);
}

static void unlock_set(const struct kv_engine *e, struct kv_channel_set *set)
{
    if (e->multi)
        kv_mutex_unlock(&set->mutex);
}

/* --- channels and parts, under the set's lock --- */

static size_t channel_bytes(const struct kv_channel *ch)
{
    return sizeof(*ch) + ch->encoded_len;
}

static void count_channel(struct kv_engine *e, struct kv_channel_set *set,
                          enum kv_channel_kind kind, int change)
{
    atomic_store_explicit(&set->count, (unsigned)set->channels.count, memory_order_relaxed);
    atomic_fetch_add_explicit(&e->pubsub.channel_count[kind], (uint64_t)(int64_t)change,
                              memory_order_relaxed);
}

static struct kv_channel *create_channel(struct kv_engine *e, struct kv_channel_set *set,
                                         uint64_t hash, const struct channel_key *k)
{
    size_t encoded_len = kv_payload_bulk_len(k->name.len);
    struct kv_channel *ch = kv_mem_try_alloc(sizeof(*ch) + encoded_len, KV_MEM_CLIENT);
    if (ch == NULL)
        return NULL;
    *ch = (struct kv_channel){.hash = hash, .kind = k->kind, .encoded_len = encoded_len};
    kv_payload_write_bulk(ch->encoded, k->name);
    ch->name = kv_slice(ch->encoded + encoded_len - 2 - k->name.len, k->name.len);
    if (kv_table_insert(&set->channels, hash, ch) != KV_OK) {
        kv_mem_free(ch, channel_bytes(ch), KV_MEM_CLIENT);
        return NULL;
    }
    ch->prev = set->last;
    if (set->last != NULL)
        set->last->next = ch;
    else
        set->first = ch;
    set->last = ch;
    count_channel(e, set, k->kind, 1);
    return ch;
}

/* Frees a channel that has no part. */
static void drop_channel(struct kv_engine *e, struct kv_channel_set *set, struct kv_channel *ch)
{
    if (ch->parts != NULL)
        return;
    KV_ASSERT(ch->count == 0);
    kv_table_remove(&set->channels, ch->hash, ch);
    if (ch->prev != NULL)
        ch->prev->next = ch->next;
    else
        set->first = ch->next;
    if (ch->next != NULL)
        ch->next->prev = ch->prev;
    else
        set->last = ch->prev;
    count_channel(e, set, ch->kind, -1);
    kv_mem_free(ch, channel_bytes(ch), KV_MEM_CLIENT);
}

static struct kv_channel_part *get_part(struct kv_channel *ch, struct kv_worker *w)
{
    struct kv_channel_part *part = ch->parts;
    while (part != NULL && part->worker != w)
        part = part->next;
    if (part != NULL)
        return part;
    part = kv_mem_try_alloc(sizeof(*part), KV_MEM_CLIENT);
    if (part == NULL)
        return NULL;
    *part = (struct kv_channel_part){.channel = ch, .worker = w, .next = ch->parts};
    ch->parts = part;
    return part;
}

/* Frees a part that has no subscription. */
static void drop_part(struct kv_channel_part *part)
{
    if (part->first != NULL)
        return;
    struct kv_channel_part **p = &part->channel->parts;
    while (*p != part)
        p = &(*p)->next;
    *p = part->next;
    kv_mem_free(part, sizeof(*part), KV_MEM_CLIENT);
}

/* --- subscribing --- */

/* What a subscription keeps, and its place in the worker's table. */
static size_t subscription_memory(const struct kv_subscription *s)
{
    return kv_mem_block_size(sizeof(*s)) + kv_mem_block_size(sizeof(*s->part)) +
           kv_mem_block_size(channel_bytes(s->part->channel)) + 2 * sizeof(void *);
}

static bool get_subscriber(struct kv_client *c)
{
    if (c->subscriber != NULL)
        return true;
    c->subscriber = kv_mem_try_zalloc(sizeof(*c->subscriber), KV_MEM_CLIENT);
    if (c->subscriber == NULL)
        return false;
    c->subscriber->bytes = kv_mem_block_size(sizeof(*c->subscriber));
    kv_stat_add(&c->worker->stats.pubsub_clients, 1);
    return true;
}

/* Nobody is left subscribed to nothing. */
static void drop_subscriber(struct kv_client *c)
{
    struct kv_subscriber *s = c->subscriber;
    for (int i = 0; i < KV_CHANNEL_KINDS; i++)
        if (s->kinds[i].count != 0)
            return;
    KV_ASSERT(s->bytes == kv_mem_block_size(sizeof(*s)));
    kv_mem_free(s, sizeof(*s), KV_MEM_CLIENT);
    c->subscriber = NULL;
    kv_stat_set(&c->worker->stats.pubsub_clients,
                kv_stat_read(&c->worker->stats.pubsub_clients) - 1);
}

/* Puts a subscription into the lists of its part and its client. */
static void link_subscription(struct kv_subscription *s, enum kv_channel_kind kind)
{
    struct kv_channel_part *part = s->part;
    struct kv_subscriber *own = s->client->subscriber;
    s->prev = part->last;
    if (part->last != NULL)
        part->last->next = s;
    else
        part->first = s;
    part->last = s;
    s->own_prev = own->kinds[kind].last;
    if (s->own_prev != NULL)
        s->own_prev->own_next = s;
    else
        own->kinds[kind].first = s;
    own->kinds[kind].last = s;
    own->kinds[kind].count++;
    own->bytes += subscription_memory(s);
    part->channel->count++;
}

static void unlink_subscription(struct kv_subscription *s, enum kv_channel_kind kind)
{
    struct kv_channel_part *part = s->part;
    struct kv_subscriber *own = s->client->subscriber;
    own->bytes -= subscription_memory(s);
    if (s->prev != NULL)
        s->prev->next = s->next;
    else
        part->first = s->next;
    if (s->next != NULL)
        s->next->prev = s->prev;
    else
        part->last = s->prev;
    if (s->own_prev != NULL)
        s->own_prev->own_next = s->own_next;
    else
        own->kinds[kind].first = s->own_next;
    if (s->own_next != NULL)
        s->own_next->own_prev = s->own_prev;
    else
        own->kinds[kind].last = s->own_prev;
    own->kinds[kind].count--;
    part->channel->count--;
}

/* Under the set's lock. Whatever was made for a subscription that fails goes again. */
static enum kv_err add_subscription(struct kv_channel_set *set, struct kv_subscription *s,
                                    uint64_t hash, const struct channel_key *k)
{
    struct kv_worker *w = s->client->worker;
    struct kv_channel *ch = find_channel(set, hash, k);
    if (ch == NULL)
        ch = create_channel(w->engine, set, hash, k);
    if (ch == NULL)
        return KV_ERR_NOMEM;
    s->part = get_part(ch, w);
    if (s->part != NULL &&
        kv_table_insert(&w->subscriptions, hash_subscription(hash, s->client), s) == KV_OK) {
        link_subscription(s, k->kind);
        return KV_OK;
    }
    if (s->part != NULL)
        drop_part(s->part);
    drop_channel(w->engine, set, ch);
    return KV_ERR_NOMEM;
}

enum kv_err kv_pubsub_subscribe(struct kv_client *c, enum kv_channel_kind kind,
                                struct kv_slice name, bool *added)
{
    struct kv_worker *w = c->worker;
    struct kv_engine *e = w->engine;
    struct channel_key k = {kind, name};
    uint64_t hash = hash_channel(e, &k);
    *added = false;
    if (find_subscription(c, hash, &k) != NULL)
        return KV_OK;
    if (!get_subscriber(c))
        return KV_ERR_NOMEM;
    struct kv_subscription *s = kv_mem_try_zalloc(sizeof(*s), KV_MEM_CLIENT);
    if (s == NULL) {
        drop_subscriber(c);
        return KV_ERR_NOMEM;
    }
    s->client = c;
    struct kv_channel_set *set = set_of(e, kind, hash);
    lock_set(e, set);
    kv_delivery_drain(w); /* what was published before is not for it */
    enum kv_err err = add_subscription(set, s, hash, &k);
    unlock_set(e, set);
    *added = err == KV_OK;
    if (err != KV_OK) {
        kv_mem_free(s, sizeof(*s), KV_MEM_CLIENT);
        drop_subscriber(c);
    }
    return err;
}

/* --- unsubscribing --- */

static void remove_subscription(struct kv_subscription *s,
                                void (*left)(void *arg, struct kv_slice name), void *arg)
{
    struct kv_client *c = s->client;
    struct kv_worker *w = c->worker;
    struct kv_engine *e = w->engine;
    struct kv_channel_part *part = s->part;
    struct kv_channel *ch = part->channel;
    struct kv_channel_set *set = set_of(e, ch->kind, ch->hash);
    lock_set(e, set);
    kv_delivery_drain(w); /* what was published before is still for it */
    kv_table_remove(&w->subscriptions, hash_subscription(ch->hash, c), s);
    unlink_subscription(s, ch->kind);
    if (left != NULL)
        left(arg, ch->name);
    drop_part(part);
    drop_channel(e, set, ch);
    unlock_set(e, set);
    kv_mem_free(s, sizeof(*s), KV_MEM_CLIENT);
}

bool kv_pubsub_unsubscribe(struct kv_client *c, enum kv_channel_kind kind, struct kv_slice name)
{
    struct channel_key k = {kind, name};
    struct kv_subscription *s = find_subscription(c, hash_channel(c->worker->engine, &k), &k);
    if (s == NULL)
        return false;
    remove_subscription(s, NULL, NULL);
    drop_subscriber(c);
    return true;
}

void kv_pubsub_leave(struct kv_client *c, enum kv_channel_kind kind,
                     void (*left)(void *arg, struct kv_slice name), void *arg)
{
    struct kv_subscriber *own = c->subscriber;
    if (own == NULL)
        return;
    while (own->kinds[kind].first != NULL)
        remove_subscription(own->kinds[kind].first, left, arg);
    drop_subscriber(c);
}

void kv_pubsub_each_own(const struct kv_client *c, enum kv_channel_kind kind,
                        void (*visit)(void *arg, struct kv_slice name), void *arg)
{
    if (c->subscriber == NULL)
        return;
    for (const struct kv_subscription *s = c->subscriber->kinds[kind].first; s != NULL;
         s = s->own_next)
        visit(arg, s->part->channel->name);
}

void kv_pubsub_forget(struct kv_client *c)
{
    for (int i = 0; i < KV_CHANNEL_KINDS; i++)
        kv_pubsub_leave(c, (enum kv_channel_kind)i, NULL, NULL);
    KV_ASSERT(c->subscriber == NULL);
}

/* --- publishing --- */

struct message {
    struct kv_worker *from;
    struct kv_slice channel, text;
    struct kv_payload *payload; /* NULL until somebody is found who gets it */
    uint64_t receivers;
};

static bool encode(struct message *m)
{
    if (m->payload != NULL)
        return true;
    size_t len = kv_payload_bulk_len(m->channel.len) + kv_payload_bulk_len(m->text.len);
    m->payload = kv_payload_try_create(len);
    if (m->payload == NULL)
        return false;
    kv_payload_write_bulk(kv_payload_write_bulk(m->payload->bytes, m->channel), m->text);
    return true;
}

/* Under the set's lock. False: no memory. */
static bool post(struct message *m, const struct kv_channel *ch)
{
    if (!encode(m))
        return false;
    for (struct kv_channel_part *part = ch->parts; part != NULL; part = part->next)
        kv_delivery_post(m->from, part->worker, KV_DELIVER_CHANNEL, part, m->payload);
    m->receivers += ch->count;
    return true;
}

static bool post_patterns(struct message *m)
{
    struct kv_engine *e = m->from->engine;
    struct kv_channel_set *set = &e->pubsub.patterns;
    bool posted = true;
    lock_set(e, set);
    for (const struct kv_channel *p = set->first; p != NULL && posted; p = p->next)
        if (kv_glob_match(p->name, m->channel, false))
            posted = post(m, p);
    unlock_set(e, set);
    return posted;
}

static bool nobody(const struct kv_channel_set *set)
{
    return atomic_load_explicit(&set->count, memory_order_relaxed) == 0;
}

enum kv_err kv_pubsub_publish(struct kv_worker *w, enum kv_channel_kind kind,
                              struct kv_slice channel, struct kv_slice message, uint64_t *receivers)
{
    struct kv_engine *e = w->engine;
    struct channel_key k = {kind, channel};
    struct message m = {.from = w, .channel = channel, .text = message};
    bool patterns = kind == KV_CHANNEL_PLAIN && !nobody(&e->pubsub.patterns);
    *receivers = 0;
    uint64_t hash = hash_channel(e, &k);
    struct kv_channel_set *set = set_of(e, kind, hash);
    if (nobody(set) && !patterns)
        return KV_OK;
    /* Nobody is to wait while a large message is copied. */
    if (message.len >= PAYLOAD_LARGE && !encode(&m))
        return KV_ERR_NOMEM;
    lock_set(e, set);
    const struct kv_channel *ch = find_channel(set, hash, &k);
    bool posted = ch == NULL || post(&m, ch);
    if (posted && patterns)
        posted = post_patterns(&m);
    unlock_set(e, set);
    if (m.payload != NULL)
        kv_payload_unref(m.payload);
    *receivers = m.receivers;
    return posted ? KV_OK : KV_ERR_NOMEM;
}

void kv_pubsub_deliver(struct kv_channel_part *part, struct kv_payload *payload)
{
    static const struct kv_slice heads[KV_CHANNEL_KINDS][2] = {
        {{"*3\r\n$7\r\nmessage\r\n", 17}, {">3\r\n$7\r\nmessage\r\n", 17}},
        {{"*4\r\n$8\r\npmessage\r\n", 18}, {">4\r\n$8\r\npmessage\r\n", 18}},
        {{"*3\r\n$8\r\nsmessage\r\n", 18}, {">3\r\n$8\r\nsmessage\r\n", 18}},
    };
    const struct kv_channel *ch = part->channel;
    struct kv_slice pieces[2];
    int count = ch->kind == KV_CHANNEL_PATTERN ? 2 : 1;
    pieces[1] = kv_slice(ch->encoded, ch->encoded_len);
    for (const struct kv_subscription *s = part->first; s != NULL; s = s->next) {
        pieces[0] = heads[ch->kind][s->client->resp == 3];
        kv_delivery_give(s->client, pieces, count, payload);
    }
}

/* --- looking --- */

uint64_t kv_pubsub_channel_count(const struct kv_engine *e, enum kv_channel_kind kind)
{
    return atomic_load_explicit(&e->pubsub.channel_count[kind], memory_order_relaxed);
}

uint64_t kv_pubsub_subscriptions(struct kv_engine *e, enum kv_channel_kind kind,
                                 struct kv_slice name)
{
    struct channel_key k = {kind, name};
    uint64_t hash = hash_channel(e, &k);
    struct kv_channel_set *set = set_of(e, kind, hash);
    if (nobody(set))
        return 0;
    lock_set(e, set);
    const struct kv_channel *ch = find_channel(set, hash, &k);
    uint64_t count = ch != NULL ? ch->count : 0;
    unlock_set(e, set);
    return count;
}

void kv_pubsub_each(struct kv_engine *e, enum kv_channel_kind kind,
                    void (*visit)(void *arg, struct kv_slice name), void *arg)
{
    struct kv_pubsub *ps = &e->pubsub;
    KV_ASSERT(kind != KV_CHANNEL_PATTERN);
    for (uint32_t i = 0; i < ps->set_count; i++) {
        struct kv_channel_set *set = &ps->sets[i];
        lock_set(e, set);
        for (const struct kv_channel *ch = set->first; ch != NULL; ch = ch->next)
            if (ch->kind == kind)
                visit(arg, ch->name);
        unlock_set(e, set);
    }
}
