/* The threads of the append-only log: from the change stream to the disk.
 *
 * One pass: look at a finished sync; read what the stream has, up to a buffer; write it; sync if it
 * is time. A pass that found little naps for a millisecond, so that a busy server is written in
 * large pieces; one that found nothing sleeps until a worker has published. With `always` there are
 * no naps: what arrives during a sync is the next group.
 *
 * With `always` a group is written to the file and then synced in the journal (journal.h), while
 * the other thread syncs the file each second. Without a journal - it is being made, there is no
 * space for it, the file has no name yet, or the group does not follow what it has - the file is
 * synced.
 *
 * Offsets of the stream say what is done: `written` was given to the system, `synced` is on disk,
 * `file_synced` is in the file there.
 * A chunk counts as written when its last byte is; annotations (#TS) are in no offset. They are put
 * in only where the reading before stopped at a published end, which is never within a command or a
 * transaction, and carry the time before that reading: all that follows is younger.
 *
 * At the reader's stop the next incr file is gone on with. What is in the old one is synced first,
 * or the order of syncs would let the newer file be durable before the older.
 *
 * The file is opened for appending: after a failed write it is cut back to what it had, and where
 * that fails too the rest is appended.
 *
 * Rejected: writing straight from the ring. A ring that grows moves, behind the gate, which nobody
 * may keep closed during a write. */
#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "engine/commit.h"
#include "persist/aof_priv.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define NAP_NS 1000000 /* after a pass that found less than NAP_BYTES */
#define NAP_BYTES (64 * 1024)
#define IDLE_MS 1000        /* longest sleep */
#define SYNC_MS 1000        /* everysec */
#define LATE_MS 2000        /* a sync that lasts longer is counted as delaying */
#define RETRY_MS 1000       /* after a failed write */
#define MAKE_RETRY_MS 60000 /* after a journal could not be made */
#define COMPLAIN_MS 30000   /* between two lines about failed writes */

int64_t kv_aof_now_ms(void)
{
    return (int64_t)(kv_clock_mono_ns() / 1000000);
}

static enum kv_appendfsync mode_of(struct kv_aof *a)
{
    return (enum kv_appendfsync)atomic_load_explicit(&a->fsync, memory_order_relaxed);
}

/* --- outcomes --- */

/* What was synced counts, unless something before it is missing. */
static void advance(struct kv_aof *a, uint64_t offset)
{
    atomic_store(&a->synced, offset);
    if (!atomic_load(&a->gap))
        kv_commit_advance(a->engine, offset);
}

/* The other thread has nothing to do, and what it did was looked at. */
static bool is_idle(struct kv_aof *a)
{
    return !atomic_load(&a->sync.busy) && !a->sync.done;
}

static void await_idle(struct kv_aof *a)
{
    const struct timespec nap = {.tv_nsec = NAP_NS / 10};
    while (atomic_load(&a->sync.busy))
        nanosleep(&nap, NULL);
}

/* `remove`: the file itself has everything that was acknowledged. */
static void close_journal(struct kv_aof *a, bool remove)
{
    atomic_store(&a->journaled, false);
    if (a->journal != NULL)
        kv_journal_destroy(a->journal, remove);
    a->journal = NULL;
}

/* Closes the incr file; what comes is dropped until a fresh base is begun. Until then the journal
 * may be all that has what was acknowledged: it stays on disk. */
static void drop(struct kv_aof *a)
{
    struct kv_aof_sync *s = &a->sync;
    await_idle(a);
    if (s->done && s->make && s->made != NULL)
        kv_journal_destroy(s->made, true);
    s->done = false;
    close_journal(a, false);
    a->group = kv_slice(NULL, 0);
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
    a->len = a->sent = 0;
    a->retry_ms = 0;
    a->written = a->file_synced = kv_stream_offset(a->reader);
}

