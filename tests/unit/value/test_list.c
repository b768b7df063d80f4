/* value/list.h: random changes beside a naive array, both ends, exact bytes, failures. */
#include "unit.h"
#include "value/list.h"
#include <stdio.h>
#include <stdlib.h>

#define ITEMS_MAX 3000

/* An item is a number of its own and a length. */
struct model {
    struct {
        unsigned id;
        size_t len;
    } items[ITEMS_MAX];
    unsigned count;
};

static char text[200000];

static struct kv_slice text_of(unsigned id, size_t len)
{
    int digits = sprintf(text, "%u", id);
    if ((size_t)digits >= len)
        return kv_slice(text, (size_t)digits); /* a number */
    memset(text + digits, 'x', len - (size_t)digits);
    return kv_slice(text, len);
}

static void needle_of(struct kv_needle *n, unsigned id, size_t len)
{
    kv_needle_init(n, text_of(id, len));
}

static void check_same(const struct kv_list *l, const struct model *m)
{
    struct kv_needle n;
    kv_list_check(l);
    ck_assert_uint_eq(l->count, m->count);
    struct kv_list_pos p = kv_list_seek(l, 0), last = kv_list_seek(l, -1);
    for (unsigned i = 0; i < m->count; i++) {
        needle_of(&n, m->items[i].id, m->items[i].len);
        ck_assert(kv_needle_is_at(&n, p.at));
        ck_assert_ptr_eq(kv_list_seek(l, i).at, p.at);
        ck_assert_ptr_eq(kv_list_seek(l, (int64_t)i - m->count).at, p.at);
        p = kv_list_next(p);
    }
    ck_assert_ptr_null(p.node);
    for (unsigned i = m->count; i-- > 0;) {
        needle_of(&n, m->items[i].id, m->items[i].len);
        ck_assert(kv_needle_is_at(&n, last.at));
        last = kv_list_prev(last);
    }
    ck_assert_ptr_null(last.node);
    ck_assert_ptr_null(kv_list_seek(l, m->count).node);
    ck_assert_ptr_null(kv_list_seek(l, -1 - (int64_t)m->count).node);
    ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), (int64_t)kv_list_footprint(l).block_bytes);
}

static void model_insert(struct model *m, unsigned at, unsigned id, size_t len)
{
    memmove(m->items + at + 1, m->items + at, (m->count - at) * sizeof(m->items[0]));
    m->items[at].id = id;
    m->items[at].len = len;
    m->count++;
}

static void model_remove(struct model *m, unsigned at, unsigned count)
{
    memmove(m->items + at, m->items + at + count, (m->count - at - count) * sizeof(m->items[0]));
    m->count -= count;
}

static size_t some_len(struct kv_random *r)
{
    switch (kv_random_below(r, 40)) {
    case 0:
        return 3000 + kv_random_below(r, 9000);
    case 1:
        return kv_random_below(r, 150000);
    case 2:
    case 3:
        return kv_random_below(r, 1500);
    default:
        return kv_random_below(r, 60);
    }
}

static void add(struct kv_list *l, struct model *m, struct kv_random *r, struct kv_list_limit limit)
{
    struct kv_needle n;
    unsigned id = (unsigned)kv_random_below(r, 100000);
    size_t len = some_len(r);
    needle_of(&n, id, len);
    unsigned way = (unsigned)kv_random_below(r, 4);
    if (way < 2 || m->count == 0) {
        ck_assert_int_eq(kv_list_push(l, way == 0 ? KV_LIST_HEAD : KV_LIST_TAIL, &n, limit), KV_OK);
        model_insert(m, way == 0 ? 0 : m->count, id, len);
        return;
    }
    unsigned at = (unsigned)kv_random_below(r, m->count);
    struct kv_list_pos p = kv_list_seek(l, at);
    ck_assert_int_eq(kv_list_insert(l, p, way == 3, &n, limit), KV_OK);
    model_insert(m, at + (way == 3), id, len);
}

