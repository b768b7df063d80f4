/* What every unit test program needs around Check: one main, one summary line, seeds, and time-outs
 * that sanitizers do not trip over.
 *
 *     #include "unit.h"
 *
 *     START_TEST(an_empty_text_is_no_number) { ... } END_TEST
 *
 *     int main(void)
 *     {
 *         struct unit u;
 *         unit_begin(&u, "number");
 *         unit_add(&u, an_empty_text_is_no_number);
 *         return unit_run(&u);
 *     }
 *
 * Each test runs in a process of its own (unless CK_FORK=no), so it may assert, leak or die alone.
 * unit_add_abort adds a test that must end by SIGABRT: a provoked assertion. A random test calls
 * unit_seed: it takes SEED= from the environment or draws one, and prints it. Thousands of cases
 * belong into one test with a loop; a process per case is slow under ThreadSanitizer. */
#ifndef KV_TESTS_UNIT_H
#define KV_TESTS_UNIT_H

#include "base/compiler.h"
#include "base/random.h"
#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

/* Check writes the place of every assertion that holds into a pipe, a system call each, so that a
 * crash can be placed. Loops over thousands of cases would spend their time there. Our own
 * assertions and the sanitizers name the place of a crash themselves. */
#define _mark_point(file, line) ((void)0)

#if defined(KV_TSAN) || defined(KV_ASAN)
#define UNIT_TIMEOUT_SECONDS 180
#else
#define UNIT_TIMEOUT_SECONDS 60
#endif

/* Work to do in random tests: smaller where every step costs ten times as much. */
#if defined(KV_TSAN) || defined(KV_ASAN)
#define UNIT_ROUNDS(n) ((n) / 5 + 1)
#else
#define UNIT_ROUNDS(n) (n)
#endif

struct unit {
    Suite *suite;
    TCase *tcase;
};

KV_INLINE void unit_begin(struct unit *u, const char *name)
{
    u->suite = suite_create(name);
    u->tcase = tcase_create(name);
    tcase_set_timeout(u->tcase, UNIT_TIMEOUT_SECONDS);
    suite_add_tcase(u->suite, u->tcase);
}

#define unit_add(u, test) tcase_add_test((u)->tcase, test)

/* The test must abort. Without a process of its own it cannot be run. */
#define unit_add_abort(u, test) tcase_add_test_raise_signal((u)->tcase, test, SIGABRT)

/* Functions run before and after each test, in its process. */
KV_INLINE void unit_fixture(struct unit *u, void (*setup)(void), void (*teardown)(void))
{
    tcase_add_checked_fixture(u->tcase, setup, teardown);
}

/* Runs all tests, prints Check's summary, returns the exit status. */
KV_INLINE int unit_run(struct unit *u)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    SRunner *runner = srunner_create(u->suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? 0 : 1;
}

/* Seed of a random test, printed so that a failure can be repeated. */
KV_INLINE uint64_t unit_seed(const char *test)
{
    const char *given = getenv("SEED");
    uint64_t seed;

    if (given != NULL && given[0] != '\0')
        seed = strtoull(given, NULL, 10);
    else
        kv_random_secure(&seed, sizeof(seed));
    printf("%s: SEED=%llu\n", test, (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

#endif
