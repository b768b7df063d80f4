/* Reading strings and changing them in place: GET, MGET, STRLEN, GETRANGE, SUBSTR, APPEND,
 * SETRANGE, GETEX, GETDEL. Replacing a value as a whole is in string_set.c, numbers are in incr.c.
 *
 * Data layout: none of its own. A string lives in its entry or in a kv_bigstr beside it; these
 * functions see it as a slice (kv_entry_string) and change it through kv_store_edit_string, which
 * resolves integers and shared blocks.
 *
 * Invariants
 *   - Arguments are checked before the key is looked up where clients can tell the difference:
 *     GETRANGE reports a bad number before a wrong type, GETEX a wrong type before a bad time.
 *   - A string never becomes longer than proto-max-bulk-len; the check comes before any change.
 *   - An error reply means that nothing has changed.
 *   - GETEX replies the value before it removes an expired key, and after it moved an entry.
 *
 * Threads: under the locks of the keys' shards. A large value goes into the output by reference, so
 * the lock is not held while it is sent.
 *
 * MGET walks its keys with a prefetch window instead of looking up one key after the other: on a
 * keyspace larger than the cache each key costs two cache misses, and a window of 16 hides most of
 * them. Looking up everything first and replying afterwards was rejected, since removing a due
 * entry may move nothing but must not leave stale pointers behind.
 */
#include "cmd/functions.h"
#include "cmd/string_priv.h"

void kv_cmd_get(struct kv_call *call)
{
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (KV_UNLIKELY(e == NULL)) {
        kv_reply_null(call->out);
        return;
    }
    if (kv_call_want_string(call, e))
        kv_call_reply_string(call, e);
}

void kv_cmd_mget(struct kv_call *call)
{
    KV_ASSERT(call->key_count == call->argc - 1);
    kv_reply_array(call->out, (size_t)call->key_count);
    kv_keys_ahead_begin(call);
    for (int i = 0; i < call->key_count; i++) {
        kv_keys_ahead(call, i);
        struct kv_entry *e = kv_store_read(&call->view, &call->keys[i]);
        if (e == NULL || kv_entry_type(e) != KV_TYPE_STRING)
            kv_reply_null(call->out);
        else
            kv_call_reply_string(call, e);
    }
}

void kv_cmd_strlen(struct kv_call *call)
{
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_call_want_string(call, e))
        return;
    kv_reply_int(call->out, e == NULL ? 0 : (int64_t)kv_entry_string_len(e));
}

/* GETRANGE key start end: both inclusive, negative ones count from the end. */
void kv_cmd_getrange(struct kv_call *call)
{
    int64_t start, end;
    if (!kv_call_int(call, 2, &start) || !kv_call_int(call, 3, &end))
        return;
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_call_want_string(call, e))
        return;
    int64_t len = e == NULL ? 0 : (int64_t)kv_entry_string_len(e);
    /* Both ends are cut to the first byte, so a range before the string gives that one, unless it
     * is reversed. Odd, but a change of it was taken back in Redis as too much of a break. */
    bool reversed = start < 0 && end < 0 && start > end;
    if (start < 0)
        start = KV_MAX(start + len, 0);
    if (end < 0)
        end = KV_MAX(end + len, 0);
    end = KV_MIN(end, len - 1);
    if (start > end || reversed) {
        kv_reply_bulk(call->out, "", 0);
        return;
    }
    KV_ASSERT(start >= 0 && end < len);
    if (start == 0 && end == len - 1) {
        kv_call_reply_string(call, e);
        return;
    }
    char scratch[KV_INT_TEXT_MAX];
    struct kv_slice value = kv_entry_string(e, scratch);
    kv_reply_bulk(call->out, value.ptr + start, (size_t)(end - start + 1));
}

/* SUBSTR is the old name of GETRANGE. */
void kv_cmd_substr(struct kv_call *call)
{
    kv_cmd_getrange(call);
}

