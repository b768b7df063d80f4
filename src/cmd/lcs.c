/* LCS: the longest common subsequence of two strings.
 *
 * The classic dynamic programme over prefixes: L(i, j) is the length for the first i bytes of one
 * and the first j bytes of the other. Only two rows of lengths are kept. Walking back needs to know
 * in each cell whether L(i - 1, j) is greater than L(i, j - 1), which is one bit, and whether the
 * bytes are equal, which the strings themselves tell. So the table costs one bit a cell where the
 * usual one costs four bytes, and the 500 MB that the limit below allows elsewhere are 16 MB here.
 *
 * Data layout: `up` is a bit matrix, cell (i, j) at bit (i - 1) * b.len + (j - 1); the rows are
 * arrays of b.len + 1 lengths. All from the call's arena by try allocations; LEN alone makes no
 * matrix.
 *
 * Invariants
 *   - The work is bounded: (a + 1) * (b + 1) * 4 may not pass proto-max-bulk-len. This is the limit
 *     that clients know, kept although memory would allow more, because time would not: the command
 *     holds the shards' locks.
 *   - Among several longest subsequences the one is chosen that walking back with a preference for
 *     the second string gives; replies depend on that order.
 *
 * Matches are reported from the end of the strings to the beginning, as they are found, in an array
 * whose length is filled in afterwards.
 *
 * Threads: under the locks of both keys' shards.
 *
 * Rejected: Hirschberg's algorithm (linear memory, twice the time under locks) and bit-parallel
 * methods (fast for LEN, but they would choose other matches when several are longest).
 */
#include "cmd/functions.h"
#include "cmd/string_priv.h"

struct lcs {
    struct kv_slice a, b;
    uint64_t *up;    /* bit matrix, NULL when only the length is wanted */
    uint32_t length; /* of the subsequence */
    bool want_len, want_idx, want_match_len;
    int64_t min_match_len; /* shorter runs are not reported */
};

/* Walking back: a run of matches that ends where the walk is now. */
struct lcs_run {
    uint32_t a_start, a_end, b_start, b_end; /* inclusive */
    bool open;
};

static bool lcs_options(struct kv_call *call, struct lcs *s)
{
    for (int arg = 3; arg < call->argc; arg++) {
        if (kv_call_arg_is(call, arg, "idx")) {
            s->want_idx = true;
        } else if (kv_call_arg_is(call, arg, "len")) {
            s->want_len = true;
        } else if (kv_call_arg_is(call, arg, "withmatchlen")) {
            s->want_match_len = true;
        } else if (kv_call_arg_is(call, arg, "minmatchlen") && arg + 1 < call->argc) {
            if (!kv_call_int(call, ++arg, &s->min_match_len))
                return false;
        } else {
            kv_call_syntax_error(call);
            return false;
        }
    }
    if (s->want_idx && s->want_len) {
        kv_call_error(call, "ERR If you want both the length and indexes, please just use IDX.");
        return false;
    }
    return true;
}

KV_INLINE bool up_at(const struct lcs *s, size_t i, size_t j)
{
    size_t bit = (i - 1) * s->b.len + (j - 1);
    return s->up[bit / 64] >> (bit % 64) & 1;
}

/* Computes row i from `above`; collects the matrix bits when they are wanted. */
static void lcs_row(struct lcs *s, size_t i, const uint32_t *above, uint32_t *row)
{
    char c = s->a.ptr[i - 1];
    size_t bit = (i - 1) * s->b.len;
    row[0] = 0;
    for (size_t j = 1; j <= s->b.len; j++, bit++) {
        bool greater = above[j] > row[j - 1];
        if (c == s->b.ptr[j - 1])
            row[j] = above[j - 1] + 1;
        else
            row[j] = greater ? above[j] : row[j - 1];
        if (s->up != NULL)
            s->up[bit / 64] |= (uint64_t)greater << (bit % 64);
    }
}

/* Fills s->length and s->up. False: an error is replied. */
static bool lcs_compute(struct kv_call *call, struct lcs *s)
{
    uint64_t cells, bytes;
    uint64_t limit = kv_engine_options(call->engine)->proto_max_bulk_len;
    if (__builtin_mul_overflow(s->a.len + 1, s->b.len + 1, &cells) ||
        __builtin_mul_overflow(cells, sizeof(uint32_t), &bytes) || bytes > limit) {
        kv_call_error(call, "ERR Insufficient memory, transient memory for LCS exceeds "
                            "proto-max-bulk-len");
        return false;
    }
    size_t row_bytes = (s->b.len + 1) * sizeof(uint32_t);
    uint32_t *above = kv_arena_try_alloc(call->arena, row_bytes);
    uint32_t *row = kv_arena_try_alloc(call->arena, row_bytes);
    size_t up_bytes = (cells / 64 + 1) * sizeof(uint64_t);
    if (!s->want_len)
        s->up = kv_arena_try_alloc(call->arena, up_bytes);
    if (above == NULL || row == NULL || (!s->want_len && s->up == NULL)) {
        kv_call_error(call, "ERR Insufficient memory, failed allocating transient memory for LCS");
        return false;
    }
    memset(above, 0, row_bytes);
    if (s->up != NULL)
        memset(s->up, 0, up_bytes);
    for (size_t i = 1; i <= s->a.len; i++) {
        lcs_row(s, i, above, row);
        uint32_t *done = row;
        row = above;
        above = done;
    }
    s->length = above[s->b.len];
    KV_ASSERT(s->length <= KV_MIN(s->a.len, s->b.len));
    return true;
}

