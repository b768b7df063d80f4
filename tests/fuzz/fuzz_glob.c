/* Glob matching on arbitrary bytes: first byte = flags (bit 0: ignore case), second = length of the
 * pattern, then pattern and text. Short inputs are compared with a naive matcher; all have to end
 * soon, whatever the stars. */
#include "base/assert.h"
#include "base/glob.h"
#include "fuzz/glob_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct glob_element elements[12];

    if (size < 2)
        return 0;
    const char *bytes = (const char *)data + 2;
    size_t pattern_len = KV_MIN((size_t)data[1], size - 2);
    struct kv_slice pattern = kv_slice(bytes, pattern_len);
    struct kv_slice text = kv_slice(bytes + pattern_len, size - 2 - pattern_len);
    bool found = kv_glob_match(pattern, text, false);
    bool found_nocase = kv_glob_match(pattern, text, true);

    if (pattern.len <= KV_ARRAY_LEN(elements) && text.len <= 16 && text.len > 0) {
        size_t count = glob_model_parse(pattern.ptr, pattern.len, elements);
        KV_ASSERT(found == glob_model_match(elements, count, text.ptr, text.len));
    }
    /* A pattern without any special byte matches exactly itself. */
    size_t plain = 0;
    while (plain < pattern.len && strchr("*?[\\", pattern.ptr[plain]) == NULL)
        plain++;
    if (plain == pattern.len && pattern.len > 0) {
        KV_ASSERT(found == kv_slice_equal(pattern, text));
        KV_ASSERT(found_nocase || !found);
    }
    return 0;
}
