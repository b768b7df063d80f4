/* persist/rdb_io.h: lengths, strings, checksums; memory and descriptors; what cannot be. */
#include "base/crc64.h"
#include "base/file.h"
#include "persist/rdb_io.h"
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static const uint64_t lengths[] = {0,          1,          63,         64,
                                   16383,      16384,      UINT32_MAX, (uint64_t)UINT32_MAX + 1,
                                   UINT64_MAX, 1234567890, 255,        256};

static int64_t used_before;

static void setup(void)
{
    kv_mem_init();
    used_before = kv_mem_used_total();
}

static void teardown(void)
{
    ck_assert_int_eq(kv_mem_used_total(), used_before);
}

START_TEST(every_length_comes_back)
{
    struct kv_rdb_writer w;
    struct kv_rdb_reader r;
    uint64_t len;
    kv_rdb_writer_init(&w);
    for (size_t i = 0; i < KV_ARRAY_LEN(lengths); i++)
        kv_rdb_put_len(&w, lengths[i]);
    kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
    for (size_t i = 0; i < KV_ARRAY_LEN(lengths); i++) {
        ck_assert(kv_rdb_take_len(&r, &len));
        ck_assert_uint_eq(len, lengths[i]);
    }
    ck_assert(kv_rdb_at_end(&r));
    ck_assert(!kv_rdb_take_len(&r, &len));
    ck_assert_int_eq(r.err, KV_ERR_SYNTAX);
    ck_assert_uint_eq(r.fault_offset, kv_rdb_writer_offset(&w));
    kv_rdb_writer_release(&w);
    kv_rdb_reader_release(&r);
}
END_TEST

/* Strings of all forms; the i-th. */
static struct kv_slice sample(unsigned i, char *bytes)
{
    static const char *const words[] = {
        "",   "0", "-128", "127",          "-129",       "32767",       "-2147483648", "2147483648",
        "01", "-", "x",    "123456789012", "2147483647", "-2147483649", "+5",          " 1"};
    if (i < KV_ARRAY_LEN(words))
        return kv_slice_cstr(words[i]);
    size_t len = (size_t)(i - KV_ARRAY_LEN(words)) * 37;
    for (size_t j = 0; j < len; j++)
        bytes[j] = (char)(i % 2 ? 'a' + j % 3 : j * 7919 >> 5);
    return kv_slice(bytes, len);
}
#define SAMPLES 60u

static void put_samples(struct kv_rdb_writer *w)
{
    char bytes[4096];
    for (unsigned i = 0; i < SAMPLES; i++)
        kv_rdb_put_string(w, sample(i, bytes));
}

static void take_samples(struct kv_rdb_reader *r, bool keep)
{
    struct kv_rdb_string s = {0};
    char bytes[4096];
    for (unsigned i = 0; i < SAMPLES; i++) {
        ck_assert_msg(kv_rdb_take_string(r, &s, keep), "%u: %s", i, r->fault);
        ck_assert(kv_slice_equal(s.text, sample(i, bytes)));
    }
    kv_rdb_string_release(&s);
}

START_TEST(every_string_comes_back)
{
    for (int compress = 0; compress < 2; compress++) {
        struct kv_rdb_writer w;
        struct kv_rdb_reader r;
        kv_rdb_writer_init(&w);
        w.compress = compress;
        put_samples(&w);
        kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
        take_samples(&r, compress);
        kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
        for (unsigned i = 0; i < SAMPLES; i++)
            ck_assert(kv_rdb_skip_string(&r));
        ck_assert(kv_rdb_at_end(&r));
        kv_rdb_writer_release(&w);
    }
}
END_TEST

START_TEST(integers_are_written_in_binary)
{
    struct kv_rdb_writer w;
    kv_rdb_writer_init(&w);
    kv_rdb_put_string(&w, KV_SLICE("-128"));
    ck_assert_uint_eq(kv_rdb_writer_offset(&w), 2);
    kv_rdb_put_int(&w, 2147483647);
    ck_assert_uint_eq(kv_rdb_writer_offset(&w), 2 + 5);
    kv_rdb_put_int(&w, 2147483648);
    ck_assert_uint_eq(kv_rdb_writer_offset(&w), 2 + 5 + 11);
    kv_rdb_put_bytes(&w, KV_SLICE("12"));
    ck_assert_uint_eq(kv_rdb_writer_offset(&w), 2 + 5 + 11 + 3);
    kv_rdb_writer_release(&w);
}
END_TEST

/* A descriptor that has what a writer wrote, small strings and some beyond the buffer. */
static int written_file(uint64_t *sum, uint64_t *bytes)
{
    static char big[600000];
    char path[] = "/tmp/kvik-rdb-io-XXXXXX";
    struct kv_rdb_writer w;
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    unlink(path);
    memset(big, 'b', sizeof(big));
    kv_rdb_writer_init_fd(&w, fd);
    for (int round = 0; round < 20; round++) {
        put_samples(&w);
        kv_rdb_put_bytes(&w, kv_slice(big, sizeof(big) - (size_t)round * 29000));
    }
    *sum = kv_rdb_writer_checksum(&w);
    ck_assert_int_eq(kv_rdb_writer_flush(&w), KV_OK);
    *bytes = kv_rdb_writer_offset(&w);
    kv_rdb_writer_release(&w);
    return fd;
}

