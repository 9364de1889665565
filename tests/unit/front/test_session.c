/* A client's session: HELLO, limits, descriptors, hostile packets, slow readers, the end. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "rig.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static int sessions_are_0(void *arg)
{
    return nxl_front_sessions(((struct rig *)arg)->front) == 0;
}

/* ---- HELLO -------------------------------------------------------------------------------- */

static void hello_is_answered_with_ring_doorbell_and_wake_up_in_this_order(void **state)
{
    struct rig rig;
    struct raw raw;
    char link[64], target[64] = "";
    int seals;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    raw_welcome_sized(&raw, 16, 5000, 5000);
    assert_int_equal(raw.in->hello.version, 1);
    assert_int_equal(raw.in->hello.session, 1);
    assert_int_equal(raw.in->hello.slots, 16);
    assert_int_equal(raw.in->hello.arena_bytes, 8192);
    assert_int_equal(raw.in->hello.notice_bytes, 8192);
    assert_string_equal(raw.in->hello.node, "node-a");
    assert_string_equal(raw.in->hello.ns, "default");
    assert_string_equal(raw.in->hello.backends, "shm ucx");
    assert_string_equal(raw.in->incarnation, "host/boot/agent");
    seals = fcntl(raw.file, F_GET_SEALS);
    assert_int_equal(seals, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
    assert_int_equal(ftruncate(raw.file, 0), -1); /* a client cannot pull the ring away */
    for (int i = 0; i < 2; i++) {
        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", i ? raw.wake : raw.doorbell);
        assert_true(readlink(link, target, sizeof(target) - 1) > 0);
        assert_non_null(strstr(target, "eventfd"));
    }
    assert_int_equal(rig.xfer->sessions->pid, getpid());
    assert_int_equal(nxl_front_sessions(rig.front), 1);
    assert_int_equal(rig_metric(&rig, "nixlet_sessions", ""), 1);
    assert_true(rig.wakes > 0); /* the fresh ring says "not parked", so somebody must look at it */
    raw_close(&raw);
    assert_true(rig_run(&rig, sessions_are_0, &rig));
    assert_string_equal(rig.xfer->sessions->reason, "the client closed its socket");
    rig_close(&rig);
}

static void hello_over_a_limit_names_the_option_and_may_be_said_again(void **state)
{
    static const struct {
        uint32_t slots;
        uint64_t arena, notices;
        enum nxl_code code;
        const char *word;
    } rows[] = {
        {65, 4096, 4096, NXL_LIMIT, "socket.slots_max"},
        {64, 8193, 4096, NXL_LIMIT, "socket.arena_max"},
        {64, 4096, 16385, NXL_LIMIT, "socket.notice_max"},
        {64, UINT64_MAX, 4096, NXL_LIMIT, "socket.arena_max"},
        {64, 4096, UINT64_MAX, NXL_LIMIT, "socket.notice_max"},
        {UINT32_MAX, 4096, 4096, NXL_LIMIT, "socket.slots_max"},
        {0, 4096, 4096, NXL_INVALID_PARAM, "slot"},
        {64, 0, 4096, NXL_INVALID_PARAM, "arena"},
    };
    struct rig rig;
    struct raw raw;

    (void)state;
    rig_open(&rig, "slots_max", "64", "arena_max", "8Ki", "notice_max", "16Ki", NULL);
    raw_open(&raw, &rig);
    for (size_t i = 0; i < NXL_COUNT_OF(rows); i++) {
        raw_hello_fill(&raw, rows[i].slots, rows[i].arena, rows[i].notices);
        assert_int_equal(raw_ask(&raw, NULL, 0), rows[i].code);
        assert_non_null(strstr(raw.in->text, rows[i].word));
        assert_int_equal(raw.fd_count, 0);
    }
    assert_int_equal(rig_metric(&rig, "nixlet_frame_refused_total", "code=\"limit\""), 6);
    raw_welcome_sized(&raw, 64, 8192, 16384);
    raw_close(&raw);
    rig_close(&rig);
}

static void hello_without_a_common_version_is_told_both_ranges(void **state)
{
    struct rig rig;
    struct raw raw;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    raw_hello_fill(&raw, 1, 4096, 4096);
    raw.out->hello.version_min = 7;
    raw.out->hello.version_max = 9;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_VERSION);
    assert_non_null(strstr(raw.in->text, "7 to 9"));
    assert_non_null(strstr(raw.in->text, "1 to 1"));
    raw_hello_fill(&raw, 1, 4096, 4096);
    raw.out->hello.version_min = 0;
    raw.out->hello.version_max = 9;
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    raw_close(&raw);
    rig_close(&rig);
}

