/* Users as text: the words of ACL LIST, the users' file (aclfile), `user` lines of the
 * configuration. What the words mean is in engine/acl.h.
 *
 * A users' file has one user a line: "user", its name, its rules, separated by single spaces,
 * without quotes and comments, as Redis writes and reads it.
 *
 * Threads: the main thread before workers run; then printing by any worker, the rest in
 * KV_MODE_STOP. */
#ifndef KV_ADMIN_USERS_H
#define KV_ADMIN_USERS_H

#include "admin/config.h"
#include "engine/acl.h"

/* Appends "user <name> <rules>", or parts of it: commands "-@all +get", keys "~a %R~b", channels
 * "&a &b". */
void kv_users_print(const struct kv_engine *e, const struct kv_user *u, struct kv_text *out);
void kv_users_print_rules(const struct kv_engine *e, const struct kv_acl_rules *r,
                          struct kv_text *out);
void kv_users_print_commands(const struct kv_engine *e, const struct kv_acl_selector *s,
                             struct kv_text *out);
void kv_users_print_keys(const struct kv_acl_selector *s, struct kv_text *out);
void kv_users_print_channels(const struct kv_acl_selector *s, struct kv_text *out);

/* Reads the text of a users' file into an empty set. On KV_ERR_SYNTAX `errors` says what is wrong
 * in which lines, on KV_ERR_NOMEM that; the caller releases the set in any case. `path` names the
 * file in the errors. */
enum kv_err kv_users_read(const struct kv_engine *e, struct kv_slice text, const char *path,
                          struct kv_acl_set *set, struct kv_text *errors) KV_MUST_CHECK;

/* Replaces all users by those of the users' file. `by` as in engine/acl.h. On failure nothing has
 * changed and `errors` says why. KV_ERR_NOTFOUND: there is no such file configured. */
enum kv_err kv_users_load(struct kv_engine *e, struct kv_client *by,
                          struct kv_text *errors) KV_MUST_CHECK;

/* Replaces the users' file by all users, atomically. KV_ERR_IO: errno. KV_ERR_NOTFOUND: as above.
 * KV_ERR_NOMEM. */
enum kv_err kv_users_save(struct kv_engine *e) KV_MUST_CHECK;

/* Makes the users that the configuration names, by its lines or by its file, before anybody
 * connects. On failure `message` says where and why. */
enum kv_err kv_users_start(struct kv_config *c, struct kv_engine *e,
                           struct kv_text *message) KV_MUST_CHECK;

/* The rules that a `user` line's words behind the name give; NULL: *mistake, and *word is to blame.
 * The caller owns them. */
struct kv_acl_rules *kv_users_rules_of(const struct kv_engine *e, const struct kv_slice *words,
                                       int count, enum kv_acl_mistake *mistake,
                                       struct kv_slice *word) KV_MUST_CHECK;

#endif
