/* Records of libraries: written from what the engine's owner of functions has, read into it.
 *
 * Reading a file only collects the records, since whoever reads is not always one who may load
 * libraries: the thread that goes through a file while workers serve is not. They are loaded when
 * the file was read, and before commands that follow it in a log.
 */
#include "persist/rdb_libraries.h"
#include "base/log.h"
#include "engine/engine.h"
#include "persist/rdb_format.h"
#include <stdio.h>

static bool put_library(void *arg, struct kv_slice code)
{
    struct kv_rdb_writer *w = arg;
    kv_rdb_put_byte(w, KV_RDB_OP_FUNCTION2);
    kv_rdb_put_string(w, code);
    return w->err == KV_OK;
}

void kv_rdb_put_libraries(struct kv_rdb_writer *w, struct kv_engine *e)
{
    const struct kv_library_ops *ops = kv_library_ops(e);
    if (ops != NULL)
        (void)ops->each(e, put_library, w);
}

enum kv_err kv_rdb_libraries_collect(struct kv_engine *e, struct kv_rdb_bytes *out)
{
    struct kv_rdb_writer w;
    KV_ASSERT(out->ptr == NULL);
    kv_rdb_writer_init(&w);
    w.compress = kv_engine_options(e)->rdb_compression;
    w.checksums = false; /* that of the file counts */
    kv_rdb_put_libraries(&w, e);
    enum kv_err err = w.err;
    if (err == KV_OK) {
        *out = w.buf;
        w.buf = (struct kv_rdb_bytes){0};
    }
    kv_rdb_writer_release(&w);
    return err;
}

bool kv_rdb_take_library(struct kv_rdb_reader *r, struct kv_rdb_string *code, bool *fine,
                         bool *foreign)
{
    uint8_t opcode;
    *foreign = false;
    *fine = kv_rdb_at_end(r);
    if (*fine || !kv_rdb_take_byte(r, &opcode))
        return false;
    *foreign = opcode != KV_RDB_OP_FUNCTION2;
    return !*foreign && kv_rdb_take_string(r, code, true);
}

static bool load_all(struct kv_engine *e, struct kv_rdb_reader *r, bool replace,
                     char error[KV_LIBRARY_ERROR_MAX])
{
    const struct kv_library_ops *ops = kv_library_ops(e);
    struct kv_rdb_string code = {0};
    bool loaded = true, fine = false, foreign;
    snprintf(error, KV_LIBRARY_ERROR_MAX, "ERR records of libraries are not whole");
    while (loaded && kv_rdb_take_library(r, &code, &fine, &foreign))
        loaded = ops->load(e, code.text, replace, error);
    kv_rdb_string_release(&code);
    return loaded && fine;
}

bool kv_rdb_libraries_load(struct kv_engine *e, struct kv_rdb_bytes *records, bool replace,
                           char error[KV_LIBRARY_ERROR_MAX])
{
    struct kv_rdb_reader r;
    bool fine = true;
    if (records->len > 0 && kv_library_ops(e) != NULL) {
        kv_rdb_reader_init(&r, kv_slice((const char *)records->ptr, records->len));
        fine = load_all(e, &r, replace, error);
        kv_rdb_reader_release(&r);
    }
    kv_rdb_bytes_release(records);
    if (!fine)
        kv_log(KV_LOG_WARNING, "Failed creating the library: %s", error);
    return fine;
}

void kv_rdb_libraries_clear(struct kv_engine *e)
{
    if (kv_library_ops(e) != NULL)
        kv_library_ops(e)->clear(e);
}
