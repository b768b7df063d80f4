/* LZF: the input taken as packed bytes gets liblzf's verdict and result; taken as plain bytes it
 * comes back from both unpackers. The first byte chooses: bit 7 which of the two, the others with a
 * second byte how long the unpacked bytes are to be. */
#include "base/assert.h"
#include "base/lzf.h"
#include "mem/mem.h"
#include <liblzf/lzf.h>
#include <string.h>

#define INPUT_MAX (1 << 17)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Blocks of exactly these sizes, so that the sanitizer sees a byte too many. */
static void check_unpack(const uint8_t *packed, size_t packed_len, size_t len)
{
    uint8_t *ours = kv_mem_alloc(len, KV_MEM_OTHER), *theirs = kv_mem_alloc(len, KV_MEM_OTHER);
    bool good = kv_lzf_unpack(packed, packed_len, ours, len);
    if (packed_len > 0) {
        unsigned got = lzf_decompress(packed, (unsigned)packed_len, theirs, (unsigned)len);
        KV_ASSERT(good == (got == len));
        KV_ASSERT(!good || memcmp(ours, theirs, len) == 0);
    }
    kv_mem_free(ours, len, KV_MEM_OTHER);
    kv_mem_free(theirs, len, KV_MEM_OTHER);
}

static void check_pack(const uint8_t *bytes, size_t len, size_t room)
{
    uint8_t *packed = kv_mem_alloc(room, KV_MEM_OTHER), *back = kv_mem_alloc(len, KV_MEM_OTHER);
    size_t got = kv_lzf_pack(bytes, len, packed, room);
    KV_ASSERT(got <= room);
    if (got > 0) {
        KV_ASSERT(kv_lzf_unpack(packed, got, back, len));
        KV_ASSERT(memcmp(back, bytes, len) == 0);
        check_unpack(packed, got, len);
    } else {
        KV_ASSERT(len < 8 || room < len + (len + 31) / 32);
    }
    kv_mem_free(packed, room, KV_MEM_OTHER);
    kv_mem_free(back, len, KV_MEM_OTHER);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static bool ready;
    if (!ready)
        kv_mem_init();
    ready = true;
    if (size < 3 || size > INPUT_MAX)
        return 0;
    size_t number = (size_t)(data[0] & 0x7f) << 8 | data[1];
    if (data[0] & 0x80)
        check_pack(data + 2, size - 2, 1 + number % (size + size / 32 + 2));
    else
        check_unpack(data + 2, size - 2, 1 + number);
    return 0;
}
