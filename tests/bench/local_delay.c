/* local_delay.c - how long small things take: 4 KiB from post to seen, and a notice there and back.
 */
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench/local.h"

#define ROUNDS 1000

static void delay_row(const char *name, double *ns, int percent, double goal_us)
{
    local_row(&(struct local_row){.name = name,
                                  .unit = "us",
                                  .value = local_percentile(ns, ROUNDS, percent) / 1000,
                                  .kind = goal_us > 0 ? GOAL_VALUE_AT_MOST : GOAL_NONE,
                                  .goal = goal_us});
}

/* Both sides busy: the agent spins after work, and so do we. */
static void spinning(struct nxl_transfer *transfer)
{
    double ns[ROUNDS];

    for (int i = -100; i < ROUNDS; i++) {
        struct nxl_err err = {0};
        uint64_t start = cluster_now();

        local_must(nxl_transfer_post(transfer, &err), &err, "post");
        while (nxl_transfer_poll(transfer) == NXL_IN_PROG)
            continue;
        ns[i < 0 ? 0 : i] = (double)(cluster_now() - start);
    }
    delay_row("post_to_seen_4KiB_spinning_p50", ns, 50, 5);
    delay_row("post_to_seen_4KiB_spinning_p99", ns, 99, 0);
}

#define PAUSE_NS 200000 /* four times what the agent spins after work: it sleeps by then */

static void sleep_a_little(void)
{
    struct timespec pause = {.tv_nsec = PAUSE_NS};

    (void)nanosleep(&pause, NULL);
}

/* What this kernel and machine take to wake a sleeping process that wakes us: an eventfd there, one
 * back, after the same pause. */
static double eventfd_round_trip(void)
{
    double ns[ROUNDS];
    int there = eventfd(0, EFD_CLOEXEC), back = eventfd(0, EFD_CLOEXEC);
    uint64_t value = 1;
    pid_t pid = fork();

    if (pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        while (read(there, &value, sizeof(value)) == sizeof(value))
            (void)!write(back, &value, sizeof(value));
        _exit(0);
    }
    for (int i = -20; i < ROUNDS; i++) {
        struct pollfd fd = {.fd = back, .events = POLLIN};
        uint64_t start;

        sleep_a_little();
        start = cluster_now();
        value = 1;
        (void)!write(there, &value, sizeof(value));
        (void)poll(&fd, 1, 1000);
        ns[i < 0 ? 0 : i] = (double)(cluster_now() - start);
        (void)!read(back, &value, sizeof(value));
    }
    kill(pid, SIGKILL);
    (void)waitpid(pid, NULL, 0);
    close(there);
    close(back);
    return local_percentile(ns, ROUNDS, 50) / 1000;
}

/* The agent has gone to sleep, and we sleep on the descriptor until the end is there. */
static void parked(struct near *near, struct nxl_transfer *transfer)
{
    double ns[ROUNDS], own, bar;

    for (int i = -20; i < ROUNDS; i++) {
        struct pollfd fd = {.fd = nxl_client_fd(near->client), .events = POLLIN};
        struct nxl_err err = {0};
        uint64_t start;

        sleep_a_little();
        start = cluster_now();
        local_must(nxl_transfer_post(transfer, &err), &err, "post");
        while (nxl_transfer_poll(transfer) == NXL_IN_PROG)
            if (nxl_client_arm(near->client) == NXL_OK &&
                nxl_transfer_poll(transfer) == NXL_IN_PROG)
                (void)poll(&fd, 1, 1000);
        ns[i < 0 ? 0 : i] = (double)(cluster_now() - start);
        (void)nxl_client_arm(near->client); /* as a poll loop does when it has seen what came */
    }
    bar = eventfd_round_trip();
    own = local_percentile(ns, ROUNDS, 50) / 1000;
    local_row(&(struct local_row){.name = "post_to_seen_4KiB_parked_p50",
                                  .unit = "us",
                                  .value = own,
                                  .against = "an eventfd to a sleeping process and one back, us",
                                  .against_value = bar,
                                  .ratio = own / bar,
                                  .kind = GOAL_VALUE_AT_MOST,
                                  .goal = 25});
    delay_row("post_to_seen_4KiB_parked_p99", ns, 99, 0);
}

static void notice_wait(struct near *near)
{
    struct nxl_event event;

    if (!cluster_event(near->client, near->peer, NXL_EVENT_NOTICE, WAIT_NS, &event))
        local_fail("no answer to a notice");
}

/* Between two agents over TLS; the far client sleeps and echoes. */
static void notices(struct cluster *c, struct near *near)
{
    struct cluster_peer echo;
    struct nxl_remote *remote;
    double ns[ROUNDS];

    struct nxl_err err = {0};

    cluster_peer_start(c, 1, "echo", MIB, "echo", &echo);
    local_must(nxl_send_metadata(near->peer, NULL, NULL, NULL, 0, 0, &err), &err, "publish");
    remote = near_fetch(near, "echo");
    for (int i = -20; i < ROUNDS; i++) {
        uint64_t start = cluster_now();

        local_must(nxl_notify(near->peer, remote, "ping", 4, &err), &err, "notify");
        notice_wait(near);
        ns[i < 0 ? 0 : i] = (double)(cluster_now() - start) / 2;
    }
    delay_row("notice_half_trip_two_agents_p50", ns, 50, 0);
    delay_row("notice_half_trip_two_agents_p99", ns, 99, 0);
    cluster_peer_kill(&echo, SIGKILL);
}

void local_delay(struct cluster *c)
{
    struct near a, b;
    struct nxl_remote *remote;
    struct nxl_transfer *transfer;

    near_open(c, 0, "a", MIB, &a);
    near_open(c, 0, "b", MIB, &b);
    remote = near_load(&a, &b);
    transfer = near_create(&a, NXL_READ, remote, 0, (uint64_t)(uintptr_t)b.memory, 4 * KIB);
    local_wait((near_run(transfer), transfer));
    spinning(transfer);
    parked(&a, transfer);
    near_release(transfer);
    notices(c, &a);
    near_close(&a);
    near_close(&b);
}
