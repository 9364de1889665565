/* node.c - builds every module in order and tears down in reverse; wiring only, no decisions.
 * The thread that calls nxl_node_run() is the loop thread. */
#include "node.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../backends/backends.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/guard.h"
#include "base/log.h"
#include "base/loop.h"
#include "base/mem.h"
#include "base/metric.h"
#include "base/option.h"
#include "cluster/directory.h"
#include "cluster/link.h"
#include "cluster/members.h"
#include "cluster/stream.h"
#include "cluster/trust.h"
#include "front/front.h"
#include "host/host.h"
#include "status/status.h"
#include "xfer/xfer.h"

#define NODE_NAME_MAX 63 /* it is the first component of incarnations */
#define EXIT_FENCED 75   /* EX_TEMPFAIL: start me again */

struct nxl_node {
    const struct nxl_settings *settings;
    char name[NXL_NODE_MAX + 1], agent[NXL_INCARNATION_MAX + 1], backends[256];
    struct nxl_loop *loop;
    struct nxl_metrics *metrics;
    struct nxl_hosts *hosts;
    struct nxl_trust *trust;
    struct nxl_links *links;
    struct nxl_directory *directory;
    struct nxl_members *members; /* NULL: no operator is configured */
    struct nxl_stream *stream;
    struct nxl_xfer *xfer;
    struct nxl_front *front;
    struct nxl_status *status;
    struct nxl_poller *poller;
    struct nxl_signal *signals[2];
    struct nxl_status_source sources[6];
    struct nxl_message_backend addresses[NXL_BACKENDS_MAX];
    int exit_code;
};

static const struct nxl_option agent_options[] = {
    {"node", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "name of this node, at most 63 characters; empty: the host's name"},
    {"cluster", NXL_OPTION_TEXT, "default", 0, 0, NULL,
     "agents of other clusters are refused; names the keys in the store"},
    {"backends", NXL_OPTION_TEXT, "shm,ucx", 0, 0, NULL,
     "backends to open, in order of preference; fault:NAME wraps NAME for tests"},
    {"plugin_dir", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "where libnxl_backend_*.so are looked for beside the built-in ones"},
    {"spin", NXL_OPTION_DURATION, "50us", 0, 1000000000, NULL,
     "how long the agent polls after work before it sleeps; 0us: sleep at once"},
    {"log_level", NXL_OPTION_ENUM, "info", 0, 0, "error|warn|info|debug|trace",
     "lines above this level are dropped"},
    {NULL, NXL_OPTION_TEXT, NULL, 0, 0, NULL, NULL},
};

void nxl_node_declare(struct nxl_settings *settings, const char *plugin_dir)
{
    nxl_settings_declare(settings, "agent", agent_options);
    nxl_front_declare(settings);
    nxl_links_declare(settings);
    nxl_directory_declare(settings);
    nxl_stream_declare(settings);
    nxl_status_declare(settings);
    nxl_xfer_declare(settings);
    nxl_hosts_declare(settings, nxl_backends_static(), plugin_dir);
}

/* ---- the spinning half of the loop ------------------------------------------------------------
 */

/* The hosts first: once they know that they are polled, what ends inside a post wakes nobody. */
static int node_poll(void *arg)
{
    struct nxl_node *node = arg;
    int work = nxl_hosts_poll(node->hosts) + nxl_front_poll(node->front);

    if (work > 0)
        work += nxl_hosts_poll(node->hosts);
    else if (nxl_front_same_core(node->front))
        nxl_poller_rest(node->poller);
    return work > 0;
}

/* Both sides are parked before either is asked again, so that nothing slips between. */
static int node_on_idle(void *arg)
{
    struct nxl_node *node = arg;
    int front = nxl_front_park(node->front);
    int hosts = nxl_hosts_park(node->hosts);

    return front || hosts;
}

/* What rang the doorbell is served before the loop goes round. */
static void node_turn(void *arg)
{
    (void)node_poll(arg);
}

static void node_wake(void *arg)
{
    struct nxl_node *node = arg;

    nxl_poller_activate(node->poller);
}

/* ---- status ---------------------------------------------------------------------------------- */

