/* The keyspace: shards of databases of entries.
 *
 * Terms
 *   shard   owns the entries whose hash ends in its number, in all databases: their tables, expiry
 *           indexes and watch records. `lock` in engine/ guards it.
 *   view    through what a command sees the keyspace: database, time of the batch, statistics slot.
 *   due     an entry whose time to live has passed; it is never visible: whoever meets it under the
 *           lock removes it (event `expired`), else the home worker's expiry slice does
 *   change  every alteration is announced by kv_store_changed, once per key and event
 *
 * Threads: a function that takes a key or entry needs the lock of the key's shard; those marked
 * [alone] need the gate (all other workers outside). With one thread there is nothing to hold.
 *
 * Failure: what may run out of memory returns KV_ERR_NOMEM and has then changed nothing.
 */
#ifndef KV_STORE_STORE_H
#define KV_STORE_STORE_H

#include "base/hash.h"
#include "base/lock.h"
#include "base/random.h"
#include "base/stat.h"
#include "ds/table.h"
#include "ds/time_index.h"
#include "store/entry.h"

struct kv_shard;
struct kv_store;
struct kv_view;
struct watch_record;

/* A key with its hash, computed once per command. Borrows the bytes. */
struct kv_key {
    const char *ptr;
    size_t len;
    uint64_t hash;
};

/* Classes of events, one bit each, as notify-keyspace-events selects them. */
enum kv_event_class {
    KV_EVENT_GENERIC = 1 << 0, /* g */
    KV_EVENT_STRING = 1 << 1,  /* $ */
    KV_EVENT_LIST = 1 << 2,    /* l */
    KV_EVENT_SET = 1 << 3,     /* s */
    KV_EVENT_HASH = 1 << 4,    /* h */
    KV_EVENT_ZSET = 1 << 5,    /* z */
    KV_EVENT_EXPIRED = 1 << 6, /* x */
    KV_EVENT_EVICTED = 1 << 7, /* e */
    KV_EVENT_STREAM = 1 << 8,  /* t */
    KV_EVENT_MODULE = 1 << 9,  /* d: of types of modules; nothing announces it */
    /* told by hooks of their own: they are no changes beside the command's */
    KV_EVENT_MISS = 1 << 10,      /* m */
    KV_EVENT_NEW = 1 << 11,       /* n */
    KV_EVENT_OVERWRITE = 1 << 12, /* o */
    KV_EVENT_TYPE = 1 << 13,      /* c */
};

/* What upper folders want to hear. All under the shard's lock; a NULL hook is not called. */
struct kv_store_hooks {
    /* a key changed: notifications, invalidation */
    void (*changed)(struct kv_view *view, const struct kv_key *key, enum kv_event_class event_class,
                    const char *event);
    /* a key is there that was not; before the event of the command that made it */
    void (*added)(struct kv_view *view, const struct kv_key *key);
    /* a key has another value now that does not come from the old one (kv_store_replaced) */
    void (*replaced)(struct kv_view *view, const struct kv_key *key, bool other_type);
    /* a reading command found nothing under a key */
    void (*missed)(struct kv_view *view, const struct kv_key *key);
    /* an entry was removed because it was due: the change stream says DEL / UNLINK */
    void (*expired)(struct kv_view *view, const struct kv_key *key);
    /* an entry was removed to make room: likewise */
    void (*evicted)(struct kv_view *view, const struct kv_key *key);
    /* a member of a collection was removed because it was due: likewise, HDEL / SREM / ZREM */
    void (*member_expired)(struct kv_view *view, const struct kv_key *key, enum kv_type type,
                           struct kv_slice member);
    /* a key changed for which somebody waits (kv_store_wait) */
    void (*ready)(struct kv_view *view, const struct kv_key *key);
    /* frees an entry with many elements (kv_store_free_evicted) on another thread; without this
     * hook it is freed at once */
    void (*free_later)(struct kv_view *view, void (*fn)(void *entry), void *entry);
};

