/* Output chains: see the header for the model.
 *
 * The last chunk is open: bytes go to [pos, end). Its `len` is stale until kv_out_settle. A
 * reference chunk closes the open buffer (its rest is used again by the next buffer only if it is
 * large: a new chunk is simply taken). Deferred lengths insert a small header chunk behind a token
 * chunk; so a nested reply with unknown length costs one extra chunk and no copying.
 *
 * Chunks are 16 KiB because a pipelined batch's replies then fit in one and stay in the first-level
 * cache from append to write; the pool hands the last sent chunk out first. Rejected: one growing
 * buffer per connection, which keeps its peak size or pays for shrinking it.
 */
#include "proto/out.h"
#include "base/assert.h"
#include <stdio.h>

#define LEAN_BYTES 256 /* smallest chunk of kv_out_reserve_lean */
#define CHUNK_SPACE (KV_CHUNK_BYTES - sizeof(struct kv_chunk))

void kv_chunk_pool_init(struct kv_chunk_pool *p)
{
    p->free = NULL;
    p->count = 0;
}

void kv_chunk_pool_release(struct kv_chunk_pool *p)
{
    while (p->free != NULL) {
        struct kv_chunk *c = p->free;
        p->free = c->next;
        kv_mem_free(c, c->block_size, KV_MEM_CLIENT_OUTPUT);
    }
    p->count = 0;
}

static void init_chunk(struct kv_chunk *c, size_t block_size)
{
    *c = (struct kv_chunk){
        .data = (char *)(c + 1), .capacity = block_size - sizeof(*c), .block_size = block_size};
}

static struct kv_chunk *chunk_take(struct kv_out *o, size_t space)
{
    struct kv_chunk *c;
    if (space <= CHUNK_SPACE && o->pool->free != NULL) {
        c = o->pool->free;
        o->pool->free = c->next;
        o->pool->count--;
    } else {
        size_t size = KV_MAX(space + sizeof(*c), (size_t)KV_CHUNK_BYTES);
        c = kv_mem_alloc(size, KV_MEM_CLIENT_OUTPUT);
        c->block_size = size;
    }
    init_chunk(c, c->block_size);
    return c;
}

static void chunk_drop(struct kv_out *o, struct kv_chunk *c)
{
    if (c->holder != NULL)
        c->release(c->holder);
    if (c->block_size == KV_CHUNK_BYTES && o->pool->count < KV_CHUNK_POOL_MAX) {
        c->next = o->pool->free;
        o->pool->free = c;
        o->pool->count++;
        return;
    }
    kv_mem_free(c, c->block_size, KV_MEM_CLIENT_OUTPUT);
}

/* Memory that a chunk stands for: its block, and what a reference keeps alive. */
static size_t chunk_held(const struct kv_chunk *c)
{
    return c->block_size + (c->holder != NULL ? c->capacity : 0);
}

void kv_out_init(struct kv_out *o, struct kv_chunk_pool *pool)
{
    memset(o, 0, sizeof(*o));
    o->pool = pool;
    o->resp = 2;
}

void kv_out_settle(struct kv_out *o)
{
    if (o->tail != NULL && o->pos != NULL)
        o->tail->len = (size_t)(o->pos - o->tail->data);
}

static void open_tail(struct kv_out *o)
{
    o->pos = o->tail->data + o->tail->len;
    o->end = o->tail->data + o->tail->capacity;
}

/* Closes the open chunk: its bytes count as sealed. */
static void seal_tail(struct kv_out *o)
{
    if (o->tail == NULL)
        return;
    kv_out_settle(o);
    o->sealed_bytes += o->tail->len - o->tail->sent;
    o->pos = o->end = NULL;
}

static void link_tail(struct kv_out *o, struct kv_chunk *c)
{
    if (o->tail != NULL)
        o->tail->next = c;
    else
        o->head = c;
    o->tail = c;
    o->chunk_count++;
    o->chunk_bytes += chunk_held(c);
}

void kv_out_grow(struct kv_out *o, size_t need)
{
    KV_ASSERT(need <= CHUNK_SPACE);
    seal_tail(o);
    struct kv_chunk *c = chunk_take(o, need);
    link_tail(o, c);
    open_tail(o);
}

void kv_out_reserve_lean(struct kv_out *o, size_t need)
{
    if (KV_LIKELY((size_t)(o->end - o->pos) >= need))
        return;
    seal_tail(o);
    /* As much as the output holds already, so that long ones have few chunks. */
    size_t size = KV_MAX(need + sizeof(struct kv_chunk), (size_t)LEAN_BYTES);
    size = KV_MAX(size, KV_MIN(o->chunk_bytes, (size_t)KV_CHUNK_BYTES));
    size = kv_mem_block_size(size);
    struct kv_chunk *c;
    if (size == KV_CHUNK_BYTES) {
        c = chunk_take(o, need);
    } else {
        c = kv_mem_alloc(size, KV_MEM_CLIENT_OUTPUT);
        init_chunk(c, size);
    }
    link_tail(o, c);
    open_tail(o);
}

