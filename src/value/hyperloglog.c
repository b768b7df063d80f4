/* HyperLogLog. The form is drawn in hyperloglog.h.
 *
 * Elements are hashed with MurmurHash64A (Austin Appleby, public domain) and the seed that Redis
 * chose, since counts are merged across servers and files. The estimator is Otmar Ertl's improved
 * one ("New cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6): one
 * formula from the histogram of the registers, without tables for a bias, good over the whole
 * range. Its sums are done in the paper's order, so that all servers come to the same number.
 *
 * Raising a register of the sparse form splits the run that covers it into up to three, then joins
 * runs of equal level near the place, four registers each at most. What it becomes depends on the
 * order of additions; it is kept to what Redis would write, so that equal commands leave equal
 * strings on replicas of either kind.
 *
 * Dense registers are read eight at a time: 48 bits are six bytes.
 *
 * Foreign bytes: anybody can SET such a string. No function reads beyond the length it is given,
 * and a sparse form whose runs are not exactly 16,384 registers is corrupt.
 */
#include "value/hyperloglog.h"
#include "base/assert.h"
#include <assert.h>
#include <math.h>

#define INDEX_BITS 14
#define LEVEL_BITS 6
#define LEVEL_MAX 63u
#define HASH_BITS (64 - INDEX_BITS) /* of the hash that count zeros */
#define HASH_SEED UINT64_C(0xadc83b19)
#define ALPHA_INFINITE 0.721347520444481703680 /* 1 / (2 ln 2) */
#define SPARSE_LEVEL_MAX 32u
#define VALUE_RUN_MAX 4u
#define SHORT_ZERO_MAX 64u
#define JOIN_STEPS 5 /* runs looked at after a change */
#define COUNT_AT 8   /* of the head */

static_assert(KV_HLL_REGISTERS == 1u << INDEX_BITS, "the index names a register");
static_assert(KV_HLL_DENSE_BYTES == 12304, "the length that other servers expect");

/* --- hashing --- */

static uint64_t mix(uint64_t word)
{
    const uint64_t m = UINT64_C(0xc6a4a7935bd1e995);
    word *= m;
    word ^= word >> 47;
    return word * m;
}

static uint64_t murmur(struct kv_slice s)
{
    const uint64_t m = UINT64_C(0xc6a4a7935bd1e995);
    uint64_t hash = HASH_SEED ^ (s.len * m), word;
    size_t i;
    for (i = 0; i + 8 <= s.len; i += 8) {
        memcpy(&word, s.ptr + i, sizeof(word));
        hash = (hash ^ mix(word)) * m;
    }
    if (i < s.len) {
        word = 0;
        memcpy(&word, s.ptr + i, s.len - i);
        hash = (hash ^ word) * m;
    }
    hash ^= hash >> 47;
    hash *= m;
    return hash ^ hash >> 47;
}

struct kv_hll_mark kv_hll_mark(struct kv_slice element)
{
    uint64_t hash = murmur(element);
    /* The bit behind the last one stops the count. */
    uint64_t rest = hash >> INDEX_BITS | (uint64_t)1 << HASH_BITS;
    struct kv_hll_mark mark = {(uint32_t)hash & (KV_HLL_REGISTERS - 1),
                               (uint8_t)(__builtin_ctzll(rest) + 1)};
    KV_DASSERT(mark.level >= 1 && mark.level <= HASH_BITS + 1);
    return mark;
}

/* --- head --- */

bool kv_hll_is(struct kv_slice bytes)
{
    if (bytes.len < KV_HLL_HEAD || memcmp(bytes.ptr, "HYLL", 4) != 0)
        return false;
    return bytes.ptr[4] == 1 || (bytes.ptr[4] == 0 && bytes.len == KV_HLL_DENSE_BYTES);
}

void kv_hll_write_empty(uint8_t to[KV_HLL_EMPTY_BYTES])
{
    memset(to, 0, KV_HLL_HEAD);
    memcpy(to, "HYLL", 4);
    to[4] = 1;
    to[KV_HLL_HEAD] = 0x40 | (KV_HLL_REGISTERS - 1) >> 8;
    to[KV_HLL_HEAD + 1] = (KV_HLL_REGISTERS - 1) & 0xff;
}

