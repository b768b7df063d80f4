/* Writing of the journal: see the header for what it is and promises.
 *
 * Positions in the ring count upwards for ever; what lies at one is position modulo ring size. A
 * record that would pass the ring's end begins at its start instead, and the rest is left alone.
 *
 *     tail <= next_tail <= head <= tail + ring - one sector
 *
 * `next_tail` follows the syncs of the file. The newest record on disk still relies on everything
 * from `tail` on, so that rises only when a record that says more is synced. One sector is always
 * kept for a record without bytes: it is written when room is there but not declared yet. Without
 * it a full ring could never be left.
 *
 * A record is written and synced before the next one is, so all but the newest are whole.
 *
 * Rejected: O_DIRECT, which measured no faster (75 against 97 us for 16 KB) and does not work
 * everywhere; using an old journal again with another id, whose old records would have to be told
 * from new ones by that alone; a checksum over all of the file, which would have to be read first.
 */
#include "persist/journal.h"

#include "base/assert.h"
#include "base/file.h"
#include "base/random.h"
#include "mem/mem.h"
#include "persist/journal_format.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define RECORD_MAX ((size_t)(1 << 20) + 8192) /* bytes of the longest record, its head included */
#define ZEROS ((size_t)256 << 10)             /* written at once when a journal is made */

struct kv_journal {
    int fd;
    char path[KV_JOURNAL_PATH];
    uint64_t id;
    uint64_t ring;                  /* bytes */
    uint64_t tail, next_tail, head; /* positions */
    uint64_t number;                /* of the last record; 0: there is none */
    uint64_t seq;                   /* of the file that is followed; 0: none yet */
    uint64_t end;                   /* of the file: all before it is in the ring or durable */
    struct kv_journal_point durable;
    char *buf; /* RECORD_MAX */
};

static void check(const struct kv_journal *j)
{
    KV_ASSERT(j->tail <= j->next_tail);
    KV_ASSERT(j->next_tail <= j->head);
    KV_ASSERT(j->head - j->tail <= j->ring);
}

/* --- making --- */

static enum kv_err fill(struct kv_journal *j)
{
    struct kv_journal_head head = {.magic = KV_JOURNAL_MAGIC, .id = j->id, .ring = j->ring};
    uint64_t bytes = KV_JOURNAL_HEAD_BYTES + j->ring;
    head.sum = kv_journal_sum(&head, sizeof(head));
    memset(j->buf, 0, ZEROS);
    memcpy(j->buf, &head, sizeof(head));
    for (uint64_t done = 0, n; done < bytes; done += n) {
        n = KV_MIN(bytes - done, (uint64_t)ZEROS);
        enum kv_err err = kv_file_write_at(j->fd, j->buf, n, done);
        if (err != KV_OK)
            return err;
        memset(j->buf, 0, sizeof(head));
    }
    return kv_file_sync(j->fd);
}

/* Under a temporary name, which is gone afterwards in any case. */
static enum kv_err make_file(struct kv_journal *j, const char *temporary)
{
    enum kv_err err = kv_file_open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644, &j->fd);
    if (err != KV_OK)
        return err;
    err = fill(j);
    if (err == KV_OK)
        err = kv_file_rename(temporary, j->path);
    if (err == KV_OK)
        return KV_OK;
    int error = errno;
    unlink(temporary);
    close(j->fd);
    errno = error;
    return err;
}

enum kv_err kv_journal_create(const char *folder, const char *name, uint64_t ring,
                              struct kv_journal **made)
{
    char temporary[KV_JOURNAL_PATH];
    static_assert(ZEROS <= RECORD_MAX, "the buffer serves both");
    KV_ASSERT(ring >= KV_JOURNAL_RING_MIN && ring <= KV_JOURNAL_RING_MAX);
    KV_ASSERT(ring % KV_JOURNAL_HEAD_BYTES == 0);
    struct kv_journal *j = kv_mem_zalloc(sizeof(*j), KV_MEM_OTHER);
    j->ring = ring;
    kv_random_secure(&j->id, sizeof(j->id));
    j->buf = kv_mem_alloc(RECORD_MAX, KV_MEM_STREAM);
    enum kv_err err = KV_ERR_IO;
    errno = ENAMETOOLONG;
    if (kv_manifest_path(j->path, sizeof(j->path), folder, name, KV_JOURNAL_SUFFIX) &&
        kv_manifest_path(temporary, sizeof(temporary), folder, name, KV_JOURNAL_SUFFIX ".tmp"))
        err = make_file(j, temporary);
    if (err == KV_OK) {
        *made = j;
        return KV_OK;
    }
    kv_mem_free(j->buf, RECORD_MAX, KV_MEM_STREAM);
    kv_mem_free(j, sizeof(*j), KV_MEM_OTHER);
    return err;
}

