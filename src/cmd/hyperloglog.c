/* PFADD, PFCOUNT, PFMERGE, PFDEBUG, PFSELFTEST: estimates of how many different elements there
 * were.
 *
 * Data layout: value/hyperloglog.h; the value is a string like any other.
 *
 * PFADD changes a dense value where it lies, and opens it for that only when a register really
 * rises: adding what is known already leaves the key alone. A sparse value is at most a few
 * thousand bytes; it is copied to the arena, changed there, and put back whole, so that a failure
 * or corrupt bytes change nothing. It becomes dense when it would pass hll-sparse-max-bytes.
 *
 * PFCOUNT of one key keeps the estimate in the value until the next change. That is a change of the
 * string: watchers see it and the change stream carries it, as in Redis, so that replicas stay
 * equal byte for byte. It is no event.
 *
 * Order of errors: the type of each key in turn, before anything is changed.
 *
 * Threads: under the locks of all keys' shards.
 */
#include "value/hyperloglog.h"
#include "cmd/functions.h"
#include "engine/call.h"
#include "engine/engine.h"
#include <stdio.h>

#define CORRUPT "INVALIDOBJ Corrupted HLL object detected"
#define TEST_ELEMENTS 200000
#define RUN_TEXT_MAX 16 /* bytes of a run in PFDEBUG DECODE */

/* A HyperLogLog that is being changed: in the arena, or a dense one where it lies. */
struct work {
    struct kv_call *call;
    const struct kv_key *key;
    struct kv_entry *entry;
    uint8_t *bytes; /* in the arena; of a dense one NULL until it is opened */
    size_t len;
    bool dense;
    bool in_place; /* bytes are those of the entry */
    bool changed;
};

/* The bytes of an entry that is a HyperLogLog; false: an error was replied. */
static bool want_hll(struct kv_call *call, const struct kv_entry *e, struct kv_slice *bytes)
{
    char scratch[KV_INT_TEXT_MAX];
    if (!kv_call_want_string(call, e))
        return false;
    *bytes = kv_entry_string(e, scratch);
    if (kv_hll_is(*bytes))
        return true;
    kv_call_error(call, "WRONGTYPE Key is not a valid HyperLogLog string value.");
    return false;
}

static size_t sparse_max(const struct kv_call *call)
{
    return KV_MIN(kv_engine_options(call->engine)->hll_sparse_max_bytes, KV_HLL_SPARSE_MAX);
}

/* --- changing --- */

/* Takes a sparse value, or an empty one when there is none, to the arena. */
static enum kv_err work_on_copy(struct work *w, struct kv_slice bytes, size_t element_count)
{
    size_t len = w->entry != NULL ? bytes.len : KV_HLL_EMPTY_BYTES;
    size_t most = KV_MAX(len, KV_HLL_SPARSE_MAX);
    size_t room =
        element_count < most / KV_HLL_SPARSE_STEP ? len + element_count * KV_HLL_SPARSE_STEP : most;
    w->bytes = kv_arena_try_alloc(w->call->arena, KV_MIN(room, most) + 2 * KV_HLL_SPARSE_STEP);
    if (w->bytes == NULL)
        return KV_ERR_NOMEM;
    w->len = len;
    if (w->entry != NULL)
        memcpy(w->bytes, bytes.ptr, len);
    else
        kv_hll_write_empty(w->bytes);
    return KV_OK;
}

/* KV_ERR_SYNTAX: corrupt. */
static enum kv_err become_dense(struct work *w)
{
    uint8_t *dense = kv_arena_try_alloc(w->call->arena, KV_HLL_DENSE_BYTES);
    if (dense == NULL)
        return KV_ERR_NOMEM;
    if (!kv_hll_to_dense(kv_slice((const char *)w->bytes, w->len), dense))
        return KV_ERR_SYNTAX;
    w->bytes = dense;
    w->len = KV_HLL_DENSE_BYTES;
    w->dense = true;
    w->changed = true;
    return KV_OK;
}

/* Raises a register of a dense value in the keyspace, which is opened for the first change. */
static enum kv_err raise_in_place(struct work *w, struct kv_hll_mark mark)
{
    char scratch[KV_INT_TEXT_MAX], *bytes;
    if (!w->changed) {
        struct kv_slice have = kv_entry_string(w->entry, scratch);
        if (kv_hll_dense_level((const uint8_t *)have.ptr, mark.index) >= mark.level)
            return KV_OK;
        enum kv_err err =
            kv_store_edit_string(&w->call->view, w->key, w->entry, KV_HLL_DENSE_BYTES, &bytes);
        if (err != KV_OK)
            return err;
        w->bytes = (uint8_t *)bytes;
        w->changed = true;
    }
    kv_hll_raise_dense(w->bytes, mark);
    return KV_OK;
}

