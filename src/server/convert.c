/* Turning a log into an RDB file and back.
 *
 * An engine of its own loads the source as a server would at its start: an RDB file, or file by
 * file what a manifest names. Then its keyspace is written, with nothing left out: keys that are
 * due are in the source and stay in the copy, since whoever loads that decides. Functions are
 * loaded like all else; data of modules goes through as it is (rdb_file.h), as do values of types
 * that are not built.
 *
 * A log that is made has a base in the RDB format and no incr file; the server that opens it makes
 * one. The folder is put together under another name beside its own. Both kinds of result get
 * their name last, when all of it is on disk, and only if nothing has that name.
 *
 * The source is only read. So a log whose end is cut off, or which lacks what its journal has, is
 * refused: --fix comes first, and its user sees what that costs.
 *
 * Rejected: copying an RDB file into a folder byte by byte (a file of another version, or of
 * Valkey, would stay one, and faults would be copied); running commands without an engine.
 */
#include "server/convert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "cmd/table.h"
#include "engine/engine.h"
#include "persist/aof_load.h"
#include "persist/journal.h"
#include "persist/manifest.h"
#include "persist/rdb_libraries.h"
#include "server/check.h"
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOG_NAME "appendonly.aof"
#define DATABASES_MAX 65535

struct conversion {
    struct kv_engine *engine;
    struct kv_rdb_kept kept;
    uint64_t keys, commands; /* read */
};

static bool complain(const char *path, const char *why)
{
    printf("%s: %s\n", path, why);
    return false;
}

/* --- reading --- */

static bool load_file(struct conversion *c, const char *path, const char *name)
{
    /* Not the last file, and no rules: nothing is cut off. */
    struct kv_aof_source source = {.path = path, .name = name, .kept = &c->kept};
    struct kv_aof_loaded loaded;
    enum kv_err err = kv_aof_load_file(c->engine, &source, &loaded);
    c->keys += loaded.keys;
    c->commands += loaded.commands;
    /* Why is in the log. */
    return err == KV_OK || complain(path, "can't be loaded");
}

/* What the journal of a log has and its file lacks is missing. */
static bool journal_is_empty(const char *folder, const char *name, const struct kv_manifest *m)
{
    struct kv_journal_outcome j;
    enum kv_err err = kv_journal_recover(folder, name, m, false, &j);
    if (err == KV_ERR_NOTFOUND || (err == KV_OK && j.lacking_bytes == 0))
        return true;
    return complain(folder, "the journal has what the log lacks: use kvik-check --fix first");
}

static bool load_log(struct conversion *c, const char *folder, const char *name)
{
    struct kv_manifest m;
    struct kv_manifest_fault fault;
    char path[PATH_MAX];
    enum kv_err err = kv_manifest_load(&m, folder, name, &fault);
    if (err == KV_ERR_SYNTAX)
        return complain(folder, fault.reason);
    if (err != KV_OK)
        return complain(folder, strerror(errno));
    bool fine = journal_is_empty(folder, name, &m);
    for (uint32_t i = 0; i < m.count && fine; i++) {
        const struct kv_manifest_file *f = &m.files[i];
        if (f->type != KV_MANIFEST_HISTORY)
            fine = kv_manifest_path(path, sizeof(path), folder, f->name, "") &&
                   load_file(c, path, f->name);
    }
    kv_manifest_release(&m);
    return fine;
}

/* A folder with one manifest. */
static bool load_folder(struct conversion *c, const char *folder)
{
    char name[KV_MANIFEST_NAME] = "";
    uint32_t found = 0;
    size_t stem;
    DIR *d = opendir(folder);
    if (d == NULL)
        return complain(folder, strerror(errno));
    for (struct dirent *e; (e = readdir(d)) != NULL;) {
        if (!kv_check_is_manifest(e->d_name, &stem) || stem >= sizeof(name))
            continue;
        snprintf(name, sizeof(name), "%.*s", (int)stem, e->d_name);
        found++;
    }
    closedir(d);
    if (found == 1)
        return load_log(c, folder, name);
    return complain(folder, found == 0 ? "no manifest of an append-only log is here"
                                       : "several logs are here: name the manifest of one");
}

static bool load_source(struct conversion *c, const char *path)
{
    char folder[PATH_MAX], name[KV_MANIFEST_NAME];
    struct stat st;
    if (stat(path, &st) != 0)
        return complain(path, strerror(errno));
    if (S_ISDIR(st.st_mode))
        return load_folder(c, path);
    if (kv_check_split_manifest(path, folder, name))
        return load_log(c, folder, name);
    return load_file(c, path, path);
}

/* --- writing --- */

static struct kv_view view_of(const struct conversion *c, struct kv_store_stats *stats)
{
    /* At this time nothing is due yet. */
    return (struct kv_view){.store = kv_engine_store(c->engine), .stats = stats, .now_ms = 0};
}

