/* links_open.c - options, start and end of the set of links, and its listener. Called by the
 * agent's start-up and shutdown. Loop thread. */
#include "cluster/link_internal.h"

#include "base/loop.h"
#include "base/mem.h"
#include "base/option.h"
#include "cluster/identity.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <openssl/bio.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define GOODBYE_NS (200 * NXL_MS)
#define ACCEPTS_PER_TURN 64

static const struct nxl_option link_options[] = {
    {"listen", NXL_OPTION_TEXT, "0.0.0.0:7741", 0, 0, NULL,
     "host:port on which other agents reach this one; port 0: any"},
    {"advertise", NXL_OPTION_TEXT, "", 0, 0, NULL,
     "host:port told to others; empty: from link.listen and this host's address; port 0: the real "
     "one"},
    {"cert", NXL_OPTION_TEXT, "", 0, 0, NULL, "PEM file with this agent's certificate"},
    {"key", NXL_OPTION_TEXT, "", 0, 0, NULL, "PEM file with the certificate's key"},
    {"ca", NXL_OPTION_TEXT, "", 0, 0, NULL, "PEM file with the authority's certificates"},
    {"insecure", NXL_OPTION_BOOL, "false", 0, 0, NULL,
     "plaintext, only with agents that say so too; for trying"},
    {"ping", NXL_OPTION_DURATION, "1s", 10 * NXL_MS, 60 * NXL_SEC, NULL, "time between pings"},
    {"suspect_after", NXL_OPTION_DURATION, "3s", 30 * NXL_MS, 600 * NXL_SEC, NULL,
     "silence after which an agent is suspect and dialled again; at least two pings"},
    {"connect_timeout", NXL_OPTION_DURATION, "2s", 10 * NXL_MS, 60 * NXL_SEC, NULL,
     "bound for connecting, TLS and hello together"},
    {"backoff_max", NXL_OPTION_DURATION, "5s", 100 * NXL_MS, 600 * NXL_SEC, NULL,
     "longest pause between two dials"},
    {"notices_max", NXL_OPTION_INT, "65536", 1, 1 << 20, NULL, "unacknowledged notices per link"},
    {"notice_bytes_max", NXL_OPTION_SIZE, "64Mi", 2 << 20, 1 << 30, NULL,
     "bytes of unacknowledged notices per link"},
    {"frame_max", NXL_OPTION_SIZE, "2Mi", 64 << 10, NXL_MESSAGE_FRAME_MAX, NULL,
     "largest frame taken from another agent"},
    {"links_max", NXL_OPTION_INT, "8192", 1, 1 << 20, NULL, "links to other agents"},
    {0},
};

void nxl_links_declare(struct nxl_settings *settings)
{
    nxl_settings_declare(settings, "link", link_options);
}

/* ---- listener ----------------------------------------------------------------------------- */

static void take_client(struct nxl_links *links, int fd, const struct sockaddr *peer)
{
    struct nxl_err err;
    struct conn *conn = conn_new(links, fd, 0, peer);

    if (conn_watch(conn, NXL_WATCH_READ, &err) != NXL_OK)
        conn_fail(conn, LINK_FAIL_CONNECT, "%s", err.text);
}

static void links_on_accept(void *arg, int fd, unsigned events)
{
    struct nxl_links *links = arg;

    (void)events;
    for (int left = ACCEPTS_PER_TURN; left > 0; left--) {
        struct sockaddr_storage peer;
        socklen_t size = sizeof(peer);
        int client;

        if (links->half_open >=
            LINK_HALF_OPEN_MAX) { /* strangers wait in the backlog until some are known */
            nxl_watch_change(links->listen_watch, 0);
            return;
        }
        client = accept4(fd, (struct sockaddr *)&peer, &size, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (client >= 0) {
            take_client(links, client, (const struct sockaddr *)&peer);
            continue;
        }
        if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            if (nxl_log_gate_open(&links->gate, 5))
                nxl_warn("link", "event=accept_failed why=%s next=\"try again\"",
                         nxl_quote(strerror(errno)));
            nxl_watch_change(links->listen_watch, 0);
            nxl_timer_start(links->listen_retry, 100 * NXL_MS, 0);
            return;
        }
        if (errno == EAGAIN || errno == EWOULDBLOCK)
            return;
        /* EINTR, ECONNABORTED and what else belongs to one connection: the next may be fine. */
    }
}

static void links_on_listen_retry(void *arg)
{
    links_accept_resume(arg);
}

void links_accept_resume(struct nxl_links *links)
{
    if (links->listen_watch != NULL && links->half_open < LINK_HALF_OPEN_MAX)
        nxl_watch_change(links->listen_watch, NXL_WATCH_READ);
}

