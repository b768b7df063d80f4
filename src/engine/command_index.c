/* Commands by name: an open-addressing table built once from the constant command table.
 *
 * Names are short ASCII words, so the hash is a multiplication over the first eight bytes in lower
 * case and the length; the table is at most a quarter full and a look-up nearly always compares one
 * name. A worker asks it only when a command differs from its previous one (kv_worker_lookup).
 */
#include "engine/worker.h"
#include <strings.h>

struct kv_command_index {
    uint32_t mask;
    uint32_t size; /* slots, a power of two */
    const struct kv_command *slots[];
};

static uint64_t name_hash(const char *name, size_t len)
{
    uint64_t word = 0;
    memcpy(&word, name, KV_MIN(len, sizeof(word)));
    word |= 0x2020202020202020ull; /* letters to lower case; other bytes just need to be stable */
    return (word ^ len) * 0x9e3779b97f4a7c15ull >> 32;
}

struct kv_command_index *kv_command_index_create(const struct kv_command_table *t)
{
    uint32_t size = 64;
    while (size < t->command_count * 4)
        size *= 2;
    struct kv_command_index *x =
        kv_mem_zalloc(sizeof(*x) + size * sizeof(x->slots[0]), KV_MEM_CONFIG);
    x->mask = size - 1;
    x->size = size;
    for (uint32_t i = 0; i < t->command_count; i++) {
        const struct kv_command *c = &t->commands[i];
        uint32_t at = (uint32_t)name_hash(c->name, strlen(c->name)) & x->mask;
        while (x->slots[at] != NULL)
            at = (at + 1) & x->mask;
        x->slots[at] = c;
    }
    return x;
}

void kv_command_index_destroy(struct kv_command_index *x)
{
    kv_mem_free(x, sizeof(*x) + x->size * sizeof(x->slots[0]), KV_MEM_CONFIG);
}

const struct kv_command *kv_command_index_find(const struct kv_command_index *x,
                                               struct kv_slice name)
{
    if (name.len == 0)
        return NULL;
    uint32_t at = (uint32_t)name_hash(name.ptr, name.len) & x->mask;
    for (; x->slots[at] != NULL; at = (at + 1) & x->mask)
        if (kv_slice_is(name, x->slots[at]->name))
            return x->slots[at];
    return NULL;
}
