/* The journal of an append-only log: a write-ahead ring that makes syncs cheap.
 *
 * Why. A file that grows takes a commit of the file system's own journal with each sync; a file
 * whose blocks were written before takes the data alone, a quarter of the time. So with
 * `appendfsync always` a group of commands is written to the incr file as ever, by a plain write,
 * and once more into this ring, which is synced. The incr file is synced in the background, at the
 * latest when half of the ring is in use.
 *
 * Terms
 *   file       the incr file that records are for, by its number in the manifest
 *   record     bytes of the file and their offset in it, with a checksum; begins at a sector
 *   durable    offset: the file alone has everything before it
 *   point      a place in file and ring, taken before a sync of the file begins
 *   tail       what is newer is needed: records behind the newest record's durable offset
 *
 * After a process has died the file is whole, since the system has its bytes. After a crash of the
 * machine its end may be missing or hold zeros: the ring has what was acknowledged, and
 * kv_journal_read and kv_journal_apply write it back.
 *
 * Never into a wrong file, and never old bytes:
 * - A journal is made anew, filled with zeros, with a random id that each record repeats. Records
 *   are numbered. What a record says counts only from the newest one backwards without a hole.
 * - The newest record names the file and how much of it is durable, with a checksum of the last
 *   bytes before that. A file that is shorter, or has others there, is not touched.
 * - Behind that the file must agree with the records wherever it has bytes other than zero.
 * - Space is used again only after a record that declares its content needless is on disk, so a
 *   torn record never destroys what the newest whole one relies on.
 *
 * Threads: a journal belongs to one thread at a time. Memory: one buffer of the longest record. */
#ifndef KV_PERSIST_JOURNAL_H
#define KV_PERSIST_JOURNAL_H

#include "base/err.h"
#include "base/slice.h"
#include "persist/manifest.h"

#define KV_JOURNAL_SUFFIX ".journal" /* behind the name of the log */
#define KV_JOURNAL_PATH 4096         /* bytes of a path, terminator included */
#define KV_JOURNAL_RING ((uint64_t)32 << 20)
#define KV_JOURNAL_RING_MIN ((uint64_t)64 << 10)
#define KV_JOURNAL_RING_MAX ((uint64_t)1 << 30)

struct kv_journal;

struct kv_journal_point {
    uint64_t seq;       /* of the file; 0: no point */
    uint64_t offset;    /* in the file: all before it was written when the point was taken */
    uint64_t head;      /* ring: records before it are for what lies before `offset` */
    uint64_t check;     /* of the bytes before `offset` */
    uint32_t check_len; /* how many they are */
};

/* --- writing --- */

/* Makes folder/name.journal in place of an older one, whose content is needed no more: a temporary
 * file, written and synced, takes the name. `ring` is its size, a multiple of 4096. Takes as long
 * as writing and syncing that much. KV_ERR_IO: errno, nothing is left of it. */
enum kv_err kv_journal_create(const char *folder, const char *name, uint64_t ring,
                              struct kv_journal **made) KV_MUST_CHECK;

/* Closes it; the file stays, unless it is to be removed because it is needed no more. */
void kv_journal_destroy(struct kv_journal *j, bool remove);

/* Writes and syncs a record: `bytes` were written at `offset` of file `seq`.
 * KV_ERR_LIMIT: it cannot be taken, and nothing has happened: there is no room, it is too long, or
 * bytes before it are neither in the ring nor durable. The file is to be synced then.
 * KV_ERR_IO: errno; what the ring holds of it is unknown, and it must not be used again. */
enum kv_err kv_journal_append(struct kv_journal *j, uint64_t seq, uint64_t offset,
                              struct kv_slice bytes) KV_MUST_CHECK;

/* Takes a point before the file is synced; `fd` is read from. */
struct kv_journal_point kv_journal_point(const struct kv_journal *j, uint64_t seq, int fd,
                                         uint64_t offset);
/* That sync has succeeded. */
void kv_journal_reached(struct kv_journal *j, const struct kv_journal_point *point);

/* True when so much of the ring is needed that the file should be synced now. */
bool kv_journal_is_filling(const struct kv_journal *j);

/* --- after a crash --- */

struct kv_journal_piece {
    uint64_t offset; /* in the file */
    const char *bytes;
    uint32_t len;
};

struct kv_journal_tail {
    char *image; /* the file; owned */
    size_t image_len;
    struct kv_journal_piece *pieces; /* owned; in order, without a hole */
    size_t count, capacity;          /* 0: no record was written */
    uint64_t seq, durable, end;      /* file; offsets in it */
    uint64_t check;
    uint32_t check_len;
    const char *fault; /* of KV_ERR_SYNTAX */
};

/* Reads a journal. KV_ERR_NOTFOUND: there is none. KV_ERR_SYNTAX: *fault says why. KV_ERR_IO,
 * KV_ERR_NOMEM. Nothing is to be released on failure. */
enum kv_err kv_journal_read(const char *path, struct kv_journal_tail *t) KV_MUST_CHECK;
void kv_journal_tail_release(struct kv_journal_tail *t);

/* Compares the file with the tail, and writes back what it lacks (`write`) and syncs it; *lacking:
 * how many bytes that are, up to the tail's end. `fd` is open for reading and writing, not for
 * appending. May be done again at any time. KV_ERR_SYNTAX: the file is another one or was changed;
 * t->fault says how, nothing was written. KV_ERR_IO: errno, or the file ended meanwhile. */
enum kv_err kv_journal_apply(struct kv_journal_tail *t, int fd, bool write,
                             uint64_t *lacking) KV_MUST_CHECK;

struct kv_journal_outcome {
    const struct kv_manifest_file *file; /* of the manifest; NULL: the log needs nothing of it */
    uint64_t lacking_bytes;              /* that the file lacked, or lacks */
    const char *fault;                   /* of KV_ERR_SYNTAX */
};

/* Both for the journal of a log, folder/name.journal. `write`: mends and syncs the file and then
 * removes the journal, so that its end may be cut off and written to again. KV_ERR_NOTFOUND: there
 * is no journal. KV_ERR_IO: errno. KV_ERR_NOMEM. On failure the journal is still there. */
enum kv_err kv_journal_recover(const char *folder, const char *name, const struct kv_manifest *m,
                               bool write, struct kv_journal_outcome *out) KV_MUST_CHECK;

#endif
