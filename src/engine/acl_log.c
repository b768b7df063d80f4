/* The log of denials: a doubly linked list, each entry one block with its texts.
 *
 * An entry has room for the longest line of a client, because the line is written anew each time
 * the entry counts another denial. Only the newest entries are looked at for one to count in, as
 * Redis does: a client that is denied again and again names few things.
 *
 * The client's line is written before the mutex is taken. Threads: any worker.
 */
#include "engine/acl_log.h"

#include "base/clock.h"
#include "engine/acl.h"
#include "engine/worker.h"
#include <string.h>

#define GROUP_LOOK 10 /* newest entries that may count another denial */

struct kv_acl_log_node {
    struct kv_acl_log_node *newer, *older;
    size_t block_size;
    struct kv_acl_log_entry entry;
    char client[KV_ACL_LOG_CLIENT_MAX];
    char text[];
};

void kv_acl_log_init(struct kv_acl_log *l)
{
    memset(l, 0, sizeof(*l));
    kv_mutex_init(&l->mutex, KV_RANK_COMMAND_LOG);
}

static void unlink_node(struct kv_acl_log *l, struct kv_acl_log_node *n)
{
    if (n->newer != NULL)
        n->newer->older = n->older;
    else
        l->newest = n->older;
    if (n->older != NULL)
        n->older->newer = n->newer;
    else
        l->oldest = n->newer;
    l->len--;
}

static void link_newest(struct kv_acl_log *l, struct kv_acl_log_node *n)
{
    n->newer = NULL;
    n->older = l->newest;
    if (l->newest != NULL)
        l->newest->newer = n;
    else
        l->oldest = n;
    l->newest = n;
    l->len++;
}

static void trim(struct kv_acl_log *l, uint64_t max_len)
{
    while (l->len > max_len) {
        struct kv_acl_log_node *n = l->oldest;
        unlink_node(l, n);
        kv_mem_free(n, n->block_size, KV_MEM_SLOWLOG);
    }
}

void kv_acl_log_release(struct kv_acl_log *l)
{
    trim(l, 0);
    kv_mutex_release(&l->mutex);
}

static struct kv_slice cut(struct kv_slice s)
{
    s.len = KV_MIN(s.len, (size_t)KV_ACL_LOG_TEXT_MAX);
    return s;
}

static struct kv_slice keep(char **to, struct kv_slice s)
{
    struct kv_slice kept = kv_slice(*to, s.len);
    if (s.len > 0)
        memcpy(*to, s.ptr, s.len);
    *to += s.len;
    return kept;
}

static struct kv_acl_log_node *find_same(struct kv_acl_log *l, const struct kv_acl_log_entry *e)
{
    int left = GROUP_LOOK;
    for (struct kv_acl_log_node *n = l->newest; n != NULL && left > 0; n = n->older, left--) {
        const struct kv_acl_log_entry *have = &n->entry;
        int64_t age_ms = e->created_ms - have->created_ms;
        if (have->reason == e->reason && have->context == e->context && age_ms >= 0 &&
            age_ms <= KV_ACL_LOG_GROUP_MS && kv_slice_equal(have->object, e->object) &&
            kv_slice_equal(have->user, e->user))
            return n;
    }
    return NULL;
}

static struct kv_acl_log_node *make_node(const struct kv_acl_log_entry *e)
{
    size_t size = sizeof(struct kv_acl_log_node) + e->object.len + e->user.len;
    struct kv_acl_log_node *n = kv_mem_try_alloc(size, KV_MEM_SLOWLOG);
    if (n == NULL)
        return NULL;
    char *to = n->text;
    n->block_size = size;
    n->entry = *e;
    n->entry.object = keep(&to, e->object);
    n->entry.user = keep(&to, e->user);
    return n;
}

static void set_client(struct kv_acl_log_node *n, struct kv_slice line)
{
    char *to = n->client;
    n->entry.client = keep(&to, line);
}

static void count(struct kv_worker *w, enum kv_acl_reason reason)
{
    switch (reason) {
    case KV_ACL_BY_COMMAND:
        kv_stat_add(&w->stats.acl_denied_commands, 1);
        break;
    case KV_ACL_BY_KEY:
        kv_stat_add(&w->stats.acl_denied_keys, 1);
        break;
    case KV_ACL_BY_CHANNEL:
        kv_stat_add(&w->stats.acl_denied_channels, 1);
        break;
    case KV_ACL_BY_AUTH:
        kv_stat_add(&w->stats.acl_denied_auths, 1);
        break;
    }
}

void kv_acl_log_add(struct kv_client *c, const struct kv_command *cmd, enum kv_acl_reason reason,
                    enum kv_acl_context context, struct kv_slice object, struct kv_slice user)
{
    struct kv_engine *e = c->worker->engine;
    struct kv_acl_log *l = &e->acl.log;
    count(c->worker, reason);
    if (e->options.acllog_max_len == 0)
        return;
    char line[KV_ACL_LOG_CLIENT_MAX];
    size_t line_len =
        e->table->client_line == NULL ? 0 : e->table->client_line(e, c, cmd, line, sizeof(line));
    int64_t now_ms = kv_clock_wall_ms();
    struct kv_acl_log_entry entry = {.count = 1,
                                     .created_ms = now_ms,
                                     .updated_ms = now_ms,
                                     .reason = (uint8_t)reason,
                                     .context = (uint8_t)context,
                                     .object = cut(object),
                                     .user = cut(user)};
    kv_mutex_lock(&l->mutex);
    struct kv_acl_log_node *n = find_same(l, &entry);
    if (n != NULL) {
        n->entry.count++;
        n->entry.updated_ms = now_ms;
        unlink_node(l, n);
    } else {
        n = make_node(&entry);
        if (n != NULL)
            n->entry.id = l->next_id++;
    }
    if (n != NULL) {
        set_client(n, kv_slice(line, line_len));
        link_newest(l, n);
    }
    trim(l, e->options.acllog_max_len);
    kv_mutex_unlock(&l->mutex);
}

void kv_acl_log_each(struct kv_engine *e, uint64_t max,
                     void (*visit)(const struct kv_acl_log_entry *entry, void *arg), void *arg)
{
    struct kv_acl_log *l = &e->acl.log;
    kv_mutex_lock(&l->mutex);
    for (struct kv_acl_log_node *n = l->newest; n != NULL && max > 0; n = n->older, max--)
        visit(&n->entry, arg);
    kv_mutex_unlock(&l->mutex);
}

static void trim_locked(struct kv_engine *e, uint64_t max_len)
{
    struct kv_acl_log *l = &e->acl.log;
    kv_mutex_lock(&l->mutex);
    trim(l, max_len);
    kv_mutex_unlock(&l->mutex);
}

void kv_acl_log_reset(struct kv_engine *e)
{
    trim_locked(e, 0);
}

void kv_acl_log_trim(struct kv_engine *e)
{
    trim_locked(e, e->options.acllog_max_len);
}