bool kv_hll_kept_count(const uint8_t *bytes, uint64_t *count)
{
    memcpy(count, bytes + COUNT_AT, sizeof(*count));
    return *count >> 63 == 0;
}

void kv_hll_keep_count(uint8_t *bytes, uint64_t count)
{
    KV_ASSERT(count >> 63 == 0);
    memcpy(bytes + COUNT_AT, &count, sizeof(count));
}

void kv_hll_forget_count(uint8_t *bytes)
{
    bytes[COUNT_AT + 7] |= 0x80;
}

/* --- runs --- */

struct kv_hll_run kv_hll_run_at(const uint8_t *at, const uint8_t *end)
{
    KV_DASSERT(at < end);
    if (*at & 0x80)
        return (struct kv_hll_run){(*at & 3u) + 1, (uint8_t)((*at >> 2 & 31) + 1), 1};
    if (*at < 0x40)
        return (struct kv_hll_run){*at + 1u, 0, 1};
    if (end - at < 2)
        return (struct kv_hll_run){KV_HLL_REGISTERS + 1, 0, 2}; /* cut off: covers too much */
    return (struct kv_hll_run){((at[0] & 0x3fu) << 8 | at[1]) + 1, 0, 2};
}

static uint8_t value_opcode(uint8_t level, uint32_t len)
{
    KV_DASSERT(level >= 1 && level <= SPARSE_LEVEL_MAX);
    KV_DASSERT(len >= 1 && len <= VALUE_RUN_MAX);
    return (uint8_t)(0x80 | (level - 1) << 2 | (len - 1));
}

/* Appends a run of registers that are 0 or `level`, if there are any. */
static size_t put_run(uint8_t *to, size_t at, uint8_t level, uint32_t len)
{
    if (len == 0)
        return at;
    if (level != 0) {
        to[at] = value_opcode(level, len);
        return at + 1;
    }
    len--;
    if (len < SHORT_ZERO_MAX) {
        to[at] = (uint8_t)len;
        return at + 1;
    }
    to[at] = (uint8_t)(0x40 | len >> 8);
    to[at + 1] = (uint8_t)len;
    return at + 2;
}

/* Visits all runs; false: they are not 16,384 registers. */
static bool each_run(struct kv_slice sparse,
                     void (*visit)(uint32_t first, const struct kv_hll_run *run, void *arg),
                     void *arg)
{
    const uint8_t *at = (const uint8_t *)sparse.ptr + KV_HLL_HEAD;
    const uint8_t *end = (const uint8_t *)sparse.ptr + sparse.len;
    uint32_t first = 0;
    while (at < end) {
        struct kv_hll_run run = kv_hll_run_at(at, end);
        if (run.len > KV_HLL_REGISTERS - first)
            return false;
        visit(first, &run, arg);
        first += run.len;
        at += run.bytes;
    }
    return first == KV_HLL_REGISTERS;
}

/* --- raising a register of the sparse form --- */

/* Joins runs of the same level from `at` on, a few of them. */
static void join_runs(uint8_t *bytes, size_t *len, size_t at)
{
    for (int step = 0; step < JOIN_STEPS && at < *len; step++) {
        struct kv_hll_run run = kv_hll_run_at(bytes + at, bytes + *len);
        if (run.level != 0 && at + 1 < *len) {
            struct kv_hll_run next = kv_hll_run_at(bytes + at + 1, bytes + *len);
            if (next.level == run.level && run.len + next.len <= VALUE_RUN_MAX) {
                bytes[at + 1] = value_opcode(run.level, run.len + next.len);
                memmove(bytes + at, bytes + at + 1, *len - at - 1);
                --*len;
                continue;
            }
        }
        at += run.bytes;
    }
}

