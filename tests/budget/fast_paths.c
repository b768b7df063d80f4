/* Wrappers around the fast paths of mem/, none of them inlined: lock_free.py disassembles this
 * program and looks for locked instructions in them and in all that they reach.
 *
 * mem.h's inline functions are expanded here as in any caller, with sizes that are known to the
 * compiler and with sizes that are not; what is not inline is reached by a call. The program is
 * compiled with -O2 and without link-time optimisation, so that each function stays a symbol. It is
 * run once as well, so that what is looked at also works. fast_paths.txt names what must be found
 * here, and what is slow.
 */
#include "mem/arena.h"
#include "mem/mem.h"
#include <stdio.h>

#define WRAPPER __attribute__((noipa))

void *kv_fast_alloc_constant(void);
void *kv_fast_alloc_variable(size_t size);
void *kv_fast_zalloc(size_t size);
void *kv_fast_try_alloc(size_t size);
void kv_fast_free_constant(void *block);
void kv_fast_free_variable(void *block, size_t size);
void *kv_fast_realloc(void *block, size_t old_size, size_t new_size);
void *kv_fast_try_realloc(void *block, size_t old_size, size_t new_size);
void kv_fast_reattribute(void *block, size_t size);
void kv_fast_publish(void);
int64_t kv_fast_used_published(void);
void *kv_fast_arena_alloc(struct kv_arena *a, size_t size);
bool kv_fast_evacuates(const void *block, size_t size);

WRAPPER void *kv_fast_alloc_constant(void)
{
    return kv_mem_alloc(48, KV_MEM_OTHER);
}

WRAPPER void *kv_fast_alloc_variable(size_t size)
{
    return kv_mem_alloc(size, KV_MEM_OTHER);
}

WRAPPER void *kv_fast_zalloc(size_t size)
{
    return kv_mem_zalloc(size, KV_MEM_OTHER);
}

WRAPPER void *kv_fast_try_alloc(size_t size)
{
    return kv_mem_try_alloc(size, KV_MEM_OTHER);
}

WRAPPER void kv_fast_free_constant(void *block)
{
    kv_mem_free(block, 48, KV_MEM_OTHER);
}

WRAPPER void kv_fast_free_variable(void *block, size_t size)
{
    kv_mem_free(block, size, KV_MEM_OTHER);
}

WRAPPER void *kv_fast_realloc(void *block, size_t old_size, size_t new_size)
{
    return kv_mem_realloc(block, old_size, new_size, KV_MEM_OTHER);
}

WRAPPER void *kv_fast_try_realloc(void *block, size_t old_size, size_t new_size)
{
    return kv_mem_try_realloc(block, old_size, new_size, KV_MEM_OTHER);
}

WRAPPER void kv_fast_reattribute(void *block, size_t size)
{
    kv_mem_reattribute(block, size, KV_MEM_OTHER, KV_MEM_VALUE);
}

WRAPPER void kv_fast_publish(void)
{
    kv_mem_publish();
}

WRAPPER int64_t kv_fast_used_published(void)
{
    return kv_mem_used_published();
}

WRAPPER void *kv_fast_arena_alloc(struct kv_arena *a, size_t size)
{
    return kv_arena_alloc(a, size);
}

WRAPPER bool kv_fast_evacuates(const void *block, size_t size)
{
    return kv_mem_evacuates(block, size);
}

int main(void)
{
    struct kv_arena arena;
    kv_mem_init();
    int64_t before = kv_mem_used_total();
    kv_fast_free_constant(kv_fast_alloc_constant());
    kv_fast_free_variable(kv_fast_zalloc(100), 100);
    void *block = kv_fast_try_alloc(100);
    KV_ASSERT(block != NULL);
    block = kv_fast_try_realloc(block, 100, 101);
    KV_ASSERT(block != NULL);
    block = kv_fast_realloc(block, 101, 102);
    KV_ASSERT(!kv_fast_evacuates(block, 102) || kv_fast_used_published() != 0);
    kv_fast_reattribute(block, 102);
    kv_fast_publish();
    kv_mem_free(block, 102, KV_MEM_VALUE);
    kv_arena_init(&arena, 4096, KV_MEM_ARENA);
    KV_ASSERT(kv_fast_arena_alloc(&arena, 40) != NULL);
    kv_arena_release(&arena);
    kv_fast_free_variable(kv_fast_alloc_variable(40), 40);
    KV_ASSERT(kv_mem_used_total() == before);
    kv_mem_thread_exit();
    puts("ok the wrappers do what they wrap");
    return 0;
}
