/* value/bigstr.h: references, room, sharing, and who pays. */
#include "unit.h"
#include "value/bigstr.h"
#include <pthread.h>

static struct kv_bigstr *make(size_t len, char fill)
{
    struct kv_bigstr *b = kv_bigstr_try_create(len, KV_MEM_VALUE);
    ck_assert_ptr_nonnull(b);
    memset(b->data, fill, len);
    return b;
}

static void check_bytes(const struct kv_bigstr *b, size_t len, char fill)
{
    ck_assert_uint_ge(b->len, len);
    size_t same = 0; /* an assertion of Check per byte would take minutes */
    while (same < len && b->data[same] == fill)
        same++;
    ck_assert_uint_eq(same, len);
}

START_TEST(the_block_is_known_exactly)
{
    kv_mem_init();
    static const size_t lens[] = {0, 1, 100, 16384, 16360, 70000, 1 << 20, 5000001};
    for (size_t i = 0; i < KV_ARRAY_LEN(lens); i++) {
        struct kv_bigstr *b = make(lens[i], 'x');
        ck_assert_uint_eq(b->len, lens[i]);
        ck_assert_uint_ge(kv_bigstr_capacity(b), lens[i]);
        ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), (int64_t)b->block_size);
        ck_assert_uint_eq((uintptr_t)b->data % 8, 0);
        memset(b->data, 'y', kv_bigstr_capacity(b));
        kv_bigstr_unref(b);
        ck_assert_int_eq(kv_mem_used_total(), 0);
    }
    ck_assert_ptr_null(kv_bigstr_try_create(SIZE_MAX, KV_MEM_VALUE));
    ck_assert_ptr_null(kv_bigstr_try_create(KV_MEM_SIZE_MAX, KV_MEM_VALUE));
}
END_TEST

START_TEST(a_shared_block_is_copied_before_it_changes)
{
    kv_mem_init();
    struct kv_bigstr *b = make(20000, 'a');
    struct kv_bigstr *queued = b;
    kv_bigstr_ref(queued);
    ck_assert(kv_bigstr_shared(b));
    ck_assert_int_eq(kv_bigstr_reserve(&b, 100, false), KV_OK);
    ck_assert_ptr_ne(b, queued);
    ck_assert(!kv_bigstr_shared(b));
    ck_assert(!kv_bigstr_shared(queued));
    memset(b->data, 'b', b->len);
    check_bytes(queued, 20000, 'a');
    kv_bigstr_unref(queued);
    check_bytes(b, 20000, 'b');
    kv_bigstr_unref(b);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(appending_costs_few_moves)
{
    kv_mem_init();
    struct kv_bigstr *b = make(0, 'a');
    unsigned moves = 0;
    for (unsigned i = 0; i < 100000; i++) {
        size_t before = b->block_size;
        if (kv_bigstr_reserve(&b, b->len + 50, true) != KV_OK)
            ck_abort();
        memset(b->data + b->len, 'a', 50);
        b->len += 50;
        moves += b->block_size != before;
    }
    ck_assert_uint_lt(moves, 40);
    check_bytes(b, 5000000, 'a');
    ck_assert_uint_lt(b->block_size, 5000000 * 3 / 2);
    kv_bigstr_unref(b);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

START_TEST(another_owner_pays)
{
    kv_mem_init();
    struct kv_bigstr *b = kv_bigstr_try_create(30000, KV_MEM_CLIENT_INPUT);
    int64_t size = (int64_t)b->block_size;
    kv_bigstr_set_owner(b, KV_MEM_VALUE);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CLIENT_INPUT), 0);
    ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), size);
    ck_assert_int_eq(kv_bigstr_reserve(&b, 100000, false), KV_OK);
    ck_assert_int_eq(kv_mem_used(KV_MEM_VALUE), (int64_t)b->block_size);
    kv_bigstr_unref(b);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST

#ifdef KV_DEBUG
START_TEST(a_failed_reserve_changes_nothing)
{
    kv_mem_init();
    struct kv_bigstr *b = make(100, 'a');
    struct kv_bigstr *same = b;
    kv_mem_fail_try(1);
    ck_assert_int_eq(kv_bigstr_reserve(&b, 5000, false), KV_ERR_NOMEM);
    kv_mem_fail_try(0);
    ck_assert_int_eq(kv_bigstr_reserve(&b, SIZE_MAX, true), KV_ERR_NOMEM);
    ck_assert_ptr_eq(b, same);
    check_bytes(b, 100, 'a');
    kv_mem_fail_try(1); /* the greedy size fails, the exact one does */
    ck_assert_int_eq(kv_bigstr_reserve(&b, 5000, true), KV_OK);
    ck_assert_uint_lt(kv_bigstr_capacity(b), 6000);
    kv_mem_fail_try(0);
    kv_bigstr_ref(b);
    same = b;
    kv_mem_fail_try(1);
    ck_assert_int_eq(kv_bigstr_reserve(&b, 10, false), KV_ERR_NOMEM);
    kv_mem_fail_try(0);
    ck_assert_ptr_eq(b, same);
    ck_assert(kv_bigstr_shared(b));
    kv_bigstr_unref(b);
    kv_bigstr_unref(b);
    ck_assert_int_eq(kv_mem_used_total(), 0);
}
END_TEST
#endif

static void *read_and_let_go(void *arg)
{
    struct kv_bigstr *b = arg;
    check_bytes(b, b->len, 'q');
    kv_bigstr_unref(b);
    kv_mem_thread_exit();
    return NULL;
}

START_TEST(the_last_of_several_threads_frees)
{
    kv_mem_init();
    for (int round = 0; round < 50; round++) {
        pthread_t threads[4];
        struct kv_bigstr *b = make(20000, 'q');
        for (int i = 0; i < 4; i++)
            kv_bigstr_ref(b);
        for (int i = 0; i < 4; i++)
            ck_assert_int_eq(pthread_create(&threads[i], NULL, read_and_let_go, b), 0);
        /* The holder may write as soon as it is alone. */
        ck_assert_int_eq(kv_bigstr_reserve(&b, b->len, false), KV_OK);
        memset(b->data, 'w', b->len);
        kv_bigstr_unref(b);
        for (int i = 0; i < 4; i++)
            pthread_join(threads[i], NULL);
        ck_assert_int_eq(kv_mem_used_total(), 0);
    }
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "bigstr");
    unit_add(&u, the_block_is_known_exactly);
    unit_add(&u, a_shared_block_is_copied_before_it_changes);
    unit_add(&u, appending_costs_few_moves);
    unit_add(&u, another_owner_pays);
#ifdef KV_DEBUG
    unit_add(&u, a_failed_reserve_changes_nothing);
#endif
    unit_add(&u, the_last_of_several_threads_frees);
    return unit_run(&u);
}
