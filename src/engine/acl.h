/* Users and what they may do.
 *
 * Terms
 *   user       a name, and rules; exists from SETUSER or the configuration to DELUSER. The user
 *              "default" always exists: connections begin as it
 *   rules      flags, passwords and selectors of a user: one block that never changes; a change
 *              makes another block
 *   selector   commands, keys and channels that belong together. The first is the user's own (the
 *              root), the others were written in parentheses. One of them has to allow all of a
 *              command line
 *   draft      rules being made: words applied one after the other to a copy
 *
 * Life cycle of a change: kv_acl_draft_begin with the rules so far, kv_acl_draft_apply for each
 * word, kv_acl_draft_pack, kv_acl_set_user. Before the last step nobody has seen anything, so
 * whatever fails changes nothing.
 *
 * Threads. Users are changed by whoever is in KV_MODE_STOP (or before workers run) and read by any
 * worker at any other time: while a command runs nobody changes them. Clients refer to users;
 * deleting one walks over all clients.
 *
 * Cost. A client whose user may do everything has no flag KV_CLIENT_RESTRICTED and is checked no
 * further; any other is checked at each command, and a batch of its commands before it takes locks.
 *
 * The words are those of Redis' documentation (on, >password, ~pattern, +command ...).
 */
#ifndef KV_ENGINE_ACL_H
#define KV_ENGINE_ACL_H

#include "base/err.h"
#include "base/sha256.h"
#include "engine/acl_log.h"
#include "engine/client.h"
#include "engine/command.h"

struct kv_engine;

/* --- rules; read-only for everybody --- */

enum kv_acl_permissions { KV_ACL_READ = 1, KV_ACL_WRITE = 2 };

struct kv_acl_pattern {
    struct kv_slice text;
    uint8_t permissions; /* enum kv_acl_permissions; never 0 */
};

enum kv_acl_entry_kind { KV_ACL_CATEGORY, KV_ACL_COMMAND, KV_ACL_FIRST_ARG };

/* A rule about commands, in the order in which they were given, without those that a later one has
 * made meaningless. */
struct kv_acl_entry {
    uint8_t kind;        /* enum kv_acl_entry_kind */
    bool allow;          /* + or - */
    uint16_t id;         /* CATEGORY: its bit's number; else of the command */
    struct kv_slice arg; /* FIRST_ARG: the only first argument that is allowed */
};

enum kv_acl_selector_flags {
    KV_ACL_ALL_KEYS = 1,     /* ~* */
    KV_ACL_ALL_CHANNELS = 2, /* &* */
    KV_ACL_ALL_COMMANDS = 4, /* the entries begin with +@all, not with -@all */
};

struct kv_acl_selector {
    uint32_t flags;     /* enum kv_acl_selector_flags */
    uint64_t *commands; /* a bit for each id: allowed whatever its arguments */
    struct kv_acl_entry *entries;
    struct kv_acl_pattern *keys;
    struct kv_slice *channels;
    uint32_t entry_count, key_count, channel_count;
};

enum kv_acl_flags {
    KV_ACL_ON = 1,
    KV_ACL_NOPASS = 2,
    KV_ACL_SANITIZE = 4,      /* sanitize-payload, which has no effect: payloads always are */
    KV_ACL_SKIP_SANITIZE = 8, /* skip-sanitize-payload */
};

struct kv_acl_rules {
    size_t block_size; /* of this allocation, which everything else lies in */
    uint32_t flags;    /* enum kv_acl_flags */
    bool everything;   /* a selector allows all commands, keys and channels */
    uint8_t (*passwords)[KV_SHA256_BYTES];
    struct kv_acl_selector *selectors; /* [0]: the root */
    uint32_t password_count, selector_count;
};

struct kv_user {
    struct kv_acl_rules *rules;
    struct kv_slice name; /* behind this structure, terminated */
    size_t block_size;
};

struct kv_acl_set {
    struct kv_user **users; /* sorted by name */
    uint32_t count, capacity;
};

/* --- drafts --- */

/* What is wrong with a word. */
enum kv_acl_mistake {
    KV_ACL_FINE = 0,
    KV_ACL_SYNTAX,
    KV_ACL_UNKNOWN_COMMAND, /* or category */
    KV_ACL_FIRST_ARG_OF_SUBCOMMAND,
    KV_ACL_AFTER_ALL_KEYS,
    KV_ACL_AFTER_ALL_CHANNELS,
    KV_ACL_NO_SUCH_PASSWORD,
    KV_ACL_BAD_HASH,
    KV_ACL_NO_MEMORY,
};

