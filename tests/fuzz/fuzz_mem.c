/* Fuzz target: the memory layer against its model (ops_mem.h). */
#define MEM_BLOCK_WHOLE ((size_t)256) /* many runs find more than looking at every byte */
#include "fuzz/ops_mem.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static bool ready;
    if (!ready)
        kv_mem_init();
    ready = true;
    if (len <= 128) /* longer inputs find nothing new, slowly */
        mem_model_run((struct input){bytes, bytes + len});
    return 0;
}
