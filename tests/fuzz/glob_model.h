/* A naive glob matcher, the oracle of the unit test and of the fuzz target of base/glob.h: each
 * element of the pattern is spelled out as the set of bytes it stands for, and stars are tried by
 * plain recursion, in exponential time. */
#ifndef KV_TESTS_GLOB_MODEL_H
#define KV_TESTS_GLOB_MODEL_H

#include "base/compiler.h"
#include <string.h>

struct glob_element {
    bool star;
    bool set[256];
};

KV_INLINE size_t glob_model_parse(const char *p, size_t len, struct glob_element *out)
{
    size_t count = 0;

    for (size_t i = 0; i < len; count++) {
        struct glob_element *e = &out[count];
        char c = p[i++];
        memset(e, 0, sizeof(*e));
        e->star = c == '*';
        if (c == '?') {
            memset(e->set, 1, sizeof(e->set));
        } else if (c == '[') {
            bool negated = i < len && p[i] == '^';
            i += negated;
            for (; i < len && p[i] != ']'; i++) {
                if (p[i] == '\\' && i + 1 < len) {
                    e->set[(uint8_t)p[++i]] = true;
                } else if (i + 2 < len && p[i + 1] == '-') {
                    for (int b = KV_MIN(p[i], p[i + 2]); b <= KV_MAX(p[i], p[i + 2]); b++)
                        e->set[(uint8_t)b] = true;
                    i += 2;
                } else {
                    e->set[(uint8_t)p[i]] = true;
                }
            }
            i++;
            for (int b = 0; negated && b < 256; b++)
                e->set[b] = !e->set[b];
        } else {
            if (c == '\\' && i < len)
                c = p[i++];
            e->set[(uint8_t)c] = true;
        }
    }
    return count;
}

static inline bool glob_model_match(const struct glob_element *e, size_t count, const char *text,
                                    size_t len)
{
    if (count == 0)
        return len == 0;
    if (e->star)
        return glob_model_match(e + 1, count - 1, text, len) ||
               (len > 0 && glob_model_match(e, count, text + 1, len - 1));
    return len > 0 && e->set[(uint8_t)text[0]] &&
           glob_model_match(e + 1, count - 1, text + 1, len - 1);
}

#endif
