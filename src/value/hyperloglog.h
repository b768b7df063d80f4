/* HyperLogLog: an estimate of how many different elements were added, in at most 12 KiB.
 *
 * The value is a string in the form that Redis gives it, so that GET, SET, DUMP and files carry it:
 *
 *   "HYLL"    4 bytes
 *   encoding  1 byte: 0 dense, 1 sparse; then 3 bytes unused
 *   count     8 bytes, little-endian: the estimate of before; its highest bit set: not valid
 *   registers dense: 16,384 of 6 bits, the first in the lowest bits; 12,304 bytes in all
 *             sparse: runs of equal registers, in order:
 *               00llllll           l+1 registers are 0
 *               01llllll llllllll  l+1 registers are 0
 *               1vvvvvll           l+1 registers are v+1
 *
 * An element's 64-bit hash names a register by its lowest 14 bits; the register holds the largest
 * number of zero bits plus one at which the rest of a hash began.
 *
 * Nothing here allocates. Threads: pure functions over the caller's bytes.
 */
#ifndef KV_VALUE_HYPERLOGLOG_H
#define KV_VALUE_HYPERLOGLOG_H

#include "base/compiler.h"
#include "base/slice.h"

#define KV_HLL_HEAD ((size_t)16)
#define KV_HLL_REGISTERS 16384u
#define KV_HLL_DENSE_BYTES ((size_t)(16 + KV_HLL_REGISTERS * 6 / 8))
#define KV_HLL_EMPTY_BYTES ((size_t)18)                     /* a sparse one without elements */
#define KV_HLL_SPARSE_MAX ((size_t)(16 + KV_HLL_REGISTERS)) /* bytes that a sparse one may take */
#define KV_HLL_SPARSE_STEP ((size_t)3)                      /* by which it grows at most */

/* A register and what an element would raise it to. */
struct kv_hll_mark {
    uint32_t index;
    uint8_t level; /* 1 to 51 */
};

enum kv_hll_change {
    KV_HLL_SAME,
    KV_HLL_RAISED,
    KV_HLL_TOO_LONG, /* it has to become dense first; nothing changed */
    KV_HLL_CORRUPT,  /* the runs do not cover the register */
};

struct kv_hll_mark kv_hll_mark(struct kv_slice element) KV_HOT;

/* True when a string claims to be one: its head is right. */
bool kv_hll_is(struct kv_slice bytes) KV_MUST_CHECK;

KV_INLINE bool kv_hll_is_dense(const uint8_t *bytes)
{
    return bytes[4] == 0;
}

/* Writes a sparse one without elements. */
void kv_hll_write_empty(uint8_t to[KV_HLL_EMPTY_BYTES]);

/* Raises a register of a sparse one of *len bytes, behind which there is room for a step. It does
 * not grow beyond max_len. Levels above 32 are too much for this form. */
enum kv_hll_change kv_hll_raise_sparse(uint8_t *bytes, size_t *len, size_t max_len,
                                       struct kv_hll_mark mark) KV_MUST_CHECK;

/* Level of a register of a dense one, and raising it; true: it was lower. */
uint8_t kv_hll_dense_level(const uint8_t *bytes, uint32_t index);
bool kv_hll_raise_dense(uint8_t *bytes, struct kv_hll_mark mark);

/* Writes the dense form of a sparse one, with its head. False: it is corrupt. */
bool kv_hll_to_dense(struct kv_slice sparse, uint8_t to[KV_HLL_DENSE_BYTES]) KV_MUST_CHECK;

/* Raises registers of one byte each to those of a HyperLogLog of any form. False: it is corrupt. */
bool kv_hll_merge(uint8_t registers[KV_HLL_REGISTERS], struct kv_slice bytes) KV_MUST_CHECK;

/* Writes dense registers; the head stays. */
void kv_hll_pack(uint8_t to[KV_HLL_DENSE_BYTES], const uint8_t registers[KV_HLL_REGISTERS]);

/* --- estimates --- */

uint64_t kv_hll_estimate_registers(const uint8_t registers[KV_HLL_REGISTERS]);

/* Of any form, without looking at the count in its head. False: it is corrupt. */
bool kv_hll_estimate(struct kv_slice bytes, uint64_t *count) KV_MUST_CHECK;

/* The count in the head; false: it is not valid. */
bool kv_hll_kept_count(const uint8_t *bytes, uint64_t *count);
void kv_hll_keep_count(uint8_t *bytes, uint64_t count);
void kv_hll_forget_count(uint8_t *bytes);

/* --- for PFDEBUG --- */

/* A run of equal registers. */
struct kv_hll_run {
    uint32_t len;
    uint8_t level; /* 0 for the first two opcodes */
    uint8_t bytes; /* 1 or 2 */
};

/* The run whose opcode is at `at`, which is not the end; `end` - `at` may be too little for it. */
struct kv_hll_run kv_hll_run_at(const uint8_t *at, const uint8_t *end);

#endif
