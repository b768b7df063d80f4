/* What the string commands share: options of the SET family, conditions on the old value, expiry
 * arguments, and the windowed prefetch of long key lists. Implemented in string_options.c. */
#ifndef KV_CMD_STRING_PRIV_H
#define KV_CMD_STRING_PRIV_H

#include "engine/call.h"
#include "engine/engine.h"

/* Option words of the SET family. A command names those that it accepts. */
enum kv_string_flags {
    KV_SET_NX = 1u << 0,
    KV_SET_XX = 1u << 1,
    KV_SET_IFEQ = 1u << 2,
    KV_SET_IFNE = 1u << 3,
    KV_SET_IFDEQ = 1u << 4,
    KV_SET_IFDNE = 1u << 5,
    KV_SET_GET = 1u << 6,
    KV_SET_KEEPTTL = 1u << 7,
    KV_SET_PERSIST = 1u << 8,
    KV_SET_EX = 1u << 9,
    KV_SET_PX = 1u << 10,
    KV_SET_EXAT = 1u << 11,
    KV_SET_PXAT = 1u << 12,
};

#define KV_SET_MATCH (KV_SET_IFEQ | KV_SET_IFNE | KV_SET_IFDEQ | KV_SET_IFDNE)
#define KV_SET_CONDITION (KV_SET_NX | KV_SET_XX | KV_SET_MATCH)
#define KV_SET_TIME (KV_SET_EX | KV_SET_PX | KV_SET_EXAT | KV_SET_PXAT)
#define KV_SET_LIFETIME (KV_SET_TIME | KV_SET_KEEPTTL | KV_SET_PERSIST)

struct kv_string_options {
    uint32_t flags;         /* enum kv_string_flags that were given */
    int time_arg;           /* argument of KV_SET_TIME; 0 without one */
    struct kv_slice wanted; /* operand of KV_SET_MATCH: a value or a digest */
};

/* Reads the option at *arg when it is one of `allowed`, moving *arg past it. False, without a
 * reply: no such option, its operand is missing, or it contradicts an earlier one (a syntax error
 * to the caller). A repeated option counts as one; of repeated times the last is taken. */
bool kv_string_option(const struct kv_call *call, int *arg, uint32_t allowed,
                      struct kv_string_options *o);

/* Reads all arguments from `first` on as options. False: a syntax error is replied. */
bool kv_string_options(struct kv_call *call, int first, uint32_t allowed,
                       struct kv_string_options *o) KV_MUST_CHECK;

/* The lifetime that the options ask for: absolute ms of Unix time, KV_KEEP_EXPIRY for KEEPTTL, else
 * KV_NO_EXPIRY. False: an error is replied. */
bool kv_string_expiry(struct kv_call *call, const struct kv_string_options *o,
                      int64_t *expiry) KV_MUST_CHECK;

/* Converts argument `arg`, which counts as `flag` (one of KV_SET_TIME) says, likewise. */
bool kv_string_time(struct kv_call *call, int arg, uint32_t flag, int64_t *expiry) KV_MUST_CHECK;

/* Whether the conditions among the options hold for `e` (NULL: no such key). False with *failed
 * set: the old value has another type, or the digest has a wrong length; the error is replied. */
bool kv_string_holds(struct kv_call *call, const struct kv_string_options *o,
                     const struct kv_entry *e, bool *failed);

/* True when a time is in the past, so that a key with it must not exist. */
KV_INLINE bool kv_string_past(const struct kv_call *call, int64_t expiry)
{
    return expiry >= 0 && expiry <= call->view.now_ms;
}

/* Sets the string at `k` to argument `arg`, taking over the argument's block if it came in one. */
KV_INLINE enum kv_err kv_string_store(struct kv_call *call, const struct kv_key *k, int arg,
                                      int64_t expiry)
{
    struct kv_bigstr **block = kv_call_block(call, arg);
    if (KV_UNLIKELY(block != NULL))
        return kv_store_set_block_take(&call->view, k, block, expiry, NULL);
    return kv_store_set(&call->view, k, call->argv[arg], expiry, NULL);
}

/* Deletes e, announces `del` and gives DEL to the change stream. */
void kv_string_delete(struct kv_call *call, const struct kv_key *k, struct kv_entry *e);

/* Gives SET key value with the lifetime to the change stream: PXAT for a time, KEEPTTL for
 * KV_KEEP_EXPIRY, nothing for KV_NO_EXPIRY. */
void kv_string_propagate_set(struct kv_call *call, const struct kv_key *k, struct kv_slice value,
                             int64_t expiry);

/* True when a string of `len` + `more` bytes is within proto-max-bulk-len, else it is replied. */
bool kv_string_fits(struct kv_call *call, uint64_t len, uint64_t more) KV_MUST_CHECK;

KV_INLINE struct kv_slice kv_key_slice(const struct kv_key *k)
{
    return kv_slice(k->ptr, k->len);
}

/* 64-bit XXH3 of the bytes as 16 lower-case hexadecimal digits (digest.c). */
#define KV_DIGEST_LEN 16
void kv_string_digest(struct kv_slice bytes, char out[KV_DIGEST_LEN]);

/* Distances of the windowed prefetch: a bucket's line is asked for 16 keys ahead, the entry that it
 * names 8 keys ahead, so that both misses of a key overlap with work on earlier keys. */
#define KV_AHEAD_BUCKET 16
#define KV_AHEAD_ENTRY 8

/* Before the first key of a long list. */
KV_INLINE void kv_keys_ahead_begin(const struct kv_call *call)
{
    int buckets = KV_MIN(call->key_count, KV_AHEAD_BUCKET);
    int entries = KV_MIN(call->key_count, KV_AHEAD_ENTRY);
    for (int i = 0; i < buckets; i++)
        kv_store_prefetch_bucket(&call->view, call->keys[i].hash);
    for (int i = 0; i < entries; i++)
        kv_store_prefetch_entry(&call->view, call->keys[i].hash);
}

/* Before key i of the list. */
KV_INLINE void kv_keys_ahead(const struct kv_call *call, int i)
{
    if (i + KV_AHEAD_BUCKET < call->key_count)
        kv_store_prefetch_bucket(&call->view, call->keys[i + KV_AHEAD_BUCKET].hash);
    if (i + KV_AHEAD_ENTRY < call->key_count)
        kv_store_prefetch_entry(&call->view, call->keys[i + KV_AHEAD_ENTRY].hash);
}

#endif
