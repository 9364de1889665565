/* metric_inner.h - the registry's shape, shared by metric.c and metric_render.c only. */
#ifndef NXL_BASE_METRIC_INNER_H
#define NXL_BASE_METRIC_INNER_H

#include "base/metric.h"

#include <stdatomic.h>
#include <stddef.h>
#include <uthash.h>

#define METRIC_BOUNDS_MAX 32u

struct metric_family;

/* Fixed when made, except for the atomics. */
struct nxl_metric {
    struct metric_family *family;
    char *key;               /* name, '\n', labels */
    char *labels;            /* points into key */
    struct nxl_metric *next; /* in its family, oldest first */
    UT_hash_handle hh;
    uint32_t bound_count;
    const uint64_t *bounds;
    _Atomic uint64_t value;     /* counter, gauge as two's complement, or sum of a histogram */
    _Atomic uint64_t buckets[]; /* bound_count + 1; not cumulative */
};

struct metric_family {
    char *name, *help;
    enum nxl_metric_type type;
    uint64_t *bounds;
    uint32_t bound_count;
    struct nxl_metric *first, *last;
    struct metric_family *next;
    UT_hash_handle hh;
};

struct metric_refresher {
    void (*fn)(void *arg);
    void *arg;
};

struct nxl_metrics {
    char *labels;
    struct metric_family *families, *first, *last; /* hash, then in the order of opening */
    struct nxl_metric *series;                     /* hash */
    struct metric_refresher *refreshers;
    size_t refresher_count;
};

#endif
