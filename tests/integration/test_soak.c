/* test_soak.c - eight clients at two agents do random things while clients are killed and one agent
 * is killed and comes back. NIXLET_SOAK_SECONDS (20) long; run it for 600 by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/cluster.h"

#define CLIENTS 8

struct soak {
    struct cluster cluster;
    pid_t pids[CLIENTS];
    int killed[CLIENTS];
    unsigned seconds, starts;
    uint64_t end;
    char log[160];
};

static void client_start(struct soak *s, int i)
{
    char name[16], seed[16], seconds[16], peers[16];
    uint64_t now = cluster_now();
    unsigned left = now >= s->end ? 1 : (unsigned)((s->end - now) / 1000000000u) + 1;

    snprintf(name, sizeof(name), "soak%d", i);
    snprintf(seed, sizeof(seed), "%u", ++s->starts);
    snprintf(seconds, sizeof(seconds), "%u", left);
    snprintf(peers, sizeof(peers), "%d", CLIENTS);
    s->pids[i] = fork();
    assert_true(s->pids[i] >= 0);
    if (s->pids[i] == 0) {
        int fd = open(s->log, O_WRONLY | O_CREAT | O_APPEND, 0600);

        dup2(fd, 1);
        dup2(fd, 2);
        execl(NXL_SOAK_BIN, NXL_SOAK_BIN, s->cluster.agents[i % 2].socket, name, seed, seconds,
              peers, (char *)NULL);
        _exit(127);
    }
}

static void log_show(const char *path)
{
    char line[512];
    FILE *file = fopen(path, "r");

    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        fputs(line, stderr);
    if (file != NULL)
        fclose(file);
}

static void client_reap(struct soak *s, int i)
{
    int status;

    assert_int_equal(waitpid(s->pids[i], &status, 0), s->pids[i]);
    s->pids[i] = 0;
    if (!s->killed[i] && !(WIFEXITED(status) && WEXITSTATUS(status) == 0)) {
        log_show(s->log);
        log_show(s->cluster.agents[i % 2].log);
        fail_msg("soak%d ended with wait status 0x%x", i, status);
    }
    s->killed[i] = 0;
}

static void clients_check(struct soak *s)
{
    for (int i = 0; i < CLIENTS; i++) {
        siginfo_t info = {0};

        if (waitid(P_PID, (id_t)s->pids[i], &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
            info.si_pid != 0 && cluster_now() + 3000000000u < s->end) {
            client_reap(s, i); /* fails unless we killed it */
            client_start(s, i);
        }
    }
}

static int no_sessions(void *arg)
{
    struct soak *s = arg;

    return cluster_metric(&s->cluster, 0, "nixlet_sessions") == 0 &&
           cluster_metric(&s->cluster, 1, "nixlet_sessions") == 0 &&
           cluster_metric(&s->cluster, 0, "nixlet_regions") == 0 &&
           cluster_metric(&s->cluster, 1, "nixlet_regions") == 0 &&
           cluster_metric(&s->cluster, 0, "nixlet_transfers_unquiet") == 0 &&
           cluster_metric(&s->cluster, 1, "nixlet_transfers_unquiet") == 0;
}

static void random_operations_with_kills_lose_nothing(void **state)
{
    static struct soak s;
    const char *seconds = getenv("NIXLET_SOAK_SECONDS");
    uint64_t next_kill, next_agent;
    int fds;

    (void)state;
    s.seconds = seconds != NULL ? (unsigned)atoi(seconds) : 20;
    cluster_start(&s.cluster, 2, 0);
    fds = cluster_fd_count(s.cluster.agents[0].pid);
    snprintf(s.log, sizeof(s.log), "%s/soak.log", s.cluster.dir);
    s.end = cluster_now() + (uint64_t)s.seconds * 1000000000u;
    for (int i = 0; i < CLIENTS; i++)
        client_start(&s, i);
    next_kill = cluster_now() + 1000000000u;
    next_agent = cluster_now() + (uint64_t)s.seconds * 1000000000u / 3;
    while (cluster_now() < s.end) {
        (void)poll(NULL, 0, 50); /* the random work happens elsewhere */
        if (cluster_now() >= next_kill) {
            int i = (int)(s.starts % CLIENTS);

            s.killed[i] = 1;
            kill(s.pids[i], SIGKILL);
            next_kill = cluster_now() + 700000000u;
        }
        if (cluster_now() >=
            next_agent) { /* only agent 1, so that agent 0's counts stay comparable */
            cluster_agent_kill(&s.cluster, 1, SIGKILL);
            cluster_agent_start(&s.cluster, 1);
            next_agent = cluster_now() + (uint64_t)s.seconds * 1000000000u / 3;
        }
        clients_check(&s);
    }
    for (int i = 0; i < CLIENTS; i++)
        client_reap(&s, i);
    if (!cluster_until(no_sessions, &s, 45000000000u)) {
        static char transfers[4000];

        log_show(s.cluster.agents[0].log);
        (void)cluster_http(&s.cluster, 0, "/v1/transfers", transfers, sizeof(transfers));
        fprintf(stderr, "%s\n", transfers);
        fail_msg("something is left: sessions %g %g regions %g %g unquiet %g %g",
                 cluster_metric(&s.cluster, 0, "nixlet_sessions"),
                 cluster_metric(&s.cluster, 1, "nixlet_sessions"),
                 cluster_metric(&s.cluster, 0, "nixlet_regions"),
                 cluster_metric(&s.cluster, 1, "nixlet_regions"),
                 cluster_metric(&s.cluster, 0, "nixlet_transfers_unquiet"),
                 cluster_metric(&s.cluster, 1, "nixlet_transfers_unquiet"));
    }
    printf("soak: %u client lives, fds of agent 0 %d -> %d\n", s.starts, fds,
           cluster_fd_count(s.cluster.agents[0].pid));
    assert_true(cluster_fd_count(s.cluster.agents[0].pid) <=
                fds + 12); /* links and UCX connections */
    log_show(s.log);
    cluster_stop(&s.cluster); /* a sanitizer report or a leak makes the agent's exit status wrong */
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_operations_with_kills_lose_nothing)};

    return cmocka_run_group_tests(tests, NULL, NULL);
}
