/* Bitmap commands: SETBIT, GETBIT, BITCOUNT, BITPOS, BITOP. Fields are in bitfield.c; the work on
 * the bytes is in bitops.c.
 *
 * A bitmap is a string whose bits are numbered from the most significant bit of its first byte.
 * Bits beyond its end are 0.
 *
 * Data layout: none of its own. The result of BITOP is made in a block of its own when it is large,
 * which then becomes the value without a copy; a small result is made in the call's arena.
 *
 * Invariants
 *   - An offset is below 8 * proto-max-bulk-len, so that no command makes a longer string than
 * that.
 *   - Ranges are made of argument checks first, key look-up second: bad arguments are an error even
 *     when there is no such key.
 *   - A write makes the string raw, as any change in place does, even when the bit had that value.
 *   - SETBIT announces only when a bit or the length changed.
 *   - BITOP reads all sources before it touches the destination, which may be one of them.
 *
 * Threads: under the locks of all keys' shards. BITOP holds them while it combines: with the block
 * of design limits that is memory speed, about 0.1 ms a MiB and source.
 *
 * Rejected: keeping an integer-encoded value for reads of its bits. It is printed into a scratch
 * buffer of 21 bytes instead; bitmaps are hardly ever decimal numbers.
 */
#include "cmd/bitmap_priv.h"
#include "cmd/bitops.h"
#include "cmd/functions.h"
#include "cmd/string_priv.h"

/* Results from here on get a block of their own; below they are copied into their entry. */
#define RESULT_BLOCK_BYTES (16 * 1024)

bool kv_bitmap_offset(struct kv_call *call, int arg, unsigned width, uint64_t *offset)
{
    struct kv_slice text = call->argv[arg];
    int64_t value;
    bool scaled = width > 0 && text.len > 0 && text.ptr[0] == '#';
    if (scaled)
        text = kv_slice(text.ptr + 1, text.len - 1);
    bool valid = kv_int_parse(text, &value) &&
                 !(scaled && __builtin_mul_overflow(value, (int64_t)width, &value)) && value >= 0;
    if (!valid || (uint64_t)value / 8 >= kv_engine_options(call->engine)->proto_max_bulk_len) {
        kv_call_error(call, "ERR bit offset is not an integer or out of range");
        return false;
    }
    *offset = (uint64_t)value;
    return true;
}

void kv_cmd_setbit(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    uint64_t offset;
    int64_t bit;
    if (!kv_bitmap_offset(call, 2, 0, &offset))
        return;
    if (!kv_int_parse(call->argv[3], &bit) || bit < 0 || bit > 1) {
        kv_call_error(call, "ERR bit is not an integer or out of range");
        return;
    }
    struct kv_entry *e = kv_store_write(&call->view, k);
    if (!kv_call_want_string(call, e))
        return;
    size_t old_len = e == NULL ? 0 : kv_entry_string_len(e);
    size_t len = KV_MAX(old_len, (size_t)(offset / 8) + 1);
    char *bytes;
    enum kv_err err = kv_store_edit_string(&call->view, k, e, len, &bytes);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    uint8_t *byte = (uint8_t *)bytes + offset / 8;
    uint8_t mask = (uint8_t)(0x80 >> offset % 8);
    bool old = *byte & mask;
    *byte = (uint8_t)(bit ? *byte | mask : *byte & ~mask);
    if (old != (bit == 1) || len != old_len)
        kv_store_changed(&call->view, k, KV_EVENT_STRING, "setbit");
    kv_reply_int(call->out, old);
}

void kv_cmd_getbit(struct kv_call *call)
{
    char scratch[KV_INT_TEXT_MAX];
    uint64_t offset;
    if (!kv_bitmap_offset(call, 2, 0, &offset))
        return;
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_call_want_string(call, e))
        return;
    struct kv_slice bits = e == NULL ? KV_SLICE("") : kv_entry_string(e, scratch);
    bool bit = offset / 8 < bits.len && (uint8_t)bits.ptr[offset / 8] & 0x80 >> offset % 8;
    kv_reply_int(call->out, bit);
}

/* --- ranges --- */

struct bit_range {
    int64_t start, end; /* as given, inclusive, negative from the end */
    bool by_bit;        /* BIT: in bits, else in bytes */
    bool end_given;
};

/* Reads [start [end [BYTE | BIT]]] from argument `first` on. The unit is judged before the end, as
 * BITPOS does, when `unit_first`. */
