/* test_option_source.c - settings from the environment and from flags. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "unit/base/option_table.h"

#include <fcntl.h>
#include <unistd.h>

static int settings_setup(void **state)
{
    *state = table_settings();
    return 0;
}

static int settings_teardown(void **state)
{
    nxl_settings_free(*state);
    return 0;
}

/* --- environment --- */

static void variables_are_named_after_their_keys(void **state)
{
    const char *const env[] = {"PATH=/bin",
                               "NIXLET_NAME=node-7",
                               "NIXLET_STORE_URL=redis://[::1]:6379/?a=b",
                               "NIXLET_LINK_MIN_PATH=tcp",
                               "NIXLET_BACKENDS_UCX_WORKERS=4",
                               "NIXLET_BACKENDS_UCX_TLS=",
                               NULL};
    struct nxl_err err = {0};

    assert_int_equal(nxl_settings_load_env(*state, (char **)env, &err), NXL_OK);
    assert_string_equal(nxl_settings_text(*state, "name"), "node-7");
    assert_string_equal(nxl_settings_text(*state, "store.url"), "redis://[::1]:6379/?a=b");
    assert_string_equal(nxl_settings_text(*state, "link.min-path"), "tcp");
    assert_int_equal(nxl_settings_number(*state, "backends.ucx.workers"), 4);
    assert_string_equal(nxl_settings_text(*state, "backends.ucx.tls"), "");
}

static void one_wrong_variable_changes_nothing_at_all(void **state)
{
    const char *const env[] = {"NIXLET_NAME=node-7", "NIXLET_LINK_PORT=many", NULL};
    struct nxl_err err = {0};

    assert_int_equal(nxl_settings_load_env(*state, (char **)env, &err), NXL_CONFIG);
    assert_string_equal(err.text,
                        "environment NIXLET_LINK_PORT: link.port: \"many\" is not a whole "
                        "number; allowed: 0 to 65535");
    assert_string_equal(nxl_settings_text(*state, "name"), "node");
}

/* What a log line says about the variable: its name and the nearest one, never its value. */
static void unknown_variables_are_only_reported(void **state)
{
    const char *const env[] = {"NIXLET_STORE_ULR=secret",
                               "NIXLET_PORT_7741_TCP=tcp://10.0.0.1:7741", "NIXLET_NOVALUE", NULL};
    struct nxl_err err = {0};
    char text[4096];
    ssize_t got;
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    nxl_log_setup("nixlet-test", NXL_LOG_INFO, ends[1]);
    assert_int_equal(nxl_settings_load_env(*state, (char **)env, &err), NXL_OK);
    nxl_log_setup("nixlet-test", NXL_LOG_INFO, STDERR_FILENO);
    close(ends[1]);
    got = read(ends[0], text, sizeof(text) - 1);
    close(ends[0]);
    assert_true(got > 0);
    text[got] = '\0';
    assert_non_null(strstr(text, "level=warn"));
    assert_non_null(strstr(text, "name=\"NIXLET_STORE_ULR\" nearest=NIXLET_STORE_URL\n"));
    assert_non_null(strstr(text, "name=\"NIXLET_PORT_7741_TCP\" nearest=-\n"));
    assert_null(strstr(text, "secret"));
    assert_string_equal(nxl_settings_text(*state, "store.url"), "none");
}

static void variables_of_others_are_left_alone(void **state)
{
    const char *const env[] = {"NIXLET_SOCKET=/run/x", "NIXLET_CONFIG=/etc/x",
                               "NIXLET_TEST_REDIS=1",  "XNIXLET_NAME=y",
                               "NIXLETNAME=y",         NULL};
    char text[4096];
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    nxl_log_setup("nixlet-test", NXL_LOG_INFO, ends[1]);
    assert_int_equal(nxl_settings_load_env(*state, (char **)env, NULL), NXL_OK);
    nxl_log_setup("nixlet-test", NXL_LOG_INFO, STDERR_FILENO);
    close(ends[1]);
    assert_int_equal(read(ends[0], text, sizeof(text)), 0);
    close(ends[0]);
    assert_string_equal(nxl_settings_text(*state, "name"), "node");
}

/* --- flags --- */

static void flags_end_at_the_first_word(void **state)
{
    const char *const args[] = {
        "program", "--name=x", "--link.port", "80", "--store.url", "-", "--backends.ucx.workers=2",
        "get",     "--name=y", NULL};
    struct nxl_err err = {0};
    int next = -1;

    assert_int_equal(nxl_settings_load_args(*state, 9, (char **)args, &next, &err), NXL_OK);
    assert_int_equal(next, 7);
    assert_string_equal(nxl_settings_text(*state, "name"), "x");
    assert_int_equal(nxl_settings_number(*state, "link.port"), 80);
    assert_string_equal(nxl_settings_text(*state, "store.url"), "-");
    assert_int_equal(nxl_settings_number(*state, "backends.ucx.workers"), 2);
}

