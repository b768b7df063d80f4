/* value/dict.h: a random series of changes beside a naive model, due times, exact bytes. */
#include "base/clock.h"
#include "unit.h"
#include "value/dict.h"
#include <stdlib.h>

#define NAMES 300

static const struct kv_hash_key hash_key = {1, 2};

struct model {
    bool present[NAMES];
    size_t value_len[NAMES];
    int64_t due[NAMES];
};

static struct kv_slice name_of(unsigned i, char *buffer)
{
    /* Some names need four bytes for their length. */
    int len = sprintf(buffer, "name:%u", i);
    if (i % 7 == 0) {
        memset(buffer + len, 'n', 300);
        len += 300;
    }
    return kv_slice(buffer, (size_t)len);
}

static void check_same(const struct kv_dict *d, const struct model *m)
{
    char buffer[400];
    uint64_t count = 0;
    int64_t first = KV_NOT_DUE;
    for (unsigned i = 0; i < NAMES; i++) {
        struct kv_slice name = name_of(i, buffer);
        struct kv_element *e = kv_dict_find(d, name, kv_dict_hash(d, name));
        ck_assert_int_eq(e != NULL, m->present[i]);
        if (e == NULL)
            continue;
        count++;
        ck_assert_uint_eq(kv_element_value(e).len, m->value_len[i]);
        ck_assert_int_eq(kv_element_due(e), m->due[i]);
        if (m->due[i] != KV_NOT_DUE && (first == KV_NOT_DUE || m->due[i] < first))
            first = m->due[i];
    }
    ck_assert_uint_eq(kv_dict_count(d), count);
    ck_assert_int_eq(kv_dict_first_due(d), first);
    kv_dict_check(d);
}

static void change(struct kv_dict *d, struct model *m, unsigned i, struct kv_random *r)
{
    static char bytes[600];
    char buffer[400];
    struct kv_slice name = name_of(i, buffer);
    uint64_t hash = kv_dict_hash(d, name);
    struct kv_slice value = kv_slice(bytes, kv_random_below(r, 10) == 0 ? 600 : i % 40);
    int64_t due = kv_random_below(r, 3) == 0 ? (int64_t)kv_random_below(r, 1000) : KV_NOT_DUE;
    struct kv_element *e = kv_dict_find(d, name, hash);
    if (e != NULL && kv_random_below(r, 2) == 0) {
        kv_dict_remove(d, e, hash);
        m->present[i] = false;
        return;
    }
    if (e != NULL && kv_random_below(r, 2) == 0)
        value = kv_element_value(e); /* in the element itself */
    m->present[i] = true;
    m->due[i] = due;
    m->value_len[i] = value.len;
    if (e != NULL)
        ck_assert_int_eq(kv_dict_set(d, e, hash, &value, due), KV_OK);
    else
        ck_assert_int_eq(kv_dict_add(d, name, hash, &value, due), KV_OK);
}

START_TEST(it_does_what_a_naive_map_does)
{
    kv_mem_init();
    struct kv_random r;
    kv_random_init(&r, unit_seed("dict"));
    static struct model m;
    memset(&m, 0, sizeof(m));
    struct kv_dict *d = kv_dict_create(&hash_key);
    for (unsigned step = 0; step < 4000; step++) {
        change(d, &m, (unsigned)kv_random_below(&r, NAMES), &r);
        if (step % 200 == 0) {
            check_same(d, &m);
            ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), (int64_t)kv_dict_footprint(d).block_bytes);
        }
    }
    struct kv_dict *copy = kv_dict_copy(d);
    check_same(copy, &m);
    kv_dict_free(d);
    check_same(copy, &m);
    struct kv_element *e;
    int64_t last = 0;
    while ((e = kv_dict_first_due_element(copy)) != NULL) {
        ck_assert_int_ge(kv_element_due(e), last);
        last = kv_element_due(e);
        kv_dict_remove(copy, e, kv_dict_hash(copy, kv_element_name(e)));
    }
    kv_dict_check(copy);
    kv_dict_free(copy);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

#ifdef KV_DEBUG
START_TEST(a_failure_changes_nothing)
{
    kv_mem_init();
    struct kv_dict *d = kv_dict_create(&hash_key);
    struct kv_slice name = KV_SLICE("name"), value = KV_SLICE("value"),
                    longer = KV_SLICE("longer value than before");
    uint64_t hash = kv_dict_hash(d, name);
    ck_assert_int_eq(kv_dict_add(d, name, hash, &value, KV_NOT_DUE), KV_OK);
    for (unsigned n = 1; n < 10; n++) {
        struct kv_slice other = KV_SLICE("other");
        kv_mem_fail_try(n);
        enum kv_err added = kv_dict_add(d, other, kv_dict_hash(d, other), &value, 5);
        kv_mem_fail_try(n);
        enum kv_err set = kv_dict_set(d, kv_dict_find(d, name, hash), hash, &longer, 7);
        kv_mem_fail_try(0);
        kv_dict_check(d);
        struct kv_element *e = kv_dict_find(d, name, hash);
        if (set != KV_OK) {
            ck_assert(kv_slice_equal(kv_element_value(e), value));
        } else {
            ck_assert_int_eq(kv_dict_set(d, e, hash, &value, KV_NOT_DUE), KV_OK);
        }
        e = kv_dict_find(d, other, kv_dict_hash(d, other));
        ck_assert_int_eq(e != NULL, added == KV_OK);
        if (e != NULL)
            kv_dict_remove(d, e, kv_dict_hash(d, other));
    }
    kv_dict_free(d);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST
#endif

int main(void)
{
    struct unit u;
    unit_begin(&u, "dict");
    unit_add(&u, it_does_what_a_naive_map_does);
#ifdef KV_DEBUG
    unit_add(&u, a_failure_changes_nothing);
#endif
    return unit_run(&u);
}