/* The log has lost something. */
static KV_COLD void lose(struct kv_aof *a, const char *what, int error)
{
    kv_log(
        KV_LOG_WARNING,
        "%s: %s. Writes are refused until a fresh base of the append only log is written; what is "
        "read until then may be missing after a crash.",
        what, strerror(error));
    atomic_store(&a->lost, true);
    atomic_store(&a->gap, true);
    atomic_store(&a->write_error, error);
    kv_commit_deny(a->engine, error);
    kv_commit_fail(a->engine);
    drop(a);
}

/* --- journal and file --- */

/* A group is synced in the journal once the incr file has a name that records can say. */
static bool wants_journal(struct kv_aof *a)
{
    return mode_of(a) == KV_APPENDFSYNC_ALWAYS && !atomic_load(&a->gap) && a->fd >= 0 &&
           atomic_load(&a->file_seq) != 0 && !atomic_load(&a->stopping);
}

/* What a sync of the file that begins now will have made durable. */
static struct kv_journal_point point_here(struct kv_aof *a)
{
    if (a->journal == NULL)
        return (struct kv_journal_point){0};
    return kv_journal_point(a->journal, atomic_load(&a->file_seq), a->fd,
                            atomic_load(&a->file_bytes));
}

static void file_reached(struct kv_aof *a, uint64_t offset, const struct kv_journal_point *point)
{
    a->file_synced = KV_MAX(a->file_synced, offset);
    if (a->journal != NULL && point->seq != 0)
        kv_journal_reached(a->journal, point);
    advance(a, KV_MAX(offset, atomic_load(&a->synced)));
}

/* --- the thread for syncs --- */

static void make_journal(struct kv_aof *a)
{
    struct kv_aof_sync *s = &a->sync;
    s->made = NULL;
    s->error =
        kv_journal_create(a->folder, a->name, KV_JOURNAL_RING, &s->made) == KV_OK ? 0 : errno;
}

static void sync_handed(struct kv_aof_sync *s)
{
    s->error = kv_file_sync(s->fd) == KV_OK ? 0 : errno;
    if (s->close)
        close(s->fd);
}

void *kv_aof_sync_thread(void *aof)
{
    struct kv_aof *a = aof;
    struct kv_aof_sync *s = &a->sync;
    for (;;) {
        while (sem_wait(&s->ready) != 0)
            continue;
        if (!atomic_load(&s->busy))
            break;
        if (s->make)
            make_journal(a);
        else
            sync_handed(s);
        s->done = true;
        atomic_store(&s->busy, false);
        kv_stream_wake(a->reader);
    }
    kv_mem_thread_exit();
    return NULL;
}

/* What it is to do stands in `sync`. It is idle. */
static void hand_over(struct kv_aof *a)
{
    struct kv_aof_sync *s = &a->sync;
    KV_ASSERT(!atomic_load(&s->busy));
    KV_ASSERT(!s->done);
    s->start_ms = kv_aof_now_ms();
    atomic_store(&s->busy, true);
    sem_post(&s->ready);
}

static void submit_sync(struct kv_aof *a, int fd, bool and_close)
{
    struct kv_aof_sync *s = &a->sync;
    s->make = false;
    s->fd = fd;
    s->close = and_close;
    s->offset = a->written;
    s->point = point_here(a);
    hand_over(a);
    a->synced_ms = s->start_ms;
}

static void submit_make(struct kv_aof *a)
{
    a->sync.make = true;
    hand_over(a);
}

/* A journal was made, or could not be. */
static void take_made(struct kv_aof *a)
{
    struct kv_aof_sync *s = &a->sync;
    KV_ASSERT(a->journal == NULL);
    if (s->made == NULL) {
        a->make_ms = kv_aof_now_ms() + MAKE_RETRY_MS;
        if (!a->make_failed)
            kv_log(KV_LOG_WARNING,
                   "Can't make the journal of the append only log: %s. The log itself is synced "
                   "for each group of commands, which takes longer.",
                   strerror(s->error));
        a->make_failed = true;
    } else if (wants_journal(a)) {
        a->journal = s->made;
        a->make_failed = false;
    } else {
        kv_journal_destroy(s->made, true);
    }
    s->made = NULL;
}

