/* Reading RDB files: a loop over records, each announced by a byte.
 *
 * What stands before a key (due time, use) is collected until the key comes. Records of other
 * servers that mean nothing here are walked over: sizes, slots of a cluster, slots being imported.
 * Modules' data is recorded as it is, so that saving gives it back, and libraries of functions, for
 * whoever loads them.
 *
 * Key by key: the name is kept, then the value goes straight into the keyspace, or is walked over
 * when the key is due. The reader's fault says where a damaged file stopped making sense.
 */
#include "base/number.h"
#include "persist/rdb_file.h"
#include "persist/rdb_foreign.h"
#include <stdio.h>

#define MAGIC_BYTES 9u
#define RECORD_BYTES_LEAST 8u /* shorter ones are not expected: tables are not made for them */

/* A file that is being read. */
struct loading {
    struct kv_rdb_reader *r;
    struct kv_view *v;
    struct kv_rdb_load *l;
    struct kv_rdb_loader values;
    struct kv_rdb_string key, note;
    struct kv_rdb_record next; /* what is known of the next key */
    uint64_t reported;         /* offset of the last progress */
    bool in_database;          /* records belong behind the databases now */
    bool pending;              /* something is known of the next key */
    bool gave_up;
};

/* --- head --- */

static bool take_magic(struct loading *f)
{
    char magic[MAGIC_BYTES + 1] = {0};
    int64_t version;
    if (!kv_rdb_take(f->r, magic, MAGIC_BYTES))
        return false;
    f->l->valkey = memcmp(magic, "VALKEY", 6) == 0;
    if (!f->l->valkey && memcmp(magic, "REDIS", 5) != 0)
        return KV_RDB_BAD(f->r, "the file does not begin as an RDB file does");
    const char *digits = magic + (f->l->valkey ? 6 : 5);
    while (*digits == '0' && digits[1] != '\0')
        digits++;
    if (!kv_int_parse(kv_slice_cstr(digits), &version) || version < 1)
        return KV_RDB_BAD(f->r, "the file does not begin as an RDB file does");
    if (version > (f->l->valkey ? KV_RDB_VALKEY_MAX : KV_RDB_VERSION_MAX))
        return KV_RDB_BAD(f->r, "version %lld of the format is not known", (long long)version);
    f->l->version = (uint32_t)version;
    f->r->valkey = f->l->valkey;
    return true;
}

static void note_text(char *out, size_t size, struct kv_slice value)
{
    snprintf(out, size, "%.*s", (int)KV_MIN(value.len, size), value.ptr);
}

/* A note about the file. Unknown ones mean nothing, as the format says. */
static bool take_note(struct loading *f)
{
    struct kv_rdb_notes *n = &f->l->notes;
    int64_t number = 0;
    if (!kv_rdb_take_string(f->r, &f->key, true) || !kv_rdb_take_string(f->r, &f->note, true))
        return false;
    struct kv_slice name = f->key.text, value = f->note.text;
    bool is_number = kv_int_parse(value, &number);
    if (kv_slice_equal(name, KV_SLICE("redis-ver")) || kv_slice_equal(name, KV_SLICE("valkey-ver")))
        note_text(n->server_version, sizeof(n->server_version), value);
    else if (kv_slice_equal(name, KV_SLICE("ctime")) && is_number)
        n->saved_at = number;
    else if (kv_slice_equal(name, KV_SLICE("used-mem")) && is_number && number >= 0)
        n->used_bytes = (uint64_t)number;
    else if (kv_slice_equal(name, KV_SLICE("aof-base")) ||
             kv_slice_equal(name, KV_SLICE("aof-preamble")))
        n->is_aof_base = is_number && number != 0;
    else if (kv_slice_equal(name, KV_SLICE("repl-stream-db")) && is_number)
        n->repl_db = number;
    else if (kv_slice_equal(name, KV_SLICE("repl-offset")) && is_number)
        n->repl_offset = number;
    else if (kv_slice_equal(name, KV_SLICE("repl-id")) && value.len == KV_RDB_REPL_ID) {
        n->has_repl = true;
        note_text(n->repl_id, sizeof(n->repl_id), value);
    }
    return true;
}

/* --- records that are kept or walked over --- */

