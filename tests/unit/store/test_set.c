/* store/set.h: a random series of changes beside a naive model in all forms, the failure sweep, due
 * members, choosing, scanning, building. */
#include "fixture.h"
#include "store/set.h"

#define NAMES 260

static struct kv_arena arena;
static struct kv_random rng;

struct model {
    bool present[NAMES];
    int64_t due[NAMES];
};

/* Integers of three widths, short texts, a few long ones. */
static struct kv_slice name_of(unsigned i, char *buffer)
{
    int len = i % 4 == 0   ? sprintf(buffer, "%d", (int)i - 100)
              : i % 4 == 1 ? sprintf(buffer, "%lld", (long long)i << (i % 3 * 20))
                           : sprintf(buffer, "m%u", i);
    if (i % 50 == 2) {
        memset(buffer + len, 'x', 60);
        len += 60;
    }
    return kv_slice(buffer, (size_t)len);
}

static struct kv_set open_set(const struct kv_key *k)
{
    struct kv_entry *e = kv_set_purge(&view, k, kv_store_write(&view, k));
    return (struct kv_set){&view, k, e, &arena};
}

static bool model_has(const struct model *m, unsigned i)
{
    return m->present[i] && (m->due[i] == KV_NOT_DUE || m->due[i] > view.now_ms);
}

struct seen {
    const struct model *model;
    uint64_t count;
};

static void see(struct kv_slice member, void *arg)
{
    struct seen *s = arg;
    char buffer[200];
    s->count++;
    for (unsigned i = 0; i < NAMES; i++)
        if (model_has(s->model, i) && kv_slice_equal(name_of(i, buffer), member))
            return;
    ck_abort_msg("a member that should not be there");
}

static bool see_batch(struct kv_set_batch *b, void *arg)
{
    for (unsigned i = 0; i < b->count; i++)
        see(b->members[i], arg);
    return true;
}

static void check_batches(const struct kv_entry *e, const struct model *m, uint64_t count)
{
    struct seen s = {m, 0};
    static struct kv_set_batch b;
    kv_set_each_batch(e, view.now_ms, false, &b, see_batch, &s);
    ck_assert_uint_eq(s.count, count);
    s.count = 0;
    kv_set_each_batch(e, view.now_ms, true, &b, see_batch, &s);
    ck_assert_uint_eq(s.count, count);
    static char names[KV_SET_BATCH][200];
    b.count = KV_SET_BATCH;
    b.hashed = false;
    uint32_t want = 0;
    for (unsigned i = 0; i < KV_SET_BATCH; i++) {
        unsigned n = (unsigned)kv_random_below(&rng, NAMES);
        b.members[i] = name_of(n, names[i]);
        want |= (uint32_t)model_has(m, n) << i;
    }
    ck_assert_uint_eq(kv_set_has_batch(e, view.now_ms, &b, kv_store_hash_key(store), UINT32_MAX),
                      want);
}

static void check_same(const struct kv_key *k, const struct model *m)
{
    struct kv_set s = open_set(k);
    char buffer[200];
    uint64_t count = 0;
    for (unsigned i = 0; i < NAMES; i++) {
        int64_t due;
        count += model_has(m, i);
        if (s.entry == NULL)
            continue;
        ck_assert_int_eq(kv_set_has(s.entry, name_of(i, buffer), view.now_ms), model_has(m, i));
        ck_assert_int_eq(kv_set_member_due(s.entry, name_of(i, buffer), view.now_ms, &due),
                         model_has(m, i));
        if (model_has(m, i))
            ck_assert_int_eq(due, m->due[i]);
    }
    ck_assert_int_eq(s.entry != NULL, count != 0);
    if (s.entry == NULL)
        return;
    ck_assert_uint_eq(kv_set_count(s.entry, view.now_ms), count);
    struct seen seen = {m, 0};
    kv_set_each(s.entry, view.now_ms, see, &seen);
    ck_assert_uint_eq(seen.count, count);
    check_batches(s.entry, m, count);
    kv_set_check(s.entry);
}

/* Some names as a command's arguments. */
static size_t some_names(unsigned range, struct kv_slice *members, unsigned *numbers)
{
    static char bytes[40][200];
    size_t count = 1 + kv_random_below(&rng, kv_random_below(&rng, 8) == 0 ? 30 : 4);
    for (size_t i = 0; i < count; i++) {
        numbers[i] = (unsigned)kv_random_below(&rng, range);
        members[i] = name_of(numbers[i], bytes[i]);
    }
    return count;
}

