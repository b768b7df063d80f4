/* Output: the replies of a connection on their way out, as a chain of chunks.
 *
 * A chunk is a 16 KiB buffer or a reference to a large string (kv_bigstr is in value/, a sibling,
 * so it is known here only as an opaque holder with a release function). Appending writes straight
 * into the last chunk's free space [pos, end); nothing is copied again before the socket. An idle
 * connection has no chunk. Replies written here are RESP2 or RESP3 as `resp` says.
 *
 * Ownership: the output belongs to one connection and is touched by its worker (or by a worker that
 * has stopped all others). Chunks come from a kv_chunk_pool of the thread that appends and go back
 * to the pool of the thread that sends; pools are per worker.
 */
#ifndef KV_PROTO_OUT_H
#define KV_PROTO_OUT_H

#include "base/slice.h"
#include "mem/mem.h"

#define KV_CHUNK_BYTES (16 * 1024) /* block size of a buffer chunk, header included */
#define KV_CHUNK_POOL_MAX 16       /* free chunks a pool keeps: 256 KiB a worker */

struct kv_chunk {
    struct kv_chunk *next;
    char *data;              /* first byte */
    size_t len;              /* bytes written; of the last chunk only after kv_out_settle */
    size_t sent;             /* bytes already given to the socket */
    size_t capacity;         /* of data; of a reference: bytes that it keeps alive */
    void *holder;            /* referenced object, or NULL for a buffer */
    void (*release)(void *); /* lets the holder go */
    size_t block_size;       /* of this allocation */
};

struct kv_chunk_pool {
    struct kv_chunk *free;
    uint32_t count;
};

struct kv_out {
    char *pos;             /* where the next byte goes; NULL without chunk */
    char *end;             /* end of the last chunk's space */
    struct kv_chunk *head; /* oldest unsent chunk */
    struct kv_chunk *tail;
    struct kv_chunk_pool *pool; /* of the worker that owns the connection now */
    size_t sealed_bytes;        /* bytes in chunks before the tail, minus what was sent */
    size_t chunk_bytes;         /* memory held: block sizes of all chunks and referenced objects */
    uint32_t chunk_count;
    uint8_t resp; /* 2 or 3 */
};

void kv_chunk_pool_init(struct kv_chunk_pool *p);
void kv_chunk_pool_release(struct kv_chunk_pool *p);

void kv_out_init(struct kv_out *o, struct kv_chunk_pool *pool);
void kv_out_release(struct kv_out *o); /* drops everything unsent */

/* Makes at least `need` (<= 8,192) bytes of contiguous space at pos. Slow path of the reply calls.
 */
void kv_out_grow(struct kv_out *o, size_t need);

/* Makes at least `need` bytes of contiguous space at pos, any number, in a chunk that is small
 * while the output is: for messages to many connections, most of which get no more than one. */
void kv_out_reserve_lean(struct kv_out *o, size_t need);

KV_INLINE char *kv_out_reserve(struct kv_out *o, size_t need)
{
    if (KV_UNLIKELY((size_t)(o->end - o->pos) < need))
        kv_out_grow(o, need);
    return o->pos;
}

void kv_out_append(struct kv_out *o, const void *bytes, size_t len); /* any length */

/* Appends [bytes, bytes+len) by reference: `release(holder)` is called when it is sent or dropped.
 * `held_size` counts into chunk_bytes. */
void kv_out_append_ref(struct kv_out *o, const char *bytes, size_t len, void *holder,
                       void (*release)(void *), size_t held_size);

/* Unsent bytes. */
size_t kv_out_pending(const struct kv_out *o);

/* A place in the output, to go back to: drops what was appended since (a muted reply, a command
 * that fails half-way). Valid only while nothing was sent. */
struct kv_out_mark {
    struct kv_chunk *tail;
    size_t tail_len;
    size_t pending;
};
struct kv_out_mark kv_out_mark(struct kv_out *o);
void kv_out_rewind(struct kv_out *o, const struct kv_out_mark *m);

/* An aggregate whose length is known only afterwards: begin, append elements, end. The token stays
 * valid while nothing before it is rewound. May nest. */
struct kv_chunk *kv_out_deferred_begin(struct kv_out *o);
void kv_out_deferred_end(struct kv_out *o, struct kv_chunk *token, char type, size_t count);

/* For the sender: writes tail->len from pos. */
void kv_out_settle(struct kv_out *o);
/* Tells that `bytes` more were sent: frees what is done. */
void kv_out_advance(struct kv_out *o, size_t bytes);

#endif
