/* Logs of remarkable commands: those that took long, that came with much, that answered much. Each
 * is one list for all workers, newest first, under a mutex that only such commands and who reads
 * the log take.
 *
 * What is compared with the limits costs a few instructions a command: its ticks, which are taken
 * anyway, the distance between its first and last argument, and whether its reply ended in another
 * chunk than it began in. Only what passes is looked at closely. */
#ifndef KV_ENGINE_COMMAND_LOG_H
#define KV_ENGINE_COMMAND_LOG_H

#include "base/lock.h"
#include "engine/engine.h"

#define KV_COMMAND_LOG_ARGS_MAX 32  /* arguments kept */
#define KV_COMMAND_LOG_TEXT_MAX 128 /* bytes kept of one */

struct kv_client;
struct kv_command_log_node;

struct kv_command_log {
    struct kv_mutex mutex;
    struct kv_command_log_node *newest, *oldest;
    uint64_t len;
    uint64_t next_id;
};

void kv_command_log_init(struct kv_command_log *l);
void kv_command_log_release(struct kv_command_log *l);

/* `value`: microseconds or bytes. Keeps at most max_len entries. Passwords in the line are replaced
 * by "(redacted)". Any worker. */
void kv_command_log_add(struct kv_command_log *l, const struct kv_client *c,
                        const struct kv_command *cmd, const struct kv_slice *argv, int argc,
                        uint64_t value, uint64_t max_len) KV_COLD;

#endif
