/* Eviction: choosing victims in a shard and removing them.
 *
 * Terms
 *   candidate  an entry that the rules allow to evict: any, or only those with a time to live
 *   score      how good a victim it is: long unused, seldom used, soon due
 *   visit      one call of kv_store_evict_shard: looks at a few random candidates of one shard and
 *              evicts those that are among the worst of what was looked at lately
 *   evictor    what a worker knows about scores; its own, so that nothing is shared
 *
 * A visit need not evict anything; a series of visits over all shards does, unless no shard has a
 * candidate. About 2 * `samples` candidates are looked at for each victim.
 *
 * Threads: an evictor belongs to one thread; a visit needs the shard's lock. */
#ifndef KV_STORE_EVICT_H
#define KV_STORE_EVICT_H

#include "store/store.h"

/* The order in which candidates go. Which of LRU, LFU and LRM the access clock means is the store's
 * (kv_store_set_access): KV_EVICT_OLDEST serves LRU and LRM. */
enum kv_evict_order {
    KV_EVICT_OLDEST, /* longest not used, or not changed */
    KV_EVICT_RAREST, /* used least often */
    KV_EVICT_RANDOM,
    KV_EVICT_SOONEST, /* the earliest due time; exact within a shard */
};

struct kv_evict_rules {
    enum kv_evict_order order;
    bool volatile_only; /* only keys with a time to live; always so for KV_EVICT_SOONEST */
    uint32_t samples;   /* half of the candidates per victim; over 64 it has no further effect */
};

#define KV_EVICT_SCORES 128
#define KV_EVICT_LATER_MAX 16

struct kv_evictor {
    struct kv_evict_rules rules;
    struct kv_random random;
    uint32_t scores[KV_EVICT_SCORES]; /* of the candidates looked at last; a ring */
    uint32_t score_count;             /* how many there are */
    uint32_t score_next;              /* place of the next one */
    uint32_t threshold;               /* score from which on a candidate goes */
    uint32_t fruitless;               /* candidates looked at since the last victim */
};

/* Values that are freed after the lock: those that take long. */
struct kv_evict_later {
    void *entries[KV_EVICT_LATER_MAX]; /* for kv_store_free_evicted */
    uint32_t count;
};

struct kv_evict_result {
    uint64_t keys;      /* removed, those that were due included */
    uint64_t bytes;     /* blocks of them, those in `later` included */
    uint64_t key_bytes; /* length of their names: what the change stream takes */
    bool empty;         /* the shard has no candidate */
};

void kv_evictor_init(struct kv_evictor *ev, uint64_t seed);

/* Other rules than before make the evictor forget what it knew. */
void kv_evictor_set_rules(struct kv_evictor *ev, const struct kv_evict_rules *rules);

/* One visit: evicts at most until `want_bytes` are free, adding to *result (`empty` is set anew).
 * Evicted keys are announced (event `evicted`), due ones expire. Values that take long to free are
 * appended to `later` while it has room; NULL: everything is freed at once. */
void kv_store_evict_shard(struct kv_view *v, uint32_t shard, struct kv_evictor *ev,
                          uint64_t want_bytes, struct kv_evict_later *later,
                          struct kv_evict_result *result);

/* Frees an entry of struct kv_evict_later. Any thread, no lock. */
void kv_store_free_evicted(void *entry);

#endif
