/* Glob matching of KEYS, SCAN MATCH, CONFIG GET: ? * [abc] [^a] [a-z] and backslash. Behaves as the
 * Redis server does on every byte string, malformed patterns included, in time O(pattern * text)
 * whatever the pattern (a naive matcher is exponential in the number of stars). Pure. */
#ifndef KV_BASE_GLOB_H
#define KV_BASE_GLOB_H

#include "base/slice.h"

bool kv_glob_match(struct kv_slice pattern, struct kv_slice text, bool nocase) KV_MUST_CHECK;

#endif