static enum kv_err raise_register(struct work *w, struct kv_hll_mark mark)
{
    if (w->in_place)
        return raise_in_place(w, mark);
    if (!w->dense) {
        switch (kv_hll_raise_sparse(w->bytes, &w->len, sparse_max(w->call), mark)) {
        case KV_HLL_SAME:
            return KV_OK;
        case KV_HLL_RAISED:
            w->changed = true;
            return KV_OK;
        case KV_HLL_CORRUPT:
            return KV_ERR_SYNTAX;
        case KV_HLL_TOO_LONG:
            break;
        }
        enum kv_err err = become_dense(w);
        if (err != KV_OK)
            return err;
    }
    w->changed |= kv_hll_raise_dense(w->bytes, mark);
    return KV_OK;
}

/* Puts what was changed into the keyspace. */
static enum kv_err put_back(struct work *w)
{
    char *bytes;
    if (w->in_place) {
        kv_hll_forget_count(w->bytes);
        return KV_OK;
    }
    enum kv_err err = kv_store_edit_string(&w->call->view, w->key, w->entry, w->len, &bytes);
    if (err != KV_OK)
        return err;
    kv_hll_forget_count(w->bytes);
    memcpy(bytes, w->bytes, w->len);
    return KV_OK;
}

static void reply_failure(struct kv_call *call, enum kv_err err)
{
    if (err == KV_ERR_SYNTAX)
        kv_call_error(call, CORRUPT);
    else
        kv_call_failed(call, err);
}

/* PFADD key [element ...] */
void kv_cmd_pfadd(struct kv_call *call)
{
    struct work w = {.call = call, .key = &call->keys[0]};
    struct kv_slice bytes = {NULL, 0};
    enum kv_err err = KV_OK;
    w.entry = kv_store_write(&call->view, w.key);
    if (w.entry != NULL && !want_hll(call, w.entry, &bytes))
        return;
    w.in_place = w.entry != NULL && kv_hll_is_dense((const uint8_t *)bytes.ptr);
    if (!w.in_place)
        err = work_on_copy(&w, bytes, (size_t)call->argc - 2);
    w.changed = w.entry == NULL;
    for (int arg = 2; arg < call->argc && err == KV_OK; arg++)
        err = raise_register(&w, kv_hll_mark(call->argv[arg]));
    if (err == KV_OK && w.changed)
        err = put_back(&w);
    if (err != KV_OK) {
        reply_failure(call, err);
        return;
    }
    if (w.changed)
        kv_store_changed(&call->view, w.key, KV_EVENT_STRING, "pfadd");
    kv_reply_int(call->out, w.changed);
}

/* --- counting --- */

/* Keeps an estimate in the value. A wish: without memory it is worked out again next time. */
static void keep_count(struct kv_call *call, struct kv_entry *e, size_t len, uint64_t count)
{
    char *bytes;
    if (kv_store_edit_string(&call->view, &call->keys[0], e, len, &bytes) != KV_OK)
        return;
    kv_hll_keep_count((uint8_t *)bytes, count);
    kv_store_changed(&call->view, &call->keys[0], (enum kv_event_class)0, "pfcount");
    kv_call_propagate(call, call->argv, call->argc);
}

static void count_one(struct kv_call *call)
{
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    struct kv_slice bytes;
    uint64_t count;
    if (e == NULL) {
        kv_reply_int(call->out, 0);
        return;
    }
    if (!want_hll(call, e, &bytes))
        return;
    if (!kv_hll_kept_count((const uint8_t *)bytes.ptr, &count)) {
        if (!kv_hll_estimate(bytes, &count)) {
            kv_call_error(call, CORRUPT);
            return;
        }
        keep_count(call, e, bytes.len, count);
    }
    kv_reply_int(call->out, (int64_t)count);
}

/* Merges the values of all keys into registers that were zero; *dense: one of them is. False: an
 * error was replied. */