/* A new key takes the value as SET would: an integer stays one. */
static void append_new(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    size_t len = call->argv[2].len;
    enum kv_err err = kv_string_store(call, k, 2, KV_NO_EXPIRY);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_store_changed(&call->view, k, KV_EVENT_STRING, "append");
    kv_reply_int(call->out, (int64_t)len);
}

void kv_cmd_append(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_slice more = call->argv[2];
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (e == NULL) {
        append_new(call);
        return;
    }
    if (!kv_call_want_string(call, e))
        return;
    size_t old_len = kv_entry_string_len(e);
    if (!kv_string_fits(call, old_len, more.len))
        return;
    char *bytes;
    enum kv_err err = kv_store_edit_string(&call->view, k, e, old_len + more.len, &bytes);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    if (more.len != 0)
        memcpy(bytes + old_len, more.ptr, more.len);
    kv_store_changed(&call->view, k, KV_EVENT_STRING, "append");
    kv_reply_int(call->out, (int64_t)(old_len + more.len));
}

/* SETRANGE key offset value: an empty value changes nothing and creates nothing. */
void kv_cmd_setrange(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_slice value = call->argv[3];
    int64_t offset;
    if (!kv_call_int(call, 2, &offset))
        return;
    if (offset < 0) {
        kv_call_error(call, "ERR offset is out of range");
        return;
    }
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (!kv_call_want_string(call, e))
        return;
    size_t old_len = e == NULL ? 0 : kv_entry_string_len(e);
    if (value.len == 0) {
        kv_reply_int(call->out, (int64_t)old_len);
        return;
    }
    if (!kv_string_fits(call, (uint64_t)offset, value.len))
        return;
    size_t len = KV_MAX(old_len, (size_t)offset + value.len);
    char *bytes;
    enum kv_err err = kv_store_edit_string(&call->view, k, e, len, &bytes);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    memcpy(bytes + offset, value.ptr, value.len);
    kv_store_changed(&call->view, k, KV_EVENT_STRING, "setrange");
    kv_reply_int(call->out, (int64_t)len);
}

/* Gives the key at keys[0] the lifetime and tells the change stream. */
static enum kv_err getex_apply(struct kv_call *call, struct kv_entry **e, int64_t expiry)
{
    const struct kv_key *k = &call->keys[0];
    enum kv_err err = kv_store_set_expiry(&call->view, k, e, expiry);
    if (err != KV_OK)
        return err;
    struct kv_slice argv[3] = {KV_SLICE("PERSIST"), kv_key_slice(k)};
    if (expiry == KV_NO_EXPIRY) {
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "persist");
        kv_call_propagate(call, argv, 2);
        return KV_OK;
    }
    kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "expire");
    argv[0] = KV_SLICE("PEXPIREAT");
    argv[2] = kv_call_int_text(call, expiry);
    kv_call_propagate(call, argv, 3);
    return KV_OK;
}

/* GETEX key [EX s | PX ms | EXAT s | PXAT ms | PERSIST] */
void kv_cmd_getex(struct kv_call *call)
{
    struct kv_string_options options;
    if (!kv_string_options(call, 2, KV_SET_TIME | KV_SET_PERSIST, &options))
        return;
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (e == NULL) {
        kv_reply_null(call->out);
        return;
    }
    int64_t expiry;
    if (!kv_call_want_string(call, e) || !kv_string_expiry(call, &options, &expiry))
        return;
    if (kv_string_past(call, expiry)) {
        kv_call_reply_string(call, e);
        kv_string_delete(call, &call->keys[0], e);
        return;
    }
    bool changes =
        options.flags & KV_SET_TIME || (options.flags & KV_SET_PERSIST && kv_entry_has_expiry(e));
    enum kv_err err = changes ? getex_apply(call, &e, expiry) : KV_OK;
    if (err != KV_OK)
        kv_call_failed(call, err);
    else
        kv_call_reply_string(call, e);
}

void kv_cmd_getdel(struct kv_call *call)
{
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (e == NULL) {
        kv_reply_null(call->out);
        return;
    }
    if (!kv_call_want_string(call, e))
        return;
    kv_call_reply_string(call, e);
    kv_string_delete(call, &call->keys[0], e);
}