static bool skip_lens(struct kv_rdb_reader *r, uint64_t count)
{
    uint64_t number;
    while (count-- > 0)
        if (!kv_rdb_take_len(r, &number))
            return false;
    return true;
}

/* A function's library, or data of a module about the file: its bytes and the byte before them. */
static bool keep_record(struct loading *f, uint8_t opcode)
{
    struct kv_rdb_kept *kept = f->l->kept;
    struct kv_rdb_bytes *to = NULL;
    if (kept != NULL && opcode == KV_RDB_OP_FUNCTION2)
        to = &kept->libraries;
    else if (kept != NULL)
        to = f->in_database ? &kept->behind : &kept->before;
    size_t before = to != NULL ? to->len : 0;
    uint64_t module;
    if (to != NULL) {
        if (!kv_rdb_bytes_append(to, &opcode, 1))
            return kv_rdb_fail_memory(f->r);
        kv_rdb_record_begin(f->r, to);
    }
    bool walked = opcode == KV_RDB_OP_MODULE_AUX
                      ? kv_rdb_take_len(f->r, &module) && kv_rdb_skip_module_parts(f->r)
                      : kv_rdb_skip_string(f->r);
    bool recorded = to == NULL || kv_rdb_record_end(f->r);
    if (to != NULL && !(walked && recorded))
        to->len = before;
    return walked && recorded;
}

/* Of modules, for the next key. */
static bool skip_metadata(struct loading *f)
{
    uint64_t count;
    if (!kv_rdb_take_len(f->r, &count))
        return false;
    f->l->metadata++;
    while (count-- > 0)
        if (!kv_rdb_skip(f->r, 4) || !kv_rdb_skip_module_parts(f->r))
            return false;
    return true;
}

/* Valkey's slots that were being imported. The byte is that of metadata in files of Redis. */
static bool skip_imports(struct loading *f)
{
    uint64_t count;
    return kv_rdb_skip_string(f->r) && kv_rdb_take_len(f->r, &count) &&
           (count <= UINT64_MAX / 2 || KV_RDB_BAD(f->r, "too many slots")) &&
           skip_lens(f->r, 2 * count);
}

static bool take_database(struct loading *f)
{
    uint64_t db;
    if (!kv_rdb_take_len(f->r, &db))
        return false;
    f->in_database = true;
    f->l->expected = 0;
    if (db >= kv_store_database_count(f->v->store))
        return KV_RDB_BAD(f->r, "the file has database %llu, but there are %u",
                          (unsigned long long)db, kv_store_database_count(f->v->store));
    f->v->db = (uint32_t)db;
    return true;
}

static bool take_sizes(struct loading *f)
{
    uint64_t keys, expires;
    if (!kv_rdb_take_len(f->r, &keys) || !kv_rdb_take_len(f->r, &expires))
        return false;
    f->l->announced += KV_MIN(keys, UINT64_MAX - f->l->announced);
    uint64_t left = kv_rdb_left(f->r);
    f->l->expected = left == UINT64_MAX ? 0 : KV_MIN(keys, left / RECORD_BYTES_LEAST);
    return true;
}

/* --- keys --- */

static bool take_expiry(struct loading *f, bool in_ms)
{
    uint64_t ms;
    uint32_t seconds;
    if (in_ms) {
        if (!kv_rdb_take_uint64(f->r, &ms))
            return false;
        f->next.expiry = (int64_t)ms;
    } else {
        if (!kv_rdb_take_uint32(f->r, &seconds))
            return false;
        f->next.expiry = (int64_t)(int32_t)seconds * 1000;
    }
    /* Times that we cannot tell are as good as the last one that we can. */
    f->next.expiry = KV_MAX(KV_MIN(f->next.expiry, KV_EXPIRY_MAX), (int64_t)0);
    return true;
}

static enum kv_rdb_result take_or_put(struct kv_rdb_loader *loader, uint8_t form,
                                      struct kv_rdb_target *t, struct kv_rdb_built *built)
{
    if (built == NULL)
        return kv_rdb_take_value(loader, form, t);
    return kv_rdb_put_built(loader->view, loader->reader, t, built);
}

