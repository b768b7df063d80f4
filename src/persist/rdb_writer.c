/* The writer of RDB bytes.
 *
 * One buffer collects everything. In memory it grows by half; for a file descriptor it is written
 * out when it holds FLUSH_BYTES. What comes in runs of DIRECT_BYTES goes to the descriptor at once,
 * behind what was collected, without being copied. The checksum follows in long runs, when bytes
 * leave the buffer or somebody asks: that is where folding (base/crc64.c) is fast.
 *
 * A string is written in the shortest of three forms (rdb_write.h): an integer of up to 32 bits
 * that prints as exactly this text, LZF when that saves more than four bytes, or as it is.
 *
 * Invariant: after a failure (err) nothing is put any more and nothing is freed before release, so
 * callers put on and look once.
 */
#include "base/crc64.h"
#include "base/file.h"
#include "persist/rdb_io.h"
#include "persist/rdb_write.h"
#include <errno.h>
#include <unistd.h>

#define FLUSH_BYTES ((size_t)256 << 10)
#define DIRECT_BYTES ((size_t)32 << 10)
#define SHORT_BYTES ((size_t)4 << 10) /* of strings that are written straight to the buffer */

/* --- bytes that grow --- */

bool kv_rdb_bytes_reserve(struct kv_rdb_bytes *b, size_t more)
{
    KV_DASSERT(b->len <= b->capacity);
    if (KV_LIKELY(more <= b->capacity - b->len))
        return true;
    if (more > KV_MEM_SIZE_MAX / 2)
        return false;
    size_t wanted = KV_MAX(b->len + more, b->capacity + b->capacity / 2);
    size_t capacity = kv_mem_block_size(KV_MAX(wanted, (size_t)64));
    uint8_t *ptr = kv_mem_try_realloc(b->ptr, b->capacity, capacity, KV_MEM_OTHER);
    if (ptr == NULL)
        return false;
    b->ptr = ptr;
    b->capacity = capacity;
    return true;
}

bool kv_rdb_bytes_append(struct kv_rdb_bytes *b, const void *bytes, size_t len)
{
    if (!kv_rdb_bytes_reserve(b, len))
        return false;
    if (len != 0)
        memcpy(b->ptr + b->len, bytes, len);
    b->len += len;
    return true;
}

void kv_rdb_bytes_release(struct kv_rdb_bytes *b)
{
    if (b->ptr != NULL)
        kv_mem_free(b->ptr, b->capacity, KV_MEM_OTHER);
    *b = (struct kv_rdb_bytes){NULL, 0, 0};
}

/* --- life --- */

void kv_rdb_writer_init(struct kv_rdb_writer *w)
{
    *w = (struct kv_rdb_writer){.fd = -1, .checksums = true};
}

void kv_rdb_writer_init_fd(struct kv_rdb_writer *w, int fd)
{
    KV_ASSERT(fd >= 0);
    *w = (struct kv_rdb_writer){.fd = fd, .flush_bytes = FLUSH_BYTES, .checksums = true};
    off_t at = lseek(fd, 0, SEEK_CUR);
    w->first_offset = at > 0 ? (uint64_t)at : 0;
}

void kv_rdb_writer_release(struct kv_rdb_writer *w)
{
    kv_rdb_bytes_release(&w->buf);
    kv_rdb_bytes_release(&w->packed);
}

static void note_failure(struct kv_rdb_writer *w, enum kv_err err)
{
    if (w->err != KV_OK)
        return;
    w->err = err;
    w->error = err == KV_ERR_IO ? errno : ENOMEM;
}

static void add_to_sum(struct kv_rdb_writer *w)
{
    if (w->checksums && w->summed < w->buf.len)
        w->checksum = kv_crc64(w->checksum, w->buf.ptr + w->summed, w->buf.len - w->summed);
    w->summed = w->buf.len;
}

void kv_rdb_writer_clear(struct kv_rdb_writer *w)
{
    KV_ASSERT(w->fd < 0);
    w->buf.len = 0;
    w->summed = 0;
    w->checksum = 0;
}

/* Hands bytes to the descriptor. */
static enum kv_err write_out(struct kv_rdb_writer *w, const void *bytes, size_t len)
{
    enum kv_err err = kv_file_write_all(w->fd, bytes, len);
    if (err == KV_OK) {
        w->flushed_bytes += len;
        while (err == KV_OK && w->sync_bytes != 0 &&
               w->flushed_bytes - w->stepped_bytes >= w->sync_bytes) {
            err = kv_file_sync_step(w->fd, w->first_offset + w->stepped_bytes, w->sync_bytes);
            w->stepped_bytes += w->sync_bytes;
        }
    }
    if (err != KV_OK)
        note_failure(w, err);
    return err;
}

