/* Sets in the keyspace: members without order, each once.
 *
 *   KV_ENC_INTSET       all members are integers: sorted numbers (ds/intset.h)
 *   KV_ENC_LISTPACK     few and short members: a packed list of them
 *   KV_ENC_LISTPACKEX   the same with due times: member, due time (0: none), member ...
 *   KV_ENC_HASHTABLE    elements without values (value/dict.h); integers are texts there
 *
 * A set becomes what it must to hold what is added, by the limits of kv_store_limits, and goes back
 * only when all of it is replaced. Members are texts for whoever calls: what reads as an integer is
 * stored as one where the form allows it, and comes back as the same text.
 *
 * A member whose due time has come is not there for any function that is told the time (`now_ms`),
 * removed yet or not. kv_set_purge, called by who looks a set up, removes such members, but only a
 * bounded number at once, and none in a view that keeps due entries.
 *
 * None of these announces; each says what changed, and the command announces.
 *
 * Failure: KV_ERR_NOMEM has changed nothing that a client can see, except where a due member is
 * added anew. Threads: under the lock of the key's shard.
 */
#ifndef KV_STORE_SET_H
#define KV_STORE_SET_H

#include "base/random.h"
#include "mem/arena.h"
#include "store/collection.h"

/* --- reading; e is a set --- */

/* Removes due members if there may be some. The entry, and NULL when the set went with them. Call
 * this first after looking a key up; e may be NULL and of any type. */
struct kv_entry *kv_set_purge(struct kv_view *v, const struct kv_key *k, struct kv_entry *e);

/* Members that are not due. */
uint64_t kv_set_count(const struct kv_entry *e, int64_t now_ms);

bool kv_set_has(const struct kv_entry *e, struct kv_slice member, int64_t now_ms) KV_HOT;

/* Visits the members. A member's bytes are good during its visit; those of a large set, and texts
 * in a packed list, until the set changes. */
void kv_set_each(const struct kv_entry *e, int64_t now_ms,
                 void (*visit)(struct kv_slice member, void *arg), void *arg);

/* A part of a walk in steps (SSCAN), from `position` on, about `count` members; returns the
 * position to go on from, 0 at the end. A member that is there from the first step to the last is
 * visited, and once, whatever happens to others; small sets come in one step. Members as for
 * kv_set_each. */
uint64_t kv_set_scan(const struct kv_entry *e, int64_t now_ms, uint64_t position, uint64_t count,
                     void (*visit)(struct kv_slice member, void *arg), void *arg);

/* A random member, each as likely; ptr NULL: there is none. An integer is printed into scratch. */
struct kv_slice kv_set_random(const struct kv_entry *e, int64_t now_ms, struct kv_random *r,
                              char scratch[KV_INT_TEXT_MAX]);

/* --- reading many at once --- */

#define KV_SET_BATCH 32u /* members looked up together: their cache misses overlap */

/* Up to KV_SET_BATCH members of a set. */
struct kv_set_batch {
    unsigned count;
    bool hashed;                           /* the hashes are worked out */
    struct kv_slice members[KV_SET_BATCH]; /* good until the batch's visit ends */
    uint64_t hashes[KV_SET_BATCH];         /* as the keyspace's sets and hashes use them */
    char texts[KV_SET_BATCH][KV_INT_TEXT_MAX + 3];
};

/* Works out the hashes if they are not yet; hash_key: kv_store_hash_key. */
KV_INLINE void kv_set_batch_hash(struct kv_set_batch *b, const struct kv_hash_key *hash_key)
{
    if (b->hashed)
        return;
    for (unsigned i = 0; i < b->count; i++)
        b->hashes[i] = kv_hash_bytes(hash_key, b->members[i].ptr, b->members[i].len);
    b->hashed = true;
}

/* All of its members, a bit each. */
KV_INLINE uint32_t kv_set_batch_all(const struct kv_set_batch *b)
{
    return UINT32_MAX >> (KV_SET_BATCH - b->count);
}

/* Which of the batch's members, chosen by a bit each, are in set e: a bit each. Works out the
 * hashes when it is the first to need them. */
uint32_t kv_set_has_batch(const struct kv_entry *e, int64_t now_ms, struct kv_set_batch *b,
                          const struct kv_hash_key *hash_key, uint32_t chosen) KV_HOT;

/* Visits all members in batches until the visitor returns false. `may_stop` tells that it might:
 * a walk that can end early costs a little more. `b` is scratch. */
void kv_set_each_batch(const struct kv_entry *e, int64_t now_ms, bool may_stop,
                       struct kv_set_batch *b, bool (*visit)(struct kv_set_batch *b, void *arg),
                       void *arg);

/* --- changing --- */

/* A set that a command works on: what it found under a key, NULL for nothing. */
struct kv_set {
    struct kv_view *view;
    const struct kv_key *key;
    struct kv_entry *entry; /* changes with the set; NULL when it is gone */
    struct kv_arena *arena; /* scratch until the command ends */
};

/* Adds members, making the set when there is none; *added: how many were not there. A member that
 * is there keeps its due time. */
enum kv_err kv_set_add(struct kv_set *s, const struct kv_slice *members, size_t count,
                       uint64_t *added) KV_MUST_CHECK KV_HOT;

/* Removes members; *removed: how many were there. The key goes with the last one. */
enum kv_err kv_set_remove(struct kv_set *s, const struct kv_slice *members, size_t count,
                          uint64_t *removed) KV_MUST_CHECK;

/* Chooses `count` different members at random, fewer than there are in a set without due members
 * (else at most so many): *chosen, in the arena. Each choice is as likely. Their bytes are good
 * until the set changes. */
enum kv_err kv_set_choose(const struct kv_set *s, size_t count, struct kv_random *r,
                          struct kv_slice **chosen, size_t *chosen_count) KV_MUST_CHECK;

/* --- due times of members --- */

/* False: no such member. *due: ms of Unix time, or KV_NOT_DUE. */
bool kv_set_member_due(const struct kv_entry *e, struct kv_slice member, int64_t now_ms,
                       int64_t *due) KV_MUST_CHECK;

/* Gives a member that is there a due time, or takes it away (KV_NOT_DUE). */
enum kv_err kv_set_set_due(struct kv_set *s, struct kv_slice member, int64_t due) KV_MUST_CHECK;

/* --- building a set from members that are known to be different --- */

struct kv_set_builder {
    struct kv_view *view;
    struct kv_arena *arena;
    struct kv_slice *members; /* copies, while the set is small */
    size_t count, capacity;
    size_t longest;       /* bytes of the longest member */
    bool all_integers;    /* so far */
    struct kv_dict *dict; /* once it is large */
};

void kv_set_builder_init(struct kv_set_builder *b, struct kv_view *v, struct kv_arena *arena);
void kv_set_builder_release(struct kv_set_builder *b); /* also after a failure */
enum kv_err kv_set_builder_add(struct kv_set_builder *b, struct kv_slice member) KV_MUST_CHECK;
uint64_t kv_set_builder_count(const struct kv_set_builder *b);

/* Puts the set, which is not empty, under a key in place of what is there (*e, NULL: nothing),
 * without time to live, in the smallest form that holds it. */
enum kv_err kv_set_builder_store_take(struct kv_set_builder *b, const struct kv_key *k,
                                      struct kv_entry **e) KV_MUST_CHECK;

/* Asserts what a set promises beyond kv_entry's own check. */
void kv_set_check(const struct kv_entry *e);

#endif
