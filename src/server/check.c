/* kvik-check FILE|DIR: is a log or a snapshot whole, and where not?
 *
 * The server's binary under another name, as its loaders are what decides. A file is an RDB file
 * (loaded into a store of its own, so that every value is looked through), an append-only file (RDB
 * data at its start, or none, then commands), or a manifest; a folder is searched for a manifest.
 * Commands are checked for their form and their transactions, not executed.
 *
 * --fix writes back what the journal of a log has and its file lacks, and cuts the last file of a
 * log off behind what is whole, after asking (--yes: without). Nothing else that exists is changed:
 * faults within a file have no mending that loses only the fault. A conversion (convert.c) makes
 * files under names that are free.
 *
 * Threads: one. Rejected: a program of its own, which would be the same code twice. */
#include "server/check.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/number.h"
#include "base/random.h"
#include "persist/aof_scan.h"
#include "persist/journal.h"
#include "persist/manifest.h"
#include "persist/rdb_file.h"
#include "server/convert.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct options {
    bool fix, yes;
};

/* What a file was found to be. */
struct finding {
    bool whole;
    bool cut;       /* cutting it off at `good` makes it whole */
    bool data;      /* it is, or begins with, data in the RDB format */
    uint64_t size;  /* bytes */
    uint64_t good;  /* whole up to here */
    uint64_t fault; /* offset of the first fault */
    uint64_t keys, commands;
    int64_t last_time; /* of the last annotation, seconds; 0: none */
    char why[KV_RDB_FAULT_TEXT];
};

bool kv_check_is_wanted(const char *program)
{
    const char *slash = strrchr(program, '/');
    return strcmp(slash != NULL ? slash + 1 : program, "kvik-check") == 0;
}

static void set_fault(struct finding *f, uint64_t offset, const char *why)
{
    f->whole = false;
    f->fault = offset;
    snprintf(f->why, sizeof(f->why), "%s", why);
}

/* --- data --- */

static bool begins_with_data(int fd)
{
    char magic[6];
    ssize_t n = pread(fd, magic, sizeof(magic), 0);
    return (n >= 5 && memcmp(magic, "REDIS", 5) == 0) ||
           (n >= 6 && memcmp(magic, "VALKEY", 6) == 0);
}

static bool check_data(int fd, struct finding *f, uint64_t *end)
{
    struct kv_store_options so = {.shard_count = 16, .database_count = 65535};
    struct kv_store_stats stats = {0};
    struct kv_rdb_load load = {.keep_due = true};
    struct kv_rdb_reader r;
    kv_random_secure(&so.hash_key, sizeof(so.hash_key));
    struct kv_view view = {
        .store = kv_store_create(&so), .stats = &stats, .now_ms = kv_clock_wall_ms()};
    kv_rdb_reader_init_fd(&r, fd);
    r.checksums = true;
    enum kv_err err = kv_rdb_load(&r, &view, &load);
    f->keys = load.keys;
    *end = kv_rdb_reader_offset(&r);
    if (err != KV_OK)
        set_fault(f, r.fault_offset, r.fault);
    kv_rdb_reader_release(&r);
    kv_store_destroy(view.store);
    return err == KV_OK;
}

/* --- commands --- */

static void take_note(struct finding *f, const struct kv_aof_item *item)
{
    int64_t time_s;
    if (item->len > 6 && memcmp(item->start, "#TS:", 4) == 0 &&
        kv_int_parse(kv_slice(item->start + 4, item->len - 6), &time_s))
        f->last_time = time_s;
}

/* Follows MULTI and EXEC; false: the command cannot stand here. */
static bool take_command(struct finding *f, const struct kv_aof_item *item, bool *in_multi)
{
    f->commands++;
    if (kv_slice_is(item->argv[0], "multi")) {
        if (*in_multi) {
            set_fault(f, item->offset, "MULTI within a transaction");
            return false;
        }
        *in_multi = true;
    } else if (kv_slice_is(item->argv[0], "exec")) {
        if (!*in_multi) {
            set_fault(f, item->offset, "EXEC without MULTI");
            return false;
        }
        *in_multi = false;
    }
    if (!*in_multi)
        f->good = item->offset + item->len;
    return true;
}