enum kv_err kv_rdb_writer_flush(struct kv_rdb_writer *w)
{
    if (w->err != KV_OK || w->fd < 0 || w->buf.len == 0)
        return w->err;
    add_to_sum(w);
    enum kv_err err = write_out(w, w->buf.ptr, w->buf.len);
    if (err != KV_OK)
        return err;
    w->buf.len = 0;
    w->summed = 0;
    return KV_OK;
}

uint64_t kv_rdb_writer_checksum(struct kv_rdb_writer *w)
{
    add_to_sum(w);
    return w->checksum;
}

uint64_t kv_rdb_writer_offset(const struct kv_rdb_writer *w)
{
    return w->flushed_bytes + w->buf.len;
}

struct kv_slice kv_rdb_writer_bytes(const struct kv_rdb_writer *w)
{
    KV_ASSERT(w->fd < 0);
    return kv_slice((const char *)w->buf.ptr, w->buf.len);
}

/* --- putting --- */

/* What the buffer of a file descriptor does not hold, or need not. */
static KV_NOINLINE void put_past_buffer(struct kv_rdb_writer *w, const void *bytes, size_t len)
{
    if (kv_rdb_writer_flush(w) != KV_OK)
        return;
    if (len < DIRECT_BYTES) {
        if (!kv_rdb_bytes_append(&w->buf, bytes, len))
            note_failure(w, KV_ERR_NOMEM);
        return;
    }
    if (w->checksums)
        w->checksum = kv_crc64(w->checksum, bytes, len);
    (void)!write_out(w, bytes, len);
}

void kv_rdb_put(struct kv_rdb_writer *w, const void *bytes, size_t len)
{
    if (KV_UNLIKELY(w->err != KV_OK))
        return;
    if (KV_UNLIKELY(w->fd >= 0 && (len >= DIRECT_BYTES || w->buf.len + len > w->flush_bytes))) {
        put_past_buffer(w, bytes, len);
        return;
    }
    if (KV_UNLIKELY(!kv_rdb_bytes_append(&w->buf, bytes, len)))
        note_failure(w, KV_ERR_NOMEM);
}

uint8_t *kv_rdb_writer_room(struct kv_rdb_writer *w, size_t most)
{
    KV_DASSERT(most <= DIRECT_BYTES);
    if (KV_UNLIKELY(w->err != KV_OK))
        return NULL;
    if (KV_UNLIKELY(w->fd >= 0 && w->buf.len + most > w->flush_bytes) &&
        kv_rdb_writer_flush(w) != KV_OK)
        return NULL;
    if (KV_LIKELY(kv_rdb_bytes_reserve(&w->buf, most)))
        return w->buf.ptr + w->buf.len;
    note_failure(w, KV_ERR_NOMEM);
    return NULL;
}

void kv_rdb_writer_used(struct kv_rdb_writer *w, const uint8_t *end)
{
    size_t len = (size_t)(end - w->buf.ptr);
    KV_DASSERT(len >= w->buf.len && len <= w->buf.capacity);
    w->buf.len = len;
}

void kv_rdb_writer_move(struct kv_rdb_writer *to, struct kv_rdb_writer *from)
{
    KV_ASSERT(from->fd < 0);
    if (from->err != KV_OK) {
        to->err = to->err != KV_OK ? to->err : from->err;
        to->error = to->error != 0 ? to->error : from->error;
    }
    size_t len = from->buf.len;
    if (len != 0 && to->err == KV_OK) {
        uint64_t sum = kv_rdb_writer_checksum(to);
        bool summed = from->checksums;
        uint64_t more = kv_rdb_writer_checksum(from);
        bool checksums = to->checksums;
        to->checksums = checksums && !summed;
        kv_rdb_put(to, from->buf.ptr, len);
        to->checksums = checksums;
        if (checksums && summed) {
            to->summed = to->buf.len;
            to->checksum = kv_crc64_combine(sum, more, len);
        }
    }
    to->version = KV_MAX(to->version, from->version);
    from->buf.len = 0;
    from->summed = 0;
    from->checksum = 0;
}

/* The sum as if the difference of old and new bytes had been in place from the start. */
static void patch_sum(struct kv_rdb_writer *w, uint64_t offset, const uint8_t *old,
                      const uint8_t *bytes, size_t len)
{
    uint8_t difference[64];
    KV_ASSERT(len <= sizeof(difference));
    for (size_t i = 0; i < len; i++)
        difference[i] = old[i] ^ bytes[i];
    uint64_t behind = kv_rdb_writer_offset(w) - offset - len;
    w->checksum =
        kv_rdb_writer_checksum(w) ^ kv_crc64_combine(kv_crc64(0, difference, len), 0, behind);
}

