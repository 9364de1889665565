/* test_object.c - quantities as Kubernetes writes them. */
#include "world_rig.h"

static const struct {
    const char *text;
    uint64_t value; /* 0: none */
} rows[] = {
    {"1", 1},
    {"64Gi", 64ull << 30},
    {"1.5Ki", 1536},
    {"1k", 1000},
    {"2M", 2000000},
    {"3e9", 3000000000ull},
    {"3E9", 3000000000ull},
    {"1E", 1000000000000000000ull},
    {"7Ei", 7ull << 60},
    {"100m", 1}, /* rounded up, as Kubernetes does */
    {"1500m", 2},
    {"0.5", 1},
    {"+5", 5},
    {"8Ei", 0}, /* does not fit 63 bits */
    {"9223372036854775807", INT64_MAX},
    {"9223372036854775808", 0},
    {"99999999999999999999999999999999999999999999", 0},
    {"0", 0},
    {"0Gi", 0},
    {"-1", 0},
    {"", 0},
    {"Gi", 0},
    {"1GiB", 0},
    {"1 Gi", 0},
    {"1..5", 0},
    {"1e", 0},
    {"1e-3x", 0},
    {"1e100", 0},
    {"0x10", 0},
    {"1n", 1},
};

static void every_quantity_reads_as_kubernetes_reads_it(void **state)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        uint64_t value = 0;
        int good = nxl_quantity_of(rows[i].text, &value);

        if (good != (rows[i].value != 0) || value != rows[i].value)
            fail_msg("\"%s\": %d, %llu", rows[i].text, good, (unsigned long long)value);
    }
}

static void roles_have_names_both_ways(void **state)
{
    for (int role = NXL_ROLE_PREFILL; role <= NXL_ROLE_CUSTOM; role++)
        assert_int_equal(nxl_role_of(nxl_role_name(role)), role);
    assert_int_equal(nxl_role_of("prefill"), NXL_ROLE_NONE);
    assert_int_equal(nxl_role_of(""), NXL_ROLE_NONE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_quantity_reads_as_kubernetes_reads_it),
        cmocka_unit_test(roles_have_names_both_ways),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
