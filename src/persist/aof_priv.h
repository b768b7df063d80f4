/* Body of the append-only log, shared by aof.c (life cycle, rewriting) and aof_thread.c (writing).
 */
#ifndef KV_PERSIST_AOF_PRIV_H
#define KV_PERSIST_AOF_PRIV_H

#include "engine/options.h"
#include "persist/aof.h"
#include "persist/journal.h"
#include "persist/manifest.h"
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>

#define KV_AOF_BUFFER ((size_t)1 << 20) /* bytes of the stream that are written at once */
#define KV_AOF_NOTE_MAX 32              /* a line with the time, before them */

/* What the thread for syncs does next; of the log's thread while `busy` is false. */
struct kv_aof_sync {
    atomic_bool busy; /* handed over, and not done */
    sem_t ready;      /* something was handed over, or the end has come */
    bool make;        /* a journal is to be made; else a file synced */
    int fd;
    bool close;                    /* afterwards */
    bool done;                     /* a result is to be looked at */
    uint64_t offset;               /* of the stream: what is durable then */
    struct kv_journal_point point; /* in the file; seq 0: no journal follows it */
    struct kv_journal *made;       /* NULL: it failed */
    int error;                     /* errno; 0: it succeeded */
    int64_t start_ms;              /* monotonic */
};

struct kv_aof {
    struct kv_engine *engine;
    char folder[KV_AOF_PATH];       /* of the log */
    char name[KV_MANIFEST_NAME];    /* appendfilename */
    struct kv_manifest manifest;    /* as on disk; of the main thread, then of whoever rewrites */
    struct kv_aof_tail_rules rules; /* of loading */
    uint64_t loaded_bytes;          /* of files that were loaded; the loading thread's */
    pthread_t thread, sync_thread;
    bool can_rewrite; /* somebody can make a base */
    bool running;     /* both threads; changes in KV_MODE_STOP */
    struct kv_stream_reader *reader;
    /* Manifest and files change under it: a rewrite against starting and stopping. No kv_mutex,
     * since its holder waits for the disk; who takes it may, too. */
    pthread_mutex_t files;
    uint64_t starts; /* how often the log began: a rewrite belongs to one of them */

    /* options that threads read: workers change those of the engine meanwhile */
    atomic_uint fsync;                    /* enum kv_appendfsync */
    atomic_bool timestamps, lazy_rewrite; /* no-appendfsync-on-rewrite */
    atomic_bool keeps_history;            /* aof-disable-auto-gc */

    /* between threads */
    atomic_bool stopping;
    atomic_bool gap;  /* what is written does not count */
    atomic_bool lost; /* something is missing in the file that is written to: no base ends the gap
                         before the next file. Set by the log's thread */
    atomic_bool rewriting;
    atomic_bool dropping;       /* close the incr file, what comes is dropped */
    atomic_bool journaled;      /* the last group was synced in the journal */
    atomic_int next_fd;         /* incr file to go on with at the reader's stop; -1: none */
    atomic_int write_error;     /* errno of the last write or sync; 0: fine */
    _Atomic(uint64_t) synced;   /* offset: on disk, in file or journal, gap or not */
    _Atomic(uint64_t) file_seq; /* of the last incr file; 0: it has no name in the manifest yet */
    _Atomic(uint64_t) next_seq; /* of next_fd's */
    _Atomic(uint64_t) base_bytes, closed_bytes, file_bytes; /* base, older incr files, the last */
    _Atomic(uint64_t) grown_from;                           /* size after the last rewrite */
    _Atomic(uint64_t) delayed_syncs;

    /* of the log's thread */
    int fd;                /* last incr file; -1: what comes is dropped */
    char *buf;             /* KV_AOF_NOTE_MAX + KV_AOF_BUFFER */
    size_t len, sent;      /* of buf: to write, written */
    uint64_t written;      /* offset: given to the system */
    bool at_boundary;      /* the next byte of the stream begins a command */
    int64_t seen_s;        /* wall time before the stream was read last */
    int64_t note_s;        /* of the last line with the time */
    int64_t synced_ms;     /* monotonic: start of the last sync */
    int64_t retry_ms;      /* monotonic: after a failed write; 0: none */
    int64_t complained_ms; /* monotonic */
    int64_t delayed_ms;    /* monotonic: counted as delayed */
    struct kv_aof_sync sync;
    struct kv_journal *journal; /* NULL: there is none, groups sync the file */
    struct kv_slice group;      /* of buf: what was written last, and is not synced */
    uint64_t group_offset;      /* of it in the file */
    uint64_t file_synced;       /* offset of the stream: on disk in the file itself */
    int64_t make_ms;            /* monotonic: earliest time to make a journal */
    bool make_failed;           /* and the log of the server says so */

    /* of whoever rewrites; statistics */
    char base_path[KV_AOF_PATH];
    uint64_t switch_offset;
    uint64_t switch_seq;    /* number of the incr file that goes on; 0: it is not listed yet */
    uint64_t rewrite_start; /* value of `starts` when it began */
    bool switched;
    atomic_bool rewrite_ok;
    _Atomic(int64_t) rewrite_start_ms, last_rewrite_s, next_rewrite_ms;
    _Atomic(uint64_t) rewrites, rewrites_failed;
};

int64_t kv_aof_now_ms(void); /* monotonic */
void *kv_aof_thread(void *aof);
void *kv_aof_sync_thread(void *aof);

#endif
