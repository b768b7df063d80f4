/* Hot keys: which keys cost most time and most bytes, while somebody asks (HOTKEYS).
 *
 * A session counts, per worker, what commands cost: their time, and the bytes of request and reply.
 * A command's cost is split evenly among its keys, the remainder goes to the first; without keys it
 * counts in the totals alone. Of a script each command's time counts with the keys of that command,
 * the rest of its time and its bytes with the keys that it was given. With a ratio above 1 a
 * command's keys are looked at with a probability of 1 / ratio; what is reported is of those and
 * not multiplied; totals are of all commands. A key is its name, whatever its database.
 *
 * Not counted: commands that began before the session or were refused, the answers +QUEUED, the
 * header of EXEC's reply, messages, and what a blocked command gets once it is served. Bytes of a
 * request are computed, as if it had come as an array.
 *
 * Sketch. Space-Saving (Metwally, Agrawal, El Abbadi, "Efficient Computation of Frequent and Top-k
 * Elements in Data Streams", ICDT 2005), here of weights: a fixed number of entries, each a key
 * with an estimate; a key without one takes over the smallest. Of a sketch of n entries to which
 * `total` was given: a key with more than total / n has an entry; an estimate is at least the truth
 * and exceeds it by no more than its entry's `error`, which is at most total / n. There are eight
 * entries for each key that is asked for, and at least 64. What a report shows is summed over all
 * workers, and off by at most total / n in either direction: low, where a worker has forgotten a
 * key. These bounds are of keys of up to KV_HOTKEYS_KEY_MAX bytes; longer ones get no entry, nor
 * does one for which there is no memory.
 *
 * While no session is active this costs a command nothing: limits that make commands remarkable
 * (late_ticks, reply_limit) are 0 while one is. A session with a duration ends by itself: each
 * worker stops counting when it sees the end, in a command or in its next round.
 *
 * Threads: a worker's record has one writer, its worker. Sessions begin, end, go and are read in
 * KV_MODE_STOP. */
#ifndef KV_ENGINE_HOTKEYS_H
#define KV_ENGINE_HOTKEYS_H

#include "base/err.h"
#include "base/slice.h"
#include "mem/arena.h"
#include <stdbool.h>

#define KV_HOTKEYS_COUNT_MAX 64 /* keys that a report may show */
#define KV_HOTKEYS_KEY_MAX 4096 /* bytes of a key that is looked at */
#define KV_HOTKEYS_SECONDS_MAX 1000000000

struct kv_client;
struct kv_command;
struct kv_engine;
struct kv_hotkeys;
struct kv_hotkeys_record;
struct kv_key;
struct kv_worker;

enum kv_hotkeys_metric { KV_HOTKEYS_CPU, KV_HOTKEYS_NET, KV_HOTKEYS_METRICS };

struct kv_hotkeys_options {
    bool wanted[KV_HOTKEYS_METRICS]; /* at least one */
    uint32_t count;                  /* keys that a report shows of a metric, 1 to 64 */
    uint32_t ratio;                  /* one in so many commands is looked at; 1: all */
    uint32_t duration_s;             /* 0: until it is stopped */
};

/* Begins a session; the data of one before are gone. None may be active. KV_ERR_NOMEM: nothing has
 * changed. [KV_MODE_STOP] */
enum kv_err kv_hotkeys_start(struct kv_worker *w,
                             const struct kv_hotkeys_options *options) KV_MUST_CHECK;

/* A session counts at this moment. [KV_MODE_STOP] */
bool kv_hotkeys_active(struct kv_engine *e);

/* Ends the active session; its data stay. [KV_MODE_STOP] */
void kv_hotkeys_stop(struct kv_worker *w);

/* Releases the data of a session, if there are any; none is active. [KV_MODE_STOP, or no worker
 * runs any more] */
void kv_hotkeys_release(struct kv_engine *e);

struct kv_hotkeys_report {
    struct kv_hotkeys_options options;
    bool active;
    int64_t start_ms;         /* Unix time */
    uint64_t duration_ms;     /* until now, or until it ended */
    uint64_t commands_us;     /* time of all commands */
    uint64_t commands_bytes;  /* of their requests and replies */
    uint64_t user_ms, sys_ms; /* processor time of the process meanwhile */
};

/* False: there are no data. [KV_MODE_STOP] */
bool kv_hotkeys_report(struct kv_engine *e, struct kv_hotkeys_report *out);

struct kv_hotkeys_item {
    struct kv_slice key; /* the session's, until it is released */
    uint64_t hash;
    uint64_t cost; /* nanoseconds or bytes */
};

/* The dearest keys, dearest first, at most as many as the session shows; the items are the arena's.
 * KV_ERR_NOMEM. [KV_MODE_STOP] */
enum kv_err kv_hotkeys_top(struct kv_engine *e, enum kv_hotkeys_metric metric,
                           struct kv_arena *arena, struct kv_hotkeys_item **items,
                           uint32_t *count) KV_MUST_CHECK;

/* --- for engine/: recording, the worker itself --- */

/* The worker counts in this round; looks whether the session has come to its end. Only when it has
 * a record. */
bool kv_hotkeys_look(struct kv_worker *w);

/* A command has run and taken `ticks`, the worker's call still tells its keys. Only when the worker
 * has a record. */
void kv_hotkeys_note(struct kv_client *c, const struct kv_command *cmd, const struct kv_slice *argv,
                     int argc, uint64_t ticks) KV_COLD;

/* And, behind that, has written so many bytes. Not of commands of scripts. Likewise. */
void kv_hotkeys_note_reply(struct kv_client *c, const struct kv_slice *argv, int argc,
                           uint64_t bytes) KV_COLD;

/* --- for engine/: the sketch --- */

struct kv_hotkeys_entry {
    uint64_t estimate;
    uint64_t error; /* the estimate exceeds the truth by at most this */
    uint64_t hash;
    char *key;      /* owned, a block of `len` bytes */
    uint32_t len;   /* bytes of the key */
    uint32_t place; /* in the heap */
};

struct kv_hotkeys_sketch {
    uint64_t total;      /* sum of all amounts */
    uint32_t capacity;   /* entries */
    uint32_t len;        /* entries in use */
    uint32_t slot_count; /* a power of two, at least twice the capacity */
    uint16_t *heap;      /* numbers of entries, the smallest estimate first */
    uint16_t *slots;     /* numbers of entries + 1 by hash, linear probing; 0: free */
    struct kv_hotkeys_entry entries[];
};

/* NULL: no memory. `capacity` from 1 to 8 * KV_HOTKEYS_COUNT_MAX. */
struct kv_hotkeys_sketch *kv_hotkeys_sketch_try_create(uint32_t capacity) KV_MUST_CHECK;
void kv_hotkeys_sketch_destroy(struct kv_hotkeys_sketch *s); /* NULL: nothing */

/* Adds to the key's estimate: one look-up by hash and a way through the heap. */
void kv_hotkeys_sketch_add(struct kv_hotkeys_sketch *s, const struct kv_key *key, uint64_t amount);

void kv_hotkeys_sketch_check(const struct kv_hotkeys_sketch *s); /* walks all of it */

#endif
