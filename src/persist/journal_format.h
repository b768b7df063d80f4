/* Bytes of a journal (journal.h): all numbers little-endian, as the machines are that we run on.
 *
 *     0      head: struct kv_journal_head, then zeros
 *     4096   ring: records at multiples of a sector, never over the ring's end
 *
 * A record is a struct kv_journal_record and its bytes. One without bytes only says how much of the
 * file is durable. */
#ifndef KV_PERSIST_JOURNAL_FORMAT_H
#define KV_PERSIST_JOURNAL_FORMAT_H

#include "base/compiler.h"
#include <assert.h>
#include <xxhash.h>

#define KV_JOURNAL_HEAD_BYTES 4096
#define KV_JOURNAL_SECTOR 512
#define KV_JOURNAL_MAGIC 0x314c4e524a4b564bu        /* "KVKJRNL1" */
#define KV_JOURNAL_RECORD_MAGIC 0x3144434552564b4bu /* "KKVRECD1" */
#define KV_JOURNAL_CHECK_MAX 4096                   /* bytes of the file that are compared */

struct kv_journal_head {
    uint64_t sum; /* XXH3 of what follows */
    uint64_t magic;
    uint64_t id;
    uint64_t ring; /* bytes */
};

struct kv_journal_record {
    uint64_t sum; /* XXH3 of what follows, and of the bytes */
    uint64_t magic;
    uint64_t id;      /* of the journal */
    uint64_t number;  /* 1, 2, 3, ... */
    uint64_t seq;     /* of the file */
    uint64_t offset;  /* of the bytes in it */
    uint64_t durable; /* the file has everything before this */
    uint64_t check;   /* XXH3 of `check_len` bytes before that */
    uint32_t check_len;
    uint32_t len; /* bytes that follow */
};

static_assert(sizeof(struct kv_journal_head) == 32, "no padding");
static_assert(sizeof(struct kv_journal_record) == 72, "no padding");
static_assert(sizeof(struct kv_journal_record) <= KV_JOURNAL_SECTOR, "one without bytes");
static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "written as they are");

/* Bytes of the ring that a record takes. */
KV_INLINE uint64_t kv_journal_record_space(uint64_t len)
{
    uint64_t bytes = sizeof(struct kv_journal_record) + len;
    return (bytes + KV_JOURNAL_SECTOR - 1) / KV_JOURNAL_SECTOR * KV_JOURNAL_SECTOR;
}

KV_INLINE uint64_t kv_journal_sum(const void *bytes, size_t len)
{
    return XXH3_64bits((const char *)bytes + sizeof(uint64_t), len - sizeof(uint64_t));
}

#endif