static void every_frame_before_hello_and_a_second_hello_is_refused(void **state)
{
    struct rig rig;
    struct raw raw;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    for (uint16_t type = NXL_FRAME_PEER_OPEN; type < NXL_FRAME_GOAWAY; type++) {
        strcpy(raw_frame(&raw, type)->name, "a");
        assert_int_equal(raw_ask(&raw, NULL, 0), NXL_NOT_ALLOWED);
        assert_non_null(strstr(raw.in->text, "HELLO must come first"));
    }
    raw_welcome(&raw);
    raw_hello_fill(&raw, 1, 4096, 4096);
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_NOT_ALLOWED);
    assert_int_equal(rig.xfer->opened, 1);
    raw_close(&raw);
    rig_close(&rig);
}

static void an_engine_without_room_for_a_session_is_said_to_the_client(void **state)
{
    struct rig rig;
    struct raw raw;
    int before;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    rig.xfer->refuse = NXL_LIMIT;
    raw_hello_fill(&raw, 1, 4096, 4096);
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_LIMIT);
    before = fd_count();
    raw_hello_fill(&raw, 1, 4096, 4096);
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_LIMIT);
    assert_int_equal(fd_count(), before); /* ring and doorbells are undone */
    rig.xfer->refuse = NXL_OK;
    raw_welcome(&raw);
    raw_close(&raw);
    rig_close(&rig);
}

static void a_client_that_never_says_hello_is_sent_away(void **state)
{
    struct rig rig;
    struct raw raw;

    (void)state;
    rig_open(&rig, "hello_timeout", "20ms", NULL);
    raw_open(&raw, &rig);
    assert_int_equal(raw_wait(&raw), 1);
    assert_int_equal(raw.in->type, NXL_FRAME_GOAWAY);
    assert_int_equal(raw.in->code, NXL_TIMEOUT);
    assert_non_null(strstr(raw.in->text, "socket.hello_timeout"));
    assert_true(rig_run(&rig, raw_ended, &raw));
    raw_close(&raw);
    rig_close(&rig);
}

static void one_client_too_many_is_told_so_and_the_others_stay(void **state)
{
    struct rig rig;
    struct raw raws[3];

    (void)state;
    rig_open(&rig, "clients_max", "2", NULL);
    for (int i = 0; i < 2; i++) {
        raw_open(&raws[i], &rig);
        raw_welcome(&raws[i]);
    }
    raw_open(&raws[2], &rig);
    assert_int_equal(raw_wait(&raws[2]), 1);
    assert_int_equal(raws[2].in->type, NXL_FRAME_GOAWAY);
    assert_int_equal(raws[2].in->code, NXL_LIMIT);
    assert_non_null(strstr(raws[2].in->text, "socket.clients_max"));
    strcpy(raw_frame(&raws[0], NXL_FRAME_PEER_OPEN)->name, "a");
    assert_int_equal(raw_ask(&raws[0], NULL, 0), NXL_OK);
    for (int i = 0; i < 3; i++)
        raw_close(&raws[i]);
    rig_close(&rig);
}