/* Removes some in a row, towards one end. */
static void remove_run(struct kv_list *l, struct model *m, struct kv_random *r,
                       struct kv_list_limit limit)
{
    unsigned at = (unsigned)kv_random_below(r, m->count);
    enum kv_list_end towards = kv_random_below(r, 2) == 0 ? KV_LIST_HEAD : KV_LIST_TAIL;
    struct kv_list_pos p = kv_list_seek(l, at);
    for (unsigned i = (unsigned)kv_random_below(r, 30); i > 0 && p.node != NULL; i--) {
        p = kv_list_remove(l, p, towards, limit);
        model_remove(m, at, 1);
        unsigned next = towards == KV_LIST_HEAD ? at - 1 : at;
        ck_assert_ptr_eq(p.node != NULL ? p.at : NULL,
                         next < m->count ? kv_list_seek(l, next).at : NULL);
        at = next;
    }
}

static void change(struct kv_list *l, struct model *m, struct kv_random *r,
                   struct kv_list_limit limit)
{
    struct kv_needle n;
    unsigned way = (unsigned)kv_random_below(r, 20);
    if (m->count == 0 || (way < 12 && m->count < ITEMS_MAX)) {
        add(l, m, r, limit);
    } else if (way < 16) {
        unsigned at = (unsigned)kv_random_below(r, m->count);
        m->items[at].id = (unsigned)kv_random_below(r, 100000);
        m->items[at].len = some_len(r);
        needle_of(&n, m->items[at].id, m->items[at].len);
        ck_assert_int_eq(kv_list_replace(l, kv_list_seek(l, at), &n, limit), KV_OK);
    } else if (way < 18) {
        remove_run(l, m, r, limit);
    } else {
        unsigned count = (unsigned)kv_random_below(r, kv_random_below(r, 20) == 0 ? 400 : 12);
        count = KV_MIN(count, m->count);
        kv_list_drop(l, way == 18 ? KV_LIST_HEAD : KV_LIST_TAIL, count);
        model_remove(m, way == 18 ? 0 : m->count - count, count);
    }
}

static void run(struct kv_random *r, int64_t directive)
{
    static struct model m;
    m.count = 0;
    struct kv_list_limit limit = kv_list_limit(directive);
    struct kv_list *l = kv_list_create();
    for (unsigned step = 0; step < 3000; step++) {
        change(l, &m, r, limit);
        if (step % 100 == 0)
            check_same(l, &m);
    }
    check_same(l, &m);
    struct kv_list *copy = kv_list_copy(l);
    kv_list_free(l);
    check_same(copy, &m);
    kv_list_drop(copy, KV_LIST_TAIL, UINT64_MAX);
    m.count = 0;
    check_same(copy, &m);
    kv_list_free(copy);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}

START_TEST(it_does_what_a_naive_array_does)
{
    kv_mem_init();
    struct kv_random r;
    kv_random_init(&r, unit_seed("list"));
    static const int64_t directives[] = {-2, -1, -5, 1, 3, 128, 0, INT64_MAX, INT64_MIN};
    for (size_t i = 0; i < KV_ARRAY_LEN(directives); i++)
        run(&r, directives[i]);
}
END_TEST

START_TEST(the_directive_names_bytes_or_items)
{
    ck_assert_uint_eq(kv_list_limit(-1).bytes, 4096);
    ck_assert_uint_eq(kv_list_limit(-2).bytes, 8192);
    ck_assert_uint_eq(kv_list_limit(-5).bytes, 65536);
    ck_assert_uint_eq(kv_list_limit(-9).bytes, 65536);
    ck_assert_uint_eq(kv_list_limit(7).items, 7);
    ck_assert_uint_eq(kv_list_limit(7).bytes, 8192);
    ck_assert_uint_eq(kv_list_limit(0).items, 1);
    ck_assert(kv_list_limit_holds(kv_list_limit(2), 8192, 2));
    ck_assert(!kv_list_limit_holds(kv_list_limit(2), 100, 3));
    ck_assert(!kv_list_limit_holds(kv_list_limit(-2), 8193, 3));
}
END_TEST

