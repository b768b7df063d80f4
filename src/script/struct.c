/* The library struct of scripts: values to bytes in the layouts of C, and back.
 *
 * A format is a row of options, as the library's public description has them:
 *
 *   > <          byte order from here on, big or little; little at first
 *   ! [n]        alignment: items begin at multiples of their size, of n at most (8); 1 at first
 *   b B h H l L  signed and unsigned integers of 1, 2 and 8 bytes; T likewise of 8, unsigned
 *   i[n] I[n]    signed and unsigned integers of n bytes, 4 without it, 32 at most
 *   f d          float, double
 *   x            a byte of padding
 *   s            a string that ends with a zero byte
 *   c[n]         n bytes, 1 without it; c0 takes all, and reads as many as the number before it
 * says
 *
 * Input is read within its length; sizes come from the format or from the data and are compared
 * with what is left before anything is taken. Results are Lua's strings, bounded as a script's
 * memory.
 *
 * Threads: as state.c.
 */
#include "script/lua_priv.h"
#include <ctype.h>
#include <limits.h>

#define ALIGN_MAX 8
#define INTEGER_MAX 32

struct format {
    lua_State *l;
    const char *pos;
    bool big;
    size_t align;
};

struct item {
    char option;
    size_t size;
    size_t padding; /* bytes before it */
};

static size_t read_count(struct format *f, size_t without)
{
    size_t n = 0;
    if (!isdigit((unsigned char)*f->pos))
        return without;
    for (; isdigit((unsigned char)*f->pos); f->pos++) {
        n = n * 10 + (size_t)(*f->pos - '0');
        if (n > INT_MAX)
            luaL_error(f->l, "integral size overflow");
    }
    return n;
}

static size_t size_of(struct format *f, char option)
{
    size_t size;
    switch (option) {
    case 'b':
    case 'B':
    case 'x':
        return 1;
    case 'h':
    case 'H':
        return 2;
    case 'l':
    case 'L':
    case 'T':
    case 'd':
        return 8;
    case 'f':
        return 4;
    case 'c':
        return read_count(f, 1);
    case 'i':
    case 'I':
        size = read_count(f, 4);
        if (size > INTEGER_MAX)
            luaL_error(f->l, "integral size %d is larger than limit of %d", (int)size, INTEGER_MAX);
        return size;
    default:
        return 0;
    }
}

static void read_alignment(struct format *f)
{
    size_t align = read_count(f, ALIGN_MAX);
    if (align == 0 || (align & (align - 1)) != 0)
        luaL_error(f->l, "alignment %d is not a power of 2", (int)align);
    f->align = align;
}

/* The next item that stands for bytes; false at the end. `at`: where it would begin. */
static bool next_item(struct format *f, size_t at, struct item *item)
{
    for (; *f->pos != '\0';) {
        char option = *f->pos++;
        switch (option) {
        case ' ':
            continue;
        case '>':
        case '<':
            f->big = option == '>';
            continue;
        case '!':
            read_alignment(f);
            continue;
        default:
            break;
        }
        if (strchr("bBhHlLTiIfdxsc", option) == NULL) {
            const char *text = lua_pushfstring(f->l, "invalid format option '%c'", option);
            luaL_argerror(f->l, 1, text);
        }
        item->option = option;
        item->size = size_of(f, option);
        size_t step = KV_MIN(item->size, f->align);
        item->padding = option == 'c' || step <= 1 ? 0 : (step - (at & (step - 1))) & (step - 1);
        return true;
    }
    return false;
}

static struct format format_of(lua_State *l)
{
    return (struct format){.l = l, .pos = luaL_checkstring(l, 1), .align = 1};
}

/* Byte i of an item, counted from the lowest. */
static size_t place(const struct format *f, size_t size, size_t i)
{
    return f->big ? size - 1 - i : i;
}

/* --- packing --- */

static void add_integer(const struct format *f, luaL_Buffer *b, lua_Number n, size_t size)
{
    char bytes[INTEGER_MAX];
    uint64_t value;
    if (n >= -9223372036854775808.0 && n < 9223372036854775808.0)
        value = (uint64_t)(int64_t)n;
    else
        value = n > 0 && n < 18446744073709551616.0 ? (uint64_t)n : 0;
    for (size_t i = 0; i < size; i++)
        bytes[place(f, size, i)] = i < 8 ? (char)(value >> (8 * i)) : 0;
    luaL_addlstring(b, bytes, size);
}

static void add_real(const struct format *f, luaL_Buffer *b, lua_Number n, size_t size)
{
    float half = (float)n;
    char bytes[8], ordered[8];
    memcpy(bytes, size == 4 ? (const void *)&half : (const void *)&n, size);
    for (size_t i = 0; i < size; i++)
        ordered[place(f, size, i)] = bytes[i];
    luaL_addlstring(b, ordered, size);
}

static void add_text(lua_State *l, luaL_Buffer *b, const struct item *item, int arg)
{
    size_t len;
    const char *bytes = luaL_checklstring(l, arg, &len);
    size_t size = item->option == 's' || item->size == 0 ? len : item->size;
    luaL_argcheck(l, len >= size, arg + 1, "string too short"); /* as Redis counts */
    luaL_addlstring(b, bytes, size);
    if (item->option == 's')
        luaL_addchar(b, '\0');
}

