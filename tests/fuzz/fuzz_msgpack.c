/* The library cmsgpack of scripts: any bytes are unpacked or refused, all at once as one by one;
 * what was unpacked and is packed gives the same again.
 *
 * The first byte is the rig's, the second says how many values unpack_limit takes in a step. */
#include "fuzz/input.h"
#include "fuzz/script_rig.h"

#define INPUT_MAX (1 << 14)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Tables beyond 16 levels are packed as nil, so they are absent. A table as a key is another one
 * afterwards and not compared, and refused when it has become nil. */
static const char code[] = SCRIPT_RIG_TOOLS
    "local step = string.byte(text)\n"
    "local strange = false\n"
    "local function same(a, b, level)\n"
    "  if type(a) ~= 'table' then return a == b or (a ~= a and b ~= b) end\n"
    "  if level == 16 then return b == nil end\n"
    "  if type(b) ~= 'table' then return false end\n"
    "  for k, v in pairs(a) do\n"
    "    if type(k) ~= 'table' and not same(v, b[k], level + 1) then return false end\n"
    "  end\n"
    "  for k in pairs(b) do if type(k) ~= 'table' and a[k] == nil then return false end end\n"
    "  return true\n"
    "end\n"
    "local function look(value)\n"
    "  if type(value) ~= 'table' then return end\n"
    "  for k, v in pairs(value) do\n"
    "    strange = strange or type(k) == 'table'\n"
    "    look(v)\n"
    "  end\n"
    "end\n"
    "local all = {try(cmsgpack.unpack, data)}\n"
    "local values, n, offset = {}, 0, 0\n"
    "local last\n"
    "while offset ~= -1 and #data > 0 do\n"
    "  local r = {try(cmsgpack.unpack_limit, data, step, offset)}\n"
    "  if not r[1] then last = r[2] break end\n"
    "  local got = 0\n"
    "  must(r[2] == -1 or (r[2] > offset and r[2] < #data), 'offset')\n"
    "  local one = offset\n"
    "  while got < step and one ~= -1 do\n"
    "    local ok, following, value = try(cmsgpack.unpack_one, data, one)\n"
    "    must(ok, 'one of some')\n"
    "    got, n, one = got + 1, n + 1, following\n"
    "    values[n] = value\n"
    "    must(same(value, r[got + 2], -1e9), 'one and some')\n"
    "  end\n"
    "  must(one == r[2], 'offsets')\n"
    "  offset = r[2]\n"
    "end\n"
    "if all[1] then\n"
    "  must(last == nil, 'refused in parts')\n"
    "  for i = 1, n do must(same(values[i], all[i + 1], -1e9), 'all and some') end\n"
    "elseif not string.find(all[2], 'overflow', 1, true) then\n"
    "  must(last, 'refused as a whole: ' .. all[2])\n"
    "end\n"
    "for i = 1, n do\n"
    "  local ok, packed = try(cmsgpack.pack, values[i])\n"
    "  must(ok, 'pack')\n"
    "  strange = false\n"
    "  look(values[i])\n"
    "  local fine, again = try(cmsgpack.unpack, packed)\n"
    "  must(fine or strange, 'unpack of packed')\n"
    "  must(not fine or same(values[i], again, 0), 'other value')\n"
    "end\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    if (size < 2 || size > INPUT_MAX)
        return 0;
    uint8_t memory = input_byte(&in);
    char step = (char)(1 + input_byte(&in) % 16);
    script_rig_run(code, kv_slice(&step, 1),
                   kv_slice((const char *)in.next, (size_t)(in.end - in.next)), memory);
    return 0;
}
