/* link_frame.c - frames of a connection: cut off, checked, handed on. Called by link_conn.c. Loop
 * thread. */
#include "cluster/link_internal.h"

#include "base/mem.h"

/* A frame of an established connection. Views point into conn->in. */
static void conn_on_frame(struct conn *conn, struct nxl_view body)
{
    struct nxl_links *links = conn->links;
    struct nxl_link *link = conn->link;
    struct nxl_message message;
    struct nxl_err err;

    if (nxl_message_decode(links->decoder, body, &message, &err) != NXL_OK) {
        conn_fail(conn, LINK_FAIL_MALFORMED, "%s", err.text);
        return;
    }
    switch (message.type) {
    case NXL_MESSAGE_HELLO:
        conn_fail(conn, LINK_FAIL_MALFORMED, "message HELLO came twice");
        return;
    case NXL_MESSAGE_PING:
        message.type = NXL_MESSAGE_PONG;
        if (conn_backlog(conn) < LINK_OUT_MAX)
            (void)conn_put(conn, &message, &err); /* two numbers always fit a frame */
        return;
    case NXL_MESSAGE_PONG:
        link_pong(link, &message);
        return;
    case NXL_MESSAGE_BYE:
        if (message.code == NXL_OK) {
            link_end(link, 1, NULL, message.text);
        } else {
            char why[NXL_ERR_TEXT_SIZE];

            (void)nxl_copy_text(why, sizeof(why), message.text);
            conn_close(conn);
            link_lost(link, why, message.code == NXL_BUSY);
        }
        return;
    case NXL_MESSAGE_NOTICE:
        notices_on_notice(link, &message, body);
        return;
    case NXL_MESSAGE_NOTICE_ACK:
        notices_on_ack(link, &message);
        return;
    default:
        links->ops->on_message(links->arg, link, &message);
        return;
    }
}

/* Before the hello only a hello or a refusal may come. */
static void conn_on_first_frame(struct conn *conn, struct nxl_view body)
{
    struct nxl_message message;
    struct nxl_err err;
    struct nxl_reader reader = nxl_reader_of(body.data, body.size);

    if (nxl_reader_u16(&reader) == NXL_MESSAGE_HELLO) {
        conn_on_hello(conn, body);
        return;
    }
    if (nxl_message_decode(conn->links->decoder, body, &message, &err) != NXL_OK)
        conn_fail(conn, LINK_FAIL_MALFORMED, "%s", err.text);
    else if (message.type == NXL_MESSAGE_BYE)
        conn_fail(conn, LINK_FAIL_REFUSED, "refused by the far side: %s", message.text);
    else
        conn_fail(conn, LINK_FAIL_MALFORMED, "message type %u came before HELLO", message.type);
}

/* Cuts one frame off; 0 if it is not whole yet or the connection ended. */
static int conn_next_frame(struct conn *conn, struct nxl_view *ret_body)
{
    size_t max = conn->state == CONN_UP ? conn->links->frame_max : LINK_HELLO_MAX;
    struct nxl_reader reader =
        nxl_reader_of(conn->in.data + conn->in_pos, conn->in.size - conn->in_pos);
    uint32_t size = nxl_reader_u32(&reader);

    if (reader.bad)
        return 0;
    if (size < sizeof(uint16_t) || size > max) {
        conn_fail(conn, LINK_FAIL_MALFORMED, "frame size %u is not between 2 and %zu", size, max);
        return 0;
    }
    if (nxl_reader_left(&reader) < size)
        return 0;
    *ret_body = (struct nxl_view){conn->in.data + conn->in_pos + sizeof(uint32_t), size};
    conn->in_pos += sizeof(uint32_t) + size;
    return 1;
}

void conn_process(struct conn *conn)
{
    struct nxl_view body;
    int was_corked = conn->corked;

    conn->corked = 1;
    while (!conn->dead && !conn->paused && conn_next_frame(conn, &body)) {
        nxl_metric_add(conn->links->metrics.frames_in, 1);
        if (conn->state == CONN_UP)
            conn_on_frame(conn, body);
        else
            conn_on_first_frame(conn, body);
    }
    if (conn->dead)
        return;
    conn->corked = was_corked;
    if (conn->in_pos == conn->in.size) {
        conn->in_pos = 0;
        nxl_bytes_clear(&conn->in);
        if (conn->in.room > 4 * LINK_CHUNK)
            nxl_bytes_fini(&conn->in);
    } else if (conn->in_pos > 0) {
        nxl_bytes_drop(&conn->in, conn->in_pos);
        conn->in_pos = 0;
    }
    if (conn->state == CONN_UP)
        notices_flush_acks(conn->link);
    if (!was_corked)
        conn_flush(conn);
}

void conn_unpause(struct conn *conn)
{
    conn->paused = 0;
    conn->again = 1; /* frames may lie in our own buffer */
    conn_want(conn);
    links_later(conn->links);
}

void conn_read(struct conn *conn)
{
    struct nxl_links *links = conn->links;
    size_t total = 0;

    conn->again = 0;
    conn->read_wants_write = 0;
    conn_process(conn); /* what an earlier pause left */
    while (!conn->dead && !conn->paused) {
        long size;

        if (total >= LINK_READ_QUOTA)
            break; /* one TLS record fits a chunk, so the rest lies in the socket: the loop calls
                      again */
        size = conn->ssl != NULL ? conn_tls_read(conn, links->chunk, sizeof(links->chunk))
                                 : conn_recv(conn, links->chunk, sizeof(links->chunk));
        if (size == 0)
            break;
        if (size < 0) {
            conn_fail(conn,
                      conn->ssl != NULL && conn->state != CONN_UP ? LINK_FAIL_TLS
                                                                  : LINK_FAIL_REFUSED,
                      "%s", conn->why);
            return;
        }
        total += (size_t)size;
        nxl_metric_add(links->metrics.bytes_in, (uint64_t)size);
        nxl_bytes_put(&conn->in, links->chunk, (size_t)size);
        if (conn->state == CONN_UP)
            link_heard(conn->link);
        conn_process(conn);
    }
    if (conn->dead)
        return;
    conn_want(conn);
    if (conn->state == CONN_UP)
        notices_pump(conn->link); /* what found no room while the batch was read */
}
