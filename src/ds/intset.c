/* Sets of integers. The layout is drawn in intset.h.
 *
 * Looking up is a binary search without branches that depend on the data: the lower bound moves by
 * a conditional move, so nine steps over 512 numbers cost what one mispredicted branch would.
 *
 * Merging goes from the back to the front, so that it works where the set lies: the place that is
 * written is never before the one that is read, whatever the width grows to. A number put in singly
 * is the same with one.
 *
 * Invariants: numbers ascend strictly; the width fits the widest of them.
 *
 * Rejected: galloping through two sets for intersections. Sets in this form are small by
 * configuration, and the search costs less than writing a reply's element.
 */
#include "ds/intset.h"
#include "base/assert.h"
#include <assert.h>
#include <stdlib.h>

static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "numbers are loaded as they lie");

/* The number of elements that are smaller. A macro, since the width has to be a constant. */
#define LOWER_BOUND(type, s, number, base)                                                         \
    do {                                                                                           \
        const uint8_t *first_ = (s) + KV_INTSET_HEAD;                                              \
        for (uint32_t rest_ = kv_intset_count(s); rest_ > 0;) {                                    \
            uint32_t half_ = (rest_ + 1) / 2;                                                      \
            type at_;                                                                              \
            memcpy(&at_, first_ + sizeof(at_) * (size_t)((base) + half_ - 1), sizeof(at_));        \
            (base) = at_ < (number) ? (base) + half_ : (base);                                     \
            rest_ = rest_ - half_;                                                                 \
        }                                                                                          \
    } while (0)

bool kv_intset_find(const uint8_t *s, int64_t number, uint32_t *index)
{
    uint32_t base = 0;
    uint32_t width = kv_intset_width(s);
    if (KV_UNLIKELY(kv_intset_width_of(number) > width)) {
        *index = number < 0 ? 0 : kv_intset_count(s);
        return false;
    }
    if (width == 2)
        LOWER_BOUND(int16_t, s, number, base);
    else if (width == 4)
        LOWER_BOUND(int32_t, s, number, base);
    else
        LOWER_BOUND(int64_t, s, number, base);
    KV_DASSERT(base <= kv_intset_count(s));
    *index = base;
    return base < kv_intset_count(s) && kv_intset_get(s, base) == number;
}

static void put(uint8_t *s, uint32_t width, uint32_t index, int64_t number)
{
    KV_DASSERT(kv_intset_width_of(number) <= width);
    /* The lower bytes of a number are its narrower form. */
    memcpy(s + KV_INTSET_HEAD + width * (size_t)index, &number, width);
}

static void set_head(uint8_t *s, uint32_t width, uint32_t count)
{
    KV_ASSERT(width == 2 || width == 4 || width == 8);
    KV_DASSERT(count <= KV_INTSET_MAX);
    memcpy(s, &width, sizeof(width));
    kv_intset_set_count(s, count);
}

void kv_intset_write(uint8_t *s, uint32_t width, const int64_t *numbers, uint32_t count)
{
    set_head(s, width, count);
    for (uint32_t i = 0; i < count; i++) {
        KV_DASSERT(i == 0 || numbers[i - 1] < numbers[i]);
        put(s, width, i, numbers[i]);
    }
}

/* One number more of the same width: what lies behind it moves up. */
static void insert_one(uint8_t *s, int64_t number)
{
    uint32_t index, width = kv_intset_width(s), count = kv_intset_count(s);
    bool found = kv_intset_find(s, number, &index);
    KV_ASSERT(!found);
    uint8_t *gap = s + KV_INTSET_HEAD + width * (size_t)index;
    memmove(gap + width, gap, width * (size_t)(count - index));
    put(s, width, index, number);
    kv_intset_set_count(s, count + 1);
}

void kv_intset_merge(uint8_t *s, uint32_t width, const int64_t *more, uint32_t more_count)
{
    uint32_t old_width = kv_intset_width(s), have = kv_intset_count(s);
    uint32_t total = have + more_count, left = more_count;
    KV_ASSERT(width >= old_width);
    if (KV_LIKELY(width == old_width && more_count == 1)) {
        insert_one(s, more[0]);
        return;
    }
    for (uint32_t at = total; at > 0; at--) {
        int64_t number = have > 0 ? kv_intset_get(s, have - 1) : INT64_MIN;
        KV_DASSERT(left == 0 || have == 0 || more[left - 1] != number);
        if (left > 0 && (have == 0 || more[left - 1] > number))
            number = more[--left];
        else
            have--;
        put(s, width, at - 1, number);
    }
    KV_ASSERT(have == 0 && left == 0);
    set_head(s, width, total);
}

static int compare(const void *a, const void *b)
{
    int64_t x, y;
    memcpy(&x, a, sizeof(x));
    memcpy(&y, b, sizeof(y));
    return (x > y) - (x < y);
}

uint32_t kv_intset_sort(int64_t *numbers, uint32_t count)
{
    uint32_t kept = 0;
    if (count > 1)
        qsort(numbers, count, sizeof(*numbers), compare);
    for (uint32_t i = 0; i < count; i++)
        if (kept == 0 || numbers[kept - 1] != numbers[i])
            numbers[kept++] = numbers[i];
    KV_ASSERT(kept <= count);
    return kept;
}

bool kv_intset_valid(const uint8_t *s, size_t len)
{
    if (len < KV_INTSET_HEAD)
        return false;
    uint32_t width = kv_intset_width(s), count = kv_intset_count(s);
    if ((width != 2 && width != 4 && width != 8) || count == 0 || count > KV_INTSET_MAX ||
        len != kv_intset_bytes(width, count))
        return false;
    for (uint32_t i = 1; i < count; i++)
        if (kv_intset_get(s, i - 1) >= kv_intset_get(s, i))
            return false;
    return true;
}