/* Looks at the result of the other thread, if there is one. */
static void collect(struct kv_aof *a)
{
    struct kv_aof_sync *s = &a->sync;
    if (atomic_load(&s->busy) || !s->done)
        return;
    s->done = false;
    if (s->make)
        take_made(a);
    else if (s->error == 0)
        file_reached(a, s->offset, &s->point);
    else if (!s->close || !atomic_load(&a->gap)) /* in a gap older files count for nothing */
        lose(a, "Can't fsync the append only file", s->error);
}

static void await_sync(struct kv_aof *a)
{
    await_idle(a);
    collect(a);
}

/* --- when to sync --- */

/* The file, at once, in this thread. */
static void sync_now(struct kv_aof *a)
{
    if (a->fd < 0 || a->written == a->file_synced)
        return;
    struct kv_journal_point point = point_here(a);
    a->synced_ms = kv_aof_now_ms();
    if (kv_file_sync(a->fd) == KV_OK)
        file_reached(a, a->written, &point);
    else
        lose(a, "Can't fsync the append only file", errno);
}

static void sync_each_second(struct kv_aof *a)
{
    int64_t now_ms = kv_aof_now_ms();
    if (now_ms - a->synced_ms < SYNC_MS &&
        !(a->journal != NULL && kv_journal_is_filling(a->journal)))
        return;
    if (is_idle(a)) {
        submit_sync(a, a->fd, false);
    } else if (now_ms - a->sync.start_ms >= LATE_MS && now_ms - a->delayed_ms >= SYNC_MS) {
        a->delayed_ms = now_ms;
        atomic_fetch_add(&a->delayed_syncs, 1);
    }
}

/* The group goes into the journal. False: it cannot, the file is to be synced. */
static bool sync_journal(struct kv_aof *a)
{
    enum kv_err err = KV_ERR_LIMIT;
    if (a->journal != NULL && a->group.len > 0)
        err = kv_journal_append(a->journal, atomic_load(&a->file_seq), a->group_offset, a->group);
    atomic_store_explicit(&a->journaled, err == KV_OK, memory_order_relaxed);
    if (err == KV_ERR_LIMIT)
        return false;
    if (err == KV_OK)
        advance(a, a->written);
    else
        lose(a, "Can't write the journal of the append only log", errno);
    return true;
}

/* Replies wait. Not for a journal that is being made, though. */
static void sync_group(struct kv_aof *a)
{
    if (a->written != atomic_load(&a->synced) && !sync_journal(a)) {
        if (!a->sync.make)
            await_sync(a); /* of the second before the mode changed, or of the file before */
        sync_now(a);
    }
    if (a->journal != NULL && a->written != a->file_synced)
        sync_each_second(a);
    else if (wants_journal(a) && a->journal == NULL && is_idle(a) && kv_aof_now_ms() >= a->make_ms)
        submit_make(a);
}

/* Replies wait no more, since the mode has changed: the file gets what the journal has. */
static void give_up_journal(struct kv_aof *a)
{
    await_sync(a);
    sync_now(a);
    close_journal(a, true); /* unless that failed: then it is closed already */
}

static void sync_if_due(struct kv_aof *a)
{
    enum kv_appendfsync mode = mode_of(a);
    if (a->fd < 0 || a->len != 0)
        return;
    if (mode == KV_APPENDFSYNC_ALWAYS && atomic_load(&a->lazy_rewrite) &&
        atomic_load(&a->rewriting)) {
        if (!atomic_load(&a->gap))
            kv_commit_advance(a->engine, a->written); /* as the directive wants it */
        return;
    }
    if (mode == KV_APPENDFSYNC_ALWAYS) {
        sync_group(a);
        return;
    }
    if (KV_UNLIKELY(a->journal != NULL))
        give_up_journal(a);
    if (a->fd < 0 || a->written == a->file_synced ||
        (atomic_load(&a->lazy_rewrite) && atomic_load(&a->rewriting)))
        return;
    if (mode == KV_APPENDFSYNC_EVERYSEC)
        sync_each_second(a);
    else if (kv_commit_wanted(a->engine) && is_idle(a))
        submit_sync(a, a->fd, false);
}

