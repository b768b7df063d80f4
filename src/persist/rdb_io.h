/* Bytes of the RDB format: a writer and a reader, both with the running checksum.
 *
 * Terms
 *   writer   collects bytes in a buffer; that of a file descriptor is written when it is full, that
 *            in memory grows. Puts have no result: the first failure stays in `err`, later puts do
 *            nothing, and whoever finishes asks once.
 *   reader   takes bytes from memory or through a buffer from a file descriptor. The first fault
 *            stays too: its offset and text are what an operator needs to see.
 *   length   up to 64 bits, in 1, 2, 5 or 9 bytes
 *   string   a length and bytes, or an integer in binary, or bytes compressed by LZF
 *
 * No length that is read decides by itself how much memory is taken: it is compared with what is
 * left of the source, and where that is not known (pipes, sockets) memory grows with what arrives.
 *
 * Threads: one at a time per writer and reader.
 */
#ifndef KV_PERSIST_RDB_IO_H
#define KV_PERSIST_RDB_IO_H

#include "base/err.h"
#include "base/slice.h"
#include "mem/mem.h"
#include <stdatomic.h>

/* --- bytes that grow --- */

struct kv_rdb_bytes {
    uint8_t *ptr; /* NULL while nothing was needed */
    size_t len, capacity;
};

/* Room for `more` bytes behind the others. */
bool kv_rdb_bytes_reserve(struct kv_rdb_bytes *b, size_t more) KV_MUST_CHECK;
bool kv_rdb_bytes_append(struct kv_rdb_bytes *b, const void *bytes, size_t len) KV_MUST_CHECK;
void kv_rdb_bytes_release(struct kv_rdb_bytes *b);

/* --- writing --- */

struct kv_rdb_writer {
    struct kv_rdb_bytes buf;
    size_t flush_bytes;         /* of a file descriptor: written when so many are there */
    size_t summed;              /* bytes of the buffer that are in the checksum */
    uint64_t checksum;          /* of all before `summed` */
    uint64_t flushed_bytes;     /* handed to the file descriptor */
    uint64_t first_offset;      /* of the descriptor, where the first byte goes */
    int fd;                     /* -1: in memory */
    uint64_t sync_bytes;        /* it writes out after each so many; 0: nobody asks it to */
    uint64_t stepped_bytes;     /* flushed ones that were told to be written out */
    bool compress;              /* strings by LZF where that is shorter (rdbcompression) */
    bool checksums;             /* rdbchecksum */
    uint32_t version;           /* highest that an entry in it needs (rdb_file.h) */
    enum kv_err err;            /* first failure */
    int error;                  /* errno of it */
    struct kv_rdb_bytes packed; /* scratch of the compression */
};

void kv_rdb_writer_init(struct kv_rdb_writer *w);             /* in memory */
void kv_rdb_writer_init_fd(struct kv_rdb_writer *w, int fd);  /* does not own fd */
void kv_rdb_writer_release(struct kv_rdb_writer *w);          /* forgets what was not flushed */
void kv_rdb_writer_clear(struct kv_rdb_writer *w);            /* in memory: begins anew */
enum kv_err kv_rdb_writer_flush(struct kv_rdb_writer *w);     /* all to the file descriptor */
uint64_t kv_rdb_writer_checksum(struct kv_rdb_writer *w);     /* of all that was put */
uint64_t kv_rdb_writer_offset(const struct kv_rdb_writer *w); /* bytes put so far */
struct kv_slice kv_rdb_writer_bytes(const struct kv_rdb_writer *w); /* in memory: all of them */

/* Puts all that a writer in memory has, its checksum included, and empties it. */
void kv_rdb_writer_move(struct kv_rdb_writer *to, struct kv_rdb_writer *from);

/* Replaces bytes that were put, at an offset from the first one. KV_ERR_IO: the descriptor cannot
 * go back to what was flushed. */
enum kv_err kv_rdb_writer_patch(struct kv_rdb_writer *w, uint64_t offset, const void *old,
                                const void *bytes, size_t len) KV_MUST_CHECK;

/* Room for up to `most` bytes (at most 32 KiB), to be written by the functions of rdb_write.h; then
 * kv_rdb_writer_used tells where they end. NULL: the failure is noted. */
uint8_t *kv_rdb_writer_room(struct kv_rdb_writer *w, size_t most) KV_MUST_CHECK;
void kv_rdb_writer_used(struct kv_rdb_writer *w, const uint8_t *end);

void kv_rdb_put(struct kv_rdb_writer *w, const void *bytes, size_t len);
void kv_rdb_put_byte(struct kv_rdb_writer *w, uint8_t byte);
void kv_rdb_put_len(struct kv_rdb_writer *w, uint64_t len);
void kv_rdb_put_string(struct kv_rdb_writer *w, struct kv_slice text);
void kv_rdb_put_bytes(struct kv_rdb_writer *w,
                      struct kv_slice bytes);                     /* a string, never as integer */
void kv_rdb_put_int(struct kv_rdb_writer *w, int64_t number);     /* a string: its digits */
void kv_rdb_put_uint32(struct kv_rdb_writer *w, uint32_t number); /* little-endian */
void kv_rdb_put_uint64(struct kv_rdb_writer *w, uint64_t number);
void kv_rdb_put_double(struct kv_rdb_writer *w, double number);

/* --- reading --- */

#define KV_RDB_FAULT_TEXT 160                   /* bytes of a fault's text */
#define KV_RDB_WINDOW_BYTES ((size_t)256 << 10) /* read from a descriptor at once */

