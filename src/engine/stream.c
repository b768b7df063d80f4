/* The change stream: see the header for reservation, publishing and space.
 *
 * Lines are collected per worker in a buffer that keeps its capacity (up to a bound), with SELECT
 * lines where the database changes inside the buffer. Only whether the first line needs a SELECT
 * depends on what other workers wrote before; that is decided inside the compare-and-swap loop,
 * since the head word carries the stream's database beside its offset.
 *
 * A reader keeps its own offset and copies under the stream's mutex; the mutex is there for growth
 * of the ring, which happens behind the gate and is rare, so readers and writers never meet at it.
 */
#include "engine/stream.h"
#include "engine/worker.h"
#include <errno.h>
#include <stdio.h>
#include <time.h>

#define STREAM_MARGIN 4096 /* bytes that a worker may need beyond its estimate: expiry, SELECT */
#define LINE_OVERHEAD 256  /* bytes that a command's deterministic form may add */
#define BUFFER_KEEP (256 * 1024) /* capacity that a worker's buffer keeps */
#define SELECT_MAX 40            /* bytes of a SELECT line */

void kv_stream_init(struct kv_stream *s)
{
    memset(s, 0, sizeof(*s));
    kv_mutex_init(&s->mutex, KV_RANK_STREAM);
    for (int i = 0; i < KV_STREAM_READERS_MAX; i++)
        sem_init(&s->readers[i].wake, 0, 0);
}

void kv_stream_release(struct kv_stream *s)
{
    kv_mem_free(s->ring, s->size, KV_MEM_STREAM);
    for (int i = 0; i < KV_STREAM_READERS_MAX; i++)
        sem_destroy(&s->readers[i].wake);
    kv_mutex_release(&s->mutex);
}

/* Connections that wait for space try again. */
static void wake_waiting(struct kv_engine *e)
{
    for (uint32_t i = 0; i < e->worker_count; i++)
        kv_inbox_post(e->workers[i], KV_MSG_STREAM_SPACE, 0, 0, NULL);
}

/* Offset of the slowest reader; writers may fill up to `size` bytes beyond it. */
static uint64_t slowest_reader(struct kv_stream *s, uint64_t head)
{
    uint64_t slowest = head;
    for (int i = 0; i < KV_STREAM_READERS_MAX; i++) {
        struct kv_stream_reader *r = &s->readers[i];
        if (!atomic_load(&r->open) || atomic_load(&r->lapsed))
            continue;
        uint64_t offset = atomic_load(&r->offset);
        slowest = KV_MIN(slowest, offset);
    }
    return slowest;
}

static uint64_t bytes_needed(size_t input_bytes, uint32_t commands)
{
    return (uint64_t)input_bytes * 2 + (uint64_t)commands * LINE_OVERHEAD + STREAM_MARGIN;
}

bool kv_stream_too_small(struct kv_engine *e, size_t input_bytes, uint32_t commands)
{
    struct kv_stream *s = &e->stream;
    return kv_stream_active(s) && bytes_needed(input_bytes, commands) > atomic_load(&s->size) / 4;
}

/* Promises are read before the head: what was settled before we looked is in the head we see, and
 * what is published but not settled counts twice rather than not at all. */
static bool fits(struct kv_stream *s, uint64_t promised, uint64_t needed)
{
    uint64_t head = atomic_load(&s->head) >> KV_STREAM_DB_BITS;
    return head - slowest_reader(s, head) + promised + needed <= atomic_load(&s->size);
}

bool kv_stream_promise(struct kv_worker *w, size_t input_bytes, uint32_t commands)
{
    struct kv_stream *s = &w->engine->stream;
    uint64_t needed = bytes_needed(input_bytes, commands);
    KV_ASSERT(w->stream_promised == 0);
    for (;;) {
        uint64_t promised = atomic_load(&s->promised);
        if (!fits(s, promised, needed))
            return !kv_stream_active(s);
        if (!atomic_compare_exchange_strong(&s->promised, &promised, promised + needed))
            continue;
        w->stream_promised = needed;
        /* The sum may be the same again after one promise was written and another one given. */
        if (KV_LIKELY(fits(s, atomic_load(&s->promised), 0)))
            return true;
        kv_stream_settle(w);
    }
}

