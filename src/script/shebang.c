/* The first line of a script. A script without one is of the older kind, whose commands are judged
 * one by one.
 *
 * Format (Redis documentation, "Script flags"): "#!", the engine, then words "flags=" with a list
 * separated by commas. Everything else is an error that names it. All is matched exactly.
 */
#include "script/shebang.h"
#include <assert.h>
#include <stdio.h>

#define SHOWN 100 /* bytes of the script that an error repeats */

/* Bit i is name i. */
static const char *const flag_names[] = {"no-writes", "allow-oom", "allow-stale", "no-cluster",
                                         "allow-cross-slot-keys"};
static_assert(KV_SHEBANG_ALLOW_CROSS_SLOT == 1 << 4 && KV_ARRAY_LEN(flag_names) == 5,
              "one name for each flag");

/* 0: there is no such flag. */
static uint32_t flag_of(struct kv_slice name)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(flag_names); i++)
        if (kv_slice_equal(name, kv_slice_cstr(flag_names[i])))
            return 1u << i;
    return 0;
}

uint32_t kv_shebang_flag(struct kv_slice name)
{
    for (size_t i = 0; i < KV_ARRAY_LEN(flag_names); i++)
        if (kv_slice_is(name, flag_names[i]))
            return 1u << i;
    return 0;
}

const char *kv_shebang_flag_name(uint32_t i)
{
    return i < KV_ARRAY_LEN(flag_names) ? flag_names[i] : NULL;
}

static bool fail(char error[KV_SHEBANG_ERROR_MAX], const char *what, struct kv_slice word)
{
    snprintf(error, KV_SHEBANG_ERROR_MAX, "ERR %s%.*s", what, (int)KV_MIN(word.len, (size_t)SHOWN),
             word.len > 0 ? word.ptr : "");
    return false;
}

/* Cuts the text before the next `separator` off; false: that was all of it. */
static bool cut(struct kv_slice *rest, char separator, struct kv_slice *word)
{
    const char *end = rest->len > 0 ? memchr(rest->ptr, separator, rest->len) : NULL;
    if (end == NULL) {
        *word = *rest;
        *rest = kv_slice(rest->ptr + rest->len, 0);
        return false;
    }
    size_t len = (size_t)(end - rest->ptr);
    *word = kv_slice(rest->ptr, len);
    *rest = kv_slice(end + 1, rest->len - len - 1);
    return true;
}

static bool starts_with(struct kv_slice word, struct kv_slice start, struct kv_slice *rest)
{
    if (word.len < start.len || memcmp(word.ptr, start.ptr, start.len) != 0)
        return false;
    *rest = kv_slice(word.ptr + start.len, word.len - start.len);
    return true;
}

static bool read_flags(struct kv_slice list, uint32_t *flags, char error[KV_SHEBANG_ERROR_MAX])
{
    struct kv_slice word;
    bool more = list.len > 0;
    while (more) {
        more = cut(&list, ',', &word);
        uint32_t flag = flag_of(word);
        if (flag == 0)
            return fail(error, "Unexpected flag in script shebang: ", word);
        *flags |= flag;
    }
    return true;
}

bool kv_shebang_read(struct kv_slice text, struct kv_shebang *out, char error[KV_SHEBANG_ERROR_MAX])
{
    struct kv_slice line, word, value, rest;
    *out = (struct kv_shebang){.flags = KV_SHEBANG_NONE, .code = text};
    if (!starts_with(text, KV_SLICE("#!"), &rest))
        return true;
    rest = text;
    if (!cut(&rest, '\n', &line))
        return fail(error, "Invalid script shebang", kv_slice("", 0));
    out->flags = 0;
    out->code = kv_slice(rest.ptr - 1, rest.len + 1);
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    bool more = cut(&line, ' ', &word);
    if (!kv_slice_equal(word, KV_SLICE("#!lua")))
        return fail(error, "Unexpected engine in script shebang: ", word);
    while (more) {
        more = cut(&line, ' ', &word);
        if (word.len == 0)
            continue;
        if (!starts_with(word, KV_SLICE("flags="), &value))
            return fail(error, "Unknown lua shebang option: ", word);
        if (!read_flags(value, &out->flags, error))
            return false;
    }
    return true;
}

/* --- libraries --- */

static bool is_blank(char c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

enum word { WORD_NONE, WORD_TAKEN, WORD_BROKEN };

/* The next word of a line, which may be in quotes from somewhere on: then a blank or the end
 * follows these. */
static enum word next_word(struct kv_slice *line, struct kv_slice *word)
{
    size_t i = 0, start;
    while (i < line->len && is_blank(line->ptr[i]))
        i++;
    if (i == line->len)
        return WORD_NONE;
    start = i;
    while (i < line->len && !is_blank(line->ptr[i])) {
        char quote = line->ptr[i];
        i++;
        if (quote != '"' && quote != '\'')
            continue;
        const char *end = memchr(line->ptr + i, quote, line->len - i);
        if (end == NULL)
            return WORD_BROKEN;
        i = (size_t)(end - line->ptr) + 1;
        if (i < line->len && !is_blank(line->ptr[i]))
            return WORD_BROKEN;
    }
    *word = kv_slice(line->ptr + start, i - start);
    *line = kv_slice(line->ptr + i, line->len - i);
    return WORD_TAKEN;
}

static struct kv_slice without_quotes(struct kv_slice value)
{
    if (value.len >= 2 && (value.ptr[0] == '"' || value.ptr[0] == '\'') &&
        value.ptr[value.len - 1] == value.ptr[0])
        return kv_slice(value.ptr + 1, value.len - 2);
    return value;
}

static bool is_name(struct kv_slice word)
{
    return word.len >= 5 && kv_slice_is(kv_slice(word.ptr, 5), "name=");
}

bool kv_shebang_read_library(struct kv_slice text, struct kv_slice *engine, struct kv_slice *name,
                             struct kv_slice *code, char error[KV_SHEBANG_ERROR_MAX])
{
    struct kv_slice line, word, rest;
    enum word found;
    bool named = false;
    if (!starts_with(text, KV_SLICE("#!"), &rest))
        return fail(error, "Missing library metadata", kv_slice("", 0));
    if (!cut(&rest, '\n', &line))
        return fail(error, "Invalid library metadata", kv_slice("", 0));
    *code = kv_slice(rest.ptr - 1, rest.len + 1);
    *engine = kv_slice(line.ptr, 0);
    if (line.len > 0 && !is_blank(line.ptr[0])) {
        if (next_word(&line, engine) == WORD_BROKEN)
            return fail(error, "Invalid library metadata", kv_slice("", 0));
    }
    while ((found = next_word(&line, &word)) == WORD_TAKEN) {
        if (!is_name(word))
            return fail(error, "Invalid metadata value given: ", word);
        if (named)
            return fail(error, "Invalid metadata value, name argument was given multiple times",
                        kv_slice("", 0));
        named = true;
        *name = without_quotes(kv_slice(word.ptr + 5, word.len - 5));
    }
    if (found == WORD_BROKEN)
        return fail(error, "Invalid library metadata", kv_slice("", 0));
    return named || fail(error, "Library name was not given", kv_slice("", 0));
}
