/* The library cmsgpack of scripts: values to MessagePack and back.
 *
 * Format: the MessagePack specification, but for what its older revision did not have: binary and
 * extension types are refused as bad data, as programs written for Redis expect. What goes in:
 *
 *   number    an integer of 64 bits in its shortest form; else a float if it loses nothing, or a
 *             double
 *   table     an array when its keys are 1 .. n, else a map; beyond 16 levels nil
 *   others    nil
 *
 * The text under construction lies in a userdata at a fixed place of the stack, so that it is
 * counted and bounded as a script's memory and gone after an error. Input is read through a cursor
 * that never passes its end; lengths in it are believed only as far as there are bytes. A few
 * tables that contain each other many times are a text without end in practice, so packing asks
 * from time to time whether the script must end.
 *
 * Threads: as state.c.
 */
#include "script/lua_priv.h"
#include <math.h>

#define LEVELS_MAX 16
#define POLL_VALUES 65536 /* values between two questions whether the script must end */

/* --- packing --- */

struct packer {
    lua_State *l;
    int place; /* of the userdata on the stack */
    char *bytes;
    size_t len, capacity;
    size_t values; /* so far */
};

static char *space(struct packer *p, size_t need)
{
    if (p->capacity - p->len < need) {
        size_t capacity = KV_MAX(p->capacity * 2, p->len + need);
        char *bytes = lua_newuserdata(p->l, capacity);
        memcpy(bytes, p->bytes, p->len);
        lua_replace(p->l, p->place);
        p->bytes = bytes;
        p->capacity = capacity;
    }
    p->len += need;
    return p->bytes + p->len - need;
}

/* A type and `size` bytes of a number, the highest first. */
static void put_number(struct packer *p, unsigned type, uint64_t value, size_t size)
{
    char *to = space(p, size + 1);
    to[0] = (char)type;
    for (size_t i = 0; i < size; i++)
        to[1 + i] = (char)(value >> (8 * (size - 1 - i)));
}

static void put_integer(struct packer *p, int64_t n)
{
    uint64_t bits = (uint64_t)n;
    if (n >= -32 && n <= 127)
        put_number(p, (unsigned)bits & 0xff, 0, 0);
    else if (n >= 0)
        put_number(p,
                   n <= 0xff         ? 0xcc
                   : n <= 0xffff     ? 0xcd
                   : n <= 0xffffffff ? 0xce
                                     : 0xcf,
                   bits,
                   n <= 0xff         ? 1
                   : n <= 0xffff     ? 2
                   : n <= 0xffffffff ? 4
                                     : 8);
    else
        put_number(p,
                   n >= INT8_MIN    ? 0xd0
                   : n >= INT16_MIN ? 0xd1
                   : n >= INT32_MIN ? 0xd2
                                    : 0xd3,
                   bits,
                   n >= INT8_MIN    ? 1
                   : n >= INT16_MIN ? 2
                   : n >= INT32_MIN ? 4
                                    : 8);
}

static void put_real(struct packer *p, double d)
{
    float f = (float)d;
    uint64_t bits = 0;
    if ((double)f == d) {
        uint32_t half;
        memcpy(&half, &f, sizeof(half));
        put_number(p, 0xca, half, 4);
    } else {
        memcpy(&bits, &d, sizeof(bits));
        put_number(p, 0xcb, bits, 8);
    }
}

static void pack_number(struct packer *p, lua_Number n)
{
    if (n == floor(n) && n >= -9223372036854775808.0 && n < 9223372036854775808.0)
        put_integer(p, (int64_t)n);
    else
        put_real(p, n);
}

static void pack_string(struct packer *p)
{
    size_t len;
    const char *bytes = lua_tolstring(p->l, -1, &len);
    if (len < 32)
        put_number(p, 0xa0 | (unsigned)len, 0, 0);
    else
        put_number(p,
                   len <= 0xff     ? 0xd9
                   : len <= 0xffff ? 0xda
                                   : 0xdb,
                   len,
                   len <= 0xff     ? 1
                   : len <= 0xffff ? 2
                                   : 4);
    if (len > UINT32_MAX)
        luaL_error(p->l, "string too long");
    memcpy(space(p, len), bytes, len);
}

/* How many pairs the table on top has; *array: their keys are 1 .. n. */
static size_t count_pairs(lua_State *l, bool *array)
{
    size_t count = 0;
    lua_Number greatest = 0;
    *array = true;
    for (lua_pushnil(l); lua_next(l, -2) != 0; lua_pop(l, 1)) {
        count++;
        lua_Number key = lua_type(l, -2) == LUA_TNUMBER ? lua_tonumber(l, -2) : 0;
        if (key < 1 || key != floor(key))
            *array = false;
        else
            greatest = KV_MAX(greatest, key);
    }
    *array = *array && greatest == (lua_Number)count;
    return count;
}

