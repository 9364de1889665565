/* channel.c - frames over the SEQPACKET socket. Any thread: each waits for the answer with its own
 * number, and whichever finds nobody reading reads for all. */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"

#define SPARES_MAX 4u

uint64_t nxl_client_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
}

/* Milliseconds left, rounded up; for poll(). */
static int left_ms(uint64_t deadline_ns)
{
    uint64_t now = nxl_client_now();
    uint64_t left;

    if (now >= deadline_ns)
        return 0;
    left = (deadline_ns - now + 999999) / 1000000;
    return left > 3600000 ? 3600000 : (int)left;
}

/* NXL_OK: fd is ready for events or has ended. */
static enum nxl_code fd_wait(int fd, short events, uint64_t deadline_ns, struct nxl_err *err)
{
    struct pollfd item = {.fd = fd, .events = events};

    for (;;) {
        int ready = poll(&item, 1, left_ms(deadline_ns));

        if (ready > 0)
            return NXL_OK;
        if (ready < 0 && errno != EINTR)
            return nxl_err_set(err, NXL_IO, errno, "wait on the agent's socket");
        if (nxl_client_now() >= deadline_ns)
            return nxl_err_set(err, NXL_TIMEOUT, 0, "the agent did not answer in time");
    }
}

/* ---- packets ---------------------------------------------------------------------------- */

enum nxl_code nxl_packet_send(int fd, const void *data, size_t size, const int *fds,
                              uint32_t fd_count, uint64_t deadline_ns, struct nxl_err *err)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(NXL_FRAME_FDS_MAX * sizeof(int))];
    struct iovec iov = {.iov_base = (void *)(uintptr_t)data, .iov_len = size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    if (fd_count > 0) {
        struct cmsghdr *cmsg;

        memset(control, 0, sizeof(control));
        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, fd_count * sizeof(int));
    }
    for (;;) {
        enum nxl_code code;

        if (sendmsg(fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return NXL_OK;
        if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN)
            return nxl_err_set(err, NXL_NO_AGENT, 0, "the agent closed the connection");
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return nxl_err_set(err, NXL_IO, errno, "send to the agent");
        code = fd_wait(fd, POLLOUT, deadline_ns, err);
        if (code != NXL_OK)
            return code;
    }
}

/* Takes the descriptors out of a message; those without room are closed. */
static uint32_t take_fds(struct msghdr *msg, int *ret_fds, uint32_t fd_room)
{
    uint32_t taken = 0;

    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        size_t count;

        if (cmsg->cmsg_level != SOL_SOCKET || cmsg->cmsg_type != SCM_RIGHTS)
            continue;
        count = (cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(fd));
            if (taken < fd_room)
                ret_fds[taken++] = fd;
            else
                close(fd);
        }
    }
    return taken;
}

enum nxl_code nxl_packet_receive(int fd, void *data, size_t size, size_t *ret_size, int *ret_fds,
                                 uint32_t fd_room, uint32_t *ret_fd_count, uint64_t deadline_ns,
                                 struct nxl_err *err)
{
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(NXL_FRAME_FDS_MAX * sizeof(int))];
    struct iovec iov = {.iov_base = data, .iov_len = size};
    uint32_t fds;
    int reset = 0;

    for (;;) {
        struct msghdr msg = {.msg_iov = &iov,
                             .msg_iovlen = 1,
                             .msg_control = control,
                             .msg_controllen = sizeof(control)};
        ssize_t got = recvmsg(fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
        enum nxl_code code;

        if (got >= 0) {
            fds = take_fds(&msg, ret_fds, fd_room);
            *ret_size = (size_t)got;
            if (ret_fd_count)
                *ret_fd_count = fds;
            return NXL_OK;
        }
        /* Told once if the agent left a frame of ours unread; why it left comes after that. */
        if (errno == ECONNRESET && !reset) {
            reset = 1;
            continue;
        }
        if (errno == ECONNRESET || errno == ENOTCONN) {
            *ret_size = 0;
            if (ret_fd_count)
                *ret_fd_count = 0;
            return NXL_OK;
        }
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN)
            return nxl_err_set(err, NXL_IO, errno, "receive from the agent");
        code = fd_wait(fd, POLLIN, deadline_ns, err);
        if (code != NXL_OK)
            return code;
    }
}

