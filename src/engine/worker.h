/* Private bodies of the engine: worker, engine, transaction. For engine/ only (commands use the
 * public headers). A worker's fields belong to its thread unless marked. */
#ifndef KV_ENGINE_WORKER_H
#define KV_ENGINE_WORKER_H

#include "base/clock.h"
#include "engine/acl.h"
#include "engine/alone.h"
#include "engine/blocking.h"
#include "engine/call.h"
#include "engine/client.h"
#include "engine/client_limit.h"
#include "engine/command_log.h"
#include "engine/commit.h"
#include "engine/defrag.h"
#include "engine/delivery.h"
#include "engine/engine.h"
#include "engine/errand.h"
#include "engine/gate.h"
#include "engine/inbox.h"
#include "engine/latency.h"
#include "engine/loading.h"
#include "engine/lockset.h"
#include "engine/memory_limit.h"
#include "engine/pubsub.h"
#include "engine/script.h"
#include "engine/snapshot.h"
#include "engine/stream.h"
#include "engine/tracking.h"
#include "mem/arena.h"
#include "net/loop.h"
#include "proto/parse.h"
#include "value/bigstr.h"
#include <pthread.h>

#define KV_READ_BYTES (64 * 1024) /* most bytes taken from a socket per round */
#define KV_INPUT_KEEP (64 * 1024) /* leftover that fits before them in the shared buffer */
#define KV_INPUT_BYTES (KV_READ_BYTES + KV_INPUT_KEEP + 1024)
#define KV_LOOKAHEAD_MAX 64
#define KV_HOLD_NS 50000           /* a batch gives its locks back after this */
#define KV_ROUND_TRUST_NS 10000000 /* see kv_worker_wall_ms */
#define KV_EXPIRE_SLICE_NS 200000
#define KV_ERRORS_MAX 128 /* distinct error codes counted */
#define KV_LISTEN_MAX (KV_BIND_MAX * 2 + 1)
#define KV_CALL_RETRY 0x80000000u /* call->flags: the first shard was busy, run again */

struct kv_command_index;
struct kv_hotkeys;
struct kv_hotkeys_record;
struct kv_job;

/* One command of a batch. */
struct kv_planned {
    struct kv_request request;
    const struct kv_command *cmd;
    struct kv_key *keys; /* `key`, or several in the arena */
    struct kv_key key;
    int key_count;
};

struct kv_queued { /* one command of a MULTI */
    const struct kv_command *cmd;
    struct kv_slice *argv; /* in the transaction's arena */
    int argc;
    uint32_t bytes; /* of all arguments, for the stream's room */
};

struct kv_watched {
    struct kv_watch *watch;
};

struct kv_tx {
    struct kv_arena arena;   /* arguments of queued commands */
    struct kv_queued *queue; /* owned */
    uint32_t queue_len, queue_capacity;
    uint64_t queue_bytes;       /* sum of argument bytes */
    uint64_t watch_bytes;       /* blocks of the records that the watches keep in the store */
    uint8_t mode;               /* strongest enum kv_cmd_mode of the queue */
    bool writes;                /* some queued command writes */
    bool denyoom;               /* some queued command needs memory */
    bool scripts;               /* some queued command runs a script */
    struct kv_watched *watches; /* owned */
    uint32_t watch_len, watch_capacity;
};

struct kv_recent_name {
    uint64_t words[2]; /* the name's bytes, see kv_worker_lookup */
    uint32_t len;      /* 0: unused */
    const struct kv_command *cmd;
};

struct kv_error_count {
    char code[24];
    kv_stat count;
};

struct kv_worker {
    /* touched by other workers */
    atomic_uint inside KV_ALIGNED(KV_CACHE_LINE);  /* see gate.h */
    atomic_uint waiting KV_ALIGNED(KV_CACHE_LINE); /* in kv_loop_wait, or not running: see gate.h */
    atomic_uint at_stop;                           /* stands at the stop point */
    struct kv_inbox inbox;
    struct kv_mailbox mailbox;