/* --- writing --- */

/* A write failed after `put` bytes. */
static KV_COLD void write_failed(struct kv_aof *a, size_t put, int error)
{
    uint64_t size = atomic_load(&a->file_bytes);
    int64_t now_ms = kv_aof_now_ms();
    /* Half a command must not stay, neither in front of what comes nor at the end. */
    bool cut = put == 0 || kv_file_truncate(a->fd, size) == KV_OK;
    if (mode_of(a) == KV_APPENDFSYNC_ALWAYS) {
        lose(a, "Error writing to the AOF file", error);
        return;
    }
    if (now_ms - a->complained_ms >= COMPLAIN_MS || a->complained_ms == 0) {
        a->complained_ms = now_ms;
        kv_log(KV_LOG_WARNING, "Error writing to the AOF file: %s", strerror(error));
    }
    if (!cut) {
        kv_log(KV_LOG_WARNING, "Could not remove short write from the append only file: %s",
               strerror(errno));
        a->sent += put;
        atomic_store(&a->file_bytes, size + put);
    }
    atomic_store(&a->write_error, error);
    kv_commit_deny(a->engine, error);
    a->retry_ms = now_ms + RETRY_MS;
}

static void write_chunk(struct kv_aof *a)
{
    size_t put;
    int64_t now_ms = a->retry_ms != 0 ? kv_aof_now_ms() : 0;
    if (now_ms < a->retry_ms && !atomic_load(&a->stopping))
        return;
    enum kv_err err = kv_file_write_count(a->fd, a->buf + a->sent, a->len - a->sent, &put);
    if (err != KV_OK) {
        write_failed(a, put, errno);
        return;
    }
    a->group = kv_slice(a->buf + a->sent, put);
    a->group_offset = atomic_fetch_add(&a->file_bytes, put);
    a->len = a->sent = 0;
    a->written = kv_stream_offset(a->reader);
    if (KV_UNLIKELY(a->retry_ms != 0)) {
        a->retry_ms = a->complained_ms = 0;
        kv_log(KV_LOG_WARNING, "AOF write error looks solved, writes are accepted again.");
        atomic_store(&a->write_error, 0);
        kv_commit_deny(a->engine, 0);
    }
}

/* The line with the time, when a second has begun since the last one. */
static size_t print_note(struct kv_aof *a, char note[KV_AOF_NOTE_MAX])
{
    if (!atomic_load_explicit(&a->timestamps, memory_order_relaxed) || !a->at_boundary ||
        a->seen_s == a->note_s || a->seen_s == 0)
        return 0;
    a->note_s = a->seen_s;
    return (size_t)snprintf(note, KV_AOF_NOTE_MAX, "#TS:%lld\r\n", (long long)a->note_s);
}

/* Reads a chunk; false: there is none. */
static bool read_chunk(struct kv_aof *a)
{
    char note[KV_AOF_NOTE_MAX];
    int64_t now_s = kv_clock_wall_ms() / 1000;
    size_t n = kv_stream_read(a->reader, a->buf + KV_AOF_NOTE_MAX, KV_AOF_BUFFER);
    if (kv_stream_lapsed(a->reader) && !atomic_load(&a->gap))
        lose(a, "The change stream overtook the append only log", ENOBUFS);
    if (n == 0)
        a->at_boundary = true;
    if (n > 0)
        a->group = kv_slice(NULL, 0);
    if (n > 0 && a->fd >= 0) {
        size_t note_len = print_note(a, note);
        a->sent = KV_AOF_NOTE_MAX - note_len;
        memcpy(a->buf + a->sent, note, note_len);
        a->len = KV_AOF_NOTE_MAX + n;
        a->at_boundary = n < KV_AOF_BUFFER;
    } else if (n > 0) {
        a->written = kv_stream_offset(a->reader);
    }
    a->seen_s = now_s;
    return n > 0;
}

/* The file begins, and nothing of it needs the journal: the one before is durable. */
static void follow_file(struct kv_aof *a)
{
    if (a->journal == NULL || a->fd < 0 || atomic_load(&a->file_seq) == 0)
        return;
    struct kv_journal_point point = point_here(a);
    kv_journal_reached(a->journal, &point);
}

