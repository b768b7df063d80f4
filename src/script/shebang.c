/* The first line of a script. A script without one is of the older kind, whose commands are judged
 * one by one.
 *
 * Format (Redis documentation, "Script flags"): "#!", the engine, then words "flags=" with a list
 * separated by commas. Everything else is an error that names it. All is matched exactly.
 */
#include "script/shebang.h"
#include <stdio.h>

#define SHOWN 100 /* bytes of the script that an error repeats */

/* 0: there is no such flag. */
static uint32_t flag_of(struct kv_slice name)
{
    static const struct {
        struct kv_slice name;
        uint32_t flag;
    } known[] = {
        {KV_SLICE("no-writes"), KV_SHEBANG_NO_WRITES},
        {KV_SLICE("allow-oom"), KV_SHEBANG_ALLOW_OOM},
        {KV_SLICE("allow-stale"), KV_SHEBANG_ALLOW_STALE},
        {KV_SLICE("no-cluster"), KV_SHEBANG_NO_CLUSTER},
        {KV_SLICE("allow-cross-slot-keys"), KV_SHEBANG_ALLOW_CROSS_SLOT},
    };
    for (size_t i = 0; i < KV_ARRAY_LEN(known); i++)
        if (kv_slice_equal(name, known[i].name))
            return known[i].flag;
    return 0;
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
