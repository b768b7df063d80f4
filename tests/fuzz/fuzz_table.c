/* Fuzz target: the hash table against its model (ops_table.h). */
#define TABLE_MODEL_BATCH 2 /* many small runs find more than few large ones */
#include "fuzz/ops_table.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len);

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static bool ready;
    if (!ready)
        kv_mem_init();
    ready = true;
    if (len <= 256) /* longer inputs find nothing new, slowly */
        table_model_run((struct input){bytes, bytes + len});
    return 0;
}