static bool range_parse(struct kv_call *call, int first, bool unit_first, struct bit_range *r)
{
    *r = (struct bit_range){.end = -1};
    int given = call->argc - first;
    if (given > 3) {
        kv_call_syntax_error(call);
        return false;
    }
    if (given >= 1 && !kv_call_int(call, first, &r->start))
        return false;
    r->end_given = given >= 2;
    if (!unit_first && r->end_given && !kv_call_int(call, first + 1, &r->end))
        return false;
    if (given == 3) {
        r->by_bit = kv_call_arg_is(call, first + 2, "bit");
        if (!r->by_bit && !kv_call_arg_is(call, first + 2, "byte")) {
            kv_call_syntax_error(call);
            return false;
        }
    }
    return !unit_first || !r->end_given || kv_call_int(call, first + 1, &r->end);
}

/* Turns the range into bits [*from, *end) of a string of `len` bytes; false when it is empty. */
static bool range_resolve(const struct bit_range *r, size_t len, uint64_t *from, uint64_t *end)
{
    int64_t total = (int64_t)(r->by_bit ? len * 8 : len);
    int64_t first = r->start, last = r->end;
    if (first < 0)
        first = KV_MAX(first + total, 0);
    if (last < 0)
        last = KV_MAX(last + total, 0);
    last = KV_MIN(last, total - 1);
    if (first > last)
        return false;
    uint64_t unit = r->by_bit ? 1 : 8;
    *from = (uint64_t)first * unit;
    *end = ((uint64_t)last + 1) * unit;
    KV_ASSERT(*end <= len * 8);
    return true;
}

/* BITCOUNT key [start end [BYTE | BIT]] */
void kv_cmd_bitcount(struct kv_call *call)
{
    char scratch[KV_INT_TEXT_MAX];
    struct bit_range range;
    uint64_t from, end;
    if (call->argc == 3) {
        kv_call_syntax_error(call);
        return;
    }
    if (!range_parse(call, 2, false, &range))
        return;
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_call_want_string(call, e))
        return;
    struct kv_slice bits = e == NULL ? KV_SLICE("") : kv_entry_string(e, scratch);
    uint64_t count = 0;
    /* BITCOUNT, unlike BITPOS, sees that a range is reversed before both ends are cut to 0. */
    bool reversed = range.start < 0 && range.end < 0 && range.start > range.end;
    if (!reversed && range_resolve(&range, bits.len, &from, &end))
        count = kv_bits_count_range(bits.ptr, from, end);
    kv_reply_int(call->out, (int64_t)count);
}

/* BITPOS key bit [start [end [BYTE | BIT]]] */
void kv_cmd_bitpos(struct kv_call *call)
{
    char scratch[KV_INT_TEXT_MAX];
    struct bit_range range;
    uint64_t from, end;
    int64_t bit;
    if (!kv_call_int(call, 2, &bit))
        return;
    if (bit != 0 && bit != 1) {
        kv_call_error(call, "ERR The bit argument must be 1 or 0.");
        return;
    }
    if (!range_parse(call, 3, true, &range))
        return;
    struct kv_entry *e = kv_store_read(&call->view, &call->keys[0]);
    if (!kv_call_want_string(call, e))
        return;
    if (e == NULL) {
        kv_reply_int(call->out, bit ? -1 : 0);
        return;
    }
    struct kv_slice bits = kv_entry_string(e, scratch);
    if (!range_resolve(&range, bits.len, &from, &end)) {
        kv_reply_int(call->out, -1);
        return;
    }
    int64_t found = kv_bits_find(bits.ptr, bit == 1, from, end);
    /* Without an end the zeros behind the string belong to the range. */
    if (found < 0 && bit == 0 && !range.end_given)
        found = (int64_t)bits.len * 8;
    kv_reply_int(call->out, found);
}

/* --- BITOP --- */

static bool bitop_operation(struct kv_call *call, enum kv_bits_op *op)
{
    static const struct {
        const char *name;
        enum kv_bits_op op;
        const char *alone; /* error with one source, or NULL */
    } names[] = {
        {"and", KV_BITS_AND, NULL},
        {"or", KV_BITS_OR, NULL},
        {"xor", KV_BITS_XOR, NULL},
        {"not", KV_BITS_NOT, NULL},
        {"diff", KV_BITS_DIFF, "ERR BITOP DIFF must be called with at least two source keys."},
        {"diff1", KV_BITS_DIFF1, "ERR BITOP DIFF1 must be called with at least two source keys."},
        {"andor", KV_BITS_ANDOR, "ERR BITOP ANDOR must be called with at least two source keys."},
        {"one", KV_BITS_ONE, NULL},
    };
    int source_count = call->argc - 3;
    for (size_t i = 0; i < KV_ARRAY_LEN(names); i++) {
        if (!kv_call_arg_is(call, 1, names[i].name))
            continue;
        *op = names[i].op;
        if (*op == KV_BITS_NOT && source_count != 1) {
            kv_call_error(call, "ERR BITOP NOT must be called with a single source key.");
            return false;
        }
        if (names[i].alone != NULL && source_count == 1) {
            kv_call_error(call, names[i].alone);
            return false;
        }
        return true;
    }
    kv_call_syntax_error(call);
    return false;
}

