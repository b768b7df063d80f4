/* Where the memory is: the figures of MEMORY STATS, MEMORY DOCTOR and INFO, taken at one moment so
 * that they add up.
 *
 *   total      all blocks in use, whole blocks counted: the sum of report.used
 *   dataset    the part of the keyspace: entries, values, tables, expiry indexes
 *   overhead   total - dataset: clients, change stream, configuration, the server's own
 *   type_bytes entries and values by type, over all databases; their sum and `detached` are the
 *              owners entry and value
 *   detached   entries and values that are in no database any more: a flush that the background
 *              thread has not finished
 *   slack      bytes inside the blocks of type_bytes that hold nothing
 *   report     where resident memory is beyond these (mem/mem.h)
 */
#ifndef KV_ADMIN_MEMORY_H
#define KV_ADMIN_MEMORY_H

#include "engine/engine.h"

struct kv_memory_figures {
    int64_t total, peak, startup, dataset, overhead;
    int64_t clients; /* as maxmemory-clients counts: with values that outputs refer to */
    int64_t type_bytes[KV_TYPE_COUNT];
    int64_t slack, detached;
    uint64_t keys; /* in all databases */
    struct kv_mem_report report;
    struct kv_mem_system system;
};

/* [KV_MODE_STOP] */
void kv_memory_figures_read(struct kv_engine *e, struct kv_memory_figures *f);

/* Visits the figures that Redis has no name for, as "group.name": owner.*, keyspace.*, slabs.*,
 * large.*, and single ones. Values are bytes but for the names that end in count. */
void kv_memory_figures_each(const struct kv_memory_figures *f,
                            void (*visit)(void *arg, const char *name, int64_t value), void *arg);

#endif
