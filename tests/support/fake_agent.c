/* fake_agent.c - a scripted agent for tests of the client: one thread serves the sockets. */
#include "support/fake_agent.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define SESSIONS 8
#define RUNS_MAX 65536u

struct refusal {
    unsigned skip, times;
    enum nxl_code code;
    char text[128];
};

struct session {
    int fd, doorbell, wake;
    void *base;
    uint64_t size;
    struct nxl_ring ring;
};

struct fake_agent {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    int listener, control, stopping;
    char dir[64], path[96];
    unsigned life, renewals, next_id;
    struct session sessions[SESSIONS];
    struct session *newest;
    struct refusal refusals[NXL_FRAME_TYPES];
    unsigned counts[NXL_FRAME_TYPES];
    struct nxl_frame last[NXL_FRAME_TYPES];
    unsigned last_fds, regions, wakes;
    uint16_t hold;
    int held, held_fd;
    struct nxl_frame held_frame;
    enum fake_flaw flaw;
    struct nxl_run runs[RUNS_MAX];
    uint64_t run_count;
    struct nxl_frame frame; /* the thread's */
    unsigned char packet[NXL_FRAME_MAX];
};

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "fake agent: %s: %s\n", what, strerror(errno));
    abort();
}

static void poke(struct fake_agent *agent)
{
    uint64_t one = 1;

    must(write(agent->control, &one, sizeof(one)) == sizeof(one), "poke");
}

static void listen_again(struct fake_agent *agent)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    unlink(agent->path);
    snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", agent->path);
    agent->listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    must(agent->listener >= 0, "socket");
    must(bind(agent->listener, (struct sockaddr *)&addr, sizeof(addr)) == 0, "bind");
    must(listen(agent->listener, 8) == 0, "listen");
}

/* ---- sessions --------------------------------------------------------------------------- */

static void session_clear(struct session *session)
{
    if (session->fd >= 0)
        close(session->fd);
    if (session->doorbell >= 0)
        close(session->doorbell);
    if (session->wake >= 0)
        close(session->wake);
    if (session->base)
        munmap(session->base, session->size);
    memset(session, 0, sizeof(*session));
    session->fd = session->doorbell = session->wake = -1;
}

static void packet_send(struct fake_agent *agent, int fd, const struct nxl_frame *frame,
                        const int *fds, unsigned fd_count)
{
    static unsigned char packet[NXL_FRAME_MAX];
    char control[CMSG_SPACE(3 * sizeof(int))] = {0};
    struct iovec iov = {.iov_base = packet};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    struct nxl_err err;

    (void)agent;
    must(nxl_frame_encode(frame, packet, sizeof(packet), &iov.iov_len, &err) == NXL_OK, err.text);
    if (fd_count > 0) {
        struct cmsghdr *cmsg;

        msg.msg_control = control;
        msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, fd_count * sizeof(int));
    }
    (void)sendmsg(fd, &msg, MSG_NOSIGNAL); /* a client that left is no error */
}

