/* Operations on an index of due times and on a sorted array, decoded from bytes: the harness of the
 * fuzz target and of the seeded tests. kv_mem_init must have run. */
#ifndef KV_TESTS_FUZZ_OPS_TIME_INDEX_H
#define KV_TESTS_FUZZ_OPS_TIME_INDEX_H

#include "base/random.h"
#include "ds/time_index.h"
#include "fuzz/input.h"

#include <string.h>

#define TIME_MODEL_MAX 30000 /* records */

struct time_record {
    uint64_t when;
    uint64_t position;
};

struct time_model {
    struct kv_time_index index;
    struct time_record records[TIME_MODEL_MAX]; /* in ascending order */
    uint32_t count;
    struct kv_random random;
    uint64_t append_when; /* rises with every appending */
    unsigned spread;      /* bits of `when` that vary */
};

static int time_record_compare(struct time_record a, struct time_record b)
{
    if (a.when != b.when)
        return a.when < b.when ? -1 : 1;
    return a.position == b.position ? 0 : a.position < b.position ? -1 : 1;
}

static void time_model_put(struct time_model *m, struct time_record r)
{
    uint32_t begin = 0, end = m->count;
    while (begin < end) {
        uint32_t middle = (begin + end) / 2;
        if (time_record_compare(m->records[middle], r) < 0)
            begin = middle + 1;
        else
            end = middle;
    }
    memmove(&m->records[begin + 1], &m->records[begin], (m->count - begin) * sizeof r);
    m->records[begin] = r;
    m->count++;
}

static void time_model_drop(struct time_model *m, uint32_t i)
{
    m->count--;
    memmove(&m->records[i], &m->records[i + 1], (m->count - i) * sizeof m->records[0]);
}

static struct time_record time_model_make(struct time_model *m)
{
    uint64_t when = kv_random_next(&m->random) >> (64 - (m->spread % 48 + 1));
    /* Few positions, so that equal records occur. */
    uint64_t position = kv_random_next(&m->random) & UINT64_C(0x1f0000000ff);
    return (struct time_record){when, position};
}

static void time_model_insert(struct time_model *m, struct time_record r, bool failing)
{
    if (m->count == TIME_MODEL_MAX)
        return;
    kv_mem_fail_try(failing ? 1 + kv_random_below(&m->random, 3) : 0);
    enum kv_err err = kv_time_index_insert(&m->index, r.when, r.position);
    kv_mem_fail_try(0);
    KV_ASSERT(err == KV_OK || failing);
    if (err == KV_OK)
        time_model_put(m, r);
}

static void time_model_remove(struct time_model *m, uint32_t i)
{
    kv_time_index_remove(&m->index, m->records[i].when, m->records[i].position);
    time_model_drop(m, i);
}

static void time_model_move(struct time_model *m, uint32_t i, bool near)
{
    struct time_record old = m->records[i];
    struct time_record moved = {time_model_make(m).when, old.position};
    if (near)
        moved.when = old.when ^ kv_random_below(&m->random, 4);
    bool failing = kv_random_below(&m->random, 8) == 0;
    kv_mem_fail_try(failing ? 1 : 0);
    enum kv_err err = kv_time_index_move(&m->index, old.when, moved.when, old.position);
    kv_mem_fail_try(0);
    KV_ASSERT(err == KV_OK || failing);
    if (err != KV_OK)
        return;
    time_model_drop(m, i);
    time_model_put(m, moved);
}

static void time_model_check_first(struct time_model *m)
{
    uint64_t when = 0, position = 0;
    bool any = kv_time_index_first(&m->index, &when, &position);
    KV_ASSERT(any == (m->count != 0));
    KV_ASSERT(m->index.count == m->count);
    KV_ASSERT(!any || (when == m->records[0].when && position == m->records[0].position));
    KV_ASSERT(m->index.first_when == (any ? when : UINT64_MAX));
}

static void time_model_check(struct time_model *m)
{
    kv_time_index_check(&m->index);
    time_model_check_first(m);
    KV_ASSERT((size_t)kv_mem_used(KV_MEM_EXPIRY) == kv_time_index_memory(&m->index));
    unsigned __int128 sum = 0;
    for (uint32_t i = 0; i < m->count; i++)
        sum += m->records[i].when;
    KV_ASSERT(sum == m->index.when_sum);
}

static void time_model_step(struct time_model *m, struct input *in)
{
    uint8_t op = input_byte(in);
    uint32_t times = 1 + input_byte(in);
    switch (op % 12) {
    case 0:
    case 1:
        while (times-- > 0)
            time_model_insert(m, time_model_make(m), false);
        break;
    case 2:
        while (times-- > 0 && m->append_when < KV_TIME_INDEX_WHEN_MAX)
            time_model_insert(m, (struct time_record){m->append_when++, times}, false);
        break;
    case 3:
        m->append_when = time_model_make(m).when;
        break;
    case 4:
    case 5:
        while (times-- > 0 && m->count > 0)
            time_model_remove(m, (uint32_t)kv_random_below(&m->random, m->count));
        break;
    case 6:
        while (times-- > 0 && m->count > 0)
            time_model_remove(m, 0);
        break;
    case 7:
        while (times-- > 0 && m->count > 0)
            time_model_move(m, (uint32_t)kv_random_below(&m->random, m->count), times % 2 == 0);
        break;
    case 8:
        while (times-- > 0)
            time_model_insert(m, time_model_make(m), true);
        break;
    case 9:
        m->spread = times;
        break;
    case 10:
        while (times-- > 0 && m->count > 0)
            time_model_remove(m, m->count - 1);
        break;
    default:
        time_model_check(m);
        break;
    }
    time_model_check_first(m);
}

/* Runs what the bytes say, then empties the index from the front, in order. */
static void time_model_run(struct input in)
{
    struct time_model *m = kv_mem_zalloc(sizeof *m, KV_MEM_OTHER);
    kv_time_index_init(&m->index, KV_MEM_EXPIRY);
    kv_random_init(&m->random, input_number(&in, 2));
    m->spread = 40;
    while (input_more(&in))
        time_model_step(m, &in);
    time_model_check(m);
    for (uint32_t i = 0; i < m->count; i++) {
        uint64_t when = 0, position = 0;
        KV_ASSERT(kv_time_index_first(&m->index, &when, &position));
        KV_ASSERT(when == m->records[i].when && position == m->records[i].position);
        kv_time_index_remove(&m->index, when, position);
        if (i % 512 == 0)
            kv_time_index_check(&m->index);
    }
    m->count = 0;
    time_model_check(m);
    KV_ASSERT(m->index.root == NULL);
    kv_time_index_release(&m->index);
    kv_mem_free(m, sizeof *m, KV_MEM_OTHER);
}

#endif
