/* server.c - the stream server as a whole: options, metrics, start, time and end; and what is known
 * of the agents. Called by the operator's wiring. Loop thread. */
#include "push/push_internal.h"

#include "base/fd.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/option.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct nxl_option stream_options[] = {
    {"listen", NXL_OPTION_TEXT, "0.0.0.0:7743", 0, 0, NULL,
     "host:port that agents dial; port 0: any"},
    {"cert", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "PEM file with the server's certificate and chain, read again when it changes; empty: the "
     "authority makes one"},
    {"key", NXL_OPTION_TEXT, "", 0, 0, NULL, "PEM file with the certificate's key"},
    {"names", NXL_OPTION_TEXT,
     "nixlet-operator,nixlet-operator.nixlet-system,nixlet-operator.nixlet-system.svc,localhost,"
     "127.0.0.1",
     0, 0, NULL, "names and addresses in a certificate that the authority makes"},
    {"ping", NXL_OPTION_DURATION, "1s", 50 * NXL_MS, 60 * NXL_SEC, NULL, "time between pings"},
    {"silent_after", NXL_OPTION_DURATION, "3s", 100 * NXL_MS, 600 * NXL_SEC, NULL,
     "silence after which an agent's node is suspect; three pings"},
    {"hello_timeout", NXL_OPTION_DURATION, "10s", 100 * NXL_MS, 600 * NXL_SEC, NULL,
     "bound for TLS, hello and the check of the token together"},
    {"agents_max", NXL_OPTION_INT, "16384", 1, 1 << 20, NULL, "agents connected at once"},
    {"handshakes_max", NXL_OPTION_INT, "512", 1, 65536, NULL,
     "connections that have not proven who they are"},
    {"queue_records", NXL_OPTION_INT, "10000", 100, 1 << 24, NULL,
     "changes that wait for one agent before it is set back to a snapshot"},
    {"queue_bytes", NXL_OPTION_SIZE, "8Mi", 64 << 10, 1 << 30, NULL,
     "bytes of changes that wait for one agent before it is set back to a snapshot"},
    {"queue_age", NXL_OPTION_DURATION, "30s", 100 * NXL_MS, 3600 * NXL_SEC, NULL,
     "how long anything may wait for one agent before it is set back, and then ended"},
    {"token_cache", NXL_OPTION_DURATION, "60s", 0, 3600 * NXL_SEC, NULL,
     "how long a checked token is believed without asking again"},
    {"facts_rate", NXL_OPTION_INT, "1000", 1, 1 << 20, NULL,
     "facts that one agent may report in a second"},
    {0},
};

void nxl_push_declare(struct nxl_settings *settings)
{
    nxl_settings_declare(settings, "stream", stream_options);
}

static void options_read(struct nxl_push *push, const struct nxl_settings *s)
{
    push->limits.ping_ns = (uint64_t)nxl_settings_number(s, "stream.ping");
    push->limits.silent_ns = (uint64_t)nxl_settings_number(s, "stream.silent_after");
    push->limits.hello_ns = (uint64_t)nxl_settings_number(s, "stream.hello_timeout");
    push->limits.queue_age_ns = (uint64_t)nxl_settings_number(s, "stream.queue_age");
    push->limits.token_ns = (uint64_t)nxl_settings_number(s, "stream.token_cache");
    push->limits.agents = (uint32_t)nxl_settings_number(s, "stream.agents_max");
    push->limits.handshakes = (uint32_t)nxl_settings_number(s, "stream.handshakes_max");
    push->limits.queue_records = (uint32_t)nxl_settings_number(s, "stream.queue_records");
    push->limits.queue_bytes = (size_t)nxl_settings_number(s, "stream.queue_bytes");
    push->limits.facts = (uint32_t)nxl_settings_number(s, "stream.facts_rate");
    push->limits.cert = nxl_settings_text(s, "stream.cert");
    push->limits.key = nxl_settings_text(s, "stream.key");
    push->limits.names = nxl_settings_text(s, "stream.names");
}

/* ---- metrics ------------------------------------------------------------------------------ */