/* The last promise that goes may be what others wait for, when the readers have read everything. */
void kv_stream_settle(struct kv_worker *w)
{
    struct kv_stream *s = &w->engine->stream;
    uint64_t own = w->stream_promised;
    if (KV_LIKELY(own == 0))
        return;
    w->stream_promised = 0;
    uint64_t before = atomic_fetch_sub(&s->promised, own);
    KV_ASSERT(before >= own);
    if (before == own && atomic_load(&s->waiting) != 0 && atomic_exchange(&s->waiting, 0) != 0)
        wake_waiting(w->engine);
}

void kv_stream_grow(struct kv_engine *e, size_t input_bytes, uint32_t commands)
{
    struct kv_stream *s = &e->stream;
    uint64_t size = s->size;
    while (bytes_needed(input_bytes, commands) > size / 4)
        size *= 2;
    if (size == s->size)
        return;
    /* Without memory the ring stays: the reader that then loses bytes is told that it lapsed. */
    char *ring = kv_mem_try_alloc(size, KV_MEM_STREAM);
    if (ring == NULL)
        return;
    kv_mutex_lock(&s->mutex);
    uint64_t head = atomic_load(&s->head) >> KV_STREAM_DB_BITS;
    uint64_t keep = KV_MIN(head, s->size);
    for (uint64_t offset = head - keep; offset < head;) {
        uint64_t n = KV_MIN(head - offset, s->size - (offset & (s->size - 1)));
        n = KV_MIN(n, size - (offset & (size - 1)));
        memcpy(ring + (offset & (size - 1)), s->ring + (offset & (s->size - 1)), n);
        offset += n;
    }
    kv_mem_free(s->ring, s->size, KV_MEM_STREAM);
    s->ring = ring;
    s->size = size;
    kv_mutex_unlock(&s->mutex);
}

/* --- collecting --- */

static char *buffer_space(struct kv_stream_buffer *b, size_t len)
{
    if (b->capacity - b->len < len) {
        size_t capacity = KV_MAX(b->capacity * 2, (size_t)4096);
        while (capacity - b->len < len)
            capacity *= 2;
        b->bytes = kv_mem_realloc(b->bytes, b->capacity, capacity, KV_MEM_STREAM);
        b->capacity = capacity;
    }
    return b->bytes + b->len;
}

static size_t print_select(char *p, uint32_t db)
{
    char digits[KV_INT_TEXT_MAX];
    size_t n = kv_uint_print(db, digits);
    return (size_t)snprintf(p, SELECT_MAX, "*2\r\n$6\r\nSELECT\r\n$%zu\r\n%.*s\r\n", n, (int)n,
                            digits);
}

static void note_db(struct kv_stream_buffer *b, uint32_t db)
{
    if (b->len == 0)
        b->first_db = db;
    else if (b->last_db != db)
        b->len += print_select(buffer_space(b, SELECT_MAX), db);
    b->last_db = db;
}

void kv_stream_add(struct kv_worker *w, uint32_t db, const struct kv_slice *argv, int argc)
{
    struct kv_stream_buffer *b = &w->stream;
    KV_ASSERT(argc > 0);
    note_db(b, db);
    char *p = buffer_space(b, KV_INT_TEXT_MAX + 3);
    char *start = p;
    *p++ = '*';
    p += kv_uint_print((uint64_t)argc, p);
    *p++ = '\r';
    *p++ = '\n';
    b->len += (size_t)(p - start);
    for (int i = 0; i < argc; i++) {
        start = p = buffer_space(b, argv[i].len + KV_INT_TEXT_MAX + 5);
        *p++ = '$';
        p += kv_uint_print(argv[i].len, p);
        *p++ = '\r';
        *p++ = '\n';
        if (argv[i].len > 0)
            memcpy(p, argv[i].ptr, argv[i].len);
        p += argv[i].len;
        *p++ = '\r';
        *p++ = '\n';
        b->len += (size_t)(p - start);
    }
}

/* --- publishing --- */

static void ring_copy(struct kv_stream *s, uint64_t offset, const char *bytes, size_t len)
{
    while (len > 0) {
        uint64_t at = offset & (s->size - 1);
        size_t n = KV_MIN(len, (size_t)(s->size - at));
        memcpy(s->ring + at, bytes, n);
        offset += n;
        bytes += n;
        len -= n;
    }
}

/* The bound on what a batch writes has failed: readers that would lose bytes must start over. Who
 * waited for them need not any more. */
static KV_COLD void lapse_readers(struct kv_engine *e, uint64_t end)
{
    struct kv_stream *s = &e->stream;
    for (int i = 0; i < KV_STREAM_READERS_MAX; i++) {
        struct kv_stream_reader *r = &s->readers[i];
        if (atomic_load(&r->open) && end - atomic_load(&r->offset) > s->size)
            atomic_store(&r->lapsed, true);
    }
    if (atomic_exchange(&s->waiting, 0) != 0)
        wake_waiting(e);
}

