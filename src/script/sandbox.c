/* What a script may see, and that it cannot change it for the next one.
 *
 * Scripts share one interpreter, so nothing that outlives a script may be written by it: the table
 * of globals, the libraries, the metatable of strings. (What cjson and math.random can be set to
 * stays for the next one, as in Redis: these are settings, not code.) Lua 5.1 knows no table that
 * can only be read. Here a script gets a guard in the place of each: an empty table whose metatable
 * reads from the true one and refuses to write. The functions that look past metatables (next,
 * pairs, rawget
 * ...) know guards and look through them; those that write past them (rawset, table.insert ...)
 * refuse.
 *
 *   script -> guard of globals -> globals (KEYS, ARGV, redis -> guard -> true table ...)
 *                                    | metatable: an error for names that do not exist
 *
 * Functions have an interpreter of their own, where the guard of the globals reads from another
 * table while a library loads: there is nothing but redis.register_function and redis.log.
 *
 * What could reach outside is absent: io, most of os, package, debug, loadfile, dofile, print,
 * getfenv and setfenv (a function's environment is the way around a guard), newproxy. Precompiled
 * code is not loaded, since Lua trusts it: every source is read with a blank before it, so that it
 * is never taken for such.
 *
 * Also bounded: the length of patterns, because matching recurses on the C stack for every item of
 * one.
 */
#include "script/lua_priv.h"
#include <lua5.1/lua-bitop.h>
#include <math.h>
#include <string.h>
#include <time.h>

#define READ_ONLY "Attempt to modify a readonly table"
#define PATTERN_MAX 16384 /* bytes */
#define RANDOM_MAX 0x7fffffff

/* Their addresses name fields of a guard's metatable. */
static const char guarded_key, shown_key;

static void push_key(lua_State *l, const char *key)
{
    union {
        const char *in;
        void *out;
    } name = {.in = key};
    lua_pushlightuserdata(l, name.out);
}

/* Pushes field `key` of the guard's metatable when the value at `index` is a guard; else false and
 * nothing is pushed. */
static bool push_of_guard(lua_State *l, int index, const char *key)
{
    if (!lua_istable(l, index) || !lua_getmetatable(l, index))
        return false;
    push_key(l, &guarded_key);
    lua_rawget(l, -2);
    bool guarded = !lua_isnil(l, -1);
    lua_pop(l, 1);
    if (!guarded) {
        lua_pop(l, 1);
        return false;
    }
    push_key(l, key);
    lua_rawget(l, -2);
    lua_remove(l, -2);
    return true;
}

/* An assignment through a guard: the place in the script is added. */
static int refuse_assignment(lua_State *l)
{
    return luaL_error(l, READ_ONLY);
}

/* A function that would write past a guard. */
static int refuse_write(lua_State *l)
{
    lua_pushliteral(l, READ_ONLY);
    return lua_error(l);
}

void kv_lua_guard(lua_State *l, bool metatable)
{
    luaL_checkstack(l, 6, NULL);
    lua_newtable(l);          /* the guard */
    lua_createtable(l, 0, 4); /* its metatable */
    lua_pushvalue(l, -3);
    lua_setfield(l, -2, "__index");
    lua_pushcfunction(l, refuse_assignment);
    lua_setfield(l, -2, "__newindex");
    push_key(l, &guarded_key);
    lua_pushvalue(l, -4);
    lua_rawset(l, -3);
    if (metatable) {
        push_key(l, &shown_key);
        lua_newtable(l);
        kv_lua_guard(l, false);
        lua_rawset(l, -3);
    }
    lua_setmetatable(l, -2);
    lua_remove(l, -2);
}

/* --- functions that know guards --- */

static int call_original(lua_State *l)
{
    return lua_tocfunction(l, lua_upvalueindex(1))(l);
}

/* Reads from its first argument. */
static int through_guard(lua_State *l)
{
    if (push_of_guard(l, 1, &guarded_key))
        lua_replace(l, 1);
    return call_original(l);
}

