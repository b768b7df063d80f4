/* Values of directives by type: text to value and back.
 *
 * A value is a number or an owned text, see struct kv_config_value. Parsing writes nothing but its
 * result, so a configuration can check many values before it takes the first. Error texts are the
 * ones that clients of a Redis server know; tools match on them.
 *
 * Integers are parsed as the protocol parses them: no sign but minus, no spaces, no leading zeros.
 * A text may not hold a zero byte, because options are handed down as C strings.
 *
 * Threads: pure but for the memory of the result.
 *
 * Rejected: one parse function per directive. Nine types cover 240 directives, and the dozen that
 * remain are in config_special.c.
 */
#include "admin/directive.h"

#include "base/number.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#define REASON_TOO_BIG "out of memory"

void kv_reason_set(struct kv_reason *r, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(r->text, sizeof(r->text), fmt, args);
    va_end(args);
}

int kv_directive_find(struct kv_slice name)
{
    for (uint32_t i = 0; i < kv_directive_count; i++) {
        const struct kv_directive *d = &kv_directives[i];
        if (kv_slice_is(name, d->name) || (d->alias != NULL && kv_slice_is(name, d->alias)))
            return (int)i;
    }
    return -1;
}

bool kv_directive_obsolete(struct kv_slice name)
{
    return kv_slice_is(name, "list-max-ziplist-entries") ||
           kv_slice_is(name, "list-max-ziplist-value") ||
           kv_slice_is(name, "lua-replicate-commands");
}

void kv_directive_refusal(const struct kv_directive *d, struct kv_reason *reason)
{
    KV_ASSERT(d->kind == KV_DIR_REFUSED);
    kv_reason_set(reason, "'%s' is not supported by this version of Kvik; its only value is %s%s%s",
                  d->name, d->initial[0] == '\0' ? "\"\"" : "'", d->initial,
                  d->initial[0] == '\0' ? "" : "'");
}

static bool in_range(const struct kv_directive *d, int64_t value, struct kv_reason *reason)
{
    KV_ASSERT(d->min <= d->max);
    if (value >= d->min && value <= d->max)
        return true;
    if (d->type == KV_DIR_OCTAL)
        kv_reason_set(reason, "argument must be between %llo and %llo inclusive",
                      (unsigned long long)d->min, (unsigned long long)d->max);
    else
        kv_reason_set(reason, "argument must be between %lld and %lld inclusive", (long long)d->min,
                      (long long)d->max);
    return false;
}

static bool parse_int(const struct kv_directive *d, struct kv_slice word, int64_t *out,
                      struct kv_reason *reason)
{
    if (!kv_int_parse(word, out)) {
        kv_reason_set(reason, "argument couldn't be parsed into an integer");
        return false;
    }
    return in_range(d, *out, reason);
}

static bool parse_octal(const struct kv_directive *d, struct kv_slice word, int64_t *out,
                        struct kv_reason *reason)
{
    int64_t value = 0;
    bool valid = word.len > 0 && word.len <= 20;
    for (size_t i = 0; valid && i < word.len; i++) {
        valid = word.ptr[i] >= '0' && word.ptr[i] <= '7';
        value = value * 8 + (word.ptr[i] - '0');
    }
    if (!valid) {
        kv_reason_set(reason, "argument couldn't be parsed as an octal number");
        return false;
    }
    *out = value;
    return in_range(d, value, reason);
}

static bool parse_memory(const struct kv_directive *d, struct kv_slice word, int64_t *out,
                         struct kv_reason *reason)
{
    if (!kv_memory_parse(word, out) || *out < 0) {
        kv_reason_set(reason, "argument must be a memory value");
        return false;
    }
    return in_range(d, *out, reason);
}

static bool parse_percent(struct kv_slice word, int64_t *out, struct kv_reason *reason)
{
    if (word.len > 1 && word.ptr[word.len - 1] == '%') {
        int64_t percent;
        if (kv_int_parse(kv_slice(word.ptr, word.len - 1), &percent) && percent >= 0) {
            if (percent > 100) {
                kv_reason_set(reason, "percentage argument must be less or equal to 100");
                return false;
            }
            *out = -percent;
            return true;
        }
    } else if (kv_memory_parse(word, out) && *out >= 0) {
        return true;
    }
    kv_reason_set(reason, "argument must be a memory or percent value");
    return false;
}

