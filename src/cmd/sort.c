/* SORT and SORT_RO: elements of a list, set or sorted set in another order, by numbers or texts of
 * their own or of other keys. Here are options, patterns and results; sort_order.c collects and
 * sorts.
 *
 * Keys. BY and GET patterns with a * name keys that only the values tell, so such a line runs alone
 * behind the gate (kv_sort_alone); any other holds the shards of its key and of STORE's
 * (kv_sort_destination), which are all it looks at. A GET without a * names nothing, as in Redis,
 * but for #, the element itself.
 *
 * Invariants: nothing that is looked up changes the collection that is sorted, or a value that was
 * looked up before; what STORE keeps is copied, since its key may be the source.
 *
 * Threads: see engine/call.h.
 */
#include "cmd/functions.h"
#include "cmd/sort_priv.h"
#include "engine/acl.h"
#include "store/list.h"

/* --- words --- */

/* Arguments that an option at `arg` takes, itself included; 0: it is none, or they are missing. */
static int option_words(const struct kv_slice *argv, int argc, int arg)
{
    int words = 0;
    if (kv_slice_is(argv[arg], "asc") || kv_slice_is(argv[arg], "desc") ||
        kv_slice_is(argv[arg], "alpha"))
        words = 1;
    else if (kv_slice_is(argv[arg], "by") || kv_slice_is(argv[arg], "get") ||
             kv_slice_is(argv[arg], "store"))
        words = 2;
    else if (kv_slice_is(argv[arg], "limit"))
        words = 3;
    return arg + words <= argc ? words : 0;
}

static bool has_star(struct kv_slice pattern)
{
    return pattern.len != 0 && memchr(pattern.ptr, '*', pattern.len) != NULL;
}

bool kv_sort_alone(const struct kv_slice *argv, int argc)
{
    int words;
    for (int arg = 2; arg < argc; arg += words) {
        words = option_words(argv, argc, arg);
        if (words == 0)
            return false;
        if (words == 2 && !kv_slice_is(argv[arg], "store") && has_star(argv[arg + 1]))
            return true;
    }
    return false;
}

int kv_sort_destination(const struct kv_slice *argv, int argc)
{
    int words, found = 0;
    for (int arg = 2; arg < argc; arg += words) {
        words = option_words(argv, argc, arg);
        if (words == 0)
            break;
        if (kv_slice_is(argv[arg], "store"))
            found = arg + 1;
    }
    return found;
}

/* Patterns read keys that no line names: only who may read any key may give some. */
static bool may_look_up(struct kv_call *call, const char *option)
{
    if (call->client == NULL || kv_acl_reads_all_keys(call->client, call->cmd))
        return true;
    kv_call_errorf(call, "ERR %s option of SORT denied due to insufficient ACL permissions.",
                   option);
    return false;
}

static bool read_option(struct kv_call *call, int arg, struct kv_sort *s)
{
    if (kv_call_arg_is(call, arg, "limit"))
        return kv_call_int(call, arg + 1, &s->offset) && kv_call_int(call, arg + 2, &s->limit);
    if (kv_call_arg_is(call, arg, "asc")) {
        s->descending = false;
    } else if (kv_call_arg_is(call, arg, "desc")) {
        s->descending = true;
    } else if (kv_call_arg_is(call, arg, "alpha")) {
        s->alpha = true;
    } else if (kv_call_arg_is(call, arg, "get")) {
        s->get_count++;
        return may_look_up(call, "GET");
    } else if (kv_call_arg_is(call, arg, "by")) {
        if (has_star(call->argv[arg + 1]) && !may_look_up(call, "BY"))
            return false;
        s->by = has_star(call->argv[arg + 1]) ? &call->argv[arg + 1] : NULL;
        s->as_stored |= s->by == NULL;
    }
    return true;
}