static int pack(lua_State *l)
{
    struct format f = format_of(l);
    struct item item;
    luaL_Buffer b;
    int arg = 2;
    size_t total = 0;
    lua_pushnil(l); /* arguments that are missing are nil, and not parts of the buffer */
    luaL_buffinit(l, &b);
    while (next_item(&f, total, &item)) {
        for (size_t i = 0; i < item.padding; i++)
            luaL_addchar(&b, '\0');
        total += item.padding + item.size;
        switch (item.option) {
        case 'x':
            luaL_addchar(&b, '\0');
            break;
        case 's':
        case 'c':
            if (item.size == 0)
                total += lua_objlen(l, arg) + (item.option == 's');
            add_text(l, &b, &item, arg++);
            break;
        case 'f':
        case 'd':
            add_real(&f, &b, luaL_checknumber(l, arg++), item.size);
            break;
        default:
            add_integer(&f, &b, luaL_checknumber(l, arg++), item.size);
        }
    }
    luaL_pushresult(&b);
    return 1;
}

/* --- unpacking --- */

static void push_integer(const struct format *f, const char *bytes, size_t size, bool is_signed)
{
    uint64_t value = 0;
    size_t used = KV_MIN(size, (size_t)8);
    for (size_t i = used; i-- > 0;)
        value = value << 8 | (uint8_t)bytes[place(f, size, i)];
    unsigned unused = 64 - 8 * (unsigned)used;
    if (size == 0)
        lua_pushnumber(f->l, 0);
    else if (is_signed)
        lua_pushnumber(f->l, (lua_Number)((int64_t)(value << unused) >> unused));
    else
        lua_pushnumber(f->l, (lua_Number)value);
}

static void push_real(const struct format *f, const char *bytes, size_t size)
{
    char ordered[8];
    float half;
    double whole;
    for (size_t i = 0; i < size; i++)
        ordered[i] = bytes[place(f, size, i)];
    if (size == 4) {
        memcpy(&half, ordered, sizeof(half));
        whole = half;
    } else {
        memcpy(&whole, ordered, sizeof(whole));
    }
    lua_pushnumber(f->l, whole);
}

/* c0: as many bytes as the value before it says, which it replaces. */
static size_t size_before(lua_State *l, int values, size_t left)
{
    if (values == 0 || !lua_isnumber(l, -1))
        luaL_error(l, "format 'c0' needs a previous size");
    lua_Number size = lua_tonumber(l, -1);
    lua_pop(l, 1);
    luaL_argcheck(l, size >= 0 && size <= (lua_Number)left, 2, "data string too short");
    return (size_t)size;
}

static int unpack(lua_State *l)
{
    struct format f = format_of(l);
    struct item item;
    size_t len;
    const char *data = luaL_checklstring(l, 2, &len);
    lua_Integer from = luaL_optinteger(l, 3, 1);
    int values = 0;
    luaL_argcheck(l, from != 0, 3, "offset must be 1 or greater");
    size_t pos = (size_t)from - 1;
    luaL_argcheck(l, pos <= len || *f.pos == '\0', 2, "data string too short");
    lua_settop(l, 2);
    while (next_item(&f, pos, &item)) {
        luaL_argcheck(l, item.padding <= len - pos, 2, "data string too short");
        pos += item.padding;
        luaL_argcheck(l, item.size <= len - pos, 2, "data string too short");
        luaL_checkstack(l, 3, "too many results");
        const char *bytes = data + pos, *end;
        size_t size = item.size;
        switch (item.option) {
        case 'x':
            break;
        case 's':
            end = memchr(bytes, '\0', len - pos);
            if (end == NULL)
                return luaL_error(l, "unfinished string in data");
            size = (size_t)(end - bytes) + 1;
            lua_pushlstring(l, bytes, size - 1);
            values++;
            break;
        case 'c':
            if (size == 0) {
                size = size_before(l, values, len - pos);
                values--;
            }
            lua_pushlstring(l, bytes, size);
            values++;
            break;
        case 'f':
        case 'd':
            push_real(&f, bytes, size);
            values++;
            break;
        default:
            push_integer(&f, bytes, size, islower((unsigned char)item.option));
            values++;
        }
        pos += size;
    }
    lua_pushnumber(l, (lua_Number)((lua_Integer)pos + 1)); /* before the data, if that was asked */
    return values + 1;
}

static int size(lua_State *l)
{
    struct format f = format_of(l);
    struct item item;
    size_t total = 0;
    while (next_item(&f, total, &item)) {
        if (item.option == 's')
            luaL_argerror(l, 1, "option 's' has no fixed size");
        if (item.option == 'c' && item.size == 0)
            luaL_argerror(l, 1, "option 'c0' has no fixed size");
        total += item.padding + item.size;
    }
    lua_pushnumber(l, (lua_Number)total);
    return 1;
}

int kv_lua_open_struct(lua_State *l)
{
    static const luaL_Reg functions[] = {
        {"pack", pack},
        {"unpack", unpack},
        {"size", size},
        {NULL, NULL},
    };
    lua_newtable(l);
    luaL_register(l, NULL, functions);
    return 1;
}
