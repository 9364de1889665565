/* test_print.c - sizes for people, and foreign texts made harmless. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "ctl/print.h"

static void sizes_have_at_most_two_decimals(void **state)
{
    static const struct {
        uint64_t bytes;
        const char *text;
    } rows[] = {
        {0, "0 B"},
        {576, "576 B"},
        {1023, "1023 B"},
        {1024, "1 KiB"},
        {1536, "1.5 KiB"},
        {102400, "100 KiB"},
        {327680, "320 KiB"},
        {70272, "68.62 KiB"},
        {1342177280, "1.25 GiB"},
        {1ull << 40, "1 TiB"},
        {1ull << 60, "1 EiB"},
        {UINT64_MAX, "16 EiB"},
    };
    char text[24];

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_string_equal(ctl_bytes_text(rows[i].bytes, text, sizeof(text)), rows[i].text);
}

static void control_characters_do_not_reach_a_terminal(void **state)
{
    char text[] = "a\033[2Jb\nc\rd\te\177f\302\233g\303\244";

    ctl_harmless(text);
    assert_string_equal(text, "a?[2Jb?c?d?e?f?\233g\303\244");
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_have_at_most_two_decimals),
        cmocka_unit_test(control_characters_do_not_reach_a_terminal),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