/* Start-up may block on a name, the loop may not. */
static enum nxl_code bind_listener(struct nxl_links *links, const char *listen_at, char *host,
                                   size_t room, int *ret_port, struct nxl_err *err)
{
    const struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE};
    struct addrinfo *found = NULL;
    struct sockaddr_storage bound;
    socklen_t size = sizeof(bound);
    char service[8];
    int port, on = 1, status;

    if (nxl_identity_split_address(listen_at, host, room, &port) != 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "link.listen: %s is not of the form host:port",
                           nxl_quote(listen_at));
    (void)snprintf(service, sizeof(service), "%d", port);
    status = getaddrinfo(host, service, &hints, &found);
    if (status != 0)
        return nxl_err_set(err, NXL_CONFIG, 0, "link.listen: %s: %s", nxl_quote(listen_at),
                           gai_strerror(status));
    links->listen_fd = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (links->listen_fd >= 0)
        (void)setsockopt(links->listen_fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    status = links->listen_fd < 0 ||
             bind(links->listen_fd, found->ai_addr, found->ai_addrlen) != 0 ||
             listen(links->listen_fd, 512) != 0 ||
             getsockname(links->listen_fd, (void *)&bound, &size) != 0;
    freeaddrinfo(found);
    if (status != 0)
        return nxl_err_set(err, NXL_IO, errno, "link.listen: listen on %s", nxl_quote(listen_at));
    *ret_port = ntohs(bound.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&bound)->sin6_port
                                                  : ((struct sockaddr_in *)&bound)->sin_port);
    return nxl_watch_open(links->loop, links->listen_fd, NXL_WATCH_READ, links_on_accept, links,
                          &links->listen_watch, err);
}

/* The address that packets to the outside would carry; connecting a datagram socket sends nothing.
 */
static void outward_host(char *host, size_t room)
{
    const struct sockaddr_in far = {.sin_family = AF_INET,
                                    .sin_port = htons(7741),
                                    .sin_addr.s_addr = htonl(0xc0000201u) /* 192.0.2.1 */};
    struct sockaddr_in own = {0};
    socklen_t size = sizeof(own);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (fd < 0 || connect(fd, (const void *)&far, sizeof(far)) != 0 ||
        getsockname(fd, (void *)&own, &size) != 0 ||
        inet_ntop(AF_INET, &own.sin_addr, host, (socklen_t)room) == NULL) {
        (void)nxl_copy_text(host, room, "127.0.0.1");
        nxl_warn("link", "event=advertise_loopback why=\"this host has no route outwards, so only "
                         "agents on it can "
                         "dial this one: set link.advertise\"");
    }
    if (fd >= 0)
        (void)close(fd);
}

static enum nxl_code choose_address(struct nxl_links *links, const char *advertise,
                                    const char *listen_host, int port, struct nxl_err *err)
{
    char host[sizeof(links->address)];
    int told_port = 0;

    if (advertise[0] != '\0') {
        if (nxl_identity_split_address(advertise, host, sizeof(host), &told_port) != 0)
            return nxl_err_set(err, NXL_CONFIG, 0,
                               "link.advertise: %s is not of the form host:port",
                               nxl_quote(advertise));
    } else if (strcmp(listen_host, "0.0.0.0") == 0 || strcmp(listen_host, "::") == 0) {
        outward_host(host, sizeof(host));
    } else {
        (void)nxl_copy_text(host, sizeof(host), listen_host); /* same size */
    }
    (void)snprintf(links->address, sizeof(links->address),
                   strchr(host, ':') != NULL ? "[%.280s]:%d" : "%.280s:%d", host,
                   told_port != 0 ? told_port : port);
    return NXL_OK;
}

/* ---- open --------------------------------------------------------------------------------- */

