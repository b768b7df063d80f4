/* A client connection as the engine sees it. The body is public for cmd/ (CLIENT, HELLO, AUTH) and
 * admin/ (INFO); everything here belongs to the connection's worker, or to whoever runs in
 * KV_MODE_STOP. */
#ifndef KV_ENGINE_CLIENT_H
#define KV_ENGINE_CLIENT_H

#include "base/slice.h"
#include "mem/arena.h"
#include "net/loop.h"
#include "proto/out.h"
#include "proto/parse.h"
#include <assert.h>
#include <stdatomic.h>

struct kv_worker;
struct kv_tx;
struct kv_waiter;
struct kv_errand;
struct kv_subscriber;
struct kv_tracking_client;
struct kv_user;

enum kv_client_flags {
    KV_CLIENT_AUTHENTICATED = 1u << 0,
    KV_CLIENT_MULTI = 1u << 1,           /* MULTI seen: commands are queued */
    KV_CLIENT_DIRTY_EXEC = 1u << 2,      /* a queued command was wrong: EXEC aborts */
    KV_CLIENT_CLOSE_AFTER = 1u << 3,     /* close when the output is sent (QUIT, protocol error) */
    KV_CLIENT_CLOSE_NOW = 1u << 4,       /* close as soon as its worker gets to it */
    KV_CLIENT_REPLY_OFF = 1u << 5,       /* CLIENT REPLY OFF */
    KV_CLIENT_REPLY_SKIP_NEXT = 1u << 6, /* CLIENT REPLY SKIP was this command */
    KV_CLIENT_REPLY_SKIP = 1u << 7,      /* the command that runs now has no reply */
    KV_CLIENT_NO_EVICT = 1u << 8,
    KV_CLIENT_NO_TOUCH = 1u << 9,
    KV_CLIENT_UNIX = 1u << 10,          /* came over the unix socket */
    KV_CLIENT_PARKED = 1u << 11,        /* waits for a shard, the gate or space; in a queue */
    KV_CLIENT_PAUSED = 1u << 12,        /* waits for the end of CLIENT PAUSE, or a held key */
    KV_CLIENT_WRITE_WAIT = 1u << 13,    /* the socket takes no more: waits for writability */
    KV_CLIENT_VIRTUAL = 1u << 14,       /* no socket: fed and read by the library's user */
    KV_CLIENT_READ_OFF = 1u << 15,      /* read interest taken back while suspended */
    KV_CLIENT_RESTRICTED = 1u << 16,    /* its user may not do everything (engine/acl.h) */
    KV_CLIENT_QUEUED_CLOSE = 1u << 17,  /* in the worker's list of connections to close */
    KV_CLIENT_APPLY = 1u << 19,         /* applies a change stream: nothing is due for it */
    KV_CLIENT_RESUMING = 1u << 18,      /* in the worker's list of those to run again */
    KV_CLIENT_STAND_IN = 1u << 21,      /* no client: waits for engine/alone.h or errand.h */
    KV_CLIENT_BLOCKED = 1u << 20,       /* waits for a key: has a waiter (engine/blocking.h); for
                                           an errand: has that (engine/errand.h); or for the log:
                                           has neither (engine/commit.h) */
    KV_CLIENT_UNBLOCK_ERROR = 1u << 22, /* CLIENT UNBLOCK ERROR while it waits for the log */
    KV_CLIENT_WAIT_MUTED = 1u << 23,    /* and that wait gets no reply */
    KV_CLIENT_TO_SEND = 1u << 24,       /* in the worker's list of those to send to (delivery.h) */
    KV_CLIENT_MONITOR = 1u << 29,       /* is shown every command (monitor.h) */
    KV_CLIENT_TRACKING = 1u << 28,      /* is told of changes of what it reads (tracking.h) */
    KV_CLIENT_OPENED = 1u << 30,        /* authenticated only because the default user came to need
                                           no password */
};

/* Where a connection waits while KV_CLIENT_PARKED. */
enum kv_park {
    KV_PARK_NONE = 0,
    KV_PARK_SHARD,
    KV_PARK_GATE,
    KV_PARK_ALONE,
    KV_PARK_STREAM,
    KV_PARK_OUTPUT, /* has more output than it should while the log is waited for */
};

/* Whether output waits for the log: engine/commit.h. */
enum kv_hold_output { KV_OUTPUT_FREE = 0, KV_OUTPUT_FRESH, KV_OUTPUT_HELD };

/* The fields that every command touches come first, within four cache lines. */
struct kv_client {
    struct kv_io io;          /* socket; io.fd is -1 for a virtual client */
    struct kv_worker *worker; /* owner */
    uint32_t flags;           /* enum kv_client_flags */
    uint32_t db;              /* selected database */
    uint8_t resp;             /* 2 or 3 */
    uint8_t park;             /* enum kv_park */
    uint8_t park_rounds;      /* how often parked for one command; at 8 it takes the gate */
    uint32_t park_shard;      /* KV_PARK_SHARD: which */

