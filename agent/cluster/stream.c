/* stream.c - the operators of this agent: options, start and end, the second's tick, and what is
 * told to all of them. Called by node.c and xfer. Loop thread. */
#include "cluster/stream_internal.h"

#include "base/loop.h"
#include "base/mem.h"
#include "base/option.h"
#include "cluster/identity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct nxl_option stream_options[] = {
    {"operators", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "host:port of the operator, several by comma; every address of a name is dialled; empty: no "
     "operator, access.policy alone decides"},
    {"token_file", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "file with the token that proves this node, read at every dial"},
    {"ca_file", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "PEM file with the certificates that the operator's is checked by"},
    {"server_name", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "name in the operator's certificate; empty: the host of stream.operators"},
    {"redial_jitter", NXL_OPTION_DURATION, "2s", 0, 60 * NXL_SEC, NULL,
     "a lost operator is dialled after a random part of this"},
    {"redial_max", NXL_OPTION_DURATION, "30s", 100 * NXL_MS, 3600 * NXL_SEC, NULL,
     "longest pause before an operator that refused is dialled again"},
    {"resolve", NXL_OPTION_DURATION, "10s", 100 * NXL_MS, 3600 * NXL_SEC, NULL,
     "how often names of operators are looked up again"},
    {"connect_timeout", NXL_OPTION_DURATION, "5s", 100 * NXL_MS, 600 * NXL_SEC, NULL,
     "bound for connecting, TLS and welcome together"},
    {"silent_after", NXL_OPTION_DURATION, "5s", 100 * NXL_MS, 600 * NXL_SEC, NULL,
     "silence after which an operator is dialled anew; at least three of its pings"},
    {"members_max", NXL_OPTION_INT, "65536", 16, 1 << 24, NULL, "pods kept, living and dead"},
    {"cert_renew", NXL_OPTION_DURATION, "43200s", NXL_SEC, 864000 * NXL_SEC, NULL,
     "a certificate that ends within this is renewed"},
    {0},
};

void nxl_stream_declare(struct nxl_settings *settings)
{
    nxl_settings_declare(settings, "stream", stream_options);
}

int nxl_stream_wanted(const struct nxl_settings *settings)
{
    return nxl_settings_text(settings, "stream.operators")[0] != '\0';
}

static void options_read(struct nxl_stream *stream, const struct nxl_settings *s)
{
    stream->token_file = nxl_settings_text(s, "stream.token_file");
    stream->ca_file = nxl_settings_text(s, "stream.ca_file");
    stream->server_name = nxl_settings_text(s, "stream.server_name");
    stream->jitter_ns = (uint64_t)nxl_settings_number(s, "stream.redial_jitter");
    stream->redial_max_ns = (uint64_t)nxl_settings_number(s, "stream.redial_max");
    stream->resolve_ns = (uint64_t)nxl_settings_number(s, "stream.resolve");
    stream->connect_ns = (uint64_t)nxl_settings_number(s, "stream.connect_timeout");
    stream->silent_ns = (uint64_t)nxl_settings_number(s, "stream.silent_after");
    stream->renew_ns = (uint64_t)nxl_settings_number(s, "stream.cert_renew");
}

static enum nxl_code hosts_read(struct nxl_stream *stream, const char *list, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_freep) char *copy = nxl_strdup(list);
    char *save = NULL;

    for (char *one = strtok_r(copy, ", ", &save); one != NULL; one = strtok_r(NULL, ", ", &save)) {
        struct stream_host *host = &stream->hosts[stream->host_count];

        if (stream->host_count >= STREAM_HOSTS_MAX)
            return nxl_err_set(err, NXL_CONFIG, 0, "stream.operators: more than %u names",
                               STREAM_HOSTS_MAX);
        if (nxl_identity_split_address(one, host->name, sizeof(host->name), &host->port) != 0 ||
            host->port == 0)
            return nxl_err_set(err, NXL_CONFIG, 0,
                               "stream.operators: %s is not of the form host:port", nxl_quote(one));
        stream->host_count++;
    }
    if (stream->host_count > 0 && stream->ca_file[0] == '\0')
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "stream.ca_file is not set, so no operator could be believed");
    return NXL_OK;
}

/* ---- metrics ------------------------------------------------------------------------------ */

