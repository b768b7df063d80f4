/* How many cores this process may use. */
#ifndef KV_ADMIN_CORES_H
#define KV_ADMIN_CORES_H

#include "base/compiler.h"

/* The cores of the affinity mask, lowered to the processor limit of the control groups (version 1
 * and 2, the tightest of all enclosing groups, rounded up). At least 1. Reads files; call at start.
 */
uint32_t kv_cores_available(void);

/* Cores that a "quota period" pair allows: "max 100000" -> UINT32_MAX, "150000 100000" -> 2. */
uint32_t kv_cores_of_quota(const char *text);

#endif
