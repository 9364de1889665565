/* test_option_parse.c - sizes, durations and values against their rows. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/mem.h"
#include "base/option_inner.h"

#include <stdlib.h>
#include <string.h>

struct quantity {
    const char *text;
    int64_t value; /* -1: refused */
    const char *why;
};

static void assert_quantities(enum nxl_code (*parse)(const char *, int64_t *, struct nxl_err *),
                              const struct quantity *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct nxl_err err = {0};
        int64_t value = 77;
        enum nxl_code code = parse(rows[i].text, &value, &err);

        if (rows[i].value >= 0) {
            assert_int_equal(code, NXL_OK);
            assert_true(value == rows[i].value);
            continue;
        }
        assert_int_equal(code, NXL_INVALID_PARAM);
        assert_true(value == 77); /* untouched */
        if (!strstr(err.text, rows[i].why))
            fail_msg("'%s': '%s' lacks '%s'", rows[i].text, err.text, rows[i].why);
        assert_int_equal(parse(rows[i].text, &value, NULL), NXL_INVALID_PARAM);
    }
}

static void sizes_are_read_or_refused(void **state)
{
    static const struct quantity rows[] = {
        {"0", 0, ""},
        {"1", 1, ""},
        {"4096", 4096, ""},
        {"007", 7, ""},
        {"1K", 1000, ""},
        {"1k", 1000, ""},
        {"1Ki", 1024, ""},
        {"64KiB", 65536, ""},
        {"2KB", 2000, ""},
        {"12B", 12, ""},
        {"3M", 3000000, ""},
        {"3Mi", 3145728, ""},
        {"5G", 5000000000, ""},
        {"5Gi", 5368709120, ""},
        {"2T", 2000000000000, ""},
        {"2Ti", 2199023255552, ""},
        {"9223372036854775807", INT64_MAX, ""},
        {"8388607Ti", 8388607ll << 40, ""},
        {"9223372036854775808", -1, "too large"},
        {"8388608Ti", -1, "too large"},
        {"99999999999999999999999999999999", -1, "too large"},
        {"99999999999999999999999999999999Ki", -1, "too large"},
        {"18446744073709551617", -1, "too large"}, /* 1, if it wrapped */
        {"9223373T", -1, "too large"},
        {"", -1, "write bytes"},
        {"-1", -1, "write bytes"},
        {"-9223372036854775808", -1, "write bytes"},
        {"+1", -1, "write bytes"},
        {" 1", -1, "write bytes"},
        {"1 ", -1, "unknown unit"},
        {"1 K", -1, "unknown unit"},
        {"1.5G", -1, "unknown unit"},
        {"0x10", -1, "unknown unit"},
        {"1e3", -1, "unknown unit"},
        {"1KK", -1, "unknown unit"},
        {"1Kib", -1, "unknown unit"},
        {"1BB", -1, "unknown unit"},
        {"1P", -1, "unknown unit"},
        {"B", -1, "write bytes"},
        {"KiB", -1, "write bytes"},
        {"many", -1, "write bytes"},
        {"\xd9\xa3", -1, "write bytes"}, /* a digit, but not one of ours */
    };

    assert_quantities(nxl_parse_size, rows, NXL_COUNT_OF(rows));
}

static void durations_are_read_or_refused(void **state)
{
    static const struct quantity rows[] = {
        {"0s", 0, ""},
        {"0ns", 0, ""},
        {"1ns", 1, ""},
        {"250us", 250000, ""},
        {"10ms", 10000000, ""},
        {"3s", 3000000000, ""},
        {"5m", 300000000000, ""},
        {"24h", 86400000000000, ""},
        {"9223372036854775807ns", INT64_MAX, ""},
        {"2562047h", 2562047ll * 3600 * 1000000000, ""},
        {"9223372036854775808ns", -1, "too large"},
        {"2562048h", -1, "too large"},
        {"9223372037s", -1, "too large"},
        {"99999999999999999999999h", -1, "too large"},
        {"10", -1, "no unit"},
        {"0", -1, "no unit"},
        {"99999999999999999999999", -1, "no unit"},
        {"", -1, "whole number"},
        {"-1s", -1, "whole number"},
        {"s", -1, "whole number"},
        {"soon", -1, "whole number"},
        {"1.5s", -1, "unknown unit"},
        {"1 s", -1, "unknown unit"},
        {"1S", -1, "unknown unit"},
        {"1d", -1, "unknown unit"},
        {"1m30s", -1, "unknown unit"},
        {"1sec", -1, "unknown unit"},
    };

    assert_quantities(nxl_parse_duration, rows, NXL_COUNT_OF(rows));
}

static const struct nxl_option row_int = {"n", NXL_OPTION_INT, "1", -5, 65535, NULL, "h"};
static const struct nxl_option row_any = {"n", NXL_OPTION_INT, "1", 0, 0, NULL, "h"};
static const struct nxl_option row_size = {"s", NXL_OPTION_SIZE, "1Mi", 4096, 1 << 30, NULL, "h"};
static const struct nxl_option row_wait = {
    "d", NXL_OPTION_DURATION, "1s", 1000000, 3600000000000, NULL, "h"};
static const struct nxl_option row_bool = {"b", NXL_OPTION_BOOL, "false", 0, 0, NULL, "h"};
static const struct nxl_option row_enum = {"e", NXL_OPTION_ENUM,  "any", 0,
                                           0,   "any|tcp|shared", "h"};
static const struct nxl_option row_text = {"t", NXL_OPTION_TEXT, "", 0, 0, NULL, "h"};

