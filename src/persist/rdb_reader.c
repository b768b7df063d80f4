/* The reader of RDB bytes.
 *
 * The buffer is a window onto the source: all of it when it is in memory, else KV_RDB_WINDOW_BYTES
 * that are refilled. Taking moves `at` forward; checksum and recording follow when the window moves
 * or somebody asks, in long runs.
 *
 * A string that lies in the window whole is not copied. A larger one is collected in memory of its
 * own; before that its length is compared with what is left of the source. The length of a
 * compressed string's text is bounded by that of its bytes: LZF makes at most 264 bytes out of 3.
 *
 * Faults: the first one is kept with its offset; everything afterwards fails at once. A fault means
 * that the source is damaged (KV_ERR_SYNTAX), that reading it failed (KV_ERR_IO) or that memory was
 * short.
 */
#include "base/crc64.h"
#include "base/lzf.h"
#include "base/number.h"
#include "persist/rdb_format.h"
#include "persist/rdb_io.h"
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define STEP_BYTES ((size_t)1 << 20) /* memory taken ahead where the source's end is not known */
#define PIPE_WAIT_MS 50
#define LZF_GAIN_MAX 88u /* bytes out of one */

/* --- life --- */

void kv_rdb_reader_init(struct kv_rdb_reader *r, struct kv_slice bytes)
{
    const uint8_t *start = (const uint8_t *)bytes.ptr;
    *r = (struct kv_rdb_reader){
        .at = start,
        .end = start + bytes.len,
        .start = start,
        .summed = start,
        .source_bytes = bytes.len,
        .fd = -1,
    };
}

void kv_rdb_reader_init_fd(struct kv_rdb_reader *r, int fd)
{
    struct stat s;
    KV_ASSERT(fd >= 0);
    *r = (struct kv_rdb_reader){.source_bytes = UINT64_MAX, .fd = fd};
    if (fstat(fd, &s) != 0 || !S_ISREG(s.st_mode))
        return;
    off_t at = lseek(fd, 0, SEEK_CUR);
    r->start_offset = at > 0 ? (uint64_t)at : 0;
    r->source_bytes = (uint64_t)s.st_size;
}

void kv_rdb_reader_release(struct kv_rdb_reader *r)
{
    kv_rdb_bytes_release(&r->buf);
}

void kv_rdb_reader_point(struct kv_rdb_reader *r, struct kv_slice bytes, uint64_t offset)
{
    KV_DASSERT(r->fd < 0 && r->record == NULL && r->err == KV_OK);
    r->at = r->start = r->summed = (const uint8_t *)bytes.ptr;
    r->end = r->at + bytes.len;
    r->start_offset = offset;
    r->source_bytes = offset + bytes.len;
}

enum kv_err kv_rdb_reader_rewind(struct kv_rdb_reader *r, uint64_t offset, uint64_t checksum)
{
    KV_ASSERT(r->fd >= 0 && r->record == NULL);
    r->err = KV_OK;
    if (lseek(r->fd, (off_t)offset, SEEK_SET) != (off_t)offset) {
        kv_rdb_fail(r, KV_ERR_IO, "going back in the file failed: %s", strerror(errno));
        return r->err;
    }
    r->at = r->end = r->start = r->summed = r->buf.ptr;
    r->anchor = NULL;
    r->start_offset = offset;
    r->checksum = checksum;
    return KV_OK;
}

uint64_t kv_rdb_reader_offset(const struct kv_rdb_reader *r)
{
    return r->start_offset + (uint64_t)(r->at - r->start);
}

static void add_to_sum(struct kv_rdb_reader *r)
{
    if (r->checksums && r->at != r->summed)
        r->checksum = kv_crc64(r->checksum, r->summed, (size_t)(r->at - r->summed));
    r->summed = r->at;
}

uint64_t kv_rdb_reader_checksum(struct kv_rdb_reader *r)
{
    add_to_sum(r);
    return r->checksum;
}

/* --- faults --- */

bool kv_rdb_fail(struct kv_rdb_reader *r, enum kv_err err, const char *fmt, ...)
{
    va_list args;
    KV_ASSERT(err != KV_OK);
    if (r->err != KV_OK)
        return false;
    r->err = err;
    r->fault_offset = kv_rdb_reader_offset(r);
    va_start(args, fmt);
    vsnprintf(r->fault, sizeof(r->fault), fmt, args);
    va_end(args);
    return false;
}

bool kv_rdb_fail_memory(struct kv_rdb_reader *r)
{
    return kv_rdb_fail(r, KV_ERR_NOMEM, "out of memory");
}