enum kv_err kv_rdb_writer_patch(struct kv_rdb_writer *w, uint64_t offset, const void *old,
                                const void *bytes, size_t len)
{
    KV_ASSERT(offset + len <= kv_rdb_writer_offset(w));
    if (w->checksums)
        patch_sum(w, offset, old, bytes, len);
    if (offset >= w->flushed_bytes) {
        memcpy(w->buf.ptr + (offset - w->flushed_bytes), bytes, len);
        return KV_OK;
    }
    if (offset + len > w->flushed_bytes && kv_rdb_writer_flush(w) != KV_OK)
        return w->err;
    ssize_t written = pwrite(w->fd, bytes, len, (off_t)(w->first_offset + offset));
    if (written == (ssize_t)len)
        return KV_OK;
    note_failure(w, KV_ERR_IO);
    return KV_ERR_IO;
}

void kv_rdb_put_byte(struct kv_rdb_writer *w, uint8_t byte)
{
    kv_rdb_put(w, &byte, 1);
}

void kv_rdb_put_len(struct kv_rdb_writer *w, uint64_t len)
{
    uint8_t *out = kv_rdb_writer_room(w, KV_RDB_LEN_BYTES);
    if (KV_LIKELY(out != NULL))
        kv_rdb_writer_used(w, kv_rdb_write_len(out, len));
}

/* Length and bytes in one step: most strings are short. */
static void put_plain(struct kv_rdb_writer *w, struct kv_slice text)
{
    if (KV_UNLIKELY(text.len > SHORT_BYTES)) {
        kv_rdb_put_len(w, text.len);
        kv_rdb_put(w, text.ptr, text.len);
        return;
    }
    uint8_t *out = kv_rdb_writer_room(w, KV_RDB_STRING_HEAD + text.len);
    if (KV_LIKELY(out != NULL))
        kv_rdb_writer_used(w, kv_rdb_write_plain(out, text));
}

/* True when the number is written in binary, or nothing can be written. */
static bool put_small_int(struct kv_rdb_writer *w, int64_t number)
{
    uint8_t *out = kv_rdb_writer_room(w, KV_RDB_INT_BYTES);
    uint8_t *end = out != NULL ? kv_rdb_write_int(out, number) : NULL;
    if (end != NULL)
        kv_rdb_writer_used(w, end);
    return out == NULL || end != NULL;
}

void kv_rdb_put_int(struct kv_rdb_writer *w, int64_t number)
{
    char digits[KV_INT_TEXT_MAX];
    if (!put_small_int(w, number))
        put_plain(w, kv_slice(digits, kv_int_print(number, digits)));
}

/* True when the bytes are written compressed. Without memory for that they are not. */
static bool put_compressed(struct kv_rdb_writer *w, struct kv_slice text)
{
    if (text.len <= SHORT_BYTES) {
        uint8_t *out = kv_rdb_writer_room(w, KV_RDB_STRING_HEAD + text.len);
        uint8_t *end = out != NULL ? kv_rdb_write_compressed(out, text) : NULL;
        if (end != NULL)
            kv_rdb_writer_used(w, end);
        return end != NULL;
    }
    w->packed.len = 0;
    if (!kv_rdb_bytes_reserve(&w->packed, KV_RDB_STRING_HEAD + text.len))
        return false;
    const uint8_t *end = kv_rdb_write_compressed(w->packed.ptr, text);
    if (end != NULL)
        kv_rdb_put(w, w->packed.ptr, (size_t)(end - w->packed.ptr));
    return end != NULL;
}

void kv_rdb_put_bytes(struct kv_rdb_writer *w, struct kv_slice bytes)
{
    if (KV_UNLIKELY(w->err != KV_OK))
        return;
    if (!w->compress || !kv_rdb_may_compress(bytes) || !put_compressed(w, bytes))
        put_plain(w, bytes);
}

void kv_rdb_put_string(struct kv_rdb_writer *w, struct kv_slice text)
{
    int64_t number;
    if (!kv_rdb_is_int(text, &number) || !put_small_int(w, number))
        kv_rdb_put_bytes(w, text);
}

void kv_rdb_put_uint32(struct kv_rdb_writer *w, uint32_t number)
{
    kv_rdb_put(w, &number, sizeof(number));
}

void kv_rdb_put_uint64(struct kv_rdb_writer *w, uint64_t number)
{
    kv_rdb_put(w, &number, sizeof(number));
}

void kv_rdb_put_double(struct kv_rdb_writer *w, double number)
{
    kv_rdb_put(w, &number, sizeof(number));
}
