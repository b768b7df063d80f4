/* Pauses between attempts of what fails again and again: one second, doubled to a minute. */
#ifndef KV_PERSIST_BACKOFF_H
#define KV_PERSIST_BACKOFF_H

#include <stdint.h>

#define KV_BACKOFF_MS INT64_C(1000)
#define KV_BACKOFF_MAX_MS INT64_C(60000)

/* Milliseconds to wait after so many failures in a row, at least one. */
static inline int64_t kv_backoff_ms(uint64_t failed)
{
    return failed > 6 ? KV_BACKOFF_MAX_MS : KV_BACKOFF_MS << (failed - 1);
}

#endif