static void clients_are_turned_away_before_the_descriptors_run_out(void **state)
{
    struct rlimit before, tight;
    struct rig rig;
    struct raw raws[40];
    int open = 0;

    (void)state;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    tight = before;
    tight.rlim_cur = (rlim_t)fd_count() + 80;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    rig_open(&rig, NULL);
    for (; open < 40; open++) {
        raw_open(&raws[open], &rig);
        rig_turns(&rig, 4);
        if (raw_recv(&raws[open]) != 0)
            break;
        raw_welcome(&raws[open]);
    }
    assert_in_range(open, 1, 39);
    assert_int_equal(raws[open].in->type, NXL_FRAME_GOAWAY);
    assert_int_equal(raws[open].in->code, NXL_LIMIT);
    assert_non_null(strstr(raws[open].in->text, "ulimit -n"));
    /* Who is here already has room for more. */
    strcpy(raw_frame(&raws[0], NXL_FRAME_PEER_OPEN)->name, "a");
    assert_int_equal(raw_ask(&raws[0], NULL, 0), NXL_OK);
    for (int i = 0; i <= open; i++)
        raw_close(&raws[i]);
    rig_close(&rig);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* ---- hostile packets ---------------------------------------------------------------------- */

static uint64_t random_state = 0x9e3779b97f4a7c15ull;

static uint32_t random_u32(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (uint32_t)(random_state >> 32);
}

static void random_bytes_end_their_session_and_no_other(void **state)
{
    struct rig rig;
    struct raw good;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&good, &rig);
    raw_welcome(&good);
    for (int round = 0; round < 200; round++) {
        unsigned char bytes[300];
        size_t size = 1 + random_u32() % sizeof(bytes);
        struct raw bad;

        for (size_t i = 0; i < size; i++)
            bytes[i] = (unsigned char)random_u32();
        raw_open(&bad, &rig);
        if (round % 2)
            raw_welcome(&bad);
        assert_int_equal(raw_send_bytes(&bad, bytes, size), 0);
        assert_true(rig_run(&rig, raw_ended, &bad));
        assert_int_equal(bad.in->type, NXL_FRAME_GOAWAY);
        raw_close(&bad);
    }
    strcpy(raw_frame(&good, NXL_FRAME_PEER_OPEN)->name, "a");
    assert_int_equal(raw_ask(&good, NULL, 0), NXL_OK);
    raw_close(&good);
    rig_close(&rig);
}

/* A sound head in front of nonsense: refused by name, the session goes on, nothing reaches xfer. */
static void truncated_and_flipped_frames_are_refused_and_change_nothing(void **state)
{
    struct rig rig;
    struct raw raw;
    unsigned char buf[NXL_FRAME_MAX];
    struct nxl_err err = {0};
    size_t size = 0;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    strcpy(raw_frame(&raw, NXL_FRAME_PEER_OPEN)->name, "prefill");
    assert_int_equal(nxl_frame_encode(raw.out, buf, sizeof(buf), &size, &err), NXL_OK);
    for (size_t cut = sizeof(struct nxl_frame_head); cut < size; cut++) {
        struct nxl_frame_head head;

        memcpy(&head, buf, sizeof(head));
        head.size = (uint32_t)cut;
        memcpy(buf, &head, sizeof(head));
        assert_int_equal(raw_send_bytes(&raw, buf, cut), 0);
        assert_int_equal(raw_wait(&raw), 1);
        assert_int_equal(raw.in->code, NXL_MISMATCH);
        assert_int_equal(raw.in->seq, raw.out->seq);
    }
    assert_int_equal(rig.xfer->used.peer_open, 0);
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_OK);
    raw_close(&raw);
    rig_close(&rig);
}

static void replies_and_goaways_from_a_client_end_its_session(void **state)
{
    struct rig rig;

    (void)state;
    rig_open(&rig, NULL);
    for (int row = 0; row < 2; row++) {
        struct raw raw;

        raw_open(&raw, &rig);
        raw_welcome(&raw);
        raw_frame(&raw, row ? NXL_FRAME_GOAWAY : NXL_FRAME_PEER_OPEN)->reply = row ? 0 : 1;
        assert_int_equal(raw_send(&raw, NULL, 0), 0);
        assert_true(rig_run(&rig, raw_ended, &raw));
        assert_non_null(strstr(raw.in->text, "only an agent sends this"));
        raw_close(&raw);
    }
    assert_int_equal(rig_metric(&rig, "nixlet_sessions_ended_total", "reason=\"violated\""), 2);
    rig_close(&rig);
}

