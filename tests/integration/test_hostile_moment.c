/* test_hostile_moment.c - a client that stops at the worst moment: in the middle of HELLO, of its
 * transfers with a full notice ring, of a registration. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/hostile.h"

#define MIB (1u << 20)
#define HOME 0x700000000000u
#define SLOTS 8u /* as many transfers as may run */

static struct hostile scene;

static int scene_open(void **state)
{
    hostile_open(&scene, 1);
    return 0;
}

static int scene_close(void **state)
{
    hostile_close(&scene);
    return 0;
}

/* ---- HELLO and silence ------------------------------------------------------------------------
 */

static size_t hello_encode(struct raw *raw)
{
    struct nxl_frame *out = raw_frame(raw, NXL_FRAME_HELLO);

    out->hello.magic = NXL_FRAME_MAGIC;
    out->hello.version_min = out->hello.version_max = NXL_FRAME_VERSION_MAX;
    out->hello.slots = 64;
    out->hello.arena_bytes = MIB;
    out->hello.notice_bytes = 4096;
    return raw_encode(raw);
}

static void a_client_that_says_nothing_is_disconnected_at_the_deadline(void **state)
{
    uint64_t began = cluster_now();
    struct raw raw;

    raw_connect(&raw, &scene.cluster, 0);
    assert_true(raw_ended(&raw, 10000));
    assert_true(cluster_now() - began > 1900000000u); /* socket.hello_timeout is 2s here */
    hostile_says(raw.goaway, "socket.hello_timeout");
    assert_true(hostile_metric(&scene, "nixlet_sessions_ended_total", "reason=\"slow\"") > 0);
    raw_close(&raw);
    hostile_unharmed(&scene);
}

static void half_a_hello_is_no_hello(void **state)
{
    for (size_t part = 2; part <= 5; part++) {
        struct raw raw;
        size_t size;

        raw_connect(&raw, &scene.cluster, 0);
        size = hello_encode(&raw);
        assert_int_equal(raw_send_bytes(&raw, raw.packet, size * (part - 1) / part, NULL, 0), 0);
        assert_true(raw_ended(&raw, 10000));
        raw_close(&raw);
    }
    hostile_unharmed(&scene);
}

/* Being refused again and again is not a way to stay. */
static void hellos_that_are_refused_do_not_put_off_the_deadline(void **state)
{
    uint64_t began = cluster_now();
    struct raw raw;
    int code;

    raw_connect(&raw, &scene.cluster, 0);
    do {
        struct nxl_frame *out;

        (void)hello_encode(&raw);
        out = raw.out;
        out->hello.version_min = out->hello.version_max = 99;
        code = raw_call(&raw, NULL, 0);
        if (code != RAW_GONE)
            assert_int_equal(code, NXL_VERSION);
        (void)poll(NULL, 0, 20); /* it takes its time on purpose */
    } while (code != RAW_GONE && cluster_now() - began < 10000000000u);
    assert_int_equal(code, RAW_GONE);
    assert_true(cluster_now() - began > 1900000000u);
    raw_close(&raw);
    hostile_unharmed(&scene);
}

/* ---- a process of its own
 * ------------------------------------------------------------------------ */

static pid_t process_start(void (*run)(struct raw *raw))
{
    pid_t parent = getpid(), pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        static struct raw raw;

        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            run(&raw);
        _exit(0);
    }
    return pid;
}

static void process_kill(pid_t pid)
{
    int status;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
}

/* Its notice ring is full, its own transfers run, somebody else's notices are on their way to it,
 * and there it stops. */
static void stop_in_the_middle(struct raw *raw)
{
    struct nxl_ring_entry notify = {.kind = NXL_RING_NOTIFY, .notice_size = 900};
    struct nxl_run from = {.addr = HOME, .len = 16 * MIB, .count = 1};
    struct nxl_run to = {.addr = HOME + 16 * MIB, .len = 16 * MIB, .count = 1};
    int file = raw_memfd(32 * MIB, 1);
    uint32_t self;

    raw_open(raw, &scene.cluster, 0, "sleeper");
    if (raw_register(raw, file, HOME, 32 * MIB, NULL) != NXL_OK ||
        !(self = raw_find(raw, "sleeper")))
        abort();
    notify.peer = raw->peer;
    notify.remote = self;
    for (int k = 0; k < 20; k++) /* of which 4 KiB hold two or three */
        (void)raw_submit(raw, &notify);
    atomic_store(&raw->ring.header->client_parked, 1); /* and it wants to be woken */
    for (uint32_t slot = 0; slot < SLOTS; slot++)
        (void)raw_post(raw, slot, 1, self, &from, &to, NXL_RING_WRITE | NXL_RING_NOTICE);
    raise(SIGSTOP);
}

