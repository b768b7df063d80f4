/* ds/intset.h: a random series beside a naive model, and foreign bytes. */
#include "base/random.h"
#include "ds/intset.h"
#include "unit.h"

#define NUMBERS 400

/* Numbers of all widths, many of them close together. */
static int64_t some_number(struct kv_random *r)
{
    static const int64_t edges[] = {0,         INT16_MAX, INT16_MIN, INT32_MAX,
                                    INT32_MIN, INT64_MAX, INT64_MIN, INT16_MAX + 1};
    uint64_t kind = kv_random_below(r, 40);
    if (kind < 30)
        return (int64_t)kv_random_below(r, 300) - 150;
    if (kind < 36)
        return edges[kv_random_below(r, KV_ARRAY_LEN(edges))];
    return (int64_t)kv_random_next(r) >> kv_random_below(r, 60);
}

struct model {
    int64_t numbers[NUMBERS];
    uint32_t count;
    uint32_t width;
};

static bool model_find(const struct model *m, int64_t number, uint32_t *index)
{
    for (*index = 0; *index < m->count; ++*index)
        if (m->numbers[*index] >= number)
            return m->numbers[*index] == number;
    return false;
}

static void model_insert(struct model *m, int64_t number)
{
    uint32_t index;
    if (model_find(m, number, &index))
        return;
    memmove(m->numbers + index + 1, m->numbers + index, (m->count - index) * sizeof(number));
    m->numbers[index] = number;
    m->count++;
    m->width = KV_MAX(m->width, kv_intset_width_of(number));
}

static void check_same(const uint8_t *set, const struct model *m)
{
    uint32_t index;
    ck_assert_uint_eq(kv_intset_count(set), m->count);
    ck_assert_uint_eq(kv_intset_width(set), m->width);
    for (uint32_t i = 0; i < m->count; i++) {
        ck_assert_int_eq(kv_intset_get(set, i), m->numbers[i]);
        ck_assert(kv_intset_find(set, m->numbers[i], &index));
        ck_assert_uint_eq(index, i);
    }
    if (m->count != 0)
        ck_assert(kv_intset_valid(set, kv_intset_bytes(m->width, m->count)));
}

START_TEST(it_does_what_a_naive_set_does)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("intset"));
    static uint8_t set[KV_INTSET_HEAD + 8 * NUMBERS];
    static struct model m;
    for (int round = 0; round < UNIT_ROUNDS(2000); round++) {
        int64_t more[8];
        uint32_t more_count = 0, index, expected;
        if (round % 100 == 0) {
            m = (struct model){.width = 2};
            kv_intset_write(set, 2, NULL, 0);
        }
        for (uint64_t n = 1 + kv_random_below(&r, 8); n > 0; n--) {
            int64_t number = some_number(&r);
            bool found = kv_intset_find(set, number, &index);
            ck_assert_int_eq(found, model_find(&m, number, &expected));
            ck_assert_uint_eq(index, expected);
            if (!found && m.count + more_count < NUMBERS)
                more[more_count++] = number;
        }
        more_count = kv_intset_sort(more, more_count);
        uint32_t width = kv_intset_width(set);
        for (uint32_t i = 0; i < more_count; i++) {
            model_insert(&m, more[i]);
            width = KV_MAX(width, kv_intset_width_of(more[i]));
        }
        kv_intset_merge(set, width, more, more_count);
        check_same(set, &m);
    }
}
END_TEST

START_TEST(a_written_set_is_read_back)
{
    static const int64_t numbers[] = {INT64_MIN, -70000, -1, 0, 5, 40000, INT64_MAX};
    uint8_t set[KV_INTSET_HEAD + sizeof(numbers)];
    kv_intset_write(set, 8, numbers, KV_ARRAY_LEN(numbers));
    for (uint32_t i = 0; i < KV_ARRAY_LEN(numbers); i++)
        ck_assert_int_eq(kv_intset_get(set, i), numbers[i]);
    static const uint8_t narrow[] = {2, 0, 0, 0, 2, 0, 0, 0, 0xff, 0xff, 5, 0};
    uint8_t small[sizeof(narrow)];
    kv_intset_write(small, 2, (const int64_t[]){-1, 5}, 2);
    ck_assert_mem_eq(small, narrow, sizeof(narrow));
}
END_TEST

START_TEST(foreign_bytes_are_looked_at)
{
    uint8_t set[KV_INTSET_HEAD + 4];
    kv_intset_write(set, 2, (const int64_t[]){1, 2}, 2);
    ck_assert(kv_intset_valid(set, sizeof(set)));
    ck_assert(!kv_intset_valid(set, sizeof(set) - 1));
    ck_assert(!kv_intset_valid(set, 7));
    kv_intset_set_count(set, 3);
    ck_assert(!kv_intset_valid(set, sizeof(set)));
    kv_intset_set_count(set, 0);
    ck_assert(!kv_intset_valid(set, KV_INTSET_HEAD));
    kv_intset_write(set, 2, (const int64_t[]){1, 2}, 2);
    set[8] = 2; /* 2, 2 */
    ck_assert(!kv_intset_valid(set, sizeof(set)));
    set[0] = 3;
    ck_assert(!kv_intset_valid(set, sizeof(set)));
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "intset");
    unit_add(&u, it_does_what_a_naive_set_does);
    unit_add(&u, a_written_set_is_read_back);
    unit_add(&u, foreign_bytes_are_looked_at);
    return unit_run(&u);
}
