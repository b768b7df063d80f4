/* store/hash.h: a random series of changes beside a naive model in all forms; the failure sweep;
 * random fields and scans; names that come again. */
#include "fixture.h"
#include "store/hash.h"

#define NAMES 150
#define VALUE_MAX 120

static struct kv_arena arena;
static struct kv_random rng;

struct field {
    bool present;
    int64_t due;
    size_t len;
    char value[VALUE_MAX];
};

struct model {
    struct field fields[NAMES];
};

static void setup(void)
{
    store_setup();
    kv_arena_init(&arena, 4096, KV_MEM_OTHER);
}

static void teardown(void)
{
    kv_arena_release(&arena);
    store_teardown();
}

/* Texts and integers, a few of them long. */
static struct kv_slice name_of(unsigned i, char *buffer)
{
    int len = i % 3 == 0 ? sprintf(buffer, "%d", (int)i * (i % 2 == 0 ? 1 : -40000))
                         : sprintf(buffer, "field%u", i);
    if (i % 40 == 7) {
        memset(buffer + len, 'x', 70);
        len += 70;
    }
    return kv_slice(buffer, (size_t)len);
}

static size_t random_value(char *to)
{
    static const char *const numbers[] = {"0", "127", "128", "-4096", "70000", "4294967296", "-1"};
    if (kv_random_below(&rng, 3) == 0)
        return (size_t)sprintf(to, "%s", numbers[kv_random_below(&rng, KV_ARRAY_LEN(numbers))]);
    size_t len = kv_random_below(&rng, kv_random_below(&rng, 20) == 0 ? VALUE_MAX : 12);
    memset(to, 'a' + (int)kv_random_below(&rng, 26), len);
    return len;
}

static bool model_has(const struct model *m, unsigned i)
{
    const struct field *f = &m->fields[i];
    return f->present && (f->due == KV_NOT_DUE || f->due > view.now_ms);
}

/* --- comparing --- */

struct seen {
    const struct model *model;
    uint64_t count;
};

static void see(const struct kv_member *member, void *arg)
{
    struct seen *s = arg;
    char buffer[100];
    s->count++;
    for (unsigned i = 0; i < NAMES; i++) {
        const struct field *f = &s->model->fields[i];
        if (!model_has(s->model, i) || !kv_slice_equal(name_of(i, buffer), member->name))
            continue;
        ck_assert(kv_slice_equal(member->value, kv_slice(f->value, f->len)));
        ck_assert_int_eq(member->due, f->due);
        return;
    }
    ck_abort_msg("a field that should not be there");
}

static void check_random(const struct kv_hash *h, const struct model *m, uint64_t count)
{
    char scratch[2][KV_INT_TEXT_MAX];
    struct kv_member member;
    struct seen one = {m, 0};
    bool found = kv_hash_random(h, &rng, &member, scratch);
    ck_assert_int_eq(found, count != 0);
    if (found)
        see(&member, &one);
}

static void check_scan(const struct kv_hash *h, const struct model *m, uint64_t count)
{
    struct seen s = {m, 0};
    uint64_t position = 0;
    while (position != KV_TABLE_POSITION_END)
        position = kv_hash_scan(h, position, 7, see, &s);
    ck_assert_uint_eq(s.count, count);
}

static void check_same(const struct kv_entry *e, const struct model *m)
{
    struct kv_hash h;
    struct kv_hash_field found;
    char buffer[100];
    uint64_t count = 0;
    kv_hash_open(&h, &view, e);
    for (unsigned n = 0; n < 2 * NAMES; n++) {
        /* In order, then in any. */
        unsigned i = n < NAMES ? n : (unsigned)kv_random_below(&rng, NAMES);
        const struct field *f = &m->fields[i];
        count += n < NAMES && model_has(m, i);
        kv_hash_prefetch(&h, name_of(i, buffer));
        ck_assert_int_eq(kv_hash_find(&h, name_of(i, buffer), &found), model_has(m, i));
        if (!model_has(m, i))
            continue;
        ck_assert(kv_slice_equal(found.value, kv_slice(f->value, f->len)));
        ck_assert_int_eq(found.due, f->due);
    }
    ck_assert_uint_eq(kv_hash_count(&h), count);
    struct seen s = {m, 0};
    kv_hash_each(&h, see, &s);
    ck_assert_uint_eq(s.count, count);
    check_scan(&h, m, count);
    check_random(&h, m, count);
    if (e != NULL)
        kv_hash_check(e);
}