static void describe(void *arg, const char *path, struct nxl_bytes *to)
{
    struct nxl_node *node = arg;

    nxl_xfer_describe(node->xfer, path + strlen("/v1/"), to);
}

static void describe_members(void *arg, const char *path, struct nxl_bytes *to)
{
    struct nxl_node *node = arg;

    (void)path;
    nxl_members_describe(node->members, to);
}

static void describe_operators(void *arg, const char *path, struct nxl_bytes *to)
{
    struct nxl_node *node = arg;

    (void)path;
    nxl_stream_describe(node->stream, to);
}

/* The store is not in the data path: an agent without it serves what it knows. */
static int node_ready(void *arg, struct nxl_bytes *why)
{
    struct nxl_node *node = arg;

    if (nxl_hosts_count(node->hosts) > 0)
        return 1;
    nxl_bytes_printf(why, "no backend is open");
    return 0;
}

/* ---- building -------------------------------------------------------------------------------- */

static enum nxl_code identity_make(struct nxl_node *node, struct nxl_err *err)
{
    const char *name = nxl_settings_text(node->settings, "agent.node");
    char host[256] = "";

    if (name[0] == '\0') {
        if (gethostname(host, sizeof(host) - 1) != 0)
            return nxl_err_set(err, NXL_CONFIG, 0, "the host has no name: set agent.node");
        name = host;
    }
    if (strlen(name) > NODE_NAME_MAX ||
        strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") !=
            strlen(name))
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "agent.node '%s': at most %d of letters, digits, '.', '-', '_'", name,
                           NODE_NAME_MAX);
    (void)nxl_copy_text(node->name, sizeof(node->name), name);
    snprintf(node->agent, sizeof(node->agent), "%.63s/agent/%016llx", node->name,
             (unsigned long long)nxl_random_u64());
    return NXL_OK;
}

static enum nxl_code hosts_build(struct nxl_node *node, struct nxl_err *err)
{
    const char *plugin_dir = nxl_settings_text(node->settings, "agent.plugin_dir");
    struct nxl_hosts_options options = {
        .loop = node->loop,
        .metrics = node->metrics,
        .settings = node->settings,
        .statics = nxl_backends_static(),
        .enabled = nxl_settings_text(node->settings, "agent.backends"),
        .plugin_dir = plugin_dir[0] != '\0' ? plugin_dir : NULL,
        .ops = &nxl_xfer_hosts_ops,
        .arg = node->xfer,
    };
    enum nxl_code code = nxl_hosts_open(&options, &node->hosts, err);

    if (code != NXL_OK)
        return code;
    for (uint32_t i = 0; i < nxl_hosts_count(node->hosts); i++) {
        size_t used = strlen(node->backends);

        snprintf(node->backends + used, sizeof(node->backends) - used, "%s%s", i > 0 ? " " : "",
                 nxl_instance_name(nxl_hosts_at(node->hosts, i)));
    }
    return NXL_OK;
}

static enum nxl_code trust_build(struct nxl_node *node, struct nxl_err *err)
{
    if (nxl_settings_bool(node->settings, "link.insecure"))
        return NXL_OK;
    if (nxl_settings_text(node->settings, "link.cert")[0] == '\0' &&
        nxl_stream_wanted(node->settings)) /* the operator gives one */
        return nxl_trust_open_pending(nxl_settings_text(node->settings, "agent.cluster"),
                                      node->name, &node->trust, err);
    if (nxl_settings_text(node->settings, "link.cert")[0] == '\0')
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "link.cert, link.key and link.ca are not set; deploy/certs.sh makes a "
                           "set for trying, link.insecure=true does without");
    return nxl_trust_open(
        nxl_settings_text(node->settings, "link.cert"),
        nxl_settings_text(node->settings, "link.key"), nxl_settings_text(node->settings, "link.ca"),
        nxl_settings_text(node->settings, "agent.cluster"), node->name, &node->trust, err);
}