bool kv_rdb_put_record(struct kv_rdb_loader *loader, const struct kv_rdb_record *record,
                       const struct kv_key *k, struct kv_rdb_built *built, struct kv_rdb_load *l)
{
    struct kv_view *v = loader->view;
    struct kv_rdb_target t = {.key = k, .expiry = record->expiry};
    KV_DASSERT(v->db == record->db);
    t.entry = kv_store_write(v, k);
    if (t.entry != NULL && !l->merge)
        return KV_RDB_BAD(loader->reader, "a key comes twice");
    switch (take_or_put(loader, record->form, &t, built)) {
    case KV_RDB_FAILED:
        return false;
    case KV_RDB_EMPTY:
        l->empty++;
        return true;
    default:
        break;
    }
    l->keys++;
    if (record->idle_seconds >= 0 || record->frequency >= 0) {
        struct kv_entry *e = kv_store_peek(v, k);
        if (e != NULL && record->idle_seconds >= 0)
            kv_store_set_idle_seconds(v, e, (uint64_t)record->idle_seconds);
        if (e != NULL && record->frequency >= 0)
            kv_store_set_frequency(v, e, (uint32_t)record->frequency);
    }
    return true;
}

static bool put_key(struct loading *f)
{
    f->next.db = f->v->db;
    f->next.name = f->key.text;
    struct kv_key k = kv_store_key(f->v->store, f->key.text);
    return kv_rdb_put_record(&f->values, &f->next, &k, NULL, f->l);
}

static const struct kv_rdb_record nothing_known = {
    .expiry = KV_NO_EXPIRY, .idle_seconds = -1, .frequency = -1};

static bool take_key(struct loading *f, uint8_t form)
{
    bool done;
    f->pending = false;
    if (f->l->walk != NULL)
        return f->l->walk->key(f->l->arg, f->r, form);
    if (!kv_rdb_take_string(f->r, &f->key, true))
        return false;
    if (f->next.expiry != KV_NO_EXPIRY && f->next.expiry <= f->v->now_ms && !f->l->keep_due) {
        f->l->expired++;
        done = kv_rdb_skip_value(f->r, form);
    } else {
        f->next.form = form;
        done = put_key(f);
    }
    f->next = nothing_known;
    return done;
}

static bool take_use(struct loading *f, uint8_t opcode)
{
    uint64_t seconds;
    uint8_t counter;
    if (opcode == KV_RDB_OP_FREQ) {
        if (!kv_rdb_take_byte(f->r, &counter))
            return false;
        f->next.frequency = counter;
        return true;
    }
    if (!kv_rdb_take_len(f->r, &seconds))
        return false;
    f->next.idle_seconds = (int64_t)KV_MIN(seconds, (uint64_t)INT64_MAX);
    return true;
}

/* --- the loop --- */

/* What is told of the next key before it; *of_key false: the byte begins something else. */
static bool take_of_key(struct loading *f, uint8_t byte, bool *of_key)
{
    *of_key = true;
    switch (byte) {
    case KV_RDB_OP_EXPIRETIME:
        return take_expiry(f, false);
    case KV_RDB_OP_EXPIRETIME_MS:
        return take_expiry(f, true);
    case KV_RDB_OP_IDLE:
    case KV_RDB_OP_FREQ:
        return take_use(f, byte);
    case KV_RDB_OP_KEY_META:
        if (!f->l->valkey)
            return skip_metadata(f);
        break;
    default:
        break;
    }
    *of_key = false;
    return true;
}

static bool take_other(struct loading *f, uint8_t byte)
{
    if (f->pending)
        return KV_RDB_BAD(f->r, "what is told of a key is not followed by one");
    if (f->l->walk != NULL && !f->l->walk->other(f->l->arg, f->r))
        return false;
    switch (byte) {
    case KV_RDB_OP_AUX:
        return take_note(f);
    case KV_RDB_OP_SELECTDB:
        return take_database(f);
    case KV_RDB_OP_RESIZEDB:
        return take_sizes(f);
    case KV_RDB_OP_FUNCTION2:
    case KV_RDB_OP_MODULE_AUX:
        return keep_record(f, byte);
    case KV_RDB_OP_SLOT_INFO:
        return skip_lens(f->r, 3);
    case KV_RDB_OP_KEY_META:
        return skip_imports(f);
    default:
        return KV_RDB_BAD(f->r, "functions of a candidate of Redis 7.0 cannot be read");
    }
}

