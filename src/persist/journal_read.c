/* Reading a journal after a crash, and writing back what its file lacks: see journal.h.
 *
 * The ring is looked through sector by sector for records with the right id and checksum; the
 * newest one and those before it, as far as its durable offset, are the tail. Nothing that is read
 * is believed before its checksum is right, and no number of the file decides how much memory is
 * taken but the size that it has.
 *
 * The file is compared before anything is written. A crash of the machine leaves it shorter, or
 * with zeros where bytes never came to the disk: both are mended. Anything else that differs was
 * written by somebody, and which of the two is right only people can say.
 *
 * What the file has behind the tail's end was never acknowledged. It stays after the death of a
 * process, as ever; where something was missing before it, it is cut off, since holes may be in it
 * too.
 *
 * Memory: the whole journal, and a table of its pieces. Threads: any one. */
#include "base/assert.h"
#include "base/file.h"
#include "mem/mem.h"
#include "persist/journal.h"
#include "persist/journal_format.h"
#include "persist/manifest.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMPARE_BYTES 65536

/* A record that was found; `bytes` are behind it in the image. */
struct found {
    struct kv_journal_record record;
    const char *bytes;
};

struct finding {
    struct found *all; /* owned */
    size_t count, capacity;
};

void kv_journal_tail_release(struct kv_journal_tail *t)
{
    kv_mem_free(t->image, t->image_len, KV_MEM_STREAM);
    kv_mem_free(t->pieces, t->capacity * sizeof(*t->pieces), KV_MEM_OTHER);
    memset(t, 0, sizeof(*t));
}

static enum kv_err refuse(struct kv_journal_tail *t, const char *fault)
{
    t->fault = fault;
    return KV_ERR_SYNTAX;
}

/* --- reading --- */

static enum kv_err read_image(struct kv_journal_tail *t, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return KV_ERR_IO;
    if (!S_ISREG(st.st_mode) ||
        (uint64_t)st.st_size < KV_JOURNAL_HEAD_BYTES + KV_JOURNAL_RING_MIN ||
        (uint64_t)st.st_size > KV_JOURNAL_HEAD_BYTES + KV_JOURNAL_RING_MAX)
        return refuse(t, "its size is none that a journal has");
    t->image = kv_mem_try_alloc((size_t)st.st_size, KV_MEM_STREAM);
    if (t->image == NULL)
        return KV_ERR_NOMEM;
    t->image_len = (size_t)st.st_size;
    return kv_file_read_at(fd, t->image, t->image_len, 0);
}

/* The record at `pos` of the image, if there is a whole one. */
static bool record_at(const struct kv_journal_tail *t, uint64_t id, size_t pos, struct found *f)
{
    size_t left = t->image_len - pos;
    if (left < sizeof(f->record))
        return false;
    memcpy(&f->record, t->image + pos, sizeof(f->record));
    f->bytes = t->image + pos + sizeof(f->record);
    return f->record.magic == KV_JOURNAL_RECORD_MAGIC && f->record.id == id &&
           f->record.len <= left - sizeof(f->record) &&
           f->record.sum == kv_journal_sum(t->image + pos, sizeof(f->record) + f->record.len);
}

static bool remember(struct finding *n, const struct found *f)
{
    if (n->count == n->capacity) {
        size_t capacity = KV_MAX(n->capacity * 2, (size_t)256);
        struct found *all = kv_mem_try_alloc(capacity * sizeof(*all), KV_MEM_OTHER);
        if (all == NULL)
            return false;
        if (n->count > 0)
            memcpy(all, n->all, n->count * sizeof(*all));
        kv_mem_free(n->all, n->capacity * sizeof(*all), KV_MEM_OTHER);
        n->all = all;
        n->capacity = capacity;
    }
    n->all[n->count++] = *f;
    return true;
}

static int by_number(const void *a, const void *b)
{
    uint64_t left = ((const struct found *)a)->record.number;
    uint64_t right = ((const struct found *)b)->record.number;
    return left < right ? -1 : left > right;
}

