/* Sorted sets in the keyspace: one set of functions over the packed and the large form.
 *
 * Terms
 *   member    a name with a score, which is never NaN; ordered by score, then by name as memcmp
 *             sorts it
 *   rank      a member's number in that order, from 0 at the lowest
 *   span      ranks in a row
 *   ranking   a sorted set as reading commands see it: without the members that are due. It ends
 *             with the next change of the key
 *
 * Packed (KV_ENC_LISTPACK): name, score, name, score ... in order; KV_ENC_LISTPACKEX has a due time
 * behind each score. A score is an integer item when it is a whole number that an int64 holds, else
 * the text of kv_double_print. Large (KV_ENC_SKIPLIST): value/zset.h. A set becomes large when it
 * has more members or a longer name than zset-max-listpack-entries and -value say, and stays so.
 *
 * None of these announces. A set loses its key with its last member: then *e becomes NULL, and the
 * caller announces `del` as well.
 *
 * Failure: KV_ERR_NOMEM has changed nothing. Scratch memory comes from the arena that is given.
 * Threads: under the lock of the key's shard.
 */
#ifndef KV_STORE_ZSET_H
#define KV_STORE_ZSET_H

#include "mem/arena.h"
#include "store/collection.h"
#include "value/zset.h"

/* --- reading --- */

struct kv_ranking {
    const uint8_t *list; /* packed; NULL: large */
    unsigned stride;     /* items a member has in the list: 2, or 3 with due times */
    const struct kv_zset *large;
};

/* Opens *e, a sorted set. Members that are due are removed first, or, in a view that keeps them,
 * left out. *e becomes NULL, and *out empty, when none is left. e == NULL gives an empty one. */
enum kv_err kv_ranking_open(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                            struct kv_arena *arena, struct kv_ranking *out) KV_MUST_CHECK KV_HOT;

uint64_t kv_ranking_count(const struct kv_ranking *r);

/* A member as a walk gives it. Borrows the set. */
struct kv_ranked {
    struct kv_slice name;
    struct kv_slice score_text; /* the score as kv_double_print writes it; ptr NULL: see `score` */
    double score;
    int64_t due;                   /* or KV_NOT_DUE */
    char scratch[KV_INT_TEXT_MAX]; /* a name that is a number may lie here */
};

/* The score, parsed from its text where that is needed. */
double kv_ranked_score(const struct kv_ranked *m);

/* The member with a name; false: there is none. The second also tells its rank. */
bool kv_ranking_find(const struct kv_ranking *r, struct kv_slice name, double *score, int64_t *due);
bool kv_ranking_rank(const struct kv_ranking *r, struct kv_slice name, uint64_t *rank,
                     double *score);

/* Series of look-ups in one ranking: `next` goes on after the last match of a packed list. */
struct kv_ranking_cursor {
    const uint8_t *at;
};
bool kv_ranking_find_on(const struct kv_ranking *r, struct kv_ranking_cursor *c,
                        struct kv_slice name, double *score, int64_t *due);

struct kv_span {
    uint64_t first, count;
};

struct kv_score_range {
    double min, max;
    bool min_open, max_open; /* the bound itself is outside */
};

enum kv_lex_kind { KV_LEX_CLOSED, KV_LEX_OPEN, KV_LEX_LOWEST, KV_LEX_HIGHEST };

struct kv_lex_range {
    struct kv_slice min, max; /* borrowed; unused with the last two kinds */
    enum kv_lex_kind min_kind, max_kind;
};

/* Ranks of the members within bounds. Names are in order only where scores are equal: of a set with
 * different scores, a lex range has what is found by walking on from the first name within. */
struct kv_span kv_ranking_by_score(const struct kv_ranking *r, const struct kv_score_range *range);
struct kv_span kv_ranking_by_lex(const struct kv_ranking *r, const struct kv_lex_range *range);

/* A walk over members, up from a rank or down to rank 0. */
struct kv_ranking_walk {
    const struct kv_ranking *ranking;
    const uint8_t *at; /* next member in the list; NULL: none */
    bool down, more;
    struct kv_order_cursor cursor; /* large */
};
void kv_ranking_walk(const struct kv_ranking *r, uint64_t rank, bool down,
                     struct kv_ranking_walk *w);
bool kv_ranking_next(struct kv_ranking_walk *w, struct kv_ranked *m) KV_HOT; /* false: the end */

/* As SCAN: see kv_table_scan. A packed set comes whole. */
uint64_t kv_ranking_scan(const struct kv_ranking *r, uint64_t position, uint64_t count,
                         void (*visit)(const struct kv_ranked *m, void *arg), void *arg);

/* --- changing --- */

struct kv_zset_pair {
    struct kv_slice name;
    double score; /* not NaN */
};

enum kv_zadd_flags {
    KV_ZADD_NX = 1,   /* new members only */
    KV_ZADD_XX = 2,   /* present members only */
    KV_ZADD_GT = 4,   /* a present member's score only grows */
    KV_ZADD_LT = 8,   /* ... only falls */
    KV_ZADD_INCR = 16 /* one pair: its score is added */
};

struct kv_zadd_result {
    uint64_t added, updated;
    bool nan;     /* KV_ZADD_INCR: the sum is no number, nothing was done */
    bool skipped; /* KV_ZADD_INCR: a condition did not hold */
    double score; /* KV_ZADD_INCR: what the member has now */
};

/* Adds or updates members one after the other; the key is made when there is none (*e NULL). A due
 * time that a member has stays. */
enum kv_err kv_store_zset_add(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                              const struct kv_zset_pair *pairs, size_t count, uint32_t flags,
                              struct kv_arena *arena,
                              struct kv_zadd_result *result) KV_MUST_CHECK KV_HOT;

/* Removes members by name; those that are not there do not count. */
enum kv_err kv_store_zset_remove(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                 const struct kv_slice *names, size_t count, struct kv_arena *arena,
                                 uint64_t *removed) KV_MUST_CHECK;

/* Removes the members of a span, which must be there. Nothing is announced of them. */
enum kv_err kv_store_zset_remove_span(struct kv_view *v, const struct kv_key *k,
                                      struct kv_entry **e, struct kv_span span) KV_MUST_CHECK;

/* Makes `k` a sorted set of these members, in order and distinct, without time to live, whatever
 * it was; count > 0. The names may lie in what it was. */
enum kv_err kv_store_zset_store(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                const struct kv_zset_pair *pairs, size_t count,
                                struct kv_arena *arena) KV_MUST_CHECK;

/* Gives a member a due time, or none. False in *found: there is no such member. */
enum kv_err kv_store_zset_set_due(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                  struct kv_slice name, int64_t due, struct kv_arena *arena,
                                  bool *found) KV_MUST_CHECK;

/* Order of members: below zero, zero, above zero. */
int kv_zset_pair_compare(const struct kv_zset_pair *a, const struct kv_zset_pair *b);

/* --- for the folder --- */

/* A score as text: digits of a whole number that an int64 holds, else as kv_double_print. */
struct kv_slice kv_score_text(double score, char scratch[KV_DOUBLE_TEXT_MAX]);

#endif