static void an_oversized_packet_ends_the_session_with_a_reason(void **state)
{
    struct rig rig;
    struct raw raw;
    unsigned char *big = nxl_new0(NXL_FRAME_MAX + 1);

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    assert_int_equal(raw_send_bytes(&raw, big, NXL_FRAME_MAX + 1), 0);
    assert_true(rig_run(&rig, raw_ended, &raw));
    assert_non_null(strstr(raw.in->text, "longer than 65536"));
    free(big);
    raw_close(&raw);
    rig_close(&rig);
}

/* ---- descriptors --------------------------------------------------------------------------- */

static int file_with(const char *text)
{
    int fd = memfd_create("test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    return fd;
}

static void descriptors_reach_the_engine_and_are_closed_after_the_frame(void **state)
{
    struct rig rig;
    struct raw raw;
    int fds[2] = {file_with("first"), file_with("second")};
    int before;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    before = fd_count();
    for (int round = 0; round < 20; round++) {
        struct nxl_frame *out = raw_frame(&raw, NXL_FRAME_REGISTER);

        out->peer = 3;
        out->count = 2;
        out->regions[0] = (struct nxl_frame_region){.addr = 4096, .len = 64, .fd_index = 1};
        out->regions[1] =
            (struct nxl_frame_region){.addr = 8192, .len = 32, .fd_offset = 8, .fd_index = 0};
        rig.xfer->refuse = round % 2 ? NXL_NOT_SUPPORTED : NXL_OK;
        assert_int_equal(raw_ask(&raw, fds, 2), rig.xfer->refuse);
        assert_string_equal(rig.xfer->last.file, "first");
        assert_int_equal(rig.xfer->last.fd_count, 2);
        assert_int_equal(rig.xfer->last.regions[0].fd_index, 1);
        assert_int_equal(rig.xfer->last.regions[1].fd_offset, 8);
        if (round % 2 == 0) {
            assert_int_equal(raw.in->count, 2);
            assert_int_equal(raw.in->ids[1], 101);
        }
    }
    assert_int_equal(fd_count(), before);
    raw_close(&raw);
    rig_close(&rig);
    close(fds[0]);
    close(fds[1]);
}

static void a_region_must_name_a_descriptor_that_came_and_others_take_none(void **state)
{
    struct rig rig;
    struct raw raw;
    int fd = file_with("x");
    int before;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    before = fd_count();
    raw_frame(&raw, NXL_FRAME_REGISTER)->count = 1;
    raw.out->regions[0] = (struct nxl_frame_region){.len = 64, .fd_index = 1};
    assert_int_equal(raw_ask(&raw, &fd, 1), NXL_INVALID_PARAM);
    assert_non_null(strstr(raw.in->text, "descriptor 1, but 1 came"));
    strcpy(raw_frame(&raw, NXL_FRAME_PEER_OPEN)->name, "a");
    assert_int_equal(raw_ask(&raw, &fd, 1), NXL_INVALID_PARAM);
    assert_int_equal(rig.xfer->used.reg + rig.xfer->used.peer_open, 0);
    assert_int_equal(fd_count(), before);
    raw_close(&raw);
    rig_close(&rig);
    close(fd);
}

static void more_descriptors_than_a_frame_may_carry_end_the_session_and_leak_none(void **state)
{
    struct rig rig;
    struct raw raw;
    int fd = file_with("x"), fds[NXL_FRAME_FDS_MAX + 1];
    int before;

    (void)state;
    for (size_t i = 0; i < NXL_COUNT_OF(fds); i++)
        fds[i] = fd;
    rig_open(&rig, NULL);
    before = fd_count();
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    raw_frame(&raw, NXL_FRAME_REGISTER)->count = 1;
    assert_int_equal(raw_send(&raw, fds, NXL_COUNT_OF(fds)), 0);
    assert_true(rig_run(&rig, raw_ended, &raw));
    assert_non_null(strstr(raw.in->text, "more than 64"));
    raw_close(&raw);
    assert_true(rig_run(&rig, sessions_are_0, &rig));
    assert_int_equal(fd_count(), before);
    rig_close(&rig);
    close(fd);
}

static void a_thousand_sessions_leave_the_number_of_descriptors_flat(void **state)
{
    struct rig rig;
    int before;

    (void)state;
    rig_open(&rig, NULL);
    before = fd_count();
    for (int i = 0; i < 1000; i++) {
        struct raw raw;

        raw_open(&raw, &rig);
        raw_welcome(&raw);
        raw_close(&raw);
        assert_true(rig_run(&rig, sessions_are_0, &rig));
    }
    assert_int_equal(rig.xfer->closed, 1000);
    assert_int_equal(fd_count(), before);
    assert_int_equal(rig_metric(&rig, "nixlet_sessions_ended_total", "reason=\"closed\""), 1000);
    rig_close(&rig);
}

static int one_session(void *arg)
{
    return nxl_front_sessions(((struct rig *)arg)->front) == 1;
}

/* The backlog keeps clients until there are descriptors again; the loop does not spin meanwhile. */
static void without_descriptors_accepting_pauses_and_goes_on(void **state)
{
    struct rig rig;
    struct raw raw;
    struct rlimit old, tight;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    tight = old;
    tight.rlim_cur = 3; /* nothing new fits */
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &tight), 0);
    rig_turns(&rig, 5);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
    raw_hello_fill(&raw, 1, 4096, 4096);
    assert_int_equal(raw_send(&raw, NULL, 0), 0);
    assert_true(rig_run(&rig, one_session, &rig));
    raw_close(&raw);
    rig_close(&rig);
}