/* Statistics of the keyspace; one slot per worker, written by it alone. */
struct kv_store_stats {
    kv_stat hits, misses; /* lookups by reading commands */
    kv_stat expired_keys;
    kv_stat expired_members; /* fields of hashes, members of sets and sorted sets */
    kv_stat evicted_keys;
    kv_stat dirty;         /* changes, as rdb_changes_since_last_save counts them */
    kv_stat expire_slices; /* slices that removed something */
    kv_stat slice_ns_max;  /* longest slice of expiry work */
    kv_stat defrag_hits;   /* blocks that kv_store_defrag_shard moved */
    kv_stat defrag_misses; /* and that it asked about and left */
    kv_stat defrag_key_hits, defrag_key_misses; /* keys of which a block moved, or none */
};

enum kv_view_flags {
    KV_VIEW_NO_TOUCH = 1,  /* leave the access clock alone (CLIENT NO-TOUCH, OBJECT) */
    KV_VIEW_NO_EXPIRE = 2, /* due entries are invisible but stay (CLIENT PAUSE, a replica) */
    KV_VIEW_QUIET = 4,     /* the hooks `added` and `missed` are not told (OBJECT, loading) */
    KV_VIEW_DUE = 8,       /* set by the store while it announces what time has done to members */
};

struct kv_view {
    struct kv_store *store;
    struct kv_store_stats *stats; /* of the worker */
    int64_t now_ms;               /* wall time of the batch */
    uint64_t dirty;               /* changes since the caller set it to 0 */
    void *owner;                  /* for the hooks: the worker */
    uint32_t db;                  /* selected database */
    uint32_t flags;               /* enum kv_view_flags */
};

struct kv_store_options {
    uint32_t shard_count;    /* power of two, 1 to 4,096 */
    uint32_t database_count; /* 1 to 65,535 */
    struct kv_hash_key hash_key;
};

struct kv_store *kv_store_create(const struct kv_store_options *options);
void kv_store_destroy(struct kv_store *s); /* frees all entries */
void kv_store_set_hooks(struct kv_store *s, const struct kv_store_hooks *hooks); /* [alone] */
const struct kv_store_hooks *kv_store_hooks(const struct kv_store *s);

uint32_t kv_store_shard_count(const struct kv_store *s);
uint32_t kv_store_database_count(const struct kv_store *s);

uint64_t kv_store_hash(const struct kv_store *s, const void *bytes, size_t len) KV_HOT;
uint32_t kv_store_shard_of(const struct kv_store *s, uint64_t hash);

KV_INLINE struct kv_key kv_store_key(const struct kv_store *s, struct kv_slice bytes)
{
    return (struct kv_key){bytes.ptr, bytes.len, kv_store_hash(s, bytes.ptr, bytes.len)};
}

/* Two-stage prefetch for batches and long key lists (see ds/table.h). Stage 2 needs the lock, and
 * returns the entry that it guesses by the tag: the key's, another key's, or NULL. */
void kv_store_prefetch_bucket(const struct kv_view *v, uint64_t hash);
const struct kv_entry *kv_store_prefetch_entry(const struct kv_view *v, uint64_t hash);

/* And two stages more for a member of a collection `e`, as stage 2 guessed it, once that has come:
 * the bytes of a small one (NULL), or of a large one its table's bucket and then
 * (kv_table_prefetch_item with *member_hash) the member. NULL as well where there is none. */
const struct kv_table *kv_store_prefetch_member(const struct kv_view *v, const struct kv_entry *e,
                                                struct kv_slice member, uint64_t *member_hash);

/* --- looking up --- */

/* For reading commands: counts a hit or miss, refreshes the access clock (but not under LRM),
 * removes a due entry. */
struct kv_entry *kv_store_read(struct kv_view *v, const struct kv_key *k) KV_HOT;

/* For writing commands: as kv_store_read without counting hits and misses. */
struct kv_entry *kv_store_write(struct kv_view *v, const struct kv_key *k) KV_HOT;

/* Neither statistics nor access clock; due entries are removed (TYPE, TTL, OBJECT, EXISTS). */
struct kv_entry *kv_store_peek(struct kv_view *v, const struct kv_key *k);

/* --- announcing --- */

/* A key changed: watch records, v->dirty, statistics, hook, under LRM the access clock. Once per
 * key and event, after the change. `event` is Redis' notification name, a string constant. The
 * key's shard in database v->db. */
void kv_store_changed(struct kv_view *v, const struct kv_key *k, enum kv_event_class event_class,
                      const char *event);