static void open_metrics(struct nxl_links *links, struct nxl_metrics *metrics)
{
    static const char *const failures[LINK_FAILURES] = {
        "connect", "timeout", "tls",   "plaintext", "version", "cluster",
        "node",    "ended",   "limit", "malformed", "refused"};
    static const uint64_t rtt_bounds[] = {25,    50,     100,    250,     500,
                                          1000,  2500,   5000,   10000,   25000,
                                          50000, 100000, 250000, 1000000, 3000000};
    struct link_metrics *m = &links->metrics;
    const char *frames = "Frames that links carried.";
    const char *bytes = "Bytes that links carried, without TLS.";
    const char *failed = "Handshakes that failed, by reason.";

    m->up = nxl_metric_open(metrics, NXL_METRIC_GAUGE, "nixlet_link_up",
                            "Links to other agents that are up.", "");
    m->reconnects = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_link_reconnects_total",
                                    "Connections made again to an agent known before.", "");
    m->frames_in = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_link_frames_total", frames,
                                   "direction=\"in\"");
    m->frames_out = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_link_frames_total", frames,
                                    "direction=\"out\"");
    m->bytes_in = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_link_bytes_total", bytes,
                                  "direction=\"in\"");
    m->bytes_out = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_link_bytes_total", bytes,
                                   "direction=\"out\"");
    m->unacked = nxl_metric_open(metrics, NXL_METRIC_GAUGE, "nixlet_link_notices_unacked",
                                 "Notices sent or queued that no agent has taken yet.", "");
    m->held = nxl_metric_open(metrics, NXL_METRIC_GAUGE, "nixlet_link_notices_held",
                              "Notices that arrived and wait until they can be taken.", "");
    m->resends = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_link_notice_resends_total",
                                 "Notices sent again after a reconnect.", "");
    m->malformed = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_link_malformed_total",
                                   "Connections ended because of a malformed frame.", "");
    m->suspects = nxl_metric_open(metrics, NXL_METRIC_COUNTER, "nixlet_link_suspects_total",
                                  "Times an agent became suspect.", "");
    m->rtt = nxl_metric_histogram(metrics, "nixlet_link_ping_rtt_us",
                                  "Time from ping to pong in microseconds.", "", rtt_bounds,
                                  NXL_COUNT_OF(rtt_bounds));
    for (int i = 0; i < LINK_FAILURES; i++) {
        char label[64];

        (void)snprintf(label, sizeof(label), "reason=\"%s\"", failures[i]);
        m->failures[i] = nxl_metric_open(metrics, NXL_METRIC_COUNTER,
                                         "nixlet_link_handshake_failures_total", failed, label);
    }
}

static enum nxl_code check_names(const struct nxl_links_options *options, struct nxl_err *err)
{
    if (!nxl_identity_is_label(options->cluster, NXL_NAMESPACE_MAX))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "cluster %s may hold letters, digits, '.', '_' and '-' only",
                           nxl_quote(options->cluster));
    if (!nxl_identity_is_label(options->node, NXL_NODE_MAX))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "node %s may hold letters, digits, '.', '_' and '-' only",
                           nxl_quote(options->node));
    if (!nxl_identity_is_agent_of(options->agent, options->node))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "agent incarnation %s does not begin with '%s/'",
                           nxl_quote(options->agent), options->node);
    if (options->backend_count > NXL_BACKENDS_MAX)
        return nxl_err_set(err, NXL_LIMIT, 0, "%u backends, and at most %d are allowed",
                           options->backend_count, NXL_BACKENDS_MAX);
    return NXL_OK;
}

static enum nxl_code read_settings(struct nxl_links *links, const struct nxl_settings *settings,
                                   struct nxl_err *err)
{
    links->ping_ns = (uint64_t)nxl_settings_number(settings, "link.ping");
    links->suspect_ns = (uint64_t)nxl_settings_number(settings, "link.suspect_after");
    links->connect_ns = (uint64_t)nxl_settings_number(settings, "link.connect_timeout");
    links->backoff_max_ns = (uint64_t)nxl_settings_number(settings, "link.backoff_max");
    links->notices_max = (uint32_t)nxl_settings_number(settings, "link.notices_max");
    links->notice_bytes_max = (size_t)nxl_settings_number(settings, "link.notice_bytes_max");
    links->frame_max = (size_t)nxl_settings_number(settings, "link.frame_max");
    links->links_max = (uint32_t)nxl_settings_number(settings, "link.links_max");
    if (links->suspect_ns < 2 * links->ping_ns)
        return nxl_err_set(err, NXL_CONFIG, 0,
                           "link.suspect_after must be at least twice link.ping");
    return NXL_OK;
}

static enum nxl_code open_trust(struct nxl_links *links, const struct nxl_links_options *options,
                                struct nxl_err *err)
{
    const struct nxl_settings *settings = options->settings;
    const char *cert = nxl_settings_text(settings, "link.cert");
    const char *key = nxl_settings_text(settings, "link.key");
    const char *ca = nxl_settings_text(settings, "link.ca");

    if (nxl_settings_bool(settings, "link.insecure")) {
        nxl_warn("link", "event=insecure why=\"links are plaintext and whoever reaches the port is "
                         "believed: set "
                         "link.cert, link.key, link.ca and link.insecure=false\"");
        return NXL_OK;
    }
    if (options->trust == NULL && (cert[0] == '\0' || key[0] == '\0' || ca[0] == '\0'))
        return nxl_err_set(
            err, NXL_CONFIG, 0,
            "link.cert, link.key and link.ca must name PEM files (deploy/certs.sh makes a set), or "
            "link.insecure must be true on all agents");
    links->bio_method = conn_tls_method();
    if (links->bio_method == NULL)
        return nxl_err_set(err, NXL_UNKNOWN, 0, "TLS: no memory");
    if (options->trust != NULL) {
        links->trust = options->trust;
        links->trust_lent = 1;
        return NXL_OK;
    }
    return nxl_trust_open(cert, key, ca, links->cluster, links->node, &links->trust, err);
}

