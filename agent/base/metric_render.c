/* metric_render.c - the registry as Prometheus text, format 0.0.4. Loop thread. */
#include "base/metric_inner.h"
#include "base/assert.h"
#include "base/bytes.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char *const type_words[] = {"counter", "gauge", "histogram"};

const char *nxl_metric_label(char *to, unsigned room, const char *value)
{
    unsigned used = 0;

    NXL_ASSERT(room > 0);
    for (; *value != '\0'; value++) {
        char escaped = *value == '\n' ? 'n' : *value;
        int escape = *value == '\n' || *value == '"' || *value == '\\';

        if (used + (escape ? 2u : 1u) >= room)
            break;
        if (escape)
            to[used++] = '\\';
        to[used++] = escaped;
    }
    to[used] = '\0';
    return to;
}

static void render_help(struct nxl_bytes *to, const struct metric_family *family)
{
    nxl_bytes_printf(to, "# HELP %s ", family->name);
    for (const char *at = family->help; *at != '\0'; at++) {
        if (*at == '\n')
            nxl_bytes_put(to, "\\n", 2);
        else if (*at == '\\')
            nxl_bytes_put(to, "\\\\", 2);
        else
            nxl_bytes_put(to, at, 1);
    }
    nxl_bytes_printf(to, "\n# TYPE %s %s\n", family->name, type_words[family->type]);
}

/* name{common,own,le="bound"} with a space behind; le is NULL except for buckets. */
static void render_name(struct nxl_bytes *to, const struct nxl_metrics *metrics,
                        const struct nxl_metric *metric, const char *suffix, const char *le)
{
    const char *sets[2] = {metrics->labels, metric->labels};
    const char *before = "{";

    nxl_bytes_printf(to, "%s%s", metric->family->name, suffix);
    for (unsigned i = 0; i < 2; i++) {
        if (sets[i][0] == '\0')
            continue;
        nxl_bytes_printf(to, "%s%s", before, sets[i]);
        before = ",";
    }
    if (le) {
        nxl_bytes_printf(to, "%sle=\"%s\"", before, le);
        before = ",";
    }
    nxl_bytes_printf(to, "%s ", before[0] == ',' ? "}" : "");
}

/* The count is the sum of the buckets read here, so that it never disagrees with +Inf while other
 * threads observe. */
static void render_histogram(struct nxl_bytes *to, const struct nxl_metrics *metrics,
                             const struct nxl_metric *metric)
{
    uint64_t count = 0;
    char le[24];

    for (uint32_t i = 0; i <= metric->bound_count; i++) {
        count += atomic_load_explicit(&metric->buckets[i], memory_order_relaxed);
        if (i < metric->bound_count)
            (void)snprintf(le, sizeof(le), "%" PRIu64, metric->bounds[i]);
        else
            memcpy(le, "+Inf", 5);
        render_name(to, metrics, metric, "_bucket", le);
        nxl_bytes_printf(to, "%" PRIu64 "\n", count);
    }
    render_name(to, metrics, metric, "_sum", NULL);
    nxl_bytes_printf(to, "%" PRIu64 "\n", (uint64_t)nxl_metric_value(metric));
    render_name(to, metrics, metric, "_count", NULL);
    nxl_bytes_printf(to, "%" PRIu64 "\n", count);
}

static void render_series(struct nxl_bytes *to, const struct nxl_metrics *metrics,
                          const struct nxl_metric *metric)
{
    if (metric->family->type == NXL_METRIC_HISTOGRAM) {
        render_histogram(to, metrics, metric);
        return;
    }
    render_name(to, metrics, metric, "", NULL);
    if (metric->family->type == NXL_METRIC_COUNTER)
        nxl_bytes_printf(to, "%" PRIu64 "\n", (uint64_t)nxl_metric_value(metric));
    else
        nxl_bytes_printf(to, "%" PRId64 "\n", nxl_metric_value(metric));
}

void nxl_metrics_render(struct nxl_metrics *metrics, struct nxl_bytes *to)
{
    for (size_t i = 0; i < metrics->refresher_count; i++)
        metrics->refreshers[i].fn(metrics->refreshers[i].arg);
    for (const struct metric_family *family = metrics->first; family; family = family->next) {
        render_help(to, family);
        for (const struct nxl_metric *metric = family->first; metric; metric = metric->next)
            render_series(to, metrics, metric);
    }
}