/* --- recording --- */

static bool add_to_record(struct kv_rdb_reader *r)
{
    if (r->record == NULL)
        return true;
    size_t more = (size_t)(r->at - r->recorded);
    bool added = kv_rdb_bytes_append(r->record, r->recorded, more);
    r->recorded = r->at;
    return added || kv_rdb_fail_memory(r);
}

void kv_rdb_record_begin(struct kv_rdb_reader *r, struct kv_rdb_bytes *into)
{
    KV_ASSERT(r->record == NULL);
    r->record = into;
    r->recorded = r->at;
}

bool kv_rdb_record_end(struct kv_rdb_reader *r)
{
    bool added = add_to_record(r);
    r->record = NULL;
    return added && r->err == KV_OK;
}

/* --- the window --- */

static bool fail_short(struct kv_rdb_reader *r)
{
    return KV_RDB_BAD(r, "the data ends too early");
}

/* True when the reader is to end. A pipe is waited for, as its bytes may come late or never. */
static bool must_end(const struct kv_rdb_reader *r)
{
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    while (!atomic_load_explicit(r->given_up, memory_order_relaxed))
        if (r->source_bytes != UINT64_MAX || poll(&p, 1, PIPE_WAIT_MS) != 0)
            return false;
    return true;
}

/* The window lies at the beginning of `to` now, `taken` of its bytes before `at`. */
static void place_window(struct kv_rdb_reader *r, const struct kv_rdb_bytes *to, size_t taken,
                         size_t held)
{
    r->start = to->ptr;
    r->at = r->summed = r->recorded = to->ptr + taken;
    r->end = to->ptr + held;
    if (r->anchor != NULL)
        r->anchor = to->ptr;
}

/* Moves what is anchored, or not taken yet, to the beginning of `to`, and makes room for `wanted`
 * bytes there. False: memory is short. */
static bool move_window(struct kv_rdb_reader *r, struct kv_rdb_bytes *to, size_t wanted)
{
    const uint8_t *from = r->anchor != NULL ? r->anchor : r->at;
    size_t taken = (size_t)(r->at - from), held = (size_t)(r->end - from);
    bool same = r->start == to->ptr;
    KV_DASSERT(r->summed == r->at);
    r->start_offset = kv_rdb_reader_offset(r) - taken;
    if (same && held != 0)
        memmove(to->ptr, from, held);
    if (same)
        place_window(r, to, taken, held);
    to->len = same ? held : 0; /* what a larger block is to have of this one */
    if (!kv_rdb_bytes_reserve(to, KV_MAX(wanted, held) - to->len)) {
        if (!same)
            r->start = from; /* the offset is that of its first byte */
        return false;
    }
    if (!same && held != 0)
        memcpy(to->ptr, from, held);
    place_window(r, to, taken, held);
    return true;
}

bool kv_rdb_reader_move(struct kv_rdb_reader *r, struct kv_rdb_bytes *to)
{
    KV_ASSERT(r->record == NULL);
    add_to_sum(r);
    return move_window(r, to, KV_RDB_WINDOW_BYTES) || kv_rdb_fail_memory(r);
}

/* Reads until `need` bytes lie behind `at`. */
static bool read_on(struct kv_rdb_reader *r, const struct kv_rdb_bytes *to, size_t need)
{
    while ((size_t)(r->end - r->at) < need) {
        size_t held = (size_t)(r->end - to->ptr);
        if (r->given_up != NULL && must_end(r))
            return kv_rdb_fail(r, KV_ERR_CLOSED, "reading was given up");
        ssize_t got = read(r->fd, to->ptr + held, to->capacity - held);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return kv_rdb_fail(r, KV_ERR_IO, "reading failed: %s", strerror(errno));
        if (got == 0)
            return fail_short(r);
        r->end += got;
    }
    return true;
}

/* Moves the window, and reads until it holds `need` bytes that are not taken yet, or up to the
 * source's end. */
static KV_NOINLINE bool fill(struct kv_rdb_reader *r, size_t need)
{
    struct kv_rdb_bytes *to = &r->buf;
    size_t anchored = r->anchor != NULL ? (size_t)(r->at - r->anchor) : 0;
    KV_DASSERT(r->fd >= 0 && need <= KV_RDB_WINDOW_BYTES && (size_t)(r->end - r->at) < need);
    add_to_sum(r);
    if (!add_to_record(r))
        return false;
    if (anchored + need > KV_RDB_WINDOW_BYTES && r->source_bytes != UINT64_MAX)
        return kv_rdb_fail(r, KV_ERR_LIMIT, "what is anchored is longer than the window");
    if (r->next_block != NULL && (to = r->next_block(r->block_arg)) == NULL)
        return kv_rdb_fail(r, KV_ERR_CLOSED, "reading was given up");
    if (!move_window(r, to, KV_MAX(anchored + need, KV_RDB_WINDOW_BYTES)))
        return kv_rdb_fail_memory(r);
    return read_on(r, to, need);
}

