/* base/file.h: a replaced file is the new one or the old one, and nothing stays behind. */
#include "base/file.h"
#include "unit.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static char path[128];

static void setup(void)
{
    snprintf(folder, sizeof(folder), "/tmp/kvik-unit-file-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(path, sizeof(path), "%s/target", folder);
}

static int files_in_folder(void)
{
    DIR *d = opendir(folder);
    int count = 0;

    ck_assert_ptr_nonnull(d);
    for (struct dirent *e; (e = readdir(d)) != NULL;)
        count += e->d_name[0] != '.';
    closedir(d);
    return count;
}

static void teardown(void)
{
    unlink(path);
    rmdir(path);
    rmdir(folder);
}

static void check_content(const char *want)
{
    char got[256];
    int fd = open(path, O_RDONLY);

    ck_assert_int_ge(fd, 0);
    ssize_t len = read(fd, got, sizeof(got) - 1);
    ck_assert_int_ge((int)len, 0);
    close(fd);
    got[len] = '\0';
    ck_assert_str_eq(got, want);
}

START_TEST(a_file_is_made_and_replaced)
{
    struct stat st;

    umask(022);
    ck_assert_int_eq(kv_file_replace(path, KV_SLICE("first"), 0644), KV_OK);
    check_content("first");
    ck_assert_int_eq(stat(path, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0644);
    ck_assert_int_eq(kv_file_replace(path, KV_SLICE("2"), 0600), KV_OK);
    check_content("2");
    ck_assert_int_eq(kv_file_replace(path, kv_slice(NULL, 0), 0600), KV_OK);
    check_content("");
    ck_assert_int_eq(files_in_folder(), 1);
}
END_TEST

START_TEST(a_bare_name_is_in_the_working_folder)
{
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(kv_file_replace("target", KV_SLICE("here"), 0644), KV_OK);
    check_content("here");
}
END_TEST

START_TEST(a_failure_leaves_everything_as_it_was)
{
    char long_path[PATH_MAX + 100];

    ck_assert_int_eq(kv_file_replace("/nonexistent/x", KV_SLICE("x"), 0644), KV_ERR_IO);
    ck_assert_int_eq(errno, ENOENT);
    memset(long_path, 'a', sizeof(long_path));
    long_path[sizeof(long_path) - 1] = '\0';
    ck_assert_int_eq(kv_file_replace(long_path, KV_SLICE("x"), 0644), KV_ERR_IO);
    ck_assert_int_eq(errno, ENAMETOOLONG);
    /* A file cannot take the place of a folder: the rename fails, the temporary file goes. */
    ck_assert_int_eq(mkdir(path, 0755), 0);
    ck_assert_int_eq(kv_file_replace(path, KV_SLICE("x"), 0644), KV_ERR_IO);
    ck_assert_int_eq(errno, EISDIR);
    ck_assert_int_eq(files_in_folder(), 1);
}
END_TEST

START_TEST(a_folder_is_named_with_a_slash_at_its_end_or_without)
{
    /* The folder of a folder that is not there yet, and of one that is gone with all above it. */
    char there[PATH_MAX], lost[PATH_MAX];
    snprintf(there, sizeof(there), "%s/new///", folder);
    snprintf(lost, sizeof(lost), "%s/no/new/", folder);
    ck_assert_int_eq(kv_file_sync_folder(there), KV_OK);
    ck_assert_int_eq(kv_file_sync_folder(lost), KV_ERR_IO);
    ck_assert_int_eq(kv_file_sync_folder("/"), KV_OK);
    ck_assert_int_eq(kv_file_sync_folder("/new/"), KV_OK);
    ck_assert_int_eq(kv_file_sync_folder("new/"), KV_OK);
}
END_TEST

START_TEST(a_new_name_is_taken_only_when_it_is_free)
{
    char from[PATH_MAX];
    snprintf(from, sizeof(from), "%s/from", folder);
    ck_assert_int_eq(kv_file_replace(from, KV_SLICE("new"), 0644), KV_OK);
    ck_assert_int_eq(kv_file_replace(path, KV_SLICE("old"), 0644), KV_OK);
    ck_assert_int_eq(kv_file_rename_new(from, path), KV_ERR_EXISTS);
    check_content("old");
    ck_assert_int_eq(files_in_folder(), 2);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(kv_file_rename_new(from, path), KV_OK);
    check_content("new");
    ck_assert_int_eq(kv_file_rename_new(from, path), KV_ERR_IO);
    ck_assert_int_eq(errno, ENOENT);
    ck_assert_int_eq(files_in_folder(), 1);
}
END_TEST

static void *write_slowly(void *arg)
{
    static char bytes[1 << 20];
    memset(bytes, 'w', sizeof(bytes));
    enum kv_err err = kv_file_write_all(*(int *)arg, bytes, sizeof(bytes));
    return err == KV_OK ? arg : NULL;
}

/* A pipe takes 64 KiB at a time, so a megabyte is written in pieces. */
START_TEST(short_writes_go_on)
{
    int fds[2];
    pthread_t writer;
    char buffer[4096];
    size_t total = 0;
    void *result;

    ck_assert_int_eq(pipe(fds), 0);
    ck_assert_int_eq(pthread_create(&writer, NULL, write_slowly, &fds[1]), 0);
    while (total < 1 << 20) {
        ssize_t len = read(fds[0], buffer, sizeof(buffer));
        ck_assert_int_gt((int)len, 0);
        total += (size_t)len;
    }
    pthread_join(writer, &result);
    ck_assert_ptr_nonnull(result);
    close(fds[0]);
    signal(SIGPIPE, SIG_IGN);
    ck_assert_int_eq(kv_file_write_all(fds[1], "x", 1), KV_ERR_IO);
    ck_assert_int_eq(errno, EPIPE);
    close(fds[1]);
    ck_assert_int_eq(kv_file_write_all(-1, NULL, 0), KV_OK);
}
END_TEST

START_TEST(bytes_are_written_and_read_at_an_offset)
{
    char bytes[8];
    int fd;

    ck_assert_int_eq(kv_file_open(path, O_RDWR | O_CREAT, 0644, &fd), KV_OK);
    ck_assert_int_eq(kv_file_write_at(fd, "efgh", 4, 4), KV_OK);
    ck_assert_int_eq(kv_file_write_at(fd, "abcd", 4, 0), KV_OK);
    ck_assert_int_eq(kv_file_read_at(fd, bytes, 6, 2), KV_OK);
    ck_assert_mem_eq(bytes, "cdefgh", 6);
    errno = EIO;
    ck_assert_int_eq(kv_file_read_at(fd, bytes, 6, 3), KV_ERR_IO);
    ck_assert_int_eq(errno, 0); /* the file is shorter */
    if (kv_file_fail(KV_FILE_WRITE, 1, 2, 0)) {
        ck_assert_int_eq(kv_file_write_at(fd, "12345678", 8, 0), KV_OK);
        check_content("12345678");
        kv_file_fail(KV_FILE_WRITE, 1, 1, EIO);
        ck_assert_int_eq(kv_file_write_at(fd, "xxxxyyyy", 8, 0), KV_ERR_IO);
        check_content("xxxx5678");
    }
    close(fd);
}
END_TEST

/* Only the folder could not be synced: the new content is there, and the caller is told so. */
START_TEST(a_failure_behind_the_rename_is_told_apart)
{
    bool visible = true;
    if (!kv_file_fail(KV_FILE_SYNC, 1, 1, EIO))
        return;
    ck_assert_int_eq(kv_file_replace_told(path, KV_SLICE("one"), 0644, &visible), KV_ERR_IO);
    ck_assert(!visible);
    ck_assert_int_eq(files_in_folder(), 0);
    kv_file_fail(KV_FILE_SYNC, 2, 1, EIO);
    ck_assert_int_eq(kv_file_replace_told(path, KV_SLICE("two"), 0644, &visible), KV_ERR_IO);
    ck_assert_int_eq(errno, EIO);
    ck_assert(visible);
    check_content("two");
    kv_file_fail(KV_FILE_SYNC, 1, 0, 0);
    ck_assert_int_eq(kv_file_replace_told(path, KV_SLICE("three"), 0644, &visible), KV_OK);
    ck_assert(visible);
    ck_assert_int_eq(files_in_folder(), 1);
}
END_TEST

/* A call that fails has put half of its bytes; the n-th one fails and no other. */
START_TEST(a_file_is_written_out_in_steps)
{
    static char bytes[8192];
    int pipe_ends[2];
    int fd = open(path, O_RDWR | O_CREAT, 0644);
    ck_assert_int_ge(fd, 0);
    for (uint64_t at = 0; at < 4 * sizeof(bytes); at += sizeof(bytes)) {
        ck_assert_int_eq(kv_file_write_all(fd, bytes, sizeof(bytes)), KV_OK);
        ck_assert_int_eq(kv_file_sync_step(fd, at, sizeof(bytes)), KV_OK);
    }
    if (kv_file_fail(KV_FILE_SYNC, 1, 1, EIO)) {
        ck_assert_int_eq(kv_file_sync_step(fd, 0, sizeof(bytes)), KV_ERR_IO);
        ck_assert_int_eq(errno, EIO);
        kv_file_fail(KV_FILE_SYNC, 0, 0, 0);
    }
    close(fd);
    /* What cannot be written out in steps is no failure. */
    ck_assert_int_eq(pipe(pipe_ends), 0);
    ck_assert_int_eq(kv_file_sync_step(pipe_ends[1], 0, 1), KV_OK);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
}
END_TEST

START_TEST(an_injected_fault_comes_at_its_call)
{
    size_t written;
    int fd;

    if (!kv_file_fail(KV_FILE_WRITE, 2, 1, ENOSPC))
        return;
    ck_assert_int_eq(kv_file_open(path, O_WRONLY | O_CREAT, 0644, &fd), KV_OK);
    ck_assert_int_eq(kv_file_write_all(fd, "abcd", 4), KV_OK);
    ck_assert_int_eq(kv_file_write_count(fd, "efgh", 4, &written), KV_ERR_IO);
    ck_assert_int_eq(errno, ENOSPC);
    ck_assert_uint_eq(written, 2);
    ck_assert_int_eq(kv_file_write_all(fd, "gh", 2), KV_OK);
    check_content("abcdefgh");
    kv_file_fail(KV_FILE_WRITE, 1, 3, 0);
    ck_assert_int_eq(kv_file_write_all(fd, "ijklmnop", 8), KV_OK);
    check_content("abcdefghijklmnop");
    kv_file_fail(KV_FILE_WRITE, 1, 0, 0);
    ck_assert(kv_file_fail_text("sync:1:2:5,truncate:1:1:30"));
    ck_assert_int_eq(kv_file_sync(fd), KV_ERR_IO);
    ck_assert_int_eq(errno, EIO);
    ck_assert_int_eq(kv_file_sync_folder(path), KV_ERR_IO);
    ck_assert_int_eq(kv_file_sync(fd), KV_OK);
    ck_assert_int_eq(kv_file_truncate(fd, 4), KV_ERR_IO);
    ck_assert_int_eq(errno, EROFS);
    ck_assert_int_eq(kv_file_truncate(fd, 4), KV_OK);
    check_content("abcd");
    ck_assert(!kv_file_fail_text("walk:1:1:1"));
    ck_assert(!kv_file_fail_text("sync:1:1"));
    close(fd);
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "file");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, a_file_is_made_and_replaced);
    unit_add(&u, a_failure_behind_the_rename_is_told_apart);
    unit_add(&u, a_bare_name_is_in_the_working_folder);
    unit_add(&u, a_failure_leaves_everything_as_it_was);
    unit_add(&u, a_folder_is_named_with_a_slash_at_its_end_or_without);
    unit_add(&u, a_new_name_is_taken_only_when_it_is_free);
    unit_add(&u, short_writes_go_on);
    unit_add(&u, bytes_are_written_and_read_at_an_offset);
    unit_add(&u, a_file_is_written_out_in_steps);
    unit_add(&u, an_injected_fault_comes_at_its_call);
    return unit_run(&u);
}
