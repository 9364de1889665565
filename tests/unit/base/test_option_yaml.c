/* test_option_yaml.c - settings files: what is taken, what is refused, with file and line. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/fd.h"
#include "base/mem.h"
#include "unit/base/option_table.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
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

static void nested_and_dotted_keys_are_the_same(void **state)
{
    static const char text[] = "# a comment\n"
                               "name: \"node 7\"\n"
                               "store:\n"
                               "  url: redis://127.0.0.1:6379\n"
                               "  timeout: 2s\n"
                               "  tls: yes\n"
                               "link.port: 0\n"
                               "backends:\n"
                               "  ucx:\n"
                               "    workers: 8\n"
                               "    tls: [tcp, self]\n"
                               "  null:\n";
    struct nxl_err err = {0};

    assert_int_equal(nxl_settings_parse_yaml(*state, "f", view_of(text), &err), NXL_OK);
    assert_string_equal(nxl_settings_text(*state, "name"), "node 7");
    assert_string_equal(nxl_settings_text(*state, "store.url"), "redis://127.0.0.1:6379");
    assert_true(nxl_settings_number(*state, "store.timeout") == 2000000000);
    assert_int_equal(nxl_settings_bool(*state, "store.tls"), 1);
    assert_int_equal(nxl_settings_number(*state, "link.port"), 0);
    assert_int_equal(nxl_settings_number(*state, "backends.ucx.workers"), 8);
    assert_string_equal(nxl_settings_text(*state, "backends.ucx.tls"), "tcp,self");
}

static void files_that_say_nothing_set_nothing(void **state)
{
    static const char *const texts[] = {"",
                                        "\n\n",
                                        "# only a comment\n",
                                        "---\n",
                                        "---\n...\n",
                                        "{}\n",
                                        "~\n",
                                        "store:\n",
                                        "store: {}\nlink: ~\n",
                                        "backends: {ucx: {}}\n"};

    for (size_t i = 0; i < NXL_COUNT_OF(texts); i++) {
        struct nxl_err err = {0};

        if (nxl_settings_parse_yaml(*state, "f", view_of(texts[i]), &err) != NXL_OK)
            fail_msg("'%s': %s", texts[i], err.text);
        assert_string_equal(nxl_settings_text(*state, "store.url"), "none");
    }
    assert_int_equal(nxl_settings_parse_yaml(*state, "f", (struct nxl_view){NULL, 0}, NULL),
                     NXL_OK);
}

static void wrong_files_are_refused_with_file_and_line_and_change_nothing(void **state)
{
    static const struct {
        const char *text, *why;
    } rows[] = {
        {"name: x\nlink:\n  port: many\n", "a.yaml:3: link.port: \"many\" is not a whole number"},
        {"name: x\nlink:\n  port: 70000\n", "a.yaml:3: link.port: \"70000\" is out of range"},
        {"name: x\nstore:\n  ulr: y\n",
         "a.yaml:3: unknown setting \"store.ulr\", did you mean 'store.url'?"},
        {"name: x\nsotre:\n  url: y\n",
         "a.yaml:3: unknown setting \"sotre.url\", did you mean 'store.url'?"},
        {"name: x\nname: y\n", "a.yaml:2: name is set a second time, first in line 1"},
        {"store: {url: x}\nname: x\nstore.url: y\n",
         "a.yaml:3: store.url is set a second time, first in line 1"},
        {"name: x\nlink:\n  port:\n", "a.yaml:3: link.port has no value"},
        {"name: ~\n", "a.yaml:1: name has no value"},
        {"name: x\nnothing:\n", "a.yaml:2: unknown setting \"nothing\""},
        {"name: x\nlink:\n  port: [1, 2]\n", "a.yaml:3: link.port takes one value, not a list"},
        {"name: [a, [b]]\n", "a.yaml:1: an item of name is not a plain text"},
        {"name:\n- a\n- 'b,c'\n", "a.yaml:3: an item of name is not a plain text without a comma"},
        {"name: {a: b}\n", "a.yaml:1: unknown setting \"name.a\""},
        {"name: &a x\nstore:\n  url: *a\n", "a.yaml:3: an alias (*name) is not supported"},
        {"name: !!str x\n", "a.yaml:1: a tag (!name) is not supported"},
        {"name: x\nstore: !x {url: y}\n", "a.yaml:2: a tag (!name) is not supported"},
        {"name: x\n? [a]\n: b\n", "a.yaml:2: a key is a plain word"},
        {"name: x\n? {a: b}\n: b\n", "a.yaml:2: a key is a plain word"},
        {"'': x\n", "a.yaml:1: a key has 1 to 255 bytes"},
        {"just text\n", "a.yaml:1: settings are lines of the form 'key: value'"},
        {"- name: x\n", "a.yaml:1: settings are lines of the form 'key: value'"},
        {"name: x\n---\nname: y\n", "a.yaml:2: a second document begins"},
        {"name: x\n\tstore: y\n", "a.yaml:2: not YAML"},
        {"name: x\nstore: [\n", "a.yaml:3: not YAML"},
        {"name: x\nstore: 'y\n", "a.yaml:3: not YAML"},
        {"name: x\n}\n", "a.yaml:2: not YAML"},
        {"name: \"a\\0b\"\n", "a.yaml:1: the text holds a NUL byte"},
        {"name: \"a\\nb\"\n", "a.yaml:1: name: byte 1 of the value is a control character"},
        {"name: \xff\xfe\n", "not YAML"},
        {"a: {b: {c: {d: {e: {f: {g: {h: {i: {}}}}}}}}}\n",
         "a.yaml:1: sections lie more than 8 deep"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        struct nxl_err err = {0};

        assert_int_equal(nxl_settings_parse_yaml(*state, "a.yaml", view_of(rows[i].text), &err),
                         NXL_CONFIG);
        if (!strstr(err.text, rows[i].why))
            fail_msg("'%s': '%s' lacks '%s'", rows[i].text, err.text, rows[i].why);
        assert_string_equal(nxl_settings_text(*state, "name"), "node");
    }
}

static void a_nul_in_the_file_is_refused(void **state)
{
    static const char text[] = "name: x\0y\n";
    struct nxl_err err = {0};

    assert_int_equal(
        nxl_settings_parse_yaml(*state, "f", (struct nxl_view){text, sizeof(text) - 1}, &err),
        NXL_CONFIG);
}

static void a_list_or_key_too_long_is_refused(void **state)
{
    char text[8192];
    struct nxl_err err = {0};
    size_t used = (size_t)snprintf(text, sizeof(text), "name: [");

    for (unsigned i = 0; i < 600; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "item%04u, ", i);
    (void)snprintf(text + used, sizeof(text) - used, "end]\n");
    assert_int_equal(nxl_settings_parse_yaml(*state, "f", view_of(text), &err), NXL_CONFIG);
    assert_non_null(strstr(err.text, "name is longer than 4095 bytes"));
    memset(text, 'k', 300);
    (void)snprintf(text + 300, sizeof(text) - 300, ": x\n");
    assert_int_equal(nxl_settings_parse_yaml(*state, "f", view_of(text), &err), NXL_CONFIG);
    assert_non_null(strstr(err.text, "1 to 255 bytes"));
}

static void a_file_is_read_by_its_path(void **state)
{
    char path[] = "/tmp/nxl-yaml-XXXXXX";
    struct nxl_err err = {0};
    int fd = mkstemp(path);

    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(nxl_write_file(path, "name: from-file\n", 16, 0600, &err), NXL_OK);
    assert_int_equal(nxl_settings_load_yaml(*state, path, &err), NXL_OK);
    assert_string_equal(nxl_settings_text(*state, "name"), "from-file");
    assert_int_equal(nxl_write_file(path, "nmae: x\n", 8, 0600, &err), NXL_OK);
    assert_int_equal(nxl_settings_load_yaml(*state, path, &err), NXL_CONFIG);
    assert_int_equal(strncmp(err.text, path, strlen(path)), 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(nxl_settings_load_yaml(*state, path, &err), NXL_CONFIG);
    assert_int_equal(err.os, ENOENT); /* a default path may be missing: the caller can tell */
    assert_non_null(strstr(err.text, path));
}

#define SETTINGS_TEST(name) cmocka_unit_test_setup_teardown(name, settings_setup, settings_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        SETTINGS_TEST(nested_and_dotted_keys_are_the_same),
        SETTINGS_TEST(files_that_say_nothing_set_nothing),
        SETTINGS_TEST(wrong_files_are_refused_with_file_and_line_and_change_nothing),
        SETTINGS_TEST(a_nul_in_the_file_is_refused),
        SETTINGS_TEST(a_list_or_key_too_long_is_refused),
        SETTINGS_TEST(a_file_is_read_by_its_path),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
