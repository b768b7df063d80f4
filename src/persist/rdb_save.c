/* Writing RDB files: see rdb_file.h for the order of the pieces.
 *
 * The version stands in the first nine bytes, but what it has to be is known at the end. It starts
 * as the lowest and is patched when an entry has needed more, sum included; so a file is written in
 * one pass and loads wherever it can.
 *
 * Notes are those that Redis writes, so that its tools show them: version, word size, time, memory,
 * whether the file is the base of a log, and where replication stood.
 */
#include "base/file.h"
#include "base/number.h"
#include "base/version.h"
#include "persist/rdb_quick.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#define MAGIC_BYTES 9u

void kv_rdb_kept_release(struct kv_rdb_kept *k)
{
    kv_rdb_bytes_release(&k->before);
    kv_rdb_bytes_release(&k->behind);
    kv_rdb_bytes_release(&k->libraries);
}

static void write_magic(char out[MAGIC_BYTES + 1], uint32_t version)
{
    snprintf(out, MAGIC_BYTES + 1, "REDIS%04u", version % 10000);
}

static void put_note(struct kv_rdb_writer *w, const char *name, struct kv_slice value)
{
    kv_rdb_put_byte(w, KV_RDB_OP_AUX);
    kv_rdb_put_string(w, kv_slice_cstr(name));
    kv_rdb_put_string(w, value);
}

static void put_note_int(struct kv_rdb_writer *w, const char *name, int64_t value)
{
    char digits[KV_INT_TEXT_MAX];
    put_note(w, name, kv_slice(digits, kv_int_print(value, digits)));
}

void kv_rdb_put_head(struct kv_rdb_writer *w, const struct kv_rdb_notes *notes,
                     const struct kv_rdb_kept *kept)
{
    char magic[MAGIC_BYTES + 1];
    KV_ASSERT(kv_rdb_writer_offset(w) == 0);
    write_magic(magic, KV_RDB_VERSION_MIN);
    w->version = KV_RDB_VERSION_MIN;
    kv_rdb_put(w, magic, MAGIC_BYTES);
    put_note(w, "redis-ver", KV_SLICE(KV_REDIS_VERSION));
    put_note_int(w, "redis-bits", 64);
    put_note_int(w, "ctime", notes->saved_at);
    put_note_int(w, "used-mem", (int64_t)notes->used_bytes);
    put_note_int(w, "aof-base", notes->is_aof_base);
    if (notes->has_repl) {
        put_note_int(w, "repl-stream-db", notes->repl_db);
        put_note(w, "repl-id", kv_slice_cstr(notes->repl_id));
        put_note_int(w, "repl-offset", notes->repl_offset);
    }
    if (kept == NULL)
        return;
    kv_rdb_put(w, kept->libraries.ptr, kept->libraries.len);
    kv_rdb_put(w, kept->before.ptr, kept->before.len);
}

void kv_rdb_put_database(struct kv_rdb_writer *w, uint32_t db, uint64_t keys, uint64_t expires)
{
    kv_rdb_put_byte(w, KV_RDB_OP_SELECTDB);
    kv_rdb_put_len(w, db);
    kv_rdb_put_byte(w, KV_RDB_OP_RESIZEDB);
    kv_rdb_put_len(w, keys);
    kv_rdb_put_len(w, expires);
}

void kv_rdb_put_entry_head(struct kv_rdb_writer *w, const struct kv_view *v,
                           const struct kv_entry *e, uint32_t flags)
{
    uint8_t form = kv_rdb_form(e);
    w->version = KV_MAX(w->version, kv_rdb_form_version(form));
    if (kv_entry_has_expiry(e)) {
        kv_rdb_put_byte(w, KV_RDB_OP_EXPIRETIME_MS);
        kv_rdb_put_uint64(w, (uint64_t)kv_entry_expiry(e));
    }
    if (flags & KV_RDB_WITH_IDLE) {
        kv_rdb_put_byte(w, KV_RDB_OP_IDLE);
        kv_rdb_put_len(w, kv_entry_idle_seconds(e, v->now_ms));
    }
    if (flags & KV_RDB_WITH_FREQUENCY) {
        kv_rdb_put_byte(w, KV_RDB_OP_FREQ);
        kv_rdb_put_byte(w, (uint8_t)kv_store_frequency(v, e));
    }
    kv_rdb_put_byte(w, form);
    kv_rdb_put_string(w, kv_entry_key(e));
}

