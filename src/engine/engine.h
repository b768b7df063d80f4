/* The engine: keyspace, workers and clients, usable as a library without a socket.
 *
 * Life cycle
 *   kv_engine_create    builds store and workers; no thread runs yet
 *   kv_engine_listen    opens the sockets that options name (a library user leaves it out)
 *   kv_engine_run       starts workers 1.. as threads and runs worker 0 on the caller's thread,
 * until kv_engine_stop; then joins them kv_engine_destroy   frees everything; kv_mem_used_dataset
 * is then what it was before
 *
 * Library use without kv_engine_run: attach one thread to each worker with kv_worker_attach, make
 * virtual clients, feed them bytes, call kv_worker_poll until their output is complete.
 */
#ifndef KV_ENGINE_ENGINE_H
#define KV_ENGINE_ENGINE_H

#include "base/err.h"
#include "engine/client.h"
#include "engine/command.h"
#include "engine/options.h"
#include "store/store.h"

struct kv_engine;
struct kv_worker;

struct kv_engine *kv_engine_create(const struct kv_options *options,
                                   const struct kv_command_table *table);
void kv_engine_destroy(struct kv_engine *e);

/* Instead of kv_engine_destroy before the process ends: closes what others see (sockets, clients)
 * and leaves the keyspace to the system, which takes it back at once. */
void kv_engine_leave(struct kv_engine *e);

/* Opens the listening sockets. On failure *what tells which address (static text), errno why. */
enum kv_err kv_engine_listen(struct kv_engine *e, char what[256]) KV_MUST_CHECK;

/* Sockets that are open. */
uint32_t kv_engine_listener_count(const struct kv_engine *e);

void kv_engine_run(struct kv_engine *e);
void kv_engine_stop(struct kv_engine *e); /* any thread, async-signal-safe */

/* The words of SHUTDOWN, as enum kv_shutdown_on; here since they also decide whether it ends a
 * script. False: such a line is refused. */
bool kv_shutdown_options(const struct kv_slice *argv, int argc, uint32_t *options) KV_MUST_CHECK;

struct kv_options *kv_engine_options(struct kv_engine *e); /* changed in KV_MODE_STOP only */
struct kv_store *kv_engine_store(struct kv_engine *e);
const struct kv_command_table *kv_engine_commands(struct kv_engine *e);
uint32_t kv_engine_worker_count(const struct kv_engine *e);
struct kv_worker *kv_engine_worker(struct kv_engine *e, uint32_t index);
/* Backend of the event loops: "epoll" or "io_uring". */
const char *kv_engine_loop_name(const struct kv_engine *e);

/* Command by name (any case), or NULL; a container is one too. */
const struct kv_command *kv_engine_command(const struct kv_engine *e, struct kv_slice name);

/* The same for "get" and "client|kill". */
const struct kv_command *kv_engine_command_or_sub(const struct kv_engine *e, struct kv_slice name);

/* By its id, which is below the table's id_count. */
const struct kv_command *kv_engine_command_by_id(const struct kv_engine *e, uint16_t id);

/* Periodic work that folders above add: called on worker 0 about `hz` times a second, and hooks for
 * events. Set before kv_engine_run. */
struct kv_engine_hooks {
    void (*cron)(struct kv_engine *e, void *arg);    /* every 1000 / hz ms, worker 0 */
    void (*options)(struct kv_engine *e, void *arg); /* they have changed; NULL: nobody asks */
    void *arg;
};
void kv_engine_set_hooks(struct kv_engine *e, const struct kv_engine_hooks *hooks);

