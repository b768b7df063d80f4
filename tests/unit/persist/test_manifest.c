/* persist/manifest.h: what redis-server 7.0.15 reads is read, what it refuses is refused in its
 * words, and what is stored reads back. */
#include "base/file.h"
#include "mem/mem.h"
#include "persist/manifest.h"
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

static struct kv_manifest m;
static struct kv_manifest_fault fault;

static void refused(const char *text, uint32_t line, const char *reason)
{
    ck_assert_int_eq(kv_manifest_parse(&m, kv_slice_cstr(text), &fault), KV_ERR_SYNTAX);
    ck_assert_str_eq(fault.reason, reason);
    ck_assert_uint_eq(fault.line, line);
    ck_assert_uint_eq(m.count, 0);
}

#define BASE "file a.1.base.rdb seq 1 type b\n"
#define INCR(n) "file a." #n ".incr.aof seq " #n " type i\n"
#define BAD "Invalid AOF manifest file format"

START_TEST(files_are_read_in_their_order)
{
    const char *text = "# a comment\nfile a.1.incr.aof seq 1 type h\n" INCR(3) BASE
        "type i seq 4 file \"odd \\\"name\\x41\" startoffset 0\n";
    int64_t used = kv_mem_used_total();
    ck_assert_int_eq(kv_manifest_parse(&m, kv_slice_cstr(text), &fault), KV_OK);
    ck_assert_uint_eq(m.count, 4);
    ck_assert_str_eq(kv_manifest_base(&m)->name, "a.1.base.rdb");
    ck_assert_int_eq(m.files[1].type, KV_MANIFEST_HISTORY);
    ck_assert_str_eq(m.files[2].name, "a.3.incr.aof");
    ck_assert_str_eq(kv_manifest_last_incr(&m)->name, "odd \"nameA");
    ck_assert_uint_eq(m.base_seq, 1);
    ck_assert_uint_eq(m.incr_seq, 4);
    kv_manifest_release(&m);
    ck_assert_int_eq(kv_mem_used_total(), used);
}
END_TEST

START_TEST(faults_are_told_in_the_words_that_people_know)
{
    refused("", 0, "Found an empty AOF manifest");
    refused("# nothing\n", 0, "Found an empty AOF manifest");
    refused(BASE "\n", 2, BAD);
    refused("file a seq 1 type i", 0, "The AOF manifest file contains too long line");
    refused(INCR(2) INCR(1), 2, "Found a non-monotonic sequence number");
    refused(BASE "file b seq 2 type b\n", 2, "Found duplicate base file information");
    refused("file a seq 1 type x\n", 1, "Unknown AOF file type");
    refused("file ../a seq 1 type i\n", 1, "File can't be a path, just a filename");
    refused("file a seq 1 type i rest\n", 1, BAD);
    refused("file a seq 1\n", 1, BAD);
    refused("file a seq x type i\n", 1, BAD);
    refused("file a seq 0 type i\n", 1, BAD);
    refused("file \"a seq 1 type i\n", 1, BAD);
    refused("file \"\" seq 1 type i\n", 1, BAD);
    char line[3000];
    memset(line, 'a', sizeof(line));
    memcpy(line, "file ", 5);
    line[sizeof(line) - 2] = '\n';
    line[sizeof(line) - 1] = '\0';
    refused(line, 0, "The AOF manifest file contains too long line");
}
END_TEST

START_TEST(a_rewrite_makes_history_of_what_it_replaces)
{
    kv_manifest_init(&m);
    kv_manifest_adopt_base(&m, "appendonly.aof");
    ck_assert_str_eq(kv_manifest_add_incr(&m, "appendonly.aof")->name, "appendonly.aof.1.incr.aof");
    uint64_t from = kv_manifest_add_incr(&m, "appendonly.aof")->seq;
    ck_assert_str_eq(kv_manifest_add_base(&m, "appendonly.aof", "rdb", from)->name,
                     "appendonly.aof.2.base.rdb");
    ck_assert_uint_eq(m.count, 4);
    ck_assert_int_eq(m.files[1].type, KV_MANIFEST_HISTORY);
    ck_assert_str_eq(m.files[1].name, "appendonly.aof");
    ck_assert_int_eq(m.files[2].type, KV_MANIFEST_HISTORY);
    ck_assert_int_eq(m.files[3].type, KV_MANIFEST_INCR);
    kv_manifest_drop_history(&m);
    ck_assert_uint_eq(m.count, 2);
    ck_assert_str_eq(kv_manifest_last_incr(&m)->name, "appendonly.aof.2.incr.aof");
    kv_manifest_release(&m);
}
END_TEST