static int running_is_none(void *arg)
{
    return hostile_metric(&scene, "nixlet_transfers_running", "") <= 1; /* the steady ones' */
}

static void one_that_stops_in_the_middle_of_its_transfers_holds_nobody_up(void **state)
{
    pid_t pid = process_start(stop_in_the_middle);
    int status;

    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    hostile_unnoticed(&scene, 50);
    /* What it began ends without it. */
    assert_true(cluster_until(running_is_none, NULL, 10000000000u));
    assert_true(hostile_metric(&scene, "nixlet_notice_queue_bytes", "") > 0);
    /* Notices to it are held up to the limit and then lost; whoever sends them is not held up. */
    {
        struct nxl_ring_entry notify = {.kind = NXL_RING_NOTIFY, .notice_size = 1000};
        double lost = hostile_metric(&scene, "nixlet_notices_lost_total", "");
        struct raw raw;

        raw_open(&raw, &scene.cluster, 0, "waker");
        notify.peer = raw.peer;
        notify.remote = raw_find(&raw, "sleeper");
        for (int k = 0; k < 200; k++)
            assert_true(raw_submit(&raw, &notify));
        assert_true(raw_alive(&raw));
        assert_true(hostile_metric(&scene, "nixlet_notices_lost_total", "") > lost);
        raw_close(&raw);
    }
    hostile_unnoticed(&scene, 50);
    process_kill(pid);
    hostile_unharmed(&scene);
}

static void one_that_wakes_up_again_finds_its_session_as_it_was(void **state)
{
    pid_t pid = process_start(stop_in_the_middle);
    int status;

    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    hostile_unnoticed(&scene, 20);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    hostile_unharmed(&scene);
}

/* As fast as it can, so that a kill falls in the middle. */
static void register_for_ever(struct raw *raw)
{
    int files[NXL_FRAME_FDS_MAX];

    for (uint32_t i = 0; i < NXL_FRAME_FDS_MAX; i++)
        files[i] = raw_memfd(MIB, 1);
    raw_open(raw, &scene.cluster, 0, "mayfly");
    for (uint32_t round = 0;; round++) {
        struct nxl_frame *out = raw_frame(raw, NXL_FRAME_REGISTER);
        uint32_t count = NXL_FRAME_REGIONS_MAX;

        out->count = count;
        for (uint32_t i = 0; i < count; i++)
            out->regions[i] = (struct nxl_frame_region){
                .addr = HOME + (uint64_t)i * MIB, .len = MIB, .fd_index = i % NXL_FRAME_FDS_MAX};
        if (raw_send(raw, files, NXL_FRAME_FDS_MAX) != 0 || raw_recv(raw, 10000) != 1)
            _exit(1);
        if (round % 4 == 3) { /* as many as a session may have: away with some of them */
            uint64_t ids[NXL_FRAME_REGIONS_MAX];

            memcpy(ids, raw->in->ids, sizeof(ids));
            out = raw_frame(raw, NXL_FRAME_DEREGISTER);
            out->count = count;
            memcpy(out->ids, ids, sizeof(ids));
            (void)raw_send(raw, NULL, 0);
        }
    }
}

static void one_that_is_killed_in_the_middle_of_registering_leaves_nothing_behind(void **state)
{
    uint64_t seed = 7;

    for (int round = 0; round < 15; round++) {
        pid_t pid = process_start(register_for_ever);

        (void)poll(NULL, 0, 1 + (int)(raw_random(&seed) % 60)); /* anywhere in it */
        process_kill(pid);
    }
    hostile_unharmed(&scene);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_client_that_says_nothing_is_disconnected_at_the_deadline),
        cmocka_unit_test(half_a_hello_is_no_hello),
        cmocka_unit_test(hellos_that_are_refused_do_not_put_off_the_deadline),
        cmocka_unit_test(one_that_stops_in_the_middle_of_its_transfers_holds_nobody_up),
        cmocka_unit_test(one_that_wakes_up_again_finds_its_session_as_it_was),
        cmocka_unit_test(one_that_is_killed_in_the_middle_of_registering_leaves_nothing_behind),
    };

    return cmocka_run_group_tests_name("a client that stops at the worst moment", tests, scene_open,
                                       scene_close);
}