/* --- changing --- */

/* The fields of a command. */
struct line {
    unsigned numbers[80];
    char bytes[80][100];
    char values[80][VALUE_MAX];
    struct kv_slice words[160]; /* pairs */
    struct kv_slice names[80];
    size_t count;
};

static void random_line(struct line *l, unsigned range)
{
    unsigned first = (unsigned)kv_random_below(&rng, range);
    bool in_order = kv_random_below(&rng, 2) == 0;
    l->count = 1 + kv_random_below(&rng, kv_random_below(&rng, 6) == 0 ? 70 : 5);
    for (size_t i = 0; i < l->count; i++) {
        unsigned n =
            in_order ? (first + (unsigned)i) % range : (unsigned)kv_random_below(&rng, range);
        l->numbers[i] = n;
        l->names[i] = l->words[2 * i] = name_of(n, l->bytes[i]);
        l->words[2 * i + 1] = kv_slice(l->values[i], random_value(l->values[i]));
    }
}

static int64_t random_due(void)
{
    return view.now_ms + 1 + (int64_t)kv_random_below(&rng, 40);
}

/* Applies a line to the model; how many names count as new. */
static uint64_t model_set(struct model *m, const struct line *l, int64_t due)
{
    uint64_t created = 0;
    for (size_t i = 0; i < l->count; i++) {
        struct field *f = &m->fields[l->numbers[i]];
        bool had = model_has(m, l->numbers[i]);
        created += !had;
        f->due = due != KV_HASH_KEEP_DUE ? due : had ? f->due : KV_NOT_DUE;
        f->present = true;
        f->len = l->words[2 * i + 1].len;
        memcpy(f->value, l->values[i], f->len);
    }
    return created;
}

static void change_set(const struct kv_key *k, struct kv_entry **e, struct model *m, struct line *l,
                       bool dues)
{
    int64_t due = kv_random_below(&rng, 3) == 0 ? KV_HASH_KEEP_DUE : KV_NOT_DUE;
    struct kv_hash h;
    struct kv_hash_field found;
    size_t hint = 0;
    if (dues && kv_random_below(&rng, 4) == 0)
        due = random_due();
    if (l->count == 1 && kv_random_below(&rng, 2) == 0) {
        kv_hash_open(&h, &view, *e);
        kv_hash_find(&h, l->names[0], &found);
        hint = h.hint;
    }
    struct kv_hash_pairs p = {
        .words = l->words, .count = l->count, .due = due, .hint = hint, .arena = &arena};
    ck_assert_int_eq(kv_hash_set(&view, k, e, &p), KV_OK);
    ck_assert_uint_eq(p.done, l->count);
    ck_assert_uint_eq(p.created, model_set(m, l, due));
}

static void change_delete(const struct kv_key *k, struct kv_entry **e, struct model *m,
                          struct line *l)
{
    struct kv_hash_names n = {.names = l->names, .count = l->count, .arena = &arena};
    uint64_t want = 0;
    for (size_t i = 0; i < l->count; i++) {
        want += model_has(m, l->numbers[i]);
        if (model_has(m, l->numbers[i]))
            m->fields[l->numbers[i]].present = false;
    }
    ck_assert_int_eq(kv_hash_delete(&view, k, e, &n), KV_OK);
    ck_assert_uint_eq(n.done, want);
}

static void change_due(const struct kv_key *k, struct kv_entry **e, struct model *m, struct line *l)
{
    struct kv_hash_names n = {.names = l->names, .count = l->count, .arena = &arena};
    int64_t due = kv_random_below(&rng, 3) == 0 ? KV_NOT_DUE : random_due();
    for (size_t i = 0; i < l->count; i++)
        if (model_has(m, l->numbers[i]))
            m->fields[l->numbers[i]].due = due;
    ck_assert_int_eq(kv_hash_set_due(&view, k, e, &n, due), KV_OK);
}

static void change(const struct kv_key *k, struct model *m, unsigned range, bool dues)
{
    static struct line l;
    struct kv_entry *e = kv_store_write(&view, k);
    random_line(&l, range);
    /* Sometimes due fields are still there and must be hidden. */
    if (e != NULL && kv_random_below(&rng, 2) == 0)
        e = kv_hash_settle(&view, k, e);
    unsigned kind = (unsigned)kv_random_below(&rng, 8);
    if (kind < 5 || e == NULL)
        change_set(k, &e, m, &l, dues);
    else if (kind < 7 || !dues)
        change_delete(k, &e, m, &l);
    else
        change_due(k, &e, m, &l);
    ck_assert_ptr_eq(e, kv_store_peek(&view, k));
    kv_arena_reset(&arena);
}

