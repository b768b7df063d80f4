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
 * Four blocks are folded at once, 64 bytes a step; at the end they are folded into one, and its 16
 * bytes go through the tables like any others. Measured: 0.9 bytes a cycle with tables, about 8
 * with folds.
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
#define FOLD_MIN 256u                           /* bytes from which folding pays */

static uint64_t tables[8][256];
static uint64_t fold_near[2], fold_far[2]; /* by 128 and by 512 bits: constants of both halves */
static bool can_fold;
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
    fold_near[0] = power_of_x(128 + 63);
    fold_near[1] = power_of_x(128 - 1);
    fold_far[0] = power_of_x(512 + 63);
    fold_far[1] = power_of_x(512 - 1);
#if defined(__x86_64__)
    can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
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

TARGET_FOLD static inline __m128i load(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}

/* a * x^D, of which `constants` has the powers, added to the block that lies there. */
TARGET_FOLD static inline __m128i fold(__m128i a, __m128i constants, __m128i block)
{
    __m128i first = _mm_clmulepi64_si128(a, constants, 0x00);
    __m128i second = _mm_clmulepi64_si128(a, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(first, second), block);
}

TARGET_FOLD static uint64_t sum_by_folds(uint64_t crc, const uint8_t *p, size_t len)
{
    __m128i far = _mm_set_epi64x((int64_t)fold_far[1], (int64_t)fold_far[0]);
    __m128i near = _mm_set_epi64x((int64_t)fold_near[1], (int64_t)fold_near[0]);
    __m128i a[4];
    KV_DASSERT(len >= 64);
    for (int i = 0; i < 4; i++)
        a[i] = load(p + 16 * i);
    a[0] = _mm_xor_si128(a[0], _mm_set_epi64x(0, (int64_t)crc));
    for (p += 64, len -= 64; len >= 64; p += 64, len -= 64) {
        a[0] = fold(a[0], far, load(p));
        a[1] = fold(a[1], far, load(p + 16));
        a[2] = fold(a[2], far, load(p + 32));
        a[3] = fold(a[3], far, load(p + 48));
    }
    for (int i = 1; i < 4; i++)
        a[i] = fold(a[i - 1], near, a[i]);
    uint8_t rest[16];
    _mm_storeu_si128((__m128i *)(void *)rest, a[3]);
    return sum_by_tables(sum_by_tables(0, rest, sizeof(rest)), p, len);
}

#else

static uint64_t sum_by_folds(uint64_t crc, const uint8_t *p, size_t len)
{
    return sum_by_tables(crc, p, len);
}

#endif

uint64_t kv_crc64(uint64_t crc, const void *bytes, size_t len)
{
    pthread_once(&once, prepare);
    KV_DASSERT(tables[0][1] != 0);
    if (len >= FOLD_MIN && can_fold)
        return sum_by_folds(crc, bytes, len);
    return sum_by_tables(crc, bytes, len);
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