/* Writes to its first argument. */
static int not_into_guard(lua_State *l)
{
    if (push_of_guard(l, 1, &guarded_key))
        return refuse_write(l);
    return call_original(l);
}

static int pairs(lua_State *l)
{
    luaL_checktype(l, 1, LUA_TTABLE);
    lua_pushvalue(l, lua_upvalueindex(1)); /* next */
    lua_pushvalue(l, 1);
    lua_pushnil(l);
    return 3;
}

static int get_metatable(lua_State *l)
{
    luaL_checkany(l, 1);
    if (lua_type(l, 1) == LUA_TSTRING) {
        lua_pushvalue(l, lua_upvalueindex(2));
        return 1;
    }
    if (push_of_guard(l, 1, &shown_key))
        return 1;
    return call_original(l);
}

/* --- errors --- */

/* What failed with a table that has `err` is told as that text. A script that must end is not
 * caught. */
static int protected_call(lua_State *l)
{
    luaL_checkany(l, 1);
    int status = lua_pcall(l, lua_gettop(l) - 1, LUA_MULTRET, 0);
    if (status != 0 && kv_lua_of(l)->killed)
        return lua_error(l);
    lua_pushboolean(l, status == 0);
    lua_insert(l, 1);
    if (status != 0 && lua_istable(l, 2)) {
        lua_pushliteral(l, "err");
        lua_rawget(l, 2);
        if (lua_isstring(l, -1))
            lua_replace(l, 2);
        else
            lua_pop(l, 1);
    }
    return lua_gettop(l);
}

/* A coroutine that ended since the script must end takes with it whoever resumed it. */
static int resume(lua_State *l)
{
    int count = call_original(l);
    if (KV_LIKELY(!kv_lua_of(l)->killed))
        return count;
    return kv_lua_end(l);
}

/* The script's own handler, which is passed by once the script must end: it would run where no hook
 * ends it. */
static int own_handler(lua_State *l)
{
    if (kv_lua_of(l)->killed)
        return 1;
    lua_settop(l, 1);
    lua_pushvalue(l, lua_upvalueindex(1));
    lua_insert(l, 1);
    lua_call(l, 1, 1);
    return 1;
}

static int handled_call(lua_State *l)
{
    luaL_checkany(l, 2);
    lua_settop(l, 2);
    lua_pushcclosure(l, own_handler, 1);
    lua_insert(l, 1);
    int status = lua_pcall(l, 0, LUA_MULTRET, 1);
    if (status != 0 && kv_lua_of(l)->killed)
        return lua_error(l);
    lua_pushboolean(l, status == 0);
    lua_replace(l, 1);
    return lua_gettop(l);
}

static int no_such_global(lua_State *l)
{
    const char *name = lua_tostring(l, 2);
    return luaL_error(l, "Script attempted to access nonexistent global variable '%s'",
                      name != NULL ? name : "?");
}

/* --- loading --- */

struct source {
    const char *text; /* of loadstring; NULL: pieces come from the function at 1 */
    size_t len;
    bool begun;
};

static const char *read_piece(lua_State *l, void *arg, size_t *len)
{
    struct source *s = arg;
    if (!s->begun) {
        s->begun = true;
        *len = 1;
        return " ";
    }
    if (s->text != NULL) {
        const char *text = s->len > 0 ? s->text : NULL;
        *len = s->len;
        s->len = 0;
        return text;
    }
    luaL_checkstack(l, 2, "too many nested functions");
    lua_pushvalue(l, 1);
    lua_call(l, 0, 1);
    *len = 0;
    if (lua_isnil(l, -1)) {
        lua_pop(l, 1);
        return NULL;
    }
    if (!lua_isstring(l, -1))
        luaL_error(l, "reader function must return a string");
    lua_replace(l, 3); /* kept until the next piece */
    return lua_tolstring(l, 3, len);
}

static int load_source(lua_State *l, struct source *s, const char *name)
{
    if (lua_load(l, read_piece, s, name) == 0)
        return 1;
    lua_pushnil(l);
    lua_insert(l, -2);
    return 2;
}