static void end_commands(struct finding *f, const struct kv_aof_scan *s, enum kv_aof_found found,
                         bool in_multi)
{
    if (found == KV_AOF_END && !in_multi)
        return;
    f->cut = true;
    if (found == KV_AOF_BAD)
        set_fault(f, s->offset, s->fault);
    else if (found == KV_AOF_TRUNCATED)
        set_fault(f, s->offset, "the file ends within a command");
    else
        set_fault(f, f->good, "the file ends within a transaction");
}

static bool check_commands(int fd, uint64_t start, struct finding *f)
{
    struct kv_aof_scan s;
    struct kv_aof_item item;
    bool in_multi = false;
    if (kv_aof_scan_init(&s, fd, start) != KV_OK)
        return false;
    f->good = start;
    for (;;) {
        enum kv_aof_found found = kv_aof_scan_next(&s, &item);
        if (found == KV_AOF_COMMAND) {
            if (!take_command(f, &item, &in_multi))
                break;
        } else if (found == KV_AOF_NOTE) {
            take_note(f, &item);
            if (!in_multi)
                f->good = item.offset + item.len;
        } else if (found != KV_AOF_MORE) {
            end_commands(f, &s, found, in_multi);
            break;
        } else if (!kv_aof_scan_fill(&s)) {
            kv_aof_scan_release(&s);
            return false;
        }
    }
    kv_aof_scan_release(&s);
    return true;
}

/* --- files --- */

/* False: it cannot be read; errno. */
static bool look_at(const char *path, struct finding *f)
{
    struct stat st;
    int fd;
    uint64_t end = 0;
    memset(f, 0, sizeof(*f));
    f->whole = true;
    if (kv_file_open(path, O_RDONLY, 0, &fd) != KV_OK)
        return false;
    bool fine = fstat(fd, &st) == 0;
    f->size = (uint64_t)st.st_size;
    f->data = fine && begins_with_data(fd);
    if (fine && (!f->data || check_data(fd, f, &end)))
        fine = check_commands(fd, end, f);
    int error = errno;
    close(fd);
    errno = error;
    return fine;
}

static void report(const char *name, const struct finding *f)
{
    printf("%s: %llu bytes", name, (unsigned long long)f->size);
    if (f->data)
        printf(", %llu keys in the RDB format", (unsigned long long)f->keys);
    if (!f->data || f->commands > 0)
        printf(", %llu commands", (unsigned long long)f->commands);
    if (f->last_time != 0)
        printf(", last time annotation %lld", (long long)f->last_time);
    printf("\n");
    if (!f->whole)
        printf("  FAULT at offset %llu: %s\n", (unsigned long long)f->fault, f->why);
    if (f->cut)
        printf("  whole up to offset %llu, %llu bytes follow\n", (unsigned long long)f->good,
               (unsigned long long)(f->size - f->good));
}

/* The question stands there. */
static bool agreed(const struct options *o)
{
    char answer[8] = "";
    if (o->yes)
        return true;
    printf(" Continue? [y/N]: ");
    fflush(stdout);
    return fgets(answer, sizeof(answer), stdin) != NULL && (answer[0] == 'y' || answer[0] == 'Y');
}

static bool cut_off(const char *path, uint64_t size)
{
    int fd;
    if (kv_file_open(path, O_WRONLY, 0, &fd) != KV_OK)
        return false;
    bool fine = kv_file_truncate(fd, size) == KV_OK && kv_file_sync(fd) == KV_OK;
    int error = errno;
    close(fd);
    errno = error;
    return fine;
}

