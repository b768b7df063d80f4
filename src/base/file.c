/* Whole-file operations.
 *
 * Replacing a file so that a crash at any moment leaves either the old or the new content takes
 * five steps: write a temporary file in the same folder (rename does not cross file systems), fsync
 * it (else the rename may reach the disk before the bytes), rename it over the old one (atomic),
 * and fsync the folder (else the rename itself may be lost).
 *
 * The temporary name carries the process id and a counter and is opened with O_EXCL, so two threads
 * or two servers in one folder never share one. A failure removes it and keeps errno of the step
 * that failed.
 *
 * If only the last step fails, the new content is already visible under the name. That is reported
 * as a failure: the caller must not believe that the change survives a power cut. It is the one
 * case in which the old content is gone.
 *
 * Threads: any; the counter is atomic. Memory: paths are built on the stack, nothing is allocated.
 *
 * Rejected: O_TMPFILE with linkat, which cannot replace an existing name. */
#include "base/file.h"

#include "base/assert.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static _Atomic(unsigned) temporary_count;

enum kv_err kv_file_write_all(int fd, const void *bytes, size_t len)
{
    const char *pos = bytes;

    KV_ASSERT(bytes != NULL || len == 0);
    while (len > 0) {
        ssize_t written = write(fd, pos, len);
        if (written < 0) {
            if (errno == EINTR)
                continue;
            return KV_ERR_IO;
        }
        KV_ASSERT((size_t)written <= len);
        pos += written;
        len -= (size_t)written;
    }
    return KV_OK;
}

static enum kv_err fsync_folder(const char *path)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash == NULL ? 0 : (size_t)(slash - path);

    KV_ASSERT(len < sizeof(folder));
    if (slash == NULL)
        memcpy(folder, ".", 2);
    else if (len == 0)
        memcpy(folder, "/", 2);
    else {
        memcpy(folder, path, len);
        folder[len] = '\0';
    }
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return KV_ERR_IO;
    int rc = fsync(fd);
    int errno_fsync = errno;
    close(fd);
    errno = errno_fsync;
    /* Some file systems cannot sync a folder and say EINVAL; then there is nothing to wait for. */
    return rc == 0 || errno_fsync == EINVAL ? KV_OK : KV_ERR_IO;
}

/* Writes the temporary file; it is closed afterwards in any case. */
static enum kv_err write_temporary(int fd, struct kv_slice content)
{
    enum kv_err err = kv_file_write_all(fd, content.ptr, content.len);

    if (err == KV_OK && fsync(fd) != 0)
        err = KV_ERR_IO;
    int errno_before = errno;
    if (close(fd) != 0 && err == KV_OK)
        return KV_ERR_IO;
    errno = errno_before;
    return err;
}

enum kv_err kv_file_replace(const char *path, struct kv_slice content, unsigned mode)
{
    char temporary[PATH_MAX];

    KV_ASSERT(path != NULL && path[0] != '\0');
    KV_ASSERT(content.ptr != NULL || content.len == 0);
    unsigned number = atomic_fetch_add_explicit(&temporary_count, 1, memory_order_relaxed);
    int len = snprintf(temporary, sizeof(temporary), "%s.%d-%u.tmp", path, (int)getpid(), number);
    if (len < 0 || (size_t)len >= sizeof(temporary)) {
        errno = ENAMETOOLONG;
        return KV_ERR_IO;
    }
    int fd = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, (mode_t)mode);
    if (fd < 0)
        return KV_ERR_IO;
    enum kv_err err = write_temporary(fd, content);
    if (err == KV_OK && rename(temporary, path) != 0)
        err = KV_ERR_IO;
    if (err != KV_OK) {
        int errno_before = errno;
        unlink(temporary);
        errno = errno_before;
        return err;
    }
    return fsync_folder(path);
}
