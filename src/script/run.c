/* The run of a script or a function.
 *
 * The compiled function and its keys and arguments are handed over, it is called with an error
 * handler, and its value becomes the reply. All of that happens within one protected call, because
 * every step may run out of memory; the output is then taken back to where it began and the error
 * is the reply.
 *
 * A script finds keys and arguments in the globals KEYS and ARGV, a function has them as its two
 * parameters.
 */
#include "base/number.h"
#include "engine/client.h"
#include "engine/engine.h"
#include "proto/reply.h"
#include "script/lua_priv.h"
#include "script/shebang.h"
#include <stdio.h>

#define ERROR_MAX 1024
#define REPLY_BYTES ((size_t)64 << 20) /* that a reply may cost, whatever it is made of */

struct run {
    struct kv_call *call;
    struct kv_script *script;
    const struct kv_lua_task *task;
    bool counted;          /* the error is one of a command, counted there */
    char error[ERROR_MAX]; /* "" : none */
};

static void push_words(lua_State *l, const struct kv_slice *argv, int count)
{
    lua_createtable(l, count, 0);
    for (int i = 0; i < count; i++) {
        lua_pushlstring(l, argv[i].ptr, argv[i].len);
        lua_rawseti(l, -2, i + 1);
    }
}

static void set_words(lua_State *l, const char *name, const struct kv_slice *argv, int count)
{
    lua_pushstring(l, name);
    push_words(l, argv, count);
    lua_rawset(l, -3);
}

/* The error on top of the stack, as the reply tells it. */
static void explain(lua_State *l, struct run *r)
{
    struct kv_lua *lua = kv_lua_of(l);
    char place[KV_LUA_SOURCE_MAX + 32] = "";
    const char *prefix = "ERR ", *text = NULL;
    if (lua_istable(l, -1)) {
        lua_pushliteral(l, "ignore_error_stats_update");
        lua_rawget(l, -2);
        r->counted = lua_toboolean(l, -1);
        lua_pop(l, 1);
        lua_pushliteral(l, "err");
        lua_rawget(l, -2);
        prefix = "";
        if (lua_isstring(l, -1))
            text = lua_tostring(l, -1);
        else
            prefix = "ERR unknown error";
    } else if (lua_isstring(l, -1)) {
        text = lua_tostring(l, -1);
    } else {
        text = luaL_typename(l, -1);
    }
    if (lua->source[0] != '\0')
        snprintf(place, sizeof(place), ", on %s:%d.", lua->source, lua->line);
    snprintf(r->error, sizeof(r->error), "%s%s script: %.*s%s", prefix, text != NULL ? text : "",
             (int)KV_MIN(r->task->name.len, (size_t)256), r->task->name.ptr, place);
}

/* Pushes the function, and what it gets: the number of that. */
static int push_task(lua_State *l, const struct run *r)
{
    const struct kv_lua_task *t = r->task;
    struct kv_lua *lua = kv_lua_of(l);
    const struct kv_slice *keys = r->script->outer.argv + 3;
    int arg_count = r->script->outer.argc - 3 - t->key_count;
    bool is_function = t->flags & KV_SCRIPT_IS_FUNCTION;
    if (KV_UNLIKELY(lua->sees_loading))
        kv_lua_set_loading(l, false);
    if (!is_function) {
        lua_rawgeti(l, LUA_REGISTRYINDEX, lua->globals);
        set_words(l, "KEYS", keys, t->key_count);
        set_words(l, "ARGV", keys + t->key_count, arg_count);
        lua_pop(l, 1);
    }
    lua_rawgeti(l, LUA_REGISTRYINDEX, t->function);
    if (!is_function)
        return 0;
    push_words(l, keys, t->key_count);
    push_words(l, keys + t->key_count, arg_count);
    return 2;
}

static int run_protected(lua_State *l)
{
    struct run *r = lua_touserdata(l, 1);
    struct kv_call *call = r->call;
    struct kv_lua *lua = kv_lua_of(l);
    luaL_checkstack(l, 8, NULL);
    lua_settop(l, 0);
    lua_pushcfunction(l, kv_lua_note_error);
    int count = push_task(l, r);
    lua->source[0] = '\0';
    if (lua_pcall(l, count, 1, 1) != 0) {
        explain(l, r);
        return 0;
    }
    lua->reply_left = KV_MAX(REPLY_BYTES, lua->used_bytes * 4);
    kv_lua_reply(l, &call->client->out, lua->resp == 3);
    return 0;
}

static void finish(struct run *r, struct kv_out_mark *mark)
{
    struct kv_call *call = r->call;
    if (r->error[0] == '\0')
        return;
    kv_out_rewind(call->out, mark);
    if (r->counted)
        kv_reply_error_raw(call->out, kv_slice_cstr(r->error));
    else
        kv_call_error(call, r->error);
}

void kv_lua_run(struct kv_call *call, struct kv_lua *lua, const struct kv_lua_task *task)
{
    struct kv_script script;
    struct run r = {.call = call, .script = &script, .task = task};
    struct kv_out_mark mark = kv_out_mark(call->out);
    lua_State *l = lua->main;
    KV_ASSERT(lua->library == NULL);
    kv_script_begin(call, &script, task->flags);
    lua->run = &script;
    lua->resp = 2;
    if (lua_cpcall(l, run_protected, &r) != 0)
        snprintf(r.error, sizeof(r.error), "ERR %s script: %.*s", lua_tostring(l, -1),
                 (int)KV_MIN(task->name.len, (size_t)256), task->name.ptr);
    lua_settop(l, 0);
    lua->run = NULL;
    kv_script_end(&script);
    finish(&r, &mark);
    kv_lua_tidy(lua);
}

/* --- before it --- */

bool kv_lua_key_count(struct kv_call *call, const char *no_number, int *count)
{
    int64_t n;
    if (!kv_int_parse(call->argv[2], &n)) {
        kv_call_error(call, no_number);
        return false;
    }
    if (n > call->argc - 3) {
        kv_call_error(call, "ERR Number of keys can't be greater than number of args");
        return false;
    }
    if (n < 0) {
        kv_call_error(call, "ERR Number of keys can't be negative");
        return false;
    }
    *count = (int)n;
    return true;
}

bool kv_lua_judge_flags(struct kv_call *call, uint32_t shebang_flags, bool read_only,
                        uint32_t *flags)
{
    *flags = read_only ? KV_SCRIPT_READ_ONLY : 0;
    if (shebang_flags & KV_SHEBANG_NONE)
        return true;
    if (shebang_flags & KV_SHEBANG_NO_WRITES) {
        *flags |= KV_SCRIPT_READ_ONLY;
    } else if (!(shebang_flags & KV_SHEBANG_ALLOW_OOM) && kv_script_out_of_memory(call)) {
        kv_call_error(call, "OOM command not allowed when used memory > 'maxmemory'.");
        return false;
    } else if (read_only) {
        kv_call_error(call, "ERR Can not execute a script with write flag using *_ro command.");
        return false;
    }
    if (shebang_flags & KV_SHEBANG_ALLOW_OOM)
        *flags |= KV_SCRIPT_ALLOW_OOM;
    return true;
}
