/* script/state.c: what an interpreter must be able to do when its memory is at the limit. */
#include "script/lua_priv.h"
#include "unit.h"

#define COUNT 8

static int references[COUNT];

static int take_references(lua_State *l)
{
    for (int i = 0; i < COUNT; i++) {
        lua_newtable(l);
        references[i] = luaL_ref(l, LUA_REGISTRYINDEX);
    }
    return 0;
}

/* A script is forgotten while another one is made known, so outside of every protected call. */
START_TEST(a_reference_is_given_back_at_the_limit)
{
    kv_mem_init();
    struct kv_lua *lua = kv_lua_create();
    ck_assert_ptr_nonnull(lua);
    ck_assert_int_eq(lua_cpcall(lua->main, take_references, NULL), 0);
    lua->limit_bytes = 0;
    for (int i = 0; i < COUNT; i++)
        kv_lua_unref(lua, references[i]);
    ck_assert_uint_eq(lua->limit_bytes, 0);
    for (int i = 0; i < COUNT; i++) {
        lua_rawgeti(lua->main, LUA_REGISTRYINDEX, references[i]);
        ck_assert(!lua_istable(lua->main, -1));
        lua_pop(lua->main, 1);
    }
    kv_lua_destroy(lua);
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "state");
    unit_add(&u, a_reference_is_given_back_at_the_limit);
    return unit_run(&u);
}
