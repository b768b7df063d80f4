/* MIGRATE: moves keys to another server.
 *
 * The values are taken in the form of DUMP under the keys' locks. Then the locks go, the client
 * waits, and a thread sends them to the target (engine/errand.h, migrate_talk.c): no worker waits,
 * and other clients go on. From before the values are taken until the keys are gone from here,
 * commands that may write to these keys wait, so that nothing acknowledged is lost: not what is
 * written here, for there is no such write, nor what others write at the target as soon as it has
 * the keys, for nothing is sent twice. The keys can be read here until they are gone.
 *
 * What is not a command goes on: a key may expire or be evicted meanwhile. Then it has moved, with
 * what was left of its time; nothing is to be deleted here. A key that has changed all the same (a
 * field of a hash has expired) is sent again in place of the first value; the records of WATCH
 * tell.
 *
 * After a failure keys stay here, but for those that the target has taken; of one that stays the
 * target may have a copy, as with redis-server after a timeout. With COPY nothing is deleted, and
 * nobody waits: the target gets values of one moment.
 *
 * The change stream gets a DEL of each key that has moved. Inside MULTI and scripts, where nothing
 * may wait and everything happens at one moment, MIGRATE is refused.
 *
 * Rejected: to let writes go on, to send again what has changed and to wait only when that does not
 * end (a write at the target between two values would be lost); keeping connections for the next
 * MIGRATE (who moves many keys names them in one).
 */
#include "cmd/functions.h"
#include "cmd/migrate_priv.h"
#include "engine/call.h"
#include "engine/engine.h"
#include "persist/rdb_payload.h"
#include <unistd.h>

#define TIMEOUT_MS 1000 /* when none, or a negative one, is given */
#define TIMEOUT_MAX_MS INT64_C(1000000000000)
#define ROUNDS_MAX 10   /* then it fails */
#define STREAM_BYTES 32 /* of a DEL without its key */

/* --- the line --- */

struct request {
    bool copy, replace;
    int user, password; /* arguments; 0: none */
    int64_t timeout_ms, db;
};

/* Where the word KEYS stands among the options; 0: nowhere. */
static int find_keys_word(const struct kv_slice *argv, int argc)
{
    for (int i = 6; i < argc; i++) {
        if (kv_slice_is(argv[i], "keys"))
            return i;
        if (kv_slice_is(argv[i], "auth"))
            i += 1;
        else if (kv_slice_is(argv[i], "auth2"))
            i += 2;
    }
    return 0;
}

/* The only key of a line: none when KEYS follows; no argument at all when both are there. */
int kv_migrate_key(const struct kv_slice *argv, int argc)
{
    if (argc < 4 || find_keys_word(argv, argc) == 0)
        return 3;
    return argv[3].len == 0 ? 0 : argc + 1;
}

int kv_migrate_keys(const struct kv_slice *argv, int argc)
{
    int word = find_keys_word(argv, argc);
    return word == 0 ? 0 : word + 1;
}

static bool read_options(struct kv_call *call, struct request *r)
{
    for (int i = 6; i < call->argc; i++) {
        int more = call->argc - 1 - i;
        if (kv_call_arg_is(call, i, "copy")) {
            r->copy = true;
        } else if (kv_call_arg_is(call, i, "replace")) {
            r->replace = true;
        } else if (kv_call_arg_is(call, i, "auth") && more >= 1) {
            r->password = i + 1;
            r->user = 0;
            i += 1;
        } else if (kv_call_arg_is(call, i, "auth2") && more >= 2) {
            r->user = i + 1;
            r->password = i + 2;
            i += 2;
        } else if (kv_call_arg_is(call, i, "keys")) {
            if (call->argv[3].len == 0)
                return true;
            kv_call_error(call, "ERR When using MIGRATE KEYS option, the key argument must be set "
                                "to the empty string");
            return false;
        } else {
            kv_call_syntax_error(call);
            return false;
        }
    }
    return true;
}

static bool read_request(struct kv_call *call, struct request *r)
{
    *r = (struct request){0};
    if (!read_options(call, r) || !kv_call_int(call, 5, &r->timeout_ms) ||
        !kv_call_int(call, 4, &r->db))
        return false;
    if (r->timeout_ms <= 0)
        r->timeout_ms = TIMEOUT_MS;
    r->timeout_ms = KV_MIN(r->timeout_ms, TIMEOUT_MAX_MS);
    return true;
}

/* --- a migration --- */

