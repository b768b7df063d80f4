/* The library cjson as scripts have it: any text is decoded or refused; what was decoded is encoded
 * unless JSON has no such number, and decoded again it is the same.
 *
 * The first byte is the rig's, the second chooses settings: bits 0 to 3 the digits of numbers (0:
 * cjson itself), bit 4 sparse lists are objects, bit 5 no buffer is kept, bit 6 depths are not
 * limited, bit 7 numbers that JSON has not are refused. */
#include "fuzz/input.h"
#include "fuzz/script_rig.h"

#define INPUT_MAX (1 << 14)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char code[] = SCRIPT_RIG_TOOLS
    "local settings = string.byte(text)\n"
    "local digits = settings % 16\n"
    "local json = cjson\n"
    "local function on(bit) return math.floor(settings / bit) % 2 == 1 end\n"
    "if digits > 0 then\n"
    "  json = cjson.new()\n"
    "  json.encode_number_precision(math.min(digits, 14))\n"
    "  if on(16) then json.encode_sparse_array(true) end\n"
    "  if on(32) then json.encode_keep_buffer(false) end\n"
    "  if on(64) then json.decode_max_depth(2^30) json.encode_max_depth(2^30) end\n"
    "  if on(128) then json.decode_invalid_numbers(false) end\n"
    "end\n"
    "local loss = digits == 0 and 1e-13 or 10 ^ (1 - math.min(digits, 14))\n"
    "local function same(a, b)\n"
    "  if type(a) == 'number' and type(b) == 'number' then\n"
    "    return a == b or math.abs(a - b) <= math.abs(a) * loss\n"
    "  end\n"
    "  if type(a) ~= 'table' or type(b) ~= 'table' then return a == b end\n"
    "  for k, v in pairs(a) do if not same(v, b[k]) then return false end end\n"
    "  for k in pairs(b) do if a[k] == nil then return false end end\n"
    "  return true\n"
    "end\n"
    "local function strange(value)\n"
    "  if type(value) == 'number' then return value ~= value or math.abs(value) >= 1e300 end\n"
    "  if type(value) ~= 'table' then return false end\n"
    "  for k, v in pairs(value) do if strange(v) then return true end end\n"
    "  return false\n"
    "end\n"
    "local ok, value = try(json.decode, data)\n"
    "if ok then\n"
    "  local fine, encoded = try(json.encode, value)\n"
    "  if not fine then\n"
    "    local deep = on(64) and string.find(encoded, 'excessive', 1, true)\n"
    "    must(deep or strange(value), encoded)\n"
    "  elseif not strange(value) then\n"
    "    local again, decoded = try(json.decode, encoded)\n"
    "    must(again, decoded)\n"
    "    must(same(value, decoded), 'other value')\n"
    "  end\n"
    "end\n";

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct input in = {data, data + size};
    if (size < 2 || size > INPUT_MAX)
        return 0;
    uint8_t memory = input_byte(&in);
    char settings = (char)input_byte(&in);
    script_rig_run(code, kv_slice(&settings, 1),
                   kv_slice((const char *)in.next, (size_t)(in.end - in.next)), memory);
    return 0;
}
