/* script/json.c: cjson keeps within the memory of the interpreter and tells its errors as always.
 */
#include "script/lua_priv.h"
#include "unit.h"

#define LIMIT_BYTES ((size_t)16 << 20)

static struct kv_lua *lua;

static int run_protected(lua_State *l)
{
    const char *code = lua_touserdata(l, 1);
    if (luaL_loadbuffer(l, code, strlen(code), "@test") != 0)
        return lua_error(l);
    lua_call(l, 0, 0);
    return 0;
}

static void start(void)
{
    static bool ready;
    if (!ready)
        kv_mem_init();
    ready = true;
    lua = kv_lua_create();
    ck_assert_ptr_nonnull(lua);
    lua->limit_bytes = LIMIT_BYTES;
}

/* Runs a script, whose error is `why`; NULL: it has none. */
static void expect(const char *code, const char *why)
{
    union {
        const char *in;
        void *out;
    } text = {.in = code};
    int status = lua_cpcall(lua->main, run_protected, text.out);
    const char *error = status != 0 ? lua_tostring(lua->main, -1) : NULL;
    ck_assert_pstr_eq(error, why);
    ck_assert_uint_eq(lua->limit_bytes, LIMIT_BYTES);
    ck_assert_uint_le(lua->used_bytes, LIMIT_BYTES);
    lua_settop(lua->main, 0);
    kv_lua_tidy(lua);
}

/* Each of 60 tables has the next one twice: 2^60 values. */
START_TEST(a_table_that_is_reached_again_and_again_is_refused)
{
    start();
    expect("local t = {} for i = 1, 60 do t = {t, t} end cjson.encode(t)", "not enough memory");
    expect("local t = {} for i = 1, 60 do t = {a = t, b = t} end cjson.new().encode(t)",
           "not enough memory");
    expect("local t = {} for i = 1, 9 do t = {t, t} end assert(#cjson.encode(t) == 2557)", NULL);
    kv_lua_destroy(lua);
}
END_TEST

START_TEST(holes_of_lists_count)
{
    start();
    expect("local j = cjson.new() j.encode_sparse_array(false, 0) j.encode({[2^30] = 1})",
           "not enough memory");
    expect("cjson.encode({[2^30] = 1})",
           "test:1: Cannot serialise table: excessively sparse array");
    expect("local j = cjson.new() j.encode_sparse_array(true)"
           "assert(j.encode({[2^30] = 1}) == '{\"1073741824\":1}')",
           NULL);
    expect("assert(cjson.encode({[10] = 1}) == '[' .. string.rep('null,', 9) .. '1]')", NULL);
    kv_lua_destroy(lua);
}
END_TEST

START_TEST(a_text_that_needs_more_than_there_is_is_refused)
{
    start();
    expect("cjson.decode('[' .. string.rep('[],', 200000) .. '1]')", "not enough memory");
    expect("cjson.encode(string.rep('x', 4000000))", "not enough memory");
    expect("assert(#cjson.decode('[' .. string.rep('[],', 20000) .. '1]') == 20001)", NULL);
    expect("assert(#cjson.encode(string.rep('x', 1000000)) == 1000002)", NULL);
    kv_lua_destroy(lua);
}
END_TEST

/* Whatever the limit, the call ends well or with that error. */
START_TEST(every_limit_is_kept)
{
    static const char code[] =
        "local t = {} for i = 1, 20 do t['k' .. i] = {i, {}, 'text', true} end\n"
        "local text = cjson.encode(t)\n"
        "local again = cjson.decode(text)\n"
        "assert(#again.k20 == 4)";
    union {
        const char *in;
        void *out;
    } text = {.in = code};
    int failures = 0;
    for (size_t more = 0; more < 64 << 10; more += 256) {
        start();
        lua->limit_bytes = lua->used_bytes + more;
        size_t limit = lua->limit_bytes;
        int status = lua_cpcall(lua->main, run_protected, text.out);
        if (status != 0)
            ck_assert_str_eq(lua_tostring(lua->main, -1), "not enough memory");
        ck_assert_uint_eq(lua->limit_bytes, limit);
        ck_assert_uint_le(lua->used_bytes, limit);
        failures += status != 0;
        kv_lua_destroy(lua);
    }
    ck_assert_int_gt(failures, 8);
    ck_assert_int_lt(failures, 248);
}
END_TEST

START_TEST(errors_name_their_place)
{
    start();
    expect("cjson.encode(cjson.decode('[1,2'))",
           "test:1: Expected comma or array end but found T_END at character 5");
    expect("\nlocal f = cjson.encode f(print)",
           "test:2: Script attempted to access nonexistent global variable 'print'");
    expect("\n\ncjson.encode(pcall)", "test:3: Cannot serialise function: type not supported");
    expect("cjson.encode()", "test:1: bad argument #1 to 'encode' (expected 1 argument)");
    expect("cjson.decode(1, 2)", "test:1: bad argument #1 to 'decode' (expected 1 argument)");
    expect("cjson.decode({})", "test:1: bad argument #1 to 'decode' (string expected, got table)");
    kv_lua_destroy(lua);
}
END_TEST

START_TEST(depth_has_an_end)
{
    start();
    expect("local t = {} t[1], t[2] = t, t cjson.encode(t)",
           "test:1: Cannot serialise, excessive nesting (1001)");
    expect("local t = {} t.a = t local j = cjson.new() j.encode_max_depth(5) j.encode(t)",
           "test:1: Cannot serialise, excessive nesting (6)");
    expect("local t = {} for i = 1, 999 do t = {t} end cjson.decode(cjson.encode(t))", NULL);
    expect("local t = {} for i = 1, 1000 do t = {t} end cjson.encode(t)",
           "test:1: Cannot serialise, excessive nesting (1001)");
    kv_lua_destroy(lua);
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "json");
    unit_add(&u, a_table_that_is_reached_again_and_again_is_refused);
    unit_add(&u, holes_of_lists_count);
    unit_add(&u, a_text_that_needs_more_than_there_is_is_refused);
    unit_add(&u, every_limit_is_kept);
    unit_add(&u, errors_name_their_place);
    unit_add(&u, depth_has_an_end);
    return unit_run(&u);
}
