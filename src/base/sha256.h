/* SHA-256 (FIPS 180-4), for passwords of users: those who keep a file of users keep hashes, as
 * Redis does. Pure; any thread. */
#ifndef KV_BASE_SHA256_H
#define KV_BASE_SHA256_H

#include "base/slice.h"

#define KV_SHA256_BYTES 32
#define KV_SHA256_HEX (2 * KV_SHA256_BYTES)

void kv_sha256(struct kv_slice message, uint8_t digest[KV_SHA256_BYTES]);

/* The digest in lower-case hexadecimal digits, without a terminator; and back. False: these are not
 * KV_SHA256_HEX lower-case digits. */
void kv_sha256_print(const uint8_t digest[KV_SHA256_BYTES], char hex[KV_SHA256_HEX]);
bool kv_sha256_parse(struct kv_slice hex, uint8_t digest[KV_SHA256_BYTES]) KV_MUST_CHECK;

/* Compares in time that does not depend on the digests. */
bool kv_sha256_equal(const uint8_t a[KV_SHA256_BYTES],
                     const uint8_t b[KV_SHA256_BYTES]) KV_MUST_CHECK;

#endif