static void metrics_open(struct nxl_stream *stream, struct nxl_metrics *registry)
{
    struct stream_metrics *m = &stream->metrics;
    const struct {
        struct nxl_metric **to;
        enum nxl_metric_type type;
        const char *name, *help;
    } rows[] = {
        {&m->up, NXL_METRIC_GAUGE, "nixlet_operators_up",
         "Operators connected, with a whole table"},
        {&m->frames, NXL_METRIC_COUNTER, "nixlet_operator_frames_total", "Frames from operators"},
        {&m->snapshots, NXL_METRIC_COUNTER, "nixlet_operator_snapshots_total",
         "Whole tables from operators"},
        {&m->failures, NXL_METRIC_COUNTER, "nixlet_operator_failures_total",
         "Connections to operators that failed or ended"},
        {&m->refused, NXL_METRIC_COUNTER, "nixlet_operator_refusals_total",
         "Connections that an operator or this agent refused"},
        {&m->dropped, NXL_METRIC_COUNTER, "nixlet_operator_dropped_total",
         "Frames not told to an operator that reads too slowly"},
        {&m->acked, NXL_METRIC_COUNTER, "nixlet_operator_acknowledged_total",
         "Changes acknowledged to operators"},
        {&m->stale, NXL_METRIC_COUNTER, "nixlet_operator_stale_total",
         "Records of the dead, or older than what is known"},
        {&m->regressed, NXL_METRIC_COUNTER, "nixlet_operator_regressions_total",
         "Whole tables with a smaller resource version than before"},
        {&m->members, NXL_METRIC_GAUGE, "nixlet_members", "Pods known from operators"},
        {&m->draining, NXL_METRIC_GAUGE, "nixlet_members_draining", "Of those, draining"},
        {&m->suspect, NXL_METRIC_GAUGE, "nixlet_members_suspect", "Of those, suspect"},
        {&m->groups, NXL_METRIC_GAUGE, "nixlet_groups", "NixlPeers known from operators"},
        {&m->denied, NXL_METRIC_GAUGE, "nixlet_policy_refusals", "Requests that policy refused"},
        {&m->observed, NXL_METRIC_GAUGE, "nixlet_policy_observed",
         "Requests that policy would have refused, if it were not in mode Observe"},
    };

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++)
        *rows[i].to = nxl_metric_open(registry, rows[i].type, rows[i].name, rows[i].help, "");
    m->apply_us = nxl_metric_open(registry, NXL_METRIC_HISTOGRAM, "nixlet_operator_fence_us",
                                  "Microseconds from an operator's word to its fence", "");
}

static void metrics_refresh(struct nxl_stream *stream)
{
    struct nxl_members_counts counts;

    nxl_members_counts(stream->members, &counts);
    nxl_metric_set(stream->metrics.members, counts.members);
    nxl_metric_set(stream->metrics.draining, counts.draining);
    nxl_metric_set(stream->metrics.suspect, counts.suspect);
    nxl_metric_set(stream->metrics.groups, counts.groups);
    nxl_metric_set(stream->metrics.denied, (int64_t)counts.refused);
    nxl_metric_set(stream->metrics.observed, (int64_t)counts.observed);
}

void stream_count_up(struct nxl_stream *stream)
{
    uint32_t up = 0, known = 0;

    for (uint32_t i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        const struct stream_end *end = stream->ends[i];

        known += end != NULL;
        up += end != NULL && end->state == END_LIVE && end->synced;
    }
    if (up == stream->up)
        return;
    nxl_metric_move(stream->metrics.up, (int64_t)up - stream->up);
    stream->up = up;
    if (stream->ops->on_state != NULL && !stream->closing)
        stream->ops->on_state(stream->arg, up, known);
}

/* ---- start, time and end ------------------------------------------------------------------- */

static void on_tick(void *arg)
{
    struct nxl_stream *stream = arg;
    uint64_t now = nxl_now_ns();

    for (uint32_t i = 0; i < stream->host_count; i++) {
        if (now >= stream->hosts[i].next_ns)
            stream_resolve(stream, &stream->hosts[i]);
    }
    for (uint32_t i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        if (stream->ends[i] != NULL && stream->ends[i]->state == END_LIVE) {
            stream_ask_certificate(stream->ends[i]); /* one of them is enough */
            break;
        }
    }
    nxl_members_tick(stream->members);
    metrics_refresh(stream);
    if (stream->ops->on_second != NULL)
        stream->ops->on_second(stream->arg);
}

enum nxl_code nxl_stream_open(const struct nxl_stream_options *options, struct nxl_stream **ret,
                              struct nxl_err *err)
{
    struct nxl_stream *stream = nxl_new0(sizeof(*stream));
    enum nxl_code code;

