/* Files that must survive: single steps, and replacing a whole file.
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
 * case in which the old content is gone, and callers are told.
 *
 * Threads: any; the counter is atomic. Memory: paths are built on the stack, nothing is allocated.
 *
 * Rejected: O_TMPFILE with linkat, which cannot replace an existing name. */
#include "base/file.h"

#include "base/assert.h"
#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static _Atomic(unsigned) temporary_count;

/* --- faults --- */

struct sync_note {
    bool known;
    struct timespec time;
    struct stat file;
};

#ifdef KV_DEBUG
struct fault_plan {
    _Atomic(uint64_t) calls;        /* seen since the plan was made */
    _Atomic(uint64_t) first, count; /* count 0: nothing fails */
    atomic_int error;
};
static struct fault_plan plans[KV_FILE_CALL_COUNT];

/* True, with errno, when this call is to fail. */
static bool fault(enum kv_file_call call)
{
    struct fault_plan *p = &plans[call];
    uint64_t count = atomic_load(&p->count);
    if (count == 0)
        return false;
    uint64_t number = atomic_fetch_add(&p->calls, 1) + 1, first = atomic_load(&p->first);
    if (number < first || number - first >= count)
        return false;
    int error = atomic_load(&p->error);
    if (error < 0) {
        struct timespec nap = {.tv_sec = -error / 1000, .tv_nsec = -error % 1000 * 1000000L};
        nanosleep(&nap, NULL);
        return false;
    }
    errno = error;
    return true;
}

bool kv_file_fail(enum kv_file_call call, uint64_t first, uint64_t count, int error)
{
    struct fault_plan *p = &plans[call];
    KV_ASSERT(call < KV_FILE_CALL_COUNT);
    atomic_store(&p->count, 0);
    atomic_store(&p->calls, 0);
    atomic_store(&p->first, first);
    atomic_store(&p->error, error);
    atomic_store(&p->count, count);
    return true;
}

bool kv_file_fail_text(const char *text)
{
    static const char *const names[] = {"open", "write", "sync", "rename", "truncate"};
    static_assert(KV_ARRAY_LEN(names) == KV_FILE_CALL_COUNT, "a name each");
    while (*text != '\0') {
        char name[16];
        unsigned long long first, count;
        int error, used = 0, call = 0;
        if (sscanf(text, "%15[a-z]:%llu:%llu:%d%n", name, &first, &count, &error, &used) != 4)
            return false;
        while (call < KV_FILE_CALL_COUNT && strcmp(names[call], name) != 0)
            call++;
        if (call == KV_FILE_CALL_COUNT)
            return false;
        kv_file_fail((enum kv_file_call)call, first, count, error);
        text += used;
        if (*text != '\0' && *text++ != ',')
            return false;
    }
    return true;
}

static atomic_int sync_log = -1; /* descriptor */

bool kv_file_log_syncs(const char *path)
{
    atomic_store(&sync_log, open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644));
    return atomic_load(&sync_log) >= 0;
}

/* What a sync that begins now is sure to cover. */
static struct sync_note note_of(int fd)
{
    struct sync_note n = {0};
    if (atomic_load(&sync_log) >= 0) {
        clock_gettime(CLOCK_MONOTONIC, &n.time);
        n.known = fstat(fd, &n.file) == 0;
    }
    return n;
}

static void log_sync(const struct sync_note *n)
{
    char line[96];
    if (!n->known)
        return;
    long long ns = (long long)n->time.tv_sec * 1000000000 + n->time.tv_nsec;
    int len = snprintf(line, sizeof(line), "%llu %lld %lld\n", (unsigned long long)n->file.st_ino,
                       (long long)n->file.st_size, ns);
    ssize_t put = write(atomic_load(&sync_log), line, (size_t)len);
    KV_ASSERT(put == len);
}
#else
static inline bool fault(enum kv_file_call call)
{
    (void)call;
    return false;
}

