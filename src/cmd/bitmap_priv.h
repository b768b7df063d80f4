/* What bitmap.c and bitfield.c share. */
#ifndef KV_CMD_BITMAP_PRIV_H
#define KV_CMD_BITMAP_PRIV_H

#include "engine/call.h"

/* Argument `arg` as a bit offset; with `width` > 0 "#n" stands for n * width. The byte that it
 * names must be within proto-max-bulk-len. False: the error is replied. */
bool kv_bitmap_offset(struct kv_call *call, int arg, unsigned width,
                      uint64_t *offset) KV_MUST_CHECK;

#endif
