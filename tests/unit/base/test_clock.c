/* test_clock.c - the clocks and their replacement. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/clock.h"

#include <time.h>

static uint64_t frozen(void *arg)
{
    return *(const uint64_t *)arg;
}

static void the_clock_counts_nanoseconds_and_never_goes_back(void **state)
{
    struct timespec spec;
    uint64_t before, last = 0;

    assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &spec), 0);
    before = (uint64_t)spec.tv_sec * NXL_SEC + (uint64_t)spec.tv_nsec;
    for (unsigned i = 0; i < 1000; i++) {
        uint64_t now = nxl_now_ns();

        assert_true(now >= before && now >= last);
        last = now;
    }
    assert_true(last - before < 60 * NXL_SEC);
}

static void a_test_s_clock_replaces_it_until_null(void **state)
{
    uint64_t now = 42;

    nxl_clock_replace(frozen, &now);
    assert_true(nxl_now_ns() == 42);
    now += NXL_SEC;
    assert_true(nxl_now_ns() == 42 + NXL_SEC);
    nxl_clock_replace(NULL, NULL);
    assert_true(nxl_now_ns() != 42 + NXL_SEC);
}

static void the_calendar_counts_milliseconds(void **state)
{
    uint64_t seconds = (uint64_t)time(NULL), now = nxl_unix_ms();

    assert_true(now / 1000 >= seconds && now / 1000 <= seconds + 60);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_clock_counts_nanoseconds_and_never_goes_back),
        cmocka_unit_test(a_test_s_clock_replaces_it_until_null),
        cmocka_unit_test(the_calendar_counts_milliseconds),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