/* Text of a mistake as clients know it; never NULL. */
const char *kv_acl_mistake_text(enum kv_acl_mistake mistake);

struct kv_acl_draft {
    const struct kv_engine *engine;
    struct kv_arena *arena; /* what grows lies here until the end */
    struct kv_acl_rules rules;
    uint32_t password_capacity, selector_capacity;
    struct kv_acl_room {
        uint32_t entries, keys, channels; /* capacities */
    } * rooms;                            /* of each selector */
};

/* Begins with a copy of `from`; NULL: with those of a new user (off, no passwords, no rights, but
 * for channels as acl-pubsub-default says). False: no memory. The arena must live as long as the
 * draft; nothing else needs a release. */
bool kv_acl_draft_begin(struct kv_acl_draft *d, const struct kv_engine *e, struct kv_arena *arena,
                        const struct kv_acl_rules *from) KV_MUST_CHECK;

/* Applies one word; a selector in its parentheses is one. After a mistake the draft is as before,
 * but for KV_ACL_NO_MEMORY, after which it is of no use. */
enum kv_acl_mistake kv_acl_draft_apply(struct kv_acl_draft *d, struct kv_slice word) KV_MUST_CHECK;

/* The rules as one block, which the caller owns; NULL: no memory. */
struct kv_acl_rules *kv_acl_draft_pack(const struct kv_acl_draft *d) KV_MUST_CHECK;
void kv_acl_rules_release(struct kv_acl_rules *rules); /* NULL: nothing */

/* True when both are the same words in the same order. */
bool kv_acl_rules_equal(const struct kv_acl_rules *a, const struct kv_acl_rules *b);

/* Takes the next word from argv, beginning at *at: arguments from one with an opening parenthesis
 * to one with a closing one are joined by spaces, in the arena. KV_ERR_SYNTAX: none closes it, and
 * *word is the argument that opens it. KV_ERR_NOMEM. Else *at is behind it. */
enum kv_err kv_acl_next_word(struct kv_arena *arena, const struct kv_slice *argv, int argc, int *at,
                             struct kv_slice *word) KV_MUST_CHECK;

/* Names hold no white space and no zero byte. */
bool kv_acl_name_valid(struct kv_slice name);

/* --- users --- */

/* By name; NULL: there is none. */
struct kv_user *kv_acl_find(const struct kv_engine *e, struct kv_slice name);
struct kv_user *kv_acl_default_user(const struct kv_engine *e);
uint32_t kv_acl_user_count(const struct kv_engine *e);
struct kv_user *kv_acl_user(const struct kv_engine *e, uint32_t index); /* sorted by name */
/* Index of the user with this name; kv_acl_user_count: there is none. */
uint32_t kv_acl_user_index(const struct kv_engine *e, struct kv_slice name);

/* Makes a user, or gives new rules to one, and takes them over (*rules becomes NULL). Connections
 * with subscriptions that it may not have any more are closed; what it may not run any more does
 * not go on waiting for keys. KV_ERR_NOMEM: nothing changed; not for a user that exists.
 * [KV_MODE_STOP] `by` is who asks, whose own connection is closed behind its reply; or NULL. */
enum kv_err kv_acl_set_user_take(struct kv_engine *e, struct kv_slice name,
                                 struct kv_acl_rules **rules, struct kv_client *by) KV_MUST_CHECK;

/* Deletes a user, not the default one, and closes its connections. [KV_MODE_STOP] */
void kv_acl_delete_user(struct kv_engine *e, struct kv_user *u, struct kv_client *by);

/* A set of users that is to replace all (ACL LOAD); zeroed, it is empty. */
void kv_acl_set_release(struct kv_acl_set *s);
/* KV_ERR_EXISTS, KV_ERR_NOMEM: nothing changed, the rules stay the caller's. */
enum kv_err kv_acl_set_add_take(struct kv_acl_set *s, struct kv_slice name,
                                struct kv_acl_rules **rules) KV_MUST_CHECK;
