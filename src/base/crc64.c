/* CRC-64 of RDB, by carry-less multiplication where the processor has it, else eight bytes a step
 * through tables.
 *
 * Bits are reflected: bit 0 of the first byte is the highest coefficient. In a register of 64 bits,
 * bit i stands for x^(63 - i), so multiplying by x is a shift to the right.
 *
 * Tables: entry b of table 0 is the sum of the byte b; table t has it followed by t zero bytes. So
 * eight bytes are eight look-ups that do not wait for each other.
 *
 * Folding: a block X of 128 bits that lies D bits before another one counts as X * x^D, which is
 * two products of 64 bits with the constants x^(D+63) and x^(D-1), reduced by the polynomial. (One
 * less than D+64 and D, because the product of two reflected numbers comes out shifted by one bit.)
 * Four registers are folded at once, of one block each or, wide, of two; at the end they are folded
 * into one, the blocks that are left into that, and its 16 bytes and the last 15 at most go through
 * the tables like any others.
 *
 * Measured, bytes a nanosecond on the machine of docs/measurements.md, runs of 32, 128, 1024 bytes
 * and 64 KiB: tables 1.4, 1.6, 1.7, 1.6; folds 1.9, 4.7, 11.4, 12.5; wide ones 14.4 and 24.3.
 *
 * Tables and constants are worked out at the first call, once for all threads.
 */
#include "base/crc64.h"
#include "base/assert.h"
#include <pthread.h>
#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define POLYNOMIAL UINT64_C(0x95ac9329ac4bc9b5) /* 0xad93d23594c935a9, reflected */
#define FOLD_MIN 32u                            /* bytes from which folding pays */
#define WIDE_MIN 1024u                          /* and from which wide registers do */

/* A distance to fold over: both halves of a block have a constant. */
struct distance {
    uint64_t low, high;
};

static uint64_t tables[8][256];
static struct distance by_128, by_256, by_512, by_1024; /* bits */
static bool can_fold, can_fold_wide;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* a(x) * x mod P. */
static uint64_t times_x(uint64_t a)
{
    return a >> 1 ^ (a & 1 ? POLYNOMIAL : 0);
}

static uint64_t power_of_x(unsigned exponent)
{
    uint64_t a = (uint64_t)1 << 63;
    while (exponent-- > 0)
        a = times_x(a);
    return a;
}

static struct distance distance_of(unsigned bits)
{
    return (struct distance){power_of_x(bits + 63), power_of_x(bits - 1)};
}

static void prepare(void)
{
    for (unsigned byte = 0; byte < 256; byte++) {
        uint64_t sum = byte;
        for (int bit = 0; bit < 8; bit++)
            sum = times_x(sum);
        tables[0][byte] = sum;
    }
    for (unsigned byte = 0; byte < 256; byte++)
        for (int t = 1; t < 8; t++)
            tables[t][byte] = tables[0][tables[t - 1][byte] & 0xff] ^ tables[t - 1][byte] >> 8;
    by_128 = distance_of(128);
    by_256 = distance_of(256);
    by_512 = distance_of(512);
    by_1024 = distance_of(1024);
#if defined(__x86_64__)
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    can_fold_wide =
        can_fold && __builtin_cpu_supports("vpclmulqdq") && __builtin_cpu_supports("avx2");
#endif
}

static uint64_t sum_by_tables(uint64_t crc, const uint8_t *p, size_t len)
{
    for (; len >= 8; p += 8, len -= 8) {
        uint64_t word;
        memcpy(&word, p, sizeof(word));
        word ^= crc;
        crc = tables[7][word & 0xff] ^ tables[6][word >> 8 & 0xff] ^ tables[5][word >> 16 & 0xff] ^
              tables[4][word >> 24 & 0xff] ^ tables[3][word >> 32 & 0xff] ^
              tables[2][word >> 40 & 0xff] ^ tables[1][word >> 48 & 0xff] ^ tables[0][word >> 56];
    }
    for (; len > 0; p++, len--)
        crc = tables[0][(crc ^ *p) & 0xff] ^ crc >> 8;
    return crc;
}

#if defined(__x86_64__)

#define TARGET_FOLD __attribute__((target("pclmul,sse4.1")))
#define TARGET_WIDE __attribute__((target("vpclmulqdq,avx2,pclmul,sse4.1")))

TARGET_FOLD static inline __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

TARGET_FOLD static inline __m128i constants_of(struct distance d)
{
    return _mm_set_epi64x((int64_t)d.high, (int64_t)d.low);
}

/* a * x^D, of which `constants` has the powers, added to the block that lies there. */
TARGET_FOLD static inline __m128i fold(__m128i a, __m128i constants, __m128i block)
{
    __m128i first = _mm_clmulepi64_si128(a, constants, 0x00);
    __m128i second = _mm_clmulepi64_si128(a, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), block);
}

/* The sum of a block and what comes behind it. */
TARGET_FOLD static inline uint64_t sum_behind(__m128i a, const uint8_t *p, size_t len)
{
    __m128i near = constants_of(by_128);
    uint8_t block[16];
    for (; len >= 16; p += 16, len -= 16)
        a = fold(a, near, load(p));
    _mm_storeu_si128((__m128i *)(void *)block, a);
    return sum_by_tables(sum_by_tables(0, block, sizeof(block)), p, len);
}