/* Makes `need` bytes lie in the window. */
KV_INLINE bool have(struct kv_rdb_reader *r, size_t need)
{
    if (KV_UNLIKELY(r->err != KV_OK))
        return false;
    if (KV_LIKELY((size_t)(r->end - r->at) >= need))
        return true;
    if (r->fd < 0)
        return fail_short(r);
    return fill(r, need);
}

/* Bytes of the source that are not taken yet. */
static uint64_t left_of_source(const struct kv_rdb_reader *r)
{
    uint64_t offset = kv_rdb_reader_offset(r);
    return r->source_bytes > offset ? r->source_bytes - offset : 0;
}

uint64_t kv_rdb_left(const struct kv_rdb_reader *r)
{
    return r->source_bytes == UINT64_MAX ? UINT64_MAX : left_of_source(r);
}

bool kv_rdb_at_end(struct kv_rdb_reader *r)
{
    KV_DASSERT(r->at <= r->end);
    if (r->at < r->end)
        return false;
    return r->fd < 0 || r->err != KV_OK || left_of_source(r) == 0;
}

bool kv_rdb_take(struct kv_rdb_reader *r, void *to, size_t len)
{
    uint8_t *out = to;
    while (len > 0) {
        size_t step = KV_MIN(len, KV_RDB_WINDOW_BYTES);
        if (r->fd < 0)
            step = len;
        if (!have(r, step))
            return false;
        memcpy(out, r->at, step);
        r->at += step;
        out += step;
        len -= step;
    }
    return r->err == KV_OK;
}

bool kv_rdb_skip(struct kv_rdb_reader *r, uint64_t len)
{
    if (len > left_of_source(r))
        return fail_short(r);
    while (len > 0) {
        size_t step = (size_t)KV_MIN(len, KV_RDB_WINDOW_BYTES);
        if (!have(r, step))
            return false;
        r->at += step;
        len -= step;
    }
    return r->err == KV_OK;
}

/* --- numbers --- */

bool kv_rdb_take_byte(struct kv_rdb_reader *r, uint8_t *out)
{
    if (!have(r, 1))
        return false;
    *out = *r->at++;
    return true;
}

bool kv_rdb_take_uint32(struct kv_rdb_reader *r, uint32_t *out)
{
    return kv_rdb_take(r, out, sizeof(*out));
}

bool kv_rdb_take_uint64(struct kv_rdb_reader *r, uint64_t *out)
{
    return kv_rdb_take(r, out, sizeof(*out));
}

bool kv_rdb_take_double(struct kv_rdb_reader *r, double *out)
{
    return kv_rdb_take(r, out, sizeof(*out));
}

/* A length, or (*special) which of enum kv_rdb_special follows. */
static bool take_head(struct kv_rdb_reader *r, uint64_t *out, bool *special)
{
    if (!have(r, 1))
        return false;
    uint8_t head = r->at[0];
    size_t bytes;
    *special = false;
    switch (head >> 6) {
    case KV_RDB_LEN_6:
        r->at++;
        *out = head & 0x3f;
        return true;
    case KV_RDB_LEN_14:
        if (!have(r, 2))
            return false;
        *out = (uint64_t)(r->at[0] & 0x3f) << 8 | r->at[1];
        r->at += 2;
        return true;
    case KV_RDB_LEN_SPECIAL:
        r->at++;
        *out = head & 0x3f;
        *special = true;
        return true;
    default:
        break;
    }
    if (head != 0x80 && head != 0x81)
        return KV_RDB_BAD(r, "0x%02x begins no length", head);
    bytes = head == 0x80 ? 4 : 8;
    if (!have(r, 1 + bytes))
        return false;
    *out = 0;
    for (size_t i = 0; i < bytes; i++)
        *out = *out << 8 | r->at[1 + i];
    r->at += 1 + bytes;
    return true;
}

bool kv_rdb_take_len(struct kv_rdb_reader *r, uint64_t *out)
{
    bool special;
    if (!take_head(r, out, &special))
        return false;
    if (special)
        return KV_RDB_BAD(r, "a string lies where a length should be");
    return true;
}

