/* test_metric.c - the registry and its Prometheus text. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "base/bytes.h"
#include "base/mem.h"
#include "base/metric.h"
#include "unit/base/dies.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static int metrics_setup(void **state)
{
    *state = nxl_metrics_new();
    return 0;
}

static int metrics_teardown(void **state)
{
    nxl_metrics_free(*state);
    return 0;
}

static void assert_rendered(struct nxl_metrics *metrics, const char *wanted)
{
    struct nxl_bytes bytes = {0};

    nxl_metrics_render(metrics, &bytes);
    nxl_bytes_put_u8(&bytes, '\0');
    assert_string_equal((const char *)bytes.data, wanted);
    nxl_bytes_fini(&bytes);
}

static void families_come_out_in_the_order_of_opening_with_their_series_together(void **state)
{
    struct nxl_metric *get, *put, *regions;

    get = nxl_metric_open(*state, NXL_METRIC_COUNTER, "nixlet_bytes_total", "Bytes moved.",
                          "op=\"read\"");
    regions =
        nxl_metric_open(*state, NXL_METRIC_GAUGE, "nixlet_regions", "Registered regions.", "");
    put = nxl_metric_open(*state, NXL_METRIC_COUNTER, "nixlet_bytes_total", "Bytes moved.",
                          "op=\"write\"");
    nxl_metric_add(get, 5);
    nxl_metric_add(get, 7);
    nxl_metric_add(put, UINT64_MAX);
    nxl_metric_set(regions, 10);
    nxl_metric_move(regions, -12);
    assert_int_equal(nxl_metric_value(regions), -2);
    assert_rendered(*state, "# HELP nixlet_bytes_total Bytes moved.\n"
                            "# TYPE nixlet_bytes_total counter\n"
                            "nixlet_bytes_total{op=\"read\"} 12\n"
                            "nixlet_bytes_total{op=\"write\"} 18446744073709551615\n"
                            "# HELP nixlet_regions Registered regions.\n"
                            "# TYPE nixlet_regions gauge\n"
                            "nixlet_regions -2\n");
}

static void a_histogram_counts_up_to_and_with_its_bounds(void **state)
{
    static const uint64_t bounds[] = {10, 100};
    static const uint64_t values[] = {0, 10, 11, 100, 101, 1000000};
    struct nxl_metric *metric =
        nxl_metric_histogram(*state, "nixlet_wait_us", "Waiting, microseconds.", "", bounds, 2);

    for (size_t i = 0; i < NXL_COUNT_OF(values); i++)
        nxl_metric_observe(metric, values[i]);
    assert_rendered(*state, "# HELP nixlet_wait_us Waiting, microseconds.\n"
                            "# TYPE nixlet_wait_us histogram\n"
                            "nixlet_wait_us_bucket{le=\"10\"} 2\n"
                            "nixlet_wait_us_bucket{le=\"100\"} 4\n"
                            "nixlet_wait_us_bucket{le=\"+Inf\"} 6\n"
                            "nixlet_wait_us_sum 1000222\n"
                            "nixlet_wait_us_count 6\n");
}

static void common_labels_stand_before_the_series_own(void **state)
{
    static const uint64_t bounds[] = {1};

    nxl_metrics_labels(*state, "hostname=\"n1\"");
    nxl_metrics_labels(*state, "hostname=\"n1\",agent_name=\"a\"");
    nxl_metric_add(nxl_metric_open(*state, NXL_METRIC_COUNTER, "a_total", "A.", ""), 1);
    (void)nxl_metric_histogram(*state, "b", "B.", "k=\"v\"", bounds, 1);
    assert_rendered(*state, "# HELP a_total A.\n# TYPE a_total counter\n"
                            "a_total{hostname=\"n1\",agent_name=\"a\"} 1\n"
                            "# HELP b B.\n# TYPE b histogram\n"
                            "b_bucket{hostname=\"n1\",agent_name=\"a\",k=\"v\",le=\"1\"} 0\n"
                            "b_bucket{hostname=\"n1\",agent_name=\"a\",k=\"v\",le=\"+Inf\"} 0\n"
                            "b_sum{hostname=\"n1\",agent_name=\"a\",k=\"v\"} 0\n"
                            "b_count{hostname=\"n1\",agent_name=\"a\",k=\"v\"} 0\n");
}

static void opening_a_series_again_finds_it(void **state)
{
    struct nxl_metric *first = nxl_metric_open(*state, NXL_METRIC_GAUGE, "g", "G.", "k=\"v\"");

    for (unsigned i = 0; i < 100; i++) {
        char labels[32];

        (void)snprintf(labels, sizeof(labels), "k=\"%u\"", i);
        assert_ptr_not_equal(nxl_metric_open(*state, NXL_METRIC_GAUGE, "g", "G.", labels), first);
    }
    assert_ptr_equal(nxl_metric_open(*state, NXL_METRIC_GAUGE, "g", "G.", "k=\"v\""), first);
}

static void the_default_bounds_reach_from_10_us_to_10_s(void **state)
{
    struct nxl_bytes bytes = {0};

    (void)nxl_metric_open(*state, NXL_METRIC_HISTOGRAM, "h", "H.", "");
    nxl_metrics_render(*state, &bytes);
    nxl_bytes_put_u8(&bytes, '\0');
    assert_non_null(strstr((char *)bytes.data, "h_bucket{le=\"10\"} 0\nh_bucket{le=\"25\"} 0\n"));
    assert_non_null(strstr((char *)bytes.data,
                           "h_bucket{le=\"1000000\"} 0\nh_bucket{le=\"5000000\"} 0\n"
                           "h_bucket{le=\"10000000\"} 0\nh_bucket{le=\"+Inf\"} 0\n"));
    nxl_bytes_fini(&bytes);
}

static void help_is_escaped(void **state)
{
    (void)nxl_metric_open(*state, NXL_METRIC_GAUGE, "g", "a\\b\nc", "");
    assert_rendered(*state, "# HELP g a\\\\b\\nc\n# TYPE g gauge\ng 0\n");
}

static void label_values_are_escaped_and_cut_between_escapes(void **state)
{
    static const struct {
        const char *value;
        unsigned room;
        const char *escaped;
    } rows[] = {
        {"plain", 16, "plain"}, {"a\"b\\c\nd", 16, "a\\\"b\\\\c\\nd"},
        {"abc", 4, "abc"},      {"abc", 3, "ab"},
        {"a\"", 3, "a"},        {"a\"", 4, "a\\\""},
        {"abc", 1, ""},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        char to[16];

        assert_ptr_equal(nxl_metric_label(to, rows[i].room, rows[i].value), to);
        assert_string_equal(to, rows[i].escaped);
    }
}

static void refresh(void *arg)
{
    nxl_metric_move(arg, 1);
}

static void refreshers_run_before_every_rendering(void **state)
{
    struct nxl_metric *gauge = nxl_metric_open(*state, NXL_METRIC_GAUGE, "g", "G.", "");

    nxl_metrics_refresher(*state, refresh, gauge);
    nxl_metrics_refresher(*state, refresh, gauge);
    assert_rendered(*state, "# HELP g G.\n# TYPE g gauge\ng 2\n");
    assert_rendered(*state, "# HELP g G.\n# TYPE g gauge\ng 4\n");
}

static void clash(const void *arg)
{
    struct nxl_metrics *metrics = nxl_metrics_new();

    (void)nxl_metric_open(metrics, NXL_METRIC_GAUGE, "g", "G.", "");
    (void)nxl_metric_open(metrics, arg ? NXL_METRIC_GAUGE : NXL_METRIC_COUNTER, "g",
                          arg ? "Another help." : "G.", "");
}

static void bad_name(const void *arg)
{
    (void)nxl_metric_open(nxl_metrics_new(), NXL_METRIC_GAUGE, arg, "G.", "");
}

static void one_name_has_one_type_and_one_help(void **state)
{
    assert_int_equal(dies_of(clash, NULL), SIGABRT);
    assert_int_equal(dies_of(clash, ""), SIGABRT);
    assert_int_equal(dies_of(bad_name, "9lives"), SIGABRT);
    assert_int_equal(dies_of(bad_name, "a-b"), SIGABRT);
    assert_int_equal(dies_of(bad_name, ""), SIGABRT);
}

#define THREADS 4u
#define ROUNDS 20000u

struct pair {
    struct nxl_metric *counter, *histogram;
};

static void *count_up(void *arg)
{
    struct pair *pair = arg;

    for (unsigned i = 0; i < ROUNDS; i++) {
        nxl_metric_add(pair->counter, 1);
        nxl_metric_observe(pair->histogram, i % 2000);
    }
    return NULL;
}

static void threads_lose_no_count(void **state)
{
    struct pair pair;
    struct nxl_bytes bytes = {0};
    pthread_t threads[THREADS];

    pair.counter = nxl_metric_open(*state, NXL_METRIC_COUNTER, "c_total", "C.", "");
    pair.histogram = nxl_metric_open(*state, NXL_METRIC_HISTOGRAM, "h", "H.", "");
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, count_up, &pair), 0);
    nxl_metrics_render(*state, &bytes); /* at the same time */
    for (unsigned i = 0; i < THREADS; i++)
        assert_int_equal(pthread_join(threads[i], NULL), 0);
    nxl_bytes_clear(&bytes);
    nxl_metrics_render(*state, &bytes);
    nxl_bytes_put_u8(&bytes, '\0');
    assert_int_equal(nxl_metric_value(pair.counter), THREADS * ROUNDS);
    assert_non_null(strstr((char *)bytes.data, "h_count 80000\n"));
    assert_non_null(strstr((char *)bytes.data, "h_sum 79960000\n"));
    nxl_bytes_fini(&bytes);
}

#define METRIC_TEST(name) cmocka_unit_test_setup_teardown(name, metrics_setup, metrics_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_name_has_one_type_and_one_help),
        METRIC_TEST(families_come_out_in_the_order_of_opening_with_their_series_together),
        METRIC_TEST(a_histogram_counts_up_to_and_with_its_bounds),
        METRIC_TEST(common_labels_stand_before_the_series_own),
        METRIC_TEST(opening_a_series_again_finds_it),
        METRIC_TEST(the_default_bounds_reach_from_10_us_to_10_s),
        METRIC_TEST(help_is_escaped),
        cmocka_unit_test(label_values_are_escaped_and_cut_between_escapes),
        METRIC_TEST(refreshers_run_before_every_rendering),
        METRIC_TEST(threads_lose_no_count),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