static uint32_t addresses_collect(struct nxl_node *node)
{
    uint32_t count = 0;

    for (uint32_t i = 0; i < nxl_hosts_count(node->hosts); i++) {
        struct nxl_instance *instance = nxl_hosts_at(node->hosts, i);
        struct nxl_err err = {0};

        if ((nxl_instance_caps(instance)->flags & NXL_CAP_REMOTE) == 0)
            continue;
        (void)nxl_copy_text(node->addresses[count].name, sizeof(node->addresses[count].name),
                            nxl_instance_name(instance));
        if (nxl_instance_address(instance, &node->addresses[count].address, &err) != NXL_OK)
            nxl_warn("node",
                     "event=\"backend has no address, others cannot reach it\" backend=%s why=%s",
                     nxl_instance_name(instance), nxl_quote(err.text));
        count++;
    }
    return count;
}

static enum nxl_code cluster_build(struct nxl_node *node, struct nxl_err *err)
{
    const char *cluster = nxl_settings_text(node->settings, "agent.cluster");
    struct nxl_links_options links = {
        .loop = node->loop,
        .metrics = node->metrics,
        .settings = node->settings,
        .cluster = cluster,
        .node = node->name,
        .agent = node->agent,
        .backends = node->addresses,
        .backend_count = addresses_collect(node),
        .trust = nxl_settings_text(node->settings, "link.cert")[0] == '\0' ? node->trust : NULL,
        .ops = &nxl_xfer_links_ops,
        .arg = node->xfer,
    };
    struct nxl_directory_options directory = {
        .loop = node->loop,
        .metrics = node->metrics,
        .settings = node->settings,
        .trust = node->trust,
        .cluster = cluster,
        .node = node->name,
        .agent = node->agent,
        .ops = &nxl_xfer_directory_ops,
        .arg = node->xfer,
    };
    enum nxl_code code = nxl_links_open(&links, &node->links, err);

    if (code != NXL_OK)
        return code;
    directory.address = nxl_links_address(node->links);
    return nxl_directory_open(&directory, &node->directory, err);
}

/* From here on operators say who may reach whom; losing them changes nothing. */
static enum nxl_code operators_build(struct nxl_node *node, struct nxl_err *err)
{
    struct nxl_members_options members = {
        .node = node->name,
        .max = (uint32_t)nxl_settings_number(node->settings, "stream.members_max"),
        .ops = &nxl_xfer_members_ops,
        .arg = node->xfer,
    };
    struct nxl_stream_options stream = {
        .loop = node->loop,
        .metrics = node->metrics,
        .settings = node->settings,
        .cluster = nxl_settings_text(node->settings, "agent.cluster"),
        .node = node->name,
        .agent = node->agent,
        .ops = &nxl_xfer_stream_ops,
        .arg = node->xfer,
    };
    enum nxl_code code;

    if (!nxl_stream_wanted(node->settings))
        return NXL_OK;
    if (nxl_settings_text(node->settings, "link.cert")[0] == '\0')
        stream.trust = node->trust; /* not one that lies in files */
    node->members = nxl_members_new(&members);
    stream.members = node->members;
    code = nxl_stream_open(&stream, &node->stream, err);
    if (code == NXL_OK)
        nxl_xfer_attach_operators(node->xfer, node->members, node->stream);
    return code;
}

static void on_signal(void *arg)
{
    struct nxl_node *node = arg;

    nxl_info("node", "event=stopping");
    nxl_loop_stop(node->loop);
}

static void on_fenced(void *arg)
{
    struct nxl_node *node = arg;

    node->exit_code = EXIT_FENCED;
    nxl_loop_stop(node->loop);
}

static enum nxl_code front_build(struct nxl_node *node, struct nxl_err *err)
{
    struct nxl_front_options front = {
        .loop = node->loop,
        .metrics = node->metrics,
        .settings = node->settings,
        .xfer = node->xfer,
        .node = node->name,
        .agent = node->agent,
        .backends = node->backends,
        .wake = node_wake,
        .turn = node_turn,
        .arg = node,
    };
    struct nxl_status_options status = {
        .loop = node->loop,
        .metrics = node->metrics,
        .settings = node->settings,
        .sources = node->sources,
        .source_count = node->stream != NULL ? 6 : 4,
        .ready = node_ready,
        .ready_arg = node,
    };
    static const char *const paths[] = {"/v1/peers", "/v1/regions", "/v1/transfers",
                                        "/v1/backends"};
    enum nxl_code code;

