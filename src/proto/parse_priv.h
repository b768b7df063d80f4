/* Shared by the two parsers of proto/: the pieces of a request's grammar. Each consumes from *pos
 * on success only. */
#ifndef KV_PROTO_PARSE_PRIV_H
#define KV_PROTO_PARSE_PRIV_H

#include "proto/parse.h"

/* Writes "ERR Protocol error: <what>" and returns KV_PARSE_ERROR. */
enum kv_parse_status kv_parse_fail(char error[80], const char *what) KV_COLD;

/* A decimal length and its line end. */
enum kv_parse_status kv_parse_length(const char **pos, const char *end, int64_t *value,
                                     const char *too_big, const char *invalid, char error[80]);

/* The count after '*', checked against the limits. */
enum kv_parse_status kv_parse_args_length(const char **pos, const char *end, int64_t *count,
                                          const struct kv_parse_limits *limits, char error[80]);

/* "$<len>" and its line end, checked against the limits. */
enum kv_parse_status kv_parse_bulk_length(const char **pos, const char *end, int64_t *len,
                                          const struct kv_parse_limits *limits, char error[80]);

#endif
