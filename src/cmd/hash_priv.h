/* What the hash commands share. Implemented in hash.c and hash_expire.c. Worker's thread, inside a
 * call. */
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

/* Likewise for a command that replies what it changes: it counts as a hit or a miss. */
KV_INLINE bool kv_hash_read_write(struct kv_call *call, struct kv_entry **e)
{
    struct kv_store_stats *stats = call->view.stats;
    bool right = kv_hash_write(call, e);
    kv_stat_add(right && *e == NULL ? &stats->misses : &stats->hits, 1);
    return right;
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

/* --- fields and due times: hash_expire.c --- */

/* The names of "FIELDS n name ...". */
struct kv_hash_fields {
    const struct kv_slice *names;
    size_t count;
    int next; /* argument behind them */
};

/* Error texts that families of commands have of their own. */
struct kv_hash_words {
    const char *missing;   /* no FIELDS there */
    const char *bad_count; /* n is no positive integer */
    const char *mismatch;  /* fewer than n names follow */
};

/* Reads the fields at argument `arg`; false: an error is replied. */
bool kv_hash_fields_at(struct kv_call *call, int arg, const struct kv_hash_words *words,
                       struct kv_hash_fields *f) KV_MUST_CHECK;

/* Argument as a moment: a non-negative number of units from base_ms on, in ms of Unix time. False:
 * an error is replied. */
bool kv_hash_moment(struct kv_call *call, int arg, int64_t unit_ms, int64_t base_ms,
                    int64_t *when_ms) KV_MUST_CHECK;

/* Those of the fields that a command changes. */
struct kv_hash_chosen {
    struct kv_slice *names; /* room for all of them */
    size_t count;
    uint32_t *first; /* index of the first field of the same name */
};

/* False: no memory, which is replied. */
bool kv_hash_chosen_init(struct kv_call *call, const struct kv_hash_fields *f,
                         struct kv_hash_chosen *c) KV_MUST_CHECK;

/* Gives the chosen fields, which are there, a due time or takes it away (KV_NOT_DUE); or removes
 * them. Announces and propagates; the caller replies. */
enum kv_err kv_hash_apply_due(struct kv_call *call, struct kv_entry **e,
                              const struct kv_hash_chosen *c, int64_t due) KV_MUST_CHECK;
enum kv_err kv_hash_apply_delete(struct kv_call *call, struct kv_entry **e,
                                 const struct kv_hash_chosen *c) KV_MUST_CHECK;

#endif
