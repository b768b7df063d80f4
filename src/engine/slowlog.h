/* The slow log: the last commands that took longer than slowlog-log-slower-than. One list for all
 * workers under a mutex that only slow commands and SLOWLOG take. */
#ifndef KV_ENGINE_SLOWLOG_H
#define KV_ENGINE_SLOWLOG_H

#include "base/lock.h"
#include "base/slice.h"

#define KV_SLOWLOG_ARGS_MAX 32  /* arguments kept */
#define KV_SLOWLOG_TEXT_MAX 128 /* bytes kept of one */

struct kv_client;
struct kv_slowlog_node;

struct kv_slowlog {
    struct kv_mutex mutex;
    struct kv_slowlog_node *newest, *oldest;
    uint64_t len;
    uint64_t next_id;
};

void kv_slowlog_init(struct kv_slowlog *s);
void kv_slowlog_release(struct kv_slowlog *s);
void kv_slowlog_add(struct kv_slowlog *s, const struct kv_client *c, const struct kv_slice *argv,
                    int argc, uint64_t usec, uint64_t max_len) __attribute__((cold));

#endif