/* ---- readers ------------------------------------------------------------------------------- */

struct flood {
    struct raw *raw;
    uint32_t sent, read;
};

/* Sends as long as the socket takes frames, and reads none. */
static int flood_is_stuck(void *arg)
{
    struct flood *flood = arg;
    int turns = 0;

    while (raw_send(flood->raw, NULL, 0) == 0) {
        flood->sent++;
        flood->raw->out->seq = ++flood->raw->seq;
        turns++;
    }
    return turns == 0;
}

static int flood_is_read(void *arg)
{
    struct flood *flood = arg;

    while (raw_recv(flood->raw) == 1)
        flood->read++;
    return flood->read == flood->sent;
}

static void who_does_not_read_answers_is_not_heard_until_he_reads(void **state)
{
    struct rig rig;
    struct raw raw, other;
    struct flood flood = {.raw = &raw};

    (void)state;
    rig_open(&rig, NULL);
    rig.xfer->blob_size = 32768;
    raw_open(&raw, &rig);
    raw_open(&other, &rig);
    raw_welcome(&raw);
    raw_welcome(&other);
    raw_frame(&raw, NXL_FRAME_METADATA);
    for (int quiet = 0; quiet < 3; quiet++) /* stuck for several turns, not between two of them */
        assert_true(rig_run(&rig, flood_is_stuck, &flood));
    assert_true(rig.xfer->used.metadata < flood.sent);
    assert_int_equal(nxl_front_sessions(rig.front), 2);
    strcpy(raw_frame(&other, NXL_FRAME_PEER_OPEN)->name, "b");
    assert_int_equal(raw_ask(&other, NULL, 0), NXL_OK);
    assert_true(rig_run(&rig, flood_is_read, &flood)); /* every request is answered after all */
    raw_close(&raw);
    raw_close(&other);
    rig_close(&rig);
}

static int calls_are(void *arg)
{
    struct rig *rig = arg;

    return rig->xfer->call_count == 2000;
}