static void run_model(const struct kv_collection_limits *limits, unsigned range, bool dues)
{
    static struct model m;
    struct kv_key k = key_of("hash");
    kv_store_set_limits(store, limits);
    memset(&m, 0, sizeof(m));
    for (int step = 0; step < UNIT_ROUNDS(500); step++) {
        change(&k, &m, range, dues);
        view.now_ms += step % 5 == 0;
        if (step % 40 == 0) {
            check_same(kv_store_peek(&view, &k), &m);
            kv_store_check(store);
            assert_accounted();
        }
    }
    check_same(kv_store_peek(&view, &k), &m);
    struct kv_entry *e = kv_store_write(&view, &k);
    if (e != NULL)
        kv_store_delete(&view, &k, e);
}

START_TEST(it_does_what_a_naive_hash_does)
{
    static const uint64_t limits_of[][2] = {{512, 512}, {512, 64}, {20, 64}, {5, 20}, {0, 64}};
    kv_random_init(&rng, unit_seed("hash"));
    for (size_t l = 0; l < KV_ARRAY_LEN(limits_of); l++) {
        struct kv_collection_limits limits = kv_collection_limits_default;
        limits.hash_max_listpack_entries = limits_of[l][0];
        limits.hash_max_listpack_value = limits_of[l][1];
        for (unsigned range = 2; range <= NAMES; range += 37) {
            run_model(&limits, range, false);
            run_model(&limits, range, true);
        }
    }
}
END_TEST

/* --- failing --- */

/* A command of a sweep: sets, deletes or dates the first `count` names of a prepared hash. */
struct attempt {
    enum { SET, DELETE, DATE } kind;
    unsigned first, count;
    size_t value_len;
    char fill; /* what the values consist of */
    int64_t due;
    bool large; /* what the hash is afterwards */
};

static enum kv_err run_attempt(const struct attempt *a, size_t *done)
{
    static char bytes[NAMES][100], value[VALUE_MAX];
    static struct kv_slice words[2 * NAMES], names[NAMES];
    struct kv_key k = key_of("hash");
    struct kv_entry *e = kv_store_peek(&view, &k);
    memset(value, a->fill, sizeof(value));
    for (unsigned i = 0; i < a->count; i++) {
        names[i] = words[2 * i] = name_of(a->first + i, bytes[i]);
        words[2 * i + 1] = kv_slice(value, a->value_len);
    }
    struct kv_hash_pairs p = {.words = words, .count = a->count, .due = a->due, .arena = &arena};
    struct kv_hash_names n = {.names = names, .count = a->count, .arena = &arena};
    enum kv_err err = a->kind == SET      ? kv_hash_set(&view, &k, &e, &p)
                      : a->kind == DELETE ? kv_hash_delete(&view, &k, &e, &n)
                                          : kv_hash_set_due(&view, &k, &e, &n, a->due);
    ck_assert_ptr_eq(e, kv_store_peek(&view, &k));
    *done = a->kind == SET ? p.done : n.done;
    kv_arena_reset(&arena);
    return err;
}

static void digest_of_hash(uint8_t digest[20])
{
    struct kv_entry *e = peek("hash");
    memset(digest, 0, 20);
    if (e != NULL)
        kv_entry_digest(e, digest);
}

/* Lets the first, second, third ... try allocation fail until none does. What a large hash has
 * taken until then stays; anything else is as it was. */
static void sweep(const struct attempt *a)
{
    uint8_t before[20], after[20];
    size_t done;
    for (uint64_t n = 1;; n++) {
        ck_assert_uint_lt(n, 500);
        bool large = peek("hash") != NULL && kv_entry_is_large(peek("hash"));
        digest_of_hash(before);
        kv_mem_fail_try(n);
        enum kv_err err = run_attempt(a, &done);
        kv_mem_fail_try(0);
        kv_store_check(store);
        assert_accounted();
        if (peek("hash") != NULL)
            kv_hash_check(peek("hash"));
        if (err == KV_OK)
            return;
        ck_assert_int_eq(err, KV_ERR_NOMEM);
        digest_of_hash(after);
        if (!large)
            ck_assert_uint_eq(done, 0);
        if (done == 0)
            ck_assert_mem_eq(before, after, sizeof(after));
    }
}

