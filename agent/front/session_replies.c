/* session_replies.c - answers to one client: encoded, sent, or queued within a bound while its
 * socket is full. Loop thread. */
#include "front/session.h"
#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

struct nxl_frame *front_reply(struct front_session *session, uint16_t type, uint32_t seq)
{
    struct nxl_frame *out = session->front->out;

    memset(out, 0, offsetof(struct nxl_frame, blob));
    out->type = type;
    out->seq = seq;
    out->reply = 1;
    return out;
}

static void reply_queue(struct front_session *session, const void *data, size_t size)
{
    struct front_reply *reply;
    size_t cost = sizeof(*reply) + size;

    if (session->replies.bytes + cost > session->front->limits.reply_queue_max) {
        front_session_doom(session, FRONT_END_SLOW, NXL_LIMIT,
                           "the client does not read its answers: %zu bytes are queued "
                           "(socket.reply_queue_max)",
                           session->replies.bytes);
        return;
    }
    reply = nxl_new0(cost);
    reply->size = size;
    memcpy(reply->data, data, size);
    *session->replies.tail = reply;
    session->replies.tail = &reply->next;
    session->replies.bytes += cost;
    nxl_watch_change(session->socket_watch, NXL_WATCH_WRITE);
}

/* NXL_OK, NXL_AGAIN, or the session is doomed. */
static enum nxl_code packet_send(struct front_session *session, const void *data, size_t size,
                                 const int *fds, uint32_t fd_count)
{
    union {
        char bytes[CMSG_SPACE(3 * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct iovec iov = {(void *)(uintptr_t)data, size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t sent;

    if (fd_count > 0) {
        struct cmsghdr *cmsg;

        NXL_ASSERT(fd_count <= 3);
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, fd_count * sizeof(int));
    }
    do
        sent = sendmsg(session->fd, &msg, MSG_DONTWAIT | MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
    if (sent >= 0)
        return NXL_OK;
    if (errno == EAGAIN || errno == ENOBUFS)
        return NXL_AGAIN;
    /* EPIPE, ECONNRESET: it is gone. ETOOMANYREFS: it lets our descriptors pile up unread. */
    front_session_doom(session, FRONT_END_CLOSED, NXL_OK, "the client's socket failed: %s",
                       strerror(errno));
    return NXL_REMOTE_DISCONNECT;
}

static size_t reply_encode(struct front_session *session, unsigned char *buf)
{
    const struct nxl_frame *out = session->front->out;
    struct nxl_err err = {0};
    size_t size = 0;

    if (nxl_frame_encode(out, buf, NXL_FRAME_MAX, &size, &err) == NXL_OK)
        return size;
    /* Only a text that our own engine made can be at fault. */
    nxl_error("front", "event=reply-not-encoded session=%u error=%s", session->number,
              nxl_quote(err.text));
    front_session_doom(session, FRONT_END_FAILED, NXL_UNKNOWN, "an answer could not be encoded");
    return 0;
}

void front_reply_send_fds(struct front_session *session, const int *fds, uint32_t fd_count)
{
    unsigned char buf[NXL_FRAME_MAX];
    size_t size;

    if (session->doomed)
        return;
    size = reply_encode(session, buf);
    if (size == 0)
        return;
    if (!session->replies.head) {
        enum nxl_code code = packet_send(session, buf, size, fds, fd_count);

        if (code != NXL_AGAIN)
            return;
    }
    if (fd_count > 0)
        front_session_doom(session, FRONT_END_SLOW, NXL_LIMIT,
                           "the client does not read its answers: its WELCOME has no room");
    else
        reply_queue(session, buf, size);
}

void front_reply_send(struct front_session *session)
{
    front_reply_send_fds(session, NULL, 0);
}

void front_refusal_count(struct front_session *session, enum nxl_code code)
{
    NXL_CLEANUP(nxl_freep) char *labels = nxl_format("code=\"%s\"", nxl_code_word(code));

    nxl_metric_add(nxl_metric_open(session->front->options.metrics, NXL_METRIC_COUNTER,
                                   "nixlet_frame_refused_total",
                                   "Frames and posts of clients that were refused, by code",
                                   labels),
                   1);
}

void front_refuse(struct front_session *session, uint16_t type, uint32_t seq, enum nxl_code code,
                  const struct nxl_err *err)
{
    struct nxl_frame *out = front_reply(session, type, seq);

    out->code = code;
    out->os = err->os;
    (void)nxl_copy_text(out->text, sizeof(out->text), /* same size: never cut */
                        err->text[0] ? err->text : nxl_code_text(code));
    front_refusal_count(session, code);
    nxl_debug("front", "event=frame-refused session=%u pid=%d type=%s seq=%u code=%s error=%s",
              session->number, session->identity.pid, nxl_frame_type_name(type), seq,
              nxl_code_word(code), nxl_quote(out->text));
    front_reply_send(session);
}

void front_replies_flush(struct front_session *session)
{
    while (session->replies.head && !session->doomed) {
        struct front_reply *reply = session->replies.head;

        if (packet_send(session, reply->data, reply->size, NULL, 0) != NXL_OK)
            return;
        session->replies.head = reply->next;
        session->replies.bytes -= sizeof(*reply) + reply->size;
        free(reply);
    }
    if (!session->replies.head) {
        session->replies.tail = &session->replies.head;
        if (!session->doomed)
            nxl_watch_change(session->socket_watch, NXL_WATCH_READ);
    }
}

/* Best effort: the session ends whether it is read or not. */
void front_goaway(struct front_session *session, enum nxl_code code, const char *text)
{
    struct nxl_frame *out = front_reply(session, NXL_FRAME_GOAWAY, 0);
    unsigned char buf[NXL_FRAME_MAX];
    size_t size;

    out->reply = 0;
    out->code = code;
    (void)nxl_copy_text(out->text, sizeof(out->text), text);
    size = reply_encode(session, buf);
    for (struct front_reply *reply = session->replies.head; reply; reply = reply->next)
        if (packet_send(session, reply->data, reply->size, NULL, 0) != NXL_OK)
            return;
    if (size > 0)
        (void)packet_send(session, buf, size, NULL, 0);
}

void front_replies_drop(struct front_session *session)
{
    while (session->replies.head) {
        struct front_reply *reply = session->replies.head;

        session->replies.head = reply->next;
        free(reply);
    }
    session->replies.tail = &session->replies.head;
    session->replies.bytes = 0;
}