static void change(const struct kv_key *k, struct model *m, unsigned range)
{
    struct kv_slice members[40];
    unsigned numbers[40];
    size_t count = some_names(range, members, numbers);
    struct kv_set s = open_set(k);
    uint64_t changed, want = 0;
    unsigned kind = (unsigned)kv_random_below(&rng, 8);
    if (kind < 4) {
        ck_assert_int_eq(kv_set_add(&s, members, count, &changed), KV_OK);
        for (size_t i = 0; i < count; i++) {
            if (model_has(m, numbers[i]))
                continue;
            want++;
            m->present[numbers[i]] = true;
            m->due[numbers[i]] = KV_NOT_DUE;
        }
        ck_assert_uint_eq(changed, want);
    } else if (kind < 6 && s.entry != NULL) {
        ck_assert_int_eq(kv_set_remove(&s, members, count, &changed), KV_OK);
        for (size_t i = 0; i < count; i++) {
            want += model_has(m, numbers[i]);
            m->present[numbers[i]] = false;
        }
        ck_assert_uint_eq(changed, want);
    } else if (s.entry != NULL && model_has(m, numbers[0]) && range > 100) {
        int64_t due = kv_random_below(&rng, 3) == 0
                          ? KV_NOT_DUE
                          : view.now_ms + 1 + (int64_t)kv_random_below(&rng, 50);
        ck_assert_int_eq(kv_set_set_due(&s, members[0], due), KV_OK);
        m->due[numbers[0]] = due;
    }
}

static void setup(void)
{
    kv_arena_init(&arena, 4096, KV_MEM_OTHER);
}

static void teardown(void)
{
    kv_arena_release(&arena);
}

/* Small limits make all changes of form happen; ranges of names decide how far a set gets. */
START_TEST(it_does_what_a_naive_set_does)
{
    static const uint64_t limits_of[][3] = {{512, 128, 64}, {8, 8, 64}, {8, 60, 20}, {0, 0, 0}};
    kv_random_init(&rng, unit_seed("set"));
    setup();
    for (size_t l = 0; l < KV_ARRAY_LEN(limits_of); l++) {
        struct kv_collection_limits limits = kv_collection_limits_default;
        limits.set_max_intset_entries = limits_of[l][0];
        limits.set_max_listpack_entries = limits_of[l][1];
        limits.set_max_listpack_value = limits_of[l][2];
        kv_store_set_limits(store, &limits);
        for (unsigned range = 3; range <= NAMES; range += 60) {
            static struct model m;
            struct kv_key k = key_of("set");
            memset(&m, 0, sizeof(m));
            for (int step = 0; step < 600; step++) {
                change(&k, &m, range);
                kv_arena_reset(&arena);
                view.now_ms += step % 7 == 0;
                if (step % 50 == 0) {
                    check_same(&k, &m);
                    kv_store_check(store);
                    assert_accounted();
                }
            }
            check_same(&k, &m);
            struct kv_entry *e = kv_store_write(&view, &k);
            if (e != NULL)
                kv_store_delete(&view, &k, e);
        }
    }
    teardown();
}
END_TEST

START_TEST(choices_are_different_members)
{
    kv_random_init(&rng, unit_seed("choices"));
    setup();
    for (unsigned total = 1; total <= NAMES; total += 37) {
        struct kv_key k = key_of("chosen");
        struct kv_set s = open_set(&k);
        uint64_t added;
        char buffer[200];
        for (unsigned i = 0; i < total; i++) {
            struct kv_slice name = name_of(i, buffer);
            ck_assert_int_eq(kv_set_add(&s, &name, 1, &added), KV_OK);
        }
        total = (unsigned)kv_set_count(s.entry, view.now_ms);
        for (size_t count = 1; count <= total; count += 1 + count / 2) {
            struct kv_slice *chosen;
            size_t chosen_count;
            ck_assert_int_eq(kv_set_choose(&s, count, &rng, &chosen, &chosen_count), KV_OK);
            ck_assert_uint_eq(chosen_count, count);
            for (size_t i = 0; i < count; i++) {
                ck_assert(kv_set_has(s.entry, chosen[i], view.now_ms));
                for (size_t j = 0; j < i; j++)
                    ck_assert(!kv_slice_equal(chosen[i], chosen[j]));
            }
            kv_arena_reset(&arena);
        }
        kv_store_delete(&view, &k, s.entry);
    }
    teardown();
}
END_TEST

