/* Making one library: its code runs once, and what it registers is collected.
 *
 * While it runs, lua->library points at the library that is being made, and the globals are those
 * of loading (sandbox.c). redis.register_function appends to that library; an error in it ends the
 * loading as any other, and then all that was registered goes again. So a library that does not
 * load leaves nothing.
 *
 * Names of functions are equal in any case, also within one library: FCALL finds a function by its
 * name in any case, and could not tell two of them apart.
 */
#include "base/clock.h"
#include "base/hash.h"
#include "engine/engine.h"
#include "script/library_priv.h"
#include "script/shebang.h"
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define LOAD_NS 500000000u /* that loading may take */
#define BAD_NAME                                                                                   \
    "ERR Library names can only contain letters, numbers, or underscores(_) and must be at least " \
    "one character long"

uint32_t kv_function_hash(struct kv_slice name)
{
    static const struct kv_hash_key key; /* whoever may load functions need not be fended off */
    return (uint32_t)kv_hash_nocase(&key, name.ptr, name.len);
}

bool kv_function_names_equal(struct kv_slice a, struct kv_slice b)
{
    return a.len == b.len && strncasecmp(a.ptr, b.ptr, a.len) == 0;
}

static bool is_name(struct kv_slice name)
{
    for (size_t i = 0; i < name.len; i++) {
        char c = name.ptr[i];
        if (c != '_' && !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') &&
            !(c >= '0' && c <= '9'))
            return false;
    }
    return name.len > 0;
}

bool kv_library_read_head(struct kv_slice text, struct kv_slice *name, struct kv_slice *code,
                          char error[KV_LIBRARY_ERROR_MAX])
{
    struct kv_slice engine;
    static_assert((int)KV_SHEBANG_ERROR_MAX <= (int)KV_LIBRARY_ERROR_MAX, "it has room");
    if (!kv_shebang_read_library(text, &engine, name, code, error))
        return false;
    if (!is_name(*name)) {
        snprintf(error, KV_LIBRARY_ERROR_MAX, BAD_NAME);
        return false;
    }
    if (kv_slice_is(engine, "lua"))
        return true;
    snprintf(error, KV_LIBRARY_ERROR_MAX, "ERR Engine '%.*s' not found",
             (int)KV_MIN(engine.len, (size_t)100), engine.ptr);
    return false;
}

/* --- registering --- */

static struct kv_slice slice_at(lua_State *l, int index)
{
    struct kv_slice s;
    s.ptr = lua_tolstring(l, index, &s.len);
    return s;
}

static const struct kv_function *find(const struct kv_library *lib, struct kv_slice name)
{
    for (const struct kv_function *f = lib->first; f != NULL; f = f->next)
        if (kv_function_names_equal(f->name, name))
            return f;
    return NULL;
}

/* Appends a function without a callback. NULL: no memory, which is noted. */
static struct kv_function *append(struct kv_library *lib, struct kv_slice name,
                                  struct kv_slice description, uint32_t flags)
{
    size_t size = sizeof(struct kv_function) + name.len + description.len;
    struct kv_function *f = kv_mem_try_alloc(size, KV_MEM_SCRIPT);
    if (f == NULL) {
        lib->no_memory = true;
        return NULL;
    }
    *f = (struct kv_function){
        .library = lib,
        .name = kv_slice(f->text, name.len),
        .flags = flags,
        .hash = kv_function_hash(name),
        .callback = LUA_NOREF,
        .size = size,
    };
    memcpy(f->text, name.ptr, name.len);
    if (description.ptr != NULL) {
        memcpy(f->text + name.len, description.ptr, description.len);
        f->description = kv_slice(f->text + name.len, description.len);
    }
    *lib->last = f;
    lib->last = &f->next;
    lib->function_count++;
    return f;
}

/* The flags in the list at -1; false: there is one that is none. */
static bool read_flags(lua_State *l, uint32_t *flags)
{
    for (int i = 1;; i++) {
        lua_rawgeti(l, -1, i);
        if (lua_isnil(l, -1))
            break;
        uint32_t flag =
            lua_type(l, -1) == LUA_TSTRING ? kv_shebang_flag(slice_at(l, -1)) : (uint32_t)0;
        if (flag == 0)
            return false;
        *flags |= flag;
        lua_pop(l, 1);
    }
    lua_pop(l, 1);
    return true;
}