/* --- strings --- */

/* `len` bytes: in the window, or collected in `b`. */
static bool take_bytes(struct kv_rdb_reader *r, struct kv_rdb_bytes *b, uint64_t len, bool keep,
                       struct kv_slice *out)
{
    if (len > left_of_source(r))
        return fail_short(r);
    if (r->fd < 0 || (len <= KV_RDB_WINDOW_BYTES && !keep)) {
        if (!have(r, (size_t)len))
            return false;
        *out = kv_slice((const char *)r->at, (size_t)len);
        r->at += len;
        return true;
    }
    b->len = 0;
    while (b->len < len) {
        size_t step = (size_t)len - b->len;
        if (r->source_bytes == UINT64_MAX)
            step = KV_MIN(step, STEP_BYTES);
        if (!kv_rdb_bytes_reserve(b, step))
            return kv_rdb_fail_memory(r);
        if (!kv_rdb_take(r, b->ptr + b->len, step))
            return false;
        b->len += step;
    }
    *out = kv_slice((const char *)b->ptr, b->len);
    return r->err == KV_OK;
}

static bool take_int(struct kv_rdb_reader *r, struct kv_rdb_string *s, uint64_t form)
{
    int8_t narrow = 0;
    int16_t medium = 0;
    int32_t wide = 0;
    int64_t number;
    if (form == KV_RDB_SPECIAL_INT8) {
        if (!kv_rdb_take(r, &narrow, sizeof(narrow)))
            return false;
        number = narrow;
    } else if (form == KV_RDB_SPECIAL_INT16) {
        if (!kv_rdb_take(r, &medium, sizeof(medium)))
            return false;
        number = medium;
    } else {
        if (!kv_rdb_take(r, &wide, sizeof(wide)))
            return false;
        number = wide;
    }
    s->text = kv_slice(s->digits, kv_int_print(number, s->digits));
    return true;
}

static bool take_compressed(struct kv_rdb_reader *r, struct kv_rdb_string *s)
{
    uint64_t packed_len, len;
    struct kv_slice packed;
    if (!kv_rdb_take_len(r, &packed_len) || !kv_rdb_take_len(r, &len))
        return false;
    if (packed_len > UINT32_MAX || len > UINT32_MAX || len == 0 || len / LZF_GAIN_MAX > packed_len)
        return KV_RDB_BAD(r, "lengths of a compressed string that cannot be");
    if (!take_bytes(r, &s->packed, packed_len, false, &packed))
        return false;
    s->bytes.len = 0;
    if (!kv_rdb_bytes_reserve(&s->bytes, (size_t)len))
        return kv_rdb_fail_memory(r);
    if (!kv_lzf_unpack(packed.ptr, packed.len, s->bytes.ptr, (size_t)len))
        return KV_RDB_BAD(r, "a compressed string is damaged");
    s->bytes.len = (size_t)len;
    s->text = kv_slice((const char *)s->bytes.ptr, s->bytes.len);
    return true;
}

bool kv_rdb_take_string(struct kv_rdb_reader *r, struct kv_rdb_string *s, bool keep)
{
    uint64_t len;
    bool special;
    if (!take_head(r, &len, &special))
        return false;
    if (KV_LIKELY(!special))
        return take_bytes(r, &s->bytes, len, keep, &s->text);
    if (len == KV_RDB_SPECIAL_LZF)
        return take_compressed(r, s);
    if (len > KV_RDB_SPECIAL_LZF)
        return KV_RDB_BAD(r, "string form %u is not known", (unsigned)len);
    return take_int(r, s, len);
}

bool kv_rdb_skip_string(struct kv_rdb_reader *r)
{
    uint64_t len, text_len;
    bool special;
    if (!take_head(r, &len, &special))
        return false;
    if (!special)
        return kv_rdb_skip(r, len);
    if (len == KV_RDB_SPECIAL_LZF)
        return kv_rdb_take_len(r, &len) && kv_rdb_take_len(r, &text_len) && kv_rdb_skip(r, len);
    if (len > KV_RDB_SPECIAL_LZF)
        return KV_RDB_BAD(r, "string form %u is not known", (unsigned)len);
    return kv_rdb_skip(r, (uint64_t)1 << len);
}

void kv_rdb_string_release(struct kv_rdb_string *s)
{
    kv_rdb_bytes_release(&s->bytes);
    kv_rdb_bytes_release(&s->packed);
    s->text = kv_slice(NULL, 0);
}