/* --- statistics: single-writer slots per worker, summed on demand --- */
struct kv_worker_stats {
    kv_stat commands;             /* executed */
    kv_stat connections;          /* accepted */
    kv_stat rejected_connections; /* over maxclients */
    kv_stat clients;              /* connected now */
    kv_stat net_input_bytes, net_output_bytes;
    kv_stat expire_ns;               /* time spent in expiry slices */
    kv_stat evict_ns;                /* and in slices of eviction */
    kv_stat defrag_ns;               /* and in slices of activedefrag */
    kv_stat defrag_slice_ns_max;     /* longest of these */
    kv_stat reads, writes;           /* calls that moved bytes from or to a socket */
    kv_stat loops;                   /* iterations of the event loop */
    kv_stat busy_ns;                 /* time outside waiting */
    kv_stat batches, batch_commands; /* look-ahead batches and what ran in them */
    kv_stat lock_spins;              /* shard locks that were not free at once */
    kv_stat lock_parks;              /* connections parked at a shard */
    kv_stat gate_parks;              /* connections parked at the gate */
    kv_stat gate_closes;             /* exclusive commands */
    kv_stat world_stops;
    kv_stat hold_ns_max; /* longest time that shard locks were held by commands */
    kv_stat query_buffer_limit_disconnections;
    kv_stat output_limit_disconnections;
    kv_stat error_replies;
    kv_stat input_buffer_max, output_buffer_max; /* recent peaks, bytes */
    kv_stat stream_bytes;                        /* written to the change stream */
    kv_stat moved_clients;                       /* handed to another worker */
    kv_stat timeouts;                            /* idle connections closed */
    kv_stat evicted_clients;                     /* closed for maxmemory-clients */
    kv_stat pubsub_clients;                      /* subscribed now */
    kv_stat acl_denied_auths, acl_denied_commands, acl_denied_keys, acl_denied_channels;
};

/* Sum over workers of one counter, by offset: kv_engine_stat(e, offsetof(struct kv_worker_stats,
 * x)). Fields named *_max are the maximum instead. Any thread. */
uint64_t kv_engine_stat(const struct kv_engine *e, size_t field_offset);
uint64_t kv_engine_store_stat(const struct kv_engine *e, size_t field_offset); /* kv_store_stats */

/* Per command. */
struct kv_latency_histogram;
struct kv_command_stats {
    kv_stat calls, ticks, rejected, failed;
    _Atomic(struct kv_latency_histogram *) latency; /* NULL: no times were counted */
};
void kv_engine_command_stat(const struct kv_engine *e, uint16_t command_id, uint64_t *calls,
                            uint64_t *usec, uint64_t *rejected, uint64_t *failed);

/* Visits the error codes seen ("ERR", "WRONGTYPE") with their counts. [KV_MODE_STOP] */
void kv_engine_each_error(struct kv_engine *e,
                          void (*visit)(void *arg, const char *code, uint64_t count), void *arg);
void kv_engine_reset_stats(struct kv_engine *e); /* [KV_MODE_STOP] CONFIG RESETSTAT */

/* --- clients, all [KV_MODE_STOP]; without those that the server itself uses to load a log --- */
void kv_engine_each_client(struct kv_engine *e, void (*visit)(struct kv_client *c, void *arg),
                           void *arg);

/* Memory of all connections that maxmemory-clients is compared with, bytes. Any thread. */
uint64_t kv_engine_client_bytes(const struct kv_engine *e);

/* Tells the engine that options were changed which it keeps in another form: the policy of
 * maxmemory and what belongs to it. [KV_MODE_STOP, or before workers run] */
void kv_engine_apply_options(struct kv_engine *e);

/* For how long memory was above maxmemory although keys were evicted: in all, and now. Any thread.
 */
void kv_engine_exceeded_times(const struct kv_engine *e, uint64_t *total_ms, uint64_t *current_ms);

/* CLIENT PAUSE: until `until_ms` of wall time commands (all, or only writes) wait. [KV_MODE_STOP]
 */
void kv_engine_pause(struct kv_engine *e, int64_t until_ms, bool all);
void kv_engine_unpause(struct kv_engine *e);

/* Gives unused memory back to the system: the calling worker at once, the others in their next
 * round, since the cache of a thread is its own. A worker's thread. */
void kv_engine_purge(struct kv_engine *e);

/* activedefrag: percent of a worker's time that the running evacuation takes, 0 without one; and
 * how long evacuations ran, in all and the running one. Any thread. */
uint32_t kv_engine_defrag_effort(const struct kv_engine *e);
void kv_engine_defrag_times(const struct kv_engine *e, uint64_t *total_ms, uint64_t *current_ms);

