/* Snapshots: what all databases held at one moment, while commands go on; no fork, no copy of it.
 *
 * The moment is kv_store_snapshot_begin. From then on whoever is about to change an entry gives it
 * to the hooks first, and the shards' home workers walk over the rest a slice at a time
 * (kv_store_snapshot_shard). Each entry that was there at the moment is given to the hooks exactly
 * once, as it was then; entries that come later are not.
 *
 * "Done" is the epoch in an entry's header: an entry of the snapshot's epoch has been saved or came
 * after the moment. An epoch is taken that no entry has, so nothing needs to be prepared or undone.
 * What else may move entries about (growth of tables, RENAME, MOVE, COPY) does not matter: before
 * an entry moves it is saved. FLUSHALL and SWAPDB do matter: their callers cancel the snapshot.
 *
 * Hooks run under the shard's lock. `save` serializes an entry before it returns. Large collections
 * are given to `slice` instead, which notes their key and opens them (store/sliced.h); their
 * members follow one by one through `item`, while commands go on in them too. No hook does I/O, and
 * none can fail: when memory is short it notes that the snapshot is worth nothing.
 *
 * Threads: functions marked [alone] need the gate; the others the lock of the shard.
 */
#ifndef KV_STORE_SNAPSHOT_H
#define KV_STORE_SNAPSHOT_H

#include "store/store.h"

struct kv_sliced;
struct kv_sliced_item;

struct kv_snapshot_hooks {
    /* Takes an entry of database `db` as it is now. */
    void (*save)(struct kv_view *v, uint32_t db, const struct kv_entry *e);
    /* Opens a large collection of shard `shard` by kv_sliced_open. False: save it whole. NULL: all
     * are saved whole, and the hooks below are not called. */
    bool (*slice)(struct kv_view *v, uint32_t db, const struct kv_entry *e, uint32_t shard);
    /* Takes a part of an open one. */
    void (*item)(struct kv_view *v, struct kv_sliced *s, const struct kv_sliced_item *item);
    /* An open one keeps so many bytes more until it is released. */
    void (*grown)(struct kv_view *v, struct kv_sliced *s, size_t bytes);
    /* Memory was short: the snapshot is worth nothing. */
    void (*fail)(struct kv_view *v);
};

/* How far the walk over a shard is; zero at its start. */
struct kv_snapshot_position {
    uint64_t table; /* position of kv_table_scan in the database's table */
    uint32_t db;    /* all below are done */
};

/* [alone] Marks the moment. No other snapshot is going on. The hooks stay good. */
void kv_store_snapshot_begin(struct kv_store *s, const struct kv_snapshot_hooks *hooks);

/* True while a snapshot is going on. Any thread inside the gate. */
bool kv_store_snapshot_active(const struct kv_store *s);

/* Saves entries of a shard from *p on until `deadline_ticks` has passed or a large collection was
 * opened; true: the shard is done, but for what is open. Works on at least one group of buckets. */
bool kv_store_snapshot_shard(struct kv_view *v, uint32_t shard, struct kv_snapshot_position *p,
                             uint64_t deadline_ticks);

/* All shards are done and nothing is open, or (complete false) it is given up: nothing is saved any
 * more. Needs no gate: a hook call that is underway ends as it would have. One thread. */
void kv_store_snapshot_end(struct kv_store *s, bool complete);

#endif