static void read_file(int fd, uint64_t sum, uint64_t bytes)
{
    struct kv_rdb_reader r;
    struct kv_rdb_string s = {0};
    kv_rdb_reader_init_fd(&r, fd);
    r.checksums = true;
    for (int round = 0; round < 20; round++) {
        take_samples(&r, round % 2);
        ck_assert(kv_rdb_take_string(&r, &s, round % 3 == 0));
        ck_assert_uint_eq(s.text.len, 600000 - (size_t)round * 29000);
        ck_assert(s.text.ptr[0] == 'b' && s.text.ptr[s.text.len - 1] == 'b');
    }
    ck_assert_uint_eq(kv_rdb_reader_checksum(&r), sum);
    ck_assert_uint_eq(kv_rdb_reader_offset(&r), bytes);
    kv_rdb_string_release(&s);
    kv_rdb_reader_release(&r);
}

START_TEST(a_file_comes_back)
{
    uint64_t sum, bytes;
    int fd = written_file(&sum, &bytes);
    ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
    read_file(fd, sum, bytes);
    close(fd);
}
END_TEST

START_TEST(so_does_what_comes_through_a_pipe)
{
    uint64_t sum, bytes;
    int fd = written_file(&sum, &bytes), ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        char part[997];
        ssize_t got;
        lseek(fd, 0, SEEK_SET);
        while ((got = read(fd, part, sizeof(part))) > 0)
            (void)!kv_file_write_all(ends[1], part, (size_t)got);
        _exit(0);
    }
    close(ends[1]);
    read_file(ends[0], sum, bytes);
    waitpid(child, NULL, 0);
    close(ends[0]);
    close(fd);
}
END_TEST

START_TEST(a_length_beyond_a_pipes_end_takes_little_memory)
{
    static const uint8_t head[] = {0x81, 0, 0, 0x10, 0, 0, 0, 0, 0, 'x'};
    struct kv_rdb_reader r;
    struct kv_rdb_string s = {0};
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_eq(kv_file_write_all(ends[1], head, sizeof(head)), KV_OK);
    close(ends[1]);
    kv_rdb_reader_init_fd(&r, ends[0]);
    ck_assert(!kv_rdb_take_string(&r, &s, true));
    ck_assert_int_eq(r.err, KV_ERR_SYNTAX);
    ck_assert_uint_le(s.bytes.capacity, 2 << 20);
    kv_rdb_string_release(&s);
    kv_rdb_reader_release(&r);
    close(ends[0]);
}
END_TEST

START_TEST(what_is_taken_can_be_recorded)
{
    uint64_t sum, bytes;
    struct kv_rdb_reader r;
    struct kv_rdb_bytes copy = {0};
    int fd = written_file(&sum, &bytes);
    lseek(fd, 0, SEEK_SET);
    kv_rdb_reader_init_fd(&r, fd);
    ck_assert(kv_rdb_skip(&r, 1000));
    kv_rdb_record_begin(&r, &copy);
    ck_assert(kv_rdb_skip(&r, bytes - 3000));
    ck_assert(kv_rdb_record_end(&r));
    ck_assert(kv_rdb_skip(&r, 2000));
    ck_assert(kv_rdb_at_end(&r));
    ck_assert_uint_eq(copy.len, bytes - 3000);
    uint8_t *want = malloc(copy.len);
    ck_assert_int_eq(pread(fd, want, copy.len, 1000), (ssize_t)copy.len);
    ck_assert_int_eq(memcmp(want, copy.ptr, copy.len), 0);
    free(want);
    kv_rdb_bytes_release(&copy);
    kv_rdb_reader_release(&r);
    close(fd);
}
END_TEST

START_TEST(writers_are_moved_behind_each_other_and_patched)
{
    for (int to_file = 0; to_file < 2; to_file++) {
        char path[] = "/tmp/kvik-rdb-io-XXXXXX";
        static char big[400000];
        struct kv_rdb_writer to, from;
        int fd = mkstemp(path);
        unlink(path);
        kv_rdb_writer_init(&to);
        if (to_file)
            kv_rdb_writer_init_fd(&to, fd);
        kv_rdb_writer_init(&from);
        kv_rdb_put(&to, "REDIS0010", 9);
        for (int i = 0; i < 6; i++) {
            kv_rdb_put(&from, big, i % 2 ? sizeof(big) : 1000);
            put_samples(&from);
            from.version = (uint32_t)i;
            kv_rdb_writer_move(&to, &from);
            ck_assert_uint_eq(kv_rdb_writer_offset(&from), 0);
        }
        ck_assert_uint_eq(to.version, 5);
        ck_assert_int_eq(kv_rdb_writer_patch(&to, 7, "10", "12", 2), KV_OK);
        ck_assert_int_eq(kv_rdb_writer_flush(&to), KV_OK);
        size_t len = (size_t)kv_rdb_writer_offset(&to);
        uint8_t *all = malloc(len);
        if (to_file)
            ck_assert_int_eq(pread(fd, all, len, 0), (ssize_t)len);
        else
            memcpy(all, to.buf.ptr, len);
        ck_assert_int_eq(memcmp(all, "REDIS0012", 9), 0);
        ck_assert_uint_eq(kv_crc64(0, all, len), kv_rdb_writer_checksum(&to));
        free(all);
        kv_rdb_writer_release(&to);
        kv_rdb_writer_release(&from);
        close(fd);
    }
}
END_TEST

