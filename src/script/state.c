/* One Lua interpreter: its memory, its limits, and how errors are explained.
 *
 * Memory comes from the layer below with the exact sizes that Lua keeps, is counted to the owner
 * `script`, and is bounded: beyond the limit an allocation fails, which is the error "not enough
 * memory" in the script. Blocks that become smaller never fail, as Lua demands.
 *
 * A hook is called every HOOK_COUNT instructions. It asks the engine whether the script must end;
 * so does redis.call when the script is busy or was killed, since slow commands are few
 * instructions. While a library loads the hook looks at the time that this may take. If so an error
 * is raised, and from then on at every instruction, in the coroutine that runs and in the main one:
 * what catches the error gets the next one, until nothing is left that catches. Whoever has resumed
 * a coroutine that ended so ends likewise.
 *
 * The collector is Lua's own, step by step as memory is allocated. After a script that has left
 * much behind a full collection follows.
 *
 * Rejected: LuaJIT. Compiled loops do not call the hook, so that a script in one could not be
 * ended.
 */
#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "engine/engine.h"
#include "script/lua_priv.h"
#include <stdio.h>
#include <stdlib.h>

#define HOOK_COUNT 100000
#define COLLECT_MIN_BYTES ((size_t)8 << 20)

static void *allocate(void *owner, void *ptr, size_t old_size, size_t new_size)
{
    struct kv_lua *lua = owner;
    void *block;
    if (new_size == 0) {
        kv_mem_free(ptr, old_size, KV_MEM_SCRIPT);
        lua->used_bytes -= old_size;
        return NULL;
    }
    if (ptr == NULL)
        old_size = 0;
    if (new_size > old_size && (lua->used_bytes > lua->limit_bytes ||
                                new_size - old_size > lua->limit_bytes - lua->used_bytes))
        return NULL;
    if (ptr == NULL)
        block = kv_mem_try_alloc(new_size, KV_MEM_SCRIPT);
    else if (new_size <= old_size)
        block = kv_mem_realloc(ptr, old_size, new_size, KV_MEM_SCRIPT);
    else
        block = kv_mem_try_realloc(ptr, old_size, new_size, KV_MEM_SCRIPT);
    if (block != NULL)
        lua->used_bytes += new_size - old_size;
    return block;
}

/* An error outside of every protected call: ours. */
static int panic(lua_State *l)
{
    kv_log(KV_LOG_WARNING, "Lua error outside of a protected call: %s",
           lua_isstring(l, -1) ? lua_tostring(l, -1) : "?");
    abort();
}

static void on_count(lua_State *l, lua_Debug *ar)
{
    (void)ar;
    kv_lua_poll(l);
}

int kv_lua_end(lua_State *l)
{
    struct kv_lua *lua = kv_lua_of(l);
    lua->killed = true;
    lua_sethook(l, on_count, LUA_MASKCOUNT, 1);
    lua_sethook(lua->main, on_count, LUA_MASKCOUNT, 1);
    if (lua->run != NULL)
        lua_pushliteral(l, "Script killed by user with SCRIPT KILL...");
    else
        lua_pushliteral(l, "FUNCTION LOAD timeout");
    return lua_error(l);
}

void kv_lua_poll(lua_State *l)
{
    struct kv_lua *lua = kv_lua_of(l);
    if (lua->run != NULL && (lua->killed || kv_script_poll(lua->run)))
        kv_lua_end(l);
    if (lua->library != NULL && (lua->killed || kv_clock_ticks() >= lua->load_ticks))
        kv_lua_end(l);
}

static int open_protected(lua_State *l)
{
    kv_lua_open_sandbox(l);
    return 0;
}

static int open_for_functions(lua_State *l)
{
    kv_lua_open_sandbox(l);
    kv_lua_open_functions(l);
    return 0;
}

static struct kv_lua *create(lua_CFunction open)
{
    struct kv_lua *lua = kv_mem_try_zalloc(sizeof(*lua), KV_MEM_SCRIPT);
    if (lua == NULL)
        return NULL;
    lua->limit_bytes = SIZE_MAX;
    lua->collect_bytes = COLLECT_MIN_BYTES;
    kv_random_secure(&lua->random, sizeof(lua->random));
    lua->main = lua_newstate(allocate, lua);
    if (lua->main == NULL) {
        kv_mem_free(lua, sizeof(*lua), KV_MEM_SCRIPT);
        return NULL;
    }
    lua_atpanic(lua->main, panic);
    if (lua_cpcall(lua->main, open, NULL) != 0) {
        kv_lua_destroy(lua);
        return NULL;
    }
    lua_sethook(lua->main, on_count, LUA_MASKCOUNT, HOOK_COUNT);
    return lua;
}