static void put_count(struct packer *p, size_t count, bool array)
{
    if (count <= 15)
        put_number(p, (array ? 0x90u : 0x80u) | (unsigned)count, 0, 0);
    else if (count <= 0xffff)
        put_number(p, array ? 0xdc : 0xde, count, 2);
    else
        put_number(p, array ? 0xdd : 0xdf, count, 4);
}

static void pack_value(struct packer *p, int level);

static void pack_table(struct packer *p, int level)
{
    bool array;
    lua_State *l = p->l;
    size_t count = count_pairs(l, &array);
    put_count(p, count, array);
    if (array) {
        for (size_t i = 1; i <= count; i++) {
            lua_rawgeti(l, -1, (int)i);
            pack_value(p, level + 1);
        }
        return;
    }
    lua_pushnil(l);
    while (lua_next(l, -2) != 0) {
        lua_pushvalue(l, -2);
        pack_value(p, level + 1);
        pack_value(p, level + 1);
    }
}

/* Pops the value. */
static void pack_value(struct packer *p, int level)
{
    lua_State *l = p->l;
    luaL_checkstack(l, 6, "too many nested values");
    if (++p->values % POLL_VALUES == 0)
        kv_lua_poll(l);
    switch (lua_type(l, -1)) {
    case LUA_TSTRING:
        pack_string(p);
        break;
    case LUA_TBOOLEAN:
        put_number(p, lua_toboolean(l, -1) ? 0xc3 : 0xc2, 0, 0);
        break;
    case LUA_TNUMBER:
        pack_number(p, lua_tonumber(l, -1));
        break;
    case LUA_TTABLE:
        if (level < LEVELS_MAX) {
            pack_table(p, level);
            break;
        }
        /* fallthrough */
    default:
        put_number(p, 0xc0, 0, 0);
    }
    lua_pop(l, 1);
}

static int pack(lua_State *l)
{
    struct packer p = {.l = l, .capacity = 128};
    int count = lua_gettop(l);
    if (count == 0)
        return luaL_argerror(l, 0, "MessagePack pack needs input.");
    p.bytes = lua_newuserdata(l, p.capacity);
    p.place = count + 1;
    luaL_checkstack(l, 2, NULL);
    for (int i = 1; i <= count; i++) {
        lua_pushvalue(l, i);
        pack_value(&p, 0);
    }
    lua_pushlstring(l, p.bytes, p.len);
    return 1;
}

/* --- unpacking --- */

struct cursor {
    lua_State *l;
    const uint8_t *pos;
    size_t left;
};

static const uint8_t *take(struct cursor *c, size_t len)
{
    if (c->left < len)
        luaL_error(c->l, "Missing bytes in input.");
    const uint8_t *bytes = c->pos;
    c->pos += len;
    c->left -= len;
    return bytes;
}

static uint64_t take_number(struct cursor *c, size_t size)
{
    const uint8_t *bytes = take(c, size);
    uint64_t value = 0;
    for (size_t i = 0; i < size; i++)
        value = value << 8 | bytes[i];
    return value;
}

static void push_signed(struct cursor *c, size_t size)
{
    uint64_t value = take_number(c, size);
    unsigned unused = 64 - 8 * (unsigned)size;
    lua_pushnumber(c->l, (lua_Number)((int64_t)(value << unused) >> unused));
}

static void push_text(struct cursor *c, uint64_t len)
{
    const uint8_t *bytes = take(c, len);
    lua_pushlstring(c->l, (const char *)bytes, len);
}

static void push_real(struct cursor *c, size_t size)
{
    uint64_t bits = take_number(c, size);
    double d;
    if (size == 4) {
        uint32_t half = (uint32_t)bits;
        float f;
        memcpy(&f, &half, sizeof(f));
        d = f;
    } else {
        memcpy(&d, &bits, sizeof(d));
    }
    lua_pushnumber(c->l, d);
}

static void push_value(struct cursor *c);

static void push_array(struct cursor *c, uint64_t count)
{
    luaL_checkstack(c->l, 3, "in function mp_decode_to_lua_array");
    lua_newtable(c->l);
    for (uint64_t i = 1; i <= count; i++) {
        push_value(c);
        lua_rawseti(c->l, -2, (int)i);
    }
}

