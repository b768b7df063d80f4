/* The library cjson of scripts: lua-cjson, kept within a script's memory.
 *
 * lua-cjson builds texts in buffers of the C library, which nobody counts, and does not give them
 * back when an error that is not its own jumps out of it: one of memory. So both functions that
 * build something are called from here. What they may need is estimated first, never too low, and
 * the error "not enough memory" is raised when there is less; then they run without a limit, so
 * that no allocation of Lua's fails inside of them.
 *
 *   decode   one pass over the text counts what becomes a table, a field, an element or a string
 *   encode   a walk over the value counts bytes; a table that is reached again counts again, as it
 *            is written again. What the walk finds out about depth it tells in cjson's words.
 *
 * Errors get the place in the script from here, since cjson sees a C function as its caller.
 *
 * Rejected: to replace cjson's buffers by some of ours at link time; they have no public header.
 *
 * Threads: as state.c.
 */
#include "script/lua_priv.h"
#include <lua5.1/lua-cjson.h>

/* What Lua needs at most for parts of a text, a table's growth included. */
#define TABLE_BYTES 192
#define ELEMENT_BYTES 48
#define FIELD_BYTES 128
#define STRING_BYTES 64
#define SPARE_BYTES 4096

#define NUMBER_BYTES 32   /* that cjson makes room for */
#define WORD_BYTES 6      /* null, true, false and a comma */
#define BYTES_PER_BYTE 6  /* of a string: \u0000 */
#define POLL_VALUES 65536 /* values between two questions whether the script must end */
#define DEPTH_UNASKED 32  /* from here on the setting is looked up */
#define LENGTH_UNASKED 10 /* likewise: a list that is shorter may have holes in any case */
#define RATIO_UNASKED 2

/* Upvalues of decode and encode. */
enum { ORIGINAL = 1, MAX_DEPTH, SPARSE_ARRAY };

static size_t available_bytes(const struct kv_lua *lua)
{
    return lua->used_bytes < lua->limit_bytes ? lua->limit_bytes - lua->used_bytes : 0;
}

/* Raises Lua's own error of memory: nobody has as much as the limit beside what there is. */
static void refuse(lua_State *l)
{
    (void)lua_newuserdata(l, kv_lua_of(l)->limit_bytes);
    KV_ASSERT(false);
}

/* Calls cjson with the one argument. */
static int call_original(lua_State *l, size_t bytes)
{
    struct kv_lua *lua = kv_lua_of(l);
    size_t limit = lua->limit_bytes;
    if (limit != SIZE_MAX && bytes + SPARE_BYTES > available_bytes(lua))
        refuse(l);
    lua_pushvalue(l, lua_upvalueindex(ORIGINAL));
    lua_insert(l, 1);
    lua->limit_bytes = SIZE_MAX;
    int status = lua_pcall(l, 1, 1, 0);
    lua->limit_bytes = limit;
    if (status == 0)
        return 1;
    if (status == LUA_ERRRUN && lua_type(l, -1) == LUA_TSTRING) {
        luaL_where(l, 1);
        lua_insert(l, -2);
        lua_concat(l, 2);
    }
    return lua_error(l);
}

/* --- decode --- */

static size_t bytes_of_text(const char *p, const char *end)
{
    size_t bytes = 0;
    for (; p < end; p++) {
        const char *begin = p;
        switch (*p) {
        case '[':
        case '{':
            bytes += TABLE_BYTES;
            break;
        case ',':
            bytes += ELEMENT_BYTES;
            break;
        case ':':
            bytes += FIELD_BYTES;
            break;
        case '"':
            for (p++; p < end && *p != '"'; p++)
                p += *p == '\\';
            bytes += STRING_BYTES + (size_t)(p - begin);
            break;
        default:
            break;
        }
    }
    return bytes;
}

static int decode(lua_State *l)
{
    size_t len;
    luaL_argcheck(l, lua_gettop(l) == 1, 1, "expected 1 argument");
    const char *text = luaL_checklstring(l, 1, &len);
    /* No byte needs more than one that begins a table, so that most texts need no look. */
    if (len < available_bytes(kv_lua_of(l)) / TABLE_BYTES)
        return call_original(l, 0);
    return call_original(l, bytes_of_text(text, text + len));
}

/* --- encode --- */

struct walk {
    lua_State *l;
    size_t bytes, bytes_max;
    size_t values;
    int depth, depth_max; /* 0: not asked yet */
};