    /* own */
    struct kv_engine *engine KV_ALIGNED(KV_CACHE_LINE);
    uint32_t index;
    bool gate_parked;     /* under gate.mutex: gate_waiters is not empty */
    uint32_t gate_phases; /* phases of the gate in which it resumes what was parked there */
    bool draining;        /* inside the message handlers */
    bool busy;            /* a client's input is being processed: no nested processing */
    bool load_more;       /* loading has more work for it */
    struct kv_loop *loop;
    pthread_t thread;
    struct kv_lockset locks;
    struct kv_arena arena;        /* of the command or batch that runs */
    struct kv_call call;          /* reused */
    struct kv_script *script;     /* that runs on this worker, or NULL */
    struct kv_arena script_arena; /* of the commands of scripts */
    bool script_oom; /* nothing could be evicted for the script that is about to begin */
    bool upgraded;   /* a script has made itself alone, beyond what its command holds */
    bool serving;    /* between a busy script's instructions: other connections are looked at */
    char *input;     /* shared read buffer, KV_INPUT_BYTES */
    struct kv_planned plan[KV_LOOKAHEAD_MAX];
    struct kv_chunk_pool chunks;
    struct kv_stream_buffer stream;
    _Atomic(uint64_t) stream_pending; /* see stream.h */
    uint64_t stream_promised;         /* bytes of the change stream promised to it; 0: none */
    uint64_t stream_end;              /* offset behind what it published last */
    bool stream_wrote;                /* published something in this round */
    bool client_wrote;                /* by a write of the client whose command runs */
    struct kv_random random;
    int64_t now_ms;      /* wall time of the round or batch */
    uint64_t now_ticks;  /* ticks at the end of the last command */
    int64_t round_us;    /* wall time at round_start_ticks, microseconds */
    int64_t round_ms;    /* wall time at the start of the round */
    uint64_t hold_ticks; /* KV_HOLD_NS in ticks */
    uint64_t late_ticks; /* from here on somebody wants to know of a command; UINT64_MAX: never */
    uint64_t request_limit, reply_limit; /* bytes, likewise */
    bool latency_tracking;
    struct kv_hotkeys_record *hotkeys; /* it counts what keys cost; NULL: it does not */
    uint64_t hold_start;               /* ticks when locks were taken */
    struct kv_recent_name recent[32];  /* commands by the exact bytes of their names */

    struct kv_client *clients; /* all, newest first */
    uint32_t client_count;
    struct kv_client *close_list;      /* to close at the boundary */
    struct kv_client *shard_waiters;   /* parked at shards (park_next, park_prev) */
    struct kv_waitlist gate_waiters;   /* parked at the gate; under its mutex */
    struct kv_waitlist stream_waiters; /* parked for space in the change stream */
    struct kv_waitlist paused;         /* waiting for the end of CLIENT PAUSE, or held keys */
    struct kv_watch **orphans;         /* watches to end whose shards were busy; owned */
    uint32_t orphan_len, orphan_capacity;
    struct kv_blocking blocking;    /* clients that wait for keys */
    struct kv_worker_commit commit; /* output that waits for the log */
    struct kv_errand *errands;      /* of its clients, newest first (errand.h) */
    uint32_t held_epoch;            /* kv_errands.held_epoch at which it resumed `paused` last */
    bool client_paused; /* somebody in `paused` waits for the end of CLIENT PAUSE, perhaps */
    struct kv_client *resume_first, *resume_last; /* to be run again this round */
    struct kv_client *sending, *sending_last;     /* got deliveries that were not sent yet */
    size_t sending_bytes;                         /* of deliveries since they were sent */
    struct kv_client *framed;                     /* delivery.h; NULL: none */
    struct kv_out held;                           /* held back for it */
    struct kv_table subscriptions;                /* of all clients (pubsub.c) */
    struct kv_client *monitors;                   /* its clients that are shown commands */
    atomic_uint monitor_count;                    /* how many; written by it, read by all */
    struct kv_tracking_sweep sweep;               /* of keys that nobody reads any more */
    uint64_t told_hash;                           /* tracking.c: the last key by prefix */
    struct kv_client *timeout_cursor;             /* next client that the idle check looks at */