/* ---- calls ------------------------------------------------------------------------------ */

struct nxl_call *nxl_call_new(struct nxl_session *session, uint16_t type)
{
    struct nxl_call *call;

    pthread_mutex_lock(&session->channel.lock);
    call = session->channel.spare;
    if (call) {
        session->channel.spare = call->next;
        session->channel.spares--;
    }
    pthread_mutex_unlock(&session->channel.lock);
    if (!call)
        call = malloc(sizeof(*call));
    if (!call)
        return NULL;
    memset(&call->frame, 0, offsetof(struct nxl_frame, blob));
    call->frame.type = type;
    call->next = NULL;
    return call;
}

void nxl_call_free(struct nxl_session *session, struct nxl_call *call)
{
    if (!call)
        return;
    pthread_mutex_lock(&session->channel.lock);
    if (session->channel.spares < SPARES_MAX) {
        call->next = session->channel.spare;
        session->channel.spare = call;
        session->channel.spares++;
        call = NULL;
    }
    pthread_mutex_unlock(&session->channel.lock);
    free(call);
}

static struct nxl_call **waiting_at(struct nxl_session *session, uint32_t seq)
{
    struct nxl_call **at = &session->channel.waiting;

    while (*at && (*at)->seq != seq)
        at = &(*at)->next;
    return at;
}

/* A packet came: gives it to whoever waits for it. channel.lock held. */
static void packet_deliver(struct nxl_session *session, size_t size)
{
    struct nxl_view packet = {session->channel.packet, size};
    struct nxl_frame_head head;
    struct nxl_call **at, *call;

    if (size < sizeof(head))
        return;
    memcpy(&head, session->channel.packet, sizeof(head));
    if (head.type == NXL_FRAME_GOAWAY) {
        struct nxl_call *scratch = malloc(sizeof(*scratch));

        if (scratch && nxl_frame_decode(packet, &scratch->frame, NULL) == NXL_OK)
            snprintf(session->channel.reason, sizeof(session->channel.reason), "%.150s",
                     scratch->frame.text);
        free(scratch);
        return;
    }
    at = waiting_at(session, head.seq);
    call = *at;
    if (!call)
        return; /* an answer that nobody waits for any more */
    *at = call->next;
    call->done = 1;
    call->code = nxl_frame_decode(packet, &call->frame, NULL);
    if (call->code == NXL_OK &&
        (!call->frame.reply || (head.type & ~NXL_FRAME_REPLY) != call->frame.type))
        call->code = NXL_MISMATCH;
}

/* Everybody who waits is told that no answer comes. channel.lock held. */
static void calls_end(struct nxl_session *session)
{
    while (session->channel.waiting) {
        struct nxl_call *call = session->channel.waiting;

        session->channel.waiting = call->next;
        call->done = 1;
        call->code = NXL_NO_AGENT;
    }
}

/* Reads one packet for everybody. channel.lock held, given up while reading. *ret_end 1: the socket
 * ended. */
static void read_turn(struct nxl_session *session, uint64_t deadline_ns, int *ret_end)
{
    enum nxl_code code;
    size_t size = 0;

    session->channel.reading = 1;
    pthread_mutex_unlock(&session->channel.lock);
    code = nxl_packet_receive(session->fd, session->channel.packet, NXL_FRAME_MAX, &size, NULL, 0,
                              NULL, deadline_ns, NULL);
    pthread_mutex_lock(&session->channel.lock);
    session->channel.reading = 0;
    if (code == NXL_OK && size > 0)
        packet_deliver(session, size);
    else if (code != NXL_TIMEOUT) {
        *ret_end = 1;
        calls_end(session);
    }
    pthread_cond_broadcast(&session->channel.answered);
}