static void release_migration(struct kv_errand *x, struct kv_store *store)
{
    struct kv_migration *m = KV_CONTAINER_OF(x, struct kv_migration, errand);
    for (int i = 0; i < m->item_count; i++) {
        if (m->items[i].watch != NULL)
            kv_store_unwatch(store, m->items[i].watch);
        kv_rdb_bytes_release(&m->items[i].payload);
    }
    if (m->fd >= 0)
        close(m->fd);
    kv_mem_free(m, m->block_bytes, KV_MEM_CLIENT);
}

/* Takes the value as it is now, and watches it. False: no memory. */
static bool take_value(struct kv_call *call, struct kv_migration *m, struct kv_migrate_item *it,
                       const struct kv_entry *e)
{
    struct kv_rdb_writer w;
    kv_rdb_writer_init(&w);
    w.compress = kv_engine_options(call->engine)->rdb_compression;
    kv_rdb_put_payload(&w, e);
    bool good = w.err == KV_OK;
    /* Many small values should not keep the slack of a buffer each. */
    if (good && w.buf.capacity - w.buf.len > w.buf.len / 4) {
        good = kv_rdb_bytes_append(&it->payload, w.buf.ptr, w.buf.len);
    } else if (good) {
        it->payload = w.buf;
        w.buf = (struct kv_rdb_bytes){0};
    }
    kv_rdb_writer_release(&w);
    it->expiry = kv_entry_expiry(e);
    it->state = KV_MIGRATE_SEND;
    return good && (m->copy || kv_store_watch(&call->view, &it->key, &it->watch) == KV_OK);
}

/* --- its turns, under the locks of all keys --- */

static void forget_key(struct kv_call *call, struct kv_migrate_item *it)
{
    struct kv_entry *e = kv_store_peek(&call->view, &it->key);
    it->state = KV_MIGRATE_OVER;
    if (e == NULL)
        return;
    kv_store_delete(&call->view, &it->key, e);
    kv_store_changed(&call->view, &it->key, KV_EVENT_GENERIC, "del");
    kv_call_propagate_del(call, &it->key);
}

/* The first turn: takes all values. False: no memory. */
static bool take_all(struct kv_call *call, struct kv_migration *m, int *taken)
{
    *taken = 0;
    for (int i = 0; i < m->item_count; i++) {
        struct kv_migrate_item *it = &m->items[i];
        const struct kv_entry *e = kv_store_read(&call->view, &it->key);
        it->state = KV_MIGRATE_OVER;
        if (e != NULL && !take_value(call, m, it, e))
            return false;
        *taken += e != NULL;
    }
    return true;
}

/* Deletes what has arrived and has not changed since, and takes the values of what has changed
 * anew. Tells how many those are; -1: no memory. */
static int settle(struct kv_call *call, struct kv_migration *m, bool again)
{
    int changed = 0;
    /* All are looked at before one is deleted: a key may be named twice. */
    for (int i = 0; i < m->item_count; i++)
        m->items[i].clean =
            m->items[i].watch != NULL && !kv_store_watch_dirty(&call->view, m->items[i].watch);
    for (int i = 0; i < m->item_count; i++) {
        struct kv_migrate_item *it = &m->items[i];
        const struct kv_entry *e = kv_store_peek(&call->view, &it->key);
        if (it->state != KV_MIGRATE_ARRIVED)
            continue;
        if (it->clean || e == NULL) {
            forget_key(call, it);
            continue;
        }
        changed++;
        kv_store_unwatch(call->view.store, it->watch);
        it->watch = NULL;
        kv_rdb_bytes_release(&it->payload);
        it->again = true;
        if (again && !take_value(call, m, it, e))
            return -1;
    }
    return changed;
}

/* True: the reply is written. */
static bool first_turn(struct kv_call *call, struct kv_migration *m)
{
    int taken;
    if (!take_all(call, m, &taken))
        kv_call_no_memory(call);
    else if (taken == 0)
        kv_reply_status(call->out, "NOKEY");
    else
        return false;
    return true;
}

static bool later_turn(struct kv_call *call, struct kv_migration *m)
{
    bool failed = m->error[0] != '\0';
    bool again = !failed && m->rounds < ROUNDS_MAX;
    int changed = m->copy ? 0 : settle(call, m, again);
    if (failed)
        kv_call_error(call, m->error);
    else if (changed < 0)
        kv_call_no_memory(call);
    else if (changed == 0)
        kv_reply_ok(call->out);
    else if (again)
        return false;
    else
        kv_call_error(call, "IOERR keys changed each time while they were sent to the target "
                            "instance, and stay here");
    return true;
}

