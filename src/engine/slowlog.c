/* The slow log: a doubly linked list, newest first, each entry one block with its strings.
 *
 * Entries are made by the worker that ran the slow command and never change, so readers only need
 * the mutex to walk. Long arguments and long lists are cut as the protocol's users know it: 32
 * arguments, 128 bytes each, with a note of how much is missing.
 */
#include "engine/slowlog.h"
#include "base/clock.h"
#include "engine/worker.h"
#include <stdio.h>

struct kv_slowlog_node {
    struct kv_slowlog_node *newer, *older;
    size_t block_size;
    struct kv_slowlog_entry entry;
    struct kv_slice argv[KV_SLOWLOG_ARGS_MAX];
    char text[];
};

void kv_slowlog_init(struct kv_slowlog *s)
{
    memset(s, 0, sizeof(*s));
    kv_mutex_init(&s->mutex, KV_RANK_SLOWLOG);
}

static void drop_oldest(struct kv_slowlog *s)
{
    struct kv_slowlog_node *n = s->oldest;
    s->oldest = n->newer;
    if (s->oldest != NULL)
        s->oldest->older = NULL;
    else
        s->newest = NULL;
    s->len--;
    kv_mem_free(n, n->block_size, KV_MEM_SLOWLOG);
}

static void trim(struct kv_slowlog *s, uint64_t max_len)
{
    while (s->len > max_len)
        drop_oldest(s);
}

void kv_slowlog_release(struct kv_slowlog *s)
{
    trim(s, 0);
    kv_mutex_release(&s->mutex);
}

static struct kv_slice copy_text(char **to, const char *bytes, size_t len)
{
    struct kv_slice s = kv_slice(*to, len);
    if (len > 0)
        memcpy(*to, bytes, len);
    *to += len;
    return s;
}

/* One argument, cut when it is long. */
static struct kv_slice copy_argument(char **to, struct kv_slice arg)
{
    if (arg.len <= KV_SLOWLOG_TEXT_MAX)
        return copy_text(to, arg.ptr, arg.len);
    struct kv_slice s = copy_text(to, arg.ptr, KV_SLOWLOG_TEXT_MAX);
    int n = snprintf(*to, 64, "... (%zu more bytes)", arg.len - KV_SLOWLOG_TEXT_MAX);
    *to += n;
    s.len += (size_t)n;
    return s;
}

void kv_slowlog_add(struct kv_slowlog *s, const struct kv_client *c, const struct kv_slice *argv,
                    int argc, uint64_t usec, uint64_t max_len)
{
    int kept = KV_MIN(argc, KV_SLOWLOG_ARGS_MAX);
    size_t peer_len = c->peer != NULL ? strlen(c->peer) : 0;
    size_t name_len = c->name != NULL ? strlen(c->name) : 0;
    size_t size = sizeof(struct kv_slowlog_node) + peer_len + name_len +
                  (size_t)kept * (KV_SLOWLOG_TEXT_MAX + 64);
    struct kv_slowlog_node *n = kv_mem_alloc(size, KV_MEM_SLOWLOG);
    n->block_size = size;
    char *to = n->text;
    n->entry = (struct kv_slowlog_entry){
        .time_s = kv_clock_wall_ms() / 1000, .usec = usec, .argc = kept, .argv = n->argv};
    n->entry.peer = copy_text(&to, c->peer, peer_len);
    n->entry.name = copy_text(&to, c->name, name_len);
    for (int i = 0; i < kept; i++) {
        if (i == KV_SLOWLOG_ARGS_MAX - 1 && argc > KV_SLOWLOG_ARGS_MAX) {
            int len = snprintf(to, 64, "... (%d more arguments)", argc - KV_SLOWLOG_ARGS_MAX + 1);
            n->argv[i] = kv_slice(to, (size_t)len);
            to += len;
        } else {
            n->argv[i] = copy_argument(&to, argv[i]);
        }
    }
    KV_ASSERT(to <= (char *)n + size);

    kv_mutex_lock(&s->mutex);
    n->entry.id = s->next_id++;
    n->newer = NULL;
    n->older = s->newest;
    if (s->newest != NULL)
        s->newest->newer = n;
    else
        s->oldest = n;
    s->newest = n;
    s->len++;
    trim(s, max_len);
    kv_mutex_unlock(&s->mutex);
}

void kv_engine_slowlog_each(struct kv_engine *e, uint64_t max,
                            void (*visit)(const struct kv_slowlog_entry *entry, void *arg),
                            void *arg)
{
    struct kv_slowlog *s = &e->slowlog;
    kv_mutex_lock(&s->mutex);
    for (struct kv_slowlog_node *n = s->newest; n != NULL && max > 0; n = n->older, max--)
        visit(&n->entry, arg);
    kv_mutex_unlock(&s->mutex);
}

uint64_t kv_engine_slowlog_len(struct kv_engine *e)
{
    kv_mutex_lock(&e->slowlog.mutex);
    uint64_t len = e->slowlog.len;
    kv_mutex_unlock(&e->slowlog.mutex);
    return len;
}

void kv_engine_slowlog_reset(struct kv_engine *e)
{
    kv_mutex_lock(&e->slowlog.mutex);
    trim(&e->slowlog, 0);
    kv_mutex_unlock(&e->slowlog.mutex);
}

void kv_engine_slowlog_trim(struct kv_engine *e)
{
    kv_mutex_lock(&e->slowlog.mutex);
    trim(&e->slowlog, e->options.slowlog_max_len);
    kv_mutex_unlock(&e->slowlog.mutex);
}
