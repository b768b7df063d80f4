/* Replies to Lua values, and Lua values to replies. What corresponds to what is Redis' documented
 * table ("Lua API reference", data type conversion):
 *
 *   reply                 Lua                          back
 *   integer               number                       integer, cut towards zero
 *   bulk                  string                       bulk
 *   status, error         {ok = ..}, {err = ..}        status, error
 *   array                 table from 1 on              array up to the first nil
 *   null (RESP2), (RESP3) false, nil                   null, both
 *   map, set (RESP3)      {map = {}}, {set = {}}       map, set
 *   double, big number    {double = n}, {big_number =} double, big number
 *   verbatim              {verbatim_string = {string =, format =}}
 *   boolean               boolean                      1 and null, after redis.setresp(3) booleans
 *
 * Replies come from our own commands and are complete, so nothing is checked but by assertions.
 * They lie in one chunk, or are put together in the arena of the script's commands. Values come
 * from the script: tables may be nested without end, or be their own elements; Lua's limit of its
 * stack is the limit of depth, as in Redis. With two such elements that depth would not be reached
 * before the end of time, so a reply costs: what the interpreter could hold without naming a table
 * twice always passes (run_protected in eval.c).
 */
#include "base/number.h"
#include "engine/client.h"
#include "proto/reply.h"
#include "script/lua_priv.h"
#include <math.h>

#define VALUE_BYTES 16 /* of a value in a table */

/* --- replies to values --- */

struct reader {
    const char *pos;
    const char *end;
};

/* The rest of a line; pos moves behind its end. */
static struct kv_slice read_line(struct reader *r)
{
    const char *end = memchr(r->pos, '\r', (size_t)(r->end - r->pos));
    KV_ASSERT(end != NULL);
    struct kv_slice line = kv_slice(r->pos, (size_t)(end - r->pos));
    r->pos = end + 2;
    return line;
}

static int64_t read_number(struct reader *r)
{
    int64_t value;
    bool ok = kv_int_parse(read_line(r), &value);
    KV_ASSERT(ok);
    return value;
}

static struct kv_slice read_bytes(struct reader *r, int64_t len)
{
    KV_ASSERT(len >= 0 && r->end - r->pos >= len + 2);
    struct kv_slice bytes = kv_slice(r->pos, (size_t)len);
    r->pos += len + 2;
    return bytes;
}

static void push_field(lua_State *l, const char *name, struct kv_slice text)
{
    lua_createtable(l, 0, 1);
    lua_pushlstring(l, text.ptr, text.len);
    lua_setfield(l, -2, name);
}

static void push_value(lua_State *l, struct reader *r);

static void push_bulk(lua_State *l, struct reader *r)
{
    int64_t len = read_number(r);
    if (len < 0) {
        lua_pushboolean(l, 0);
        return;
    }
    struct kv_slice bytes = read_bytes(r, len);
    lua_pushlstring(l, bytes.ptr, bytes.len);
}

static void push_array(lua_State *l, struct reader *r)
{
    int64_t count = read_number(r);
    if (count < 0) {
        lua_pushboolean(l, 0);
        return;
    }
    lua_createtable(l, (int)KV_MIN(count, (int64_t)1 << 24), 0);
    for (int64_t i = 1; i <= count; i++) {
        push_value(l, r);
        lua_rawseti(l, -2, (int)i);
    }
}

/* {name = {key = value}}; a set's values are true. */
static void push_pairs(lua_State *l, struct reader *r, const char *name, bool set)
{
    int64_t count = read_number(r);
    lua_createtable(l, 0, 1);
    lua_createtable(l, 0, (int)KV_MIN(count, (int64_t)1 << 24));
    for (int64_t i = 0; i < count; i++) {
        push_value(l, r);
        if (set)
            lua_pushboolean(l, 1);
        else
            push_value(l, r);
        lua_rawset(l, -3);
    }
    lua_setfield(l, -2, name);
}

static void push_verbatim(lua_State *l, struct reader *r)
{
    struct kv_slice bytes = read_bytes(r, read_number(r));
    KV_ASSERT(bytes.len >= 4);
    lua_createtable(l, 0, 1);
    lua_createtable(l, 0, 2);
    lua_pushlstring(l, bytes.ptr + 4, bytes.len - 4);
    lua_setfield(l, -2, "string");
    lua_pushlstring(l, bytes.ptr, 3);
    lua_setfield(l, -2, "format");
    lua_setfield(l, -2, "verbatim_string");
}