static bool merge_keys(struct kv_call *call, int key_count, uint8_t *registers, bool *dense)
{
    memset(registers, 0, KV_HLL_REGISTERS);
    for (int i = 0; i < key_count; i++) {
        const struct kv_entry *e = kv_store_read(&call->view, &call->keys[i]);
        struct kv_slice bytes;
        if (e == NULL)
            continue;
        if (!want_hll(call, e, &bytes))
            return false;
        *dense |= kv_hll_is_dense((const uint8_t *)bytes.ptr);
        if (!kv_hll_merge(registers, bytes)) {
            kv_call_error(call, CORRUPT);
            return false;
        }
    }
    return true;
}

/* PFCOUNT key [key ...] */
void kv_cmd_pfcount(struct kv_call *call)
{
    bool dense = false;
    if (call->key_count == 1) {
        count_one(call);
        return;
    }
    uint8_t *registers = kv_arena_try_alloc(call->arena, KV_HLL_REGISTERS);
    if (registers == NULL)
        kv_call_no_memory(call);
    else if (merge_keys(call, call->key_count, registers, &dense))
        kv_reply_int(call->out, (int64_t)kv_hll_estimate_registers(registers));
}

/* --- merging --- */

/* Raises the destination to the registers, of which its own are part. */
static enum kv_err raise_all(struct work *w, const uint8_t *registers, bool dense)
{
    enum kv_err err = KV_OK;
    if (dense && !w->dense)
        err = become_dense(w);
    for (uint32_t i = 0; i < KV_HLL_REGISTERS && err == KV_OK && !w->dense; i++) {
        if (registers[i] != 0)
            err = raise_register(w, (struct kv_hll_mark){i, registers[i]});
    }
    if (err == KV_OK && w->dense)
        kv_hll_pack(w->bytes, registers);
    return err;
}

/* PFMERGE destkey [sourcekey ...] */
void kv_cmd_pfmerge(struct kv_call *call)
{
    struct work w = {.call = call, .key = &call->keys[0]};
    struct kv_slice bytes = {NULL, 0};
    char scratch[KV_INT_TEXT_MAX];
    bool dense = false;
    uint8_t *registers = kv_arena_try_alloc(call->arena, KV_HLL_REGISTERS);
    if (registers == NULL) {
        kv_call_no_memory(call);
        return;
    }
    if (!merge_keys(call, call->key_count, registers, &dense))
        return;
    w.entry = kv_store_write(&call->view, w.key);
    if (w.entry != NULL)
        bytes = kv_entry_string(w.entry, scratch);
    w.dense = w.entry != NULL && kv_hll_is_dense((const uint8_t *)bytes.ptr);
    enum kv_err err = work_on_copy(&w, bytes, KV_HLL_REGISTERS);
    if (err == KV_OK)
        err = raise_all(&w, registers, dense);
    if (err == KV_OK)
        err = put_back(&w);
    if (err != KV_OK) {
        reply_failure(call, err);
        return;
    }
    /* A merge adds many elements: there is no event of its own. */
    kv_store_changed(&call->view, w.key, KV_EVENT_STRING, "pfadd");
    kv_reply_ok(call->out);
}

/* --- PFDEBUG --- */

static void reply_runs(struct kv_call *call, struct kv_slice bytes)
{
    const uint8_t *at = (const uint8_t *)bytes.ptr + KV_HLL_HEAD;
    const uint8_t *end = (const uint8_t *)bytes.ptr + bytes.len;
    size_t len = 0, room = bytes.len * RUN_TEXT_MAX;
    char *text = kv_arena_try_alloc(call->arena, room);
    if (text == NULL) {
        kv_call_no_memory(call);
        return;
    }
    while (at < end) {
        struct kv_hll_run run = kv_hll_run_at(at, end);
        if (run.level != 0)
            len += (size_t)snprintf(text + len, room - len, "v:%u,%u ", run.level, run.len);
        else
            len += (size_t)snprintf(text + len, room - len, "%c:%u ", run.bytes == 1 ? 'z' : 'Z',
                                    run.len);
        at += run.bytes;
    }
    kv_reply_bulk(call->out, text, len > 0 ? len - 1 : 0);
}

