/* rig.c - see rig.h. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "rig.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static void rig_on_wake(void *arg)
{
    struct rig *rig = arg;

    rig->wakes++;
    nxl_poller_activate(rig->poller);
}

static int rig_on_poll(void *arg)
{
    struct rig *rig = arg;

    return rig->front ? nxl_front_poll(rig->front) > 0 : 0;
}

static int rig_on_idle(void *arg)
{
    struct rig *rig = arg;

    return rig->front ? nxl_front_park(rig->front) : 0;
}

void rig_open(struct rig *rig, ...)
{
    struct nxl_err err = {0};
    struct nxl_front_options options;
    const char *key;
    va_list args;
    int code;

    nxl_log_limit = NXL_LOG_ERROR;
    memset(rig, 0, sizeof(*rig));
    strcpy(rig->folder, "/tmp/nxl-front-XXXXXX");
    assert_non_null(mkdtemp(rig->folder));
    (void)snprintf(rig->path, sizeof(rig->path), "%s/agent.sock", rig->folder);
    assert_int_equal(nxl_loop_open(&rig->loop, &err), NXL_OK);
    rig->metrics = nxl_metrics_new();
    rig->settings = nxl_settings_new();
    rig->xfer = fake_xfer_new();
    rig->poller = nxl_poller_open(rig->loop, rig_on_poll, rig_on_idle, rig, 100 * NXL_US);
    nxl_front_declare(rig->settings);
    assert_int_equal(nxl_settings_set(rig->settings, "socket.path", rig->path, "test", &err),
                     NXL_OK);
    va_start(args, rig);
    while ((key = va_arg(args, const char *)) != NULL) {
        char full[64];

        (void)snprintf(full, sizeof(full), "socket.%s", key);
        code = nxl_settings_set(rig->settings, full, va_arg(args, const char *), "test", &err);
        assert_string_equal(err.text, "");
        assert_int_equal(code, NXL_OK);
    }
    va_end(args);
    options = (struct nxl_front_options){
        .loop = rig->loop,
        .metrics = rig->metrics,
        .settings = rig->settings,
        .xfer = rig->xfer,
        .node = "node-a",
        .agent = "host/boot/agent",
        .backends = "shm ucx",
        .wake = rig_on_wake,
        .arg = rig,
    };
    code = nxl_front_open(&options, &rig->front, &err);
    assert_string_equal(err.text, "");
    assert_int_equal(code, NXL_OK);
}

void rig_front_close(struct rig *rig)
{
    nxl_front_close(rig->front);
    rig->front = NULL;
}

void rig_close(struct rig *rig)
{
    char lock[128];

    rig_front_close(rig);
    nxl_poller_close(rig->poller);
    nxl_loop_close(rig->loop);
    assert_int_equal(rig->xfer->opened, rig->xfer->closed);
    fake_xfer_free(rig->xfer);
    nxl_settings_free(rig->settings);
    nxl_metrics_free(rig->metrics);
    (void)snprintf(lock, sizeof(lock), "%s.lock", rig->path);
    (void)unlink(lock);
    assert_int_equal(rmdir(rig->folder), 0); /* nothing else is left behind */
}

int rig_run(struct rig *rig, int (*done)(void *arg), void *arg)
{
    return nxl_loop_run_until(rig->loop, done, arg, 10 * NXL_SEC);
}

static int turns_done(void *arg)
{
    unsigned *left = arg;

    return (*left)-- == 0;
}

void rig_turns(struct rig *rig, unsigned turns)
{
    (void)rig_run(rig, turns_done, &turns);
}

int64_t rig_metric(struct rig *rig, const char *name, const char *labels)
{
    struct nxl_bytes text = {0};
    char head[160];
    const char *at;
    int64_t value = -1;

    (void)snprintf(head, sizeof(head), labels[0] ? "\n%s{%s} " : "\n%s ", name, labels);
    nxl_bytes_put_u8(&text, '\n');
    nxl_metrics_render(rig->metrics, &text);
    nxl_bytes_put_u8(&text, 0);
    at = strstr((const char *)text.data, head);
    if (at)
        value = strtoll(at + strlen(head), NULL, 10);
    nxl_bytes_fini(&text);
    return value;
}