struct kv_lua *kv_lua_create(void)
{
    return create(open_protected);
}

struct kv_lua *kv_lua_create_for_functions(void)
{
    return create(open_for_functions);
}

void kv_lua_set_limit(struct kv_lua *lua, struct kv_engine *e)
{
    uint64_t limit = kv_engine_options(e)->script_memory_limit;
    lua->limit_bytes = limit == 0 ? SIZE_MAX : (size_t)limit;
}

static void destroy_lua(void *lua)
{
    kv_lua_destroy(lua);
}

void kv_lua_drop(struct kv_engine *e, struct kv_lua *lua, bool async)
{
    if (async)
        kv_engine_background(e, destroy_lua, lua);
    else
        kv_lua_destroy(lua);
}

void kv_lua_destroy(struct kv_lua *lua)
{
    KV_ASSERT(lua->run == NULL && lua->library == NULL);
    lua_close(lua->main);
    KV_ASSERT(lua->used_bytes == 0);
    kv_mem_free(lua, sizeof(*lua), KV_MEM_SCRIPT);
}

struct source {
    struct kv_slice code;
    bool begun;
};

/* With a blank before it, so that it is never taken for precompiled code. */
static const char *read_code(lua_State *l, void *arg, size_t *len)
{
    struct source *s = arg;
    (void)l;
    if (!s->begun) {
        s->begun = true;
        *len = 1;
        return " ";
    }
    *len = s->code.len;
    s->code.len = 0;
    return *len > 0 ? s->code.ptr : NULL;
}

int kv_lua_load(lua_State *l, struct kv_slice code, const char *name)
{
    struct source s = {.code = code};
    return lua_load(l, read_code, &s, name);
}

static int collect_protected(lua_State *l)
{
    lua_gc(l, LUA_GCCOLLECT, 0);
    return 0;
}

/* For what an interpreter may need at any time: protected and not limited. */
static void run_unlimited(struct kv_lua *lua, lua_CFunction fn, void *arg)
{
    size_t limit = lua->limit_bytes;
    lua->limit_bytes = SIZE_MAX;
    (void)lua_cpcall(lua->main, fn, arg);
    lua_settop(lua->main, 0);
    lua->limit_bytes = limit;
}

static int unref_protected(lua_State *l)
{
    const int *reference = lua_touserdata(l, 1);
    luaL_unref(l, LUA_REGISTRYINDEX, *reference);
    return 0;
}

/* Giving a reference back may allocate: the list of free ones begins with it. */
void kv_lua_unref(struct kv_lua *lua, int reference)
{
    run_unlimited(lua, unref_protected, &reference);
}

/* Collecting may allocate, to make the table of strings smaller. */
void kv_lua_tidy(struct kv_lua *lua)
{
    if (KV_UNLIKELY(lua->killed)) {
        lua->killed = false;
        lua_sethook(lua->main, on_count, LUA_MASKCOUNT, HOOK_COUNT);
    }
    if (KV_LIKELY(lua->used_bytes < lua->collect_bytes))
        return;
    run_unlimited(lua, collect_protected, NULL);
    lua->collect_bytes = KV_MAX(lua->used_bytes * 2, COLLECT_MIN_BYTES);
}

/* Level 1 is the function that raised the error; a C function says nothing of a place in the
 * script, so then it is whoever called that. */
int kv_lua_note_error(lua_State *l)
{
    struct kv_lua *lua = kv_lua_of(l);
    lua_Debug ar;
    lua->source[0] = '\0';
    for (int level = 1; level <= 2 && lua_getstack(l, level, &ar); level++) {
        lua_getinfo(l, "Sl", &ar);
        snprintf(lua->source, sizeof(lua->source), "%.60s", ar.source);
        lua->line = ar.currentline;
        if (ar.what[0] != 'C')
            break;
    }
    return 1;
}
