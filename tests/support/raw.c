/* raw.c - the local protocol by hand. */
#include "support/raw.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define ANSWER_MS 30000 /* with sanitizers, on a busy machine */

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "raw client: %s: %s\n", what, strerror(errno));
    abort();
}

uint64_t raw_random(uint64_t *seed)
{
    uint64_t x = *seed += 0x9e3779b97f4a7c15u;

    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

void raw_random_fill(uint64_t *seed, void *to, size_t size)
{
    unsigned char *at = to;

    for (size_t i = 0; i < size; i += sizeof(uint64_t)) {
        uint64_t word = raw_random(seed);

        memcpy(at + i, &word, size - i < sizeof(word) ? size - i : sizeof(word));
    }
}

int raw_memfd(uint64_t size, int sealed)
{
    int fd = memfd_create("raw", MFD_CLOEXEC | MFD_ALLOW_SEALING);

    must(fd >= 0 && ftruncate(fd, (off_t)size) == 0, "make a memfd");
    if (sealed)
        must(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0, "seal a memfd");
    return fd;
}

/* ---- the socket -------------------------------------------------------------------------- */

void raw_connect(struct raw *raw, struct cluster *c, int agent)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};

    memset(raw, 0, sizeof(*raw));
    raw->file = raw->doorbell = raw->wake = -1;
    raw->out = calloc(1, sizeof(*raw->out));
    raw->in = calloc(1, sizeof(*raw->in));
    raw->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    must(raw->out && raw->in && raw->fd >= 0, "open a socket");
    snprintf(un.sun_path, sizeof(un.sun_path), "%.107s", c->agents[agent].socket);
    must(connect(raw->fd, (struct sockaddr *)&un, sizeof(un)) == 0, "connect");
}