int fd_count(void)
{
    DIR *dir = opendir("/proc/self/fd");
    int count = 0;

    assert_non_null(dir);
    while (readdir(dir))
        count++;
    closedir(dir);
    return count;
}

/* ---- clients ------------------------------------------------------------------------------ */

void raw_open(struct raw *raw, struct rig *rig)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};

    memset(raw, 0, sizeof(*raw));
    raw->rig = rig;
    raw->file = raw->doorbell = raw->wake = -1;
    raw->out = nxl_new0(sizeof(*raw->out));
    raw->in = nxl_new0(sizeof(*raw->in));
    raw->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    assert_true(raw->fd >= 0);
    strcpy(addr.sun_path, rig->path);
    assert_int_equal(connect(raw->fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
}

void raw_close(struct raw *raw)
{
    if (raw->map)
        (void)munmap(raw->map, raw->ring.size);
    for (uint32_t i = 0; i < raw->fd_count; i++)
        close(raw->fds[i]);
    if (raw->file >= 0) {
        close(raw->file);
        close(raw->doorbell);
        close(raw->wake);
    }
    if (raw->fd >= 0)
        close(raw->fd);
    free(raw->out);
    free(raw->in);
    memset(raw, 0, sizeof(*raw));
}

struct nxl_frame *raw_frame(struct raw *raw, uint16_t type)
{
    memset(raw->out, 0, sizeof(*raw->out));
    raw->out->type = type;
    raw->out->seq = ++raw->seq;
    return raw->out;
}

static int packet_send(struct raw *raw, const void *data, size_t size, const int *fds,
                       uint32_t count)
{
    union {
        char bytes[CMSG_SPACE(128 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {(void *)(uintptr_t)data, size};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};

    assert_true(count <= 128);
    if (count > 0) {
        struct cmsghdr *cmsg;

        memset(&control, 0, sizeof(control));
        msg.msg_control = control.bytes;
        msg.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsg = CMSG_FIRSTHDR(&msg);
        cmsg->cmsg_level = SOL_SOCKET;
        cmsg->cmsg_type = SCM_RIGHTS;
        cmsg->cmsg_len = CMSG_LEN(count * sizeof(int));
        memcpy(CMSG_DATA(cmsg), fds, count * sizeof(int));
    }
    return sendmsg(raw->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT) < 0 ? errno : 0;
}

int raw_send(struct raw *raw, const int *fds, uint32_t count)
{
    unsigned char *buf = nxl_new0(NXL_FRAME_MAX);
    struct nxl_err err = {0};
    size_t size = 0;
    int result;

    assert_int_equal(nxl_frame_encode(raw->out, buf, NXL_FRAME_MAX, &size, &err), NXL_OK);
    result = packet_send(raw, buf, size, fds, count);
    free(buf);
    return result;
}

int raw_send_bytes(struct raw *raw, const void *data, size_t size)
{
    return packet_send(raw, data, size, NULL, 0);
}

int raw_recv(struct raw *raw)
{
    unsigned char *buf = nxl_new0(NXL_FRAME_MAX);
    union {
        char bytes[CMSG_SPACE(8 * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct iovec iov = {buf, NXL_FRAME_MAX};
    struct msghdr msg = {.msg_iov = &iov,
                         .msg_iovlen = 1,
                         .msg_control = control.bytes,
                         .msg_controllen = sizeof(control)};
    ssize_t got = recvmsg(raw->fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct nxl_err err = {0};
    int result = got < 0 && errno == EAGAIN ? 0 : got <= 0 ? -1 : 1;

    for (uint32_t i = 0; i < raw->fd_count && result == 1; i++)
        close(raw->fds[i]);
    if (result == 1) {
        struct cmsghdr *cmsg = CMSG_FIRSTHDR(&msg);

        raw->fd_count = 0;
        if (cmsg) {
            raw->fd_count = (uint32_t)((cmsg->cmsg_len - CMSG_LEN(0)) / sizeof(int));
            memcpy(raw->fds, CMSG_DATA(cmsg), raw->fd_count * sizeof(int));
        }
        assert_int_equal(nxl_frame_decode((struct nxl_view){buf, (size_t)got}, raw->in, &err),
                         NXL_OK);
    }
    free(buf);
    return result;
}

struct waiting {
    struct raw *raw;
    int result;
};

static int waiting_done(void *arg)
{
    struct waiting *waiting = arg;

    waiting->result = raw_recv(waiting->raw);
    return waiting->result != 0;
}

int raw_wait(struct raw *raw)
{
    struct waiting waiting = {raw, 0};

    assert_true(rig_run(raw->rig, waiting_done, &waiting));
    return waiting.result;
}

enum nxl_code raw_ask(struct raw *raw, const int *fds, uint32_t count)
{
    assert_int_equal(raw_send(raw, fds, count), 0);
    assert_int_equal(raw_wait(raw), 1);
    assert_int_equal(raw->in->reply, 1);
    assert_int_equal(raw->in->type, raw->out->type);
    assert_int_equal(raw->in->seq, raw->out->seq);
    if (raw->in->code != NXL_OK)
        assert_true(raw->in->text[0] != '\0'); /* every refusal has a sentence (C-015) */
    return raw->in->code;
}

void raw_hello_fill(struct raw *raw, uint32_t slots, uint64_t arena, uint64_t notices)
{
    struct nxl_frame *out = raw_frame(raw, NXL_FRAME_HELLO);

    out->hello.magic = NXL_FRAME_MAGIC;
    out->hello.version_min = NXL_FRAME_VERSION_MIN;
    out->hello.version_max = NXL_FRAME_VERSION_MAX;
    out->hello.slots = slots;
    out->hello.arena_bytes = arena;
    out->hello.notice_bytes = notices;
    strcpy(out->hello.program, "test");
}

void raw_welcome_sized(struct raw *raw, uint32_t slots, uint64_t arena, uint64_t notices)
{
    struct nxl_err err = {0};

    raw_hello_fill(raw, slots, arena, notices);
    assert_int_equal(raw_ask(raw, NULL, 0), NXL_OK);
    assert_int_equal(raw->fd_count, 3);
    raw->file = raw->fds[0];
    raw->doorbell = raw->fds[1];
    raw->wake = raw->fds[2];
    raw->fd_count = 0;
    raw->map =
        mmap(NULL, raw->in->hello.ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw->file, 0);
    assert_true(raw->map != MAP_FAILED);
    assert_int_equal(nxl_ring_attach(&raw->ring, raw->map, raw->in->hello.ring_bytes, &err),
                     NXL_OK);
}

void raw_welcome(struct raw *raw)
{
    raw_welcome_sized(raw, 16, 65536, 4096);
}

void raw_submit(struct raw *raw, const struct nxl_ring_entry *entry)
{
    static const uint64_t one = 1;

    assert_int_equal(nxl_ring_submit(&raw->ring, entry), NXL_OK);
    if (nxl_ring_agent_parked(&raw->ring))
        assert_int_equal(write(raw->doorbell, &one, sizeof(one)), sizeof(one));
}

int raw_ended(void *arg)
{
    struct raw *raw = arg;
    int result;

    do
        result = raw_recv(raw);
    while (result == 1);
    return result < 0;
}

uint64_t raw_word(struct raw *raw, uint32_t slot)
{
    return atomic_load_explicit(&raw->ring.slots[slot].word, memory_order_acquire);
}