static const struct attempt attempts[] = {
    {SET, 0, 12, 5, 'a', KV_NOT_DUE, false},           /* a new hash */
    {SET, 3, 12, 5, 'b', KV_NOT_DUE, false},           /* fields that are there and new ones */
    {SET, 0, 15, 9, 'c', KV_HASH_KEEP_DUE, false},     /* other lengths */
    {SET, 2, 1, 30, 'd', KV_NOT_DUE, false},           /* one */
    {DATE, 0, 3, 0, 'e', FIXTURE_NOW + 1000, false},   /* the form with due times */
    {DATE, 2, 8, 0, 'f', FIXTURE_NOW + 500, false},    /* an earlier one */
    {SET, 5, 20, 3, 'g', FIXTURE_NOW + 2000, false},   /* new fields with due times */
    {SET, 0, 30, 6, 'h', KV_HASH_KEEP_DUE, false},     /* kept */
    {DATE, 0, 4, 0, 'i', KV_NOT_DUE, false},           /* taken away */
    {SET, 0, 120, 40, 'j', KV_NOT_DUE, false},         /* a block of its own */
    {DELETE, 10, 60, 0, 'k', 0, false},                /* and out of it */
    {SET, 30, 1, 110, 'l', KV_HASH_KEEP_DUE, true},    /* large, by a long value */
    {SET, 0, 140, 60, 'm', FIXTURE_NOW + 90000, true}, /* many of a large one */
    {DATE, 0, 100, 0, 'n', FIXTURE_NOW + 100, true},   /* likewise */
    {SET, 0, 140, 10, 'o', KV_NOT_DUE, true},
    {DELETE, 0, NAMES, 0, 'p', 0, false},
    {SET, 0, 3, 5, 'q', FIXTURE_NOW + 10, false}, /* a new hash with due times */
    {DELETE, 0, 2, 0, 'r', 0, false},
    {DELETE, 2, 1, 0, 's', 0, false},
    {SET, 0, 5, 110, 't', FIXTURE_NOW + 10, true}, /* a new large one */
    {DELETE, 0, 5, 0, 'u', 0, false},
};

START_TEST(a_change_without_memory_changes_nothing)
{
    struct kv_collection_limits limits = kv_collection_limits_default;
    limits.hash_max_listpack_value = 100;
    kv_store_set_limits(store, &limits);
    for (size_t i = 0; i < KV_ARRAY_LEN(attempts); i++) {
        sweep(&attempts[i]);
        struct kv_entry *e = peek("hash");
        if (e != NULL)
            ck_assert_int_eq(kv_entry_is_large(e), attempts[i].large);
    }
    ck_assert_ptr_null(peek("hash"));
}
END_TEST

/* --- details --- */

static void set_words(const char *key, const char *const *texts, size_t count, int64_t due)
{
    struct kv_key k = key_of(key);
    struct kv_entry *e = kv_store_write(&view, &k);
    struct kv_slice words[16];
    for (size_t i = 0; i < count; i++)
        words[i] = kv_slice_cstr(texts[i]);
    struct kv_hash_pairs p = {.words = words, .count = count / 2, .due = due, .arena = &arena};
    ck_assert_int_eq(kv_hash_set(&view, &k, &e, &p), KV_OK);
}

static void assert_field(const char *key, const char *name, const char *value)
{
    struct kv_hash h;
    struct kv_hash_field f;
    kv_hash_open(&h, &view, peek(key));
    ck_assert(kv_hash_find(&h, kv_slice_cstr(name), &f));
    ck_assert(kv_slice_equal(f.value, kv_slice_cstr(value)));
}

START_TEST(the_last_value_of_a_repeated_name_stays)
{
    static const char *const fresh[] = {"a", "1", "a", "22", "b", "3", "a", "333"};
    static const char *const known[] = {"b", "x", "c", "y", "b", "zzz", "c", "yy"};
    set_words("hash", fresh, 8, KV_NOT_DUE);
    assert_field("hash", "a", "333");
    assert_field("hash", "b", "3");
    set_words("hash", known, 8, KV_NOT_DUE);
    assert_field("hash", "b", "zzz");
    assert_field("hash", "c", "yy");
    kv_hash_check(peek("hash"));
}
END_TEST