static int load_string(lua_State *l)
{
    struct source s = {0};
    s.text = luaL_checklstring(l, 1, &s.len);
    return load_source(l, &s, luaL_optstring(l, 2, s.text));
}

static int load_function(lua_State *l)
{
    struct source s = {0};
    const char *name = luaL_optstring(l, 2, "=(load)");
    luaL_checktype(l, 1, LUA_TFUNCTION);
    lua_settop(l, 3);
    return load_source(l, &s, name);
}

/* --- libraries --- */

static int bounded_pattern(lua_State *l)
{
    if (lua_type(l, 2) == LUA_TSTRING && lua_objlen(l, 2) > PATTERN_MAX)
        return luaL_error(l, "pattern too complex");
    return call_original(l);
}

/* The generator of drand48 (POSIX): 48 bits, of which the upper 31 are given out. */
static uint32_t next_random(struct kv_lua *lua)
{
    lua->random = (lua->random * 0x5deece66dull + 11) & (((uint64_t)1 << 48) - 1);
    return (uint32_t)(lua->random >> 17);
}

static int random_number(lua_State *l)
{
    lua_Number r = (lua_Number)(next_random(kv_lua_of(l)) % RANDOM_MAX) / (lua_Number)RANDOM_MAX;
    int low = 1, high;
    switch (lua_gettop(l)) {
    case 0:
        lua_pushnumber(l, r);
        return 1;
    case 1:
        high = luaL_checkint(l, 1);
        luaL_argcheck(l, 1 <= high, 1, "interval is empty");
        break;
    case 2:
        low = luaL_checkint(l, 1);
        high = luaL_checkint(l, 2);
        luaL_argcheck(l, low <= high, 2, "interval is empty");
        break;
    default:
        return luaL_error(l, "wrong number of arguments");
    }
    lua_pushnumber(l, floor(r * ((lua_Number)high - low + 1)) + low);
    return 1;
}

static int random_seed(lua_State *l)
{
    kv_lua_of(l)->random = (uint64_t)(uint32_t)luaL_checkint(l, 1) << 16 | 0x330e;
    return 0;
}

static int cpu_clock(lua_State *l)
{
    lua_pushnumber(l, (lua_Number)clock() / (lua_Number)CLOCKS_PER_SEC);
    return 1;
}

/* Whoever stops the collector stops it for all: that and its tuning have no effect. */
static int collect_garbage(lua_State *l)
{
    static const char *const options[] = {"stop", "restart",  "collect",    "count",
                                          "step", "setpause", "setstepmul", NULL};
    enum { COLLECT = 2, COUNT = 3, STEP = 4 };
    int option = luaL_checkoption(l, 1, "collect", options);
    int amount = luaL_optint(l, 2, 0);
    switch (option) {
    case COUNT:
        lua_pushnumber(l, (lua_Number)lua_gc(l, LUA_GCCOUNT, 0) +
                              (lua_Number)lua_gc(l, LUA_GCCOUNTB, 0) / 1024);
        break;
    case STEP:
        lua_pushboolean(l, lua_gc(l, LUA_GCSTEP, KV_MAX(amount, 0)));
        break;
    case COLLECT:
        lua_gc(l, LUA_GCCOLLECT, 0);
        lua_pushnumber(l, 0);
        break;
    default:
        lua_pushnumber(l, 0);
    }
    return 1;
}

/* --- putting it together --- */

/* Replaces field `name` of the table on top by `fn` with the function that was there as upvalue. */
static void wrap(lua_State *l, const char *name, lua_CFunction fn)
{
    lua_getfield(l, -1, name);
    KV_ASSERT(lua_iscfunction(l, -1));
    lua_pushcclosure(l, fn, 1);
    lua_setfield(l, -2, name);
}

static void set_function(lua_State *l, const char *name, lua_CFunction fn)
{
    lua_pushcfunction(l, fn);
    lua_setfield(l, -2, name);
}

