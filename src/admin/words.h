/* Splits a line of a configuration file into words.
 *
 * Words are separated by white space. "..." keeps spaces and knows \n \r \t \b \a, \xHH and \c for
 * any other character c; '...' keeps everything but \' . A closing quote ends its word: what
 * follows must be white space or the end of the line. Quotes may open in the middle of a word. */
#ifndef KV_ADMIN_WORDS_H
#define KV_ADMIN_WORDS_H

#include "base/err.h"
#include "base/slice.h"
#include "mem/arena.h"

struct kv_words {
    struct kv_slice *items; /* in the arena; decoded */
    int count;              /* 0 for a blank line */
};

/* KV_ERR_SYNTAX: unbalanced quotes. KV_ERR_NOMEM: arena exhausted. Words live in the arena.
 * A NUL byte ends the line. */
enum kv_err kv_words_split(struct kv_arena *arena, struct kv_slice line,
                           struct kv_words *out) KV_MUST_CHECK;

/* White space without quoting rules: for a value that came as one argument. Words borrow from it.
 */
enum kv_err kv_words_split_plain(struct kv_arena *arena, struct kv_slice line,
                                 struct kv_words *out) KV_MUST_CHECK;

#endif
