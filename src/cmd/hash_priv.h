/* What the hash commands share. Implemented in hash.c. Worker's thread, inside a call. */
#ifndef KV_CMD_HASH_PRIV_H
#define KV_CMD_HASH_PRIV_H

#include "engine/call.h"
#include "store/hash.h"

/* An entry that a look-up found, as a hash without due fields; false: another type, replied. */
KV_INLINE bool kv_hash_take(struct kv_call *call, struct kv_entry **e)
{
    if (*e == NULL)
        return true;
    if (KV_UNLIKELY(kv_entry_type(*e) != KV_TYPE_HASH)) {
        kv_call_wrong_type(call);
        return false;
    }
    *e = kv_hash_settle(&call->view, &call->keys[0], *e);
    return true;
}

/* The hash at keys[0] for a command that reads (NULL: there is none), opened as well. */
KV_INLINE bool kv_hash_read(struct kv_call *call, struct kv_hash *h)
{
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_hash_take(call, &e))
        return false;
    kv_hash_open(h, &call->view, e);
    return true;
}

/* Likewise for a command that writes. */
KV_INLINE bool kv_hash_write(struct kv_call *call, struct kv_entry **e)
{
    *e = kv_store_write(&call->view, &call->keys[0]);
    return kv_hash_take(call, e);
}

KV_INLINE bool kv_hash_is_empty(const struct kv_hash *h)
{
    return h->list == NULL && h->dict == NULL;
}

/* Announces that the fields of keys[0] are fewer: `hdel`, and `del` when the key is gone. */
void kv_hash_announce_deleted(struct kv_call *call, const struct kv_entry *e);

/* Gives HDEL key fields to the change stream. */
void kv_hash_propagate_hdel(struct kv_call *call, const struct kv_slice *names, size_t count);

/* A field that a command found to be due, but not removed yet, gets a value that depends on what
 * was there: who reads the change stream must know that it had gone. */
void kv_hash_propagate_hidden(struct kv_call *call, struct kv_slice name);

/* "ERR wrong number of arguments for 'hset' command" */
void kv_hash_arity_error(struct kv_call *call);

#endif