static void open_library(lua_State *l, const char *name, lua_CFunction open)
{
    lua_pushcfunction(l, open);
    lua_pushstring(l, name);
    lua_call(l, 1, 0);
}

/* Of a library that returns its table instead of making it a global. */
static void open_returned(lua_State *l, const char *name, lua_CFunction open)
{
    lua_pushcfunction(l, open);
    lua_pushstring(l, name);
    lua_call(l, 1, 1);
    lua_setfield(l, LUA_GLOBALSINDEX, name);
}

static void wrap_all(lua_State *l, const char *const *names, lua_CFunction fn)
{
    for (; *names != NULL; names++)
        wrap(l, *names, fn);
}

static void change_string(lua_State *l)
{
    static const char *const with_pattern[] = {"find", "match", "gmatch", "gfind", "gsub", NULL};
    lua_getfield(l, LUA_GLOBALSINDEX, "string");
    wrap_all(l, with_pattern, bounded_pattern);
    lua_pop(l, 1);
}

static void change_table(lua_State *l)
{
    static const char *const writing[] = {"insert", "setn", NULL};
    static const char *const reading[] = {"concat", "foreach", "foreachi", "getn", "maxn", NULL};
    lua_getfield(l, LUA_GLOBALSINDEX, "table");
    wrap_all(l, writing, not_into_guard);
    wrap_all(l, reading, through_guard);
    lua_pop(l, 1);
}

static void change_math(lua_State *l)
{
    lua_getfield(l, LUA_GLOBALSINDEX, "math");
    set_function(l, "random", random_number);
    set_function(l, "randomseed", random_seed);
    lua_pop(l, 1);
}

static void change_coroutine(lua_State *l)
{
    lua_getfield(l, LUA_GLOBALSINDEX, LUA_COLIBNAME);
    wrap(l, "resume", resume);
    lua_pop(l, 1);
}

/* The functions that look or write past guards, and those that could do harm. */
static void change_base(lua_State *l)
{
    static const char *const absent[] = {"dofile",   "loadfile", "print",   "getfenv", "setfenv",
                                         "newproxy", "module",   "require", NULL};
    static const char *const reading[] = {"next", "rawget", "unpack", NULL};
    static const char *const writing[] = {"rawset", "setmetatable", NULL};
    lua_pushvalue(l, LUA_GLOBALSINDEX);
    for (const char *const *name = absent; *name != NULL; name++) {
        lua_pushnil(l);
        lua_setfield(l, -2, *name);
    }
    wrap_all(l, reading, through_guard);
    wrap_all(l, writing, not_into_guard);
    lua_getfield(l, -1, "next");
    lua_pushcclosure(l, pairs, 1);
    lua_setfield(l, -2, "pairs");
    lua_getfield(l, -1, "getmetatable");
    lua_pushliteral(l, "");
    lua_getmetatable(l, -1);
    lua_remove(l, -2);
    kv_lua_guard(l, false);
    lua_pushcclosure(l, get_metatable, 2);
    lua_setfield(l, -2, "getmetatable");
    set_function(l, "pcall", protected_call);
    set_function(l, "xpcall", handled_call);
    set_function(l, "load", load_function);
    set_function(l, "loadstring", load_string);
    set_function(l, "collectgarbage", collect_garbage);
    lua_pop(l, 1);
}

static void add_os(lua_State *l)
{
    lua_newtable(l);
    set_function(l, "clock", cpu_clock);
    lua_setfield(l, LUA_GLOBALSINDEX, "os");
}

static void guard_libraries(lua_State *l)
{
    static const char *const names[] = {"string", "table", "math",     "coroutine", "os",
                                        "bit",    "cjson", "cmsgpack", "struct",    NULL};
    for (const char *const *name = names; *name != NULL; name++) {
        lua_getfield(l, LUA_GLOBALSINDEX, *name);
        kv_lua_guard(l, false);
        lua_setfield(l, LUA_GLOBALSINDEX, *name);
    }
    /* The metatable of strings is shown through a guard, and so is what lies in it. */
    lua_pushliteral(l, "");
    lua_getmetatable(l, -1);
    lua_getfield(l, LUA_GLOBALSINDEX, "string");
    lua_setfield(l, -2, "__index");
    lua_pop(l, 2);
}