/* Makes the value dense if it is not; *converted tells. False: an error was replied. */
static bool make_dense(struct kv_call *call, struct kv_entry *e, struct kv_slice bytes,
                       bool *converted)
{
    struct work w = {.call = call, .key = &call->keys[0], .entry = e};
    char *to;
    *converted = !kv_hll_is_dense((const uint8_t *)bytes.ptr);
    if (!*converted)
        return true;
    w.bytes = (uint8_t *)(uintptr_t)bytes.ptr;
    w.len = bytes.len;
    enum kv_err err = become_dense(&w);
    if (err == KV_OK)
        err = kv_store_edit_string(&call->view, w.key, e, w.len, &to);
    if (err != KV_OK) {
        reply_failure(call, err);
        return false;
    }
    memcpy(to, w.bytes, w.len);
    kv_store_changed(&call->view, w.key, (enum kv_event_class)0, "pfdebug");
    return true;
}

static void reply_registers(struct kv_call *call, struct kv_entry *e, struct kv_slice bytes)
{
    char scratch[KV_INT_TEXT_MAX];
    bool converted;
    if (!make_dense(call, e, bytes, &converted))
        return;
    e = kv_store_peek(&call->view, &call->keys[0]);
    bytes = kv_entry_string(e, scratch);
    kv_reply_array(call->out, KV_HLL_REGISTERS);
    for (uint32_t i = 0; i < KV_HLL_REGISTERS; i++)
        kv_reply_int(call->out, kv_hll_dense_level((const uint8_t *)bytes.ptr, i));
}

/* PFDEBUG GETREG | DECODE | ENCODING | TODENSE key */
void kv_cmd_pfdebug(struct kv_call *call)
{
    call->view.flags |= KV_VIEW_QUIET;
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    struct kv_slice bytes;
    bool converted;
    if (e == NULL) {
        kv_call_error(call, "ERR The specified key does not exist");
        return;
    }
    if (!want_hll(call, e, &bytes))
        return;
    bool dense = kv_hll_is_dense((const uint8_t *)bytes.ptr);
    if (kv_call_arg_is(call, 1, "getreg")) {
        reply_registers(call, e, bytes);
    } else if (kv_call_arg_is(call, 1, "decode")) {
        if (dense)
            kv_call_error(call, "ERR HLL encoding is not sparse");
        else
            reply_runs(call, bytes);
    } else if (kv_call_arg_is(call, 1, "encoding")) {
        kv_reply_status(call->out, dense ? "dense" : "sparse");
    } else if (kv_call_arg_is(call, 1, "todense")) {
        if (make_dense(call, e, bytes, &converted))
            kv_reply_int(call->out, converted);
    } else {
        kv_call_errorf(call, "ERR Unknown PFDEBUG subcommand '%.*s'",
                       (int)KV_MIN(call->argv[1].len, (size_t)128), call->argv[1].ptr);
    }
}

/* --- PFSELFTEST --- */

/* Adds numbers to a dense value and to registers, and looks whether both say the same and the
 * estimate is within five standard errors. Returns the number at which it is not, or 0. */
static uint32_t self_test(uint8_t *dense, uint8_t *registers)
{
    uint64_t count;
    char text[KV_INT_TEXT_MAX];
    kv_hll_pack(dense, registers);
    for (uint32_t n = 1, next = 10; n <= TEST_ELEMENTS; n++) {
        struct kv_hll_mark mark = kv_hll_mark(kv_slice(text, kv_uint_print(n, text)));
        kv_hll_raise_dense(dense, mark);
        registers[mark.index] = KV_MAX(registers[mark.index], mark.level);
        if (kv_hll_dense_level(dense, mark.index) != registers[mark.index])
            return n;
        if (n != next)
            continue;
        next *= 2;
        double bound = 5 * 1.04 / 128 * n + 1;
        if (!kv_hll_estimate(kv_slice((const char *)dense, KV_HLL_DENSE_BYTES), &count) ||
            count != kv_hll_estimate_registers(registers) || (double)count > n + bound ||
            (double)count < n - bound)
            return n;
    }
    return 0;
}

void kv_cmd_pfselftest(struct kv_call *call)
{
    uint8_t *dense = kv_arena_try_alloc(call->arena, KV_HLL_DENSE_BYTES);
    uint8_t *registers = kv_arena_try_alloc(call->arena, KV_HLL_REGISTERS);
    if (dense == NULL || registers == NULL) {
        kv_call_no_memory(call);
        return;
    }
    memset(registers, 0, KV_HLL_REGISTERS);
    memset(dense, 0, KV_HLL_DENSE_BYTES);
    memcpy(dense, "HYLL", 4);
    uint32_t failed_at = self_test(dense, registers);
    if (failed_at != 0)
        kv_call_errorf(call, "ERR TESTFAILED after %u elements", failed_at);
    else
        kv_reply_ok(call->out);
}