static bool parse_bool(struct kv_slice word, int64_t *out, struct kv_reason *reason)
{
    *out = kv_slice_is(word, "yes");
    if (*out || kv_slice_is(word, "no"))
        return true;
    kv_reason_set(reason, "argument must be 'yes' or 'no'");
    return false;
}

static int name_index(const struct kv_directive *d, struct kv_slice word)
{
    for (int i = 0; d->names[i] != NULL; i++)
        if (kv_slice_is(word, d->names[i]))
            return i;
    return -1;
}

static void refuse_name(const struct kv_directive *d, struct kv_reason *reason)
{
    int len =
        snprintf(reason->text, sizeof(reason->text), "argument(s) must be one of the following: ");
    for (int i = 0; d->names[i] != NULL && len < (int)sizeof(reason->text); i++)
        len += snprintf(reason->text + len, sizeof(reason->text) - (size_t)len, "%s%s",
                        i == 0 ? "" : ", ", d->names[i]);
}

static bool parse_names(const struct kv_directive *d, const struct kv_words *words, int64_t *out,
                        struct kv_reason *reason)
{
    KV_ASSERT(d->names != NULL);
    int64_t bits = 0;
    bool valid = words->count > 0;
    for (int i = 0; valid && i < words->count; i++) {
        int index = name_index(d, words->items[i]);
        valid = index >= 0;
        if (d->type == KV_DIR_ENUM)
            bits = index;
        else if (index > 0)
            bits |= (int64_t)1 << (index - 1);
    }
    if (!valid)
        refuse_name(d, reason);
    *out = bits;
    return valid;
}

static bool parse_number(const struct kv_directive *d, const struct kv_words *words, int64_t *out,
                         struct kv_reason *reason)
{
    struct kv_slice word = words->items[0];
    switch ((enum kv_directive_type)d->type) {
    case KV_DIR_BOOL:
        return parse_bool(word, out, reason);
    case KV_DIR_INT:
        return parse_int(d, word, out, reason);
    case KV_DIR_OCTAL:
        return parse_octal(d, word, out, reason);
    case KV_DIR_MEMORY:
        return parse_memory(d, word, out, reason);
    case KV_DIR_PERCENT:
        return parse_percent(word, out, reason);
    case KV_DIR_ENUM:
    case KV_DIR_BITS:
        return parse_names(d, words, out, reason);
    case KV_DIR_TEXT:
    case KV_DIR_SPECIAL:
        break;
    }
    KV_UNREACHABLE();
}

static bool take_text(struct kv_slice text, struct kv_config_value *out, struct kv_reason *reason)
{
    if (text.len > 0 && memchr(text.ptr, '\0', text.len) != NULL) {
        kv_reason_set(reason, "argument must not contain a zero byte");
        return false;
    }
    char *copy = kv_mem_try_alloc(text.len + 1, KV_MEM_CONFIG);
    if (copy == NULL) {
        kv_reason_set(reason, REASON_TOO_BIG);
        return false;
    }
    if (text.len > 0)
        memcpy(copy, text.ptr, text.len);
    copy[text.len] = '\0';
    out->text = copy;
    out->text_len = text.len;
    return true;
}

static bool parse_special(const struct kv_directive *d, const struct kv_words *words,
                          const struct kv_config_value *old, struct kv_config_value *out,
                          struct kv_reason *reason)
{
    KV_ASSERT(d->parse != NULL);
    struct kv_slice before =
        old != NULL && old->text != NULL ? kv_slice(old->text, old->text_len) : KV_SLICE("");
    struct kv_text text;
    kv_text_init(&text);
    bool fine = d->parse(words, before, &text, reason);
    if (fine && text.failed) {
        kv_reason_set(reason, REASON_TOO_BIG);
        fine = false;
    }
    fine = fine && take_text(kv_text_slice(&text), out, reason);
    kv_text_release(&text);
    return fine;
}

