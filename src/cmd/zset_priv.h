/* What the files of sorted-set commands share. For src/cmd alone. Worker's thread, inside a call.
 */
#ifndef KV_CMD_ZSET_PRIV_H
#define KV_CMD_ZSET_PRIV_H

#include "engine/call.h"
#include "store/zset.h"

/* True when an entry is a sorted set or NULL; else WRONGTYPE is replied. */
KV_INLINE bool kv_zset_is(struct kv_call *call, const struct kv_entry *e)
{
    if (KV_LIKELY(e == NULL || kv_entry_type(e) == KV_TYPE_ZSET))
        return true;
    kv_call_wrong_type(call);
    return false;
}

/* Opens the sorted set that a look-up has found; *e NULL: there is none. False: replied. */
KV_INLINE bool kv_zset_open(struct kv_call *call, const struct kv_key *k, struct kv_entry **e,
                            struct kv_ranking *r)
{
    if (!kv_zset_is(call, *e))
        return false;
    if (KV_LIKELY(kv_ranking_open(&call->view, k, e, call->arena, r) == KV_OK))
        return true;
    kv_call_no_memory(call);
    return false;
}

/* The sorted set of a key for a command that reads, and for one that writes. False: replied. */
KV_INLINE bool kv_zset_read(struct kv_call *call, int key, struct kv_ranking *r)
{
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[key]);
    return kv_zset_open(call, &call->keys[key], &e, r);
}

KV_INLINE bool kv_zset_write(struct kv_call *call, int key, struct kv_entry **e,
                             struct kv_ranking *r)
{
    *e = kv_store_write(&call->view, &call->keys[key]);
    return kv_zset_open(call, &call->keys[key], e, r);
}

/* Announces an event of members leaving, and `del` when the set has gone with them. */
void kv_zset_shrunk(struct kv_call *call, const struct kv_key *k, const struct kv_entry *e,
                    const char *event);

/* Replies the score of a member that a walk gave. */
void kv_zset_reply_score(struct kv_call *call, const struct kv_ranked *m);

enum kv_zset_form {
    KV_ZSET_NAMES,
    KV_ZSET_SCORES, /* names and scores: flat in RESP2, pairs in RESP3 */
    KV_ZSET_FLAT,
    KV_ZSET_PAIRS,
    KV_ZSET_BARE, /* flat, the header being the caller's */
};

/* Replies members of a walk, `count` of them, which are there. */
void kv_zset_reply_walk(struct kv_call *call, struct kv_ranking_walk *w, uint64_t count,
                        enum kv_zset_form form);

/* The header of such a reply, for `count` members. */
void kv_zset_reply_header(struct kv_call *call, uint64_t count, enum kv_zset_form form);

/* One member of such a reply. */
void kv_zset_reply_member(struct kv_call *call, const struct kv_ranked *m, enum kv_zset_form form);

/* Argument as a bound of scores ("5", "(5", "inf"); false: an error is replied. */
bool kv_zset_score_range(struct kv_call *call, int min_arg, int max_arg,
                         struct kv_score_range *range) KV_MUST_CHECK;

/* Likewise of names ("[a", "(a", "-", "+"). */
bool kv_zset_lex_range(struct kv_call *call, int min_arg, int max_arg,
                       struct kv_lex_range *range) KV_MUST_CHECK;

/* Pops up to `count` members from the low or the high end of a set that is there, replies them in
 * this form and announces. False: memory was short, which is replied; nothing changed. Works for a
 * client that waited as well (engine/blocking.h). */
bool kv_zset_pop(struct kv_call *call, const struct kv_key *k, struct kv_entry *e, bool max,
                 uint64_t count, enum kv_zset_form form);

/* Reads the arguments of ZMPOP from `first`, that of numkeys, on; false: replied. */
bool kv_zset_mpop_options(struct kv_call *call, int first, bool *max,
                          uint64_t *count) KV_MUST_CHECK;

/* Pops from one key as ZMPOP does, with its reply, event and propagation. False: there is nothing,
 * or *failed: an error is replied. */
bool kv_zset_mpop_from(struct kv_call *call, int key, bool max, uint64_t count, bool *failed);

/* The name of a member, good until the set changes: copied where it lies in the walk's scratch
 * memory. ptr NULL: no memory. */
KV_INLINE struct kv_slice kv_zset_stable_name(struct kv_call *call, const struct kv_ranked *m)
{
    if (KV_LIKELY(m->name.ptr != m->scratch))
        return m->name;
    char *copy = kv_arena_try_alloc(call->arena, m->name.len);
    if (copy != NULL)
        memcpy(copy, m->name.ptr, m->name.len);
    return kv_slice(copy, m->name.len);
}

/* Stores the result of a command in keys[key]: members in order and distinct, whose names may lie
 * in that key's value. Announces `event`, or `del` when there are none. False: replied. */
bool kv_zset_store(struct kv_call *call, int key, const struct kv_zset_pair *pairs, size_t count,
                   const char *event);

#endif
