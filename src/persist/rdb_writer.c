/* The writer of RDB bytes.
 *
 * One buffer collects everything. In memory it grows by half; for a file descriptor it is written
 * out when it holds FLUSH_BYTES. What is larger than that goes to the descriptor at once, behind
 * what was collected. The checksum follows in long runs, when bytes leave the buffer or somebody
 * asks: that is where folding (base/crc64.c) is fast.
 *
 * A string is written in the shortest of three forms: an integer of up to 32 bits that prints as
 * exactly this text, LZF when that saves more than four bytes, or as it is.
 *
 * Invariant: after a failure (err) nothing is put any more and nothing is freed before release, so
 * callers put on and look once.
 */
#include "base/crc64.h"
#include "base/file.h"
#include "base/lzf.h"
#include "base/number.h"
#include "persist/rdb_format.h"
#include "persist/rdb_io.h"
#include <errno.h>
#include <unistd.h>

#define FLUSH_BYTES ((size_t)256 << 10)
#define INT_TEXT_SHORT 11u /* longest text of an integer of 32 bits */
#define COMPRESS_MIN 20u   /* texts up to here are written as they are */
#define COMPRESS_GAIN 4u   /* LZF has to save so many bytes, its own lengths aside */
#define COMPRESS_MAX ((size_t)1 << 30)

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

/* What the buffer of a file descriptor does not hold. */
static KV_NOINLINE void put_past_buffer(struct kv_rdb_writer *w, const void *bytes, size_t len)
{
    if (kv_rdb_writer_flush(w) != KV_OK)
        return;
    if (len < w->flush_bytes) {
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
    if (KV_UNLIKELY(w->fd >= 0 && w->buf.len + len > w->flush_bytes)) {
        put_past_buffer(w, bytes, len);
        return;
    }
    if (KV_UNLIKELY(!kv_rdb_bytes_append(&w->buf, bytes, len)))
        note_failure(w, KV_ERR_NOMEM);
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

/* Writes a length; returns how many bytes that took. */
static size_t write_len(uint8_t out[9], uint64_t len)
{
    if (len < 1 << 6) {
        out[0] = (uint8_t)len;
        return 1;
    }
    if (len < 1 << 14) {
        out[0] = (uint8_t)(KV_RDB_LEN_14 << 6 | len >> 8);
        out[1] = (uint8_t)len;
        return 2;
    }
    size_t bytes = len <= UINT32_MAX ? 4 : 8;
    out[0] = (uint8_t)(KV_RDB_LEN_WIDE << 6 | (bytes == 8));
    for (size_t i = 0; i < bytes; i++)
        out[1 + i] = (uint8_t)(len >> 8 * (bytes - 1 - i));
    return 1 + bytes;
}

void kv_rdb_put_len(struct kv_rdb_writer *w, uint64_t len)
{
    uint8_t out[9];
    kv_rdb_put(w, out, write_len(out, len));
}

/* Length and bytes in one step: most strings are short. */
static void put_plain(struct kv_rdb_writer *w, struct kv_slice text)
{
    uint8_t out[9 + 64];
    size_t head = write_len(out, text.len);
    if (text.len <= 64) {
        if (text.len != 0)
            memcpy(out + head, text.ptr, text.len);
        kv_rdb_put(w, out, head + text.len);
        return;
    }
    kv_rdb_put(w, out, head);
    kv_rdb_put(w, text.ptr, text.len);
}

/* True when the number is written in binary. */
static bool put_small_int(struct kv_rdb_writer *w, int64_t number)
{
    unsigned form, bytes;
    uint8_t out[5];
    if (number >= INT8_MIN && number <= INT8_MAX) {
        form = KV_RDB_SPECIAL_INT8;
        bytes = 1;
    } else if (number >= INT16_MIN && number <= INT16_MAX) {
        form = KV_RDB_SPECIAL_INT16;
        bytes = 2;
    } else if (number >= INT32_MIN && number <= INT32_MAX) {
        form = KV_RDB_SPECIAL_INT32;
        bytes = 4;
    } else {
        return false;
    }
    out[0] = (uint8_t)(KV_RDB_LEN_SPECIAL << 6 | form);
    for (unsigned i = 0; i < bytes; i++)
        out[1 + i] = (uint8_t)((uint64_t)number >> 8 * i);
    kv_rdb_put(w, out, 1 + bytes);
    return true;
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
    size_t room = text.len - COMPRESS_GAIN;
    w->packed.len = 0;
    if (!kv_rdb_bytes_reserve(&w->packed, room))
        return false;
    size_t len = kv_lzf_pack(text.ptr, text.len, w->packed.ptr, room);
    if (len == 0)
        return false;
    kv_rdb_put_byte(w, KV_RDB_LEN_SPECIAL << 6 | KV_RDB_SPECIAL_LZF);
    kv_rdb_put_len(w, len);
    kv_rdb_put_len(w, text.len);
    kv_rdb_put(w, w->packed.ptr, len);
    return true;
}

void kv_rdb_put_bytes(struct kv_rdb_writer *w, struct kv_slice bytes)
{
    if (KV_UNLIKELY(w->err != KV_OK))
        return;
    if (!w->compress || bytes.len <= COMPRESS_MIN || bytes.len > COMPRESS_MAX ||
        !put_compressed(w, bytes))
        put_plain(w, bytes);
}

void kv_rdb_put_string(struct kv_rdb_writer *w, struct kv_slice text)
{
    int64_t number;
    if (text.len - 1 < INT_TEXT_SHORT && text.ptr[0] <= '9' && kv_int_parse(text, &number) &&
        put_small_int(w, number))
        return;
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