START_TEST(more_members_fall_due_than_one_look_up_removes)
{
    kv_random_init(&rng, unit_seed("due"));
    setup();
    struct kv_key k = key_of("due");
    struct kv_set s = open_set(&k);
    char buffer[40], scratch[KV_INT_TEXT_MAX];
    uint64_t changed;
    struct kv_slice stay = KV_SLICE("stays"), gone = KV_SLICE("m5");
    ck_assert_int_eq(kv_set_add(&s, &stay, 1, &changed), KV_OK);
    for (unsigned i = 0; i < 2000; i++) {
        struct kv_slice name = kv_slice(buffer, (size_t)sprintf(buffer, "m%u", i));
        ck_assert_int_eq(kv_set_add(&s, &name, 1, &changed), KV_OK);
        ck_assert_int_eq(kv_set_set_due(&s, name, view.now_ms + 10), KV_OK);
    }
    view.now_ms += 10;
    ck_assert_uint_eq(kv_set_count(s.entry, view.now_ms), 1);
    struct kv_slice random = kv_set_random(s.entry, view.now_ms, &rng, scratch);
    ck_assert(kv_slice_equal(random, stay));
    ck_assert(!kv_set_has(s.entry, gone, view.now_ms));
    ck_assert_int_eq(kv_set_remove(&s, &gone, 1, &changed), KV_OK);
    ck_assert_uint_eq(changed, 0);
    ck_assert_int_eq(kv_set_add(&s, &gone, 1, &changed), KV_OK);
    ck_assert_uint_eq(changed, 1);
    ck_assert(kv_set_has(s.entry, gone, view.now_ms));
    for (int i = 0; i < 20; i++)
        s = open_set(&k);
    ck_assert_uint_eq(kv_entry_elements(s.entry), 2);
    kv_store_check(store);
    teardown();
}
END_TEST

#define STAYS 300

static void count_visit(struct kv_slice member, void *arg)
{
    unsigned *visits = arg;
    unsigned number = 0;
    if (member.ptr[0] != 's')
        return;
    for (size_t i = 1; i < member.len; i++)
        number = number * 10 + (unsigned)(member.ptr[i] - '0');
    visits[number]++;
}

/* Adds or removes members that are not asked about: enough to grow and shrink the table. */
static void disturb(struct kv_set *s, int round)
{
    uint64_t changed;
    char buffer[40];
    for (int i = 0; i < 60; i++) {
        unsigned number = (unsigned)kv_random_below(&rng, 4000);
        struct kv_slice name = kv_slice(buffer, (size_t)sprintf(buffer, "other%u", number));
        enum kv_err err = (round / 20) % 2 == 0 ? kv_set_add(s, &name, 1, &changed)
                                                : kv_set_remove(s, &name, 1, &changed);
        ck_assert_int_eq(err, KV_OK);
    }
}

START_TEST(a_scan_sees_what_stays_once)
{
    kv_random_init(&rng, unit_seed("scan"));
    setup();
    static char buffers[STAYS][40];
    static struct kv_slice all[STAYS];
    for (unsigned i = 0; i < STAYS; i++)
        all[i] = kv_slice(buffers[i], (size_t)sprintf(buffers[i], "s%u", i));
    struct kv_key k = key_of("scan");
    struct kv_set s = open_set(&k);
    uint64_t changed;
    ck_assert_int_eq(kv_set_add(&s, all, STAYS, &changed), KV_OK);
    for (int walk = 0; walk < 20; walk++) {
        unsigned visits[STAYS] = {0};
        uint64_t position = 0;
        int round = (int)kv_random_below(&rng, 40);
        do {
            disturb(&s, round++);
            position = kv_set_scan(s.entry, view.now_ms, position, 10, count_visit, visits);
        } while (position != 0);
        for (unsigned i = 0; i < STAYS; i++)
            ck_assert_uint_eq(visits[i], 1);
    }
    teardown();
}
END_TEST

/* --- the failure sweep --- */

