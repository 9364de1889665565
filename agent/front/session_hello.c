/* session_hello.c - HELLO: versions and limits are checked, the shared ring and the two eventfds
 * are made, WELCOME carries them to the client. Loop thread. */
#include "front/session.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

static enum nxl_code hello_check(const struct front_session *session, const struct nxl_frame *in,
                                 struct nxl_err *err)
{
    const struct front_limits *limits = &session->front->limits;
    const struct {
        const char *field, *option;
        uint64_t asked, max;
    } rows[] = {
        {"slots", "slots_max", in->hello.slots, limits->slots_max},
        {"arena_bytes", "arena_max", in->hello.arena_bytes, limits->arena_max},
        {"notice_bytes", "notice_max", in->hello.notice_bytes, limits->notice_max},
    };

    if (in->hello.version_max < NXL_FRAME_VERSION_MIN ||
        in->hello.version_min > NXL_FRAME_VERSION_MAX)
        return nxl_err_set(err, NXL_VERSION, 0,
                           "the client speaks versions %u to %u, this agent %u to %u: "
                           "update the older of the two",
                           in->hello.version_min, in->hello.version_max, NXL_FRAME_VERSION_MIN,
                           NXL_FRAME_VERSION_MAX);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++)
        if (rows[i].asked > rows[i].max)
            return nxl_err_set(err, NXL_LIMIT, 0,
                               "hello: %s is %llu, more than socket.%s of this agent, %llu",
                               rows[i].field, (unsigned long long)rows[i].asked, rows[i].option,
                               (unsigned long long)rows[i].max);
    return NXL_OK;
}

