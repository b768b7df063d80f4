/* Words of a configuration line.
 *
 * Lines are split as the protocol's inline commands are (proto/parse.h): one grammar of quotes and
 * escapes for what people type and for what they write into a file. A value that came as one
 * argument is only split at white space. All words come from the caller's arena by try allocations,
 * since a file decides their length.
 *
 * Pure but for the arena; any thread.
 */
#include "admin/words.h"

#include "base/assert.h"
#include "proto/parse.h"

enum kv_err kv_words_split(struct kv_arena *arena, struct kv_slice line, struct kv_words *out)
{
    *out = (struct kv_words){0};
    int count = kv_parse_line(line, arena, &out->items);
    if (count == KV_LINE_QUOTES)
        return KV_ERR_SYNTAX;
    if (count == KV_LINE_MEMORY)
        return KV_ERR_NOMEM;
    KV_ASSERT(count >= 0);
    out->count = count;
    return KV_OK;
}

static bool is_space(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r') || c == '\0';
}

enum kv_err kv_words_split_plain(struct kv_arena *arena, struct kv_slice line, struct kv_words *out)
{
    *out = (struct kv_words){0};
    size_t word_max = line.len / 2 + 1;
    out->items = kv_arena_try_alloc(arena, word_max * sizeof(*out->items));
    if (out->items == NULL)
        return KV_ERR_NOMEM;
    const char *pos = line.ptr, *end = line.ptr + line.len;
    for (;;) {
        while (pos < end && is_space(*pos))
            pos++;
        if (pos >= end)
            return KV_OK;
        const char *word = pos;
        while (pos < end && !is_space(*pos))
            pos++;
        KV_ASSERT((size_t)out->count < word_max);
        out->items[out->count++] = kv_slice(word, (size_t)(pos - word));
    }
}