/* From here on what is loaded sees the guard of the globals; _G is that guard. */
static void guard_globals(lua_State *l)
{
    lua_pushvalue(l, LUA_GLOBALSINDEX);
    lua_createtable(l, 0, 1);
    set_function(l, "__index", no_such_global);
    lua_setmetatable(l, -2);
    lua_pushvalue(l, -1);
    kv_lua_of(l)->globals = luaL_ref(l, LUA_REGISTRYINDEX);
    lua_pushvalue(l, -1);
    kv_lua_guard(l, true);
    lua_pushvalue(l, -1);
    lua_setfield(l, -3, "_G");
    lua_replace(l, LUA_GLOBALSINDEX);
    lua_pop(l, 1);
}

static void refuse_absent(lua_State *l)
{
    lua_createtable(l, 0, 1);
    set_function(l, "__index", no_such_global);
    lua_setmetatable(l, -2);
}

static void remove_fields(lua_State *l, const char *const *names)
{
    for (; *names != NULL; names++) {
        lua_pushnil(l);
        lua_setfield(l, -2, *names);
    }
}

void kv_lua_open_functions(lua_State *l)
{
    static const char *const absent[] = {"KEYS", "ARGV", NULL};
    static const char *const absent_of_api[] = {"replicate_commands", NULL};
    struct kv_lua *lua = kv_lua_of(l);
    lua_rawgeti(l, LUA_REGISTRYINDEX, lua->globals);
    remove_fields(l, absent);
    lua_getfield(l, -1, "redis");
    if (push_of_guard(l, -1, &guarded_key))
        remove_fields(l, absent_of_api);
    lua_settop(l, 0);
    lua_createtable(l, 0, 2);
    kv_lua_push_load_api(l);
    refuse_absent(l);
    kv_lua_guard(l, false);
    lua_pushvalue(l, -1);
    lua_setfield(l, -3, "redis");
    lua_setfield(l, -2, "server");
    refuse_absent(l);
    lua->load_globals = luaL_ref(l, LUA_REGISTRYINDEX);
}

void kv_lua_set_loading(lua_State *l, bool loading)
{
    struct kv_lua *lua = kv_lua_of(l);
    luaL_checkstack(l, 3, NULL);
    lua_pushvalue(l, LUA_GLOBALSINDEX);
    lua_getmetatable(l, -1);
    lua_rawgeti(l, LUA_REGISTRYINDEX, loading ? lua->load_globals : lua->globals);
    lua_setfield(l, -2, "__index");
    lua_pop(l, 2);
    lua->sees_loading = loading;
}

void kv_lua_open_sandbox(lua_State *l)
{
    open_library(l, "", luaopen_base);
    open_library(l, LUA_TABLIBNAME, luaopen_table);
    open_library(l, LUA_STRLIBNAME, luaopen_string);
    open_library(l, LUA_MATHLIBNAME, luaopen_math);
    open_library(l, "bit", luaopen_bit);
    open_returned(l, "cjson", kv_lua_open_json);
    open_returned(l, "cmsgpack", kv_lua_open_msgpack);
    open_returned(l, "struct", kv_lua_open_struct);
    change_string(l);
    change_table(l);
    change_math(l);
    change_coroutine(l);
    change_base(l);
    add_os(l);
    guard_libraries(l);
    kv_lua_push_api(l);
    kv_lua_guard(l, false);
    lua_pushvalue(l, -1);
    lua_setfield(l, LUA_GLOBALSINDEX, "redis");
    lua_setfield(l, LUA_GLOBALSINDEX, "server");
    /* Every script puts its own in their places. */
    lua_newtable(l);
    lua_setfield(l, LUA_GLOBALSINDEX, "KEYS");
    lua_newtable(l);
    lua_setfield(l, LUA_GLOBALSINDEX, "ARGV");
    guard_globals(l);
    lua_settop(l, 0);
}
