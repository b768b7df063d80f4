/* The table `redis` of scripts, also known as `server`.
 *
 * redis.call and redis.pcall collect their arguments as slices of the strings on Lua's stack, which
 * stay where they are while the function runs; numbers are printed beside them. The reply becomes a
 * Lua value; an error is a table with `err`, which call raises and pcall returns.
 *
 * What concerns replication (set_repl, replicate_commands) is accepted and changes nothing: a
 * script is always passed on as the commands that it ran. There is no debugger, and so no
 * breakpoint.
 */
#include "base/log.h"
#include "base/number.h"
#include "base/sha1.h"
#include "base/version.h"
#include "engine/engine.h"
#include "script/lua_priv.h"
#include <math.h>
#include <stdio.h>

#define ARGS_ON_STACK 32
#define NUMBER_MAX 32 /* bytes of a printed number */
#define REDIS_VERSION_NUMBER (8 << 16)
#define REPL_ALL 3 /* AOF 1, replicas 2 */

struct argument_number {
    char text[NUMBER_MAX];
};

struct arguments {
    struct kv_slice *argv;
    int argc;
    struct kv_slice few[ARGS_ON_STACK];
    struct argument_number few_numbers[ARGS_ON_STACK];
};

static void push_error_table(lua_State *l, const char *text)
{
    lua_createtable(l, 0, 1);
    lua_pushstring(l, text);
    lua_setfield(l, -2, "err");
}

int kv_lua_raise(lua_State *l, const char *text)
{
    push_error_table(l, text);
    return lua_error(l);
}

const char *kv_lua_error_text(lua_State *l)
{
    if (lua_istable(l, -1)) {
        lua_pushliteral(l, "err");
        lua_rawget(l, -2);
        return lua_isstring(l, -1) ? lua_tostring(l, -1) : "";
    }
    return lua_isstring(l, -1) ? lua_pushfstring(l, "ERR %s", lua_tostring(l, -1)) : "";
}

/* As many digits as a double has: a reader gets the same number again. */
static size_t print_number(lua_Number n, char text[NUMBER_MAX])
{
    if (n == floor(n) && fabs(n) < 1e15 && (n != 0 || !signbit(n)))
        return kv_int_print((int64_t)n, text);
    return (size_t)snprintf(text, NUMBER_MAX, "%.17g", n);
}

/* The words on the stack. Else what is wrong: there is none, or one that is neither string nor
 * number. */
static const char *take_arguments(lua_State *l, struct arguments *args)
{
    int argc = lua_gettop(l);
    struct kv_slice *argv = args->few;
    struct argument_number *numbers = args->few_numbers;
    if (argc == 0)
        return "ERR Please specify at least one argument for this redis lib call";
    if (argc > ARGS_ON_STACK) {
        argv = lua_newuserdata(l, (size_t)argc * (sizeof(*argv) + sizeof(*numbers)));
        numbers = (struct argument_number *)(argv + argc);
    }
    for (int i = 0; i < argc; i++) {
        int type = lua_type(l, i + 1);
        if (type == LUA_TSTRING) {
            argv[i].ptr = lua_tolstring(l, i + 1, &argv[i].len);
        } else if (type == LUA_TNUMBER) {
            argv[i].ptr = numbers[i].text;
            argv[i].len = print_number(lua_tonumber(l, i + 1), numbers[i].text);
        } else {
            return "ERR Lua redis lib command arguments must be strings or integers";
        }
    }
    args->argv = argv;
    args->argc = argc;
    return NULL;
}

static int call_generic(lua_State *l, bool raises)
{
    struct arguments args;
    struct kv_lua *lua = kv_lua_of(l);
    const char *error = NULL;
    if (lua->run == NULL) {
        error = "redis.call can only be called inside a script invocation";
    } else {
        if (KV_UNLIKELY(kv_script_due(lua->run)))
            kv_lua_poll(l);
        error = take_arguments(l, &args);
        if (error == NULL)
            error = kv_script_call(lua->run, args.argv, args.argc);
    }
    bool failed = error != NULL;
    if (failed) {
        push_error_table(l, error);
    } else {
        kv_lua_push_reply(l, &lua->run->out);
        failed = lua->run->out.head->data[0] == '-';
    }
    return failed && raises ? lua_error(l) : 1;
}

static int api_call(lua_State *l)
{
    return call_generic(l, true);
}

static int api_pcall(lua_State *l)
{
    return call_generic(l, false);
}

static int api_error_reply(lua_State *l)
{
    if (lua_gettop(l) != 1 || lua_type(l, 1) != LUA_TSTRING) {
        push_error_table(l, "ERR wrong number or type of arguments");
        return 1;
    }
    const char *words = lua_tostring(l, 1);
    struct kv_slice text = kv_script_error_text(kv_slice_cstr(words + (words[0] == '-')));
    lua_createtable(l, 0, 1);
    if (text.len == 0 || memchr(text.ptr, ' ', text.len) == NULL)
        lua_pushliteral(l, "ERR ");
    else
        lua_pushliteral(l, "");
    lua_pushlstring(l, text.ptr, text.len);
    lua_concat(l, 2);
    lua_setfield(l, -2, "err");
    return 1;
}

static int api_status_reply(lua_State *l)
{
    if (lua_gettop(l) != 1 || lua_type(l, 1) != LUA_TSTRING) {
        push_error_table(l, "ERR wrong number or type of arguments");
        return 1;
    }
    lua_createtable(l, 0, 1);
    lua_pushvalue(l, 1);
    lua_setfield(l, -2, "ok");
    return 1;
}

