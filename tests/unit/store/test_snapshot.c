/* store/snapshot.h: each entry of the moment is saved once, as it was then, whatever happens to the
 * keyspace between the slices of the walk. */
#include "fixture.h"
#include "store/snapshot.h"
#include <stdlib.h>

#define KEYS 400
#define DATABASES 3u

/* What a key held: nothing, or a digest of value and time to live. */
struct held {
    bool there;
    uint8_t digest[20];
    int64_t expiry;
};

static struct held moment[DATABASES][KEYS]; /* at kv_store_snapshot_begin */
static struct held saved[DATABASES][KEYS];
static uint64_t saved_count;

static struct kv_key number_key(unsigned i)
{
    static char text[2][32];
    static unsigned turn;
    char *to = text[++turn % 2]; /* two keys at a time */
    int len = sprintf(to, "key:%u", i);
    return kv_store_key(store, kv_slice(to, (size_t)len));
}

static struct held held_by(const struct kv_entry *e)
{
    struct held h = {.there = true, .expiry = kv_entry_expiry(e)};
    kv_entry_digest(e, h.digest);
    return h;
}

static void save(struct kv_view *v, uint32_t db, const struct kv_entry *e)
{
    struct kv_slice key = kv_entry_key(e);
    unsigned i = (unsigned)strtoul(key.ptr + 4, NULL, 10);
    ck_assert_ptr_eq(v, &view);
    ck_assert_uint_lt(db, DATABASES);
    ck_assert_uint_lt(i, KEYS);
    ck_assert(!saved[db][i].there);
    saved[db][i] = held_by(e);
    saved_count++;
}

static const struct kv_snapshot_hooks hooks = {.save = save};

static void note_moment(void)
{
    memset(moment, 0, sizeof(moment));
    memset(saved, 0, sizeof(saved));
    for (view.db = 0; view.db < DATABASES; view.db++) {
        for (unsigned i = 0; i < KEYS; i++) {
            struct kv_key k = number_key(i);
            struct kv_entry *e = kv_store_peek(&view, &k);
            if (e != NULL)
                moment[view.db][i] = held_by(e);
        }
    }
    view.db = 0;
}

static void set_random(struct kv_random *r, const struct kv_key *k)
{
    char value[1500];
    size_t len = kv_random_below(r, 8) == 0 ? 1500 : kv_random_below(r, 60);
    int64_t expiry = KV_NO_EXPIRY;
    memset(value, 'a' + (int)kv_random_below(r, 26), len);
    if (kv_random_below(r, 4) == 0)
        expiry = FIXTURE_NOW + 5 + (int64_t)kv_random_below(r, 100);
    ck_assert_int_eq(kv_store_set(&view, k, kv_slice(value, len), expiry, NULL), KV_OK);
}

static void expire_some(void)
{
    bool more;
    view.now_ms += 3;
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++)
        (void)kv_store_expire_shard(&view, shard, UINT64_MAX, &more);
}

/* One change of a random key, in every way that the store offers. */
static void change(struct kv_random *r)
{
    view.db = (uint32_t)kv_random_below(r, DATABASES);
    struct kv_key k = number_key((unsigned)kv_random_below(r, KEYS));
    struct kv_key other = number_key((unsigned)kv_random_below(r, KEYS));
    uint64_t kind = kv_random_below(r, 9);
    struct kv_entry *e = kind == 8 ? kv_store_peek(&view, &k) : kv_store_write(&view, &k);
    char *bytes;
    if (e == NULL || kind == 0) {
        set_random(r, &k);
    } else if (kind == 1) {
        kv_store_delete(&view, &k, e);
    } else if (kind == 2) {
        ck_assert_int_eq(kv_store_edit_string(&view, &k, e, 1 + kv_random_below(r, 50), &bytes),
                         KV_OK);
        bytes[0] = (char)('A' + kv_random_below(r, 26));
    } else if (kind == 3) {
        ck_assert_int_eq(kv_store_move(&view, &k, e, view.db, &other), KV_OK);
    } else if (kind == 4) {
        uint32_t db = (uint32_t)kv_random_below(r, DATABASES);
        ck_assert_int_eq(kv_store_move(&view, &k, e, db, &k), KV_OK);
    } else if (kind == 5) {
        uint32_t db = (uint32_t)kv_random_below(r, DATABASES);
        ck_assert_int_eq(kv_store_copy(&view, e, db, &other), KV_OK);
    } else if (kind == 6) {
        int64_t expiry = kv_random_below(r, 2) == 0 ? KV_NO_EXPIRY : FIXTURE_NOW + 50;
        ck_assert_int_eq(kv_store_set_expiry(&view, &k, &e, expiry), KV_OK);
    } else if (kind == 7) {
        expire_some();
    } else {
        kv_store_delete(&view, &k, e); /* after a look-up that changes nothing itself */
    }
}