/* True and *s, or an error is replied. */
static bool read_options(struct kv_call *call, bool may_store, struct kv_sort *s)
{
    int words;
    *s = (struct kv_sort){.call = call, .limit = -1};
    for (int arg = 2; arg < call->argc; arg += words) {
        words = option_words(call->argv, call->argc, arg);
        if (words == 0 || (!may_store && kv_call_arg_is(call, arg, "store"))) {
            kv_call_syntax_error(call);
            return false;
        }
        if (!read_option(call, arg, s))
            return false;
        s->stores |= kv_call_arg_is(call, arg, "store");
    }
    return true;
}

/* --- patterns --- */

bool kv_sort_room(struct kv_sort *s, size_t len)
{
    if (KV_LIKELY(len <= s->buffer_len))
        return true;
    char *buffer = kv_arena_try_alloc(s->call->arena, len * 2);
    if (buffer == NULL)
        return false;
    s->buffer = buffer;
    s->buffer_len = len * 2;
    return true;
}

bool kv_sort_copy(struct kv_sort *s, struct kv_slice text, struct kv_slice *out)
{
    char *copy = kv_arena_try_alloc(s->call->arena, text.len);
    if (copy == NULL)
        return false;
    if (text.len != 0)
        memcpy(copy, text.ptr, text.len);
    *out = kv_slice(copy, text.len);
    return true;
}

/* Where a hash's field begins that a pattern names after its star: "key_*->field"; else the end. */
static size_t field_arrow(struct kv_slice pattern, size_t star)
{
    for (size_t i = star + 1; i + 2 < pattern.len; i++)
        if (pattern.ptr[i] == '-' && pattern.ptr[i + 1] == '>')
            return i;
    return pattern.len;
}

/* The value of a key, or of its field, as far as it is a string. */
static void read_value(struct kv_sort *s, struct kv_slice name, const struct kv_slice *field,
                       struct kv_slice *value)
{
    struct kv_view *v = &s->call->view;
    struct kv_key k = kv_store_key(v->store, name);
    struct kv_entry *e = kv_store_read(v, &k);
    *value = (struct kv_slice){NULL, 0};
    if (e == NULL || kv_entry_type(e) != (field != NULL ? KV_TYPE_HASH : KV_TYPE_STRING))
        return;
    if (field == NULL) {
        *value = kv_entry_string(e, s->field.scratch);
        return;
    }
    struct kv_hash hash;
    kv_hash_open(&hash, v, e);
    if (kv_hash_find(&hash, *field, &s->field))
        *value = s->field.value;
}

enum kv_err kv_sort_look_up(struct kv_sort *s, struct kv_slice pattern, struct kv_slice element,
                            struct kv_slice *value)
{
    if (pattern.len == 1 && pattern.ptr[0] == '#') {
        *value = element;
        return KV_OK;
    }
    *value = (struct kv_slice){NULL, 0};
    if (!has_star(pattern))
        return KV_OK;
    size_t star = (size_t)((const char *)memchr(pattern.ptr, '*', pattern.len) - pattern.ptr);
    size_t end = field_arrow(pattern, star);
    size_t len = end - 1 + element.len;
    if (!kv_sort_room(s, len + 1))
        return KV_ERR_NOMEM;
    memcpy(s->buffer, pattern.ptr, star);
    if (element.len != 0)
        memcpy(s->buffer + star, element.ptr, element.len);
    memcpy(s->buffer + star + element.len, pattern.ptr + star + 1, end - star - 1);
    struct kv_slice field = {NULL, 0};
    if (end != pattern.len)
        field = kv_slice(pattern.ptr + end + 2, pattern.len - end - 2);
    read_value(s, kv_slice(s->buffer, len), field.ptr != NULL ? &field : NULL, value);
    return KV_OK;
}

/* --- results --- */