static bool is_other(uint8_t byte)
{
    switch (byte) {
    case KV_RDB_OP_AUX:
    case KV_RDB_OP_SELECTDB:
    case KV_RDB_OP_RESIZEDB:
    case KV_RDB_OP_FUNCTION:
    case KV_RDB_OP_FUNCTION2:
    case KV_RDB_OP_MODULE_AUX:
    case KV_RDB_OP_SLOT_INFO:
    case KV_RDB_OP_KEY_META:
        return true;
    default:
        return false;
    }
}

/* Something before a key has a fault: whoever walks may know a way to take them. */
static bool walk_apart(struct loading *f)
{
    f->pending = false;
    return f->l->walk != NULL && f->l->walk->apart(f->l->arg, f->r);
}

static bool take_record(struct loading *f, uint8_t byte)
{
    bool of_key;
    if (!take_of_key(f, byte, &of_key))
        return walk_apart(f);
    if (of_key) {
        f->pending = true;
        return true;
    }
    return is_other(byte) ? take_other(f, byte) : take_key(f, byte);
}

bool kv_rdb_next_record(struct kv_rdb_reader *r, struct kv_rdb_load *l,
                        struct kv_rdb_record *record, struct kv_rdb_string *name)
{
    struct loading f = {.r = r, .l = l, .next = nothing_known};
    bool of_key;
    do {
        if (!kv_rdb_take_byte(r, &f.next.form) || !take_of_key(&f, f.next.form, &of_key))
            return false;
    } while (of_key);
    if (f.next.form == KV_RDB_OP_EOF || is_other(f.next.form))
        return KV_RDB_BAD(r, "what is told of a key is not followed by one");
    if (!kv_rdb_take_string(r, name, true))
        return false;
    f.next.name = name->text;
    *record = f.next;
    return true;
}

static bool report(struct loading *f)
{
    uint64_t offset = kv_rdb_reader_offset(f->r);
    if (f->l->progress_bytes == 0 || offset - f->reported < f->l->progress_bytes)
        return true;
    f->reported = offset;
    f->gave_up = !f->l->progress(f->l->arg, f->l, offset);
    return !f->gave_up;
}

static bool take_tail(struct loading *f)
{
    uint64_t sum = kv_rdb_reader_checksum(f->r), told;
    if (f->l->version < 5 && !f->l->valkey)
        return true;
    if (!kv_rdb_take_uint64(f->r, &told))
        return false;
    if (f->r->checksums && told != 0 && told != sum)
        return KV_RDB_BAD(f->r, "the checksum is wrong");
    return true;
}

static bool take_all(struct loading *f)
{
    uint8_t byte;
    if (!take_magic(f))
        return false;
    for (;;) {
        if (!report(f))
            return false;
        if (f->l->walk != NULL && !f->pending)
            f->l->walk->begin(f->l->arg, f->r);
        if (!kv_rdb_take_byte(f->r, &byte)) {
            if (!f->pending || !walk_apart(f))
                return false;
            continue;
        }
        if (byte == KV_RDB_OP_EOF)
            return (f->l->walk == NULL || f->l->walk->other(f->l->arg, f->r)) && take_tail(f);
        if (!take_record(f, byte))
            return false;
    }
}

enum kv_err kv_rdb_load(struct kv_rdb_reader *r, struct kv_view *v, struct kv_rdb_load *l)
{
    struct loading f = {.r = r, .v = v, .l = l, .next = nothing_known};
    uint32_t selected = v->db, flags = v->flags;
    v->db = 0;
    /* What is due stays until the owner of a replica says otherwise. */
    if (l->keep_due)
        v->flags |= KV_VIEW_NO_EXPIRE;
    kv_rdb_loader_init(&f.values, r, v);
    bool done = take_all(&f);
    kv_rdb_loader_release(&f.values);
    kv_rdb_string_release(&f.key);
    kv_rdb_string_release(&f.note);
    v->db = selected;
    v->flags = flags;
    if (done)
        return KV_OK;
    KV_ASSERT(f.gave_up || r->err != KV_OK);
    return f.gave_up ? KV_ERR_CLOSED : r->err;
}
