/* base/log.h, base/assert.h, base/err.h: what a line looks like, and that it arrives whole. */
#include "base/assert.h"
#include "base/err.h"
#include "base/log.h"
#include "unit.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static char path[64];
static char content[1 << 20];

static void setup(void)
{
    snprintf(path, sizeof(path), "/tmp/kvik-unit-log-%d", (int)getpid());
    unlink(path);
    ck_assert_int_eq(kv_log_set_file(path), KV_OK);
}

static void teardown(void)
{
    unlink(path);
}

static const char *read_log(void)
{
    int fd = open(path, O_RDONLY);
    ck_assert_int_ge(fd, 0);
    ssize_t len = read(fd, content, sizeof(content) - 1);
    ck_assert_int_ge((int)len, 0);
    content[len] = '\0';
    close(fd);
    return content;
}

START_TEST(a_line_has_pid_role_time_level_and_text)
{
    char month[4], text[64], level, role;
    int pid, day, year, hour, minute, second, ms;

    kv_log(KV_LOG_WARNING, "hello %d", 7);
    int got = sscanf(read_log(), "%d:%c %d %3s %d %d:%d:%d.%d %c %63[^\n]", &pid, &role, &day,
                     month, &year, &hour, &minute, &second, &ms, &level, text);
    ck_assert_int_eq(got, 11);
    ck_assert_int_eq(pid, (int)getpid());
    ck_assert_int_eq(role, 'M');
    ck_assert_int_eq(level, '#');
    ck_assert_int_ge(year, 2024);
    ck_assert_str_eq(text, "hello 7");
    ck_assert_int_eq(content[strlen(content) - 1], '\n');
}
END_TEST

START_TEST(levels_below_the_set_one_are_silent)
{
    ck_assert_int_eq(kv_log_level(), KV_LOG_NOTICE);
    kv_log(KV_LOG_VERBOSE, "too detailed");
    kv_log(KV_LOG_NOTICE, "shown");
    kv_log_set_level(KV_LOG_DEBUG);
    kv_log(KV_LOG_DEBUG, "detail");
    kv_log_set_level(KV_LOG_NOTHING);
    kv_log(KV_LOG_WARNING, "even this");
    read_log();
    ck_assert_ptr_null(strstr(content, "too detailed"));
    ck_assert_ptr_nonnull(strstr(content, " * shown\n"));
    ck_assert_ptr_nonnull(strstr(content, " . detail\n"));
    ck_assert_ptr_null(strstr(content, "even this"));
}
END_TEST

START_TEST(long_messages_are_cut)
{
    char message[5000];

    memset(message, 'x', sizeof(message));
    message[sizeof(message) - 1] = '\0';
    kv_log(KV_LOG_WARNING, "%s", message);
    kv_log(KV_LOG_WARNING, "next");
    char *first = strchr(read_log(), 'x');
    ck_assert_ptr_nonnull(first);
    ck_assert_uint_eq(strspn(first, "x"), 1024);
    ck_assert_int_eq(first[1024], '\n');
    ck_assert_ptr_nonnull(strstr(content, "# next\n"));
}
END_TEST

START_TEST(errno_survives_logging)
{
    errno = EXDEV;
    kv_log(KV_LOG_WARNING, "text");
    ck_assert_int_eq(errno, EXDEV);
}
END_TEST

START_TEST(raw_lines_are_written_as_they_are)
{
    kv_log_raw("raw\n", 4);
    ck_assert_str_eq(read_log(), "raw\n");
}
END_TEST

START_TEST(a_file_that_cannot_be_opened_changes_nothing)
{
    char long_path[5000];

    memset(long_path, 'p', sizeof(long_path));
    long_path[sizeof(long_path) - 1] = '\0';
    ck_assert_int_eq(kv_log_set_file("/nonexistent/folder/log"), KV_ERR_IO);
    ck_assert_int_eq(kv_log_set_file(long_path), KV_ERR_IO);
    kv_log(KV_LOG_WARNING, "still here");
    ck_assert_ptr_nonnull(strstr(read_log(), "still here"));
}
END_TEST