void kv_journal_destroy(struct kv_journal *j, bool remove)
{
    close(j->fd);
    if (remove)
        unlink(j->path);
    kv_mem_free(j->buf, RECORD_MAX, KV_MEM_STREAM);
    kv_mem_free(j, sizeof(*j), KV_MEM_OTHER);
}

/* --- records --- */

/* Where a record of so much space begins, when it may. */
static uint64_t place_of(const struct kv_journal *j, uint64_t space)
{
    uint64_t left = j->ring - j->head % j->ring;
    return left >= space ? j->head : j->head + left;
}

/* True when it fits above `tail`, and a record without bytes behind it. */
static bool fits(const struct kv_journal *j, uint64_t tail, uint64_t space)
{
    return place_of(j, space) + space + KV_JOURNAL_SECTOR <= tail + j->ring;
}

static enum kv_err put(struct kv_journal *j, uint64_t offset, struct kv_slice bytes)
{
    uint64_t space = kv_journal_record_space(bytes.len), place = place_of(j, space);
    struct kv_journal_record r = {
        .magic = KV_JOURNAL_RECORD_MAGIC,
        .id = j->id,
        .number = j->number + 1,
        .seq = j->seq,
        .offset = offset,
        .durable = j->durable.offset,
        .check = j->durable.check,
        .check_len = j->durable.check_len,
        .len = (uint32_t)bytes.len,
    };
    size_t len = sizeof(r) + bytes.len;
    KV_ASSERT(len <= RECORD_MAX);
    KV_ASSERT(place + space <= j->tail + j->ring);
    memcpy(j->buf, &r, sizeof(r));
    if (bytes.len > 0)
        memcpy(j->buf + sizeof(r), bytes.ptr, bytes.len);
    r.sum = kv_journal_sum(j->buf, len);
    memcpy(j->buf, &r.sum, sizeof(r.sum));
    enum kv_err err = kv_file_write_at(j->fd, j->buf, len, KV_JOURNAL_HEAD_BYTES + place % j->ring);
    if (err == KV_OK)
        err = kv_file_sync(j->fd);
    if (err != KV_OK)
        return err;
    j->number++;
    j->head = place + space;
    j->tail = j->next_tail;
    check(j);
    return KV_OK;
}

enum kv_err kv_journal_append(struct kv_journal *j, uint64_t seq, uint64_t offset,
                              struct kv_slice bytes)
{
    uint64_t space = kv_journal_record_space(bytes.len);
    KV_ASSERT(bytes.len > 0);
    if (seq != j->seq || offset != j->end ||
        bytes.len > RECORD_MAX - sizeof(struct kv_journal_record))
        return KV_ERR_LIMIT;
    if (!fits(j, j->tail, space)) {
        if (!fits(j, j->next_tail, space))
            return KV_ERR_LIMIT;
        enum kv_err err = put(j, offset, kv_slice(NULL, 0));
        if (err != KV_OK)
            return err;
        if (!fits(j, j->tail, space))
            return KV_ERR_LIMIT;
    }
    enum kv_err err = put(j, offset, bytes);
    if (err == KV_OK)
        j->end = offset + bytes.len;
    return err;
}

/* --- following the file --- */

struct kv_journal_point kv_journal_point(const struct kv_journal *j, uint64_t seq, int fd,
                                         uint64_t offset)
{
    char bytes[KV_JOURNAL_CHECK_MAX];
    struct kv_journal_point p = {.seq = seq, .offset = offset, .head = j->head};
    uint32_t len = (uint32_t)KV_MIN(offset, (uint64_t)sizeof(bytes));
    KV_ASSERT(seq != 0);
    /* Without the bytes nothing is compared. They were just written, so this does not happen. */
    if (kv_file_read_at(fd, bytes, len, offset - len) != KV_OK)
        return p;
    p.check = XXH3_64bits(bytes, len);
    p.check_len = len;
    return p;
}

void kv_journal_reached(struct kv_journal *j, const struct kv_journal_point *point)
{
    KV_ASSERT(point->seq != 0);
    KV_ASSERT(point->head <= j->head);
    if (point->seq == j->seq && point->offset < j->durable.offset)
        return;
    j->durable = *point;
    j->next_tail = KV_MAX(j->next_tail, point->head);
    if (point->seq != j->seq || point->offset > j->end)
        j->end = point->offset;
    j->seq = point->seq;
}

bool kv_journal_is_filling(const struct kv_journal *j)
{
    return j->head - j->next_tail > j->ring / 2;
}
