/* Whole-file operations that survive a crash or leave the old file untouched. */
#ifndef KV_BASE_FILE_H
#define KV_BASE_FILE_H

#include "base/err.h"
#include "base/slice.h"

/* Replaces `path` by `content`: temporary file in the same folder, fsync, rename, fsync of the
 * folder. On failure (errno set) the old file is intact and the temporary file removed. */
enum kv_err kv_file_replace(const char *path, struct kv_slice content, unsigned mode) KV_MUST_CHECK;

/* Writes all bytes to fd, going on after short writes and EINTR. */
enum kv_err kv_file_write_all(int fd, const void *bytes, size_t len) KV_MUST_CHECK;

#endif
