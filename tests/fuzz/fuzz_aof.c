/* Append-only files: whatever a file holds, loading it ends with an answer, takes no more memory
 * than the file's size allows, and leaves a file that loads the same way again when it was
 * repaired.
 *
 * The engine is a library with the tiny table; the file lies in memory. The first byte of an input
 * chooses whether a truncated or a bad tail is cut off. */
#include "base/random.h"
#include "library.h"
#include "persist/aof_load.h"
#include "tiny_table.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE_MAX_INPUT (256 * 1024)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct kv_engine *engine;
static int fd = -1;
static char path[64];

static void start(void)
{
    struct kv_options options;
    kv_mem_init();
    kv_clock_init();
    kv_log_set_level(KV_LOG_NOTHING);
    kv_options_default(&options);
    options.command_log[KV_COMMAND_LOG_SLOW].limit = -1;
    engine = kv_engine_create(&options, &tiny_table);
    fd = memfd_create("aof", 0);
    KV_ASSERT(fd >= 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
}

static enum kv_err load(struct kv_aof_loaded *loaded, uint64_t *keys)
{
    const struct kv_options *o = kv_engine_options(engine);
    struct kv_aof_source source = {
        .path = path,
        .name = "fuzz",
        .last = true,
        .rules = {o->aof_load_truncated, o->aof_load_corrupt_tail_max_size},
    };
    struct kv_store *s = kv_engine_store(engine);
    enum kv_err err = kv_aof_load_file(engine, &source, loaded);
    *keys = 0;
    for (uint32_t db = 0; db < kv_store_database_count(s); db++)
        *keys += kv_store_size(s, db);
    kv_store_check(s);
    library_flush(engine);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct kv_aof_loaded first, second;
    uint64_t keys, again;
    if (engine == NULL)
        start();
    if (size < 1 || size > SIZE_MAX_INPUT)
        return 0;
    struct kv_options *o = kv_engine_options(engine);
    o->aof_load_truncated = data[0] & 1;
    o->aof_load_corrupt_tail_max_size = data[0] & 2 ? 64 : 0;
    KV_ASSERT(ftruncate(fd, 0) == 0);
    KV_ASSERT(pwrite(fd, data + 1, size - 1, 0) == (ssize_t)size - 1);
    if (load(&first, &keys) != KV_OK)
        return 0;
    enum kv_err err = load(&second, &again);
    KV_ASSERT(err == KV_OK);
    KV_ASSERT(!second.truncated);
    KV_ASSERT(again == keys);
    KV_ASSERT(second.bytes == first.bytes);
    KV_ASSERT(kv_mem_used_dataset() == 0);
    return 0;
}