    for (unsigned i = 0; i < 4; i++)
        node->sources[i] = (struct nxl_status_source){paths[i], describe, node};
    node->sources[4] = (struct nxl_status_source){"/v1/members", describe_members, node};
    node->sources[5] = (struct nxl_status_source){"/v1/operators", describe_operators, node};
    code = nxl_status_open(&status, &node->status, err);
    if (code == NXL_OK)
        code = nxl_front_open(&front, &node->front, err);
    if (code != NXL_OK)
        return code;
    node->poller = nxl_poller_open(node->loop, node_poll, node_on_idle, node,
                                   (uint64_t)nxl_settings_number(node->settings, "agent.spin"));
    node->signals[0] = nxl_signal_open(node->loop, SIGTERM, on_signal, node);
    node->signals[1] = nxl_signal_open(node->loop, SIGINT, on_signal, node);
    nxl_xfer_on_fenced(node->xfer, on_fenced, node);
    return NXL_OK;
}

static void labels_set(struct nxl_node *node)
{
    char labels[400], host[260];

    snprintf(labels, sizeof(labels), "hostname=\"%s\",agent_name=\"nixlet\"",
             nxl_metric_label(host, sizeof(host), node->name));
    nxl_metrics_labels(node->metrics, labels);
}

static enum nxl_code node_build(struct nxl_node *node, struct nxl_err *err)
{
    struct nxl_xfer_options xfer = {.settings = node->settings,
                                    .cluster = nxl_settings_text(node->settings, "agent.cluster")};
    enum nxl_code code = identity_make(node, err);

    if (code != NXL_OK)
        return code;
    nxl_guard_install();
    code = nxl_loop_open(&node->loop, err);
    if (code != NXL_OK)
        return code;
    node->metrics = nxl_metrics_new();
    labels_set(node);
    xfer.loop = node->loop;
    xfer.metrics = node->metrics;
    xfer.node = node->name;
    xfer.agent = node->agent;
    code = nxl_xfer_open(&xfer, &node->xfer, err);
    if (code == NXL_OK)
        code = hosts_build(node, err);
    if (code == NXL_OK)
        code = trust_build(node, err);
    if (code == NXL_OK)
        code = cluster_build(node, err);
    if (code != NXL_OK)
        return code;
    nxl_xfer_attach(node->xfer, node->hosts, node->links, node->directory);
    code = operators_build(node, err);
    if (code != NXL_OK)
        return code;
    return front_build(node, err);
}

enum nxl_code nxl_node_open(const struct nxl_settings *settings, struct nxl_node **ret,
                            struct nxl_err *err)
{
    struct nxl_node *node = nxl_new0(sizeof(*node));
    enum nxl_code code;

    node->settings = settings;
    code = node_build(node, err);
    if (code != NXL_OK) {
        nxl_node_close(node);
        return code;
    }
    nxl_info("node", "event=ready node=%s agent=%s backends=\"%s\" socket=%s link=%s http=%s",
             nxl_quote(node->name), nxl_quote(node->agent), node->backends,
             nxl_quote(nxl_settings_text(settings, "socket.path")), nxl_links_address(node->links),
             nxl_status_address(node->status));
    *ret = node;
    return NXL_OK;
}

int nxl_node_run(struct nxl_node *node)
{
    nxl_loop_run(node->loop);
    return node->exit_code;
}

/* Clients first (they are told to go), then the ways to other agents, then what moves bytes. */
void nxl_node_close(struct nxl_node *node)
{
    if (node == NULL)
        return;
    nxl_signal_close(node->signals[0]);
    nxl_signal_close(node->signals[1]);
    nxl_front_close(node->front);
    nxl_poller_close(node->poller);
    nxl_status_close(node->status);
    nxl_stream_close(node->stream);
    if (node->xfer != NULL)
        nxl_xfer_attach_operators(node->xfer, node->members, NULL);
    nxl_directory_close(node->directory);
    nxl_links_close(node->links);
    if (node->xfer != NULL)
        nxl_xfer_attach(node->xfer, node->hosts, NULL, NULL);
    nxl_xfer_close(node->xfer);
    nxl_members_free(node->members);
    nxl_hosts_close(node->hosts);
    nxl_trust_close(node->trust);
    nxl_metrics_free(node->metrics);
    if (node->loop != NULL)
        nxl_loop_close(node->loop);
    free(node);
}
