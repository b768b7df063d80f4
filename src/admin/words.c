/* Words of a configuration line.
 *
 * One pass. Decoding never makes a word longer than its source, so all words of a line share one
 * block as long as the line, and there are at most (length + 1) / 2 of them. Both come from the
 * caller's arena by try allocations, since a file decides the length.
 *
 * Pure but for the arena; any thread.
 *
 * Rejected: decoding in place. The line is printed in error messages after it was split.
 */
#include "admin/words.h"

#include "base/assert.h"

struct splitter {
    const char *pos, *end; /* what is left of the line */
    char *out;             /* where the next decoded byte goes */
};

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f' || c == '\0';
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

static char escape_value(char c)
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

/* Decodes what follows a backslash inside "..."; s->pos stands on the backslash. */
static void decode_escape(struct splitter *s)
{
    KV_ASSERT(*s->pos == '\\');
    if (s->end - s->pos >= 4 && s->pos[1] == 'x' && hex_value(s->pos[2]) >= 0 &&
        hex_value(s->pos[3]) >= 0) {
        *s->out++ = (char)(hex_value(s->pos[2]) * 16 + hex_value(s->pos[3]));
        s->pos += 4;
        return;
    }
    *s->out++ = escape_value(s->pos[1]);
    s->pos += 2;
}

/* Decodes a quoted stretch; s->pos stands behind the opening quote. False: no proper end. */
static bool decode_quoted(struct splitter *s, char quote)
{
    while (s->pos < s->end) {
        char c = *s->pos;
        bool more = s->end - s->pos >= 2;
        if (c == quote) {
            s->pos++;
            return s->pos == s->end || is_space(*s->pos);
        }
        if (c == '\\' && quote == '"' && more) {
            decode_escape(s);
        } else if (c == '\\' && quote == '\'' && more && s->pos[1] == '\'') {
            *s->out++ = '\'';
            s->pos += 2;
        } else {
            *s->out++ = c;
            s->pos++;
        }
    }
    return false;
}

static bool decode_word(struct splitter *s)
{
    while (s->pos < s->end && !is_space(*s->pos)) {
        char c = *s->pos++;
        if (c == '"' || c == '\'') {
            if (!decode_quoted(s, c))
                return false;
            break;
        }
        *s->out++ = c;
    }
    return true;
}

static void skip_space(struct splitter *s)
{
    while (s->pos < s->end && is_space(*s->pos))
        s->pos++;
}

static enum kv_err split(struct kv_arena *arena, struct kv_slice line, bool quotes,
                         struct kv_words *out)
{
    *out = (struct kv_words){0};
    size_t word_max = line.len / 2 + 1;
    char *bytes = kv_arena_try_alloc(arena, line.len + 1);
    struct kv_slice *items = kv_arena_try_alloc(arena, word_max * sizeof(*items));
    if (bytes == NULL || items == NULL)
        return KV_ERR_NOMEM;
    struct splitter s = {line.ptr, line.ptr + line.len, bytes};
    out->items = items;
    for (skip_space(&s); s.pos < s.end; skip_space(&s)) {
        char *start = s.out;
        if (quotes) {
            if (!decode_word(&s))
                return KV_ERR_SYNTAX;
        } else {
            while (s.pos < s.end && !is_space(*s.pos))
                *s.out++ = *s.pos++;
        }
        KV_ASSERT((size_t)out->count < word_max);
        KV_ASSERT((size_t)(s.out - bytes) <= line.len);
        items[out->count++] = kv_slice(start, (size_t)(s.out - start));
    }
    return KV_OK;
}

enum kv_err kv_words_split(struct kv_arena *arena, struct kv_slice line, struct kv_words *out)
{
    return split(arena, line, true, out);
}

enum kv_err kv_words_split_plain(struct kv_arena *arena, struct kv_slice line, struct kv_words *out)
{
    return split(arena, line, false, out);
}
