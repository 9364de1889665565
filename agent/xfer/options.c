/* options.c - the engine's settings (limits, access) and its metrics. */
#include "xfer/options.h"

#include <string.h>

#include "base/option.h"

static const struct nxl_option limit_options[] = {
    {"sessions", NXL_OPTION_INT, "1024", 1, 65536, NULL, "clients connected at once"},
    {"peers", NXL_OPTION_INT, "256", 1, 65536, NULL, "peers of one session"},
    {"regions", NXL_OPTION_INT, "65536", 1, 1 << 20, NULL, "registered regions of one session"},
    {"files", NXL_OPTION_INT, "16384", 1, 1 << 20, NULL, "memory files mapped for one session"},
    {"files_total", NXL_OPTION_INT, "32768", 1, 1 << 20, NULL,
     "memory files mapped for all sessions; keep it well below vm.max_map_count"},
    {"registered", NXL_OPTION_SIZE, "16Ti", 1, INT64_MAX, NULL, "registered bytes of one session"},
    {"lists", NXL_OPTION_INT, "16384", 1, 1 << 20, NULL, "prepared lists of one session"},
    {"list_runs", NXL_OPTION_INT, "16777216", 1, 1 << 30, NULL, "runs in all lists of one session"},
    {"remotes", NXL_OPTION_INT, "65536", 1, 1 << 20, NULL, "remote peers loaded by one session"},
    {"descriptors", NXL_OPTION_INT, "1048576", 1, 1 << 30, NULL,
     "descriptors of one transfer; planning that many holds all clients up"},
    {"transfers", NXL_OPTION_INT, "16384", 1, 65536, NULL,
     "transfers of one session that run at once"},
    {"transfer_bytes", NXL_OPTION_SIZE, "16Ti", 1, INT64_MAX, NULL,
     "bytes of one session under way at once"},
    {"transfer_timeout", NXL_OPTION_DURATION, "0s", 0, INT64_MAX, NULL,
     "end of a transfer that names no timeout; 0s: none"},
    {"cancel_timeout", NXL_OPTION_DURATION, "1s", 1000000, INT64_MAX, NULL,
     "how long a cancel waits for the backend before it ends in doubt"},
    {"fence_timeout", NXL_OPTION_DURATION, "30s", 1000000, INT64_MAX, NULL,
     "how long memory stays for far agents that do not confirm"},
    {"hints", NXL_OPTION_INT, "4096", 1, 1 << 20, NULL, "records kept that agents sent directly"},
    {"held_notices", NXL_OPTION_INT, "65536", 1, 1 << 20, NULL,
     "notices that wait for one client that reads slowly; with those in its ring and queue"},
    {"digests", NXL_OPTION_INT, "64", 1, 65536, NULL,
     "digests summed at once for far agents that ask"},
    {NULL, NXL_OPTION_TEXT, NULL, 0, 0, NULL, NULL},
};

static const struct nxl_option access_options[] = {
    {"policy", NXL_OPTION_ENUM, "namespace", 0, 0, "namespace|all|none",
     "whose memory a peer may reach: its own namespace's, everybody's, or only its own"},
    {NULL, NXL_OPTION_TEXT, NULL, 0, 0, NULL, NULL},
};

void nxl_xfer_declare(struct nxl_settings *settings)
{
    nxl_settings_declare(settings, "limits", limit_options);
    nxl_settings_declare(settings, "access", access_options);
}

void xfer_options_read(struct nxl_xfer *xfer, const struct nxl_settings *settings)
{
    struct xfer_limits *l = &xfer->limits;
    const char *policy = nxl_settings_text(settings, "access.policy");

    l->sessions = (uint32_t)nxl_settings_number(settings, "limits.sessions");
    l->peers = (uint32_t)nxl_settings_number(settings, "limits.peers");
    l->regions = (uint32_t)nxl_settings_number(settings, "limits.regions");
    l->files = (uint32_t)nxl_settings_number(settings, "limits.files");
    l->files_total = (uint32_t)nxl_settings_number(settings, "limits.files_total");
    l->registered_bytes = (uint64_t)nxl_settings_number(settings, "limits.registered");
    l->lists = (uint32_t)nxl_settings_number(settings, "limits.lists");
    l->list_descriptors = (uint64_t)nxl_settings_number(settings, "limits.list_runs");
    l->remotes = (uint32_t)nxl_settings_number(settings, "limits.remotes");
    l->descriptors = (uint64_t)nxl_settings_number(settings, "limits.descriptors");
    l->transfers = (uint64_t)nxl_settings_number(settings, "limits.transfers");
    l->transfer_bytes = (uint64_t)nxl_settings_number(settings, "limits.transfer_bytes");
    l->transfer_timeout_ns = (uint64_t)nxl_settings_number(settings, "limits.transfer_timeout");
    l->cancel_timeout_ns = (uint64_t)nxl_settings_number(settings, "limits.cancel_timeout");
    l->fence_timeout_ns = (uint64_t)nxl_settings_number(settings, "limits.fence_timeout");
    l->hints = (uint32_t)nxl_settings_number(settings, "limits.hints");
    l->held_notices = (uint32_t)nxl_settings_number(settings, "limits.held_notices");
    l->digests = (uint32_t)nxl_settings_number(settings, "limits.digests");
    xfer->access = strcmp(policy, "all") == 0    ? XFER_ACCESS_ALL
                   : strcmp(policy, "none") == 0 ? XFER_ACCESS_NONE
                                                 : XFER_ACCESS_NAMESPACE;
}

