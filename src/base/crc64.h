/* The CRC-64 of RDB files and DUMP payloads: polynomial 0xad93d23594c935a9 (found by David Jones),
 * bits reflected, start value 0, nothing added at the end. Check value: the text "123456789" gives
 * 0xe9c6d914c4b8d9ca. Pure, any thread. */
#ifndef KV_BASE_CRC64_H
#define KV_BASE_CRC64_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The sum of what `crc` is the sum of, followed by these bytes. Start with 0. */
uint64_t kv_crc64(uint64_t crc, const void *bytes, size_t len);

/* The sum of two runs of bytes, one behind the other, from the sum of each; `second_len` bytes are
 * in the second. So parts can be summed apart, and a part that was changed be corrected: sums of
 * equally long runs differ as the sum of their difference does. */
uint64_t kv_crc64_combine(uint64_t first, uint64_t second, uint64_t second_len);

/* Ways to the same sum, which kv_crc64 chooses from by what the processor has and by the length. */
enum kv_crc64_way {
    KV_CRC64_TABLES,     /* anywhere: eight bytes a step through tables */
    KV_CRC64_FOLDS,      /* PCLMULQDQ: 64 bytes a step */
    KV_CRC64_WIDE_FOLDS, /* VPCLMULQDQ with AVX2: 128 bytes a step */
    KV_CRC64_WAY_COUNT
};

/* kv_crc64 in one of the ways, for tests and measurements. False: this processor lacks it. */
bool kv_crc64_by(enum kv_crc64_way way, uint64_t crc, const void *bytes, size_t len,
                 uint64_t *sum) KV_MUST_CHECK;

#endif
