/* Errands: commands whose work lies outside of the server (MIGRATE talks to another one).
 *
 * A command function fills in an errand, gives it to kv_call_errand and returns without a reply:
 * its client waits, as one that BLPOP blocks, and the worker goes on. Then the errand takes turns:
 * the client's worker takes the locks of the errand's keys, as for a command, and calls `turn`.
 * When that has written the reply, the errand is over. Else it goes out: a thread of the engine
 * calls `work`, which may wait as long as it must and knows nothing but the errand; and then it is
 * `turn` again.
 *
 * While an errand is out nothing is locked. One that `holds` its keys makes commands that may write
 * to them wait, from before its first turn until it is over; they are read meanwhile. The commands
 * wait as in CLIENT PAUSE WRITE, those that touch other keys do not. To hold keys and to let go of
 * them takes a stop of all workers, for a moment. What changes keys without being a command is not
 * held up: expiry and eviction. `turn` finds out with kv_store_watch. An errand that finds one of
 * its keys held waits before its first turn, as a command would. While any keys are held, commands
 * run one at a time instead of in batches.
 *
 * The client cannot be unblocked. When it vanishes (hang-up, CLIENT KILL), the errand comes to its
 * end all the same, and its reply goes nowhere. When the engine ends, `cancelled` tells `work` to
 * come back, and there are no more turns. What `work` cannot interrupt (the look-up of a host's
 * name) delays that end.
 */
#ifndef KV_ENGINE_ERRAND_H
#define KV_ENGINE_ERRAND_H

#include "engine/call.h"
#include "engine/client.h"
#include <pthread.h>
#include <stdatomic.h>

#define KV_ERRAND_THREADS 8    /* errands that are out at a time; others wait for one to return */
#define KV_ERRAND_CANCEL_MS 50 /* `work` looks at `cancelled` at least so often */

/* First member of what a command makes of it. */
struct kv_errand {
    /* As a command function, but call->argv is empty and call->client NULL. False: nothing is
     * replied, the errand goes out. What it watches is unwatched before it returns true. */
    bool (*turn)(struct kv_errand *x, struct kv_call *call);
    /* On a thread of its own, with no lock: waits and does I/O. */
    void (*work)(struct kv_errand *x);
    /* Frees it. After its last turn; or without that while no worker runs, and then it unwatches
     * too. */
    void (*release)(struct kv_errand *x, struct kv_store *store);
    const struct kv_key *keys; /* whose locks a turn needs; owned by the command's part */
    uint64_t *hashes;          /* room for those of the keys, likewise, when it holds them */
    int key_count;
    bool holds;            /* commands that may write to the keys wait */
    size_t stream_bytes;   /* most that a turn adds to the change stream, in at most as many
                              commands as there are keys */
    atomic_bool cancelled; /* `work` should return soon; the engine's, as all below */

    struct kv_client *client;      /* who waits; NULL: vanished */
    struct kv_client *self;        /* stands for it in queues: waits for locks, room and the gate */
    struct kv_worker *worker;      /* of both */
    bool muted;                    /* its client wants no reply */
    bool out;                      /* queued or at work: it belongs to the threads */
    uint8_t step;                  /* what its stand-in does next; errand.c */
    struct kv_errand *next, *prev; /* the worker's list of errands */
    struct kv_errand *held_next;   /* the engine's list of those that hold keys; in KV_MODE_STOP */
    struct kv_errand *queue_next;  /* under the mutex of kv_errands */
};

/* Whether there is somebody who can wait: not in a transaction, nor for a client that applies a
 * stream. */
bool kv_call_may_errand(const struct kv_call *call);

/* Blocks the client of the call until the errand is over. The command returns without a reply. On
 * failure (KV_ERR_NOMEM: also when no thread can be had) nothing has happened and the errand is the
 * caller's. */
enum kv_err kv_call_errand(struct kv_call *call, struct kv_errand *x) KV_MUST_CHECK;

/* --- for engine/ --- */

struct kv_errand_thread {
    struct kv_errands *all;
    struct kv_errand *busy; /* at work */
    pthread_t id;
};

struct kv_errands {         /* of the engine */
    struct kv_errand *held; /* hold keys; changes in KV_MODE_STOP, as does the next */
    uint32_t held_epoch;    /* rises when keys are let go */
    pthread_mutex_t mutex;  /* of all below */
    pthread_cond_t wake;
    struct kv_errand *first, *last; /* wait for a thread */
    struct kv_errand_thread threads[KV_ERRAND_THREADS];
    uint32_t thread_count, idle_count;
    bool ending;
};

void kv_errands_init(struct kv_errands *all);
/* Cancels what is out and ends the threads. No worker runs. Again: nothing happens. */
void kv_errands_stop(struct kv_errands *all);
void kv_errands_release(struct kv_errands *all);

/* Whether one of the keys is held. In an engine that holds none: not asked (kv_errands.held). */
bool kv_errands_hold(const struct kv_errands *all, const struct kv_key *keys, int count);

void kv_errand_on_back(struct kv_worker *w, void *errand); /* message: `work` has returned */
void kv_errand_resume(struct kv_client *self);             /* its stand-in may go on */
void kv_errand_leave(struct kv_client *c);                 /* the client vanishes */
void kv_errand_clear(struct kv_worker *w);                 /* no worker runs; threads have ended */

#endif
