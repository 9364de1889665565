/* session.c - the life of one client: accepted, served frame by frame, ended for one reason.
 * Loop thread. */
#include "front/session.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define FRONT_LINES 200u /* log lines a second about ends: clients may come and go at will */

static const char *const end_words[] = {
    [FRONT_END_EXITED] = "exited", [FRONT_END_CLOSED] = "closed", [FRONT_END_VIOLATED] = "violated",
    [FRONT_END_SLOW] = "slow",     [FRONT_END_FAILED] = "failed", [FRONT_END_LEAVING] = "leaving",
};

/* ---- the end ----------------------------------------------------------------------------- */

void front_session_doom(struct front_session *session, enum front_end end, enum nxl_code code,
                        const char *fmt, ...)
{
    va_list args;

    if (session->doomed)
        return;
    session->doomed = 1;
    session->end = end;
    session->end_code = code;
    session->doomed_ns = nxl_now_ns();
    va_start(args, fmt);
    (void)vsnprintf(session->reason, sizeof(session->reason), fmt, args);
    va_end(args);
    nxl_timer_start(session->front->reaper, 0, 0);
}

void front_session_settle(struct front_session *session)
{
    if (session->doomed)
        front_session_close(session);
}

static void session_unlink(struct front_session *session)
{
    struct nxl_front *front = session->front;

    front_session_park(session);
    if (session->prev)
        session->prev->next = session->next;
    else
        front->sessions = session->next;
    if (session->next)
        session->next->prev = session->prev;
    front->connected--;
}

static void session_count_end(const struct front_session *session)
{
    NXL_CLEANUP(nxl_freep) char *labels = nxl_format("reason=\"%s\"", end_words[session->end]);

    nxl_metric_add(nxl_metric_open(session->front->options.metrics, NXL_METRIC_COUNTER,
                                   "nixlet_sessions_ended_total",
                                   "Client sessions that ended, by reason", labels),
                   1);
}

static void session_free(struct front_session *session)
{
    front_calls_drop(session);
    front_notices_drop(session);
    front_replies_drop(session);
    nxl_closep(&session->identity.pidfd);
    nxl_closep(&session->fd);
    free(session);
}

void front_session_close(struct front_session *session)
{
    struct nxl_front *front = session->front;
    int expected = session->end == FRONT_END_EXITED || session->end == FRONT_END_CLOSED ||
                   session->end == FRONT_END_LEAVING;

    NXL_ASSERT(session->doomed);
    session_unlink(session);
    nxl_watch_close(session->pid_watch);
    nxl_watch_close(session->bell_watch);
    nxl_watch_close(session->socket_watch);
    session->pid_watch = session->bell_watch = session->socket_watch = NULL;
    /* Fences first; everything after this line may take its time. */
    if (session->xfer) {
        nxl_xfer_session_close(NXL_TAKE(session->xfer), session->reason, session->doomed_ns);
        front->helloed--;
        nxl_metric_set(front->metrics.sessions, front->helloed);
    }
    if (session->end != FRONT_END_EXITED && session->end != FRONT_END_CLOSED)
        front_goaway(session, session->end_code, session->reason);
    front_hello_undo(session);
    session_count_end(session);
    if (nxl_log_gate_open(&front->gate, FRONT_LINES))
        NXL_LOG(expected ? NXL_LOG_INFO : NXL_LOG_WARN, "front",
                "event=session-end session=%u pid=%d program=%s end=%s reason=%s", session->number,
                session->identity.pid, nxl_quote(session->program), end_words[session->end],
                nxl_quote(session->reason));
    session_free(session);
}

/* ---- awake or parked --------------------------------------------------------------------- */

void front_session_wake_up(struct front_session *session)
{
    struct nxl_front *front = session->front;

    if (session->awake)
        return;
    session->awake = 1;
    session->prev_awake = NULL;
    session->next_awake = front->awake;
    if (front->awake)
        front->awake->prev_awake = session;
    front->awake = session;
}

