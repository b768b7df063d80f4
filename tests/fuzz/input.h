/* A stream of bytes from which a harness of tests/fuzz decodes what to do. The bytes come from
 * libFuzzer, from a corpus file, or from a seeded generator; at their end every value is 0. */
#ifndef KV_TESTS_FUZZ_INPUT_H
#define KV_TESTS_FUZZ_INPUT_H

#include "base/compiler.h"

struct input {
    const uint8_t *next;
    const uint8_t *end;
};

KV_INLINE bool input_more(const struct input *in)
{
    return in->next < in->end;
}

KV_INLINE uint8_t input_byte(struct input *in)
{
    return in->next < in->end ? *in->next++ : 0;
}

KV_INLINE uint64_t input_number(struct input *in, unsigned bytes)
{
    uint64_t value = 0;
    while (bytes-- > 0)
        value = value << 8 | input_byte(in);
    return value;
}

#endif
