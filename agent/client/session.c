/* session.c - opens one connection with the agent and ends it. Opened under the client's work lock,
 * lost by whichever thread sees it first. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"

#define GLANCE_NS 10000000ull
#define GLANCE_EVERY 64u
#define RETIRED_BYTES 4096u
_Static_assert(sizeof(struct nxl_ring_header) <= RETIRED_BYTES, "the header is what stays");

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- opening ---------------------------------------------------------------------------- */

static enum nxl_code socket_connect(const char *path, uint64_t timeout_ms, int *ret,
                                    struct nxl_err *err)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct timeval limit = {.tv_sec = (time_t)(timeout_ms / 1000),
                            .tv_usec = (suseconds_t)(timeout_ms % 1000 * 1000)};
    int room = 1 << 20;
    enum nxl_code code;
    int fd;

    if (strlen(path) >= sizeof(addr.sun_path))
        return nxl_err_set(err, NXL_INVALID_PARAM, 0,
                           "socket path '%s' is longer than the %zu bytes a Unix socket allows",
                           path, sizeof(addr.sun_path) - 1);
    strcpy(addr.sun_path, path);
    fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return nxl_err_set(err, NXL_IO, errno, "create a socket for the agent");
    /* Bounds a connect to an agent whose queue is full; later calls never block in the kernel. */
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof(room));
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) == 0) {
        *ret = fd;
        return NXL_OK;
    }
    code = nxl_err_set(err, NXL_NO_AGENT, errno, "no nixlet agent at '%s'", path);
    close(fd);
    return code;
}

/* Sends HELLO, takes the answer and its three descriptors. */
static enum nxl_code hello_exchange(struct nxl_session *session, struct nxl_call *call, int fds[3],
                                    struct nxl_err *err)
{
    const struct nxl_client *client = session->client;
    uint64_t deadline_ns = nxl_client_now() + nxl_client_timeout(client) * 1000000ull;
    struct nxl_frame *frame = &call->frame;
    uint32_t fd_count = 0;
    enum nxl_code code;
    size_t size;

    frame->seq = ++session->channel.seq;
    frame->hello.magic = NXL_FRAME_MAGIC;
    frame->hello.version_min = NXL_FRAME_VERSION_MIN;
    frame->hello.version_max = NXL_FRAME_VERSION_MAX;
    frame->hello.slots = client->options.slots;
    frame->hello.arena_bytes = client->options.arena_bytes;
    frame->hello.notice_bytes = client->options.notice_bytes;
    strncpy(frame->hello.program, program_invocation_short_name, sizeof(frame->hello.program) - 1);
    code = nxl_frame_encode(frame, call->packet, sizeof(call->packet), &size, err);
    if (code == NXL_INVALID_PARAM) { /* a program name with odd bytes is no reason to fail */
        strcpy(frame->hello.program, "?");
        code = nxl_frame_encode(frame, call->packet, sizeof(call->packet), &size, err);
    }
    if (code != NXL_OK)
        return code;
    code = nxl_packet_send(session->fd, call->packet, size, NULL, 0, deadline_ns, err);
    if (code != NXL_OK && code != NXL_NO_AGENT) /* why it closed may lie in the socket */
        return code;
    code = nxl_packet_receive(session->fd, call->packet, sizeof(call->packet), &size, fds, 3,
                              &fd_count, deadline_ns, err);
    if (code != NXL_OK)
        return code;
    if (size == 0)
        return nxl_err_set(err, NXL_NO_AGENT, 0, "the agent closed the connection at hello");
    code = nxl_frame_decode((struct nxl_view){call->packet, size}, frame, err);
    if (code != NXL_OK)
        return code;
    if (frame->type == NXL_FRAME_GOAWAY)
        return nxl_err_set(err, NXL_NO_AGENT, 0, "the agent turned this client away: %s",
                           frame->text);
    if (frame->type != NXL_FRAME_HELLO || !frame->reply)
        return nxl_err_set(err, NXL_MISMATCH, 0, "the agent answered hello with %s",
                           nxl_frame_type_name(frame->type));
    if (frame->code < 0)
        return nxl_err_set(err, (enum nxl_code)frame->code, 0, "%s",
                           frame->text[0] ? frame->text : nxl_code_text(frame->code));
    if (frame->hello.version < NXL_FRAME_VERSION_MIN ||
        frame->hello.version > NXL_FRAME_VERSION_MAX)
        return nxl_err_set(err, NXL_VERSION, 0,
                           "the agent chose protocol version %u; this library speaks %u to %u",
                           frame->hello.version, NXL_FRAME_VERSION_MIN, NXL_FRAME_VERSION_MAX);
    if (fd_count != 3)
        return nxl_err_set(err, NXL_MISMATCH, 0,
                           "the agent's hello came with %u descriptors instead of 3", fd_count);
    return NXL_OK;
}

static enum nxl_code ring_map(struct nxl_session *session, int fd, struct nxl_err *err)
{
    struct stat st;
    int seals = fcntl(fd, F_GET_SEALS);