/* A command has put a value in the place of one of type `old` that it did not make it from: tells
 * the hook `replaced`. For what puts collections; kv_store_set, kv_store_move and kv_store_copy
 * tell it themselves. After the change, before kv_store_changed. */
void kv_store_replaced(struct kv_view *v, const struct kv_key *k, enum kv_type old,
                       enum kv_type type);
/* The same for commands that are said to remove the old key first (RENAME, RESTORE): the hook
 * `added` is told as well. */
void kv_store_renewed(struct kv_view *v, const struct kv_key *k, enum kv_type old,
                      enum kv_type type);

/* --- changing; none of these announces: the command does --- */

/* Sets a string, replacing any value of any type: as integer, embstr or raw by its bytes. `expiry`:
 * ms, KV_NO_EXPIRY or KV_KEEP_EXPIRY. *existed (may be NULL) tells whether the key was there. */
enum kv_err kv_store_set(struct kv_view *v, const struct kv_key *k, struct kv_slice value,
                         int64_t expiry, bool *existed) KV_MUST_CHECK KV_HOT;

/* About `count` keys will be put into v->db in this shard: an empty table gets that size at once.
 * Where memory is short nothing happens. */
void kv_store_reserve(struct kv_view *v, uint32_t shard, uint64_t count);

/* As kv_store_set for a key that is not there, as a lookup under the same lock has just told. */
enum kv_err kv_store_add(struct kv_view *v, const struct kv_key *k, struct kv_slice value,
                         int64_t expiry) KV_MUST_CHECK;

/* As kv_store_set, but an integer's text stays text: embstr, as floating-point counters have it. */
enum kv_err kv_store_set_text(struct kv_view *v, const struct kv_key *k, struct kv_slice value,
                              int64_t expiry) KV_MUST_CHECK;

/* As kv_store_set for a received large block: takes over the caller's reference and sets *block to
 * NULL on success. */
enum kv_err kv_store_set_block_take(struct kv_view *v, const struct kv_key *k,
                                    struct kv_bigstr **block, int64_t expiry,
                                    bool *existed) KV_MUST_CHECK;

/* Sets an integer; `expiry` as for kv_store_set (INCR passes KV_KEEP_EXPIRY). In place when the key
 * already holds one. */
enum kv_err kv_store_set_int(struct kv_view *v, const struct kv_key *k, int64_t value,
                             int64_t expiry) KV_MUST_CHECK;

/* Overwrites the number of an entry whose encoding is KV_ENC_INT; cannot fail. The short way of
 * INCR on the entry that kv_store_write has found: no second lookup. */
void kv_store_update_int(struct kv_view *v, struct kv_entry *e, int64_t value);

/* Opens a string for change in place: creates the key (no expiry) when e is NULL, makes the
 * encoding raw, unshares, sets the length to `len` (old bytes kept up to it, new bytes zero) and
 * returns the mutable bytes, valid until the next store call. `e` must be of type string. Greedy
 * growth, so that a series of appends costs amortised O(1). */
enum kv_err kv_store_edit_string(struct kv_view *v, const struct kv_key *k, struct kv_entry *e,
                                 size_t len, char **bytes) KV_MUST_CHECK;

/* Sets, keeps or removes (KV_NO_EXPIRY) the time to live; may move the entry: *e is updated. */
enum kv_err kv_store_set_expiry(struct kv_view *v, const struct kv_key *k, struct kv_entry **e,
                                int64_t expiry) KV_MUST_CHECK;

/* Removes an entry and frees it (values of more than 64 elements go to the background hook). */
void kv_store_delete(struct kv_view *v, const struct kv_key *k, struct kv_entry *e);

/* Moves entry e of key `from` in v->db to key `to` in database `to_db`, with value and expiry,
 * replacing what is there. Both shards locked. */
enum kv_err kv_store_move(struct kv_view *v, const struct kv_key *from, struct kv_entry *e,
                          uint32_t to_db, const struct kv_key *to) KV_MUST_CHECK;

/* Copies likewise; the source stays. */
enum kv_err kv_store_copy(struct kv_view *v, struct kv_entry *e, uint32_t to_db,
                          const struct kv_key *to) KV_MUST_CHECK;

/* --- access clock, for OBJECT IDLETIME / FREQ and for eviction (store/evict.h) --- */

