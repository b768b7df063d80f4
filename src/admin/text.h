/* A growing text: what INFO, CONFIG REWRITE and error messages are composed in. Always terminated.
 * Appending never fails loudly: when memory is short the text keeps what it had and `failed` is
 * set, so that a composer checks once, at its end. One thread at a time. */
#ifndef KV_ADMIN_TEXT_H
#define KV_ADMIN_TEXT_H

#include "base/slice.h"
#include "mem/mem.h"

struct kv_text {
    char *bytes;     /* NULL before the first byte */
    size_t len;      /* bytes in use, without terminator */
    size_t capacity; /* bytes of the block */
    bool failed;     /* an append did not fit into memory */
};

void kv_text_init(struct kv_text *t); /* takes no memory */
void kv_text_release(struct kv_text *t);
void kv_text_clear(struct kv_text *t); /* empty, and not failed */

void kv_text_append(struct kv_text *t, struct kv_slice s);
void kv_text_printf(struct kv_text *t, const char *fmt, ...) KV_PRINTF(2, 3);

/* Appends "..." with \xHH, \n and the like escaped, so that kv_words_split reads the same bytes. */
void kv_text_append_quoted(struct kv_text *t, struct kv_slice s);

/* The text as a C string, "" when empty. Valid until the next call. */
const char *kv_text_cstr(const struct kv_text *t);
struct kv_slice kv_text_slice(const struct kv_text *t);

#endif
