/* LZF, the compression of strings in RDB files. The format fixes what is unpacked from what; how
 * matches are found is free, and this packer trades a little of the size for speed.
 *
 * Packed bytes are a row of two kinds of items:
 *   literals   a byte 0 .. 31, then one more bytes than it says, which are copied
 *   match      a byte whose upper three bits are the length less 2 and whose lower five are the
 *              upper bits of the distance less 1; when the length bits are all ones, a byte follows
 *              that is added to the length; then a byte with the lower bits of the distance. So
 *              lengths are 3 .. 264, distances 1 .. 8192, and the match may reach into itself.
 *
 * The same bytes always give the same packed bytes. Nothing is allocated; packing takes 16 KiB of
 * the stack. Pure, any thread. */
#ifndef KV_BASE_LZF_H
#define KV_BASE_LZF_H

#include "base/compiler.h"
#include <stdbool.h>
#include <stddef.h>

/* Packs `len` bytes into at most `room`; returns how many it took, 0 when they do not fit. Nothing
 * beyond `room` is written. `out` and the bytes do not overlap. */
size_t kv_lzf_pack(const void *bytes, size_t len, void *out, size_t room);

/* Unpacks exactly `len` bytes. False: the packed bytes are damaged or give another length; what is
 * in `out` then means nothing. Trusts nothing, reads and writes within both only. */
bool kv_lzf_unpack(const void *packed, size_t packed_len, void *out, size_t len) KV_MUST_CHECK;

#endif
