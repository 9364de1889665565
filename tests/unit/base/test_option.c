/* test_option.c - declaring, setting and reading; which source wins. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/log.h"
#include "base/mem.h"
#include "unit/base/dies.h"
#include "unit/base/option_table.h"

#include <signal.h>
#include <stdlib.h>

static int settings_setup(void **state)
{
    *state = table_settings();
    return 0;
}

static int settings_teardown(void **state)
{
    nxl_settings_free(*state);
    nxl_settings_free(NULL);
    return 0;
}

static void defaults_come_from_the_table(void **state)
{
    assert_string_equal(nxl_settings_text(*state, "name"), "node");
    assert_string_equal(nxl_settings_text(*state, "store.url"), "none");
    assert_true(nxl_settings_number(*state, "store.timeout") == 500000000);
    assert_int_equal(nxl_settings_bool(*state, "store.tls"), 0);
    assert_int_equal(nxl_settings_number(*state, "link.window_size"), 1 << 20);
    assert_int_equal(nxl_settings_number(*state, "link.min-path"), 0);
    assert_string_equal(nxl_settings_text(*state, "backends.ucx.tls"), "");
}

static void setting_a_key_changes_text_and_number(void **state)
{
    struct nxl_err err = {0};

    assert_int_equal(nxl_settings_set(*state, "store.timeout", "2s", "test", &err), NXL_OK);
    assert_true(nxl_settings_number(*state, "store.timeout") == 2000000000);
    assert_string_equal(nxl_settings_text(*state, "store.timeout"), "2s");
    assert_int_equal(nxl_settings_set(*state, "store.tls", "YES", "test", &err), NXL_OK);
    assert_int_equal(nxl_settings_bool(*state, "store.tls"), 1);
    assert_string_equal(nxl_settings_text(*state, "store.tls"), "true");
}

static void a_wrong_value_changes_nothing_and_is_explained(void **state)
{
    struct nxl_err err = {0};

    assert_int_equal(nxl_settings_set(*state, "link.port", "65536", "origin", &err), NXL_CONFIG);
    assert_string_equal(err.text,
                        "origin: link.port: \"65536\" is out of range; allowed: 0 to 65535");
    assert_int_equal(nxl_settings_number(*state, "link.port"), 7741);
}

static void an_unknown_key_is_refused_with_the_nearest(void **state)
{
    static const struct {
        const char *key, *hint;
    } rows[] = {
        {"store.ulr", "did you mean 'store.url'?"},
        {"stor.url", "did you mean 'store.url'?"},
        {"link.prot", "did you mean 'link.port'?"},
        {"redis.timeout", "did you mean 'store.timeout'?"}, /* right name, wrong section */
        {"quite.different", "--help lists all settings"},
        {"", "--help lists all settings"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_err err = {0};

        assert_int_equal(nxl_settings_set(*state, rows[i].key, "1", "origin", &err), NXL_CONFIG);
        assert_int_equal(strncmp(err.text, "origin: unknown setting \"", 25), 0);
        if (!strstr(err.text, rows[i].hint))
            fail_msg("'%s' lacks '%s'", err.text, rows[i].hint);
    }
}

static enum nxl_code load_from(struct nxl_settings *settings, unsigned source)
{
    const char *const env[] = {"NIXLET_LINK_PORT=2", NULL};
    const char *const args[] = {"program", "--link.port=3", NULL};
    int next;

    if (source == 0)
        return nxl_settings_parse_yaml(settings, "f", view_of("link: {port: 1}\n"), NULL);
    if (source == 1)
        return nxl_settings_load_env(settings, (char **)env, NULL);
    return nxl_settings_load_args(settings, 2, (char **)args, &next, NULL);
}

/* Flags are read first, because one of them names the file. */
static void the_stronger_source_wins_in_whatever_order_they_are_read(void **state)
{
    static const unsigned orders[][3] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2},
                                         {1, 2, 0}, {2, 0, 1}, {2, 1, 0}};

    for (size_t i = 0; i < NXL_COUNT_OF(orders); i++) {
        struct nxl_settings *settings = table_settings();

        for (unsigned k = 0; k < 3; k++)
            assert_int_equal(load_from(settings, orders[i][k]), NXL_OK);
        assert_int_equal(nxl_settings_number(settings, "link.port"), 3);
        nxl_settings_free(settings);
        settings = table_settings();
        for (unsigned k = 0; k < 3; k++) {
            if (orders[i][k] != 2)
                assert_int_equal(load_from(settings, orders[i][k]), NXL_OK);
        }
        assert_int_equal(nxl_settings_number(settings, "link.port"), 2);
        nxl_settings_free(settings);
    }
}

