/* Keyed 64-bit hash of byte strings: SipHash-1-3 (Aumasson and Bernstein 2012, with one compression
 * and three finalisation rounds). The key is drawn per start, so a client cannot choose keys that
 * collide. Pure functions, any thread. */
#ifndef KV_BASE_HASH_H
#define KV_BASE_HASH_H

#include "base/compiler.h"

struct kv_hash_key {
    uint64_t k0, k1;
};

uint64_t kv_hash_bytes(const struct kv_hash_key *key, const void *bytes, size_t len) KV_HOT;

/* The same over ASCII lower-cased bytes: for command and option names. */
uint64_t kv_hash_nocase(const struct kv_hash_key *key, const void *bytes, size_t len);

#endif
