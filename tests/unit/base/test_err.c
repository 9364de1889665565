/* test_err.c - the error slot and the list of codes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <nxl/err.h>

#include <errno.h>
#include <string.h>

/* An error says what and where, with the cause of the system behind it. */
static void setting_an_error_formats_it_and_adds_the_cause(void **state)
{
    struct nxl_err err = {0};

    assert_int_equal(nxl_err_set(&err, NXL_IO, ENOMEM, "map fd %d", 7), NXL_IO);
    assert_int_equal(err.code, NXL_IO);
    assert_int_equal(err.os, ENOMEM);
    assert_string_equal(err.text, "map fd 7: Cannot allocate memory");
}

static void a_vendor_status_that_is_no_errno_is_kept_but_not_spelled(void **state)
{
    struct nxl_err err = {0};

    assert_int_equal(nxl_err_set(&err, NXL_BACKEND, -25, "put"), NXL_BACKEND);
    assert_int_equal(err.os, -25);
    assert_string_equal(err.text, "put");
}

static void wrapping_puts_the_outer_step_first_and_keeps_the_cause(void **state)
{
    struct nxl_err err = {0};

    (void)nxl_err_set(&err, NXL_IO, ENOENT, "open '/x'");
    assert_int_equal(nxl_err_wrap(&err, NXL_CONFIG, "read %s", "settings"), NXL_CONFIG);
    assert_int_equal(err.code, NXL_CONFIG);
    assert_int_equal(err.os, ENOENT);
    assert_string_equal(err.text, "read settings: open '/x': No such file or directory");
}

static void wrapping_an_empty_slot_says_what_the_code_means(void **state)
{
    struct nxl_err err = {0};

    (void)nxl_err_wrap(&err, NXL_TIMEOUT, "fetch");
    assert_string_equal(err.text, "fetch: the deadline passed");
}

static void without_a_slot_only_the_code_comes_back(void **state)
{
    assert_int_equal(nxl_err_set(NULL, NXL_LIMIT, 0, "x"), NXL_LIMIT);
    assert_int_equal(nxl_err_wrap(NULL, NXL_STALE, "x"), NXL_STALE);
}

static void the_slot_s_own_text_may_be_an_argument(void **state)
{
    struct nxl_err err = {0};

    (void)nxl_err_set(&err, NXL_IO, 0, "inner");
    (void)nxl_err_set(&err, NXL_IO, 0, "outer (%s)", err.text);
    assert_string_equal(err.text, "outer (inner)");
    (void)nxl_err_wrap(&err, NXL_IO, "[%s]", err.text);
    assert_string_equal(err.text, "[outer (inner)]: outer (inner)");
}

/* Cut texts go into JSON, so half a character must not stay behind, wherever the cut falls. */
static void a_text_too_long_ends_in_dots_after_a_whole_character(void **state)
{
    for (size_t lead = 480; lead < NXL_ERR_TEXT_SIZE; lead++) {
        char text[NXL_ERR_TEXT_SIZE + 64] = {0};
        struct nxl_err err = {0};
        size_t length, at;

        memset(text, 'a', lead);
        for (at = lead; at + 3 < sizeof(text); at += 3)
            memcpy(text + at, "\xe2\x82\xac", 3);
        (void)nxl_err_set(&err, NXL_IO, 0, "%s", text);
        length = strlen(err.text);
        assert_true(length < NXL_ERR_TEXT_SIZE);
        assert_true(length > NXL_ERR_TEXT_SIZE - 10);
        assert_string_equal(err.text + length - 3, "...");
        at = length - 3;
        assert_true(at <= lead || (at - lead) % 3 == 0);
        assert_memory_equal(err.text, text, at);
    }
}

static void a_cause_that_does_not_fit_is_cut_inside_the_slot(void **state)
{
    char text[NXL_ERR_TEXT_SIZE] = {0};
    struct nxl_err err = {0};

    memset(text, 'a', sizeof(text) - 8);
    (void)nxl_err_set(&err, NXL_IO, ENOMEM, "%s", text);
    assert_int_equal(strlen(err.text), NXL_ERR_TEXT_SIZE - 1);
    assert_string_equal(err.text + NXL_ERR_TEXT_SIZE - 4, "...");
    (void)nxl_err_wrap(&err, NXL_IO, "outer");
    assert_memory_equal(err.text, "outer: aaa", 10);
    assert_int_equal(strlen(err.text), NXL_ERR_TEXT_SIZE - 1);
}

