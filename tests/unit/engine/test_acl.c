/* engine/acl.c: what replacing all users does to the clients that refer to them. Rules and what
 * they permit are tested with the whole table (tests/unit/cmd/test_acl.c,
 * tests/server/test_acl.py). */
#include "engine/acl.h"
#include "fixture.h"

/* Rules of these words, which are separated by spaces. */
static struct kv_acl_rules *rules_of(const char *words)
{
    struct kv_arena arena;
    struct kv_acl_draft d;
    kv_arena_init(&arena, 1024, KV_MEM_CONFIG);
    ck_assert(kv_acl_draft_begin(&d, engine, &arena, NULL));
    for (size_t len; *words != '\0'; words += len + (words[len] == ' ')) {
        len = strcspn(words, " ");
        ck_assert_int_eq(kv_acl_draft_apply(&d, kv_slice(words, len)), KV_ACL_FINE);
    }
    struct kv_acl_rules *rules = kv_acl_draft_pack(&d);
    ck_assert_ptr_nonnull(rules);
    kv_arena_release(&arena);
    return rules;
}

/* A client of worker 0 that is user u, who may do everything. */
static struct kv_client *client_of_u(void)
{
    struct kv_client *c = client_new();
    struct kv_acl_rules *rules = rules_of("on nopass +@all ~* &*");
    ck_assert_int_eq(kv_acl_set_user_take(engine, KV_SLICE("u"), &rules, NULL), KV_OK);
    ck_assert(kv_acl_authenticate(c, engine->cmd_quit, KV_SLICE("u"), KV_SLICE("")));
    ck_assert_ptr_eq(c->user, kv_acl_find(engine, KV_SLICE("u")));
    return c;
}

START_TEST(the_default_user_is_replaced_in_its_place)
{
    struct kv_acl_set set = {0};
    start(1);
    struct kv_client *c = client_new(), *loads = client_new();
    loads->flags |= KV_CLIENT_APPLY; /* no change is told to it */
    struct kv_acl_rules *rules = rules_of("on >pw +get");
    ck_assert_int_eq(kv_acl_set_add_take(&set, KV_SLICE("default"), &rules), KV_OK);
    rules = rules_of("off");
    ck_assert_int_eq(kv_acl_set_add_take(&set, KV_SLICE("a"), &rules), KV_OK);
    ck_assert_int_eq(kv_acl_replace_take(engine, &set, NULL), KV_OK);
    ck_assert_uint_eq(kv_acl_user_count(engine), 2);
    ck_assert_ptr_eq(kv_acl_find(engine, KV_SLICE("default")), kv_acl_default_user(engine));
    ck_assert_ptr_eq(loads->user, kv_acl_default_user(engine));
    ck_assert_ptr_eq(c->user, kv_acl_default_user(engine));
    ck_assert_uint_eq(c->user->rules->password_count, 1);
    ck_assert(c->flags & KV_CLIENT_RESTRICTED);
    ck_assert(c->flags & KV_CLIENT_AUTHENTICATED);
    ck_assert(!kv_acl_open(engine));
    kv_client_destroy(loads);
    kv_client_destroy(c);
}
END_TEST

START_TEST(who_is_ended_by_new_users_is_nobody)
{
    struct kv_acl_set set = {0};
    start(1);
    struct kv_client *asks = client_of_u(), *other = client_of_u();
    ck_assert_int_eq(kv_acl_replace_take(engine, &set, asks), KV_OK);
    ck_assert(kv_acl_open(engine));
    ck_assert_ptr_eq(asks->user, kv_acl_default_user(engine));
    ck_assert(asks->flags & KV_CLIENT_CLOSE_AFTER);
    ck_assert(!(asks->flags & (KV_CLIENT_AUTHENTICATED | KV_CLIENT_OPENED)));
    ck_assert(other->flags & KV_CLIENT_CLOSE_NOW);
    ck_assert(!(other->flags & (KV_CLIENT_AUTHENTICATED | KV_CLIENT_OPENED)));
    kv_client_destroy(asks);
    kv_client_destroy(other);
}
END_TEST

int main(void)
{
    struct unit u;
    engine_begin(&u, "acl");
    unit_add(&u, the_default_user_is_replaced_in_its_place);
    unit_add(&u, who_is_ended_by_new_users_is_nobody);
    return unit_run(&u);
}