/* True when the file is whole, or was made so. */
static bool check_file(const char *path, const char *name, bool last, const struct options *o)
{
    struct finding f;
    if (!look_at(path, &f)) {
        printf("%s: can't be read: %s\n", name, strerror(errno));
        return false;
    }
    report(name, &f);
    if (f.whole || !o->fix)
        return f.whole;
    if (!f.cut || !last) {
        printf("  %s\n",
               f.cut ? "Only the last file of a log can be cut off." : "Can't be mended.");
        return false;
    }
    printf("  This will shrink the file from %llu bytes to %llu.", (unsigned long long)f.size,
           (unsigned long long)f.good);
    if (!agreed(o)) {
        printf("  Nothing was changed.\n");
        return false;
    }
    if (!cut_off(path, f.good)) {
        printf("  Failed to truncate the file: %s\n", strerror(errno));
        return false;
    }
    printf("  Successfully truncated.\n");
    return true;
}

/* --- logs --- */

static bool journal_failed(enum kv_err err, const struct kv_journal_outcome *j)
{
    if (err == KV_ERR_SYNTAX)
        printf("  FAULT: it can't be applied to %s: %s\n",
               j->file != NULL ? j->file->name : "the log", j->fault);
    else
        printf("  can't be applied: %s\n",
               err == KV_ERR_NOMEM ? kv_err_text(err) : strerror(errno));
    return false;
}

/* What the journal has and its file has not, after a crash of the machine. A journal that lacks
 * nothing is left alone: a server may be writing to it. */
static bool check_journal(const char *folder, const char *name, const struct kv_manifest *m,
                          const struct options *o)
{
    struct kv_journal_outcome j;
    enum kv_err err = kv_journal_recover(folder, name, m, false, &j);
    if (err == KV_ERR_NOTFOUND)
        return true;
    printf("%s" KV_JOURNAL_SUFFIX ": ", name);
    if (err == KV_OK && j.lacking_bytes == 0) {
        printf("the log lacks nothing of it\n");
        return true;
    }
    printf("the journal of appendfsync always\n");
    if (err != KV_OK)
        return journal_failed(err, &j);
    printf("  FAULT: %s lacks %llu bytes that it has\n", j.file->name,
           (unsigned long long)j.lacking_bytes);
    if (!o->fix)
        return false;
    printf("  This will write them back and remove the journal.");
    if (!agreed(o)) {
        printf("  Nothing was changed.\n");
        return false;
    }
    err = kv_journal_recover(folder, name, m, true, &j);
    if (err != KV_OK)
        return journal_failed(err, &j);
    printf("  Successfully written back.\n");
    return true;
}

static bool check_log(const char *folder, const char *name, const struct options *o)
{
    struct kv_manifest m;
    struct kv_manifest_fault fault;
    char path[PATH_MAX];
    enum kv_err err = kv_manifest_load(&m, folder, name, &fault);
    if (err == KV_ERR_SYNTAX) {
        printf("%s.manifest: FAULT in line %u: %s\n", name, fault.line, fault.reason);
        return false;
    }
    if (err != KV_OK) {
        printf("%s.manifest: can't be read: %s\n", name, strerror(errno));
        return false;
    }
    printf("%s.manifest: %u files\n", name, m.count);
    bool whole = check_journal(folder, name, &m, o);
    for (uint32_t i = 0; i < m.count; i++) {
        const struct kv_manifest_file *f = &m.files[i];
        if (f->type == KV_MANIFEST_HISTORY)
            continue;
        if (!kv_manifest_path(path, sizeof(path), folder, f->name, ""))
            whole = false;
        else if (!check_file(path, f->name, kv_manifest_ends_at(&m, folder, i), o))
            whole = false;
    }
    kv_manifest_release(&m);
    return whole;
}

bool kv_check_is_manifest(const char *name, size_t *stem)
{
    static const char suffix[] = ".manifest";
    size_t len = strlen(name);
    *stem = len - (sizeof(suffix) - 1);
    return len >= sizeof(suffix) && strcmp(name + *stem, suffix) == 0;
}