enum kv_hll_change kv_hll_raise_sparse(uint8_t *bytes, size_t *len, size_t max_len,
                                       struct kv_hll_mark mark)
{
    size_t at = KV_HLL_HEAD, before = KV_HLL_HEAD;
    uint32_t first = 0;
    struct kv_hll_run run = {0};
    KV_DASSERT(mark.index < KV_HLL_REGISTERS);
    if (mark.level > SPARSE_LEVEL_MAX)
        return KV_HLL_TOO_LONG;
    while (at < *len) {
        run = kv_hll_run_at(bytes + at, bytes + *len);
        if (mark.index < first + run.len)
            break;
        before = at;
        at += run.bytes;
        first += run.len;
    }
    if (at >= *len || run.len > KV_HLL_REGISTERS - first)
        return KV_HLL_CORRUPT;
    if (run.level >= mark.level)
        return KV_HLL_SAME;
    uint8_t parts[2 + 1 + 2];
    size_t part_len = put_run(parts, 0, run.level, mark.index - first);
    part_len = put_run(parts, part_len, mark.level, 1);
    part_len = put_run(parts, part_len, run.level, first + run.len - 1 - mark.index);
    KV_DASSERT(part_len <= run.bytes + KV_HLL_SPARSE_STEP);
    if (part_len > run.bytes && *len + part_len - run.bytes > max_len)
        return KV_HLL_TOO_LONG;
    memmove(bytes + at + part_len, bytes + at + run.bytes, *len - at - run.bytes);
    memcpy(bytes + at, parts, part_len);
    *len = *len + part_len - run.bytes;
    join_runs(bytes, len, before);
    return KV_HLL_RAISED;
}

/* --- the dense form --- */

uint8_t kv_hll_dense_level(const uint8_t *bytes, uint32_t index)
{
    const uint8_t *p = bytes + KV_HLL_HEAD + index * LEVEL_BITS / 8;
    unsigned shift = index * LEVEL_BITS % 8;
    KV_DASSERT(index < KV_HLL_REGISTERS);
    /* The last register ends with its byte: there is no second one to read. */
    unsigned pair = shift > 2 ? p[0] | (unsigned)p[1] << 8 : p[0];
    return (uint8_t)(pair >> shift & LEVEL_MAX);
}

bool kv_hll_raise_dense(uint8_t *bytes, struct kv_hll_mark mark)
{
    uint8_t *p = bytes + KV_HLL_HEAD + mark.index * LEVEL_BITS / 8;
    unsigned shift = mark.index * LEVEL_BITS % 8;
    KV_DASSERT(mark.level <= LEVEL_MAX);
    if (kv_hll_dense_level(bytes, mark.index) >= mark.level)
        return false;
    p[0] = (uint8_t)((p[0] & ~(LEVEL_MAX << shift)) | (unsigned)mark.level << shift);
    if (shift > 2)
        p[1] = (uint8_t)((p[1] & ~(LEVEL_MAX >> (8 - shift))) | mark.level >> (8 - shift));
    return true;
}

void kv_hll_pack(uint8_t to[KV_HLL_DENSE_BYTES], const uint8_t registers[KV_HLL_REGISTERS])
{
    uint8_t *p = to + KV_HLL_HEAD;
    for (uint32_t i = 0; i < KV_HLL_REGISTERS; i += 8, p += LEVEL_BITS) {
        uint64_t word = 0;
        for (unsigned j = 0; j < 8; j++)
            word |= (uint64_t)(registers[i + j] & LEVEL_MAX) << LEVEL_BITS * j;
        memcpy(p, &word, LEVEL_BITS);
    }
}

/* Eight registers of the dense form from the i-th on, which is divisible by 8. */
static uint64_t eight_at(const uint8_t *bytes, uint32_t i)
{
    uint64_t word = 0;
    memcpy(&word, bytes + KV_HLL_HEAD + i / 8 * LEVEL_BITS, LEVEL_BITS);
    return word;
}

/* --- merging --- */