bool kv_directive_parse(const struct kv_directive *d, struct kv_arena *arena,
                        const struct kv_words *words, const struct kv_config_value *old,
                        struct kv_config_value *out, struct kv_reason *reason)
{
    bool many = d->type == KV_DIR_SPECIAL || d->type == KV_DIR_BITS;
    struct kv_words list = *words;
    /* CONFIG SET and quoted values bring a list as one argument. */
    if (many && words->count == 1 && kv_words_split_plain(arena, words->items[0], &list) != KV_OK) {
        kv_reason_set(reason, REASON_TOO_BIG);
        return false;
    }
    if (!many && words->count != 1) {
        kv_reason_set(reason, "wrong number of arguments");
        return false;
    }
    struct kv_config_value value = {0};
    bool fine;
    if (d->type == KV_DIR_SPECIAL)
        fine = parse_special(d, &list, old, &value, reason);
    else if (d->type == KV_DIR_TEXT)
        fine = take_text(words->items[0], &value, reason);
    else
        fine = parse_number(d, &list, &value.number, reason);
    if (fine && d->check != NULL)
        fine = d->check(&value, reason);
    if (!fine) {
        kv_config_value_release(&value);
        return false;
    }
    *out = value;
    return true;
}

void kv_config_value_release(struct kv_config_value *v)
{
    if (v->text != NULL)
        kv_mem_free(v->text, v->text_len + 1, KV_MEM_CONFIG);
    *v = (struct kv_config_value){0};
}

bool kv_config_value_same(const struct kv_directive *d, const struct kv_config_value *a,
                          const struct kv_config_value *b)
{
    if (d->type != KV_DIR_TEXT && d->type != KV_DIR_SPECIAL)
        return a->number == b->number;
    return kv_slice_equal(kv_slice(a->text, a->text_len), kv_slice(b->text, b->text_len));
}

static void print_bits(const struct kv_directive *d, int64_t bits, struct kv_text *out)
{
    if (bits == 0) {
        kv_text_append(out, kv_slice_cstr(d->names[0]));
        return;
    }
    bool first = true;
    for (int i = 1; d->names[i] != NULL; i++) {
        if (!(bits & (int64_t)1 << (i - 1)))
            continue;
        kv_text_printf(out, "%s%s", first ? "" : " ", d->names[i]);
        first = false;
    }
}

void kv_directive_print(const struct kv_directive *d, const struct kv_config_value *v,
                        struct kv_text *out)
{
    long long number = v->number;
    switch ((enum kv_directive_type)d->type) {
    case KV_DIR_BOOL:
        kv_text_append(out, number ? KV_SLICE("yes") : KV_SLICE("no"));
        return;
    case KV_DIR_INT:
    case KV_DIR_MEMORY:
        kv_text_printf(out, "%lld", number);
        return;
    case KV_DIR_OCTAL:
        kv_text_printf(out, "%llo", (unsigned long long)number);
        return;
    case KV_DIR_PERCENT:
        kv_text_printf(out, "%lld%s", number < 0 ? -number : number, number < 0 ? "%" : "");
        return;
    case KV_DIR_ENUM:
        kv_text_append(out, kv_slice_cstr(d->names[number]));
        return;
    case KV_DIR_BITS:
        print_bits(d, number, out);
        return;
    case KV_DIR_TEXT:
    case KV_DIR_SPECIAL:
        kv_text_append(out, kv_slice(v->text, v->text_len));
        return;
    }
    KV_UNREACHABLE();
}

void kv_directive_print_line(const struct kv_directive *d, const struct kv_config_value *v,
                             struct kv_text *out)
{
    kv_text_printf(out, "%s ", d->name);
    int64_t bytes = v->number;
    const int64_t kib = 1024;
    if (d->type == KV_DIR_TEXT || (d->type == KV_DIR_SPECIAL && v->text_len == 0))
        kv_text_append_quoted(out, kv_slice(v->text, v->text_len));
    else if ((d->type == KV_DIR_MEMORY || d->type == KV_DIR_PERCENT) && bytes > 0 &&
             bytes % kib == 0) {
        bool gib = bytes % (kib * kib * kib) == 0, mib = bytes % (kib * kib) == 0;
        int64_t unit = gib ? kib * kib * kib : mib ? kib * kib : kib;
        kv_text_printf(out, "%lld%s", (long long)(bytes / unit), gib ? "gb" : mib ? "mb" : "kb");
    } else {
        kv_directive_print(d, v, out);
    }
}
