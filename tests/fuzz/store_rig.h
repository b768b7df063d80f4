/* A small store for fuzz targets that put values into it, with what must hold afterwards. */
#ifndef KV_TESTS_FUZZ_STORE_RIG_H
#define KV_TESTS_FUZZ_STORE_RIG_H

#include "base/log.h"
#include "persist/rdb_file.h"
#include "store/collection.h"

struct store_rig {
    struct kv_store *store;
    struct kv_store_stats stats;
    struct kv_view view;
    int64_t used_before;
};

/* Packed collections as usual, or none. */
KV_INLINE void store_rig_start(struct store_rig *rig, bool packed)
{
    static bool ready;
    if (!ready)
        kv_mem_init();
    ready = true;
    kv_log_set_level(KV_LOG_NOTHING);
    struct kv_store_options options = {.shard_count = 2, .database_count = 4, .hash_key = {1, 2}};
    struct kv_collection_limits limits = kv_collection_limits_default;
    *rig = (struct store_rig){.used_before = kv_mem_used_total()};
    rig->store = kv_store_create(&options);
    if (!packed) {
        limits.hash_max_listpack_entries = 2;
        limits.set_max_intset_entries = limits.set_max_listpack_entries = 2;
        limits.zset_max_listpack_entries = 2;
        limits.list_max_listpack_size = 2;
    }
    kv_store_set_limits(rig->store, &limits);
    rig->view =
        (struct kv_view){.store = rig->store, .stats = &rig->stats, .now_ms = 1700000000000};
}

/* The whole keyspace, saved and loaded again, is the same. */
KV_INLINE void store_rig_reload(struct store_rig *rig)
{
    uint8_t before[20], after[20];
    struct kv_rdb_writer w;
    struct kv_rdb_notes notes = {0};
    struct kv_rdb_reader r;
    struct kv_rdb_load l = {.keep_due = true};
    kv_store_check(rig->store);
    rig->view.flags = KV_VIEW_NO_EXPIRE;
    kv_store_digest(&rig->view, before);
    kv_rdb_writer_init(&w);
    w.compress = true;
    KV_ASSERT(kv_rdb_save(&w, &rig->view, &notes, NULL, 0) == KV_OK);
    struct kv_store_garbage *g = kv_store_flush(&rig->view, UINT32_MAX);
    if (g != NULL)
        kv_store_garbage_free(g);
    kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
    r.checksums = true;
    enum kv_err err = kv_rdb_load(&r, &rig->view, &l);
    KV_ASSERT(err == KV_OK);
    kv_store_digest(&rig->view, after);
    KV_ASSERT(memcmp(before, after, sizeof(before)) == 0);
    kv_rdb_writer_release(&w);
    kv_rdb_reader_release(&r);
}

/* All memory comes back. */
KV_INLINE void store_rig_end(struct store_rig *rig)
{
    kv_store_check(rig->store);
    kv_store_destroy(rig->store);
    KV_ASSERT(kv_mem_used_total() == rig->used_before);
}

#endif
