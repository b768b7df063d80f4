/* base/clock.h: that the clocks agree with each other and that the fake one stands still. */
#include "base/clock.h"
#include "unit.h"
#include <time.h>

START_TEST(wall_time_is_unix_time)
{
    int64_t seconds = (int64_t)time(NULL);
    int64_t ms = kv_clock_wall_ms();
    int64_t us = kv_clock_wall_us();

    ck_assert(ms / 1000 >= seconds && ms / 1000 <= seconds + 60);
    ck_assert(us / 1000 >= ms && us / 1000 <= ms + 60000);
}
END_TEST

START_TEST(a_fake_wall_clock_stands_still)
{
    kv_clock_set_fake_ms(1234567);
    ck_assert_int_eq(kv_clock_wall_ms(), 1234567);
    ck_assert_int_eq(kv_clock_wall_us(), 1234567000);
    kv_clock_set_fake_ms(1234568);
    ck_assert_int_eq(kv_clock_wall_ms(), 1234568);
    kv_clock_set_fake_ms(0);
    ck_assert(kv_clock_wall_ms() > INT64_C(1700000000000));
}
END_TEST

START_TEST(monotonic_time_never_falls)
{
    uint64_t last = kv_clock_mono_ns();

    for (int i = 0; i < 100000; i++) {
        uint64_t now = kv_clock_mono_ns();
        ck_assert(now >= last);
        last = now;
    }
    ck_assert(kv_clock_mono_us() >= last / 1000);
}
END_TEST

START_TEST(ticks_are_nanoseconds_before_init)
{
    ck_assert(!kv_clock_use_tsc);
    ck_assert_uint_eq(kv_clock_ticks_to_ns(987654321), 987654321);
    ck_assert_uint_eq(kv_clock_ns_to_ticks(987654321), 987654321);
}
END_TEST

START_TEST(ticks_measure_a_pause)
{
    struct timespec pause = {0, 20000000};

    kv_clock_init();
    kv_clock_init();
    uint64_t ticks = kv_clock_ticks();
    uint64_t ns = kv_clock_mono_ns();
    nanosleep(&pause, NULL);
    /* The tick readings enclose the others, so that a preemption only lengthens them. */
    ns = kv_clock_mono_ns() - ns;
    uint64_t measured = kv_clock_ticks_to_ns(kv_clock_ticks() - ticks);
    ck_assert(ns >= 20000000);
    ck_assert_msg(measured >= ns - ns / 50, "%llu ns measured as %llu", (unsigned long long)ns,
                  (unsigned long long)measured);
    uint64_t back = kv_clock_ticks_to_ns(kv_clock_ns_to_ticks(1000000000));
    ck_assert(back > 999000000 && back < 1001000000);
}
END_TEST

int main(void)
{
    struct unit u;

    unit_begin(&u, "clock");
    unit_add(&u, wall_time_is_unix_time);
    unit_add(&u, a_fake_wall_clock_stands_still);
    unit_add(&u, monotonic_time_never_falls);
    unit_add(&u, ticks_are_nanoseconds_before_init);
    unit_add(&u, ticks_measure_a_pause);
    return unit_run(&u);
}
