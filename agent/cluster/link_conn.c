/* link_conn.c - one connection of the link: bytes in and out, framing, the end of it. Called by the
 * loop, link.c and link_hello.c. Loop thread. */
#include "cluster/link_internal.h"

#include "base/assert.h"
#include "base/loop.h"
#include "base/mem.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <unistd.h>

static void conn_on_timeout(void *arg)
{
    static const char *const steps[] = {"connect", "the TLS handshake", "the hello", "nothing"};
    struct conn *conn = arg;

    conn_fail(conn, LINK_FAIL_TIMEOUT, "no answer within link.connect_timeout during %s",
              steps[conn->state]);
}

static void name_peer(struct conn *conn, const struct sockaddr *peer)
{
    char text[INET6_ADDRSTRLEN] = "?";

    if (peer->sa_family == AF_INET6) {
        const struct sockaddr_in6 *in6 = (const void *)peer;

        (void)inet_ntop(AF_INET6, &in6->sin6_addr, text, sizeof(text)); /* "?" is as good */
        (void)snprintf(conn->peer, sizeof(conn->peer), "[%s]:%u", text, ntohs(in6->sin6_port));
    } else {
        const struct sockaddr_in *in = (const void *)peer;

        (void)inet_ntop(AF_INET, &in->sin_addr, text, sizeof(text));
        (void)snprintf(conn->peer, sizeof(conn->peer), "%s:%u", text, ntohs(in->sin_port));
    }
}

struct conn *conn_new(struct nxl_links *links, int fd, int outbound, const struct sockaddr *peer)
{
    struct conn *conn = nxl_new0(sizeof(*conn));
    int on = 1;

    conn->links = links;
    conn->fd = fd;
    conn->outbound = outbound;
    conn->state = outbound ? CONN_CONNECTING : CONN_HELLO;
    name_peer(conn, peer);
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on,
                     sizeof(on)); /* only latency is lost without */
    conn->timer = nxl_timer_open(links->loop, conn_on_timeout, conn);
    nxl_timer_start(conn->timer, links->connect_ns, 0);
    conn->next = links->conns;
    if (conn->next != NULL)
        conn->next->prev = conn;
    links->conns = conn;
    if (!outbound)
        links->half_open++;
    return conn;
}

void conn_close(struct conn *conn)
{
    unsigned char rest[4096];

    if (conn == NULL || conn->dead)
        return;
    conn->dead = 1;
    if (!conn->outbound && conn->state != CONN_UP) {
        conn->links->half_open--;
        links_accept_resume(conn->links);
    }
    conn_tls_close(conn);
    nxl_watch_close(conn->watch);
    nxl_timer_close(conn->timer);
    /* Bytes left unread would turn our last words into a reset. One read is enough: it is a
     * courtesy. */
    (void)shutdown(conn->fd, SHUT_WR);
    (void)!recv(conn->fd, rest, sizeof(rest), MSG_DONTWAIT);
    (void)close(conn->fd);
    conn->fd = -1;
    if (conn->prev != NULL)
        conn->prev->next = conn->next;
    if (conn->prev == NULL)
        conn->links->conns = conn->next;
    if (conn->next != NULL)
        conn->next->prev = conn->prev;
    links_bury_conn(conn);
}

void conn_fail(struct conn *conn, enum link_failure failure, const char *fmt, ...)
{
    struct nxl_links *links = conn->links;
    struct nxl_link *link = conn->link;
    int was_up = conn->state == CONN_UP;
    char why[NXL_ERR_TEXT_SIZE];
    va_list args;

    if (conn->dead)
        return;
    va_start(args, fmt);
    (void)vsnprintf(why, sizeof(why), fmt, args); /* cut off is fine: it is for people */
    va_end(args);
    if (failure == LINK_FAIL_MALFORMED)
        nxl_metric_add(links->metrics.malformed, 1);
    if (!was_up)
        nxl_metric_add(links->metrics.failures[failure], 1);
    if ((!was_up && !conn->outbound) || failure == LINK_FAIL_MALFORMED) {
        if (nxl_log_gate_open(&links->gate, 5))
            nxl_warn("link", "event=refused peer=%s why=%s", conn->peer, nxl_quote(why));
    }
    conn_close(conn);
    if (link == NULL || link->over)
        return;
    if (link->conn == conn) {
        link_lost(link, why, 0);
    } else if (link->trying == conn) {
        link->trying = NULL;
        link_dial_failed(link, why);
    }
}

