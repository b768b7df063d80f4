/* Files whose content must survive: replacing one whole, and the steps of which logs and snapshots
 * are made. All of them go on after EINTR and leave errno of the step that failed.
 *
 * Test builds (KV_DEBUG) can make the n-th call of a kind fail: kv_file_fail. Functions say which
 * kind they are.
 *
 * Threads: any. Memory: paths are built on the stack, nothing is allocated. */
#ifndef KV_BASE_FILE_H
#define KV_BASE_FILE_H

#include "base/err.h"
#include "base/slice.h"

/* Replaces `path` by `content`: temporary file in the same folder, fsync, rename, fsync of the
 * folder. On failure (errno set) the old file is intact and the temporary file removed, unless only
 * the last step failed: kv_file_replace_told. [open, write, sync, rename, sync] */
enum kv_err kv_file_replace(const char *path, struct kv_slice content, unsigned mode) KV_MUST_CHECK;

/* The same. On failure *visible tells whether the new content is under the name all the same; then
 * a crash of the machine may bring either back. */
enum kv_err kv_file_replace_told(const char *path, struct kv_slice content, unsigned mode,
                                 bool *visible) KV_MUST_CHECK;

/* Opens with open(2)'s flags, close-on-exec added. [open] */
enum kv_err kv_file_open(const char *path, int flags, unsigned mode, int *fd) KV_MUST_CHECK;

/* Writes all bytes to fd, going on after short writes. [write] */
enum kv_err kv_file_write_all(int fd, const void *bytes, size_t len) KV_MUST_CHECK;

/* The same; *written tells how many are there, on failure as well. [write] */
enum kv_err kv_file_write_count(int fd, const void *bytes, size_t len,
                                size_t *written) KV_MUST_CHECK;

/* The same at an offset of the file, which is not opened for appending. What was there may be
 * replaced in part when it fails. [write] */
enum kv_err kv_file_write_at(int fd, const void *bytes, size_t len, uint64_t offset) KV_MUST_CHECK;

/* Reads `len` bytes at an offset. Fewer are there: KV_ERR_IO with errno 0. */
enum kv_err kv_file_read_at(int fd, void *bytes, size_t len, uint64_t offset) KV_MUST_CHECK;

/* Makes the content of a file durable, and its length. [sync] */
enum kv_err kv_file_sync(int fd) KV_MUST_CHECK;

/* Between writes to a file that kv_file_sync ends: begins to write out these bytes and waits until
 * as many before them are out, so that the end has little left to do and the disk's queue stays
 * short for others. Promises nothing. KV_ERR_IO: the disk failed; a file system that cannot do this
 * is none. [sync] */
enum kv_err kv_file_sync_step(int fd, uint64_t offset, uint64_t bytes) KV_MUST_CHECK;

/* Makes names in the folder of `path` durable: what was made, renamed or removed there. [sync] */
enum kv_err kv_file_sync_folder(const char *path) KV_MUST_CHECK;

/* Renames within a file system, over what is there; durable when it returns. On failure of the last
 * step the new name is visible already. [rename, sync] */
enum kv_err kv_file_rename(const char *from, const char *to) KV_MUST_CHECK;

/* The same for a file or folder whose new name is free. KV_ERR_EXISTS: it is not, and nothing has
 * changed. On a file system that cannot do both in one step a name that is taken in between is
 * replaced. [rename, sync] */
enum kv_err kv_file_rename_new(const char *from, const char *to) KV_MUST_CHECK;

/* Cuts a file off behind `len` bytes. [truncate] */
enum kv_err kv_file_truncate(int fd, uint64_t len) KV_MUST_CHECK;

/* --- faults, in builds with KV_DEBUG only --- */

enum kv_file_call {
    KV_FILE_OPEN,
    KV_FILE_WRITE,
    KV_FILE_SYNC,
    KV_FILE_RENAME,
    KV_FILE_TRUNCATE,
    KV_FILE_CALL_COUNT
};

/* From the `first`-th call of this kind on (1: the next), `count` calls fail with errno `error`. A
 * write puts half of its bytes before it fails; with error 0 it only writes half, and is gone on
 * with. A negative error is none: the call is late by so many milliseconds. `count` 0 ends it.
 * False: this build has no faults. */
bool kv_file_fail(enum kv_file_call call, uint64_t first, uint64_t count, int error);

/* "write:3:1:28,sync:1:5:5" is call, first, count, error. False: it does not parse, or this build
 * has no faults. */
bool kv_file_fail_text(const char *text);

/* From now on each kv_file_sync that succeeds appends a line to the file `path`: inode, bytes that
 * are durable (what the file had when the call began), CLOCK_MONOTONIC in ns when it began. Whoever
 * plays a crash of the machine cuts files off there. False: it cannot be opened, or this build has
 * no faults. Before other threads sync. */
bool kv_file_log_syncs(const char *path);

#endif