    if (fstat(fd, &st) != 0)
        return nxl_err_set(err, NXL_IO, errno, "look at the agent's ring file");
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return nxl_err_set(err, NXL_MISMATCH, 0, "the agent's ring file is not sealed");
    session->base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (session->base == MAP_FAILED) {
        session->base = NULL;
        return nxl_err_set(err, NXL_LIMIT, errno, "map the agent's ring file of %lld bytes",
                           (long long)st.st_size);
    }
    session->base_size = (uint64_t)st.st_size;
    return nxl_ring_attach(&session->ring, session->base, session->base_size, err);
}

/* Everything that the hot path touches exists before the first post. */
static enum nxl_code submit_prepare(struct nxl_session *session, struct nxl_err *err)
{
    uint32_t slots = session->ring.slot_count;

    session->submit.posts = calloc(slots, sizeof(*session->submit.posts));
    session->submit.free_slots = calloc(slots, sizeof(*session->submit.free_slots));
    session->channel.packet = malloc(NXL_FRAME_MAX);
    if (!session->submit.posts || !session->submit.free_slots || !session->channel.packet)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "make room for %u transfers", slots);
    for (uint32_t i = 0; i < slots; i++)
        session->submit.free_slots[i] = slots - 1 - i;
    session->submit.free_count = slots;
    nxl_arena_init(&session->submit.arena, session->ring.arena, session->ring.arena_bytes);
#ifdef MADV_POPULATE_WRITE
    (void)madvise(session->base, (size_t)(session->ring.notices - session->ring.base),
                  MADV_POPULATE_WRITE); /* only saves page faults */
#endif
    return NXL_OK;
}

static enum nxl_code sleep_prepare(struct nxl_session *session, struct nxl_err *err)
{
    struct epoll_event wake = {.events = EPOLLIN | EPOLLET, .data.fd = session->wake};
    struct epoll_event end = {.events = EPOLLRDHUP, .data.fd = session->fd};
    struct epoll_event nudge = {.events = EPOLLIN};

    session->nudge = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    session->epoll = epoll_create1(EPOLL_CLOEXEC);
    nudge.data.fd = session->nudge;
    /* Edge-triggered: a waiting thread never reads the wake-up, which belongs to the application's
     * own poll loop too. */
    if (session->nudge < 0 || session->epoll < 0 ||
        epoll_ctl(session->epoll, EPOLL_CTL_ADD, session->wake, &wake) != 0 ||
        epoll_ctl(session->epoll, EPOLL_CTL_ADD, session->fd, &end) != 0 ||
        epoll_ctl(session->epoll, EPOLL_CTL_ADD, session->nudge, &nudge) != 0)
        return nxl_err_set(err, NXL_LIMIT, errno, "prepare to wait for the agent");
    return NXL_OK;
}

static void locks_init(struct nxl_session *session)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_mutex_init(&session->channel.lock, NULL);
    pthread_cond_init(&session->channel.answered, &attr);
    pthread_mutex_init(&session->submit.lock, NULL);
    pthread_mutex_init(&session->wait.lock, NULL);
    pthread_cond_init(&session->wait.turn, &attr);
    pthread_condattr_destroy(&attr);
}

static enum nxl_code session_greet(struct nxl_session *session, struct nxl_call *call,
                                   struct nxl_err *err)
{
    int fds[3] = {-1, -1, -1};
    enum nxl_code code = hello_exchange(session, call, fds, err);

    session->doorbell = fds[1];
    session->wake = fds[2];
    if (code == NXL_OK)
        code = ring_map(session, fds[0], err);
    close_fd(&fds[0]);
    if (code != NXL_OK)
        return code;
    session->number = call->frame.hello.session;
    memcpy(session->incarnation, call->frame.incarnation, sizeof(session->incarnation));
    memcpy(session->node, call->frame.hello.node, sizeof(session->node));
    memcpy(session->ns, call->frame.hello.ns, sizeof(session->ns));
    memcpy(session->backends, call->frame.hello.backends, sizeof(session->backends));
    code = submit_prepare(session, err);
    if (code == NXL_OK)
        code = sleep_prepare(session, err);
    if (code == NXL_OK && !session->client->options.no_witness)
        session->witness = nxl_witness_start(session->ring.header);
    return code;
}

enum nxl_code nxl_session_open(struct nxl_client *client, struct nxl_session **ret,
                               struct nxl_err *err)
{
    struct nxl_session *session = calloc(1, sizeof(*session));
    struct nxl_call *call;
    enum nxl_code code;

    if (!session)
        return nxl_err_set(err, NXL_LIMIT, ENOMEM, "open a session");
    session->client = client;
    session->fd = session->doorbell = session->wake = session->epoll = session->nudge = -1;
    session->refs = 1;
    locks_init(session);
    call = nxl_call_new(session, NXL_FRAME_HELLO);
    code = call ? socket_connect(client->path, nxl_client_timeout(client), &session->fd, err)
                : nxl_err_set(err, NXL_LIMIT, ENOMEM, "open a session");
    if (code == NXL_OK) {
        code = session_greet(session, call, err);
        if (code != NXL_OK)
            nxl_err_wrap(err, code, "hello to the agent at '%s'", client->path);
    }
    nxl_call_free(session, call);
    if (code != NXL_OK) {
        nxl_session_free(session);
        return code;
    }
    *ret = session;
    return NXL_OK;
}