static void a_backend_sees_its_own_section_only(void **state)
{
    struct nxl_config *config = nxl_settings_config(*state, "backends.ucx");
    struct nxl_config *none = nxl_settings_config(*state, "backends.null");

    assert_int_equal(config->size, sizeof(*config));
    assert_int_equal(config->number(config, "workers"), 1);
    assert_string_equal(config->text(config, "tls"), "");
    assert_int_equal(nxl_settings_set(*state, "backends.ucx.tls", "tcp,self", "test", NULL),
                     NXL_OK);
    assert_string_equal(config->text(config, "tls"), "tcp,self");
    nxl_log_limit = NXL_LOG_ERROR;
    assert_string_equal(config->text(config, "port"), "");
    assert_int_equal(none->number(none, "workers"), 0);
    nxl_log_limit = NXL_LOG_INFO;
    free(config);
    free(none);
}

static void a_table_from_outside_is_judged_before_it_is_declared(void **state)
{
    static const struct {
        struct nxl_option row;
        const char *why;
    } rows[] = {
        {{"n", NXL_OPTION_INT, "x", 0, 0, NULL, "h"},
         "section 's', key 'n': default: \"x\" is not"},
        {{"n", NXL_OPTION_INT, "11", 1, 10, NULL, "h"}, "allowed: 1 to 10"},
        {{"n", NXL_OPTION_INT, NULL, 0, 0, NULL, "h"}, "not a whole number"},
        {{"n", NXL_OPTION_INT, "5", 10, 1, NULL, "h"}, "ordered range"},
        {{"n", NXL_OPTION_ENUM, "a", 0, 0, NULL, "h"}, "choices"},
        {{"n", NXL_OPTION_ENUM, "c", 0, 0, "a|b", "h"}, "allowed: a, b"},
        {{"n", NXL_OPTION_TEXT, "", 0, 0, NULL, NULL}, "help"},
        {{"n", (enum nxl_option_type)99, "", 0, 0, NULL, "h"}, "known type"},
        {{"a b", NXL_OPTION_TEXT, "", 0, 0, NULL, "h"}, "'a b' is no valid key"},
        {{".a", NXL_OPTION_TEXT, "", 0, 0, NULL, "h"}, "no valid key"},
        {{"", NXL_OPTION_TEXT, "", 0, 0, NULL, "h"}, "no valid key"},
    };
    struct nxl_option twice[] = {{"n", NXL_OPTION_TEXT, "", 0, 0, NULL, "h"},
                                 {"n", NXL_OPTION_TEXT, "", 0, 0, NULL, "h"},
                                 {0}};
    struct nxl_err err = {0};

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_option table[2] = {rows[i].row, {0}};

        assert_int_equal(nxl_options_check("s", table, &err), NXL_CONFIG);
        if (!strstr(err.text, rows[i].why))
            fail_msg("'%s' lacks '%s'", err.text, rows[i].why);
    }
    assert_int_equal(nxl_options_check("s", twice, &err), NXL_CONFIG);
    assert_int_equal(nxl_options_check("s t", table_ucx, &err), NXL_CONFIG);
    assert_int_equal(nxl_options_check("backends.ucx", table_ucx, &err), NXL_OK);
    assert_int_equal(nxl_options_check("backends.null", NULL, &err), NXL_OK);
}

static void read_unknown(const void *arg)
{
    (void)nxl_settings_text(table_settings(), "nobody.knows");
}

static void declare_twice(const void *arg)
{
    nxl_settings_declare(table_settings(), "store", table_link);
}

static void declare_same_variable(const void *arg)
{
    static const struct nxl_option table[] = {{"store_url", NXL_OPTION_TEXT, "", 0, 0, NULL, "h"},
                                              {0}};

    nxl_settings_declare(table_settings(), "x", NULL);
    if (arg) {
        struct nxl_settings *settings = nxl_settings_new();

        nxl_settings_declare(settings, "store", table_store);
        nxl_settings_declare(settings, "", table);
    }
}