static void empty_buffer(struct kv_stream_buffer *b)
{
    b->len = 0;
    if (b->capacity > BUFFER_KEEP) {
        kv_mem_free(b->bytes, b->capacity, KV_MEM_STREAM);
        *b = (struct kv_stream_buffer){0};
    }
}

void kv_stream_publish(struct kv_worker *w)
{
    struct kv_stream *s = &w->engine->stream;
    struct kv_stream_buffer *b = &w->stream;
    if (b->len == 0)
        return;
    /* A transaction that has written has closed the last reader as well. */
    if (KV_UNLIKELY(!kv_stream_active(s))) {
        empty_buffer(b);
        return;
    }
    char select[SELECT_MAX];
    size_t select_len = print_select(select, b->first_db);
    uint64_t head = atomic_load(&s->head);
    uint64_t start, prefix, end;
    atomic_store(&w->stream_pending, head >> KV_STREAM_DB_BITS);
    do {
        start = head >> KV_STREAM_DB_BITS;
        uint64_t db = head & ((1u << KV_STREAM_DB_BITS) - 1);
        prefix = db == b->first_db + 1 ? 0 : select_len;
        end = start + prefix + b->len;
    } while (!atomic_compare_exchange_weak(&s->head, &head,
                                           end << KV_STREAM_DB_BITS | (b->last_db + 1)));
    if (KV_UNLIKELY(end - slowest_reader(s, end) > s->size))
        lapse_readers(w->engine, end);
    ring_copy(s, start, select, prefix);
    if (KV_UNLIKELY(b->len > s->size)) {
        /* Only the tail fits; every reader has lapsed, the bytes before it are lost to all. */
        ring_copy(s, end - s->size, b->bytes + (b->len - s->size), s->size);
    } else {
        ring_copy(s, start + prefix, b->bytes, b->len);
    }
    atomic_store(&w->stream_pending, UINT64_MAX);
    w->stream_end = end;
    w->stream_wrote = true;
    kv_stat_add(&w->stats.stream_bytes, end - start);
    empty_buffer(b);
}

/* --- reading --- */

static uint64_t published_end(struct kv_engine *e)
{
    uint64_t end = atomic_load(&e->stream.head) >> KV_STREAM_DB_BITS;
    for (uint32_t i = 0; i < e->worker_count; i++) {
        uint64_t pending = atomic_load(&e->workers[i]->stream_pending);
        end = KV_MIN(end, pending);
    }
    return end;
}

struct kv_stream_reader *kv_stream_open(struct kv_engine *e)
{
    struct kv_stream *s = &e->stream;
    struct kv_stream_reader *r = NULL;
    kv_mutex_lock(&s->mutex);
    for (int i = 0; i < KV_STREAM_READERS_MAX && r == NULL; i++) {
        if (atomic_load(&s->readers[i].open))
            continue;
        r = &s->readers[i];
        r->engine = e;
        if (s->ring == NULL) {
            atomic_store(&s->size, e->options.stream_ring_bytes);
            s->ring = kv_mem_alloc(s->size, KV_MEM_STREAM);
        }
        /* A new reader starts without a database, so the next write says SELECT. */
        uint64_t offset = atomic_load(&s->head) >> KV_STREAM_DB_BITS;
        atomic_store(&s->head, offset << KV_STREAM_DB_BITS);
        atomic_store(&r->offset, offset);
        atomic_store(&r->lapsed, false);
        atomic_store(&r->stop, UINT64_MAX);
        atomic_store(&r->open, true);
        atomic_fetch_add(&s->active, 1);
    }
    kv_mutex_unlock(&s->mutex);
    return r;
}

static void copy_from_ring(const struct kv_stream *s, uint64_t offset, char *bytes, size_t len)
{
    while (len > 0) {
        uint64_t at = offset & (s->size - 1);
        size_t n = KV_MIN(len, (size_t)(s->size - at));
        memcpy(bytes, s->ring + at, n);
        bytes += n;
        offset += n;
        len -= n;
    }
}

