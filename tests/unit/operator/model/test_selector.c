/* test_selector.c - label selectors, row by row, against Kubernetes' meaning. */
#include "world_rig.h"

static const struct nxl_label labels[] = {{"app", "llama"}, {"tier", "prefill"}, {"empty", ""}};

struct row {
    const char *key;
    enum nxl_selector_op op;
    const char *values[3];
    int holds;
};

static const struct row rows[] = {
    {"app", NXL_IN, {"llama"}, 1},         {"app", NXL_IN, {"other", "llama"}, 1},
    {"app", NXL_IN, {"lla"}, 0},           {"absent", NXL_IN, {"llama"}, 0},
    {"app", NXL_NOT_IN, {"llama"}, 0},     {"app", NXL_NOT_IN, {"other"}, 1},
    {"absent", NXL_NOT_IN, {"llama"}, 1}, /* absent keys match NotIn */
    {"app", NXL_EXISTS, {NULL}, 1},        {"empty", NXL_EXISTS, {NULL}, 1},
    {"absent", NXL_EXISTS, {NULL}, 0},     {"app", NXL_NOT_EXISTS, {NULL}, 0},
    {"absent", NXL_NOT_EXISTS, {NULL}, 1}, {"empty", NXL_IN, {""}, 1},
    {"absent", NXL_IN, {""}, 0},
};

static uint32_t value_count(const struct row *row)
{
    uint32_t count = 0;

    while (count < 3 && row->values[count] != NULL)
        count++;
    return count;
}

static void every_row_holds_as_kubernetes_says(void **state)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        struct nxl_selector *selector = nxl_selector_new();

        assert_int_equal(nxl_selector_add(selector, rows[i].key, rows[i].op, rows[i].values,
                                          value_count(&rows[i])),
                         0);
        if (nxl_selector_matches(selector, labels, 3) != rows[i].holds)
            fail_msg("row %zu: %s", i, rows[i].key);
        nxl_selector_free(selector);
    }
}

static void all_terms_must_hold(void **state)
{
    struct nxl_selector *selector = nxl_selector_new();
    const char *values[] = {"llama"}, *wrong[] = {"decode"};

    assert_int_equal(nxl_selector_matches(selector, labels, 3), 1); /* empty: everything */
    assert_int_equal(nxl_selector_add(selector, "app", NXL_IN, values, 1), 0);
    assert_int_equal(nxl_selector_matches(selector, labels, 3), 1);
    assert_int_equal(nxl_selector_add(selector, "tier", NXL_IN, wrong, 1), 0);
    assert_int_equal(nxl_selector_matches(selector, labels, 3), 0);
    nxl_selector_free(selector);
}

static void a_term_that_makes_no_sense_is_refused(void **state)
{
    struct nxl_selector *selector = nxl_selector_new();
    const char *values[NXL_SELECTOR_VALUES_MAX + 1];

    for (unsigned i = 0; i <= NXL_SELECTOR_VALUES_MAX; i++)
        values[i] = "v";
    assert_int_equal(nxl_selector_add(selector, "", NXL_EXISTS, NULL, 0), -1);
    assert_int_equal(nxl_selector_add(selector, "a", NXL_IN, NULL, 0), -1);
    assert_int_equal(nxl_selector_add(selector, "a", NXL_EXISTS, values, 1), -1);
    assert_int_equal(nxl_selector_add(selector, "a", NXL_IN, values, NXL_SELECTOR_VALUES_MAX + 1),
                     -1);
    assert_int_equal(nxl_selector_terms(selector), 0);
    for (unsigned i = 0; i < NXL_SELECTOR_TERMS_MAX; i++)
        assert_int_equal(nxl_selector_add(selector, "a", NXL_IN, values, 1), 0);
    assert_int_equal(nxl_selector_add(selector, "a", NXL_IN, values, 1), -1);
    nxl_selector_free(selector);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_holds_as_kubernetes_says),
        cmocka_unit_test(all_terms_must_hold),
        cmocka_unit_test(a_term_that_makes_no_sense_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
