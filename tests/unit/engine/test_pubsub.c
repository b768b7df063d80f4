/* engine/pubsub.h and engine/delivery.h: who gets what, exactly, with deliveries underway between
 * two workers; failures leave nothing. */
#include "fixture.h"

static struct kv_client *on(struct kv_worker *w)
{
    struct kv_worker *before = kv_this_worker;
    kv_this_worker = w;
    struct kv_client *c = kv_client_create_virtual(w);
    kv_this_worker = before;
    return c;
}

static void end(struct kv_client *c)
{
    struct kv_worker *before = kv_this_worker;
    kv_this_worker = c->worker;
    kv_client_destroy(c);
    kv_this_worker = before;
}

static bool subscribe(struct kv_client *c, enum kv_channel_kind kind, const char *name)
{
    struct kv_worker *before = kv_this_worker;
    bool added;
    kv_this_worker = c->worker;
    ck_assert_int_eq(kv_pubsub_subscribe(c, kind, kv_slice_cstr(name), &added), KV_OK);
    kv_this_worker = before;
    return added;
}

static bool unsubscribe(struct kv_client *c, enum kv_channel_kind kind, const char *name)
{
    struct kv_worker *before = kv_this_worker;
    kv_this_worker = c->worker;
    bool was = kv_pubsub_unsubscribe(c, kind, kv_slice_cstr(name));
    kv_this_worker = before;
    return was;
}

static uint64_t publish(struct kv_worker *w, const char *channel, const char *text)
{
    uint64_t receivers;
    ck_assert_int_eq(kv_pubsub_publish(w, KV_CHANNEL_PLAIN, kv_slice_cstr(channel),
                                       kv_slice_cstr(text), &receivers),
                     KV_OK);
    return receivers;
}