static void push_double(lua_State *l, struct reader *r)
{
    double value;
    struct kv_slice text = read_line(r);
    if (!kv_double_parse(text, &value))
        value = NAN;
    lua_createtable(l, 0, 1);
    lua_pushnumber(l, value);
    lua_setfield(l, -2, "double");
}

static void push_error(lua_State *l, struct reader *r)
{
    push_field(l, "err", read_line(r));
    lua_pushboolean(l, 1);
    lua_setfield(l, -2, "ignore_error_stats_update");
}

static void push_value(lua_State *l, struct reader *r)
{
    luaL_checkstack(l, 4, "too many nested replies");
    switch (*r->pos++) {
    case ':':
        lua_pushnumber(l, (lua_Number)read_number(r));
        break;
    case '$':
        push_bulk(l, r);
        break;
    case '+':
        push_field(l, "ok", read_line(r));
        break;
    case '-':
        push_error(l, r);
        break;
    case '*':
    case '>':
        push_array(l, r);
        break;
    case '%':
        push_pairs(l, r, "map", false);
        break;
    case '~':
        push_pairs(l, r, "set", true);
        break;
    case '_':
        (void)read_line(r);
        lua_pushnil(l);
        break;
    case '#':
        lua_pushboolean(l, read_line(r).ptr[0] == 't');
        break;
    case ',':
        push_double(l, r);
        break;
    case '(':
        push_field(l, "big_number", read_line(r));
        break;
    case '=':
        push_verbatim(l, r);
        break;
    default:
        KV_ASSERT(!"a reply of a known type");
    }
}

void kv_lua_push_reply(lua_State *l, struct kv_out *o)
{
    struct reader r;
    kv_out_settle(o);
    KV_ASSERT(o->head != NULL && o->head->len > 0);
    if (KV_LIKELY(o->head->next == NULL)) {
        r = (struct reader){o->head->data, o->head->data + o->head->len};
    } else {
        size_t len = 0;
        for (const struct kv_chunk *k = o->head; k != NULL; k = k->next)
            len += k->len;
        char *bytes = lua_newuserdata(l, len); /* counted and bounded as what it becomes */
        r = (struct reader){bytes, bytes + len};
        for (const struct kv_chunk *k = o->head; k != NULL; bytes += k->len, k = k->next)
            memcpy(bytes, k->data, k->len);
        push_value(l, &r);
        lua_remove(l, -2);
        return;
    }
    push_value(l, &r);
}

/* --- values to replies --- */

/* Pushes a field of the table on top; true when it has the type, else nothing is pushed. */
static bool push_typed(lua_State *l, const char *name, int type)
{
    lua_pushstring(l, name);
    lua_rawget(l, -2);
    if (lua_type(l, -1) == type)
        return true;
    lua_pop(l, 1);
    return false;
}

static struct kv_slice slice_at(lua_State *l, int index)
{
    size_t len;
    const char *bytes = lua_tolstring(l, index, &len);
    return kv_slice(bytes, len);
}

/* A line may not hold ends of lines: they become blanks. */
static void append_line(struct kv_out *out, struct kv_slice text)
{
    while (text.len > 0) {
        size_t n = 0;
        while (n < text.len && text.ptr[n] != '\r' && text.ptr[n] != '\n')
            n++;
        kv_out_append(out, text.ptr, n);
        if (n < text.len) {
            kv_out_append(out, " ", 1);
            n++;
        }
        text = kv_slice(text.ptr + n, text.len - n);
    }
    kv_out_append(out, "\r\n", 2);
}

struct kv_slice kv_script_error_text(struct kv_slice text)
{
    while (text.len > 0 && (text.ptr[text.len - 1] == '\r' || text.ptr[text.len - 1] == '\n'))
        text.len--;
    return text;
}

static void reply_line(struct kv_out *out, char type, struct kv_slice text)
{
    if (type == '-')
        text = kv_script_error_text(text);
    kv_out_append(out, &type, 1);
    append_line(out, text);
}

static void reply_big_number(struct kv_out *out, struct kv_slice text)
{
    char header[KV_INT_TEXT_MAX + 3];
    if (out->resp == 3) {
        reply_line(out, '(', text);
        return;
    }
    size_t len = 1 + kv_uint_print(text.len, header + 1);
    header[0] = '$';
    header[len++] = '\r';
    header[len++] = '\n';
    kv_out_append(out, header, len);
    append_line(out, text);
}

static void reply_integer(struct kv_out *out, lua_Number n)
{
    /* What does not fit is what the processor makes of it, as Redis' clients know it. */
    bool fits = n >= -9223372036854775808.0 && n < 9223372036854775808.0;
    kv_reply_int(out, fits ? (int64_t)n : INT64_MIN);
}

