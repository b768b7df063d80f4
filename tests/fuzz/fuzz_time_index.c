/* Fuzz target: the index of due times against its model (ops_time_index.h). */
#include "fuzz/ops_time_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static bool ready;
    if (!ready)
        kv_mem_init();
    ready = true;
    if (len <= 256)
        time_model_run((struct input){bytes, bytes + len});
    return 0;
}