static bool take_turn(struct kv_errand *x, struct kv_call *call)
{
    struct kv_migration *m = KV_CONTAINER_OF(x, struct kv_migration, errand);
    bool over = m->rounds == 0 ? first_turn(call, m) : later_turn(call, m);
    m->rounds++;
    for (int i = 0; over && i < m->item_count; i++) {
        if (m->items[i].watch != NULL)
            kv_store_unwatch(call->view.store, m->items[i].watch);
        m->items[i].watch = NULL;
    }
    return over;
}

/* --- its beginning --- */

static struct kv_slice copy_text(char **to, struct kv_slice text)
{
    struct kv_slice copy = kv_slice(*to, text.len);
    if (text.len != 0)
        memcpy(*to, text.ptr, text.len);
    *to += text.len;
    return copy;
}

static int64_t read_port(struct kv_slice text)
{
    int64_t port;
    return kv_int_parse(text, &port) && port >= 0 && port <= 65535 ? port : -1;
}

/* Room for `count` keys, of which it has none yet; NULL: no memory. */
static struct kv_migration *create_migration(struct kv_call *call, const struct request *r,
                                             int count, size_t key_bytes)
{
    const struct kv_slice *argv = call->argv;
    size_t n = (size_t)count;
    size_t texts = argv[1].len + 1 + argv[4].len + key_bytes;
    texts += r->user != 0 ? argv[r->user].len : 0;
    texts += r->password != 0 ? argv[r->password].len : 0;
    size_t bytes = sizeof(struct kv_migration) + texts +
                   n * (sizeof(struct kv_migrate_item) + sizeof(struct kv_key) + sizeof(uint64_t));
    struct kv_migration *m = kv_mem_try_zalloc(bytes, KV_MEM_CLIENT);
    if (m == NULL)
        return NULL;
    m->block_bytes = bytes;
    m->keys = (struct kv_key *)&m->items[n];
    m->errand.hashes = (uint64_t *)&m->keys[n];
    char *to = (char *)&m->errand.hashes[n];
    m->host = to;
    (void)copy_text(&to, argv[1]);
    *to++ = '\0';
    m->port = read_port(argv[2]);
    m->db = copy_text(&to, argv[4]);
    m->auth_words = (r->user != 0) + (r->password != 0);
    if (r->user != 0)
        m->user = copy_text(&to, argv[r->user]);
    if (r->password != 0)
        m->password = copy_text(&to, argv[r->password]);
    m->timeout_ms = r->timeout_ms;
    m->copy = r->copy;
    m->replace = r->replace;
    m->fd = -1;
    m->errand = (struct kv_errand){.turn = take_turn,
                                   .work = kv_migrate_talk,
                                   .release = release_migration,
                                   .keys = m->keys,
                                   .hashes = m->errand.hashes,
                                   .key_count = count,
                                   .holds = !r->copy,
                                   .stream_bytes = n * STREAM_BYTES + key_bytes};
    for (int i = 0; i < call->key_count; i++) {
        const struct kv_key *k = &call->keys[i];
        if (kv_store_peek(&call->view, k) == NULL)
            continue;
        struct kv_slice copy = copy_text(&to, kv_slice(k->ptr, k->len));
        m->keys[m->item_count] = (struct kv_key){copy.ptr, copy.len, k->hash};
        m->items[m->item_count].key = m->keys[m->item_count];
        m->item_count++;
    }
    KV_ASSERT(m->item_count == count);
    return m;
}

/* --- the command --- */

/* MIGRATE host port key|"" db timeout [COPY] [REPLACE] [AUTH password | AUTH2 user password]
 * [KEYS key ...] */
void kv_cmd_migrate(struct kv_call *call)
{
    struct request r;
    int count = 0;
    size_t key_bytes = 0;
    if (!read_request(call, &r))
        return;
    for (int i = 0; i < call->key_count; i++) {
        if (kv_store_peek(&call->view, &call->keys[i]) == NULL)
            continue;
        count++;
        key_bytes += call->keys[i].len;
    }
    if (count == 0) {
        kv_reply_status(call->out, "NOKEY");
        return;
    }
    if (!kv_call_may_errand(call)) {
        kv_call_error(call, "ERR MIGRATE cannot wait here");
        return;
    }
    struct kv_migration *m = create_migration(call, &r, count, key_bytes);
    if (m != NULL && kv_call_errand(call, &m->errand) == KV_OK)
        return;
    if (m != NULL)
        release_migration(&m->errand, call->view.store);
    kv_call_no_memory(call);
}