START_TEST(items_of_32_bytes_take_less_than_35)
{
    kv_mem_init();
    struct kv_list_limit limit = kv_list_limit(-2);
    for (int end = 0; end < 2; end++) {
        struct kv_list *l = kv_list_create();
        struct kv_needle n;
        needle_of(&n, 5, 32);
        for (unsigned i = 0; i < 100000; i++)
            ck_assert_int_eq(kv_list_push(l, (enum kv_list_end)end, &n, limit), KV_OK);
        kv_list_check(l);
        ck_assert_uint_lt(kv_list_footprint(l).block_bytes, 100000 * 343 / 10);
        kv_list_free(l);
    }
}
END_TEST

START_TEST(a_queue_stays_small)
{
    kv_mem_init();
    struct kv_list_limit limit = kv_list_limit(-2);
    struct kv_list *l = kv_list_create();
    struct kv_needle n;
    for (unsigned i = 0; i < 50000; i++) {
        needle_of(&n, i, 20);
        ck_assert_int_eq(kv_list_push(l, KV_LIST_TAIL, &n, limit), KV_OK);
        if (i >= 50)
            kv_list_drop(l, KV_LIST_HEAD, 1);
        ck_assert_uint_le(l->node_count, 2);
        if (i % 1000 == 0)
            kv_list_check(l);
    }
    kv_list_drop(l, KV_LIST_HEAD, 48);
    kv_list_check(l);
    ck_assert_uint_lt(kv_list_footprint(l).block_bytes, 3000);
    kv_list_free(l);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(removing_most_items_joins_what_is_left)
{
    kv_mem_init();
    struct kv_list_limit limit = kv_list_limit(-2);
    struct kv_list *l = kv_list_create();
    struct kv_needle n;
    for (unsigned i = 0; i < 20000; i++) {
        needle_of(&n, i, 30);
        ck_assert_int_eq(kv_list_push(l, KV_LIST_TAIL, &n, limit), KV_OK);
    }
    unsigned i = 0;
    for (struct kv_list_pos p = kv_list_seek(l, 0); p.node != NULL; i++)
        p = i % 100 == 0 ? kv_list_next(p) : kv_list_remove(l, p, KV_LIST_TAIL, limit);
    kv_list_check(l);
    ck_assert_uint_eq(l->count, 200);
    ck_assert_uint_le(l->node_count, 4);
    kv_list_free(l);
}
END_TEST

START_TEST(a_packed_list_becomes_nodes_and_one_node_a_packed_list)
{
    kv_mem_init();
    uint8_t packed[20000];
    struct kv_needle n;
    uint8_t *at = kv_packed_first(packed);
    for (unsigned i = 0; i < 400; i++) {
        needle_of(&n, i, 30);
        at = kv_packed_put(at, &n);
    }
    kv_packed_seal(packed, (size_t)(at + 1 - packed), 400);
    struct kv_list *l = kv_list_create_from(packed, kv_list_limit(-2));
    kv_list_check(l);
    ck_assert_uint_eq(l->count, 400);
    ck_assert_uint_eq(l->node_count, 2);
    ck_assert_ptr_null(kv_list_only(l));
    kv_list_drop(l, KV_LIST_TAIL, 200);
    ck_assert_ptr_nonnull(kv_list_only(l));
    struct kv_list_node *node = kv_list_detach_only(l);
    kv_list_check(l);
    kv_list_attach_only(l, node);
    kv_list_check(l);
    ck_assert_uint_eq(l->count, 200);
    kv_list_free(l);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(a_cut_takes_all_that_a_drop_would)
{
    kv_mem_init();
    struct kv_random r;
    kv_random_init(&r, unit_seed("list_cut"));
    struct kv_list_limit limit = kv_list_limit(3);
    for (unsigned round = 0; round < 60; round++) {
        struct kv_list *l = kv_list_create();
        struct kv_needle n;
        unsigned count = 1 + (unsigned)kv_random_below(&r, 2000);
        for (unsigned i = 0; i < count; i++) {
            needle_of(&n, i, 1);
            ck_assert_int_eq(kv_list_push(l, KV_LIST_TAIL, &n, limit), KV_OK);
        }
        enum kv_list_end end = (enum kv_list_end)kv_random_below(&r, 2);
        uint64_t dropped = kv_random_below(&r, count + 10);
        uint64_t items = dropped;
        struct kv_list *cut = kv_list_cut(l, end, &items);
        kv_list_check(l);
        if (cut != NULL) {
            kv_list_check(cut);
            ck_assert_uint_eq(cut->count + items, dropped);
            ck_assert_uint_lt(items, 3);
            kv_list_free(cut);
        } else {
            ck_assert(count < 64 * 3 || dropped < 66 * 3 || dropped >= count);
        }
        kv_list_drop(l, end, items);
        kv_list_check(l);
        ck_assert_uint_eq(l->count, dropped >= count ? 0 : count - dropped);
        if (l->count != 0) {
            needle_of(&n, end == KV_LIST_HEAD ? (unsigned)dropped : 0, 1);
            ck_assert(kv_needle_is_at(&n, kv_list_seek(l, 0).at));
        }
        kv_list_free(l);
    }
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

#ifdef KV_DEBUG
START_TEST(a_failure_changes_no_item)
{
    kv_mem_init();
    struct kv_random r;
    kv_random_init(&r, unit_seed("list_failure"));
    struct kv_list_limit limit = kv_list_limit(-1);
    struct kv_list *l = kv_list_create();
    static struct model m;
    m.count = 0;
    for (unsigned step = 0; step < 2000; step++) {
        struct kv_needle n;
        size_t len = some_len(&r);
        unsigned at = m.count == 0 ? 0 : (unsigned)kv_random_below(&r, m.count);
        unsigned way = m.count == 0 ? 0 : (unsigned)kv_random_below(&r, 4);
        needle_of(&n, step, len);
        kv_mem_fail_try(1 + kv_random_below(&r, 3));
        enum kv_err err;
        if (way < 2)
            err = kv_list_push(l, (enum kv_list_end)way, &n, limit);
        else if (way == 2)
            err = kv_list_insert(l, kv_list_seek(l, at), false, &n, limit);
        else
            err = kv_list_replace(l, kv_list_seek(l, at), &n, limit);
        kv_mem_fail_try(0);
        if (err == KV_OK && way == 3) {
            m.items[at].id = step;
            m.items[at].len = len;
        } else if (err == KV_OK) {
            model_insert(&m, way == 0 ? 0 : way == 1 ? m.count : at, step, len);
        }
        kv_mem_fail_try(1);
        struct kv_list *copy = kv_list_copy(l);
        ck_assert_ptr_null(copy);
        kv_mem_fail_try(0);
        if (m.count > 500) {
            kv_mem_fail_try(1);
            kv_list_drop(l, KV_LIST_HEAD, 400);
            kv_mem_fail_try(0);
            model_remove(&m, 0, 400);
        }
        if (step % 20 == 0)
            check_same(l, &m);
    }
    kv_list_free(l);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST
#endif

int main(void)
{
    struct unit u;
    unit_begin(&u, "list");
    unit_add(&u, it_does_what_a_naive_array_does);
    unit_add(&u, the_directive_names_bytes_or_items);
    unit_add(&u, items_of_32_bytes_take_less_than_35);
    unit_add(&u, a_queue_stays_small);
    unit_add(&u, removing_most_items_joins_what_is_left);
    unit_add(&u, a_packed_list_becomes_nodes_and_one_node_a_packed_list);
    unit_add(&u, a_cut_takes_all_that_a_drop_would);
#ifdef KV_DEBUG
    unit_add(&u, a_failure_changes_no_item);
#endif
    return unit_run(&u);
}
