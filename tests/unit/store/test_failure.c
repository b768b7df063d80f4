/* The failure sweep: every changing function with its first, second, third ... try allocation
 * failing, until it succeeds without meeting one. After each failure content, bookkeeping and used
 * memory are what they were. Where memory cannot be made to fail (release), each runs once. */
#include "fixture.h"

static char bytes_of[6000];

struct state {
    uint8_t digest[20];
    int64_t used[KV_MEM_OWNER_COUNT];
    uint64_t expires, watched;
    uint64_t dirty;
};

static struct state state(void)
{
    struct state s = {.dirty = view.dirty, .watched = kv_store_watched_keys(store)};
    kv_store_digest(&view, s.digest);
    for (int owner = 0; owner < KV_MEM_OWNER_COUNT; owner++)
        s.used[owner] = kv_mem_used((enum kv_mem_owner)owner);
    for (uint32_t db = 0; db < FIXTURE_DATABASES; db++)
        s.expires += kv_store_expires(store, db);
    return s;
}

static void assert_unchanged(const struct state *before)
{
    struct state after = state();
    ck_assert_mem_eq(before->digest, after.digest, sizeof(after.digest));
    for (int owner = 0; owner < KV_MEM_OWNER_COUNT; owner++) {
        int64_t grown = after.used[owner] - before->used[owner];
        /* A database's own struct, made with its first key, may stay. So may nodes that the index
         * took for a record, when the table then had no room for the entry. */
        if (owner == KV_MEM_EXPIRY)
            ck_assert(grown >= 0 && grown <= 3 * 512);
        else if (owner != KV_MEM_OTHER)
            ck_assert_int_eq(grown, 0);
    }
    ck_assert_uint_eq(before->expires, after.expires);
    ck_assert_uint_eq(before->watched, after.watched);
    ck_assert_uint_eq(before->dirty, after.dirty);
    kv_store_check(store);
    assert_accounted();
}

/* Runs op until no allocation of it fails; true when it failed at least once on the way. */
static int sweep(enum kv_err (*op)(void *arg), void *arg)
{
    for (uint64_t n = 1; n < 100; n++) {
        struct state before = state();
        kv_mem_fail_try(n);
        enum kv_err err = op(arg);
        uint64_t tries = kv_mem_fail_try(0);
        if (err == KV_OK)
            return (int)n - 1;
        ck_assert_int_eq(err, KV_ERR_NOMEM);
        ck_assert_uint_ge(tries, n);
        assert_unchanged(&before);
    }
    ck_abort_msg("the operation never succeeds");
    return 0;
}

struct set_arg {
    const char *key;
    size_t len;
    int64_t expiry;
};

static enum kv_err op_set(void *arg)
{
    const struct set_arg *a = arg;
    struct kv_key k = key_of(a->key);
    return kv_store_set(&view, &k, kv_slice(bytes_of, a->len), a->expiry, NULL);
}

static enum kv_err op_set_int(void *arg)
{
    const struct set_arg *a = arg;
    struct kv_key k = key_of(a->key);
    return kv_store_set_int(&view, &k, 42, a->expiry);
}

static enum kv_err op_edit(void *arg)
{
    const struct set_arg *a = arg;
    struct kv_key k = key_of(a->key);
    char *bytes;
    return kv_store_edit_string(&view, &k, kv_store_peek(&view, &k), a->len, &bytes);
}

static enum kv_err op_set_expiry(void *arg)
{
    const struct set_arg *a = arg;
    struct kv_key k = key_of(a->key);
    struct kv_entry *e = kv_store_peek(&view, &k);
    enum kv_err err = kv_store_set_expiry(&view, &k, &e, a->expiry);
    ck_assert_ptr_eq(e, kv_store_peek(&view, &k));
    return err;
}

static enum kv_err op_take(void *arg)
{
    const struct set_arg *a = arg;
    struct kv_key k = key_of(a->key);
    struct kv_bigstr *block = NULL;
    uint64_t left = kv_mem_fail_try(0);
    (void)left;
    block = kv_bigstr_try_create(a->len, KV_MEM_CLIENT_INPUT);
    memset(block->data, 'b', block->len);
    struct kv_bigstr *kept = block;
    for (uint64_t n = 1;; n++) {
        struct state before = state();
        kv_mem_fail_try(n);
        enum kv_err err = kv_store_set_block_take(&view, &k, &block, a->expiry, NULL);
        kv_mem_fail_try(0);
        if (err == KV_OK)
            break;
        ck_assert_ptr_eq(block, kept);
        assert_unchanged(&before);
    }
    ck_assert_ptr_null(block);
    return KV_OK;
}

static const size_t lens[] = {0, 20, 44, 300, 990, 1100, 5900};

/* Every change of length, layout and time to live, from absent and from present keys. */
static void sweep_pairs(enum kv_err (*op)(void *arg))
{
    for (size_t from = 0; from <= KV_ARRAY_LEN(lens); from++) {
        for (size_t to = 0; to < KV_ARRAY_LEN(lens); to++) {
            for (int ttl = 0; ttl < 4; ttl++) {
                view.db = (uint32_t)(from + to) % FIXTURE_DATABASES;
                if (from > 0) {
                    struct set_arg first = {"k", lens[from - 1],
                                            ttl & 1 ? FIXTURE_NOW + 5 : KV_NO_EXPIRY};
                    ck_assert_int_eq(op_set(&first), KV_OK);
                }
                struct set_arg second = {"k", lens[to], ttl & 2 ? FIXTURE_NOW + 9 : KV_NO_EXPIRY};
                sweep(op, &second);
                kv_store_garbage_free(kv_store_flush(&view, view.db));
            }
        }
    }
    ck_assert_int_eq(kv_mem_used_dataset(), dataset_before);
}