/* A whole snapshot with `changes` changes after each slice. */
static void take(struct kv_random *r, unsigned changes)
{
    note_moment();
    saved_count = 0;
    kv_store_snapshot_begin(store, &hooks);
    ck_assert(kv_store_snapshot_active(store));
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        struct kv_snapshot_position p = {0};
        while (!kv_store_snapshot_shard(&view, shard, &p, 0))
            for (unsigned i = 0; i < changes; i++)
                change(r);
    }
    kv_store_snapshot_end(store, true);
    for (unsigned db = 0; db < DATABASES; db++)
        for (unsigned i = 0; i < KEYS; i++)
            ck_assert_int_eq(memcmp(&moment[db][i], &saved[db][i], sizeof(moment[db][i])), 0);
}

START_TEST(a_snapshot_holds_the_moment)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("snapshot"));
    for (unsigned i = 0; i < 2 * KEYS; i++)
        change(&r);
    for (unsigned round = 0; round < UNIT_ROUNDS(40); round++) {
        take(&r, round % 5);
        for (unsigned i = 0; i < 50; i++)
            change(&r);
    }
}
END_TEST

START_TEST(what_comes_after_the_moment_is_not_saved)
{
    must_set("key:1", "old", KV_NO_EXPIRY);
    note_moment();
    saved_count = 0;
    kv_store_snapshot_begin(store, &hooks);
    must_set("key:2", "new", KV_NO_EXPIRY);
    must_set("key:1", "changed", KV_NO_EXPIRY);
    ck_assert_uint_eq(saved_count, 1);
    must_set("key:1", "changed again", KV_NO_EXPIRY);
    for (uint32_t shard = 0; shard < FIXTURE_SHARDS; shard++) {
        struct kv_snapshot_position p = {0};
        ck_assert(kv_store_snapshot_shard(&view, shard, &p, UINT64_MAX));
    }
    ck_assert_uint_eq(saved_count, 1);
    kv_store_snapshot_end(store, true);
    must_set("key:1", "unseen", KV_NO_EXPIRY);
    ck_assert_uint_eq(saved_count, 1);
}
END_TEST

START_TEST(more_snapshots_are_given_up_than_there_are_epochs)
{
    struct kv_random r;
    kv_random_init(&r, unit_seed("given up"));
    for (unsigned i = 0; i < KEYS; i++)
        change(&r);
    for (unsigned round = 0; round < 600; round++) {
        note_moment();
        kv_store_snapshot_begin(store, &hooks);
        struct kv_snapshot_position p = {0};
        (void)kv_store_snapshot_shard(&view, round % FIXTURE_SHARDS, &p, 0);
        change(&r);
        kv_store_snapshot_end(store, false);
        if (round % 100 == 99)
            take(&r, 1);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    store_begin(&u, "snapshot");
    unit_add(&u, a_snapshot_holds_the_moment);
    unit_add(&u, what_comes_after_the_moment_is_not_saved);
    unit_add(&u, more_snapshots_are_given_up_than_there_are_epochs);
    return unit_run(&u);
}