static void answers_that_pile_up_unread_end_the_session(void **state)
{
    struct rig rig;
    struct raw raw;
    int small = 4096;

    (void)state;
    rig_open(&rig, "calls_max", "4000", "reply_queue_max", "128Ki", NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    assert_int_equal(setsockopt(raw.fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof(small)), 0);
    for (int i = 0; i < 2000; i++) {
        strcpy(raw_frame(&raw, NXL_FRAME_FETCH)->name, "a");
        while (raw_send(&raw, NULL, 0) != 0)
            rig_turns(&rig, 1);
    }
    assert_true(rig_run(&rig, calls_are, &rig));
    for (uint32_t i = 0; i < 2000 && rig.xfer->calls[i].open; i++)
        fake_xfer_answer(rig.xfer, i, NXL_NOT_FOUND, NULL);
    assert_true(rig_run(&rig, sessions_are_0, &rig));
    assert_non_null(strstr(rig.xfer->sessions->reason, "socket.reply_queue_max"));
    assert_int_equal(rig_metric(&rig, "nixlet_sessions_ended_total", "reason=\"slow\""), 1);
    raw_close(&raw);
    rig_close(&rig);
}

static void calls_without_an_answer_are_bounded(void **state)
{
    struct rig rig;
    struct raw raw;

    (void)state;
    rig_open(&rig, "calls_max", "3", NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    for (int i = 0; i < 3; i++) {
        raw_frame(&raw, NXL_FRAME_CONNECT);
        assert_int_equal(raw_send(&raw, NULL, 0), 0);
    }
    raw_frame(&raw, NXL_FRAME_CONNECT);
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_LIMIT);
    assert_non_null(strstr(raw.in->text, "socket.calls_max"));
    fake_xfer_answer(rig.xfer, 1, NXL_OK, NULL);
    assert_int_equal(raw_wait(&raw), 1);
    assert_int_equal(raw.in->seq, raw.out->seq - 2);
    raw_frame(&raw, NXL_FRAME_CONNECT);
    assert_int_equal(raw_send(&raw, NULL, 0), 0);
    raw_frame(&raw, NXL_FRAME_CONNECT);
    assert_int_equal(raw_ask(&raw, NULL, 0), NXL_LIMIT);
    raw_close(&raw);
    rig_close(&rig); /* the open calls go with the session */
}

/* ---- the end ------------------------------------------------------------------------------- */

/* Connects, says HELLO, leaves the socket to a child of its own, and dies. */
static void die_but_leave_the_socket(const char *path, int hold)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    static struct nxl_frame frame;
    static unsigned char buf[NXL_FRAME_MAX];
    int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    size_t size = 0;
    char byte;

    strcpy(addr.sun_path, path);
    frame.type = NXL_FRAME_HELLO;
    frame.hello.magic = NXL_FRAME_MAGIC;
    frame.hello.version_min = frame.hello.version_max = 1;
    frame.hello.slots = 1;
    frame.hello.arena_bytes = frame.hello.notice_bytes = 4096;
    if (connect(fd, (struct sockaddr *)&addr, sizeof(addr)) != 0 ||
        nxl_frame_encode(&frame, buf, sizeof(buf), &size, NULL) != NXL_OK ||
        send(fd, buf, size, 0) != (ssize_t)size || recv(fd, buf, sizeof(buf), 0) <= 0)
        _exit(1);
    if (fork() == 0) {
        (void)!read(hold, &byte, 1); /* until the test has seen enough */
        _exit(0);
    }
    (void)raise(SIGKILL);
}

static int one_closed(void *arg)
{
    return ((struct rig *)arg)->xfer->closed == 1;
}

/* C-018, C-027: nothing may stay held for a dead process because something else keeps its socket.
 */
