/* Pseudo-random numbers (xoshiro256**, Blackman and Vigna 2018; seeded by splitmix64). Not for
 * secrets: those come from kv_random_secure. A generator belongs to one thread. */
#ifndef KV_BASE_RANDOM_H
#define KV_BASE_RANDOM_H

#include "base/compiler.h"

struct kv_random {
    uint64_t state[4];
};

void kv_random_init(struct kv_random *r, uint64_t seed);
uint64_t kv_random_next(struct kv_random *r);

/* Uniform in [0, bound); bound > 0. Unbiased. */
uint64_t kv_random_below(struct kv_random *r, uint64_t bound);

/* Fills from getrandom(2); ends the process when the system has no randomness. */
void kv_random_secure(void *bytes, size_t len);

#endif