void conn_refuse(struct conn *conn, enum nxl_code code, const char *why)
{
    const struct nxl_message bye = {.type = NXL_MESSAGE_BYE, .code = code, .text = why};
    struct nxl_err err;

    conn->corked = 0;
    if (conn->state >= CONN_HELLO && !conn->broken && conn_put(conn, &bye, &err) == NXL_OK)
        conn_flush(conn); /* what does not leave now never does; the far side sees the end anyway */
    conn_close(conn);
}

/* ---- events ------------------------------------------------------------------------------- */

/* TCP stands: next is TLS or the hello. */
static void conn_established(struct conn *conn)
{
    struct nxl_err err;

    if (conn->links->trust != NULL) {
        conn->state = CONN_TLS;
        if (conn_tls_start(conn, &err) != NXL_OK)
            conn_fail(conn, LINK_FAIL_TLS, "%s", err.text);
        return;
    }
    conn->state = CONN_HELLO;
    if (conn->outbound && conn_send_hello(conn, &err) != NXL_OK)
        conn_fail(conn, LINK_FAIL_MALFORMED, "%s", err.text);
}

static void conn_on_connected(struct conn *conn)
{
    int os = 0;
    socklen_t size = sizeof(os);

    if (getsockopt(conn->fd, SOL_SOCKET, SO_ERROR, &os, &size) != 0)
        os = errno;
    if (os != 0) {
        conn_fail(conn, LINK_FAIL_CONNECT, "connect to %s: %s", conn->peer, strerror(os));
        return;
    }
    conn_established(conn);
}

static void conn_on_tls(struct conn *conn)
{
    struct nxl_err err;
    int done = conn_tls_handshake(conn);

    if (done < 0) {
        conn_fail(conn, LINK_FAIL_TLS, "%s", conn->why);
        return;
    }
    if (done == 0) {
        conn_want(conn);
        return;
    }
    if (nxl_trust_peer(conn->links->trust, conn->ssl, conn->cert_node, sizeof(conn->cert_node),
                       &err) != NXL_OK) {
        conn_fail(conn, LINK_FAIL_NODE, "%s", err.text);
        return;
    }
    conn->state = CONN_HELLO;
    if (conn->outbound && conn_send_hello(conn, &err) != NXL_OK)
        conn_fail(conn, LINK_FAIL_MALFORMED, "%s", err.text);
}

static void conn_on_event(void *arg, int fd, unsigned events)
{
    struct conn *conn = arg;

    (void)fd;
    if (conn->dead)
        return;
    if (events & NXL_WATCH_ERROR) { /* the watch has stopped: the read below must find the end */
        conn->paused = 0;
        events |= NXL_WATCH_READ;
    }
    if (conn->state == CONN_CONNECTING)
        conn_on_connected(conn);
    if (conn->dead)
        return;
    if (conn->head_size < sizeof(conn->head) && (events & NXL_WATCH_READ) &&
        conn_sniff(conn) <= 0) {
        if (!conn->dead && (events & NXL_WATCH_ERROR))
            conn_fail(conn, LINK_FAIL_CONNECT, "the socket reports an error");
        return;
    }
    if (conn->state == CONN_TLS)
        conn_on_tls(conn);
    if (conn->dead || conn->state == CONN_TLS)
        return;
    if ((events & NXL_WATCH_READ) || conn->read_wants_write || conn->ssl != NULL)
        conn_read(conn);
    if (conn->dead)
        return;
    if (events & NXL_WATCH_ERROR) {
        conn_fail(conn, LINK_FAIL_CONNECT, "the socket reports an error");
        return;
    }
    conn_flush(conn);
    if (conn->state == CONN_UP)
        notices_pump(conn->link);
}

enum nxl_code conn_watch(struct conn *conn, unsigned events, struct nxl_err *err)
{
    enum nxl_code code =
        nxl_watch_open(conn->links->loop, conn->fd, events, conn_on_event, conn, &conn->watch, err);

    conn->events = events;
    if (code == NXL_OK && !conn->outbound)
        conn_established(conn);
    return code;
}
