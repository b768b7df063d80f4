/* The library struct of scripts: any format over any bytes gives values or an error; values that
 * are packed again are as many bytes, and give the same values.
 *
 * The first byte is the rig's, the second the length of the format, which follows; then the bytes.
 * They are also taken for MessagePack, so that anything is packed by the format. */
#include "fuzz/input.h"
#include "fuzz/script_rig.h"

#define INPUT_MAX 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* c0 takes the number before it away, so its values cannot be packed by the same format. Integers
 * of 64 bits lose digits as Lua's numbers; those that become 2^63 or more are not comparable. */
static const char code[] = SCRIPT_RIG_TOOLS
    "local function same(a, b)\n"
    "  return a == b or (a ~= a and b ~= b) or (type(a) == 'number' and math.abs(a) >= 2^63)\n"
    "end\n"
    "local ends = string.find(text, '\\0', 1, true)\n"
    "local shown = ends and string.sub(text, 1, ends - 1) or text\n"
    "local whole = not string.find(shown, 'c0', 1, true)\n"
    "local fixed, size = try(struct.size, text)\n"
    "local r = {try(struct.unpack, text, data)}\n"
    "local count = table.maxn(r) - 2\n"
    "if r[1] then\n"
    "  local following = r[count + 2]\n"
    "  must(following >= 1 and following <= #data + 1, 'end')\n"
    "  must(not fixed or size == following - 1, 'size')\n"
    "  if whole then\n"
    "    local ok, packed = try(struct.pack, text, unpack(r, 2, count + 1))\n"
    "    must(ok, packed)\n"
    "    must(#packed == following - 1, 'length')\n"
    "    local again = {try(struct.unpack, text, packed)}\n"
    "    must(again[1], again[2])\n"
    "    for i = 2, count + 2 do must(same(r[i], again[i]), 'value ' .. i) end\n"
    "  end\n"
    "end\n"
    "for at = -1, 9, 2 do\n"
    "  local from = {try(struct.unpack, text, data, at)}\n"
    "  local following = from[table.maxn(from)]\n"
    "  if from[1] and following ~= at then\n"
    "    must(following > at and following <= #data + 1, 'end from elsewhere')\n"
    "  end\n"
    "end\n"
    "local values = {try(cmsgpack.unpack, data)}\n"
    "if values[1] then\n"
    "  local ok, packed = try(struct.pack, text, unpack(values, 2, table.maxn(values)))\n"
    "  if ok and fixed then must(#packed == size, 'length of other values') end\n"
    "  if ok and fixed then must(try(struct.unpack, text, packed), 'values that were packed') end\n"
    "end\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    if (size < 2 || size > INPUT_MAX)
        return 0;
    uint8_t memory = input_byte(&in);
    size_t len = input_byte(&in), left = (size_t)(in.end - in.next);
    len = KV_MIN(len, left);
    const char *text = (const char *)in.next;
    script_rig_run(code, kv_slice(text, len), kv_slice(text + len, left - len), memory);
    return 0;
}