size_t kv_stream_read(struct kv_stream_reader *r, char *bytes, size_t max)
{
    struct kv_engine *e = r->engine;
    struct kv_stream *s = &e->stream;
    kv_mutex_lock(&s->mutex);
    KV_ASSERT(atomic_load(&r->open));
    uint64_t offset = atomic_load(&r->offset);
    /* A worker may announce a start that others have passed meanwhile: never go back. */
    uint64_t end = KV_MAX(published_end(e), offset);
    /* After the end: whoever set it was alone, before anything behind it was written. */
    uint64_t stop = atomic_load(&r->stop);
    end = KV_MIN(end, stop);
    size_t total = atomic_load(&r->lapsed) ? 0 : (size_t)KV_MIN(end - offset, (uint64_t)max);
    copy_from_ring(s, offset, bytes, total);
    /* Overwritten meanwhile: what was copied may be of two times. */
    if (atomic_load(&r->lapsed))
        total = 0;
    atomic_store(&r->offset, offset + total);
    kv_mutex_unlock(&s->mutex);
    if (total > 0 && atomic_exchange(&s->waiting, 0) != 0)
        wake_waiting(e);
    return total;
}

uint64_t kv_stream_offset(const struct kv_stream_reader *r)
{
    return atomic_load(&r->offset);
}

uint64_t kv_stream_stop_here(struct kv_stream_reader *r)
{
    struct kv_stream *s = &r->engine->stream;
    kv_mutex_lock(&s->mutex);
    uint64_t offset = kv_stream_head(s);
    atomic_store(&s->head, offset << KV_STREAM_DB_BITS);
    if (atomic_load(&r->lapsed)) {
        atomic_store(&r->offset, offset);
        atomic_store(&r->lapsed, false);
    }
    atomic_store(&r->stop, offset);
    kv_mutex_unlock(&s->mutex);
    return offset;
}

bool kv_stream_stopped(const struct kv_stream_reader *r)
{
    return atomic_load(&r->stop) == atomic_load(&r->offset);
}

void kv_stream_go_on(struct kv_stream_reader *r)
{
    atomic_store(&r->stop, UINT64_MAX);
}

uint64_t kv_stream_tail(struct kv_engine *e)
{
    return kv_stream_head(&e->stream);
}

/* --- sleeping --- */

/* Whoever takes the mark away posts; the sleeper that finds it gone waits for that post. */
static void wake_reader(struct kv_stream *s, struct kv_stream_reader *r)
{
    if (atomic_exchange(&r->asleep, false)) {
        atomic_fetch_sub(&s->sleepers, 1);
        sem_post(&r->wake);
    }
}

void kv_stream_wake_readers(struct kv_engine *e)
{
    struct kv_stream *s = &e->stream;
    if (KV_LIKELY(atomic_load(&s->sleepers) == 0))
        return;
    for (int i = 0; i < KV_STREAM_READERS_MAX; i++)
        wake_reader(s, &s->readers[i]);
}

void kv_stream_wake(struct kv_stream_reader *r)
{
    atomic_store(&r->woken, true);
    wake_reader(&r->engine->stream, r);
}

void kv_stream_wait(struct kv_stream_reader *r, int timeout_ms)
{
    struct kv_stream *s = &r->engine->stream;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += timeout_ms / 1000;
    until.tv_nsec += (long)(timeout_ms % 1000) * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    atomic_store(&r->asleep, true);
    atomic_fetch_add(&s->sleepers, 1);
    int rc;
    if (!atomic_exchange(&r->woken, false) && kv_stream_head(s) == atomic_load(&r->offset)) {
        do
            rc = sem_clockwait(&r->wake, CLOCK_MONOTONIC, &until);
        while (rc != 0 && errno == EINTR);
        if (rc == 0)
            return;
    }
    if (atomic_exchange(&r->asleep, false)) {
        atomic_fetch_sub(&s->sleepers, 1);
        return;
    }
    /* Somebody has taken the mark away: the post is there or comes at once. */
    while (sem_wait(&r->wake) != 0)
        continue;
}

bool kv_stream_lapsed(const struct kv_stream_reader *r)
{
    return atomic_load(&r->lapsed);
}

void kv_stream_close(struct kv_stream_reader *r)
{
    struct kv_engine *e = r->engine;
    struct kv_stream *s = &e->stream;
    kv_mutex_lock(&s->mutex);
    KV_ASSERT(atomic_load(&r->open));
    atomic_store(&r->open, false);
    if (atomic_fetch_sub(&s->active, 1) == 1) {
        kv_mem_free(s->ring, s->size, KV_MEM_STREAM);
        s->ring = NULL;
        atomic_store(&s->size, 0);
    }
    kv_mutex_unlock(&s->mutex);
    atomic_store(&s->waiting, 0);
    wake_waiting(e);
}