static void a_killed_client_is_gone_although_its_child_holds_the_socket(void **state)
{
    struct rig rig;
    int hold[2], status;
    pid_t pid;

    (void)state;
    rig_open(&rig, NULL);
    assert_int_equal(pipe2(hold, O_CLOEXEC), 0);
    pid = fork();
    if (pid == 0) {
        close(hold[1]);
        die_but_leave_the_socket(rig.path, hold[0]);
    }
    assert_true(rig_run(&rig, one_closed, &rig));
    assert_string_equal(rig.xfer->sessions->reason, "process exited");
    assert_int_equal(rig.xfer->sessions->pid, pid);
    assert_int_equal(rig_metric(&rig, "nixlet_sessions_ended_total", "reason=\"exited\""), 1);
    close(hold[1]); /* now the grandchild goes, too */
    close(hold[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    rig_close(&rig);
}

static void closing_the_front_says_goaway_and_marks_the_ring_gone(void **state)
{
    struct rig rig;
    struct raw raw;
    uint64_t woken = 0;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    rig_front_close(&rig);
    assert_int_equal(raw_recv(&raw), 1);
    assert_int_equal(raw.in->type, NXL_FRAME_GOAWAY);
    assert_int_equal(raw.in->code, NXL_NO_AGENT);
    assert_string_equal(raw.in->text, "the agent is leaving");
    assert_int_equal(raw_recv(&raw), -1);
    assert_int_equal(atomic_load(&raw.ring.header->gone), 1);
    assert_int_equal(read(raw.wake, &woken, sizeof(woken)),
                     sizeof(woken)); /* whoever sleeps is woken */
    assert_int_equal(access(rig.path, F_OK), -1);
    raw_close(&raw);
    rig_close(&rig);
}

static void answers_to_a_session_that_ended_meanwhile_are_dropped(void **state)
{
    struct rig rig;
    struct raw raw;

    (void)state;
    rig_open(&rig, NULL);
    raw_open(&raw, &rig);
    raw_welcome(&raw);
    for (int i = 0; i < 5; i++) {
        strcpy(raw_frame(&raw, NXL_FRAME_FETCH)->name, "nobody");
        assert_int_equal(raw_send(&raw, NULL, 0), 0);
    }
    raw_close(&raw); /* five frames lie in the queue: all are served before the end is seen */
    assert_true(rig_run(&rig, one_closed, &rig));
    assert_int_equal(rig.xfer->used.fetch, 5);
    for (uint32_t i = 0; i < 5; i++)
        assert_int_equal(rig.xfer->calls[i].open, 0);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hello_is_answered_with_ring_doorbell_and_wake_up_in_this_order),
        cmocka_unit_test(hello_over_a_limit_names_the_option_and_may_be_said_again),
        cmocka_unit_test(hello_without_a_common_version_is_told_both_ranges),
        cmocka_unit_test(every_frame_before_hello_and_a_second_hello_is_refused),
        cmocka_unit_test(an_engine_without_room_for_a_session_is_said_to_the_client),
        cmocka_unit_test(a_client_that_never_says_hello_is_sent_away),
        cmocka_unit_test(one_client_too_many_is_told_so_and_the_others_stay),
        cmocka_unit_test(clients_are_turned_away_before_the_descriptors_run_out),
        cmocka_unit_test(random_bytes_end_their_session_and_no_other),
        cmocka_unit_test(truncated_and_flipped_frames_are_refused_and_change_nothing),
        cmocka_unit_test(replies_and_goaways_from_a_client_end_its_session),
        cmocka_unit_test(an_oversized_packet_ends_the_session_with_a_reason),
        cmocka_unit_test(descriptors_reach_the_engine_and_are_closed_after_the_frame),
        cmocka_unit_test(a_region_must_name_a_descriptor_that_came_and_others_take_none),
        cmocka_unit_test(more_descriptors_than_a_frame_may_carry_end_the_session_and_leak_none),
        cmocka_unit_test(a_thousand_sessions_leave_the_number_of_descriptors_flat),
        cmocka_unit_test(without_descriptors_accepting_pauses_and_goes_on),
        cmocka_unit_test(who_does_not_read_answers_is_not_heard_until_he_reads),
        cmocka_unit_test(answers_that_pile_up_unread_end_the_session),
        cmocka_unit_test(calls_without_an_answer_are_bounded),
        cmocka_unit_test(a_killed_client_is_gone_although_its_child_holds_the_socket),
        cmocka_unit_test(closing_the_front_says_goaway_and_marks_the_ring_gone),
        cmocka_unit_test(answers_to_a_session_that_ended_meanwhile_are_dropped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