/* What it records of each key. Three bytes of an entry hold it, so a store knows one of them. */
enum kv_access_mode {
    KV_ACCESS_LRU, /* when it was read or written last */
    KV_ACCESS_LFU, /* how often: a logarithmic counter that decays */
    KV_ACCESS_LRM, /* when it was changed last */
};

struct kv_access_rules {
    enum kv_access_mode mode;
    uint32_t lfu_log_factor;    /* the counter grows ever more slowly; 0: with each access */
    uint32_t lfu_decay_minutes; /* without access until it falls by one; 0: never */
};

/* [alone] A store starts with KV_ACCESS_LRU. Entries written under another mode are read as what
 * they are, and take the new form when they are touched. */
void kv_store_set_access(struct kv_store *s, const struct kv_access_rules *rules);

/* Seconds since the last access (LRM: change); minutes are all that an entry under LFU knows. */
uint64_t kv_entry_idle_seconds(const struct kv_entry *e, int64_t now_ms);

/* LFU counter, 0 to 255, with its decay until now. */
uint32_t kv_store_frequency(const struct kv_view *v, const struct kv_entry *e);

/* What a file or RESTORE tells of an entry's use, kept if the store's mode records such a thing. */
void kv_store_set_idle_seconds(const struct kv_view *v, struct kv_entry *e, uint64_t seconds);
void kv_store_set_frequency(const struct kv_view *v, struct kv_entry *e, uint32_t counter);

/* --- the whole keyspace --- */

uint64_t kv_store_size(const struct kv_store *s, uint32_t db);    /* [alone] keys, due included */
uint64_t kv_store_expires(const struct kv_store *s, uint32_t db); /* [alone] keys with expiry */
/* [alone] Collections whose members have due times, or lost the last one a short time ago. */
uint64_t kv_store_member_expires(const struct kv_store *s, uint32_t db);
int64_t kv_store_average_ttl_ms(const struct kv_store *s, uint32_t db,
                                int64_t now_ms);                        /* [alone] */
uint64_t kv_store_table_memory(const struct kv_store *s, uint32_t db);  /* [alone] */
uint64_t kv_store_expiry_memory(const struct kv_store *s, uint32_t db); /* [alone] */

/* What the entries of a database cost: entries and values, without tables and indexes. */
struct kv_store_memory {
    int64_t type_bytes[KV_TYPE_COUNT]; /* whole blocks by enum kv_type */
    int64_t slack_bytes;               /* of these: bytes of blocks that hold nothing */
};
void kv_store_memory(const struct kv_store *s, uint32_t db,
                     struct kv_store_memory *out); /* [alone] */

/* Detached tables of a flush: freed by kv_store_garbage_free, on any thread, without any lock. */
struct kv_store_garbage;

/* [alone] Empties a database (or all, db = UINT32_MAX): watch records of existing keys are touched,
 * v->dirty and the statistics grow by the number of keys; returns what is to be freed, or NULL when
 * it was empty. */
struct kv_store_garbage *kv_store_flush(struct kv_view *v, uint32_t db);
void kv_store_garbage_free(struct kv_store_garbage *g);

/* [alone] Exchanges two databases; touches watch records of keys that exist in either and counts
 * one change (none when a == b). */
void kv_store_swap(struct kv_view *v, uint32_t a, uint32_t b);

/* [alone] Visits every entry of a database that is not due. The visitor changes nothing. */
void kv_store_each(struct kv_view *v, void (*visit)(struct kv_entry *e, void *arg), void *arg);

/* SCAN within one shard (its lock held): entries of v->db from `position` on, about `count` of
 * them, due ones skipped; returns the next position or KV_TABLE_POSITION_END. */
uint64_t kv_store_scan_shard(struct kv_view *v, uint32_t shard, uint64_t position, uint64_t count,
                             void (*visit)(struct kv_entry *e, void *arg), void *arg);

/* Keys of v->db in one shard (its lock held). */
uint64_t kv_store_shard_size(const struct kv_store *s, uint32_t shard, uint32_t db);

/* A random entry of one shard that is not due, or NULL (its lock held; tries a bounded number). */
struct kv_entry *kv_store_random(struct kv_view *v, uint32_t shard, struct kv_random *r);

/* --- expiry --- */