static struct nxl_metric *counter(struct nxl_xfer *xfer, const char *name, const char *help)
{
    return nxl_metric_open(xfer->registry, NXL_METRIC_COUNTER, name, help, "");
}

static struct nxl_metric *gauge(struct nxl_xfer *xfer, const char *name, const char *help)
{
    return nxl_metric_open(xfer->registry, NXL_METRIC_GAUGE, name, help, "");
}

static struct nxl_metric *histogram(struct nxl_xfer *xfer, const char *name, const char *help)
{
    return nxl_metric_open(xfer->registry, NXL_METRIC_HISTOGRAM, name, help, "");
}

/* The agent_* families carry NIXL's names and meanings: tx = WRITE, rx = READ, as the initiator
 * sees them; times in microseconds. */
static void nixl_metrics(struct nxl_xfer *xfer)
{
    struct xfer_metrics *m = &xfer->metrics;

    m->bytes_tx = counter(xfer, "agent_tx_bytes_total", "Bytes written to remote memory");
    m->bytes_rx = counter(xfer, "agent_rx_bytes_total", "Bytes read from remote memory");
    m->last_tx = gauge(xfer, "agent_tx_last_bytes", "Bytes of the last finished write");
    m->last_rx = gauge(xfer, "agent_rx_last_bytes", "Bytes of the last finished read");
    m->transfers[NXL_WRITE] = counter(xfer, "agent_tx_requests_num_total", "Writes that finished");
    m->transfers[NXL_READ] = counter(xfer, "agent_rx_requests_num_total", "Reads that finished");
    m->registered = counter(xfer, "agent_memory_registered_total", "Bytes ever registered");
    m->registered_last =
        gauge(xfer, "agent_memory_registered_last_bytes", "Bytes of the last registration");
    m->deregistered = counter(xfer, "agent_memory_deregistered_total", "Bytes ever deregistered");
    m->deregistered_last =
        gauge(xfer, "agent_memory_deregistered_last_bytes", "Bytes of the last deregistration");
    m->xfer_time_total = counter(xfer, "agent_xfer_time_total",
                                 "Microseconds from taking a post up to its end, summed");
    m->xfer_time = gauge(xfer, "agent_xfer_time", "Microseconds of the last finished transfer");
    m->xfer_time_hist =
        histogram(xfer, "agent_xfer_time_us", "Microseconds from taking a post up to its end");
    m->post_time_total = counter(xfer, "agent_xfer_post_time_total",
                                 "Microseconds of planning and submitting, summed");
    m->post_time = gauge(xfer, "agent_xfer_post_time",
                         "Microseconds of planning and submitting the last transfer");
    m->post_time_hist =
        histogram(xfer, "agent_xfer_post_time_us", "Microseconds of planning and submitting");
}

void xfer_metrics_open(struct nxl_xfer *xfer)
{
    struct xfer_metrics *m = &xfer->metrics;

    nixl_metrics(xfer);
    m->notices_sent = counter(xfer, "nixlet_notices_sent_total", "Notices that clients sent");
    m->notices_received =
        counter(xfer, "nixlet_notices_received_total", "Notices handed to clients");
    m->notices_lost =
        counter(xfer, "nixlet_notices_lost_total", "Notices that could not be delivered");
    m->inflight = gauge(xfer, "nixlet_transfers_running", "Transfers that run now");
    m->inflight_bytes =
        gauge(xfer, "nixlet_transfers_running_bytes", "Bytes of the transfers that run now");
    m->unquiet = gauge(xfer, "nixlet_transfers_unquiet",
                       "Transfers that ended while their buffers may still change");
    m->waiting =
        gauge(xfer, "nixlet_operations_waiting", "Backend operations held back by back-pressure");
    m->peers_local = gauge(xfer, "nixlet_peers_local", "Peers of this agent's clients");
    m->peers_remote = gauge(xfer, "nixlet_peers_remote", "Remote peers known");
    m->regions = gauge(xfer, "nixlet_regions", "Registered regions of this agent's clients");
    m->regions_leaving = gauge(xfer, "nixlet_regions_leaving",
                               "Deregistered regions that are not quiet everywhere yet");
    m->digest_bytes = counter(xfer, "nixlet_digest_bytes_total",
                              "Bytes of transfers that were checked by digest and found right");
    m->digests_wrong = counter(xfer, "nixlet_digest_mismatches_total",
                               "Transfers whose bytes differed on both sides after they ended");
    m->descriptors =
        counter(xfer, "nixlet_descriptors_total", "Descriptors of finished transfers as given");
    m->pieces = counter(xfer, "nixlet_pieces_total", "Pieces of finished transfers after merging");
    m->fence_us = histogram(xfer, "nixlet_fence_us",
                            "Microseconds from a death fact to all far agents having confirmed it");
    m->down_local_us =
        histogram(xfer, "nixlet_local_fence_us",
                  "Microseconds from noticing a client's end to its peers being fenced here");
}