START_TEST(the_first_failure_of_writing_stays)
{
    static char big[300000];
    struct kv_rdb_writer w;
    int fd = open("/tmp", O_RDWR | O_TMPFILE, 0600);
    if (!kv_file_fail(KV_FILE_WRITE, 2, 1, ENOSPC))
        return; /* this build has no faults */
    kv_rdb_writer_init_fd(&w, fd);
    for (int i = 0; i < 5; i++)
        kv_rdb_put(&w, big, sizeof(big));
    ck_assert_int_eq(kv_rdb_writer_flush(&w), KV_ERR_IO);
    ck_assert_int_eq(w.error, ENOSPC);
    kv_file_fail(KV_FILE_WRITE, 1, 0, 0);
    kv_rdb_writer_release(&w);
    close(fd);
}
END_TEST

START_TEST(a_file_that_is_written_out_in_steps_is_the_same)
{
    static char piece[50000];
    struct kv_rdb_writer w, all;
    struct stat st;
    int fd = open("/tmp", O_RDWR | O_TMPFILE, 0600);
    kv_rdb_writer_init_fd(&w, fd);
    kv_rdb_writer_init(&all);
    w.sync_bytes = 8192;
    for (size_t i = 1; i < sizeof(piece); i = i * 3 + 1) {
        memset(piece, (int)i, sizeof(piece));
        kv_rdb_put(&w, piece, i); /* those of 32 KiB and more go past the buffer */
        kv_rdb_put(&all, piece, i);
    }
    ck_assert_int_eq(kv_rdb_writer_flush(&w), KV_OK);
    ck_assert_uint_eq(kv_rdb_writer_checksum(&w), kv_rdb_writer_checksum(&all));
    ck_assert_int_eq(fstat(fd, &st), 0);
    struct kv_slice bytes = kv_rdb_writer_bytes(&all);
    ck_assert_uint_eq((size_t)st.st_size, bytes.len);
    char *got = kv_mem_alloc(bytes.len, KV_MEM_OTHER);
    ck_assert_int_eq(pread(fd, got, bytes.len, 0), (ssize_t)bytes.len);
    ck_assert_int_eq(memcmp(got, bytes.ptr, bytes.len), 0);
    kv_mem_free(got, bytes.len, KV_MEM_OTHER);
    if (kv_file_fail(KV_FILE_SYNC, 2, 1, EIO)) {
        kv_rdb_put(&w, piece, sizeof(piece));
        ck_assert_int_eq(w.err, KV_ERR_IO);
        ck_assert_int_eq(w.error, EIO);
        kv_file_fail(KV_FILE_SYNC, 1, 0, 0);
    }
    kv_rdb_writer_release(&all);
    kv_rdb_writer_release(&w);
    close(fd);
}
END_TEST

START_TEST(every_allocation_may_fail)
{
    char bytes[4096];
    for (uint64_t n = 1; n < 200; n++) {
        struct kv_rdb_writer w;
        struct kv_rdb_reader r;
        struct kv_rdb_string s = {0};
        kv_rdb_writer_init(&w);
        w.compress = true;
        kv_mem_fail_try(n);
        put_samples(&w);
        if (w.err == KV_OK) {
            kv_rdb_reader_init(&r, kv_rdb_writer_bytes(&w));
            for (unsigned i = 0; i < SAMPLES && kv_rdb_take_string(&r, &s, true); i++)
                ck_assert(kv_slice_equal(s.text, sample(i, bytes)));
            ck_assert(r.err == KV_OK || r.err == KV_ERR_NOMEM);
        } else {
            ck_assert_int_eq(w.err, KV_ERR_NOMEM);
        }
        kv_mem_fail_try(0);
        kv_rdb_string_release(&s);
        kv_rdb_writer_release(&w);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "rdb_io");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, every_length_comes_back);
    unit_add(&u, every_string_comes_back);
    unit_add(&u, integers_are_written_in_binary);
    unit_add(&u, a_file_comes_back);
    unit_add(&u, so_does_what_comes_through_a_pipe);
    unit_add(&u, a_length_beyond_a_pipes_end_takes_little_memory);
    unit_add(&u, what_is_taken_can_be_recorded);
    unit_add(&u, writers_are_moved_behind_each_other_and_patched);
    unit_add(&u, the_first_failure_of_writing_stays);
    unit_add(&u, a_file_that_is_written_out_in_steps_is_the_same);
    unit_add(&u, every_allocation_may_fail);
    return unit_run(&u);
}