/* Removes due entries of a shard, all databases, until none is due or `deadline_ticks`
 * (kv_clock_ticks) has passed; returns how many; *more tells whether due ones remain. Lock held. */
uint64_t kv_store_expire_shard(struct kv_view *v, uint32_t shard, uint64_t deadline_ticks,
                               bool *more);

/* Smallest due time of a shard (lock held), INT64_MAX when nothing expires; and a lock-free hint of
 * it, which may be late by one change in flight: read by the home worker without the lock. */
int64_t kv_store_next_due_hint(const struct kv_store *s, uint32_t shard);

/* --- moving blocks while an evacuation runs (mem/mem.h) --- */

/* Where the walk over a shard stands; zero at its start. It stays good whatever happens to the
 * shard between two calls. */
struct kv_defrag_position {
    uint64_t table;                /* cursor of kv_table_move in the database's entries */
    uint64_t when, index_position; /* of kv_time_index_move_nodes in its expiry index */
    uint32_t db;                   /* all below are done; beyond the last: the watch records */
    bool in_index;                 /* the entries of `db` are done */
};

/* Moves entries, values, tables and indexes of a shard out of slabs that are evacuated, from *p on,
 * until `deadline_ticks` has passed (true: the shard is done). Content, expiry, watches and clocks
 * stay as they are; pointers to entries and their values do not. Large strings that output queues
 * hold as well stay. Works on at least one group of buckets. Lock held. */
bool kv_store_defrag_shard(struct kv_view *v, uint32_t shard, struct kv_defrag_position *p,
                           uint64_t deadline_ticks);

/* --- WATCH --- */

/* One watched key of one client; lives in the shard until unwatched. */
struct kv_watch;

/* Starts watching key k in v->db (a due entry is removed first, so it counts as absent).
 * KV_ERR_NOMEM: nothing changed. */
enum kv_err kv_store_watch(struct kv_view *v, const struct kv_key *k,
                           struct kv_watch **out) KV_MUST_CHECK;

/* True when the key was changed since kv_store_watch, or is due now. */
bool kv_store_watch_dirty(struct kv_view *v, const struct kv_watch *w);
void kv_store_unwatch(struct kv_store *s, struct kv_watch *w); /* frees w; shard lock held */
uint32_t kv_watch_shard(const struct kv_watch *w);
bool kv_watch_same(const struct kv_watch *w, uint32_t db, const struct kv_key *k);
uint64_t kv_store_watched_keys(const struct kv_store *s); /* [alone] */

/* --- waiting for a key --- */

/* A place in the queue of a key; lies in the caller's memory and is zero while in no queue. */
struct kv_key_wait {
    struct kv_key_wait *next, *prev; /* in the order of kv_store_wait */
    struct watch_record *record;     /* NULL: in no queue */
    void *waiter;                    /* the caller's: who waits, the same for all its places */
};

/* Enters the queue of key k in v->db at its end. From then on kv_store_changed tells the hook
 * `ready` of changes of the key. Whoever stands at the end already (w->waiter, when it names a key
 * twice) gets no second place. KV_ERR_NOMEM: nothing changed. */
enum kv_err kv_store_wait(struct kv_view *v, const struct kv_key *k,
                          struct kv_key_wait *w) KV_MUST_CHECK;
void kv_store_unwait(struct kv_store *s, struct kv_key_wait *w);

/* Who waits longest for a key, or NULL; the others follow by `next`. The hook `ready`, told once,
 * is told of the key's next change only after this call. */
struct kv_key_wait *kv_store_waiting(const struct kv_view *v, const struct kv_key *k);

/* The key waited for; its bytes last until kv_store_unwait. */
struct kv_key kv_key_wait_key(const struct kv_key_wait *w);
uint64_t kv_store_waited_keys(const struct kv_store *s); /* [alone] keys that somebody waits for */

/* --- digest and checks --- */

/* [alone] 20-byte digest of all databases, independent of order; equal content, equal digest. */
void kv_store_digest(struct kv_view *v, uint8_t out[20]);
/* Digest of one value, without key and expiry. */
void kv_entry_digest(const struct kv_entry *e, uint8_t out[20]);

/* Debug [alone]: walks everything and asserts its invariants. */
void kv_store_check(struct kv_store *s);

#endif