/* Slices of all sources, integers printed into memory of the arena; NULL: an error is replied.
 * *len becomes the longest. */
static struct kv_slice *bitop_sources(struct kv_call *call, size_t *len)
{
    size_t count = (size_t)call->key_count - 1;
    struct kv_slice *sources = kv_arena_try_alloc(call->arena, count * sizeof(*sources));
    if (sources == NULL) {
        kv_call_no_memory(call);
        return NULL;
    }
    *len = 0;
    for (size_t i = 0; i < count; i++) {
        struct kv_entry *e = kv_store_read(&call->view, &call->keys[i + 1]);
        if (!kv_call_want_string(call, e))
            return NULL;
        sources[i] = KV_SLICE("");
        if (e != NULL) {
            char *scratch = NULL;
            if (kv_entry_encoding(e) == KV_ENC_INT) {
                scratch = kv_arena_try_alloc(call->arena, KV_INT_TEXT_MAX);
                if (scratch == NULL) {
                    kv_call_no_memory(call);
                    return NULL;
                }
            }
            sources[i] = kv_entry_string(e, scratch);
        }
        *len = KV_MAX(*len, sources[i].len);
    }
    return sources;
}

/* Stores a result that has a block of its own. */
static enum kv_err bitop_store_block(struct kv_call *call, enum kv_bits_op op,
                                     const struct kv_slice *sources, size_t len)
{
    struct kv_bigstr *block = kv_bigstr_try_create(len, KV_MEM_VALUE);
    if (block == NULL)
        return KV_ERR_NOMEM;
    kv_bits_combine(op, sources, (size_t)call->key_count - 1, block->data, len);
    enum kv_err err =
        kv_store_set_block_take(&call->view, &call->keys[0], &block, KV_NO_EXPIRY, NULL);
    if (err != KV_OK)
        kv_bigstr_unref(block);
    return err;
}

static enum kv_err bitop_store(struct kv_call *call, enum kv_bits_op op,
                               const struct kv_slice *sources, size_t len)
{
    const struct kv_key *k = &call->keys[0];
    if (len >= RESULT_BLOCK_BYTES)
        return bitop_store_block(call, op, sources, len);
    char *result = kv_arena_try_alloc(call->arena, len);
    if (result == NULL)
        return KV_ERR_NOMEM;
    kv_bits_combine(op, sources, (size_t)call->key_count - 1, result, len);
    enum kv_err err = kv_store_set(&call->view, k, kv_slice(result, len), KV_NO_EXPIRY, NULL);
    if (err != KV_OK)
        return err;
    /* A bitmap is raw however short it is. That is layout: should it fail, the value still holds.
     */
    char *bytes;
    if (len <= KV_EMBSTR_MAX)
        err = kv_store_edit_string(&call->view, k, kv_store_peek(&call->view, k), len, &bytes);
    (void)err;
    return KV_OK;
}

/* BITOP operation destkey key [key ...] */
void kv_cmd_bitop(struct kv_call *call)
{
    const struct kv_key *k = &call->keys[0];
    enum kv_bits_op op;
    size_t len;
    if (!bitop_operation(call, &op))
        return;
    KV_ASSERT(call->key_count == call->argc - 2);
    struct kv_slice *sources = bitop_sources(call, &len);
    if (sources == NULL)
        return;
    if (len == 0) {
        struct kv_entry *old = kv_store_write(&call->view, k);
        if (old != NULL)
            kv_string_delete(call, k, old);
        kv_reply_int(call->out, 0);
        return;
    }
    enum kv_err err = bitop_store(call, op, sources, len);
    if (err != KV_OK) {
        kv_call_failed(call, err);
        return;
    }
    kv_store_changed(&call->view, k, KV_EVENT_STRING, "set");
    kv_reply_int(call->out, (int64_t)len);
}