static enum kv_err find_records(struct kv_journal_tail *t, struct finding *n)
{
    struct kv_journal_head head;
    struct found f;
    memcpy(&head, t->image, sizeof(head));
    if (head.magic != KV_JOURNAL_MAGIC)
        return refuse(t, "it does not begin as a journal of this version does");
    if (head.sum != kv_journal_sum(&head, sizeof(head)) ||
        head.ring != t->image_len - KV_JOURNAL_HEAD_BYTES)
        return refuse(t, "its head is damaged");
    for (size_t pos = KV_JOURNAL_HEAD_BYTES; pos < t->image_len;) {
        if (!record_at(t, head.id, pos, &f)) {
            pos += KV_JOURNAL_SECTOR;
            continue;
        }
        if (!remember(n, &f))
            return KV_ERR_NOMEM;
        pos += kv_journal_record_space(f.record.len);
    }
    if (n->count > 0)
        qsort(n->all, n->count, sizeof(*n->all), by_number);
    return KV_OK;
}

/* From the newest record backwards, as far as the file needs it. */
static enum kv_err take_tail(struct kv_journal_tail *t, const struct finding *n)
{
    if (n->count == 0)
        return KV_OK;
    const struct found *last = &n->all[n->count - 1], *first = last;
    t->seq = last->record.seq;
    t->durable = last->record.durable;
    t->end = last->record.offset + last->record.len;
    t->check = last->record.check;
    t->check_len = last->record.check_len;
    if (t->end < t->durable || t->check_len > KV_MIN(t->durable, (uint64_t)KV_JOURNAL_CHECK_MAX))
        return refuse(t, "its newest record contradicts itself");
    while (first->record.offset > t->durable) {
        if (first == n->all || first[-1].record.number + 1 != first->record.number ||
            first[-1].record.seq != t->seq ||
            first[-1].record.offset + first[-1].record.len != first->record.offset)
            return refuse(t, "a record is missing: the journal is damaged");
        first--;
    }
    t->capacity = (size_t)(last - first) + 1;
    t->pieces = kv_mem_try_alloc(t->capacity * sizeof(*t->pieces), KV_MEM_OTHER);
    if (t->pieces == NULL) {
        t->capacity = 0;
        return KV_ERR_NOMEM;
    }
    for (; first <= last; first++)
        t->pieces[t->count++] =
            (struct kv_journal_piece){first->record.offset, first->bytes, first->record.len};
    return KV_OK;
}

enum kv_err kv_journal_read(const char *path, struct kv_journal_tail *t)
{
    struct finding n = {0};
    int fd;
    memset(t, 0, sizeof(*t));
    if (kv_file_open(path, O_RDONLY, 0, &fd) != KV_OK)
        return errno == ENOENT || errno == ENOTDIR ? KV_ERR_NOTFOUND : KV_ERR_IO;
    enum kv_err err = read_image(t, fd);
    int error = errno;
    close(fd);
    if (err == KV_OK)
        err = find_records(t, &n);
    if (err == KV_OK)
        err = take_tail(t, &n);
    kv_mem_free(n.all, n.capacity * sizeof(*n.all), KV_MEM_OTHER);
    if (err != KV_OK) {
        const char *fault = t->fault;
        kv_journal_tail_release(t);
        t->fault = fault;
        errno = error;
    }
    return err;
}

/* --- applying --- */

static enum kv_err check_file(struct kv_journal_tail *t, int fd, uint64_t size)
{
    char bytes[KV_JOURNAL_CHECK_MAX];
    if (size < t->durable)
        return refuse(t, "the file is shorter than it was when it was synced");
    if (kv_file_read_at(fd, bytes, t->check_len, t->durable - t->check_len) != KV_OK)
        return KV_ERR_IO;
    if (t->check_len > 0 && XXH3_64bits(bytes, t->check_len) != t->check)
        return refuse(t, "the file has other bytes than it had when it was synced");
    return KV_OK;
}

/* Compares one stretch; the offset of the first byte that is zero instead goes to *lost. */
static enum kv_err compare(struct kv_journal_tail *t, int fd, struct kv_journal_piece p,
                           uint64_t *lost)
{
    char bytes[COMPARE_BYTES];
    while (p.len > 0) {
        uint32_t n = KV_MIN(p.len, (uint32_t)sizeof(bytes));
        if (kv_file_read_at(fd, bytes, n, p.offset) != KV_OK)
            return KV_ERR_IO;
        bool same = memcmp(bytes, p.bytes, n) == 0;
        for (uint32_t i = 0; i < n && !same; i++) {
            if (bytes[i] == p.bytes[i])
                continue;
            if (bytes[i] != '\0')
                return refuse(t, "the file has been written to since, and not by this server");
            *lost = KV_MIN(*lost, p.offset + i);
        }
        p.offset += n;
        p.bytes += n;
        p.len -= n;
    }
    return KV_OK;
}

