/* The engine as a library: an engine without sockets, virtual clients, and what they were answered
 * as bytes. For unit tests of engine/, fuzz targets and model tests. Knows nothing of Check: what
 * must hold is a KV_ASSERT. One thread, which is attached to worker 0. */
#ifndef KV_TESTS_LIBRARY_H
#define KV_TESTS_LIBRARY_H

#include "base/clock.h"
#include "base/log.h"
#include "engine/engine.h"
#include "engine/worker.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct library_bytes {
    char *bytes; /* malloc */
    size_t len, capacity;
};

KV_INLINE void library_append(struct library_bytes *b, const void *bytes, size_t len)
{
    if (b->capacity - b->len < len + 1) {
        b->capacity = (b->capacity + len + 1) * 2;
        b->bytes = realloc(b->bytes, b->capacity);
        KV_ASSERT(b->bytes != NULL);
    }
    if (len > 0)
        memcpy(b->bytes + b->len, bytes, len);
    b->len += len;
    b->bytes[b->len] = '\0';
}

KV_INLINE void library_clear(struct library_bytes *b)
{
    b->len = 0;
    if (b->bytes != NULL)
        b->bytes[0] = '\0';
}

KV_INLINE void library_release(struct library_bytes *b)
{
    free(b->bytes);
    *b = (struct library_bytes){0};
}

/* Moves a client's output behind what `to` holds. */
KV_INLINE void library_take(struct kv_client *c, struct library_bytes *to)
{
    size_t pending = kv_out_pending(&c->out), sum = 0;
    kv_out_settle(&c->out);
    for (const struct kv_chunk *k = c->out.head; k != NULL; k = k->next) {
        library_append(to, k->data + k->sent, k->len - k->sent);
        sum += k->len - k->sent;
    }
    KV_ASSERT(sum == pending);
    kv_out_advance(&c->out, pending);
    KV_ASSERT(kv_out_pending(&c->out) == 0);
    KV_ASSERT(c->out.chunk_bytes == 0);
}

/* Ends all that a test put into the keyspace. Nobody else may be inside. */
KV_INLINE void library_flush(struct kv_engine *e)
{
    struct kv_store_stats stats = {0};
    struct kv_view view = {
        .store = kv_engine_store(e), .stats = &stats, .now_ms = kv_clock_wall_ms()};
    view.owner = kv_engine_worker(e, 0);
    kv_store_garbage_free(kv_store_flush(&view, UINT32_MAX));
}

/* Waits until the background thread has freed what commands gave it. */
KV_INLINE void library_background_wait(struct kv_engine *e)
{
    while (kv_engine_background_pending(e) > 0)
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

/* A request line as bytes of the protocol; words are split at single spaces. */
KV_INLINE void library_request(struct library_bytes *to, const char *line)
{
    char header[32];
    int argc = 1;
    for (const char *p = line; *p != '\0'; p++)
        argc += *p == ' ';
    library_append(to, header, (size_t)sprintf(header, "*%d\r\n", argc));
    for (const char *p = line;;) {
        size_t len = strcspn(p, " ");
        library_append(to, header, (size_t)sprintf(header, "$%zu\r\n", len));
        library_append(to, p, len);
        library_append(to, "\r\n", 2);
        p += len;
        if (*p++ == '\0')
            break;
    }
}

/* Sends one line and leaves its reply in `reply`. */
KV_INLINE void library_send(struct kv_client *c, const char *line, struct library_bytes *reply)
{
    struct library_bytes request = {0};
    library_request(&request, line);
    library_clear(reply);
    kv_client_feed(c, request.bytes, request.len);
    library_take(c, reply);
    library_release(&request);
}

#endif
