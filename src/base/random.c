/* Pseudo-random numbers and the system's randomness.
 *
 * xoshiro256** (Blackman and Vigna, "Scrambled linear pseudorandom number generators", 2018): 256
 * bits of state, period 2^256 - 1, a handful of instructions a number. The state must not be all
 * zero; seeding it with four outputs of splitmix64 cannot give that, since splitmix64 is a
 * bijection of a counter and yields zero at most once in 2^64 steps.
 *
 * Bounded numbers use Lemire's multiplication: the high half of random * bound is the result, and
 * the few low halves that would make it biased are drawn again. That costs one multiplication where
 * the modulo costs a division, and unlike the modulo it is exactly uniform.
 *
 * Threads: a generator belongs to one thread. kv_random_secure may be called anywhere.
 *
 * Rejected: rand(3) and random(3), which lock and give 31 bits; one generator for all threads. */
#include "base/random.h"

#include "base/assert.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>

static uint64_t rotate_left(uint64_t x, unsigned n)
{
    return (x << n) | (x >> (64 - n));
}

static uint64_t splitmix64(uint64_t *counter)
{
    uint64_t z = *counter += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

void kv_random_init(struct kv_random *r, uint64_t seed)
{
    for (unsigned i = 0; i < KV_ARRAY_LEN(r->state); i++)
        r->state[i] = splitmix64(&seed);
    KV_ASSERT((r->state[0] | r->state[1] | r->state[2] | r->state[3]) != 0);
}

uint64_t kv_random_next(struct kv_random *r)
{
    uint64_t *s = r->state;
    uint64_t result = rotate_left(s[1] * 5, 7) * 9;
    uint64_t t = s[1] << 17;

    KV_DASSERT((s[0] | s[1] | s[2] | s[3]) != 0);
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

uint64_t kv_random_below(struct kv_random *r, uint64_t bound)
{
    KV_ASSERT(bound > 0);
    unsigned __int128 product = (unsigned __int128)kv_random_next(r) * bound;

    if ((uint64_t)product < bound) {
        uint64_t biased = -bound % bound; /* 2^64 mod bound: so many low halves are too many */
        while ((uint64_t)product < biased)
            product = (unsigned __int128)kv_random_next(r) * bound;
    }
    uint64_t result = (uint64_t)(product >> 64);
    KV_DASSERT(result < bound);
    return result;
}

void kv_random_secure(void *bytes, size_t len)
{
    char *pos = bytes;

    while (len > 0) {
        ssize_t got = getrandom(pos, len, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            kv_panic("the system has no randomness: %s", strerror(errno));
        KV_ASSERT((size_t)got <= len);
        pos += got;
        len -= (size_t)got;
    }
}
