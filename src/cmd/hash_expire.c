/* Due times of fields: HEXPIRE, HPEXPIRE, HEXPIREAT, HPEXPIREAT, HTTL, HPTTL, HEXPIRETIME,
 * HPEXPIRETIME, HPERSIST.
 *
 * All four setting commands come down to one moment in milliseconds of Unix time; relative forms
 * count from the batch's time. The condition (NX, XX, GT, LT) is asked of each field, a field
 * without a due time counting as one that never ends. Then all fields that it holds for get the
 * moment in one step, or are removed when it has passed. A field that is named again sees what its
 * first mention did.
 *
 * Replies are one number a field: -2 no such field, 0 the condition does not hold, 1 set, 2
 * removed; HPERSIST -2, -1 there is no due time, 1 taken away.
 *
 * Change stream: HPEXPIREAT with the moment, HPERSIST and HDEL, with the fields that changed.
 *
 * Words may stand in any order behind the time, as Redis has taken them since 8.
 *
 * A moment beyond KV_EXPIRY_MAX is refused, see cmd/expire.c.
 *
 * Threads: under the lock of the key's shard.
 */
#include "cmd/functions.h"
#include "cmd/hash_priv.h"
#include "cmd/string_priv.h"

enum condition { COND_NONE, COND_NX, COND_XX, COND_GT, COND_LT };

enum outcome { OUT_NO_FIELD = -2, OUT_NO_TIME = -1, OUT_REFUSED = 0, OUT_SET = 1, OUT_REMOVED = 2 };

/* --- arguments --- */

bool kv_hash_fields_at(struct kv_call *call, int arg, const struct kv_hash_words *words,
                       struct kv_hash_fields *f)
{
    KV_ASSERT(arg <= call->argc);
    int64_t count;
    if (arg >= call->argc || !kv_call_arg_is(call, arg, "fields")) {
        kv_call_error(call, words->missing);
        return false;
    }
    if (arg + 1 >= call->argc || !kv_int_parse(call->argv[arg + 1], &count) || count < 1) {
        kv_call_error(call, words->bad_count);
        return false;
    }
    f->names = call->argv + arg + 2;
    f->count = (size_t)count;
    f->next = arg + 2;
    if (count > call->argc - f->next) {
        kv_call_error(call, words->mismatch);
        return false;
    }
    f->next += (int)count;
    return true;
}

#define MISSING "ERR Mandatory argument FIELDS is missing or not at the right position"
#define MISMATCH "ERR The `numfields` parameter must match the number of arguments"

/* "key FIELDS n name ..." and nothing else. */
static bool only_fields(struct kv_call *call, struct kv_hash_fields *f)
{
    static const struct kv_hash_words words = {
        MISSING, "ERR Number of fields must be a positive integer", MISMATCH};
    if (!kv_hash_fields_at(call, 2, &words, f))
        return false;
    if (f->next == call->argc)
        return true;
    kv_call_error(call, MISMATCH);
    return false;
}

static enum condition condition_at(const struct kv_call *call, int arg)
{
    static const char *const names[] = {"nx", "xx", "gt", "lt"};
    for (int i = 0; i < (int)KV_ARRAY_LEN(names); i++)
        if (kv_call_arg_is(call, arg, names[i]))
            return (enum condition)(COND_NX + i);
    return COND_NONE;
}

/* Condition and fields behind the time, in any order. */
static bool expire_words(struct kv_call *call, enum condition *condition, struct kv_hash_fields *f)
{
    static const struct kv_hash_words words = {
        MISSING, "ERR Parameter `numFields` should be greater than 0", MISMATCH};
    *condition = COND_NONE;
    f->count = 0;
    for (int arg = 3; arg < call->argc;) {
        enum condition word = condition_at(call, arg);
        if (word != COND_NONE) {
            if (*condition != COND_NONE) {
                kv_call_error(call, "ERR Only one of NX, XX, GT or LT arguments can be specified");
                return false;
            }
            *condition = word;
            arg++;
        } else if (f->count != 0) {
            kv_call_error(call, MISMATCH);
            return false;
        } else if (kv_hash_fields_at(call, arg, &words, f)) {
            arg = f->next;
        } else {
            return false;
        }
    }
    if (f->count == 0)
        kv_call_error(call, MISSING);
    return f->count != 0;
}

