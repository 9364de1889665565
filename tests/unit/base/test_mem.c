/* test_mem.c - small allocations, the clean-up idioms, and the assertion that stands behind them.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/assert.h"
#include "base/mem.h"
#include "unit/base/dies.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

static void new_memory_is_zero_and_never_null(void **state)
{
    static const char zeros[100];
    char *ptr = nxl_new0(100), *array = nxl_new0_array(10, 10), *none = nxl_new0(0);

    assert_memory_equal(ptr, zeros, 100);
    assert_memory_equal(array, zeros, 100);
    assert_non_null(none);
    free(none);
    none = nxl_new0_array(0, 8);
    assert_non_null(none);
    free(none);
    free(array);
    free(ptr);
}

static void resizing_keeps_the_content_and_never_frees(void **state)
{
    int *numbers = nxl_resize(NULL, 2, sizeof(int));

    numbers[0] = 1;
    numbers[1] = 2;
    numbers = nxl_resize(numbers, 1000, sizeof(int));
    assert_int_equal(numbers[0], 1);
    assert_int_equal(numbers[1], 2);
    numbers = nxl_resize(numbers, 0, sizeof(int));
    assert_non_null(numbers);
    free(numbers);
}

static void ask_for_more_than_there_is(const void *arg)
{
    volatile size_t count = SIZE_MAX / 4; /* volatile: the compiler would warn about the product */

    if (arg)
        free(nxl_resize(NULL, count, 8));
    else
        free(nxl_new0_array(count, 8));
}

static void a_product_that_overflows_stops_the_program(void **state)
{
    assert_int_equal(dies_of(ask_for_more_than_there_is, NULL), SIGABRT);
    assert_int_equal(dies_of(ask_for_more_than_there_is, ""), SIGABRT);
}

static void assert_as_told(const void *arg)
{
    NXL_ASSERT(arg != NULL);
}

static void only_a_false_assertion_stops_the_program(void **state)
{
    assert_int_equal(dies_of(assert_as_told, NULL), SIGABRT);
    assert_int_equal(dies_of(assert_as_told, ""), 0);
}

static void an_assertion_evaluates_its_expression_exactly_once(void **state)
{
    int calls = 0;

    NXL_ASSERT(++calls > 0);
    assert_int_equal(calls, 1);
}

static char *taken_out(void)
{
    NXL_CLEANUP(nxl_freep) char *text = nxl_strdup("kept");

    return NXL_TAKE(text);
}

static void taking_a_pointer_disarms_its_clean_up(void **state)
{
    char *text = taken_out();

    assert_string_equal(text, "kept");
    nxl_freep(&text);
    assert_null(text);
    nxl_freep(&text);
}

static void formatting_gives_an_own_text(void **state)
{
    char *text = nxl_format("%s-%d", "a", 5);

    assert_string_equal(text, "a-5");
    free(text);
}

static void copying_a_text_cuts_and_says_so(void **state)
{
    static const struct {
        const char *from;
        size_t size;
        int result;
        const char *to;
    } rows[] = {
        {"", 1, 0, ""},
        {"abc", 4, 0, "abc"},
        {"abc", 3, -1, "ab"},
        {"abc", 1, -1, ""},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        char to[8];

        memset(to, '#', sizeof(to));
        assert_int_equal(nxl_copy_text(to, rows[i].size, rows[i].from), rows[i].result);
        assert_string_equal(to, rows[i].to);
        assert_int_equal(to[rows[i].size], '#');
    }
}

struct outer {
    int before;
    int inner;
};

static void the_container_of_a_member_is_found(void **state)
{
    struct outer outer = {1, 2};

    assert_ptr_equal(nxl_container_of(&outer.inner, struct outer, inner), &outer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(new_memory_is_zero_and_never_null),
        cmocka_unit_test(resizing_keeps_the_content_and_never_frees),
        cmocka_unit_test(a_product_that_overflows_stops_the_program),
        cmocka_unit_test(only_a_false_assertion_stops_the_program),
        cmocka_unit_test(an_assertion_evaluates_its_expression_exactly_once),
        cmocka_unit_test(taking_a_pointer_disarms_its_clean_up),
        cmocka_unit_test(formatting_gives_an_own_text),
        cmocka_unit_test(copying_a_text_cuts_and_says_so),
        cmocka_unit_test(the_container_of_a_member_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
