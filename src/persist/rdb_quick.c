/* Entries in one go: see rdb_quick.h.
 *
 * The form follows from type and encoding by a table; whatever it does not have (large collections,
 * lists with due times, packed sets, foreign values) is not quick. Lengths are added up once, with
 * room for the longest head of each piece, and the pieces are then written behind each other by the
 * functions of rdb_write.h, inlined, texts of up to 32 bytes without a call.
 *
 * Measured, SAVE of small strings: 390 instructions an entry before, through a writer's puts, each
 * of which looked for room. LZF goes straight to where its bytes belong and is moved down by the
 * bytes that its lengths did not take.
 *
 * Rejected: room for the worst case of any entry. It is the value's length that decides.
 */
#include "persist/rdb_quick.h"
#include "persist/rdb_write.h"

/* Bytes beside the two strings, at most. */
#define TIME_BYTES 9u
#define IDLE_BYTES (1 + KV_RDB_LEN_BYTES)
#define FREQUENCY_BYTES 2u
#define LIST_BYTES 2u
#define HEAD_BYTES                                                                                 \
    (TIME_BYTES + IDLE_BYTES + FREQUENCY_BYTES + LIST_BYTES + 1 + 2 * KV_RDB_STRING_HEAD)

#define NONE 0xff /* no form */

static const uint8_t forms[KV_TYPE_COUNT][KV_ENC_COUNT] = {
    [KV_TYPE_STRING] = {KV_RDB_STRING, KV_RDB_STRING, KV_RDB_STRING, NONE, NONE, NONE, NONE, NONE,
                        NONE, NONE},
    [KV_TYPE_LIST] = {NONE, NONE, NONE, KV_RDB_LIST_QUICKLIST_2, NONE, NONE, NONE, NONE, NONE,
                      NONE},
    [KV_TYPE_SET] = {NONE, NONE, NONE, NONE, NONE, KV_RDB_SET_INTSET, NONE, NONE, NONE, NONE},
    [KV_TYPE_ZSET] = {NONE, NONE, NONE, KV_RDB_ZSET_LISTPACK, NONE, NONE, NONE, NONE, NONE, NONE},
    [KV_TYPE_HASH] = {NONE, NONE, NONE, KV_RDB_HASH_LISTPACK, NONE, NONE, NONE, NONE, NONE, NONE},
    [KV_TYPE_STREAM] = {NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE},
    [KV_TYPE_OTHER] = {NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE, NONE},
};

static_assert(KV_ENC_RAW == 0 && KV_ENC_EMBSTR == 1 && KV_ENC_INT == 2 && KV_ENC_LISTPACK == 3 &&
                  KV_ENC_INTSET == 5 && KV_ENC_COUNT == 10,
              "the columns of the table");

bool kv_rdb_quick_of(const struct kv_entry *e, struct kv_rdb_quick *q)
{
    KV_DASSERT(kv_entry_type(e) < KV_TYPE_COUNT && kv_entry_encoding(e) < KV_ENC_COUNT);
    q->form = forms[kv_entry_type(e)][kv_entry_encoding(e)];
    if (KV_UNLIKELY(q->form == NONE))
        return false;
    q->key = kv_entry_key(e);
    q->value = kv_slice(NULL, 0);
    if (kv_entry_encoding(e) == KV_ENC_INT) {
        bool is_int = kv_entry_string_int(e, &q->number);
        KV_ASSERT(is_int);
        q->most = HEAD_BYTES + q->key.len + KV_INT_TEXT_MAX;
    } else {
        q->value.ptr = (const char *)kv_entry_bytes(e, &q->value.len);
        KV_DASSERT(q->value.ptr != NULL);
        q->most = HEAD_BYTES + q->key.len + q->value.len;
    }
    return q->most <= KV_RDB_QUICK_MAX;
}

static uint8_t *write_bytes(uint8_t *out, struct kv_slice bytes, bool compress)
{
    if (compress && kv_rdb_may_compress(bytes)) {
        uint8_t *end = kv_rdb_write_compressed(out, bytes);
        if (end != NULL)
            return end;
    }
    return kv_rdb_write_plain(out, bytes);
}

static uint8_t *write_string(uint8_t *out, struct kv_slice text, bool compress)
{
    int64_t number;
    if (kv_rdb_is_int(text, &number)) {
        uint8_t *end = kv_rdb_write_int(out, number);
        if (end != NULL)
            return end;
    }
    return write_bytes(out, text, compress);
}

static uint8_t *write_number(uint8_t *out, int64_t number)
{
    char digits[KV_INT_TEXT_MAX];
    uint8_t *end = kv_rdb_write_int(out, number);
    if (end != NULL)
        return end;
    size_t len = kv_int_print(number, digits);
    out = kv_rdb_write_len(out, len);
    memcpy(out, digits, len);
    return out + len;
}

/* What comes before the form: time to live, and how the key was used. */
static uint8_t *write_use(const struct kv_view *v, const struct kv_entry *e, uint32_t flags,
                          uint8_t *out)
{
    if (kv_entry_has_expiry(e)) {
        int64_t expiry = kv_entry_expiry(e);
        *out++ = KV_RDB_OP_EXPIRETIME_MS;
        memcpy(out, &expiry, sizeof(expiry));
        out += sizeof(expiry);
    }
    if (flags & KV_RDB_WITH_IDLE) {
        *out++ = KV_RDB_OP_IDLE;
        out = kv_rdb_write_len(out, kv_entry_idle_seconds(e, v->now_ms));
    }
    if (flags & KV_RDB_WITH_FREQUENCY) {
        *out++ = KV_RDB_OP_FREQ;
        *out++ = (uint8_t)kv_store_frequency(v, e);
    }
    return out;
}

uint8_t *kv_rdb_quick_write(const struct kv_rdb_quick *q, const struct kv_view *v,
                            const struct kv_entry *e, uint32_t flags, bool compress, uint8_t *out)
{
    KV_DEBUG_ONLY(const uint8_t *start = out);
    out = write_use(v, e, flags, out);
    *out++ = q->form;
    out = write_string(out, q->key, compress);
    if (q->form == KV_RDB_STRING) {
        out = q->value.ptr == NULL ? write_number(out, q->number)
                                   : write_string(out, q->value, compress);
    } else {
        if (q->form == KV_RDB_LIST_QUICKLIST_2) {
            *out++ = 1; /* nodes */
            *out++ = KV_RDB_CONTAINER_PACKED;
        }
        out = write_bytes(out, q->value, compress);
    }
    KV_DASSERT((size_t)(out - start) <= q->most);
    return out;
}
