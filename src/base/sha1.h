/* SHA-1 (FIPS 180-4): the name of a script in the protocol. Not for secrets. Pure, any thread. */
#ifndef KV_BASE_SHA1_H
#define KV_BASE_SHA1_H

#include "base/compiler.h"

#define KV_SHA1_HEX 40 /* digits of a digest in text */

/* Writes the digest as lower-case hexadecimal digits without terminator. */
void kv_sha1_hex(const void *bytes, size_t len, char out[KV_SHA1_HEX]);

#endif
