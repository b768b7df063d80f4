/* script/shebang.h: what the first line of a script may say. */
#include "script/shebang.h"
#include "unit.h"

static char error[KV_SHEBANG_ERROR_MAX];
static struct kv_shebang shebang;

static bool reads(const char *text)
{
    return kv_shebang_read(kv_slice_cstr(text), &shebang, error);
}

static void fails(const char *text, const char *why)
{
    ck_assert(!reads(text));
    ck_assert_str_eq(error, why);
}

START_TEST(a_script_without_it_is_of_the_older_kind)
{
    ck_assert(reads("return 1"));
    ck_assert_uint_eq(shebang.flags, KV_SHEBANG_NONE);
    ck_assert_uint_eq(shebang.code.len, 8);
    ck_assert(reads(""));
    ck_assert_uint_eq(shebang.flags, KV_SHEBANG_NONE);
}
END_TEST

START_TEST(flags_are_collected)
{
    ck_assert(reads("#!lua flags=no-writes,allow-oom\nreturn 1"));
    ck_assert_uint_eq(shebang.flags, KV_SHEBANG_NO_WRITES | KV_SHEBANG_ALLOW_OOM);
    ck_assert(reads("#!lua  flags=allow-stale flags=no-cluster \r\nx"));
    ck_assert_uint_eq(shebang.flags, KV_SHEBANG_ALLOW_STALE | KV_SHEBANG_NO_CLUSTER);
    ck_assert(reads("#!lua flags=\n"));
    ck_assert_uint_eq(shebang.flags, 0);
}
END_TEST

START_TEST(lines_keep_their_numbers)
{
    ck_assert(reads("#!lua\nreturn 1"));
    ck_assert_uint_eq(shebang.code.len, 9);
    ck_assert_int_eq(shebang.code.ptr[0], '\n');
}
END_TEST

START_TEST(mistakes_are_named)
{
    fails("#!lua", "ERR Invalid script shebang");
    fails("#!python\n", "ERR Unexpected engine in script shebang: #!python");
    fails("#!\n", "ERR Unexpected engine in script shebang: #!");
    fails("#!LUA\n", "ERR Unexpected engine in script shebang: #!LUA");
    fails("#!lua flags=x\n", "ERR Unexpected flag in script shebang: x");
    fails("#!lua flags=no-writes,\n", "ERR Unexpected flag in script shebang: ");
    fails("#!lua name=x\n", "ERR Unknown lua shebang option: name=x");
}
END_TEST

START_TEST(every_cut_of_a_line_is_read_or_refused)
{
    static const char text[] = "#!lua flags=no-writes,allow-oom name=x\nreturn 1";
    for (size_t len = 0; len < sizeof(text); len++) {
        bool ok = kv_shebang_read(kv_slice(text, len), &shebang, error);
        ck_assert(!ok || shebang.code.len <= len);
    }
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "shebang");
    unit_add(&u, a_script_without_it_is_of_the_older_kind);
    unit_add(&u, flags_are_collected);
    unit_add(&u, lines_keep_their_numbers);
    unit_add(&u, mistakes_are_named);
    unit_add(&u, every_cut_of_a_line_is_read_or_refused);
    return unit_run(&u);
}
