/* One execution of a command: what a command function gets and what it may do.
 *
 * When the function runs, the engine has checked name, arity, permissions and limits, resolved the
 * keys, and holds what cmd->mode says. The function reads argv, works on call->view, writes exactly
 * one reply to call->out (unless muted), announces changes with kv_store_changed and returns. It
 * allocates from call->arena what it needs for its duration. It does not wait and does no I/O.
 *
 * Propagation: when call->view.dirty grew and the command has the flag `write`, the command line
 * goes to the change stream as it came, unless the function gave another form with
 * kv_call_propagate. The form must be deterministic: absolute expiry times, results
 * instead of relative or random inputs.
 */
#ifndef KV_ENGINE_CALL_H
#define KV_ENGINE_CALL_H

#include "base/err.h"
#include "base/slice.h"
#include "engine/command.h"
#include "mem/arena.h"
#include "proto/reply.h"
#include "store/store.h"

struct kv_client;
struct kv_worker;
struct kv_engine;

enum kv_call_flags {
    KV_CALL_IN_EXEC = 1,    /* part of a transaction */
    KV_CALL_PROPAGATED = 2, /* kv_call_propagate was called */
    KV_CALL_IN_SCRIPT = 8,  /* run by a script (engine/script.h), with KV_CALL_IN_EXEC */
    KV_CALL_SERVES = 4,     /* runs for a blocked client, whose client structure is NULL here */
};

struct kv_call {
    const struct kv_slice *argv; /* argv[0] is the command's name (argv[1] the subcommand's) */
    int argc;
    uint32_t flags;            /* enum kv_call_flags */
    const struct kv_key *keys; /* in the order of the key specifications; all resolved */
    int key_count;
    const struct kv_command *cmd;
    struct kv_out *out;       /* replies go here */
    struct kv_arena *arena;   /* memory until the reply is written; never freed singly */
    struct kv_client *client; /* who asks; engine/client.h */
    struct kv_worker *worker;
    struct kv_engine *engine;
    struct kv_bigstr *block; /* a received large argument that the call may take over, or NULL */
    int block_arg;           /* which argument that is */
    bool hold_all;           /* every shard is held: alone, or in a transaction */
    bool visited;            /* KV_MODE_SHARDS: a shard was locked already */
    struct kv_view view;
};

/* --- errors: the reply of a client's mistake. Each is counted for INFO errorstats. --- */
void kv_call_error(struct kv_call *call, const char *text); /* "ERR syntax error" */
void kv_call_errorf(struct kv_call *call, const char *fmt, ...) KV_PRINTF(2, 3);
void kv_call_syntax_error(struct kv_call *call); /* ERR syntax error */
void kv_call_wrong_type(struct kv_call *call);   /* WRONGTYPE ... */
void kv_call_not_integer(struct kv_call *call);  /* ERR value is not an integer or out of range */
void kv_call_not_float(struct kv_call *call);    /* ERR value is not a valid float */
void kv_call_no_memory(struct kv_call *call);    /* OOM ...: a try allocation failed */
/* Replies for a failed operation: KV_ERR_NOMEM as kv_call_no_memory, others by their text. */
void kv_call_failed(struct kv_call *call, enum kv_err err);
/* "ERR unknown subcommand or wrong number of arguments for '...'. Try X HELP." */
void kv_call_unknown_subcommand(struct kv_call *call);
/* The standard HELP reply: an array of status lines; "lines" NULL-terminated, without the header
 * and the trailing HELP lines, which are added. */
void kv_call_help(struct kv_call *call, const char *const *lines);

/* --- arguments: true and *out, or the error reply is written --- */
bool kv_call_int(struct kv_call *call, int arg, int64_t *out) KV_MUST_CHECK;
bool kv_call_int_range(struct kv_call *call, int arg, int64_t min, int64_t max,
                       int64_t *out) KV_MUST_CHECK; /* "ERR value is out of range, ..." */
bool kv_call_ldouble(struct kv_call *call, int arg, long double *out) KV_MUST_CHECK;

/* True when the entry is NULL or a string; else WRONGTYPE is replied. */
bool kv_call_want_string(struct kv_call *call, const struct kv_entry *e) KV_MUST_CHECK;

/* Argument as option word: case-insensitive equality. */
KV_INLINE bool kv_call_arg_is(const struct kv_call *call, int arg, const char *lower)
{
    return kv_slice_is(call->argv[arg], lower);
}

/* The value at argument `arg` is about to be stored whole: gives the received block when the
 * argument came in one (then NULL it with kv_store_set_block_take(&call->block)), else NULL. */
KV_INLINE struct kv_bigstr **kv_call_block(struct kv_call *call, int arg)
{
    return call->block != NULL && call->block_arg == arg ? &call->block : NULL;
}

/* Replies a string value as bulk: large ones by reference without a copy. */
void kv_call_reply_string(struct kv_call *call, const struct kv_entry *e);

/* --- propagation --- */
/* Adds one command line to what goes to the change stream instead of the command as it came. May be
 * called several times. Arguments are copied when there is a reader, else nothing happens. */
void kv_call_propagate(struct kv_call *call, const struct kv_slice *argv, int argc);
/* The same for a line in two parts, as of a few words of ours and a run of the client's. */
void kv_call_propagate_parts(struct kv_call *call, const struct kv_slice *head, size_t head_count,
                             const struct kv_slice *words, size_t word_count);
/* Convenience: name, key and up to two more words. */
void kv_call_propagate_del(struct kv_call *call, const struct kv_key *key);

/* Milliseconds -> decimal text in the arena, for propagated forms. */
struct kv_slice kv_call_int_text(struct kv_call *call, int64_t value);

/* Error for a time to live out of range: "ERR invalid expire time in 'set' command". */
void kv_call_invalid_expire(struct kv_call *call);

/* --- KV_MODE_SHARDS --- */
/* Locks one more shard after unlocking the one held so far (no-op inside EXEC, where all are held).
 * False: busy, answer with what there is. The first call of a command never fails. */
bool kv_call_lock_shard(struct kv_call *call, uint32_t shard);

/* Selected database changes (SELECT): bounds are checked by the command. */
void kv_call_select(struct kv_call *call, uint32_t db);

#endif