    int64_t mono_ms;        /* monotonic time at the end of the last round; 0 before the first */
    int64_t cron_ms;        /* next periodic work, monotonic ms */
    int64_t trim_ms;        /* next look at the thread's cache of memory, monotonic ms */
    int64_t expire_ms;      /* next expiry round, monotonic ms */
    uint32_t expire_cursor; /* next home shard to expire */
    bool expire_more;       /* due entries are left */
    struct kv_worker_limit limit; /* maxmemory */
    uint64_t round_start_ticks;
    uint64_t expire_resume_ticks; /* no slice before this: half of the time is for commands */
    struct kv_worker_defrag defrag;
    struct kv_worker_snapshot snapshot;
    struct kv_client *stand_in; /* waits at the gate for `jobs` (alone.h); made when needed */
    struct kv_job *jobs;        /* in order of arrival */
    uint64_t assigned;          /* connections given to it; counted by worker 0 */
    uint64_t load_busy_ns;      /* stats.busy_ns at the last measurement */
    int64_t load_ms;            /* when that was, monotonic; 0 = never */
    kv_stat load_permille;      /* share of time not waiting, last second; read by others */

    struct kv_client_limit client_limit KV_ALIGNED(KV_CACHE_LINE); /* sums are read by others */

    struct kv_worker_stats stats KV_ALIGNED(KV_CACHE_LINE);
    struct kv_store_stats store_stats;
    struct kv_command_stats *command_stats; /* id_count */
    struct kv_error_count errors[KV_ERRORS_MAX];
    uint32_t error_count;
};

struct kv_engine {
    struct kv_options options;
    struct kv_store *store;
    const struct kv_command_table *table;
    struct kv_command_index *index;  /* by name */
    const struct kv_command **by_id; /* id_count */
    struct kv_worker **workers;
    uint32_t worker_count;
    bool multi; /* more than one worker: locks are real */
    uint32_t shard_count;
    struct kv_shard_lock *locks; /* shard_count */
    struct kv_gate gate;
    struct kv_stream stream;
    struct kv_commit commit;
    struct kv_engine_loading loading;
    struct kv_command_log command_logs[KV_COMMAND_LOGS];
    struct kv_latency_monitor latency;
    struct kv_hotkeys *hotkeys; /* the session, or the data of the last one; NULL: none */
    struct kv_engine_hooks hooks;
    struct kv_defrag defrag;
    struct kv_snapshot snapshot;
    struct kv_pubsub pubsub;
    struct kv_tracking tracking;
    atomic_uint monitor_count; /* of all workers */
    struct kv_acl acl;
    _Atomic(uint64_t) next_client_id;
    atomic_uint client_total; /* connected, all workers: the maxclients check */
    atomic_bool stopping;
    struct kv_io listeners[KV_LISTEN_MAX]; /* of worker 0 */
    uint32_t listener_count;
    bool listeners_rest; /* accepting failed: not watched until the next periodic work */
    bool unix_listener[KV_LISTEN_MAX];
    struct kv_background *background;
    struct kv_script_state script;
    void *scripts[KV_SCRIPT_OWNERS]; /* interpreters, not ours; NULL: none was needed */
    void (*scripts_destroy[KV_SCRIPT_OWNERS])(void *scripts);
    struct kv_errands errands;
    struct kv_memory_limit limit; /* maxmemory */
    int64_t start_wall_ms;
    /* Times at which commands wait: written behind a world stop. */
    int64_t pause_until_ms;        /* until then commands are looked at; 0: not at all. That of
                                      CLIENT PAUSE, or for ever while errands hold keys */
    int64_t client_pause_until_ms; /* CLIENT PAUSE */
    bool client_pause_all;         /* it holds up all commands, not only writes */
    /* rates, written by worker 0's periodic work */
    uint64_t rate_samples[16][3];
    uint32_t rate_next;
    int64_t rate_last_ms;
    uint64_t rate_last[3];
    kv_stat ops_per_second, input_rate, output_rate; /* rates in 1/s and bytes/s */
    /* command for ids of special treatment, found at creation */
    const struct kv_command *cmd_multi, *cmd_exec, *cmd_discard, *cmd_watch, *cmd_reset, *cmd_quit;
    const struct kv_command *cmd_unpause, *cmd_unwatch, *cmd_ping, *cmd_client;
};

extern _Thread_local struct kv_worker *kv_this_worker;

/* Wall time at the moment of `ticks` (kv_clock_ticks): the time of the round plus what has passed
 * since, because reading the clock costs more than the rest of planning a command. A round that
 * lasts longer than KV_ROUND_TRUST_NS reads the clock again. */
KV_INLINE int64_t kv_worker_wall_ms(const struct kv_worker *w, uint64_t ticks)
{
    uint64_t ns = kv_clock_ticks_to_ns(ticks - w->round_start_ticks);
    if (KV_UNLIKELY(ns > KV_ROUND_TRUST_NS || kv_clock_is_fake()))
        return kv_clock_wall_ms();
    return (int64_t)((uint64_t)w->round_us * 1000 + ns) / 1000000;
}