static const int all_codes[] = {
#define CODE_NUMBER(name, number, word, retry, text) number,
    NXL_CODES(CODE_NUMBER)
#undef CODE_NUMBER
};
#define CODE_COUNT (sizeof(all_codes) / sizeof(all_codes[0]))

static void every_code_has_its_own_number_name_word_and_sentence(void **state)
{
    for (size_t i = 0; i < CODE_COUNT; i++) {
        assert_true(strlen(nxl_code_text(all_codes[i])) > 3);
        for (size_t j = 0; j < i; j++) {
            assert_int_not_equal(all_codes[i], all_codes[j]);
            assert_string_not_equal(nxl_code_name(all_codes[i]), nxl_code_name(all_codes[j]));
            assert_string_not_equal(nxl_code_word(all_codes[i]), nxl_code_word(all_codes[j]));
            assert_string_not_equal(nxl_code_text(all_codes[i]), nxl_code_text(all_codes[j]));
        }
    }
}

static void names_words_and_retries_are_as_documented(void **state)
{
    assert_string_equal(nxl_code_name(NXL_NOT_FOUND), "NXL_ERR_NOT_FOUND");
    assert_string_equal(nxl_code_name(NXL_OK), "NXL_OK");
    assert_string_equal(nxl_code_name(NXL_IN_PROG), "NXL_IN_PROG");
    assert_string_equal(nxl_code_word(NXL_NOT_FOUND), "not_found");
    assert_int_equal(nxl_code_retryable(NXL_REMOTE_DISCONNECT), 1);
    assert_int_equal(nxl_code_retryable(NXL_STALE), 0);
    assert_int_equal(nxl_code_retryable(NXL_OK), 0);
}

static void a_code_of_another_build_is_named_unknown(void **state)
{
    assert_string_equal(nxl_code_name(-9999), "NXL_ERR_UNKNOWN");
    assert_string_equal(nxl_code_word(-9999), "unknown");
    assert_non_null(nxl_code_text(-9999));
    assert_int_equal(nxl_code_retryable(-9999), 0);
}

/* Programs written for NIXL compare numbers. */
static void codes_that_nixl_has_carry_its_numbers(void **state)
{
    static const struct {
        enum nxl_code code;
        int number;
    } rows[] = {
        {NXL_IN_PROG, 1},        {NXL_OK, 0},
        {NXL_NOT_POSTED, -1},    {NXL_INVALID_PARAM, -2},
        {NXL_BACKEND, -3},       {NXL_NOT_FOUND, -4},
        {NXL_MISMATCH, -5},      {NXL_NOT_ALLOWED, -6},
        {NXL_REPOST_ACTIVE, -7}, {NXL_UNKNOWN, -8},
        {NXL_NOT_SUPPORTED, -9}, {NXL_REMOTE_DISCONNECT, -10},
        {NXL_CANCELED, -11},     {NXL_NO_TELEMETRY, -12},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++)
        assert_int_equal(rows[i].code, rows[i].number);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(setting_an_error_formats_it_and_adds_the_cause),
        cmocka_unit_test(a_vendor_status_that_is_no_errno_is_kept_but_not_spelled),
        cmocka_unit_test(wrapping_puts_the_outer_step_first_and_keeps_the_cause),
        cmocka_unit_test(wrapping_an_empty_slot_says_what_the_code_means),
        cmocka_unit_test(without_a_slot_only_the_code_comes_back),
        cmocka_unit_test(the_slot_s_own_text_may_be_an_argument),
        cmocka_unit_test(a_text_too_long_ends_in_dots_after_a_whole_character),
        cmocka_unit_test(a_cause_that_does_not_fit_is_cut_inside_the_slot),
        cmocka_unit_test(every_code_has_its_own_number_name_word_and_sentence),
        cmocka_unit_test(names_words_and_retries_are_as_documented),
        cmocka_unit_test(a_code_of_another_build_is_named_unknown),
        cmocka_unit_test(codes_that_nixl_has_carry_its_numbers),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
