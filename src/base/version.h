/* Version numbers, in one place. KV_REDIS_VERSION is what clients are told: the Redis version whose
 * commands and replies Kvik follows. */
#ifndef KV_BASE_VERSION_H
#define KV_BASE_VERSION_H

#define KV_VERSION "0.1.0"
#define KV_REDIS_VERSION "8.0.0"

#endif