/* Replaces all users by those of the set, which is empty afterwards. A default user that the set
 * does not have may do everything. Connections of users that are gone or have changed are closed;
 * those of the default user stay. KV_ERR_NOMEM: nothing changed, the set stays the caller's.
 * [KV_MODE_STOP] */
enum kv_err kv_acl_replace_take(struct kv_engine *e, struct kv_acl_set *s,
                                struct kv_client *by) KV_MUST_CHECK;

/* requirepass: the default user's rules with this as its only password; empty: it needs none. The
 * caller owns them; NULL: no memory. */
struct kv_acl_rules *kv_acl_password_rules(const struct kv_engine *e,
                                           struct kv_slice password) KV_MUST_CHECK;

/* The default user is on and needs no password: connections need not authenticate. Any worker. */
bool kv_acl_open(const struct kv_engine *e);

/* --- clients; their worker --- */

/* Makes the client that user, authenticated, when the user is on and the password is right. The
 * password is compared in a time that tells nothing about it. False: it stays what it was, and that
 * is logged with the command's name (AUTH, HELLO). */
bool kv_acl_authenticate(struct kv_client *c, const struct kv_command *cmd, struct kv_slice name,
                         struct kv_slice password) KV_MUST_CHECK;

/* The default user again, authenticated when that one needs no password: new clients, RESET. */
void kv_acl_reset_client(struct kv_client *c);

/* --- permissions --- */

enum kv_acl_verdict {
    KV_ACL_ALLOWED = 0,
    KV_ACL_DENIED_COMMAND,
    KV_ACL_DENIED_KEY,
    KV_ACL_DENIED_CHANNEL,
    KV_ACL_NOT_CHECKED, /* no memory: the command must not run */
};

/* Whether the client has to be checked at all. One load. */
KV_INLINE bool kv_acl_restricts(const struct kv_client *c)
{
    return (c->flags & (KV_CLIENT_RESTRICTED | KV_CLIENT_APPLY)) == KV_CLIENT_RESTRICTED;
}

/* Whether rules allow a command line: the command (a subcommand, when it has any, as resolved),
 * each key by what the command does with it, each channel. With a number of words that the command
 * does not take, the keys and channels that are there count, if any. *arg: of a denied key or
 * channel, the argument. Memory that many keys need comes from the arena. Says nothing about
 * passwords, and logs nothing. */
enum kv_acl_verdict kv_acl_check_rules(const struct kv_engine *e, const struct kv_acl_rules *rules,
                                       const struct kv_command *cmd, const struct kv_slice *argv,
                                       int argc, struct kv_arena *arena, int *arg) KV_MUST_CHECK;

/* The same for a client, who is told by the caller; a denial is counted and logged. For commands of
 * scripts: context KV_ACL_SCRIPT, `c` the client whose script it is. Nothing to check is
 * KV_ACL_ALLOWED. The client's worker, or KV_MODE_STOP. */
enum kv_acl_verdict kv_acl_check_call(struct kv_client *c, const struct kv_command *cmd,
                                      const struct kv_slice *argv, int argc,
                                      enum kv_acl_context context) KV_MUST_CHECK;

/* The error reply for a denial, "NOPERM ...", terminated and cut to `size`. */
#define KV_ACL_REPLY_MAX 384
void kv_acl_denial_text(enum kv_acl_verdict verdict, const struct kv_client *c,
                        const struct kv_command *cmd, char text[KV_ACL_REPLY_MAX]);

/* Whether a selector allows to publish to or subscribe to a channel, or to subscribe to a pattern.
 */
bool kv_acl_selector_has_channel(const struct kv_acl_selector *s, struct kv_slice name,
                                 bool pattern);

/* True when the client may read any key whatever with this command (SORT with patterns). */
bool kv_acl_reads_all_keys(const struct kv_client *c, const struct kv_command *cmd);

/* --- for engine/ --- */

struct kv_acl { /* of the engine */
    struct kv_acl_set set;
    struct kv_user *default_user; /* the same one for ever */
    bool open;                    /* see kv_acl_open */
    struct kv_acl_log log;
};

void kv_acl_init(struct kv_engine *e);
void kv_acl_release(struct kv_engine *e);

/* How many of the planned commands may run, before the first that is denied. */
uint32_t kv_acl_admit_batch(struct kv_client *c, uint32_t n) KV_COLD;

#endif
