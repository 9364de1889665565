/* metric.h - counters, gauges and histograms in one registry; Prometheus text out.
 * Values are atomics: add and observe from any thread; opening and rendering on the loop thread. */
#ifndef NXL_BASE_METRIC_H
#define NXL_BASE_METRIC_H

#include <stdint.h>

struct nxl_bytes;
struct nxl_metrics; /* registry */
struct nxl_metric;  /* one series */

enum nxl_metric_type { NXL_METRIC_COUNTER, NXL_METRIC_GAUGE, NXL_METRIC_HISTOGRAM };

struct nxl_metrics *nxl_metrics_new(void);
void nxl_metrics_free(struct nxl_metrics *metrics);
/* Common labels of every series, e.g. `hostname="a",agent_name="b"`. */
void nxl_metrics_labels(struct nxl_metrics *metrics, const char *labels);
/* Finds or makes a series. help is one line with unit; labels is `k="v",...` or "". Lent until
 * free. Asserts that one name has one type and help. Counter names end in _total. */
struct nxl_metric *nxl_metric_open(struct nxl_metrics *metrics, enum nxl_metric_type type,
                                   const char *name, const char *help, const char *labels);
/* Histogram with its own upper bounds (ascending, count <= 32); value unit as in help. */
struct nxl_metric *nxl_metric_histogram(struct nxl_metrics *metrics, const char *name,
                                        const char *help, const char *labels,
                                        const uint64_t *bounds, uint32_t count);
void nxl_metric_add(struct nxl_metric *metric, uint64_t value);
void nxl_metric_set(struct nxl_metric *metric, int64_t value);
void nxl_metric_move(struct nxl_metric *metric, int64_t delta); /* gauge up or down */
void nxl_metric_observe(struct nxl_metric *metric, uint64_t value);
int64_t nxl_metric_value(const struct nxl_metric *metric);
/* Escapes a label value into to. */
const char *nxl_metric_label(char *to, unsigned room, const char *value);
/* Called just before rendering, to refresh gauges. */
void nxl_metrics_refresher(struct nxl_metrics *metrics, void (*fn)(void *arg), void *arg);
void nxl_metrics_render(struct nxl_metrics *metrics, struct nxl_bytes *to);

#endif