static void number_of_a_text(const void *arg)
{
    (void)nxl_settings_number(table_settings(), "store.url");
}

static void our_own_mistakes_stop_the_program(void **state)
{
    assert_int_equal(dies_of(read_unknown, NULL), SIGABRT);
    assert_int_equal(dies_of(declare_twice, NULL), SIGABRT);
    assert_int_equal(dies_of(number_of_a_text, NULL), SIGABRT);
    assert_int_equal(dies_of(declare_same_variable, NULL), 0);
    assert_int_equal(dies_of(declare_same_variable, ""), SIGABRT);
}

static void the_help_lists_every_setting_once(void **state)
{
    NXL_CLEANUP(nxl_freep) char *text = nxl_settings_help(*state, 0);
    const char *first = strstr(text, "--store.url=TEXT");

    assert_non_null(first);
    assert_null(strstr(first + 1, "--store.url="));
    assert_int_equal(strncmp(text, "general:\n  --name=TEXT\n", 23), 0);
    assert_non_null(strstr(text, "  --link.port=NUMBER\n      listens here\n"
                                 "      default: 7741; allowed: 0 to 65535; "
                                 "environment: NIXLET_LINK_PORT\n"));
    assert_non_null(strstr(text, "allowed: at least 4Ki"));
    assert_non_null(strstr(text, "default: none; environment: NIXLET_BACKENDS_UCX_TLS\n"));
}

static void the_reference_page_is_a_table_per_section(void **state)
{
    NXL_CLEANUP(nxl_freep) char *text = nxl_settings_help(*state, 1);

    assert_non_null(strstr(text, "## general\n"));
    assert_non_null(strstr(text, "## backends.ucx\n"));
    assert_null(strstr(text, "## backends.null")); /* it has nothing to set */
    assert_non_null(strstr(text, "| `link.min-path` | CHOICE | `any` | any, tcp, shared | "
                                 "`NIXLET_LINK_MIN_PATH` | slowest path allowed |\n"));
}

static void the_nearest_word_is_found_within_a_third(void **state)
{
    static const char *const words[] = {"store.url", "link.port", "log", "link.insecure"};
    static const struct {
        const char *word, *nearest;
    } rows[] = {
        {"store.url", "store.url"},
        {"stroe.url", "store.url"},
        {"store.uri", "store.url"},
        {"link.prot", "link.port"},
        {"linkport", "link.port"},
        {"lgo", "log"},
        {"lag", "log"},
        {"link.unsecure", "link.insecure"},
        {"x", NULL},
        {"", NULL},
        {"heartbeat", NULL},
        {"lxyz", NULL},
    };
    char longer[300];

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        const char *nearest = nxl_nearest(rows[i].word, words, NXL_COUNT_OF(words));

        if (rows[i].nearest) {
            assert_non_null(nearest);
            assert_string_equal(nearest, rows[i].nearest);
        } else {
            assert_null(nearest);
        }
    }
    memset(longer, 'x', sizeof(longer) - 1);
    longer[sizeof(longer) - 1] = '\0';
    assert_null(nxl_nearest(longer, words, NXL_COUNT_OF(words)));
    assert_null(nxl_nearest("store", (const char *const[]){longer}, 1));
    assert_null(nxl_nearest("store", NULL, 0));
}

#define SETTINGS_TEST(name) cmocka_unit_test_setup_teardown(name, settings_setup, settings_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SETTINGS_TEST(defaults_come_from_the_table),
        SETTINGS_TEST(setting_a_key_changes_text_and_number),
        SETTINGS_TEST(a_wrong_value_changes_nothing_and_is_explained),
        SETTINGS_TEST(an_unknown_key_is_refused_with_the_nearest),
        cmocka_unit_test(the_stronger_source_wins_in_whatever_order_they_are_read),
        SETTINGS_TEST(a_backend_sees_its_own_section_only),
        cmocka_unit_test(a_table_from_outside_is_judged_before_it_is_declared),
        cmocka_unit_test(our_own_mistakes_stop_the_program),
        SETTINGS_TEST(the_help_lists_every_setting_once),
        SETTINGS_TEST(the_reference_page_is_a_table_per_section),
        cmocka_unit_test(the_nearest_word_is_found_within_a_third),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