static void raise_run(uint32_t first, const struct kv_hll_run *run, void *arg)
{
    uint8_t *registers = arg;
    for (uint32_t i = first; run->level != 0 && i < first + run->len; i++)
        registers[i] = KV_MAX(registers[i], run->level);
}

bool kv_hll_merge(uint8_t registers[KV_HLL_REGISTERS], struct kv_slice bytes)
{
    const uint8_t *from = (const uint8_t *)bytes.ptr;
    KV_ASSERT(kv_hll_is(bytes));
    if (!kv_hll_is_dense(from))
        return each_run(bytes, raise_run, registers);
    for (uint32_t i = 0; i < KV_HLL_REGISTERS; i += 8) {
        uint64_t word = eight_at(from, i);
        for (unsigned j = 0; j < 8; j++) {
            uint8_t level = (uint8_t)(word >> LEVEL_BITS * j & LEVEL_MAX);
            registers[i + j] = KV_MAX(registers[i + j], level);
        }
    }
    return true;
}

static void set_run(uint32_t first, const struct kv_hll_run *run, void *arg)
{
    for (uint32_t i = first; run->level != 0 && i < first + run->len; i++)
        kv_hll_raise_dense(arg, (struct kv_hll_mark){i, run->level});
}

bool kv_hll_to_dense(struct kv_slice sparse, uint8_t to[KV_HLL_DENSE_BYTES])
{
    KV_ASSERT(kv_hll_is(sparse) && !kv_hll_is_dense((const uint8_t *)sparse.ptr));
    memset(to, 0, KV_HLL_DENSE_BYTES);
    memcpy(to, sparse.ptr, KV_HLL_HEAD);
    to[4] = 0;
    return each_run(sparse, set_run, to);
}

/* --- estimates --- */

/* Sums that the estimator needs of the share of registers that are empty, and full. */
static double sigma(double x)
{
    double power = 1, sum = x, last;
    if (x == 1)
        return INFINITY;
    do {
        x *= x;
        last = sum;
        sum += x * power;
        power += power;
    } while (sum != last);
    return sum;
}

static double tau(double x)
{
    double power = 1, sum = 1 - x, last;
    if (x == 0 || x == 1)
        return 0;
    do {
        x = sqrt(x);
        last = sum;
        power *= 0.5;
        sum -= (1 - x) * (1 - x) * power;
    } while (sum != last);
    return sum / 3;
}

/* How many registers have each level. */
struct histogram {
    uint32_t count[LEVEL_MAX + 1];
};

static uint64_t estimate(const struct histogram *h)
{
    const double m = KV_HLL_REGISTERS;
    double z = m * tau((m - h->count[HASH_BITS + 1]) / m);
    for (int level = HASH_BITS; level >= 1; level--) {
        z += h->count[level];
        z *= 0.5;
    }
    z += m * sigma(h->count[0] / m);
    return (uint64_t)llround(ALPHA_INFINITE * m * m / z);
}

uint64_t kv_hll_estimate_registers(const uint8_t registers[KV_HLL_REGISTERS])
{
    struct histogram h = {{0}};
    for (uint32_t i = 0; i < KV_HLL_REGISTERS; i++)
        h.count[registers[i] & LEVEL_MAX]++;
    return estimate(&h);
}

static void count_run(uint32_t first, const struct kv_hll_run *run, void *arg)
{
    struct histogram *h = arg;
    (void)first;
    h->count[run->level] += run->len;
}

bool kv_hll_estimate(struct kv_slice bytes, uint64_t *count)
{
    struct histogram h = {{0}};
    const uint8_t *from = (const uint8_t *)bytes.ptr;
    KV_ASSERT(kv_hll_is(bytes));
    if (!kv_hll_is_dense(from)) {
        if (!each_run(bytes, count_run, &h))
            return false;
    } else {
        for (uint32_t i = 0; i < KV_HLL_REGISTERS; i += 8) {
            uint64_t word = eight_at(from, i);
            for (unsigned j = 0; j < 8; j++)
                h.count[word >> LEVEL_BITS * j & LEVEL_MAX]++;
        }
    }
    *count = estimate(&h);
    return true;
}