    /* input: leftover bytes between reads; NULL when there are none */
    char *in;      /* owned block of in_capacity bytes */
    size_t in_len; /* filled bytes */
    size_t in_capacity;
    struct kv_partial *partial; /* a large command that is not complete yet, or NULL */

    struct kv_out out; /* replies on their way */

    int64_t active_ms;                 /* wall time of the last command or bytes */
    int64_t soft_since_ms;             /* over the soft output limit since; 0 = not */
    const struct kv_command *last_cmd; /* for CLIENT LIST; NULL before the first */
    uint64_t commands;                 /* tot-cmds */
    uint64_t bytes_in, bytes_out;      /* tot-net-in, tot-net-out */

    /* output and the log (engine/commit.h) */
    uint8_t held;         /* enum kv_hold_output */
    uint64_t write_end;   /* stream offset behind its last write; 0: none */
    uint64_t send_limit;  /* how far bytes_out may go now, while output waits for the log */
    uint64_t hold_limit;  /* KV_OUTPUT_HELD: and how far it may go then */
    uint64_t hold_target; /* when the log has come to this offset */
    struct kv_client *hold_next, *hold_prev; /* list of its state */
    uint64_t wait_target;                    /* WAITAOF: offset; UINT64_MAX: for the time only */
    int64_t wait_deadline_ms;                /* monotonic; 0: none */
    uint32_t wait_local;                     /* numlocal that it asked for */
    uint32_t errors;                         /* commands that were refused or failed */

    struct kv_tx *tx;                        /* MULTI queue and watches; NULL without either */
    struct kv_waiter *waiter;                /* of a blocked client, else NULL */
    struct kv_errand *errand;                /* that it waits for, else NULL (errand.h) */
    struct kv_user *user;                    /* never NULL but in a stand-in (acl.h) */
    struct kv_subscriber *subscriber;        /* NULL without subscription (pubsub.h) */
    struct kv_tracking_client *tracking;     /* NULL: neither tracker nor target (tracking.h) */
    size_t base_bytes;                       /* blocks of this structure and of its texts */
    size_t counted_bytes;                    /* in the worker's total (client_limit.h) */
    uint8_t bucket;                          /* size class there, or KV_CLIENT_BUCKET_... */
    uint64_t id;                             /* CLIENT ID: never reused, ascending */
    struct kv_client *next, *prev;           /* the worker's list of clients */
    struct kv_client *close_next;            /* close list */
    struct kv_client *resume_next;           /* resume list */
    struct kv_client *park_next, *park_prev; /* the worker's list of those parked at shards */
    atomic_bool park_listed;                 /* in a shard's list; changes under its mutex */
    struct kv_client *wait_next, *wait_prev; /* queue it is parked in */
    struct kv_client *send_next, *send_prev; /* the worker's list of those to send to */
    struct kv_client *monitor_next, *monitor_prev; /* the worker's list of monitors */
    struct kv_client *bucket_next, *bucket_prev;   /* the worker's list of one size class */

    char *name;                   /* CLIENT SETNAME; NULL when unset; name_len + 1 bytes */
    char *lib_name, *lib_version; /* CLIENT SETINFO; NULL when unset; strlen + 1 bytes */
    char *peer;                   /* "127.0.0.1:4711", "[::1]:4711" or the unix path; strlen + 1 */
    char *local;                  /* own address, likewise */
    int64_t created_ms;           /* wall time */
    void *user_data;              /* of a virtual client's owner */
};

static_assert(offsetof(struct kv_client, held) <= 4 * KV_CACHE_LINE, "hot fields come first");

/* Bytes held for this client (tot-mem), in whole blocks: structure and texts, input, a large
 * command that is still arriving, output with the blocks it refers to, transaction, watches. */
size_t kv_client_memory(const struct kv_client *c);

/* Closes at the next safe point. Owner worker or KV_MODE_STOP. */
void kv_client_close_soon(struct kv_client *c);

/* Replaces *field, one of the client's texts, by a copy of the text ("" or len 0: NULL). False: no
 * memory, nothing changed. */
bool kv_client_set_text(struct kv_client *c, char **field, struct kv_slice text) KV_MUST_CHECK;

/* CLIENT NO-EVICT: what it holds counts, but it is never disconnected for memory. */
void kv_client_set_no_evict(struct kv_client *c, bool on);

/* Back to a fresh connection's state, but for name of library, id and address (RESET): MULTI
 * dropped, watches, subscriptions, tracking and MONITOR gone, RESP2, database 0, reply on, name
 * cleared, authenticated as the server demands. */
void kv_client_reset(struct kv_client *c);

/* MULTI queue length and watched keys, for CLIENT LIST (multi=-1 outside MULTI). */
int kv_client_multi_length(const struct kv_client *c);
int kv_client_watch_count(const struct kv_client *c);
size_t kv_client_multi_memory(const struct kv_client *c);

#endif