/* Something is in the worker's mailbox. One load. */
KV_INLINE bool kv_delivery_pending(struct kv_worker *w)
{
    return atomic_load_explicit(&w->mailbox.head, memory_order_relaxed) != NULL;
}

/* Or clients have output that was not sent. */
KV_INLINE bool kv_delivery_due(struct kv_worker *w)
{
    return w->sending != NULL || kv_delivery_pending(w);
}

/* commit.c: looks of one load */
KV_INLINE bool kv_commit_concerns(const struct kv_client *c)
{
    return c->held != KV_OUTPUT_FREE ||
           atomic_load_explicit(&c->worker->engine->commit.holds, memory_order_relaxed);
}

KV_INLINE bool kv_commit_denies(const struct kv_engine *e)
{
    return atomic_load_explicit(&e->commit.denied, memory_order_relaxed) != 0 ||
           atomic_load_explicit(&e->commit.refusals, memory_order_relaxed) != 0;
}

KV_INLINE void kv_commit_note(struct kv_client *c)
{
    if (KV_UNLIKELY(c->worker->client_wrote))
        kv_commit_note_write(c);
}

/* command_index.c */
struct kv_command_index *kv_command_index_create(const struct kv_command_table *t);
void kv_command_index_destroy(struct kv_command_index *x);
const struct kv_command *kv_command_index_find(const struct kv_command_index *x,
                                               struct kv_slice name);

/* worker.c */
struct kv_worker *kv_worker_create(struct kv_engine *e, uint32_t index);
void kv_worker_clear(struct kv_worker *w); /* frees its clients; before any worker is destroyed */
void kv_worker_destroy(struct kv_worker *w);
void kv_worker_clear_command_stats(struct kv_worker *w); /* the worker, or all stand still */
void kv_worker_run(struct kv_worker *w);
void kv_worker_take_limits(struct kv_worker *w); /* which commands are remarkable, from now on */
void kv_worker_round(struct kv_worker *w, int timeout_ms);
void kv_worker_drain(struct kv_worker *w);
void kv_worker_accept(struct kv_worker *w, int fd, bool is_unix);
void kv_worker_resume(struct kv_worker *w, struct kv_client *c); /* queue for resumption */

/* cron.c: periodic work of a worker, and expiry */
void kv_worker_cron(struct kv_worker *w, int64_t mono_ms);
void kv_worker_expire(struct kv_worker *w);
int kv_worker_timeout_ms(struct kv_worker *w, int64_t mono_ms);
/* Enters the gate and locks one shard, for a slice of work on it; kv_release(w, KV_HOLD_SHARDS)
 * ends it. False: one of them is taken, nothing is held. */
bool kv_try_home_shard(struct kv_worker *w, uint32_t shard) KV_MUST_CHECK;

/* An evacuation runs in which this worker has something left to do. One load a round. */
KV_INLINE bool kv_defrag_pending(const struct kv_worker *w)
{
    return KV_UNLIKELY(atomic_load_explicit(&w->engine->defrag.epoch, memory_order_relaxed) !=
                       atomic_load_explicit(&w->defrag.done, memory_order_relaxed));
}

/* listen.c */
void kv_listen_handler(struct kv_io *io, uint32_t events);
void kv_listen_again(struct kv_engine *e); /* after accepting failed; worker 0's periodic work */

/* client.c */
struct kv_client *kv_client_create(struct kv_worker *w, int fd, bool is_unix);
void kv_client_free(struct kv_client *c); /* at once: unlinks from everything */
/* Closes soon and lets go of all it holds at once. No command of it runs; no shard is held. */
void kv_client_drop(struct kv_client *c);
void kv_client_link(struct kv_worker *w, struct kv_client *c);
void kv_client_unlink(struct kv_client *c);
void kv_client_unpark(struct kv_client *c); /* out of whatever queue it waits in */
bool kv_client_send(struct kv_client *c);   /* false: the client was marked for closing */
void kv_client_check_limits(struct kv_client *c);
bool kv_client_interest(struct kv_client *c, bool read, bool write);
void kv_client_move(struct kv_client *c, struct kv_worker *to);
enum kv_client_class kv_client_class(const struct kv_client *c);

