/* What the files of set commands share. For src/cmd alone. */
#ifndef KV_CMD_SET_PRIV_H
#define KV_CMD_SET_PRIV_H

#include "engine/call.h"
#include "store/set.h"

/* The set under a key as the command finds it, due members removed; *e NULL: there is none. False:
 * the key holds something else, and that is replied. */
bool kv_cmd_set_read(struct kv_call *call, int key, struct kv_entry **e) KV_MUST_CHECK;

/* Likewise to change it. */
bool kv_cmd_set_write(struct kv_call *call, int key, struct kv_set *s) KV_MUST_CHECK;

/* Announces that members left the set, and that it went with them when it did. */
void kv_cmd_set_shrunk(struct kv_call *call, const struct kv_set *s, const char *event);

#endif
