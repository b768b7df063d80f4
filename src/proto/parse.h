/* Parses requests: RESP arrays of bulk strings and inline commands, out of a buffer that holds any
 * number of commands and may end anywhere. Arguments are slices into the buffer (or into a block
 * when they are large): nothing is allocated for a command that is complete.
 *
 * A command that is incomplete is parsed again from its start when more bytes have come, unless it
 * is large (over KV_PARSE_SAVE bytes so far, or with an argument of its own block): then its state
 * is kept in a kv_parse_state, so that the total work stays linear.
 *
 * Limits and error texts are Redis'. Pure but for kv_parse_state; no sockets.
 */
#ifndef KV_PROTO_PARSE_H
#define KV_PROTO_PARSE_H

#include "base/slice.h"
#include "mem/mem.h"

#define KV_PARSE_INLINE_MAX (64 * 1024) /* bytes of an inline command or a length line */
#define KV_PARSE_BIG_BYTES (16 * 1024)  /* bulks from here on go into a block of their own */
#define KV_PARSE_SAVE (16 * 1024)       /* partial commands beyond this keep their state */

#endif
