/* The log of what was denied: commands, keys and channels that a user may not have, and wrong
 * passwords. Newest first, under a mutex that only denials and who reads the log take.
 *
 * The same denial again within a minute is counted in its entry, which becomes the newest. What
 * clients choose (keys, names) is kept up to KV_ACL_LOG_TEXT_MAX bytes, so the log is bounded by
 * acllog-max-len. A denial for which there is no memory is counted, not logged. */
#ifndef KV_ENGINE_ACL_LOG_H
#define KV_ENGINE_ACL_LOG_H

#include "base/lock.h"
#include "base/slice.h"

struct kv_acl_log_node;
struct kv_client;
struct kv_command;
struct kv_engine;

#define KV_ACL_LOG_TEXT_MAX 1024        /* bytes kept of a key, channel or name */
#define KV_ACL_LOG_CLIENT_MAX 1024      /* and of the client's line */
#define KV_ACL_LOG_GROUP_MS (60 * 1000) /* for so long after it began an entry counts others */

enum kv_acl_reason { KV_ACL_BY_COMMAND, KV_ACL_BY_KEY, KV_ACL_BY_CHANNEL, KV_ACL_BY_AUTH };

/* In which kind of call a command was. */
enum kv_acl_context { KV_ACL_TOPLEVEL, KV_ACL_MULTI, KV_ACL_SCRIPT };

struct kv_acl_log_entry {
    uint64_t id;
    uint64_t count;
    int64_t created_ms, updated_ms; /* wall time */
    uint8_t reason, context;        /* enum kv_acl_reason, enum kv_acl_context */
    struct kv_slice object;         /* command, key or channel; of KV_ACL_BY_AUTH the command */
    struct kv_slice user;
    struct kv_slice client; /* as CLIENT LIST describes it, without the end of the line */
};

struct kv_acl_log {
    struct kv_mutex mutex;
    struct kv_acl_log_node *newest, *oldest;
    uint64_t len;
    uint64_t next_id;
};

void kv_acl_log_init(struct kv_acl_log *l);
void kv_acl_log_release(struct kv_acl_log *l);

/* Counts a denial in INFO and puts it into the log. `cmd` is the command that was denied. The
 * client's worker. */
void kv_acl_log_add(struct kv_client *c, const struct kv_command *cmd, enum kv_acl_reason reason,
                    enum kv_acl_context context, struct kv_slice object, struct kv_slice user);

/* Visits at most `max` entries, newest first; under the log's mutex: write to an output, no more.
 * Any worker. */
void kv_acl_log_each(struct kv_engine *e, uint64_t max,
                     void (*visit)(const struct kv_acl_log_entry *entry, void *arg), void *arg);
void kv_acl_log_reset(struct kv_engine *e);
void kv_acl_log_trim(struct kv_engine *e); /* after acllog-max-len changed */

#endif
