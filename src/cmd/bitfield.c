/* BITFIELD and BITFIELD_RO: integers of 1 to 64 bits anywhere in a string.
 *
 * A command line is a list of operations. All of them are parsed before the first one runs, so a
 * mistake anywhere changes nothing. If any of them writes, the string is brought to the length that
 * the highest written bit needs, once, before the first operation; then all run on its bytes.
 *
 * Data layout: operations are an array in the call's arena, one element per GET, SET or INCRBY; an
 * OVERFLOW word is not an operation but sets how the following ones treat overflow.
 *
 * Overflow
 *   WRAP  the low bits are kept (the default)
 *   SAT   the nearest value that fits is stored
 *   FAIL  nothing is stored and the reply is nil
 *
 * Sums are formed in 128 bits, where two 64-bit numbers cannot overflow. SET of an unsigned field
 * sees its operand as an unsigned number: -1 is larger than any field holds, not smaller.
 *
 * Invariants
 *   - The reply has one element per operation: the old value for SET, the new one for INCRBY, nil
 *     after FAIL.
 *   - Bits beyond the end of the string read as 0; reading never makes it longer.
 *   - A command that only reads leaves the key alone and counts as a read.
 *   - The change is announced once, when a field was stored or the string became longer.
 *
 * Threads: under the lock of the key's shard.
 */
#include "cmd/bitmap_priv.h"
#include "cmd/bitops.h"
#include "cmd/functions.h"
#include "cmd/string_priv.h"

enum field_overflow { OVERFLOW_WRAP, OVERFLOW_SAT, OVERFLOW_FAIL };
enum field_kind { FIELD_GET, FIELD_SET, FIELD_INCRBY };

struct field_op {
    uint64_t offset;  /* bits */
    int64_t operand;  /* of SET and INCRBY */
    uint8_t width;    /* bits, 1 to 64 */
    uint8_t kind;     /* enum field_kind */
    uint8_t overflow; /* enum field_overflow */
    bool is_signed;
};

struct field_list {
    struct field_op *ops;
    size_t count;
    uint64_t write_end; /* bit after the highest written one; 0: nothing writes */
};

/* "u1" to "u63" and "i1" to "i64". */
static bool parse_type(struct kv_call *call, int arg, struct field_op *op)
{
    struct kv_slice text = call->argv[arg];
    int64_t width = 0;
    op->is_signed = text.len > 0 && text.ptr[0] == 'i';
    bool valid = (op->is_signed || (text.len > 0 && text.ptr[0] == 'u')) &&
                 kv_int_parse(kv_slice(text.ptr + 1, text.len - 1), &width) && width >= 1 &&
                 width <= (op->is_signed ? 64 : 63);
    op->width = (uint8_t)width;
    if (!valid)
        kv_call_error(call, "ERR Invalid bitfield type. Use something like i16 u8. "
                            "Note that u64 is not supported but i64 is.");
    return valid;
}

static bool parse_overflow(struct kv_call *call, int arg, uint8_t *overflow)
{
    if (kv_call_arg_is(call, arg, "wrap"))
        *overflow = OVERFLOW_WRAP;
    else if (kv_call_arg_is(call, arg, "sat"))
        *overflow = OVERFLOW_SAT;
    else if (kv_call_arg_is(call, arg, "fail"))
        *overflow = OVERFLOW_FAIL;
    else {
        kv_call_error(call, "ERR Invalid OVERFLOW type specified");
        return false;
    }
    return true;
}

/* Reads the operation at *arg into the list and moves *arg past it. */
static bool parse_op(struct kv_call *call, int *arg, uint8_t *overflow, struct field_list *list)
{
    struct field_op *op = &list->ops[list->count];
    int rest = call->argc - *arg - 1;
    if (kv_call_arg_is(call, *arg, "overflow") && rest >= 1) {
        bool valid = parse_overflow(call, *arg + 1, overflow);
        *arg += 2;
        return valid;
    }
    *op = (struct field_op){.overflow = *overflow};
    if (kv_call_arg_is(call, *arg, "get") && rest >= 2) {
        op->kind = FIELD_GET;
    } else if (kv_call_arg_is(call, *arg, "set") && rest >= 3) {
        op->kind = FIELD_SET;
    } else if (kv_call_arg_is(call, *arg, "incrby") && rest >= 3) {
        op->kind = FIELD_INCRBY;
    } else {
        kv_call_syntax_error(call);
        return false;
    }
    if (!parse_type(call, *arg + 1, op) ||
        !kv_bitmap_offset(call, *arg + 2, op->width, &op->offset))
        return false;
    if (op->kind != FIELD_GET) {
        if (!kv_call_int(call, *arg + 3, &op->operand))
            return false;
        list->write_end = KV_MAX(list->write_end, op->offset + op->width);
    }
    *arg += op->kind == FIELD_GET ? 3 : 4;
    list->count++;
    return true;
}