static void reply_map(lua_State *l, struct kv_out *out, bool bools, bool set)
{
    size_t count = 0;
    luaL_checkstack(l, 4, "too many nested values");
    for (lua_pushnil(l); lua_next(l, -2) != 0; lua_pop(l, 1))
        count++;
    if (set)
        kv_reply_set(out, count);
    else
        kv_reply_map(out, count);
    lua_pushnil(l);
    while (lua_next(l, -2) != 0) {
        lua_pushvalue(l, -2);
        kv_lua_reply(l, out, bools);
        if (set)
            lua_pop(l, 1);
        else
            kv_lua_reply(l, out, bools);
    }
}

static bool reply_verbatim(lua_State *l, struct kv_out *out)
{
    bool done = false;
    if (!push_typed(l, "format", LUA_TSTRING))
        return false;
    lua_insert(l, -2);
    if (push_typed(l, "string", LUA_TSTRING)) {
        char format[3] = {' ', ' ', ' '};
        struct kv_slice name = slice_at(l, -3);
        memcpy(format, name.ptr, KV_MIN(name.len, sizeof(format)));
        char text[4] = {format[0], format[1], format[2], '\0'};
        kv_reply_verbatim(out, slice_at(l, -1), text);
        lua_pop(l, 1);
        done = true;
    }
    lua_remove(l, -2);
    return done;
}

/* The tables that stand for another type. The table stays on the stack. */
static bool reply_special(lua_State *l, struct kv_out *out, bool bools)
{
    bool done = true;
    if (push_typed(l, "err", LUA_TSTRING)) {
        reply_line(out, '-', slice_at(l, -1));
    } else if (push_typed(l, "ok", LUA_TSTRING)) {
        reply_line(out, '+', slice_at(l, -1));
    } else if (push_typed(l, "double", LUA_TNUMBER)) {
        kv_reply_double(out, lua_tonumber(l, -1));
    } else if (push_typed(l, "map", LUA_TTABLE)) {
        reply_map(l, out, bools, false);
    } else if (push_typed(l, "set", LUA_TTABLE)) {
        reply_map(l, out, bools, true);
    } else if (push_typed(l, "big_number", LUA_TSTRING)) {
        reply_big_number(out, slice_at(l, -1));
    } else if (push_typed(l, "verbatim_string", LUA_TTABLE)) {
        done = reply_verbatim(l, out);
    } else {
        return false;
    }
    lua_pop(l, 1);
    return done;
}

static void reply_array(lua_State *l, struct kv_out *out, bool bools)
{
    int count = 0;
    for (bool more = true; more;) {
        lua_rawgeti(l, -1, count + 1);
        more = !lua_isnil(l, -1);
        count += more;
        lua_pop(l, 1);
    }
    kv_reply_array(out, (size_t)count);
    for (int i = 1; i <= count; i++) {
        lua_rawgeti(l, -1, i);
        kv_lua_reply(l, out, bools);
    }
}

/* What the value on top of the stack costs by itself: a place in a table, and its bytes. A script
 * pays for that with its own memory, unless it names one table or string again and again. */
static void pay(lua_State *l)
{
    struct kv_lua *lua = kv_lua_of(l);
    size_t cost = VALUE_BYTES + (lua_type(l, -1) == LUA_TSTRING ? lua_objlen(l, -1) : 0);
    if (cost > lua->reply_left)
        luaL_error(l, "reply is too large");
    lua->reply_left -= cost;
}

void kv_lua_reply(lua_State *l, struct kv_out *out, bool bools)
{
    pay(l);
    if (!lua_checkstack(l, 4)) {
        KV_REPLY_RAW(out, "-ERR reached lua stack limit\r\n");
        lua_pop(l, 1);
        return;
    }
    switch (lua_type(l, -1)) {
    case LUA_TSTRING:
        kv_reply_slice(out, slice_at(l, -1));
        break;
    case LUA_TNUMBER:
        reply_integer(out, lua_tonumber(l, -1));
        break;
    case LUA_TBOOLEAN:
        if (bools)
            kv_reply_bool(out, lua_toboolean(l, -1));
        else if (lua_toboolean(l, -1))
            kv_reply_int(out, 1);
        else
            kv_reply_null(out);
        break;
    case LUA_TTABLE:
        if (!reply_special(l, out, bools))
            reply_array(l, out, bools);
        break;
    default:
        kv_reply_null(out);
    }
    lua_pop(l, 1);
}
