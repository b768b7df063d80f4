/* Entries as commands: see the header for the forms.
 *
 * A collection is walked over once for its items and, only when some member has a due time, once
 * more for these. A command begins with the number of its words, so it is written when its first
 * item is met: as many as are left, KV_AOF_BASE_ITEMS at most.
 *
 * Rejected: one HPEXPIREAT for all fields of one moment. It would need a sort or a table for what
 * is rare, and the rewritten log lives no longer than the next rewrite. */
#include "persist/aof_base.h"
#include "base/number.h"
#include "persist/rdb_libraries.h"
#include "persist/rdb_payload.h"
#include "store/foreign.h"

/* --- words --- */

static void put_count(struct kv_rdb_writer *w, char mark, uint64_t count)
{
    char line[KV_INT_TEXT_MAX + 3] = {mark};
    size_t len = 1 + kv_uint_print(count, line + 1);
    line[len++] = '\r';
    line[len++] = '\n';
    kv_rdb_put(w, line, len);
}

static void put_word(struct kv_rdb_writer *w, struct kv_slice word)
{
    put_count(w, '$', word.len);
    kv_rdb_put(w, word.ptr, word.len);
    kv_rdb_put(w, "\r\n", 2);
}

static void put_int(struct kv_rdb_writer *w, int64_t number)
{
    char digits[KV_INT_TEXT_MAX];
    put_word(w, kv_slice(digits, kv_int_print(number, digits)));
}

/* A command of so many words; its name and key are put. */
static void begin(struct kv_rdb_writer *w, uint64_t words, const char *name, struct kv_slice key)
{
    put_count(w, '*', words);
    put_word(w, kv_slice_cstr(name));
    put_word(w, key);
}

void kv_aof_put_database(struct kv_rdb_writer *w, uint32_t db)
{
    put_count(w, '*', 2);
    put_word(w, KV_SLICE("SELECT"));
    put_int(w, db);
}

void kv_aof_put_libraries(struct kv_rdb_writer *w, const struct kv_rdb_bytes *records)
{
    struct kv_rdb_reader r;
    struct kv_rdb_string code = {0};
    bool fine, foreign;
    if (records->len == 0)
        return;
    kv_rdb_reader_init(&r, kv_slice((const char *)records->ptr, records->len));
    while (kv_rdb_take_library(&r, &code, &fine, &foreign)) {
        begin(w, 3, "FUNCTION", KV_SLICE("LOAD"));
        put_word(w, code.text);
    }
    if (!fine && w->err == KV_OK) {
        KV_ASSERT(r.err == KV_ERR_NOMEM); /* the records are ours */
        w->err = KV_ERR_NOMEM;
    }
    kv_rdb_string_release(&code);
    kv_rdb_reader_release(&r);
}

/* --- collections --- */

struct items {
    struct kv_rdb_writer *w;
    struct kv_slice key;
    const char *add, *expire, *noun; /* commands; what the second calls a member */
    enum kv_type type;
    uint64_t left; /* items that were not met yet */
    uint64_t room; /* items that the command at hand still takes */
    bool dues;     /* some member has a due time */
};

static void count_item(const struct kv_member *m, void *arg)
{
    struct items *i = arg;
    i->left++;
    i->dues |= m->due != KV_NOT_DUE;
}

static void put_item(const struct kv_member *m, void *arg)
{
    struct items *i = arg;
    bool pairs = i->type == KV_TYPE_HASH || i->type == KV_TYPE_ZSET;
    if (i->room == 0) {
        i->room = KV_MIN(i->left, (uint64_t)KV_AOF_BASE_ITEMS);
        begin(i->w, 2 + i->room * (pairs ? 2 : 1), i->add, i->key);
    }
    if (i->type == KV_TYPE_ZSET)
        put_word(i->w, m->value);
    put_word(i->w, m->name);
    if (i->type == KV_TYPE_HASH)
        put_word(i->w, m->value);
    i->room--;
    i->left--;
}

static void put_due(const struct kv_member *m, void *arg)
{
    struct items *i = arg;
    if (m->due == KV_NOT_DUE)
        return;
    begin(i->w, 6, i->expire, i->key);
    put_int(i->w, m->due);
    put_word(i->w, kv_slice_cstr(i->noun));
    put_int(i->w, 1);
    put_word(i->w, m->name);
}

static void put_collection(struct kv_rdb_writer *w, const struct kv_entry *e)
{
    struct items i = {.w = w, .key = kv_entry_key(e), .type = kv_entry_type(e)};
    switch (i.type) {
    case KV_TYPE_LIST:
        i.add = "RPUSH";
        break;
    case KV_TYPE_SET:
        i.add = "SADD";
        i.expire = "SPEXPIREAT";
        i.noun = "MEMBERS";
        break;
    case KV_TYPE_ZSET:
        i.add = "ZADD";
        i.expire = "ZPEXPIREAT";
        i.noun = "MEMBERS";
        break;
    default:
        KV_ASSERT(i.type == KV_TYPE_HASH);
        i.add = "HSET";
        i.expire = "HPEXPIREAT";
        i.noun = "FIELDS";
    }
    kv_entry_each_member(e, count_item, &i);
    kv_entry_each_member(e, put_item, &i);
    KV_ASSERT(i.left == 0);
    KV_ASSERT(i.room == 0);
    if (i.dues)
        kv_entry_each_member(e, put_due, &i);
}

/* --- entries --- */

static void put_foreign(struct kv_rdb_writer *w, const struct kv_entry *e)
{
    struct kv_rdb_writer payload;
    kv_rdb_writer_init(&payload);
    kv_rdb_put_payload(&payload, e);
    if (payload.err == KV_OK) {
        begin(w, 5, "RESTORE", kv_entry_key(e));
        put_int(w, kv_entry_has_expiry(e) ? kv_entry_expiry(e) : 0);
        put_word(w, kv_rdb_writer_bytes(&payload));
        put_word(w, KV_SLICE("ABSTTL"));
    } else if (w->err == KV_OK) {
        w->err = payload.err;
        w->error = payload.error;
    }
    kv_rdb_writer_release(&payload);
}

void kv_aof_put_entry(struct kv_rdb_writer *w, const struct kv_entry *e)
{
    char scratch[KV_INT_TEXT_MAX];
    if (kv_entry_encoding(e) == KV_ENC_FOREIGN) {
        put_foreign(w, e);
        return;
    }
    if (kv_entry_type(e) == KV_TYPE_STRING) {
        begin(w, 3, "SET", kv_entry_key(e));
        put_word(w, kv_entry_string(e, scratch));
    } else {
        put_collection(w, e);
    }
    if (kv_entry_has_expiry(e)) {
        begin(w, 3, "PEXPIREAT", kv_entry_key(e));
        put_int(w, kv_entry_expiry(e));
    }
}
