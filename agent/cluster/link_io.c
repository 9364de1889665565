/* link_io.c - bytes of a connection: what waits to be written, the raw socket, and TLS told from
 * plaintext. Called by the other connection rooms. Loop thread. */
#include "cluster/link_internal.h"

#include "base/loop.h"
#include "base/mem.h"

#include <errno.h>
#include <stdio.h>

/* ---- out ---------------------------------------------------------------------------------- */

static void conn_break(struct conn *conn, const char *why)
{
    if (conn->broken || conn->dead)
        return;
    conn->broken = 1;
    if (why != conn->why)
        (void)nxl_copy_text(conn->why, sizeof(conn->why), why);
    links_later(conn->links);
}

size_t conn_backlog(const struct conn *conn)
{
    return conn->out.size - conn->out_pos;
}

void conn_want(struct conn *conn)
{
    unsigned events = conn->paused ? 0 : NXL_WATCH_READ;

    if (conn_backlog(conn) > 0 || conn->read_wants_write)
        events |= NXL_WATCH_WRITE;
    if (conn->watch == NULL || conn->dead || events == conn->events)
        return;
    conn->events = events;
    nxl_watch_change(conn->watch, events);
}

void conn_flush(struct conn *conn)
{
    while (!conn->dead && !conn->broken && conn_backlog(conn) > 0) {
        long size = conn->ssl != NULL
                        ? conn_tls_write(conn, conn->out.data + conn->out_pos, conn_backlog(conn))
                        : conn_send(conn, conn->out.data + conn->out_pos, conn_backlog(conn));

        if (size < 0) {
            conn_break(conn, conn->why);
            return;
        }
        if (size == 0)
            break;
        conn->out_pos += (size_t)size;
        nxl_metric_add(conn->links->metrics.bytes_out, (uint64_t)size);
    }
    if (conn_backlog(conn) == 0) {
        conn->out_pos = 0;
        nxl_bytes_clear(&conn->out);
        if (conn->out.room > LINK_OUT_PUMP)
            nxl_bytes_fini(&conn->out);
    } else if (conn->out_pos > LINK_OUT_PUMP) {
        nxl_bytes_drop(&conn->out, conn->out_pos);
        conn->out_pos = 0;
    }
    conn_want(conn);
}

enum nxl_code conn_put(struct conn *conn, const struct nxl_message *message, struct nxl_err *err)
{
    enum nxl_code code = nxl_message_encode(message, &conn->out, err);

    if (code != NXL_OK)
        return code;
    nxl_metric_add(conn->links->metrics.frames_out, 1);
    if (!conn->corked)
        conn_flush(conn);
    return NXL_OK;
}

void conn_put_frame(struct conn *conn, const void *frame, size_t size)
{
    nxl_bytes_put(&conn->out, frame, size);
    nxl_metric_add(conn->links->metrics.frames_out, 1);
}

long conn_send(struct conn *conn, const void *data, size_t size)
{
    ssize_t sent;

    do {
        sent = send(conn->fd, data, size, MSG_NOSIGNAL);
    } while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return (long)sent;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
        return 0;
    (void)snprintf(conn->why, sizeof(conn->why), "write: %s", strerror(errno));
    return -1;
}

/* ---- in ----------------------------------------------------------------------------------- */

long conn_recv(struct conn *conn, void *to, size_t room)
{
    ssize_t got;

    if (conn->head_used < conn->head_size && room > 0) {
        size_t size = conn->head_size - conn->head_used;

        if (size > room)
            size = room;
        memcpy(to, conn->head + conn->head_used, size);
        conn->head_used += (unsigned)size;
        return (long)size;
    }
    do {
        got = recv(conn->fd, to, room, 0);
    } while (got < 0 && errno == EINTR);
    if (got > 0)
        return (long)got;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
        return 0;
    (void)snprintf(conn->why, sizeof(conn->why), "%s",
                   got == 0 ? "the far side closed the connection" : strerror(errno));
    return -1;
}

int conn_sniff(struct conn *conn)
{
    static const struct nxl_message tls_only = {
        .type = NXL_MESSAGE_BYE,
        .code = NXL_NOT_ALLOWED,
        .text = "this agent speaks TLS only (its link.insecure is false)"};
    struct nxl_links *links = conn->links;
    int tls;

    while (conn->head_size < sizeof(conn->head)) {
        ssize_t got =
            recv(conn->fd, conn->head + conn->head_size, sizeof(conn->head) - conn->head_size, 0);

        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return 0;
        if (got <= 0) {
            conn_fail(conn, LINK_FAIL_REFUSED, "closed before the first frame%s%s",
                      got < 0 ? ": " : "", got < 0 ? strerror(errno) : "");
            return -1;
        }
        conn->head_size += (unsigned)got;
    }
    tls = conn->head[0] >= 0x14 && conn->head[0] <= 0x17 && conn->head[1] == 3 &&
          conn->head[2] >= 1 && conn->head[2] <= 4;
    if (tls == (links->trust != NULL))
        return 1;
    if (!tls && !conn->outbound) {
        struct nxl_err err;

        conn_tls_close(conn); /* nothing of TLS was sent yet: the refusal can be read over there */
        (void)conn_put(conn, &tls_only, &err); /* a courtesy */
    }
    conn_fail(conn, LINK_FAIL_PLAINTEXT,
              tls ? "the far side speaks TLS and this agent plaintext only: set link.insecure on "
                    "both or on neither"
                  : "the far side speaks plaintext and this agent TLS only: set link.insecure on "
                    "both or on neither");
    return -1;
}