/* ---- ending ----------------------------------------------------------------------------- */

/* give_back: the agent is gone. While it lives it may still read what was submitted last. */
static void session_retire(struct nxl_session *session, int give_back)
{
    nxl_witness_stop(session->witness);
    session->witness = NULL;
    close_fd(&session->epoll);
    close_fd(&session->nudge);
    close_fd(&session->fd);
    close_fd(&session->doorbell);
    close_fd(&session->wake);
    /* A thread that only looks may still hold the pointer: the mapping stays until the client
     * closes, and its header with it; the memory behind all the rest is given back. */
    if (give_back && session->base && session->base_size > RETIRED_BYTES)
        (void)madvise((char *)session->base + RETIRED_BYTES, session->base_size - RETIRED_BYTES,
                      MADV_REMOVE);
    free(session->submit.posts);
    free(session->submit.free_slots);
    free(session->submit.later);
    free(session->submit.dead_lists);
    free(session->submit.dead_peers);
    free(session->channel.packet);
    session->submit.posts = session->submit.free_slots = NULL;
    session->submit.later = NULL;
    session->submit.dead_lists = session->submit.dead_peers = NULL;
    session->channel.packet = NULL;
    while (session->channel.spare) {
        struct nxl_call *call = session->channel.spare;

        session->channel.spare = call->next;
        free(call);
    }
}

void nxl_session_ref(struct nxl_session *session)
{
    atomic_fetch_add_explicit(&session->refs, 1, memory_order_relaxed);
}

void nxl_session_unref(struct nxl_session *session)
{
    if (atomic_fetch_sub_explicit(&session->refs, 1, memory_order_acq_rel) == 1)
        session_retire(session, 1);
}

void nxl_session_free(struct nxl_session *session)
{
    if (!session)
        return;
    session_retire(session, 0);
    if (session->base)
        munmap(session->base, session->base_size);
    pthread_mutex_destroy(&session->channel.lock);
    pthread_cond_destroy(&session->channel.answered);
    pthread_mutex_destroy(&session->submit.lock);
    pthread_mutex_destroy(&session->wait.lock);
    pthread_cond_destroy(&session->wait.turn);
    free(session);
}

int nxl_session_probe(struct nxl_session *session)
{
    struct pollfd item = {.fd = session->fd, .events = POLLRDHUP};

    return poll(&item, 1, 0) > 0;
}

static void tell_peers(struct nxl_session *session)
{
    struct nxl_client *client = session->client;
    struct nxl_ring_event event = {.kind = NXL_EVENT_AGENT_GONE, .code = NXL_NO_AGENT};

    event.at_ns = nxl_client_now();
    event.incarnation = (struct nxl_view){session->incarnation, strlen(session->incarnation)};
    pthread_mutex_lock(&client->event.lock);
    nxl_event_drain(client, session); /* what the agent said before comes first */
    for (struct nxl_peer *peer = client->event.peers; peer; peer = peer->next)
        if (peer->session == session)
            nxl_event_push(peer, &event);
    pthread_mutex_unlock(&client->event.lock);
}

void nxl_session_lost(struct nxl_session *session)
{
    uint64_t one = 1;

    if (atomic_exchange(&session->gone, 1))
        return;
    tell_peers(session);
    /* A thread of ours, and the application's own poll loop. */
    (void)!write(session->nudge, &one, sizeof(one));
    (void)!write(session->wake, &one, sizeof(one));
    pthread_mutex_lock(&session->wait.lock);
    pthread_cond_broadcast(&session->wait.turn);
    pthread_mutex_unlock(&session->wait.lock);
    atomic_store(&session->told, 1);
}

int nxl_session_probe_due(struct nxl_session *session)
{
    struct timespec ts;
    uint64_t now;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &ts);
    now = (uint64_t)ts.tv_sec * 1000000000ull + (uint64_t)ts.tv_nsec;
    if (now - atomic_load_explicit(&session->glanced_ns, memory_order_relaxed) < GLANCE_NS)
        return 0;
    atomic_store_explicit(&session->glanced_ns, now, memory_order_relaxed);
    return 1;
}

void nxl_session_glance(struct nxl_session *session)
{
    uint32_t glances = atomic_load_explicit(&session->glances, memory_order_relaxed) + 1;

    /* Lost counts are harmless: this only has to happen now and then. */
    atomic_store_explicit(&session->glances, glances, memory_order_relaxed);
    if (glances % GLANCE_EVERY != 0 || !nxl_session_probe_due(session))
        return;
    if (!atomic_load_explicit(&session->gone, memory_order_acquire) && nxl_session_probe(session))
        nxl_session_lost(session);
}