static void cond_wait_until(pthread_cond_t *cond, pthread_mutex_t *lock, uint64_t deadline_ns)
{
    struct timespec until = {.tv_sec = (time_t)(deadline_ns / 1000000000ull),
                             .tv_nsec = (long)(deadline_ns % 1000000000ull)};

    pthread_cond_timedwait(cond, lock, &until);
}

/* Waits for the answer; sets call->code. channel.lock held. */
static void call_wait(struct nxl_session *session, struct nxl_call *call, uint64_t deadline_ns,
                      int *ret_end)
{
    while (!call->done) {
        if (nxl_client_now() >= deadline_ns) {
            struct nxl_call **at = waiting_at(session, call->seq);

            if (*at == call)
                *at = call->next;
            call->code = NXL_TIMEOUT;
            return;
        }
        if (session->channel.reading)
            cond_wait_until(&session->channel.answered, &session->channel.lock, deadline_ns);
        else
            read_turn(session, deadline_ns, ret_end);
    }
}

static enum nxl_code call_result(struct nxl_session *session, struct nxl_call *call, uint16_t type,
                                 uint64_t timeout_ms, struct nxl_err *err)
{
    const char *name = nxl_frame_type_name(type);
    enum nxl_code code;

    if (call->code == NXL_NO_AGENT)
        return nxl_err_set(err, NXL_NO_AGENT, 0, "the agent went away before it answered %s%s%s",
                           name, session->channel.reason[0] ? ": " : "", session->channel.reason);
    if (call->code == NXL_TIMEOUT)
        return nxl_err_set(err, NXL_TIMEOUT, 0, "the agent did not answer %s within %llu ms", name,
                           (unsigned long long)timeout_ms);
    if (call->code != NXL_OK || call->frame.type != type)
        return nxl_err_set(err, NXL_MISMATCH, 0, "the agent's answer to %s cannot be read", name);
    if (call->frame.code >= 0)
        return NXL_OK;
    code = (enum nxl_code)call->frame.code;
    nxl_err_set(err, code, 0, "%s", call->frame.text[0] ? call->frame.text : nxl_code_text(code));
    if (err)
        err->os = call->frame.os;
    return code;
}

enum nxl_code nxl_call_run(struct nxl_session *session, struct nxl_call *call, const int *fds,
                           uint32_t fd_count, uint64_t timeout_ms, struct nxl_err *err)
{
    uint64_t deadline_ns = nxl_client_now() + timeout_ms * 1000000ull;
    uint16_t type = call->frame.type;
    enum nxl_code code;
    size_t size;
    int end = 0;

    pthread_mutex_lock(&session->channel.lock);
    call->frame.reply = 0;
    call->frame.code = 0;
    call->frame.seq = call->seq = ++session->channel.seq;
    call->done = 0;
    code = nxl_frame_encode(&call->frame, call->packet, sizeof(call->packet), &size, err);
    if (code == NXL_OK) {
        call->next = session->channel.waiting;
        session->channel.waiting = call;
    }
    pthread_mutex_unlock(&session->channel.lock);
    if (code != NXL_OK)
        return code;
    code = nxl_packet_send(session->fd, call->packet, size, fds, fd_count, deadline_ns, err);
    pthread_mutex_lock(&session->channel.lock);
    if (code == NXL_OK) {
        call_wait(session, call, deadline_ns, &end);
        code = call_result(session, call, type, timeout_ms, err);
    } else {
        struct nxl_call **at = waiting_at(session, call->seq);

        if (*at == call)
            *at = call->next;
        end = code == NXL_NO_AGENT;
    }
    pthread_mutex_unlock(&session->channel.lock);
    if (end)
        nxl_session_lost(session);
    return code;
}
