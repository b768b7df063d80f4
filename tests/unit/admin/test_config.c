/* The table of directives, loading, changing, refusing. */
#include "admin/config.h"
#include "admin/cores.h"
#include "unit.h"
#include <ctype.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static struct kv_config *config;
static struct kv_text message;
static char folder[64];

static void setup(void)
{
    kv_mem_init();
    config = kv_config_create();
    kv_text_init(&message);
    snprintf(folder, sizeof(folder), "/tmp/kvik-unit-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(folder));
    ck_assert_int_eq(chdir(folder), 0);
}

static void teardown(void)
{
    char command[128];
    kv_config_destroy(config);
    kv_text_release(&message);
    ck_assert_int_eq(kv_mem_used(KV_MEM_CONFIG), 0);
    snprintf(command, sizeof(command), "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

static void write_file(const char *name, const char *content)
{
    FILE *file = fopen(name, "w");
    ck_assert_ptr_nonnull(file);
    fputs(content, file);
    fclose(file);
}

static void load(const char *text)
{
    enum kv_err err = kv_config_load_text(config, kv_slice_cstr(text), "test.conf", &message);
    ck_assert_msg(err == KV_OK, "%s", kv_text_cstr(&message));
}

static void load_fails(const char *text, const char *expected)
{
    kv_text_clear(&message);
    ck_assert(kv_config_load_text(config, kv_slice_cstr(text), "test.conf", &message) != KV_OK);
    ck_assert_msg(strstr(kv_text_cstr(&message), expected) != NULL, "%s: got %s", text,
                  kv_text_cstr(&message));
}

static void refused(const char *text, const char *expected)
{
    load(text);
    kv_text_clear(&message);
    ck_assert_msg(kv_config_finish(config, &message) == KV_ERR_DENIED, "%s", text);
    ck_assert_msg(strstr(kv_text_cstr(&message), expected) != NULL, "%s: got %s", text,
                  kv_text_cstr(&message));
}

static void shows(const char *name, const char *value)
{
    struct kv_text text;
    int index = kv_directive_find(kv_slice_cstr(name));
    ck_assert_msg(index >= 0, "%s", name);
    kv_text_init(&text);
    kv_config_print(config, (uint32_t)index, &text);
    ck_assert_msg(strcmp(kv_text_cstr(&text), value) == 0, "%s is '%s', not '%s'", name,
                  kv_text_cstr(&text), value);
    kv_text_release(&text);
}

static enum kv_err set(const char *const *pairs, int count, struct kv_config_failure *failure)
{
    struct kv_slice slices[16];
    ck_assert_int_le(count * 2, (int)KV_ARRAY_LEN(slices));
    for (int i = 0; i < count * 2; i++)
        slices[i] = kv_slice_cstr(pairs[i]);
    return kv_config_set(config, slices, count, false, failure);
}

static void set_fails(const char *name, const char *value, const char *reason)
{
    struct kv_config_failure failure;
    const char *const pair[] = {name, value};
    ck_assert_msg(set(pair, 1, &failure) != KV_OK, "%s %s", name, value);
    ck_assert(!failure.unknown);
    ck_assert_msg(strcmp(failure.reason.text, reason) == 0, "%s %s: %s", name, value,
                  failure.reason.text);
}

static void set_works(const char *name, const char *value)
{
    struct kv_config_failure failure;
    const char *const pair[] = {name, value};
    ck_assert_msg(set(pair, 1, &failure) == KV_OK, "%s %s: %s", name, value, failure.reason.text);
}

/* --- table --- */

START_TEST(names_are_lower_case_and_unique)
{
    for (uint32_t i = 0; i < kv_directive_count; i++) {
        const struct kv_directive *d = &kv_directives[i];
        for (const char *c = d->name; *c != '\0'; c++)
            ck_assert_msg(!isupper((unsigned char)*c), "%s", d->name);
        ck_assert_int_eq(kv_directive_find(kv_slice_cstr(d->name)), (int)i);
        if (d->alias != NULL)
            ck_assert_int_eq(kv_directive_find(kv_slice_cstr(d->alias)), (int)i);
    }
    ck_assert_int_eq(kv_directive_find(KV_SLICE("PORT")), kv_directive_find(KV_SLICE("port")));
    ck_assert_int_eq(kv_directive_find(KV_SLICE("nosuch")), -1);
}
END_TEST

static void same_text(const char *a, const char *b)
{
    ck_assert_str_eq(a, b);
}

START_TEST(defaults_agree_with_those_of_the_engine)
{
    struct kv_options from_table, from_engine;
    load("threads 1");
    kv_options_default(&from_table);
    kv_options_default(&from_engine);
    for (uint32_t i = 0; i < kv_directive_count; i++) {
        const struct kv_directive *d = &kv_directives[i];
        if (d->width != 0) /* whatever fill forgets stays visible */
            memset((char *)&from_table + d->offset, 0xa5, d->width);
    }
    kv_config_fill(config, &from_table);
    for (uint32_t i = 0; i < kv_directive_count; i++) {
        const struct kv_directive *d = &kv_directives[i];
        const char *a = (char *)&from_table + d->offset, *b = (char *)&from_engine + d->offset;
        if (d->width == 0)
            continue;
        if (d->type == KV_DIR_TEXT || d->flags & KV_DIR_ENUM_TEXT)
            same_text(*(const char *const *)a, *(const char *const *)b);
        else
            ck_assert_msg(memcmp(a, b, d->width) == 0, "%s", d->name);
    }
    ck_assert_uint_eq(from_table.threads, from_engine.threads);
    ck_assert_uint_eq(from_table.syslog_facility, from_engine.syslog_facility);
    ck_assert(from_table.maxmemory_policy_lfu == from_engine.maxmemory_policy_lfu);
    ck_assert_int_eq(
        memcmp(from_table.output_limit, from_engine.output_limit, sizeof(from_table.output_limit)),
        0);
    ck_assert_uint_eq(from_table.bind_count, from_engine.bind_count);
    for (uint32_t i = 0; i < from_engine.bind_count; i++)
        same_text(from_table.bind[i], from_engine.bind[i]);
    ck_assert(from_table.active_expire);
}
END_TEST

START_TEST(every_value_reads_back_from_the_line_it_is_written_as)
{
    for (uint32_t i = 0; i < kv_directive_count; i++) {
        struct kv_text line;
        struct kv_config *other = kv_config_create();
        const struct kv_directive *d = &kv_directives[i];
        struct kv_config_value value = {0};
        struct kv_arena arena;
        kv_text_init(&line);
        kv_arena_init(&arena, 512, KV_MEM_CONFIG);
        ck_assert_int_eq(kv_config_load_text(other, kv_slice_cstr("port 1"), "x", &message), KV_OK);
        struct kv_slice initial = kv_slice_cstr(d->initial);
        struct kv_words words = {&initial, 1};
        struct kv_reason reason;
        ck_assert(kv_directive_parse(d, &arena, &words, NULL, &value, &reason));
        kv_directive_print_line(d, &value, &line);
        ck_assert_msg(kv_config_load_text(other, kv_text_slice(&line), "x", &message) == KV_OK,
                      "%s: %s", kv_text_cstr(&line), kv_text_cstr(&message));
        kv_config_value_release(&value);
        kv_arena_release(&arena);
        kv_text_release(&line);
        kv_config_destroy(other);
    }
}
END_TEST

/* --- loading --- */

START_TEST(later_lines_override_earlier_ones)
{
    struct kv_options o;
    load("# comment\n\n  timeout 5 \r\nTimeout 7\nmaxclients 12\nrequirepass \"a b\"\n");
    kv_options_default(&o);
    kv_config_fill(config, &o);
    ck_assert_uint_eq(o.timeout_seconds, 7);
    ck_assert_uint_eq(o.maxclients, 12);
    ck_assert_str_eq(o.requirepass, "a b");
    ck_assert(kv_config_given(config, "timeout"));
    ck_assert(!kv_config_given(config, "port"));
}
END_TEST

START_TEST(types_accept_and_show_what_they_should)
{
    load("proto-max-bulk-len 2mb\nunixsocketperm 750\nloglevel WARNING\nprotected-mode NO\n"
         "slowlog-log-slower-than -1\nmaxmemory-clients 0%\nlist-max-ziplist-size -5\n"
         "shutdown-on-sigterm nosave now\nbind 127.0.0.1 -::1\nhz 1000\ndatabases 3\n"
         "client-output-buffer-limit normal 1mb 2mb 3\n"
         "client-output-buffer-limit replica 4 5 6 pubsub 7k 8 9\n"
         "oom-score-adj-values 1 2 3\nlatency-tracking-info-percentiles 50 99.5\n");
    shows("proto-max-bulk-len", "2097152");
    shows("unixsocketperm", "750");
    shows("loglevel", "warning");
    shows("protected-mode", "no");
    shows("slowlog-log-slower-than", "-1");
    shows("list-max-listpack-size", "-5");
    shows("shutdown-on-sigterm", "nosave now");
    shows("shutdown-on-sigint", "default");
    shows("bind", "127.0.0.1 -::1");
    shows("hz", "500");
    shows("client-output-buffer-limit", "normal 1048576 2097152 3 slave 4 5 6 pubsub 7000 8 9");
    shows("oom-score-adj-values", "1 2 3");
    shows("latency-tracking-info-percentiles", "50 99.5");
    struct kv_options o;
    kv_options_default(&o);
    kv_config_fill(config, &o);
    ck_assert_uint_eq(o.output_limit[KV_CLASS_NORMAL].soft_seconds, 3);
    ck_assert_uint_eq(o.output_limit[KV_CLASS_PUBSUB].hard_bytes, 7000);
    ck_assert_uint_eq(o.bind_count, 2);
    ck_assert_str_eq(o.bind[1], "-::1");
    ck_assert_uint_eq(o.unixsocketperm, 0750);
}
END_TEST

START_TEST(bad_values_are_explained)
{
    load_fails("timeout abc", "argument couldn't be parsed into an integer");
    load_fails("timeout -1", "argument must be between 0 and 2147483647 inclusive");
    load_fails("maxclients 0", "argument must be between 1 and 4294967295 inclusive");
    load_fails("timeout", "wrong number of arguments");
    load_fails("timeout 1 2", "wrong number of arguments");
    load_fails("daemonize maybe", "argument must be 'yes' or 'no'");
    load_fails("maxmemory 1x", "argument must be a memory value");
    load_fails("maxmemory-clients 101%", "percentage argument must be less or equal to 100");
    load_fails("maxmemory-clients x", "argument must be a memory or percent value");
    load_fails("unixsocketperm 9", "argument couldn't be parsed as an octal number");
    load_fails("unixsocketperm 7777", "argument must be between 0 and 777 inclusive");
    load_fails("appendfsync bad", "argument(s) must be one of the following: everysec, always, no");
    load_fails("client-output-buffer-limit normal 1 2", "Wrong number of arguments");
    load_fails("client-output-buffer-limit foo 1 2 3", "Invalid client class");
    load_fails("client-output-buffer-limit normal 1 2 x", "Error in hard, soft or soft_seconds");
    load_fails("save 1", "Invalid save parameters");
    load_fails("notify-keyspace-events Q", "Invalid event class character");
    load_fails("shutdown-on-sigint save nosave", "can't be used simultaneously");
    load_fails("threads 0", "argument must be 'auto' or between 1 and");
    load_fails("shards 3", "argument must be a power of two");
    load_fails("dir /nonexistent", "No such file or directory");
    load_fails("dbfilename a/b", "just a filename");
    load_fails("requirepass \"a\\x00b\"", "zero byte");
    load_fails("replicaof a b", "Invalid master port");
    load_fails("bind 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17", "Too many bind addresses");
    load_fails("nosuch 1", "Bad directive or wrong number of arguments");
    load_fails("timeout \"1", "Unbalanced quotes in configuration line");
}
END_TEST

START_TEST(a_message_names_file_line_and_text)
{
    load_fails("# one\ntimeout 3\n  bogus \"x\"  \n", "line 3 of test.conf\n>>> 'bogus \"x\"'\n"
                                                      "Bad directive");
}
END_TEST

START_TEST(promises_that_are_not_kept_refuse_to_start)
{
    refused("replicaof 127.0.0.1 6379", "'replicaof' is not supported");
    load("slaveof no one");
    refused("tls-cert-file server.crt", "'tls-cert-file' is not supported");
    load("tls-cert-file \"\"");
    refused("tls-port 6380", "'tls-port' is not supported");
    load("tls-port 0");
    refused("cluster-enabled yes", "'cluster-enabled' is not supported");
    load("cluster-enabled no");
    refused("min-slaves-to-write 1", "'min-replicas-to-write' is not supported");
    load("min-replicas-to-write 0");
    refused("tls-port 6380", "line 1 of test.conf");
    load("tls-port 0");
    ck_assert_int_eq(kv_config_finish(config, &message), KV_OK);
    load_fails("rename-command FLUSHALL \"\"", "'rename-command' is not supported");
    load_fails("loadmodule /x.so", "'loadmodule' is not supported");
}
END_TEST

/* What they mean is told when there is an engine: test_startup.py, test_acl.py. */
START_TEST(lines_of_users_are_kept)
{
    load("user alice on nopass ~* +@all\n# x\nuser \"default\" on >secret");
    ck_assert_int_eq(kv_config_finish(config, &message), KV_OK);
    load_fails("user", "Bad directive or wrong number of arguments");
}
END_TEST

START_TEST(an_override_by_its_off_value_is_no_promise)
{
    load("cluster-enabled yes\nreplicaof 127.0.0.1 6379");
    load("cluster-enabled no\nreplicaof no one");
    ck_assert_int_eq(kv_config_finish(config, &message), KV_OK);
}
END_TEST

START_TEST(includes_are_read_in_place)
{
    write_file("a.conf", "timeout 1\ninclude b.conf\ninclude c*.conf\ninclude none*.conf\n");
    write_file("b.conf", "timeout 2");
    write_file("c1.conf", "hz 20");
    write_file("c2.conf", "hz 30");
    ck_assert_int_eq(kv_config_load_file(config, "a.conf", &message), KV_OK);
    shows("timeout", "2");
    shows("hz", "30");
    write_file("d.conf", "\ninclude e.conf");
    write_file("e.conf", "timeout 1\n\ntimeout x");
    ck_assert(kv_config_load_file(config, "d.conf", &message) != KV_OK);
    ck_assert_ptr_nonnull(strstr(kv_text_cstr(&message), "at line 3 of e.conf"));
    ck_assert_ptr_nonnull(strstr(kv_text_cstr(&message), "included by d.conf, at line 2"));
    write_file("self.conf", "include self.conf");
    ck_assert(kv_config_load_file(config, "self.conf", &message) != KV_OK);
    kv_text_clear(&message);
    ck_assert(kv_config_load_file(config, "missing.conf", &message) != KV_OK);
    ck_assert_ptr_nonnull(strstr(kv_text_cstr(&message), "Can't open the configuration file"));
}
END_TEST

/* --- arguments --- */

static enum kv_err load_args(int argc, const char *const *argv)
{
    kv_text_clear(&message);
    return kv_config_load_args(config, argc, (char *const *)argv, &message);
}
#define ARGS(...)                                                                                  \
    load_args((int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)),                       \
              (const char *[]){__VA_ARGS__})

START_TEST(options_override_the_file)
{
    write_file("a.conf", "timeout 5\nhz 20");
    ck_assert_int_eq(ARGS("a.conf", "--timeout", "9", "--save", "", "--bind", "127.0.0.1", "::1"),
                     KV_OK);
    shows("timeout", "9");
    shows("hz", "20");
    shows("bind", "127.0.0.1 ::1");
    ck_assert(kv_config_given(config, "save"));
    ck_assert_ptr_nonnull(strstr(kv_config_file_path(config), "/kvik-unit-"));
    ck_assert_ptr_nonnull(strstr(kv_config_file_path(config), "/a.conf"));
}
END_TEST

START_TEST(options_take_words_in_several_shapes)
{
    ck_assert_int_eq(ARGS("--timeout 7", "--proc-title-template", "--{title}--", "--hz", "12",
                          "--client-output-buffer-limit", "normal 1 2 3 pubsub 4 5 6"),
                     KV_OK);
    shows("timeout", "7");
    shows("proc-title-template", "--{title}--");
    shows("hz", "12");
    shows("client-output-buffer-limit", "normal 1 2 3 slave 268435456 67108864 60 pubsub 4 5 6");
    ck_assert_int_eq(ARGS("--save", "--timeout", "8"), KV_OK);
    shows("timeout", "8");
    shows("save", "");
    ck_assert_int_eq(ARGS("--requirepass", "a\"b c\\"), KV_OK);
    shows("requirepass", "a\"b c\\");
}
END_TEST

START_TEST(a_wrong_option_is_named)
{
    ck_assert(ARGS("--hz", "10", "--timeout", "abc") != KV_OK);
    ck_assert_str_eq(kv_text_cstr(&message), "Reading the command line, at option 2\n"
                                             ">>> 'timeout \"abc\"'\n"
                                             "argument couldn't be parsed into an integer\n");
    ck_assert(ARGS("--timeout") != KV_OK);
    ck_assert(ARGS("-x") != KV_OK);
    ck_assert(ARGS("--hz", "10", "stray") != KV_OK);
    ck_assert(ARGS("--requirepass", "--timeout", "3") != KV_OK);
}
END_TEST

/* --- CONFIG SET --- */

START_TEST(a_set_is_all_or_nothing)
{
    struct kv_config_failure failure;
    const char *const bad[] = {"timeout", "10", "maxclients", "0"};
    ck_assert(set(bad, 2, &failure) != KV_OK);
    ck_assert(kv_slice_equal(failure.name, KV_SLICE("maxclients")));
    shows("timeout", "0");
    const char *const unknown[] = {"timeout", "10", "nosuch", "0"};
    ck_assert(set(unknown, 2, &failure) != KV_OK);
    ck_assert(failure.unknown);
    shows("timeout", "0");
    const char *const twice[] = {"timeout", "10", "TIMEOUT", "12"};
    ck_assert(set(twice, 2, &failure) != KV_OK);
    ck_assert_str_eq(failure.reason.text, "duplicate parameter");
    const char *const good[] = {"timeout", "10", "hz", "12", "requirepass", "x"};
    ck_assert_int_eq(set(good, 3, &failure), KV_OK);
    shows("timeout", "10");
    shows("hz", "12");
    shows("requirepass", "x");
}
END_TEST

START_TEST(a_set_says_why_not)
{
    set_fails("port", "1", "can't set immutable config");
    set_fails("daemonize", "yes", "can't set immutable config");
    set_fails("dir", "/tmp", "can't set protected config");
    set_fails("save", "900", "Invalid save parameters");
    set_works("save", "900 1 60 1000");
    shows("save", "900 1 60 1000");
    set_fails("appendonly", "maybe", "argument must be 'yes' or 'no'");
    set_works("appendonly", "no");
    set_works("save", "");
    set_works("maxmemory", "0");
    set_works("client-output-buffer-limit", "normal 1 2 3");
    shows("client-output-buffer-limit",
          "normal 1 2 3 slave 268435456 67108864 60 pubsub 33554432 8388608 60");
    set_works("maxmemory-policy", "allkeys-lfu");
    set_works("notify-keyspace-events", "");
}
END_TEST

START_TEST(protected_directives_open_as_configured)
{
    load("enable-protected-configs yes");
    ck_assert_int_eq(mkdir("sub", 0755), 0);
    set_works("dir", "sub");
    char path[128];
    ck_assert_ptr_nonnull(getcwd(path, sizeof(path)));
    shows("dir", path);
    ck_assert_ptr_nonnull(strstr(path, "/sub"));
    set_fails("dir", "nowhere", "No such file or directory");
}
END_TEST

#ifdef KV_DEBUG
/* Every try allocation of a CONFIG SET fails in turn: nothing may have changed. */
START_TEST(a_set_without_memory_changes_nothing)
{
    static const char *const pairs[] = {
        "requirepass", "new", "client-output-buffer-limit", "normal 1 2 3 pubsub 4 5 6",
        "timeout",     "9"};
    for (uint64_t n = 1; n < 100; n++) {
        struct kv_config_failure failure;
        kv_mem_fail_try(n);
        enum kv_err err = set(pairs, 3, &failure);
        kv_mem_fail_try(0);
        if (err == KV_OK) {
            ck_assert_uint_gt(n, 3);
            shows("timeout", "9");
            return;
        }
        ck_assert_str_eq(failure.reason.text, "out of memory");
        shows("requirepass", "");
        shows("timeout", "0");
    }
    ck_abort_msg("it never succeeds");
}
END_TEST
#endif

START_TEST(quotas_of_control_groups_round_up)
{
    ck_assert_uint_eq(kv_cores_of_quota("max 100000"), UINT32_MAX);
    ck_assert_uint_eq(kv_cores_of_quota("100000 100000\n"), 1);
    ck_assert_uint_eq(kv_cores_of_quota("150000 100000"), 2);
    ck_assert_uint_eq(kv_cores_of_quota("50000 100000"), 1);
    ck_assert_uint_eq(kv_cores_of_quota("-1 100000"), UINT32_MAX);
    ck_assert_uint_eq(kv_cores_of_quota("garbage"), UINT32_MAX);
    ck_assert_uint_ge(kv_cores_available(), 1);
}
END_TEST

int main(void)
{
    struct unit u;
    unit_begin(&u, "config");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, names_are_lower_case_and_unique);
    unit_add(&u, defaults_agree_with_those_of_the_engine);
    unit_add(&u, every_value_reads_back_from_the_line_it_is_written_as);
    unit_add(&u, later_lines_override_earlier_ones);
    unit_add(&u, types_accept_and_show_what_they_should);
    unit_add(&u, bad_values_are_explained);
    unit_add(&u, a_message_names_file_line_and_text);
    unit_add(&u, promises_that_are_not_kept_refuse_to_start);
    unit_add(&u, lines_of_users_are_kept);
    unit_add(&u, an_override_by_its_off_value_is_no_promise);
    unit_add(&u, includes_are_read_in_place);
    unit_add(&u, options_override_the_file);
    unit_add(&u, options_take_words_in_several_shapes);
    unit_add(&u, a_wrong_option_is_named);
    unit_add(&u, a_set_is_all_or_nothing);
    unit_add(&u, a_set_says_why_not);
    unit_add(&u, protected_directives_open_as_configured);
#ifdef KV_DEBUG
    unit_add(&u, a_set_without_memory_changes_nothing);
#endif
    unit_add(&u, quotas_of_control_groups_round_up);
    return unit_run(&u);
}