struct kv_rdb_reader {
    const uint8_t *at, *end;     /* what is left of the buffer */
    const uint8_t *start;        /* of the buffer */
    const uint8_t *summed;       /* up to here in the checksum */
    uint64_t start_offset;       /* of the buffer's first byte in the source */
    uint64_t source_bytes;       /* of the whole source; UINT64_MAX: not known */
    uint64_t checksum;           /* of all before `summed` */
    int fd;                      /* -1: from memory */
    bool checksums;              /* keep the sum */
    bool valkey;                 /* the source is Valkey's: some numbers mean something else */
    struct kv_rdb_bytes buf;     /* of a file descriptor */
    struct kv_rdb_bytes *record; /* gets the bytes that are taken; NULL: nobody wants them */
    const uint8_t *recorded;     /* up to here it has them */
    const uint8_t *anchor;       /* bytes from here on stay in the window; NULL: from `at` on */
    /* Of a descriptor: where the window goes when it moves, or NULL (given up), with `block_arg`.
     * NULL: it has one place, `buf`. */
    struct kv_rdb_bytes *(*next_block)(void *arg);
    void *block_arg;
    const atomic_bool *given_up; /* asked whenever a descriptor is read; NULL: never */
    enum kv_err err;             /* first fault: KV_ERR_SYNTAX, KV_ERR_IO, KV_ERR_NOMEM,
                                    KV_ERR_LIMIT (what is anchored is longer than the window) or
                                    KV_ERR_CLOSED (given up) */
    uint64_t fault_offset;
    char fault[KV_RDB_FAULT_TEXT];
};

/* A string that was read. `text` is good until the string is read into again, the reader reads on
 * (unless `keep` was told) or is released. Zero before its first use. */
struct kv_rdb_string {
    struct kv_slice text;
    struct kv_rdb_bytes bytes; /* its own memory, when the text is not in the reader's buffer */
    struct kv_rdb_bytes packed;
    char digits[24]; /* of an integer */
};

void kv_rdb_reader_init(struct kv_rdb_reader *r, struct kv_slice bytes);
void kv_rdb_reader_init_fd(struct kv_rdb_reader *r, int fd); /* does not own fd */
void kv_rdb_reader_release(struct kv_rdb_reader *r);
/* Of memory: goes on with other bytes, which lie at `offset` of what faults are to name. */
void kv_rdb_reader_point(struct kv_rdb_reader *r, struct kv_slice bytes, uint64_t offset);
/* Of a descriptor: goes back to an offset at which the checksum was `checksum`, and forgets its
 * fault. KV_ERR_IO: the descriptor cannot, and that is the fault now. */
enum kv_err kv_rdb_reader_rewind(struct kv_rdb_reader *r, uint64_t offset,
                                 uint64_t checksum) KV_MUST_CHECK;
/* Moves the window, from what is anchored on, to the beginning of other memory, which gets room for
 * KV_RDB_WINDOW_BYTES at least. */
bool kv_rdb_reader_move(struct kv_rdb_reader *r, struct kv_rdb_bytes *to) KV_MUST_CHECK;
uint64_t kv_rdb_reader_offset(const struct kv_rdb_reader *r);
uint64_t kv_rdb_reader_checksum(struct kv_rdb_reader *r); /* of all that was taken */

/* The first fault stays; returns false for the caller to pass on. */
bool kv_rdb_fail(struct kv_rdb_reader *r, enum kv_err err, const char *fmt, ...) KV_PRINTF(3, 4);
#define KV_RDB_BAD(r, ...) kv_rdb_fail((r), KV_ERR_SYNTAX, __VA_ARGS__)
bool kv_rdb_fail_memory(struct kv_rdb_reader *r);

/* Each: true and the result, or the fault is noted. */
bool kv_rdb_take(struct kv_rdb_reader *r, void *to, size_t len) KV_MUST_CHECK;
bool kv_rdb_skip(struct kv_rdb_reader *r, uint64_t len) KV_MUST_CHECK;
bool kv_rdb_take_byte(struct kv_rdb_reader *r, uint8_t *out) KV_MUST_CHECK;
bool kv_rdb_take_len(struct kv_rdb_reader *r, uint64_t *out) KV_MUST_CHECK;
bool kv_rdb_take_uint32(struct kv_rdb_reader *r, uint32_t *out) KV_MUST_CHECK;
bool kv_rdb_take_uint64(struct kv_rdb_reader *r, uint64_t *out) KV_MUST_CHECK;
bool kv_rdb_take_double(struct kv_rdb_reader *r, double *out) KV_MUST_CHECK;
bool kv_rdb_take_string(struct kv_rdb_reader *r, struct kv_rdb_string *s, bool keep) KV_MUST_CHECK;
bool kv_rdb_skip_string(struct kv_rdb_reader *r) KV_MUST_CHECK;
bool kv_rdb_at_end(struct kv_rdb_reader *r);         /* nothing is left */
uint64_t kv_rdb_left(const struct kv_rdb_reader *r); /* bytes; UINT64_MAX: not known */
void kv_rdb_string_release(struct kv_rdb_string *s);

/* Between the two, `into` gets a copy of all bytes that are taken; one at a time. */
void kv_rdb_record_begin(struct kv_rdb_reader *r, struct kv_rdb_bytes *into);
bool kv_rdb_record_end(struct kv_rdb_reader *r) KV_MUST_CHECK;

#endif