START_TEST(what_is_stored_reads_back)
{
    char folder[] = "/tmp/kvik-unit-manifest-XXXXXX", path[256];
    struct kv_manifest copy;
    bool visible;
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(kv_manifest_load(&m, folder, "log", &fault), KV_ERR_NOTFOUND);
    ck_assert_int_eq(
        kv_manifest_parse(&m, KV_SLICE(BASE INCR(7) "file \"a\\x01 b\" seq 9 type i\n"), &fault),
        KV_OK);
    ck_assert_int_eq(kv_manifest_store(&m, folder, "log"), KV_OK);
    /* A failing step leaves the old one. */
    kv_manifest_copy(&copy, &m);
    kv_manifest_add_incr(&copy, "log");
    const enum kv_file_call calls[] = {KV_FILE_OPEN, KV_FILE_WRITE, KV_FILE_SYNC, KV_FILE_RENAME};
    for (size_t i = 0; i < KV_ARRAY_LEN(calls); i++) {
        if (!kv_file_fail(calls[i], 1, 1, ENOSPC))
            break;
        ck_assert_int_eq(kv_manifest_store_told(&copy, folder, "log", &visible), KV_ERR_IO);
        ck_assert(!visible);
        ck_assert_int_eq(errno, ENOSPC);
    }
    kv_manifest_release(&copy);
    ck_assert_int_eq(kv_manifest_load(&copy, folder, "log", &fault), KV_OK);
    ck_assert_uint_eq(copy.count, m.count);
    for (uint32_t i = 0; i < m.count; i++) {
        ck_assert_str_eq(copy.files[i].name, m.files[i].name);
        ck_assert_uint_eq(copy.files[i].seq, m.files[i].seq);
        ck_assert_int_eq(copy.files[i].type, m.files[i].type);
    }
    kv_manifest_release(&copy);
    kv_manifest_release(&m);
    ck_assert(kv_manifest_path(path, sizeof(path), folder, "log", ".manifest"));
    unlink(path);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

static void put_file(const char *folder, const char *name, const char *content)
{
    char path[256];
    int fd;
    ck_assert(kv_manifest_path(path, sizeof(path), folder, name, ""));
    ck_assert_int_eq(kv_file_open(path, O_WRONLY | O_CREAT | O_TRUNC, 0644, &fd), KV_OK);
    ck_assert_int_eq(kv_file_write_all(fd, content, strlen(content)), KV_OK);
    close(fd);
}

/* A base is made whole before it is named; the file behind the last incr file may be named and
 * empty. */
START_TEST(a_log_ends_where_only_empty_files_follow)
{
    char folder[] = "/tmp/kvik-unit-manifest-XXXXXX", path[256];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(kv_manifest_parse(&m, KV_SLICE(BASE INCR(1) INCR(2) INCR(3)), &fault), KV_OK);
    put_file(folder, "a.1.base.rdb", "x");
    put_file(folder, "a.1.incr.aof", "x");
    put_file(folder, "a.2.incr.aof", "");
    ck_assert(!kv_manifest_ends_at(&m, folder, 1)); /* one is not there at all */
    put_file(folder, "a.3.incr.aof", "");
    ck_assert(!kv_manifest_ends_at(&m, folder, 0));
    ck_assert(kv_manifest_ends_at(&m, folder, 1));
    ck_assert(kv_manifest_ends_at(&m, folder, 2));
    ck_assert(kv_manifest_ends_at(&m, folder, 3));
    put_file(folder, "a.3.incr.aof", "x");
    ck_assert(!kv_manifest_ends_at(&m, folder, 1));
    ck_assert(!kv_manifest_ends_at(&m, folder, 2));
    ck_assert(kv_manifest_ends_at(&m, folder, 3));
    for (uint32_t i = 0; i < m.count; i++) {
        ck_assert(kv_manifest_path(path, sizeof(path), folder, m.files[i].name, ""));
        unlink(path);
    }
    kv_manifest_release(&m);
    ck_assert_int_eq(rmdir(folder), 0);
}
END_TEST

/* Random bytes from the alphabet of manifests: an answer, never a crash. */
START_TEST(no_text_breaks_the_parser)
{
    static const char *const pieces[] = {"file", " ",  "seq", "type", "i", "b", "h",  "1", "2",
                                         "\n",   "\"", "\\",  "x",    "#", "a", "\t", "\r"};
    struct kv_random r;
    kv_random_init(&r, unit_seed("manifest"));
    for (int round = 0; round < UNIT_ROUNDS(20000); round++) {
        char text[256];
        size_t len = 0;
        while (len < 200 && kv_random_below(&r, 40) != 0) {
            const char *p = pieces[kv_random_below(&r, KV_ARRAY_LEN(pieces))];
            memcpy(text + len, p, strlen(p));
            len += strlen(p);
        }
        if (kv_manifest_parse(&m, kv_slice(text, len), &fault) == KV_OK)
            ck_assert_uint_gt(m.count, 0);
        kv_manifest_release(&m);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    kv_mem_init();
    unit_begin(&u, "manifest");
    unit_add(&u, files_are_read_in_their_order);
    unit_add(&u, faults_are_told_in_the_words_that_people_know);
    unit_add(&u, a_rewrite_makes_history_of_what_it_replaces);
    unit_add(&u, what_is_stored_reads_back);
    unit_add(&u, a_log_ends_where_only_empty_files_follow);
    unit_add(&u, no_text_breaks_the_parser);
    return unit_run(&u);
}