static void two_dashes_end_the_flags(void **state)
{
    const char *const args[] = {"program", "--name=x", "--", "--name=y", NULL};
    int next = -1;

    assert_int_equal(nxl_settings_load_args(*state, 4, (char **)args, &next, NULL), NXL_OK);
    assert_int_equal(next, 3);
    assert_string_equal(nxl_settings_text(*state, "name"), "x");
}

static void no_flags_are_fine(void **state)
{
    const char *const args[] = {"program", NULL};
    int next = -1;

    assert_int_equal(nxl_settings_load_args(*state, 1, (char **)args, &next, NULL), NXL_OK);
    assert_int_equal(next, 1);
    assert_int_equal(nxl_settings_load_args(*state, 0, (char **)args + 1, &next, NULL), NXL_OK);
    assert_int_equal(next, 0);
}

static void a_switch_needs_no_value(void **state)
{
    static const struct {
        const char *args[4];
        int count, next, value;
    } rows[] = {
        {{"p", "--store.tls", NULL}, 2, 2, 1},
        {{"p", "--store.tls", "off", NULL}, 3, 3, 0},
        {{"p", "--store.tls=no", NULL}, 2, 2, 0},
        {{"p", "--store.tls", "get", NULL}, 3, 2, 1},
        {{"p", "--store.tls", "--name=x", NULL}, 3, 3, 1},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_settings *settings = table_settings();
        char *args[4];
        int next = -1;

        for (int k = 0; k < rows[i].count; k++)
            args[k] = nxl_strdup(rows[i].args[k]);
        assert_int_equal(nxl_settings_load_args(settings, rows[i].count, args, &next, NULL),
                         NXL_OK);
        assert_int_equal(next, rows[i].next);
        assert_int_equal(nxl_settings_bool(settings, "store.tls"), rows[i].value);
        for (int k = 0; k < rows[i].count; k++)
            nxl_freep(&args[k]);
        nxl_settings_free(settings);
    }
}

static void wrong_flags_change_nothing_and_are_named(void **state)
{
    static const struct {
        const char *flag, *why;
    } rows[] = {
        {"--link.port=x", "flag --link.port: link.port: \"x\" is not a whole number"},
        {"--link.port", "flag --link.port: no value; write --link.port=VALUE"},
        {"--link.prot=1",
         "flag --link.prot: unknown setting \"link.prot\", did you mean 'link.port'?"},
        {"--=1", "unknown setting \"\""},
        {"-v", "flag -v: flags begin with two dashes"},
        {"--help", "unknown setting \"help\""},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        char first[] = "--name=x";
        NXL_CLEANUP(nxl_freep) char *flag = nxl_strdup(rows[i].flag);
        char *args[] = {first, first, flag, NULL};
        struct nxl_err err = {0};
        int next = -7;

        assert_int_equal(nxl_settings_load_args(*state, 3, (char **)args, &next, &err), NXL_CONFIG);
        assert_int_equal(next, -7);
        if (!strstr(err.text, rows[i].why))
            fail_msg("'%s' lacks '%s'", err.text, rows[i].why);
        assert_string_equal(nxl_settings_text(*state, "name"), "node");
    }
}

static void a_flag_is_no_value_of_the_flag_before_it(void **state)
{
    const char *const args[] = {"program", "--link.port", "--name=x", NULL};
    struct nxl_err err = {0};
    int next;

    assert_int_equal(nxl_settings_load_args(*state, 3, (char **)args, &next, &err), NXL_CONFIG);
    assert_non_null(strstr(err.text, "no value"));
}

#define SETTINGS_TEST(name) cmocka_unit_test_setup_teardown(name, settings_setup, settings_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SETTINGS_TEST(variables_are_named_after_their_keys),
        SETTINGS_TEST(one_wrong_variable_changes_nothing_at_all),
        SETTINGS_TEST(unknown_variables_are_only_reported),
        SETTINGS_TEST(variables_of_others_are_left_alone),
        SETTINGS_TEST(flags_end_at_the_first_word),
        SETTINGS_TEST(two_dashes_end_the_flags),
        SETTINGS_TEST(no_flags_are_fine),
        cmocka_unit_test(a_switch_needs_no_value),
        SETTINGS_TEST(wrong_flags_change_nothing_and_are_named),
        SETTINGS_TEST(a_flag_is_no_value_of_the_flag_before_it),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