static void metrics_open(struct nxl_push *push, struct nxl_metrics *registry)
{
    static const char *const failures[PUSH_FAILURES] = {
        [PUSH_FAIL_TLS] = "cause=\"connection\"",  [PUSH_FAIL_FRAME] = "cause=\"frame\"",
        [PUSH_FAIL_TOKEN] = "cause=\"identity\"",  [PUSH_FAIL_VERSION] = "cause=\"version\"",
        [PUSH_FAIL_TIMEOUT] = "cause=\"timeout\"", [PUSH_FAIL_SLOW] = "cause=\"slow\"",
        [PUSH_FAIL_LIMIT] = "cause=\"limit\"",     [PUSH_FAIL_REPLACED] = "cause=\"replaced\""};
    const struct {
        struct nxl_metric **to;
        enum nxl_metric_type type;
        const char *name, *help;
    } rows[] = {
        {&push->metrics.agents, NXL_METRIC_GAUGE, "nixlet_stream_agents", "Connected agents"},
        {&push->metrics.silent, NXL_METRIC_GAUGE, "nixlet_stream_agents_silent",
         "Connected agents that do not answer pings"},
        {&push->metrics.waiting, NXL_METRIC_GAUGE, "nixlet_stream_waiting_frames",
         "Frames that wait for sockets, over all agents"},
        {&push->metrics.records, NXL_METRIC_GAUGE, "nixlet_stream_records",
         "Members that are told"},
        {&push->metrics.changes, NXL_METRIC_COUNTER, "nixlet_stream_changes_total",
         "Changes of members and policies"},
        {&push->metrics.frames, NXL_METRIC_COUNTER, "nixlet_stream_frames_total",
         "Frames sent to agents"},
        {&push->metrics.bytes, NXL_METRIC_COUNTER, "nixlet_stream_bytes_total",
         "Bytes sent to agents, before TLS"},
        {&push->metrics.snapshots, NXL_METRIC_COUNTER, "nixlet_stream_snapshots_total",
         "Snapshots sent to agents"},
        {&push->metrics.resets, NXL_METRIC_COUNTER, "nixlet_stream_resets_total",
         "Agents that read too slowly and were set back to a snapshot"},
        {&push->metrics.mismatches, NXL_METRIC_COUNTER, "nixlet_stream_digest_mismatches_total",
         "Pings answered with another digest"},
        {&push->metrics.accepted, NXL_METRIC_COUNTER, "nixlet_stream_accepted_total",
         "Connections accepted"},
        {&push->metrics.resumed, NXL_METRIC_COUNTER, "nixlet_stream_resumed_total",
         "TLS sessions resumed"},
        {&push->metrics.tokens, NXL_METRIC_COUNTER, "nixlet_stream_token_checks_total",
         "Tokens that had to be checked, not being cached"},
        {&push->metrics.facts_refused, NXL_METRIC_COUNTER, "nixlet_stream_facts_refused_total",
         "Reports of agents that were not believed or came too often"},
        {&push->metrics.issued, NXL_METRIC_COUNTER, "nixlet_stream_certificates_total",
         "Certificates issued to agents"},
    };
    static const uint64_t bounds[] = {1000,   2500,    5000,    10000,   25000,   50000,  75000,
                                      100000, 150000,  200000,  250000,  300000,  400000, 500000,
                                      750000, 1000000, 2500000, 5000000, 10000000};

    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++)
        *rows[i].to = nxl_metric_open(registry, rows[i].type, rows[i].name, rows[i].help, "");
    for (unsigned i = 0; i < PUSH_FAILURES; i++)
        push->metrics.failures[i] =
            nxl_metric_open(registry, NXL_METRIC_COUNTER, "nixlet_stream_ends_total",
                            "Connections that ended, by cause", failures[i]);
    push->metrics.latency =
        nxl_metric_histogram(registry, "nixlet_stream_acknowledged_us",
                             "Microseconds from saying a change to an agent's acknowledgement", "",
                             bounds, NXL_COUNT_OF(bounds));
    push->metrics.fence =
        nxl_metric_histogram(registry, "nixlet_stream_agent_fence_us",
                             "Microseconds that agents took to fence the dead, by their word", "",
                             bounds, NXL_COUNT_OF(bounds));
}

/* ---- time --------------------------------------------------------------------------------- */

static void on_tick(void *arg)
{
    struct nxl_push *push = arg;
    uint64_t now = nxl_now_ns();
    uint64_t slept = now - push->ticked_ns;
    struct push_conn *conn, *next;

    push->ticked_ns = now;
    if (slept > NXL_SEC) { /* nobody is judged for what we did not hear while asleep */
        for (conn = push->conns; conn != NULL; conn = conn->next) {
            conn->heard_ns = conn->heard_ns + slept < now ? conn->heard_ns + slept : now;
            conn->queued_ns = conn->queued_ns + slept < now ? conn->queued_ns + slept : now;
        }
    }
    for (conn = push->conns; conn != NULL; conn = next) {
        next = conn->next;
        push_conn_tick(conn, now);
    }
    push_context_check(push, now);
    push_conn_pump_ready(push);
    push_conns_free_dead(push);
}

static void on_flush(void *arg)
{
    struct nxl_push *push = arg;

    nxl_push_flush(push);
    push_conns_free_dead(push);
}

static void on_accept_later(void *arg)
{
    push_accept_resume(arg);
}

/* ---- start and end ------------------------------------------------------------------------ */

enum nxl_code nxl_push_open(const struct nxl_push_options *options, struct nxl_push **ret,
                            struct nxl_err *err)
{
    struct nxl_push *push = nxl_new0(sizeof(*push));
    enum nxl_code code;