void front_session_park(struct front_session *session)
{
    if (!session->awake)
        return;
    session->awake = 0;
    if (session->prev_awake)
        session->prev_awake->next_awake = session->next_awake;
    else
        session->front->awake = session->next_awake;
    if (session->next_awake)
        session->next_awake->prev_awake = session->prev_awake;
}

/* ---- the socket -------------------------------------------------------------------------- */

struct packet {
    size_t size;
    int fds[NXL_FRAME_FDS_MAX];
    uint32_t fd_count;
};

static void packet_fini(struct packet *packet)
{
    for (uint32_t i = 0; i < packet->fd_count; i++)
        (void)close(packet->fds[i]);
    packet->fd_count = 0;
}

/* All descriptors that came are ours from here on, whatever is wrong with the rest. */
static void packet_take_fds(struct packet *packet, struct msghdr *msg)
{
    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        size_t count;

        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
            continue;
        count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
            if (packet->fd_count < NXL_FRAME_FDS_MAX)
                packet->fds[packet->fd_count++] = fd;
            else
                (void)close(fd); /* the control buffer has no room for so many */
        }
    }
}

/* 1: the next frame may be read. Looked at before it is taken: whatever was in the ring when a
 * frame is there was submitted before it, and that may be more than one turn's work. */
static int session_caught_up(struct front_session *session, uint64_t until_ns)
{
    char byte;
    ssize_t seen;

    if (!session->xfer)
        return 1;
    seen = recv(session->fd, &byte, sizeof(byte), MSG_PEEK | MSG_DONTWAIT);
    if (seen < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    return seen <= 0 || front_ring_catch_up(session, until_ns); /* the end needs no order */
}

/* 1: a frame was served. 0: nothing more now, or the session is doomed. */
static int session_read_frame(struct front_session *session, uint64_t until_ns)
{
    union {
        char bytes[CMSG_SPACE(NXL_FRAME_FDS_MAX * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {session->front->packet, NXL_FRAME_MAX};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control)};
    NXL_CLEANUP(packet_fini) struct packet packet = {0};
    ssize_t got;

    if (!session_caught_up(session, until_ns) || session->doomed)
        return 0;
    do
        got = recvmsg(session->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN)
        return 0;
    if (got < 0) {
        front_session_doom(session, FRONT_END_CLOSED, NXL_OK, "the client's socket failed: %s",
                           strerror(errno));
        return 0;
    }
    packet_take_fds(&packet, &msg);
    if (got == 0) {
        front_ring_last_words(session);
        front_session_doom(session, FRONT_END_CLOSED, NXL_OK, "the client closed its socket");
        return 0;
    }
    if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        front_session_doom(session, FRONT_END_VIOLATED, NXL_LIMIT,
                           msg.msg_flags & MSG_TRUNC
                               ? "a frame is longer than %u bytes"
                               : "descriptors of a frame were cut off: more than %u, or the agent "
                                 "is out of descriptors",
                           msg.msg_flags & MSG_TRUNC ? NXL_FRAME_MAX : NXL_FRAME_FDS_MAX);
        return 0;
    }
    front_frame_take(session, (struct nxl_view){session->front->packet, (size_t)got}, packet.fds,
                     packet.fd_count);
    return !session->doomed;
}

static void session_on_socket(void *arg, int fd, unsigned events)
{
    struct front_session *session = arg;
    uint64_t until_ns = nxl_now_ns() + FRONT_TURN_NS;

    (void)fd;
    if (events & NXL_WATCH_WRITE)
        front_replies_flush(session);
    /* Who does not read answers is not heard: the queue of answers cannot be grown by asking. */
    for (unsigned left = session->front->limits.frames_per_turn;
         left > 0 && !session->doomed && !session->replies.head; left--) {
        if (!session_read_frame(session, until_ns) || nxl_now_ns() >= until_ns)
            break;
    }
    if (events & NXL_WATCH_ERROR)
        front_session_doom(session, FRONT_END_CLOSED, NXL_OK, "the client's socket failed");
    front_session_settle(session);
}

/* A forked child may hold the socket open for ever: only this tells that the client itself is dead.
 */
static void session_on_exit(void *arg, int fd, unsigned events)
{
    struct front_session *session = arg;

    (void)fd;
    (void)events;
    front_ring_last_words(session);
    front_session_doom(session, FRONT_END_EXITED, NXL_OK, "process exited");
    front_session_settle(session);
}

/* The same, told by the kernel before it takes the process's memory down. */
static void session_on_death(void *arg)
{
    session_on_exit(arg, -1, 0);
}

void front_session_witness(struct front_session *session)
{
    _Atomic uint32_t *words;
    uint32_t word;

    if (session->watched != NULL || session->map == NULL)
        return;
    words = (_Atomic uint32_t *)(void *)session->ring.header->witness;
    word = atomic_load_explicit(&session->ring.header->witness_word, memory_order_acquire);
    if (word != 0 && word <= NXL_RING_WITNESS_SIZE / sizeof(*words))
        session->watched = front_witness_watch(session->front->witness, &words[word - 1],
                                               session_on_death, session);
}

/* ---- the beginning ----------------------------------------------------------------------- */

static enum nxl_code session_watch(struct front_session *session, struct nxl_err *err)
{
    struct nxl_loop *loop = session->front->options.loop;
    enum nxl_code code;

    code = nxl_watch_open(loop, session->fd, NXL_WATCH_READ, session_on_socket, session,
                          &session->socket_watch, err);
    if (code != NXL_OK || session->identity.pidfd < 0)
        return code;
    return nxl_watch_open(loop, session->identity.pidfd, NXL_WATCH_READ, session_on_exit, session,
                          &session->pid_watch, err);
}

static void session_link(struct front_session *session)
{
    struct nxl_front *front = session->front;

    session->next = front->sessions;
    if (front->sessions)
        front->sessions->prev = session;
    front->sessions = session;
    front->connected++;
    if (!front->greeting) {
        front->greeting = 1;
        nxl_timer_start(front->greeter, front->limits.hello_timeout_ns, 0);
    }
}

void front_session_open(struct nxl_front *front, int fd)
{
    struct front_session *session = nxl_new0(sizeof(*session));
    struct nxl_err err = {0};
    enum nxl_code code;

    session->front = front;
    session->fd = fd;
    session->identity.pidfd = session->doorbell = session->wake = -1;
    session->replies.tail = &session->replies.head;
    session->notices.tail = &session->notices.head;
    session->opened_ns = nxl_now_ns();
    session_link(session);
    if (front->connected > front->limits.clients_max) {
        front_session_doom(session, FRONT_END_FAILED, NXL_LIMIT,
                           "socket.clients_max is reached: %u clients are connected",
                           front->limits.clients_max);
        front_session_close(session);
        return;
    }
    if (fd >= front->fd_limit) { /* the rest is for those who are here already */
        front_session_doom(session, FRONT_END_FAILED, NXL_LIMIT,
                           "this agent has %d files open, three quarters of what it may: raise its "
                           "limit of open files (ulimit -n)",
                           fd);
        front_session_close(session);
        return;
    }
    code = front_identity_of(fd, &session->identity, &err);
    if (code == NXL_OK)
        code = session_watch(session, &err);
    if (code != NXL_OK)
        front_session_doom(session,
                           code == NXL_REMOTE_DISCONNECT ? FRONT_END_EXITED : FRONT_END_FAILED,
                           code, "%s", err.text);
    else if (session->identity.pidfd < 0)
        nxl_debug("front", "event=no-pidfd pid=%d effect=\"death is seen by the socket only\"",
                  session->identity.pid);
    front_session_settle(session);
}