#ifdef KV_DEBUG
struct sweep {
    struct kv_key key;
    struct kv_slice members[200];
    size_t count;
    int64_t due;
    enum { SWEEP_ADD, SWEEP_REMOVE, SWEEP_DUE, SWEEP_BUILD } kind;
};

static enum kv_err run(const struct sweep *w)
{
    struct kv_set s = open_set(&w->key);
    uint64_t changed;
    struct kv_set_builder b;
    switch (w->kind) {
    case SWEEP_ADD:
        return kv_set_add(&s, w->members, w->count, &changed);
    case SWEEP_REMOVE:
        return kv_set_remove(&s, w->members, w->count, &changed);
    case SWEEP_DUE:
        return kv_set_set_due(&s, w->members[0], w->due);
    default:
        break;
    }
    enum kv_err err = KV_OK;
    kv_set_builder_init(&b, &view, &arena);
    for (size_t i = 0; i < w->count && err == KV_OK; i++)
        err = kv_set_builder_add(&b, w->members[i]);
    if (err == KV_OK)
        err = kv_set_builder_store_take(&b, &w->key, &s.entry);
    kv_set_builder_release(&b);
    return err;
}

/* Each allocation fails once; what can be seen does not change before it succeeds. */
static void sweep(const struct sweep *w)
{
    uint8_t before[20], after[20];
    for (uint64_t n = 1;; n++) {
        kv_store_digest(&view, before);
        kv_arena_reset(&arena);
        kv_mem_fail_try(n);
        enum kv_err err = run(w);
        kv_mem_fail_try(0);
        kv_store_check(store);
        assert_accounted();
        if (err == KV_OK)
            return; /* maybe in spite of a failure: tables shrink when there is memory for it */
        ck_assert_int_eq(err, KV_ERR_NOMEM);
        kv_store_digest(&view, after);
        ck_assert_mem_eq(before, after, sizeof(before));
        ck_assert_uint_lt(n, 2000);
    }
}

static void sweep_members(struct sweep *w, unsigned first, unsigned count, const char *format)
{
    static char bytes[200][40];
    w->count = count;
    for (unsigned i = 0; i < count; i++)
        w->members[i] =
            kv_slice(bytes[i], (size_t)snprintf(bytes[i], sizeof(bytes[i]),
                                                format[0] == 'm' ? "m%u" : "%u", first + i));
}

START_TEST(a_failure_changes_nothing)
{
    setup();
    struct sweep w = {.key = key_of("sweep")};
    static const struct {
        unsigned first, count;
        const char *format;
        int kind;
    } steps[] = {
        {0, 20, "n", SWEEP_ADD},     {10, 30, "n", SWEEP_ADD},    {100000, 2, "n", SWEEP_ADD},
        {5, 10, "n", SWEEP_REMOVE},  {0, 3, "m", SWEEP_ADD},      {2, 40, "m", SWEEP_ADD},
        {7, 20, "m", SWEEP_REMOVE},  {1, 1, "m", SWEEP_DUE},      {30, 20, "m", SWEEP_ADD},
        {31, 1, "m", SWEEP_DUE},     {30, 10, "m", SWEEP_REMOVE}, {100, 120, "m", SWEEP_ADD},
        {101, 1, "m", SWEEP_DUE},    {300, 60, "m", SWEEP_ADD},   {100, 50, "m", SWEEP_REMOVE},
        {0, 50, "n", SWEEP_BUILD},   {0, 100, "m", SWEEP_BUILD},  {0, 190, "m", SWEEP_BUILD},
        {0, 190, "m", SWEEP_REMOVE},
    };
    for (size_t i = 0; i < KV_ARRAY_LEN(steps); i++) {
        sweep_members(&w, steps[i].first, steps[i].count, steps[i].format);
        w.kind = steps[i].kind;
        w.due = view.now_ms + 1000 - (int64_t)i;
        sweep(&w);
    }
    ck_assert_ptr_null(kv_store_peek(&view, &w.key));
    teardown();
}
END_TEST
#endif

int main(void)
{
    struct unit u;
    store_begin(&u, "set");
    unit_add(&u, it_does_what_a_naive_set_does);
    unit_add(&u, choices_are_different_members);
    unit_add(&u, more_members_fall_due_than_one_look_up_removes);
    unit_add(&u, a_scan_sees_what_stays_once);
#ifdef KV_DEBUG
    unit_add(&u, a_failure_changes_nothing);
#endif
    return unit_run(&u);
}
