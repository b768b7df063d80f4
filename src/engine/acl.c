/* Users: the sorted list of them, and what a change of it does to connections.
 *
 * A connection has a pointer to its user and the flag KV_CLIENT_RESTRICTED, which says that the
 * user may not do everything. Whoever changes users stands alone, so all connections are walked
 * over and brought up to date at once: a few microseconds per thousand, for an administrator's
 * command.
 *
 * A connection whose user is deleted is closed. Until then it is the default user's and not
 * authenticated, so that no pointer to what is gone is left, whatever still runs. The default user
 * itself is one structure from the beginning to the end, which is given other rules: clients of the
 * server's own, whom no change is told to, may refer to it.
 *
 * Passwords are kept as SHA-256. What a client sends is hashed whoever it claims to be, and
 * compared with all of the user's, in a time that does not depend on them.
 *
 * Rejected: a hash table of users (there are few, and lists are sorted); counting references.
 */
#include "engine/acl.h"

#include "base/assert.h"
#include "engine/pubsub.h"
#include "engine/worker.h"
#include <string.h>

#define DEFAULT_NAME KV_SLICE("default")
#define ARENA_BYTES 2048

/* --- sets of users --- */

static uint32_t place_of(const struct kv_acl_set *s, struct kv_slice name, bool *found)
{
    uint32_t low = 0, high = s->count;
    *found = false;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        int order = kv_slice_compare(name, s->users[middle]->name);
        if (order == 0) {
            *found = true;
            return middle;
        }
        if (order < 0)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static struct kv_user *find(const struct kv_acl_set *s, struct kv_slice name)
{
    bool found;
    uint32_t at = place_of(s, name, &found);
    return found ? s->users[at] : NULL;
}

static void free_user(struct kv_user *u)
{
    kv_acl_rules_release(u->rules);
    kv_mem_free(u, u->block_size, KV_MEM_CONFIG);
}

void kv_acl_set_release(struct kv_acl_set *s)
{
    for (uint32_t i = 0; i < s->count; i++)
        free_user(s->users[i]);
    kv_mem_free(s->users, s->capacity * sizeof(struct kv_user *), KV_MEM_CONFIG);
    *s = (struct kv_acl_set){0};
}

enum kv_err kv_acl_set_add_take(struct kv_acl_set *s, struct kv_slice name,
                                struct kv_acl_rules **rules)
{
    bool found;
    uint32_t at = place_of(s, name, &found);
    if (found)
        return KV_ERR_EXISTS;
    if (s->count == s->capacity) {
        uint32_t capacity = s->capacity == 0 ? 4 : s->capacity * 2;
        struct kv_user **users =
            kv_mem_try_realloc(s->users, s->capacity * sizeof(struct kv_user *),
                               capacity * sizeof(struct kv_user *), KV_MEM_CONFIG);
        if (users == NULL)
            return KV_ERR_NOMEM;
        s->users = users;
        s->capacity = capacity;
    }
    size_t size = sizeof(struct kv_user) + name.len + 1;
    struct kv_user *u = kv_mem_try_alloc(size, KV_MEM_CONFIG);
    if (u == NULL)
        return KV_ERR_NOMEM;
    char *text = (char *)(u + 1);
    if (name.len > 0)
        memcpy(text, name.ptr, name.len);
    text[name.len] = '\0';
    *u = (struct kv_user){*rules, kv_slice(text, name.len), size};
    *rules = NULL;
    memmove(&s->users[at + 1], &s->users[at], (s->count - at) * sizeof(struct kv_user *));
    s->users[at] = u;
    s->count++;
    return KV_OK;
}

/* --- looking --- */

struct kv_user *kv_acl_find(const struct kv_engine *e, struct kv_slice name)
{
    return find(&e->acl.set, name);
}

uint32_t kv_acl_user_index(const struct kv_engine *e, struct kv_slice name)
{
    bool found;
    uint32_t at = place_of(&e->acl.set, name, &found);
    return found ? at : e->acl.set.count;
}

struct kv_user *kv_acl_default_user(const struct kv_engine *e)
{
    return e->acl.default_user;
}

uint32_t kv_acl_user_count(const struct kv_engine *e)
{
    return e->acl.set.count;
}

struct kv_user *kv_acl_user(const struct kv_engine *e, uint32_t index)
{
    KV_ASSERT(index < e->acl.set.count);
    return e->acl.set.users[index];
}

bool kv_acl_open(const struct kv_engine *e)
{
    return e->acl.open;
}

/* --- clients --- */

static void set_user(struct kv_client *c, struct kv_user *u)
{
    c->user = u;
    c->flags &= ~(uint32_t)KV_CLIENT_RESTRICTED;
    if (!u->rules->everything)
        c->flags |= KV_CLIENT_RESTRICTED;
}

void kv_acl_reset_client(struct kv_client *c)
{
    const struct kv_acl *acl = &c->worker->engine->acl;
    c->flags &= ~(uint32_t)(KV_CLIENT_AUTHENTICATED | KV_CLIENT_OPENED);
    if (acl->open)
        c->flags |= KV_CLIENT_AUTHENTICATED;
    set_user(c, acl->default_user);
}

static bool password_fits(const struct kv_acl_rules *r, struct kv_slice password)
{
    uint8_t hash[KV_SHA256_BYTES];
    bool fits = false;
    kv_sha256(password, hash);
    for (uint32_t i = 0; i < r->password_count; i++)
        fits |= kv_sha256_equal(r->passwords[i], hash);
    return fits;
}

bool kv_acl_authenticate(struct kv_client *c, const struct kv_command *cmd, struct kv_slice name,
                         struct kv_slice password)
{
    struct kv_user *u = kv_acl_find(c->worker->engine, name);
    const struct kv_acl_rules *rules = (u != NULL ? u : c->worker->engine->acl.default_user)->rules;
    bool fits = password_fits(rules, password); /* hashed for a name that nobody has, too */
    if (u != NULL && rules->flags & KV_ACL_ON && (rules->flags & KV_ACL_NOPASS || fits)) {
        c->flags |= KV_CLIENT_AUTHENTICATED;
        c->flags &= ~(uint32_t)KV_CLIENT_OPENED;
        set_user(c, u);
        return true;
    }
    char object[16];
    size_t len = KV_MIN(strlen(cmd->name), sizeof(object));
    for (size_t i = 0; i < len; i++)
        object[i] = (char)(cmd->name[i] - ('a' - 'A'));
    kv_acl_log_add(c, cmd, KV_ACL_BY_AUTH,
                   c->flags & KV_CLIENT_MULTI ? KV_ACL_MULTI : KV_ACL_TOPLEVEL,
                   kv_slice(object, len), name);
    return false;
}

/* --- changes --- */

struct change {
    struct kv_client *by; /* who asked, or NULL */
    const struct kv_user *user;
    const struct kv_acl_set *next; /* what replaces all, or NULL */
    bool open;
};

/* The connection ends: its user is gone, or it has what the user may not have any more. */
static void end_client(struct kv_client *c, const struct change *change)
{
    c->flags &= ~(uint32_t)(KV_CLIENT_AUTHENTICATED | KV_CLIENT_OPENED);
    set_user(c, c->worker->engine->acl.default_user);
    kv_blocking_end(c);
    if (c == change->by)
        c->flags |= KV_CLIENT_CLOSE_AFTER;
    else
        kv_client_close_soon(c);
}

/* Who need not authenticate any more, or has to because nobody need not any more. */
static void apply_open(struct kv_client *c, bool open)
{
    if (open && !(c->flags & KV_CLIENT_AUTHENTICATED)) {
        c->flags |= KV_CLIENT_AUTHENTICATED | KV_CLIENT_OPENED;
    } else if (!open && c->flags & KV_CLIENT_OPENED) {
        c->flags &= ~(uint32_t)(KV_CLIENT_AUTHENTICATED | KV_CLIENT_OPENED);
    }
}

static bool may_subscribe(const struct kv_acl_rules *r, struct kv_slice name, bool pattern)
{
    for (uint32_t i = 0; i < r->selector_count; i++)
        if (kv_acl_selector_has_channel(&r->selectors[i], name, pattern))
            return true;
    return false;
}

struct subscription_check {
    const struct kv_acl_rules *rules;
    bool pattern, denied;
};

static void check_subscription(void *arg, struct kv_slice name)
{
    struct subscription_check *check = arg;
    if (!check->denied)
        check->denied = !may_subscribe(check->rules, name, check->pattern);
}

static bool may_keep_subscriptions(const struct kv_client *c)
{
    struct subscription_check check = {.rules = c->user->rules};
    if (c->subscriber == NULL || !(c->flags & KV_CLIENT_RESTRICTED))
        return true;
    for (int kind = 0; kind < KV_CHANNEL_KINDS; kind++) {
        check.pattern = kind == KV_CHANNEL_PATTERN;
        kv_pubsub_each_own(c, (enum kv_channel_kind)kind, check_subscription, &check);
    }
    return !check.denied;
}

/* What goes on has to be permitted by the user's rules of now: subscriptions, a blocked command. */
static void apply_rules(struct kv_client *c, const struct change *change, struct kv_user *u)
{
    set_user(c, u);
    if (may_keep_subscriptions(c))
        kv_blocking_recheck(c);
    else
        end_client(c, change);
}

static void on_new_rules(struct kv_client *c, void *arg)
{
    const struct change *change = arg;
    if (change->user == c->worker->engine->acl.default_user)
        apply_open(c, change->open);
    if (c->user == change->user)
        apply_rules(c, change, c->user);
}

static bool is_open(const struct kv_user *u)
{
    const uint32_t both = KV_ACL_ON | KV_ACL_NOPASS;
    return (u->rules->flags & both) == both;
}

enum kv_err kv_acl_set_user_take(struct kv_engine *e, struct kv_slice name,
                                 struct kv_acl_rules **rules, struct kv_client *by)
{
    struct kv_acl *acl = &e->acl;
    struct kv_user *u = find(&acl->set, name);
    if (u == NULL)
        return kv_acl_set_add_take(&acl->set, name, rules);
    kv_acl_rules_release(u->rules);
    u->rules = *rules;
    *rules = NULL;
    if (u == acl->default_user)
        acl->open = is_open(u);
    struct change change = {.by = by, .user = u, .open = acl->open};
    kv_engine_each_client(e, on_new_rules, &change);
    return KV_OK;
}

static void on_deleted(struct kv_client *c, void *arg)
{
    const struct change *change = arg;
    if (c->user == change->user)
        end_client(c, change);
}

void kv_acl_delete_user(struct kv_engine *e, struct kv_user *u, struct kv_client *by)
{
    struct kv_acl_set *s = &e->acl.set;
    KV_ASSERT(u != e->acl.default_user);
    bool found;
    uint32_t at = place_of(s, u->name, &found);
    KV_ASSERT(found && s->users[at] == u);
    struct change change = {.by = by, .user = u};
    kv_engine_each_client(e, on_deleted, &change);
    s->count--;
    memmove(&s->users[at], &s->users[at + 1], (s->count - at) * sizeof(struct kv_user *));
    free_user(u);
}

static void on_replaced(struct kv_client *c, void *arg)
{
    const struct change *change = arg;
    struct kv_user *old = c->user;
    struct kv_user *next = find(change->next, old->name);
    apply_open(c, change->open); /* before: who is ended stays nobody */
    if (old == next || (next != NULL && kv_acl_rules_equal(old->rules, next->rules)))
        apply_rules(c, change, next);
    else
        end_client(c, change);
}

/* Rules of a default user that nobody has said anything about; NULL: no memory. */
static struct kv_acl_rules *initial_rules(const struct kv_engine *e)
{
    static const char *const words[] = {"on", "nopass", "~*", "&*", "+@all"};
    struct kv_acl_rules *rules = NULL;
    struct kv_acl_draft d;
    struct kv_arena arena;
    kv_arena_init(&arena, ARENA_BYTES, KV_MEM_CONFIG);
    bool fine = kv_acl_draft_begin(&d, e, &arena, NULL);
    for (size_t i = 0; fine && i < KV_ARRAY_LEN(words); i++)
        fine = kv_acl_draft_apply(&d, kv_slice_cstr(words[i])) == KV_ACL_FINE;
    if (fine)
        rules = kv_acl_draft_pack(&d);
    kv_arena_release(&arena);
    return rules;
}

/* The default user goes over into the set that is to come, with the rules that it has there; its
 * namesake goes the other way, with those so far. */
static void exchange_default(struct kv_acl *acl, struct kv_acl_set *next)
{
    bool found, found_next;
    struct kv_user **from = &acl->set.users[place_of(&acl->set, DEFAULT_NAME, &found)];
    struct kv_user **to = &next->users[place_of(next, DEFAULT_NAME, &found_next)];
    KV_ASSERT(found && found_next && *from == acl->default_user);
    struct kv_user *namesake = *to;
    struct kv_acl_rules *rules = namesake->rules;
    namesake->rules = acl->default_user->rules;
    acl->default_user->rules = rules;
    *to = acl->default_user;
    *from = namesake;
}

enum kv_err kv_acl_replace_take(struct kv_engine *e, struct kv_acl_set *s, struct kv_client *by)
{
    struct kv_acl *acl = &e->acl;
    if (find(s, DEFAULT_NAME) == NULL) {
        struct kv_acl_rules *rules = initial_rules(e);
        if (rules == NULL)
            return KV_ERR_NOMEM;
        if (kv_acl_set_add_take(s, DEFAULT_NAME, &rules) != KV_OK) {
            kv_acl_rules_release(rules);
            return KV_ERR_NOMEM;
        }
    }
    exchange_default(acl, s);
    struct change change = {.by = by, .next = s, .open = is_open(acl->default_user)};
    kv_engine_each_client(e, on_replaced, &change);
    kv_acl_set_release(&acl->set);
    acl->set = *s;
    acl->open = change.open;
    *s = (struct kv_acl_set){0};
    return KV_OK;
}

struct kv_acl_rules *kv_acl_password_rules(const struct kv_engine *e, struct kv_slice password)
{
    struct kv_acl_rules *rules = NULL;
    struct kv_acl_draft d;
    struct kv_arena arena;
    kv_arena_init(&arena, ARENA_BYTES, KV_MEM_CONFIG);
    bool fine = kv_acl_draft_begin(&d, e, &arena, e->acl.default_user->rules);
    char *word = fine ? kv_arena_try_alloc(&arena, password.len + 1) : NULL;
    if (word != NULL) {
        word[0] = '>';
        if (password.len > 0)
            memcpy(word + 1, password.ptr, password.len);
        struct kv_slice last =
            password.len == 0 ? KV_SLICE("nopass") : kv_slice(word, password.len + 1);
        if (kv_acl_draft_apply(&d, KV_SLICE("resetpass")) == KV_ACL_FINE &&
            kv_acl_draft_apply(&d, last) == KV_ACL_FINE)
            rules = kv_acl_draft_pack(&d);
    }
    kv_arena_release(&arena);
    return rules;
}

/* --- life cycle --- */

void kv_acl_init(struct kv_engine *e)
{
    struct kv_acl *acl = &e->acl;
    kv_acl_log_init(&acl->log);
    struct kv_acl_rules *rules = initial_rules(e);
    if (rules == NULL || kv_acl_set_add_take(&acl->set, DEFAULT_NAME, &rules) != KV_OK)
        kv_panic("no memory for the default user");
    acl->default_user = find(&acl->set, DEFAULT_NAME);
    if (e->options.requirepass[0] != '\0') {
        rules = kv_acl_password_rules(e, kv_slice_cstr(e->options.requirepass));
        if (rules == NULL)
            kv_panic("no memory for the default user");
        kv_acl_rules_release(acl->default_user->rules);
        acl->default_user->rules = rules;
    }
    acl->open = is_open(acl->default_user);
}

void kv_acl_release(struct kv_engine *e)
{
    kv_acl_set_release(&e->acl.set);
    kv_acl_log_release(&e->acl.log);
}
