/* persist/journal.h: whatever a crash of the machine takes from a file behind its last sync comes
 * back out of the journal, twice as well as once, and never into another file. */
#include "base/file.h"
#include "mem/mem.h"
#include "persist/journal.h"
#include "persist/journal_format.h"
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAME "a"
#define FILE_NAME "a.7.incr.aof"
#define SEQ 7
#define RING KV_JOURNAL_RING_MIN

static char folder[64], journal_path[128], file_path[128];
static struct kv_journal *j;
static struct kv_journal_tail t;
static int fd;        /* the file, as the server has it open */
static uint64_t size; /* of it */

static void setup(void)
{
    kv_mem_init();
    snprintf(folder, sizeof(folder), "/tmp/kvik-unit-journal-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(journal_path, sizeof(journal_path), "%s/" NAME KV_JOURNAL_SUFFIX, folder);
    snprintf(file_path, sizeof(file_path), "%s/" FILE_NAME, folder);
    fd = open(file_path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    ck_assert_int_ge(fd, 0);
    size = 0;
}

static void teardown(void)
{
    close(fd);
    unlink(journal_path);
    unlink(file_path);
    ck_assert_int_eq(rmdir(folder), 0); /* nothing else was left */
}

/* --- what the server does --- */

static void make(void)
{
    ck_assert_int_eq(kv_journal_create(folder, NAME, RING, &j), KV_OK);
}

/* The file is durable. */
static void sync_file(void)
{
    struct kv_journal_point point = kv_journal_point(j, SEQ, fd, size);
    kv_journal_reached(j, &point);
}

static void write_file(const char *bytes, size_t len)
{
    ck_assert_int_eq(kv_file_write_all(fd, bytes, len), KV_OK);
    size += len;
}

/* A group of commands, into file and journal. */
static enum kv_err add(const char *bytes, size_t len)
{
    write_file(bytes, len);
    return kv_journal_append(j, SEQ, size - len, kv_slice(bytes, len));
}

static void add_text(const char *text)
{
    ck_assert_int_eq(add(text, strlen(text)), KV_OK);
}

static void leave(void)
{
    kv_journal_destroy(j, false);
}

/* --- after a crash --- */

static enum kv_err apply(bool write, uint64_t *lacking)
{
    int other = open(file_path, O_RDWR | O_CLOEXEC);
    enum kv_err err = kv_journal_read(journal_path, &t);
    if (err == KV_OK) {
        err = kv_journal_apply(&t, other, write, lacking);
        const char *fault = t.fault;
        kv_journal_tail_release(&t);
        t.fault = fault;
    }
    close(other);
    return err;
}

static void applied(uint64_t want_lacking)
{
    uint64_t lacking;
    ck_assert_int_eq(apply(true, &lacking), KV_OK);
    ck_assert_uint_eq(lacking, want_lacking);
    ck_assert_int_eq(apply(true, &lacking), KV_OK);
    ck_assert_uint_eq(lacking, 0);
}

static void refused(const char *fault)
{
    uint64_t lacking;
    ck_assert_int_eq(apply(true, &lacking), KV_ERR_SYNTAX);
    ck_assert_str_eq(t.fault, fault);
}

static void file_is(const char *want, size_t len)
{
    char *got = kv_mem_alloc(len + 1, KV_MEM_OTHER);
    struct stat st;
    ck_assert_int_eq(stat(file_path, &st), 0);
    ck_assert_uint_eq((size_t)st.st_size, len);
    ck_assert_int_eq(kv_file_read_at(fd, got, len, 0), KV_OK);
    ck_assert_mem_eq(got, want, len);
    kv_mem_free(got, len + 1, KV_MEM_OTHER);
}

static void poke(const char *path, uint64_t offset, const void *bytes, size_t len)
{
    int other = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_eq(kv_file_write_at(other, bytes, len, offset), KV_OK);
    close(other);
}

static void flip(const char *path, uint64_t offset)
{
    char c;
    int other = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(kv_file_read_at(other, &c, 1, offset), KV_OK);
    close(other);
    c = (char)(c ^ 1);
    poke(path, offset, &c, 1);
}

START_TEST(what_a_file_lacks_is_written_back)
{
    make();
    write_file("before", 6);
    sync_file();
    add_text("one");
    add_text("two");
    leave();
    applied(0);
    file_is("beforeonetwo", 12);
    for (int len = 6; len < 12; len++) {
        ck_assert_int_eq(truncate(file_path, len), 0);
        applied((uint64_t)(12 - len));
        file_is("beforeonetwo", 12);
    }
}
END_TEST

START_TEST(zeros_are_bytes_that_never_came)
{
    make();
    write_file("before", 6);
    sync_file();
    add_text("one");
    add_text("two");
    write_file("unacknowledged", 14);
    leave();
    applied(0);
    file_is("beforeonetwounacknowledged", 26); /* as after the death of a process */
    poke(file_path, 7, "\0\0", 2);
    applied(5);
    file_is("beforeonetwo", 12); /* behind a loss nothing is trusted */
}
END_TEST

START_TEST(looking_changes_nothing)
{
    uint64_t lacking;
    make();
    sync_file();
    add_text("onetwo");
    leave();
    ck_assert_int_eq(truncate(file_path, 2), 0);
    ck_assert_int_eq(apply(false, &lacking), KV_OK);
    ck_assert_uint_eq(lacking, 4);
    file_is("on", 2);
}
END_TEST

START_TEST(a_journal_without_records_asks_for_nothing)
{
    make();
    write_file("before", 6);
    leave();
    applied(0);
    file_is("before", 6);
}
END_TEST

START_TEST(another_file_is_not_touched)
{
    make();
    write_file("before", 6);
    sync_file();
    add_text("one");
    leave();
    ck_assert_int_eq(truncate(file_path, 5), 0);
    refused("the file is shorter than it was when it was synced");
    file_is("befor", 5);
    poke(file_path, 0, "BEFOREone", 9);
    refused("the file has other bytes than it had when it was synced");
    poke(file_path, 0, "beforeonX", 9);
    refused("the file has been written to since, and not by this server");
    file_is("beforeonX", 9);
    poke(file_path, 0, "beforeone and more", 18);
    applied(0);
    file_is("beforeone and more", 18);
}
END_TEST

/* Whatever byte of the newest record is wrong, the record does not count, and those before do. */
START_TEST(a_torn_record_does_not_count)
{
    const uint64_t record = KV_JOURNAL_HEAD_BYTES + KV_JOURNAL_SECTOR;
    make();
    sync_file();
    add_text("one");
    add_text("two");
    leave();
    for (uint64_t i = 0; i < sizeof(struct kv_journal_record) + 3; i++) {
        flip(journal_path, record + i);
        ck_assert_int_eq(truncate(file_path, 0), 0);
        applied(3);
        file_is("one", 3);
        flip(journal_path, record + i);
    }
    applied(3);
    file_is("onetwo", 6);
}
END_TEST

START_TEST(a_hole_between_records_is_damage)
{
    make();
    sync_file();
    add_text("one");
    add_text("two");
    add_text("three");
    leave();
    flip(journal_path, KV_JOURNAL_HEAD_BYTES + KV_JOURNAL_SECTOR + 80);
    flip(journal_path, KV_JOURNAL_HEAD_BYTES + KV_JOURNAL_SECTOR + 74);
    refused("a record is missing: the journal is damaged");
}
END_TEST

START_TEST(a_damaged_head_is_refused)
{
    make();
    leave();
    flip(journal_path, 17);
    refused("its head is damaged");
    flip(journal_path, 8);
    refused("it does not begin as a journal of this version does");
    ck_assert_int_eq(truncate(journal_path, 5000), 0);
    refused("its size is none that a journal has");
    unlink(journal_path);
    ck_assert_int_eq(kv_journal_read(journal_path, &t), KV_ERR_NOTFOUND);
}
END_TEST

/* Records of an earlier journal, where this one has no own yet. */
START_TEST(records_of_another_journal_do_not_count)
{
    static char old[KV_JOURNAL_HEAD_BYTES + RING];
    make();
    sync_file();
    for (int i = 0; i < 5; i++)
        add_text("old");
    leave();
    int other = open(journal_path, O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(kv_file_read_at(other, old, sizeof(old), 0), KV_OK);
    close(other);
    make();
    sync_file();
    add_text("new");
    leave();
    poke(journal_path, KV_JOURNAL_HEAD_BYTES + KV_JOURNAL_SECTOR,
         old + KV_JOURNAL_HEAD_BYTES + KV_JOURNAL_SECTOR, 4 * KV_JOURNAL_SECTOR);
    ck_assert_int_eq(truncate(file_path, 15), 0);
    applied(3);
    file_is("oldoldoldoldoldnew", 18);
}
END_TEST

/* Bytes that are neither in the ring nor durable keep the next ones out. */
START_TEST(only_what_follows_is_taken)
{
    make();
    write_file("unknown", 7);
    ck_assert_int_eq(add("one", 3), KV_ERR_LIMIT);
    sync_file();
    add_text("two");
    write_file("skipped", 7);
    ck_assert_int_eq(add("three", 5), KV_ERR_LIMIT);
    sync_file();
    add_text("four");
    ck_assert_int_eq(kv_journal_append(j, SEQ + 1, size, KV_SLICE("x")), KV_ERR_LIMIT);
    leave();
    ck_assert_int_eq(truncate(file_path, (off_t)size - 4), 0);
    applied(4);
}
END_TEST

/* Without a sync of the file the ring fills up, and with one it goes on. */
START_TEST(space_is_used_again_only_after_a_sync)
{
    static char bytes[5000];
    int taken = 0;
    memset(bytes, 'x', sizeof(bytes));
    make();
    sync_file();
    while (add(bytes, sizeof(bytes)) == KV_OK)
        taken++;
    ck_assert_int_ge(taken, 10);
    ck_assert_int_lt(taken, RING / 5000);
    ck_assert(kv_journal_is_filling(j));
    ck_assert_int_eq(add("y", 1), KV_ERR_LIMIT);
    sync_file();
    ck_assert(!kv_journal_is_filling(j));
    for (int i = 0; i < 100; i++) {
        if (i % 5 == 0)
            sync_file();
        ck_assert_int_eq(add(bytes, sizeof(bytes)), KV_OK);
    }
    leave();
    ck_assert_int_eq(truncate(file_path, (off_t)size - 5 * 5000), 0);
    applied(5 * 5000);
}
END_TEST

static struct kv_manifest manifest_of(const char *text)
{
    struct kv_manifest m;
    struct kv_manifest_fault fault;
    ck_assert_int_eq(kv_manifest_parse(&m, kv_slice_cstr(text), &fault), KV_OK);
    return m;
}

START_TEST(a_log_is_mended_and_its_journal_removed)
{
    struct kv_journal_outcome o;
    struct kv_manifest m = manifest_of("file " FILE_NAME " seq 7 type i\n");
    make();
    sync_file();
    add_text("one");
    leave();
    ck_assert_int_eq(truncate(file_path, 0), 0);
    ck_assert_int_eq(kv_journal_recover(folder, NAME, &m, false, &o), KV_OK);
    ck_assert_str_eq(o.file->name, FILE_NAME);
    ck_assert_uint_eq(o.lacking_bytes, 3);
    file_is("", 0);
    ck_assert_int_eq(kv_journal_recover(folder, NAME, &m, true, &o), KV_OK);
    ck_assert_uint_eq(o.lacking_bytes, 3);
    file_is("one", 3);
    ck_assert_int_eq(kv_journal_recover(folder, NAME, &m, true, &o), KV_ERR_NOTFOUND);
    kv_manifest_release(&m);
}
END_TEST

START_TEST(a_file_that_the_log_has_forgotten_needs_nothing)
{
    struct kv_journal_outcome o;
    struct kv_manifest m = manifest_of("file " FILE_NAME " seq 7 type h\n"
                                       "file a.8.incr.aof seq 8 type i\n");
    make();
    sync_file();
    add_text("one");
    leave();
    ck_assert_int_eq(truncate(file_path, 0), 0);
    ck_assert_int_eq(kv_journal_recover(folder, NAME, &m, true, &o), KV_OK);
    ck_assert_ptr_null(o.file);
    file_is("", 0);
    ck_assert_int_ne(access(journal_path, F_OK), 0);
    kv_manifest_release(&m);
}
END_TEST

/* --- failing system calls --- */

START_TEST(a_journal_that_cannot_be_made_leaves_the_old_one)
{
    static const struct {
        enum kv_file_call call;
        int first, error;
    } faults[] = {{KV_FILE_OPEN, 1, EROFS},
                  {KV_FILE_WRITE, 1, ENOSPC},
                  {KV_FILE_SYNC, 1, EIO},
                  {KV_FILE_RENAME, 1, EIO}};
    int64_t used = kv_mem_used_total();
    if (!kv_file_fail(KV_FILE_WRITE, 1, 0, 0))
        return;
    make();
    sync_file();
    add_text("one");
    leave();
    for (size_t i = 0; i < KV_ARRAY_LEN(faults); i++) {
        kv_file_fail(faults[i].call, (uint64_t)faults[i].first, 1, faults[i].error);
        ck_assert_int_eq(kv_journal_create(folder, NAME, RING, &j), KV_ERR_IO);
        ck_assert_int_eq(errno, faults[i].error);
        kv_file_fail(faults[i].call, 1, 0, 0);
        ck_assert_int_eq(truncate(file_path, 0), 0);
        applied(3);
    }
    kv_file_fail(KV_FILE_WRITE, 1, 1000, 0); /* short writes are gone on with */
    make();
    kv_file_fail(KV_FILE_WRITE, 1, 0, 0);
    leave();
    ck_assert_int_eq(kv_mem_used_total(), used);
}
END_TEST

/* The record is half there, or whole and not synced: what came before it is safe. */
START_TEST(an_append_that_fails_spoils_nothing_before_it)
{
    static char bytes[3000];
    if (!kv_file_fail(KV_FILE_WRITE, 1, 0, 0))
        return;
    memset(bytes, 'x', sizeof(bytes));
    for (int kind = 0; kind < 2; kind++) {
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        size = 0;
        make();
        sync_file();
        add_text("one");
        write_file(bytes, sizeof(bytes));
        kv_file_fail(kind == 0 ? KV_FILE_WRITE : KV_FILE_SYNC, 1, 1, EIO);
        ck_assert_int_eq(kv_journal_append(j, SEQ, 3, kv_slice(bytes, sizeof(bytes))), KV_ERR_IO);
        ck_assert_int_eq(errno, EIO);
        kv_file_fail(KV_FILE_WRITE, 1, 0, 0);
        kv_file_fail(KV_FILE_SYNC, 1, 0, 0);
        leave();
        ck_assert_int_eq(truncate(file_path, 0), 0);
        applied(kind == 0 ? 3 : 3 + sizeof(bytes));
    }
}
END_TEST

START_TEST(writing_back_that_fails_can_be_done_again)
{
    uint64_t lacking;
    if (!kv_file_fail(KV_FILE_WRITE, 1, 0, 0))
        return;
    make();
    sync_file();
    add_text("one");
    add_text("two");
    leave();
    for (int call = 1; call <= 3; call++) {
        ck_assert_int_eq(truncate(file_path, 0), 0);
        kv_file_fail(call < 3 ? KV_FILE_WRITE : KV_FILE_SYNC, call < 3 ? (uint64_t)call : 1, 1,
                     ENOSPC);
        ck_assert_int_eq(apply(true, &lacking), KV_ERR_IO);
        ck_assert_int_eq(errno, ENOSPC);
        kv_file_fail(KV_FILE_WRITE, 1, 0, 0);
        kv_file_fail(KV_FILE_SYNC, 1, 0, 0);
        ck_assert_int_eq(apply(true, &lacking), KV_OK);
        file_is("onetwo", 6);
    }
}
END_TEST

/* --- crashes at random --- */

#define MODEL_BYTES (1 << 20)

struct model {
    char all[MODEL_BYTES];          /* every byte of the file */
    uint64_t durable, acknowledged; /* the file alone; by either */
    struct kv_journal_point point;  /* a sync of the file is going on; seq 0: none */
};

static struct model model;

/* One group of commands, and syncs of the file now and then. */
static void step(struct model *m, struct kv_random *r)
{
    size_t len = 1 + kv_random_below(r, kv_random_below(r, 4) == 0 ? 20000 : 300);
    for (size_t i = 0; i < len; i++)
        m->all[size + i] = (char)(1 + kv_random_below(r, 255));
    if (m->point.seq != 0 && kv_random_below(r, 5) == 0) {
        kv_journal_reached(j, &m->point);
        m->durable = KV_MAX(m->durable, m->point.offset);
        m->point.seq = 0;
    }
    if (add(m->all + size, len) == KV_ERR_LIMIT) {
        sync_file();
        m->durable = size;
    }
    m->acknowledged = size;
    if (m->point.seq == 0 && kv_random_below(r, 8) == 0)
        m->point = kv_journal_point(j, SEQ, fd, size);
}

/* What the disk has of the file: all before `durable`, and behind it whatever it likes. */
static void crash(struct model *m, struct kv_random *r)
{
    uint64_t left = size - m->durable, kept = m->durable + kv_random_below(r, left + 1);
    ck_assert_int_eq(truncate(file_path, (off_t)kept), 0);
    for (int i = 0; i < 3 && kept > m->durable; i++) {
        static const char zeros[4096];
        uint64_t at = m->durable + kv_random_below(r, kept - m->durable);
        poke(file_path, at, zeros, KV_MIN(sizeof(zeros), kept - at));
    }
}

START_TEST(what_was_acknowledged_survives_crashes_at_random)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("crashes"));
    bool faults = kv_file_fail(KV_FILE_WRITE, 1, 0, 0);
    for (int round = 0; round < UNIT_ROUNDS(12); round++) {
        uint64_t lacking;
        memset(&model, 0, sizeof(model));
        ck_assert_int_eq(ftruncate(fd, 0), 0);
        size = 0;
        make();
        sync_file();
        for (uint64_t i = kv_random_below(&r, 100); i > 0 && size + 21000 < MODEL_BYTES; i--)
            step(&model, &r);
        if (faults && kv_random_below(&r, 2) == 0) { /* in the middle of the next one */
            memset(model.all + size, 'x', 9000);
            kv_file_fail(KV_FILE_WRITE, 2, 1, EIO);
            enum kv_err err = add(model.all + size, 9000);
            ck_assert(err == KV_ERR_IO || err == KV_ERR_LIMIT);
            kv_file_fail(KV_FILE_WRITE, 1, 0, 0);
        }
        leave();
        crash(&model, &r);
        ck_assert_int_eq(apply(true, &lacking), KV_OK);
        char *got = kv_mem_alloc(MODEL_BYTES, KV_MEM_OTHER);
        ck_assert_int_eq(kv_file_read_at(fd, got, model.acknowledged, 0), KV_OK);
        ck_assert_mem_eq(got, model.all, model.acknowledged);
        kv_mem_free(got, MODEL_BYTES, KV_MEM_OTHER);
    }
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "journal");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, what_a_file_lacks_is_written_back);
    unit_add(&u, zeros_are_bytes_that_never_came);
    unit_add(&u, looking_changes_nothing);
    unit_add(&u, a_journal_without_records_asks_for_nothing);
    unit_add(&u, another_file_is_not_touched);
    unit_add(&u, a_torn_record_does_not_count);
    unit_add(&u, a_hole_between_records_is_damage);
    unit_add(&u, a_damaged_head_is_refused);
    unit_add(&u, records_of_another_journal_do_not_count);
    unit_add(&u, only_what_follows_is_taken);
    unit_add(&u, space_is_used_again_only_after_a_sync);
    unit_add(&u, a_log_is_mended_and_its_journal_removed);
    unit_add(&u, a_file_that_the_log_has_forgotten_needs_nothing);
    unit_add(&u, a_journal_that_cannot_be_made_leaves_the_old_one);
    unit_add(&u, an_append_that_fails_spoils_nothing_before_it);
    unit_add(&u, writing_back_that_fails_can_be_done_again);
    unit_add(&u, what_was_acknowledged_survives_crashes_at_random);
    return unit_run(&u);
}
