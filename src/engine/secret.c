/* Passwords in command lines: the model is in secret.h.
 *
 *     AUTH [user] password                 everything
 *     HELLO ver AUTH user password         both
 *     MIGRATE ... AUTH password            the password; of AUTH2 the user, too
 *     ACL SETUSER user rule ...            everything: rules have passwords
 *     CONFIG SET name value ...            values of those directives that are passwords
 *
 * Lines that the command is going to refuse are logged and shown like others, so a word that no
 * option is known by is passed over, and the next may be one. Pure; any thread.
 */
#include "engine/secret.h"

#include "base/assert.h"
#include "engine/command.h"
#include <limits.h>
#include <string.h>

static bool is_password_directive(struct kv_slice name)
{
    static const char *const names[] = {"requirepass", "masterauth", "masteruser",
                                        "tls-key-file-pass", "tls-client-key-file-pass"};
    for (size_t i = 0; i < KV_ARRAY_LEN(names); i++)
        if (kv_slice_is(name, names[i]))
            return true;
    return false;
}

/* How many words behind argument `at` belong to it; *hidden: and are secret. */
static int values_behind(const struct kv_command *cmd, const struct kv_slice *argv, int at,
                         bool *hidden)
{
    const char *name = cmd->full_name;
    *hidden = true;
    if (strcmp(name, "auth") == 0)
        return INT_MAX;
    if (strcmp(name, "acl|setuser") == 0)
        return at == 1 ? INT_MAX : 0;
    if (strcmp(name, "config|set") == 0) {
        *hidden = is_password_directive(argv[at]);
        return at >= 2 ? 1 : 0;
    }
    if (strcmp(name, "hello") == 0) {
        if (at >= 1 && kv_slice_is(argv[at], "auth"))
            return 2;
        *hidden = false;
        return at >= 2 && kv_slice_is(argv[at], "setname") ? 1 : 0;
    }
    if (strcmp(name, "migrate") != 0) {
        *hidden = false;
        return INT_MAX;
    }
    if (at < 6)
        return 0;
    if (kv_slice_is(argv[at], "auth"))
        return 1;
    if (kv_slice_is(argv[at], "auth2"))
        return 2;
    *hidden = false;
    return kv_slice_is(argv[at], "keys") ? INT_MAX : 0;
}

bool kv_secrets_next(struct kv_secrets *s)
{
    int at = s->at++;
    KV_DASSERT(s->values >= 0);
    if (s->values > 0) {
        s->values--;
        return s->hidden;
    }
    s->values = values_behind(s->cmd, s->argv, at, &s->hidden);
    return false;
}