/* Result `place` of one of cjson's settings. */
static lua_Number setting(lua_State *l, int upvalue, int place)
{
    luaL_checkstack(l, 4, NULL);
    lua_pushvalue(l, lua_upvalueindex(upvalue));
    lua_call(l, 0, 3);
    lua_Number value = lua_tonumber(l, place - 4);
    lua_pop(l, 3);
    return value;
}

static void add(struct walk *w, size_t bytes)
{
    w->bytes += bytes;
    if (w->bytes > w->bytes_max)
        refuse(w->l);
    if (++w->values % POLL_VALUES == 0)
        kv_lua_poll(w->l);
}

static void begin_table(struct walk *w)
{
    w->depth++;
    if (w->depth == DEPTH_UNASKED && w->depth_max == 0)
        w->depth_max = (int)setting(w->l, MAX_DEPTH, 1);
    if ((w->depth_max != 0 && w->depth > w->depth_max) || !lua_checkstack(w->l, 4))
        luaL_error(w->l, "Cannot serialise, excessive nesting (%d)",
                   w->depth_max != 0 ? KV_MIN(w->depth, w->depth_max + 1) : w->depth);
}

/* Holes of a list are null, unless there are so many that it is none. */
static void add_holes(struct walk *w, size_t count, lua_Number greatest)
{
    if (greatest <= LENGTH_UNASKED || greatest <= (lua_Number)count * RATIO_UNASKED)
        return;
    lua_Number ratio = setting(w->l, SPARSE_ARRAY, 2);
    if (ratio > 0 && greatest > (lua_Number)count * ratio &&
        greatest > setting(w->l, SPARSE_ARRAY, 3))
        return;
    if (greatest * WORD_BYTES > (lua_Number)w->bytes_max)
        refuse(w->l);
    add(w, (size_t)greatest * WORD_BYTES);
}

/* Of a value that is no table, or of a table without what is in it. */
static size_t bytes_of(lua_State *l, int index, int type)
{
    if (type == LUA_TSTRING)
        return lua_objlen(l, index) * BYTES_PER_BYTE + WORD_BYTES;
    return type == LUA_TNUMBER ? NUMBER_BYTES : WORD_BYTES;
}

/* Of the table on top. */
static void add_table(struct walk *w)
{
    lua_State *l = w->l;
    size_t count = 0;
    lua_Number greatest = 0;
    begin_table(w);
    for (lua_pushnil(l); lua_next(l, -2) != 0; lua_pop(l, 1)) {
        int key = lua_type(l, -2), value = lua_type(l, -1);
        count++;
        if (key == LUA_TNUMBER)
            greatest = KV_MAX(greatest, lua_tonumber(l, -2));
        add(w, bytes_of(l, -2, key) + bytes_of(l, -1, value));
        if (value == LUA_TTABLE)
            add_table(w);
    }
    add_holes(w, count, greatest);
    w->depth--;
}

static int encode(lua_State *l)
{
    struct kv_lua *lua = kv_lua_of(l);
    struct walk w = {.l = l, .bytes_max = SIZE_MAX};
    luaL_argcheck(l, lua_gettop(l) == 1, 1, "expected 1 argument");
    if (lua->limit_bytes != SIZE_MAX)
        w.bytes_max = available_bytes(lua);
    add(&w, bytes_of(l, 1, lua_type(l, 1)));
    if (lua_istable(l, 1))
        add_table(&w);
    return call_original(l, w.bytes);
}

/* --- putting it together --- */

static void wrap_instance(lua_State *l);

static int new_instance(lua_State *l)
{
    lua_settop(l, 0);
    lua_pushvalue(l, lua_upvalueindex(ORIGINAL));
    lua_call(l, 0, 1);
    wrap_instance(l);
    return 1;
}

/* Of the table on top. */
static void wrap(lua_State *l, const char *name, lua_CFunction fn)
{
    lua_getfield(l, -1, name);
    lua_getfield(l, -2, "encode_max_depth");
    lua_getfield(l, -3, "encode_sparse_array");
    KV_ASSERT(lua_iscfunction(l, -3));
    KV_ASSERT(lua_iscfunction(l, -2));
    KV_ASSERT(lua_iscfunction(l, -1));
    lua_pushcclosure(l, fn, 3);
    lua_setfield(l, -2, name);
}

static void wrap_instance(lua_State *l)
{
    luaL_checkstack(l, 4, NULL);
    wrap(l, "decode", decode);
    wrap(l, "encode", encode);
    wrap(l, "new", new_instance);
}

int kv_lua_open_json(lua_State *l)
{
    lua_pushcfunction(l, luaopen_cjson);
    lua_pushliteral(l, "cjson");
    lua_call(l, 1, 1);
    wrap_instance(l);
    return 1;
}
