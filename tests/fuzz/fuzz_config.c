/* Configuration text: loading any bytes ends with a verdict, and what was loaded can be rewritten
 * into a text that loads to the same values. Includes are forbidden: the target reads no files. */
#include "admin/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Every directive shows the same in both. */
static void assert_same(const struct kv_config *a, const struct kv_config *b)
{
    struct kv_text first, second;
    kv_text_init(&first);
    kv_text_init(&second);
    for (uint32_t i = 0; i < kv_directive_count; i++) {
        kv_text_clear(&first);
        kv_text_clear(&second);
        kv_config_print(a, i, &first);
        kv_config_print(b, i, &second);
        KV_ASSERT(kv_slice_equal(kv_text_slice(&first), kv_text_slice(&second)));
    }
    kv_text_release(&first);
    kv_text_release(&second);
}

static void rewrite(struct kv_config *c, struct kv_slice text, struct kv_text *message)
{
    struct kv_text out;
    kv_text_init(&out);
    KV_ASSERT(kv_config_compose(c, text, &out) == KV_OK);
    struct kv_config *again = kv_config_create();
    kv_config_forbid_include(again);
    KV_ASSERT(kv_config_load_text(again, kv_text_slice(&out), "rewritten", message) == KV_OK);
    assert_same(c, again);
    kv_config_destroy(again);
    kv_text_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready)
        kv_mem_init();
    ready = true;
    if (size > 4096)
        return 0;
    int64_t before = kv_mem_used(KV_MEM_CONFIG);
    struct kv_slice text = kv_slice((const char *)data, size);
    struct kv_config *c = kv_config_create();
    struct kv_text message;
    struct kv_options options;
    kv_text_init(&message);
    kv_config_forbid_include(c);
    if (kv_config_load_text(c, text, "fuzz", &message) == KV_OK) {
        kv_options_default(&options);
        kv_config_fill(c, &options);
        KV_ASSERT(options.threads >= 1 && options.bind_count <= KV_BIND_MAX);
        rewrite(c, text, &message);
        (void)!kv_config_finish(c, &message);
    } else {
        KV_ASSERT(message.len > 0);
        struct kv_text out; /* a file that does not load is rewritten all the same */
        kv_text_init(&out);
        KV_ASSERT(kv_config_compose(c, text, &out) == KV_OK);
        kv_text_release(&out);
    }
    kv_text_release(&message);
    kv_config_destroy(c);
    KV_ASSERT(kv_mem_used(KV_MEM_CONFIG) == before);
    return 0;
}