bool kv_check_split_manifest(const char *path, char folder[PATH_MAX], char name[KV_MANIFEST_NAME])
{
    size_t stem;
    if (!kv_check_is_manifest(path, &stem))
        return false;
    const char *slash = strrchr(path, '/');
    const char *base = slash != NULL ? slash + 1 : path;
    int len = snprintf(name, KV_MANIFEST_NAME, "%.*s", (int)(stem - (size_t)(base - path)), base);
    int folder_len = slash == NULL ? snprintf(folder, PATH_MAX, ".")
                     : slash == path
                         ? snprintf(folder, PATH_MAX, "/")
                         : snprintf(folder, PATH_MAX, "%.*s", (int)(slash - path), path);
    return len < KV_MANIFEST_NAME && folder_len < PATH_MAX;
}

static bool check_manifest(const char *path, const struct options *o)
{
    char folder[PATH_MAX], name[KV_MANIFEST_NAME];
    if (kv_check_split_manifest(path, folder, name))
        return check_log(folder, name, o);
    printf("%s: %s\n", path, strerror(ENAMETOOLONG));
    return false;
}

/* The manifests of a folder. */
static bool check_folder(const char *folder, const struct options *o)
{
    DIR *d = opendir(folder);
    bool whole = true;
    uint32_t found = 0;
    size_t stem;
    if (d == NULL) {
        printf("%s: can't be read: %s\n", folder, strerror(errno));
        return false;
    }
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        char path[PATH_MAX];
        if (!kv_check_is_manifest(e->d_name, &stem) ||
            !kv_manifest_path(path, sizeof(path), folder, e->d_name, ""))
            continue;
        found++;
        if (!check_manifest(path, o))
            whole = false;
    }
    closedir(d);
    if (found == 0)
        printf("%s: no manifest of an append-only log is here\n", folder);
    return whole && found > 0;
}

static bool check_path(const char *path, const struct options *o)
{
    struct stat st;
    size_t stem;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return check_folder(path, o);
    if (kv_check_is_manifest(path, &stem))
        return check_manifest(path, o);
    return check_file(path, path, true, o);
}

static int usage(FILE *to, int status)
{
    fputs("Usage: kvik-check [--fix] [--yes] FILE|DIR ...\n"
          "       kvik-check --to-rdb NEWFILE FILE|DIR\n"
          "       kvik-check --to-aof NEWDIR FILE|DIR\n"
          "       FILE: an RDB file, an append-only file, or the manifest of a log\n"
          "       DIR: the folder of a log\n"
          "       --fix: write back what a log lacks and its journal has, cut off what is\n"
          "              not whole at its end; after asking\n"
          "       --yes: do not ask\n"
          "       --to-rdb: write the data of FILE or DIR into a new RDB file\n"
          "       --to-aof: write them into the new folder of a log\n"
          "       --help: this text\n",
          to);
    return status;
}

static enum kv_convert_form convert_form(const char *word)
{
    if (strcmp(word, "--to-rdb") == 0)
        return KV_CONVERT_TO_RDB;
    return strcmp(word, "--to-aof") == 0 ? KV_CONVERT_TO_AOF : KV_CONVERT_NONE;
}

int kv_check_main(int argc, char *const *argv)
{
    struct options o = {0};
    int paths = 0;
    bool whole = true;
    if (argc == 4 && convert_form(argv[1]) != KV_CONVERT_NONE)
        return kv_convert(convert_form(argv[1]), argv[2], argv[3]);
    if (argc == 2 && strcmp(argv[1], "--help") == 0)
        return usage(stdout, 0);
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--fix") == 0)
            o.fix = true;
        else if (strcmp(argv[i], "--yes") == 0)
            o.yes = true;
        else if (argv[i][0] == '-' && argv[i][1] != '\0')
            return usage(stderr, 2);
        else
            paths++;
    }
    if (paths == 0)
        return usage(stderr, 2);
    for (int i = 1; i < argc; i++)
        if (argv[i][0] != '-' && !check_path(argv[i], &o))
            whole = false;
    puts(whole ? "All files are in order." : "Not everything is in order.");
    return whole ? 0 : 1;
}
