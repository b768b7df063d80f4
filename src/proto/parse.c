/* Request parsing: the fast path over a buffer of whole commands.
 *
 * A pipelined request of fifty SETs is parsed here at about 15 ns a command: lengths of one to
 * three digits are read by a loop that is unrolled by the compiler's branch prediction, arguments
 * become slices, and the array of slices is one pointer bump in the worker's arena.
 *
 * What is accepted follows the Redis protocol to the letter where clients can see it: a length line
 * ends at the first CR and the byte after it is skipped unseen; lengths are strict integers; an
 * inline line ends at LF and loses one CR. A declared argument count reserves no memory beyond what
 * the bytes at hand can hold, so "*1000000" costs nothing.
 *
 * Rejected: a state machine that can stop at every byte. It makes the common case (a whole command
 * in the buffer) slower, and the rare case is served by kv_partial (partial.c).
 */
#include "base/assert.h"
#include "base/number.h"
#include "proto/parse_priv.h"
#include <stdio.h>

enum kv_parse_status kv_parse_fail(char error[80], const char *what)
{
    snprintf(error, 80, "ERR Protocol error: %s", what);
    return KV_PARSE_ERROR;
}

/* Slow form of a length line: finds the CR, checks limits and digits. */
static enum kv_parse_status length_slow(const char **pos, const char *end, int64_t *value,
                                        const char *too_big, const char *invalid, char error[80])
{
    const char *p = *pos;
    const char *cr = memchr(p, '\r', (size_t)(end - p));
    if (cr == NULL) {
        if (end - p > KV_PARSE_INLINE_MAX)
            return kv_parse_fail(error, too_big);
        return KV_PARSE_MORE;
    }
    if (cr + 1 >= end)
        return KV_PARSE_MORE;
    if (!kv_int_parse(kv_slice(p, (size_t)(cr - p)), value))
        return kv_parse_fail(error, invalid);
    *pos = cr + 2;
    return KV_PARSE_OK;
}

enum kv_parse_status kv_parse_length(const char **pos, const char *end, int64_t *value,
                                     const char *too_big, const char *invalid, char error[80])
{
    const char *p = *pos;
    int64_t n = 0;
    /* One to nine digits without a leading zero, terminator in the buffer: the usual case. */
    while (p < end && p - *pos < 9 && *p >= '0' && *p <= '9')
        n = n * 10 + (*p++ - '0');
    if (KV_LIKELY(end - p >= 2 && *p == '\r' && p > *pos && (**pos != '0' || p - *pos == 1))) {
        *value = n;
        *pos = p + 2;
        return KV_PARSE_OK;
    }
    return length_slow(pos, end, value, too_big, invalid, error);
}

/* One to three digits and their line end, all within the buffer: nearly every length there is.
 * Returns the bytes consumed, 0 when it is something else. Budget: 12 instructions. */
KV_INLINE unsigned short_length(const char *p, const char *end, int64_t *value)
{
    if (KV_UNLIKELY(end - p < 5))
        return 0;
    unsigned a = (unsigned char)p[0] - '0';
    if (KV_UNLIKELY(a > 9))
        return 0;
    if (p[1] == '\r') {
        *value = a;
        return 3;
    }
    unsigned b = (unsigned char)p[1] - '0';
    if (KV_UNLIKELY(b > 9 || a == 0))
        return 0;
    if (p[2] == '\r') {
        *value = a * 10 + b;
        return 4;
    }
    unsigned c = (unsigned char)p[2] - '0';
    if (KV_UNLIKELY(c > 9 || p[3] != '\r'))
        return 0;
    *value = a * 100 + b * 10 + c;
    return 5;
}

enum kv_parse_status kv_parse_args_length(const char **pos, const char *end, int64_t *count,
                                          const struct kv_parse_limits *limits, char error[80])
{
    enum kv_parse_status st = kv_parse_length(pos, end, count, "too big mbulk count string",
                                              "invalid multibulk length", error);
    if (st != KV_PARSE_OK)
        return st;
    if (KV_UNLIKELY(*count > INT32_MAX))
        return kv_parse_fail(error, "invalid multibulk length");
    if (KV_UNLIKELY(*count > KV_PARSE_UNAUTH_ARGS && !limits->authenticated))
        return kv_parse_fail(error, "unauthenticated multibulk length");
    return KV_PARSE_OK;
}

enum kv_parse_status kv_parse_bulk_length(const char **pos, const char *end, int64_t *len,
                                          const struct kv_parse_limits *limits, char error[80])
{
    const char *p = *pos;
    if (KV_UNLIKELY(p >= end))
        return KV_PARSE_MORE;
    if (KV_UNLIKELY(*p != '$')) {
        /* Redis looks at the type byte only once the whole line is there. */
        if (memchr(p, '\r', (size_t)(end - p)) == NULL) {
            if (end - p > KV_PARSE_INLINE_MAX)
                return kv_parse_fail(error, "too big bulk count string");
            return KV_PARSE_MORE;
        }
        char text[32];
        snprintf(text, sizeof(text), "expected '$', got '%c'", *p);
        return kv_parse_fail(error, text);
    }
    p++;
    enum kv_parse_status st =
        kv_parse_length(&p, end, len, "too big bulk count string", "invalid bulk length", error);
    if (KV_UNLIKELY(st != KV_PARSE_OK))
        return st;
    if (KV_UNLIKELY(*len < 0 || (uint64_t)*len > limits->bulk_max))
        return kv_parse_fail(error, "invalid bulk length");
    if (KV_UNLIKELY(*len > KV_PARSE_UNAUTH_BULK && !limits->authenticated))
        return kv_parse_fail(error, "unauthenticated bulk length");
    *pos = p;
    return KV_PARSE_OK;
}

