/* Commands about the connection itself: AUTH, HELLO, PING, ECHO, SELECT, QUIT, RESET.
 *
 * Users and passwords are the engine's (engine/acl.h). AUTH with one argument is about the user
 * "default", and an error while that one needs no password. The engine refuses other commands to a
 * connection that is not authenticated; only HELLO checks by itself, because it is allowed before
 * but must not tell anything.
 *
 * HELLO reads all its options before it does anything, so a wrong one changes nothing, but for a
 * wrong name behind AUTH: that is told after the password was right, and the client is that user
 * then. The protocol version is switched last, so every error is written in the version that was
 * spoken before.
 *
 * Threads: all of it belongs to the connection's worker.
 */
#include "base/assert.h"
#include "base/number.h"
#include "base/version.h"
#include "cmd/functions.h"
#include "cmd/helper.h"
#include "engine/acl.h"
#include "engine/call.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "engine/pubsub.h"

/* Makes the client that user; false with the error replied. */
static bool authenticate(struct kv_call *call, struct kv_slice user, struct kv_slice password)
{
    if (kv_acl_authenticate(call->client, call->cmd, user, password))
        return true;
    kv_call_error(call, "WRONGPASS invalid username-password pair or user is disabled.");
    return false;
}

void kv_cmd_auth(struct kv_call *call)
{
    KV_ASSERT(call->argc >= 2);
    if (call->argc > 3) {
        kv_call_syntax_error(call);
        return;
    }
    if (call->argc == 2 && kv_acl_default_user(call->engine)->rules->flags & KV_ACL_NOPASS) {
        kv_call_error(call, "ERR AUTH <password> called without any password configured for the "
                            "default user. Are you sure your configuration is correct?");
        return;
    }
    struct kv_slice user = call->argc == 3 ? call->argv[1] : KV_SLICE("default");
    if (authenticate(call, user, call->argv[call->argc - 1]))
        kv_reply_ok(call->out);
}

struct hello {
    uint8_t resp;    /* 0: as it is */
    int auth_arg;    /* argument of the user, the password follows; 0: none */
    int setname_arg; /* 0: none */
};

static bool hello_name_valid(struct kv_call *call, int arg)
{
    if (kv_cmd_client_text_valid(call->argv[arg]))
        return true;
    kv_call_error(call, KV_CMD_BAD_CLIENT_NAME);
    return false;
}

static bool hello_options(struct kv_call *call, struct hello *h)
{
    int64_t version;
    if (call->argc >= 2) {
        if (!kv_int_parse(call->argv[1], &version)) {
            kv_call_error(call, "ERR Protocol version is not an integer or out of range");
            return false;
        }
        if (version != 2 && version != 3) {
            kv_call_error(call, "NOPROTO unsupported protocol version");
            return false;
        }
        h->resp = (uint8_t)version;
    }
    for (int i = 2; i < call->argc; i++) {
        int left = call->argc - 1 - i;
        if (kv_call_arg_is(call, i, "auth") && left >= 2) {
            h->auth_arg = i + 1;
            i += 2;
        } else if (kv_call_arg_is(call, i, "setname") && left >= 1) {
            h->setname_arg = ++i;
            /* Behind AUTH a wrong password comes first. */
            if (h->auth_arg == 0 && !hello_name_valid(call, i))
                return false;
        } else {
            kv_call_errorf(call, "ERR Syntax error in HELLO option '%.*s'",
                           KV_CMD_QUOTE(call->argv[i]));
            return false;
        }
    }
    return true;
}

static void hello_reply(struct kv_call *call)
{
    struct kv_out *out = call->out;
    kv_reply_map(out, 7);
    kv_reply_text(out, "server");
    kv_reply_text(out, "redis");
    kv_reply_text(out, "version");
    kv_reply_text(out, KV_REDIS_VERSION);
    kv_reply_text(out, "proto");
    kv_reply_int(out, call->client->resp);
    kv_reply_text(out, "id");
    kv_reply_int(out, (int64_t)call->client->id);
    kv_reply_text(out, "mode");
    kv_reply_text(out, "standalone");
    kv_reply_text(out, "role");
    kv_reply_text(out, "master");
    kv_reply_text(out, "modules");
    kv_reply_array(out, 0);
}

void kv_cmd_hello(struct kv_call *call)
{
    struct kv_client *c = call->client;
    struct hello h = {0};
    if (!hello_options(call, &h))
        return;
    if (h.auth_arg != 0 && !authenticate(call, call->argv[h.auth_arg], call->argv[h.auth_arg + 1]))
        return;
    if (!(c->flags & KV_CLIENT_AUTHENTICATED)) {
        kv_call_error(call, "NOAUTH HELLO must be called with the client already authenticated, "
                            "otherwise the HELLO <proto> AUTH <user> <pass> option can be used to "
                            "authenticate the client and select the RESP protocol version at the "
                            "same time");
        return;
    }
    if (h.setname_arg != 0 && !hello_name_valid(call, h.setname_arg))
        return;
    if (h.setname_arg != 0 && !kv_client_set_text(c, &c->name, call->argv[h.setname_arg])) {
        kv_call_no_memory(call);
        return;
    }
    if (h.resp != 0) {
        c->resp = h.resp;
        c->out.resp = h.resp;
        call->out->resp = h.resp;
    }
    hello_reply(call);
}

/* A reply that a client which expects messages can read. */
static void ping_among_messages(struct kv_call *call)
{
    kv_reply_array(call->out, 2);
    kv_reply_text(call->out, "pong");
    kv_reply_slice(call->out, call->argc == 2 ? call->argv[1] : KV_SLICE(""));
}

void kv_cmd_ping(struct kv_call *call)
{
    if (call->argc > 2)
        kv_call_error(call, "ERR wrong number of arguments for 'ping' command");
    else if (kv_pubsub_restricts(call->client))
        ping_among_messages(call);
    else if (call->argc == 2)
        kv_reply_slice(call->out, call->argv[1]);
    else
        KV_REPLY_RAW(call->out, "+PONG\r\n");
}

void kv_cmd_echo(struct kv_call *call)
{
    KV_ASSERT(call->argc == 2);
    kv_reply_slice(call->out, call->argv[1]);
}

void kv_cmd_select(struct kv_call *call)
{
    uint32_t db;
    if (!kv_cmd_database(call, 1, &db))
        return;
    kv_call_select(call, db);
    kv_reply_ok(call->out);
}

void kv_cmd_quit(struct kv_call *call)
{
    kv_reply_ok(call->out);
    call->client->flags |= KV_CLIENT_CLOSE_AFTER;
}

void kv_cmd_reset(struct kv_call *call)
{
    kv_client_reset(call->client);
    call->out->resp = call->client->resp;
    kv_reply_status(call->out, "RESET");
}