/* Answers HELLO with a ring of the size asked for. */
static void hello(struct fake_agent *agent, struct session *session, struct nxl_frame *frame)
{
    struct nxl_ring_geometry geometry = {.slots = frame->hello.slots,
                                         .arena_bytes = frame->hello.arena_bytes,
                                         .notice_bytes = frame->hello.notice_bytes};
    int fds[3];

    session->size = nxl_ring_size(&geometry);
    must(session->size > 0, "geometry");
    fds[0] = memfd_create("ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    must(fds[0] >= 0 && ftruncate(fds[0], (off_t)session->size) == 0, "ring");
    if (agent->flaw != FAKE_UNSEALED)
        must(fcntl(fds[0], F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0, "seal");
    session->base = mmap(NULL, session->size, PROT_READ | PROT_WRITE, MAP_SHARED, fds[0], 0);
    must(session->base != MAP_FAILED, "map");
    nxl_ring_create(&session->ring, session->base, &geometry);
    strcpy(session->ring.header->devices[1], "mlx5_0");
    if (agent->flaw == FAKE_BAD_MAGIC)
        session->ring.header->magic = 7;
    session->doorbell = fds[1] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    session->wake = fds[2] = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    frame->reply = 1;
    frame->hello.version = agent->flaw == FAKE_BAD_VERSION ? 99 : 1;
    frame->hello.session = agent->life * 100 + 1;
    frame->hello.ring_bytes = session->size;
    strcpy(frame->hello.node, "node-a");
    strcpy(frame->hello.ns, "default");
    strcpy(frame->hello.backends, "shm ucx");
    snprintf(frame->incarnation, sizeof(frame->incarnation), "agent/%u", agent->life);
    packet_send(agent, session->fd, frame, fds, agent->flaw == FAKE_NO_FDS ? 0 : 3);
    close(fds[0]);
    agent->flaw = FAKE_SOUND;
    agent->newest = session;
}

/* ---- requests --------------------------------------------------------------------------- */

static void runs_note(struct fake_agent *agent, const struct session *session,
                      const struct nxl_frame *frame)
{
    const struct nxl_run *runs =
        nxl_ring_arena(&session->ring, frame->arena_offset, (uint64_t)frame->count * sizeof(*runs));

    must(runs != NULL, "runs lie outside the arena");
    for (uint32_t i = 0; i < frame->count && agent->run_count < RUNS_MAX; i++)
        agent->runs[agent->run_count++] = runs[i];
}

/* Turns a request into its answer. */
static void serve(struct fake_agent *agent, struct session *session, struct nxl_frame *frame)
{
    switch (frame->type) {
    case NXL_FRAME_PEER_OPEN:
        frame->peer = ++agent->next_id;
        snprintf(frame->incarnation, sizeof(frame->incarnation), "agent/%u/%u", agent->life,
                 frame->peer);
        break;
    case NXL_FRAME_REGISTER:
        for (uint32_t i = 0; i < frame->count; i++)
            frame->ids[i] = ++agent->next_id;
        agent->regions += frame->count;
        break;
    case NXL_FRAME_DEREGISTER:
        agent->regions -= frame->count;
        break;
    case NXL_FRAME_LIST:
    case NXL_FRAME_CHECK:
        if (frame->type == NXL_FRAME_LIST && frame->list == 0)
            frame->list = ++agent->next_id;
        runs_note(agent, session, frame);
        break;
    case NXL_FRAME_METADATA:
        frame->blob_size = (uint32_t)snprintf((char *)frame->blob, sizeof(frame->blob), "blob");
        break;
    case NXL_FRAME_LOAD:
        snprintf(frame->name, sizeof(frame->name), "%.*s", (int)frame->blob_size,
                 (const char *)frame->blob);
        /* fall through */
    case NXL_FRAME_FETCH:
    case NXL_FRAME_FIND:
        frame->remote = 1000 + agent->life * 100 + agent->renewals;
        snprintf(frame->incarnation, sizeof(frame->incarnation), "far/%u/%u", agent->life,
                 agent->renewals);
        break;
    case NXL_FRAME_STATE:
        frame->state.life = NXL_LIFE_LIVE;
        frame->state.regions = 3;
        strcpy(frame->state.agent, "node-b");
        break;
    case NXL_FRAME_EXPLAIN:
        snprintf(frame->text, sizeof(frame->text), "slot %u, post %u: index 4 broke", frame->slot,
                 frame->generation);
        break;
    default:
        break;
    }
    frame->reply = 1;
}

static int refused(struct fake_agent *agent, struct nxl_frame *frame)
{
    struct refusal *refusal = &agent->refusals[frame->type];

    if (refusal->times == 0)
        return 0;
    if (refusal->skip > 0) {
        refusal->skip--;
        return 0;
    }
    refusal->times--;
    frame->reply = 1;
    frame->code = refusal->code;
    snprintf(frame->text, sizeof(frame->text), "%s", refusal->text);
    return 1;
}

static void request(struct fake_agent *agent, struct session *session, size_t size, unsigned fds)
{
    struct nxl_frame *frame = &agent->frame;
    struct nxl_err err;

    must(nxl_frame_decode((struct nxl_view){agent->packet, size}, frame, &err) == NXL_OK, err.text);
    agent->counts[frame->type]++;
    memcpy(&agent->last[frame->type], frame, sizeof(*frame));
    if (frame->type == NXL_FRAME_REGISTER)
        agent->last_fds = fds;
    if (frame->type == agent->hold) {
        agent->hold = 0;
        agent->held = 1;
        agent->held_fd = session->fd;
        serve(agent, session, frame);
        memcpy(&agent->held_frame, frame, sizeof(*frame));
        pthread_cond_broadcast(&agent->changed);
        return;
    }
    if (!refused(agent, frame)) {
        if (frame->type == NXL_FRAME_HELLO) {
            hello(agent, session, frame);
            return;
        }
        serve(agent, session, frame);
    }
    packet_send(agent, session->fd, frame, NULL, 0);
}

/* One packet of a session; 0: it ended. */
static int session_read(struct fake_agent *agent, struct session *session)
{
    char control[CMSG_SPACE(NXL_FRAME_FDS_MAX * sizeof(int))];
    struct iovec iov = {.iov_base = agent->packet, .iov_len = sizeof(agent->packet)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control,
                         .msg_controllen = sizeof(control)};
    ssize_t size = recvmsg(session->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    struct cmsghdr *cmsg;
    unsigned fds = 0;

    if (size < 0)
        return errno == EAGAIN || errno == EINTR;
    if (size == 0)
        return 0;
    cmsg = CMSG_FIRSTHDR(&msg);
    if (cmsg && cmsg->cmsg_type == SCM_RIGHTS) {
        fds = (unsigned)((cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int));
        for (unsigned i = 0; i < fds; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(cmsg) + i * sizeof(int), sizeof(fd));
            close(fd);
        }
    }
    request(agent, session, (size_t)size, fds);
    return 1;
}

static void session_accept(struct fake_agent *agent)
{
    int fd = accept4(agent->listener, NULL, NULL, SOCK_CLOEXEC);

    if (fd < 0)
        return;
    for (int i = 0; i < SESSIONS; i++) {
        if (agent->sessions[i].fd >= 0 || &agent->sessions[i] == agent->newest)
            continue;
        session_clear(&agent->sessions[i]);
        agent->sessions[i].fd = fd;
        return;
    }
    close(fd);
}

static void *serve_all(void *arg)
{
    struct fake_agent *agent = arg;

    pthread_mutex_lock(&agent->lock);
    while (!agent->stopping) {
        struct pollfd items[SESSIONS + 2];
        uint64_t drained;

        for (int i = 0; i < SESSIONS; i++)
            items[i] = (struct pollfd){.fd = agent->sessions[i].fd, .events = POLLIN};
        items[SESSIONS] = (struct pollfd){.fd = agent->listener, .events = POLLIN};
        items[SESSIONS + 1] = (struct pollfd){.fd = agent->control, .events = POLLIN};
        pthread_mutex_unlock(&agent->lock);
        poll(items, SESSIONS + 2, -1);
        pthread_mutex_lock(&agent->lock);
        if (items[SESSIONS + 1].revents)
            (void)!read(agent->control, &drained, sizeof(drained));
        for (int i = 0; i < SESSIONS; i++) {
            struct session *session = &agent->sessions[i];

            if (!items[i].revents || session->fd != items[i].fd || session->fd < 0)
                continue;
            if (!session_read(agent, session)) {
                close(session->fd);
                session->fd = -1;
            }
        }
        if (items[SESSIONS].revents && agent->listener == items[SESSIONS].fd)
            session_accept(agent);
    }
    pthread_mutex_unlock(&agent->lock);
    return NULL;
}

/* ---- the test's calls ------------------------------------------------------------------- */

struct fake_agent *fake_agent_start(void)
{
    struct fake_agent *agent = calloc(1, sizeof(*agent));

    must(agent != NULL, "memory");
    strcpy(agent->dir, "/tmp/nixlet-fake-XXXXXX");
    must(mkdtemp(agent->dir) != NULL, "directory");
    snprintf(agent->path, sizeof(agent->path), "%s/agent.sock", agent->dir);
    for (int i = 0; i < SESSIONS; i++)
        agent->sessions[i].fd = agent->sessions[i].doorbell = agent->sessions[i].wake = -1;
    agent->life = 1;
    agent->control = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&agent->lock, NULL);
    pthread_cond_init(&agent->changed, NULL);
    listen_again(agent);
    must(pthread_create(&agent->thread, NULL, serve_all, agent) == 0, "thread");
    return agent;
}

void fake_agent_stop(struct fake_agent *agent)
{
    pthread_mutex_lock(&agent->lock);
    agent->stopping = 1;
    poke(agent);
    pthread_mutex_unlock(&agent->lock);
    pthread_join(agent->thread, NULL);
    for (int i = 0; i < SESSIONS; i++)
        session_clear(&agent->sessions[i]);
    if (agent->listener >= 0)
        close(agent->listener);
    close(agent->control);
    unlink(agent->path);
    rmdir(agent->dir);
    pthread_mutex_destroy(&agent->lock);
    pthread_cond_destroy(&agent->changed);
    free(agent);
}

const char *fake_agent_path(const struct fake_agent *agent)
{
    return agent->path;
}

void fake_agent_crash(struct fake_agent *agent)
{
    pthread_mutex_lock(&agent->lock);
    for (int i = 0; i < SESSIONS; i++) {
        if (agent->sessions[i].fd < 0)
            continue;
        shutdown(agent->sessions[i].fd, SHUT_RDWR); /* at once, though the thread polls it */
        close(agent->sessions[i].fd);
        agent->sessions[i].fd = -1;
    }
    close(agent->listener);
    agent->listener = -1;
    unlink(agent->path);
    agent->regions = 0;
    poke(agent);
    pthread_mutex_unlock(&agent->lock);
}

void fake_agent_restart(struct fake_agent *agent)
{
    pthread_mutex_lock(&agent->lock);
    agent->life++;
    agent->wakes = 0;
    listen_again(agent);
    poke(agent);
    pthread_mutex_unlock(&agent->lock);
}

void fake_agent_goaway(struct fake_agent *agent, const char *text)
{
    struct nxl_frame *frame = calloc(1, sizeof(*frame));

    frame->type = NXL_FRAME_GOAWAY;
    snprintf(frame->text, sizeof(frame->text), "%s", text);
    pthread_mutex_lock(&agent->lock);
    for (int i = 0; i < SESSIONS; i++)
        if (agent->sessions[i].fd >= 0)
            packet_send(agent, agent->sessions[i].fd, frame, NULL, 0);
    pthread_mutex_unlock(&agent->lock);
    free(frame);
}

void fake_agent_refuse(struct fake_agent *agent, uint16_t type, enum nxl_code code,
                       const char *text, unsigned skip, unsigned times)
{
    pthread_mutex_lock(&agent->lock);
    agent->refusals[type] = (struct refusal){.skip = skip, .times = times, .code = code};
    snprintf(agent->refusals[type].text, sizeof(agent->refusals[type].text), "%s", text);
    pthread_mutex_unlock(&agent->lock);
}

void fake_agent_hold(struct fake_agent *agent, uint16_t type)
{
    pthread_mutex_lock(&agent->lock);
    agent->hold = type;
    agent->held = 0;
    pthread_mutex_unlock(&agent->lock);
}

void fake_agent_wait_held(struct fake_agent *agent)
{
    pthread_mutex_lock(&agent->lock);
    while (!agent->held)
        pthread_cond_wait(&agent->changed, &agent->lock);
    pthread_mutex_unlock(&agent->lock);
}

void fake_agent_answer(struct fake_agent *agent)
{
    pthread_mutex_lock(&agent->lock);
    must(agent->held, "nothing is held");
    agent->held = 0;
    packet_send(agent, agent->held_fd, &agent->held_frame, NULL, 0);
    pthread_mutex_unlock(&agent->lock);
}

void fake_agent_flaw(struct fake_agent *agent, enum fake_flaw flaw)
{
    pthread_mutex_lock(&agent->lock);
    agent->flaw = flaw;
    pthread_mutex_unlock(&agent->lock);
}

void fake_agent_renew(struct fake_agent *agent)
{
    pthread_mutex_lock(&agent->lock);
    agent->renewals++;
    pthread_mutex_unlock(&agent->lock);
}

unsigned fake_agent_count(struct fake_agent *agent, uint16_t type)
{
    unsigned count;

    pthread_mutex_lock(&agent->lock);
    count = agent->counts[type];
    pthread_mutex_unlock(&agent->lock);
    return count;
}

void fake_agent_last(struct fake_agent *agent, uint16_t type, struct nxl_frame *ret)
{
    pthread_mutex_lock(&agent->lock);
    memcpy(ret, &agent->last[type], sizeof(*ret));
    pthread_mutex_unlock(&agent->lock);
}

#define READ_LOCKED(type, name, expression)                                                        \
    type name(struct fake_agent *agent)                                                            \
    {                                                                                              \
        type value;                                                                                \
                                                                                                   \
        pthread_mutex_lock(&agent->lock);                                                          \
        value = (expression);                                                                      \
        pthread_mutex_unlock(&agent->lock);                                                        \
        return value;                                                                              \
    }

READ_LOCKED(unsigned, fake_agent_last_fds, agent->last_fds)
READ_LOCKED(unsigned, fake_agent_regions, agent->regions)
READ_LOCKED(unsigned, fake_agent_wakes, agent->wakes)
READ_LOCKED(uint64_t, fake_agent_list_runs, agent->run_count)
READ_LOCKED(struct nxl_ring *, fake_agent_ring, &agent->newest->ring)

struct nxl_run fake_agent_run(struct fake_agent *agent, uint64_t index)
{
    struct nxl_run run;

    pthread_mutex_lock(&agent->lock);
    run = agent->runs[index];
    pthread_mutex_unlock(&agent->lock);
    return run;
}

static void wake(struct fake_agent *agent)
{
    uint64_t one = 1;

    if (!nxl_ring_client_parked(&agent->newest->ring))
        return;
    agent->wakes++;
    must(write(agent->newest->wake, &one, sizeof(one)) == sizeof(one), "wake");
}

void fake_agent_end(struct fake_agent *agent, uint32_t slot, uint32_t generation, unsigned state,
                    enum nxl_code code)
{
    struct nxl_ring *ring;

    pthread_mutex_lock(&agent->lock);
    ring = &agent->newest->ring;
    ring->slots[slot].code = code;
    ring->slots[slot].bytes = 4096;
    ring->slots[slot].backend = 1;
    ring->slots[slot].device = 1;
    ring->slots[slot].path = NXL_PATH_ONE_COPY;
    ring->slots[slot].protocol = NXL_PROTOCOL_LOCAL;
    ring->slots[slot].pieces = 2;
    atomic_store_explicit(&ring->slots[slot].word, (uint64_t)generation << 8 | state,
                          memory_order_release);
    atomic_fetch_add(&ring->header->ended, 1);
    wake(agent);
    pthread_mutex_unlock(&agent->lock);
}

void fake_agent_event(struct fake_agent *agent, const struct nxl_ring_event *event)
{
    pthread_mutex_lock(&agent->lock);
    must(nxl_ring_notice_put(&agent->newest->ring, event) == NXL_OK, "notice");
    wake(agent);
    pthread_mutex_unlock(&agent->lock);
}

int fake_agent_rang(struct fake_agent *agent)
{
    uint64_t count = 0;
    ssize_t size;

    pthread_mutex_lock(&agent->lock);
    size = read(agent->newest->doorbell, &count, sizeof(count));
    pthread_mutex_unlock(&agent->lock);
    return size > 0;
}