/* What redis.register_function was given. Texts and callback stay on the stack, at these places. */
enum { AT_NAME = 2, AT_CALLBACK, AT_DESCRIPTION, AT_TOP = AT_DESCRIPTION };

/* One field of the table form: its value is at -1. NULL, or what is wrong. */
static const char *read_field(lua_State *l, struct kv_slice key, uint32_t *flags)
{
    if (kv_slice_is(key, "function_name")) {
        if (!lua_isstring(l, -1))
            return "ERR function_name argument given to redis.register_function must be a string";
        lua_pushvalue(l, -1);
        lua_replace(l, AT_NAME);
    } else if (kv_slice_is(key, "description")) {
        if (!lua_isstring(l, -1))
            return "ERR description argument given to redis.register_function must be a string";
        lua_pushvalue(l, -1);
        lua_replace(l, AT_DESCRIPTION);
    } else if (kv_slice_is(key, "callback")) {
        if (!lua_isfunction(l, -1))
            return "ERR callback argument given to redis.register_function must be a function";
        lua_pushvalue(l, -1);
        lua_replace(l, AT_CALLBACK);
    } else if (kv_slice_is(key, "flags")) {
        if (!lua_istable(l, -1))
            return "ERR flags argument to redis.register_function must be a table representing "
                   "function flags";
        if (!read_flags(l, flags))
            return "ERR unknown flag given";
    } else {
        return "ERR unknown argument given to redis.register_function";
    }
    return NULL;
}

/* The form with a table, at 1. */
static const char *read_table(lua_State *l, uint32_t *flags)
{
    const char *error;
    if (!lua_istable(l, 1))
        return "ERR calling redis.register_function with a single argument is only applicable to "
               "Lua table (representing named arguments).";
    lua_settop(l, AT_TOP);
    lua_pushnil(l);
    while (lua_next(l, 1)) {
        if (lua_type(l, -2) != LUA_TSTRING)
            return "ERR unknown argument given to redis.register_function";
        error = read_field(l, slice_at(l, -2), flags);
        if (error != NULL)
            return error;
        lua_pop(l, 1);
    }
    if (lua_isnil(l, AT_NAME))
        return "ERR redis.register_function must get a function name argument";
    if (lua_isnil(l, AT_CALLBACK))
        return "ERR redis.register_function must get a callback argument";
    return NULL;
}

/* The form with name and callback, at 1 and 2. */
static const char *read_pair(lua_State *l)
{
    if (!lua_isstring(l, 1))
        return "ERR first argument to redis.register_function must be a string";
    if (!lua_isfunction(l, 2))
        return "ERR second argument to redis.register_function must be a function";
    lua_pushvalue(l, 1);
    lua_insert(l, AT_NAME); /* and the callback comes behind it */
    lua_settop(l, AT_TOP);
    return NULL;
}

int kv_library_register(lua_State *l)
{
    struct kv_library *lib = kv_lua_of(l)->library;
    struct kv_slice description = {0};
    uint32_t flags = 0;
    int count = lua_gettop(l);
    if (lib == NULL)
        return kv_lua_raise(
            l, "ERR redis.register_function can only be called on FUNCTION LOAD command");
    if (count < 1 || count > 2)
        return kv_lua_raise(l, "ERR wrong number of arguments to redis.register_function");
    luaL_checkstack(l, AT_TOP + 8, NULL);
    const char *error = count == 1 ? read_table(l, &flags) : read_pair(l);
    if (error != NULL)
        return kv_lua_raise(l, error);
    struct kv_slice name = slice_at(l, AT_NAME);
    if (!lua_isnil(l, AT_DESCRIPTION))
        description = slice_at(l, AT_DESCRIPTION);
    if (!is_name(name))
        return kv_lua_raise(l, BAD_NAME);
    if (find(lib, name) != NULL)
        return kv_lua_raise(l, "ERR Function already exists in the library");
    struct kv_function *f = append(lib, name, description, flags);
    if (f == NULL)
        return kv_lua_raise(l, KV_LUA_NO_MEMORY);
    lua_pushvalue(l, AT_CALLBACK);
    f->callback = luaL_ref(l, LUA_REGISTRYINDEX);
    return 0;
}