bool kv_hash_moment(struct kv_call *call, int arg, int64_t unit_ms, int64_t base_ms,
                    int64_t *when_ms)
{
    int64_t number;
    if (!kv_call_int(call, arg, &number))
        return false;
    if (number < 0) {
        kv_call_error(call, "ERR invalid expire time, must be >= 0");
        return false;
    }
    if (__builtin_mul_overflow(number, unit_ms, &number) ||
        __builtin_add_overflow(number, base_ms, when_ms) || *when_ms > KV_EXPIRY_MAX) {
        kv_call_invalid_expire(call);
        return false;
    }
    return true;
}

/* --- applying --- */

bool kv_hash_chosen_init(struct kv_call *call, const struct kv_hash_fields *f,
                         struct kv_hash_chosen *c)
{
    c->count = 0;
    c->names = kv_arena_try_alloc(call->arena, f->count * sizeof(*c->names));
    c->first = kv_arena_try_alloc(call->arena, f->count * sizeof(*c->first));
    if (c->names != NULL && c->first != NULL &&
        kv_hash_first_names(f->names, f->count, 1, c->first, call->arena))
        return true;
    kv_call_no_memory(call);
    return false;
}

static void propagate_due(struct kv_call *call, const struct kv_hash_chosen *c, size_t count,
                          int64_t due)
{
    struct kv_slice head[5] = {KV_SLICE("HPERSIST"), kv_key_slice(&call->keys[0])};
    size_t n = 2;
    if (due != KV_NOT_DUE) {
        head[0] = KV_SLICE("HPEXPIREAT");
        head[n++] = kv_call_int_text(call, due);
    }
    head[n++] = KV_SLICE("FIELDS");
    head[n++] = kv_call_int_text(call, (int64_t)count);
    kv_call_propagate_parts(call, head, n, c->names, count);
}

enum kv_err kv_hash_apply_due(struct kv_call *call, struct kv_entry **e,
                              const struct kv_hash_chosen *c, int64_t due)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_hash_names n = {.names = c->names, .count = c->count, .arena = call->arena};
    if (c->count == 0)
        return KV_OK;
    enum kv_err err = kv_hash_set_due(&call->view, k, e, &n, due);
    if (n.done != 0) {
        kv_store_changed(&call->view, k, KV_EVENT_HASH, due == KV_NOT_DUE ? "hpersist" : "hexpire");
        propagate_due(call, c, n.done, due);
    }
    return err;
}

enum kv_err kv_hash_apply_delete(struct kv_call *call, struct kv_entry **e,
                                 const struct kv_hash_chosen *c)
{
    struct kv_hash_names n = {.names = c->names, .count = c->count, .arena = call->arena};
    if (c->count == 0)
        return KV_OK;
    enum kv_err err = kv_hash_delete(&call->view, &call->keys[0], e, &n);
    if (err != KV_OK)
        return err;
    KV_DASSERT(n.done == c->count);
    kv_hash_announce_deleted(call, *e);
    kv_hash_propagate_hdel(call, c->names, c->count);
    return KV_OK;
}

/* Applies what was chosen and replies the outcomes, one a field. */
static void apply_and_reply(struct kv_call *call, struct kv_entry *e,
                            const struct kv_hash_chosen *c, int64_t due, const int8_t *outcomes,
                            size_t count)
{
    bool past = due != KV_NOT_DUE && due <= call->view.now_ms;
    enum kv_err err =
        past ? kv_hash_apply_delete(call, &e, c) : kv_hash_apply_due(call, &e, c, due);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_reply_array(call->out, count);
    for (size_t i = 0; i < count; i++)
        kv_reply_int(call->out, outcomes[i]);
}

/* --- setting --- */

static bool holds(enum condition condition, int64_t current, int64_t due)
{
    switch (condition) {
    case COND_NX:
        return current == KV_NOT_DUE;
    case COND_XX:
        return current != KV_NOT_DUE;
    case COND_GT:
        return current != KV_NOT_DUE && due > current;
    case COND_LT:
        return current == KV_NOT_DUE || due < current;
    case COND_NONE:
        return true;
    }
    KV_UNREACHABLE();
}

/* What happens to a field that was named before, with outcome `earlier`. */
static enum outcome outcome_again(enum outcome earlier, enum condition condition, int64_t due)
{
    if (earlier == OUT_REMOVED)
        return OUT_NO_FIELD;
    if (earlier != OUT_SET)
        return earlier;
    return holds(condition, due, due) ? OUT_SET : OUT_REFUSED;
}