    stream->loop = options->loop;
    stream->ops = options->ops;
    stream->arg = options->arg;
    stream->members = options->members;
    stream->trust = options->trust;
    (void)nxl_copy_text(stream->cluster, sizeof(stream->cluster), options->cluster);
    (void)nxl_copy_text(stream->node, sizeof(stream->node), options->node);
    (void)nxl_copy_text(stream->agent, sizeof(stream->agent), options->agent);
    options_read(stream, options->settings);
    code = hosts_read(stream, nxl_settings_text(options->settings, "stream.operators"), err);
    if (code != NXL_OK) {
        free(stream);
        return code;
    }
    metrics_open(stream, options->metrics);
    stream->tick = nxl_timer_open(stream->loop, on_tick, stream);
    stream->ack_later = nxl_timer_open(stream->loop, stream_on_ack_later, stream);
    nxl_timer_start(stream->tick, 0, NXL_SEC);
    *ret = stream;
    return NXL_OK;
}

static void pods_free(struct nxl_stream *stream)
{
    for (uint32_t i = 0; i < stream->pod_count; i++)
        free(stream->pods[i]);
    free(stream->pods);
    stream->pods = NULL;
    stream->pod_count = 0;
}

void nxl_stream_close(struct nxl_stream *stream)
{
    const struct nxl_stream_frame bye = {.type = NXL_STREAM_GOAWAY, .text = "this agent stops"};

    if (stream == NULL)
        return;
    stream->closing = 1;
    for (uint32_t i = 0; i < stream->host_count; i++)
        stream_resolve_cancel(&stream->hosts[i]);
    for (uint32_t i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        if (stream->ends[i] == NULL)
            continue;
        if (stream->ends[i]->state == END_LIVE)
            stream_say(stream->ends[i], &bye);
        stream_end_free(stream->ends[i]);
    }
    nxl_timer_close(stream->tick);
    nxl_timer_close(stream->ack_later);
    nxl_tls_context_unref(stream->context);
    pods_free(stream);
    free(stream);
}

/* ---- told to all -------------------------------------------------------------------------- */

static void say_all(struct nxl_stream *stream, const struct nxl_stream_frame *frame)
{
    for (uint32_t i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        if (stream->ends[i] != NULL && stream->ends[i]->state == END_LIVE)
            stream_say(stream->ends[i], frame);
    }
}

void nxl_stream_tell(struct nxl_stream *stream, const char *incarnation, enum nxl_life life,
                     const char *reason)
{
    const struct nxl_stream_member fact = {
        .id = incarnation, .life = (uint8_t)life, .reason = reason};
    const struct nxl_stream_frame frame = {
        .type = NXL_STREAM_LOCAL, .members = &fact, .member_count = 1};

    say_all(stream, &frame);
}

void nxl_stream_tell_suspect(struct nxl_stream *stream, const char *incarnation, const char *node,
                             const char *evidence)
{
    const struct nxl_stream_frame frame = {
        .type = NXL_STREAM_SUSPECT, .id = incarnation, .node = node, .text = evidence};

    say_all(stream, &frame);
}

void nxl_stream_pods(struct nxl_stream *stream, const char *const *uids, uint32_t count)
{
    uint32_t kept = count < NXL_STREAM_RECORDS_MAX ? count : NXL_STREAM_RECORDS_MAX;

    pods_free(stream);
    stream->pods = nxl_new0_array(kept + 1, sizeof(char *));
    stream->pod_count = kept;
    for (uint32_t i = 0; i < kept; i++)
        stream->pods[i] = nxl_strdup(uids[i]);
    for (uint32_t i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        if (stream->ends[i] != NULL && stream->ends[i]->state == END_LIVE)
            stream_say_pods(stream->ends[i]);
    }
}

uint32_t nxl_stream_up(const struct nxl_stream *stream)
{
    return stream->up;
}

uint64_t nxl_stream_heard_ns(const struct nxl_stream *stream)
{
    return stream->heard_ns;
}

void nxl_stream_describe(const struct nxl_stream *stream, struct nxl_bytes *to)
{
    static const char *const states[] = {"waiting", "connecting", "hello", "live"};
    const char *comma = "";

    nxl_bytes_printf(to, "[");
    for (uint32_t i = 0; i < NXL_MEMBERS_SOURCES; i++) {
        const struct stream_end *end = stream->ends[i];

        if (end == NULL)
            continue;
        nxl_bytes_printf(to,
                         "%s{\"address\":\"%s\",\"state\":\"%s\",\"synced\":%s,\"sequence\":%llu,"
                         "\"unacknowledged\":%u}",
                         comma, end->text, states[end->state], end->synced ? "true" : "false",
                         (unsigned long long)end->seq, end->fence_count);
        comma = ",";
    }
    nxl_bytes_printf(to, "]");
}