static void fd_drop(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

void raw_close(struct raw *raw)
{
    if (raw->map)
        munmap(raw->map, raw->ring.size);
    raw->map = NULL;
    if (raw->out) { /* a zeroed one holds no descriptor */
        fd_drop(&raw->fd);
        fd_drop(&raw->file);
        fd_drop(&raw->doorbell);
        fd_drop(&raw->wake);
    }
    free(raw->out);
    free(raw->in);
    raw->out = raw->in = NULL;
}

struct nxl_frame *raw_frame(struct raw *raw, uint16_t type)
{
    memset(raw->out, 0, offsetof(struct nxl_frame, blob));
    raw->out->type = type;
    raw->out->seq = ++raw->seq;
    raw->out->peer = raw->peer;
    return raw->out;
}

size_t raw_encode(struct raw *raw)
{
    struct nxl_err err = {0};
    size_t size = 0;

    if (nxl_frame_encode(raw->out, raw->packet, sizeof(raw->packet), &size, &err) != NXL_OK) {
        fprintf(stderr, "raw client: %s\n", err.text);
        abort();
    }
    return size;
}

int raw_send_bytes(struct raw *raw, const void *data, size_t size, const int *fds,
                   uint32_t fd_count)
{
    static union {
        char bytes[CMSG_SPACE(256 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {(void *)(uintptr_t)data, size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    struct pollfd writable = {.fd = raw->fd, .events = POLLOUT};

    if (fd_count > 0) {
        struct cmsghdr *cmsg;

        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(fd_count * sizeof(int));
        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(fd_count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, fd_count * sizeof(int));
    }
    for (int tries = 0; tries < 2; tries++) {
        if (sendmsg(raw->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0)
            return 0;
        if (errno != EAGAIN || poll(&writable, 1, ANSWER_MS) <= 0)
            break;
    }
    return errno;
}

int raw_send(struct raw *raw, const int *fds, uint32_t fd_count)
{
    size_t size = raw_encode(raw);

    return raw_send_bytes(raw, raw->packet, size, fds, fd_count);
}

/* The descriptors of WELCOME; the agent sends no others. */
static void fds_take(struct raw *raw, struct msghdr *msg)
{
    int *to[3] = {&raw->file, &raw->doorbell, &raw->wake};

    for (struct cmsghdr *cmsg = CMSG_FIRSTHDR(msg); cmsg; cmsg = CMSG_NXTHDR(msg, cmsg)) {
        for (size_t i = 0; i < 3 && cmsg->cmsg_len == CMSG_LEN(3 * sizeof(int)); i++)
            memcpy(to[i], CMSG_DATA(cmsg) + i * sizeof(int), sizeof(int));
    }
}

int raw_recv(struct raw *raw, int timeout_ms)
{
    union {
        char bytes[CMSG_SPACE(3 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {raw->packet, sizeof(raw->packet)};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control)};
    struct pollfd readable = {.fd = raw->fd, .events = POLLIN};
    struct nxl_err err = {0};
    ssize_t got;

    if (poll(&readable, 1, timeout_ms) <= 0)
        return 0;
    got = recvmsg(raw->fd, &msg, MSG_CMSG_CLOEXEC);
    /* Told once when the agent left frames of ours unread; what it said last comes after that. */
    if (got < 0 && errno == ECONNRESET)
        got = recvmsg(raw->fd, &msg, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got <= 0)
        return -1;
    fds_take(raw, &msg);
    if (nxl_frame_decode((struct nxl_view){raw->packet, (size_t)got}, raw->in, &err) != NXL_OK) {
        fprintf(stderr, "raw client: the agent sent nonsense: %s\n", err.text);
        abort();
    }
    if (raw->in->type == NXL_FRAME_GOAWAY)
        memcpy(raw->goaway, raw->in->text, sizeof(raw->goaway));
    return 1;
}

int raw_ended(struct raw *raw, int timeout_ms)
{
    uint64_t deadline = cluster_now() + (uint64_t)timeout_ms * 1000000u;

    for (;;) {
        uint64_t now = cluster_now();
        int came = raw_recv(raw, now < deadline ? (int)((deadline - now) / 1000000u) + 1 : 0);

        if (came < 0)
            return 1;
        if (came == 0 && now >= deadline)
            return 0;
    }
}

static int answer_wait(struct raw *raw, uint32_t seq)
{
    for (;;) {
        int came = raw_recv(raw, ANSWER_MS);

        if (came <= 0)
            return came < 0 ? RAW_GONE : RAW_MUTE;
        if (raw->in->reply && raw->in->seq == seq)
            return raw->in->code;
    }
}

int raw_call(struct raw *raw, const int *fds, uint32_t fd_count)
{
    uint32_t seq = raw->out->seq;

    if (raw_send(raw, fds, fd_count) != 0)
        return raw_ended(raw, ANSWER_MS) ? RAW_GONE : RAW_MUTE;
    return answer_wait(raw, seq);
}

int raw_alive(struct raw *raw)
{
    int code;

    raw_frame(raw, NXL_FRAME_EXPLAIN);
    code = raw_call(raw, NULL, 0);
    return code != RAW_GONE && code != RAW_MUTE;
}

/* ---- the session ------------------------------------------------------------------------- */

int raw_hello(struct raw *raw, uint32_t slots, uint64_t arena, uint64_t notices)
{
    struct nxl_frame *out = raw_frame(raw, NXL_FRAME_HELLO);
    struct nxl_err err = {0};
    int code;

    out->hello.magic = NXL_FRAME_MAGIC;
    out->hello.version_min = NXL_FRAME_VERSION_MIN;
    out->hello.version_max = NXL_FRAME_VERSION_MAX;
    out->hello.slots = slots;
    out->hello.arena_bytes = arena;
    out->hello.notice_bytes = notices;
    snprintf(out->hello.program, sizeof(out->hello.program), "raw");
    code = raw_call(raw, NULL, 0);
    if (code != NXL_OK)
        return code;
    raw->map =
        mmap(NULL, raw->in->hello.ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw->file, 0);
    must(raw->map != MAP_FAILED, "map the ring");
    must(nxl_ring_attach(&raw->ring, raw->map, raw->in->hello.ring_bytes, &err) == NXL_OK,
         "attach to the ring");
    return NXL_OK;
}

void raw_open(struct raw *raw, struct cluster *c, int agent, const char *name)
{
    raw_connect(raw, c, agent);
    must(raw_hello(raw, 64, 1 << 20, 4096) == NXL_OK, "HELLO");
    snprintf(raw_frame(raw, NXL_FRAME_PEER_OPEN)->name, sizeof(raw->out->name), "%s", name);
    must(raw_call(raw, NULL, 0) == NXL_OK, "open a peer");
    raw->peer = raw->in->peer;
}

int raw_register(struct raw *raw, int file, uint64_t addr, uint64_t size, uint64_t *ret_id)
{
    struct nxl_frame *out = raw_frame(raw, NXL_FRAME_REGISTER);
    int code;

    out->count = 1;
    out->regions[0] = (struct nxl_frame_region){.addr = addr, .len = size};
    code = raw_call(raw, &file, 1);
    if (code == NXL_OK && ret_id)
        *ret_id = raw->in->ids[0];
    return code;
}

uint32_t raw_find(struct raw *raw, const char *name)
{
    snprintf(raw_frame(raw, NXL_FRAME_FETCH)->name, sizeof(raw->out->name), "%s", name);
    raw->out->timeout_ms = 5000;
    return raw_call(raw, NULL, 0) == NXL_OK ? raw->in->remote : 0;
}

int raw_list(struct raw *raw, uint32_t remote, struct nxl_run run, uint32_t *ret)
{
    struct nxl_frame *out = raw_frame(raw, NXL_FRAME_LIST);
    int code;

    memcpy(raw->ring.arena, &run, sizeof(run));
    out->remote = remote;
    out->count = 1;
    code = raw_call(raw, NULL, 0);
    if (code == NXL_OK && ret)
        *ret = raw->in->list;
    return code;
}

/* ---- the ring ---------------------------------------------------------------------------- */

void raw_ring_bell(struct raw *raw)
{
    static const uint64_t one = 1;

    must(write(raw->doorbell, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN, "ring");
}

struct submission {
    struct raw *raw;
    const struct nxl_ring_entry *entry;
};

static int submitted(void *arg)
{
    struct submission *submission = arg;

    return nxl_ring_submit(&submission->raw->ring, submission->entry) == NXL_OK;
}

int raw_submit(struct raw *raw, const struct nxl_ring_entry *entry)
{
    struct submission submission = {raw, entry};

    if (!cluster_until(submitted, &submission, ANSWER_MS * 1000000ull))
        return 0;
    if (nxl_ring_agent_parked(&raw->ring))
        raw_ring_bell(raw);
    return 1;
}

int raw_post(struct raw *raw, uint32_t slot, uint32_t generation, uint32_t remote,
             const struct nxl_run *local, const struct nxl_run *far, unsigned flags)
{
    struct nxl_ring_entry entry = {.kind = NXL_RING_POST,
                                   .flags = (uint8_t)(NXL_RING_RUNS | flags),
                                   .slot = slot,
                                   .generation = generation,
                                   .peer = raw->peer,
                                   .remote = remote,
                                   .count = 1,
                                   .remote_count = 1,
                                   .arena_offset = 64ull * slot};

    memcpy(raw->ring.arena + entry.arena_offset, local, sizeof(*local));
    memcpy(raw->ring.arena + entry.arena_offset + sizeof(*local), far, sizeof(*far));
    return raw_submit(raw, &entry);
}

struct ending {
    struct raw *raw;
    uint32_t slot, generation;
    uint64_t word;
};

static int ended(void *arg)
{
    struct ending *ending = arg;

    ending->word = atomic_load(&ending->raw->ring.slots[ending->slot].word);
    return ending->word >> 8 == ending->generation &&
           (ending->word & NXL_RING_STATE_MASK) >= NXL_RING_DONE;
}

int raw_slot_wait(struct raw *raw, uint32_t slot, uint32_t generation, int *ret_code)
{
    struct ending ending = {.raw = raw, .slot = slot, .generation = generation};

    if (!cluster_until(ended, &ending, ANSWER_MS * 1000000ull))
        return 0;
    *ret_code = raw->ring.slots[slot].code;
    return (int)(ending.word & NXL_RING_STATE_MASK);
}

const char *raw_explain(struct raw *raw, uint32_t slot, uint32_t generation)
{
    struct nxl_frame *out = raw_frame(raw, NXL_FRAME_EXPLAIN);

    out->slot = slot;
    out->generation = generation;
    if (raw_call(raw, NULL, 0) != NXL_OK)
        return "(no explanation)";
    return raw->in->text;
}
