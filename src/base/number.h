/* Text to number and back, exactly as the Redis protocol does it: strict parsing (no spaces, no
 * plus sign, no leading zeros for integers), shortest printing. Pure functions, any thread. */
#ifndef KV_BASE_NUMBER_H
#define KV_BASE_NUMBER_H

#include "base/compiler.h"
#include "base/slice.h"

#define KV_INT_TEXT_MAX 21             /* bytes for any int64 or uint64, no terminator */
#define KV_DOUBLE_TEXT_MAX 128         /* bytes for kv_double_print, with terminator */
#define KV_LDOUBLE_TEXT_MAX (5 * 1024) /* bytes for kv_ldouble_print, with terminator */

/* "-12": true and *out. "", "+1", " 1", "01", "-0", "1.0" and what passes 64 bits: false. */
bool kv_int_parse(struct kv_slice text, int64_t *out) KV_MUST_CHECK KV_HOT;
bool kv_uint_parse(struct kv_slice text, uint64_t *out) KV_MUST_CHECK;

/* Writes the decimal form without terminator, returns its length. */
size_t kv_int_print(int64_t value, char out[KV_INT_TEXT_MAX]);
size_t kv_uint_print(uint64_t value, char out[KV_INT_TEXT_MAX]);
unsigned kv_int_digits(int64_t value); /* length of kv_int_print's result */

/* Finite or infinite ("inf", "-inf", "infinity", any case); NaN, spaces, hex floats with garbage,
 * empty text and out-of-range (ERANGE to infinity) are refused. As Redis' getDoubleFromObject. */
bool kv_double_parse(struct kv_slice text, double *out) KV_MUST_CHECK;
bool kv_ldouble_parse(struct kv_slice text, long double *out) KV_MUST_CHECK;

/* Shortest text that reads back as the same double, as a RESP3 double and ZSCORE print it
 * (Redis 8: "1", "1.5", "1e+20", "inf", "-inf", "nan"). Terminated; returns the length. */
size_t kv_double_print(double value, char out[KV_DOUBLE_TEXT_MAX]);

/* INCRBYFLOAT's form: 17 digits after the point, trailing zeros and a bare point removed, "-0" is
 * "0". Terminated; returns the length. */
size_t kv_ldouble_print(long double value, char out[KV_LDOUBLE_TEXT_MAX]);

/* "100", "100b", "1k", "1kb", "1m", "1mb", "1g", "1gb" (k = 1000, kb = 1024), any case. */
bool kv_memory_parse(struct kv_slice text, int64_t *bytes_out) KV_MUST_CHECK;

/* "1.50K", "12.00M" as INFO's *_human fields print. Terminated; returns the length. */
size_t kv_memory_print_human(uint64_t bytes, char out[64]);

#endif