static void values_are_checked_against_their_row(void **state)
{
    static const struct {
        const struct nxl_option *row;
        const char *text;
        int64_t number;
        const char *canonical; /* NULL: refused */
        const char *why;
    } rows[] = {
        {&row_int, "65535", 65535, "65535", ""},
        {&row_int, "-5", -5, "-5", ""},
        {&row_int, "65536", 0, NULL, "\"65536\" is out of range; allowed: -5 to 65535"},
        {&row_int, "-6", 0, NULL, "allowed: -5 to 65535"},
        {&row_int, "1K", 0, NULL, "is not a whole number; allowed: -5 to 65535"},
        {&row_int, "", 0, NULL, "is not a whole number"},
        {&row_int, "-", 0, NULL, "is not a whole number"},
        {&row_int, "--1", 0, NULL, "is not a whole number"},
        {&row_int, "99999999999999999999", 0, NULL, "is too large"},
        {&row_any, "-9223372036854775807", -INT64_MAX, "-9223372036854775807", ""},
        {&row_size, "4Ki", 4096, "4Ki", ""},
        {&row_size, "1Gi", 1 << 30, "1Gi", ""},
        {&row_size, "4095", 0, NULL, "allowed: 4Ki to 1Gi"},
        {&row_size, "1025Mi", 0, NULL, "allowed: 4Ki to 1Gi"},
        {&row_wait, "1h", 3600000000000, "1h", ""},
        {&row_wait, "999us", 0, NULL, "allowed: 1ms to 1h"},
        {&row_wait, "5", 0, NULL, "has no unit"},
        {&row_bool, "true", 1, "true", ""},
        {&row_bool, "Enable", 1, "true", ""},
        {&row_bool, "y", 1, "true", ""},
        {&row_bool, "YES", 1, "true", ""},
        {&row_bool, "on", 1, "true", ""},
        {&row_bool, "1", 1, "true", ""},
        {&row_bool, "n", 0, "false", ""},
        {&row_bool, "no", 0, "false", ""},
        {&row_bool, "off", 0, "false", ""},
        {&row_bool, "0", 0, "false", ""},
        {&row_bool, "Disable", 0, "false", ""},
        {&row_bool, "FALSE", 0, "false", ""},
        {&row_bool, "2", 0, NULL, "allowed: true or false"},
        {&row_bool, "", 0, NULL, "is not true or false"},
        {&row_enum, "any", 0, "any", ""},
        {&row_enum, "shared", 2, "shared", ""},
        {&row_enum, "share", 0, NULL, "allowed: any, tcp, shared"},
        {&row_enum, "any|tcp", 0, NULL, "is no choice"},
        {&row_enum, "", 0, NULL, "is no choice"},
        {&row_text, "", 0, "", ""},
        {&row_text, "gr\xc3\xbc\xc3\x9f", 0, "gr\xc3\xbc\xc3\x9f", ""},
        {&row_text, "a\nb", 0, NULL, "byte 1 of the value is a control character (0x0a)"},
        {&row_text, "a\x7f", 0, NULL, "control character"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_err err = {0};
        char *text = NULL;
        int64_t number = 77;
        enum nxl_code code = nxl_option_check(rows[i].row, rows[i].text, &text, &number, &err);

        if (rows[i].canonical) {
            assert_int_equal(code, NXL_OK);
            assert_string_equal(text, rows[i].canonical);
            assert_true(number == rows[i].number);
            free(text);
            continue;
        }
        assert_int_equal(code, NXL_INVALID_PARAM);
        assert_null(text);
        assert_true(number == 77);
        if (!strstr(err.text, rows[i].why))
            fail_msg("'%s': '%s' lacks '%s'", rows[i].text, err.text, rows[i].why);
    }
}

static void a_value_of_4095_bytes_fits_and_one_more_does_not(void **state)
{
    char value[4097];
    struct nxl_err err = {0};
    char *text = NULL;
    int64_t number;

    memset(value, 'v', sizeof(value));
    value[4095] = '\0';
    assert_int_equal(nxl_option_check(&row_text, value, &text, &number, &err), NXL_OK);
    free(text);
    value[4095] = 'v';
    value[4096] = '\0';
    text = NULL;
    assert_int_equal(nxl_option_check(&row_text, value, &text, &number, &err), NXL_INVALID_PARAM);
    assert_null(text);
}

/* Whoever pastes a password into the wrong line must not find it in the log. */
static void a_refused_text_is_not_shown(void **state)
{
    struct nxl_err err = {0};
    char *text = NULL;
    int64_t number;

    assert_int_equal(nxl_option_check(&row_text, "hunter2\n", &text, &number, &err),
                     NXL_INVALID_PARAM);
    assert_null(strstr(err.text, "hunter2"));
}

static void a_long_wrong_value_is_shown_in_part(void **state)
{
    char value[2000];
    struct nxl_err err = {0};
    char *text = NULL;
    int64_t number;

    memset(value, 'v', sizeof(value));
    value[sizeof(value) - 1] = '\0';
    assert_int_equal(nxl_option_check(&row_int, value, &text, &number, &err), NXL_INVALID_PARAM);
    assert_non_null(strstr(err.text, "allowed: -5 to 65535"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_read_or_refused),
        cmocka_unit_test(durations_are_read_or_refused),
        cmocka_unit_test(values_are_checked_against_their_row),
        cmocka_unit_test(a_value_of_4095_bytes_fits_and_one_more_does_not),
        cmocka_unit_test(a_refused_text_is_not_shown),
        cmocka_unit_test(a_long_wrong_value_is_shown_in_part),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