static void push_map(struct cursor *c, uint64_t count)
{
    luaL_checkstack(c->l, 4, "in function mp_decode_to_lua_hash");
    lua_newtable(c->l);
    for (uint64_t i = 0; i < count; i++) {
        push_value(c);
        push_value(c);
        lua_rawset(c->l, -3);
    }
}

/* The types that stand for themselves, 0xc0 to 0xdf. */
static void push_typed(struct cursor *c, unsigned type)
{
    lua_State *l = c->l;
    switch (type) {
    case 0xc0:
        lua_pushnil(l);
        break;
    case 0xc2:
    case 0xc3:
        lua_pushboolean(l, type == 0xc3);
        break;
    case 0xca:
    case 0xcb:
        push_real(c, type == 0xca ? 4 : 8);
        break;
    case 0xcc:
    case 0xcd:
    case 0xce:
    case 0xcf:
        lua_pushnumber(l, (lua_Number)take_number(c, (size_t)1 << (type - 0xcc)));
        break;
    case 0xd0:
    case 0xd1:
    case 0xd2:
    case 0xd3:
        push_signed(c, (size_t)1 << (type - 0xd0));
        break;
    case 0xd9:
    case 0xda:
    case 0xdb:
        push_text(c, take_number(c, (size_t)1 << (type - 0xd9)));
        break;
    case 0xdc:
    case 0xdd:
        push_array(c, take_number(c, type == 0xdc ? 2 : 4));
        break;
    case 0xde:
    case 0xdf:
        push_map(c, take_number(c, type == 0xde ? 2 : 4));
        break;
    default:
        luaL_error(l, "Bad data format in input.");
    }
}

static void push_value(struct cursor *c)
{
    unsigned type = *take(c, 1);
    luaL_checkstack(c->l, 3, "in function mp_decode_to_lua_array");
    if (type <= 0x7f)
        lua_pushnumber(c->l, type);
    else if (type <= 0x8f)
        push_map(c, type & 15);
    else if (type <= 0x9f)
        push_array(c, type & 15);
    else if (type <= 0xbf)
        push_text(c, type & 31);
    else if (type >= 0xe0)
        lua_pushnumber(c->l, (int)type - 256);
    else
        push_typed(c, type);
}

/* Up to `limit` values from `offset` on, behind the offset of what follows (-1: nothing does). Both
 * 0: all of them, and no offset. */
static int unpack_some(lua_State *l, int limit, int offset)
{
    size_t len;
    const char *bytes = luaL_checklstring(l, 1, &len);
    bool all = limit == 0 && offset == 0;
    int count = 0;
    if (offset < 0 || limit < 0)
        return luaL_error(l, "Invalid request to unpack with offset of %d and limit of %d.", offset,
                          (int)len);
    if ((size_t)offset > len)
        return luaL_error(l, "Start offset %d greater than input length %d.", offset, (int)len);
    struct cursor c = {l, (const uint8_t *)bytes + offset, len - (size_t)offset};
    if (!all)
        lua_pushnil(l); /* the offset's place */
    for (; c.left > 0 && (all || count < limit); count++) {
        luaL_checkstack(l, 2, "too many return values at once; use unpack_one or unpack_limit");
        push_value(&c);
    }
    if (all)
        return count;
    lua_pushnumber(l, c.left == 0 ? -1 : (lua_Number)(len - c.left));
    lua_replace(l, -2 - count);
    return count + 1;
}

static int unpack(lua_State *l)
{
    return unpack_some(l, 0, 0);
}

static int unpack_one(lua_State *l)
{
    int offset = luaL_optint(l, 2, 0);
    lua_settop(l, 1);
    return unpack_some(l, 1, offset);
}

static int unpack_limit(lua_State *l)
{
    int limit = luaL_checkint(l, 2), offset = luaL_optint(l, 3, 0);
    lua_settop(l, 1);
    return unpack_some(l, limit, offset);
}

int kv_lua_open_msgpack(lua_State *l)
{
    static const luaL_Reg functions[] = {
        {"pack", pack},
        {"unpack", unpack},
        {"unpack_one", unpack_one},
        {"unpack_limit", unpack_limit},
        {NULL, NULL},
    };
    lua_newtable(l);
    luaL_register(l, NULL, functions);
    lua_pushliteral(l, "cmsgpack");
    lua_setfield(l, -2, "_NAME");
    lua_pushliteral(l, "lua-cmsgpack 0.4.0");
    lua_setfield(l, -2, "_VERSION");
    return 1;
}