static int api_sha1hex(lua_State *l)
{
    char digest[KV_SHA1_HEX];
    size_t len;
    if (lua_gettop(l) != 1)
        return kv_lua_raise(l, "ERR wrong number of arguments");
    const char *text = lua_tolstring(l, 1, &len);
    kv_sha1_hex(text != NULL ? text : "", text != NULL ? len : 0, digest);
    lua_pushlstring(l, digest, sizeof(digest));
    return 1;
}

static int api_log(lua_State *l)
{
    luaL_Buffer text;
    int argc = lua_gettop(l);
    if (argc < 2)
        return kv_lua_raise(l, "ERR redis.log() requires two arguments or more.");
    if (lua_type(l, 1) != LUA_TNUMBER)
        return kv_lua_raise(l, "ERR First argument must be a number (log level).");
    lua_Number level = lua_tonumber(l, 1);
    if (!(level >= KV_LOG_DEBUG && level <= KV_LOG_WARNING))
        return kv_lua_raise(l, "ERR Invalid debug level.");
    if ((int)level < (int)kv_log_level())
        return 0;
    luaL_buffinit(l, &text);
    for (int i = 2; i <= argc; i++) {
        size_t len;
        const char *bytes = lua_tolstring(l, i, &len);
        if (i > 2)
            luaL_addchar(&text, ' ');
        if (bytes != NULL)
            luaL_addlstring(&text, bytes, len);
    }
    luaL_pushresult(&text);
    kv_log((enum kv_log_level)(int)level, "%s", lua_tostring(l, -1));
    return 0;
}

static int api_setresp(lua_State *l)
{
    struct kv_lua *lua = kv_lua_of(l);
    if (lua_gettop(l) != 1)
        return kv_lua_raise(l, "ERR redis.setresp() requires one argument.");
    lua_Number resp = lua_tonumber(l, 1);
    if (resp != 2 && resp != 3)
        return kv_lua_raise(l, "ERR RESP version must be 2 or 3.");
    lua->resp = (int)resp;
    if (lua->run != NULL)
        kv_script_set_resp(lua->run, lua->resp);
    return 0;
}

static int api_replicate_commands(lua_State *l)
{
    lua_pushboolean(l, 1);
    return 1;
}

static int api_set_repl(lua_State *l)
{
    if (lua_gettop(l) != 1)
        return kv_lua_raise(l, "ERR redis.set_repl() requires two arguments.");
    lua_Number flags = lua_tonumber(l, 1);
    if (!(flags >= 0 && flags <= REPL_ALL))
        return kv_lua_raise(
            l, "ERR Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or "
               "REPL_NONE.");
    return 0;
}

/* Whether the user who runs the script may run a command line. What is no line of it, since it has
 * too few words or too many, is asked about as the command alone. */
static int api_acl_check_cmd(lua_State *l)
{
    struct kv_lua *lua = kv_lua_of(l);
    struct arguments args;
    bool allowed;
    if (lua->run == NULL)
        return kv_lua_raise(
            l, "ERR redis.acl_check_cmd can only be called inside a script invocation");
    const char *error = take_arguments(l, &args);
    if (error != NULL)
        return kv_lua_raise(l, error);
    if (!kv_script_may(lua->run, args.argv, args.argc, &allowed))
        return kv_lua_raise(l, "ERR Invalid command passed to redis.acl_check_cmd()");
    lua_pushboolean(l, allowed);
    return 1;
}

struct number {
    const char *name;
    int value;
};

static void add_numbers(lua_State *l, const struct number *numbers)
{
    for (; numbers->name != NULL; numbers++) {
        lua_pushnumber(l, numbers->value);
        lua_setfield(l, -2, numbers->name);
    }
}

/* What there is whether or not a library loads. */
static void add_common(lua_State *l)
{
    static const struct number numbers[] = {
        {"LOG_DEBUG", KV_LOG_DEBUG},
        {"LOG_VERBOSE", KV_LOG_VERBOSE},
        {"LOG_NOTICE", KV_LOG_NOTICE},
        {"LOG_WARNING", KV_LOG_WARNING},
        {"REDIS_VERSION_NUM", REDIS_VERSION_NUMBER},
        {NULL, 0},
    };
    add_numbers(l, numbers);
    lua_pushcfunction(l, api_log);
    lua_setfield(l, -2, "log");
    lua_pushliteral(l, KV_REDIS_VERSION);
    lua_setfield(l, -2, "REDIS_VERSION");
}

void kv_lua_push_load_api(lua_State *l)
{
    lua_newtable(l);
    add_common(l);
    lua_pushcfunction(l, kv_library_register);
    lua_setfield(l, -2, "register_function");
}

void kv_lua_push_api(lua_State *l)
{
    static const luaL_Reg functions[] = {
        {"call", api_call},
        {"pcall", api_pcall},
        {"error_reply", api_error_reply},
        {"status_reply", api_status_reply},
        {"sha1hex", api_sha1hex},
        {"setresp", api_setresp},
        {"replicate_commands", api_replicate_commands},
        {"set_repl", api_set_repl},
        {"acl_check_cmd", api_acl_check_cmd},
        {NULL, NULL},
    };
    static const struct number numbers[] = {
        {"REPL_NONE", 0},    {"REPL_AOF", 1},        {"REPL_SLAVE", 2},
        {"REPL_REPLICA", 2}, {"REPL_ALL", REPL_ALL}, {NULL, 0},
    };
    lua_newtable(l);
    add_common(l);
    luaL_register(l, NULL, functions);
    add_numbers(l, numbers);
}
