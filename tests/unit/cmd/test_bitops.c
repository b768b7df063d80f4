/* Bit operations against the definition, bit by bit. */
#include "cmd/bitops.h"
#include "mem/mem.h"
#include "unit.h"

#define BITMAP_MAX 96

static bool bit_at(const uint8_t *p, uint64_t i)
{
    return p[i / 8] >> (7 - i % 8) & 1;
}

/* Random bytes, all zeros or all ones, sometimes with one bit turned. */
static size_t draw_bitmap(struct kv_random *r, uint8_t *p)
{
    size_t len = kv_random_below(r, BITMAP_MAX) + 1;
    uint64_t kind = kv_random_below(r, 3);
    for (size_t i = 0; i < len; i++)
        p[i] = kind == 0 ? (uint8_t)kv_random_next(r) : kind == 1 ? 0 : 0xff;
    if (kv_random_below(r, 2) == 0)
        p[kv_random_below(r, len)] ^= (uint8_t)(1u << kv_random_below(r, 8));
    return len;
}

/* A copy whose end is the end of its block, so that sanitizers see a read beyond it. */
static uint8_t *exact_copy(const uint8_t *p, size_t len)
{
    uint8_t *copy = kv_mem_alloc(len, KV_MEM_OTHER);
    memcpy(copy, p, len);
    return copy;
}

START_TEST(counting_and_searching_follow_the_definition)
{
    struct kv_random r;
    uint8_t drawn[BITMAP_MAX];
    kv_random_init(&r, unit_seed("count"));
    for (int round = 0; round < UNIT_ROUNDS(10000); round++) {
        size_t len = draw_bitmap(&r, drawn);
        uint8_t *p = exact_copy(drawn, len);
        uint64_t a = kv_random_below(&r, len * 8 + 1), b = kv_random_below(&r, len * 8 + 1);
        uint64_t from = KV_MIN(a, b), end = KV_MAX(a, b), count = 0;
        int64_t one = -1, zero = -1;
        for (uint64_t i = end; i-- > from;) {
            count += bit_at(p, i);
            if (bit_at(p, i))
                one = (int64_t)i;
            else
                zero = (int64_t)i;
        }
        ck_assert_uint_eq(kv_bits_count_range(p, from, end), count);
        ck_assert_int_eq(kv_bits_find(p, true, from, end), one);
        ck_assert_int_eq(kv_bits_find(p, false, from, end), zero);
        kv_mem_free(p, len, KV_MEM_OTHER);
    }
}
END_TEST

START_TEST(a_field_is_read_back_and_its_neighbours_stay)
{
    struct kv_random r;
    uint8_t drawn[BITMAP_MAX];
    kv_random_init(&r, unit_seed("field"));
    for (int round = 0; round < UNIT_ROUNDS(10000); round++) {
        size_t len = draw_bitmap(&r, drawn);
        unsigned width = (unsigned)kv_random_below(&r, KV_MIN(64, len * 8)) + 1;
        uint64_t offset = kv_random_below(&r, len * 8 - width + 1), want = 0;
        uint8_t *p = exact_copy(drawn, len);
        for (unsigned i = 0; i < width; i++)
            want = want << 1 | bit_at(p, offset + i);
        ck_assert_uint_eq(kv_bits_get(p, offset, width), want);
        uint64_t value = kv_random_next(&r) & (~(uint64_t)0 >> (64 - width));
        kv_bits_set(p, offset, width, value);
        ck_assert_uint_eq(kv_bits_get(p, offset, width), value);
        for (uint64_t i = 0; i < len * 8; i++)
            if (i < offset || i >= offset + width)
                ck_assert_int_eq(bit_at(p, i), bit_at(drawn, i));
        kv_mem_free(p, len, KV_MEM_OTHER);
    }
}
END_TEST

static bool combined_bit(enum kv_bits_op op, const struct kv_slice *sources, size_t count,
                         uint64_t i)
{
    size_t set = 0, others = 0;
    bool first = false;
    for (size_t s = 0; s < count; s++) {
        bool bit = i / 8 < sources[s].len && bit_at((const uint8_t *)sources[s].ptr, i);
        set += bit;
        if (s == 0)
            first = bit;
        else
            others += bit;
    }
    switch (op) {
    case KV_BITS_AND:
        return set == count;
    case KV_BITS_OR:
        return set > 0;
    case KV_BITS_XOR:
        return set % 2 == 1;
    case KV_BITS_NOT:
        return !first;
    case KV_BITS_DIFF:
        return first && others == 0;
    case KV_BITS_DIFF1:
        return !first && others > 0;
    case KV_BITS_ANDOR:
        return first && others > 0;
    default:
        return set == 1;
    }
}

START_TEST(combining_follows_the_definition)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("combine"));
    for (int round = 0; round < UNIT_ROUNDS(400); round++) {
        struct kv_slice sources[5];
        size_t count = kv_random_below(&r, 5) + 1, longest = 1;
        for (size_t s = 0; s < count; s++) {
            size_t len = kv_random_below(&r, kv_random_below(&r, 4) == 0 ? 9000 : 40);
            char *bytes = kv_mem_alloc(len, KV_MEM_OTHER);
            for (size_t i = 0; i < len; i++)
                bytes[i] = (char)kv_random_next(&r);
            sources[s] = kv_slice(bytes, len);
            longest = KV_MAX(longest, len);
        }
        uint8_t *out = kv_mem_alloc(longest, KV_MEM_OTHER);
        for (int op = KV_BITS_AND; op <= KV_BITS_ONE; op++) {
            if (op == KV_BITS_NOT && count != 1)
                continue;
            kv_bits_combine((enum kv_bits_op)op, sources, count, out, longest);
            for (uint64_t i = 0; i < longest * 8; i++)
                if (bit_at(out, i) != combined_bit((enum kv_bits_op)op, sources, count, i))
                    ck_abort_msg("operation %d, bit %llu", op, (unsigned long long)i);
        }
        kv_mem_free(out, longest, KV_MEM_OTHER);
        for (size_t s = 0; s < count; s++)
            kv_mem_free((void *)sources[s].ptr, sources[s].len, KV_MEM_OTHER);
    }
}
END_TEST

START_TEST(an_impossible_width_is_our_own_mistake)
{
    kv_bits_get("", 0, 65);
}
END_TEST

int main(void)
{
    struct unit u;
    kv_mem_init();
    unit_begin(&u, "bitops");
    unit_add(&u, counting_and_searching_follow_the_definition);
    unit_add(&u, a_field_is_read_back_and_its_neighbours_stay);
    unit_add(&u, combining_follows_the_definition);
    unit_add_abort(&u, an_impossible_width_is_our_own_mistake);
    return unit_run(&u);
}