/* Goes on with the next incr file. */
static void switch_file(struct kv_aof *a)
{
    await_sync(a);
    if (a->fd >= 0 && mode_of(a) == KV_APPENDFSYNC_ALWAYS && !atomic_load(&a->lazy_rewrite))
        sync_now(a);
    if (a->fd >= 0) {
        submit_sync(a, a->fd, true);
        a->fd = -1;
        /* Before anything goes into the next file: a crash of the machine may cut off the end of a
         * log, and a hole in its middle would make it worthless. */
        if (!atomic_load(&a->lazy_rewrite) || a->journal != NULL)
            await_sync(a);
    }
    a->written = kv_stream_offset(a->reader);
    a->group = kv_slice(NULL, 0);
    a->at_boundary = true;
    a->note_s = 0;
    atomic_fetch_add(&a->closed_bytes, atomic_exchange(&a->file_bytes, 0));
    atomic_store(&a->file_seq, atomic_load(&a->next_seq));
    atomic_store(&a->lost, false);
    a->fd = atomic_exchange(&a->next_fd, -1);
    follow_file(a);
    kv_stream_go_on(a->reader);
}

/* --- passes --- */

/* Milliseconds until something is to be done although nothing is published. */
static int idle_ms(struct kv_aof *a)
{
    int64_t now_ms = kv_aof_now_ms(), until = now_ms + IDLE_MS;
    if (a->retry_ms != 0)
        until = KV_MIN(until, a->retry_ms);
    if (a->fd >= 0 && a->written != a->file_synced &&
        (a->journal != NULL || mode_of(a) == KV_APPENDFSYNC_EVERYSEC))
        until = KV_MIN(until, KV_MAX(a->synced_ms + SYNC_MS, now_ms + 1));
    return (int)KV_MAX(until - now_ms, (int64_t)1);
}

/* True when there may be more at once. */
static bool pass(struct kv_aof *a, bool *small)
{
    collect(a);
    if (KV_UNLIKELY(atomic_exchange(&a->dropping, false))) {
        await_sync(a);
        drop(a);
    }
    bool found = a->len == 0 && read_chunk(a);
    *small = a->len < NAP_BYTES;
    if (a->len > 0)
        write_chunk(a);
    if (a->len == 0 && kv_stream_stopped(a->reader)) {
        switch_file(a);
        found = true;
    }
    sync_if_due(a);
    return found;
}

/* Everything is written, or cannot be: syncs and closes. */
static void finish(struct kv_aof *a)
{
    if (a->len > 0 && atomic_load(&a->write_error) != 0)
        kv_log(KV_LOG_WARNING, "The last changes could not be written to the AOF file: %s",
               strerror(atomic_load(&a->write_error)));
    await_sync(a);
    if (a->fd >= 0 && a->len == 0)
        sync_now(a);
    if (a->fd >= 0 && a->len == 0)
        close_journal(a, true);
    close_journal(a, false);
    if (a->fd >= 0)
        close(a->fd);
    a->fd = -1;
}

void *kv_aof_thread(void *aof)
{
    const struct timespec nap = {.tv_nsec = NAP_NS}, long_nap = {.tv_nsec = 20 * NAP_NS};
    struct kv_aof *a = aof;
    bool small;
    while (!atomic_load(&a->stopping)) {
        bool found = pass(a, &small);
        if (!found || a->retry_ms != 0) {
            /* A chunk that cannot be written is not made longer: no need to hear of more. */
            if (a->retry_ms != 0)
                nanosleep(&long_nap, NULL);
            else
                kv_stream_wait(a->reader, idle_ms(a));
        } else if (small && mode_of(a) != KV_APPENDFSYNC_ALWAYS) {
            nanosleep(&nap, NULL);
        }
    }
    while (pass(a, &small) && a->retry_ms == 0)
        continue;
    finish(a);
    kv_mem_thread_exit();
    return NULL;
}
