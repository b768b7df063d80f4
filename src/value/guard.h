/* A large collection that somebody saves in slices between its changes (store/sliced.h) points to a
 * guard. Whoever changes it then says first what is going to change, and thereby gets a permit:
 * the hash of a member's name, or the number of a list's end. The structures only look: debug
 * builds assert that nothing changes without one.
 *
 * Threads: under the shard's lock, as the structure. */
#ifndef KV_VALUE_GUARD_H
#define KV_VALUE_GUARD_H

#include "base/compiler.h"
#include <stddef.h>

struct kv_guard {
    uint64_t permit; /* what may be changed: the last that was announced */
};

KV_INLINE bool kv_guard_permits(const struct kv_guard *g, uint64_t what)
{
    return g == NULL || g->permit == what;
}

#endif