/* Frees something big on the background thread, in order; fn must not touch shards. Any thread. */
void kv_engine_background(struct kv_engine *e, void (*fn)(void *arg), void *arg);
uint64_t kv_engine_background_pending(const struct kv_engine *e);
uint64_t kv_engine_background_done(const struct kv_engine *e);

/* Time from kv_engine_create in seconds, and instantaneous rates over the last seconds. */
int64_t kv_engine_uptime_seconds(const struct kv_engine *e);
uint64_t kv_engine_ops_per_second(const struct kv_engine *e);
void kv_engine_net_rates(const struct kv_engine *e, double *input_kbps, double *output_kbps);

/* --- logs of remarkable commands (engine/command_log.h), any thread --- */
struct kv_command_log_entry {
    uint64_t id;
    int64_t time_s;        /* Unix time */
    uint64_t value;        /* microseconds, bytes of the request, bytes of the reply */
    int argc;              /* at most 32, long ones cut as Redis does */
    struct kv_slice *argv; /* owned by the entry */
    struct kv_slice peer, name;
};
/* Visits newest first, at most `max`; under the log's mutex: copy, do not wait. */
void kv_engine_command_log_each(struct kv_engine *e, enum kv_command_log_kind kind, uint64_t max,
                                void (*visit)(const struct kv_command_log_entry *entry, void *arg),
                                void *arg);
uint64_t kv_engine_command_log_len(struct kv_engine *e, enum kv_command_log_kind kind);
void kv_engine_command_log_reset(struct kv_engine *e, enum kv_command_log_kind kind);
void kv_engine_command_log_trim(struct kv_engine *e); /* after a greatest length changed */

/* --- library use --- */
void kv_worker_attach(struct kv_worker *w); /* the calling thread becomes this worker's */
void kv_worker_detach(struct kv_worker *w);
struct kv_client *kv_client_create_virtual(struct kv_worker *w);
/* Feeds request bytes and executes what is complete (or parks). Worker's thread. */
void kv_client_feed(struct kv_client *c, const char *bytes, size_t len);
/* All that was fed has been executed (nothing waits, nothing is incomplete), or the client was
 * closed. */
bool kv_client_idle(const struct kv_client *c);
/* Output collected so far as chunks (c->out); the user sends or drops it with kv_out_advance. */
void kv_client_destroy(struct kv_client *c);
/* Drains the inbox, resumes parked clients, does periodic work; waits up to timeout_ms. */
void kv_worker_poll(struct kv_worker *w, int timeout_ms);

/* --- change stream --- */
/* Every write in deterministic form as RESP commands, with SELECT where the database changes. A
 * reader exists from open to close; without one nothing is written or kept. */
struct kv_stream_reader;
struct kv_stream_reader *kv_stream_open(struct kv_engine *e); /* [alone or before workers run] */
/* Copies up to `max` published bytes; 0 when there are none now. One thread per reader. */
size_t kv_stream_read(struct kv_stream_reader *r, char *bytes, size_t max);
/* True when bytes were lost to this reader (it was too slow for an emergency): start over. */
bool kv_stream_lapsed(const struct kv_stream_reader *r);
void kv_stream_close(struct kv_stream_reader *r);            /* [alone or after workers ended] */
uint64_t kv_stream_offset(const struct kv_stream_reader *r); /* of the next byte to read */
uint64_t kv_stream_tail(struct kv_engine *e);                /* behind all written so far */
/* [alone] The reader reads no further than what is written now, until kv_stream_go_on; what comes
 * behind begins with SELECT. A reader that has lapsed goes on from there. Returns that offset. */
uint64_t kv_stream_stop_here(struct kv_stream_reader *r);
bool kv_stream_stopped(const struct kv_stream_reader *r); /* it has come to that place */
void kv_stream_go_on(struct kv_stream_reader *r);
/* Sleeps until something was published, kv_stream_wake or the time is over. The reader's thread. */
void kv_stream_wait(struct kv_stream_reader *r, int timeout_ms);
void kv_stream_wake(struct kv_stream_reader *r); /* any thread */

#endif