/* Sealed at birth: the client can neither shrink the file under us nor lift the seals. */
static enum nxl_code ring_file_open(uint64_t size, int *ret_fd, void **ret_map, struct nxl_err *err)
{
    NXL_CLEANUP(nxl_closep) int fd = memfd_create("nixlet-ring", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *map;

    if (fd < 0)
        return nxl_err_set(err, NXL_IO, errno, "create the shared ring");
    if (ftruncate(fd, (off_t)size) < 0)
        return nxl_err_set(err, NXL_IO, errno, "size the shared ring to %llu bytes",
                           (unsigned long long)size);
    if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return nxl_err_set(err, NXL_IO, errno, "seal the shared ring");
    map = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (map == MAP_FAILED)
        return nxl_err_set(err, NXL_IO, errno, "map the shared ring of %llu bytes",
                           (unsigned long long)size);
    *ret_map = map;
    *ret_fd = fd;
    fd = -1; /* moved out */
    return NXL_OK;
}

static void doorbell_on_ring(void *arg, int fd, unsigned events)
{
    struct front_session *session = arg;
    struct nxl_front *front = session->front;
    uint64_t count;
    struct iovec iov = {&count, sizeof(count)};

    (void)events;
    /* The client holds the same open file and could make it blocking and drain it first, so ask not
     * to wait whatever the file says. Nothing to read is fine: it rang all the same. */
    NXL_IGNORE(preadv2(fd, &iov, 1, -1, RWF_NOWAIT) < 0);
    nxl_metric_add(front->metrics.doorbells, 1);
    nxl_ring_unpark(&session->ring);
    front_session_wake_up(session);
    front->options.wake(front->options.arg);
    if (front->options.turn != NULL)
        front->options.turn(front->options.arg); /* the session may be gone after this line */
}

static enum nxl_code ring_open(struct front_session *session, const struct nxl_frame *in,
                               int *ret_file, struct nxl_err *err)
{
    struct nxl_ring_geometry geometry = {
        .slots = in->hello.slots,
        .arena_bytes = in->hello.arena_bytes,
        .notice_bytes = in->hello.notice_bytes,
    };
    uint64_t size = nxl_ring_size(&geometry);
    enum nxl_code code;

    if (size == 0)
        return nxl_err_set(
            err, NXL_INVALID_PARAM, 0,
            "hello: %u slots, %llu arena_bytes, %llu notice_bytes: at least one slot and "
            "one byte of arena are needed",
            in->hello.slots, (unsigned long long)in->hello.arena_bytes,
            (unsigned long long)in->hello.notice_bytes);
    session->doorbell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    session->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (session->doorbell < 0 || session->wake < 0)
        return nxl_err_set(err, NXL_IO, errno, "create the doorbells");
    code = ring_file_open(size, ret_file, &session->map, err);
    if (code != NXL_OK)
        return code;
    nxl_ring_create(&session->ring, session->map, &geometry);
    return nxl_watch_open(session->front->options.loop, session->doorbell, NXL_WATCH_READ,
                          doorbell_on_ring, session, &session->bell_watch, err);
}

void front_hello_undo(struct front_session *session)
{
    nxl_watch_close(session->bell_watch);
    session->bell_watch = NULL;
    front_witness_forget(NXL_TAKE(session->watched));
    if (session->map) {
        atomic_store_explicit(&session->ring.header->gone, 1, memory_order_release);
        front_wake_write(session);
        (void)munmap(session->map, session->ring.size); /* our own mapping: cannot fail */
        session->map = NULL;
    }
    nxl_closep(&session->doorbell);
    nxl_closep(&session->wake);
}

static void welcome_send(struct front_session *session, const struct nxl_frame *in, int file)
{
    struct nxl_front *front = session->front;
    struct nxl_frame *out = front_reply(session, NXL_FRAME_HELLO, in->seq);
    int fds[3] = {file, session->doorbell, session->wake};

    out->hello.magic = NXL_FRAME_MAGIC;
    out->hello.version_min = NXL_FRAME_VERSION_MIN;
    out->hello.version_max = NXL_FRAME_VERSION_MAX;
    out->hello.version = in->hello.version_max < NXL_FRAME_VERSION_MAX ? in->hello.version_max
                                                                       : NXL_FRAME_VERSION_MAX;
    out->hello.session = session->number;
    out->hello.slots = session->ring.slot_count;
    out->hello.arena_bytes = session->ring.arena_bytes;
    out->hello.notice_bytes = session->ring.notice_bytes;
    out->hello.ring_bytes = session->ring.size;
    /* Our own settings, checked against these sizes at open. */
    (void)nxl_copy_text(out->hello.node, sizeof(out->hello.node), front->options.node);
    (void)nxl_copy_text(out->hello.ns, sizeof(out->hello.ns), front->ns);
    (void)nxl_copy_text(out->hello.backends, sizeof(out->hello.backends), front->options.backends);
    (void)nxl_copy_text(out->incarnation, sizeof(out->incarnation), front->options.agent);
    front_reply_send_fds(session, fds, 3);
}

void front_hello_take(struct front_session *session, const struct nxl_frame *in)
{
    struct nxl_front *front = session->front;
    struct nxl_xfer_owner owner = {
        .ns = front->ns, .pod = "", .container = "", .pid = session->identity.pid};
    NXL_CLEANUP(nxl_closep) int file = -1;
    struct nxl_err err = {0};
    enum nxl_code code;

    code = hello_check(session, in, &err);
    if (code == NXL_OK)
        code = ring_open(session, in, &file, &err);
    if (code == NXL_OK)
        code = nxl_xfer_session_open(front->options.xfer, &owner, &front_xfer_ops, session,
                                     &session->number, &session->xfer, &err);
    if (code != NXL_OK) { /* the client may ask again, for less */
        front_hello_undo(session);
        front_refuse(session, NXL_FRAME_HELLO, in->seq, code, &err);
        return;
    }
    (void)nxl_copy_text(session->program, sizeof(session->program),
                        in->hello.program); /* same size */
    front->helloed++;
    nxl_metric_set(front->metrics.sessions, front->helloed);
    nxl_info("front", "event=session-open session=%u pid=%d uid=%u program=%s slots=%u arena=%llu",
             session->number, session->identity.pid, session->identity.uid,
             nxl_quote(session->program), session->ring.slot_count,
             (unsigned long long)session->ring.arena_bytes);
    welcome_send(session, in, file);
    /* A fresh header says that the agent is not parked, so its ring has to be looked at. */
    front_session_wake_up(session);
    front->options.wake(front->options.arg);
}