/* Under another name first, which is given back in any case. */
static bool write_data(const struct conversion *c, const char *path, bool is_base)
{
    struct kv_store_stats stats = {0};
    struct kv_view view = view_of(c, &stats);
    struct kv_rdb_kept kept = c->kept;
    if (kv_rdb_libraries_collect(c->engine, &kept.libraries) != KV_OK)
        return complain(path, kv_err_text(KV_ERR_NOMEM));
    struct kv_rdb_save_options o = {
        .notes = {.saved_at = kv_clock_wall_ms() / 1000, .is_aof_base = is_base},
        .kept = &kept,
        .compress = true,
        .checksums = true,
    };
    int error = 0;
    enum kv_err err = kv_rdb_save_path(path, &view, &o, &error);
    kv_rdb_bytes_release(&kept.libraries);
    if (err == KV_OK)
        return true;
    return complain(path, err == KV_ERR_IO ? strerror(error) : kv_err_text(err));
}

/* Gives what lies at `from` its name, if nothing has it. */
static bool give_name(const char *from, const char *to)
{
    return kv_file_rename_new(from, to) == KV_OK || complain(to, strerror(errno));
}

static bool write_file(const struct conversion *c, const char *path, const char *temporary)
{
    if (!write_data(c, temporary, false))
        return false;
    if (give_name(temporary, path))
        return true;
    unlink(temporary);
    return false;
}

/* Files of a log in a new folder; on failure some may be there. */
static bool fill_folder(const struct conversion *c, const char *folder)
{
    struct kv_manifest m;
    char path[PATH_MAX];
    kv_manifest_init(&m);
    const struct kv_manifest_file *base = kv_manifest_add_base(&m, LOG_NAME, "rdb", 1);
    bool fine =
        kv_manifest_path(path, sizeof(path), folder, base->name, "") && write_data(c, path, true);
    if (fine && kv_manifest_store(&m, folder, LOG_NAME) != KV_OK)
        fine = complain(folder, strerror(errno));
    kv_manifest_release(&m);
    return fine;
}

static void remove_folder(const char *folder)
{
    char path[PATH_MAX];
    if (kv_manifest_path(path, sizeof(path), folder, LOG_NAME ".1.base.rdb", ""))
        unlink(path);
    if (kv_manifest_path(path, sizeof(path), folder, LOG_NAME ".manifest", ""))
        unlink(path);
    rmdir(folder);
}

static bool write_folder(const struct conversion *c, const char *path, const char *temporary)
{
    if (mkdir(temporary, 0755) != 0)
        return complain(temporary, strerror(errno));
    if (fill_folder(c, temporary) && give_name(temporary, path))
        return true;
    remove_folder(temporary);
    return false;
}

/* A name beside `path`, which itself must be free. */
static bool choose_name(const char *path, char temporary[PATH_MAX])
{
    struct stat st;
    size_t len = strlen(path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    int n = snprintf(temporary, PATH_MAX, "%.*s.%ld.new", (int)len, path, (long)getpid());
    if (n < 0 || n >= PATH_MAX)
        return complain(path, strerror(ENAMETOOLONG));
    if (lstat(path, &st) == 0)
        return complain(path, "is there already, and nothing is overwritten");
    return errno == ENOENT || complain(path, strerror(errno));
}

/* --- all of it --- */

static struct kv_engine *create_engine(void)
{
    struct kv_options o;
    kv_options_default(&o);
    o.databases = DATABASES_MAX;
    return kv_engine_create(&o, &kv_command_table);
}

static bool convert(struct conversion *c, enum kv_convert_form form, const char *to,
                    const char *from)
{
    char temporary[PATH_MAX];
    if (!choose_name(to, temporary) || !load_source(c, from))
        return false;
    bool fine =
        form == KV_CONVERT_TO_RDB ? write_file(c, to, temporary) : write_folder(c, to, temporary);
    if (!fine)
        return false;
    uint64_t keys = 0;
    for (uint32_t db = 0; db < DATABASES_MAX; db++)
        keys += kv_store_size(kv_engine_store(c->engine), db);
    printf("%s: %llu keys and %llu commands read\n%s: %llu keys written\n", from,
           (unsigned long long)c->keys, (unsigned long long)c->commands, to,
           (unsigned long long)keys);
    return true;
}

int kv_convert(enum kv_convert_form form, const char *to, const char *from)
{
    struct conversion c = {0};
    kv_log_set_level(KV_LOG_WARNING);
    c.engine = create_engine();
    bool fine = convert(&c, form, to, from);
    kv_worker_detach(kv_engine_worker(c.engine, 0));
    kv_rdb_kept_release(&c.kept);
    kv_engine_destroy(c.engine);
    if (!fine)
        puts("Nothing was written.");
    return fine ? 0 : 1;
}