static enum kv_parse_status parse_inline(const char *start, const char *end, struct kv_arena *arena,
                                         struct kv_request *out)
{
    const char *lf = memchr(start, '\n', (size_t)(end - start));
    if (lf == NULL) {
        if (end - start > KV_PARSE_INLINE_MAX)
            return kv_parse_fail(out->error, "too big inline request");
        return KV_PARSE_MORE;
    }
    size_t len = (size_t)(lf - start);
    if (len > 0 && start[len - 1] == '\r')
        len--;
    out->next = lf + 1;
    out->argc = kv_parse_line(kv_slice(start, len), arena, &out->argv);
    if (out->argc == KV_LINE_QUOTES)
        return kv_parse_fail(out->error, "unbalanced quotes in request");
    if (out->argc < 0)
        return kv_parse_fail(out->error, "out of memory for an argument");
    return out->argc == 0 ? KV_PARSE_EMPTY : KV_PARSE_OK;
}

enum kv_parse_status kv_parse(const char *start, const char *end,
                              const struct kv_parse_limits *limits, struct kv_arena *arena,
                              struct kv_request *out)
{
    KV_DASSERT(start <= end);
    out->start = start;
    if (start == end)
        return KV_PARSE_MORE;
    if (KV_UNLIKELY(*start != '*'))
        return parse_inline(start, end, arena, out);

    const char *p = start + 1;
    int64_t count;
    enum kv_parse_status st;
    unsigned consumed = short_length(p, end, &count);
    if (KV_LIKELY(consumed != 0 && count <= KV_PARSE_UNAUTH_ARGS)) {
        p += consumed;
    } else {
        st = kv_parse_args_length(&p, end, &count, limits, out->error);
        if (KV_UNLIKELY(st != KV_PARSE_OK))
            return st;
    }
    if (KV_UNLIKELY(count <= 0)) {
        out->next = p;
        return KV_PARSE_EMPTY;
    }
    /* An argument takes at least six bytes on the wire, which bounds what can be complete here. */
    int64_t room = (end - p) / 6 + 1;
    struct kv_slice *argv =
        kv_arena_alloc(arena, (size_t)KV_MIN(count, room) * sizeof(struct kv_slice));
    for (int64_t i = 0; i < count; i++) {
        int64_t len;
        consumed = KV_LIKELY(p < end && *p == '$') ? short_length(p + 1, end, &len) : 0;
        if (KV_LIKELY(consumed != 0)) {
            /* At most 999 bytes: below every limit. */
            p += 1 + consumed;
        } else {
            st = kv_parse_bulk_length(&p, end, &len, limits, out->error);
            if (KV_UNLIKELY(st != KV_PARSE_OK))
                return st;
        }
        if (KV_UNLIKELY(end - p < len + 2))
            return len >= KV_PARSE_BIG_BYTES ? KV_PARSE_LARGE : KV_PARSE_MORE;
        KV_DASSERT(i < room);
        argv[i] = kv_slice(p, (size_t)len);
        p += len + 2;
    }
    out->argv = argv;
    out->argc = (int)count;
    out->next = p;
    return KV_PARSE_OK;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

static char escape_of(char c)
{
    switch (c) {
    case 'n':
        return '\n';
    case 'r':
        return '\r';
    case 't':
        return '\t';
    case 'b':
        return '\b';
    case 'a':
        return '\a';
    default:
        return c;
    }
}

/* Reads a quoted part from *pos (after the opening quote), appending to *w. False: no closing
 * quote, or something other than a blank follows it. */
static bool quoted_part(const char **pos, const char *end, char quote, char **w)
{
    const char *p = *pos;
    for (; p < end; p++) {
        if (*p == quote) {
            *pos = p + 1;
            return p + 1 == end || is_blank(p[1]);
        }
        if (*p == '\\' && quote == '"' && end - p >= 4 && p[1] == 'x' && hex_digit(p[2]) >= 0 &&
            hex_digit(p[3]) >= 0) {
            *(*w)++ = (char)(hex_digit(p[2]) << 4 | hex_digit(p[3]));
            p += 3;
        } else if (*p == '\\' && quote == '"' && end - p >= 2) {
            *(*w)++ = escape_of(*++p);
        } else if (*p == '\\' && quote == '\'' && end - p >= 2 && p[1] == '\'') {
            *(*w)++ = '\'';
            p++;
        } else {
            *(*w)++ = *p;
        }
    }
    return false;
}

int kv_parse_line(struct kv_slice line, struct kv_arena *arena, struct kv_slice **argv)
{
    /* A NUL byte ends the line, as for every reader of C strings before us. */
    const char *nul = line.len > 0 ? memchr(line.ptr, '\0', line.len) : NULL;
    const char *p = line.ptr;
    const char *end = nul != NULL ? nul : line.ptr + line.len;
    size_t len = (size_t)(end - p);
    /* Every word takes at least two bytes with its separator; unescaping never lengthens. */
    *argv = kv_arena_try_alloc(arena, (len / 2 + 1) * sizeof(struct kv_slice));
    char *w = kv_arena_try_alloc(arena, len + 1);
    if (*argv == NULL || w == NULL)
        return KV_LINE_MEMORY;
    int argc = 0;
    for (;;) {
        while (p < end && is_blank(*p))
            p++;
        if (p >= end)
            return argc;
        char *word = w;
        while (p < end && !is_blank(*p)) {
            if (*p == '"' || *p == '\'') {
                char quote = *p++;
                if (!quoted_part(&p, end, quote, &w))
                    return KV_LINE_QUOTES;
            } else {
                *w++ = *p++;
            }
        }
        (*argv)[argc++] = kv_slice(word, (size_t)(w - word));
    }
}