void kv_out_append(struct kv_out *o, const void *bytes, size_t len)
{
    const char *p = bytes;
    while (len > 0) {
        if (o->pos == o->end)
            kv_out_grow(o, 1);
        size_t n = KV_MIN(len, (size_t)(o->end - o->pos));
        memcpy(o->pos, p, n);
        o->pos += n;
        p += n;
        len -= n;
    }
}

void kv_out_append_ref(struct kv_out *o, const char *bytes, size_t len, void *holder,
                       void (*release)(void *), size_t held_size)
{
    KV_ASSERT(holder != NULL);
    KV_DASSERT(held_size >= len);
    seal_tail(o);
    struct kv_chunk *c = kv_mem_alloc(sizeof(*c), KV_MEM_CLIENT_OUTPUT);
    *c = (struct kv_chunk){.data = (char *)(uintptr_t)bytes,
                           .len = len,
                           .capacity = held_size,
                           .holder = holder,
                           .release = release,
                           .block_size = sizeof(*c)};
    link_tail(o, c);
    /* pos stays NULL: the reference is the tail until the next append opens a buffer. */
}

size_t kv_out_pending(const struct kv_out *o)
{
    if (o->tail == NULL)
        return 0;
    size_t tail_len = o->pos != NULL ? (size_t)(o->pos - o->tail->data) : o->tail->len;
    return o->sealed_bytes + tail_len - o->tail->sent;
}

struct kv_out_mark kv_out_mark(struct kv_out *o)
{
    kv_out_settle(o);
    return (struct kv_out_mark){o->tail, o->tail != NULL ? o->tail->len : 0, kv_out_pending(o)};
}

static void drop_chain(struct kv_out *o, struct kv_chunk *c)
{
    while (c != NULL) {
        struct kv_chunk *next = c->next;
        o->chunk_bytes -= chunk_held(c);
        o->chunk_count--;
        chunk_drop(o, c);
        c = next;
    }
}

void kv_out_rewind(struct kv_out *o, const struct kv_out_mark *m)
{
    if (m->tail == NULL) {
        kv_out_release(o);
        return;
    }
    struct kv_chunk *extra = m->tail->next;
    m->tail->next = NULL;
    drop_chain(o, extra);
    o->tail = m->tail;
    o->tail->len = m->tail_len;
    o->sealed_bytes = m->pending - (m->tail_len - m->tail->sent);
    if (m->tail->holder == NULL)
        open_tail(o);
    else
        o->pos = o->end = NULL;
}

void kv_out_release(struct kv_out *o)
{
    kv_out_settle(o);
    drop_chain(o, o->head);
    KV_ASSERT(o->chunk_count == 0);
    KV_ASSERT(o->chunk_bytes == 0);
    o->head = o->tail = NULL;
    o->pos = o->end = NULL;
    o->sealed_bytes = 0;
}

/* The token is the chunk before the place of the header. Everything appended later lies in later
 * chunks, so the header can be linked in between. */
struct kv_chunk *kv_out_deferred_begin(struct kv_out *o)
{
    if (o->tail == NULL)
        kv_out_grow(o, 1);
    struct kv_chunk *token = o->tail;
    kv_out_grow(o, 1);
    return token;
}

void kv_out_deferred_end(struct kv_out *o, struct kv_chunk *token, char type, size_t count)
{
    KV_ASSERT(token != o->tail);
    char text[32];
    int len = snprintf(text, sizeof(text), "%c%zu\r\n", type, count);
    size_t n = (size_t)len;
    if (token->holder == NULL && token->capacity - token->len >= n) {
        /* The sealed chunk before it has room: no extra chunk. */
        memcpy(token->data + token->len, text, n);
        token->len += n;
    } else {
        struct kv_chunk *c = kv_mem_alloc(sizeof(*c) + n, KV_MEM_CLIENT_OUTPUT);
        *c = (struct kv_chunk){.data = (char *)(c + 1),
                               .len = n,
                               .capacity = n,
                               .next = token->next,
                               .block_size = sizeof(*c) + n};
        memcpy(c->data, text, n);
        token->next = c;
        o->chunk_count++;
        o->chunk_bytes += chunk_held(c);
    }
    o->sealed_bytes += n;
}

void kv_out_advance(struct kv_out *o, size_t bytes)
{
    kv_out_settle(o);
    while (o->head != NULL) {
        struct kv_chunk *c = o->head;
        size_t n = KV_MIN(bytes, c->len - c->sent);
        c->sent += n;
        bytes -= n;
        if (c != o->tail)
            o->sealed_bytes -= n;
        if (c->sent < c->len)
            break;
        o->head = c->next;
        o->chunk_bytes -= chunk_held(c);
        o->chunk_count--;
        if (c == o->tail) {
            o->tail = NULL;
            o->pos = o->end = NULL;
        }
        chunk_drop(o, c);
    }
    KV_ASSERT(bytes == 0);
}
