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

static struct kv_slice engine, name, code;

static bool reads_library(const char *text)
{
    return kv_shebang_read_library(kv_slice_cstr(text), &engine, &name, &code, error);
}

START_TEST(libraries_have_names)
{
    static const char *const lines[] = {"#!lua name=lib\nx", "#!lua  NAME=lib \r\nx",
                                        "#!lua\tname=\"lib\"\nx", "#!lua name='lib'\nx"};
    for (size_t i = 0; i < KV_ARRAY_LEN(lines); i++) {
        ck_assert(reads_library(lines[i]));
        ck_assert(kv_slice_equal(engine, KV_SLICE("lua")));
        ck_assert(kv_slice_equal(name, KV_SLICE("lib")));
        ck_assert(kv_slice_equal(code, KV_SLICE("\nx")));
    }
    ck_assert(reads_library("#!lua name=\n"));
    ck_assert_uint_eq(name.len, 0);
    ck_assert(reads_library("#! name=x\n"));
    ck_assert_uint_eq(engine.len, 0);
}
END_TEST

static void library_fails(const char *text, const char *why)
{
    ck_assert(!reads_library(text));
    ck_assert_str_eq(error, why);
}

START_TEST(mistakes_of_libraries_are_named)
{
    library_fails("return 1", "ERR Missing library metadata");
    library_fails("#!lua name=x", "ERR Invalid library metadata");
    library_fails("#!lua name=\"x\n", "ERR Invalid library metadata");
    library_fails("#!lua name=\"x\"y\n", "ERR Invalid library metadata");
    library_fails("#!\n", "ERR Library name was not given");
    library_fails("#! lua name=x\n", "ERR Invalid metadata value given: lua");
    library_fails("#!lua name=x name=y\n",
                  "ERR Invalid metadata value, name argument was given multiple times");
}
END_TEST

START_TEST(every_cut_of_a_library_is_read_or_refused)
{
    static const char text[] = "#!lua name='lib' name=\"x\" flags\nreturn 1";
    for (size_t len = 0; len < sizeof(text); len++)
        if (kv_shebang_read_library(kv_slice(text, len), &engine, &name, &code, error))
            ck_assert(code.len <= len && name.len <= len);
}
END_TEST

START_TEST(flags_have_names)
{
    for (uint32_t i = 0; i < 5; i++)
        ck_assert_uint_eq(kv_shebang_flag(kv_slice_cstr(kv_shebang_flag_name(i))), 1u << i);
    ck_assert_ptr_null(kv_shebang_flag_name(5));
    ck_assert_uint_eq(kv_shebang_flag(KV_SLICE("No-Writes")), KV_SHEBANG_NO_WRITES);
    ck_assert_uint_eq(kv_shebang_flag(KV_SLICE("")), 0);
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
    unit_add(&u, libraries_have_names);
    unit_add(&u, mistakes_of_libraries_are_named);
    unit_add(&u, every_cut_of_a_library_is_read_or_refused);
    unit_add(&u, flags_have_names);
    return unit_run(&u);
}