START_TEST(names_that_look_alike_are_different)
{
    /* The same length, first, middle and last byte. */
    static const char *const alike[] = {"axbxc", "1", "aybyc", "2", "axbyc", "3", "aybxc", "4"};
    set_words("hash", alike, 8, KV_NOT_DUE);
    for (size_t i = 0; i < 8; i += 2)
        assert_field("hash", alike[i], alike[i + 1]);
    static const char *const numbers[] = {"7", "a", "07", "b", "-0", "c", "0", "d"};
    set_words("hash", numbers, 8, KV_NOT_DUE);
    for (size_t i = 0; i < 8; i += 2)
        assert_field("hash", numbers[i], numbers[i + 1]);
    kv_hash_check(peek("hash"));
}
END_TEST

START_TEST(first_names_tell_repeated_ones)
{
    static struct kv_slice words[400];
    static uint32_t first[200];
    static char bytes[200][8];
    kv_random_init(&rng, unit_seed("names"));
    for (int round = 0; round < 50; round++) {
        size_t count = 1 + kv_random_below(&rng, 200), range = 1 + kv_random_below(&rng, 300);
        for (size_t i = 0; i < count; i++)
            words[2 * i] = kv_slice(
                bytes[i], (size_t)sprintf(bytes[i], "%d", (int)kv_random_below(&rng, range)));
        ck_assert(kv_hash_first_names(words, count, 2, first, &arena));
        for (size_t i = 0; i < count; i++) {
            size_t want = 0;
            while (!kv_slice_equal(words[2 * want], words[2 * i]))
                want++;
            ck_assert_uint_eq(first[i], want);
        }
        kv_arena_reset(&arena);
    }
}
END_TEST

START_TEST(forms_follow_content)
{
    static const char *const small[] = {"a", "1", "b", "2"};
    set_words("hash", small, 4, KV_NOT_DUE);
    ck_assert_int_eq(kv_entry_encoding(peek("hash")), KV_ENC_LISTPACK);
    set_words("hash", small, 2, FIXTURE_NOW + 5);
    ck_assert_int_eq(kv_entry_encoding(peek("hash")), KV_ENC_LISTPACKEX);
    ck_assert_int_eq(kv_entry_member_due(peek("hash")), FIXTURE_NOW + 5);
    set_words("hash", small, 2, KV_NOT_DUE);
    ck_assert_int_eq(kv_entry_encoding(peek("hash")), KV_ENC_LISTPACKEX);
    set_words("other", small, 4, FIXTURE_NOW + 7);
    ck_assert_int_eq(kv_entry_encoding(peek("other")), KV_ENC_LISTPACKEX);
    ck_assert_int_eq(kv_entry_member_due(peek("other")), FIXTURE_NOW + 7);
}
END_TEST

START_TEST(a_lifetime_of_the_key_stays)
{
    static const char *const small[] = {"a", "1", "b", "2"};
    static const char *const grown[] = {"a", "a longer value", "c", "new"};
    struct kv_key k = key_of("hash");
    set_words("hash", small, 4, KV_NOT_DUE);
    struct kv_entry *e = peek("hash");
    ck_assert_int_eq(kv_store_set_expiry(&view, &k, &e, FIXTURE_NOW + 100), KV_OK);
    set_words("hash", grown, 4, FIXTURE_NOW + 50);
    ck_assert_int_eq(kv_entry_expiry(peek("hash")), FIXTURE_NOW + 100);
    struct kv_collection_limits limits = {0};
    kv_store_set_limits(store, &limits);
    set_words("hash", small, 4, KV_HASH_KEEP_DUE);
    ck_assert(kv_entry_is_large(peek("hash")));
    ck_assert_int_eq(kv_entry_expiry(peek("hash")), FIXTURE_NOW + 100);
    ck_assert_int_eq(kv_entry_member_due(peek("hash")), FIXTURE_NOW + 50);
}
END_TEST

int main(void)
{
    struct unit u;
    kv_mem_init();
    kv_clock_init();
    unit_begin(&u, "hash");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, it_does_what_a_naive_hash_does);
#ifdef KV_DEBUG
    unit_add(&u, a_change_without_memory_changes_nothing);
#endif
    unit_add(&u, the_last_value_of_a_repeated_name_stays);
    unit_add(&u, names_that_look_alike_are_different);
    unit_add(&u, first_names_tell_repeated_ones);
    unit_add(&u, forms_follow_content);
    unit_add(&u, a_lifetime_of_the_key_stays);
    return unit_run(&u);
}