static bool parse_list(struct kv_call *call, struct field_list *list)
{
    uint8_t overflow = OVERFLOW_WRAP;
    size_t most = (size_t)call->argc / 2 + 1; /* an operation takes three words at least */
    *list = (struct field_list){0};
    list->ops = kv_arena_try_alloc(call->arena, most * sizeof(*list->ops));
    if (list->ops == NULL) {
        kv_call_no_memory(call);
        return false;
    }
    for (int arg = 2; arg < call->argc;)
        if (!parse_op(call, &arg, &overflow, list))
            return false;
    KV_ASSERT(list->count < most);
    return true;
}

/* --- running --- */

/* The field's bits as the number that they stand for. */
static __int128 field_number(const struct field_op *op, uint64_t bits)
{
    if (!op->is_signed)
        return bits;
    unsigned unused = 64u - op->width;
    return (int64_t)(bits << unused) >> unused;
}

/* Bits of the field, zeros beyond the end of the string. */
static uint64_t field_read(const struct field_op *op, struct kv_slice bytes)
{
    if (op->offset + op->width <= (uint64_t)bytes.len * 8)
        return kv_bits_get(bytes.ptr, op->offset, op->width);
    uint8_t padded[9] = {0};
    uint64_t first = op->offset / 8;
    if (first < bytes.len)
        memcpy(padded, bytes.ptr + first, KV_MIN(bytes.len - first, sizeof(padded)));
    return kv_bits_get(padded, op->offset % 8, op->width);
}

/* Fits `number` into the field as its overflow mode says; false: it fails. */
static bool field_fit(const struct field_op *op, __int128 number, uint64_t *bits)
{
    __int128 one = 1;
    __int128 max = (one << (op->is_signed ? op->width - 1 : op->width)) - 1;
    __int128 min = op->is_signed ? -max - 1 : 0;
    if (number < min || number > max) {
        if (op->overflow == OVERFLOW_FAIL)
            return false;
        /* SET of a number so low that its distance from max passes 63 bits ends up at max: what
         * Redis does in all releases, and stored data shows it. */
        bool high = number > max || (op->kind == FIELD_SET && max - number > INT64_MAX);
        if (op->overflow == OVERFLOW_SAT)
            number = high ? max : min;
    }
    *bits = (uint64_t)number & (~(uint64_t)0 >> (64 - op->width));
    return true;
}

/* Runs SET or INCRBY on the bytes and replies; true when the field was stored. */
static bool field_write(struct kv_call *call, const struct field_op *op, struct kv_slice bytes,
                        char *writable)
{
    __int128 old = field_number(op, field_read(op, bytes));
    __int128 number = op->operand;
    if (op->kind == FIELD_INCRBY)
        number += old;
    else if (!op->is_signed)
        number = (uint64_t)op->operand;
    uint64_t bits;
    if (!field_fit(op, number, &bits)) {
        kv_reply_null(call->out);
        return false;
    }
    kv_bits_set(writable, op->offset, op->width, bits);
    __int128 answer = op->kind == FIELD_SET ? old : field_number(op, bits);
    kv_reply_int(call->out, (int64_t)answer);
    return true;
}

static size_t run_list(struct kv_call *call, const struct field_list *list, struct kv_slice bytes,
                       char *writable)
{
    size_t stored = 0;
    kv_reply_array(call->out, list->count);
    for (size_t i = 0; i < list->count; i++) {
        const struct field_op *op = &list->ops[i];
        if (op->kind == FIELD_GET)
            kv_reply_int(call->out, (int64_t)field_number(op, field_read(op, bytes)));
        else
            stored += field_write(call, op, bytes, writable);
    }
    return stored;
}

static void run_reading(struct kv_call *call, const struct field_list *list)
{
    char scratch[KV_INT_TEXT_MAX];
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_call_want_string(call, e))
        return;
    run_list(call, list, e == NULL ? KV_SLICE("") : kv_entry_string(e, scratch), NULL);
}

static void run_writing(struct kv_call *call, const struct field_list *list)
{
    const struct kv_key *k = &call->keys[0];
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (!kv_call_want_string(call, e))
        return;
    size_t old_len = e == NULL ? 0 : kv_entry_string_len(e);
    size_t len = KV_MAX(old_len, (size_t)((list->write_end + 7) / 8));
    char *bytes;
    enum kv_err err = kv_store_edit_string(&call->view, k, e, len, &bytes);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    size_t stored = run_list(call, list, kv_slice(bytes, len), bytes);
    if (stored > 0 || len != old_len)
        kv_store_changed(&call->view, k, KV_EVENT_STRING, "setbit");
}

/* BITFIELD key [GET type offset | [OVERFLOW mode] SET type offset value |
 *     [OVERFLOW mode] INCRBY type offset increment] ... */
void kv_cmd_bitfield(struct kv_call *call)
{
    struct field_list list;
    if (!parse_list(call, &list))
        return;
    if (list.write_end > 0)
        run_writing(call, &list);
    else
        run_reading(call, &list);
}

void kv_cmd_bitfield_ro(struct kv_call *call)
{
    struct field_list list;
    if (!parse_list(call, &list))
        return;
    if (list.write_end > 0)
        kv_call_error(call, "ERR BITFIELD_RO only supports the GET subcommand");
    else
        run_reading(call, &list);
}