static void reply_pair(struct kv_out *out, uint32_t first, uint32_t second)
{
    kv_reply_array(out, 2);
    kv_reply_int(out, first);
    kv_reply_int(out, second);
}

/* Replies the run when it is long enough; returns 1 when it did. */
static size_t reply_run(struct kv_call *call, const struct lcs *s, struct lcs_run *run)
{
    if (!run->open)
        return 0;
    run->open = false;
    uint32_t len = run->a_end - run->a_start + 1;
    KV_ASSERT(len == run->b_end - run->b_start + 1);
    if (s->min_match_len > 0 && len < (uint64_t)s->min_match_len)
        return 0;
    kv_reply_array(call->out, s->want_match_len ? 3 : 2);
    reply_pair(call->out, run->a_start, run->a_end);
    reply_pair(call->out, run->b_start, run->b_end);
    if (s->want_match_len)
        kv_reply_int(call->out, len);
    return 1;
}

/* Walks back from the end. The subsequence goes to `text` (s->length bytes) when it is not NULL,
 * else runs are replied; returns their number. */
static size_t lcs_walk(struct kv_call *call, const struct lcs *s, char *text)
{
    struct lcs_run run = {0};
    size_t count = 0;
    uint32_t i = (uint32_t)s->a.len, j = (uint32_t)s->b.len, at = s->length;
    while (i > 0 && j > 0) {
        if (s->a.ptr[i - 1] == s->b.ptr[j - 1]) {
            KV_ASSERT(at > 0);
            at--;
            if (text != NULL)
                text[at] = s->a.ptr[i - 1];
            if (!run.open)
                run = (struct lcs_run){.a_end = i - 1, .b_end = j - 1, .open = true};
            run.a_start = --i;
            run.b_start = --j;
            continue;
        }
        if (text == NULL)
            count += reply_run(call, s, &run);
        if (up_at(s, i, j))
            i--;
        else
            j--;
    }
    KV_ASSERT(at == 0);
    if (text == NULL)
        count += reply_run(call, s, &run);
    return count;
}

static void lcs_reply_idx(struct kv_call *call, const struct lcs *s)
{
    kv_reply_map(call->out, 2);
    kv_reply_text(call->out, "matches");
    struct kv_chunk *token = kv_out_deferred_begin(call->out);
    kv_reply_array_end(call->out, token, lcs_walk(call, s, NULL));
    kv_reply_text(call->out, "len");
    kv_reply_int(call->out, s->length);
}

static void lcs_reply_text(struct kv_call *call, const struct lcs *s)
{
    char *text = kv_arena_try_alloc(call->arena, (size_t)s->length + 1);
    if (text == NULL) {
        kv_call_error(call, "ERR Insufficient memory, failed allocating transient memory for LCS");
        return;
    }
    lcs_walk(call, s, text);
    kv_reply_bulk(call->out, text, s->length);
}

/* LCS key1 key2 [LEN] [IDX] [MINMATCHLEN len] [WITHMATCHLEN] */
void kv_cmd_lcs(struct kv_call *call)
{
    char scratch_a[KV_INT_TEXT_MAX], scratch_b[KV_INT_TEXT_MAX];
    struct lcs s = {0};
    struct kv_entry *a = kv_store_read(&call->view, &call->keys[0]);
    struct kv_entry *b = kv_store_read(&call->view, &call->keys[1]);
    if ((a != NULL && kv_entry_type(a) != KV_TYPE_STRING) ||
        (b != NULL && kv_entry_type(b) != KV_TYPE_STRING)) {
        kv_call_error(call, "ERR The specified keys must contain string values");
        return;
    }
    s.a = a == NULL ? KV_SLICE("") : kv_entry_string(a, scratch_a);
    s.b = b == NULL ? KV_SLICE("") : kv_entry_string(b, scratch_b);
    if (!lcs_options(call, &s) || !lcs_compute(call, &s))
        return;
    if (s.want_idx)
        lcs_reply_idx(call, &s);
    else if (s.want_len)
        kv_reply_int(call->out, s.length);
    else
        lcs_reply_text(call, &s);
}