TARGET_FOLD static uint64_t sum_by_folds(uint64_t crc, const uint8_t *p, size_t len)
{
    __m128i start = _mm_set_epi64x(0, (int64_t)crc);
    if (len < 128)
        return len < 16 ? sum_by_tables(crc, p, len)
                        : sum_behind(_mm_xor_si128(load(p), start), p + 16, len - 16);
    __m128i far = constants_of(by_512), near = constants_of(by_128), a[4];
    for (int i = 0; i < 4; i++)
        a[i] = load(p + 16 * i);
    a[0] = _mm_xor_si128(a[0], start);
    for (p += 64, len -= 64; len >= 64; p += 64, len -= 64) {
        a[0] = fold(a[0], far, load(p));
        a[1] = fold(a[1], far, load(p + 16));
        a[2] = fold(a[2], far, load(p + 32));
        a[3] = fold(a[3], far, load(p + 48));
    }
    for (int i = 1; i < 4; i++)
        a[i] = fold(a[i - 1], near, a[i]);
    return sum_behind(a[3], p, len);
}

TARGET_WIDE static inline __m256i load_wide(const uint8_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

/* Both blocks of a register by the same distance. */
TARGET_WIDE static inline __m256i fold_wide(__m256i a, __m256i constants, __m256i blocks)
{
    __m256i first = _mm256_clmulepi64_epi128(a, constants, 0x00);
    __m256i second = _mm256_clmulepi64_epi128(a, constants, 0x11);
    return _mm256_xor_si256(_mm256_xor_si256(first, second), blocks);
}

TARGET_WIDE static uint64_t sum_by_wide_folds(uint64_t crc, const uint8_t *p, size_t len)
{
    if (len < WIDE_MIN)
        return sum_by_folds(crc, p, len);
    __m256i far = _mm256_broadcastsi128_si256(constants_of(by_1024));
    __m256i near = _mm256_broadcastsi128_si256(constants_of(by_256)), a[4];
    for (int i = 0; i < 4; i++)
        a[i] = load_wide(p + 32 * i);
    a[0] = _mm256_xor_si256(a[0], _mm256_set_epi64x(0, 0, 0, (int64_t)crc));
    for (p += 128, len -= 128; len >= 128; p += 128, len -= 128) {
        a[0] = fold_wide(a[0], far, load_wide(p));
        a[1] = fold_wide(a[1], far, load_wide(p + 32));
        a[2] = fold_wide(a[2], far, load_wide(p + 64));
        a[3] = fold_wide(a[3], far, load_wide(p + 96));
    }
    for (int i = 1; i < 4; i++)
        a[i] = fold_wide(a[i - 1], near, a[i]);
    __m128i last =
        fold(_mm256_castsi256_si128(a[3]), constants_of(by_128), _mm256_extracti128_si256(a[3], 1));
    return sum_behind(last, p, len);
}

#else

static uint64_t sum_by_folds(uint64_t crc, const uint8_t *p, size_t len)
{
    return sum_by_tables(crc, p, len);
}

static uint64_t sum_by_wide_folds(uint64_t crc, const uint8_t *p, size_t len)
{
    return sum_by_tables(crc, p, len);
}

#endif

uint64_t kv_crc64(uint64_t crc, const void *bytes, size_t len)
{
    pthread_once(&once, prepare);
    KV_DASSERT(tables[0][1] != 0);
    if (len < FOLD_MIN || !can_fold)
        return sum_by_tables(crc, bytes, len);
    return len >= WIDE_MIN && can_fold_wide ? sum_by_wide_folds(crc, bytes, len)
                                            : sum_by_folds(crc, bytes, len);
}

bool kv_crc64_by(enum kv_crc64_way way, uint64_t crc, const void *bytes, size_t len, uint64_t *sum)
{
    KV_ASSERT(way < KV_CRC64_WAY_COUNT);
    pthread_once(&once, prepare);
    if ((way == KV_CRC64_FOLDS && !can_fold) || (way == KV_CRC64_WIDE_FOLDS && !can_fold_wide))
        return false;
    *sum = way == KV_CRC64_TABLES  ? sum_by_tables(crc, bytes, len)
           : way == KV_CRC64_FOLDS ? sum_by_folds(crc, bytes, len)
                                   : sum_by_wide_folds(crc, bytes, len);
    return true;
}

/* a(x) * b(x) mod P: a bit of b at a time, from the lowest coefficient on. */
static uint64_t multiply(uint64_t a, uint64_t b)
{
    uint64_t product = 0;
    for (uint64_t bit = (uint64_t)1 << 63; bit != 0; bit >>= 1, a = times_x(a))
        if (b & bit)
            product ^= a;
    return product;
}

uint64_t kv_crc64_combine(uint64_t first, uint64_t second, uint64_t second_len)
{
    /* Behind the first lie 8 * second_len bits: it is multiplied by so high a power of x. */
    uint64_t power = (uint64_t)1 << 55;
    for (; second_len != 0; second_len >>= 1) {
        if (second_len & 1)
            first = multiply(first, power);
        power = multiply(power, power);
    }
    return first ^ second;
}
