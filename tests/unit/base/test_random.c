/* base/random.h: repeatable by seed, uniform within a bound. */
#include "base/random.h"
#include "unit.h"
#include <string.h>

START_TEST(a_seed_repeats_its_numbers)
{
    struct kv_random a, b, c;

    kv_random_init(&a, 42);
    kv_random_init(&b, 42);
    kv_random_init(&c, 43);
    bool differs = false;
    for (int i = 0; i < 1000; i++) {
        uint64_t number = kv_random_next(&a);
        ck_assert(number == kv_random_next(&b));
        differs |= number != kv_random_next(&c);
    }
    ck_assert(differs);
}
END_TEST

/* The generator is defined by its recurrence; this is the definition, word by word. */
START_TEST(numbers_follow_the_published_recurrence)
{
    struct kv_random r = {{1, 2, 3, 4}};

    /* s1 * 5 rotated by 7, times 9: 2 * 5 = 10, 10 << 7 = 1280, 1280 * 9. */
    ck_assert(kv_random_next(&r) == 11520);
    /* The new s1 is s1 ^ s2 ^ s0 = 2 ^ 3 ^ 1 = 0. */
    ck_assert(kv_random_next(&r) == 0);
    /* Then s1 is 0 ^ s2 ^ s0: s0 = 1 ^ 4 ^ 2 = 7, s2 = 3 ^ 1 ^ (2 << 17), so 7 ^ 2 ^ 262144. */
    ck_assert(kv_random_next(&r) == (((7u ^ 2u ^ 262144u) * UINT64_C(5)) << 7) * 9);
}
END_TEST

START_TEST(bounded_numbers_are_uniform)
{
    enum { BOUND = 7, DRAWS = 70000 };
    unsigned counts[BOUND] = {0};
    struct kv_random r;

    kv_random_init(&r, unit_seed("uniform"));
    for (int i = 0; i < DRAWS; i++)
        counts[kv_random_below(&r, BOUND)]++;
    /* Standard deviation 92.6; 7 of them never happen by chance. */
    for (int i = 0; i < BOUND; i++)
        ck_assert_msg(counts[i] > DRAWS / BOUND - 650 && counts[i] < DRAWS / BOUND + 650,
                      "%d drawn %u times", i, counts[i]);
}
END_TEST

START_TEST(bounds_at_the_edges_hold)
{
    const uint64_t bounds[] = {1, 2, 3, UINT64_C(1) << 63, (UINT64_C(1) << 63) + 1, UINT64_MAX};
    struct kv_random r;

    kv_random_init(&r, unit_seed("bounds"));
    for (size_t b = 0; b < KV_ARRAY_LEN(bounds); b++)
        for (int i = 0; i < 1000; i++)
            ck_assert(kv_random_below(&r, bounds[b]) < bounds[b]);
}
END_TEST

START_TEST(a_bound_of_zero_is_a_mistake)
{
    struct kv_random r;
    kv_random_init(&r, 1);
    kv_random_below(&r, 0);
}
END_TEST

START_TEST(secure_bytes_differ)
{
    uint8_t a[600] = {0}, b[600] = {0};

    kv_random_secure(a, sizeof(a));
    kv_random_secure(b, sizeof(b));
    ck_assert(memcmp(a, b, sizeof(a)) != 0);
    kv_random_secure(a, 0);
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "random");
    unit_add(&u, a_seed_repeats_its_numbers);
    unit_add(&u, numbers_follow_the_published_recurrence);
    unit_add(&u, bounded_numbers_are_uniform);
    unit_add(&u, bounds_at_the_edges_hold);
    unit_add_abort(&u, a_bound_of_zero_is_a_mistake);
    unit_add(&u, secure_bytes_differ);
    return unit_run(&u);
}