/* The part of a piece behind the durable offset: the rest was compared by its checksum. */
static struct kv_journal_piece needed_of(const struct kv_journal_tail *t, size_t i)
{
    struct kv_journal_piece p = t->pieces[i];
    uint64_t before = p.offset < t->durable ? t->durable - p.offset : 0;
    uint32_t skip = (uint32_t)KV_MIN((uint64_t)p.len, before);
    return (struct kv_journal_piece){p.offset + skip, p.bytes + skip, p.len - skip};
}

/* Where the file begins to lack something; t->end when it does not. */
static enum kv_err find_loss(struct kv_journal_tail *t, int fd, uint64_t size, uint64_t *lost)
{
    *lost = KV_MIN(size, t->end);
    for (size_t i = 0; i < t->count; i++) {
        struct kv_journal_piece p = needed_of(t, i);
        if (p.offset >= size)
            break;
        p.len = (uint32_t)KV_MIN((uint64_t)p.len, size - p.offset);
        enum kv_err err = compare(t, fd, p, lost);
        if (err != KV_OK)
            return err;
    }
    return KV_OK;
}

static enum kv_err write_back(const struct kv_journal_tail *t, int fd, uint64_t size)
{
    for (size_t i = 0; i < t->count; i++) {
        struct kv_journal_piece p = needed_of(t, i);
        enum kv_err err = kv_file_write_at(fd, p.bytes, p.len, p.offset);
        if (err != KV_OK)
            return err;
    }
    return size > t->end ? kv_file_truncate(fd, t->end) : KV_OK;
}

enum kv_err kv_journal_apply(struct kv_journal_tail *t, int fd, bool write, uint64_t *lacking)
{
    struct stat st;
    uint64_t lost;
    *lacking = 0;
    if (t->count == 0)
        return KV_OK;
    if (fstat(fd, &st) != 0)
        return KV_ERR_IO;
    enum kv_err err = check_file(t, fd, (uint64_t)st.st_size);
    if (err == KV_OK)
        err = find_loss(t, fd, (uint64_t)st.st_size, &lost);
    if (err != KV_OK)
        return err;
    *lacking = t->end - lost;
    if (!write)
        return KV_OK;
    if (*lacking > 0)
        err = write_back(t, fd, (uint64_t)st.st_size);
    /* Even when it lacks nothing: after the death of a process the disk may not have it yet. */
    return err == KV_OK ? kv_file_sync(fd) : err;
}

/* --- of a log --- */

static const struct kv_manifest_file *file_of(const struct kv_manifest *m, uint64_t seq)
{
    for (uint32_t i = 0; i < m->count; i++)
        if (m->files[i].type == KV_MANIFEST_INCR && m->files[i].seq == seq)
            return &m->files[i];
    return NULL;
}

static enum kv_err apply_to(struct kv_journal_tail *t, const char *path, bool write,
                            uint64_t *lacking)
{
    int fd;
    enum kv_err err = kv_file_open(path, write ? O_RDWR : O_RDONLY, 0, &fd);
    if (err != KV_OK)
        return err;
    err = kv_journal_apply(t, fd, write, lacking);
    int error = errno;
    close(fd);
    errno = error;
    return err;
}

enum kv_err kv_journal_recover(const char *folder, const char *name, const struct kv_manifest *m,
                               bool write, struct kv_journal_outcome *out)
{
    char path[KV_JOURNAL_PATH], file_path[KV_JOURNAL_PATH];
    struct kv_journal_tail t;
    memset(out, 0, sizeof(*out));
    errno = ENAMETOOLONG;
    if (!kv_manifest_path(path, sizeof(path), folder, name, KV_JOURNAL_SUFFIX ".tmp"))
        return KV_ERR_IO;
    if (write)
        unlink(path); /* of one that was never finished */
    path[strlen(path) - strlen(".tmp")] = '\0';
    enum kv_err err = kv_journal_read(path, &t);
    out->fault = t.fault;
    if (err != KV_OK)
        return err;
    out->file = t.count > 0 ? file_of(m, t.seq) : NULL;
    if (out->file != NULL) {
        err = KV_ERR_IO;
        if (kv_manifest_path(file_path, sizeof(file_path), folder, out->file->name, ""))
            err = apply_to(&t, file_path, write, &out->lacking_bytes);
    }
    out->fault = t.fault;
    int error = errno;
    kv_journal_tail_release(&t);
    errno = error;
    if (err != KV_OK || !write)
        return err;
    if (unlink(path) != 0)
        return KV_ERR_IO;
    return kv_file_sync_folder(path);
}