/* --- loading --- */

struct loading {
    struct kv_slice code;
    bool compiled;
    char *error;
};

static void explain(lua_State *l, const struct loading *load)
{
    const char *text = load->compiled ? kv_lua_error_text(l) : lua_tostring(l, -1);
    snprintf(load->error, KV_LIBRARY_ERROR_MAX, "ERR Error %s: %s",
             load->compiled ? "registering functions" : "compiling function",
             text != NULL ? text : "?");
}

static int load_protected(lua_State *l)
{
    struct loading *load = lua_touserdata(l, 1);
    lua_settop(l, 0);
    kv_lua_set_loading(l, true);
    if (kv_lua_load(l, load->code, "@user_function") != 0) {
        explain(l, load);
        return 0;
    }
    load->compiled = true;
    if (lua_pcall(l, 0, 0, 0) != 0)
        explain(l, load);
    else
        kv_lua_set_loading(l, false);
    return 0;
}

static struct kv_library *make(struct kv_slice text, struct kv_slice name)
{
    size_t size = sizeof(struct kv_library) + text.len;
    struct kv_library *lib = kv_mem_try_alloc(size, KV_MEM_SCRIPT);
    if (lib == NULL)
        return NULL;
    *lib = (struct kv_library){
        .name = kv_slice(lib->text + (name.ptr - text.ptr), name.len),
        .code = kv_slice(lib->text, text.len),
        .last = &lib->first,
        .size = size,
    };
    memcpy(lib->text, text.ptr, text.len);
    return lib;
}

struct kv_library *kv_library_create(struct kv_lua *lua, struct kv_slice text, struct kv_slice name,
                                     struct kv_slice code, bool limited,
                                     char error[KV_LIBRARY_ERROR_MAX])
{
    struct loading load = {.code = code, .error = error};
    lua_State *l = lua->main;
    KV_ASSERT(lua->run == NULL && lua->library == NULL);
    error[0] = '\0';
    struct kv_library *lib = make(text, name);
    if (lib == NULL) {
        snprintf(error, KV_LIBRARY_ERROR_MAX, KV_LUA_NO_MEMORY);
        return NULL;
    }
    lua->library = lib;
    lua->load_ticks = limited ? kv_clock_ticks() + kv_clock_ns_to_ticks(LOAD_NS) : UINT64_MAX;
    if (lua_cpcall(l, load_protected, &load) != 0)
        snprintf(error, KV_LIBRARY_ERROR_MAX, "ERR Error registering functions: %s",
                 lua_tostring(l, -1));
    lua_settop(l, 0);
    lua->library = NULL;
    kv_lua_tidy(lua);
    if (lib->no_memory)
        snprintf(error, KV_LIBRARY_ERROR_MAX, KV_LUA_NO_MEMORY);
    else if (error[0] == '\0' && lib->function_count == 0)
        snprintf(error, KV_LIBRARY_ERROR_MAX, "ERR No functions registered");
    if (error[0] == '\0')
        return lib;
    kv_library_destroy(lib, lua);
    return NULL;
}

void kv_library_destroy(struct kv_library *lib, struct kv_lua *lua)
{
    struct kv_function *f = lib->first;
    while (f != NULL) {
        struct kv_function *next = f->next;
        if (lua != NULL && f->callback != LUA_NOREF)
            kv_lua_unref(lua, f->callback);
        kv_mem_free(f, f->size, KV_MEM_SCRIPT);
        f = next;
    }
    kv_mem_free(lib, lib->size, KV_MEM_SCRIPT);
}

size_t kv_library_bytes(const struct kv_library *lib)
{
    size_t bytes = kv_mem_block_size(lib->size);
    for (const struct kv_function *f = lib->first; f != NULL; f = f->next)
        bytes += kv_mem_block_size(f->size);
    return bytes;
}