bool kv_file_fail(enum kv_file_call call, uint64_t first, uint64_t count, int error)
{
    (void)call, (void)first, (void)count, (void)error;
    return false;
}

bool kv_file_fail_text(const char *text)
{
    (void)text;
    return false;
}

bool kv_file_log_syncs(const char *path)
{
    (void)path;
    return false;
}

static inline struct sync_note note_of(int fd)
{
    (void)fd;
    return (struct sync_note){0};
}

static inline void log_sync(const struct sync_note *n)
{
    (void)n;
}
#endif

/* --- steps --- */

enum kv_err kv_file_open(const char *path, int flags, unsigned mode, int *fd)
{
    KV_ASSERT(path != NULL && fd != NULL);
    if (fault(KV_FILE_OPEN))
        return KV_ERR_IO;
    do
        *fd = open(path, flags | O_CLOEXEC, (mode_t)mode);
    while (*fd < 0 && errno == EINTR);
    return *fd >= 0 ? KV_OK : KV_ERR_IO;
}

#define AT_END UINT64_MAX /* no offset: where the descriptor stands */

/* One write(2) or pwrite(2): *put bytes went out. False: it failed, perhaps behind some of them. */
static bool write_some(int fd, const char *bytes, size_t len, uint64_t offset, size_t *put)
{
    bool failing = fault(KV_FILE_WRITE);
    int error = errno;
    *put = 0;
    if (failing)
        len = (len + (error == 0)) / 2;
    ssize_t n = 0;
    if (len > 0)
        n = offset == AT_END ? write(fd, bytes, len) : pwrite(fd, bytes, len, (off_t)offset);
    if (n < 0)
        return false;
    *put = (size_t)n;
    errno = error;
    return !failing || error == 0;
}

enum kv_err kv_file_write_count(int fd, const void *bytes, size_t len, size_t *written)
{
    const char *pos = bytes;

    KV_ASSERT(bytes != NULL || len == 0);
    *written = 0;
    while (*written < len) {
        size_t put;
        bool fine = write_some(fd, pos + *written, len - *written, AT_END, &put);
        *written += put;
        KV_ASSERT(*written <= len);
        if (!fine && errno != EINTR)
            return KV_ERR_IO;
    }
    return KV_OK;
}

enum kv_err kv_file_write_all(int fd, const void *bytes, size_t len)
{
    size_t written;
    return kv_file_write_count(fd, bytes, len, &written);
}

enum kv_err kv_file_write_at(int fd, const void *bytes, size_t len, uint64_t offset)
{
    const char *pos = bytes;

    KV_ASSERT(bytes != NULL || len == 0);
    KV_ASSERT(offset < AT_END - len);
    for (size_t done = 0, put; done < len; done += put)
        if (!write_some(fd, pos + done, len - done, offset + done, &put) && errno != EINTR)
            return KV_ERR_IO;
    return KV_OK;
}

enum kv_err kv_file_read_at(int fd, void *bytes, size_t len, uint64_t offset)
{
    char *pos = bytes;

    KV_ASSERT(bytes != NULL || len == 0);
    for (size_t done = 0; done < len;) {
        ssize_t n = pread(fd, pos + done, len - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = 0;
        if (n <= 0)
            return KV_ERR_IO;
        done += (size_t)n;
    }
    return KV_OK;
}

enum kv_err kv_file_sync(int fd)
{
    struct sync_note note = note_of(fd);
    if (fault(KV_FILE_SYNC))
        return KV_ERR_IO;
    int rc;
    do
        rc = fdatasync(fd);
    while (rc != 0 && errno == EINTR);
    if (rc == 0)
        log_sync(&note);
    return rc == 0 ? KV_OK : KV_ERR_IO;
}

enum kv_err kv_file_sync_step(int fd, uint64_t offset, uint64_t bytes)
{
    const unsigned whole =
        SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    KV_ASSERT(bytes > 0);
    if (fault(KV_FILE_SYNC))
        return KV_ERR_IO;
    int rc = sync_file_range(fd, (off_t)offset, (off_t)bytes, SYNC_FILE_RANGE_WRITE);
    if (rc == 0 && offset >= bytes)
        rc = sync_file_range(fd, (off_t)(offset - bytes), (off_t)bytes, whole);
    return rc != 0 && (errno == EIO || errno == ENOSPC || errno == EDQUOT) ? KV_ERR_IO : KV_OK;
}

enum kv_err kv_file_sync_folder(const char *path)
{
    char folder[PATH_MAX];
    size_t end = strlen(path);
    while (end > 1 && path[end - 1] == '/')
        end--; /* "folder/" lies where "folder" does */
    const char *slash = memrchr(path, '/', end);
    size_t len = slash == NULL ? 0 : (size_t)(slash - path);

