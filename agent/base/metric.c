/* metric.c - the registry of series: found or made on the loop thread, counted from any thread. */
#include "base/metric_inner.h"
#include "base/assert.h"
#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Microseconds, from one local copy to a transfer that took its whole deadline. */
static const uint64_t default_bounds[] = {
    10,    25,    50,    100,    250,    500,    1000,    2500,    5000,
    10000, 25000, 50000, 100000, 250000, 500000, 1000000, 5000000, 10000000,
};

struct nxl_metrics *nxl_metrics_new(void)
{
    struct nxl_metrics *metrics = nxl_new0(sizeof(*metrics));

    metrics->labels = nxl_strdup("");
    return metrics;
}

static void family_free(struct metric_family *family)
{
    struct nxl_metric *metric = family->first;

    while (metric) {
        struct nxl_metric *next = metric->next;

        free(metric->key);
        free(metric);
        metric = next;
    }
    free(family->name);
    free(family->help);
    free(family->bounds);
    free(family);
}

void nxl_metrics_free(struct nxl_metrics *metrics)
{
    struct metric_family *family;

    if (!metrics)
        return;
    HASH_CLEAR(hh, metrics->series);
    HASH_CLEAR(hh, metrics->families);
    family = metrics->first;
    while (family) {
        struct metric_family *next = family->next;

        family_free(family);
        family = next;
    }
    free(metrics->refreshers);
    free(metrics->labels);
    free(metrics);
}

void nxl_metrics_labels(struct nxl_metrics *metrics, const char *labels)
{
    free(metrics->labels);
    metrics->labels = nxl_strdup(labels);
}

static int name_is_valid(const char *name)
{
    static const char first[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:";
    static const char rest[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_:0123456789";

    return name[0] != '\0' && strchr(first, name[0]) && name[strspn(name, rest)] == '\0';
}

static struct metric_family *family_open(struct nxl_metrics *metrics, enum nxl_metric_type type,
                                         const char *name, const char *help, const uint64_t *bounds,
                                         uint32_t count)
{
    struct metric_family *family = NULL;

    HASH_FIND_STR(metrics->families, name, family);
    if (family) {
        NXL_ASSERT(family->type == type && strcmp(family->help, help) == 0);
        NXL_ASSERT(family->bound_count == count);
        return family;
    }
    NXL_ASSERT(name_is_valid(name));
    family = nxl_new0(sizeof(*family));
    family->name = nxl_strdup(name);
    family->help = nxl_strdup(help);
    family->type = type;
    family->bound_count = count;
    family->bounds = nxl_new0_array(count, sizeof(*bounds));
    for (uint32_t i = 0; i < count; i++) {
        NXL_ASSERT(i == 0 || bounds[i - 1] < bounds[i]);
        family->bounds[i] = bounds[i];
    }
    HASH_ADD_KEYPTR(hh, metrics->families, family->name, strlen(family->name), family);
    if (metrics->last)
        metrics->last->next = family;
    else
        metrics->first = family;
    metrics->last = family;
    return family;
}

static struct nxl_metric *series_open(struct nxl_metrics *metrics, struct metric_family *family,
                                      const char *labels)
{
    NXL_CLEANUP(nxl_freep) char *key = nxl_format("%s\n%s", family->name, labels);
    struct nxl_metric *metric = NULL;

    HASH_FIND_STR(metrics->series, key, metric);
    if (metric)
        return metric;
    metric = nxl_new0(sizeof(*metric) + (family->bound_count + 1) * sizeof(metric->buckets[0]));
    metric->family = family;
    metric->bounds = family->bounds;
    metric->bound_count = family->bound_count;
    metric->key = NXL_TAKE(key);
    metric->labels = metric->key + strlen(family->name) + 1;
    HASH_ADD_KEYPTR(hh, metrics->series, metric->key, strlen(metric->key), metric);
    if (family->last)
        family->last->next = metric;
    else
        family->first = metric;
    family->last = metric;
    return metric;
}

struct nxl_metric *nxl_metric_open(struct nxl_metrics *metrics, enum nxl_metric_type type,
                                   const char *name, const char *help, const char *labels)
{
    int histogram = type == NXL_METRIC_HISTOGRAM;

    return series_open(metrics,
                       family_open(metrics, type, name, help, histogram ? default_bounds : NULL,
                                   histogram ? NXL_COUNT_OF(default_bounds) : 0),
                       labels);
}

struct nxl_metric *nxl_metric_histogram(struct nxl_metrics *metrics, const char *name,
                                        const char *help, const char *labels,
                                        const uint64_t *bounds, uint32_t count)
{
    NXL_ASSERT(count > 0 && count <= METRIC_BOUNDS_MAX);
    return series_open(
        metrics, family_open(metrics, NXL_METRIC_HISTOGRAM, name, help, bounds, count), labels);
}

void nxl_metric_add(struct nxl_metric *metric, uint64_t value)
{
    NXL_ASSERT(metric->family->type == NXL_METRIC_COUNTER);
    atomic_fetch_add_explicit(&metric->value, value, memory_order_relaxed);
}

void nxl_metric_set(struct nxl_metric *metric, int64_t value)
{
    NXL_ASSERT(metric->family->type == NXL_METRIC_GAUGE);
    atomic_store_explicit(&metric->value, (uint64_t)value, memory_order_relaxed);
}

void nxl_metric_move(struct nxl_metric *metric, int64_t delta)
{
    NXL_ASSERT(metric->family->type == NXL_METRIC_GAUGE);
    atomic_fetch_add_explicit(&metric->value, (uint64_t)delta, memory_order_relaxed);
}

void nxl_metric_observe(struct nxl_metric *metric, uint64_t value)
{
    uint32_t low = 0, high = metric->bound_count;

    NXL_ASSERT(metric->family->type == NXL_METRIC_HISTOGRAM);
    while (low < high) { /* first bound that is not below value */
        uint32_t middle = (low + high) / 2;

        if (metric->bounds[middle] < value)
            low = middle + 1;
        else
            high = middle;
    }
    atomic_fetch_add_explicit(&metric->buckets[low], 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&metric->value, value, memory_order_relaxed);
}

int64_t nxl_metric_value(const struct nxl_metric *metric)
{
    return (int64_t)atomic_load_explicit(&metric->value, memory_order_relaxed);
}

void nxl_metrics_refresher(struct nxl_metrics *metrics, void (*fn)(void *arg), void *arg)
{
    metrics->refreshers =
        nxl_resize(metrics->refreshers, metrics->refresher_count + 1, sizeof(*metrics->refreshers));
    metrics->refreshers[metrics->refresher_count++] = (struct metric_refresher){fn, arg};
}
