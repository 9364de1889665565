/* test_args.c - command lines by table. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

#include "ctl/args.h"
#include "ctl/ctl.h"

struct values {
    const char *peer;
    int64_t region, length, timeout;
    uint64_t address;
    int quiet;
};

static enum nxl_code parse(const char *const *argv, struct ctl *ctl, struct values *v,
                           struct ctl_words *words, struct nxl_err *err)
{
    const struct ctl_option options[] = {
        {"peer", CTL_TEXT, &v->peer, 0, 0, "NAME", ""},
        {"region", CTL_COUNT, &v->region, 0, 1000, "ID", ""},
        {"length", CTL_SIZE, &v->length, 1, INT64_MAX, "SIZE", ""},
        {"timeout", CTL_DURATION, &v->timeout, 0, 0, "TIME", ""},
        {"address", CTL_ADDRESS, &v->address, 0, 0, "HEX", ""},
        {"quiet", CTL_SWITCH, &v->quiet, 0, 0, NULL, ""},
        {NULL, CTL_TEXT, NULL, 0, 0, NULL, NULL},
    };
    int argc = 0;

    while (argv[argc] != NULL)
        argc++;
    return ctl_args_parse(ctl, options, argc, (char **)argv, words, err);
}

static void options_and_words_come_in_any_order(void **state)
{
    static const char *const argv[] = {
        "file",     "--peer=far", "--region",      "7",         "--json", "other",      "--address",
        "0x7f00aA", "--quiet",    "--length=64Ki", "--timeout", "3s",     "--http=h:1", "--",
        "--peer",   NULL};
    struct values v = {.region = -1};
    struct ctl ctl = {0};
    struct ctl_words words = {0};
    struct nxl_err err = {0};

    if (parse(argv, &ctl, &v, &words, &err) != NXL_OK)
        fail_msg("%s", err.text);
    assert_string_equal(v.peer, "far");
    assert_int_equal(v.region, 7);
    assert_int_equal(v.address, 0x7f00aa);
    assert_int_equal(v.length, 65536);
    assert_int_equal(v.timeout, 3000000000);
    assert_int_equal(v.quiet, 1);
    assert_int_equal(ctl.json, 1);
    assert_string_equal(ctl.http, "h:1");
    assert_int_equal(words.count, 3);
    assert_string_equal(words.at[0], "file");
    assert_string_equal(words.at[1], "other");
    assert_string_equal(words.at[2], "--peer");
    assert_int_equal(words.help, 0);
}

static void help_is_no_word(void **state)
{
    static const char *const argv[] = {"-h", NULL}, *const more[] = {"--help", NULL};
    struct values v = {0};
    struct ctl ctl = {0};
    struct ctl_words words = {0};
    struct nxl_err err = {0};

    assert_int_equal(parse(argv, &ctl, &v, &words, &err), NXL_OK);
    assert_int_equal(words.help, 1);
    assert_int_equal(words.count, 0);
    assert_int_equal(parse(more, &ctl, &v, &words, &err), NXL_OK);
    assert_int_equal(words.help, 1);
}

static void a_wrong_line_is_refused_with_the_option_and_the_reason(void **state)
{
    static const struct {
        const char *argv[10];
        const char *says;
    } rows[] = {
        {{"--pear=x"}, "did you mean --peer?"},
        {{"--zzzzzzzzzzzz"}, "see --help"},
        {{"--"
          "=5"},
         "no option"},
        {{"-x"}, "no option '-x'"},
        {{"--peer"}, "--peer needs a value"},
        {{"--quiet=1"}, "takes no value"},
        {{"--region=x"}, "--region: 'x' is not a whole number"},
        {{"--region=-1"}, "--region"},
        {{"--region=1001"}, "not between 0 and 1000"},
        {{"--length=0"}, "--length: 0 is not between 1"},
        {{"--length=9999999999999999999999"}, "--length"},
        {{"--length=12Q"}, "is not a size"},
        {{"--timeout=5"}, "is not a duration"},
        {{"--timeout="}, "--timeout"},
        {{"--address=xyz"}, "is no address"},
        {{"--address="}, "is no address"},
        {{"--address=0x"}, "is no address"},
        {{"--address=-1"}, "is no address"},
        {{"--address=0x10000000000000000"}, "is no address"},
        {{"1", "2", "3", "4", "5", "6", "7", "8", "9"}, "more than 8 words at '9'"},
    };

    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct values v = {.region = -1};
        struct ctl ctl = {0};
        struct ctl_words words = {.count = 77};
        struct nxl_err err = {0};

        assert_int_equal(parse(rows[i].argv, &ctl, &v, &words, &err), NXL_INVALID_PARAM);
        if (strstr(err.text, rows[i].says) == NULL)
            fail_msg("row %zu: '%s' does not say '%s'", i, err.text, rows[i].says);
        assert_int_equal(v.region, -1);
        assert_int_equal(v.length, 0);
        assert_int_equal(words.count, 77);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_and_words_come_in_any_order),
        cmocka_unit_test(help_is_no_word),
        cmocka_unit_test(a_wrong_line_is_refused_with_the_option_and_the_reason),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
