/* RDB files: whatever the bytes, loading ends with a verdict whose offset lies within them, memory
 * stays in proportion, the keyspace is sound, and what was loaded is the same after saving it.
 *
 * The first byte chooses: bit 0 collections are not packed, bit 1 the bytes come through a
 * descriptor, bits 2 and up a try allocation that fails (0: none). */
#include "fuzz/store_rig.h"
#include <sys/syscall.h>
#include <unistd.h>

#define INPUT_MAX (1 << 16)
#define MEMORY_PER_BYTE                                                                            \
    2048 /* LZF makes 88 bytes of one, and a member of one byte a block of 64                      \
          */
#define MEMORY_FREE (4 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int descriptor_of(const uint8_t *data, size_t size)
{
    int fd = (int)syscall(SYS_memfd_create, "rdb", 0);
    KV_ASSERT(fd >= 0);
    KV_ASSERT(write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
    return fd;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct store_rig rig;
    struct kv_rdb_reader r;
    struct kv_rdb_kept kept = {0};
    struct kv_rdb_load l = {.kept = &kept};
    int fd = -1;
    if (size < 1 || size > INPUT_MAX)
        return 0;
    uint8_t choice = data[0];
    data++;
    size--;
    store_rig_start(&rig, !(choice & 1));
    if (choice & 2) {
        fd = descriptor_of(data, size);
        kv_rdb_reader_init_fd(&r, fd);
    } else {
        kv_rdb_reader_init(&r, kv_slice((const char *)data, size));
    }
    kv_mem_fail_try(choice >> 2);
    enum kv_err err = kv_rdb_load(&r, &rig.view, &l);
    kv_mem_fail_try(0);
    if (err != KV_OK) {
        KV_ASSERT(err == KV_ERR_SYNTAX || err == KV_ERR_NOMEM);
        KV_ASSERT(r.fault_offset <= size && r.fault[0] != '\0');
        KV_ASSERT(err == KV_ERR_SYNTAX || choice >> 2 != 0);
    }
    KV_ASSERT(kv_mem_used_total() - rig.used_before <
              (int64_t)size * MEMORY_PER_BYTE + MEMORY_FREE);
    store_rig_reload(&rig);
    kv_rdb_reader_release(&r);
    kv_rdb_kept_release(&kept);
    if (fd >= 0)
        close(fd);
    store_rig_end(&rig);
    return 0;
}
