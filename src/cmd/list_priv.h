/* What the list commands share, blocking ones included. Each function runs under the locks of the
 * keys that it is given. Nothing here waits; what finds nothing says so, and the command replies
 * null or blocks. */
#ifndef KV_CMD_LIST_PRIV_H
#define KV_CMD_LIST_PRIV_H

#include "engine/call.h"
#include "store/list.h"

/* True when the entry is NULL or a list; else WRONGTYPE is replied. */
KV_INLINE bool kv_cmd_list_want(struct kv_call *call, const struct kv_entry *e)
{
    if (KV_LIKELY(e == NULL || kv_entry_type(e) == KV_TYPE_LIST))
        return true;
    kv_call_wrong_type(call);
    return false;
}

/* Argument LEFT or RIGHT; false: something else, nothing is replied. */
bool kv_cmd_list_end_word(const struct kv_call *call, int arg, enum kv_list_end *end) KV_MUST_CHECK;

/* Announces that items were popped from an end, and that the key is gone if e is NULL. */
void kv_cmd_list_announce_pop(struct kv_call *call, const struct kv_key *k, enum kv_list_end end,
                              const struct kv_entry *e);

/* Replies `count` items from an end, which are there, as bulks without an array's header, removes
 * them and announces that. On failure the caller takes back what is replied (kv_out_rewind) and
 * answers for it. */
enum kv_err kv_cmd_list_reply_pop(struct kv_call *call, const struct kv_key *k, struct kv_entry *e,
                                  enum kv_list_end end, uint64_t count) KV_MUST_CHECK;

/* The first of the keys that has a list is popped from: LMPOP's reply is written, and what goes to
 * the change stream. False: none has one. An error is replied for a key of another type. */
bool kv_cmd_list_pop_first(struct kv_call *call, const struct kv_key *keys, int key_count,
                           enum kv_list_end end, uint64_t count) KV_MUST_CHECK;

/* What LMOVE and LMOVEM ask for. */
struct kv_move_options {
    enum kv_list_end from, to;
    uint64_t count;
    bool exactly;  /* nothing at all rather than fewer than `count` */
    bool reversed; /* one by one at the same end: each lands on top of the one before */
    bool many;     /* reply an array */
};

/* Moves from keys[0] to keys[1] and replies. False: the source has not enough, nothing is replied
 * or done. */
bool kv_cmd_list_move(struct kv_call *call, const struct kv_move_options *move) KV_MUST_CHECK;

/* Reads arguments 3 and 4 as ends, and those from `first` on as [COUNT n | EXACTLY n] OBO | BULK.
 * False: an error is replied. */
bool kv_cmd_list_move_words(struct kv_call *call, struct kv_move_options *move) KV_MUST_CHECK;
bool kv_cmd_list_move_options(struct kv_call *call, int first,
                              struct kv_move_options *move) KV_MUST_CHECK;

/* LMPOP's arguments from `number` (the number of keys) on. False: an error is replied. */
bool kv_cmd_list_mpop_options(struct kv_call *call, int number, enum kv_list_end *end,
                              uint64_t *count) KV_MUST_CHECK;

#endif