static struct nxl_links *links_new(const struct nxl_links_options *options)
{
    struct nxl_links *links = nxl_new0(sizeof(*links));

    links->listen_fd = -1;
    links->loop = options->loop;
    links->backends = options->backends;
    links->backend_count = options->backend_count;
    links->ops = options->ops;
    links->arg = options->arg;
    (void)nxl_copy_text(links->cluster, sizeof(links->cluster), options->cluster); /* checked */
    (void)nxl_copy_text(links->node, sizeof(links->node), options->node);
    (void)nxl_copy_text(links->agent, sizeof(links->agent), options->agent);
    links->ended = nxl_new0_array(LINK_ENDED_MAX, sizeof(*links->ended));
    links->decoder = nxl_message_decoder_new();
    links->notice_decoder = nxl_message_decoder_new();
    links->later = nxl_timer_open(links->loop, links_on_later, links);
    links->listen_retry = nxl_timer_open(links->loop, links_on_listen_retry, links);
    open_metrics(links, options->metrics);
    return links;
}

static void links_closep(struct nxl_links **links)
{
    nxl_links_close(*links);
}

enum nxl_code nxl_links_open(const struct nxl_links_options *options, struct nxl_links **ret,
                             struct nxl_err *err)
{
    NXL_CLEANUP(links_closep) struct nxl_links *links = NULL;
    char host[sizeof(links->address)];
    int port = 0;
    enum nxl_code code = check_names(options, err);

    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "open link");
    links = links_new(options);
    code = read_settings(links, options->settings, err);
    if (code == NXL_OK)
        code = open_trust(links, options, err);
    if (code == NXL_OK)
        code = bind_listener(links, nxl_settings_text(options->settings, "link.listen"), host,
                             sizeof(host), &port, err);
    if (code == NXL_OK)
        code = choose_address(links, nxl_settings_text(options->settings, "link.advertise"), host,
                              port, err);
    if (code != NXL_OK)
        return nxl_err_wrap(err, code, "open link");
    nxl_info("link", "event=listening port=%d address=%s tls=%d", port, links->address,
             links->trust != NULL);
    *ret = NXL_TAKE(links);
    return NXL_OK;
}

/* ---- close -------------------------------------------------------------------------------- */

static int flush_all(struct nxl_links *links)
{
    int waiting = 0;

    for (struct conn *conn = links->conns; conn != NULL; conn = conn->next) {
        conn_flush(conn);
        waiting += !conn->broken && conn_backlog(conn) > 0;
    }
    return waiting;
}

static void say_goodbye(struct nxl_links *links)
{
    const struct nxl_message bye = {
        .type = NXL_MESSAGE_BYE, .code = NXL_OK, .text = "this agent stops"};
    uint64_t deadline = nxl_now_ns() + GOODBYE_NS;
    struct nxl_err err;

    for (struct conn *conn = links->conns; conn != NULL; conn = conn->next) {
        if (conn->state == CONN_UP && !conn->broken)
            (void)conn_put(conn, &bye, &err); /* a short text always fits a frame */
    }
    while (flush_all(links) > 0 && nxl_now_ns() < deadline) {
        struct pollfd some[64];
        nfds_t count = 0;

        for (struct conn *conn = links->conns; conn != NULL && count < NXL_COUNT_OF(some);
             conn = conn->next) {
            if (!conn->broken && conn_backlog(conn) > 0)
                some[count++] = (struct pollfd){.fd = conn->fd, .events = POLLOUT};
        }
        (void)poll(some, count, 10); /* whatever it says, the next flush tells more */
    }
}

void nxl_links_close(struct nxl_links *links)
{
    if (links == NULL)
        return;
    say_goodbye(links);
    nxl_watch_close(links->listen_watch);
    links->listen_watch = NULL;
    if (links->listen_fd >= 0)
        (void)close(links->listen_fd);
    while (links->list != NULL)
        links_forget(links->list);
    while (links->conns != NULL)
        conn_close(links->conns);
    links_free_the_dead(links);
    nxl_timer_close(links->later);
    nxl_timer_close(links->listen_retry);
    nxl_message_decoder_free(links->decoder);
    nxl_message_decoder_free(links->notice_decoder);
    if (!links->trust_lent)
        nxl_trust_close(links->trust);
    BIO_meth_free(links->bio_method);
    free(links->ended);
    free(links);
}