void kv_rdb_put_entry(struct kv_rdb_writer *w, const struct kv_view *v, const struct kv_entry *e,
                      uint32_t flags)
{
    struct kv_rdb_quick q;
    if (KV_LIKELY(kv_rdb_quick_of(e, &q))) {
        uint8_t *out = kv_rdb_writer_room(w, q.most);
        if (KV_LIKELY(out != NULL))
            kv_rdb_writer_used(w, kv_rdb_quick_write(&q, v, e, flags, w->compress, out));
        return;
    }
    kv_rdb_put_entry_head(w, v, e, flags);
    kv_rdb_put_value(w, e);
}

void kv_rdb_put_tail(struct kv_rdb_writer *w, const struct kv_rdb_kept *kept)
{
    char was[MAGIC_BYTES + 1], is[MAGIC_BYTES + 1];
    if (kept != NULL)
        kv_rdb_put(w, kept->behind.ptr, kept->behind.len);
    kv_rdb_put_byte(w, KV_RDB_OP_EOF);
    if (w->err != KV_OK)
        return;
    if (w->version > KV_RDB_VERSION_MIN) {
        write_magic(was, KV_RDB_VERSION_MIN);
        write_magic(is, w->version);
        if (kv_rdb_writer_patch(w, 0, was, is, MAGIC_BYTES) != KV_OK)
            return;
    }
    kv_rdb_put_uint64(w, w->checksums ? kv_rdb_writer_checksum(w) : 0);
}

struct save {
    struct kv_rdb_writer *w;
    const struct kv_view *view;
    uint32_t flags;
};

static void save_entry(struct kv_entry *e, void *arg)
{
    const struct save *s = arg;
    kv_rdb_put_entry(s->w, s->view, e, s->flags);
}

enum kv_err kv_rdb_save(struct kv_rdb_writer *w, struct kv_view *v,
                        const struct kv_rdb_notes *notes, const struct kv_rdb_kept *kept,
                        uint32_t flags)
{
    struct save s = {w, v, flags};
    uint32_t selected = v->db;
    kv_rdb_put_head(w, notes, kept);
    for (v->db = 0; v->db < kv_store_database_count(v->store); v->db++) {
        uint64_t keys = kv_store_size(v->store, v->db);
        if (keys == 0)
            continue;
        kv_rdb_put_database(w, v->db, keys, kv_store_expires(v->store, v->db));
        kv_store_each(v, save_entry, &s);
    }
    v->db = selected;
    kv_rdb_put_tail(w, kept);
    return w->fd >= 0 ? kv_rdb_writer_flush(w) : w->err;
}

/* All of a temporary file; it is closed afterwards in any case. */
static enum kv_err write_temporary(int fd, struct kv_view *v, const struct kv_rdb_save_options *o,
                                   int *error)
{
    struct kv_rdb_writer w;
    kv_rdb_writer_init_fd(&w, fd);
    w.compress = o->compress;
    w.checksums = o->checksums;
    w.sync_bytes = o->incremental_sync ? KV_RDB_SYNC_BYTES : 0;
    enum kv_err err = kv_rdb_save(&w, v, &o->notes, o->kept, o->flags);
    *error = w.error;
    kv_rdb_writer_release(&w);
    if (err == KV_OK && kv_file_sync(fd) != KV_OK) {
        *error = errno;
        err = KV_ERR_IO;
    }
    if (close(fd) != 0 && err == KV_OK) {
        *error = errno;
        err = KV_ERR_IO;
    }
    return err;
}

enum kv_err kv_rdb_save_path(const char *path, struct kv_view *v,
                             const struct kv_rdb_save_options *o, int *error)
{
    char temporary[PATH_MAX];
    int fd;
    int len = snprintf(temporary, sizeof(temporary), "%s.%d.temp", path, (int)getpid());
    *error = ENAMETOOLONG;
    if (len < 0 || (size_t)len >= sizeof(temporary))
        return KV_ERR_IO;
    enum kv_err err = kv_file_open(temporary, O_WRONLY | O_CREAT | O_TRUNC, 0644, &fd);
    *error = errno;
    if (err != KV_OK)
        return err;
    err = write_temporary(fd, v, o, error);
    if (err == KV_OK) {
        err = kv_file_rename(temporary, path);
        *error = errno;
    }
    if (err != KV_OK)
        unlink(temporary);
    return err;
}