/* Calls `put` with each value that is to be shown, row by row. */
static enum kv_err each_result(struct kv_sort *s, bool (*put)(void *arg, struct kv_slice value),
                               void *arg)
{
    const struct kv_call *call = s->call;
    for (uint64_t i = s->first; i < s->first + s->shown; i++) {
        struct kv_slice element = s->elements[i].text, value;
        if (s->get_count == 0 && !put(arg, element))
            return KV_ERR_NOMEM;
        int words = 0;
        for (int at = 2; s->get_count != 0 && at < call->argc; at += words) {
            words = option_words(call->argv, call->argc, at);
            if (!kv_call_arg_is(call, at, "get"))
                continue;
            enum kv_err err = kv_sort_look_up(s, call->argv[at + 1], element, &value);
            if (err != KV_OK)
                return err;
            if (!put(arg, value))
                return KV_ERR_NOMEM;
        }
    }
    return KV_OK;
}

static uint64_t result_count(const struct kv_sort *s)
{
    return s->shown * (uint64_t)KV_MAX(s->get_count, 1);
}

static bool put_reply(void *arg, struct kv_slice value)
{
    struct kv_out *out = arg;
    if (value.ptr == NULL)
        kv_reply_null(out);
    else
        kv_reply_slice(out, value);
    return true;
}

static enum kv_err reply_results(struct kv_sort *s)
{
    struct kv_out_mark mark = kv_out_mark(s->call->out);
    kv_reply_array(s->call->out, result_count(s));
    enum kv_err err = each_result(s, put_reply, s->call->out);
    if (err != KV_OK)
        kv_out_rewind(s->call->out, &mark);
    return err;
}

struct collecting {
    struct kv_sort *s;
    struct kv_slice *items;
    uint64_t count;
};

/* What there is not is stored as an empty text. */
static bool put_item(void *arg, struct kv_slice value)
{
    struct collecting *c = arg;
    return kv_sort_copy(c->s, value, &c->items[c->count++]);
}

static enum kv_err store_results(struct kv_sort *s)
{
    struct kv_call *call = s->call;
    KV_ASSERT(call->key_count == 2);
    const struct kv_key *k = &call->keys[1];
    uint64_t count = result_count(s);
    struct collecting c = {s, kv_arena_try_alloc(call->arena, count * sizeof(*c.items)), 0};
    if (c.items == NULL)
        return KV_ERR_NOMEM;
    enum kv_err err = each_result(s, put_item, &c);
    if (err != KV_OK)
        return err;
    struct kv_entry *e = kv_store_write(&call->view, k);
    bool replaces = e != NULL;
    enum kv_type type = replaces ? kv_entry_type(e) : KV_TYPE_LIST;
    if (count != 0) {
        err = kv_store_list_put(&call->view, k, &e, c.items, count);
        if (err != KV_OK)
            return err;
        if (replaces)
            kv_store_replaced(&call->view, k, type, KV_TYPE_LIST);
        kv_store_changed(&call->view, k, KV_EVENT_LIST, "sortstore");
    } else if (e != NULL) {
        kv_store_delete(&call->view, k, e);
        kv_store_changed(&call->view, k, KV_EVENT_GENERIC, "del");
    }
    kv_reply_int(call->out, (int64_t)count);
    return KV_OK;
}

static void sort(struct kv_call *call, bool may_store)
{
    struct kv_sort s;
    if (!read_options(call, may_store, &s))
        return;
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (e != NULL && kv_entry_type(e) != KV_TYPE_LIST && kv_entry_type(e) != KV_TYPE_SET &&
        kv_entry_type(e) != KV_TYPE_ZSET) {
        kv_call_wrong_type(call);
        return;
    }
    enum kv_err err = kv_sort_load(&s, e);
    if (err == KV_OK)
        err = kv_sort_order(&s);
    if (err == KV_OK)
        err = s.stores ? store_results(&s) : reply_results(&s);
    if (err == KV_ERR_SYNTAX)
        kv_call_error(call, "ERR One or more scores can't be converted into double");
    else if (err != KV_OK)
        kv_call_failed(call, err);
}

/* SORT key [BY pattern] [LIMIT offset count] [GET pattern ...] [ASC|DESC] [ALPHA] [STORE key] */
void kv_cmd_sort(struct kv_call *call)
{
    sort(call, true);
}

void kv_cmd_sort_ro(struct kv_call *call)
{
    sort(call, false);
}