START_TEST(a_message_waits_in_the_mailbox_of_the_other_worker)
{
    start(2);
    struct kv_client *near = on(w0), *far = on(w1);
    ck_assert(subscribe(near, KV_CHANNEL_PLAIN, "c"));
    ck_assert(subscribe(far, KV_CHANNEL_PLAIN, "c"));
    ck_assert(!subscribe(far, KV_CHANNEL_PLAIN, "c"));
    ck_assert_uint_eq(publish(w0, "c", "x"), 2);
    ck_assert_uint_eq(publish(w0, "d", "x"), 0);
    assert_answered(near, "");
    assert_answered(far, "");
    ck_assert(kv_delivery_pending(w1));
    poll_worker(w1);
    assert_answered(near, "");
    assert_answered(far, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
    poll_worker(w0);
    assert_answered(near, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
    end(near);
    ck_assert_uint_eq(kv_pubsub_channel_count(engine, KV_CHANNEL_PLAIN), 1);
    end(far);
    ck_assert_uint_eq(kv_pubsub_channel_count(engine, KV_CHANNEL_PLAIN), 0);
}
END_TEST

START_TEST(who_unsubscribes_gets_what_was_published_before)
{
    start(2);
    struct kv_client *c = on(w1);
    subscribe(c, KV_CHANNEL_PLAIN, "c");
    publish(w0, "c", "x");
    ck_assert(unsubscribe(c, KV_CHANNEL_PLAIN, "c"));
    ck_assert(!unsubscribe(c, KV_CHANNEL_PLAIN, "c"));
    assert_answered(c, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
    ck_assert(!kv_delivery_pending(w1));
    ck_assert_ptr_null(c->subscriber);
    end(c);
}
END_TEST

START_TEST(who_subscribes_gets_nothing_of_before)
{
    start(2);
    struct kv_client *old = on(w1), *fresh = on(w1);
    subscribe(old, KV_CHANNEL_PATTERN, "?");
    publish(w0, "c", "x");
    subscribe(fresh, KV_CHANNEL_PATTERN, "?");
    publish(w0, "c", "y");
    poll_worker(w1);
    assert_answered(old, "*4\r\n$8\r\npmessage\r\n$1\r\n?\r\n$1\r\nc\r\n$1\r\nx\r\n"
                         "*4\r\n$8\r\npmessage\r\n$1\r\n?\r\n$1\r\nc\r\n$1\r\ny\r\n");
    assert_answered(fresh, "*4\r\n$8\r\npmessage\r\n$1\r\n?\r\n$1\r\nc\r\n$1\r\ny\r\n");
    end(old);
    end(fresh);
}
END_TEST

START_TEST(a_client_that_ends_may_have_deliveries_underway)
{
    start(2);
    struct kv_client *c = on(w1), *other = on(w1);
    subscribe(c, KV_CHANNEL_PLAIN, "c");
    subscribe(c, KV_CHANNEL_PATTERN, "*");
    subscribe(other, KV_CHANNEL_PLAIN, "c");
    ck_assert_uint_eq(publish(w0, "c", "x"), 3);
    end(c);
    assert_answered(other, "*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
    ck_assert_uint_eq(publish(w0, "c", "y"), 1);
    end(other);
    ck_assert(!kv_delivery_pending(w1));
}
END_TEST

START_TEST(what_comes_for_a_framed_client_is_held_back)
{
    start(1);
    struct kv_client *c = on(w0);
    subscribe(c, KV_CHANNEL_PLAIN, "c");
    kv_delivery_frame(c);
    publish(w0, "c", "x");
    kv_delivery_drain(w0);
    kv_reply_ok(&c->out);
    kv_delivery_unframe(c);
    assert_answered(c, "+OK\r\n*3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\nx\r\n");
    end(c);
}
END_TEST

START_TEST(without_memory_nothing_changes)
{
    start(2);
    struct kv_client *c = on(w0);
    int64_t before = kv_mem_used_total();
    bool added;
    uint64_t fails = 0;
    for (;; fails++) {
        kv_mem_fail_try(fails + 1);
        enum kv_err err = kv_pubsub_subscribe(c, KV_CHANNEL_PLAIN, KV_SLICE("c"), &added);
        kv_mem_fail_try(0);
        if (err == KV_OK)
            break;
        ck_assert(!added);
        ck_assert_ptr_null(c->subscriber);
        ck_assert_uint_eq(kv_pubsub_channel_count(engine, KV_CHANNEL_PLAIN), 0);
        ck_assert_int_eq(kv_mem_used_total(), before);
    }
    ck_assert(added);
    if (KV_DEBUG)
        ck_assert_uint_ge(fails, 5);
    kv_pubsub_forget(c);
    ck_assert_int_eq(kv_mem_used_total(), before);
    end(c);
}
END_TEST

/* A seeded run of all operations by clients of two workers against a table of who is subscribed to
 * what. */
#define CLIENTS 6
#define NAMES 5

static bool model[CLIENTS][KV_CHANNEL_KINDS][NAMES];

static uint64_t expected(int name)
{
    uint64_t sum = 0;
    for (int i = 0; i < CLIENTS; i++) {
        sum += model[i][KV_CHANNEL_PLAIN][name];
        /* Patterns are names as well, and the last one fits all. */
        sum += model[i][KV_CHANNEL_PATTERN][name];
        if (name != NAMES - 1)
            sum += model[i][KV_CHANNEL_PATTERN][NAMES - 1];
    }
    return sum;
}

START_TEST(random_operations_agree_with_a_table)
{
    static const char *const names[NAMES] = {"a", "b", "bb", "a-longer-name-of-a-channel", "*"};
    struct kv_client *clients[CLIENTS];
    struct kv_random r;
    start(2);
    kv_random_init(&r, unit_seed("random_operations_agree_with_a_table"));
    memset(model, 0, sizeof(model));
    for (int i = 0; i < CLIENTS; i++)
        clients[i] = on(i % 2 == 0 ? w0 : w1);
    for (int round = UNIT_ROUNDS(20000); round > 0; round--) {
        uint64_t n = kv_random_next(&r);
        int i = (int)(n % CLIENTS), name = (int)(n / 16 % NAMES);
        enum kv_channel_kind kind = (enum kv_channel_kind)(n / 256 % KV_CHANNEL_KINDS);
        bool *entry = &model[i][kind][name];
        switch (n / 4096 % 8) {
        case 0:
        case 1:
            ck_assert_int_eq(subscribe(clients[i], kind, names[name]), !*entry);
            *entry = true;
            break;
        case 2:
            ck_assert_int_eq(unsubscribe(clients[i], kind, names[name]), *entry);
            *entry = false;
            break;
        case 3:
            poll_worker(i % 2 == 0 ? w0 : w1);
            library_clear(&reply);
            library_take(clients[i], &reply);
            break;
        case 4:
            if (n / 65536 % 16 != 0)
                break;
            end(clients[i]);
            clients[i] = on(i % 2 == 0 ? w0 : w1);
            memset(model[i], 0, sizeof(model[i]));
            break;
        default:
            ck_assert_uint_eq(publish(i % 2 == 0 ? w0 : w1, names[name], "text"), expected(name));
        }
    }
    for (int i = 0; i < CLIENTS; i++)
        end(clients[i]);
    for (int kind = 0; kind < KV_CHANNEL_KINDS; kind++)
        ck_assert_uint_eq(kv_pubsub_channel_count(engine, (enum kv_channel_kind)kind), 0);
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "pubsub");
    unit_add(&u, a_message_waits_in_the_mailbox_of_the_other_worker);
    unit_add(&u, who_unsubscribes_gets_what_was_published_before);
    unit_add(&u, who_subscribes_gets_nothing_of_before);
    unit_add(&u, a_client_that_ends_may_have_deliveries_underway);
    unit_add(&u, what_comes_for_a_framed_client_is_held_back);
    unit_add(&u, without_memory_nothing_changes);
    unit_add(&u, random_operations_agree_with_a_table);
    return unit_run(&u);
}
