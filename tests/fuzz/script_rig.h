/* A script's own interpreter for fuzz targets of the libraries that scripts have. A target is a
 * text in Lua that is its own oracle: it gets two strings of the input, calls the library through
 * pcall, and raises an error when what it got cannot be right.
 *
 * The first byte of an input says how much memory there is: 0 as much as the target's inputs may
 * need at most, which must be enough; else 512 times that number of bytes, so that allocations fail
 * at any place. */
#ifndef KV_TESTS_FUZZ_SCRIPT_RIG_H
#define KV_TESTS_FUZZ_SCRIPT_RIG_H

#include "base/slice.h"
#include "script/lua_priv.h"
#include <stdio.h>

#define SCRIPT_RIG_MEMORY ((size_t)32 << 20)
#define SCRIPT_RIG_STEP 512
#define SCRIPT_RIG_SHORT "not enough memory"

/* What every target's text may use. */
#define SCRIPT_RIG_TOOLS                                                                           \
    "local text, data = ...\n"                                                                     \
    "local function kept(ok, why, ...)\n"                                                          \
    "  if not ok and why == '" SCRIPT_RIG_SHORT "' then error(why, 0) end\n"                       \
    "  return ok, why, ...\n"                                                                      \
    "end\n"                                                                                        \
    "local function try(fn, ...) return kept(pcall(fn, ...)) end\n"                                \
    "local function must(what, why) if not what then error('broken: ' .. why, 0) end end\n"

struct script_rig_run {
    const char *code;
    struct kv_slice text, data; /* the script's two arguments */
    bool fine;                  /* it went to its end */
};

KV_INLINE int script_rig_protected(lua_State *l)
{
    struct script_rig_run *run = lua_touserdata(l, 1);
    if (luaL_loadbuffer(l, run->code, strlen(run->code), "@fuzz") != 0)
        return lua_error(l);
    lua_pushlstring(l, run->text.ptr, run->text.len);
    lua_pushlstring(l, run->data.ptr, run->data.len);
    lua_call(l, 2, 0);
    run->fine = true;
    return 0;
}

/* Runs the code in an interpreter of its own; ends the process when it complains. */
KV_INLINE void script_rig_run(const char *code, struct kv_slice text, struct kv_slice data,
                              uint8_t memory)
{
    static bool ready;
    struct script_rig_run run = {code, text, data, false};
    if (!ready)
        kv_mem_init();
    ready = true;
    int64_t before = kv_mem_used(KV_MEM_SCRIPT);
    struct kv_lua *lua = kv_lua_create();
    KV_ASSERT(lua != NULL);
    lua->limit_bytes =
        memory == 0 ? SCRIPT_RIG_MEMORY : lua->used_bytes + (size_t)memory * SCRIPT_RIG_STEP;
    int status = lua_cpcall(lua->main, script_rig_protected, &run);
    KV_ASSERT((status == 0) == run.fine);
    KV_ASSERT(lua->used_bytes <= lua->limit_bytes);
    if (status != 0) {
        const char *error = lua_tostring(lua->main, -1);
        bool short_of = error != NULL && strstr(error, SCRIPT_RIG_SHORT) != NULL;
        if (memory == 0 || !short_of)
            fprintf(stderr, "%s\n", error != NULL ? error : "an error that is no text");
        KV_ASSERT(memory != 0);
        KV_ASSERT(short_of);
    }
    kv_lua_destroy(lua);
    KV_ASSERT(kv_mem_used(KV_MEM_SCRIPT) == before);
}

#endif