START_TEST(set_survives_every_failure)
{
    sweep_pairs(op_set);
}
END_TEST

START_TEST(set_int_survives_every_failure)
{
    sweep_pairs(op_set_int);
}
END_TEST

START_TEST(edit_survives_every_failure)
{
    sweep_pairs(op_edit);
}
END_TEST

START_TEST(set_block_take_survives_every_failure)
{
    sweep_pairs(op_take);
}
END_TEST

START_TEST(set_expiry_survives_every_failure)
{
    static const int64_t steps[] = {5, 9, KV_NO_EXPIRY};
    for (size_t len = 0; len<1100; len += len> 980 && len < 1030 ? 1 : 30) {
        struct set_arg first = {"k", len, KV_NO_EXPIRY};
        ck_assert_int_eq(op_set(&first), KV_OK);
        for (size_t i = 0; i < KV_ARRAY_LEN(steps); i++) {
            struct set_arg a = {"k", 0, steps[i] < 0 ? steps[i] : FIXTURE_NOW + steps[i]};
            sweep(op_set_expiry, &a);
        }
        kv_store_garbage_free(kv_store_flush(&view, 0));
    }
}
END_TEST

struct move_arg {
    const char *from, *to;
    uint32_t to_db;
};

static enum kv_err op_move(void *arg)
{
    const struct move_arg *a = arg;
    struct kv_key from = key_of(a->from);
    struct kv_key to = key_of(a->to);
    return kv_store_move(&view, &from, kv_store_peek(&view, &from), a->to_db, &to);
}

static enum kv_err op_copy(void *arg)
{
    const struct move_arg *a = arg;
    struct kv_key to = key_of(a->to);
    return kv_store_copy(&view, peek(a->from), a->to_db, &to);
}

static void sweep_moves(enum kv_err (*op)(void *arg))
{
    for (size_t from = 0; from < KV_ARRAY_LEN(lens); from++) {
        for (unsigned bits = 0; bits < 32; bits++) {
            struct move_arg a = {"from", bits & 1 ? "from" : "to", bits & 2 ? 2 : 0};
            struct set_arg source = {"from", lens[from], bits & 4 ? FIXTURE_NOW + 5 : KV_NO_EXPIRY};
            struct set_arg target = {a.to, 50, bits & 8 ? FIXTURE_NOW + 9 : KV_NO_EXPIRY};
            ck_assert_int_eq(op_set(&source), KV_OK);
            if (bits & 16 && (a.to_db != 0 || !(bits & 1))) {
                view.db = a.to_db;
                ck_assert_int_eq(op_set(&target), KV_OK);
                view.db = 0;
            }
            sweep(op, &a);
            kv_store_garbage_free(kv_store_flush(&view, UINT32_MAX));
        }
    }
}

START_TEST(move_survives_every_failure)
{
    sweep_moves(op_move);
}
END_TEST

START_TEST(copy_survives_every_failure)
{
    sweep_moves(op_copy);
}
END_TEST

struct watch_arg {
    const char *key;
    struct kv_watch *out;
};

static enum kv_err op_watch(void *arg)
{
    struct watch_arg *a = arg;
    struct kv_key k = key_of(a->key);
    return kv_store_watch(&view, &k, &a->out);
}

START_TEST(watch_survives_every_failure)
{
    static struct watch_arg args[300];
    static char names[300][16];
    for (int i = 0; i < 300; i++) {
        snprintf(names[i], sizeof(names[i]), "watched:%d", i % 250);
        args[i].key = names[i];
        sweep(op_watch, &args[i]);
    }
    ck_assert_uint_eq(kv_store_watched_keys(store), 250);
    for (int i = 0; i < 300; i++)
        kv_store_unwatch(store, args[i].out);
}
END_TEST

/* Tables and indexes that grow in between bring failures of their own. */
START_TEST(a_growing_keyspace_survives_every_failure)
{
    int failures = 0;
    int keys = UNIT_ROUNDS(600);
    for (int i = 0; i < keys; i++) {
        char name[16];
        snprintf(name, sizeof(name), "key:%d", i);
        struct set_arg a = {name, (size_t)i % 60, FIXTURE_NOW + 1 + i * 7919 % 1000};
        failures += sweep(op_set, &a);
    }
    ck_assert_uint_eq(kv_store_size(store, 0), (uint64_t)keys);
#ifdef KV_DEBUG
    ck_assert_int_gt(failures, keys);
#else
    ck_assert_int_eq(failures, 0);
#endif
}
END_TEST

int main(void)
{
    struct unit u;
    memset(bytes_of, 'x', sizeof(bytes_of));
    store_begin(&u, "failure");
    unit_add(&u, set_survives_every_failure);
    unit_add(&u, set_int_survives_every_failure);
    unit_add(&u, edit_survives_every_failure);
    unit_add(&u, set_block_take_survives_every_failure);
    unit_add(&u, set_expiry_survives_every_failure);
    unit_add(&u, move_survives_every_failure);
    unit_add(&u, copy_survives_every_failure);
    unit_add(&u, watch_survives_every_failure);
    unit_add(&u, a_growing_keyspace_survives_every_failure);
    return unit_run(&u);
}
