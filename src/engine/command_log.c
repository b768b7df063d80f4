/* Command logs: doubly linked lists, newest first, each entry one block with its strings.
 *
 * Entries are made by the worker that ran the command and never change, so readers only need
 * the mutex to walk. Long arguments and long lists are cut as the protocol's users know it: 32
 * arguments, 128 bytes each, with a note of how much is missing. Passwords are left out.
 */
#include "engine/command_log.h"
#include "base/clock.h"
#include "engine/secret.h"
#include "engine/worker.h"
#include <stdio.h>

struct kv_command_log_node {
    struct kv_command_log_node *newer, *older;
    size_t block_size;
    struct kv_command_log_entry entry;
    struct kv_slice argv[KV_COMMAND_LOG_ARGS_MAX];
    char text[];
};

void kv_command_log_init(struct kv_command_log *l)
{
    memset(l, 0, sizeof(*l));
    kv_mutex_init(&l->mutex, KV_RANK_COMMAND_LOG);
}

static void drop_oldest(struct kv_command_log *l)
{
    struct kv_command_log_node *n = l->oldest;
    l->oldest = n->newer;
    if (l->oldest != NULL)
        l->oldest->older = NULL;
    else
        l->newest = NULL;
    l->len--;
    kv_mem_free(n, n->block_size, KV_MEM_SLOWLOG);
}

static void trim(struct kv_command_log *l, uint64_t max_len)
{
    while (l->len > max_len)
        drop_oldest(l);
}

void kv_command_log_release(struct kv_command_log *l)
{
    trim(l, 0);
    kv_mutex_release(&l->mutex);
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
    if (arg.len <= KV_COMMAND_LOG_TEXT_MAX)
        return copy_text(to, arg.ptr, arg.len);
    struct kv_slice s = copy_text(to, arg.ptr, KV_COMMAND_LOG_TEXT_MAX);
    int n = snprintf(*to, 64, "... (%zu more bytes)", arg.len - KV_COMMAND_LOG_TEXT_MAX);
    *to += n;
    s.len += (size_t)n;
    return s;
}

void kv_command_log_add(struct kv_command_log *l, const struct kv_client *c,
                        const struct kv_command *cmd, const struct kv_slice *argv, int argc,
                        uint64_t value, uint64_t max_len)
{
    int kept = KV_MIN(argc, KV_COMMAND_LOG_ARGS_MAX);
    size_t peer_len = c->peer != NULL ? strlen(c->peer) : 0;
    size_t name_len = c->name != NULL ? strlen(c->name) : 0;
    size_t size = sizeof(struct kv_command_log_node) + peer_len + name_len +
                  (size_t)kept * (KV_COMMAND_LOG_TEXT_MAX + 64);
    struct kv_command_log_node *n = kv_mem_alloc(size, KV_MEM_SLOWLOG);
    n->block_size = size;
    char *to = n->text;
    n->entry = (struct kv_command_log_entry){
        .time_s = kv_clock_wall_ms() / 1000, .value = value, .argc = kept, .argv = n->argv};
    n->entry.peer = copy_text(&to, c->peer, peer_len);
    n->entry.name = copy_text(&to, c->name, name_len);
    struct kv_secrets secrets = kv_secrets_begin(cmd, argv);
    for (int i = 0; i < kept; i++) {
        bool hidden = kv_secrets_next(&secrets);
        if (i == KV_COMMAND_LOG_ARGS_MAX - 1 && argc > KV_COMMAND_LOG_ARGS_MAX) {
            int len =
                snprintf(to, 64, "... (%d more arguments)", argc - KV_COMMAND_LOG_ARGS_MAX + 1);
            n->argv[i] = kv_slice(to, (size_t)len);
            to += len;
        } else if (hidden) {
            n->argv[i] = KV_SLICE("(redacted)");
        } else {
            n->argv[i] = copy_argument(&to, argv[i]);
        }
    }
    KV_ASSERT(to <= (char *)n + size);

    kv_mutex_lock(&l->mutex);
    n->entry.id = l->next_id++;
    n->newer = NULL;
    n->older = l->newest;
    if (l->newest != NULL)
        l->newest->newer = n;
    else
        l->oldest = n;
    l->newest = n;
    l->len++;
    trim(l, max_len);
    kv_mutex_unlock(&l->mutex);
}

void kv_engine_command_log_each(struct kv_engine *e, enum kv_command_log_kind kind, uint64_t max,
                                void (*visit)(const struct kv_command_log_entry *entry, void *arg),
                                void *arg)
{
    struct kv_command_log *l = &e->command_logs[kind];
    kv_mutex_lock(&l->mutex);
    for (struct kv_command_log_node *n = l->newest; n != NULL && max > 0; n = n->older, max--)
        visit(&n->entry, arg);
    kv_mutex_unlock(&l->mutex);
}

uint64_t kv_engine_command_log_len(struct kv_engine *e, enum kv_command_log_kind kind)
{
    struct kv_command_log *l = &e->command_logs[kind];
    kv_mutex_lock(&l->mutex);
    uint64_t len = l->len;
    kv_mutex_unlock(&l->mutex);
    return len;
}

void kv_engine_command_log_reset(struct kv_engine *e, enum kv_command_log_kind kind)
{
    struct kv_command_log *l = &e->command_logs[kind];
    kv_mutex_lock(&l->mutex);
    trim(l, 0);
    kv_mutex_unlock(&l->mutex);
}

void kv_engine_command_log_trim(struct kv_engine *e)
{
    for (int kind = 0; kind < KV_COMMAND_LOGS; kind++) {
        struct kv_command_log *l = &e->command_logs[kind];
        kv_mutex_lock(&l->mutex);
        trim(l, e->options.command_log[kind].max_len);
        kv_mutex_unlock(&l->mutex);
    }
}
