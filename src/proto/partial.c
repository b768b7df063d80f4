/* Partial commands: those that are long or large and arrive over many reads.
 *
 * The state owns everything that has arrived: an array of slices, an arena with the small
 * arguments, and blocks for the large ones. A block is what the keyspace stores (value/bigstr), so
 * a large SET is read from the socket into its final place; which argument becomes a value is not
 * known here, so every large one gets a block, and whatever is not taken is released with the
 * state.
 *
 * The argument array grows by doubling with the arguments that are really there, never by what the
 * header promises. Belongs to one connection; its worker alone touches it.
 */
#include "base/assert.h"
#include "proto/parse_priv.h"

#define BLOCK_HEADER_BYTES 32 /* at most, beside a large argument in its block */

struct kv_partial *kv_partial_create(const struct kv_block_ops *ops)
{
    struct kv_partial *p = kv_mem_try_zalloc(sizeof(*p), KV_MEM_CLIENT_INPUT);
    if (p == NULL)
        return NULL;
    kv_arena_init(&p->arena, 16 * 1024, KV_MEM_CLIENT_INPUT);
    p->expected = -1;
    p->ops = ops;
    return p;
}

void kv_partial_destroy(struct kv_partial *p)
{
    KV_ASSERT(p != NULL);
    for (uint32_t i = 0; i < p->block_count; i++)
        if (p->blocks[i].block != NULL)
            p->ops->release(p->blocks[i].block);
    kv_mem_free(p->blocks, p->block_capacity * sizeof(*p->blocks), KV_MEM_CLIENT_INPUT);
    kv_mem_free(p->argv, p->argv_capacity * sizeof(*p->argv), KV_MEM_CLIENT_INPUT);
    kv_arena_release(&p->arena);
    kv_mem_free(p, sizeof(*p), KV_MEM_CLIENT_INPUT);
}

size_t kv_partial_memory(const struct kv_partial *p)
{
    size_t sum = kv_mem_block_size(sizeof(*p)) + p->arena.used_bytes + p->large_bytes;
    if (p->argv_capacity > 0)
        sum += kv_mem_block_size(p->argv_capacity * sizeof(*p->argv));
    if (p->block_capacity > 0)
        sum += kv_mem_block_size(p->block_capacity * sizeof(*p->blocks));
    return sum;
}

static bool grow_argv(struct kv_partial *p)
{
    uint32_t capacity = p->argv_capacity == 0 ? 16 : p->argv_capacity * 2;
    struct kv_slice *argv = kv_mem_try_realloc(p->argv, p->argv_capacity * sizeof(*argv),
                                               capacity * sizeof(*argv), KV_MEM_CLIENT_INPUT);
    if (argv == NULL)
        return false;
    p->argv = argv;
    p->held_bytes += (capacity - p->argv_capacity) * sizeof(*argv);
    p->argv_capacity = capacity;
    return true;
}

static bool add_block(struct kv_partial *p, size_t len)
{
    if (p->block_count == p->block_capacity) {
        uint32_t capacity = p->block_capacity == 0 ? 2 : p->block_capacity * 2;
        struct kv_partial_block *blocks =
            kv_mem_try_realloc(p->blocks, p->block_capacity * sizeof(*blocks),
                               capacity * sizeof(*blocks), KV_MEM_CLIENT_INPUT);
        if (blocks == NULL)
            return false;
        p->blocks = blocks;
        p->block_capacity = capacity;
    }
    char *data;
    void *block = p->ops->create(len, &data);
    if (block == NULL)
        return false;
    p->blocks[p->block_count++] = (struct kv_partial_block){block, p->argc};
    p->large_bytes += kv_mem_block_size(len + BLOCK_HEADER_BYTES);
    p->bulk = data;
    return true;
}

/* Makes room for a bulk of `len` bytes. */
static bool begin_bulk(struct kv_partial *p, size_t len)
{
    KV_ASSERT(p->bulk == NULL);
    if ((uint32_t)p->argc == p->argv_capacity && !grow_argv(p))
        return false;
    if (len >= KV_PARSE_BIG_BYTES) {
        if (!add_block(p, len))
            return false;
    } else {
        p->bulk = kv_arena_try_alloc(&p->arena, len + 1);
        if (p->bulk == NULL)
            return false;
    }
    p->bulk_len = len;
    p->bulk_filled = 0;
    p->held_bytes += len;
    return true;
}

static void end_bulk(struct kv_partial *p)
{
    KV_ASSERT(p->bulk_filled == p->bulk_len);
    p->argv[p->argc++] = kv_slice(p->bulk, p->bulk_len);
    p->bulk = NULL;
    p->skip = 2;
}

size_t kv_partial_space(const struct kv_partial *p, char **dest)
{
    if (p->bulk == NULL)
        return 0;
    *dest = p->bulk + p->bulk_filled;
    return p->bulk_len - p->bulk_filled;
}

void kv_partial_filled(struct kv_partial *p, size_t bytes)
{
    KV_ASSERT(p->bulk != NULL);
    KV_ASSERT(bytes <= p->bulk_len - p->bulk_filled);
    p->bulk_filled += bytes;
    if (p->bulk_filled == p->bulk_len)
        end_bulk(p);
}

static void fill_from(struct kv_partial *p, const char **pos, const char *end)
{
    size_t n = KV_MIN((size_t)(end - *pos), p->bulk_len - p->bulk_filled);
    memcpy(p->bulk + p->bulk_filled, *pos, n);
    *pos += n;
    kv_partial_filled(p, n);
}

enum kv_parse_status kv_partial_feed(struct kv_partial *p, const char **pos, const char *end,
                                     const struct kv_parse_limits *limits, char error[80])
{
    KV_ASSERT(!p->complete);
    for (;;) {
        if (p->skip > 0) {
            uint32_t n = (uint32_t)KV_MIN((size_t)(end - *pos), (size_t)p->skip);
            *pos += n;
            p->skip -= n;
            if (p->skip > 0)
                return KV_PARSE_MORE;
        }
        if (p->argc == p->expected) {
            p->complete = true;
            return KV_PARSE_OK;
        }
        if (p->bulk != NULL) {
            fill_from(p, pos, end);
            if (p->bulk != NULL)
                return KV_PARSE_MORE;
            continue;
        }
        const char *q = *pos;
        int64_t value;
        enum kv_parse_status st;
        if (p->expected < 0) {
            KV_ASSERT(q < end && *q == '*');
            q++;
            st = kv_parse_args_length(&q, end, &value, limits, error);
            KV_ASSERT(st != KV_PARSE_OK || value > 0);
            if (st == KV_PARSE_OK)
                p->expected = value;
        } else {
            st = kv_parse_bulk_length(&q, end, &value, limits, error);
            if (st == KV_PARSE_OK && !begin_bulk(p, (size_t)value))
                return kv_parse_fail(error, "out of memory for an argument");
            if (st == KV_PARSE_OK && value == 0)
                end_bulk(p);
        }
        if (st != KV_PARSE_OK)
            return st;
        *pos = q;
    }
}

void *kv_partial_take_block(struct kv_partial *p, int arg)
{
    for (uint32_t i = 0; i < p->block_count; i++) {
        if (p->blocks[i].arg == arg) {
            void *block = p->blocks[i].block;
            p->blocks[i].block = NULL;
            return block;
        }
    }
    return NULL;
}