/* input.c: bytes to commands */
void kv_client_readable(struct kv_client *c);
void kv_client_process(struct kv_client *c); /* runs what is waiting in its own buffers */
void kv_client_handler(struct kv_io *io, uint32_t events);

/* dispatch.c: one command at a time */
enum kv_dispatch { KV_DISPATCH_DONE, KV_DISPATCH_PARKED };
enum kv_dispatch kv_dispatch(struct kv_client *c, const struct kv_request *r,
                             struct kv_partial *partial);
/* Runs one resolved command under whatever is held; writes its reply, statistics, propagation. */
void kv_execute(struct kv_client *c, const struct kv_command *cmd, const struct kv_slice *argv,
                int argc, const struct kv_key *keys, int key_count, uint32_t flags);
/* Likewise for a command that a script runs: into `out`, with what the call holds. */
void kv_execute_nested(struct kv_client *c, const struct kv_command *cmd,
                       const struct kv_slice *argv, int argc, const struct kv_key *keys,
                       int key_count, struct kv_out *out);
const struct kv_command *kv_worker_lookup(struct kv_worker *w, struct kv_slice name);
/* Resolves keys: a single one into *one, more into the arena. No keys with KV_ERR_SYNTAX, when the
 * arguments do not fit (the command answers its own error), and with KV_ERR_NOMEM (it must not
 * run). */
enum kv_err kv_resolve_keys(struct kv_worker *w, const struct kv_command *cmd,
                            const struct kv_slice *argv, int argc, struct kv_key *one,
                            struct kv_key **keys, int *count) KV_MUST_CHECK;

/* The check before a command that needs memory: one load and a comparison. */
KV_INLINE bool kv_memory_over(const struct kv_worker *w)
{
    uint64_t limit = w->engine->options.maxmemory;
    return KV_UNLIKELY(limit != 0 && kv_mem_used_published() > (int64_t)limit);
}

/* batch.c: runs up to n planned commands under one set of locks; returns how many ran */
uint32_t kv_batch_run(struct kv_client *c, uint32_t n);
/* Requests the buckets of a planned command's keys from memory. Its shards are held, or there is
 * one worker only. */
void kv_batch_prefetch_locks(struct kv_worker *w, const struct kv_planned *p);
void kv_batch_prefetch(struct kv_worker *w, const struct kv_planned *p);

/* tx.c */
struct kv_tx *kv_tx_get(struct kv_client *c); /* creates */
bool kv_tx_queue(struct kv_client *c, const struct kv_command *cmd, const struct kv_request *r);
void kv_tx_unwatch_held(struct kv_client *c); /* their shards are held */
void kv_worker_release_orphans(struct kv_worker *w);
size_t kv_tx_memory(const struct kv_client *c);

/* Acquires what `mode` needs: keys' shards are in w->locks already. */
enum kv_hold { KV_HOLD_PARKED, KV_HOLD_NONE, KV_HOLD_SHARDS, KV_HOLD_ALONE, KV_HOLD_STOP };
enum kv_hold kv_acquire(struct kv_client *c, enum kv_cmd_mode mode);
void kv_release(struct kv_worker *w, enum kv_hold hold);
/* Parks a client at a busy shard; false when it is free again. */
bool kv_spin_for_locks(struct kv_worker *w); /* tries w->locks for at most KV_LOCK_SPIN_NS */
bool kv_park_at_shard(struct kv_client *c, uint32_t shard);
/* False: the change stream is full, the client is parked for space. */
bool kv_wait_for_room(struct kv_client *c, size_t input_bytes, uint32_t commands);
/* False: what a snapshot has saved waits for its taker beyond the limit, and so does the client. */
bool kv_wait_for_snapshot(struct kv_client *c);
bool kv_engine_paused(const struct kv_engine *e, int64_t now_ms); /* by CLIENT PAUSE */
void kv_engine_update_pause(struct kv_engine *e); /* what it depends on has changed, likewise */

/* Some commands have to wait, and each is to be looked at. */
KV_INLINE bool kv_engine_holds_up(const struct kv_engine *e, int64_t now_ms)
{
    return KV_UNLIKELY(e->pause_until_ms != 0) && now_ms < e->pause_until_ms;
}

/* The client goes on when the pause is over, or keys are let go: then it looks again. */
void kv_pause_client(struct kv_client *c);

/* call.c */
void kv_call_count_error(struct kv_worker *w, struct kv_slice code);

#endif