static void expire_generic(struct kv_call *call, int64_t unit_ms, int64_t base_ms)
{
    enum condition condition;
    struct kv_hash_fields f;
    struct kv_hash_chosen c;
    struct kv_entry *e;
    struct kv_hash h;
    int64_t due;
    if (!kv_hash_write(call, &e) || !kv_hash_moment(call, 2, unit_ms, base_ms, &due) ||
        !expire_words(call, &condition, &f) || !kv_hash_chosen_init(call, &f, &c))
        return;
    int8_t *outcomes = kv_arena_try_alloc(call->arena, f.count);
    if (outcomes == NULL) {
        kv_call_no_memory(call);
        return;
    }
    enum outcome success = due <= call->view.now_ms ? OUT_REMOVED : OUT_SET;
    kv_hash_open(&h, &call->view, e);
    for (size_t i = 0; i < f.count; i++) {
        struct kv_hash_field found;
        if (c.first[i] != i)
            outcomes[i] = (int8_t)outcome_again((enum outcome)outcomes[c.first[i]], condition, due);
        else if (!kv_hash_find(&h, f.names[i], &found))
            outcomes[i] = OUT_NO_FIELD;
        else if (!holds(condition, found.due, due))
            outcomes[i] = OUT_REFUSED;
        else {
            outcomes[i] = (int8_t)success;
            c.names[c.count++] = f.names[i];
        }
    }
    apply_and_reply(call, e, &c, due, outcomes, f.count);
}

void kv_cmd_hexpire(struct kv_call *call)
{
    expire_generic(call, 1000, call->view.now_ms);
}

void kv_cmd_hpexpire(struct kv_call *call)
{
    expire_generic(call, 1, call->view.now_ms);
}

void kv_cmd_hexpireat(struct kv_call *call)
{
    expire_generic(call, 1000, 0);
}

void kv_cmd_hpexpireat(struct kv_call *call)
{
    expire_generic(call, 1, 0);
}

void kv_cmd_hpersist(struct kv_call *call)
{
    struct kv_hash_fields f;
    struct kv_hash_chosen c;
    struct kv_entry *e;
    struct kv_hash h;
    if (!kv_hash_write(call, &e) || !only_fields(call, &f) || !kv_hash_chosen_init(call, &f, &c))
        return;
    int8_t *outcomes = kv_arena_try_alloc(call->arena, f.count);
    if (outcomes == NULL) {
        kv_call_no_memory(call);
        return;
    }
    kv_hash_open(&h, &call->view, e);
    for (size_t i = 0; i < f.count; i++) {
        struct kv_hash_field found;
        if (!kv_hash_find(&h, f.names[i], &found))
            outcomes[i] = OUT_NO_FIELD;
        else if (found.due == KV_NOT_DUE || c.first[i] != i)
            outcomes[i] = OUT_NO_TIME;
        else {
            outcomes[i] = OUT_SET;
            c.names[c.count++] = f.names[i];
        }
    }
    apply_and_reply(call, e, &c, KV_NOT_DUE, outcomes, f.count);
}

/* --- asking --- */

/* Per field -2, -1, or its due time minus base_ms in the unit, rounded up. */
static void ttl_generic(struct kv_call *call, int64_t unit_ms, int64_t base_ms)
{
    struct kv_hash_fields f;
    struct kv_hash h;
    if (!kv_hash_read(call, &h) || !only_fields(call, &f))
        return;
    kv_reply_array(call->out, f.count);
    for (size_t i = 0; i < f.count; i++) {
        struct kv_hash_field found;
        if (!kv_hash_find(&h, f.names[i], &found))
            kv_reply_int(call->out, OUT_NO_FIELD);
        else if (found.due == KV_NOT_DUE)
            kv_reply_int(call->out, OUT_NO_TIME);
        else
            kv_reply_int(call->out, (found.due - base_ms + unit_ms - 1) / unit_ms);
    }
}

void kv_cmd_httl(struct kv_call *call)
{
    ttl_generic(call, 1000, call->view.now_ms);
}

void kv_cmd_hpttl(struct kv_call *call)
{
    ttl_generic(call, 1, call->view.now_ms);
}

void kv_cmd_hexpiretime(struct kv_call *call)
{
    ttl_generic(call, 1000, 0);
}

void kv_cmd_hpexpiretime(struct kv_call *call)
{
    ttl_generic(call, 1, 0);
}