START_TEST(without_a_file_lines_go_to_standard_output)
{
    int fds[2];
    char text[256] = "";

    ck_assert_int_eq(pipe(fds), 0);
    pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        dup2(fds[1], STDOUT_FILENO);
        if (kv_log_set_file(NULL) == KV_OK)
            kv_log(KV_LOG_WARNING, "to the terminal");
        _exit(0);
    }
    close(fds[1]);
    ck_assert_int_gt((int)read(fds[0], text, sizeof(text) - 1), 0);
    ck_assert_ptr_nonnull(strstr(text, "# to the terminal\n"));
    close(fds[0]);
    waitpid(child, NULL, 0);
}
END_TEST

static void *log_many(void *arg)
{
    for (int i = 0; i < 500; i++)
        kv_log(KV_LOG_WARNING, "thread %s line %d end", (const char *)arg, i);
    return NULL;
}

START_TEST(lines_of_threads_do_not_mix)
{
    pthread_t threads[4];
    static char names[][2] = {"a", "b", "c", "d"};
    int lines = 0;

    for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, log_many, names[i]), 0);
    for (size_t i = 0; i < KV_ARRAY_LEN(threads); i++)
        pthread_join(threads[i], NULL);
    read_log();
    for (char *save, *line = strtok_r(content, "\n", &save); line != NULL;
         line = strtok_r(NULL, "\n", &save), lines++) {
        char name[2], end[4];
        int number;
        char *message = strstr(line, "# thread");
        ck_assert_ptr_nonnull(message);
        ck_assert_int_eq(sscanf(message, "# thread %1s line %d %3s", name, &number, end), 3);
        ck_assert_str_eq(end, "end");
    }
    ck_assert_int_eq(lines, 2000);
}
END_TEST

/* Runs `fn` in a child and gives back the signal that ended it. */
static int signal_of(void (*fn)(void))
{
    int status = 0;
    pid_t child = fork();

    ck_assert_int_ge(child, 0);
    if (child == 0) {
        fn();
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

static void fail_assertion(void)
{
    int one = 1;
    KV_ASSERT(one == 2);
}

static void panic(void)
{
    kv_panic("reason %d", 42);
}

START_TEST(failed_assertions_name_place_and_condition)
{
    ck_assert_int_eq(signal_of(fail_assertion), SIGABRT);
    read_log();
    ck_assert_ptr_nonnull(strstr(content, "ASSERTION FAILED"));
    ck_assert_ptr_nonnull(strstr(content, "test_log.c"));
    ck_assert_ptr_nonnull(strstr(content, "'one == 2' is not true"));
}
END_TEST

START_TEST(panics_tell_their_reason)
{
    ck_assert_int_eq(signal_of(panic), SIGABRT);
    ck_assert_ptr_nonnull(strstr(read_log(), "reason 42"));
}
END_TEST

START_TEST(every_error_has_a_text)
{
    for (int i = 0; i < KV_ERR_COUNT; i++) {
        const char *text = kv_err_text((enum kv_err)i);
        ck_assert_ptr_nonnull(text);
        ck_assert_uint_gt(strlen(text), 3);
        ck_assert_int_ne(text[strlen(text) - 1], '.');
    }
}
END_TEST

START_TEST(a_number_beyond_the_errors_is_a_mistake)
{
    kv_err_text(KV_ERR_COUNT);
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "log");
    unit_fixture(&u, setup, teardown);
    unit_add(&u, a_line_has_pid_role_time_level_and_text);
    unit_add(&u, levels_below_the_set_one_are_silent);
    unit_add(&u, long_messages_are_cut);
    unit_add(&u, errno_survives_logging);
    unit_add(&u, raw_lines_are_written_as_they_are);
    unit_add(&u, a_file_that_cannot_be_opened_changes_nothing);
    unit_add(&u, without_a_file_lines_go_to_standard_output);
    unit_add(&u, lines_of_threads_do_not_mix);
    unit_add(&u, failed_assertions_name_place_and_condition);
    unit_add(&u, panics_tell_their_reason);
    unit_add(&u, every_error_has_a_text);
    unit_add_abort(&u, a_number_beyond_the_errors_is_a_mistake);
    return unit_run(&u);
}