    KV_ASSERT(len < sizeof(folder));
    if (fault(KV_FILE_SYNC))
        return KV_ERR_IO;
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

enum kv_err kv_file_rename(const char *from, const char *to)
{
    if (fault(KV_FILE_RENAME) || rename(from, to) != 0)
        return KV_ERR_IO;
    return kv_file_sync_folder(to);
}

enum kv_err kv_file_rename_new(const char *from, const char *to)
{
    if (fault(KV_FILE_RENAME))
        return KV_ERR_IO;
    int rc = renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE);
    if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) {
        /* Unknown to this file system: looked up first, which somebody else may outrun. */
        struct stat st;
        if (lstat(to, &st) == 0)
            return KV_ERR_EXISTS;
        rc = rename(from, to);
    }
    if (rc != 0)
        return errno == EEXIST ? KV_ERR_EXISTS : KV_ERR_IO;
    return kv_file_sync_folder(to);
}

enum kv_err kv_file_truncate(int fd, uint64_t len)
{
    if (fault(KV_FILE_TRUNCATE))
        return KV_ERR_IO;
    int rc;
    do
        rc = ftruncate(fd, (off_t)len);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? KV_OK : KV_ERR_IO;
}

/* Writes the temporary file; it is closed afterwards in any case. */
static enum kv_err write_temporary(int fd, struct kv_slice content)
{
    enum kv_err err = kv_file_write_all(fd, content.ptr, content.len);

    if (err == KV_OK)
        err = kv_file_sync(fd);
    int errno_before = errno;
    if (close(fd) != 0 && err == KV_OK)
        return KV_ERR_IO;
    errno = errno_before;
    return err;
}

enum kv_err kv_file_replace_told(const char *path, struct kv_slice content, unsigned mode,
                                 bool *visible)
{
    char temporary[PATH_MAX];

    *visible = false;
    KV_ASSERT(path != NULL && path[0] != '\0');
    KV_ASSERT(content.ptr != NULL || content.len == 0);
    unsigned number = atomic_fetch_add_explicit(&temporary_count, 1, memory_order_relaxed);
    int len = snprintf(temporary, sizeof(temporary), "%s.%d-%u.tmp", path, (int)getpid(), number);
    if (len < 0 || (size_t)len >= sizeof(temporary)) {
        errno = ENAMETOOLONG;
        return KV_ERR_IO;
    }
    int fd;
    enum kv_err err = kv_file_open(temporary, O_WRONLY | O_CREAT | O_EXCL, mode, &fd);
    if (err != KV_OK)
        return err;
    err = write_temporary(fd, content);
    if (err == KV_OK && (fault(KV_FILE_RENAME) || rename(temporary, path) != 0))
        err = KV_ERR_IO;
    if (err != KV_OK) {
        int errno_before = errno;
        unlink(temporary);
        errno = errno_before;
        return err;
    }
    *visible = true;
    return kv_file_sync_folder(path);
}

enum kv_err kv_file_replace(const char *path, struct kv_slice content, unsigned mode)
{
    bool visible;
    return kv_file_replace_told(path, content, mode, &visible);
}
