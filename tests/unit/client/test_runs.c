/* Joining descriptors into runs, and comparing two lists by length. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "client/client.h"

#define ONE(addr_, len_)                                                                           \
    {                                                                                              \
        .addr = (addr_), .len = (len_), .count = 1                                                 \
    }
#define RUN(addr_, len_, stride_, count_)                                                          \
    {                                                                                              \
        .addr = (addr_), .len = (len_), .stride = (stride_), .count = (count_)                     \
    }

struct row {
    const char *what;
    struct nxl_run runs[5];
    uint32_t count;
    struct nxl_run want[5];
    uint32_t want_count;
    uint64_t size, uniform_len;
};

static const struct row rows[] = {
    {"one", {ONE(100, 8)}, 1, {ONE(100, 8)}, 1, 1, 8},
    {"neighbours", {ONE(0, 8), ONE(8, 8), ONE(16, 8)}, 3, {RUN(0, 8, 8, 3)}, 1, 3, 8},
    {"equal steps", {ONE(0, 8), ONE(64, 8), ONE(128, 8)}, 3, {RUN(0, 8, 64, 3)}, 1, 3, 8},
    {"a step breaks",
     {ONE(0, 8), ONE(64, 8), ONE(200, 8)},
     3,
     {RUN(0, 8, 64, 2), ONE(200, 8)},
     2,
     3,
     8},
    {"backwards", {ONE(64, 8), ONE(0, 8)}, 2, {ONE(64, 8), ONE(0, 8)}, 2, 2, 8},
    {"the same twice", {ONE(64, 8), ONE(64, 8)}, 2, {ONE(64, 8), ONE(64, 8)}, 2, 2, 8},
    {"overlap", {ONE(64, 8), ONE(68, 8)}, 2, {ONE(64, 8), ONE(68, 8)}, 2, 2, 8},
    {"lengths differ", {ONE(0, 8), ONE(8, 16)}, 2, {ONE(0, 8), ONE(8, 16)}, 2, 2, 0},
    {"devices differ",
     {ONE(0, 8), {.addr = 8, .len = 8, .count = 1, .device = 1}},
     2,
     {ONE(0, 8), {.addr = 8, .len = 8, .count = 1, .device = 1}},
     2,
     2,
     8},
    {"run and run", {RUN(0, 8, 16, 4), RUN(64, 8, 16, 4)}, 2, {RUN(0, 8, 16, 8)}, 1, 8, 8},
    {"run and one", {RUN(0, 8, 16, 4), ONE(64, 8)}, 2, {RUN(0, 8, 16, 5)}, 1, 5, 8},
    {"one and run", {ONE(0, 8), RUN(16, 8, 16, 4)}, 2, {RUN(0, 8, 16, 5)}, 1, 5, 8},
    {"one and run of another step",
     {ONE(0, 8), RUN(16, 8, 32, 4)},
     2,
     {ONE(0, 8), RUN(16, 8, 32, 4)},
     2,
     5,
     8},
    {"a gap between runs",
     {RUN(0, 8, 16, 4), RUN(80, 8, 16, 4)},
     2,
     {RUN(0, 8, 16, 4), RUN(80, 8, 16, 4)},
     2,
     8,
     8},
    {"count would overflow",
     {RUN(0, 1, 1, UINT32_MAX), ONE(UINT32_MAX, 1)},
     2,
     {RUN(0, 1, 1, UINT32_MAX), ONE(UINT32_MAX, 1)},
     2,
     1ull << 32,
     1},
    {"the last bytes of all", {ONE(UINT64_MAX - 8, 8)}, 1, {ONE(UINT64_MAX - 8, 8)}, 1, 1, 8},
};

static void descriptors_join_only_where_they_go_on_equally(void **state)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        const struct row *row = &rows[i];
        struct nxl_list_part *parts;
        uint64_t size, uniform_len, first = 0;
        struct nxl_err err;
        uint32_t count;

        if (nxl_runs_compress(row->runs, row->count, "t", &parts, &count, &size, &uniform_len,
                              &err) != NXL_OK)
            fail_msg("%s: %s", row->what, err.text);
        if (count != row->want_count || size != row->size || uniform_len != row->uniform_len)
            fail_msg("%s: %u runs, %u descriptors, length %u", row->what, count, (unsigned)size,
                     (unsigned)uniform_len);
        for (uint32_t k = 0; k < count; k++) {
            assert_int_equal(parts[k].run.addr, row->want[k].addr);
            assert_int_equal(parts[k].run.len, row->want[k].len);
            assert_int_equal(parts[k].run.count, row->want[k].count);
            if (row->want[k].count > 1)
                assert_int_equal(parts[k].run.stride, row->want[k].stride);
            assert_int_equal(parts[k].first, first);
            first += parts[k].run.count;
        }
        free(parts);
    }
}

static void wrong_runs_are_named_by_descriptor(void **state)
{
    static const struct {
        struct nxl_run runs[2];
        const char *word;
    } bad[] = {
        {{ONE(0, 8), RUN(8, 8, 8, 0)}, "descriptor 1 has count 0"},
        {{RUN(0, 8, 8, 5), RUN(64, 8, 4, 2)}, "descriptor 5 has stride 4"},
        {{ONE(0, 8), ONE(UINT64_MAX, 2)}, "descriptor 1 (address 0xffffffffffffffff"},
        {{ONE(0, 8), RUN(8, 1ull << 33, 1ull << 40, 1u << 31)}, "overflows"},
        {{ONE(0, 8), RUN(1ull << 63, 1, 1ull << 62, 3)}, "overflows"},
        {{RUN(0, 1, 1, UINT32_MAX), RUN(1ull << 40, 1, 1, 2)}, "2^32"},
    };
    struct nxl_list_part *parts = NULL;
    uint64_t size, uniform_len;
    struct nxl_err err;
    uint32_t count;

    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(nxl_runs_compress(bad[i].runs, 2, "remote side", &parts, &count, &size,
                                           &uniform_len, &err),
                         NXL_INVALID_PARAM);
        if (!strstr(err.text, bad[i].word) || !strstr(err.text, "remote side"))
            fail_msg("'%s' is not in '%s'", bad[i].word, err.text);
    }
    assert_int_equal(nxl_runs_compress(NULL, 3, "x", &parts, &count, &size, &uniform_len, &err),
                     NXL_INVALID_PARAM);
    assert_int_equal(
        nxl_runs_compress(bad[0].runs, 0, "x", &parts, &count, &size, &uniform_len, &err),
        NXL_INVALID_PARAM);
    assert_null(parts);
}

static void lengths_are_found_by_index_whatever_the_hint(void **state)
{
    static const struct nxl_list_part parts[] = {
        {RUN(0, 8, 8, 3), 0}, {ONE(100, 16), 3}, {RUN(200, 4, 4, 10), 4}, {ONE(300, 1), 14}};
    static const uint64_t want[] = {8, 8, 8, 16, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 1};

    for (uint32_t start = 0; start < 6; start++) {
        for (uint64_t i = 0; i < 15; i++) {
            uint32_t hint = start;

            assert_int_equal(nxl_runs_len(parts, 4, i, &hint), want[i]);
            assert_int_equal(nxl_runs_len(parts, 4, i, &hint), want[i]);
        }
    }
}

static void the_first_unequal_pair_is_found(void **state)
{
    static const struct nxl_list_part a[] = {{RUN(0, 8, 8, 3), 0}, {RUN(99, 4, 4, 2), 3}};
    static const struct nxl_list_part same[] = {
        {ONE(0, 8), 0}, {RUN(50, 8, 9, 2), 1}, {ONE(60, 4), 3}, {ONE(70, 4), 4}};
    static const struct nxl_list_part late[] = {{RUN(0, 8, 8, 4), 0}, {ONE(99, 4), 4}};
    static const struct nxl_list_part last[] = {
        {RUN(0, 8, 8, 3), 0}, {ONE(9, 4), 3}, {ONE(5, 5), 4}};

    assert_int_equal(nxl_runs_differ(a, 2, same, 4), UINT64_MAX);
    assert_int_equal(nxl_runs_differ(a, 2, late, 2), 3);
    assert_int_equal(nxl_runs_differ(late, 2, a, 2), 3);
    assert_int_equal(nxl_runs_differ(a, 2, last, 3), 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(descriptors_join_only_where_they_go_on_equally),
        cmocka_unit_test(wrong_runs_are_named_by_descriptor),
        cmocka_unit_test(lengths_are_found_by_index_whatever_the_hint),
        cmocka_unit_test(the_first_unequal_pair_is_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