    push->loop = options->loop;
    push->ops = options->ops;
    push->arg = options->arg;
    push->authority = options->authority;
    push->listen_fd = -1;
    (void)nxl_copy_text(push->cluster, sizeof(push->cluster), options->cluster);
    (void)nxl_copy_text(push->id, sizeof(push->id), options->id);
    (void)snprintf(push->epoch, sizeof(push->epoch), "%016llx",
                   (unsigned long long)nxl_random_u64());
    options_read(push, options->settings);
    metrics_open(push, options->metrics);
    push->tick = nxl_timer_open(push->loop, on_tick, push);
    push->flush_later = nxl_timer_open(push->loop, on_flush, push);
    push->accept_later = nxl_timer_open(push->loop, on_accept_later, push);
    code = push_context_load(push, err);
    if (code == NXL_OK)
        code = push_listen(push, nxl_settings_text(options->settings, "stream.listen"), err);
    if (code != NXL_OK) {
        nxl_push_close(push);
        return code;
    }
    push->ticked_ns = nxl_now_ns();
    nxl_timer_start(push->tick, PUSH_TICK_NS, PUSH_TICK_NS);
    nxl_info("push", "event=listening address=%s epoch=%s", push->address, push->epoch);
    *ret = push;
    return NXL_OK;
}

void nxl_push_close(struct nxl_push *push)
{
    const struct nxl_stream_frame bye = {
        .type = NXL_STREAM_GOAWAY, .text = "this operator stops", .after_ms = 100};

    if (push == NULL)
        return;
    push->closing = 1;
    if (push->dirty != NULL)
        nxl_push_flush(push);
    nxl_watch_close(push->listen_watch);
    push->listen_watch = NULL;
    while (push->conns != NULL) {
        struct push_conn *conn = push->conns;

        if (conn->state == CONN_LIVE) {
            push_conn_say(conn, &bye);
            push_conn_pump(conn);
        }
        push_conn_fail(conn, PUSH_FAIL_TLS, "this operator stops");
    }
    push_conns_free_dead(push);
    nxl_closep(&push->listen_fd);
    nxl_timer_close(push->tick);
    nxl_timer_close(push->flush_later);
    nxl_timer_close(push->accept_later);
    nxl_tls_context_unref(push->context);
    push_table_fini(push);
    push_tokens_fini(push);
    free(push);
}

const char *nxl_push_address(const struct nxl_push *push)
{
    return push->address;
}

int nxl_push_ready(const struct nxl_push *push)
{
    return push->listen_watch != NULL && push->synced;
}

void nxl_push_synced(struct nxl_push *push)
{
    if (push->synced)
        return;
    push->synced = 1;
    for (struct push_conn *conn = push->conns; conn != NULL; conn = conn->next) {
        if (conn->state == CONN_LIVE)
            push_snapshot(conn);
    }
    push_flush_later(push);
}

void nxl_push_rv(struct nxl_push *push, const char *rv)
{
    (void)nxl_copy_text(push->rv, sizeof(push->rv), rv);
}

/* ---- for status and people ----------------------------------------------------------------- */

int nxl_push_group(struct nxl_push *push, const char *name, struct nxl_push_group *ret)
{
    const struct push_group *group = push_group_find(push, name);

    if (group == NULL)
        return 0;
    *ret = (struct nxl_push_group){
        .seq = group->seq, .changed_ns = group->changed_ns, .slowest_ns = group->slowest_ns};
    for (const struct push_conn *conn = push->conns; conn != NULL; conn = conn->next) {
        uint64_t seq = group->seq > conn->floor_seq ? group->seq : conn->floor_seq;

        if (conn->state != CONN_LIVE || !push_held(conn, group->index))
            continue;
        ret->interested++;
        ret->synced +=
            conn->synced && !conn->needs_snapshot && !group->dirty && conn->acked_seq >= seq;
    }
    return 1;
}

uint32_t nxl_push_agent_count(const struct nxl_push *push)
{
    return push->live_count;
}

int nxl_push_each(struct nxl_push *push, int (*fn)(void *arg, const struct nxl_push_agent *agent),
                  void *arg)
{
    int result = 0;

    for (const struct push_conn *conn = push->conns; conn != NULL && result == 0;
         conn = conn->next) {
        struct nxl_push_agent agent;

        if (conn->state != CONN_LIVE)
            continue;
        push_conn_show(conn, &agent);
        result = fn(arg, &agent);
    }
    return result;
}

void nxl_push_describe(struct nxl_push *push, struct nxl_bytes *to)
{
    uint64_t now = nxl_now_ns();
    const char *comma = "";

    nxl_bytes_printf(to, "[");
    for (const struct push_conn *conn = push->conns; conn != NULL; conn = conn->next) {
        if (conn->state != CONN_LIVE)
            continue;
        nxl_bytes_printf(to,
                         "%s{\"node\":\"%s\",\"sent\":%llu,\"acknowledged\":%llu,\"waiting\":%u,"
                         "\"silent\":%s,\"synced\":%s,\"heard_ms\":%llu}",
                         comma, conn->node->name, (unsigned long long)conn->sent_seq,
                         (unsigned long long)conn->acked_seq, conn->queue_count,
                         conn->silent ? "true" : "false", conn->synced ? "true" : "false",
                         (unsigned long long)((now - conn->heard_ns) / NXL_MS));
        comma = ",";
    }
    nxl_bytes_printf(to, "]");
}
